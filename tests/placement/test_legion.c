/* test_legion.c: shares, counts and placements of Legion's policies against a replay of the same batches,
 * which are sampled by other code. */
#include "tests/placement/legion_fixture.h"

#define EPOCH 1 /* the one that is counted */

/* ---- shares --------------------------------------------------------------------------------------- */

/* Each training vertex is a seed once an epoch; batches of a device differ by at most one seed. */
static void every_seed_once(void **state)
{
    (void)state;
    static const enum pst_legion_policy policies[] = {PST_LEGION_LEGION, PST_LEGION_GNNLAB,
                                                      PST_LEGION_PAGRAPH};
    static int64_t seeds[TRAIN], device_of[2][VERTICES];
    for (int k = 0; k < 3; k++) {
        struct pst_legion l;
        const struct pst_legion_config c = settings(policies[k], 6, 2);
        assert_int_equal(pst_legion_init(&l, &c), PST_OK);
        assert_int_equal(l.shares.steps, 4);
        memset(device_of, 0xff, sizeof device_of);
        int moved = 0;
        for (int epoch = 0; epoch < 2; epoch++)
            for (int d = 0; d < 6; d++) {
                int64_t least = TRAIN, most = 0;
                for (int64_t step = 0; step < 4; step++) {
                    const int64_t n = pst_legion_shares_batch(&l.shares, d, epoch, step, seeds);
                    least = pst_min_i64(least, n);
                    most = pst_max_i64(most, n);
                    for (int64_t i = 0; i < n; i++) {
                        assert_int_equal(device_of[epoch][seeds[i]], -1);
                        device_of[epoch][seeds[i]] = d;
                    }
                }
                assert_true(most - least <= 1 && most <= l.shares.batch_max && least > 0);
            }
        for (int64_t i = 0; i < TRAIN; i++) {
            assert_true(device_of[0][train[i]] >= 0 && device_of[1][train[i]] >= 0);
            moved += device_of[0][train[i]] != device_of[1][train[i]];
        }
        assert_true(policies[k] == PST_LEGION_GNNLAB ? moved > TRAIN / 2 : moved == 0);
        pst_legion_release(&l);
    }
}

/* Shuffles: epochs and devices differ, the same epoch repeats. */
static void orders_repeat(void **state)
{
    (void)state;
    struct pst_legion_shares s;
    const uint64_t all[1] = {1};
    static const int8_t part[VERTICES];
    int64_t first[TRAIN], again[TRAIN], other[TRAIN];
    const struct pst_legion_shares_config c = {
        .train = train, .ntrain = TRAIN, .devices = 1, .part = part, .devices_of_part = all, .batch = TRAIN};
    assert_int_equal(pst_legion_shares_init(&s, &c), PST_OK);
    assert_int_equal(pst_legion_shares_batch(&s, 0, 3, 0, first), TRAIN);
    (void)pst_legion_shares_batch(&s, 0, 4, 0, other);
    (void)pst_legion_shares_batch(&s, 0, 3, 0, again);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    pst_legion_shares_release(&s);
}

/* ceil(largest share / batch) steps. */
static void steps_of_the_largest_share(void **state)
{
    (void)state;
    struct pst_legion l;
    struct pst_legion_config c = settings(PST_LEGION_PAGRAPH, 4, 4);
    c.batch = 37;
    c.batches = 0;
    assert_int_equal(pst_legion_init(&l, &c), PST_OK);
    int64_t largest = 0;
    for (int d = 0; d < 4; d++)
        largest = pst_max_i64(largest, l.shares.begin[d + 1] - l.shares.begin[d]);
    assert_int_equal(l.shares.steps, (largest + 36) / 37);
    assert_true(l.shares.batch_max <= 37);
    pst_legion_release(&l);
}

static void too_few_training_vertices(void **state)
{
    (void)state;
    struct pst_legion l;
    struct pst_legion_config c = settings(PST_LEGION_LEGION, 8, 4);
    c.ntrain = 3;
    assert_int_equal(pst_legion_init(&l, &c), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "has no training vertex: 3 are divided among 8 devices"));
    c.policy = PST_LEGION_QUIVER;
    assert_int_equal(pst_legion_init(&l, &c), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "3 training vertices are fewer than the 32 batches"));
}

/* ---- counts --------------------------------------------------------------------------------------- */

/* What pst_legion_traffic_of says of each device is what a walk through its batches meets. */
static void replay(struct pst_legion *l)
{
    static struct sampled s;
    struct pst_legion_counts counts;
    const struct pst_legion_placement *p = &l->placement;
    assert_int_equal(pst_legion_count(l, EPOCH, &counts), PST_OK);
    for (int d = 0; d < p->devices; d++) {
        struct pst_legion_traffic found, expected = {.rows_host = 0};
        const int8_t *rows = p->rows + p->group_of[d] * VERTICES,
                     *lists = p->lists + p->group_of[d] * VERTICES;
        for (int64_t step = 0; step < l->shares.steps; step++) {
            sample(l, d, EPOCH, step, &s);
            for (int64_t i = 0; i < s.n; i++) {
                const int64_t v = s.vertices[i];
                const int list = p->lists_everywhere ? d : lists[v];
                if (rows[v] < 0)
                    expected.rows_host++;
                else
                    expected.rows[rows[v]]++;
                if (list < 0) {
                    expected.edges_host += s.edges[i];
                    expected.lines_host += s.lines[i];
                } else {
                    expected.edges[list] += s.edges[i];
                }
            }
        }
        pst_legion_traffic_of(p, &counts, d, &found);
        assert_memory_equal(&found, &expected, sizeof found);
        assert_true(expected.rows_host > 0);
    }
    pst_legion_counts_release(&counts);
}

/* No device holds more than it has room for, and none reads from a device that it is not linked with. */
static void fits(const struct pst_legion *l, const struct pst_legion_config *c)
{
    const struct pst_legion_placement *p = &l->placement;
    for (int g = 0; g < p->groups; g++) {
        uint64_t bytes[PST_CLIQUES_MAX] = {0};
        for (int64_t v = 0; v < VERTICES; v++) {
            const int row = p->rows[g * VERTICES + v], list = p->lists[g * VERTICES + v];
            assert_true(row < 0 || p->members[g] >> row & 1);
            assert_true(list < 0 || p->members[g] >> list & 1);
            if (row >= 0)
                bytes[row] += c->row_bytes;
            if (list >= 0)
                bytes[list] += pst_legion_list_bytes(&graph, v);
        }
        for (int d = 0; d < c->devices; d++) {
            assert_true(bytes[d] <= c->cache_bytes);
            assert_true((p->members[g] >> d & 1) == (p->group_of[d] == g));
        }
    }
}

static void counts_equal_a_replay(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size *= 2)
        for (int k = 0; k < PST_LEGION_POLICIES; k++) {
            struct pst_legion l;
            struct pst_legion_config c = settings((enum pst_legion_policy)k, 4, size);
            c.row_bytes = 100;
            c.cache_bytes = k == PST_LEGION_TOPOGPU ? 150000 : 12000;
            c.alpha = k == PST_LEGION_LEGION && size == 2 ? 35 : PST_LEGION_SEARCH;
            assert_int_equal(pst_legion_init(&l, &c), PST_OK);
            fits(&l, &c);
            replay(&l);
            pst_legion_release(&l);
        }
}

/* ---- placements ----------------------------------------------------------------------------------- */

/* The sum of what devices counted for v. */
static uint64_t heat(const struct pst_legion *l, uint64_t devices, int64_t v)
{
    uint64_t sum = 0;
    for (int d = 0; d < l->config.devices; d++)
        sum += devices >> d & 1 ? l->ahead.rows[d * VERTICES + v] : 0;
    return sum;
}

/* Each group holds exactly the rows with the highest sums: of its own devices, or of all if the policy
 * shuffles globally. Of equal ones, lower ids come first. */
static void caches_are_the_top(void **state)
{
    (void)state;
    static const enum pst_legion_policy policies[] = {PST_LEGION_LEGION, PST_LEGION_GNNLAB, PST_LEGION_QUIVER,
                                                      PST_LEGION_PAGRAPH_PLUS};
    for (int k = 0; k < 4; k++) {
        struct pst_legion l;
        struct pst_legion_config c = settings(policies[k], 6, 3);
        c.alpha = 0;
        assert_int_equal(pst_legion_init(&l, &c), PST_OK);
        const bool peers = policies[k] == PST_LEGION_LEGION || policies[k] == PST_LEGION_QUIVER;
        assert_int_equal(l.placement.groups, peers ? 2 : 6);
        for (int g = 0; g < l.placement.groups; g++) {
            const int8_t *at = l.placement.rows + g * VERTICES;
            const uint64_t of = l.shares.global ? 63 : l.placement.members[g];
            int64_t held = 0, outside = -1;
            for (int64_t v = 0; v < VERTICES; v++) {
                held += at[v] >= 0;
                if (at[v] < 0 && (outside < 0 || heat(&l, of, v) > heat(&l, of, outside)))
                    outside = v;
            }
            assert_int_equal(held, peers ? 450 : 150);
            for (int64_t v = 0; v < VERTICES && policies[k] != PST_LEGION_QUIVER; v++)
                if (at[v] >= 0)
                    assert_true(heat(&l, of, v) > heat(&l, of, outside) ||
                                (heat(&l, of, v) == heat(&l, of, outside) && v < outside));
        }
        pst_legion_release(&l);
    }
}

/* quiver: v is on device v mod K_g of its clique, and each clique has the same rows. */
static void quiver_stripes(void **state)
{
    (void)state;
    struct pst_legion l;
    const struct pst_legion_config c = settings(PST_LEGION_QUIVER, 6, 3);
    assert_int_equal(pst_legion_init(&l, &c), PST_OK);
    for (int64_t v = 0; v < VERTICES; v++) {
        const int first = l.placement.rows[v], second = l.placement.rows[VERTICES + v];
        assert_int_equal(first >= 0 ? first + 3 : first, second);
        assert_true(first < 0 || first == v % 3);
    }
    pst_legion_release(&l);
}

/* pagraph: rows by the number of lists that they are in, of those that the device's batches can read. */
static void pagraph_by_degree(void **state)
{
    (void)state;
    struct pst_legion l;
    const struct pst_legion_config c = settings(PST_LEGION_PAGRAPH, 2, 1);
    static bool reads[VERTICES];
    static int64_t lists[VERTICES];
    assert_int_equal(pst_legion_init(&l, &c), PST_OK);
    for (int d = 0; d < 2; d++) {
        memset(reads, 0, sizeof reads);
        memset(lists, 0, sizeof lists);
        for (int64_t i = l.shares.begin[d]; i < l.shares.begin[d + 1]; i++) {
            const int64_t v = l.shares.ids[i];
            reads[v] = true;
            for (int64_t e = indptr[v]; e < indptr[v + 1]; e++)
                reads[indices[e]] = true;
        }
        for (int64_t v = 0; v < VERTICES; v++)
            for (int64_t e = indptr[v]; reads[v] && e < indptr[v + 1]; e++)
                lists[indices[e]]++;
        int64_t least = INT64_MAX, outside = 0;
        for (int64_t v = 0; v < VERTICES; v++) {
            if (l.placement.rows[d * VERTICES + v] >= 0)
                least = pst_min_i64(least, lists[v]);
            else
                outside = pst_max_i64(outside, lists[v]);
        }
        assert_true(least >= outside && outside > 0);
    }
    pst_legion_release(&l);
}

static void topogpu_needs_room(void **state)
{
    (void)state;
    struct pst_legion l;
    struct pst_legion_config c = settings(PST_LEGION_TOPOGPU, 2, 2);
    const uint64_t lists = (uint64_t)graph.edges * 4 + VERTICES * 8;
    c.cache_bytes = lists - 1;
    assert_int_equal(pst_legion_init(&l, &c), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "topogpu: all lists of neighbours take"));
    c.cache_bytes = lists + 10;
    assert_int_equal(pst_legion_init(&l, &c), PST_OK);
    int64_t rows = 0;
    for (int64_t v = 0; v < VERTICES; v++)
        rows += l.placement.rows[v] >= 0;
    assert_int_equal(rows, 20);
    pst_legion_release(&l);
}

/* Equal settings give equal placements, and another seed gives others. */
static void placements_repeat(void **state)
{
    (void)state;
    struct pst_legion first, again, other;
    struct pst_legion_config c = settings(PST_LEGION_LEGION, 4, 2);
    c.alpha = 0;
    assert_int_equal(pst_legion_init(&first, &c), PST_OK);
    assert_int_equal(pst_legion_init(&again, &c), PST_OK);
    c.seed++;
    assert_int_equal(pst_legion_init(&other, &c), PST_OK);
    assert_memory_equal(first.placement.rows, again.placement.rows, 2 * VERTICES);
    assert_memory_not_equal(first.placement.rows, other.placement.rows, 2 * VERTICES);
    pst_legion_release(&first);
    pst_legion_release(&again);
    pst_legion_release(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_seed_once),
        cmocka_unit_test(orders_repeat),
        cmocka_unit_test(steps_of_the_largest_share),
        cmocka_unit_test(too_few_training_vertices),
        cmocka_unit_test(counts_equal_a_replay),
        cmocka_unit_test(caches_are_the_top),
        cmocka_unit_test(quiver_stripes),
        cmocka_unit_test(pagraph_by_degree),
        cmocka_unit_test(topogpu_needs_room),
        cmocka_unit_test(placements_repeat),
    };
    return cmocka_run_group_tests(tests, make_graph, free_graph);
}
