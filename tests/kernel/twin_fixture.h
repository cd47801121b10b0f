/* twin_fixture.h: both twins over the same inputs. CUDA's is the host build (kernels/cuda/host) unless
 * PENSTOCK_TWIN=cuda asks for the real one, as `make check-gpu` does. Each test runs over
 * PENSTOCK_TWIN_SHAPES random shapes, 30 by default. */
#ifndef TWIN_FIXTURE_H
#define TWIN_FIXTURE_H

#include "kernels/twin.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { TWIN_MOST = 1 << 17, TWIN_COLUMNS = 1024, TWIN_SKIPPED = 77 };

static const struct pst_twin *cpu, *cuda;
static struct pst_queue *queue;
static char why[PST_TWIN_WHY_BYTES];

static uint64_t rng_state = 0x9E3779B97F4A7C15ull;
static inline uint64_t rnd(uint64_t bound)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return bound ? (rng_state >> 11) % bound : 0;
}

/* 0..most: every third time one of the sizes at which things go wrong. */
static inline int64_t size_below(int64_t most)
{
    static const int64_t odd[] = {0,  1,  2,  3,   7,   8,   15,  16,  17,  31,   32,  33,
                                  63, 64, 65, 127, 128, 129, 251, 256, 509, 1021, 4093};
    if (rnd(3) == 0) {
        const int64_t size = odd[rnd(sizeof odd / sizeof *odd)];
        if (size <= most)
            return size;
    }
    return (int64_t)rnd((uint64_t)(rnd(2) ? most : most / 16) + 1);
}

static inline int shapes(void)
{
    const char *wanted = getenv("PENSTOCK_TWIN_SHAPES");
#ifdef __SANITIZE_THREAD__
    const int most = 1; /* it sees one thread, and takes microseconds to change fibers */
#else
    const int most = 30;
#endif
    return wanted ? atoi(wanted) : most;
}

/* compute-sanitizer keeps a shadow of all memory: under it, what allocates gigabytes is left out. */
static inline void needs_gigabytes(void)
{
    if (getenv("PENSTOCK_TWIN_SMALL"))
        skip();
}

#define FOR_SHAPES for (int shape = 0, shape_count = shapes(); shape < shape_count; shape++)

/* An array of both: on the host for the CPU and to look at, on the device for CUDA. */
struct both {
    void *host, *device;
    size_t bytes;
};

static inline void settled(pst_rc expected)
{
    why[0] = '\0';
    const pst_rc rc = cuda->wait(queue, why);
    if (rc != expected)
        fail_msg("CUDA's twin returned %d where %d was expected: %s", (int)rc, (int)expected, why);
}

/* The device gets a copy of what the host has now. */
static inline void send(const struct both *b)
{
    assert_int_equal(cuda->copy(queue, b->device, b->host, b->bytes), PST_OK);
    settled(PST_OK);
}

static inline struct both both_new(size_t bytes)
{
    struct both b = {.host = calloc(1, bytes ? bytes : 1), .bytes = bytes};
    assert_non_null(b.host);
    if (cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, bytes, &b.device, why) != PST_OK)
        fail_msg("%s", why);
    send(&b);
    return b;
}

static inline void both_free(struct both *b)
{
    free(b->host);
    cuda->release(PST_TWIN_MEMORY_DEVICE, b->device);
}

/* What the device has, in memory that the caller frees. */
static inline void *fetched(const struct both *b)
{
    void *copy = malloc(b->bytes ? b->bytes : 1);
    assert_non_null(copy);
    assert_int_equal(cuda->copy(queue, copy, b->device, b->bytes), PST_OK);
    settled(PST_OK);
    return copy;
}

static inline void same_bytes(const struct both *b, size_t bytes, const char *what)
{
    char *copy = fetched(b);
    for (size_t i = 0; i < bytes; i++)
        if (copy[i] != ((char *)b->host)[i])
            fail_msg("%s: byte %zu of %zu is %d where the CPU's is %d", what, i, bytes, copy[i],
                     ((char *)b->host)[i]);
    free(copy);
}

/* Relative error, norm-wise: of the difference to the CPU's, over the CPU's. */
static inline void close_floats(const struct both *b, double limit, const char *what)
{
    float *copy = fetched(b), *host = b->host;
    double off = 0, norm = 0;
    for (size_t i = 0; i < b->bytes / sizeof *copy; i++) {
        off += ((double)copy[i] - (double)host[i]) * ((double)copy[i] - (double)host[i]);
        norm += (double)host[i] * (double)host[i];
    }
    if (!(sqrt(off) <= limit * sqrt(norm)))
        fail_msg("%s: relative error %g, above %g", what, sqrt(off) / sqrt(norm), limit);
    free(copy);
}

static inline void fill_floats(const struct both *b)
{
    for (size_t i = 0; i < b->bytes / sizeof(float); i++)
        ((float *)b->host)[i] = (float)rnd(1u << 24) / (float)(1u << 23) - 1.0f;
    send(b);
}

static inline struct both floats_new(int64_t n)
{
    struct both b = both_new((size_t)n * sizeof(float));
    fill_floats(&b);
    return b;
}

static inline int twin_setup(void **state)
{
    (void)state;
    const char *wanted = getenv("PENSTOCK_TWIN"), *build = getenv("BUILD");
    const bool real = wanted && strcmp(wanted, "cuda") == 0;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/libpenstock-cuda-host.so", build ? build : "build");
    cpu = pst_twin_cpu();
    cuda = pst_twin_open(real ? NULL : path, why);
    const struct pst_queue_options options = {.most = TWIN_MOST, .columns = TWIN_COLUMNS, .products = true};
    if (cuda && cuda->queue_new(&options, &queue, why) == PST_OK)
        return 0;
    printf("# %s: %s\n", real ? "SKIP no GPU" : path, why);
    (void)fflush(stdout);
    _exit(real ? TWIN_SKIPPED : 1);
}

static inline int twin_teardown(void **state)
{
    (void)state;
    cuda->queue_free(queue);
    return 0;
}

#endif
