/* The append of one batch to a segment that has room for it, compiled. Segment.has_room, Segment.age_ms,
 * Segment.append and SegmentIndexes.add do the same in Python; tests compare the two. Where this file was not compiled,
 * Python is used.
 *
 * The state stays in the Python objects, whose slots are read and written here. For everything unusual (a new segment,
 * a file that is not open, an index that is full or due to be written) nothing is done, and the caller does it in
 * Python. All is checked before the first byte is written, so that a failed append leaves the same state as in Python.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../../protocol/_slots.h"

#define MAX_RELATIVE_OFFSET INT32_MAX
#define NO_TIMESTAMP (-1)
#define LOG_OVERHEAD 12

/* The places of fields in a BatchHeader. */
#define HEADER_FIELDS 14
#define POSITION 0
#define LENGTH 2
#define LAST_OFFSET_DELTA 7
#define MAX_TIMESTAMP 9

typedef struct {
    Slot size, base_offset, next_offset, file, first_timestamp, created_ms, indexes, appended;
    Slot max_timestamp, offset_of_max_timestamp, bytes_since_entry, interval_bytes, offsets, times;
    Slot written, max_count, first, second, last_written;
    Slot offsets_base, times_base;
    Slot fd, file_size;
    PyTypeObject *segment, *os_file;
    PyObject *append;
    int64_t write_every, remembered_positions;
} State;

static int
set_number(const Slot *slot, PyObject *object, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    if (value == NULL) {
        return -1;
    }
    int done = set(slot, object, value);
    Py_DECREF(value);
    return done;
}

/* The number in a slot: 1 if there is one, 0 for None, -1 after an error. */
static int
get_number(const Slot *slot, PyObject *object, int64_t *number)
{
    PyObject *value = get(slot, object);
    if (value == NULL) {
        return -1;
    }
    if (value == Py_None) {
        Py_DECREF(value);
        *number = 0;
        return 0;
    }
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 1;
}

/* One index: its entries in memory, which are two lists, and its largest value so far. */
typedef struct {
    PyObject *object, *first, *second;
    int64_t base_offset;
    int64_t last;
    int has_last;
} Index;

static void
release(Index *index)
{
    Py_XDECREF(index->object);
    Py_XDECREF(index->first);
    Py_XDECREF(index->second);
}

/* Reads an index: 1 if it may get one more entry in memory, 0 if Python has to look at it, -1 after an error. */
static int
read_index(const State *state, const Slot *where, const Slot *base, PyObject *indexes, Index *index)
{
    int64_t written, max_count;
    index->object = get(where, indexes);
    if (index->object == NULL) {
        return -1;
    }
    index->first = get(&state->first, index->object);
    index->second = get(&state->second, index->object);
    if (index->first == NULL || index->second == NULL) {
        return -1;
    }
    int known = get_number(&state->written, index->object, &written);
    if (known != 1) {
        return known;
    }
    if (get_number(&state->max_count, index->object, &max_count) != 1
        || get_number(base, index->object, &index->base_offset) != 1) {
        return -1;
    }
    if (!PyList_Check(index->first) || !PyList_Check(index->second)) {
        return 0;
    }
    Py_ssize_t count = PyList_Size(index->first);
    if (written + count >= max_count || count + 1 >= state->write_every) {
        return 0;
    }
    if (count > 0) {
        index->last = PyLong_AsLongLong(PyList_GetItem(index->first, count - 1));
        index->has_last = 1;
    }
    else if (written > 0) {
        PyObject *pair = get(&state->last_written, index->object);
        if (pair == NULL) {
            return -1;
        }
        if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2) {
            index->last = PyLong_AsLongLong(PyTuple_GetItem(pair, 0));
            index->has_last = 1;
        }
        Py_DECREF(pair);
        if (!index->has_last) {
            return 0; /* It has to be read from the file. */
        }
    }
    return PyErr_Occurred() ? -1 : 1;
}

static int
add_entry(const Index *index, int64_t first, int64_t second)
{
    PyObject *one = PyLong_FromLongLong(first);
    PyObject *other = PyLong_FromLongLong(second);
    int done = -1;
    if (one != NULL && other != NULL && PyList_Append(index->first, one) == 0) {
        done = PyList_Append(index->second, other);
    }
    Py_XDECREF(one);
    Py_XDECREF(other);
    return done;
}

/* What is known of the segment and the batch. */
typedef struct {
    PyObject *segment, *records, *file, *indexes;
    int64_t size, base_offset, first_timestamp, created_ms;
    int64_t known_max, bytes_since_entry, interval_bytes;
    int64_t batch_size, batch_offset, last_offset, max_timestamp;
    Index offsets, times;
} Append;

/* Reads the state: 1 if the batch may be appended here, 0 if that is for Python, -1 after an error. */
static int
read_state(const State *state, Append *append, int64_t segment_bytes, int64_t age_ms_max, int64_t now_ms)
{
    PyObject *segment = append->segment;
    append->file = get(&state->file, segment);
    append->indexes = get(&state->indexes, segment);
    if (append->file == NULL || append->indexes == NULL) {
        return -1;
    }
    int known = get_number(&state->first_timestamp, segment, &append->first_timestamp);
    if (append->file == Py_None || known != 1) {
        return known < 0 ? -1 : 0;
    }
    if (get_number(&state->size, segment, &append->size) != 1
        || get_number(&state->base_offset, segment, &append->base_offset) != 1
        || get_number(&state->created_ms, segment, &append->created_ms) != 1) {
        return -1;
    }
    if (append->size <= 0 || append->batch_size > segment_bytes - append->size
        || append->last_offset - append->base_offset > MAX_RELATIVE_OFFSET) {
        return 0;
    }
    int has_times
        = append->first_timestamp >= 0 && append->first_timestamp <= now_ms && append->max_timestamp >= 0;
    int64_t age_ms = has_times ? append->max_timestamp - append->first_timestamp : now_ms - append->created_ms;
    if (age_ms > age_ms_max) {
        return 0;
    }
    known = get_number(&state->max_timestamp, append->indexes, &append->known_max);
    if (known != 1) {
        return known;
    }
    if (get_number(&state->bytes_since_entry, append->indexes, &append->bytes_since_entry) != 1
        || get_number(&state->interval_bytes, append->indexes, &append->interval_bytes) != 1) {
        return -1;
    }
    known = read_index(state, &state->offsets, &state->offsets_base, append->indexes, &append->offsets);
    return known != 1 ? known
                      : read_index(state, &state->times, &state->times_base, append->indexes, &append->times);
}

/* Writes all of a buffer at `offset` of a file. Other threads run meanwhile. */
static int
write_all(int fd, const char *start, Py_ssize_t size, int64_t offset)
{
    while (size > 0) {
        ssize_t written;
        int error;
        Py_BEGIN_ALLOW_THREADS
        written = pwrite(fd, start, (size_t)size, (off_t)offset);
        error = errno;
        Py_END_ALLOW_THREADS
        if (written < 0) {
            if (error == EINTR) {
                if (PyErr_CheckSignals() < 0) {
                    return -1;
                }
                continue;
            }
            errno = error;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        start += written;
        size -= written;
        offset += written;
    }
    return 0;
}

/* What OsFile.append does. */
static int
write_to_os_file(const State *state, const Append *append)
{
    int64_t fd, size;
    if (get_number(&state->fd, append->file, &fd) != 1 || get_number(&state->file_size, append->file, &size) != 1) {
        return -1;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(append->records, &buffer, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    int done = write_all((int)fd, buffer.buf, buffer.len, size);
    PyBuffer_Release(&buffer);
    return done < 0 ? -1 : set_number(&state->file_size, append->file, size + append->batch_size);
}

static int
write_batch(const State *state, const Append *append)
{
    if (Py_TYPE(append->file) == state->os_file) {
        return write_to_os_file(state, append);
    }
    PyObject *buffers = PyTuple_Pack(1, append->records);
    if (buffers == NULL) {
        return -1;
    }
    PyObject *done = PyObject_CallMethodObjArgs(append->file, state->append, buffers, NULL);
    Py_DECREF(buffers);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
add_to_indexes(const State *state, Append *append)
{
    int64_t max_timestamp = append->known_max, offset_of_max;
    PyObject *indexes = append->indexes;
    if (append->max_timestamp > max_timestamp) {
        max_timestamp = append->max_timestamp;
        if (set_number(&state->max_timestamp, indexes, max_timestamp) < 0
            || set_number(&state->offset_of_max_timestamp, indexes, append->last_offset) < 0) {
            return -1;
        }
    }
    if (append->bytes_since_entry <= append->interval_bytes) {
        return set_number(&state->bytes_since_entry, indexes, append->bytes_since_entry + append->batch_size);
    }
    if (add_entry(&append->offsets, append->last_offset - append->offsets.base_offset, append->size) < 0) {
        return -1;
    }
    Index *times = &append->times;
    if (max_timestamp != NO_TIMESTAMP && (!times->has_last || max_timestamp > times->last)
        && (get_number(&state->offset_of_max_timestamp, indexes, &offset_of_max) != 1
            || add_entry(times, max_timestamp, offset_of_max - times->base_offset) < 0)) {
        return -1;
    }
    return set_number(&state->bytes_since_entry, indexes, append->batch_size);
}

/* Remembers where the append has ended, for the reads that follow it. */
static int
note_appended(const State *state, const Append *append)
{
    PyObject *appended = get(&state->appended, append->segment);
    PyObject *offset = PyLong_FromLongLong(append->last_offset + 1);
    PyObject *position = PyLong_FromLongLong(append->size + append->batch_size);
    int done = -1;
    if (appended != NULL && offset != NULL && position != NULL) {
        done = PyDict_SetItem(appended, offset, position);
        Py_ssize_t at = 0;
        PyObject *oldest = NULL;
        int is_full = done == 0 && PyDict_Size(appended) > state->remembered_positions;
        if (is_full && PyDict_Next(appended, &at, &oldest, NULL)) {
            Py_INCREF(oldest);
            done = PyDict_DelItem(appended, oldest);
            Py_DECREF(oldest);
        }
    }
    Py_XDECREF(appended);
    Py_XDECREF(offset);
    Py_XDECREF(position);
    return done;
}

PyDoc_STRVAR(append_batch_doc,
             "append_batch(segment, records, header, base_offset, segment_bytes, age_ms_max, now_ms)\n--\n\n"
             "Append the only batch in `records` to a segment that has room for it. Returns False, and has done\n"
             "nothing, where that is for Segment.has_room and Segment.append to decide.");

static PyObject *
append_batch(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const State *state = PyModule_GetState(module);
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "append_batch takes a segment, records, a header and four numbers");
        return NULL;
    }
    PyObject *header = args[2];
    if (Py_TYPE(args[0]) != state->segment || !PyTuple_Check(header) || PyTuple_Size(header) != HEADER_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "append_batch takes a Segment and a BatchHeader");
        return NULL;
    }
    Append append = {.segment = args[0], .records = args[1]};
    append.batch_size = PyObject_Length(args[1]);
    append.batch_offset = PyLong_AsLongLong(args[3]);
    append.last_offset = append.batch_offset + PyLong_AsLongLong(PyTuple_GetItem(header, LAST_OFFSET_DELTA));
    append.max_timestamp = PyLong_AsLongLong(PyTuple_GetItem(header, MAX_TIMESTAMP));
    int64_t position = PyLong_AsLongLong(PyTuple_GetItem(header, POSITION));
    int64_t length = PyLong_AsLongLong(PyTuple_GetItem(header, LENGTH));
    int64_t segment_bytes = PyLong_AsLongLong(args[4]), age_ms_max = PyLong_AsLongLong(args[5]);
    int64_t now_ms = PyLong_AsLongLong(args[6]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (position != 0 || length + LOG_OVERHEAD != append.batch_size) {
        Py_RETURN_FALSE;
    }
    int is_appended = read_state(state, &append, segment_bytes, age_ms_max, now_ms);
    if (is_appended == 1
        && (write_batch(state, &append) < 0 || add_to_indexes(state, &append) < 0
            || set_number(&state->size, append.segment, append.size + append.batch_size) < 0
            || set_number(&state->next_offset, append.segment, append.last_offset + 1) < 0
            || note_appended(state, &append) < 0)) {
        is_appended = -1;
    }
    Py_XDECREF(append.file);
    Py_XDECREF(append.indexes);
    release(&append.offsets);
    release(&append.times);
    if (is_appended < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a segment without numbers");
        }
        return NULL;
    }
    return PyBool_FromLong(is_appended);
}

/* The module ------------------------------------------------------------------------------------------------ */

static int
execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    memset(state, 0, sizeof *state);
    PyTypeObject *segment = (PyTypeObject *)attribute_of("holdfast_log.broker.log.segment", "Segment");
    PyTypeObject *indexes = (PyTypeObject *)attribute_of("holdfast_log.broker.log.segment_indexes", "SegmentIndexes");
    PyTypeObject *offsets = (PyTypeObject *)attribute_of("holdfast_log.broker.log.index", "OffsetIndex");
    PyTypeObject *times = (PyTypeObject *)attribute_of("holdfast_log.broker.log.index", "TimeIndex");
    PyObject *write_every = attribute_of("holdfast_log.broker.log.index", "WRITE_EVERY");
    PyObject *remembered = attribute_of("holdfast_log.broker.log.segment", "REMEMBERED_POSITIONS");
    state->os_file = (PyTypeObject *)attribute_of("holdfast_log.broker.log.disk", "OsFile");
    state->append = PyUnicode_InternFromString("append");
    state->segment = segment;
    int done = -1;
    if (segment != NULL && indexes != NULL && offsets != NULL && times != NULL && write_every != NULL
        && remembered != NULL && state->os_file != NULL
        && find_slot(state->os_file, "_fd", &state->fd) == 0
        && find_slot(state->os_file, "_size", &state->file_size) == 0 && state->append != NULL
        && find_slot(segment, "size", &state->size) == 0
        && find_slot(segment, "base_offset", &state->base_offset) == 0
        && find_slot(segment, "next_offset", &state->next_offset) == 0
        && find_slot(segment, "_file", &state->file) == 0
        && find_slot(segment, "_first_timestamp", &state->first_timestamp) == 0
        && find_slot(segment, "created_ms", &state->created_ms) == 0
        && find_slot(segment, "indexes", &state->indexes) == 0 && find_slot(segment, "_appended", &state->appended) == 0
        && find_slot(indexes, "max_timestamp", &state->max_timestamp) == 0
        && find_slot(indexes, "offset_of_max_timestamp", &state->offset_of_max_timestamp) == 0
        && find_slot(indexes, "_bytes_since_entry", &state->bytes_since_entry) == 0
        && find_slot(indexes, "interval_bytes", &state->interval_bytes) == 0
        && find_slot(indexes, "offsets", &state->offsets) == 0 && find_slot(indexes, "times", &state->times) == 0
        && find_slot(offsets, "base_offset", &state->offsets_base) == 0
        && find_slot(times, "base_offset", &state->times_base) == 0
        /* Both classes inherit these. */
        && find_slot(offsets, "_written", &state->written) == 0
        && find_slot(offsets, "_max_count", &state->max_count) == 0
        && find_slot(offsets, "_first", &state->first) == 0 && find_slot(offsets, "_second", &state->second) == 0
        && find_slot(offsets, "_last_written", &state->last_written) == 0) {
        state->write_every = PyLong_AsLongLong(write_every);
        state->remembered_positions = PyLong_AsLongLong(remembered);
        done = PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF((PyObject *)indexes);
    Py_XDECREF((PyObject *)offsets);
    Py_XDECREF((PyObject *)times);
    Py_XDECREF(write_every);
    Py_XDECREF(remembered);
    return done;
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
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__segment_append(void)
{
    return PyModuleDef_Init(&module);
}
