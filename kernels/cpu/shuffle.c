/* shuffle.c: a permutation of 0..n-1. Many elements walk the network (kernels/feistel.h) side by side; an
 * element that has arrived makes room for the next. */
#include "kernels/feistel.h"

#include "kernels/cpu/clones.h"
#include "kernels/kernels.h"

enum { LANES = 256 }; /* elements that walk at the same time */

struct walk {
    struct pst_k_shuffle_network network;
    uint64_t n;
    int lanes; /* in use */
    uint32_t left[LANES], right[LANES];
    int64_t element[LANES];
};

/* One step of every lane: once through the network. */
PST_CPU_CLONES static void step(struct walk *w)
{
    const uint32_t half_bits = w->network.half_bits, mask = (uint32_t)(((uint64_t)1 << half_bits) - 1),
                   down = 32 - half_bits;
    uint32_t *restrict left = w->left, *restrict right = w->right;
    for (int r = 0; r < PST_K_SHUFFLE_ROUNDS; r++) {
        const uint32_t key = w->network.keys[r];
        for (int i = 0; i < LANES; i++) {
            const uint32_t next = left[i] ^ ((pst_k_shuffle_round(right[i], key) >> down) & mask);
            left[i] = right[i];
            right[i] = next;
        }
    }
}

/* Writes the lanes that have arrived, and closes up the others. */
static void arrive(struct walk *w, int64_t *perm)
{
    int kept = 0;
    for (int i = 0; i < w->lanes; i++) {
        const uint64_t x = (uint64_t)w->left[i] << w->network.half_bits | w->right[i];
        const int64_t element = w->element[i];
        perm[element] = (int64_t)x; /* overwritten later if it has not arrived */
        w->left[kept] = w->left[i];
        w->right[kept] = w->right[i];
        w->element[kept] = element;
        kept += x >= w->n;
    }
    w->lanes = kept;
}

void pst_k_shuffle(struct pst_queue *q, uint64_t seed, uint64_t epoch, int64_t *perm, int64_t n)
{
    assert(q == NULL && n >= 0);
    (void)q;
    struct walk w = {.network = pst_k_shuffle_network_of(seed, epoch, n), .n = (uint64_t)n};
    const uint32_t half_bits = w.network.half_bits;
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    int64_t next = 0;
    while (next < n || w.lanes > 0) {
        for (; w.lanes < LANES && next < n; w.lanes++, next++) {
            w.left[w.lanes] = (uint32_t)((uint64_t)next >> half_bits);
            w.right[w.lanes] = (uint32_t)((uint64_t)next & mask);
            w.element[w.lanes] = next;
        }
        step(&w);
        arrive(&w, perm);
    }
}
