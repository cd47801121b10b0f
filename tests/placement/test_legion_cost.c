/* test_legion_cost.c: METIS' parts, and the cost model against its equations, written out another way. */
#include "tests/placement/legion_fixture.h"

/* ---- parts ---------------------------------------------------------------------------------------- */

static struct pst_legion_partition parts_of(int parts)
{
    struct pst_legion_partition p = {.graph = &graph,
                                     .train = train,
                                     .ntrain = TRAIN,
                                     .parts = parts,
                                     .seed = 3,
                                     .entries_max = PST_LEGION_ENTRIES_MAX};
    for (int k = 0; k < parts; k++)
        p.weight[k] = 1;
    return p;
}

static void check_balance(const struct pst_legion_partition *p, const int8_t *part, double slack)
{
    double sum = 0;
    for (int k = 0; k < p->parts; k++)
        sum += p->weight[k];
    for (int k = 0; k < p->parts; k++) {
        int64_t vertices = 0, seeds = 0;
        for (int64_t v = 0; v < VERTICES; v++)
            vertices += part[v] == k;
        for (int64_t i = 0; i < TRAIN; i++)
            seeds += part[train[i]] == k;
        const double share = p->weight[k] / sum;
        assert_true(fabs((double)vertices / VERTICES - share) <= slack * share);
        assert_true(fabs((double)seeds / TRAIN - share) <= slack * share);
    }
}

/* Communities are found: far fewer edges are cut than by parts at random. */
static void parts_are_balanced(void **state)
{
    (void)state;
    static int8_t part[VERTICES], again[VERTICES];
    for (int parts = 2; parts <= 8; parts *= 2) {
        struct pst_legion_partition p = parts_of(parts);
        assert_int_equal(pst_legion_partition(&p, part), PST_OK);
        check_balance(&p, part, 0.06);
        int64_t cut = 0;
        for (int64_t v = 0; v < VERTICES; v++)
            for (int64_t e = indptr[v]; e < indptr[v + 1]; e++)
                cut += part[v] != part[indices[e]];
        assert_int_equal(p.cut_edges, cut);
        assert_true(p.sampled == 1);
        assert_true((double)cut < 0.35 * (double)graph.edges * (parts - 1) / parts);
        assert_int_equal(pst_legion_partition(&p, again), PST_OK);
        assert_memory_equal(part, again, sizeof part);
    }
}

/* Cliques of unequal size get unequal parts; one clique needs none. */
static void parts_have_weights(void **state)
{
    (void)state;
    static int8_t part[VERTICES];
    struct pst_legion_partition p = parts_of(3);
    p.weight[0] = 4;
    p.weight[1] = 2;
    assert_int_equal(pst_legion_partition(&p, part), PST_OK);
    check_balance(&p, part, 0.08);
    p = parts_of(1);
    memset(part, 1, sizeof part);
    assert_int_equal(pst_legion_partition(&p, part), PST_OK);
    for (int64_t v = 0; v < VERTICES; v++)
        assert_int_equal(part[v], 0);
}

/* With less room, METIS gets a sample of the edges and all vertices. */
static void edges_are_sampled(void **state)
{
    (void)state;
    static int8_t whole[VERTICES], part[VERTICES];
    struct pst_legion_partition all = parts_of(4), p = parts_of(4);
    assert_int_equal(pst_legion_partition(&all, whole), PST_OK);
    p.entries_max = graph.edges; /* an edge takes two entries */
    assert_int_equal(pst_legion_partition(&p, part), PST_OK);
    assert_true(p.sampled > 0.45 && p.sampled <= 0.52);
    check_balance(&p, part, 0.06);
    assert_true(p.cut_edges >= all.cut_edges / 2 && p.cut_edges < graph.edges / 2);
    p.entries_max = 10;
    assert_int_equal(pst_legion_partition(&p, part), PST_OK);
    assert_true(p.sampled < 0.001);
}

static void damage_is_told(void **state)
{
    (void)state;
    struct pst_legion l;
    const struct pst_legion_config c = settings(PST_LEGION_PAGRAPH, 2, 1);
    const int32_t kept = indices[indptr[40]];
    indices[indptr[40]] = VERTICES;
    assert_int_equal(pst_legion_init(&l, &c), PST_E_FORMAT);
    assert_non_null(
        strstr(pst_error_text(), "from vertex 3000 to vertex 40, but the graph has 3000 vertices"));
    indices[indptr[40]] = kept;
    const int64_t offset = indptr[41];
    indptr[41] = -1;
    assert_int_equal(pst_legion_init(&l, &c), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "indptr gives vertex 40"));
    indptr[41] = offset;
}

/* ---- cost model ----------------------------------------------------------------------------------- */

#define DEVICES 4
#define ROW 200
#define CACHE 20000

struct world {
    struct pst_legion l;
    struct pst_legion_counts rehearsal; /* any other epoch */
    struct pst_legion_cost cost;
};

static void open_world(struct world *w, int64_t epochs)
{
    struct pst_legion_config c = settings(PST_LEGION_LEGION, DEVICES, 2);
    c.row_bytes = ROW;
    c.cache_bytes = CACHE;
    c.alpha = 0;
    c.epochs = epochs;
    assert_int_equal(pst_legion_init(&w->l, &c), PST_OK);
    assert_int_equal(pst_legion_count(&w->l, 9, &w->rehearsal), PST_OK);
    w->cost = (struct pst_legion_cost){.graph = &graph,
                                       .line_bytes = LINE,
                                       .devices = w->l.placement.members[1],
                                       .bytes = 2 * CACHE,
                                       .row_bytes = ROW,
                                       .epochs = epochs,
                                       .counts = &w->l.ahead,
                                       .rehearsal = &w->rehearsal};
    assert_int_equal(pst_legion_cost_predict(&w->cost), PST_OK);
}

static void close_world(struct world *w)
{
    pst_legion_cost_release(&w->cost);
    pst_legion_counts_release(&w->rehearsal);
    pst_legion_release(&w->l);
}

static double of_clique(const struct world *w, const uint32_t *array, int64_t v)
{
    double sum = 0;
    for (int d = 0; d < DEVICES; d++)
        sum += w->cost.devices >> d & 1 ? array[d * VERTICES + v] : 0;
    return sum;
}

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("found %.12g, expected %.12g", found, expected);
}

/* Equations 3 to 8 for each alpha, from all vertices; and the corrected sums. */
static void equations(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 2);
    const struct pst_legion_counts *ahead = &w.l.ahead, *after = &w.rehearsal;
    for (int i = 0; i < PST_LEGION_ALPHAS; i++) {
        const double m_t = floor(2 * CACHE * (i / 100.0) + 1e-6);
        double used = 0, a_t = 0, a_t_cached = 0, lines = 0, u_f = 0, lines_after = 0, rows_after = 0;
        bool full = false;
        for (int64_t k = 0; k < VERTICES; k++) {
            const int64_t t = w.cost.lists_order[k], f = w.cost.rows_order[k];
            used += (double)(indptr[t + 1] - indptr[t]) * 4 + 8;
            full = full || used > m_t;
            a_t += of_clique(&w, ahead->edges, t);
            a_t_cached += full ? 0 : of_clique(&w, ahead->edges, t);
            lines += of_clique(&w, ahead->lines, t);
            lines_after += full ? of_clique(&w, after->lines, t) : 0;
            const bool cached = ROW * (double)(k + 1) <= 2 * CACHE - m_t;
            u_f += cached ? 0 : of_clique(&w, ahead->rows, f);
            rows_after += cached ? 0 : of_clique(&w, after->rows, f);
        }
        assert_near(w.cost.printed_t[i], lines * (1 - a_t_cached / a_t) / 2); /* two epochs */
        assert_near(w.cost.printed_f[i], 4 * u_f / 2);                        /* ceil(200 / 64) */
        assert_near(w.cost.n_t[i], lines_after);
        assert_near(w.cost.n_f[i], 4 * rows_after);
    }
    close_world(&w);
}

/* The least N, then the least alpha; and what is predicted is what another epoch needs. */
static void predictions(void **state)
{
    (void)state;
    struct world w;
    struct pst_legion_counts run;
    double t[PST_LEGION_ALPHAS], f[PST_LEGION_ALPHAS], best = 0;
    open_world(&w, 1);
    assert_int_equal(pst_legion_count(&w.l, 20, &run), PST_OK);
    pst_legion_cost_count(&w.cost, &run, t, f);
    for (int i = 0; i < PST_LEGION_ALPHAS; i++) {
        const double n = w.cost.n_t[i] + w.cost.n_f[i],
                     least = w.cost.n_t[w.cost.best] + w.cost.n_f[w.cost.best];
        assert_true(i < w.cost.best ? n > least : n >= least);
        assert_true(fabs(n / (t[i] + f[i]) - 1) <= 0.05);
        best = i == 0 || t[i] + f[i] < best ? t[i] + f[i] : best;
    }
    assert_true(t[w.cost.best] + f[w.cost.best] <= 1.01 * best);
    pst_legion_counts_release(&run);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_balanced), cmocka_unit_test(parts_have_weights),
        cmocka_unit_test(edges_are_sampled),  cmocka_unit_test(damage_is_told),
        cmocka_unit_test(equations),          cmocka_unit_test(predictions),
    };
    return cmocka_run_group_tests(tests, make_graph, free_graph);
}
