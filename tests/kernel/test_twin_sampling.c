/* The twins of sampling and shuffling: the same to the last bit. */
#include "common/util/rng.h"
#include "tests/kernel/twin_graph.h"

#include <sys/mman.h>

static void test_sample(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int fanout = random_fanout();
        struct graph g = graph_new(1 + size_below(3000), rnd(2) ? 4 : 8, fanout > 64 ? 6000 : 300);
        struct draw d = draw_new(&g, size_below(fanout > 64 || fanout < 0 ? 30 : 600), fanout, rnd(2));
        assert_int_equal(draw_both(&g, &d), PST_OK);
        settled(PST_OK);
        same_bytes(&d.indptr, d.indptr.bytes, "indptr");
        same_bytes(&d.out, d.out.bytes, "sampled neighbours");
        if (d.capacity > 0) { /* one too few is refused by both, and a good call follows */
            d.capacity--;
            assert_int_equal(draw_both(&g, &d), PST_E_LIMIT);
            settled(PST_E_LIMIT);
        }
        draw_free(&d);
        graph_free(&g);
    }
}

/* The ids at the picked positions are the sample. */
static void test_pick(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int fanout = random_fanout();
        struct graph g = graph_new(1 + size_below(3000), rnd(2) ? 4 : 8, fanout > 64 ? 6000 : 300);
        struct draw d = draw_new(&g, size_below(fanout > 64 || fanout < 0 ? 30 : 600), fanout, rnd(2));
        struct both degrees = both_new((size_t)d.n * I64), indptr = both_new((size_t)(d.n + 1) * I32),
                    at = both_new((size_t)d.capacity * I64);
        const int64_t *vertices = d.vertices.host;
        for (int64_t i = 0; i < d.n; i++)
            ((int64_t *)degrees.host)[i] = g.host.indptr[vertices[i] + 1] - g.host.indptr[vertices[i]];
        send(&degrees);
        const bool less = d.capacity > 0 && rnd(8) == 0, bad = d.n > 0 && !less && rnd(8) == 0;
        if (bad) {
            ((int64_t *)degrees.host)[rnd((uint64_t)d.n)] = -1;
            send(&degrees);
        }
        const pst_rc want = less ? PST_E_LIMIT : bad ? PST_E_FORMAT : PST_OK;
        assert_int_equal(cpu->pick(NULL, &d.key, vertices, degrees.host, d.n, d.fanout, d.replace,
                                   indptr.host, at.host, d.capacity - less),
                         want);
        assert_int_equal(cuda->pick(queue, &d.key, d.vertices.device, degrees.device, d.n, d.fanout,
                                    d.replace, indptr.device, at.device, d.capacity - less),
                         PST_OK);
        settled(want);
        if (want == PST_OK) {
            same_bytes(&indptr, indptr.bytes, "indptr");
            same_bytes(&at, at.bytes, "positions");
            assert_int_equal(draw_both(&g, &d), PST_OK);
            settled(PST_OK);
            assert_memory_equal(indptr.host, d.indptr.host, indptr.bytes);
            for (int64_t i = 0; i < d.n; i++) {
                for (int32_t e = ((int32_t *)indptr.host)[i]; e < ((int32_t *)indptr.host)[i + 1]; e++) {
                    const int64_t edge = g.host.indptr[vertices[i]] + ((int64_t *)at.host)[e];
                    const int64_t id = g.host.index_bytes == 4 ? ((const int32_t *)g.host.indices)[edge]
                                                               : ((const int64_t *)g.host.indices)[edge];
                    assert_int_equal(((int64_t *)d.out.host)[e], id);
                }
            }
        }
        both_free(&degrees);
        both_free(&indptr);
        both_free(&at);
        draw_free(&d);
        graph_free(&g);
    }
}

/* What both refuse: no vertex, a row out of range, a neighbour that is none. */
static void test_sample_faults(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct graph g = graph_new(2 + size_below(200), rnd(2) ? 4 : 8, 60);
        const int64_t vertices = g.host.vertices, wrong = (int64_t)rnd((uint64_t)vertices);
        struct draw d = draw_new(&g, vertices, (int)rnd(70) - 1, rnd(2));
        int64_t *ids = d.vertices.host;
        for (int64_t i = 0; i < vertices; i++)
            ids[i] = i;
        const int kind = (int)rnd(4);
        if (kind == 0)
            ids[wrong] = -1 - (int64_t)rnd(5);
        if (kind == 1)
            ids[wrong] = vertices + (int64_t)rnd(5);
        if (kind == 2)
            ((int64_t *)g.indptr.host)[wrong + 1] = g.host.edges + 1 + (int64_t)rnd(1000);
        if (kind == 3)
            ((int64_t *)g.indptr.host)[wrong] = -1 - (int64_t)rnd(1000);
        send(&d.vertices);
        send(&g.indptr);
        both_free(&d.out);
        d.capacity = 100000;
        d.out = both_new((size_t)d.capacity * I64);
        assert_int_equal(draw_both(&g, &d), PST_E_FORMAT);
        settled(PST_E_FORMAT);
        draw_free(&d);
        graph_free(&g);
    }
}

static void test_sample_bad_neighbour(void **state)
{
    (void)state;
    struct graph g = graph_new(100, 4, 60);
    struct draw d = draw_new(&g, 100, -1, false);
    for (int64_t i = 0; i < 100; i++)
        ((int64_t *)d.vertices.host)[i] = i;
    send(&d.vertices);
    both_free(&d.out);
    d.capacity = g.host.edges;
    d.out = both_new((size_t)d.capacity * I64);
    ((int32_t *)g.indices.host)[g.host.edges / 2] = 100;
    send(&g.indices);
    assert_int_equal(draw_both(&g, &d), PST_E_FORMAT);
    settled(PST_E_FORMAT);
    draw_free(&d);
    graph_free(&g);
}

/* Edges past 2^31 and 2^32: most of the array is never touched. */
static void test_sample_far_edges(void **state)
{
    (void)state;
    needs_gigabytes();
    const int64_t edges = ((int64_t)1 << 32) + 1000;
    struct graph g = {.indptr = both_new(5 * I64)};
    int64_t *indptr = g.indptr.host;
    indptr[1] = 500;
    indptr[2] = ((int64_t)1 << 31) - 100;
    indptr[3] = ((int64_t)1 << 32) + 100;
    indptr[4] = edges;
    send(&g.indptr);
    const size_t bytes = (size_t)edges * I32;
    void *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *device = NULL;
    assert_true(host != MAP_FAILED);
    if (cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, bytes, &device, why) != PST_OK)
        fail_msg("%s", why);
    assert_int_equal(cuda->fill(queue, (char *)device + bytes - 4096, 0, 4096), PST_OK);
    for (int64_t e = edges - 900; e < edges; e++)
        ((int32_t *)host)[e] = (int32_t)(e % 4);
    assert_int_equal(cuda->copy(queue, (char *)device + bytes - 3600, (char *)host + bytes - 3600, 3600),
                     PST_OK);
    settled(PST_OK);
    g.host = (struct pst_csc){indptr, host, 4, 4, edges};
    g.device = (struct pst_csc){g.indptr.device, device, 4, 4, edges};
    const int fanouts[] = {1, 7, 25, 32, 33, 500};
    for (size_t f = 0; f < sizeof fanouts / sizeof *fanouts; f++) {
        struct draw d = draw_new(&g, 20, fanouts[f], false);
        for (int i = 0; i < 20; i++)
            ((int64_t *)d.vertices.host)[i] = 3; /* whose edges lie past 2^32 */
        send(&d.vertices);
        both_free(&d.out);
        d.capacity = 20 * fanouts[f];
        d.out = both_new((size_t)d.capacity * I64);
        assert_int_equal(draw_both(&g, &d), PST_OK);
        settled(PST_OK);
        same_bytes(&d.out, d.out.bytes, "neighbours past 2^32");
        draw_free(&d);
    }
    assert_int_equal(munmap(host, bytes), 0);
    cuda->release(PST_TWIN_MEMORY_DEVICE, device);
    both_free(&g.indptr);
}

/* Three quarters of 2^32 neighbours, so that every bit of a draw counts: its low half decides, by a carry,
 * which of two positions side by side is taken. Written are the ones that are drawn, and those beside them.
 */
static void test_sample_low_bits(void **state)
{
    (void)state;
    needs_gigabytes();
    enum { KEYS = 6 };
    const int64_t degree = ((int64_t)3 << 30) + 1;
    const size_t bytes = (size_t)(degree + 1) * I32;
    struct graph g = {.indptr = both_new(5 * I64)};
    for (int v = 1; v <= 4; v++)
        ((int64_t *)g.indptr.host)[v] = degree;
    send(&g.indptr);
    int32_t *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int32_t *device = NULL;
    assert_true(host != MAP_FAILED);
    if (cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, bytes, (void **)&device, why) != PST_OK)
        fail_msg("%s", why);
    g.host = (struct pst_csc){g.indptr.host, host, 4, 4, degree};
    g.device = (struct pst_csc){g.indptr.device, device, 4, 4, degree};
    const int fanouts[] = {4, 7, 16, 32, 33, 200};
    for (int i = 0; i < KEYS; i++) {
        struct draw d = draw_new(&g, 1, fanouts[i], true);
        *(int64_t *)d.vertices.host = 0;
        send(&d.vertices);
        both_free(&d.out);
        d.capacity = fanouts[i];
        d.out = both_new((size_t)d.capacity * I64);
        const struct pst_rng_stream stream =
            pst_rng_stream_of(PST_RNG_SAMPLE, d.key.seed, d.key.epoch, d.key.batch, d.key.hop);
        for (int slot = 0; slot < fanouts[i]; slot++) {
            const struct pst_rng_block drawn = pst_rng_draw(&stream, 0, (uint32_t)slot / 2);
            const int64_t at = (int64_t)pst_rng_bounded(pst_rng_u64(&drawn, slot % 2), (uint64_t)degree);
            const int64_t first = at > 0 ? at - 1 : 0;
            for (int64_t e = first; e <= at + 1; e++)
                host[e] = (int32_t)(e % 4);
            assert_int_equal(cuda->copy(queue, device + first, host + first, 2 * I32 + I32), PST_OK);
        }
        settled(PST_OK);
        assert_int_equal(draw_both(&g, &d), PST_OK);
        settled(PST_OK);
        same_bytes(&d.out, d.out.bytes, "neighbours of three quarters of 2^32");
        draw_free(&d);
    }
    assert_int_equal(munmap(host, bytes), 0);
    cuda->release(PST_TWIN_MEMORY_DEVICE, device);
    both_free(&g.indptr);
}

static void test_shuffle(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(5000);
        struct both perm = both_new((size_t)n * I64);
        const uint64_t seed = rnd(UINT64_MAX), epoch = rnd(100);
        cpu->shuffle(NULL, seed, epoch, perm.host, n);
        cuda->shuffle(queue, seed, epoch, perm.device, n);
        same_bytes(&perm, perm.bytes, "permutation");
        both_free(&perm);
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),           cmocka_unit_test(test_pick),
        cmocka_unit_test(test_sample_faults),    cmocka_unit_test(test_sample_bad_neighbour),
        cmocka_unit_test(test_sample_far_edges), cmocka_unit_test(test_sample_low_bits),
        cmocka_unit_test(test_shuffle),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
