/* hotness_edges.h: the entries of all lists in ascending order, from memory or from the dataset's file. From
 * the file, a window of bounded size moves over them, and the next window is read meanwhile (read_ahead.h).
 *
 * Owner: pst_hotness_edges_close releases what ..._open took, and accepts a zeroed struct. Threads: one. */
#ifndef PST_HOTNESS_EDGES_H
#define PST_HOTNESS_EDGES_H

#include "common/base.h"
#include "kernels/kernels.h"

PST_BEGIN_DECLS

struct pst_array;
struct pst_read_ahead;

struct pst_hotness_edges {
    const struct pst_array *file; /* NULL: all entries are in memory */
    const void *entries;          /* first to end - 1 */
    int entry_bytes;              /* 4 or 8 */
    int64_t first, end, all;
    struct pst_read_ahead *reader; /* of the file */
    uint64_t window_bytes;
    int64_t asked; /* the first entry of the window that is being read; -1: none is */
};

/* file: the dataset's indices, or NULL to use graph->indices. window_bytes: of a read, at least a page; two
 * windows are in memory. PST_E_IO, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_hotness_edges_open(struct pst_hotness_edges *e, const struct pst_csc *graph,
                                                   const struct pst_array *file, uint64_t window_bytes);
PST_API void pst_hotness_edges_close(struct pst_hotness_edges *e);

/* Moves the window, so that it has entry `at`, 0 <= at < all. PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_hotness_edges_move(struct pst_hotness_edges *e, int64_t at);

/* Entry `at`, which is in the window. */
static inline int64_t pst_hotness_entry(const struct pst_hotness_edges *e, int64_t at, int entry_bytes)
{
    return entry_bytes == 4 ? ((const int32_t *)e->entries)[at - e->first]
                            : ((const int64_t *)e->entries)[at - e->first];
}

/* *value = entry `at`. */
static inline pst_rc pst_hotness_edges_get(struct pst_hotness_edges *e, int64_t at, int64_t *value)
{
    if (at < e->first || at >= e->end) {
        const pst_rc rc = pst_hotness_edges_move(e, at);
        if (rc != PST_OK)
            return rc;
    }
    *value = pst_hotness_entry(e, at, e->entry_bytes);
    return PST_OK;
}

PST_END_DECLS
#endif
