/* What a broker does with the bytes of a produce request, compiled: it decodes the request, checks a batch, writes
 * offset and leader epoch into it, and encodes the response. protocol/plain_produce.py and the decoders and encoders of
 * protocol/schema.py do the same in Python; tests compare the two. Where this file was not compiled, Python is used.
 *
 * This file knows the usual case only. For everything else, and for everything that is wrong, a function returns None,
 * and the caller does the same in Python, which also finds the right error. So nothing here needs a message.
 *
 * A peer wrote everything that is read here. A cursor never moves beyond the end of its bytes, and no size is trusted
 * before it is compared with the bytes that remain. Bytes are never copied: records are views of the frame.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_plain_batch.h"
#include "_reading.h"
#include "_slots.h"

#define FIRST_VERSION 3  /* the first with record batches */
#define LAST_VERSION 12
#define FLEXIBLE_FROM 9  /* compact lengths and tagged fields */
#define LOG_START_FROM 5
#define MESSAGE_FROM 8   /* record errors and an error message */
#define ELEMENTS_MAX 64  /* topics and partitions of a request; more are left to Python, which limits memory */

/* Attributes of Python objects ------------------------------------------------------------------------------ */

#define OPTIONAL_MAX 16

/* The fields of a class that the usual message leaves at their defaults. A default of NULL is a new list. */
typedef struct {
    Py_ssize_t count;
    Slot slots[OPTIONAL_MAX];
    PyObject *defaults[OPTIONAL_MAX];
} Optional;

typedef struct {
    PyTypeObject *request, *topic, *data, *response, *topic_response, *partition_response, *leader, *header;
    Slot transactional_id, acks, timeout_ms, topic_data;
    Slot name, partition_data;
    Slot index, records;
    Optional data_rest;
    Slot responses, throttle_time_ms, node_endpoints;
    Slot response_name, partition_responses;
    Slot response_index, error_code, base_offset, log_append_time_ms, log_start_offset, current_leader;
    Optional response_rest;
    Slot leader_id, leader_epoch;
    PyObject *crc32c;
    PyObject *no_leader; /* shared by all responses without one; never modified */
    newfunc new_tuple;
} State;

static int
get_number(const Slot *slot, PyObject *object, int64_t least, int64_t most, int64_t *number)
{
    PyObject *value = get(slot, object);
    if (value == NULL) {
        return -1;
    }
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    if ((*number == -1 && PyErr_Occurred()) || *number < least || *number > most) {
        return -1;
    }
    return 0;
}

static PyObject *
new_object(PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

static int
set_defaults(const Optional *optional, PyObject *object)
{
    for (Py_ssize_t number = 0; number < optional->count; number++) {
        PyObject *value = optional->defaults[number];
        int done = value == NULL ? set_new(&optional->slots[number], object, PyList_New(0))
                                 : set(&optional->slots[number], object, value);
        if (done < 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether all optional fields have their defaults; -1 after an error. */
static int
has_defaults(const Optional *optional, PyObject *object)
{
    for (Py_ssize_t number = 0; number < optional->count; number++) {
        PyObject *value = get(&optional->slots[number], object);
        if (value == NULL) {
            return -1;
        }
        PyObject *known = optional->defaults[number];
        int is_default = known == NULL ? PyList_Check(value) && PyList_Size(value) == 0
                                       : PyObject_RichCompareBool(value, known, Py_EQ);
        Py_DECREF(value);
        if (is_default != 1) {
            return is_default;
        }
    }
    return 1;
}

/* What a function returns that has found something unusual: None. Lack of memory stays an error. */
static PyObject *
leave_to_python(void)
{
    if (PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
            return NULL;
        }
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

/* Decoding a request ---------------------------------------------------------------------------------------- */

typedef struct {
    const State *state;
    PyObject *frame;
    const uint8_t *begin;
    Cursor cursor;
    int elements;
} Request;

static int
read_count(Request *request, int64_t *count)
{
    if (read_length(&request->cursor, 4, count) < 0 || *count < 0 || *count > ELEMENTS_MAX - request->elements) {
        return -1;
    }
    request->elements += (int)*count;
    return 0;
}

static PyObject *
read_records(Request *request)
{
    int64_t size;
    if (read_length(&request->cursor, 4, &size) < 0) {
        return NULL;
    }
    if (size == -1) {
        Py_RETURN_NONE;
    }
    const uint8_t *at = take(&request->cursor, size);
    if (at == NULL) {
        return NULL;
    }
    return PySequence_GetSlice(request->frame, at - request->begin, request->cursor.at - request->begin);
}

static PyObject *
read_partition(Request *request)
{
    const State *state = request->state;
    const uint8_t *at = take(&request->cursor, 4);
    if (at == NULL) {
        return NULL;
    }
    PyObject *data = new_object(state->data);
    if (data == NULL) {
        return NULL;
    }
    if (set_new(&state->index, data, PyLong_FromLong(int32_at(at))) < 0
        || set_new(&state->records, data, read_records(request)) < 0 || set_defaults(&state->data_rest, data) < 0
        || end_struct(&request->cursor) < 0) {
        Py_DECREF(data);
        return NULL;
    }
    return data;
}

static PyObject *
read_name(Request *request)
{
    int64_t size;
    if (read_length(&request->cursor, 2, &size) < 0 || size > STRING_BYTES_MAX) {
        return NULL;
    }
    const uint8_t *at = take(&request->cursor, size);
    return at == NULL ? NULL : PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, NULL);
}

static PyObject *
read_list(Request *request, PyObject *(*read_element)(Request *))
{
    int64_t count;
    if (read_count(request, &count) < 0) {
        return NULL;
    }
    PyObject *list = PyList_New((Py_ssize_t)count);
    if (list == NULL) {
        return NULL;
    }
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *element = read_element(request);
        if (element == NULL || PyList_SetItem(list, number, element) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *
read_topic(Request *request)
{
    const State *state = request->state;
    PyObject *topic = new_object(state->topic);
    if (topic == NULL) {
        return NULL;
    }
    if (set_new(&state->name, topic, read_name(request)) < 0
        || set_new(&state->partition_data, topic, read_list(request, read_partition)) < 0 || end_struct(&request->cursor) < 0) {
        Py_DECREF(topic);
        return NULL;
    }
    return topic;
}

static PyObject *
read_request(Request *request)
{
    const State *state = request->state;
    int64_t size;
    /* A transactional id is refused, with a message, in Python. */
    if (read_length(&request->cursor, 2, &size) < 0 || size != -1) {
        return NULL;
    }
    const uint8_t *at = take(&request->cursor, 6);
    if (at == NULL) {
        return NULL;
    }
    PyObject *made = new_object(state->request);
    if (made == NULL) {
        return NULL;
    }
    if (set(&state->transactional_id, made, Py_None) < 0
        || set_new(&state->acks, made, PyLong_FromLong(int16_at(at))) < 0
        || set_new(&state->timeout_ms, made, PyLong_FromLong(int32_at(at + 2))) < 0
        || set_new(&state->topic_data, made, read_list(request, read_topic)) < 0 || end_struct(&request->cursor) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

PyDoc_STRVAR(decode_doc, "decode(frame, version, position)\n--\n\n"
                         "The ProduceRequest at a position of a frame; None: use the generic decoder.");

static PyObject *
decode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "decode takes a frame, a version and a position");
        return NULL;
    }
    long version = PyLong_AsLong(args[1]);
    Py_ssize_t position = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer buffer;
    if (version < FIRST_VERSION || version > LAST_VERSION || PyObject_GetBuffer(args[0], &buffer, PyBUF_SIMPLE) < 0) {
        return leave_to_python();
    }
    PyObject *request = NULL;
    if (position >= 0 && position <= buffer.len) {
        const uint8_t *begin = buffer.buf;
        Request reading = {
            .state = PyModule_GetState(module),
            .frame = args[0],
            .begin = begin,
            .cursor = {begin + position, begin + buffer.len, version >= FLEXIBLE_FROM},
        };
        request = read_request(&reading);
    }
    PyBuffer_Release(&buffer);
    return request == NULL ? leave_to_python() : request;
}

/* Encoding a response --------------------------------------------------------------------------------------- */

typedef struct {
    const State *state;
    long version;
    uint8_t *start;
    size_t size;
    size_t capacity;
} Writer;

/* Room for `size` more bytes. */
static uint8_t *
add(Writer *writer, size_t size)
{
    if (size > writer->capacity - writer->size) {
        size_t capacity = (writer->capacity + size) * 2;
        uint8_t *start = PyMem_Realloc(writer->start, capacity);
        if (start == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        writer->start = start;
        writer->capacity = capacity;
    }
    uint8_t *added = writer->start + writer->size;
    writer->size += size;
    return added;
}

static int
add_number(Writer *writer, int64_t number, int size)
{
    uint8_t *at = add(writer, (size_t)size);
    if (at == NULL) {
        return -1;
    }
    write_number(at, (uint64_t)number, size);
    return 0;
}

static int
add_length(Writer *writer, Py_ssize_t length, int size)
{
    if (writer->version < FLEXIBLE_FROM) {
        return add_number(writer, length, size);
    }
    uint64_t rest = (uint64_t)length + 1;
    for (; rest > 0x7F; rest >>= 7) {
        if (add_number(writer, (int64_t)(rest & 0x7F) | 0x80, 1) < 0) {
            return -1;
        }
    }
    return add_number(writer, (int64_t)rest, 1);
}

/* The end of a struct without tagged fields. */
static int
add_end(Writer *writer)
{
    return writer->version < FLEXIBLE_FROM ? 0 : add_number(writer, 0, 1);
}

/* Whether a response names no leader; -1 after an error. */
static int
has_no_leader(const State *state, PyObject *response)
{
    PyObject *leader = get(&state->current_leader, response);
    if (leader == NULL || leader == state->no_leader) {
        Py_XDECREF(leader);
        return leader == NULL ? -1 : 1;
    }
    int64_t id = 0, epoch = 0;
    int is_read = Py_TYPE(leader) == state->leader && get_number(&state->leader_id, leader, -1, -1, &id) == 0
                  && get_number(&state->leader_epoch, leader, -1, -1, &epoch) == 0;
    Py_DECREF(leader);
    return is_read;
}

static int
write_partition(Writer *writer, PyObject *response)
{
    const State *state = writer->state;
    int64_t index, error_code, base_offset, append_time, log_start;
    if (Py_TYPE(response) != state->partition_response
        || get_number(&state->response_index, response, INT32_MIN, INT32_MAX, &index) < 0
        || get_number(&state->error_code, response, 0, 0, &error_code) < 0
        || get_number(&state->base_offset, response, INT64_MIN, INT64_MAX, &base_offset) < 0
        || get_number(&state->log_append_time_ms, response, INT64_MIN, INT64_MAX, &append_time) < 0
        || get_number(&state->log_start_offset, response, INT64_MIN, INT64_MAX, &log_start) < 0
        || has_no_leader(state, response) != 1 || has_defaults(&state->response_rest, response) != 1) {
        return -1;
    }
    uint8_t *at = add(writer, writer->version < LOG_START_FROM ? 22 : 30);
    if (at == NULL) {
        return -1;
    }
    write_number(at, (uint64_t)index, 4);
    write_number(at + 4, (uint64_t)error_code, 2);
    write_number(at + 6, (uint64_t)base_offset, 8);
    write_number(at + 14, (uint64_t)append_time, 8);
    if (writer->version >= LOG_START_FROM) {
        write_number(at + 22, (uint64_t)log_start, 8);
    }
    /* No record errors, and no message. */
    if (writer->version >= MESSAGE_FROM && (add_length(writer, 0, 4) < 0 || add_length(writer, -1, 2) < 0)) {
        return -1;
    }
    return add_end(writer);
}

static int
write_list(Writer *writer, PyObject *list, int (*write_element)(Writer *, PyObject *))
{
    if (list == NULL || !PyList_Check(list)) {
        return -1;
    }
    Py_ssize_t count = PyList_Size(list);
    if (count > INT32_MAX - 1 || add_length(writer, count, 4) < 0) {
        return -1;
    }
    for (Py_ssize_t number = 0; number < count; number++) {
        if (write_element(writer, PyList_GetItem(list, number)) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
write_topic(Writer *writer, PyObject *topic)
{
    const State *state = writer->state;
    if (Py_TYPE(topic) != state->topic_response) {
        return -1;
    }
    PyObject *name = get(&state->response_name, topic);
    if (name == NULL) {
        return -1;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
    uint8_t *at = NULL;
    if (text != NULL && size <= STRING_BYTES_MAX && add_length(writer, size, 2) == 0) {
        at = add(writer, (size_t)size);
    }
    if (at != NULL) {
        memcpy(at, text, (size_t)size);
    }
    Py_DECREF(name);
    if (at == NULL) {
        return -1;
    }
    PyObject *partitions = get(&state->partition_responses, topic);
    int done = write_list(writer, partitions, write_partition);
    Py_XDECREF(partitions);
    return done < 0 ? -1 : add_end(writer);
}

static int
write_response(Writer *writer, PyObject *response, int64_t correlation_id)
{
    const State *state = writer->state;
    int64_t throttle_ms;
    PyObject *endpoints = get(&state->node_endpoints, response);
    int is_plain = endpoints != NULL && PyList_Check(endpoints) && PyList_Size(endpoints) == 0;
    Py_XDECREF(endpoints);
    if (!is_plain || get_number(&state->throttle_time_ms, response, INT32_MIN, INT32_MAX, &throttle_ms) < 0) {
        return -1;
    }
    if (add_number(writer, 0, 4) < 0 || add_number(writer, correlation_id, 4) < 0 || add_end(writer) < 0) {
        return -1;
    }
    PyObject *topics = get(&state->responses, response);
    int done = write_list(writer, topics, write_topic);
    Py_XDECREF(topics);
    if (done < 0 || add_number(writer, throttle_ms, 4) < 0 || add_end(writer) < 0 || writer->size > INT32_MAX) {
        return -1;
    }
    write_number(writer->start, writer->size - 4, 4);
    return 0;
}

PyDoc_STRVAR(encode_doc, "encode(response, version, correlation_id)\n--\n\n"
                         "A ProduceResponse as a frame, its size and header included; None: use the generic encoder.");

static PyObject *
encode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const State *state = PyModule_GetState(module);
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "encode takes a response, a version and a correlation id");
        return NULL;
    }
    long version = PyLong_AsLong(args[1]);
    long long correlation_id = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (version < FIRST_VERSION || version > LAST_VERSION || Py_TYPE(args[0]) != state->response
        || correlation_id < INT32_MIN || correlation_id > INT32_MAX) {
        Py_RETURN_NONE;
    }
    Writer writer = {.state = state, .version = version};
    PyObject *frame = NULL;
    if (add(&writer, 128) != NULL) {
        writer.size = 0;
        if (write_response(&writer, args[0], correlation_id) == 0) {
            frame = PyBytes_FromStringAndSize((const char *)writer.start, (Py_ssize_t)writer.size);
        }
    }
    PyMem_Free(writer.start);
    if (frame == NULL) {
        return leave_to_python();
    }
    PyObject *parts = PyList_New(1);
    if (parts == NULL) {
        Py_DECREF(frame);
        return NULL;
    }
    PyList_SetItem(parts, 0, frame);
    return parts;
}

/* The response to a request whose appends have all succeeded ------------------------------------------------ */

/* The row of one partition: topic, index, first offset, log append time, log start offset. */
#define ROW_SIZE 5

static PyObject *
acknowledged_partition(const State *state, PyObject *row)
{
    PyObject *response = new_object(state->partition_response);
    if (response == NULL) {
        return NULL;
    }
    if (set(&state->response_index, response, PyTuple_GetItem(row, 1)) < 0
        || set_new(&state->error_code, response, PyLong_FromLong(0)) < 0
        || set(&state->base_offset, response, PyTuple_GetItem(row, 2)) < 0
        || set(&state->log_append_time_ms, response, PyTuple_GetItem(row, 3)) < 0
        || set(&state->log_start_offset, response, PyTuple_GetItem(row, 4)) < 0
        || set(&state->current_leader, response, state->no_leader) < 0
        || set_defaults(&state->response_rest, response) < 0) {
        Py_DECREF(response);
        return NULL;
    }
    return response;
}

/* The list for a topic's partitions; a borrowed reference. A new topic is added to the response. */
static PyObject *
partitions_of(const State *state, PyObject *name, PyObject *by_name, PyObject *topics)
{
    PyObject *partitions = PyDict_GetItemWithError(by_name, name);
    if (partitions != NULL || PyErr_Occurred()) {
        return partitions;
    }
    partitions = PyList_New(0);
    PyObject *topic = new_object(state->topic_response);
    int done = -1;
    if (partitions != NULL && topic != NULL && set(&state->response_name, topic, name) == 0
        && set(&state->partition_responses, topic, partitions) == 0 && PyDict_SetItem(by_name, name, partitions) == 0) {
        done = PyList_Append(topics, topic);
    }
    Py_XDECREF(topic);
    Py_XDECREF(partitions);
    return done < 0 ? NULL : partitions;
}

PyDoc_STRVAR(acknowledgement_doc, "acknowledgement(rows)\n--\n\n"
                                  "See plain_produce.acknowledgement_in_python.");

static PyObject *
acknowledgement(PyObject *module, PyObject *rows)
{
    const State *state = PyModule_GetState(module);
    if (!PyList_Check(rows)) {
        PyErr_SetString(PyExc_TypeError, "rows are a list");
        return NULL;
    }
    PyObject *response = new_object(state->response);
    PyObject *topics = PyList_New(0);
    PyObject *by_name = PyDict_New();
    int done = -1;
    if (response == NULL || topics == NULL || by_name == NULL) {
        goto end;
    }
    Py_ssize_t count = PyList_Size(rows);
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *row = PyList_GetItem(rows, number);
        if (!PyTuple_Check(row) || PyTuple_Size(row) != ROW_SIZE) {
            PyErr_SetString(PyExc_TypeError, "a row is a tuple of a topic and four numbers");
            goto end;
        }
        PyObject *partitions = partitions_of(state, PyTuple_GetItem(row, 0), by_name, topics);
        PyObject *partition = partitions == NULL ? NULL : acknowledged_partition(state, row);
        int added = partition == NULL ? -1 : PyList_Append(partitions, partition);
        Py_XDECREF(partition);
        if (added < 0) {
            goto end;
        }
    }
    if (set(&state->responses, response, topics) == 0
        && set_new(&state->throttle_time_ms, response, PyLong_FromLong(0)) == 0) {
        done = set_new(&state->node_endpoints, response, PyList_New(0));
    }
end:
    Py_XDECREF(topics);
    Py_XDECREF(by_name);
    if (done < 0) {
        Py_CLEAR(response);
    }
    return response;
}

/* Checking a batch ------------------------------------------------------------------------------------------ */

PyDoc_STRVAR(plain_header_doc, "plain_header(records, size_max, now_ms, before_max_ms, after_max_ms)\n--\n\n"
                               "See plain_produce.plain_header_in_python.");

static PyObject *
plain_header(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const State *state = PyModule_GetState(module);
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "plain_header takes records and four numbers");
        return NULL;
    }
    int64_t size_max = PyLong_AsLongLong(args[1]), now_ms = PyLong_AsLongLong(args[2]);
    int64_t before_max_ms = PyLong_AsLongLong(args[3]), after_max_ms = PyLong_AsLongLong(args[4]);
    Py_buffer buffer;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &buffer, PyBUF_SIMPLE) < 0) {
        return leave_to_python();
    }
    const uint8_t *batch = buffer.buf;
    BatchLimits limits = {size_max, before_max_ms, after_max_ms};
    PyObject *header = NULL;
    if (is_plain_batch(state->crc32c, batch, buffer.len, &limits, now_ms)) {
        header = new_header(state->header, state->new_tuple, batch);
    }
    PyBuffer_Release(&buffer);
    return header == NULL ? leave_to_python() : header;
}

PyDoc_STRVAR(assign_doc, "assign(batches, position, base_offset, leader_epoch)\n--\n\n"
                         "See batches.assign.");

static PyObject *
assign(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "assign takes batches, a position, an offset and a leader epoch");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[1]);
    int64_t base_offset = PyLong_AsLongLong(args[2]), leader_epoch = PyLong_AsLongLong(args[3]);
    Py_buffer buffer;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &buffer, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    int fits = position >= 0 && position <= buffer.len - LEADER_EPOCH_AT - 4 && leader_epoch >= INT32_MIN
               && leader_epoch <= INT32_MAX;
    if (fits) {
        uint8_t *at = (uint8_t *)buffer.buf + position;
        write_number(at, (uint64_t)base_offset, 8);
        write_number(at + LEADER_EPOCH_AT, (uint64_t)leader_epoch, 4);
    }
    PyBuffer_Release(&buffer);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "a batch that is not within the buffer, or a leader epoch of over 32 bits");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The module ------------------------------------------------------------------------------------------------ */

/* The fields of `template`, whose values are the defaults, except those in `known`, which ends with NULL. */
static int
find_optional(PyTypeObject *type, PyObject *template, const char *const *known, Optional *optional)
{
    PyObject *names = PyObject_GetAttrString((PyObject *)type, "__slots__");
    Py_ssize_t count = names == NULL ? -1 : PyTuple_Size(names);
    for (Py_ssize_t number = 0; number < count; number++) {
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, number), NULL);
        int is_known = name == NULL;
        for (const char *const *each = known; *each != NULL && !is_known; each++) {
            is_known = strcmp(name, *each) == 0;
        }
        if (is_known) {
            continue;
        }
        PyObject *value = optional->count < OPTIONAL_MAX ? PyObject_GetAttrString(template, name) : NULL;
        if (value == NULL || find_slot(type, name, &optional->slots[optional->count]) < 0) {
            Py_XDECREF(value);
            count = -1;
            break;
        }
        if (PyList_Check(value)) {
            Py_CLEAR(value);
        }
        optional->defaults[optional->count++] = value;
    }
    Py_XDECREF(names);
    return count < 0 || PyErr_Occurred() ? -1 : 0;
}

static PyTypeObject *
class_of(PyObject *module, const char *name)
{
    return (PyTypeObject *)PyObject_GetAttrString(module, name);
}

static int
find_messages(State *state)
{
    static const char *const data_known[] = {"index", "records", NULL};
    static const char *const response_known[] = {
        "index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset", "current_leader", NULL};
    PyObject *messages = PyImport_ImportModule("holdfast_log.protocol.messages.produce");
    if (messages == NULL) {
        return -1;
    }
    PyObject *data = NULL, *response = NULL;
    int done = -1;
    if ((state->request = class_of(messages, "ProduceRequest")) == NULL
        || (state->topic = class_of(messages, "TopicProduceData")) == NULL
        || (state->data = class_of(messages, "PartitionProduceData")) == NULL
        || (state->response = class_of(messages, "ProduceResponse")) == NULL
        || (state->topic_response = class_of(messages, "TopicProduceResponse")) == NULL
        || (state->partition_response = class_of(messages, "PartitionProduceResponse")) == NULL
        || (state->leader = class_of(messages, "LeaderIdAndEpoch")) == NULL
        || find_slot(state->request, "transactional_id", &state->transactional_id) < 0
        || find_slot(state->request, "acks", &state->acks) < 0
        || find_slot(state->request, "timeout_ms", &state->timeout_ms) < 0
        || find_slot(state->request, "topic_data", &state->topic_data) < 0
        || find_slot(state->topic, "name", &state->name) < 0
        || find_slot(state->topic, "partition_data", &state->partition_data) < 0
        || find_slot(state->data, "index", &state->index) < 0
        || find_slot(state->data, "records", &state->records) < 0
        || find_slot(state->response, "responses", &state->responses) < 0
        || find_slot(state->response, "throttle_time_ms", &state->throttle_time_ms) < 0
        || find_slot(state->response, "node_endpoints", &state->node_endpoints) < 0
        || find_slot(state->topic_response, "name", &state->response_name) < 0
        || find_slot(state->topic_response, "partition_responses", &state->partition_responses) < 0
        || find_slot(state->partition_response, "index", &state->response_index) < 0
        || find_slot(state->partition_response, "error_code", &state->error_code) < 0
        || find_slot(state->partition_response, "base_offset", &state->base_offset) < 0
        || find_slot(state->partition_response, "log_append_time_ms", &state->log_append_time_ms) < 0
        || find_slot(state->partition_response, "log_start_offset", &state->log_start_offset) < 0
        || find_slot(state->partition_response, "current_leader", &state->current_leader) < 0
        || find_slot(state->leader, "leader_id", &state->leader_id) < 0
        || find_slot(state->leader, "leader_epoch", &state->leader_epoch) < 0) {
        goto end;
    }
    PyObject *nothing = PyTuple_New(0);
    PyObject *fields = Py_BuildValue("{s:i,s:O}", "index", 0, "records", Py_None);
    if (nothing != NULL && fields != NULL) {
        data = PyObject_Call((PyObject *)state->data, nothing, fields);
    }
    Py_XDECREF(fields);
    fields = Py_BuildValue("{s:i,s:i,s:i}", "index", 0, "error_code", 0, "base_offset", 0);
    if (nothing != NULL && fields != NULL) {
        response = PyObject_Call((PyObject *)state->partition_response, nothing, fields);
    }
    Py_XDECREF(fields);
    Py_XDECREF(nothing);
    state->no_leader = PyObject_CallFunctionObjArgs((PyObject *)state->leader, NULL);
    if (data != NULL && response != NULL && state->no_leader != NULL
        && find_optional(state->data, data, data_known, &state->data_rest) == 0
        && find_optional(state->partition_response, response, response_known, &state->response_rest) == 0) {
        done = 0;
    }
end:
    Py_XDECREF(data);
    Py_XDECREF(response);
    Py_DECREF(messages);
    return done;
}

static int
execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    memset(state, 0, sizeof *state);
    state->new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    state->crc32c = attribute_of("holdfast_log.protocol.checksum", "crc32c");
    state->header = (PyTypeObject *)attribute_of("holdfast_log.protocol.batches", "BatchHeader");
    if (state->crc32c == NULL || state->header == NULL) {
        return -1;
    }
    return find_messages(state);
}

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL, decode_doc},
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL, encode_doc},
    {"acknowledgement", acknowledgement, METH_O, acknowledgement_doc},
    {"plain_header", (PyCFunction)(void (*)(void))plain_header, METH_FASTCALL, plain_header_doc},
    {"assign", (PyCFunction)(void (*)(void))assign, METH_FASTCALL, assign_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

/* The classes and slots that the state refers to live as long as the process: so does the module. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._produce_codec",
    .m_doc = "What a broker does with the bytes of a produce request, compiled.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__produce_codec(void)
{
    return PyModuleDef_Init(&module);
}
