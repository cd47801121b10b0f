/* cuda_runtime.h of the host build: the part of CUDA that the kernels use, on the host (runtime.cpp,
 * fiber.h). Streams put off their work until somebody waits for it, which is as late as a GPU may. */
#ifndef PST_HOST_CUDA_RUNTIME_H
#define PST_HOST_CUDA_RUNTIME_H

#include "kernels/cuda/host/counts.h"
#include "kernels/cuda/host/fiber.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#define PST_HOST_BUILD 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

/* ---- the runtime ------------------------------------------------------------------------------------- */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorDeviceUninitialized = 201, /* "invalid device context" */
    cudaErrorMapBufferObjectFailed = 205,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorIllegalState = 401,
    cudaErrorUnknown = 999,
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum {
    cudaStreamNonBlocking = 1,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaEventInterprocess = 4
};
enum {
    cudaHostAllocMapped = 2,
    cudaHostRegisterPortable = 1,
    cudaHostRegisterMapped = 2,
    cudaHostRegisterIoMemory = 4
};
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
struct cudaIpcMemHandle_t {
    char reserved[64];
};
struct cudaIpcEventHandle_t {
    char reserved[64];
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
};

typedef struct pst_cu_host_stream *cudaStream_t;
typedef struct pst_cu_host_event *cudaEvent_t;
typedef struct pst_cu_host_graph *cudaGraph_t, *cudaGraphExec_t;

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMalloc(void **at, size_t bytes);
cudaError_t cudaFree(void *at);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *at);
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *at);
cudaError_t cudaHostGetDevicePointer(void **out, void *at, unsigned flags);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *at);
cudaError_t cudaIpcOpenMemHandle(void **at, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *at);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *at, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event);
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle);
cudaError_t cudaEventDestroy(cudaEvent_t event);

/* Appends work to a stream. */
void pst_cu_host_enqueue(cudaStream_t stream, std::function<void()> work);
/* Does the stream's work until it has written this value to a word of the host's memory, or can go no
 * further.
 */
void pst_cu_host_work_until(cudaStream_t stream, const uint64_t *word, uint64_t value);
/* Checks the shape and stream of a launch as CUDA does. The error is kept for cudaGetLastError. */
bool pst_cu_host_launchable(dim3 blocks, dim3 threads, size_t shared_bytes, const void *kernel,
                            cudaStream_t stream);
void pst_cu_host_allow_shared(const void *kernel, size_t bytes);
/* For tests: if PENSTOCK_VIRTUAL_HANG names the launch's file, appends work that does not end while it is
 * set. */
bool pst_cu_host_hangs(cudaStream_t stream, const pst_cu_site &site);

template <class K> cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute, int value)
{
    pst_cu_host_allow_shared(reinterpret_cast<const void *>(kernel), (size_t)value);
    return cudaSuccess;
}

/* kernel<<<blocks, threads, shared, stream>>>(args...) */
template <class... P, class... A>
void pst_cu_host_launch(void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared_bytes,
                        cudaStream_t stream, pst_cu_site site, A... args)
{
    if (!pst_cu_host_launchable(blocks, threads, shared_bytes, reinterpret_cast<const void *>(kernel),
                                stream) ||
        pst_cu_host_hangs(stream, site))
        return;
    std::tuple<P...> kept(static_cast<P>(args)...);
    pst_cu_host_enqueue(stream, [=]() mutable {
        auto one = [&] { std::apply(kernel, kept); };
        pst_cu_host_run([](void *user) { (*static_cast<decltype(one) *>(user))(); }, &one, blocks, threads,
                        shared_bytes, site);
    });
}

/* ---- inside a kernel --------------------------------------------------------------------------------- */

#define threadIdx (pst_cu_host_me->thread)
#define blockIdx (pst_cu_host_me->block)
#define blockDim (pst_cu_host_me->threads)
#define gridDim (pst_cu_host_me->blocks)
#define PST_HOST_SITE pst_cu_site site = {__builtin_FILE(), __builtin_LINE()} /* the caller's */

template <class T> inline uint64_t pst_cu_host_bits(T value)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "what a register pair holds");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> inline T pst_cu_host_value(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline void __syncthreads(PST_HOST_SITE)
{
    (void)pst_cu_host_block(false, site);
}
inline int __syncthreads_or(int predicate, PST_HOST_SITE)
{
    return pst_cu_host_block(predicate != 0, site) > 0;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, PST_HOST_SITE)
{
    (void)pst_cu_host_warp(HOST_SYNC, mask, 0, 0, 32, site);
}
template <class T> inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, PST_HOST_SITE)
{
    return pst_cu_host_value<T>(
        pst_cu_host_warp(HOST_SHFL, mask, pst_cu_host_bits(value), lane, width, site));
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, int by, int width = 32, PST_HOST_SITE)
{
    return pst_cu_host_value<T>(
        pst_cu_host_warp(HOST_SHFL_UP, mask, pst_cu_host_bits(value), by, width, site));
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, int by, int width = 32, PST_HOST_SITE)
{
    return pst_cu_host_value<T>(
        pst_cu_host_warp(HOST_SHFL_DOWN, mask, pst_cu_host_bits(value), by, width, site));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, PST_HOST_SITE)
{
    return pst_cu_host_value<T>(
        pst_cu_host_warp(HOST_SHFL_XOR, mask, pst_cu_host_bits(value), with, width, site));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, PST_HOST_SITE)
{
    return (unsigned)pst_cu_host_warp(HOST_BALLOT, mask, predicate != 0, 0, 32, site);
}
inline int __any_sync(unsigned mask, int predicate, PST_HOST_SITE)
{
    return pst_cu_host_warp(HOST_BALLOT, mask, predicate != 0, 0, 32, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, PST_HOST_SITE)
{
    return pst_cu_host_warp(HOST_BALLOT, mask, predicate == 0, 0, 32, site) == 0;
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T value, PST_HOST_SITE)
{
    return (unsigned)pst_cu_host_warp(HOST_MATCH, mask, pst_cu_host_bits(value), 0, 32, site);
}

/* One thread of the host runs them all. */
inline void __threadfence()
{
    __asm__ volatile("" ::: "memory");
}

/* Atomics are real ones, so that TSan sees them. Other threads may run before each. */
template <class T> inline T atomicAdd(T *at, T value)
{
    static_assert(std::is_integral<T>::value, "float atomics would make results depend on the order");
    pst_cu_host_meet();
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <class T> inline T atomicCAS(T *at, T expected, T value)
{
    pst_cu_host_meet();
    (void)__atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <class T, class F> inline T pst_cu_host_update(T *at, F change)
{
    pst_cu_host_meet();
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, change(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T> inline T atomicMin(T *at, T value)
{
    return pst_cu_host_update(at, [=](T old) { return value < old ? value : old; });
}
template <class T> inline T atomicMax(T *at, T value)
{
    return pst_cu_host_update(at, [=](T old) { return value > old ? value : old; });
}
template <class T> inline T atomicExch(T *at, T value)
{
    return pst_cu_host_update(at, [=](T) { return value; });
}
/* ---- arithmetic and vectors -------------------------------------------------------------------------- */

struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

/* Hints for caches, which a CPU has no use for. */
template <class T> inline T __ldcs(const T *from)
{
    return *from;
}
template <class T> inline void __stcs(T *to, T value)
{
    *to = value;
}

template <class T> inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <class T> inline T max(T a, T b)
{
    return a < b ? b : a;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline float __uint_as_float(unsigned bits)
{
    return pst_cu_host_value<float>(bits);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)(((wide)a * b) >> 64);
}

#endif
