/* What the usual fetches of one partition and of several share: the request, the partitions that it names, and the fetch
 * session that it continues. See _usual_fetch.c and _several_fetch.c.
 *
 * A peer wrote the request. A cursor never moves beyond its end, and no size is trusted before it is compared with the
 * bytes that remain. What is found is answered by three numbers: 1; 0 if Python has to do it; -1 after an error.
 */

#ifndef HOLDFAST_FETCHING_H
#define HOLDFAST_FETCHING_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../protocol/_reading.h"
#include "../../protocol/_slots.h"

#define FIRST_VERSION 4
#define LAST_VERSION 16
#define LOG_START_FROM 5
#define SESSIONS_FROM 7
#define LEADER_EPOCH_FROM 9
#define RACK_FROM 11
#define FLEXIBLE_FROM 12
#define IDS_FROM 13
#define NO_REPLICA_ID_FROM 15
#define UUID_BYTES 16
#define NO_EPOCH (-1)
#define READ_COMMITTED 1 /* the isolation level */
#define NO_TOKEN (-1)
#define NO_SESSION 0
#define FINAL_EPOCH (-1)
#define CONSUMER (-1)
/* Slices of up to so many bytes are read into memory. */
#define SMALL_BYTES (8 << 10)

/* The fields of a PartitionRead. */
enum { HIGH_WATERMARK, LOG_START, END_OFFSET, RECORDS, UNCHECKED, DIVERGING, STABLE, ABORTED, READ_FIELDS };

#define FETCH_NAMES(X)                                                                                                   \
    X(failure) X(high_watermark) X(id) X(leader_epoch) X(log) X(log_start_offset) X(may_have_aborted) X(need)            \
    X(principal) X(read) X(read_admission) X(role) X(topic_id) X(traffic) X(unstable)

#define DECLARE(name) static PyObject *s_##name;
FETCH_NAMES(DECLARE)
#undef DECLARE

/* The classes and functions that are used. A module is initialised once in a process. */
static PyTypeObject *leadership, *file_slice, *session_type, *member_type, *wanted_type;
static PyObject *uuid_of, *copy_small, *no_id, *small_bytes;
static Slot slice_length, slice_data, traffic_reads, traffic_bytes_out;

/* The slots of a fetch session, of its partition, and of the position in that which its reader wants. */
#define SESSION_SLOTS(X)                                                                                                 \
    X(reader) X(epoch) X(by_ids) X(answered_ms) X(asked_after_ms) X(used_ms) X(partitions) X(stirred) X(waiting) X(needed)
#define MEMBER_SLOTS(X) X(named) X(wanted) X(key) X(watchers) X(high_watermark) X(log_start_offset)
#define WANTED_SLOTS(X)                                                                                                  \
    X(current_leader_epoch) X(fetch_offset) X(last_fetched_epoch) X(log_start_offset) X(partition_max_bytes)             \
    X(owner_token)
#define DECLARE_SLOT(name) static Slot session_##name;
SESSION_SLOTS(DECLARE_SLOT)
#undef DECLARE_SLOT
#define DECLARE_SLOT(name) static Slot member_##name;
MEMBER_SLOTS(DECLARE_SLOT)
#undef DECLARE_SLOT
#define DECLARE_SLOT(name) static Slot wanted_##name;
WANTED_SLOTS(DECLARE_SLOT)
#undef DECLARE_SLOT

/* Numbers and attributes -------------------------------------------------------------------------------------- */

static inline int
get_number(PyObject *object, PyObject *name, long long *number)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static inline int
get_float(PyObject *object, PyObject *name, double *number)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    *number = PyFloat_AsDouble(value);
    Py_DECREF(value);
    return *number == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* Whether an attribute is None: 1, 0, or -1 after an error. */
static inline int
is_none(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    Py_DECREF(value);
    return value == Py_None;
}

static inline int
add_to(const Slot *slot, PyObject *object, long long more)
{
    PyObject *value = get(slot, object);
    if (value == NULL) {
        return -1;
    }
    long long number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    PyObject *sum = PyErr_Occurred() ? NULL : PyLong_FromLongLong(number + more);
    if (sum == NULL) {
        return -1;
    }
    int done = set(slot, object, sum);
    Py_DECREF(sum);
    return done;
}

/* The number in a slot. */
static inline int
number_in(const Slot *slot, PyObject *object, long long *number)
{
    PyObject *value = get(slot, object);
    if (value == NULL) {
        return -1;
    }
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static inline int
set_number(const Slot *slot, PyObject *object, long long number)
{
    PyObject *value = PyLong_FromLongLong(number);
    int done = value == NULL ? -1 : set(slot, object, value);
    Py_XDECREF(value);
    return done;
}

/* Calls a method for its effect. */
static inline int
perform(PyObject *object, PyObject *method, PyObject *argument)
{
    PyObject *done = PyObject_CallMethodObjArgs(object, method, argument, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The request ------------------------------------------------------------------------------------------------- */

typedef struct {
    Cursor cursor;
    int version;
    int32_t max_wait_ms, min_bytes, max_bytes, index, leader_epoch, partition_max_bytes, session_id, session_epoch;
    int64_t isolation, offset, log_start_offset;
    int is_named; /* whether the request names a partition; if not, it means that of its session */
    const uint8_t *name; /* of the topic: its id or its name */
    Py_ssize_t name_size;
} Wanted;

static inline int
read_topic(Wanted *wanted)
{
    int64_t size = UUID_BYTES;
    if (wanted->version < IDS_FROM && (read_length(&wanted->cursor, 2, &size) < 0 || size > STRING_BYTES_MAX)) {
        return -1;
    }
    wanted->name_size = (Py_ssize_t)size;
    wanted->name = take(&wanted->cursor, (Py_ssize_t)size);
    return wanted->name == NULL ? -1 : 0;
}

static inline int
read_partition(Wanted *wanted)
{
    wanted->leader_epoch = NO_EPOCH;
    wanted->log_start_offset = NO_EPOCH;
    if (read_int32(&wanted->cursor, &wanted->index) < 0
        || (wanted->version >= LEADER_EPOCH_FROM && read_int32(&wanted->cursor, &wanted->leader_epoch) < 0)
        || read_number(&wanted->cursor, 8, &wanted->offset) < 0
        || (wanted->version >= FLEXIBLE_FROM && expect(&wanted->cursor, 4, NO_EPOCH) < 0) /* last_fetched_epoch */
        || (wanted->version >= LOG_START_FROM && read_number(&wanted->cursor, 8, &wanted->log_start_offset) < 0)
        || read_int32(&wanted->cursor, &wanted->partition_max_bytes) < 0) {
        return -1;
    }
    return end_struct(&wanted->cursor);
}

/* Reads the id and the epoch of a session: of one that goes on, or of none. */
static inline int
read_session(Wanted *wanted)
{
    if (wanted->version < SESSIONS_FROM) {
        return 0;
    }
    if (read_int32(&wanted->cursor, &wanted->session_id) < 0 || read_int32(&wanted->cursor, &wanted->session_epoch) < 0) {
        return -1;
    }
    return wanted->session_id == NO_SESSION ? (wanted->session_epoch == FINAL_EPOCH ? 0 : -1)
                                            : (wanted->session_epoch > 0 ? 0 : -1);
}

/* Reads what comes before the topics. */
static inline int
read_head(Wanted *wanted)
{
    Cursor *cursor = &wanted->cursor;
    if ((wanted->version < NO_REPLICA_ID_FROM && expect(cursor, 4, CONSUMER) < 0)
        || read_int32(cursor, &wanted->max_wait_ms) < 0 || read_int32(cursor, &wanted->min_bytes) < 0
        || read_int32(cursor, &wanted->max_bytes) < 0 || read_number(cursor, 1, &wanted->isolation) < 0
        || (wanted->isolation != 0 && wanted->isolation != READ_COMMITTED)) {
        return -1;
    }
    return read_session(wanted);
}

/* Reads what comes behind the topics: nothing that leaves the session, and the consumer's rack. */
static inline int
read_tail(Wanted *wanted)
{
    int64_t size;
    if (wanted->version >= SESSIONS_FROM && expect_length(&wanted->cursor, 4, 0) < 0) {
        return -1;
    }
    if (wanted->version >= RACK_FROM) {
        const uint8_t *rack = read_length(&wanted->cursor, 2, &size) < 0 ? NULL : take(&wanted->cursor, (Py_ssize_t)size);
        if (rack == NULL) {
            return -1;
        }
        for (int64_t index = 0; index < size; index++) {
            if (rack[index] > 0x7F) {
                return -1; /* Whether it is a text is for Python to find out. */
            }
        }
    }
    return end_struct(&wanted->cursor);
}

/* The partition ----------------------------------------------------------------------------------------------- */

/* The name and the id of the topic, by which it was asked for. Returns 1, 0 if this broker has no topic of that id, or
 * -1 after an error. */
static inline int
find_topic(const Wanted *wanted, PyObject *name_of, PyObject **topic, PyObject **topic_id)
{
    const char *name = (const char *)wanted->name;
    if (wanted->version < IDS_FROM) {
        *topic_id = Py_NewRef(no_id);
        *topic = PyUnicode_DecodeUTF8(name, wanted->name_size, NULL);
        return *topic == NULL ? -1 : 1;
    }
    PyObject *raw = PyBytes_FromStringAndSize(name, UUID_BYTES);
    *topic_id = raw == NULL ? NULL : PyObject_CallFunctionObjArgs(uuid_of, raw, NULL);
    Py_XDECREF(raw);
    *topic = *topic_id == NULL ? NULL : PyObject_CallFunctionObjArgs(name_of, *topic_id, NULL);
    return *topic == NULL ? -1 : *topic != Py_None;
}

/* The partition, a new reference in `partition`: 1, 0 if it is to be found in Python, -1 after an error. */
static inline int
find_partition(const Wanted *wanted, PyObject *topics, PyObject *topic, PyObject *topic_id, PyObject **partition)
{
    PyObject *partitions = PyDict_GetItemWithError(topics, topic);
    if (partitions == NULL || !PyDict_Check(partitions)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *index = PyLong_FromLong(wanted->index);
    if (index == NULL) {
        return -1;
    }
    *partition = Py_XNewRef(PyDict_GetItemWithError(partitions, index));
    Py_DECREF(index);
    if (*partition == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (wanted->version < IDS_FROM) {
        return 1;
    }
    /* A topic that was deleted and created again has another id. */
    PyObject *own_id = PyObject_GetAttr(*partition, s_topic_id);
    int is_same = own_id == NULL ? -1 : PyObject_RichCompareBool(own_id, topic_id, Py_EQ);
    Py_XDECREF(own_id);
    return is_same;
}

/* Whether a consumer may read the partition here, whoever it is: 1, 0 if Python has to find out, -1 after an error. The
 * log is a new reference in `log`. */
static inline int
is_readable(PyObject *partition, long long leader_epoch, long long isolation, PyObject **log)
{
    PyObject *role = PyObject_GetAttr(partition, s_role);
    if (role == NULL) {
        return -1;
    }
    int found = Py_TYPE(role) == leadership;
    Py_DECREF(role);
    if (found && leader_epoch != NO_EPOCH) {
        long long own_epoch;
        found = get_number(partition, s_leader_epoch, &own_epoch) < 0 ? -1 : own_epoch == leader_epoch;
    }
    if (found != 1 || (found = is_none(partition, s_read_admission)) != 1) {
        return found;
    }
    *log = PyObject_GetAttr(partition, s_log);
    if (*log == NULL || (found = is_none(*log, s_failure)) != 1) {
        return *log == NULL ? -1 : found;
    }
    /* With unstable transactions, the last stable offset in the response is another number than the high watermark. */
    PyObject *unstable = PyObject_GetAttr(*log, s_unstable);
    found = unstable == NULL ? -1 : PyDict_Check(unstable) && PyDict_Size(unstable) == 0;
    Py_XDECREF(unstable);
    if (found == 1 && isolation == READ_COMMITTED) {
        /* The response would have to name the aborted transactions. */
        PyObject *may_have = PyObject_GetAttr(*log, s_may_have_aborted);
        found = may_have == NULL ? -1 : may_have == Py_False;
        Py_XDECREF(may_have);
    }
    return found;
}

/* What a read has found; without records `read` and `records` are NULL. */
typedef struct {
    PyObject *read, *records;
    long long high_watermark, log_start_offset, end_offset, size;
    int is_shared; /* whether another fetch has read it */
} Found;

/* Takes the fields of a PartitionRead, whose reference is given away: 1, 0 if it is unusual, -1 after an error. */
static inline int
take_read(PyObject *read, Found *found)
{
    if (read == NULL) {
        return -1;
    }
    found->read = read;
    if (!PyTuple_Check(read) || PyTuple_Size(read) != READ_FIELDS || PyTuple_GetItem(read, UNCHECKED) != Py_None
        || PyTuple_GetItem(read, DIVERGING) != Py_None) {
        return 0;
    }
    found->high_watermark = PyLong_AsLongLong(PyTuple_GetItem(read, HIGH_WATERMARK));
    found->log_start_offset = PyLong_AsLongLong(PyTuple_GetItem(read, LOG_START));
    found->end_offset = PyLong_AsLongLong(PyTuple_GetItem(read, END_OFFSET));
    PyObject *records = PyTuple_GetItem(read, RECORDS);
    if (records == Py_None) {
        return PyErr_Occurred() ? -1 : 1;
    }
    if (Py_TYPE(records) != file_slice) {
        return 0;
    }
    found->records = records;
    PyObject *length = get(&slice_length, records);
    found->size = length == NULL ? -1 : PyLong_AsLongLong(length);
    Py_XDECREF(length);
    return PyErr_Occurred() ? -1 : 1;
}

/* Finds the ends of a partition that a consumer may read: as is_readable. */
static inline int
find_ends(PyObject *partition, long long leader_epoch, long long isolation, Found *found)
{
    PyObject *log = NULL;
    memset(found, 0, sizeof *found);
    int is_usual = is_readable(partition, leader_epoch, isolation, &log);
    if (is_usual == 1
        && (get_number(partition, s_high_watermark, &found->high_watermark) < 0
            || get_number(log, s_log_start_offset, &found->log_start_offset) < 0)) {
        is_usual = -1;
    }
    Py_XDECREF(log);
    found->end_offset = found->high_watermark;
    return is_usual;
}

/* Whether nothing is there yet for a reader from an offset. */
static inline int
is_at_end(const Found *found, long long offset)
{
    return offset == found->high_watermark && found->log_start_offset <= offset;
}

/* Whatever Python would do about an error, it does when it does the whole again. */
static inline int
leave_to_python(int outcome)
{
    if (outcome < 0 && PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear();
        return 0;
    }
    return outcome;
}

/* Counts a partition in the answer to a consumer (broker.replication.traffic). */
static inline int
count_read(PyObject *partition, long long size)
{
    PyObject *traffic = PyObject_GetAttr(partition, s_traffic);
    if (traffic == NULL) {
        return -1;
    }
    int done = add_to(&traffic_reads, traffic, 1) < 0 || (size > 0 && add_to(&traffic_bytes_out, traffic, size) < 0);
    Py_DECREF(traffic);
    return done ? -1 : 0;
}

/* Sessions ---------------------------------------------------------------------------------------------------- */

/* What a session fetch is about: borrowed references. */
typedef struct {
    PyObject *sessions, *clock_s, *session, *member;
} Session;

static inline int
now_ms(PyObject *clock_s, long long *now)
{
    PyObject *seconds = PyObject_CallNoArgs(clock_s);
    double value = seconds == NULL ? -1.0 : PyFloat_AsDouble(seconds);
    Py_XDECREF(seconds);
    *now = (long long)(value * 1000);
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether a dict in a slot has a key; -1 after an error. */
static inline int
has(const Slot *slot, PyObject *object, PyObject *key)
{
    PyObject *dict = get(slot, object);
    int found = dict == NULL ? -1 : PyDict_Contains(dict, key);
    Py_XDECREF(dict);
    return found;
}

/* Takes a key from a dict in a slot, if it is there, and puts it at the end if `is_kept`. */
static inline int
move(const Slot *slot, PyObject *object, PyObject *key, int is_kept)
{
    PyObject *dict = get(slot, object);
    int found = dict == NULL ? -1 : PyDict_Contains(dict, key);
    if (found > 0 && PyDict_DelItem(dict, key) < 0) {
        found = -1;
    }
    if (found >= 0 && is_kept && PyDict_SetItem(dict, key, Py_None) < 0) {
        found = -1;
    }
    Py_XDECREF(dict);
    return found < 0 ? -1 : 0;
}

/* Whether the reader of a session is the consumer on this connection: 1, 0, or -1 after an error. */
static inline int
is_reader(PyObject *session, PyObject *connection)
{
    PyObject *reader = get(&session_reader, session), *principal = PyObject_GetAttr(connection, s_principal);
    PyObject *id = PyObject_GetAttr(connection, s_id);
    int found = reader == NULL || principal == NULL || id == NULL ? -1 : 0;
    if (found == 0 && PyTuple_Check(reader) && PyTuple_Size(reader) == 4
        && PyLong_AsLong(PyTuple_GetItem(reader, 1)) == CONSUMER && PyLong_AsLong(PyTuple_GetItem(reader, 2)) == CONSUMER
        && (found = PyObject_RichCompareBool(PyTuple_GetItem(reader, 0), principal, Py_EQ)) == 1) {
        found = PyObject_RichCompareBool(PyTuple_GetItem(reader, 3), id, Py_EQ);
    }
    Py_XDECREF(reader);
    Py_XDECREF(principal);
    Py_XDECREF(id);
    return PyErr_Occurred() ? -1 : found;
}

/* Whether the request continues the session, which has no fetch that waits: 1, 0, or -1 after an error. */
static inline int
continues(const Wanted *wanted, PyObject *session)
{
    long long epoch;
    PyObject *waiting = get(&session_waiting, session), *by_ids = get(&session_by_ids, session);
    int found = waiting == NULL || by_ids == NULL || number_in(&session_epoch, session, &epoch) < 0 ? -1 : 0;
    if (found == 0) {
        PyObject *expected = wanted->version >= IDS_FROM ? Py_True : Py_False;
        found = waiting == Py_None && by_ids == expected && epoch == wanted->session_epoch;
    }
    Py_XDECREF(waiting);
    Py_XDECREF(by_ids);
    return found;
}

/* Finds the session that a request continues, and its only partition, new references; what the request does not say,
 * `wanted` gets from the session. Returns 1, 0 if Python has to do it, -1 after an error. Changes nothing. */
static inline int
find_session(Wanted *wanted, PyObject *connection, Session *session)
{
    PyObject *id = PyLong_FromLong(wanted->session_id);
    PyObject *found = id == NULL ? NULL : PyDict_GetItemWithError(session->sessions, id);
    Py_XDECREF(id);
    if (found == NULL || Py_TYPE(found) != session_type) {
        return PyErr_Occurred() ? -1 : 0;
    }
    session->session = Py_NewRef(found);
    int is_usual = is_reader(found, connection);
    return is_usual != 1 ? is_usual : continues(wanted, found);
}

/* Notes the request in its session: as FetchSessions.use. */
static inline int
note_request(const Wanted *wanted, const Session *session)
{
    PyObject *object = session->session, *answered_ms = get(&session_answered_ms, object);
    PyObject *id = PyLong_FromLong(wanted->session_id);
    long long now, next_epoch = wanted->session_epoch == INT32_MAX ? 1 : (long long)wanted->session_epoch + 1;
    int failed = answered_ms == NULL || id == NULL || now_ms(session->clock_s, &now) < 0
              || set(&session_asked_after_ms, object, answered_ms) < 0 || set_number(&session_epoch, object, next_epoch) < 0
              || set_number(&session_used_ms, object, now) < 0
              /* The least recently used ones are first. */
              || PyDict_DelItem(session->sessions, id) < 0 || PyDict_SetItem(session->sessions, id, object) < 0;
    Py_XDECREF(answered_ms);
    Py_XDECREF(id);
    return failed ? -1 : 0;
}

/* Notes the position that a request names in the partition of its session: as FetchSessions.name. */
static inline int
note_position(const Session *session, long long leader_epoch, long long offset, long long log_start_offset,
              long long partition_max_bytes)
{
    PyObject *position = get(&member_wanted, session->member), *stirred = get(&session_stirred, session->session);
    int failed = position == NULL || stirred == NULL || set_number(&wanted_fetch_offset, position, offset) < 0
              || set_number(&wanted_current_leader_epoch, position, leader_epoch) < 0
              || set_number(&wanted_partition_max_bytes, position, partition_max_bytes) < 0
              || set_number(&wanted_last_fetched_epoch, position, NO_EPOCH) < 0
              || set_number(&wanted_log_start_offset, position, log_start_offset) < 0
              || PyDict_SetItem(stirred, session->member, Py_None) < 0;
    Py_XDECREF(position);
    Py_XDECREF(stirred);
    return failed ? -1 : 0;
}

/* Whether the session has not been closed. */
static inline int
is_open_session(PyObject *sessions, PyObject *session, int session_id)
{
    PyObject *id = PyLong_FromLong(session_id);
    PyObject *found = id == NULL ? NULL : PyDict_GetItemWithError(sessions, id);
    Py_XDECREF(id);
    return PyErr_Occurred() ? -1 : found == session;
}

/* Whether the answer has the partition, which was read: as SessionFetch._is_news. */
static inline int
is_news(const Session *session, const Found *found)
{
    long long high_watermark, log_start_offset;
    if (number_in(&member_high_watermark, session->member, &high_watermark) < 0
        || number_in(&member_log_start_offset, session->member, &log_start_offset) < 0) {
        return -1;
    }
    return found->records != NULL || high_watermark != found->high_watermark
        || log_start_offset != found->log_start_offset;
}

/* Notes what was sent: as SessionFetch._is_news. */
static inline int
note_sent(const Session *session, const Found *found, long long offset)
{
    if (set_number(&member_high_watermark, session->member, found->high_watermark) < 0
        || set_number(&member_log_start_offset, session->member, found->log_start_offset) < 0) {
        return -1;
    }
    if (found->records == NULL && found->end_offset > offset) {
        return 0;
    }
    return move(&session_stirred, session->session, session->member, found->records != NULL);
}

/* The session's fetch waits no more. */
static inline int
note_end(const Session *session)
{
    long long now;
    PyObject *needed = get(&session_needed, session->session), *nothing = NULL;
    int failed = needed == NULL || now_ms(session->clock_s, &now) < 0
              || set(&session_waiting, session->session, Py_None) < 0
              || set_number(&session_answered_ms, session->session, now) < 0;
    if (!failed && PyDict_Size(needed) != 0) {
        nothing = PyDict_New();
        failed = nothing == NULL || perform(session->session, s_need, nothing) < 0;
    }
    Py_XDECREF(needed);
    Py_XDECREF(nothing);
    return failed ? -1 : 0;
}

/* The call ---------------------------------------------------------------------------------------------------- */

/* Begins the request that `begin` is called with, behind the broker: connection, frame, version, position, correlation id.
 * 1, 0, or -1 after an error. Unless it is an error, `frame` has to be released. */
static inline int
open_request(PyObject *const *args, Py_ssize_t count, Py_buffer *frame, Wanted *wanted, int *correlation_id)
{
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "begin takes 6 arguments");
        return -1;
    }
    long version = PyLong_AsLong(args[3]);
    Py_ssize_t position = PyLong_AsSsize_t(args[4]);
    *correlation_id = (int)PyLong_AsLong(args[5]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[2], frame, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    *wanted = (Wanted){.version = (int)version};
    if (version < FIRST_VERSION || version > LAST_VERSION || position < 0 || position > frame->len) {
        return 0;
    }
    const uint8_t *body = frame->buf;
    wanted->cursor = (Cursor){body + position, body + frame->len, version >= FLEXIBLE_FROM};
    return 1;
}

/* Whether the client of a connection may read a topic: 1, 0, or -1 after an error. `judge` is None where clients have no
 * rights. */
static inline int
may_read(PyObject *judge, PyObject *connection, PyObject *topic)
{
    if (judge == Py_None) {
        return 1;
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(judge, connection, topic, NULL);
    int may = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return may;
}

/* The module -------------------------------------------------------------------------------------------------- */

static inline int
find_sessions(void)
{
    static const char module[] = "holdfast_log.broker.replication.fetch_sessions";
    session_type = (PyTypeObject *)attribute_of(module, "FetchSession");
    member_type = (PyTypeObject *)attribute_of(module, "SessionPartition");
    wanted_type = (PyTypeObject *)attribute_of("holdfast_log.protocol.messages.fetch", "FetchPartition");
    if (session_type == NULL || member_type == NULL || wanted_type == NULL) {
        return -1;
    }
#define FIND_SLOT(name) || find_slot(session_type, #name, &session_##name) < 0
    if (0 SESSION_SLOTS(FIND_SLOT)) {
        return -1;
    }
#undef FIND_SLOT
#define FIND_SLOT(name) || find_slot(member_type, #name, &member_##name) < 0
    if (0 MEMBER_SLOTS(FIND_SLOT)) {
        return -1;
    }
#undef FIND_SLOT
#define FIND_SLOT(name) || find_slot(wanted_type, #name, &wanted_##name) < 0
    return 0 WANTED_SLOTS(FIND_SLOT) ? -1 : 0;
#undef FIND_SLOT
}

static inline int
find_classes(void)
{
    PyObject *traffic = attribute_of("holdfast_log.broker.replication.traffic", "TopicTraffic");
    leadership = (PyTypeObject *)attribute_of("holdfast_log.broker.replication.leadership", "Leadership");
    file_slice = (PyTypeObject *)attribute_of("holdfast_log.protocol.frames", "FileSlice");
    copy_small = attribute_of("holdfast_log.protocol.frames", "copy_small");
    uuid_of = attribute_of("holdfast_log.protocol.generated_decoders", "uuid_of");
    small_bytes = PyLong_FromLong(SMALL_BYTES);
    no_id = attribute_of("holdfast_log.protocol.fields", "ZERO_UUID");
    if (traffic == NULL || leadership == NULL || file_slice == NULL || copy_small == NULL || uuid_of == NULL
        || no_id == NULL || small_bytes == NULL) {
        Py_XDECREF(traffic);
        return -1;
    }
    int done = find_slot((PyTypeObject *)traffic, "reads", &traffic_reads) < 0
            || find_slot((PyTypeObject *)traffic, "bytes_out", &traffic_bytes_out) < 0
            || find_slot(file_slice, "length", &slice_length) < 0 || find_slot(file_slice, "data", &slice_data) < 0;
    Py_DECREF(traffic);
    return done ? -1 : 0;
}

/* Finds the names, classes and functions: 0, or -1 after an error. */
static inline int
prepare_fetching(void)
{
#define INTERN(name)                                                                                                     \
    if (s_##name == NULL && (s_##name = PyUnicode_InternFromString(#name)) == NULL) {                                    \
        return -1;                                                                                                       \
    }
    FETCH_NAMES(INTERN)
#undef INTERN
    return find_classes() < 0 || find_sessions() < 0 ? -1 : 0;
}

#endif
