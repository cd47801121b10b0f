/* cliques.c: the largest clique by branch and bound, with a greedy colouring as bound (MaxCliqueDyn: Konc and
 * Janezic, "An improved branch and bound algorithm for the maximum clique problem", MATCH 58, 2007, section
 * 2). Sets of devices are words, as machines have at most 64 of them. */
#include "stages/lib/clique/cliques.h"

static int lowest(uint64_t set)
{
    return __builtin_ctzll(set);
}

static uint64_t bit(int i)
{
    return UINT64_C(1) << i;
}

/* Colours a set greedily: devices of one colour are not linked. A clique has at most one device of a colour,
 * so the devices up to order[i] have no clique of more than color[i]. Returns the size of the set. */
static int colour(const uint64_t *links, uint64_t set, int order[PST_CLIQUES_MAX], int color[PST_CLIQUES_MAX])
{
    int n = 0;
    for (int c = 1; set != 0; c++)
        for (uint64_t free = set; free != 0;) {
            const int v = lowest(free);
            order[n] = v;
            color[n++] = c;
            set &= ~bit(v);
            free &= ~(links[v] | bit(v));
        }
    return n;
}

/* The size of the largest clique in `set`, plus `have`; `best` if no clique exceeds it. Stops at `enough`. */
static int largest(const uint64_t *links, uint64_t set, int have, int best, int enough)
{
    int order[PST_CLIQUES_MAX], color[PST_CLIQUES_MAX];
    for (int i = colour(links, set, order, color) - 1; i >= 0 && best < enough; i--) {
        if (have + color[i] <= best)
            break;
        const uint64_t next = set & links[order[i]];
        if (next != 0)
            best = largest(links, next, have + 1, best, enough);
        else if (have + 1 > best)
            best = have + 1;
        set &= ~bit(order[i]);
    }
    return best;
}

/* Of the largest cliques in `set`, the first one in lexicographic order: a device is taken if what remains
 * still completes a clique of the size. */
static uint64_t first_largest(const uint64_t *links, uint64_t set)
{
    uint64_t chosen = 0;
    for (int missing = largest(links, set, 0, 0, PST_CLIQUES_MAX); missing > 0;) {
        const int v = lowest(set);
        const uint64_t rest = set & links[v];
        if (missing == 1 || largest(links, rest, 0, missing - 2, missing - 1) >= missing - 1) {
            chosen |= bit(v);
            missing--;
            set = rest;
        } else {
            set &= ~bit(v);
        }
    }
    return chosen;
}

int pst_cliques_find(const uint64_t *links, int n, uint64_t clique[PST_CLIQUES_MAX])
{
    int count = 0;
    assert(n >= 1 && n <= PST_CLIQUES_MAX);
    for (uint64_t left = n == PST_CLIQUES_MAX ? ~UINT64_C(0) : bit(n) - 1; left != 0; count++) {
        clique[count] = first_largest(links, left);
        left &= ~clique[count];
    }
    return count;
}
