/* replay.c: penstock replay: what caches would hit, computed from the ids that a sampler wrote. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/stage.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/policy/policy.h"
#include "stages/lib/policy/policy_trace.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define DEFAULT_WINDOW 8

static const char usage[] =
    "usage: penstock replay TRACE (--rows N | --batches B) [OPTION]...\n"
    "Computes how many feature rows a cache would have hit, from the ids of a run's batches. The sampler "
    "writes\n"
    "them: --set stages.sampler.params.trace_ids=TRACE. A stage `cache` with the same settings hits as "
    "many.\n\n"
    "  --rows N       lines of the cache\n"
    "  --batches B    as many lines as B batches of mean size have vertices\n"
    "  --policy P     random, window, sieve, s3fifo, static, lookahead, lru or belady. Without it: all.\n"
    "                 belady is the best that any cache can do, and knows the whole trace\n"
    "  --super-batch S  belady knows S batches at a time, and begins each with an empty cache (Ginex)\n"
    "  --epoch N      batches of an epoch, at whose end a super-batch ends, too\n"
    "  --page-rows N  lines are pages of N rows, and every count is of pages (a mapping; without --plan's "
    "hotness)\n"
    "  --window W     batches that window and lookahead see ahead, 0 to 63 (default 8)\n"
    "  --plan FILE    the run's plan.json: static and lookahead use its hotness\n"
    "  --buffer       the plan's rows are in memory (the constant buffer), and do not come to the cache\n"
    "  --seed N       of random evictions: the run's seed (default 1)\n"
    "  --json         print JSON\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

struct replay {
    const char *path, *plan_path;
    int64_t rows, window, seed;
    int64_t super_batch, epoch; /* 0: none */
    int64_t page_rows;          /* 1: lines are rows */
    double batches;             /* 0: rows */
    bool json, all, buffer;
    enum pst_policy_kind kind; /* unless all */
    struct pst_policy_trace trace;
    struct pst_plan plan;
    float *hotness;      /* of each vertex of the plan; NULL: no plan */
    uint64_t *buffered;  /* a bit for each vertex of the plan; NULL: none */
    int64_t *ids;        /* of a batch, without the buffered ones */
    int64_t *seen, turn; /* of each page: the turn in which a batch had it */
    uint64_t *next, *last;
    int64_t asked; /* ids that come to the cache, in all batches */
};

/* ---- input ---------------------------------------------------------------------------------------- */

static pst_rc read_plan(struct replay *r)
{
    const pst_rc rc = pst_plan_read(&r->plan, r->plan_path);
    if (rc != PST_OK)
        return rc;
    if (r->trace.vertices > r->plan.vertices)
        return pst_fail(PST_E_ARG,
                        "the trace contains vertex %lld, but the plan is for a graph of %lld vertices: give "
                        "the plan of the same dataset",
                        (long long)r->trace.vertices - 1, (long long)r->plan.vertices);
    return r->page_rows == 1 ? pst_policy_hotness(&r->plan, r->plan_path, r->buffer, &r->hotness) : PST_OK;
}

static pst_rc note_buffered(struct replay *r)
{
    r->buffered = calloc((size_t)r->plan.vertices / 64 + 1, sizeof *r->buffered);
    if (r->buffered == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot note which rows are in the buffer");
    for (int64_t i = 0; i < r->plan.rows.n; i++)
        r->buffered[r->plan.rows.ids[i] / 64] |= UINT64_C(1) << (r->plan.rows.ids[i] % 64);
    return PST_OK;
}

/* The pages of a batch's rows, each once, in the order of their first rows. */
static void turn_to_pages(struct replay *r, struct pst_policy_batch *batch, int64_t *into)
{
    const int64_t n = batch->n, *ids = batch->ids;
    batch->ids = into;
    batch->n = 0;
    r->turn++;
    for (int64_t i = 0; i < n; i++) {
        const int64_t page = ids[i] / r->page_rows;
        if (r->seen[page] != r->turn)
            into[batch->n++] = page;
        r->seen[page] = r->turn;
    }
}

/* The batch's ids that come to the cache. */
static struct pst_policy_batch batch_of(struct replay *r, int64_t b, int64_t *into)
{
    const struct pst_policy_trace_batch *from = &r->trace.batches[b];
    struct pst_policy_batch batch = {
        .batch = from->batch, .micro = from->micro, .ids = from->ids, .n = from->n};
    if (r->buffered != NULL) {
        batch.ids = into;
        batch.n = 0;
        for (int64_t i = 0; i < from->n; i++)
            if (!(r->buffered[from->ids[i] / 64] >> (from->ids[i] % 64) & 1))
                into[batch.n++] = from->ids[i];
    }
    if (r->page_rows > 1)
        turn_to_pages(r, &batch, into);
    return batch;
}

static pst_rc open_replay(struct replay *r)
{
    pst_rc rc = pst_policy_trace_read(&r->trace, r->path);
    if (rc == PST_OK && r->plan_path != NULL)
        rc = read_plan(r);
    if (rc == PST_OK && r->buffer)
        rc = note_buffered(r);
    if (rc != PST_OK)
        return rc;
    if (r->trace.cut_bytes > 0)
        (void)fprintf(stderr,
                      "penstock replay: %s: the last record is incomplete (%llu bytes), so it is left out: "
                      "the run ended while it was written\n",
                      r->path, (unsigned long long)r->trace.cut_bytes);
    r->ids = malloc((size_t)pst_max_i64(1, r->trace.batch_max) * sizeof *r->ids);
    r->seen = calloc((size_t)(r->trace.vertices / r->page_rows + 1), sizeof *r->seen);
    if (r->seen == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot note the pages of a batch");
    if (r->ids == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: a batch has %lld ids", (long long)r->trace.batch_max);
    for (int64_t b = 0; b < r->trace.n; b++)
        r->asked += batch_of(r, b, r->ids).n;
    if (r->batches > 0)
        r->rows = (int64_t)((double)r->asked / (double)r->trace.n * r->batches + 0.5);
    return r->rows <= PST_POLICY_LINES_MAX
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "the cache would have %lld rows; expected at most %lld rows: give a smaller --rows",
                          (long long)r->rows, (long long)PST_POLICY_LINES_MAX);
}

/* ---- Belady's future ------------------------------------------------------------------------------ */

/* next: of each id of the trace, in its order, the number of the next batch that has it. */
static pst_rc find_next(struct replay *r)
{
    if (r->next != NULL)
        return PST_OK;
    r->next = malloc((size_t)pst_max_i64(1, r->asked) * sizeof *r->next);
    r->last = malloc((size_t)pst_max_i64(1, r->trace.vertices) * sizeof *r->last);
    if (r->next == NULL || r->last == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: belady needs %lld bytes for each of %lld vertices",
                        (long long)sizeof *r->last, (long long)r->trace.vertices);
    for (int64_t v = 0; v < r->trace.vertices; v++)
        r->last[v] = PST_POLICY_NEVER;
    int64_t end = r->asked;
    for (int64_t b = r->trace.n - 1; b >= 0; b--) {
        const struct pst_policy_batch batch = batch_of(r, b, r->ids);
        end -= batch.n;
        for (int64_t i = 0; i < batch.n; i++) {
            r->next[end + i] = r->last[batch.ids[i]];
            r->last[batch.ids[i]] = (uint64_t)b;
        }
    }
    return PST_OK;
}

/* ---- one policy ----------------------------------------------------------------------------------- */

struct outcome {
    enum pst_policy_kind kind;
    int64_t hits;
    uint64_t bytes, evictions;
    double seconds;
};

/* Super-batch after super-batch. One ends after so many batches, and at the end of an epoch. */
static pst_rc replay_super_batches(struct replay *r, struct pst_policy *p, int32_t *lines, struct outcome *o)
{
    const uint64_t epoch = r->epoch > 0 ? (uint64_t)r->epoch : UINT64_MAX;
    for (int64_t first = 0, end = 0; first < r->trace.n; first = end) {
        while (end < r->trace.n && end - first < r->super_batch &&
               r->trace.batches[end].batch / epoch == r->trace.batches[first].batch / epoch) {
            const struct pst_policy_batch batch = batch_of(r, end++, r->ids);
            pst_policy_enter(p, batch.ids, batch.n);
        }
        for (int64_t b = first; b < end; b++) {
            const struct pst_policy_batch batch = batch_of(r, b, r->ids);
            o->hits += pst_policy_decide(p, &batch, lines, lines + r->trace.batch_max);
        }
        pst_policy_forget(p);
    }
    return PST_OK;
}

static pst_rc replay_batches(struct replay *r, struct pst_policy *p, int window, int32_t *lines,
                             struct outcome *o)
{
    int64_t entered = 0, before = 0;
    for (int64_t b = 0; b < r->trace.n; b++) {
        for (; entered < r->trace.n && entered <= b + window; entered++) {
            const struct pst_policy_batch batch = batch_of(r, entered, r->ids);
            pst_policy_enter(p, batch.ids, batch.n);
        }
        struct pst_policy_batch batch = batch_of(r, b, r->ids);
        batch.next = r->next != NULL ? r->next + before : NULL;
        before += batch.n;
        o->hits += pst_policy_decide(p, &batch, lines, lines + r->trace.batch_max);
    }
    return PST_OK;
}

static pst_rc replay_one(struct replay *r, enum pst_policy_kind kind, struct outcome *o)
{
    const int window = pst_policy_looks_ahead(kind) ? (int)r->window : 0;
    const struct pst_policy_config config = {.kind = kind,
                                             .seed = (uint64_t)r->seed,
                                             .lines = r->rows,
                                             .window = window,
                                             .super_batch = (int)r->super_batch,
                                             .batch_max = r->trace.batch_max,
                                             .hotness = r->hotness,
                                             .vertices = r->plan.vertices};
    struct pst_policy *p = NULL;
    int32_t *lines = malloc(2 * (size_t)pst_max_i64(1, r->trace.batch_max) * sizeof *lines);
    const double begin = pst_now();
    *o = (struct outcome){.kind = kind};
    pst_rc rc = lines != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot replay a batch");
    const bool super = kind == PST_POLICY_BELADY && r->super_batch > 0;
    if (rc == PST_OK && kind == PST_POLICY_BELADY && !super)
        rc = find_next(r);
    if (rc == PST_OK)
        rc = pst_policy_new(&p, &config);
    if (rc == PST_OK)
        rc = super ? replay_super_batches(r, p, lines, o) : replay_batches(r, p, window, lines, o);
    o->seconds = pst_now() - begin;
    o->bytes = rc == PST_OK ? pst_policy_bytes(p) : 0;
    o->evictions = rc == PST_OK ? pst_policy_evictions(p) : 0;
    pst_policy_free(p);
    free(lines);
    return rc;
}

/* ---- printing ------------------------------------------------------------------------------------- */

static void print_head(const struct replay *r)
{
    if (r->json) {
        printf("{\"batches\": %lld, \"ids\": %lld, \"rows\": %lld, \"window\": %lld, \"policies\": [",
               (long long)r->trace.n, (long long)r->asked, (long long)r->rows, (long long)r->window);
        return;
    }
    printf("%lld batches, %.1f rows each; a cache of %lld rows (%.2f batches); window %lld; %s\n",
           (long long)r->trace.n, (double)r->asked / (double)r->trace.n, (long long)r->rows,
           (double)r->rows * (double)r->trace.n / (double)pst_max_i64(1, r->asked), (long long)r->window,
           r->hotness != NULL ? "hotness of the plan" : "no plan: all rows are equally hot");
    printf("%-10s %12s %9s %14s %9s\n", "policy", "hits", "hit rate", "misses/batch", "seconds");
}

static void print_outcome(const struct replay *r, const struct outcome *o, bool first)
{
    const double rate = r->asked > 0 ? (double)o->hits / (double)r->asked : 0;
    if (r->json)
        printf("%s{\"policy\": \"%s\", \"hits\": %lld, \"hit_rate\": %.6f, \"misses\": %lld, "
               "\"evictions\": %llu, \"bytes\": %llu, \"seconds\": %.3f}",
               first ? "" : ", ", pst_policy_name(o->kind), (long long)o->hits, rate,
               (long long)(r->asked - o->hits), (unsigned long long)o->evictions,
               (unsigned long long)o->bytes, o->seconds);
    else
        printf("%-10s %12lld %9.4f %14.1f %9.2f\n", pst_policy_name(o->kind), (long long)o->hits, rate,
               (double)(r->asked - o->hits) / (double)r->trace.n, o->seconds);
}

static pst_rc replay_all(struct replay *r)
{
    bool first = true;
    pst_rc rc = PST_OK;
    print_head(r);
    for (int k = 0; k < PST_POLICY_KINDS && rc == PST_OK; k++) {
        const enum pst_policy_kind kind = (enum pst_policy_kind)k;
        struct outcome o;
        if (r->all ? kind == PST_POLICY_STATIC && r->hotness == NULL : kind != r->kind)
            continue;
        rc = replay_one(r, kind, &o);
        if (rc == PST_OK)
            print_outcome(r, &o, first);
        first = false;
    }
    if (r->json)
        printf("]}\n");
    return rc;
}

/* ---- the command ---------------------------------------------------------------------------------- */

enum {
    OPT_ROWS = 256,
    OPT_BATCHES,
    OPT_POLICY,
    OPT_WINDOW,
    OPT_PLAN,
    OPT_BUFFER,
    OPT_SEED,
    OPT_SUPER_BATCH,
    OPT_EPOCH,
    OPT_PAGE_ROWS,
    OPT_JSON
};

static pst_rc take_policy(struct replay *r, const char *name)
{
    r->all = false;
    return pst_policy_find(name, &r->kind)
               ? PST_OK
               : pst_fail(PST_E_ARG, "--policy: unknown policy \"%s\"; expected " PST_POLICY_CHOICES, name);
}

static pst_rc take_option(struct replay *r, int opt)
{
    switch (opt) {
    case OPT_ROWS: return option_int("--rows", optarg, 0, PST_POLICY_LINES_MAX, &r->rows);
    case OPT_BATCHES: {
        const pst_rc rc = option_real("--batches", optarg, &r->batches);
        return rc != PST_OK || r->batches > 0
                   ? rc
                   : pst_fail(PST_E_ARG, "--batches: expected a number above 0, found \"%s\"", optarg);
    }
    case OPT_POLICY: return take_policy(r, optarg);
    case OPT_WINDOW: return option_int("--window", optarg, 0, PST_POLICY_WINDOW_MAX, &r->window);
    case OPT_PLAN: r->plan_path = optarg; return PST_OK;
    case OPT_BUFFER: r->buffer = true; return PST_OK;
    case OPT_SEED: return option_int("--seed", optarg, 0, INT64_MAX, &r->seed);
    case OPT_SUPER_BATCH:
        return option_int("--super-batch", optarg, 1, PST_POLICY_SUPER_MAX, &r->super_batch);
    case OPT_EPOCH: return option_int("--epoch", optarg, 1, INT64_MAX, &r->epoch);
    case OPT_PAGE_ROWS: return option_int("--page-rows", optarg, 1, INT32_MAX, &r->page_rows);
    case OPT_JSON: r->json = true; return PST_OK;
    default: return PST_E_ARG;
    }
}

static pst_rc check_args(const struct replay *r, int left)
{
    if (left != 1)
        return pst_fail(PST_E_ARG, "expected one trace as argument, found %d arguments", left);
    if ((r->rows < 0) == (r->batches <= 0))
        return pst_fail(PST_E_ARG, "expected exactly one of the options --rows and --batches");
    if (r->buffer && r->plan_path == NULL)
        return pst_fail(PST_E_ARG,
                        "--buffer requires --plan, because the plan says which rows are in the buffer");
    if (r->epoch > 0 && r->super_batch == 0)
        return pst_fail(PST_E_ARG,
                        "--epoch requires --super-batch, because it says where a super-batch ends");
    if (!r->all && r->kind == PST_POLICY_STATIC && r->page_rows > 1)
        return pst_fail(PST_E_ARG, "--policy static keeps rows; expected no --page-rows");
    if (!r->all && r->kind == PST_POLICY_STATIC && r->plan_path == NULL)
        return pst_fail(
            PST_E_ARG, "--policy static requires --plan, because the plan says how often each row is needed");
    return PST_OK;
}

int cmd_replay(int argc, char **argv)
{
    static const struct option options[] = {{"rows", required_argument, NULL, OPT_ROWS},
                                            {"batches", required_argument, NULL, OPT_BATCHES},
                                            {"policy", required_argument, NULL, OPT_POLICY},
                                            {"window", required_argument, NULL, OPT_WINDOW},
                                            {"plan", required_argument, NULL, OPT_PLAN},
                                            {"buffer", no_argument, NULL, OPT_BUFFER},
                                            {"seed", required_argument, NULL, OPT_SEED},
                                            {"super-batch", required_argument, NULL, OPT_SUPER_BATCH},
                                            {"epoch", required_argument, NULL, OPT_EPOCH},
                                            {"page-rows", required_argument, NULL, OPT_PAGE_ROWS},
                                            {"json", no_argument, NULL, OPT_JSON},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct replay r = {.rows = -1, .window = DEFAULT_WINDOW, .seed = 1, .page_rows = 1, .all = true};
    pst_rc rc = PST_OK;
    int opt;
    while (rc == PST_OK && (opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h' || opt == '?') {
            (void)fputs(usage, opt == 'h' ? stdout : stderr);
            return opt == 'h' ? 0 : 2;
        }
        rc = take_option(&r, opt);
    }
    if (rc == PST_OK)
        rc = check_args(&r, argc - optind);
    if (rc == PST_OK) {
        r.path = argv[optind];
        rc = open_replay(&r);
    }
    if (rc == PST_OK)
        rc = replay_all(&r);
    pst_policy_trace_close(&r.trace);
    pst_plan_release(&r.plan);
    free(r.hotness);
    free(r.buffered);
    free(r.ids);
    free(r.seen);
    free(r.next);
    free(r.last);
    return command_result("replay", rc);
}
