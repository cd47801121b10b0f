/* order.c: sorts vertices by hotness. A radix sort in two passes, each by half of the bits in which scores
 * differ. The first goes by the lower half and keeps the upper half beside the id, so that no pass looks up
 * scores at random. */
#include "stages/lib/placement/placement_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/memory.h"

#define DIGITS_MAX 65536
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
    uint32_t least[PST_PLACEMENT_THREADS_MAX], most[PST_PLACEMENT_THREADS_MAX]; /* bits of scores above 0 */
    int low_bits;          /* of a key: the first pass goes by them, the second by the others */
    int64_t digits;        /* of the pass */
    int64_t *place;        /* by thread and digit: how many there are, then where the next one goes */
    uint32_t *order, *ids; /* ids: after the first pass */
    uint16_t *high;        /* beside ids */
};

pst_rc pst_placement_sorter_init(struct pst_placement_sorter *s, int64_t vertices, int threads)
{
    s->ids = pst_hugepage_alloc((uint64_t)vertices * sizeof *s->ids);
    s->high = pst_hugepage_alloc((uint64_t)vertices * sizeof *s->high);
    s->place = malloc((size_t)threads * DIGITS_MAX * sizeof *s->place);
    if (s->ids != NULL && s->high != NULL && s->place != NULL)
        return PST_OK;
    pst_placement_sorter_release(s);
    return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %lld vertices by hotness", (long long)vertices);
}

void pst_placement_sorter_release(struct pst_placement_sorter *s)
{
    free(s->ids);
    free(s->high);
    free(s->place);
    *s = (struct pst_placement_sorter){0};
}

static float score_of(const struct sort *s, int64_t v)
{
    float score = 0;
    for (int i = 0; i < s->n; i++)
        score += s->scores[i][v];
    return score;
}

/* Of scores from 0, the larger one has the larger bits. */
static uint32_t bits_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits;
}

/* Descending scores are ascending keys from 0; a score of 0 comes right after the smallest one above 0. */
static uint32_t key_of(const struct sort *s, int64_t v)
{
    const uint32_t bits = bits_of(score_of(s, v));
    return s->most[0] - (bits > 0 ? bits : s->least[0] - 1);
}

static pst_rc find_range(void *context, int part, int64_t first, int64_t end)
{
    struct sort *s = context;
    uint32_t least = UINT32_MAX, most = 0;
    for (int64_t v = first; v < end; v++) {
        const float score = score_of(s, v);
        if (!(score >= 0 && score <= SCORE_MAX))
            return pst_fail(PST_E_ARG, "the hotness of vertex %lld is %g; expected a number from 0 to 1e18",
                            (long long)v, (double)score);
        const uint32_t bits = bits_of(score);
        most = bits > most ? bits : most;
        least = bits > 0 && bits < least ? bits : least;
    }
    s->least[part] = least;
    s->most[part] = most;
    return PST_OK;
}

/* The bits of keys; half of them go to each pass. */
static void share_bits(struct sort *s)
{
    for (int t = 1; t < s->threads; t++) {
        s->least[0] = s->least[t] < s->least[0] ? s->least[t] : s->least[0];
        s->most[0] = s->most[t] > s->most[0] ? s->most[t] : s->most[0];
    }
    if (s->most[0] == 0) /* no score is above 0 */
        s->least[0] = 1;
    const uint32_t last = s->most[0] - (s->least[0] - 1);
    const int bits = last > 0 ? 32 - __builtin_clz(last) : 0;
    s->low_bits = (bits + 1) / 2;
    assert(s->low_bits <= 16);
}

static pst_rc count_low(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    int64_t *place = s->place + part * s->digits;
    for (int64_t v = first; v < end; v++)
        place[key_of(s, v) & (uint32_t)(s->digits - 1)]++;
    return PST_OK;
}

static pst_rc move_low(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    int64_t *place = s->place + part * s->digits;
    for (int64_t v = first; v < end; v++) {
        const uint32_t key = key_of(s, v);
        const int64_t at = place[key & (uint32_t)(s->digits - 1)]++;
        s->ids[at] = (uint32_t)v;
        s->high[at] = (uint16_t)(key >> s->low_bits);
    }
    return PST_OK;
}

static pst_rc count_high(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    int64_t *place = s->place + part * s->digits;
    for (int64_t i = first; i < end; i++)
        place[s->high[i]]++;
    return PST_OK;
}

static pst_rc move_high(void *context, int part, int64_t first, int64_t end)
{
    const struct sort *s = context;
    int64_t *place = s->place + part * s->digits;
    for (int64_t i = first; i < end; i++)
        s->order[place[s->high[i]]++] = s->ids[i];
    return PST_OK;
}

/* Turns the threads' counts into places: digit by digit, and within a digit thread by thread. */
static void find_places(const struct sort *s)
{
    int64_t at = 0;
    for (int64_t digit = 0; digit < s->digits; digit++) {
        for (int t = 0; t < s->threads; t++) {
            int64_t *place = &s->place[t * s->digits + digit];
            const int64_t count = *place;
            *place = at;
            at += count;
        }
    }
}

static pst_rc pass(struct sort *s, pst_placement_part *count, pst_placement_part *move)
{
    s->digits = (int64_t)1 << s->low_bits; /* the upper half has as many bits, or one less */
    memset(s->place, 0, (size_t)(s->threads * s->digits) * sizeof *s->place);
    pst_rc rc = pst_placement_split(s->threads, s->vertices, count, s);
    if (rc != PST_OK)
        return rc;
    find_places(s);
    return pst_placement_split(s->threads, s->vertices, move, s);
}

pst_rc pst_placement_order(const struct pst_placement_sorter *with, const float *const *scores, int n,
                           int64_t vertices, int threads, uint32_t *order)
{
    struct sort s = {.scores = scores,
                     .n = n,
                     .vertices = vertices,
                     .threads = threads,
                     .place = with->place,
                     .order = order,
                     .ids = with->ids,
                     .high = with->high};
    pst_rc rc = pst_placement_split(threads, vertices, find_range, &s);
    if (rc != PST_OK)
        return rc;
    share_bits(&s);
    rc = pass(&s, count_low, move_low);
    return rc == PST_OK ? pass(&s, count_high, move_high) : rc;
}
