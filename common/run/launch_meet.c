/* launch_meet.c: where the replicas of a stage meet: a part of the board. */
#include <string.h>

#include "common/collective/ranks.h"
#include "common/run/run_impl.h"

static uint64_t bytes_of(const struct pst_supervisor *sv, const struct pst_pipeline_stage_spec *stage)
{
    return sv->pl->ranks > 1 ? pst_collective_ranks_bytes(stage->replicas)
                             : pst_collective_shared_bytes(stage->replicas);
}

uint64_t pst_run_layout_meetings(struct pst_supervisor *sv, uint64_t at)
{
    for (int s = 0; s < sv->pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &sv->pl->stages[s];
        if (pst_pipeline_replicas(sv->pl, stage) < 2 || stage->caps.desc->replicas != PST_REPLICAS_MEET)
            continue;
        if (stage->replica == 0) /* the others follow it, and meet in the same place */
            at = pst_align_up(at, PST_PAGE) + bytes_of(sv, stage);
        sv->meet_at[s] = at - bytes_of(sv, stage);
    }
    return at;
}

json_t *pst_run_meeting(const struct pst_supervisor *sv, int stage)
{
    json_t *names = json_array();
    for (int s = 0; s < sv->pl->nstages; s++)
        if (strcmp(sv->pl->stages[s].origin, sv->pl->stages[stage].origin) == 0)
            (void)json_array_append_new(names, json_string(sv->pl->stages[s].name));
    for (int r = 0; r < sv->pl->stages[stage].replicas && sv->pl->ranks > 1; r++)
        (void)json_array_append_new(names, json_string("ranks")); /* their carriers */
    return json_pack("{sI si so}", "at", (json_int_t)sv->meet_at[stage], "ranks", sv->pl->ranks, "names",
                     names);
}

void pst_run_add_meeting(const struct pst_supervisor *sv, json_t *message, int stage)
{
    if (sv->meet_at[stage] > 0)
        (void)json_object_set_new(message, "meet", pst_run_meeting(sv, stage));
}
