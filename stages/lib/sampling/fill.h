/* fill.h: fills a slot with a sampled minibatch, on the CPU. These functions work on memory that the caller
 * passes, and need no running stage. sampling.h calls them from its event handler.
 *
 * Owner: a filler belongs to its caller. It borrows graph, algorithm, labels and cache. Threads: one filler,
 * one thread. */
#ifndef PST_FILL_H
#define PST_FILL_H

#include "common/slots/minibatch.h"
#include "stages/lib/sampling/expand.h"

PST_BEGIN_DECLS

struct pst_filler {
    struct pst_minibatch_layout layout;
    struct pst_expander expander;
    int64_t fanout[PST_HOPS_MAX];
    const int32_t *labels; /* of every vertex; NULL: there are none */
    int64_t feature_dim;
    uint32_t feature_dtype;
    uint64_t row_bytes;            /* data bytes of a feature row */
    const struct pst_cache *cache; /* NULL: there is none */
    const char *cache_rows;        /* layout.stride_bytes each */
    int32_t *hit_pos, *hit_row, *miss_pos;
    double gather_s, digest_s; /* time spent so far, in seconds; gather: lookup, copy and requests */
};

/* The caller must have set the fields from layout to cache_rows. Allocates the rest. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_filler_init(struct pst_filler *f, const struct pst_csc *graph,
                                            const struct pst_sampling_opened *algorithm);
PST_API void pst_filler_release(struct pst_filler *f);

/* One micro-batch to be made. */
struct pst_fill_job {
    uint64_t seed;
    uint32_t epoch;
    uint64_t batch, batch_in_epoch, batches_in_epoch;
    uint32_t micro;
    bool last_micro;
    uint32_t batch_seeds;
    const int64_t *seeds;
    int64_t n;
    bool early; /* announce the rows of a hop before the next hop is drawn */
};

struct pst_fill_result {
    bool fits;
    uint32_t parts; /* announced so far */
    uint64_t bytes_used, requests, lookups, hits;
};

/* Announces requests to the disk stage: `count` requests, the first at byte `first_at` of the slot. last: the
 * slot is complete. It is not called for 0 requests, except as the last call. `to` is the caller's pointer.
 */
typedef pst_rc (*pst_fill_announce_fn)(void *to, uint32_t part, uint64_t first_at, uint64_t count, bool last);

/* Fills a slot of layout.bytes. If the sample does not fit, result->fits is false and nothing more is
 * announced. If parts were already announced, the slot holds an empty minibatch (minibatch.h), which the
 * caller must send on. Otherwise the caller may fill the slot again. */
PST_API PST_MUST_USE pst_rc pst_sampling_fill(struct pst_filler *f, const struct pst_fill_job *job,
                                              void *slot, pst_fill_announce_fn announce, void *to,
                                              struct pst_fill_result *result);

/* Computes the size of the slot that the job needs. It uses only the expander's graph and algorithm,
 * layout.size.hops and fanout. It allocates memory, and is meant for error messages. */
PST_API PST_MUST_USE pst_rc pst_sampling_measure(const struct pst_filler *f, const struct pst_fill_job *job,
                                                 struct pst_minibatch_size *needed);

PST_END_DECLS
#endif
