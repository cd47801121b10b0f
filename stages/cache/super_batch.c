/* super_batch.c: policy belady, as in Ginex (Park et al., VLDB 2022): a super-batch of window + 1 samples is
 * known before the first of them is decided, and its rows are gathered by Belady's rule. Its samples stay
 * here until all its rows have come. Only then does the next one begin, with free lines. The last super-batch
 * of an epoch is smaller if it must be. */
#include "stages/cache/cache.h"

/* Whether no sample after this one belongs to its super-batch. */
static bool ends_epoch(const struct cache *c, const struct pst_frame *sample)
{
    return (sample->flags & PST_LAST_MICRO) && (sample->batch + 1) % c->batches == 0;
}

/* How many samples the super-batch has that begins with the oldest; 0: some have not come. */
static uint32_t complete(const struct cache *c)
{
    for (uint32_t n = 0; n < c->nwaiting; n++)
        if (n == (uint32_t)c->window || ends_epoch(c, &c->waiting[(c->first + n) % c->nwaiting_max]))
            return n + 1;
    return c->ended ? c->nwaiting : 0;
}

pst_rc pst_cache_stage_begin_super_batch(struct pst_stage *self, struct cache *c)
{
    struct cache_super_batch *s = &c->super;
    const double begin = pst_now();
    const uint32_t n = c->entered == 0 && s->nheld == 0 ? complete(c) : 0;
    if (n == 0)
        return PST_OK;
    pst_policy_forget(c->policy);
    for (; c->entered < n; c->entered++) {
        const struct pst_frame *sample = &c->waiting[(c->first + c->entered) % c->nwaiting_max];
        const pst_rc rc = pst_cache_stage_enter(self, c, sample);
        if (rc != PST_OK)
            return pst_wrap(rc, "batch %llu, micro-batch %u", (unsigned long long)sample->batch,
                            sample->micro);
    }
    s->sample_s += begin - s->since;
    s->since = pst_now();
    s->inspect_s += s->since - begin;
    s->count++;
    s->largest = n > s->largest ? n : s->largest;
    return PST_OK;
}

pst_rc pst_cache_stage_end_super_batch(struct pst_stage *self, struct cache *c)
{
    struct cache_super_batch *s = &c->super;
    pst_rc rc = PST_OK;
    if (c->kind != PST_POLICY_BELADY || s->nheld == 0 || c->entered > 0 || c->asked > 0)
        return rc;
    for (uint32_t i = 0; i < s->nheld && rc == PST_OK; i++)
        rc = pst_release(self, s->held[i], false);
    s->nheld = 0;
    const double now = pst_now();
    s->gather_s += now - s->since;
    s->since = now;
    return rc;
}

pst_rc pst_cache_stage_report_super_batches(struct pst_stage *self, const struct cache *c)
{
    const struct cache_super_batch *s = &c->super;
    if (c->kind != PST_POLICY_BELADY)
        return PST_OK;
    return pst_report(self, "super_batches",
                      "{\"count\": %llu, \"largest\": %u, \"sample_s\": %.6f, \"inspect_s\": %.6f, "
                      "\"gather_s\": %.6f}",
                      (unsigned long long)s->count, s->largest, s->sample_s, s->inspect_s, s->gather_s);
}
