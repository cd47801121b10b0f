/* The pieces of a batch. With grains, they do not depend on the number of replicas that share it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stages/lib/sampling/cut.h"

enum { GRAINS = 8, GRAIN_SEEDS_MAX = 70 };

struct piece {
    int64_t begin, n, grain;
};

/* The pieces of a share, if some do not fit: that depends on the piece alone. Returns how many. */
static int pieces_of(int64_t n, int64_t most, const struct pst_splits_share *share, struct piece *out)
{
    int64_t ends[GRAIN_SEEDS_MAX];
    int count = 0;
    struct pst_splits p;
    struct piece next;
    bool last = false;
    pst_splits_init(&p, ends, n, most, share);
    while (pst_splits_next(&p, &next.begin, &next.n, &last)) {
        assert_true(p.depth <= n);
        next.grain = pst_splits_grain(&p);
        if (next.n > 1 && (next.begin + next.n) % 3 == 0) {
            assert_true(pst_splits_split(&p));
            continue;
        }
        out[count++] = next;
        pst_splits_pop(&p);
    }
    assert_true(count == 0 || last);
    return count;
}

/* However many replicas share the grains of a batch, together they have the same pieces, each in its grain.
 */
static void pieces_do_not_depend_on_replicas(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= GRAIN_SEEDS_MAX; n++) {
        for (int64_t most = 1; most <= 12; most += 3) {
            struct piece one[GRAIN_SEEDS_MAX], many[GRAIN_SEEDS_MAX];
            const int want = pieces_of(n, most, &(struct pst_splits_share){GRAINS, 0, GRAINS}, one);
            int64_t at = 0;
            for (int i = 0; i < want; at += one[i++].n) {
                assert_int_equal(one[i].begin, at);
                assert_true(one[i].begin >= one[i].grain * n / GRAINS);
                assert_true(one[i].begin + one[i].n <= (one[i].grain + 1) * n / GRAINS);
            }
            assert_int_equal(at, n);
            for (int replicas = 2; replicas <= GRAINS; replicas *= 2) {
                int got = 0;
                for (int r = 0; r < replicas; r++)
                    got += pieces_of(
                        n, most,
                        &(struct pst_splits_share){GRAINS, r * (GRAINS / replicas), GRAINS / replicas},
                        many + got);
                assert_int_equal(got, want);
                assert_memory_equal(many, one, (size_t)want * sizeof *one);
            }
        }
    }
}

static void pieces_cover_everything_once(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 60; n++) {
        for (int64_t most = 1; most <= 20; most++) {
            int64_t ends[60], at = 0, begin, count;
            struct pst_splits p;
            bool last = false;
            pst_splits_init(&p, ends, n, most, NULL);
            for (int step = 0; pst_splits_next(&p, &begin, &count, &last); step++) {
                assert_int_equal(begin, at);
                assert_in_range(count, 1, most);
                assert_int_equal(last, begin + count == n);
                if (step % 3 == 0 && count > 1) {
                    assert_true(pst_splits_split(&p));
                    assert_true(p.depth <= n);
                    continue;
                }
                if (count == 1)
                    assert_false(pst_splits_split(&p));
                at += count;
                pst_splits_pop(&p);
            }
            assert_int_equal(at, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_do_not_depend_on_replicas),
                                       cmocka_unit_test(pieces_cover_everything_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
