/* queue.cuh: what every kernel here uses: the queue, launches, counts that are still on their way, and
 * loops over work. */
#ifndef PST_QUEUE_CUH
#define PST_QUEUE_CUH

#include "common/util/rng.h"
#include "kernels/twin.h"

#include <cuda_runtime.h>
#include <cublasLt.h>

enum {
    PST_CU_WARP = 32,
    PST_CU_THREADS = 256, /* threads of a block unless a kernel needs another number: eight warps hide each
                             other's waits */
    PST_CU_GRID_WAVES =
        32, /* blocks for each multiprocessor, which runs 8 at a time: more even out the end */
    PST_CU_PRODUCT_BYTES = 32 << 20, /* workspace of a product: what cuBLAS advises for Hopper */
};

struct pst_queue {
    cudaStream_t stream;
    bool own_stream;
    pst_twin_precision precision;
    int device, multiprocessors;
    char *scratch; /* used anew by each call, since calls run one after the other */
    size_t scratch_bytes, scratch_used;
    int32_t *status;                    /* on the device: PST_OK, or what is wrong with the data */
    int64_t *unused;                    /* on the device: gets counts that nobody asked for */
    int32_t *report;                    /* pinned: a copy of the status for the host */
    cudaEvent_t done;                   /* the host sleeps for it: for everything */
    double wait_s;                      /* at most */
    const struct pst_rng_stream *draws; /* where kernels find their stream (draws_at); NULL: in the call */
    bool left_alone;                    /* a wait has timed out */
    const char *last_file;              /* where the last launch was made */
    int last_line;
    const struct pst_cu_lt *lt_calls; /* lt.cuh */
    cublasLtHandle_t lt;              /* NULL: this queue makes no products */
    void *lt_memory;
    char *why; /* the first launch or call that failed; "" if there is none */
    pst_rc rc;
    struct pst_cu_lt_plans *plans; /* of products (plans.cuh); NULL: this queue makes none */
};

/* ---- launches ------------------------------------------------------------------------------------ */

/* Remembers the first failure of a CUDA call and where it happened. False: this call failed, or an earlier
 * one. */
bool pst_cu_checked(struct pst_queue *q, cudaError_t error, const char *file = __builtin_FILE(),
                    int line = __builtin_LINE());
/* Remembers a failure that is not CUDA's. If asked is 0, the message gives no sizes. */
void pst_cu_refuse(struct pst_queue *q, pst_rc rc, const char *what, size_t asked, size_t had);

struct pst_cu_launch {
    struct pst_queue *q;
    unsigned blocks, threads;
    size_t shared_bytes;
    const char *file;
    int line;

    template <class... P, class... A> void operator()(void (*kernel)(P...), A... args) const
    {
        if (blocks == 0 || q->rc != PST_OK)
            return;
        q->last_file = file;
        q->last_line = line;
        (void)cudaSetDevice(q->device); /* the calling thread may have used another one meanwhile */
#ifdef PST_HOST_BUILD
        pst_cu_host_launch(kernel, blocks, threads, shared_bytes, q->stream, pst_cu_site{file, line},
                           args...);
#else
        kernel<<<blocks, threads, shared_bytes, q->stream>>>(static_cast<P>(args)...);
#endif
        (void)pst_cu_checked(q, cudaGetLastError(), file, line);
    }
};

/* pst_cu_on(q, blocks)(kernel, arguments...) launches a kernel on the queue and checks the launch. */
static inline struct pst_cu_launch pst_cu_on(struct pst_queue *q, unsigned blocks,
                                             unsigned threads = PST_CU_THREADS, size_t shared_bytes = 0,
                                             const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return {q, blocks, threads, shared_bytes, file, line};
}

/* The number of blocks for so many items. A kernel's loop over them goes by pst_cu_first and pst_cu_step. */
static inline unsigned pst_cu_grid(const struct pst_queue *q, int64_t items, int64_t items_a_block)
{
    const int64_t blocks = (items + items_a_block - 1) / items_a_block;
    return (unsigned)pst_min_i64(blocks, (int64_t)q->multiprocessors * PST_CU_GRID_WAVES);
}

const struct pst_k_nvme_twin *pst_cu_nvme_cuda(void); /* nvme.h */

/* Sums over GPUs (twin.h; kernels/cuda/nccl). */
pst_rc pst_cu_sums_id(char *id, char *why);
pst_rc pst_cu_sums_new(struct pst_queue *q, const char *id, int member, int members,
                       struct pst_twin_sums **sums, char *why);
pst_rc pst_cu_sums_add(struct pst_twin_sums *sums, pst_real *values, int64_t n);
void pst_cu_sums_free(struct pst_twin_sums *sums);

/* Takes a piece of the queue's scratch memory for the running call. NULL: there is not enough, and the
 * queue has failed. pst_cu_begin() starts a call. */
void pst_cu_begin(struct pst_queue *q);
void *pst_cu_scratch(struct pst_queue *q, size_t bytes);

/* ---- shared memory ------------------------------------------------------------------------------- */

#ifdef PST_HOST_BUILD
#define PST_CU_SHARED(type, name, shape)                                                                     \
    static type name shape;                                                                                  \
    pst_cu_host_shared(&name, sizeof name)
#define PST_CU_SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(pst_cu_host_shared_dynamic())
#else
#define PST_CU_SHARED(type, name, shape) __shared__ type name shape
#define PST_CU_SHARED_DYNAMIC(type, name)                                                                    \
    extern __shared__ __align__(16) unsigned char pst_cu_dynamic[];                                          \
    type *name = reinterpret_cast<type *>(pst_cu_dynamic)
#endif

#ifdef PST_HOST_BUILD
#define PST_CU_CROSSES(at, bytes) pst_cu_host_counts_bus(at, bytes) /* tests count the lines */
#else
#define PST_CU_CROSSES(at, bytes) (void)0
#endif

/* ---- in a kernel --------------------------------------------------------------------------------- */

static __device__ __forceinline__ int64_t pst_cu_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ int64_t pst_cu_step()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* The count, at most n.most. */
static __device__ __forceinline__ int64_t pst_cu_value(struct pst_twin_n n)
{
    const int64_t value = n.at ? *n.at : n.most;
    return value < 0 ? 0 : value < n.most ? value : n.most;
}

/* 0 after a failure, so that nothing works on wrong data. */
static __device__ __forceinline__ int64_t pst_cu_value(struct pst_twin_n n, const int32_t *status)
{
    return *status == PST_OK ? pst_cu_value(n) : 0;
}

/* The same for all lanes of a warp, which go through a loop together. A fault may come between their
 * reads. */
static __device__ __forceinline__ int64_t pst_cu_warp_value(struct pst_twin_n n, const int32_t *status)
{
    return __shfl_sync(0xFFFFFFFFu, pst_cu_value(n, status), 0);
}

static __device__ __forceinline__ void pst_cu_fault(int32_t *status, pst_rc rc)
{
    (void)atomicMin(status, (int32_t)rc);
}

/* A relaxed load of what other threads may be writing. */
template <class T> static __device__ __forceinline__ T pst_cu_load(const T *at)
{
    return *static_cast<const volatile T *>(at);
}

/* A store that publishes earlier writes to the host. */
static __device__ __forceinline__ void pst_cu_publish(uint64_t *at, uint64_t value)
{
#ifdef PST_HOST_BUILD
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
#else
    __threadfence_system();
    *static_cast<volatile uint64_t *>(at) = value;
#endif
}

/* ---- sums over tiles --------------------------------------------------------------------------------
 *
 * A kernel that goes over tiles of its items gets the sum of all tiles before its own in one pass (decoupled
 * look-back: Merrill, Garland, "Single-pass parallel prefix scan with decoupled look-back", NVIDIA 2016).
 * Blocks take tiles in ascending order, and a block waits only for tiles that were taken before its own. So
 * the wait ends, however few blocks run at a time. */

enum {
    PST_CU_GROUP = 512
}; /* tiles whose sums are added at once; then the sum of all before them is known */

/* In device memory, zero before the kernel. A sum is stored plus 1; 0: it is not known yet. */
struct pst_cu_tiles {
    unsigned long long *taken; /* tiles that blocks have taken */
    unsigned long long *sum;   /* of each tile */
    unsigned long long *total; /* of all tiles up to the end of each group */
};

static inline int64_t pst_cu_tiles_words(int64_t tiles)
{
    return 1 + tiles + tiles / PST_CU_GROUP;
}

static inline struct pst_cu_tiles pst_cu_tiles_at(void *words, int64_t tiles)
{
    unsigned long long *at = static_cast<unsigned long long *>(words);
    return {at, at + 1, at + 1 + tiles};
}

/* The next tile, the same for the whole block, which then must publish its sum. Whether the block takes any
 * tile may depend on the status; after that it must not: the blocks after it wait. */
static __device__ __forceinline__ int64_t pst_cu_next_tile(const struct pst_cu_tiles &t)
{
    PST_CU_SHARED(int64_t, tile, );
    __syncthreads(); /* nobody still reads the last one, or the block's other shared memory */
    if (threadIdx.x == 0)
        tile = (int64_t)atomicAdd(t.taken, 1ull);
    __syncthreads();
    return tile;
}

static __device__ __forceinline__ void pst_cu_publish_sum(unsigned long long *at, int64_t sum)
{
    *static_cast<volatile unsigned long long *>(at) = (unsigned long long)sum + 1;
}

static __device__ __forceinline__ int64_t pst_cu_wait_for_sum(const unsigned long long *at)
{
    unsigned long long value;
    while ((value = pst_cu_load(at)) == 0) {
    }
    return (int64_t)value - 1;
}

/* The sum of `value` over the threads of the block before this one; *all: over the whole block. Has
 * barriers. */
template <int THREADS>
static __device__ __forceinline__ int64_t pst_cu_block_before(int64_t value, int64_t *all)
{
    PST_CU_SHARED(int64_t, sums, [THREADS / PST_CU_WARP]);
    const int lane = (int)threadIdx.x % PST_CU_WARP, warp = (int)threadIdx.x / PST_CU_WARP;
    int64_t upto = value, before = 0;
    for (int by = 1; by < PST_CU_WARP; by *= 2) {
        const int64_t other = __shfl_up_sync(0xFFFFFFFFu, upto, by);
        if (lane >= by)
            upto += other;
    }
    if (lane == PST_CU_WARP - 1)
        sums[warp] = upto;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < THREADS / PST_CU_WARP; w++) {
        if (w == warp)
            before = *all;
        *all += sums[w];
    }
    return before + upto - value;
}

/* The sum of all tiles before this one, whose own sum is `mine`, and which thread 0 has published. For the
 * whole block. Has barriers. */
template <int THREADS>
static __device__ __forceinline__ int64_t pst_cu_tiles_before(const struct pst_cu_tiles &t, int64_t tile,
                                                              int64_t mine)
{
    PST_CU_SHARED(int64_t, sums, [THREADS / PST_CU_WARP]);
    const int64_t group = tile / PST_CU_GROUP, first = group * PST_CU_GROUP;
    int64_t sum = 0, before = 0;
    for (int64_t at = first + threadIdx.x; at < tile; at += THREADS)
        sum += pst_cu_wait_for_sum(&t.sum[at]);
    if (threadIdx.x == THREADS - 1 && group > 0)
        sum += pst_cu_wait_for_sum(&t.total[group - 1]);
    for (int by = PST_CU_WARP / 2; by > 0; by /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, by);
    if (threadIdx.x % PST_CU_WARP == 0)
        sums[threadIdx.x / PST_CU_WARP] = sum;
    __syncthreads();
    for (int w = 0; w < THREADS / PST_CU_WARP; w++)
        before += sums[w];
    if (threadIdx.x == 0 && tile == first + PST_CU_GROUP - 1)
        pst_cu_publish_sum(&t.total[group], before + mine);
    return before;
}

/* The count, the same for all threads of a block, whose status may change meanwhile. Has a barrier. */
static __device__ __forceinline__ int64_t pst_cu_block_value(struct pst_twin_n n, const int32_t *status)
{
    PST_CU_SHARED(int64_t, value, );
    if (threadIdx.x == 0)
        value = pst_cu_value(n, status);
    __syncthreads();
    return value;
}

/* ---- iterators for CUB --------------------------------------------------------------------------- */

/* Reads: item i is f(i). F::value is its type. */
template <class F> struct pst_cu_input {
    using value_type = typename F::value;
    using difference_type = int64_t;
    using reference = value_type;
    using pointer = void;
    using iterator_category = std::random_access_iterator_tag;
    F f;
    int64_t at;
    __host__ __device__ value_type operator*() const
    {
        return f(at);
    }
    __host__ __device__ value_type operator[](int64_t i) const
    {
        return f(at + i);
    }
    __host__ __device__ pst_cu_input operator+(int64_t i) const
    {
        return pst_cu_input{f, at + i};
    }
};

/* Writes: item i is put by f(i, value). */
template <class F> struct pst_cu_output {
    struct place {
        F f;
        int64_t at;
        template <class T> __host__ __device__ void operator=(const T &value) const
        {
            f(at, value);
        }
    };
    using value_type = void;
    using difference_type = int64_t;
    using reference = place;
    using pointer = void;
    using iterator_category = std::random_access_iterator_tag;
    F f;
    int64_t at;
    __host__ __device__ place operator*() const
    {
        return place{f, at};
    }
    __host__ __device__ place operator[](int64_t i) const
    {
        return place{f, at + i};
    }
    __host__ __device__ pst_cu_output operator+(int64_t i) const
    {
        return pst_cu_output{f, at + i};
    }
};

/* ---- draws of neighbours, one for each lane, as in kernels/cpu/sample.c --------------------------- */

/* The stream of a call: its own, or the one that is in memory when the kernel runs. */
struct pst_cu_stream {
    struct pst_rng_stream own;
    const struct pst_rng_stream *at;
};

static inline struct pst_cu_stream pst_cu_stream_of(const struct pst_queue *q,
                                                    const struct pst_rng_stream &own)
{
    return {own, q->draws};
}

static __device__ __forceinline__ struct pst_rng_stream pst_cu_stream_now(const struct pst_cu_stream &s)
{
    return s.at ? *s.at : s.own;
}

/* The position of draw `slot` of `fanout` in a list of `degree` entries, before it is compared with the draws
 * before it. */
static __device__ __forceinline__ int64_t pst_cu_pick(const pst_rng_stream &stream, int64_t vertex,
                                                      int64_t degree, int fanout, bool replace, int slot)
{
    const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)vertex, (uint32_t)slot / 2);
    const uint32_t low = slot % 2 ? draw.word[2] : draw.word[0],
                   high = slot % 2 ? draw.word[3] : draw.word[1];
    const int64_t bound = replace ? degree : degree - fanout + slot + 1;
    return (int64_t)pst_rng_bounded((uint64_t)high << 32 | low, (uint64_t)(bound > 0 ? bound : 1));
}

/* Lane t of a group has draw t. If a lane has drawn a position that is taken, it takes its own last one. */
static __device__ __forceinline__ int64_t pst_cu_settle(int64_t pick, int64_t position, int64_t last,
                                                        int slots, int lane, int lanes)
{
    for (int t = 0; t + 1 < slots; t++) {
        const int64_t settled = __shfl_sync(0xFFFFFFFFu, position, t, lanes);
        if (lane > t && settled == pick)
            position = last;
    }
    return position;
}

#endif
