/* gpu.cuh: what the parts of the GPU bench share: the twins, a stream, a clock of CUDA events, and the
 * results file. nvcc builds it for a GPU. g++ builds it with kernels/cuda/host; then it checks everything and
 * measures nothing. The twin is the one that pst_twin_open finds; PENSTOCK_CUDA names the host build's. */
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
    cudaStream_t stream; /* of the queue; none in the host build */
    /* measured rates: copies in GPU memory, copies from the host, GEMM */
    double copy_bytes_s, link_bytes_s, flops_s;
};

void gpu_open(struct gpu *g, int64_t most, int64_t columns);
void gpu_close(struct gpu *g);
/* Waits until everything is done. Stops the program if anything failed. */
void gpu_wait(struct gpu *g);

/* Memory of the GPU, or pinned memory, with a copy of the host's bytes if `from` is not NULL. */
void *gpu_memory(struct gpu *g, enum pst_twin_memory kind, size_t bytes, const void *from);
/* Stops the program if the GPU's bytes differ from the host's. */
void gpu_same(struct gpu *g, const void *device, const void *host, size_t bytes, const char *what);
/* The same for floats: the relative error of the norm may be at most `limit`. */
void gpu_close_floats(struct gpu *g, const float *device, const float *host, size_t n, double limit,
                      const char *what);

/* The median of nine rounds of some calls, timed by events; 0 without a GPU. */
double gpu_seconds(struct gpu *g, void (*call)(void *context), void *context);

/* Prints a line and adds it to the results: the bytes or products, the time, and the share of the rate to
 * compare with. Without a GPU, prints that the kernel was checked. target 0: none. */
struct gpu_figure {
    const char *name;
    double bytes, flops, seconds;
    double share_of; /* bytes/s or FLOP/s */
    double target;
};
void gpu_report(const struct gpu_figure &f);
/* Prints and adds another figure, "name": value. */
void gpu_note(const char *name, double value, const char *unit);

/* The results file has what gpu_report and gpu_note printed, as JSON. */
void gpu_results_begin(const char *path);
void gpu_results_end(void);

/* Sets copy_bytes_s and link_bytes_s: copies in GPU memory, read and written, and from pinned memory. */
void gpu_measure_copies(struct gpu *g, size_t bytes);
int gpu_kernels(bool tiny, const char *graph); /* NULL: over all graphs */
int gpu_embed(bool tiny);
int gpu_io(int argc, char **argv);
/* mps: the caller has started MPS, and the figures say so. */
int gpu_handover(const char *program, bool mps);
int gpu_echo(int fd);

#endif
