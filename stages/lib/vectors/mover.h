/* mover.h: moves partitions between memory and an array of the run, through the disk stage, in pieces. A
 * piece is a row of the array, and a slot carries one. Pieces are copied to and from the slots, so that few
 * slots are enough, and so that a partition's memory is free as soon as its last piece is on its way.
 *
 * Pieces of one move after the other are sent in order, and come home in that order (PST_PORT_RETURNS). So a
 * checksum can be computed on the way.
 *
 * Owner: the store. Threads: one. */
#ifndef PST_VECTORS_MOVER_H
#define PST_VECTORS_MOVER_H

#include <xxhash.h>

#include "common/slots/request.h"
#include "common/stage.h"
#include "stages/lib/vectors/vectors.h"

#define PST_VECTORS_MOVES_MAX 512 /* that wait: a buffer of partitions, out and in */

struct pst_vectors_move {
    enum pst_request_op op;
    int partition;
    uint64_t row, rows; /* of the array */
    int block;          /* of the vectors */
    /* the rest is the mover's */
    uint64_t sent, home;
    XXH3_state_t *hash;
};

struct pst_vectors_mover {
    struct pst_stage *stage;
    int port;
    uint16_t array;
    uint64_t piece;
    struct pst_vectors *vectors;
    struct pst_vectors_move move[PST_VECTORS_MOVES_MAX]; /* a ring */
    uint32_t first, n, sending;                          /* sending: moves of the ring that were sent whole */
    struct pst_credit *credit;                           /* free slots, in the order of their batches */
    uint32_t slots, credits;
    uint64_t written, read; /* bytes */
    double since, busy_s;   /* when there was something to move */
    /* Called when all of a move's pieces are home. sum: of the bytes moved. */
    pst_rc (*done)(void *arg, const struct pst_vectors_move *move, uint64_t sum);
    void *arg;
};

/* The caller has set stage, port, array, piece, vectors, done and arg. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_vectors_mover_open(struct pst_vectors_mover *m);
PST_API void pst_vectors_mover_close(struct pst_vectors_mover *m);

/* Begins a move after all earlier ones. The block belongs to the mover until `done`; but another move may
 * read into the block of an earlier write. */
PST_API PST_MUST_USE pst_rc pst_vectors_mover_add(struct pst_vectors_mover *m, enum pst_request_op op,
                                                  int partition, uint64_t row, uint64_t rows, int block);

/* A slot is free, or came home for the last time (last). */
PST_API PST_MUST_USE pst_rc pst_vectors_mover_credit(struct pst_vectors_mover *m,
                                                     const struct pst_credit *credit, bool last);

static inline bool pst_vectors_mover_idle(const struct pst_vectors_mover *m)
{
    return m->n == 0;
}

#endif
