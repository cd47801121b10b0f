/* hotness_expected.c: the expectation of hotness.
 *
 * A pass walks over the lists and adds a number to the sum of each neighbour. Neighbours are anywhere, and a
 * step to another place in memory for each edge would take most of the time. So the walk only notes what to
 * add: each region of the sums has a bucket. When a bucket is full, a team of threads empties all of them,
 * one region after the other, while the walk fills other buckets. A sum gets its numbers in the order of the
 * walk, for any number of threads. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/memory.h"
#include "common/util/team.h"
#include "stages/lib/plan/hotness.h"
#include "stages/lib/plan/hotness_edges.h"

#define READ_BYTES ((uint64_t)4 << 20) /* of the edges, at a time: a drive's full rate */
#define SUMS_MIN 4096   /* vertices of a pass, at least: a smaller limit than this does not save memory */
#define REGIONS_MAX 128 /* the walk writes to all buckets in turn, so their ends must stay in cache */
#define REGION_BITS 19  /* vertices of a region, at least: 4 MiB of sums */
#define BUCKET_ITEMS (128 << 10) /* of a region: two for each cache line of 4 MiB of sums */
#define FACTORS_MAX (1 << 20)    /* that buckets refer to */
#define AHEAD 16                 /* items ahead whose sums are prefetched, or whose place is */
#define CHUNK (64 << 10)         /* vertices of a task */

/* The buckets that the walk fills, or that the team empties. An item has the place of its sum in the region
 * in its upper bits, and the place of its factor in the block of factors in its lower bits. */
struct notes {
    const struct pass *pass;
    uint32_t *items; /* BUCKET_ITEMS for each region */
    uint32_t in_bucket[REGIONS_MAX];
    double *factors;
    uint32_t nfactors;
    uint32_t (*ends)[REGIONS_MAX]; /* for each block of factors but the last, in_bucket at its end */
};

/* One pass over the lists: adds the logarithms of the factors of the vertices first to first + n - 1. */
struct pass {
    const struct pst_hotness_input *in;
    struct pst_hotness_edges edges;
    struct pst_team *team;
    int hop;
    float *p; /* p_0 to p_{hop+1} of all vertices */
    int64_t first, n, regions;
    int shift;       /* the region of sum i is i >> shift */
    int factor_bits; /* a block has 1 << factor_bits factors */
    double *sums;
    struct notes notes[2]; /* the walk's, and the team's */
    bool adding;           /* the team works */
};

static pst_rc damaged(int64_t v, const char *what)
{
    return pst_fail(PST_E_FORMAT,
                    "vertex %" PRId64 " has %s; the topology is damaged (`penstock verify` shows details)", v,
                    what);
}

/* ---- adding -------------------------------------------------------------------------------------- */

/* Reads the sums of a region in their order. If a bucket has numbers for most cache lines of its region, this
 * takes less time than a cache miss for each number. */
static void load_region(const struct pass *pass, int64_t region)
{
    const int64_t begin = region << pass->shift, end = pst_min_i64(pass->n, (region + 1) << pass->shift);
    for (int64_t i = begin; i < end; i += PST_CACHE_LINE / (int64_t)sizeof *pass->sums)
        (void)*(const volatile double *)(pass->sums + i);
}

/* Empties the bucket of a region. */
static void add_region(void *arg, int64_t region, int worker)
{
    (void)worker;
    const struct notes *notes = arg;
    const struct pass *pass = notes->pass;
    const uint32_t *items = notes->items + region * BUCKET_ITEMS, n = notes->in_bucket[region];
    const uint32_t in_block = (1U << pass->factor_bits) - 1,
                   last = (notes->nfactors - 1) >> pass->factor_bits;
    double *sums = pass->sums + (region << pass->shift);
    if (n >= BUCKET_ITEMS / 4)
        load_region(pass, region);
    for (uint32_t block = 0, i = 0; i < n; block++) {
        const double *factors = notes->factors + ((size_t)block << pass->factor_bits);
        const uint32_t end = block < last ? notes->ends[block][region] : n;
        for (; i < end; i++) {
            if (i + AHEAD < n)
                __builtin_prefetch(sums + (items[i + AHEAD] >> pass->factor_bits), 1);
            sums[items[i] >> pass->factor_bits] += factors[items[i] & in_block];
        }
    }
}

static void end_adding(struct pass *pass)
{
    if (pass->adding)
        pst_team_end(pass->team);
    pass->adding = false;
}

/* Hands the walk's buckets to the team, when that has emptied the others, which the walk gets. They begin
 * with the last factor, because its list may go on. */
static void hand_over(struct pass *pass)
{
    end_adding(pass);
    const struct notes full = pass->notes[0];
    pass->notes[0] = pass->notes[1];
    pass->notes[1] = full;
    memset(pass->notes[0].in_bucket, 0, sizeof full.in_bucket);
    pass->notes[0].nfactors = full.nfactors > 0;
    if (full.nfactors > 0)
        pass->notes[0].factors[0] = full.factors[full.nfactors - 1];
    pst_team_begin(pass->team, add_region, &pass->notes[1], pass->regions);
    pass->adding = true;
}

/* The factor of what is noted from now on. */
static void use_factor(struct pass *pass, double factor)
{
    struct notes *notes = &pass->notes[0];
    if (notes->nfactors == FACTORS_MAX)
        hand_over(pass);
    const uint32_t blocks = notes->nfactors >> pass->factor_bits;
    if (blocks > 0 && blocks << pass->factor_bits == notes->nfactors)
        memcpy(notes->ends[blocks - 1], notes->in_bucket, sizeof notes->in_bucket);
    notes->factors[notes->nfactors++] = factor;
}

/* Notes to add the last factor to sum `at`. False: its bucket is full. */
static inline __attribute__((always_inline)) bool note(struct pass *pass, uint64_t at)
{
    struct notes *notes = &pass->notes[0];
    uint32_t *n = &notes->in_bucket[at >> pass->shift];
    if (*n == BUCKET_ITEMS)
        return false;
    uint32_t *item = notes->items + (at >> pass->shift) * BUCKET_ITEMS + (*n)++;
    __builtin_prefetch(item + AHEAD, 1);
    *item = (uint32_t)(at << pass->factor_bits) | ((notes->nfactors - 1) & ((1U << pass->factor_bits) - 1));
    return true;
}

/* ---- the walk ------------------------------------------------------------------------------------ */

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
static pst_rc find_equal(struct pass *pass, int64_t e, int64_t end, int64_t *u, int64_t *next)
{
    int64_t other;
    pst_rc rc = pst_hotness_edges_get(&pass->edges, e, u);
    for (*next = e + 1; *next < end && rc == PST_OK; ++*next) {
        rc = pst_hotness_edges_get(&pass->edges, *next, &other);
        if (rc == PST_OK && other != *u)
            break;
    }
    return rc;
}

/* Notes the last factor for the neighbours of v from entry e on. Returns the entry before which it stopped:
 * at the end of the window, at a full bucket, at a neighbour that does not exist, or at two equal ones.
 * entry_bytes is a constant in each call. */
static inline __attribute__((always_inline)) int64_t spread_plain(struct pass *pass, int64_t v, int64_t e,
                                                                  int64_t end, int entry_bytes)
{
    const struct pst_hotness_edges *edges = &pass->edges;
    const int64_t stop = e < edges->first ? e : pst_min_i64(end, edges->end);
    const int64_t vertices = pass->in->graph->vertices;
    int64_t u = e < stop ? pst_hotness_entry(edges, e, entry_bytes) : 0, after;
    for (; e < stop; e++, u = after) {
        after = e + 1 < edges->end ? pst_hotness_entry(edges, e + 1, entry_bytes) : u;
        if ((e + 1 < end && after == u) || u < 0 || u >= vertices)
            break;
        const uint64_t at = (uint64_t)(u - pass->first);
        if (u != v && at < (uint64_t)pass->n && !note(pass, at))
            break;
    }
    return e;
}

/* Notes the factor of v for each of its neighbours. Equal entries of a list are beside each other. */
static pst_rc spread(struct pass *pass, int64_t v)
{
    const struct pst_csc *graph = pass->in->graph;
    const int64_t end = graph->indptr[v + 1];
    double single, several;
    pst_rc rc = log_factor(pass, v, 1, &single);
    use_factor(pass, single);
    for (int64_t e = graph->indptr[v], next, u; e < end && rc == PST_OK; e = next) {
        next = graph->index_bytes == 4 ? spread_plain(pass, v, e, end, 4) : spread_plain(pass, v, e, end, 8);
        if (next > e)
            continue;
        rc = find_equal(pass, e, end, &u, &next);
        if (rc != PST_OK)
            return rc;
        if (u < 0 || u >= graph->vertices)
            return damaged(v, "a neighbour that does not exist");
        if (u == v || u < pass->first || u - pass->first >= pass->n)
            continue;
        const uint64_t at = (uint64_t)(u - pass->first);
        if (pass->notes[0].in_bucket[at >> pass->shift] == BUCKET_ITEMS)
            hand_over(pass);
        if (next - e == 1) {
            (void)note(pass, at);
            continue;
        }
        rc = log_factor(pass, v, next - e, &several);
        use_factor(pass, several);
        (void)note(pass, at);
        use_factor(pass, single);
    }
    return rc;
}

static pst_rc spread_all(struct pass *pass)
{
    const struct pst_csc *graph = pass->in->graph;
    const float *p = pass->p + pass->hop * graph->vertices;
    pst_rc rc = PST_OK;
    for (int64_t v = 0; v < graph->vertices && rc == PST_OK; v++) {
        const int64_t begin = graph->indptr[v], end = graph->indptr[v + 1];
        if (begin < 0 || begin > end || end > graph->edges)
            rc = damaged(v, "a list that is outside of the edges");
        else if (p[v] > 0 && begin < end)
            rc = spread(pass, v);
    }
    hand_over(pass);
    end_adding(pass);
    return rc;
}

/* ---- hops ---------------------------------------------------------------------------------------- */

static int64_t chunks(int64_t vertices)
{
    return (vertices + CHUNK - 1) / CHUNK;
}

static void begin_chunk(void *arg, int64_t chunk, int worker)
{
    (void)worker;
    const struct pass *pass = arg;
    const int64_t at = chunk * CHUNK, n = pst_min_i64(CHUNK, pass->n - at);
    memset(pass->sums + at, 0, (size_t)n * sizeof *pass->sums);
}

/* Computes p_{hop+1} from the sums. */
static void end_chunk(void *arg, int64_t chunk, int worker)
{
    (void)worker;
    const struct pass *pass = arg;
    const int64_t vertices = pass->in->graph->vertices, end = pst_min_i64((chunk + 1) * CHUNK, pass->n);
    const float *now = pass->p + pass->hop * vertices + pass->first, *seed = pass->p + pass->first;
    float *next = pass->p + (pass->hop + 1) * vertices + pass->first;
    for (int64_t i = chunk * CHUNK; i < end; i++)
        next[i] = pass->sums[i] < 0 ? fmaxf(now[i], (float)-expm1(log1p(-(double)seed[i]) + pass->sums[i]))
                                    : now[i];
}

/* Computes p_{hop+1} from p_0 to p_hop, in ranges of `room` vertices, whose sums fit the memory. */
static pst_rc next_hop(struct pass *pass, int64_t room)
{
    const int64_t vertices = pass->in->graph->vertices;
    pst_rc rc = PST_OK;
    if (pass->in->fanout[pass->hop] == 0)
        memcpy(pass->p + (pass->hop + 1) * vertices, pass->p + pass->hop * vertices,
               (size_t)vertices * sizeof *pass->p);
    for (int64_t first = 0; first < vertices && pass->in->fanout[pass->hop] != 0 && rc == PST_OK;
         first += room) {
        pass->first = first;
        pass->n = pst_min_i64(room, vertices - first);
        pst_team_run(pass->team, begin_chunk, pass, chunks(pass->n));
        rc = spread_all(pass);
        if (rc == PST_OK)
            pst_team_run(pass->team, end_chunk, pass, chunks(pass->n));
    }
    return rc;
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

static pst_rc all_hops(struct pass *pass, int64_t room)
{
    const struct pst_hotness_input *in = pass->in;
    pst_rc rc = pst_hotness_edges_open(&pass->edges, in->graph, in->file, READ_BYTES);
    memset(pass->p, 0, (size_t)in->graph->vertices * sizeof *pass->p);
    for (int64_t i = 0; i < in->nseeds; i++)
        pass->p[in->seeds[i]] = (float)(1 / (double)in->batches);
    for (pass->hop = 0; pass->hop < in->hops && rc == PST_OK; pass->hop++)
        rc = next_hop(pass, room);
    pst_hotness_edges_close(&pass->edges);
    return rc;
}

/* Regions of at least 2^REGION_BITS vertices, at most REGIONS_MAX of them. */
static void cut_regions(struct pass *pass, int64_t room)
{
    pass->shift = REGION_BITS;
    while ((room - 1) >> pass->shift >= REGIONS_MAX)
        pass->shift++;
    pass->regions = ((room - 1) >> pass->shift) + 1;
    pass->factor_bits = 32 - pass->shift;
}

pst_rc pst_hotness_analytic(const struct pst_hotness_input *in, float *scores)
{
    const int64_t vertices = in->graph->vertices;
    const uint64_t fit = in->memory_bytes / sizeof(double);
    const int64_t room = pst_min_i64(vertices, fit < SUMS_MIN     ? SUMS_MIN
                                               : fit > UINT32_MAX ? UINT32_MAX
                                                                  : (int64_t)fit);
    struct pass pass = {.in = in, .p = scores};
    cut_regions(&pass, room);
    pst_rc rc = pst_team_new(&pass.team, in->threads);
    if (rc != PST_OK)
        return rc;
    pass.sums = pst_hugepage_alloc((uint64_t)room * sizeof *pass.sums);
    bool there = pass.sums != NULL;
    for (int i = 0; i < 2; i++) {
        struct notes *notes = &pass.notes[i];
        notes->pass = &pass;
        notes->items = pst_hugepage_alloc((uint64_t)pass.regions * BUCKET_ITEMS * sizeof *notes->items);
        notes->factors = malloc(FACTORS_MAX * sizeof *notes->factors);
        notes->ends = malloc(((size_t)FACTORS_MAX >> pass.factor_bits) * sizeof *notes->ends);
        there &= notes->items != NULL && notes->factors != NULL && notes->ends != NULL;
    }
    rc = there ? all_hops(&pass, room)
               : pst_fail(PST_E_NOMEM,
                          "out of memory: cannot allocate the sums of %" PRId64
                          " vertices to compute their hotness; lower hotness_memory",
                          room);
    for (int i = 0; i < 2; i++) {
        free(pass.notes[i].items);
        free(pass.notes[i].factors);
        free(pass.notes[i].ends);
    }
    free(pass.sums);
    pst_team_free(pass.team);
    if (rc == PST_OK)
        to_batches(in, scores);
    return rc;
}
