/* The loop from the records of a batch to the buffers of Arrow columns, compiled. arrow_columns_loop.py does the same
 * in Python, with equal buffers and errors, and explains them; tests compare the two. Where this file was not
 * compiled, Python is used.
 *
 * A peer wrote everything that is read here. A cursor never moves beyond the end of its bytes, no size is trusted
 * before it is compared with the bytes that remain, and no record is copied before all records of its batch were read.
 * The loops run without the GIL: they touch only the bytes that the caller holds, and memory that no other thread can
 * reach meanwhile, because `is_busy` refuses a second call.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIN_RECORD_SIZE 7
#define LOG_APPEND_TIME 1
#define HEADER_ENDS 8 /* bytes that a header takes besides those of its key and value */

/* Reading ------------------------------------------------------------------------------------------------- */

typedef enum { ENDED, FULL, ENDS_EARLY, DAMAGED, TOO_LARGE, NOT_UTF8, NO_MEMORY } Outcome;

/* All functions that read return -1 for bytes that do not have the format, after they have noted the reason. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    Outcome outcome;
    const char *reason; /* with a place for each of the two numbers, or fewer */
    long long first, second;
    const uint8_t *name; /* that is not UTF-8 */
    int64_t name_size;
} Cursor;

static int
refuse(Cursor *cursor, Outcome outcome, const char *reason, long long first, long long second)
{
    cursor->outcome = outcome;
    cursor->reason = reason;
    cursor->first = first;
    cursor->second = second;
    return -1;
}

static int
ends_early(Cursor *cursor)
{
    return refuse(cursor, ENDS_EARLY, "the records of a batch end early", 0, 0);
}

static int
damaged(Cursor *cursor, const char *reason)
{
    return refuse(cursor, DAMAGED, reason, 0, 0);
}

static int
read_varint_slowly(Cursor *cursor, uint64_t *number)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (cursor->at >= cursor->end) {
            return ends_early(cursor);
        }
        uint8_t byte = *cursor->at++;
        if (shift == 63 && byte > 1) {
            return damaged(cursor, "a number of more than 64 bits");
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
    if (cursor->end - cursor->at >= 2 && cursor->at[1] < 0x80) {
        *number = (uint64_t)(cursor->at[0] & 0x7F) | (uint64_t)cursor->at[1] << 7;
        cursor->at += 2;
        return 0;
    }
    return read_varint_slowly(cursor, number);
}

static inline int64_t
unzigzag(uint64_t number)
{
    return (int64_t)((number >> 1) ^ (0 - (number & 1)));
}

/* Bytes of the batch; `start` is NULL for null. */
typedef struct {
    const uint8_t *start;
    int64_t size;
} Span;

/* A length and that many bytes. `refusal` is for lengths below -1. */
static inline int
read_span(Cursor *cursor, Span *span, const char *refusal)
{
    uint64_t number;
    if (read_varint(cursor, &number) < 0) {
        return -1;
    }
    if (number & 1) {
        span->start = NULL;
        span->size = 0;
        return number == 1 ? 0 : damaged(cursor, refusal);
    }
    number >>= 1;
    if (number > (uint64_t)(cursor->end - cursor->at)) {
        return ends_early(cursor);
    }
    span->start = cursor->at;
    span->size = (int64_t)number;
    cursor->at += number;
    return 0;
}

/* Whether the bytes are what Python decodes as UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF. */
static int
is_utf8(const uint8_t *at, int64_t size)
{
    const uint8_t *end = at + size;
    while (at < end) {
        uint8_t byte = *at++;
        uint8_t low = 0x80, high = 0xBF; /* the bounds of the second byte */
        int rest;
        if (byte < 0x80) {
            continue;
        }
        if (byte >= 0xC2 && byte <= 0xDF) {
            rest = 1;
        }
        else if (byte >= 0xE0 && byte <= 0xEF) {
            rest = 2;
            low = byte == 0xE0 ? 0xA0 : low;
            high = byte == 0xED ? 0x9F : high;
        }
        else if (byte >= 0xF0 && byte <= 0xF4) {
            rest = 3;
            low = byte == 0xF0 ? 0x90 : low;
            high = byte == 0xF4 ? 0x8F : high;
        }
        else {
            return 0;
        }
        for (; rest > 0; rest--, at++) {
            if (at >= end || *at < low || *at > high) {
                return 0;
            }
            low = 0x80;
            high = 0xBF;
        }
    }
    return 1;
}

static int
read_header(Cursor *cursor, Span *name, Span *content)
{
    static const char refusal[] = "the length in a record's header is below -1";
    if (read_span(cursor, name, refusal) < 0) {
        return -1;
    }
    if (name->start == NULL) {
        return damaged(cursor, "a record's header has no key");
    }
    return read_span(cursor, content, refusal);
}

/* Move over the headers of a record, which must be sound. `size` is what they take in the columns. */
static int
pass_headers(Cursor *cursor, int64_t *count, int64_t *size)
{
    uint64_t number;
    if (read_varint(cursor, &number) < 0) {
        return -1;
    }
    if (number & 1) {
        return damaged(cursor, "the number of a record's headers is negative");
    }
    *count = (int64_t)(number >> 1);
    *size = 0;
    for (int64_t left = *count; left > 0; left--) {
        Span name, content;
        if (read_header(cursor, &name, &content) < 0) {
            return -1;
        }
        if (!is_utf8(name.start, name.size)) {
            cursor->name = name.start;
            cursor->name_size = name.size;
            return refuse(cursor, NOT_UTF8, "", 0, 0);
        }
        *size += name.size + content.size + HEADER_ENDS;
    }
    return 0;
}

typedef struct {
    int64_t record_count;
    int64_t last_offset_delta;
    int64_t base_offset;
    int64_t base_timestamp;
    int32_t timestamp_type;
    int64_t append_time;
    int64_t start;
    int64_t end;
} Batch;

typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    Span key;
    Span value;
    const uint8_t *headers; /* their number, then each */
    const uint8_t *end;
    int64_t header_count;
    int64_t header_size;
} Record;

static int
read_record(Cursor *cursor, const Batch *batch, int64_t index, int64_t last_delta, Record *record)
{
    uint64_t number;
    if (read_varint(cursor, &number) < 0) {
        return -1;
    }
    if (number & 1) {
        return damaged(cursor, "the length of a record is negative");
    }
    int64_t length = (int64_t)(number >> 1);
    const uint8_t *start = cursor->at;
    if (cursor->at < cursor->end) {
        cursor->at++; /* attributes, all undefined */
    }
    if (read_varint(cursor, &number) < 0) {
        return -1;
    }
    record->timestamp_delta = unzigzag(number);
    if (read_varint(cursor, &number) < 0) {
        return -1;
    }
    record->offset_delta = unzigzag(number);
    if (batch->record_count != batch->last_offset_delta + 1) {
        if (record->offset_delta <= last_delta || record->offset_delta > batch->last_offset_delta) {
            return refuse(cursor, DAMAGED, "offset delta %lld after %lld", record->offset_delta, last_delta);
        }
    }
    else if (number != (uint64_t)index << 1) {
        return refuse(cursor, DAMAGED, "offset delta %lld where %lld is due", record->offset_delta, index);
    }
    if (read_span(cursor, &record->key, "the length of a key is below -1") < 0
        || read_span(cursor, &record->value, "the length of a value is below -1") < 0) {
        return -1;
    }
    record->headers = cursor->at;
    if (pass_headers(cursor, &record->header_count, &record->header_size) < 0) {
        return -1;
    }
    record->end = cursor->at;
    int64_t taken = cursor->at - start;
    if (taken != length) {
        return refuse(cursor, DAMAGED, "a record ends %lld bytes from where its length says", taken - length, 0);
    }
    return 0;
}

/* Writing ------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t room;
    size_t likely; /* the first room: as many bytes as were taken the last time */
} Output;

static int
grow(Output *output, size_t size)
{
    size_t room;
    if (__builtin_add_overflow(output->room, output->room / 2, &room) || __builtin_add_overflow(room, size, &room)) {
        return -1;
    }
    if (room < output->likely) {
        room = output->likely;
    }
    uint8_t *bytes = realloc(output->bytes, room);
    if (bytes == NULL) {
        return -1;
    }
    output->bytes = bytes;
    output->room = room;
    return 0;
}

static inline int
copy_out(Output *output, const void *data, size_t size)
{
    if (output->room - output->size < size && grow(output, size) < 0) {
        return -1;
    }
    if (size) {
        memcpy(output->bytes + output->size, data, size);
        output->size += size;
    }
    return 0;
}

/* Which items of a column are not null, and where they end. */
typedef struct {
    Output validity;
    Output ends; /* 32-bit numbers: where each item begins, and where the last one ends */
    int64_t count;
    int64_t null_count;
} Items;

typedef struct {
    Items items;
    Output bytes;
} Binary;

/* Add an item that ends before `end`, which the limit of bytes keeps below 2^31. */
static inline int
append_end(Items *items, int is_valid, size_t end)
{
    static const uint8_t none = 0;
    int32_t number = (int32_t)end;
    if ((items->count & 7) == 0 && copy_out(&items->validity, &none, 1) < 0) {
        return -1;
    }
    if (copy_out(&items->ends, &number, sizeof number) < 0) {
        return -1;
    }
    items->validity.bytes[items->count >> 3] |= (uint8_t)(is_valid << (items->count & 7));
    items->count++;
    items->null_count += !is_valid;
    return 0;
}

static inline int
append_span(Binary *column, const Span *span)
{
    if (copy_out(&column->bytes, span->start, (size_t)span->size) < 0) {
        return -1;
    }
    return append_end(&column->items, span->start != NULL, column->bytes.size);
}

typedef struct {
    PyObject_HEAD
    int64_t row_limit;
    int64_t byte_limit;
    int has_headers;
    int is_busy;
    Py_ssize_t rows;
    int64_t size; /* of the keys, values and headers */
    Binary keys;
    Binary values;
    Output offsets;
    Output timestamps;
    Output timestamp_types;
    Items lists; /* of headers */
    Binary names;
    Binary contents;
} ColumnBuffers;

static int
append_headers(ColumnBuffers *self, const Record *record)
{
    Cursor cursor = {.at = record->headers, .end = record->end};
    uint64_t number;
    read_varint(&cursor, &number); /* Nothing fails here: `pass_headers` has read the same bytes. */
    for (int64_t left = record->header_count; left > 0; left--) {
        Span name = {NULL, 0}, content = {NULL, 0};
        read_header(&cursor, &name, &content);
        if (append_span(&self->names, &name) < 0 || append_span(&self->contents, &content) < 0) {
            return -1;
        }
    }
    return append_end(&self->lists, record->header_count > 0, (size_t)self->names.items.count);
}

static int
append_record(ColumnBuffers *self, const Record *record, int64_t offset, int64_t timestamp, int32_t timestamp_type)
{
    if (append_span(&self->keys, &record->key) < 0 || append_span(&self->values, &record->value) < 0
        || copy_out(&self->offsets, &offset, sizeof offset) < 0
        || copy_out(&self->timestamps, &timestamp, sizeof timestamp) < 0
        || copy_out(&self->timestamp_types, &timestamp_type, sizeof timestamp_type) < 0
        || (self->has_headers && append_headers(self, record) < 0)) {
        return -1;
    }
    self->rows++;
    return 0;
}

static inline int
is_wanted(const Batch *batch, const Record *record)
{
    int64_t offset = batch->base_offset + record->offset_delta;
    return offset >= batch->start && offset < batch->end;
}

static inline int64_t
size_of(const ColumnBuffers *self, const Record *record)
{
    return record->key.size + record->value.size + (self->has_headers ? record->header_size : 0);
}

/* Microseconds of the record. Fails where 64 bits do not suffice. */
static inline int
timestamp_of(const Batch *batch, const Record *record, int64_t *timestamp)
{
    int64_t milliseconds = batch->append_time;
    if (batch->timestamp_type != LOG_APPEND_TIME
        && __builtin_add_overflow(batch->base_timestamp, record->timestamp_delta, &milliseconds)) {
        return -1;
    }
    return __builtin_mul_overflow(milliseconds, 1000, timestamp) ? -1 : 0;
}

/* Read all records of a batch, before any of them is used. */
static Outcome
check_records(const ColumnBuffers *self, const Batch *batch, Cursor *cursor)
{
    Record record;
    int64_t last_delta = -1, timestamp;
    int is_too_large = 0;
    Cursor impossible = *cursor;
    for (int64_t index = 0; index < batch->record_count; index++) {
        if (read_record(cursor, batch, index, last_delta, &record) < 0) {
            return cursor->outcome;
        }
        last_delta = record.offset_delta;
        if (is_too_large || !is_wanted(batch, &record)) {
            continue;
        }
        if (size_of(self, &record) > INT32_MAX) {
            is_too_large = 1;
            refuse(&impossible, TOO_LARGE, "the record at offset %lld has %lld bytes, and 2147483647 are possible",
                   batch->base_offset + record.offset_delta, size_of(self, &record));
        }
        else if (timestamp_of(batch, &record, &timestamp) < 0) {
            is_too_large = 1;
            refuse(&impossible, TOO_LARGE, "the timestamp at offset %lld does not fit in 64 bits of microseconds",
                   batch->base_offset + record.offset_delta, 0);
        }
    }
    if (cursor->at != cursor->end) {
        refuse(cursor, DAMAGED, "%lld bytes after the last record of a batch", cursor->end - cursor->at, 0);
        return DAMAGED;
    }
    if (is_too_large) {
        *cursor = impossible;
        return TOO_LARGE;
    }
    return ENDED;
}

/* Add checked records, until all are added or the columns are full. */
static Outcome
add_records(ColumnBuffers *self, const Batch *batch, Cursor *cursor, int64_t *index)
{
    Record record;
    int64_t last_delta = -1;
    for (; *index < batch->record_count; ++*index) {
        const uint8_t *start = cursor->at;
        if (read_record(cursor, batch, *index, last_delta, &record) < 0) {
            return cursor->outcome;
        }
        if (is_wanted(batch, &record)) {
            int64_t size = size_of(self, &record), timestamp;
            if (self->rows && (self->rows >= self->row_limit || size > self->byte_limit - self->size)) {
                cursor->at = start;
                return FULL;
            }
            if (size > INT32_MAX || timestamp_of(batch, &record, &timestamp) < 0) {
                refuse(cursor, DAMAGED, "the records were not checked", 0, 0);
                return DAMAGED;
            }
            if (append_record(self, &record, batch->base_offset + record.offset_delta, timestamp,
                              batch->timestamp_type) < 0) {
                return NO_MEMORY;
            }
            self->size += size;
        }
        last_delta = record.offset_delta;
    }
    return ENDED;
}

/* Memory that Arrow holds --------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t size;
} Memory;

static int
expose_memory(PyObject *self, Py_buffer *view, int flags)
{
    Memory *memory = (Memory *)self;
    return PyBuffer_FillInfo(view, self, memory->bytes, memory->size, 1, flags);
}

static void
free_memory(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(((Memory *)self)->bytes);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "Bytes of a column, read-only through the buffer protocol."},
    {Py_tp_dealloc, free_memory},
    {Py_bf_getbuffer, expose_memory},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "holdfast_log.protocol._arrow_columns.Memory",
    .basicsize = sizeof(Memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = memory_slots,
};

typedef struct {
    PyTypeObject *memory_type;
    PyTypeObject *buffers_type;
} State;

/* A view of an object that owns what was written, which leaves `output` empty. */
static PyObject *
give(PyTypeObject *memory_type, Output *output)
{
    Memory *memory = (Memory *)PyType_GenericAlloc(memory_type, 0);
    if (memory == NULL) {
        return NULL;
    }
    uint8_t *bytes = realloc(output->bytes, output->size ? output->size : 1); /* without the room that is left */
    memory->bytes = bytes == NULL ? output->bytes : bytes;
    memory->size = (Py_ssize_t)output->size;
    *output = (Output){.likely = output->size};
    if (memory->bytes == NULL) {
        Py_DECREF(memory);
        return PyErr_NoMemory();
    }
    PyObject *view = PyMemoryView_FromObject((PyObject *)memory);
    Py_DECREF(memory);
    return view;
}

static PyObject *
give_binary(PyTypeObject *memory_type, Binary *column)
{
    return Py_BuildValue("LNNN", (long long)column->items.null_count, give(memory_type, &column->items.validity),
                         give(memory_type, &column->items.ends), give(memory_type, &column->bytes));
}

/* The object ---------------------------------------------------------------------------------------------- */

static void
drop_output(Output *output)
{
    free(output->bytes);
    *output = (Output){.likely = output->likely};
}

static void
drop_items(Items *items)
{
    drop_output(&items->validity);
    drop_output(&items->ends);
    items->count = 0;
    items->null_count = 0;
}

static void
drop_binary(Binary *column)
{
    drop_items(&column->items);
    drop_output(&column->bytes);
}

static void
drop_columns(ColumnBuffers *self)
{
    drop_binary(&self->keys);
    drop_binary(&self->values);
    drop_output(&self->offsets);
    drop_output(&self->timestamps);
    drop_output(&self->timestamp_types);
    drop_items(&self->lists);
    drop_binary(&self->names);
    drop_binary(&self->contents);
    self->rows = 0;
    self->size = 0;
}

/* Write where the first item of each column begins, unless that was done. Columns are never read without it. */
static int
begin_columns(ColumnBuffers *self)
{
    static const int32_t zero = 0;
    if (self->contents.items.ends.size > 0) {
        return 0; /* These ends are begun last. */
    }
    drop_columns(self);
    if (copy_out(&self->keys.items.ends, &zero, sizeof zero) < 0
        || copy_out(&self->values.items.ends, &zero, sizeof zero) < 0
        || copy_out(&self->lists.ends, &zero, sizeof zero) < 0
        || copy_out(&self->names.items.ends, &zero, sizeof zero) < 0
        || copy_out(&self->contents.items.ends, &zero, sizeof zero) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyObject *
new_buffers(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int has_headers;
    long long row_limit, byte_limit;
    if (keywords != NULL && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "ColumnBuffers takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "pLL:ColumnBuffers", &has_headers, &row_limit, &byte_limit)) {
        return NULL;
    }
    if (row_limit < 1 || row_limit > INT32_MAX || byte_limit < 1 || byte_limit > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the limits of rows and bytes are from 1 to 2147483647");
        return NULL;
    }
    ColumnBuffers *self = (ColumnBuffers *)PyType_GenericAlloc(type, 0); /* filled with zeros */
    if (self == NULL) {
        return NULL;
    }
    self->has_headers = has_headers;
    self->row_limit = row_limit;
    self->byte_limit = byte_limit;
    return (PyObject *)self;
}

static void
free_buffers(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    drop_columns((ColumnBuffers *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int
refuse_if_busy(const ColumnBuffers *self)
{
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is adding records to these columns");
        return -1;
    }
    return 0;
}

/* Refuse what would overflow or cannot be: the loop adds offsets without a check. */
static int
refuse_batch(const Batch *batch, int64_t size, int64_t position, int64_t index)
{
    if (position > size || index < 0 || batch->last_offset_delta > INT32_MAX
        || (batch->last_offset_delta > 0 && batch->base_offset > INT64_MAX - batch->last_offset_delta)) {
        PyErr_SetString(PyExc_ValueError, "the place or the offsets of the records are impossible");
        return -1;
    }
    if (batch->record_count > size / MIN_RECORD_SIZE) {
        PyErr_SetString(PyExc_IndexError, "the records of a batch end early");
        return -1;
    }
    return 0;
}

static void
raise_reason(const Cursor *cursor)
{
    if (cursor->outcome == NOT_UTF8) {
        PyObject *name = PyUnicode_DecodeUTF8((const char *)cursor->name, (Py_ssize_t)cursor->name_size, NULL);
        if (name != NULL) {
            Py_DECREF(name);
            PyErr_SetString(PyExc_ValueError, "the key of a record's header is not UTF-8");
        }
        return;
    }
    PyObject *kind = cursor->outcome == ENDS_EARLY  ? PyExc_IndexError
                     : cursor->outcome == TOO_LARGE ? PyExc_OverflowError
                                                    : PyExc_ValueError;
    PyErr_Format(kind, cursor->reason, cursor->first, cursor->second);
}

PyDoc_STRVAR(add_doc, "See arrow_columns_loop.ColumnBuffers.add.");

static PyObject *
add(PyObject *object, PyObject *args)
{
    ColumnBuffers *self = (ColumnBuffers *)object;
    Py_buffer data;
    long long record_count, last_offset_delta, base_offset, base_timestamp, append_time, start, end;
    long long index = 0;
    int timestamp_type;
    Py_ssize_t position = -1; /* Nothing of the batch was added. */
    if (!PyArg_ParseTuple(args, "y*LLLLiLLL|(nL):add", &data, &record_count, &last_offset_delta, &base_offset,
                          &base_timestamp, &timestamp_type, &append_time, &start, &end, &position, &index)) {
        return NULL;
    }
    PyObject *result = NULL;
    Batch batch = {record_count, last_offset_delta, base_offset, base_timestamp,
                   timestamp_type, append_time, start, end};
    if (refuse_if_busy(self) == 0 && refuse_batch(&batch, data.len, position, index) == 0
        && begin_columns(self) == 0) {
        const uint8_t *bytes = data.buf;
        Cursor cursor = {.at = bytes, .end = bytes + data.len};
        int64_t next = index;
        Outcome outcome = ENDED;
        self->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS;
        if (position < 0) {
            outcome = check_records(self, &batch, &cursor);
        }
        if (outcome == ENDED) {
            cursor.at = bytes + (position < 0 ? 0 : position);
            outcome = add_records(self, &batch, &cursor, &next);
        }
        Py_END_ALLOW_THREADS;
        self->is_busy = 0;
        if (outcome == ENDED) {
            result = Py_NewRef(Py_None);
        }
        else if (outcome == FULL) {
            result = Py_BuildValue("nL", (Py_ssize_t)(cursor.at - bytes), (long long)next);
        }
        else if (outcome == NO_MEMORY) {
            drop_columns(self); /* The last row may be incomplete. */
            PyErr_NoMemory();
        }
        else {
            raise_reason(&cursor);
        }
    }
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(take_doc, "See arrow_columns_loop.ColumnBuffers.take.");

static PyObject *
take(PyObject *object, PyObject *unused)
{
    ColumnBuffers *self = (ColumnBuffers *)object;
    if (refuse_if_busy(self) < 0 || begin_columns(self) < 0) {
        return NULL;
    }
    PyTypeObject *type = ((State *)PyType_GetModuleState(Py_TYPE(object)))->memory_type;
    PyObject *headers;
    if (self->has_headers) {
        headers = Py_BuildValue("LNNLNNN", (long long)self->lists.null_count, give(type, &self->lists.validity),
                                give(type, &self->lists.ends), (long long)self->names.items.count,
                                give(type, &self->names.items.ends), give(type, &self->names.bytes),
                                give_binary(type, &self->contents));
    }
    else {
        headers = Py_NewRef(Py_None);
    }
    PyObject *taken = Py_BuildValue("nNNNNNN", self->rows, give_binary(type, &self->keys),
                                    give_binary(type, &self->values), give(type, &self->offsets),
                                    give(type, &self->timestamps), give(type, &self->timestamp_types), headers);
    drop_columns(self);
    return taken;
}

static Py_ssize_t
count_rows(PyObject *self)
{
    return ((ColumnBuffers *)self)->rows;
}

static PyMethodDef buffers_methods[] = {
    {"add", add, METH_VARARGS, add_doc},
    {"take", take, METH_NOARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot buffers_slots[] = {
    {Py_tp_doc, "See arrow_columns_loop.ColumnBuffers."},
    {Py_tp_new, new_buffers},
    {Py_tp_dealloc, free_buffers},
    {Py_tp_methods, buffers_methods},
    {Py_sq_length, count_rows},
    {0, NULL},
};

static PyType_Spec buffers_spec = {
    .name = "holdfast_log.protocol._arrow_columns.ColumnBuffers",
    .basicsize = sizeof(ColumnBuffers),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = buffers_slots,
};

/* The module ---------------------------------------------------------------------------------------------- */

static int
fill_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->memory_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    state->buffers_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &buffers_spec, NULL);
    if (state->memory_type == NULL || state->buffers_type == NULL) {
        return -1;
    }
    return PyModule_AddType(module, state->buffers_type);
}

static int
visit_module(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->memory_type);
    Py_VISIT(state->buffers_type);
    return 0;
}

static int
clear_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->memory_type);
    Py_CLEAR(state->buffers_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, fill_module},
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._arrow_columns",
    .m_doc = "The loop of holdfast_log.protocol.arrow_columns_loop, compiled.",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = visit_module,
    .m_clear = clear_module,
};

PyMODINIT_FUNC
PyInit__arrow_columns(void)
{
    return PyModuleDef_Init(&module);
}
