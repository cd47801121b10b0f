/* memory.cpp: the memory of virtual GPUs, pinned host memory, and handles between processes. */
#include "kernels/cuda/host/counts.h"
#include "kernels/cuda/host/virtual.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

namespace
{
constexpr size_t GPU_BYTES = (size_t)64 << 30; /* takes memory only where it is touched */
constexpr size_t FILLED_MAX = (size_t)1 << 28; /* larger allocations are not filled with rubbish */
constexpr size_t PAGE = 4096, ALIGNMENT = 256 /* the alignment of cudaMalloc */, GAP = 256;
constexpr uint64_t MAGIC = 0x7570677274736e70ull;
enum { RUBBISH = 0xA5, GUARDED_ALWAYS = 64, GUARDED_EVERY = 64 };

struct block {
    std::atomic<uint64_t> id; /* 0: free */
    uint64_t offset, bytes;
    std::atomic<int> openers[PST_HOST_OPENERS_MAX];
};

/* The first pages of the memfd. */
struct table {
    uint64_t magic, nonce; /* of this run of the maker: process ids are used again */
    int pid, device;
    uint64_t ids;
    block blocks[PST_HOST_BLOCKS_MAX];
    pst_cu_host_shared_event events[PST_HOST_EVENTS_MAX];
};
constexpr size_t TABLE_BYTES = (sizeof(table) + PAGE - 1) / PAGE * PAGE;

struct handle {
    uint64_t magic, nonce, id;
    int pid, fd, device, index;
};
static_assert(sizeof(handle) <= sizeof(cudaIpcMemHandle_t) && sizeof(handle) <= sizeof(cudaIpcEventHandle_t),
              "64 bytes");

struct taken {
    size_t bytes;
    int index;
};

/* What this process took of one device. */
struct arena {
    int pid = 0, fd = -1; /* pid: a forked child takes memory of its own */
    table *shared = nullptr;
    char *base = nullptr;
    size_t used = 0;
    size_t cursor = 0;            /* freed memory is used again as late as possible */
    std::map<size_t, taken> live; /* by offset */
};

/* A block of another process. */
struct opened {
    uint64_t nonce, id;
    int device, by, count; /* whose memory, on which device it was opened, how often */
    table *shared;
    block *of;
    char *mapped;
    size_t bytes;
};

/* Never destroyed, because other threads may outlive the destruction of statics. */
struct state {
    arena arenas[PST_HOST_GPUS];
    std::map<char *, opened> open;         /* by address */
    std::map<const char *, size_t> pinned; /* registered memory, and memory of cudaHostAlloc */
    std::map<uint64_t, table *> tables;    /* of other processes, by nonce */
    int touching = 0;
    uint64_t touches = 0;
    bool bare = false; /* device memory is not protected now */
    struct sigaction before = {};
};
state &st()
{
    static state *one = new state;
    return *one;
}

void protect_range(char *at, size_t bytes, int rights)
{
    if (mprotect(at, bytes, rights) != 0)
        pst_cu_host_wrong("cannot change the protection of %zu bytes: %s", bytes, strerror(errno));
}

void protect(int rights)
{
    for (const arena &a : st().arenas)
        if (a.base)
            protect_range(a.base, GPU_BYTES, rights);
    for (const auto &o : st().open)
        protect_range(o.second.mapped, o.second.bytes, rights);
}

/* Host code touched memory of a device: says so, then dies as it would have. */
void on_fault(int number, siginfo_t *info, void *)
{
    const char *at = static_cast<char *>(info->si_addr);
    bool ours = false;
    for (const arena &a : st().arenas)
        ours = ours || (a.base && at >= a.base && at < a.base + GPU_BYTES);
    for (const auto &o : st().open)
        ours = ours || (at >= o.second.mapped && at < o.second.mapped + o.second.bytes);
    static const char text[] = "error: code on the host accessed device memory of a virtual GPU\n";
    if (ours)
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
    (void)sigaction(number, &st().before, nullptr);
}

/* From the first allocation on. */
void guard()
{
    static bool guarded;
    struct sigaction fault = {};
    fault.sa_sigaction = on_fault;
    fault.sa_flags = SA_SIGINFO | SA_ONSTACK;
    if (!guarded)
        (void)sigaction(SIGSEGV, &fault, &st().before);
    guarded = true;
}

bool start(arena *a, int device)
{
    a->pid = getpid();
    a->live.clear();
    a->cursor = a->used = 0;
    a->fd = memfd_create(("penstock-virtual-gpu-" + std::to_string(device)).c_str(), MFD_CLOEXEC);
    if (a->fd < 0 || ftruncate(a->fd, (off_t)(TABLE_BYTES + GPU_BYTES)) != 0)
        return false;
    void *shared = mmap(nullptr, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    void *base = mmap(nullptr, GPU_BYTES, st().bare ? PROT_READ | PROT_WRITE : PROT_NONE,
                      MAP_SHARED | MAP_NORESERVE, a->fd, (off_t)TABLE_BYTES);
    if (shared == MAP_FAILED || base == MAP_FAILED)
        return false;
    a->shared = static_cast<table *>(shared);
    a->base = static_cast<char *>(base);
    a->shared->magic = MAGIC;
    a->shared->pid = a->pid;
    a->shared->device = device;
    guard();
    return getrandom(&a->shared->nonce, sizeof a->shared->nonce, 0) == (ssize_t)sizeof a->shared->nonce;
}

/* The memory that a virtual GPU has for one process: PENSTOCK_HOST_GPU_BYTES, or about as much as a real
 * one. */
size_t memory_bytes()
{
    const char *wanted = getenv("PENSTOCK_HOST_GPU_BYTES");
    return wanted ? std::min((size_t)strtoull(wanted, nullptr, 10), GPU_BYTES) : GPU_BYTES;
}

/* NULL: no memory for it. */
arena *arena_of(int device)
{
    arena *a = &st().arenas[device];
    return a->base && a->pid == getpid() ? a : start(a, device) ? a : nullptr;
}

/* The device of this process whose memory contains `at`; -1: none. */
int device_of(const void *at)
{
    const char *p = static_cast<const char *>(at);
    for (int d = 0; d < PST_HOST_GPUS; d++)
        if (st().arenas[d].base && p >= st().arenas[d].base && p < st().arenas[d].base + GPU_BYTES)
            return d;
    return -1;
}

/* Finds room from `from` on: its offset, or GPU_BYTES if there is none. */
size_t find_room(const arena *a, size_t from, size_t bytes, size_t align)
{
    size_t at = (from + align - 1) / align * align;
    auto next = a->live.lower_bound(from);
    if (next != a->live.begin()) {
        const auto before = std::prev(next);
        const size_t end = before->first + before->second.bytes + GAP;
        at = std::max(at, (end + align - 1) / align * align);
    }
    for (; next != a->live.end() && at + bytes + GAP > next->first; ++next)
        at = (next->first + next->second.bytes + GAP + align - 1) / align * align;
    return at + bytes + GAP <= GPU_BYTES ? at : GPU_BYTES;
}

int free_block(const table *t)
{
    for (int i = 0; i < PST_HOST_BLOCKS_MAX; i++)
        if (t->blocks[i].id.load() == 0)
            return i;
    return -1;
}

/* The memory of another process. NULL: it has ended, or is not a virtual GPU's. It stays mapped, because
 * an event may be in it. */
table *table_of(const handle &h)
{
    const auto known = st().tables.find(h.nonce);
    if (known != st().tables.end())
        return pst_cu_host_alive(h.pid) ? known->second : nullptr;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat file = {};
    void *at = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &file) == 0 && file.st_size == (off_t)(TABLE_BYTES + GPU_BYTES))
        at = mmap(nullptr, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    if (at == MAP_FAILED)
        return nullptr;
    table *t = static_cast<table *>(at);
    if (t->magic == MAGIC && t->nonce == h.nonce && t->pid == h.pid)
        return st().tables[h.nonce] = t;
    (void)munmap(at, TABLE_BYTES);
    return nullptr;
}

handle read_handle(const char *reserved)
{
    handle h;
    memcpy(&h, reserved, sizeof h);
    return h;
}

void write_handle(char *reserved, const arena *a, uint64_t id, int index)
{
    const handle h = {MAGIC, a->shared->nonce, id, a->pid, a->fd, a->shared->device, index};
    memset(reserved, 0, sizeof(cudaIpcMemHandle_t));
    memcpy(reserved, &h, sizeof h);
}

char *map_block(const handle &h, const block *b, size_t *bytes)
{
    char path[64];
    guard();
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const size_t first = b->offset / PAGE * PAGE, end = (b->offset + b->bytes + PAGE - 1) / PAGE * PAGE;
    *bytes = end - first;
    void *at = fd < 0 ? MAP_FAILED
                      : mmap(nullptr, *bytes, st().bare ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, fd,
                             (off_t)(TABLE_BYTES + first));
    if (fd >= 0)
        (void)close(fd);
    return at == MAP_FAILED ? nullptr : static_cast<char *>(at);
}
} // namespace

pst_cu_host_touch::pst_cu_host_touch()
{
    if (st().touching++ == 0 && !st().bare)
        protect(PROT_READ | PROT_WRITE);
    st().bare = true;
}

/* Each time at first, later now and then, because the system walks all pages for it. */
pst_cu_host_touch::~pst_cu_host_touch()
{
    if (--st().touching > 0 || (st().touches++ >= GUARDED_ALWAYS && st().touches % GUARDED_EVERY != 0))
        return;
    protect(PROT_NONE);
    st().bare = false;
}

bool pst_cu_host_alive(int pid)
{
    return kill(pid, 0) == 0 || errno == EPERM;
}

void pst_cu_host_wrong(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "error: virtual GPU: ");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    fflush(stderr);
    abort();
}

/* ---- memory -------------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    if (pst_cu_host_captures())
        return cudaErrorStreamCaptureUnsupported;
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    arena *a = arena_of(pst_cu_host_current());
    const size_t align = bytes >= PAGE ? PAGE : ALIGNMENT;
    const int index = a ? free_block(a->shared) : -1;
    if (index < 0 || bytes > memory_bytes() || a->used > memory_bytes() - bytes)
        return pst_cu_host_keep(cudaErrorMemoryAllocation);
    size_t offset = find_room(a, a->cursor, bytes, align);
    if (offset == GPU_BYTES)
        offset = find_room(a, 0, bytes, align);
    if (offset == GPU_BYTES)
        return pst_cu_host_keep(cudaErrorMemoryAllocation);
    a->used += bytes;
    a->cursor = offset + bytes + GAP;
    a->live[offset] = {bytes, index};
    block *b = &a->shared->blocks[index];
    b->offset = offset;
    b->bytes = bytes;
    for (auto &opener : b->openers)
        opener.store(0);
    b->id.store(++a->shared->ids);
    char *memory = a->base + offset;
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    if (bytes <= FILLED_MAX) {
        const pst_cu_host_touch touch;
        memset(memory, RUBBISH, bytes);
    }
    ASAN_POISON_MEMORY_REGION(memory + bytes, GAP);
    *at = memory;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    if (!at || pst_cu_host_captures())
        return at ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
    (void)cudaStreamSynchronize(nullptr);
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    const int device = device_of(at);
    arena *a = device < 0 ? nullptr : &st().arenas[device];
    const auto found =
        a ? a->live.find((size_t)(static_cast<char *>(at) - a->base)) : decltype(a->live.end()){};
    if (!a || found == a->live.end())
        return pst_cu_host_keep(cudaErrorInvalidValue);
    if (device != pst_cu_host_current())
        pst_cu_host_counts_add(PST_HOST_ELSEWHERE);
    block *b = &a->shared->blocks[found->second.index];
    for (const auto &opener : b->openers)
        if (opener.load() != 0 && pst_cu_host_alive(opener.load()))
            pst_cu_host_wrong("cudaFree of memory of cuda:%d that is still open in process %d", device,
                              opener.load());
    const size_t bytes = found->second.bytes, first = (found->first + PAGE - 1) / PAGE * PAGE,
                 end = (found->first + bytes) / PAGE * PAGE;
    b->id.store(0);
    if (end > first)
        (void)fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(TABLE_BYTES + first),
                        (off_t)(end - first));
    ASAN_POISON_MEMORY_REGION(at, std::min(bytes, FILLED_MAX));
    a->used -= bytes;
    a->live.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    const arena *a = arena_of(pst_cu_host_current());
    *total_bytes = memory_bytes();
    *free_bytes = a && a->used < *total_bytes ? *total_bytes - a->used : 0;
    return cudaSuccess;
}

/* ---- host memory --------------------------------------------------------------------------------- */

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned)
{
    void *memory = nullptr;
    if (posix_memalign(&memory, ALIGNMENT, bytes ? bytes : 1) != 0)
        return pst_cu_host_keep(cudaErrorMemoryAllocation);
    if (bytes <= FILLED_MAX)
        memset(memory, RUBBISH, bytes);
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    st().pinned[static_cast<char *>(memory)] = bytes;
    *at = memory;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    if (at && st().pinned.erase(static_cast<char *>(at)) == 0)
        return pst_cu_host_keep(cudaErrorInvalidValue);
    free(at);
    return cudaSuccess;
}

/* Whether the kernel maps the registers of a device there. Its page map leaves out such memory ("pf"). */
static bool is_device_memory(const void *at)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    bool inside = false, found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            inside = (uintptr_t)at >= first && (uintptr_t)at < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, " pf") != nullptr;
    }
    if (f)
        (void)fclose(f);
    return found;
}

/* NVIDIA's driver looks up each page of I/O memory, and refuses one that is not mapped. */
static bool all_mapped(const void *at, size_t bytes)
{
    if (is_device_memory(at))
        return true;
    FILE *f = fopen("/proc/self/pagemap", "rbe");
    bool all = f != nullptr;
    for (size_t page = 0; all && page < bytes / PAGE; page++) {
        uint64_t word = 0;
        all = fseek(f, (long)(((uintptr_t)at / PAGE + page) * sizeof word), SEEK_SET) == 0 &&
              fread(&word, sizeof word, 1, f) == 1 && word >> 63 != 0;
    }
    if (f)
        (void)fclose(f);
    return all;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    const char *first = static_cast<char *>(at);
    if (!at || bytes == 0 ||
        ((flags & cudaHostRegisterIoMemory) &&
         (getenv("PENSTOCK_VIRTUAL_NO_IO_MEMORY") || !all_mapped(at, bytes))))
        return pst_cu_host_keep(cudaErrorInvalidValue);
    for (const auto &p : st().pinned)
        if (first < p.first + p.second && p.first < first + bytes)
            return pst_cu_host_keep(cudaErrorHostMemoryAlreadyRegistered);
    st().pinned[first] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *at)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    return st().pinned.erase(static_cast<char *>(at)) ? cudaSuccess
                                                      : pst_cu_host_keep(cudaErrorHostMemoryNotRegistered);
}

static bool is_pinned(const void *at)
{
    const auto next = st().pinned.upper_bound(static_cast<const char *>(at));
    return next != st().pinned.begin() && at < std::prev(next)->first + std::prev(next)->second;
}

bool pst_cu_host_on_gpu(const void *at)
{
    const auto in = [at](const auto &o) { return (size_t)((char *)at - o.second.mapped) < o.second.bytes; };
    return device_of(at) >= 0 || std::any_of(st().open.begin(), st().open.end(), in);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *at, unsigned)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    *out = at;
    return is_pinned(at) ? cudaSuccess : pst_cu_host_keep(cudaErrorInvalidValue);
}

bool pst_cu_host_pageable(const void *at)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    return !is_pinned(at) && !pst_cu_host_on_gpu(at);
}

/* ---- handles of memory --------------------------------------------------------------------------- */

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *at)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    const int device = device_of(at);
    const arena *a = device < 0 ? nullptr : &st().arenas[device];
    if (!a || a->pid != getpid())
        return pst_cu_host_keep(cudaErrorInvalidValue);
    const auto found = a->live.find((size_t)(static_cast<char *>(at) - a->base));
    if (found == a->live.end())
        return pst_cu_host_keep(cudaErrorInvalidValue);
    const int index = found->second.index;
    write_handle(out->reserved, a, a->shared->blocks[index].id.load(), index);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **at, cudaIpcMemHandle_t given, unsigned flags)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    const handle h = read_handle(given.reserved);
    if (h.magic != MAGIC || flags != cudaIpcMemLazyEnablePeerAccess || h.index < 0 ||
        h.index >= PST_HOST_BLOCKS_MAX)
        return pst_cu_host_keep(cudaErrorInvalidValue);
    if (h.pid == getpid())
        return pst_cu_host_keep(cudaErrorDeviceUninitialized); /* its maker */
    table *t = table_of(h);
    block *b = t ? &t->blocks[h.index] : nullptr;
    if (!b || b->id.load() != h.id)
        return pst_cu_host_keep(cudaErrorInvalidResourceHandle); /* the maker has ended, or freed it */
    int can = 0;
    (void)cudaDeviceCanAccessPeer(&can, pst_cu_host_current(), h.device);
    if (h.device != pst_cu_host_current() && !can)
        return pst_cu_host_keep(cudaErrorMapBufferObjectFailed);
    for (auto &o : st().open)
        if (o.second.nonce == h.nonce && o.second.id == h.id) {
            if (o.second.by != pst_cu_host_current()) /* one context per process */
                return pst_cu_host_keep(cudaErrorMapBufferObjectFailed);
            o.second.count++;
            *at = o.first;
            return cudaSuccess;
        }
    opened o = {h.nonce, h.id, h.device, pst_cu_host_current(), 1, t, b, nullptr, 0};
    o.mapped = map_block(h, b, &o.bytes);
    if (!o.mapped)
        return pst_cu_host_keep(cudaErrorMapBufferObjectFailed);
    for (auto &opener : b->openers) {
        int none = opener.load();
        if ((none == 0 || !pst_cu_host_alive(none)) && opener.compare_exchange_strong(none, getpid()))
            break;
    }
    char *address = o.mapped + b->offset % PAGE;
    st().open[address] = o;
    *at = address;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *at)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    const auto found = st().open.find(static_cast<char *>(at));
    if (found == st().open.end())
        return pst_cu_host_keep(cudaErrorInvalidValue);
    if (--found->second.count > 0)
        return cudaSuccess;
    for (auto &opener : found->second.of->openers) {
        int mine = getpid();
        if (opener.compare_exchange_strong(mine, 0))
            break;
    }
    (void)munmap(found->second.mapped, found->second.bytes);
    st().open.erase(found);
    return cudaSuccess;
}

/* ---- events of several processes ------------------------------------------------------------------ */

pst_cu_host_shared_event *pst_cu_host_event_make(int device)
{
    arena *a = arena_of(device);
    for (int i = 0; a && i < PST_HOST_EVENTS_MAX; i++) {
        pst_cu_host_shared_event *e = &a->shared->events[i];
        if (e->id.load() != 0)
            continue;
        e->recorded.store(0);
        e->done.store(0);
        e->wanted.store(0);
        e->id.store(++a->shared->ids);
        return e;
    }
    return nullptr;
}

void pst_cu_host_event_end(pst_cu_host_shared_event *event)
{
    event->id.store(0);
}

void pst_cu_host_event_handle(int device, const pst_cu_host_shared_event *event, cudaIpcEventHandle_t *out)
{
    const arena *a = &st().arenas[device];
    write_handle(out->reserved, a, event->id.load(), (int)(event - a->shared->events));
}

pst_cu_host_shared_event *pst_cu_host_event_open(const cudaIpcEventHandle_t *given, cudaError_t *error)
{
    const handle h = read_handle(given->reserved);
    *error = cudaErrorInvalidResourceHandle;
    if (h.magic != MAGIC || h.index < 0 || h.index >= PST_HOST_EVENTS_MAX ||
        h.device != pst_cu_host_current())
        return nullptr;
    if (h.pid == getpid()) {
        *error = cudaErrorDeviceUninitialized; /* its maker */
        return nullptr;
    }
    table *t = table_of(h);
    return t && t->events[h.index].id.load() == h.id ? &t->events[h.index] : nullptr;
}
