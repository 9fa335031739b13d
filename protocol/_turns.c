/* The usual turn of a connection, compiled: one request that came alone, answered at once or later. It is what
 * broker/network/turns.py does in Python; that file explains it, and serves where this one was not compiled. Whatever is
 * unusual is done by the methods of broker/network/connection.py, which both call.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define SIZE_BYTES 4
/* As in broker/network/turns.py: */
#define LONG_BYTES (16 * 1024)
#define SENDERS_MAX 32
#define WAIT_S 0.001

typedef struct {
    PyObject_HEAD
    PyObject *close_reason;
    PyObject *clock_s;
    PyObject *handler;
    PyObject *wire;
    PyObject *waiting;
    PyObject *replies;
    PyObject *outbox;
    PyObject *unmute;
    PyObject *next_turn;
    PyObject *sending;
    long long bytes_in;
    long long bytes_out;
    long long requests;
    long long buffered_bytes;
    long long buffered_bytes_max;
    Py_ssize_t in_flight_max;
    double last_activity_s;
    double last_request_s;
    char in_turn;
    char is_paused;
    char is_due;
} Turns;

typedef struct {
    PyObject_HEAD
    PyObject *due; /* a list */
    double since_s;
    char is_open;
} SendingTurn;

typedef struct {
    PyObject_HEAD
    PyObject *connection;
    PyObject *parts;
    Py_ssize_t request_bytes;
} ReplySlot;

/* The types that this module made. It is initialised once in a process. */
static PyTypeObject *turns_type;
static PyTypeObject *reply_type;
static PyTypeObject *sending_type;

static inline int
is_none(PyObject *value)
{
    return value == NULL || value == Py_None;
}

/* Names of the methods and attributes that are called, made once. */
#define NAMES(X) X(_handler_failed) X(_queue) X(_regulate) X(_take_turn) X(append) X(length) X(popleft) X(send)

#define DECLARE(name) static PyObject *s_##name;
NAMES(DECLARE)
#undef DECLARE

/* Calls a method without arguments for its effect. */
static int
perform(PyObject *object, PyObject *method)
{
    PyObject *done = PyObject_CallMethodObjArgs(object, method, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
perform_with(PyObject *object, PyObject *method, PyObject *argument)
{
    PyObject *done = PyObject_CallMethodObjArgs(object, method, argument, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
read_clock(Turns *self, double *seconds)
{
    PyObject *now = PyObject_CallNoArgs(self->clock_s);
    if (now == NULL) {
        return -1;
    }
    *seconds = PyFloat_AsDouble(now);
    Py_DECREF(now);
    return *seconds == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* Replies */

static PyObject *
reply_of(PyObject *connection, Py_ssize_t request_bytes)
{
    ReplySlot *reply = (ReplySlot *)PyType_GenericAlloc(reply_type, 0);
    if (reply != NULL) {
        reply->connection = Py_NewRef(connection);
        reply->request_bytes = request_bytes;
    }
    return (PyObject *)reply;
}

static PyObject *
reply_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *connection;
    Py_ssize_t request_bytes;
    if (!PyArg_ParseTuple(args, "O!n:ReplySlot", turns_type, &connection, &request_bytes)) {
        return NULL;
    }
    return reply_of(connection, request_bytes);
}

static int
reply_traverse(ReplySlot *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->connection);
    Py_VISIT(self->parts);
    return 0;
}

static int
reply_clear(ReplySlot *self)
{
    Py_CLEAR(self->connection);
    Py_CLEAR(self->parts);
    return 0;
}

static void
reply_dealloc(ReplySlot *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    reply_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* The size of a part; a slice of a file has an attribute for it, which is read faster than its method __len__. */
static Py_ssize_t
part_size(PyObject *part)
{
    if (PyBytes_Check(part) || PyByteArray_Check(part) || PyMemoryView_Check(part)) {
        return PyObject_Size(part);
    }
    PyObject *length = PyObject_GetAttr(part, s_length);
    if (length == NULL) {
        return -1;
    }
    Py_ssize_t size = PyLong_AsSsize_t(length);
    Py_DECREF(length);
    return size;
}

static Py_ssize_t
parts_size(PyObject *parts)
{
    Py_ssize_t total = 0, count = PyObject_Size(parts);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *part = PySequence_GetItem(parts, index);
        if (part == NULL) {
            return -1;
        }
        Py_ssize_t size = part_size(part);
        Py_DECREF(part);
        if (size < 0) {
            return -1;
        }
        total += size;
    }
    return count < 0 ? -1 : total;
}

/* Moves the responses whose turn has come to the outbox. */
static int
collect(Turns *self)
{
    Py_ssize_t count;
    while ((count = PyObject_Size(self->replies)) > 0) {
        PyObject *first = PySequence_GetItem(self->replies, 0);
        if (first == NULL) {
            return -1;
        }
        PyObject *parts = Py_IS_TYPE(first, reply_type) ? ((ReplySlot *)first)->parts : NULL;
        if (is_none(parts)) {
            Py_DECREF(first);
            return 0;
        }
        PyObject *longer = PySequence_InPlaceConcat(self->outbox, parts);
        Py_DECREF(first);
        if (longer == NULL) {
            return -1;
        }
        PyObject *outbox = self->outbox;
        self->outbox = longer;
        Py_DECREF(outbox);
        if (perform(self->replies, s_popleft) < 0) {
            return -1;
        }
    }
    return count < 0 ? -1 : 0;
}

static int
flush(Turns *self)
{
    if (is_none(self->wire) || PyList_Size(self->outbox) <= 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *empty = PyList_New(0);
    if (empty == NULL) {
        return -1;
    }
    PyObject *outbox = self->outbox;
    self->outbox = empty;
    int status = perform_with(self->wire, s_send, outbox);
    Py_DECREF(outbox);
    return status;
}

/* What `_regulate` does, unless the wire must begin or cease to be read. `waiting` and `replies` are the numbers of
 * requests. */
static int
regulate(Turns *self, Py_ssize_t waiting, Py_ssize_t replies)
{
    if (is_none(self->wire) || !is_none(self->close_reason)) {
        return 0;
    }
    int is_wanted = waiting == 0 && is_none(self->unmute) && replies < self->in_flight_max
                    && self->buffered_bytes <= self->buffered_bytes_max;
    return is_wanted == !self->is_paused ? 0 : perform((PyObject *)self, s__regulate);
}

/* Passes an exception that was raised while a connection was served to it, which ends it. */
static int
end_connection(Turns *self)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    int status = perform_with((PyObject *)self, s__handler_failed, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return status;
}

/* Sending together */

static int
send_due(Turns *self)
{
    self->is_due = 0;
    if (!is_none(self->close_reason)) {
        return 0;
    }
    if (flush(self) < 0) {
        return -1;
    }
    Py_ssize_t waiting = PyObject_Size(self->waiting), replies = PyObject_Size(self->replies);
    return waiting < 0 || replies < 0 ? -1 : regulate(self, waiting, replies);
}

static int
send_all_due(SendingTurn *sending)
{
    PyObject *due = sending->due;
    Py_ssize_t count = PyList_Size(due);
    if (count == 0) {
        return 0;
    }
    sending->due = PyList_New(0);
    if (sending->due == NULL) {
        sending->due = due;
        return -1;
    }
    int status = 0;
    for (Py_ssize_t index = 0; index < count && status == 0; index++) {
        Turns *connection = (Turns *)PyList_GetItem(due, index);
        if (send_due(connection) < 0) {
            status = end_connection(connection);
        }
    }
    Py_DECREF(due);
    return status;
}

/* Whether the outbox is sent with others, which this function sees to; -1 after an error. */
static int
waits_with_outbox(Turns *self)
{
    SendingTurn *sending = (SendingTurn *)self->sending;
    if (is_none(self->sending) || !sending->is_open || PyList_Size(self->outbox) <= 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!self->is_due) {
        self->is_due = 1;
        if (PyList_Size(sending->due) == 0) {
            sending->since_s = self->last_activity_s;
        }
        if (PyList_Append(sending->due, (PyObject *)self) < 0
            || (PyList_Size(sending->due) >= SENDERS_MAX && send_all_due(sending) < 0)) {
            return -1;
        }
    }
    return 1;
}

/* What `_take_turn` does where no request waits to be handled. */
static int
take_turn(Turns *self)
{
    if (self->in_turn || !is_none(self->next_turn)) {
        return 0;
    }
    Py_ssize_t waiting = PyObject_Size(self->waiting);
    if (waiting != 0) {
        return waiting < 0 ? -1 : perform((PyObject *)self, s__take_turn);
    }
    int waits = waits_with_outbox(self);
    if (waits != 0) {
        return waits < 0 ? -1 : 0;
    }
    self->in_turn = 1;
    if (flush(self) < 0) {
        return -1;
    }
    self->in_turn = 0;
    Py_ssize_t replies = PyObject_Size(self->replies);
    waiting = PyObject_Size(self->waiting);
    if (waiting > 0) {
        return perform((PyObject *)self, s__take_turn);
    }
    return waiting < 0 || replies < 0 ? -1 : regulate(self, waiting, replies);
}

static PyObject *
answered(ReplySlot *reply, PyObject *parts, Py_ssize_t size)
{
    if (!is_none(reply->parts)) {
        PyErr_SetString(PyExc_AssertionError, "a request is answered once");
        return NULL;
    }
    reply->parts = Py_NewRef(parts);
    Turns *self = (Turns *)reply->connection;
    if (!is_none(self->close_reason)) {
        Py_RETURN_NONE;
    }
    self->buffered_bytes += size - reply->request_bytes;
    if (collect(self) < 0 || take_turn(self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(reply_send_doc, "Answer with `parts`: one whole frame, its size included.");

static PyObject *
reply_send(ReplySlot *reply, PyObject *parts)
{
    Py_ssize_t size = parts_size(parts);
    return size < 0 ? NULL : answered(reply, parts, size);
}

PyDoc_STRVAR(reply_nothing_doc, "End the request without a response (Produce with acks=0).");

static PyObject *
reply_nothing(ReplySlot *reply, PyObject *unused)
{
    PyObject *parts = PyTuple_New(0);
    PyObject *result = parts == NULL ? NULL : answered(reply, parts, 0);
    Py_XDECREF(parts);
    return result;
}

/* Turns */

static int
turns_traverse(Turns *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->close_reason);
    Py_VISIT(self->clock_s);
    Py_VISIT(self->handler);
    Py_VISIT(self->wire);
    Py_VISIT(self->waiting);
    Py_VISIT(self->replies);
    Py_VISIT(self->outbox);
    Py_VISIT(self->unmute);
    Py_VISIT(self->next_turn);
    Py_VISIT(self->sending);
    return 0;
}

static int
turns_clear(Turns *self)
{
    Py_CLEAR(self->close_reason);
    Py_CLEAR(self->clock_s);
    Py_CLEAR(self->handler);
    Py_CLEAR(self->wire);
    Py_CLEAR(self->waiting);
    Py_CLEAR(self->replies);
    Py_CLEAR(self->outbox);
    Py_CLEAR(self->unmute);
    Py_CLEAR(self->next_turn);
    Py_CLEAR(self->sending);
    return 0;
}

static void
turns_dealloc(Turns *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    turns_clear(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Has the handler handle the request. An exception becomes the connection's end, as in Python. */
static int
handle(Turns *self, PyObject *frame, PyObject *reply)
{
    PyObject *done = PyObject_CallFunctionObjArgs(self->handler, (PyObject *)self, frame, reply, NULL);
    if (done != NULL) {
        Py_DECREF(done);
        return 0;
    }
    return end_connection(self);
}

static int
handle_alone(Turns *self, PyObject *frame)
{
    Py_ssize_t size = PyObject_Size(frame);
    PyObject *reply = size < 0 ? NULL : reply_of((PyObject *)self, size);
    if (reply == NULL) {
        return -1;
    }
    self->bytes_in += size + SIZE_BYTES;
    self->requests++;
    self->buffered_bytes += size;
    int status = perform_with(self->replies, s_append, reply);
    if (status == 0) {
        self->in_turn = 1;
        status = handle(self, frame, reply);
    }
    Py_DECREF(reply);
    int waits = status < 0 ? -1 : waits_with_outbox(self);
    if (waits < 0 || (!waits && flush(self) < 0)) {
        return -1;
    }
    self->in_turn = 0;
    Py_ssize_t waiting = PyObject_Size(self->waiting), replies = PyObject_Size(self->replies);
    if (waiting < 0 || replies < 0) {
        return -1;
    }
    if (waiting > 0) {
        return perform((PyObject *)self, s__take_turn);
    }
    return waits ? 0 : regulate(self, waiting, replies);
}

/* Whether a request has to wait for its turn if others had theirs: it has many bytes, and brings no records. -1: the
 * frame is no buffer. */
static int
may_take_long(PyObject *frame)
{
    Py_buffer bytes;
    if (PyObject_GetBuffer(frame, &bytes, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    const unsigned char *data = bytes.buf;
    int is_long = bytes.len >= LONG_BYTES && (data[0] != 0 || data[1] != 0);
    PyBuffer_Release(&bytes);
    return is_long;
}

static PyObject *
frames_received(Turns *self, PyObject *frames)
{
    if (!is_none(self->close_reason)) {
        Py_RETURN_NONE;
    }
    double now_s;
    if (read_clock(self, &now_s) < 0) {
        return NULL;
    }
    self->last_activity_s = self->last_request_s = now_s;
    SendingTurn *sending = (SendingTurn *)self->sending;
    if (!is_none(self->sending) && sending->is_open && PyList_Size(sending->due) > 0
        && now_s - sending->since_s > WAIT_S && send_all_due(sending) < 0) {
        return NULL;
    }
    Py_ssize_t replies = PyObject_Size(self->replies), waiting = PyObject_Size(self->waiting);
    if (replies < 0 || waiting < 0) {
        return NULL;
    }
    int status;
    if (PyList_CheckExact(frames) && PyList_Size(frames) == 1 && replies == 0 && waiting == 0 && !self->in_turn
        && !self->is_paused && is_none(self->unmute) && is_none(self->next_turn)
        && self->buffered_bytes <= self->buffered_bytes_max) {
        PyObject *frame = Py_NewRef(PyList_GetItem(frames, 0));
        int is_long = may_take_long(frame);
        if (is_long > 0) {
            status = perform_with((PyObject *)self, s__queue, frames);
        }
        else {
            status = is_long < 0 ? -1 : handle_alone(self, frame);
        }
        Py_DECREF(frame);
    }
    else {
        status = perform_with((PyObject *)self, s__queue, frames);
    }
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
bytes_sent(Turns *self, PyObject *count)
{
    long long bytes = PyLong_AsLongLong(count);
    if (bytes == -1 && PyErr_Occurred()) {
        return NULL;
    }
    self->bytes_out += bytes;
    if (!is_none(self->close_reason)) {
        Py_RETURN_NONE;
    }
    self->buffered_bytes -= bytes;
    if (read_clock(self, &self->last_activity_s) < 0
        || (self->is_paused && perform((PyObject *)self, s__take_turn) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(waits_with_outbox_doc, "Whether the outbox is sent with others, which this function sees to.");

static PyObject *
turns_waits_with_outbox(Turns *self, PyObject *unused)
{
    int waits = waits_with_outbox(self);
    return waits < 0 ? NULL : PyBool_FromLong(waits);
}

/* The connections that send together */

static PyObject *
sending_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    SendingTurn *self = (SendingTurn *)PyType_GenericAlloc(type, 0);
    if (self != NULL && (self->due = PyList_New(0)) == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
sending_traverse(SendingTurn *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->due);
    return 0;
}

static int
sending_clear(SendingTurn *self)
{
    PyObject *due = self->due;
    self->due = PyList_New(0);
    Py_XDECREF(due);
    PyErr_Clear();
    return 0;
}

static void
sending_dealloc(SendingTurn *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    Py_CLEAR(self->due);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *
sending_begin(SendingTurn *self, PyObject *unused)
{
    self->is_open = 1;
    Py_RETURN_NONE;
}

static PyObject *
sending_end(SendingTurn *self, PyObject *unused)
{
    self->is_open = 0;
    if (send_all_due(self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
sending_flush(SendingTurn *self, PyObject *unused)
{
    if (send_all_due(self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef sending_methods[] = {
    {"flush", (PyCFunction)(void (*)(void))sending_flush, METH_NOARGS,
     "Send what waits: a request that may take long is about to be handled."},
    {"begin", (PyCFunction)(void (*)(void))sending_begin, METH_NOARGS, "Several sockets are read now."},
    {"end", (PyCFunction)(void (*)(void))sending_end, METH_NOARGS, "They have been read: send what waits."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef sending_members[] = {
    {"is_open", T_BOOL, offsetof(SendingTurn, is_open), READONLY, "Whether responses wait."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot sending_slots[] = {
    {Py_tp_doc, "The connections whose responses are sent together, while the reactor reads from several."},
    {Py_tp_new, sending_new},
    {Py_tp_traverse, sending_traverse},
    {Py_tp_clear, sending_clear},
    {Py_tp_dealloc, sending_dealloc},
    {Py_tp_methods, sending_methods},
    {Py_tp_members, sending_members},
    {0, NULL},
};

static PyType_Spec sending_spec = {
    .name = "holdfast_log.protocol._turns.SendingTurn",
    .basicsize = sizeof(SendingTurn),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = sending_slots,
};

static PyMethodDef reply_methods[] = {
    {"send", (PyCFunction)(void (*)(void))reply_send, METH_O, reply_send_doc},
    {"nothing", (PyCFunction)(void (*)(void))reply_nothing, METH_NOARGS, reply_nothing_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef reply_members[] = {
    {"parts", T_OBJECT, offsetof(ReplySlot, parts), READONLY, NULL},
    {"request_bytes", T_PYSSIZET, offsetof(ReplySlot, request_bytes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot reply_slots[] = {
    {Py_tp_doc, "The place of one response in the order of its connection. The handler calls either `send` or "
                "`nothing`,\nonce, at any time; after the connection has closed both do nothing."},
    {Py_tp_new, reply_new},
    {Py_tp_traverse, reply_traverse},
    {Py_tp_clear, reply_clear},
    {Py_tp_dealloc, reply_dealloc},
    {Py_tp_methods, reply_methods},
    {Py_tp_members, reply_members},
    {0, NULL},
};

static PyType_Spec reply_spec = {
    .name = "holdfast_log.protocol._turns.ReplySlot",
    .basicsize = sizeof(ReplySlot),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reply_slots,
};

static PyMethodDef turns_methods[] = {
    {"frames_received", (PyCFunction)(void (*)(void))frames_received, METH_O, NULL},
    {"bytes_sent", (PyCFunction)(void (*)(void))bytes_sent, METH_O, NULL},
    {"_waits_with_outbox", (PyCFunction)(void (*)(void))turns_waits_with_outbox, METH_NOARGS, waits_with_outbox_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef turns_members[] = {
    {"close_reason", T_OBJECT, offsetof(Turns, close_reason), 0, NULL},
    {"_clock_s", T_OBJECT, offsetof(Turns, clock_s), 0, NULL},
    {"_handler", T_OBJECT, offsetof(Turns, handler), 0, NULL},
    {"_wire", T_OBJECT, offsetof(Turns, wire), 0, NULL},
    {"_waiting", T_OBJECT, offsetof(Turns, waiting), 0, NULL},
    {"_replies", T_OBJECT, offsetof(Turns, replies), 0, NULL},
    {"_outbox", T_OBJECT, offsetof(Turns, outbox), 0, NULL},
    {"_unmute", T_OBJECT, offsetof(Turns, unmute), 0, NULL},
    {"_next_turn", T_OBJECT, offsetof(Turns, next_turn), 0, NULL},
    {"bytes_in", T_LONGLONG, offsetof(Turns, bytes_in), 0, NULL},
    {"bytes_out", T_LONGLONG, offsetof(Turns, bytes_out), 0, NULL},
    {"requests", T_LONGLONG, offsetof(Turns, requests), 0, NULL},
    {"_buffered_bytes", T_LONGLONG, offsetof(Turns, buffered_bytes), 0, NULL},
    {"_buffered_bytes_max", T_LONGLONG, offsetof(Turns, buffered_bytes_max), 0, NULL},
    {"_in_flight_requests_max", T_PYSSIZET, offsetof(Turns, in_flight_max), 0, NULL},
    {"_last_activity_s", T_DOUBLE, offsetof(Turns, last_activity_s), 0, NULL},
    {"last_request_s", T_DOUBLE, offsetof(Turns, last_request_s), 0, NULL},
    {"_in_turn", T_BOOL, offsetof(Turns, in_turn), 0, NULL},
    {"_is_paused", T_BOOL, offsetof(Turns, is_paused), 0, NULL},
    {"_is_due", T_BOOL, offsetof(Turns, is_due), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
get_sending(Turns *self, void *unused)
{
    return Py_NewRef(self->sending == NULL ? Py_None : self->sending);
}

static int
set_sending(Turns *self, PyObject *value, void *unused)
{
    if (value == NULL || !Py_IS_TYPE(value, sending_type)) {
        PyErr_SetString(PyExc_TypeError, "not a SendingTurn");
        return -1;
    }
    PyObject *before = self->sending;
    self->sending = Py_NewRef(value);
    Py_XDECREF(before);
    return 0;
}

static PyGetSetDef turns_getset[] = {
    {"_sending", (getter)get_sending, (setter)set_sending, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot turns_slots[] = {
    {Py_tp_doc, "The usual turn of a connection."},
    {Py_tp_traverse, turns_traverse},
    {Py_tp_clear, turns_clear},
    {Py_tp_dealloc, turns_dealloc},
    {Py_tp_methods, turns_methods},
    {Py_tp_members, turns_members},
    {Py_tp_getset, turns_getset},
    {0, NULL},
};

static PyType_Spec turns_spec = {
    .name = "holdfast_log.protocol._turns.Turns",
    .basicsize = sizeof(Turns),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = turns_slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._turns",
    .m_doc = "What holdfast_log.broker.network.turns does, compiled.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__turns(void)
{
#define INTERN(name)                                                                                              \
    if (s_##name == NULL && (s_##name = PyUnicode_InternFromString(#name)) == NULL) {                             \
        return NULL;                                                                                              \
    }
    NAMES(INTERN)
#undef INTERN
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) {
        return NULL;
    }
    turns_type = (PyTypeObject *)PyType_FromSpec(&turns_spec);
    reply_type = (PyTypeObject *)PyType_FromSpec(&reply_spec);
    sending_type = (PyTypeObject *)PyType_FromSpec(&sending_spec);
    if (turns_type == NULL || reply_type == NULL || sending_type == NULL
        || PyModule_AddObjectRef(made, "SendingTurn", (PyObject *)sending_type) < 0
        || PyModule_AddObjectRef(made, "Turns", (PyObject *)turns_type) < 0
        || PyModule_AddObjectRef(made, "ReplySlot", (PyObject *)reply_type) < 0) {
        Py_CLEAR(made);
    }
    return made;
}
