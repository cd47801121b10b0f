/* Planned reads of lists against counted ones: a batch's transactions of the plan, from the batches' own
 * counts, and those of the entries that the batches draw (Hyperion, section III-B2). They agree within 1 %.
 */
#include "tests/placement/placement_fixture.h"

#include "kernels/kernels.h"

enum {
    V = 20000,
    BATCHES = 60,
    SEEDS = 200,
    HOPS = 2,
    EDGES_MAX = 64 * V,
    DRAWN_MAX = 1 << 16,
    LINE = 64,
    SECTOR = 512
};
static const int64_t fanout[HOPS] = {10, 5};

struct world {
    int64_t indptr[V + 1];
    int32_t indices[EDGES_MAX];
    float lists[HOPS][V];
    uint8_t tier[V]; /* of the list */
    bool replace;
    double cpu, ssd; /* counted transactions of all batches */
};

/* Few vertices have long lists and are in many others; most lists are short. */
static void make_graph(struct world *w)
{
    w->indptr[0] = 0;
    for (int64_t v = 0; v < V; v++) {
        const int64_t degree = (int64_t)fmin(3000, 3 / (uniform() + 1e-4));
        w->indptr[v + 1] = w->indptr[v] + degree;
        assert_true(w->indptr[v + 1] <= EDGES_MAX);
        for (int64_t e = w->indptr[v]; e < w->indptr[v + 1]; e++)
            w->indices[e] = (int32_t)((double)V * pow(uniform(), 3));
    }
}

/* Units of `bytes` that have one of the entries at[0..n), or the two entries of indptr. */
static double units(const int64_t *at, int64_t n, int64_t v, int64_t bytes)
{
    int64_t seen[10];
    assert_true(n <= 10); /* the larger fanout */
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t unit = at[i] * (int64_t)sizeof(int32_t) / bytes;
        bool new = true;
        for (int64_t j = 0; j < count && new; j++)
            new = seen[j] != unit;
        if (new)
            seen[count++] = unit;
    }
    return (double)(count + ((v + 1) * 8 / bytes - v * 8 / bytes) + 1);
}

/* Draws one hop of a batch. The distinct vertices of `from` are expanded; `to` gets the drawn ones, once
 * each. */
static int64_t draw(struct world *w, const struct pst_sample_key *key, const int64_t *from, int64_t n,
                    bool count, int64_t *to)
{
    static int64_t degrees[DRAWN_MAX], positions[DRAWN_MAX];
    static int32_t begins[DRAWN_MAX + 1];
    static uint32_t marked[V];
    static uint32_t mark;
    for (int64_t i = 0; i < n; i++)
        degrees[i] = w->indptr[from[i] + 1] - w->indptr[from[i]];
    assert_int_equal(pst_k_pick(NULL, key, from, degrees, n, (int)fanout[key->hop], w->replace, begins,
                                positions, DRAWN_MAX),
                     PST_OK);
    mark++;
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = from[i];
        const int64_t drawn = begins[i + 1] - begins[i];
        int64_t *at = positions + begins[i];
        for (int64_t k = 0; k < drawn; k++) {
            at[k] += w->indptr[v];
            const int32_t u = w->indices[at[k]];
            if (marked[u] != mark)
                to[found++] = u;
            marked[u] = mark;
        }
        if (!count)
            w->lists[key->hop][v]++;
        else if (w->tier[v] == PST_PLACEMENT_CPU)
            w->cpu += units(at, drawn, v, LINE);
        else if (w->tier[v] == PST_PLACEMENT_HOME)
            w->ssd += units(at, drawn, v, SECTOR) * (SECTOR / LINE);
    }
    return found;
}

/* All batches, which are the same each time. */
static void run(struct world *w, bool count)
{
    static int64_t ids[2][DRAWN_MAX], order[V];
    pst_k_shuffle(NULL, 5, 0, order, V);
    for (uint64_t b = 0; b < BATCHES; b++) {
        int64_t n = SEEDS;
        memcpy(ids[0], order + b * SEEDS, sizeof(int64_t) * SEEDS);
        for (uint32_t h = 0; h < HOPS; h++) {
            const struct pst_sample_key key = {.seed = 11, .hop = h, .batch = b};
            n = draw(w, &key, ids[h & 1], n, count, ids[1 - (h & 1)]);
        }
    }
}

static void take_tiers(struct world *w, const struct pst_placement *p, const struct pst_placement_plan *plan)
{
    memset(w->tier, PST_PLACEMENT_HOME, sizeof w->tier);
    for (int tier = PST_PLACEMENT_CPU; tier <= PST_PLACEMENT_GPU; tier++) {
        int64_t *ids, n;
        assert_int_equal(
            pst_placement_ids(p, plan, PST_PLACEMENT_LISTS, (enum pst_placement_tier)tier, &ids, &n), PST_OK);
        for (int64_t i = 0; i < n; i++)
            w->tier[ids[i]] = (uint8_t)tier;
        free(ids);
    }
}

static void compare(struct world *w, uint64_t gpu_bytes, uint64_t cpu_bytes)
{
    const struct pst_placement_input in = {.vertices = V,
                                           .indptr = w->indptr,
                                           .entry_bytes = sizeof(int32_t),
                                           .list_bytes = 8,
                                           .hops = HOPS,
                                           .lists = {w->lists[0], w->lists[1]},
                                           .fanout = {fanout[0], fanout[1]},
                                           .replace = w->replace,
                                           .cache_bytes = {0, cpu_bytes, gpu_bytes},
                                           .chunk_bytes = 16384,
                                           .line_bytes = LINE,
                                           .sector_bytes = SECTOR,
                                           .cost = PST_PLACEMENT_EXACT,
                                           .batches = BATCHES,
                                           .threads = 1};
    struct pst_placement p;
    struct pst_placement_plan plan;
    const struct pst_placement_ask ask = {.policy = PST_PLACEMENT_JOINT};
    assert_int_equal(pst_placement_open(&p, &in), PST_OK);
    assert_int_equal(pst_placement_solve(&p, &ask, &plan), PST_OK);
    take_tiers(w, &p, &plan);
    w->cpu = w->ssd = 0;
    run(w, true);
    const double cpu = plan.cpu[PST_PLACEMENT_LISTS], ssd = plan.ssd[PST_PLACEMENT_LISTS];
    print_message(
        "# caches of %llu and %llu bytes: planned / counted transactions: CPU memory %.5f, SSD %.5f\n",
        (unsigned long long)gpu_bytes, (unsigned long long)cpu_bytes, cpu_bytes ? cpu * BATCHES / w->cpu : 1,
        ssd * BATCHES / w->ssd);
    assert_true(ssd > 0 && fabs(ssd * BATCHES / w->ssd - 1) < 0.01);
    assert_true(cpu_bytes == 0 ? cpu == 0 && w->cpu == 0 : fabs(cpu * BATCHES / w->cpu - 1) < 0.01);
    pst_placement_plan_release(&plan);
    pst_placement_close(&p);
}

static void planned_and_counted_reads_agree(void **unused)
{
    (void)unused;
    static struct world w;
    make_graph(&w);
    for (int replace = 0; replace < 2; replace++) {
        w.replace = replace;
        memset(w.lists, 0, sizeof w.lists);
        run(&w, false);
        compare(&w, 0, 0);
        compare(&w, 1 << 17, 1 << 18);
        compare(&w, 0, 1 << 19);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planned_and_counted_reads_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
