/* What load_generator.c does: the groups of connections of a plan, as its file has them. */
#pragma once
#include <stdbool.h>
#include <string.h>

#include "load_histogram.h"

enum {
    CORRELATION_AT = 8, /* in a request: after size, api key and api version */
    HEAD_BYTES = 256,   /* of a request: what is copied so that it can be changed */
    RESPONSE_HEAD_BYTES = 512,
    SENDS_AT_ONCE = 64,
    RECEIVE_BYTES = 256 * 1024,
    READS_PER_TURN = 4, /* of one connection, before the others have their turn */
    MAX_GROUPS = 32,
    MAX_PIDS = 64,
    EVENTS = 256,
    BATCH_HEADER_BYTES = 61,
};

struct frame {
    const uint8_t *bytes;
    size_t size;
};

enum kind { CLOSED, PACED, TAIL, CATCH_UP, IDLE };
enum api { PRODUCE, FETCH };

struct group {
    char name[64], host[64];
    enum kind kind;
    enum api api;
    unsigned connections, port, first_frame, frames, in_flight, topic_bytes;
    double rate; /* of a paced group: requests a second, of all its connections */
    int64_t offset_at; /* in a Fetch request: where the offset is */
    int64_t start, end; /* of a consumer: its first offset, and the one at which a catch-up ends */
    int64_t batch_bytes, batch_records;
    size_t head_bytes; /* of a response: up to its records */
    struct connection *members;

    uint64_t issued, requests, bytes, batches;
    int64_t first_due, last_answer, longest_pause;
    uint64_t waiting; /* requests without an answer */
    struct histogram *latencies, *lateness;
    unsigned finished; /* catch-up: consumers that have read everything */
};

static struct group groups[MAX_GROUPS];
static unsigned group_count;
static struct frame *frames;
static unsigned frame_count;
static int pids[MAX_PIDS];
static unsigned pid_count;
static double seconds = 1.0, warm_up = 0.0, silence = 30.0;
static bool discard;
static struct group *appender; /* the group whose batches tails receive */

static void read_plan(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    char word[64];
    unsigned frames_size = 0;
    while (fscanf(file, "%63s", word) == 1) {
        struct group *group = &groups[group_count];
        char kind[16], api[16];
        int read = 1;
        if (strcmp(word, "seconds") == 0) {
            read = fscanf(file, "%lf", &seconds);
        } else if (strcmp(word, "warm_up") == 0) {
            read = fscanf(file, "%lf", &warm_up);
        } else if (strcmp(word, "silence") == 0) {
            read = fscanf(file, "%lf", &silence);
        } else if (strcmp(word, "discard") == 0) {
            discard = true;
        } else if (strcmp(word, "pid") == 0 && pid_count < MAX_PIDS) {
            read = fscanf(file, "%d", &pids[pid_count++]);
        } else if (strcmp(word, "frame") == 0) {
            size_t at, length;
            read = fscanf(file, "%zu %zu", &at, &length) == 2;
            if (!read || length < CORRELATION_AT + 4 || at + length > size)
                fail("%s: frame %u is not in the file of frames", path, frame_count);
            if (frame_count == frames_size) {
                frames_size = frames_size ? 2 * frames_size : 64;
                frames = realloc(frames, frames_size * sizeof *frames);
                if (frames == NULL)
                    fail("no memory for %u frames", frames_size);
            }
            frames[frame_count++] = (struct frame){bytes + at, length};
        } else if (strcmp(word, "group") == 0 && group_count < MAX_GROUPS) {
            read = fscanf(file,
                          "%63s %15s %15s %u %63s %u %u %u %u %u %lf %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                          " %" SCNd64,
                          group->name, kind, api, &group->connections, group->host, &group->port,
                          &group->first_frame, &group->frames, &group->in_flight, &group->topic_bytes, &group->rate,
                          &group->offset_at, &group->start, &group->end, &group->batch_bytes,
                          &group->batch_records) == 16;
            if (!read)
                fail("%s: the line of group %u is not complete", path, group_count);
            const char *kinds[] = {"closed", "paced", "tail", "catch_up", "idle"};
            unsigned index = 0;
            while (index < 5 && strcmp(kind, kinds[index]) != 0)
                index++;
            if (index == 5)
                fail("%s: a group is of no kind %s", path, kind);
            group->kind = (enum kind)index;
            group->api = strcmp(api, "fetch") == 0 ? FETCH : PRODUCE;
            group_count++;
        } else {
            fail("%s: %s is not understood, or there are too many", path, word);
        }
        if (read != 1)
            fail("%s: %s has no value", path, word);
    }
    fclose(file);
}

static void check_plan(void)
{
    for (struct group *group = groups; group < groups + group_count; group++) {
        bool is_consumer = group->kind == TAIL || group->kind == CATCH_UP;
        if (group->kind != IDLE && (group->frames == 0 || group->first_frame + group->frames > frame_count))
            fail("group %s has no frames", group->name);
        if (group->api == FETCH && group->kind != IDLE)
            for (unsigned index = 0; index < group->frames; index++) {
                size_t size = frames[group->first_frame + index].size;
                if (size > HEAD_BYTES || group->offset_at + 8 > (int64_t)size)
                    fail("group %s: a Fetch request is too long, or has no offset", group->name);
            }
        if (group->kind != IDLE && (group->batch_bytes <= 0 || group->batch_records <= 0))
            fail("group %s: the size of its batches is missing", group->name);
        if (group->kind == PACED && group->rate <= 0)
            fail("group %s has no rate", group->name);
        if (is_consumer || group->in_flight == 0)
            group->in_flight = 1;
        if (group->kind == PACED && group->api == PRODUCE && appender == NULL)
            appender = group;
        /* Size, correlation id; then in Produce: topics, name, partitions, index, error code; and in Fetch:
         * throttle time, error code, session before it, and after it three offsets, aborted transactions,
         * preferred replica, size of the records, and the header of the first batch. */
        group->head_bytes = 4 + 4 + 4 + 2 + group->topic_bytes + 4 + 4 + 2;
        if (group->api == FETCH)
            group->head_bytes += 4 + 2 + 4 + 3 * 8 + 4 + 4 + 4;
        if (group->head_bytes + BATCH_HEADER_BYTES > RESPONSE_HEAD_BYTES)
            fail("group %s: the name of the topic is too long", group->name);
        /* Groups of one name are one load on several brokers. */
        struct group *first = groups;
        while (strcmp(first->name, group->name) != 0)
            first++;
        group->latencies = first == group ? allocate(1, sizeof *group->latencies) : first->latencies;
        group->lateness = first == group ? allocate(1, sizeof *group->lateness) : first->lateness;
    }
}
