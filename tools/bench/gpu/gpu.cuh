/* gpu.cuh: what the parts of the GPU bench share: the twins, a stream and a clock of CUDA events, and where
 * results go. Built by nvcc for a GPU, and by g++ with kernels/cuda/host, where everything is checked and no
 * figure is taken. The twin is what pst_twin_open finds: PENSTOCK_CUDA names the host build's. */
#ifndef PST_GPU_CUH
#define PST_GPU_CUH

#include "kernels/nvme.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#ifdef PST_HOST_BUILD
enum { ON_GPU = 0 };
#else
enum { ON_GPU = 1 };
#endif

#define STOP(...)                                                                                            \
    do {                                                                                                     \
        (void)fprintf(stderr, "gpu: " __VA_ARGS__);                                                          \
        (void)fprintf(stderr, "\n");                                                                         \
        exit(1);                                                                                             \
    } while (0)
#define CUDA(call)                                                                                           \
    do {                                                                                                     \
        const cudaError_t cuda_error = (call);                                                               \
        if (cuda_error != cudaSuccess)                                                                       \
            STOP("%s: %s", #call, cudaGetErrorString(cuda_error));                                           \
    } while (0)

struct gpu {
    const struct pst_twin *cpu, *cuda;
    struct pst_queue *q;
    cudaStream_t stream;                        /* the queue's; none on the host build */
    double copy_bytes_s, link_bytes_s, flops_s; /* measured: in GPU memory; from the host; GEMM */
};

void gpu_open(struct gpu *g, int64_t most, int64_t columns);
void gpu_close(struct gpu *g);
/* Until all is done; stops the program if anything failed. */
void gpu_wait(struct gpu *g);

/* GPU memory (or pinned), with a copy of what the host has if `from` is not NULL. */
void *gpu_memory(struct gpu *g, enum pst_twin_memory kind, size_t bytes, const void *from);
/* Stops the program if the GPU has other bytes. */
void gpu_same(struct gpu *g, const void *device, const void *host, size_t bytes, const char *what);
/* The same for floats: a relative error, norm-wise, of at most `limit`. */
void gpu_close_floats(struct gpu *g, const float *device, const float *host, size_t n, double limit,
                      const char *what);

/* Median of nine rounds of some calls each, by events around a round; 0 where there is no GPU. */
double gpu_seconds(struct gpu *g, void (*call)(void *context), void *context);

/* One line to the table, and one to the results: what must move, how long it took, and its share of the rate
 * that it is held to. Without a GPU: that it was checked. target: 0: none. */
struct gpu_figure {
    const char *name;
    double bytes, flops, seconds;
    double share_of; /* bytes/s or FLOP/s */
    double target;
};
void gpu_report(const struct gpu_figure &f);
/* A figure of another kind, "name": value. */
void gpu_note(const char *name, double value, const char *unit);

/* The results file: what gpu_report and gpu_note said, as JSON. */
void gpu_results_begin(const char *path);
void gpu_results_end(void);

int gpu_kernels(bool tiny);
int gpu_io(int argc, char **argv);
int gpu_handover(const char *program);
int gpu_echo(int fd);

#endif
