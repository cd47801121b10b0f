/* The twins of the samplers: the same to the last bit. */
#include "kernels/vertex_rank.h"
#include "tests/kernel/twin_graph.h"

struct run {
    struct graph g;
    struct both vertices, indptr, out, weight, scratch, numbers;
    int64_t n, edges; /* edges: of all lists */
    struct pst_k_ranks ranks;
};

static struct pst_rng_stream any_stream(enum pst_rng_use use)
{
    return pst_rng_stream_of(use, rnd(UINT64_MAX), (uint32_t)rnd(9), rnd(1u << 20), (uint32_t)rnd(8));
}

struct temporal_arrays {
    struct both edge_time, vertex_time, fanout, table, until;
};

/* Different vertices of a graph with small and large lists. */
static struct run run_new(void)
{
    const int64_t all = 1 + size_below(1500);
    struct run r = {.g = graph_new(all, rnd(2) ? 4 : 8, rnd(4) ? 300 : 3000)};
    const double angle = (double)rnd(1000) / 700;
    r.n = pst_min_i64(all, size_below(200));
    r.vertices = both_new((size_t)r.n * I64);
    int64_t v = (int64_t)rnd((uint64_t)all);
    for (int64_t i = 0; i < r.n; i++, v++) {
        ((int64_t *)r.vertices.host)[i] = v % all;
        r.edges += r.g.host.indptr[v % all + 1] - r.g.host.indptr[v % all];
    }
    send(&r.vertices);
    r.indptr = both_new((size_t)(r.n + 1) * I32);
    r.out = both_new((size_t)r.edges * I64);
    r.weight = both_new((size_t)r.edges * sizeof(float));
    r.scratch = both_new((size_t)pst_k_scratch_words(all) * sizeof(uint64_t));
    r.numbers = both_new(2 * I64);
    *(int64_t *)r.numbers.host = r.n;
    send(&r.numbers);
    r.ranks = (struct pst_k_ranks){.stream = {any_stream(PST_RNG_GROUP), any_stream(PST_RNG_GROUP)},
                                   .mixed = rnd(2),
                                   .near = cos(angle),
                                   .far = sin(angle)};
    return r;
}

static void run_free(struct run *r)
{
    struct both *all[] = {&r->vertices, &r->indptr, &r->out, &r->weight, &r->scratch, &r->numbers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        both_free(all[i]);
    graph_free(&r->g);
}

/* The count of vertices is sometimes in device memory. */
static struct pst_twin_n count_of(const struct run *r)
{
    const bool there = rnd(2);
    return (struct pst_twin_n){there ? r->numbers.device : NULL, r->n + (there ? (int64_t)rnd(20) : 0)};
}

static int64_t *total_of(const struct run *r)
{
    return (int64_t *)r->numbers.device + 1;
}

/* What both wrote, and the number of edges. `wanted`: what the CPU's twin returned. */
static void same_sample(struct run *r, pst_rc wanted, bool weights)
{
    settled(wanted);
    same_bytes(&r->scratch, r->scratch.bytes, "scratch memory");
    for (size_t i = 0; i < r->scratch.bytes; i++)
        assert_int_equal(((char *)r->scratch.host)[i], 0);
    if (wanted != PST_OK)
        return;
    const int64_t edges = ((int32_t *)r->indptr.host)[r->n];
    int64_t *numbers = fetched(&r->numbers);
    assert_int_equal(numbers[1], edges);
    free(numbers);
    same_bytes(&r->indptr, r->indptr.bytes, "indptr");
    same_bytes(&r->out, (size_t)edges * I64, "sampled neighbours");
    if (weights)
        same_bytes(&r->weight, (size_t)edges * sizeof(float), "weights");
}

/* Rarely something is wrong: a vertex, an offset, a neighbour; or else, there is too little room. Returns the
 * room. */
static int64_t damage(struct run *r)
{
    const int kind = (int)rnd(24);
    if (r->n == 0 || kind > 5)
        return r->edges;
    if (kind > 2)
        return (int64_t)rnd((uint64_t)r->edges + 1);
    const int64_t wrong = (int64_t)rnd((uint64_t)r->n), v = ((int64_t *)r->vertices.host)[wrong];
    if (kind == 0)
        ((int64_t *)r->vertices.host)[wrong] = r->g.host.vertices + (int64_t)rnd(3);
    if (kind == 1)
        ((int64_t *)r->g.indptr.host)[v + 1] = r->g.host.edges + 1;
    const int64_t entry = r->g.host.indptr[v];
    if (kind == 2 && entry < r->g.host.edges && r->g.host.index_bytes == 4)
        ((int32_t *)r->g.indices.host)[entry] = -1;
    send(&r->vertices);
    send(&r->g.indptr);
    send(&r->g.indices);
    return r->edges;
}

static void test_ranked(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct run r = run_new();
        const int fanout = random_fanout();
        const int64_t capacity = damage(&r);
        const pst_rc rc = cpu->sample_ranked(NULL, &r.g.host, &r.ranks, r.vertices.host, r.n, fanout,
                                             r.indptr.host, r.out.host, capacity);
        assert_int_equal(cuda->sample_ranked_n(queue, &r.g.device, &r.ranks, r.vertices.device, count_of(&r),
                                               fanout, r.indptr.device, r.out.device, capacity, total_of(&r)),
                         PST_OK);
        same_sample(&r, rc, false);
        run_free(&r);
    }
}

static void test_labor(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct run r = run_new();
        const int fanout = rnd(8) ? 1 + (int)rnd(30) : INT32_MAX, iterations = (int)rnd(4);
        const int64_t capacity = damage(&r);
        const pst_rc rc =
            cpu->sample_labor(NULL, &r.g.host, &r.ranks, iterations, r.vertices.host, r.n, fanout,
                              r.scratch.host, r.indptr.host, r.out.host, r.weight.host, capacity);
        assert_int_equal(cuda->sample_labor_n(queue, &r.g.device, &r.ranks, iterations, r.vertices.device,
                                              count_of(&r), fanout, r.scratch.device, r.indptr.device,
                                              r.out.device, r.weight.device, capacity, total_of(&r)),
                         PST_OK);
        same_sample(&r, rc, true);
        run_free(&r);
    }
}

static void test_ladies(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct run r = run_new();
        const int64_t size = 1 + size_below(600), capacity = damage(&r);
        const struct pst_rng_stream stream = any_stream(PST_RNG_SAMPLE);
        const pst_rc rc =
            cpu->sample_ladies(NULL, &r.g.host, &stream, size, r.vertices.host, r.n, r.scratch.host,
                               r.indptr.host, r.out.host, r.weight.host, capacity);
        const struct pst_twin_n n = count_of(&r);
        const bool replays = replay_begin(stream);
        const struct pst_rng_stream shown = {{stream.key[0], stream.key[1]}, stream.salt + replays};
        assert_int_equal(cuda->sample_ladies_n(queue, &r.g.device, &shown, size, r.vertices.device, n,
                                               r.scratch.device, r.indptr.device, r.out.device,
                                               r.weight.device, capacity, total_of(&r)),
                         PST_OK);
        replay_end(replays);
        same_sample(&r, rc, true);
        run_free(&r);
    }
}

/* Some entries have weight 0, and rarely one is negative. */
static struct both edge_weights_new(const struct run *r)
{
    struct both w = both_new((size_t)r->g.host.edges * sizeof(float));
    float *at = w.host;
    for (int64_t e = 0; e < r->g.host.edges; e++)
        at[e] = rnd(5) ? ldexpf((float)rnd(1000), (int)rnd(20) - 10) : 0;
    if (rnd(12) == 0 && r->g.host.edges > 0)
        at[rnd((uint64_t)r->g.host.edges)] = -1;
    send(&w);
    return w;
}

static void test_weighted(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct run r = run_new();
        struct both w = edge_weights_new(&r);
        const int fanout = random_fanout();
        const bool weighs = rnd(2);
        const int64_t capacity = rnd(8) ? damage(&r) : r.edges;
        const struct pst_rng_stream stream = any_stream(PST_RNG_SAMPLE);
        const struct pst_k_weighted_edges host = {w.host, stream};
        const pst_rc rc =
            cpu->sample_weighted(NULL, &r.g.host, &host, r.vertices.host, r.n, fanout, r.indptr.host,
                                 r.out.host, weighs ? r.weight.host : NULL, capacity);
        const struct pst_twin_n n = count_of(&r);
        const bool replays = replay_begin(stream);
        const struct pst_k_weighted_edges device = {w.device,
                                                    {{stream.key[0], stream.key[1]}, stream.salt + replays}};
        assert_int_equal(cuda->sample_weighted_n(queue, &r.g.device, &device, r.vertices.device, n, fanout,
                                                 r.indptr.device, r.out.device,
                                                 weighs ? r.weight.device : NULL, capacity, total_of(&r)),
                         PST_OK);
        replay_end(replays);
        if (rc == PST_E_LIMIT) { /* a bad weight may come later: CUDA's twin sees all lists first */
            (void)cuda->wait(queue, why);
        } else {
            same_sample(&r, rc, weighs);
        }
        both_free(&w);
        run_free(&r);
    }
}

/* A relation for each entry, in any order; rarely one does not exist. */
static struct both relations_new(const struct run *r, int relations)
{
    struct both b = both_new((size_t)r->g.host.edges * I32);
    int32_t *at = b.host;
    const int usual = 1 + (int)rnd((uint64_t)relations);
    for (int64_t e = 0; e < r->g.host.edges; e++)
        at[e] = (int32_t)rnd((uint64_t)(rnd(20) ? usual : relations));
    if (rnd(12) == 0 && r->g.host.edges > 0)
        at[rnd((uint64_t)r->g.host.edges)] = rnd(2) ? relations : -1;
    send(&b);
    return b;
}

static struct both fanouts_new(int relations, bool equal)
{
    struct both b = both_new((size_t)relations * I32);
    const int fanout = random_fanout();
    for (int i = 0; i < relations; i++)
        ((int32_t *)b.host)[i] = equal && relations < 5 ? fanout : random_fanout() % 70;
    send(&b);
    return b;
}

/* Edges that each list can give at most. */
static int64_t typed_capacity(const struct run *r, const int32_t *fanout, int relations, bool replace)
{
    int64_t most = 0;
    for (int i = 0; replace && i < relations; i++)
        most += fanout[i] > 0 ? fanout[i] : 0;
    return r->edges + r->n * most;
}

/* A partition for each vertex, of which some are resident. */
static struct both partitions_new(const struct run *r, struct pst_k_typed *how)
{
    struct both b = both_new((size_t)r->g.host.vertices);
    const uint64_t partitions = 1 + rnd(64 * PST_K_PARTITION_WORDS);
    for (int64_t v = 0; v < r->g.host.vertices; v++)
        ((uint8_t *)b.host)[v] = (uint8_t)rnd(partitions);
    for (int i = 0; i < PST_K_PARTITION_WORDS; i++)
        how->resident[i] = rnd(UINT64_MAX);
    send(&b);
    return b;
}

static void test_typed(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct run r = run_new();
        const int relations = rnd(3) ? 1 + (int)rnd(40) : 1 + (int)rnd(PST_K_RELATIONS_MAX);
        const bool replace = relations < 40 && rnd(4) == 0, told = rnd(4), one = rnd(10) == 0;
        struct both relation = relations_new(&r, relations), fanout = fanouts_new(relations, rnd(2));
        const int64_t whole = typed_capacity(&r, fanout.host, relations, replace),
                      capacity = rnd(12) ? whole : (int64_t)rnd((uint64_t)whole + 1);
        struct both of = both_new((size_t)whole * I32);
        int64_t most = 0;
        for (int i = 0; i < relations; i++)
            most += pst_max_i64(0, ((int32_t *)fanout.host)[i]);
        both_free(&r.out);
        r.out = both_new((size_t)whole * I64);
        int64_t *scratch = malloc((size_t)pst_k_typed_words(relations, most) * sizeof *scratch);
        struct pst_k_typed how = {.relation = one ? NULL : relation.host,
                                  .fanout = fanout.host,
                                  .relations = one ? 1 : relations,
                                  .replace = replace};
        const struct pst_sample_key key = {rnd(UINT64_MAX), (uint32_t)rnd(9), (uint32_t)rnd(8),
                                           rnd(1u << 20)};
        const bool buffered = rnd(3) == 0;
        struct both partition = partitions_new(&r, &how);
        how.partition = buffered ? partition.host : NULL;
        if (capacity == whole) /* else CUDA's twin would see the limit before a neighbour */
            (void)damage(&r);
        const pst_rc rc = cpu->sample_typed(NULL, &r.g.host, &how, &key, r.vertices.host, r.n, scratch,
                                            r.indptr.host, r.out.host, told ? of.host : NULL, capacity);
        how.relation = one ? NULL : relation.device;
        how.fanout = fanout.device;
        how.partition = buffered ? partition.device : NULL;
        const struct pst_twin_n n = count_of(&r);
        const bool replays = replay_begin(stream_of(&key));
        const struct pst_sample_key shown = replay_key(replays, key);
        assert_int_equal(cuda->sample_typed_n(queue, &r.g.device, &how, &shown, r.vertices.device, n, NULL,
                                              r.indptr.device, r.out.device, told ? of.device : NULL,
                                              capacity, total_of(&r)),
                         PST_OK);
        replay_end(replays);
        if (rc == PST_E_LIMIT) { /* a wrong relation may come later: CUDA's twin sees all lists first */
            (void)cuda->wait(queue, why);
        } else {
            same_sample(&r, rc, false);
            const size_t edges = rc == PST_OK ? (size_t)((int32_t *)r.indptr.host)[r.n] : 0;
            same_bytes(&of, told ? edges * I32 : 0, "relations");
        }
        free(scratch);
        both_free(&partition);
        both_free(&relation);
        both_free(&fanout);
        both_free(&of);
        run_free(&r);
    }
}

static void test_weighted_typed(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct run r = run_new();
        const int relations = rnd(3) ? 1 + (int)rnd(12) : 1 + (int)rnd(200);
        const bool told = rnd(4), weighs = rnd(2), one = rnd(10) == 0;
        struct both relation = relations_new(&r, relations), fanout = fanouts_new(relations, rnd(2)),
                    w = edge_weights_new(&r), of = both_new((size_t)r.edges * I32);
        int64_t most = 0;
        for (int i = 0; i < relations; i++)
            most += pst_max_i64(0, ((int32_t *)fanout.host)[i]);
        int64_t *scratch = malloc((size_t)pst_k_weighted_typed_words(relations, most) * sizeof *scratch);
        struct pst_k_typed how = {
            .relation = one ? NULL : relation.host, .fanout = fanout.host, .relations = one ? 1 : relations};
        const int64_t capacity = rnd(8) ? damage(&r) : r.edges;
        const struct pst_rng_stream stream = any_stream(PST_RNG_SAMPLE);
        const struct pst_k_weighted_edges host = {w.host, stream}, device = {w.device, stream};
        const pst_rc rc = cpu->sample_weighted_typed(
            NULL, &r.g.host, &host, &how, r.vertices.host, r.n, scratch, r.indptr.host, r.out.host,
            weighs ? r.weight.host : NULL, told ? of.host : NULL, capacity);
        how.relation = one ? NULL : relation.device;
        how.fanout = fanout.device;
        assert_int_equal(cuda->sample_weighted_typed_n(queue, &r.g.device, &device, &how, r.vertices.device,
                                                       count_of(&r), NULL, r.indptr.device, r.out.device,
                                                       weighs ? r.weight.device : NULL,
                                                       told ? of.device : NULL, capacity, total_of(&r)),
                         PST_OK);
        if (rc == PST_E_LIMIT) { /* something wrong may come later: CUDA's twin sees all lists first */
            (void)cuda->wait(queue, why);
        } else {
            same_sample(&r, rc, weighs);
            const size_t edges = rc == PST_OK ? (size_t)((int32_t *)r.indptr.host)[r.n] : 0;
            same_bytes(&of, told ? edges * I32 : 0, "relations");
        }
        free(scratch);
        both_free(&relation);
        both_free(&fanout);
        both_free(&w);
        both_free(&of);
        run_free(&r);
    }
}

static struct both times_new(int64_t n, int32_t latest)
{
    struct both b = both_new((size_t)n * I32);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)b.host)[i] = (int32_t)rnd((uint64_t)latest + 1);
    send(&b);
    return b;
}

/* Both twins on one hop. The second hop of a batch has the limits that the first has spread. */
static pst_rc temporal_hop(struct run *r, const struct temporal_arrays *t, struct pst_k_typed how,
                           struct pst_k_limits limits, int64_t capacity)
{
    const struct pst_sample_key key = {rnd(UINT64_MAX), 0, limits.first ? 0 : 1, rnd(1u << 20)};
    const int32_t most = *(int32_t *)t->fanout.host;
    int64_t *scratch = malloc((size_t)pst_k_typed_words(1, most > 0 ? most : 0) * sizeof *scratch);
    limits.vertex_time = t->vertex_time.host;
    limits.table = t->table.host;
    how.time = t->edge_time.host;
    how.fanout = t->fanout.host;
    const pst_rc rc = cpu->sample_temporal(NULL, &r->g.host, &how, &limits, &key, r->vertices.host, r->n,
                                           t->until.host, scratch, r->indptr.host, r->out.host, capacity);
    free(scratch);
    limits.vertex_time = t->vertex_time.device;
    limits.table = t->table.device;
    how.time = t->edge_time.device;
    how.fanout = t->fanout.device;
    assert_int_equal(cuda->sample_temporal_n(queue, &r->g.device, &how, &limits, &key, r->vertices.device,
                                             count_of(r), t->until.device, NULL, r->indptr.device,
                                             r->out.device, capacity, total_of(r)),
                     PST_OK);
    same_sample(r, rc, false);
    if (rc == PST_OK) {
        same_bytes(&t->until, (size_t)r->n * I32, "limits of the hop's vertices");
        same_bytes(&t->table, t->table.bytes, "limits");
    }
    return rc;
}

static void test_temporal(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct run r = run_new();
        struct temporal_arrays t = {.edge_time = times_new(r.g.host.edges, rnd(4) ? 50 : INT32_MAX - 1),
                                    .vertex_time = times_new(r.g.host.vertices, 60),
                                    .fanout = both_new(I32),
                                    .table = both_new((size_t)r.g.host.vertices * sizeof(uint64_t)),
                                    .until = both_new((size_t)(r.n + 20) * I32)};
        *(int32_t *)t.fanout.host = random_fanout() % 300;
        send(&t.fanout);
        const struct pst_k_typed how = {.relations = 1, .replace = rnd(4) == 0};
        const int64_t whole = typed_capacity(&r, t.fanout.host, 1, how.replace);
        both_free(&r.out);
        r.out = both_new((size_t)whole * I64);
        struct pst_k_limits limits = {.batch = 1 + (uint32_t)rnd(9), .first = true};
        const int64_t damaged = damage(&r), capacity = damaged < r.edges ? damaged : whole;
        if (temporal_hop(&r, &t, how, limits, capacity) == PST_OK) {
            limits.first = false;
            (void)temporal_hop(&r, &t, how, limits, capacity);
        }
        struct both *all[] = {&t.edge_time, &t.vertex_time, &t.fanout, &t.table, &t.until};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            both_free(all[i]);
        run_free(&r);
    }
}

/* Weights of any size, some of them 0. */
static void test_shares(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t dsts = size_below(700);
        struct both indptr = both_new((size_t)(dsts + 1) * I32);
        int32_t *at = indptr.host;
        for (int64_t d = 0; d < dsts; d++)
            at[d + 1] = at[d] + (int32_t)rnd(rnd(8) ? 6 : 200);
        send(&indptr);
        struct both weight = both_new((size_t)at[dsts] * sizeof(float));
        for (int32_t e = 0; e < at[dsts]; e++)
            ((float *)weight.host)[e] = rnd(9) ? ldexpf((float)rnd(1000), (int)rnd(60) - 30) : 0;
        send(&weight);
        cpu->edge_shares(NULL, indptr.host, dsts, weight.host);
        cuda->edge_shares(queue, indptr.device, dsts, weight.device);
        same_bytes(&weight, weight.bytes, "shares");
        both_free(&indptr);
        both_free(&weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranked),   cmocka_unit_test(test_labor),  cmocka_unit_test(test_ladies),
        cmocka_unit_test(test_weighted), cmocka_unit_test(test_typed),  cmocka_unit_test(test_weighted_typed),
        cmocka_unit_test(test_temporal), cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
