/* sample.c: uniform in-neighbour sampling (kernels.h). Without replacement by Floyd's algorithm (Bentley &
 * Floyd, "A sample of brilliance", CACM 30(9), 1987): exactly `fanout` draws whatever the degree, and slot s
 * needs nothing but its own random number and the slots before it, so a thread or a warp can do a vertex. */
#include "../kernels.h"
#include "../rng.h"

enum {
    SCAN_MAX = 32,  /* above this many slots a hash set beats scanning the slots before */
    AHEAD_ROW = 16, /* vertices ahead whose indptr is fetched: a memory latency's worth of work */
    AHEAD_EDGE = 8, /* vertices ahead whose first neighbours are fetched */
};

static int64_t neighbour(const struct pst_csc *graph, int64_t edge)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[edge]
                                   : ((const int64_t *)graph->indices)[edge];
}

/* The number of slot s; the draw of a pair of slots is kept between calls. */
static uint64_t slot_bits(const struct pst_stream *stream, int64_t vertex, int slot, struct pst_philox *pair)
{
    if (slot % 2 == 0)
        *pair = pst_draw(stream, (uint64_t)vertex, (uint32_t)(slot / 2));
    return pst_draw_u64(pair, slot % 2);
}

static void draw_repeats(const struct pst_stream *stream, int64_t vertex, int64_t degree, int k, int64_t *pos)
{
    struct pst_philox pair;
    for (int s = 0; s < k; s++)
        pos[s] = (int64_t)pst_bounded(slot_bits(stream, vertex, s, &pair), (uint64_t)degree);
}

static void draw_few(const struct pst_stream *stream, int64_t vertex, int64_t degree, int k, int64_t *pos)
{
    struct pst_philox pair;
    for (int s = 0; s < k; s++) {
        const int64_t last = degree - k + s;
        int64_t pick = (int64_t)pst_bounded(slot_bits(stream, vertex, s, &pair), (uint64_t)last + 1);
        for (int i = 0; i < s; i++) {
            if (pos[i] == pick) {
                pick = last;
                break;
            }
        }
        pos[s] = pick;
    }
}

/* True if value was there; puts it there if not. Empty places hold -1. */
static bool set_add(int64_t *set, uint64_t mask, int64_t value)
{
    uint64_t at = ((uint64_t)value * 0x9E3779B97F4A7C15ull) >> 40;
    for (;; at++) {
        if (set[at & mask] == value)
            return true;
        if (set[at & mask] < 0)
            break;
    }
    set[at & mask] = value;
    return false;
}

static void draw_many(const struct pst_stream *stream, int64_t vertex, int64_t degree, int k, int64_t *pos)
{
    int64_t set[2 * PST_FANOUT_MAX];
    uint64_t size = 1;
    while (size < 2 * (uint64_t)k)
        size *= 2;
    for (uint64_t i = 0; i < size; i++)
        set[i] = -1;
    struct pst_philox pair;
    for (int s = 0; s < k; s++) {
        const int64_t last = degree - k + s;
        pos[s] = (int64_t)pst_bounded(slot_bits(stream, vertex, s, &pair), (uint64_t)last + 1);
        if (set_add(set, size - 1, pos[s])) {
            pos[s] = last;
            (void)set_add(set, size - 1, last);
        }
    }
}

static bool known(const struct pst_csc *graph, int64_t vertex)
{
    return vertex >= 0 && vertex < graph->vertices;
}

static void prefetch(const struct pst_csc *graph, const int64_t *vertices, int64_t n, int64_t i)
{
    if (i + AHEAD_ROW < n && known(graph, vertices[i + AHEAD_ROW]))
        __builtin_prefetch(&graph->indptr[vertices[i + AHEAD_ROW]]);
    if (i + AHEAD_EDGE < n && known(graph, vertices[i + AHEAD_EDGE])) {
        const int64_t edge = graph->indptr[vertices[i + AHEAD_EDGE]];
        if (edge >= 0 && edge < graph->edges)
            __builtin_prefetch((const char *)graph->indices + edge * graph->index_bytes);
    }
}

/* Writes the neighbours of one vertex to out and returns how many, or an error. */
static int64_t sample_vertex(const struct pst_csc *graph, const struct pst_stream *stream, int64_t vertex,
                             int fanout, bool replace, int64_t *out, int64_t room)
{
    if (!known(graph, vertex))
        return PST_E_FORMAT;
    const int64_t begin = graph->indptr[vertex], end = graph->indptr[vertex + 1];
    if (begin < 0 || begin > end || end > graph->edges)
        return PST_E_FORMAT;
    const int64_t degree = end - begin;
    const bool all = fanout < 0 || (!replace && degree <= fanout);
    const int64_t taken = degree == 0 ? 0 : all ? degree : fanout;
    if (taken > room)
        return PST_E_LIMIT;
    if (taken == 0)
        return 0;
    if (all) {
        for (int64_t s = 0; s < taken; s++)
            out[s] = s;
    } else if (replace) {
        draw_repeats(stream, vertex, degree, fanout, out);
    } else if (fanout <= SCAN_MAX) {
        draw_few(stream, vertex, degree, fanout, out);
    } else {
        draw_many(stream, vertex, degree, fanout, out);
    }
    for (int64_t s = 0; s < taken; s++) {
        out[s] = neighbour(graph, begin + out[s]);
        if (out[s] < 0 || out[s] >= graph->vertices)
            return PST_E_FORMAT;
    }
    return taken;
}

pst_rc pst_k_sample(struct pst_queue *q, const struct pst_csc *graph, const struct pst_sample_key *key,
                    const int64_t *vertices, int64_t n, int fanout, bool replace, int32_t *indptr,
                    int64_t *out, int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0);
    assert(fanout >= -1 && fanout <= PST_FANOUT_MAX);
    assert(graph->index_bytes == 4 || graph->index_bytes == 8);
    (void)q;
    const struct pst_stream stream =
        pst_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop);
    const int64_t limit = pst_min_i64(capacity, INT32_MAX);
    int64_t used = 0;
    indptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        prefetch(graph, vertices, n, i);
        const int64_t got =
            sample_vertex(graph, &stream, vertices[i], fanout, replace, out + used, limit - used);
        if (got < 0)
            return (pst_rc)got;
        used += got;
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}
