/* queries.c: sorts edges by query, and cuts them into pieces. */
#include "stages/lib/edges/queries.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/error.h"
#include "kernels/kernels.h"

static int compare(const void *left, const void *right)
{
    const struct pst_edges_queries_item *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->edge > b->edge) - (a->edge < b->edge);
}

pst_rc pst_edges_queries_open(struct pst_edges_queries *q, struct pst_edges_queries_item *item, int64_t n,
                              int64_t together)
{
    *q = (struct pst_edges_queries){.item = item, .n = n};
    q->start = malloc((size_t)(n + 1) * sizeof *q->start);
    q->order = malloc((size_t)(n + 1) * sizeof *q->order);
    if (!q->start || !q->order)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %" PRId64 " edges by query", n);
    qsort(item, (size_t)n, sizeof *item, compare);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || item[i].key != item[i - 1].key || i - q->start[q->pieces - 1] == together)
            q->start[q->pieces++] = i;
    q->start[q->pieces] = n;
    return PST_OK;
}

void pst_edges_queries_close(struct pst_edges_queries *q)
{
    free(q->item);
    free(q->start);
    free(q->order);
    *q = (struct pst_edges_queries){.n = 0};
}

void pst_edges_queries_order(struct pst_edges_queries *q, uint64_t seed, int64_t epoch, bool shuffle,
                             int64_t *edge)
{
    for (int64_t i = 0; i < q->pieces && !shuffle; i++)
        q->order[i] = i;
    if (shuffle)
        pst_k_shuffle(NULL, seed, (uint64_t)epoch, q->order, q->pieces);
    for (int64_t i = 0, at = 0; i < q->pieces; i++)
        for (int64_t k = q->start[q->order[i]]; k < q->start[q->order[i] + 1]; k++)
            edge[at++] = q->item[k].edge;
}
