/* hotness.c: the expectation of hotness, and scores from files. */
#include "stages/lib/plan/hotness.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/store.h"
#include "common/util/hugepage.h"
#include "stages/lib/plan/hotness_edges.h"
#include "stages/lib/plan/hotness_impl.h"

#define READ_BYTES ((uint64_t)4 << 20) /* of the edges, at a time: a drive's full rate */
#define AHEAD 64                       /* entries ahead whose sums are prefetched */
#define SUMS_MIN 4096 /* vertices of a pass, at least: a smaller limit than this does not save memory */

const char *pst_hotness_source_name(enum pst_hotness_source source)
{
    static const char *const names[] = {"auto",   "analytic", "presample", "file",
                                        "oracle", "pagerank", "degree",    "random"};
    return names[source];
}

/* ---- the expectation ------------------------------------------------------------------------------ */

/* One pass over the lists: adds the logarithms of the factors of the vertices first to first + n - 1. */
struct pass {
    const struct pst_hotness_input *in;
    int hop;
    const float *p; /* p_0 to p_hop of all vertices */
    int64_t first, n;
    double *sums;
    struct pst_hotness_edges *edges;
};

static pst_rc damaged(int64_t v, const char *what)
{
    return pst_fail(PST_E_FORMAT,
                    "vertex %" PRId64 " has %s; the topology is damaged (`penstock verify` shows details)", v,
                    what);
}

/* *factor = log(1 - r(v)) for a neighbour that `copies` of the entries of v's list are. */
static pst_rc log_factor(const struct pass *pass, int64_t v, int64_t copies, double *factor)
{
    const struct pst_hotness_input *in = pass->in;
    const int64_t vertices = in->graph->vertices, degree = in->graph->indptr[v + 1] - in->graph->indptr[v];
    double before = 0, waiting = 0; /* waiting: v is in the batch, and its draws so far lack the neighbour */
    for (int h = 0; h <= pass->hop; h++) {
        const double p = (double)pass->p[h * vertices + v];
        const double q = in->fanout[h] == 0 ? 0 : in->keep(in->state, degree, copies, in->fanout[h]);
        if (!(q >= 0 && q <= 1))
            return pst_fail(PST_E_ARG,
                            "the sampling algorithm says that it keeps a neighbour of vertex %" PRId64
                            " (degree %" PRId64 ") with probability %g; expected 0 to 1",
                            v, degree, q);
        waiting = (waiting + p - before) * (1 - q);
        before = p;
    }
    *factor = log1p(-fmax(0, before - waiting));
    return PST_OK;
}

/* Finds the end of the equal entries that begin with entry e of a list that ends at `end`. */
static pst_rc find_equal(const struct pass *pass, int64_t e, int64_t end, int64_t *u, int64_t *next)
{
    int64_t other;
    pst_rc rc = pst_hotness_edges_get(pass->edges, e, u);
    for (*next = e + 1; *next < end && rc == PST_OK; ++*next) {
        rc = pst_hotness_edges_get(pass->edges, *next, &other);
        if (rc == PST_OK && other != *u)
            break;
    }
    return rc;
}

/* Adds `factor` to the neighbours of v from entry e on. Returns the entry before which it stopped: at the end
 * of the window, at a neighbour that does not exist, or at two equal ones. entry_bytes is a constant in each
 * call. */
static inline __attribute__((always_inline)) int64_t
spread_plain(const struct pass *pass, int64_t v, int64_t e, int64_t end, double factor, int entry_bytes)
{
    const struct pst_hotness_edges *edges = pass->edges;
    const int64_t stop = e < edges->first ? e : pst_min_i64(end, edges->end);
    const int64_t vertices = pass->in->graph->vertices;
    int64_t u = e < stop ? pst_hotness_entry(edges, e, entry_bytes) : 0, after;
    for (; e < stop; e++, u = after) {
        after = e + 1 < edges->end ? pst_hotness_entry(edges, e + 1, entry_bytes) : u;
        if ((e + 1 < end && after == u) || u < 0 || u >= vertices)
            break;
        if (e + AHEAD < edges->end) {
            const int64_t ahead = pst_hotness_entry(edges, e + AHEAD, entry_bytes) - pass->first;
            if ((uint64_t)ahead < (uint64_t)pass->n)
                __builtin_prefetch(pass->sums + ahead, 1);
        }
        if (u != v && (uint64_t)(u - pass->first) < (uint64_t)pass->n)
            pass->sums[u - pass->first] += factor;
    }
    return e;
}

/* Adds v's factor to each of its neighbours. Equal entries of a list are beside each other. */
static pst_rc spread(const struct pass *pass, int64_t v)
{
    const struct pst_csc *graph = pass->in->graph;
    const int64_t end = graph->indptr[v + 1];
    double single, factor;
    pst_rc rc = log_factor(pass, v, 1, &single);
    for (int64_t e = graph->indptr[v], next, u; e < end && rc == PST_OK; e = next) {
        next = graph->index_bytes == 4 ? spread_plain(pass, v, e, end, single, 4)
                                       : spread_plain(pass, v, e, end, single, 8);
        if (next > e)
            continue;
        rc = find_equal(pass, e, end, &u, &next);
        if (rc != PST_OK)
            return rc;
        if (u < 0 || u >= graph->vertices)
            return damaged(v, "a neighbour that does not exist");
        if (u == v || u < pass->first || u - pass->first >= pass->n)
            continue;
        factor = single;
        if (next - e > 1)
            rc = log_factor(pass, v, next - e, &factor);
        pass->sums[u - pass->first] += factor;
    }
    return rc;
}

static pst_rc spread_all(const struct pass *pass)
{
    const struct pst_csc *graph = pass->in->graph;
    const float *p = pass->p + pass->hop * graph->vertices;
    for (int64_t v = 0; v < graph->vertices; v++) {
        const int64_t begin = graph->indptr[v], end = graph->indptr[v + 1];
        if (begin < 0 || begin > end || end > graph->edges)
            return damaged(v, "a list that is outside of the edges");
        if (p[v] <= 0 || begin == end)
            continue;
        const pst_rc rc = spread(pass, v);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

/* Computes p_{hop+1} from p_0 to p_hop, in ranges of vertices whose sums fit the memory. */
static pst_rc next_hop(const struct pst_hotness_input *in, struct pst_hotness_edges *edges, int hop, float *p,
                       double *sums, int64_t room)
{
    const int64_t vertices = in->graph->vertices;
    const float *now = p + hop * vertices;
    float *next = p + (hop + 1) * vertices;
    memcpy(next, now, (size_t)vertices * sizeof *p);
    for (int64_t first = 0; first < vertices && in->fanout[hop] != 0; first += room) {
        const struct pass pass = {in, hop, p, first, pst_min_i64(room, vertices - first), sums, edges};
        memset(sums, 0, (size_t)pass.n * sizeof *sums);
        const pst_rc rc = spread_all(&pass);
        if (rc != PST_OK)
            return rc;
        for (int64_t v = first; v < first + pass.n; v++)
            if (sums[v - first] < 0)
                next[v] = fmaxf(now[v], (float)-expm1(log1p(-(double)p[v]) + sums[v - first]));
    }
    return PST_OK;
}

/* Probabilities to numbers of batches. */
static void to_batches(const struct pst_hotness_input *in, float *scores)
{
    const int64_t vertices = in->graph->vertices;
    for (int h = 0; h <= in->hops; h++) {
        const double times = h < in->hops && in->fanout[h] == 0 ? 0 : (double)in->batches;
        float *row = scores + h * vertices;
        for (int64_t v = 0; v < vertices; v++)
            row[v] = (float)((double)row[v] * times);
    }
}

static pst_rc all_hops(const struct pst_hotness_input *in, float *scores, double *sums, int64_t room)
{
    const int64_t vertices = in->graph->vertices;
    struct pst_hotness_edges edges;
    pst_rc rc = pst_hotness_edges_open(&edges, in->graph, in->file, READ_BYTES);
    memset(scores, 0, (size_t)vertices * sizeof *scores);
    for (int64_t i = 0; i < in->nseeds; i++)
        scores[in->seeds[i]] = (float)(1 / (double)in->batches);
    for (int h = 0; h < in->hops && rc == PST_OK; h++)
        rc = next_hop(in, &edges, h, scores, sums, room);
    pst_hotness_edges_close(&edges);
    return rc;
}

pst_rc pst_hotness_analytic(const struct pst_hotness_input *in, float *scores)
{
    const int64_t vertices = in->graph->vertices;
    const int64_t fit = (int64_t)(in->memory_bytes / sizeof(double));
    const int64_t room = pst_min_i64(vertices, pst_max_i64(fit, SUMS_MIN));
    double *sums = pst_hugepage_alloc((uint64_t)room * sizeof *sums);
    if (sums == NULL)
        return pst_fail(PST_E_NOMEM,
                        "out of memory: cannot allocate the sums of %" PRId64
                        " vertices to compute their hotness; lower hotness_memory",
                        room);
    const pst_rc rc = all_hops(in, scores, sums, room);
    free(sums);
    if (rc == PST_OK)
        to_batches(in, scores);
    return rc;
}

void pst_hotness_scale(float *row, int64_t vertices, double total, double most)
{
    double sum = 0;
    for (int64_t v = 0; v < vertices; v++)
        sum += (double)row[v];
    const double factor = sum > 0 ? total / sum : 0;
    for (int64_t v = 0; v < vertices; v++)
        row[v] = (double)row[v] * factor < most ? (float)((double)row[v] * factor) : (float)most;
}

/* ---- files --------------------------------------------------------------------------------------- */

static double value_at(const struct pst_array *array, int64_t i)
{
    if (array->dtype == PST_F32)
        return (double)((const float *)array->map)[i];
    if (array->dtype == PST_F64)
        return ((const double *)array->map)[i];
    return (double)pst_dtype_int_at(array->map, array->dtype, i);
}

static pst_rc check_shape(const struct pst_array *array, int hops, int64_t vertices)
{
    const bool one = array->rank == 1 && array->shape[0] == vertices;
    const bool all = array->rank == 2 && array->shape[0] == hops + 1 && array->shape[1] == vertices;
    char found[64];
    if (one || all)
        return PST_OK;
    if (array->rank == 1)
        (void)snprintf(found, sizeof found, "(%" PRId64 ",)", array->shape[0]);
    else
        (void)snprintf(found, sizeof found, "(%" PRId64 ", %" PRId64 ")", array->shape[0], array->shape[1]);
    return pst_fail(PST_E_ARG,
                    "%s has shape %s; expected (%d, %" PRId64 "), a row for each of %d hops and one for "
                    "features, or (%" PRId64 ",), a score for each vertex",
                    array->path, found, hops + 1, vertices, hops, vertices);
}

static pst_rc take(const struct pst_array *array, int hops, int64_t vertices, float *scores)
{
    const int64_t rows = array->rank == 1 ? 1 : hops + 1;
    for (int64_t i = 0; i < rows * vertices; i++) {
        const double value = value_at(array, i);
        scores[i] = (float)value + 0.0F; /* -0 becomes 0 */
        if (!(value >= 0) || !isfinite(scores[i]))
            return pst_fail(PST_E_ARG,
                            "%s: the score of vertex %" PRId64 " in row %" PRId64
                            " is %g; expected a number from 0 to 3e38",
                            array->path, i % vertices, i / vertices, value);
    }
    for (int64_t row = rows; row <= hops; row++)
        memcpy(scores + row * vertices, scores, (size_t)vertices * sizeof *scores);
    return PST_OK;
}

pst_rc pst_hotness_read(const char *path, int hops, int64_t vertices, float *scores,
                        char id[PST_HOTNESS_ID_BYTES])
{
    struct pst_array array;
    pst_rc rc = pst_array_open(&array, path);
    if (rc != PST_OK)
        return rc;
    rc = check_shape(&array, hops, vertices);
    if (rc == PST_OK && (array.dtype == PST_F16 || array.dtype == PST_BF16 || array.dtype == PST_BOOL))
        rc = pst_fail(PST_E_ARG, "%s has scores of type %s; expected float32, float64 or integers", path,
                      pst_dtype_name(array.dtype));
    if (rc == PST_OK)
        rc = pst_array_map(&array);
    if (rc == PST_OK)
        rc = take(&array, hops, vertices, scores);
    if (rc == PST_OK)
        (void)snprintf(id, PST_HOTNESS_ID_BYTES, "%016" PRIx64,
                       (uint64_t)XXH3_64bits(array.map, array.data_bytes));
    pst_array_close(&array);
    return rc;
}

/* ---- what a cache gets --------------------------------------------------------------------------- */

double pst_hotness_hit_rate(const float *scores, int64_t vertices, const int64_t *cache, int64_t cached)
{
    double all = 0, hits = 0;
    for (int64_t v = 0; v < vertices; v++)
        all += (double)scores[v];
    for (int64_t i = 0; i < cached; i++)
        hits += (double)scores[cache[i]];
    return all > 0 ? fmin(1, hits / all) : 0;
}

/* ---- counts --------------------------------------------------------------------------------------- */

float *pst_hotness_of_counts(uint32_t *counts, int64_t n, int64_t epochs)
{
    char *values = (char *)counts;
    for (int64_t i = 0; i < n; i++) {
        uint32_t count;
        memcpy(&count, values + i * (int64_t)sizeof count, sizeof count);
        const float score = (float)count / (float)epochs;
        memcpy(values + i * (int64_t)sizeof count, &score, sizeof score);
    }
    return (float *)(void *)values;
}

uint32_t *pst_hotness_to_counts(float *scores, int64_t n, int64_t epochs)
{
    char *values = (char *)scores;
    for (int64_t i = 0; i < n; i++) {
        float score;
        memcpy(&score, values + i * (int64_t)sizeof score, sizeof score);
        const uint32_t count = (uint32_t)lrintf(score * (float)epochs);
        memcpy(values + i * (int64_t)sizeof count, &count, sizeof count);
    }
    return (uint32_t *)(void *)values;
}
