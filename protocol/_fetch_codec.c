/* Decodes Fetch requests and encodes Fetch responses, compiled. The generated decoders and encoders of
 * protocol.schema are the reference: they give the same values, and handle everything for which a function here
 * returns None. That is whatever is malformed or unusual, so that errors are raised in one place only; tests
 * compare the two.
 *
 * A peer wrote every request that is read here. A cursor never moves beyond the end of its bytes, and no size is
 * trusted before it is compared with the bytes that remain. Attributes of responses are read from dataclasses with
 * slots, whose members run no Python code.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_reading.h"

#define FIRST_WITH_SESSIONS 7
#define FIRST_WITH_LEADER_EPOCH 9
#define FIRST_WITH_RACK 11
#define FIRST_FLEXIBLE 12
#define FIRST_WITH_IDS 13
#define FIRST_WITHOUT_REPLICA_ID 15
#define FIRST_WITH_ENDPOINTS 16
#define FIRST_WITH_LOG_START 5
#define FIRST_VERSION 4
#define LAST_VERSION 16

/* Requests with more topics and partitions, and responses too, are left to the generic code. */
#define MAX_ELEMENTS 512
/* Records up to this many bytes are copied, as protocol.generated_encoders does it. */
#define INLINE_BYTES 2048
#define UUID_BYTES 16

/* What `bind` was called with: the classes of the messages, and values that most messages share. */
typedef struct {
    PyTypeObject *request, *topic, *partition, *slice, *response, *topic_response, *data;
    PyObject *uuid_of, *no_id, *replica_state, *no_divergence, *no_leader, *no_snapshot;
} Bound;

static Bound bound;

#define NAMES(X)                                                                                                  \
    X(aborted_transactions) X(bytes) X(current_leader) X(data) X(diverging_epoch) X(error_code)                   \
    X(error_message) X(high_watermark) X(last_stable_offset) X(length) X(log_start_offset)                        \
    X(node_endpoints) X(partition_index) X(partitions) X(preferred_read_replica) X(records) X(responses)          \
    X(session_id) X(snapshot_id) X(throttle_time_ms) X(topic) X(topic_id)

#define DECLARE(name) static PyObject *s_##name;
NAMES(DECLARE)
#undef DECLARE

/* An attribute in a slot of a class, written without looking up its name. */
typedef struct {
    PyObject *descriptor;
    descrsetfunc set;
} Slot;

#define REQUEST_SLOTS(X)                                                                                          \
    X(cluster_id) X(replica_id) X(replica_state) X(max_wait_ms) X(min_bytes) X(max_bytes)                         \
    X(isolation_level) X(session_id) X(session_epoch) X(topics) X(forgotten_topics_data) X(rack_id)
#define TOPIC_SLOTS(X)                                                                                            \
    X(topic) X(topic_id) X(partitions)
#define PARTITION_SLOTS(X)                                                                                        \
    X(partition) X(current_leader_epoch) X(fetch_offset) X(last_fetched_epoch) X(log_start_offset)                \
    X(partition_max_bytes) X(owner_token) X(owner_secret) X(has_refused)

#define DECLARE_SLOT(name) static Slot d_##name;
REQUEST_SLOTS(DECLARE_SLOT)
TOPIC_SLOTS(DECLARE_SLOT)
PARTITION_SLOTS(DECLARE_SLOT)
#undef DECLARE_SLOT

/* Integers and bytes that nearly every request has. */
static PyObject *minus_one, *no_bytes, *no_text;

/* Decoding ------------------------------------------------------------------------------------------------ */

typedef struct {
    Cursor cursor;
    int version;
    Py_ssize_t room;
} Reading;

/* The result of reading: the generic decoder is to be asked, or a Python error is set. */
enum { READ = 0, UNUSUAL = 1, FAILED = -1 };

#define TRY(call)                                                                                                 \
    do {                                                                                                          \
        int outcome_ = (call);                                                                                    \
        if (outcome_ != READ) {                                                                                   \
            return outcome_;                                                                                      \
        }                                                                                                         \
    } while (0)

static int
read_count(Reading *reading, int64_t *count)
{
    if (read_length(&reading->cursor, 4, count) < 0 || *count < 0 || *count > reading->room) {
        return UNUSUAL;
    }
    reading->room -= (Py_ssize_t)*count;
    return READ;
}

static inline int
read_no_tags(Reading *reading)
{
    return end_struct(&reading->cursor) < 0 ? UNUSUAL : READ;
}

/* Sets an attribute to a new reference, which is released. */
static inline int
set_new(PyObject *object, const Slot *slot, PyObject *value)
{
    if (value == NULL) {
        return FAILED;
    }
    int outcome = slot->set(slot->descriptor, object, value);
    Py_DECREF(value);
    return outcome < 0 ? FAILED : READ;
}

static inline int
set(PyObject *object, const Slot *slot, PyObject *value)
{
    return slot->set(slot->descriptor, object, value) < 0 ? FAILED : READ;
}

static inline int
set_int(Reading *reading, PyObject *object, const Slot *slot, int size)
{
    int64_t value;
    if (read_number(&reading->cursor, size, &value) < 0) {
        return UNUSUAL;
    }
    return set_new(object, slot, PyLong_FromLongLong(value));
}

static int
set_text(Reading *reading, PyObject *object, const Slot *slot)
{
    int64_t size;
    const uint8_t *at = read_length(&reading->cursor, 2, &size) < 0 ? NULL : take(&reading->cursor, size);
    if (at == NULL) {
        return UNUSUAL;
    }
    if (!size) {
        return set(object, slot, no_text);
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, NULL);
    if (text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            return FAILED;
        }
        PyErr_Clear();
        return UNUSUAL;
    }
    return set_new(object, slot, text);
}

static int
set_topic(Reading *reading, PyObject *object)
{
    if (reading->version < FIRST_WITH_IDS) {
        TRY(set_text(reading, object, &d_topic));
        return set(object, &d_topic_id, bound.no_id);
    }
    const uint8_t *at = take(&reading->cursor, UUID_BYTES);
    if (at == NULL) {
        return UNUSUAL;
    }
    PyObject *raw = PyBytes_FromStringAndSize((const char *)at, UUID_BYTES);
    if (raw == NULL) {
        return FAILED;
    }
    PyObject *id = PyObject_CallFunctionObjArgs(bound.uuid_of, raw, NULL);
    Py_DECREF(raw);
    TRY(set(object, &d_topic, no_text));
    return set_new(object, &d_topic_id, id);
}

static int
fill_partition(Reading *reading, PyObject *partition)
{
    int version = reading->version;
    TRY(set_int(reading, partition, &d_partition, 4));
    TRY(version >= FIRST_WITH_LEADER_EPOCH ? set_int(reading, partition, &d_current_leader_epoch, 4)
                                           : set(partition, &d_current_leader_epoch, minus_one));
    TRY(set_int(reading, partition, &d_fetch_offset, 8));
    TRY(version >= FIRST_FLEXIBLE ? set_int(reading, partition, &d_last_fetched_epoch, 4)
                                  : set(partition, &d_last_fetched_epoch, minus_one));
    TRY(version >= FIRST_WITH_LOG_START ? set_int(reading, partition, &d_log_start_offset, 8)
                                        : set(partition, &d_log_start_offset, minus_one));
    TRY(set_int(reading, partition, &d_partition_max_bytes, 4));
    TRY(read_no_tags(reading));
    TRY(set(partition, &d_owner_token, minus_one));
    TRY(set(partition, &d_owner_secret, no_bytes));
    return set(partition, &d_has_refused, Py_False);
}

static int fill_topic(Reading *reading, PyObject *topic);

/* Sets an attribute to a list of `type`, each filled by `fill`. */
static int
set_list(Reading *reading, PyObject *object, const Slot *slot, PyTypeObject *type, int (*fill)(Reading *, PyObject *))
{
    int64_t count;
    TRY(read_count(reading, &count));
    PyObject *items = PyList_New(0);
    if (items == NULL) {
        return FAILED;
    }
    for (int64_t index = 0; index < count; index++) {
        PyObject *item = PyType_GenericAlloc(type, 0);
        int outcome = item == NULL ? FAILED : fill(reading, item);
        if (outcome == READ && PyList_Append(items, item) < 0) {
            outcome = FAILED;
        }
        Py_XDECREF(item);
        if (outcome != READ) {
            Py_DECREF(items);
            return outcome;
        }
    }
    return set_new(object, slot, items);
}

static int
fill_topic(Reading *reading, PyObject *topic)
{
    TRY(set_topic(reading, topic));
    TRY(set_list(reading, topic, &d_partitions, bound.partition, fill_partition));
    return read_no_tags(reading);
}

static int
fill_request(Reading *reading, PyObject *request)
{
    int version = reading->version;
    TRY(set(request, &d_cluster_id, Py_None));
    TRY(version < FIRST_WITHOUT_REPLICA_ID ? set_int(reading, request, &d_replica_id, 4)
                                           : set(request, &d_replica_id, minus_one));
    TRY(set(request, &d_replica_state, bound.replica_state));
    TRY(set_int(reading, request, &d_max_wait_ms, 4));
    TRY(set_int(reading, request, &d_min_bytes, 4));
    TRY(set_int(reading, request, &d_max_bytes, 4));
    TRY(set_int(reading, request, &d_isolation_level, 1));
    if (version >= FIRST_WITH_SESSIONS) {
        TRY(set_int(reading, request, &d_session_id, 4));
        TRY(set_int(reading, request, &d_session_epoch, 4));
    }
    else {
        TRY(set_new(request, &d_session_id, PyLong_FromLong(0)));
        TRY(set(request, &d_session_epoch, minus_one));
    }
    TRY(set_list(reading, request, &d_topics, bound.topic, fill_topic));
    if (version >= FIRST_WITH_SESSIONS) {
        int64_t forgotten;
        TRY(read_count(reading, &forgotten));
        if (forgotten) {
            return UNUSUAL;
        }
    }
    TRY(set_new(request, &d_forgotten_topics_data, PyList_New(0)));
    TRY(version >= FIRST_WITH_RACK ? set_text(reading, request, &d_rack_id) : set(request, &d_rack_id, no_text));
    return read_no_tags(reading);
}

static int
is_bound(void)
{
    if (bound.request == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "bind was not called");
        return 0;
    }
    return 1;
}

PyDoc_STRVAR(decode_doc, "decode(frame, version, position): the FetchRequest; None: use the generic decoder.");

static PyObject *
decode(PyObject *module, PyObject *args)
{
    Py_buffer frame;
    int version;
    Py_ssize_t position;
    if (!PyArg_ParseTuple(args, "y*in:decode", &frame, &version, &position)) {
        return NULL;
    }
    PyObject *request = NULL;
    int outcome = FAILED;
    if (!is_bound()) {
        outcome = FAILED;
    }
    else if (version < FIRST_VERSION || version > LAST_VERSION || position < 0 || position > frame.len) {
        outcome = UNUSUAL;
    }
    else if ((request = PyType_GenericAlloc(bound.request, 0)) != NULL) {
        const uint8_t *start = frame.buf;
        Reading reading = {
            {start + position, start + frame.len, version >= FIRST_FLEXIBLE}, version, MAX_ELEMENTS,
        };
        outcome = fill_request(&reading, request);
    }
    PyBuffer_Release(&frame);
    if (outcome == READ) {
        return request;
    }
    Py_XDECREF(request);
    if (outcome == FAILED) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Encoding ------------------------------------------------------------------------------------------------ */

/* The parts of a response: those that are finished, and bytes that the next part begins with. */
typedef struct {
    PyObject *parts;
    uint8_t *bytes;
    Py_ssize_t size, capacity;
    int64_t total;
    int version;
} Writer;

static int
reserve(Writer *writer, Py_ssize_t size)
{
    if (writer->capacity - writer->size >= size) {
        return READ;
    }
    Py_ssize_t capacity = 2 * writer->capacity + size + 256;
    uint8_t *bytes = PyMem_Realloc(writer->bytes, (size_t)capacity);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    writer->bytes = bytes;
    writer->capacity = capacity;
    return READ;
}

static int
put_int(Writer *writer, int size, int64_t value)
{
    TRY(reserve(writer, size));
    for (int index = size - 1; index >= 0; index--) {
        writer->bytes[writer->size + index] = (uint8_t)value;
        value >>= 8;
    }
    writer->size += size;
    return READ;
}

static int
put_bytes(Writer *writer, const char *bytes, Py_ssize_t size)
{
    TRY(reserve(writer, size));
    memcpy(writer->bytes + writer->size, bytes, (size_t)size);
    writer->size += size;
    return READ;
}

static int
put_uvarint(Writer *writer, uint64_t value)
{
    while (value > 0x7F) {
        TRY(put_int(writer, 1, (int64_t)(value & 0x7F) | 0x80));
        value >>= 7;
    }
    return put_int(writer, 1, (int64_t)value);
}

/* The length of an array or of records; -1 for null. */
static int
put_length(Writer *writer, int64_t length)
{
    return writer->version >= FIRST_FLEXIBLE ? put_uvarint(writer, (uint64_t)(length + 1))
                                             : put_int(writer, 4, length);
}

static int
put_no_tags(Writer *writer)
{
    return writer->version >= FIRST_FLEXIBLE ? put_int(writer, 1, 0) : READ;
}

/* An integer attribute that fits `size` bytes. */
static int
get_int(PyObject *object, PyObject *name, int size, int64_t *value)
{
    PyObject *number = PyObject_GetAttr(object, name);
    if (number == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return FAILED;
        }
        PyErr_Clear();
        return UNUSUAL;
    }
    *value = 0;
    int overflow = 1;
    if (PyLong_Check(number)) {
        *value = PyLong_AsLongLongAndOverflow(number, &overflow);
    }
    Py_DECREF(number);
    if (overflow) {
        return UNUSUAL;
    }
    if (*value == -1 && PyErr_Occurred()) {
        return FAILED;
    }
    int unused = 64 - 8 * size;
    return (int64_t)((uint64_t)*value << unused) >> unused == *value ? READ : UNUSUAL;
}

static int
put_attribute(Writer *writer, PyObject *object, PyObject *name, int size)
{
    int64_t value;
    TRY(get_int(object, name, size, &value));
    return put_int(writer, size, value);
}

/* An attribute, as a new reference in `value`. */
static int
get(PyObject *object, PyObject *name, PyObject **value)
{
    *value = PyObject_GetAttr(object, name);
    if (*value != NULL) {
        return READ;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return FAILED;
    }
    PyErr_Clear();
    return UNUSUAL;
}

/* Whether an attribute is this object. */
static int
require_same(PyObject *object, PyObject *name, PyObject *expected)
{
    PyObject *value;
    TRY(get(object, name, &value));
    int is_same = value == expected;
    Py_DECREF(value);
    return is_same ? READ : UNUSUAL;
}

/* The bytes so far become a part; `part` follows them, if there is one. */
static int
cut(Writer *writer, PyObject *part, Py_ssize_t part_size)
{
    if (writer->size) {
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)writer->bytes, writer->size);
        if (bytes == NULL) {
            return FAILED;
        }
        int outcome = PyList_Append(writer->parts, bytes);
        Py_DECREF(bytes);
        if (outcome < 0) {
            return FAILED;
        }
        writer->total += writer->size;
        writer->size = 0;
    }
    if (part != NULL) {
        if (PyList_Append(writer->parts, part) < 0) {
            return FAILED;
        }
        writer->total += part_size;
    }
    return READ;
}

static int
put_known_records(Writer *writer, PyObject *records)
{
    if (PyBytes_CheckExact(records)) {
        Py_ssize_t size = PyBytes_Size(records);
        TRY(put_length(writer, size));
        if (size > INLINE_BYTES) {
            return cut(writer, records, size);
        }
        return put_bytes(writer, PyBytes_AsString(records), size);
    }
    if (Py_TYPE(records) != bound.slice) {
        return UNUSUAL;
    }
    PyObject *data;
    TRY(get(records, s_data, &data));
    if (data != Py_None) {
        int outcome = PyBytes_CheckExact(data) ? put_known_records(writer, data) : UNUSUAL;
        Py_DECREF(data);
        return outcome;
    }
    Py_DECREF(data);
    int64_t length;
    TRY(get_int(records, s_length, 4, &length));
    if (length < 0) {
        return UNUSUAL;
    }
    TRY(put_length(writer, length));
    return cut(writer, records, (Py_ssize_t)length);
}

static int
put_records(Writer *writer, PyObject *partition)
{
    PyObject *records;
    TRY(get(partition, s_records, &records));
    int outcome = put_known_records(writer, records);
    Py_DECREF(records);
    return outcome;
}

static int
put_partition(Writer *writer, PyObject *partition)
{
    int version = writer->version;
    if (Py_TYPE(partition) != bound.data) {
        return UNUSUAL;
    }
    TRY(require_same(partition, s_diverging_epoch, bound.no_divergence));
    TRY(require_same(partition, s_current_leader, bound.no_leader));
    TRY(require_same(partition, s_snapshot_id, bound.no_snapshot));
    TRY(require_same(partition, s_error_message, Py_None));
    TRY(require_same(partition, s_aborted_transactions, Py_None));
    TRY(put_attribute(writer, partition, s_partition_index, 4));
    TRY(put_attribute(writer, partition, s_error_code, 2));
    TRY(put_attribute(writer, partition, s_high_watermark, 8));
    TRY(put_attribute(writer, partition, s_last_stable_offset, 8));
    if (version >= FIRST_WITH_LOG_START) {
        TRY(put_attribute(writer, partition, s_log_start_offset, 8));
    }
    TRY(put_length(writer, -1));
    int64_t preferred;
    TRY(get_int(partition, s_preferred_read_replica, 4, &preferred));
    if (version >= FIRST_WITH_RACK) {
        TRY(put_int(writer, 4, preferred));
    }
    else if (preferred != -1) {
        return UNUSUAL;
    }
    TRY(put_records(writer, partition));
    return put_no_tags(writer);
}

static int
put_text(Writer *writer, PyObject *text)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(text)) {
        return UNUSUAL;
    }
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) {
        PyErr_Clear();
        return UNUSUAL;
    }
    if (size > INT16_MAX) {
        return UNUSUAL;
    }
    TRY(writer->version >= FIRST_FLEXIBLE ? put_uvarint(writer, (uint64_t)size + 1) : put_int(writer, 2, size));
    return put_bytes(writer, bytes, size);
}

static int
put_id(Writer *writer, PyObject *id)
{
    PyObject *raw;
    TRY(get(id, s_bytes, &raw));
    int outcome = UNUSUAL;
    if (PyBytes_CheckExact(raw) && PyBytes_Size(raw) == UUID_BYTES) {
        outcome = put_bytes(writer, PyBytes_AsString(raw), UUID_BYTES);
    }
    Py_DECREF(raw);
    return outcome;
}

static int
put_topic_name(Writer *writer, PyObject *topic)
{
    PyObject *name;
    if (writer->version < FIRST_WITH_IDS) {
        TRY(get(topic, s_topic, &name));
        int outcome = put_text(writer, name);
        Py_DECREF(name);
        return outcome;
    }
    TRY(get(topic, s_topic_id, &name));
    int outcome = put_id(writer, name);
    Py_DECREF(name);
    return outcome;
}

/* A list attribute, each element of which `put` writes. */
static int
put_list(Writer *writer, PyObject *object, PyObject *name, int (*put)(Writer *, PyObject *))
{
    PyObject *items;
    TRY(get(object, name, &items));
    int outcome = UNUSUAL;
    if (PyList_CheckExact(items) && PyList_Size(items) <= MAX_ELEMENTS) {
        outcome = put_length(writer, PyList_Size(items));
        for (Py_ssize_t index = 0; outcome == READ && index < PyList_Size(items); index++) {
            PyObject *item = PyList_GetItem(items, index);
            Py_INCREF(item);
            outcome = put(writer, item);
            Py_DECREF(item);
        }
    }
    Py_DECREF(items);
    return outcome;
}

static int
put_topic(Writer *writer, PyObject *topic)
{
    if (Py_TYPE(topic) != bound.topic_response) {
        return UNUSUAL;
    }
    TRY(put_topic_name(writer, topic));
    TRY(put_list(writer, topic, s_partitions, put_partition));
    return put_no_tags(writer);
}

static int
put_nothing(Writer *writer, PyObject *item)
{
    return UNUSUAL;
}

static int
put_response(Writer *writer, PyObject *response, int correlation_id)
{
    int version = writer->version;
    TRY(put_int(writer, 4, 0)); /* The size, which is set at the end. */
    TRY(put_int(writer, 4, correlation_id));
    TRY(put_no_tags(writer));
    TRY(put_attribute(writer, response, s_throttle_time_ms, 4));
    int64_t session_id;
    TRY(get_int(response, s_session_id, 4, &session_id));
    if (version >= FIRST_WITH_SESSIONS) {
        TRY(put_attribute(writer, response, s_error_code, 2));
        TRY(put_int(writer, 4, session_id));
    }
    else if (session_id) {
        return UNUSUAL;
    }
    TRY(put_list(writer, response, s_responses, put_topic));
    Py_ssize_t size = writer->size;
    TRY(put_list(writer, response, s_node_endpoints, put_nothing));
    writer->size = size; /* There are none, and a tagged field with its default is left out. */
    TRY(put_no_tags(writer));
    return cut(writer, NULL, 0);
}

/* Puts the size of the frame into the first part, which nobody else refers to yet. */
static int
set_size(Writer *writer)
{
    int64_t size = writer->total - 4;
    if (size > INT32_MAX) {
        return UNUSUAL;
    }
    char *first = PyBytes_AsString(PyList_GetItem(writer->parts, 0));
    if (first == NULL) {
        return FAILED;
    }
    for (int index = 3; index >= 0; index--) {
        first[index] = (char)size;
        size >>= 8;
    }
    return READ;
}

/* The parts of the frame, or what the outcome so far asks for. */
static PyObject *
finish(Writer *writer, int outcome)
{
    if (outcome == READ) {
        outcome = set_size(writer);
    }
    PyMem_Free(writer->bytes);
    if (outcome == READ) {
        return writer->parts;
    }
    Py_XDECREF(writer->parts);
    if (outcome == FAILED) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(encode_doc,
             "encode(response, version, correlation_id): the parts of the frame; None: use the generic encoder.");

static PyObject *
encode(PyObject *module, PyObject *args)
{
    PyObject *response;
    int version, correlation_id;
    if (!PyArg_ParseTuple(args, "Oii:encode", &response, &version, &correlation_id) || !is_bound()) {
        return NULL;
    }
    if (version < FIRST_VERSION || version > LAST_VERSION || Py_TYPE(response) != bound.response) {
        Py_RETURN_NONE;
    }
    Writer writer = {.parts = PyList_New(0), .version = version};
    int outcome = writer.parts == NULL ? FAILED : put_response(&writer, response, correlation_id);
    return finish(&writer, outcome);
}

/* The answer up to its topics, of which it has so many. */
static int
put_head(Writer *writer, int correlation_id, int session_id, Py_ssize_t topics)
{
    TRY(put_int(writer, 4, 0)); /* The size, which is set at the end. */
    TRY(put_int(writer, 4, correlation_id));
    TRY(put_no_tags(writer));
    TRY(put_int(writer, 4, 0)); /* throttle_time_ms */
    if (writer->version >= FIRST_WITH_SESSIONS) {
        TRY(put_int(writer, 2, 0)); /* error_code */
        TRY(put_int(writer, 4, session_id));
    }
    return put_length(writer, topics);
}

/* A partition that was read: its index, its high watermark and its log start offset are the numbers. */
static int
put_read(Writer *writer, const int64_t *numbers, PyObject *records)
{
    int version = writer->version;
    TRY(put_int(writer, 4, numbers[0]));
    TRY(put_int(writer, 2, 0)); /* error_code */
    TRY(put_int(writer, 8, numbers[1]));
    TRY(put_int(writer, 8, numbers[1])); /* last_stable_offset */
    if (version >= FIRST_WITH_LOG_START) {
        TRY(put_int(writer, 8, numbers[2]));
    }
    TRY(put_length(writer, -1)); /* aborted_transactions */
    if (version >= FIRST_WITH_RACK) {
        TRY(put_int(writer, 4, -1)); /* preferred_read_replica */
    }
    TRY(records == Py_None ? put_length(writer, 0) : put_known_records(writer, records));
    return put_no_tags(writer);
}

/* The frame of the answer to a fetch of one partition that was read. */
static int
put_records_response(Writer *writer, int correlation_id, PyObject *topic, PyObject *topic_id, const int64_t *numbers,
                     PyObject *records)
{
    TRY(reserve(writer, 256));
    TRY(put_head(writer, correlation_id, 0, 1));
    TRY(writer->version < FIRST_WITH_IDS ? put_text(writer, topic) : put_id(writer, topic_id));
    TRY(put_length(writer, 1));
    TRY(put_read(writer, numbers, records));
    TRY(put_no_tags(writer));
    TRY(put_no_tags(writer));
    return cut(writer, NULL, 0);
}

PyDoc_STRVAR(encode_records_doc,
             "encode_records(version, correlation_id, topic, topic_id, index, high_watermark, log_start_offset, "
             "records): the\nparts of the frame; None: build the response, and encode it.");

static PyObject *
encode_records(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "encode_records takes 8 arguments");
        return NULL;
    }
    int version = (int)PyLong_AsLong(args[0]), correlation_id = (int)PyLong_AsLong(args[1]);
    int64_t numbers[] = {PyLong_AsLongLong(args[4]), PyLong_AsLongLong(args[5]), PyLong_AsLongLong(args[6])};
    if (PyErr_Occurred() || !is_bound()) {
        return NULL;
    }
    if (version < FIRST_VERSION || version > LAST_VERSION) {
        Py_RETURN_NONE;
    }
    Writer writer = {.parts = PyList_New(0), .version = version};
    int outcome = FAILED;
    if (writer.parts != NULL) {
        outcome = put_records_response(&writer, correlation_id, args[2], args[3], numbers, args[7]);
    }
    return finish(&writer, outcome);
}

/* The places in what encode_reads is given for each partition. */
enum { TOPIC, TOPIC_ID, NUMBERS, RECORDS = NUMBERS + 3, READ_FIELDS };

/* How many of the partitions from a place on are of the same topic. Partitions keep their order, so that a topic may come
 * more than once. */
static Py_ssize_t
topic_end(PyObject *reads, Py_ssize_t begin)
{
    PyObject *first = PyList_GetItem(reads, begin);
    Py_ssize_t end = begin + 1;
    for (; end < PyList_Size(reads); end++) {
        PyObject *next = PyList_GetItem(reads, end);
        for (int field = TOPIC; field <= TOPIC_ID; field++) {
            int is_same = PyObject_RichCompareBool(PyTuple_GetItem(first, field), PyTuple_GetItem(next, field), Py_EQ);
            if (is_same != 1) {
                return is_same < 0 ? -1 : end;
            }
        }
    }
    return end;
}

static int
put_reads_of_topic(Writer *writer, PyObject *reads, Py_ssize_t begin, Py_ssize_t end)
{
    PyObject *first = PyList_GetItem(reads, begin);
    TRY(writer->version < FIRST_WITH_IDS ? put_text(writer, PyTuple_GetItem(first, TOPIC))
                                         : put_id(writer, PyTuple_GetItem(first, TOPIC_ID)));
    TRY(put_length(writer, end - begin));
    for (Py_ssize_t index = begin; index < end; index++) {
        PyObject *read = PyList_GetItem(reads, index);
        int64_t numbers[3];
        for (int number = 0; number < 3; number++) {
            numbers[number] = PyLong_AsLongLong(PyTuple_GetItem(read, NUMBERS + number));
        }
        if (PyErr_Occurred()) {
            return FAILED;
        }
        TRY(put_read(writer, numbers, PyTuple_GetItem(read, RECORDS)));
    }
    return put_no_tags(writer);
}

/* The frame of the answer to a fetch of partitions that were read. */
static int
put_reads_response(Writer *writer, int correlation_id, int session_id, PyObject *reads)
{
    Py_ssize_t count = PyList_Size(reads), topics = 0, begin, end;
    for (begin = 0; begin < count; begin = end, topics++) {
        end = topic_end(reads, begin);
        if (end < 0) {
            return FAILED;
        }
    }
    TRY(reserve(writer, 64 + 64 * count));
    TRY(put_head(writer, correlation_id, session_id, topics));
    for (begin = 0; begin < count; begin = end) {
        end = topic_end(reads, begin);
        if (end < 0) {
            return FAILED;
        }
        TRY(put_reads_of_topic(writer, reads, begin, end));
    }
    TRY(put_no_tags(writer));
    return cut(writer, NULL, 0);
}

/* Whether what encode_reads is given has the shape that is expected. */
static int
are_reads(PyObject *reads)
{
    if (!PyList_CheckExact(reads)) {
        return 0;
    }
    for (Py_ssize_t index = 0; index < PyList_Size(reads); index++) {
        PyObject *read = PyList_GetItem(reads, index);
        if (!PyTuple_CheckExact(read) || PyTuple_Size(read) != READ_FIELDS) {
            return 0;
        }
    }
    return 1;
}

PyDoc_STRVAR(encode_reads_doc,
             "encode_reads(version, correlation_id, session_id, reads): the parts of the frame; None: build the response, "
             "and\nencode it. A read is a tuple: topic, topic_id, index, high_watermark, log_start_offset, records.");

static PyObject *
encode_reads(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !are_reads(args[3])) {
        PyErr_SetString(PyExc_TypeError, "encode_reads takes 3 numbers and a list of tuples");
        return NULL;
    }
    int version = (int)PyLong_AsLong(args[0]), correlation_id = (int)PyLong_AsLong(args[1]);
    int session_id = (int)PyLong_AsLong(args[2]);
    if (PyErr_Occurred() || !is_bound()) {
        return NULL;
    }
    if (version < FIRST_VERSION || version > LAST_VERSION) {
        Py_RETURN_NONE;
    }
    Writer writer = {.parts = PyList_New(0), .version = version};
    int outcome = writer.parts == NULL ? FAILED : put_reads_response(&writer, correlation_id, session_id, args[3]);
    return finish(&writer, outcome);
}

/* The module ---------------------------------------------------------------------------------------------- */

static int
find_slot(PyTypeObject *type, const char *name, Slot *slot)
{
    slot->descriptor = PyObject_GetAttrString((PyObject *)type, name);
    if (slot->descriptor == NULL) {
        return -1;
    }
    slot->set = (descrsetfunc)PyType_GetSlot(Py_TYPE(slot->descriptor), Py_tp_descr_set);
    if (slot->set == NULL) {
        PyErr_Format(PyExc_TypeError, "%s is not in a slot of its class", name);
        return -1;
    }
    return 0;
}

static int
find_slots(const Bound *next)
{
#define FIND_SLOT(name) || find_slot(type, #name, &d_##name) < 0
    PyTypeObject *type = next->request;
    if (0 REQUEST_SLOTS(FIND_SLOT)) {
        return -1;
    }
    type = next->topic;
    if (0 TOPIC_SLOTS(FIND_SLOT)) {
        return -1;
    }
    type = next->partition;
    return 0 PARTITION_SLOTS(FIND_SLOT) ? -1 : 0;
#undef FIND_SLOT
}

PyDoc_STRVAR(bind_doc, "bind(...): the classes and shared values of protocol.fetch_codec.");

static PyObject *
bind(PyObject *module, PyObject *args)
{
    Bound next;
    PyTypeObject *type = &PyType_Type;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!O!OOOOOO:bind", type, &next.request, type, &next.topic, type,
                          &next.partition, type, &next.slice, type, &next.response, type, &next.topic_response,
                          type, &next.data, &next.uuid_of, &next.no_id, &next.replica_state,
                          &next.no_divergence, &next.no_leader, &next.no_snapshot)) {
        return NULL;
    }
    if (find_slots(&next) < 0) {
        return NULL;
    }
    PyObject *kept[] = {
        (PyObject *)next.request, (PyObject *)next.topic, (PyObject *)next.partition, (PyObject *)next.slice,
        (PyObject *)next.response, (PyObject *)next.topic_response, (PyObject *)next.data, next.uuid_of,
        next.no_id, next.replica_state, next.no_divergence, next.no_leader, next.no_snapshot,
    };
    for (size_t index = 0; index < sizeof kept / sizeof *kept; index++) {
        Py_INCREF(kept[index]);
    }
    bound = next; /* What an earlier call has bound is kept for ever. */
    Py_RETURN_NONE;
}

static int
prepare(PyObject *module)
{
#define INTERN(name)                                                                                              \
    if (s_##name == NULL && (s_##name = PyUnicode_InternFromString(#name)) == NULL) {                             \
        return -1;                                                                                                \
    }
    NAMES(INTERN)
#undef INTERN
    if (minus_one == NULL) {
        minus_one = PyLong_FromLong(-1);
        no_bytes = PyBytes_FromStringAndSize("", 0);
        no_text = PyUnicode_FromStringAndSize("", 0);
    }
    return minus_one == NULL || no_bytes == NULL || no_text == NULL ? -1 : 0;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, bind_doc},
    {"decode", decode, METH_VARARGS, decode_doc},
    {"encode", encode, METH_VARARGS, encode_doc},
    {"encode_records", (PyCFunction)(void (*)(void))encode_records, METH_FASTCALL, encode_records_doc},
    {"encode_reads", (PyCFunction)(void (*)(void))encode_reads, METH_FASTCALL, encode_reads_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._fetch_codec",
    .m_doc = "Fetch requests and responses, compiled. See holdfast_log.protocol.fetch_codec.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__fetch_codec(void)
{
    return PyModuleDef_Init(&module);
}
