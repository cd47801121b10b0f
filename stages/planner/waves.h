/* waves.h: pre-samples from drives (Hyperion, footnote 8). A wave is as many batches as fit the memory. For
 * each hop, the wave gathers the wanted entries of all its batches, sorts them by their place in the file,
 * and reads each sector once: first those of indptr for the new vertices, then those of indices for the drawn
 * neighbours. Each batch equals the one that is drawn from memory.
 *
 * Owner: the planner's struct pst_presample, which lends expander, seeds and key. Threads: one. */
#ifndef PST_PRESAMPLE_WAVES_H
#define PST_PRESAMPLE_WAVES_H

#include "stages/planner/drive_reads.h"
#include "stages/planner/presample.h"

struct pst_presample_waves;

/* memory: bytes for rounds of reads and for the batches of a wave. A wave has at least one batch, even if
 * that one needs more. gap: see pst_presample_reads_open. PST_E_ARG: the algorithm needs the graph in memory.
 * PST_E_NOMEM, PST_E_IO. */
PST_MUST_USE pst_rc pst_presample_waves_open(struct pst_presample_waves **out,
                                             const struct pst_sampling_input *in, uint64_t memory,
                                             uint64_t gap);
void pst_presample_waves_close(struct pst_presample_waves *w); /* NULL is allowed */

/* Draws `count` of the first `of` batches, evenly spread: number i x of / count for each i. Calls `each` for
 * each batch, in order. Errors name the wave's batches, or are those of `each`. */
PST_MUST_USE pst_rc pst_presample_waves_run(struct pst_presample *ps, uint64_t count, uint64_t of,
                                            pst_presample_each_fn each, void *to);

/* What was read so far. */
struct pst_presample_waves_counts {
    int64_t waves, rounds, sectors; /* sectors: the wanted ones of all rounds */
    uint64_t bytes;                 /* that the engine read */
};
struct pst_presample_waves_counts pst_presample_waves_counts(const struct pst_presample_waves *w);

#endif
