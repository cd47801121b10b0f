/* embed.cu: a training step of graph embeddings (stages/lib/embed/embed_gpu.h), fused or not: Legend's
 * Figures 21 (Dot and ComplEx) and 23 (widths of rows), in our terms. The floor is the step's matrix products
 * alone. Loss and gradients are compared with the CPU's step before anything is timed. */
#include "tools/bench/gpu/gpu.cuh"

extern "C" {
#include "common/error.h"
#include "stages/lib/embed/embed_gpu.h"
}

#include <cmath>
#include <cstring>

namespace
{
struct sizes {
    int64_t nodes, relations, edges, chunks, negatives;
    int widths[4];
};
const struct sizes FULL = {60000, 1000, 50000, 10, 1000, {50, 100, 150, 200}};
const struct sizes TINY = {150, 5, 60, 2, 20, {8, 0, 0, 0}};
const double LIMIT = 5e-5; /* gradients are sums of thousands of terms that cancel */

struct step {
    struct gpu *g;
    struct sizes s;
    struct pst_device device;
    struct pst_embed_device w;
    struct pst_embed_plan plan;
    struct pst_embed_batch here, there;
    float *product[3]; /* scores of a chunk, and its gradients */
};

void need(pst_rc rc)
{
    if (rc != PST_OK)
        STOP("%s", pst_error_text());
}

uint32_t random_below(uint64_t *state, int64_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 11) % (uint32_t)below;
}

/* Both arrays of a batch: on the host and on the GPU. */
uint32_t *ids(struct step *b, int64_t n, int64_t below, const uint32_t **here, const uint32_t **there)
{
    static uint64_t state = 88172645463325252u;
    uint32_t *list = static_cast<uint32_t *>(calloc((size_t)n + 1, sizeof *list));
    if (!list)
        STOP("out of memory: cannot allocate %lld ids", (long long)n);
    for (int64_t i = 0; i < n; i++)
        list[i] = random_below(&state, below);
    *here = list;
    *there = static_cast<uint32_t *>(
        gpu_memory(b->g, PST_TWIN_MEMORY_DEVICE, (size_t)(n + 1) * sizeof *list, list));
    return list;
}

float *floats(struct step *b, int64_t n, uint32_t table, int64_t d, float **there)
{
    float *x = static_cast<float *>(calloc((size_t)n + 1, sizeof *x));
    if (!x)
        STOP("out of memory: cannot allocate %lld floats", (long long)n);
    if (d > 0)
        pst_embed_init(3, table, 0.3f, 0, n / d, d, x);
    *there = static_cast<float *>(gpu_memory(b->g, PST_TWIN_MEMORY_DEVICE, (size_t)(n + 1) * sizeof *x, x));
    return x;
}

void make_batch(struct step *b)
{
    const struct sizes *s = &b->s;
    const int64_t d = b->plan.d, dr = pst_embed_relation_floats(&b->plan), rows = 2 * s->relations;
    struct pst_embed_batch *h = &b->here, *t = &b->there;
    float *at;
    h->edges = s->edges;
    h->chunks = s->chunks;
    h->n = s->nodes;
    h->negatives = s->negatives;
    *t = *h;
    ids(b, s->edges, s->nodes, &h->src, &t->src);
    ids(b, s->edges, s->nodes, &h->dst, &t->dst);
    ids(b, s->edges, s->relations, &h->rel, &t->rel);
    ids(b, s->chunks * s->negatives, s->nodes, &h->neg_src, &t->neg_src);
    ids(b, s->chunks * s->negatives, s->nodes, &h->neg_dst, &t->neg_dst);
    h->nodes = floats(b, s->nodes * d, 0, d, &at);
    t->nodes = at;
    h->relation_rows = floats(b, rows * dr, 1, dr, &at);
    t->relation_rows = at;
    h->node_grads = floats(b, s->nodes * d, 0, 0, &t->node_grads);
    h->relation_grads = floats(b, rows * dr, 0, 0, &t->relation_grads);
    const uint32_t *touched;
    h->touched = ids(b, rows, 1, &touched, const_cast<const uint32_t **>(&t->touched));
}

void free_batch(struct step *b)
{
    const struct pst_embed_batch *h = &b->here, *t = &b->there;
    const void *const on_host[] = {h->src,   h->dst,           h->rel,        h->neg_src,        h->neg_dst,
                                   h->nodes, h->relation_rows, h->node_grads, h->relation_grads, h->touched};
    const void *const on_gpu[] = {
        t->src,        t->dst,           t->rel,        t->neg_src,        t->neg_dst,
        t->nodes,      t->relation_rows, t->node_grads, t->relation_grads, t->touched,
        b->product[0], b->product[1],    b->product[2]};
    for (const void *at : on_host)
        free(const_cast<void *>(at));
    for (const void *at : on_gpu)
        b->g->cuda->release(PST_TWIN_MEMORY_DEVICE, const_cast<void *>(at));
}

void call_step(void *context)
{
    struct step *b = static_cast<struct step *>(context);
    need(pst_embed_device_step(&b->plan, &b->there, &b->w, NULL));
}

/* The products that a step cannot do without, over the shapes of its chunks. */
void call_products(void *context)
{
    struct step *b = static_cast<struct step *>(context);
    const int64_t m = b->s.edges / b->s.chunks, n = b->s.negatives, d = b->plan.d;
    const float *x = b->there.nodes;
    for (int64_t task = 0; task < 2 * b->s.chunks; task++) {
        b->g->cuda->gemm(b->device.q, false, true, m, n, d, 1, x, d, x, d, 0, b->product[0], n, 1);
        b->g->cuda->gemm(b->device.q, false, false, m, d, n, 1, b->product[0], n, x, d, 0, b->product[1], d,
                         1);
        b->g->cuda->gemm(b->device.q, true, false, n, d, m, 1, b->product[0], n, x, d, 0, b->product[2], d,
                         1);
    }
}

void check_step(struct step *b, struct pst_embed_workspace *cpu, const char *name)
{
    double want = 0, loss = 0;
    int64_t nodes;
    need(pst_embed_step(&b->plan, &b->here, cpu, &want));
    call_step(b);
    pst_embed_device_end(&b->w);
    need(pst_embed_device_loss(&b->w, &loss, &nodes));
    if (!(std::fabs(loss - want) <= 1e-5 * want))
        STOP("%s: the loss is %.9g, and the CPU's is %.9g: nothing is measured", name, loss, want);
    gpu_close_floats(b->g, b->there.node_grads, b->here.node_grads, (size_t)(b->s.nodes * b->plan.d), LIMIT,
                     name);
}

/* One model and width: fused, not fused, and the products alone. */
void measure(struct step *b, struct pst_embed_workspace *cpu)
{
    const double flops = 12.0 * (double)b->plan.d * (double)(b->s.edges * b->s.negatives);
    double seconds[2];
    char name[64];
    make_batch(b);
    for (float *&at : b->product)
        at = static_cast<float *>(
            gpu_memory(b->g, PST_TWIN_MEMORY_DEVICE,
                       (size_t)(b->s.edges / b->s.chunks * pst_max_i64(b->s.negatives, b->plan.d) +
                                b->s.negatives * b->plan.d) *
                           4,
                       NULL));
    for (int unfused = 0; unfused < 2; unfused++) {
        b->plan.unfused = unfused;
        (void)snprintf(name, sizeof name, "step, %s, d %d, %s", b->plan.model->name, (int)b->plan.d,
                       unfused ? "not fused" : "fused");
        check_step(b, cpu, name);
        seconds[unfused] = gpu_seconds(b->g, call_step, b);
        need(pst_device_wait(&b->device));
        gpu_report({name, 0, flops, seconds[unfused], b->g->flops_s, 0});
    }
    const double least = gpu_seconds(b->g, call_products, b);
    need(pst_device_wait(&b->device));
    (void)snprintf(name, sizeof name, "%s, d %d: not fused / fused", b->plan.model->name, (int)b->plan.d);
    gpu_note(name, seconds[1] / seconds[0], "");
    (void)snprintf(name, sizeof name, "%s, d %d: fused / products", b->plan.model->name, (int)b->plan.d);
    gpu_note(name, seconds[0] / least, "");
    free_batch(b);
}
} // namespace

int gpu_embed(bool tiny)
{
    struct gpu g;
    struct step b = {};
    struct pst_embed_workspace *cpu;
    struct pst_queue_options options = {};
    gpu_open(&g, 1024, 1024);
    b.g = &g;
    b.s = tiny ? TINY : FULL;
    need(pst_device_open(&b.device, "cuda:0"));
    options.products = true;
    options.stream = g.stream;
    need(pst_device_queue(&b.device, options));
    need(pst_embed_device_open(&b.w, &b.device));
    need(pst_embed_workspace_new(&cpu, 2));
    for (const char *model : {"dot", "complex"})
        for (const int d : b.s.widths) {
            if (d == 0)
                continue;
            b.plan = {};
            b.plan.model = pst_embed_model_named(model);
            b.plan.d = d;
            b.plan.relations = b.s.relations;
            b.plan.inverse = true;
            b.plan.loss = PST_K_EMBED_SOFTMAX;
            measure(&b, cpu);
        }
    pst_embed_workspace_free(cpu);
    pst_device_close(&b.device);
    gpu_close(&g);
    return 0;
}
