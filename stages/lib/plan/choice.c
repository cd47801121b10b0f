/* choice.c: compares plans, chooses which rows to cache, and predicts what they bring. */
#include "stages/lib/plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define LIST_BYTES 160 /* eight numbers as text */

static const char *ints_text(const int64_t *values, int n, char out[LIST_BYTES])
{
    size_t at = 0;
    out[at++] = '[';
    for (int i = 0; i < n && at < LIST_BYTES - 24; i++)
        at += (size_t)snprintf(out + at, LIST_BYTES - at, "%s%lld", i ? ", " : "", (long long)values[i]);
    out[at++] = ']';
    out[at] = '\0';
    return out;
}

struct differences {
    char text[1024];
    size_t at;
};

static void differ(struct differences *d, const char *field, const char *planned, const char *wanted)
{
    if (d->at < sizeof d->text)
        d->at += (size_t)snprintf(d->text + d->at, sizeof d->text - d->at, "%s%s was %s and is now %s",
                                  d->at ? "; " : "", field, planned, wanted);
}

static void differ_int(struct differences *d, const char *field, uint64_t planned, uint64_t wanted)
{
    char a[24], b[24];
    (void)snprintf(a, sizeof a, "%" PRIu64, planned);
    (void)snprintf(b, sizeof b, "%" PRIu64, wanted);
    differ(d, field, a, b);
}

pst_rc pst_plan_match(const struct pst_plan *plan, const struct pst_plan_key *want, unsigned parts,
                      const char *path)
{
    const struct pst_plan_key *have = &plan->key;
    struct differences d = {.at = 0};
    char a[LIST_BYTES], b[LIST_BYTES];
    if (strcmp(have->dataset, want->dataset) != 0)
        differ(&d, "the dataset's digest", have->dataset, want->dataset);
    if (strcmp(have->split, want->split) != 0)
        differ(&d, "split", have->split, want->split);
    if (have->hops != want->hops ||
        memcmp(have->fanout, want->fanout, (size_t)have->hops * sizeof have->fanout[0]) != 0)
        differ(&d, "fanout", ints_text(have->fanout, have->hops, a), ints_text(want->fanout, want->hops, b));
    else if (strcmp(have->fanouts, want->fanouts) != 0)
        differ(&d, "the checksum of the fanouts of edge types", have->fanouts[0] ? have->fanouts : "none",
               want->fanouts[0] ? want->fanouts : "none");
    if (have->batch != want->batch)
        differ_int(&d, "batch", (uint64_t)have->batch, (uint64_t)want->batch);
    if ((parts & PST_PLAN_ALGORITHM) && strcmp(have->algorithm, want->algorithm) != 0)
        differ(&d, "algorithm", have->algorithm, want->algorithm);
    if ((parts & PST_PLAN_ALGORITHM) && strcmp(have->options, want->options) != 0)
        differ(&d, "options", have->options[0] ? have->options : "\"\"",
               want->options[0] ? want->options : "\"\"");
    if ((parts & PST_PLAN_ALGORITHM) && have->replace != want->replace)
        differ(&d, "replace", have->replace ? "true" : "false", want->replace ? "true" : "false");
    if ((parts & PST_PLAN_HOTNESS) && strcmp(have->hotness, want->hotness) != 0)
        differ(&d, "hotness", have->hotness, want->hotness);
    else if ((parts & PST_PLAN_HOTNESS) && strcmp(have->hotness_id, want->hotness_id) != 0)
        differ(&d,
               strcmp(want->hotness, "file") == 0 ? "the checksum of hotness_file"
                                                  : "the run (seed and epochs) of the oracle",
               have->hotness_id, want->hotness_id);
    if ((parts & PST_PLAN_BUDGET) && have->gpu_budget_bytes != want->gpu_budget_bytes)
        differ_int(&d, "gpu_cache in bytes", have->gpu_budget_bytes, want->gpu_budget_bytes);
    if ((parts & PST_PLAN_BUDGET) && have->cache_budget_bytes != want->cache_budget_bytes)
        differ_int(&d, "the cache's budget in bytes", have->cache_budget_bytes, want->cache_budget_bytes);
    if ((parts & PST_PLAN_BUDGET) && strcmp(have->policy, want->policy) != 0)
        differ(&d, "the policy of the tiers", have->policy, want->policy);
    if (d.at == 0)
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "the plan %s does not fit this run: %s; make a new plan, or restore the old values", path,
                    d.text);
}

void pst_plan_keep(struct pst_plan_tiers *tiers, int64_t first, int64_t end, bool inside)
{
    struct pst_plan_tiers kept = {.ids = tiers->ids};
    for (int64_t i = 0; i < tiers->n; i++) {
        const int64_t v = tiers->ids[i];
        if ((v >= first && v < end) != inside)
            continue;
        kept.ids[kept.n++] = v;
        kept.gpu_n += i < tiers->gpu_n;
    }
    *tiers = kept;
}

/* Scores are not negative, so their bits are in the order of their values. */
static uint32_t bits_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits;
}

#define HALF_BITS 16
#define HALF_VALUES (1 << HALF_BITS)

/* The highest half of bits at which, from the top, at least *left vertices are reached. Subtracts those above
 * it from *left. Of the scores, only those with the upper half `upper` count; -1: all, by their upper half.
 */
static int64_t find_half(const float *scores, int64_t vertices, int64_t upper, int64_t *histogram,
                         int64_t *left)
{
    memset(histogram, 0, HALF_VALUES * sizeof *histogram);
    for (int64_t v = 0; v < vertices; v++) {
        const uint32_t bits = bits_of(scores[v]);
        if (upper < 0)
            histogram[bits >> HALF_BITS]++;
        else if ((int64_t)(bits >> HALF_BITS) == upper)
            histogram[bits & (HALF_VALUES - 1)]++;
    }
    int64_t half = HALF_VALUES - 1;
    for (; half > 0 && histogram[half] < *left; half--)
        *left -= histogram[half];
    return half;
}

static int by_score(const void *left, const void *right, void *scores_of)
{
    const float *scores = scores_of;
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    if (scores[a] != scores[b])
        return scores[a] > scores[b] ? -1 : 1;
    return (a > b) - (a < b);
}

pst_rc pst_plan_choose(const float *scores, int64_t vertices, int64_t rows, int64_t **cache, int64_t *cached)
{
    *cached = pst_min_i64(rows, vertices);
    int64_t *ids = malloc((size_t)*cached * sizeof *ids + 1);
    int64_t *histogram = malloc(HALF_VALUES * sizeof *histogram);
    *cache = ids;
    if (ids == NULL || histogram == NULL) {
        free(histogram);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %lld vertices by hotness",
                        (long long)*cached);
    }
    int64_t ties = *cached; /* becomes the number of vertices to take whose score is just the lowest */
    const int64_t upper = find_half(scores, vertices, -1, histogram, &ties);
    const int64_t lower = find_half(scores, vertices, upper, histogram, &ties);
    const int64_t lowest = upper << HALF_BITS | lower;
    int64_t n = 0;
    for (int64_t v = 0; v < vertices && n < *cached; v++) {
        const int64_t bits = bits_of(scores[v]);
        if (bits > lowest || (bits == lowest && ties-- > 0))
            ids[n++] = v;
    }
    free(histogram);
    qsort_r(ids, (size_t)n, sizeof *ids, by_score, (void *)(uintptr_t)scores);
    return PST_OK;
}

/* *threshold: how hot the last cached vertices are. *share: how many of the vertices that are as hot are
 * cached. */
static void find_threshold(const int64_t *histogram, uint32_t highest, int64_t cached, uint32_t *threshold,
                           double *share)
{
    int64_t above = 0;
    uint32_t t = highest;
    while (t > 0 && above + histogram[t] < cached)
        above += histogram[t--];
    *threshold = t;
    *share = histogram[t] > 0 ? fmin(1, (double)(cached - above) / (double)histogram[t]) : 0;
}

pst_rc pst_plan_predict(uint32_t *counts, int64_t vertices, int64_t cached, const int64_t *ids, int64_t n,
                        double *hits)
{
    *hits = 0;
    uint32_t highest = 0;
    for (int64_t v = 0; v < vertices; v++)
        highest = counts[v] > highest ? counts[v] : highest;
    int64_t *histogram = calloc((size_t)highest + 1, sizeof *histogram);
    if (histogram == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a histogram of %u counts", highest);
    for (int64_t i = 0; i < n; i++)
        counts[ids[i]]--;
    for (int64_t v = 0; v < vertices; v++)
        histogram[counts[v]]++;
    uint32_t threshold;
    double share;
    find_threshold(histogram, highest, cached, &threshold, &share);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t count = counts[ids[i]]++;
        *hits += count > threshold ? 1 : count == threshold ? share : 0;
    }
    free(histogram);
    return PST_OK;
}
