/* lane_team.h: a few threads that run one function together, each as one lane, like the threads of a kernel.
 * The caller is lane 0. Threads spin for a short time, then sleep. Owner: the caller. Threads: one calls. */
#ifndef PST_LANE_TEAM_H
#define PST_LANE_TEAM_H

#include "common/base.h"

#define PST_NVME_TEAM_MAX 64 /* threads; more than there are cores do not help */

struct pst_nvme_team;

PST_MUST_USE pst_rc pst_nvme_team_new(struct pst_nvme_team **out, uint32_t lanes);
void pst_nvme_team_free(struct pst_nvme_team *team);
/* Calls run(context, lane, lanes) on every lane, and returns when all have returned. */
void pst_nvme_team_run(struct pst_nvme_team *team, void (*run)(void *context, uint32_t lane, uint32_t lanes),
                       void *context);

#endif
