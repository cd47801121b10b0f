/* fill.h: how a sampled minibatch comes to lie in a slot. Pure functions over memory that the caller gives:
 * no host, no ports. sampling.h drives them from events; the planner uses the expansion alone; a test calls
 * them as they are. Owner: a filler belongs to its caller and borrows graph, labels and cache. Threads: one
 * filler, one thread. */
#ifndef PST_FILL_H
#define PST_FILL_H

#include "kernels/kernels.h"
#include "common/slots/minibatch.h"

PST_BEGIN_DECLS

/* A sampling algorithm: in-neighbours of each of n vertices, as pst_k_sample describes them: indptr gets n+1
 * offsets, out the ids. At most `fanout` a vertex, or at most its degree when fanout is -1. Equal
 * (key, vertex) must give equal neighbours, whatever else is in vertices: batches may be split. PST_E_LIMIT
 * when they do not fit capacity. */
typedef pst_rc (*pst_sample_fn)(void *user, const struct pst_csc *graph, const struct pst_sample_key *key,
                                const int64_t *vertices, int64_t n, int fanout, int32_t *indptr, int64_t *out,
                                int64_t capacity);

/* What no batch of `batch` seeds can exceed. */
PST_API void pst_minibatch_size_bound(struct pst_minibatch_size *size, const struct pst_csc *graph,
                                      const int64_t *fanout, int hops, int64_t batch);
/* ---- expansion: one hop at a time ---------------------------------------------------------------- */

struct pst_expander {
    const struct pst_csc *graph;
    pst_sample_fn sample;
    void *user;
    int64_t vertices_max, edges_max; /* what table and ids can hold */
    struct pst_dedup *table;
    void *table_memory;
    int64_t *ids;             /* edges_max sampled ids, before relabelling */
    double sample_s, dedup_s; /* spent so far */
};

/* vertices_max: distinct vertices of one minibatch; edges_max: edges of one hop. Allocates. */
PST_API PST_MUST_USE pst_rc pst_expander_init(struct pst_expander *x, const struct pst_csc *graph,
                                              pst_sample_fn sample, void *user, int64_t vertices_max,
                                              int64_t edges_max);
PST_API void pst_expander_release(struct pst_expander *x);

/* Begins a minibatch: vertices[0..*count) = seeds without repeats. seeds: n ids, each checked. */
PST_API PST_MUST_USE pst_rc pst_expand_seeds(struct pst_expander *x, const int64_t *seeds, int64_t n,
                                             int64_t *vertices, int64_t *count, int64_t capacity);

/* One hop: samples for vertices[0..*count), appends the newcomers and writes the block: indptr (old *count
 * + 1), indices (edge_capacity). PST_E_LIMIT: it does not fit; the minibatch must be begun anew.
 * PST_E_FORMAT: the topology is damaged; the message names the vertex. */
PST_API PST_MUST_USE pst_rc pst_expand_hop(struct pst_expander *x, const struct pst_sample_key *key,
                                           int fanout, int64_t *vertices, int64_t *count, int64_t capacity,
                                           int32_t *indptr, int32_t *indices, int64_t edge_capacity);

/* ---- filling ------------------------------------------------------------------------------------ */

struct pst_filler {
    struct pst_minibatch_layout layout;
    struct pst_expander expander;
    int64_t fanout[PST_HOPS_MAX];
    const int32_t *labels; /* of every vertex; NULL: none */
    int64_t feature_dim;
    uint32_t feature_dtype;
    uint64_t row_bytes;            /* of a feature row that are data */
    const struct pst_cache *cache; /* NULL: none */
    const char *cache_rows;        /* layout.stride_bytes each */
    int32_t *hit_pos, *hit_row, *miss_pos;
    double gather_s, digest_s; /* spent so far; gather: looked up, copied, asked for */
};

/* Allocates the scratch; the fields up to cache_rows have been set by the caller. */
PST_API PST_MUST_USE pst_rc pst_filler_init(struct pst_filler *f, const struct pst_csc *graph,
                                            pst_sample_fn sample, void *user);
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
};

struct pst_fill_result {
    bool fits;
    uint32_t parts; /* announced so far */
    uint64_t bytes_used, requests, lookups, hits;
};

/* Called when rows are known that the disk must bring: `count` requests from byte `first_at` of the slot on.
 * last: the slot is complete. Parts without requests are left out unless they are last. */
typedef pst_rc (*pst_announce_fn)(void *user, uint32_t part, uint64_t first_at, uint64_t count, bool last);

/* Fills a slot of layout.bytes. When the sample does not fit, it leaves a void minibatch (no vertices),
 * announces nothing further and says so in result. */
PST_API PST_MUST_USE pst_rc pst_sampling_fill(struct pst_filler *f, const struct pst_fill_job *job,
                                              void *slot, pst_announce_fn announce, void *user,
                                              struct pst_fill_result *result);

/* What job would have needed: size with no limit but pst_minibatch_size_bound. Allocates; for error messages.
 */
PST_API PST_MUST_USE pst_rc pst_sampling_measure(const struct pst_filler *f, const struct pst_fill_job *job,
                                                 struct pst_minibatch_size *needed);

/* ---- pieces: how a batch is cut into micro-batches ----------------------------------------------- */

/* The seeds [done, ends[depth - 1]) come next; ends is a stack, nearest on top. ends has room for as many
 * as the batch has seeds. */
struct pst_splits {
    int64_t done;
    int64_t depth;
    int64_t *ends;
};
/* Cuts n seeds into equal pieces of at most `most`: sizes alone decide, never history. */
PST_API void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most);
/* The current piece; false when none remains. */
PST_API bool pst_splits_next(const struct pst_splits *p, int64_t *begin, int64_t *n, bool *last);
PST_API void pst_splits_pop(struct pst_splits *p);
/* Cuts the current piece in two, and the later ones as small: they would hardly fit either. False if it is
 * one seed. */
PST_API bool pst_splits_split(struct pst_splits *p);

PST_END_DECLS
#endif
