/* orders.c: the table of kinds, and what all orders share. */
#include "stages/lib/order/orders.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/order/orders_impl.h"

#define STATES_AT_FIRST 64

static const char *const names[PST_ORDER_KINDS] = {"beta",  "hilbert", "hilbert-symmetric",
                                                   "cover", "legend",  "auto"};

const char *pst_order_kind_name(enum pst_order_kind kind)
{
    return names[kind];
}

int pst_order_kind_of(const char *name)
{
    for (int i = 0; i < PST_ORDER_KINDS; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

int64_t pst_order_bound(int partitions, int buffer)
{
    const int64_t p = partitions, c = buffer;
    const int64_t open = p * (p - 1) / 2 - c * (c - 1) / 2;
    return open > 0 ? (open + c - 2) / (c - 1) : 0;
}

pst_rc pst_order_push(struct pst_order_states *s, const uint16_t *state)
{
    if (s->n == s->room) {
        const int64_t room = s->room > 0 ? 2 * s->room : STATES_AT_FIRST;
        uint16_t *larger = realloc(s->state, (size_t)(room * s->buffer) * sizeof *larger);
        if (larger == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot keep %lld buffer states", (long long)room);
        s->state = larger;
        s->room = room;
    }
    memcpy(s->state + s->n++ * s->buffer, state, (size_t)s->buffer * sizeof *state);
    return PST_OK;
}

/* ---- building ----------------------------------------------------------------------------------- */

static bool power_of_four(int n)
{
    return n >= 4 && (n & (n - 1)) == 0 && __builtin_ctz((unsigned)n) % 2 == 0;
}

static pst_rc check(enum pst_order_kind kind, int partitions, int buffer)
{
    if (partitions < 1 || partitions > PST_ORDER_PARTITIONS_MAX)
        return pst_fail(PST_E_ARG, "the number of partitions is %d; expected 1 to %d", partitions,
                        PST_ORDER_PARTITIONS_MAX);
    if (buffer < 1 || buffer > partitions || (buffer == 1 && partitions > 1))
        return pst_fail(PST_E_ARG,
                        "the buffer holds %d partitions; expected %d to %d, because an edge needs the "
                        "partitions of both its ends, and there are %d partitions",
                        buffer, partitions > 1 ? 2 : 1, partitions, partitions);
    if (kind == PST_ORDER_LEGEND && buffer != 3)
        return pst_fail(PST_E_ARG, "the order \"legend\" is for a buffer of 3 partitions; found %d", buffer);
    if (kind == PST_ORDER_COVER && (buffer != 4 || !power_of_four(partitions)))
        return pst_fail(
            PST_E_ARG,
            "the order \"cover\" is for a buffer of 4 and for 4, 16, 64 or 256 partitions; found a buffer "
            "of %d and %d partitions",
            buffer, partitions);
    return PST_OK;
}

static pst_rc find_states(enum pst_order_kind kind, struct pst_order_states *s)
{
    switch (kind) {
    case PST_ORDER_HILBERT: return pst_order_hilbert(s, false);
    case PST_ORDER_HILBERT_SYMMETRIC: return pst_order_hilbert(s, true);
    case PST_ORDER_COVER: return pst_order_cover(s);
    case PST_ORDER_LEGEND: return pst_order_legend(s);
    case PST_ORDER_AUTO: return pst_order_auto(s);
    default: return pst_order_beta(s);
    }
}

pst_rc pst_order_build(struct pst_order *o, enum pst_order_kind kind, int partitions, int buffer)
{
    *o = (struct pst_order){.kind = kind, .partitions = partitions, .buffer = buffer};
    struct pst_order_states s = {.partitions = partitions, .buffer = buffer};
    pst_rc rc = check(kind, partitions, buffer);
    if (rc == PST_OK)
        rc = find_states(kind, &s);
    o->state = s.state;
    o->exchanges = s.n - 1;
    o->reload = kind == PST_ORDER_COVER;
    if (rc == PST_OK)
        rc = pst_order_schedule(o);
    if (rc != PST_OK)
        pst_order_release(o);
    return rc;
}

void pst_order_release(struct pst_order *o)
{
    free(o->state);
    free(o->bucket);
    free(o->cut);
    *o = (struct pst_order){0};
}

/* ---- counts ------------------------------------------------------------------------------------- */

static int64_t loaded(const struct pst_order *o, int64_t exchange)
{
    const uint16_t *before = o->state + (exchange - 1) * o->buffer, *after = before + o->buffer;
    int64_t n = 0;
    for (int i = 0; i < o->buffer; i++)
        n += o->reload || after[i] != before[i];
    return n;
}

void pst_order_count(const struct pst_order *o, struct pst_order_counts *counts)
{
    *counts = (struct pst_order_counts){.bound = pst_order_bound(o->partitions, o->buffer)};
    for (int64_t i = 1; i <= o->exchanges; i++) {
        const int64_t during = o->cut[2 * i] - o->cut[2 * i - 1];
        counts->swaps += loaded(o, i);
        counts->overlap += during;
        counts->not_overlapped += during == 0;
    }
    counts->loads = counts->swaps + o->buffer;
}
