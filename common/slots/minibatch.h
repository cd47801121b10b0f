/* minibatch.h: a sampled minibatch in a slot: its header, its size and layout, and its check. Samplers write
 * it, the disk stage adds feature rows, and trainers read it.
 *
 * The slot begins with struct pst_minibatch. These arrays follow, at the byte offsets that the header names:
 *
 * - vertices: int64[n[hops]]. Global ids: the seeds, then the vertices that each hop adds.
 * - labels: int32[n[0]]. Labels of the seeds; -1: no label.
 * - indptr[h]: int32[n[h] + 1]. Block of hop h: where each destination's neighbours begin in indices[h].
 * - indices[h]: int32[indptr[h][n[h]]]. Block of hop h: positions (0..n[h+1]-1) of the sampled in-neighbours.
 * - weights[h]: float32[indptr[h][n[h]]], if the sampler weighs edges; else weights_at[h] is 0. The share of
 *   each edge in the mean over the sampled in-neighbours. The shares of a destination sum to 1. Without them,
 *   all edges of a destination have equal shares.
 * - relations[h]: int32[indptr[h][n[h]]], if the sampler tells relations apart; else relations_at[h] is 0.
 *   The relation of each edge: the number of its type in the dataset.
 * - pairs: int32[pairs][2], if the seeds of the batch are edges; else pairs_at is 0. The positions of both
 *   ends (below n[0]) of each pair of vertices: first the `positives`, which are the seeds, then the
 *   negatives, which are as many for each seed. The seeds of the first hop are the ends of all pairs.
 * - requests: struct pst_request[]. Rows that the disk stage reads (request.h), one row each.
 * - missing: int32[requests]. The position in features of each requested row, in the same order.
 * - features: n[hops] rows. Row i belongs to vertices[i] and begins at i * stride_bytes. If vertices have
 *   types, whose rows may be narrower, a row is zero behind its own columns.
 * - in_place: int32[n[hops]], if cached rows are not in features, but stay in the sampler's cache; else
 *   in_place_at is 0. The number of the row there. A negative number, -1 - r, stands for row r of features,
 *   which then has only rows that are not cached, side by side. The cache is the memory that the
 *   sampler shares (pst_shared_from in stage.h), and begins with its rows, stride_bytes each.
 *
 * Hop 0 is the hop next to the seeds. The destinations of hop h are vertices 0..n[h]-1. Its sources are
 * vertices 0..n[h+1]-1. So the destinations are the first of the sources.
 *
 * Cached rows may travel in a separate slot, from the output `cached` of a sampler or a cache. That slot has
 * row i at i * stride_bytes, and features has only the rows that `missing` lists. A cache on a GPU puts some
 * of the rows that were read there, too. Then it takes them off `missing`, `requests` and `served`.
 *
 * If a stage on a GPU fills the slot, kernels may still be copying cached rows when the last frame comes
 * (pst_stream in stage.h). Everything else is complete.
 *
 * Empty slots. If a sample does not fit its slot, and some of its rows were already announced, the slot is
 * sent on empty: n[h] is 0 for every h, and last_micro is 0. The batch's seeds follow in smaller
 * micro-batches. `requests` still counts the announced rows. The disk stage has read them, but no stage uses
 * them. A stage that gets an empty slot releases it and continues.
 *
 * Owner: the caller owns all structures. Threads: the functions are pure. */
#ifndef PST_MINIBATCH_H
#define PST_MINIBATCH_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_MINIBATCH_GRAINS_MAX 64 /* of a batch: four for each replica */

#define PST_MINIBATCH_MAGIC 0x3862696e696d7470ull /* "ptminib8" */

/* README.md lists the byte offset of each field, for stages in other languages. */
struct pst_minibatch {
    uint64_t magic;
    uint64_t bytes_used; /* of the slot, including the header */
    uint64_t seed;
    uint32_t epoch;
    uint32_t hops;
    uint64_t batch;          /* counts over the run, from 0 */
    uint64_t batch_in_epoch; /* counts over the epoch, from 0 */
    uint64_t batches_in_epoch;
    uint32_t micro;       /* counts over the batch, from 0 */
    uint32_t last_micro;  /* 1: the last micro-batch of its batch; else 0 */
    uint32_t batch_seeds; /* seeds (with pairs: edges) of the whole batch: the loss is divided by it */
    uint32_t feature_dim;
    uint32_t feature_dtype; /* enum pst_dtype of dtype.h */
    uint32_t requests;      /* rows announced to the disk stage, over all parts */
    uint32_t served;        /* number of requested rows that have been read; the sampler writes 0 */
    uint32_t grain;         /* which of the batch's grains (parameter `grains`) these seeds belong to */
    uint64_t stride_bytes;  /* from one feature row to the next */
    uint64_t digest;        /* of n, vertices and blocks (below): equal samples have equal digests */
    int64_t n[PST_HOPS_MAX + 1];
    uint64_t vertices_at, labels_at, features_at, requests_at, missing_at;
    uint64_t indptr_at[PST_HOPS_MAX], indices_at[PST_HOPS_MAX];
    uint64_t weights_at[PST_HOPS_MAX];   /* 0: the edges have no weights */
    uint64_t relations_at[PST_HOPS_MAX]; /* 0: the edges have no relations */
    uint64_t pairs_at;                   /* 0: the seeds are vertices, and there are no pairs */
    uint32_t pairs, positives;
    uint64_t in_place_at;   /* 0: features has all rows */
    uint64_t in_place_rows; /* of the sampler's cache */
};

/* The digest is XXH3 of n[0..hops], with a seed: the sum of the hashes of the arrays, modulo 2^64. An array's
 * hash is what pst_k_copy_digest (kernels.h) adds for it, with one of these numbers for `array`. Of
 * indptr[h], the first number, which is 0, is left out. */
enum { PST_MINIBATCH_INDPTR, PST_MINIBATCH_INDICES, PST_MINIBATCH_WEIGHTS, PST_MINIBATCH_RELATIONS };
#define PST_MINIBATCH_DIGEST_VERTICES 0
#define PST_MINIBATCH_DIGEST_PAIRS (1 + 4 * (uint64_t)PST_HOPS_MAX)
#define PST_MINIBATCH_DIGEST_OF(hop, which) (1 + 4 * (uint64_t)(hop) + (uint64_t)(which))

static inline void *pst_minibatch_at(const struct pst_minibatch *mb, uint64_t offset)
{
    return (char *)(uintptr_t)mb + offset;
}

/* ---- size and layout ------------------------------------------------------------------------------ */

/* The number of vertices after each hop (n[0]: seeds), and of edges in each hop. */
struct pst_minibatch_size {
    int hops;
    int64_t n[PST_HOPS_MAX + 1];
    int64_t edges[PST_HOPS_MAX];
    bool weights;   /* edges have weights */
    bool relations; /* edges have relations */
    int64_t stored; /* cached rows stay in the sampler's cache, and features holds so many others; 0: it holds
                       all n[hops] rows */
    int64_t pairs;  /* 0: seeds are vertices */
};

/* Local positions and offsets are int32, so no count of a minibatch may be larger. */
#define PST_MINIBATCH_COUNT_MAX ((int64_t)INT32_MAX)

/* *size = base * margin, rounded up, at most bound and at least 1 everywhere; `stored` is at most n[hops],
 * and stays 0. margin: above 0. */
PST_API void pst_minibatch_size_scale(struct pst_minibatch_size *size, const struct pst_minibatch_size *base,
                                      const struct pst_minibatch_size *bound, double margin);

/* Where each array lies in a slot that holds minibatches up to a size. The features are the last
 * `features_bytes` of the slot; a slot of cached rows has exactly `features_bytes`. */
struct pst_minibatch_layout {
    struct pst_minibatch_size size;
    uint64_t stride_bytes;
    uint64_t vertices_at, labels_at, requests_at, missing_at, features_at;
    uint64_t indptr_at[PST_HOPS_MAX], indices_at[PST_HOPS_MAX], weights_at[PST_HOPS_MAX];
    uint64_t relations_at[PST_HOPS_MAX];
    uint64_t pairs_at;       /* 0: there are no pairs */
    uint64_t in_place_at;    /* 0: features has all rows */
    uint64_t features_bytes; /* whole pages, at least one */
    uint64_t bytes;          /* of the whole slot: features_at + features_bytes */
};
/* stride_bytes: 0 if the vertices have no features. */
PST_API void pst_minibatch_layout_init(struct pst_minibatch_layout *layout,
                                       const struct pst_minibatch_size *size, uint64_t stride_bytes);

/* Computes features_at from the sizes of slots alone: those of batches, and those of cached rows (0: there
 * are no slots of cached rows, and the result is slot_bytes). All other arrays end before it. */
PST_API uint64_t pst_minibatch_features_at(uint64_t slot_bytes, uint64_t cached_slot_bytes);

/* Writes the layout into a header: hops, stride_bytes and all offsets. bytes_used becomes features_at. */
PST_API void pst_minibatch_place(struct pst_minibatch *mb, const struct pst_minibatch_layout *layout);

/* ---- reading -------------------------------------------------------------------------------------- */

/* Copies the header of a slot and checks it: all offsets and counts lie within `bytes`, arrays do not
 * overlap, local positions are in range. Use *header from then on, because the process that wrote the slot
 * can still change it. PST_E_FORMAT: the slot does not hold a valid minibatch. */
PST_API PST_MUST_USE pst_rc pst_minibatch_read(const struct pst_minibatch *slot, uint64_t bytes,
                                               struct pst_minibatch *header);
static inline pst_rc pst_minibatch_check(const struct pst_minibatch *mb, uint64_t bytes)
{
    struct pst_minibatch header;
    return pst_minibatch_read(mb, bytes, &header);
}

/* For a stage that has served n requests of a slot, all parts of which have come: adds n to `served`. Does
 * nothing if the slot does not hold a minibatch. */
PST_API void pst_minibatch_serve(void *slot, uint64_t bytes, uint64_t n);

/* For a stage that uses feature rows: PST_E_PEER unless all requests were served. Unserved rows contain
 * zeros, or rows of an earlier batch. An empty minibatch always passes, because it has no rows. */
PST_API PST_MUST_USE pst_rc pst_minibatch_check_served(const struct pst_minibatch *header);

PST_END_DECLS
#endif
