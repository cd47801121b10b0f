/* least_time.c: the placement with the least time of a batch: the larger of what the SSDs take and what PCIe
 * takes (equation 4; training does not depend on the placement). README.md explains the method. */
#include "stages/lib/placement/placement_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/rng.h"

#define ROUNDS_MAX 100      /* of the sweep; it usually ends after about ten */
#define STEPS_MAX (1 << 20) /* of the repair: some tens of milliseconds */
#define MOVABLE_MAX 1024    /* chunks that the repair may move; also limits how deep it calls itself */
#define CLOSE 1e-4          /* relative: a placement this near to the bound needs no repair */
#define DISTURBANCE 1e-7 /* relative: makes equal chunks differ, so that a solution can have some of them */

/* Both times of a placement. A weight w in [0, 1] makes one number of them: (1 - w) pcie + w ssd. */
static double weighted(const struct pst_placement_times *t, double w)
{
    return (1 - w) * t->pcie_s + w * t->ssd_s;
}

static double slower(const struct pst_placement_times *t)
{
    return fmax(t->ssd_s, t->pcie_s);
}

/* Transactions from SSD and CPU memory, if chunk i is in this tier. */
static void traffic(const struct pst_placement_chunks *c, int64_t i, int tier, double *ssd, double *cpu)
{
    *ssd = tier == PST_PLACEMENT_HOME ? c->ssd[i] : 0;
    *cpu = tier == PST_PLACEMENT_CPU    ? c->cpu[i]
           : tier == PST_PLACEMENT_HOME ? pst_placement_home_cpu(c, i)
                                        : 0;
}

static struct pst_placement_times times_for(const struct pst_placement_machine *m, double ssd, double cpu)
{
    return (struct pst_placement_times){.ssd_s = ssd / m->ssd_per_s + m->lookup_s,
                                        .pcie_s = (ssd + cpu) / m->pcie_per_s};
}

struct pst_placement_times pst_placement_times_of(const struct pst_placement_chunks *c,
                                                  const struct pst_placement_machine *machine,
                                                  const uint8_t *tier)
{
    double ssd = c->left_ssd, cpu = c->left_cpu;
    for (int64_t i = 0; i < c->n; i++) {
        double s, m;
        traffic(c, i, tier[i], &s, &m);
        ssd += s;
        cpu += m;
    }
    return times_for(machine, ssd, cpu);
}

/* Weighted seconds that chunk i takes in this tier. */
static double seconds(const struct pst_placement_chunks *c, const struct pst_placement_machine *m, int64_t i,
                      int tier, double w)
{
    double ssd, cpu;
    traffic(c, i, tier, &ssd, &cpu);
    return w * ssd / m->ssd_per_s + (1 - w) * (ssd + cpu) / m->pcie_per_s;
}

struct search {
    const struct pst_placement_chunks *c;
    const struct pst_placement_machine *m;
    struct pst_placement_scratch *s;
    uint8_t *best, *now; /* placements */
    double best_s;       /* the slower time of best */
    double bound;        /* the largest lower bound so far */
};

static double noise(int64_t i)
{
    const struct pst_rng_block hash = pst_rng_philox((struct pst_rng_block){{(uint32_t)i}}, 1, 2);
    return DISTURBANCE * (double)hash.word[0] / (double)UINT32_MAX;
}

/* The placement with the least weighted time, into x->now. disturbed: of chunks that differ a little. */
static struct pst_placement_times least_weighted(struct search *x, double w, bool disturbed)
{
    const struct pst_placement_chunks *c = x->c;
    for (int64_t i = 0; i < c->n; i++) {
        const double scale = disturbed ? 1 + noise(i) : 1, home = seconds(c, x->m, i, PST_PLACEMENT_HOME, w);
        x->s->gpu[i] = scale * home;
        x->s->cpu[i] =
            pst_placement_cpu_may(c, i) ? scale * (home - seconds(c, x->m, i, PST_PLACEMENT_CPU, w)) : -1;
    }
    pst_placement_assign(x->s, c->n, c->room, x->now);
    const struct pst_placement_times t = pst_placement_times_of(c, x->m, x->now);
    if (slower(&t) < x->best_s) {
        x->best_s = slower(&t);
        memcpy(x->best, x->now, (size_t)c->n);
    }
    if (!disturbed)
        x->bound = fmax(x->bound, weighted(&t, w));
    return t;
}

/* ---- the sweep ---------------------------------------------------------------------------------------- */

/* The weight at which the least weighted time is the largest; this time is the optimum of the fractional
 * problem. For each placement, the weighted time is a line over w, and their minimum is concave. So the
 * method goes to where the lines of the two neighbours cross, until no line lies below. */
static double sweep(struct search *x)
{
    struct pst_placement_times low = least_weighted(x, 0, true), high = least_weighted(x, 1, true);
    (void)least_weighted(x, 0, false);
    (void)least_weighted(x, 1, false);
    double from = 0, to = 1;
    if (low.ssd_s <= low.pcie_s) /* the line falls from the beginning */
        return 0;
    if (high.ssd_s >= high.pcie_s)
        return 1;
    double w = 0;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        const double rise = low.ssd_s - low.pcie_s, fall = high.pcie_s - high.ssd_s;
        w = (high.pcie_s - low.pcie_s) / (rise + fall);
        if (!(w > from && w < to))
            w = (from + to) / 2;
        const double crossing = weighted(&low, w);
        const struct pst_placement_times t = least_weighted(x, w, true);
        if (weighted(&t, w) >= crossing * (1 - 1e-14) || to - from < 1e-15)
            break;
        if (t.ssd_s > t.pcie_s) {
            low = t;
            from = w;
        } else {
            high = t;
            to = w;
        }
    }
    (void)least_weighted(x, w, false);
    return w;
}

/* ---- the repair ------------------------------------------------------------------------------------------
 */

/* What a place in each cache is worth at the sweep's end (dual prices), from the conditions that hold if
 * x->now is optimal: each chunk is where its worth less the price is largest, and the differences of prices
 * fit. */
struct prices {
    double of[PST_PLACEMENT_TIERS];
};

struct interval {
    double low, high;
};

static void at_least(struct interval *i, double value)
{
    i->low = fmax(i->low, value);
}

static void at_most(struct interval *i, double value)
{
    i->high = fmin(i->high, value);
}

static struct prices find_prices(const struct search *x)
{
    const double *gpu = x->s->gpu, *cpu = x->s->cpu;
    struct interval g = {0, INFINITY}, k = {0, INFINITY}, more = {-INFINITY, INFINITY}; /* more: g - k */
    int64_t used[PST_PLACEMENT_TIERS] = {0};
    for (int64_t i = 0; i < x->c->n; i++) {
        const bool may = pst_placement_cpu_may(x->c, i);
        used[x->now[i]]++;
        if (x->now[i] == PST_PLACEMENT_HOME) {
            at_least(&g, gpu[i]);
            if (may)
                at_least(&k, cpu[i]);
        } else if (x->now[i] == PST_PLACEMENT_GPU) {
            at_most(&g, gpu[i]);
            if (may)
                at_most(&more, gpu[i] - cpu[i]);
        } else {
            at_most(&k, cpu[i]);
            at_least(&more, gpu[i] - cpu[i]);
        }
    }
    if (used[PST_PLACEMENT_GPU] < x->c->room[PST_PLACEMENT_GPU])
        g.high = 0;
    if (used[PST_PLACEMENT_CPU] < x->c->room[PST_PLACEMENT_CPU])
        k.high = 0;
    struct prices p = {{0}};
    p.of[PST_PLACEMENT_GPU] = fmax(g.low, k.low + more.low);
    p.of[PST_PLACEMENT_CPU] = fmax(k.low, p.of[PST_PLACEMENT_GPU] - more.high);
    return p;
}

/* A chunk that the repair may move: the traffic that each tier adds, and by how much the weighted bound
 * grows. */
struct movable {
    double ssd[PST_PLACEMENT_TIERS], cpu[PST_PLACEMENT_TIERS], regret[PST_PLACEMENT_TIERS];
    double second; /* the smallest regret above that of the best tier */
    int64_t chunk;
    uint8_t by_regret[PST_PLACEMENT_TIERS];
};

struct repair {
    struct search *x;
    struct movable *list;
    int64_t n, steps;
    int64_t room[PST_PLACEMENT_TIERS];
    struct prices prices;
    uint8_t *choice;
};

static int by_second(const void *left, const void *right)
{
    const struct movable *a = left, *b = right;
    if (a->second != b->second)
        return a->second > b->second ? -1 : 1;
    return (a->chunk > b->chunk) - (a->chunk < b->chunk);
}

static struct movable movable_of(const struct search *x, const struct prices *p, double w, int64_t i)
{
    struct movable m = {.chunk = i, .by_regret = {0, 1, 2}};
    double least = INFINITY;
    for (int t = 0; t < PST_PLACEMENT_TIERS; t++) {
        const bool may = t != PST_PLACEMENT_CPU || pst_placement_cpu_may(x->c, i);
        traffic(x->c, i, t, &m.ssd[t], &m.cpu[t]);
        m.regret[t] = may ? seconds(x->c, x->m, i, t, w) + p->of[t] : INFINITY;
        least = fmin(least, m.regret[t]);
    }
    for (int t = 0; t < PST_PLACEMENT_TIERS; t++)
        m.regret[t] -= least;
    for (int a = 0; a < PST_PLACEMENT_TIERS; a++) { /* three tiers: a sort by exchange */
        for (int b = a + 1; b < PST_PLACEMENT_TIERS; b++) {
            if (m.regret[m.by_regret[b]] < m.regret[m.by_regret[a]]) {
                const uint8_t swap = m.by_regret[a];
                m.by_regret[a] = m.by_regret[b];
                m.by_regret[b] = swap;
            }
        }
    }
    m.second = m.regret[m.by_regret[1]];
    return m;
}

static bool good_enough(const struct search *x)
{
    return x->best_s <= x->bound * (1 + CLOSE);
}

static void finish(struct repair *r, const struct pst_placement_times *t)
{
    struct search *x = r->x;
    if (slower(t) >= x->best_s)
        return;
    x->best_s = slower(t);
    for (int64_t i = 0; i < r->n; i++)
        x->now[r->list[i].chunk] = r->choice[i];
    memcpy(x->best, x->now, (size_t)x->c->n);
}

/* Depth first over the movable chunks, each tier by regret. lower: the weighted bound with the choices so
 * far, which no completion goes below. ssd, cpu: traffic so far, of the chunks that do not move as well. */
static void try_from(struct repair *r, int64_t at, double lower, double ssd, double cpu)
{
    struct search *x = r->x;
    if (r->steps++ >= STEPS_MAX || good_enough(x))
        return;
    const struct pst_placement_times t = times_for(x->m, ssd, cpu);
    if (slower(&t) >= x->best_s) /* traffic only grows */
        return;
    if (at == r->n) {
        finish(r, &t);
        return;
    }
    const struct movable *m = &r->list[at];
    for (int k = 0; k < PST_PLACEMENT_TIERS; k++) {
        const uint8_t to = m->by_regret[k];
        if (lower + m->regret[to] >= x->best_s)
            return;
        if (to != PST_PLACEMENT_HOME && r->room[to] == 0)
            continue;
        r->room[to]--;
        r->choice[at] = to;
        try_from(r, at + 1, lower + m->regret[to], ssd + m->ssd[to], cpu + m->cpu[to]);
        r->room[to]++;
    }
}

/* The bound with prices and no choice made, and the chunks by what their second best tier adds to it. */
static double collect(struct repair *r, double w)
{
    const struct search *x = r->x;
    const struct pst_placement_chunks *c = x->c;
    const struct pst_placement_times left = times_for(x->m, c->left_ssd, c->left_cpu);
    double lower = weighted(&left, w);
    for (int t = PST_PLACEMENT_CPU; t < PST_PLACEMENT_TIERS; t++) {
        r->room[t] = c->room[t];
        lower -= (double)c->room[t] * r->prices.of[t];
    }
    for (int64_t i = 0; i < c->n; i++) {
        const struct movable m = movable_of(x, &r->prices, w, i);
        lower += seconds(c, x->m, i, m.by_regret[0], w) + r->prices.of[m.by_regret[0]];
        r->list[r->n++] = m;
    }
    qsort(r->list, (size_t)r->n, sizeof *r->list, by_second);
    return lower;
}

/* Chunks whose second best tier costs more than there is between bound and best stay where they are. If too
 * many are left, those that cost most stay as well. */
static void repair_movable(struct repair *r, double lower)
{
    const struct search *x = r->x;
    int64_t fixed = pst_max_i64(0, r->n - MOVABLE_MAX);
    while (fixed < r->n && lower + r->list[fixed].second >= x->best_s)
        fixed++;
    double ssd = x->c->left_ssd, cpu = x->c->left_cpu;
    for (int64_t i = 0; i < fixed; i++) {
        const struct movable *m = &r->list[i];
        const uint8_t to = x->now[m->chunk];
        ssd += m->ssd[to];
        cpu += m->cpu[to];
        r->room[to]--;
    }
    r->list += fixed;
    r->n -= fixed;
    try_from(r, 0, lower, ssd, cpu);
    r->list -= fixed;
}

static pst_rc repair(struct search *x, double w)
{
    struct repair r = {.x = x, .prices = find_prices(x)};
    r.list = malloc(((size_t)x->c->n + 1) * sizeof *r.list);
    r.choice = malloc((size_t)x->c->n + 1);
    pst_rc rc = PST_OK;
    if (r.list == NULL || r.choice == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot place %lld chunks", (long long)x->c->n);
    if (rc == PST_OK) {
        const double lower = collect(&r, w);
        repair_movable(&r, lower);
    }
    free(r.list);
    free(r.choice);
    return rc;
}

pst_rc pst_placement_least_time(const struct pst_placement_chunks *c,
                                const struct pst_placement_machine *machine, struct pst_placement_scratch *s,
                                uint8_t *tier, double *bound)
{
    const struct pst_placement_times given = pst_placement_times_of(c, machine, tier);
    struct search x = {.c = c, .m = machine, .s = s, .best = tier, .best_s = slower(&given)};
    x.now = malloc((size_t)c->n + 1);
    if (x.now == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot place %lld chunks", (long long)c->n);
    const double w = sweep(&x);
    (void)least_weighted(&x, w, false);
    const pst_rc rc = good_enough(&x) ? PST_OK : repair(&x, w);
    *bound = x.bound;
    free(x.now);
    return rc;
}
