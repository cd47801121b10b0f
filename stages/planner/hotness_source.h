/* hotness_source.h: where the hotness of vertices comes from, if the user leaves it to the planner. Owner:
 * none. Threads: any. */
#ifndef PST_PLANNER_HOTNESS_SOURCE_H
#define PST_PLANNER_HOTNESS_SOURCE_H

#include "common/stage.h"
#include "stages/lib/plan/hotness.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

PST_BEGIN_DECLS

/* Decides which source AUTO is, and refuses what cannot be. file: the parameter hotness_file. shared: the
 * policy plans caches that replicas share. */
PST_MUST_USE pst_rc pst_planner_choose_source(struct pst_stage *self, const struct pst_sampling_algorithm *a,
                                              const char *file, bool shared,
                                              enum pst_hotness_source *hotness);

PST_END_DECLS
#endif
