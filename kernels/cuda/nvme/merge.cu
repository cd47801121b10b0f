/* merge.cu: staged requests of a table whose blocks touch share a read (nvme.h). They are sorted by the place
 * of their blocks. A read goes on as long as the next request's blocks begin in it or right behind it. Reads
 * are cut at windows of blocks, by the block in which a request begins, so that none is too long. Blocks that
 * the last requests of a window share with the next window are read twice.
 *
 * A read's piece of staging begins where the piece of its first request would begin if each request had one,
 * in sorted order. So a read needs no more staging than its requests would. Equal keys keep the table's
 * order, so the same table always makes the same reads. */
#include "kernels/cuda/nvme/nvme.cuh"

#include <cub/cub.cuh>

namespace
{
__device__ __forceinline__ uint64_t block_of(const struct pst_cu_nvme_merge &m, uint64_t key)
{
    return key & (((uint64_t)1 << m.block_bits) - 1);
}

/* The end of a request's own blocks. */
struct reach_of {
    using value = struct pst_cu_nvme_reach;
    struct pst_cu_nvme_merge m;
    const struct pst_nvme_io *raw;
    __device__ value operator()(int64_t i) const
    {
        const struct pst_nvme_io &io = raw[m.order[i]];
        return {m.sorted[i] >> m.window_bits, io.lba + (io.bytes >> io.lba_shift)};
    }
};

struct farthest {
    __host__ __device__ struct pst_cu_nvme_reach operator()(const struct pst_cu_nvme_reach &a,
                                                            const struct pst_cu_nvme_reach &b) const
    {
        return {b.window, a.window == b.window && a.end > b.end ? a.end : b.end};
    }
};

__device__ bool begins(const struct pst_cu_nvme_merge &m, int64_t i)
{
    return i == 0 || m.reach[i - 1].window != m.reach[i].window ||
           m.reach[i - 1].end < block_of(m, m.sorted[i]);
}

struct run_of {
    using value = struct pst_cu_nvme_run;
    struct pst_cu_nvme_merge m;
    __device__ value operator()(int64_t i) const
    {
        return begins(m, i) ? value{1, (uint32_t)i} : value{0, 0};
    }
};

struct latest {
    __host__ __device__ struct pst_cu_nvme_run operator()(const struct pst_cu_nvme_run &a,
                                                          const struct pst_cu_nvme_run &b) const
    {
        return {a.count + b.count, a.first > b.first ? a.first : b.first};
    }
};

/* Gives each request the read that it belongs to, and its place there. The last request of a read makes the
 * command, which counts as the first one's. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    join(struct pst_cu_nvme_view v, uint32_t first, uint32_t n, uint32_t ssds, uint32_t queues_each)
{
    const struct pst_cu_nvme_merge m = v.merge;
    const struct pst_k_nvme_layout &l = *v.layout;
    for (int64_t i = pst_cu_first(); i < n && m.sorted[i] < pst_cu_nvme_not_staged(m); i += pst_cu_step()) {
        const struct pst_cu_nvme_run run = m.runs[i];
        const uint64_t begin = block_of(m, m.sorted[run.first]);
        const uint64_t piece = ((uint64_t)first + run.first) * l.staging_each;
        struct pst_cu_nvme_landing *to = &v.landings[first + m.order[i]];
        to->lead = m.order[run.first];
        to->from += piece + ((block_of(m, m.sorted[i]) - begin) << l.lba_shift);
        if (i + 1 < n && !begins(m, i + 1))
            continue;
        struct pst_nvme_io *io = &v.raw[to->lead];
        const uint32_t ssd = (uint32_t)(m.sorted[i] >> m.block_bits) % ssds;
        io->iova = l.staging_iova[ssd] + piece;
        io->bytes = (uint32_t)((m.reach[i].end - begin) << l.lba_shift);
        io->queue = (uint16_t)(ssd * queues_each + run.count % queues_each);
        (void)atomicAdd(&v.cursor[io->queue], 1u);
    }
}

bool sort(struct pst_queue *q, const struct pst_cu_nvme_merge &m, void *temp, size_t *bytes, int64_t n)
{
    const int bits = (int)(m.block_bits + m.place_bits + 1);
    return pst_cu_checked(q, cub::DeviceRadixSort::SortPairs(temp, *bytes, m.key, m.sorted, m.number, m.order,
                                                             n, 0, bits, q->stream));
}

template <class F, class T, class Op>
bool scan(struct pst_queue *q, void *temp, size_t *bytes, F f, T *out, Op op, int64_t n)
{
    const pst_cu_input<F> in = {f, 0};
    return pst_cu_checked(q, cub::DeviceScan::InclusiveScan(temp, *bytes, in, out, op, n, q->stream));
}

uint32_t bits_of(uint64_t n)
{
    uint32_t bits = 0;
    for (; n > 0; n >>= 1)
        bits++;
    return bits;
}

/* No row begins in a block behind this one: the rows of a file follow each other, on one SSD or on several.
 */
uint64_t last_block(const struct pst_k_nvme_layout *l)
{
    uint64_t base = 0, most = 0;
    for (const struct pst_extent &file : l->files)
        base = file.base > base ? file.base : base;
    for (const struct pst_request_array &a : l->arrays) {
        const uint64_t end = a.rows * a.rows_in.unit + a.rows_in.base + base;
        most = end > most ? end : most;
    }
    return most >> l->lba_shift;
}
} // namespace

/* How many files there are, up to the last one on the SSDs. */
uint32_t files_of(const struct pst_k_nvme_layout *l)
{
    uint32_t n = PST_REQUEST_FILES_MAX;
    while (n > 1 && l->files[n - 1].over == 0)
        n--;
    return n;
}

pst_rc pst_cu_nvme_merge_plan(struct pst_queue *q, const struct pst_k_nvme_layout *l, uint32_t ssds,
                              int64_t most, struct pst_cu_nvme_merge *m)
{
    const uint32_t each = l->staging_each >> l->lba_shift, merge = l->merge_bytes >> l->lba_shift;
    size_t bytes[3] = {0};
    if (each == 0)
        return PST_OK;
    assert(merge >= each && l->merge_bytes <= l->transfer_bytes);
    m->place_bits = bits_of((uint64_t)files_of(l) * ssds - 1);
    m->block_bits = bits_of(last_block(l));
    assert(m->block_bits + m->place_bits < 64); /* the limit of layouts (nvme.h) makes sure of this */
    /* a read may begin with a window's first block and end with a request that begins in its last block */
    m->window_bits = (uint32_t)pst_min_i64(bits_of(merge - each + 1) - 1, m->block_bits);
    if (sort(q, *m, NULL, &bytes[0], most) &&
        scan(q, NULL, &bytes[1], reach_of{*m, NULL}, m->reach, farthest(), most) &&
        scan(q, NULL, &bytes[2], run_of{*m}, m->runs, latest(), most))
        for (size_t needed : bytes)
            m->temp_bytes = needed > m->temp_bytes ? needed : m->temp_bytes;
    return q->rc;
}

void pst_cu_nvme_merge(struct pst_k_nvme_drive *d, uint32_t first, uint32_t n)
{
    struct pst_queue *q = d->o.queue;
    const struct pst_cu_nvme_merge &m = d->view.merge;
    size_t bytes = m.temp_bytes;
    if (sort(q, m, m.temp, &bytes, n) &&
        scan(q, m.temp, &bytes, reach_of{m, d->view.raw}, m.reach, farthest(), n) &&
        scan(q, m.temp, &bytes, run_of{m}, m.runs, latest(), n))
        pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(join, d->view, first, n, d->o.ssds, d->o.queues_each);
}
