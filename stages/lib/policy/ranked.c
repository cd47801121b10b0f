/* ranked.c: policies that keep the best of the cached rows and the batch's: static, lookahead and Belady's
 * (Belady, IBM Systems Journal 1966; here a row may also be read and not kept). A heap has the cached row
 * that is used last on top; among equals, the coldest. */
#include "stages/lib/policy/policy_impl.h"

static bool worse(struct pst_policy_rank a, int64_t vertex_a, struct pst_policy_rank b, int64_t vertex_b)
{
    if (a.next != b.next)
        return a.next > b.next;
    if (a.hotness < b.hotness || a.hotness > b.hotness)
        return a.hotness < b.hotness;
    return vertex_a > vertex_b;
}

static bool line_worse(const struct pst_policy *p, int32_t a, int32_t b)
{
    return worse(p->rank[a], p->vertex[a], p->rank[b], p->vertex[b]);
}

static void put(struct pst_policy *p, int64_t at, int32_t line)
{
    p->heap[at] = line;
    p->heap_at[line] = (int32_t)at;
}

/* Moves the line at a place of the heap to where its rank belongs. */
static void settle(struct pst_policy *p, int64_t at)
{
    const int32_t line = p->heap[at];
    while (at > 0 && line_worse(p, line, p->heap[(at - 1) / 2])) {
        put(p, at, p->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < p->used && line_worse(p, p->heap[child + 1], p->heap[child]))
            child++;
        if (child >= p->used || !line_worse(p, p->heap[child], line))
            break;
        put(p, at, p->heap[child]);
        at = child;
    }
    put(p, at, line);
}

static void set_next(struct pst_policy *p, int32_t line, uint64_t next)
{
    p->rank[line].next = next;
    settle(p, p->heap_at[line]);
}

/* A row that was read takes a free line, or that of the worst row if that is worse. */
static void offer(struct pst_policy *p, int64_t vertex, struct pst_policy_rank rank)
{
    const bool free_line = p->used < p->config.lines;
    if (!free_line && (p->used == 0 || !worse(p->rank[p->heap[0]], p->vertex[p->heap[0]], rank, vertex))) {
        pst_policy_entry_tidy(p, vertex);
        return;
    }
    const int32_t line = free_line ? (int32_t)p->used : p->heap[0];
    if (free_line)
        put(p, p->used, line);
    pst_policy_take_line(p, line, vertex);
    p->rank[line] = rank;
    settle(p, p->heap_at[line]);
}

static float hotness_of(const struct pst_policy *p, int64_t vertex)
{
    return p->config.hotness != NULL ? p->config.hotness[vertex] : 0;
}

/* ---- lookahead ------------------------------------------------------------------------------------ */

static void enter(struct pst_policy *p, struct pst_policy_entry *e, uint64_t seq, int64_t i)
{
    (void)i;
    if (e->line >= 0 && e->mask == 0)
        set_next(p, e->line, seq);
    e->mask |= pst_policy_bit(seq);
}

/* The first batch after `seq` in the mask. */
static uint64_t next_in(uint64_t mask, uint64_t seq)
{
    const uint64_t from = (seq + 1) % 64, turned = from == 0 ? mask : mask >> from | mask << (64 - from);
    return mask == 0 ? PST_POLICY_NEVER : seq + 1 + (uint64_t)__builtin_ctzll(turned);
}

static void decide_lookahead(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq,
                             int32_t *hit, int32_t *keep)
{
    pst_policy_look_up(p, b, seq, hit);
    for (int64_t i = 0; i < b->n; i++)
        if (hit[i] >= 0)
            set_next(p, hit[i], next_in(pst_policy_entry_find(p, b->ids[i])->mask, seq));
    for (int64_t i = 0; i < b->n; i++)
        if (hit[i] < 0) {
            const uint64_t mask = pst_policy_entry_get(p, b->ids[i])->mask;
            offer(p, b->ids[i], (struct pst_policy_rank){next_in(mask, seq), hotness_of(p, b->ids[i])});
        }
    pst_policy_note_kept(p, b, hit, keep);
}

/* ---- Belady --------------------------------------------------------------------------------------- */

/* Keeps the rows that are used soonest, as `next` says. */
static void keep_soonest(struct pst_policy *p, const struct pst_policy_batch *b, const uint64_t *next,
                         int32_t *hit, int32_t *keep)
{
    for (int64_t i = 0; i < b->n; i++)
        if (hit[i] >= 0)
            set_next(p, hit[i], next[i]);
    for (int64_t i = 0; i < b->n; i++)
        if (hit[i] < 0)
            offer(p, b->ids[i], (struct pst_policy_rank){next[i], 0});
    pst_policy_note_kept(p, b, hit, keep);
}

static void decide_belady(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit,
                          int32_t *keep)
{
    pst_policy_look_up(p, b, seq, hit);
    keep_soonest(p, b, b->next, hit, keep);
}

/* Where `next` of a batch begins. */
static uint64_t next_of(const struct pst_policy *p, uint64_t seq)
{
    return seq % (uint64_t)p->config.super_batch * (uint64_t)p->config.batch_max;
}

/* This use is the next one after the vertex's last. */
static void enter_super_batch(struct pst_policy *p, struct pst_policy_entry *e, uint64_t seq, int64_t i)
{
    const uint64_t place = next_of(p, seq) + (uint64_t)i;
    if (e->mask != 0)
        p->next[e->mask - 1] = seq;
    p->next[place] = PST_POLICY_NEVER;
    e->mask = place + 1;
}

static void decide_super_batch(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq,
                               int32_t *hit, int32_t *keep)
{
    const uint64_t from = next_of(p, seq);
    for (int64_t i = 0; i < b->n; i++) {
        struct pst_policy_entry *e = pst_policy_entry_find(p, b->ids[i]);
        hit[i] = e->line;
        if (e->mask == from + (uint64_t)i + 1) /* the last use */
            e->mask = 0;
    }
    keep_soonest(p, b, p->next + from, hit, keep);
}

/* ---- static --------------------------------------------------------------------------------------- */

static void decide_static(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit,
                          int32_t *keep)
{
    (void)keep;
    pst_policy_look_up(p, b, seq, hit);
}

const struct pst_policy_ops pst_policy_lookahead_ops = {enter, decide_lookahead},
                            pst_policy_belady_ops = {NULL, decide_belady},
                            pst_policy_super_batch_ops = {enter_super_batch, decide_super_batch},
                            pst_policy_static_ops = {NULL, decide_static};
