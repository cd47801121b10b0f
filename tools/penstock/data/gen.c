/* gen.c: penstock gen: generates datasets. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/make/gen.h"
#include "common/store/dataset/stride.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define COUNT_MAX (INT64_MAX / 32)

struct common {
    const char *dir;
    bool force, quiet, help, edge_weights, times;
    char *name;
    size_t name_room;
    int64_t *vertices, *classes, *features;
    uint64_t *seed, *stride_bytes, *memory_bytes;
    int64_t stripes, dirs; /* dirs: how many directories stripe_dirs names */
    const char *stripe_dirs;
};

/* The fields that both kinds of graph have. */
#define COMMON_OF(s)                                                                                         \
    {                                                                                                        \
        .name = (s).name, .name_room = sizeof((s).name), .vertices = &(s).vertices, .classes = &(s).classes, \
        .features = &(s).feature_dim, .seed = &(s).seed, .stride_bytes = &(s).stride_bytes,                  \
        .memory_bytes = &(s).memory_bytes                                                                    \
    }

struct kind {
    const struct option *options;
    pst_rc (*own)(int opt, void *spec); /* opt >= OPT_OWN */
    void (*help)(void);
    pst_rc (*fill)(const void *spec, struct pst_build *b, struct pst_progress *progress);
};

enum {
    OPT_NAME = 256,
    OPT_SEED,
    OPT_VERTICES,
    OPT_CLASSES,
    OPT_FEATURES,
    OPT_STRIDE,
    OPT_MEMORY,
    OPT_STRIPES,
    OPT_STRIPE_DIRS,
    OPT_EDGE_WEIGHTS,
    OPT_TIMES,
    OPT_FORCE,
    OPT_QUIET,
    OPT_HELP,
    OPT_OWN /* from here on: options of one kind of graph */
};

#define COMMON_OPTIONS                                                                                       \
    {"name", required_argument, NULL, OPT_NAME}, {"seed", required_argument, NULL, OPT_SEED},                \
        {"vertices", required_argument, NULL, OPT_VERTICES},                                                 \
        {"classes", required_argument, NULL, OPT_CLASSES},                                                   \
        {"features", required_argument, NULL, OPT_FEATURES},                                                 \
        {"stride-bytes", required_argument, NULL, OPT_STRIDE},                                               \
        {"memory", required_argument, NULL, OPT_MEMORY}, {"stripes", required_argument, NULL, OPT_STRIPES},  \
        {"stripe-dirs", required_argument, NULL, OPT_STRIPE_DIRS}, {"force", no_argument, NULL, OPT_FORCE},  \
        {"edge-weights", no_argument, NULL, OPT_EDGE_WEIGHTS}, {"times", no_argument, NULL, OPT_TIMES},      \
        {"quiet", no_argument, NULL, OPT_QUIET},                                                             \
    {                                                                                                        \
        "help", no_argument, NULL, OPT_HELP                                                                  \
    }

static const char common_help[] =
    "  --name NAME            the name of the dataset\n"
    "  --stride-bytes N       distance of feature rows; default: rows are padded to whole sectors if that\n"
    "                         costs at most 1/8, and not padded otherwise\n"
    "  --memory BYTES         limit for building the topology (default: half of the free memory)\n"
    "  --stripes N            write features to N files, one for each SSD; row v is in features.(v mod "
    "N).npy\n"
    "  --stripe-dirs A,B,...  put these files in the directories A, B, ... in turn, with links in DIR\n"
    "  --edge-weights         give each edge a random weight, for the sampling algorithms weighted and\n"
    "                         typed\n"
    "  --times                give each vertex a random time, and each edge the later time of its ends, for\n"
    "                         the sampling algorithm temporal\n"
    "  --force                replace an existing dataset at DIR\n"
    "  --quiet                show no progress line\n";

static pst_rc seed_option(struct common *c)
{
    int64_t seed = 0;
    pst_rc rc = option_int("--seed", optarg, 0, INT64_MAX, &seed);
    if (rc == PST_OK)
        *c->seed = (uint64_t)seed;
    return rc;
}

static pst_rc common_option(int opt, struct common *c)
{
    switch (opt) {
    case OPT_NAME: return option_name("--name", optarg, c->name, c->name_room);
    case OPT_SEED: return seed_option(c);
    case OPT_VERTICES: return option_int("--vertices", optarg, 1, COUNT_MAX, c->vertices);
    case OPT_CLASSES: return option_int("--classes", optarg, 0, PST_MANIFEST_CLASSES_MAX, c->classes);
    case OPT_FEATURES: return option_int("--features", optarg, 0, PST_GEN_DIM_MAX, c->features);
    case OPT_STRIDE: return option_bytes("--stride-bytes", optarg, c->stride_bytes);
    case OPT_MEMORY: return option_bytes("--memory", optarg, c->memory_bytes);
    case OPT_STRIPES: return option_int("--stripes", optarg, 1, PST_DATASET_FEATURE_FILES_MAX, &c->stripes);
    case OPT_STRIPE_DIRS: return option_stripe_dirs(optarg, &c->dirs, &c->stripe_dirs);
    case OPT_EDGE_WEIGHTS: c->edge_weights = true; return PST_OK;
    case OPT_TIMES: c->times = true; return PST_OK;
    case OPT_FORCE: c->force = true; return PST_OK;
    case OPT_QUIET: c->quiet = true; return PST_OK;
    case OPT_HELP: c->help = true; return PST_OK;
    default: return pst_fail(PST_E_ARG, "invalid option: `penstock gen KIND --help` lists the options");
    }
}

/* Parses the common options and those of the kind of graph. */
static pst_rc parse(int argc, char **argv, const struct kind *k, struct common *c, void *spec)
{
    pst_rc rc = PST_OK;
    int opt;
    optind = 1;
    while (rc == PST_OK && !c->help && (opt = getopt_long(argc, argv, "", k->options, NULL)) != -1)
        rc = opt >= OPT_OWN ? k->own(opt, spec) : common_option(opt, c);
    if (rc != PST_OK || c->help)
        return rc;
    if (optind + 1 != argc)
        return pst_fail(PST_E_ARG,
                        "expected one directory as argument, found %d arguments; --help lists the options",
                        argc - optind);
    c->dir = argv[optind];
    c->stripes = c->stripes == 0 ? c->dirs : c->stripes;
    if (c->stripes > 1 && *c->features == 0)
        return pst_fail(PST_E_ARG, "--stripes divides the features into files, but the graph has no features "
                                   "(--features 0): leave one of these options out");
    return c->stripe_dirs == NULL || c->stripes > 1
               ? PST_OK
               : pst_fail(PST_E_ARG, "--stripe-dirs requires several stripes: give --stripes 2 or more, or "
                                     "several directories");
}

static void say_done(const struct pst_build *b)
{
    const struct pst_manifest *m = &b->manifest;
    if (m->vertex_types > 0) {
        (void)printf("%s: %" PRId64 " vertices of %d types, %" PRId64 " edges of %d relations, %" PRId64
                     " classes\n",
                     b->dir, m->vertices, m->vertex_types, m->edges, m->edge_types, m->classes);
        return;
    }
    (void)printf("%s: %" PRId64 " vertices, %" PRId64 " edges, %" PRId64 " features in rows of %" PRIu64
                 " bytes, %" PRId64 " classes\n",
                 b->dir, b->manifest.vertices, b->manifest.edges, b->manifest.feature_dim,
                 b->manifest.stride_bytes, b->manifest.classes);
}

static pst_rc generate(int argc, char **argv, const struct kind *k, struct common *c, void *spec)
{
    struct pst_build b;
    struct pst_progress progress;
    pst_rc rc = parse(argc, argv, k, c, spec);
    if (rc == PST_OK && c->help)
        k->help();
    if (rc != PST_OK || c->help)
        return rc;
    pst_progress_init(&progress, c->quiet);
    rc = pst_build_begin(&b, c->dir, c->force);
    if (rc != PST_OK)
        return rc;
    b.stripes = (int)c->stripes;
    b.stripe_dirs = c->stripe_dirs;
    rc = k->fill(spec, &b, &progress);
    if (rc == PST_OK && c->edge_weights)
        rc = pst_gen_edge_weights(&b, *c->seed);
    if (rc == PST_OK && c->times)
        rc = pst_gen_times(&b, *c->seed);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    if (rc == PST_OK)
        say_done(&b);
    pst_build_release(&b);
    return rc;
}

/* ---- community ---- */

enum { OPT_DEGREE = OPT_OWN, OPT_HOMOPHILY, OPT_EXPONENT, OPT_NOISE, OPT_TRAIN, OPT_VAL };

static const struct option community_options[] = {COMMON_OPTIONS,
                                                  {"degree", required_argument, NULL, OPT_DEGREE},
                                                  {"homophily", required_argument, NULL, OPT_HOMOPHILY},
                                                  {"exponent", required_argument, NULL, OPT_EXPONENT},
                                                  {"noise", required_argument, NULL, OPT_NOISE},
                                                  {"train", required_argument, NULL, OPT_TRAIN},
                                                  {"val", required_argument, NULL, OPT_VAL},
                                                  {NULL, 0, NULL, 0}};

static pst_rc community_option(int opt, void *ctx)
{
    struct pst_community_spec *s = ctx;
    switch (opt) {
    case OPT_DEGREE: return option_real("--degree", optarg, &s->degree);
    case OPT_HOMOPHILY: return option_real("--homophily", optarg, &s->homophily);
    case OPT_EXPONENT: return option_real("--exponent", optarg, &s->exponent);
    case OPT_NOISE: return option_real("--noise", optarg, &s->noise);
    case OPT_TRAIN: return option_real("--train", optarg, &s->train);
    default: return option_real("--val", optarg, &s->val);
    }
}

static void community_help(void)
{
    struct pst_community_spec s;
    pst_community_defaults(&s);
    (void)printf(
        "usage: penstock gen community DIR [OPTION]...\n"
        "Generates a power-law graph with communities, for training. A vertex's label is its community. Its\n"
        "features are the direction of its class plus noise: a vertex alone is hard to classify, and its\n"
        "neighbourhood makes it easy. Defaults are in parentheses.\n"
        "  --vertices N           number of vertices (%" PRId64 ")\n"
        "  --classes N            number of communities, all of one size (%" PRId64 ")\n"
        "  --features N           number of float32 features of a vertex (%" PRId64 ")\n"
        "  --degree X             average degree before duplicate edges are merged (%g)\n"
        "  --homophily X          fraction of edges within a community (%g)\n"
        "  --exponent X           exponent of the power law of degrees, above 2 (%g)\n"
        "  --noise X              standard deviation of each feature; a class direction has length 1 (%g)\n"
        "  --train X --val X      fractions of the vertices; the rest is the test split (%g, %g)\n"
        "  --seed N               the same seed and options give the same bytes (%" PRIu64 ")\n%s",
        s.vertices, s.classes, s.feature_dim, s.degree, s.homophily, s.exponent, s.noise, s.train, s.val,
        s.seed, common_help);
}

static pst_rc fill_community(const void *spec, struct pst_build *b, struct pst_progress *progress)
{
    return pst_gen_community(spec, b, progress);
}

static pst_rc community(int argc, char **argv)
{
    static const struct kind kind = {community_options, community_option, community_help, fill_community};
    struct pst_community_spec s;
    pst_community_defaults(&s);
    struct common c = COMMON_OF(s);
    return generate(argc, argv, &kind, &c, &s);
}

/* ---- rmat ---- */

enum {
    OPT_SCALE = OPT_OWN,
    OPT_EDGES,
    OPT_A,
    OPT_B,
    OPT_C,
    OPT_D,
    OPT_SYMMETRIZE,
    OPT_NO_SYMMETRIZE,
    OPT_DEDUPE,
    OPT_KEEP_IDS,
    OPT_TRAIN_COUNT,
    OPT_VAL_COUNT,
    OPT_TEST_COUNT
};

static const struct option rmat_options[] = {COMMON_OPTIONS,
                                             {"scale", required_argument, NULL, OPT_SCALE},
                                             {"edges", required_argument, NULL, OPT_EDGES},
                                             {"a", required_argument, NULL, OPT_A},
                                             {"b", required_argument, NULL, OPT_B},
                                             {"c", required_argument, NULL, OPT_C},
                                             {"d", required_argument, NULL, OPT_D},
                                             {"symmetrize", no_argument, NULL, OPT_SYMMETRIZE},
                                             {"no-symmetrize", no_argument, NULL, OPT_NO_SYMMETRIZE},
                                             {"dedupe", no_argument, NULL, OPT_DEDUPE},
                                             {"keep-ids", no_argument, NULL, OPT_KEEP_IDS},
                                             {"train-count", required_argument, NULL, OPT_TRAIN_COUNT},
                                             {"val-count", required_argument, NULL, OPT_VAL_COUNT},
                                             {"test-count", required_argument, NULL, OPT_TEST_COUNT},
                                             {NULL, 0, NULL, 0}};

static pst_rc scale_option(struct pst_rmat_spec *s)
{
    int64_t scale = 0;
    pst_rc rc = option_int("--scale", optarg, 1, 40, &scale);
    if (rc == PST_OK)
        s->vertices = (int64_t)1 << scale;
    return rc;
}

static pst_rc rmat_option(int opt, void *ctx)
{
    struct pst_rmat_spec *s = ctx;
    switch (opt) {
    case OPT_SCALE: return scale_option(s);
    case OPT_EDGES: return option_int("--edges", optarg, 0, COUNT_MAX, &s->edges);
    case OPT_A: return option_real("--a", optarg, &s->a);
    case OPT_B: return option_real("--b", optarg, &s->b);
    case OPT_C: return option_real("--c", optarg, &s->c);
    case OPT_D: return option_real("--d", optarg, &s->d);
    case OPT_SYMMETRIZE: s->symmetrize = true; return PST_OK;
    case OPT_NO_SYMMETRIZE: s->symmetrize = false; return PST_OK;
    case OPT_DEDUPE: s->dedupe = true; return PST_OK;
    case OPT_KEEP_IDS: s->keep_ids = true; return PST_OK;
    case OPT_TRAIN_COUNT: return option_int("--train-count", optarg, 0, COUNT_MAX, &s->train_count);
    case OPT_VAL_COUNT: return option_int("--val-count", optarg, 0, COUNT_MAX, &s->val_count);
    default: return option_int("--test-count", optarg, 0, COUNT_MAX, &s->test_count);
    }
}

static void rmat_help(void)
{
    struct pst_rmat_spec s;
    pst_rmat_defaults(&s);
    (void)printf(
        "usage: penstock gen rmat DIR [OPTION]...\n"
        "Generates an R-MAT graph of any size, for measurements. Labels and features are random, so a model\n"
        "learns nothing from it. Defaults are in parentheses.\n"
        "  --vertices N           number of vertices (%" PRId64 ")\n"
        "  --scale K              2^K vertices, in place of --vertices\n"
        "  --edges N              number of edges drawn, with duplicates and self loops (%" PRId64 ")\n"
        "  --a X --b X --c X --d X    probabilities of the quadrants; their sum is 1 (%g %g %g %g)\n"
        "  --symmetrize           add the reverse of every edge (default: --no-symmetrize)\n"
        "  --dedupe               remove duplicate edges\n"
        "  --keep-ids             keep the vertices of high degree at low ids (default: ids are shuffled)\n"
        "  --classes N            number of random labels; 0: no labels (%" PRId64 ")\n"
        "  --features N           number of float32 features of a vertex, uniform in [-1, 1) (%" PRId64 ")\n"
        "  --train-count N --val-count N --test-count N\n"
        "                         sizes of the splits (a tenth, a fortieth and a fortieth of the vertices)\n"
        "  --seed N               the same seed and options give the same bytes (%" PRIu64 ")\n%s",
        s.vertices, s.edges, s.a, s.b, s.c, s.d, s.classes, s.feature_dim, s.seed, common_help);
}

static pst_rc fill_rmat(const void *spec, struct pst_build *b, struct pst_progress *progress)
{
    return pst_gen_rmat(spec, b, progress);
}

static pst_rc rmat(int argc, char **argv)
{
    static const struct kind kind = {rmat_options, rmat_option, rmat_help, fill_rmat};
    struct pst_rmat_spec s;
    pst_rmat_defaults(&s);
    struct common c = COMMON_OF(s);
    return generate(argc, argv, &kind, &c, &s);
}

/* ---- typed ---- */

enum { OPT_AUTHOR_FEATURES = OPT_VAL + 1 }; /* the others are those of community */

static const struct option typed_options[] = {
    COMMON_OPTIONS,
    {"author-features", required_argument, NULL, OPT_AUTHOR_FEATURES},
    {"degree", required_argument, NULL, OPT_DEGREE},
    {"homophily", required_argument, NULL, OPT_HOMOPHILY},
    {"noise", required_argument, NULL, OPT_NOISE},
    {"train", required_argument, NULL, OPT_TRAIN},
    {"val", required_argument, NULL, OPT_VAL},
    {NULL, 0, NULL, 0}};

static pst_rc typed_option(int opt, void *ctx)
{
    struct pst_gen_typed_spec *s = ctx;
    switch (opt) {
    case OPT_AUTHOR_FEATURES:
        return option_int("--author-features", optarg, 1, PST_GEN_DIM_MAX, &s->author_dim);
    case OPT_DEGREE: return option_real("--degree", optarg, &s->degree);
    case OPT_HOMOPHILY: return option_real("--homophily", optarg, &s->homophily);
    case OPT_NOISE: return option_real("--noise", optarg, &s->noise);
    case OPT_TRAIN: return option_real("--train", optarg, &s->train);
    default: return option_real("--val", optarg, &s->val);
    }
}

static void typed_help(void)
{
    struct pst_gen_typed_spec s;
    pst_gen_typed_defaults(&s);
    (void)printf(
        "usage: penstock gen typed DIR [OPTION]...\n"
        "Generates a graph of papers, authors and venues, for models that use relations (types of edges).\n"
        "The label of a paper is its community. Edges of the relations writes and extends lead to a paper\n"
        "from its own community. Edges of the relations reviews and disputes lead to a paper from another\n"
        "community, which is chosen at random for each paper. Papers and authors have features: a vector\n"
        "that stands for their community, plus noise. Defaults are in parentheses.\n"
        "  --vertices N           number of papers; there are half as many authors (%" PRId64 ")\n"
        "  --classes N            number of communities, all of one size (%" PRId64 ")\n"
        "  --features N           number of float32 features of a paper (%" PRId64 ")\n"
        "  --author-features N    number of float32 features of an author (%" PRId64 ")\n"
        "  --degree X             number of edges of a paper in each of these four relations (%g)\n"
        "  --homophily X          fraction of these edges that come from the community stated above (%g)\n"
        "  --noise X              standard deviation of the noise; a community's vector has length 1 (%g)\n"
        "  --train X --val X      fractions of the papers; the rest is the test split (%g, %g)\n"
        "  --seed N               the same seed and options give the same bytes (%" PRIu64 ")\n%s",
        s.vertices, s.classes, s.feature_dim, s.author_dim, s.degree, s.homophily, s.noise, s.train, s.val,
        s.seed, common_help);
}

static pst_rc fill_typed(const void *spec, struct pst_build *b, struct pst_progress *progress)
{
    return b->stripes > 1
               ? pst_fail(PST_E_ARG,
                          "--stripes: a dataset with several types of vertices cannot have stripes: "
                          "leave the option out")
               : pst_gen_typed(spec, b, progress);
}

static pst_rc typed(int argc, char **argv)
{
    static const struct kind kind = {typed_options, typed_option, typed_help, fill_typed};
    struct pst_gen_typed_spec s;
    pst_gen_typed_defaults(&s);
    struct common c = COMMON_OF(s);
    return generate(argc, argv, &kind, &c, &s);
}

int cmd_gen(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    if (strcmp(kind, "community") == 0)
        return command_result("gen community", community(argc - 1, argv + 1));
    if (strcmp(kind, "rmat") == 0)
        return command_result("gen rmat", rmat(argc - 1, argv + 1));
    if (strcmp(kind, "typed") == 0)
        return command_result("gen typed", typed(argc - 1, argv + 1));
    static const char *const kinds[] = {"community", "rmat", "typed"};
    bool help = strcmp(kind, "--help") == 0;
    if (!help && kind[0] != '\0')
        command_unknown("penstock gen", "generator", kind, kinds, sizeof kinds / sizeof *kinds);
    (void)fprintf(help ? stdout : stderr, "usage: penstock gen community|rmat|typed DIR [OPTION]...\n"
                                          "Generates a dataset in the directory DIR.\n"
                                          "  community   a power-law graph with communities, for training\n"
                                          "  rmat        an R-MAT graph of any size, for measurements\n"
                                          "  typed       papers, authors and venues, with several relations\n"
                                          "`penstock gen KIND --help` lists the options of each.\n");
    return help ? 0 : 2;
}
