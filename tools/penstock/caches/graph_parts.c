/* graph_parts.c: penstock partition --parts: divides a graph's vertices into parts. */
#include "tools/penstock/caches/graph_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"
#include "common/store/parted/parted.h"
#include "common/util/file.h"
#include "common/util/memory.h"
#include "stages/lib/legion/partition.h"
#include "stages/lib/sampling/seeds.h"
#include "stages/lib/topology/topology.h"

const char *const graph_parts_names[GRAPH_PARTS_KINDS] = {"range", "hash", "metis"};

int graph_parts_by_of(const char *name)
{
    for (int k = 0; k < GRAPH_PARTS_KINDS; k++)
        if (strcmp(name, graph_parts_names[k]) == 0)
            return k;
    return -1;
}

/* How many entries METIS may get. */
static pst_rc entries_of(uint64_t memory, int64_t vertices, int64_t *entries)
{
    const uint64_t fixed = PST_LEGION_OTHER_BYTES + (uint64_t)vertices * PST_LEGION_VERTEX_BYTES;
    if (memory < fixed + (uint64_t)vertices * 2 * PST_LEGION_ENTRY_BYTES)
        return pst_fail(PST_E_ARG,
                        "--memory: %" PRIu64
                        " bytes are too few for a graph of %lld vertices: expected at least "
                        "%" PRIu64,
                        memory, (long long)vertices, fixed + (uint64_t)vertices * 2 * PST_LEGION_ENTRY_BYTES);
    *entries = pst_min_i64((int64_t)((memory - fixed) / PST_LEGION_ENTRY_BYTES), PST_LEGION_ENTRIES_MAX);
    return PST_OK;
}

static pst_rc write_parts(const char *path, const int8_t *part, int64_t n)
{
    char head[PST_PAGE];
    struct pst_file_new f;
    pst_rc rc = pst_file_new_begin(&f, path);
    pst_npy_format(head, PST_I8, 1, (int64_t[2]){n, 1});
    if (rc == PST_OK)
        rc = pst_file_write_at(f.fd, head, sizeof head, 0, path);
    if (rc == PST_OK)
        rc = pst_file_write_at(f.fd, part, (uint64_t)n, sizeof head, path);
    if (rc == PST_OK)
        return pst_file_new_commit(&f);
    pst_file_new_abandon(&f);
    return rc;
}

/* What was found, and what it cost. */
struct found {
    const struct pst_csc *graph;
    const struct pst_seeds *train;
    double sampled, seconds;
    int64_t cut_edges;
};

static void describe(const struct graph_parts *args, const char *what, const struct found *f,
                     const int8_t *part)
{
    int64_t vertices[PST_CLIQUES_MAX] = {0}, train[PST_CLIQUES_MAX] = {0};
    for (int64_t v = 0; v < f->graph->vertices; v++)
        vertices[part[v]]++;
    for (int64_t i = 0; i < f->train->n; i++)
        train[part[f->train->ids[i]]]++;
    for (int k = 0; k < (int)args->parts; k++)
        printf("part %d: %lld vertices, %lld training vertices\n", k, (long long)vertices[k],
               (long long)train[k]);
    printf("%s: %lld of %lld edges lie between parts (%.1f %%)", what, (long long)f->cut_edges,
           (long long)f->graph->edges,
           f->graph->edges > 0 ? 100.0 * (double)f->cut_edges / (double)f->graph->edges : 0);
    if (args->by == GRAPH_PARTS_METIS)
        printf("; METIS got %.1f %% of the edges; %.1f s; at most %.0f MiB of memory", 100 * f->sampled,
               f->seconds, (double)pst_memory_peak() / 1048576);
    printf("\n");
}

static pst_rc call_metis(const struct graph_parts *args, struct found *f, int8_t *part)
{
    struct pst_legion_partition p = {.graph = f->graph,
                                     .train = f->train->ids,
                                     .ntrain = f->train->n,
                                     .parts = (int)args->parts,
                                     .seed = (uint64_t)args->seed};
    const double begin = pst_now();
    pst_rc rc = entries_of(args->memory_bytes, f->graph->vertices, &p.entries_max);
    for (int k = 0; k < p.parts; k++)
        p.weight[k] = 1;
    if (rc == PST_OK)
        rc = pst_legion_check(f->graph);
    if (rc == PST_OK)
        rc = pst_legion_partition(&p, part);
    f->seconds = pst_now() - begin;
    f->sampled = p.sampled;
    f->cut_edges = p.cut_edges;
    return rc;
}

/* The parts that need no edges. */
static pst_rc assign(const struct graph_parts *args, struct found *f, int8_t *part)
{
    const int64_t n = f->graph->vertices;
    const pst_rc rc = pst_legion_check(f->graph);
    if (rc != PST_OK)
        return rc;
    if (args->by == GRAPH_PARTS_HASH)
        pst_parted_hash(part, n, (int)args->parts, (uint64_t)args->seed);
    else
        pst_parted_range(part, n, (int)args->parts);
    f->cut_edges = pst_legion_cut_edges(f->graph, part);
    return PST_OK;
}

pst_rc graph_parts_find(const struct pst_dataset *ds, const struct graph_parts *args, const char *what,
                        int8_t *part)
{
    struct pst_seeds seeds = {.n = 0};
    const struct pst_csc graph = pst_topology_mapped(ds);
    struct found found = {.graph = &graph, .train = &seeds};
    pst_rc rc = PST_OK;
    if (ds->split[PST_TRAIN].map != NULL && ds->split[PST_TRAIN].shape[0] > 0)
        rc = pst_seeds_init(&seeds, ds, "train", INT32_MAX, 0, false);
    if (rc == PST_OK)
        rc = args->by == GRAPH_PARTS_METIS ? call_metis(args, &found, part) : assign(args, &found, part);
    if (rc == PST_OK)
        describe(args, what, &found, part);
    pst_seeds_release(&seeds);
    return rc;
}

pst_rc graph_parts_write(const char *dataset, const struct graph_parts *args, const char *path)
{
    struct pst_dataset ds;
    pst_rc rc = pst_dataset_open(&ds, dataset);
    if (rc != PST_OK)
        return rc;
    int8_t *part = malloc((size_t)ds.vertices + 1);
    rc = part != NULL
             ? graph_parts_find(&ds, args, path, part)
             : pst_fail(PST_E_NOMEM, "out of memory: cannot partition %lld vertices", (long long)ds.vertices);
    if (rc == PST_OK)
        rc = write_parts(path, part, ds.vertices);
    free(part);
    pst_dataset_close(&ds);
    return rc;
}
