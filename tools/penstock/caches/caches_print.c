/* caches_print.c: the results as tables, or as JSON. */
#include <jansson.h>
#include <stdio.h>

#include "common/error.h"
#include "tools/penstock/caches/caches.h"

#define TENTH 10 /* tables have alpha in tenths */

/* ---- text ----------------------------------------------------------------------------------------- */

static void print_matrix(const struct caches_args *args, const struct caches_result *r)
{
    const int n = args->config.devices;
    printf("\nrows that a device reads (down) from each device (across) and from the host\n%6s", "");
    for (int from = 0; from < n; from++)
        printf(" %9d", from);
    printf(" %9s %8s\n", "host", "hits");
    for (int d = 0; d < n; d++) {
        printf("%6d", d);
        for (int from = 0; from < n; from++)
            printf(" %9llu", (unsigned long long)r->traffic[d].rows[from]);
        printf(" %9llu %8.3f\n", (unsigned long long)r->traffic[d].rows_host, r->hit[d]);
    }
}

static void print_alphas(const struct caches_result *r)
{
    const struct pst_legion *l = r->legion;
    printf(
        "\ntransactions of an epoch with a share alpha of the cache for lists, of all cliques\n%6s %14s %14s "
        "%14s\n",
        "alpha", "as printed", "predicted", "counted");
    for (int i = 0; i < PST_LEGION_ALPHAS; i += TENTH) {
        double printed = 0, predicted = 0, counted = 0;
        for (int g = 0; g < l->placement.groups; g++) {
            printed += l->cost[g].printed_t[i] + l->cost[g].printed_f[i];
            predicted += l->cost[g].n_t[i] + l->cost[g].n_f[i];
            counted += r->counted_t[g][i] + r->counted_f[g][i];
        }
        printf("%6.2f %14.0f %14.0f %14.0f\n", i / 100.0, printed, predicted, counted);
    }
    printf("chosen:");
    for (int g = 0; g < l->placement.groups; g++)
        printf(" %.2f", l->alpha[g] / 100.0);
    printf("\n");
}

static void print_text(const struct caches_args *args, const struct caches_result *r, bool first)
{
    const struct pst_legion *l = r->legion;
    const double edges = (double)l->config.graph->edges;
    if (first && args->rows_only)
        printf("each device caches %llu of %lld rows\n", (unsigned long long)args->config.cache_bytes,
               (long long)l->config.graph->vertices);
    if (first)
        printf("%-13s %5s %6s %6s  %11s %11s %11s %11s %12s %8s %8s\n", "policy", "hits", "least", "most",
               "from host", "largest", "own cache", "peers", "transactions", "batches", "cut");
    printf("%-13s %5.3f %6.3f %6.3f  %11llu %11llu %11llu %11llu", pst_legion_policy_name(r->policy), r->mean,
           r->least, r->most, (unsigned long long)r->host, (unsigned long long)r->largest,
           (unsigned long long)r->local, (unsigned long long)r->peer);
    if (args->rows_only)
        printf(" %12s", "-");
    else
        printf(" %12llu", (unsigned long long)r->transactions);
    printf(" %8lld %7.1f%%\n", (long long)l->shares.steps,
           100 * (double)l->cut_edges / (edges > 0 ? edges : 1));
    if (args->one)
        print_matrix(args, r);
    if (args->one && l->cost != NULL)
        print_alphas(r);
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static json_t *reals(const double *values, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, json_real(values[i]));
    return list;
}

static json_t *integers(const uint64_t *values, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, json_integer((json_int_t)values[i]));
    return list;
}

static json_t *device_json(const struct caches_args *args, const struct caches_result *r, int d)
{
    const struct pst_legion_traffic *t = &r->traffic[d];
    const int n = args->config.devices;
    return json_pack("{s:f, s:o, s:I, s:o, s:I, s:I}", "hit_rate", r->hit[d], "rows", integers(t->rows, n),
                     "rows_host", (json_int_t)t->rows_host, "edges", integers(t->edges, n), "edges_host",
                     (json_int_t)t->edges_host, "lines_host", (json_int_t)t->lines_host);
}

static json_t *clique_json(const struct caches_result *r, int g)
{
    const struct pst_legion *l = r->legion;
    json_t *devices = json_array();
    for (int d = 0; d < l->placement.devices; d++)
        if (l->placement.members[g] >> d & 1)
            (void)json_array_append_new(devices, json_integer(d));
    json_t *clique = json_pack("{s:o, s:f}", "devices", devices, "alpha", l->alpha[g] / 100.0);
    if (l->cost != NULL) {
        const struct pst_legion_cost *c = &l->cost[g];
        json_t *cost = json_pack(
            "{s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "best_printed", c->best_printed / 100.0, "printed_lists",
            reals(c->printed_t, PST_LEGION_ALPHAS), "printed_rows", reals(c->printed_f, PST_LEGION_ALPHAS),
            "predicted_lists", reals(c->n_t, PST_LEGION_ALPHAS), "predicted_rows",
            reals(c->n_f, PST_LEGION_ALPHAS), "counted_lists", reals(r->counted_t[g], PST_LEGION_ALPHAS),
            "counted_rows", reals(r->counted_f[g], PST_LEGION_ALPHAS));
        (void)json_object_set_new(clique, "transactions", cost);
    }
    return clique;
}

static pst_rc print_json(const struct caches_args *args, const struct caches_result *r, bool first)
{
    const struct pst_legion *l = r->legion;
    json_t *devices = json_array(), *cliques = json_array();
    for (int d = 0; d < args->config.devices; d++)
        (void)json_array_append_new(devices, device_json(args, r, d));
    for (int g = 0; g < l->placement.groups; g++)
        (void)json_array_append_new(cliques, clique_json(r, g));
    json_t *all = json_pack(
        "{s:s, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:f, s:f, s:I}, s:o, s:o}", "policy",
        pst_legion_policy_name(r->policy), "hit_rate", r->mean, "hit_rate_least", r->least, "hit_rate_most",
        r->most, "rows_local", (json_int_t)r->local, "rows_peer", (json_int_t)r->peer, "rows_host",
        (json_int_t)r->host, "rows_host_largest", (json_int_t)r->largest, "transactions",
        (json_int_t)r->transactions, "batches", (json_int_t)l->shares.steps, "batch_max",
        (json_int_t)l->shares.batch_max, "partition", "seconds", l->partition_s, "edges_sampled", l->sampled,
        "cut_edges", (json_int_t)l->cut_edges, "groups", cliques, "devices", devices);
    if (all == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot describe the results");
    if (!first)
        printf(", ");
    (void)json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(all);
    return PST_OK;
}

/* ---- both ----------------------------------------------------------------------------------------- */

void caches_print_head(const struct caches_args *args)
{
    if (args->json)
        printf("{\"devices\": %d, \"line_bytes\": %u, \"policies\": [", args->config.devices,
               args->config.line_bytes);
    else
        printf("%s on %d device%s of %s\n", args->dataset, args->config.devices,
               args->config.devices == 1 ? "" : "s", args->machine.name);
}

pst_rc caches_print(const struct caches_args *args, const struct caches_result *r, bool first)
{
    if (args->json)
        return print_json(args, r, first);
    print_text(args, r, first);
    return PST_OK;
}

void caches_print_unfit(const struct caches_args *args, enum pst_legion_policy policy, const char *why)
{
    (void)fprintf(args->json ? stderr : stdout, "%-13s left out: %s\n", pst_legion_policy_name(policy), why);
}

void caches_print_end(const struct caches_args *args)
{
    if (args->json)
        printf("]}\n");
}
