/* groups.c: lists and shuffles the edges of a group, and draws vertices from the buffer. */
#include "stages/lib/edges/groups.h"

#include <stdlib.h>

#include "common/error.h"
#include "kernels/kernels.h"

pst_rc pst_edges_groups_open(struct pst_edges_groups *g, const char *path, const char *digest, int partitions,
                             int buffer, enum pst_order_kind kind)
{
    const pst_rc rc = pst_parts_training_open(&g->training, path, digest, partitions, buffer, kind);
    if (rc != PST_OK)
        return rc;
    const size_t n = (size_t)g->training.epochs.largest_group;
    g->epoch = g->group = -1;
    g->edge = malloc((n + 1) * sizeof *g->edge);
    g->order = malloc((n + 1) * sizeof *g->order);
    return g->edge && g->order
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot list the %zu edges of the largest group", n);
}

void pst_edges_groups_close(struct pst_edges_groups *g)
{
    pst_parts_training_close(&g->training);
    free(g->edge);
    free(g->order);
}

/* Lists the edges of the batch's group. */
static void list(struct pst_edges_groups *g, bool shuffle)
{
    const struct pst_parts_epochs *e = &g->training.epochs;
    const struct pst_buckets *b = &g->training.buckets;
    int64_t n = 0;
    for (int64_t i = e->order->cut[g->group]; i < e->order->cut[g->group + 1]; i++) {
        const int source = e->number[e->order->bucket[i].source];
        const int destination = e->number[e->order->bucket[i].destination];
        const int64_t end = pst_buckets_end(b, source, destination);
        for (int64_t edge = pst_buckets_begin(b, source, destination); edge < end; edge++)
            g->edge[n++] = edge;
    }
    if (shuffle)
        pst_k_shuffle(NULL, e->seed, (uint64_t)(g->epoch * e->groups + g->group), g->order, n);
    for (int64_t i = 0; i < n && !shuffle; i++)
        g->order[i] = i;
}

static void list_resident(struct pst_edges_groups *g)
{
    g->resident = pst_parts_epochs_resident(&g->training.epochs, g->group, g->partition);
    for (int i = 0; i < g->resident; i++)
        g->rows_before[i + 1] =
            g->rows_before[i] + pst_parts_used(&g->training.buckets.parts, g->partition[i]);
}

void pst_edges_groups_find(struct pst_edges_groups *g, uint64_t batch, bool shuffle)
{
    pst_parts_epochs_find(&g->training.epochs, batch, &g->batch);
    if (g->batch.edges == 0 || (g->batch.epoch == g->epoch && g->batch.group == g->group))
        return;
    g->epoch = g->batch.epoch;
    g->group = g->batch.group;
    list(g, shuffle);
    list_resident(g);
}

int64_t pst_edges_groups_value(const struct pst_edges_groups *g, uint32_t i, int column)
{
    return pst_buckets_value(&g->training.buckets, g->edge[g->order[g->batch.first + i]], column);
}

int64_t pst_edges_groups_vertex(const struct pst_edges_groups *g, int64_t i)
{
    int p = 0;
    while (i >= g->rows_before[p + 1])
        p++;
    const struct pst_parts *parts = &g->training.buckets.parts;
    return pst_parts_vertex(parts, g->partition[p] * parts->rows + i - g->rows_before[p]);
}
