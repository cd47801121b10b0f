/* board.h: the small shared memory through which stages hand slots to one another: a page of counters
 * for each instance, a ring of frames for each pair that is linked, a pool of slots for each route.
 *
 * A frame is written to a ring and published by a release store; the reader's acquire load makes it, and
 * everything its writer did to the slots, visible. ZeroMQ only wakes who sleeps. Layout: struct
 * pst_board, then pages, rings and pools at the byte offsets that the supervisor chose and told each
 * stage. Everything in here may be overwritten by a broken stage: readers check indices before use. */
#ifndef PST_BOARD_H
#define PST_BOARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/ipc/page.h"
#include "common/stage.h"

#define PST_BOARD_MAGIC 0x3164726f62747370ull
#define PST_WANTS_MAX PST_SLOTS_MAX /* each slot in flight is followed by at most one micro-batch */

/* Single producer, single consumer. Cells hold a frame with up to `refs` references. */
struct pst_ring {
    uint32_t capacity; /* a power of two */
    uint32_t refs;
    _Alignas(PST_CACHE_LINE) _Atomic uint64_t head; /* next to read; the consumer's */
    _Alignas(PST_CACHE_LINE) _Atomic uint64_t tail; /* next to write; the producer's */
    _Alignas(PST_CACHE_LINE) unsigned char cells[];
};

/* A process's own note of a ring: what is in shared memory may be overwritten after it was checked. */
struct pst_lane {
    struct pst_ring *ring;
    uint32_t capacity, refs;
    uint64_t cell_bytes;
};

struct pst_pool_slot {
    _Atomic uint32_t refs; /* borrowers that have yet to release it */
    _Atomic uint32_t dirty;
    uint64_t version, batch, used_bytes;
    uint32_t micro;
};

struct pst_want {
    uint64_t batch;
    uint32_t micro, instance;
};

/* A route's slots. Credits are granted in batch order; a batch's further micro-batches come first. */
struct pst_pool {
    pthread_mutex_t lock; /* shared between processes; a few dozen instructions long */
    uint32_t slots, instances;
    uint32_t by_turn; /* 1: batch b belongs to instance b mod instances; 0: to whoever asks */
    uint32_t nfree, nwants;
    uint64_t next_batch, total; /* total: UINT64_MAX until told */
    struct pst_want wants[PST_WANTS_MAX];
    uint32_t free[PST_SLOTS_MAX];
    struct pst_pool_slot slot[PST_SLOTS_MAX];
};

struct pst_board {
    uint64_t magic, bytes;
    _Atomic uint32_t stop; /* 1: the run is ending; nobody waits any longer */
};

uint64_t pst_ring_bytes(uint32_t capacity, uint32_t refs);
void pst_ring_init(struct pst_ring *ring, uint32_t capacity, uint32_t refs);
/* False: what is there is no ring that fits in `room` bytes. */
bool pst_lane_open(struct pst_lane *lane, struct pst_ring *ring, uint64_t room);
/* False: full. The frame must not have more than lane->refs references. */
bool pst_lane_push(const struct pst_lane *lane, const struct pst_frame *frame);
/* 1: a frame was taken, 0: empty, -1: what is there cannot be a frame. */
int pst_lane_pop(const struct pst_lane *lane, struct pst_frame *frame);

PST_MUST_USE pst_rc pst_pool_init(struct pst_pool *pool, uint32_t slots, uint32_t instances, bool by_turn,
                                  uint64_t first_batch);
void pst_pool_total(struct pst_pool *pool, uint64_t total);
/* Grants the next credit to this instance, if it is its turn and a slot is free. What an instance is granted
 * comes in an order that batches and micro-batches alone decide, where batches go by turn: so in every pool
 * alike. */
bool pst_pool_grant(struct pst_pool *pool, uint32_t instance, struct pst_credit *credit);
PST_MUST_USE pst_rc pst_pool_want(struct pst_pool *pool, uint32_t instance, uint64_t batch, uint32_t micro);
/* No credit will ever come for this instance any more. */
bool pst_pool_exhausted(struct pst_pool *pool, uint32_t instance);
/* Takes a reference off; true when the slot went home. */
bool pst_pool_release(struct pst_pool *pool, uint32_t slot, bool dirty);
void pst_pool_share(struct pst_pool *pool, uint32_t slot, uint32_t more); /* fan-out: more borrowers */
bool pst_pool_busy(struct pst_pool *pool); /* slots are away from home, or wanted */

#endif
