/* Connections of load_generator.c: how they are opened, and how requests are queued and sent. */
#pragma once
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "load_plan.h"

struct connection {
    int socket;
    struct group *group;
    unsigned number;
    bool wants_to_write, finished;
    uint64_t queued, sent, answered; /* requests */
    size_t partly_sent; /* bytes of the request after `sent` that are written already */
    int64_t *times; /* of each request in flight: when it was sent, or should have been */
    uint64_t mask;
    int64_t offset; /* a consumer's position */
    uint8_t head[RESPONSE_HEAD_BYTES];
    size_t head_filled, response_left;
};

static int epoll;
static int64_t began, window_start, window_end;
static int64_t *append_times; /* when each request of the group that tails follow was sent; 0 if it is not counted */
static uint64_t append_times_size;

static void watch(struct connection *connection, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | (connection->wants_to_write ? EPOLLOUT : 0),
                                .data.ptr = connection};
    if (epoll_ctl(epoll, operation, connection->socket, &event) != 0)
        fail("epoll: %s", strerror(errno));
}

static void connect_all(void)
{
    for (struct group *group = groups; group < groups + group_count; group++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)group->port)};
        if (inet_pton(AF_INET, group->host, &address.sin_addr) != 1)
            fail("%s is not an IPv4 address", group->host);
        group->members = allocate(group->connections, sizeof *group->members);
        for (unsigned number = 0; number < group->connections; number++) {
            struct connection *connection = &group->members[number];
            int on = 1;
            connection->group = group;
            connection->number = number;
            connection->offset = group->start;
            connection->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (connection->socket < 0 ||
                connect(connection->socket, (struct sockaddr *)&address, sizeof address) != 0)
                fail("connection %u to %s:%u: %s", number, group->host, group->port, strerror(errno));
            setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            fcntl(connection->socket, F_SETFL, fcntl(connection->socket, F_GETFL) | O_NONBLOCK);
            /* A paced connection queues as many as become due, however long the broker pauses. */
            uint64_t capacity = 1;
            while (capacity < group->in_flight || (group->kind == PACED && capacity < 1 << 20))
                capacity *= 2;
            connection->mask = capacity - 1;
            connection->times = allocate(capacity, sizeof *connection->times);
            watch(connection, EPOLL_CTL_ADD);
        }
    }
}

static size_t prepare(struct connection *connection, uint64_t sequence, uint8_t *head, struct iovec *parts)
{
    struct group *group = connection->group;
    /* Connections start at different frames, so that they are not all at the same partition at a time. */
    const struct frame *frame = &frames[group->first_frame + (connection->number + sequence) % group->frames];
    size_t head_size = frame->size < HEAD_BYTES ? frame->size : HEAD_BYTES;
    memcpy(head, frame->bytes, head_size);
    uint32_t correlation = htobe32((uint32_t)sequence);
    memcpy(head + CORRELATION_AT, &correlation, sizeof correlation);
    if (group->kind == TAIL || group->kind == CATCH_UP) {
        uint64_t offset = htobe64((uint64_t)connection->offset);
        memcpy(head + group->offset_at, &offset, sizeof offset);
    }
    parts[0] = (struct iovec){head, head_size};
    parts[1] = (struct iovec){(void *)(uintptr_t)(frame->bytes + head_size), frame->size - head_size};
    return frame->size;
}

static void note_sent(struct connection *connection, uint64_t sequence, int64_t at)
{
    struct group *group = connection->group;
    if (group->kind != PACED)
        return;
    int64_t due = connection->times[sequence & connection->mask];
    bool is_counted = due >= window_start && due < window_end;
    if (is_counted)
        record(group->lateness, at - due);
    if (group == appender && group->connections == 1) {
        if (sequence >= append_times_size) {
            append_times_size = append_times_size ? 2 * append_times_size : 4096;
            append_times = realloc(append_times, append_times_size * sizeof *append_times);
            if (append_times == NULL)
                fail("no memory for the times of appends");
        }
        append_times[sequence] = is_counted ? at : 0;
    }
}

static void send_queued(struct connection *connection)
{
    static uint8_t heads[SENDS_AT_ONCE][HEAD_BYTES];
    while (connection->sent < connection->queued) {
        struct iovec parts[2 * SENDS_AT_ONCE];
        size_t sizes[SENDS_AT_ONCE];
        unsigned count = 0;
        int64_t at = connection->group->kind == PACED ? now_ns() : 0;
        while (count < SENDS_AT_ONCE && connection->sent + count < connection->queued) {
            sizes[count] = prepare(connection, connection->sent + count, heads[count], parts + 2 * count);
            if (count > 0 || connection->partly_sent == 0)
                note_sent(connection, connection->sent + count, at);
            count++;
        }
        struct iovec *first = parts;
        size_t skip = connection->partly_sent;
        for (unsigned index = 0; index < 2; index++) {
            size_t part = skip < parts[index].iov_len ? skip : parts[index].iov_len;
            parts[index].iov_base = (uint8_t *)parts[index].iov_base + part;
            parts[index].iov_len -= part;
            skip -= part;
        }
        ssize_t written = writev(connection->socket, first, (int)(2 * count));
        if (written < 0 && errno != EAGAIN && errno != EINTR)
            fail("group %s: sending: %s", connection->group->name, strerror(errno));
        size_t left = written < 0 ? 0 : (size_t)written;
        bool is_blocked = written < 0;
        for (unsigned index = 0; index < count; index++) {
            size_t missing = sizes[index] - connection->partly_sent;
            if (left < missing) {
                connection->partly_sent += left;
                is_blocked = true;
                break;
            }
            left -= missing;
            connection->partly_sent = 0;
            connection->sent++;
        }
        if (is_blocked)
            break;
    }
    bool wants_to_write = connection->sent < connection->queued;
    if (wants_to_write != connection->wants_to_write) {
        connection->wants_to_write = wants_to_write;
        watch(connection, EPOLL_CTL_MOD);
    }
}

static void queue(struct connection *connection, int64_t time)
{
    if (connection->queued - connection->answered > connection->mask)
        fail("group %s: more than %" PRIu64 " requests wait for an answer", connection->group->name,
             connection->mask);
    if (connection->group->waiting++ == 0)
        connection->group->last_answer = time; /* The time without requests was no pause. */
    connection->times[connection->queued++ & connection->mask] = time;
    connection->group->issued++;
}
