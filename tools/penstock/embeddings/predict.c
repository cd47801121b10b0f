/* predict.c: penstock predict RUN TRIPLES: scores of edges, and the best ends of edges that have only one.
 *
 * The lines of the file are answered in groups of bounded memory. A group needs two passes over the
 * embeddings: one for the rows of its vertices, and one that compares its queries with all vertices. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/text/table.h"
#include "stages/lib/embed/ranks.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/embeddings/lookup.h"

static const char usage[] =
    "usage: penstock predict RUN TRIPLES [OPTION]...\n"
    "Scores edges with the embeddings of RUN, the directory of a run that trains\n"
    "embeddings. TRIPLES is a .tsv, .csv or .psv file without a header, plain, gzip or zstd. A line is "
    "source,\n"
    "relation, destination; if the dataset's edges have no relations, source and destination. Names are "
    "those\n"
    "of the dataset's source, or numbers if it has none. One of the two ends may be ?.\n\n"
    "A line of the output is source, relation, destination and score, with tabs between them; higher is\n"
    "better. An edge with ? gives a line for each of the best vertices in its place, the best first. An "
    "edge\n"
    "with both ends gets the score of its destination. If the run has inverse relations, those score "
    "sources,\n"
    "so the same edge can have another score as the answer to `? relation destination`.\n\n"
    "  --k N          vertices for each ? (10; at most 1000)\n"
    "  --checkpoint best|last  the epoch with the best validation MRR, if epochs were evaluated (default), "
    "or\n"
    "                 the newest checkpoint\n"
    "  --dataset DIR  where the dataset is (default: where RUN/report.json says)\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

enum {
    GROUP_BYTES = 64 << 20,             /* of rows and results of one group, about */
    GROUP_TEXT = 2 * PST_TEXT_LINE_MAX, /* bytes of its names: a line always fits */
    GROUP_MAX = 1 << 16,                /* edges */
};

enum { SOURCE, DESTINATION, ENDS }; /* also what a question looks for; ENDS: nothing */

struct question {
    int64_t line, relation;
    int looks_for;
    struct lookup_name end[ENDS], relation_name;
    int64_t at[ENDS]; /* places in names, vertex and rows; unused for the end that is looked for */
    struct lookup_best best;
};

struct group {
    int64_t n, most, names_n;
    size_t text_used;
    struct question *q;         /* [most] */
    char *text;                 /* [GROUP_TEXT] */
    struct lookup_name *names;  /* [2 * most] */
    int64_t *vertex;            /* [2 * most] */
    float *rows;                /* [2 * most][d] */
    float *queries;             /* [most][d] */
    struct lookup_scored *room; /* [most][k] */
};

struct predict {
    struct lookup l;
    struct pst_embed_plan plan;
    bool triples; /* edges have relations */
    float *relations;
    struct pst_table table;
    int64_t k;
    struct group g;
};

/* ---- one group ----------------------------------------------------------------------------------- */

static void make_queries(const struct predict *p)
{
    const struct group *g = &p->g;
    const int64_t d = p->plan.d, dr = pst_embed_relation_floats(&p->plan);
    for (int64_t i = 0; i < g->n; i++) {
        const struct question *q = &g->q[i];
        const bool source = q->looks_for == SOURCE;
        const int64_t relation = q->relation + (source && p->plan.inverse ? p->plan.relations : 0);
        p->plan.model->query(g->queries + i * d, g->rows + q->at[source ? DESTINATION : SOURCE] * d,
                             dr > 0 ? p->relations + relation * dr : NULL, d, source && !p->plan.inverse);
    }
}

static double score(const struct predict *p, int64_t i, const float *x)
{
    const int64_t d = p->plan.d;
    return pst_embed_exact_score(p->plan.model->similarity, p->g.queries + i * d, x, d);
}

static void offer(void *arg, int64_t vertex, const float *x)
{
    const struct predict *p = arg;
    for (int64_t i = 0; i < p->g.n; i++)
        if (p->g.q[i].looks_for != ENDS)
            lookup_offer(&p->g.q[i].best, vertex, score(p, i, x));
}

/* found: the vertex in place of ?. */
static void print_edge(const struct predict *p, const struct question *q, int64_t found, double value)
{
    for (int end = 0; end < ENDS; end++) {
        if (q->looks_for == end)
            lookup_print(&p->l, found);
        else
            (void)fwrite(q->end[end].text, 1, q->end[end].bytes, stdout);
        (void)putchar('\t');
        if (end == SOURCE && p->triples)
            (void)printf("%.*s\t", (int)q->relation_name.bytes, q->relation_name.text);
    }
    (void)printf("%.17g\n", value);
}

static void print_group(const struct predict *p)
{
    const struct group *g = &p->g;
    for (int64_t i = 0; i < g->n; i++) {
        const struct question *q = &g->q[i];
        if (q->looks_for == ENDS)
            print_edge(p, q, -1, score(p, i, g->rows + q->at[DESTINATION] * p->plan.d));
        for (int64_t k = 0; k < q->best.n; k++)
            print_edge(p, q, q->best.at[k].vertex, q->best.at[k].score);
    }
}

static pst_rc find_vertices(const struct predict *p)
{
    const struct group *g = &p->g;
    pst_rc rc = lookup_vertices(&p->l, g->names, g->names_n, g->vertex);
    for (int64_t i = 0; i < g->n && rc == PST_OK; i++)
        for (int end = 0; end < ENDS && rc == PST_OK; end++) {
            const struct question *q = &g->q[i];
            if (q->looks_for != end && g->vertex[q->at[end]] < 0)
                rc = pst_fail(PST_E_ARG, "%s:%" PRId64 ": %s has no vertex \"%.*s\"", p->table.text.path,
                              q->line, p->l.ds.dir, (int)q->end[end].bytes, q->end[end].text);
        }
    return rc;
}

static pst_rc answer(struct predict *p)
{
    struct group *g = &p->g;
    if (g->n == 0)
        return PST_OK;
    bool open = false;
    for (int64_t i = 0; i < g->n; i++)
        open = open || g->q[i].looks_for != ENDS;
    pst_rc rc = find_vertices(p);
    if (rc == PST_OK)
        rc = lookup_rows(&p->l, g->vertex, g->names_n, g->rows);
    if (rc != PST_OK)
        return rc;
    make_queries(p);
    if (open)
        rc = lookup_each(&p->l, offer, p);
    if (rc == PST_OK)
        print_group(p);
    g->n = g->names_n = 0;
    g->text_used = 0;
    return rc;
}

/* ---- lines --------------------------------------------------------------------------------------- */

static struct lookup_name copy(struct group *g, const struct pst_table_field *f)
{
    char *to = g->text + g->text_used;
    memcpy(to, f->text, f->bytes);
    g->text_used += f->bytes;
    return (struct lookup_name){to, f->bytes};
}

static bool unknown(const struct pst_table_field *f)
{
    return f->bytes == 1 && f->text[0] == '?';
}

/* The present row of the table becomes a question. */
static pst_rc add(struct predict *p)
{
    struct group *g = &p->g;
    const int columns[ENDS] = {0, p->table.columns - 1};
    struct question *q = &g->q[g->n];
    *q = (struct question){.line = p->table.text.line, .looks_for = ENDS};
    q->best = (struct lookup_best){.k = p->k, .at = g->room + g->n * p->k};
    if (p->triples) {
        q->relation_name = copy(g, &p->table.field[1]);
        q->relation = lookup_relation(&p->l, q->relation_name);
        if (q->relation < 0 || q->relation >= p->plan.relations)
            return pst_table_fail(&p->table, 1, "a relation of the dataset");
    }
    for (int end = 0; end < ENDS; end++) {
        const struct pst_table_field *f = &p->table.field[columns[end]];
        if (unknown(f)) {
            if (q->looks_for != ENDS)
                return pst_table_fail(&p->table, columns[end],
                                      "the name of a vertex, because the source is ?");
            q->looks_for = end;
            continue;
        }
        q->end[end] = copy(g, f);
        q->at[end] = g->names_n;
        g->names[g->names_n++] = q->end[end];
    }
    g->n++;
    return PST_OK;
}

static bool fits(const struct predict *p)
{
    size_t bytes = p->g.text_used;
    for (int c = 0; c < p->table.columns; c++)
        bytes += p->table.field[c].bytes;
    return p->g.n < p->g.most && bytes <= GROUP_TEXT;
}

static pst_rc read_lines(struct predict *p)
{
    const int columns = p->triples ? 3 : 2;
    bool more = true;
    pst_rc rc = PST_OK;
    while (rc == PST_OK) {
        rc = pst_table_next(&p->table, &more);
        if (rc != PST_OK || !more)
            break;
        if (p->table.columns != columns)
            return p->triples
                       ? pst_fail(
                             PST_E_FORMAT,
                             "%s: expected the columns source, relation and destination, found %d columns",
                             p->table.text.path, p->table.columns)
                       : pst_fail(PST_E_FORMAT,
                                  "%s: expected the columns source and destination, because the dataset has "
                                  "no relations, found %d columns",
                                  p->table.text.path, p->table.columns);
        if (!fits(p))
            rc = answer(p);
        if (rc == PST_OK)
            rc = add(p);
    }
    return rc == PST_OK ? answer(p) : rc;
}

/* ---- the model ------------------------------------------------------------------------------------- */

static pst_rc read_relations(struct predict *p)
{
    const struct pst_vectors_reader *r = &p->l.reader;
    const int64_t floats = pst_embed_relation_floats(&p->plan);
    const int64_t rows = floats > 0 ? p->plan.relations * (p->plan.inverse ? 2 : 1) : 0;
    if (r->relations != rows || r->relation_dim != floats)
        return pst_fail(PST_E_FORMAT,
                        "%s has %" PRId64 " relations of %" PRId64
                        " floats, but for the dataset and the model %s it must have %" PRId64
                        " relations of %" PRId64 " floats",
                        r->ck.path, r->relations, r->relation_dim, p->plan.model->name, rows, floats);
    if (rows == 0)
        return PST_OK;
    p->relations = calloc((size_t)(rows * floats), sizeof *p->relations);
    return p->relations ? pst_vectors_reader_relations(r, p->relations)
                        : pst_fail(PST_E_NOMEM, "out of memory: cannot read %" PRId64 " relations", rows);
}

static pst_rc open_model(struct predict *p)
{
    const struct pst_vectors_reader *r = &p->l.reader;
    const struct pst_array *edges;
    p->plan =
        (struct pst_embed_plan){.model = pst_embed_model_named(r->model), .d = r->dim, .inverse = r->inverse};
    if (!p->plan.model)
        return pst_fail(PST_E_FORMAT,
                        "%s: its model is \"%s\"; expected %s. A checkpoint of an older Penstock names no "
                        "model: resume its run",
                        r->ck.path, r->model, pst_embed_models());
    pst_rc rc = pst_dataset_edges(&p->l.ds, PST_TRAIN, &edges, &p->plan.relations);
    if (rc == PST_OK)
        rc = pst_embed_check(&p->plan);
    p->triples = rc == PST_OK && edges->shape[1] == 3;
    return rc == PST_OK ? read_relations(p) : rc;
}

static pst_rc allocate(struct predict *p)
{
    struct group *g = &p->g;
    const int64_t d = p->plan.d;
    const size_t each = 3 * (size_t)d * sizeof *g->rows + (size_t)p->k * sizeof *g->room + sizeof *g->q;
    g->most = pst_min_i64(GROUP_MAX, (int64_t)(GROUP_BYTES / each));
    const size_t n = (size_t)g->most;
    g->q = calloc(n, sizeof *g->q);
    g->text = malloc(GROUP_TEXT);
    g->names = calloc(2 * n, sizeof *g->names);
    g->vertex = calloc(2 * n, sizeof *g->vertex);
    g->rows = calloc(2 * n * (size_t)d, sizeof *g->rows);
    g->queries = calloc(n * (size_t)d, sizeof *g->queries);
    g->room = calloc(n * (size_t)p->k, sizeof *g->room);
    if (g->q && g->text && g->names && g->vertex && g->rows && g->queries && g->room)
        return PST_OK;
    return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate about %d MiB", GROUP_BYTES >> 20);
}

static void release(struct predict *p)
{
    struct group *g = &p->g;
    free(g->q);
    free(g->text);
    free(g->names);
    free(g->vertex);
    free(g->rows);
    free(g->queries);
    free(g->room);
    free(p->relations);
}

static pst_rc predict(const char *run, bool last, const char *dataset, const char *triples, int64_t k)
{
    static const char *const no_names[] = {NULL};
    struct predict p = {.k = k};
    pst_rc rc = lookup_open(&p.l, run, last, dataset);
    if (rc != PST_OK)
        return rc;
    rc = open_model(&p);
    if (rc == PST_OK)
        rc = allocate(&p);
    if (rc == PST_OK)
        rc = pst_table_open(&p.table, triples, PST_TABLE_HEADER_NO, no_names);
    if (rc == PST_OK) {
        rc = read_lines(&p);
        pst_table_close(&p.table);
    }
    release(&p);
    lookup_close(&p.l);
    return rc;
}

int cmd_predict(int argc, char **argv)
{
    static const struct option options[] = {{"k", required_argument, NULL, 'k'},
                                            {"dataset", required_argument, NULL, 'd'},
                                            {"checkpoint", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *dataset = NULL;
    bool last = false;
    int64_t k = 10;
    pst_rc rc = PST_OK;
    for (int c; rc == PST_OK && (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (c == 'k')
            rc = option_int("--k", optarg, 1, LOOKUP_BEST_MAX, &k);
        else if (c == 'd')
            dataset = optarg;
        else if (c == 'c')
            rc = option_checkpoint("--checkpoint", optarg, &last);
        else
            return 2;
    }
    if (rc == PST_OK && argc - optind != 2)
        rc = pst_fail(PST_E_ARG, "expected a run and a file of triples, found %d arguments", argc - optind);
    if (rc == PST_OK)
        rc = predict(argv[optind], last, dataset, argv[optind + 1], k);
    return command_result("predict", rc);
}
