/* orders_impl.h: states while they are found. Owner: pst_order_build. Threads: one. */
#ifndef PST_ORDERS_IMPL_H
#define PST_ORDERS_IMPL_H

#include "stages/lib/order/orders.h"

/* States that are appended one by one. */
struct pst_order_states {
    int partitions, buffer;
    int64_t n, room;
    uint16_t *state; /* n x buffer */
};

/* Appends a copy of `state`. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_order_push(struct pst_order_states *s, const uint16_t *state);

/* Each appends its states. */
PST_MUST_USE pst_rc pst_order_beta(struct pst_order_states *s);
PST_MUST_USE pst_rc pst_order_hilbert(struct pst_order_states *s, bool symmetric);
PST_MUST_USE pst_rc pst_order_cover(struct pst_order_states *s);
PST_MUST_USE pst_rc pst_order_legend(struct pst_order_states *s);
PST_MUST_USE pst_rc pst_order_auto(struct pst_order_states *s);

/* The fewest swaps that any order can have (Marius, equation 2). */
int64_t pst_order_bound(int partitions, int buffer);

/* Fills bucket and cut from the states. PST_E_STATE: some pair of partitions is never in the buffer together.
 */
PST_MUST_USE pst_rc pst_order_schedule(struct pst_order *o);

/* Finds the place of partition p in a state; -1: it is not there. */
static inline int pst_order_place(const uint16_t *state, int buffer, int p)
{
    for (int i = 0; i < buffer; i++)
        if (state[i] == p)
            return i;
    return -1;
}

#endif
