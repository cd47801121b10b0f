/* webgraph.c: the format webgraph: arcs of a BVGraph become edges. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/formats/webgraph/bvgraph.h"
#include "common/store/import/job.h"

/* A successor of a node is a target: node -> successor. */
static pst_rc give(void *ctx, struct pst_csc_builder *csc, int64_t *vertices, struct pst_progress *progress)
{
    struct pst_bvgraph *g = ctx;
    if (*vertices >= 0 && *vertices != g->nodes)
        return pst_fail(PST_E_FORMAT, "%s: expected %lld vertices, found %lld", g->path, (long long)*vertices,
                        (long long)g->nodes);
    *vertices = g->nodes;
    int64_t *source = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *source),
            *target = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *target), n = 0;
    pst_rc rc = source != NULL && target != NULL
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of edges");
    pst_progress_begin(progress, "edges: reading", (uint64_t)g->arcs, false);
    while (rc == PST_OK && g->node < g->nodes) {
        const int64_t *id;
        int64_t count, node = g->node;
        if ((rc = pst_bvgraph_next(g, &id, &count)) != PST_OK)
            break;
        for (int64_t i = 0; i < count && rc == PST_OK; i++) {
            source[n] = node;
            target[n++] = id[i];
            if (n < PST_CSC_BUILDER_EDGE_BLOCK)
                continue;
            if ((rc = pst_csc_builder_add(csc, source, target, NULL, n)) == PST_OK)
                rc = pst_progress_add(progress, (uint64_t)n);
            n = 0;
        }
    }
    if (rc == PST_OK)
        rc = pst_csc_builder_add(csc, source, target, NULL, n);
    if (rc == PST_OK)
        pst_progress_end(progress);
    free(source);
    free(target);
    return rc;
}

static pst_rc import_webgraph(struct pst_import_job *job)
{
    struct pst_bvgraph g;
    struct pst_import_spec spec = job->spec;
    struct pst_import_budget budget;
    pst_rc rc = pst_import_budget(spec.memory_bytes, PST_IMPORT_KIND_WEBGRAPH, &budget);
    if (rc != PST_OK)
        return rc;
    pst_import_name(&spec, job->from);
    rc = pst_bvgraph_open(&g, job->from, budget.graph);
    spec.memory_bytes = budget.sort;
    spec.feed = give;
    spec.feed_ctx = &g;
    if (rc == PST_OK)
        rc = pst_import(&spec, job->build, job->result, job->progress);
    pst_bvgraph_close(&g);
    return rc;
}

const struct pst_import_format pst_format_webgraph = {
    "webgraph", "WebGraph's BVGraph: NAME of NAME.graph and NAME.properties", import_webgraph};
