/* queues.cu: kernels that drive NVMe queues (nvme.h). common/nvme/lanes.h and queue.h say what each lane
 * does, as on the host. Here are the barriers between these steps, and which threads do them.
 *
 * Memory order, as a controller sees it: one lane of a block rings the doorbell for what all its lanes wrote,
 * after a barrier of the block and a fence for the system (queue.h). A completion's phase is read with
 * acquire, then the rest. Between submission and completion a kernel ends. */
#include "kernels/cuda/nvme/nvme.cuh"

namespace
{
enum {
    SUBMIT_THREADS = PST_CU_NVME_SUBMIT_THREADS_MAX,
    COMPLETE_WARPS = 8, /* of a block: as many queues at least */
    COMPLETE_BLOCKS =
        4, /* they poll as long as the drives take, and other kernels need the multiprocessors */
    COMPLETE_THREADS_MAX = 1024,
    NAP_NS = 500,    /* between two looks in vain: a third of what a look over the bus takes */
    STOP_EVERY = 64, /* looks between two at what the host says, also over the bus */
};
constexpr unsigned ALL = 0xFFFFFFFFu;

/* How many commands of the queue may be written now. */
__device__ __forceinline__ uint32_t room_of(const struct pst_cu_nvme_view &v, uint32_t queue)
{
    return v.broken[queue] ? 0 : pst_nvme_room(v.q.qp[queue]);
}

/* ---- completions: they come without gaps, and each is matched by one lane ----------------------------- */

/* Takes completion k of the queue. False: it belongs to no command in flight, or to one that has just ended.
 */
__device__ bool match(const struct pst_cu_nvme_view &v, uint32_t queue, uint64_t k, uint16_t cid,
                      uint16_t status)
{
    struct pst_nvme_qp *qp = v.q.qp[queue];
    const uint32_t place = pst_nvme_place(qp, cid);
    if (atomicCAS(&qp->live[place], (uint32_t)cid, (uint32_t)PST_NVME_NOT_LIVE) != cid) {
        (void)atomicAdd(v.strange, 1u);
        return false;
    }
    qp->ids[k & (qp->depth - 1)] = (uint16_t)(cid + qp->depth);
    const uint32_t index = v.q.io_of[queue][place], batch = index / v.most;
    struct pst_cu_nvme_tally *tally = &v.tally[batch];
    if (PST_NVME_STATUS(status) != PST_NVME_OK) {
        (void)atomicAdd(&tally->failed, 1u);
        (void)atomicMin(&tally->first_failed, index % v.most);
    }
    *static_cast<volatile uint16_t *>(&v.q.ios[index].status) = status;
    (void)atomicAdd(&v.left[batch * v.q.n + queue], ~0u);
    return true;
}

/* Called by a warp. Takes completions, each lane its own, which it reads once. whole: takes all that the
 * queue waits for, or none. Returns how many it took. */
__device__ uint32_t take(const struct pst_cu_nvme_view &v, uint32_t queue, bool whole)
{
    struct pst_nvme_qp *qp = v.q.qp[queue];
    const uint64_t taken = qp->taken;
    const uint32_t waits = (uint32_t)(qp->posted - taken), lane = threadIdx.x % PST_CU_WARP;
    uint16_t cid = 0, status = 0;
    const bool looks = whole ? lane == 0 && waits > 0 : lane < waits;
    const unsigned come = __ballot_sync(
        ALL, looks && pst_nvme_poll_id(qp, whole ? taken + waits - 1 : taken + lane, &cid, &status));
    const uint32_t n = whole         ? (come ? waits : 0)
                       : come == ALL ? (uint32_t)PST_CU_WARP
                                     : (uint32_t)__ffs((int)~come) - 1;
    bool strange = false;
    for (uint32_t at = lane; at < n; at += PST_CU_WARP) {
        const bool there = !whole || pst_nvme_poll_id(qp, taken + at, &cid, &status);
        strange = !there || !match(v, queue, taken + at, cid, status) || strange;
    }
    strange = __any_sync(ALL, strange);
    if (lane == 0 && strange)
        v.broken[queue] = 1;
    if (lane == 0 && !strange && n > 0)
        pst_nvme_ring_cq(qp, n);
    __syncwarp();
    return n;
}

/* Called by a warp. Sends the batch's commands for the queue that waited for room and have it now. */
__device__ bool post_more(const struct pst_cu_nvme_view &v, uint32_t batch, uint32_t queue)
{
    struct pst_nvme_qp *qp = v.q.qp[queue];
    const uint32_t *begin = v.begin + batch * (v.q.n + 1) + queue, room = room_of(v, queue);
    uint32_t *next = v.next + batch * v.q.n + queue;
    const uint32_t n = min(begin[1] - begin[0] - *next, room), lane = threadIdx.x % PST_CU_WARP;
    if (n == 0)
        return false;
    const uint32_t *order = v.order + (size_t)batch * v.most + begin[0] + *next;
    const uint64_t posted = qp->posted;
    for (uint32_t at = lane; at < n; at += PST_CU_WARP)
        pst_nvme_io_post(&v.q, order[at], posted + at);
    __syncwarp();
    if (lane == 0) {
        qp->posted = posted + n;
        *next += n;
        pst_nvme_ring_sq(qp);
    }
    __syncwarp();
    return true;
}

__device__ __forceinline__ bool waits_for(const struct pst_cu_nvme_view &v, uint32_t batch, uint32_t queue)
{
    return pst_cu_load(&v.left[batch * v.q.n + queue]) > 0 && !pst_cu_load(&v.broken[queue]);
}

/* Leaves a queue alone, because no completion has come for too long or the host has stopped it. look: how
 * many looks were in vain. */
__device__ __forceinline__ bool is_over(const struct pst_cu_nvme_view &v, uint64_t since, uint32_t look)
{
    return pst_cu_now_ns() - since > v.timeout_ns ||
           (look % STOP_EVERY == 0 && PST_NVME_LOAD_ACQUIRE(v.stop) != 0);
}

/* A warp has every n-th queue, of as many warps as there are. It polls them in turn until none waits, or
 * until none has had a completion for too long. */
__global__ void __launch_bounds__(COMPLETE_THREADS_MAX)
    complete_each(struct pst_cu_nvme_view v, uint32_t batch, bool whole)
{
    const uint32_t lane = threadIdx.x % PST_CU_WARP, warps_each = blockDim.x / PST_CU_WARP,
                   warps = gridDim.x * warps_each,
                   first = blockIdx.x * warps_each + threadIdx.x / PST_CU_WARP;
    uint64_t since = pst_cu_now_ns();
    uint32_t look = 0;
    for (bool busy = true; busy;) {
        bool moved = false;
        busy = false;
        for (uint32_t queue = first; queue < v.q.n; queue += warps) {
            if (!waits_for(v, batch, queue))
                continue;
            busy = true;
            moved = take(v, queue, whole) > 0 || moved;
            const bool next_wave = !whole || v.q.qp[queue]->posted == v.q.qp[queue]->taken;
            moved = (next_wave && post_more(v, batch, queue)) || moved;
        }
        if (moved)
            since = pst_cu_now_ns();
        if (!busy || moved)
            continue;
        pst_cu_nap(NAP_NS);
        if (!__any_sync(ALL, lane == 0 && is_over(v, since, look++)))
            continue;
        since = pst_cu_now_ns();
        busy = whole; /* if some of a wave are missing, take those that came, and wait again */
        whole = false;
        for (uint32_t queue = first + lane * warps; !busy && queue < v.q.n; queue += PST_CU_WARP * warps)
            if (waits_for(v, batch, queue))
                v.broken[queue] = 1;
    }
}

/* ---- async: one block submits ------------------------------------------------------------------------ */

__device__ void scan(const struct pst_cu_nvme_view &v, const struct pst_nvme_wave &w)
{
    const uint32_t lane = threadIdx.x % PST_CU_WARP, warp = threadIdx.x / PST_CU_WARP;
    const uint32_t lanes = blockDim.x, warps = blockDim.x / PST_CU_WARP, n = v.q.n;
    for (uint32_t queue = warp; queue < n; queue += warps) { /* sum over the lanes before, for each queue */
        uint32_t before = 0;
        for (uint32_t first = 0; first < lanes; first += PST_CU_WARP) {
            uint32_t *count = &w.count[(size_t)(first + lane) * n + queue], sum = *count;
            for (int by = 1; by < PST_CU_WARP; by *= 2) {
                const uint32_t from = __shfl_up_sync(0xFFFFFFFFu, sum, by);
                sum += (int)lane >= by ? from : 0;
            }
            *count = before + sum - *count;
            before += __shfl_sync(0xFFFFFFFFu, sum, PST_CU_WARP - 1);
        }
        if (lane == 0)
            w.take[queue] = before;
    }
    __syncthreads();
    if (warp == 0) /* then over the queues before */
        (void)pst_cu_nvme_begins(n, w.begin, [=](uint32_t queue) { return w.take[queue]; });
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < lanes * n; i += lanes)
        w.count[i] += w.begin[i % n];
}

/* The start of a batch, for one queue: nothing is posted, everything is left. */
__device__ __forceinline__ uint32_t start_queue(const struct pst_cu_nvme_view &v, uint32_t batch,
                                                uint32_t queue)
{
    const uint32_t *begin = v.begin + batch * (v.q.n + 1) + queue, n = begin[1] - begin[0];
    const uint32_t now = min(n, room_of(v, queue));
    v.left[batch * v.q.n + queue] = n;
    v.next[batch * v.q.n + queue] = now;
    return now;
}

__global__ void __launch_bounds__(SUBMIT_THREADS)
    submit_async(struct pst_cu_nvme_view v, uint32_t batch, struct pst_twin_n most)
{
    const uint32_t lane = threadIdx.x, lanes = blockDim.x;
    const uint32_t n = (uint32_t)pst_cu_value(most, v.status);
    struct pst_nvme_wave w = {v.todo + (size_t)batch * v.most, n,      v.count,
                              v.begin + batch * (v.q.n + 1),   v.take, v.order + (size_t)batch * v.most};
    if (lane == 0)
        v.tally[batch] = {n, 0, ~0u};
    pst_nvme_wave_count(&v.q, &w, lane, lanes);
    __syncthreads();
    scan(v, w);
    __syncthreads();
    pst_nvme_wave_scatter(&v.q, &w, lane, lanes);
    for (uint32_t i = lane; i < n; i += lanes)
        v.q.ios[w.todo[i]].status = PST_K_NVME_PENDING;
    for (uint32_t queue = lane; queue < v.q.n; queue += lanes)
        w.take[queue] = start_queue(v, batch, queue);
    __syncthreads();
    pst_nvme_wave_write(&v.q, &w, lane, lanes);
    __syncthreads();
    pst_nvme_wave_ring(&v.q, &w, lane, lanes);
}

/* ---- batch: positions are known ---------------------------------------------------------------------- */

/* The number of commands; 0 if the caller's numbers contradict each other. */
__device__ __forceinline__ uint32_t grouped(const struct pst_cu_nvme_view &v, uint32_t batch,
                                            struct pst_twin_n most)
{
    const int64_t n = pst_cu_value(most, v.status);
    return v.begin[batch * (v.q.n + 1) + v.q.n] == n ? (uint32_t)n : 0;
}

__global__ void __launch_bounds__(PST_CU_THREADS)
    write_batch(struct pst_cu_nvme_view v, uint32_t batch, struct pst_twin_n most)
{
    const uint32_t n = grouped(v, batch, most), first = batch * v.most;
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        struct pst_nvme_io *io = &v.q.ios[first + i];
        const uint32_t rank = (uint32_t)i - v.begin[batch * (v.q.n + 1) + io->queue];
        io->status = PST_K_NVME_PENDING;
        if (rank < room_of(v, io->queue))
            pst_nvme_io_post(&v.q, first + (uint32_t)i, v.q.qp[io->queue]->posted + rank);
    }
}

/* Rings each queue's doorbell. */
__global__ void __launch_bounds__(PST_K_NVME_DRIVE_QUEUES_MAX)
    ring_batch(struct pst_cu_nvme_view v, uint32_t batch, struct pst_twin_n most)
{
    const uint32_t queue = threadIdx.x, n = grouped(v, batch, most);
    if (queue == 0) {
        v.tally[batch] = {n, 0, ~0u};
        if (n != pst_cu_value(most, v.status))
            pst_cu_fault(v.status, PST_E_ARG);
    }
    v.left[batch * v.q.n + queue] = 0;
    const uint32_t posted = n > 0 ? start_queue(v, batch, queue) : 0;
    if (posted == 0)
        return;
    v.q.qp[queue]->posted += posted;
    pst_nvme_ring_sq(v.q.qp[queue]);
}

/* ---- sync: a warp a command --------------------------------------------------------------------------- */

__global__ void __launch_bounds__(PST_CU_THREADS)
    start_sync(struct pst_cu_nvme_view v, uint32_t batch, struct pst_twin_n most)
{
    const uint32_t n = (uint32_t)pst_cu_value(most, v.status), first = batch * v.most;
    if (pst_cu_first() == 0)
        v.tally[batch] = {n, 0, ~0u};
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        struct pst_nvme_io *io = &v.q.ios[first + i];
        io->status = PST_K_NVME_PENDING;
        (void)atomicAdd(&v.left[batch * v.q.n + io->queue], 1u);
    }
}

__device__ __forceinline__ bool try_lock(const struct pst_cu_nvme_view &v, uint32_t queue)
{
    if (atomicCAS(&v.locks[queue], 0u, 1u) != 0)
        return false;
    __threadfence();
    return true;
}

__device__ __forceinline__ void unlock(const struct pst_cu_nvme_view &v, uint32_t queue)
{
    __threadfence();
    (void)atomicExch(&v.locks[queue], 0u);
}

/* Takes completions, with a doorbell for each. The caller has the queue's lock. */
__device__ void drain(const struct pst_cu_nvme_view &v, uint32_t queue)
{
    struct pst_nvme_qp *qp = v.q.qp[queue];
    uint16_t cid, status;
    while (qp->taken != qp->posted && pst_nvme_poll_id(qp, qp->taken, &cid, &status)) {
        if (!match(v, queue, qp->taken, cid, status)) {
            v.broken[queue] = 1;
            return;
        }
        pst_nvme_ring_cq(qp, 1);
    }
}

/* Called by a warp's leader: sends one command and waits for its completion. */
__device__ void do_one(const struct pst_cu_nvme_view &v, uint32_t index)
{
    const struct pst_nvme_io *io = &v.q.ios[index];
    const uint32_t queue = io->queue;
    struct pst_nvme_qp *qp = v.q.qp[queue];
    uint64_t since = pst_cu_now_ns(), seen = pst_cu_load(&qp->taken);
    uint32_t look = 0;
    bool posted = false;
    while (!pst_cu_load(&v.broken[queue]) && pst_cu_load(&io->status) == PST_K_NVME_PENDING) {
        if (try_lock(v, queue)) {
            drain(v, queue);
            if (!posted && room_of(v, queue) > 0) {
                pst_nvme_io_post(&v.q, index, qp->posted);
                qp->posted++;
                pst_nvme_ring_sq(qp);
                posted = true;
            }
            unlock(v, queue);
        }
        const uint64_t taken = pst_cu_load(&qp->taken);
        if (taken != seen)
            since = pst_cu_now_ns();
        seen = taken;
        if (is_over(v, since, look++))
            (void)atomicExch(&v.broken[queue], 1u);
    }
}

__global__ void __launch_bounds__(PST_CU_THREADS)
    run_sync(struct pst_cu_nvme_view v, uint32_t batch, struct pst_twin_n most)
{
    const int64_t n = pst_cu_warp_value(most, v.status);
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < n; i += pst_cu_step() / PST_CU_WARP) {
        if (threadIdx.x % PST_CU_WARP == 0)
            do_one(v, batch * v.most + (uint32_t)i);
        __syncwarp();
    }
}

/* ---- commands of rows, and the record ------------------------------------------------------------------ */

__global__ void __launch_bounds__(PST_CU_THREADS)
    aim_rows(struct pst_cu_nvme_view v, uint32_t batch, struct pst_k_nvme_rows rows, uint32_t ssds,
             uint32_t queues_each)
{
    const int64_t n = pst_cu_value(rows.n, v.status);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        const uint64_t at = rows.pick ? (uint64_t)rows.pick[i] : (uint64_t)i;
        const int64_t row = rows.ids[at];
        if (row < 0) {
            pst_cu_fault(v.status, PST_E_FORMAT);
            continue;
        }
        const uint32_t ssd = (uint32_t)(row % ssds), each = (uint32_t)(i / ssds % queues_each);
        struct pst_nvme_io io = {};
        io.lba = rows.lba + (uint64_t)(row / ssds) * (rows.row_bytes >> rows.lba_shift);
        io.iova = rows.iova[ssd] + at * rows.stride;
        io.bytes = rows.row_bytes;
        io.nsid = rows.nsid;
        io.queue = (uint16_t)(ssd * queues_each + each);
        io.opcode = PST_NVME_READ;
        io.lba_shift = rows.lba_shift;
        io.status = PST_K_NVME_PENDING;
        v.q.ios[batch * v.most + i] = io;
    }
}

__global__ void __launch_bounds__(PST_CU_WARP)
    write_done(struct pst_cu_nvme_view v, uint32_t batch, const struct pst_cu_nvme_aimed *aimed,
               struct pst_k_nvme_record *record, uint64_t sequence)
{
    uint32_t late = 0;
    unsigned long long sq = 0, cq = 0;
    for (uint32_t queue = threadIdx.x; queue < v.q.n; queue += PST_CU_WARP) {
        late += v.left[batch * v.q.n + queue];
        sq += v.q.qp[queue]->sq_rings;
        cq += v.q.qp[queue]->cq_rings;
    }
    for (int with = PST_CU_WARP / 2; with > 0; with /= 2) {
        late += __shfl_xor_sync(0xFFFFFFFFu, late, with);
        sq += __shfl_xor_sync(0xFFFFFFFFu, sq, with);
        cq += __shfl_xor_sync(0xFFFFFFFFu, cq, with);
    }
    if (threadIdx.x > 0)
        return;
    const struct pst_cu_nvme_tally tally = v.tally[batch];
    record->n = tally.n;
    record->ended = tally.n - late;
    record->failed = tally.failed;
    record->late = late;
    record->strange = *v.strange;
    record->sq_doorbells = sq;
    record->cq_doorbells = cq;
    record->first_failed = tally.first_failed;
    record->first_status = PST_NVME_OK;
    record->first_lba = 0;
    if (tally.failed > 0) {
        const struct pst_nvme_io *io = &v.q.ios[batch * v.most + tally.first_failed];
        record->first_status = PST_NVME_STATUS(io->status);
        record->first_lba = io->lba;
    }
    record->left = aimed ? aimed->left : 0;
    record->bad = aimed && aimed->bad ? ~aimed->bad + 1 : 0;
    record->rows = aimed ? aimed->rows : 0;
    record->wanted = aimed ? aimed->wanted : 0;
    record->bytes = aimed ? aimed->bytes : 0;
    record->copied = aimed ? aimed->copied : 0;
    record->merged = aimed ? aimed->merged : 0;
    pst_cu_publish(&record->sequence, sequence);
}

/* ---- the table ------------------------------------------------------------------------------------------
 */

pst_rc aim(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_rows *rows)
{
    struct pst_queue *q = d->o.queue;
    assert(batch < d->o.batches && rows->n.most >= 0 && rows->n.most <= d->o.most &&
           d->o.way != PST_NVME_BATCH && rows->row_bytes % (1u << rows->lba_shift) == 0);
    pst_cu_on(q, pst_cu_grid(q, rows->n.most, PST_CU_THREADS))(aim_rows, d->view, batch, *rows, d->o.ssds,
                                                               d->o.queues_each);
    return q->rc;
}

uint32_t or_else(uint32_t wanted, uint32_t usual)
{
    return wanted > 0 ? wanted : usual;
}

pst_rc submit(struct pst_k_nvme_drive *d, uint32_t batch, struct pst_twin_n n,
              const struct pst_k_nvme_shape *shape)
{
    struct pst_queue *q = d->o.queue;
    assert(batch < d->o.batches && n.most >= 0 && n.most <= d->o.most);
    if (d->o.way == PST_NVME_ASYNC) {
        const uint32_t threads = or_else(shape->submit_threads, SUBMIT_THREADS);
        assert(threads % PST_CU_WARP == 0 && threads <= SUBMIT_THREADS);
        pst_cu_on(q, 1, threads)(submit_async, d->view, batch, n);
    } else if (d->o.way == PST_NVME_BATCH) {
        const unsigned threads = or_else(shape->batch_threads, PST_CU_THREADS);
        const unsigned blocks = or_else(shape->batch_blocks, pst_cu_grid(q, n.most, (int64_t)threads));
        assert(threads <= PST_CU_THREADS);
        pst_cu_on(q, blocks, threads)(write_batch, d->view, batch, n);
        pst_cu_on(q, 1, d->view.q.n)(ring_batch, d->view, batch, n);
    } else {
        uint32_t *left = d->view.left + (size_t)batch * d->view.q.n;
        const int64_t warps = pst_min_i64(or_else(shape->warps, UINT32_MAX), pst_max_i64(n.most, 1));
        (void)pst_cu_checked(q, cudaMemsetAsync(left, 0, d->view.q.n * sizeof *left, q->stream));
        pst_cu_on(q, pst_cu_grid(q, pst_max_i64(n.most, 1), PST_CU_THREADS))(start_sync, d->view, batch, n);
        const unsigned threads = (unsigned)pst_min_i64(warps * PST_CU_WARP, PST_CU_THREADS);
        pst_cu_on(q, pst_cu_grid(q, warps * PST_CU_WARP, threads), threads)(run_sync, d->view, batch, n);
    }
    return q->rc;
}

pst_rc complete(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_shape *shape,
                struct pst_k_nvme_record *record, uint64_t sequence)
{
    struct pst_queue *q = d->o.queue;
    const uint32_t warps = (uint32_t)pst_min_i64(d->view.q.n, COMPLETE_WARPS),
                   threads = or_else(shape->complete_threads, warps * PST_CU_WARP),
                   usual = (d->view.q.n + COMPLETE_WARPS - 1) / COMPLETE_WARPS,
                   blocks = or_else(shape->complete_blocks, (uint32_t)pst_min_i64(usual, COMPLETE_BLOCKS));
    assert(batch < d->o.batches && threads % PST_CU_WARP == 0 && threads <= COMPLETE_THREADS_MAX);
#ifdef PST_HOST_BUILD
    pst_cu_host_counts_raise(PST_HOST_POLLING, blocks);
#endif
    if (d->o.way != PST_NVME_SYNC)
        pst_cu_on(q, blocks, threads)(complete_each, d->view, batch, d->o.way == PST_NVME_BATCH);
    pst_cu_on(q, 1, PST_CU_WARP)(write_done, d->view, batch, pst_cu_nvme_land(d, batch), record, sequence);
    return q->rc;
}
} // namespace

const struct pst_k_nvme_twin *pst_cu_nvme_cuda(void)
{
    static const struct pst_k_nvme_twin nvme = {
        pst_cu_nvme_drive_new,
        pst_cu_nvme_drive_free,
        [](struct pst_k_nvme_drive *d, uint32_t batch) { return d->view.q.ios + (size_t)batch * d->o.most; },
        [](struct pst_k_nvme_drive *d, uint32_t batch) {
            return d->view.begin + (size_t)batch * (d->view.q.n + 1);
        },
        aim,
        pst_cu_nvme_aim_table,
        [](struct pst_k_nvme_drive *d, uint32_t batch) -> const uint32_t * {
            return d->view.remains + (size_t)batch * d->o.most;
        },
        submit,
        complete,
        pst_cu_nvme_drive_give_back,
        pst_cu_nvme_drive_take_over};
    return &nvme;
}
