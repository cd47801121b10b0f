/* From hotness to lists of ids: costs against formulas that are written another way, the order against a
 * comparison sort, and what must hold of any plan. */
#include "tests/placement/placement_fixture.h"

#define INSTANCES 300
#define VERTICES 300

struct graph {
    int64_t indptr[VERTICES + 1];
    float lists[2][VERTICES], rows[VERTICES];
    struct pst_placement_input in;
};

static void draw_graph(struct graph *g)
{
    static const uint32_t line[] = {32, 64, 128}, sector[] = {128, 512, 4096};
    g->indptr[0] = 0;
    for (int64_t v = 0; v < VERTICES; v++) {
        const int64_t degree = below(20) == 0 ? below(3000) : below(60);
        g->indptr[v + 1] = g->indptr[v] + degree;
        for (int h = 0; h < 2; h++)
            g->lists[h][v] = (float)(below(3) == 0 ? 0 : below(2) == 0 ? (double)below(6) : 9 * uniform());
        g->rows[v] = (float)below(12);
    }
    g->in = (struct pst_placement_input){.vertices = VERTICES,
                                         .indptr = g->indptr,
                                         .entry_bytes = below(2) == 0 ? 4 : 8,
                                         .list_bytes = 8,
                                         .hops = 2,
                                         .lists = {g->lists[0], g->lists[1]},
                                         .fanout = {below(4) - 1, 1 + below(25)},
                                         .replace = below(2) == 0,
                                         .rows = g->rows,
                                         .row_bytes = (uint64_t)(1 + below(300)) * 4,
                                         .row_files = 1 + (int)below(3),
                                         .cache_bytes = {0, (uint64_t)below(150000), (uint64_t)below(90000)},
                                         .line_bytes = line[below(3)],
                                         .sector_bytes = sector[below(3)],
                                         .lists_in_memory = below(3) == 0,
                                         .cost = (enum pst_placement_cost)below(3),
                                         .batches = 4,
                                         .threads = 1 + (int)below(3)};
}

/* The chance that a unit with c of d entries is touched by k draws, from logarithms of factorials. */
static double chance(const struct pst_placement_input *in, int64_t d, int64_t c, int64_t k)
{
    if (k < 0)
        return 1;
    if (in->replace)
        return 1 - exp((double)k * log1p(-(double)c / (double)d));
    if (k > d - c)
        return 1;
    return 1 - exp(lgamma((double)(d - c + 1)) + lgamma((double)(d - k + 1)) -
                   lgamma((double)(d - c - k + 1)) - lgamma((double)(d + 1)));
}

/* Goes through a list's entries, unit by unit. */
static double exact_units(const struct pst_placement_input *in, int64_t v, int64_t k, int64_t unit)
{
    const int64_t begin = in->indptr[v], end = in->indptr[v + 1], per = unit / in->entry_bytes;
    double units = (double)((v + 1) * 8 / unit - v * 8 / unit + 1);
    for (int64_t at = begin; at < end;) {
        const int64_t next = pst_min_i64(end, (at / per + 1) * per);
        units += chance(in, end - begin, next - at, k);
        at = next;
    }
    return units;
}

static double list_cost(const struct pst_placement_input *in, int64_t v, int64_t unit)
{
    const double bytes = (double)((in->indptr[v + 1] - in->indptr[v]) * in->entry_bytes);
    double heat = 0, exact = 0;
    for (int h = 0; h < in->hops; h++) {
        if (in->fanout[h] == 0)
            continue;
        heat += (double)in->lists[h][v];
        exact += (double)in->lists[h][v] * exact_units(in, v, in->fanout[h], unit);
    }
    const double units = in->cost == PST_PLACEMENT_PAPER    ? ceil(heat * bytes / (double)unit)
                         : in->cost == PST_PLACEMENT_ACCESS ? heat * ceil(bytes / (double)unit)
                                                            : exact;
    return units * (double)unit / in->line_bytes;
}

static double row_cost(const struct pst_placement_input *in, int64_t v, int64_t unit)
{
    const double heat = (double)in->rows[v], bytes = (double)in->row_bytes;
    const int64_t begin = v / in->row_files * (int64_t)in->row_bytes;
    const int64_t touched = (begin + (int64_t)in->row_bytes - 1) / unit - begin / unit + 1;
    const double units = in->cost == PST_PLACEMENT_PAPER    ? ceil(heat * bytes / (double)unit)
                         : in->cost == PST_PLACEMENT_ACCESS ? heat * ceil(bytes / (double)unit)
                                                            : heat * (double)touched;
    return units * (double)unit / in->line_bytes;
}

static const struct graph *sorted;

static double heat_of(int64_t v, int kind)
{
    const struct pst_placement_input *in = &sorted->in;
    if (kind == PST_PLACEMENT_ROWS)
        return (double)in->rows[v];
    float heat = 0;
    for (int h = 0; h < in->hops; h++)
        heat += in->fanout[h] != 0 ? in->lists[h][v] : 0;
    return (double)heat;
}

static int sorted_kind;

static int by_heat(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    const double heat_a = heat_of(a, sorted_kind), heat_b = heat_of(b, sorted_kind);
    return heat_a != heat_b ? (heat_a > heat_b ? -1 : 1) : (a > b) - (a < b);
}

static uint64_t bytes_of(const struct graph *g, int kind, int64_t v)
{
    const struct pst_placement_input *in = &g->in;
    return kind == PST_PLACEMENT_ROWS
               ? in->row_bytes
               : (uint64_t)(g->indptr[v + 1] - g->indptr[v]) * in->entry_bytes + in->list_bytes;
}

/* The queue has the vertices by heat, without lists longer than a chunk; chunks fit, and cost what they
 * should. */
static void check_queue(const struct graph *g, const struct pst_placement *p, int kind)
{
    const struct pst_placement_queue *q = &p->queue[kind];
    int64_t order[VERTICES], chunk = 0, queued = 0;
    for (int64_t v = 0; v < VERTICES; v++)
        order[v] = v;
    sorted = g;
    sorted_kind = kind;
    qsort(order, VERTICES, sizeof *order, by_heat);
    uint64_t filled = 0;
    double cpu = 0, home = 0, heat = 0;
    for (int64_t i = 0; i < VERTICES; i++) {
        const int64_t v = order[i];
        if (bytes_of(g, kind, v) > p->chunk_bytes)
            continue;
        assert_int_equal(q->order[queued], v);
        filled += bytes_of(g, kind, v);
        assert_true(filled <= p->chunk_bytes);
        const bool memory = kind == PST_PLACEMENT_LISTS && g->in.lists_in_memory;
        const int64_t unit = memory ? g->in.line_bytes : g->in.sector_bytes;
        cpu += kind == 0 ? list_cost(&g->in, v, g->in.line_bytes) : row_cost(&g->in, v, g->in.line_bytes);
        home += kind == 0 ? list_cost(&g->in, v, unit) : row_cost(&g->in, v, unit);
        heat += heat_of(v, kind);
        if (++queued < q->cut[chunk + 1])
            continue;
        assert_true(fabs(q->cpu[chunk] - cpu) <= 1e-5 * (1 + cpu));
        assert_true(fabs(q->home[chunk] - home) <= 1e-5 * (1 + home));
        assert_true(fabs(q->heat[chunk] - heat) <= 1e-5 * (1 + heat));
        filled = 0;
        cpu = home = heat = 0;
        chunk++;
    }
    assert_int_equal(queued, q->queued);
    assert_int_equal(chunk, q->chunks);
    assert_int_equal(queued + q->left, VERTICES);
}

/* No vertex twice, no more bytes than the cache has; the ids are those of the chunks in this tier. */
static void check_caches(const struct graph *g, const struct pst_placement *p,
                         const struct pst_placement_plan *plan)
{
    for (int tier = PST_PLACEMENT_CPU; tier < PST_PLACEMENT_TIERS; tier++) {
        uint64_t bytes = 0;
        for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
            int64_t *ids, n;
            double heat = 0;
            assert_int_equal(pst_placement_ids(p, plan, (enum pst_placement_kind)kind,
                                               (enum pst_placement_tier)tier, &ids, &n),
                             PST_OK);
            for (int64_t i = 0; i < n; i++) {
                assert_true(i == 0 || heat_of(ids[i - 1], kind) >= heat_of(ids[i], kind));
                bytes += bytes_of(g, kind, ids[i]);
                sorted = g;
                heat += heat_of(ids[i], kind);
            }
            assert_true(fabs(heat / (double)g->in.batches - plan->reads[kind][tier]) <= 1e-5 * (1 + heat));
            free(ids);
        }
        assert_true(bytes <= g->in.cache_bytes[tier]);
    }
}

static void graphs_are_placed(void **unused)
{
    (void)unused;
    static struct graph g;
    for (int i = 0; i < INSTANCES; i++) {
        draw_graph(&g);
        struct pst_placement p;
        assert_int_equal(pst_placement_open(&p, &g.in), PST_OK);
        if (g.in.lists_in_memory == false || g.in.cost != PST_PLACEMENT_PAPER) {
            check_queue(&g, &p, PST_PLACEMENT_LISTS);
            check_queue(&g, &p, PST_PLACEMENT_ROWS);
        }
        for (int policy = 0; policy < PST_PLACEMENT_POLICIES; policy++) {
            const struct pst_placement_ask ask = {.policy = (enum pst_placement_policy)policy,
                                                  .lists_share = {0, uniform(), uniform()}};
            struct pst_placement_plan plan;
            assert_int_equal(pst_placement_solve(&p, &ask, &plan), PST_OK);
            check_caches(&g, &p, &plan);
            pst_placement_plan_release(&plan);
        }
        pst_placement_close(&p);
    }
}

/* Draws k of d entries many times, and counts the lines and sectors that they touch. */
static void exact_cost_is_what_draws_touch(void **unused)
{
    (void)unused;
    enum { DEGREE = 150, FANOUT = 10, ROUNDS = 20000 };
    const int64_t indptr[] = {13, 13 + DEGREE};
    const float once[] = {1};
    for (int replace = 0; replace < 2; replace++) {
        const struct pst_placement_input in = {.vertices = 1,
                                               .indptr = indptr,
                                               .entry_bytes = 4,
                                               .hops = 1,
                                               .lists = {once},
                                               .fanout = {FANOUT},
                                               .replace = replace,
                                               .cache_bytes = {0, 1 << 20, 0},
                                               .line_bytes = 64,
                                               .sector_bytes = 512,
                                               .cost = PST_PLACEMENT_EXACT,
                                               .batches = 1,
                                               .threads = 2};
        struct pst_placement p;
        assert_int_equal(pst_placement_open(&p, &in), PST_OK);
        double lines = 0, sectors = 0;
        for (int round = 0; round < ROUNDS; round++) {
            bool drawn[DEGREE] = {0}, line[64] = {0}, sector[8] = {0};
            for (int k = 0; k < FANOUT;) {
                const int64_t e = below(DEGREE);
                if (!replace && drawn[e])
                    continue;
                k++;
                drawn[e] = true;
                lines += !line[(13 + e) / 16];
                sectors += !sector[(13 + e) / 128];
                line[(13 + e) / 16] = sector[(13 + e) / 128] = true;
            }
        }
        assert_true(fabs(p.queue[0].cpu[0] - 1 - lines / ROUNDS) < 0.05);
        assert_true(fabs(p.queue[0].home[0] - 8 * (1 + sectors / ROUNDS)) < 0.1);
        pst_placement_close(&p);
    }
}

/* The example of why the printed formula is wrong: a list of 8 bytes that is read 1000 times. */
static void rounding_of_the_paper(void **unused)
{
    (void)unused;
    const int64_t indptr[] = {0, 2};
    const float reads[] = {1000};
    struct pst_placement_input in = {.vertices = 1,
                                     .indptr = indptr,
                                     .entry_bytes = 4,
                                     .hops = 1,
                                     .lists = {reads},
                                     .fanout = {5},
                                     .cache_bytes = {0, 4096, 0},
                                     .line_bytes = 64,
                                     .sector_bytes = 512,
                                     .batches = 1,
                                     .threads = 1};
    const double expected[] = {125, 1000, 2000}; /* exact: and a line of indptr */
    for (int cost = 0; cost < 3; cost++) {
        in.cost = (enum pst_placement_cost)cost;
        struct pst_placement p;
        assert_int_equal(pst_placement_open(&p, &in), PST_OK);
        assert_near(p.queue[0].cpu[0], expected[cost]);
        pst_placement_close(&p);
    }
}

/* A placement that is weighed with other hotness costs what it would have cost with it from the beginning. */
static void other_hotness_is_counted(void **unused)
{
    (void)unused;
    static struct graph g, other;
    for (int i = 0; i < INSTANCES / 10; i++) {
        draw_graph(&g);
        struct pst_placement p, once_more;
        assert_int_equal(pst_placement_open(&p, &g.in), PST_OK);
        other = g;
        for (int64_t v = 0; v < VERTICES; v++) {
            other.lists[0][v] = 2 * g.lists[0][v];
            other.lists[1][v] = 2 * g.lists[1][v];
            other.rows[v] = 2 * g.rows[v];
        }
        other.in.lists[0] = other.lists[0];
        other.in.lists[1] = other.lists[1];
        other.in.rows = other.rows;
        other.in.batches = 3;
        assert_int_equal(pst_placement_open(&once_more, &other.in), PST_OK);
        assert_int_equal(pst_placement_reweigh(&p, &other.in), PST_OK);
        assert_int_equal(p.batches, 3);
        for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
            const struct pst_placement_queue *a = &p.queue[kind], *b = &once_more.queue[kind];
            assert_int_equal(a->chunks, b->chunks);
            for (int64_t c = 0; c < a->chunks; c++) {
                assert_true(fabs(a->heat[c] - b->heat[c]) <= 1e-6 * (1 + b->heat[c]));
                assert_near(a->cpu[c], b->cpu[c]);
                assert_near(a->home[c], b->home[c]);
            }
            assert_true(fabs(a->left_cpu - b->left_cpu) <= 1e-6 * (1 + b->left_cpu));
            assert_true(fabs(a->left_home - b->left_home) <= 1e-6 * (1 + b->left_home));
        }
        pst_placement_close(&p);
        pst_placement_close(&once_more);
    }
}

static void expect(const struct graph *g, pst_rc rc, const char *text)
{
    struct pst_placement p;
    assert_int_equal(pst_placement_open(&p, &g->in), rc);
    if (strstr(pst_error_text(), text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, pst_error_text());
}

static void bad_input_is_told(void **unused)
{
    (void)unused;
    static struct graph g;
    draw_graph(&g);
    const struct pst_placement_input good = g.in;
    g.in.line_bytes = 48;
    expect(&g, PST_E_ARG, "a PCIe transaction has 48 bytes");
    g.in = good;
    g.in.sector_bytes = 16;
    expect(&g, PST_E_ARG, "the SSD's smallest read has 16 bytes");
    g.in = good;
    g.in.threads = 0;
    expect(&g, PST_E_ARG, "the number of threads is 0");
    g.in = good;
    g.in.vertices = INT64_MAX;
    expect(&g, PST_E_LIMIT, "vertices");
    g.in = good;
    g.rows[7] = -1;
    expect(&g, PST_E_ARG, "the rows: the hotness of vertex 7 is -1");
    g.rows[7] = NAN;
    expect(&g, PST_E_ARG, "the rows: the hotness of vertex 7");
    g.rows[7] = 0;
    g.indptr[9] = g.indptr[8] - 1;
    expect(&g, PST_E_ARG, "indptr decreases");
    const struct pst_placement empty = {.batches = 1};
    struct pst_placement_plan plan;
    struct pst_placement_ask ask = {.policy = PST_PLACEMENT_JOINT, .objective = PST_PLACEMENT_TIME};
    assert_int_equal(pst_placement_solve(&empty, &ask, &plan), PST_E_ARG);
    ask.machine = &(struct pst_placement_machine){.ssd_per_s = 0, .pcie_per_s = 1};
    assert_int_equal(pst_placement_solve(&empty, &ask, &plan), PST_E_ARG);
    ask = (struct pst_placement_ask){.policy = PST_PLACEMENT_HYBRID, .lists_share = {0, 2, 0}};
    assert_int_equal(pst_placement_solve(&empty, &ask, &plan), PST_E_ARG);
    for (int i = 0; i < PST_PLACEMENT_POLICIES; i++)
        assert_int_equal(pst_placement_policy_of(pst_placement_policy_name((enum pst_placement_policy)i)), i);
    assert_int_equal(pst_placement_policy_of("best"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_are_placed),     cmocka_unit_test(exact_cost_is_what_draws_touch),
        cmocka_unit_test(rounding_of_the_paper), cmocka_unit_test(other_hotness_is_counted),
        cmocka_unit_test(bad_input_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
