/* tiers.c: from a plan's settings to the ids of its tiers. */
#include "stages/lib/plan/tiers.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/store/store.h"

#define LIST_BYTES 8 /* a cached list takes its place in the array of offsets besides its entries */
#define THREADS 2

void pst_plan_placement_input(const struct pst_plan *plan, const struct pst_dataset *ds, const float *scores,
                              struct pst_placement_input *in)
{
    const struct pst_plan_key *key = &plan->key;
    in->vertices = plan->vertices;
    in->indptr = ds->indptr.map;
    in->entry_bytes = (uint32_t)pst_dtype_bytes(ds->indices.dtype);
    in->list_bytes = LIST_BYTES;
    in->hops = key->hops;
    for (int h = 0; h < key->hops; h++) {
        in->lists[h] = scores + (int64_t)h * plan->vertices;
        in->fanout[h] = key->fanout[h];
    }
    in->replace = key->replace;
    in->rows = ds->feature_dim > 0 ? scores + key->hops * plan->vertices : NULL;
    in->row_bytes = ds->stride_bytes;
    in->row_files = pst_feature_files(ds);
    in->cache_bytes[PST_PLACEMENT_GPU] = key->gpu_budget_bytes;
    in->cache_bytes[PST_PLACEMENT_CPU] = key->cache_budget_bytes;
    in->batches = plan->batches / plan->epochs;
    in->threads = THREADS;
}

/* The ids of both tiers, the GPU tier's first. */
static pst_rc take_ids(const struct pst_placement *p, const struct pst_placement_plan *found,
                       enum pst_placement_kind kind, struct pst_plan_tiers *tiers)
{
    int64_t *gpu = NULL, *cpu = NULL, n = 0;
    pst_rc rc = pst_placement_ids(p, found, kind, PST_PLACEMENT_GPU, &gpu, &tiers->gpu_n);
    if (rc == PST_OK)
        rc = pst_placement_ids(p, found, kind, PST_PLACEMENT_CPU, &cpu, &n);
    tiers->n = tiers->gpu_n + n;
    tiers->ids = rc == PST_OK ? malloc((size_t)tiers->n * sizeof *tiers->ids + 1) : NULL;
    if (rc == PST_OK && tiers->ids == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot list %lld cached vertices", (long long)tiers->n);
    if (rc == PST_OK) {
        memcpy(tiers->ids, gpu, (size_t)tiers->gpu_n * sizeof *gpu);
        memcpy(tiers->ids + tiers->gpu_n, cpu, (size_t)n * sizeof *cpu);
    }
    free(gpu);
    free(cpu);
    return rc;
}

pst_rc pst_plan_place(struct pst_plan *plan, const struct pst_dataset *ds, const float *scores,
                      const struct pst_placement_ask *ask, enum pst_placement_cost cost, uint32_t line_bytes,
                      struct pst_plan_reads *reads)
{
    struct pst_placement p;
    struct pst_placement_plan found = {0};
    struct pst_placement_input in = {.line_bytes = line_bytes, .sector_bytes = PST_SECTOR, .cost = cost};
    pst_plan_placement_input(plan, ds, scores, &in);
    pst_rc rc = pst_placement_open(&p, &in);
    if (rc != PST_OK)
        return rc;
    rc = pst_placement_solve(&p, ask, &found);
    if (rc == PST_OK)
        rc = take_ids(&p, &found, PST_PLACEMENT_LISTS, &plan->lists);
    if (rc == PST_OK)
        rc = take_ids(&p, &found, PST_PLACEMENT_ROWS, &plan->rows);
    memcpy(reads->lists, found.reads[PST_PLACEMENT_LISTS], sizeof reads->lists);
    memcpy(reads->rows, found.reads[PST_PLACEMENT_ROWS], sizeof reads->rows);
    reads->ssd = found.ssd[PST_PLACEMENT_LISTS] + found.ssd[PST_PLACEMENT_ROWS];
    reads->cpu = found.cpu[PST_PLACEMENT_LISTS] + found.cpu[PST_PLACEMENT_ROWS];
    pst_placement_plan_release(&found);
    pst_placement_close(&p);
    return rc;
}
