/* rmat.c: generates an R-MAT graph. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/make/gen.h"
#include "common/store/dataset/stride.h"
#include "common/store/make/gen_impl.h"
#include "common/store/make/shuffle.h"
#include "common/util/memory.h"
#include "common/util/team.h"
#include "common/store/make/gen_random.h"

#define LEVELS_MAX 40      /* 2^40 vertices: past any machine's memory */
#define ATTEMPTS_MAX 10000 /* draws of one edge before its quadrants are said to be at fault */
#define TASK_EDGES 1024    /* that one thread draws at a time: a fraction of a millisecond */

struct rmat {
    const struct pst_rmat_spec *spec;
    int levels;
    struct pst_shuffle rename;
    uint64_t below[3]; /* a, a+b, a+b+c in units of 2^-32 */
    struct pst_team *team;
};

/* A block of edges that the team draws. */
struct block {
    const struct rmat *rmat;
    int64_t first, count, *source, *target;
    _Atomic bool failed; /* an edge has no place */
};

void pst_rmat_defaults(struct pst_rmat_spec *spec)
{
    *spec = (struct pst_rmat_spec){.name = "rmat",
                                   .vertices = 1 << 16,
                                   .edges = 1 << 20,
                                   .classes = 16,
                                   .feature_dim = 128,
                                   .a = 0.57,
                                   .b = 0.19,
                                   .c = 0.19,
                                   .d = 0.05,
                                   .train_count = -1,
                                   .val_count = -1,
                                   .test_count = -1,
                                   .seed = 1,
                                   .memory_bytes = pst_memory_default()};
}

static pst_rc check_spec(const struct pst_rmat_spec *s, const int64_t count[3])
{
    double sum = s->a + s->b + s->c + s->d;
    if (s->vertices < 2 || s->vertices > (int64_t)1 << LEVELS_MAX)
        return pst_fail(PST_E_ARG, "--vertices: expected 2 to 2^%d, found %" PRId64, LEVELS_MAX, s->vertices);
    if (s->edges < 0 || s->edges > INT64_MAX / 64)
        return pst_fail(PST_E_ARG, "--edges: expected 0 to 2^57, found %" PRId64, s->edges);
    if (!(s->a >= 0 && s->b >= 0 && s->c >= 0 && s->d >= 0 && sum > 0.999999 && sum < 1.000001))
        return pst_fail(PST_E_ARG,
                        "--a --b --c --d: expected four probabilities with sum 1, found %g %g %g %g", s->a,
                        s->b, s->c, s->d);
    if (s->classes < 0 || s->classes > PST_MANIFEST_CLASSES_MAX)
        return pst_fail(PST_E_ARG, "--classes: expected 0 to %d, found %" PRId64, PST_MANIFEST_CLASSES_MAX,
                        s->classes);
    if (s->feature_dim < 0 || s->feature_dim > PST_GEN_DIM_MAX)
        return pst_fail(PST_E_ARG, "--features: expected 0 to %d, found %" PRId64, PST_GEN_DIM_MAX,
                        s->feature_dim);
    for (int i = 0; i < 3; i++)
        if (count[i] < 0 || count[i] > s->vertices || count[0] + count[1] + count[2] > s->vertices)
            return pst_fail(PST_E_ARG,
                            "--train-count, --val-count and --test-count: expected a sum of at most %" PRId64
                            ", the number of vertices, found %" PRId64 ", %" PRId64 " and %" PRId64,
                            s->vertices, count[0], count[1], count[2]);
    return pst_stride_check(s->stride_bytes, s->feature_dim, PST_F32);
}

/* One descent through the quadrants: a bit of the row (source) and of the column (target) a level. */
static void descend(const struct rmat *r, uint64_t edge, uint32_t attempt, int64_t *source, int64_t *target)
{
    uint64_t row = 0, column = 0;
    struct pst_rng_block d = {{0}};
    for (int level = 0; level < r->levels; level++) {
        if (level % 4 == 0)
            d = pst_gen_draw(r->spec->seed, PST_GEN_EDGE, edge,
                             attempt * (LEVELS_MAX / 4) + (uint32_t)level / 4);
        uint64_t x = d.word[level % 4];
        uint64_t lower = x >= r->below[1];
        uint64_t right = (x >= r->below[0]) ^ lower ^ (x >= r->below[2]);
        row = row << 1 | lower;
        column = column << 1 | right;
    }
    *source = (int64_t)row;
    *target = (int64_t)column;
}

/* False: the quadrants hardly have edges within the vertices. */
static bool draw_edge(const struct rmat *r, int64_t edge, int64_t *source, int64_t *target)
{
    const int64_t n = r->spec->vertices;
    uint32_t attempt = 0;
    do {
        if (attempt == ATTEMPTS_MAX)
            return false;
        descend(r, (uint64_t)edge, attempt++, source, target);
    } while (*source >= n || *target >= n);
    if (!r->spec->keep_ids) {
        *source = pst_shuffle_at(&r->rename, *source);
        *target = pst_shuffle_at(&r->rename, *target);
    }
    return true;
}

static void draw_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    struct block *b = arg;
    const int64_t end = pst_min_i64((task + 1) * TASK_EDGES, b->count);
    for (int64_t i = task * TASK_EDGES; i < end && !b->failed; i++)
        if (!draw_edge(b->rmat, b->first + i, &b->source[i], &b->target[i]))
            b->failed = true;
}

static pst_rc draw_edges(void *ctx, int64_t first, int64_t count, int64_t *source, int64_t *target)
{
    const struct rmat *r = ctx;
    struct block b = {r, first, count, source, target, false};
    pst_team_run(r->team, draw_task, &b, (count + TASK_EDGES - 1) / TASK_EDGES);
    return b.failed ? pst_fail(PST_E_ARG,
                               "--a --b --c --d: found no edge within %" PRId64
                               " vertices in %d draws: use a power of two for --vertices, or a larger --a",
                               r->spec->vertices, ATTEMPTS_MAX)
                    : PST_OK;
}

static pst_rc draw_features(const void *ctx, int64_t first, int64_t rows, int64_t dim, int64_t stride,
                            void *out)
{
    const struct rmat *r = ctx;
    for (int64_t i = 0; i < rows; i++)
        pst_gen_uniform(r->spec->seed, first + i, dim, (float *)out + i * stride);
    return PST_OK;
}

static pst_rc write_labels(const struct pst_rmat_spec *s, struct pst_build *b)
{
    if (s->classes == 0)
        return PST_OK;
    const int64_t shape[2] = {s->vertices, 1};
    struct pst_array_writer w;
    pst_rc rc = pst_build_array(b, PST_ARRAY_LABELS, PST_I32, 1, shape, &w);
    for (int64_t v = 0; v < s->vertices && rc == PST_OK; v++) {
        struct pst_rng_block d = pst_gen_draw(s->seed, PST_GEN_LABEL, (uint64_t)v, 0);
        int32_t label = (int32_t)pst_rng_bounded((uint64_t)d.word[0] << 32 | d.word[1], (uint64_t)s->classes);
        rc = pst_array_write(&w, &label, sizeof label);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_ARRAY_LABELS, &w);
    pst_array_writer_release(&w);
    return rc;
}

static pst_rc write_topology(struct rmat *r, struct pst_build *b, struct pst_progress *progress)
{
    const struct pst_csc_builder_spec spec = {.build = b,
                                              .symmetrize = r->spec->symmetrize,
                                              .dedupe = r->spec->dedupe,
                                              .memory_bytes = r->spec->memory_bytes,
                                              .threads = PST_GEN_THREADS};
    return pst_gen_topology(&spec, r->spec->vertices, r->spec->edges, draw_edges, r, progress);
}

static json_t *provenance(const struct pst_rmat_spec *s, const int64_t count[3])
{
    return json_pack(
        "{s:s, s:{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I}}",
        "command", "penstock gen rmat", "parameters", "vertices", (json_int_t)s->vertices, "edges",
        (json_int_t)s->edges, "classes", (json_int_t)s->classes, "features", (json_int_t)s->feature_dim, "a",
        s->a, "b", s->b, "c", s->c, "d", s->d, "symmetrize", s->symmetrize, "dedupe", s->dedupe, "keep_ids",
        s->keep_ids, "train_count", (json_int_t)count[0], "val_count", (json_int_t)count[1], "test_count",
        (json_int_t)count[2], "seed", (json_int_t)s->seed, "stride_bytes", (json_int_t)s->stride_bytes);
}

/* -1: a tenth of the vertices to train on, and a fortieth each to validate and test. */
static void default_counts(const struct pst_rmat_spec *s, int64_t count[3])
{
    count[0] = s->train_count >= 0 ? s->train_count : s->vertices / 10;
    int64_t left = pst_max_i64(0, s->vertices - count[0]) / 2;
    count[1] = s->val_count >= 0 ? s->val_count : pst_min_i64(left, s->vertices / 40);
    count[2] = s->test_count >= 0 ? s->test_count : pst_min_i64(left, s->vertices / 40);
}

pst_rc pst_gen_rmat(const struct pst_rmat_spec *spec, struct pst_build *b, struct pst_progress *progress)
{
    int64_t count[3];
    default_counts(spec, count);
    pst_rc rc = check_spec(spec, count);
    if (rc != PST_OK)
        return rc;
    struct rmat r = {.spec = spec};
    while ((int64_t)1 << r.levels < spec->vertices)
        r.levels++;
    pst_shuffle_init(&r.rename, spec->vertices, spec->seed, PST_GEN_RENAME);
    const double edge[3] = {spec->a, spec->a + spec->b, spec->a + spec->b + spec->c};
    for (int i = 0; i < 3; i++)
        r.below[i] = (uint64_t)(edge[i] * 0x1p32 + 0.5);
    memcpy(b->manifest.name, spec->name, sizeof b->manifest.name);
    b->manifest.classes = spec->classes;
    b->manifest.provenance = provenance(spec, count);
    rc = pst_team_new(&r.team, pst_team_cores());
    if (rc == PST_OK)
        rc = write_topology(&r, b, progress);
    pst_team_free(r.team);
    if (rc == PST_OK)
        rc = write_labels(spec, b);
    if (rc == PST_OK)
        rc = pst_gen_splits(b, spec->vertices, count, spec->seed);
    if (rc == PST_OK)
        rc = pst_gen_features(b, -1, spec->vertices, spec->feature_dim, PST_F32, spec->stride_bytes,
                              draw_features, &r, progress);
    return rc;
}
