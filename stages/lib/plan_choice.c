#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

#define LIST_BYTES 160 /* eight numbers in words */

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
    if (have->batch != want->batch)
        differ_int(&d, "batch", (uint64_t)have->batch, (uint64_t)want->batch);
    if ((parts & PST_PLAN_REPLACE) && have->replace != want->replace)
        differ(&d, "replace", have->replace ? "true" : "false", want->replace ? "true" : "false");
    if ((parts & PST_PLAN_BUDGET) && have->cache_budget_bytes != want->cache_budget_bytes)
        differ_int(&d, "the cache's budget in bytes", have->cache_budget_bytes, want->cache_budget_bytes);
    if (d.at == 0)
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "the plan %s was made for something else: %s; make a new plan, or give both the same",
                    path, d.text);
}

static int by_hotness(const void *left, const void *right, void *counts_of)
{
    const uint32_t *counts = counts_of;
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    if (counts[a] != counts[b])
        return counts[a] > counts[b] ? -1 : 1;
    return (a > b) - (a < b);
}

pst_rc pst_plan_choose(const uint32_t *hotness, int64_t vertices, int64_t rows, int64_t **cache,
                       int64_t *cached)
{
    *cached = pst_min_i64(rows, vertices);
    int64_t seen = 0;
    for (int64_t v = 0; v < vertices; v++)
        seen += hotness[v] > 0;
    int64_t room = pst_max_i64(seen, *cached);
    int64_t *ids = malloc((size_t)room * sizeof *ids + 1);
    *cache = ids;
    if (ids == NULL)
        return pst_fail(PST_E_NOMEM, "no memory to rank %lld vertices by hotness", (long long)room);
    int64_t n = 0;
    for (int64_t v = 0; v < vertices; v++) {
        if (hotness[v] > 0)
            ids[n++] = v;
    }
    qsort_r(ids, (size_t)n, sizeof *ids, by_hotness, (void *)(uintptr_t)hotness);
    for (int64_t v = 0; v < vertices && n < *cached; v++) {
        if (hotness[v] == 0)
            ids[n++] = v;
    }
    return PST_OK;
}

/* The count of the hottest vertex that is not cached, and which share of places a vertex would get that fell
 * to that count: its own place and those of its new equals, shared with them. */
static void find_rival(const uint32_t *hotness, int64_t vertices, int64_t cached, uint32_t *rival,
                       double *share)
{
    /* the largest t such that more than `cached` vertices have a count of t or more, by bisection on t */
    uint64_t low = 0, high = (uint64_t)UINT32_MAX + 1;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        int64_t n = 0;
        for (int64_t v = 0; v < vertices; v++)
            n += hotness[v] >= mid;
        if (n > cached)
            low = mid;
        else
            high = mid;
    }
    int64_t above = 0, equal = 0;
    for (int64_t v = 0; v < vertices; v++) {
        above += hotness[v] > low;
        equal += hotness[v] == low;
    }
    *rival = (uint32_t)low;
    *share = (double)(cached - above + 1) / (double)(equal + 1);
}

double pst_plan_hit_rate(const uint32_t *hotness, int64_t vertices, int64_t cached)
{
    if (cached <= 0)
        return 0;
    if (cached >= vertices)
        return 1;
    uint32_t rival;
    double share, hits = 0, all = 0;
    find_rival(hotness, vertices, cached, &rival, &share);
    for (int64_t v = 0; v < vertices; v++) {
        if (hotness[v] == 0)
            continue;
        uint32_t without = hotness[v] - 1;
        hits += hotness[v] * (without > rival ? 1 : without == rival ? share : 0);
        all += hotness[v];
    }
    return all > 0 ? hits / all : 0;
}
