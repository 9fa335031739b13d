/* The loops of log compaction, compiled. compaction_loops.py does the same in Python, with equal bytes, and
 * protocol/compaction.py explains the rules; tests compare the two. Where this file was not compiled, Python is used.
 *
 * A peer wrote the records that are read here. A cursor never moves beyond the end of its bytes, and no size is
 * trusted before it is compared with the bytes that remain. The loops run without the GIL: they touch only the
 * buffers that the caller holds, and memory of their own.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_SIZE 61
#define LOG_OVERHEAD 12
#define DIGEST_BYTES 16
#define SLOT_BYTES 24

#define COMPRESSION_MASK 0x07
#define LOG_APPEND_TIME 0x08
#define TRANSACTIONAL 0x10
#define CONTROL 0x20
#define DELETE_HORIZON 0x40
#define HAS_APPEND_ID 0x4000

#define TURN_BYTES (32 * 1024)

enum { ENDED = 0, COMPRESSED = 1, FULL = 2, DAMAGED = 3, MARKED = 4 };

/* CRC-32C ------------------------------------------------------------------------------------------------- */

static uint32_t crc_tables[8][256];

static void
fill_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
        }
        crc_tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_tables[table - 1][byte];
            crc_tables[table][byte] = crc_tables[0][crc & 0xFF] ^ (crc >> 8);
        }
    }
}

static uint32_t
crc_by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = crc_tables[7][low & 0xFF] ^ crc_tables[6][(low >> 8) & 0xFF] ^ crc_tables[5][(low >> 16) & 0xFF]
              ^ crc_tables[4][low >> 24] ^ crc_tables[3][data[4]] ^ crc_tables[2][data[5]] ^ crc_tables[1][data[6]]
              ^ crc_tables[0][data[7]];
    }
    for (; size; data++, size--) {
        crc = crc_tables[0][(crc ^ *data) & 0xFF] ^ (crc >> 8);
    }
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_CRC_INSTRUCTION 1
__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t crc, const uint8_t *data, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; data++, size--) {
        crc = __builtin_ia32_crc32qi(crc, *data);
    }
    return crc;
}
#endif

static uint32_t (*crc_update)(uint32_t, const uint8_t *, size_t) = crc_by_table;

static uint32_t
crc32c(const uint8_t *data, size_t size)
{
    return ~crc_update(0xFFFFFFFFu, data, size);
}

/* BLAKE2b with a digest of 16 bytes and no key (RFC 7693), as hashlib.blake2b(digest_size=16) ---------------- */

static const uint64_t blake_iv[8] = {
    0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu, 0xA54FF53A5F1D36F1u,
    0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu, 0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u,
};

static const uint8_t blake_sigma[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t
rotate(uint64_t word, int bits)
{
    return word >> bits | word << (64 - bits);
}

static inline uint64_t
read_little(const uint8_t *at)
{
    uint64_t word = 0;
    for (int index = 7; index >= 0; index--) {
        word = word << 8 | at[index];
    }
    return word;
}

static inline void
write_little(uint8_t *at, uint64_t word)
{
    for (int index = 0; index < 8; index++) {
        at[index] = (uint8_t)(word >> 8 * index);
    }
}

#define MIX(a, b, c, d, x, y)                                                                                          \
    do {                                                                                                               \
        v[a] += v[b] + (x);                                                                                            \
        v[d] = rotate(v[d] ^ v[a], 32);                                                                                \
        v[c] += v[d];                                                                                                  \
        v[b] = rotate(v[b] ^ v[c], 24);                                                                                \
        v[a] += v[b] + (y);                                                                                            \
        v[d] = rotate(v[d] ^ v[a], 16);                                                                                \
        v[c] += v[d];                                                                                                  \
        v[b] = rotate(v[b] ^ v[c], 63);                                                                                \
    } while (0)

static void
blake_block(uint64_t *state, const uint8_t *block, uint64_t bytes_so_far, int is_last)
{
    uint64_t v[16], m[16];
    for (int index = 0; index < 16; index++) {
        m[index] = read_little(block + 8 * index);
    }
    memcpy(v, state, 64);
    memcpy(v + 8, blake_iv, 64);
    v[12] ^= bytes_so_far;
    if (is_last) {
        v[14] = ~v[14];
    }
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = blake_sigma[round];
        MIX(0, 4, 8, 12, m[s[0]], m[s[1]]);
        MIX(1, 5, 9, 13, m[s[2]], m[s[3]]);
        MIX(2, 6, 10, 14, m[s[4]], m[s[5]]);
        MIX(3, 7, 11, 15, m[s[6]], m[s[7]]);
        MIX(0, 5, 10, 15, m[s[8]], m[s[9]]);
        MIX(1, 6, 11, 12, m[s[10]], m[s[11]]);
        MIX(2, 7, 8, 13, m[s[12]], m[s[13]]);
        MIX(3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int index = 0; index < 8; index++) {
        state[index] ^= v[index] ^ v[index + 8];
    }
}

static void
digest_of(const uint8_t *key, size_t size, uint8_t *digest)
{
    uint64_t state[8];
    uint8_t block[128];
    uint64_t done = 0;
    memcpy(state, blake_iv, 64);
    state[0] ^= 0x01010000u ^ DIGEST_BYTES;
    for (; size - done > 128; done += 128) {
        blake_block(state, key + done, done + 128, 0);
    }
    memset(block, 0, sizeof block);
    memcpy(block, key + done, size - done);
    blake_block(state, block, size, 1);
    write_little(digest, state[0]);
    write_little(digest + 8, state[1]);
}

/* The table ----------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *slots;
    uint64_t slot_count;
} Table;

/* The slot that has the digest, or would take it. */
static uint8_t *
slot_of(const Table *table, const uint8_t *digest)
{
    uint64_t number = read_little(digest) % table->slot_count;
    for (;;) {
        uint8_t *slot = table->slots + number * SLOT_BYTES;
        if (read_little(slot + DIGEST_BYTES) == 0 || memcmp(slot, digest, DIGEST_BYTES) == 0) {
            return slot;
        }
        if (++number == table->slot_count) {
            number = 0;
        }
    }
}

/* Parsing ------------------------------------------------------------------------------------------------- */

static inline uint64_t
read_big(const uint8_t *at, int size)
{
    uint64_t word = 0;
    for (int index = 0; index < size; index++) {
        word = word << 8 | at[index];
    }
    return word;
}

static inline void
write_big(uint8_t *at, uint64_t word, int size)
{
    for (int index = size - 1; index >= 0; index--) {
        at[index] = (uint8_t)word;
        word >>= 8;
    }
}

typedef struct {
    const uint8_t *at;
    size_t size;
    int64_t base_offset;
    int32_t leader_epoch;
    int attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t record_count;
} Batch;

/* Read a sound batch whose offsets are at least `expected` and below `upper`. Returns -1, or why there is none. */
static int
read_batch(const uint8_t *at, const uint8_t *end, int64_t expected, int64_t upper, Batch *batch)
{
    if (end - at < HEADER_SIZE) {
        return ENDED;
    }
    int32_t length = (int32_t)read_big(at + 8, 4);
    if (length < HEADER_SIZE - LOG_OVERHEAD || at[16] != 2) {
        return DAMAGED;
    }
    if ((int64_t)length + LOG_OVERHEAD > end - at) {
        return ENDED;
    }
    batch->at = at;
    batch->size = (size_t)length + LOG_OVERHEAD;
    batch->base_offset = (int64_t)read_big(at, 8);
    batch->leader_epoch = (int32_t)read_big(at + 12, 4);
    batch->attributes = (int)read_big(at + 21, 2);
    batch->last_offset_delta = (int32_t)read_big(at + 23, 4);
    batch->base_timestamp = (int64_t)read_big(at + 27, 8);
    batch->max_timestamp = (int64_t)read_big(at + 35, 8);
    batch->record_count = (int32_t)read_big(at + 57, 4);
    if (batch->last_offset_delta < 0 || batch->base_offset < expected
        || batch->base_offset >= upper - batch->last_offset_delta
        || crc32c(at + 21, batch->size - 21) != (uint32_t)read_big(at + 17, 4)) {
        return DAMAGED;
    }
    return -1;
}

/* All functions that read return -1 for bytes that do not have the format. */

static inline int
read_number(const uint8_t **at, const uint8_t *end, int64_t *number)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (*at >= end) {
            return -1;
        }
        uint8_t byte = *(*at)++;
        if (shift == 63 && byte > 1) {
            return -1;
        }
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)((value >> 1) ^ (0 - (value & 1)));
            return 0;
        }
    }
}

static inline int
read_piece(const uint8_t **at, const uint8_t *end, int64_t least, const uint8_t **piece, int64_t *size)
{
    if (read_number(at, end, size) < 0 || *size < least || *size > end - *at) {
        return -1;
    }
    *piece = *at;
    if (*size > 0) {
        *at += *size;
    }
    return 0;
}

typedef struct {
    const uint8_t *start; /* of the record */
    const uint8_t *body;  /* after its length */
    const uint8_t *timed_end;
    const uint8_t *end;
    int64_t timestamp_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_size;
    int64_t value_size;
} Record;

static int
read_record(const uint8_t *at, const uint8_t *end, int64_t last_delta, int64_t last_offset_delta, Record *record)
{
    int64_t length, headers, size;
    const uint8_t *piece;
    record->start = at;
    if (read_number(&at, end, &length) < 0) {
        return -1;
    }
    record->body = at;
    if (length < 0 || length > end - at || at >= end) {
        return -1;
    }
    record->end = at + length;
    at++; /* attributes, all undefined */
    if (read_number(&at, end, &record->timestamp_delta) < 0) {
        return -1;
    }
    record->timed_end = at;
    if (read_number(&at, end, &record->offset_delta) < 0 || record->offset_delta <= last_delta
        || record->offset_delta > last_offset_delta
        || read_piece(&at, end, -1, &record->key, &record->key_size) < 0
        || read_piece(&at, end, -1, &piece, &record->value_size) < 0 || read_number(&at, end, &headers) < 0
        || headers < 0) {
        return -1;
    }
    for (; headers > 0; headers--) {
        if (read_piece(&at, end, 0, &piece, &size) < 0 || read_piece(&at, end, -1, &piece, &size) < 0) {
            return -1;
        }
    }
    return at == record->end ? 0 : -1;
}

/* Whether the records have the format, which is established before any of them is used. */
static int
are_sound(const uint8_t *at, const uint8_t *end, int64_t record_count, int64_t last_offset_delta)
{
    Record record;
    int64_t last_delta = -1;
    if (record_count < 0) {
        return 0;
    }
    for (; record_count > 0; record_count--) {
        if (read_record(at, end, last_delta, last_offset_delta, &record) < 0) {
            return 0;
        }
        at = record.end;
        last_delta = record.offset_delta;
    }
    return at == end;
}

/* Mapping ------------------------------------------------------------------------------------------------- */

/* Add the keys of one batch. Returns FULL with the offset of the first record that has no place, or ENDED. */
static int
map_records(const uint8_t *at, const uint8_t *end, int64_t record_count, int64_t last_offset_delta,
            int64_t base_offset, const Table *table, int64_t *count, int64_t count_max, int64_t first_offset,
            int64_t *stopped_at)
{
    Record record;
    uint8_t digest[DIGEST_BYTES];
    int64_t last_delta = -1;
    if (!are_sound(at, end, record_count, last_offset_delta)) {
        return ENDED;
    }
    for (; record_count > 0; record_count--) {
        read_record(at, end, last_delta, last_offset_delta, &record);
        at = record.end;
        last_delta = record.offset_delta;
        int64_t offset = base_offset + record.offset_delta;
        if (record.key_size < 0 || offset < first_offset) {
            continue;
        }
        digest_of(record.key, (size_t)record.key_size, digest);
        uint8_t *slot = slot_of(table, digest);
        if (read_little(slot + DIGEST_BYTES) == 0) {
            if (*count >= count_max) {
                *stopped_at = offset;
                return FULL;
            }
            ++*count;
            memcpy(slot, digest, DIGEST_BYTES);
        }
        write_little(slot + DIGEST_BYTES, (uint64_t)offset + 1);
    }
    return ENDED;
}

/* Whether the table has whole slots, and one of them stays free. */
static int
take_table(const Py_buffer *buffer, int64_t count_max, Table *table)
{
    table->slots = buffer->buf;
    table->slot_count = (uint64_t)buffer->len / SLOT_BYTES;
    if (table->slot_count == 0 || (uint64_t)buffer->len % SLOT_BYTES || count_max >= (int64_t)table->slot_count) {
        PyErr_SetString(PyExc_ValueError, "the table has no free slot");
        return -1;
    }
    return 0;
}

/* Let a thread run that waits for this processor, such as the one that serves clients, after each TURN_BYTES.
 * Otherwise it waits until the system takes the processor away, which is some milliseconds. */
static void
yield_turn(size_t size, size_t *done)
{
    *done += size;
    if (*done >= TURN_BYTES) {
        *done = 0;
        sched_yield();
    }
}

PyDoc_STRVAR(add_batch_keys_doc, "See holdfast_log.protocol.compaction.");

static PyObject *
add_batch_keys(PyObject *module, PyObject *args)
{
    Py_buffer payload, slots;
    long long record_count, last_offset_delta, base_offset, count, count_max, first_offset;
    if (!PyArg_ParseTuple(args, "y*LLLw*LLL:add_batch_keys", &payload, &record_count, &last_offset_delta,
                          &base_offset, &slots, &count, &count_max, &first_offset)) {
        return NULL;
    }
    Table table;
    PyObject *result = NULL;
    if (take_table(&slots, count_max, &table) == 0) {
        int64_t total = count, stopped_at = 0;
        int status;
        Py_BEGIN_ALLOW_THREADS;
        const uint8_t *at = payload.buf;
        status = map_records(at, at + payload.len, record_count, last_offset_delta, base_offset, &table, &total,
                             count_max, first_offset, &stopped_at);
        Py_END_ALLOW_THREADS;
        result = Py_BuildValue("LiL", (long long)total, status, (long long)stopped_at);
    }
    PyBuffer_Release(&payload);
    PyBuffer_Release(&slots);
    return result;
}

PyDoc_STRVAR(add_keys_doc, "See holdfast_log.protocol.compaction.");

static PyObject *
add_keys(PyObject *module, PyObject *args)
{
    Py_buffer data, slots;
    Py_ssize_t position;
    long long expected, upper, count, count_max, first_offset;
    if (!PyArg_ParseTuple(args, "y*nLLw*LLL:add_keys", &data, &position, &expected, &upper, &slots, &count, &count_max,
                          &first_offset)) {
        return NULL;
    }
    Table table;
    PyObject *result = NULL;
    if (position < 0 || position > data.len || expected < 0 || upper < 0) {
        PyErr_SetString(PyExc_ValueError, "the position or the offsets are impossible");
    }
    else if (take_table(&slots, count_max, &table) == 0) {
        int64_t total = count, stopped_at = 0;
        int status;
        Py_BEGIN_ALLOW_THREADS;
        const uint8_t *start = data.buf, *end = start + data.len, *at = start + position;
        Batch batch;
        size_t done = 0;
        while ((status = read_batch(at, end, expected, upper, &batch)) < 0) {
            if (batch.attributes & (CONTROL | TRANSACTIONAL)) {
                status = MARKED;
                break;
            }
            if (batch.base_offset + batch.last_offset_delta >= first_offset) {
                if (batch.attributes & COMPRESSION_MASK) {
                    status = COMPRESSED;
                    break;
                }
                if (map_records(at + HEADER_SIZE, at + batch.size, batch.record_count, batch.last_offset_delta,
                                batch.base_offset, &table, &total, count_max, first_offset, &stopped_at)
                    == FULL) {
                    status = FULL;
                    break;
                }
            }
            at += batch.size;
            expected = batch.base_offset + batch.last_offset_delta + 1;
            yield_turn((size_t)batch.size, &done);
        }
        position = at - start;
        Py_END_ALLOW_THREADS;
        result = Py_BuildValue("nLLiL", position, expected, (long long)total, status, (long long)stopped_at);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&slots);
    return result;
}

/* Filtering ----------------------------------------------------------------------------------------------- */

/* `is_borrowed`: the bytes belong to a Python object, and are copied if they need more room. */
typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t room;
    int is_borrowed;
} Output;

/* Where `size` more bytes may be written; NULL without memory. */
static uint8_t *
reserve(Output *output, size_t size)
{
    if (output->room - output->size < size) {
        size_t room = output->room + output->room / 2 + size;
        uint8_t *bytes = realloc(output->is_borrowed ? NULL : output->bytes, room);
        if (bytes == NULL) {
            return NULL;
        }
        if (output->is_borrowed) {
            memcpy(bytes, output->bytes, output->size);
            output->is_borrowed = 0;
        }
        output->bytes = bytes;
        output->room = room;
    }
    return output->bytes + output->size;
}

static int
copy_out(Output *output, const uint8_t *data, size_t size)
{
    uint8_t *to = reserve(output, size);
    if (to == NULL) {
        return -1;
    }
    memcpy(to, data, size);
    output->size += size;
    return 0;
}

static inline uint64_t
zigzag(int64_t number)
{
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

static inline size_t
number_size(uint64_t number)
{
    size_t size = 1;
    for (; number > 0x7F; number >>= 7) {
        size++;
    }
    return size;
}

static inline uint8_t *
write_number(uint8_t *at, uint64_t number)
{
    while (number > 0x7F) {
        *at++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *at++ = (uint8_t)number;
    return at;
}

typedef struct {
    Table table;
    int64_t map_end;
    int64_t now_ms;
    int64_t horizon_ms;
} Rules;

typedef struct {
    int64_t record_count;
    int64_t max_timestamp;
    int has_new_horizon;
    int has_first;
} Kept;

enum { UNCHANGED = 0, CHANGED = 1, NO_MEMORY = -1 };

static int
is_record_kept(const Record *record, const Batch *batch, int keeps_first, int is_expired, const Rules *rules)
{
    uint8_t digest[DIGEST_BYTES];
    if (record->key_size < 0 || (keeps_first && record->offset_delta == 0)) {
        return 1;
    }
    digest_of(record->key, (size_t)record->key_size, digest);
    int64_t latest = (int64_t)read_little(slot_of(&rules->table, digest) + DIGEST_BYTES) - 1;
    return batch->base_offset + record->offset_delta >= latest && (record->value_size >= 0 || !is_expired);
}

/* Write the records that remain of a batch, whose records lie between `at` and `end`, to `output`. */
static int
filter_one(const Batch *batch, const uint8_t *at, const uint8_t *end, int keeps_first, const Rules *rules,
           Output *output, Kept *kept)
{
    Record record;
    int64_t count = batch->record_count, last_delta = -1, timestamp, shifted;
    int has_horizon = !!(batch->attributes & DELETE_HORIZON), has_tombstone = 0, fits = 1, has_maximum = 0;
    int may_expire = batch->base_offset + batch->last_offset_delta < rules->map_end;
    int is_expired = may_expire && has_horizon && batch->base_timestamp <= rules->now_ms;
    if (!are_sound(at, end, count, batch->last_offset_delta)) {
        return UNCHANGED;
    }
    uint8_t *marks = malloc(count ? (size_t)count : 1);
    if (marks == NULL) {
        return NO_MEMORY;
    }
    kept->record_count = 0;
    kept->max_timestamp = -1;
    kept->has_first = 0;
    const uint8_t *next = at;
    for (int64_t index = 0; index < count; index++) {
        read_record(next, end, last_delta, batch->last_offset_delta, &record);
        next = record.end;
        last_delta = record.offset_delta;
        marks[index] = (uint8_t)is_record_kept(&record, batch, keeps_first, is_expired, rules);
        if (!marks[index]) {
            continue;
        }
        kept->record_count++;
        kept->has_first |= record.offset_delta == 0;
        has_tombstone |= record.key_size >= 0 && record.value_size < 0;
        if (__builtin_add_overflow(batch->base_timestamp, record.timestamp_delta, &timestamp)) {
            fits = 0;
            continue;
        }
        fits &= !__builtin_sub_overflow(timestamp, rules->horizon_ms, &shifted);
        if (!has_maximum || timestamp > kept->max_timestamp) {
            kept->max_timestamp = timestamp;
            has_maximum = 1;
        }
    }
    kept->has_new_horizon = has_tombstone && may_expire && !has_horizon && fits;
    if (kept->record_count == count && count && !kept->has_new_horizon) {
        free(marks);
        return UNCHANGED;
    }
    last_delta = -1;
    next = at;
    for (int64_t index = 0; index < count; index++) {
        read_record(next, end, last_delta, batch->last_offset_delta, &record);
        next = record.end;
        last_delta = record.offset_delta;
        if (!marks[index]) {
            continue;
        }
        if (!kept->has_new_horizon) {
            if (copy_out(output, record.start, (size_t)(record.end - record.start)) < 0) {
                free(marks);
                return NO_MEMORY;
            }
            continue;
        }
        uint64_t delta = zigzag(batch->base_timestamp + record.timestamp_delta - rules->horizon_ms);
        size_t rest = (size_t)(record.end - record.timed_end);
        size_t size = 1 + number_size(delta) + rest;
        uint8_t *to = reserve(output, size + 10);
        if (to == NULL) {
            free(marks);
            return NO_MEMORY;
        }
        to = write_number(to, (uint64_t)size << 1);
        *to++ = *record.body;
        to = write_number(to, delta);
        memcpy(to, record.timed_end, rest);
        output->size = (size_t)(to + rest - output->bytes);
    }
    free(marks);
    return CHANGED;
}

PyDoc_STRVAR(filter_records_doc, "See holdfast_log.protocol.compaction.");

static PyObject *
filter_records(PyObject *module, PyObject *args)
{
    Py_buffer payload, slots;
    long long record_count, last_offset_delta, base_offset, base_timestamp, map_end, now_ms, horizon_ms;
    int attributes, keeps_first;
    if (!PyArg_ParseTuple(args, "y*LLLLipw*LLL:filter_records", &payload, &record_count, &last_offset_delta,
                          &base_offset, &base_timestamp, &attributes, &keeps_first, &slots, &map_end, &now_ms,
                          &horizon_ms)) {
        return NULL;
    }
    Rules rules = {.map_end = map_end, .now_ms = now_ms, .horizon_ms = horizon_ms};
    PyObject *result = NULL;
    if (take_table(&slots, 0, &rules.table) == 0) {
        Batch batch = {.base_offset = base_offset,
                       .attributes = attributes,
                       .last_offset_delta = (int32_t)last_offset_delta,
                       .base_timestamp = base_timestamp,
                       .record_count = (int32_t)record_count};
        Output output = {NULL, 0, 0, 0};
        Kept kept;
        int status;
        Py_BEGIN_ALLOW_THREADS;
        const uint8_t *at = payload.buf;
        status = filter_one(&batch, at, at + payload.len, keeps_first, &rules, &output, &kept);
        Py_END_ALLOW_THREADS;
        if (status == NO_MEMORY) {
            PyErr_NoMemory();
        }
        else if (status == UNCHANGED) {
            result = Py_NewRef(Py_None);
        }
        else {
            result = Py_BuildValue("y#LLNN", output.bytes == NULL ? "" : (const char *)output.bytes,
                                   (Py_ssize_t)output.size, (long long)kept.record_count,
                                   (long long)kept.max_timestamp, PyBool_FromLong(kept.has_new_horizon),
                                   PyBool_FromLong(kept.has_first));
        }
        free(output.bytes);
    }
    PyBuffer_Release(&payload);
    PyBuffer_Release(&slots);
    return result;
}

static int
contains(const Py_buffer *offsets, int64_t offset)
{
    const uint8_t *numbers = offsets->buf;
    Py_ssize_t low = 0, high = offsets->len / 8;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        int64_t number;
        memcpy(&number, numbers + 8 * middle, 8);
        if (number == offset) {
            return 1;
        }
        if (number < offset) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return 0;
}

static int
add_row(Output *rows, int64_t last_offset, int64_t max_timestamp, size_t size)
{
    int64_t row[3] = {last_offset, max_timestamp, (int64_t)size};
    return copy_out(rows, (const uint8_t *)row, sizeof row);
}

/* Write what remains of one batch to `output`, and a row about it to `rows`. */
static int
filter_batch(const Batch *batch, int is_kept, int keeps_first, const Rules *rules, Output *output, Output *rows)
{
    int64_t last_offset = batch->base_offset + batch->last_offset_delta;
    size_t start = output->size;
    Kept kept;
    if (reserve(output, HEADER_SIZE) == NULL) {
        return NO_MEMORY;
    }
    output->size += HEADER_SIZE;
    int status = filter_one(batch, batch->at + HEADER_SIZE, batch->at + batch->size, keeps_first, rules, output, &kept);
    if (status == NO_MEMORY) {
        return NO_MEMORY;
    }
    if (status == UNCHANGED) {
        output->size = start;
        return copy_out(output, batch->at, batch->size) < 0 ? NO_MEMORY
                                                            : add_row(rows, last_offset, batch->max_timestamp, batch->size);
    }
    if (kept.record_count == 0 && !is_kept) {
        output->size = start;
        return 0;
    }
    int attributes = batch->attributes;
    int64_t base_timestamp = batch->base_timestamp;
    if (kept.record_count == 0) {
        output->size = start + HEADER_SIZE;
        attributes &= ~(COMPRESSION_MASK | DELETE_HORIZON);
        base_timestamp = kept.max_timestamp = -1;
    }
    else if (attributes & LOG_APPEND_TIME) {
        kept.max_timestamp = batch->max_timestamp;
    }
    if (kept.has_new_horizon) {
        attributes |= DELETE_HORIZON;
        base_timestamp = rules->horizon_ms;
    }
    if (!kept.has_first) {
        attributes &= ~HAS_APPEND_ID;
    }
    uint8_t *header = output->bytes + start;
    size_t size = output->size - start;
    memcpy(header, batch->at, HEADER_SIZE);
    write_big(header + 8, size - LOG_OVERHEAD, 4);
    write_big(header + 21, (uint64_t)attributes, 2);
    write_big(header + 27, (uint64_t)base_timestamp, 8);
    write_big(header + 35, (uint64_t)kept.max_timestamp, 8);
    write_big(header + 57, (uint64_t)kept.record_count, 4);
    write_big(header + 17, crc32c(header + 21, size - 21), 4);
    return add_row(rows, last_offset, kept.max_timestamp, size);
}

/* A bytes object of exactly what was written. The limited API cannot shorten the one that was written to. */
static PyObject *
copy_without_the_gil(const Output *output)
{
    PyObject *copy = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)output->size);
    if (copy != NULL) {
        char *at = PyBytes_AsString(copy);
        Py_BEGIN_ALLOW_THREADS;
        memcpy(at, output->bytes, output->size);
        Py_END_ALLOW_THREADS;
    }
    return copy;
}

PyDoc_STRVAR(filter_batches_doc, "See holdfast_log.protocol.compaction.");

static PyObject *
filter_batches(PyObject *module, PyObject *args)
{
    Py_buffer data, slots, kept_headers, kept_firsts;
    Py_ssize_t position;
    long long expected, upper, map_end, now_ms, horizon_ms;
    int previous_epoch;
    if (!PyArg_ParseTuple(args, "y*nLLw*Ly*y*iLL:filter_batches", &data, &position, &expected, &upper, &slots, &map_end,
                          &kept_headers, &kept_firsts, &previous_epoch, &now_ms, &horizon_ms)) {
        return NULL;
    }
    Rules rules = {.map_end = map_end, .now_ms = now_ms, .horizon_ms = horizon_ms};
    PyObject *result = NULL;
    if (position < 0 || position > data.len || expected < 0 || upper < 0) {
        PyErr_SetString(PyExc_ValueError, "the position or the offsets are impossible");
    }
    else if (take_table(&slots, 0, &rules.table) == 0) {
        /* Written in place: copying it with the GIL would keep the thread waiting that serves clients. */
        PyObject *remaining = PyBytes_FromStringAndSize(NULL, data.len - position);
        if (remaining == NULL) {
            goto released;
        }
        Output output = {(uint8_t *)PyBytes_AsString(remaining), 0, (size_t)(data.len - position), 1};
        Output rows = {NULL, 0, 0, 0};
        int status, is_changed, failed = 0;
        Py_BEGIN_ALLOW_THREADS;
        const uint8_t *start = data.buf, *end = start + data.len, *at = start + position;
        Batch batch;
        size_t done = 0;
        while ((status = read_batch(at, end, expected, upper, &batch)) < 0) {
            if (batch.attributes & (CONTROL | TRANSACTIONAL | COMPRESSION_MASK)) {
                status = batch.attributes & (CONTROL | TRANSACTIONAL) ? MARKED : COMPRESSED;
                break;
            }
            int is_kept = batch.leader_epoch != previous_epoch || contains(&kept_headers, batch.base_offset);
            int keeps_first = (batch.attributes & HAS_APPEND_ID) && contains(&kept_firsts, batch.base_offset);
            if (filter_batch(&batch, is_kept, keeps_first, &rules, &output, &rows) < 0) {
                failed = 1;
                break;
            }
            previous_epoch = batch.leader_epoch;
            at += batch.size;
            expected = batch.base_offset + batch.last_offset_delta + 1;
            yield_turn((size_t)batch.size, &done);
        }
        is_changed = output.size != (size_t)(at - start - position)
                     || memcmp(output.bytes, start + position, output.size) != 0;
        position = at - start;
        Py_END_ALLOW_THREADS;
        if (failed) {
            PyErr_NoMemory();
        }
        else if (!output.is_borrowed || output.size != (size_t)PyBytes_Size(remaining)) {
            PyObject *whole = remaining;
            remaining = copy_without_the_gil(&output);
            Py_DECREF(whole);
        }
        if (!failed && remaining != NULL) {
            result = Py_BuildValue("Oy#nLiiN", remaining, rows.bytes == NULL ? "" : (const char *)rows.bytes,
                                   (Py_ssize_t)rows.size, position, expected, previous_epoch, status,
                                   PyBool_FromLong(is_changed));
        }
        Py_XDECREF(remaining);
        free(output.is_borrowed ? NULL : output.bytes);
        free(rows.bytes);
    }
released:
    PyBuffer_Release(&data);
    PyBuffer_Release(&slots);
    PyBuffer_Release(&kept_headers);
    PyBuffer_Release(&kept_firsts);
    return result;
}

static PyMethodDef methods[] = {
    {"add_batch_keys", add_batch_keys, METH_VARARGS, add_batch_keys_doc},
    {"add_keys", add_keys, METH_VARARGS, add_keys_doc},
    {"filter_records", filter_records, METH_VARARGS, filter_records_doc},
    {"filter_batches", filter_batches, METH_VARARGS, filter_batches_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.protocol._compaction",
    .m_doc = "The loops of holdfast_log.protocol.compaction_loops, compiled.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__compaction(void)
{
    fill_crc_tables();
#ifdef HAS_CRC_INSTRUCTION
    if (__builtin_cpu_supports("sse4.2")) {
        crc_update = crc_by_instruction;
    }
#endif
    return PyModuleDef_Init(&module);
}
