/* Means over graphs in which a few vertices have most edges, and their gradients: the host build counts the
 * rows that one warp reads. On a real GPU, nothing is counted, and only the results are compared. */
#include "tests/gpu/host_counts.h"
#include "tests/kernel/twin_block.h"
#include "tools/bench/gpu/graphs.h"

enum { VERTICES = 1500, DEGREE = 8, DIM = 20, CHUNK = 64, HUB = 10 /* times the mean degree */ };

/* A whole graph as one block, in which edges of a destination lie together. */
static struct block block_to(enum gpu_graph kind, bool turned)
{
    const int64_t edges = gpu_graph_edges(kind, VERTICES, DEGREE);
    struct block b = {.dsts = VERTICES, .sources = VERTICES, .edges = edges};
    b.indptr = both_new((VERTICES + 1) * sizeof(int32_t));
    b.indices = both_new((size_t)edges * sizeof(int32_t));
    int32_t *indptr = b.indptr.host, *indices = b.indices.host, at[VERTICES];
    int64_t source, target;
    for (int64_t i = 0; i < edges; i++) {
        gpu_graph_edge(kind, VERTICES, DEGREE, i, turned ? &target : &source, turned ? &source : &target);
        indptr[target + 1]++;
    }
    for (int64_t d = 0; d < VERTICES; d++) {
        at[d] = indptr[d];
        indptr[d + 1] += at[d];
    }
    for (int64_t i = 0; i < edges; i++) {
        gpu_graph_edge(kind, VERTICES, DEGREE, i, turned ? &target : &source, turned ? &source : &target);
        indices[at[target]++] = (int32_t)source;
    }
    send(&b.indptr);
    send(&b.indices);
    b.on_host = (struct pst_block){b.indptr.host, b.indices.host, b.dsts, edges, b.sources};
    b.on_device = (struct pst_block){b.indptr.device, b.indices.device, b.dsts, edges, b.sources};
    return b;
}

static struct block block_of(enum gpu_graph kind)
{
    return block_to(kind, false);
}

/* Edges of the source that has the most. */
static int64_t most_edges(const struct block *b)
{
    int64_t count[VERTICES] = {0}, most = 0;
    for (int64_t e = 0; e < b->edges; e++)
        count[((int32_t *)b->indices.host)[e]]++;
    for (int64_t v = 0; v < VERTICES; v++)
        most = pst_max_i64(most, count[v]);
    return most;
}

static void read_in_chunks(const char *kernel)
{
    uint64_t count[PST_HOST_COUNTS];
    settled(PST_OK);
    if (!host_counts(count))
        return;
    if (count[PST_HOST_ROWS] < 1 || count[PST_HOST_ROWS] > CHUNK)
        fail_msg("%s: a warp reads %llu rows; expected 1 to %d", kernel,
                 (unsigned long long)count[PST_HOST_ROWS], CHUNK);
}

/* Both kernels that send gradients back along edges: of means, and of sums with a weight for each edge. */
static void no_warp_reads_more_than_a_chunk(enum gpu_graph kind)
{
    uint64_t count[PST_HOST_COUNTS];
    struct block b = block_of(kind);
    struct matrix out = matrix_new(VERTICES, DIM), mean = matrix_new(VERTICES, DIM),
                  sum = matrix_new(VERTICES, DIM);
    struct both weight = floats_new(b.edges), own = floats_new(VERTICES);
    (void)host_counts(count);
    cpu->mean_grad(NULL, b.indptr.host, b.indices.host, b.dsts, host(&out), out.ld, host(&mean), mean.ld,
                   DIM);
    cuda->mean_grad_n(queue, b.indptr.device, b.indices.device, b.dsts, b.edges, b.sources, device(&out),
                      out.ld, device(&mean), mean.ld, DIM);
    read_in_chunks("mean_grad");
    close_floats(&mean.all, LIMIT, "gradient of means");
    (void)host_counts(count);
    cpu->weighted_sum_grad(NULL, &b.on_host, weight.host, own.host, host(&out), out.ld, host(&sum), sum.ld,
                           DIM);
    cuda->weighted_sum_grad(queue, &b.on_device, weight.device, own.device, device(&out), out.ld,
                            device(&sum), sum.ld, DIM);
    read_in_chunks("weighted_sum_grad");
    close_floats(&sum.all, LIMIT, "gradient of weighted sums");
    matrix_free(&out);
    matrix_free(&mean);
    matrix_free(&sum);
    both_free(&weight);
    both_free(&own);
    block_free(&b);
}

/* Means whose rows are long: eight warps share the chunks of a row. */
static void warps_share_a_long_row(enum gpu_graph kind, int64_t most)
{
    enum { TOO_WIDE = DIM + 3 };
    uint64_t count[PST_HOST_COUNTS];
    struct block b = block_to(kind, true);
    for (int64_t dim = DIM; dim <= TOO_WIDE; dim += TOO_WIDE - DIM) { /* by fours, and not */
        struct matrix in = matrix_new(VERTICES, dim), out = matrix_new(VERTICES, dim);
        (void)host_counts(count);
        const struct pst_twin_view on_host = {.at = host(&in), .ld = in.ld},
                                   on_device = {.at = device(&in), .ld = in.ld};
        cpu->mean(NULL, b.indptr.host, b.indices.host, b.dsts, &on_host, host(&out), out.ld, dim);
        cuda->mean(queue, b.indptr.device, b.indices.device, b.dsts, &on_device, device(&out), out.ld, dim);
        settled(PST_OK);
        if (host_counts(count) && count[PST_HOST_ROWS] > (uint64_t)most)
            fail_msg("mean: a warp reads %llu rows; expected at most %lld",
                     (unsigned long long)count[PST_HOST_ROWS], (long long)most);
        close_floats(&out.all, LIMIT, "means");
        matrix_free(&in);
        matrix_free(&out);
    }
    block_free(&b);
}

static void test_long_rows(void **state)
{
    (void)state;
    warps_share_a_long_row(GPU_RMAT, INT32_MAX);
    warps_share_a_long_row(GPU_STAR, (VERTICES / CHUNK / 8 + 1) * CHUNK);
}

static void test_rmat(void **state)
{
    (void)state;
    struct block b = block_of(GPU_RMAT);
    assert_true(most_edges(&b) >= HUB * DEGREE);
    block_free(&b);
    no_warp_reads_more_than_a_chunk(GPU_RMAT);
}

static void test_star(void **state)
{
    (void)state;
    struct block b = block_of(GPU_STAR);
    assert_int_equal(most_edges(&b), VERTICES - 1);
    block_free(&b);
    no_warp_reads_more_than_a_chunk(GPU_STAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rmat), cmocka_unit_test(test_star),
                                       cmocka_unit_test(test_long_rows)};
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
