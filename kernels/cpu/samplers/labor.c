/* labor.c: LABOR with importance. pi(u) and its successor are numbers of every vertex of the graph, in
 * scratch memory; 0: no list of the call has u. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/vertex_rank.h"

enum { STEPS_MAX = 1000 }; /* of Newton's method, which needs a few */

struct labor {
    const struct pst_csc *graph;
    const struct pst_k_ranks *ranks;
    const int64_t *vertices;
    int64_t n;
    int fanout;
    double *pi, *next;
};

/* Checks all lists, and begins with pi = 1. */
static pst_rc begin(const struct labor *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        struct pst_cpu_list list;
        if (!pst_cpu_list_of(l->graph, l->vertices[i], &list))
            return PST_E_FORMAT;
        for (int64_t e = 0; e < list.degree; e++) {
            const int64_t u = pst_cpu_list_at(l->graph, list.begin + e);
            if (!pst_cpu_list_knows(l->graph, u))
                return PST_E_FORMAT;
            l->pi[u] = 1;
        }
    }
    return PST_OK;
}

/* Sets what the call has set to 0. After a failure some lists may be wrong. */
static void clear(const struct labor *l, double *of)
{
    for (int64_t i = 0; i < l->n; i++) {
        struct pst_cpu_list list;
        if (!pst_cpu_list_of(l->graph, l->vertices[i], &list))
            return;
        for (int64_t e = 0; e < list.degree; e++) {
            const int64_t u = pst_cpu_list_at(l->graph, list.begin + e);
            if (pst_cpu_list_knows(l->graph, u))
                of[u] = 0;
        }
    }
}

/* The sum of 1 / pi of the entries with pi < x, in the order that vertex_rank.h says; *ones: how many others
 * there are. */
static double inverse_below(const struct labor *l, struct pst_cpu_list list, double x, int64_t *ones)
{
    double part[PST_K_RANK_LANES] = {0};
    *ones = 0;
    for (int64_t e = 0; e < list.degree; e++) {
        const double pi = l->pi[pst_cpu_list_at(l->graph, list.begin + e)];
        if (pi < x)
            part[e % PST_K_RANK_LANES] += 1 / pi;
        else
            ++*ones;
    }
    for (int by = PST_K_RANK_LANES / 2; by > 0; by /= 2)
        for (int lane = 0; lane < by; lane++)
            part[lane] += part[lane + by];
    return part[0];
}

static double least(const struct labor *l, struct pst_cpu_list list)
{
    double pi = INFINITY;
    for (int64_t e = 0; e < list.degree; e++)
        pi = fmin(pi, l->pi[pst_cpu_list_at(l->graph, list.begin + e)]);
    return pi;
}

/* 1 / c_v. */
static double solve(const struct labor *l, struct pst_cpu_list list)
{
    const double degree = (double)list.degree, target = degree * degree / l->fanout;
    double x = INFINITY;
    int64_t ones = 0, before = -1;
    if (list.degree <= l->fanout)
        return least(l, list);
    for (int step = 0; step < STEPS_MAX; step++) {
        const double inverse = inverse_below(l, list, x, &ones);
        if (ones == before || !(inverse > 0))
            break;
        x = pst_k_rank_newton(target, ones, inverse);
        before = ones;
    }
    return x;
}

static struct pst_cpu_list list_of(const struct labor *l, int64_t i)
{
    struct pst_cpu_list list;
    (void)pst_cpu_list_of(l->graph, l->vertices[i], &list);
    return list;
}

/* pi(u) becomes pi(u) times the largest c_v. */
static void iterate(struct labor *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        const struct pst_cpu_list list = list_of(l, i);
        const double x = solve(l, list);
        for (int64_t e = 0; e < list.degree; e++) {
            const int64_t u = pst_cpu_list_at(l->graph, list.begin + e);
            l->next[u] = fmax(l->next[u], l->pi[u] / x);
        }
    }
    double *const pi = l->next;
    l->next = l->pi;
    l->pi = pi;
    clear(l, l->next);
}

static pst_rc keep(const struct labor *l, int32_t *indptr, int64_t *out, float *weight, int64_t capacity)
{
    int64_t used = 0;
    indptr[0] = 0;
    for (int64_t i = 0; i < l->n; i++) {
        const struct pst_cpu_list list = list_of(l, i);
        const double x = solve(l, list);
        for (int64_t e = 0; e < list.degree; e++) {
            const int64_t u = pst_cpu_list_at(l->graph, list.begin + e);
            const double share = pst_k_rank_share(l->pi[u], x);
            if (share < 1 && pst_k_rank_of(l->ranks, u) >= share)
                continue;
            if (used == capacity)
                return PST_E_LIMIT;
            out[used] = u;
            weight[used++] = (float)(1 / share);
        }
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}

pst_rc pst_k_sample_labor(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                          int iterations, const int64_t *vertices, int64_t n, int fanout, uint64_t *scratch,
                          int32_t *indptr, int64_t *out, float *weight, int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0 && fanout >= 1 && iterations >= 0);
    (void)q;
    double *const words = (double *)(void *)scratch;
    struct labor l = {.graph = graph,
                      .ranks = ranks,
                      .vertices = vertices,
                      .n = n,
                      .fanout = fanout,
                      .pi = words,
                      .next = words + graph->vertices};
    pst_rc rc = begin(&l);
    for (int i = 0; i < iterations && rc == PST_OK; i++)
        iterate(&l);
    if (rc == PST_OK)
        rc = keep(&l, indptr, out, weight, pst_min_i64(capacity, INT32_MAX));
    clear(&l, l.pi);
    return rc;
}
