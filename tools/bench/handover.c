/* handover: how long a frame takes from one stage to the next when the consumer is awake: two threads, two
 * rings, one frame to and fro. Prints the median and the 99th percentile of a one-way hand-over.
 * Every frame that comes back is checked before anything is printed. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/ipc/board.h"

#define ROUNDS 200000
#define WARM_UP 20000

struct echo {
    struct pst_lane there, back;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *answer(void *arg)
{
    struct echo *e = arg;
    struct pst_frame frame;
    for (int i = 0; i < ROUNDS; i++) {
        while (pst_lane_pop(&e->there, &frame) == 0)
            ;
        frame.micro = (uint32_t)frame.batch ^ 0x5aa5u;
        while (!pst_lane_push(&e->back, &frame))
            ;
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    uint64_t bytes = pst_ring_bytes(64, 4);
    struct pst_ring *there = aligned_alloc(64, bytes), *back = aligned_alloc(64, bytes);
    struct echo e;
    static uint64_t took[ROUNDS];
    pthread_t thread;
    if (!there || !back)
        return 1;
    pst_ring_init(there, 64, 4);
    pst_ring_init(back, 64, 4);
    if (!pst_lane_open(&e.there, there, bytes) || !pst_lane_open(&e.back, back, bytes))
        return 1;
    if (pthread_create(&thread, NULL, answer, &e) != 0)
        return 1;
    for (int i = 0; i < ROUNDS; i++) {
        struct pst_frame frame = {.batch = (uint64_t)i, .nrefs = 1}, reply;
        uint64_t t0 = now_ns();
        while (!pst_lane_push(&e.there, &frame))
            ;
        while (pst_lane_pop(&e.back, &reply) == 0)
            ;
        took[i] = now_ns() - t0;
        if (reply.batch != frame.batch || reply.micro != ((uint32_t)i ^ 0x5aa5u)) {
            fprintf(stderr, "handover: round %d came back wrong\n", i);
            return 1;
        }
    }
    (void)pthread_join(thread, NULL);
    qsort(took + WARM_UP, ROUNDS - WARM_UP, sizeof *took, by_value);
    const uint64_t *sorted = took + WARM_UP;
    size_t n = ROUNDS - WARM_UP, middle = n / 2, high = n - n / 100;
    printf("hand-over to a consumer that is awake: median %.3f us, 99th percentile %.3f us\n",
           (double)sorted[middle] / 2000, (double)sorted[high] / 2000);
    free(there);
    free(back);
    return 0;
}
