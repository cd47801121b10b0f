/* bus.c: one token bucket for all processes of a run. */
#include "common/ipc/bus.h"

#include <time.h>

#define PARTS_OF_NS 256             /* a piece of few bytes takes less than 1 ns on a fast bus */
#define SLICE_NS UINT64_C(10000000) /* how often a waiting process looks whether the run stops */
#define NS_OF_S UINT64_C(1000000000)

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_OF_S + (uint64_t)t.tv_nsec;
}

/* Books a piece. The time when it has passed, in ns. */
static uint64_t book(struct pst_bus *bus, double bytes_per_s, uint64_t bytes, uint64_t now)
{
    const double parts_of_byte = 1e9 * PARTS_OF_NS / bytes_per_s;
    const uint64_t add = (uint64_t)(parts_of_byte * (double)bytes),
                   credit = (uint64_t)(parts_of_byte * (double)PST_BUS_CREDIT_BYTES),
                   soonest = now * PARTS_OF_NS > credit ? now * PARTS_OF_NS - credit : 0;
    uint64_t before = atomic_load_explicit(&bus->busy_until, memory_order_relaxed), from;
    do
        from = before > soonest ? before : soonest;
    while (!atomic_compare_exchange_weak_explicit(&bus->busy_until, &before, from + add, memory_order_relaxed,
                                                  memory_order_relaxed));
    return (from + add) / PARTS_OF_NS;
}

static void wait_until(uint64_t due, uint64_t now, const _Atomic uint32_t *stop)
{
    const uint64_t last = now + PST_BUS_WAIT_MAX_S * NS_OF_S;
    due = due < last ? due : last;
    for (; now < due && atomic_load_explicit(stop, memory_order_relaxed) == 0; now = now_ns()) {
        const uint64_t next = due - now < SLICE_NS ? due : now + SLICE_NS;
        const struct timespec until = {.tv_sec = (time_t)(next / NS_OF_S), .tv_nsec = (long)(next % NS_OF_S)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
}

uint64_t pst_bus_book(struct pst_bus *bus, double bytes_per_s, uint64_t bytes, uint64_t now)
{
    (void)atomic_fetch_add_explicit(&bus->drive_bytes, bytes, memory_order_relaxed);
    return book(bus, bytes_per_s, bytes, now);
}

double pst_bus_busy_s(const struct pst_bus *bus, double bytes_per_s)
{
    const uint64_t bytes = atomic_load_explicit(&bus->bytes, memory_order_relaxed) +
                           atomic_load_explicit(&bus->drive_bytes, memory_order_relaxed);
    return bytes_per_s > 0 ? (double)bytes / bytes_per_s : 0;
}

void pst_bus_take(struct pst_bus *bus, double bytes_per_s, uint64_t bytes, const _Atomic uint32_t *stop)
{
    while (bytes > 0 && atomic_load_explicit(stop, memory_order_relaxed) == 0) {
        const uint64_t piece = bytes < PST_BUS_PIECE_BYTES ? bytes : PST_BUS_PIECE_BYTES, now = now_ns();
        wait_until(book(bus, bytes_per_s, piece, now), now, stop);
        (void)atomic_fetch_add_explicit(&bus->bytes, piece, memory_order_relaxed);
        bytes -= piece;
    }
}
