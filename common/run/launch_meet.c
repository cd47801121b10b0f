/* launch_meet.c: where the replicas of a stage meet: a part of the board. */
#include <string.h>

#include "common/collective/shared.h"
#include "common/run/run_impl.h"

uint64_t pst_run_layout_meetings(struct pst_supervisor *sv, uint64_t at)
{
    for (int s = 0; s < sv->pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &sv->pl->stages[s];
        if (stage->replicas < 2 || stage->caps.desc->replicas != PST_REPLICAS_MEET)
            continue;
        if (stage->replica == 0) /* the others follow it, and meet in the same place */
            at = pst_align_up(at, PST_PAGE) + pst_collective_shared_bytes(stage->replicas);
        sv->meet_at[s] = at - pst_collective_shared_bytes(stage->replicas);
    }
    return at;
}

void pst_run_add_meeting(const struct pst_supervisor *sv, json_t *message, int stage)
{
    if (sv->meet_at[stage] == 0)
        return;
    json_t *names = json_array();
    for (int s = 0; s < sv->pl->nstages; s++)
        if (strcmp(sv->pl->stages[s].origin, sv->pl->stages[stage].origin) == 0)
            (void)json_array_append_new(names, json_string(sv->pl->stages[s].name));
    (void)json_object_set_new(message, "meet",
                              json_pack("{sI so}", "at", (json_int_t)sv->meet_at[stage], "names", names));
}
