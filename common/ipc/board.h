/* board.h: the small shared memory through which stages hand slots to one another: a page of counters for
 * each instance (page.h), a ring of frames for each pair of linked instances, a pool of slots for each route.
 *
 * A stage writes a frame to a ring and publishes it with a release store. The reader's acquire load makes the
 * frame visible, and everything that its writer did to the slots. ZeroMQ only wakes sleeping stages.
 *
 * Layout: struct pst_board, then pages, pools and rings at byte offsets that the supervisor chooses and tells
 * each stage. A broken stage may overwrite anything here, so readers check indices before they use them.
 * Owner: the supervisor, which makes it before the stages map it. Threads: a ring has one writer and one
 * reader; a pool locks itself. */
#ifndef PST_BOARD_H
#define PST_BOARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/ipc/bus.h"
#include "common/ipc/page.h"
#include "common/stage.h"

#define PST_BOARD_MAGIC 0x3164726f62747370ull
#define PST_WANTS_MAX PST_SLOTS_MAX /* each slot in flight is followed by at most one micro-batch */

/* One producer, one consumer. Each cell holds a frame with at most `refs` references. */
struct pst_ring {
    uint32_t capacity; /* a power of two */
    uint32_t refs;
    _Alignas(PST_CACHE_LINE) _Atomic uint64_t head; /* next to read; the consumer writes it */
    _Alignas(PST_CACHE_LINE) _Atomic uint64_t tail; /* next to write; the producer writes it */
    _Alignas(PST_CACHE_LINE) unsigned char cells[];
};

/* What a process knows of a ring. It keeps a copy, because shared memory may change after it was checked. */
struct pst_lane {
    struct pst_ring *ring;
    uint32_t capacity, refs;
    uint64_t cell_bytes;
};

struct pst_pool_slot {
    _Atomic uint32_t refs; /* borrowers that have not released it yet */
    _Atomic uint32_t dirty;
    uint64_t version, batch, used_bytes;
    uint32_t micro;
};

struct pst_want {
    uint64_t batch;
    uint32_t micro, instance;
};

/* A route's slots. Credits are granted in batch order. Further micro-batches of a batch come before new
 * batches.
 *
 * If slots return to their owner, batch b gets the slot of batch b - slots, when that has come home. So what
 * the owner sees does not depend on timing. After the last batch, the slots that are still out come home in
 * the same order. A batch then has one micro-batch. */
struct pst_pool {
    pthread_mutex_t lock; /* shared between processes; a few dozen instructions long */
    uint32_t slots, instances;
    uint32_t returns; /* 1: slots return to their owner (PST_PORT_RETURNS) */
    uint32_t by_turn; /* 1: batch b belongs to instance b mod instances; 0: to the first that asks */
    uint32_t nfree, nwants;
    uint64_t first_batch, next_batch, total; /* total: UINT64_MAX until it is known */
    struct pst_want wants[PST_WANTS_MAX];
    uint32_t free[PST_SLOTS_MAX];
    struct pst_pool_slot slot[PST_SLOTS_MAX];
};

struct pst_board {
    uint64_t magic, bytes;
    uint64_t epochs;               /* of the run */
    _Atomic uint64_t epochs_ended; /* whose results a stage has reported, in this run or before its resume */
    _Atomic double loss;           /* of the last of them; NaN: none was reported */
    _Atomic uint32_t stop;         /* 1: the run is ending, and no stage waits any longer */
    _Atomic uint32_t finish;       /* not 0: stages finish early, for the reason of this number (run.h) */
    struct pst_bus bus;            /* of a pipeline that has one */
};

PST_API_TEST uint64_t pst_ring_bytes(uint32_t capacity, uint32_t refs);
PST_API_TEST void pst_ring_init(struct pst_ring *ring, uint32_t capacity, uint32_t refs);
/* False: there is no valid ring of at most `room` bytes at this address. */
PST_API_TEST bool pst_lane_open(struct pst_lane *lane, struct pst_ring *ring, uint64_t room);
/* False: the ring is full. The frame must not have more than lane->refs references. */
PST_API_TEST bool pst_lane_push(const struct pst_lane *lane, const struct pst_frame *frame);
/* 1: a frame was taken; 0: the ring is empty; -1: the ring holds something that is not a frame. */
PST_API_TEST int pst_lane_pop(const struct pst_lane *lane, struct pst_frame *frame);
/* Frames that were pushed and not yet taken. */
PST_API_TEST uint32_t pst_lane_waiting(const struct pst_lane *lane);

PST_API_TEST PST_MUST_USE pst_rc pst_pool_init(struct pst_pool *pool, uint32_t slots, uint32_t instances,
                                               bool by_turn, bool returns, uint64_t first_batch);
PST_API_TEST void pst_pool_total(struct pst_pool *pool, uint64_t total);
/* Grants the next credit to this instance, if it is its turn and a slot is free. The batch UINT64_MAX says
 * that the slot only comes home; it is never granted again. If batches go by turn, the order in which an
 * instance gets its credits depends on batches and micro-batches only. So it is the same in every pool. */
PST_API_TEST bool pst_pool_grant(struct pst_pool *pool, uint32_t instance, struct pst_credit *credit);
PST_API_TEST PST_MUST_USE pst_rc pst_pool_want(struct pst_pool *pool, uint32_t instance, uint64_t batch,
                                               uint32_t micro);
PST_API_TEST uint32_t pst_pool_free(struct pst_pool *pool); /* slots that are free */
/* UINT64_MAX: not known yet. */
PST_API_TEST uint64_t pst_pool_total_of(struct pst_pool *pool);
/* This instance will get no further credit. */
PST_API_TEST bool pst_pool_exhausted(struct pst_pool *pool, uint32_t instance);
/* Takes one reference away. True: it was the last one, and the slot is free again. */
PST_API_TEST bool pst_pool_release(struct pst_pool *pool, uint32_t slot, bool dirty);
/* Adds borrowers of a slot: it goes to several consumers. */
PST_API_TEST void pst_pool_share(struct pst_pool *pool, uint32_t slot, uint32_t more);

#endif
