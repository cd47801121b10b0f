/* hotness_source.c: where the hotness of vertices comes from. */
#include "stages/planner/hotness_source.h"

#include "common/error.h"

pst_rc pst_planner_choose_source(struct pst_stage *self, const struct pst_sampling_algorithm *a,
                                 const char *file, bool shared, enum pst_hotness_source *hotness)
{
    if (file[0] != '\0' && *hotness != PST_HOTNESS_FILE)
        return pst_fail(PST_E_ARG, "hotness_file is \"%s\", but hotness is \"%s\"; set hotness to \"file\"",
                        file, pst_hotness_source_name(*hotness));
    if (*hotness == PST_HOTNESS_ANALYTIC && a->keep_probability == NULL)
        return pst_fail(PST_E_ARG,
                        "hotness is \"analytic\", but the sampling algorithm %s has no function "
                        "keep_probability, which this needs: set hotness to \"presample\"",
                        a->name);
    if (*hotness == PST_HOTNESS_AUTO && a->keep_probability == NULL)
        pst_log(
            self,
            "the sampling algorithm %s has no formula for hotness: it is counted in the pre-sampled batches",
            a->name);
    if (*hotness == PST_HOTNESS_AUTO && shared)
        *hotness = PST_HOTNESS_PRESAMPLE;
    if (shared && *hotness != PST_HOTNESS_PRESAMPLE && *hotness != PST_HOTNESS_ORACLE)
        return pst_fail(PST_E_ARG,
                        "hotness is \"%s\", but the policy counts batches that are sampled ahead: set "
                        "hotness to \"presample\"",
                        pst_hotness_source_name(*hotness));
    if (*hotness == PST_HOTNESS_AUTO)
        *hotness = a->keep_probability != NULL ? PST_HOTNESS_ANALYTIC : PST_HOTNESS_PRESAMPLE;
    return PST_OK;
}
