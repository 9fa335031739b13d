/* A read that finds again what a read has found a short time ago, compiled. Log.read does the same in Python; tests compare
 * the two. Where this file was not compiled, Python is used.
 *
 * The state stays in the Python objects, whose slots are read and written here. For everything unusual (a read that is not
 * known, headers that are to be checked again, bytes that are not in memory) nothing is done, and the caller does it in
 * Python.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* preadv2 */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "../../protocol/_slots.h"

#define LOG_READ_FIELDS 4

typedef struct {
    Slot content, file, sync_error;
    Slot start, end, next_offset, is_full, rereads;
    Slot slice_file, slice_offset, slice_length, slice_data;
    PyTypeObject *segment, *known_read, *file_slice, *log_read, *os_file;
    PyObject *file_to_send, *is_cached, *fd, *one;
} State;

/* The number in a slot; -1 with an exception after an error. */
static int64_t
number_in(const Slot *slot, PyObject *object)
{
    PyObject *value = get(slot, object);
    if (value == NULL) {
        return -1;
    }
    int64_t number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return number;
}

/* What is known of the read: a new reference, or NULL without an exception. */
static PyObject *
find_known(State *state, PyObject *segment, PyObject *reads, PyObject *offset, PyObject *max_bytes)
{
    PyObject *content = get(&state->content, segment);
    if (content == NULL) {
        return NULL;
    }
    PyObject *key = PyTuple_Pack(3, content, offset, max_bytes);
    Py_DECREF(content);
    if (key == NULL) {
        return NULL;
    }
    PyObject *known = PyDict_GetItemWithError(reads, key);
    Py_XINCREF(known);
    Py_DECREF(key);
    if (known != NULL && Py_TYPE(known) != state->known_read) {
        Py_CLEAR(known);
    }
    return known;
}

/* As KnownRead.is_found_by, and whether headers need no check: 1 or 0; -1 with an exception. */
static int
is_found(State *state, PyObject *known, int64_t size, int64_t upper_offset, int64_t max_bytes, int min_one_batch)
{
    PyObject *is_full = get(&state->is_full, known);
    Py_XDECREF(is_full);
    if (is_full != Py_True) {
        return is_full == NULL ? -1 : 0;
    }
    int64_t next_offset = number_in(&state->next_offset, known), rereads = number_in(&state->rereads, known);
    if (PyErr_Occurred()) {
        return -1;
    }
    return next_offset <= upper_offset && rereads > 0 && (min_one_batch || size <= max_bytes);
}

/* The open file of a segment, for a response: a new reference. */
static PyObject *
file_of(State *state, PyObject *segment)
{
    PyObject *file = get(&state->file, segment), *error = get(&state->sync_error, segment);
    if (file == NULL || error == NULL) {
        Py_XDECREF(file);
        Py_XDECREF(error);
        return NULL;
    }
    int is_open = file != Py_None && error == Py_None;
    Py_DECREF(error);
    if (is_open) {
        return file;
    }
    Py_DECREF(file);
    return PyObject_CallMethodObjArgs(segment, state->file_to_send, NULL);
}

/* As DiskFile.is_cached(1, position): 1 or 0; -1 with an exception. */
static int
is_cached(State *state, PyObject *file, PyObject *position)
{
#ifdef RWF_NOWAIT
    if (Py_TYPE(file) == state->os_file) {
        PyObject *number = PyObject_GetAttr(file, state->fd);
        if (number == NULL) {
            return -1;
        }
        long fd = PyLong_AsLong(number);
        Py_DECREF(number);
        int64_t offset = PyLong_AsLongLong(position);
        if (PyErr_Occurred()) {
            return -1;
        }
        char byte;
        struct iovec piece = {.iov_base = &byte, .iov_len = 1};
        /* Any other error: the file system does not support the query. */
        return preadv2((int)fd, &piece, 1, (off_t)offset, RWF_NOWAIT) >= 0 || errno != EAGAIN;
    }
#endif
    PyObject *answer = PyObject_CallMethodObjArgs(file, state->is_cached, state->one, position, NULL);
    if (answer == NULL) {
        return -1;
    }
    int is_true = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return is_true;
}

/* The slice of a file, from `start` on. */
static PyObject *
slice_of(State *state, PyObject *file, PyObject *start, int64_t size)
{
    PyObject *slice = PyType_GenericAlloc(state->file_slice, 0), *length = PyLong_FromLongLong(size);
    if (slice == NULL || length == NULL || state->slice_file.set(state->slice_file.descriptor, slice, file) < 0
        || state->slice_offset.set(state->slice_offset.descriptor, slice, start) < 0
        || state->slice_length.set(state->slice_length.descriptor, slice, length) < 0
        || state->slice_data.set(state->slice_data.descriptor, slice, Py_None) < 0) {
        Py_CLEAR(slice);
    }
    Py_XDECREF(length);
    return slice;
}

static PyObject *
log_read_of(State *state, PyObject *slice, PyObject *offset, PyObject *next_offset)
{
    PyObject *read = PyType_GenericAlloc(state->log_read, LOG_READ_FIELDS);
    PyObject *fields[LOG_READ_FIELDS] = {slice, offset, next_offset, Py_None};
    for (Py_ssize_t index = 0; read != NULL && index < LOG_READ_FIELDS; index++) {
        if (PyTuple_SetItem(read, index, Py_NewRef(fields[index])) < 0) {
            Py_CLEAR(read);
        }
    }
    return read;
}

/* Counts a read of bytes whose headers were checked a short time ago. */
static int
count_reread(State *state, PyObject *known)
{
    int64_t rereads = number_in(&state->rereads, known);
    PyObject *left = PyErr_Occurred() ? NULL : PyLong_FromLongLong(rereads - 1);
    if (left == NULL) {
        return -1;
    }
    int done = state->rereads.set(state->rereads.descriptor, known, left);
    Py_DECREF(left);
    return done;
}

/* The read, or NULL, with an exception or without. */
static PyObject *
read_again(State *state, PyObject *segment, PyObject *known, PyObject *offset, int64_t size)
{
    PyObject *start = get(&state->start, known), *next_offset = get(&state->next_offset, known);
    PyObject *file = start == NULL || next_offset == NULL ? NULL : file_of(state, segment);
    PyObject *read = NULL;
    if (file != NULL && is_cached(state, file, start) == 1 && count_reread(state, known) == 0) {
        PyObject *slice = slice_of(state, file, start, size);
        if (slice != NULL) {
            read = log_read_of(state, slice, offset, next_offset);
            Py_DECREF(slice);
        }
    }
    Py_XDECREF(start);
    Py_XDECREF(next_offset);
    Py_XDECREF(file);
    return read;
}

PyDoc_STRVAR(find_doc, "find(segment, reads, offset, max_bytes, upper_offset, min_one_batch) -> LogRead | None");

static PyObject *
find(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    State *state = PyModule_GetState(module);
    if (nargs != 6 || Py_TYPE(args[0]) != state->segment || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "find takes a segment, the known reads and 4 other arguments");
        return NULL;
    }
    int64_t max_bytes = PyLong_AsLongLong(args[3]), upper_offset = PyLong_AsLongLong(args[4]);
    int min_one_batch = PyObject_IsTrue(args[5]);
    if (min_one_batch < 0 || PyErr_Occurred()) {
        return NULL;
    }
    PyObject *read = NULL, *known = find_known(state, args[0], args[1], args[2], args[3]);
    if (known != NULL) {
        int64_t size = number_in(&state->end, known) - number_in(&state->start, known);
        if (!PyErr_Occurred() && is_found(state, known, size, upper_offset, max_bytes, min_one_batch) == 1) {
            read = read_again(state, args[0], known, args[2], size);
        }
        Py_DECREF(known);
    }
    if (read == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return read;
}

/* The module */

PyDoc_STRVAR(bind_doc, "bind(LogRead): the class of what is returned; call it first.");

static PyObject *
bind(PyObject *module, PyObject *log_read)
{
    State *state = PyModule_GetState(module);
    if (!PyType_Check(log_read) || !PyType_IsSubtype((PyTypeObject *)log_read, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "bind takes a class of tuples");
        return NULL;
    }
    state->log_read = (PyTypeObject *)Py_NewRef(log_read);
    Py_RETURN_NONE;
}

static int
execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    memset(state, 0, sizeof *state);
    state->segment = (PyTypeObject *)attribute_of("holdfast_log.broker.log.segment", "Segment");
    state->known_read = (PyTypeObject *)attribute_of("holdfast_log.broker.log.known_reads", "KnownRead");
    state->os_file = (PyTypeObject *)attribute_of("holdfast_log.broker.log.disk", "OsFile");
    state->file_slice = (PyTypeObject *)attribute_of("holdfast_log.protocol.frames", "FileSlice");
    state->file_to_send = PyUnicode_InternFromString("file_to_send");
    state->is_cached = PyUnicode_InternFromString("is_cached");
    state->fd = PyUnicode_InternFromString("_fd");
    state->one = PyLong_FromLong(1);
    if (PyErr_Occurred()) {
        return -1;
    }
    return find_slot(state->segment, "content", &state->content) < 0
                   || find_slot(state->segment, "_file", &state->file) < 0
                   || find_slot(state->segment, "_sync_error", &state->sync_error) < 0
                   || find_slot(state->known_read, "start", &state->start) < 0
                   || find_slot(state->known_read, "end", &state->end) < 0
                   || find_slot(state->known_read, "next_offset", &state->next_offset) < 0
                   || find_slot(state->known_read, "is_full", &state->is_full) < 0
                   || find_slot(state->known_read, "_rereads", &state->rereads) < 0
                   || find_slot(state->file_slice, "file", &state->slice_file) < 0
                   || find_slot(state->file_slice, "offset", &state->slice_offset) < 0
                   || find_slot(state->file_slice, "length", &state->slice_length) < 0
                   || find_slot(state->file_slice, "data", &state->slice_data) < 0
               ? -1
               : 0;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_O, bind_doc},
    {"find", (PyCFunction)(void (*)(void))find, METH_FASTCALL, find_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

/* The classes that the state refers to live as long as the process: so does the module. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.broker.log._known_reads",
    .m_doc = "A read that finds again what a read has found a short time ago, compiled.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__known_reads(void)
{
    return PyModuleDef_Init(&module);
}
