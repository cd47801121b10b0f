/* The twins of dedup where the GPU's table is at its limits: calls of more ids than it has places, batches of
 * more ids than it has records for, batches after a failure, and stamps that begin again. */
#include "tests/kernel/twin_graph.h"

/* Calls of one batch, with these numbers of ids, which id_of makes. Both twins must accept them. */
static void dedup_calls(struct table *t, const int64_t *calls, int n_calls, int64_t most,
                        int64_t (*id_of)(int64_t i))
{
    struct both vertices = both_new((size_t)most * I64), count = both_new(I64);
    for (int call = 0; call < n_calls; call++) {
        struct both ids = both_new((size_t)calls[call] * I64), local = both_new((size_t)calls[call] * I32);
        for (int64_t i = 0; i < calls[call]; i++)
            ((int64_t *)ids.host)[i] = id_of(i + call);
        send(&ids);
        assert_true(dedup_both(t, &ids, calls[call], &vertices, &count, most, &local));
        both_free(&ids);
        both_free(&local);
    }
    both_free(&vertices);
    both_free(&count);
}

static void reset_both(struct table *t)
{
    cpu->dedup_reset(NULL, t->host);
    cuda->dedup_reset(queue, t->device);
    settled(PST_OK); /* before the table is freed */
}

static int64_t scattered(int64_t i)
{
    return (i * i % 907) << i % 5;
}

static int64_t in_runs(int64_t i)
{
    return i / 40 % 1000;
}

static int64_t all_new(int64_t i)
{
    return i * 5;
}

static int64_t squared(int64_t i) /* which makes chains in the table */
{
    return i * i * 11;
}

static int64_t twice_new(int64_t i)
{
    return i % 500 * 7;
}

static void test_more_ids_than_places(void **state)
{
    (void)state;
    enum { MAX = 4600 };
    const int64_t calls[] = {20000, 3, 40000, 6000};
    struct table t = table_new(MAX);
    dedup_calls(&t, calls, 4, MAX, scattered);
    reset_both(&t);
    dedup_calls(&t, calls, 4, MAX, in_runs);
    table_free(&t);
}

/* A call that fails while ids take entries from each other leaves nothing behind for the next batch. */
static void test_after_failure(void **state)
{
    (void)state;
    enum { N = 2048, MAX = 1000, TWICE = 250 };
    const int64_t next = MAX;
    struct table t = table_new(MAX);
    struct both ids = both_new(N * I64), vertices = both_new((N + 1) * I64), count = both_new(I64);
    for (int round = 0; round < 4; round++) {
        for (int64_t i = 0; i < N; i++)
            ((int64_t *)ids.host)[i] = squared(i < 2 * TWICE ? i % TWICE : i) + round;
        send(&ids);
        *(int64_t *)count.host = 0;
        send(&count);
        assert_false(dedup_both(&t, &ids, N, &vertices, &count, N, NULL));
        reset_both(&t);
        dedup_calls(&t, &next, 1, MAX, all_new);
        reset_both(&t);
    }
    both_free(&ids);
    both_free(&vertices);
    both_free(&count);
    table_free(&t);
}

/* Some calls of a batch fit in the records that the GPU's table has (dedup.cu), which are for 4 * 8,192 ids;
 * others between them do not. Each call has new ids, and each repeats its own, those of its neighbours, and
 * those of every earlier call. */
static void test_more_ids_than_records(void **state)
{
    (void)state;
    enum { MAX = 4096, NEW = 500, CALLS = 8 };
    const int64_t calls[CALLS] = {7000, 31, 30000, 12000, 14000, 13001, 800, 95};
    struct table t = table_new(MAX);
    struct both vertices = both_new(MAX * I64), count = both_new(I64);
    for (int batch = 0; batch < 3; batch++) {
        *(int64_t *)count.host = 0;
        send(&count);
        for (int call = 0; call < CALLS; call++) {
            const int64_t n = calls[batch == 2 ? CALLS - 1 - call : call];
            struct both ids = both_new((size_t)n * I64), local = both_new((size_t)n * I32);
            for (int64_t i = 0; i < n; i++)
                ((int64_t *)ids.host)[i] = batch == 1 && rnd(4) && i > 0
                                               ? ((int64_t *)ids.host)[i - 1]
                                               : squared((int64_t)rnd(NEW * ((uint64_t)call + 1)));
            send(&ids);
            assert_true(dedup_both(&t, &ids, n, &vertices, &count, MAX, call == 3 ? NULL : &local));
            both_free(&ids);
            both_free(&local);
        }
        assert_true(*(int64_t *)count.host > NEW);
        reset_both(&t);
    }
    both_free(&vertices);
    both_free(&count);
    table_free(&t);
}

/* An index of an id must fit in an entry beside the ids of earlier calls. */
static void test_too_many_ids(void **state)
{
    (void)state;
    struct pst_queue *other;
    const struct pst_queue_options options = {.device = 0};
    struct table t = table_new(100);
    struct both ids = both_new(I64), vertices = both_new(I64), count = both_new(I64);
    assert_int_equal(cuda->queue_new(&options, &other, why), PST_OK);
    assert_int_equal(cuda->dedup_n(other, t.device, ids.device, (struct pst_twin_n){count.device, INT32_MAX},
                                   vertices.device, count.device, 1, NULL),
                     PST_E_LIMIT);
    assert_int_equal(cuda->wait(other, why), PST_E_LIMIT);
    assert_non_null(strstr(why, "too many ids"));
    cuda->queue_free(other);
    both_free(&ids);
    both_free(&vertices);
    both_free(&count);
    table_free(&t);
}

/* The stamp is the first word of the GPU's table (dedup.cu). When the stamps begin again, an entry of the
 * first batch must not count. */
static void test_stamps_begin_again(void **state)
{
    (void)state;
    const uint32_t last = (1u << 20) - 1;
    const int64_t n = 1000;
    struct table t = table_new(n);
    dedup_calls(&t, &n, 1, n, all_new);
    assert_int_equal(cuda->copy(queue, t.device, &last, sizeof last), PST_OK);
    settled(PST_OK);
    for (int batch = 0; batch < 3; batch++) {
        reset_both(&t);
        dedup_calls(&t, &n, 1, n, batch % 2 ? all_new : twice_new);
    }
    table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_ids_than_places),  cmocka_unit_test(test_after_failure),
        cmocka_unit_test(test_more_ids_than_records), cmocka_unit_test(test_too_many_ids),
        cmocka_unit_test(test_stamps_begin_again),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
