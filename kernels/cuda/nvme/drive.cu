/* drive.cu: makes a drive's memory, takes the host's queue pairs over, and gives them back (nvme.h). */
#include "kernels/cuda/nvme/nvme.cuh"

#include <cstdio>
#include <cstring>
#include <new>
#include <unistd.h>

namespace
{
/* Pieces of one allocation: first measured, with base NULL, then given out. */
struct pieces {
    char *base;
    size_t used;
    template <class T> T *of(size_t n)
    {
        T *piece = reinterpret_cast<T *>(base + used);
        used = pst_align_up(used + n * sizeof(T), 256); /* aligned as by cudaMalloc */
        return base ? piece : NULL;
    }
};

void lay_out_merge(struct pst_cu_nvme_merge *m, struct pieces *p, size_t most)
{
    m->key = p->of<uint64_t>(most);
    m->sorted = p->of<uint64_t>(most);
    m->number = p->of<uint32_t>(most);
    m->order = p->of<uint32_t>(most);
    m->reach = p->of<struct pst_cu_nvme_reach>(most);
    m->runs = p->of<struct pst_cu_nvme_run>(most);
    m->temp = p->of<char>(m->temp_bytes);
}

/* All memory on the GPU. Arrays that begin as zeroes come last, from *zeroes on. */
void lay_out(struct pst_k_nvme_drive *d, struct pieces *p, size_t *zeroes)
{
    const struct pst_k_nvme_drive_options *o = &d->o;
    struct pst_cu_nvme_view *v = &d->view;
    const size_t n = v->q.n, all = (size_t)o->batches * o->most;
    d->device_pairs = p->of<struct pst_nvme_qp>(n);
    v->q.qp = p->of<struct pst_nvme_qp *>(n);
    v->q.io_of = p->of<uint32_t *>(n);
    v->todo = p->of<uint32_t>(all);
    v->order = p->of<uint32_t>(all);
    v->count = p->of<uint32_t>(o->way == PST_NVME_ASYNC ? PST_CU_NVME_SUBMIT_THREADS_MAX * n : 1);
    v->take = p->of<uint32_t>(n);
    if (o->layout) {
        v->layout = p->of<struct pst_k_nvme_layout>(1);
        v->raw = p->of<struct pst_nvme_io>(o->most);
        v->cursor = p->of<uint32_t>(n);
        v->landings = p->of<struct pst_cu_nvme_landing>(all);
        v->sent = p->of<uint32_t>(all);
        v->remains = p->of<uint32_t>(all);
    }
    if (o->layout && o->layout->staging_each > 0)
        lay_out_merge(&v->merge, p, o->most);
    for (size_t i = 0; i < n; i++) {
        d->images[i].ids = p->of<uint16_t>(o->pairs[i]->depth);
        d->images[i].live = p->of<uint32_t>(o->pairs[i]->depth);
    }
    *zeroes = p->used;
    v->q.ios = p->of<struct pst_nvme_io>(all);
    v->begin = p->of<uint32_t>(o->batches * (n + 1));
    v->next = p->of<uint32_t>(o->batches * n);
    v->left = p->of<uint32_t>(o->batches * n);
    v->broken = p->of<uint32_t>(n);
    v->locks = p->of<uint32_t>(n);
    v->tally = p->of<struct pst_cu_nvme_tally>(o->batches);
    v->strange = p->of<uint32_t>(1);
    v->aimed = p->of<struct pst_cu_nvme_aimed>(o->batches);
    uint32_t *const never = p->of<uint32_t>(1);
    v->stop = v->stop ? v->stop : never;
    for (size_t i = 0; i < n; i++)
        d->io_of[i] = p->of<uint32_t>(o->pairs[i]->depth);
}

/* The commands in their own order, for batch, and for async before it counts. */
__global__ void __launch_bounds__(PST_CU_THREADS) number(uint32_t *todo, uint32_t *order, int64_t n)
{
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step())
        todo[i] = order[i] = (uint32_t)i;
}

bool make_memory(struct pst_k_nvme_drive *d)
{
    struct pst_queue *q = d->o.queue;
    struct pieces p = {NULL, 0};
    size_t zeroes = 0;
    if (d->o.layout && pst_cu_nvme_merge_plan(q, d->o.layout, d->o.ssds, d->o.most, &d->view.merge) != PST_OK)
        return false;
    lay_out(d, &p, &zeroes);
    if (!pst_cu_checked(q, cudaMalloc((void **)&d->memory, p.used)))
        return false;
    p = {d->memory, 0};
    lay_out(d, &p, &zeroes);
    const int64_t all = (int64_t)d->o.batches * d->o.most;
    (void)pst_cu_checked(q, cudaMemsetAsync(d->memory + zeroes, 0, p.used - zeroes, q->stream));
    (void)pst_cu_checked(q, cudaMemcpyAsync(d->view.q.io_of, d->io_of, d->view.q.n * sizeof *d->io_of,
                                            cudaMemcpyDefault, q->stream));
    if (d->o.layout)
        (void)pst_cu_checked(q, cudaMemcpyAsync(const_cast<struct pst_k_nvme_layout *>(d->view.layout),
                                                &d->layout, sizeof d->layout, cudaMemcpyDefault, q->stream));
    pst_cu_on(q, pst_cu_grid(q, all, PST_CU_THREADS))(number, d->view.todo, d->view.order, all);
    return q->rc == PST_OK;
}

pst_rc refused(char *why, const char *what, cudaError_t error)
{
    (void)cudaGetLastError(); /* clear the error, so that no later launch reports it */
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "the GPU cannot use %s: %s", what, cudaGetErrorString(error));
    return PST_E_UNSUPPORTED;
}

/* Whether the driver's module lets any user register I/O memory. */
bool anybody_may()
{
    char line[512];
    bool may = false;
    FILE *f = fopen("/proc/driver/nvidia/params", "re");
    while (f && fgets(line, sizeof line, f))
        may = may || strstr(line, "PeerMappingOverride=1");
    if (f)
        (void)fclose(f);
    return may;
}

/* NVIDIA's driver refuses I/O memory for two reasons, and gives the same error for several. */
pst_rc refused_registers(char *why, cudaError_t error)
{
    const bool may = geteuid() == 0 || anybody_may();
    (void)cudaGetLastError();
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "the GPU cannot access an NVMe controller's registers: %s; %s",
                   cudaGetErrorString(error),
                   may ? "NVIDIA's driver cannot look up the registers' pages: on Linux 6.12 or newer, "
                         "install a newer driver"
                       : "run as root, or load NVIDIA's module with "
                         "NVreg_RegistryDwords=\"PeerMappingOverride=1\"");
    return PST_E_UNSUPPORTED;
}

/* Registers the shared memory. Memory that is registered already is not unregistered here. */
pst_rc share(struct pst_k_nvme_drive *d, char *why)
{
    for (uint32_t i = 0; i < d->o.shareds; i++) {
        const struct pst_k_nvme_shared *s = &d->shared[i];
        const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped |
                               (s->io_memory ? (unsigned)cudaHostRegisterIoMemory : 0u);
        const cudaError_t error = cudaHostRegister(s->at, s->bytes, flags);
        d->registered[i] = error == cudaSuccess;
        if (error == cudaErrorHostMemoryAlreadyRegistered)
            (void)cudaGetLastError();
        else if (error != cudaSuccess)
            return s->io_memory ? refused_registers(why, error)
                                : refused(why, "a controller's memory", error);
    }
    return PST_OK;
}

/* The GPU's address of what the host has at `at`. Called once for each object, so that each is contiguous. */
template <class T> bool reach(T **to, T *at, cudaError_t *error)
{
    void *device = NULL;
    if (at != NULL && *error == cudaSuccess)
        *error =
            cudaHostGetDevicePointer(&device, const_cast<void *>(static_cast<const volatile void *>(at)), 0);
    *to = static_cast<T *>(device);
    return *error == cudaSuccess;
}

pst_rc reach_pairs(struct pst_k_nvme_drive *d, char *why)
{
    for (uint32_t i = 0; i < d->view.q.n; i++) {
        const struct pst_nvme_qp *host = d->pairs[i];
        struct pst_nvme_qp *image = &d->images[i];
        cudaError_t error = cudaSuccess;
        if (!reach(&image->sq, host->sq, &error) || !reach(&image->cq, host->cq, &error) ||
            !reach(&image->prp, host->prp, &error) ||
            !reach(&image->sq_doorbell, host->sq_doorbell, &error) ||
            !reach(&image->cq_doorbell, host->cq_doorbell, &error))
            return refused(why, "a queue that is not in the memory shared with the GPU", error);
    }
    cudaError_t error = cudaSuccess;
    uint32_t *stop = NULL;
    if (!reach(&d->layout.staging, d->layout.staging, &error) ||
        !reach(&stop, const_cast<uint32_t *>(d->o.stop), &error))
        return refused(why, "a buffer that is not in the memory shared with the GPU", error);
    d->view.stop = stop;
    return PST_OK;
}

/* Copies the host's structures that the drive needs later. */
bool keep_options(struct pst_k_nvme_drive *d, const struct pst_k_nvme_drive_options *o)
{
    const uint32_t n = o->ssds * o->queues_each;
    d->o = *o;
    d->view.q.n = n;
    d->pairs = new (std::nothrow) struct pst_nvme_qp *[n]();
    d->images = new (std::nothrow) struct pst_nvme_qp[n]();
    d->places = new (std::nothrow) struct pst_nvme_qp *[n]();
    d->io_of = new (std::nothrow) uint32_t *[n]();
    d->shared = new (std::nothrow) struct pst_k_nvme_shared[o->shareds + 1]();
    d->registered = new (std::nothrow) bool[o->shareds + 1]();
    d->asked = new (std::nothrow) uint32_t[o->batches]();
    if (!d->pairs || !d->images || !d->places || !d->io_of || !d->shared || !d->registered || !d->asked)
        return false;
    for (uint32_t i = 0; i < n; i++)
        d->pairs[i] = o->pairs[i];
    for (uint32_t i = 0; i < o->shareds; i++)
        d->shared[i] = o->shared[i];
    d->o.pairs = d->pairs;
    d->o.shared = d->shared;
    if (o->layout) {
        d->layout = *o->layout;
        d->o.layout = &d->layout;
    }
    d->view.q.page = o->page;
    d->view.most = o->most;
    d->view.timeout_ns = (uint64_t)o->timeout_ms * 1000000u;
    d->view.status = o->queue->status;
    return true;
}

/* Reports the queue's failure and clears it. */
pst_rc failure_of(struct pst_queue *q, char *why)
{
    const pst_rc rc = q->rc;
    if (rc != PST_OK)
        memcpy(why, q->why, PST_TWIN_WHY_BYTES);
    q->rc = PST_OK;
    return rc;
}

bool copy(struct pst_queue *q, void *to, const void *from, size_t bytes)
{
    return pst_cu_checked(q, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, q->stream));
}
} // namespace

void pst_cu_nvme_drive_free(struct pst_k_nvme_drive *d)
{
    if (!d)
        return;
    (void)cudaSetDevice(d->o.queue->device);
    (void)cudaStreamSynchronize(d->o.queue->stream);
    for (uint32_t i = 0; d->registered && i < d->o.shareds; i++)
        if (d->registered[i])
            (void)cudaHostUnregister(d->shared[i].at);
    (void)cudaFree(d->memory);
    delete[] d->pairs;
    delete[] d->images;
    delete[] d->places;
    delete[] d->io_of;
    delete[] d->shared;
    delete[] d->registered;
    delete[] d->asked;
    delete d;
}

pst_rc pst_cu_nvme_drive_new(const struct pst_k_nvme_drive_options *o, struct pst_k_nvme_drive **out,
                             char *why)
{
    *out = NULL;
    assert(o->ssds > 0 && o->ssds <= PST_K_NVME_DRIVE_SSDS_MAX && o->queues_each > 0 && o->batches > 0 &&
           o->most > 0 && o->timeout_ms > 0);
    const uint64_t queues = (uint64_t)o->ssds * o->queues_each, ios = (uint64_t)o->batches * o->most;
    if (queues > PST_K_NVME_DRIVE_QUEUES_MAX || ios > PST_K_NVME_DRIVE_IOS_MAX) {
        (void)snprintf(why, PST_TWIN_WHY_BYTES,
                       "%llu queues and %llu commands; at most %d queues and %d commands are supported",
                       (unsigned long long)queues, (unsigned long long)ios, PST_K_NVME_DRIVE_QUEUES_MAX,
                       PST_K_NVME_DRIVE_IOS_MAX);
        return PST_E_LIMIT;
    }
    struct pst_k_nvme_drive *d = new (std::nothrow) struct pst_k_nvme_drive();
    if (!d || !keep_options(d, o)) {
        if (d)
            d->o.queue = o->queue;
        pst_cu_nvme_drive_free(d);
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "out of memory: cannot allocate the state of the drives");
        return PST_E_NOMEM;
    }
    (void)pst_cu_checked(o->queue, cudaSetDevice(o->queue->device));
    pst_rc rc = share(d, why);
    rc = rc == PST_OK ? reach_pairs(d, why) : rc;
    if (rc == PST_OK && !make_memory(d))
        rc = failure_of(o->queue, why);
    rc = rc == PST_OK ? pst_cu_nvme_drive_take_over(d, why) : rc;
    if (rc != PST_OK) {
        pst_cu_nvme_drive_free(d);
        return rc;
    }
    *out = d;
    return PST_OK;
}

pst_rc pst_cu_nvme_drive_take_over(struct pst_k_nvme_drive *d, char *why)
{
    struct pst_queue *q = d->o.queue;
    const size_t n = d->view.q.n;
    (void)pst_cu_checked(q, cudaSetDevice(q->device));
    for (size_t i = 0; i < n; i++) {
        const struct pst_nvme_qp *host = d->pairs[i];
        struct pst_nvme_qp image = *host;
        const struct pst_nvme_qp at = d->images[i];
        if (host->posted != host->taken) {
            (void)snprintf(why, PST_TWIN_WHY_BYTES, "queue %u: %llu commands of the host are still in flight",
                           host->qid, (unsigned long long)(host->posted - host->taken));
            return PST_E_STATE;
        }
        image.sq = at.sq;
        image.cq = at.cq;
        image.prp = at.prp;
        image.sq_doorbell = at.sq_doorbell;
        image.cq_doorbell = at.cq_doorbell;
        image.ids = at.ids;
        image.live = at.live;
        d->images[i] = image;
        (void)copy(q, at.ids, host->ids, host->depth * sizeof *host->ids);
        (void)copy(q, at.live, host->live, host->depth * sizeof *host->live);
        d->places[i] = d->device_pairs + i;
    }
    (void)copy(q, d->device_pairs, d->images, n * sizeof *d->images);
    (void)copy(q, d->view.q.qp, d->places, n * sizeof *d->places);
    uint32_t *const numbers[] = {d->view.broken, d->view.locks};
    for (uint32_t *each : numbers)
        (void)pst_cu_checked(q, cudaMemsetAsync(each, 0, n * sizeof *each, q->stream));
    (void)pst_cu_checked(
        q, cudaMemsetAsync(d->view.left, 0, d->o.batches * n * sizeof *d->view.left, q->stream));
    (void)pst_cu_checked(q, cudaMemsetAsync(d->view.strange, 0, sizeof *d->view.strange, q->stream));
    (void)pst_cu_checked(q, cudaStreamSynchronize(q->stream));
    return failure_of(q, why);
}

pst_rc pst_cu_nvme_drive_give_back(struct pst_k_nvme_drive *d, char *why)
{
    struct pst_queue *q = d->o.queue;
    const size_t n = d->view.q.n;
    (void)pst_cu_checked(q, cudaSetDevice(q->device));
    (void)copy(q, d->images, d->device_pairs, n * sizeof *d->images);
    (void)pst_cu_checked(q, cudaStreamSynchronize(q->stream));
    for (size_t i = 0; i < n && q->rc == PST_OK; i++) {
        struct pst_nvme_qp *host = d->pairs[i];
        const struct pst_nvme_qp *now = &d->images[i];
        host->posted = now->posted;
        host->taken = now->taken;
        host->sq_rings = now->sq_rings;
        host->cq_rings = now->cq_rings;
        (void)copy(q, host->ids, now->ids, host->depth * sizeof *host->ids);
        (void)copy(q, host->live, now->live, host->depth * sizeof *host->live);
    }
    (void)pst_cu_checked(q, cudaStreamSynchronize(q->stream));
    return failure_of(q, why);
}
