/* Rings and pools: what is shared between processes. */
#include "tests/unit/store_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "common/ipc/board.h"

#define CAPACITY 8
#define REFS 3

static struct pst_ring *ring_new(struct pst_lane *lane, uint32_t capacity, uint32_t refs)
{
    struct pst_ring *ring = aligned_alloc(PST_CACHE_LINE, pst_ring_bytes(capacity, refs));
    assert_non_null(ring);
    pst_ring_init(ring, capacity, refs);
    assert_true(pst_lane_open(lane, ring, pst_ring_bytes(capacity, refs)));
    return ring;
}

static struct pst_frame frame_of(uint64_t n)
{
    struct pst_frame f = {.batch = n,
                          .micro = (uint32_t)n * 3,
                          .part = (uint32_t)n * 5,
                          .flags = (uint32_t)n & 3,
                          .nrefs = (uint32_t)(n % (REFS + 1)),
                          .arg = {~n, n * n}};
    for (uint32_t i = 0; i < f.nrefs; i++)
        f.refs[i] = (struct pst_ref){(uint32_t)n + i, (uint32_t)n * 7 + i};
    return f;
}

static bool same(const struct pst_frame *a, uint64_t n)
{
    struct pst_frame b = frame_of(n);
    return a->batch == b.batch && a->micro == b.micro && a->part == b.part && a->flags == b.flags &&
           a->nrefs == b.nrefs && a->arg[0] == b.arg[0] && a->arg[1] == b.arg[1] &&
           memcmp(a->refs, b.refs, b.nrefs * sizeof b.refs[0]) == 0;
}

/* Fills and drains from the given position: 0, or just before a counter wraps. */
static void fill_and_drain(uint64_t start)
{
    struct pst_lane lane;
    struct pst_ring *ring = ring_new(&lane, CAPACITY, REFS);
    atomic_store(&ring->head, start);
    atomic_store(&ring->tail, start);
    struct pst_frame f;
    uint64_t in = 0, out = 0;
    for (int round = 0; round < 1000; round++) {
        for (int k = round % (CAPACITY + 2); k > 0; k--) {
            struct pst_frame next = frame_of(in);
            bool room = in - out < CAPACITY;
            assert_int_equal(pst_lane_push(&lane, &next), room);
            in += room;
        }
        for (int k = (round * 7) % (CAPACITY + 2); k > 0; k--) {
            int got = pst_lane_pop(&lane, &f);
            assert_int_equal(got, in > out);
            if (got)
                assert_true(same(&f, out++));
        }
    }
    while (pst_lane_pop(&lane, &f) == 1)
        assert_true(same(&f, out++));
    assert_true(in == out && in > 3000);
    free(ring);
}

static void test_ring(void **state)
{
    (void)state;
    fill_and_drain(0);
    fill_and_drain((uint64_t)UINT32_MAX - 100);
    fill_and_drain(UINT64_MAX - 100);
}

static void test_ring_of_one(void **state)
{
    (void)state;
    struct pst_lane lane;
    struct pst_ring *ring = ring_new(&lane, 1, 0);
    struct pst_frame f = {.batch = 4};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(pst_lane_pop(&lane, &f), 0);
        assert_true(pst_lane_push(&lane, &f));
        assert_false(pst_lane_push(&lane, &f));
        assert_int_equal(pst_lane_pop(&lane, &f), 1);
        assert_int_equal(f.nrefs, 0);
    }
    free(ring);
}

/* What another process writes over the ring is not believed. */
static void test_hostile_ring(void **state)
{
    (void)state;
    uint64_t room = pst_ring_bytes(CAPACITY, REFS);
    struct pst_lane lane, other;
    struct pst_ring *ring = ring_new(&lane, CAPACITY, REFS);
    struct pst_frame f = frame_of(3);
    static const uint32_t shapes[][2] = {{0, 1},    {3, 1},         {16, 3},
                                         {8, 4096}, {1u << 31, 64}, {8, PST_REFS_MAX + 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        ring->capacity = shapes[i][0];
        ring->refs = shapes[i][1];
        assert_false(pst_lane_open(&other, ring, room));
    }
    assert_false(pst_lane_open(&other, ring, 0));
    ring->capacity = UINT32_MAX; /* after it was opened: has no effect */
    ring->refs = UINT32_MAX;
    for (int i = 0; i < CAPACITY; i++)
        assert_true(pst_lane_push(&lane, &f));
    assert_false(pst_lane_push(&lane, &f));
    assert_int_equal(pst_lane_pop(&lane, &f), 1);
    uint32_t nrefs = REFS + 1; /* in the cell that comes next */
    memcpy(ring->cells + lane.cell_bytes + offsetof(struct pst_frame, nrefs), &nrefs, sizeof nrefs);
    assert_int_equal(pst_lane_pop(&lane, &f), -1);
    static const uint64_t tails[] = {0, 100, UINT64_MAX, 1ull << 63};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        atomic_store(&ring->tail, tails[i]);
        assert_int_equal(pst_lane_pop(&lane, &f), -1);
    }
    free(ring);
}

#define HAMMERED 200000

static void *producer(void *arg)
{
    for (uint64_t n = 0; n < HAMMERED;) {
        struct pst_frame f = frame_of(n);
        if (pst_lane_push(arg, &f))
            n++;
        else
            (void)sched_yield();
    }
    return NULL;
}

static void test_two_threads(void **state)
{
    (void)state;
    struct pst_lane lane;
    struct pst_ring *ring = ring_new(&lane, CAPACITY, REFS);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, producer, &lane), 0);
    uint64_t wrong = 0;
    for (uint64_t n = 0; n < HAMMERED;) {
        struct pst_frame f;
        int got = pst_lane_pop(&lane, &f);
        if (got == 0) {
            (void)sched_yield();
            continue;
        }
        wrong += got < 0 || !same(&f, n);
        n++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wrong, 0);
    free(ring);
}

/* ---- pools --------------------------------------------------------------------------------------- */

static struct pst_pool *pool_new(uint32_t slots, uint32_t instances, bool by_turn, uint64_t first)
{
    struct pst_pool *pool = malloc(sizeof *pool);
    assert_non_null(pool);
    assert_int_equal(pst_pool_init(pool, slots, instances, by_turn, false, first), PST_OK);
    return pool;
}

/* Some slot is not free, or somebody waits for one. */
static bool busy(const struct pst_pool *pool)
{
    return pool->nfree < pool->slots || pool->nwants > 0;
}

static void pool_free(struct pst_pool *pool)
{
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static void test_credits_in_order(void **state)
{
    (void)state;
    struct pst_pool *pool = pool_new(3, 1, false, 10);
    struct pst_credit c[4];
    bool seen[3] = {false};
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(pst_pool_grant(pool, 0, &c[i]));
        assert_true(c[i].batch == 10 + i && c[i].micro == 0 && c[i].dirty == 0 &&
                    c[i].previous_batch == UINT64_MAX);
        assert_true(c[i].ref.slot < 3 && !seen[c[i].ref.slot]);
        seen[c[i].ref.slot] = true;
    }
    assert_false(pst_pool_grant(pool, 0, &c[3]));
    assert_true(busy(pool));
    assert_true(pst_pool_release(pool, c[1].ref.slot, true));
    assert_true(pst_pool_grant(pool, 0, &c[3]));
    assert_true(c[3].ref.slot == c[1].ref.slot && c[3].batch == 13 && c[3].dirty == 1 && c[3].version == 1 &&
                c[3].previous_batch == 11);
    assert_false(pst_pool_exhausted(pool, 0));
    pst_pool_total(pool, 14);
    assert_true(pst_pool_exhausted(pool, 0));
    for (int i = 0; i < 4; i++)
        if (i != 1)
            assert_true(pst_pool_release(pool, c[i].ref.slot, false));
    assert_false(pst_pool_grant(pool, 0, &c[0]));
    assert_false(busy(pool));
    pool_free(pool);
}

/* Batch b gets the slot of batch b - slots, though others are free. At the end every slot comes home. */
static void test_slots_that_return(void **state)
{
    (void)state;
    struct pst_pool *pool = malloc(sizeof *pool);
    struct pst_credit c[7];
    assert_non_null(pool);
    assert_int_equal(pst_pool_init(pool, 3, 1, false, true, 5), PST_OK);
    for (int i = 0; i < 3; i++)
        assert_true(pst_pool_grant(pool, 0, &c[i]));
    assert_true(pst_pool_release(pool, c[2].ref.slot, false));
    assert_true(pst_pool_release(pool, c[1].ref.slot, true));
    assert_false(pst_pool_grant(pool, 0, &c[3])); /* the slot of batch 5 is out */
    assert_true(pst_pool_release(pool, c[0].ref.slot, false));
    assert_true(pst_pool_grant(pool, 0, &c[3]));
    assert_true(c[3].batch == 8 && c[3].ref.slot == c[0].ref.slot && c[3].previous_batch == 5);
    pst_pool_total(pool, 9);
    assert_false(pst_pool_exhausted(pool, 0));
    assert_true(pst_pool_grant(pool, 0, &c[4]));
    assert_true(c[4].batch == UINT64_MAX && c[4].previous_batch == 6 && c[4].dirty == 1 && c[4].version == 1);
    assert_true(pst_pool_grant(pool, 0, &c[5]));
    assert_true(c[5].batch == UINT64_MAX && c[5].previous_batch == 7);
    assert_false(pst_pool_grant(pool, 0, &c[6]));
    assert_true(pst_pool_release(pool, c[3].ref.slot, false));
    assert_true(pst_pool_grant(pool, 0, &c[6]));
    assert_true(c[6].batch == UINT64_MAX && c[6].previous_batch == 8);
    assert_true(pst_pool_exhausted(pool, 0));
    pool_free(pool);
}

/* Two batches, three slots: only two slots come home. */
static void test_fewer_batches_than_slots_return(void **state)
{
    (void)state;
    struct pst_pool *pool = malloc(sizeof *pool);
    struct pst_credit c[2];
    assert_non_null(pool);
    assert_int_equal(pst_pool_init(pool, 3, 1, false, true, 7), PST_OK);
    pst_pool_total(pool, 9);
    for (int i = 0; i < 2; i++)
        assert_true(pst_pool_grant(pool, 0, &c[i]) && c[i].batch == 7 + (uint64_t)i);
    assert_false(pst_pool_grant(pool, 0, &c[0]));
    for (int i = 0; i < 2; i++) {
        assert_false(pst_pool_exhausted(pool, 0));
        assert_true(pst_pool_release(pool, (uint32_t)(7 + i) % 3, false));
        assert_true(pst_pool_grant(pool, 0, &c[i]));
        assert_true(c[i].batch == UINT64_MAX && c[i].previous_batch == 7 + (uint64_t)i);
    }
    assert_true(pst_pool_exhausted(pool, 0));
    pool_free(pool);
}

static void test_wants_come_first(void **state)
{
    (void)state;
    struct pst_pool *pool = pool_new(2, 2, false, 0);
    struct pst_credit a, b, c;
    assert_true(pst_pool_grant(pool, 0, &a));
    assert_true(pst_pool_grant(pool, 1, &b));
    assert_int_equal(pst_pool_want(pool, 1, 1, 1), PST_OK);
    assert_int_equal(pst_pool_want(pool, 0, 0, 1), PST_OK);
    assert_true(pst_pool_release(pool, b.ref.slot, false));
    /* one slot is free and two wait: the older batch's comes first, whoever asks */
    assert_false(pst_pool_grant(pool, 1, &c));
    assert_true(pst_pool_grant(pool, 0, &c));
    assert_true(c.batch == 0 && c.micro == 1);
    assert_true(pst_pool_release(pool, a.ref.slot, false));
    /* the last slot is kept for the one that waits, not given to a new batch */
    assert_false(pst_pool_grant(pool, 0, &a));
    pst_pool_total(pool, 2);
    assert_false(pst_pool_exhausted(pool, 1));
    assert_true(pst_pool_exhausted(pool, 0));
    assert_true(pst_pool_grant(pool, 1, &b));
    assert_true(b.batch == 1 && b.micro == 1);
    pool_free(pool);
    pool = pool_new(1, 1, false, 0);
    for (uint32_t i = 0; i < PST_WANTS_MAX; i++)
        assert_int_equal(pst_pool_want(pool, 0, i, 1), PST_OK);
    assert_int_equal(pst_pool_want(pool, 0, 1, 1), PST_E_LIMIT);
    pool_free(pool);
}

/* Whatever others wait for: so that two pools grant an instance the same, in the same order. */
static void test_what_was_begun_comes_first(void **state)
{
    (void)state;
    struct pst_pool *pool = pool_new(5, 2, false, 0);
    struct pst_credit a, b, c;
    assert_true(pst_pool_grant(pool, 0, &a));
    assert_true(pst_pool_grant(pool, 1, &b));
    assert_int_equal(pst_pool_want(pool, 0, 0, 1), PST_OK);
    assert_int_equal(pst_pool_want(pool, 1, 1, 1), PST_OK);
    assert_true(pst_pool_grant(pool, 1, &c)); /* the other's is older, and has a slot left */
    assert_true(c.batch == 1 && c.micro == 1);
    assert_true(pst_pool_grant(pool, 1, &c)); /* it has no other: a new batch */
    assert_true(c.batch == 2 && c.micro == 0);
    assert_int_equal(pst_pool_want(pool, 1, 2, 1), PST_OK);
    assert_false(pst_pool_grant(pool, 1, &c)); /* the last slot is for the older one */
    assert_true(pst_pool_grant(pool, 0, &c));
    assert_true(c.batch == 0 && c.micro == 1);
    pool_free(pool);
}

static void test_by_turn(void **state)
{
    (void)state;
    struct pst_pool *pool = pool_new(4, 3, true, 5); /* batch 5 is instance 2's */
    struct pst_credit c;
    assert_false(pst_pool_grant(pool, 0, &c));
    assert_false(pst_pool_grant(pool, 1, &c));
    for (uint64_t b = 5; b < 9; b++) {
        assert_true(pst_pool_grant(pool, (uint32_t)(b % 3), &c));
        assert_true(c.batch == b);
    }
    pool_free(pool);
}

static void test_fan_out(void **state)
{
    (void)state;
    struct pst_pool *pool = pool_new(1, 1, false, 0);
    struct pst_credit c;
    assert_true(pst_pool_grant(pool, 0, &c));
    pst_pool_share(pool, c.ref.slot, 2);
    assert_false(pst_pool_release(pool, c.ref.slot, false));
    assert_false(pst_pool_release(pool, c.ref.slot, true));
    assert_false(pst_pool_grant(pool, 0, &c));
    assert_true(pst_pool_release(pool, c.ref.slot, false));
    assert_true(pst_pool_grant(pool, 0, &c));
    assert_true(c.dirty == 1 && c.version == 1);
    pool_free(pool);
}

/* A pool that someone has written over may do wrong, but not reach outside itself. */
static void test_hostile_pool(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 1, 7, 1024, 1025, 1u << 20, UINT32_MAX};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            struct pst_pool *pool = pool_new(4, 2, i % 2 != 0, 0);
            struct pst_credit c;
            pool->nfree = values[i];
            pool->nwants = values[k];
            pool->instances = values[(i + k) % 7];
            for (uint32_t s = 0; s < PST_SLOTS_MAX; s++)
                pool->free[s] = UINT32_MAX - s;
            for (int n = 0; n < 3; n++) {
                if (pst_pool_grant(pool, 1, &c))
                    assert_true(c.ref.slot < PST_SLOTS_MAX);
                (void)pst_pool_exhausted(pool, 1);
                assert_true(pst_pool_want(pool, 1, 2, 3) <= PST_OK);
                (void)pst_pool_release(pool, 3, true);
            }
            pool_free(pool);
        }
}

#define OPERATIONS 20000
#define THREADS 4
#define POOL_SLOTS 7

struct shared {
    struct pst_pool *pool;
    _Atomic uint32_t holder[POOL_SLOTS]; /* instance + 1 */
    _Atomic uint64_t granted, wrong;
    _Atomic uint8_t *given; /* by batch and micro: times granted */
};

struct worker {
    struct shared *shared;
    uint32_t instance;
};

static void use_credit(struct shared *s, uint32_t instance, const struct pst_credit *c)
{
    uint32_t nobody = 0;
    s->wrong += c->ref.slot >= POOL_SLOTS || c->batch >= OPERATIONS || c->micro > 1;
    if (c->ref.slot >= POOL_SLOTS || c->batch >= OPERATIONS || c->micro > 1)
        return;
    s->wrong += !atomic_compare_exchange_strong(&s->holder[c->ref.slot], &nobody, instance + 1);
    s->wrong += atomic_fetch_add(&s->given[c->batch * 2 + c->micro], 1) != 0;
    s->granted++;
    if (c->micro == 0 && c->batch % 5 == 0) /* asks for more of the same batch before it lets go */
        s->wrong += pst_pool_want(s->pool, instance, c->batch, 1) != PST_OK;
    atomic_store(&s->holder[c->ref.slot], 0);
    s->wrong += !pst_pool_release(s->pool, c->ref.slot, c->batch % 3 == 0);
}

static void *worker(void *arg)
{
    struct worker *w = arg;
    struct pst_credit c;
    while (!pst_pool_exhausted(w->shared->pool, w->instance)) {
        if (pst_pool_grant(w->shared->pool, w->instance, &c))
            use_credit(w->shared, w->instance, &c);
        else
            (void)sched_yield();
    }
    return NULL;
}

static void many_threads(bool by_turn)
{
    struct shared shared = {.pool = pool_new(POOL_SLOTS, THREADS, by_turn, 0)};
    shared.given = calloc(2 * OPERATIONS, sizeof *shared.given);
    assert_non_null(shared.given);
    pst_pool_total(shared.pool, OPERATIONS);
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){&shared, i};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(shared.wrong, 0);
    assert_int_equal(shared.granted, OPERATIONS + OPERATIONS / 5);
    for (uint64_t b = 0; b < OPERATIONS; b++)
        assert_true(shared.given[2 * b] == 1 && shared.given[2 * b + 1] == (b % 5 == 0));
    assert_false(busy(shared.pool));
    assert_int_equal(shared.pool->nfree, POOL_SLOTS);
    free((void *)(uintptr_t)shared.given);
    pool_free(shared.pool);
}

static void test_threads_share_a_pool(void **state)
{
    (void)state;
    many_threads(false);
    many_threads(true);
}

/* The same between processes, which is how it is used. */
static void test_processes_share_a_board(void **state)
{
    (void)state;
    size_t bytes = pst_ring_bytes(CAPACITY, REFS);
    char *memory = mmap(NULL, bytes + sizeof(struct pst_pool), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    struct pst_ring *ring = (struct pst_ring *)(void *)memory;
    struct pst_pool *pool = (struct pst_pool *)(void *)(memory + bytes);
    struct pst_lane lane;
    enum { BATCHES = 10000 };
    pst_ring_init(ring, CAPACITY, REFS);
    assert_true(pst_lane_open(&lane, ring, bytes));
    assert_int_equal(pst_pool_init(pool, 5, 1, false, false, 0), PST_OK);
    pst_pool_total(pool, BATCHES);
    pid_t pid = fork();
    if (pid == 0) { /* grants itself credits and sends the slots over */
        struct pst_credit c;
        while (!pst_pool_exhausted(pool, 0)) {
            if (!pst_pool_grant(pool, 0, &c)) {
                (void)sched_yield();
                continue;
            }
            struct pst_frame f = {.batch = c.batch, .nrefs = 1, .refs = {c.ref}};
            while (!pst_lane_push(&lane, &f))
                (void)sched_yield();
        }
        _exit(0);
    }
    assert_true(pid > 0);
    for (uint64_t n = 0; n < BATCHES;) {
        struct pst_frame f;
        int got = pst_lane_pop(&lane, &f);
        if (got == 0) {
            (void)sched_yield();
            continue;
        }
        assert_true(got == 1 && f.batch == n && f.nrefs == 1 && f.refs[0].slot < 5);
        assert_true(pst_pool_release(pool, f.refs[0].slot, false));
        n++;
    }
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(busy(pool));
    assert_int_equal(munmap(memory, bytes + sizeof *pool), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_ring_of_one),
        cmocka_unit_test(test_hostile_ring),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_credits_in_order),
        cmocka_unit_test(test_slots_that_return),
        cmocka_unit_test(test_fewer_batches_than_slots_return),
        cmocka_unit_test(test_wants_come_first),
        cmocka_unit_test(test_what_was_begun_comes_first),
        cmocka_unit_test(test_by_turn),
        cmocka_unit_test(test_fan_out),
        cmocka_unit_test(test_hostile_pool),
        cmocka_unit_test(test_threads_share_a_pool),
        cmocka_unit_test(test_processes_share_a_board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
