/* The trainer's parts without a pipeline: a split batch, evaluation against a naive forward pass, state. */
#include "../../stages/trainer/model.c"
#include "../../stages/trainer/pass.c"
#include "../../stages/trainer/backward.c"
#include "../../stages/trainer/team.c"
#include "../../stages/trainer/rows.c"
#include "../../stages/trainer/eval.c"
#include "../../stages/trainer/eval_layers.c"
#include "../../stages/trainer/state.c"
#include "../../common/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum {
    VERTICES = 1300,
    EDGES_MAX = VERTICES * 12,
    DIM = 37,
    CLASSES = 5,
    SEEDS = 64,
    ROWS_MAX = 4000,
    HIDDEN_MAX = 24
};

/* A random graph with features and labels, as a dataset whose features are in a file. */
struct world {
    struct pst_dataset ds;
    char dir[64];
    int64_t indptr[VERTICES + 1], split[3][VERTICES];
    int32_t indices[EDGES_MAX], labels[VERTICES];
    int64_t wide_indices[EDGES_MAX];
    float features[VERTICES * DIM]; /* what the file holds, as floats */
    uint64_t random;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (w->random >> 33) % bound;
}

static double unit(struct world *w)
{
    return (double)below(w, 1u << 24) / (double)(1u << 23) - 1;
}

static int compare_ids(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Rows ascend, as a dataset's do. */
static void make_graph(struct world *w)
{
    int64_t edges = 0;
    for (int64_t v = 0; v < VERTICES; v++) {
        const int64_t degree = v == 7 ? 0 : (int64_t)below(w, 12);
        for (int64_t e = 0; e < degree; e++)
            w->indices[edges + e] = (int32_t)below(w, VERTICES);
        qsort(w->indices + edges, (size_t)degree, sizeof *w->indices, compare_ids);
        for (const int64_t end = edges + degree; edges < end; edges++)
            w->wide_indices[edges] = w->indices[edges];
        w->indptr[v + 1] = edges;
        w->labels[v] = v % 11 == 0 ? -1 : (int32_t)below(w, CLASSES);
        w->split[v % 3][v / 3] = v;
    }
    w->ds.edges = edges;
}

/* Rounds features to what the dtype can hold, and writes them as the dataset's file. */
static void write_features(struct world *w, enum pst_dtype dtype)
{
    const size_t size = dtype == PST_F32 ? 4 : 2;
    w->ds.stride_bytes = DIM * size + 8;
    w->ds.features.dtype = dtype;
    w->ds.features.data_at = PST_PAGE;
    w->ds.features.data_bytes = VERTICES * w->ds.stride_bytes;
    snprintf(w->ds.features.path, sizeof w->ds.features.path, "%s/features", w->dir);
    char *bytes = calloc(1, PST_PAGE + w->ds.features.data_bytes);
    for (int64_t v = 0; v < VERTICES; v++) {
        for (int64_t j = 0; j < DIM; j++) {
            char *to = bytes + PST_PAGE + (uint64_t)v * w->ds.stride_bytes + (uint64_t)j * size;
            float *f = &w->features[v * DIM + j];
            *f = (float)unit(w);
            uint32_t bits;
            memcpy(&bits, f, 4);
            if (dtype == PST_F32) {
                memcpy(to, f, 4);
            } else if (dtype == PST_BF16) {
                const uint16_t top = (uint16_t)(bits >> 16);
                memcpy(to, &top, 2);
            } else { /* exact in float16: eighths below 1 */
                *f = (float)((double)(int)(below(w, 15)) / 8 - 0.875);
                memcpy(&bits, f, 4);
                const int32_t exponent = (int32_t)(bits >> 23 & 255) - 127 + 15;
                const uint16_t half =
                    (uint16_t)(*f == 0 ? 0
                                       : (bits >> 16 & 0x8000) | ((uint32_t)exponent << 10) |
                                             (bits >> 13 & 0x3FF));
                memcpy(to, &half, 2);
            }
            if (dtype == PST_BF16) {
                bits &= 0xFFFF0000u;
                memcpy(f, &bits, 4);
            }
        }
    }
    FILE *file = fopen(w->ds.features.path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, PST_PAGE + w->ds.features.data_bytes, file),
                     PST_PAGE + w->ds.features.data_bytes);
    fclose(file);
    free(bytes);
}

static struct world *world_new(enum pst_dtype dtype, bool wide)
{
    struct world *w = calloc(1, sizeof *w);
    w->random = 99;
    snprintf(w->dir, sizeof w->dir, "/tmp/pst-trainer-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    make_graph(w);
    w->ds.vertices = VERTICES;
    w->ds.feature_dim = DIM;
    w->ds.classes = CLASSES;
    w->ds.indptr.map = w->indptr;
    w->ds.indices.map = wide ? (const void *)w->wide_indices : (const void *)w->indices;
    w->ds.indices.dtype = wide ? PST_I64 : PST_I32;
    w->ds.labels.map = w->labels;
    for (int s = 0; s < 3; s++) {
        w->ds.split[s].map = w->split[s];
        w->ds.split[s].shape[0] = VERTICES / 3;
    }
    write_features(w, dtype);
    return w;
}

static void world_free(struct world *w)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
}

/* ---- minibatches sampled from it ----------------------------------------------------------------- */

struct sampled {
    struct pst_batch view;
    int64_t vertices[ROWS_MAX];
    int32_t labels[SEEDS];
    int32_t indptr[PST_HOPS_MAX][ROWS_MAX], indices[PST_HOPS_MAX][EDGES_MAX];
    float features[ROWS_MAX * DIM];
};

static struct sampled *sample(const struct world *w, int hops, int fanout, const int64_t *seeds, int64_t n)
{
    struct sampled *s = calloc(1, sizeof *s);
    const struct pst_csc graph = {w->indptr, w->indices, 4, VERTICES, w->ds.edges};
    void *memory = malloc(pst_k_dedup_bytes(ROWS_MAX));
    int64_t *ids = malloc(EDGES_MAX * sizeof *ids), count = 0;
    struct pst_dedup *table = pst_k_dedup_init(memory, ROWS_MAX);
    assert_int_equal(pst_k_dedup(NULL, table, seeds, n, s->vertices, &count, ROWS_MAX, NULL), PST_OK);
    s->view = (struct pst_batch){.hops = hops,
                                 .n = {count},
                                 .vertices = s->vertices,
                                 .labels = s->labels,
                                 .features = s->features,
                                 .stride_bytes = DIM * sizeof(float),
                                 .epoch = 1,
                                 .number = 4,
                                 .normaliser = SEEDS};
    for (int h = 0; h < hops; h++) {
        const struct pst_sample_key key = {11, 1, (uint32_t)h, 4};
        assert_int_equal(pst_k_sample(NULL, &graph, &key, s->vertices, s->view.n[h], fanout, false,
                                      s->indptr[h], ids, EDGES_MAX),
                         PST_OK);
        assert_int_equal(pst_k_dedup(NULL, table, ids, s->indptr[h][s->view.n[h]], s->vertices, &count,
                                     ROWS_MAX, s->indices[h]),
                         PST_OK);
        s->view.n[h + 1] = count;
        s->view.indptr[h] = s->indptr[h];
        s->view.indices[h] = s->indices[h];
        s->view.edges[h] = s->indptr[h][s->view.n[h]];
    }
    for (int64_t i = 0; i < n; i++)
        s->labels[i] = w->labels[s->vertices[i]];
    for (int64_t i = 0; i < count; i++)
        memcpy(s->features + i * DIM, w->features + s->vertices[i] * DIM, DIM * sizeof(float));
    free(memory);
    free(ids);
    return s;
}

static struct pst_model_config config_of(int layers, enum pst_norm norm, bool residual, double dropout)
{
    return (struct pst_model_config){.layers = layers,
                                     .in = DIM,
                                     .hidden = HIDDEN_MAX,
                                     .classes = CLASSES,
                                     .norm = norm,
                                     .residual = residual,
                                     .aggregate = true,
                                     .dropout = dropout,
                                     .input_dropout = dropout / 2,
                                     .seed = 77,
                                     .threads = 1,
                                     .rows_max = ROWS_MAX};
}

static const int64_t *some_seeds(struct world *w, int64_t *seeds)
{
    for (int64_t i = 0; i < SEEDS; i++)
        seeds[i] = (int64_t)below(w, VERTICES / SEEDS) + i * (VERTICES / SEEDS);
    return seeds;
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void check_split(struct world *w, const struct pst_model_config *config, int64_t cut)
{
    int64_t seeds[SEEDS];
    some_seeds(w, seeds);
    struct pst_model whole, parts;
    struct pst_figures a = {0}, b = {0};
    assert_int_equal(pst_model_init(&whole, config), PST_OK);
    assert_int_equal(pst_model_init(&parts, config), PST_OK);
    struct sampled *all = sample(w, config->layers, 4, seeds, SEEDS);
    assert_int_equal(pst_model_step(&whole, &all->view, &a, NULL), PST_OK);
    for (int64_t from = 0; from < SEEDS; from += cut) {
        struct sampled *part =
            sample(w, config->layers, 4, seeds + from, from + cut > SEEDS ? SEEDS - from : cut);
        assert_int_equal(pst_model_step(&parts, &part->view, &b, NULL), PST_OK);
        free(part);
    }
    double error = 0, size = 0;
    for (int64_t i = 0; i < whole.size; i++) {
        error += pow((double)(whole.grad[i] - parts.grad[i]), 2);
        size += pow((double)whole.grad[i], 2);
    }
    assert_true(size > 0 && sqrt(error / size) < 1e-5);
    assert_true(fabs(a.loss - b.loss) < 1e-5 * a.loss);
    assert_int_equal(a.counted, b.counted);
    free(all);
    pst_model_release(&whole);
    pst_model_release(&parts);
}

static void test_split(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 8; variant++) {
        const struct pst_model_config config =
            config_of(variant & 1 ? 3 : 2, variant & 2 ? PST_NORM_LAYER : PST_NORM_NONE, variant & 1,
                      variant & 4 ? 0.5 : 0);
        check_split(w, &config, 16);
        check_split(w, &config, 23);
    }
    world_free(w);
}

/* A layer of the naive forward pass, in double, over all vertices and all neighbours. */
static void naive_layer(const struct world *w, const struct pst_model *m, int l, const double *x, double *y)
{
    const struct pst_layer *layer = &m->layer[l];
    const int64_t in = layer->in, out = layer->out;
    const float *p = m->weight;
    double *mean = malloc((size_t)in * sizeof *mean);
    for (int64_t v = 0; v < VERTICES; v++) {
        const int64_t begin = w->indptr[v], end = w->indptr[v + 1];
        for (int64_t i = 0; i < in; i++) {
            mean[i] = 0;
            for (int64_t e = begin; e < end; e++)
                mean[i] += x[w->indices[e] * in + i] / (double)(end - begin);
        }
        double average = 0, variance = 0;
        for (int64_t j = 0; j < out; j++) {
            double sum = layer->bias >= 0 ? (double)p[layer->bias + j] : 0;
            for (int64_t i = 0; i < in; i++)
                sum += x[v * in + i] * (double)p[layer->self + i * out + j] +
                       (m->config.aggregate ? mean[i] * (double)p[layer->neigh + i * out + j] : 0);
            y[v * out + j] = sum;
            average += sum / (double)out;
        }
        for (int64_t j = 0; j < out; j++)
            variance += pow(y[v * out + j] - average, 2) / (double)out;
        for (int64_t j = 0; j < out && !layer->last; j++) {
            double *at = &y[v * out + j];
            if (layer->running >= 0) {
                const float *running = m->running + layer->running;
                *at = (*at - (double)running[j]) / sqrt((double)running[out + j] + 1e-5);
            } else if (layer->gain >= 0) {
                *at = (*at - average) / sqrt(variance + 1e-5);
            }
            if (layer->gain >= 0)
                *at = *at * (double)p[layer->gain + j] + (double)p[layer->shift + j];
            *at = fmax(0, *at + (layer->residual ? x[v * in + j] : 0));
        }
    }
    free(mean);
}

static double *naive_forward(const struct world *w, const struct pst_model *m)
{
    double *x = malloc(VERTICES * 64 * sizeof *x), *y = malloc(VERTICES * 64 * sizeof *y);
    for (int64_t i = 0; i < VERTICES * DIM; i++)
        x[i] = (double)w->features[i];
    for (int l = 0; l < m->config.layers; l++) {
        naive_layer(w, m, l, x, y);
        double *swap = x;
        x = y;
        y = swap;
    }
    free(y);
    return x;
}

/* Weights away from their simple beginnings. */
static void stir(struct world *w, struct pst_model *m)
{
    for (int64_t i = 0; i < m->size; i++)
        m->weight[i] += (float)(0.2 * unit(w));
    for (int64_t i = 0; i < m->running_size; i++)
        m->running[i] += (float)(0.4 * unit(w));
}

static void check_predictions(const struct pst_eval *eval, const double *logits)
{
    int64_t clear = 0;
    for (int64_t v = 0; v < VERTICES; v++) {
        double best = -1e300, second = -1e300;
        int32_t at = 0;
        for (int32_t c = 0; c < CLASSES; c++) {
            const double z = logits[v * CLASSES + c];
            if (z > best) {
                second = best;
                best = z;
                at = c;
            } else if (z > second) {
                second = z;
            }
        }
        if (best - second > 1e-3) {
            assert_int_equal(eval->predicted[v], at);
            clear++;
        }
    }
    assert_true(clear > VERTICES * 9 / 10);
}

static void check_accuracy(const struct world *w, const struct pst_eval *eval, const double *accuracy)
{
    for (int s = 0; s < 3; s++) {
        int64_t right = 0, counted = 0;
        for (int64_t i = 0; i < VERTICES / 3; i++) {
            const int64_t v = w->split[s][i];
            counted += w->labels[v] >= 0;
            right += w->labels[v] >= 0 && eval->predicted[v] == w->labels[v];
        }
        assert_true(accuracy[s] == (double)right / (double)counted);
    }
}

/* What the last two layers give, to compare bit by bit; each vertex of each layer comes once. */
struct caught {
    const struct pst_model_config *config;
    float hidden[VERTICES * HIDDEN_MAX], logits[VERTICES * CLASSES];
    _Atomic int seen[PST_LAYERS_MAX];
};

static pst_rc catch_rows(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows, int64_t ld)
{
    struct caught *c = ctx;
    const bool last = layer == c->config->layers - 1;
    const int64_t width = last ? c->config->classes : c->config->hidden;
    for (int64_t i = 0; i < n && layer >= c->config->layers - 2; i++)
        memcpy((last ? c->logits : c->hidden) + (first + i) * width, rows + i * ld,
               (size_t)width * sizeof *rows);
    c->seen[layer] += (int)n;
    return PST_OK;
}

static struct caught *evaluate(struct world *w, const struct pst_model *m, const double *logits,
                               uint64_t memory, bool spilled)
{
    struct pst_eval eval;
    double accuracy[3];
    struct caught *c = calloc(1, sizeof *c);
    const struct pst_eval_options options = {
        .spill_dir = w->dir, .memory_bytes = memory, .sink = catch_rows, .sink_ctx = c};
    c->config = &m->config;
    assert_int_equal(pst_eval_open(&eval, &m->config, &w->ds, &options), PST_OK);
    assert_true(eval.spilled == (spilled && m->config.aggregate));
    assert_int_equal(pst_eval_run(&eval, m, accuracy), PST_OK);
    assert_int_equal(pst_eval_run(&eval, m, accuracy), PST_OK); /* nothing is left of the first run */
    check_predictions(&eval, logits);
    check_accuracy(w, &eval, accuracy);
    for (int l = 0; l < m->config.layers; l++)
        assert_int_equal(c->seen[l], 2 * VERTICES);
    pst_eval_close(&eval);
    return c;
}

/* Neither memory nor threads change a bit. */
static void check_evaluation(struct world *w, const struct pst_model_config *config)
{
    static const uint64_t memory[] = {1u << 30, 0, 150000, 300000};
    struct caught *first = NULL;
    for (int k = 0; k < 8; k++) {
        struct pst_model_config c = *config;
        struct pst_model m;
        c.threads = 1 + k % 3;
        assert_int_equal(pst_model_init(&m, &c), PST_OK);
        w->random = 4711;
        stir(w, &m);
        double *logits = naive_forward(w, &m);
        struct caught *one = evaluate(w, &m, logits, memory[k % 4], k % 4 > 0);
        if (first) {
            assert_memory_equal(first->hidden, one->hidden, sizeof one->hidden);
            assert_memory_equal(first->logits, one->logits, sizeof one->logits);
            free(one);
        } else {
            first = one;
        }
        free(logits);
        pst_model_release(&m);
    }
    free(first);
}

static void test_evaluation(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 12; variant++) {
        struct pst_model_config config =
            config_of(variant & 1 ? 3 : 2, (enum pst_norm)(variant % 3), variant & 1, 0.5);
        config.aggregate = variant < 8;
        check_evaluation(w, &config);
    }
    world_free(w);
}

static void test_evaluation_types(void **state)
{
    (void)state;
    const struct pst_model_config config = config_of(2, PST_NORM_NONE, false, 0);
    const enum pst_dtype dtypes[] = {PST_F16, PST_BF16};
    for (int d = 0; d < 2; d++) {
        struct world *w = world_new(dtypes[d], true);
        check_evaluation(w, &config);
        world_free(w);
    }
}

/* On one of the team's threads: the message must come through. */
static pst_rc refuse_rows(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows, int64_t ld)
{
    (void)ctx;
    (void)n;
    (void)rows;
    (void)ld;
    return layer == 1 && first > 900 ? pst_fail(PST_E_LIMIT, "no room for layer 1") : PST_OK;
}

static void test_evaluation_refuses(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    struct pst_model_config config = config_of(2, PST_NORM_NONE, false, 0);
    struct pst_model m;
    struct pst_eval eval;
    config.threads = 2;
    double accuracy[3];
    assert_int_equal(pst_model_init(&m, &config), PST_OK);
    struct pst_eval_options options = {.spill_dir = w->dir, .memory_bytes = 1u << 30};
    assert_int_equal(pst_eval_open(&eval, &config, &w->ds, &options), PST_OK);
    const int32_t was = w->indices[700];
    w->indices[700] = VERTICES;
    assert_int_equal(pst_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    w->indices[700] = was;
    w->split[1][5] = -1;
    assert_int_equal(pst_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    w->split[1][5] = 0;
    w->ds.split[2].shape[0] = 0;
    assert_int_equal(pst_eval_run(&eval, &m, accuracy), PST_OK);
    assert_true(accuracy[2] == -1);
    assert_int_equal(truncate(w->ds.features.path, 9000), 0);
    assert_int_equal(pst_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    pst_eval_close(&eval);
    write_features(w, PST_F32);
    int64_t row = 0;
    while (w->indptr[row + 1] - w->indptr[row] < 2 || w->indices[w->indptr[row]] > 10)
        row++;
    const int32_t swap = w->indices[w->indptr[row]];
    w->indices[w->indptr[row]] = VERTICES - 1; /* neighbours that do not ascend: parts cannot be told apart */
    options.memory_bytes = 0;
    assert_int_equal(pst_eval_open(&eval, &config, &w->ds, &options), PST_OK);
    assert_int_equal(pst_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    w->indices[w->indptr[row]] = swap;
    assert_int_equal(pst_eval_run(&eval, &m, accuracy), PST_OK);
    options.sink = refuse_rows;
    pst_eval_close(&eval);
    assert_int_equal(pst_eval_open(&eval, &config, &w->ds, &options), PST_OK);
    assert_int_equal(pst_eval_run(&eval, &m, accuracy), PST_E_LIMIT);
    assert_non_null(strstr(pst_error_text(), "no room for layer 1"));
    pst_eval_close(&eval);
    options = (struct pst_eval_options){.spill_dir = "/nowhere/at/all", .memory_bytes = 10};
    assert_int_equal(pst_eval_open(&eval, &config, &w->ds, &options), PST_E_IO);
    w->ds.features.dtype = PST_F64;
    options.spill_dir = w->dir;
    assert_int_equal(pst_eval_open(&eval, &config, &w->ds, &options), PST_E_UNSUPPORTED);
    pst_model_release(&m);
    world_free(w);
}

/* A minibatch with all neighbours gives the logits of the naive pass. */
static void test_step_logits(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 4; variant++) {
        const struct pst_model_config config =
            config_of(variant & 1 ? 3 : 2, variant & 2 ? PST_NORM_LAYER : PST_NORM_NONE, variant & 1, 0);
        int64_t seeds[SEEDS];
        struct pst_model m;
        struct pst_figures figures = {0};
        const float *logits;
        assert_int_equal(pst_model_init(&m, &config), PST_OK);
        stir(w, &m);
        struct sampled *s = sample(w, config.layers, -1, some_seeds(w, seeds), SEEDS);
        double *naive = naive_forward(w, &m);
        assert_int_equal(pst_model_step(&m, &s->view, &figures, &logits), PST_OK);
        for (int64_t i = 0; i < SEEDS; i++)
            for (int64_t c = 0; c < CLASSES; c++)
                assert_true(fabs((double)logits[i * pst_width(CLASSES) + c] - naive[seeds[i] * CLASSES + c]) <
                            1e-4);
        free(naive);
        free(s);
        pst_model_release(&m);
    }
    world_free(w);
}

static void train_some(struct world *w, struct pst_model *m, int64_t from, int64_t to)
{
    for (int64_t batch = from; batch < to; batch++) {
        int64_t seeds[SEEDS];
        struct pst_figures figures = {0};
        w->random = (uint64_t)batch;
        struct sampled *s = sample(w, m->config.layers, 3, some_seeds(w, seeds), SEEDS);
        s->view.number = (uint64_t)batch;
        assert_int_equal(pst_model_step(m, &s->view, &figures, NULL), PST_OK);
        pst_model_update(m, 0.01, 5e-4);
        free(s);
    }
}

static void test_resume(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int norm = 0; norm < 3; norm++) {
        const struct pst_model_config config = config_of(3, (enum pst_norm)norm, true, 0.5);
        struct pst_model straight, first, second;
        struct pst_identity id;
        struct pst_training p, back;
        char path[256], dir[128];
        assert_int_equal(pst_model_init(&straight, &config), PST_OK);
        assert_int_equal(pst_model_init(&first, &config), PST_OK);
        assert_int_equal(pst_model_init(&second, &config), PST_OK);
        pst_identity_of(&id, &first, "0123456789abcdef");
        pst_training_init(&p);
        p.next_batch = 5;
        p.loss = 1.0 / 3;
        p.digest = UINT64_MAX - 1;
        p.best_epoch = 2;
        train_some(w, &straight, 0, 10);
        train_some(w, &first, 0, 5);
        assert_int_equal(pst_state_save(w->dir, 3, &first, &p, &id), PST_OK);
        snprintf(dir, sizeof dir, "%s/checkpoints", w->dir);
        assert_int_equal(pst_checkpoint_latest(dir, path, sizeof path, NULL, 0), PST_OK);
        assert_int_equal(pst_state_load(path, &second, &back, &id), PST_OK);
        assert_memory_equal(&p, &back, sizeof p);
        train_some(w, &second, 5, 10);
        const size_t bytes = (size_t)straight.size * sizeof(float);
        assert_memory_equal(straight.weight, second.weight, bytes);
        assert_memory_equal(straight.m, second.m, bytes);
        assert_memory_equal(straight.v, second.v, bytes);
        assert_memory_equal(straight.running, second.running, (size_t)straight.running_size * sizeof(float));
        id.dataset = "another";
        assert_int_equal(pst_state_load(path, &second, &back, &id), PST_E_ARG);
        id.dataset = "0123456789abcdef";
        second.config.seed++;
        assert_int_equal(pst_state_load(path, &second, &back, &id), PST_E_ARG);
        second.config.seed--;
        second.config.hidden++;
        pst_identity_of(&id, &second, id.dataset);
        assert_int_equal(pst_state_load(path, &second, &back, &id), PST_E_ARG);
        pst_model_release(&straight);
        pst_model_release(&first);
        pst_model_release(&second);
    }
    world_free(w);
}

static void test_keep(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    const struct pst_model_config config = config_of(2, PST_NORM_NONE, false, 0);
    struct pst_model m;
    struct pst_identity id;
    struct pst_training p;
    assert_int_equal(pst_model_init(&m, &config), PST_OK);
    pst_identity_of(&id, &m, "d");
    pst_training_init(&p);
    p.best_batch = 20;
    for (p.next_batch = 10; p.next_batch <= 70; p.next_batch += 10)
        assert_int_equal(pst_state_save(w->dir, 2, &m, &p, &id), PST_OK);
    char dir[128];
    uint64_t numbers[10];
    snprintf(dir, sizeof dir, "%s/checkpoints", w->dir);
    assert_int_equal(pst_checkpoint_list(dir, numbers, 10), 3);
    assert_int_equal(numbers[0], 20);
    assert_int_equal(numbers[1], 60);
    assert_int_equal(numbers[2], 70);
    pst_model_release(&m);
    world_free(w);
}

/* The same bits with one thread and with many, more than there are cores too. */
static void test_same_bits(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 6; variant++) {
        struct pst_model_config config =
            config_of(2 + variant % 2, (enum pst_norm)(variant / 2), variant % 2, 0.5);
        struct pst_model a, b, c;
        config.aggregate = variant != 3;
        assert_int_equal(pst_model_init(&a, &config), PST_OK);
        config.threads = 2 + variant;
        assert_int_equal(pst_model_init(&b, &config), PST_OK);
        config.seed++;
        assert_int_equal(pst_model_init(&c, &config), PST_OK);
        assert_memory_not_equal(a.weight, c.weight, (size_t)a.size * sizeof(float));
        train_some(w, &a, 0, 20);
        train_some(w, &b, 0, 20);
        assert_memory_equal(a.weight, b.weight, (size_t)a.size * sizeof(float));
        assert_memory_equal(a.running, b.running, (size_t)a.running_size * sizeof(float));
        pst_model_release(&a);
        pst_model_release(&b);
        pst_model_release(&c);
    }
    world_free(w);
}

struct counted {
    _Atomic int64_t times[1000];
};

static void count_task(void *arg, int64_t task, int worker)
{
    struct counted *c = arg;
    assert_true(worker >= 0 && worker < 5);
    c->times[task]++;
}

/* Every task of every job is done, once; jobs follow each other at once, and after a sleep. */
static void test_team(void **state)
{
    (void)state;
    static struct counted c;
    for (int threads = 1; threads <= 5; threads += 2) {
        struct pst_team *team;
        assert_int_equal(pst_team_new(&team, threads), PST_OK);
        memset(&c, 0, sizeof c);
        for (int job = 0; job < 2000; job++) {
            pst_team_run(team, count_task, &c, job % 7);
            if (job % 500 == 0)
                usleep(2000);
        }
        pst_team_run(team, count_task, &c, 1000);
        for (int t = 0; t < 1000; t++) {
            int64_t want = 1;
            for (int job = 0; job < 2000; job++)
                want += t < job % 7;
            assert_int_equal(c.times[t], want);
        }
        pst_team_free(team);
    }
    assert_true(pst_team_cores() >= 1);
}

static void test_refusals(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    struct pst_model m;
    struct pst_figures figures = {0};
    int64_t seeds[SEEDS];
    struct pst_model_config config = config_of(2, PST_NORM_NONE, true, 0);
    assert_int_equal(pst_model_init(&m, &config), PST_E_ARG);
    config = config_of(1, PST_NORM_NONE, false, 0);
    assert_int_equal(pst_model_init(&m, &config), PST_E_ARG);
    config = config_of(2, PST_NORM_NONE, false, 1);
    assert_int_equal(pst_model_init(&m, &config), PST_E_ARG);
    config = config_of(2, PST_NORM_NONE, false, 0);
    config.rows_max = 20;
    assert_int_equal(pst_model_init(&m, &config), PST_OK);
    struct sampled *s = sample(w, 2, 5, some_seeds(w, seeds), SEEDS);
    assert_int_equal(pst_model_step(&m, &s->view, &figures, NULL), PST_E_LIMIT);
    s->view.hops = 1;
    assert_int_equal(pst_model_step(&m, &s->view, &figures, NULL), PST_E_ARG);
    free(s);
    pst_model_release(&m);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_evaluation_types),
        cmocka_unit_test(test_evaluation_refuses),
        cmocka_unit_test(test_step_logits),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_team),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
