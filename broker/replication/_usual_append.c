/* The usual produce request, compiled: decoded, checked, appended and answered in one call. What the decoder, the
 * handler, Replicas.append, Append, prepare_append, Log.append_prepared, Log.write and the encoder do for it in Python,
 * one after the other, is done here in the same order. Tests compare the two. Where this file was not compiled, Python
 * is used.
 *
 * Nothing is changed before all partitions of a request have been checked. For everything unusual, and for everything
 * that is wrong, `append` has done nothing by then and returns None: the caller does all of it in Python, which knows
 * conditions, fences, guards and errors. The state stays in the Python objects. Their methods are called for what is
 * more than a comparison: sequences of idempotent producers, what an append wakes, and whatever else it makes due.
 *
 * A peer wrote the frame. A cursor never moves beyond its end, and no size is trusted before it is compared with the
 * bytes that remain. Bytes are never copied: records are views of the frame.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../protocol/_plain_batch.h"
#include "../../protocol/_reading.h"
#include "../../protocol/_slots.h"
#include "../log/_segment_append.h"

#define FIRST_VERSION 3   /* the first with record batches */
#define LAST_VERSION 12
#define FLEXIBLE_FROM 9   /* compact lengths and tagged fields */
#define LOG_START_FROM 5
#define MESSAGE_FROM 8    /* record errors and an error message */
#define PARTITIONS_MAX 64 /* of a request; more are left to Python */
#define ACKS_ALL (-1)
#define ACKS_LEADER 1

/* Attributes of Python objects ------------------------------------------------------------------------------ */

/* The slots of an Append. */
enum {
    TOPIC, INDEX, RECORDS, ORIGIN, PARTITION, PREPARED, RESULT, ERROR, CONDITION, FENCE, MAKE_WAY, SOURCE, JUDGED_EPOCH,
    SETTLES_AT, APPEND_SLOTS
};
static const char *const append_names[APPEND_SLOTS] = {
    "topic", "index", "records", "origin", "partition", "prepared", "result", "error", "condition", "fence", "make_way",
    "source", "judged_epoch", "settles_at",
};

/* Attributes that are looked up by their names. */
enum {
    ADMISSION, LOG, ROLE, LEADER_EPOCH, HIGH_WATERMARK, ISR, FAILURE, SETTLING, KEYS, SETTINGS, USUAL_LIMITS, EPOCHS,
    PRODUCERS, SEGMENTS, ACTIVE, LOG_END_OFFSET, LOG_START_OFFSET, RECOVERY_POINT, WRITTEN_BYTES, WAITS_FOR_INDEXES,
    NEEDS_FOLLOWERS, CHECK, UPDATE, WRITE, REFUSED, REPORT_APPEND, WITH_TRACEBACK, ADMITS, KEY, GROWN,
    GROWN_UNWATCHED, TRAFFIC, ELIGIBLE, REMOTES, IN_SYNC_NEEDED_MAX, IS_HANDING_OVER, NAMES
};
static const char *const attribute_names[NAMES] = {
    "admission", "log", "role", "leader_epoch", "high_watermark", "isr", "failure", "settling", "keys", "settings",
    "usual_limits", "epochs", "producers", "segments", "active", "log_end_offset", "log_start_offset", "recovery_point",
    "written_bytes", "_waits_for_indexes", "needs_followers", "check", "update", "write", "refused",
    "report_append", "with_traceback", "admits", "key", "grown", "grown_unwatched", "traffic", "eligible",
    "remotes", "_in_sync_needed_max", "is_handing_over",
};

/* The places of the numbers in LogSettings.usual_limits. */
enum {
    BATCH_BYTES_MAX, BEFORE_MAX_MS, AFTER_MAX_MS, MIN_INSYNC, SEGMENT_BYTES, SEGMENT_AGE_MS_MAX, FLUSH_MESSAGES, LIMITS
};

typedef struct {
    PyTypeObject *append, *leadership, *epochs, *producers, *result, *header;
    Slot append_slots[APPEND_SLOTS];
    Slot epochs_known, is_recorded;
    Slot producer_entries, map_end_offset, producer_epoch;
    Slot traffic_appends, traffic_messages_in, traffic_bytes_in;
    SegmentState segments;
    PyObject *names[NAMES];
    PyObject *crc32c, *internal_topics, *broker_error;
    PyObject *client, *unknown_source, *any_epoch, *no_time;
    newfunc new_tuple;
    int64_t inline_bytes_max;
} State;

static inline PyObject *
attribute(const State *state, PyObject *object, int name)
{
    return PyObject_GetAttr(object, state->names[name]);
}

/* A number of at most 64 bits, whose reference is given away. */
static int
as_number(PyObject *value, int64_t *number)
{
    if (value == NULL) {
        return -1;
    }
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
get_number(const State *state, PyObject *object, int name, int64_t *number)
{
    return as_number(attribute(state, object, name), number);
}

static int
set_number(const State *state, PyObject *object, int name, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    if (value == NULL) {
        return -1;
    }
    int done = PyObject_SetAttr(object, state->names[name], value);
    Py_DECREF(value);
    return done;
}

/* Whether an attribute is None: 1, 0, or -1 after an error. */
static int
is_none(const State *state, PyObject *object, int name)
{
    PyObject *value = attribute(state, object, name);
    if (value == NULL) {
        return -1;
    }
    Py_DECREF(value);
    return value == Py_None;
}

/* Whether an attribute is true: 1, 0, or -1 after an error. */
static int
is_true(const State *state, PyObject *object, int name)
{
    PyObject *value = attribute(state, object, name);
    if (value == NULL) {
        return -1;
    }
    int truth = PyObject_IsTrue(value);
    Py_DECREF(value);
    return truth;
}

/* The request ----------------------------------------------------------------------------------------------- */

/* The batch for one partition. The topic's name is where the frame has it. `records` and `header` are made where Python
 * needs them: see records_of and header_of. */
typedef struct {
    const uint8_t *name;
    Py_ssize_t name_size;
    int32_t index;
    uint8_t *batch;
    Py_ssize_t batch_size;
    PyObject *topic, *records, *partition, *log, *role, *producers, *header, *error;
    int64_t limits[LIMITS];
    int64_t leader_epoch, first_offset, last_offset, log_start_offset, producer_id;
    int64_t sent_offset; /* as its producer has sent it, like the leader epoch */
    int32_t sent_epoch;
    int is_first; /* whether it is the first of its topic in the request */
    int of_topic; /* how many partitions that topic has in the request; known of the first */
} Batch;

typedef struct {
    const State *state;
    PyObject *replicas, *topics, *right, *watched, *held, *read_date; /* of the broker */
    PyObject *may_write; /* None if all may write all topics */
    PyObject *origin, *frame;
    uint8_t *begin;
    Cursor cursor;
    int16_t acks;
    int32_t timeout_ms;
    PyObject *date; /* the time of day in ms */
    int64_t date_ms;
    int topic_count, count;
    Batch batches[PARTITIONS_MAX];
} Request;

static int
read_partition(Request *request, const uint8_t *name, Py_ssize_t name_size)
{
    if (request->count == PARTITIONS_MAX) {
        return -1;
    }
    int64_t size;
    const uint8_t *index = take(&request->cursor, 4);
    if (index == NULL || read_length(&request->cursor, 4, &size) < 0) {
        return -1;
    }
    const uint8_t *records = take(&request->cursor, size);
    if (records == NULL || end_struct(&request->cursor) < 0) {
        return -1;
    }
    Batch *batch = &request->batches[request->count++];
    memset(batch, 0, sizeof *batch);
    batch->name = name;
    batch->name_size = name_size;
    batch->index = int32_at(index);
    batch->batch = request->begin + (records - request->begin); /* The frame may be written. */
    batch->batch_size = (Py_ssize_t)size;
    return 0;
}

static int
read_topic(Request *request)
{
    int64_t size, partitions;
    if (read_length(&request->cursor, 2, &size) < 0 || size > STRING_BYTES_MAX) {
        return -1;
    }
    const uint8_t *name = take(&request->cursor, size);
    if (name == NULL || read_length(&request->cursor, 4, &partitions) < 0 || partitions <= 0) {
        return -1;
    }
    Batch *first = &request->batches[request->count];
    for (int64_t number = 0; number < partitions; number++) {
        if (read_partition(request, name, (Py_ssize_t)size) < 0) {
            return -1;
        }
    }
    first->is_first = 1;
    first->of_topic = (int)partitions;
    return end_struct(&request->cursor);
}

/* Reads the request: -1 if it is unusual or malformed. */
static int
read_request(Request *request)
{
    int64_t size, topics;
    /* A transactional id is refused, with a message, in Python. */
    if (read_length(&request->cursor, 2, &size) < 0 || size != -1) {
        return -1;
    }
    const uint8_t *at = take(&request->cursor, 6);
    if (at == NULL || read_length(&request->cursor, 4, &topics) < 0 || topics <= 0 || topics > PARTITIONS_MAX) {
        return -1;
    }
    request->acks = int16_at(at);
    request->timeout_ms = int32_at(at + 2);
    if (request->acks != ACKS_ALL && request->acks != ACKS_LEADER) {
        return -1;
    }
    for (; request->topic_count < topics; request->topic_count++) {
        if (read_topic(request) < 0) {
            return -1;
        }
    }
    return end_struct(&request->cursor);
}

/* Checks: each returns 1 if the batch is usual in this respect, 0 if not, -1 after an error ----------------- */

/* Whether a topic that begins at a batch of the request has begun before. */
static int
is_repeated(const Request *request, int number)
{
    const Batch *batch = &request->batches[number];
    for (int other = 0; other < number; other++) {
        const Batch *before = &request->batches[other];
        if (before->name_size == batch->name_size && memcmp(before->name, batch->name, (size_t)batch->name_size) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Whether the client may write to the topic. Whatever it may not is answered, and logged, in Python. */
static int
is_allowed(const Request *request, PyObject *topic)
{
    if (request->may_write == Py_None) {
        return 1;
    }
    PyObject *may = PyObject_CallFunctionObjArgs(request->may_write, request->origin, topic, NULL);
    Py_XDECREF(may);
    return may == NULL ? -1 : may == Py_True;
}

/* Finds the partition. One that the request names twice is for Python to refuse. */
static int
find_partition(Request *request, int number)
{
    const State *state = request->state;
    Batch *batch = &request->batches[number];
    if (batch->is_first && is_repeated(request, number)) {
        return 0;
    }
    if (batch->is_first) {
        batch->topic = PyUnicode_DecodeUTF8((const char *)batch->name, batch->name_size, NULL);
    }
    else {
        batch->topic = Py_NewRef(request->batches[number - 1].topic);
    }
    if (batch->topic == NULL) {
        return -1;
    }
    int is_writable = batch->is_first ? is_allowed(request, batch->topic) : 1;
    if (is_writable != 1) {
        return is_writable;
    }
    int is_internal = PySet_Contains(state->internal_topics, batch->topic);
    if (is_internal != 0) {
        return is_internal < 0 ? -1 : 0;
    }
    PyObject *partitions = PyDict_GetItemWithError(request->topics, batch->topic);
    if (partitions == NULL || !PyDict_Check(partitions)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *index = PyLong_FromLong(batch->index);
    if (index == NULL) {
        return -1;
    }
    batch->partition = Py_XNewRef(PyDict_GetItemWithError(partitions, index));
    Py_DECREF(index);
    if (batch->partition == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    for (int other = 0; other < number; other++) {
        if (request->batches[other].partition == batch->partition) {
            return 0;
        }
    }
    return 1;
}

/* How many replicas are in sync; -1 after an error. */
static Py_ssize_t
in_sync(const State *state, PyObject *role)
{
    PyObject *isr = attribute(state, role, ISR);
    Py_ssize_t size = isr == NULL ? -1 : PyObject_Size(isr);
    Py_XDECREF(isr);
    return size;
}

/* Whether enough replicas are in sync for an acknowledgement with `acks`, of a partition that this broker leads. */
static int
is_led(const State *state, Batch *batch, int acks)
{
    PyObject *role = attribute(state, batch->partition, ROLE);
    if (role == NULL || Py_TYPE(role) != state->leadership) {
        Py_XDECREF(role);
        return role == NULL ? -1 : 0;
    }
    Py_XDECREF(batch->role);
    batch->role = role;
    if (acks != ACKS_ALL) {
        return 1;
    }
    Py_ssize_t size = in_sync(state, role);
    return size < 0 ? -1 : size >= batch->limits[MIN_INSYNC];
}

/* Whether the sender may write to the partition: it has no owner, or the sender writes for that owner. */
static int
is_admitted(const Request *request, const Batch *batch)
{
    const State *state = request->state;
    PyObject *admission = attribute(state, batch->partition, ADMISSION);
    if (admission == NULL || admission == Py_None) {
        Py_XDECREF(admission);
        return admission == NULL ? -1 : 1;
    }
    PyObject *acks = PyLong_FromLong(request->acks);
    PyObject *admits = NULL;
    if (acks != NULL) {
        admits = PyObject_CallMethodObjArgs(admission, state->names[ADMITS], request->origin, acks, NULL);
    }
    Py_DECREF(admission);
    Py_XDECREF(acks);
    Py_XDECREF(admits);
    return admits == NULL ? -1 : admits == Py_True;
}

/* Whether the log takes batches as they were sent, and nothing has to be done before. */
static int
takes_batches(const State *state, Batch *batch)
{
    PyObject *partition = batch->partition;
    int found;
    if ((batch->log = attribute(state, partition, LOG)) == NULL
        || get_number(state, partition, LEADER_EPOCH, &batch->leader_epoch) < 0) {
        return -1;
    }
    PyObject *log = batch->log;
    if ((found = is_none(state, log, FAILURE)) != 1 || (found = is_none(state, log, KEYS)) != 1) {
        return found;
    }
    if ((found = is_true(state, log, SETTLING)) != 0) {
        return found < 0 ? -1 : 0;
    }
    PyObject *settings = attribute(state, log, SETTINGS);
    PyObject *limits = settings == NULL ? NULL : attribute(state, settings, USUAL_LIMITS);
    Py_XDECREF(settings);
    if (limits == NULL || !PyTuple_Check(limits) || PyTuple_Size(limits) != LIMITS) {
        Py_XDECREF(limits);
        return limits == NULL ? -1 : 0;
    }
    for (int number = 0; number < LIMITS; number++) {
        batch->limits[number] = PyLong_AsLongLong(PyTuple_GetItem(limits, number));
    }
    Py_DECREF(limits);
    return PyErr_Occurred() ? -1 : 1;
}

/* Whether a batch of this leader epoch is in the log already. */
static int
has_begun(const State *state, const Batch *batch)
{
    PyObject *epochs = attribute(state, batch->log, EPOCHS);
    if (epochs == NULL || Py_TYPE(epochs) != state->epochs) {
        Py_XDECREF(epochs);
        return epochs == NULL ? -1 : 0;
    }
    PyObject *known = get(&state->epochs_known, epochs);
    PyObject *is_recorded = get(&state->is_recorded, epochs);
    Py_DECREF(epochs);
    int has_begun = known == NULL || is_recorded == NULL ? -1 : 0;
    Py_ssize_t count;
    if (has_begun == 0 && is_recorded == Py_True && PyList_Check(known) && (count = PyList_Size(known)) > 0) {
        int64_t latest = PyLong_AsLongLong(PyList_GetItem(known, count - 1));
        has_begun = PyErr_Occurred() ? -1 : latest == batch->leader_epoch;
    }
    Py_XDECREF(known);
    Py_XDECREF(is_recorded);
    return has_begun;
}

/* The batch as a view of the frame, borrowed. */
static PyObject *
records_of(const Request *request, Batch *batch)
{
    if (batch->records == NULL) {
        Py_ssize_t start = batch->batch - request->begin;
        batch->records = PySequence_GetSlice(request->frame, start, start + batch->batch_size);
    }
    return batch->records;
}

/* The header of the batch as its producer has sent it, borrowed. */
static PyObject *
header_of(const State *state, Batch *batch)
{
    if (batch->header == NULL) {
        uint8_t sent[HEADER_SIZE];
        memcpy(sent, batch->batch, HEADER_SIZE);
        write_number(sent, (uint64_t)batch->sent_offset, 8);
        write_number(sent + LEADER_EPOCH_AT, (uint32_t)batch->sent_epoch, 4);
        batch->header = new_header(state->header, state->new_tuple, sent);
    }
    return batch->header;
}

/* Whether the batch continues what its producer, if it is idempotent, has written. */
static int
continues(const State *state, Batch *batch)
{
    PyObject *producers = batch->producers;
    int64_t map_end_offset, epoch;
    if (as_number(get(&state->map_end_offset, producers), &map_end_offset) < 0) {
        return -1;
    }
    if (map_end_offset < batch->first_offset) {
        return 0;
    }
    if (batch->producer_id < 0) {
        return 1;
    }
    PyObject *entries = get(&state->producer_entries, producers);
    PyObject *id = PyLong_FromLongLong(batch->producer_id);
    PyObject *entry = entries == NULL || id == NULL ? NULL : PyDict_GetItemWithError(entries, id);
    int is_known = PyErr_Occurred() ? -1 : entry != NULL;
    if (is_known == 1) {
        is_known = as_number(get(&state->producer_epoch, entry), &epoch);
        is_known = is_known < 0 ? -1 : epoch == int16_at(batch->batch + PRODUCER_EPOCH_AT);
    }
    Py_XDECREF(entries);
    Py_XDECREF(id);
    if (is_known != 1) {
        return is_known;
    }
    PyObject *header = header_of(state, batch), *headers = header == NULL ? NULL : PyList_New(1);
    if (headers == NULL) {
        return -1;
    }
    PyList_SetItem(headers, 0, Py_NewRef(header));
    PyObject *duplicate = PyObject_CallMethodObjArgs(producers, state->names[CHECK], headers, NULL);
    Py_DECREF(headers);
    Py_XDECREF(duplicate);
    return duplicate == NULL ? -1 : duplicate == Py_None;
}

/* Whether the batch is plain, not compressed, and sound. */
static int
is_sound(const Request *request, Batch *batch)
{
    if (batch->batch_size < HEADER_SIZE || number_at(batch->batch + ATTRIBUTES_AT, 2) & COMPRESSION_MASK) {
        return 0; /* Compressed records are read by others, who decompress them within a budget. */
    }
    BatchLimits limits = {
        batch->limits[BATCH_BYTES_MAX], batch->limits[BEFORE_MAX_MS], batch->limits[AFTER_MAX_MS]
    };
    batch->sent_offset = int64_at(batch->batch);
    batch->sent_epoch = int32_at(batch->batch + LEADER_EPOCH_AT);
    int found = is_plain_batch(request->state->crc32c, batch->batch, batch->batch_size, &limits, request->date_ms);
    return PyErr_Occurred() ? -1 : found;
}

static int
check(Request *request, int number)
{
    const State *state = request->state;
    Batch *batch = &request->batches[number];
    int found = find_partition(request, number);
    if (found != 1 || (found = takes_batches(state, batch)) != 1 || (found = is_led(state, batch, request->acks)) != 1
        || (found = has_begun(state, batch)) != 1 || (found = is_sound(request, batch)) != 1
        || (found = is_admitted(request, batch)) != 1) {
        return found;
    }
    if (get_number(state, batch->log, LOG_END_OFFSET, &batch->first_offset) < 0) {
        return -1;
    }
    batch->last_offset = batch->first_offset + int32_at(batch->batch + LAST_OFFSET_DELTA_AT);
    batch->producer_id = int64_at(batch->batch + PRODUCER_ID_AT);
    batch->producers = attribute(state, batch->log, PRODUCERS);
    if (batch->producers == NULL || Py_TYPE(batch->producers) != state->producers) {
        return batch->producers == NULL ? -1 : 0;
    }
    return continues(state, batch);
}

/* Appending: each returns 0, or -1 after an error ----------------------------------------------------------- */

/* Keeps an error of the protocol, or of the disk, for the answer of this partition. Other errors stay. */
static int
keep_error(const State *state, Batch *batch)
{
    PyObject *type, *value, *traceback;
    int is_of_disk = PyErr_ExceptionMatches(PyExc_OSError);
    if (!is_of_disk && !PyErr_ExceptionMatches(state->broker_error)) {
        return -1;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *error = NULL;
    if (is_of_disk) {
        error = PyObject_CallMethodObjArgs(batch->log, state->names[REFUSED], value, NULL);
    }
    else {
        /* Its traceback would be a reference cycle. */
        error = PyObject_CallMethodObjArgs(value, state->names[WITH_TRACEBACK], Py_None, NULL);
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    batch->error = error;
    return error == NULL ? -1 : 0;
}

static int
add_to(const Slot *slot, PyObject *object, int64_t more)
{
    int64_t number;
    return slot_number(slot, object, &number) != 1 ? -1 : put_slot_number(slot, object, number + more);
}

/* Counts a batch that was written for the metrics of its topic (broker.replication.traffic). */
static int
count(const State *state, const Batch *batch)
{
    PyObject *traffic = attribute(state, batch->partition, TRAFFIC);
    if (traffic == NULL) {
        return -1;
    }
    int done = add_to(&state->traffic_appends, traffic, 1) < 0
            || add_to(&state->traffic_messages_in, traffic, batch->last_offset - batch->first_offset + 1) < 0
            || add_to(&state->traffic_bytes_in, traffic, batch->batch_size) < 0;
    Py_DECREF(traffic);
    return done ? -1 : 0;
}

/* What the log remembers of a batch that was written. `are_ahead`: of its indexes. */
static int
note_written(const Request *request, Batch *batch, int are_ahead)
{
    const State *state = request->state;
    PyObject *log = batch->log;
    int64_t next_offset = batch->last_offset + 1, recovery_point, written_bytes;
    if (get_number(state, log, RECOVERY_POINT, &recovery_point) < 0
        || get_number(state, log, WRITTEN_BYTES, &written_bytes) < 0
        || set_number(state, log, LOG_END_OFFSET, next_offset) < 0
        || set_number(state, log, WRITTEN_BYTES, written_bytes + batch->batch_size) < 0
        || put_slot_number(&state->map_end_offset, batch->producers, next_offset) < 0) {
        return -1;
    }
    if (batch->producer_id >= 0) {
        PyObject *header = header_of(state, batch), *offset = PyLong_FromLongLong(batch->first_offset), *updated = NULL;
        if (header != NULL && offset != NULL) {
            updated = PyObject_CallMethodObjArgs(
                batch->producers, state->names[UPDATE], header, offset, request->date, NULL);
        }
        Py_XDECREF(offset);
        Py_XDECREF(updated);
        if (updated == NULL) {
            return -1;
        }
    }
    int was_durable = recovery_point >= batch->first_offset;
    int is_due = was_durable || next_offset - recovery_point >= batch->limits[FLUSH_MESSAGES];
    if (!is_due && are_ahead) {
        int waits = is_true(state, log, WAITS_FOR_INDEXES);
        is_due = waits < 0 ? -1 : !waits;
    }
    if (is_due == 1) {
        PyObject *reported = PyObject_CallMethodObjArgs(
            log, state->names[REPORT_APPEND], was_durable ? Py_True : Py_False, NULL);
        Py_XDECREF(reported);
        is_due = reported == NULL ? -1 : 0;
    }
    return is_due;
}

/* Has the log write the batch where that takes more than an append: a new segment, a file that is not open. */
static int
write_in_python(const Request *request, Batch *batch)
{
    const State *state = request->state;
    PyObject *records = records_of(request, batch), *header = header_of(state, batch);
    PyObject *first_offset = PyLong_FromLongLong(batch->first_offset);
    PyObject *headers = header == NULL ? NULL : PyTuple_Pack(1, header);
    PyObject *offsets = first_offset == NULL ? NULL : PyTuple_Pack(1, first_offset);
    PyObject *written = NULL;
    if (records != NULL && headers != NULL && offsets != NULL) {
        written = PyObject_CallMethodObjArgs(
            batch->log, state->names[WRITE], records, headers, offsets, request->date, NULL);
    }
    Py_XDECREF(first_offset);
    Py_XDECREF(headers);
    Py_XDECREF(offsets);
    Py_XDECREF(written);
    return written == NULL ? -1 : 0;
}

/* Writes to the last segment: as append_to_segment. */
static int
write_to_segment(const Request *request, Batch *batch, int *are_ahead)
{
    const State *state = request->state;
    PyObject *segments = attribute(state, batch->log, SEGMENTS);
    PyObject *active = segments == NULL ? NULL : attribute(state, segments, ACTIVE);
    Py_XDECREF(segments);
    if (active == NULL || Py_TYPE(active) != state->segments.segment) {
        Py_XDECREF(active);
        return active == NULL ? -1 : 0;
    }
    SegmentAppend append = {
        .segment = active,
        .bytes = batch->batch,
        .batch_size = batch->batch_size,
        .last_offset = batch->last_offset,
        .max_timestamp = int64_at(batch->batch + MAX_TIMESTAMP_AT),
        .segment_bytes = batch->limits[SEGMENT_BYTES],
        .age_ms_max = batch->limits[SEGMENT_AGE_MS_MAX],
        .now_ms = request->date_ms,
    };
    int status = append_to_segment(&state->segments, &append);
    if (status == NEEDS_RECORDS) {
        append.records = records_of(request, batch);
        status = append.records == NULL ? -1 : append_to_segment(&state->segments, &append);
    }
    Py_DECREF(active);
    *are_ahead = append.are_ahead;
    return status;
}

static int
write_batch(const Request *request, Batch *batch)
{
    int64_t log_end_offset;
    int are_ahead;
    if (get_number(request->state, batch->log, LOG_END_OFFSET, &log_end_offset) < 0) {
        return -1;
    }
    if (log_end_offset != batch->first_offset) {
        PyErr_SetString(PyExc_AssertionError, "the log grew since the append was prepared");
        return -1;
    }
    write_number(batch->batch, (uint64_t)batch->first_offset, 8);
    write_number(batch->batch + LEADER_EPOCH_AT, (uint64_t)batch->leader_epoch, 4);
    int status = write_to_segment(request, batch, &are_ahead);
    if (status < 0 || (status == 1 ? note_written(request, batch, are_ahead) : write_in_python(request, batch)) < 0) {
        return -1;
    }
    return count(request->state, batch);
}

/* Whether a request or a session waits for something of the partition. */
static int
is_watched(const Request *request, PyObject *key)
{
    Py_ssize_t count = PyTuple_Size(request->watched);
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *waiting = PyTuple_GetItem(request->watched, number);
        int found = PyDict_Size(waiting) == 0 ? 0 : PyDict_Contains(waiting, key);
        if (found != 0) {
            return found;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* What Replicas.grown_unwatched does, where this replica alone decides about the high watermark: 1; 0 if Python has to do
 * it; -1 after an error. */
static int
advance_alone(const State *state, Batch *batch)
{
    int64_t needed_max, high_watermark;
    int leads = is_led(state, batch, ACKS_LEADER); /* Requests that the batches before it woke may have changed that. */
    if (leads != 1) {
        return leads;
    }
    int has_eligible = is_true(state, batch->role, ELIGIBLE);
    int has_remotes = has_eligible != 0 ? has_eligible : is_true(state, batch->role, REMOTES);
    if (has_remotes != 0) {
        return has_remotes < 0 ? -1 : 0;
    }
    Py_ssize_t size = in_sync(state, batch->role);
    if (size < 0 || get_number(state, batch->partition, IN_SYNC_NEEDED_MAX, &needed_max) < 0
        || get_number(state, batch->partition, HIGH_WATERMARK, &high_watermark) < 0) {
        return -1;
    }
    if ((size < batch->limits[MIN_INSYNC] && size < needed_max) || batch->last_offset < high_watermark) {
        return 1;
    }
    return set_number(state, batch->partition, HIGH_WATERMARK, batch->last_offset + 1) < 0 ? -1 : 1;
}

static int
append_batch(Request *request, Batch *batch)
{
    const State *state = request->state;
    if (write_batch(request, batch) < 0) {
        return keep_error(state, batch);
    }
    if (get_number(state, batch->log, LOG_START_OFFSET, &batch->log_start_offset) < 0) {
        return -1;
    }
    PyObject *key = attribute(state, batch->partition, KEY);
    int watched = key == NULL ? -1 : is_watched(request, key);
    Py_XDECREF(key);
    if (watched < 0) {
        return -1;
    }
    int is_advanced = watched ? 0 : advance_alone(state, batch);
    if (is_advanced != 0) {
        return is_advanced < 0 ? -1 : 0;
    }
    PyObject *method = state->names[watched ? GROWN : GROWN_UNWATCHED];
    PyObject *done = PyObject_CallMethodObjArgs(request->replicas, method, batch->partition, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The answer ------------------------------------------------------------------------------------------------ */

/* Whether all appends have succeeded and are as durable as `acks` requires. The right to acknowledge is asked now. */
static int
is_settled(Request *request)
{
    const State *state = request->state;
    for (int number = 0; number < request->count; number++) {
        if (request->batches[number].error != NULL) {
            return 0;
        }
    }
    if (request->acks == ACKS_LEADER) {
        return 1;
    }
    for (int number = 0; number < request->count; number++) {
        Batch *batch = &request->batches[number];
        int64_t high_watermark;
        int is_enough = is_led(state, batch, ACKS_ALL);
        if (is_enough != 1) {
            return is_enough;
        }
        if (get_number(state, batch->partition, HIGH_WATERMARK, &high_watermark) < 0) {
            return -1;
        }
        if (high_watermark <= batch->last_offset) {
            return 0;
        }
    }
    int needs_followers = is_true(state, request->right, NEEDS_FOLLOWERS);
    return needs_followers < 0 ? -1 : !needs_followers;
}

static uint8_t *
put_number(uint8_t *at, int64_t number, int size)
{
    write_number(at, (uint64_t)number, size);
    return at + size;
}

static uint8_t *
put_length(uint8_t *at, int64_t length, int size, int is_flexible)
{
    if (!is_flexible) {
        return put_number(at, length, size);
    }
    uint64_t rest = (uint64_t)length + 1;
    for (; rest > 0x7F; rest >>= 7) {
        *at++ = (uint8_t)(rest & 0x7F) | 0x80;
    }
    *at++ = (uint8_t)rest;
    return at;
}

/* The end of a struct without tagged fields. */
static uint8_t *
put_end(uint8_t *at, int is_flexible)
{
    if (is_flexible) {
        *at++ = 0;
    }
    return at;
}

static uint8_t *
put_partition(uint8_t *at, const Batch *batch, long version)
{
    int is_flexible = version >= FLEXIBLE_FROM;
    at = put_number(at, batch->index, 4);
    at = put_number(at, 0, 2); /* no error */
    at = put_number(at, batch->first_offset, 8);
    at = put_number(at, NO_TIMESTAMP, 8);
    if (version >= LOG_START_FROM) {
        at = put_number(at, batch->log_start_offset, 8);
    }
    if (version >= MESSAGE_FROM) {
        at = put_length(at, 0, 4, is_flexible); /* no record errors */
        at = put_length(at, -1, 2, is_flexible); /* no message */
    }
    return put_end(at, is_flexible);
}

/* The most bytes of an answer: without partitions, and of each partition without its topic's name. */
#define ANSWER_BYTES 32
#define PARTITION_BYTES 64

/* The response that acknowledges all batches, as the parts of a frame with its size and header. */
static PyObject *
acknowledgement(const Request *request, long version, int64_t correlation_id)
{
    int is_flexible = version >= FLEXIBLE_FROM;
    Py_ssize_t size_max = ANSWER_BYTES;
    for (int number = 0; number < request->count; number++) {
        size_max += PARTITION_BYTES + (request->batches[number].is_first ? request->batches[number].name_size : 0);
    }
    uint8_t few[512], *start = size_max <= (Py_ssize_t)sizeof few ? few : PyMem_Malloc((size_t)size_max);
    if (start == NULL) {
        return PyErr_NoMemory();
    }
    uint8_t *at = put_number(start + 4, correlation_id, 4);
    at = put_end(at, is_flexible);
    at = put_length(at, request->topic_count, 4, is_flexible);
    for (int number = 0, left = 0; number < request->count; number++) {
        const Batch *batch = &request->batches[number];
        if (batch->is_first) {
            left = batch->of_topic;
            at = put_length(at, batch->name_size, 2, is_flexible);
            memcpy(at, batch->name, (size_t)batch->name_size);
            at = put_length(at + batch->name_size, left, 4, is_flexible);
        }
        at = put_partition(at, batch, version);
        if (--left == 0) {
            at = put_end(at, is_flexible);
        }
    }
    at = put_number(at, 0, 4); /* not throttled */
    at = put_end(at, is_flexible);
    put_number(start, at - start - 4, 4);
    PyObject *frame = PyBytes_FromStringAndSize((const char *)start, at - start);
    if (start != few) {
        PyMem_Free(start);
    }
    PyObject *parts = frame == NULL ? NULL : PyList_New(1);
    if (parts == NULL) {
        Py_XDECREF(frame);
        return NULL;
    }
    PyList_SetItem(parts, 0, frame);
    return parts;
}

static PyObject *
as_result(const State *state, const Batch *batch)
{
    PyObject *values = Py_BuildValue(
        "((LLOLO))", (long long)batch->first_offset, (long long)batch->last_offset, state->no_time,
        (long long)batch->log_start_offset, Py_False);
    PyObject *result = values == NULL ? NULL : state->new_tuple(state->result, values, NULL);
    Py_XDECREF(values);
    return result;
}

static PyObject *
as_append(const Request *request, Batch *batch)
{
    const State *state = request->state;
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->append, Py_tp_alloc);
    PyObject *append = allocate(state->append, 0);
    PyObject *index = PyLong_FromLong(batch->index);
    PyObject *result = batch->error != NULL ? Py_NewRef(Py_None) : as_result(state, batch);
    PyObject *records = records_of(request, batch);
    int done = append == NULL || index == NULL || result == NULL || records == NULL ? -1 : 0;
    PyObject *values[APPEND_SLOTS] = {
        [TOPIC] = batch->topic,
        [INDEX] = index,
        [RECORDS] = records,
        [ORIGIN] = state->client,
        [PARTITION] = batch->partition,
        [RESULT] = result,
        [ERROR] = batch->error,
        [SOURCE] = state->unknown_source,
        [JUDGED_EPOCH] = state->any_epoch,
    };
    for (int number = 0; done == 0 && number < APPEND_SLOTS; number++) {
        done = set(&state->append_slots[number], append, values[number] == NULL ? Py_None : values[number]);
    }
    Py_XDECREF(index);
    Py_XDECREF(result);
    if (done < 0) {
        Py_CLEAR(append);
    }
    return append;
}

/* What was done, for Python to answer: now, or when it is as durable as `acks` requires. */
static PyObject *
as_appends(Request *request)
{
    PyObject *appends = PyList_New(request->count);
    for (int number = 0; appends != NULL && number < request->count; number++) {
        PyObject *append = as_append(request, &request->batches[number]);
        if (append == NULL || PyList_SetItem(appends, number, append) < 0) {
            Py_CLEAR(appends);
        }
    }
    return appends == NULL ? NULL : Py_BuildValue("(iiN)", request->acks, request->timeout_ms, appends);
}

/* The call -------------------------------------------------------------------------------------------------- */

/* Whether all batches are usual; -1 after an error. Changes nothing. */
static int
check_all(Request *request)
{
    /* Requests that are held come first. */
    if (PyDict_Size(request->held) > 0 || read_request(request) < 0) {
        return 0;
    }
    int is_handing_over = is_true(request->state, request->replicas, IS_HANDING_OVER);
    if (is_handing_over != 0) {
        return is_handing_over < 0 ? -1 : 0;
    }
    request->date = PyObject_CallNoArgs(request->read_date);
    request->date_ms = request->date == NULL ? -1 : PyLong_AsLongLong(request->date);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (request->acks == ACKS_ALL) {
        int needs_followers = is_true(request->state, request->right, NEEDS_FOLLOWERS);
        if (needs_followers != 0) {
            return needs_followers < 0 ? -1 : 0;
        }
    }
    for (int number = 0; number < request->count; number++) {
        int found = check(request, number);
        if (found != 1) {
            return found;
        }
    }
    return 1;
}

static void
release(Request *request)
{
    for (int number = 0; number < request->count; number++) {
        Batch *batch = &request->batches[number];
        Py_XDECREF(batch->topic);
        Py_XDECREF(batch->records);
        Py_XDECREF(batch->partition);
        Py_XDECREF(batch->log);
        Py_XDECREF(batch->role);
        Py_XDECREF(batch->producers);
        Py_XDECREF(batch->header);
        Py_XDECREF(batch->error);
    }
}

/* The parts of the broker, from a tuple: its replicas, its partitions by topic and index, its right to acknowledge, the
 * dicts of whatever waits for partitions, the requests that are held, its time of day, and the function that says whether a
 * client may write to a topic, or None. Returns -1 with an exception for anything else. */
static int
read_broker(Request *request, PyObject *broker)
{
    if (PyTuple_Check(broker) && PyTuple_Size(broker) == 7) {
        request->replicas = PyTuple_GetItem(broker, 0);
        request->topics = PyTuple_GetItem(broker, 1);
        request->right = PyTuple_GetItem(broker, 2);
        request->watched = PyTuple_GetItem(broker, 3);
        request->held = PyTuple_GetItem(broker, 4);
        request->read_date = PyTuple_GetItem(broker, 5);
        request->may_write = PyTuple_GetItem(broker, 6);
        if (PyDict_Check(request->topics) && PyTuple_Check(request->watched) && PyDict_Check(request->held)) {
            return 0;
        }
    }
    PyErr_SetString(PyExc_TypeError, "append takes the parts of a broker: see UsualAppends");
    return -1;
}

PyDoc_STRVAR(append_doc, "append(broker, origin, frame, version, position, correlation_id)\n--\n\n"
                         "See usual_append.UsualAppends.append.");

static PyObject *
append(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Request request;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "append takes six arguments");
        return NULL;
    }
    long version = PyLong_AsLong(args[3]);
    Py_ssize_t position = PyLong_AsSsize_t(args[4]);
    int64_t correlation_id = PyLong_AsLongLong(args[5]);
    Py_buffer buffer;
    if (PyErr_Occurred() || read_broker(&request, args[0]) < 0
        || PyObject_GetBuffer(args[2], &buffer, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    const State *state = PyModule_GetState(module);
    request.state = state;
    request.origin = args[1];
    request.frame = args[2];
    request.date = NULL;
    request.count = request.topic_count = 0;
    request.begin = buffer.buf;
    int is_usual = version >= FIRST_VERSION && version <= LAST_VERSION && position >= 0 && position <= buffer.len
                && buffer.len <= state->inline_bytes_max;
    if (is_usual) {
        request.cursor = (Cursor){request.begin + position, request.begin + buffer.len, version >= FLEXIBLE_FROM};
        is_usual = check_all(&request);
    }
    if (is_usual != 1) {
        /* Python does it all again, and finds the error. */
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
            PyErr_Clear();
        }
        answer = PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        goto end;
    }
    for (int number = 0; number < request.count; number++) {
        if (append_batch(&request, &request.batches[number]) < 0) {
            goto end;
        }
    }
    int settled = is_settled(&request);
    if (settled >= 0) {
        answer = settled ? acknowledgement(&request, version, correlation_id) : as_appends(&request);
    }
end:
    Py_XDECREF(request.date);
    release(&request);
    PyBuffer_Release(&buffer);
    return answer;
}

/* The module ------------------------------------------------------------------------------------------------ */

static int
find_append(State *state)
{
    static const char module[] = "holdfast_log.broker.replication.appends";
    PyObject *origin = attribute_of("holdfast_log.broker.log.append", "AppendOrigin");
    state->append = (PyTypeObject *)attribute_of(module, "Append");
    state->any_epoch = attribute_of(module, "ANY_EPOCH");
    state->unknown_source = attribute_of("holdfast_log.broker.log.introductions", "UNKNOWN_SOURCE");
    state->client = origin == NULL ? NULL : PyObject_GetAttrString(origin, "CLIENT");
    state->no_time = PyLong_FromLong(NO_TIMESTAMP);
    Py_XDECREF(origin);
    if (state->append == NULL || state->any_epoch == NULL || state->unknown_source == NULL || state->client == NULL
        || state->no_time == NULL) {
        return -1;
    }
    for (int number = 0; number < APPEND_SLOTS; number++) {
        if (find_slot(state->append, append_names[number], &state->append_slots[number]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
find_states(State *state)
{
    state->leadership = (PyTypeObject *)attribute_of("holdfast_log.broker.replication.leadership", "Leadership");
    state->epochs = (PyTypeObject *)attribute_of("holdfast_log.broker.log.epochs", "LeaderEpochs");
    state->producers = (PyTypeObject *)attribute_of("holdfast_log.broker.log.producer_state", "ProducerStates");
    PyTypeObject *entry = (PyTypeObject *)attribute_of("holdfast_log.broker.log.producer_entry", "ProducerEntry");
    int done = -1;
    if (state->leadership != NULL && state->epochs != NULL && state->producers != NULL && entry != NULL
        && find_slot(state->epochs, "_epochs", &state->epochs_known) == 0
        && find_slot(state->epochs, "_is_recorded", &state->is_recorded) == 0
        && find_slot(state->producers, "_entries", &state->producer_entries) == 0
        && find_slot(state->producers, "map_end_offset", &state->map_end_offset) == 0
        && find_slot(entry, "epoch", &state->producer_epoch) == 0) {
        done = find_segments(&state->segments);
    }
    Py_XDECREF((PyObject *)entry);
    return done;
}

static int
find_traffic(State *state)
{
    PyTypeObject *traffic = (PyTypeObject *)attribute_of("holdfast_log.broker.replication.traffic", "TopicTraffic");
    int done = traffic == NULL || find_slot(traffic, "appends", &state->traffic_appends) < 0
            || find_slot(traffic, "messages_in", &state->traffic_messages_in) < 0
            || find_slot(traffic, "bytes_in", &state->traffic_bytes_in) < 0;
    Py_XDECREF((PyObject *)traffic);
    return done ? -1 : 0;
}

static int
find_functions(State *state)
{
    state->crc32c = attribute_of("holdfast_log.protocol.checksum", "crc32c");
    state->header = (PyTypeObject *)attribute_of("holdfast_log.protocol.batches", "BatchHeader");
    state->internal_topics = attribute_of("holdfast_log.coordinator.controller.topic_rules", "INTERNAL_TOPICS");
    state->broker_error = attribute_of("holdfast_log.protocol.errors", "BrokerError");
    state->result = (PyTypeObject *)attribute_of("holdfast_log.broker.log.append", "AppendResult");
    state->new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    if (as_number(attribute_of("holdfast_log.broker.log.decompression", "INLINE_BYTES_MAX"), &state->inline_bytes_max) < 0) {
        return -1;
    }
    return state->crc32c == NULL || state->header == NULL || state->internal_topics == NULL
                   || state->broker_error == NULL || state->result == NULL
               ? -1
               : 0;
}

static int
execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    memset(state, 0, sizeof *state);
    for (int number = 0; number < NAMES; number++) {
        state->names[number] = PyUnicode_InternFromString(attribute_names[number]);
        if (state->names[number] == NULL) {
            return -1;
        }
    }
    return find_append(state) < 0 || find_states(state) < 0 || find_traffic(state) < 0 || find_functions(state) < 0 ? -1 : 0;
}

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL, append_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

/* The classes and objects that the state refers to live as long as the process: so does the module. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.broker.replication._usual_append",
    .m_doc = "The usual produce request, compiled.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__usual_append(void)
{
    return PyModuleDef_Init(&module);
}
