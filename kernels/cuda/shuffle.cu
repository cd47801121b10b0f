/* shuffle.cu: the CPU's Feistel network (kernels.h), an element a thread: each walks its cycle alone. */
#include "kernels/cuda/queue.cuh"

namespace
{
enum { ROUNDS = 8 }; /* as in the CPU's */

struct network {
    uint32_t keys[ROUNDS];
    uint32_t half_bits;
};

__device__ __forceinline__ uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ (x >> 16);
}

__global__ void __launch_bounds__(PST_CU_THREADS) shuffle(network w, int64_t *perm, int64_t n)
{
    const uint32_t mask = (uint32_t)(((uint64_t)1 << w.half_bits) - 1), down = 32 - w.half_bits;
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        uint64_t x = (uint64_t)i;
        do {
            uint32_t left = (uint32_t)(x >> w.half_bits), right = (uint32_t)x & mask;
#pragma unroll
            for (int r = 0; r < ROUNDS; r++) {
                const uint32_t next = left ^ ((mix(right * 0x9E3779B1u + w.keys[r]) >> down) & mask);
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
    network w = {{}, 1};
    while (w.half_bits < 31 && (uint64_t)1 << (2 * w.half_bits) < (uint64_t)n)
        w.half_bits++;
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_SHUFFLE, seed, 0, epoch, 0);
    for (int r = 0; r < ROUNDS; r++)
        w.keys[r] = pst_rng_draw(&stream, (uint64_t)(r / 4), 0).word[r % 4];
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(shuffle, w, perm, n);
}
