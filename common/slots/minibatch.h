/* minibatch.h: how a sampled minibatch lies in a slot: what samplers write, disks fill and trainers read.
 *
 * One header, then arrays at the byte offsets that it names, all within the slot:
 *
 *   vertices  int64[n[hops]]            global ids; seeds first, then each hop's newcomers
 *   labels    int32[n[0]]               of the seeds; -1 none
 *   indptr[h] int32[n[h] + 1]           block of hop h (0-based): CSC over destinations 0..n[h]-1
 *   indices[h] int32[indptr[h][n[h]]]   local positions (0..n[h+1]-1) of the sampled in-neighbours
 *   features  stride_bytes * n[hops]    row i belongs to vertices[i]; PST_PAGE-aligned
 *   requests  struct pst_request[]      rows that the disk must bring (request.h), one each
 *   missing   int32[requests]           which: positions in features, in the order of the requests
 *
 * Where a stage on a GPU fills it, all but the features is there when its frame comes (pst_stream of
 * stage.h); where its sampler sends cached rows by themselves (its output `cached`: row i at i *
 * stride_bytes), features has only those that are missing. Destinations of each block are a prefix of its
 * sources. Hop 0 is next to the seeds. */
#ifndef PST_MINIBATCH_H
#define PST_MINIBATCH_H

#include "common/base.h"

#define PST_MINIBATCH_MAGIC 0x3362696e696d7470ull /* "ptminib3" */

struct pst_minibatch {
    uint64_t magic;
    uint64_t bytes_used; /* of the slot, header included */
    uint64_t seed;
    uint32_t epoch;
    uint32_t hops;
    uint64_t batch;          /* over the run */
    uint64_t batch_in_epoch; /* 0.. */
    uint64_t batches_in_epoch;
    uint32_t micro;
    uint32_t last_micro;  /* 1: the batch's gradients are complete after this one */
    uint32_t batch_seeds; /* seeds of the whole batch: the loss normaliser */
    uint32_t feature_dim;
    uint32_t feature_dtype; /* enum pst_dtype of store.h */
    uint32_t requests;      /* rows asked of the disk in all parts */
    uint32_t served;        /* how many of them have been read; whoever fills the slot writes 0 */
    uint32_t reserved;      /* 0 */
    uint64_t stride_bytes;
    uint64_t digest; /* XXH3 over vertices and blocks: equal samples, equal digests */
    int64_t n[PST_HOPS_MAX + 1];
    uint64_t vertices_at, labels_at, features_at, requests_at, missing_at;
    uint64_t indptr_at[PST_HOPS_MAX], indices_at[PST_HOPS_MAX];
};

static inline void *pst_minibatch_at(const struct pst_minibatch *mb, uint64_t offset)
{
    return (char *)(uintptr_t)mb + offset;
}

/* Checks that a slot holds a minibatch whose offsets and counts lie within bytes and whose local
 * positions are in range: what came from another process is not believed. *header gets the header that was
 * checked, which that process cannot change any more. PST_E_FORMAT. */
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

/* For a stage that uses feature rows: PST_E_PEER unless all requests were served. Rows of requests that
 * nobody has served hold zeros, or rows of an earlier batch. An empty minibatch always passes, because it has
 * no rows. */
PST_API PST_MUST_USE pst_rc pst_minibatch_check_served(const struct pst_minibatch *header);

#endif
