/* queue.cu: queues, memory, and the table that this object exports (twin.h). */
#include "kernels/cuda/lt/plans.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/sleep.cuh"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <sys/prctl.h>
#include <thread>

namespace
{
/* The scratch memory of the largest call: two pairs of keys and values that are sorted and what the sort
 * needs, or partial sums of columns. Rounded up, because another version of CUDA may need more for itself. */
enum {
    BYTES_AN_ITEM = 48,
    BYTES_A_COLUMN = 2 * PST_CU_COLUMN_PARTS * (int)sizeof(double),
    BYTES_MORE = 4 << 20,
    PATIENT_US = 20, /* the host looks without a nap for so long: a nap takes longer */
    NAP_LEAST_US = 10,
    NAP_MOST_US = 1000,
    ASK_US = 1000, /* the driver is asked for failures once in so long */
};

/* Sets the device of the calling thread while a queue is made or used. */
bool on_device(struct pst_queue *q)
{
    return pst_cu_checked(q, cudaSetDevice(q->device));
}

pst_rc rc_of(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? PST_E_NOMEM : PST_E_IO;
}

struct record_counts {
    const int64_t *at[PST_TWIN_RECORD_COUNTS];
};

__global__ void write_record(struct pst_twin_record *record, uint64_t sequence, record_counts counts, int n,
                             int32_t *status)
{
    for (int i = (int)threadIdx.x; i < n; i += PST_CU_WARP)
        record->counts[i] = *counts.at[i];
    __syncwarp();
    if (threadIdx.x > 0)
        return;
    record->rc = *status;
    record->n = n;
    *status = PST_OK;
    PST_CU_CROSSES(record, sizeof *record);
    pst_cu_publish(&record->sequence, sequence);
}
} // namespace

bool pst_cu_checked(struct pst_queue *q, cudaError_t error, const char *file, int line)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError(); /* it is reported here, so no later launch must see it */
    if (error != cudaSuccess && q->rc == PST_OK) {
        q->rc = rc_of(error);
        (void)snprintf(q->why, PST_TWIN_WHY_BYTES, "%s: %s (%s:%d)", cudaGetErrorName(error),
                       cudaGetErrorString(error), file, line);
    }
    return q->rc == PST_OK;
}

void pst_cu_refuse(struct pst_queue *q, pst_rc rc, const char *what, size_t asked, size_t had)
{
    if (q->rc != PST_OK)
        return;
    q->rc = rc;
    if (asked > 0)
        (void)snprintf(q->why, PST_TWIN_WHY_BYTES, "%s: needed %zu, available %zu", what, asked, had);
    else
        (void)snprintf(q->why, PST_TWIN_WHY_BYTES, "%s", what);
}

void pst_cu_begin(struct pst_queue *q)
{
    q->scratch_used = 0;
}

void *pst_cu_scratch(struct pst_queue *q, size_t bytes)
{
    const size_t at = pst_align_up(q->scratch_used, 256); /* as CUB needs it */
    if (at + bytes > q->scratch_bytes) {
        pst_cu_refuse(q, PST_E_LIMIT,
                      "too little scratch memory for a kernel (create the queue with larger `most` or "
                      "`columns`), bytes",
                      at + bytes, q->scratch_bytes);
        return NULL;
    }
    q->scratch_used = at + bytes;
    return q->scratch + at;
}

static void queue_free(struct pst_queue *q)
{
    if (!q || q->left_alone)
        return;
    (void)on_device(q);
    if (q->stream)
        (void)cudaStreamSynchronize(q->stream);
    pst_cu_lt_plans_free(q->plans);
    if (q->lt)
        (void)q->lt_calls->Destroy(q->lt);
    (void)cudaFree(q->lt_memory);
    (void)cudaFree(q->scratch);
    (void)cudaFree(q->status);
    (void)cudaFreeHost(q->report);
    if (q->done)
        (void)cudaEventDestroy(q->done);
    if (q->own_stream && q->stream)
        (void)cudaStreamDestroy(q->stream);
    delete[] q->why;
    delete q;
}

static bool make_stream(struct pst_queue *q, bool first)
{
    int least = 0, greatest = 0; /* a lower number is an earlier turn */
    return q->stream || (pst_cu_checked(q, cudaDeviceGetStreamPriorityRange(&least, &greatest)) &&
                         pst_cu_checked(q, cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking,
                                                                        first ? greatest : least)));
}

static bool take_memory(struct pst_queue *q)
{
    return pst_cu_checked(q, cudaMalloc((void **)&q->scratch, q->scratch_bytes)) &&
           pst_cu_checked(q, cudaMalloc((void **)&q->status, PST_CACHE_LINE)) &&
           pst_cu_checked(q, cudaHostAlloc((void **)&q->report, PST_CACHE_LINE, cudaHostAllocMapped)) &&
           pst_cu_checked(q, cudaMemsetAsync(q->status, 0, PST_CACHE_LINE, q->stream));
}

static void prepare_products(struct pst_queue *q)
{
    char why[PST_TWIN_WHY_BYTES];
    q->lt_calls = pst_cu_lt_open(why);
    if (!q->lt_calls)
        pst_cu_refuse(q, PST_E_UNSUPPORTED, why, 0, 0);
    else if (pst_cu_checked(q, cudaMalloc((void **)&q->lt_memory, PST_CU_PRODUCT_BYTES)) &&
             q->lt_calls->Create(&q->lt) != CUBLAS_STATUS_SUCCESS)
        pst_cu_refuse(q, PST_E_UNSUPPORTED, "cannot create a cuBLASLt handle", 0, 0);
    if (q->lt)
        q->plans = pst_cu_lt_plans_new(q->lt_calls, q->lt, q->precision, PST_CU_PRODUCT_BYTES);
    if (q->lt && !q->plans)
        pst_cu_refuse(q, PST_E_NOMEM, "out of memory: cannot allocate the plans of matrix products", 0, 0);
}

static size_t scratch_of(int64_t most, int64_t columns)
{
    return (size_t)most * BYTES_AN_ITEM + (size_t)columns * BYTES_A_COLUMN + BYTES_MORE;
}

static pst_rc queue_new(const struct pst_queue_options *options, struct pst_queue **out, char *why)
{
    struct pst_queue *q = new (std::nothrow) struct pst_queue();
    *out = NULL;
    if (!q || !(q->why = new (std::nothrow) char[PST_TWIN_WHY_BYTES]())) {
        delete q;
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "out of memory: cannot allocate a queue");
        return PST_E_NOMEM;
    }
    q->device = options->device;
    q->precision = options->precision;
    q->stream = static_cast<cudaStream_t>(options->stream);
    q->own_stream = !q->stream;
    q->wait_s = pst_queue_wait_s();
    q->scratch_bytes = scratch_of(options->most, options->columns);
    const bool made = on_device(q) &&
                      pst_cu_checked(q, cudaDeviceGetAttribute(&q->multiprocessors,
                                                               cudaDevAttrMultiProcessorCount, q->device)) &&
                      make_stream(q, options->first) &&
                      pst_cu_checked(q, cudaEventCreateWithFlags(&q->done, cudaEventDisableTiming)) &&
                      take_memory(q);
    if (made && options->products)
        prepare_products(q);
    const pst_rc rc = q->rc;
    if (rc == PST_OK) {
        q->unused = reinterpret_cast<int64_t *>(q->status) + 1;
        *out = q;
        return PST_OK;
    }
    if (rc == PST_E_NOMEM)
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "it needs %zu bytes of device memory",
                       q->scratch_bytes + (options->products ? PST_CU_PRODUCT_BYTES : 0) + PST_CACHE_LINE);
    else
        memcpy(why, q->why, PST_TWIN_WHY_BYTES);
    queue_free(q);
    (void)cudaGetLastError();
    return rc;
}

/* The GPU of each piece of memory that alloc made. Memory is freed on its own GPU: on another one, the call
 * could make a context there, which takes hundreds of megabytes. Never destroyed, because other threads may
 * outlive the destruction of statics. */
struct made_memory {
    std::mutex lock;
    std::map<void *, int> gpu;
};

static made_memory &made()
{
    static made_memory *one = new made_memory;
    return *one;
}

static pst_rc alloc(int device, enum pst_twin_memory kind, size_t bytes, void **at, char *why)
{
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess)
        error = kind == PST_TWIN_MEMORY_DEVICE ? cudaMalloc(at, bytes ? bytes : 1)
                                               : cudaHostAlloc(at, bytes ? bytes : 1, cudaHostAllocMapped);
    if (error == cudaSuccess) {
        const std::lock_guard<std::mutex> guard(made().lock);
        made().gpu[*at] = device;
        return PST_OK;
    }
    (void)cudaGetLastError(); /* the error is reported here, so no later launch must see it */
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "cannot allocate %s memory of cuda:%d, %zu bytes: %s",
                   kind == PST_TWIN_MEMORY_DEVICE ? "the" : "pinned", device, bytes,
                   cudaGetErrorString(error));
    return rc_of(error);
}

static void release(enum pst_twin_memory kind, void *at)
{
    {
        const std::lock_guard<std::mutex> guard(made().lock);
        const auto found = made().gpu.find(at);
        if (found != made().gpu.end()) {
            (void)cudaSetDevice(found->second);
            made().gpu.erase(found);
        }
    }
    (void)(kind == PST_TWIN_MEMORY_DEVICE ? cudaFree(at) : cudaFreeHost(at));
}

static pst_rc room(int device, uint64_t *free_bytes, uint64_t *total_bytes, char *why)
{
    size_t there = 0, all = 0;
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&there, &all);
    *free_bytes = there;
    *total_bytes = all;
    if (error == cudaSuccess)
        return PST_OK;
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "cannot get the free memory of cuda:%d: %s", device,
                   cudaGetErrorString(error));
    return rc_of(error);
}

static pst_rc copy(struct pst_queue *q, void *to, const void *from, size_t bytes)
{
    (void)pst_cu_checked(q, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, q->stream));
    return q->rc;
}

static pst_rc fill(struct pst_queue *q, void *at, int byte, size_t bytes)
{
    (void)pst_cu_checked(q, cudaMemsetAsync(at, byte, bytes, q->stream));
    return q->rc;
}

static pst_rc record(struct pst_queue *q, struct pst_twin_record *to, uint64_t sequence,
                     const int64_t *const *counts, int n)
{
    assert(n >= 0 && n <= PST_TWIN_RECORD_COUNTS);
    record_counts all = {};
    for (int i = 0; i < n; i++)
        all.at[i] = counts[i];
    const char *file = q->last_file; /* the record itself does not hang */
    const int line = q->last_line;
    pst_cu_on(q, 1, PST_CU_WARP)(write_record, to, sequence, all, n, q->status);
    q->last_file = file;
    q->last_line = line;
    return q->rc;
}

static void *stream(struct pst_queue *q)
{
    return q->stream;
}

/* The first failure; it is then forgotten. */
static pst_rc tell(struct pst_queue *q, char *why)
{
    const pst_rc rc = q->rc;
    if (rc != PST_OK)
        memcpy(why, q->why, PST_TWIN_WHY_BYTES);
    q->rc = PST_OK;
    return rc;
}

static void give_up(struct pst_queue *q)
{
    q->left_alone = true;
    q->rc = PST_E_TIMEOUT;
    (void)snprintf(q->why, PST_TWIN_WHY_BYTES,
                   "the GPU work was not finished after %g s (PENSTOCK_GPU_WAIT_S): a kernel does not end, "
                   "or waits for a kernel of another stage; the last launch was at %s:%d",
                   q->wait_s, q->last_file ? q->last_file : "-", q->last_line);
}

/* ---- sleeping ------------------------------------------------------------------------------------ */

namespace
{
/* Looks often at first, for short waits. Then the host takes naps that grow with the wait, so it ends at most
 * a sixteenth of the wait too late. */
class patience
{
    using clock = std::chrono::steady_clock;
    clock::time_point begin = clock::now();

  public:
    patience()
    {
        static thread_local bool keen; /* otherwise the system adds 50 us to every nap */
        if (!keen)
            keen = prctl(PR_SET_TIMERSLACK, 1000UL) == 0;
#ifdef PST_HOST_BUILD
        pst_cu_host_counts_add(PST_HOST_WAITS);
#endif
    }
    int64_t gone_us() const
    {
        return std::chrono::duration_cast<std::chrono::microseconds>(clock::now() - begin).count();
    }
    void nap() const
    {
        const int64_t gone = gone_us();
        if (gone < PATIENT_US)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(
                std::clamp(gone / 16, (int64_t)NAP_LEAST_US, (int64_t)NAP_MOST_US)));
    }
};

bool is_written(const struct pst_twin_record *record, uint64_t sequence)
{
    return __atomic_load_n(&record->sequence, __ATOMIC_ACQUIRE) == sequence;
}

/* Has the queue failed, or ended without the record? */
bool has_failed(struct pst_queue *q, const struct pst_twin_record *record, uint64_t sequence)
{
    const cudaError_t now = cudaStreamQuery(q->stream);
    if (now == cudaErrorNotReady)
        (void)cudaGetLastError(); /* no later launch must see it */
    else if (pst_cu_checked(q, now) && !is_written(record, sequence))
        pst_cu_refuse(q, PST_E_STATE,
                      "the GPU finished a batch, but did not write the batch's results for the CPU: this is "
                      "a fault of Penstock or of the driver",
                      0, 0);
    return q->rc != PST_OK;
}
} // namespace

/* cudaEventSynchronize has no deadline. */
cudaError_t pst_cu_sleep_until(cudaEvent_t event, double limit_s)
{
    const patience p;
    cudaError_t now;
    while ((now = cudaEventQuery(event)) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* no later launch must see it */
        if ((double)p.gone_us() > limit_s * 1e6)
            break;
        p.nap();
    }
    return now;
}

/* Looks at the record in pinned memory, which takes no call of the driver. */
static pst_rc recorded(struct pst_queue *q, const struct pst_twin_record *record, uint64_t sequence,
                       char *why)
{
    const patience p;
    int64_t asked_us = 0;
    while (q->rc == PST_OK && !is_written(record, sequence)) {
        const int64_t gone = p.gone_us();
#ifdef PST_HOST_BUILD
        pst_cu_host_work_until(q->stream, &record->sequence, sequence);
#endif
        if ((double)gone > q->wait_s * 1e6)
            give_up(q);
        else if (gone < asked_us + ASK_US)
            p.nap();
        else if (!has_failed(q, record, sequence))
            asked_us = gone;
    }
    return tell(q, why);
}

static pst_rc wait(struct pst_queue *q, char *why)
{
    *q->report = PST_OK;
    (void)pst_cu_checked(
        q, cudaMemcpyAsync(q->report, q->status, sizeof *q->report, cudaMemcpyDefault, q->stream));
    (void)pst_cu_checked(q, cudaMemsetAsync(q->status, 0, sizeof *q->status, q->stream));
    if (pst_cu_checked(q, cudaEventRecord(q->done, q->stream))) {
        const cudaError_t error = pst_cu_sleep_until(q->done, q->wait_s);
        if (error == cudaErrorNotReady)
            give_up(q);
        else
            (void)pst_cu_checked(q, error);
    }
    const pst_rc rc = tell(q, why);
    if (rc != PST_OK)
        return rc;
    if (*q->report != PST_OK)
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "a kernel found an error in its data");
    return (pst_rc)*q->report;
}

static pst_rc reserve(struct pst_queue *q, int64_t most, int64_t columns, char *why)
{
    const size_t bytes = scratch_of(most, columns);
    if (bytes <= q->scratch_bytes)
        return PST_OK;
    const pst_rc rc = wait(q, why);
    if (rc != PST_OK)
        return rc;
    if (!on_device(q))
        return tell(q, why);
    (void)cudaFree(q->scratch);
    q->scratch = NULL;
    q->scratch_bytes = 0;
    if (pst_cu_checked(q, cudaMalloc((void **)&q->scratch, bytes)))
        q->scratch_bytes = bytes;
    return tell(q, why);
}

/* ---- graphs -------------------------------------------------------------------------------------- */

struct pst_twin_graph {
    cudaGraphExec_t exec;
    int device;
    const char *last_file; /* of its launches */
    int last_line;
};

/* Relaxed, because CUDA may load kernels meanwhile, and other threads may allocate memory. */
static pst_rc graph_begin(struct pst_queue *q)
{
    if (on_device(q))
        (void)pst_cu_checked(q, cudaStreamBeginCapture(q->stream, cudaStreamCaptureModeRelaxed));
    return q->rc;
}

static pst_rc graph_end(struct pst_queue *q, struct pst_twin_graph **graph, char *why)
{
    cudaGraph_t captured = NULL;
    *graph = NULL;
    (void)pst_cu_checked(q, cudaStreamEndCapture(q->stream, &captured)); /* after a failure, too */
    struct pst_twin_graph *made =
        new (std::nothrow) pst_twin_graph{NULL, q->device, q->last_file, q->last_line};
    if (!made)
        pst_cu_refuse(q, PST_E_NOMEM, "out of memory: cannot allocate a graph of GPU work", 0, 0);
    if (q->rc == PST_OK && pst_cu_checked(q, cudaGraphInstantiate(&made->exec, captured, 0)))
        *graph = made;
    else
        delete made;
    if (captured)
        (void)cudaGraphDestroy(captured);
    return tell(q, why);
}

static pst_rc graph_run(struct pst_queue *q, struct pst_twin_graph *graph)
{
    if (q->rc != PST_OK || !on_device(q))
        return q->rc;
    q->last_file = graph->last_file;
    q->last_line = graph->last_line;
    (void)pst_cu_checked(q, cudaGraphLaunch(graph->exec, q->stream));
    return q->rc;
}

static void graph_free(struct pst_twin_graph *graph)
{
    if (!graph)
        return;
    (void)cudaSetDevice(graph->device);
    (void)cudaGraphExecDestroy(graph->exec);
    delete graph;
}

static void draws_at(struct pst_queue *q, const struct pst_rng_stream *at)
{
    q->draws = at;
}

/* The only symbol that this object exports. */
extern "C" PST_API const struct pst_twin *pst_twin_cuda(void)
{
    static const struct pst_twin cuda = {
        sizeof(struct pst_twin),
#ifdef PST_HOST_BUILD
        "cuda on the host",
#else
        "cuda",
#endif
        pst_cu_nvme_cuda(),
#define PST_MEMBER(kernel) pst_k_##kernel,
        PST_TWIN_KERNELS(PST_MEMBER)
#undef PST_MEMBER
#define PST_MEMBER(kernel) pst_kn_##kernel,
            PST_TWIN_KERNELS_N(PST_MEMBER)
#undef PST_MEMBER
                queue_new,
        queue_free,
        reserve,
        alloc,
        release,
        room,
        copy,
        fill,
        stream,
        record,
        recorded,
        wait,
        graph_begin,
        graph_end,
        graph_run,
        graph_free,
        draws_at,
        NULL, /* factor_set and the next four: cuBLASLt rounds as it multiplies */
        NULL,
        NULL,
        NULL,
        NULL,
        NULL, /* by_source: mean_grad and weighted_sum_grad sort the edges */
        NULL, /* sum_by_source */
        NULL, /* gemm_zeros: there is no such kernel */
        pst_cu_sums_id,
        pst_cu_sums_new,
        pst_cu_sums_add,
        pst_cu_sums_free,
    };
    return &cuda;
}
