/* policy.c: the policies, and what their placements cost. */
#include "stages/lib/placement/placement_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static const char *const names[PST_PLACEMENT_POLICIES] = {"paper", "gtct",   "gtcf", "gfct",
                                                          "gfcf",  "hybrid", "joint"};

const char *pst_placement_policy_name(enum pst_placement_policy policy)
{
    return names[policy];
}

int pst_placement_policy_of(const char *name)
{
    for (int i = 0; i < PST_PLACEMENT_POLICIES; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    return -1;
}

/* ---- all chunks in one row ------------------------------------------------------------------------- */

static pst_rc chunks_init(struct pst_placement_chunks *c, const struct pst_placement *p)
{
    const struct pst_placement_queue *lists = &p->queue[PST_PLACEMENT_LISTS];
    const double scale = 1 / (double)p->batches;
    *c = (struct pst_placement_chunks){
        .lists = lists->chunks,
        .n = lists->chunks + p->queue[PST_PLACEMENT_ROWS].chunks,
        .room = p->room,
        .lists_in_memory = p->lists_in_memory,
        .left_ssd = p->lists_in_memory ? 0 : lists->left_home * scale,
        .left_cpu = p->lists_in_memory ? lists->left_cpu * scale : 0,
    };
    c->ssd = malloc(((size_t)c->n + 1) * sizeof *c->ssd);
    c->cpu = malloc(((size_t)c->n + 1) * sizeof *c->cpu);
    if (c->ssd == NULL || c->cpu == NULL) {
        free(c->ssd);
        free(c->cpu);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot place %lld chunks", (long long)c->n);
    }
    for (int64_t i = 0; i < c->n; i++) {
        const struct pst_placement_queue *q = i < c->lists ? lists : &p->queue[PST_PLACEMENT_ROWS];
        const int64_t at = i < c->lists ? i : i - c->lists;
        c->ssd[i] = pst_placement_cpu_may(c, i) ? q->home[at] * scale : 0;
        c->cpu[i] = q->cpu[at] * scale;
    }
    return PST_OK;
}

static void chunks_release(struct pst_placement_chunks *c)
{
    free(c->ssd);
    free(c->cpu);
}

/* ---- policies that fill one cache, then the other --------------------------------------------------------
 */

/* Puts at most `room` chunks of first to end - 1, in the queue's order, into this tier. Returns the rest of
 * room. */
static int64_t take(const struct pst_placement_chunks *c, bool lists, enum pst_placement_tier to,
                    int64_t room, uint8_t *tier)
{
    const int64_t end = lists ? c->lists : c->n;
    for (int64_t i = lists ? 0 : c->lists; i < end && room > 0; i++) {
        if (tier[i] == PST_PLACEMENT_HOME && (to == PST_PLACEMENT_GPU || pst_placement_cpu_may(c, i))) {
            tier[i] = (uint8_t)to;
            room--;
        }
    }
    return room;
}

/* G first, then C; in each, one kind first and the other kind in what is left. */
static void fill_in_turn(const struct pst_placement_chunks *c, enum pst_placement_policy policy,
                         uint8_t *tier)
{
    const bool gpu_lists = policy == PST_PLACEMENT_GTCT || policy == PST_PLACEMENT_GTCF;
    const bool cpu_lists = policy == PST_PLACEMENT_GTCT || policy == PST_PLACEMENT_GFCT;
    const bool first[PST_PLACEMENT_TIERS] = {
        [PST_PLACEMENT_GPU] = gpu_lists, [PST_PLACEMENT_CPU] = cpu_lists};
    for (int to = PST_PLACEMENT_GPU; to >= PST_PLACEMENT_CPU; to--) {
        const int64_t rest = take(c, first[to], (enum pst_placement_tier)to, c->room[to], tier);
        (void)take(c, !first[to], (enum pst_placement_tier)to, rest, tier);
    }
}

static void fill_shares(const struct pst_placement_chunks *c, const double *lists_share, uint8_t *tier)
{
    for (int to = PST_PLACEMENT_GPU; to >= PST_PLACEMENT_CPU; to--) {
        const int64_t lists = (int64_t)((double)c->room[to] * lists_share[to] + 0.5);
        int64_t rest = c->room[to] - lists + take(c, true, (enum pst_placement_tier)to, lists, tier);
        rest = take(c, false, (enum pst_placement_tier)to, rest, tier);
        (void)take(c, true, (enum pst_placement_tier)to, rest, tier);
    }
}

/* The chunks that are worth most to the GPU; of the others, those that are worth most to the CPU. With equal
 * chunks this is what the paper's dynamic programmes compute. A chunk is worth its transactions from CPU
 * memory to the GPU's cache, and those from the SSD to the CPU's. */
static void fill_as_paper(const struct pst_placement_chunks *c, struct pst_placement_scratch *s,
                          uint8_t *tier)
{
    for (int64_t i = 0; i < c->n; i++) {
        s->gpu[i] = c->cpu[i];
        s->cpu[i] = -1;
    }
    pst_placement_assign(s, c->n, c->room, tier);
    for (int64_t i = 0; i < c->n; i++) {
        s->gpu[i] = tier[i] == PST_PLACEMENT_GPU ? 1 : -1;
        s->cpu[i] = tier[i] != PST_PLACEMENT_GPU && pst_placement_cpu_may(c, i) ? c->ssd[i] : -1;
    }
    pst_placement_assign(s, c->n, c->room, tier);
}

/* ---- both tiers at once -----------------------------------------------------------------------------------
 */

static double transactions_of(const struct pst_placement_chunks *c, const uint8_t *tier)
{
    double sum = c->left_ssd + c->left_cpu;
    for (int64_t i = 0; i < c->n; i++) {
        if (tier[i] == PST_PLACEMENT_HOME)
            sum += c->ssd[i] + pst_placement_home_cpu(c, i);
        else if (tier[i] == PST_PLACEMENT_CPU)
            sum += c->cpu[i];
    }
    return sum;
}

static void least_transactions(const struct pst_placement_chunks *c, struct pst_placement_scratch *s,
                               uint8_t *tier)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double home = c->ssd[i] + pst_placement_home_cpu(c, i);
        s->gpu[i] = home;
        s->cpu[i] = pst_placement_cpu_may(c, i) ? home - c->cpu[i] : -1;
    }
    pst_placement_assign(s, c->n, c->room, tier);
}

static void follow(const struct pst_placement_chunks *c, const struct pst_placement_ask *ask,
                   enum pst_placement_policy policy, struct pst_placement_scratch *s, uint8_t *tier)
{
    memset(tier, PST_PLACEMENT_HOME, (size_t)c->n);
    if (policy == PST_PLACEMENT_PAPER_DP)
        fill_as_paper(c, s, tier);
    else if (policy == PST_PLACEMENT_HYBRID)
        fill_shares(c, ask->lists_share, tier);
    else if (policy == PST_PLACEMENT_JOINT)
        least_transactions(c, s, tier);
    else
        fill_in_turn(c, policy, tier);
}

static double slowest(const struct pst_placement_times *t, const struct pst_placement_machine *m)
{
    return fmax(fmax(t->ssd_s, t->pcie_s), m->train_s);
}

/* Begins with the best placement of all policies, so it is never worse than one of them. */
static pst_rc least_time(const struct pst_placement_chunks *c, const struct pst_placement_ask *ask,
                         struct pst_placement_scratch *s, uint8_t *tier, double *bound)
{
    uint8_t *other = malloc((size_t)c->n + 1);
    if (other == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot place %lld chunks", (long long)c->n);
    double best = INFINITY;
    for (int policy = 0; policy < PST_PLACEMENT_POLICIES; policy++) {
        follow(c, ask, (enum pst_placement_policy)policy, s, other);
        const struct pst_placement_times times = pst_placement_times_of(c, ask->machine, other);
        const double slower = fmax(times.ssd_s, times.pcie_s);
        if (slower < best) {
            best = slower;
            memcpy(tier, other, (size_t)c->n);
        }
    }
    free(other);
    const pst_rc rc = pst_placement_least_time(c, ask->machine, s, tier, bound);
    *bound = fmax(*bound, ask->machine->train_s);
    return rc;
}

/* ---- a plan
 * -------------------------------------------------------------------------------------------------- */

static pst_rc check(const struct pst_placement_ask *ask)
{
    const struct pst_placement_machine *m = ask->machine;
    if (ask->objective == PST_PLACEMENT_TIME && m == NULL)
        return pst_fail(PST_E_ARG, "the objective \"time\" needs the transaction rates of the SSDs and of "
                                   "PCIe: set both, or choose the objective \"transactions\"");
    if (m != NULL && !(m->ssd_per_s > 0 && m->pcie_per_s > 0 && m->lookup_s >= 0 && m->train_s >= 0))
        return pst_fail(
            PST_E_ARG,
            "the machine has %g transactions/s from its SSDs and %g through PCIe, %g s for lookup and "
            "%g s for training; expected rates above 0, and times from 0",
            m->ssd_per_s, m->pcie_per_s, m->lookup_s, m->train_s);
    for (int to = PST_PLACEMENT_CPU; to < PST_PLACEMENT_TIERS; to++) {
        if (!(ask->lists_share[to] >= 0 && ask->lists_share[to] <= 1))
            return pst_fail(PST_E_ARG,
                            "the share of the %s cache for lists of neighbours is %g; expected 0 to 1",
                            to == PST_PLACEMENT_CPU ? "CPU" : "GPU", ask->lists_share[to]);
    }
    return PST_OK;
}

void pst_placement_count(const struct pst_placement *p, const struct pst_placement_machine *machine,
                         struct pst_placement_plan *plan)
{
    const double scale = 1 / (double)p->batches;
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        const struct pst_placement_queue *q = &p->queue[kind];
        const bool in_memory = kind == PST_PLACEMENT_LISTS && p->lists_in_memory;
        double sums[PST_PLACEMENT_TIERS] = {in_memory ? q->left_cpu : q->left_home};
        double reads[PST_PLACEMENT_TIERS] = {q->left_heat};
        for (int64_t i = 0; i < q->chunks; i++) {
            const uint8_t tier = plan->tier[kind][i];
            sums[tier] += tier == PST_PLACEMENT_HOME && !in_memory ? q->home[i] : q->cpu[i];
            reads[tier] += q->heat[i];
        }
        plan->ssd[kind] = in_memory ? 0 : sums[PST_PLACEMENT_HOME] * scale;
        plan->cpu[kind] = (sums[PST_PLACEMENT_CPU] + (in_memory ? sums[PST_PLACEMENT_HOME] : 0)) * scale;
        for (int to = 0; to < PST_PLACEMENT_TIERS; to++)
            plan->reads[kind][to] = reads[to] * scale;
    }
    if (machine == NULL)
        return;
    const double ssd = plan->ssd[0] + plan->ssd[1], cpu = plan->cpu[0] + plan->cpu[1];
    plan->ssd_s = ssd / machine->ssd_per_s + machine->lookup_s;
    plan->pcie_s = (ssd + cpu) / machine->pcie_per_s;
    plan->batch_s = fmax(fmax(plan->ssd_s, plan->pcie_s), machine->train_s);
}

static pst_rc keep_tiers(const struct pst_placement_chunks *c, const uint8_t *tier,
                         struct pst_placement_plan *plan)
{
    assert(c->lists >= 0 && c->n >= c->lists);
    plan->tier[PST_PLACEMENT_LISTS] = malloc((size_t)c->lists + 1);
    plan->tier[PST_PLACEMENT_ROWS] = malloc((size_t)(c->n - c->lists) + 1);
    if (plan->tier[PST_PLACEMENT_LISTS] == NULL || plan->tier[PST_PLACEMENT_ROWS] == NULL) {
        pst_placement_plan_release(plan);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot keep the places of %lld chunks", (long long)c->n);
    }
    memcpy(plan->tier[PST_PLACEMENT_LISTS], tier, (size_t)c->lists);
    memcpy(plan->tier[PST_PLACEMENT_ROWS], tier + c->lists, (size_t)(c->n - c->lists));
    return PST_OK;
}

static pst_rc place(const struct pst_placement_chunks *c, const struct pst_placement_ask *ask,
                    struct pst_placement_scratch *s, uint8_t *tier, struct pst_placement_plan *plan)
{
    const bool time = ask->objective == PST_PLACEMENT_TIME;
    pst_rc rc = PST_OK;
    if (time && ask->policy == PST_PLACEMENT_JOINT)
        rc = least_time(c, ask, s, tier, &plan->bound);
    else
        follow(c, ask, ask->policy, s, tier);
    if (rc != PST_OK)
        return rc;
    if (time) {
        const struct pst_placement_times times = pst_placement_times_of(c, ask->machine, tier);
        plan->value = slowest(&times, ask->machine);
    } else {
        plan->value = transactions_of(c, tier);
        plan->bound = ask->policy == PST_PLACEMENT_JOINT ? plan->value : 0;
    }
    return keep_tiers(c, tier, plan);
}

pst_rc pst_placement_solve(const struct pst_placement *p, const struct pst_placement_ask *ask,
                           struct pst_placement_plan *plan)
{
    *plan = (struct pst_placement_plan){0};
    struct pst_placement_chunks c = {0};
    struct pst_placement_scratch s = {0};
    uint8_t *tier = NULL;
    pst_rc rc = check(ask);
    if (rc == PST_OK)
        rc = chunks_init(&c, p);
    if (rc != PST_OK)
        return rc;
    rc = pst_placement_scratch_init(&s, c.n);
    tier = malloc((size_t)c.n + 1);
    if (rc == PST_OK && tier == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot place %lld chunks", (long long)c.n);
    if (rc == PST_OK)
        rc = place(&c, ask, &s, tier, plan);
    if (rc == PST_OK)
        pst_placement_count(p, ask->machine, plan);
    free(tier);
    pst_placement_scratch_release(&s);
    chunks_release(&c);
    return rc;
}

void pst_placement_plan_release(struct pst_placement_plan *plan)
{
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        free(plan->tier[kind]);
        plan->tier[kind] = NULL;
    }
}

pst_rc pst_placement_ids(const struct pst_placement *p, const struct pst_placement_plan *plan,
                         enum pst_placement_kind kind, enum pst_placement_tier tier, int64_t **ids,
                         int64_t *n)
{
    const struct pst_placement_queue *q = &p->queue[kind];
    *n = 0;
    for (int64_t i = 0; i < q->chunks; i++)
        *n += plan->tier[kind][i] == tier ? q->cut[i + 1] - q->cut[i] : 0;
    *ids = malloc((size_t)*n * sizeof **ids + 1);
    if (*ids == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot list %lld vertices", (long long)*n);
    int64_t at = 0;
    for (int64_t i = 0; i < q->chunks; i++) {
        for (int64_t k = q->cut[i]; plan->tier[kind][i] == tier && k < q->cut[i + 1]; k++)
            (*ids)[at++] = q->order[k];
    }
    return PST_OK;
}
