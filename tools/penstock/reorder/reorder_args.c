/* reorder_args.c: options of reorder, and of inspect --reorder. */
#include "tools/penstock/reorder/reorder_args.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/util/memory.h"
#include "tools/penstock/cli/options.h"

#define BLOCK_MAX 65536
#define GAP_BYTES 4096 /* the defaults of the disk stage */
#define COALESCE_BYTES (128u << 10)
#define READ_BYTES_MAX (16u << 20) /* the disk stage's limit of both */

enum option_code {
    BY = 1000,
    PACK,
    PLAN,
    FANOUT,
    BATCH,
    SPLIT,
    ALGORITHM,
    OPTIONS,
    REPLACE,
    SEED,
    CACHE,
    BLOCK,
    GAP,
    COALESCE,
    MEMORY,
    FORCE,
    QUIET,
    JSON,
    HELP
};

static const struct option options[] = {{"by", required_argument, NULL, BY},
                                        {"reorder", required_argument, NULL, BY},
                                        {"pack", no_argument, NULL, PACK},
                                        {"plan", required_argument, NULL, PLAN},
                                        {"fanout", required_argument, NULL, FANOUT},
                                        {"batch", required_argument, NULL, BATCH},
                                        {"split", required_argument, NULL, SPLIT},
                                        {"algorithm", required_argument, NULL, ALGORITHM},
                                        {"options", required_argument, NULL, OPTIONS},
                                        {"replace", no_argument, NULL, REPLACE},
                                        {"seed", required_argument, NULL, SEED},
                                        {"cache", required_argument, NULL, CACHE},
                                        {"block", required_argument, NULL, BLOCK},
                                        {"gap-bytes", required_argument, NULL, GAP},
                                        {"coalesce-bytes", required_argument, NULL, COALESCE},
                                        {"memory", required_argument, NULL, MEMORY},
                                        {"force", no_argument, NULL, FORCE},
                                        {"quiet", no_argument, NULL, QUIET},
                                        {"json", no_argument, NULL, JSON},
                                        {"help", no_argument, NULL, HELP},
                                        {NULL, 0, NULL, 0}};

static pst_rc take_by(struct reorder_args *a, const char *text, bool inspect)
{
    const char *option = inspect ? "--reorder" : "--by", *all = inspect ? ", or all" : "";
    enum pst_renumber_by by;
    memset(a->order, 0, sizeof a->order);
    if (inspect && strcmp(text, "all") == 0) {
        memset(a->order, true, sizeof a->order);
        return PST_OK;
    }
    if (!pst_renumber_find(text, &by))
        return pst_fail(PST_E_ARG, "%s: expected " PST_RENUMBER_CHOICES "%s; found \"%.64s\"", option, all,
                        text);
    a->order[by] = true;
    return PST_OK;
}

static pst_rc take_fanout(struct reorder_args *a, const char *text)
{
    char list[128], *save = NULL;
    a->spec.hops = 0;
    if (strlen(text) >= sizeof list)
        return pst_fail(PST_E_ARG, "--fanout: the list is too long");
    memcpy(list, text, strlen(text) + 1);
    for (char *one = strtok_r(list, ",", &save); one != NULL; one = strtok_r(NULL, ",", &save)) {
        if (a->spec.hops == PST_HOPS_MAX)
            return pst_fail(PST_E_ARG, "--fanout: expected at most %d hops, found \"%s\"", PST_HOPS_MAX,
                            text);
        const pst_rc rc = option_int("--fanout", one, -1, PST_FANOUT_MAX, &a->spec.fanout[a->spec.hops++]);
        if (rc != PST_OK)
            return rc;
    }
    return a->spec.hops > 0
               ? PST_OK
               : pst_fail(PST_E_ARG, "--fanout: expected numbers, as in 10,5; found \"%s\"", text);
}

static pst_rc take_block(struct reorder_args *a, const char *text)
{
    int64_t block = 0;
    const pst_rc rc = option_int("--block", text, 1, BLOCK_MAX, &block);
    a->disk.block = (uint32_t)block;
    return rc == PST_OK && (block & (block - 1)) != 0
               ? pst_fail(PST_E_ARG, "--block: expected a power of two, found %s", text)
               : rc;
}

static pst_rc take_bytes(const char *name, const char *text, uint64_t least, uint64_t *out)
{
    const pst_rc rc = option_bytes(name, text, out);
    return rc == PST_OK && (*out < least || *out > READ_BYTES_MAX)
               ? pst_fail(PST_E_ARG, "%s: expected %llu to 16MiB, found %s", name, (unsigned long long)least,
                          text)
               : rc;
}

static pst_rc take_option(struct reorder_args *a, int code, const char *text, bool inspect)
{
    int64_t seed = 0;
    pst_rc rc = PST_OK;
    switch (code) {
    case BY: return take_by(a, text, inspect);
    case PACK: a->pack = true; break;
    case PLAN: a->plan_path = text; break;
    case FANOUT: return take_fanout(a, text);
    case BATCH: return option_int("--batch", text, 1, 1 << 24, &a->spec.batch);
    case SPLIT: a->spec.split = text; break;
    case ALGORITHM: a->spec.algorithm = text; break;
    case OPTIONS: a->spec.options = text; break;
    case REPLACE: a->spec.replace = true; break;
    case SEED:
        rc = option_int("--seed", text, 0, INT64_MAX, &seed);
        a->spec.seed = (uint64_t)seed;
        return rc;
    case CACHE: return option_bytes("--cache", text, &a->cache_bytes);
    case BLOCK: return take_block(a, text);
    case GAP: return take_bytes("--gap-bytes", text, 0, &a->disk.gap_bytes);
    case COALESCE: return take_bytes("--coalesce-bytes", text, 1, &a->disk.coalesce_bytes);
    case MEMORY: return option_bytes("--memory", text, &a->memory_bytes);
    case FORCE: a->force = true; break;
    case QUIET: a->quiet = true; break;
    case JSON: a->json = true; break;
    default: a->help = true;
    }
    return PST_OK;
}

/* The settings of a plan stand in for options. */
static pst_rc take_plan(struct reorder_args *a)
{
    pst_rc rc = pst_plan_read(&a->plan, a->plan_path);
    if (rc != PST_OK)
        return rc;
    const struct pst_plan_key *key = &a->plan.key;
    a->planned = true;
    if (key->fanouts[0] != '\0')
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s has a fanout for each edge type, which `penstock reorder` cannot draw: leave out "
                        "--plan, and give --fanout",
                        a->plan_path);
    a->spec.split = key->split;
    a->spec.hops = key->hops;
    memcpy(a->spec.fanout, key->fanout, sizeof key->fanout);
    a->spec.batch = key->batch;
    a->spec.algorithm = key->algorithm;
    a->spec.options = key->options;
    a->spec.replace = key->replace;
    a->spec.seed = a->plan.seed;
    return PST_OK;
}

/* given: a bit for each option that was there, from BY on. */
static pst_rc settle(struct reorder_args *a, uint32_t given, bool inspect)
{
    static const int of_plan[] = {FANOUT, BATCH, SPLIT, ALGORITHM, OPTIONS, REPLACE, SEED, CACHE};
    for (size_t k = 0; k < sizeof of_plan / sizeof of_plan[0] && a->plan_path != NULL; k++)
        if ((given >> (of_plan[k] - BY) & 1) != 0)
            for (const struct option *o = options; o->name != NULL; o++)
                if (o->val == of_plan[k])
                    return pst_fail(PST_E_ARG, "--plan says what --%s would say: give only one of them",
                                    o->name);
    if ((given & 1) == 0)
        return pst_fail(PST_E_ARG, "expected %s, one of " PST_RENUMBER_CHOICES,
                        inspect ? "--reorder" : "--by");
    if (inspect ? a->force : a->json)
        return pst_fail(PST_E_ARG, "%s",
                        inspect ? "inspect has no option --force, because it writes nothing"
                                : "reorder has no option --json: `penstock inspect DATASET "
                                  "--reorder all --json` prints the prediction");
    return a->plan_path != NULL ? take_plan(a) : PST_OK;
}

pst_rc reorder_args_parse(struct reorder_args *a, int argc, char **argv, bool inspect)
{
    const char *command = inspect ? "inspect" : "reorder";
    uint32_t given = 0;
    int c;
    *a = (struct reorder_args){.spec = {.split = "train",
                                        .algorithm = "uniform",
                                        .options = "",
                                        .hops = 2,
                                        .fanout = {10, 5},
                                        .batch = 512,
                                        .seed = 1},
                               .memory_bytes = pst_memory_default(),
                               .disk = {.gap_bytes = GAP_BYTES, .coalesce_bytes = COALESCE_BYTES}};
    optind = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        const pst_rc rc =
            c >= BY ? take_option(a, c, optarg, inspect)
                    : pst_fail(PST_E_ARG, "invalid option: `penstock %s --help` lists the options", command);
        if (rc != PST_OK || a->help)
            return rc;
        given |= 1u << (c - BY);
    }
    if (argc - optind != (inspect ? 1 : 2))
        return pst_fail(PST_E_ARG, "expected %s, found %d arguments",
                        inspect ? "one directory as argument" : "the arguments DATASET DIR", argc - optind);
    a->dataset = argv[optind];
    a->out = inspect ? NULL : argv[optind + 1];
    return settle(a, given, inspect);
}

void reorder_args_release(struct reorder_args *a)
{
    if (a->planned)
        pst_plan_release(&a->plan);
    a->planned = false;
}
