/* The sorter and the topology made with it, against the one made in memory: any bound of memory, any number
 * of threads, every option; ids of more than 32 bits; tags; a spill that has no room. */
#include "tests/unit/store_fixture.h"

#include "common/store/sort/sorter.h"
#include "tests/unit/in_memory_csc.h"
#include "common/store/make/gen_random.h"
#include "common/store/dataset/verify.h"

#define VERTICES 1000
#define EDGES 400000 /* four times what the least memory holds */

static int64_t source[EDGES], target[EDGES];

static void make_edges(void)
{
    for (uint32_t i = 0; i < EDGES; i++) {
        struct pst_rng_block d = pst_gen_draw(7, PST_GEN_EDGE, i, 0);
        source[i] = d.word[0] % VERTICES;
        target[i] =
            d.word[1] % 100 == 0 ? source[i] : (d.word[2] % VERTICES) * (d.word[3] % VERTICES) / VERTICES;
    }
}

static pst_rc give(void *ctx, int64_t first, int64_t count, int64_t *s, int64_t *t)
{
    (void)ctx;
    memcpy(s, source + first, (size_t)count * sizeof *s);
    memcpy(t, target + first, (size_t)count * sizeof *t);
    return PST_OK;
}

static void check_csc(const struct pst_topology *expect, struct pst_csc_builder_spec spec, bool spilled)
{
    struct pst_build b;
    struct pst_csc_builder *c;
    assert_int_equal(pst_build_begin(&b, in_scratch("csc"), true), PST_OK);
    (void)snprintf(b.manifest.name, sizeof b.manifest.name, "csc");
    spec.build = &b;
    assert_int_equal(pst_csc_builder_new(&c, &spec), PST_OK);
    for (int64_t at = 0; at < EDGES; at += PST_CSC_BUILDER_EDGE_BLOCK)
        assert_int_equal(pst_csc_builder_add(c, source + at, target + at, NULL,
                                             pst_min_i64(PST_CSC_BUILDER_EDGE_BLOCK, EDGES - at)),
                         PST_OK);
    assert_int_equal(pst_csc_builder_finish(c, VERTICES, NULL), PST_OK);
    const struct pst_csc_builder_counts *n = pst_csc_builder_counts(c);
    assert_int_equal(n->parts > 0, spilled);
    assert_int_equal(n->edges, expect->edges);
    assert_int_equal(n->duplicates_removed, expect->duplicates_removed);
    assert_int_equal(n->loops_removed, expect->loops_removed);
    assert_int_equal(n->loops_added, expect->loops_added);
    assert_int_equal(pst_build_commit(&b), PST_OK);
    pst_csc_builder_free(c);
    pst_build_release(&b);
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, in_scratch("csc")), PST_OK);
    assert_memory_equal(ds.indptr.map, expect->indptr, (VERTICES + 1) * sizeof(int64_t));
    assert_memory_equal(ds.indices.map, expect->indices.any, (size_t)expect->edges * sizeof(int32_t));
    pst_dataset_close(&ds);
    assert_int_equal(pst_dataset_verify(in_scratch("csc"), false), PST_OK);
}

static void test_any_memory_any_threads(void **state)
{
    (void)state;
    static const uint64_t memory[] = {PST_CSC_BUILDER_MEMORY_MIN, 6u << 20, 64u << 20};
    make_edges();
    for (int options = 0; options < 12; options++) {
        const struct pst_topology_spec in_memory = {.vertices = VERTICES,
                                                    .edges = EDGES,
                                                    .fn = give,
                                                    .symmetrize = options & 1,
                                                    .dedupe = options & 2,
                                                    .self_loops =
                                                        (enum pst_csc_builder_self_loops)(options / 4)};
        struct pst_topology expect;
        assert_int_equal(pst_topology_build(&expect, &in_memory, NULL), PST_OK);
        for (size_t m = 0; m < sizeof memory / sizeof memory[0]; m++) {
            int threads = 1 + (options + (int)m) % 4;
            check_csc(&expect,
                      (struct pst_csc_builder_spec){.symmetrize = options & 1,
                                                    .dedupe = options & 2,
                                                    .self_loops = in_memory.self_loops,
                                                    .memory_bytes = memory[m],
                                                    .threads = threads},
                      m < 2);
        }
        pst_topology_release(&expect);
    }
}

struct key {
    int64_t high, low;
    int32_t tag;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->high != y->high)
        return x->high < y->high ? -1 : 1;
    if (x->low != y->low)
        return x->low < y->low ? -1 : 1;
    return (x->tag > y->tag) - (x->tag < y->tag);
}

/* Keys that become wide part of the way, or have tags; buckets that do not fit and are parted again. */
static void check_sorter(bool tagged, bool grow, bool dedupe, int threads)
{
    enum { KEYS = 300000, STEP = 1000 };
    struct key *expect = calloc(KEYS, sizeof *expect);
    int64_t high[PST_SORTER_BLOCK], low[PST_SORTER_BLOCK], n, distinct, at = 0;
    int32_t tag[PST_SORTER_BLOCK];
    assert_non_null(expect);
    struct pst_sorter *s;
    const struct pst_sorter_spec spec = {.dir = scratch,
                                         .memory_bytes = PST_SORTER_MEMORY_MIN,
                                         .threads = threads,
                                         .dedupe = dedupe,
                                         .tagged = tagged};
    assert_int_equal(pst_sorter_new(&s, &spec), PST_OK);
    for (int64_t first = 0; first < KEYS; first += STEP) {
        for (int i = 0; i < STEP; i++) {
            struct pst_rng_block d = pst_gen_draw(11, PST_GEN_EDGE, (uint64_t)(first + i), 0);
            int64_t far = grow && first > KEYS / 3 ? PST_SORTER_ID_MAX - UINT16_MAX : 0;
            high[i] = (d.word[0] & UINT16_MAX) + far;
            low[i] = d.word[1] % 16 + (d.word[2] % 2 ? far : 0);
            tag[i] = (int32_t)(d.word[3] % 3);
            expect[first + i] = (struct key){high[i], low[i], tagged ? tag[i] : 0};
        }
        assert_int_equal(pst_sorter_add(s, high, low, tagged ? tag : NULL, STEP), PST_OK);
    }
    qsort(expect, KEYS, sizeof *expect, compare_keys);
    int64_t total = KEYS;
    for (int64_t i = total = 1; dedupe && i < KEYS; i++)
        if (compare_keys(&expect[i], &expect[total - 1]) != 0)
            expect[total++] = expect[i];
    total = dedupe ? total : KEYS;
    assert_int_equal(pst_sorter_finish(s, &distinct), PST_OK);
    assert_true(pst_sorter_parts(s) > 3);
    assert_int_equal(distinct, dedupe ? -1 : KEYS);
    while (pst_sorter_next(s, high, low, tag, &n) == PST_OK && n > 0)
        for (int64_t i = 0; i < n; i++, at++) {
            assert_true(at < total);
            const struct key found = {high[i], low[i], tagged ? tag[i] : 0};
            assert_int_equal(compare_keys(&found, &expect[at]), 0);
        }
    assert_int_equal(at, total);
    pst_sorter_free(s);
    free(expect);
}

/* Splitters from the first keys say nothing of those that come: sorted input, then one edge again and again.
 */
static void test_buckets_that_do_not_fit(void **state)
{
    (void)state;
    enum { KEYS = 600000, STEP = 10000 };
    static int64_t high[PST_SORTER_BLOCK], low[PST_SORTER_BLOCK];
    for (int i = 0; i < 8; i++) {
        bool dedupe = i & 1, same = i & 2;
        const struct pst_sorter_spec spec = {
            .dir = scratch, .memory_bytes = PST_SORTER_MEMORY_MIN, .threads = 1 + (i & 4), .dedupe = dedupe};
        struct pst_sorter *s;
        int64_t n, at = 0, distinct;
        assert_int_equal(pst_sorter_new(&s, &spec), PST_OK);
        for (int64_t first = 0; first < KEYS; first += STEP) {
            for (int64_t k = 0; k < STEP; k++) {
                high[k] = same && first > 0 ? 70000 : (first + k) / 2;
                low[k] = same && first > 0 ? 5 : 3;
            }
            assert_int_equal(pst_sorter_add(s, high, low, NULL, STEP), PST_OK);
        }
        assert_int_equal(pst_sorter_finish(s, &distinct), PST_OK);
        int64_t total = same ? (dedupe ? STEP / 2 + 1 : KEYS) : (dedupe ? KEYS / 2 : KEYS);
        while (pst_sorter_next(s, high, low, NULL, &n) == PST_OK && n > 0)
            for (int64_t k = 0; k < n; k++, at++) {
                int64_t rank = dedupe ? at : at / 2;
                assert_int_equal(high[k], same && at >= (dedupe ? STEP / 2 : STEP) ? 70000 : rank);
            }
        assert_int_equal(at, total);
        pst_sorter_free(s);
    }
}

/* A sample of sorted keys makes buckets that fit, so none is parted again. One of ids that come out wide does
 * not hurt. */
static void test_a_sample_divides_sorted_keys(void **state)
{
    (void)state;
    enum { KEYS = 300000, STEP = 10000 };
    static int64_t high[PST_SORTER_BLOCK], low[PST_SORTER_BLOCK];
    for (int i = 0; i < 8; i++) {
        const bool sampled = i & 1, wide = i & 2;
        const struct pst_sorter_spec spec = {
            .dir = scratch, .memory_bytes = PST_SORTER_MEMORY_MIN, .threads = 1 + i / 4};
        const int64_t far = wide ? (int64_t)1 << 32 : 0;
        struct pst_sorter *s;
        int64_t n, at = 0, distinct;
        assert_int_equal(pst_sorter_new(&s, &spec), PST_OK);
        const int64_t sample = pst_sorter_sample(s, KEYS);
        assert_in_range(sample, 100, KEYS / 10);
        assert_int_equal(pst_sorter_sample(s, KEYS / 1000), 0);
        for (int64_t k = 0; k < sample && sampled; k++) {
            high[0] = k * (KEYS / sample) + (k > sample / 2 ? far : 0);
            low[0] = 3;
            assert_int_equal(pst_sorter_expect(s, high, low, 1), PST_OK);
        }
        for (int64_t first = 0; first < KEYS; first += STEP) {
            for (int64_t k = 0; k < STEP; k++) {
                high[k] = first + k + (first + k > KEYS / 2 ? far : 0);
                low[k] = 3;
            }
            assert_int_equal(pst_sorter_add(s, high, low, NULL, STEP), PST_OK);
            if (first == 4 * STEP) /* memory is not full yet */
                assert_int_equal(pst_sorter_parts(s) > 0, sampled);
        }
        const int64_t parts = pst_sorter_parts(s);
        assert_int_equal(pst_sorter_finish(s, &distinct), PST_OK);
        assert_int_equal(distinct, KEYS);
        if (sampled && !wide)
            assert_int_equal(pst_sorter_parts(s), parts);
        else
            assert_true(pst_sorter_parts(s) > parts);
        while (pst_sorter_next(s, high, low, NULL, &n) == PST_OK && n > 0)
            for (int64_t k = 0; k < n; k++, at++)
                assert_int_equal(high[k], at + (at > KEYS / 2 ? far : 0));
        assert_int_equal(at, KEYS);
        pst_sorter_free(s);
    }
}

static void test_wide_and_tagged(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        check_sorter(i & 1, i & 2, i & 4, 1 + i % 3);
}

/* Freed before the end, with threads at work; an id that is too large; too little memory. */
static void test_refusals(void **state)
{
    (void)state;
    int64_t id[PST_CSC_BUILDER_EDGE_BLOCK];
    struct pst_sorter *s;
    struct pst_sorter_spec spec = {.dir = scratch, .memory_bytes = PST_SORTER_MEMORY_MIN, .threads = 3};
    for (int i = 0; i < PST_CSC_BUILDER_EDGE_BLOCK; i++)
        id[i] = PST_CSC_BUILDER_EDGE_BLOCK - i;
    for (int finished = 0; finished < 2; finished++) {
        assert_int_equal(pst_sorter_new(&s, &spec), PST_OK);
        for (int i = 0; i < 20; i++)
            assert_int_equal(pst_sorter_add(s, id, id, NULL, PST_CSC_BUILDER_EDGE_BLOCK), PST_OK);
        int64_t distinct;
        if (finished)
            assert_int_equal(pst_sorter_finish(s, &distinct), PST_OK);
        pst_sorter_free(s);
    }
    assert_int_equal(pst_sorter_new(&s, &spec), PST_OK);
    id[0] = PST_SORTER_ID_MAX + 1;
    assert_int_equal(pst_sorter_add(s, id, id, NULL, 1), PST_E_LIMIT);
    pst_sorter_free(s);
    spec.memory_bytes = 1000;
    assert_int_equal(pst_sorter_new(&s, &spec), PST_E_ARG);
    spec = (struct pst_sorter_spec){
        .dir = "/nowhere/at/all", .memory_bytes = PST_SORTER_MEMORY_MIN, .threads = 1};
    assert_int_equal(pst_sorter_new(&s, &spec), PST_OK);
    pst_rc rc = PST_OK;
    for (int i = 0; i < 20 && rc == PST_OK; i++)
        rc = pst_sorter_add(s, id + 1, id + 1, NULL, PST_CSC_BUILDER_EDGE_BLOCK - 1);
    assert_int_equal(rc, PST_E_IO);
    assert_error_has("/nowhere/at/all");
    pst_sorter_free(s);
    assert_int_equal(names_in(scratch), 1); /* the dataset of the test before: no spill is left */
}

static void test_ranks(void **state)
{
    (void)state;
    struct pst_rank r;
    static const int64_t ids[] = {5, 1000000, 64, 5, 63, 0};
    pst_rank_init(&r, 1 << 20);
    assert_int_equal(pst_rank_add(&r, ids, 6), PST_OK);
    static const int64_t far = INT64_C(1) << 40;
    assert_int_equal(pst_rank_add(&r, &far, 1), PST_E_LIMIT);
    assert_error_has("--memory");
    assert_int_equal(pst_rank_ready(&r), PST_OK);
    assert_int_equal(r.members, 5);
    assert_int_equal(pst_rank_of(&r, 0), 0);
    assert_int_equal(pst_rank_of(&r, 63), 2);
    assert_int_equal(pst_rank_of(&r, 64), 3);
    assert_int_equal(pst_rank_of(&r, 1000000), 4);
    pst_rank_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_memory_any_threads),
                                       cmocka_unit_test(test_wide_and_tagged),
                                       cmocka_unit_test(test_buckets_that_do_not_fit),
                                       cmocka_unit_test(test_a_sample_divides_sorted_keys),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
