/* Partitions: places are a permutation of the ids, whose inverse is exact; they are the same everywhere and
 * spread as random ones do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/parts/parts.h"

static struct pst_parts make(int64_t vertices, int partitions, enum pst_parts_assign assign, uint64_t seed)
{
    struct pst_parts p;
    assert_int_equal(pst_parts_init(&p, vertices, partitions, assign, seed), PST_OK);
    return p;
}

static void places_are_a_permutation(void **unused)
{
    (void)unused;
    enum { MOST = 70000 };
    static bool taken[MOST];
    static int64_t vertex[MOST], together[MOST];
    static const int64_t sizes[] = {1,   2,   3,   4,   5,    7,    8,    9,    16,    17,
                                    100, 255, 256, 257, 1000, 4095, 4096, 4097, 65537, 70000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int assign = 0; assign < 2; assign++) {
            const int64_t n = sizes[i];
            const struct pst_parts p = make(n, n < 16 ? 1 : 16, (enum pst_parts_assign)assign, i);
            int64_t used = 0;
            memset(taken, 0, sizeof taken);
            for (int64_t v = 0; v < n; v++) {
                const int64_t place = pst_parts_place(&p, v);
                assert_true(place >= 0 && place < n && !taken[place]);
                taken[place] = true;
                assert_true(pst_parts_vertex(&p, place) == v);
                assert_true(pst_parts_of(&p, v) < p.partitions && (assign == PST_PARTS_RANDOM || place == v));
                vertex[v] = n - 1 - v;
            }
            pst_parts_places(&p, vertex, n, together);
            for (int64_t v = 0; v < n; v++)
                assert_true(together[v] == pst_parts_place(&p, vertex[v]));
            for (int part = 0; part < p.partitions; part++)
                used += pst_parts_used(&p, part);
            assert_true(used == n && p.rows * p.partitions >= n);
        }
}

static void large_ids_come_back(void **unused)
{
    (void)unused;
    const struct pst_parts p = make(PST_PARTS_VERTICES_MAX - 12345, 256, PST_PARTS_RANDOM, 9);
    for (int64_t i = 0; i < 10000; i++) {
        const int64_t v = (p.vertices / 10000) * i + i % 7;
        assert_true(pst_parts_vertex(&p, pst_parts_place(&p, v)) == v);
    }
}

/* What a file of buckets or of embeddings relies on: these numbers never change. */
static void places_stay_what_they_are(void **unused)
{
    (void)unused;
    const struct pst_parts p = make(1000003, 8, PST_PARTS_RANDOM, 42);
    static const int64_t vertices[] = {0, 1, 2, 500000, 1000002};
    static const int64_t places[] = {556854, 717633, 370447, 773084, 73506};
    for (int i = 0; i < 5; i++)
        assert_int_equal(pst_parts_place(&p, vertices[i]), places[i]);
}

/* The sum of squared deviations of `cells` counts, each of which should be `expected`, has mean cells - 1 and
 * variance 2 (cells - 1): five deviations are not seen by chance. */
static void assert_uniform(const int64_t *count, int cells, double expected)
{
    double chi = 0;
    for (int i = 0; i < cells; i++)
        chi += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    assert_true(fabs(chi - (cells - 1)) < 5 * sqrt(2.0 * (cells - 1)));
}

/* Where two neighbouring ids go is independent, over many seeds; and each partition gets its share of any
 * range of ids. */
static void neighbours_are_spread(void **unused)
{
    (void)unused;
    enum { PARTS = 8, SEEDS = 20000, RANGE = 4096 };
    int64_t pairs[PARTS * PARTS] = {0}, singles[PARTS] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct pst_parts p = make(80000, PARTS, PST_PARTS_RANDOM, seed);
        pairs[pst_parts_of(&p, 77) * PARTS + pst_parts_of(&p, 78)]++;
    }
    assert_uniform(pairs, PARTS * PARTS, (double)SEEDS / (PARTS * PARTS));
    const struct pst_parts p = make(1 << 20, PARTS, PST_PARTS_RANDOM, 3);
    for (int64_t v = 1000; v < 1000 + RANGE; v++)
        singles[pst_parts_of(&p, v)]++;
    assert_uniform(singles, PARTS, (double)RANGE / PARTS);
}

static void wrong_numbers_are_told(void **unused)
{
    (void)unused;
    struct pst_parts p;
    assert_int_equal(pst_parts_init(&p, 10, 11, PST_PARTS_RANDOM, 0), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "11 partitions of 10 vertices; expected 1 to 10"));
    assert_int_equal(pst_parts_init(&p, 1000, 257, PST_PARTS_RANDOM, 0), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "expected 1 to 256"));
    assert_int_equal(pst_parts_init(&p, 10, 0, PST_PARTS_RANDOM, 0), PST_E_ARG);
    assert_int_equal(pst_parts_init(&p, PST_PARTS_VERTICES_MAX + 1, 8, PST_PARTS_RANDOM, 0), PST_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_a_permutation),  cmocka_unit_test(large_ids_come_back),
        cmocka_unit_test(places_stay_what_they_are), cmocka_unit_test(neighbours_are_spread),
        cmocka_unit_test(wrong_numbers_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
