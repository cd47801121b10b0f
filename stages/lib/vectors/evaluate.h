/* evaluate.h: exact filtered ranks of a dataset's validation or test edges among all vertices
 * (stages/lib/embed/ ranks.h). Both ends of each edge are ranked. Known edges, of all parts, do not count
 * against the true end. Bordes et al., NIPS 2013. Or ranks among a sample of the vertices, where known edges
 * do count (Marius, section 5.1).
 *
 * Owner: the store. Threads: one calls these functions; the workspace has its own threads. */
#ifndef PST_VECTORS_EVALUATE_H
#define PST_VECTORS_EVALUATE_H

#include "common/stage.h"
#include "common/store/store.h"
#include "stages/lib/embed/embed_gpu.h"
#include "stages/lib/vectors/vectors.h"

struct pst_evaluation_known { /* `end` completes an edge of this anchor and relation */
    int64_t key;
    uint32_t end;
};

struct pst_evaluation {
    const struct pst_dataset *ds;
    const struct pst_embed_plan *plan; /* model, d, inverse */
    enum pst_embed_tie tie;
    int64_t among; /* vertices that are sampled for each pass and side; 0: all vertices, filtered */
    double alpha;  /* share of them that are ends of training edges; the others are uniform */
    uint64_t seed; /* of the sample, which is the same after every epoch */
    struct pst_evaluation_known *known[2]; /* of each side, sorted */
    size_t n_known, largest;               /* largest: number of ends of one anchor and relation */
    struct pst_vectors *vectors;
    /* With several partitions: brings one to memory. Others may leave. */
    pst_rc (*load)(void *arg, int partition);
    void *load_arg;
    struct pst_embed_workspace *workspace;
    struct pst_embed_device *gpu;   /* that has the vectors; NULL: the host has them */
    pst_real *ends[2], *queries[2]; /* of the edges of one pass, and the side that is looked for */
    struct pst_embed_count *counts[2];
    int64_t *sample[2], n_sample[2]; /* of one pass and side: distinct vertices, sorted */
    pst_real *sample_rows[2];
    int64_t *own, *start; /* of one group of queries, like the next */
    uint32_t *rows;
};

/* Sorts the known edges, and warns of each part, validation and test, that has no edges. e->ds, e->plan,
 * e->tie, e->vectors and e->load are set. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_evaluation_open(struct pst_evaluation *e, struct pst_stage *stage,
                                                int threads);
PST_API void pst_evaluation_close(struct pst_evaluation *e);

/* Ranks the edges of a part. relations: their embeddings. sum->n is 0 if the part has no edges. Out of core
 * it reads every partition twice for each 64 MiB of ends and queries, or once with a sample. */
PST_API PST_MUST_USE pst_rc pst_evaluation_run(struct pst_evaluation *e, int part, const pst_real *relations,
                                               struct pst_embed_ranks *sum);

/* The figures as members of a JSON object: "val_mrr", "val_hits_1", ... Nothing if sum->n is 0. */
PST_API void pst_evaluation_print(const struct pst_embed_ranks *sum, int part, char *out, size_t size);

#endif
