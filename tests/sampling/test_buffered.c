/* The algorithm buffered: seeds and neighbours of a batch are in partitions that the buffer holds together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/error.h"
#include "common/store/store.h"
#include "common/util/rng.h"
#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/algorithms/states.h"
#include "stages/lib/sampling/seeds.h"

enum { VERTICES = 600, EDGES_MAX = VERTICES * 40, SEEDS = 211, BATCH = 16, FANOUT = 5, EPOCHS = 3 };

static struct world {
    int64_t indptr[VERTICES + 1], indices[EDGES_MAX], train[SEEDS];
    struct pst_csc graph;
    struct pst_dataset ds;
} w;

/* Lists of 0 to 39 entries, some of which repeat. */
static int setup(void **state)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_SHUFFLE, 1, 0, 0, 0);
    (void)state;
    for (int64_t v = 0; v < VERTICES; v++) {
        w.indptr[v + 1] = w.indptr[v] + v * 7 % 40;
        for (int64_t e = w.indptr[v]; e < w.indptr[v + 1]; e++) {
            const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)e, 0);
            w.indices[e] = (int64_t)pst_rng_bounded(pst_rng_u64(&draw, 0), VERTICES);
        }
    }
    for (int64_t i = 0; i < SEEDS; i++)
        w.train[i] = i * 17 % VERTICES;
    w.graph = (struct pst_csc){w.indptr, w.indices, 8, VERTICES, w.indptr[VERTICES]};
    w.ds.vertices = VERTICES;
    w.ds.split[PST_TRAIN] = (struct pst_array){.map = w.train, .shape = {SEEDS}};
    return 0;
}

struct opened {
    struct pst_sampling_opened a;
    struct pst_seeds seeds;
    struct pst_sampling_states *states;
};

static pst_rc try_open(struct opened *o, const char *name, const char *options, int64_t batch)
{
    *o = (struct opened){.states = NULL};
    assert_int_equal(pst_seeds_init(&o->seeds, &w.ds, "train", batch, 9, true), PST_OK);
    const struct pst_sampling_setup set = {.dataset = &w.ds,
                                           .graph = &w.graph,
                                           .hops = 1,
                                           .batch = o->seeds.batch,
                                           .batches = o->seeds.batches,
                                           .seeds = o->seeds.ids,
                                           .nseeds = o->seeds.n,
                                           .seed = 9};
    assert_int_equal(pst_sampling_algorithm_find(&o->a, name), PST_OK);
    const pst_rc rc = pst_sampling_algorithm_open(&o->a, options, &set);
    if (rc == PST_OK && o->a.algorithm->states != NULL) {
        o->states = o->a.algorithm->states(o->a.state);
        pst_seeds_by_states(&o->seeds, o->states);
    }
    return rc;
}

static void close_opened(struct opened *o)
{
    pst_sampling_algorithm_close(&o->a);
    pst_seeds_release(&o->seeds);
}

struct drawn {
    int32_t indptr[VERTICES + 1];
    int64_t out[VERTICES * FANOUT];
};

static void draw(const struct opened *o, uint32_t epoch, uint64_t batch, const int64_t *vertices, int64_t n,
                 struct drawn *d)
{
    const struct pst_sample_key key = {.seed = 7, .epoch = epoch, .hop = 0, .batch = batch};
    const struct pst_sampling_hop hop = {.graph = &w.graph,
                                         .key = &key,
                                         .fanout = FANOUT,
                                         .vertices = vertices,
                                         .n = n,
                                         .indptr = d->indptr,
                                         .out = d->out,
                                         .capacity = VERTICES * FANOUT};
    assert_int_equal(o->a.algorithm->draw(o->a.state, &hop), PST_OK);
}

static bool is_in(const uint64_t resident[PST_K_PARTITION_WORDS], int p)
{
    return (resident[p / 64] >> p % 64 & 1) != 0;
}

/* Entries of a vertex's list that can be drawn. */
static int64_t reachable(const struct opened *o, const uint64_t *resident, int64_t v)
{
    int64_t n = 0;
    for (int64_t e = w.indptr[v]; e < w.indptr[v + 1]; e++)
        n += is_in(resident, o->states->partition[w.indices[e]]);
    return n;
}

/* Every vertex that is drawn for the batch is resident, and each seed gets as many as it can. */
static void check_draws(const struct opened *o, uint32_t epoch, int64_t batch, const int64_t *seeds,
                        int64_t n)
{
    static struct drawn d;
    uint64_t resident[PST_K_PARTITION_WORDS];
    int bits = 0;
    const int64_t k = pst_sampling_states_of(o->states, batch);
    pst_sampling_states_resident(o->states, k, resident);
    for (int i = 0; i < PST_K_PARTITION_WORDS; i++)
        bits += __builtin_popcountll(resident[i]);
    assert_int_equal(bits, o->states->buffer);
    draw(o, epoch, (uint64_t)batch, seeds, n, &d);
    for (int64_t i = 0; i < n; i++) {
        assert_true(is_in(resident, o->states->partition[seeds[i]]));
        const int64_t there = reachable(o, resident, seeds[i]);
        assert_int_equal(d.indptr[i + 1] - d.indptr[i], there < FANOUT ? there : FANOUT);
        for (int32_t e = d.indptr[i]; e < d.indptr[i + 1]; e++)
            assert_true(is_in(resident, o->states->partition[d.out[e]]));
    }
}

/* Counts the seeds of an epoch's batches: each once, and no batch is empty. */
static void check_epoch(struct opened *o, uint32_t epoch, int64_t batch)
{
    int64_t seeds[SEEDS], total = 0;
    int seen[VERTICES] = {0};
    for (uint64_t b = 0; b < o->seeds.batches; b++) {
        const uint64_t number = epoch * o->seeds.batches + b;
        const int64_t n = pst_seeds_of(&o->seeds, number, seeds);
        assert_true(n >= 1 && n <= batch);
        assert_int_equal(n, pst_seeds_of_all(&o->seeds, number));
        for (int64_t i = 0; i < n; i++)
            seen[seeds[i]]++;
        check_draws(o, epoch, (int64_t)b, seeds, n);
        total += n;
    }
    assert_int_equal(total, SEEDS);
    for (int64_t i = 0; i < SEEDS; i++)
        assert_int_equal(seen[w.train[i]], 1);
}

static void batches_stay_in_the_buffer(void **state)
{
    static const char *const options[] = {
        "partitions=12, buffer=4",
        "partitions=12, buffer=4, assign=id",
        "partitions=9, buffer=3, order=legend",
        "partitions=10, buffer=3, order=auto",
        "partitions=8, buffer=2, order=hilbert",
        "partitions=8, buffer=2, order=hilbert-symmetric",
        "partitions=200, buffer=110, order=beta",
        "partitions=10, buffer=5, order=training",
        "partitions=10, buffer=4, order=training, assign=id",
    };
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct opened o;
        if (try_open(&o, "buffered", options[i], BATCH) != PST_OK)
            fail_msg("%s: %s", options[i], pst_error_text());
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
            check_epoch(&o, epoch, BATCH);
        close_opened(&o);
    }
}

/* Each pair of partitions meets in an epoch of an order, so any edge can be drawn some day. */
static void all_pairs_meet(void **state)
{
    struct opened o;
    static bool met[12][12];
    (void)state;
    assert_int_equal(try_open(&o, "buffered", "partitions=12, buffer=4", BATCH), PST_OK);
    pst_sampling_states_go(o.states, 2);
    for (int64_t k = 0; k < o.states->n; k++) {
        uint64_t resident[PST_K_PARTITION_WORDS];
        pst_sampling_states_resident(o.states, k, resident);
        for (int a = 0; a < 12; a++)
            for (int b = 0; b < 12; b++)
                met[a][b] = met[a][b] || (is_in(resident, a) && is_in(resident, b));
    }
    for (int a = 0; a < 12; a++)
        for (int b = 0; b < 12; b++)
            assert_true(met[a][b]);
    assert_int_equal(o.states->loads, o.states->n - 1 + 4);
    close_opened(&o);
}

/* The order training: all seeds are in one state, with other partitions in another epoch. */
static void training_partitions_stay(void **state)
{
    struct opened o;
    uint64_t first[PST_K_PARTITION_WORDS], then[PST_K_PARTITION_WORDS];
    bool changed = false;
    (void)state;
    assert_int_equal(try_open(&o, "buffered", "partitions=20, buffer=10, order=training", BATCH), PST_OK);
    assert_int_equal(o.states->n, 1);
    assert_int_equal(o.states->fixed, (SEEDS + 29) / 30);
    assert_int_equal(o.seeds.batches, (SEEDS + BATCH - 1) / BATCH);
    pst_sampling_states_go(o.states, 0);
    pst_sampling_states_resident(o.states, 0, first);
    for (uint32_t epoch = 1; epoch < 6; epoch++) {
        pst_sampling_states_go(o.states, epoch);
        pst_sampling_states_resident(o.states, 0, then);
        changed = changed || memcmp(first, then, sizeof first) != 0;
        for (int64_t i = 0; i < SEEDS; i++)
            assert_true(is_in(then, o.states->partition[w.train[i]]));
    }
    assert_true(changed);
    close_opened(&o);
}

/* If everything is in memory, it draws what uniform draws. */
static void a_whole_buffer_is_uniform(void **state)
{
    static struct drawn got, want;
    struct opened o, uniform;
    int64_t all[VERTICES];
    (void)state;
    for (int64_t v = 0; v < VERTICES; v++)
        all[v] = v;
    assert_int_equal(try_open(&o, "buffered", "partitions=6, buffer=6", BATCH), PST_OK);
    assert_int_equal(try_open(&uniform, "uniform", "", BATCH), PST_OK);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        draw(&o, epoch, epoch, all, VERTICES, &got);
        draw(&uniform, epoch, epoch, all, VERTICES, &want);
        assert_memory_equal(got.indptr, want.indptr, sizeof got.indptr);
        assert_memory_equal(got.out, want.out, (size_t)got.indptr[VERTICES] * sizeof *got.out);
    }
    close_opened(&o);
    close_opened(&uniform);
}

static void refused(const char *options, int64_t batch, const char *says)
{
    struct opened o;
    assert_int_not_equal(try_open(&o, "buffered", options, batch), PST_OK);
    if (strstr(pst_error_text(), says) == NULL)
        fail_msg("expected \"%s\" in: %s", says, pst_error_text());
    close_opened(&o);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    refused("partitions=4, buffer=5", BATCH, "partitions is 4 and buffer is 5");
    refused("partitions=20, buffer=5, order=training", BATCH, "the buffer holds 5: set buffer to 8 or more");
    refused("partitions=250, buffer=2", BATCH, "211 seeds are too few");
    refused("partitions=8, buffer=4, order=legend", BATCH, "buffer of 3");
    refused("order=random", BATCH, "\"order=random\" is not a valid value");
    refused("order", BATCH, "training|beta|hilbert");
    const struct pst_sampling_setup none = {.dataset = &w.ds, .graph = &w.graph, .hops = 1};
    struct pst_sampling_opened a;
    assert_int_equal(pst_sampling_algorithm_find(&a, "buffered"), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&a, "", &none), PST_E_UNSUPPORTED);
    pst_sampling_algorithm_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_stay_in_the_buffer), cmocka_unit_test(all_pairs_meet),
        cmocka_unit_test(training_partitions_stay),   cmocka_unit_test(a_whole_buffer_is_uniform),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
