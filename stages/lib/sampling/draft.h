/* draft.h: a micro-batch whose neighbour lists are read from drives while it is made. The positions of the
 * drawn neighbours depend on key, vertex, slot and degree alone, so a draft knows which entries of the
 * topology it wants before it has them. It reads only the sectors with these entries: first those of indptr
 * for the hop's new vertices, then those of indices. Lists that are cached in memory need no read. The sample
 * equals the one that is drawn from memory. With the caches of a clique (filler->resident), the host's graph
 * is read at once, and a draft never waits.
 *
 * Owner: the caller. A draft borrows the filler, the algorithm and the slots. Threads: one. */
#ifndef PST_SAMPLING_DRAFT_H
#define PST_SAMPLING_DRAFT_H

#include "stages/lib/sampling/fill.h"
#include "stages/lib/topology/lists.h"
#include "stages/lib/topology/reads.h"

PST_BEGIN_DECLS

/* What drafts count together. */
struct pst_sampling_draft_counts {
    int64_t rounds, sectors;      /* of reads */
    int64_t lists;                /* that were read in a hop, if it draws neighbours */
    int64_t gpu_lists, cpu_lists; /* those of them in each tier */
    int64_t cpu_lines;            /* PCIe transactions to read those of the CPU tier */
};

struct pst_sampling_draft {
    struct pst_fill_work work;
    struct pst_fill_job job;
    struct pst_fill_result result;
    struct pst_expander expander;
    struct pst_topology_reads reads;
    int32_t *hit_pos, *hit_row; /* of the work */
    struct pst_topology_array indptr, indices;
    const struct pst_topology_lists *cached; /* of which n may be 0 */
    int32_t *list; /* of each destination: the number of its cached list; -1: it is on drives */
    int32_t *found_at, *found, *missed;       /* what the index of cached lists says */
    int64_t *begin, *degree;                  /* of each destination's list, in entries */
    int64_t *at;                              /* wanted entries of the array that is being read */
    int32_t *edge;                            /* of each wanted entry of indices: its edge in the hop */
    int64_t *values;                          /* what the array has at the wanted entries */
    int64_t wanted, done;                     /* entries: all, and those that came or are asked for */
    int64_t known;                            /* vertices whose lists are known */
    struct pst_sampling_draft_counts *counts; /* the caller's */
    int hop;
    bool edges; /* reads indices; false: indptr */
};

/* slot_bytes: of the slots that carry requests for lists; 0: filler->resident is set, and there are none.
 * cached: stays the caller's. counts: are increased
 * by what this draft does. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_sampling_draft_init(struct pst_sampling_draft *d, struct pst_filler *filler,
                                            const struct pst_topology_array *indptr,
                                            const struct pst_topology_array *indices,
                                            const struct pst_topology_lists *cached, uint64_t slot_bytes,
                                            struct pst_sampling_draft_counts *counts);
void pst_sampling_draft_release(struct pst_sampling_draft *d);

/* Begins to fill `slot` for the job. The draft keeps a copy of the job; its seeds must stay. *done: the slot
 * was filled, or the sample does not fit, without any read; d->result says which. Otherwise the draft wants a
 * slot for lists. Errors are those of pst_sampling_fill. */
PST_MUST_USE pst_rc pst_sampling_draft_begin(struct pst_sampling_draft *d, const struct pst_fill_job *job,
                                             void *slot, pst_fill_announce_fn announce, void *to, bool *done);
/* Writes a round of requests into a slot for lists, and returns their number. They begin at byte 0. */
uint64_t pst_sampling_draft_ask(struct pst_sampling_draft *d, void *lists);
/* Takes what the round brought, and goes on. *done as above; otherwise the draft wants another slot for
 * lists. */
PST_MUST_USE pst_rc pst_sampling_draft_take(struct pst_sampling_draft *d, const void *lists, bool *done);

PST_END_DECLS
#endif
