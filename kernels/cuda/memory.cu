/* memory.cu: memory and events of GPUs that processes share: CUDA's side of common/ipc/gpus.h. It uses
 * legacy IPC (cudaIpc*), which works for memory of cudaMalloc. */
#include "common/ipc/gpus.h"
#include "kernels/twin.h"
#include "kernels/cuda/sleep.cuh"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

namespace
{
static_assert(sizeof(cudaIpcMemHandle_t) == PST_IPC_BYTES && sizeof(cudaIpcEventHandle_t) == PST_IPC_BYTES,
              "handles are plain bytes");

pst_rc told(cudaError_t error, int gpu, const char *call, char *why)
{
    if (error == cudaSuccess)
        return PST_OK;
    (void)snprintf(why, PST_GPUS_WHY_BYTES, "cuda:%d: %s: %s (%s)", gpu, call, cudaGetErrorString(error),
                   cudaGetErrorName(error));
    (void)cudaGetLastError(); /* the error is reported here, so later launches must not see it */
    return error == cudaErrorMemoryAllocation ? PST_E_NOMEM : PST_E_IO;
}

/* Makes gpu the calling thread's device, then calls. Both are checked. */
#define ON(gpu, why, call)                                                                                   \
    [&] {                                                                                                    \
        const pst_rc rc_ = told(cudaSetDevice(gpu), gpu, "cudaSetDevice", why);                              \
        return rc_ == PST_OK ? told(call, gpu, #call, why) : rc_;                                            \
    }()

pst_rc count(int *gpus, char *why)
{
    const cudaError_t error = cudaGetDeviceCount(gpus);
    if (error == cudaErrorNoDevice) {
        (void)cudaGetLastError();
        *gpus = 0;
        return PST_OK;
    }
    if (error != cudaSuccess)
        *gpus = 0;
    return told(error, 0, "cudaGetDeviceCount", why);
}

pst_rc describe(int gpu, struct pst_gpu *out, char *why)
{
    cudaDeviceProp of = {};
    int gpus = 0;
    pst_rc rc = told(cudaGetDeviceProperties(&of, gpu), gpu, "cudaGetDeviceProperties", why);
    if (rc == PST_OK)
        rc = count(&gpus, why);
    *out = {};
    (void)snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, of.name);
    out->bytes = of.totalGlobalMem;
    out->major = of.major;
    out->minor = of.minor;
    out->multiprocessors = of.multiProcessorCount;
    for (int peer = 0; rc == PST_OK && peer < gpus && peer < PST_GPUS_MAX; peer++) {
        int can = 0;
        if (peer != gpu)
            rc = told(cudaDeviceCanAccessPeer(&can, gpu, peer), gpu, "cudaDeviceCanAccessPeer", why);
        out->peers |= (can ? 1u : 0u) << peer;
    }
    return rc;
}

/* ---- device memory ------------------------------------------------------------------------------- */

pst_rc alloc(int gpu, uint64_t bytes, void **at, char *why)
{
    return ON(gpu, why, cudaMalloc(at, bytes));
}

pst_rc release(int gpu, void *at, char *why)
{
    return ON(gpu, why, cudaFree(at));
}

pst_rc share(int gpu, void *at, struct pst_ipc *handle, char *why)
{
    cudaIpcMemHandle_t h;
    const pst_rc rc = ON(gpu, why, cudaIpcGetMemHandle(&h, at));
    memcpy(handle->bytes, &h, sizeof h);
    return rc;
}

pst_rc open(int gpu, const struct pst_ipc *handle, void **at, char *why)
{
    cudaIpcMemHandle_t h;
    memcpy(&h, handle->bytes, sizeof h);
    return ON(gpu, why, cudaIpcOpenMemHandle(at, h, cudaIpcMemLazyEnablePeerAccess));
}

pst_rc close(int gpu, void *at, char *why)
{
    return ON(gpu, why, cudaIpcCloseMemHandle(at));
}

/* ---- host memory --------------------------------------------------------------------------------- */

pst_rc pin(int gpu, void *at, uint64_t bytes, char *why)
{
    void *seen = NULL;
    pst_rc rc = ON(gpu, why, cudaHostRegister(at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    if (rc != PST_OK)
        return rc;
    rc = ON(gpu, why, cudaHostGetDevicePointer(&seen, at, 0));
    if (rc == PST_OK && seen != at) {
        (void)snprintf(why, PST_GPUS_WHY_BYTES,
                       "cuda:%d: the GPU and the host see pinned memory at different addresses, so stages on "
                       "this GPU cannot share it",
                       gpu);
        rc = PST_E_UNSUPPORTED;
    }
    if (rc != PST_OK)
        (void)cudaHostUnregister(at);
    return rc;
}

pst_rc unpin(int gpu, void *at, char *why)
{
    return ON(gpu, why, cudaHostUnregister(at));
}

/* ---- events -------------------------------------------------------------------------------------- */

pst_rc event_new(int gpu, bool shared, void **event, char *why)
{
    const unsigned flags = cudaEventDisableTiming | (shared ? (unsigned)cudaEventInterprocess : 0u);
    return ON(gpu, why, cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t *>(event), flags));
}

pst_rc event_free(int gpu, void *event, char *why)
{
    return ON(gpu, why, cudaEventDestroy(static_cast<cudaEvent_t>(event)));
}

pst_rc event_share(int gpu, void *event, struct pst_ipc *handle, char *why)
{
    cudaIpcEventHandle_t h;
    const pst_rc rc = ON(gpu, why, cudaIpcGetEventHandle(&h, static_cast<cudaEvent_t>(event)));
    memcpy(handle->bytes, &h, sizeof h);
    return rc;
}

pst_rc event_open(int gpu, const struct pst_ipc *handle, void **event, char *why)
{
    cudaIpcEventHandle_t h;
    memcpy(&h, handle->bytes, sizeof h);
    return ON(gpu, why, cudaIpcOpenEventHandle(reinterpret_cast<cudaEvent_t *>(event), h));
}

pst_rc event_record(int gpu, void *event, void *stream, char *why)
{
    return ON(gpu, why, cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}

pst_rc event_wait(int gpu, void *event, void *stream, bool host, char *why)
{
    const cudaEvent_t e = static_cast<cudaEvent_t>(event);
    if (!host)
        return ON(gpu, why, cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), e, 0));
    const double limit_s = pst_queue_wait_s();
    cudaError_t error = cudaSuccess;
    const pst_rc rc =
        ON(gpu, why, (error = pst_cu_sleep_until(e, limit_s)) == cudaErrorNotReady ? cudaSuccess : error);
    if (rc != PST_OK || error == cudaSuccess)
        return rc;
    (void)snprintf(why, PST_GPUS_WHY_BYTES,
                   "cuda:%d: an event was not reached within %g s (PENSTOCK_GPU_WAIT_S)", gpu, limit_s);
    return PST_E_TIMEOUT;
}

/* ---- copies -------------------------------------------------------------------------------------- */

pst_rc copy(int gpu, void *to, const void *from, uint64_t bytes, char *why)
{
    const pst_rc rc = ON(gpu, why, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, NULL));
    return rc == PST_OK ? told(cudaStreamSynchronize(NULL), gpu, "cudaStreamSynchronize", why) : rc;
}
} // namespace

extern "C" PST_API const struct pst_gpus *pst_gpus_cuda(void)
{
    static const struct pst_gpus gpus = {
        sizeof(struct pst_gpus),
        count,
        describe,
        alloc,
        release,
        share,
        open,
        close,
        pin,
        unpin,
        event_new,
        event_free,
        event_share,
        event_open,
        event_record,
        event_wait,
        copy,
    };
    return &gpus;
}
