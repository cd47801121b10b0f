/* plan.h: what the planner decided, on disk: plan.json, cache.npy (int64 vertex ids, hottest first) and
 * hotness.npy (uint32, row 0 topology, row 1 features) in one directory. plan.json is written last, so a
 * directory that has one is whole; it carries the checksum of cache.npy.
 * Owner: pst_plan_read fills what the caller owns; pst_plan_release releases it. Threads: none of its own. */
#ifndef PST_PLAN_H
#define PST_PLAN_H

#include "common/slots/minibatch.h"

PST_BEGIN_DECLS

#define PST_PLAN_VERSION 2
#define PST_PLAN_OPTIONS_BYTES 256
#define PST_PLAN_BYTES_MAX (1u << 20) /* of plan.json: a hundred times what one needs */

/* What a plan was made for; it may serve only that. */
struct pst_plan_key {
    char dataset[17]; /* pst_dataset.digest */
    char split[PST_NAME_MAX];
    int hops;
    int64_t fanout[PST_HOPS_MAX];
    int64_t batch;
    char algorithm[PST_NAME_MAX];
    char options[PST_PLAN_OPTIONS_BYTES]; /* the algorithm's own parameters, as they were given */
    bool replace;
    uint64_t cache_budget_bytes;
};

struct pst_plan {
    struct pst_plan_key key;
    int64_t vertices;
    uint64_t seed;                 /* of the pre-sampling, not of the run */
    int64_t epochs;                /* pre-sampled */
    int64_t batches;               /* pre-sampled */
    struct pst_minibatch_size max; /* the largest of any batch */
    double predicted_hit_rate;
    int64_t cached;
    int64_t *cache; /* cached vertex ids, hottest first; malloc'ed */
};

/* What pst_plan_match compares besides dataset, split, fanout and batch. ALGORITHM: also options and replace.
 */
enum pst_plan_part { PST_PLAN_ALGORITHM = 1u << 0, PST_PLAN_BUDGET = 1u << 1 };

/* Writes dir (made if it is not there), every file aside and renamed, plan.json last. hotness: 2 * vertices
 * counts. path gets the path of plan.json. */
PST_API PST_MUST_USE pst_rc pst_plan_write(const struct pst_plan *plan, const uint32_t *hotness,
                                           const char *dir, char *path, size_t path_bytes);

/* Reads and validates path and the cache.npy beside it. PST_E_FORMAT names what is wrong. */
PST_API PST_MUST_USE pst_rc pst_plan_read(struct pst_plan *plan, const char *path);
PST_API void pst_plan_release(struct pst_plan *plan);

/* PST_E_ARG, naming every field that differs. Dataset, split, fanout and batch are always compared; parts
 * says what else. path is for the message. */
PST_API PST_MUST_USE pst_rc pst_plan_match(const struct pst_plan *plan, const struct pst_plan_key *want,
                                           unsigned parts, const char *path);

/* Chooses the `rows` hottest vertices, ties by id: cache gets min(rows, vertices) ids. Returns how many. */
PST_API PST_MUST_USE pst_rc pst_plan_choose(const uint32_t *hotness, int64_t vertices, int64_t rows,
                                            int64_t **cache, int64_t *cached);

/* How many of a pre-sampled batch's n vertices (each counted in hotness once) a cache of `cached` rows would
 * hold that had been chosen without that batch: chosen with it, it would be an oracle. Where counts tie, the
 * expected number. hotness is changed on the way and restored. */
PST_API PST_MUST_USE pst_rc pst_plan_predict(uint32_t *hotness, int64_t vertices, int64_t cached,
                                             const int64_t *ids, int64_t n, double *hits);

PST_END_DECLS
#endif
