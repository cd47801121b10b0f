/* graph_parts.c: penstock partition --parts: divides a graph's vertices into parts with few edges between
 * them. */
#include "tools/penstock/caches/graph_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"
#include "common/store/store.h"
#include "common/util/file.h"
#include "common/util/memory.h"
#include "stages/lib/legion/partition.h"
#include "stages/lib/sampling/seeds.h"
#include "stages/lib/topology/topology.h"

/* Peaks of METIS 5.1 with two constraints, measured on R-MAT graphs, which coarsen badly: 42 bytes of an
 * entry of adjacency (the list, its weights, the coarser graphs), 174 of a vertex. */
#define ENTRY_BYTES 48
#define VERTEX_BYTES 200
#define OTHER_BYTES ((uint64_t)32 << 20) /* of the process */

/* How many entries METIS may get. */
static pst_rc entries_of(uint64_t memory, int64_t vertices, int64_t *entries)
{
    const uint64_t fixed = OTHER_BYTES + (uint64_t)vertices * VERTEX_BYTES;
    if (memory < fixed + (uint64_t)vertices * 2 * ENTRY_BYTES)
        return pst_fail(PST_E_ARG,
                        "--memory: %" PRIu64
                        " bytes are too few for a graph of %lld vertices: expected at least "
                        "%" PRIu64,
                        memory, (long long)vertices, fixed + (uint64_t)vertices * 2 * ENTRY_BYTES);
    *entries = pst_min_i64((int64_t)((memory - fixed) / ENTRY_BYTES), PST_LEGION_ENTRIES_MAX);
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

/* The sizes of the parts, and what they cost. */
static void describe(const struct graph_parts *args, const struct pst_legion_partition *p, const int8_t *part,
                     double seconds)
{
    int64_t vertices[PST_CLIQUES_MAX] = {0}, train[PST_CLIQUES_MAX] = {0};
    for (int64_t v = 0; v < p->graph->vertices; v++)
        vertices[part[v]]++;
    for (int64_t i = 0; i < p->ntrain; i++)
        train[part[p->train[i]]]++;
    for (int k = 0; k < p->parts; k++)
        printf("part %d: %lld vertices, %lld training vertices\n", k, (long long)vertices[k],
               (long long)train[k]);
    printf(
        "%s: %lld of %lld edges lie between parts (%.1f %%); METIS got %.1f %% of the edges; %.1f s; at most "
        "%.0f MiB of memory\n",
        args->out, (long long)p->cut_edges, (long long)p->graph->edges,
        p->graph->edges > 0 ? 100.0 * (double)p->cut_edges / (double)p->graph->edges : 0, 100 * p->sampled,
        seconds, (double)pst_memory_peak() / 1048576);
}

pst_rc graph_parts_write(const struct graph_parts *args)
{
    struct pst_dataset ds;
    struct pst_seeds seeds = {.n = 0};
    int8_t *part = NULL;
    pst_rc rc = pst_dataset_open(&ds, args->dataset);
    if (rc != PST_OK)
        return rc;
    const struct pst_csc graph = pst_topology_mapped(&ds);
    struct pst_legion_partition p = {
        .graph = &graph, .parts = (int)args->parts, .seed = (uint64_t)args->seed};
    if (ds.split[PST_TRAIN].map != NULL && ds.split[PST_TRAIN].shape[0] > 0)
        rc = pst_seeds_init(&seeds, &ds, "train", INT32_MAX, 0, false);
    if (rc == PST_OK)
        rc = entries_of(args->memory_bytes, graph.vertices, &p.entries_max);
    if (rc == PST_OK)
        rc = pst_legion_check(&graph);
    if (rc == PST_OK && (part = malloc((size_t)graph.vertices)) == NULL)
        rc =
            pst_fail(PST_E_NOMEM, "out of memory: cannot partition %lld vertices", (long long)graph.vertices);
    for (int k = 0; k < p.parts; k++)
        p.weight[k] = 1;
    p.train = seeds.ids;
    p.ntrain = seeds.n;
    const double begin = pst_now();
    if (rc == PST_OK)
        rc = pst_legion_partition(&p, part);
    const double seconds = pst_now() - begin;
    if (rc == PST_OK)
        rc = write_parts(args->out, part, graph.vertices);
    if (rc == PST_OK)
        describe(args, &p, part, seconds);
    free(part);
    pst_seeds_release(&seeds);
    pst_dataset_close(&ds);
    return rc;
}
