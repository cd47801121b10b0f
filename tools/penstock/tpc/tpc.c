/* tpc.c: penstock tpc: profiles a pipeline and predicts what other hardware would do. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/pipeline/json/diag.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/tpc/tpc_print.h"
#include "tools/penstock/tpc/tpc_run.h"

#define SLOTS_DEFAULT 16 /* the most that the disk stage drives */

static const char usage[] =
    "usage: penstock tpc [OPTION]... FILE\n"
    "       penstock tpc [OPTION]... --from RUN\n"
    "Runs a few batches of the pipeline in FILE, and predicts throughput and TPC (throughput per cost) with\n"
    "other numbers and types of SSDs, other GPUs and other cache sizes. Says what to change for "
    "more.\n\n" TPC_RUN_HELP "  --budget USD       the most that a system may cost\n"
    "  --slots N          the most SSDs that a machine takes (default: 16)\n"
    "  --prices FILE      what parts cost, and how fast they are (default: those of Hyperion's authors)\n"
    "  --gpu NAME         the GPU of the prices that trained, or that the CPU stands for (default: the "
    "first)\n"
    "  --ssd NAME         the SSD of the prices that was read (default: the preset of emulated drives)\n"
    "  --json             print JSON\n"
    "  --systems          only print what the systems in the prices cost\n"
    "  --show-prices      only print the built-in prices, in the form of FILE\n\n"
    "Of a pipeline:\n" PIPELINE_OPTIONS_HELP;

struct tpc_args {
    const char *from, *prices, *gpu, *ssd;
    double budget_usd;
    int64_t slots;
    bool json, systems, show_prices;
    struct tpc_run run;
};

static bool read_budget(const char *text, double *usd)
{
    pst_rc rc = option_real("--budget", text, usd);
    if (rc == PST_OK && *usd < 0)
        rc = pst_fail(PST_E_ARG, "--budget: expected a sum of at least 0 dollars, found %g", *usd);
    return command_result("tpc", rc) == 0;
}

/* 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct tpc_args *args)
{
    static const struct option options[] = {PIPELINE_OPTIONS,
                                            {"run-dir", required_argument, NULL, 'r'},
                                            {"batches", required_argument, NULL, 'B'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"budget", required_argument, NULL, 'b'},
                                            {"slots", required_argument, NULL, 's'},
                                            {"prices", required_argument, NULL, 'p'},
                                            {"gpu", required_argument, NULL, 'g'},
                                            {"ssd", required_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"systems", no_argument, NULL, 'y'},
                                            {"show-prices", no_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int c, which = 0;
    bool ok = true;
    optind = 1;
    while (ok && (c = getopt_long(argc, argv, "h", options, &which)) != -1) {
        switch (c) {
        case 'f': args->from = optarg; break;
        case 'b': ok = read_budget(optarg, &args->budget_usd); break;
        case 's':
            ok =
                command_result("tpc", option_int("--slots", optarg, 1, PST_TPC_SLOTS_MAX, &args->slots)) == 0;
            break;
        case 'p': args->prices = optarg; break;
        case 'g': args->gpu = optarg; break;
        case 'd': args->ssd = optarg; break;
        case 'j': args->json = true; break;
        case 'y': args->systems = true; break;
        case 'o': args->show_prices = true; break;
        case 'h': printf("%s", usage); return 1;
        default: ok = c != '?' && tpc_run_pass(&args->run, &options[which], optarg); break;
        }
    }
    const int files = args->from != NULL || args->systems || args->show_prices ? 0 : 1;
    if (ok && argc - optind == files)
        return 0;
    if (ok)
        fprintf(stderr, "penstock tpc: expected %s, found %d arguments\n",
                files == 1 ? "one pipeline file" : "no pipeline file", argc - optind);
    fprintf(stderr, "`penstock tpc --help` lists the options\n");
    return 3;
}

/* ---- the answer ---------------------------------------------------------------------------------- */

/* The index of a part in the prices. */
static pst_rc find_ssd(const struct pst_tpc_prices *prices, const struct tpc_args *args,
                       const struct tpc_profile *p, int *out)
{
    const char *name = args->ssd != NULL ? args->ssd : p->ssd_name;
    *out = pst_tpc_ssd_named(prices, name);
    if (*out >= 0)
        return PST_OK;
    if (args->ssd == NULL && (name[0] == '\0' || strcmp(name, "none") == 0))
        return pst_fail(
            PST_E_ARG,
            "the run does not say which SSDs it used: name their model with --ssd, for example --ssd %s",
            prices->ssds[0].name);
    return pst_fail(PST_E_ARG,
                    "the list of prices has no SSD \"%.64s\": add it with --prices FILE, or name another SSD "
                    "with --ssd, for example %s",
                    name, prices->ssds[0].name);
}

static pst_rc find_gpu(const struct pst_tpc_prices *prices, const struct tpc_args *args, int *out)
{
    *out = args->gpu != NULL ? pst_tpc_gpu_named(prices, args->gpu) : 0;
    return *out >= 0 ? PST_OK
                     : pst_fail(PST_E_ARG,
                                "--gpu: the list of prices has no GPU \"%.64s\": add it with --prices FILE, "
                                "or name another GPU, for example %s",
                                args->gpu, prices->gpus[0].name);
}

static pst_rc answer(const struct tpc_args *args, const struct pst_tpc_prices *prices, struct tpc_profile *p)
{
    struct tpc_answer a = {.prices = prices,
                           .profile = p,
                           .limits = {.budget_usd = args->budget_usd, .slots = (int)args->slots}};
    struct pst_tpc_profile *m = &p->model;
    pst_rc rc = find_gpu(prices, args, &m->gpu);
    if (rc == PST_OK)
        rc = find_ssd(prices, args, p, &m->ssd);
    if (rc != PST_OK)
        return rc;
    a.now = pst_tpc_predict(prices, m, m->gpu, m->ssd, m->rates.ssds);
    a.found_more = pst_tpc_best(prices, m, &a.limits, m->gpu, m->ssd, &a.more);
    a.found = pst_tpc_best(prices, m, &a.limits, -1, -1, &a.best);
    if (args->json)
        tpc_print_json(&a, stdout);
    else
        tpc_print_text(&a, stdout);
    return PST_OK;
}

static int run_tpc(struct tpc_args *args, const char *file)
{
    struct pst_tpc_prices prices;
    struct pst_diag diag = {0};
    struct tpc_profile p;
    char dir[PST_PATH_MAX];
    const bool priced = pst_tpc_prices_load(&prices, args->prices, &diag);
    pst_diag_print(&diag);
    pst_diag_release(&diag);
    if (!priced)
        return 2;
    if (args->systems) {
        tpc_print_systems(&prices, stdout);
        return 0;
    }
    (void)snprintf(dir, sizeof dir, "%s", args->from != NULL ? args->from : "");
    const int status = args->from != NULL ? 0 : tpc_run_profile(&args->run, file, dir);
    if (status != 0)
        return status;
    pst_rc rc = tpc_profile_read(&p, dir);
    if (rc == PST_OK)
        rc = answer(args, &prices, &p);
    tpc_profile_release(&p);
    return rc == PST_OK ? 0 : command_result("tpc", rc);
}

int cmd_tpc(int argc, char **argv)
{
    struct tpc_args *args = calloc(1, sizeof *args);
    if (args == NULL)
        return command_result("tpc", pst_fail(PST_E_NOMEM, "out of memory: cannot read the options"));
    args->budget_usd = INFINITY;
    args->slots = SLOTS_DEFAULT;
    args->run.command = "tpc";
    int status = parse(argc, argv, args);
    if (status != 0)
        status--;
    else if (args->show_prices)
        status = fputs(pst_tpc_prices_default(), stdout) < 0;
    else
        status = run_tpc(args, argv[optind]);
    free(args);
    return status;
}
