/* draws.h: neighbours that other ranks draw: a rank has only the lists of neighbours of its part of a cut
 * dataset. It sends the vertices of a hop to the ranks that have their lists (MPI_Alltoallv). These draw as
 * the algorithm `uniform` does, and send the neighbours back (MPI_Alltoallv). A draw depends only on the
 * vertex, the hop, the batch and the seed, so it does not matter who draws.
 *
 * Owner: the caller, who lends the dataset and the collective. Threads: one. */
#ifndef PST_REMOTE_SAMPLER_DRAWS_H
#define PST_REMOTE_SAMPLER_DRAWS_H

#include "common/util/memory.h"
#include "common/collective/collective.h"
#include "common/store/store.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

struct draws_counts {
    uint64_t rounds, own_vertices;
    /* by rank: vertices that were sent there, and that came from there; neighbours that were sent there */
    uint64_t asked[PST_DATASET_PARTS_MAX], served[PST_DATASET_PARTS_MAX], drawn[PST_DATASET_PARTS_MAX];
    double wait_s, draw_s, exchange_s; /* until all ranks have told what they need; drawing; neighbours */
};

struct draws {
    const struct pst_dataset *ds;
    struct pst_collective *collective; /* NULL: one rank */
    int rank, ranks;
    bool all; /* after a round: no rank needs more neighbours for the batch */
    struct pst_memory_buffer words,
        asked; /* what this rank asks of others, and they of it: a head, then vertices */
    struct pst_memory_buffer reply, got; /* neighbours for others, and from them */
    struct pst_memory_buffer own;        /* vertices of the own part, and their neighbours */
    struct pst_memory_buffer degrees, offsets;
    struct draws_counts counts;
};

/* Draws a hop, as pst_sampling_algorithm.draw does. All ranks must call this function or draws_join at the
 * same time. PST_E_INTERRUPTED: another rank's replica has left. PST_E_LIMIT, PST_E_NOMEM, PST_E_FORMAT,
 * PST_E_PEER. */
PST_MUST_USE pst_rc draws_hop(struct draws *d, const struct pst_sampling_hop *hop);
/* Draws for others until no rank needs more neighbours for the batch, which is complete on this rank. */
PST_MUST_USE pst_rc draws_join(struct draws *d);
void draws_release(struct draws *d);

#endif
