/* permute.h: makes a dataset whose vertices have other numbers, from another one. Everything that belongs to
 * a vertex or an edge comes with it; an array that cannot be carried is refused. The new dataset has the
 * array old_ids, by which each vertex can be found again.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_PERMUTE_H
#define PST_PERMUTE_H

#include <jansson.h>

#include "common/store/build/build.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

struct pst_permute_spec {
    const int64_t *old_of; /* vertices: the number, in the source, of the vertex that gets this number */
    const int64_t *new_of; /* the inverse */
    bool pack;             /* rows get the stride of pst_stride_packed; else they keep theirs */
    uint64_t memory_bytes; /* besides these two arrays */
};

/* Fills new_of. PST_E_FORMAT: old_of is no permutation of 0 to vertices - 1, or a vertex comes to another
 * type's place. */
PST_API PST_MUST_USE pst_rc pst_permute_invert(const struct pst_dataset *ds, const int64_t *old_of,
                                               int64_t *new_of);

/* The stride that the features of a type (-1: of all vertices) get. */
PST_API uint64_t pst_permute_stride(const struct pst_dataset *ds, int type, bool pack);

/* Writes all arrays of ds to b, and notes everything in its manifest but `provenance`. Splits, triples and
 * edges to predict keep their order, so that equal seeds draw equal batches of them. PST_E_UNSUPPORTED: an
 * array cannot be carried. PST_E_ARG: the memory is too small. PST_E_FORMAT: ds is damaged. */
PST_API PST_MUST_USE pst_rc pst_permute(const struct pst_dataset *ds, struct pst_build *b,
                                        const struct pst_permute_spec *spec, struct pst_progress *progress);

/* Sets `provenance` of b: what ds says of itself, and with "reordered" how b was made from it: `how` (taken),
 * the directory of ds and its digest. PST_E_IO, PST_E_FORMAT: the manifest of ds cannot be read. */
PST_API PST_MUST_USE pst_rc pst_permute_note(const struct pst_dataset *ds, struct pst_build *b, json_t *how);

PST_END_DECLS
#endif
