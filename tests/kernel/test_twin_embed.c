/* The twins of the kernels of embeddings: relative error, norm-wise, of at most 1e-5. Sums by row, lists of
 * rows and masked scores are equal to the bit. */
#include "tests/kernel/twin_embed.h"

/* The error of a score is measured against the sum of its terms' sizes: terms of a product cancel. */
static void close_scores(const struct edges *e, const struct both *query, const struct both *score)
{
    const int64_t d = e->on_host.d;
    const float *q = query->host, *x = e->nodes.host, *host = score->host;
    const bool product = pst_k_embed_similarity_of(e->on_host.model) == PST_K_EMBED_PRODUCT;
    float *copy = fetched(score);
    double off = 0, norm = 0;
    for (int64_t i = 0; i < e->on_host.n; i++) {
        double size = fabs((double)host[i]);
        for (int64_t c = 0; c < d && product; c++)
            size += fabs((double)q[i * d + c] * (double)x[e->on_host.target[i] * d + c]);
        off += pow((double)copy[i] - (double)host[i], 2);
        norm += size * size;
    }
    if (!(sqrt(off) <= LIMIT * sqrt(norm)))
        fail_msg("scores of true ends: relative error %g", sqrt(off / norm));
    free(copy);
}

static void test_query(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct edges e = edges_new();
        const int64_t n = e.on_host.n, d = e.on_host.d;
        struct both query = floats_new(n * d), score = floats_new(n);
        cpu->embed_query(NULL, &e.on_host, query.host, score.host);
        cuda->embed_query(queue, &e.on_device, query.device, score.device);
        close_floats(&query, LIMIT, "queries");
        close_scores(&e, &query, &score);
        struct both *const all[] = {&query, &score};
        free_all(all, 2);
        edges_free(&e);
    }
}

static void test_query_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct edges e = edges_new();
        const int64_t n = e.on_host.n, d = e.on_host.d;
        const struct pst_k_embed_penalty penalty = {rnd(2) ? 0 : 0.03f, rnd(2) ? 0 : 0.2f};
        struct both query = floats_new(n * d), score = floats_new(n), d_score = floats_new(n);
        struct both d_query = floats_new(n * d), loss = total_new();
        struct both d_anchor = floats_new(n * d), d_target = floats_new(n * d), d_rel = floats_new(n * e.dr);
        cpu->embed_query(NULL, &e.on_host, query.host, score.host);
        send(&query);
        send(&score);
        cpu->embed_query_grad(NULL, &e.on_host, &penalty, query.host, score.host, d_score.host, d_query.host,
                              d_anchor.host, d_target.host, d_rel.host, loss.host);
        cuda->embed_query_grad(queue, &e.on_device, &penalty, query.device, score.device, d_score.device,
                               d_query.device, d_anchor.device, d_target.device, d_rel.device, loss.device);
        close_floats(&d_anchor, LIMIT, "gradients of anchors");
        close_floats(&d_target, LIMIT, "gradients of true ends");
        close_floats(&d_rel, LIMIT, "gradients of relations");
        close_total(&loss, "penalty");
        struct both *const all[] = {&query, &score, &d_score, &d_query, &d_anchor, &d_target, &d_rel, &loss};
        free_all(all, sizeof all / sizeof *all);
        edges_free(&e);
    }
}

/* ---- candidates ------------------------------------------------------------------------------------ */

static struct both transposed(const struct both *x, int64_t n, int64_t d)
{
    struct both xt = floats_new(n * d);
    for (int64_t i = 0; i < n * d; i++)
        ((float *)xt.host)[i % d * n + i / d] = ((float *)x->host)[i];
    return xt;
}

static void test_scores(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const enum pst_k_embed_similarity similarity = (enum pst_k_embed_similarity)(shape % 4);
        const int64_t m = size_below(140), n = size_below(140);
        int64_t d = 1 + size_below(rnd(6) ? 60 : 300);
        d += similarity == PST_K_EMBED_MODULI && d % 2;
        struct both q = floats_new(m * d), x = floats_new(n * d), scores = floats_new(m * n);
        struct both grad = floats_new(m * n), dq = floats_new(m * d), dx = floats_new(n * d);
        for (int64_t i = 0; i < m && n > 0; i++) /* some distances are 0, in one column or in all */
            if (rnd(8) == 0)
                memcpy((float *)q.host + i * d, (float *)x.host + i % n * d,
                       (size_t)(rnd(2) ? 1 : d) * sizeof(float));
        send(&q);
        struct both xt = transposed(&x, n, d);
        const struct pst_k_embed_tile on_host = {similarity, m,       n,           d,        q.host,
                                                 x.host,     xt.host, scores.host, grad.host};
        const struct pst_k_embed_tile on_device = {similarity,    m,          n, d, q.device, x.device, NULL,
                                                   scores.device, grad.device};
        cpu->embed_scores(NULL, &on_host);
        cuda->embed_scores(queue, &on_device);
        close_floats(&scores, LIMIT, "scores of candidates");
        for (int64_t i = 0; i < m * n; i++)
            if (rnd(10) == 0) { /* as the loss leaves negatives that do not count */
                ((float *)scores.host)[i] = -INFINITY;
                ((float *)grad.host)[i] = 0;
            }
        send(&scores);
        send(&grad);
        cpu->embed_scores_grad(NULL, &on_host, dq.host, dx.host);
        cuda->embed_scores_grad(queue, &on_device, dq.device, dx.device);
        close_floats(&dq, LIMIT, "gradients of queries");
        close_floats(&dx, LIMIT, "gradients of candidates");
        struct both *const all[] = {&q, &x, &scores, &grad, &dq, &dx, &xt};
        free_all(all, sizeof all / sizeof *all);
    }
}

/* ---- losses ---------------------------------------------------------------------------------------- */

static void check_loss(enum pst_k_embed_loss kind)
{
    FOR_SHAPES
    {
        const int64_t m = size_below(100), n = size_below(rnd(5) ? 120 : 1100), vertices = 1 + size_below(90);
        const bool all_vertices = rnd(2);
        struct both scores = floats_new(m * n), score = floats_new(m), ids = ids_new(n, vertices);
        struct both own = ids_new(m, all_vertices ? n + 3 : vertices), grad = floats_new(m * n);
        struct both d_score = floats_new(m), loss = total_new();
        /* Scores differ by less than 87: the CPU's exponential stops there, at 1e-38. With the offset their
         * exponentials do not fit into a float. */
        const float scale = rnd(3) ? 4 : 40;
        const float offset = kind == PST_K_EMBED_SOFTMAX && rnd(3) == 0 ? (rnd(2) ? 300 : -300) : 0;
        for (int64_t i = 0; i < m * n; i++)
            ((float *)scores.host)[i] = ((float *)scores.host)[i] * scale + offset;
        for (int64_t i = 0; i < m; i++)
            ((float *)score.host)[i] = ((float *)score.host)[i] * scale + offset;
        send(&scores);
        send(&score);
        const struct pst_k_embed_loss_rows on_host = {
            kind,     0.75f,     m,           n, score.host, scores.host, all_vertices ? NULL : ids.host,
            own.host, grad.host, d_score.host};
        const struct pst_k_embed_loss_rows on_device = {kind,
                                                        0.75f,
                                                        m,
                                                        n,
                                                        score.device,
                                                        scores.device,
                                                        all_vertices ? NULL : ids.device,
                                                        own.device,
                                                        grad.device,
                                                        d_score.device};
        cpu->embed_loss(NULL, &on_host, loss.host);
        cuda->embed_loss(queue, &on_device, loss.device);
        same_bytes(&scores, scores.bytes, "masked scores");
        close_floats(&grad, LIMIT, "gradients of scores");
        close_floats(&d_score, LIMIT, "gradients of true ends' scores");
        close_total(&loss, "loss");
        struct both *const all[] = {&scores, &score, &ids, &own, &grad, &d_score, &loss};
        free_all(all, sizeof all / sizeof *all);
    }
}

static void test_softmax(void **state)
{
    (void)state;
    check_loss(PST_K_EMBED_SOFTMAX);
}

static void test_logistic(void **state)
{
    (void)state;
    check_loss(PST_K_EMBED_LOGISTIC);
}

static void test_margin(void **state)
{
    (void)state;
    check_loss(PST_K_EMBED_MARGIN);
}

/* ---- sums and updates ------------------------------------------------------------------------------ */

static void test_sum(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t rows = 1 + size_below(rnd(4) ? 300 : 4), n = size_below(600), width = size_below(140);
        const bool listed = rnd(2);
        struct both row = ids_new(n, rows), from = floats_new(n * width), to = floats_new(rows * width);
        struct both touched = ids_new(rows, 9), count = both_new(sizeof(int64_t));
        cpu->embed_sum(NULL, n, row.host, from.host, rows, width, to.host, listed ? touched.host : NULL,
                       count.host);
        cuda->embed_sum(queue, n, row.device, from.device, rows, width, to.device,
                        listed ? touched.device : NULL, count.device);
        same_bytes(&to, to.bytes, "sums by row");
        same_bytes(&count, count.bytes, "the number of rows");
        const size_t list = listed ? (size_t)(*(int64_t *)count.host) * sizeof(uint32_t) : 0;
        same_bytes(&touched, list, "rows");
        struct both *const all[] = {&row, &from, &to, &touched, &count};
        free_all(all, sizeof all / sizeof *all);
    }
}

/* A list of n different rows. */
static struct both list_new(int64_t rows)
{
    struct both b = both_new((size_t)rows * sizeof(uint32_t));
    uint32_t *list = b.host;
    for (int64_t i = 0; i < rows; i++)
        list[i] = (uint32_t)i;
    for (int64_t i = rows - 1; i > 0; i--) {
        const int64_t j = (int64_t)rnd((uint64_t)i + 1);
        const uint32_t kept = list[i];
        list[i] = list[j];
        list[j] = kept;
    }
    send(&b);
    return b;
}

static void test_update(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const enum pst_k_embed_optimizer optimizer = (enum pst_k_embed_optimizer)(shape % 4);
        const int64_t rows = 1 + size_below(200), n = (int64_t)rnd((uint64_t)rows + 1);
        const int64_t d = 1 + size_below(rnd(6) ? 130 : 600);
        const bool listed = rnd(2), packed = rnd(2);
        struct both list = list_new(rows), x = floats_new(rows * d), grad = floats_new(rows * d);
        struct both memory = floats_new(rows * pst_k_embed_state_floats(optimizer, d));
        struct both count = both_new(sizeof(int64_t));
        for (size_t i = 0; i < memory.bytes / sizeof(float); i++)
            ((float *)memory.host)[i] = fabsf(((float *)memory.host)[i]);
        send(&memory);
        *(int64_t *)count.host = n;
        send(&count);
        const uint64_t step = 1 + rnd(40);
        const struct pst_k_embed_table on_host = {optimizer, 0.1f, step, d, x.host, memory.host};
        const struct pst_k_embed_table on_device = {optimizer, 0.1f, step, d, x.device, memory.device};
        cpu->embed_update(NULL, &on_host, listed ? list.host : NULL, n, grad.host, packed);
        if (rnd(2))
            cuda->embed_update(queue, &on_device, listed ? list.device : NULL, n, grad.device, packed);
        else
            cuda->embed_update_n(queue, &on_device, listed ? list.device : NULL,
                                 (struct pst_twin_n){count.device, rows}, grad.device, packed);
        close_floats(&x, LIMIT, "updated rows");
        close_floats(&memory, LIMIT, "the optimizer's state");
        struct both *const all[] = {&list, &x, &grad, &memory, &count};
        free_all(all, sizeof all / sizeof *all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),   cmocka_unit_test(test_query_grad), cmocka_unit_test(test_scores),
        cmocka_unit_test(test_softmax), cmocka_unit_test(test_logistic),   cmocka_unit_test(test_margin),
        cmocka_unit_test(test_sum),     cmocka_unit_test(test_update),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
