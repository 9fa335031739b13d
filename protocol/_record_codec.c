/* The loops over the records of a batch, compiled. record_codec.py does the same in Python, with equal values
 * and errors, and explains the format; tests compare the two. Where this file was not compiled, Python is used.
 *
 * A peer wrote everything that is read here. A cursor never moves beyond the end of its bytes, and no size is
 * trusted before it is compared with the bytes that remain. No Python code runs while an object is examined: only
 * lists, integers (subclasses included) and bytes are touched, and the GIL is held throughout.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MIN_RECORD_SIZE 7

/* What the loops look at in every record. Built for one version of CPython, they look into the objects; in the
 * wheel for all later versions, which has only the limited API, they ask by function calls. Callers have made sure
 * that `list` is one and long enough. */
#ifdef Py_LIMITED_API
#define LIST_ITEM(list, index) PyList_GetItem(list, index)
#define SET_TUPLE_ITEM(tuple, index, item) PyTuple_SetItem(tuple, index, item)
#define GET_BYTES(item, start, size) (PyBytes_AsStringAndSize(item, (char **)(start), size) == 0)
#else
#define LIST_ITEM(list, index) PyList_GET_ITEM(list, index)
#define SET_TUPLE_ITEM(tuple, index, item) PyTuple_SET_ITEM(tuple, index, item)
#define GET_BYTES(item, start, size) \
    (PyBytes_Check(item) && (*(start) = (const uint8_t *)PyBytes_AS_STRING(item), *(size) = PyBytes_GET_SIZE(item), 1))
#endif

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* Decoding ------------------------------------------------------------------------------------------------ */

static int
ends_early(void)
{
    PyErr_SetString(PyExc_IndexError, "the records of a batch end early");
    return -1;
}

static int
read_varint_slowly(Cursor *cursor, uint64_t *number)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (cursor->at >= cursor->end) {
            return ends_early();
        }
        uint8_t byte = *cursor->at++;
        if (shift == 63 && byte > 1) {
            PyErr_SetString(PyExc_ValueError, "a number of more than 64 bits");
            return -1;
        }
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = value;
            return 0;
        }
    }
}

/* A varint, still in zigzag form. */
static inline int
read_varint(Cursor *cursor, uint64_t *number)
{
    if (cursor->at < cursor->end && *cursor->at < 0x80) {
        *number = *cursor->at++;
        return 0;
    }
    return read_varint_slowly(cursor, number);
}

static inline int64_t
unzigzag(uint64_t number)
{
    return (int64_t)((number >> 1) ^ -(number & 1));
}

/* A length and that many bytes; `start` is NULL for null. `refusal` is for lengths below -1. */
static inline int
read_span(Cursor *cursor, const uint8_t **start, Py_ssize_t *size, const char *refusal)
{
    uint64_t number;
    if (read_varint(cursor, &number) < 0) {
        return -1;
    }
    if (number & 1) {
        if (number != 1) {
            PyErr_SetString(PyExc_ValueError, refusal);
            return -1;
        }
        *start = NULL;
        *size = 0;
        return 0;
    }
    number >>= 1;
    if (number > (uint64_t)(cursor->end - cursor->at)) {
        return ends_early();
    }
    *start = cursor->at;
    *size = (Py_ssize_t)number;
    cursor->at += number;
    return 0;
}

static inline PyObject *
as_bytes(const uint8_t *start, Py_ssize_t size)
{
    if (start == NULL) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize((const char *)start, size);
}

static inline PyObject *
read_bytes(Cursor *cursor, const char *refusal)
{
    const uint8_t *start;
    Py_ssize_t size;
    if (read_span(cursor, &start, &size, refusal) < 0) {
        return NULL;
    }
    return as_bytes(start, size);
}

static PyObject *
read_header(Cursor *cursor)
{
    static const char refusal[] = "the length in a record's header is below -1";
    const uint8_t *key, *value;
    Py_ssize_t key_size, value_size;
    if (read_span(cursor, &key, &key_size, refusal) < 0) {
        return NULL;
    }
    if (key == NULL) {
        PyErr_SetString(PyExc_ValueError, "a record's header has no key");
        return NULL;
    }
    if (read_span(cursor, &value, &value_size, refusal) < 0) {
        return NULL;
    }
    PyObject *name = PyUnicode_DecodeUTF8((const char *)key, key_size, NULL);
    if (name == NULL) {
        return NULL;
    }
    PyObject *content = as_bytes(value, value_size);
    if (content == NULL) {
        Py_DECREF(name);
        return NULL;
    }
    PyObject *pair = PyTuple_Pack(2, name, content);
    Py_DECREF(name);
    Py_DECREF(content);
    return pair;
}

static PyObject *
read_headers(Cursor *cursor)
{
    uint64_t count;
    if (read_varint(cursor, &count) < 0) {
        return NULL;
    }
    if (count & 1) {
        PyErr_SetString(PyExc_ValueError, "the number of a record's headers is negative");
        return NULL;
    }
    PyObject *headers = PyList_New(0);
    if (headers == NULL) {
        return NULL;
    }
    for (count >>= 1; count > 0; count--) {
        PyObject *header = read_header(cursor);
        if (header == NULL || PyList_Append(headers, header) < 0) {
            Py_XDECREF(header);
            Py_DECREF(headers);
            return NULL;
        }
        Py_DECREF(header);
    }
    PyObject *tuple = PyList_AsTuple(headers);
    Py_DECREF(headers);
    return tuple;
}

/* The sum as a Python integer, which has no maximum. */
static PyObject *
exact_sum(int64_t one, int64_t other)
{
    int64_t sum;
    if (!__builtin_add_overflow(one, other, &sum)) {
        return PyLong_FromLongLong(sum);
    }
    PyObject *left = PyLong_FromLongLong(one);
    PyObject *right = PyLong_FromLongLong(other);
    PyObject *result = left == NULL || right == NULL ? NULL : PyNumber_Add(left, right);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

typedef struct {
    PyObject *offsets; /* NULL if they have no gaps */
    PyObject *timestamps;
    PyObject *keys;
    PyObject *values;
    PyObject *headers; /* NULL until a record has some */
} Columns;

static void
drop_columns(Columns *columns)
{
    Py_XDECREF(columns->offsets);
    Py_XDECREF(columns->timestamps);
    Py_XDECREF(columns->keys);
    Py_XDECREF(columns->values);
    Py_XDECREF(columns->headers);
}

/* Append, and release the reference. */
static inline int
append(PyObject *list, PyObject *item)
{
    if (item == NULL) {
        return -1;
    }
    int status = PyList_Append(list, item);
    Py_DECREF(item);
    return status;
}

static int
append_headers(Columns *columns, Py_ssize_t index, PyObject *headers)
{
    if (headers == NULL) {
        return -1;
    }
    if (columns->headers == NULL) {
        columns->headers = PyList_New(0);
        for (Py_ssize_t before = 0; columns->headers != NULL && before < index; before++) {
            if (append(columns->headers, PyTuple_New(0)) < 0) {
                Py_DECREF(headers);
                return -1;
            }
        }
        if (columns->headers == NULL) {
            Py_DECREF(headers);
            return -1;
        }
    }
    return append(columns->headers, headers);
}

static int
decode_records(Cursor *cursor, Columns *columns, Py_ssize_t record_count, int64_t last_offset_delta,
               int64_t base_offset, int64_t base_timestamp)
{
    uint64_t number, last_timestamp = 0;
    int64_t last_delta = -1;
    PyObject *timestamp = NULL; /* the last one: most are the same as the one before */
    for (Py_ssize_t index = 0; index < record_count; index++) {
        if (read_varint(cursor, &number) < 0) {
            goto failed;
        }
        if (number & 1) {
            PyErr_SetString(PyExc_ValueError, "the length of a record is negative");
            goto failed;
        }
        int64_t length = (int64_t)(number >> 1);
        const uint8_t *start = cursor->at;
        if (cursor->at < cursor->end) {
            cursor->at++; /* attributes, all undefined */
        }
        if (read_varint(cursor, &number) < 0) {
            goto failed;
        }
        if (timestamp == NULL || number != last_timestamp) {
            Py_XDECREF(timestamp);
            timestamp = exact_sum(base_timestamp, unzigzag(number));
            last_timestamp = number;
        }
        if (timestamp == NULL || PyList_Append(columns->timestamps, timestamp) < 0) {
            goto failed;
        }
        if (read_varint(cursor, &number) < 0) {
            goto failed;
        }
        if (columns->offsets != NULL) {
            int64_t delta = unzigzag(number);
            if (delta <= last_delta || delta > last_offset_delta) {
                PyErr_Format(PyExc_ValueError, "offset delta %lld after %lld", (long long)delta,
                             (long long)last_delta);
                goto failed;
            }
            if (append(columns->offsets, exact_sum(base_offset, delta)) < 0) {
                goto failed;
            }
            last_delta = delta;
        }
        else if (number != (uint64_t)index << 1) {
            PyErr_Format(PyExc_ValueError, "offset delta %lld where %zd is due", (long long)unzigzag(number),
                         index);
            goto failed;
        }
        if (append(columns->keys, read_bytes(cursor, "the length of a key is below -1")) < 0
            || append(columns->values, read_bytes(cursor, "the length of a value is below -1")) < 0) {
            goto failed;
        }
        if (cursor->at >= cursor->end) {
            ends_early();
            goto failed;
        }
        if (*cursor->at != 0) {
            if (append_headers(columns, index, read_headers(cursor)) < 0) {
                goto failed;
            }
        }
        else {
            cursor->at++;
            if (columns->headers != NULL && append(columns->headers, PyTuple_New(0)) < 0) {
                goto failed;
            }
        }
        int64_t taken = cursor->at - start;
        if (taken != length) {
            PyErr_Format(PyExc_ValueError, "a record ends %lld bytes from where its length says",
                         (long long)(taken - length));
            goto failed;
        }
    }
    Py_XDECREF(timestamp);
    if (cursor->at != cursor->end) {
        PyErr_Format(PyExc_ValueError, "%zd bytes after the last record of a batch",
                     (Py_ssize_t)(cursor->end - cursor->at));
        return -1;
    }
    return 0;
failed:
    Py_XDECREF(timestamp);
    return -1;
}

PyDoc_STRVAR(decode_doc, "decode(data, record_count, last_offset_delta, base_offset, base_timestamp)\n--\n\n"
                         "See record_codec.decode.");

static PyObject *
decode(PyObject *module, PyObject *args)
{
    PyObject *data;
    Py_ssize_t record_count;
    long long last_offset_delta, base_offset, base_timestamp;
    if (!PyArg_ParseTuple(args, "SnLLL:decode", &data, &record_count, &last_offset_delta, &base_offset,
                          &base_timestamp)) {
        return NULL;
    }
    Py_ssize_t size = PyBytes_Size(data);
    if (record_count > size / MIN_RECORD_SIZE) {
        ends_early();
        return NULL;
    }
    const uint8_t *start = (const uint8_t *)PyBytes_AsString(data);
    Cursor cursor = {start, start + size};
    int is_sparse = record_count != last_offset_delta + 1;
    Columns columns = {is_sparse ? PyList_New(0) : NULL, PyList_New(0), PyList_New(0), PyList_New(0), NULL};
    if ((is_sparse && columns.offsets == NULL) || columns.timestamps == NULL || columns.keys == NULL
        || columns.values == NULL
        || decode_records(&cursor, &columns, record_count, last_offset_delta, base_offset, base_timestamp) < 0) {
        drop_columns(&columns);
        return NULL;
    }
    PyObject *result = PyTuple_Pack(5, columns.offsets == NULL ? Py_None : columns.offsets, columns.timestamps,
                                    columns.keys, columns.values,
                                    columns.headers == NULL ? Py_None : columns.headers);
    drop_columns(&columns);
    return result;
}

/* Encoding ------------------------------------------------------------------------------------------------ */

static inline uint64_t
zigzag(int64_t number)
{
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

static inline Py_ssize_t
varint_size(uint64_t number)
{
    int highest = 63 - __builtin_clzll(number | 1);
    return (highest * 9 + 73) >> 6; /* highest / 7 + 1, for 0 to 63, without the division */
}

static inline uint8_t *
write_varint(uint8_t *at, uint64_t number)
{
    while (number > 0x7F) {
        *at++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *at++ = (uint8_t)number;
    return at;
}

/* The bytes of a key, a value or encoded headers, which belong to an object in a list of the caller. */
typedef struct {
    const uint8_t *start; /* NULL is null */
    Py_ssize_t size;
} Span;

static inline uint8_t *
write_span(uint8_t *at, const Span *span)
{
    if (span->start == NULL) {
        return write_varint(at, 1);
    }
    at = write_varint(at, (uint64_t)span->size << 1);
    memcpy(at, span->start, (size_t)span->size);
    return at + span->size;
}

/* Set a TypeError that ends with the name of the object's type. */
static int
refuse_type(PyObject *item, const char *message)
{
    PyObject *name = PyType_GetName(Py_TYPE(item));
    if (name != NULL) {
        PyErr_Format(PyExc_TypeError, "%s, not %U", message, name);
        Py_DECREF(name);
    }
    return -1;
}

static inline int
take_span(PyObject *item, Span *span)
{
    if (item == Py_None) {
        *span = (Span){NULL, 0};
        return 0;
    }
    if (!GET_BYTES(item, &span->start, &span->size)) {
        return refuse_type(item, "keys and values are bytes or None");
    }
    return 0;
}

static inline Py_ssize_t
span_size(const Span *span)
{
    return span->start == NULL ? 1 : varint_size((uint64_t)span->size << 1) + span->size;
}

typedef struct {
    int64_t timestamp_delta;
    Py_ssize_t size; /* without its own varint */
    Span key, value, tail;
} Measured;

static int
measure(Measured *records, Py_ssize_t count, PyObject *timestamps, PyObject *keys, PyObject *values, PyObject *tails,
        Py_ssize_t *total)
{
    static const uint8_t no_headers[] = {0};
    PyObject *last = NULL;
    int64_t base = 0, delta = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        Measured *record = &records[index];
        PyObject *timestamp = LIST_ITEM(timestamps, index);
        if (timestamp != last) {
            if (!PyLong_Check(timestamp)) {
                PyErr_SetString(PyExc_TypeError, "timestamps are integers");
                return -1;
            }
            long long number = PyLong_AsLongLong(timestamp);
            if (number == -1 && PyErr_Occurred()) {
                return -1;
            }
            if (index == 0) {
                base = number;
            }
            if (__builtin_sub_overflow((int64_t)number, base, &delta)) {
                PyErr_SetString(PyExc_OverflowError, "the timestamps of a batch are too far apart");
                return -1;
            }
            last = timestamp;
        }
        if (take_span(LIST_ITEM(keys, index), &record->key) < 0
            || take_span(LIST_ITEM(values, index), &record->value) < 0) {
            return -1;
        }
        record->tail = (Span){no_headers, 1};
        if (tails != Py_None && !GET_BYTES(LIST_ITEM(tails, index), &record->tail.start, &record->tail.size)) {
            PyErr_SetString(PyExc_TypeError, "encoded headers are bytes");
            return -1;
        }
        Py_ssize_t size = 1 + varint_size(zigzag(delta)) + varint_size((uint64_t)index << 1)
                          + span_size(&record->key) + span_size(&record->value) + record->tail.size;
        record->timestamp_delta = delta;
        record->size = size;
        size += varint_size((uint64_t)size << 1);
        if (size > PY_SSIZE_T_MAX - *total) {
            PyErr_NoMemory();
            return -1;
        }
        *total += size;
    }
    return 0;
}

PyDoc_STRVAR(encode_doc, "encode(prefix_size, timestamps, keys, values, tails)\n--\n\n"
                         "See record_codec.encode.");

static PyObject *
encode(PyObject *module, PyObject *args)
{
    Py_ssize_t prefix_size;
    PyObject *timestamps, *keys, *values, *tails;
    if (!PyArg_ParseTuple(args, "nO!O!O!O:encode", &prefix_size, &PyList_Type, &timestamps, &PyList_Type, &keys,
                          &PyList_Type, &values, &tails)) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(values);
    if (prefix_size < 0 || PyList_Size(timestamps) != count || PyList_Size(keys) != count
        || (tails != Py_None && (!PyList_Check(tails) || PyList_Size(tails) != count))) {
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        return NULL;
    }
    Measured *records = PyMem_New(Measured, count ? count : 1);
    if (records == NULL) {
        return PyErr_NoMemory();
    }
    Py_ssize_t total = prefix_size;
    PyObject *result = NULL;
    if (measure(records, count, timestamps, keys, values, tails, &total) == 0) {
        result = PyByteArray_FromStringAndSize(NULL, total);
    }
    if (result == NULL) {
        PyMem_Free(records);
        return NULL;
    }
    uint8_t *at = (uint8_t *)PyByteArray_AsString(result);
    memset(at, 0, (size_t)prefix_size);
    at += prefix_size;
    for (Py_ssize_t index = 0; index < count; index++) {
        const Measured *record = &records[index];
        at = write_varint(at, (uint64_t)record->size << 1);
        *at++ = 0; /* attributes */
        at = write_varint(at, zigzag(record->timestamp_delta));
        at = write_varint(at, (uint64_t)index << 1);
        at = write_span(at, &record->key);
        at = write_span(at, &record->value);
        if (record->tail.size == 1) {
            *at++ = *record->tail.start;
        }
        else {
            memcpy(at, record->tail.start, (size_t)record->tail.size);
            at += record->tail.size;
        }
    }
    PyMem_Free(records);
    return result;
}

/* Rows ---------------------------------------------------------------------------------------------------- */

#define ROW_FIELDS 9

/* What `rows` was called with, without the class. */
typedef struct {
    PyObject *topic, *partition, *offsets, *timestamps, *keys, *values, *headers, *timestamp_type, *leader_epoch;
    PyObject *no_headers;
    int64_t first_offset; /* if the offsets are no list */
} RowColumns;

/* The fields of a row are taken from a column, or are those of all rows. */
static PyObject *
row_at(PyTypeObject *type, const RowColumns *columns, Py_ssize_t index)
{
    PyObject *row = PyType_GenericAlloc(type, ROW_FIELDS);
    PyObject *offset = PyList_Check(columns->offsets) ? Py_NewRef(LIST_ITEM(columns->offsets, index))
                                                      : exact_sum(columns->first_offset, index);
    if (row == NULL || offset == NULL) {
        Py_XDECREF(row);
        Py_XDECREF(offset);
        return NULL;
    }
    PyObject *headers = columns->headers == Py_None ? columns->no_headers : LIST_ITEM(columns->headers, index);
    PyObject *fields[ROW_FIELDS] = {
        Py_NewRef(columns->topic), Py_NewRef(columns->partition), offset,
        Py_NewRef(LIST_ITEM(columns->timestamps, index)), Py_NewRef(LIST_ITEM(columns->keys, index)),
        Py_NewRef(LIST_ITEM(columns->values, index)), Py_NewRef(headers), Py_NewRef(columns->timestamp_type),
        Py_NewRef(columns->leader_epoch),
    };
    for (Py_ssize_t field = 0; field < ROW_FIELDS; field++) {
        SET_TUPLE_ITEM(row, field, fields[field]);
    }
    return row;
}

static int
is_column(PyObject *column, Py_ssize_t count)
{
    return PyList_Check(column) && PyList_Size(column) == count;
}

PyDoc_STRVAR(rows_doc, "rows(row, topic, partition, offsets, timestamps, keys, values, headers, timestamp_type, "
                       "leader_epoch)\n--\n\nSee record_codec.rows.");

static PyObject *
rows(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    RowColumns columns;
    if (!PyArg_ParseTuple(args, "O!OOOOOOOOO:rows", &PyType_Type, &type, &columns.topic, &columns.partition,
                          &columns.offsets, &columns.timestamps, &columns.keys, &columns.values, &columns.headers,
                          &columns.timestamp_type, &columns.leader_epoch)) {
        return NULL;
    }
    if (!PyType_IsSubtype(type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "rows are tuples");
        return NULL;
    }
    Py_ssize_t count = PyList_Check(columns.values) ? PyList_Size(columns.values) : -1;
    if (count < 0 || !is_column(columns.timestamps, count) || !is_column(columns.keys, count)
        || (columns.headers != Py_None && !is_column(columns.headers, count))
        || (!PyLong_Check(columns.offsets) && !is_column(columns.offsets, count))) {
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        return NULL;
    }
    columns.first_offset = 0;
    if (PyLong_Check(columns.offsets)) {
        columns.first_offset = PyLong_AsLongLong(columns.offsets);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    columns.no_headers = PyTuple_New(0);
    PyObject *list = columns.no_headers == NULL ? NULL : PyList_New(count);
    for (Py_ssize_t index = 0; list != NULL && index < count; index++) {
        PyObject *row = row_at(type, &columns, index);
        if (row == NULL || PyList_SetItem(list, index, row) < 0) {
            Py_CLEAR(list);
        }
    }
    Py_XDECREF(columns.no_headers);
    return list;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, decode_doc},
    {"encode", encode, METH_VARARGS, encode_doc},
    {"rows", rows, METH_VARARGS, rows_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._record_codec",
    .m_doc = "The loops of holdfast_log.protocol.record_codec, compiled.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__record_codec(void)
{
    return PyModuleDef_Init(&module);
}
