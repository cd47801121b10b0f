/* start.c: messages to stages and memory hosts, the start-up, step by step, and the batches with which a
 * resumed run begins. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#include "common/error.h"
#include "common/pipeline/desc/desc.h"
#include "common/run/run_impl.h"
#include "common/util/clock.h"

pst_rc pst_run_id(char id[PST_RUN_ID_MAX])
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return pst_fail_errno("cannot get random bytes from the kernel");
    (void)snprintf(id, PST_RUN_ID_MAX, "%016" PRIx64, random);
    return PST_OK;
}

void pst_run_tell(struct pst_supervisor *sv, const char *name, json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    /* if the peer is gone, its end is noticed elsewhere */
    if (text && zmq_send(sv->control, name, strlen(name), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        (void)zmq_send(sv->control, text, strlen(text), ZMQ_DONTWAIT);
    free(text);
}

void pst_run_tell_type(struct pst_supervisor *sv, const char *name, const char *type)
{
    pst_run_tell(sv, name, json_pack("{ss}", "type", type));
}

/* ---- start-up ------------------------------------------------------------------------------------ */

void pst_run_ask_block(struct pst_supervisor *sv, int b)
{
    const bool cache = b > sv->graph->nroutes; /* what stages share: not the board, and no slots */
    pst_run_tell(sv, sv->hosts[sv->blocks[b].host].name,
                 json_pack("{ss si sI sb}", "type", "allocate", "id", b, "bytes",
                           (json_int_t)sv->blocks[b].bytes, "scattered", cache));
}

/* Asks each memory host for what it has to make. */
static void ask_memory(struct pst_supervisor *sv)
{
    for (int r = 0; r < sv->graph->nroutes; r++)
        pst_run_ask_block(sv, 1 + r);
    for (int b = 1 + sv->graph->nroutes; b < pst_run_blocks(sv); b++)
        if (sv->blocks[b].bytes > 0)
            pst_run_ask_block(sv, b);
    for (int e = 0; e < sv->nevents; e++)
        if (sv->events[e].host >= 0)
            pst_run_tell(sv, sv->hosts[sv->events[e].host].name,
                         json_pack("{ss si si}", "type", "events", "id", e, "count",
                                   sv->graph->routes[sv->events[e].route].slots));
}

static bool oneshots_ready(const struct pst_supervisor *sv, int stage)
{
    for (int l = 0; l < sv->pl->nlinks; l++) {
        const struct pst_link_spec *link = &sv->pl->links[l];
        if (link->to == stage && pst_link_oneshot(sv->pl, link) &&
            !json_object_get(sv->oneshots[stage], sv->pl->stages[stage].caps.desc->ports[link->to_port].name))
            return false;
    }
    return true;
}

static void size_when_ready(struct pst_supervisor *sv, struct pst_run_instance *in)
{
    if (in->life != PST_RUN_GREETED || !oneshots_ready(sv, in->stage))
        return;
    in->life = PST_RUN_SIZING;
    pst_run_tell(sv, in->name, json_pack("{ss sO}", "type", "size", "oneshots", sv->oneshots[in->stage]));
}

static void open_instance(struct pst_supervisor *sv, int i)
{
    sv->instances[i].life = PST_RUN_OPENING;
    pst_run_tell(sv, sv->instances[i].name, pst_run_open_message(sv, i));
}

static void start_instance(struct pst_supervisor *sv, struct pst_run_instance *in)
{
    in->life = PST_RUN_RUNNING;
    pst_run_tell_type(sv, in->name, "start");
}

static bool all_streams_at(const struct pst_supervisor *sv, enum pst_run_life life)
{
    for (int i = 0; i < sv->ninstances; i++)
        if (!sv->instances[i].early && sv->instances[i].life < life)
            return false;
    return true;
}

static bool blocks_ready(const struct pst_supervisor *sv)
{
    for (int b = 0; b < pst_run_blocks(sv); b++)
        if (sv->blocks[b].bytes > 0 && !sv->blocks[b].path[0])
            return false;
    return true;
}

/* Takes the steps of the start-up that have become possible. */
void pst_run_advance(struct pst_supervisor *sv)
{
    if (sv->stopping)
        return;
    for (int i = 0; i < sv->ninstances; i++) {
        struct pst_run_instance *in = &sv->instances[i];
        size_when_ready(sv, in);
        if (in->early && in->life == PST_RUN_SIZED && sv->board)
            open_instance(sv, i);
        if (in->early && in->life == PST_RUN_READY)
            start_instance(sv, in);
    }
    bool hosts = true;
    for (int h = 0; h < sv->nhosts; h++)
        hosts = hosts && sv->hosts[h].greeted;
    if (!sv->allocated && hosts && all_streams_at(sv, PST_RUN_SIZED)) {
        sv->allocated = true;
        if (pst_run_size_routes(sv) != PST_OK) {
            pst_run_fail(sv, "supervisor", NULL, "%s", pst_error_text());
            return;
        }
        ask_memory(sv);
    }
    if (sv->allocated && !sv->opened && sv->board && blocks_ready(sv) && pst_run_events_ready(sv)) {
        sv->opened = true;
        for (int i = 0; i < sv->ninstances; i++)
            if (!sv->instances[i].early)
                open_instance(sv, i);
    }
    if (sv->opened && !sv->started && all_streams_at(sv, PST_RUN_READY)) {
        sv->started = true;
        sv->started_at = pst_clock_s();
        for (int i = 0; i < sv->ninstances; i++)
            if (!sv->instances[i].early)
                start_instance(sv, &sv->instances[i]);
    }
}

/* ---- where batches begin ------------------------------------------------------------------------- */

#define UNKNOWN UINT64_MAX

/* Gives the number to `stage` and to all stages that are connected with it, except `end`. False: one of them
 * has another number. */
static bool give(struct pst_supervisor *sv, int stage, int end, uint64_t batch)
{
    bool changed = true;
    if (sv->start_batch[stage] != UNKNOWN && sv->start_batch[stage] != batch)
        return false;
    sv->start_batch[stage] = batch;
    while (changed) {
        changed = false;
        for (int l = 0; l < sv->pl->nlinks; l++) {
            const struct pst_link_spec *link = &sv->pl->links[l];
            uint64_t *from = &sv->start_batch[link->from], *to = &sv->start_batch[link->to];
            if (link->from == end || link->to == end || pst_link_oneshot(sv->pl, link) || *from == *to ||
                (*from != batch && *to != batch))
                continue;
            if (*from != UNKNOWN && *to != UNKNOWN)
                return false;
            *from = *to = batch;
            changed = true;
        }
    }
    return true;
}

pst_rc pst_run_starts(struct pst_supervisor *sv)
{
    const struct pst_run_options *opt = sv->opt;
    const int end = opt->nstarts > 0 ? pst_pipeline_stage(sv->pl, opt->start_stage) : -1;
    if (opt->nstarts > 0 && end < 0)
        return pst_fail(PST_E_ARG,
                        "cannot resume from %s: the stage %s wrote it, and this pipeline has no such stage",
                        opt->resume, opt->start_stage);
    for (int s = 0; s < sv->pl->nstages; s++)
        sv->start_batch[s] = UNKNOWN;
    for (int i = 0; i < opt->nstarts; i++)
        for (int l = 0; l < sv->pl->nlinks; l++) {
            const struct pst_link_spec *link = &sv->pl->links[l];
            const struct pst_stage_desc *desc = sv->pl->stages[link->to].caps.desc;
            if (link->to == end && strcmp(desc->ports[link->to_port].name, opt->starts[i].port) == 0 &&
                !give(sv, link->from, end, opt->starts[i].batch))
                return pst_fail(PST_E_ARG,
                                "cannot resume from %s: a stage sends batches to several inputs of %s, which "
                                "are at different batches: use a stage for each input",
                                opt->resume, opt->start_stage);
        }
    for (int s = 0; s < sv->pl->nstages; s++)
        if (sv->start_batch[s] == UNKNOWN)
            sv->start_batch[s] = opt->start_batch;
    return PST_OK;
}
