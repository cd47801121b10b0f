/* hotness_source.h: where the hotness of vertices comes from, if the user leaves it to the planner; and
 * hotness that needs no batches. Owner: the planner. Threads: the stage's own calls the functions. */
#ifndef PST_PLANNER_HOTNESS_SOURCE_H
#define PST_PLANNER_HOTNESS_SOURCE_H

#include <pthread.h>

#include "common/stage.h"
#include "stages/lib/plan/hotness.h"
#include "stages/lib/sampling/input.h"

PST_BEGIN_DECLS

/* Decides which source AUTO is, and refuses what cannot be. file: the parameter hotness_file. shared: the
 * policy plans caches that replicas share. */
PST_MUST_USE pst_rc pst_planner_choose_source(struct pst_stage *self, const struct pst_sampling_algorithm *a,
                                              const char *file, bool shared,
                                              enum pst_hotness_source *hotness);

/* Hotness that needs no batches: that of `analytic`, `pagerank`, `degree` or `random`. A thread computes it
 * while the stage pre-samples, because pre-sampling with topology ssd mostly waits for the drive. */
struct pst_planner_scores {
    enum pst_hotness_source source;
    uint64_t seed; /* of `random` */
    struct pst_hotness_input in;
    float *scores;
    pthread_t thread;
    bool begun;
    pst_rc rc; /* what the thread returned, and its message */
    char error[1024];
};

/* Begins to compute the scores, (hops + 1) x vertices. `in` must stay until the end. topology: of the
 * sampler. memory_bytes: as in pst_hotness_input. *s is zeroed before. PST_E_NOMEM: there is no memory or
 * thread. */
PST_MUST_USE pst_rc pst_planner_scores_begin(struct pst_planner_scores *s, enum pst_hotness_source source,
                                             const struct pst_sampling_input *in,
                                             enum pst_topology_from topology, uint64_t memory_bytes,
                                             uint64_t seed);
/* Waits until the scores are computed. *scores gets them, and the caller frees them. The sums of `analytic`
 * become those of the sampled batches, of an epoch: drawn[h] vertices before hop h in `sampled` batches.
 * Errors are those of pst_hotness_analytic and pst_hotness_of_structure. */
PST_MUST_USE pst_rc pst_planner_scores_end(struct pst_planner_scores *s, const int64_t *drawn,
                                           int64_t sampled, float **scores);
/* Waits, and frees what is there. A zeroed struct has nothing. */
void pst_planner_scores_close(struct pst_planner_scores *s);

PST_END_DECLS
#endif
