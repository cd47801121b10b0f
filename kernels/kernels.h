/* kernels.h: the declaration of every kernel. kernels/cpu is the specification. kernels/cuda agrees with
 * it: exactly for integers and sampling, within a stated tolerance for floats.
 *
 * Arrays are row-major and lie in memory of the device that computes. Local positions are int32, and global
 * vertex ids are int64. All work goes to the queue q, which is NULL on the CPU.
 *
 * A kernel asserts on programmer errors. PST_E_LIMIT: an output does not fit, and its contents are
 * undefined. Kernels set no message, because only the caller knows whose data it was.
 *
 * Owner: the caller owns all memory. Threads: kernels have no state; calls on different data may run at
 * once. */
#ifndef PST_KERNELS_H
#define PST_KERNELS_H

#include "common/slots/request.h"

PST_BEGIN_DECLS

#ifndef PST_REAL
#define PST_REAL_IS_FLOAT
#define PST_REAL float /* the gradient test compiles everything again in double */
#endif
typedef PST_REAL pst_real;

struct pst_queue; /* a CUDA stream with its scratch memory (twin.h); NULL on the CPU */

/* A graph by in-neighbours: indices[indptr[v] .. indptr[v+1]) are the sources of the edges into v. */
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
    uint64_t batch; /* within the epoch; one number per batch */
};

#define PST_FANOUT_MAX 4096 /* draws of one vertex, whose hash set is on the stack */

/* Uniform in-neighbour sampling (GraphSAGE, Hamilton et al. 2017, section 3.1). Draws min(fanout, degree)
 * distinct in-neighbours for each of n vertices; with `replace`, exactly `fanout`, with repeats, or none
 * if the degree is 0. fanout -1, or a fanout of at least the degree without `replace`, takes all, in
 * order. indptr gets n + 1 offsets, out the ids (at most capacity). Draw s of vertex v depends only on
 * (key, v, s). PST_E_FORMAT: the graph's indptr or indices are out of range. */
PST_API pst_rc pst_k_sample(struct pst_queue *q, const struct pst_csc *graph,
                            const struct pst_sample_key *key, const int64_t *vertices, int64_t n, int fanout,
                            bool replace, int32_t *indptr, int64_t *out, int64_t capacity);

/* The same draws as positions in the vertices' lists, which are not read: degrees(n) are the lists' lengths.
 * pst_k_sample gives the ids at these positions. With it, a graph's lists can be read from a drive.
 * PST_E_FORMAT: a degree is negative. */
PST_API pst_rc pst_k_pick(struct pst_queue *q, const struct pst_sample_key *key, const int64_t *vertices,
                          const int64_t *degrees, int64_t n, int fanout, bool replace, int32_t *indptr,
                          int64_t *positions, int64_t capacity);

/* Fills perm[0..n) with a permutation of 0..n-1, which depends only on (seed, epoch). */
PST_API void pst_k_shuffle(struct pst_queue *q, uint64_t seed, uint64_t epoch, int64_t *perm, int64_t n);

/* Removes duplicates and relabels, with a hash table for one batch. `memory` has
 * pst_k_dedup_bytes(max_ids) bytes and belongs to the caller. New ids are appended to
 * vertices[*count..capacity) in the order of their first appearance. local[i], if local is not NULL, gets
 * the position of ids[i] in vertices. Between two resets, vertices must stay the same array and *count
 * what the last call left. */
struct pst_dedup;
PST_API size_t pst_k_dedup_bytes(int64_t max_ids);
PST_API struct pst_dedup *pst_k_dedup_init(void *memory, int64_t max_ids);
PST_API void pst_k_dedup_reset(struct pst_queue *q,
                               struct pst_dedup *table); /* in constant time on the CPU */
PST_API pst_rc pst_k_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, int64_t n,
                           int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local);

/* Counts how often vertices appear: counts[ids[i]] += 1. */
PST_API void pst_k_count(struct pst_queue *q, const int64_t *ids, int64_t n, uint32_t *counts);

/* The index of a cache: which vertices' rows are cached, and where. `memory` has pst_k_cache_bytes(n)
 * bytes. Row i belongs to vertices[i]. On a CPU, another process can map the memory at another address, of
 * the same place in a cache line. */
struct pst_cache;
PST_API size_t pst_k_cache_bytes(int64_t n);
PST_API struct pst_cache *pst_k_cache_init(void *memory, const int64_t *vertices, int64_t n);
/* Splits ids into hits and misses. hit_pos[k], hit_row[k]: the position in ids and the cache row of hit k.
 * miss_pos[k]: the position of miss k. The order of ids is kept. */
PST_API void pst_k_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, int64_t n,
                          int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos,
                          int64_t *misses);

/* Copies rows: dst row dst_pos[i] = src row src_row[i], row_bytes each. Strides are in bytes. Positions
 * that are NULL mean i. */
PST_API void pst_k_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                          void *dst, uint64_t dst_stride, const int32_t *dst_pos, int64_t n,
                          uint64_t row_bytes);

/* Requests for rows of vertices, one row each (request.h), with where they go in the slot: request i is for
 * vertex ids[at], where at = from + positions[i] (from + i if positions is NULL). It asks for row ids[at] of
 * `array`, and this row goes to byte first + at * stride of the slot. table(n), of alignment 16, gets the
 * requests, and missing(n) gets `at`. */
PST_API void pst_k_requests(struct pst_queue *q, const int64_t *ids, const int32_t *positions, int64_t from,
                            int64_t n, uint16_t array, uint64_t first, uint64_t stride,
                            struct pst_request *table, int32_t *missing);

/* Copies n items of item_bytes (a multiple of 4; at most 2^32 words of 4 bytes in all) from src to dst, both
 * of alignment 4, and adds the hash of these words to *digest, modulo 2^64: the sum of
 * pst_k_digest_term(array, i, word i) of digest.h. dst NULL: copies nothing. */
PST_API void pst_k_copy_digest(struct pst_queue *q, const void *src, void *dst, int64_t n,
                               uint64_t item_bytes, uint64_t array, uint64_t *digest);

/* C(m,n) = alpha op(A) op(B) + beta C. Leading dimensions are in elements. threads: 1 or more; CPU only. */
PST_API void pst_k_gemm(struct pst_queue *q, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        pst_real alpha, const pst_real *a, int64_t lda, const pst_real *b, int64_t ldb,
                        pst_real beta, pst_real *c, int64_t ldc, int threads);

/* A matrix: rows that are ld numbers apart. The numbers are at `at` or, in bfloat16, at `bf16`; the other
 * pointer is NULL. With `elsewhere`, row i is row elsewhere[i] of the matrix at `other`, whose numbers have
 * the same type and whose ld is the same. A negative number, -1 - r, stands for row r of this matrix. */
struct pst_twin_view {
    const pst_real *at;
    const uint16_t *bf16;
    int64_t ld;
    const int32_t *elsewhere; /* NULL: row i is row i */
    const void *other;
};

/* Where a row begins. */
static inline const void *pst_twin_row(const struct pst_twin_view *m, int64_t i)
{
    const int64_t other = m->elsewhere != NULL ? m->elsewhere[i] : -1 - i;
    const char *at = m->at != NULL ? (const char *)m->at : (const char *)m->bf16;
    const int64_t bytes = m->at != NULL ? (int64_t)sizeof *m->at : (int64_t)sizeof *m->bf16;
    return other >= 0 ? (const char *)m->other + other * m->ld * bytes : at + (-1 - other) * m->ld * bytes;
}

/* Mean over the in-neighbours of a block: out(dsts,dim)[d] = mean of in[indices[e]] over its edges; 0
 * without edges. in: not in bfloat16. The call reads the structure itself. On a GPU, no row is elsewhere. */
PST_API void pst_k_mean(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                        const struct pst_twin_view *in, pst_real *out, int64_t ld_out, int64_t dim);
/* The gradient of the mean: grad_in[indices[e]] += grad_out[d] / degree(d). */
PST_API void pst_k_mean_grad(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                             const pst_real *grad_out, int64_t ld_out, pst_real *grad_in, int64_t ld_in,
                             int64_t dim);

/* Mean over all in-neighbours of vertices first..first+n of a whole graph: out(n,dim). If the neighbours'
 * rows do not fit in memory, the mean is made in several calls: `in` has the rows of ids from..to, and the
 * ranges follow each other from 0 to the number of vertices. out and cursor(n) are the caller's and stay
 * untouched between the calls; they need no initial value. The result does not depend on the ranges,
 * because rows are added in the order of the edges. PST_E_FORMAT: the graph's indptr or indices are out of
 * range, or, in several ranges, the neighbours of a vertex do not ascend. */
PST_API PST_MUST_USE pst_rc pst_k_mean_csc(struct pst_queue *q, const struct pst_csc *graph, int64_t first,
                                           int64_t n, int64_t from, int64_t to, const pst_real *in,
                                           int64_t ld_in, int64_t *cursor, pst_real *out, int64_t ld_out,
                                           int64_t dim);

/* A block of a minibatch: the edges of one hop. Destination d is also source d: the destinations are the
 * first sources. indices[indptr[d] .. indptr[d+1]) are the sources of the edges into d. The call reads the
 * structure itself. */
struct pst_block {
    const int32_t *indptr;  /* dsts + 1; indptr[0] is 0 */
    const int32_t *indices; /* edges; each is below `sources` */
    int64_t dsts, edges, sources;
};

/* The edges of a block in the order of their sources, then of the block. The caller owns the arrays. */
struct pst_block_by_source {
    int32_t *begin;   /* sources + 1: where each source's edges begin in the next two */
    int32_t *dst;     /* edges: the destination */
    pst_real *weight; /* edges */
};

/* For CPUs only: fills all arrays. weight: of the block's edges; NULL: 1 / degree(d), as in a mean. */
PST_API void pst_k_by_source(const struct pst_block *block, const pst_real *weight,
                             struct pst_block_by_source *to);
/* For CPUs only: rows first..first+n of the gradient of a mean or of a weighted sum, with the same bits as
 * pst_k_mean_grad and pst_k_weighted_sum_grad: each row is written once. Rows before `kept` are added to; the
 * others are set, whatever they were. self_weight(dsts): NULL, if a destination does not count by itself. */
PST_API void pst_k_sum_by_source(const struct pst_block_by_source *edges, const pst_real *self_weight,
                                 int64_t dsts, int64_t first, int64_t n, int64_t kept,
                                 const pst_real *grad_out, int64_t ld_out, pst_real *grad_in, int64_t ld_in,
                                 int64_t dim);

/* The degrees of vertices (their numbers of in-neighbours) in the whole graph: degree[i] is that of
 * vertices[i]. PST_E_FORMAT: a vertex or the graph's indptr is out of range. */
PST_API PST_MUST_USE pst_rc pst_k_degrees(struct pst_queue *q, const struct pst_csc *graph,
                                          const int64_t *vertices, int64_t n, int64_t *degree);

/* The weights of a block's edges in a GCN (Kipf & Welling 2017, equation 2), if only some neighbours are
 * sampled. degree[i] is the degree of source i in the whole graph. An edge e from u into v, where v has k
 * edges in the block, gets weight[e] = degree[v] share[e] / sqrt((degree[v] + 1) (degree[u] + 1)), where
 * share[e] is 1 / k if share is NULL. v itself gets self_weight[v] = 1 / (degree[v] + 1). The twins agree to
 * the bit. */
PST_API void pst_k_gcn_weights(struct pst_queue *q, const int32_t *indptr, const int32_t *indices,
                               int64_t dsts, const int64_t *degree, const pst_real *share, pst_real *weight,
                               pst_real *self_weight);

/* Rows first..first+n of a weighted sum: out[d] = self_weight[d] in[d] + the sum over the edges e into d, in
 * order, of weight[e] in[indices[e]]. in(sources,dim), which is as in pst_k_mean, out(dsts,dim),
 * weight(edges) and self_weight(dsts; NULL: d itself does not count) are of the whole block; other rows of
 * out stay as they are. */
PST_API void pst_k_weighted_sum(struct pst_queue *q, const struct pst_block *block, int64_t first, int64_t n,
                                const pst_real *weight, const pst_real *self_weight,
                                const struct pst_twin_view *in, pst_real *out, int64_t ld_out, int64_t dim);
/* The gradient of the weighted sum, for the whole block: grad_in[d] += self_weight[d] grad_out[d], and then
 * grad_in[indices[e]] += weight[e] grad_out[d] in the order of the edges. */
PST_API void pst_k_weighted_sum_grad(struct pst_queue *q, const struct pst_block *block,
                                     const pst_real *weight, const pst_real *self_weight,
                                     const pst_real *grad_out, int64_t ld_out, pst_real *grad_in,
                                     int64_t ld_in, int64_t dim);

/* x(n,dim): each element of row i is multiplied by scale[i]. */
PST_API void pst_k_scale_rows(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim,
                              const pst_real *scale);

/* x(n,dim) += y(n,dim). */
PST_API void pst_k_add(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *y, int64_t ld_y,
                       int64_t n, int64_t dim);

/* out(n,dim) = rows of float16 (or bfloat16) at src, which are stride_bytes apart. */
PST_API void pst_k_widen(struct pst_queue *q, const void *src, uint64_t stride_bytes, bool bfloat,
                         pst_real *out, int64_t ld, int64_t n, int64_t dim);

/* Dropout. The random numbers belong to the whole batch: they depend on (seed, epoch, batch, layer, global
 * vertex, column), so a micro-batch drops what the whole batch would. 16 bits decide a column, so the rate
 * is rounded to a multiple of 1/65536. Column j takes its bits from pst_rng_draw(stream, vertex, j / 128 *
 * 16 + j % 16), word j % 128 / 32, the low half if j % 32 < 16. It is dropped if they are below
 * pst_dropout_share(rate) * 65536. */
#define PST_DROPOUT_GROUP 128 /* columns that one group of 16 draws decides */
struct pst_dropout {
    uint64_t seed;
    uint32_t epoch;
    uint32_t layer;
    uint64_t batch;
    float rate; /* 0: off */
};
/* The share of columns that a rate drops: at least 1/65536 if the rate is above 0, and never all. */
static inline double pst_dropout_share(float rate)
{
    const double parts = (double)(int64_t)((double)rate * 65536.0 + 0.5);
    return rate <= 0 ? 0 : (parts < 1 ? 1 : parts > 65535 ? 65535 : parts) / 65536.0;
}

/* In place, in one pass: x = dropout(relu(x + bias)). bias may be NULL. vertices(n) are global ids. */
PST_API void pst_k_bias_relu_dropout(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *bias,
                                     const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                                     const struct pst_dropout *drop);
/* Its gradient, in place, from the output y: grad(n,dim). grad_bias(dim) += column sums, if it is not
 * NULL. */
PST_API void pst_k_bias_relu_dropout_grad(struct pst_queue *q, pst_real *grad, int64_t ld_grad,
                                          const pst_real *y, int64_t ld_y, const int64_t *vertices, int64_t n,
                                          int64_t dim, bool relu, const struct pst_dropout *drop,
                                          pst_real *grad_bias);

/* ---- GAT (Velickovic et al. 2018) ----------------------------------------------------------------
 *
 * z(sources, heads * dim) has the columns of head h at h * dim. left(dsts,heads) and right(sources,heads) are
 * the products of z's heads with two vectors. The score of an edge from u into v in head h is
 * LeakyReLU(left[v,h] + right[u,h]); that of v itself is LeakyReLU(left[v,h] + right[v,h]). The arrays with
 * heads numbers a row are contiguous. Arrays are of the whole block, also in calls for rows
 * first..first+n: these write only what belongs to those destinations and to the edges into them.
 *
 * Forward: gat_scores for left (of the destinations) and for right, gat_softmax, gat_sum.
 * Backward: gat_softmax_grad; gat_sum_grad; gat_scores_grad for right (of all sources) and for left.
 *
 * alpha_self NULL: destinations are not sources, so v itself does not count (attention within a relation). A
 * destination without edges then gets zeros, grad_self is not used, and nothing can be dropped. */
#define PST_GAT_SLOPE 0.2 /* of LeakyReLU below 0 (section 3.3) */
#define PST_GAT_HEADS_MAX 64
struct pst_gat {
    int64_t heads, dim; /* 1..PST_GAT_HEADS_MAX; columns of one head */
    bool average;       /* the output is the mean of the heads, in dim columns; else they are side by side */
};
static inline int64_t pst_gat_width(const struct pst_gat *gat) /* columns of the output */
{
    return gat->average ? gat->dim : gat->heads * gat->dim;
}

/* score(n,heads)[i,h] = the product of a[h] and head h of z[i]. a(heads,dim) is contiguous. */
PST_API void pst_k_gat_scores(struct pst_queue *q, const struct pst_gat *gat, const pst_real *z, int64_t ld,
                              int64_t n, const pst_real *a, pst_real *score);
/* Its gradient: grad_z[i] += grad_score[i,h] a[h] in the columns of head h; grad_a[h] += the sum over the
 * rows of grad_score[i,h] z[i]. */
PST_API void pst_k_gat_scores_grad(struct pst_queue *q, const struct pst_gat *gat, const pst_real *z,
                                   int64_t ld, int64_t n, const pst_real *a, const pst_real *grad_score,
                                   pst_real *grad_z, int64_t ld_grad, pst_real *grad_a);

/* Rows first..first+n: alpha(edges,heads) and alpha_self(dsts,heads) = the softmax of the scores of the edges
 * into d and of d itself. The largest score is subtracted first. Attention dropout: vertices(sources) are
 * global ids. Whether a coefficient is dropped depends only on (seed, epoch, batch, layer, v, u, head). A
 * dropped coefficient has its sign bit set, because the gradient needs its value; sums leave it out. */
PST_API void pst_k_gat_softmax(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                               int64_t first, int64_t n, const pst_real *left, const pst_real *right,
                               const int64_t *vertices, const struct pst_dropout *drop, pst_real *alpha,
                               pst_real *alpha_self);
/* Rows first..first+n: out[d] = the sum over d itself and the edges into d, in order, of alpha z[source],
 * head by head. With dropout, kept coefficients are divided by the share that is kept; drop is that of the
 * softmax. */
PST_API void pst_k_gat_sum(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                           int64_t first, int64_t n, const pst_real *alpha, const pst_real *alpha_self,
                           const struct pst_dropout *drop, const pst_real *z, int64_t ld_z, pst_real *out,
                           int64_t ld_out);
/* Rows first..first+n: the gradients of the scores, before LeakyReLU, from that of out:
 * grad_score(edges,heads), grad_self(dsts,heads), and grad_left(dsts,heads), the sum of both over d and the
 * edges into d. They are set, not added to. */
PST_API void pst_k_gat_softmax_grad(struct pst_queue *q, const struct pst_block *block,
                                    const struct pst_gat *gat, int64_t first, int64_t n, const pst_real *left,
                                    const pst_real *right, const pst_real *alpha, const pst_real *alpha_self,
                                    const struct pst_dropout *drop, const pst_real *z, int64_t ld_z,
                                    const pst_real *grad_out, int64_t ld_out, pst_real *grad_score,
                                    pst_real *grad_self, pst_real *grad_left);
/* What sources get, for the whole block, in columns column..column+width of z: grad_z[d] += alpha_self
 * grad_out[d], and then grad_z[indices[e]] += alpha grad_out[d] in the order of the edges. If grad_right is
 * not NULL, grad_right(sources,heads) gets grad_self and grad_score in the same way, whatever the columns. */
PST_API void pst_k_gat_sum_grad(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                                int64_t column, int64_t width, const pst_real *alpha,
                                const pst_real *alpha_self, const struct pst_dropout *drop,
                                const pst_real *grad_out, int64_t ld_out, pst_real *grad_z, int64_t ld_z,
                                const pst_real *grad_score, const pst_real *grad_self, pst_real *grad_right);

/* In place: x = dropout(elu(x + bias)), where elu(x) = x if x > 0, else exp(x) - 1 (Clevert et al. 2016).
 * bias may be NULL. vertices(n) are global ids. */
PST_API void pst_k_bias_elu_dropout(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *bias,
                                    const int64_t *vertices, int64_t n, int64_t dim,
                                    const struct pst_dropout *drop);
/* Its gradient, in place, from the output y. grad_bias(dim) += column sums, if it is not NULL. */
PST_API void pst_k_bias_elu_dropout_grad(struct pst_queue *q, pst_real *grad, int64_t ld_grad,
                                         const pst_real *y, int64_t ld_y, const int64_t *vertices, int64_t n,
                                         int64_t dim, const struct pst_dropout *drop, pst_real *grad_bias);

/* Normalisation, in place: layer norm over the columns of a row (Ba, Kiros, Hinton 2016), batch norm over
 * the rows (Ioffe & Szegedy 2015). The variance is increased by PST_NORM_EPS. xhat(n,dim) is contiguous;
 * rstd has n (layer) or dim (batch) elements. Both are for the gradient; layer norm takes NULL for both.
 * The running variance is the unbiased one. A batch of one row leaves the running mean and variance as
 * they are. */
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

/* Softmax cross-entropy over the rows whose label is not negative: *loss += sum of -log p / normaliser.
 * *correct counts rows whose largest logit is the label's, *counted counts rows. grad, if it is not NULL,
 * = (softmax - onehot) / normaliser, and 0 for the other rows. */
PST_API void pst_k_softmax_xent(struct pst_queue *q, const pst_real *logits, int64_t ld,
                                const int32_t *labels, int64_t n, int64_t classes, double normaliser,
                                pst_real *grad, int64_t ld_grad, double *loss, int64_t *correct,
                                int64_t *counted);

/* How a loss counts classes. */
struct pst_xent {
    const pst_real *weight; /* of each class, where the queue computes */
    double total;           /* their sum */
    double smoothing;       /* label smoothing (Szegedy et al. 2016, section 7): 0 <= smoothing < 1 */
};
/* The same with weights w and smoothing s: the loss of a row with label y is -(1 - s) w[y] log p[y] - s /
 * classes times the sum over all classes c of w[c] log p[c]. */
PST_API void pst_k_softmax_xent_weighted(struct pst_queue *q, const struct pst_xent *how,
                                         const pst_real *logits, int64_t ld, const int32_t *labels, int64_t n,
                                         int64_t classes, double normaliser, pst_real *grad, int64_t ld_grad,
                                         double *loss, int64_t *correct, int64_t *counted);

#define PST_LABEL_IGNORED 255 /* a label that counts nowhere */
enum pst_label_count {        /* of labels that are not ignored */
                       PST_LABEL_TRUE_POSITIVES,
                       PST_LABEL_FALSE_POSITIVES,
                       PST_LABEL_FALSE_NEGATIVES,
                       PST_LABELS_COUNTED,
                       PST_LABEL_COUNTS
};
/* Sigmoid and binary cross-entropy, for several labels a vertex: labels(n,classes) are 0, 1 or
 * PST_LABEL_IGNORED, and rows are ld_labels bytes apart. *loss += the sum over the labels that are not
 * ignored of their loss / normaliser. grad, if it is not NULL, = (sigmoid - label) / normaliser, and 0 where
 * the label is ignored. A class is predicted if its logit is above 0. counts[PST_LABEL_COUNTS] are added to;
 * micro-F1 is 2 TP / (2 TP + FP + FN). */
PST_API void pst_k_sigmoid_xent(struct pst_queue *q, const pst_real *logits, int64_t ld,
                                const uint8_t *labels, int64_t ld_labels, int64_t n, int64_t classes,
                                double normaliser, pst_real *grad, int64_t ld_grad, double *loss,
                                int64_t *counts);
/* Squared error, for outputs that are numbers: targets(n,columns), whose rows are ld_targets floats apart.
 * *loss += the sum of (output - target)^2 / normaliser. grad, if it is not NULL, = 2 * (output - target) /
 * normaliser. A NaN makes the loss NaN. */
PST_API void pst_k_squared_error(struct pst_queue *q, const pst_real *outputs, int64_t ld,
                                 const float *targets, int64_t ld_targets, int64_t n, int64_t columns,
                                 double normaliser, pst_real *grad, int64_t ld_grad, double *loss);

struct pst_adam {
    double rate, beta1, beta2, eps, weight_decay; /* weight_decay is an L2 penalty, added to the gradient */
    int64_t step;                                 /* 1 at the first call */
    bool decoupled; /* AdamW: weights are multiplied by 1 - rate * weight_decay instead */
};
/* One Adam step (Kingma & Ba 2015, algorithm 1) over n parameters. Decoupled: Loshchilov & Hutter 2019,
 * algorithm 2. */
PST_API void pst_k_adam(struct pst_queue *q, const struct pst_adam *opt, pst_real *w, const pst_real *g,
                        pst_real *m, pst_real *v, int64_t n);

struct pst_sgd {
    double rate, momentum, weight_decay; /* weight_decay is an L2 penalty, added to the gradient */
    bool nesterov;
};
/* One step of stochastic gradient descent with momentum over n parameters, in the form of Sutskever et al.
 * 2013, section 2, with the rate outside the sum: m = momentum m + g; then w -= rate m, or, with nesterov,
 * w -= rate (g + momentum m). m begins as zeros. */
PST_API void pst_k_sgd(struct pst_queue *q, const struct pst_sgd *opt, pst_real *w, const pst_real *g,
                       pst_real *m, int64_t n);

/* *sum = the sum of x[i]^2, in an order that depends only on n. */
PST_API void pst_k_square_sum(struct pst_queue *q, const pst_real *x, int64_t n, double *sum);
/* Clipping by the norm (Pascanu et al. 2013, algorithm 1): x is multiplied by most / (norm + 1e-6) if that is
 * below 1. norm is the square root of *square_sum, which lies where the queue computes. most > 0. */
#define PST_NORM_CLIP_EPS 1e-6
PST_API void pst_k_clip(struct pst_queue *q, pst_real *x, int64_t n, const double *square_sum, double most);

PST_END_DECLS
#endif
