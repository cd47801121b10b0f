/* describe.c: degrees, hot rows and feature values of a dataset. */
#include "common/store/dataset/describe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/store/dataset/values.h"

#define TALLY_DEGREES (1 << 20) /* below it vertices are counted by degree; few are above */
#define EDGE_BLOCK (1 << 22)    /* edges between two looks at the progress */
#define READ_BYTES (4u << 20)   /* of features at a time */

const double pst_hot_shares[PST_HOT_SHARES] = {0.01, 0.02, 0.05, 0.10, 0.20, 0.50};
const double pst_hot_targets[PST_HOT_TARGETS] = {0.5, 0.8, 0.9};

/* ---- degrees ---- */

/* How many vertices have each degree: exact, in memory that does not grow with the vertices. */
struct tally {
    int64_t *count; /* TALLY_DEGREES */
    int64_t *large; /* the degrees above, as there are at most edges / TALLY_DEGREES of */
    int64_t larges, room, vertices, edges;
};

static pst_rc tally_init(struct tally *t, int64_t edges)
{
    *t = (struct tally){.room = edges / TALLY_DEGREES + 1};
    t->count = calloc(TALLY_DEGREES, sizeof *t->count);
    t->large = calloc((size_t)t->room, sizeof *t->large);
    return t->count != NULL && t->large != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot count degrees");
}

static void tally_release(struct tally *t)
{
    free(t->count);
    free(t->large);
}

static void tally_add(struct tally *t, int64_t degree)
{
    t->vertices++;
    t->edges += degree;
    if (degree < TALLY_DEGREES)
        t->count[degree]++;
    else if (t->larges < t->room)
        t->large[t->larges++] = degree;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Degrees from the largest down: gives the next one and how many vertices have it; false when none is left.
 */
struct descent {
    const struct tally *t;
    int64_t large, at;
};

static bool next_degree(struct descent *d, int64_t *degree, int64_t *vertices)
{
    if (d->large > 0) {
        *degree = d->t->large[--d->large];
        *vertices = 1;
        return true;
    }
    while (d->at > 0)
        if (d->t->count[--d->at] > 0) {
            *degree = d->at;
            *vertices = d->t->count[d->at];
            return true;
        }
    return false;
}

static struct descent descend(struct tally *t)
{
    qsort(t->large, (size_t)t->larges, sizeof *t->large, compare);
    return (struct descent){.t = t, .large = t->larges, .at = TALLY_DEGREES};
}

static void summarise(struct tally *t, struct pst_describe_degrees *out)
{
    int64_t degree, n, seen = 0, high = t->vertices / 2, low = (t->vertices - 1) / 2; /* from the top */
    int64_t middle[2] = {0, 0};
    *out = (struct pst_describe_degrees){.most = -1};
    for (struct descent d = descend(t); next_degree(&d, &degree, &n); seen += n) {
        out->most = out->most < 0 ? degree : out->most;
        out->least = degree;
        out->bucket[degree == 0 ? 0 : 64 - __builtin_clzll((unsigned long long)degree)] += n;
        middle[0] = low >= seen && low < seen + n ? degree : middle[0];
        middle[1] = high >= seen && high < seen + n ? degree : middle[1];
    }
    out->most = pst_max_i64(out->most, 0);
    out->median = 0.5 * (double)(middle[0] + middle[1]);
    out->mean = t->vertices > 0 ? (double)t->edges / (double)t->vertices : 0;
}

pst_rc pst_describe_degrees(const struct pst_dataset *ds, struct pst_describe_degrees *out)
{
    const int64_t *indptr = ds->indptr.map;
    struct tally t;
    pst_rc rc = tally_init(&t, ds->edges);
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++) {
        if (indptr[v + 1] < indptr[v] || indptr[v] < 0 || indptr[v + 1] > ds->edges)
            rc =
                pst_fail(PST_E_FORMAT,
                         "%s: the offsets decrease after entry %" PRId64 " (`penstock verify` shows details)",
                         ds->indptr.path, v);
        else
            tally_add(&t, indptr[v + 1] - indptr[v]);
    }
    if (rc == PST_OK)
        summarise(&t, out);
    tally_release(&t);
    return rc;
}

/* ---- hot rows ---- */

static pst_rc count_sources(const struct pst_dataset *ds, uint32_t *count, struct pst_progress *progress)
{
    const bool narrow = ds->indices.dtype == PST_I32;
    pst_rc rc = PST_OK;
    pst_progress_begin(progress, "neighbours", (uint64_t)ds->edges, false);
    for (int64_t first = 0; first < ds->edges && rc == PST_OK; first += EDGE_BLOCK) {
        const int64_t end = pst_min_i64(ds->edges, first + EDGE_BLOCK);
        for (int64_t e = first; e < end; e++) {
            const int64_t source =
                narrow ? ((const int32_t *)ds->indices.map)[e] : ((const int64_t *)ds->indices.map)[e];
            if (source < 0 || source >= ds->vertices)
                return pst_fail(PST_E_FORMAT, "%s: entry %" PRId64 " is %" PRId64 ": expected 0 to %" PRId64,
                                ds->indices.path, e, source, ds->vertices - 1);
            count[source] += count[source] < UINT32_MAX;
        }
        rc = pst_progress_add(progress, (uint64_t)(end - first));
    }
    if (rc == PST_OK)
        pst_progress_end(progress);
    return rc;
}

static void find_hot(struct tally *t, struct pst_describe_hotness *out)
{
    double vertices = (double)t->vertices, edges = (double)t->edges, rows = 0, served = 0;
    int64_t degree, n;
    int share = 0, target = 0;
    for (struct descent d = descend(t); t->edges > 0 && next_degree(&d, &degree, &n);) {
        const double each = (double)degree;
        for (; share < PST_HOT_SHARES && pst_hot_shares[share] * vertices <= rows + (double)n; share++)
            out->served[share] = (served + (pst_hot_shares[share] * vertices - rows) * each) / edges;
        for (; target < PST_HOT_TARGETS && pst_hot_targets[target] * edges <= served + (double)n * each;
             target++)
            out->rows_for[target] = (rows + (pst_hot_targets[target] * edges - served) / each) / vertices;
        rows += (double)n;
        served += (double)n * each;
    }
}

pst_rc pst_describe_hotness(const struct pst_dataset *ds, struct pst_describe_hotness *out,
                            struct pst_progress *progress)
{
    struct tally t = {.vertices = 0};
    uint32_t *count = calloc((size_t)ds->vertices + 1, sizeof *count);
    *out = (struct pst_describe_hotness){.served = {0}};
    pst_rc rc = count != NULL ? tally_init(&t, ds->edges)
                              : pst_fail(PST_E_NOMEM,
                                         "out of memory: cannot count the neighbours of %" PRId64 " vertices",
                                         ds->vertices);
    if (rc == PST_OK)
        rc = count_sources(ds, count, progress);
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++)
        tally_add(&t, count[v]);
    if (rc == PST_OK) {
        summarise(&t, &out->out);
        find_hot(&t, out);
    }
    tally_release(&t);
    free(count);
    return rc;
}

/* ---- features ---- */

static void take_row(struct pst_feature_stats *s, const void *row, enum pst_dtype dtype, int64_t dim,
                     double *sum)
{
    double part = 0;
    for (int64_t j = 0; j < dim; j++) {
        const double x = (double)pst_feature_value(row, dtype, j);
        if (!isfinite(x)) {
            s->not_finite++;
            continue;
        }
        s->zeros += x == 0;
        s->min = x < s->min ? x : s->min;
        s->max = x > s->max ? x : s->max;
        part += x;
    }
    *sum += part;
    s->values += dim;
    s->rows++;
}

/* Which rows are read: `taken` of all blocks of `block` rows; the first, the last, and between, evenly. */
struct sample {
    int64_t rows, block, blocks, taken;
};

static struct sample choose(int64_t rows, uint64_t stride_bytes, bool whole)
{
    struct sample s = {.rows = rows, .block = pst_max_i64(1, (int64_t)(READ_BYTES / stride_bytes))};
    const uint64_t block_bytes = (uint64_t)s.block * stride_bytes;
    s.blocks = (rows + s.block - 1) / s.block;
    s.taken = whole
                  ? s.blocks
                  : pst_min_i64(s.blocks, pst_max_i64(1, (int64_t)(PST_DESCRIBE_SAMPLE_BYTES / block_bytes)));
    return s;
}

static pst_rc read_sample(const struct pst_row_files *files, const struct sample *s, int64_t dim,
                          struct pst_feature_stats *out, struct pst_progress *progress)
{
    const uint64_t stride_bytes = files->stride_bytes;
    const uint64_t block_bytes = (uint64_t)s->block * stride_bytes;
    char *room = calloc(1, block_bytes);
    double sum = 0;
    pst_rc rc = room != NULL
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRIu64 " bytes of features",
                               block_bytes);
    pst_progress_begin(progress, "features", (uint64_t)s->taken * block_bytes, true);
    for (int64_t k = 0; k < s->taken && rc == PST_OK; k++) {
        const int64_t which = s->taken > 1 ? (int64_t)((__int128)k * (s->blocks - 1) / (s->taken - 1)) : 0;
        const int64_t first = which * s->block, n = pst_min_i64(s->block, s->rows - first);
        rc = pst_row_files_read(files, first, n, room);
        for (int64_t i = 0; i < n && rc == PST_OK; i++)
            take_row(out, room + (uint64_t)i * stride_bytes, files->file->dtype, dim, &sum);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, block_bytes);
    }
    if (rc == PST_OK)
        pst_progress_end(progress);
    const int64_t finite = out->values - out->not_finite;
    out->mean = finite > 0 ? sum / (double)finite : 0;
    if (finite == 0)
        out->min = out->max = 0;
    free(room);
    return rc;
}

pst_rc pst_describe_features(const struct pst_array *features, int files, int64_t rows, int64_t dim,
                             uint64_t stride_bytes, bool whole, struct pst_feature_stats *out,
                             struct pst_progress *progress)
{
    const struct sample sample = choose(rows, stride_bytes, whole);
    *out =
        (struct pst_feature_stats){.min = INFINITY, .max = -INFINITY, .whole = sample.taken == sample.blocks};
    struct pst_row_files open;
    pst_rc rc = pst_row_files_open(&open, features, files, stride_bytes);
    if (rc != PST_OK)
        return rc;
    rc = read_sample(&open, &sample, dim, out, progress);
    pst_row_files_close(&open);
    return rc;
}
