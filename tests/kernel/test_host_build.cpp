/* The host build of the CUDA twins (kernels/cuda/host): that it computes what a GPU would, and that it finds
 * the mistakes it is there to find. Each wrong kernel runs in a child, which must die with the right words.
 */
#include "kernels/cuda/queue.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csetjmp>
#include <cstdarg>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}

namespace
{
#define ALL 0xFFFFFFFFu

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared_bytes, A... args)
{
    pst_cu_host_launch(kernel, blocks, threads, shared_bytes, nullptr, pst_cu_site{__FILE__, __LINE__},
                       args...);
    (void)cudaStreamSynchronize(nullptr);
}

/* ---- what a GPU would do ------------------------------------------------------------------------- */

__global__ void shuffles(int *out)
{
    const int lane = (int)threadIdx.x % 32;
    int *mine = out + threadIdx.x * 6;
    mine[0] = __shfl_sync(ALL, lane * 10, 5);
    mine[1] = __shfl_up_sync(ALL, lane, 3, 16);
    mine[2] = __shfl_down_sync(ALL, lane, 3, 8);
    mine[3] = __shfl_xor_sync(ALL, lane, 5);
    mine[4] = (int)__ballot_sync(ALL, lane % 3 == 0);
    mine[5] = (int)__match_any_sync(ALL, lane / 4);
}

void test_shuffles(void **)
{
    int out[64 * 6];
    launch(shuffles, 1, 64, 0, out);
    for (int t = 0; t < 64; t++) {
        const int lane = t % 32, *mine = out + t * 6;
        unsigned thirds = 0;
        for (int i = 0; i < 32; i += 3)
            thirds |= 1u << i;
        assert_int_equal(mine[0], 50);
        assert_int_equal(mine[1], lane % 16 < 3 ? lane : lane - 3);
        assert_int_equal(mine[2], lane % 8 + 3 >= 8 ? lane : lane + 3);
        assert_int_equal(mine[3], lane ^ 5);
        assert_int_equal((unsigned)mine[4], thirds);
        assert_int_equal((unsigned)mine[5], 0xFu << (lane / 4 * 4));
    }
}

/* Halves of a warp go their own ways, and meet again. */
__global__ void halves(int *out)
{
    const int lane = (int)threadIdx.x;
    int value = 0;
    if (lane < 16)
        for (int i = 0; i < 3; i++)
            value += __shfl_sync(0x0000FFFFu, lane, i);
    else
        value = (int)__ballot_sync(0xFFFF0000u, 1);
    __syncwarp();
    out[lane] = value;
}

void test_halves(void **)
{
    int out[32];
    launch(halves, 1, 32, 0, out);
    for (int lane = 0; lane < 32; lane++)
        assert_int_equal(out[lane], lane < 16 ? 3 : (int)0xFFFF0000u);
}

/* A sum by a tree in shared memory, static and dynamic; one atomic a block. */
__global__ void sums(const int *in, int n, int *total)
{
    PST_CU_SHARED(int, kept, [256]);
    PST_CU_SHARED_DYNAMIC(int, again);
    const int me = (int)threadIdx.x, i = (int)pst_cu_first();
    kept[me] = i < n ? in[i] : 0;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (me < half)
            kept[me] += kept[me + half];
    }
    __syncthreads();
    again[me] = kept[0];
    __syncthreads();
    if (me == 0)
        atomicAdd(total, again[255]);
}

void test_sums(void **)
{
#ifdef __SANITIZE_THREAD__
    enum { N = 500, ROUNDS = 2 }; /* it takes microseconds to change fibers */
#else
    enum { N = 5000, ROUNDS = 20 };
#endif
    int in[N], total = 0;
    for (int i = 0; i < N; i++)
        in[i] = i;
    for (int round = 0; round < ROUNDS; round++) { /* each in another order */
        total = 0;
        launch(sums, (N + 255) / 256, 256, 256 * sizeof(int), in, (int)N, &total);
        assert_int_equal(total, N * (N - 1) / 2);
    }
}

__global__ void order_of(int *next, int *order)
{
    order[atomicAdd(next, 1)] = (int)pst_cu_first();
}

/* Threads come in orders that differ, and that is no order at all. */
void test_orders(void **)
{
    int first[64 * 4], order[64 * 4], differ = 0;
    for (int round = 0; round < 8; round++) {
        int next = 0;
        bool seen[64 * 4] = {};
        launch(order_of, 4, 64, 0, &next, round == 0 ? first : order);
        differ += round > 0 && memcmp(first, order, sizeof order) != 0;
        for (int i = 0; i < 64 * 4; i++) {
            const int t = (round == 0 ? first : order)[i];
            assert_false(seen[t]);
            seen[t] = true;
        }
    }
    assert_true(differ > 3);
}

__global__ void put(int *to, int value)
{
    *to = value;
}

/* Nothing is done before somebody waits; events order streams. */
void test_streams(void **)
{
    cudaStream_t a, b;
    cudaEvent_t event;
    int x = 0, y = 0;
    assert_int_equal(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    pst_cu_host_launch(put, 1, 1, 0, a, pst_cu_site{__FILE__, __LINE__}, &x, 5);
    assert_int_equal(x, 0);
    assert_int_equal(cudaEventRecord(event, a), cudaSuccess);
    pst_cu_host_launch(put, 1, 1, 0, a, pst_cu_site{__FILE__, __LINE__}, &x, 6);
    assert_int_equal(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(&y, &x, sizeof x, cudaMemcpyDefault, b), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(b), cudaSuccess);
    assert_int_equal(y, 5);
    assert_int_equal(x, 5);
    assert_int_equal(cudaStreamSynchronize(a), cudaSuccess);
    assert_int_equal(x, 6);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(a), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(b), cudaSuccess);
}

__global__ void add_to(int *to, const int *value)
{
    *to += *value;
}

/* A graph does its work at each launch, with what is in memory by then, and is one call. */
void test_graphs(void **)
{
    cudaStream_t s;
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    int sum = 0, *value;
    uint64_t count[PST_HOST_COUNTS];
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaHostAlloc(reinterpret_cast<void **>(&value), 2 * sizeof *value, cudaHostAllocMapped),
                     cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(value + 1, value, sizeof *value, cudaMemcpyDefault, s), cudaSuccess);
    pst_cu_host_launch(add_to, 1, 1, 0, s, pst_cu_site{__FILE__, __LINE__}, &sum, value + 1);
    assert_int_equal(cudaStreamEndCapture(s, &captured), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&graph, captured, 0), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(captured), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    assert_int_equal(sum, 0);
    pst_cu_host_counts(count);
    for (int turn = 1; turn <= 3; turn++) {
        *value = turn;
        assert_int_equal(cudaGraphLaunch(graph, s), cudaSuccess);
        assert_int_equal(cudaStreamQuery(s), cudaSuccess);
    }
    assert_int_equal(sum, 1 + 2 + 3);
    pst_cu_host_counts(count);
    assert_int_equal(count[PST_HOST_CALLS], 3);
    assert_int_equal(count[PST_HOST_GRAPHS], 3);
    assert_int_equal(count[PST_HOST_LAUNCHES], 3);
    assert_int_equal(count[PST_HOST_COPIES], 3);
    *value = 4;
    assert_int_equal(cudaGraphLaunch(graph, s), cudaSuccess);
    assert_int_equal(cudaGraphExecDestroy(graph), cudaSuccess); /* the launch still ends */
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    assert_int_equal(sum, 1 + 2 + 3 + 4);
    assert_int_equal(cudaFreeHost(value), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(s), cudaSuccess);
}

/* What CUDA refuses while a stream is captured, or what no call of a kernel does, spoils the graph. */
void test_spoiled_graphs(void **)
{
    cudaStream_t s;
    cudaGraph_t captured;
    cudaEvent_t event;
    void *memory;
    int x = 0, y = 0;
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    for (int call = 0; call < 6; call++) {
        assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
        const cudaError_t got = call == 0   ? cudaStreamSynchronize(s)
                                : call == 1 ? cudaStreamQuery(s)
                                : call == 2 ? cudaEventRecord(event, s)
                                : call == 3 ? cudaMalloc(&memory, 100)
                                : call == 4 ? cudaMemcpyAsync(&x, &y, sizeof x, cudaMemcpyDefault, s)
                                            : cudaMemcpy(&x, &y, sizeof x, cudaMemcpyDefault);
        assert_int_equal(got, cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(s, &captured), cudaErrorStreamCaptureInvalidated);
        assert_null(captured);
    }
    assert_int_equal(cudaStreamEndCapture(s, &captured), cudaErrorIllegalState);
    (void)cudaGetLastError();
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(s), cudaSuccess);
}

/* Launches that CUDA refuses. */
void test_refused(void **)
{
    int x = 0;
    launch(put, 0, 1, 0, &x, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    launch(put, 1, 1025, 0, &x, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    launch(put, 1, 1, 50000, &x, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaFuncSetAttribute(put, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536),
                     cudaSuccess);
    launch(put, 1, 1, 50000, &x, 1);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(x, 1);
}

#ifndef __SANITIZE_THREAD__ /* it takes a child's fibers for threads that it does not know */
/* ---- mistakes ------------------------------------------------------------------------------------ */

__global__ void barrier_some_miss(int *)
{
    if (threadIdx.x < 7)
        return;
    __syncthreads();
}

__global__ void two_barriers(int *)
{
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void outside_the_mask(int *out)
{
    if (threadIdx.x < 16)
        *out = __shfl_sync(0xFFFFu, 1, 20);
}

__global__ void not_in_own_mask(int *)
{
    __syncwarp(0xFFFFu);
}

__global__ void lane_has_left(int *out)
{
    if (threadIdx.x == 31)
        return;
    *out = __any_sync(ALL, 1);
}

__global__ void different_operations(int *out)
{
    if (threadIdx.x < 16)
        *out = __shfl_sync(ALL, 1, 0);
    else
        *out = (int)__ballot_sync(ALL, 1);
}

__global__ void waits_for_ever(int *out)
{
    if (threadIdx.x == 0)
        *out = __shfl_sync(3u, 1, 1);
    else
        __syncwarp(~1u);
    if (threadIdx.x == 1)
        *out = __shfl_sync(2u, 1, 1);
}

/* Standard error of a child that runs the kernel; it must not end well. */
void dies_with(void (*kernel)(int *), unsigned threads, const char *words)
{
    int fds[2], x = 0;
    char text[4096] = "";
    assert_int_equal(pipe(fds), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(fds[1], 2);
        launch(kernel, 1, threads, 0, &x);
        _exit(0);
    }
    close(fds[1]);
    size_t at = 0;
    for (ssize_t got = 1; got > 0 && at<sizeof text - 1; at += got> 0 ? (size_t)got : 0)
        got = read(fds[0], text + at, sizeof text - 1 - at);
    close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status == 0 || !strstr(text, words) || !strstr(text, "test_host_build.cpp:"))
        fail_msg("expected death with \"%s\", got status %d and: %s", words, status, text);
}

void test_mistakes(void **)
{
    dies_with(barrier_some_miss, 64, "a thread waits at the block's barrier, but other threads of the block");
    dies_with(two_barriers, 64, "threads of a block wait at different barriers");
    dies_with(outside_the_mask, 32, "reads lane 20, which is not in its mask 0000ffff");
    dies_with(not_in_own_mask, 32, "a lane is missing in its own mask");
    dies_with(lane_has_left, 32, "waits for lane 31, which has left the kernel");
    dies_with(different_operations, 32, "meets lane");
    dies_with(waits_for_ever, 2, "waits for lane");
}

/* Threads 0..31 wait at the barrier, the others for lanes that wait there. */
__global__ void deadlock(int *)
{
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncwarp();
}

void test_deadlock(void **)
{
    dies_with(
        deadlock, 32,
        "deadlock: 16 threads wait at the block's barrier, 16 wait for lanes of their warp, 0 have ended");
}

#endif

#ifdef __SANITIZE_ADDRESS__
__global__ void past_static(int *out)
{
    PST_CU_SHARED(int, kept, [8]);
    int *all = kept; /* whose bounds only AddressSanitizer knows */
    all[threadIdx.x] = 1;
    *out = kept[0];
}

__global__ void past_dynamic(int *out)
{
    PST_CU_SHARED_DYNAMIC(int, kept);
    kept[threadIdx.x] = 1;
    *out = kept[0];
}

__global__ void past_device(int *)
{
    void *memory = nullptr;
    (void)cudaMalloc(&memory, 40);
    static_cast<int *>(memory)[threadIdx.x] = 1;
}

void test_out_of_range(void **)
{
    dies_with(past_static, 9, "global-buffer-overflow");
    dies_with(past_dynamic, 1, "heap-buffer-overflow");
    dies_with(past_device, 11, "use-after-poison");
}
#endif
} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffles),     cmocka_unit_test(test_halves),
        cmocka_unit_test(test_sums),         cmocka_unit_test(test_orders),
        cmocka_unit_test(test_streams),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_graphs),       cmocka_unit_test(test_spoiled_graphs),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_mistakes),     cmocka_unit_test(test_deadlock),
#endif
#ifdef __SANITIZE_ADDRESS__
        cmocka_unit_test(test_out_of_range),
#endif
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
