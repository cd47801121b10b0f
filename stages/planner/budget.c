/* budget.c: how much memory the tiers may take. */
#include "stages/planner/budget.h"

#include <stdio.h>
#include <string.h>

#include "common/util/memory.h"
#include "common/util/progress.h"

#define CHUNKS 64 /* chunks of lists and rows are not all full: so much of the tier may stay empty */

static uint64_t slot_bytes(const struct pst_sampling_input *in, const struct pst_minibatch_size *most)
{
    struct pst_minibatch_layout layout;
    pst_minibatch_layout_init(&layout, most, in->ds.feature_dim > 0 ? in->ds.stride_bytes : 0);
    return layout.bytes;
}

/* All lists with their offsets. */
static uint64_t lists_bytes(const struct pst_sampling_input *in)
{
    return (uint64_t)in->ds.vertices * sizeof(int64_t) +
           (uint64_t)in->graph.edges * (uint64_t)in->graph.index_bytes;
}

/* All rows, and all lists. */
static uint64_t cacheable(const struct pst_sampling_input *in, bool lists)
{
    const uint64_t rows = in->ds.feature_dim > 0 ? (uint64_t)in->ds.vertices * in->ds.stride_bytes : 0;
    return rows + (lists ? lists_bytes(in) : 0);
}

/* A GPU that does not answer has no room: the sampler says why when it opens the GPU. */
static uint64_t free_on(const struct pst_device *device)
{
    uint64_t there = 0, all = 0;
    char why[PST_TWIN_WHY_BYTES] = "";
    return device->twin->room(device->number, &there, &all, why) == PST_OK ? there : 0;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Bytes for all but slots: processes with the model, the page cache with the graph, evaluation. */
static uint64_t others(const struct pst_sampling_input *in, const struct pst_planner_budget_ask *ask,
                       uint64_t room)
{
    if (ask->gpu_tier)
        return room / 4;
    const uint64_t eighth = room / 8, part = ask->trains_only ? eighth : 2 * eighth, most = 2 * part;
    uint64_t least = PST_PLANNER_PROCESSES;
    if (!ask->trains_only)
        least += eighth; /* the trainer's eval_memory is at most this, if it is "auto" */
    else if (ask->graph)
        least += lists_bytes(in);
    return least < part ? part : least < most ? least : most;
}

struct pst_planner_budget pst_planner_budget(const struct pst_device *device,
                                             const struct pst_sampling_input *in,
                                             const struct pst_minibatch_size *most,
                                             const struct pst_planner_budget_ask *ask)
{
    const bool on_gpu = ask->gpu_tier && pst_device_is_cuda(device), shared = !pst_device_is_cuda(device);
    struct pst_planner_budget b = {.free = on_gpu ? free_on(device) : pst_memory_free() + ask->held,
                                   .reserve = ask->reserve};
    const uint64_t things = cacheable(in, ask->lists), all = things + (ask->lists ? things / CHUNKS : 0);
    if (ask->reserve == UINT64_MAX)
        b.reserve = PST_PLANNER_SLOTS * slot_bytes(in, most) + others(in, ask, b.free);
    b.cache = less(less(b.free, b.reserve), shared ? ask->other_tier : 0);
    const uint64_t left = less(all, ask->other_tier);
    b.cache = b.cache < left ? b.cache : left;
    return b;
}

uint64_t pst_planner_find_tier(struct pst_stage *self, const struct pst_device *device,
                               const struct pst_sampling_input *in, const struct pst_minibatch_size *most,
                               const struct pst_planner_budget_ask *ask)
{
    char free_text[32], reserve_text[32], cache_text[32];
    const struct pst_planner_budget b = pst_planner_budget(device, in, most, ask);
    pst_log(self,
            "%s_cache auto: %s; %s of memory are free, and %s are reserved for slots, model and evaluation",
            ask->gpu_tier ? "gpu" : "cpu", pst_bytes_text((double)b.cache, cache_text),
            pst_bytes_text((double)b.free, free_text), pst_bytes_text((double)b.reserve, reserve_text));
    return b.cache;
}

static int64_t rows_in(const struct pst_sampling_input *in, uint64_t bytes)
{
    return in->ds.feature_dim > 0 ? (int64_t)(bytes / in->ds.stride_bytes) : 0;
}

pst_rc pst_planner_choose_rows(struct pst_plan *plan, struct pst_stage *self, int port,
                               const struct pst_sampling_input *in)
{
    const bool all = in->ds.cut.parts > 0 && pst_receiver_is(self, port, "remote");
    (void)snprintf(plan->key.policy, sizeof plan->key.policy, "%s", all ? PST_PLAN_ROWS_OF_ALL : "rows");
    return !all || plan->key.gpu_budget_bytes == 0
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "a stage remote gets the plan and caches rows of other parts of the dataset, which "
                          "only the CPU tier can hold: set gpu_cache to 0");
}

bool pst_planner_has_own_seeds(const struct pst_stage *self, int port)
{
    return strcmp(pst_receiver_text(self, port, "shuffle", "global"), "local") == 0;
}

bool pst_planner_small_slots(const struct pst_stage *self, int port, const struct pst_sampling_input *in)
{
    return pst_receiver_in_place(self, port) && pst_receiver_int(self, port, "in_place", 0) != 0 &&
           in->ds.cut.parts == 0 && strcmp(pst_receiver_text(self, port, "shuffle", "global"), "global") == 0;
}

bool pst_planner_own_rows(const struct pst_plan *plan, const struct pst_sampling_input *in)
{
    return in->ds.cut.parts > 0 && strcmp(plan->key.policy, PST_PLAN_ROWS_OF_ALL) != 0;
}

pst_rc pst_planner_place_rows(struct pst_plan *plan, const struct pst_sampling_input *in, const float *scores)
{
    const struct pst_dataset *ds = &in->ds;
    const bool own = pst_planner_own_rows(plan, in);
    const int64_t gpu_rows = rows_in(in, plan->key.gpu_budget_bytes),
                  first = own ? ds->features.first_row : 0,
                  rows = own ? ds->features.shape[0] : plan->vertices;
    const pst_rc rc =
        pst_plan_choose(scores + plan->key.hops * plan->vertices + first, rows,
                        gpu_rows + rows_in(in, plan->key.cache_budget_bytes), &plan->rows.ids, &plan->rows.n);
    for (int64_t i = 0; i < plan->rows.n && rc == PST_OK; i++)
        plan->rows.ids[i] += first;
    plan->rows.gpu_n = pst_min_i64(gpu_rows, plan->rows.n);
    return rc;
}

void pst_planner_name_placement(struct pst_plan_key *key, const struct pst_placement_ask *ask,
                                enum pst_placement_cost cost, int64_t cls)
{
    static const char *const costs[] = {"paper", "access", "exact"};
    const int at = snprintf(key->policy, sizeof key->policy, "%s by cost %s of %lld bytes",
                            pst_placement_policy_name(ask->policy), costs[cost], (long long)cls);
    if (ask->policy == PST_PLACEMENT_HYBRID)
        (void)snprintf(key->policy + at, sizeof key->policy - (size_t)at, ", shares %.4g and %.4g",
                       ask->lists_share[PST_PLACEMENT_GPU], ask->lists_share[PST_PLACEMENT_CPU]);
}

pst_rc pst_planner_report(struct pst_stage *self, const struct pst_plan *plan, bool reused)
{
    pst_log(self,
            "%s: largest batch %lld vertices; cached by hotness (%s): %lld rows, %lld of them in the GPU "
            "tier, and %lld lists, %lld of them in the GPU tier; predicted hit rate of rows %.3f",
            reused ? "reused" : "planned", (long long)plan->max.n[plan->max.hops], plan->key.hotness,
            (long long)plan->rows.n, (long long)plan->rows.gpu_n, (long long)plan->lists.n,
            (long long)plan->lists.gpu_n, plan->predicted_hit_rate);
    return pst_report(
        self, "planner",
        "{\"batches\": %lld, \"sampled\": %lld, \"vertices_max\": %lld, \"cached_rows\": %lld, \"gpu_rows\": "
        "%lld, "
        "\"cached_lists\": %lld, \"gpu_lists\": %lld, \"gpu_cache\": %llu, \"cpu_cache\": %llu, "
        "\"policy\": \"%s\", "
        "\"hotness\": \"%s\", \"predicted_hit_rate\": %.6f, \"max_misses\": %lld, \"reused\": \"%s\"}",
        (long long)plan->batches, (long long)plan->sampled, (long long)plan->max.n[plan->max.hops],
        (long long)plan->rows.n, (long long)plan->rows.gpu_n, (long long)plan->lists.n,
        (long long)plan->lists.gpu_n, (unsigned long long)plan->key.gpu_budget_bytes,
        (unsigned long long)plan->key.cache_budget_bytes, plan->key.policy, plan->key.hotness,
        plan->predicted_hit_rate, (long long)plan->max_misses, reused ? "yes" : "no");
}

pst_rc pst_planner_report_placement(struct pst_stage *self, const struct pst_plan_reads *r)
{
    return pst_report(self, "placement",
                      "{\"gpu_lists\": %.6f, \"cpu_lists\": %.6f, \"ssd_lists\": %.6f, \"gpu_rows\": %.6f, "
                      "\"cpu_rows\": %.6f, \"ssd_rows\": %.6f, \"cpu_transactions\": %.6f, "
                      "\"ssd_transactions\": %.6f}",
                      r->lists[PST_PLACEMENT_GPU], r->lists[PST_PLACEMENT_CPU], r->lists[PST_PLACEMENT_HOME],
                      r->rows[PST_PLACEMENT_GPU], r->rows[PST_PLACEMENT_CPU], r->rows[PST_PLACEMENT_HOME],
                      r->cpu, r->ssd);
}
