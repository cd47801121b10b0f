/* runtime.cpp: devices, streams and events of the host build. A stream is a list of work that runs when it
 * must: when somebody waits for it, here or in another process. What its events wait for runs first. Code
 * that does not wait finds old data. */
#include "kernels/cuda/host/counts.h"
#include "kernels/cuda/host/virtual.h"

#include <cassert>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

struct pst_cu_host_event {
    int device;
    bool shared, opened;        /* between processes; made by another process */
    pst_cu_host_stream *stream; /* NULL: this process never recorded it */
    uint64_t after;             /* how many pieces of its work */
    pst_cu_host_shared_event *of;
};

namespace
{
enum {
    MULTIPROCESSORS = 2, /* few, so that grids are smaller than their work, as on a GPU with more work */
    OLDEST_MAJOR = 8,    /* for which there is code */
    SHARED_DEFAULT = 48 * 1024, /* what a block may have without asking */
    SHARED_MAX = 227 * 1024,
    THREADS_MAX = 1024,
    NAP_US = 50,
    LOOK_US = 300, /* between two looks at what other processes wait for */
};

/* A record of an event between processes: it has come when so much of the stream is done. */
struct told {
    pst_cu_host_shared_event *event;
    uint64_t turn;
    pst_cu_host_stream *stream;
    uint64_t after;
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current = 0;

/* Never destroyed, because the helper's thread may outlive the destruction of statics. */
struct state {
    std::recursive_mutex lock;
    std::map<const void *, size_t> allowed_shared;
    pst_cu_host_stream default_stream[PST_HOST_GPUS];
    std::set<pst_cu_host_stream *> streams;
    std::vector<told> told_others;
    std::condition_variable_any more;
    int helper = 0; /* the process whose thread does that */
    state()
    {
        for (int d = 0; d < PST_HOST_GPUS; d++) {
            default_stream[d] = pst_cu_host_stream();
            default_stream[d].device = d;
            streams.insert(&default_stream[d]);
        }
    }
};
state &st()
{
    static state *one = new state;
    return *one;
}

pst_cu_host_stream *stream_of(cudaStream_t stream)
{
    return stream ? stream : &st().default_stream[current];
}

/* Does one piece of the stream's work, if it can be done now. The caller allows it to touch device memory. */
bool step(pst_cu_host_stream *s)
{
    if (s->work.empty() || (s->work.front().ready && !s->work.front().ready()))
        return false;
    const pst_cu_host_work next = std::move(s->work.front());
    s->work.pop_front();
    if (next.run)
        next.run();
    s->done++;
    return true;
}

/* Works until that many pieces are done. While it waits for another process, other threads can work. */
cudaError_t drain(pst_cu_host_stream *s, uint64_t until)
{
    std::unique_lock<std::recursive_mutex> guard(st().lock);
    const uint64_t goal = until < s->put ? until : s->put;
    while (s->done < goal) {
        {
            const pst_cu_host_touch touch; /* once for everything that can be done */
            while (s->done < goal && step(s)) {
            }
        }
        if (s->done == goal)
            break;
        guard.unlock();
        (void)usleep(NAP_US);
        guard.lock();
    }
    return cudaSuccess;
}

/* Does it if another process waits for it. True: it is done. */
bool help_with(const told &t)
{
    pst_cu_host_stream *s = t.stream;
    if (st().streams.count(s) == 0)
        return true; /* drained and gone */
    if (s->done < t.after && t.event->wanted.load(std::memory_order_acquire) >= t.turn) {
        const pst_cu_host_touch touch;
        while (s->done < t.after && step(s)) {
        }
    }
    return s->done >= t.after;
}

/* Does what other processes wait for. */
void help()
{
    std::unique_lock<std::recursive_mutex> guard(st().lock);
    for (;;) {
        while (st().told_others.empty())
            st().more.wait(guard);
        guard.unlock();
        (void)usleep(LOOK_US);
        guard.lock();
        std::vector<told> left;
        for (const told &t : std::exchange(st().told_others, {}))
            if (!help_with(t))
                left.push_back(t);
        st().told_others.insert(st().told_others.end(), left.begin(), left.end());
    }
}

void tell_others(const told &t)
{
    st().told_others.push_back(t);
    if (st().helper != getpid()) {
        st().helper = getpid();
        std::thread(help).detach();
    }
    st().more.notify_all();
}

/* Has the event come so far? If not, tells the process that recorded it that somebody waits. If that
 * process has died, it never comes. */
bool has_come(pst_cu_host_shared_event *e, uint64_t recorded)
{
    if (e->done.load(std::memory_order_acquire) >= recorded)
        return true;
    uint64_t wanted = e->wanted.load();
    while (wanted < recorded && !e->wanted.compare_exchange_weak(wanted, recorded)) {
    }
    return false;
}
} // namespace

void pst_cu_host_put(pst_cu_host_stream *s, pst_cu_host_work work)
{
    if (s->captured) {
        s->captured->work.push_back(std::move(work));
        return;
    }
    s->work.push_back(std::move(work));
    s->put++;
}

std::recursive_mutex &pst_cu_host_lock()
{
    return st().lock;
}

cudaError_t pst_cu_host_keep(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

int pst_cu_host_current()
{
    return current;
}

void pst_cu_host_enqueue(cudaStream_t stream, std::function<void()> work)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    pst_cu_host_stream *s = stream_of(stream);
    if (!s->captured)
        pst_cu_host_counts_add(PST_HOST_CALLS);
    pst_cu_host_put(s, {std::move(work), nullptr});
}

void pst_cu_host_work_until(cudaStream_t stream, const uint64_t *word, uint64_t value)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    const pst_cu_host_touch touch;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value && step(stream_of(stream))) {
    }
}

bool pst_cu_host_hangs(cudaStream_t stream, const pst_cu_site &site)
{
    const char *which = getenv("PENSTOCK_VIRTUAL_HANG");
    if (!which || !strstr(site.file, which))
        return false;
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    pst_cu_host_put(stream_of(stream), {nullptr, [] { return getenv("PENSTOCK_VIRTUAL_HANG") == nullptr; }});
    return true;
}

void pst_cu_host_allow_shared(const void *kernel, size_t bytes)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    st().allowed_shared[kernel] = bytes;
}

bool pst_cu_host_launchable(dim3 blocks, dim3 threads, size_t shared_bytes, const void *kernel,
                            cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    if (stream && stream->device != current) {
        pst_cu_host_keep(cudaErrorInvalidResourceHandle); /* a stream of another device than the caller's */
        return false;
    }
    const auto found = st().allowed_shared.find(kernel);
    const size_t room = found == st().allowed_shared.end() ? (size_t)SHARED_DEFAULT : found->second;
    const uint64_t count = (uint64_t)threads.x * threads.y * threads.z;
    if (blocks.x == 0 || blocks.x > 0x7FFFFFFFu || blocks.y == 0 || blocks.y > 65535 || blocks.z == 0 ||
        blocks.z > 65535 || count == 0 || count > THREADS_MAX) {
        pst_cu_host_keep(cudaErrorInvalidConfiguration);
        return false;
    }
    if (shared_bytes > room || shared_bytes > SHARED_MAX) {
        pst_cu_host_keep(cudaErrorInvalidValue);
        return false;
    }
    return true;
}

const char *cudaGetErrorName(cudaError_t error)
{
#define NAME(e)                                                                                              \
    case e: return #e
    switch (error) {
        NAME(cudaSuccess);
        NAME(cudaErrorInvalidValue);
        NAME(cudaErrorMemoryAllocation);
        NAME(cudaErrorInvalidConfiguration);
        NAME(cudaErrorNoDevice);
        NAME(cudaErrorInvalidDevice);
        NAME(cudaErrorDeviceUninitialized);
        NAME(cudaErrorMapBufferObjectFailed);
        NAME(cudaErrorInvalidResourceHandle);
        NAME(cudaErrorNotReady);
        NAME(cudaErrorHostMemoryAlreadyRegistered);
        NAME(cudaErrorHostMemoryNotRegistered);
        NAME(cudaErrorStreamCaptureUnsupported);
        NAME(cudaErrorStreamCaptureInvalidated);
        NAME(cudaErrorIllegalState);
        NAME(cudaErrorUnknown);
    }
#undef NAME
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

/* ---- devices ------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *given = getenv("PENSTOCK_VIRTUAL_GPUS");
    *count =
        given && *given >= '0' && *given <= '0' + PST_HOST_GPUS ? *given - '0' : (int)PST_HOST_GPUS_DEFAULT;
    return *count ? cudaSuccess : pst_cu_host_keep(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    int count;
    (void)cudaGetDeviceCount(&count);
    if (device < 0 || device >= count)
        return pst_cu_host_keep(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    if (device < 0 || device >= PST_HOST_GPUS)
        return pst_cu_host_keep(cudaErrorInvalidDevice);
    const char *old = getenv("PENSTOCK_VIRTUAL_OLD"); /* for tests of devices that have no code */
    *out = {};
    (void)snprintf(out->name, sizeof out->name, "virtual GPU %d", device);
    out->totalGlobalMem = (size_t)64 << 30;
    out->major = OLDEST_MAJOR;
    if (old && atoi(old) == device)
        out->major = OLDEST_MAJOR - 1;
    out->multiProcessorCount = MULTIPROCESSORS;
    return cudaSuccess;
}

/* PENSTOCK_VIRTUAL_PEERS: "1": all GPUs reach each other; "0-1,2-3": only those of each pair. */
static bool are_peers(int device, int peer)
{
    const char *at = getenv("PENSTOCK_VIRTUAL_PEERS");
    int first, second;
    if (!at || !strchr(at, '-'))
        return at != nullptr;
    for (; at && sscanf(at, "%d-%d", &first, &second) == 2;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr)
        if ((first == device && second == peer) || (first == peer && second == device))
            return true;
    return false;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer && are_peers(device, peer);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int device)
{
    *value = MULTIPROCESSORS;
    return device < 0 || device >= PST_HOST_GPUS ? pst_cu_host_keep(cudaErrorInvalidDevice) : cudaSuccess;
}

/* ---- streams ------------------------------------------------------------------------------------- */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    {
        const std::lock_guard<std::recursive_mutex> guard(st().lock);
        if (stream_of(stream)->captured && (pst_cu_host_pageable(to) || pst_cu_host_pageable(from)) &&
            pst_cu_host_captures())
            return cudaErrorStreamCaptureUnsupported; /* pageable memory may be gone when the graph runs */
    }
    pst_cu_host_counts_copy(to, from, bytes);
    pst_cu_host_enqueue(stream, [=] { memcpy(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    if (pst_cu_host_captures()) /* nothing may be left on the queue */
        return cudaErrorStreamCaptureUnsupported;
    (void)cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void *at, int byte, size_t bytes, cudaStream_t stream)
{
    pst_cu_host_counts_add(PST_HOST_COPIES);
    pst_cu_host_enqueue(stream, [=] { memset(at, byte, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    *stream = new pst_cu_host_stream();
    (*stream)->device = current;
    st().streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5; /* as on the GPUs of today */
    return cudaSuccess;
}

/* Work runs when somebody waits for it, so a priority changes nothing. It is only kept. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    int least, greatest;
    (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (priority > least || priority < greatest)
        return pst_cu_host_keep(cudaErrorInvalidValue);
    const cudaError_t error = cudaStreamCreateWithFlags(stream, flags);
    (*stream)->priority = priority;
    return error;
}

extern "C" __attribute__((visibility("default"))) int
pst_cu_host_stream_priority(const pst_cu_host_stream *stream)
{
    return stream->priority;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (pst_cu_host_captures())
        return cudaErrorStreamCaptureUnsupported;
    pst_cu_host_counts_add(PST_HOST_WAITS);
    return drain(stream_of(stream), UINT64_MAX);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    const pst_cu_host_stream *s = stream_of(stream);
    if (s->captured && pst_cu_host_captures())
        return cudaErrorStreamCaptureUnsupported;
    const pst_cu_host_touch touch;
    while (step(stream_of(stream))) {
    }
    return s->done == s->put ? cudaSuccess : pst_cu_host_keep(cudaErrorNotReady);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)drain(stream, UINT64_MAX);
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    st().streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

/* ---- events -------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    const bool shared = (flags & cudaEventInterprocess) != 0;
    if (shared && !(flags & cudaEventDisableTiming))
        return pst_cu_host_keep(cudaErrorInvalidValue);
    pst_cu_host_shared_event *of = shared ? pst_cu_host_event_make(current) : nullptr;
    if (shared && !of)
        return pst_cu_host_keep(cudaErrorMemoryAllocation);
    *event = new pst_cu_host_event{current, shared, false, nullptr, 0, of};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    if (event->shared && !event->opened)
        pst_cu_host_event_end(event->of);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    pst_cu_host_stream *s = stream_of(stream);
    if (s->device != event->device)
        return pst_cu_host_keep(cudaErrorInvalidResourceHandle);
    if (s->captured && pst_cu_host_captures())
        return cudaErrorStreamCaptureUnsupported; /* CUDA allows it, but no event of ours is part of a graph
                                                   */
    if (event->shared) {
        pst_cu_host_shared_event *of = event->of;
        const uint64_t turn = of->recorded.load() + 1;
        of->recorded.store(turn, std::memory_order_release);
        pst_cu_host_put(s, {[=] { of->done.store(turn, std::memory_order_release); }, nullptr});
        tell_others({of, turn, s, s->put});
    }
    event->stream = s;
    event->after = s->put;
    return cudaSuccess;
}

/* Does as much of an event's work as can be done now, and says whether it has come. */
static bool look(const pst_cu_host_event &now, uint64_t recorded, pst_cu_host_stream *waiting)
{
    if (now.shared)
        return has_come(now.of, recorded);
    if (!now.stream || st().streams.count(now.stream) == 0)
        return true; /* never recorded, or its stream was drained and is gone */
    const pst_cu_host_touch touch;
    while (now.stream != waiting && now.stream->done < now.after && step(now.stream)) {
    }
    return now.stream->done >= now.after;
}

static uint64_t recorded_of(cudaEvent_t event)
{
    return event->shared ? event->of->recorded.load(std::memory_order_acquire) : 0;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    return look(*event, recorded_of(event), nullptr) ? cudaSuccess : pst_cu_host_keep(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::unique_lock<std::recursive_mutex> guard(st().lock);
    const pst_cu_host_event now = *event;
    const uint64_t recorded = recorded_of(event);
    while (!look(now, recorded, nullptr)) {
        guard.unlock();
        (void)usleep(NAP_US);
        guard.lock();
    }
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    pst_cu_host_stream *s = stream_of(stream);
    const pst_cu_host_event now = *event; /* later records are not waited for */
    const uint64_t recorded = recorded_of(event);
    if (now.stream == s && !now.shared)
        return cudaSuccess; /* the stream's own past */
    if (s->captured && pst_cu_host_captures())
        return cudaErrorStreamCaptureUnsupported; /* as for records of events */
    pst_cu_host_put(s, {nullptr, [=] { return look(now, recorded, s); }});
    return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    if (!event->shared || event->opened ||
        getenv("PENSTOCK_VIRTUAL_NO_EVENTS")) /* as on systems without IPC */
        return pst_cu_host_keep(cudaErrorInvalidResourceHandle);
    pst_cu_host_event_handle(event->device, event->of, handle);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    const std::lock_guard<std::recursive_mutex> guard(st().lock);
    cudaError_t error;
    pst_cu_host_shared_event *of = pst_cu_host_event_open(&handle, &error);
    if (!of)
        return pst_cu_host_keep(error);
    *event = new pst_cu_host_event{current, true, true, nullptr, 0, of};
    return cudaSuccess;
}
