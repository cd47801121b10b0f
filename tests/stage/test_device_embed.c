/* The training step and the ranks of embeddings on a GPU against those on the CPU, and ranks against a brute
 * force. The GPU is the host build (kernels/cuda/host) unless PENSTOCK_TWIN=cuda asks for the real one. */
#include "stages/lib/embed/embed_gpu.h"
#include "tests/stage/virtual_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct pst_device device;
static struct pst_embed_device gpu;
static struct pst_embed_workspace *cpu;

static uint64_t rng_state = 0x9E3779B97F4A7C15ull;
static uint64_t rnd(uint64_t bound)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (rng_state >> 11) % bound;
}

static float unit(void)
{
    return (float)rnd(1 << 20) / (1 << 19) - 1;
}

static int setup(void **state)
{
    (void)state;
    gpu_setup();
    assert_int_equal(pst_device_open(&device, "cuda:0"), PST_OK);
    assert_int_equal(pst_device_queue(&device, (struct pst_queue_options){.products = true}), PST_OK);
    assert_int_equal(pst_embed_device_open(&gpu, &device), PST_OK);
    return pst_embed_workspace_new(&cpu, 2) == PST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    pst_embed_workspace_free(cpu);
    pst_device_close(&device);
    return 0;
}

/* Device memory with a copy of the bytes. */
static void *sent(const void *from, size_t bytes)
{
    void *to;
    assert_int_equal(pst_device_take(&device, PST_TWIN_MEMORY_DEVICE, bytes, "a test", &to), PST_OK);
    assert_int_equal(device.twin->copy(device.q, to, from, bytes), PST_OK);
    assert_int_equal(pst_device_wait(&device), PST_OK);
    return to;
}

static void fetch(void *to, const void *from, size_t bytes)
{
    assert_int_equal(device.twin->copy(device.q, to, from, bytes), PST_OK);
    assert_int_equal(pst_device_wait(&device), PST_OK);
}

/* ---- ranks ------------------------------------------------------------------------------------------- */

enum { VERTICES = 211, RELATIONS = 3, TRIPLES = 90, RANK_DIM = 12, KNOWN = 3 };

struct triple {
    uint32_t end[2], relation;
};

/* Rows, many of them equal or almost: float32 products cannot order them. */
static void hard_rows(float *x, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t like = i > 0 ? (int64_t)rnd((uint64_t)i) : 0;
        const uint64_t kind = i > 0 ? rnd(4) : 0;
        for (int64_t c = 0; c < d; c++)
            x[i * d + c] = kind < 2 ? unit() : x[like * d + c];
        if (kind == 3)
            x[i * d + (int64_t)rnd((uint64_t)d)] *= 1 + 1e-7f;
    }
}

/* The sum in the order of columns, by the definition. */
static double score_of(enum pst_k_embed_similarity how, const float *q, const float *x)
{
    double sum = 0;
    for (int c = 0; c < RANK_DIM; c++) {
        const double a = (double)q[c] - (double)x[c];
        const double b = c < RANK_DIM / 2 ? (double)q[c + RANK_DIM / 2] - (double)x[c + RANK_DIM / 2] : 0;
        sum += how == PST_K_EMBED_PRODUCT ? (double)q[c] * (double)x[c]
               : how == PST_K_EMBED_L1    ? fabs(a)
               : how == PST_K_EMBED_L2    ? a * a
               : c < RANK_DIM / 2         ? sqrt(a * a + b * b)
                                          : 0;
    }
    return how == PST_K_EMBED_PRODUCT ? sum : how == PST_K_EMBED_L2 ? -sqrt(sum) : -sum;
}

/* Vertices that are known ends of query i, besides the true one. */
static bool is_known(int64_t i, int64_t vertex)
{
    return (uint64_t)(vertex * 7 + i * 13) % (VERTICES / KNOWN) == 0;
}

struct question {
    enum pst_k_embed_similarity how;
    float rows[VERTICES * RANK_DIM], queries[TRIPLES * RANK_DIM], own[TRIPLES * RANK_DIM];
    int64_t end[TRIPLES];
};

static void brute_force(const struct question *q, struct pst_embed_count *counts)
{
    for (int64_t i = 0; i < TRIPLES; i++) {
        const double own = score_of(q->how, q->queries + i * RANK_DIM, q->own + i * RANK_DIM);
        for (int64_t v = 0; v < VERTICES; v++) {
            const double score = score_of(q->how, q->queries + i * RANK_DIM, q->rows + v * RANK_DIM);
            for (int kind = 0; kind < 2 && v != q->end[i]; kind++) {
                const bool counts_here = kind == 0 || !is_known(i, v);
                counts[i].above[kind] += counts_here && score > own;
                counts[i].equal[kind] += counts_here && score == own;
            }
        }
    }
}

/* Vertices by id in `partitions` blocks of equal size; the last ones can be empty. */
static void by_blocks(const struct question *q, int64_t partitions, bool on_gpu,
                      struct pst_embed_count *counts)
{
    const int64_t each = (VERTICES + partitions - 1) / partitions;
    const float *there = sent(q->rows, sizeof q->rows);
    pst_embed_count_begin(q->how, q->queries, q->own, TRIPLES, RANK_DIM, counts);
    for (int64_t first = 0; first < VERTICES; first += each) {
        const int64_t n = pst_min_i64(each, VERTICES - first);
        int64_t own[TRIPLES], start[TRIPLES + 1] = {0};
        uint32_t known[TRIPLES * VERTICES];
        for (int64_t i = 0; i < TRIPLES; i++) {
            own[i] = q->end[i] >= first && q->end[i] < first + n ? q->end[i] - first : -1;
            start[i + 1] = start[i];
            for (int64_t v = first; v < first + n; v++)
                if (is_known(i, v))
                    known[start[i + 1]++] = (uint32_t)(v - first);
        }
        struct pst_embed_candidates c = {q->rows + first * RANK_DIM, n, own, start, known};
        if (on_gpu)
            c.x = there + first * RANK_DIM;
        assert_int_equal(on_gpu
                             ? pst_embed_device_count(q->how, q->queries, TRIPLES, RANK_DIM, &c, &gpu, counts)
                             : pst_embed_count_block(q->how, q->queries, TRIPLES, RANK_DIM, &c, cpu, counts),
                         PST_OK);
    }
    pst_device_give(&device, (void *)(uintptr_t)there);
}

static void test_ranks(void **state)
{
    (void)state;
    static struct question q;
    for (int how = 0; how < 4; how++) {
        struct pst_embed_count want[TRIPLES] = {{.score = 0}};
        q.how = (enum pst_k_embed_similarity)how;
        hard_rows(q.rows, VERTICES, RANK_DIM);
        for (int64_t i = 0; i < TRIPLES; i++) {
            q.end[i] = (int64_t)rnd(VERTICES);
            memcpy(q.own + i * RANK_DIM, q.rows + q.end[i] * RANK_DIM, RANK_DIM * sizeof(float));
            for (int c = 0; c < RANK_DIM; c++)
                q.queries[i * RANK_DIM + c] = rnd(9) ? unit() : 0;
        }
        brute_force(&q, want);
        int64_t ties = 0;
        for (int64_t i = 0; i < TRIPLES; i++)
            ties += want[i].equal[0];
        assert_true(ties > TRIPLES / 4);
        for (int64_t partitions = 1; partitions <= 32; partitions += partitions == 1 ? 7 : 24)
            for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
                struct pst_embed_count got[TRIPLES];
                by_blocks(&q, partitions, on_gpu, got);
                for (int64_t i = 0; i < TRIPLES; i++)
                    for (int kind = 0; kind < 2; kind++)
                        if (got[i].above[kind] != want[i].above[kind] ||
                            got[i].equal[kind] != want[i].equal[kind])
                            fail_msg("similarity %d, %d partitions, %s, query %d: %lld above and %lld equal; "
                                     "expected %lld and %lld",
                                     how, (int)partitions, on_gpu ? "GPU" : "CPU", (int)i,
                                     (long long)got[i].above[kind], (long long)got[i].equal[kind],
                                     (long long)want[i].above[kind], (long long)want[i].equal[kind]);
            }
    }
}

/* ---- steps ------------------------------------------------------------------------------------------- */

static double apart(const float *a, const float *b, int64_t n)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(off / norm) : sqrt(off);
}

enum {
    NODES = 70,
    EDGES = 23,
    NEGATIVES = 11,
    CHUNKS = 3,
    STEP_DIM = 10,
    ENTRIES = 4 * EDGES + 2 * CHUNKS * NEGATIVES
};

struct arrays {
    uint32_t src[EDGES], dst[EDGES], rel[EDGES], neg[2][CHUNKS * NEGATIVES], touched[2 * RELATIONS];
    float nodes[NODES * STEP_DIM], relations[2 * RELATIONS * STEP_DIM];
    float node_grads[ENTRIES * STEP_DIM], relation_grads[2 * RELATIONS * STEP_DIM];
    uint32_t list[ENTRIES];
};

static struct pst_embed_batch batch_of(struct arrays *a)
{
    return (struct pst_embed_batch){.edges = EDGES,
                                    .chunks = CHUNKS,
                                    .n = NODES,
                                    .negatives = NEGATIVES,
                                    .src = a->src,
                                    .rel = a->rel,
                                    .dst = a->dst,
                                    .neg_src = a->neg[0],
                                    .neg_dst = a->neg[1],
                                    .nodes = a->nodes,
                                    .node_grads = a->node_grads,
                                    .relation_rows = a->relations,
                                    .relation_grads = a->relation_grads,
                                    .touched = a->touched,
                                    .epoch = 2,
                                    .batch = 5};
}

static void fill(struct arrays *a)
{
    uint32_t *const ends[] = {a->src, a->dst};
    for (int i = 0; i < EDGES; i++) {
        for (int side = 0; side < 2; side++)
            ends[side][i] = (uint32_t)rnd(NODES / 2); /* the others have no gradient */
        a->rel[i] = (uint32_t)rnd(RELATIONS - 1);     /* the last one has none */
    }
    for (int i = 0; i < CHUNKS * NEGATIVES; i++)
        for (int side = 0; side < 2; side++)
            a->neg[side][i] = (uint32_t)rnd(NODES / 2);
    for (int i = 0; i < NODES * STEP_DIM; i++)
        a->nodes[i] = unit();
    for (int i = 0; i < 2 * RELATIONS * STEP_DIM; i++)
        a->relations[i] = unit();
}

/* Both forms of the gradients of vertices, those of relations, and the loss. */
static void compare_steps(const struct pst_embed_plan *plan, const char *name)
{
    static struct arrays here, back;
    double want, loss;
    int64_t nodes;
    fill(&here);
    struct arrays *there = sent(&here, sizeof here);
    struct pst_embed_batch on_cpu = batch_of(&here), on_gpu = batch_of(there);
    const int64_t dr = pst_embed_relation_floats(plan), half = plan->inverse ? RELATIONS : 0;
    assert_int_equal(pst_embed_step(plan, &on_cpu, cpu, &want), PST_OK);
    for (int listed = 0; listed < 2; listed++) {
        assert_int_equal(pst_embed_device_step(plan, &on_gpu, &gpu, listed ? there->list : NULL), PST_OK);
        pst_embed_device_end(&gpu);
        assert_int_equal(pst_embed_device_loss(&gpu, &loss, &nodes), PST_OK);
        fetch(&back, there, sizeof back);
        if (!(fabs(loss - want) <= 1e-5 * fabs(want)))
            fail_msg("%s: the loss is %.9g, and the CPU's is %.9g", name, loss, want);
        static float sums[NODES * STEP_DIM];
        memset(sums, 0, sizeof sums);
        for (int64_t k = 0; k < (listed ? nodes : NODES); k++)
            memcpy(sums + (listed ? back.list[k] : k) * STEP_DIM, back.node_grads + k * STEP_DIM,
                   STEP_DIM * sizeof(float));
        assert_true(apart(sums, here.node_grads, NODES * STEP_DIM) < 1e-5);
        assert_true(!listed || nodes <= NODES / 2);
    }
    for (int64_t k = 0; k < on_cpu.touched_n && dr > 0; k++) {
        const int64_t row = here.touched[k], at = row < RELATIONS ? k : half + k - on_cpu.touched_n / 2;
        assert_int_equal(back.touched[at], row < RELATIONS ? row : row - RELATIONS);
        assert_true(apart(back.relation_grads + at * dr, here.relation_grads + row * dr, dr) < 3e-5);
    }
    pst_device_give(&device, there);
}

static void test_steps(void **state)
{
    (void)state;
    static const char *const MODELS[] = {"dot", "distmult", "complex", "transe-l1", "transe-l2", "rotate"};
    for (int shape = 0; shape < 24; shape++) {
        const struct pst_embed_plan plan = {.model = pst_embed_model_named(MODELS[shape % 6]),
                                            .d = STEP_DIM,
                                            .relations = RELATIONS,
                                            .inverse = rnd(2),
                                            .loss = (enum pst_k_embed_loss)(shape / 6 % 3),
                                            .margin = 0.5f,
                                            .n3 = rnd(2) ? 0.01f : 0,
                                            .l2 = rnd(2) ? 0.02f : 0,
                                            .dropout = rnd(2) ? 0.3 : 0,
                                            .seed = 9,
                                            .unfused = rnd(3) == 0};
        compare_steps(&plan, MODELS[shape % 6]);
    }
}

static void no_query(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    (void)rel;
    (void)backwards;
    memcpy(q, anchor, (size_t)d * sizeof *q);
}

/* A model of one's own has no kernels. */
static void test_own_model(void **state)
{
    (void)state;
    static struct arrays here;
    const struct pst_embed_model own = {.name = "mine", .query = no_query};
    const struct pst_embed_plan plan = {.model = &own, .d = STEP_DIM, .relations = RELATIONS};
    const struct pst_embed_batch b = batch_of(&here);
    assert_int_equal(pst_embed_device_step(&plan, &b, &gpu, NULL), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "model mine has no kernels for cuda:0; expected dot, distmult"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_own_model)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
