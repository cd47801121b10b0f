/* A model check of the queue protocol: queue.h itself, its shared accesses put through a memory that keeps
 * plain stores back for as long as it likes, beside a controller that fetches late and completes in any
 * order. Every state that any interleaving of two submitting lanes, two completing lanes, the store buffer
 * and the controller can reach is visited. In each: what is fetched is what was posted, in order; a
 * completion is of a command that is in flight, once; no entry is written over before it was taken; and who
 * cannot go on has finished.
 *
 * Mutants show that the check would find it: without release stores, without a look at the room, without
 * phase. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

struct pst_nvme_sqe;
struct pst_nvme_cqe;
static uint32_t model_load(const volatile uint32_t *from);
static void model_release(volatile uint32_t *to, uint32_t value);
static void model_store_sqe(struct pst_nvme_sqe *to, const struct pst_nvme_sqe *sqe);
#define PST_NVME_LOAD_ACQUIRE(from) model_load(from)
#define PST_NVME_STORE_RELEASE(to, value) model_release(to, value)
#define PST_NVME_STORE_SQE(to, sqe) model_store_sqe(to, sqe)
#define PST_NVME_LOAD_CQE(from) (*(from))

#include "common/nvme/lanes.h"

#define DEPTH_MAX 4
#define COMMANDS_MAX 10
#define STATES_MAX (1u << 23)
#define LANES 2

enum mutant { NONE, SQ_NOT_RELEASED, CQ_NOT_RELEASED, NO_ROOM, NO_PHASE };

/* All that there is. It is copied and hashed whole, so it has no padding that matters and pointers that never
 * change. */
static struct world {
    struct pst_nvme_qp qp;
    struct pst_nvme_sqe sq[DEPTH_MAX];
    struct pst_nvme_cqe cq[DEPTH_MAX];
    uint32_t sq_doorbell, cq_doorbell;
    uint16_t ids[DEPTH_MAX];
    uint32_t live[DEPTH_MAX];
    /* plain stores that nobody sees yet */
    struct pst_nvme_sqe stored[DEPTH_MAX];
    uint32_t is_stored; /* a bit an entry */
    /* submission: n reserved, which lanes have posted theirs */
    uint32_t submitted, reserved, lanes_posted;
    /* completion: n arrived, which lanes have taken theirs */
    uint32_t arrived, lanes_taken, done; /* done: a bit a command */
    /* the controller */
    uint32_t fetched, head;
    uint32_t busy[DEPTH_MAX], nbusy; /* number << 16 | cid */
    uint64_t cq_tail;
    uint32_t completing; /* the body of this (busy's form) is to be written; 0: none */
    bool body_seen;
} w;

static struct check {
    enum mutant mutant;
    uint32_t depth, commands;
    uint64_t *visited; /* hashes; 0: free */
    uint32_t states, finals;
    const char *wrong;
} check;

static void wrong(const char *what)
{
    if (check.wrong == NULL)
        check.wrong = what;
}

/* ---- memory --------------------------------------------------------------------------------------- */

static uint32_t model_load(const volatile uint32_t *from)
{
    return *from;
}

static void flush(uint32_t entry)
{
    w.sq[entry] = w.stored[entry];
    memset(&w.stored[entry], 0, sizeof w.stored[entry]);
    w.is_stored &= ~(1u << entry);
}

static void model_release(volatile uint32_t *to, uint32_t value)
{
    for (uint32_t i = 0; i < check.depth && check.mutant != SQ_NOT_RELEASED; i++) {
        if (w.is_stored >> i & 1)
            flush(i);
    }
    *to = value;
}

static void model_store_sqe(struct pst_nvme_sqe *to, const struct pst_nvme_sqe *sqe)
{
    const uint32_t entry = (uint32_t)(to - w.sq);
    w.stored[entry] = *sqe;
    w.is_stored |= 1u << entry;
}

/* ---- steps: each does one thing that others can see, or returns false ------------------------------ */

static bool reserve(uint32_t n)
{
    const uint32_t room = check.mutant == NO_ROOM ? LANES : pst_nvme_room(&w.qp);
    if (w.reserved != 0 || n > room || n > check.commands - w.submitted)
        return false;
    w.reserved = n;
    w.lanes_posted = 0;
    return true;
}

static bool post(uint32_t lane)
{
    if (lane >= w.reserved || (w.lanes_posted >> lane & 1))
        return false;
    struct pst_nvme_sqe sqe;
    pst_nvme_rw(&sqe, PST_NVME_READ, 1, w.submitted + lane + 1,
                1); /* the LBA is the command's number, from 1 */
    pst_nvme_post(&w.qp, w.qp.posted + lane, &sqe);
    w.lanes_posted |= 1u << lane;
    return true;
}

static bool ring(void)
{
    if (w.reserved == 0 || w.lanes_posted != (1u << w.reserved) - 1)
        return false;
    w.qp.posted += w.reserved;
    w.submitted += w.reserved;
    w.reserved = w.lanes_posted = 0;
    pst_nvme_ring_sq(&w.qp);
    w.qp.sq_rings = 0; /* a count; it would make states differ that do not */
    return true;
}

static bool look(void)
{
    if (w.arrived != 0)
        return false;
    uint32_t n = pst_nvme_arrived(&w.qp);
    if (check.mutant == NO_PHASE && w.qp.posted != w.qp.taken)
        n = 1;
    w.arrived = n < LANES ? n : LANES;
    w.lanes_taken = 0;
    return n > 0;
}

static bool take(uint32_t lane)
{
    struct pst_nvme_cqe cqe;
    if (lane >= w.arrived || (w.lanes_taken >> lane & 1))
        return false;
    if (!pst_nvme_poll(&w.qp, w.qp.taken + lane, &cqe)) {
        cqe = w.cq[(w.qp.taken + lane) & (check.depth - 1)];
        if (check.mutant != NO_PHASE)
            wrong("a completion that had arrived is gone");
    }
    if (!pst_nvme_take(&w.qp, w.qp.taken + lane, cqe.cid))
        wrong("a completion of no command in flight");
    else if (cqe.dw0 < 1 || cqe.dw0 > check.commands || (w.done >> cqe.dw0 & 1))
        wrong("a command completed twice, or never was sent");
    else
        w.done |= 1u << cqe.dw0;
    w.lanes_taken |= 1u << lane;
    return true;
}

static bool give_back(void)
{
    if (w.arrived == 0 || w.lanes_taken != (1u << w.arrived) - 1)
        return false;
    pst_nvme_ring_cq(&w.qp, w.arrived);
    w.qp.cq_rings = 0;
    w.arrived = w.lanes_taken = 0;
    return true;
}

static bool fetch(void)
{
    if (w.head == w.sq_doorbell || w.nbusy == DEPTH_MAX)
        return false;
    const struct pst_nvme_sqe sqe = w.sq[w.head];
    w.head = (w.head + 1) % check.depth;
    if (sqe.cdw10 != ++w.fetched)
        wrong("what was fetched is not what was posted there");
    for (uint32_t i = 0; i < w.nbusy; i++) {
        if ((w.busy[i] & 0xffff) == sqe.cid)
            wrong("an id is used by two commands at once");
    }
    w.busy[w.nbusy++] = w.fetched << 16 | sqe.cid;
    return true;
}

/* Picks any command that it has, if the completion queue has room. */
static bool begin_completion(uint32_t i)
{
    if (i >= w.nbusy || w.completing != 0 || (w.cq_tail + 1) % check.depth == w.cq_doorbell)
        return false;
    if (w.cq_tail - w.qp.taken >= check.depth)
        wrong("an entry is written over before it was taken");
    w.completing = w.busy[i];
    w.busy[i] = w.busy[--w.nbusy];
    w.busy[w.nbusy] = 0;
    w.body_seen = false;
    return true;
}

static bool write_body(void)
{
    if (w.completing == 0 || w.body_seen)
        return false;
    w.cq[w.cq_tail % check.depth].dw0 = w.completing >> 16;
    w.body_seen = true;
    return true;
}

static bool write_status(void)
{
    if (w.completing == 0 || (!w.body_seen && check.mutant != CQ_NOT_RELEASED))
        return false;
    struct pst_nvme_cqe *at = &w.cq[w.cq_tail % check.depth];
    at->cid = (uint16_t)w.completing;
    at->status = w.cq_tail / check.depth % 2 == 0;
    w.cq_tail++;
    w.completing = 0;
    w.body_seen = false;
    return true;
}

#define STEPS (2 + LANES + 1 + 1 + LANES + 1 + 1 + DEPTH_MAX + 2 + DEPTH_MAX)

static bool step(uint32_t i)
{
    if (i < 2)
        return reserve(i + 1);
    i -= 2;
    if (i < LANES)
        return post(i);
    i -= LANES;
    if (i < 2)
        return i == 0 ? ring() : look();
    i -= 2;
    if (i < LANES)
        return take(i);
    i -= LANES;
    if (i < 2)
        return i == 0 ? give_back() : fetch();
    i -= 2;
    if (i < DEPTH_MAX)
        return begin_completion(i);
    i -= DEPTH_MAX;
    if (i < 2)
        return i == 0 ? write_body() : write_status();
    i -= 2;
    if ((w.is_stored >> i & 1) == 0)
        return false;
    flush(i);
    return true;
}

/* ---- all states ----------------------------------------------------------------------------------- */

/* True the first time. */
static bool visit(void)
{
    const uint64_t hash = XXH3_64bits(&w, sizeof w) | 1;
    uint32_t at = (uint32_t)(hash >> 7) % STATES_MAX;
    for (; check.visited[at] != 0; at = (at + 1) % STATES_MAX) {
        if (check.visited[at] == hash)
            return false;
    }
    check.visited[at] = hash;
    assert_true(++check.states < STATES_MAX / 4 * 3);
    return true;
}

static void explore(void)
{
    if (check.wrong != NULL || !visit())
        return;
    const struct world before = w;
    bool moved = false;
    for (uint32_t i = 0; i < STEPS && check.wrong == NULL; i++) {
        w = before;
        if (!step(i))
            continue;
        moved = true;
        explore();
    }
    w = before;
    if (moved || check.wrong != NULL)
        return;
    check.finals++;
    if (w.done != (2u << check.commands) - 2 || w.nbusy != 0)
        wrong("nobody can go on, and commands are lost");
}

/* first: how many commands the pair has seen before; ids are set so that they wrap on the way. */
static const char *run(enum mutant mutant, uint32_t depth, uint32_t commands, uint64_t first)
{
    memset(&w, 0, sizeof w);
    memset(&check, 0, sizeof check);
    check.mutant = mutant;
    check.depth = depth;
    check.commands = commands;
    check.visited = calloc(STATES_MAX, sizeof *check.visited);
    assert_non_null(check.visited);
    w.qp = (struct pst_nvme_qp){.sq = w.sq,
                                .cq = w.cq,
                                .sq_doorbell = &w.sq_doorbell,
                                .cq_doorbell = &w.cq_doorbell,
                                .ids = w.ids,
                                .live = w.live,
                                .depth = depth};
    pst_nvme_qp_reset(&w.qp);
    for (uint32_t i = 0; i < depth; i++)
        w.ids[i] = (uint16_t)(65536 - depth + i);
    w.qp.posted = w.qp.taken = w.cq_tail = first;
    w.head = w.sq_doorbell = w.cq_doorbell = (uint32_t)(first % depth);
    for (uint64_t i = 0; i < first; i++) /* what earlier rounds have left in the completion queue */
        w.cq[i % depth].status = i / depth % 2 == 0;
    explore();
    free(check.visited);
    print_message("# depth %u, %u commands after %u: %u states, %u ends: %s\n", depth, commands,
                  (uint32_t)first, check.states, check.finals, check.wrong == NULL ? "right" : check.wrong);
    return check.wrong;
}

static void test_every_interleaving(void **state)
{
    (void)state;
    assert_null(run(NONE, 2, 7, 0));
    assert_null(run(NONE, 2, 7, 3));
    assert_null(run(NONE, 4, 9, 0)); /* past twice the depth */
    assert_null(run(NONE, 4, 9, 6));
    assert_true(check.finals > 0);
}

static void test_mutants_are_found(void **state)
{
    (void)state;
    assert_non_null(run(SQ_NOT_RELEASED, 4, 5, 0));
    assert_non_null(run(CQ_NOT_RELEASED, 4, 5, 0));
    assert_non_null(run(NO_ROOM, 4, 6, 0));
    assert_non_null(run(NO_PHASE, 4, 5, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_interleaving),
        cmocka_unit_test(test_mutants_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
