/* shared_caches.c: plans the caches that replicas of the sampler have for one another. */
#include "stages/planner/shared_caches.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/machine/machine.h"
#include "stages/lib/clique/cslp.h"

/* ---- size: who gets the plan ---------------------------------------------------------------------- */

static pst_rc read_machine(const struct pst_planner_shared *s, struct pst_machine *m)
{
    struct pst_diag diag = {.count = 0};
    const bool good = pst_machine_load(m, s->machine, &diag);
    const pst_rc rc =
        good ? PST_OK
             : pst_fail(PST_E_ARG, "%s", diag.count > 0 ? diag.line[0] : "the machine file is wrong");
    pst_diag_release(&diag);
    return rc;
}

/* Without a machine file, replicas have all links that CUDA offers, of whatever speed. */
static pst_rc find_link(struct pst_planner_shared *s, const struct pst_stage *self, int port,
                        const struct pst_machine *m, int r, int other)
{
    const char *place = pst_receiver_device(self, port, r), *to = pst_receiver_device(self, port, other);
    const bool reaches =
        pst_receiver_reaches(self, port, r, other) && pst_receiver_reaches(self, port, other, r);
    if (m != NULL && !(m->device[pst_machine_device(m, place)].links >> pst_machine_device(m, to) & 1))
        return PST_OK;
    if (m != NULL && !reaches)
        return pst_fail(PST_E_ARG,
                        "%s links the devices of %s and %s, but CUDA says that %s cannot read the memory of "
                        "%s: remove the link, or the parameter machine",
                        s->machine, place, to, place, to);
    s->links[r] |= reaches ? UINT64_C(1) << other : 0;
    return PST_OK;
}

static pst_rc find_links(struct pst_planner_shared *s, const struct pst_stage *self, int port)
{
    struct pst_machine m;
    const bool given = s->machine[0] != '\0';
    pst_rc rc = given ? read_machine(s, &m) : PST_OK;
    for (int r = 0; r < s->replicas && given && rc == PST_OK; r++) {
        const char *place = pst_receiver_device(self, port, r);
        const bool gpu = strncmp(place, "cuda:", 5) == 0;
        if (pst_machine_device(&m, place) < 0)
            rc =
                pst_fail(PST_E_ARG,
                         "a replica is on %s, but %s has only the devices %s to %s:%d: change "
                         "replicas.places, or the parameter machine",
                         place, s->machine, gpu ? "cuda:0" : "cpu:1", gpu ? "cuda" : "cpu", m.ndevices - gpu);
    }
    for (int r = 0; r < s->replicas && rc == PST_OK; r++)
        for (int other = 0; other < s->replicas && rc == PST_OK; other++)
            if (other != r)
                rc = find_link(s, self, port, given ? &m : NULL, r, other);
    return rc;
}

/* On a GPU the sampler itself finds the lists (clique_device.h), so it needs to know the algorithm. */
static bool needs_uniform(const struct pst_planner_shared *s, const struct pst_stage *self, int port,
                          const struct pst_sampling_input *in)
{
    return s->replicas > 0 && strncmp(pst_receiver_device(self, port, 0), "cuda:", 5) == 0 &&
           strcmp(in->key.algorithm, "uniform") != 0;
}

/* Everything that two plans must have in common besides the settings of all plans. */
static void name_policy(const struct pst_planner_shared *s, struct pst_plan *plan)
{
    uint64_t links = 0;
    for (int r = 0; r < s->replicas; r++)
        links = links * 31 + s->links[r];
    (void)snprintf(plan->key.policy, sizeof plan->key.policy,
                   "%s of %d, %s, %lld grains, %llx, %.2f, %u, %lld%s", pst_legion_policy_name(s->policy),
                   s->replicas,
                   s->local      ? "local"
                   : s->in_order ? "none"
                                 : "global",
                   (long long)s->grains, (unsigned long long)links, s->alpha, s->line_bytes,
                   (long long)s->partition_entries, s->cslp_as_printed ? ", printed" : "");
}

pst_rc pst_planner_shared_size(struct pst_planner_shared *s, struct pst_stage *self, int port,
                               const struct pst_sampling_input *in, enum pst_topology_from topology,
                               struct pst_plan *plan)
{
    const char *policy = pst_legion_policy_name(s->policy),
               *shuffle = pst_receiver_text(self, port, "shuffle", "global");
    s->replicas = pst_receivers(self, port);
    s->grains = pst_receiver_int(self, port, "grains", 1);
    s->local = strcmp(shuffle, "local") == 0;
    s->in_order = strcmp(shuffle, "none") == 0;
    const char *what = s->replicas == 0                        ? "a plan that no sampler gets"
                       : topology == PST_TOPOLOGY_SSD          ? "topology ssd"
                       : in->ds.feature_dim == 0               ? "a dataset without features"
                       : in->fanout_by_relation != NULL        ? "fanouts of edge types"
                       : in->algorithm.algorithm->pick == NULL ? "this sampling algorithm (use uniform)"
                       : needs_uniform(s, self, port, in) ? "a sampling algorithm other than uniform on GPUs"
                                                          : NULL;
    if (what != NULL)
        return pst_fail(PST_E_UNSUPPORTED,
                        "the policy %s cannot be used together with %s: change one of them", policy, what);
    if (s->grains % s->replicas != 0)
        return pst_fail(PST_E_ARG,
                        "the sampler has %d replicas and grains of %lld; expected a multiple of the replicas",
                        s->replicas, (long long)s->grains);
    const pst_rc rc = find_links(s, self, port);
    if (rc == PST_OK)
        name_policy(s, plan);
    return rc;
}

/* ---- the plan ------------------------------------------------------------------------------------- */

static pst_rc open_legion(struct pst_planner_shared *s, const struct pst_sampling_input *in,
                          const struct pst_plan *plan)
{
    struct pst_legion_config config = {
        .policy = s->policy,
        .cslp_as_printed = s->cslp_as_printed,
        .graph = &in->graph,
        .algorithm = &in->algorithm,
        .hops = in->key.hops,
        .fanout = in->key.fanout,
        .train = in->seeds.ids,
        .ntrain = in->seeds.n,
        .devices = s->replicas,
        .batch = in->seeds.batch,
        .grains = s->grains,
        .in_order = s->in_order,
        .seeds = s->local ? PST_LEGION_SEEDS_LOCAL : PST_LEGION_SEEDS_GLOBAL,
        .epochs = plan->epochs,
        .seed = plan->seed,
        .cache_bytes = plan->key.gpu_budget_bytes,
        .row_bytes = in->ds.stride_bytes,
        .line_bytes = s->line_bytes,
        .alpha = s->alpha < 0 ? PST_LEGION_SEARCH : (int)(s->alpha * 100 + 0.5),
        .entries_max = s->partition_entries,
    };
    memcpy(config.links, s->links, sizeof config.links);
    return pst_legion_init(&s->legion, &config);
}

/* The vertices that the placement gives to each replica. at: groups x vertices. */
static pst_rc take_ids(const struct pst_legion_placement *p, const int8_t *at, bool everywhere,
                       struct pst_plan_tiers *ids, int64_t *begin)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->groups * p->vertices; i++)
        n += at[i] >= 0;
    n = everywhere ? p->devices * p->vertices : n;
    *ids = (struct pst_plan_tiers){.ids = malloc((size_t)n * sizeof *ids->ids + 1)};
    if (ids->ids == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot plan caches of %lld entries", (long long)n);
    for (int d = 0; d < p->devices; d++) {
        const int8_t *of = at + p->group_of[d] * p->vertices;
        begin[d] = ids->n;
        for (int64_t v = 0; v < p->vertices; v++)
            if (everywhere || of[v] == d)
                ids->ids[ids->n++] = v;
    }
    begin[p->devices] = ids->n;
    return PST_OK;
}

static pst_rc take_placement(struct pst_planner_shared *s, struct pst_plan *plan)
{
    const struct pst_legion_placement *p = &s->legion.placement;
    struct pst_plan_caches *c = &plan->caches;
    c->replicas = p->devices;
    c->line_bytes = s->line_bytes;
    for (int d = 0; d < p->devices; d++)
        c->group[d] = p->group_of[d];
    pst_rc rc = take_ids(p, p->rows, false, &c->rows, c->rows_begin);
    if (rc == PST_OK)
        rc = take_ids(p, p->lists, p->lists_everywhere, &c->lists, c->lists_begin);
    c->owner = s->legion.owner;
    s->legion.owner = NULL;
    return rc;
}

/* How often all replicas read the row of v outside their groups' caches. */
static double misses_of(const struct pst_legion_placement *p, const struct pst_legion_counts *c, int64_t v)
{
    double misses = 0;
    for (int d = 0; d < p->devices; d++)
        if (p->rows[p->group_of[d] * p->vertices + v] < 0)
            misses += c->rows[d * c->vertices + v];
    return misses;
}

/* The CPU tier has the rows that the shared caches miss most. */
static pst_rc place_host(const struct pst_planner_shared *s, struct pst_plan *plan)
{
    const struct pst_legion *l = &s->legion;
    const int64_t room = (int64_t)(plan->key.cache_budget_bytes / l->config.row_bytes);
    float *scores = malloc((size_t)plan->vertices * sizeof *scores);
    if (scores == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot plan the CPU tier of %lld vertices",
                        (long long)plan->vertices);
    for (int64_t v = 0; v < plan->vertices; v++)
        scores[v] = (float)misses_of(&l->placement, &l->ahead, v);
    const pst_rc rc = pst_plan_choose(scores, plan->vertices, room, &plan->rows.ids, &plan->rows.n);
    /* a row that no batch sampled ahead missed needs no room */
    while (rc == PST_OK && plan->rows.n > 0 && scores[plan->rows.ids[plan->rows.n - 1]] <= 0)
        plan->rows.n--;
    free(scores);
    return rc;
}

/* Counts what batches read: the run's own, or those of one more epoch, which chose no cache. */
static pst_rc predict(struct pst_planner_shared *s, bool own_batches, struct pst_plan *plan)
{
    struct pst_legion *l = &s->legion;
    struct pst_legion_counts more = {.devices = 0};
    const pst_rc rc = own_batches ? PST_OK : pst_legion_count(l, l->config.epochs, &more);
    const struct pst_legion_counts *c = own_batches ? &l->ahead : &more;
    if (rc != PST_OK)
        return rc;
    s->epochs = own_batches ? (double)l->config.epochs : 1;
    for (int d = 0; d < l->placement.devices; d++) {
        struct pst_legion_traffic *t = &s->traffic[d];
        pst_legion_traffic_of(&l->placement, c, d, t);
        s->rows += t->rows_host;
        for (int from = 0; from < l->placement.devices; from++) {
            s->rows += t->rows[from];
            s->rows_cached += t->rows[from];
        }
    }
    for (int64_t i = 0; i < plan->rows.n; i++)
        s->rows_cached += (uint64_t)misses_of(&l->placement, c, plan->rows.ids[i]);
    plan->predicted_hit_rate = s->rows > 0 ? (double)s->rows_cached / (double)s->rows : 0;
    pst_legion_counts_release(&more);
    return PST_OK;
}

pst_rc pst_planner_shared_place(struct pst_planner_shared *s, const struct pst_sampling_input *in,
                                bool own_batches, struct pst_plan *plan)
{
    pst_rc rc = open_legion(s, in, plan);
    if (rc == PST_OK)
        rc = take_placement(s, plan);
    if (rc == PST_OK)
        rc = place_host(s, plan);
    return rc == PST_OK ? predict(s, own_batches, plan) : rc;
}

/* ---- report --------------------------------------------------------------------------------------- */

static pst_rc report_replica(const struct pst_planner_shared *s, struct pst_stage *self, int r)
{
    const struct pst_legion_placement *p = &s->legion.placement;
    const struct pst_legion_traffic *t = &s->traffic[r];
    pst_rc rc = pst_report(self, "shared_caches",
                           "{\"predicted_rows_%d_not_shared\": %.1f, \"predicted_lines_%d\": %.1f}", r,
                           (double)t->rows_host / s->epochs, r, (double)t->lines_host / s->epochs);
    for (int from = 0; from < s->replicas && rc == PST_OK; from++)
        if (p->group_of[from] == p->group_of[r])
            rc = pst_report(self, "shared_caches",
                            "{\"predicted_rows_%d_from_%d\": %.1f, \"predicted_edges_%d_from_%d\": %.1f}", r,
                            from, (double)t->rows[from] / s->epochs, r, from,
                            (double)t->edges[from] / s->epochs);
    return rc;
}

pst_rc pst_planner_shared_report(const struct pst_planner_shared *s, struct pst_stage *self,
                                 uint64_t row_bytes)
{
    const struct pst_legion *l = &s->legion;
    const double lines_of_row = ceil((double)row_bytes / s->line_bytes);
    double lines = 0, missed = 0;
    pst_rc rc = PST_OK;
    for (int r = 0; r < s->replicas && rc == PST_OK; r++) {
        lines += (double)s->traffic[r].lines_host;
        missed += (double)s->traffic[r].rows_host;
        rc = report_replica(s, self, r);
    }
    for (int g = 0; g < l->placement.groups && rc == PST_OK; g++)
        rc = pst_report(self, "shared_caches", "{\"alpha_%d\": %.2f}", g, l->alpha[g] / 100.0);
    return rc != PST_OK
               ? rc
               : pst_report(self, "shared_caches",
                            "{\"policy\": \"%s\", \"replicas\": %d, \"cliques\": %d, \"partition_s\": %.3f, "
                            "\"cut_edges\": %lld, \"sampled\": %.4f, \"predicted_transactions\": %.1f}",
                            pst_legion_policy_name(s->policy), s->replicas, l->placement.groups,
                            l->partition_s, (long long)l->cut_edges, l->sampled,
                            (lines + missed * lines_of_row) / s->epochs);
}

void pst_planner_shared_release(struct pst_planner_shared *s)
{
    pst_legion_release(&s->legion);
}
