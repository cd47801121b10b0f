/* launch_meet.c: what stages have in common: the place where replicas meet, memory that they share, and the
 * process that talks to the other ranks (tools/penstock-ranks.c): its start, what it is told, and what it
 * says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/collective/carried.h"
#include "common/ipc/gpus.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/identity.h"
#include "common/pipeline/place.h"
#include "common/run/run_impl.h"
#include "common/util/install.h"

#define NAME "ranks"
#define FINISH_DEADLINE_S 120.0 /* as in run.c */

/* ---- the board --------------------------------------------------------------------------------- */

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

/* ---- memory that stages share ---------------------------------------------------------------------- */

static int block_of(const struct pst_supervisor *sv, int stage, bool gpu)
{
    return 1 + sv->graph->nroutes + stage + (gpu ? sv->pl->nstages : 0);
}

int pst_run_blocks(const struct pst_supervisor *sv)
{
    return 1 + sv->graph->nroutes + 2 * sv->pl->nstages;
}

/* Only a replica that works for itself shares memory of a GPU. Its process often needs the host anyway. */
void pst_run_plan_shared(struct pst_supervisor *sv)
{
    for (int s = 0; s < sv->pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &sv->pl->stages[s];
        if (stage->replicas > 0 && stage->caps.desc->replicas == PST_REPLICAS_EACH &&
            pst_gpu_number(stage->device) >= 0)
            (void)pst_run_plan_host(sv, stage->device);
    }
}

/* The memory belongs to the memory host of the stage's device. Memory of the host belongs to that of cpu:0 if
 * the device has no memory host, or is a GPU. */
static void need(struct pst_supervisor *sv, int stage, uint64_t bytes, bool gpu)
{
    struct pst_run_block *block = &sv->blocks[block_of(sv, stage, gpu)];
    const char *device = sv->pl->stages[stage].device;
    if (bytes <= block->bytes)
        return;
    block->bytes = pst_align_up(bytes, PST_PAGE);
    block->host = 0;
    for (int h = 0; h < sv->nhosts; h++)
        if (strcmp(sv->hosts[h].device, device) == 0 && gpu == (pst_gpu_number(device) >= 0))
            block->host = h;
}

void pst_run_need_shared(struct pst_supervisor *sv, int stage, const json_t *told)
{
    need(sv, stage, (uint64_t)json_integer_value(json_object_get(told, "shared")), false);
    need(sv, stage, (uint64_t)json_integer_value(json_object_get(told, "shared_gpu")), true);
}

static bool are_replicas(const struct pst_supervisor *sv, int stage, int other)
{
    return strcmp(sv->pl->stages[stage].origin, sv->pl->stages[other].origin) == 0;
}

static bool in_one_process(const struct pst_supervisor *sv, int stage, int other)
{
    for (int i = 0; i < sv->ninstances; i++)
        for (int k = 0; sv->instances[i].stage == stage && k < sv->ninstances; k++)
            if (sv->instances[k].stage == other && sv->instances[k].proc == sv->instances[i].proc)
                return true;
    return false;
}

/* A process opens another process's GPU memory for one GPU only. */
pst_rc pst_run_check_shared(const struct pst_supervisor *sv)
{
    for (int s = 0; s < sv->pl->nstages; s++)
        for (int o = 0; sv->blocks[block_of(sv, s, true)].bytes > 0 && o < s; o++)
            if (are_replicas(sv, s, o) && in_one_process(sv, s, o) &&
                strcmp(sv->pl->stages[s].device, sv->pl->stages[o].device) != 0)
                return pst_fail(PST_E_UNSUPPORTED,
                                "%s and %s share memory of GPUs, but are threads of one process, in which "
                                "CUDA opens such memory for one GPU only: put them into no group",
                                sv->pl->stages[o].name, sv->pl->stages[s].name);
    return PST_OK;
}

/* What other replicas share. Of memory of GPUs, only what this replica's GPU reaches. The first replica has
 * the number `before` among those of all ranks. */
static json_t *resident(const struct pst_supervisor *sv, int stage, int before, bool gpu)
{
    json_t *list = json_array();
    const int own = pst_gpu_number(sv->pl->stages[stage].device);
    for (int s = 0; s < sv->pl->nstages; s++) {
        const struct pst_run_block *block = &sv->blocks[block_of(sv, s, gpu)];
        if (s != stage && are_replicas(sv, s, stage) && block->bytes > 0 &&
            (!gpu || pst_gpus_reach(own, pst_gpu_number(sv->pl->stages[s].device))))
            (void)json_array_append_new(list,
                                        json_pack("{si ss sI}", "replica", before + sv->pl->stages[s].replica,
                                                  "path", block->path, "bytes", (json_int_t)block->bytes));
    }
    return list;
}

/* What the originators share of routes that come to this stage. */
static json_t *lent(const struct pst_supervisor *sv, int stage)
{
    json_t *list = json_array();
    for (int r = 0; r < sv->graph->nroutes; r++) {
        const struct pst_route *route = &sv->graph->routes[r];
        const struct pst_run_block *block = &sv->blocks[block_of(sv, route->stage, false)];
        for (int b = 0; b < route->borrowers && route->in_place && block->bytes > 0; b++)
            if (route->borrower_stage[b] == stage)
                (void)json_array_append_new(list,
                                            json_pack("{si ss sI}", "port", route->borrower_port[b], "path",
                                                      block->path, "bytes", (json_int_t)block->bytes));
    }
    return list;
}

void pst_run_add_in_place(const struct pst_supervisor *sv, json_t *message, int stage)
{
    json_t *ports = json_object();
    for (int r = 0; r < sv->graph->nroutes; r++) {
        const struct pst_route *route = &sv->graph->routes[r];
        if (route->stage == stage && route->in_place)
            (void)json_object_set_new(ports, sv->pl->stages[stage].caps.desc->ports[route->port].name,
                                      json_true());
    }
    (void)json_object_set_new(message, "in_place", ports);
}

void pst_run_add_shared(const struct pst_supervisor *sv, json_t *message, int stage)
{
    static const char *const names[2][3] = {{"shared", "shared_bytes", "resident"},
                                            {"shared_gpu", "shared_gpu_bytes", "resident_gpu"}};
    const int replicas = sv->pl->stages[stage].replicas,
              before = sv->pl->ranks > 1 ? sv->opt->rank * replicas : 0;
    for (int gpu = 0; gpu < 2; gpu++) {
        const struct pst_run_block *shared = &sv->blocks[block_of(sv, stage, gpu)];
        if (shared->bytes > 0)
            (void)json_object_set_new(message, names[gpu][0], json_string(shared->path));
        if (shared->bytes > 0)
            (void)json_object_set_new(message, names[gpu][1], json_integer((json_int_t)shared->bytes));
        if (replicas > 1)
            (void)json_object_set_new(message, names[gpu][2], resident(sv, stage, before, gpu));
    }
    (void)json_object_set_new(message, "lent", lent(sv, stage));
}

/* The first receiver with replicas, or else the first one; -1: there is none. */
static int receiver_of(const struct pst_supervisor *sv, int stage, int port)
{
    int found = -1;
    for (int l = 0; l < sv->pl->nlinks; l++) {
        const struct pst_link_spec *link = &sv->pl->links[l];
        if (link->from != stage || link->from_port != port)
            continue;
        if (found < 0 || (sv->pl->stages[found].replicas < 2 && sv->pl->stages[link->to].replicas > 1))
            found = link->to;
    }
    return found;
}

/* What stages get the output: the names in their descriptions, maybe several times. */
static json_t *kinds_of(const struct pst_supervisor *sv, int stage, int port)
{
    json_t *kinds = json_array();
    for (int l = 0; l < sv->pl->nlinks; l++) {
        const struct pst_link_spec *link = &sv->pl->links[l];
        if (link->from == stage && link->from_port == port)
            (void)json_array_append_new(kinds, json_string(sv->pl->stages[link->to].caps.desc->name));
    }
    return kinds;
}

/* Bit i: the replica can read the memory of the i-th replica of its stage. */
static json_int_t reach_of(const struct pst_supervisor *sv, int stage)
{
    json_int_t reach = 0, bit = 1;
    const int own = pst_gpu_number(sv->pl->stages[stage].device);
    for (int s = 0; s < sv->pl->nstages; s++) {
        const int other = pst_gpu_number(sv->pl->stages[s].device);
        if (!are_replicas(sv, s, stage))
            continue;
        if (own < 0 ? other < 0 : pst_gpus_reach(own, other))
            reach |= bit;
        bit <<= 1;
    }
    return reach;
}

/* The parameters of all stages that the output reaches, directly or through others, the nearest first. */
static json_t *params_beyond(const struct pst_supervisor *sv, int stage, int port)
{
    enum { STAGES = PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX }; /* with the copies between devices */
    bool reached[STAGES] = {false};
    int order[STAGES], found = 0;
    json_t *params = json_object();
    for (int next = -1; next < found; next++) {
        const int from = next < 0 ? stage : order[next];
        if (next >= 0)
            (void)json_object_update_missing(params, sv->pl->stages[from].params);
        for (int l = 0; l < sv->pl->nlinks; l++) {
            const struct pst_link_spec *link = &sv->pl->links[l];
            if (link->from != from || (next < 0 && link->from_port != port) || reached[link->to])
                continue;
            reached[link->to] = true;
            order[found++] = link->to;
        }
    }
    return params;
}

static bool has_in_place(const struct pst_supervisor *sv, int stage)
{
    bool has = false;
    for (int r = 0; r < sv->graph->nroutes; r++)
        has = has || (sv->graph->routes[r].stage == stage && sv->graph->routes[r].in_place);
    return has;
}

void pst_run_add_receivers(const struct pst_supervisor *sv, json_t *message, int stage)
{
    const struct pst_stage_desc *desc = sv->pl->stages[stage].caps.desc;
    json_t *all = json_object();
    for (int p = 0; p < pst_desc_ports(desc); p++) {
        const bool oneshot = desc->ports[p].dir == PST_OUT && (desc->ports[p].flags & PST_PORT_ONESHOT) != 0;
        const int found = oneshot ? receiver_of(sv, stage, p) : -1;
        if (found < 0)
            continue;
        json_t *devices = json_array(), *reach = json_array();
        for (int s = 0; s < sv->pl->nstages; s++)
            if (are_replicas(sv, s, found)) {
                (void)json_array_append_new(devices, json_string(sv->pl->stages[s].device));
                (void)json_array_append_new(reach, json_integer(reach_of(sv, s)));
            }
        (void)json_object_set_new(
            all, desc->ports[p].name,
            json_pack("{so so so sO so sb}", "devices", devices, "reach", reach, "kinds",
                      kinds_of(sv, stage, p), "params", sv->pl->stages[found].params, "beyond",
                      params_beyond(sv, stage, p), "in_place", has_in_place(sv, found)));
    }
    (void)json_object_set_new(message, "receivers", all);
}

/* ---- the process ------------------------------------------------------------------------------- */

/* Environment variables by which a process of MPI finds its launcher. */
static const char *const prefixes[] = {"OMPI_", "PMIX_", "PMI_", "ORTE_", "PRTE_"};

/* Stages must not take part in the launcher's MPI: they would be a rank twice. */
static void hide_launcher(void)
{
    for (char **at = environ; at && *at;) {
        char name[256];
        bool hidden = false;
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            hidden = hidden || strncmp(*at, prefixes[i], strlen(prefixes[i])) == 0;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        if (!hidden || unsetenv(name) != 0)
            at++;
    }
}

pst_rc pst_run_launch_ranks(struct pst_supervisor *sv)
{
    char path[PST_PATH_MAX], index[16];
    char *argv[] = {path, "--control", sv->control_endpoint, "--pulse", index, NULL};
    sv->ranks.proc = pst_run_new_proc(sv, NAME);
    (void)snprintf(index, sizeof index, "%d", sv->ranks.proc);
    pst_rc rc = pst_install_program_path("penstock-ranks", path);
    if (rc == PST_OK && access(path, X_OK) != 0)
        rc = pst_fail(
            PST_E_STATE,
            "%d ranks were started, but this Penstock was built without MPI (%s is missing): install "
            "openmpi-bin and libopenmpi-dev, and run make again",
            sv->opt->ranks, path);
    if (rc == PST_OK)
        rc = pst_proc_start(&sv->procs[sv->ranks.proc], argv, sv->pulse.fd);
    hide_launcher();
    return rc;
}

void pst_run_add_replica(const struct pst_supervisor *sv, json_t *message,
                         const struct pst_pipeline_stage_spec *stage)
{
    const int before = sv->pl->ranks > 1 ? sv->opt->rank * stage->replicas : 0;
    (void)json_object_set_new(message, "replica", json_integer(before + stage->replica));
    (void)json_object_set_new(message, "replicas", json_integer(pst_pipeline_replicas(sv->pl, stage)));
}

/* ---- what ranks have in common ------------------------------------------------------------------- */

/* A stage whose replicas work together has the same parameters on all ranks. How many threads it has does not
 * change what it computes. */
static void add_params(const struct pst_pipeline *pl, int s, json_t *facts)
{
    const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
    char name[PST_JSON_PATH_MAX];
    const char *param;
    json_t *value;
    json_object_foreach(stage->params, param, value)
    {
        (void)snprintf(name, sizeof name, "stages.%s.params.%s", stage->origin, param);
        if (strcmp(param, "threads") != 0)
            (void)json_object_set(facts, name, value);
    }
    (void)snprintf(name, sizeof name, "the kind of device of %s", stage->origin);
    (void)json_object_set_new(facts, name, json_string(pst_gpu_number(stage->device) >= 0 ? "GPU" : "CPU"));
    (void)snprintf(name, sizeof name, "the number of replicas of %s", stage->origin);
    (void)json_object_set_new(facts, name, json_integer(stage->replicas));
}

/* What determines the weights: all ranks must have the same. */
static json_t *facts_of(const struct pst_supervisor *sv)
{
    const struct pst_pipeline *pl = sv->pl;
    char *identity = pst_pipeline_identity(pl);
    json_t *facts = identity ? json_loads(identity, 0, NULL) : NULL;
    free(identity);
    for (int s = 0; facts && s < pl->nstages; s++)
        if (pl->stages[s].replica == 0 && pl->stages[s].caps.desc->replicas == PST_REPLICAS_MEET)
            add_params(pl, s, facts);
    (void)json_object_set_new(facts, "the seed", json_integer((json_int_t)pl->seed));
    (void)json_object_set_new(facts, "the number of epochs", json_integer((json_int_t)pl->epochs));
    (void)json_object_set_new(facts, "--batches", json_integer((json_int_t)sv->opt->batches));
    (void)json_object_set_new(facts, "the digest of the dataset", json_string(sv->opt->dataset_digest));
    if (sv->opt->facts)
        (void)json_object_update(facts, sv->opt->facts);
    return facts;
}

/* ---- messages ------------------------------------------------------------------------------------ */

void pst_run_tell_ranks(struct pst_supervisor *sv)
{
    json_t *meetings = json_array();
    int members = 1;
    if (sv->ranks.proc < 0) {
        json_decref(meetings);
        return;
    }
    for (int s = 0; s < sv->pl->nstages; s++)
        if (sv->meet_at[s] > 0 && sv->pl->stages[s].replica == 0) {
            members = sv->pl->stages[s].replicas;
            (void)json_array_append_new(meetings, pst_run_meeting(sv, s));
        }
    pst_run_tell(sv, NAME,
                 json_pack("{ss ss sI si so}", "type", "carry", "board", sv->blocks[0].path, "bytes",
                           (json_int_t)sv->blocks[0].bytes, "members", members, "meetings", meetings));
}

/* A replica of another rank has left before the end: so does this rank. */
static void on_left(struct pst_supervisor *sv, const json_t *m)
{
    const char *host = json_string_value(json_object_get(m, "host"));
    const json_int_t reason = json_integer_value(json_object_get(m, "reason"));
    const int rank = (int)json_integer_value(json_object_get(m, "rank"));
    if (sv->end == PST_RUN_FAILED || (sv->stopping && reason != PST_RUN_RANK_FAILED))
        return;
    if (reason == PST_RUN_RANK_FAILED) {
        pst_run_fail(sv, NAME, NULL, "rank %d (%s) has failed; its own messages say why", rank,
                     host ? host : "?");
        return;
    }
    if (reason == PST_RUN_ENOUGH) {
        sv->enough = true;
    } else {
        sv->signal = (int)reason;
        sv->end = PST_RUN_INTERRUPTED;
    }
    pst_run_begin_stop(sv, "finish", FINISH_DEADLINE_S);
}

/* How many replicas of this rank exchange data with other ranks: each has a lane (tools/ranks). */
static int lanes_of(const struct pst_supervisor *sv)
{
    int lanes = 0;
    for (int s = 0; s < sv->pl->nstages; s++)
        lanes += sv->pl->stages[s].caps.desc->replicas == PST_REPLICAS_MEET &&
                 pst_pipeline_replicas(sv->pl, &sv->pl->stages[s]) > 1;
    return lanes;
}

void pst_run_hear_ranks(struct pst_supervisor *sv, const char *type, const json_t *m)
{
    if (strcmp(type, "hello") == 0 && !sv->ranks.greeted) {
        sv->ranks.greeted = true;
        pst_run_tell(sv, NAME,
                     json_pack("{ss si si si so}", "type", "join", "rank", sv->opt->rank, "ranks",
                               sv->opt->ranks, "lanes", lanes_of(sv), "facts", facts_of(sv)));
    } else if (strcmp(type, "joined") == 0 && !sv->ranks.joined) {
        sv->ranks.joined = true;
        if (!sv->stopping && pst_run_launch_stages(sv) != PST_OK)
            pst_run_fail(sv, "supervisor", NULL, "%s", pst_error_text());
        if (sv->opt->debug)
            pst_run_show_debug(sv);
    } else if (strcmp(type, "left") == 0) {
        on_left(sv, m);
    } else if (strcmp(type, "report") == 0) {
        (void)json_object_set(sv->report, "mpi", json_object_get(m, "data"));
    } else if (strcmp(type, "done") == 0) {
        sv->ranks.done = true;
    } else if (strcmp(type, "failed") == 0) {
        const char *text = json_string_value(json_object_get(m, "text"));
        pst_run_fail(sv, NAME, NULL, "%s", text ? text : "the process failed without a message");
    }
}
