/* Reads the numbers, lengths and bytes of a request, and writes numbers. All decoders of requests in C share it.
 *
 * A peer wrote every request that is read here. A cursor never moves beyond the end of its bytes, and no size is trusted
 * before it is compared with the bytes that remain. Nothing here uses Python.
 */

#ifndef HOLDFAST_READING_H
#define HOLDFAST_READING_H

#include <stddef.h>
#include <stdint.h>

#define STRING_BYTES_MAX 0x7FFF

/* Where the next byte of a request is. `is_flexible`: whether its version has compact lengths and tagged fields. */
typedef struct {
    const uint8_t *at, *end;
    int is_flexible;
} Cursor;

/* Numbers at a place, big endian. */

static inline uint64_t
number_at(const uint8_t *at, int size)
{
    uint64_t number = 0;
    for (int index = 0; index < size; index++) {
        number = number << 8 | at[index];
    }
    return number;
}

static inline int16_t
int16_at(const uint8_t *at)
{
    return (int16_t)number_at(at, 2);
}

static inline int32_t
int32_at(const uint8_t *at)
{
    return (int32_t)number_at(at, 4);
}

static inline int64_t
int64_at(const uint8_t *at)
{
    return (int64_t)number_at(at, 8);
}

static inline void
write_number(uint8_t *at, uint64_t number, int size)
{
    for (int index = size - 1; index >= 0; index--) {
        at[index] = (uint8_t)number;
        number >>= 8;
    }
}

/* Reading: what returns an int returns 0, or -1 for whatever is cut off, malformed or unusual; then the cursor is of no
 * more use. */

/* The next `size` bytes; NULL if fewer remain. */
static inline const uint8_t *
take(Cursor *cursor, int64_t size)
{
    if (size < 0 || size > cursor->end - cursor->at) {
        return NULL;
    }
    const uint8_t *taken = cursor->at;
    cursor->at += size;
    return taken;
}

/* A signed number of `size` bytes. */
static inline int
read_number(Cursor *cursor, int size, int64_t *number)
{
    const uint8_t *at = take(cursor, size);
    if (at == NULL) {
        return -1;
    }
    int unused = 64 - 8 * size;
    *number = (int64_t)(number_at(at, size) << unused) >> unused;
    return 0;
}

static inline int
read_int32(Cursor *cursor, int32_t *number)
{
    const uint8_t *at = take(cursor, 4);
    if (at == NULL) {
        return -1;
    }
    *number = int32_at(at);
    return 0;
}

/* A length, -1 for null: a varint of length plus one in flexible versions, otherwise a number of `size` bytes. */
static inline int
read_length(Cursor *cursor, int size, int64_t *length)
{
    if (!cursor->is_flexible) {
        return read_number(cursor, size, length);
    }
    uint64_t value = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
        const uint8_t *at = take(cursor, 1);
        if (at == NULL) {
            return -1;
        }
        value |= (uint64_t)(*at & 0x7F) << shift;
        if (*at < 0x80) {
            *length = (int64_t)value - 1;
            return value > UINT32_MAX ? -1 : 0;
        }
    }
    return -1;
}

/* A number that must be `expected`. */
static inline int
expect(Cursor *cursor, int size, int64_t expected)
{
    int64_t number;
    return read_number(cursor, size, &number) < 0 || number != expected ? -1 : 0;
}

/* A length that must be `expected`. */
static inline int
expect_length(Cursor *cursor, int size, int64_t expected)
{
    int64_t length;
    return read_length(cursor, size, &length) < 0 || length != expected ? -1 : 0;
}

/* The end of a struct: in flexible versions the number of its tagged fields, which the usual request has not. */
static inline int
end_struct(Cursor *cursor)
{
    return cursor->is_flexible ? expect(cursor, 1, 0) : 0;
}

#endif
