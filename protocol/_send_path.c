/* What a producer does for each message, compiled: the usual message goes from `send` into its batch in one call.
 *
 * The types below hold the fields of Python classes, which inherit them from send_fields.py, so that this file reads
 * and writes them without looking names up. They have no behaviour of their own, except that a message is filled here.
 *
 * `SendPath.send` queues a message only if nothing about it is unusual. For everything else, errors included, it calls
 * the Python function that it stands for, which repeats every check, so that there is one place for each decision and
 * each error. It changes nothing before it knows that it can finish, and runs no code of the application.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>

#define UNPLACED (-1)
#define RECORD_OVERHEAD 240 /* as in clients/sending/queues.py */
#define TYPICAL_OVERHEAD 14 /* as in records.py */
#define PARTITION_MAX INT32_MAX

#define MESSAGE_FIELDS 9

/* The classes that inherit the fields below, and what a message has if nothing is said. Set once, by `bind`. */
static PyTypeObject *message_type, *response_type, *batch_type, *builder_type, *topic_type, *partition_type, *queues_type;
static PyObject *message_names[MESSAGE_FIELDS], *message_defaults[MESSAGE_FIELDS], *fill_in_python, *send_in_python;

/* The fields of Python classes ---------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *topic, *key, *value, *partition, *timestamp, *headers, *offset, *expected_version, *topic_id;
} Message;

typedef struct {
    PyObject_HEAD
    PyObject *keys, *values, *timestamps;
    Py_ssize_t size;
} Builder;

typedef struct {
    PyObject_HEAD
    PyObject *builder;
    Py_ssize_t cost;
    char is_closed;
} Batch;

typedef struct {
    PyObject_HEAD
    PyObject *batches;
} PartitionQueue;

typedef struct {
    PyObject_HEAD
    PyObject *partitions, *keyless;
    Py_ssize_t partition_count, keyless_partition, batch_size;
} TopicQueues;

typedef struct {
    PyObject_HEAD
    PyObject *topics, *fatal_error, *barrier;
    Py_ssize_t used;
    char is_closed;
} Queues;

typedef struct {
    PyObject_HEAD
    PyObject *acquire, *release, *queues, *wall_ms, *murmur2, *timestamp;
    Py_ssize_t size_max, buffer_memory;
    int64_t timestamp_ms;
} Sender;

typedef struct {
    PyObject_HEAD
    PyObject *batch;
    Py_ssize_t index;
} Place;

/* All references of an object come first in it, so that one pair of functions serves all types. */
static inline PyObject **
references(PyObject *self)
{
    return (PyObject **)((char *)self + sizeof(PyObject));
}

static inline void
drop_references(PyObject *self, int count)
{
    PyObject **all = references(self);
    for (int index = 0; index < count; index++) {
        Py_CLEAR(all[index]);
    }
}

#define FIELDS_OF(Type, count, ...)                                                                                  \
    static int Type##_traverse(PyObject *self, visitproc visit, void *arg)                                         \
    {                                                                                                              \
        Py_VISIT(Py_TYPE(self));                                                                                   \
        for (int index = 0; index < (count); index++) {                                                            \
            Py_VISIT(references(self)[index]);                                                                     \
        }                                                                                                          \
        return 0;                                                                                                  \
    }                                                                                                              \
    static int Type##_clear(PyObject *self)                                                                        \
    {                                                                                                              \
        drop_references(self, (count));                                                                            \
        return 0;                                                                                                  \
    }                                                                                                              \
    static void Type##_dealloc(PyObject *self)                                                                     \
    {                                                                                                              \
        PyTypeObject *type = Py_TYPE(self);                                                                        \
        PyObject_GC_UnTrack(self);                                                                                 \
        drop_references(self, (count));                                                                            \
        PyObject_GC_Del(self);                                                                                     \
        Py_DECREF(type);                                                                                           \
    }                                                                                                              \
    static PyType_Slot Type##_slots[] = {                                                                          \
        {Py_tp_traverse, Type##_traverse},                                                                         \
        {Py_tp_clear, Type##_clear},                                                                               \
        {Py_tp_dealloc, Type##_dealloc},                                                                           \
        {Py_tp_members, Type##_members},                                                                           \
        __VA_ARGS__ {0, NULL},                                                                                                 \
    };                                                                                                             \
    static PyType_Spec Type##_spec = {                                                                             \
        .name = "holdfast_log.protocol._send_path." #Type "Fields",                                                \
        .basicsize = sizeof(Type),                                                                                 \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,                                    \
        .slots = Type##_slots,                                                                                     \
    }

#define A_REFERENCE(Type, field) {#field, T_OBJECT_EX, offsetof(Type, field), 0, NULL}
#define A_NUMBER(Type, field) {#field, T_PYSSIZET, offsetof(Type, field), 0, NULL}
#define A_FLAG(Type, field) {#field, T_BOOL, offsetof(Type, field), 0, NULL}

static PyMemberDef Builder_members[] = {
    A_REFERENCE(Builder, keys),   A_REFERENCE(Builder, values), A_REFERENCE(Builder, timestamps),
    A_NUMBER(Builder, size), {NULL, 0, 0, 0, NULL},
};
FIELDS_OF(Builder, 3);

static PyMemberDef Batch_members[] = {
    A_REFERENCE(Batch, builder), A_NUMBER(Batch, cost), A_FLAG(Batch, is_closed), {NULL, 0, 0, 0, NULL},
};
FIELDS_OF(Batch, 1);

static PyMemberDef PartitionQueue_members[] = {A_REFERENCE(PartitionQueue, batches), {NULL, 0, 0, 0, NULL}};
FIELDS_OF(PartitionQueue, 1);

static PyMemberDef TopicQueues_members[] = {
    A_REFERENCE(TopicQueues, partitions),   A_REFERENCE(TopicQueues, keyless),
    A_NUMBER(TopicQueues, partition_count), A_NUMBER(TopicQueues, keyless_partition),
    A_NUMBER(TopicQueues, batch_size),      {NULL, 0, 0, 0, NULL},
};
FIELDS_OF(TopicQueues, 2);

static PyMemberDef Queues_members[] = {
    A_REFERENCE(Queues, topics), A_REFERENCE(Queues, fatal_error), A_REFERENCE(Queues, barrier),
    A_NUMBER(Queues, used), A_FLAG(Queues, is_closed), {NULL, 0, 0, 0, NULL},
};
FIELDS_OF(Queues, 3);

static PyMemberDef Place_members[] = {
    {"_batch", T_OBJECT_EX, offsetof(Place, batch), 0, NULL},
    {"_index", T_PYSSIZET, offsetof(Place, index), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
FIELDS_OF(Place, 1);


static PyMemberDef Message_members[] = {
    A_REFERENCE(Message, topic),     A_REFERENCE(Message, key),
    A_REFERENCE(Message, value),     A_REFERENCE(Message, partition),
    A_REFERENCE(Message, timestamp), A_REFERENCE(Message, headers),
    A_REFERENCE(Message, offset),    A_REFERENCE(Message, expected_version),
    A_REFERENCE(Message, topic_id),  {NULL, 0, 0, 0, NULL},
};

static int
call_fill_in_python(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (fill_in_python == NULL) {
        PyErr_SetString(PyExc_TypeError, "the class of messages is not bound");
        return -1;
    }
    Py_ssize_t count = PyTuple_Size(args);
    PyObject *all = PyTuple_New(count + 1);
    if (all == NULL) {
        return -1;
    }
    PyTuple_SetItem(all, 0, Py_NewRef(self));
    for (Py_ssize_t index = 0; index < count; index++) {
        PyTuple_SetItem(all, index + 1, Py_NewRef(PyTuple_GetItem(args, index)));
    }
    PyObject *result = PyObject_Call(fill_in_python, all, kwargs);
    Py_DECREF(all);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* What the dataclass's own __init__ does. A call with wrong arguments is left to that, for the error. */
static int
fill_message(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *found[MESSAGE_FIELDS] = {NULL};
    Py_ssize_t count = PyTuple_Size(args);
    if (count > MESSAGE_FIELDS || fill_in_python == NULL) {
        return call_fill_in_python(self, args, kwargs);
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        found[index] = PyTuple_GetItem(args, index);
    }
    PyObject *name, *item;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &name, &item)) {
        int index = 0;
        while (index < MESSAGE_FIELDS && name != message_names[index]) {
            index++;
        }
        if (index == MESSAGE_FIELDS || found[index] != NULL) {
            return call_fill_in_python(self, args, kwargs);
        }
        found[index] = item;
    }
    if (found[0] == NULL) {
        return call_fill_in_python(self, args, kwargs);
    }
    PyObject **fields = references(self);
    for (int index = 0; index < MESSAGE_FIELDS; index++) {
        PyObject *before = fields[index];
        fields[index] = Py_NewRef(found[index] == NULL ? message_defaults[index] : found[index]);
        Py_XDECREF(before);
    }
    return 0;
}

FIELDS_OF(Message, MESSAGE_FIELDS, {Py_tp_init, fill_message}, );

/* One message ----------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *key, *value, *timestamp; /* owned */
    Py_ssize_t size;
    long partition; /* -1 if the message names none */
} Record;

static void
drop_record(Record *record)
{
    Py_CLEAR(record->key);
    Py_CLEAR(record->value);
    Py_CLEAR(record->timestamp);
}

/* Functions below return 1 for done, 0 for unusual, and -1 with an exception. */

static inline int
take_bytes(PyObject *item, PyObject **taken, Py_ssize_t *size)
{
    if (item == Py_None) {
        *taken = Py_NewRef(item);
        return 1;
    }
    if (Py_IS_TYPE(item, &PyBytes_Type)) {
        *taken = Py_NewRef(item);
    }
    else if (!Py_IS_TYPE(item, &PyUnicode_Type) || (*taken = PyUnicode_AsUTF8String(item)) == NULL) {
        PyErr_Clear(); /* Python raises it again, with what to write instead. */
        return 0;
    }
    *size += PyBytes_Size(*taken);
    return 1;
}

static int
take_clock(Sender *self, PyObject **taken)
{
    if (self->wall_ms != NULL && self->wall_ms != Py_None) {
        *taken = PyObject_CallNoArgs(self->wall_ms);
        return *taken == NULL ? -1 : 1;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (self->timestamp == NULL || now_ms != self->timestamp_ms) {
        PyObject *timestamp = PyLong_FromLongLong(now_ms);
        if (timestamp == NULL) {
            return -1;
        }
        Py_XDECREF(self->timestamp);
        self->timestamp = timestamp;
        self->timestamp_ms = now_ms;
    }
    *taken = Py_NewRef(self->timestamp);
    return 1;
}

static inline int
take_timestamp(Sender *self, PyObject *timestamp, PyObject **taken)
{
    if (timestamp == Py_None) {
        return take_clock(self, taken);
    }
    int overflow;
    if (!Py_IS_TYPE(timestamp, &PyLong_Type) || PyLong_AsLongLongAndOverflow(timestamp, &overflow) < 0 || overflow) {
        return 0;
    }
    *taken = Py_NewRef(timestamp);
    return 1;
}

static inline int
take_partition(PyObject *partition, long *taken)
{
    if (partition == Py_None) {
        *taken = -1;
        return 1;
    }
    int overflow;
    if (!Py_IS_TYPE(partition, &PyLong_Type)) {
        return 0;
    }
    *taken = PyLong_AsLongAndOverflow(partition, &overflow);
    return *taken >= 0 && *taken <= PARTITION_MAX && !overflow;
}

static int
take_record(Sender *self, Message *message, Record *record)
{
    for (int index = 0; index < MESSAGE_FIELDS; index++) {
        if (references((PyObject *)message)[index] == NULL) {
            return 0;
        }
    }
    if (message->offset != message_defaults[6] || message->expected_version != Py_None || message->topic_id != Py_None
        || message->headers != message_defaults[5] || !Py_IS_TYPE(message->topic, &PyUnicode_Type)
        || !take_partition(message->partition, &record->partition)
        || !take_bytes(message->key, &record->key, &record->size)
        || !take_bytes(message->value, &record->value, &record->size)) {
        return 0;
    }
    return take_timestamp(self, message->timestamp, &record->timestamp);
}

/* The queue of the message's partition, borrowed; NULL, perhaps with an exception, if Python has to choose. */
static PyObject *
find_batches(Sender *self, TopicQueues *topic, const Record *record)
{
    Py_ssize_t place = record->partition;
    if (place < 0) {
        if (topic->partition_count <= 0 || self->murmur2 == NULL || self->murmur2 == Py_None) {
            return NULL;
        }
        place = topic->keyless_partition;
        if (record->key != Py_None) {
            PyObject *hash = PyObject_CallFunctionObjArgs(self->murmur2, record->key, NULL);
            if (hash == NULL) {
                return NULL;
            }
            place = (Py_ssize_t)(PyLong_AsUnsignedLong(hash) & 0x7FFFFFFFu) % topic->partition_count;
            Py_DECREF(hash);
        }
        if (place == UNPLACED) {
            return topic->keyless;
        }
    }
    PyObject *number = PyLong_FromSsize_t(place);
    if (number == NULL) {
        return NULL;
    }
    PyObject *queue = PyDict_GetItemWithError(topic->partitions, number);
    Py_DECREF(number);
    return queue == NULL || !Py_IS_TYPE(queue, partition_type) ? NULL : ((PartitionQueue *)queue)->batches;
}

static int
append_all(Builder *builder, const Record *record)
{
    Py_ssize_t count = PyList_Size(builder->values);
    if (PyList_Append(builder->values, record->value) == 0 && PyList_Append(builder->keys, record->key) == 0
        && PyList_Append(builder->timestamps, record->timestamp) == 0) {
        return 1;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyList_SetSlice(builder->values, count, PY_SSIZE_T_MAX, NULL);
    PyList_SetSlice(builder->keys, count, PY_SSIZE_T_MAX, NULL);
    PyErr_Restore(type, value, traceback);
    return -1;
}

/* Add the record to the open batch of its queue; the lock is held. */
static int
append_record(Sender *self, PyObject *topic_name, const Record *record, Place *place)
{
    Queues *queues = (Queues *)self->queues;
    Py_ssize_t cost = record->size + RECORD_OVERHEAD;
    if (queues->is_closed || queues->fatal_error != Py_None || queues->barrier != Py_None
        || record->size > self->size_max || queues->used + cost > self->buffer_memory) {
        return 0;
    }
    PyObject *topic = PyDict_GetItemWithError(queues->topics, topic_name);
    if (topic == NULL || !Py_IS_TYPE(topic, topic_type)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *batches = find_batches(self, (TopicQueues *)topic, record);
    Py_ssize_t waiting = batches == NULL ? 0 : PySequence_Size(batches);
    if (waiting <= 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Batch *batch = (Batch *)PySequence_GetItem(batches, waiting - 1);
    if (batch == NULL) {
        return -1;
    }
    Builder *builder = (Builder *)batch->builder;
    if (!Py_IS_TYPE((PyObject *)batch, batch_type) || batch->is_closed || builder == NULL || !Py_IS_TYPE(batch->builder, builder_type)
        || builder->size + record->size >= ((TopicQueues *)topic)->batch_size) {
        Py_DECREF(batch); /* This message begins a batch or fills one, for which the sending thread may be woken. */
        return 0;
    }
    place->index = PyList_Size(builder->values);
    if (append_all(builder, record) < 0) {
        Py_DECREF(batch);
        return -1;
    }
    builder->size += record->size;
    batch->cost += cost;
    queues->used += cost;
    place->batch = (PyObject *)batch;
    return 1;
}

static int
send_record(Sender *self, Message *message, Record *record, Place *place)
{
    int status = take_record(self, message, record);
    if (status <= 0) {
        return status;
    }
    PyObject *topic_name = Py_NewRef(message->topic); /* Another thread may change the message during the wait. */
    PyObject *locked = PyObject_CallNoArgs(self->acquire);
    if (locked == NULL) {
        Py_DECREF(topic_name);
        return -1;
    }
    Py_DECREF(locked);
    status = append_record(self, topic_name, record, place);
    Py_DECREF(topic_name);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *unlocked = PyObject_CallNoArgs(self->release);
    if (unlocked == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return -1;
    }
    Py_DECREF(unlocked);
    PyErr_Restore(type, value, traceback);
    return status;
}

static PyObject *
call_send_in_python(PyObject *self, PyObject *const *messages, Py_ssize_t count)
{
    PyObject *args = PyTuple_New(count + 1);
    if (args == NULL) {
        return NULL;
    }
    PyTuple_SetItem(args, 0, Py_NewRef(self));
    for (Py_ssize_t index = 0; index < count; index++) {
        PyTuple_SetItem(args, index + 1, Py_NewRef(messages[index]));
    }
    PyObject *result = PyObject_Call(send_in_python, args, NULL);
    Py_DECREF(args);
    return result;
}

static PyObject *
send(PyObject *self, PyObject *const *messages, Py_ssize_t count)
{
    Sender *sender = (Sender *)self;
    if (count != 1 || !Py_IS_TYPE(messages[0], message_type) || sender->queues == NULL
        || !Py_IS_TYPE(sender->queues, queues_type)) {
        return call_send_in_python(self, messages, count);
    }
    Place *place = (Place *)PyType_GenericAlloc(response_type, 0);
    if (place == NULL) {
        return NULL;
    }
    Record record = {.size = TYPICAL_OVERHEAD};
    int status = send_record(sender, (Message *)messages[0], &record, place);
    drop_record(&record);
    if (status > 0) {
        return (PyObject *)place;
    }
    Py_DECREF(place);
    return status < 0 ? NULL : call_send_in_python(self, messages, count);
}

static PyMemberDef Sender_members[] = {
    {"_acquire", T_OBJECT, offsetof(Sender, acquire), 0, NULL},
    {"_release", T_OBJECT, offsetof(Sender, release), 0, NULL},
    {"_queues", T_OBJECT, offsetof(Sender, queues), 0, NULL},
    {"_wall_ms", T_OBJECT, offsetof(Sender, wall_ms), 0, NULL},
    {"_murmur2", T_OBJECT, offsetof(Sender, murmur2), 0, NULL},
    {"_size_max", T_PYSSIZET, offsetof(Sender, size_max), 0, NULL},
    {"_buffer_memory", T_PYSSIZET, offsetof(Sender, buffer_memory), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
FIELDS_OF(Sender, 6);

/* The module ------------------------------------------------------------------------------------------------ */

static struct {
    const char *name;
    PyType_Spec *spec;
    PyMemberDef *members;
    PyTypeObject *base, **bound;
} types[] = {
    {"MessageFields", &Message_spec, Message_members, NULL, &message_type},
    {"PlaceFields", &Place_spec, Place_members, NULL, &response_type},
    {"BatchFields", &Batch_spec, Batch_members, NULL, &batch_type},
    {"BuilderFields", &Builder_spec, Builder_members, NULL, &builder_type},
    {"TopicFields", &TopicQueues_spec, TopicQueues_members, NULL, &topic_type},
    {"PartitionFields", &PartitionQueue_spec, PartitionQueue_members, NULL, &partition_type},
    {"QueuesFields", &Queues_spec, Queues_members, NULL, &queues_type},
    {"SenderFields", &Sender_spec, Sender_members, NULL, NULL},
};
#define TYPES (sizeof types / sizeof types[0])
#define BOUND_TYPES (TYPES - 1)

PyDoc_STRVAR(bind_message_doc, "bind_message(message_type, names, defaults)\n--\n\n"
                               "Fill messages here. `message_type` is the dataclass with its own __init__, which is "
                               "called for wrong arguments.");

static PyObject *
bind_message(PyObject *module, PyObject *args)
{
    PyObject *type, *names, *defaults;
    if (!PyArg_ParseTuple(args, "O!O!O!:bind_message", &PyType_Type, &type, &PyTuple_Type, &names, &PyTuple_Type,
                          &defaults)) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)type, types[0].base) || PyTuple_Size(names) != MESSAGE_FIELDS
        || PyTuple_Size(defaults) != MESSAGE_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "not the class of messages");
        return NULL;
    }
    PyObject *filler = PyObject_GetAttrString(type, "__init__");
    if (filler == NULL) {
        return NULL;
    }
    for (int index = 0; index < MESSAGE_FIELDS; index++) {
        PyObject *name = Py_NewRef(PyTuple_GetItem(names, index));
        PyUnicode_InternInPlace(&name);
        message_names[index] = name;
        message_defaults[index] = Py_NewRef(PyTuple_GetItem(defaults, index));
    }
    fill_in_python = filler;
    message_type = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(bind_doc, "bind(send, response, batch, builder, topic, partition, queues)\n--\n\n"
                       "The method that stands for the Python function `send`, for classes that inherit "
                       "SenderFields. The other arguments are the classes that inherit the other fields.");

static PyMethodDef send_method = {"send", (PyCFunction)(void (*)(void))send, METH_FASTCALL, NULL};

/* The docstring of `send`, with a signature in front as the C API wants it. Lives as long as the process. */
static const char *
method_doc(PyObject *function)
{
    PyObject *doc = PyObject_GetAttrString(function, "__doc__");
    PyObject *text = doc == NULL ? NULL : PyUnicode_FromFormat("send($self, /, *messages)\n--\n\n%S", doc);
    Py_XDECREF(doc);
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    return utf8; /* `text` is kept for it. */
}

static PyObject *
bind(PyObject *module, PyObject *args)
{
    PyObject *function, *bound[BOUND_TYPES] = {NULL};
    if (!PyArg_ParseTuple(args, "OO!O!O!O!O!O!:bind", &function, &PyType_Type, &bound[1], &PyType_Type, &bound[2],
                          &PyType_Type, &bound[3], &PyType_Type, &bound[4], &PyType_Type, &bound[5], &PyType_Type,
                          &bound[6])) {
        return NULL;
    }
    for (size_t index = 1; index < BOUND_TYPES; index++) {
        if (!PyType_IsSubtype((PyTypeObject *)bound[index], types[index].base)) {
            PyErr_Format(PyExc_TypeError, "%R does not inherit %s", bound[index], types[index].name);
            return NULL;
        }
    }
    send_method.ml_doc = method_doc(function);
    if (send_method.ml_doc == NULL) {
        return NULL;
    }
    for (size_t index = 1; index < BOUND_TYPES; index++) {
        *types[index].bound = (PyTypeObject *)Py_NewRef(bound[index]);
    }
    send_in_python = Py_NewRef(function);
    return PyDescr_NewMethod(types[BOUND_TYPES].base, &send_method);
}

/* Say as `__slots__` which fields a type has, as a Python class does: dataclasses and pickle ask for it. */
static int
add_slots(PyObject *type, const PyMemberDef *members)
{
    PyObject *names = PyList_New(0);
    for (; names != NULL && members->name != NULL; members++) {
        PyObject *name = PyUnicode_FromString(members->name);
        if (name == NULL || PyList_Append(names, name) < 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    PyObject *tuple = names == NULL ? NULL : PyList_AsTuple(names);
    int status = tuple == NULL ? -1 : PyObject_SetAttrString(type, "__slots__", tuple);
    Py_XDECREF(names);
    Py_XDECREF(tuple);
    return status;
}

static int
add_types(PyObject *module)
{
    for (size_t index = 0; index < TYPES; index++) {
        PyObject *type = PyType_FromSpec(types[index].spec);
        if (type == NULL || add_slots(type, types[index].members) < 0
            || PyModule_AddObjectRef(module, types[index].name, type) < 0) {
            return -1;
        }
        types[index].base = (PyTypeObject *)type;
    }
    return 0;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, bind_doc},
    {"bind_message", bind_message, METH_VARARGS, bind_message_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_types}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._send_path",
    .m_doc = "What a producer does for each message, compiled: see holdfast_log.protocol.send_fields.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__send_path(void)
{
    return PyModuleDef_Init(&module);
}
