/* gather.cu: copies rows within GPU memory, from pinned host memory, which it reads in place, or to it;
 * hashes arrays that it copies. A warp (for short rows, a part of one) copies ROWS_AT_ONCE rows at once, in
 * the widest pieces that all addresses allow, and makes all loads before the first store. Registers leave
 * room for at least 768 threads on a multiprocessor, each with four loads of 16 bytes: 48 KiB in flight. Its
 * share of bandwidth times latency on Hopper, 25 GB/s by 0.7 us, is below 20 KiB. */
#include "kernels/cuda/queue.cuh"
#include "kernels/digest.h"

namespace
{
enum { ROWS_AT_ONCE = 4 };

struct gathering {
    const char *src;
    char *dst;
    uint64_t src_stride, dst_stride, row_bytes;
    const int32_t *src_row, *dst_pos;
    struct pst_twin_n n;
    int32_t *status;
};

struct tiers : gathering {
    uintptr_t far; /* where row 0 would be if row near_rows and those after it were at their place */
    int64_t near_rows;
};

struct parts : gathering {
    int count;
    uintptr_t origin[PST_K_PARTS_MAX]; /* of each part: where row 0 would be */
    int64_t first[PST_K_PARTS_MAX];
};

__device__ __forceinline__ const char *row_at(const gathering &g, int64_t row)
{
    return g.src + (uint64_t)row * g.src_stride;
}

__device__ __forceinline__ const char *row_at(const tiers &g, int64_t row)
{
    const uint64_t at = (uint64_t)row * g.src_stride;
    return row >= g.near_rows ? reinterpret_cast<const char *>(g.far + at) : g.src + at;
}

/* Each comparison has constant operands besides the row: an index that varies would put the array into local
 * memory. */
__device__ __forceinline__ const char *row_at(const parts &g, int64_t row)
{
    uintptr_t origin = g.origin[0];
#pragma unroll
    for (int k = 1; k < PST_K_PARTS_MAX; k++)
        origin = k < g.count && row >= g.first[k] ? g.origin[k] : origin;
    return reinterpret_cast<const char *>(origin + (uint64_t)row * g.src_stride);
}

/* 2^shift lanes for each row, in pieces of type W. The rest of a row goes byte by byte. */
template <class W, int ROWS, class G>
__global__ void __launch_bounds__(PST_CU_THREADS, 3) gather(G g, int shift)
{
    const int64_t n = pst_cu_value(g.n, g.status);
    const unsigned lanes = 1u << shift, lane = threadIdx.x & (lanes - 1);
    const uint64_t pieces = g.row_bytes / sizeof(W);
    for (int64_t i = (pst_cu_first() >> shift) * ROWS; i < n; i += (pst_cu_step() >> shift) * ROWS) {
        const char *from[ROWS];
        char *to[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const int64_t at = i + k < n ? i + k : i; /* past the end: the first row once more */
            from[k] = row_at(g, g.src_row ? g.src_row[at] : at);
            to[k] = g.dst + (uint64_t)(g.dst_pos ? g.dst_pos[at] : at) * g.dst_stride;
            if (lane == 0 && i + k < n) {
                PST_CU_CROSSES(from[k], g.row_bytes);
                PST_CU_CROSSES(to[k], g.row_bytes);
            }
        }
        for (uint64_t p = lane; p < pieces; p += lanes) {
            W piece[ROWS];
#pragma unroll
            for (int k = 0; k < ROWS; k++)
                piece[k] = reinterpret_cast<const W *>(from[k])[p];
#pragma unroll
            for (int k = 0; k < ROWS; k++)
                if (i + k < n)
                    reinterpret_cast<W *>(to[k])[p] = piece[k];
        }
        for (uint64_t b = pieces * sizeof(W) + lane; b < g.row_bytes; b += lanes)
#pragma unroll
            for (int k = 0; k < ROWS; k++)
                if (i + k < n)
                    to[k][b] = from[k][b];
    }
}

/* Rows without gaps, in their order: one piece of memory, whose length only the device may know. The first
 * bytes go one by one, up to an address that W needs, and so do the last. */
template <class W> __global__ void __launch_bounds__(PST_CU_THREADS) flat(gathering g)
{
    const int64_t bytes = pst_cu_value(g.n, g.status) * (int64_t)g.row_bytes, first = pst_cu_first(),
                  step = pst_cu_step(),
                  head = min(bytes, (int64_t)(-reinterpret_cast<uintptr_t>(g.src) % sizeof(W))),
                  pieces = (bytes - head) / (int64_t)sizeof(W);
    const W *from = reinterpret_cast<const W *>(g.src + head);
    W *to = reinterpret_cast<W *>(g.dst + head);
    for (int64_t i = first; i < pieces; i += ROWS_AT_ONCE * step) {
        W piece[ROWS_AT_ONCE];
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++)
            piece[k] = from[i + k * step < pieces ? i + k * step : i];
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++)
            if (i + k * step < pieces)
                to[i + k * step] = piece[k];
    }
    if (first == 0) {
        PST_CU_CROSSES(g.src, (size_t)bytes);
        PST_CU_CROSSES(g.dst, (size_t)bytes);
    }
    for (int64_t i = first; i < head; i += step)
        g.dst[i] = g.src[i];
    for (int64_t i = head + pieces * (int64_t)sizeof(W) + first; i < bytes; i += step)
        g.dst[i] = g.src[i];
}

template <class W> void launch_flat(struct pst_queue *q, const gathering &g)
{
    const int64_t pieces = g.n.most * (int64_t)g.row_bytes / (int64_t)sizeof(W) + 1;
    pst_cu_on(q, pst_cu_grid(q, pieces, PST_CU_THREADS * ROWS_AT_ONCE))(flat<W>, g);
}

void gather_flat(struct pst_queue *q, const gathering &g)
{
    const uintptr_t apart =
        (uintptr_t)g.src ^ (uintptr_t)g.dst; /* its low bits: those in which they differ */
    if (apart % sizeof(uint4) == 0)
        launch_flat<uint4>(q, g);
    else if (apart % sizeof(uint32_t) == 0)
        launch_flat<uint32_t>(q, g);
    else
        launch_flat<uint8_t>(q, g);
}

template <class W, int ROWS, class G> void launch(struct pst_queue *q, const G &g)
{
    const uint64_t pieces = (g.row_bytes + sizeof(W) - 1) / sizeof(W);
    const int shift = pieces > 16 ? 5 : pieces > 8 ? 4 : 3;
    const unsigned blocks = pst_cu_grid(q, (g.n.most + ROWS - 1) / ROWS, PST_CU_THREADS >> shift);
    pst_cu_on(q, blocks)(gather<W, ROWS, G>, g, shift);
}

struct digesting {
    uint64_t array, *digest;
};

/* Adds the values of a block's threads to *to. */
__device__ __forceinline__ void add_of_block(uint64_t value, uint64_t *to)
{
    PST_CU_SHARED(uint64_t, of_warp, [PST_CU_THREADS / PST_CU_WARP]);
    for (int with = PST_CU_WARP / 2; with > 0; with /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, with);
    if (threadIdx.x % PST_CU_WARP == 0)
        of_warp[threadIdx.x / PST_CU_WARP] = value;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int w = 1; w < PST_CU_THREADS / PST_CU_WARP; w++)
        value += of_warp[w];
    if (value != 0)
        (void)atomicAdd(reinterpret_cast<unsigned long long *>(to), (unsigned long long)value);
}

union words_of_piece {
    uint4 piece;
    uint32_t word[4];
};

/* flat() that also hashes what it copies: in pieces of 16 bytes if both sides allow, and else (WORDS is 1) in
 * words. */
template <int WORDS> __global__ void __launch_bounds__(PST_CU_THREADS) flat_digest(gathering g, digesting d)
{
    const uint32_t *from = reinterpret_cast<const uint32_t *>(g.src);
    uint32_t *to = reinterpret_cast<uint32_t *>(g.dst);
    const int64_t words = pst_cu_value(g.n, g.status) * (int64_t)(g.row_bytes / sizeof *from),
                  first = pst_cu_first(), step = pst_cu_step();
    const int64_t head =
        WORDS == 1 ? words
                   : min(words, (int64_t)(-reinterpret_cast<uintptr_t>(from) % sizeof(uint4) / sizeof *from));
    const int64_t pieces = (words - head) / 4;
    uint64_t sum = 0;
    for (int64_t i = first; i < pieces; i += ROWS_AT_ONCE * step) {
        words_of_piece piece[ROWS_AT_ONCE];
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++)
            piece[k].piece =
                reinterpret_cast<const uint4 *>(from + head)[i + k * step < pieces ? i + k * step : i];
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++) {
            const int64_t at = i + k * step;
            if (at >= pieces)
                continue;
            if (to)
                reinterpret_cast<uint4 *>(to + head)[at] = piece[k].piece;
#pragma unroll
            for (int w = 0; w < 4; w++)
                sum += pst_k_digest_term(d.array, (uint64_t)(head + 4 * at + w), piece[k].word[w]);
        }
    }
    for (int64_t i = first; i < words - 4 * pieces; i += step) { /* the words before and behind the pieces */
        const int64_t at = i < head ? i : i + 4 * pieces;
        const uint32_t word = from[at];
        if (to)
            to[at] = word;
        sum += pst_k_digest_term(d.array, (uint64_t)at, word);
    }
    if (first == 0) {
        PST_CU_CROSSES(from, (size_t)words * sizeof *from);
        if (to)
            PST_CU_CROSSES(to, (size_t)words * sizeof *to);
    }
    add_of_block(sum, d.digest);
}

/* sources: the addresses of all memory that rows come from, one upon the other. */
template <class G> void gather_rows(struct pst_queue *q, const G &g, uintptr_t sources)
{
    assert(g.n.most >= 0 && g.n.most <= INT32_MAX);
    const uint64_t all = (uint64_t)sources | (uint64_t)(uintptr_t)g.dst | g.src_stride | g.dst_stride;
    if (g.row_bytes == 0)
        return;
    if (all % 16 == 0)
        launch<uint4, ROWS_AT_ONCE>(q, g);
    else if (all % 4 == 0)
        launch<uint32_t, ROWS_AT_ONCE>(q, g);
    else
        launch<uint8_t, 1>(q, g);
}

void gather_one(struct pst_queue *q, const gathering &g)
{
    if (g.row_bytes > 0 && !g.src_row && !g.dst_pos && g.src_stride == g.row_bytes &&
        g.dst_stride == g.row_bytes)
        gather_flat(q, g);
    else
        gather_rows(q, g, (uintptr_t)g.src);
}
} // namespace

void pst_kn_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                   void *dst, uint64_t dst_stride, const int32_t *dst_pos, struct pst_twin_n n,
                   uint64_t row_bytes)
{
    gather_one(q, {static_cast<const char *>(src), static_cast<char *>(dst), src_stride, dst_stride,
                   row_bytes, src_row, dst_pos, n, q->status});
}

void pst_kn_gather_tiers(struct pst_queue *q, const struct pst_twin_tiers *src, uint64_t src_stride,
                         const int32_t *src_row, void *dst, uint64_t dst_stride, const int32_t *dst_pos,
                         struct pst_twin_n n, uint64_t row_bytes)
{
    const char *near = static_cast<const char *>(src->near), *far = static_cast<const char *>(src->far);
    const gathering g = {
        near ? near : far, static_cast<char *>(dst), src_stride, dst_stride, row_bytes, src_row, dst_pos, n,
        q->status};
    const uintptr_t far_origin = (uintptr_t)far - (uint64_t)src->near_rows * src_stride;
    if (near && far)
        gather_rows(q, tiers{g, far_origin, src->near_rows}, (uintptr_t)near | far_origin);
    else
        gather_one(q, g);
}

void pst_kn_gather_parts(struct pst_queue *q, const struct pst_k_row_parts *src, uint64_t src_stride,
                         const int32_t *src_row, void *dst, uint64_t dst_stride, const int32_t *dst_pos,
                         struct pst_twin_n n, uint64_t row_bytes)
{
    parts g = {
        {NULL, static_cast<char *>(dst), src_stride, dst_stride, row_bytes, src_row, dst_pos, n, q->status},
        src->n,
        {},
        {}};
    uintptr_t sources = 0;
    assert(src->n >= 1 && src->n <= PST_K_PARTS_MAX && src_row);
    for (int k = 0; k < src->n; k++) {
        g.first[k] = src->first[k];
        g.origin[k] = (uintptr_t)src->rows[k] - (uint64_t)src->first[k] * src_stride;
        sources |= (uintptr_t)src->rows[k];
    }
    gather_rows(q, g, sources);
}

void pst_k_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                  void *dst, uint64_t dst_stride, const int32_t *dst_pos, int64_t n, uint64_t row_bytes)
{
    pst_kn_gather(q, src, src_stride, src_row, dst, dst_stride, dst_pos, {NULL, n}, row_bytes);
}

void pst_kn_copy_digest(struct pst_queue *q, const void *src, void *dst, struct pst_twin_n n,
                        uint64_t item_bytes, uint64_t array, uint64_t *digest)
{
    const uintptr_t apart = dst ? (uintptr_t)src ^ (uintptr_t)dst : 0;
    assert(n.most >= 0 && n.most <= INT32_MAX && item_bytes % sizeof(uint32_t) == 0 &&
           ((uintptr_t)src | apart) % sizeof(uint32_t) == 0);
    const gathering g = {static_cast<const char *>(src),
                         static_cast<char *>(dst),
                         item_bytes,
                         item_bytes,
                         item_bytes,
                         NULL,
                         NULL,
                         n,
                         q->status};
    const int64_t words = n.most * (int64_t)(item_bytes / sizeof(uint32_t));
    if (apart % sizeof(uint4) == 0)
        pst_cu_on(q, pst_cu_grid(q, words / 4 + 1, PST_CU_THREADS * ROWS_AT_ONCE))(flat_digest<4>, g,
                                                                                   digesting{array, digest});
    else
        pst_cu_on(q, pst_cu_grid(q, words, PST_CU_THREADS))(flat_digest<1>, g, digesting{array, digest});
}

void pst_k_copy_digest(struct pst_queue *q, const void *src, void *dst, int64_t n, uint64_t item_bytes,
                       uint64_t array, uint64_t *digest)
{
    pst_kn_copy_digest(q, src, dst, {NULL, n}, item_bytes, array, digest);
}
