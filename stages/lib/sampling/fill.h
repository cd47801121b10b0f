/* fill.h: fills a slot with a sampled minibatch, on the CPU. These functions work on memory that the caller
 * passes, and need no running stage. sampling.h calls them from its event handler.
 *
 * Owner: a filler belongs to its caller. It borrows graph, algorithm, labels and cache. Threads: one filler,
 * one thread. */
#ifndef PST_FILL_H
#define PST_FILL_H

#include "common/slots/minibatch.h"
#include "common/slots/request.h"
#include "stages/lib/sampling/cut.h"
#include "stages/lib/sampling/resident/clique_cache.h"

PST_BEGIN_DECLS

struct pst_filler {
    struct pst_minibatch_layout layout;
    struct pst_expander expander;
    struct pst_cut cut; /* if the algorithm needs whole batches (PST_SAMPLING_WHOLE) */
    int64_t fanout[PST_HOPS_MAX];
    const int32_t *labels; /* of every vertex; NULL: there are none */
    int64_t feature_dim;
    uint32_t feature_dtype;
    const struct pst_dataset *types;        /* the dataset, if its vertices have types; else NULL */
    uint64_t row_bytes;                     /* data bytes of a feature row */
    struct pst_sampling_pairs *pairs;       /* NULL: seeds are vertices, else rows of edges */
    const struct pst_cache *cache;          /* NULL: there is none */
    const char *cache_rows;                 /* layout.stride_bytes each */
    int64_t cache_n;                        /* how many rows it has; only rows in place need it */
    int64_t cache_gpu_rows;                 /* the first so many are the GPU tier's */
    struct pst_sampling_resident *resident; /* not NULL: rows and lists of a clique; cache is its index */
    /* What is read from the CPU tier passes it first. NULL: there is no bus. */
    void (*pass_bus)(struct pst_stage *stage, uint64_t bytes);
    struct pst_stage *stage; /* for pass_bus */
    int32_t *hit_pos, *hit_row, *miss_pos;
    /* time spent so far, in seconds; gather: lookup, copy and requests; lookup: gather without the copy */
    double gather_s, lookup_s, digest_s;
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
    uint32_t batch_seeds, grain; /* batch_seeds: of all replicas; the loss is divided by it */
    const int64_t *seeds;
    int64_t n;
    const int64_t
        *whole_seeds; /* of the batch, if it is sampled as a whole (PST_SAMPLING_WHOLE) or has pairs */
    int64_t whole_n;
    bool overlap; /* announce requests before cached rows are copied; false: one part, when all is done */
    bool early;   /* with overlap: announce the rows of a hop before the next hop is drawn */
};

/* Times from pst_now. end_s is 0 if there was no such work. */
struct pst_fill_span {
    double begin_s, end_s;
};

struct pst_fill_result {
    bool fits;
    bool crowded;   /* it does not fit, because features has no room for so many rows that are not cached */
    uint32_t parts; /* announced so far */
    uint64_t bytes_used, requests, lookups, hits;
    uint64_t gpu_hits; /* those of the hits that the GPU tier has */
    uint64_t in_place; /* those of the hits that were not copied to the slot */
    /* N, S and L of Hyperion's Figure 6 by hop; hop 0: the seeds */
    struct pst_fill_span sample[PST_HOPS_MAX + 1], submit[PST_HOPS_MAX + 1], lookup[PST_HOPS_MAX + 1];
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

/* The rows of the vertices that a hop adds. */
struct pst_fill_hop_rows {
    int hop;
    int64_t from, hits; /* the first vertex; how many of the rows are cached */
};

/* A micro-batch in the making. pst_sampling_fill makes it in one call. A caller that waits for parts of the
 * topology makes it in steps: it sets the first members and calls pst_fill_start. For each hop it may call
 * pst_fill_submit, and calls pst_expand_hop or pst_expand_drawn, which add to `count`. pst_fill_end comes
 * last. */
struct pst_fill_work {
    struct pst_filler *f;
    struct pst_expander *x;     /* of this work alone, like the next two */
    int32_t *hit_pos, *hit_row; /* room for every vertex */
    const struct pst_fill_job *job;
    char *slot;
    pst_fill_announce_fn announce;
    void *to;
    struct pst_fill_result *result;
    /* set by the functions below */
    struct pst_minibatch mb; /* the caller sets mb.n[hop + 1] = count after each hop */
    int64_t count;           /* vertices so far */
    int64_t provided;        /* how many of them have their rows found in the cache or requested */
    struct pst_fill_hop_rows rows[PST_HOPS_MAX + 1];
    int nrows;
    int64_t hits;       /* of all hops so far, one after the other in hit_pos and hit_row */
    int64_t stored;     /* rows in features so far */
    uint64_t announced; /* requests */
};

/* Begins with the seeds. Errors are those of pst_expand_seeds. */
PST_MUST_USE pst_rc pst_fill_start(struct pst_fill_work *w);
/* S of Hyperion's Figure 6: requests the rows of the vertices that came since the last call. PST_E_LIMIT and
 * result->crowded: features has no room for them, and pst_fill_end must get this error. */
PST_MUST_USE pst_rc pst_fill_submit(struct pst_fill_work *w, int hop);
/* Ends after the last hop, or after a step that returned rc, as pst_sampling_fill says. */
PST_MUST_USE pst_rc pst_fill_end(struct pst_fill_work *w, pst_rc rc);
/* The key of a hop's draws. */
struct pst_sample_key pst_fill_key(const struct pst_fill_job *job, int hop);

/* The header of an empty minibatch. */
struct pst_minibatch pst_fill_begin(const struct pst_filler *f, const struct pst_fill_job *job);
/* Makes the slot an empty minibatch. requests: how many were announced. */
void pst_fill_empty(const struct pst_filler *f, const struct pst_fill_job *job, char *slot,
                    uint64_t requests);
/* Writes labels, digest and header. Everything else is in the slot, and mb->n is set. stored: rows in
 * features. hashes: the sum of the hashes of all arrays (minibatch.h); NULL: it is computed here. */
void pst_fill_finish(struct pst_filler *f, const struct pst_fill_job *job, char *slot,
                     struct pst_minibatch *mb, uint64_t requests, int64_t stored, const uint64_t *hashes);
/* Writes requests for the rows of vertices from + positions[0..n), behind `before` earlier requests.
 * positions NULL: from + 0..n. If cached rows stay in place, these rows go to features side by side, behind
 * `stored` others. Returns how many requests it wrote: types without features need none. */
int64_t pst_fill_requests(const struct pst_filler *f, char *slot, int64_t from, const int32_t *positions,
                          int64_t n, uint64_t before, int64_t stored);

/* Turns a request for the row of a vertex into one for the array of its type. types: a dataset whose types
 * are joined (common/store/dataset/rows.h). row: where the row will be, of stride_bytes; what is not read of
 * it becomes zero. False: the type has no features, so nothing is read. */
PST_API bool pst_fill_request_of_type(const struct pst_dataset *types, uint64_t stride_bytes, char *row,
                                      struct pst_request *r);

/* Computes the size of the slot that the job needs. The job of a piece must be the last that was filled, if
 * the algorithm is PST_SAMPLING_WHOLE. It uses only the expander's graph and algorithm, layout.size.hops and
 * fanout. It allocates memory, and is meant for error messages. */
PST_API PST_MUST_USE pst_rc pst_sampling_measure(const struct pst_filler *f, const struct pst_fill_job *job,
                                                 struct pst_minibatch_size *needed);

PST_END_DECLS
#endif
