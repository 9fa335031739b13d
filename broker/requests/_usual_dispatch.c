/* The way of the usual request to its shortcut and of the answer back, compiled. Dispatcher.dispatch does the same in
 * Python; tests compare the two. Where this file was not compiled, Python is used.
 *
 * Usual is a request with an ordinary header, of an API and version with a shortcut, from a client that calls itself as it
 * did before. All others, and all errors, are left to Python.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../protocol/_request_header.h"
#include "../../protocol/_slots.h"

/* The places of what is used in a route (dispatch._Route), and in the table of a dispatcher. */
enum { VERSION = 2, ENCODE = 5, SHORTCUT = 6, TIMES = 7, ROUTE_FIELDS = 9 };
enum { OWNER, FLEXIBLE, ROUTES, BROKER_ROUTES, TABLE_FIELDS };

typedef struct {
    PyTypeObject *times, *begun;
    Slot untimed;
    PyObject *is_broker, *client_id, *send, *wait, *note_time;
} State;

/* Whether the client calls itself as it did before: 1, 0, or -1 after an error. */
static int
is_known_client(const State *state, PyObject *connection, const RequestHeader *header)
{
    PyObject *known = PyObject_GetAttr(connection, state->client_id);
    Py_ssize_t size = 0;
    const char *text = known != NULL && PyUnicode_Check(known) ? PyUnicode_AsUTF8AndSize(known, &size) : NULL;
    int is_known = text == NULL ? -1
                                : size == header->client_id_size
                                      && (size == 0 || memcmp(text, header->client_id, (size_t)size) == 0);
    Py_XDECREF(known);
    return is_known;
}

/* The route of the request, borrowed from its table: NULL, with an exception or without, if there is none. */
static PyObject *
route_of(const State *state, PyObject *table, PyObject *connection, PyObject *form)
{
    PyObject *is_broker = PyObject_GetAttr(connection, state->is_broker);
    if (is_broker == NULL) {
        return NULL;
    }
    PyObject *routes = PyTuple_GetItem(table, is_broker == Py_True ? BROKER_ROUTES : ROUTES);
    Py_DECREF(is_broker);
    PyObject *route = PyDict_GetItemWithError(routes, form);
    return route == NULL || !PyTuple_Check(route) || PyTuple_Size(route) != ROUTE_FIELDS ? NULL : route;
}

static int
perform(PyObject *object, PyObject *method, PyObject *one, PyObject *two)
{
    PyObject *done = PyObject_CallMethodObjArgs(object, method, one, two, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Counts a request that is answered now; one in some is timed. */
static int
count_answer(const State *state, PyObject *table, PyObject *connection, PyObject *times)
{
    PyObject *untimed = Py_IS_TYPE(times, state->times) ? get(&state->untimed, times) : NULL;
    long left = untimed == NULL ? -1 : PyLong_AsLong(untimed);
    Py_XDECREF(untimed);
    if (left < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "requests are timed by RequestTimes");
        }
        return -1;
    }
    if (left == 0) {
        return perform(PyTuple_GetItem(table, OWNER), state->note_time, connection, times);
    }
    return set_new(&state->untimed, times, PyLong_FromLong(left - 1));
}

/* Calls the shortcut. Returns what `dispatch` does, but never False. */
static PyObject *
carry_out(const State *state, PyObject *table, PyObject *route, PyObject *connection, PyObject *frame, PyObject *reply,
          const RequestHeader *header)
{
    PyObject *times = PyTuple_GetItem(route, TIMES);
    PyObject *position = PyLong_FromSsize_t(header->body), *id = PyLong_FromLong(header->correlation_id), *begun = NULL;
    if (position != NULL && id != NULL) {
        begun = PyObject_CallFunctionObjArgs(PyTuple_GetItem(route, SHORTCUT), connection, frame,
                                             PyTuple_GetItem(route, VERSION), position, id, NULL);
    }
    Py_XDECREF(position);
    Py_XDECREF(id);
    if (begun == NULL || begun == Py_None || Py_IS_TYPE(begun, state->begun)) {
        return begun;
    }
    int status;
    if (PyList_Check(begun)) {
        status = count_answer(state, table, connection, times) < 0 ? -1 : perform(reply, state->send, begun, NULL);
    }
    else {
        PyObject *done = PyObject_CallMethodObjArgs(begun, state->wait, PyTuple_GetItem(table, OWNER), reply,
                                                    PyTuple_GetItem(route, ENCODE), times, NULL);
        Py_XDECREF(done);
        status = done == NULL ? -1 : 0;
    }
    Py_DECREF(begun);
    return status < 0 ? NULL : Py_NewRef(Py_True);
}

PyDoc_STRVAR(dispatch_doc, "dispatch(table, connection, frame, reply)\n--\n\n"
                           "Handle a usual request. Returns True if that was done; what its shortcut has begun, or None\n"
                           "if that left it; and False if the shortcut was not called.");

static PyObject *
dispatch(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const State *state = PyModule_GetState(module);
    Py_buffer buffer;
    if (count != 4 || !PyTuple_Check(args[0]) || PyTuple_Size(args[0]) != TABLE_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "dispatch takes the table of a dispatcher, a connection, a frame and a reply");
        return NULL;
    }
    PyObject *table = args[0], *connection = args[1], *form = NULL;
    if (PyObject_GetBuffer(args[2], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    RequestHeader header;
    int is_usual = read_request_header(buffer.buf, buffer.len, PyTuple_GetItem(table, FLEXIBLE), &header, &form);
    if (is_usual == 1) {
        is_usual = is_known_client(state, connection, &header);
    }
    PyBuffer_Release(&buffer);
    PyObject *route = is_usual == 1 ? route_of(state, table, connection, form) : NULL;
    Py_XDECREF(form);
    if (route == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    Py_INCREF(route); /* A handler that is added may replace it. */
    PyObject *done = PyTuple_GetItem(route, SHORTCUT) == Py_None
                         ? Py_NewRef(Py_False)
                         : carry_out(state, table, route, connection, args[2], args[3], &header);
    Py_DECREF(route);
    return done;
}

static int
execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->times = (PyTypeObject *)attribute_of("holdfast_log.broker.requests.times", "RequestTimes");
    state->begun = (PyTypeObject *)attribute_of("holdfast_log.broker.requests.handler", "Begun");
    state->is_broker = PyUnicode_InternFromString("is_broker");
    state->client_id = PyUnicode_InternFromString("client_id");
    state->send = PyUnicode_InternFromString("send");
    state->wait = PyUnicode_InternFromString("wait");
    state->note_time = PyUnicode_InternFromString("note_time");
    return state->times == NULL || state->begun == NULL || state->is_broker == NULL || state->client_id == NULL
                   || state->send == NULL || state->wait == NULL || state->note_time == NULL
                   || find_slot(state->times, "untimed", &state->untimed) < 0
               ? -1
               : 0;
}

static PyMethodDef methods[] = {
    {"dispatch", (PyCFunction)(void (*)(void))dispatch, METH_FASTCALL, dispatch_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

/* The classes that the state refers to live as long as the process: so does the module. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.broker.requests._usual_dispatch",
    .m_doc = "The way of the usual request to its shortcut, compiled.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__usual_dispatch(void)
{
    return PyModuleDef_Init(&module);
}
