/* floyd.h: draws positions in a list. Without replacement it is Floyd's algorithm (Bentley & Floyd, "A sample
 * of brilliance", CACM 30(9), 1987): it makes exactly `fanout` draws whatever the degree, and draw s needs
 * only its own random number and the draws before it.
 * Owner: none. Threads: any. */
#ifndef PST_CPU_FLOYD_H
#define PST_CPU_FLOYD_H

#include "common/util/rng.h"
#include "kernels/kernels.h"

enum {
    PST_CPU_LIST_SCAN_MAX = 32 /* with more draws, a hash set is faster than scanning the earlier draws */
};

/* The random number of draw s. Two draws share a block, which is kept between calls. */
static inline uint64_t pst_cpu_list_draw_bits(const struct pst_rng_stream *stream, int64_t vertex, int slot,
                                              struct pst_rng_block *pair)
{
    if (slot % 2 == 0)
        *pair = pst_rng_draw(stream, (uint64_t)vertex, (uint32_t)(slot / 2));
    return pst_rng_u64(pair, slot % 2);
}

static inline void pst_cpu_list_draw_repeats(const struct pst_rng_stream *stream, int64_t vertex,
                                             int64_t degree, int k, int64_t *pos)
{
    struct pst_rng_block pair;
    for (int s = 0; s < k; s++)
        pos[s] = (int64_t)pst_rng_bounded(pst_cpu_list_draw_bits(stream, vertex, s, &pair), (uint64_t)degree);
}

static inline void pst_cpu_list_draw_few(const struct pst_rng_stream *stream, int64_t vertex, int64_t degree,
                                         int k, int64_t *pos)
{
    struct pst_rng_block pair;
    for (int s = 0; s < k; s++) {
        const int64_t last = degree - k + s;
        int64_t pick =
            (int64_t)pst_rng_bounded(pst_cpu_list_draw_bits(stream, vertex, s, &pair), (uint64_t)last + 1);
        for (int i = 0; i < s; i++) {
            if (pos[i] == pick) {
                pick = last;
                break;
            }
        }
        pos[s] = pick;
    }
}

/* Is the value in the set? If not, adds it. Empty places hold -1. */
static inline bool pst_cpu_list_draw_add(int64_t *set, uint64_t mask, int64_t value)
{
    uint64_t at = ((uint64_t)value * 0x9E3779B97F4A7C15ull) >> 40;
    for (;; at++) {
        if (set[at & mask] == value)
            return true;
        if (set[at & mask] < 0)
            break;
    }
    set[at & mask] = value;
    return false;
}

static inline void pst_cpu_list_draw_many(const struct pst_rng_stream *stream, int64_t vertex, int64_t degree,
                                          int k, int64_t *pos)
{
    int64_t set[2 * PST_FANOUT_MAX];
    uint64_t size = 1;
    while (size < 2 * (uint64_t)k)
        size *= 2;
    for (uint64_t i = 0; i < size; i++)
        set[i] = -1;
    struct pst_rng_block pair;
    for (int s = 0; s < k; s++) {
        const int64_t last = degree - k + s;
        pos[s] =
            (int64_t)pst_rng_bounded(pst_cpu_list_draw_bits(stream, vertex, s, &pair), (uint64_t)last + 1);
        if (pst_cpu_list_draw_add(set, size - 1, pos[s])) {
            pos[s] = last;
            (void)pst_cpu_list_draw_add(set, size - 1, last);
        }
    }
}

/* Writes the positions of the chosen edges in a list of `degree` edges. Returns how many, or an error. */
static inline int64_t pst_cpu_list_draw_positions(const struct pst_rng_stream *stream, int64_t vertex,
                                                  int64_t degree, int fanout, bool replace, int64_t *pos,
                                                  int64_t room)
{
    const bool all = fanout < 0 || (!replace && degree <= fanout);
    const int64_t taken = degree == 0 ? 0 : all ? degree : fanout;
    if (taken > room)
        return PST_E_LIMIT;
    if (taken == 0)
        return 0;
    if (all) {
        for (int64_t s = 0; s < taken; s++)
            pos[s] = s;
    } else if (replace) {
        pst_cpu_list_draw_repeats(stream, vertex, degree, fanout, pos);
    } else if (fanout <= PST_CPU_LIST_SCAN_MAX) {
        pst_cpu_list_draw_few(stream, vertex, degree, fanout, pos);
    } else {
        pst_cpu_list_draw_many(stream, vertex, degree, fanout, pos);
    }
    return taken;
}

#endif
