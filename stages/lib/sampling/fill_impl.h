/* fill_impl.h: what fill.c and fill_device.c share: how a slot's header and requests are written. */
#ifndef PST_FILL_IMPL_H
#define PST_FILL_IMPL_H

#include "stages/lib/sampling/fill.h"

/* The header of a slot that holds nothing: what a reader sees until the last part. */
struct pst_minibatch pst_fill_begin(const struct pst_filler *f, const struct pst_fill_job *job);
/* Of a sample that did not fit: `asked` rows were announced before. */
void pst_fill_void(const struct pst_filler *f, const struct pst_fill_job *job, char *slot, uint64_t asked);
/* Writes labels, digest and header, when all else is there; mb has n. */
void pst_fill_finish(struct pst_filler *f, const struct pst_fill_job *job, char *slot,
                     struct pst_minibatch *mb, uint64_t asked);
/* Asks for the rows of vertices from + positions[0..n) (NULL: from + 0..n), behind `asked` earlier requests.
 */
void pst_fill_requests(const struct pst_filler *f, char *slot, int64_t from, const int32_t *positions,
                       int64_t n, uint64_t asked);

#endif
