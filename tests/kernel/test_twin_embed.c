/* The twins of the kernels of embeddings: relative error, norm-wise, of at most 1e-5. Sums by row, lists of
 * rows and masked scores are equal to the bit. */
#include "kernels/cpu/embed_rows.h"
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
            kind,     0.75f,     0.5f,        m, n, score.host, scores.host, all_vertices ? NULL : ids.host,
            own.host, grad.host, d_score.host};
        const struct pst_k_embed_loss_rows on_device = {
            kind,       0.75f,        0.5f,          m,
            n,          score.device, scores.device, all_vertices ? NULL : ids.device,
            own.device, grad.device,  d_score.device};
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

static void test_adversarial(void **state)
{
    (void)state;
    check_loss(PST_K_EMBED_ADVERSARIAL);
}

/* ---- sums and updates ------------------------------------------------------------------------------ */

/* The CPU's sums against a naive loop. */
static void check_sums(int64_t n, const struct both *row, const struct both *from, int64_t width,
                       const struct both *to, const struct both *touched, size_t found)
{
    const uint32_t *list = touched ? touched->host : NULL;
    for (size_t k = 0; k < found; k++) {
        assert_true(k == 0 || list[k] > list[k - 1]);
        for (int64_t c = 0; c < width; c++) {
            float sum = 0;
            for (int64_t i = 0; i < n; i++)
                sum += ((uint32_t *)row->host)[i] == list[k] ? ((float *)from->host)[i * width + c] : 0;
            assert_true(sum == ((float *)to->host)[(int64_t)k * width + c]);
        }
    }
}

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
        same_bytes(&count, count.bytes, "the number of rows");
        const size_t found = listed ? (size_t)(*(int64_t *)count.host) : 0;
        same_bytes(&touched, found * sizeof(uint32_t), "rows");
        same_bytes(&to, listed ? found * (size_t)width * sizeof(float) : to.bytes, "sums by row");
        check_sums(n, &row, &from, width, &to, listed ? &touched : NULL, found);
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

/* A queue's own memory grows. Without room, the call fails, and the reason names both sizes. */
static void test_reserve(void **state)
{
    (void)state;
    enum { ENTRIES = 400000, SUMS = 7 };
    struct pst_queue *small;
    struct both row = ids_new(ENTRIES, SUMS), from = floats_new(ENTRIES), to = floats_new(SUMS);
    const struct pst_queue_options options = {.device = 0};
    assert_int_equal(cuda->queue_new(&options, &small, why), PST_OK);
    cuda->embed_sum(small, ENTRIES, row.device, from.device, SUMS, 1, to.device, NULL, NULL);
    assert_int_equal(cuda->wait(small, why), PST_E_LIMIT);
    assert_non_null(strstr(why, "too little scratch memory"));
    assert_int_equal(cuda->reserve(small, ENTRIES, 0, why), PST_OK);
    assert_int_equal(cuda->reserve(small, 1, 1, why), PST_OK);
    cuda->embed_sum(small, ENTRIES, row.device, from.device, SUMS, 1, to.device, NULL, NULL);
    assert_int_equal(cuda->wait(small, why), PST_OK);
    cpu->embed_sum(NULL, ENTRIES, row.host, from.host, SUMS, 1, to.host, NULL, NULL);
    same_bytes(&to, to.bytes, "sums by row");
    cuda->queue_free(small);
    struct both *const all[] = {&row, &from, &to};
    free_all(all, sizeof all / sizeof *all);
}

/* ---- negatives --------------------------------------------------------------------------------------- */

static void test_negatives(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        enum { RANGES_MAX = 9 };
        const int64_t ranges = 1 + (int64_t)rnd(RANGES_MAX), edges = 1 + size_below(300);
        struct both ends[2] = {ids_new(edges, 5000), ids_new(edges, 5000)};
        struct both before = both_new((size_t)(ranges + 1) * sizeof(int64_t)),
                    first = ids_new(ranges, 100000);
        int64_t *sum = before.host;
        for (int64_t i = 0; i < ranges; i++) /* some are empty */
            sum[i + 1] = sum[i] + (i + 1 == ranges || rnd(4) ? 1 + size_below(200) : 0);
        send(&before);
        struct pst_k_embed_draws on_host = {.seed = rnd(1u << 30),
                                            .epoch = (uint32_t)rnd(9),
                                            .batch = rnd(1000),
                                            .chunks = 1 + size_below(12),
                                            .negatives = 1 + size_below(300),
                                            .all = rnd(4) == 0,
                                            .edges = edges,
                                            .end = {ends[0].host, ends[1].host},
                                            .ranges = ranges,
                                            .before = before.host,
                                            .first = first.host};
        on_host.drawn = (int64_t)rnd((uint64_t)on_host.negatives + 1);
        if (on_host.all) {
            on_host.chunks = 1;
            on_host.negatives = sum[ranges];
        }
        struct pst_k_embed_draws on_device = on_host;
        on_device.end[0] = ends[0].device;
        on_device.end[1] = ends[1].device;
        on_device.before = before.device;
        on_device.first = first.device;
        const int64_t n = on_host.chunks * on_host.negatives;
        struct both to[2] = {ids_new(n, 2), ids_new(n, 2)};
        cpu->embed_negatives(NULL, &on_host, (uint32_t *[]){to[0].host, to[1].host});
        cuda->embed_negatives(queue, &on_device, (uint32_t *[]){to[0].device, to[1].device});
        same_bytes(&to[0], to[0].bytes, "negatives for sources");
        same_bytes(&to[1], to[1].bytes, "negatives for destinations");
        struct both *const all[] = {&ends[0], &ends[1], &before, &first, &to[0], &to[1]};
        free_all(all, sizeof all / sizeof *all);
    }
}

/* ---- ranks ------------------------------------------------------------------------------------------- */

/* Known ends of m queries: *start gets the first of each, and of the end. */
static struct both known_new(int64_t m, int64_t vertices, struct both *start)
{
    *start = both_new((size_t)(m + 1) * sizeof(int64_t));
    int64_t *at = start->host;
    for (int64_t i = 0; i < m; i++)
        at[i + 1] = at[i] + (int64_t)rnd((uint64_t)pst_min_i64(vertices, 80) + 1);
    struct both known = both_new((size_t)at[m] * sizeof(uint32_t));
    for (int64_t i = 0; i < m; i++) /* each once */
        for (int64_t k = at[i], first = (int64_t)rnd(50); k < at[i + 1]; k++)
            ((uint32_t *)known.host)[k] = (uint32_t)((first + k - at[i]) % vertices);
    send(start);
    send(&known);
    return known;
}

/* Rows with equal scores, and with such that only a sum in double precision tells apart; huge ones, and NaN.
 */
static void make_hard(struct both *x, int64_t n, int64_t d)
{
    float *rows = x->host;
    for (int64_t i = 1; i < n; i++) {
        if (rnd(3) == 0)
            memcpy(rows + i * d, rows + (int64_t)rnd((uint64_t)i) * d, (size_t)d * sizeof *rows);
        if (rnd(6) == 0)
            rows[i * d + (int64_t)rnd((uint64_t)d)] *= 1 + 1e-7f;
    }
    if (n > 2 && rnd(4) == 0)
        rows[d] = rnd(2) ? NAN : 3e38f;
    send(x);
}

static void test_ranks(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const enum pst_k_embed_similarity similarity = (enum pst_k_embed_similarity)(shape % 4);
        const bool product = similarity == PST_K_EMBED_PRODUCT;
        const int64_t m = size_below(40), n = size_below(rnd(6) ? 300 : 4200), first = (int64_t)rnd(3) * 100;
        const int64_t d = 2 + 2 * size_below(40), vertices = first + n + 50;
        struct both x = floats_new(n * d), q = floats_new(m * d), scores = floats_new(m * n);
        struct both q_norm = both_new((size_t)m * sizeof(double)),
                    x_norm = both_new((size_t)n * sizeof(double));
        struct both own_score = both_new((size_t)m * sizeof(double)),
                    own = both_new((size_t)m * sizeof(int64_t));
        struct both start, known = known_new(m, vertices, &start);
        struct both above = both_new((size_t)m * 2 * sizeof(int64_t)), equal = both_new(above.bytes);
        make_hard(&x, n, d);
        for (int64_t i = 0; i < m; i++) {
            const float *qi = (float *)q.host + i * d;
            const int64_t at = n > 0 ? (int64_t)rnd((uint64_t)n) : 0;
            ((int64_t *)own.host)[i] = rnd(3) ? first + at : first + n + 7;
            ((double *)own_score.host)[i] =
                n > 0 ? pst_cpu_embed_exact_score(similarity, qi, (float *)x.host + at * d, d) : 1.5;
        }
        send(&own);
        send(&own_score);
        send(&above);
        send(&equal);
        const struct pst_k_embed_tile tile = {.similarity = similarity,
                                              .m = m,
                                              .n = n,
                                              .d = d,
                                              .query = q.device,
                                              .x = x.device,
                                              .scores = scores.device};
        cuda->embed_scores(queue, &tile);
        cuda->embed_norms(queue, n, d, x.device, x_norm.device);
        cuda->embed_norms(queue, m, d, q.device, q_norm.device);
        const struct pst_k_embed_ranking on_host = {
            similarity,     m,     n,        d,          q.host,    x.host, NULL, NULL, NULL,
            own_score.host, first, own.host, start.host, known.host};
        const struct pst_k_embed_ranking on_device = {similarity,
                                                      m,
                                                      n,
                                                      d,
                                                      q.device,
                                                      x.device,
                                                      scores.device,
                                                      product ? q_norm.device : NULL,
                                                      product ? x_norm.device : NULL,
                                                      own_score.device,
                                                      first,
                                                      own.device,
                                                      start.device,
                                                      known.device};
        cpu->embed_rank(NULL, &on_host, above.host, equal.host);
        cuda->embed_rank(queue, &on_device, above.device, equal.device);
        same_bytes(&above, above.bytes, "candidates above the true end");
        same_bytes(&equal, equal.bytes, "candidates equal to the true end");
        struct both *const all[] = {&x,   &q,     &scores, &q_norm, &x_norm, &own_score,
                                    &own, &start, &known,  &above,  &equal};
        free_all(all, sizeof all / sizeof *all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),       cmocka_unit_test(test_query_grad), cmocka_unit_test(test_scores),
        cmocka_unit_test(test_softmax),     cmocka_unit_test(test_logistic),   cmocka_unit_test(test_margin),
        cmocka_unit_test(test_adversarial), cmocka_unit_test(test_sum),        cmocka_unit_test(test_update),
        cmocka_unit_test(test_reserve),     cmocka_unit_test(test_negatives),  cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
