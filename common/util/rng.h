/* rng.h: counter-based random numbers, the same on host and device. A number is a pure function of its
 * purpose (use, seed, epoch, batch, index, item), so every thread, process and device draws the same number.
 * There is no state and no owner.
 *
 * The generator is Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011, section 3.3. */
#ifndef PST_RNG_H
#define PST_RNG_H

#include "common/base.h"

struct pst_rng_block {
    uint32_t word[4];
};

static PST_HD struct pst_rng_block pst_rng_philox(struct pst_rng_block counter, uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * counter.word[0];
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * counter.word[2];
        counter.word[0] = (uint32_t)(p1 >> 32) ^ counter.word[1] ^ key0;
        counter.word[2] = (uint32_t)(p0 >> 32) ^ counter.word[3] ^ key1;
        counter.word[1] = (uint32_t)p1;
        counter.word[3] = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* The purpose of random numbers. Streams of different uses are independent. */
enum pst_rng_use {
    PST_RNG_SAMPLE = 1,    /* index: hop */
    PST_RNG_DROPOUT = 2,   /* index: layer */
    PST_RNG_SHUFFLE = 3,   /* index 1: of the device that `batch` numbers */
    PST_RNG_INIT = 4,      /* index: tensor */
    PST_RNG_ATTENTION = 5, /* index: layer */
    PST_RNG_NEGATIVE = 6,  /* index: twice the chunk, plus the side */
    PST_RNG_PARTITION = 7, /* index: 0 permutation's rounds, 1 epoch's partitions, 2 edges, 3 seeds */
    PST_RNG_RANK =
        8, /* candidates of sampled ranks; batch: first edge; index: twice the part, plus the side */
    PST_RNG_GROUP = 9,  /* index: hop; batch: a group of batches, counted over the run; epoch: 0 */
    PST_RNG_EVICT = 10, /* epoch: micro-batch; item: the vertex that needs a line */
    PST_RNG_HOTNESS = 11,
    PST_RNG_PAIRS = 12, /* item: the edge whose negatives are drawn; block: its draws */
};

/* The key of a stream: everything that is constant over a kernel call, hashed to 96 bits. */
struct pst_rng_stream {
    uint32_t key[2];
    uint32_t salt;
};

static PST_HD struct pst_rng_stream pst_rng_stream_of(enum pst_rng_use use, uint64_t seed, uint32_t epoch,
                                                      uint64_t batch, uint32_t index)
{
    assert(index < (1u << 24));
    const struct pst_rng_block in = {
        {epoch, (uint32_t)batch, (uint32_t)(batch >> 32), ((uint32_t)use << 24) | index}};
    const struct pst_rng_block out = pst_rng_philox(in, (uint32_t)seed, (uint32_t)(seed >> 32));
    const struct pst_rng_stream stream = {{out.word[0], out.word[1]}, out.word[2]};
    return stream;
}

/* Returns 128 random bits for (item, block), for example a vertex and a group of draws or columns. */
static PST_HD struct pst_rng_block pst_rng_draw(const struct pst_rng_stream *stream, uint64_t item,
                                                uint32_t block)
{
    const struct pst_rng_block in = {{(uint32_t)item, (uint32_t)(item >> 32), block, stream->salt}};
    return pst_rng_philox(in, stream->key[0], stream->key[1]);
}

/* The high 64 bits of a product: maps 64 random bits to 0..bound-1 with a bias below bound / 2^64. */
static PST_HD uint64_t pst_rng_bounded(uint64_t bits, uint64_t bound)
{
#ifdef __CUDA_ARCH__
    return __umul64hi(bits, bound);
#else
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)bits * bound) >> 64);
#endif
}

/* The first (0) or second (1) 64 bits of a draw. */
static PST_HD uint64_t pst_rng_u64(const struct pst_rng_block *draw, int half)
{
    return draw->word[2 * half] | ((uint64_t)draw->word[2 * half + 1] << 32);
}

/* A real in [0, 1) from 32 bits. */
static PST_HD double pst_rng_unit(uint32_t bits)
{
    return (double)bits * (1.0 / 4294967296.0);
}

#endif
