/* Plans the caches of a graph of 10^8 vertices from given hotness: at most 10 s and 4 GB, the input included,
 * for the joint plan of either objective. The other policies come after it, for their values. The machine
 * must be idle. PENSTOCK_SCALE_VERTICES: another size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/util/clock.h"
#include "common/util/memory.h"
#include "stages/lib/placement/placement.h"

#define SECONDS_MAX 10
#define BYTES_MAX 4e9
#define HOPS 2
#define ROW_BYTES 512

struct graph {
    int64_t vertices, *indptr;
    float *lists[HOPS], *rows;
};

/* A number from 0 to 1 for each vertex, in no order. */
static double scatter(int64_t v)
{
    uint64_t z = (uint64_t)v * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return (double)((z ^ (z >> 27)) >> 11) * 0x1p-53;
}

/* Degrees and hotness by a power law: 15 entries a list; few vertices are in most batches. */
static void generate(struct graph *g, int64_t vertices)
{
    *g = (struct graph){.vertices = vertices};
    g->indptr = pst_hugepage_alloc(((size_t)vertices + 1) * sizeof *g->indptr);
    g->rows = pst_hugepage_alloc((size_t)vertices * sizeof *g->rows);
    assert_true(g->indptr != NULL && g->rows != NULL);
    for (int h = 0; h < HOPS; h++)
        assert_non_null(g->lists[h] = pst_hugepage_alloc((size_t)vertices * sizeof *g->lists[h]));
    g->indptr[0] = 0;
    for (int64_t v = 0; v < vertices; v++) {
        const double u = scatter(v) + 1e-9;
        const double hot = 1 / u < 1e6 ? 1 / u : 1e6;
        g->indptr[v + 1] = g->indptr[v] + (int64_t)fmin(20000, hot);
        g->lists[0][v] = (float)(hot * 1e-3);
        g->lists[1][v] = (float)(hot * 1e-2 * (0.5 + scatter(v + vertices)));
        g->rows[v] = g->lists[0][v] + 2 * g->lists[1][v];
    }
}

static void release(struct graph *g)
{
    free(g->indptr);
    free(g->rows);
    for (int h = 0; h < HOPS; h++)
        free(g->lists[h]);
}

/* Returns the seconds of the joint policy's slower objective. */
static double solve_all(const struct pst_placement *p)
{
    const struct pst_placement_machine machine = {.ssd_per_s = 6e7, .pcie_per_s = 3.75e8};
    double slower = 0;
    for (int objective = 0; objective < 2; objective++) {
        for (int policy = 0; policy < PST_PLACEMENT_POLICIES; policy++) {
            const double begin = pst_clock_s();
            struct pst_placement_plan plan;
            const struct pst_placement_ask ask = {.policy = (enum pst_placement_policy)policy,
                                                  .objective = (enum pst_placement_objective)objective,
                                                  .lists_share = {0, 0.25, 0.25},
                                                  .machine = &machine};
            assert_int_equal(pst_placement_solve(p, &ask, &plan), PST_OK);
            const double took = pst_clock_s() - begin;
            print_message("%s %-6s %12.6g, bound %12.6g, %5.2f s\n",
                          objective ? "seconds     " : "transactions", pst_placement_policy_name(ask.policy),
                          plan.value, plan.bound, took);
            if (policy == PST_PLACEMENT_JOINT) {
                assert_true(plan.value <= plan.bound * 1.01);
                slower = fmax(slower, took);
            }
            pst_placement_plan_release(&plan);
        }
    }
    return slower;
}

static void plans_a_large_graph(void **unused)
{
    (void)unused;
    const char *size = getenv("PENSTOCK_SCALE_VERTICES");
    struct graph g;
    generate(&g, size != NULL ? atoll(size) : 100000000);
    const struct pst_placement_input in = {.vertices = g.vertices,
                                           .indptr = g.indptr,
                                           .entry_bytes = 4,
                                           .list_bytes = 8,
                                           .hops = HOPS,
                                           .lists = {g.lists[0], g.lists[1]},
                                           .fanout = {25, 10},
                                           .rows = g.rows,
                                           .row_bytes = ROW_BYTES,
                                           .row_files = 1,
                                           .cache_bytes = {0, 10000000000, 4000000000},
                                           .line_bytes = 64,
                                           .sector_bytes = 512,
                                           .cost = PST_PLACEMENT_EXACT,
                                           .batches = 100,
                                           .threads = 2};
    struct pst_placement p;
    const double begin = pst_clock_s();
    assert_int_equal(pst_placement_open(&p, &in), PST_OK);
    const double opened = pst_clock_s();
    const double joint = solve_all(&p);
    print_message(
        "%lld vertices, %lld + %lld chunks: sorted and cut in %.2f s, joint plan in %.2f s, peak %.2f GB\n",
        (long long)g.vertices, (long long)p.queue[0].chunks, (long long)p.queue[1].chunks, opened - begin,
        joint, (double)pst_memory_peak() / 1e9);
    assert_true(opened - begin + joint < SECONDS_MAX);
    assert_true((double)pst_memory_peak() < BYTES_MAX);
    pst_placement_close(&p);
    release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_a_large_graph)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
