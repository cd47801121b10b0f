/* table.cu: tables of disk requests, as they stand in their slots (nvme.h): judged, made into commands that
 * are grouped by queue. After the reads, staged rows are copied to their places. */
#include "kernels/cuda/nvme/nvme.cuh"

namespace
{
enum verdict { WRONG, LEFT, COMMAND, STAGED };

struct table {
    struct pst_k_nvme_table of;
    uint32_t batch, ssds, queues_each;
};

/* Reads two words once; in one piece if they are aligned to 16 bytes. */
__device__ __forceinline__ void load_two(const uint64_t *from, uint64_t *to)
{
#ifndef PST_HOST_BUILD
    if ((uintptr_t)from % 16 == 0) {
        asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];" : "=l"(to[0]), "=l"(to[1]) : "l"(from) : "memory");
        return;
    }
#endif
    to[0] = pst_cu_load(&from[0]);
    to[1] = pst_cu_load(&from[1]);
}

/* Reads a request once, because another process may be writing to it. */
__device__ __forceinline__ struct pst_request take(const struct pst_k_nvme_table &t, uint32_t i)
{
    const uint64_t *from = reinterpret_cast<const uint64_t *>(t.slot + t.at) + (size_t)i * 4;
    uint64_t words[4];
    static_assert(sizeof words == sizeof(struct pst_request), "a request is four words");
    for (int k = 0; k < 4; k += 2)
        load_two(&from[k], &words[k]);
    struct pst_request r;
    memcpy(&r, words, sizeof r);
    return r;
}

__device__ verdict judge(const struct pst_k_nvme_layout &l, const table &t, uint32_t i,
                         struct pst_nvme_io *io, struct pst_cu_nvme_landing *landing, uint64_t *place)
{
    const struct pst_request r = take(t.of, i);
    if (pst_request_judge(&r, l.arrays, l.writable, t.of.slot_bytes) != PST_REQUEST_RIGHT)
        return WRONG;
    const struct pst_request_array &a = l.arrays[r.array];
    const uint64_t bytes = r.rows * a.rows_in.unit, block = (uint64_t)1 << l.lba_shift;
    struct pst_extent_place in_file, on_ssd;
    if (r.op != PST_REQUEST_READ || !pst_extent_find(&a.rows_in, r.row * a.rows_in.unit, &in_file) ||
        bytes > in_file.run || !pst_extent_find(&l.files[in_file.place], in_file.at, &on_ssd) ||
        bytes > on_ssd.run)
        return LEFT;
    const uint32_t ssd = on_ssd.place;
    const uint64_t byte = on_ssd.at;
    const uint64_t first = byte & ~(block - 1), end = (byte + bytes + block - 1) & ~(block - 1);
    const uint64_t straight = t.of.iova[ssd] + r.offset;
    const bool fits = first == byte && end == byte + bytes && straight % 4 == 0;
    if (end - first > l.transfer_bytes || (!fits && end - first > l.staging_each))
        return LEFT;
    *landing = {fits ? NULL : t.of.slot + r.offset,
                l.staging + (byte - first),
                (uint32_t)bytes,
                r.rows,
                r.rows * a.wanted_bytes,
                i};
    *place = (uint64_t)in_file.place * t.ssds + ssd;
    *io = {};
    io->lba = first >> l.lba_shift;
    io->iova = straight;
    io->bytes = (uint32_t)(end - first);
    io->nsid = l.files[in_file.place].nsid;
    io->queue = (uint16_t)(ssd * t.queues_each + i / t.ssds % t.queues_each);
    io->opcode = PST_NVME_READ;
    io->lba_shift = l.lba_shift;
    io->status = PST_K_NVME_PENDING;
    return fits ? COMMAND : STAGED;
}

/* Here and below, t.batch is the number of the batch's first command. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    look(struct pst_cu_nvme_view v, struct pst_cu_nvme_aimed *aimed, table t)
{
    for (int64_t i = pst_cu_first(); i < t.of.n; i += pst_cu_step()) {
        struct pst_nvme_io io = {};
        struct pst_cu_nvme_landing to = {};
        uint64_t place = 0;
        to.lead = PST_NVME_NOBODY;
        const verdict is = judge(*v.layout, t, (uint32_t)i, &io, &to, &place);
        if (is == COMMAND)
            (void)atomicAdd(&v.cursor[io.queue], 1u);
        else
            io.queue = PST_NVME_NO_QUEUE;
        if (v.merge.key) {
            v.merge.key[i] =
                is == STAGED ? place << v.merge.block_bits | io.lba : pst_cu_nvme_not_staged(v.merge);
            v.merge.number[i] = (uint32_t)i;
        }
        v.landings[t.batch + i] = to;
        if (is == LEFT)
            v.remains[t.batch + atomicAdd(&aimed->left, 1u)] = (uint32_t)i;
        if (is == WRONG)
            (void)atomicMax(&aimed->bad, ~(uint32_t)i);
        v.raw[i] = io;
    }
}

/* Turns the number of commands of each queue into the place where they begin. A wrong table has no commands.
 */
__global__ void __launch_bounds__(PST_CU_WARP)
    group(struct pst_cu_nvme_view v, struct pst_cu_nvme_aimed *aimed, uint32_t *begin)
{
    const bool bad = aimed->bad;
    const uint32_t all =
        pst_cu_nvme_begins(v.q.n, begin, [=](uint32_t queue) { return bad ? 0 : v.cursor[queue]; });
    __syncwarp();
    for (uint32_t queue = threadIdx.x; queue < v.q.n; queue += PST_CU_WARP)
        v.cursor[queue] = begin[queue];
    if (threadIdx.x == 0)
        aimed->n = all;
}

__global__ void __launch_bounds__(PST_CU_THREADS)
    place(struct pst_cu_nvme_view v, const struct pst_cu_nvme_aimed *aimed, uint32_t first, uint32_t n)
{
    if (aimed->bad)
        return;
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        const struct pst_nvme_io io = v.raw[i];
        if (io.queue == PST_NVME_NO_QUEUE)
            continue;
        const uint32_t at = first + atomicAdd(&v.cursor[io.queue], 1u);
        v.q.ios[at] = io;
        v.sent[first + i] = at;
    }
}

/* Called by a warp. Copies in the widest words that both addresses allow. */
__device__ void copy_row(char *to, const char *from, uint32_t bytes)
{
    const uint32_t lane = threadIdx.x % PST_CU_WARP;
    const uintptr_t both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    uint32_t done = 0;
    if (both % sizeof(uint4) == 0) {
        done = bytes / (uint32_t)sizeof(uint4);
        for (uint32_t i = lane; i < done; i += PST_CU_WARP)
            reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(from)[i];
        done *= (uint32_t)sizeof(uint4);
    } else if (both % sizeof(uint32_t) == 0) {
        done = bytes / (uint32_t)sizeof(uint32_t);
        for (uint32_t i = lane; i < done; i += PST_CU_WARP)
            reinterpret_cast<uint32_t *>(to)[i] = reinterpret_cast<const uint32_t *>(from)[i];
        done *= (uint32_t)sizeof(uint32_t);
    }
    for (uint32_t i = done + lane; i < bytes; i += PST_CU_WARP)
        to[i] = from[i];
}

struct landed { /* of a warp, or of a block */
    unsigned long long rows, wanted, bytes, copied, merged;
};

/* One addition in memory for each number of a block, not of a warp. All threads of the block call it; those
 * of a warp have the same numbers. */
__device__ __forceinline__ void add_of_block(const landed &mine, struct pst_cu_nvme_aimed *aimed)
{
    enum { WARPS = PST_CU_THREADS / PST_CU_WARP };
    PST_CU_SHARED(landed, of_warp, [WARPS]);
    if (threadIdx.x % PST_CU_WARP == 0)
        of_warp[threadIdx.x / PST_CU_WARP] = mine;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    landed all = mine;
    for (int w = 1; w < WARPS; w++) {
        all.rows += of_warp[w].rows;
        all.wanted += of_warp[w].wanted;
        all.bytes += of_warp[w].bytes;
        all.copied += of_warp[w].copied;
        all.merged += of_warp[w].merged;
    }
    if (all.rows == 0)
        return;
    (void)atomicAdd(&aimed->rows, all.rows);
    (void)atomicAdd(&aimed->wanted, all.wanted);
    (void)atomicAdd(&aimed->bytes, all.bytes);
    (void)atomicAdd(&aimed->copied, all.copied);
    (void)atomicAdd(&aimed->merged, all.merged);
}

/* Each warp has a request. Rows that were read well are in place, or are copied now; the others are left to
 * the host. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    land(struct pst_cu_nvme_view v, struct pst_cu_nvme_aimed *aimed, uint32_t first, uint32_t n)
{
    unsigned long long rows = 0, wanted = 0, bytes = 0, copied = 0, merged = 0;
    if (aimed->bad)
        return;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < n; i += pst_cu_step() / PST_CU_WARP) {
        const struct pst_cu_nvme_landing to = v.landings[first + i];
        if (to.lead == PST_NVME_NOBODY)
            continue;
        const struct pst_nvme_io *io = &v.q.ios[v.sent[first + to.lead]];
        if (io->status == PST_K_NVME_PENDING || PST_NVME_STATUS(io->status) != PST_NVME_OK) {
            if (threadIdx.x % PST_CU_WARP == 0)
                v.remains[first + atomicAdd(&aimed->left, 1u)] = (uint32_t)i;
            continue;
        }
        if (to.to)
            copy_row(to.to, to.from, to.bytes);
        rows += to.rows;
        wanted += to.wanted;
        bytes += to.lead == i ? io->bytes : 0;
        copied += to.to ? to.bytes : 0;
        merged += to.lead != i;
    }
    add_of_block({rows, wanted, bytes, copied, merged}, aimed);
}
} // namespace

pst_rc pst_cu_nvme_aim_table(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_table *t,
                             struct pst_twin_n *n)
{
    struct pst_queue *q = d->o.queue;
    const struct pst_cu_nvme_view &v = d->view;
    struct pst_cu_nvme_aimed *aimed = v.aimed + batch;
    const uint32_t first = batch * d->o.most;
    assert(d->o.layout && batch < d->o.batches && t->n <= d->o.most && t->at % 8 == 0 &&
           t->at <= t->slot_bytes && t->n <= (t->slot_bytes - t->at) / sizeof(struct pst_request));
    (void)pst_cu_checked(q, cudaMemsetAsync(aimed, 0, sizeof *aimed, q->stream));
    (void)pst_cu_checked(q, cudaMemsetAsync(v.cursor, 0, v.q.n * sizeof *v.cursor, q->stream));
    const unsigned blocks = pst_cu_grid(q, t->n, PST_CU_THREADS);
    pst_cu_on(q, blocks)(look, v, aimed, table{*t, first, d->o.ssds, d->o.queues_each});
    if (v.merge.key && t->n > 0)
        pst_cu_nvme_merge(d, first, t->n);
    pst_cu_on(q, 1, PST_CU_WARP)(group, v, aimed, v.begin + (size_t)batch * (v.q.n + 1));
    pst_cu_on(q, blocks)(place, v, aimed, first, t->n);
    d->asked[batch] = t->n;
    *n = {&aimed->n, t->n};
    return q->rc;
}

const struct pst_cu_nvme_aimed *pst_cu_nvme_land(struct pst_k_nvme_drive *d, uint32_t batch)
{
    struct pst_queue *q = d->o.queue;
    const uint32_t n = d->asked[batch];
    if (n == 0)
        return NULL;
    pst_cu_on(q, pst_cu_grid(q, (int64_t)n * PST_CU_WARP, PST_CU_THREADS))(
        land, d->view, d->view.aimed + batch, batch * d->o.most, n);
    d->asked[batch] = 0;
    return d->view.aimed + batch;
}
