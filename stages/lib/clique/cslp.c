/* cslp.c: sorts vertices by their hotness in a clique, and deals them out to its devices. */
#include "stages/lib/clique/cslp.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct ranked {
    uint64_t sum;
    int64_t id;
};

static int by_sum(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->sum != b->sum)
        return a->sum > b->sum ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

pst_rc pst_cslp_order(const struct pst_cslp *c, int64_t vertices, uint64_t *sum, int64_t *order)
{
    struct ranked *ranked = malloc((size_t)vertices * sizeof *ranked + 1);
    if (ranked == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %lld vertices by hotness",
                        (long long)vertices);
    for (int64_t v = 0; v < vertices; v++) {
        sum[v] = 0;
        for (int d = 0; d < c->devices; d++)
            sum[v] += c->hotness[d][v];
        ranked[v] = (struct ranked){sum[v], v};
    }
    qsort(ranked, (size_t)vertices, sizeof *ranked, by_sum);
    for (int64_t i = 0; i < vertices; i++)
        order[i] = ranked[i].id;
    free(ranked);
    return PST_OK;
}

/* The device that gets a vertex of `bytes`, or PST_CSLP_NOWHERE. */
static int choose(const struct pst_cslp *c, const uint64_t *room, int64_t v, uint64_t bytes)
{
    int best = PST_CSLP_NOWHERE;
    for (int d = 0; d < c->devices; d++) {
        if (!c->as_printed && room[d] < bytes)
            continue;
        if (best < 0 || c->hotness[d][v] > c->hotness[best][v] ||
            (!c->as_printed && c->hotness[d][v] == c->hotness[best][v] && room[d] > room[best]))
            best = d;
    }
    return best >= 0 && room[best] >= bytes ? best : PST_CSLP_NOWHERE;
}

void pst_cslp_assign(const struct pst_cslp *c, const int64_t *order, int64_t n, int8_t *at)
{
    uint64_t room[PST_CLIQUES_MAX], left = 0;
    assert(c->devices >= 1 && c->devices <= PST_CLIQUES_MAX);
    memcpy(room, c->room, sizeof room);
    for (int d = 0; d < c->devices; d++)
        left += room[d];
    for (int64_t i = 0; i < n && left > 0; i++) {
        const uint64_t bytes = c->bytes(c->of, order[i]);
        const int d = choose(c, room, order[i], bytes);
        if (d < 0)
            continue;
        at[order[i]] = (int8_t)d;
        room[d] -= bytes;
        left -= bytes;
    }
}
