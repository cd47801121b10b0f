/* derive.c: penstock split, convert, features and export: they make something from an existing dataset. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/build/build.h"
#include "common/store/export/export.h"
#include "common/store/make/derive.h"
#include "common/store/dataset/rows.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

static const char split_help[] =
    "usage: penstock split DIR [OUT] --train F --val F --test F [--seed N] [--force]\n"
    "Makes random, disjoint splits of the vertices that have a label, or of all vertices if none has one.\n"
    "Sizes are fractions, for example 0.6. The new splits replace those of DIR or, with OUT, go to a new "
    "dataset\n"
    "that shares the other arrays with DIR by links.\n";
static const char convert_help[] =
    "usage: penstock convert DIR OUT [--dtype float32|float16|bfloat16] [--stride-bytes N]\n"
    "                        [--stripes N] [--stripe-dirs A,B,...] [--force]\n"
    "Makes the dataset OUT from DIR with features of another dtype or stride, or in another number of "
    "files.\n"
    "(`penstock import --help` explains --stripes.) OUT shares the other arrays with DIR by links.\n"
    "If there are several vertex types, the features of all of them are converted; these cannot have "
    "stripes.\n";
static const char features_help[] =
    "usage: penstock features DIR [OUT] --dim N [--dtype float32|float16|bfloat16] [--seed N]\n"
    "                         [--stride-bytes N] [--force]\n"
    "       penstock features DIR [OUT] --rows FILE.npy [--dtype ...] [--stride-bytes N] [--force]\n"
    "Gives every vertex N random features, uniform in [-1, 1). They depend on the seed alone. Papers do this "
    "for\n"
    "graphs that have no features. With --rows, the features are the rows of an array, for example the "
    "vertices.npy\n"
    "that `penstock export RUN` writes. The features replace those of DIR or, with OUT, go to a new dataset "
    "that\n"
    "shares the other arrays with DIR by links. This takes a few MiB of memory for any N.\n";
static const char export_help[] =
    "usage: penstock export DIR OUT [--format npy|csv] [--rows FILE.npy]\n"
    "Writes a dataset to a new directory OUT, for other programs.\n\n"
    "  --format npy       edges.npy, feat.npy, labels.npy, train_idx.npy, ... and meta.json (default).\n"
    "                     `penstock import npy` makes the same dataset of them.\n"
    "  --format csv       edges.csv, labels.csv, ..., with the names, ids and relations that the source had\n"
    "  --rows FILE.npy    only rows.csv: an array with one row for each vertex, for example of `penstock "
    "infer`,\n"
    "                     with the names or ids of the vertices\n"
    "  --quiet            show no progress line\n\n"
    "With several vertex or edge types, each has its own files, and metadata.yaml describes them for "
    "GraphBolt.\n";

struct args {
    double fraction[3];
    int64_t seed, dim, stripes, dirs; /* dirs: how many directories stripe_dirs names */
    const char *stripe_dirs;
    uint64_t stride;
    enum pst_dtype dtype;
    bool has_dtype, force, quiet, help;
    const char *rows;
    enum pst_export_format format;
};

static const struct option options[] = {{"train", required_argument, NULL, 0},
                                        {"val", required_argument, NULL, 1},
                                        {"test", required_argument, NULL, 2},
                                        {"seed", required_argument, NULL, 's'},
                                        {"dtype", required_argument, NULL, 'd'},
                                        {"stride-bytes", required_argument, NULL, 'b'},
                                        {"rows", required_argument, NULL, 'r'},
                                        {"dim", required_argument, NULL, 'n'},
                                        {"stripes", required_argument, NULL, 'k'},
                                        {"stripe-dirs", required_argument, NULL, 'D'},
                                        {"format", required_argument, NULL, 'm'},
                                        {"force", no_argument, NULL, 'f'},
                                        {"quiet", no_argument, NULL, 'q'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

/* name: of the option, without its dashes. */
static pst_rc one_option(struct args *a, int opt, const char *name, const char *allowed)
{
    if (opt == '?')
        return pst_fail(PST_E_ARG, "unknown option; --help lists the options");
    if ((opt > 2 && strchr(allowed, opt) == NULL) || (opt <= 2 && allowed[0] != '0'))
        return pst_fail(PST_E_ARG, "--%s is not an option of this command; --help lists the options", name);
    switch (opt) {
    case 0:
    case 1:
    case 2: return option_real("a split's size", optarg, &a->fraction[opt]);
    case 's': return option_int("--seed", optarg, 0, INT64_MAX, &a->seed);
    case 'n': return option_int("--dim", optarg, 1, INT64_MAX, &a->dim);
    case 'k': return option_int("--stripes", optarg, 1, PST_DATASET_FEATURE_FILES_MAX, &a->stripes);
    case 'D': return option_stripe_dirs(optarg, &a->dirs, &a->stripe_dirs);
    case 'b': return option_bytes("--stride-bytes", optarg, &a->stride);
    case 'd':
        a->has_dtype = true;
        if (pst_dtype_parse(optarg, &a->dtype) == PST_OK &&
            (a->dtype == PST_F32 || a->dtype == PST_F16 || a->dtype == PST_BF16))
            return PST_OK;
        return pst_fail(PST_E_ARG, "--dtype: expected float32, float16 or bfloat16, found '%.64s'", optarg);
    case 'r':
        a->rows = optarg;
        a->format = PST_EXPORT_CSV;
        return PST_OK;
    case 'm':
        a->format = strcmp(optarg, "csv") == 0 ? PST_EXPORT_CSV : PST_EXPORT_NPY;
        return a->format == PST_EXPORT_CSV || strcmp(optarg, "npy") == 0
                   ? PST_OK
                   : pst_fail(PST_E_ARG, "--format: expected npy or csv, found '%.64s'", optarg);
    case 'f': a->force = true; return PST_OK;
    case 'q': a->quiet = true; return PST_OK;
    default: a->help = true; return PST_OK;
    }
}

static pst_rc read_args(struct args *a, int argc, char **argv, const char *allowed, int low, int high)
{
    pst_rc rc = PST_OK;
    int opt, at = 0;
    *a = (struct args){.seed = 0};
    optind = 1;
    while (rc == PST_OK && !a->help && (opt = getopt_long(argc, argv, "", options, &at)) != -1)
        rc = one_option(a, opt, options[at].name, allowed);
    if (rc == PST_OK && !a->help && (argc - optind < low || argc - optind > high))
        rc = pst_fail(PST_E_ARG, "expected the arguments %s, found %d arguments; --help lists the options",
                      low == high ? "DIR OUT" : "DIR [OUT]", argc - optind);
    return rc;
}

/* Commits the build if rc is PST_OK, and prints what it made. Releases both in any case. */
static pst_rc finish(pst_rc rc, struct pst_build *b, struct pst_dataset *ds,
                     void (*say)(const struct pst_build *b))
{
    if (rc == PST_OK)
        rc = pst_build_commit(b);
    if (rc == PST_OK)
        say(b);
    pst_build_release(b);
    pst_dataset_close(ds);
    return rc;
}

static void say_split(const struct pst_build *b)
{
    const struct pst_array_entry *array = b->manifest.array;
    (void)printf("%s: train %" PRId64 ", val %" PRId64 ", test %" PRId64 "\n", b->dir,
                 array[PST_ARRAY_TRAIN].shape[0], array[PST_ARRAY_VAL].shape[0],
                 array[PST_ARRAY_TEST].shape[0]);
}

static pst_rc split(const struct args *a, const char *from, const char *to)
{
    struct pst_dataset ds;
    struct pst_build b;
    bool same = to == NULL;
    pst_rc rc = pst_dataset_open(&ds, from);
    if (rc != PST_OK)
        return rc;
    rc = pst_build_begin(&b, same ? from : to, same || a->force);
    if (rc == PST_OK)
        rc = pst_derive_split(&ds, &b, a->fraction, (uint64_t)a->seed);
    return finish(rc, &b, &ds, say_split);
}

static void say_features(const struct pst_build *b)
{
    const struct pst_manifest *m = &b->manifest;
    for (int k = 0; k < m->vertex_types; k++) {
        const struct pst_manifest_vertex_type *t = &m->vertex_type[k];
        if (t->features.present)
            (void)printf("%s: %s: %" PRId64 " rows of %" PRId64 " %s, %" PRIu64 " bytes each\n", b->dir,
                         t->name, t->vertices, t->feature_dim, pst_dtype_name(t->features.dtype),
                         t->stride_bytes);
    }
    if (m->vertex_types == 0)
        (void)printf("%s: %" PRId64 " rows of %" PRId64 " %s, %" PRIu64 " bytes each\n", b->dir, m->vertices,
                     m->feature_dim, pst_dtype_name(m->array[PST_ARRAY_FEATURES].dtype), m->stride_bytes);
}

static pst_rc make_features(const struct args *a, const char *from, const char *to,
                            const struct pst_array *rows)
{
    struct pst_dataset ds;
    struct pst_build b;
    struct pst_progress progress;
    const struct pst_derive_features_spec spec = {
        .rows = rows, .dim = a->dim, .dtype = a->dtype, .seed = (uint64_t)a->seed, .stride_bytes = a->stride};
    pst_progress_init(&progress, a->quiet);
    pst_rc rc = pst_dataset_open(&ds, from);
    if (rc != PST_OK)
        return rc;
    if (ds.vertex_types > 0) {
        pst_dataset_close(&ds);
        return pst_fail(PST_E_ARG,
                        "%s has several vertex types: features are made for graphs with one type only", from);
    }
    rc = pst_build_begin(&b, to != NULL ? to : from, to == NULL || a->force);
    if (rc == PST_OK)
        rc = pst_derive_features(&ds, &b, &spec, &progress);
    return finish(rc, &b, &ds, say_features);
}

static pst_rc features(const struct args *a, const char *from, const char *to)
{
    struct pst_array rows;
    if ((a->dim == 0) == (a->rows == NULL))
        return pst_fail(
            PST_E_ARG,
            "give --dim N, the number of random features of a vertex, or --rows FILE.npy, an array with a "
            "row for each vertex; not both");
    if (a->rows == NULL)
        return make_features(a, from, to, NULL);
    pst_rc rc = pst_array_open(&rows, a->rows);
    if (rc != PST_OK)
        return rc;
    rc = pst_array_map(&rows);
    rc = rc == PST_OK ? make_features(a, from, to, &rows) : rc;
    pst_array_close(&rows);
    return rc;
}

static pst_rc convert(const struct args *a, const char *from, const char *to)
{
    struct pst_dataset ds;
    struct pst_build b;
    struct pst_progress progress;
    pst_progress_init(&progress, a->quiet);
    pst_rc rc = pst_dataset_open(&ds, from);
    if (rc != PST_OK)
        return rc;
    rc = pst_rows_map_features(&ds);
    if (rc != PST_OK) {
        pst_dataset_close(&ds);
        return rc;
    }
    rc = pst_build_begin(&b, to, a->force);
    b.stripes = a->stripes > 0 ? (int)a->stripes : a->dirs > 0 ? (int)a->dirs : ds.stripes;
    b.stripe_dirs = a->stripe_dirs;
    if (rc == PST_OK && a->stripe_dirs != NULL && b.stripes < 2)
        rc = pst_fail(
            PST_E_ARG,
            "--stripe-dirs requires several stripes: give --stripes 2 or more, or several directories");
    const struct pst_derive_convert_spec spec = {
        .change_dtype = a->has_dtype, .dtype = a->dtype, .stride_bytes = a->stride};
    if (rc == PST_OK && ds.vertex_types > 0 && b.stripes > 1)
        rc = pst_fail(
            PST_E_ARG,
            "--stripes cannot be used with several vertex types, because the features of each type are in "
            "one file: leave --stripes out, or import one type (penstock import --types NAME)");
    if (rc == PST_OK)
        rc = pst_derive_convert(&ds, &b, &spec, &progress);
    return finish(rc, &b, &ds, say_features);
}

static pst_rc export(const struct args *a, const char *from, const char *to)
{
    struct pst_dataset ds;
    struct pst_progress progress;
    if (a->rows != NULL && a->format != PST_EXPORT_CSV)
        return pst_fail(PST_E_ARG, "--rows works only with csv: leave out --format npy");
    pst_rc rc = pst_dataset_open(&ds, from);
    if (rc != PST_OK)
        return rc;
    pst_progress_init(&progress, a->quiet);
    rc = pst_export(&ds, to, a->format, a->rows, &progress);
    if (rc == PST_OK && a->rows != NULL)
        (void)printf("%s: rows.csv, %" PRId64 " rows\n", to, ds.vertices);
    else if (rc == PST_OK)
        (void)printf("%s: %" PRId64 " vertices, %" PRId64 " edges, as %s\n", to, ds.vertices, ds.edges,
                     a->format == PST_EXPORT_CSV ? "csv" : "npy");
    pst_dataset_close(&ds);
    return rc;
}

/* ---- commands ---- */

typedef pst_rc derive_fn(const struct args *a, const char *from, const char *to);

/* allowed: the options of the command; low: the least number of directories, of two. */
static int derive(int argc, char **argv, const char *allowed, int low, const char *help, derive_fn *fn)
{
    struct args a;
    pst_rc rc = read_args(&a, argc, argv, allowed, low, 2);
    if (rc == PST_OK && a.help) {
        (void)fputs(help, stdout);
        return 0;
    }
    if (rc == PST_OK)
        rc = fn(&a, argv[optind], argc - optind > 1 ? argv[optind + 1] : NULL);
    return command_result(argv[0], rc);
}

int cmd_split(int argc, char **argv)
{
    return derive(argc, argv, "0sfqh", 1, split_help, split);
}

int cmd_features(int argc, char **argv)
{
    return derive(argc, argv, "nsdbrfqh", 1, features_help, features);
}

int cmd_convert(int argc, char **argv)
{
    return derive(argc, argv, "dbkDfqh", 2, convert_help, convert);
}

int cmd_export(int argc, char **argv)
{
    return derive(argc, argv, "mrqh", 2, export_help, export);
}
