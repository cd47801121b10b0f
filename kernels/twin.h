/* twin.h: one table of functions for each backend. Code that calls kernels is written once, and one build
 * serves machines with and without a GPU. The CPU's table is linked in. CUDA's is in a shared object,
 * which is opened on machines with a GPU.
 *
 * With CUDA, pointers are to device memory or pinned host memory, except those to structs such as `graph`,
 * `key`, `opt` and `drop`, which the call reads. A call puts work on the queue and returns. Counts that it
 * leaves (*count, *hits, *loss ...) are in device or pinned memory too. A call that does not wait cannot
 * return an error of its data. Instead the queue stores the first error and skips the rest of its work.
 * `record` and `wait` report it.
 *
 * Owner: tables are constants; the caller frees queues and memory. Threads: a queue belongs to one thread
 * at a time. */
#ifndef PST_TWIN_H
#define PST_TWIN_H

#include <stdlib.h>

#include "kernels/embedding.h"
#include "kernels/samplers.h"
#include "kernels/kernels.h"
#include "kernels/memories.h"

PST_BEGIN_DECLS

/* Every kernel of kernels.h, embedding.h and samplers.h, once. Each table has all of them, with their types.
 */
#define PST_TWIN_KERNELS(X)                                                                                  \
    X(sample)                                                                                                \
    X(pick)                                                                                                  \
    X(shuffle)                                                                                               \
    X(dedup_bytes)                                                                                           \
    X(dedup_init)                                                                                            \
    X(dedup_reset)                                                                                           \
    X(dedup)                                                                                                 \
    X(count)                                                                                                 \
    X(cache_bytes)                                                                                           \
    X(cache_init)                                                                                            \
    X(lookup)                                                                                                \
    X(gather)                                                                                                \
    X(requests)                                                                                              \
    X(copy_digest)                                                                                           \
    X(gemm)                                                                                                  \
    X(mean)                                                                                                  \
    X(mean_grad)                                                                                             \
    X(mean_csc)                                                                                              \
    X(degrees)                                                                                               \
    X(gcn_weights)                                                                                           \
    X(weighted_sum)                                                                                          \
    X(weighted_sum_grad)                                                                                     \
    X(scale_rows)                                                                                            \
    X(add)                                                                                                   \
    X(widen)                                                                                                 \
    X(bias_relu_dropout)                                                                                     \
    X(bias_relu_dropout_grad)                                                                                \
    X(gat_scores)                                                                                            \
    X(gat_scores_grad)                                                                                       \
    X(gat_softmax)                                                                                           \
    X(gat_sum)                                                                                               \
    X(gat_softmax_grad)                                                                                      \
    X(gat_sum_grad)                                                                                          \
    X(bias_elu_dropout)                                                                                      \
    X(bias_elu_dropout_grad)                                                                                 \
    X(layer_norm)                                                                                            \
    X(layer_norm_grad)                                                                                       \
    X(batch_norm)                                                                                            \
    X(batch_norm_grad)                                                                                       \
    X(affine)                                                                                                \
    X(softmax_xent)                                                                                          \
    X(softmax_xent_weighted)                                                                                 \
    X(sigmoid_xent)                                                                                          \
    X(squared_error)                                                                                         \
    X(adam)                                                                                                  \
    X(sgd)                                                                                                   \
    X(square_sum)                                                                                            \
    X(clip)                                                                                                  \
    X(embed_query)                                                                                           \
    X(embed_query_grad)                                                                                      \
    X(embed_scores)                                                                                          \
    X(embed_scores_grad)                                                                                     \
    X(embed_loss)                                                                                            \
    X(embed_sum)                                                                                             \
    X(embed_update)                                                                                          \
    X(embed_negatives)                                                                                       \
    X(embed_norms)                                                                                           \
    X(embed_rank)                                                                                            \
    X(edge_shares)                                                                                           \
    X(sample_ranked)                                                                                         \
    X(sample_labor)                                                                                          \
    X(sample_ladies)                                                                                         \
    X(sample_weighted)                                                                                       \
    X(sample_typed)                                                                                          \
    X(sample_weighted_typed)                                                                                 \
    X(sample_temporal)

/* A count that an earlier call on the queue computes. It is *at when the queue reaches the call, and at most
 * `most`. If at is NULL, the count is `most`. The bound determines the size of the launch, so it should be
 * close to the count. */
struct pst_twin_n {
    const int64_t *at;
    int64_t most;
};

/* Kernels of the list above that take a count in device memory, so that the host need not wait for it. */
#define PST_TWIN_KERNELS_N(X)                                                                                \
    X(sample)                                                                                                \
    X(pick)                                                                                                  \
    X(dedup)                                                                                                 \
    X(count)                                                                                                 \
    X(lookup)                                                                                                \
    X(count_below)                                                                                           \
    X(gather)                                                                                                \
    X(requests)                                                                                              \
    X(copy_digest)                                                                                           \
    X(gather_tiers)                                                                                          \
    X(gather_parts)                                                                                          \
    X(count_parts)                                                                                           \
    X(find)                                                                                                  \
    X(find_lists)                                                                                            \
    X(read_lists)                                                                                            \
    X(degrees)                                                                                               \
    X(gcn_weights)                                                                                           \
    X(mean_grad)                                                                                             \
    X(embed_update)                                                                                          \
    X(edge_shares)                                                                                           \
    X(sample_ranked)                                                                                         \
    X(sample_labor)                                                                                          \
    X(sample_ladies)                                                                                         \
    X(sample_weighted)                                                                                       \
    X(sample_typed)                                                                                          \
    X(sample_weighted_typed)                                                                                 \
    X(sample_temporal)

/* *total gets indptr[n]. */
pst_rc pst_kn_sample(struct pst_queue *q, const struct pst_csc *graph, const struct pst_sample_key *key,
                     const int64_t *vertices, struct pst_twin_n n, int fanout, bool replace, int32_t *indptr,
                     int64_t *out, int64_t capacity, int64_t *total);
pst_rc pst_kn_pick(struct pst_queue *q, const struct pst_sample_key *key, const int64_t *vertices,
                   const int64_t *degrees, struct pst_twin_n n, int fanout, bool replace, int32_t *indptr,
                   int64_t *positions, int64_t capacity, int64_t *total);
pst_rc pst_kn_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, struct pst_twin_n n,
                    int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local);
void pst_kn_count(struct pst_queue *q, const int64_t *ids, struct pst_twin_n n, uint32_t *counts);
void pst_kn_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids,
                   struct pst_twin_n n, int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos,
                   int64_t *misses);
void pst_kn_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                   void *dst, uint64_t dst_stride, const int32_t *dst_pos, struct pst_twin_n n,
                   uint64_t row_bytes);
void pst_kn_requests(struct pst_queue *q, const int64_t *ids, const int32_t *positions, int64_t from,
                     struct pst_twin_n n, uint16_t array, uint64_t first, uint64_t stride,
                     struct pst_request *table, int32_t *missing);
void pst_kn_copy_digest(struct pst_queue *q, const void *src, void *dst, struct pst_twin_n n,
                        uint64_t item_bytes, uint64_t array, uint64_t *digest);
/* Rows of two tiers: rows 0 to near_rows - 1 lie at near, the others at far, which can be pinned host memory
 * that kernels read in place. NULL: that tier has no rows. */
struct pst_twin_tiers {
    const void *near, *far;
    int64_t near_rows;
};
void pst_kn_gather_tiers(struct pst_queue *q, const struct pst_twin_tiers *src, uint64_t src_stride,
                         const int32_t *src_row, void *dst, uint64_t dst_stride, const int32_t *dst_pos,
                         struct pst_twin_n n, uint64_t row_bytes);
/* The rows src_row[0..n) of several parts (memories.h). */
void pst_kn_gather_parts(struct pst_queue *q, const struct pst_k_row_parts *src, uint64_t src_stride,
                         const int32_t *src_row, void *dst, uint64_t dst_stride, const int32_t *dst_pos,
                         struct pst_twin_n n, uint64_t row_bytes);
/* Adds to counts[k] how many of rows[0..n) part k has. */
void pst_kn_count_parts(struct pst_queue *q, const struct pst_k_row_parts *parts, const int32_t *rows,
                        struct pst_twin_n n, int64_t *counts);
/* row[i] = the row that the index has for ids[i], or -1. */
void pst_kn_find(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, struct pst_twin_n n,
                 int32_t *row);
/* Finds the lists of n vertices. list[i]: the number of vertex i's list in the parts, or -1: it is in the
 * graph. source[i] becomes its part, or lists->n for the graph; begin[i] is where it begins there, in
 * entries, and degree[i] its length. PST_E_FORMAT: a vertex or an offset is out of range. */
pst_rc pst_kn_find_lists(struct pst_queue *q, const struct pst_k_list_parts *lists, const int64_t *vertices,
                         const int32_t *list, struct pst_twin_n n, int32_t *source, int64_t *begin,
                         int64_t *degree);
/* The second half of sampling from several parts. ids[0..indptr[n]) has positions in the lists that
 * pst_kn_find_lists has found, as pst_kn_pick with this fanout and `replace` writes them; they become the
 * ids of the neighbours there. Adds to counts[k] how many entries of part k were read, to counts[lists->n]
 * how many of the graph, and to counts[lists->n + 1] the lines that these take, with the two offsets of each
 * vertex: a line counts once for each vertex. PST_E_FORMAT: an id is out of range. */
pst_rc pst_kn_read_lists(struct pst_queue *q, const struct pst_k_list_parts *lists, const int64_t *vertices,
                         const int32_t *source, const int64_t *begin, const int64_t *degree,
                         struct pst_twin_n n, int fanout, bool replace, const int32_t *indptr, int64_t *ids,
                         int64_t *counts);
/* *below gets how many of the values are less than limit. */
void pst_kn_count_below(struct pst_queue *q, const int32_t *values, struct pst_twin_n n, int64_t limit,
                        int64_t *below);
pst_rc pst_kn_degrees(struct pst_queue *q, const struct pst_csc *graph, const int64_t *vertices,
                      struct pst_twin_n n, int64_t *degree);
void pst_kn_gcn_weights(struct pst_queue *q, const int32_t *indptr, const int32_t *indices,
                        struct pst_twin_n dsts, const int64_t *degree, const pst_real *share,
                        pst_real *weight, pst_real *self_weight);
/* edges, sources: those of the block. Without them, CUDA's mean_grad would have to wait for the number of
 * edges. */
void pst_kn_mean_grad(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                      int64_t edges, int64_t sources, const pst_real *grad_out, int64_t ld_out,
                      pst_real *grad_in, int64_t ld_in, int64_t dim);

void pst_kn_embed_update(struct pst_queue *q, const struct pst_k_embed_table *table, const uint32_t *rows,
                         struct pst_twin_n n, const pst_real *grad, bool packed);

void pst_kn_edge_shares(struct pst_queue *q, const int32_t *indptr, struct pst_twin_n dsts, float *weight);
pst_rc pst_kn_sample_ranked(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                            const int64_t *vertices, struct pst_twin_n n, int fanout, int32_t *indptr,
                            int64_t *out, int64_t capacity, int64_t *total);
pst_rc pst_kn_sample_labor(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                           int iterations, const int64_t *vertices, struct pst_twin_n n, int fanout,
                           uint64_t *scratch, int32_t *indptr, int64_t *out, float *weight, int64_t capacity,
                           int64_t *total);
pst_rc pst_kn_sample_ladies(struct pst_queue *q, const struct pst_csc *graph,
                            const struct pst_rng_stream *stream, int64_t size, const int64_t *vertices,
                            struct pst_twin_n n, uint64_t *scratch, int32_t *indptr, int64_t *out,
                            float *weight, int64_t capacity, int64_t *total);
pst_rc pst_kn_sample_weighted(struct pst_queue *q, const struct pst_csc *graph,
                              const struct pst_k_weighted_edges *edges, const int64_t *vertices,
                              struct pst_twin_n n, int fanout, int32_t *indptr, int64_t *out, float *weight,
                              int64_t capacity, int64_t *total);
pst_rc pst_kn_sample_typed(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                           const struct pst_sample_key *key, const int64_t *vertices, struct pst_twin_n n,
                           int64_t *scratch, int32_t *indptr, int64_t *out, int32_t *relation,
                           int64_t capacity, int64_t *total);
pst_rc pst_kn_sample_weighted_typed(struct pst_queue *q, const struct pst_csc *graph,
                                    const struct pst_k_weighted_edges *edges, const struct pst_k_typed *how,
                                    const int64_t *vertices, struct pst_twin_n n, int64_t *scratch,
                                    int32_t *indptr, int64_t *out, float *weight, int32_t *relation,
                                    int64_t capacity, int64_t *total);
pst_rc pst_kn_sample_temporal(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                              const struct pst_k_limits *limits, const struct pst_sample_key *key,
                              const int64_t *vertices, struct pst_twin_n n, int32_t *until, int64_t *scratch,
                              int32_t *indptr, int64_t *out, int64_t capacity, int64_t *total);

/* The counts of a batch in pinned memory, where the host reads them. `sequence` is written last: a reader
 * that loads it with acquire order sees the rest. */
#define PST_TWIN_RECORD_COUNTS 32 /* vertices, edges, hits and misses for each of PST_HOPS_MAX hops */
struct pst_twin_record {
    uint64_t sequence;
    int32_t rc; /* enum pst_rc: the first error of the queue since the last record */
    int32_t n;
    int64_t counts[PST_TWIN_RECORD_COUNTS];
};

/* What the factors of matrix products are rounded to. Sums are in float32. */
enum pst_twin_precision {
    PST_TWIN_FLOAT32 = 0, /* not rounded */
    PST_TWIN_TF32,        /* to 11 bits of precision; only on GPUs */
    PST_TWIN_BF16,        /* to 8 bits of precision */
};

struct pst_queue_options {
    int device;
    int64_t most;    /* ids or edges of the largest call: this sizes the queue's own memory */
    int64_t columns; /* of the widest rows of floats */
    bool products;   /* the queue may call gemm, which takes a workspace of 32 MiB */
    enum pst_twin_precision precision; /* of gemm */
    bool first;   /* its kernels have priority over those of other queues of this process */
    void *stream; /* a cudaStream_t of the caller's; NULL: the queue makes one */
};

/* The longest wait for a queue, in seconds. PENSTOCK_GPU_WAIT_S overrides it. It is the time to copy the
 * largest topology; a batch takes a thousandth of it. */
#define PST_QUEUE_WAIT_S 300

static inline double pst_queue_wait_s(void)
{
    const char *given = getenv("PENSTOCK_GPU_WAIT_S");
    const double wanted = given ? strtod(given, NULL) : 0;
    return wanted > 0 ? wanted : PST_QUEUE_WAIT_S;
}

enum pst_twin_memory { PST_TWIN_MEMORY_DEVICE, PST_TWIN_MEMORY_PINNED };

struct pst_k_nvme_twin; /* nvme.h */
struct pst_twin_graph;
struct pst_twin_factor;
struct pst_twin_sums;
#define PST_TWIN_SUMS_ID_BYTES 128
#define PST_TWIN_FACTOR_MAX 2 /* matrices of a factor, and products of gemm_sums */

struct pst_twin {
    uint64_t bytes;                     /* size of this structure; a different size means a different build */
    const char *name;                   /* "cpu", "cuda", "cuda on the host" */
    const struct pst_k_nvme_twin *nvme; /* NULL in the CPU's table: its twin is common/nvme/stack/stack.h */
#define PST_TWIN_MEMBER(kernel) __typeof__(pst_k_##kernel) *kernel;
    PST_TWIN_KERNELS(PST_TWIN_MEMBER)
#undef PST_TWIN_MEMBER

#define PST_TWIN_MEMBER(kernel) __typeof__(pst_kn_##kernel) *kernel##_n;
    PST_TWIN_KERNELS_N(PST_TWIN_MEMBER)
#undef PST_TWIN_MEMBER

    /* Queues, and memory that their kernels can use. why has PST_TWIN_WHY_BYTES bytes and gets the reason of
     * a failure. The CPU's queue is NULL. */
    pst_rc (*queue_new)(const struct pst_queue_options *options, struct pst_queue **q, char *why);
    void (*queue_free)(struct pst_queue *q);
    /* Makes the queue's own memory large enough for such calls. It may wait for the queue. PST_E_NOMEM. */
    pst_rc (*reserve)(struct pst_queue *q, int64_t most, int64_t columns, char *why);
    pst_rc (*alloc)(int device, enum pst_twin_memory kind, size_t bytes, void **at, char *why);
    void (*release)(enum pst_twin_memory kind, void *at);
    /* Gets the free and the total memory of a device. */
    pst_rc (*room)(int device, uint64_t *free_bytes, uint64_t *total_bytes, char *why);
    /* Both run in the order of the queue. Host memory that is not pinned must stay unchanged until a wait for
     * the queue has ended. */
    pst_rc (*copy)(struct pst_queue *q, void *to, const void *from, size_t bytes);
    pst_rc (*fill)(struct pst_queue *q, void *at, int byte, size_t bytes);
    /* Its cudaStream_t; NULL on the CPU. */
    void *(*stream)(struct pst_queue *q);
    /* Puts a record of *counts[0] to *counts[n-1] on the queue. Their values are read when the queue reaches
     * the record; the pointers are read by the call. */
    pst_rc (*record)(struct pst_queue *q, struct pst_twin_record *record, uint64_t sequence,
                     const int64_t *const *counts, int n);
    /* Sleeps until the record has this sequence. Work that was put on the queue after it may still be
     * running. PST_E_STATE: the queue is empty, but did not write the record. */
    pst_rc (*recorded)(struct pst_queue *q, const struct pst_twin_record *record, uint64_t sequence,
                       char *why);
    /* Sleeps until the queue is empty. Both waits return the first failure since the last record or wait,
     * and where it happened in why. PST_E_TIMEOUT: the queue appears to hang, and every other wait for this
     * device will hang too. Do not use the queue again and do not release its memory (queue_free then does
     * nothing). */
    pst_rc (*wait)(struct pst_queue *q, char *why);

    /* A graph is work that is put on the queue as a whole, as often as wanted. NULL in the CPU's table.
     * What the caller puts on the queue between graph_begin and graph_end does not run, but becomes the
     * graph: calls of kernels, copies, fills and records, but no waits. A run of the graph has the arguments
     * of these calls, and finds in memory what is there by then. If a call has failed, graph_end returns its
     * error, and *graph is NULL. A graph is for its queue, and must not run after reserve. */
    pst_rc (*graph_begin)(struct pst_queue *q);
    pst_rc (*graph_end)(struct pst_queue *q, struct pst_twin_graph **graph, char *why);
    pst_rc (*graph_run)(struct pst_queue *q, struct pst_twin_graph *graph);
    /* A run that has begun still ends. NULL: does nothing. */
    void (*graph_free)(struct pst_twin_graph *graph);
    /* The random numbers of later calls of sample, sample_typed, sample_weighted and sample_ladies: their
     * stream is not that of the call, but *at, in the device's memory, when the queue reaches the call. NULL:
     * that of the call again. So a graph draws other numbers in each run. NULL in the CPU's table. */
    void (*draws_at)(struct pst_queue *q, const struct pst_rng_stream *at);

    /* Products whose factors are rounded first, if one rounding can serve several of them. NULL in a table
     * that rounds nothing, or as it multiplies. beta is 0 or 1.
     *
     * A factor is a matrix that several products multiply by before it changes, for example a weight during a
     * step. factor_set takes the values of `count` matrices of (rows,cols), without gaps, one below the
     * other, and makes *factor if it is NULL. While no factor_set runs, any thread can multiply by it.
     * gemm_factor: C(m,n) = A op(B) + beta C, where A consists of the `count` matrices a, side by side. With
     * tb, count must be 1. */
    void (*factor_set)(struct pst_twin_factor **factor, const pst_real *const *from, int count, int64_t rows,
                       int64_t cols);
    void (*factor_free)(struct pst_twin_factor *factor); /* NULL: does nothing */
    void (*gemm_factor)(bool tb, int64_t m, const struct pst_twin_view *a, const struct pst_twin_factor *b,
                        pst_real beta, pst_real *c, int64_t ldc);
    /* C[i](m,n) = A[i]' B + beta C[i], for i < count: the sum is over k rows. */
    void (*gemm_sums)(int count, int64_t m, int64_t n, int64_t k, const struct pst_twin_view *a,
                      const pst_real *b, int64_t ldb, pst_real beta, pst_real *const *c, int64_t ldc);
    /* The sums over neighbours of destinations first..first+n of the block: those of weighted_sum, or, if
     * weight is NULL, those of mean. They are rounded, because they are factors of products. */
    void (*sum_rounded)(const struct pst_block *block, int64_t first, int64_t n, const pst_real *weight,
                        const pst_real *self_weight, const struct pst_twin_view *in, uint16_t *out,
                        int64_t ld_out, int64_t dim);
    /* pst_k_by_source and pst_k_sum_by_source. NULL in CUDA's table. */
    __typeof__(pst_k_by_source) *by_source;
    __typeof__(pst_k_sum_by_source) *sum_by_source;
    /* C(m,n) = op(A) B + beta C without the products by zeros, of A or, with ta, of one factor. So an
     * infinity or a NaN that meets a zero is not noticed. beta is 0 or 1. False: the factors do not have
     * enough zeros for this to be faster than gemm, and C is as it was. Whether they have depends on the
     * factors alone. NULL: the table or this CPU cannot do it. */
    bool (*gemm_zeros)(bool ta, int64_t m, int64_t n, int64_t k, const pst_real *a, int64_t lda,
                       const pst_real *b, int64_t ldb, pst_real beta, pst_real *c, int64_t ldc);

    /* Sums over several GPUs, by NCCL. NULL in the CPU's table.
     *
     * The queues that add up are members 0 to members - 1, each on a GPU of its own. One of them makes the id
     * (PST_TWIN_SUMS_ID_BYTES), and gives it to the others. sums_new returns when all members have called it.
     * PST_E_UNSUPPORTED: there is no NCCL. Both give the reason of a failure in why.
     * sums_add: values[0..n), on the device, become the sums over all members, in the order of the queue. All
     * members must call it with the same n. Its kernels wait for the other members without a deadline; the
     * wait for the queue has one. sums_free: waits for the queue. NULL: does nothing. */
    pst_rc (*sums_id)(char *id, char *why);
    pst_rc (*sums_new)(struct pst_queue *q, const char *id, int member, int members,
                       struct pst_twin_sums **sums, char *why);
    pst_rc (*sums_add)(struct pst_twin_sums *sums, pst_real *values, int64_t n);
    void (*sums_free)(struct pst_twin_sums *sums);
};

#define PST_TWIN_WHY_BYTES 320 /* a path, a CUDA error and where it happened */

PST_API const struct pst_twin *pst_twin_cpu(void);
/* The same, but gemm multiplies in bfloat16, with sums in float32: alpha must be 1, beta 0 or 1, and no more
 * than one factor transposed. NULL: this CPU cannot do it, and why (PST_TWIN_WHY_BYTES) says what is missing.
 */
PST_API const struct pst_twin *pst_twin_cpu_bf16(char *why);
/* Opens CUDA's table: from path; if that is NULL, from $PENSTOCK_CUDA; else from libpenstock-cuda.so
 * beside this library. It stays open. NULL: why (PST_TWIN_WHY_BYTES) says what is missing. */
PST_API const struct pst_twin *pst_twin_open(const char *path, char *why);

/* The symbol that CUDA's shared object exports. */
#define PST_TWIN_SYMBOL "pst_twin_cuda"
typedef const struct pst_twin *(*pst_twin_fn)(void);

PST_END_DECLS
#endif
