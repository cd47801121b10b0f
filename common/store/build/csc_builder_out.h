/* csc_builder_out.h: writes a topology: indptr, indices and what edges have beside (relations, weights or
 * times), from edges by rising target. Owner: csc_builder.c. Threads: one. */
#ifndef PST_CSC_BUILDER_OUT_H
#define PST_CSC_BUILDER_OUT_H

#include "common/store/build/csc_builder.h"
#include "common/store/build/csc_builder_sum.h"

#define PST_CSC_BUILDER_OUT_ITEMS 16384 /* entries that are gathered before they go to a file */

struct pst_csc_builder_out {
    const struct pst_csc_builder_spec *spec;
    struct pst_array_writer indptr, indices, tags;
    enum pst_dtype ids;
    int64_t vertices, edges;
    int64_t target;    /* whose row is open; indptr has entries up to it */
    bool noted;        /* the arrays were begun before a kill, and go on */
    int64_t next_loop; /* vertex whose added loop is still to come */
    int64_t n, rows;
    int64_t start[PST_CSC_BUILDER_OUT_ITEMS];
    union {
        int32_t i32[PST_CSC_BUILDER_OUT_ITEMS];
        int64_t i64[PST_CSC_BUILDER_OUT_ITEMS];
    } id;
    int32_t tag[PST_CSC_BUILDER_OUT_ITEMS];
    struct pst_csc_builder_sum sum; /* of the edge that is not written yet, if duplicates are summed */
};

static inline bool pst_csc_builder_out_tagged(const struct pst_csc_builder_spec *spec)
{
    return spec->relations || spec->weights || spec->times;
}

static inline enum pst_array_id pst_csc_builder_out_tag_array(const struct pst_csc_builder_spec *spec)
{
    return spec->weights ? PST_ARRAY_EDGE_WEIGHTS : spec->times ? PST_ARRAY_EDGE_TIMES : PST_ARRAY_RELATIONS;
}

/* Duplicates are summed as they are written: to the sorter they are different keys. */
static inline bool pst_csc_builder_out_sums(const struct pst_csc_builder_spec *spec)
{
    return spec->weights && spec->dedupe;
}

/* Begins the arrays, or goes on with them where noted; edges: at most so many. Fails: PST_E_IO. */
PST_MUST_USE pst_rc pst_csc_builder_out_begin(struct pst_csc_builder_out *o, int64_t edges);

/* The next edge, by rising target, source and tag; and the plain case, a block at a time: ids of 32 bits, no
 * tags and no added loops. Fails: PST_E_IO, PST_E_FORMAT (a sum of weights). */
PST_MUST_USE pst_rc pst_csc_builder_out_put(struct pst_csc_builder_out *o, int64_t target, int64_t source,
                                            int32_t tag);
PST_MUST_USE pst_rc pst_csc_builder_out_put_plain(struct pst_csc_builder_out *o, const int64_t *target,
                                                  const int64_t *source, int64_t n);

/* What was put is in the files, but for an open sum. */
PST_MUST_USE pst_rc pst_csc_builder_out_flush(struct pst_csc_builder_out *o);
/* After the last edge; then the arrays are ended, shortened to the edges unless these were counted. */
PST_MUST_USE pst_rc pst_csc_builder_out_put_last(struct pst_csc_builder_out *o);
PST_MUST_USE pst_rc pst_csc_builder_out_end(struct pst_csc_builder_out *o, bool counted);

#endif
