/* edges.c: reads an array of edges by blocks and gives them to the topology. */
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/importing.h"

#define AHEAD_BYTES (4 << 20) /* asked for at a time, this far before they are read */

#define SAMPLE_RUN 8 /* edges of a sample that lie side by side: so there are fewer places to read */

#define COLUMNS_MAX 3 /* source, relation, target */

/* Reads blocks of an edge array through the page cache, not a mapping: what was read is not resident. Two
 * descriptors, so that the kernel reads ahead on both rows of (2, E). */
struct edge_reader {
    const struct pst_import_edge_array *e;
    int fd[2];
    void *raw[2];
    int64_t *source, *target;
    int32_t *tag; /* relations, weights or times */
    int64_t bad, bad_tags;
};

static pst_rc open_reader(struct edge_reader *r, const struct pst_import_edge_array *e)
{
    *r = (struct edge_reader){.e = e, .fd = {-1, -1}};
    size_t bytes = PST_CSC_BUILDER_EDGE_BLOCK * sizeof(int64_t);
    for (int i = 0; i < 2; i++) {
        r->fd[i] = open(e->file, O_RDONLY | O_CLOEXEC);
        if (r->fd[i] < 0)
            return pst_fail_errno("cannot open %s", e->file);
        (void)posix_fadvise(r->fd[i], 0, 0, POSIX_FADV_SEQUENTIAL);
        r->raw[i] = calloc(COLUMNS_MAX, bytes);
    }
    r->source = malloc(bytes);
    r->target = malloc(bytes);
    r->tag = calloc(PST_CSC_BUILDER_EDGE_BLOCK, sizeof *r->tag);
    return r->raw[0] != NULL && r->raw[1] != NULL && r->source != NULL && r->target != NULL && r->tag != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate a block of edges", e->a->path);
}

static void close_reader(struct edge_reader *r)
{
    for (int i = 0; i < 2; i++) {
        if (r->fd[i] >= 0)
            (void)close(r->fd[i]);
        free(r->raw[i]);
    }
    free(r->source);
    free(r->target);
    free(r->tag);
}

static pst_rc read_items(const struct edge_reader *r, int which, int64_t first, int64_t n)
{
    const struct pst_array *a = r->e->a;
    size_t item = pst_dtype_bytes(a->dtype), bytes = (size_t)n * item;
    off_t at = (off_t)(a->data_at + (uint64_t)first * item), step = at / AHEAD_BYTES;
    if (step != (at + (off_t)bytes) / AHEAD_BYTES) /* a hint: the disk works while we do */
        (void)posix_fadvise(r->fd[which], (step + 2) * AHEAD_BYTES, AHEAD_BYTES, POSIX_FADV_WILLNEED);
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(r->fd[which], (char *)r->raw[which] + done, bytes - done, at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pst_fail_errno("%s: cannot read at byte %jd", a->path, (intmax_t)at);
        if (got == 0)
            return pst_fail(PST_E_FORMAT, "%s ends at byte %jd: it changed while it was being read", a->path,
                            (intmax_t)at + (intmax_t)done);
        done += (size_t)got;
    }
    return PST_OK;
}

/* Every `step`th id of raw from `at` on. */
static void take(const void *raw, enum pst_dtype dtype, int64_t at, int64_t step, int64_t *out, int64_t n)
{
    if (dtype == PST_I32)
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const int32_t *)raw)[at + i * step];
    else if (dtype == PST_I64)
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const int64_t *)raw)[at + i * step];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = pst_dtype_int_at(raw, dtype, at + i * step);
}

/* Weights of a block, which must be 0 or more. */
static void take_weights(struct edge_reader *r, int64_t first, int64_t n, struct pst_problems *problems)
{
    const struct pst_array *w = r->e->weights;
    for (int64_t i = 0; i < n; i++) {
        const double x = pst_import_number_at(w, first + i);
        if (!pst_csc_builder_weight(x, &r->tag[i]) && ++r->bad_tags <= PST_IMPORT_TOLD_MAX)
            pst_problem(problems, "%s: weight of edge %" PRId64 ": expected a number from 0 to %g, found %g",
                        w->path, first + i, (double)FLT_MAX, x);
    }
}

/* Times of a block. */
static void take_times(struct edge_reader *r, int64_t first, int64_t n, struct pst_problems *problems)
{
    const struct pst_array *t = r->e->times;
    for (int64_t i = 0; i < n; i++) {
        const int64_t time = pst_import_int_at(t, first + i);
        if ((time < 0 || time > INT32_MAX) && ++r->bad_tags <= PST_IMPORT_TOLD_MAX)
            pst_problem(problems,
                        "%s: time of edge %" PRId64 ": expected 0 to %d, found %" PRId64
                        ": subtract the first time, or count in larger units",
                        t->path, first + i, INT32_MAX, time);
        r->tag[i] = (int32_t)time;
    }
}

/* Relations of a block, which must be below the number of them. */
static void take_relations(struct edge_reader *r, int64_t first, int64_t n, struct pst_problems *problems)
{
    const struct pst_import_edge_array *e = r->e;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = pst_dtype_int_at(r->raw[0], e->a->dtype, 3 * i + 1);
        if (k < 0 || k >= e->relations)
            pst_import_tell(problems, &r->bad, e->a->path, first + i, k, e->relations, "relation of edge");
        else
            r->tag[i] = (int32_t)k;
    }
}

static int64_t columns_of(const struct pst_import_edge_array *e)
{
    return e->shape == PST_EDGES_EX3 ? 3 : 2;
}

static pst_rc read_ids(struct edge_reader *r, int64_t first, int64_t n)
{
    const struct pst_import_edge_array *e = r->e;
    bool wide = e->shape == PST_EDGES_2XE;
    int64_t columns = columns_of(e);
    pst_rc rc = read_items(r, 0, wide ? first : columns * first, wide ? n : columns * n);
    if (rc == PST_OK && wide)
        rc = read_items(r, 1, e->edges + first, n);
    if (rc != PST_OK)
        return rc;
    take(r->raw[0], e->a->dtype, 0, wide ? 1 : columns, r->source, n);
    take(r->raw[wide ? 1 : 0], e->a->dtype, wide ? 0 : columns - 1, wide ? 1 : columns, r->target, n);
    return PST_OK;
}

static pst_rc read_block(struct edge_reader *r, int64_t first, int64_t n, struct pst_problems *problems)
{
    const struct pst_import_edge_array *e = r->e;
    const pst_rc rc = read_ids(r, first, n);
    if (rc != PST_OK)
        return rc;
    if (e->shape == PST_EDGES_EX3)
        take_relations(r, first, n, problems);
    else if (e->weights != NULL)
        take_weights(r, first, n, problems);
    else if (e->times != NULL)
        take_times(r, first, n, problems);
    return PST_OK;
}

/* Ids must be below it. which: 0: sources, 1: targets. */
static uint64_t limit_of(const struct pst_import_edge_array *e, int which)
{
    return (uint64_t)(e->limit[which] >= 0 ? e->limit[which] : PST_CSC_BUILDER_ID_MAX);
}

/* Ids of one block that are out of range go to the list of problems; the rest become the dataset's. */
static void check_block(struct edge_reader *r, int64_t first, int64_t n, struct pst_problems *problems)
{
    const struct pst_import_edge_array *e = r->e;
    const uint64_t limit[2] = {limit_of(e, 0), limit_of(e, 1)};
    uint64_t odd = 0;
    for (int64_t i = 0; i < n; i++)
        odd |=
            (uint64_t)((uint64_t)r->source[i] >= limit[0]) | (uint64_t)((uint64_t)r->target[i] >= limit[1]);
    for (int64_t i = 0; odd != 0 && i < n; i++) {
        if ((uint64_t)r->source[i] >= limit[0])
            pst_import_tell(problems, &r->bad, e->a->path, first + i, r->source[i], (int64_t)limit[0],
                            "source of edge");
        if ((uint64_t)r->target[i] >= limit[1])
            pst_import_tell(problems, &r->bad, e->a->path, first + i, r->target[i], (int64_t)limit[1],
                            "target of edge");
    }
    for (int64_t i = 0; odd == 0 && i < n; i++) {
        r->source[i] += e->first[0];
        r->target[i] += e->first[1];
    }
}

pst_rc pst_import_edge_array_read(const struct pst_import_edge_array *e, pst_import_edge_block_fn fn,
                                  void *ctx, struct pst_problems *problems, struct pst_progress *progress)
{
    struct edge_reader r;
    pst_rc rc = open_reader(&r, e);
    for (int64_t i = 0; rc == PST_OK && e->shape != PST_EDGES_EX3 && i < PST_CSC_BUILDER_EDGE_BLOCK; i++)
        r.tag[i] = e->relation;
    for (int64_t first = e->begin; rc == PST_OK && first < e->edges; first += PST_CSC_BUILDER_EDGE_BLOCK) {
        int64_t n = pst_min_i64(PST_CSC_BUILDER_EDGE_BLOCK, e->edges - first);
        if ((rc = read_block(&r, first, n, problems)) != PST_OK)
            break;
        check_block(&r, first, n, problems);
        if (r.bad + r.bad_tags == 0) /* else there will be no dataset: the rest is only looked at */
            rc = fn(ctx, r.source, r.target,
                    e->relations > 0 || e->weights != NULL || e->times != NULL ? r.tag : NULL, n);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)n);
    }
    pst_import_tell_rest(problems, r.bad, e->a->path);
    if (e->weights != NULL || e->times != NULL)
        pst_import_tell_rest(problems, r.bad_tags, (e->weights != NULL ? e->weights : e->times)->path);
    close_reader(&r);
    return rc;
}

/* Asks the kernel to read the places of a sample, all at once. */
static void prefetch_sample(const struct edge_reader *r, int64_t places)
{
    const struct pst_import_edge_array *e = r->e;
    const bool wide = e->shape == PST_EDGES_2XE;
    const int64_t item = (int64_t)pst_dtype_bytes(e->a->dtype), edge = (wide ? 1 : columns_of(e)) * item;
    for (int64_t i = 0; i < places; i++) {
        const int64_t at = (int64_t)e->a->data_at + i * (e->edges / places) * edge;
        (void)posix_fadvise(r->fd[0], at, SAMPLE_RUN * edge, POSIX_FADV_WILLNEED);
        if (wide)
            (void)posix_fadvise(r->fd[1], at + e->edges * item, SAMPLE_RUN * edge, POSIX_FADV_WILLNEED);
    }
}

/* Gives the topology a sample of the edges, from places all over the array. Ids out of range are left out;
 * they are told later. */
static pst_rc give_sample(const struct pst_import_edge_array *e, struct pst_csc_builder *csc)
{
    const int64_t places = pst_csc_builder_sample(csc, e->edges) / SAMPLE_RUN;
    struct edge_reader r;
    if (places == 0)
        return PST_OK;
    pst_rc rc = open_reader(&r, e);
    if (rc == PST_OK)
        prefetch_sample(&r, places);
    for (int64_t i = 0; i < places && rc == PST_OK; i++) {
        int64_t n = 0;
        rc = read_ids(&r, i * (e->edges / places), SAMPLE_RUN);
        for (int64_t k = 0; k < SAMPLE_RUN && rc == PST_OK; k++) {
            r.source[n] = r.source[k];
            r.target[n] = r.target[k];
            n += (uint64_t)r.source[k] < limit_of(e, 0) && (uint64_t)r.target[k] < limit_of(e, 1);
        }
        if (rc == PST_OK)
            rc = pst_csc_builder_expect(csc, r.source, r.target, n);
    }
    close_reader(&r);
    return rc;
}

pst_rc pst_edges_to_csc(void *csc, const int64_t *source, const int64_t *target, const int32_t *tag,
                        int64_t n)
{
    return pst_csc_builder_add(csc, source, target, tag, n);
}

/* A topology, and how many edges it has been given: where a resumed import goes on. */
struct counted {
    struct pst_csc_builder *csc;
    int64_t edges;
};

static pst_rc add_counted(void *ctx, const int64_t *source, const int64_t *target, const int32_t *tag,
                          int64_t n)
{
    struct counted *c = ctx;
    pst_rc rc = pst_csc_builder_add(c->csc, source, target, tag, n);
    c->edges += n;
    if (rc == PST_OK && pst_csc_builder_due(c->csc))
        rc = pst_csc_builder_checkpoint(c->csc, json_integer((json_int_t)c->edges), PST_CSC_BUILDER_IF_DUE);
    return rc;
}

static enum pst_import_edge_shape layout(const struct pst_import_state *im)
{
    bool turned = im->src[PST_IMPORT_EDGES].fortran;
    return im->shape == PST_EDGES_EX3               ? PST_EDGES_EX3
           : (im->shape == PST_EDGES_2XE) != turned ? PST_EDGES_2XE
                                                    : PST_EDGES_EX2;
}

static pst_rc largest_relation(void *ctx, const int64_t *source, const int64_t *target,
                               const int32_t *relation, int64_t n)
{
    int64_t *most = ctx;
    (void)source;
    (void)target;
    for (int64_t i = 0; i < n; i++)
        *most = pst_max_i64(*most, relation[i]);
    return PST_OK;
}

pst_rc pst_import_count_relations(struct pst_import_state *im, struct pst_progress *progress)
{
    int64_t most = -1;
    struct pst_problems problems = {.count = 0};
    const struct pst_import_edge_array e = {.a = &im->src[PST_IMPORT_EDGES],
                                            .file = im->spec->source[PST_IMPORT_EDGES],
                                            .shape = PST_EDGES_EX3,
                                            .edges = im->edges,
                                            .limit = {im->vertices, im->vertices},
                                            .relations = INT32_MAX};
    pst_progress_begin(progress, "relations: counting", (uint64_t)im->edges, false);
    pst_rc rc = pst_import_edge_array_read(&e, largest_relation, &most, &problems, progress);
    if (rc == PST_OK)
        pst_progress_end(progress);
    im->relations = most + 1;
    return rc == PST_OK ? pst_problems_result(&problems, "cannot import") : rc;
}

pst_rc pst_import_feed(struct pst_import_state *im, struct pst_csc_builder *csc,
                       struct pst_progress *progress)
{
    const struct pst_array *a = &im->src[PST_IMPORT_EDGES];
    struct counted counted = {csc, (int64_t)json_integer_value(pst_csc_builder_state(csc))};
    const struct pst_import_edge_array e = {
        .a = a,
        .file = im->spec->source[PST_IMPORT_EDGES],
        .shape = layout(im),
        .edges = im->edges,
        .begin = counted.edges,
        .limit = {im->vertices, im->vertices},
        .relations = im->relations,
        .weights = pst_import_has(im, PST_IMPORT_EDGE_WEIGHTS) ? &im->src[PST_IMPORT_EDGE_WEIGHTS] : NULL,
        .times = pst_import_has(im, PST_IMPORT_EDGE_TIMES) ? &im->src[PST_IMPORT_EDGE_TIMES] : NULL};
    if (pst_csc_builder_phase(csc) != PST_CSC_BUILDER_READING)
        return PST_OK;
    pst_progress_begin(progress, "edges: reading", (uint64_t)im->edges, false);
    pst_rc rc = pst_progress_add(progress, (uint64_t)counted.edges);
    if (rc == PST_OK)
        rc = give_sample(&e, csc);
    if (rc == PST_OK)
        rc = pst_import_edge_array_read(&e, add_counted, &counted, &im->problems, progress);
    if (rc == PST_OK)
        rc = pst_csc_builder_checkpoint(csc, json_integer((json_int_t)counted.edges), PST_CSC_BUILDER_LAST);
    if (rc == PST_OK)
        pst_progress_end(progress);
    return rc;
}
