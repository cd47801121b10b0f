/* lists.h: the lists of neighbours that a sampler keeps in memory while the other lists are on drives. The
 * plan says which: those of the GPU tier and those of the CPU tier (Hyperion, section III-B2). Lists are
 * loaded once and never replaced.
 *
 * Owner: the caller; pst_topology_lists_release frees what ..._load allocated. Threads: read-only once
 * loaded. */
#ifndef PST_TOPOLOGY_LISTS_H
#define PST_TOPOLOGY_LISTS_H

#include "kernels/kernels.h"

PST_BEGIN_DECLS

struct pst_array;

#define PST_TOPOLOGY_LINE 64 /* bytes of a PCIe transaction (CLS in the paper) */

struct pst_topology_lists {
    int64_t n, gpu_n; /* the first gpu_n lists are those of the GPU tier */
    int64_t *at;      /* n + 1: list i has entries at[i] to at[i + 1] - 1 */
    const char *entries;
    int entry_bytes; /* 4 or 8: an int32 or an int64 */
    struct pst_cache *index;
    void *memory; /* NULL: it is the caller's */
};

/* The memory that the lists of n vertices take, with their index. PST_E_FORMAT: an id or an offset is out of
 * range; the message names the vertex. */
PST_API PST_MUST_USE pst_rc pst_topology_lists_bytes(const struct pst_csc *graph, const int64_t *vertices,
                                                     int64_t n, uint64_t *bytes);

/* Copies the lists of `vertices` (n ids in any order, each once), in the order of the file. The first gpu_n
 * of the vertices are the GPU tier's. memory: NULL, or pst_topology_lists_bytes of zeroed memory, from the
 * start of a page, that the caller keeps. file: the dataset's indices, which are read from the drive even if
 * the page cache has them; this takes twice the bytes of the longest list, at least 8 MiB, until it returns.
 * file NULL: graph->indices is copied. PST_E_NOMEM; PST_E_FORMAT: as above, or an id comes twice; PST_E_IO.
 */
PST_API PST_MUST_USE pst_rc pst_topology_lists_load(struct pst_topology_lists *l, void *memory,
                                                    const struct pst_csc *graph, const struct pst_array *file,
                                                    const int64_t *vertices, int64_t gpu_n, int64_t n);
/* Uses the lists that another instance loads, or has loaded, from the same graph and vertices into memory
 * that both have mapped. */
PST_API void pst_topology_lists_borrow(struct pst_topology_lists *l, void *memory,
                                       const struct pst_csc *graph, int64_t gpu_n, int64_t n);
PST_API void pst_topology_lists_release(struct pst_topology_lists *l);

/* The entry at a place of the lists, a vertex id that was not checked. */
static inline int64_t pst_topology_lists_entry(const struct pst_topology_lists *l, int64_t at)
{
    return l->entry_bytes == 4 ? ((const int32_t *)(const void *)l->entries)[at]
                               : ((const int64_t *)(const void *)l->entries)[at];
}

/* PCIe transactions to read n entries at places `at` of list `list` and the list's offsets: the lines that
 * hold them, each once. Of more than 64 entries that are not a whole list, it is an upper bound. */
PST_API int64_t pst_topology_lists_lines(const struct pst_topology_lists *l, int64_t list, const int64_t *at,
                                         int64_t n);

PST_END_DECLS
#endif
