/* gpu_ranks.c: a group of queries against a block of candidates, tile by tile. */
#include "common/error.h"
#include "stages/lib/embed/embed_gpu.h"

#include <stdlib.h>
#include <string.h>

enum { TILE_SCORES = 1 << 25 };

/* What has a word or two for each of m queries, one after the other: on the host and on the device. */
struct words {
    double *score, *norm;
    int64_t *own, *above, *equal, *start; /* above, equal: (m,2); start: (m + 1) */
};

static int64_t words_of(int64_t m)
{
    return 8 * m + 1;
}

static struct words place(void *at, int64_t m)
{
    int64_t *w = at;
    return (struct words){.score = at,
                          .norm = (double *)at + m,
                          .own = w + 2 * m,
                          .above = w + 3 * m,
                          .equal = w + 5 * m,
                          .start = w + 7 * m};
}

struct counting {
    enum pst_k_embed_similarity similarity;
    int64_t m, d, known;
    const struct pst_embed_candidates *c;
    struct pst_embed_device *w;
    struct words there;
    pst_real *query, *scores;
    double *norms;
    uint32_t *ids;
    int64_t tile; /* candidates */
};

static pst_rc grow_all(struct counting *r, void **there)
{
    const bool product = r->similarity == PST_K_EMBED_PRODUCT;
    pst_rc rc = pst_embed_device_grow(r->w, PST_EMBED_RANKS, words_of(r->m), sizeof(int64_t), there);
    if (rc == PST_OK)
        rc = pst_embed_device_grow(r->w, PST_EMBED_QUERY, r->m * r->d, sizeof(pst_real), &r->query);
    if (rc == PST_OK)
        rc = pst_embed_device_grow(r->w, PST_EMBED_SCORES, r->m * r->tile, sizeof(pst_real), &r->scores);
    if (rc == PST_OK)
        rc = pst_embed_device_grow(r->w, PST_EMBED_NORMS, product ? r->tile : 0, sizeof(double), &r->norms);
    if (rc == PST_OK)
        rc = pst_embed_device_grow(r->w, PST_EMBED_KNOWN, r->known, sizeof(uint32_t), &r->ids);
    return rc;
}

/* Candidates `first` to first + n - 1. */
static void count_tile(const struct counting *r, int64_t first, int64_t n)
{
    const struct pst_twin *twin = r->w->device->twin;
    struct pst_queue *q = r->w->device->q;
    const bool product = r->similarity == PST_K_EMBED_PRODUCT;
    const pst_real *x = r->c->x + first * r->d;
    const struct pst_k_embed_tile tile = {.similarity = r->similarity,
                                          .m = r->m,
                                          .n = n,
                                          .d = r->d,
                                          .query = r->query,
                                          .x = x,
                                          .scores = r->scores};
    const struct pst_k_embed_ranking ranking = {.similarity = r->similarity,
                                                .m = r->m,
                                                .n = n,
                                                .d = r->d,
                                                .query = r->query,
                                                .x = x,
                                                .scores = r->scores,
                                                .query_norm = product ? r->there.norm : NULL,
                                                .x_norm = product ? r->norms : NULL,
                                                .score = r->there.score,
                                                .first = first,
                                                .own = r->there.own,
                                                .known_start = r->there.start,
                                                .known = r->ids};
    if (product)
        twin->embed_norms(q, n, r->d, x, r->norms);
    twin->embed_scores(q, &tile);
    twin->embed_rank(q, &ranking, r->there.above, r->there.equal);
}

static pst_rc count_all(struct counting *r, const pst_real *query, struct pst_embed_count *counts,
                        void *words)
{
    const struct pst_twin *twin = r->w->device->twin;
    struct pst_queue *q = r->w->device->q;
    const struct words here = place(words, r->m);
    void *there;
    pst_rc rc = grow_all(r, &there);
    if (rc != PST_OK)
        return rc;
    r->there = place(there, r->m);
    for (int64_t i = 0; i < r->m; i++)
        here.score[i] = counts[i].score;
    memcpy(here.own, r->c->own, (size_t)r->m * sizeof *here.own);
    memcpy(here.start, r->c->known_start, (size_t)(r->m + 1) * sizeof *here.start);
    (void)twin->copy(q, there, words, (size_t)words_of(r->m) * sizeof(int64_t));
    (void)twin->copy(q, r->query, query, (size_t)(r->m * r->d) * sizeof *query);
    if (r->known > 0)
        (void)twin->copy(q, r->ids, r->c->known, (size_t)r->known * sizeof *r->ids);
    if (r->similarity == PST_K_EMBED_PRODUCT)
        twin->embed_norms(q, r->m, r->d, r->query, r->there.norm);
    for (int64_t first = 0; first < r->c->n; first += r->tile)
        count_tile(r, first, pst_min_i64(r->tile, r->c->n - first));
    (void)twin->copy(q, here.above, r->there.above, (size_t)(4 * r->m) * sizeof(int64_t));
    rc = pst_device_wait(r->w->device);
    for (int64_t i = 0; i < r->m && rc == PST_OK; i++)
        for (int kind = 0; kind < 2; kind++) {
            counts[i].above[kind] += here.above[2 * i + kind];
            counts[i].equal[kind] += here.equal[2 * i + kind];
        }
    return rc;
}

pst_rc pst_embed_device_count(enum pst_k_embed_similarity similarity, const pst_real *q, int64_t m, int64_t d,
                              const struct pst_embed_candidates *c, struct pst_embed_device *w,
                              struct pst_embed_count *counts)
{
    struct counting r = {.similarity = similarity,
                         .m = m,
                         .d = d,
                         .known = c->known_start[m],
                         .c = c,
                         .w = w,
                         .tile = pst_min_i64(c->n, pst_max_i64(1, TILE_SCORES / pst_max_i64(m, 1)))};
    void *words = calloc((size_t)words_of(m), sizeof(int64_t));
    if (!words)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot rank %lld queries", (long long)m);
    const pst_rc rc = count_all(&r, q, counts, words);
    free(words);
    return rc;
}
