/* sample.c: uniform in-neighbour sampling, of ids or of positions in lists. Without replacement it is Floyd's
 * algorithm (samplers/floyd.h), in which draw s needs only its own random number and the draws before it. So
 * one lane of a vector, or one warp, can do a vertex. Vertices with small fanouts are done in groups, one in
 * each vector lane: all random numbers of a group come at once, and no branch depends on a degree. Other
 * vertices are done one by one, with the same result. */
#include "kernels/kernels.h"
#include "common/util/rng.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/samplers/floyd.h"

enum {
    SCAN_MAX = PST_CPU_LIST_SCAN_MAX,
    LANES = 32,     /* vertices of a group */
    AHEAD_ROW = 64, /* how many vertices ahead indptr is prefetched: two groups take about a memory latency */
};

static int64_t neighbour(const struct pst_csc *graph, int64_t edge)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[edge]
                                   : ((const int64_t *)graph->indices)[edge];
}

/* ---- vertex by vertex ---------------------------------------------------------------------------- */

static bool known(const struct pst_csc *graph, int64_t vertex)
{
    return vertex >= 0 && vertex < graph->vertices;
}

/* Writes the neighbours of one vertex to out. Returns how many, or an error. */
static int64_t sample_vertex(const struct pst_csc *graph, const struct pst_rng_stream *stream, int64_t vertex,
                             int fanout, bool replace, int64_t *out, int64_t room)
{
    if (!known(graph, vertex))
        return PST_E_FORMAT;
    const int64_t begin = graph->indptr[vertex], end = graph->indptr[vertex + 1];
    if (begin < 0 || begin > end || end > graph->edges)
        return PST_E_FORMAT;
    const int64_t taken =
        pst_cpu_list_draw_positions(stream, vertex, end - begin, fanout, replace, out, room);
    for (int64_t s = 0; s < taken; s++) {
        out[s] = neighbour(graph, begin + out[s]);
        if (out[s] < 0 || out[s] >= graph->vertices)
            return PST_E_FORMAT;
    }
    return taken;
}

/* ---- a group of vertices, a lane each ------------------------------------------------------------ */

struct group {
    int n; /* lanes in use; the other lanes have degree 0 */
    int64_t total;
    bool wide;                        /* some degree needs more than 32 bits */
    uint32_t low[LANES], high[LANES]; /* of the vertex */
    uint32_t degree[LANES], taken[LANES];
    int64_t begin[LANES];
    uint32_t pick[SCAN_MAX][LANES]; /* the chosen edges of each lane, counted from its begin */
};

static inline void set_lane(struct group *g, int i, int64_t vertex, int64_t begin, uint64_t degree,
                            int fanout, bool replace)
{
    const bool drawn = replace ? degree > 0 : degree > (uint64_t)fanout;
    g->low[i] = (uint32_t)vertex;
    g->high[i] = (uint32_t)((uint64_t)vertex >> 32);
    g->begin[i] = begin;
    g->degree[i] = (uint32_t)degree;
    g->taken[i] = drawn ? (uint32_t)fanout : (uint32_t)degree;
    g->total += g->taken[i];
}

static void clear_lanes(struct group *g)
{
    for (int i = g->n; i < LANES; i++) {
        g->low[i] = g->high[i] = g->degree[i] = g->taken[i] = 0;
        g->begin[i] = 0;
    }
}

/* Reads where each lane's neighbours are. PST_E_FORMAT: a vertex or its offsets are out of range. */
static pst_rc read_rows(const struct pst_csc *graph, const int64_t *vertices, int64_t ahead, int fanout,
                        bool replace, struct group *g)
{
    g->total = 0;
    uint64_t bad = 0, wide = 0;
    for (int i = 0; i < g->n; i++) {
        const int64_t vertex = vertices[i];
        if (i < ahead)
            __builtin_prefetch(
                &graph->indptr[known(graph, vertices[i + AHEAD_ROW]) ? vertices[i + AHEAD_ROW] : 0]);
        if (!known(graph, vertex))
            return PST_E_FORMAT;
        const int64_t begin = graph->indptr[vertex], end = graph->indptr[vertex + 1];
        const uint64_t degree = (uint64_t)end - (uint64_t)begin;
        bad |= (uint64_t)(begin < 0) | (uint64_t)(begin > end) | (uint64_t)(end > graph->edges);
        wide |= degree >> 32;
        set_lane(g, i, vertex, begin, degree, fanout, replace);
    }
    clear_lanes(g);
    g->wide = wide != 0;
    return bad != 0 ? PST_E_FORMAT : PST_OK;
}

/* The same for lists whose degrees are known and whose edges are counted from 0. */
static pst_rc read_degrees(const int64_t *vertices, const int64_t *degrees, int fanout, bool replace,
                           struct group *g)
{
    g->total = 0;
    uint64_t bad = 0, wide = 0;
    for (int i = 0; i < g->n; i++) {
        const uint64_t degree = (uint64_t)degrees[i];
        bad |= degree >> 63;
        wide |= degree >> 32;
        set_lane(g, i, vertices[i], 0, degree, fanout, replace);
    }
    clear_lanes(g);
    g->wide = wide != 0;
    return bad != 0 ? PST_E_FORMAT : PST_OK;
}

/* pst_rng_draw() of every lane. Word w of lane i is words[w][i]. */
PST_CPU_INLINE void draw_lanes(const struct pst_rng_stream *stream, const struct group *g, uint32_t block,
                               uint32_t words[4][LANES])
{
    uint32_t *restrict w0 = words[0], *restrict w1 = words[1], *restrict w2 = words[2],
                       *restrict w3 = words[3];
    for (int i = 0; i < LANES; i++) {
        w0[i] = g->low[i];
        w1[i] = g->high[i];
        w2[i] = block;
        w3[i] = stream->salt;
    }
    uint32_t key0 = stream->key[0], key1 = stream->key[1];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < LANES; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * w0[i];
            const uint64_t p1 = (uint64_t)0xCD9E8D57u * w2[i];
            w0[i] = (uint32_t)(p1 >> 32) ^ w1[i] ^ key0;
            w2[i] = (uint32_t)(p0 >> 32) ^ w3[i] ^ key1;
            w1[i] = (uint32_t)p1;
            w3[i] = (uint32_t)p0;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* Draw s of every lane from its 64 bits: pst_rng_bounded() for a bound of 32 bits, then Floyd's step. A
 * lane that takes all neighbours takes them in order. */
PST_CPU_INLINE void choose(struct group *g, int s, int fanout, bool replace, const uint32_t *restrict low,
                           const uint32_t *restrict high)
{
    uint32_t chosen[LANES], last[LANES], met[LANES];
    for (int i = 0; i < LANES; i++) {
        last[i] = g->degree[i] - (uint32_t)(fanout - s);
        const uint32_t bound = replace ? g->degree[i] : last[i] + 1;
        const uint64_t carry = ((uint64_t)low[i] * bound) >> 32;
        chosen[i] = (uint32_t)(((uint64_t)high[i] * bound + carry) >> 32);
        met[i] = 0;
    }
    if (!replace) {
        for (int t = 0; t < s; t++) {
            const uint32_t *restrict before = g->pick[t];
            for (int i = 0; i < LANES; i++)
                met[i] |= before[i] == chosen[i];
        }
    }
    for (int i = 0; i < LANES; i++) {
        const uint32_t drawn = met[i] ? last[i] : chosen[i];
        g->pick[s][i] = replace || g->degree[i] > (uint32_t)fanout ? drawn : (uint32_t)s;
    }
}

PST_CPU_CLONES static void draw_group(const struct pst_rng_stream *stream, int fanout, bool replace,
                                      struct group *g)
{
    for (int s = 0; s < fanout; s += 2) {
        uint32_t words[4][LANES];
        draw_lanes(stream, g, (uint32_t)s / 2, words);
        choose(g, s, fanout, replace, words[0], words[1]);
        if (s + 1 < fanout)
            choose(g, s + 1, fanout, replace, words[2], words[3]);
    }
}

/* The edge of a lane. If fewer than `fanout` are taken, later ones are read but not kept. */
static int64_t edge_of(const struct pst_csc *graph, const struct group *g, int s, int lane)
{
    return pst_min_i64(g->begin[lane] + g->pick[s][lane], graph->edges - 1);
}

static void fetch_group(const struct pst_csc *graph, const struct group *g, int fanout)
{
    for (int s = 0; s < fanout; s++) {
        for (int i = 0; i < g->n; i++)
            __builtin_prefetch((const char *)graph->indices + edge_of(graph, g, s, i) * graph->index_bytes);
    }
}

/* Writes the neighbours of the lanes one after the other. Overwrites up to `fanout` numbers behind the
 * last. */
static pst_rc write_group(const struct pst_csc *graph, const struct group *g, int fanout, int32_t *indptr,
                          int64_t used, int64_t *out)
{
    int64_t at = used;
    for (int i = 0; i < g->n; i++) {
        int64_t *to = out + at;
        if (graph->index_bytes == 4) {
            for (int s = 0; s < fanout; s++)
                to[s] = ((const int32_t *)graph->indices)[edge_of(graph, g, s, i)];
        } else {
            for (int s = 0; s < fanout; s++)
                to[s] = ((const int64_t *)graph->indices)[edge_of(graph, g, s, i)];
        }
        at += g->taken[i];
        indptr[i + 1] = (int32_t)at;
    }
    uint64_t bad = 0;
    for (int64_t e = used; e < at; e++)
        bad |= (uint64_t)out[e] >= (uint64_t)graph->vertices;
    return bad != 0 ? PST_E_FORMAT : PST_OK;
}

/* Writes the positions of the chosen edges in each lane's list. */
static void write_positions(const struct group *g, int fanout, int32_t *indptr, int64_t used, int64_t *out)
{
    int64_t at = used;
    for (int i = 0; i < g->n; i++) {
        for (int s = 0; s < fanout; s++)
            out[at + s] = g->pick[s][i];
        at += g->taken[i];
        indptr[i + 1] = (int32_t)at;
    }
}

/* ---- all of them --------------------------------------------------------------------------------- */

struct sampling {
    const struct pst_csc *graph;
    const int64_t
        *degrees; /* of the vertices: positions in their lists are wanted; NULL: ids of neighbours */
    struct pst_rng_stream stream;
    int fanout;
    bool replace;
    int32_t *indptr;
    int64_t *out, limit;
};

static int64_t one(const struct sampling *s, const int64_t *vertices, int64_t i, int64_t used)
{
    if (s->degrees == NULL)
        return sample_vertex(s->graph, &s->stream, vertices[i], s->fanout, s->replace, s->out + used,
                             s->limit - used);
    if (s->degrees[i] < 0)
        return PST_E_FORMAT;
    return pst_cpu_list_draw_positions(&s->stream, vertices[i], s->degrees[i], s->fanout, s->replace,
                                       s->out + used, s->limit - used);
}

static pst_rc one_by_one(const struct sampling *s, const int64_t *vertices, int64_t first, int64_t n,
                         int64_t *used)
{
    for (int64_t i = first; i < first + n; i++) {
        const int64_t got = one(s, vertices, i, *used);
        if (got < 0)
            return (pst_rc)got;
        *used += got;
        s->indptr[i + 1] = (int32_t)*used;
    }
    return PST_OK;
}

static pst_rc read_group(const struct sampling *s, const int64_t *vertices, int64_t i, int64_t n,
                         struct group *g)
{
    g->n = (int)pst_min_i64(LANES, n - i);
    return s->degrees != NULL
               ? read_degrees(vertices + i, s->degrees + i, s->fanout, s->replace, g)
               : read_rows(s->graph, vertices + i, n - i - AHEAD_ROW, s->fanout, s->replace, g);
}

static pst_rc by_groups(const struct sampling *s, const int64_t *vertices, int64_t n, int64_t *used)
{
    struct group g;
    for (int64_t i = 0; i < n; i += LANES) {
        pst_rc rc = read_group(s, vertices, i, n, &g);
        if (rc != PST_OK)
            return rc;
        if (g.wide || *used + g.total + s->fanout > s->limit) {
            rc = one_by_one(s, vertices, i, g.n, used);
        } else {
            draw_group(&s->stream, s->fanout, s->replace, &g);
            if (s->degrees != NULL) {
                write_positions(&g, s->fanout, s->indptr + i, *used, s->out);
            } else {
                fetch_group(s->graph, &g, s->fanout);
                rc = write_group(s->graph, &g, s->fanout, s->indptr + i, *used, s->out);
            }
            *used += g.total;
        }
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

static pst_rc run(const struct sampling *s, const int64_t *vertices, int64_t n, bool grouped)
{
    int64_t used = 0;
    s->indptr[0] = 0;
    if (s->fanout < 1 || s->fanout > SCAN_MAX || !grouped)
        return one_by_one(s, vertices, 0, n, &used);
    return by_groups(s, vertices, n, &used);
}

pst_rc pst_k_sample(struct pst_queue *q, const struct pst_csc *graph, const struct pst_sample_key *key,
                    const int64_t *vertices, int64_t n, int fanout, bool replace, int32_t *indptr,
                    int64_t *out, int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0);
    assert(fanout >= -1 && fanout <= PST_FANOUT_MAX);
    assert(graph->index_bytes == 4 || graph->index_bytes == 8);
    (void)q;
    const struct sampling s = {
        .graph = graph,
        .stream = pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop),
        .fanout = fanout,
        .replace = replace,
        .indptr = indptr,
        .out = out,
        .limit = pst_min_i64(capacity, INT32_MAX)};
    return run(&s, vertices, n, graph->edges > 0);
}

pst_rc pst_k_pick(struct pst_queue *q, const struct pst_sample_key *key, const int64_t *vertices,
                  const int64_t *degrees, int64_t n, int fanout, bool replace, int32_t *indptr,
                  int64_t *positions, int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0 && (degrees != NULL || n == 0));
    assert(fanout >= -1 && fanout <= PST_FANOUT_MAX);
    (void)q;
    if (n == 0) {
        indptr[0] = 0;
        return PST_OK;
    }
    const struct sampling s = {
        .degrees = degrees,
        .stream = pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop),
        .fanout = fanout,
        .replace = replace,
        .indptr = indptr,
        .out = positions,
        .limit = pst_min_i64(capacity, INT32_MAX)};
    return run(&s, vertices, n, true);
}
