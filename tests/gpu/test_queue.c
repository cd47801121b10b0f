/* What a GPU's work costs, as the host build counts it, and what a queue does after a failure. On a real GPU,
 * nothing is counted. */
#include "tests/kernel/twin_graph.h"
#include "tests/gpu/host_counts.h"

/* A star: all edges come from source 0. And a graph with one hub, whose edges cross chunks of every level. */
static void no_warp_reads_more_than_a_chunk(void **state)
{
    (void)state;
    enum { DSTS = 20000, SOURCES = 500, DIM = 24, CHUNK = 64 };
    uint64_t count[PST_HOST_COUNTS];
    for (uint64_t others = 1; others <= SOURCES; others += SOURCES - 1) {
        struct both indptr = both_new((DSTS + 1) * I32), indices = both_new(DSTS * I32),
                    out = floats_new((int64_t)DSTS * DIM), in = floats_new((int64_t)SOURCES * DIM);
        for (int32_t d = 0; d < DSTS; d++) {
            ((int32_t *)indptr.host)[d + 1] = d + 1;
            ((int32_t *)indices.host)[d] = rnd(3) ? 0 : (int32_t)rnd(others);
        }
        send(&indptr);
        send(&indices);
        cpu->mean_grad(NULL, indptr.host, indices.host, DSTS, out.host, DIM, in.host, DIM, DIM);
        (void)host_counts(count);
        cuda->mean_grad_n(queue, indptr.device, indices.device, DSTS, DSTS, SOURCES, out.device, DIM,
                          in.device, DIM, DIM);
        settled(PST_OK);
        if (host_counts(count)) {
            assert_in_range(count[PST_HOST_ROWS], 1, CHUNK);
            assert_in_range(count[PST_HOST_LAUNCHES], 1, 8);
        }
        close_floats(&in, 1e-5, "gradient of means");
        both_free(&indptr);
        both_free(&indices);
        both_free(&out);
        both_free(&in);
    }
}

/* A failed allocation belongs to the call that made it. The next launch of this thread must not report it
 * again. */
static void a_failure_is_reported_once(void **state)
{
    (void)state;
    struct pst_queue *other;
    const struct pst_queue_options options = {.most = 1000, .columns = 10};
    struct both x = floats_new(100), y = floats_new(100);
    assert_int_equal(cuda->queue_new(&options, &other, why), PST_OK);
    assert_int_not_equal(cuda->reserve(other, (int64_t)1 << 50, 0, why), PST_OK);
    cuda->add(queue, x.device, 10, y.device, 10, 10, 10);
    cpu->add(NULL, x.host, 10, y.host, 10, 10, 10);
    settled(PST_OK);
    same_bytes(&x, x.bytes, "sums");
    cuda->queue_free(other);
    both_free(&x);
    both_free(&y);
}

/* A thread may use another GPU between two launches on a queue: a launch goes to its queue's GPU all the
 * same. */
static void a_launch_goes_to_its_queues_gpu(void **state)
{
    (void)state;
    void *elsewhere;
    struct both x = floats_new(100), y = floats_new(100);
    if (cuda->alloc(1, PST_TWIN_MEMORY_DEVICE, 100, &elsewhere, why) != PST_OK)
        skip(); /* one GPU */
    cuda->add(queue, x.device, 10, y.device, 10, 10, 10);
    cpu->add(NULL, x.host, 10, y.host, 10, 10, 10);
    settled(PST_OK);
    same_bytes(&x, x.bytes, "sums");
    cuda->release(PST_TWIN_MEMORY_DEVICE, elsewhere);
    both_free(&x);
    both_free(&y);
}

/* Memory and queues are freed while the thread uses another GPU: each is freed on its own. */
static void memory_is_freed_on_its_own_gpu(void **state)
{
    (void)state;
    uint64_t count[PST_HOST_COUNTS];
    void *at[2][2];
    struct pst_queue *other;
    const enum pst_twin_memory kind[2] = {PST_TWIN_MEMORY_DEVICE, PST_TWIN_MEMORY_PINNED};
    const struct pst_queue_options options = {.device = 1, .most = 1000, .columns = 10};
    if (cuda->queue_new(&options, &other, why) != PST_OK)
        skip(); /* one GPU */
    for (int gpu = 0; gpu < 2; gpu++)
        for (int k = 0; k < 2; k++)
            assert_int_equal(cuda->alloc(gpu, kind[k], 100, &at[gpu][k], why), PST_OK);
    (void)host_counts(count);
    for (int k = 0; k < 2; k++) /* the last call was for GPU 1 */
        cuda->release(kind[k], at[0][k]);
    assert_int_equal(cuda->reserve(other, 100000, 10, why), PST_OK);
    assert_int_equal(cuda->reserve(queue, 2 * TWIN_MOST, TWIN_COLUMNS, why), PST_OK);
    for (int k = 0; k < 2; k++)
        cuda->release(kind[k], at[1][k]);
    settled(PST_OK);
    cuda->queue_free(other);
    if (host_counts(count))
        assert_int_equal(count[PST_HOST_ELSEWHERE], 0);
}

/* Rows without gaps are one piece of memory, wherever it begins: offsets of blocks begin 4 bytes past a line.
 */
static void rows_without_gaps(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const size_t row = 1 + rnd(9), n = (size_t)size_below(3000), from = rnd(17),
                     to = rnd(3) ? from % 16 : rnd(17);
        struct both src = both_new(n * row + 32), dst = both_new(n * row + 64), count = both_new(I64);
        for (size_t i = 0; i < src.bytes; i++)
            ((char *)src.host)[i] = (char)rnd(256);
        *(int64_t *)count.host = (int64_t)n;
        send(&src);
        send(&count);
        cpu->gather(NULL, (char *)src.host + from, row, NULL, (char *)dst.host + to, row, NULL, (int64_t)n,
                    row);
        cuda->gather_n(queue, (char *)src.device + from, row, NULL, (char *)dst.device + to, row, NULL,
                       (struct pst_twin_n){count.device, (int64_t)n + 3}, row);
        settled(PST_OK);
        same_bytes(&dst, dst.bytes, "rows without gaps");
        both_free(&src);
        both_free(&dst);
        both_free(&count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_warp_reads_more_than_a_chunk),
        cmocka_unit_test(a_failure_is_reported_once),
        cmocka_unit_test(a_launch_goes_to_its_queues_gpu),
        cmocka_unit_test(memory_is_freed_on_its_own_gpu),
        cmocka_unit_test(rows_without_gaps),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
