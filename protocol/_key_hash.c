/* The loops of key_hash_loop.py, compiled; it explains them. Tests compare the two. Where this file was not compiled,
 * Python is used.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define SEED 0x9747B28Cu
#define MULTIPLIER 0x5BD1E995u
#define POSITIVE 0x7FFFFFFFu

static inline uint32_t
hash_of(const uint8_t *data, size_t size)
{
    uint32_t state = SEED ^ (uint32_t)size;
    for (; size >= 4; data += 4, size -= 4) {
        uint32_t word = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= MULTIPLIER;
        word ^= word >> 24;
        state = state * MULTIPLIER ^ word * MULTIPLIER;
    }
    if (size > 0) {
        for (size_t index = 0; index < size; index++) {
            state ^= (uint32_t)data[index] << 8 * index;
        }
        state *= MULTIPLIER;
    }
    state ^= state >> 13;
    state *= MULTIPLIER;
    return state ^ state >> 15;
}

PyDoc_STRVAR(murmur2_doc, "murmur2(data: bytes) -> int");

static PyObject *
murmur2(PyObject *module, PyObject *data)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0) {
        PyObject *name = PyType_GetName(Py_TYPE(data));
        if (name != NULL) {
            PyErr_Format(PyExc_TypeError, "a key must be bytes, not %U", name);
            Py_DECREF(name);
        }
        return NULL;
    }
    return PyLong_FromUnsignedLong(hash_of((const uint8_t *)bytes, (size_t)size));
}

PyDoc_STRVAR(java_hash_doc, "java_hash(text: str) -> int");

static PyObject *
java_hash(PyObject *module, PyObject *text)
{
    Py_ssize_t length = PyUnicode_Check(text) ? PyUnicode_GetLength(text) : -1;
    if (length < 0) {
        PyErr_SetString(PyExc_TypeError, "a name must be a str");
        return NULL;
    }
    uint32_t hash = 0;
    for (Py_ssize_t index = 0; index < length; index++) {
        uint32_t character = PyUnicode_ReadChar(text, index);
        if (character > 0xFFFF) { /* two units of UTF-16 */
            hash = 31 * hash + (0xD800 + ((character - 0x10000) >> 10));
            character = 0xDC00 + (character & 0x3FF);
        }
        hash = 31 * hash + character;
    }
    return PyLong_FromUnsignedLong(hash);
}

PyDoc_STRVAR(places_doc, "places(ends, data, valid, start, rows, partitions, without_key) -> bytes");

static inline int32_t
int32_at(const uint8_t *numbers, Py_ssize_t index)
{
    int32_t number;
    memcpy(&number, numbers + 4 * index, sizeof number);
    return number;
}

/* Returns -1 if an offset points beyond the data. */
static int
place_all(const uint8_t *ends, const uint8_t *data, Py_ssize_t size, const uint8_t *valid, Py_ssize_t start,
          Py_ssize_t rows, uint32_t partitions, int32_t without_key, char *out)
{
    for (Py_ssize_t row = start; row < start + rows; row++, out += 4) {
        int32_t place = without_key;
        if (valid == NULL || valid[row >> 3] >> (row & 7) & 1) {
            int32_t begin = int32_at(ends, row), end = int32_at(ends, row + 1);
            if (begin < 0 || end < begin || end > size) {
                return -1;
            }
            place = (int32_t)((hash_of(data + begin, (size_t)(end - begin)) & POSITIVE) % partitions);
        }
        memcpy(out, &place, sizeof place);
    }
    return 0;
}

static PyObject *
places(PyObject *module, PyObject *args)
{
    Py_buffer ends, data, valid;
    Py_ssize_t start, rows;
    int partitions, without_key;
    if (!PyArg_ParseTuple(args, "y*y*z*nnii:places", &ends, &data, &valid, &start, &rows, &partitions,
                          &without_key)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (partitions < 1 || start < 0 || rows < 0 || rows > PY_SSIZE_T_MAX / 4 || start > PY_SSIZE_T_MAX / 8 - rows
        || ends.len / 4 < start + rows + 1 || (valid.buf != NULL && valid.len < (start + rows + 7) / 8)) {
        PyErr_SetString(PyExc_ValueError, "a column ends before its rows do");
    }
    else if ((result = PyBytes_FromStringAndSize(NULL, 4 * rows)) != NULL
             && place_all(ends.buf, data.buf, data.len, valid.buf, start, rows, (uint32_t)partitions, without_key,
                          PyBytes_AsString(result))
                    < 0) {
        Py_CLEAR(result);
        PyErr_SetString(PyExc_ValueError, "a key ends outside the data of its column");
    }
    PyBuffer_Release(&ends);
    PyBuffer_Release(&data);
    if (valid.buf != NULL) {
        PyBuffer_Release(&valid);
    }
    return result;
}

static PyMethodDef methods[] = {
    {"murmur2", murmur2, METH_O, murmur2_doc},
    {"java_hash", java_hash, METH_O, java_hash_doc},
    {"places", places, METH_VARARGS, places_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._key_hash",
    .m_doc = "The loops of holdfast_log.protocol.key_hash_loop, compiled.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__key_hash(void)
{
    return PyModuleDef_Init(&module);
}
