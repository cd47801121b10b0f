/* cache_rows.h: the feature rows that a sampler keeps in memory, and their index. On a GPU, the rows of the
 * GPU tier are in its memory, and those of the CPU tier in pinned host memory, which its kernels read in
 * place.
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
    int64_t n, gpu_n; /* the first gpu_n rows are those of the GPU tier */
    char *rows;       /* stride_bytes each; in each tier in the order of vertex ids */
    char *far;        /* on a GPU, row gpu_n and those after it */
    struct pst_cache *index;
    void *index_memory;
    bool borrowed;             /* the memory of rows and index is the caller's */
    struct pst_device *device; /* whose memory it is; NULL: host memory */
};

/* The host memory that n rows and their index take. */
PST_MUST_USE uint64_t pst_cache_rows_bytes(int64_t n, uint64_t stride_bytes);

/* Reads the rows of `vertices` (n ids in any order, each once) from the files of the features, in file order.
 * The first gpu_n of the vertices are the GPU tier's: their rows come first. features: `files` arrays with
 * `rows` rows together (common/store/dataset/rows.h), from that of vertex features->first_row on. A GPU needs
 * a queue. memory: NULL, or on a CPU pst_cache_rows_bytes of zeroed memory, from the start of a page, that
 * the caller keeps. device NULL: a CPU. PST_E_NOMEM; PST_E_FORMAT: an id is out of range or comes twice;
 * PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_cache_rows_load(struct pst_cache_rows *c, struct pst_device *device,
                                                void *memory, const struct pst_array *features, int files,
                                                int64_t rows, uint64_t stride_bytes, const int64_t *vertices,
                                                int64_t gpu_n, int64_t n);
/* Reads the rows of `vertices`, whose ids ascend, to `to`: n * stride_bytes in the memory of a GPU, which has
 * a queue. It makes no index. Errors as above. */
PST_API PST_MUST_USE pst_rc pst_cache_rows_write(struct pst_device *device, void *to,
                                                 const struct pst_array *features, int files, int64_t rows,
                                                 uint64_t stride_bytes, const int64_t *vertices, int64_t n);
/* An index in host memory of the rows that pst_cache_rows_load loads with the same arguments, for a host that
 * looks up rows in a GPU's memory. *memory: the caller frees it. n: at least 1. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_cache_rows_index(const int64_t *vertices, int64_t gpu_n, int64_t n,
                                                 void **memory, struct pst_cache **index);
/* Uses the rows that another instance loads, or has loaded, with the same gpu_n, n and stride_bytes into
 * memory that both have mapped. */
void pst_cache_rows_borrow(struct pst_cache_rows *c, void *memory, int64_t gpu_n, int64_t n,
                           uint64_t stride_bytes);
PST_API void pst_cache_rows_release(struct pst_cache_rows *c);

PST_END_DECLS
#endif
