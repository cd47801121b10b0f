/* window.c: random eviction that spares what the window uses. GIDS, section 3.4: a line whose counter of uses
 * in the window is positive is in the state USE, any other is safe to evict. Here the counter is the number
 * of bits in the mask of the line's vertex. With a window of 0 batches this is random eviction. */
#include "common/util/rng.h"
#include "stages/lib/policy/policy_impl.h"

static void add_safe(struct pst_policy *p, int32_t line)
{
    if (p->safe_at[line] >= 0)
        return;
    p->safe_at[line] = (int32_t)p->nsafe;
    p->safe[p->nsafe++] = line;
}

/* The last one takes its place. */
static void remove_safe(struct pst_policy *p, int32_t line)
{
    const int32_t at = p->safe_at[line];
    if (at < 0)
        return;
    const int32_t last = p->safe[--p->nsafe];
    p->safe[at] = last;
    p->safe_at[last] = at;
    p->safe_at[line] = -1;
}

static void enter(struct pst_policy *p, struct pst_policy_entry *e, uint64_t seq, int64_t i)
{
    (void)i;
    if (e->line >= 0)
        remove_safe(p, e->line);
    e->mask |= pst_policy_bit(seq);
}

static int32_t line_for(struct pst_policy *p, const struct pst_rng_stream *random, int64_t vertex)
{
    if (p->used < p->config.lines)
        return (int32_t)p->used;
    if (p->nsafe == 0)
        return -1;
    const struct pst_rng_block draw = pst_rng_draw(random, (uint64_t)vertex, 0);
    const int32_t line = p->safe[pst_rng_bounded(pst_rng_u64(&draw, 0), (uint64_t)p->nsafe)];
    remove_safe(p, line);
    return line;
}

static void decide(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit,
                   int32_t *keep)
{
    const struct pst_rng_stream random =
        pst_rng_stream_of(PST_RNG_EVICT, p->config.seed, b->micro, b->batch, 0);
    pst_policy_look_up(p, b, seq, hit);
    for (int64_t i = 0; i < b->n; i++) {
        if (hit[i] >= 0)
            continue;
        keep[i] = line_for(p, &random, b->ids[i]);
        if (keep[i] >= 0)
            pst_policy_take_line(p, keep[i], b->ids[i]);
        else
            pst_policy_entry_tidy(p, b->ids[i]);
    }
    /* the batch's own lines become safe only now */
    for (int64_t i = 0; i < b->n; i++) {
        const int32_t line = hit[i] >= 0 ? hit[i] : keep[i];
        if (line >= 0 && pst_policy_entry_find(p, b->ids[i])->mask == 0)
            add_safe(p, line);
    }
}

const struct pst_policy_ops pst_policy_window_ops = {enter, decide};
