/* order.h: the order in which blocks and threads run.
 * Owner: none; plain values. Threads: one for each launch. */
#ifndef PST_HOST_ORDER_H
#define PST_HOST_ORDER_H

#include <cstdint>

/* Items 0..n-1 in an order that belongs to this launch: from some item on, in steps that meet each item
 * once. */
struct pst_cu_host_order {
    uint64_t n, at, step;
    pst_cu_host_order(uint64_t n_, uint64_t seed) : n(n_), at(0), step(1)
    {
        const uint64_t mixed = seed * 0x9E3779B97F4A7C15ull;
        at = n ? (mixed >> 33) % n : 0;
        const uint64_t steps[] = {1, n - 1, 7919, 1000003};
        step = steps[mixed >> 62];
        for (uint64_t a = step, b = n;
             n > 1;) { /* in ascending order, unless step and n have no common factor */
            const uint64_t rest = a % b;
            if (rest == 0) {
                step = b == 1 ? step % n : 1;
                break;
            }
            a = b;
            b = rest;
        }
    }
    uint64_t next()
    {
        const uint64_t item = at;
        at = n ? (at + step) % n : 0;
        return item;
    }
};

#endif
