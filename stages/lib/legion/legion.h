/* legion.h: plans the caches of a machine's devices by one of the policies of Legion (Sun et al., ATC 2023):
 * cliques, parts of the graph, shares of the training vertices, hotness sampled ahead, the share of the cache
 * for lists, and the placement.
 *
 * Owner: pst_legion_init fills what the caller owns and must not move; the caller lends graph, algorithm,
 * fanout and training vertices. Threads: one at a time (partition.h). */
#ifndef PST_LEGION_H
#define PST_LEGION_H

#include "stages/lib/legion/cost.h"
#include "stages/lib/legion/partition.h"

PST_BEGIN_DECLS

#define PST_LEGION_SEARCH (-1) /* of alpha */

/* Whether each device has its own training vertices. */
enum pst_legion_seeds { PST_LEGION_SEEDS_OF_POLICY, PST_LEGION_SEEDS_LOCAL, PST_LEGION_SEEDS_GLOBAL };

struct pst_legion_config {
    enum pst_legion_policy policy;
    bool cslp_as_printed; /* cslp.h */
    const struct pst_csc *graph;
    const struct pst_sampling_opened *algorithm;
    int hops;
    const int64_t *fanout;
    const int64_t *train; /* each vertex once */
    int64_t ntrain;
    int devices;                     /* 1 to PST_CLIQUES_MAX */
    uint64_t links[PST_CLIQUES_MAX]; /* cliques.h; links to devices that are not used are left out */
    int64_t batch, batches, grains;  /* shares.h, like in_order */
    bool in_order;
    enum pst_legion_seeds seeds; /* local seeds are those of parts if the policy has parts, or else by hash */
    int64_t epochs;              /* sampled ahead: epochs 0 to epochs - 1; at least 1 */
    uint64_t seed;
    uint64_t cache_bytes; /* of each device, for lists and rows */
    uint64_t row_bytes;   /* from one feature row to the next; at least 1 */
    uint32_t line_bytes;  /* batches.h */
    int alpha;            /* share of the cache for lists, in hundredths, if the policy has lists; or
                             PST_LEGION_SEARCH */
    int64_t entries_max;  /* partition.h */
};

struct pst_legion {
    struct pst_legion_config config;
    struct pst_legion_source source;
    struct pst_legion_shares shares;
    int8_t *owner; /* of each vertex, the device that trains on it, if seeds are local; else NULL */
    struct pst_legion_counts ahead;
    struct pst_legion_placement placement;
    double sampled;               /* partition.h; 1 if the policy needs no parts */
    int64_t cut_edges;            /* between parts */
    double partition_s;           /* seconds that partitioning took */
    int alpha[PST_CLIQUES_MAX];   /* of each group, in hundredths */
    struct pst_legion_cost *cost; /* of each group, if alpha was searched; else NULL */
};

/* PST_E_ARG: the policy cannot be had with these settings; the message says why. PST_E_FORMAT: the
 * topology is damaged; the message names the vertex. Errors of the parts. */
PST_API PST_MUST_USE pst_rc pst_legion_init(struct pst_legion *l, const struct pst_legion_config *config);
PST_API void pst_legion_release(struct pst_legion *l);

/* Counts what epoch `epoch` reads, for pst_legion_traffic_of and pst_legion_cost_count. The caller releases
 * *counts. Epochs from config.epochs on were not sampled ahead. */
PST_API PST_MUST_USE pst_rc pst_legion_count(struct pst_legion *l, int64_t epoch,
                                             struct pst_legion_counts *counts);

PST_END_DECLS
#endif
