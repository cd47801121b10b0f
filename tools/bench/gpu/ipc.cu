/* ipc.cu: the time from one process' event to the start of another process' kernel. A producer's kernel reads
 * the GPU's clock, and an interprocess event is recorded after it. A flag in shared memory tells the
 * consumer, which spins, to put a wait for the event and a kernel on its stream. That kernel reads the clock
 * again. Without MPS, the contexts of the two processes take turns on the GPU, so only the time under MPS has
 * a target. */
#include "tools/bench/gpu/gpu.cuh"

#include "common/util/clock.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{
enum { ROUNDS = ON_GPU ? 500 : 20, WARM_UP = ROUNDS / 10, PATIENCE_S = 30 };

struct page { /* shared by both */
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
    uint32_t told, answered; /* rounds */
};

__global__ void stamp(uint64_t *at)
{
#ifdef PST_HOST_BUILD
    *at = pst_clock_ns();
#else
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    *at = ns;
#endif
}

void stamp_on(cudaStream_t stream, uint64_t *at)
{
#ifdef PST_HOST_BUILD
    pst_cu_host_launch(stamp, dim3(1), dim3(1), 0, stream, {__FILE__, __LINE__}, at);
#else
    stamp<<<1, 1, 0, stream>>>(at);
#endif
    CUDA(cudaGetLastError());
}

struct page *map_page(int fd)
{
    void *at = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        STOP("no shared memory");
    return static_cast<struct page *>(at);
}

/* Spins until the other side has reached this round. */
void await(const uint32_t *at, uint32_t round)
{
    const time_t begin = time(NULL);
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < round)
        if (time(NULL) - begin > PATIENCE_S)
            STOP("the other process is silent");
}

int by_value(const void *a, const void *b)
{
    const int64_t x = *static_cast<const int64_t *>(a), y = *static_cast<const int64_t *>(b);
    return (x > y) - (x < y);
}

void produce(struct page *page, uint64_t *stamps, cudaEvent_t event, cudaStream_t stream, bool mps)
{
    static int64_t late_ns[ROUNDS];
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t seen[2];
        stamp_on(stream, &stamps[0]);
        CUDA(cudaEventRecord(event, stream));
        __atomic_store_n(&page->told, round, __ATOMIC_RELEASE);
        await(&page->answered, round);
        CUDA(cudaMemcpy(seen, stamps, sizeof seen, cudaMemcpyDefault));
        late_ns[round - 1] = (int64_t)(seen[1] - seen[0]);
        if (late_ns[round - 1] < 0)
            STOP("the consumer's kernel began before the producer's: the event did not hold it");
    }
    qsort(late_ns + WARM_UP, ROUNDS - WARM_UP, sizeof *late_ns, by_value);
    const int64_t *from = late_ns + WARM_UP;
    if (!ON_GPU)
        printf("checked: hand-over between processes%s\n", mps ? " under MPS" : "");
    gpu_note(mps ? "IPC hand-over under MPS, median (at most 30)" : "IPC hand-over without MPS, median",
             (double)from[(ROUNDS - WARM_UP) / 2] * 1e-3, "us");
    gpu_note(mps ? "IPC hand-over under MPS, 99th percentile" : "IPC hand-over without MPS, 99th percentile",
             (double)from[(ROUNDS - WARM_UP) * 99 / 100] * 1e-3, "us");
}
} // namespace

int gpu_handover(const char *program, bool mps)
{
    char number[16];
    const int fd = memfd_create("gpu-handover", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct page)) != 0)
        STOP("no shared memory");
    struct page *page = map_page(fd);
    (void)snprintf(number, sizeof number, "%d", fd);
    const pid_t child = fork(); /* before CUDA */
    if (child == 0) {
        (void)execl(program, program, "echo", number, static_cast<char *>(NULL));
        _exit(127);
    }
    uint64_t *stamps;
    cudaEvent_t event;
    cudaStream_t stream;
    CUDA(cudaSetDevice(0));
    CUDA(cudaMalloc((void **)&stamps, 2 << 20));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    CUDA(cudaIpcGetMemHandle(&page->memory, stamps));
    CUDA(cudaIpcGetEventHandle(&page->event, event));
    __atomic_store_n(&page->answered, 0, __ATOMIC_RELEASE);
    produce(page, stamps, event, stream, mps);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        STOP("the consumer failed");
    return 0;
}

int gpu_echo(int fd)
{
    struct page *page = map_page(fd);
    void *memory = NULL;
    cudaEvent_t event = NULL;
    cudaStream_t stream;
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    await(&page->told, 1); /* the handles are there now */
    CUDA(cudaIpcOpenMemHandle(&memory, page->memory, cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaIpcOpenEventHandle(&event, page->event));
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        await(&page->told, round);
        CUDA(cudaStreamWaitEvent(stream, event, 0));
        stamp_on(stream, static_cast<uint64_t *>(memory) + 1);
        CUDA(cudaStreamSynchronize(stream));
        __atomic_store_n(&page->answered, round, __ATOMIC_RELEASE);
    }
    CUDA(cudaIpcCloseMemHandle(memory));
    return 0;
}
