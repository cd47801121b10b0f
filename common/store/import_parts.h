/* import_parts.h: the state of one import, shared by its files. Owner: import.c. Threads: one. */
#ifndef PST_STORE_IMPORT_PARTS_H
#define PST_STORE_IMPORT_PARTS_H

#include "csc.h"
#include "import.h"

#define PST_TOLD_MAX 5 /* bad values of one array that are told one by one; the rest are counted */

struct pst_importing {
    const struct pst_import_spec *spec;
    struct pst_array src[PST_SOURCES]; /* mapped where path is not empty */
    struct pst_problems problems;
    struct pst_problems *warnings;
    int64_t vertices, edges, classes, feature_dim;
    bool edges_2xe;
    int32_t *labels; /* vertices, or NULL */
};

static inline bool pst_has(const struct pst_importing *im, enum pst_source_id id)
{
    return im->src[id].map != NULL;
}

/* Entry i of an array of integers. */
static inline int64_t pst_int_at(const struct pst_array *a, int64_t i)
{
    switch (a->dtype) {
    case PST_I32: return ((const int32_t *)a->map)[i];
    case PST_I64: return ((const int64_t *)a->map)[i];
    default: assert(a->dtype == PST_U8); return ((const uint8_t *)a->map)[i];
    }
}

PST_API const char *pst_source_option(enum pst_source_id id); /* "--edges" */

/* import_check.c: opens, agrees on the counts, and looks at every id and label; problems go to the list. */
void pst_import_open(struct pst_importing *im);
void pst_import_counts(struct pst_importing *im);
void pst_import_check_splits(struct pst_importing *im);
void pst_import_check_csr(struct pst_importing *im);
PST_MUST_USE pst_rc pst_import_read_labels(struct pst_importing *im);

/* Tells the first few bad values of one array, and then how many more. */
void pst_import_tell(struct pst_importing *im, int64_t *bad, const struct pst_array *a, int64_t at,
                     int64_t value, int64_t limit, const char *what);
void pst_import_tell_rest(struct pst_importing *im, int64_t bad, const struct pst_array *a);

/* import_edges.c: checks the edges of an array and gives them to the topology, in one reading. */
PST_MUST_USE pst_rc pst_import_feed(struct pst_importing *im, struct pst_csc *csc,
                                    struct pst_progress *progress);

/* import_features.c: streams rows, checks every value, writes. */
PST_MUST_USE pst_rc pst_import_features(const struct pst_importing *im, struct pst_build *b,
                                        struct pst_progress *progress);

#endif
