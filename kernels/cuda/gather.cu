/* gather.cu: copies rows within GPU memory, from pinned host memory, which it reads in place, or to it. A
 * warp (for short rows, a part of one) copies ROWS_AT_ONCE rows at once, in the widest pieces that all
 * addresses allow, and makes all loads before the first store. Registers leave room for at least 768
 * threads on a multiprocessor, each with four loads of 16 bytes: 48 KiB in flight. Its share of bandwidth
 * times latency on Hopper, 25 GB/s by 0.7 us, is below 20 KiB. */
#include "kernels/cuda/queue.cuh"

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
    uintptr_t
        far; /* of two tiers: where row 0 would be if row near_rows and those after it were at their place */
    int64_t near_rows;
};

template <bool TIERS> __device__ __forceinline__ const char *row_at(const gathering &g, int64_t row)
{
    const uint64_t at = (uint64_t)row * g.src_stride;
    return TIERS && row >= g.near_rows ? reinterpret_cast<const char *>(g.far + at) : g.src + at;
}

/* 2^shift lanes for each row, in pieces of type W. The rest of a row goes byte by byte. */
template <class W, int ROWS, bool TIERS>
__global__ void __launch_bounds__(PST_CU_THREADS, 3) gather(gathering g, int shift)
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
            from[k] = row_at<TIERS>(g, g.src_row ? g.src_row[at] : at);
            to[k] = g.dst + (uint64_t)(g.dst_pos ? g.dst_pos[at] : at) * g.dst_stride;
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

template <class W, int ROWS, bool TIERS> void launch(struct pst_queue *q, const gathering &g)
{
    const uint64_t pieces = (g.row_bytes + sizeof(W) - 1) / sizeof(W);
    const int shift = pieces > 16 ? 5 : pieces > 8 ? 4 : 3;
    const unsigned blocks = pst_cu_grid(q, (g.n.most + ROWS - 1) / ROWS, PST_CU_THREADS >> shift);
    pst_cu_on(q, blocks)(gather<W, ROWS, TIERS>, g, shift);
}

template <bool TIERS> void gather_rows(struct pst_queue *q, const gathering &g)
{
    assert(g.n.most >= 0 && g.n.most <= INT32_MAX);
    const uint64_t all = (uint64_t)(uintptr_t)g.src | (uint64_t)g.far | (uint64_t)(uintptr_t)g.dst |
                         g.src_stride | g.dst_stride;
    if (g.row_bytes == 0)
        return;
    if (!TIERS && !g.src_row && !g.dst_pos && g.src_stride == g.row_bytes && g.dst_stride == g.row_bytes)
        gather_flat(q, g);
    else if (all % 16 == 0)
        launch<uint4, ROWS_AT_ONCE, TIERS>(q, g);
    else if (all % 4 == 0)
        launch<uint32_t, ROWS_AT_ONCE, TIERS>(q, g);
    else
        launch<uint8_t, 1, TIERS>(q, g);
}
} // namespace

void pst_kn_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                   void *dst, uint64_t dst_stride, const int32_t *dst_pos, struct pst_twin_n n,
                   uint64_t row_bytes)
{
    gather_rows<false>(q, {static_cast<const char *>(src), static_cast<char *>(dst), src_stride, dst_stride,
                           row_bytes, src_row, dst_pos, n, q->status, 0, 0});
}

void pst_kn_gather_tiers(struct pst_queue *q, const struct pst_twin_tiers *src, uint64_t src_stride,
                         const int32_t *src_row, void *dst, uint64_t dst_stride, const int32_t *dst_pos,
                         struct pst_twin_n n, uint64_t row_bytes)
{
    const char *near = static_cast<const char *>(src->near), *far = static_cast<const char *>(src->far);
    const gathering g = {
        near ? near : far, static_cast<char *>(dst),
        src_stride,        dst_stride,
        row_bytes,         src_row,
        dst_pos,           n,
        q->status,         reinterpret_cast<uintptr_t>(far) - (uint64_t)src->near_rows * src_stride,
        src->near_rows};
    if (near && far)
        gather_rows<true>(q, g);
    else
        gather_rows<false>(q, g);
}

void pst_k_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                  void *dst, uint64_t dst_stride, const int32_t *dst_pos, int64_t n, uint64_t row_bytes)
{
    pst_kn_gather(q, src, src_stride, src_row, dst, dst_stride, dst_pos, {NULL, n}, row_bytes);
}
