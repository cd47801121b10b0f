/* hotness_source.c: where the hotness of vertices comes from. */
#include "stages/planner/hotness_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/util/signals.h"
#include "common/util/team.h"

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

static void *compute(void *context)
{
    struct pst_planner_scores *s = context;
    s->rc = s->source == PST_HOTNESS_ANALYTIC
                ? pst_hotness_analytic(&s->in, s->scores)
                : pst_hotness_of_structure(s->source, &s->in, s->seed, s->scores);
    if (s->rc != PST_OK)
        (void)snprintf(s->error, sizeof s->error, "%s", pst_error_text());
    return NULL;
}

pst_rc pst_planner_scores_begin(struct pst_planner_scores *s, enum pst_hotness_source source,
                                const struct pst_sampling_input *in, enum pst_topology_from topology,
                                uint64_t memory_bytes, uint64_t seed)
{
    const size_t rows = (size_t)in->key.hops + 1, vertices = (size_t)in->ds.vertices;
    s->source = source;
    s->seed = seed;
    s->in = (struct pst_hotness_input){.graph = &in->graph,
                                       .file = topology == PST_TOPOLOGY_SSD ? &in->ds.indices : NULL,
                                       .seeds = in->seeds.ids,
                                       .nseeds = in->seeds.n,
                                       .batches = in->seeds.batches,
                                       .hops = in->key.hops,
                                       .fanout = in->key.fanout,
                                       .keep = in->algorithm.algorithm->keep_probability,
                                       .state = in->algorithm.state,
                                       .memory_bytes = memory_bytes,
                                       .threads = pst_team_cores()};
    s->scores = malloc(rows * vertices * sizeof *s->scores);
    if (s->scores == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the hotness of %zu vertices", vertices);
    errno = pst_signals_thread(&s->thread, compute, s);
    if (errno != 0)
        return pst_fail_errno("cannot start a thread for the hotness of vertices");
    s->begun = true;
    return PST_OK;
}

pst_rc pst_planner_scores_end(struct pst_planner_scores *s, const int64_t *drawn, int64_t sampled,
                              float **scores)
{
    const double batches = (double)s->in.batches;
    const int64_t vertices = s->in.graph->vertices;
    (void)pthread_join(s->thread, NULL);
    s->begun = false;
    if (s->rc != PST_OK)
        return pst_fail(s->rc, "%s", s->error);
    for (int h = 0; h <= s->in.hops && s->source == PST_HOTNESS_ANALYTIC; h++)
        pst_hotness_scale(s->scores + h * vertices, vertices, (double)drawn[h] / (double)sampled * batches,
                          batches);
    *scores = s->scores;
    s->scores = NULL;
    return PST_OK;
}

void pst_planner_scores_close(struct pst_planner_scores *s)
{
    if (s->begun)
        (void)pthread_join(s->thread, NULL);
    s->begun = false;
    free(s->scores);
    s->scores = NULL;
}
