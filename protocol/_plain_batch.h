/* The check of a plain batch: the only one of its append, which keeps its producer's timestamps and has no mark.
 * plain_produce.plain_header_in_python does the same; tests compare the two. A peer wrote the bytes.
 */

#ifndef HOLDFAST_PLAIN_BATCH_H
#define HOLDFAST_PLAIN_BATCH_H

#include <Python.h>
#include <stdint.h>

#include "_reading.h"
#include "_record_validation.h"

#define HEADER_SIZE 61
#define LOG_OVERHEAD 12
#define MAGIC 2
#define CHECKED_FROM 21
#define LAST_CODEC 4
#define COMPRESSION_MASK 0x07
#define LOG_APPEND_TIME 0x08
#define MARKS 0x4070     /* transactional, control, delete horizon, append id */
#define MIN_RECORD_SIZE 7

/* Where fields of a batch's header are. */
#define LENGTH_AT 8
#define LEADER_EPOCH_AT 12
#define MAGIC_AT 16
#define CRC_AT 17
#define ATTRIBUTES_AT 21
#define LAST_OFFSET_DELTA_AT 23
#define BASE_TIMESTAMP_AT 27
#define MAX_TIMESTAMP_AT 35
#define PRODUCER_ID_AT 43
#define PRODUCER_EPOCH_AT 51
#define SEQUENCE_AT 53
#define RECORD_COUNT_AT 57

/* The limits of a batch: bytes, and ms before and after the time of day. */
typedef struct {
    int64_t size_max, before_max_ms, after_max_ms;
} BatchLimits;

/* Whether `later` is more than `most_ms` after `earlier`. */
static inline int
is_beyond(int64_t later, int64_t earlier, int64_t most_ms)
{
    return later > earlier && (uint64_t)later - (uint64_t)earlier > (uint64_t)most_ms;
}

/* Whether the header of a batch is plain and fits its bytes; nothing of the rest is looked at. */
static int
has_plain_header(const uint8_t *batch, Py_ssize_t size, const BatchLimits *limits, int64_t now_ms)
{
    if (size < HEADER_SIZE || size > limits->size_max || (int8_t)batch[MAGIC_AT] != MAGIC
        || (int64_t)int32_at(batch + LENGTH_AT) + LOG_OVERHEAD != size || limits->before_max_ms < 0
        || limits->after_max_ms < 0) {
        return 0;
    }
    int16_t attributes = int16_at(batch + ATTRIBUTES_AT);
    int64_t last_offset_delta = int32_at(batch + LAST_OFFSET_DELTA_AT), record_count = int32_at(batch + RECORD_COUNT_AT);
    int64_t base_timestamp = int64_at(batch + BASE_TIMESTAMP_AT), max_timestamp = int64_at(batch + MAX_TIMESTAMP_AT);
    int64_t producer_id = int64_at(batch + PRODUCER_ID_AT);
    if (attributes & (MARKS | LOG_APPEND_TIME) || (attributes & COMPRESSION_MASK) > LAST_CODEC || record_count <= 0
        || record_count != last_offset_delta + 1
        || (!(attributes & COMPRESSION_MASK) && record_count * MIN_RECORD_SIZE > size - HEADER_SIZE)) {
        return 0;
    }
    if (producer_id < 0 ? producer_id != -1
                        : int16_at(batch + PRODUCER_EPOCH_AT) < 0 || int32_at(batch + SEQUENCE_AT) < 0) {
        return 0;
    }
    return !is_beyond(max_timestamp, now_ms, limits->after_max_ms)
        && (base_timestamp <= -1 || !is_beyond(now_ms, base_timestamp, limits->before_max_ms));
}

/* Whether the checksum is right. An exception may be set if not. `crc32c` is that of checksum.py. */
static int
has_valid_crc(PyObject *crc32c, const uint8_t *batch, Py_ssize_t size)
{
    PyObject *covered = PyMemoryView_FromMemory((char *)batch + CHECKED_FROM, size - CHECKED_FROM, PyBUF_READ);
    if (covered == NULL) {
        return 0;
    }
    PyObject *sum = PyObject_CallFunctionObjArgs(crc32c, covered, NULL);
    Py_DECREF(covered);
    if (sum == NULL) {
        return 0;
    }
    unsigned long found = PyLong_AsUnsignedLong(sum);
    Py_DECREF(sum);
    return !PyErr_Occurred() && found == number_at(batch + CRC_AT, 4);
}

/* Whether the records of an uncompressed batch are sound, and its header has their largest timestamp. */
static int
has_sound_records(const uint8_t *batch, Py_ssize_t size, int64_t now_ms, int64_t before_max_ms)
{
    RecordsVerdict verdict = {.missing = NULL};
    check_records(batch + HEADER_SIZE, batch + size, int32_at(batch + RECORD_COUNT_AT),
                  int64_at(batch + BASE_TIMESTAMP_AT), &verdict);
    return verdict.reason == NULL && verdict.most == int64_at(batch + MAX_TIMESTAMP_AT)
           && (verdict.least < 0 || !is_beyond(now_ms, verdict.least, before_max_ms));
}

/* Whether the bytes are one plain batch that a broker may append. The records of a compressed one are not looked at. An
 * exception may be set if they are not. */
static int
is_plain_batch(PyObject *crc32c, const uint8_t *batch, Py_ssize_t size, const BatchLimits *limits, int64_t now_ms)
{
    return has_plain_header(batch, size, limits, now_ms) && has_valid_crc(crc32c, batch, size)
        && (int16_at(batch + ATTRIBUTES_AT) & COMPRESSION_MASK
            || has_sound_records(batch, size, now_ms, limits->before_max_ms));
}

/* The BatchHeader of a batch at position 0, by the class and tuple's `__new__`. */
static PyObject *
new_header(PyTypeObject *type, newfunc new_tuple, const uint8_t *batch)
{
    int64_t numbers[] = {
        0,
        int64_at(batch),
        int32_at(batch + LENGTH_AT),
        int32_at(batch + LEADER_EPOCH_AT),
        (int8_t)batch[MAGIC_AT],
        (int64_t)number_at(batch + CRC_AT, 4),
        int16_at(batch + ATTRIBUTES_AT),
        int32_at(batch + LAST_OFFSET_DELTA_AT),
        int64_at(batch + BASE_TIMESTAMP_AT),
        int64_at(batch + MAX_TIMESTAMP_AT),
        int64_at(batch + PRODUCER_ID_AT),
        int16_at(batch + PRODUCER_EPOCH_AT),
        int32_at(batch + SEQUENCE_AT),
        int32_at(batch + RECORD_COUNT_AT),
    };
    Py_ssize_t count = sizeof numbers / sizeof *numbers;
    PyObject *values = PyTuple_New(count);
    if (values == NULL) {
        return NULL;
    }
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *value = PyLong_FromLongLong(numbers[number]);
        if (value == NULL || PyTuple_SetItem(values, number, value) < 0) {
            Py_DECREF(values);
            return NULL;
        }
    }
    PyObject *arguments = PyTuple_Pack(1, values);
    Py_DECREF(values);
    if (arguments == NULL) {
        return NULL;
    }
    PyObject *header = new_tuple(type, arguments, NULL);
    Py_DECREF(arguments);
    return header;
}

#endif
