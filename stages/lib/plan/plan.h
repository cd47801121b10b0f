/* plan.h: the planner's decisions, on disk and in memory. A plan is a directory with four files: plan.json,
 * cache.npy and lists.npy (int64, ids of the vertices whose feature rows and whose lists of neighbours are
 * cached: those of the GPU tier, hottest first, then those of the CPU tier) and hotness.npy (float32, (hops +
 * 1) x vertices: the scores of hotness.h). plan.json is written last and has the checksums of cache.npy and
 * lists.npy, so a directory that has a plan.json is complete. If replicas share caches, shared_rows.npy,
 * shared_lists.npy (int64) and owners.npy (int8) have the arrays of struct pst_plan_caches.
 *
 * Owner: pst_plan_read fills what the caller owns; pst_plan_release releases it. Threads: any; the functions
 * have no state. */
#ifndef PST_PLAN_H
#define PST_PLAN_H

#include "common/slots/minibatch.h"
#include "stages/lib/plan/hotness.h"

PST_BEGIN_DECLS

#define PST_PLAN_VERSION 8
#define PST_PLAN_REPLICAS_MAX 16 /* as many as a pipeline can have (stage.h) */
#define PST_PLAN_OPTIONS_BYTES 256
#define PST_PLAN_POLICY_BYTES 96
#define PST_PLAN_ROWS_OF_ALL "rows of all parts"
#define PST_PLAN_BYTES_MAX (1u << 20) /* limit of plan.json: a hundred times its usual size */

/* The settings that a plan was made for. */
struct pst_plan_key {
    char dataset[17]; /* pst_dataset.digest */
    char split[PST_NAME_MAX];
    int hops;
    int64_t fanout[PST_HOPS_MAX];
    char fanouts[17]; /* the checksum of the fanouts of all edge types, if they differ; else "" */
    int64_t batch;
    char algorithm[PST_NAME_MAX];
    char options[PST_PLAN_OPTIONS_BYTES]; /* the algorithm's parameters, as the user wrote them */
    bool replace;
    char hotness[PST_NAME_MAX]; /* the name of the source; not "auto" */
    /* What the scores depend on besides: the checksum of a file, or the seed and epochs of an oracle; else ""
     */
    char hotness_id[PST_HOTNESS_ID_BYTES];
    uint64_t gpu_budget_bytes;   /* the GPU tier's memory */
    uint64_t cache_budget_bytes; /* the CPU tier's */
    /* How lists and rows share the tiers, as text that two plans are compared by; "rows": rows only;
     * PST_PLAN_ROWS_OF_ALL: the same, where a rank that has a part of a cut dataset caches rows of all parts
     */
    char policy[PST_PLAN_POLICY_BYTES];
};

/* The vertices of which something is cached. */
struct pst_plan_tiers {
    int64_t n;     /* in both tiers */
    int64_t gpu_n; /* the first so many ids are the GPU tier's */
    int64_t *ids;  /* those of each tier hottest first; allocated */
};

/* Caches that replicas of the sampler have for one another (Legion, section 4.2). Replicas that can read each
 * other's memory are a group: a clique. All ids of a replica ascend. */
struct pst_plan_caches {
    int replicas; /* 0: there are none, and each sampler keeps the rows and lists of the tiers */
    int64_t group[PST_PLAN_REPLICAS_MAX]; /* of each replica */
    /* Replica r has the rows of ids[begin[r]] to ids[begin[r + 1] - 1]; and so for lists. The GPU tiers are
     * empty. */
    struct pst_plan_tiers rows, lists;
    int64_t rows_begin[PST_PLAN_REPLICAS_MAX + 1], lists_begin[PST_PLAN_REPLICAS_MAX + 1];
    int64_t line_bytes; /* of a PCIe transaction, which the policy counted */
    int8_t *owner; /* of each vertex: the replica that has it as a seed; NULL: seeds are not of the plan */
};

struct pst_plan {
    struct pst_plan_key key;
    int64_t vertices;
    uint64_t seed;                 /* of the pre-sampling; only an oracle uses the run's */
    int64_t epochs;                /* pre-sampled */
    int64_t batches;               /* of these epochs */
    int64_t sampled;               /* batches that were pre-sampled, at most `batches` */
    struct pst_minibatch_size max; /* the largest count of any batch, for each hop */
    double predicted_hit_rate;     /* of the rows in both tiers */
    int64_t max_misses;            /* of rows, of any of some later batches; -1: unknown */
    struct pst_plan_tiers rows, lists;
    struct pst_plan_caches caches;
};

/* How many rows that are not cached a slot should hold, if cached rows stay in the sampler's cache: all rows
 * of the largest batch, unless max_misses says that fewer do. */
PST_API int64_t pst_plan_stored(const struct pst_plan *plan);

/* Writes the plan's files to dir, which is made if it does not exist. Each file is replaced as a whole,
 * plan.json last. scores: (hops + 1) x vertices. path gets the path of plan.json. */
PST_API PST_MUST_USE pst_rc pst_plan_write(const struct pst_plan *plan, const float *scores, const char *dir,
                                           char *path, size_t path_bytes);

/* Reads and checks plan.json at path, and cache.npy and lists.npy beside it. PST_E_FORMAT: the message says
 * what is wrong. */
PST_API PST_MUST_USE pst_rc pst_plan_read(struct pst_plan *plan, const char *path);
PST_API void pst_plan_release(struct pst_plan *plan);
/* Reads the plan's scores of feature rows, the last row of hotness.npy beside plan.json. path: of plan.json.
 * *hotness is allocated, one for each vertex; the caller frees it, also after an error. PST_E_NOMEM,
 * PST_E_IO; PST_E_ARG: the file does not fit the plan. */
PST_API PST_MUST_USE pst_rc pst_plan_hotness(const struct pst_plan *plan, const char *path, float **hotness);

/* Settings that pst_plan_match compares in addition to dataset, split, fanout and batch. ALGORITHM includes
 * options and replace. */
enum pst_plan_part { PST_PLAN_ALGORITHM = 1u << 0, PST_PLAN_BUDGET = 1u << 1, PST_PLAN_HOTNESS = 1u << 2 };

/* PST_E_ARG: the plan was made for other settings; the message names all differences, and path. */
PST_API PST_MUST_USE pst_rc pst_plan_match(const struct pst_plan *plan, const struct pst_plan_key *want,
                                           unsigned parts, const char *path);

/* Chooses the `rows` vertices with the highest scores, none of which may be negative. Among equal scores,
 * lower ids come first. *cache is allocated and gets *cached = min(rows, vertices) ids, hottest first. */
PST_API PST_MUST_USE pst_rc pst_plan_choose(const float *scores, int64_t vertices, int64_t rows,
                                            int64_t **cache, int64_t *cached);

/* Keeps the ids from first to end - 1 (inside), or all others. They keep their order and their tiers. */
PST_API void pst_plan_keep(struct pst_plan_tiers *tiers, int64_t first, int64_t end, bool inside);

/* Predicts how many of a pre-sampled batch's n vertices a cache of `cached` rows would hit. Each vertex of
 * the batch is counted once in counts. The prediction excludes the batch, because a cache chosen with it
 * would make the prediction too good. For vertices that are as hot as the last cached ones, it uses the
 * expected number of hits. counts is changed during the call and restored. */
PST_API PST_MUST_USE pst_rc pst_plan_predict(uint32_t *counts, int64_t vertices, int64_t cached,
                                             const int64_t *ids, int64_t n, double *hits);

PST_END_DECLS
#endif
