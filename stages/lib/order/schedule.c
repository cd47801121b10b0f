/* schedule.c: when each bucket is trained, and the proof that it can be. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/order/orders_impl.h"

/* Partitions that are in the buffer. */
struct set {
    bool has[PST_ORDER_PARTITIONS_MAX];
    int n, id[PST_ORDER_PARTITIONS_MAX];
};

static void add(struct set *s, int p)
{
    if (!s->has[p])
        s->id[s->n++] = p;
    s->has[p] = true;
}

/* ---- which partitions change ---------------------------------------------------------------------- */

static const uint16_t *state_of(const struct pst_order *o, int64_t i)
{
    return o->state + i * o->buffer;
}

static struct set all_of(const struct pst_order *o, int64_t i)
{
    struct set s = {0};
    for (int place = 0; place < o->buffer; place++)
        add(&s, state_of(o, i)[place]);
    return s;
}

/* What exchange i (from 1) evicts. The last exchange is followed by one that evicts everything. */
static struct set evicted(const struct pst_order *o, int64_t i)
{
    struct set s = {0};
    if (i > o->exchanges)
        return all_of(o, o->exchanges);
    for (int place = 0; place < o->buffer; place++)
        if (o->reload || state_of(o, i - 1)[place] != state_of(o, i)[place])
            add(&s, state_of(o, i - 1)[place]);
    return s;
}

/* What stays in the buffer while exchange i runs. */
static struct set kept(const struct pst_order *o, int64_t i)
{
    struct set s = {0};
    for (int place = 0; place < o->buffer && !o->reload; place++)
        if (state_of(o, i - 1)[place] == state_of(o, i)[place])
            add(&s, state_of(o, i)[place]);
    return s;
}

/* ---- the schedule ------------------------------------------------------------------------------------ */

struct schedule {
    struct pst_order *o;
    int64_t n;     /* buckets so far */
    bool *trained; /* partitions x partitions */
};

static void train(struct schedule *s, int source, int destination)
{
    bool *trained = &s->trained[source * s->o->partitions + destination];
    if (!*trained)
        s->o->bucket[s->n++] = (struct pst_order_bucket){(uint16_t)source, (uint16_t)destination};
    *trained = true;
}

/* Trains the buckets of what leaves next, as far as both partitions are there. */
static void train_group(struct schedule *s, const struct set *leave, const struct set *there, int64_t group)
{
    s->o->cut[group] = s->n;
    for (int i = 0; i < leave->n; i++) {
        const int e = leave->id[i];
        for (int j = 0; j < there->n && there->has[e]; j++) {
            train(s, e, there->id[j]);
            train(s, there->id[j], e);
        }
    }
}

pst_rc pst_order_schedule(struct pst_order *o)
{
    const int64_t p = o->partitions;
    struct schedule s = {.o = o};
    o->bucket = malloc((size_t)(p * p) * sizeof *o->bucket);
    o->cut = malloc((size_t)(2 * o->exchanges + 2) * sizeof *o->cut);
    s.trained = calloc((size_t)(p * p), sizeof *s.trained);
    if (o->bucket == NULL || o->cut == NULL || s.trained == NULL) {
        free(s.trained);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot order %lld buckets", (long long)(p * p));
    }
    struct set leave = evicted(o, 1), there = all_of(o, 0);
    train_group(&s, &leave, &there, 0);
    for (int64_t i = 1; i <= o->exchanges; i++) {
        leave = evicted(o, i + 1);
        there = kept(o, i);
        train_group(&s, &leave, &there, 2 * i - 1);
        there = all_of(o, i);
        train_group(&s, &leave, &there, 2 * i);
    }
    o->cut[2 * o->exchanges + 1] = s.n;
    free(s.trained);
    return s.n == p * p ? PST_OK
                        : pst_fail(PST_E_STATE,
                                   "the order cannot train all edges: for %lld of %lld buckets (pairs of "
                                   "partitions), the two partitions are never in the buffer together",
                                   (long long)(p * p - s.n), (long long)(p * p));
}

void pst_order_between_exchanges(struct pst_order *o)
{
    for (int64_t i = 1; i <= o->exchanges; i++)
        o->cut[2 * i] = o->cut[2 * i - 1];
}

/* ---- the proof ---------------------------------------------------------------------------------------- */

static pst_rc verify_states(const struct pst_order *o)
{
    for (int64_t i = 0; i <= o->exchanges; i++) {
        for (int place = 0; place < o->buffer; place++)
            if (state_of(o, i)[place] >= o->partitions)
                return pst_fail(
                    PST_E_FORMAT,
                    "state %lld of the buffer contains partition %d, but there are only %d partitions",
                    (long long)i, state_of(o, i)[place], o->partitions);
        const struct set s = all_of(o, i);
        if (s.n != o->buffer)
            return pst_fail(PST_E_FORMAT, "state %lld of the buffer contains a partition twice",
                            (long long)i);
    }
    return PST_OK;
}

static pst_rc verify_group(const struct pst_order *o, int64_t group, const struct set *there, bool *seen)
{
    for (int64_t b = o->cut[group]; b < o->cut[group + 1]; b++) {
        const int source = o->bucket[b].source, destination = o->bucket[b].destination;
        if (source >= o->partitions || destination >= o->partitions || !there->has[source] ||
            !there->has[destination])
            return pst_fail(PST_E_FORMAT,
                            "the bucket (%d, %d), a pair of partitions, is trained in group %lld, when these "
                            "two are not both in the buffer",
                            source, destination, (long long)group);
        bool *trained = &seen[source * o->partitions + destination];
        if (*trained)
            return pst_fail(PST_E_FORMAT, "the bucket (%d, %d), a pair of partitions, is trained twice",
                            source, destination);
        *trained = true;
    }
    return PST_OK;
}

pst_rc pst_order_verify(const struct pst_order *o)
{
    const int64_t all = (int64_t)o->partitions * o->partitions, groups = 2 * o->exchanges + 1;
    pst_rc rc = verify_states(o);
    if (rc == PST_OK && (o->cut[0] != 0 || o->cut[groups] != all))
        rc = pst_fail(PST_E_FORMAT,
                      "the groups have %lld buckets in all; expected %lld, one for each pair of partitions",
                      (long long)(o->cut[groups] - o->cut[0]), (long long)all);
    bool *seen = calloc((size_t)all, sizeof *seen);
    if (rc == PST_OK && seen == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot verify %lld buckets", (long long)all);
    for (int64_t g = 0; g < groups && rc == PST_OK; g++) {
        const struct set there = g % 2 == 1 ? kept(o, (g + 1) / 2) : all_of(o, g / 2);
        rc = o->cut[g] <= o->cut[g + 1]
                 ? verify_group(o, g, &there, seen)
                 : pst_fail(PST_E_FORMAT, "group %lld ends before its beginning", (long long)g);
    }
    free(seen);
    return rc;
}
