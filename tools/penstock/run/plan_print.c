/* plan_print.c: what `penstock plan` prints. */
#include <stdio.h>

#include "common/util/progress.h"
#include "tools/penstock/run/plan_command.h"

static const char *const tiers[] = {
    [PST_PLACEMENT_HOME] = "home", [PST_PLACEMENT_CPU] = "cpu", [PST_PLACEMENT_GPU] = "gpu"};
const char *const plan_costs[3] = {"paper", "access", "exact"};

static int64_t vertices_in(const struct plan_result *r, const struct pst_placement_plan *plan, int kind,
                           int tier)
{
    const struct pst_placement_queue *q = &r->placement.queue[kind];
    int64_t n = tier == PST_PLACEMENT_HOME ? q->left : 0;
    for (int64_t i = 0; i < q->chunks; i++)
        n += plan->tier[kind][i] == tier ? q->cut[i + 1] - q->cut[i] : 0;
    return n;
}

static double transactions_of(const struct pst_placement_plan *plan)
{
    return plan->ssd[0] + plan->ssd[1] + plan->cpu[0] + plan->cpu[1];
}

static const char *home_of(const struct plan_args *args, int kind)
{
    return kind == PST_PLACEMENT_LISTS && args->in.lists_in_memory ? "memory" : "ssd";
}

/* ---- text ---------------------------------------------------------------------------------------------- */

static void print_places(const struct plan_args *args, const struct plan_result *r)
{
    const struct pst_placement_plan *plan = &r->policy[args->ask.policy];
    printf("\nwhat the policy %s puts where, and the reads of a batch that go there:\n",
           pst_placement_policy_name(args->ask.policy));
    printf("  %-14s %14s %14s %14s %14s\n", "", "lists", "list reads", "rows", "row reads");
    for (int tier = PST_PLACEMENT_TIERS - 1; tier >= 0; tier--) {
        char size[32] = "", name[64];
        if (tier != PST_PLACEMENT_HOME)
            (void)snprintf(name, sizeof name, "%s %s", tiers[tier],
                           pst_bytes_text((double)args->in.cache_bytes[tier], size));
        else
            (void)snprintf(name, sizeof name, "%s, %s", home_of(args, 0), home_of(args, 1));
        printf("  %-14s", name);
        for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++)
            printf(" %14lld %14.1f", (long long)vertices_in(r, plan, kind, tier), plan->reads[kind][tier]);
        printf("\n");
    }
}

static void print_policy(const struct plan_args *args, const char *name,
                         const struct pst_placement_plan *plan, double joint)
{
    const double sum = transactions_of(plan);
    printf("  %-14s %12.1f %12.1f %12.1f %12.1f %12.1f", name, plan->ssd[0], plan->ssd[1], plan->cpu[0],
           plan->cpu[1], sum);
    if (joint > 0)
        printf(" %8.2f%%", 100 * (sum / joint - 1));
    else
        printf(" %9s", "-");
    if (args->ask.machine != NULL)
        printf(" %10.6f %10.6f %10.6f", plan->ssd_s, plan->pcie_s, plan->batch_s);
    printf("\n");
}

static void print_bound(const struct plan_args *args, const struct pst_placement_plan *joint)
{
    const double gap = joint->bound > 0 ? 100 * (joint->value / joint->bound - 1) : 0;
    if (args->ask.objective == PST_PLACEMENT_TIME)
        printf("joint: %.9g s a batch; no placement of these chunks is below %.9g s (gap %.3f %%)\n",
               joint->value, joint->bound, gap);
    else
        printf("joint: %.9g transactions a batch, the least that a placement of these chunks has\n",
               joint->value);
}

void plan_print(const struct plan_args *args, const struct plan_result *r)
{
    const struct pst_plan *plan = &r->plan;
    const struct pst_placement_queue *queue = r->placement.queue;
    char size[32];
    printf("%s: %lld vertices, %lld batches an epoch, hotness %s\n", r->ds.name, (long long)plan->vertices,
           (long long)args->in.batches, plan->key.hotness);
    printf("chunks of %s: %lld of lists, %lld of rows; %lld lists are longer and are not cached\n",
           pst_bytes_text((double)r->placement.chunk_bytes, size), (long long)queue[0].chunks,
           (long long)queue[1].chunks, (long long)queue[0].left);
    print_places(args, r);
    printf("\ntransactions of %u bytes a batch, counted by the cost %s:\n", args->in.line_bytes,
           plan_costs[args->in.cost]);
    printf("  %-14s %12s %12s %12s %12s %12s %9s", "policy", "ssd lists", "ssd rows", "cpu lists", "cpu rows",
           "sum", "to joint");
    if (args->ask.machine != NULL)
        printf(" %10s %10s %10s", "T_ssd", "T_pcie", "T_batch");
    printf("\n");
    const double joint = transactions_of(&r->policy[PST_PLACEMENT_JOINT]);
    for (int i = PST_PLACEMENT_POLICIES - 1; i >= 0; i--)
        print_policy(args, pst_placement_policy_name((enum pst_placement_policy)i), &r->policy[i], joint);
    print_policy(args, "paper, printed", &r->printed, joint);
    if (args->count_with != NULL)
        printf("the reads are those of %s; joint's value below is what the planner expected\n",
               args->count_with);
    printf("paper, printed: the paper's policy with its own cost formulas\n");
    print_bound(args, &r->policy[PST_PLACEMENT_JOINT]);
    printf("plan: %s/plan/plan.json\n", args->run_dir);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static json_t *places_to_json(const struct plan_args *args, const struct plan_result *r, int kind)
{
    const struct pst_placement_plan *plan = &r->policy[args->ask.policy];
    json_t *places = json_object();
    for (int tier = 0; tier < PST_PLACEMENT_TIERS; tier++)
        (void)json_object_set_new(places, tiers[tier],
                                  json_pack("{sI sf}", "vertices",
                                            (json_int_t)vertices_in(r, plan, kind, tier), "reads",
                                            plan->reads[kind][tier]));
    (void)json_object_set_new(places, "home_is", json_string(home_of(args, kind)));
    return places;
}

static json_t *policy_to_json(const struct plan_args *args, const char *policy, const char *cost,
                              const struct pst_placement_plan *plan)
{
    json_t *json = json_pack("{ss ss s{sf sf} s{sf sf} sf}", "policy", policy, "placed_by_cost", cost,
                             "topology", "ssd", plan->ssd[0], "cpu", plan->cpu[0], "features", "ssd",
                             plan->ssd[1], "cpu", plan->cpu[1], "transactions", transactions_of(plan));
    if (args->ask.machine != NULL)
        (void)json_object_update_new(json, json_pack("{sf sf sf}", "t_ssd_s", plan->ssd_s, "t_pcie_s",
                                                     plan->pcie_s, "t_batch_s", plan->batch_s));
    return json;
}

json_t *plan_to_json(const struct plan_args *args, const struct plan_result *r)
{
    const char *cost = plan_costs[args->in.cost];
    const struct pst_placement_plan *joint = &r->policy[PST_PLACEMENT_JOINT];
    json_t *policies = json_array();
    for (int i = PST_PLACEMENT_POLICIES - 1; i >= 0; i--)
        (void)json_array_append_new(
            policies, policy_to_json(args, pst_placement_policy_name((enum pst_placement_policy)i), cost,
                                     &r->policy[i]));
    (void)json_array_append_new(policies, policy_to_json(args, "paper", "paper", &r->printed));
    return json_pack(
        "{ss sI sI ss ss ss ss s{sI sI} sI s{so so} so s{ss sf sf} ss ss?}", "dataset", r->ds.dir, "vertices",
        (json_int_t)r->plan.vertices, "batches", (json_int_t)args->in.batches, "hotness", r->plan.key.hotness,
        "cost", cost, "objective", args->ask.objective == PST_PLACEMENT_TIME ? "time" : "transactions",
        "policy", pst_placement_policy_name(args->ask.policy), "cache_bytes", "gpu",
        (json_int_t)args->in.cache_bytes[PST_PLACEMENT_GPU], "cpu",
        (json_int_t)args->in.cache_bytes[PST_PLACEMENT_CPU], "chunk_bytes",
        (json_int_t)r->placement.chunk_bytes, "placed", "topology", places_to_json(args, r, 0), "features",
        places_to_json(args, r, 1), "policies", policies, "joint", "objective",
        args->ask.objective == PST_PLACEMENT_TIME ? "seconds" : "transactions", "value", joint->value,
        "bound", joint->bound, "run_dir", args->run_dir, "counted_with", args->count_with);
}
