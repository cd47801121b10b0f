/* vertices.c: sorts by the highest byte in which ids differ, in place, and then each group by the next byte.
 */
#include "common/store/vertices.h"

enum {
    FEW = 48, /* ids that are inserted one by one */
    DIGITS = 256,
    DIGIT_BITS = 8,
};

static void insert_all(int64_t *ids, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const int64_t id = ids[i];
        int64_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* With the sign turned, so that negative ids of a damaged file come first. */
static unsigned digit_of(int64_t id, int shift)
{
    return (unsigned)(((uint64_t)id ^ (uint64_t)1 << 63) >> shift) & (DIGITS - 1);
}

/* Moves each id to the group of its digit. end[d]: where group d ends. */
static void permute(int64_t *ids, int64_t n, int shift, int64_t end[DIGITS])
{
    int64_t at[DIGITS] = {0}, sum = 0; /* where the next id of each group goes */
    for (int64_t i = 0; i < n; i++)
        at[digit_of(ids[i], shift)]++;
    for (int d = 0; d < DIGITS; d++) {
        const int64_t count = at[d];
        at[d] = sum;
        end[d] = sum += count;
    }
    for (unsigned d = 0; d < DIGITS; d++) {
        while (at[d] < end[d]) {
            int64_t id = ids[at[d]];
            for (unsigned to; (to = digit_of(id, shift)) != d;) {
                const int64_t other = ids[at[to]];
                ids[at[to]++] = id;
                id = other;
            }
            ids[at[d]++] = id;
        }
    }
}

/* Ids that differ only in bits below shift + DIGIT_BITS. It calls itself at most 7 times deep. */
static void sort_from(int64_t *ids, int64_t n, int shift)
{
    if (n <= FEW) {
        insert_all(ids, n);
        return;
    }
    int64_t end[DIGITS];
    permute(ids, n, shift, end);
    for (int d = 0; shift > 0 && d < DIGITS; d++) {
        const int64_t begin = d > 0 ? end[d - 1] : 0;
        sort_from(ids + begin, end[d] - begin, shift > DIGIT_BITS ? shift - DIGIT_BITS : 0);
    }
}

void pst_vertices_sort(int64_t *ids, int64_t n)
{
    uint64_t differ = 0;
    bool sorted = true;
    for (int64_t i = 1; i < n; i++) {
        differ |= (uint64_t)(ids[i] ^ ids[0]);
        sorted &= ids[i] >= ids[i - 1];
    }
    if (sorted)
        return;
    const int bits = 64 - __builtin_clzll(differ);
    sort_from(ids, n, bits > DIGIT_BITS ? bits - DIGIT_BITS : 0);
}
