#include "bench_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "../../common/error.h"
#include "../../common/nvme/emulated.h"
#include "bench_impl.h"

#define MEMORY_BYTES (256ull << 20) /* of slots, at most */
#define SLOTS_MAX 65536u
#define DONE_MAX 256
#define ROUND_NS 250000000u /* slow devices: a round need not use every slot */
#define IDLE_NS                                                                                              \
    100000u /* without news the bench naps: who sleeps gets a busy processor back sooner than who spins */
#define NAP_NS 20000
#define STALL_NS 60000000000ull
#define BUCKETS (64 * 32) /* latencies: 32 to an octave, 3 % wide */

struct rounds {
    const struct pst_bench_io *o;
    struct pst_mover *m;
    uint64_t seed, next_index;
    uint64_t *at; /* by slot: where in the medium */
    uint32_t *ssd;
    uint64_t latencies[BUCKETS], most_ns, requests, checked; /* requests: that were timed */
    double sum_ns, seconds;
};

uint64_t pst_bench_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t pst_bench_cycles(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return pst_bench_ns();
#endif
}

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* ---- what should be where ------------------------------------------------------------------------- */

static uint64_t expected(const struct rounds *r, uint32_t ssd, uint64_t at)
{
    const uint8_t *reference = r->m->reference(r->m, ssd);
    uint64_t word;
    if (reference == NULL)
        return pst_nvme_pattern(ssd, 1, at);
    memcpy(&word, reference + at, sizeof word);
    return word;
}

static bool right(const struct rounds *r, uint32_t slot, uint64_t salt)
{
    const uint64_t *words = pst_bench_slot(r->m, slot);
    for (uint64_t i = 0; i < r->o->bytes / 8; i++) {
        if (words[i] != (expected(r, r->ssd[slot], r->at[slot] + 8 * i) ^ salt))
            return false;
    }
    return true;
}

/* Requests of a round never overlap: they go round the span in a stride that shares no factor with it. */
static void place(struct rounds *r, uint32_t slot)
{
    const uint64_t n = r->o->span / r->o->bytes, i = r->next_index++;
    r->ssd[slot] = (uint32_t)(i % r->o->ssds);
    r->at[slot] = (i / r->o->ssds * (n / 2 * 2 > 4 ? 0x9e3779b1u % n | 1 : 1) % n) * r->o->bytes;
    if (!r->o->write)
        r->at[slot] = draw(&r->seed) % n * r->o->bytes;
}

/* ---- one round ------------------------------------------------------------------------------------ */

static void note_latency(struct rounds *r, uint64_t ns)
{
    const uint64_t v = ns < 32 ? 32 : ns;
    const uint32_t octave = 63 - (uint32_t)__builtin_clzll(v);
    r->latencies[octave * 32 + (v >> (octave - 5) & 31)]++;
    r->sum_ns += (double)ns;
    r->most_ns = ns > r->most_ns ? ns : r->most_ns;
}

/* What is timed of a round: where `depth` are always in flight, from the moment when as many have ended
 * (until then the device fills up) to the last one begun (then it empties); of a burst, all of it. */
struct clock {
    bool on, off;
    uint64_t from_ns;
    uint32_t from;
};

static void keep_time(struct rounds *r, struct clock *c, uint32_t ended, bool last_begun, bool all_ended)
{
    const bool steady = !r->o->burst && r->m->slots >= 2 * r->o->depth;
    if (!c->on && (!steady || ended >= r->o->depth))
        *c = (struct clock){.on = true, .from_ns = pst_bench_ns(), .from = ended};
    if (!c->on || c->off || !(steady ? last_begun : all_ended))
        return;
    c->off = true;
    r->seconds += (double)(pst_bench_ns() - c->from_ns) * 1e-9;
    r->requests += ended - c->from;
}

static pst_rc post_some(struct rounds *r, uint32_t n, uint32_t ended, bool write, uint32_t *begun)
{
    const uint32_t before = *begun;
    for (; *begun < n && *begun - ended < r->o->depth; (*begun)++) {
        pst_rc rc = r->m->post(r->m, *begun, r->ssd[*begun], r->at[*begun], write);
        if (rc != PST_OK)
            return rc;
    }
    return *begun > before ? r->m->ring(r->m) : PST_OK;
}

/* Moves n slots, `depth` at a time, or as many as there is time for; *begun gets how many. */
static pst_rc transfer(struct rounds *r, uint32_t n, bool write, bool timed, uint32_t *begun)
{
    struct pst_bench_done done[DONE_MAX];
    struct clock clock = {.on = false};
    const uint64_t most_ns = (uint64_t)((r->o->seconds - r->seconds) * 1e9);
    uint64_t moved_at = pst_bench_ns();
    uint32_t ended = 0;
    *begun = 0;
    if (timed)
        keep_time(r, &clock, 0, false, false);
    while (ended < n) {
        uint32_t got = 0;
        pst_rc rc = post_some(r, n, ended, write, begun);
        rc = rc == PST_OK ? r->m->poll(r->m, done, DONE_MAX, &got) : rc;
        if (rc != PST_OK)
            return rc;
        for (uint32_t i = 0; i < got && timed; i++)
            note_latency(r, done[i].ns);
        ended += got;
        const uint64_t now = pst_bench_ns();
        moved_at = got > 0 ? now : moved_at;
        if (now - moved_at > STALL_NS)
            return pst_fail(PST_E_TIMEOUT, "%u requests hang", *begun - ended);
        if (now - moved_at > IDLE_NS)
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        if (timed && clock.on && !r->o->burst && now - clock.from_ns > most_ns)
            n = *begun;
        if (timed)
            keep_time(r, &clock, ended, *begun == n, ended == n);
    }
    return PST_OK;
}

static pst_rc check(const struct rounds *r, uint32_t n, uint64_t salt)
{
    for (uint32_t slot = 0; slot < n; slot++) {
        if (!right(r, slot, salt))
            return pst_fail(PST_E_FORMAT, "wrong bytes from SSD %u at byte %llu: nothing is measured",
                            r->ssd[slot], (unsigned long long)r->at[slot]);
    }
    return PST_OK;
}

/* Written data is the expected one with a salt of the round's own, so that what was there before is told
 * apart. */
static pst_rc round_of(struct rounds *r, uint32_t n)
{
    const uint64_t salt = r->o->write ? draw(&r->seed) : 0;
    uint32_t begun;
    for (uint32_t slot = 0; slot < n; slot++) {
        place(r, slot);
        uint64_t *words = pst_bench_slot(r->m, slot);
        for (uint64_t i = 0; i < r->o->bytes / 8; i++)
            words[i] = r->o->write ? expected(r, r->ssd[slot], r->at[slot] + 8 * i) ^ salt : ~0ull;
    }
    pst_rc rc = transfer(r, n, r->o->write, true, &begun);
    if (rc == PST_OK && r->o->write) {
        memset(r->m->memory.base, 0xee, begun * r->o->bytes);
        rc = transfer(r, begun, false, false, &(uint32_t){0});
    }
    rc = rc == PST_OK ? check(r, begun, salt) : rc;
    r->checked += begun;
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static double percentile(const struct rounds *r, double p)
{
    const uint64_t want = (uint64_t)((double)r->checked * p);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        seen += r->latencies[i];
        if (seen > want)
            return (double)((32 + i % 32 + 0.5) * (double)(1ull << (i / 32)) / 32) * 1e-3;
    }
    return (double)r->most_ns * 1e-3;
}

static pst_rc prepare(struct rounds *r)
{
    const struct pst_bench_io *o = r->o;
    uint64_t slots = MEMORY_BYTES / o->bytes;
    slots = slots > SLOTS_MAX ? SLOTS_MAX : slots;
    slots = o->burst ? o->depth : slots;
    if (o->write && slots > o->span / o->bytes * o->ssds)
        slots = o->span / o->bytes * o->ssds;
    if (slots < o->depth)
        return pst_fail(PST_E_ARG,
                        "depth %u of requests of %llu bytes: more than %llu MiB of memory, or of the span",
                        o->depth, (unsigned long long)o->bytes, (unsigned long long)(MEMORY_BYTES >> 20));
    r->m->slots = (uint32_t)slots;
    r->at = calloc(slots, sizeof *r->at);
    r->ssd = calloc(slots, sizeof *r->ssd);
    if (r->at == NULL || r->ssd == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for %llu requests", (unsigned long long)slots);
    pst_rc rc = pst_nvme_dma_new(&r->m->memory, NULL, slots * o->bytes);
    return rc == PST_OK ? r->m->open(r->m) : rc;
}

pst_rc pst_bench_io(const struct pst_bench_io *o, struct pst_bench_io_result *result)
{
    const bool drives = strcmp(o->backend, "emulated") == 0 || strcmp(o->backend, "nvme") == 0;
    struct pst_mover m = drives ? pst_mover_nvme : pst_mover_file;
    struct rounds *r = calloc(1, sizeof *r);
    memset(result, 0, sizeof *result);
    if (r == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for latencies");
    m.o = o;
    (void)prctl(PR_SET_TIMERSLACK, 1000ul);
    *r = (struct rounds){.o = o, .m = &m, .seed = 88172645463325252u};
    pst_rc rc = prepare(r);
    const uint64_t cycles = pst_bench_cycles(), ns = pst_bench_ns();
    while (rc == PST_OK && r->seconds < o->seconds)
        rc = round_of(r, m.slots);
    const double ns_per_cycle = (double)(pst_bench_ns() - ns) / (double)(pst_bench_cycles() - cycles);
    if (rc == PST_OK) {
        *result = (struct pst_bench_io_result){
            .requests = r->requests,
            .checked = r->checked,
            .seconds = r->seconds,
            .latency_us = {r->sum_ns / (double)r->checked * 1e-3, percentile(r, 0.5), percentile(r, 0.99),
                           percentile(r, 0.999), (double)r->most_ns * 1e-3},
            .cycles = (double)m.cycles / (double)r->checked / (o->write ? 2 : 1)};
        result->driver_ns = result->cycles * ns_per_cycle;
        m.report(&m, result);
    }
    m.close(&m);
    pst_nvme_dma_free(&m.memory);
    free(r->at);
    free(r->ssd);
    free(r);
    return rc;
}
