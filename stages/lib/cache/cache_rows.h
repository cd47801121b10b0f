/* cache_rows.h: the feature rows that a sampler keeps in memory, or in that of its GPU, and their index.
 * Owner: the caller; the GPU's account (device.h) has what is there. Threads: read-only once loaded. */
#ifndef PST_CACHE_ROWS_H
#define PST_CACHE_ROWS_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_array;
struct pst_cache;
struct pst_device;

struct pst_cache_rows {
    int64_t n;
    char *rows; /* stride_bytes each, in order of vertex id */
    struct pst_cache *index;
    void *index_memory;
    struct pst_device *device; /* whose memory it is; NULL: the host's */
};

/* Reads the rows of `vertices` (n ids in any order, each once) from the features' files, in file order.
 * features: as many as files (common/store/dataset/rows.h); of `rows` rows in all. A GPU as the device has a
 * queue.
 */
PST_API PST_MUST_USE pst_rc pst_cache_rows_load(struct pst_cache_rows *c, struct pst_device *device,
                                                const struct pst_array *features, int files, int64_t rows,
                                                uint64_t stride_bytes, const int64_t *vertices, int64_t n);
PST_API void pst_cache_rows_release(struct pst_cache_rows *c);

PST_END_DECLS
#endif
