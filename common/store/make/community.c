/* community.c: generates a power-law graph with planted communities. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/make/gen.h"
#include "common/store/dataset/stride.h"
#include "common/store/make/gen_impl.h"
#include "common/store/make/shuffle.h"
#include "common/util/memory.h"
#include "common/store/make/gen_random.h"

#define CLASSES_MAX 4096 /* class directions are a table of classes x dim floats */

struct community {
    const struct pst_community_spec *spec;
    int32_t *label;     /* of each vertex */
    int64_t *member;    /* vertices, grouped by class */
    int64_t *first;     /* classes + 1: where each class begins in member */
    double *cumulative; /* vertices + 1: sum of weights over member[0..i) */
    float *mean;        /* classes x dim: the class directions */
};

void pst_community_defaults(struct pst_community_spec *spec)
{
    *spec = (struct pst_community_spec){.name = "community",
                                        .vertices = 20000,
                                        .classes = 10,
                                        .feature_dim = 128,
                                        .degree = 14,
                                        .homophily = 0.7,
                                        .exponent = 2.8,
                                        .noise = 0.5,
                                        .train = 0.4,
                                        .val = 0.2,
                                        .seed = 1,
                                        .memory_bytes = pst_memory_default()};
}

static pst_rc check_spec(const struct pst_community_spec *s)
{
    if (s->vertices < 2 || s->vertices > INT32_MAX)
        return pst_fail(PST_E_ARG, "--vertices: expected 2 to 2147483647, found %" PRId64, s->vertices);
    if (s->classes < 1 || s->classes > CLASSES_MAX || s->classes * 2 > s->vertices)
        return pst_fail(
            PST_E_ARG,
            "--classes: expected 1 to %d, and at most half of the number of vertices, found %" PRId64,
            CLASSES_MAX, s->classes);
    if (s->feature_dim < 0 || s->feature_dim > PST_GEN_DIM_MAX)
        return pst_fail(PST_E_ARG, "--features: expected 0 to %d, found %" PRId64, PST_GEN_DIM_MAX,
                        s->feature_dim);
    if (!(s->degree > 0 && s->degree <= (double)s->vertices && s->degree <= 1e6))
        return pst_fail(PST_E_ARG,
                        "--degree: expected a number above 0, and at most the smaller of 1e6 and the number "
                        "of vertices, found %g",
                        s->degree);
    if (!(s->homophily >= 0 && s->homophily <= 1) || (s->classes == 1 && s->homophily < 1))
        return pst_fail(
            PST_E_ARG,
            "--homophily: expected a number from 0 to 1, and 1 if there is only one class, found %g",
            s->homophily);
    if (!(s->exponent > 2 && s->exponent <= 10))
        return pst_fail(PST_E_ARG, "--exponent: expected a number above 2 and at most 10, found %g",
                        s->exponent);
    if (!(s->noise >= 0 && s->noise <= 1e6))
        return pst_fail(PST_E_ARG, "--noise: expected 0 to 1e6, found %g", s->noise);
    if (!(s->train >= 0 && s->val >= 0 && s->train + s->val <= 1))
        return pst_fail(PST_E_ARG,
                        "--train and --val: expected fractions that sum to at most 1, found %g and %g",
                        s->train, s->val);
    return pst_stride_check(s->stride_bytes, s->feature_dim, PST_F32);
}

static pst_rc allocate(struct community *c)
{
    size_t n = (size_t)c->spec->vertices, k = (size_t)c->spec->classes, dim = (size_t)c->spec->feature_dim;
    uint64_t need =
        n * (sizeof *c->label + sizeof *c->member + sizeof *c->cumulative) + k * dim * sizeof *c->mean;
    if (need > c->spec->memory_bytes)
        return pst_fail(PST_E_LIMIT,
                        "%zu vertices with communities need %" PRIu64
                        " bytes of memory; the limit is %" PRIu64 " (--memory changes it)",
                        n, need, c->spec->memory_bytes);
    c->label = calloc(n, sizeof *c->label);
    c->member = calloc(n, sizeof *c->member);
    c->first = calloc(k + 1, sizeof *c->first);
    c->cumulative = calloc(n + 1, sizeof *c->cumulative);
    c->mean = calloc(k * dim + 1, sizeof *c->mean);
    if (c->label && c->member && c->first && c->cumulative && c->mean)
        return PST_OK;
    return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the communities of %zu vertices", n);
}

static void release(struct community *c)
{
    free(c->label);
    free(c->member);
    free(c->first);
    free(c->cumulative);
    free(c->mean);
}

/* Equal communities: the shuffle decides who is where. member is grouped by class as it is made. */
static void assign_labels(struct community *c)
{
    int64_t n = c->spec->vertices, k = c->spec->classes;
    assert(c->first != NULL);
    for (int64_t j = 0; j <= k; j++)
        c->first[j] = (int64_t)((__int128)n * j / k);
    struct pst_shuffle shuffle;
    pst_shuffle_init(&shuffle, n, c->spec->seed, PST_GEN_LABEL);
    int32_t label = 0;
    for (int64_t i = 0; i < n; i++) {
        while (i >= c->first[label + 1])
            label++;
        c->member[i] = pst_shuffle_at(&shuffle, i);
        c->label[c->member[i]] = label;
    }
}

/* Chung-Lu weights with a power-law tail: w = u^(-1/(exponent - 1)), cut at sqrt(n), above which expected
 * multiplicities pass one. */
static void assign_weights(struct community *c)
{
    double power = -1.0 / (c->spec->exponent - 1.0), cut = sqrt((double)c->spec->vertices), sum = 0;
    for (int64_t i = 0; i < c->spec->vertices; i++) {
        struct pst_rng_block d = pst_gen_draw(c->spec->seed, PST_GEN_WEIGHT, (uint64_t)c->member[i], 0);
        double w = pst_gen_exp(power * pst_gen_log(1.0 - pst_gen_unit(&d, 0)));
        c->cumulative[i] = sum;
        sum += w < cut ? w : cut;
    }
    c->cumulative[c->spec->vertices] = sum;
}

/* The vertex whose share of the weights holds x, among positions from..to-1. */
static int64_t find_weight(const struct community *c, int64_t from, int64_t to, double x)
{
    while (to - from > 1) {
        int64_t middle = from + (to - from) / 2;
        if (c->cumulative[middle] <= x)
            from = middle;
        else
            to = middle;
    }
    return c->member[from];
}

/* The other end of an edge at u: within u's class, or anywhere else, by weight. */
static int64_t draw_partner(const struct community *c, int64_t u, bool within, double unit)
{
    int64_t from = c->first[c->label[u]], to = c->first[c->label[u] + 1], n = c->spec->vertices;
    double low = c->cumulative[from], high = c->cumulative[to];
    if (within)
        return find_weight(c, from, to, low + unit * (high - low));
    double x = unit * (c->cumulative[n] - (high - low));
    return x < low ? find_weight(c, 0, from, x) : find_weight(c, to, n, x + (high - low));
}

static pst_rc draw_edges(void *ctx, int64_t first, int64_t count, int64_t *source, int64_t *target)
{
    const struct community *c = ctx;
    int64_t n = c->spec->vertices;
    for (int64_t i = 0; i < count; i++) {
        uint32_t attempt = 0;
        do { /* a class has two members or more, so a loop cannot be drawn for ever */
            struct pst_rng_block d =
                pst_gen_draw(c->spec->seed, PST_GEN_EDGE, (uint64_t)(first + i), attempt);
            struct pst_rng_block e =
                pst_gen_draw(c->spec->seed, PST_GEN_EDGE, (uint64_t)(first + i), attempt + 1);
            attempt += 2;
            source[i] = find_weight(c, 0, n, pst_gen_unit(&d, 0) * c->cumulative[n]);
            bool within = pst_gen_unit(&d, 1) < c->spec->homophily;
            target[i] = draw_partner(c, source[i], within, pst_gen_unit(&e, 0));
        } while (source[i] == target[i]);
    }
    return PST_OK;
}

/* Directions that are random, hence nearly at right angles, and of length 1. */
static void draw_means(struct community *c)
{
    int64_t dim = c->spec->feature_dim;
    for (int64_t k = 0; k < c->spec->classes && dim > 0; k++) {
        float *mean = c->mean + k * dim;
        double squares = 0;
        for (int64_t j = 0; j < dim; j++) {
            double value[4];
            pst_gen_normal4(pst_gen_draw(c->spec->seed, PST_GEN_MEAN, (uint64_t)(k * dim + j), 0), value);
            mean[j] = (float)value[0];
            squares += value[0] * value[0];
        }
        for (int64_t j = 0; j < dim; j++)
            mean[j] = (float)(mean[j] / sqrt(squares));
    }
}

static pst_rc draw_features(const void *ctx, int64_t first, int64_t rows, int64_t dim, int64_t stride,
                            void *out)
{
    const struct community *c = ctx;
    for (int64_t i = 0; i < rows; i++) {
        int64_t v = first + i;
        const float *mean = c->mean + c->label[v] * dim;
        for (int64_t j = 0; j < dim; j += 4) {
            double noise[4];
            pst_gen_normal4(pst_gen_draw(c->spec->seed, PST_GEN_FEATURE, (uint64_t)v, (uint32_t)(j / 4)),
                            noise);
            for (int64_t k = 0; k < 4 && j + k < dim; k++)
                ((float *)out)[i * stride + j + k] = (float)(mean[j + k] + c->spec->noise * noise[k]);
        }
    }
    return PST_OK;
}

static pst_rc write_topology(struct community *c, struct pst_build *b, struct pst_progress *progress)
{
    const struct pst_csc_builder_spec spec = {.build = b,
                                              .symmetrize = true,
                                              .dedupe = true,
                                              .memory_bytes = c->spec->memory_bytes,
                                              .threads = PST_GEN_THREADS};
    return pst_gen_topology(&spec, c->spec->vertices,
                            (int64_t)((double)c->spec->vertices * c->spec->degree / 2), draw_edges, c,
                            progress);
}

static json_t *provenance(const struct pst_community_spec *s)
{
    return json_pack("{s:s, s:{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}}", "command",
                     "penstock gen community", "parameters", "vertices", (json_int_t)s->vertices, "classes",
                     (json_int_t)s->classes, "features", (json_int_t)s->feature_dim, "degree", s->degree,
                     "homophily", s->homophily, "exponent", s->exponent, "noise", s->noise, "train", s->train,
                     "val", s->val, "seed", (json_int_t)s->seed, "stride_bytes", (json_int_t)s->stride_bytes);
}

pst_rc pst_gen_community(const struct pst_community_spec *spec, struct pst_build *b,
                         struct pst_progress *progress)
{
    pst_rc rc = check_spec(spec);
    if (rc != PST_OK)
        return rc;
    struct community c = {.spec = spec};
    if ((rc = allocate(&c)) != PST_OK)
        goto out;
    assign_labels(&c);
    assign_weights(&c);
    draw_means(&c);
    memcpy(b->manifest.name, spec->name, sizeof b->manifest.name);
    b->manifest.classes = spec->classes;
    b->manifest.provenance = provenance(spec);
    if ((rc = write_topology(&c, b, progress)) != PST_OK)
        goto out;
    if ((rc = pst_build_array_from(b, PST_ARRAY_LABELS, PST_I32, spec->vertices, c.label)) != PST_OK)
        goto out;
    int64_t train = (int64_t)((double)spec->vertices * spec->train);
    int64_t val = (int64_t)((double)spec->vertices * spec->val);
    const int64_t count[3] = {train, val, spec->vertices - train - val};
    if ((rc = pst_gen_splits(b, spec->vertices, count, spec->seed)) != PST_OK)
        goto out;
    rc = pst_gen_features(b, -1, spec->vertices, spec->feature_dim, PST_F32, spec->stride_bytes,
                          draw_features, &c, progress);
out:
    release(&c);
    return rc;
}
