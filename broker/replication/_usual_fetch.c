/* The usual fetch, compiled: decoded, read, and answered or kept until there are records for it. What the decoder, the
 * handler, Fetches.begin_one, OneFetch and the encoder do for it in Python is done here in the same order; tests compare
 * the two. Where this file was not compiled, Python is used.
 *
 * For everything unusual, and for everything that is wrong, `begin` does nothing and returns None, and a fetch that waits
 * has Python look (usual_fetch.UsualFetches): so an owner's reads, leader epochs, damage, cold reads and errors are
 * handled in one place only. Records are always found by Partition.read, once for all fetches that an append wakes.
 *
 * A peer wrote the frame. A cursor never moves beyond its end, and no size is trusted before it is compared with the
 * bytes that remain.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#include "_fetching.h"

#define NO_COUNT (-1)
#define MAX_WAIT_MS (24 * 60 * 60 * 1000)
/* So many requests that wait no more are not worth a search for them: see broker/replication/deadlines.py. */
#define ENDED_MIN 64
/* Slices of up to so many bytes are read into memory where several readers share them. */
#define SHARED_BYTES (32 << 10)

#define NAMES(X)                                                                                                         \
    X(_shared_reads) X(add) X(add_close_callback) X(began_s) X(cancel_now) X(clock_s) X(close_reason) X(end) X(ended)    \
    X(expire_now) X(key) X(last_request_s) X(log_end_offset) X(look) X(queued_s) X(remove) X(send) X(written_bytes)

#define DECLARE(name) static PyObject *s_##name;
NAMES(DECLARE)
#undef DECLARE

/* The classes and functions that are used. The module is initialised once in a process. */
static PyTypeObject *kept_type, *waiting_type, *row_type, *deadlines_type;
static PyObject *encode_records, *shared_bytes, *no_epoch, *heap_push;
static Slot waiting_deadlines, waiting_capacity, waiting_parked, waiting_by_owner, waiting_count;
static Slot row_any_time, row_needed;
static Slot deadlines_ended, deadlines_heap, deadlines_number, deadlines_ring_s, deadlines_seconds, deadlines_timer;

/* A fetch that waits. It is what OneFetch and RemoteCall are together. */
typedef struct {
    PyObject_HEAD
    PyObject *usual, *waiting, *closed;
    PyObject *partition, *topic, *topic_id, *keys, *wish, *answers_key;
    PyObject *connection, *owner, *dispatcher, *reply, *encode, *times, *missed;
    PyObject *sessions, *clock_s, *session, *member; /* the last two: NULL without a session */
    long long offset, max_bytes, min_bytes, max_wait_ms, leader_epoch, isolation, counted;
    int index, version, correlation_id, session_id;
    double queued_s, began_s, parked_s;
    char is_over, is_asked, is_ending;
} Kept;

/* The request ------------------------------------------------------------------------------------------------- */

/* Reads the topics: one of one partition, or none in a session. */
static int
read_topics(Wanted *wanted)
{
    int64_t topics;
    if (read_length(&wanted->cursor, 4, &topics) < 0 || topics < (wanted->session_id == NO_SESSION) || topics > 1) {
        return -1;
    }
    wanted->is_named = topics == 1;
    return wanted->is_named
                   && (read_topic(wanted) < 0 || expect_length(&wanted->cursor, 4, 1) < 0 || read_partition(wanted) < 0
                       || end_struct(&wanted->cursor) < 0)
               ? -1
               : 0;
}

/* Reads a consumer's fetch of one partition, or in a session that goes on; -1 if it is another one, or malformed. */
static int
read_request(Wanted *wanted)
{
    return read_head(wanted) < 0 || read_topics(wanted) < 0 || read_tail(wanted) < 0 ? -1 : 0;
}

/* Reading ----------------------------------------------------------------------------------------------------- */

/* As Partition.shared: what another fetch has read, a new reference; NULL with an exception or without. */
static PyObject *
shared_read(PyObject *partition, PyObject *wish, long long high_watermark, long long log_start_offset)
{
    PyObject *shared = PyObject_GetAttr(partition, s__shared_reads);
    if (shared == NULL || !PyDict_Check(shared)) {
        Py_XDECREF(shared);
        return NULL;
    }
    PyObject *read = Py_XNewRef(PyDict_GetItemWithError(shared, wish));
    Py_DECREF(shared);
    if (read != NULL
        && (!PyTuple_Check(read) || PyLong_AsLongLong(PyTuple_GetItem(read, HIGH_WATERMARK)) != high_watermark
            || PyLong_AsLongLong(PyTuple_GetItem(read, LOG_START)) != log_start_offset)) {
        Py_CLEAR(read);
    }
    return read;
}

/* Reads the partition below its high watermark: 1, 0 if Python has to do it, -1 after an error. */
static int
read_partition_below(PyObject *partition, long long leader_epoch, long long isolation, PyObject *wish, long long offset,
                     Found *found)
{
    int is_usual = find_ends(partition, leader_epoch, isolation, found);
    if (is_usual != 1 || is_at_end(found, offset)) {
        return is_usual;
    }
    PyObject *read = shared_read(partition, wish, found->high_watermark, found->log_start_offset);
    if (read == NULL && PyErr_Occurred()) {
        return -1;
    }
    found->is_shared = read != NULL;
    if (read == NULL) {
        read = PyObject_CallMethodObjArgs(
            partition, s_read, PyTuple_GetItem(wish, 0), PyTuple_GetItem(wish, 1), NULL);
    }
    return take_read(read, found);
}

/* The answer -------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *partition, *topic, *topic_id, *answers_key;
    int index, version, correlation_id, session_id;
} Asked;

/* Reads a few records into memory. */
static int
copy_records(const Found *found)
{
    Py_ssize_t bytes_max = found->is_shared ? SHARED_BYTES : SMALL_BYTES;
    if (found->records == NULL || found->size > bytes_max) {
        return 0;
    }
    PyObject *data = get(&slice_data, found->records);
    Py_XDECREF(data);
    if (data != Py_None) {
        return data == NULL ? -1 : 0;
    }
    PyObject *limit = found->is_shared ? shared_bytes : small_bytes;
    PyObject *done = PyObject_CallFunctionObjArgs(copy_small, found->records, limit, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static void
put_number(uint8_t *at, uint32_t number)
{
    for (int index = 3; index >= 0; index--, number >>= 8) {
        at[index] = (uint8_t)number;
    }
}

/* Puts the ids of the request and of the session into the first part of an answer, to which nobody else refers. */
static void
put_ids(PyObject *first, const Asked *asked)
{
    uint8_t *head = (uint8_t *)PyBytes_AsString(first);
    put_number(head + 4, (uint32_t)asked->correlation_id);
    if (asked->version >= SESSIONS_FROM) {
        /* Behind the header are the throttle time and the error. */
        put_number(head + 8 + (asked->version >= FLEXIBLE_FROM) + 6, (uint32_t)asked->session_id);
    }
}

static PyObject *
encode(const Asked *asked, const Found *found)
{
    PyObject *version = PyLong_FromLong(asked->version), *correlation_id = PyLong_FromLong(asked->correlation_id);
    PyObject *index = PyLong_FromLong(asked->index), *high_watermark = PyLong_FromLongLong(found->high_watermark);
    PyObject *log_start_offset = PyLong_FromLongLong(found->log_start_offset), *parts = NULL;
    if (version != NULL && correlation_id != NULL && index != NULL && high_watermark != NULL
        && log_start_offset != NULL) {
        parts = PyObject_CallFunctionObjArgs(
            encode_records, version, correlation_id, asked->topic, asked->topic_id, index, high_watermark,
            log_start_offset, found->records == NULL ? Py_None : found->records, NULL);
    }
    Py_XDECREF(version);
    Py_XDECREF(correlation_id);
    Py_XDECREF(index);
    Py_XDECREF(high_watermark);
    Py_XDECREF(log_start_offset);
    if (parts != NULL && PyList_Check(parts)) {
        put_ids(PyList_GetItem(parts, 0), asked);
    }
    return parts;
}

/* The parts of an answer that differs from another one in its ids only. */
static PyObject *
answer_again(PyObject *parts, const Asked *asked)
{
    Py_ssize_t count = PyList_Size(parts);
    PyObject *first = PyList_GetItem(parts, 0), *again = PyList_New(count);
    if (again == NULL) {
        return NULL;
    }
    PyObject *head = PyBytes_FromStringAndSize(PyBytes_AsString(first), PyBytes_Size(first));
    if (head == NULL) {
        Py_DECREF(again);
        return NULL;
    }
    put_ids(head, asked);
    PyList_SetItem(again, 0, head);
    for (Py_ssize_t index = 1; index < count; index++) {
        PyList_SetItem(again, index, Py_NewRef(PyList_GetItem(parts, index)));
    }
    return again;
}

/* The parts of the answer to a fetch that shares what it has read: encoded once. */
static PyObject *
encode_shared(const Asked *asked, const Found *found)
{
    PyObject *shared = PyObject_GetAttr(asked->partition, s__shared_reads);
    if (shared == NULL) {
        return NULL;
    }
    PyObject *parts = NULL, *known = PyDict_Check(shared) ? PyDict_GetItemWithError(shared, asked->answers_key) : NULL;
    if (known != NULL && PyTuple_GetItem(known, 0) == found->read) {
        parts = answer_again(PyTuple_GetItem(known, 1), asked);
    }
    else if (!PyErr_Occurred()) {
        parts = encode(asked, found);
        PyObject *entry = parts == NULL || !PyList_Check(parts) ? NULL : PyTuple_Pack(2, found->read, parts);
        if (entry != NULL && PyDict_Check(shared) && PyDict_SetItem(shared, asked->answers_key, entry) < 0) {
            Py_CLEAR(parts);
        }
        Py_XDECREF(entry);
    }
    Py_DECREF(shared);
    return parts;
}

/* The parts of the answer, which is counted: a list, None if Python has to answer, or NULL after an error. */
static PyObject *
answer_of(const Asked *asked, const Found *found)
{
    if (copy_records(found) < 0) {
        return NULL;
    }
    PyObject *parts = found->is_shared ? encode_shared(asked, found) : encode(asked, found);
    if (parts != NULL && parts != Py_None && count_read(asked->partition, found->size) < 0) {
        Py_CLEAR(parts);
    }
    return parts;
}

/* Sessions ---------------------------------------------------------------------------------------------------- */

/* The only partition of a session, and how its reader names it: new references. 1, 0, or -1 after an error. */
static int
only_member(PyObject *session, PyObject **named, PyObject **member)
{
    PyObject *partitions = get(&session_partitions, session);
    Py_ssize_t position = 0;
    int found = partitions == NULL ? -1 : PyDict_Check(partitions) && PyDict_Size(partitions) == 1
                                              && PyDict_Next(partitions, &position, named, member);
    if (found == 1) {
        Py_INCREF(*named);
        Py_INCREF(*member);
    }
    Py_XDECREF(partitions);
    return found;
}

/* What a request without a partition wants of the one that its session has. */
static int
take_position(Wanted *wanted, PyObject *position)
{
    long long offset, leader_epoch, partition_max_bytes;
    if (number_in(&wanted_fetch_offset, position, &offset) < 0
        || number_in(&wanted_current_leader_epoch, position, &leader_epoch) < 0
        || number_in(&wanted_partition_max_bytes, position, &partition_max_bytes) < 0) {
        return -1;
    }
    wanted->offset = offset;
    wanted->leader_epoch = (int32_t)leader_epoch;
    wanted->partition_max_bytes = (int32_t)partition_max_bytes;
    return 0;
}

/* Whether the partition of a session is read as usual: without a fence, and found before. */
static int
is_usual_member(Wanted *wanted, PyObject *member, PyObject *topic)
{
    long long token, last_epoch;
    PyObject *position = get(&member_wanted, member), *key = get(&member_key, member);
    PyObject *watchers = get(&member_watchers, member);
    int found = position == NULL || key == NULL || watchers == NULL ? -1 : 0;
    if (found == 0 && Py_TYPE(position) == wanted_type && PyTuple_Check(key) && watchers != Py_None) {
        found = number_in(&wanted_owner_token, position, &token) < 0
                        || number_in(&wanted_last_fetched_epoch, position, &last_epoch) < 0
                    ? -1
                    : token == NO_TOKEN && (wanted->is_named || last_epoch == NO_EPOCH);
        if (found == 1) {
            found = PyObject_RichCompareBool(PyTuple_GetItem(key, 0), topic, Py_EQ);
        }
        if (found == 1 && !wanted->is_named && take_position(wanted, position) < 0) {
            found = -1;
        }
    }
    Py_XDECREF(position);
    Py_XDECREF(key);
    Py_XDECREF(watchers);
    return found;
}

/* Finds the partition of the session, and its topic: as find_topic. */
static int
find_member(Wanted *wanted, PyObject *name_of, Session *session, PyObject **topic, PyObject **topic_id)
{
    PyObject *named = NULL, *asked_topic;
    int found = only_member(session->session, &named, &session->member);
    if (found != 1) {
        return found;
    }
    int is_pair = PyTuple_Check(named) && PyTuple_Size(named) == 2 && Py_TYPE(session->member) == member_type;
    long index = is_pair ? PyLong_AsLong(PyTuple_GetItem(named, 1)) : -1;
    found = is_pair && !PyErr_Occurred();
    if (found && wanted->is_named) {
        found = index == wanted->index ? find_topic(wanted, name_of, topic, topic_id) : 0;
        if (found == 1) {
            asked_topic = wanted->version >= IDS_FROM ? *topic_id : *topic;
            found = PyObject_RichCompareBool(PyTuple_GetItem(named, 0), asked_topic, Py_EQ);
        }
    }
    else if (found) {
        wanted->index = (int32_t)index;
        asked_topic = PyTuple_GetItem(named, 0);
        if (wanted->version < IDS_FROM) {
            *topic = Py_NewRef(asked_topic);
            *topic_id = Py_NewRef(no_id);
        }
        else {
            *topic_id = Py_NewRef(asked_topic);
            *topic = PyObject_CallFunctionObjArgs(name_of, asked_topic, NULL);
            found = *topic == NULL ? -1 : *topic != Py_None;
        }
    }
    Py_DECREF(named);
    return found == 1 ? is_usual_member(wanted, session->member, *topic) : PyErr_Occurred() ? -1 : found;
}

/* Notes the request in its session: as FetchSessions.use and FetchSessions.name do. */
static int
use_session(const Wanted *wanted, const Session *session)
{
    if (note_request(wanted, session) < 0) {
        return -1;
    }
    return !wanted->is_named ? 0
                             : note_position(session, wanted->leader_epoch, wanted->offset, wanted->log_start_offset,
                                             wanted->partition_max_bytes);
}

/* The answer of a session without a partition. */
static PyObject *
no_news(const Asked *asked)
{
    uint8_t frame[24] = {0};
    int is_flexible = asked->version >= FLEXIBLE_FROM;
    /* The size, the correlation id, the throttle time, the error, the session's id, and no topics. */
    Py_ssize_t size = is_flexible ? 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 : 4 + 4 + 4 + 2 + 4 + 4;
    put_number(frame, (uint32_t)size - 4);
    if (is_flexible) {
        frame[size - 2] = 1;
    }
    PyObject *head = PyBytes_FromStringAndSize((const char *)frame, size), *parts = head == NULL ? NULL : PyList_New(1);
    if (parts == NULL) {
        Py_XDECREF(head);
        return NULL;
    }
    put_ids(head, asked);
    PyList_SetItem(parts, 0, head);
    return parts;
}

/* The parts of the answer of a session, noted in it. `found` is NULL if the partition was not read. */
static PyObject *
session_answer(const Asked *asked, const Session *session, const Found *found, long long offset)
{
    int has_news = found == NULL ? 0 : is_news(session, found);
    PyObject *parts = has_news < 0 ? NULL : has_news ? answer_of(asked, found) : no_news(asked);
    if (parts != NULL && parts != Py_None
        && ((found != NULL && note_sent(session, found, offset) < 0) || note_end(session) < 0)) {
        Py_CLEAR(parts);
    }
    return parts;
}

/* Notes how many bytes must have been appended before the session's fetch is worth a look. */
static int
note_needed(PyObject *session, PyObject *member, long long counted)
{
    PyObject *needed = PyDict_New(), *number = counted == NO_COUNT ? NULL : PyLong_FromLongLong(counted);
    int failed = needed == NULL || PyErr_Occurred() || (number != NULL && PyDict_SetItem(needed, member, number) < 0)
              || perform(session, s_need, needed) < 0;
    Py_XDECREF(needed);
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* A fetch that waits ------------------------------------------------------------------------------------------ */

static int
kept_traverse(Kept *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->usual);
    Py_VISIT(self->waiting);
    Py_VISIT(self->closed);
    Py_VISIT(self->partition);
    Py_VISIT(self->topic);
    Py_VISIT(self->topic_id);
    Py_VISIT(self->keys);
    Py_VISIT(self->wish);
    Py_VISIT(self->answers_key);
    Py_VISIT(self->connection);
    Py_VISIT(self->owner);
    Py_VISIT(self->dispatcher);
    Py_VISIT(self->reply);
    Py_VISIT(self->encode);
    Py_VISIT(self->times);
    Py_VISIT(self->missed);
    Py_VISIT(self->sessions);
    Py_VISIT(self->clock_s);
    Py_VISIT(self->session);
    Py_VISIT(self->member);
    return 0;
}

static int
kept_clear(Kept *self)
{
    Py_CLEAR(self->usual);
    Py_CLEAR(self->waiting);
    Py_CLEAR(self->closed);
    Py_CLEAR(self->partition);
    Py_CLEAR(self->topic);
    Py_CLEAR(self->topic_id);
    Py_CLEAR(self->keys);
    Py_CLEAR(self->wish);
    Py_CLEAR(self->answers_key);
    Py_CLEAR(self->connection);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->dispatcher);
    Py_CLEAR(self->reply);
    Py_CLEAR(self->encode);
    Py_CLEAR(self->times);
    Py_CLEAR(self->missed);
    Py_CLEAR(self->sessions);
    Py_CLEAR(self->clock_s);
    Py_CLEAR(self->session);
    Py_CLEAR(self->member);
    return 0;
}

static void
kept_dealloc(Kept *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    kept_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* How many bytes the broker must have appended before the fetch is worth a look; it is looked at at any change if that
 * is unknown. */
static int
note_count(Kept *self, const Found *found)
{
    self->counted = NO_COUNT;
    if (self->min_bytes <= 1) {
        return 0;
    }
    PyObject *log = PyObject_GetAttr(self->partition, s_log);
    long long log_end_offset, written_bytes;
    if (log == NULL || get_number(log, s_log_end_offset, &log_end_offset) < 0
        || get_number(log, s_written_bytes, &written_bytes) < 0) {
        Py_XDECREF(log);
        return -1;
    }
    Py_DECREF(log);
    if (log_end_offset == found->end_offset) {
        self->counted = written_bytes + self->min_bytes - found->size;
    }
    return 0;
}

/* Counts the request, and perhaps remembers how long it took: as RemoteCall does. */
static int
count_answer(Kept *self)
{
    static PyTypeObject *counted_type;
    static Slot untimed;
    if (counted_type != Py_TYPE(self->times)) {
        if (counted_type != NULL) {
            PyErr_SetString(PyExc_TypeError, "requests are timed by objects of one class");
            return -1;
        }
        if (find_slot(Py_TYPE(self->times), "untimed", &untimed) < 0) {
            return -1;
        }
        counted_type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(self->times));
    }
    PyObject *value = get(&untimed, self->times);
    long long number = value == NULL ? -1 : PyLong_AsLongLong(value);
    Py_XDECREF(value);
    if (number > 0) {
        return add_to(&untimed, self->times, -1);
    }
    PyObject *clock_s = number < 0 ? NULL : PyObject_GetAttr(self->dispatcher, s_clock_s);
    PyObject *ended_s = clock_s == NULL ? NULL : PyObject_CallNoArgs(clock_s), *arguments = NULL;
    Py_XDECREF(clock_s);
    PyObject *method = ended_s == NULL ? NULL : PyObject_GetAttr(self->times, s_add);
    if (method != NULL) {
        arguments = Py_BuildValue("(dddOi)", self->queued_s, self->began_s, self->parked_s, ended_s, 0);
    }
    PyObject *done = arguments == NULL ? NULL : PyObject_CallObject(method, arguments);
    Py_XDECREF(ended_s);
    Py_XDECREF(method);
    Py_XDECREF(arguments);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Answers: 1, 0 if Python has to do it, -1 after an error. */
static int
answer(Kept *self, const Found *found)
{
    int is_open = is_none(self->connection, s_close_reason);
    if (is_open != 1) {
        return is_open < 0 ? -1 : 1;
    }
    Asked asked = {
        self->partition, self->topic, self->topic_id, self->answers_key, self->index, self->version,
        self->correlation_id, self->session_id,
    };
    PyObject *reply = Py_NewRef(self->reply); /* The answer may end this fetch, which then refers to nothing. */
    PyObject *parts;
    if (self->session == NULL) {
        parts = answer_of(&asked, found);
    }
    else {
        Session session = {self->sessions, self->clock_s, self->session, self->member};
        parts = session_answer(&asked, &session, found, self->offset);
    }
    int status = parts == NULL ? -1 : parts != Py_None;
    if (status == 1 && (count_answer(self) < 0 || perform(reply, s_send, parts) < 0)) {
        status = -1;
    }
    Py_DECREF(reply);
    Py_XDECREF(parts);
    return status;
}

/* Has Python do what is unusual: whether it has answered, or -1 after an error. */
static int
ask_python(Kept *self, PyObject *method)
{
    PyObject *usual = Py_NewRef(self->usual);
    self->counted = NO_COUNT; /* Python counts again. */
    PyObject *answered = PyObject_CallMethodObjArgs(usual, method, (PyObject *)self, NULL);
    Py_DECREF(usual);
    int is_answered = answered == NULL ? -1 : PyObject_IsTrue(answered);
    Py_XDECREF(answered);
    return is_answered;
}

/* Whether the partition is to be read: 1, 0 for one without news in a session that ends its wait, -1 after an error or
 * if the session has been closed. */
static int
is_to_be_read(const Kept *self, int ends)
{
    if (self->session == NULL) {
        return 1;
    }
    int is_open = is_open_session(self->sessions, self->session, self->session_id);
    return is_open != 1 ? -1 : !ends ? 1 : has(&session_stirred, self->session, self->member);
}

/* Answers if the fetch is complete, or if it ends: whether it did, or -1 after an error. */
static int
look(Kept *self, int ends)
{
    Found found = {0};
    PyObject *partition = Py_NewRef(self->partition), *wish = Py_NewRef(self->wish);
    int is_read = is_to_be_read(self, ends), status = is_read < 0 ? (PyErr_Occurred() ? -1 : 0) : 1;
    if (is_read == 1) {
        status = read_partition_below(partition, self->leader_epoch, self->isolation, wish, self->offset, &found);
    }
    status = leave_to_python(status);
    Py_DECREF(partition);
    Py_DECREF(wish);
    if (self->is_over && !ends) {
        Py_XDECREF(found.read);
        return status < 0 ? -1 : 0;
    }
    if (status == 1 && !ends && found.size < self->min_bytes) {
        status = note_count(self, &found);
        if (status == 0 && self->session != NULL && self->min_bytes > 1) {
            status = note_needed(self->session, self->member, self->counted);
        }
        Py_XDECREF(found.read);
        return status;
    }
    if (status == 1) {
        status = answer(self, is_read ? &found : NULL);
    }
    Py_XDECREF(found.read);
    return status != 0 ? status : ask_python(self, ends ? s_end : s_look);
}

/* Waiting: what Waiting.add, Waiting.remove and Deadlines do, where nothing but this fetch changes. ------------- */

/* Adds the fetch to the deadlines. Its time is not the earliest one: 1, 0 if nothing was done, or -1 after an error. */
static int
add_deadline(Kept *self, PyObject *deadlines)
{
    PyObject *timer = get(&deadlines_timer, deadlines), *ring_s = get(&deadlines_ring_s, deadlines);
    PyObject *seconds = get(&deadlines_seconds, deadlines), *heap = get(&deadlines_heap, deadlines);
    PyObject *now_s = seconds == NULL ? NULL : PyObject_CallNoArgs(seconds), *due_s = NULL, *entry = NULL, *done = NULL;
    long long number, wait_ms = self->max_wait_ms < MAX_WAIT_MS ? self->max_wait_ms : MAX_WAIT_MS;
    int status = timer == NULL || ring_s == NULL || heap == NULL || now_s == NULL
                         || number_in(&deadlines_number, deadlines, &number) < 0
                     ? -1
                     : 0;
    if (status == 0 && timer != Py_None) {
        double due = PyFloat_AsDouble(now_s) + (double)wait_ms / 1000;
        status = PyErr_Occurred() ? -1 : due >= PyFloat_AsDouble(ring_s);
        if (status == 1) {
            due_s = PyFloat_FromDouble(due);
            PyObject *order = PyLong_FromLongLong(number + 1);
            entry = due_s == NULL || order == NULL ? NULL : PyTuple_Pack(3, due_s, order, (PyObject *)self);
            Py_XDECREF(order);
            done = entry == NULL ? NULL : PyObject_CallFunctionObjArgs(heap_push, heap, entry, NULL);
            if (done == NULL || set_number(&deadlines_number, deadlines, number + 1) < 0) {
                status = -1;
            }
        }
    }
    Py_XDECREF(timer);
    Py_XDECREF(ring_s);
    Py_XDECREF(seconds);
    Py_XDECREF(heap);
    Py_XDECREF(now_s);
    Py_XDECREF(due_s);
    Py_XDECREF(entry);
    Py_XDECREF(done);
    return status;
}

/* The fetches that wait for the partition and may be complete at any time, a new reference: NULL, with an exception or
 * without, if none waits. `others` is set to 1 if others wait that need some bytes. */
static PyObject *
row_of(PyObject *waiting, PyObject *key, int *others)
{
    PyObject *parked = get(&waiting_parked, waiting);
    PyObject *row = parked == NULL ? NULL : PyDict_GetItemWithError(parked, key);
    PyObject *any_time = NULL;
    if (row != NULL && Py_TYPE(row) == row_type) {
        PyObject *needed = get(&row_needed, row);
        *others = needed != NULL && PyDict_Size(needed) > 0;
        Py_XDECREF(needed);
        any_time = get(&row_any_time, row);
    }
    Py_XDECREF(parked);
    return any_time;
}

/* As Waiting.add: 1, 0 if Python has to do it, -1 after an error. */
static int
add_waiting(Kept *self, PyObject *waiting)
{
    long long count, capacity;
    int others, status;
    if (PyTuple_Size(self->keys) != 1 || self->min_bytes > 1) {
        return 0;
    }
    if (number_in(&waiting_count, waiting, &count) < 0 || number_in(&waiting_capacity, waiting, &capacity) < 0) {
        return -1;
    }
    PyObject *any_time = count < capacity ? row_of(waiting, PyTuple_GetItem(self->keys, 0), &others) : NULL;
    if (any_time == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *deadlines = get(&waiting_deadlines, waiting), *by_owner = get(&waiting_by_owner, waiting), *owned = NULL;
    status = deadlines == NULL || by_owner == NULL ? -1 : PyDict_Contains(by_owner, self->owner);
    status = status < 0 ? -1 : !status; /* Several fetches of a connection are counted in Python. */
    if (status == 1) {
        status = Py_TYPE(deadlines) == deadlines_type ? add_deadline(self, deadlines) : 0;
    }
    if (status == 1) {
        self->is_over = 0;
        owned = PyDict_New();
        if (owned == NULL || PyDict_SetItem(owned, (PyObject *)self, Py_None) < 0
            || PyDict_SetItem(by_owner, self->owner, owned) < 0
            || PyDict_SetItem(any_time, (PyObject *)self, Py_None) < 0
            || set_number(&waiting_count, waiting, count + 1) < 0) {
            status = -1;
        }
    }
    Py_XDECREF(deadlines);
    Py_XDECREF(by_owner);
    Py_XDECREF(owned);
    Py_DECREF(any_time);
    return status;
}

/* As Waiting.remove, where others wait too: 1, 0 if Python has to do it, -1 after an error. */
static int
remove_waiting(Kept *self, PyObject *waiting)
{
    long long count;
    int others = 0, status = PyTuple_Size(self->keys) == 1 && self->min_bytes <= 1;
    if (!status || number_in(&waiting_count, waiting, &count) < 0) {
        return status ? -1 : 0;
    }
    PyObject *any_time = row_of(waiting, PyTuple_GetItem(self->keys, 0), &others);
    PyObject *by_owner = any_time == NULL ? NULL : get(&waiting_by_owner, waiting);
    if (by_owner == NULL) {
        Py_XDECREF(any_time);
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *owned = PyDict_GetItemWithError(by_owner, self->owner);
    status = owned == NULL ? 0 : PyDict_Contains(any_time, (PyObject *)self);
    if (status == 1 && (others || PyDict_Size(any_time) > 1)) {
        self->is_over = 1;
        if (PyDict_DelItem(any_time, (PyObject *)self) < 0 || PyDict_DelItem(owned, (PyObject *)self) < 0
            || (PyDict_Size(owned) == 0 && PyDict_DelItem(by_owner, self->owner) < 0)
            || set_number(&waiting_count, waiting, count - 1) < 0) {
            status = -1;
        }
    }
    else if (status == 1) {
        status = 0; /* The last one: its row goes too. */
    }
    Py_DECREF(any_time);
    Py_DECREF(by_owner);
    return PyErr_Occurred() ? -1 : status;
}

/* As Deadlines.ended. */
static int
note_ended(PyObject *waiting)
{
    long long ended;
    PyObject *deadlines = get(&waiting_deadlines, waiting);
    int status = deadlines == NULL || number_in(&deadlines_ended, deadlines, &ended) < 0 ? -1 : 0;
    if (status == 0) {
        status = ended + 1 < ENDED_MIN ? set_number(&deadlines_ended, deadlines, ended + 1)
                                       : perform(deadlines, s_ended, NULL);
    }
    Py_XDECREF(deadlines);
    return status;
}

static void
forget(Kept *self)
{
    PyObject *connection = self->connection; /* The last reference may end more than this fetch. */
    self->connection = NULL;
    kept_clear(self);
    Py_XDECREF(connection);
}

/* Ends the wait of a fetch that was answered. */
static int
leave(Kept *self)
{
    PyObject *waiting = Py_NewRef(self->waiting);
    int status = remove_waiting(self, waiting);
    if (status == 1) {
        forget(self);
    }
    else if (status == 0) {
        status = perform(waiting, s_remove, (PyObject *)self);
    }
    if (status >= 0) {
        status = note_ended(waiting);
    }
    Py_DECREF(waiting);
    return status;
}

PyDoc_STRVAR(ask_doc, "ask(key): see waiting.Parked.ask.");

static PyObject *
kept_ask(Kept *self, PyObject *key)
{
    if (self->is_asked) {
        if (self->missed == NULL && (self->missed = PyList_New(0)) == NULL) {
            return NULL;
        }
        return PyList_Append(self->missed, key) < 0 ? NULL : Py_NewRef(Py_None);
    }
    self->is_asked = 1;
    int answered = self->is_over ? 0 : look(self, 0);
    while (self->missed != NULL) {
        Py_CLEAR(self->missed); /* It has one key: one more look is enough for all of them. */
        if (answered == 0 && !self->is_over) {
            answered = look(self, 0);
        }
    }
    self->is_asked = 0;
    if (answered < 0 || (answered && !self->is_over && leave(self) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(reads_from_doc, "reads_from(key): see waiting.Parked.reads_from.");

static PyObject *
kept_reads_from(Kept *self, PyObject *key)
{
    return PyLong_FromLongLong(self->offset);
}

PyDoc_STRVAR(count_doc, "count(end_offset, size): see usual_fetch.KeptFetch.count.");

static PyObject *
kept_count(Kept *self, PyObject *args)
{
    Found found = {0};
    if (!PyArg_ParseTuple(args, "LL:count", &found.end_offset, &found.size)
        || (self->partition != NULL && note_count(self, &found) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(run_out_doc, "run_out(): see waiting.Parked.run_out.");

static PyObject *
kept_run_out(Kept *self, PyObject *unused)
{
    self->is_ending = 1;
    int status = perform(self->waiting, s_remove, (PyObject *)self);
    if (status == 0) {
        status = look(self, 1);
    }
    kept_clear(self);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(refuse_doc, "refuse(): see waiting.Parked.refuse.");

static PyObject *
kept_refuse(Kept *self, PyObject *unused)
{
    int status = look(self, 1);
    kept_clear(self);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(forget_doc, "forget(): see waiting.Parked.forget.");

static PyObject *
kept_forget(Kept *self, PyObject *unused)
{
    if (!self->is_ending) {
        forget(self);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(expire_doc, "expire(): see waiting.Parked.expire.");

static PyObject *
kept_expire(Kept *self, PyObject *unused)
{
    if (!self->is_over && !self->is_asked && perform(self->waiting, s_expire_now, (PyObject *)self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(cancel_doc, "cancel(): see waiting.Parked.cancel.");

static PyObject *
kept_cancel(Kept *self, PyObject *unused)
{
    if (!self->is_over && perform(self->waiting, s_cancel_now, (PyObject *)self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Notes when the request arrived. */
static int
note_arrival(Kept *self)
{
    if (get_float(self->connection, s_began_s, &self->began_s) < 0
        || get_float(self->connection, s_queued_s, &self->queued_s) < 0) {
        return -1;
    }
    return self->began_s != 0.0 ? 0 : get_float(self->connection, s_last_request_s, &self->began_s);
}

PyDoc_STRVAR(wait_doc, "wait(dispatcher, reply, encode, times): see handler.Waits.");

static PyObject *
kept_wait(Kept *self, PyObject *args)
{
    PyObject *dispatcher, *reply, *encode, *times;
    if (!PyArg_ParseTuple(args, "OOOO:wait", &dispatcher, &reply, &encode, &times)) {
        return NULL;
    }
    if (self->dispatcher != NULL || self->waiting == NULL) {
        PyErr_SetString(PyExc_AssertionError, "a fetch waits once");
        return NULL;
    }
    self->dispatcher = Py_NewRef(dispatcher);
    self->reply = Py_NewRef(reply);
    self->encode = Py_NewRef(encode);
    self->times = Py_NewRef(times);
    PyObject *connection = Py_NewRef(self->connection), *closed = Py_NewRef(self->closed);
    PyObject *waiting = Py_NewRef(self->waiting);
    int status = note_arrival(self) < 0 ? -1 : add_waiting(self, waiting);
    if (status == 0) {
        PyObject *timeout = PyLong_FromLongLong(self->max_wait_ms);
        PyObject *added =
            timeout == NULL ? NULL : PyObject_CallMethodObjArgs(waiting, s_add, (PyObject *)self, timeout, NULL);
        status = added == NULL ? -1 : 0;
        Py_XDECREF(timeout);
        Py_XDECREF(added);
    }
    status = status < 0 ? -1 : 0;
    if (status == 0 && self->session != NULL && !self->is_over) {
        status = set(&session_waiting, self->session, (PyObject *)self);
        if (status == 0 && self->counted != NO_COUNT) {
            status = note_needed(self->session, self->member, self->counted);
        }
    }
    if (status == 0) {
        status = perform(connection, s_add_close_callback, closed);
    }
    Py_DECREF(connection);
    Py_DECREF(closed);
    Py_DECREF(waiting);
    if (status == 0 && !self->is_over) {
        PyObject *clock_s = PyObject_GetAttr(dispatcher, s_clock_s);
        PyObject *now_s = clock_s == NULL ? NULL : PyObject_CallNoArgs(clock_s);
        self->parked_s = now_s == NULL ? -1.0 : PyFloat_AsDouble(now_s);
        Py_XDECREF(clock_s);
        Py_XDECREF(now_s);
        status = PyErr_Occurred() ? -1 : 0;
    }
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(needed_doc, "The bytes of the key before which the fetch is not complete; None: it may be at any time.");

static PyObject *
counted_bytes(Kept *self, PyObject *key)
{
    if (self->counted == NO_COUNT) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(self->counted);
}

static PyMethodDef needed_method = {"needed", (PyCFunction)counted_bytes, METH_O, needed_doc};

static PyObject *
kept_needed(Kept *self, void *unused)
{
    if (self->min_bytes <= 1 || self->is_over) {
        Py_RETURN_NONE;
    }
    return PyCFunction_New(&needed_method, (PyObject *)self);
}

static PyMethodDef kept_methods[] = {
    {"ask", (PyCFunction)kept_ask, METH_O, ask_doc},
    {"cancel", (PyCFunction)kept_cancel, METH_NOARGS, cancel_doc},
    {"count", (PyCFunction)kept_count, METH_VARARGS, count_doc},
    {"expire", (PyCFunction)kept_expire, METH_NOARGS, expire_doc},
    {"forget", (PyCFunction)kept_forget, METH_NOARGS, forget_doc},
    {"reads_from", (PyCFunction)kept_reads_from, METH_O, reads_from_doc},
    {"refuse", (PyCFunction)kept_refuse, METH_NOARGS, refuse_doc},
    {"run_out", (PyCFunction)kept_run_out, METH_NOARGS, run_out_doc},
    {"wait", (PyCFunction)kept_wait, METH_VARARGS, wait_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef kept_members[] = {
    {"is_over", T_BOOL, offsetof(Kept, is_over), 0, NULL},
    {"keys", T_OBJECT, offsetof(Kept, keys), READONLY, NULL},
    {"owner", T_OBJECT, offsetof(Kept, owner), READONLY, NULL},
    {"topic", T_OBJECT, offsetof(Kept, topic), READONLY, NULL},
    {"topic_id", T_OBJECT, offsetof(Kept, topic_id), READONLY, NULL},
    {"session", T_OBJECT, offsetof(Kept, session), READONLY, NULL},
    {"index", T_INT, offsetof(Kept, index), READONLY, NULL},
    {"offset", T_LONGLONG, offsetof(Kept, offset), READONLY, NULL},
    {"max_bytes", T_LONGLONG, offsetof(Kept, max_bytes), READONLY, NULL},
    {"min_bytes", T_LONGLONG, offsetof(Kept, min_bytes), READONLY, NULL},
    {"leader_epoch", T_LONGLONG, offsetof(Kept, leader_epoch), READONLY, NULL},
    {"isolation", T_LONGLONG, offsetof(Kept, isolation), READONLY, NULL},
    {"version", T_INT, offsetof(Kept, version), READONLY, NULL},
    {"correlation_id", T_INT, offsetof(Kept, correlation_id), READONLY, NULL},
    {"connection", T_OBJECT, offsetof(Kept, connection), READONLY, NULL},
    {"dispatcher", T_OBJECT, offsetof(Kept, dispatcher), READONLY, NULL},
    {"reply", T_OBJECT, offsetof(Kept, reply), READONLY, NULL},
    {"encode", T_OBJECT, offsetof(Kept, encode), READONLY, NULL},
    {"times", T_OBJECT, offsetof(Kept, times), READONLY, NULL},
    {"queued_s", T_DOUBLE, offsetof(Kept, queued_s), READONLY, NULL},
    {"began_s", T_DOUBLE, offsetof(Kept, began_s), READONLY, NULL},
    {"parked_s", T_DOUBLE, offsetof(Kept, parked_s), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef kept_getset[] = {
    {"needed", (getter)kept_needed, NULL, needed_doc, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot kept_slots[] = {
    {Py_tp_doc, "A usual fetch that waits for records: a waiting.Parked that is compiled."},
    {Py_tp_traverse, kept_traverse},
    {Py_tp_clear, kept_clear},
    {Py_tp_dealloc, kept_dealloc},
    {Py_tp_methods, kept_methods},
    {Py_tp_members, kept_members},
    {Py_tp_getset, kept_getset},
    {0, NULL},
};

static PyType_Spec kept_spec = {
    .name = "holdfast_log.broker.replication._usual_fetch.Kept",
    .basicsize = sizeof(Kept),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = kept_slots,
};

/* The call ---------------------------------------------------------------------------------------------------- */

/* What `begin` gets of the broker. */
typedef struct {
    PyObject *usual, *topics, *name_of, *waiting, *closed, *sessions, *clock_s, *may_read;
    long long max_bytes;
} Broker;

static int
read_broker(PyObject *tuple, Broker *broker)
{
    if (PyTuple_Check(tuple) && PyTuple_Size(tuple) == 9) {
        broker->usual = PyTuple_GetItem(tuple, 0);
        broker->topics = PyTuple_GetItem(tuple, 1);
        broker->name_of = PyTuple_GetItem(tuple, 2);
        broker->waiting = PyTuple_GetItem(tuple, 3);
        broker->closed = PyTuple_GetItem(tuple, 4);
        broker->sessions = PyTuple_GetItem(tuple, 5);
        broker->clock_s = PyTuple_GetItem(tuple, 6);
        broker->max_bytes = PyLong_AsLongLong(PyTuple_GetItem(tuple, 7));
        broker->may_read = PyTuple_GetItem(tuple, 8);
        if (PyErr_Occurred()) {
            return -1;
        }
        if (PyDict_Check(broker->topics) && PyDict_Check(broker->sessions) && Py_TYPE(broker->waiting) == waiting_type) {
            return 0;
        }
    }
    PyErr_SetString(PyExc_TypeError, "begin takes the parts of a broker: see UsualFetches");
    return -1;
}

static PyObject *
keep(const Broker *broker, const Wanted *wanted, const Asked *asked, PyObject *connection, PyObject *wish,
     long long min_bytes, long long max_bytes, int is_read, const Found *found, const Session *session)
{
    Kept *kept = (Kept *)PyType_GenericAlloc(kept_type, 0);
    PyObject *key = kept == NULL ? NULL : PyObject_GetAttr(asked->partition, s_key);
    if (key == NULL) {
        Py_XDECREF((PyObject *)kept);
        return NULL;
    }
    kept->usual = Py_NewRef(broker->usual);
    kept->waiting = Py_NewRef(broker->waiting);
    kept->closed = Py_NewRef(broker->closed);
    kept->partition = Py_NewRef(asked->partition);
    kept->topic = Py_NewRef(asked->topic);
    kept->topic_id = Py_NewRef(asked->topic_id);
    kept->connection = Py_NewRef(connection);
    kept->wish = Py_NewRef(wish);
    kept->sessions = Py_NewRef(broker->sessions);
    kept->clock_s = Py_NewRef(broker->clock_s);
    kept->session = Py_XNewRef(session->session);
    kept->member = Py_XNewRef(session->member);
    kept->session_id = wanted->session_id;
    /* The fetch of a session is woken by its session. */
    kept->keys = session->session == NULL ? PyTuple_Pack(1, key) : PyTuple_New(0);
    kept->owner = PyObject_GetAttr(connection, s_id);
    PyObject *version = PyLong_FromLong(asked->version);
    if (version != NULL) {
        kept->answers_key = PyTuple_Pack(3, PyTuple_GetItem(wish, 0), PyTuple_GetItem(wish, 1), version);
        Py_DECREF(version);
    }
    Py_DECREF(key);
    kept->offset = wanted->offset;
    kept->max_bytes = max_bytes;
    kept->min_bytes = min_bytes;
    kept->max_wait_ms = wanted->max_wait_ms;
    kept->leader_epoch = wanted->leader_epoch;
    kept->isolation = wanted->isolation;
    kept->index = asked->index;
    kept->version = asked->version;
    kept->correlation_id = asked->correlation_id;
    kept->is_over = 1;
    kept->counted = NO_COUNT;
    if (kept->keys == NULL || kept->owner == NULL || kept->answers_key == NULL
        || (is_read && note_count(kept, found) < 0)) {
        Py_DECREF((PyObject *)kept);
        return NULL;
    }
    return (PyObject *)kept;
}

/* What the read depends on: as OneFetch._wish, without the leader epochs, which are checked before. */
static PyObject *
wish_of(long long offset, long long max_bytes)
{
    PyObject *from = PyLong_FromLongLong(offset), *size = PyLong_FromLongLong(max_bytes);
    PyObject *wish = from == NULL || size == NULL ? NULL : PyTuple_Pack(4, from, size, no_epoch, no_epoch);
    Py_XDECREF(from);
    Py_XDECREF(size);
    return wish;
}

/* The answer, a fetch to be kept, None if the fetch is unusual, or NULL after an error. A fetch of a client that has
 * rights is not kept: they may end before there are records for it, so Python judges it again then. */
static PyObject *
begin_reading(const Broker *broker, const Wanted *wanted, const Asked *asked, PyObject *connection,
              const Session *session)
{
    long long max_bytes = wanted->max_bytes < 0 ? 0 : wanted->max_bytes, min_bytes = wanted->min_bytes;
    max_bytes = max_bytes < broker->max_bytes ? max_bytes : broker->max_bytes;
    min_bytes = min_bytes < max_bytes ? min_bytes : max_bytes;
    max_bytes = wanted->partition_max_bytes < max_bytes ? wanted->partition_max_bytes : max_bytes;
    PyObject *wish = wish_of(wanted->offset, max_bytes);
    if (wish == NULL) {
        return NULL;
    }
    Found found = {0};
    PyObject *outcome = NULL;
    int is_read = session->session == NULL || wanted->is_named
                      ? 1
                      : has(&session_stirred, session->session, session->member);
    int is_usual = is_read < 0 ? -1 : 1;
    if (is_read == 1) {
        is_usual = read_partition_below(asked->partition, wanted->leader_epoch, wanted->isolation, wish, wanted->offset,
                                        &found);
    }
    int must_wait = wanted->max_wait_ms > 0 && found.size < min_bytes;
    if (is_usual == 1 && must_wait && broker->may_read != Py_None) {
        is_usual = 0;
    }
    if (is_usual == 1 && session->session != NULL) {
        is_usual = use_session(wanted, session) < 0 ? -1 : 1;
    }
    if (is_usual == 0) {
        outcome = Py_NewRef(Py_None);
    }
    else if (is_usual == 1 && must_wait) {
        outcome = keep(broker, wanted, asked, connection, wish, min_bytes, max_bytes, is_read, &found, session);
    }
    else if (is_usual == 1 && session->session == NULL) {
        outcome = answer_of(asked, &found);
    }
    else if (is_usual == 1) {
        outcome = session_answer(asked, session, is_read ? &found : NULL, wanted->offset);
    }
    Py_XDECREF(found.read);
    Py_DECREF(wish);
    return outcome;
}

PyDoc_STRVAR(begin_doc, "begin(broker, connection, frame, version, position, correlation_id)\n--\n\n"
                        "See usual_fetch.UsualFetches.begin.");

static PyObject *
begin(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Broker broker;
    Wanted wanted;
    Py_buffer frame;
    int correlation_id, is_usual = open_request(args, count, &frame, &wanted, &correlation_id);
    if (is_usual < 0) {
        return NULL;
    }
    if (read_broker(args[0], &broker) < 0) {
        PyBuffer_Release(&frame);
        return NULL;
    }
    PyObject *outcome = NULL;
    Asked asked = {.version = wanted.version, .correlation_id = correlation_id};
    Session session = {broker.sessions, broker.clock_s, NULL, NULL};
    if (is_usual) {
        is_usual = read_request(&wanted) == 0;
        asked.session_id = wanted.session_id;
    }
    if (is_usual == 1 && wanted.session_id != NO_SESSION) {
        is_usual = find_session(&wanted, args[1], &session);
        if (is_usual == 1) {
            is_usual = find_member(&wanted, broker.name_of, &session, &asked.topic, &asked.topic_id);
        }
    }
    else if (is_usual == 1) {
        is_usual = find_topic(&wanted, broker.name_of, &asked.topic, &asked.topic_id);
    }
    if (is_usual == 1) {
        asked.index = wanted.index;
        is_usual = find_partition(&wanted, broker.topics, asked.topic, asked.topic_id, &asked.partition);
    }
    if (is_usual == 1) {
        is_usual = may_read(broker.may_read, args[1], asked.topic);
    }
    if (is_usual == 1) {
        outcome = begin_reading(&broker, &wanted, &asked, args[1], &session);
        is_usual = outcome == NULL ? -1 : 1;
    }
    if (is_usual != 1 && leave_to_python(is_usual) == 0) {
        outcome = Py_NewRef(Py_None);
    }
    Py_XDECREF(session.session);
    Py_XDECREF(session.member);
    Py_XDECREF(asked.topic);
    Py_XDECREF(asked.topic_id);
    Py_XDECREF(asked.partition);
    PyBuffer_Release(&frame);
    return outcome;
}

/* The module -------------------------------------------------------------------------------------------------- */

static int
find_waiting(void)
{
    static const char module[] = "holdfast_log.broker.replication.waiting";
    waiting_type = (PyTypeObject *)attribute_of(module, "Waiting");
    row_type = (PyTypeObject *)attribute_of(module, "WaitingRow");
    deadlines_type = (PyTypeObject *)attribute_of("holdfast_log.broker.replication.deadlines", "Deadlines");
    heap_push = attribute_of("heapq", "heappush");
    if (waiting_type == NULL || row_type == NULL || deadlines_type == NULL || heap_push == NULL) {
        return -1;
    }
    return find_slot(waiting_type, "deadlines", &waiting_deadlines) < 0
                   || find_slot(waiting_type, "_capacity", &waiting_capacity) < 0
                   || find_slot(waiting_type, "parked", &waiting_parked) < 0
                   || find_slot(waiting_type, "_by_owner", &waiting_by_owner) < 0
                   || find_slot(waiting_type, "_count", &waiting_count) < 0
                   || find_slot(row_type, "any_time", &row_any_time) < 0
                   || find_slot(row_type, "needed", &row_needed) < 0
                   || find_slot(deadlines_type, "_ended", &deadlines_ended) < 0
                   || find_slot(deadlines_type, "_heap", &deadlines_heap) < 0
                   || find_slot(deadlines_type, "_number", &deadlines_number) < 0
                   || find_slot(deadlines_type, "_ring_s", &deadlines_ring_s) < 0
                   || find_slot(deadlines_type, "_seconds", &deadlines_seconds) < 0
                   || find_slot(deadlines_type, "_timer", &deadlines_timer) < 0
               ? -1
               : 0;
}

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)(void (*)(void))begin, METH_FASTCALL, begin_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.broker.replication._usual_fetch",
    .m_doc = "The usual fetch, compiled. See holdfast_log.broker.replication.usual_fetch.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__usual_fetch(void)
{
#define INTERN(name)                                                                                                     \
    if (s_##name == NULL && (s_##name = PyUnicode_InternFromString(#name)) == NULL) {                                    \
        return NULL;                                                                                                     \
    }
    NAMES(INTERN)
#undef INTERN
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) {
        return NULL;
    }
    encode_records = attribute_of("holdfast_log.protocol._fetch_codec", "encode_records");
    shared_bytes = PyLong_FromLong(SHARED_BYTES);
    no_epoch = PyLong_FromLong(NO_EPOCH);
    kept_type = (PyTypeObject *)PyType_FromSpec(&kept_spec);
    if (encode_records == NULL || shared_bytes == NULL || no_epoch == NULL || kept_type == NULL || prepare_fetching() < 0
        || find_waiting() < 0
        || PyModule_AddObjectRef(made, "Kept", (PyObject *)kept_type) < 0) {
        Py_CLEAR(made);
    }
    return made;
}
