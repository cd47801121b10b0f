/* graph.cpp: graphs of the host build. A captured stream keeps its work for a graph, which then is put on a
 * stream as often as it is launched. Calls that CUDA refuses during a capture spoil it,
 * and so do calls that CUDA allows, but that no kernel's caller needs: allocations and events. */
#include "kernels/cuda/host/counts.h"
#include "kernels/cuda/host/virtual.h"

namespace
{
thread_local pst_cu_host_stream *capturing; /* by this thread */

void end_capture()
{
    capturing->captured = nullptr;
    capturing = nullptr;
    pst_cu_host_counts_divert(nullptr);
}
} // namespace

bool pst_cu_host_captures()
{
    if (!capturing)
        return false;
    capturing->captured->broken = true;
    (void)pst_cu_host_keep(cudaErrorStreamCaptureUnsupported);
    return true;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    if (!stream) /* the default stream */
        return pst_cu_host_keep(cudaErrorStreamCaptureUnsupported);
    if (capturing || stream->captured) /* CUDA can capture several; no queue of ours needs it */
        return pst_cu_host_keep(cudaErrorIllegalState);
    capturing = stream;
    stream->captured = new pst_cu_host_graph();
    stream->captured->device = stream->device;
    pst_cu_host_counts_divert(stream->captured->counts);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    *graph = nullptr;
    if (!capturing || capturing != stream)
        return pst_cu_host_keep(cudaErrorIllegalState);
    pst_cu_host_graph *made = stream->captured;
    end_capture();
    if (made->broken) {
        delete made;
        return pst_cu_host_keep(cudaErrorStreamCaptureInvalidated);
    }
    *graph = made;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    if (!graph)
        return pst_cu_host_keep(cudaErrorInvalidValue);
    pst_cu_host_counts_add(PST_HOST_GRAPHS_MADE);
    *exec = new pst_cu_host_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* The stream has copies of the work, so a graph may go while it runs, as CUDA allows. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    if (!exec || !stream || stream->device != exec->device)
        return pst_cu_host_keep(cudaErrorInvalidValue);
    if (pst_cu_host_captures()) /* CUDA makes it a node; no queue of ours needs it */
        return cudaErrorStreamCaptureUnsupported;
    pst_cu_host_counts_add(PST_HOST_CALLS);
    pst_cu_host_counts_add(PST_HOST_GRAPHS);
    pst_cu_host_counts_add_all(exec->counts);
    for (const pst_cu_host_work &work : exec->work)
        pst_cu_host_put(stream, work);
    return cudaSuccess;
}
