/* remote_sampler.c: the stage `remote_sampler`: the stage `sampler` with the algorithm `uniform`, where each
 * rank has only the lists of neighbours of its part of a cut dataset. draws.c has the exchange with other
 * ranks; everything else is in stages/lib/sampling. */
#include <inttypes.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/sampling/sampling.h"
#include "stages/remote_sampler/draws.h"

struct remote_sampler {
    struct pst_sampling_params params;
    struct pst_sampling *sampling;
    struct pst_dataset ds;
    struct draws draws;
    bool open, alone; /* alone: a replica of another rank has left: batches stay where they are */
};

static pst_rc draw(void *state, const struct pst_sampling_hop *hop)
{
    struct remote_sampler *s = state;
    return draws_hop(&s->draws, hop);
}

static const struct pst_sampling_algorithm algorithm = {
    .abi = PST_SAMPLING_ABI,
    .name = "uniform",
    .help = "each in-neighbour is as likely as any other; the rank that has the list draws",
    .draw = draw,
};

/* What would need all lists, or slots of which a batch may not fit one. */
static pst_rc check_params(const struct pst_stage *self, const struct remote_sampler *s)
{
    const struct pst_sampling_input_params *in = &s->params.input;
    const char *what = strcmp(in->algorithm, "uniform") != 0      ? "algorithm must be \"uniform\""
                       : in->options[0] != '\0'                   ? "options must be \"\""
                       : in->replace                              ? "replace must be false"
                       : in->topology != PST_TOPOLOGY_MMAP        ? "topology must be \"mmap\""
                       : s->params.edges                          ? "seeds must be \"vertices\""
                       : s->params.margin < 1                     ? "margin must be at least 1"
                       : s->params.plan[0] != '\0'                ? "plan must be \"\""
                       : pst_linked(self, pst_port(self, "plan")) ? "the port plan must not be linked"
                                                                  : NULL;
    return what == NULL
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "%s: this stage draws uniformly on all ranks, and sizes its slots for the worst "
                          "case; for other settings use the stage sampler and a dataset that is cut "
                          "without --lists",
                          what);
}

static pst_rc size(struct pst_stage *self)
{
    struct remote_sampler *s = pst_state(self);
    pst_rc rc = check_params(self, s);
    if (rc == PST_OK)
        rc = pst_dataset_open_part(&s->ds, pst_dataset_dir(self));
    if (rc != PST_OK)
        return rc;
    s->open = true;
    s->draws.ds = &s->ds;
    return pst_sampling_size(self, &s->params, &s->sampling, &algorithm, s);
}

static pst_rc start(struct pst_stage *self)
{
    struct remote_sampler *s = pst_state(self);
    const struct pst_dataset_cut *cut = &s->ds.cut;
    struct draws *d = &s->draws;
    pst_rc rc = pst_meet(self, &d->collective);
    const struct pst_collective *c = d->collective;
    d->ranks = c != NULL && cut->lists ? c->members / c->near : 1;
    d->rank = c != NULL && cut->lists ? c->rank / c->near : 0;
    if (rc == PST_OK && cut->lists && (d->ranks != cut->parts || d->rank != cut->part))
        rc = pst_fail(
            PST_E_STATE,
            "%s is part %d of %d, but this is rank %d of %d: start as many ranks as there are parts, and "
            "give each its part",
            s->ds.dir, cut->part, cut->parts, d->rank, d->ranks);
    return rc == PST_OK ? pst_sampling_open(s->sampling) : rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct remote_sampler *s = pst_state(self);
    if (event->kind == PST_EV_FINISH && s->draws.collective != NULL)
        pst_collective_leave(s->draws.collective); /* others may wait for this replica */
    if (s->alone)
        return PST_OK;
    pst_rc rc = pst_sampling_on_event(s->sampling, event);
    if (rc == PST_OK && event->kind == PST_EV_CREDIT && s->draws.ranks > 1 &&
        pst_sampling_between_batches(s->sampling))
        rc = draws_join(&s->draws);
    s->alone = rc == PST_E_INTERRUPTED; /* the run ends on all ranks, and nobody uses this batch */
    return s->alone ? PST_OK : rc;
}

/* Adds "NAME_K": n for each rank K. The supervisor adds these up over the replicas of this rank. */
static pst_rc list(struct pst_stage *self, const char *name, const uint64_t *n, int ranks)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < ranks && rc == PST_OK; k++)
        rc = pst_report(self, "remote_lists", "{\"%s_%d\": %" PRIu64 "}", name, k, n[k]);
    return rc;
}

static pst_rc report(struct pst_stage *self, const struct draws *d)
{
    const struct draws_counts *c = &d->counts;
    uint64_t asked = 0, served = 0, drawn = 0;
    for (int k = 0; k < d->ranks; k++) {
        asked += c->asked[k];
        served += c->served[k];
        drawn += c->drawn[k];
    }
    pst_rc rc =
        pst_report(self, "remote_lists",
                   "{\"rounds\": %" PRIu64 ", \"own_vertices\": %" PRIu64 ", \"asked_vertices\": %" PRIu64
                   ", \"served_vertices\": %" PRIu64 ", \"served_neighbours\": %" PRIu64
                   ", \"wait_s\": %.6f, \"draw_s\": %.6f, \"exchange_s\": %.6f}",
                   c->rounds, c->own_vertices, asked, served, drawn, c->wait_s, c->draw_s, c->exchange_s);
    if (rc == PST_OK)
        rc = list(self, "asked_of", c->asked, d->ranks);
    return rc == PST_OK ? list(self, "served_to", c->served, d->ranks) : rc;
}

static void shut(struct pst_stage *self)
{
    struct remote_sampler *s = pst_state(self);
    if (s->draws.collective != NULL)
        pst_collective_leave(s->draws.collective);
    if (s->draws.counts.rounds > 0 && report(self, &s->draws) != PST_OK)
        pst_log(self, "cannot report the counts: %s", pst_error_text());
    pst_sampling_close(s->sampling);
    draws_release(&s->draws);
    if (s->open)
        pst_dataset_close(&s->ds);
}

static const struct pst_port_desc ports[] = {PST_SAMPLING_PORTS, {0}};
static const struct pst_param_desc params[] = {
    PST_SAMPLING_PARAMS(struct remote_sampler, params),
    PST_SAMPLING_ALGORITHM_PARAMS(struct remote_sampler, params.input),
    {0},
};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "remote_sampler",
    .help = "samples neighbourhoods of shuffled seeds into minibatches; lists of neighbours of other parts "
            "of a cut "
            "dataset are drawn from by the ranks that have them, by MPI",
    .ports = ports,
    .params = params,
    .instances_max = 1, /* all ranks take part in each hop, in the same order */
    .replicas = PST_REPLICAS_MEET,
    .dataset = "parts,lists,split:split",
    .state_bytes = sizeof(struct remote_sampler),
    .size = size,
    .open = start,
    .on_event = on_event,
    .close = shut,
};
