/* legion.c: from a machine's links to a placement, in the steps of the paper's sections 4.1 to 4.3. */
#include "stages/lib/legion/legion.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/stage.h"
#include "stages/lib/clique/cslp.h"

/* The number of an epoch that no run has. */
#define REHEARSAL ((int64_t)UINT32_MAX)

/* What a policy does. */
static const struct traits {
    bool peers; /* devices of a clique share their caches */
    bool local; /* each device has its own training vertices */
    bool parts; /* these are of parts of the graph; otherwise they are dealt out by hash */
    bool lists; /* lists and rows compete for the cache */
} traits[PST_LEGION_POLICIES] = {
    [PST_LEGION_LEGION] = {.peers = true, .local = true, .parts = true, .lists = true},
    [PST_LEGION_GNNLAB] = {.peers = false},
    [PST_LEGION_QUIVER] = {.peers = true},
    [PST_LEGION_PAGRAPH_PLUS] = {.local = true, .parts = true},
    [PST_LEGION_PAGRAPH] = {.local = true},
    [PST_LEGION_TOPOCPU] = {.peers = true, .local = true, .parts = true},
    [PST_LEGION_TOPOGPU] = {.peers = true, .local = true, .parts = true},
};

static const struct traits *traits_of(const struct pst_legion *l)
{
    return &traits[l->config.policy];
}

static bool is_local(const struct pst_legion *l)
{
    return l->config.seeds == PST_LEGION_SEEDS_OF_POLICY ? traits_of(l)->local
                                                         : l->config.seeds == PST_LEGION_SEEDS_LOCAL;
}

static uint64_t all_devices(const struct pst_legion *l)
{
    return l->config.devices == 64 ? ~UINT64_C(0) : (UINT64_C(1) << l->config.devices) - 1;
}

/* ---- groups, parts and shares (4.1) --------------------------------------------------------------- */

static void find_groups(struct pst_legion *l)
{
    struct pst_legion_placement *p = &l->placement;
    uint64_t links[PST_CLIQUES_MAX];
    for (int d = 0; d < l->config.devices; d++)
        links[d] = traits_of(l)->peers ? l->config.links[d] & all_devices(l) : 0;
    p->devices = l->config.devices;
    p->vertices = l->config.graph->vertices;
    p->groups = pst_cliques_find(links, l->config.devices, p->members);
    for (int g = 0; g < p->groups; g++)
        for (uint64_t left = p->members[g]; left != 0; left &= left - 1)
            p->group_of[__builtin_ctzll(left)] = g;
}

/* part[v] = the group whose devices train on v. */
static pst_rc partition(struct pst_legion *l, int8_t *part)
{
    const struct pst_legion_config *c = &l->config;
    struct pst_legion_partition p = {.graph = c->graph,
                                     .train = c->train,
                                     .ntrain = c->ntrain,
                                     .parts = l->placement.groups,
                                     .seed = c->seed,
                                     .entries_max = c->entries_max};
    for (int g = 0; g < p.parts; g++)
        p.weight[g] = __builtin_popcountll(l->placement.members[g]);
    const double begin = pst_now();
    const pst_rc rc = pst_legion_partition(&p, part);
    l->partition_s = pst_now() - begin;
    l->sampled = p.sampled;
    l->cut_edges = p.cut_edges;
    return rc;
}

/* owner[v] = the device that trains on v, or -1. */
static void note_owners(const struct pst_legion_shares_config *c, int64_t vertices, int8_t *owner)
{
    memset(owner, -1, (size_t)vertices);
    for (int64_t i = 0; i < c->ntrain; i++)
        owner[c->train[i]] = (int8_t)pst_legion_shares_device(c, c->train[i]);
}

static pst_rc divide(struct pst_legion *l)
{
    const struct traits *t = traits_of(l);
    const bool local = is_local(l), parts = local && t->parts;
    const uint64_t all[1] = {all_devices(l)};
    const int64_t n = l->config.graph->vertices;
    struct pst_legion_shares_config config = {.train = l->config.train,
                                              .ntrain = l->config.ntrain,
                                              .devices = l->config.devices,
                                              .devices_of_part = parts ? l->placement.members : all,
                                              .batch = l->config.batch,
                                              .batches = l->config.batches,
                                              .grains = l->config.grains,
                                              .in_order = l->config.in_order,
                                              .seed = l->config.seed};
    int8_t *part = local ? calloc((size_t)n + 1, 1) : NULL;
    l->owner = local ? malloc((size_t)n + 1) : NULL;
    pst_rc rc = (part != NULL && l->owner != NULL) || !local
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot partition the graph");
    l->sampled = 1;
    if (rc == PST_OK && parts)
        rc = partition(l, part);
    config.part = part;
    if (rc == PST_OK)
        rc = pst_legion_shares_init(&l->shares, &config);
    if (rc == PST_OK && local)
        note_owners(&config, n, l->owner);
    free(part);
    return rc;
}

/* ---- one group's caches (4.2) ---------------------------------------------------------------------- */

/* Scratch of all groups. */
struct ranking {
    uint64_t *sum;
    int64_t *order;
    uint32_t *score; /* of pagraph */
};

static struct pst_cslp cslp_of(const struct pst_legion *l, uint64_t devices, const uint32_t *counts)
{
    struct pst_cslp c = {.devices = 0, .as_printed = l->config.cslp_as_printed};
    for (uint64_t left = devices; left != 0; left &= left - 1)
        c.hotness[c.devices++] = counts + __builtin_ctzll(left) * l->placement.vertices;
    return c;
}

/* at[v]: from the device's place in the group to its number. */
static void number(const struct pst_legion *l, uint64_t members, int8_t *at)
{
    int8_t device[PST_CLIQUES_MAX];
    int n = 0;
    for (uint64_t left = members; left != 0; left &= left - 1)
        device[n++] = (int8_t)__builtin_ctzll(left);
    for (int64_t v = 0; v < l->placement.vertices; v++)
        if (at[v] >= 0)
            at[v] = device[at[v]];
}

/* quiver: v goes to device v mod K_g, until each of them is full. */
static void stripe(const struct pst_cslp *c, const int64_t *order, int64_t n, int64_t rows, int8_t *at)
{
    int64_t held[PST_CLIQUES_MAX] = {0};
    assert(c->devices >= 1);
    for (int64_t i = 0; i < n; i++) {
        const int64_t d = order[i] % c->devices;
        if (held[d] < rows) {
            at[order[i]] = (int8_t)d;
            held[d]++;
        }
    }
}

static uint64_t one_row(const void *of, int64_t v)
{
    (void)of;
    (void)v;
    return 1;
}

/* pagraph: score[v] = in how many lists v is, of those that batches of the device can read: the lists of its
 * training vertices, of their neighbours, and so on, one step less than there are hops. */
static pst_rc score_neighbourhood(const struct pst_legion *l, int device, uint32_t *score)
{
    const struct pst_csc *g = l->config.graph;
    int8_t *depth = malloc((size_t)g->vertices + 1);
    if (depth == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot search the neighbourhoods of training vertices");
    memset(depth, INT8_MAX, (size_t)g->vertices);
    memset(score, 0, (size_t)g->vertices * sizeof *score);
    for (int64_t i = l->shares.begin[device]; i < l->shares.begin[device + 1]; i++)
        depth[l->shares.ids[i]] = 0;
    for (int8_t hop = 0; hop < l->config.hops; hop++)
        for (int64_t v = 0; v < g->vertices; v++)
            for (int64_t e = g->indptr[v]; depth[v] == hop && e < g->indptr[v + 1]; e++) {
                const int64_t u =
                    g->index_bytes == 4 ? ((const int32_t *)g->indices)[e] : ((const int64_t *)g->indices)[e];
                score[u]++;
                if (depth[u] > hop + 1)
                    depth[u] = (int8_t)(hop + 1);
            }
    free(depth);
    return PST_OK;
}

static pst_rc place_rows(struct pst_legion *l, int group, const struct ranking *r)
{
    const struct pst_legion_config *c = &l->config;
    const uint64_t members = l->placement.members[group],
                   lists = c->cache_bytes * (uint64_t)l->alpha[group] / 100;
    const int64_t n = l->placement.vertices;
    int8_t *at = l->placement.rows + group * n;
    struct pst_cslp hottest = cslp_of(l, traits_of(l)->local ? members : all_devices(l), l->ahead.rows);
    struct pst_cslp own = cslp_of(l, members, l->ahead.rows);
    if (c->policy == PST_LEGION_PAGRAPH) {
        const pst_rc rc = score_neighbourhood(l, __builtin_ctzll(members), r->score);
        if (rc != PST_OK)
            return rc;
        hottest.hotness[0] = own.hotness[0] = r->score;
    }
    const pst_rc rc = pst_cslp_order(&hottest, n, r->sum, r->order);
    if (rc != PST_OK)
        return rc;
    own.bytes = one_row;
    for (int d = 0; d < own.devices; d++)
        own.room[d] = (c->cache_bytes - lists) / c->row_bytes;
    if (c->policy == PST_LEGION_QUIVER)
        stripe(&own, r->order, n, (int64_t)own.room[0], at);
    else
        pst_cslp_assign(&own, r->order, n, at);
    number(l, members, at);
    return PST_OK;
}

static pst_rc place_lists(struct pst_legion *l, int group, const struct ranking *r)
{
    const uint64_t members = l->placement.members[group];
    const uint64_t room = l->config.cache_bytes * (uint64_t)l->alpha[group] / 100;
    const int64_t n = l->placement.vertices;
    int8_t *at = l->placement.lists + group * n;
    struct pst_cslp c = cslp_of(l, members, l->ahead.edges);
    const pst_rc rc = pst_cslp_order(&c, n, r->sum, r->order);
    if (rc != PST_OK || room == 0)
        return rc;
    uint64_t left = room * (uint64_t)c.devices;
    int64_t prefix = 0;
    for (; prefix < n && pst_legion_list_bytes(l->config.graph, r->order[prefix]) <= left; prefix++)
        left -= pst_legion_list_bytes(l->config.graph, r->order[prefix]);
    c.bytes = pst_legion_list_bytes;
    c.of = l->config.graph;
    for (int d = 0; d < c.devices; d++)
        c.room[d] = room;
    pst_cslp_assign(&c, r->order, prefix, at);
    number(l, members, at);
    return PST_OK;
}

/* ---- the share of lists (4.3) --------------------------------------------------------------------- */

static pst_rc predict(struct pst_legion *l, const struct pst_legion_counts *rehearsal)
{
    pst_rc rc = PST_OK;
    for (int g = 0; g < l->placement.groups && rc == PST_OK; g++) {
        const uint64_t members = l->placement.members[g];
        l->cost[g] =
            (struct pst_legion_cost){.graph = l->config.graph,
                                     .line_bytes = l->config.line_bytes,
                                     .devices = members,
                                     .bytes = l->config.cache_bytes * (uint64_t)__builtin_popcountll(members),
                                     .row_bytes = l->config.row_bytes,
                                     .epochs = l->config.epochs,
                                     .counts = &l->ahead,
                                     .rehearsal = rehearsal};
        rc = pst_legion_cost_predict(&l->cost[g]);
        l->alpha[g] = l->cost[g].best;
    }
    return rc;
}

static pst_rc search_alpha(struct pst_legion *l)
{
    struct pst_legion_counts rehearsal;
    l->cost = calloc((size_t)l->placement.groups, sizeof *l->cost);
    if (l->cost == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot predict the transactions of %d cliques",
                        l->placement.groups);
    pst_rc rc = pst_legion_counts_init(&rehearsal, &l->source, REHEARSAL, 1);
    if (rc != PST_OK)
        return rc;
    rc = predict(l, &rehearsal);
    pst_legion_counts_release(&rehearsal);
    return rc;
}

/* topogpu: all lists on each device; rows get the rest. */
static pst_rc keep_all_lists(struct pst_legion *l)
{
    const struct pst_csc *g = l->config.graph;
    const uint64_t bytes =
        (uint64_t)g->edges * (uint64_t)g->index_bytes + (uint64_t)g->vertices * sizeof *g->indptr;
    if (bytes > l->config.cache_bytes)
        return pst_fail(PST_E_ARG,
                        "topogpu: all lists of neighbours take %llu bytes, but the cache of a device has "
                        "%llu; use a larger cache or another policy",
                        (unsigned long long)bytes, (unsigned long long)l->config.cache_bytes);
    l->config.cache_bytes -= bytes;
    l->placement.lists_everywhere = true;
    return PST_OK;
}

static pst_rc choose_alpha(struct pst_legion *l)
{
    if (l->config.policy == PST_LEGION_TOPOGPU)
        return keep_all_lists(l);
    if (!traits_of(l)->lists)
        return PST_OK;
    if (l->config.alpha == PST_LEGION_SEARCH)
        return search_alpha(l);
    for (int g = 0; g < l->placement.groups; g++)
        l->alpha[g] = l->config.alpha;
    return PST_OK;
}

/* ---- all ------------------------------------------------------------------------------------------ */

static pst_rc place(struct pst_legion *l)
{
    struct pst_legion_placement *p = &l->placement;
    const size_t n = (size_t)p->vertices, entries = n * (size_t)p->groups;
    struct ranking r = {.sum = malloc(n * sizeof *r.sum + 1),
                        .order = malloc(n * sizeof *r.order + 1),
                        .score = malloc(n * sizeof *r.score + 1)};
    p->rows = malloc(entries + 1);
    p->lists = malloc(entries + 1);
    pst_rc rc = r.sum != NULL && r.order != NULL && r.score != NULL && p->rows != NULL && p->lists != NULL
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot place the rows of %lld vertices",
                               (long long)p->vertices);
    if (rc == PST_OK) {
        memset(p->rows, PST_CSLP_NOWHERE, entries);
        memset(p->lists, PST_CSLP_NOWHERE, entries);
    }
    for (int g = 0; g < p->groups && rc == PST_OK; g++) {
        rc = place_rows(l, g, &r);
        if (rc == PST_OK)
            rc = place_lists(l, g, &r);
    }
    free(r.sum);
    free(r.order);
    free(r.score);
    return rc;
}

pst_rc pst_legion_init(struct pst_legion *l, const struct pst_legion_config *config)
{
    *l = (struct pst_legion){.config = *config};
    assert(config->devices >= 1 && config->devices <= PST_CLIQUES_MAX && config->epochs >= 1 &&
           config->row_bytes > 0);
    find_groups(l);
    pst_rc rc =
        config->policy == PST_LEGION_PAGRAPH && !is_local(l)
            ? pst_fail(PST_E_ARG, "pagraph ranks rows by the neighbourhoods of each device's own training "
                                  "vertices, but no device has its own: use the shuffle \"local\"")
            : pst_legion_check(config->graph);
    if (rc == PST_OK)
        rc = divide(l);
    l->source = (struct pst_legion_source){.graph = config->graph,
                                           .algorithm = config->algorithm,
                                           .hops = config->hops,
                                           .fanout = config->fanout,
                                           .shares = &l->shares,
                                           .seed = config->seed,
                                           .line_bytes = config->line_bytes};
    if (rc == PST_OK)
        rc = pst_legion_counts_init(&l->ahead, &l->source, 0, config->epochs);
    if (rc == PST_OK)
        rc = choose_alpha(l);
    if (rc == PST_OK)
        rc = place(l);
    if (rc != PST_OK)
        pst_legion_release(l);
    return rc;
}

void pst_legion_release(struct pst_legion *l)
{
    for (int g = 0; g < l->placement.groups && l->cost != NULL; g++)
        pst_legion_cost_release(&l->cost[g]);
    free(l->cost);
    free(l->placement.rows);
    free(l->placement.lists);
    free(l->owner);
    pst_legion_counts_release(&l->ahead);
    pst_legion_shares_release(&l->shares);
    *l = (struct pst_legion){.cost = NULL};
}

pst_rc pst_legion_count(struct pst_legion *l, int64_t epoch, struct pst_legion_counts *counts)
{
    return pst_legion_counts_init(counts, &l->source, epoch, 1);
}
