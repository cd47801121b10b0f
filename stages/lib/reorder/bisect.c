/* bisect.c: recursive bisection of items by their queries. */
#include "stages/lib/reorder/bisect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define ROUNDS 16 /* at most, of swaps in a range: later ones change little */
#define FEW 500   /* a round that swaps less than one in so many items is the last */
#define DEPTH_MAX 64
#define SHARE 0.2 /* p of the p-fanout: 0.2 reads a percent less than 0.5 or 0.8 on cnr_2000 */
#define TABLE 64  /* counts that are told apart: what is beyond weighs nothing */

struct candidate {
    float gain;
    uint32_t item;
};

struct job {
    const struct pst_bisect_spec *s;
    struct pst_progress *progress;
    uint32_t *in[2]; /* nqueries: items of the range in its halves; zero outside of a step */
    struct candidate *half[2];
    uint8_t *side;     /* of each item, after a step */
    float fall[TABLE]; /* fall[x]: what a query's half costs more with x + 1 items than with x */
};

static float fall(const struct job *j, uint32_t x)
{
    return x < TABLE ? j->fall[x] : 0;
}

/* What is saved if the item moves from half `from` to the other. */
static float gain_of(const struct job *j, uint32_t item, int from)
{
    float gain = 0;
    for (uint64_t k = j->s->at[item]; k < j->s->at[item + 1]; k++) {
        const uint32_t q = j->s->queries[k];
        gain += fall(j, j->in[from][q] - 1) - fall(j, j->in[1 - from][q]);
    }
    return gain;
}

static void count(const struct job *j, uint32_t item, int half, uint32_t by)
{
    for (uint64_t k = j->s->at[item]; k < j->s->at[item + 1]; k++)
        j->in[half][j->s->queries[k]] += by;
}

/* Highest gains first; equal ones by item, so that the result does not depend on the sort. */
static int by_gain(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return a->gain != b->gain ? (a->gain < b->gain) - (a->gain > b->gain)
                              : (a->item > b->item) - (a->item < b->item);
}

/* One round. Returns how many pairs were swapped. */
static uint32_t swap(const struct job *j, const uint32_t n[2])
{
    for (int h = 0; h < 2; h++) {
        for (uint32_t i = 0; i < n[h]; i++)
            j->half[h][i].gain = gain_of(j, j->half[h][i].item, h);
        qsort(j->half[h], n[h], sizeof *j->half[h], by_gain);
    }
    uint32_t pairs = 0;
    while (pairs < n[0] && pairs < n[1] && j->half[0][pairs].gain + j->half[1][pairs].gain > 0) {
        const uint32_t a = j->half[0][pairs].item, b = j->half[1][pairs].item;
        count(j, a, 0, UINT32_MAX); /* one less */
        count(j, a, 1, 1);
        count(j, b, 1, UINT32_MAX);
        count(j, b, 0, 1);
        j->half[0][pairs].item = b;
        j->half[1][pairs].item = a;
        pairs++;
    }
    return pairs;
}

/* Divides a range. Within a half, items keep their order. */
static void divide(struct job *j, uint32_t *order, uint32_t n)
{
    const uint32_t size[2] = {n / 2, n - n / 2};
    for (uint32_t i = 0; i < n; i++) {
        const int h = i >= size[0];
        j->half[h][h == 0 ? i : i - size[0]].item = order[i];
        count(j, order[i], h, 1);
    }
    for (int round = 0; round < ROUNDS; round++)
        if (swap(j, size) <= n / FEW)
            break;
    for (int h = 0; h < 2; h++)
        for (uint32_t i = 0; i < size[h]; i++) {
            const uint32_t item = j->half[h][i].item;
            j->side[item] = (uint8_t)h;
            for (uint64_t k = j->s->at[item]; k < j->s->at[item + 1]; k++)
                j->in[0][j->s->queries[k]] = j->in[1][j->s->queries[k]] = 0;
        }
    uint32_t filled[2] = {0, 0};
    for (uint32_t i = 0; i < n; i++) {
        const int h = j->side[order[i]];
        j->half[h][filled[h]++].item = order[i];
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = i < size[0] ? j->half[0][i].item : j->half[1][i - size[0]].item;
}

/* Depth first: a range's queries stay in the processor's cache while its halves are divided. */
static pst_rc divide_all(struct job *j, uint32_t *order, uint32_t all)
{
    struct {
        uint32_t begin, n;
    } stack[DEPTH_MAX * 2] = {{0, all}};
    int top = 1;
    pst_rc rc = PST_OK;
    while (top > 0 && rc == PST_OK) {
        const uint32_t begin = stack[--top].begin, n = stack[top].n;
        if (n <= j->s->least || n < 2) {
            rc = pst_progress_add(j->progress, n);
            continue;
        }
        divide(j, order + begin, n);
        stack[top].begin = begin + n / 2;
        stack[top++].n = n - n / 2;
        stack[top].begin = begin;
        stack[top++].n = n / 2;
    }
    return rc;
}

pst_rc pst_bisect(const struct pst_bisect_spec *s, uint32_t *order, uint32_t n, struct pst_progress *progress)
{
    struct job j = {.s = s, .progress = progress};
    j.side = malloc((size_t)s->items + 1);
    for (int h = 0; h < 2; h++) {
        j.in[h] = calloc((size_t)s->nqueries + 1, sizeof *j.in[h]);
        j.half[h] = malloc(((size_t)n / 2 + 1) * sizeof *j.half[h]);
    }
    for (int x = 0; x < TABLE; x++)
        j.fall[x] = (float)(SHARE * pow(1 - SHARE, x));
    pst_rc rc =
        j.side != NULL && j.in[0] != NULL && j.in[1] != NULL && j.half[0] != NULL && j.half[1] != NULL
            ? PST_OK
            : pst_fail(PST_E_NOMEM, "out of memory: cannot order %u rows by %u samples", n, s->nqueries);
    pst_progress_begin(progress, "ordering", n, false);
    if (rc == PST_OK)
        rc = divide_all(&j, order, n);
    if (rc == PST_OK)
        pst_progress_end(progress);
    free(j.side);
    for (int h = 0; h < 2; h++) {
        free(j.in[h]);
        free(j.half[h]);
    }
    return rc;
}
