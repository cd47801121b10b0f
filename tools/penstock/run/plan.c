/* plan.c: penstock plan: where each policy would put lists and rows, and what that costs. */
#include "tools/penstock/run/plan_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/run/run_checks.h"

static const char usage[] =
    "usage: penstock plan [OPTION]... FILE\n"
    "Runs the planner of the pipeline in FILE, and nothing else. Prints where each policy would put the "
    "graph's\n"
    "lists of neighbours (topology) and its feature rows, and what a batch would then read. Options stand "
    "in\n"
    "for the planner's parameters. A run does what these parameters say: if topology is not ssd, all lists "
    "are in\n"
    "memory and the caches hold rows only.\n\n" PIPELINE_OPTIONS_HELP
    "  --run-dir DIR      write plan and logs here (default: runs/plan-TIME-PID)\n"
    "  --gpu-cache BYTES  size of the cache in GPU memory, with K, M, G or T (default: the planner's "
    "gpu_cache)\n"
    "  --cpu-cache BYTES  the same in CPU memory (default: the planner's cpu_cache)\n"
    "  --topology WHERE   memory or ssd: where lists are that no cache has (default: as the planner's "
    "topology)\n"
    "  --policy NAME      show where this policy puts what: paper, gtct, gtcf, gfct, gfcf, hybrid or joint\n"
    "                     (default: the planner's policy; joint, if that places rows only)\n"
    "  --lists-share G,C  the part of each cache that the policy hybrid gives to lists (default: the "
    "planner's)\n"
    "  --cost NAME        how transactions are counted: exact, access or paper (default: the planner's "
    "cost)\n"
    "  --cls BYTES        size of a PCIe transaction (default: the planner's cls)\n"
    "  --chunk-bytes BYTES  size of the chunks that are placed (default: 100 MB, or 1/256 of the smaller "
    "cache)\n"
    "  --ssd-rate R       bytes a second that all SSDs deliver at this size of reads; with --pcie-rate, "
    "times\n"
    "                     are computed\n"
    "  --pcie-rate R      bytes a second of PCIe\n"
    "  --train SECONDS    training of a batch (default: 0)\n"
    "  --lookup SECONDS   what lookup adds to the SSDs' time\n"
    "  --objective NAME   what the policy joint minimises: transactions (default) or time\n"
    "  --count-with FILE  place by the planner's hotness, but count with that of FILE (a plan's "
    "hotness.npy)\n"
    "  --json             print JSON\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

/* ---- options ------------------------------------------------------------------------------------------ */

enum option_code {
    RUN_DIR = 1000,
    GPU_CACHE,
    CPU_CACHE,
    TOPOLOGY,
    POLICY,
    SHARE,
    COST,
    CLS,
    CHUNK,
    SSD_RATE,
    PCIE_RATE,
    TRAIN,
    LOOKUP,
    OBJECTIVE,
    COUNT_WITH,
    JSON
};

/* The position of text among n names. */
static pst_rc option_choice(const char *option, const char *text, const char *const *names, int n, int *out)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return PST_OK;
        }
    }
    char list[160];
    size_t at = 0;
    for (int i = 0; i < n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i > 0 ? ", " : "", names[i]);
    return pst_fail(PST_E_ARG, "%s: expected one of %s; found \"%s\"", option, list, text);
}

static pst_rc option_cache(struct plan_args *args, const char *name, enum pst_placement_tier tier,
                           const char *text)
{
    args->cache_given[tier] = true;
    return option_bytes(name, text, &args->in.cache_bytes[tier]);
}

static pst_rc option_cls(const char *text, uint32_t *out)
{
    int64_t value = 0;
    pst_rc rc = option_int("--cls", text, 16, PST_SECTOR, &value);
    if (rc == PST_OK && (value & (value - 1)) != 0)
        rc = pst_fail(PST_E_ARG, "--cls: expected a power of two from 16 to %d, found %s", PST_SECTOR, text);
    *out = (uint32_t)value;
    return rc;
}

static pst_rc option_share(const char *text, double share[PST_PLACEMENT_TIERS])
{
    double gpu, cpu;
    char rest;
    if (sscanf(text, "%lf,%lf%c", &gpu, &cpu, &rest) != 2 || !(gpu >= 0 && gpu <= 1 && cpu >= 0 && cpu <= 1))
        return pst_fail(
            PST_E_ARG, "--lists-share: expected two numbers from 0 to 1, as in 0.5,0.25; found \"%s\"", text);
    share[PST_PLACEMENT_GPU] = gpu;
    share[PST_PLACEMENT_CPU] = cpu;
    return PST_OK;
}

static pst_rc option_positive(const char *name, const char *text, bool zero, double *out)
{
    const char *least = zero ? "of at least" : "above";
    const pst_rc rc = option_real(name, text, out);
    if (rc == PST_OK && !(*out > 0 || (zero && *out == 0)))
        return pst_fail(PST_E_ARG, "%s: expected a number %s 0; found \"%s\"", name, least, text);
    return rc;
}

static pst_rc option_name_of(struct plan_args *args, int code, const char *text)
{
    static const char *const places[] = {"memory", "ssd"}, *const objectives[] = {"transactions", "time"};
    const char *policies[PST_PLACEMENT_POLICIES];
    for (int i = 0; i < PST_PLACEMENT_POLICIES; i++)
        policies[i] = pst_placement_policy_name((enum pst_placement_policy)i);
    int found = 0;
    pst_rc rc;
    if (code == TOPOLOGY) {
        rc = option_choice("--topology", text, places, 2, &found);
        args->in.lists_in_memory = found == 0;
        args->given[PLAN_TOPOLOGY] = true;
    } else if (code == COST) {
        rc = option_choice("--cost", text, plan_costs, 3, &found);
        args->in.cost = (enum pst_placement_cost)found;
        args->given[PLAN_COST] = true;
    } else if (code == OBJECTIVE) {
        rc = option_choice("--objective", text, objectives, 2, &found);
        args->ask.objective = (enum pst_placement_objective)found;
    } else {
        rc = option_choice("--policy", text, policies, PST_PLACEMENT_POLICIES, &found);
        args->ask.policy = (enum pst_placement_policy)found;
        args->given[PLAN_POLICY] = true;
    }
    return rc;
}

static pst_rc take_option(struct plan_args *args, int code, const char *text)
{
    switch (code) {
    case RUN_DIR:
        return snprintf(args->run_dir, sizeof args->run_dir, "%s", text) < PST_PATH_MAX - 64
                   ? PST_OK
                   : pst_fail(PST_E_ARG, "--run-dir: the path of the run directory is too long");
    case GPU_CACHE: return option_cache(args, "--gpu-cache", PST_PLACEMENT_GPU, text);
    case CPU_CACHE: return option_cache(args, "--cpu-cache", PST_PLACEMENT_CPU, text);
    case SHARE: args->given[PLAN_SHARE] = true; return option_share(text, args->ask.lists_share);
    case CLS: args->given[PLAN_CLS] = true; return option_cls(text, &args->in.line_bytes);
    case CHUNK: return option_bytes("--chunk-bytes", text, &args->in.chunk_bytes);
    case SSD_RATE: return option_positive("--ssd-rate", text, false, &args->ssd_bytes_per_s);
    case PCIE_RATE: return option_positive("--pcie-rate", text, false, &args->pcie_bytes_per_s);
    case TRAIN: return option_positive("--train", text, true, &args->machine.train_s);
    case LOOKUP: return option_positive("--lookup", text, true, &args->machine.lookup_s);
    case COUNT_WITH: args->count_with = text; return PST_OK;
    case JSON: args->json = true; return PST_OK;
    default: return option_name_of(args, code, text);
    }
}

/* What options need of one another. */
static pst_rc settle(struct plan_args *args)
{
    if ((args->ssd_bytes_per_s > 0) != (args->pcie_bytes_per_s > 0))
        return pst_fail(PST_E_ARG, "--ssd-rate and --pcie-rate work only together: give both, or none");
    if (args->ask.objective == PST_PLACEMENT_TIME && args->ssd_bytes_per_s == 0)
        return pst_fail(PST_E_ARG, "--objective time requires --ssd-rate and --pcie-rate");
    return PST_OK;
}

/* 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct plan_args *args)
{
    static const struct option options[] = {
        PIPELINE_OPTIONS,
        {"run-dir", required_argument, NULL, RUN_DIR},
        {"gpu-cache", required_argument, NULL, GPU_CACHE},
        {"cpu-cache", required_argument, NULL, CPU_CACHE},
        {"topology", required_argument, NULL, TOPOLOGY},
        {"policy", required_argument, NULL, POLICY},
        {"lists-share", required_argument, NULL, SHARE},
        {"cost", required_argument, NULL, COST},
        {"cls", required_argument, NULL, CLS},
        {"chunk-bytes", required_argument, NULL, CHUNK},
        {"ssd-rate", required_argument, NULL, SSD_RATE},
        {"pcie-rate", required_argument, NULL, PCIE_RATE},
        {"train", required_argument, NULL, TRAIN},
        {"lookup", required_argument, NULL, LOOKUP},
        {"objective", required_argument, NULL, OBJECTIVE},
        {"count-with", required_argument, NULL, COUNT_WITH},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            printf("%s", usage);
            return 1;
        }
        const pst_rc rc = c >= RUN_DIR ? take_option(args, c, optarg) : PST_OK;
        if (rc != PST_OK)
            return command_result("plan", rc) + 1;
        if (c < RUN_DIR && !pipeline_option(&args->pipeline, c, optarg)) {
            fprintf(stderr, "`penstock plan --help` lists the options\n");
            return 3;
        }
    }
    if (optind != argc - 1) {
        fprintf(stderr, "penstock plan: expected one pipeline file, found %d arguments\n", argc - optind);
        return 3;
    }
    const pst_rc rc = settle(args);
    return rc == PST_OK ? 0 : command_result("plan", rc) + 1;
}

/* ---- the planner's results ----------------------------------------------------------------------------- */

static pst_rc read_plan(const struct plan_args *args, struct plan_result *r)
{
    char path[PST_PATH_MAX + 32], id[PST_HOTNESS_ID_BYTES];
    (void)snprintf(path, sizeof path, "%s/plan/plan.json", args->run_dir);
    pst_rc rc = pst_plan_read(&r->plan, path);
    if (rc != PST_OK)
        return rc;
    const size_t scores = (size_t)(r->plan.key.hops + 1) * (size_t)r->plan.vertices;
    r->scores = malloc(scores * sizeof *r->scores + 1);
    if (r->scores == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read the hotness of %lld vertices",
                        (long long)r->plan.vertices);
    (void)snprintf(path, sizeof path, "%s/plan/hotness.npy", args->run_dir);
    return pst_hotness_read(path, r->plan.key.hops, r->plan.vertices, r->scores, id);
}

static const char *text_of(const json_t *params, const char *name)
{
    const char *text = json_string_value(json_object_get(params, name));
    return text != NULL ? text : "";
}

static int position(const char *text, const char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0)
            return i;
    }
    return -1;
}

/* What options do not give is as the planner's parameters say. */
static void default_policy(const json_t *params, const char *algorithm, struct plan_args *args)
{
    const int policy = pst_placement_policy_of(text_of(params, "policy")),
              cost = position(text_of(params, "cost"), plan_costs, 3);
    if (!args->given[PLAN_TOPOLOGY])
        args->in.lists_in_memory = strcmp(text_of(params, "topology"), "ssd") != 0;
    if (!args->given[PLAN_POLICY])
        args->ask.policy = policy >= 0 ? (enum pst_placement_policy)policy : PST_PLACEMENT_JOINT;
    if (!args->given[PLAN_COST])
        args->in.cost = cost >= 0                           ? (enum pst_placement_cost)cost
                        : strcmp(algorithm, "uniform") == 0 ? PST_PLACEMENT_EXACT
                                                            : PST_PLACEMENT_ACCESS;
    if (!args->given[PLAN_CLS])
        args->in.line_bytes = (uint32_t)json_integer_value(json_object_get(params, "cls"));
    if (!args->given[PLAN_SHARE]) {
        args->ask.lists_share[PST_PLACEMENT_GPU] =
            json_number_value(json_object_get(params, "gpu_lists_share"));
        args->ask.lists_share[PST_PLACEMENT_CPU] =
            json_number_value(json_object_get(params, "cpu_lists_share"));
    }
    if (args->ssd_bytes_per_s > 0) {
        args->machine.ssd_per_s = args->ssd_bytes_per_s / args->in.line_bytes;
        args->machine.pcie_per_s = args->pcie_bytes_per_s / args->in.line_bytes;
        args->ask.machine = &args->machine;
    }
}

/* The caches as the planner has them, unless options give their sizes. */
static void default_caches(const struct pst_plan *plan, struct plan_args *args)
{
    if (!args->cache_given[PST_PLACEMENT_GPU])
        args->in.cache_bytes[PST_PLACEMENT_GPU] = plan->key.gpu_budget_bytes;
    if (!args->cache_given[PST_PLACEMENT_CPU])
        args->in.cache_bytes[PST_PLACEMENT_CPU] = plan->key.cache_budget_bytes;
}

/* What the printed formulas lose: their placement, counted by the cost that was asked for. */
static pst_rc place_as_printed(const struct plan_args *args, struct plan_result *r)
{
    struct pst_placement printed;
    struct pst_placement_input in = args->in;
    struct pst_placement_ask ask = args->ask;
    in.cost = PST_PLACEMENT_PAPER;
    ask.policy = PST_PLACEMENT_PAPER_DP;
    pst_rc rc = pst_placement_open(&printed, &in);
    if (rc != PST_OK)
        return rc;
    rc = pst_placement_solve(&printed, &ask, &r->printed);
    pst_placement_close(&printed);
    if (rc == PST_OK)
        pst_placement_count(&r->placement, ask.machine, &r->printed);
    return rc;
}

static pst_rc place(struct plan_args *args, struct plan_result *r)
{
    if (args->in.cost == PST_PLACEMENT_EXACT && strcmp(r->plan.key.algorithm, "uniform") != 0)
        return pst_fail(PST_E_ARG,
                        "the cost \"exact\" works only for the sampling algorithm uniform, but the plan is "
                        "for %s: use --cost access",
                        r->plan.key.algorithm);
    struct pst_placement_input in = args->in;
    pst_plan_placement_input(&r->plan, &r->ds, r->scores, &in);
    memcpy(in.cache_bytes, args->in.cache_bytes, sizeof in.cache_bytes);
    args->in = in;
    pst_rc rc = pst_placement_open(&r->placement, &args->in);
    struct pst_placement_ask ask = args->ask;
    for (int i = 0; i < PST_PLACEMENT_POLICIES && rc == PST_OK; i++) {
        ask.policy = (enum pst_placement_policy)i;
        rc = pst_placement_solve(&r->placement, &ask, &r->policy[i]);
    }
    return rc == PST_OK ? place_as_printed(args, r) : rc;
}

/* Counts all placements once more, by what FILE says was read. */
static pst_rc count_with(const struct plan_args *args, struct plan_result *r)
{
    char id[PST_HOTNESS_ID_BYTES];
    pst_rc rc = pst_hotness_read(args->count_with, r->plan.key.hops, r->plan.vertices, r->scores, id);
    if (rc == PST_OK)
        rc = pst_placement_reweigh(&r->placement, &args->in);
    if (rc != PST_OK)
        return pst_wrap(rc, "--count-with");
    for (int i = 0; i < PST_PLACEMENT_POLICIES; i++)
        pst_placement_count(&r->placement, args->ask.machine, &r->policy[i]);
    pst_placement_count(&r->placement, args->ask.machine, &r->printed);
    return PST_OK;
}

static pst_rc show(const struct pst_pipeline *pl, const struct plan_args *args, const struct plan_result *r)
{
    if (!args->json) {
        plan_print(args, r);
        pipeline_print_auto(pl);
        return PST_OK;
    }
    json_t *json = plan_to_json(args, r);
    if (json == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot describe the plan");
    (void)json_object_set_new(json, "places", pipeline_places_json(pl));
    (void)json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(json);
    return PST_OK;
}

static void release(struct plan_result *r)
{
    for (int i = 0; i < PST_PLACEMENT_POLICIES; i++)
        pst_placement_plan_release(&r->policy[i]);
    pst_placement_plan_release(&r->printed);
    pst_placement_close(&r->placement);
    pst_plan_release(&r->plan);
    free(r->scores);
}

static int plan_checked(struct pst_pipeline *pl, struct plan_args *args)
{
    static struct plan_result r;
    if (pl->dataset[0] == '\0') {
        fprintf(stderr, "%s: no dataset: name one in the file as \"dataset\", or give --dataset DIR\n",
                pl->doc.file);
        return 2;
    }
    if (!named_dataset_suits(pl, 0))
        return 2;
    const int code = plan_run_planner(pl, args);
    if (code != 0)
        return code;
    pst_rc rc = pst_dataset_open(&r.ds, pl->dataset);
    if (rc != PST_OK)
        return command_result("plan", rc);
    rc = read_plan(args, &r);
    if (rc == PST_OK) {
        default_caches(&r.plan, args);
        default_policy(pl->stages[plan_planner_of(pl)].params, r.plan.key.algorithm, args);
        rc = place(args, &r);
    }
    if (rc == PST_OK && args->count_with != NULL)
        rc = count_with(args, &r);
    if (rc == PST_OK)
        rc = show(pl, args, &r);
    release(&r);
    pst_dataset_close(&r.ds);
    return command_result("plan", rc);
}

int cmd_plan(int argc, char **argv)
{
    static struct plan_args args = {
        .in = {.sector_bytes = PST_SECTOR},
    };
    const int end = parse(argc, argv, &args);
    int code = 2;
    if (end == 0) {
        struct pst_pipeline pl;
        struct pst_graph *graph = calloc(1, sizeof *graph);
        if (graph != NULL && load_pipeline(&pl, graph, argv[optind], &args.pipeline))
            code = plan_checked(&pl, &args);
        pst_pipeline_release(&pl);
        free(graph);
    }
    pipeline_options_release(&args.pipeline);
    return end != 0 ? end - 1 : code;
}
