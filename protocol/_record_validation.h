/* The walk over the records of a batch that checks them, without an object for each. record_validation.py does the same
 * in Python, with equal verdicts and reasons, and explains them; tests compare the two.
 *
 * A peer wrote everything that is read here. A cursor never moves beyond the end of its bytes, and no size is trusted
 * before it is compared with the bytes that remain. The functions use nothing of Python: they run without the GIL.
 */

#ifndef HOLDFAST_RECORD_VALIDATION_H
#define HOLDFAST_RECORD_VALIDATION_H

#include <stddef.h>
#include <stdint.h>

#define MISSING_KEYS_MAX 1000

typedef struct {
    int64_t index;      /* of the record at fault; -1 if it is none in particular */
    const char *reason; /* NULL if the records are sound */
    int64_t most, most_at;
    int64_t least, least_at; /* of the timestamps from 0 on; -1 if there is none */
    int64_t missing_keys;
    int32_t *missing; /* room for the indexes of MISSING_KEYS_MAX records without key; may be NULL */
} RecordsVerdict;

/* A number of at most 32 bits in at most five bytes; NULL if it is neither, or ends beyond `end`. */
static inline const uint8_t *
take_varint32(const uint8_t *at, const uint8_t *end, uint32_t *number)
{
    if (at < end && *at < 0x80) {
        *number = *at;
        return at + 1;
    }
    uint32_t value = 0;
    for (int shift = 0; shift <= 28 && at < end; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 28 && byte > 0x0F) {
            return NULL;
        }
        value |= (uint32_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = value;
            return at;
        }
    }
    return NULL;
}

static inline const uint8_t *
take_varint64(const uint8_t *at, const uint8_t *end, uint64_t *number)
{
    if (at < end && *at < 0x80) {
        *number = *at;
        return at + 1;
    }
    uint64_t value = 0;
    for (int shift = 0; shift <= 63 && at < end; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1) {
            return NULL;
        }
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = value;
            return at;
        }
    }
    return NULL;
}

static inline int64_t
signed_number(uint64_t number)
{
    return (int64_t)((number >> 1) ^ -(number & 1));
}

/* Skips a length and that many bytes. `start` is where they begin, NULL for null. */
static inline const char *
skip_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **start, const char *early, const char *negative)
{
    uint32_t number;
    const uint8_t *next = take_varint32(*at, end, &number);
    *start = NULL;
    if (next == NULL) {
        return early;
    }
    if (number & 1) {
        *at = next;
        return number == 1 ? NULL : negative;
    }
    if ((ptrdiff_t)(number >> 1) > end - next) {
        return early;
    }
    *start = next;
    *at = next + (number >> 1);
    return NULL;
}

/* Whether the bytes are UTF-8 as Python decodes it: no surrogates, no number in more bytes than it needs. */
static inline int
is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint8_t first = *at++;
        if (first < 0x80) {
            continue;
        }
        int more = first >= 0xC2 && first <= 0xDF ? 1 : first >= 0xE0 && first <= 0xEF ? 2
                 : first >= 0xF0 && first <= 0xF4 ? 3 : 0;
        if (more == 0 || end - at < more) {
            return 0;
        }
        uint8_t least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        uint8_t most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (*at < least || *at > most) {
            return 0;
        }
        for (int number = 1; number < more; number++) {
            if ((at[number] & 0xC0) != 0x80) {
                return 0;
            }
        }
        at += more;
    }
    return 1;
}

static const char *
check_record_headers(const uint8_t **at, const uint8_t *end)
{
    uint32_t count;
    const uint8_t *next = take_varint32(*at, end, &count);
    if (next == NULL) {
        return "the number of its headers is cut off or has more than 32 bits";
    }
    if (count & 1) {
        return "the number of its headers is negative";
    }
    for (count >>= 1; count > 0; count--) {
        const uint8_t *key, *value;
        const char *fault = skip_bytes(&next, end, &key, "a header's key ends beyond the record",
                                       "the length of a header's key is negative");
        if (fault != NULL) {
            return fault;
        }
        if (key == NULL) {
            return "a header has no key";
        }
        if (!is_utf8(key, next)) {
            return "a header's key is not UTF-8";
        }
        fault = skip_bytes(&next, end, &value, "a header's value ends beyond the record",
                           "the length of a header's value is below -1");
        if (fault != NULL) {
            return fault;
        }
    }
    *at = next;
    return NULL;
}

/* Checks `count` records, which must fill the bytes from `at` to `end` exactly. */
static void
check_records(const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_timestamp, RecordsVerdict *verdict)
{
    int64_t most = -1, most_at = -1, least = INT64_MAX, least_at = -1, missing_keys = 0, index = 0;
    const char *fault = NULL;
    for (; index < count; index++) {
        uint32_t number;
        uint64_t delta;
        const uint8_t *start;
        if (at == end) {
            fault = "the batch ends before this record";
            break;
        }
        at = take_varint32(at, end, &number);
        if (at == NULL) {
            fault = "its length is cut off or has more than 32 bits";
            break;
        }
        if (number & 1) {
            fault = "its length is negative";
            break;
        }
        if ((ptrdiff_t)(number >> 1) > end - at) {
            fault = "it ends beyond the batch";
            break;
        }
        const uint8_t *record_end = at + (number >> 1);
        if (at == record_end) {
            fault = "it is empty";
            break;
        }
        at = take_varint64(at + 1, record_end, &delta); /* behind the attributes, all undefined */
        if (at == NULL) {
            fault = "its timestamp is cut off or has more than 64 bits";
            break;
        }
        int64_t timestamp;
        if (__builtin_add_overflow(base_timestamp, signed_number(delta), &timestamp)) {
            fault = "its timestamp has more than 64 bits";
            break;
        }
        at = take_varint32(at, record_end, &number);
        if (at == NULL) {
            fault = "its offset is cut off or has more than 32 bits";
            break;
        }
        if (number != (uint64_t)index << 1) {
            fault = "its offset delta is not its place in the batch";
            break;
        }
        fault = skip_bytes(&at, record_end, &start, "its key ends beyond the record",
                           "the length of its key is below -1");
        if (fault != NULL) {
            break;
        }
        int has_key = start != NULL;
        fault = skip_bytes(&at, record_end, &start, "its value ends beyond the record",
                           "the length of its value is below -1");
        if (fault != NULL) {
            break;
        }
        if (at < record_end && *at == 0) {
            at++;
        }
        else if ((fault = check_record_headers(&at, record_end)) != NULL) {
            break;
        }
        if (at != record_end) {
            fault = "bytes follow its last header";
            break;
        }
        if (!has_key) {
            if (missing_keys < MISSING_KEYS_MAX && verdict->missing != NULL) {
                verdict->missing[missing_keys] = (int32_t)index;
            }
            missing_keys++;
        }
        if (timestamp > most) {
            most = timestamp;
            most_at = index;
        }
        if (timestamp < least && timestamp >= 0) {
            least = timestamp;
            least_at = index;
        }
    }
    if (fault == NULL && at != end) {
        fault = "bytes follow the last record";
        index = -1;
    }
    verdict->index = fault == NULL ? -1 : index;
    verdict->reason = fault;
    verdict->most = most;
    verdict->most_at = most_at;
    verdict->least = least_at < 0 ? -1 : least;
    verdict->least_at = least_at;
    verdict->missing_keys = missing_keys;
}

#endif
