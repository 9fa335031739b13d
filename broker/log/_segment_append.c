/* The append of one batch to a segment that has room for it, as a function of Python: see _segment_append.h. Where this
 * file was not compiled, Python is used.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_segment_append.h"

/* The places of fields in a BatchHeader. */
#define HEADER_FIELDS 14
#define POSITION 0
#define LENGTH 2
#define LAST_OFFSET_DELTA 7
#define MAX_TIMESTAMP 9

PyDoc_STRVAR(append_batch_doc,
             "append_batch(segment, records, header, base_offset, segment_bytes, age_ms_max, now_ms)\n--\n\n"
             "Append the only batch in `records` to a segment that has room for it. Returns False, and has done\n"
             "nothing, where that is for Segment.has_room and Segment.append to decide.");

static PyObject *
append_batch(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const SegmentState *state = PyModule_GetState(module);
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "append_batch takes a segment, records, a header and four numbers");
        return NULL;
    }
    PyObject *header = args[2];
    if (Py_TYPE(args[0]) != state->segment || !PyTuple_Check(header) || PyTuple_Size(header) != HEADER_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "append_batch takes a Segment and a BatchHeader");
        return NULL;
    }
    int64_t batch_offset = PyLong_AsLongLong(args[3]), position = PyLong_AsLongLong(PyTuple_GetItem(header, POSITION));
    int64_t length = PyLong_AsLongLong(PyTuple_GetItem(header, LENGTH));
    SegmentAppend append = {
        .segment = args[0],
        .records = args[1],
        .last_offset = batch_offset + PyLong_AsLongLong(PyTuple_GetItem(header, LAST_OFFSET_DELTA)),
        .max_timestamp = PyLong_AsLongLong(PyTuple_GetItem(header, MAX_TIMESTAMP)),
        .segment_bytes = PyLong_AsLongLong(args[4]),
        .age_ms_max = PyLong_AsLongLong(args[5]),
        .now_ms = PyLong_AsLongLong(args[6]),
    };
    Py_buffer buffer;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    append.bytes = buffer.buf;
    append.batch_size = buffer.len;
    int is_appended = 0;
    if (position == 0 && length + LOG_OVERHEAD == append.batch_size) {
        is_appended = append_to_segment(state, &append);
    }
    PyBuffer_Release(&buffer);
    return is_appended < 0 ? NULL : PyBool_FromLong(is_appended);
}

/* The module ------------------------------------------------------------------------------------------------ */

static int
execute(PyObject *module)
{
    return find_segments(PyModule_GetState(module));
}

static PyMethodDef methods[] = {
    {"append_batch", (PyCFunction)(void (*)(void))append_batch, METH_FASTCALL, append_batch_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

/* The classes that the state refers to live as long as the process: so does the module. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.broker.log._segment_append",
    .m_doc = "The append of one batch to a segment, compiled.",
    .m_size = sizeof(SegmentState),
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__segment_append(void)
{
    return PyModuleDef_Init(&module);
}
