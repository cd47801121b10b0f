/* policy.c: makes policies, and keeps the lines and the table of vertices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/policy/policy_impl.h"

#define GHOST_SHARE 0.9 /* s3fifo: the ghost queue remembers as many vertices as the main queue holds */

static const struct {
    const char *name;
    const struct pst_policy_ops *ops;
    bool looks_ahead;
} kinds[PST_POLICY_KINDS] = {
    [PST_POLICY_RANDOM] = {"random", &pst_policy_window_ops, false},
    [PST_POLICY_WINDOW] = {"window", &pst_policy_window_ops, true},
    [PST_POLICY_SIEVE] = {"sieve", &pst_policy_sieve_ops, false},
    [PST_POLICY_S3FIFO] = {"s3fifo", &pst_policy_s3fifo_ops, false},
    [PST_POLICY_STATIC] = {"static", &pst_policy_static_ops, false},
    [PST_POLICY_LOOKAHEAD] = {"lookahead", &pst_policy_lookahead_ops, true},
    [PST_POLICY_LRU] = {"lru", &pst_policy_lru_ops, false},
    [PST_POLICY_BELADY] = {"belady", &pst_policy_belady_ops, false},
};

const char *pst_policy_name(enum pst_policy_kind kind)
{
    return kinds[kind].name;
}

bool pst_policy_find(const char *name, enum pst_policy_kind *kind)
{
    for (int k = 0; k < PST_POLICY_KINDS; k++)
        if (strcmp(kinds[k].name, name) == 0) {
            *kind = (enum pst_policy_kind)k;
            return true;
        }
    return false;
}

bool pst_policy_looks_ahead(enum pst_policy_kind kind)
{
    return kinds[kind].looks_ahead;
}

pst_rc pst_policy_hotness(const struct pst_plan *plan, const char *path, bool buffered, float **hotness)
{
    const pst_rc rc = pst_plan_hotness(plan, path, hotness);
    for (int64_t i = 0; rc == PST_OK && buffered && i < plan->rows.n; i++)
        (*hotness)[plan->rows.ids[i]] = 0;
    return rc;
}

/* ---- the table ------------------------------------------------------------------------------------ */

static uint64_t home(const struct pst_policy *p, int64_t vertex)
{
    uint64_t x = (uint64_t)vertex * UINT64_C(0x9E3779B97F4A7C15);
    return (x ^ (x >> 32)) & (p->places - 1);
}

static struct pst_policy_entry *place_of(const struct pst_policy *p, int64_t vertex)
{
    uint64_t at = home(p, vertex);
    while (p->table[at].vertex >= 0 && p->table[at].vertex != vertex)
        at = (at + 1) & (p->places - 1);
    return &p->table[at];
}

struct pst_policy_entry *pst_policy_entry_find(const struct pst_policy *p, int64_t vertex)
{
    struct pst_policy_entry *e = place_of(p, vertex);
    return e->vertex >= 0 ? e : NULL;
}

struct pst_policy_entry *pst_policy_entry_get(struct pst_policy *p, int64_t vertex)
{
    struct pst_policy_entry *e = place_of(p, vertex);
    if (e->vertex < 0)
        *e = (struct pst_policy_entry){.vertex = vertex, .line = -1};
    return e;
}

/* The entries behind the freed place move up, unless that would put them before their home. */
void pst_policy_entry_tidy(struct pst_policy *p, int64_t vertex)
{
    struct pst_policy_entry *e = pst_policy_entry_find(p, vertex);
    if (e == NULL || e->line >= 0 || e->mask != 0)
        return;
    const uint64_t last = p->places - 1;
    uint64_t hole = (uint64_t)(e - p->table), at = hole;
    for (;;) {
        at = (at + 1) & last;
        if (p->table[at].vertex < 0)
            break;
        const uint64_t from = home(p, p->table[at].vertex);
        if (((at - from) & last) >= ((at - hole) & last)) {
            p->table[hole] = p->table[at];
            hole = at;
        }
    }
    p->table[hole].vertex = -1;
}

void pst_policy_take_line(struct pst_policy *p, int32_t line, int64_t vertex)
{
    if (line < p->used) {
        const int64_t former = p->vertex[line];
        p->evictions++;
        pst_policy_entry_find(p, former)->line = -1;
        pst_policy_entry_tidy(p, former);
    } else {
        p->used = line + 1;
    }
    p->vertex[line] = vertex;
    pst_policy_entry_get(p, vertex)->line = line;
}

void pst_policy_look_up(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit)
{
    for (int64_t i = 0; i < b->n; i++) {
        struct pst_policy_entry *e = pst_policy_entry_find(p, b->ids[i]);
        hit[i] = e != NULL ? e->line : -1;
        if (e != NULL)
            e->mask &= ~pst_policy_bit(seq);
    }
}

void pst_policy_note_kept(const struct pst_policy *p, const struct pst_policy_batch *b, const int32_t *hit,
                          int32_t *keep)
{
    for (int64_t i = 0; i < b->n; i++) {
        const struct pst_policy_entry *e = hit[i] < 0 ? pst_policy_entry_find(p, b->ids[i]) : NULL;
        keep[i] = e != NULL ? e->line : -1;
    }
}

/* ---- making --------------------------------------------------------------------------------------- */

static void *take(struct pst_policy *p, int64_t n, size_t size, int fill)
{
    const size_t bytes = (size_t)pst_max_i64(n, 1) * size;
    void *at = malloc(bytes);
    p->bytes += bytes;
    if (at != NULL)
        memset(at, fill, bytes);
    return at;
}

/* The table is at most half full: lines, and what the window has. */
static pst_rc allocate(struct pst_policy *p)
{
    const struct pst_policy_config *c = &p->config;
    const int64_t lines = c->lines, ghosts = c->kind == PST_POLICY_S3FIFO ? p->ghost_max : 0;
    const uint64_t ahead = (uint64_t)(c->super_batch > 0 ? c->super_batch : c->window + 1);
    const uint64_t known = (uint64_t)lines + ahead * (uint64_t)c->batch_max + (uint64_t)ghosts;
    p->places = 16;
    while (p->places < 2 * known)
        p->places *= 2;
    p->table = take(p, (int64_t)p->places, sizeof *p->table, 0xff);
    p->vertex = take(p, lines, sizeof *p->vertex, 0xff);
    bool all = p->table != NULL && p->vertex != NULL;
    switch (c->kind) {
    case PST_POLICY_RANDOM:
    case PST_POLICY_WINDOW:
        p->safe = take(p, lines, sizeof *p->safe, 0xff);
        p->safe_at = take(p, lines, sizeof *p->safe_at, 0xff);
        all = all && p->safe != NULL && p->safe_at != NULL;
        break;
    case PST_POLICY_S3FIFO: p->ghost = take(p, ghosts, sizeof *p->ghost, 0xff); all = all && p->ghost != NULL;
    /* fall through */
    case PST_POLICY_LRU:
    case PST_POLICY_SIEVE:
        p->newer = take(p, lines, sizeof *p->newer, 0xff);
        p->older = take(p, lines, sizeof *p->older, 0xff);
        p->freq = take(p, lines, sizeof *p->freq, 0);
        all = all && p->newer != NULL && p->older != NULL && p->freq != NULL;
        break;
    case PST_POLICY_LOOKAHEAD:
    case PST_POLICY_BELADY:
        p->heap = take(p, lines, sizeof *p->heap, 0xff);
        p->heap_at = take(p, lines, sizeof *p->heap_at, 0xff);
        p->rank = take(p, lines, sizeof *p->rank, 0);
        p->next = take(p, c->super_batch * c->batch_max, sizeof *p->next, 0xff);
        all = all && p->heap != NULL && p->heap_at != NULL && p->rank != NULL && p->next != NULL;
        break;
    case PST_POLICY_STATIC:
    case PST_POLICY_KINDS: break;
    }
    return all ? PST_OK
               : pst_fail(PST_E_NOMEM,
                          "out of memory: the policy %s cannot allocate %llu bytes for %lld lines",
                          pst_policy_name(c->kind), (unsigned long long)p->bytes, (long long)lines);
}

static int ascending(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* STATIC: the hottest rows, in the order of their ids, as pst_cache_rows_load has them. */
static pst_rc fill_lines(struct pst_policy *p)
{
    const struct pst_policy_config *c = &p->config;
    int64_t *hottest = NULL, n = 0;
    pst_rc rc = PST_OK;
    if (c->hotness != NULL) {
        rc = pst_plan_choose(c->hotness, c->vertices, c->lines, &hottest, &n);
        if (n > 0)
            qsort(hottest, (size_t)n, sizeof *hottest, ascending);
        for (int64_t i = 0; i < n && rc == PST_OK; i++)
            pst_policy_take_line(p, (int32_t)i, hottest[i]);
    } else {
        for (int64_t i = 0; i < pst_min_i64(c->lines, c->vertices); i++)
            pst_policy_take_line(p, (int32_t)i, i);
    }
    free(hottest);
    return rc;
}

pst_rc pst_policy_new(struct pst_policy **out, const struct pst_policy_config *config)
{
    assert(config->lines >= 0 && config->lines <= PST_POLICY_LINES_MAX && config->batch_max >= 0);
    assert(config->window >= 0 && config->window <= PST_POLICY_WINDOW_MAX);
    assert(config->super_batch >= 0 && config->super_batch <= PST_POLICY_SUPER_MAX);
    struct pst_policy *p = *out = calloc(1, sizeof *p);
    if (p == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a policy");
    p->config = *config;
    if (!pst_policy_looks_ahead(config->kind))
        p->config.window = 0;
    if (config->kind != PST_POLICY_BELADY)
        p->config.super_batch = 0;
    p->ops = p->config.super_batch > 0 ? &pst_policy_super_batch_ops : kinds[config->kind].ops;
    p->bytes = sizeof *p;
    p->ghost_max = (int64_t)((double)config->lines * GHOST_SHARE);
    p->hand = -1;
    p->small = p->main = (struct pst_policy_queue){-1, -1, 0};
    pst_rc rc = allocate(p);
    return rc == PST_OK && config->kind == PST_POLICY_STATIC ? fill_lines(p) : rc;
}

void pst_policy_free(struct pst_policy *p)
{
    if (p == NULL)
        return;
    free(p->table);
    free(p->vertex);
    free(p->safe);
    free(p->safe_at);
    free(p->heap);
    free(p->heap_at);
    free(p->rank);
    free(p->next);
    free(p->newer);
    free(p->older);
    free(p->freq);
    free(p->ghost);
    free(p);
}

/* ---- deciding ------------------------------------------------------------------------------------- */

void pst_policy_enter(struct pst_policy *p, const int64_t *ids, int64_t n)
{
    const uint64_t seq = p->entered++, ahead = seq - p->decided;
    assert(n <= p->config.batch_max);
    assert(ahead <= (uint64_t)p->config.window || ahead < (uint64_t)p->config.super_batch);
    for (int64_t i = 0; i < n && p->ops->enter != NULL; i++)
        p->ops->enter(p, pst_policy_entry_get(p, ids[i]), seq, i);
}

int64_t pst_policy_decide(struct pst_policy *p, const struct pst_policy_batch *b, int32_t *hit, int32_t *keep)
{
    int64_t hits = 0;
    assert(p->decided < p->entered && b->n <= p->config.batch_max);
    for (int64_t i = 0; i < b->n; i++)
        keep[i] = -1;
    p->ops->decide(p, b, p->decided++, hit, keep);
    for (int64_t i = 0; i < b->n; i++)
        hits += hit[i] >= 0;
    return hits;
}

void pst_policy_forget(struct pst_policy *p)
{
    assert(p->config.kind == PST_POLICY_BELADY && p->decided == p->entered);
    for (int64_t line = 0; line < p->used; line++) {
        pst_policy_entry_find(p, p->vertex[line])->line = -1;
        pst_policy_entry_tidy(p, p->vertex[line]);
    }
    p->used = 0;
}

uint64_t pst_policy_evictions(const struct pst_policy *p)
{
    return p->evictions;
}

const int64_t *pst_policy_lines(const struct pst_policy *p, int64_t *n)
{
    *n = p->used;
    return p->vertex;
}

uint64_t pst_policy_bytes(const struct pst_policy *p)
{
    return p->bytes;
}
