/* cache_rows.h: the feature rows that a sampler keeps in host memory or in its GPU's memory, and their index.
 *
 * Owner: the caller. struct pst_device also records GPU memory (device.h). Threads: read-only once
 * loaded. */
#ifndef PST_CACHE_ROWS_H
#define PST_CACHE_ROWS_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_array;
struct pst_cache;
struct pst_device;

struct pst_cache_rows {
    int64_t n;
    char *rows; /* stride_bytes each, in the order of vertex ids */
    struct pst_cache *index;
    void *index_memory;
    struct pst_device *device; /* whose memory it is; NULL: host memory */
};

/* Reads the rows of `vertices` (n ids in any order, each once) from the files of the features, in file order.
 * features: `files` arrays with `rows` rows together (common/store/dataset/rows.h). A GPU needs a queue.
 * PST_E_NOMEM; PST_E_FORMAT: an id is out of range or comes twice; PST_E_IO. */
PST_MUST_USE pst_rc pst_cache_rows_load(struct pst_cache_rows *c, struct pst_device *device,
                                        const struct pst_array *features, int files, int64_t rows,
                                        uint64_t stride_bytes, const int64_t *vertices, int64_t n);
void pst_cache_rows_release(struct pst_cache_rows *c);

PST_END_DECLS
#endif
