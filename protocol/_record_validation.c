/* Checks and searches the records of a batch, compiled: see _record_validation.h. record_validation.py does the same in
 * Python. Where this file was not compiled, Python is used.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_record_validation.h"

#define WITHOUT_GIL_FROM 65536 /* bytes; for fewer, to give the GIL away costs more than the walk */

PyDoc_STRVAR(validate_doc, "validate(data, record_count, base_timestamp)\n--\n\n"
                           "See record_validation.validate_in_python.");

static PyObject *
validate(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long count, base_timestamp;
    if (!PyArg_ParseTuple(args, "y*LL:validate", &data, &count, &base_timestamp)) {
        return NULL;
    }
    int32_t missing[MISSING_KEYS_MAX];
    RecordsVerdict verdict = {.missing = missing};
    const uint8_t *start = data.buf;
    if (data.len < WITHOUT_GIL_FROM) {
        check_records(start, start + data.len, count, base_timestamp, &verdict);
    }
    else {
        Py_BEGIN_ALLOW_THREADS
        check_records(start, start + data.len, count, base_timestamp, &verdict);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    int64_t named = verdict.missing_keys < MISSING_KEYS_MAX ? verdict.missing_keys : MISSING_KEYS_MAX;
    PyObject *indexes = PyTuple_New((Py_ssize_t)named);
    for (Py_ssize_t number = 0; indexes != NULL && number < named; number++) {
        PyObject *index = PyLong_FromLong(missing[number]);
        if (index == NULL || PyTuple_SetItem(indexes, number, index) < 0) {
            Py_CLEAR(indexes);
        }
    }
    if (indexes == NULL) {
        return NULL;
    }
    return Py_BuildValue("LzLLLLLN", (long long)verdict.index, verdict.reason, (long long)verdict.most,
                         (long long)verdict.most_at, (long long)verdict.least, (long long)verdict.least_at,
                         (long long)verdict.missing_keys, indexes);
}

PyDoc_STRVAR(find_time_doc, "find_time(data, record_count, base_timestamp, timestamp, max_timestamp, least_delta)\n--\n\n"
                            "See record_validation.find_time_in_python.");

static PyObject *
find_time(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long count, base_timestamp, wanted, most, least_delta;
    if (!PyArg_ParseTuple(args, "y*LLLLL:find_time", &data, &count, &base_timestamp, &wanted, &most, &least_delta)) {
        return NULL;
    }
    const uint8_t *at = data.buf, *end = at + data.len;
    int64_t found_delta = -1, found_timestamp = 0;
    int is_sound = 1;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t index = 0; index < count; index++) {
        uint32_t size, offset;
        uint64_t delta;
        int64_t timestamp;
        is_sound = 0;
        if ((at = take_varint32(at, end, &size)) == NULL || size & 1 || (ptrdiff_t)(size >> 1) > end - at || size == 0) {
            break;
        }
        const uint8_t *record_end = at + (size >> 1);
        if ((at = take_varint64(at + 1, record_end, &delta)) == NULL
            || __builtin_add_overflow(base_timestamp, signed_number(delta), &timestamp)
            || take_varint32(at, record_end, &offset) == NULL) {
            break;
        }
        is_sound = 1;
        if (timestamp >= wanted && timestamp <= most && signed_number(offset) >= least_delta) {
            found_delta = signed_number(offset);
            found_timestamp = timestamp;
            break;
        }
        at = record_end;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    if (!is_sound) {
        PyErr_SetString(PyExc_ValueError, "the records of a batch are damaged");
        return NULL;
    }
    if (found_delta < 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("LL", (long long)found_delta, (long long)found_timestamp);
}

#define HEADER_SIZE 61
#define LOG_OVERHEAD 12

static inline int64_t
big_endian(const uint8_t *at, int size)
{
    uint64_t number = *at & 0x80 ? UINT64_MAX : 0;
    for (int index = 0; index < size; index++) {
        number = number << 8 | at[index];
    }
    return (int64_t)number;
}

PyDoc_STRVAR(find_batch_doc, "find_batch(data, timestamp, least_offset)\n--\n\n"
                             "See record_validation.find_batch_in_python.");

static PyObject *
find_batch(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long timestamp, least_offset;
    if (!PyArg_ParseTuple(args, "y*LL:find_batch", &data, &timestamp, &least_offset)) {
        return NULL;
    }
    const uint8_t *batch = data.buf;
    int64_t position = 0;
    Py_BEGIN_ALLOW_THREADS
    while (data.len - position >= HEADER_SIZE) {
        const uint8_t *at = batch + position;
        int64_t length = big_endian(at + 8, 4);
        int64_t base_offset = big_endian(at, 8);
        if (at[16] != 2 || length < HEADER_SIZE - LOG_OVERHEAD || base_offset < 0
            || (big_endian(at + 35, 8) >= timestamp && big_endian(at + 23, 4) >= least_offset - base_offset)) {
            break;
        }
        position += length + LOG_OVERHEAD;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    return PyLong_FromLongLong(position);
}

static PyMethodDef methods[] = {
    {"find_batch", find_batch, METH_VARARGS, find_batch_doc},
    {"validate", validate, METH_VARARGS, validate_doc},
    {"find_time", find_time, METH_VARARGS, find_time_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._record_validation",
    .m_doc = "Checks and searches the records of a batch, compiled.",
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__record_validation(void)
{
    return PyModuleDef_Init(&module);
}
