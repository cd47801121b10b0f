/* permute_impl.h: what the files that make a reordered dataset share. Owner: none. Threads: one. */
#ifndef PST_PERMUTE_IMPL_H
#define PST_PERMUTE_IMPL_H

#include "common/store/reorder/permute.h"
#include "common/store/reorder/records.h"

struct pst_permute_job {
    const struct pst_dataset *ds;
    struct pst_build *b;
    const struct pst_permute_spec *spec;
    struct pst_progress *progress;
};

static inline struct pst_records_spec pst_permute_records(const struct pst_permute_job *j, const char *what)
{
    return (struct pst_records_spec){.build = j->b,
                                     .what = what,
                                     .n = j->ds->vertices,
                                     .old_of = j->spec->old_of,
                                     .new_of = j->spec->new_of,
                                     .memory_bytes = j->spec->memory_bytes,
                                     .progress = j->progress};
}

static inline int64_t pst_permute_id(const struct pst_array *a, int64_t i)
{
    return a->dtype == PST_I32 ? ((const int32_t *)a->map)[i] : ((const int64_t *)a->map)[i];
}

/* permute_edges.c: indptr, indices, and what each entry of indices has: relation, weight, time. */
PST_MUST_USE pst_rc pst_permute_edges(const struct pst_permute_job *j);
/* permute_rows.c: features of all types, and arrays with a row for each vertex. */
PST_MUST_USE pst_rc pst_permute_features(const struct pst_permute_job *j);
PST_MUST_USE pst_rc pst_permute_array(const struct pst_permute_job *j, enum pst_array_id id);
PST_MUST_USE pst_rc pst_permute_names(const struct pst_permute_job *j);

#endif
