/* shared.c: a collective in shared memory. */
#include "common/collective/shared.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/clock.h"

#define WAIT_MS 100       /* the longest sleep: then the run may be ending */
#define ALIVE_EVERY_S 0.5 /* the supervisor notices a death earlier, and reports it better */
#define RANK_BITS 8       /* of `posted` */

static_assert(PST_REPLICAS_MAX <= 1 << RANK_BITS, "a rank fits");

enum life { ABSENT, PRESENT, LEFT };

/* A member. Its own thread writes `posted`, `life` and the box; the member that takes writes `taken`. */
struct member {
    _Atomic uint32_t life;    /* enum life */
    _Atomic int32_t pid;      /* of its process */
    _Atomic uint32_t changes; /* of the fields below and of life: a futex */
    _Atomic uint64_t posted;  /* how often the box was filled, and above that, for which rank */
    _Atomic uint64_t taken;   /* how often it was emptied */
    _Alignas(PST_CACHE_LINE) char box[PST_COLLECTIVE_BOX];
};

struct shared {
    struct pst_collective base;
    struct member *member; /* of all */
    const char *const *names;
    const _Atomic uint32_t *stop;
    int pidfd[PST_REPLICAS_MAX]; /* of the members' processes; -1: not open yet */
};

static uint64_t count_of(uint64_t posted)
{
    return posted >> RANK_BITS;
}

static int rank_of(uint64_t posted)
{
    return (int)(posted & ((1u << RANK_BITS) - 1));
}

/* ---- waiting ------------------------------------------------------------------------------------- */

static void tell_change(struct member *m)
{
    (void)atomic_fetch_add_explicit(&m->changes, 1, memory_order_release);
    (void)syscall(SYS_futex, &m->changes, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps until a change after `seen`, but not long. */
static void sleep_for_change(struct member *m, uint32_t seen)
{
    const struct timespec most = {.tv_nsec = WAIT_MS * 1000000L};
    (void)syscall(SYS_futex, &m->changes, FUTEX_WAIT, seen, &most, NULL, 0);
}

static bool is_alive(struct shared *s, int peer)
{
    const pid_t pid = atomic_load(&s->member[peer].pid);
    if (pid == 0 || pid == getpid())
        return true;
    if (s->pidfd[peer] < 0)
        s->pidfd[peer] = (int)syscall(SYS_pidfd_open, pid, 0);
    if (s->pidfd[peer] < 0)
        return errno != ESRCH; /* a kernel without pidfds: the deadline remains */
    struct pollfd exited = {.fd = s->pidfd[peer], .events = POLLIN};
    return poll(&exited, 1, 0) == 0;
}

/* Is the wait for a peer over without a result? Looks for its process if it is time to. */
static pst_rc check_wait(struct shared *s, int peer, double begin, double *looked)
{
    const double now = pst_clock_s();
    const char *me = s->names[s->base.rank], *other = s->names[peer];
    if (s->stop && atomic_load_explicit(s->stop, memory_order_relaxed) != 0)
        return pst_fail(PST_E_INTERRUPTED, "the run is ending");
    if (atomic_load_explicit(&s->member[peer].life, memory_order_acquire) == LEFT)
        return pst_fail(PST_E_INTERRUPTED, "%s has ended while %s waited for it", other, me);
    if (now - begin > s->base.deadline_s)
        return pst_fail(PST_E_TIMEOUT,
                        "%s waited for data from %s (process %d) until the limit of %.1f s was over", me,
                        other, (int)atomic_load(&s->member[peer].pid), s->base.deadline_s);
    if (now - *looked < ALIVE_EVERY_S)
        return PST_OK;
    *looked = now;
    return is_alive(s, peer) ? PST_OK
                             : pst_fail(PST_E_PEER, "%s (process %d) died while %s waited for it", other,
                                        (int)atomic_load(&s->member[peer].pid), me);
}

/* Has a member emptied the box of `owner`, or filled it for rank `to`? */
static bool is_empty(const struct member *owner)
{
    return count_of(atomic_load_explicit(&owner->posted, memory_order_relaxed)) ==
           atomic_load_explicit(&owner->taken, memory_order_acquire);
}

static bool is_for(const struct member *owner, int to)
{
    const uint64_t posted = atomic_load_explicit(&owner->posted, memory_order_acquire);
    return rank_of(posted) == to &&
           count_of(posted) != atomic_load_explicit(&owner->taken, memory_order_relaxed);
}

/* Waits until the box of `owner` is empty (to < 0), or holds something for `to`. peer: who is waited for. */
static pst_rc wait_for(struct shared *s, struct member *owner, int to, int peer)
{
    const double begin = pst_clock_s();
    double looked = begin;
    for (;;) {
        const uint32_t seen = atomic_load_explicit(&owner->changes, memory_order_acquire);
        if (to < 0 ? is_empty(owner) : is_for(owner, to))
            return PST_OK;
        const uint32_t life = atomic_load_explicit(&s->member[peer].life, memory_order_acquire);
        if (life == LEFT && (to < 0 ? is_empty(owner) : is_for(owner, to)))
            return PST_OK; /* it was the last thing that the peer did */
        const pst_rc rc = check_wait(s, peer, begin, &looked);
        if (rc != PST_OK)
            return rc;
        sleep_for_change(owner, seen);
    }
}

/* ---- boxes --------------------------------------------------------------------------------------- */

static pst_rc give(struct shared *s, int to, const void *from, uint64_t bytes)
{
    struct member *me = &s->member[s->base.rank];
    const uint64_t posted = atomic_load_explicit(&me->posted, memory_order_relaxed);
    const pst_rc rc = wait_for(s, me, -1, rank_of(posted));
    if (rc != PST_OK)
        return rc;
    if (bytes > 0)
        memcpy(me->box, from, bytes);
    atomic_store_explicit(&me->posted, (count_of(posted) + 1) << RANK_BITS | (uint64_t)to,
                          memory_order_release);
    tell_change(me);
    return PST_OK;
}

static pst_rc take(struct shared *s, int peer, void *to, uint64_t bytes)
{
    struct member *other = &s->member[peer];
    const pst_rc rc = wait_for(s, other, s->base.rank, peer);
    if (rc != PST_OK)
        return rc;
    if (bytes > 0)
        memcpy(to, other->box, bytes);
    (void)atomic_fetch_add_explicit(&other->taken, 1, memory_order_release);
    tell_change(other);
    return PST_OK;
}

/* ---- the table ----------------------------------------------------------------------------------- */

static struct shared *shared_of(struct pst_collective *c)
{
    return (struct shared *)(void *)c; /* its first member */
}

static pst_rc exchange(struct pst_collective *c, int peer, const void *mine, void *theirs, uint64_t bytes)
{
    struct shared *s = shared_of(c);
    pst_rc rc = PST_OK;
    assert(peer >= 0 && peer < c->members && peer != c->rank);
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += PST_COLLECTIVE_BOX) {
        const uint64_t n = bytes - at < PST_COLLECTIVE_BOX ? bytes - at : PST_COLLECTIVE_BOX;
        rc = give(s, peer, (const char *)mine + at, n);
        if (rc == PST_OK)
            rc = take(s, peer, (char *)theirs + at, n);
    }
    return rc;
}

/* Dissemination (Hensgen, Finkel, Manber 1988): in round l, each member tells the one 2^l ranks above it. */
static pst_rc barrier(struct pst_collective *c)
{
    struct shared *s = shared_of(c);
    pst_rc rc = PST_OK;
    for (int apart = 1; apart < c->members && rc == PST_OK; apart *= 2) {
        rc = give(s, (c->rank + apart) % c->members, NULL, 0);
        if (rc == PST_OK)
            rc = take(s, (c->rank + c->members - apart) % c->members, NULL, 0);
    }
    return rc;
}

static void leave(struct pst_collective *c)
{
    struct shared *s = shared_of(c);
    atomic_store_explicit(&s->member[c->rank].life, LEFT, memory_order_release);
    for (int r = 0; r < c->members; r++) /* those that wait for it to take, too */
        tell_change(&s->member[r]);
}

static void close_member(struct pst_collective *c)
{
    struct shared *s = shared_of(c);
    leave(c);
    for (int r = 0; r < c->members; r++)
        if (s->pidfd[r] >= 0)
            (void)close(s->pidfd[r]);
    free(s);
}

static const struct pst_collective_table table = {"shared memory", barrier,     exchange, NULL,
                                                  leave,           close_member};

pst_rc pst_collective_shared_give(struct pst_collective *c, int peer, const void *from, uint64_t bytes)
{
    assert(c->by == &table && peer >= 0 && peer < c->members && bytes <= PST_COLLECTIVE_BOX);
    return give(shared_of(c), peer, from, bytes);
}

pst_rc pst_collective_shared_take(struct pst_collective *c, int peer, void *to, uint64_t bytes)
{
    assert(c->by == &table && peer >= 0 && peer < c->members && bytes <= PST_COLLECTIVE_BOX);
    return take(shared_of(c), peer, to, bytes);
}

uint64_t pst_collective_shared_bytes(int members)
{
    return pst_align_up((uint64_t)members * sizeof(struct member), PST_PAGE);
}

pst_rc pst_collective_shared_open(struct pst_collective **out,
                                  const struct pst_collective_shared_options *options)
{
    uint32_t absent = ABSENT;
    *out = NULL;
    if (options->members < 1 || options->members > PST_REPLICAS_MAX || options->rank < 0 ||
        options->rank >= options->members)
        return pst_fail(
            PST_E_ARG,
            "a collective has 1 to %d members, which are numbered from 0; found number %d of %d members",
            PST_REPLICAS_MAX, options->rank, options->members);
    struct shared *s = calloc(1, sizeof *s);
    if (!s)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot connect the replicas of a stage");
    s->base = (struct pst_collective){.by = &table,
                                      .rank = options->rank,
                                      .members = options->members,
                                      .deadline_s = options->deadline_s,
                                      .near = options->members};
    s->member = options->memory;
    s->names = options->names;
    s->stop = options->stop;
    for (int r = 0; r < PST_REPLICAS_MAX; r++)
        s->pidfd[r] = -1;
    struct member *me = &s->member[options->rank];
    if (!atomic_compare_exchange_strong(&me->life, &absent, PRESENT)) {
        free(s);
        return pst_fail(PST_E_ARG, "the collective already has a member of rank %d", options->rank);
    }
    atomic_store(&me->pid, (int32_t)getpid());
    *out = &s->base;
    return PST_OK;
}
