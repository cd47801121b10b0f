/* runtime.cpp: memory, streams and events of the host build (cuda_runtime.h). Device memory is the heap's, so
 * that ASan knows its bounds, and full of rubbish; a stream is a list of work that runs when it must. */
#include "cuda_runtime.h"

#include <cassert>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <sys/mman.h>

namespace
{
enum {
    DEVICES = 2,
    MULTIPROCESSORS = 2, /* few, so that grids are smaller than their work, as on a GPU with more of it */
    ALIGNMENT = 256,     /* cudaMalloc's */
    RUBBISH = 0xA5,
    SHARED_DEFAULT = 48 * 1024, /* what a block may have without asking */
    SHARED_MAX = 227 * 1024,
    THREADS_MAX = 1024,
};
constexpr size_t SPARSE =
    (size_t)1 << 30; /* allocations from here on take memory only where they are touched */

std::recursive_mutex lock; /* streams and what is kept below */
thread_local cudaError_t last_error = cudaSuccess;
std::map<const void *, size_t> allowed_shared;
std::map<void *, size_t> sparse, taken; /* mapped; device memory */
std::map<char *, size_t> registered; /* memory of the host that kernels may use */
size_t taken_bytes;

/* What the virtual GPUs have between them in this process: PENSTOCK_HOST_GPU_BYTES, or about what a GPU has.
 */
size_t memory_bytes()
{
    const char *wanted = getenv("PENSTOCK_HOST_GPU_BYTES");
    return wanted ? (size_t)strtoull(wanted, nullptr, 10) : (size_t)80 << 30;
}

cudaError_t keep(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t take_memory(void **at, size_t bytes)
{
    void *memory = nullptr;
    if (bytes >= SPARSE) {
        memory =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return keep(cudaErrorMemoryAllocation);
        const std::lock_guard<std::recursive_mutex> guard(lock);
        sparse[memory] = bytes;
        *at = memory;
        return cudaSuccess;
    }
    if (posix_memalign(&memory, ALIGNMENT, bytes ? bytes : 1) != 0)
        return keep(cudaErrorMemoryAllocation);
    memset(memory, RUBBISH, bytes);
    *at = memory;
    return cudaSuccess;
}
} // namespace

struct pst_host_stream {
    std::deque<std::function<void()>> work;
    uint64_t done, put;
};

struct pst_host_event {
    pst_host_stream *stream; /* NULL: never recorded */
    uint64_t after;          /* this many pieces of its work */
};

static pst_host_stream default_stream;

static void drain(pst_host_stream *stream, uint64_t until)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    while (stream->done < until && !stream->work.empty()) {
        const std::function<void()> next = stream->work.front();
        stream->work.pop_front();
        next();
        stream->done++;
    }
}

void pst_host_enqueue(cudaStream_t stream, std::function<void()> work)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    pst_host_stream *s = stream ? stream : &default_stream;
    s->work.push_back(std::move(work));
    s->put++;
}

void pst_host_allow_shared(const void *kernel, size_t bytes)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    allowed_shared[kernel] = bytes;
}

bool pst_host_launchable(dim3 blocks, dim3 threads, size_t shared_bytes, const void *kernel)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    const auto found = allowed_shared.find(kernel);
    const size_t room = found == allowed_shared.end() ? (size_t)SHARED_DEFAULT : found->second;
    const uint64_t count = (uint64_t)threads.x * threads.y * threads.z;
    if (blocks.x == 0 || blocks.x > 0x7FFFFFFFu || blocks.y == 0 || blocks.y > 65535 || blocks.z == 0 ||
        blocks.z > 65535 || count == 0 || count > THREADS_MAX) {
        keep(cudaErrorInvalidConfiguration);
        return false;
    }
    if (shared_bytes > room || shared_bytes > SHARED_MAX) {
        keep(cudaErrorInvalidValue);
        return false;
    }
    return true;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorHostMemoryAlreadyRegistered: return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered: return "cudaErrorHostMemoryNotRegistered";
    }
    return "an unknown error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return cudaGetErrorName(error);
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = DEVICES;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= DEVICES)
        return keep(cudaErrorInvalidDevice);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int device)
{
    *value = MULTIPROCESSORS;
    return cudaSetDevice(device);
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    if (bytes > memory_bytes() || taken_bytes > memory_bytes() - bytes)
        return keep(cudaErrorMemoryAllocation);
    const cudaError_t error = take_memory(at, bytes);
    if (error == cudaSuccess) {
        taken[*at] = bytes;
        taken_bytes += bytes;
    }
    return error;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    *total_bytes = memory_bytes();
    *free_bytes = *total_bytes > taken_bytes ? *total_bytes - taken_bytes : 0;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned)
{
    return take_memory(at, bytes);
}

cudaError_t cudaFree(void *at)
{
    drain(&default_stream, UINT64_MAX);
    const std::lock_guard<std::recursive_mutex> guard(lock);
    const auto mine = taken.find(at);
    if (mine != taken.end()) {
        taken_bytes -= mine->second;
        taken.erase(mine);
    }
    const auto found = sparse.find(at);
    if (found == sparse.end()) {
        free(at);
        return cudaSuccess;
    }
    (void)munmap(at, found->second);
    sparse.erase(found);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
    return cudaFree(at);
}

/* As CUDA's: what is registered is not registered again, nor a part of it. */
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    char *begin = static_cast<char *>(at);
    if (!at || bytes == 0)
        return keep(cudaErrorInvalidValue);
    for (const auto &r : registered)
        if (begin < r.first + r.second && r.first < begin + bytes)
            return keep(cudaErrorHostMemoryAlreadyRegistered);
    registered[begin] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *at)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    return registered.erase(static_cast<char *>(at)) ? cudaSuccess : keep(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device_at, void *at, unsigned)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    for (const auto &r : registered)
        if (static_cast<char *>(at) >= r.first && static_cast<char *>(at) < r.first + r.second) {
            *device_at = at;
            return cudaSuccess;
        }
    return keep(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    pst_host_enqueue(stream, [=] { memcpy(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    (void)cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void *at, int byte, size_t bytes, cudaStream_t stream)
{
    pst_host_enqueue(stream, [=] { memset(at, byte, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new pst_host_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    drain(stream ? stream : &default_stream, UINT64_MAX);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    drain(stream, UINT64_MAX);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new pst_host_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> guard(lock);
    event->stream = stream ? stream : &default_stream;
    event->after = event->stream->put;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->stream)
        drain(event->stream, event->after);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const pst_host_event now = *event; /* what is recorded later is not waited for */
    if (now.stream)
        pst_host_enqueue(stream, [=] { drain(now.stream, now.after); });
    return cudaSuccess;
}
