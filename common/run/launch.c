/* launch.c: the processes of a run, the layout of its shared memory, and the messages that configure and open
 * a stage. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/pipeline/desc/desc.h"
#include "common/pipeline/desc/builtin.h"
#include "common/pipeline/identity.h"
#include "common/ipc/gpus.h"
#include "common/host/host.h"
#include "common/pipeline/place.h"
#include "common/run/run_impl.h"
#include "common/util/memory.h"
#include "common/util/utf8.h"
#include "common/util/install.h"

#define RING_FRAMES_PER_SLOT 16 /* each hop announces a part. A full ring only makes its writer wait */
#define RING_CAPACITY_MIN 64

static_assert(PST_GRAPH_ROUTES_MAX <= PST_PAGE_ROUTES_MAX, "a page counts the slots of each route");

/* ---- processes ----------------------------------------------------------------------------------- */

int pst_run_new_proc(struct pst_supervisor *sv, const char *name)
{
    struct pst_proc *proc = &sv->procs[sv->nprocs];
    memset(proc, 0, sizeof *proc);
    (void)snprintf(proc->name, sizeof proc->name, "%s", name);
    (void)snprintf(proc->log, sizeof proc->log, "%s/logs/%s.log", sv->opt->run_dir, name);
    return sv->nprocs++;
}

static bool has_stream(const struct pst_supervisor *sv, int stage)
{
    for (int l = 0; l < sv->pl->nlinks; l++)
        if ((sv->pl->links[l].from == stage || sv->pl->links[l].to == stage) &&
            !pst_link_oneshot(sv->pl, &sv->pl->links[l]))
            return true;
    return false;
}

/* Other users see the names of sockets in /proc/net/unix. This one cannot be guessed, so nobody can take it
 * first. */
static pst_rc name_socket(const struct pst_supervisor *sv, const char *name, const char *what, char out[128])
{
    char random[PST_RUN_ID_MAX];
    const pst_rc rc = pst_run_id(random);
    if (rc == PST_OK)
        (void)snprintf(out, 128, "ipc://@penstock-%.16s-%.40s%s-%.16s", sv->id, name, what, random);
    return rc;
}

static pst_rc plan_instances(struct pst_supervisor *sv)
{
    pst_rc rc = PST_OK;
    for (int s = 0; s < sv->pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &sv->pl->stages[s];
        for (int i = 0; i < stage->instances && rc == PST_OK; i++) {
            struct pst_run_instance *in = &sv->instances[sv->ninstances++];
            memset(in, 0, sizeof *in);
            in->stage = s;
            in->number = i;
            in->early = !has_stream(sv, s);
            char name[PST_NAME_MAX];
            if (stage->instances > 1)
                (void)snprintf(name, sizeof name, "%.54s.%d", stage->name, i);
            else
                (void)snprintf(name, sizeof name, "%s", stage->name);
            (void)memcpy(in->name, name, sizeof name);
            rc = name_socket(sv, name, "", in->inbox);
            if (rc == PST_OK && stage->caps.foreign && !stage->endpoint[0])
                rc = name_socket(sv, name, "-wire", in->endpoint);
            else
                (void)snprintf(in->endpoint, sizeof in->endpoint, "%s", stage->endpoint);
            in->proc = -1;
            for (int k = 0; stage->group[0] && k < sv->ninstances - 1; k++)
                if (strcmp(sv->pl->stages[sv->instances[k].stage].group, stage->group) == 0)
                    in->proc = sv->instances[k].proc;
            if (in->proc < 0)
                in->proc = pst_run_new_proc(sv, stage->group[0] ? stage->group : in->name);
        }
    }
    return rc;
}

int pst_run_plan_host(struct pst_supervisor *sv, const char *device)
{
    int h = 0;
    while (h < sv->nhosts && strcmp(sv->hosts[h].device, device) != 0)
        h++;
    if (h < sv->nhosts)
        return h;
    struct pst_run_memory_host *host = &sv->hosts[sv->nhosts++];
    (void)snprintf(host->device, sizeof host->device, "%s", device);
    (void)snprintf(host->name, sizeof host->name, "memory-%s", device);
    host->proc = pst_run_new_proc(sv, host->name);
    return h;
}

static pst_rc plan_hosts(struct pst_supervisor *sv)
{
    (void)pst_run_plan_host(sv, "cpu:0"); /* it has the board */
    for (int r = 0; r < sv->graph->nroutes; r++)
        (void)pst_run_plan_host(sv, sv->graph->routes[r].device);
    pst_run_plan_shared(sv);
    return pst_run_plan_events(sv);
}

static bool first_on(const struct pst_supervisor *sv, int instance)
{
    const struct pst_run_instance *in = &sv->instances[instance];
    const char *device = sv->pl->stages[in->stage].device;
    for (int i = 0; i < instance; i++)
        if (sv->instances[i].proc == in->proc &&
            strcmp(sv->pl->stages[sv->instances[i].stage].device, device) == 0)
            return false;
    return true;
}

/* The number of processes on the GPU that has most of them. */
static int gpu_procs(const struct pst_supervisor *sv)
{
    int most = 0, on[PST_GPUS_MAX] = {0};
    for (int i = 0; i < sv->ninstances; i++) {
        const int gpu = pst_gpu_number(sv->pl->stages[sv->instances[i].stage].device);
        if (gpu >= 0 && first_on(sv, i))
            most = (int)pst_max_i64(most, ++on[gpu]);
    }
    return most;
}

/* Decides how processes share a GPU, before any of them touches CUDA: by MPS, as threads of one process, or
 * in turns. */
static pst_rc share_gpus(struct pst_supervisor *sv)
{
    pst_rc rc = PST_OK;
    int procs = gpu_procs(sv);
    if (procs > 1)
        pst_mps_start(&sv->mps, sv->opt->run_dir);
    if (procs > 1 && sv->mps.keeper == 0 && pst_place_group(sv->pl)) {
        sv->ninstances = sv->nprocs = 0;
        rc = plan_instances(sv);
        procs = gpu_procs(sv);
    }
    if (procs > 0)
        pst_report_gpus(sv->report, procs, sv->mps.keeper > 0 ? NULL : sv->mps.why);
    return rc;
}

static pst_rc start_proc(struct pst_supervisor *sv, int p, const char *program)
{
    char path[PST_PATH_MAX];
    char index[16];
    char *argv[PST_STAGES_MAX + 8] = {path, "--control", sv->control_endpoint, "--pulse", index};
    int argc = 5;
    (void)snprintf(index, sizeof index, "%d", p);
    pst_rc rc = pst_install_program_path(program, path);
    int percent = 0; /* of the GPU, for all its stages together */
    for (int i = 0; i < sv->ninstances; i++)
        if (sv->instances[i].proc == p) {
            argv[argc++] = sv->instances[i].name;
            percent += sv->pl->stages[sv->instances[i].stage].sm_percent;
        }
    pst_mps_share(&sv->mps, percent > 0 ? percent : 100);
    for (int h = 0; h < sv->nhosts; h++)
        if (sv->hosts[h].proc == p) {
            argv[argc++] = sv->hosts[h].name;
            argv[argc++] = sv->hosts[h].device;
        }
    return rc == PST_OK ? pst_proc_start(&sv->procs[p], argv, sv->pulse.fd) : rc;
}

static pst_rc open_control(struct pst_supervisor *sv)
{
    (void)snprintf(sv->control_endpoint, sizeof sv->control_endpoint, "ipc://@penstock-%s-control", sv->id);
    int zero = 0, one = 1;
    int64_t most = PST_CONTROL_MAX_BYTES;
    uid_t uid = geteuid();
    sv->zmq = zmq_ctx_new();
    sv->control = sv->zmq ? zmq_socket(sv->zmq, ZMQ_ROUTER) : NULL;
    if (!sv->control || zmq_setsockopt(sv->control, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(sv->control, ZMQ_SNDHWM, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(sv->control, ZMQ_MAXMSGSIZE, &most, sizeof most) != 0 ||
        zmq_setsockopt(sv->control, ZMQ_ROUTER_MANDATORY, &one, sizeof one) != 0 ||
        zmq_setsockopt(sv->control, ZMQ_IPC_FILTER_UID, &uid, sizeof uid) != 0 ||
        zmq_bind(sv->control, sv->control_endpoint) != 0)
        return pst_fail_errno("cannot listen at %s", sv->control_endpoint);
    return PST_OK;
}

pst_rc pst_run_launch_stages(struct pst_supervisor *sv)
{
    pst_rc rc = PST_OK;
    for (int p = 0; p < sv->nprocs && rc == PST_OK; p++)
        if (p != sv->ranks.proc)
            rc = start_proc(sv, p, p < sv->stage_procs ? "penstock-stage" : "penstock-memory");
    return rc;
}

pst_rc pst_run_launch(struct pst_supervisor *sv)
{
    char dir[PST_PATH_MAX];
    (void)snprintf(sv->id, sizeof sv->id, "%s", sv->opt->id);
    sv->procs = calloc(PST_STAGES_MAX + PST_RUN_MEMORY_HOSTS_MAX + 1, sizeof *sv->procs);
    if (!sv->procs)
        return pst_fail(PST_E_NOMEM, "out of memory");
    (void)snprintf(dir, sizeof dir, "%s/logs", sv->opt->run_dir);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot create %s", dir);
    (void)snprintf(dir, sizeof dir, "%s/trace", sv->opt->run_dir);
    if (sv->opt->trace && mkdir(dir, 0700) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot create %s", dir);
    pst_rc rc = plan_instances(sv);
    if (rc == PST_OK)
        rc = pst_run_check_limits(sv);
    if (rc == PST_OK)
        rc = open_control(sv);
    if (rc == PST_OK)
        rc = pst_pulse_init(&sv->pulse);
    if (rc == PST_OK)
        rc = share_gpus(sv);
    sv->stage_procs = sv->nprocs;
    if (rc == PST_OK)
        rc = plan_hosts(sv);
    if (rc == PST_OK)
        rc = sv->opt->ranks > 1 ? pst_run_launch_ranks(sv) : pst_run_launch_stages(sv);
    return rc;
}

/* ---- the board ----------------------------------------------------------------------------------- */

static int instances_of(const struct pst_supervisor *sv, int stage)
{
    return sv->pl->stages[stage].instances;
}

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t n = RING_CAPACITY_MIN;
    while (n < at_least)
        n *= 2;
    return n;
}

void pst_run_layout_board(struct pst_supervisor *sv)
{
    uint64_t at = PST_PAGE;
    sv->pages_at = at;
    at += (uint64_t)sv->ninstances * PST_PAGE;
    for (int r = 0; r < sv->graph->nroutes; r++) {
        sv->pools_at[r] = at;
        at += pst_align_up(sizeof(struct pst_pool), PST_PAGE);
    }
    for (int l = 0; l < sv->pl->nlinks; l++) {
        const struct pst_link_spec *link = &sv->pl->links[l];
        if (pst_link_oneshot(sv->pl, link))
            continue;
        uint32_t slots = 0;
        for (int r = 0; r < sv->graph->nroutes; r++)
            if (pst_link_carries(sv->graph, r, sv->pl, link))
                slots += (uint32_t)sv->graph->routes[r].slots;
        sv->ring_refs[l] = slots < 1 ? 1 : slots > PST_REFS_MAX ? PST_REFS_MAX : slots;
        sv->ring_capacity[l] = power_of_two(slots * RING_FRAMES_PER_SLOT);
        sv->rings_at[l] = at;
        uint64_t rings = (uint64_t)instances_of(sv, link->from) * (uint64_t)instances_of(sv, link->to);
        at += rings * pst_ring_bytes(sv->ring_capacity[l], sv->ring_refs[l]);
    }
    at = pst_run_layout_meetings(sv, at);
    sv->blocks[0] = (struct pst_run_block){.host = 0, .bytes = pst_align_up(at, PST_PAGE)};
}

static uint64_t ring_at(const struct pst_supervisor *sv, int link, int producer, int consumer)
{
    int consumers = instances_of(sv, sv->pl->links[link].to);
    return sv->rings_at[link] + (uint64_t)(producer * consumers + consumer) *
                                    pst_ring_bytes(sv->ring_capacity[link], sv->ring_refs[link]);
}

static bool has_stream_input(const struct pst_supervisor *sv, int stage)
{
    for (int l = 0; l < sv->pl->nlinks; l++)
        if (sv->pl->links[l].to == stage && !sv->pl->links[l].back &&
            !pst_link_oneshot(sv->pl, &sv->pl->links[l]))
            return true;
    return false;
}

/* A stage that fills slots of several routes for a batch needs all of them in one instance. So each instance
 * has batches of its own. */
static bool goes_by_turn(const struct pst_supervisor *sv, int stage)
{
    int originates = 0;
    for (int r = 0; r < sv->graph->nroutes; r++)
        originates += sv->graph->routes[r].stage == stage;
    return originates > 1 || has_stream_input(sv, stage);
}

/* Do the slots of this route come home to an owner that wants them back? A copy of them does, too. */
static bool slots_return(const struct pst_supervisor *sv, int route)
{
    while (sv->graph->routes[route].copy_of >= 0)
        route = sv->graph->routes[route].copy_of;
    const struct pst_route *origin = &sv->graph->routes[route];
    return (sv->pl->stages[origin->stage].caps.desc->ports[origin->port].flags & PST_PORT_RETURNS) != 0;
}

void pst_run_parts(const struct pst_supervisor *sv, const char **names, struct pst_run_part *parts)
{
    for (int i = 0; i < sv->ninstances; i++) {
        const struct pst_run_instance *in = &sv->instances[i];
        const struct pst_pipeline_stage_spec *stage = &sv->pl->stages[in->stage];
        names[i] = in->name;
        parts[i] = (struct pst_run_part){.streams = !in->early, .by_turn = goes_by_turn(sv, in->stage)};
        (void)memcpy(parts[i].stage, stage->name, sizeof parts[i].stage);
        parts[i].worker = stage->caps.foreign                                 ? PST_RUN_PROGRAM
                          : stage->caps.desc == pst_builtin(PST_BUILTIN_COPY) ? PST_RUN_COPY
                          : pst_gpu_number(stage->device) >= 0                ? PST_RUN_GPU
                                                                              : PST_RUN_CPU;
    }
}

pst_rc pst_run_init_board(struct pst_supervisor *sv)
{
    pst_rc rc = pst_region_map(&sv->board_map, sv->blocks[0].path, sv->blocks[0].bytes);
    if (rc != PST_OK)
        return rc;
    char *base = sv->board_map.base;
    sv->board = sv->board_map.base;
    sv->board->bytes = sv->blocks[0].bytes;
    sv->board->epochs = (uint64_t)sv->pl->epochs;
    atomic_store(&sv->board->loss, NAN);
    for (int r = 0; r < sv->graph->nroutes && rc == PST_OK; r++) {
        const struct pst_route *route = &sv->graph->routes[r];
        rc = pst_pool_init((struct pst_pool *)(void *)(base + sv->pools_at[r]), (uint32_t)route->slots,
                           (uint32_t)instances_of(sv, route->stage), goes_by_turn(sv, route->stage),
                           slots_return(sv, r), sv->start_batch[route->stage]);
    }
    for (int l = 0; l < sv->pl->nlinks; l++)
        for (int p = 0; sv->rings_at[l] && p < instances_of(sv, sv->pl->links[l].from); p++)
            for (int c = 0; c < instances_of(sv, sv->pl->links[l].to); c++)
                pst_ring_init((struct pst_ring *)(void *)(base + ring_at(sv, l, p, c)), sv->ring_capacity[l],
                              sv->ring_refs[l]);
    sv->board->magic = PST_BOARD_MAGIC;
    return rc;
}

/* ---- messages ------------------------------------------------------------------------------------ */

json_t *pst_run_configure_message(const struct pst_supervisor *sv, int index)
{
    const struct pst_run_instance *in = &sv->instances[index];
    const struct pst_pipeline_stage_spec *stage = &sv->pl->stages[in->stage];
    json_t *linked = json_object();
    for (int l = 0; l < sv->pl->nlinks; l++) {
        const struct pst_link_spec *link = &sv->pl->links[l];
        if (link->from == in->stage)
            (void)json_object_set_new(linked, stage->caps.desc->ports[link->from_port].name, json_true());
        if (link->to == in->stage)
            (void)json_object_set_new(linked, stage->caps.desc->ports[link->to_port].name, json_true());
    }
    bool returns = false; /* of a copy: do the slots that it borrows come home changed? */
    for (int r = 0; r < sv->graph->nroutes; r++)
        if (sv->graph->routes[r].stage == in->stage && sv->graph->routes[r].copy_of >= 0)
            returns = slots_return(sv, r);
    json_t *j =
        json_pack("{ss ss ss sO si si si sI sI sI ss ss ss* ss so sb sb}", "type", "configure", "run",
                  stage->caps.file ? stage->caps.file : stage->caps.run, "base_dir", sv->pl->base_dir,
                  "params", stage->params, "index", index, "instance", in->number, "instances",
                  stage->instances, "seed", (json_int_t)sv->pl->seed, "epochs", (json_int_t)sv->pl->epochs,
                  "start_batch", (json_int_t)sv->start_batch[in->stage], "dataset", sv->opt->dataset_dir,
                  "run_dir", sv->opt->run_dir, "resume", sv->opt->resume, "inbox", in->inbox, "linked",
                  linked, "trace", sv->opt->trace, "returns", returns);
    char *identity = pst_pipeline_identity(sv->pl);
    (void)json_object_set_new(j, "identity", json_string(identity ? identity : "{}"));
    free(identity);
    if (sv->opt->batches > 0)
        (void)json_object_set_new(
            j, "stop_batch",
            json_integer((json_int_t)sv->start_batch[in->stage] + (json_int_t)sv->opt->batches));
    (void)json_object_set_new(j, "dataset_digest", json_string(sv->opt->dataset_digest));
    (void)json_object_set_new(j, "stops", json_boolean(sv->pl->stop_patience > 0));
    pst_run_add_replica(sv, j, stage);
    pst_run_add_receivers(sv, j, in->stage);
    pst_run_add_in_place(sv, j, in->stage);
    (void)json_object_set_new(j, "overlap", json_boolean(sv->pl->overlap));
    if (sv->pl->bus_bytes_per_s > 0)
        (void)json_object_set_new(j, "bus_bytes_per_s",
                                  json_real(sv->pl->bus_bytes_per_s / sv->pl->bus_dilate));
    (void)json_object_set_new(j, "debug", json_boolean(sv->opt->debug));
    (void)json_object_set_new(
        j, "debug_wait",
        json_boolean(sv->opt->debug_stage && (strcmp(sv->opt->debug_stage, stage->name) == 0 ||
                                              strcmp(sv->opt->debug_stage, stage->origin) == 0)));
    (void)json_object_set_new(j, "cores", json_string(stage->cores));
    (void)json_object_set_new(j, "device", json_string(stage->device));
    if (stage->caps.foreign)
        (void)json_object_set_new(j, "endpoint", json_string(in->endpoint));
    return j;
}

static json_t *peers(const struct pst_supervisor *sv, int stage)
{
    json_t *list = json_array();
    for (int i = 0; i < sv->ninstances; i++)
        if (sv->instances[i].stage == stage)
            (void)json_array_append_new(list, json_pack("{ss ss si}", "name", sv->instances[i].name, "inbox",
                                                        sv->instances[i].inbox, "page", i));
    return list;
}

static json_t *rings(const struct pst_supervisor *sv, int link, int producer, int consumer)
{
    json_t *list = json_array();
    int n =
        producer < 0 ? instances_of(sv, sv->pl->links[link].from) : instances_of(sv, sv->pl->links[link].to);
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list,
                                    json_integer((json_int_t)ring_at(sv, link, producer < 0 ? i : producer,
                                                                     consumer < 0 ? i : consumer)));
    return list;
}

/* The port of `stage` that the route passes, or -1. */
static int route_port(const struct pst_route *route, int stage)
{
    if (route->stage == stage)
        return route->port;
    for (int b = 0; b < route->borrowers; b++)
        if (route->borrower_stage[b] == stage)
            return route->borrower_port[b];
    return -1;
}

static void add_route(const struct pst_supervisor *sv, json_t *routes, json_t *regions, int r, int stage)
{
    const struct pst_route *route = &sv->graph->routes[r];
    const struct pst_pipeline_stage_spec *spec = &sv->pl->stages[stage];
    int port = route_port(route, stage);
    if (port < 0)
        return;
    bool copy = spec->caps.desc == pst_builtin(PST_BUILTIN_COPY);
    int hold = copy ? route->slots : pst_pipeline_port_hold(spec, &spec->caps.desc->ports[port]);
    json_t *told =
        json_pack("{si si si sI sI si si si so}", "id", r, "region", (int)json_array_size(regions), "slots",
                  route->slots, "slot_bytes", (json_int_t)sv->slot_bytes[r], "pool",
                  (json_int_t)sv->pools_at[r], "origin_port", route->stage == stage ? route->port : -1,
                  "via_port", port, "hold", hold, "origins", peers(sv, route->stage));
    if (pst_gpu_number(spec->device) >= 0)
        pst_run_add_events(sv, told, r, stage);
    (void)json_array_append_new(routes, told);
    (void)json_array_append_new(regions, json_pack("{ss sI}", "path", sv->blocks[1 + r].path, "bytes",
                                                   (json_int_t)sv->blocks[1 + r].bytes));
}

json_t *pst_run_open_message(const struct pst_supervisor *sv, int index)
{
    const struct pst_run_instance *in = &sv->instances[index];
    json_t *routes = json_array(), *regions = json_array(), *inputs = json_array(), *outputs = json_array();
    for (int r = 0; r < sv->graph->nroutes; r++)
        add_route(sv, routes, regions, r, in->stage);
    for (int l = 0; l < sv->pl->nlinks; l++) {
        const struct pst_link_spec *link = &sv->pl->links[l];
        if (pst_link_oneshot(sv->pl, link))
            continue;
        if (link->to == in->stage)
            (void)json_array_append_new(
                inputs,
                json_pack("{si sb sI so so}", "port", link->to_port, "back", link->back, "start_batch",
                          (json_int_t)sv->start_batch[link->back ? in->stage : link->from], "rings",
                          rings(sv, l, -1, in->number), "producers", peers(sv, link->from)));
        if (link->from == in->stage)
            (void)json_array_append_new(outputs, json_pack("{si so so}", "port", link->from_port, "rings",
                                                           rings(sv, l, in->number, -1), "consumers",
                                                           peers(sv, link->to)));
    }
    json_t *message =
        json_pack("{ss ss sI sI si so so so so}", "type", "open", "board", sv->blocks[0].path, "board_bytes",
                  (json_int_t)sv->blocks[0].bytes, "pages_at", (json_int_t)sv->pages_at, "page", index,
                  "routes", routes, "regions", regions, "inputs", inputs, "outputs", outputs);
    pst_run_add_shared(sv, message, in->stage);
    pst_run_add_meeting(sv, message, in->stage);
    return message;
}

/* ---- sizing -------------------------------------------------------------------------------------- */

void pst_run_add_needs(struct pst_supervisor *sv, int index, const json_t *needs)
{
    int stage = sv->instances[index].stage;
    size_t i;
    json_t *need;
    json_array_foreach((json_t *)(uintptr_t)needs, i, need)
    {
        pst_run_need_shared(sv, stage, need);
        const char *name = json_string_value(json_object_get(need, "port"));
        int port = name ? pst_desc_port(sv->pl->stages[stage].caps.desc, name) : -1;
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(need, "bytes"));
        uint64_t align = (uint64_t)json_integer_value(json_object_get(need, "align"));
        for (int r = 0; r < sv->graph->nroutes; r++) {
            if (route_port(&sv->graph->routes[r], stage) != port || port < 0)
                continue;
            if (bytes > sv->slot_bytes[r]) {
                sv->slot_bytes[r] = bytes;
                sv->asked_by[r] = stage;
            }
            if (align > sv->align[r])
                sv->align[r] = align;
        }
    }
}

static const char *asked_by(const struct pst_supervisor *sv, int route)
{
    return sv->pl->stages[sv->asked_by[route]].name;
}

static pst_rc check_memory(const struct pst_supervisor *sv, uint64_t total)
{
    const uint64_t have = pst_memory_limit();
    if (total <= have)
        return PST_OK;
    char list[1024] = "";
    for (int r = 0; r < sv->graph->nroutes; r++) {
        const struct pst_route *route = &sv->graph->routes[r];
        (void)snprintf(list + strlen(list), sizeof list - strlen(list),
                       "; %s.%s: %d slots of %.1f MiB, as stage %s requested",
                       sv->pl->stages[route->stage].name,
                       sv->pl->stages[route->stage].caps.desc->ports[route->port].name, route->slots,
                       (double)sv->slot_bytes[r] / 1048576.0, asked_by(sv, r));
    }
    uint64_t caches = 0;
    for (int s = 0; s < sv->pl->nstages; s++) {
        const uint64_t bytes = sv->blocks[1 + sv->graph->nroutes + s].bytes;
        caches += bytes;
        if (bytes > 0)
            (void)snprintf(list + strlen(list), sizeof list - strlen(list),
                           "; %s: %.1f MiB that its instances share", sv->pl->stages[s].name,
                           (double)bytes / 1048576.0);
    }
    const char *what = caches > 0 ? "slots and shared caches" : "the slots";
    const char *cache = caches > 0 ? "a smaller cpu_cache, " : "";
    return pst_fail(PST_E_LIMIT,
                    "%s need %.2f GiB, but this run may use only %.2f GiB (the machine's memory, or the "
                    "limit of a memory cgroup): use %sfewer slots, smaller batches or smaller fanouts%s",
                    what, (double)total / 1073741824.0, (double)have / 1073741824.0, cache, list);
}

pst_rc pst_run_size_routes(struct pst_supervisor *sv)
{
    for (int pass = 0; pass < sv->graph->nroutes; pass++) /* a copy and its original get the larger size */
        for (int r = 0; r < sv->graph->nroutes; r++) {
            int of = sv->graph->routes[r].copy_of;
            if (of < 0)
                continue;
            const int larger = sv->slot_bytes[r] > sv->slot_bytes[of] ? r : of;
            sv->slot_bytes[r] = sv->slot_bytes[of] = sv->slot_bytes[larger];
            sv->asked_by[r] = sv->asked_by[of] = sv->asked_by[larger];
        }
    uint64_t total = 0;
    for (int r = 0; r < sv->graph->nroutes; r++) {
        const struct pst_route *route = &sv->graph->routes[r];
        uint64_t align = sv->align[r] > PST_CACHE_LINE ? sv->align[r] : PST_CACHE_LINE;
        if (sv->slot_bytes[r] == 0)
            return pst_fail(PST_E_STATE,
                            "no stage requested a slot size for %s.%s (with pst_need, or with \"needs\")",
                            sv->pl->stages[route->stage].name,
                            sv->pl->stages[route->stage].caps.desc->ports[route->port].name);
        if (sv->slot_bytes[r] > (UINT64_C(1) << 46))
            return pst_fail(
                PST_E_LIMIT,
                "stage %s requested slots of %.1f TiB for the output %s.%s; expected at most 64 TiB",
                asked_by(sv, r), (double)sv->slot_bytes[r] / 1099511627776.0,
                sv->pl->stages[route->stage].name,
                sv->pl->stages[route->stage].caps.desc->ports[route->port].name);
        sv->slot_bytes[r] = pst_align_up(sv->slot_bytes[r], align);
        struct pst_run_block *block = &sv->blocks[1 + r];
        block->bytes = pst_align_up(sv->slot_bytes[r] * (uint64_t)route->slots, PST_PAGE);
        block->host = 0;
        for (int h = 0; h < sv->nhosts; h++)
            if (strcmp(sv->hosts[h].device, route->device) == 0)
                block->host = h;
        total += route->memory == PST_ROUTE_GPU ? 0 : block->bytes; /* a GPU's host fails by itself */
    }
    for (int s = 0; s < sv->pl->nstages; s++)
        total += sv->blocks[1 + sv->graph->nroutes + s].bytes;
    const pst_rc rc = pst_run_check_shared(sv);
    return rc == PST_OK ? check_memory(sv, total) : rc;
}
