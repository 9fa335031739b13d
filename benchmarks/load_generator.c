/* A load on brokers that speak Kafka's protocol, for benchmarks: load_generator PLAN FRAMES
 *
 * Its parts are load_connection.h, load_plan.h and load_histogram.h.
 *
 * One thread and one epoll serve all connections. FRAMES is a file of whole requests, each with its size
 * before it; this program only writes correlation ids (and a consumer's offset) into them. PLAN is text; see
 * benchmarks/load_generator.py, which writes it. Responses are counted, and their correlation id and error code
 * are checked. Each request names one topic and one partition: Produce version 8, Fetch version 11.
 *
 * The result is JSON on standard output. Any error, a broker's or a connection's, ends the run with a message
 * on standard error and status 1, without a result.
 *
 * load_generator percentiles   reads nanoseconds, one a line, and prints their summary.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "load_connection.h"

static bool sending = true;
static uint8_t buffer[RECEIVE_BYTES];
static uint64_t answers; /* of all groups, to notice a silence */

/* Responses ------------------------------------------------------------------------------------------------ */

static uint64_t number_at(const struct connection *connection, size_t at, size_t bytes)
{
    uint64_t number = 0;
    for (size_t index = 0; index < bytes; index++)
        number = number << 8 | connection->head[at + index];
    return number;
}

/* A consumer's answer with records: note the batches' latencies, and move on. */
static void take_batches(struct connection *connection, int64_t batches, int64_t at)
{
    struct group *group = connection->group;
    for (int64_t index = 0; group->kind == TAIL && index < batches; index++) {
        uint64_t append = (uint64_t)((connection->offset - group->start) / group->batch_records + index);
        if (appender == NULL || append >= appender->members[0].queued)
            fail("group %s: a batch was received that was not appended", group->name);
        if (append_times[append] != 0)
            record(group->latencies, at - append_times[append]);
    }
    connection->offset += batches * group->batch_records;
    if (group->kind == CATCH_UP && connection->offset >= group->end && !connection->finished) {
        connection->finished = true;
        group->finished++;
    }
}

static void finish_response(struct connection *connection, int64_t at)
{
    struct group *group = connection->group;
    size_t size = number_at(connection, 0, 4) + 4;
    uint64_t sequence = connection->answered;
    if (sequence == connection->sent)
        fail("group %s: an answer came without a request", group->name);
    if (connection->head_filled < 8 || number_at(connection, 4, 4) != (uint32_t)sequence)
        fail("group %s: an answer has another correlation id than %" PRIu64, group->name, sequence);
    size_t error_at = 4 + 4 + (group->api == FETCH ? 4 + 2 + 4 : 0) + 4 + 2 + group->topic_bytes + 4 + 4;
    if (group->api == FETCH && size >= 14 && number_at(connection, 12, 2) != 0)
        fail("group %s: the broker answered with error %d", group->name, (int16_t)number_at(connection, 12, 2));
    if (size < group->head_bytes)
        fail("group %s: an answer has %zu bytes, which is too short", group->name, size);
    if (number_at(connection, error_at, 2) != 0)
        fail("group %s: the broker answered with error %d", group->name,
             (int16_t)number_at(connection, error_at, 2));
    size_t records_bytes = group->api == FETCH ? number_at(connection, group->head_bytes - 4, 4) : 0;
    if (records_bytes + group->head_bytes > size)
        records_bytes = 0; /* No records at all have a size of -1. */
    /* An answer may end within a batch, of which a consumer has no use. */
    int64_t batches = group->api == PRODUCE ? 1 : (int64_t)records_bytes / group->batch_bytes;
    int64_t sent_at = connection->times[sequence & connection->mask];
    connection->answered++;
    answers++;
    bool is_counted = at >= window_start && at < window_end;
    /* A pause that outlasts the counted time counts up to its end. */
    int64_t until = at < window_end ? at : window_end;
    if (at >= window_start && until - group->last_answer > group->longest_pause)
        group->longest_pause = until - group->last_answer;
    group->last_answer = at;
    group->waiting--;
    if (group->kind == PACED ? sent_at >= window_start && sent_at < window_end : is_counted) {
        /* A tail's latency is its batches': its requests wait for the next append. */
        if (group->kind != TAIL)
            record(group->latencies, at - sent_at);
        group->requests++;
        group->batches += (uint64_t)batches;
        group->bytes += (uint64_t)(batches * group->batch_bytes);
    }
    if (group->api == PRODUCE || (records_bytes == 0 && group->kind == TAIL))
        return;
    if (batches == 0)
        fail("group %s: an answer to a fetch with %zu bytes of records holds no whole batch", group->name,
             records_bytes);
    int64_t wanted = connection->offset;
    if (group->kind == CLOSED || group->kind == PACED) {
        const struct frame *frame = &frames[group->first_frame + (connection->number + sequence) % group->frames];
        uint64_t offset;
        memcpy(&offset, frame->bytes + group->offset_at, sizeof offset);
        wanted = (int64_t)be64toh(offset);
    }
    int64_t found = (int64_t)number_at(connection, group->head_bytes, 8);
    if (found != wanted)
        fail("group %s: the records at offset %" PRId64 " were asked for, and those at %" PRId64 " came",
             group->name, wanted, found);
    if (group->kind == TAIL || group->kind == CATCH_UP)
        take_batches(connection, batches, at);
}

/* Take received bytes apart. Returns the number of responses that are complete. */
static unsigned take(struct connection *connection, const uint8_t *bytes, size_t count, int64_t at)
{
    unsigned complete = 0;
    size_t wanted = connection->group->head_bytes + (connection->group->api == FETCH ? BATCH_HEADER_BYTES : 0);
    while (count > 0) {
        if (connection->head_filled < 4) {
            connection->head[connection->head_filled++] = *bytes++;
            count--;
            if (connection->head_filled == 4)
                connection->response_left = number_at(connection, 0, 4);
            continue;
        }
        size_t part = count < connection->response_left ? count : connection->response_left;
        size_t kept = wanted > connection->head_filled ? wanted - connection->head_filled : 0;
        kept = kept < part ? kept : part;
        memcpy(connection->head + connection->head_filled, bytes, kept);
        connection->head_filled += kept;
        connection->response_left -= part;
        bytes += part;
        count -= part;
        if (connection->response_left == 0) {
            finish_response(connection, at);
            connection->head_filled = 0;
            complete++;
        }
    }
    return complete;
}

static void receive(struct connection *connection)
{
    struct group *group = connection->group;
    size_t wanted = group->head_bytes + BATCH_HEADER_BYTES;
    for (unsigned turn = 0; turn < READS_PER_TURN; turn++) {
        size_t room = sizeof buffer;
        int flags = 0;
        if (discard && connection->head_filled >= wanted && connection->response_left > 1) {
            /* For TCP, Linux drops what it would have copied. The last byte is read as usual, and ends the
             * response. */
            room = connection->response_left - 1;
            flags = MSG_TRUNC;
        }
        ssize_t count = recv(connection->socket, buffer, room, flags);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (count < 0)
            fail("group %s: receiving: %s", group->name, strerror(errno));
        if (count == 0)
            fail("group %s: the broker closed the connection", group->name);
        if (flags == MSG_TRUNC) {
            connection->response_left -= (size_t)count;
            continue;
        }
        unsigned complete = take(connection, buffer, (size_t)count, now_ns());
        if (complete > 0 && sending && group->kind != PACED && !connection->finished) {
            int64_t at = now_ns();
            while (connection->queued - connection->answered < group->in_flight)
                queue(connection, at);
            send_queued(connection);
        }
        if ((size_t)count < room)
            return;
    }
}

/* The run -------------------------------------------------------------------------------------------------- */

/* Seconds of processor time of the brokers: of user and system mode, as /proc shows them. */
static void read_cpu(double cpu[2])
{
    cpu[0] = cpu[1] = 0;
    for (unsigned index = 0; index < pid_count; index++) {
        char path[64], line[1024];
        snprintf(path, sizeof path, "/proc/%d/stat", pids[index]);
        FILE *file = fopen(path, "r");
        unsigned long user, system;
        char *after = file != NULL && fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
        if (after == NULL ||
            sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
            fail("the broker's process %d has ended", pids[index]);
        fclose(file);
        cpu[0] += (double)user / (double)sysconf(_SC_CLK_TCK);
        cpu[1] += (double)system / (double)sysconf(_SC_CLK_TCK);
    }
}

static double own_cpu(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* Queue what is due. Returns when the next request is due, or 0 if none will be. */
static int64_t pace(int64_t at)
{
    int64_t next = 0;
    for (struct group *group = groups; group < groups + group_count; group++) {
        if (group->kind != PACED)
            continue;
        int64_t due;
        while ((due = group->first_due + (int64_t)((double)group->issued / group->rate * 1e9)) <= at &&
               due < window_end) {
            struct connection *connection = &group->members[group->issued % group->connections];
            queue(connection, due);
            send_queued(connection);
        }
        if (due < window_end && (next == 0 || due < next))
            next = due;
    }
    return next;
}

static bool is_finished(void)
{
    uint64_t appended = appender == NULL ? 0 : appender->issued;
    for (struct group *group = groups; group < groups + group_count; group++)
        for (unsigned number = 0; number < group->connections; number++) {
            struct connection *connection = &group->members[number];
            if (group->kind == TAIL) {
                if (connection->offset < group->start + (int64_t)appended * group->batch_records)
                    return false;
            } else if (connection->answered < connection->queued) {
                return false;
            }
        }
    return true;
}

/* Whether nothing is left to do before the time is over. */
static bool is_caught_up(void)
{
    unsigned others = 0, consumers = 0, finished = 0;
    for (struct group *group = groups; group < groups + group_count; group++) {
        others += group->kind != CATCH_UP && group->kind != IDLE;
        consumers += group->kind == CATCH_UP ? group->connections : 0;
        finished += group->finished;
    }
    return others == 0 && consumers > 0 && finished == consumers;
}

static void wait_for_events(int timer, int64_t next)
{
    struct epoll_event events[EVENTS];
    if (next > 0) {
        struct itimerspec at = {.it_value = {next / SECOND, next % SECOND}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    }
    int count = epoll_wait(epoll, events, EVENTS, 20);
    if (count < 0 && errno != EINTR)
        fail("epoll: %s", strerror(errno));
    for (int index = 0; index < count; index++) {
        struct connection *connection = events[index].data.ptr;
        if (connection == NULL) {
            uint64_t expirations;
            if (read(timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
                fail("timer: %s", strerror(errno));
            continue;
        }
        if (events[index].events & EPOLLOUT)
            send_queued(connection);
        if (events[index].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
            receive(connection);
        /* What has become due meanwhile does not wait until all connections have been read. */
        if (next > 0 && now_ns() >= next)
            next = pace(now_ns());
    }
}

static void run(double cpu_before[2], double cpu_after[2], double own[2])
{
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) != 0)
        fail("timer: %s", strerror(errno));
    began = now_ns();
    window_start = began + (int64_t)(warm_up * 1e9);
    window_end = window_start + (int64_t)(seconds * 1e9);
    for (struct group *group = groups; group < groups + group_count; group++) {
        group->first_due = began;
        for (unsigned number = 0; number < group->connections; number++) {
            struct connection *connection = &group->members[number];
            if (group->kind == PACED || group->kind == IDLE)
                continue;
            while (connection->queued < group->in_flight)
                queue(connection, now_ns());
            send_queued(connection);
        }
    }
    bool is_measuring = false;
    uint64_t seen = 0;
    int64_t progress = began, at;
    while ((at = now_ns()) < window_end && !is_caught_up()) {
        if (!is_measuring && at >= window_start) {
            is_measuring = true;
            read_cpu(cpu_before);
            own[0] = own_cpu();
        }
        if (answers != seen) {
            seen = answers;
            progress = at;
        } else if (at - progress > (int64_t)(silence * 1e9)) {
            fail("no answer for %.0f s", silence);
        }
        wait_for_events(timer, pace(at));
    }
    if (!is_measuring && at < window_end)
        fail("the load ended before its warm-up did");
    if (!is_measuring) { /* This thread stood still for all of the counted time. */
        read_cpu(cpu_before);
        own[0] = own_cpu();
    }
    pace(at); /* What became due while this thread stood still at the end. */
    window_end = at < window_end ? at : window_end;
    read_cpu(cpu_after);
    own[1] = own_cpu();
    sending = false;
    int64_t give_up = at + (int64_t)(silence * 1e9);
    while (!is_finished()) {
        if (now_ns() > give_up)
            fail("%.0f s after the last request, not all are answered or delivered", silence);
        /* A tail whose fetch was answered before the last append asks once more. */
        for (struct group *group = groups; group < groups + group_count; group++)
            for (unsigned number = 0; group->kind == TAIL && number < group->connections; number++)
                if (group->members[number].queued == group->members[number].answered) {
                    queue(&group->members[number], now_ns());
                    send_queued(&group->members[number]);
                }
        wait_for_events(timer, 0);
    }
    close(timer);
}

static void print_result(const double before[2], const double after[2], const double own[2])
{
    double lasted = (double)(window_end - window_start) / 1e9;
    printf("{\"seconds\": %.6f, \"broker_user_seconds\": %.3f, \"broker_system_seconds\": %.3f, "
           "\"generator_cpu_share\": %.4f, \"groups\": [",
           lasted, after[0] - before[0], after[1] - before[1], (own[1] - own[0]) / lasted);
    for (struct group *group = groups; group < groups + group_count; group++) {
        struct group sum = *group;
        bool is_printed = false;
        for (struct group *other = groups; other < groups + group_count; other++) {
            if (other < group && strcmp(other->name, group->name) == 0)
                is_printed = true;
            if (other <= group || strcmp(other->name, group->name) != 0)
                continue;
            sum.connections += other->connections;
            sum.requests += other->requests;
            sum.issued += other->issued;
            sum.bytes += other->bytes;
            sum.batches += other->batches;
            sum.finished += other->finished;
            if (other->longest_pause > sum.longest_pause)
                sum.longest_pause = other->longest_pause;
        }
        if (is_printed)
            continue;
        printf("%s{\"name\": \"%s\", \"connections\": %u, \"requests\": %" PRIu64 ", \"requests_total\": %" PRIu64
               ", \"bytes\": %" PRIu64 ", \"batches\": %" PRIu64 ", \"finished\": %u, \"longest_pause_ms\": %.6f"
               ", \"latency\": ",
               group == groups ? "" : ", ", sum.name, sum.connections, sum.requests, sum.issued, sum.bytes, sum.batches,
               sum.finished, (double)sum.longest_pause / 1e6);
        print_latencies(group->latencies);
        printf(", \"lateness\": ");
        print_latencies(group->lateness);
        printf("}");
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "percentiles") == 0)
        return print_percentiles();
    if (argc != 3) {
        fputs("usage: load_generator PLAN FRAMES | load_generator percentiles\n", stderr);
        return 2;
    }
    int file = open(argv[2], O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0)
        fail("%s: %s", argv[2], strerror(errno));
    /* Read before the clock starts. */
    void *bytes = about.st_size == 0 ? NULL
                                     : mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (bytes == MAP_FAILED)
        fail("%s: %s", argv[2], strerror(errno));
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* The default delays each timer by 50 us. */
    read_plan(argv[1], bytes, (size_t)about.st_size);
    check_plan();
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        fail("epoll: %s", strerror(errno));
    connect_all();
    double before[2] = {0}, after[2] = {0}, own[2] = {0};
    run(before, after, own);
    print_result(before, after, own);
    return 0;
}
