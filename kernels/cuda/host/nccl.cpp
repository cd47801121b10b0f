/* nccl.cpp: NCCL's sums on virtual GPUs (nccl.h). The members share a memfd, which the maker of the id owns:
 * it disappears with the processes. A member puts its values there when its stream gets to the sum, and adds
 * up those of all members, in their order, when all have come. */
#include "kernels/cuda/host/nccl.h"
#include "kernels/cuda/host/virtual.h"

#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace
{
enum { MEMBERS_MAX = PST_HOST_GPUS, PAGE = 4096, JOIN_S = 60 };
constexpr size_t VALUES_BYTES = 64 << 20; /* of a member; only what is written takes memory */
constexpr uint64_t MAGIC = 0x6C63636E64657473;

/* The id: where the memory is. */
struct place {
    uint64_t magic;
    int pid, fd;
};

struct board {
    std::atomic<int> joined;
    std::atomic<uint64_t> given[MEMBERS_MAX], taken[MEMBERS_MAX]; /* sums, of each member */
};
static_assert(sizeof(board) <= PAGE);
constexpr size_t BYTES = PAGE + MEMBERS_MAX * VALUES_BYTES;

float *values_of(board *b, int member)
{
    return reinterpret_cast<float *>(reinterpret_cast<char *>(b) + PAGE + (size_t)member * VALUES_BYTES);
}

bool all(const std::atomic<uint64_t> *of, int members, uint64_t least)
{
    for (int i = 0; i < members; i++)
        if (of[i].load(std::memory_order_acquire) < least)
            return false;
    return true;
}

board *map(int fd)
{
    void *at = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? nullptr : static_cast<board *>(at);
}
} // namespace

struct ncclComm {
    board *shared;
    int member, members;
    uint64_t sums; /* that were put on the stream */
};

int ncclGetUniqueId(ncclUniqueId *id)
{
    const place p = {MAGIC, getpid(), memfd_create("penstock-virtual-nccl", MFD_CLOEXEC)};
    static_assert(sizeof p <= sizeof *id);
    if (p.fd < 0 || ftruncate(p.fd, (off_t)BYTES) != 0)
        return ncclSystemError;
    memset(id, 0, sizeof *id);
    memcpy(id, &p, sizeof p);
    return ncclSuccess;
}

/* As NCCL does, it returns when all have joined. */
int ncclCommInitRank(ncclComm **comm, int members, ncclUniqueId id, int member)
{
    place p;
    char path[64];
    memcpy(&p, &id, sizeof p);
    if (p.magic != MAGIC || members < 1 || members > MEMBERS_MAX || member < 0 || member >= members)
        return ncclInvalidArgument;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", p.pid, p.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    board *shared = fd < 0 ? nullptr : map(fd);
    if (fd >= 0)
        (void)close(fd);
    if (!shared)
        return ncclSystemError;
    shared->joined++;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(JOIN_S);
    while (shared->joined.load() < members && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (member == 0)
        (void)close(p.fd); /* all have it */
    if (shared->joined.load() < members) {
        (void)munmap(shared, BYTES);
        return ncclSystemError;
    }
    *comm = new ncclComm{shared, member, members, 0};
    return ncclSuccess;
}

int ncclAllReduce(const void *from, void *to, size_t n, int type, int operation, ncclComm *comm,
                  cudaStream_t stream)
{
    if (type != ncclFloat32 || operation != ncclSum || n > VALUES_BYTES / sizeof(float))
        return ncclInvalidArgument;
    board *b = comm->shared;
    const int me = comm->member, members = comm->members;
    const uint64_t turn = ++comm->sums;
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    pst_cu_host_counts_add(PST_HOST_LIBRARY);
    pst_cu_host_put(stream, {nullptr, [=] { return all(b->taken, members, turn - 1); }});
    pst_cu_host_put(stream, {[=] {
                                 memcpy(values_of(b, me), from, n * sizeof(float));
                                 b->given[me].store(turn, std::memory_order_release);
                             },
                             nullptr});
    pst_cu_host_put(stream, {nullptr, [=] { return all(b->given, members, turn); }});
    pst_cu_host_put(stream, {[=] {
                                 float *sum = static_cast<float *>(to);
                                 for (size_t i = 0; i < n; i++) {
                                     float value = values_of(b, 0)[i];
                                     for (int m = 1; m < members; m++)
                                         value += values_of(b, m)[i];
                                     sum[i] = value;
                                 }
                                 b->taken[me].store(turn, std::memory_order_release);
                             },
                             nullptr});
    return ncclSuccess;
}

int ncclCommGetAsyncError(ncclComm *, int *error)
{
    *error = ncclSuccess;
    return ncclSuccess;
}

int ncclCommDestroy(ncclComm *comm)
{
    (void)munmap(comm->shared, BYTES);
    delete comm;
    return ncclSuccess;
}

int ncclCommAbort(ncclComm *)
{
    return ncclSuccess; /* its stream may still use the memory */
}

const char *ncclGetErrorString(int error)
{
    return error == ncclSystemError       ? "a call of the system failed, or a member did not come"
           : error == ncclInvalidArgument ? "invalid argument"
                                          : "no error";
}
