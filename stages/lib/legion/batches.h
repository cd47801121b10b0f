/* batches.h: what batches read: which lists of neighbours, and how many lines of memory each takes, and which
 * feature rows. Sampling one epoch ahead gives hotness (Legion, section 4.2.2, S1); sampling another one
 * gives what a run reads, exactly, because samples depend on (seed, epoch, batch, hop) alone.
 *
 * Owner: the caller, of all structs; it lends graph, algorithm and shares. Threads: one. */
#ifndef PST_LEGION_BATCHES_H
#define PST_LEGION_BATCHES_H

#include "stages/lib/legion/shares.h"
#include "stages/lib/sampling/expand.h"

PST_BEGIN_DECLS

struct pst_legion_source {
    const struct pst_csc *graph;
    const struct pst_sampling_opened *algorithm; /* one that picks positions (algorithms.h) */
    int hops;
    const int64_t *fanout;
    struct pst_legion_shares *shares;
    uint64_t seed;
    uint32_t line_bytes; /* of a PCIe transaction: a power of two from 16 (CLS in the paper, there 64) */
};

/* One batch. Arrays have an entry for each of its n vertices, in the order in which they came. */
struct pst_legion_reader {
    const struct pst_legion_source *source;
    int64_t n;
    int64_t *vertices;
    uint32_t *edges; /* drawn from the vertex's list, over all hops */
    uint32_t *lines; /* lines that these reads take: those of its two entries of indptr, and the distinct ones
                        of the drawn entries of indices, each time that the list is read */
    /* scratch: */
    struct pst_expander expander;
    int64_t *seeds, *degrees, *positions, *line;
    int32_t *indptr, *indices;
};

/* PST_E_UNSUPPORTED: the algorithm does not pick positions. PST_E_LIMIT: batches can be too large.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_legion_reader_init(struct pst_legion_reader *r,
                                                   const struct pst_legion_source *source);
PST_API void pst_legion_reader_release(struct pst_legion_reader *r);

/* Samples one batch. */
PST_API PST_MUST_USE pst_rc pst_legion_read_batch(struct pst_legion_reader *r, int device, int64_t epoch,
                                                  int64_t step);

/* Sums over batches. Each array is devices x vertices; with 8 devices it takes 32 bytes a vertex. */
struct pst_legion_counts {
    int devices;
    int64_t vertices;
    uint32_t *edges; /* H_T: edges drawn from v's list */
    uint32_t *rows;  /* H_F: batches with v */
    uint32_t *lines; /* of v's list and its entries of indptr */
};

/* Counts `epochs` epochs of all devices, beginning with `first`. PST_E_NOMEM, and errors as above. */
PST_API PST_MUST_USE pst_rc pst_legion_counts_init(struct pst_legion_counts *c,
                                                   const struct pst_legion_source *source, int64_t first,
                                                   int64_t epochs);
PST_API void pst_legion_counts_release(struct pst_legion_counts *c);

PST_END_DECLS
#endif
