/* What every request and response passes between a socket and its handler, compiled: frames received, the header of a
 * request, parts sent. broker/network/transport.py, broker/network/framing.py and protocol/headers.py explain it; they
 * handle whatever these functions leave to them, and everything where this file was not compiled. Tests compare the two.
 *
 * The sockets do not block, so receiving and sending memory keep the interpreter's lock: to give it away for a call of a
 * few microseconds could cost half a millisecond of waiting to get it back. Only sendfile may wait, for a disk.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#ifdef __linux__
#include <sys/sendfile.h>
#endif

#include "_request_header.h"

#define SIZE_BYTES 4
#define PARTS_PER_CALL 64
#define CALLS_PER_TURN 64 /* as in broker/network/outgoing.py */
#define FRAMES_MAX 64 /* as in broker/network/framing.py, which keeps what is beyond */

static inline uint32_t
uint32_at(const uint8_t *data)
{
    return (uint32_t)number_at(data, 4);
}

static inline int
would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Receiving */

/* A writable memoryview of a copy of `size` bytes. */
static PyObject *
frame_of(const uint8_t *data, Py_ssize_t size)
{
    PyObject *bytes = PyByteArray_FromStringAndSize((const char *)data, size);
    if (bytes == NULL) {
        return NULL;
    }
    PyObject *view = PyMemoryView_FromObject(bytes);
    Py_DECREF(bytes);
    return view;
}

/* The frames if the bytes are nothing but a few whole frames of fewer than `large` and at most `bytes_max` bytes. If they
 * are not: NULL without an exception. */
static PyObject *
whole_frames(const uint8_t *data, Py_ssize_t count, Py_ssize_t bytes_max, Py_ssize_t large)
{
    Py_ssize_t position = 0, frames = 0;
    while (position < count) {
        if (count - position < SIZE_BYTES) {
            return NULL;
        }
        Py_ssize_t size = (int32_t)uint32_at(data + position);
        position += SIZE_BYTES;
        if (size < 0 || size > bytes_max || size >= large || size > count - position) {
            return NULL;
        }
        position += size;
        if (++frames > FRAMES_MAX) {
            return NULL;
        }
    }
    PyObject *list = PyList_New(frames);
    position = 0;
    for (Py_ssize_t index = 0; list != NULL && index < frames; index++) {
        Py_ssize_t size = (Py_ssize_t)uint32_at(data + position);
        PyObject *frame = frame_of(data + position + SIZE_BYTES, size);
        if (frame == NULL) {
            Py_CLEAR(list);
        }
        else {
            PyList_SetItem(list, index, frame);
        }
        position += SIZE_BYTES + size;
    }
    return list;
}

PyDoc_STRVAR(receive_doc, "receive(fd, scratch, frame_bytes_max, large_frame_bytes) -> list[memoryview] | int | None");

static PyObject *
receive(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "receive takes 4 arguments");
        return NULL;
    }
    long fd = PyLong_AsLong(args[0]);
    Py_ssize_t bytes_max = PyLong_AsSsize_t(args[2]), large = PyLong_AsSsize_t(args[3]);
    Py_buffer scratch;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &scratch, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    ssize_t count = recv((int)fd, scratch.buf, (size_t)scratch.len, 0);
    if (count < 0) {
        if (would_block(errno)) {
            result = Py_NewRef(Py_None);
        }
        else {
            PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    else {
        if (count > 0 && count < scratch.len) {
            result = whole_frames(scratch.buf, count, bytes_max, large);
        }
        if (result == NULL && !PyErr_Occurred()) {
            result = PyLong_FromSsize_t(count);
        }
    }
    PyBuffer_Release(&scratch);
    return result;
}

/* The header of a request */

PyDoc_STRVAR(request_fields_doc, "request_fields(frame, flexible) -> tuple[int, int, str | None, int] | None");

static PyObject *
request_fields(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer frame;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "request_fields takes 2 arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    RequestHeader header;
    PyObject *result = NULL, *form = NULL, *correlation_id = NULL, *client_id = NULL, *position = NULL;
    int is_usual = read_request_header(frame.buf, frame.len, args[1], &header, &form);
    if (is_usual == 1) {
        client_id = header.client_id == NULL ? Py_NewRef(Py_None)
                                             : PyUnicode_DecodeUTF8(header.client_id, header.client_id_size, NULL);
        if (client_id == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            is_usual = 0;
        }
    }
    if (is_usual == 0) {
        result = Py_NewRef(Py_None);
    }
    else if (client_id != NULL) {
        correlation_id = PyLong_FromLong(header.correlation_id);
        position = PyLong_FromSsize_t(header.body);
        if (correlation_id != NULL && position != NULL) {
            result = PyTuple_Pack(4, form, correlation_id, client_id, position);
        }
    }
    PyBuffer_Release(&frame);
    Py_XDECREF(form);
    Py_XDECREF(correlation_id);
    Py_XDECREF(client_id);
    Py_XDECREF(position);
    return result;
}

/* Sending */

/* A part that is a slice of a file, with what its attributes hold. */
typedef struct {
    int fd;
    int64_t offset;
    int64_t length;
} Slice;

/* The names of the attributes of a slice, and of its file. Made once. */
static PyObject *s_file, *s_fileno, *s_offset, *s_length;

static int
int64_of(PyObject *owner, PyObject *name, int64_t *value)
{
    PyObject *number = PyObject_GetAttr(owner, name);
    if (number == NULL) {
        return -1;
    }
    *value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
read_slice(PyObject *part, Slice *slice)
{
    PyObject *file = PyObject_GetAttr(part, s_file);
    if (file == NULL) {
        return -1;
    }
    PyObject *number = PyObject_CallMethodObjArgs(file, s_fileno, NULL);
    Py_DECREF(file);
    if (number == NULL) {
        return -1;
    }
    slice->fd = (int)PyLong_AsLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred()) {
        return -1;
    }
    return int64_of(part, s_offset, &slice->offset) < 0 || int64_of(part, s_length, &slice->length) < 0 ? -1 : 0;
}

static inline int
is_memory(PyObject *part)
{
    return PyBytes_Check(part) || PyByteArray_Check(part) || PyMemoryView_Check(part);
}

/* Sends the pieces of memory from `*index` on without the first `begin` bytes, up to the next slice, and moves `*index`
 * behind them. Returns 1 if all were sent, 0 if not, -1 with an exception. Adds to the total. */
static int
send_memory(int fd, PyObject *parts, Py_ssize_t count, Py_ssize_t *index, Py_ssize_t begin, Py_ssize_t *sent)
{
    Py_buffer views[PARTS_PER_CALL];
    struct iovec pieces[PARTS_PER_CALL];
    int used = 0, flags = MSG_NOSIGNAL, status = -1;
    Py_ssize_t total = 0;
    while (*index < count && used < PARTS_PER_CALL) {
        PyObject *part = PySequence_GetItem(parts, *index);
        if (part == NULL) {
            goto done;
        }
        if (!is_memory(part)) {
            Py_DECREF(part);
#ifdef MSG_MORE
            flags |= MSG_MORE; /* the slice follows in the same segment */
#endif
            break;
        }
        int failed = PyObject_GetBuffer(part, &views[used], PyBUF_SIMPLE);
        Py_DECREF(part);
        if (failed < 0) {
            goto done;
        }
        used++;
        (*index)++;
        Py_buffer *view = &views[used - 1];
        if (begin > view->len) {
            PyErr_SetString(PyExc_ValueError, "more bytes of a part were sent than it has");
            goto done;
        }
        pieces[used - 1].iov_base = (char *)view->buf + begin;
        pieces[used - 1].iov_len = (size_t)(view->len - begin);
        total += view->len - begin;
        begin = 0;
    }
    ssize_t written = 0;
    if (total > 0) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)used};
        written = used == 1 ? send(fd, pieces[0].iov_base, pieces[0].iov_len, flags) : sendmsg(fd, &message, flags);
        if (written < 0) {
            if (!would_block(errno)) {
                PyErr_SetFromErrno(PyExc_OSError);
                goto done;
            }
            written = 0;
        }
    }
    *sent += written;
    status = written == total;
done:
    while (used > 0) {
        PyBuffer_Release(&views[--used]);
    }
    return status;
}

#ifdef __linux__
/* As send_memory, for the slice at `*index`. A file that ends too early counts as not sent; so the caller's queue
 * meets it again. */
static int
send_slice(int fd, PyObject *parts, Py_ssize_t *index, Py_ssize_t begin, Py_ssize_t *sent)
{
    Slice slice;
    PyObject *part = PySequence_GetItem(parts, *index);
    if (part == NULL) {
        return -1;
    }
    int failed = read_slice(part, &slice);
    Py_DECREF(part);
    if (failed < 0) {
        return -1;
    }
    (*index)++;
    ssize_t written = 0;
    if (begin > slice.length) {
        PyErr_SetString(PyExc_ValueError, "more bytes of a part were sent than it has");
        return -1;
    }
    slice.length -= begin;
    if (slice.length > 0) {
        off_t offset = (off_t)(slice.offset + begin);
        int error;
        Py_BEGIN_ALLOW_THREADS
        written = sendfile(fd, slice.fd, &offset, (size_t)slice.length);
        error = errno;
        Py_END_ALLOW_THREADS
        if (written < 0) {
            if (!would_block(error)) {
                errno = error;
                PyErr_SetFromErrno(PyExc_OSError);
                return -1;
            }
            written = 0;
        }
    }
    *sent += written;
    return written == slice.length;
}
#endif

PyDoc_STRVAR(send_parts_doc, "send_parts(fd, parts, turn_bytes, begin) -> tuple[int, bool]\n\n"
                             "Send parts until the socket takes no more, or at least `turn_bytes` were sent, or 64 system\n"
                             "calls were made. `begin` bytes of the first part have been sent before. Returns how many\n"
                             "bytes were sent, and whether these were all.");

static PyObject *
send_parts(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "send_parts takes 4 arguments");
        return NULL;
    }
    int fd = (int)PyLong_AsLong(args[0]);
    Py_ssize_t turn_bytes = PyLong_AsSsize_t(args[2]), begin = PyLong_AsSsize_t(args[3]), count = PyObject_Size(args[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t index = 0, sent = 0;
    int status = 1;
    for (int calls = 0; index < count && status == 1 && sent < turn_bytes && calls < CALLS_PER_TURN; calls++) {
        PyObject *part = PySequence_GetItem(args[1], index);
        if (part == NULL) {
            return NULL;
        }
        int of_memory = is_memory(part);
        Py_DECREF(part);
#ifdef __linux__
        status = of_memory ? send_memory(fd, args[1], count, &index, begin, &sent)
                           : send_slice(fd, args[1], &index, begin, &sent);
#else
        status = of_memory ? send_memory(fd, args[1], count, &index, begin, &sent) : 0;
#endif
        begin = 0;
    }
    if (status < 0) {
        return NULL;
    }
    PyObject *bytes = PyLong_FromSsize_t(sent);
    if (bytes == NULL) {
        return NULL;
    }
    PyObject *result = PyTuple_Pack(2, bytes, status == 1 && index == count ? Py_True : Py_False);
    Py_DECREF(bytes);
    return result;
}

static int
prepare(PyObject *module)
{
    if (s_file == NULL) {
        s_file = PyUnicode_InternFromString("file");
        s_fileno = PyUnicode_InternFromString("fileno");
        s_offset = PyUnicode_InternFromString("offset");
        s_length = PyUnicode_InternFromString("length");
    }
    return s_file == NULL || s_fileno == NULL || s_offset == NULL || s_length == NULL ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static PyMethodDef methods[] = {
    {"receive", (PyCFunction)(void (*)(void))receive, METH_FASTCALL, receive_doc},
    {"request_fields", (PyCFunction)(void (*)(void))request_fields, METH_FASTCALL, request_fields_doc},
    {"send_parts", (PyCFunction)(void (*)(void))send_parts, METH_FASTCALL, send_parts_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._wire",
    .m_doc = "Frames received, headers of requests and parts sent, compiled.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__wire(void)
{
    return PyModuleDef_Init(&module);
}
