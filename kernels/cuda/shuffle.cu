/* shuffle.cu: a permutation of 0..n-1 by the network of kernels/feistel.h. Each thread walks for one element.
 */
#include "kernels/feistel.h"

#include "kernels/cuda/queue.cuh"

namespace
{
__global__ void __launch_bounds__(PST_CU_THREADS) shuffle(pst_k_shuffle_network w, int64_t *perm, int64_t n)
{
    const uint32_t mask = (uint32_t)(((uint64_t)1 << w.half_bits) - 1), down = 32 - w.half_bits;
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        uint64_t x = (uint64_t)i;
        do {
            uint32_t left = (uint32_t)(x >> w.half_bits), right = (uint32_t)x & mask;
#pragma unroll
            for (int r = 0; r < PST_K_SHUFFLE_ROUNDS; r++) {
                const uint32_t next = left ^ ((pst_k_shuffle_round(right, w.keys[r]) >> down) & mask);
                left = right;
                right = next;
            }
            x = (uint64_t)left << w.half_bits | right;
        } while (x >= (uint64_t)n);
        perm[i] = (int64_t)x;
    }
}
} // namespace

void pst_k_shuffle(struct pst_queue *q, uint64_t seed, uint64_t epoch, int64_t *perm, int64_t n)
{
    assert(n >= 0);
    const pst_k_shuffle_network w = pst_k_shuffle_network_of(seed, epoch, n);
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(shuffle, w, perm, n);
}
