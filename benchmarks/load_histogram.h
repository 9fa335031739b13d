/* Latencies of a load in buckets, and errors that end the program: see load_generator.c. */
#pragma once
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECOND INT64_C(1000000000)

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("load_generator: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * SECOND + at.tv_nsec;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL)
        fail("no memory for %zu times %zu bytes", count, size);
    return memory;
}

/* Latencies ------------------------------------------------------------------------------------------------
 * 128 buckets for each power of two, so a percentile is at most 0.8 % too high and never too low. */

enum { SUB_BITS = 7, SUB_BUCKETS = 1 << SUB_BITS, BUCKETS = 58 * SUB_BUCKETS };

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total;
    int64_t max;
};

static void record(struct histogram *histogram, int64_t ns)
{
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    unsigned shift = value < SUB_BUCKETS ? 0 : 63 - SUB_BITS - (unsigned)__builtin_clzll(value);
    /* From SUB_BUCKETS on, value >> shift is in [SUB_BUCKETS, 2 * SUB_BUCKETS). */
    histogram->counts[shift * SUB_BUCKETS + (value >> shift)]++;
    histogram->total++;
    if (ns > histogram->max)
        histogram->max = ns;
}

/* The highest value of the bucket that holds the sample of this rank: `share` of all samples are not above. */
static double percentile_ms(const struct histogram *histogram, double share)
{
    uint64_t rank = (uint64_t)(share * (double)histogram->total), seen = 0;
    if ((double)rank < share * (double)histogram->total)
        rank++;
    for (unsigned index = 0; index < BUCKETS; index++) {
        seen += histogram->counts[index];
        if (seen >= rank && seen > 0) {
            unsigned shift = index < 2 * SUB_BUCKETS ? 0 : index / SUB_BUCKETS - 1;
            uint64_t lowest = (uint64_t)(index - shift * SUB_BUCKETS) << shift;
            int64_t highest = (int64_t)(lowest + (UINT64_C(1) << shift) - 1);
            return (double)(highest < histogram->max ? highest : histogram->max) / 1e6;
        }
    }
    return 0.0;
}

static void print_latencies(const struct histogram *histogram)
{
    printf("{\"count\": %" PRIu64, histogram->total);
    if (histogram->total > 0)
        printf(", \"p50_ms\": %.6f, \"p90_ms\": %.6f, \"p99_ms\": %.6f, \"p999_ms\": %.6f, \"max_ms\": %.6f",
               percentile_ms(histogram, 0.5), percentile_ms(histogram, 0.9), percentile_ms(histogram, 0.99),
               percentile_ms(histogram, 0.999), (double)histogram->max / 1e6);
    printf("}");
}

static int print_percentiles(void)
{
    struct histogram *histogram = allocate(1, sizeof *histogram);
    int64_t ns;
    while (scanf("%" SCNd64, &ns) == 1)
        record(histogram, ns);
    print_latencies(histogram);
    putchar('\n');
    free(histogram);
    return 0;
}
