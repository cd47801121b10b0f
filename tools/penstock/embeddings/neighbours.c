/* neighbours.c: penstock neighbours RUN VERTEX...: the vertices whose embeddings are most similar to those of
 * the given ones. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/embed/ranks.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/embeddings/lookup.h"

static const char usage[] =
    "usage: penstock neighbours RUN VERTEX... [OPTION]...\n"
    "Prints the vertices whose embeddings are most similar to that of each VERTEX, the best first. RUN is "
    "the\n"
    "directory of a run that trains embeddings. A VERTEX is a name of the\n"
    "dataset's source, or a number if the source has no names. A line of the output is VERTEX, neighbour "
    "and\n"
    "similarity, with tabs between them. `--` before the first VERTEX allows names that begin with '-'.\n\n"
    "  --k N          neighbours of each vertex (10; at most 1000)\n"
    "  --metric M     cosine (default), dot, or l2, which is the negated distance\n"
    "  --checkpoint best|last  the epoch with the best validation MRR, if epochs were evaluated (default), "
    "or\n"
    "                 the newest checkpoint\n"
    "  --dataset DIR  where the dataset is (default: where RUN/report.json says)\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

enum metric { COSINE, DOT, L2 };

struct search {
    enum metric metric;
    int64_t n, k, dim, *vertex; /* [n] */
    struct lookup_name *names;  /* [n] */
    float *rows;                /* [n][dim]: of these vertices */
    double *norms;              /* [n] */
    struct lookup_best *best;   /* [n] */
    struct lookup_scored *room; /* [n][k] */
};

static double norm(const float *x, int64_t d)
{
    return sqrt(pst_embed_exact_score(PST_K_EMBED_PRODUCT, x, x, d));
}

static void offer(void *arg, int64_t vertex, const float *x)
{
    const struct search *s = arg;
    const enum pst_k_embed_similarity how = s->metric == L2 ? PST_K_EMBED_L2 : PST_K_EMBED_PRODUCT;
    const double length = s->metric == COSINE ? norm(x, s->dim) : 1;
    for (int64_t i = 0; i < s->n; i++) {
        const double score = pst_embed_exact_score(how, s->rows + i * s->dim, x, s->dim);
        if (s->vertex[i] != vertex)
            lookup_offer(&s->best[i], vertex, s->metric == COSINE ? score / (s->norms[i] * length) : score);
    }
}

static void print(const struct lookup *l, const struct search *s)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < s->best[i].n; k++) {
            lookup_print(l, s->vertex[i]);
            (void)putchar('\t');
            lookup_print(l, s->best[i].at[k].vertex);
            (void)printf("\t%.9g\n", s->best[i].at[k].score);
        }
}

static pst_rc allocate(struct search *s)
{
    const size_t n = (size_t)s->n;
    s->names = calloc(n, sizeof *s->names);
    s->vertex = calloc(n, sizeof *s->vertex);
    s->rows = calloc(n * (size_t)s->dim, sizeof *s->rows);
    s->norms = calloc(n, sizeof *s->norms);
    s->best = calloc(n, sizeof *s->best);
    s->room = calloc(n * (size_t)s->k, sizeof *s->room);
    if (s->names && s->vertex && s->rows && s->norms && s->best && s->room)
        return PST_OK;
    return pst_fail(PST_E_NOMEM, "out of memory: cannot look for %" PRId64 " vertices", s->n);
}

static void release(struct search *s)
{
    free(s->names);
    free(s->vertex);
    free(s->rows);
    free(s->norms);
    free(s->best);
    free(s->room);
}

static pst_rc find_given(struct lookup *l, char **names, struct search *s)
{
    for (int64_t i = 0; i < s->n; i++)
        s->names[i] = lookup_name_of(names[i]);
    pst_rc rc = lookup_vertices(l, s->names, s->n, s->vertex);
    for (int64_t i = 0; i < s->n && rc == PST_OK; i++)
        if (s->vertex[i] < 0)
            rc = pst_fail(PST_E_ARG, "%s has no vertex \"%s\"", l->ds.dir, names[i]);
    if (rc == PST_OK)
        rc = lookup_rows(l, s->vertex, s->n, s->rows);
    for (int64_t i = 0; i < s->n && rc == PST_OK; i++) {
        s->norms[i] = norm(s->rows + i * s->dim, s->dim);
        s->best[i] = (struct lookup_best){.k = s->k, .at = s->room + i * s->k};
    }
    return rc;
}

static pst_rc neighbours(const char *run, bool last, const char *dataset, char **names, struct search *s)
{
    struct lookup l;
    pst_rc rc = lookup_open(&l, run, last, dataset);
    if (rc != PST_OK)
        return rc;
    s->dim = l.reader.dim;
    rc = allocate(s);
    if (rc == PST_OK)
        rc = find_given(&l, names, s);
    if (rc == PST_OK)
        rc = lookup_each(&l, offer, s);
    if (rc == PST_OK)
        print(&l, s);
    release(s);
    lookup_close(&l);
    return rc;
}

static pst_rc metric_of(const char *text, enum metric *metric)
{
    static const char *const names[] = {"cosine", "dot", "l2"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *metric = (enum metric)i;
            return PST_OK;
        }
    return pst_fail(PST_E_ARG, "--metric: expected cosine, dot or l2, found \"%s\"", text);
}

int cmd_neighbours(int argc, char **argv)
{
    static const struct option options[] = {
        {"k", required_argument, NULL, 'k'},       {"metric", required_argument, NULL, 'm'},
        {"dataset", required_argument, NULL, 'd'}, {"checkpoint", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    struct search s = {.metric = COSINE, .k = 10};
    const char *dataset = NULL;
    bool last = false;
    pst_rc rc = PST_OK;
    for (int c; rc == PST_OK && (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (c == 'k')
            rc = option_int("--k", optarg, 1, LOOKUP_BEST_MAX, &s.k);
        else if (c == 'm')
            rc = metric_of(optarg, &s.metric);
        else if (c == 'd')
            dataset = optarg;
        else if (c == 'c')
            rc = option_checkpoint("--checkpoint", optarg, &last);
        else
            return 2;
    }
    s.n = argc - optind - 1;
    if (rc == PST_OK && s.n < 1)
        rc = pst_fail(PST_E_ARG, "expected a run and at least one vertex");
    if (rc == PST_OK)
        rc = neighbours(argv[optind], last, dataset, argv + optind + 1, &s);
    return command_result("neighbours", rc);
}
