/* kernels.h: what a twin implements. kernels/cpu is the specification; kernels/cuda must agree with it:
 * exactly for integers and sampling, within a stated tolerance for floats.
 *
 * Arrays are row-major and live where the twin computes. All work is put on the caller's queue (NULL on
 * the CPU). Local positions are int32, global vertex ids int64. Functions assert on programmer errors and
 * return PST_E_LIMIT when a sized output would overflow, leaving it unspecified. */
#ifndef PST_KERNELS_H
#define PST_KERNELS_H

#include "common/base.h"

PST_BEGIN_DECLS

#ifndef PST_REAL
#define PST_REAL_IS_FLOAT
#define PST_REAL float /* the gradient test builds everything once more in double */
#endif
typedef PST_REAL pst_real;

struct pst_queue; /* a CUDA stream and what goes with it (twin.h); NULL on the CPU */

/* In-neighbours: indices[indptr[v] .. indptr[v+1]) are the sources of edges into v. */
struct pst_csc {
    const int64_t *indptr; /* vertices + 1 */
    const void *indices;   /* index_bytes each */
    int index_bytes;       /* 4 or 8 */
    int64_t vertices;
    int64_t edges;
};

struct pst_sample_key {
    uint64_t seed;
    uint32_t epoch;
    uint32_t hop;
    uint64_t batch; /* within the epoch or the run; the caller's choice, but one number per batch */
};

#define PST_FANOUT_MAX 4096 /* slots of one vertex: its hash set lives on a thread's stack; more is -1 */

/* Uniform in-neighbour sampling (GraphSAGE, Hamilton et al. 2017, section 3.1). For each of n vertices
 * draws min(fanout, degree) distinct in-neighbours, or exactly `fanout` with repeats when replace (none
 * if degree is 0); fanout -1 takes all, in order, as does a fanout of at least the degree. indptr: n+1, out:
 * capacity ids. The draw of slot s of vertex v depends on (key, v, s) alone. PST_E_FORMAT: the graph's indptr
 * or indices are out of range. */
PST_API pst_rc pst_k_sample(struct pst_queue *q, const struct pst_csc *graph,
                            const struct pst_sample_key *key, const int64_t *vertices, int64_t n, int fanout,
                            bool replace, int32_t *indptr, int64_t *out, int64_t capacity);

/* Fills perm[0..n) with a permutation of 0..n-1 that depends on (seed, epoch) alone. */
PST_API void pst_k_shuffle(struct pst_queue *q, uint64_t seed, uint64_t epoch, int64_t *perm, int64_t n);

/* Dedup and relabel: a hash table sized to the batch. `memory` has pst_k_dedup_bytes(max_ids) bytes and
 * belongs to the caller. Newcomers are appended to vertices[*count..capacity) in order of first
 * appearance; local[i] (if local is not NULL) gets the position of ids[i]. From one reset to the next,
 * vertices is the same array and *count what the last call left. */
struct pst_dedup;
PST_API size_t pst_k_dedup_bytes(int64_t max_ids);
PST_API struct pst_dedup *pst_k_dedup_init(void *memory, int64_t max_ids);
PST_API void pst_k_dedup_reset(struct pst_queue *q, struct pst_dedup *table); /* O(1) on the CPU */
PST_API pst_rc pst_k_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, int64_t n,
                           int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local);

/* Hotness: counts[ids[i]] += 1. */
PST_API void pst_k_count(struct pst_queue *q, const int64_t *ids, int64_t n, uint32_t *counts);

/* Cache index: which vertices' rows are cached, and where. `memory` has pst_k_cache_bytes(n) bytes. */
struct pst_cache;
PST_API size_t pst_k_cache_bytes(int64_t n);
PST_API struct pst_cache *pst_k_cache_init(void *memory, const int64_t *vertices, int64_t n);
/* Splits ids in one pass: hit_pos/hit_row (position in ids, cache row), miss_pos; orders kept. */
PST_API void pst_k_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, int64_t n,
                          int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos,
                          int64_t *misses);

/* dst row dst_pos[i] = src row src_row[i], row_bytes each, strides in bytes. NULL positions mean i. */
PST_API void pst_k_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                          void *dst, uint64_t dst_stride, const int32_t *dst_pos, int64_t n,
                          uint64_t row_bytes);

/* C(M,N) = alpha op(A) op(B) + beta C, leading dimensions in elements; threads: 1.. */
PST_API void pst_k_gemm(struct pst_queue *q, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        pst_real alpha, const pst_real *a, int64_t lda, const pst_real *b, int64_t ldb,
                        pst_real beta, pst_real *c, int64_t ldc, int threads);

/* Mean aggregation over a block: out(dsts,dim)[d] = mean of in[indices[e]], zero without neighbours. */
PST_API void pst_k_mean(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                        const pst_real *in, int64_t ld_in, pst_real *out, int64_t ld_out, int64_t dim);
/* Its gradient: grad_in[indices[e]] += grad_out[d] / degree(d). */
PST_API void pst_k_mean_grad(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                             const pst_real *grad_out, int64_t ld_out, pst_real *grad_in, int64_t ld_in,
                             int64_t dim);

/* Mean over all in-neighbours of vertices first..first+n of a whole graph: out(n,dim), for evaluation by
 * layers. Where the neighbours' rows do not fit in memory it is made in parts, one call each: `in` has the
 * rows of ids from..to, and parts follow each other from 0 to the graph's vertices. out and cursor(n) are the
 * caller's, untouched between parts; they need no initial value. The bits do not depend on the parts: rows
 * are added in the order of the edges. PST_E_FORMAT: the graph's indptr or indices are out of range; in
 * several parts, too, neighbours that do not ascend. */
PST_API PST_MUST_USE pst_rc pst_k_mean_csc(struct pst_queue *q, const struct pst_csc *graph, int64_t first,
                                           int64_t n, int64_t from, int64_t to, const pst_real *in,
                                           int64_t ld_in, int64_t *cursor, pst_real *out, int64_t ld_out,
                                           int64_t dim);

/* x(n,dim) += y(n,dim). */
PST_API void pst_k_add(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *y, int64_t ld_y,
                       int64_t n, int64_t dim);

/* out(n,dim) = rows of float16 (or bfloat16) at src, stride_bytes apart. */
PST_API void pst_k_widen(struct pst_queue *q, const void *src, uint64_t stride_bytes, bool bfloat,
                         pst_real *out, int64_t ld, int64_t n, int64_t dim);

/* Dropout keys belong to the whole batch: (seed, epoch, batch, layer, global vertex, column). 16 bits decide
 * a column, so the rate is taken as a multiple of 1/65536. Column j takes those of
 * pst_rng_draw(stream, vertex, j / 128 * 16 + j % 16), its word j % 128 / 32, the low half if j % 32 < 16,
 * and is dropped if they are below pst_dropout_share(rate) * 65536. */
#define PST_DROPOUT_GROUP 128 /* columns that 16 draws decide */
struct pst_dropout {
    uint64_t seed;
    uint32_t epoch;
    uint32_t layer;
    uint64_t batch;
    float rate; /* 0: off */
};
/* The share of columns that a rate drops: at least one 65536th if it is not zero, and never all. */
static inline double pst_dropout_share(float rate)
{
    const double parts = (double)(int64_t)((double)rate * 65536.0 + 0.5);
    return rate <= 0 ? 0 : (parts < 1 ? 1 : parts > 65535 ? 65535 : parts) / 65536.0;
}

/* In place, one pass: x = dropout(relu(x + bias)); bias may be NULL; vertices(n) are global ids. */
PST_API void pst_k_bias_relu_dropout(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *bias,
                                     const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                                     const struct pst_dropout *drop);
/* grad(n,dim) in place from y, the forward output; grad_bias(dim) += column sums (NULL: not wanted). */
PST_API void pst_k_bias_relu_dropout_grad(struct pst_queue *q, pst_real *grad, int64_t ld_grad,
                                          const pst_real *y, int64_t ld_y, const int64_t *vertices, int64_t n,
                                          int64_t dim, bool relu, const struct pst_dropout *drop,
                                          pst_real *grad_bias);

/* Normalisation in place over a row (layer norm: Ba, Kiros, Hinton 2016) or over rows (batch norm: Ioffe &
 * Szegedy 2015), eps 1e-5. xhat(n,dim) is contiguous; rstd has n (layer) or dim (batch) elements; both are
 * what the gradient needs, and layer norm takes NULL for both where none is wanted. The running variance is
 * the unbiased one; a batch of one row leaves the running figures as they are. */
#define PST_NORM_EPS 1e-5
PST_API void pst_k_layer_norm(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim,
                              const pst_real *gain, const pst_real *shift, pst_real *xhat, pst_real *rstd);
PST_API void pst_k_layer_norm_grad(struct pst_queue *q, pst_real *grad, int64_t ld, int64_t n, int64_t dim,
                                   const pst_real *gain, const pst_real *xhat, const pst_real *rstd,
                                   pst_real *grad_gain, pst_real *grad_shift);
PST_API void pst_k_batch_norm(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim,
                              const pst_real *gain, const pst_real *shift, pst_real *xhat, pst_real *rstd,
                              pst_real *running_mean, pst_real *running_var, pst_real momentum);
PST_API void pst_k_batch_norm_grad(struct pst_queue *q, pst_real *grad, int64_t ld, int64_t n, int64_t dim,
                                   const pst_real *gain, const pst_real *xhat, const pst_real *rstd,
                                   pst_real *grad_gain, pst_real *grad_shift);

/* x(n,dim) = x * scale(dim) + offset(dim): batch norm with fixed statistics. */
PST_API void pst_k_affine(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim,
                          const pst_real *scale, const pst_real *offset);

/* Softmax cross-entropy over rows with label >= 0: *loss += sum of -log p / normaliser; *correct counts
 * argmax hits, *counted rows; grad (NULL: not wanted) = (softmax - onehot) / normaliser, zero for others. */
PST_API void pst_k_softmax_xent(struct pst_queue *q, const pst_real *logits, int64_t ld,
                                const int32_t *labels, int64_t n, int64_t classes, double normaliser,
                                pst_real *grad, int64_t ld_grad, double *loss, int64_t *correct,
                                int64_t *counted);

struct pst_adam {
    double rate, beta1, beta2, eps, weight_decay; /* decay is L2, added to the gradient */
    int64_t step;                                 /* 1 at the first call */
};
/* One Adam step (Kingma & Ba 2015, algorithm 1) over n parameters. */
PST_API void pst_k_adam(struct pst_queue *q, const struct pst_adam *opt, pst_real *w, const pst_real *g,
                        pst_real *m, pst_real *v, int64_t n);

PST_END_DECLS
#endif
