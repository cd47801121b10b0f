/* splits.c: cuts a batch's seeds into pieces. */
#include "stages/lib/sampling/splits.h"

/* Cuts the seeds from p->done to n into equal pieces of at most `most`. */
static void cut(struct pst_splits *p, int64_t n, int64_t most)
{
    int64_t left = n - p->done, pieces = (left + most - 1) / most, end = p->done;
    p->depth = pieces;
    /* the first left % pieces pieces are one longer; the nearest end goes on top */
    for (int64_t i = 0; i < pieces; i++) {
        end += left / pieces + (i < left % pieces);
        p->ends[pieces - 1 - i] = end;
    }
}

void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most)
{
    assert(n >= 1 && most >= 1);
    *p = (struct pst_splits){.ends = ends};
    cut(p, n, most);
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
    cut(p, p->ends[0], (n + 1) / 2);
    return true;
}
