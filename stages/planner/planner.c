/* planner.c: decides before the run how large slots must be and which feature rows are cached. It samples
 * with the sampler's algorithm, but with its own seeds: the plan is made for the graph, not for one run. It
 * samples whole epochs to count hotness, otherwise some batches. Slots get the size of the largest of these.
 * Rows and lists are cached by their hotness, which is computed (stages/lib/plan/hotness.h), counted in the
 * sampled batches, or read from a file. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/progress.h"
#include "stages/lib/plan/tiers.h"
#include "stages/planner/budget.h"
#include "stages/planner/hotness_source.h"
#include "stages/planner/presample.h"
#include "stages/planner/shared_caches.h"

/* How lists and rows share the tiers. AUTO: JOINT if lists are on drives, otherwise ROWS. From PLACED on, the
 * policies of enum pst_placement_policy; from SHARED on, those of enum pst_legion_policy. */
enum tiers_policy { AUTO, ROWS, PLACED, SHARED = PLACED + PST_PLACEMENT_POLICIES };
#define POLICY_CHOICES "auto|rows|paper|gtct|gtcf|gfct|gfcf|hybrid|joint|" PST_LEGION_POLICY_CHOICES

/* AUTO: EXACT, if the algorithm is uniform; otherwise ACCESS. From COSTS on, those of enum
 * pst_placement_cost. */
enum tiers_cost { COST_AUTO, COSTS };
#define COST_CHOICES "auto|paper|access|exact"

#define AUTO_TURNS 2 /* how many times a tier of "auto" is enlarged, because slots became smaller */

struct planner {
    struct pst_sampling_input_params params;
    int64_t epochs, sizing_batches;
    uint64_t gpu_cache, cpu_cache, reserve; /* UINT64_MAX: "auto" */
    double cpu_cache_percent;
    enum tiers_policy policy;
    enum tiers_cost cost;
    int64_t cls;
    double gpu_lists_share, cpu_lists_share;
    struct pst_plan_reads reads;     /* what the placement expects */
    enum pst_hotness_source hotness; /* as the user wants it; then as it is: not AUTO */
    const char *hotness_file;
    uint64_t hotness_memory, presample_memory, gap_bytes;
    const char *reuse;
    struct pst_sampling_input in;
    struct pst_plan plan;
    struct pst_presample presample;
    bool small_slots; /* slots hold only rows that are not cached */
    float *scores;    /* (hops + 1) x vertices: see hotness.h */
    struct pst_planner_scores computed;
    struct pst_planner_shared shared;
};

/* Do replicas of the sampler have caches for one another? */
static bool is_shared(const struct planner *p)
{
    return p->policy >= SHARED;
}

/* ---- size: what the plan is for ------------------------------------------------------------------ */

static bool cpu_cache_is_auto(const struct planner *p)
{
    return p->cpu_cache_percent < 0 && p->cpu_cache == UINT64_MAX;
}

/* Without a GPU nothing stands in for its memory unless that is asked for. */
static bool gpu_cache_is_auto(const struct planner *p)
{
    return p->gpu_cache == UINT64_MAX;
}

static uint64_t gpu_budget_of(struct pst_stage *self, const struct planner *p)
{
    const bool on_gpu = strncmp(pst_device_name(self), "cuda:", strlen("cuda:")) == 0;
    return gpu_cache_is_auto(p) && !on_gpu ? 0 : p->gpu_cache;
}

/* UINT64_MAX: to be found when the largest batch is known. */
static uint64_t budget_of(const struct planner *p, const struct pst_dataset *ds)
{
    if (p->cpu_cache_percent < 0)
        return p->cpu_cache;
    int64_t rows = (int64_t)((double)ds->vertices * p->cpu_cache_percent / 100 + 0.5);
    return (uint64_t)rows * ds->stride_bytes;
}

/* Reads the file now, so that a bad one is told before anything starts and `reuse` can compare it. */
static pst_rc read_file(struct planner *p)
{
    const size_t bytes = (size_t)(p->in.key.hops + 1) * (size_t)p->in.graph.vertices * sizeof *p->scores;
    p->scores = malloc(bytes);
    if (p->scores == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes for the vertices' hotness",
                        bytes);
    const pst_rc rc = pst_hotness_read(p->hotness_file, p->in.key.hops, p->in.graph.vertices, p->scores,
                                       p->plan.key.hotness_id);
    return rc == PST_OK ? rc : pst_wrap(rc, "hotness_file");
}

/* An oracle's batches depend on the run's seed and epochs, RANDOM on the seed. */
static void name_run(struct pst_stage *self, struct planner *p)
{
    const uint64_t run[2] = {pst_seed(self), (uint64_t)pst_epochs(self)};
    p->plan.epochs = p->hotness == PST_HOTNESS_ORACLE ? pst_epochs(self) : p->plan.epochs;
    (void)snprintf(p->plan.key.hotness_id, sizeof p->plan.key.hotness_id, "%016" PRIx64,
                   (uint64_t)XXH3_64bits(run, sizeof run));
}

static pst_rc choose_shared(struct pst_stage *self, struct planner *p)
{
    p->shared.policy = (enum pst_legion_policy)(p->policy - SHARED);
    p->shared.line_bytes = (uint32_t)p->cls;
    return gpu_cache_is_auto(p) || cpu_cache_is_auto(p)
               ? pst_fail(PST_E_ARG,
                          "with this policy, each replica of the sampler has a cache of its own: set "
                          "gpu_cache to its size, and cpu_cache to that of the CPU tier, or to 0")
               : pst_planner_shared_size(&p->shared, self, pst_port(self, "plan"), &p->in, p->params.topology,
                                         &p->plan);
}

static struct pst_placement_ask placement_of(const struct planner *p)
{
    return (struct pst_placement_ask){
        .policy = (enum pst_placement_policy)(p->policy - PLACED),
        .lists_share = {[PST_PLACEMENT_CPU] = p->cpu_lists_share, [PST_PLACEMENT_GPU] = p->gpu_lists_share}};
}

/* Decides what AUTO is, and names the policy for a later `reuse`. */
static pst_rc choose_policy(struct pst_stage *self, struct planner *p)
{
    if (p->cls & (p->cls - 1))
        return pst_fail(PST_E_ARG, "the parameter cls is %lld; expected a power of two from 16 to %d",
                        (long long)p->cls, PST_SECTOR);
    if (is_shared(p))
        return choose_shared(self, p);
    if (p->in.ds.cut.parts > 0 && p->policy != AUTO && p->policy != ROWS)
        return pst_fail(PST_E_ARG,
                        "the dataset is a part of a cut dataset, of which a rank caches rows only: "
                        "set policy to \"rows\" or \"auto\"");

    const bool ssd = p->params.topology == PST_TOPOLOGY_SSD;
    const char *algorithm = p->in.algorithm.algorithm->name;
    const bool uniform = strcmp(algorithm, "uniform") == 0;
    if (p->policy == AUTO)
        p->policy = ssd ? (enum tiers_policy)(PLACED + PST_PLACEMENT_JOINT) : ROWS;
    if (p->cost == COST_AUTO)
        p->cost = (enum tiers_cost)(COSTS + (uniform ? PST_PLACEMENT_EXACT : PST_PLACEMENT_ACCESS));
    if (p->policy == ROWS)
        return pst_planner_choose_rows(&p->plan, self, pst_port(self, "plan"), &p->in);
    if (!ssd)
        return pst_fail(
            PST_E_ARG, "the policy places lists of neighbours, but topology is not \"ssd\", so all lists are "
                       "in memory; set policy to \"rows\" or \"auto\"");
    if (p->cost == (enum tiers_cost)(COSTS + PST_PLACEMENT_EXACT) && !uniform)
        return pst_fail(PST_E_ARG,
                        "the cost \"exact\" works only for the sampling algorithm uniform, but this is %s: "
                        "set cost to \"access\"",
                        algorithm);
    const struct pst_placement_ask ask = placement_of(p);
    pst_planner_name_placement(&p->plan.key, &ask, (enum pst_placement_cost)(p->cost - COSTS), p->cls);
    return PST_OK;
}

static pst_rc size(struct pst_stage *self)
{
    struct planner *p = pst_state(self);
    const uint64_t own = XXH3_64bits_withSeed("planner", strlen("planner"), pst_seed(self));
    const struct pst_sampling_order order = {.seed = p->hotness == PST_HOTNESS_ORACLE ? pst_seed(self) : own,
                                             .shuffle = true,
                                             .own_part =
                                                 pst_planner_has_own_seeds(self, pst_port(self, "plan"))};
    pst_rc rc = pst_sampling_input_open(&p->in, self, &p->params, NULL, NULL, order);
    if (rc == PST_OK)
        rc = pst_planner_choose_source(self, p->in.algorithm.algorithm, p->hotness_file, is_shared(p),
                                       &p->hotness);
    if (rc != PST_OK)
        return rc;
    p->plan.key = p->in.key;
    p->plan.key.gpu_budget_bytes = gpu_budget_of(self, p);
    p->plan.key.cache_budget_bytes = budget_of(p, &p->in.ds);
    (void)snprintf(p->plan.key.hotness, sizeof p->plan.key.hotness, "%s",
                   pst_hotness_source_name(p->hotness));
    rc = choose_policy(self, p);
    if (rc != PST_OK)
        return rc;
    p->plan.seed = order.seed;
    p->plan.vertices = p->in.ds.vertices;
    p->plan.epochs = p->epochs;
    p->plan.max_misses = -1;
    if (p->hotness == PST_HOTNESS_ORACLE || p->hotness == PST_HOTNESS_RANDOM)
        name_run(self, p);
    return p->hotness == PST_HOTNESS_FILE ? read_file(p) : PST_OK;
}

static bool counts_batches(const struct planner *p)
{
    return p->hotness == PST_HOTNESS_PRESAMPLE || p->hotness == PST_HOTNESS_ORACLE;
}

/* Does the hotness need no batches? */
static bool computes(const struct planner *p)
{
    return !counts_batches(p) && p->hotness != PST_HOTNESS_FILE;
}

static pst_rc open_stage(struct pst_stage *self)
{
    struct planner *p = pst_state(self);
    if (p->reuse[0] != '\0')
        return PST_OK;
    p->small_slots = !is_shared(p) && pst_planner_small_slots(self, pst_port(self, "plan"), &p->in);
    /* A file's hotness may come from the very batches that are pre-sampled. */
    const bool keep = p->small_slots && computes(p);
    const struct pst_presample_options options = {.topology = p->params.topology,
                                                  .gpu_topology_bytes = p->params.gpu_topology_bytes,
                                                  .memory_bytes = p->presample_memory,
                                                  .gap_bytes = p->gap_bytes,
                                                  .count = counts_batches(p),
                                                  .keep = keep};
    return pst_presample_open(&p->presample, self, &p->in, &options);
}

/* ---- the plan ------------------------------------------------------------------------------------ */

static int64_t scores_of(const struct planner *p)
{
    return (p->in.key.hops + 1) * p->plan.vertices;
}

/* The counts become scores, in place. */
static void take_counts(struct planner *p)
{
    p->scores = pst_hotness_of_counts(p->presample.counts, scores_of(p), p->plan.epochs);
    p->presample.counts = NULL;
}

/* The scores become counts again. */
static void give_counts(struct planner *p)
{
    p->presample.counts = pst_hotness_to_counts(p->scores, scores_of(p), p->plan.epochs);
    p->scores = NULL;
}

static pst_rc place(struct planner *p)
{
    const struct pst_placement_ask ask = placement_of(p);
    if (is_shared(p))
        return pst_planner_shared_place(&p->shared, &p->in, p->hotness == PST_HOTNESS_ORACLE, &p->plan);
    return p->policy == ROWS
               ? pst_planner_place_rows(&p->plan, &p->in, p->scores)
               : pst_plan_place(&p->plan, &p->in.ds, p->scores, &ask,
                                (enum pst_placement_cost)(p->cost - COSTS), (uint32_t)p->cls, &p->reads);
}

static uint64_t find_tier(struct pst_stage *self, const struct planner *p, bool gpu, uint64_t other_tier)
{
    const uint64_t held = computes(p) ? (uint64_t)scores_of(p) * sizeof *p->scores : 0;
    const struct pst_planner_budget_ask ask = {
        .gpu_tier = gpu,
        .graph = p->params.topology != PST_TOPOLOGY_SSD,
        .lists = p->policy != ROWS,
        .held = held,
        .other_tier = other_tier,
        .trains_only = pst_reached_int(self, pst_port(self, "plan"), "eval_every", 1) == 0,
        .reserve = p->reserve};
    return pst_planner_find_tier(self, &p->presample.device, &p->in, &p->plan.max, &ask);
}

/* What "auto" is. The GPU tier takes first: its rows save more. */
static void find_budgets(struct pst_stage *self, struct planner *p)
{
    struct pst_plan_key *key = &p->plan.key;
    if (key->gpu_budget_bytes == UINT64_MAX)
        key->gpu_budget_bytes = find_tier(self, p, true, 0);
    if (cpu_cache_is_auto(p))
        key->cache_budget_bytes = find_tier(self, p, false, key->gpu_budget_bytes);
}

/* Places lists and rows. If cached rows stay in the sampler's cache, it also finds how many rows of a batch
 * are not cached: slots hold only these. Then a CPU tier of "auto" gets what smaller slots leave. That cannot
 * be too much, because a larger tier has fewer misses. */
static pst_rc place_for_slots(struct pst_stage *self, struct planner *p)
{
    struct pst_plan *plan = &p->plan;
    pst_rc rc = place(p);
    for (int turn = 0; rc == PST_OK && p->small_slots; turn++) {
        rc = pst_presample_misses(&p->presample, (uint64_t)plan->batches, &plan->rows, &plan->max_misses);
        if (rc != PST_OK || !cpu_cache_is_auto(p) || turn == AUTO_TURNS)
            break;
        plan->max.stored = pst_plan_stored(plan);
        plan->key.cache_budget_bytes = find_tier(self, p, false, plan->key.gpu_budget_bytes);
        pst_plan_release(plan);
        rc = place(p);
    }
    return rc;
}

/* Places lists and rows, and predicts the hit rate of rows: by the scores, or, if they are counts of sampled
 * batches, without letting a batch predict itself. An oracle knows its batches. */
static pst_rc rank(struct pst_stage *self, struct planner *p)
{
    struct pst_plan *plan = &p->plan;
    if (counts_batches(p))
        take_counts(p);
    pst_rc rc = place_for_slots(self, p);
    if (rc != PST_OK || is_shared(p))
        return rc;
    if (p->hotness == PST_HOTNESS_PRESAMPLE && !pst_planner_own_rows(plan, &p->in)) {
        give_counts(p);
        rc = pst_presample_predict(&p->presample, (uint64_t)plan->batches, plan->rows.n,
                                   &plan->predicted_hit_rate);
        take_counts(p);
    } else {
        plan->predicted_hit_rate = pst_hotness_hit_rate(p->scores + plan->key.hops * plan->vertices,
                                                        plan->vertices, plan->rows.ids, plan->rows.n);
    }
    return rc;
}

static pst_rc make_plan(struct pst_stage *self, struct planner *p, char *path, size_t path_bytes)
{
    struct pst_plan *plan = &p->plan;
    double begin = pst_now();
    plan->batches = (int64_t)p->in.seeds.batches * plan->epochs;
    plan->sampled = counts_batches(p) || p->sizing_batches == 0
                        ? plan->batches
                        : pst_min_i64(plan->batches, p->sizing_batches * plan->epochs);
    pst_rc rc = PST_OK;
    if (computes(p))
        rc = pst_planner_scores_begin(&p->computed, p->hotness, &p->in, p->params.topology, p->hotness_memory,
                                      plan->seed);
    if (rc == PST_OK)
        rc = pst_presample_run(&p->presample, (uint64_t)plan->sampled, (uint64_t)plan->batches, &plan->max);
    if (rc != PST_OK)
        return rc;
    pst_span(self, "presample", begin, pst_now());
    begin = pst_now();
    if (computes(p)) {
        rc = pst_planner_scores_end(&p->computed, p->presample.drawn, plan->sampled, &p->scores);
        pst_span(self, "hotness", begin, pst_now());
    }
    if (rc != PST_OK)
        return rc;
    find_budgets(self, p);
    rc = rank(self, p);
    if (rc != PST_OK)
        return rc;
    /* A pipeline may have several planners, for example one of the seeds to validate with. */
    const char *name = pst_stage_name(self);
    const bool other = strcmp(name, "planner") != 0;
    char dir[PATH_MAX];
    if (snprintf(dir, sizeof dir, "%s/plan%s%s", pst_run_dir(self), other ? "-" : "", other ? name : "") >=
        (int)sizeof dir)
        return pst_fail(PST_E_LIMIT, "the path of the run directory is too long: %s", pst_run_dir(self));
    return pst_plan_write(plan, p->scores, dir, path, path_bytes);
}

/* Takes an earlier plan, if it was made for the same. */
static pst_rc reuse_plan(struct planner *p, const char *path)
{
    struct pst_plan earlier;
    pst_rc rc = pst_plan_read(&earlier, path);
    if (rc != PST_OK)
        return rc;
    if (gpu_cache_is_auto(p)) /* any size will do */
        p->plan.key.gpu_budget_bytes = earlier.key.gpu_budget_bytes;
    if (cpu_cache_is_auto(p))
        p->plan.key.cache_budget_bytes = earlier.key.cache_budget_bytes;
    rc =
        pst_plan_match(&earlier, &p->plan.key, PST_PLAN_ALGORITHM | PST_PLAN_BUDGET | PST_PLAN_HOTNESS, path);
    if (rc != PST_OK) {
        pst_plan_release(&earlier);
        return rc;
    }
    p->plan = earlier;
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct planner *p = pst_state(self);
    if (event->kind != PST_EV_START)
        return PST_OK;
    const char *reuse = p->reuse;
    char path[PATH_MAX];
    pst_rc rc;
    if (reuse[0] != '\0') {
        if (realpath(reuse, path) == NULL)
            return pst_fail_errno("the parameter reuse: cannot find the plan %s", reuse);
        rc = reuse_plan(p, path);
    } else {
        rc = make_plan(self, p, path, sizeof path);
    }
    pst_doing(self, PST_DOES_BATCHES, 0, 0);
    if (rc != PST_OK)
        return rc;
    pst_count(self, (uint64_t)p->plan.sampled, 0);
    rc = pst_planner_report(self, &p->plan, reuse[0] != '\0');
    if (rc == PST_OK && p->policy != ROWS && reuse[0] == '\0')
        rc = is_shared(p) ? pst_planner_shared_report(&p->shared, self, p->in.ds.stride_bytes)
                          : pst_planner_report_placement(self, &p->reads);
    if (rc == PST_OK)
        rc = pst_presample_report(&p->presample, self);
    return rc == PST_OK ? pst_publish(self, pst_port(self, "plan"), path) : rc;
}

static void close_stage(struct pst_stage *self)
{
    struct planner *p = pst_state(self);
    pst_planner_scores_close(&p->computed);
    pst_presample_close(&p->presample);
    free(p->scores);
    pst_plan_release(&p->plan);
    pst_planner_shared_release(&p->shared);
    pst_sampling_input_close(&p->in);
}

static const struct pst_port_desc ports[] = {
    {.name = "plan",
     .dir = PST_OUT,
     .type = "plan",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu,pinned",
     .flags = PST_PORT_ONESHOT,
     .near_if = "policy=" PST_LEGION_POLICY_CHOICES,
     .help = "the path of plan.json"},
    {0},
};

static const struct pst_param_desc params[] = {
    PST_SAMPLING_INPUT_PARAMS(struct planner, params),
    PST_SAMPLING_ALGORITHM_PARAMS(struct planner, params),
    {.name = "epochs",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct planner, epochs),
     .def = "1",
     .min = 1,
     .max = 1000,
     .help = "epochs to pre-sample; more make slots, and hotness that is counted, more certain"},
    {.name = "sizing_batches",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct planner, sizing_batches),
     .def = "16",
     .min = 0,
     .max = INT32_MAX,
     .help = "batches of an epoch, evenly spread, that are pre-sampled to size slots, if hotness is not "
             "counted in batches; 0: all"},
    {.name = "hotness",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct planner, hotness),
     .def = "\"auto\"",
     .choices = PST_HOTNESS_CHOICES,
     .help =
         "what decides which rows are cached: analytic: the expected number of batches that need a row; "
         "presample: pre-sampled ones; file: hotness_file; pagerank, degree: from the edges; random, oracle "
         "(the run's batches if the sampler shuffles): for measurements; auto: analytic, or else presample"},
    {.name = "hotness_file",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct planner, hotness_file),
     .def = "\"\"",
     .needed_if = "hotness=file",
     .path = PST_PATH_FILE,
     .help = "path of an .npy file of scores, for example hotness.npy of a plan: (hops + 1, vertices) or "
             "(vertices,)"},
    {.name = "hotness_memory",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct planner, hotness_memory),
     .def = "\"1GiB\"",
     .min = 4096,
     .max = 1e15,
     .help = "memory for the sums of analytic hotness, 8 bytes a vertex; with less, it reads the edges "
             "several times"},
    {.name = "gpu_cache",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct planner, gpu_cache),
     .def = "\"auto\"",
     .min = 0,
     .max = 1e15,
     .automatic = true,
     .help =
         "memory of the GPU tier for the hottest feature rows (and lists, see policy). If the sampler is on "
         "a CPU, its own memory stands in for a GPU's. auto: what is free on a GPU, less the reserve"},
    {.name = "presample_memory",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct planner, presample_memory),
     .def = "\"128MiB\"",
     .min = 1048576,
     .max = 1e15,
     .help = "memory to pre-sample with topology ssd, besides the buffers of one batch: with more, more "
             "batches share each read"},
    {.name = "gap_bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct planner, gap_bytes),
     .def = "\"16KiB\"",
     .max = 1048576,
     .help = "to pre-sample with topology ssd: wanted sectors at most this far apart are read together, with "
             "what is between them; 0: only the wanted ones"},
    {.name = "cpu_cache",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct planner, cpu_cache),
     .def = "\"auto\"",
     .min = 0,
     .max = 1e15,
     .automatic = true,
     .help = "memory of the CPU tier for feature rows (and lists, see policy) that the GPU tier does not "
             "have; a GPU's kernels read it in place; 0: no such tier; auto: what is free, less the reserve"},
    {.name = "reserve",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct planner, reserve),
     .def = "\"auto\"",
     .min = 0,
     .max = 1e15,
     .automatic = true,
     .help = "memory that auto leaves for slots, model, evaluation and the page cache; auto: 8 slots of the "
             "largest batch, and a quarter of the free memory, or for cpu_cache, if eval_every is 0, an "
             "eighth; more for cpu_cache if processes, graph or evaluation need it"},
    {.name = "cpu_cache_percent",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct planner, cpu_cache_percent),
     .def = "-1",
     .min = -1,
     .max = 100,
     .help =
         "size of the CPU tier's cache in percent of all feature rows; negative: cpu_cache is used instead"},
    {.name = "policy",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct planner, policy),
     .def = "\"auto\"",
     .choices = POLICY_CHOICES,
     .help = "how lists of neighbours and feature rows share the tiers: rows: rows only; with topology ssd "
             "also the policies of `penstock plan`, where joint reads least; auto: joint with topology ssd, "
             "otherwise rows; from legion on, those of `penstock caches`: replicas of the sampler keep "
             "gpu_cache bytes each, for all that reach them",
     .fixed = true},
    {.name = "cost",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct planner, cost),
     .def = "\"auto\"",
     .choices = COST_CHOICES,
     .help = "how the policy counts transactions: exact: those that draws touch; access: each read its own; "
             "paper: as printed; auto: exact with the algorithm uniform, otherwise access"},
    {.name = "cls",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct planner, cls),
     .def = "64",
     .min = 16,
     .max = PST_SECTOR,
     .help = "bytes of a PCIe transaction, a power of two, for the policy"},
    {.name = "gpu_lists_share",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct planner, gpu_lists_share),
     .def = "0.5",
     .min = 0,
     .max = 1,
     .help = "the part of the GPU tier that the policy hybrid gives to lists"},
    {.name = "cpu_lists_share",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct planner, cpu_lists_share),
     .def = "0.5",
     .min = 0,
     .max = 1,
     .help = "the part of the CPU tier that the policy hybrid gives to lists"},
    {.name = "reuse",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct planner, reuse),
     .def = "\"\"",
     .path = PST_PATH_FILE,
     .help = "path of an earlier plan.json to use instead of making a plan"},
    PST_PLANNER_SHARED_PARAMS(struct planner, shared),
    {0},
};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "planner",
    .help = "pre-samples, to size the slots and to choose the lists and feature rows that are cached",
    .ports = ports,
    .params = params,
    .dataset = PST_SAMPLING_DATASET,
    .state_bytes = sizeof(struct planner),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
