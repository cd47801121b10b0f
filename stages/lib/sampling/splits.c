/* splits.c: cuts a batch's seeds into pieces. */
#include "stages/lib/sampling/splits.h"

static int64_t grain_begin(const struct pst_splits *p, int64_t grain)
{
    return grain * p->n / p->grains;
}

int64_t pst_splits_grain(const struct pst_splits *p)
{
    int64_t grain = 0;
    while (grain_begin(p, grain + 1) <= p->done)
        grain++;
    return grain;
}

/* Puts the equal pieces of [from, to), of at most `most` seeds, on the stack. */
static void cut(struct pst_splits *p, int64_t from, int64_t to, int64_t most)
{
    const int64_t left = to - from, pieces = (left + most - 1) / most;
    int64_t end = from;
    p->depth += pieces;
    /* the first left % pieces pieces are one longer; the nearest end goes on top */
    for (int64_t i = 0; i < pieces; i++) {
        end += left / pieces + (i < left % pieces);
        p->ends[p->depth - 1 - i] = end;
    }
}

void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most,
                     const struct pst_splits_share *share)
{
    static const struct pst_splits_share whole = {.grains = 1, .count = 1};
    share = share ? share : &whole;
    assert(n >= 0 && most >= 1 && share->grains >= 1 && share->first + share->count <= share->grains);
    *p = (struct pst_splits){.ends = ends, .n = n, .grains = share->grains};
    p->done = grain_begin(p, share->first);
    for (int64_t grain = share->first + share->count - 1; grain >= share->first; grain--)
        cut(p, grain_begin(p, grain), grain_begin(p, grain + 1), most);
}

bool pst_splits_next(const struct pst_splits *p, int64_t *begin, int64_t *n, bool *last)
{
    if (p->depth == 0)
        return false;
    *begin = p->done;
    *n = p->ends[p->depth - 1] - p->done;
    *last = p->depth == 1;
    return true;
}

void pst_splits_pop(struct pst_splits *p)
{
    assert(p->depth > 0);
    p->done = p->ends[--p->depth];
}

bool pst_splits_split(struct pst_splits *p)
{
    assert(p->depth > 0);
    int64_t n = p->ends[p->depth - 1] - p->done;
    if (n < 2)
        return false;
    const int64_t to = grain_begin(p, pst_splits_grain(p) + 1);
    while (p->depth > 0 && p->ends[p->depth - 1] <= to)
        p->depth--;
    cut(p, p->done, to, (n + 1) / 2);
    return true;
}
