/* bench_io.c: rounds of requests on several threads: what is timed, what is checked, and the figures of it.
 */
#include "tools/penstock/machine/bench_io.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "common/error.h"
#include "common/nvme/emulated/emulated.h"
#include "common/nvme/stack/stack.h"
#include "common/util/clock.h"
#include "tools/penstock/machine/bench_impl.h"

#define MEMORY_BYTES (256ull << 20) /* most memory of slots */
/* a round on a file has so many depths of requests, because a device that rested is slow at first... */
#define ROUND_DEPTHS 256
#define ROUND_BYTES (1ull << 20) /* ...or so many bytes: few enough for the caches, as with fio */
#define SLOTS_MAX 65536u
#define DONE_MAX 256
#define STEADY_DEPTHS 4 /* a round with fewer depths of slots is timed as a whole */
/* after so long without a completion the bench sleeps between polls, because on a busy processor a sleeper
 * gets its turn sooner */
#define IDLE_NS 100000u
#define NAP_NS 20000
#define STALL_NS 60000000000ull
#define BUCKETS (64 * 32) /* of latencies: 32 for each octave, 3 % wide */

/* Threads that submit. They begin rounds together. The first thread that has begun its last request ends the
 * round for all, so that each is timed while the others work. */
struct team {
    struct rounds *all;
    uint32_t n;
    pthread_mutex_t lock;
    pthread_barrier_t barrier;
    _Atomic bool enough;
    bool going;
    pst_rc rc; /* of the thread that failed first */
    char why[1024];
};

struct rounds {
    const struct pst_bench_io *o;
    struct team *team;
    struct pst_mover mover, *m;
    uint32_t thread;
    uint64_t seed, next_index;
    uint64_t *at; /* for each slot, its byte of the medium */
    uint32_t *ssd;
    uint64_t latencies[BUCKETS], most_ns, requests, checked; /* requests: those that were timed */
    double sum_ns, seconds, cpu_ns;                          /* cpu_ns: of the whole process */
};

uint64_t pst_bench_cycles(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return pst_clock_ns();
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
        return pst_nvme_emulated_pattern(ssd, 1, at);
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

/* Chooses the place of a request. Writes of a round never overlap: they go through the span in steps that
 * share no factor with it. */
static void place(struct rounds *r, uint32_t slot)
{
    const uint64_t n = r->o->span / r->o->bytes, i = r->next_index++ * r->team->n + r->thread;
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

/* The part of a round that is timed. If a round has slots for it, this is the part in which `depth` requests
 * are always in flight: from the moment when `depth` requests have ended (before that the device fills up) to
 * the moment when the last one begins (after that it empties). Otherwise, and of a burst, it is the whole
 * round. At least one request is timed, however long it takes. */
struct timed {
    bool on, off;
    uint64_t from_ns;
    double cpu_ns;
    uint32_t from; /* requests that had ended when the clock started */
};

static bool is_steady(const struct rounds *r)
{
    return !r->o->burst && r->m->slots / STEADY_DEPTHS >= r->o->depth;
}

static double cpu_ns(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return 1e9 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e3 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void keep_time(struct rounds *r, struct timed *t, uint32_t ended, bool last_begun, bool all_ended)
{
    const bool steady = is_steady(r);
    if (!t->on && (!steady || ended >= r->o->depth))
        *t = (struct timed){.on = true, .cpu_ns = cpu_ns(), .from_ns = pst_clock_ns(), .from = ended};
    if (!t->on || t->off || ended == t->from || !(steady ? last_begun : all_ended))
        return;
    t->off = true;
    atomic_store(&r->team->enough, steady);
    r->seconds += (double)(pst_clock_ns() - t->from_ns) * 1e-9;
    r->cpu_ns += cpu_ns() - t->cpu_ns;
    r->requests += ended - t->from;
}

/* Whether no more requests of the round shall begin: the time is over and `depth` requests were timed, or
 * another thread has timed enough. */
static bool is_over(const struct rounds *r, const struct timed *t, uint32_t ended, uint64_t now)
{
    if (!t->on || r->o->burst || ended == t->from)
        return false;
    const bool late = (double)(now - t->from_ns) * 1e-9 > r->o->seconds - r->seconds;
    return (late && ended - t->from >= r->o->depth) || atomic_load(&r->team->enough);
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

/* Moves n slots, `depth` at a time, or as many as there is time for. *begun: how many. */
static pst_rc transfer(struct rounds *r, uint32_t n, bool write, bool timed, uint32_t *begun)
{
    struct pst_bench_done done[DONE_MAX];
    struct timed clock = {.on = false};
    uint64_t moved_at = pst_clock_ns();
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
        const uint64_t now = pst_clock_ns();
        moved_at = got > 0 ? now : moved_at;
        if (now - moved_at > STALL_NS)
            return pst_fail(
                PST_E_TIMEOUT,
                "%u requests did not end within %llu s: the drive may be faulty (dmesg may say why)",
                *begun - ended, STALL_NS / 1000000000);
        if (now - moved_at > IDLE_NS && !r->m->sleeps)
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        if (timed && is_over(r, &clock, ended, now))
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
            return pst_fail(PST_E_FORMAT,
                            "SSD %u returned wrong bytes at byte %llu, so the measurement is not valid",
                            r->ssd[slot], (unsigned long long)r->at[slot]);
    }
    return PST_OK;
}

/* Written data are the expected ones with a salt for the round, so that old data are noticed. */
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
    const uint64_t memory = MEMORY_BYTES / r->team->n;
    const uint64_t some = ROUND_BYTES / o->bytes, many = ROUND_DEPTHS * (uint64_t)o->depth;
    uint64_t slots = memory / o->bytes;
    if (r->m->sleeps && slots > (some > many ? some : many))
        slots = some > many ? some : many;
    slots = slots > SLOTS_MAX ? SLOTS_MAX : slots;
    slots = o->burst ? o->depth : slots;
    if (o->write && slots > o->span / o->bytes * o->ssds / r->team->n)
        slots = o->span / o->bytes * o->ssds / r->team->n;
    if (slots < o->depth)
        return pst_fail(PST_E_ARG,
                        "--depth %u with --bytes %llu needs more than %llu MiB of memory for a thread, or "
                        "more bytes than --span has: lower one of them",
                        o->depth, (unsigned long long)o->bytes, (unsigned long long)(memory >> 20));
    r->m->slots = (uint32_t)slots;
    r->at = calloc(slots, sizeof *r->at);
    r->ssd = calloc(slots, sizeof *r->ssd);
    if (r->at == NULL || r->ssd == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %llu requests",
                        (unsigned long long)slots);
    pst_rc rc = pst_nvme_dma_new(&r->m->memory, NULL, slots * o->bytes);
    return rc == PST_OK ? r->m->open(r->m) : rc;
}

/* ---- threads -------------------------------------------------------------------------------------- */

static void note_failure(struct team *t, pst_rc rc)
{
    (void)pthread_mutex_lock(&t->lock);
    if (rc != PST_OK && t->rc == PST_OK) {
        t->rc = rc;
        (void)snprintf(t->why, sizeof t->why, "%s", pst_error_text());
    }
    (void)pthread_mutex_unlock(&t->lock);
}

/* The threads prepare one after the other, because they share file or drives. */
static void prepare_in_turn(struct rounds *r)
{
    struct team *t = r->team;
    for (uint32_t turn = 0; turn < t->n; turn++) {
        if (turn == r->thread && t->rc == PST_OK)
            note_failure(t, prepare(r));
        (void)pthread_barrier_wait(&t->barrier);
    }
}

static void *submit(void *argument)
{
    struct rounds *r = argument;
    struct team *t = r->team;
    (void)prctl(PR_SET_TIMERSLACK, 1000ul);
    (void)pthread_mutex_lock(&t->lock); /* wait until all are started */
    (void)pthread_mutex_unlock(&t->lock);
    prepare_in_turn(r);
    for (;;) {
        (void)pthread_barrier_wait(&t->barrier);
        if (r->thread == 0) {
            t->going = t->rc == PST_OK && r->seconds < r->o->seconds;
            atomic_store(&t->enough, false);
        }
        (void)pthread_barrier_wait(&t->barrier);
        if (!t->going)
            return NULL;
        note_failure(t, round_of(r, r->m->slots));
    }
}

static void run_team(struct team *t)
{
    pthread_t threads[PST_BENCH_THREADS_MAX];
    uint32_t started = 1; /* this thread is the first */
    (void)pthread_mutex_lock(&t->lock);
    for (; started < t->n; started++) {
        if (pthread_create(&threads[started], NULL, submit, &t->all[started]) != 0)
            break;
    }
    if (started < t->n) {
        t->rc = PST_E_NOMEM;
        (void)snprintf(t->why, sizeof t->why, "cannot start %u threads", t->n);
    }
    t->n = started;
    (void)pthread_barrier_init(&t->barrier, NULL, started);
    (void)pthread_mutex_unlock(&t->lock);
    (void)submit(&t->all[0]);
    for (uint32_t i = 1; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_barrier_destroy(&t->barrier);
}

/* ---- all of it ------------------------------------------------------------------------------------ */

/* Equation 2 for undilated drives and bus, whose threads need driver_ns for an entry. */
static uint32_t lanes_needed(const struct pst_bench_io *o, double driver_ns)
{
    char preset[128];
    struct pst_nvme_emulated_speed speed;
    (void)snprintf(preset, sizeof preset, "{\"preset\": \"%.64s\"}", o->preset);
    if (o->backend != &pst_io_emulated_ops || pst_nvme_emulated_speed_of(&speed, preset) != PST_OK ||
        speed.iops <= 0)
        return 0;
    const double by_bytes = speed.bytes_per_s / (double)o->bytes;
    const struct pst_nvme_supply supply = {.ssds = o->ssds,
                                           .iops = by_bytes < speed.iops ? by_bytes : speed.iops,
                                           .bytes = (double)o->bytes,
                                           .bus_bytes_per_s = o->bus_bytes_per_s};
    return pst_nvme_lanes_needed(&supply, driver_ns * 1e-9);
}

/* Adds the figures of all threads to those of the first. */
static void sum_up(struct team *t, double ns_per_cycle, struct pst_bench_io_result *result)
{
    struct rounds *sum = &t->all[0];
    for (uint32_t i = 0; i < t->n; i++) {
        struct rounds *r = &t->all[i];
        result->iops += r->seconds > 0 ? (double)r->requests / r->seconds : 0;
        r->m->report(r->m, result);
        if (i == 0)
            continue;
        for (uint32_t k = 0; k < BUCKETS; k++)
            sum->latencies[k] += r->latencies[k];
        sum->most_ns = r->most_ns > sum->most_ns ? r->most_ns : sum->most_ns;
        sum->sum_ns += r->sum_ns;
        sum->requests += r->requests;
        sum->checked += r->checked;
        sum->m->cycles += r->m->cycles;
    }
    const double latency_us[] = {sum->sum_ns / (double)sum->checked * 1e-3, percentile(sum, 0.5),
                                 percentile(sum, 0.99), percentile(sum, 0.999), (double)sum->most_ns * 1e-3};
    memcpy(result->latency_us, latency_us, sizeof latency_us);
    result->requests = sum->requests;
    result->checked = sum->checked;
    result->seconds = sum->seconds;
    result->cpu_ns = sum->cpu_ns / (double)(sum->requests > 0 ? sum->requests : 1);
    result->driver_ns =
        (double)sum->m->cycles * ns_per_cycle / (double)sum->checked / (sum->o->write ? 2 : 1);
    if (sum->m->sleeps)
        result->driver_ns = result->cpu_ns;
    result->cycles = result->driver_ns / ns_per_cycle;
    result->lanes_needed = lanes_needed(sum->o, result->driver_ns);
}

pst_rc pst_bench_io(const struct pst_bench_io *o, struct pst_bench_io_result *result)
{
    struct team t = {.n = o->threads, .lock = PTHREAD_MUTEX_INITIALIZER};
    assert(o->threads >= 1 && o->threads <= PST_BENCH_THREADS_MAX);
    memset(result, 0, sizeof *result);
    t.all = calloc(o->threads, sizeof *t.all);
    if (t.all == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the list of latencies");
    for (uint32_t i = 0; i < o->threads; i++) {
        struct rounds *r = &t.all[i];
        *r = (struct rounds){.o = o, .team = &t, .thread = i, .seed = 88172645463325252u + i};
        r->mover = o->backend->dma ? pst_mover_nvme : pst_mover_file;
        r->m = &r->mover;
        r->mover.o = o;
        r->mover.thread = i;
        r->mover.first = &t.all[0].mover;
    }
    const uint64_t cycles = pst_bench_cycles(), ns = pst_clock_ns();
    run_team(&t);
    if (t.rc == PST_OK)
        sum_up(&t, (double)(pst_clock_ns() - ns) / (double)(pst_bench_cycles() - cycles), result);
    for (uint32_t i = o->threads; i-- > 0;)
        t.all[i].m->close(t.all[i].m);
    for (uint32_t i = 0; i < o->threads; i++) { /* the drives are closed now */
        pst_nvme_dma_free(&t.all[i].m->memory);
        free(t.all[i].at);
        free(t.all[i].ssd);
    }
    free(t.all);
    return t.rc == PST_OK ? PST_OK : pst_fail(t.rc, "%s", t.why);
}
