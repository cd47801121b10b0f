/* handover [ROUNDS]: how long a frame takes from one stage to the next while the consumer is awake. Two
 * threads send one frame back and forth over two rings. It prints the median and the 99th percentile of one
 * direction, after it has checked every frame. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/ipc/board.h"
#include "common/util/clock.h"

#define ROUNDS_MAX 200000
#define WARM_UP_SHARE 10 /* the first tenth of the rounds is not counted */

struct echo {
    struct pst_lane there, back;
    int rounds;
};

static void *answer(void *arg)
{
    struct echo *e = arg;
    struct pst_frame frame;
    for (int i = 0; i < e->rounds; i++) {
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
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    uint64_t bytes = pst_ring_bytes(64, 4);
    struct pst_ring *there = aligned_alloc(64, bytes), *back = aligned_alloc(64, bytes);
    struct echo e = {.rounds = argc > 1 ? atoi(argv[1]) : ROUNDS_MAX};
    static uint64_t took[ROUNDS_MAX];
    pthread_t thread;
    if (e.rounds < 1 || e.rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: handover [ROUNDS]; ROUNDS is 1 to %d\n", ROUNDS_MAX);
        return 2;
    }
    if (!there || !back)
        return 1;
    pst_ring_init(there, 64, 4);
    pst_ring_init(back, 64, 4);
    if (!pst_lane_open(&e.there, there, bytes) || !pst_lane_open(&e.back, back, bytes))
        return 1;
    if (pthread_create(&thread, NULL, answer, &e) != 0)
        return 1;
    for (int i = 0; i < e.rounds; i++) {
        struct pst_frame frame = {.batch = (uint64_t)i, .nrefs = 1}, reply;
        const uint64_t t0 = pst_clock_ns();
        while (!pst_lane_push(&e.there, &frame))
            ;
        while (pst_lane_pop(&e.back, &reply) == 0)
            ;
        took[i] = pst_clock_ns() - t0;
        if (reply.batch != frame.batch || reply.micro != ((uint32_t)i ^ 0x5aa5u)) {
            fprintf(stderr, "handover: round %d came back wrong\n", i);
            return 1;
        }
    }
    (void)pthread_join(thread, NULL);
    const size_t warm_up = (size_t)e.rounds / WARM_UP_SHARE, n = (size_t)e.rounds - warm_up;
    const uint64_t *sorted = took + warm_up;
    qsort(took + warm_up, n, sizeof *took, by_value);
    const size_t middle = n / 2, last_percent = n - 1 - n / 100;
    printf("hand-over to a consumer that is awake: median %.3f us, 99th percentile %.3f us\n",
           (double)sorted[middle] / 2000, (double)sorted[last_percent] / 2000);
    free(there);
    free(back);
    return 0;
}
