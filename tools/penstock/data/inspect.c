/* inspect.c: penstock inspect: describes a dataset. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/data/inspection.h"
#include "tools/penstock/cli/options.h"

#define BAR_WIDTH 40    /* characters of the longest bar */
#define LABELS_SHOWN 50 /* a table that fits a screen; more are counted */

static const char help[] =
    "usage: penstock inspect DIR [--features] [--json] [--quiet]\n"
    "       penstock inspect DIR --reorder access|hotness|degree|bfs|metis|all [--pack] [OPTION]...\n"
    "Describes the dataset in DIR: counts, sizes, dtypes, stride, splits, degrees, labels and the values of\n"
    "features. A table says which share of accesses a cache of a given size would serve.\n"
    "It reads the topology, the labels and a sample of at most 256 MiB of the features. It does not check\n"
    "checksums; `penstock verify` does.\n\n"
    "  --features         read all features\n"
    "  --json             print JSON\n"
    "  --quiet            show no progress line\n"
    "  --reorder ORDER    predict how many bytes an epoch would read after `penstock reorder --by ORDER`, "
    "and "
    "what it\n"
    "                     reads now. Options: those of reorder (`penstock reorder --help`), and --json\n";

/* Names come from files of others: control characters would reach the terminal. */
static char plain(char c)
{
    return (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
}

static const char *shown(const char *name, char out[PST_NAME_MAX])
{
    size_t n = 0;
    for (; name[n] != '\0' && n + 1 < PST_NAME_MAX; n++)
        out[n] = plain(name[n]);
    out[n] = '\0';
    return out;
}

static void bar(int64_t n, int64_t most)
{
    int width = most > 0 ? (int)((double)n / (double)most * BAR_WIDTH) : 0;
    for (int i = 0; i < width + (n > 0 && width == 0); i++)
        (void)putchar('#');
    (void)putchar('\n');
}

static void say_buckets(const int64_t *count)
{
    int64_t most = 0;
    int last = 0;
    for (int k = 0; k < PST_DEGREE_BUCKETS; k++) {
        most = pst_max_i64(most, count[k]);
        last = count[k] > 0 ? k : last;
    }
    for (int k = 0; k <= last; k++) {
        char range[48];
        if (k < 2)
            (void)snprintf(range, sizeof range, "%d", k);
        else
            (void)snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, (uint64_t)1 << (k - 1),
                           ((uint64_t)1 << (k - 1)) * 2 - 1);
        (void)printf("  %15s %12" PRId64 " ", range, count[k]);
        bar(count[k], most);
    }
}

static void say_degrees(const struct inspection *in)
{
    const struct pst_describe_degrees *d = &in->degrees;
    if (in->ds.vertices == 0)
        return;
    (void)printf("in-degree: min %" PRId64 ", median %g, mean %.2f, max %" PRId64 "\n", d->least, d->median,
                 d->mean, d->most);
    say_buckets(d->bucket);
}

/* Sizes of caches, where there are features to cache. */
static void say_hot(const struct inspection *in)
{
    const struct pst_dataset *ds = &in->ds;
    const double bytes = (double)ds->vertices * (double)ds->stride_bytes;
    char size[32];
    if (ds->feature_dim == 0 || ds->edges == 0)
        return;
    (void)printf("caches, assuming that a row is read as often as its vertex is a neighbour (at most %" PRId64
                 " times):\n",
                 in->hot.out.most);
    for (int k = 0; k < PST_HOT_SHARES; k++)
        (void)printf("  the hottest %4.0f %% of the rows, %10s, serve %5.1f %% of accesses\n",
                     100 * pst_hot_shares[k], pst_bytes_text(bytes * pst_hot_shares[k], size),
                     100 * in->hot.served[k]);
    for (int k = 0; k < PST_HOT_TARGETS; k++)
        (void)printf("  to serve %3.0f %%: %10s, %.1f %% of the rows\n", 100 * pst_hot_targets[k],
                     pst_bytes_text(bytes * in->hot.rows_for[k], size), 100 * in->hot.rows_for[k]);
}

static void say_stats(const char *name, const struct pst_feature_stats *s, int64_t rows)
{
    if (s->rows == 0)
        return;
    (void)printf("%s: min %g, max %g, mean %g, %.2f %% zeros", name, s->min, s->max, s->mean,
                 100 * (double)s->zeros / (double)s->values);
    if (s->not_finite > 0)
        (void)printf(", %" PRId64 " values that are not finite", s->not_finite);
    if (s->whole)
        (void)printf(" (all rows)\n");
    else
        (void)printf(" (%" PRId64 " of %" PRId64 " rows, evenly spaced)\n", s->rows, rows);
}

static void say_features(const struct inspection *in)
{
    say_stats("feature values", &in->features[0], in->ds.vertices);
    for (int k = 0; k < in->ds.vertex_types; k++)
        say_stats(in->ds.vertex_type[k].name, &in->features[1 + k], in->ds.vertex_type[k].vertices);
}

static void say_labels(const struct inspection *in)
{
    const int64_t classes = in->ds.classes, *tasks = in->multilabels;
    int64_t most = 0;
    if (tasks[0] + tasks[1] + tasks[2] > 0)
        (void)printf("several labels per vertex: %" PRId64 " tasks, %" PRId64 " ones, %" PRId64
                     " zeros, %" PRId64 " unknown\n",
                     in->ds.multilabels.shape[1], tasks[1], tasks[0], tasks[2]);
    if (in->ds.targets.map != NULL)
        (void)printf("targets: %" PRId64 " numbers per vertex, from %g to %g, %" PRId64 " unknown\n",
                     in->ds.targets.rank == 2 ? in->ds.targets.shape[1] : 1, in->target_least,
                     in->target_most, in->unknown_targets);
    if (classes == 0)
        return;
    for (int64_t k = 0; k < classes; k++)
        most = pst_max_i64(most, in->label[k]);
    (void)printf("labels: %" PRId64 " classes, %" PRId64 " vertices without label\n", classes,
                 in->unlabelled);
    for (int64_t k = 0; k < pst_min_i64(classes, LABELS_SHOWN); k++) {
        (void)printf("  %15" PRId64 " %12" PRId64 " ", k, in->label[k]);
        bar(in->label[k], most);
    }
    if (classes > LABELS_SHOWN)
        (void)printf("  and %" PRId64 " more classes\n", classes - LABELS_SHOWN);
}

/* Three parts, and which share of all they are; false: they are empty. */
static bool say_parts(const char *what, const struct pst_array part[3], int64_t all)
{
    const int64_t n[3] = {part[0].shape[0], part[1].shape[0], part[2].shape[0]};
    const double percent = 100 / (double)pst_max_i64(1, all);
    if (n[0] + n[1] + n[2] == 0)
        return false;
    (void)printf("%s: train %" PRId64 " (%.2f %%), val %" PRId64 " (%.2f %%), test %" PRId64 " (%.2f %%)\n",
                 what, n[0], (double)n[0] * percent, n[1], (double)n[1] * percent, n[2],
                 (double)n[2] * percent);
    return true;
}

static void say_splits(const struct pst_dataset *ds)
{
    const struct pst_array *t = ds->triples, *e = ds->edges_split;
    bool some = say_parts("triples", t, t[0].shape[0] + t[1].shape[0] + t[2].shape[0]);
    some |= say_parts("edges to predict", e, e[0].shape[0] + e[1].shape[0] + e[2].shape[0]);
    if (ds->splits == 0)
        some |= say_parts("splits", ds->split, ds->vertices);
    for (int k = 0; k < ds->splits; k++) {
        char what[PST_NAME_MAX + 16], name[PST_NAME_MAX];
        (void)snprintf(what, sizeof what, "split %s", shown(ds->named_split[k].name, name));
        some |= say_parts(what, k == ds->chosen ? ds->split : ds->named_split[k].ids, ds->vertices);
    }
    if (!some)
        (void)printf("no splits (`penstock split` makes them)\n");
}

static void say_array(const char *name, const struct pst_array *a)
{
    char bytes[32], shape[64];
    if (a->path[0] == '\0')
        return;
    if (a->rank == 1)
        (void)snprintf(shape, sizeof shape, "(%" PRId64 ")", a->shape[0]);
    else
        (void)snprintf(shape, sizeof shape, "(%" PRId64 ", %" PRId64 ")", a->shape[0], a->shape[1]);
    (void)printf("  %-17s %-9s %-24s %10s\n", name, pst_dtype_name(a->dtype), shape,
                 pst_bytes_text((double)(a->data_at + a->data_bytes), bytes));
}

static void say_counts(struct pst_dataset *ds)
{
    char name[PST_NAME_MAX];
    (void)printf("%s (%s), digest %s\n", shown(ds->name, name), ds->dir, ds->digest);
    (void)printf("vertices %" PRId64 ", edges %" PRId64, ds->vertices, ds->edges);
    if (ds->relations > 0)
        (void)printf(", relations %" PRId64, ds->relations);
    (void)putchar('\n');
    if (ds->feature_dim > 0) {
        uint64_t row = (uint64_t)ds->feature_dim * pst_dtype_bytes(ds->features.dtype);
        (void)printf("features %" PRId64 " x %s = %" PRIu64 " bytes, stride %" PRIu64
                     " bytes (%.1f %% padding%s)\n",
                     ds->feature_dim, pst_dtype_name(ds->features.dtype), row, ds->stride_bytes,
                     100.0 * (double)(ds->stride_bytes - row) / (double)row,
                     ds->stride_bytes % PST_SECTOR == 0 ? ", whole sectors" : "");
        if (ds->stripes > 0)
            (void)printf("  in %d stripes: row v is row v / %d of features.(v mod %d).npy\n", ds->stripes,
                         ds->stripes, ds->stripes);
    } else if (ds->vertex_types == 0) {
        (void)printf("no features\n");
    }
    say_splits(ds);
    (void)printf("arrays:\n");
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        say_array(pst_array_id_name(i), pst_manifest_dataset_array(ds, i));
}

static void say_types(const struct pst_dataset *ds)
{
    char name[PST_NAME_MAX], source[PST_NAME_MAX], target[PST_NAME_MAX];
    if (ds->vertex_types > 0)
        (void)printf("types of vertices:\n");
    for (int k = 0; k < ds->vertex_types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        (void)printf("  %-24s %12" PRId64 " from %-12" PRId64, shown(t->name, name), t->vertices, t->first);
        if (t->feature_dim > 0)
            (void)printf(" features %" PRId64 " x %s, stride %" PRIu64 "\n", t->feature_dim,
                         pst_dtype_name(t->features.dtype), t->stride_bytes);
        else
            (void)printf(" no features\n");
    }
    if (ds->edge_types == 0)
        return;
    const int32_t *relation = ds->edge_relation.map;
    int64_t count[PST_MANIFEST_EDGE_TYPES_MAX] = {0};
    for (int64_t i = 0; i < ds->edges && relation != NULL; i++)
        if (relation[i] >= 0 && relation[i] < ds->edge_types)
            count[relation[i]]++;
    (void)printf("types of edges:\n");
    for (int k = 0; k < ds->edge_types; k++)
        (void)printf("  %-32s %12" PRId64 " from %s to %s\n", shown(ds->edge_type[k].name, name), count[k],
                     shown(ds->vertex_type[ds->edge_type[k].source].name, source),
                     shown(ds->vertex_type[ds->edge_type[k].target].name, target));
}

static void say_origin(const struct pst_dataset *ds)
{
    struct pst_problems problems = {.count = 0};
    struct pst_manifest manifest;
    pst_manifest_read(&manifest, ds->dir, &problems);
    const char *command = json_string_value(json_object_get(manifest.provenance, "command"));
    if (command != NULL && command[0] != '\0') {
        (void)printf("made by: ");
        for (; *command != '\0'; command++)
            (void)putchar(plain(*command));
        (void)putchar('\n');
    }
    char *parameters = json_dumps(json_object_get(manifest.provenance, "parameters"),
                                  JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (parameters != NULL)
        (void)printf("parameters: %s\n", parameters);
    free(parameters);
    pst_manifest_release(&manifest);
}

static void say(struct inspection *in)
{
    say_counts(&in->ds);
    say_types(&in->ds);
    say_origin(&in->ds);
    say_degrees(in);
    say_hot(in);
    say_features(in);
    say_labels(in);
}

int cmd_inspect(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},          {"features", no_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},          {"quiet", no_argument, NULL, 'q'},
        {"reorder", required_argument, NULL, 'r'}, /* of another file */
        {"pack", no_argument, NULL, 'r'},          {NULL, 0, NULL, 0}};
    bool whole = false, json = false, quiet = false;
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'f': whole = true; break;
        case 'j': json = true; break;
        case 'q': quiet = true; break;
        case 'h': (void)fputs(help, stdout); return 0;
        case 'r': /* with --reorder, the command is cmd_inspect_reorder */
            return command_result("inspect", pst_fail(PST_E_ARG, "--pack works only with --reorder"));
        default:
            return command_result(
                "inspect",
                pst_fail(PST_E_ARG, "invalid option: `penstock inspect --help` lists the options"));
        }
    }
    if (argc - optind != 1)
        return command_result(
            "inspect",
            pst_fail(PST_E_ARG, "expected one directory as argument, found %d arguments", argc - optind));
    struct inspection in;
    struct pst_progress progress;
    pst_progress_init(&progress, quiet);
    pst_rc rc = inspect(&in, argv[optind], whole, &progress);
    if (rc == PST_OK && json)
        rc = inspection_json(&in);
    else if (rc == PST_OK)
        say(&in);
    inspection_release(&in);
    return command_result("inspect", rc);
}
