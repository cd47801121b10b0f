/* presample.h: samples batches before the run, to learn how large batches get and how often vertices are
 * needed. It draws with the sampler's algorithm, on the planner's device. Counting hotness by pre-sampling is
 * from Legion (Sun et al., ATC 2023, section 4.2) and Hyperion (section III-B1).
 *
 * Owner: the planner, which lends the opened input. pst_presample_close accepts a zeroed struct. Threads: the
 * stage's own. */
#ifndef PST_PRESAMPLE_H
#define PST_PRESAMPLE_H

#include "stages/lib/device/device.h"
#include "stages/lib/sampling/expand.h"
#include "stages/lib/sampling/expand_device.h"
#include "stages/lib/sampling/input.h"

#define PST_PRESAMPLE_PROBES 16 /* batches that predict hits, within a point or two, and misses */

struct pst_presample;
struct pst_presample_waves;

/* Gets a drawn batch and its vertices, which are valid during the call. On a GPU they are in
 * ps->device_expander, and `vertices` is scratch for them. */
typedef pst_rc (*pst_presample_each_fn)(struct pst_presample *ps, const struct pst_minibatch_size *found,
                                        int64_t *vertices, void *to);

struct pst_presample {
    struct pst_stage *stage; /* which shows the progress */
    uint64_t noted, number;  /* batches that pst_presample_run has drawn, of so many */
    uint64_t skipped;        /* batches of the run before the first that is drawn */
    struct pst_sampling_input *in;
    struct pst_presample_waves *waves; /* topology is "ssd"; NULL: the graph is mapped */
    struct pst_minibatch_size bound;   /* no batch is larger */
    /* (hops + 1) x vertices counts: in row h, how many batches drew for the vertex in hop h; in row `hops`,
     * how many needed its features. NULL: nothing is counted */
    uint32_t *counts;
    int64_t
        drawn[PST_HOPS_MAX + 1]; /* vertices before each hop and after the last, of all batches together */
    struct pst_presample_kept {
        int64_t n, *vertices;
    } kept[PST_PRESAMPLE_PROBES]; /* the vertices of some batches, if `keep` is set */
    int nkept;
    bool keep;
    /* scratch of one batch: its seeds, its vertices, and what the CPU expands with */
    int64_t vertices_max, edges_max; /* edges: of one hop */
    int64_t *batch, *vertices;
    int32_t *indptr, *indices;
    float *weights; /* NULL: edges have none */
    struct pst_expander expander;
    /* the same on a GPU */
    struct pst_device device;
    struct pst_csc device_graph;
    struct pst_expander_device device_expander;
    uint32_t *device_counts;
};

struct pst_presample_options {
    enum pst_topology_from topology;
    uint64_t gpu_topology_bytes;      /* on a GPU, a topology of at most this size is copied there */
    uint64_t memory_bytes, gap_bytes; /* topology is "ssd": see waves.h */
    bool count;                       /* batches are counted */
    bool keep;                        /* or the vertices of some are kept, for pst_presample_misses */
};

/* Opens the device of the stage and allocates. PST_E_ARG: the topology cannot be on drives. */
pst_rc pst_presample_open(struct pst_presample *ps, struct pst_stage *self, struct pst_sampling_input *in,
                          const struct pst_presample_options *options);
void pst_presample_close(struct pst_presample *ps);

/* Draws `number` of the first `batches` batches, evenly spread, and counts or keeps them if that was asked
 * for. *most gets the largest count of any of them, for each hop. */
pst_rc pst_presample_run(struct pst_presample *ps, uint64_t number, uint64_t batches,
                         struct pst_minibatch_size *most);

/* Predicts the hit rate of a cache of the `cached` vertices with the highest counts, from some of the batches
 * that were counted. */
pst_rc pst_presample_predict(struct pst_presample *ps, uint64_t batches, int64_t cached, double *hit_rate);

/* Finds the most vertices of a batch that are not in `cached`, in some of the batches that `cached` was not
 * chosen by: those that were kept, or else some that follow the first `batches`. */
pst_rc pst_presample_misses(struct pst_presample *ps, uint64_t batches, const struct pst_plan_tiers *cached,
                            int64_t *most);

/* Reports what was read from drives, if topology is "ssd". */
pst_rc pst_presample_report(const struct pst_presample *ps, struct pst_stage *self);

/* For waves.c. The key of a hop of a batch. */
struct pst_sample_key pst_presample_key(const struct pst_presample *ps, uint64_t batch, int hop);
/* For waves.c. Makes the scratch larger, and empties it. PST_E_LIMIT: no batch may be larger. PST_E_NOMEM. */
pst_rc pst_presample_grow(struct pst_presample *ps);

#endif
