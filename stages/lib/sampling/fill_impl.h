/* fill_impl.h: functions that fill.c and fill_device.c share. They write a slot's header, labels and
 * requests.
 *
 * Owner: the caller owns slots and fillers. Threads: one for each filler. */
#ifndef PST_FILL_IMPL_H
#define PST_FILL_IMPL_H

#include "stages/lib/sampling/fill.h"

/* The header of an empty minibatch. */
struct pst_minibatch pst_fill_begin(const struct pst_filler *f, const struct pst_fill_job *job);
/* Writes labels, digest and header. Everything else is in the slot, and mb->n is set. */
void pst_fill_finish(struct pst_filler *f, const struct pst_fill_job *job, char *slot,
                     struct pst_minibatch *mb, uint64_t requests);
/* Writes requests for the rows of vertices from + positions[0..n), behind `before` earlier requests.
 * positions NULL: from + 0..n. */
void pst_fill_requests(const struct pst_filler *f, char *slot, int64_t from, const int32_t *positions,
                       int64_t n, uint64_t before);

#endif
