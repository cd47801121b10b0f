/* board.c: rings and pools in shared memory. */
#include "common/ipc/board.h"

#include <string.h>

#define FRAME_HEAD offsetof(struct pst_frame, refs)

static uint64_t cell_bytes(uint32_t refs)
{
    return pst_align_up(FRAME_HEAD + refs * sizeof(struct pst_ref), PST_CACHE_LINE);
}

uint64_t pst_ring_bytes(uint32_t capacity, uint32_t refs)
{
    return pst_align_up(sizeof(struct pst_ring) + capacity * cell_bytes(refs), PST_CACHE_LINE);
}

void pst_ring_init(struct pst_ring *ring, uint32_t capacity, uint32_t refs)
{
    assert(capacity && (capacity & (capacity - 1)) == 0 && refs <= PST_REFS_MAX);
    ring->capacity = capacity;
    ring->refs = refs;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
}

bool pst_lane_open(struct pst_lane *lane, struct pst_ring *ring, uint64_t room)
{
    if (room < sizeof *ring)
        return false;
    *lane = (struct pst_lane){.ring = ring, .capacity = ring->capacity, .refs = ring->refs};
    if (lane->capacity == 0 || (lane->capacity & (lane->capacity - 1)) != 0 || lane->refs > PST_REFS_MAX ||
        pst_ring_bytes(lane->capacity, lane->refs) > room)
        return false;
    lane->cell_bytes = cell_bytes(lane->refs);
    return true;
}

bool pst_lane_push(const struct pst_lane *lane, const struct pst_frame *frame)
{
    struct pst_ring *ring = lane->ring;
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&ring->head, memory_order_acquire) >= lane->capacity)
        return false;
    assert(frame->nrefs <= lane->refs);
    memcpy(ring->cells + (tail & (lane->capacity - 1)) * lane->cell_bytes, frame,
           FRAME_HEAD + frame->nrefs * sizeof(struct pst_ref));
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

int pst_lane_pop(const struct pst_lane *lane, struct pst_frame *frame)
{
    struct pst_ring *ring = lane->ring;
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (head == tail)
        return 0;
    if (tail - head > lane->capacity)
        return -1;
    const unsigned char *cell = ring->cells + (head & (lane->capacity - 1)) * lane->cell_bytes;
    memcpy(frame, cell, FRAME_HEAD);
    if (frame->nrefs > lane->refs)
        return -1;
    memcpy(frame->refs, cell + FRAME_HEAD, frame->nrefs * sizeof(struct pst_ref));
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return 1;
}

uint32_t pst_lane_waiting(const struct pst_lane *lane)
{
    const uint64_t head = atomic_load_explicit(&lane->ring->head, memory_order_relaxed);
    const uint64_t waiting = atomic_load_explicit(&lane->ring->tail, memory_order_relaxed) - head;
    return waiting <= lane->capacity ? (uint32_t)waiting : lane->capacity;
}

pst_rc pst_pool_init(struct pst_pool *pool, uint32_t slots, uint32_t instances, bool by_turn, bool returns,
                     uint64_t first_batch)
{
    assert(slots >= 1 && slots <= PST_SLOTS_MAX);
    memset(pool, 0, sizeof *pool);
    pthread_mutexattr_t attr;
    (void)pthread_mutexattr_init(&attr);
    (void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    int failed = pthread_mutex_init(&pool->lock, &attr);
    (void)pthread_mutexattr_destroy(&attr);
    if (failed)
        return pst_fail(PST_E_UNSUPPORTED,
                        "this system does not support mutexes that are shared between processes");
    pool->slots = pool->nfree = slots;
    pool->instances = instances;
    pool->by_turn = by_turn;
    pool->returns = returns;
    pool->first_batch = pool->next_batch = first_batch;
    pool->total = UINT64_MAX;
    for (uint32_t i = 0; i < slots; i++) {
        pool->free[i] = slots - 1 - i;
        pool->slot[i].batch = UINT64_MAX;
    }
    return PST_OK;
}

void pst_pool_total(struct pst_pool *pool, uint64_t total)
{
    (void)pthread_mutex_lock(&pool->lock);
    pool->total = total;
    (void)pthread_mutex_unlock(&pool->lock);
}

uint32_t pst_pool_free(struct pst_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    const uint32_t nfree = pool->nfree;
    (void)pthread_mutex_unlock(&pool->lock);
    return nfree < pool->slots ? nfree : pool->slots;
}

uint64_t pst_pool_total_of(struct pst_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    const uint64_t total = pool->total;
    (void)pthread_mutex_unlock(&pool->lock);
    return total;
}

/* Slots come home after the last batch as if there were `slots` more batches. */
static uint64_t end_of(const struct pst_pool *pool)
{
    return pool->returns && pool->total < UINT64_MAX - PST_SLOTS_MAX ? pool->total + pool->slots
                                                                     : pool->total;
}

/* The next batch. If there are fewer batches than slots, some slots have nothing to bring home. */
static uint64_t next_of(const struct pst_pool *pool)
{
    const uint64_t used = pool->first_batch + pool->slots;
    return pool->returns && pool->next_batch >= pool->total && pool->next_batch < used ? used
                                                                                       : pool->next_batch;
}

/* Puts the slot that this batch must get on top of the stack. False: it is not free. */
static bool find_own_slot(struct pst_pool *pool, uint64_t batch)
{
    const uint32_t slots = pool->slots, n = pool->nfree; /* read once: others may change them */
    const uint32_t want = slots > 0 ? (uint32_t)(batch % slots) : 0;
    for (uint32_t i = 0; i < n && n <= PST_SLOTS_MAX; i++) {
        if (pool->free[i] != want)
            continue;
        pool->free[i] = pool->free[n - 1];
        pool->free[n - 1] = want;
        return true;
    }
    return false;
}

/* The index of the instance's oldest want among n (n: there is none), and how many wants of others are for
 * older batches. The caller holds the lock. */
static uint32_t own_want(const struct pst_pool *pool, uint32_t n, uint32_t instance, uint32_t *older)
{
    uint32_t own = n;
    for (uint32_t i = 0; i < n; i++)
        if (pool->wants[i].instance == instance &&
            (own == n || pool->wants[i].batch < pool->wants[own].batch))
            own = i;
    *older = 0;
    for (uint32_t i = 0; i < n && own < n; i++)
        *older += pool->wants[i].batch < pool->wants[own].batch;
    return own;
}

static void take_slot(struct pst_pool *pool, uint64_t batch, uint32_t micro, struct pst_credit *credit)
{
    uint32_t s = pool->free[--pool->nfree] % PST_SLOTS_MAX;
    struct pst_pool_slot *slot = &pool->slot[s];
    *credit = (struct pst_credit){.ref.slot = s,
                                  .batch = batch,
                                  .micro = micro,
                                  .dirty = atomic_load_explicit(&slot->dirty, memory_order_relaxed),
                                  .version = slot->version,
                                  .previous_batch = slot->batch};
    atomic_store_explicit(&slot->dirty, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->refs, 1, memory_order_relaxed);
    slot->batch = batch;
    slot->micro = micro;
    slot->used_bytes = UINT64_MAX;
}

bool pst_pool_grant(struct pst_pool *pool, uint32_t instance, struct pst_credit *credit)
{
    bool granted = false;
    (void)pthread_mutex_lock(&pool->lock);
    const uint32_t free = pool->nfree, wants = pool->nwants; /* read once: others may change them */
    if (free == 0 || free > PST_SLOTS_MAX || wants > PST_WANTS_MAX)
        goto out;
    uint32_t older = 0;
    const uint32_t own = own_want(pool, wants, instance, &older);
    if (own < wants && free > older) {
        take_slot(pool, pool->wants[own].batch, pool->wants[own].micro, credit);
        pool->wants[own] = pool->wants[wants - 1];
        pool->nwants = wants - 1;
        granted = true;
    }
    /* Wants are older than any batch that has not been granted. An instance finishes a batch before it begins
     * another. */
    if (own < wants || free <= wants)
        goto out;
    uint32_t instances = pool->instances; /* read once: another process may set it to 0 */
    const uint64_t next = next_of(pool);
    const bool mine = !pool->by_turn || (instances > 0 && next % instances == instance);
    if (mine && next < end_of(pool) && (!pool->returns || find_own_slot(pool, next))) {
        take_slot(pool, next < pool->total ? next : UINT64_MAX, 0, credit);
        pool->next_batch = next + 1;
        granted = true;
    }
out:
    (void)pthread_mutex_unlock(&pool->lock);
    return granted;
}

pst_rc pst_pool_want(struct pst_pool *pool, uint32_t instance, uint64_t batch, uint32_t micro)
{
    pst_rc rc = PST_OK;
    (void)pthread_mutex_lock(&pool->lock);
    if (pool->nwants >= PST_WANTS_MAX)
        rc = pst_fail(PST_E_LIMIT,
                      "more than %d micro-batches wait for a free slot of the same output: use fewer "
                      "instances of its stage",
                      PST_WANTS_MAX);
    else
        pool->wants[pool->nwants++] = (struct pst_want){batch, micro, instance};
    (void)pthread_mutex_unlock(&pool->lock);
    return rc;
}

bool pst_pool_exhausted(struct pst_pool *pool, uint32_t instance)
{
    (void)pthread_mutex_lock(&pool->lock);
    bool wanted = false;
    for (uint32_t i = 0; i < pool->nwants && i < PST_WANTS_MAX; i++)
        wanted = wanted || pool->wants[i].instance == instance;
    bool exhausted = !wanted && next_of(pool) >= end_of(pool);
    (void)pthread_mutex_unlock(&pool->lock);
    return exhausted;
}

bool pst_pool_release(struct pst_pool *pool, uint32_t s, bool dirty)
{
    struct pst_pool_slot *slot = &pool->slot[s];
    if (dirty)
        atomic_store_explicit(&slot->dirty, 1, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&slot->refs, 1, memory_order_acq_rel) != 1)
        return false;
    (void)pthread_mutex_lock(&pool->lock);
    if (pool->nfree < PST_SLOTS_MAX) {
        slot->version += atomic_load_explicit(&slot->dirty, memory_order_relaxed);
        pool->free[pool->nfree++] = s;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return true;
}

void pst_pool_share(struct pst_pool *pool, uint32_t slot, uint32_t more)
{
    (void)atomic_fetch_add_explicit(&pool->slot[slot].refs, more, memory_order_relaxed);
}
