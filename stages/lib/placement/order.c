/* order.c: sorts vertices by hotness. A radix sort in two passes of 16 bits: the first goes by the lower half
 * of the score's bits and keeps the upper half beside the id, so that no pass looks up scores at random. */
#include "stages/lib/placement/placement_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/hugepage.h"

#define DIGITS 65536
#define SCORE_MAX 1e18f /* reads: sums of costs stay finite */

/* ---- threads ------------------------------------------------------------------------------------ */

struct worker {
    pthread_t thread;
    pst_placement_part *part;
    void *context;
    int number;
    int64_t first, end;
    pst_rc rc;
    char error[512];
};

static void *work(void *argument)
{
    struct worker *w = argument;
    w->rc = w->part(w->context, w->number, w->first, w->end);
    if (w->rc != PST_OK)
        (void)strncpy(w->error, pst_error_text(), sizeof w->error - 1);
    return NULL;
}

pst_rc pst_placement_split(int threads, int64_t n, pst_placement_part *part, void *context)
{
    struct worker workers[PST_PLACEMENT_THREADS_MAX];
    const int64_t each = n / threads + 1;
    pst_rc rc = PST_OK;
    int started = 0;
    for (int i = 0; i < threads && rc == PST_OK; i++) {
        struct worker *w = &workers[i];
        *w = (struct worker){.part = part, .context = context, .number = i};
        w->first = pst_min_i64(n, i * each);
        w->end = pst_min_i64(n, w->first + each);
        if (pthread_create(&w->thread, NULL, work, w) != 0)
            rc = pst_fail(PST_E_NOMEM, "cannot start thread %d of %d to place the graph", i + 1, threads);
        else
            started++;
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (workers[i].rc != PST_OK && rc == PST_OK)
            rc = pst_fail(workers[i].rc, "%s", workers[i].error);
    }
    return rc;
}

/* ---- the sort ----------------------------------------------------------------------------------- */

struct sort {
    const float *const *scores;
    int n;
    int64_t vertices;
    int threads;
    uint32_t *order, *ids;    /* ids: after the first pass */
    uint16_t *high;           /* beside ids */
    int64_t (*place)[DIGITS]; /* by thread: how many there are, then where the next one goes */
};

/* Descending scores are ascending keys. */
static uint32_t key_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return ~bits;
}

static float score_of(const struct sort *s, int64_t v)
{
    float score = 0;
    for (int i = 0; i < s->n; i++)
        score += s->scores[i][v];
    return score;
}

static pst_rc bad_score(const struct sort *s, int64_t v)
{
    return pst_fail(PST_E_ARG, "the hotness of vertex %lld is %g; expected a number from 0 to 1e18",
                    (long long)v, (double)score_of(s, v));
}

static pst_rc count_low(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    for (int64_t v = first; v < end; v++) {
        const float score = score_of(s, v);
        if (!(score >= 0 && score <= SCORE_MAX))
            return bad_score(s, v);
        s->place[part][key_of(score) % DIGITS]++;
    }
    return PST_OK;
}

static pst_rc move_low(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    for (int64_t v = first; v < end; v++) {
        const uint32_t key = key_of(score_of(s, v));
        const int64_t at = s->place[part][key % DIGITS]++;
        s->ids[at] = (uint32_t)v;
        s->high[at] = (uint16_t)(key / DIGITS);
    }
    return PST_OK;
}

static pst_rc count_high(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    for (int64_t i = first; i < end; i++)
        s->place[part][s->high[i]]++;
    return PST_OK;
}

static pst_rc move_high(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    for (int64_t i = first; i < end; i++)
        s->order[s->place[part][s->high[i]]++] = s->ids[i];
    return PST_OK;
}

/* Turns the threads' counts into places: digit by digit, and within a digit thread by thread. */
static void find_places(const struct sort *s)
{
    int64_t at = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        for (int t = 0; t < s->threads; t++) {
            const int64_t count = s->place[t][digit];
            s->place[t][digit] = at;
            at += count;
        }
    }
}

static pst_rc pass(struct sort *s, pst_placement_part *count, pst_placement_part *move)
{
    memset(s->place, 0, (size_t)s->threads * sizeof *s->place);
    pst_rc rc = pst_placement_split(s->threads, s->vertices, count, s);
    if (rc != PST_OK)
        return rc;
    find_places(s);
    return pst_placement_split(s->threads, s->vertices, move, s);
}

pst_rc pst_placement_order(const float *const *scores, int n, int64_t vertices, int threads, uint32_t *order)
{
    struct sort s = {.scores = scores, .n = n, .vertices = vertices, .threads = threads, .order = order};
    s.ids = pst_hugepage_alloc((uint64_t)vertices * sizeof *s.ids);
    s.high = pst_hugepage_alloc((uint64_t)vertices * sizeof *s.high);
    s.place = malloc((size_t)threads * sizeof *s.place);
    pst_rc rc = PST_OK;
    if (s.ids == NULL || s.high == NULL || s.place == NULL)
        rc =
            pst_fail(PST_E_NOMEM, "out of memory: cannot sort %lld vertices by hotness", (long long)vertices);
    if (rc == PST_OK)
        rc = pass(&s, count_low, move_low);
    if (rc == PST_OK)
        rc = pass(&s, count_high, move_high);
    free(s.ids);
    free(s.high);
    free(s.place);
    return rc;
}
