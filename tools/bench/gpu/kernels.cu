/* kernels.cu: each kernel over one batch of two hops, as a sampler and a trainer would call it: compared with
 * the CPU's twin, then timed. What must move is each input that is used, and each output, once. Kernels whose
 * work depends on the edges run over three graphs (graphs.h), the others over the uniform one's batch. */
#include "tools/bench/gpu/gpu.cuh"
#include "tools/bench/gpu/graphs.h"

#include "common/error.h"
#include "common/ipc/gpus.h"
#include "common/ipc/region.h"

#include <cstring>
#include <string>

namespace
{
struct sizes {
    int64_t vertices, degree, seeds, features, link_rows, dim, gemm;
    size_t copy_bytes;
};
const struct sizes FULL = {4000000, 16, 8192, 2000000, 200000, 256, 8192, (size_t)1 << 30};
const struct sizes TINY = {3000, 6, 40, 3000, 200, 32, 64, 1 << 16};
enum { HOPS = 2, FANOUT = 10, ROW = 512 };
const double LIMIT = 1e-5; /* sums of thousands of terms may have five times that */
const char *const OVER[GPU_GRAPHS] = {"", ", R-MAT", ", star"}; /* what a figure's name ends with */

struct batch {
    struct gpu *g;
    struct sizes s;
    enum gpu_graph kind;
    int64_t n_seeds, most;         /* most: vertices of the batch */
    int64_t used[HOPS], fed[HOPS]; /* sources that have an edge in the hop's block, and destinations */
    struct pst_csc host, device;
    struct pst_sample_key key[HOPS];
    int64_t n[HOPS + 1], edges[HOPS];      /* vertices after each hop */
    int64_t *seeds, *vertices, *ids[HOPS]; /* on the host; vertices: of the last hop */
    int32_t *indptr[HOPS], *local[HOPS];
    int64_t *d_seeds, *d_vertices, *d_ids[HOPS], *d_count;
    int32_t *d_indptr[HOPS], *d_local[HOPS];
    struct pst_dedup *table;
    struct pst_cache *cache;
    int32_t *hit_pos, *hit_row, *miss_pos, *row; /* device */
    double gather_s;
};

template <class T> T *host_array(int64_t n)
{
    T *at = static_cast<T *>(calloc((size_t)n + 1, sizeof(T)));
    if (!at)
        STOP("out of memory: cannot allocate %lld elements", (long long)n);
    return at;
}

template <class T> T *device_array(struct batch *b, int64_t n, const T *from = NULL)
{
    return static_cast<T *>(gpu_memory(b->g, PST_TWIN_MEMORY_DEVICE, (size_t)(n + 1) * sizeof(T), from));
}

uint64_t random_of(uint64_t i, uint64_t below)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_INIT, 7, 0, 0, 0);
    const struct pst_rng_block draw = pst_rng_draw(&stream, i, 0);
    return pst_rng_bounded(pst_rng_u64(&draw, 0), below);
}

/* ---- the batch, by the CPU's twins; and the GPU's copy of it ---------------------------------------------
 */

/* In-edges, as the sampler reads them: those of a vertex are in the order of their numbers. */
void make_graph(struct batch *b)
{
    const int64_t v = b->s.vertices, edges = gpu_graph_edges(b->kind, v, b->s.degree);
    int64_t *indptr = host_array<int64_t>(v + 2);
    int32_t *indices = host_array<int32_t>(edges), *target = host_array<int32_t>(edges);
    int32_t *source = host_array<int32_t>(edges);
    for (int64_t i = 0; i < edges; i++) {
        int64_t from, to;
        gpu_graph_edge(b->kind, v, b->s.degree, i, &from, &to);
        source[i] = (int32_t)from;
        target[i] = (int32_t)to;
        indptr[to + 2]++;
    }
    for (int64_t i = 0; i < v; i++)
        indptr[i + 2] += indptr[i + 1];
    for (int64_t i = 0; i < edges; i++)
        indices[indptr[target[i] + 1]++] = source[i];
    free(source);
    free(target);
    b->host = {indptr, indices, 4, v, edges};
    b->device = b->host;
    b->device.indptr = device_array(b, v + 1, indptr);
    b->device.indices = device_array(b, edges, indices);
}

void need(pst_rc rc, const char *what)
{
    if (rc != PST_OK)
        STOP("%s: the CPU's twin returned %d", what, (int)rc);
}

/* How many vertices have an edge in the block of a hop. */
void count_used(struct batch *b, int h)
{
    char *seen = host_array<char>(b->n[h + 1]);
    b->used[h] = b->fed[h] = 0;
    for (int64_t e = 0; e < b->edges[h]; e++) {
        b->used[h] += !seen[b->local[h][e]];
        seen[b->local[h][e]] = 1;
    }
    for (int64_t d = 0; d < b->n[h]; d++)
        b->fed[h] += b->indptr[h][d + 1] > b->indptr[h][d];
    free(seen);
}

/* Most vertices of a star have one edge, so its batch begins with as many vertices as the others end with at
 * most. */
void size_batch(struct batch *b)
{
    const int64_t grown = b->s.seeds * (1 + FANOUT) * (1 + FANOUT);
    const bool star = b->kind == GPU_STAR;
    b->n_seeds = star ? pst_min_i64(grown, b->s.vertices / 4) : b->s.seeds;
    b->most = star ? b->n_seeds + 1 + HOPS * FANOUT : grown;
}

void make_batch(struct batch *b)
{
    const int64_t most = b->most;
    struct pst_dedup *table = b->g->cpu->dedup_init(malloc(b->g->cpu->dedup_bytes(most)), most);
    b->seeds = host_array<int64_t>(b->n_seeds);
    b->vertices = host_array<int64_t>(most);
    for (int64_t i = 0; i < b->n_seeds; i++)
        b->seeds[i] = i * (b->s.vertices / b->n_seeds);
    int64_t count = 0;
    b->g->cpu->dedup_reset(NULL, table);
    need(b->g->cpu->dedup(NULL, table, b->seeds, b->n_seeds, b->vertices, &count, most, NULL), "dedup");
    b->n[0] = count;
    for (int h = 0; h < HOPS; h++) {
        const int64_t capacity = b->n[h] * FANOUT;
        b->key[h] = {11, 1, (uint32_t)h, 5};
        b->indptr[h] = host_array<int32_t>(b->n[h] + 1);
        b->ids[h] = host_array<int64_t>(capacity);
        need(b->g->cpu->sample(NULL, &b->host, &b->key[h], b->vertices, b->n[h], FANOUT, false, b->indptr[h],
                               b->ids[h], capacity),
             "sample");
        b->edges[h] = b->indptr[h][b->n[h]];
        b->local[h] = host_array<int32_t>(b->edges[h]);
        need(b->g->cpu->dedup(NULL, table, b->ids[h], b->edges[h], b->vertices, &count, most, b->local[h]),
             "dedup");
        b->n[h + 1] = count;
        count_used(b, h);
        b->d_indptr[h] = device_array<int32_t>(b, b->n[h] + 1);
        b->d_ids[h] = device_array<int64_t>(b, capacity);
        b->d_local[h] = device_array<int32_t>(b, b->edges[h]);
    }
    free(table);
    b->d_seeds = device_array(b, b->n_seeds, b->seeds);
    b->d_vertices = device_array(b, most, b->vertices);
    b->d_count = device_array<int64_t>(b, 4);
    b->table = b->g->cuda->dedup_init(
        gpu_memory(b->g, PST_TWIN_MEMORY_DEVICE, b->g->cuda->dedup_bytes(most), NULL), most);
    if (!b->table)
        STOP("no table for dedup");
}

/* ---- sampling, dedup, lookup --------------------------------------------------------------------------- */

void call_sample(void *context)
{
    struct batch *b = static_cast<struct batch *>(context);
    for (int h = 0; h < HOPS; h++)
        (void)b->g->cuda->sample(b->g->q, &b->device, &b->key[h], b->d_vertices, b->n[h], FANOUT, false,
                                 b->d_indptr[h], b->d_ids[h], b->n[h] * FANOUT);
}

void call_dedup(void *context)
{
    struct batch *b = static_cast<struct batch *>(context);
    b->g->cuda->dedup_reset(b->g->q, b->table);
    (void)b->g->cuda->fill(b->g->q, b->d_count, 0, sizeof *b->d_count);
    (void)b->g->cuda->dedup(b->g->q, b->table, b->d_seeds, b->n_seeds, b->d_vertices, b->d_count, b->most,
                            NULL);
    for (int h = 0; h < HOPS; h++)
        (void)b->g->cuda->dedup(b->g->q, b->table, b->d_ids[h], b->edges[h], b->d_vertices, b->d_count,
                                b->most, b->d_local[h]);
}

void call_lookup(void *context)
{
    struct batch *b = static_cast<struct batch *>(context);
    b->g->cuda->lookup(b->g->q, b->cache, b->d_vertices, b->n[HOPS], b->hit_pos, b->hit_row, &b->d_count[1],
                       b->miss_pos, &b->d_count[2]);
}

/* Every other vertex is cached. */
void check_lookup(struct batch *b)
{
    const int64_t cached = b->s.vertices / 2, n = b->n[HOPS];
    int64_t *list = host_array<int64_t>(cached), numbers[2];
    int32_t *pos = host_array<int32_t>(n), *row = host_array<int32_t>(n), *miss = host_array<int32_t>(n);
    for (int64_t i = 0; i < cached; i++)
        list[i] = 2 * i;
    void *memory = malloc(b->g->cpu->cache_bytes(cached));
    const struct pst_cache *cache = b->g->cpu->cache_init(memory, list, cached);
    const int64_t *device_list = device_array(b, cached, list);
    b->cache = b->g->cuda->cache_init(
        gpu_memory(b->g, PST_TWIN_MEMORY_DEVICE, b->g->cuda->cache_bytes(cached), NULL), device_list, cached);
    b->hit_pos = device_array<int32_t>(b, n);
    b->hit_row = device_array<int32_t>(b, n);
    b->miss_pos = device_array<int32_t>(b, n);
    b->g->cpu->lookup(NULL, cache, b->vertices, n, pos, row, &numbers[0], miss, &numbers[1]);
    call_lookup(b);
    gpu_same(b->g, &b->d_count[1], numbers, sizeof numbers, "lookup");
    gpu_same(b->g, b->hit_row, row, (size_t)numbers[0] * sizeof *row, "rows of hits");
    gpu_same(b->g, b->miss_pos, miss, (size_t)numbers[1] * sizeof *miss, "positions of misses");
    free(list);
    free(memory);
    free(pos);
    free(row);
    free(miss);
}

void check_sampler(struct batch *b)
{
    call_sample(b);
    for (int h = 0; h < HOPS; h++) {
        gpu_same(b->g, b->d_indptr[h], b->indptr[h], (size_t)(b->n[h] + 1) * sizeof(int32_t),
                 "sample's rows");
        gpu_same(b->g, b->d_ids[h], b->ids[h], (size_t)b->edges[h] * sizeof(int64_t), "sampled neighbours");
    }
    call_dedup(b);
    gpu_same(b->g, b->d_count, &b->n[HOPS], sizeof(int64_t), "number of vertices");
    gpu_same(b->g, b->d_vertices, b->vertices, (size_t)b->n[HOPS] * sizeof(int64_t), "vertices");
    for (int h = 0; h < HOPS; h++)
        gpu_same(b->g, b->d_local[h], b->local[h], (size_t)b->edges[h] * sizeof(int32_t), "local positions");
    check_lookup(b);
}

std::string name_of(const struct batch *b, const char *kernel)
{
    return std::string(kernel) + OVER[b->kind];
}

/* Each may take a third of the time of the batch's gather, which is timed over the uniform graph. */
void time_sampler(struct batch *b)
{
    double draws = 0, ids = 0;
    for (int h = 0; h < HOPS; h++) {
        draws += (double)b->n[h] * (8 + 16 + 4) + (double)b->edges[h] * (4 + 8);
        ids += (double)b->edges[h] * (8 + 4);
    }
    const double n = (double)b->n[HOPS];
    const struct {
        const char *name;
        void (*call)(void *);
        double bytes;
    } parts[] = {{"sample", call_sample, draws},
                 {"dedup", call_dedup, ids + n * 8},
                 {"lookup", call_lookup, n * (8 + 8)}};
    for (const auto &part : parts) {
        const double seconds = gpu_seconds(b->g, part.call, b);
        gpu_report({name_of(b, part.name).c_str(), part.bytes, 0, seconds, b->g->copy_bytes_s, 0});
        if (b->gather_s > 0)
            gpu_note((std::string(part.name) + " / gather (at most 0.33)").c_str(), seconds / b->gather_s,
                     "");
    }
}

/* ---- gather ------------------------------------------------------------------------------------------- */

struct gathering {
    struct batch *b;
    const char *from;
    char *to;
    const int32_t *rows;
    int64_t n;
    uint64_t row_bytes;
};

void call_gather(void *context)
{
    const struct gathering *c = static_cast<const struct gathering *>(context);
    c->b->g->cuda->gather(c->b->g->q, c->from, c->row_bytes, c->rows, c->to, c->row_bytes, NULL, c->n,
                          c->row_bytes);
}

/* Where the rows lie: in the GPU's memory, in memory that CUDA pinned when it allocated it, or in a slot. */
enum place { ON_DEVICE, IN_PINNED, IN_SLOT };

/* Memory as stages share it for slots: a region that CUDA pins afterwards. */
struct pst_region slot_with(const void *from, size_t bytes)
{
    struct pst_region slot;
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES] = "";
    if (pst_region_new(&slot, "gpu-bench", bytes) != PST_OK || pst_gpus_open(&gpus) != PST_OK)
        STOP("cannot make a slot of %zu bytes: %s", bytes, pst_error_text());
    if (gpus->pin(0, slot.base, bytes, why) != PST_OK)
        STOP("cannot pin a slot of %zu bytes: %s", bytes, why);
    memcpy(slot.base, from, bytes);
    return slot;
}

void slot_end(struct pst_region *slot)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES] = "";
    if (pst_gpus_open(&gpus) != PST_OK || gpus->unpin(0, slot->base, why) != PST_OK)
        STOP("cannot unpin a slot: %s", why);
    pst_region_unmap(slot);
}

/* Gathers rows from a place. The first and last bytes of a row identify it. */
double gather_from(struct batch *b, enum place place, int64_t table, int64_t n, uint64_t row_bytes,
                   const char *name)
{
    const enum pst_twin_memory kind = place == ON_DEVICE ? PST_TWIN_MEMORY_DEVICE : PST_TWIN_MEMORY_PINNED;
    struct pst_region slot = {};
    char *src = static_cast<char *>(calloc((size_t)table, row_bytes));
    char *expected = static_cast<char *>(malloc((size_t)n * row_bytes + 1));
    int32_t *rows = host_array<int32_t>(n);
    for (int64_t i = 0; i < table; i++) {
        memcpy(src + (uint64_t)i * row_bytes, &i, sizeof i);
        memcpy(src + (uint64_t)(i + 1) * row_bytes - sizeof i, &i, sizeof i);
    }
    for (int64_t i = 0; i < n; i++)
        rows[i] = (int32_t)random_of((uint64_t)i, (uint64_t)table);
    struct gathering c = {b, NULL, NULL, device_array(b, n, rows), n, row_bytes};
    if (place == IN_SLOT)
        slot = slot_with(src, (size_t)table * row_bytes);
    void *memory = place == IN_SLOT ? slot.base : gpu_memory(b->g, kind, (size_t)table * row_bytes, src);
    c.from = static_cast<const char *>(memory);
    c.to = static_cast<char *>(gpu_memory(b->g, PST_TWIN_MEMORY_DEVICE, (size_t)n * row_bytes, NULL));
    b->g->cpu->gather(NULL, src, row_bytes, rows, expected, row_bytes, NULL, n, row_bytes);
    call_gather(&c);
    gpu_same(b->g, c.to, expected, (size_t)n * row_bytes, name);
    const double moved = (double)n * (double)row_bytes, seconds = gpu_seconds(b->g, call_gather, &c);
    const bool pinned = place != ON_DEVICE;
    gpu_report({name, (pinned ? moved : 2 * moved) + 4 * (double)n, 0, seconds,
                pinned ? b->g->link_bytes_s : b->g->copy_bytes_s, 0.85});
    free(src);
    free(expected);
    free(rows);
    if (place == IN_SLOT)
        slot_end(&slot);
    else
        b->g->cuda->release(kind, memory);
    b->g->cuda->release(PST_TWIN_MEMORY_DEVICE, c.to);
    b->g->cuda->release(PST_TWIN_MEMORY_DEVICE, const_cast<int32_t *>(c.rows));
    return seconds;
}

void time_gather(struct batch *b)
{
    b->gather_s = gather_from(b, ON_DEVICE, b->s.features, b->n[HOPS], ROW, "gather, the batch, 512 B");
    gather_from(b, ON_DEVICE, b->s.features / 2, b->n[HOPS] / 2, 2 * ROW, "gather, 1 KiB");
    gather_from(b, ON_DEVICE, b->s.features / 8, b->n[HOPS] / 8, 8 * ROW, "gather, 4 KiB");
    gather_from(b, IN_PINNED, b->s.features / 2, b->s.link_rows, ROW, "zero-copy gather, 512 B");
    gather_from(b, IN_PINNED, b->s.features / 8, b->s.link_rows / 4, 8 * ROW, "zero-copy gather, 4 KiB");
    gather_from(b, IN_SLOT, b->s.features / 2, b->s.link_rows, ROW, "zero-copy gather from a slot, 512 B");
    gather_from(b, IN_SLOT, b->s.features / 8, b->s.link_rows / 4, 8 * ROW,
                "zero-copy gather from a slot, 4 KiB");
}

/* ---- the trainer's ----------------------------------------------------------------------------------- */

struct dense {
    struct batch *b;
    int64_t dsts, edges, sources, dim, gemm;
    const int32_t *indptr, *indices; /* device */
    float *in, *out, *grad, *weights, *moments;
    struct pst_adam opt;
    struct pst_dropout drop;
};

void call_mean(void *context)
{
    const struct dense *d = static_cast<const struct dense *>(context);
    const struct pst_twin_view in = {d->in, NULL, d->dim, NULL, NULL};
    d->b->g->cuda->mean(d->b->g->q, d->indptr, d->indices, d->dsts, &in, d->out, d->dim, d->dim);
}

void call_mean_grad(void *context)
{
    const struct dense *d = static_cast<const struct dense *>(context);
    d->b->g->cuda->mean_grad_n(d->b->g->q, d->indptr, d->indices, d->dsts, d->edges, d->sources, d->out,
                               d->dim, d->grad, d->dim, d->dim);
}

void call_fused(void *context)
{
    const struct dense *d = static_cast<const struct dense *>(context);
    d->b->g->cuda->bias_relu_dropout(d->b->g->q, d->out, d->dim, d->weights, d->b->d_vertices, d->dsts,
                                     d->dim, true, &d->drop);
}

void call_adam(void *context)
{
    const struct dense *d = static_cast<const struct dense *>(context);
    const int64_t n = d->sources * d->dim / 4;
    d->b->g->cuda->adam(d->b->g->q, &d->opt, d->grad, d->in, d->moments, d->moments + n, n);
}

void call_gemm(void *context)
{
    const struct dense *d = static_cast<const struct dense *>(context);
    const int64_t k = d->gemm;
    d->b->g->cuda->gemm(d->b->g->q, false, false, k, k, k, 1, d->in, k, d->in, k, 0, d->grad, k, 1);
}

void call_layer(void *context)
{
    const struct dense *d = static_cast<const struct dense *>(context);
    d->b->g->cuda->gemm(d->b->g->q, false, false, d->dsts, d->dim, d->dim, 1, d->in, d->dim, d->weights,
                        d->dim, 0, d->out, d->dim, 1);
}

/* The GPU's kernel has run in place once; the CPU's does the same with the same start. */
void check_fused(struct batch *b, struct dense *d, float *out, const float *weights)
{
    b->g->cpu->bias_relu_dropout(NULL, out, d->dim, weights, b->vertices, d->dsts, d->dim, true, &d->drop);
    call_fused(d);
    gpu_close_floats(b->g, d->out, out, (size_t)(d->dsts * d->dim), LIMIT, "bias, relu, dropout");
}

void check_adam(struct batch *b, struct dense *d, float *grad, const float *in)
{
    const int64_t n = d->sources * d->dim / 4;
    float *moments = host_array<float>(2 * n);
    b->g->cpu->adam(NULL, &d->opt, grad, in, moments, moments + n, n);
    call_adam(d);
    gpu_close_floats(b->g, d->grad, grad, (size_t)n, LIMIT, "adam");
    free(moments);
}

/* Compares the whole product of a layer, and the last row of the square one. */
void check_gemm(struct batch *b, struct dense *d, const float *in)
{
    const int64_t k = d->gemm, dim = d->dim;
    float *out = host_array<float>(pst_max_i64(d->dsts * dim, k));
    b->g->cpu->gemm(NULL, false, false, d->dsts, dim, dim, 1, in, dim, in, dim, 0, out, dim, 1);
    call_layer(d);
    gpu_close_floats(b->g, d->out, out, (size_t)(d->dsts * dim), LIMIT, "gemm of a layer");
    b->g->cpu->gemm(NULL, false, false, 1, k, k, 1, in + (k - 1) * k, k, in, k, 0, out, k, 1);
    call_gemm(d);
    gpu_close_floats(b->g, d->grad + (k - 1) * k, out, (size_t)k, 5 * LIMIT, "gemm, square");
    free(out);
}

/* The gradient of means, added up in float64. The CPU's twin adds floats: over a star, a sum of a million
 * terms that are nearly equal is 0.7 % too small there. */
void add_gradients(const int32_t *indptr, const int32_t *indices, const struct dense *d, const float *out,
                   float *grad)
{
    double *sum = host_array<double>(d->sources * d->dim);
    for (int64_t v = 0; v < d->dsts; v++)
        for (int64_t e = indptr[v]; e < indptr[v + 1]; e++)
            for (int64_t j = 0; j < d->dim; j++)
                sum[indices[e] * d->dim + j] += (double)out[v * d->dim + j] / (indptr[v + 1] - indptr[v]);
    for (int64_t i = 0; i < d->sources * d->dim; i++)
        grad[i] = (float)sum[i];
    free(sum);
}

/* Leaves in out and grad what the GPU has there. */
void check_means(struct batch *b, struct dense *d, const float *in, float *out, float *grad)
{
    const int h = HOPS - 1;
    const struct pst_twin_view rows = {in, NULL, d->dim, NULL, NULL};
    b->g->cpu->mean(NULL, b->indptr[h], b->local[h], d->dsts, &rows, out, d->dim, d->dim);
    call_mean(d);
    gpu_close_floats(b->g, d->out, out, (size_t)(d->dsts * d->dim), LIMIT, "mean");
    add_gradients(b->indptr[h], b->local[h], d, out, grad);
    call_mean_grad(d);
    gpu_close_floats(b->g, d->grad, grad, (size_t)(d->sources * d->dim), LIMIT, "mean_grad");
}

/* Over the block of the last hop. The gradient is added to what is there. */
void time_means(struct batch *b, struct dense *d)
{
    static const double FORWARD[GPU_GRAPHS] = {0.75, 0, 0}, BACKWARD[GPU_GRAPHS] = {0.65, 0.45, 0};
    const int h = HOPS - 1;
    const double row = (double)d->dim * 4, copy = b->g->copy_bytes_s;
    const double structure = (double)d->edges * 4 + (double)d->dsts * 4;
    gpu_report({name_of(b, "mean (SpMM), forward").c_str(),
                structure + ((double)b->used[h] + (double)d->dsts) * row, 0, gpu_seconds(b->g, call_mean, d),
                copy, FORWARD[b->kind]});
    gpu_report({name_of(b, "mean (SpMM), backward").c_str(),
                structure + (2 * (double)b->used[h] + (double)b->fed[h]) * row, 0,
                gpu_seconds(b->g, call_mean_grad, d), copy, BACKWARD[b->kind]});
}

void time_rest(struct batch *b, struct dense *d)
{
    const double row = (double)d->dim * 4, copy = b->g->copy_bytes_s,
                 gemm = 2.0 * (double)(d->gemm * d->gemm * d->gemm);
    gpu_report(
        {"bias, relu, dropout", 2 * (double)d->dsts * row, 0, gpu_seconds(b->g, call_fused, d), copy, 0});
    gpu_report({"adam", (double)(d->sources * d->dim / 4) * 28, 0, gpu_seconds(b->g, call_adam, d), copy, 0});
    const double seconds = gpu_seconds(b->g, call_gemm, d);
    b->g->flops_s = seconds > 0 ? gemm / seconds : 0;
    gpu_report({"gemm, square", 0, gemm, seconds, b->g->flops_s, 0});
    gpu_report({"gemm of a layer", 0, 2.0 * (double)(d->dsts * d->dim * d->dim),
                gpu_seconds(b->g, call_layer, d), b->g->flops_s, 0});
}

void time_dense(struct batch *b)
{
    struct dense d = {};
    d.b = b;
    d.dsts = b->n[HOPS - 1];
    d.edges = b->edges[HOPS - 1];
    d.sources = b->n[HOPS];
    d.dim = b->s.dim;
    d.gemm = b->s.gemm;
    d.indptr = b->d_indptr[HOPS - 1];
    d.indices = b->d_local[HOPS - 1];
    d.drop.rate = 0.5f;
    d.opt = {1e-3, 0.9, 0.999, 1e-8, 0, 1, false};
    const int64_t n = pst_max_i64(d.sources * d.dim, d.gemm * d.gemm);
    float *in = host_array<float>(n), *out = host_array<float>(d.dsts * d.dim),
          *grad = host_array<float>(d.sources * d.dim);
    for (int64_t i = 0; i < n; i++)
        in[i] = (float)(gpu_mixed((uint64_t)i) >> 40) / (float)(1 << 24) - 0.5f;
    d.in = device_array(b, n, in);
    d.grad = device_array<float>(b, n);
    d.out = device_array<float>(b, d.dsts * d.dim);
    d.weights = device_array(b, d.dim * d.dim, in);
    d.moments = device_array<float>(b, d.sources * d.dim / 2 + 1);
    check_means(b, &d, in, out, grad);
    if (b->kind == GPU_UNIFORM) {
        check_fused(b, &d, out, in);
        check_adam(b, &d, grad, in);
        check_gemm(b, &d, in);
    }
    free(in);
    free(out);
    free(grad);
    time_means(b, &d);
    if (b->kind == GPU_UNIFORM)
        time_rest(b, &d);
    for (void *at : {(void *)d.in, (void *)d.grad, (void *)d.out, (void *)d.weights, (void *)d.moments})
        b->g->cuda->release(PST_TWIN_MEMORY_DEVICE, at);
}
} // namespace

int gpu_kernels(bool tiny, const char *graph)
{
    static const char *const NAMES[GPU_GRAPHS] = {"uniform", "rmat", "star"};
    struct gpu g;
    const struct sizes s = tiny ? TINY : FULL;
    const int64_t most = s.seeds * (1 + FANOUT) * (1 + FANOUT) + 1 + HOPS * FANOUT;
    bool found = graph == NULL;
    for (const char *name : NAMES)
        found = found || strcmp(name, graph) == 0;
    if (!found)
        STOP("--graph: expected uniform, rmat or star, found %s", graph);
    gpu_open(&g, most, s.dim);
    gpu_measure_copies(&g, s.copy_bytes);
    for (int kind = 0; kind < GPU_GRAPHS; kind++) {
        if (graph && strcmp(graph, NAMES[kind]) != 0)
            continue;
        struct batch b = {};
        b.g = &g;
        b.s = s;
        b.kind = (enum gpu_graph)kind;
        size_batch(&b);
        make_graph(&b);
        make_batch(&b);
        check_sampler(&b);
        if (b.kind == GPU_UNIFORM)
            time_gather(&b);
        time_sampler(&b);
        time_dense(&b);
    }
    gpu_close(&g); /* the end of the process frees the rest */
    return 0;
}
