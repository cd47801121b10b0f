/* auto.c: a search for an order with few swaps, all of which overlap with training. A randomised greedy walk
 * appends one swap after the other. It is repeated with other weights, and from points of the best walk so
 * far, for a fixed number of steps. So the result does not depend on the machine's speed.
 *
 * Cost of a walk: its swaps, and NOT_OVERLAPPED for a swap without anything to train meanwhile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/order/orders_impl.h"

#define CHOICES_MAX 1500000000 /* swaps that are weighed in all walks: 1 to 3 seconds */
#define FEW_PARTITIONS 11      /* with at most so many, a part of these choices finds the same costs */
#define PART_FOR_FEW 20
#define CHOICES_A_SWAP 50 /* and what a swap takes besides, in these units; and 2 for each partition */
#define NOT_OVERLAPPED 3  /* the cost of a swap that nothing overlaps */
#define SEED 0x243F6A8885A308D3u
#define FRESH_ONE_IN 8 /* walks from the start; the others repeat a part of the best one */

/* What a swap is worth, besides 1 for each pair that it brings together. */
enum weight { FINISHED, ALMOST, UNFINISHED, LOAD_OPEN, NOISE, WEIGHTS };
#define MAX PST_ORDER_PARTITIONS_MAX

struct swap {
    uint16_t place, load;
};

struct walk {
    int partitions, buffer;
    uint8_t open[MAX][MAX];    /* was this pair never in the buffer together? */
    uint8_t pending[MAX][MAX]; /* is it there for the first time, and not trained yet? */
    uint8_t alone[MAX];        /* is the partition's bucket with itself not trained? */
    uint8_t in[MAX];           /* is the partition in the buffer? */
    int degree[MAX];           /* its open pairs */
    int meets[MAX];            /* its open pairs with partitions in the buffer */
    int waiting[MAX];          /* its pending pairs */
    uint16_t state[MAX];
    int last; /* the place that was loaded last; -1: the first fill */
    int64_t left, cost, swaps;
    float weight[WEIGHTS];
};

struct search {
    struct walk now;
    struct swap *swap, *best; /* swaps of this walk, and of the best one */
    int64_t best_cost, best_swaps;
    int64_t most_swaps; /* BETA's: no result has more */
    float best_weight[WEIGHTS];
    uint64_t random;
    int64_t choices;
};

/* splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) */
static uint64_t next_random(struct search *s)
{
    uint64_t z = s->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static float uniform(struct search *s)
{
    return (float)(next_random(s) >> 40) * 0x1p-24f;
}

/* ---- a walk ------------------------------------------------------------------------------------- */

/* The pair is in the buffer for the first time. */
static void meet(struct walk *w, int p, int q)
{
    w->open[p][q] = w->open[q][p] = 0;
    w->pending[p][q] = w->pending[q][p] = 1;
    w->waiting[p]++;
    w->waiting[q]++;
    w->degree[p]--;
    w->degree[q]--;
    w->left--;
}

/* p comes into its place. */
static void enter(struct walk *w, int place, int p)
{
    w->state[place] = (uint16_t)p;
    w->in[p] = 1;
    for (int i = 0; i < w->buffer; i++)
        if (w->open[p][w->state[i]] && w->in[w->state[i]])
            meet(w, p, w->state[i]);
    for (int q = 0; q < w->partitions; q++)
        w->meets[q] += w->open[p][q];
    w->meets[p] = 0;
}

/* What is in this place is trained with everything in the buffer, and leaves. */
static void leave(struct walk *w, int place)
{
    const int p = w->state[place];
    w->in[p] = w->alone[p] = 0;
    for (int i = 0; i < w->buffer; i++) {
        w->waiting[w->state[i]] -= w->pending[p][w->state[i]];
        w->pending[p][w->state[i]] = w->pending[w->state[i]][p] = 0;
    }
    w->waiting[p] = 0;
    for (int q = 0; q < w->partitions; q++)
        w->meets[q] -= w->open[p][q];
}

static void begin(struct walk *w)
{
    const int n = w->partitions;
    for (int p = 0; p < n; p++) {
        memset(w->open[p], 1, (size_t)n);
        memset(w->pending[p], 0, (size_t)n);
        w->open[p][p] = w->in[p] = 0;
        w->alone[p] = 1;
        w->degree[p] = n - 1;
        w->meets[p] = w->waiting[p] = 0;
    }
    w->left = (int64_t)n * (n - 1) / 2;
    w->cost = w->swaps = 0;
    w->last = -1;
    for (int i = 0; i < w->buffer; i++)
        w->state[i] = (uint16_t)i;
    for (int i = 0; i < w->buffer; i++)
        enter(w, i, i);
}

/* Is there something to train while the last loaded partition comes, if this place is the next to change? */
static bool overlaps(const struct walk *w, int place)
{
    const int v = w->state[place];
    if (w->last < 0)
        return true;
    return place != w->last && (w->alone[v] || w->waiting[v] > w->pending[v][w->state[w->last]]);
}

/* What it costs if nothing is left to train during the last swap. */
static int64_t last_swap_waits(const struct walk *w)
{
    for (int place = 0; place < w->buffer; place++)
        if (overlaps(w, place))
            return 0;
    return NOT_OVERLAPPED - 1;
}

static void apply(struct walk *w, struct swap swap)
{
    w->cost += overlaps(w, swap.place) ? 1 : NOT_OVERLAPPED;
    leave(w, swap.place);
    enter(w, swap.place, swap.load);
    w->last = swap.place;
    w->swaps++;
}

/* What it is worth that a partition leaves. */
static float worth_of_leaving(const struct walk *w, int place)
{
    const int degree = w->degree[w->state[place]];
    if (degree == 0)
        return w->weight[FINISHED];
    if (degree < w->buffer) /* it would have to come back for less than a stay brings */
        return -w->weight[ALMOST];
    return w->weight[UNFINISHED] * (float)degree / (float)w->partitions;
}

/* What each partition is worth if it is loaded. */
static void worth_of_loading(struct search *s, float *value)
{
    const struct walk *w = &s->now;
    const uint64_t random = next_random(s);
    const float open = w->weight[LOAD_OPEN] / (float)w->partitions, noise = w->weight[NOISE] * 0x1p-32f;
    for (int p = 0; p < w->partitions; p++) {
        const uint32_t bits = (uint32_t)(((random ^ (uint64_t)p) * 0xD6E8FEB86659FD93u) >> 32);
        value[p] = (float)w->meets[p] + open * (float)w->degree[p] + noise * (float)bits;
        if (w->in[p] || w->degree[p] == 0)
            value[p] = -INFINITY;
    }
}

/* The most valuable swap. One that does not overlap with training is taken only if no other is left. */
static struct swap choose(struct search *s)
{
    const struct walk *w = &s->now;
    struct swap best = {0, 0};
    float value[MAX], most = -INFINITY;
    worth_of_loading(s, value);
    for (int wanted = 1; wanted >= 0 && most == -INFINITY; wanted--) {
        for (int place = 0; place < w->buffer; place++) {
            if (overlaps(w, place) != (wanted == 1))
                continue;
            const uint8_t *parts =
                w->open[w->state[place]]; /* pairs that the leaving one can no longer make */
            const float leaving = worth_of_leaving(w, place) + w->weight[NOISE] * uniform(s);
            for (int p = 0; p < w->partitions; p++) {
                const float sum = value[p] + leaving - (float)parts[p];
                if (sum > most) {
                    most = sum;
                    best = (struct swap){(uint16_t)place, (uint16_t)p};
                }
            }
            s->choices += w->partitions;
        }
    }
    return best;
}

/* A swap covers at most buffer - 1 pairs. */
static bool hopeless(const struct search *s)
{
    const struct walk *w = &s->now;
    const int64_t each = w->buffer > 1 ? w->buffer - 1 : 1;
    const int64_t more = (w->left + each - 1) / each;
    return w->cost + more > s->best_cost || w->swaps + more > s->most_swaps;
}

/* ---- the search -----------------------------------------------------------------------------------------
 */

static void choose_weights(struct search *s, bool fresh)
{
    static const float most[WEIGHTS] = {2, 4, 4, 2, 1.2f};
    float *w = s->now.weight;
    for (int i = 0; i < WEIGHTS; i++) {
        if (fresh)
            w[i] = most[i] * uniform(s) * uniform(s);
        else if (uniform(s) < 0.5f)
            w[i] = s->best_weight[i] * (1 + 0.4f * uniform(s));
        else
            w[i] = s->best_weight[i] / (1 + 0.4f * uniform(s));
    }
    if (fresh && uniform(s) < 0.5f)
        w[LOAD_OPEN] = -w[LOAD_OPEN];
}

/* Repeats the best walk up to a random point. */
static void repeat_some(struct search *s)
{
    const int64_t n = (int64_t)(uniform(s) * (float)s->best_swaps);
    for (int64_t i = 0; i < n; i++) {
        s->swap[i] = s->best[i];
        apply(&s->now, s->swap[i]);
    }
}

static void walk(struct search *s, bool fresh)
{
    struct walk *w = &s->now;
    choose_weights(s, fresh || uniform(s) < 0.5f);
    begin(w);
    if (!fresh)
        repeat_some(s);
    while (w->left > 0 && !hopeless(s)) {
        s->swap[w->swaps] = choose(s);
        apply(w, s->swap[w->swaps]);
    }
    w->cost += last_swap_waits(w);
    s->choices += w->swaps * (CHOICES_A_SWAP + 2 * w->partitions);
    if (w->left > 0 || w->cost > s->best_cost)
        return;
    s->best_cost = w->cost;
    s->best_swaps = w->swaps;
    memcpy(s->best_weight, w->weight, sizeof w->weight);
    memcpy(s->best, s->swap, (size_t)w->swaps * sizeof *s->swap);
}

/* Begins with BETA, so that no result is worse. */
static pst_rc start_with_beta(struct search *s)
{
    struct pst_order_states beta = {.partitions = s->now.partitions, .buffer = s->now.buffer};
    const pst_rc rc = pst_order_beta(&beta);
    begin(&s->now);
    for (int64_t i = 1; i < beta.n && rc == PST_OK; i++) {
        const uint16_t *state = beta.state + i * beta.buffer;
        int place = 0;
        while (state[place] == s->now.state[place])
            place++;
        s->best[i - 1] = (struct swap){(uint16_t)place, state[place]};
        apply(&s->now, s->best[i - 1]);
    }
    s->best_cost = s->now.cost + last_swap_waits(&s->now);
    s->best_swaps = s->most_swaps = s->now.swaps;
    free(beta.state);
    return rc;
}

static pst_rc replay(struct search *s, struct pst_order_states *out)
{
    begin(&s->now);
    pst_rc rc = pst_order_push(out, s->now.state);
    for (int64_t i = 0; i < s->best_swaps && rc == PST_OK; i++) {
        s->now.state[s->best[i].place] = s->best[i].load;
        rc = pst_order_push(out, s->now.state);
    }
    return rc;
}

pst_rc pst_order_auto(struct pst_order_states *out)
{
    const int64_t bound = pst_order_bound(out->partitions, out->buffer);
    const int64_t most = out->partitions <= FEW_PARTITIONS ? CHOICES_MAX / PART_FOR_FEW : CHOICES_MAX;
    struct search *s = calloc(1, sizeof *s);
    pst_rc rc = PST_OK;
    if (s != NULL) {
        const size_t room = (size_t)(2 * bound + 2 * out->partitions + 1); /* BETA's swaps, and more */
        s->swap = malloc(room * sizeof *s->swap);
        s->best = malloc(room * sizeof *s->best);
        s->random = SEED;
        s->now.partitions = out->partitions;
        s->now.buffer = out->buffer;
    }
    if (s == NULL || s->swap == NULL || s->best == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot search an order of %d partitions", out->partitions);
    if (rc == PST_OK)
        rc = start_with_beta(s);
    for (int64_t i = 0; rc == PST_OK && s->best_cost > bound && s->choices < most; i++)
        walk(s, i % FRESH_ONE_IN == 0);
    if (rc == PST_OK)
        rc = replay(s, out);
    if (s != NULL) {
        free(s->swap);
        free(s->best);
    }
    free(s);
    return rc;
}
