/* The header of a request, as bytes: protocol/headers.py explains it, and reads whatever is not usual. */

#ifndef HOLDFAST_REQUEST_HEADER_H
#define HOLDFAST_REQUEST_HEADER_H

#include <Python.h>
#include <stdint.h>

#include "_reading.h"

#define REQUEST_HEADER_BYTES 10 /* API key, version, correlation id, length of the client id */

/* `client_id` is NULL for null. `body` is where the body begins. */
typedef struct {
    int32_t form, correlation_id;
    const char *client_id;
    Py_ssize_t client_id_size, body;
} RequestHeader;

/* Reads the header of a frame of `size` bytes. `flexible` is the set of the forms whose headers have tagged fields; `form`
 * gets the form as an object, a new reference. Returns 1; 0 if the header is unusual or malformed; -1 with an exception. */
static int
read_request_header(const uint8_t *frame, Py_ssize_t size, PyObject *flexible, RequestHeader *header, PyObject **form)
{
    if (size < REQUEST_HEADER_BYTES) {
        return 0;
    }
    int length = int16_at(frame + 8);
    header->form = int32_at(frame);
    header->correlation_id = int32_at(frame + 4);
    header->client_id = length < 0 ? NULL : (const char *)frame + REQUEST_HEADER_BYTES;
    header->client_id_size = length < 0 ? 0 : length;
    header->body = REQUEST_HEADER_BYTES + header->client_id_size;
    if (header->body > size) {
        return 0;
    }
    *form = PyLong_FromLong(header->form);
    int is_flexible = *form == NULL ? -1 : PySet_Contains(flexible, *form);
    int is_usual = is_flexible < 0 ? -1 : 1;
    if (is_flexible == 1 && (header->body == size || frame[header->body++] != 0)) {
        is_usual = 0;
    }
    if (is_usual != 1) {
        Py_CLEAR(*form);
    }
    return is_usual;
}

#endif
