/* hoods.h: draws the batches of a run without the run, and the part that each seed has in its batch (its
 * hood), with the sampler's own algorithm, seeds and keys. So the vertices of a batch are those that the
 * sampler would request, and the hoods of its seeds together are the batch (but for an algorithm that draws
 * for a batch as a whole: it draws a hood as a batch of one seed).
 *
 * Owner: the caller. pst_hoods_close accepts a zeroed struct, which must not be moved while it is open.
 * Threads: one. */
#ifndef PST_HOODS_H
#define PST_HOODS_H

#include "common/store/store.h"
#include "stages/lib/sampling/expand.h"
#include "stages/lib/sampling/seeds.h"

/* An order is made from the first so many epochs of a run. Further ones add little. What an order saves is
 * predicted for the epoch after them. */
#define PST_HOODS_EPOCHS 8

PST_BEGIN_DECLS

/* The settings of a sampler. */
struct pst_hoods_spec {
    const char *split; /* NULL: there are no seeds, and nothing can be drawn */
    const char *algorithm, *options;
    int hops;
    int64_t fanout[PST_HOPS_MAX];
    bool replace;
    int64_t batch;
    uint64_t seed;
};

struct pst_hoods {
    struct pst_dataset ds; /* features of types are not joined */
    struct pst_csc graph;
    struct pst_seeds seeds;
    struct pst_sampling_opened algorithm;
    struct pst_hoods_spec spec;
    bool open;
    bool large; /* the caller sets it if memory does not hold the graph: lists of a batch are then read
                   together while batches are drawn */
    /* what was drawn: vertices[0..n[hops]), each once; those before n[h] were there before hop h */
    int64_t *vertices;
    int64_t n[PST_HOPS_MAX + 1];
    /* scratch: */
    struct pst_expander expander;
    struct pst_minibatch_size bound;
    int64_t vertices_max, edges_max, *batch;
    int32_t *indptr, *indices;
    float *weights;
};

/* spec's texts must live as long as *h. PST_E_ARG: there is no such split or algorithm. PST_E_FORMAT,
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_hoods_open(struct pst_hoods *h, const char *dataset,
                                           const struct pst_hoods_spec *spec);
PST_API void pst_hoods_close(struct pst_hoods *h);

/* Call the first before many batches are drawn, and the second after them: large graphs are read in small
 * pieces meanwhile. */
void pst_hoods_begin(const struct pst_hoods *h);
void pst_hoods_end(const struct pst_hoods *h);

/* Draws a batch, counted over the run: epoch e begins with batch e * seeds.batches. */
PST_API PST_MUST_USE pst_rc pst_hoods_batch(struct pst_hoods *h, uint64_t batch);

/* The seeds of a batch: h->batch[0..*n). Then the hood of one of them. */
PST_API void pst_hoods_seeds(struct pst_hoods *h, uint64_t batch, int64_t *n);
PST_API PST_MUST_USE pst_rc pst_hoods_one(struct pst_hoods *h, uint64_t batch, int64_t seed);

PST_END_DECLS
#endif
