/* penstock inspect: what a dataset is, without reading its features. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/error.h"
#include "../../common/store/manifest.h"
#include "../../common/store/progress.h"
#include "commands.h"
#include "store_options.h"

#define BUCKETS 65      /* 0, then 2^k .. 2^(k+1)-1 */
#define BAR_WIDTH 40    /* characters of the longest bar */
#define LABELS_SHOWN 50 /* a table that fits a screen; more are counted */

static const char help[] =
    "usage: penstock inspect DIR\n"
    "Says what the dataset DIR is: counts, sizes, dtypes, stride, splits, degrees, labels.\n"
    "Reads the topology and labels, not the features, and checks no checksum (verify does).\n";

static void bar(int64_t n, int64_t most)
{
    int width = most > 0 ? (int)((double)n / (double)most * BAR_WIDTH) : 0;
    for (int i = 0; i < width + (n > 0 && width == 0); i++)
        (void)putchar('#');
    (void)putchar('\n');
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void say_buckets(const int64_t *count)
{
    int64_t most = 0;
    int last = 0;
    for (int k = 0; k < BUCKETS; k++) {
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

static pst_rc say_degrees(const struct pst_dataset *ds)
{
    const int64_t *indptr = ds->indptr.map;
    int64_t n = ds->vertices, count[BUCKETS] = {0};
    if (n == 0)
        return PST_OK;
    int64_t *degree = malloc((size_t)n * sizeof *degree);
    if (degree == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for the degrees of %" PRId64 " vertices", n);
    for (int64_t v = 0; v < n; v++) {
        degree[v] = indptr[v + 1] - indptr[v];
        if (degree[v] < 0) {
            free(degree);
            return pst_fail(PST_E_FORMAT, "%s: falls after entry %" PRId64 " (penstock verify tells more)",
                            ds->indptr.path, v);
        }
        count[degree[v] == 0 ? 0 : 64 - __builtin_clzll((unsigned long long)degree[v])]++;
    }
    qsort(degree, (size_t)n, sizeof *degree, compare);
    int64_t upper = n / 2, lower = (n - 1) / 2;
    double median = 0.5 * (double)(degree[lower] + degree[upper]);
    (void)printf("in-degree: min %" PRId64 ", median %g, mean %.2f, max %" PRId64 "\n", degree[0], median,
                 (double)ds->edges / (double)n, degree[n - 1]);
    say_buckets(count);
    free(degree);
    return PST_OK;
}

static pst_rc say_labels(const struct pst_dataset *ds)
{
    if (ds->classes == 0)
        return PST_OK;
    const int32_t *label = ds->labels.map;
    int64_t *count = calloc((size_t)ds->classes, sizeof *count), none = 0, odd = 0, most = 0;
    if (count == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for %" PRId64 " classes", ds->classes);
    for (int64_t v = 0; v < ds->vertices; v++) {
        if (label[v] >= 0 && label[v] < ds->classes)
            most = pst_max_i64(most, ++count[label[v]]);
        else if (label[v] == -1)
            none++;
        else
            odd++;
    }
    (void)printf("labels: %" PRId64 " classes, %" PRId64 " vertices without\n", ds->classes, none);
    for (int64_t k = 0; k < pst_min_i64(ds->classes, LABELS_SHOWN); k++) {
        (void)printf("  %15" PRId64 " %12" PRId64 " ", k, count[k]);
        bar(count[k], most);
    }
    if (ds->classes > LABELS_SHOWN)
        (void)printf("  and %" PRId64 " more classes\n", ds->classes - LABELS_SHOWN);
    free(count);
    return odd == 0
               ? PST_OK
               : pst_fail(PST_E_FORMAT, "%s: %" PRId64 " labels out of range (penstock verify tells more)",
                          ds->labels.path, odd);
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
    (void)printf("%s (%s), digest %s\n", ds->name, ds->dir, ds->digest);
    (void)printf("vertices %" PRId64 ", edges %" PRId64 "\n", ds->vertices, ds->edges);
    if (ds->feature_dim > 0) {
        uint64_t row = (uint64_t)ds->feature_dim * pst_dtype_bytes(ds->features.dtype);
        (void)printf("features %" PRId64 " x %s = %" PRIu64 " bytes, stride %" PRIu64
                     " bytes (%.1f %% padding%s)\n",
                     ds->feature_dim, pst_dtype_name(ds->features.dtype), row, ds->stride_bytes,
                     100.0 * (double)(ds->stride_bytes - row) / (double)row,
                     ds->stride_bytes % PST_SECTOR == 0 ? ", whole sectors" : "");
    } else if (ds->vertex_types == 0) {
        (void)printf("no features\n");
    }
    if (ds->split[0].map != NULL || ds->split[1].map != NULL || ds->split[2].map != NULL)
        (void)printf("splits: train %" PRId64 ", val %" PRId64 ", test %" PRId64 "\n", ds->split[0].shape[0],
                     ds->split[1].shape[0], ds->split[2].shape[0]);
    else
        (void)printf("no splits\n");
    (void)printf("arrays:\n");
    for (unsigned i = 0; i < PST_ARRAY_IDS; i++)
        say_array(pst_array_id_name(i), pst_dataset_array(ds, i));
}

static void say_types(const struct pst_dataset *ds)
{
    if (ds->vertex_types > 0)
        (void)printf("types of vertices:\n");
    for (int k = 0; k < ds->vertex_types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        (void)printf("  %-24s %12" PRId64 " from %-12" PRId64, t->name, t->vertices, t->first);
        if (t->feature_dim > 0)
            (void)printf(" features %" PRId64 " x %s, stride %" PRIu64 "\n", t->feature_dim,
                         pst_dtype_name(t->features.dtype), t->stride_bytes);
        else
            (void)printf(" no features\n");
    }
    if (ds->edge_types == 0)
        return;
    const int32_t *relation = ds->edge_relation.map;
    int64_t count[PST_EDGE_TYPES_MAX] = {0};
    for (int64_t i = 0; i < ds->edges && relation != NULL; i++)
        if (relation[i] >= 0 && relation[i] < ds->edge_types)
            count[relation[i]]++;
    (void)printf("types of edges:\n");
    for (int k = 0; k < ds->edge_types; k++)
        (void)printf("  %-32s %12" PRId64 " from %s to %s\n", ds->edge_type[k].name, count[k],
                     ds->vertex_type[ds->edge_type[k].source].name,
                     ds->vertex_type[ds->edge_type[k].target].name);
}

static void say_origin(const struct pst_dataset *ds)
{
    struct pst_problems problems = {.count = 0};
    struct pst_manifest manifest;
    pst_manifest_read(&manifest, ds->dir, &problems);
    const char *command = json_string_value(json_object_get(manifest.provenance, "command"));
    if (command != NULL && command[0] != '\0')
        (void)printf("made by: %s\n", command);
    char *parameters = json_dumps(json_object_get(manifest.provenance, "parameters"),
                                  JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (parameters != NULL)
        (void)printf("parameters: %s\n", parameters);
    free(parameters);
    pst_manifest_release(&manifest);
}

int cmd_inspect(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt != 'h')
            return command_result("inspect", pst_fail(PST_E_ARG, "see penstock inspect --help"));
        (void)fputs(help, stdout);
        return 0;
    }
    if (argc - optind != 1)
        return command_result("inspect",
                              pst_fail(PST_E_ARG, "expected one directory, found %d", argc - optind));
    struct pst_dataset ds;
    pst_rc rc = pst_dataset_open(&ds, argv[optind]);
    if (rc != PST_OK)
        return command_result("inspect", rc);
    say_counts(&ds);
    say_types(&ds);
    say_origin(&ds);
    rc = say_degrees(&ds);
    if (rc == PST_OK)
        rc = say_labels(&ds);
    pst_dataset_close(&ds);
    return command_result("inspect", rc);
}
