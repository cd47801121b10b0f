/* lookup.c: names, rows, and the best of many. */
#include "tools/penstock/embeddings/lookup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { DIGITS_MAX = 24 }; /* of a number of a vertex, with its NUL */

/* ---- opening ------------------------------------------------------------------------------------- */

static pst_rc open_dataset(struct lookup *l, const char *dir)
{
    pst_rc rc = pst_dataset_open(&l->ds, dir);
    if (rc != PST_OK)
        return rc;
    const char *digest = pst_checkpoint_text(&l->reader.ck, "dataset");
    if (digest && strcmp(digest, l->ds.digest) == 0 && l->ds.vertices == l->reader.vertices)
        return PST_OK;
    rc = pst_fail(PST_E_ARG,
                  "%s is not the dataset of %s: its digest is %s, but that of the run's dataset was %s", dir,
                  l->reader.ck.path, l->ds.digest, digest ? digest : "(not recorded)");
    pst_dataset_close(&l->ds);
    return rc;
}

pst_rc lookup_open(struct lookup *l, const char *run, bool last, const char *dataset)
{
    char dir[PST_PATH_MAX];
    pst_rc rc = pst_vectors_reader_open(&l->reader, run, !last);
    if (rc != PST_OK)
        return rc;
    if (!dataset)
        rc = pst_wrap(pst_vectors_reader_dataset(run, dir), "give --dataset DIR");
    if (rc == PST_OK)
        rc = open_dataset(l, dataset ? dataset : dir);
    if (rc != PST_OK) {
        pst_vectors_reader_close(&l->reader);
        return rc;
    }
    l->block = malloc(pst_vectors_reader_room(&l->reader));
    if (l->block)
        return PST_OK;
    lookup_close(l);
    return pst_fail(PST_E_NOMEM, "out of memory: cannot read %" PRIu64 " bytes of embeddings at a time",
                    pst_vectors_reader_room(&l->reader));
}

void lookup_close(struct lookup *l)
{
    pst_vectors_reader_close(&l->reader);
    pst_dataset_close(&l->ds);
    free(l->block);
    l->block = NULL;
}

/* ---- names ----------------------------------------------------------------------------------------- */

struct lookup_name lookup_name_of(const char *text)
{
    return (struct lookup_name){text, strlen(text)};
}

static int compare(const struct lookup_name *a, const struct lookup_name *b)
{
    const size_t least = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order = memcmp(a->text, b->text, least);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static struct lookup_name name_at(const struct pst_array *at, const struct pst_array *names, int64_t i)
{
    const int64_t *begin = at->map;
    return (struct lookup_name){(const char *)names->map + begin[i], (size_t)(begin[i + 1] - begin[i])};
}

/* digits: where a number is written. */
static struct lookup_name number_name(int64_t number, char digits[DIGITS_MAX])
{
    const int n = snprintf(digits, DIGITS_MAX, "%" PRId64, number);
    return (struct lookup_name){digits, (size_t)n};
}

static struct lookup_name vertex_name(const struct lookup *l, int64_t vertex, char digits[DIGITS_MAX])
{
    const struct pst_dataset *ds = &l->ds;
    const int64_t *ids = ds->ids.map ? ds->ids.map : ds->old_ids.map;
    return ds->names_at.map ? name_at(&ds->names_at, &ds->names, vertex)
                            : number_name(ids ? ids[vertex] : vertex, digits);
}

/* A number below `end`, written as we print it; -1: it is something else. */
static int64_t number_of(const struct lookup_name *name, int64_t end)
{
    char digits[DIGITS_MAX];
    int64_t number = 0;
    for (size_t i = 0; i < name->bytes; i++) {
        const char c = name->text[i];
        if (c < '0' || c > '9' || number >= end)
            return -1;
        number = number * 10 + (c - '0');
    }
    const struct lookup_name canonical = number_name(number, digits);
    return number < end && compare(&canonical, name) == 0 ? number : -1;
}

struct wanted {
    struct lookup_name name;
    int64_t at;
};

static int by_name(const void *a, const void *b)
{
    return compare(&((const struct wanted *)a)->name, &((const struct wanted *)b)->name);
}

/* All that want this name get the vertex. */
static void found(const struct wanted *sorted, int64_t n, struct lookup_name name, int64_t v, int64_t *vertex)
{
    const struct wanted key = {.name = name};
    const struct wanted *w = bsearch(&key, sorted, (size_t)n, sizeof key, by_name);
    if (!w)
        return;
    while (w > sorted && by_name(w - 1, &key) == 0)
        w--;
    for (; w < sorted + n && by_name(w, &key) == 0; w++)
        vertex[w->at] = v;
}

pst_rc lookup_vertices(const struct lookup *l, const struct lookup_name *names, int64_t n, int64_t *vertex)
{
    const bool numbers = !l->ds.names_at.map && !l->ds.ids.map && !l->ds.old_ids.map;
    for (int64_t i = 0; i < n; i++)
        vertex[i] = numbers ? number_of(&names[i], l->ds.vertices) : -1;
    if (numbers || n == 0)
        return PST_OK;
    struct wanted *sorted = calloc((size_t)n, sizeof *sorted);
    if (!sorted)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot look for %" PRId64 " names", n);
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (struct wanted){names[i], i};
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int64_t v = 0; v < l->ds.vertices; v++) {
        char digits[DIGITS_MAX];
        found(sorted, n, vertex_name(l, v, digits), v, vertex);
    }
    free(sorted);
    return PST_OK;
}

int64_t lookup_relation(const struct lookup *l, struct lookup_name name)
{
    const struct pst_dataset *ds = &l->ds;
    if (!ds->relation_names_at.map)
        return number_of(&name, ds->relations);
    for (int64_t r = 0; r < ds->relations; r++) {
        const struct lookup_name other = name_at(&ds->relation_names_at, &ds->relation_names, r);
        if (compare(&other, &name) == 0)
            return r;
    }
    return -1;
}

void lookup_print(const struct lookup *l, int64_t vertex)
{
    char digits[DIGITS_MAX];
    const struct lookup_name name = vertex_name(l, vertex, digits);
    (void)fwrite(name.text, 1, name.bytes, stdout);
}

/* ---- rows ------------------------------------------------------------------------------------------ */

pst_rc lookup_each(struct lookup *l, void (*row)(void *arg, int64_t vertex, const float *x), void *arg)
{
    const struct pst_vectors_reader *r = &l->reader;
    const float *x = (const float *)(const void *)l->block;
    pst_rc rc = PST_OK;
    for (int64_t b = 0; b < pst_vectors_reader_blocks(r) && rc == PST_OK; b++) {
        int64_t n = 0;
        rc = pst_vectors_reader_read(r, b, l->block, &n);
        for (int64_t i = 0; i < n && rc == PST_OK; i++)
            row(arg, pst_vectors_reader_vertex(r, b, i), x + i * r->dim);
    }
    return rc;
}

struct place {
    int64_t vertex, at;
};

struct gathering {
    struct place *sorted;
    int64_t n, dim;
    float *rows;
};

static int by_vertex(const void *a, const void *b)
{
    const int64_t x = ((const struct place *)a)->vertex, y = ((const struct place *)b)->vertex;
    return (x > y) - (x < y);
}

static void keep(void *arg, int64_t vertex, const float *x)
{
    const struct gathering *g = arg;
    const struct place key = {.vertex = vertex};
    const struct place *p = bsearch(&key, g->sorted, (size_t)g->n, sizeof key, by_vertex);
    if (!p)
        return;
    while (p > g->sorted && p[-1].vertex == vertex)
        p--;
    for (; p < g->sorted + g->n && p->vertex == vertex; p++)
        memcpy(g->rows + p->at * g->dim, x, (size_t)g->dim * sizeof *x);
}

pst_rc lookup_rows(struct lookup *l, const int64_t *vertex, int64_t n, float *rows)
{
    struct gathering g = {
        .sorted = calloc((size_t)n, sizeof *g.sorted), .n = n, .dim = l->reader.dim, .rows = rows};
    if (!g.sorted)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot look for %" PRId64 " vertices", n);
    for (int64_t i = 0; i < n; i++)
        g.sorted[i] = (struct place){vertex[i], i};
    qsort(g.sorted, (size_t)n, sizeof *g.sorted, by_vertex);
    const pst_rc rc = lookup_each(l, keep, &g);
    free(g.sorted);
    return rc;
}

/* ---- the best ---------------------------------------------------------------------------------------- */

static bool better(const struct lookup_scored *a, const struct lookup_scored *b)
{
    if (isnan(a->score) != isnan(b->score))
        return isnan(b->score);
    if (a->score > b->score || a->score < b->score)
        return a->score > b->score;
    return a->vertex < b->vertex;
}

void lookup_offer(struct lookup_best *b, int64_t vertex, double score)
{
    const struct lookup_scored this = {score, vertex};
    if (b->n == b->k && !better(&this, &b->at[b->n - 1]))
        return;
    int64_t i = b->n < b->k ? b->n++ : b->n - 1;
    for (; i > 0 && better(&this, &b->at[i - 1]); i--)
        b->at[i] = b->at[i - 1];
    b->at[i] = this;
}
