/* The append of one batch to a segment that has room for it, for _segment_append.c and for the usual produce request.
 * Segment.has_room, Segment.age_ms, Segment.append and SegmentIndexes.add do the same in Python; tests compare the two.
 *
 * The state stays in the Python objects, whose slots are read and written here. For everything unusual (a new segment,
 * a file that is not open, an index that is full or due to be written) nothing is done, and the caller does it in
 * Python. All is checked before the first byte is written, so that a failed append leaves the same state as in Python.
 */

#ifndef HOLDFAST_SEGMENT_APPEND_H
#define HOLDFAST_SEGMENT_APPEND_H

#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../../protocol/_slots.h"

#define MAX_RELATIVE_OFFSET INT32_MAX
#define NO_TIMESTAMP (-1)
#define LOG_OVERHEAD 12

typedef struct {
    Slot size, base_offset, next_offset, file, first_timestamp, created_ms, indexes, appended;
    Slot max_timestamp, offset_of_max_timestamp, bytes_since_entry, interval_bytes, offsets, times;
    Slot written, max_count, first, second, last_written;
    Slot offsets_base, times_base;
    Slot fd, file_size;
    PyTypeObject *segment, *os_file;
    PyObject *append;
    int64_t write_every, remembered_positions;
} SegmentState;

static int
put_slot_number(const Slot *slot, PyObject *object, int64_t number)
{
    return set_new(slot, object, PyLong_FromLongLong(number));
}

/* The number in a slot: 1 if there is one, 0 for None, -1 after an error. */
static int
slot_number(const Slot *slot, PyObject *object, int64_t *number)
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
} SegmentIndex;

static void
release_index(SegmentIndex *index)
{
    Py_XDECREF(index->object);
    Py_XDECREF(index->first);
    Py_XDECREF(index->second);
}

/* Reads an index: 1 if it may get one more entry in memory, 0 if Python has to look at it, -1 after an error. */
static int
read_index(const SegmentState *state, const Slot *where, const Slot *base, PyObject *indexes, SegmentIndex *index)
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
    int known = slot_number(&state->written, index->object, &written);
    if (known != 1) {
        return known;
    }
    if (slot_number(&state->max_count, index->object, &max_count) != 1
        || slot_number(base, index->object, &index->base_offset) != 1) {
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
add_entry(const SegmentIndex *index, int64_t first, int64_t second)
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

/* The batch, the segment, and what becomes known of it. `bytes` are those of the batch. `records` is an object with the
 * same bytes, for a file that is not the system's; it may be NULL at first. */
typedef struct {
    PyObject *segment, *records;
    const uint8_t *bytes;
    int64_t batch_size, last_offset, max_timestamp;
    int64_t segment_bytes, age_ms_max, now_ms;
    PyObject *file, *indexes;
    int64_t size, base_offset, first_timestamp, created_ms;
    int64_t known_max, bytes_since_entry, interval_bytes;
    SegmentIndex offsets, times;
    int are_ahead; /* whether entries of the indexes are only in memory: SegmentIndexes.are_ahead */
} SegmentAppend;

/* Reads the state: 1 if the batch may be appended here, 0 if that is for Python, -1 after an error. */
static int
read_segment(const SegmentState *state, SegmentAppend *append)
{
    PyObject *segment = append->segment;
    append->file = get(&state->file, segment);
    append->indexes = get(&state->indexes, segment);
    if (append->file == NULL || append->indexes == NULL) {
        return -1;
    }
    int known = slot_number(&state->first_timestamp, segment, &append->first_timestamp);
    if (append->file == Py_None || known != 1) {
        return known < 0 ? -1 : 0;
    }
    if (slot_number(&state->size, segment, &append->size) != 1
        || slot_number(&state->base_offset, segment, &append->base_offset) != 1
        || slot_number(&state->created_ms, segment, &append->created_ms) != 1) {
        return -1;
    }
    if (append->size <= 0 || append->batch_size > append->segment_bytes - append->size
        || append->last_offset - append->base_offset > MAX_RELATIVE_OFFSET) {
        return 0;
    }
    int has_times
        = append->first_timestamp >= 0 && append->first_timestamp <= append->now_ms && append->max_timestamp >= 0;
    int64_t age_ms = has_times ? append->max_timestamp - append->first_timestamp : append->now_ms - append->created_ms;
    if (age_ms > append->age_ms_max) {
        return 0;
    }
    known = slot_number(&state->max_timestamp, append->indexes, &append->known_max);
    if (known != 1) {
        return known;
    }
    if (slot_number(&state->bytes_since_entry, append->indexes, &append->bytes_since_entry) != 1
        || slot_number(&state->interval_bytes, append->indexes, &append->interval_bytes) != 1) {
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
write_to_os_file(const SegmentState *state, const SegmentAppend *append)
{
    int64_t fd, size;
    if (slot_number(&state->fd, append->file, &fd) != 1 || slot_number(&state->file_size, append->file, &size) != 1
        || write_all((int)fd, (const char *)append->bytes, (Py_ssize_t)append->batch_size, size) < 0) {
        return -1;
    }
    return put_slot_number(&state->file_size, append->file, size + append->batch_size);
}

static int
write_to_file(const SegmentState *state, const SegmentAppend *append)
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
add_to_indexes(const SegmentState *state, SegmentAppend *append)
{
    int64_t max_timestamp = append->known_max, offset_of_max;
    PyObject *indexes = append->indexes;
    if (append->max_timestamp > max_timestamp) {
        max_timestamp = append->max_timestamp;
        if (put_slot_number(&state->max_timestamp, indexes, max_timestamp) < 0
            || put_slot_number(&state->offset_of_max_timestamp, indexes, append->last_offset) < 0) {
            return -1;
        }
    }
    if (append->bytes_since_entry <= append->interval_bytes) {
        return put_slot_number(&state->bytes_since_entry, indexes, append->bytes_since_entry + append->batch_size);
    }
    if (add_entry(&append->offsets, append->last_offset - append->offsets.base_offset, append->size) < 0) {
        return -1;
    }
    SegmentIndex *times = &append->times;
    if (max_timestamp != NO_TIMESTAMP && (!times->has_last || max_timestamp > times->last)
        && (slot_number(&state->offset_of_max_timestamp, indexes, &offset_of_max) != 1
            || add_entry(times, max_timestamp, offset_of_max - times->base_offset) < 0)) {
        return -1;
    }
    return put_slot_number(&state->bytes_since_entry, indexes, append->batch_size);
}

/* Remembers where the append has ended, for the reads that follow it. */
static int
note_appended(const SegmentState *state, const SegmentAppend *append)
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

#define NEEDS_RECORDS 2

/* Appends the batch: 1; 0 if Python has to do it; NEEDS_RECORDS if `records` has to be set for it; -1 after an error.
 * Nothing was done unless it returns 1. */
static int
append_to_segment(const SegmentState *state, SegmentAppend *append)
{
    append->file = append->indexes = NULL;
    memset(&append->offsets, 0, sizeof append->offsets);
    memset(&append->times, 0, sizeof append->times);
    int status = read_segment(state, append);
    if (status == 1 && append->records == NULL && Py_TYPE(append->file) != state->os_file) {
        status = NEEDS_RECORDS;
    }
    else if (status == 1
             && (write_to_file(state, append) < 0 || add_to_indexes(state, append) < 0
                 || put_slot_number(&state->size, append->segment, append->size + append->batch_size) < 0
                 || put_slot_number(&state->next_offset, append->segment, append->last_offset + 1) < 0
                 || note_appended(state, append) < 0)) {
        status = -1;
    }
    if (status == 1) {
        append->are_ahead = PyList_Size(append->offsets.first) > 0;
    }
    if (status < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "a segment without numbers");
    }
    Py_XDECREF(append->file);
    Py_XDECREF(append->indexes);
    release_index(&append->offsets);
    release_index(&append->times);
    return status;
}

/* Finds the classes and slots. They live as long as the process. Returns 0, or -1 with an exception. */
static int
find_segments(SegmentState *state)
{
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

#endif
