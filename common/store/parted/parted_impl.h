/* parted_impl.h: what the files that cut datasets share. Owner: none. Threads: one. */
#ifndef PST_PARTED_IMPL_H
#define PST_PARTED_IMPL_H

#include "common/store/parted/parted.h"

/* The first vertex of part k, if parts have equally many neighbouring vertices. */
static inline int64_t pst_parted_begin(int64_t vertices, int parts, int k)
{
    return (int64_t)((__int128)vertices * k / parts);
}

/* whole.c. PST_E_STATE: a dataset is at path that pst_parted_renumber did not make, or that is ds itself. */
PST_MUST_USE pst_rc pst_parted_check_whole(const struct pst_dataset *ds, const char *path);
/* Makes the dataset at path from ds: the vertices of part 0 come first, then those of part 1, and so
 * on. first: where each part begins, and the number of vertices. */
PST_MUST_USE pst_rc pst_parted_renumber(const struct pst_dataset *ds, const char *path,
                                        const struct pst_parted_spec *spec,
                                        int64_t first[PST_DATASET_PARTS_MAX + 1],
                                        struct pst_progress *progress);

#endif
