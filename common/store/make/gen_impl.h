/* gen_impl.h: functions shared by the generators. Owner: the caller. Threads: one. */
#ifndef PST_GEN_IMPL_H
#define PST_GEN_IMPL_H

#include "common/store/build/csc_builder.h"

#define PST_GEN_THREADS 2 /* one gives edges, one sorts: drawing is what takes long */

/* Gives edges first .. first+count-1 (count <= PST_CSC_BUILDER_EDGE_BLOCK); it is called for all edges in
 * order. */
typedef pst_rc (*pst_gen_edges_fn)(void *ctx, int64_t first, int64_t count, int64_t *source, int64_t *target);

/* Draws `edges` edges and writes the topology, within the spec's memory; b is the spec's builder. */
PST_MUST_USE pst_rc pst_gen_topology(const struct pst_csc_builder_spec *spec, int64_t vertices, int64_t edges,
                                     pst_gen_edges_fn fn, void *ctx, struct pst_progress *progress);

/* Fills `rows` rows of dim elements, `stride` elements apart, from vertex `first` on; padding is zero
 * already. */
typedef pst_rc (*pst_gen_feature_fn)(const void *ctx, int64_t first, int64_t rows, int64_t dim,
                                     int64_t stride, void *out);

/* Streams features through one buffer; notes feature_dim and stride in the manifest, of one type of vertices
 * or, type -1, of all. dim 0: none. stride_bytes 0: pst_stride_for. */
PST_MUST_USE pst_rc pst_gen_features(struct pst_build *b, int type, int64_t vertices, int64_t dim,
                                     enum pst_dtype dtype, uint64_t stride_bytes, pst_gen_feature_fn fn,
                                     const void *ctx, struct pst_progress *progress);

/* Features of vertex v with nothing to learn in them: uniform in [-1, 1), on a grid of 2^-23, which any
 * float32 pipeline keeps as it is. */
void pst_gen_uniform(uint64_t seed, int64_t v, int64_t dim, float *out);

/* Writes train, val and test: disjoint random sets of these sizes, ids ascending. An empty one is left out.
 */
PST_MUST_USE pst_rc pst_gen_splits(struct pst_build *b, int64_t vertices, const int64_t count[3],
                                   uint64_t seed);

#endif
