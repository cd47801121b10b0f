/* derive.h: makes a dataset from another: other splits, another dtype or stride, random features, a part.
 * Owner: the caller. Threads: one. */
#ifndef PST_DERIVE_H
#define PST_DERIVE_H

#include "common/store/build/build.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

/* Takes an array of an open dataset as it is, with its checksum: linked where the file system can, else
 * copied. */
PST_MUST_USE pst_rc pst_derive_adopt(struct pst_build *b, const struct pst_manifest *from, const char *dir,
                                     enum pst_array_id id);

/* Random disjoint splits of the vertices that have a label (of all, where there are no labels); sizes are
 * fractions of those, sum at most 1; a function of the seed alone. Everything else is taken from ds. */
PST_API PST_MUST_USE pst_rc pst_derive_split(const struct pst_dataset *ds, struct pst_build *b,
                                             const double fraction[3], uint64_t seed);

struct pst_derive_convert_spec {
    bool change_dtype; /* to dtype: float32, float16 or bfloat16, to the nearest, ties to even */
    enum pst_dtype dtype;
    uint64_t stride_bytes; /* 0: the usual */
};
/* The features, mapped, of all types of vertices, with another dtype or stride. A value that becomes infinite
 * is PST_E_FORMAT with its row and column. */
PST_API PST_MUST_USE pst_rc pst_derive_convert(const struct pst_dataset *ds, struct pst_build *b,
                                               const struct pst_derive_convert_spec *spec,
                                               struct pst_progress *progress);

struct pst_derive_features_spec {
    const struct pst_array *rows; /* mapped: (vertices, dim); NULL: random features */
    int64_t dim;                  /* of random features */
    enum pst_dtype dtype;         /* float32, float16, bfloat16: the same values, rounded */
    uint64_t seed, stride_bytes;  /* 0: the usual stride */
};
/* Features in place of what ds has, if any. Random ones are a function of the seed alone, uniform in [-1, 1);
 * what gen rmat gives with that seed. Rows of an array must fit dtype. Everything else is taken from ds.
 * PST_E_ARG: the array has another shape or dtype; PST_E_FORMAT: a value does not fit. */
PST_API PST_MUST_USE pst_rc pst_derive_features(const struct pst_dataset *ds, struct pst_build *b,
                                                const struct pst_derive_features_spec *spec,
                                                struct pst_progress *progress);

/* One part of a cut of a whole dataset whose vertices have features and are of one type: the feature rows of
 * the part's vertices, their lists of neighbours if the cut has lists, and everything else of ds. PST_E_IO,
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_derive_part(const struct pst_dataset *ds, struct pst_build *b,
                                            const struct pst_dataset_cut *cut, struct pst_progress *progress);

PST_END_DECLS
#endif
