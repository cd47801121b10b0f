/* typed_graph.c: generates a graph of papers, authors and venues, whose relations must be told apart. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/stride.h"
#include "common/store/make/gen.h"
#include "common/store/make/gen_impl.h"
#include "common/store/make/gen_random.h"
#include "common/util/memory.h"

#define CLASSES_MAX 4096 /* class directions are two tables of classes x dim floats */
#define DEGREE_MAX 1024  /* edges of one paper in one relation */

enum { PAPER, AUTHOR, VENUE, TYPES };
static const char *const type_name[TYPES] = {"paper", "author", "venue"};

/* Which community of its type the source of an edge is drawn from. */
enum from { OF_LABEL, OF_DECOY, OF_ANY };

/* Each paper gets `share` times `degree` edges of a relation, at least one, from vertices of the type
 * `other`. Reversed: the same edges lead from the paper to that vertex. */
static const struct relation {
    const char *name;
    int other;
    enum from from;
    double share;
    bool reversed;
    uint64_t drawn_as; /* reversed relations draw the edges of another one */
} relations[] = {{"author:writes:paper", AUTHOR, OF_LABEL, 1, false, 0},
                 {"author:reviews:paper", AUTHOR, OF_DECOY, 1, false, 1},
                 {"paper:extends:paper", PAPER, OF_LABEL, 1, false, 2},
                 {"paper:disputes:paper", PAPER, OF_DECOY, 1, false, 3},
                 {"venue:publishes:paper", VENUE, OF_ANY, 0, false, 4},
                 {"paper:written_by:author", AUTHOR, OF_LABEL, 1, true, 0},
                 {"paper:appears_in:venue", VENUE, OF_ANY, 0, true, 4}};
enum { RELATIONS = sizeof relations / sizeof *relations };

struct typed {
    const struct pst_gen_typed_spec *spec;
    int64_t first[TYPES + 1]; /* of each type's ids */
    float *mean[TYPES];       /* classes x dim: the class directions */
    int type;                 /* whose features are being drawn */
};

void pst_gen_typed_defaults(struct pst_gen_typed_spec *spec)
{
    *spec = (struct pst_gen_typed_spec){.name = "typed",
                                        .vertices = 20000,
                                        .classes = 10,
                                        .feature_dim = 64,
                                        .author_dim = 32,
                                        .degree = 4,
                                        .homophily = 0.8,
                                        .noise = 0.7,
                                        .train = 0.4,
                                        .val = 0.2,
                                        .seed = 1,
                                        .memory_bytes = pst_memory_default()};
}

static pst_rc check_spec(const struct pst_gen_typed_spec *s)
{
    if (s->classes < 2 || s->classes > CLASSES_MAX || s->classes > s->vertices / 4)
        return pst_fail(PST_E_ARG,
                        "--classes: expected 2 to %d, and at most a quarter of the number of papers "
                        "(--vertices), found %" PRId64,
                        CLASSES_MAX, s->classes);
    if (s->vertices > INT32_MAX / 2)
        return pst_fail(PST_E_ARG, "--vertices: expected at most %d papers, found %" PRId64, INT32_MAX / 2,
                        s->vertices);
    if (s->feature_dim < 1 || s->author_dim < 1)
        return pst_fail(PST_E_ARG,
                        "--features and --author-features: expected at least 1 each, found %" PRId64
                        " and %" PRId64,
                        s->feature_dim, s->author_dim);
    if (!(s->degree >= 1 && s->degree <= DEGREE_MAX))
        return pst_fail(PST_E_ARG, "--degree: expected 1 to %d, found %g", DEGREE_MAX, s->degree);
    if (!(s->homophily >= 0 && s->homophily <= 1))
        return pst_fail(PST_E_ARG, "--homophily: expected a number from 0 to 1, found %g", s->homophily);
    if (!(s->noise >= 0 && s->noise <= 1e6))
        return pst_fail(PST_E_ARG, "--noise: expected 0 to 1e6, found %g", s->noise);
    if (!(s->train >= 0 && s->val >= 0 && s->train + s->val <= 1))
        return pst_fail(PST_E_ARG,
                        "--train and --val: expected fractions that sum to at most 1, found %g and %g",
                        s->train, s->val);
    return pst_stride_check(s->stride_bytes, pst_max_i64(s->feature_dim, s->author_dim), PST_F32);
}

static int64_t dim_of(const struct typed *t, int type)
{
    return type == PAPER ? t->spec->feature_dim : type == AUTHOR ? t->spec->author_dim : 0;
}

static int64_t count_of(const struct typed *t, int type)
{
    return t->first[type + 1] - t->first[type];
}

/* A vertex's community is its number within its type, modulo the number of classes. */
static int64_t draw_source(const struct typed *t, const struct relation *r, int64_t paper,
                           const struct pst_rng_block *d, double decoy)
{
    const int64_t n = count_of(t, r->other), k = t->spec->classes;
    if (r->from == OF_ANY || pst_gen_unit(d, 0) >= t->spec->homophily)
        return pst_min_i64(n - 1, (int64_t)(pst_gen_unit(d, 1) * (double)n));
    const int64_t class = r->from == OF_LABEL ? paper % k : pst_min_i64(k - 1, (int64_t)(decoy * (double)k));
    const int64_t members = (n - class + k - 1) / k;
    return class + k * pst_min_i64(members - 1, (int64_t)(pst_gen_unit(d, 1) * (double)members));
}

static int64_t degree_of(const struct typed *t, const struct relation *r)
{
    return pst_max_i64(1, (int64_t)(r->share * t->spec->degree));
}

/* Edges first.. of one relation: edge i belongs to paper i / degree. */
static void draw_edges(const struct typed *t, const struct relation *r, int64_t first, int64_t n,
                       int64_t *source, int64_t *target)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t paper = (first + i) / degree_of(t, r);
        const struct pst_rng_block d =
            pst_gen_draw(t->spec->seed, PST_GEN_EDGE, (uint64_t)(first + i), (uint32_t)r->drawn_as);
        const struct pst_rng_block own = pst_gen_draw(t->spec->seed, PST_GEN_LABEL, (uint64_t)paper, 0);
        const int64_t other = t->first[r->other] + draw_source(t, r, paper, &d, pst_gen_unit(&own, 0));
        source[i] = r->reversed ? paper : other;
        target[i] = r->reversed ? other : paper;
    }
}

static pst_rc draw_relation(const struct typed *t, int k, struct pst_csc_builder *csc, int64_t *block,
                            struct pst_progress *progress)
{
    const int64_t edges = t->spec->vertices * degree_of(t, &relations[k]);
    int64_t *source = block, *target = block + PST_CSC_BUILDER_EDGE_BLOCK;
    int32_t *relation = (int32_t *)(void *)(block + 2 * PST_CSC_BUILDER_EDGE_BLOCK);
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < PST_CSC_BUILDER_EDGE_BLOCK; i++)
        relation[i] = k;
    for (int64_t first = 0; first < edges && rc == PST_OK; first += PST_CSC_BUILDER_EDGE_BLOCK) {
        const int64_t n = pst_min_i64(PST_CSC_BUILDER_EDGE_BLOCK, edges - first);
        draw_edges(t, &relations[k], first, n, source, target);
        rc = pst_csc_builder_add(csc, source, target, relation, n);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)n);
    }
    return rc;
}

static pst_rc write_topology(const struct typed *t, struct pst_build *b, struct pst_progress *progress)
{
    const struct pst_csc_builder_spec spec = {.build = b,
                                              .dedupe = true,
                                              .relations = true,
                                              .memory_bytes = t->spec->memory_bytes,
                                              .threads = PST_GEN_THREADS};
    struct pst_csc_builder *csc = NULL;
    int64_t edges = 0, *block = malloc(3 * sizeof *block * PST_CSC_BUILDER_EDGE_BLOCK);
    if (block == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of edges");
    for (int k = 0; k < RELATIONS; k++)
        edges += t->spec->vertices * degree_of(t, &relations[k]);
    pst_rc rc = pst_csc_builder_new(&csc, &spec);
    pst_progress_begin(progress, "edges: drawing", (uint64_t)edges, false);
    for (int k = 0; k < RELATIONS && rc == PST_OK; k++)
        rc = draw_relation(t, k, csc, block, progress);
    free(block);
    if (rc == PST_OK) {
        pst_progress_end(progress);
        rc = pst_csc_builder_finish(csc, t->first[TYPES], progress);
    }
    pst_csc_builder_free(csc);
    return rc;
}

/* Directions that are random, hence nearly at right angles, and of length 1. */
static void draw_means(const struct typed *t, int type)
{
    const int64_t dim = dim_of(t, type);
    for (int64_t k = 0; k < t->spec->classes; k++) {
        float *mean = t->mean[type] + k * dim;
        double squares = 0;
        for (int64_t j = 0; j < dim; j++) {
            double value[4];
            pst_gen_normal4(
                pst_gen_draw(t->spec->seed, PST_GEN_MEAN, (uint64_t)(k * dim + j), (uint32_t)type), value);
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
    const struct typed *t = ctx;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t own = first + i, v = t->first[t->type] + own;
        const float *mean = t->mean[t->type] + own % t->spec->classes * dim;
        for (int64_t j = 0; j < dim; j += 4) {
            double noise[4];
            pst_gen_normal4(pst_gen_draw(t->spec->seed, PST_GEN_FEATURE, (uint64_t)v, (uint32_t)(j / 4)),
                            noise);
            for (int64_t k = 0; k < 4 && j + k < dim; k++)
                ((float *)out)[i * stride + j + k] = (float)(mean[j + k] + t->spec->noise * noise[k]);
        }
    }
    return PST_OK;
}

static pst_rc write_features(struct typed *t, struct pst_build *b, struct pst_progress *progress)
{
    pst_rc rc = PST_OK;
    for (t->type = 0; t->type < TYPES && rc == PST_OK; t->type++) {
        const int64_t dim = dim_of(t, t->type);
        if (dim == 0)
            continue;
        t->mean[t->type] = malloc((size_t)(t->spec->classes * dim) * sizeof(float));
        if (t->mean[t->type] == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " class directions",
                            t->spec->classes);
        draw_means(t, t->type);
        rc = pst_gen_features(b, t->type, count_of(t, t->type), dim, PST_F32, t->spec->stride_bytes,
                              draw_features, t, progress);
    }
    return rc;
}

static pst_rc write_labels(const struct typed *t, struct pst_build *b)
{
    const int64_t n = t->first[TYPES];
    int32_t *labels = malloc((size_t)n * sizeof *labels);
    if (labels == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " labels", n);
    for (int64_t v = 0; v < n; v++)
        labels[v] = v < t->first[AUTHOR] ? (int32_t)(v % t->spec->classes) : -1;
    const pst_rc rc = pst_build_array_from(b, PST_ARRAY_LABELS, PST_I32, n, labels);
    free(labels);
    return rc;
}

static pst_rc note_types(const struct typed *t, struct pst_manifest *m)
{
    pst_rc rc = pst_manifest_types(m, TYPES, RELATIONS);
    for (int k = 0; k < TYPES && rc == PST_OK; k++) {
        (void)snprintf(m->vertex_type[k].name, sizeof m->vertex_type[k].name, "%s", type_name[k]);
        m->vertex_type[k].vertices = count_of(t, k);
    }
    for (int k = 0; k < RELATIONS && rc == PST_OK; k++) {
        (void)snprintf(m->edge_type[k].name, sizeof m->edge_type[k].name, "%s", relations[k].name);
        m->edge_type[k].source = relations[k].reversed ? PAPER : relations[k].other;
        m->edge_type[k].target = relations[k].reversed ? relations[k].other : PAPER;
    }
    m->relations = RELATIONS;
    return rc;
}

static json_t *provenance(const struct pst_gen_typed_spec *s)
{
    return json_pack("{s:s, s:{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I}}", "command",
                     "penstock gen typed", "parameters", "vertices", (json_int_t)s->vertices, "classes",
                     (json_int_t)s->classes, "features", (json_int_t)s->feature_dim, "author_features",
                     (json_int_t)s->author_dim, "degree", s->degree, "homophily", s->homophily, "noise",
                     s->noise, "train", s->train, "val", s->val, "seed", (json_int_t)s->seed, "stride_bytes",
                     (json_int_t)s->stride_bytes);
}

pst_rc pst_gen_typed(const struct pst_gen_typed_spec *spec, struct pst_build *b,
                     struct pst_progress *progress)
{
    pst_rc rc = check_spec(spec);
    if (rc != PST_OK)
        return rc;
    const int64_t papers = spec->vertices, authors = papers / 2,
                  venues = pst_max_i64(spec->classes, papers / 50);
    struct typed t = {.spec = spec, .first = {0, papers, papers + authors, papers + authors + venues}};
    memcpy(b->manifest.name, spec->name, sizeof b->manifest.name);
    b->manifest.classes = spec->classes;
    b->manifest.provenance = provenance(spec);
    const int64_t train = (int64_t)((double)papers * spec->train),
                  val = (int64_t)((double)papers * spec->val);
    const int64_t count[3] = {train, val, papers - train - val};
    rc = note_types(&t, &b->manifest);
    if (rc == PST_OK)
        rc = write_topology(&t, b, progress);
    if (rc == PST_OK)
        rc = write_labels(&t, b);
    if (rc == PST_OK)
        rc = pst_gen_splits(b, papers, count, spec->seed);
    if (rc == PST_OK)
        rc = write_features(&t, b, progress);
    for (int k = 0; k < TYPES; k++)
        free(t.mean[k]);
    return rc;
}
