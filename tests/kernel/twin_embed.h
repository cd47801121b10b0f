/* twin_embed.h: random sides of edges for both twins of the kernels of embeddings. */
#ifndef TWIN_EMBED_H
#define TWIN_EMBED_H

#include "tests/kernel/twin_matrix.h"

static inline struct both ids_new(int64_t n, int64_t below)
{
    struct both b = both_new((size_t)n * sizeof(uint32_t));
    for (int64_t i = 0; i < n; i++)
        ((uint32_t *)b.host)[i] = (uint32_t)rnd((uint64_t)below);
    send(&b);
    return b;
}

static inline void free_all(struct both *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        both_free(all[i]);
}

/* A sum that both twins add to: it begins as 0.5. */
static inline struct both total_new(void)
{
    struct both b = both_new(sizeof(double));
    *(double *)b.host = 0.5;
    send(&b);
    return b;
}

static inline void close_total(const struct both *b, const char *what)
{
    double *copy = fetched(b), host = *(double *)b->host;
    if (!(fabs(*copy - host) <= LIMIT * fabs(host)))
        fail_msg("%s: %.9g, and the CPU's is %.9g", what, *copy, host);
    free(copy);
}

struct edges {
    struct pst_k_embed_side on_host, on_device;
    int64_t dr;
    struct both nodes, anchor, target, relations, relation, anchors;
};

/* Anchors, true ends and relations of n edges, of a random model. */
static inline struct edges edges_new(void)
{
    const enum pst_k_embed_model model = (enum pst_k_embed_model)rnd(PST_K_EMBED_MODELS);
    const int64_t vertices = 1 + size_below(200), relations = 1 + size_below(20), n = size_below(150);
    int64_t d = 1 + size_below(rnd(6) ? 130 : 600);
    if (pst_k_embed_is_complex(model))
        d += d % 2;
    struct edges e = {.on_host = {.model = model,
                                  .n = n,
                                  .d = d,
                                  .backwards = rnd(2),
                                  .dropout = rnd(3) ? 0 : (double)rnd(1000) / 1001,
                                  .draws = pst_rng_stream_of(PST_RNG_DROPOUT, rnd(1u << 30), 3, rnd(99), 0),
                                  .first = rnd((uint64_t)1 << 34)},
                      .dr = pst_k_embed_floats_of_relation(model, d),
                      .nodes = floats_new(vertices * d),
                      .anchor = ids_new(n, vertices),
                      .target = ids_new(n, vertices),
                      .relation = ids_new(n, relations),
                      .anchors = floats_new(n * d)};
    e.relations = floats_new(relations * e.dr);
    for (int64_t i = 0; model == PST_K_EMBED_ROTATE && i < relations * e.dr; i++)
        ((float *)e.relations.host)[i] *= 3.14159265f;
    send(&e.relations);
    e.on_device = e.on_host;
    e.on_host.nodes = e.nodes.host;
    e.on_host.anchor = e.anchor.host;
    e.on_host.target = e.target.host;
    e.on_host.relations = e.dr ? e.relations.host : NULL;
    e.on_host.relation = e.relation.host;
    e.on_host.anchors = e.anchors.host;
    e.on_device.nodes = e.nodes.device;
    e.on_device.anchor = e.anchor.device;
    e.on_device.target = e.target.device;
    e.on_device.relations = e.dr ? e.relations.device : NULL;
    e.on_device.relation = e.relation.device;
    return e;
}

static inline void edges_free(struct edges *e)
{
    struct both *const all[] = {&e->nodes, &e->anchor, &e->target, &e->relations, &e->relation, &e->anchors};
    free_all(all, sizeof all / sizeof *all);
}

#endif
