/* main.cu: the command line of the GPU bench, and what its parts share.
 *
 *   gpu kernels [--tiny] [--graph uniform|rmat|star] [--out FILE]
 *                                       each kernel's time, against what must move; --graph: over one graph
 *   gpu embed [--tiny] [--out FILE]     a step of graph embeddings, fused and not
 *   gpu io OPTIONS                      disk kernels over emulated drives (io.cu)
 *   gpu ipc [--mps] [--out FILE]        from one process' event to another's kernel; --mps: it runs under MPS
 */
#include "tools/bench/gpu/gpu.cuh"

#include <cmath>
#include <cstring>

enum { ROUNDS = 9, CALLS = 5 };

void gpu_open(struct gpu *g, int64_t most, int64_t columns)
{
    char why[PST_TWIN_WHY_BYTES];
    *g = {};
    g->cpu = pst_twin_cpu();
    g->cuda = pst_twin_open(NULL, why);
    if (!g->cuda)
        STOP("%s", why);
#ifndef PST_HOST_BUILD
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking));
#endif
    struct pst_queue_options options = {};
    options.most = most;
    options.columns = columns;
    options.products = true;
    options.stream = g->stream;
    if (g->cuda->queue_new(&options, &g->q, why) != PST_OK)
        STOP("%s", why);
}

void gpu_close(struct gpu *g)
{
    g->cuda->queue_free(g->q);
#ifndef PST_HOST_BUILD
    CUDA(cudaStreamDestroy(g->stream));
#endif
}

void gpu_wait(struct gpu *g)
{
    char why[PST_TWIN_WHY_BYTES];
    if (g->cuda->wait(g->q, why) != PST_OK)
        STOP("%s", why);
}

void *gpu_memory(struct gpu *g, enum pst_twin_memory kind, size_t bytes, const void *from)
{
    char why[PST_TWIN_WHY_BYTES];
    void *at = NULL;
    if (g->cuda->alloc(0, kind, bytes, &at, why) != PST_OK)
        STOP("%s", why);
    if (from)
        (void)g->cuda->copy(g->q, at, from, bytes);
    else
        (void)g->cuda->fill(g->q, at, 0, bytes);
    gpu_wait(g);
    return at;
}

void gpu_same(struct gpu *g, const void *device, const void *host, size_t bytes, const char *what)
{
    char *copy = static_cast<char *>(malloc(bytes + 1));
    (void)g->cuda->copy(g->q, copy, device, bytes);
    gpu_wait(g);
    if (memcmp(copy, host, bytes) != 0)
        STOP("%s: not what the CPU has: nothing is measured", what);
    free(copy);
}

void gpu_close_floats(struct gpu *g, const float *device, const float *host, size_t n, double limit,
                      const char *what)
{
    float *copy = static_cast<float *>(malloc(n * sizeof *copy + 1));
    (void)g->cuda->copy(g->q, copy, device, n * sizeof *copy);
    gpu_wait(g);
    double off = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)copy[i] - (double)host[i]) * ((double)copy[i] - (double)host[i]);
        norm += (double)host[i] * (double)host[i];
    }
    if (!(std::sqrt(off) <= limit * std::sqrt(norm)))
        STOP("%s: relative error %g: nothing is measured", what, std::sqrt(off / norm));
    free(copy);
}

#ifdef PST_HOST_BUILD
double gpu_seconds(struct gpu *g, void (*call)(void *context), void *context)
{
    call(context);
    gpu_wait(g);
    return 0;
}
#else
static int by_value(const void *a, const void *b)
{
    const float x = *static_cast<const float *>(a), y = *static_cast<const float *>(b);
    return (x > y) - (x < y);
}

double gpu_seconds(struct gpu *g, void (*call)(void *context), void *context)
{
    cudaEvent_t begin, end;
    float ms[ROUNDS];
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = 0; i < CALLS; i++)
        call(context);
    gpu_wait(g);
    for (int round = 0; round < ROUNDS; round++) {
        CUDA(cudaEventRecord(begin, g->stream));
        for (int i = 0; i < CALLS; i++)
            call(context);
        CUDA(cudaEventRecord(end, g->stream));
        gpu_wait(g);
        CUDA(cudaEventElapsedTime(&ms[round], begin, end));
    }
    qsort(ms, ROUNDS, sizeof *ms, by_value);
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    return (double)ms[ROUNDS / 2] * 1e-3 / CALLS;
}
#endif

/* ---- results ---------------------------------------------------------------------------------------- */

static FILE *results;
static bool first_line;

void gpu_results_begin(const char *path)
{
    results = path && ON_GPU ? fopen(path, "w") : NULL;
    if (path && ON_GPU && !results)
        STOP("%s cannot be written", path);
    if (results)
        (void)fprintf(results, "{");
    first_line = true;
}

void gpu_results_end(void)
{
    if (!results)
        return;
    (void)fprintf(results, "\n}\n");
    if (fclose(results) != 0)
        STOP("the results cannot be written");
}

static void result(const char *name, const char *text)
{
    if (results)
        (void)fprintf(results, "%s\n \"%s\": %s", first_line ? "" : ",", name, text);
    first_line = false;
}

void gpu_report(const struct gpu_figure &f)
{
    char text[256];
    if (!ON_GPU) {
        printf("checked: %s\n", f.name);
        return;
    }
    const double rate = (f.flops > 0 ? f.flops : f.bytes) / f.seconds;
    const double share = f.share_of > 0 ? rate / f.share_of : 0;
    (void)snprintf(
        text, sizeof text,
        "{\"bytes\": %.0f, \"flops\": %.0f, \"us\": %.2f, \"rate\": %.4g, \"share\": %.3f, \"target\": %.2f}",
        f.bytes, f.flops, f.seconds * 1e6, rate, share, f.target);
    result(f.name, text);
    printf("%-34s %9.1f MB %9.2f us %9.1f G%s/s %6.1f %%", f.name, f.bytes * 1e-6, f.seconds * 1e6,
           rate * 1e-9, f.flops > 0 ? "FLOP" : "B", share * 100);
    if (f.target > 0)
        printf("  %s %.0f %%", share >= f.target ? "reaches" : "MISSES", f.target * 100);
    printf("\n");
    (void)fflush(stdout);
}

void gpu_note(const char *name, double value, const char *unit)
{
    char text[64];
    if (!ON_GPU)
        return;
    (void)snprintf(text, sizeof text, "%.6g", value);
    result(name, text);
    printf("%-34s %.4g %s\n", name, value, unit);
    (void)fflush(stdout);
}

/* ---- what the machine can do -----------------------------------------------------------------------------
 */

namespace
{
struct copying {
    struct gpu *g;
    void *to;
    const void *from;
    size_t bytes;
};

void call_copy(void *context)
{
    const struct copying *c = static_cast<const struct copying *>(context);
    (void)c->g->cuda->copy(c->g->q, c->to, c->from, c->bytes);
}
} // namespace

void gpu_measure_copies(struct gpu *g, size_t bytes)
{
    void *a = gpu_memory(g, PST_TWIN_MEMORY_DEVICE, bytes, NULL),
         *b = gpu_memory(g, PST_TWIN_MEMORY_DEVICE, bytes, NULL);
    void *pinned = gpu_memory(g, PST_TWIN_MEMORY_PINNED, bytes / 4, NULL);
    struct copying inside = {g, a, b, bytes}, link = {g, a, pinned, bytes / 4};
    const double one = gpu_seconds(g, call_copy, &inside), two = gpu_seconds(g, call_copy, &link);
    g->copy_bytes_s = one > 0 ? 2 * (double)bytes / one : 0;
    g->link_bytes_s = two > 0 ? (double)(bytes / 4) / two : 0;
    gpu_note("copy in GPU memory", g->copy_bytes_s * 1e-9, "GB/s, read and written");
    gpu_note("copy from pinned memory", g->link_bytes_s * 1e-9, "GB/s");
    g->cuda->release(PST_TWIN_MEMORY_DEVICE, a);
    g->cuda->release(PST_TWIN_MEMORY_DEVICE, b);
    g->cuda->release(PST_TWIN_MEMORY_PINNED, pinned);
}

int main(int argc, char **argv)
{
    const char *out = NULL, *graph = NULL;
    bool tiny = false, mps = false;
    for (int i = 2; i < argc; i++) {
        tiny = tiny || strcmp(argv[i], "--tiny") == 0;
        mps = mps || strcmp(argv[i], "--mps") == 0;
        if (strcmp(argv[i], "--out") == 0 && i + 1 < argc)
            out = argv[i + 1];
        if (strcmp(argv[i], "--graph") == 0 && i + 1 < argc)
            graph = argv[i + 1];
    }
    if (argc == 3 && strcmp(argv[1], "echo") == 0)
        return gpu_echo(atoi(argv[2]));
    if (argc < 2)
        STOP("expected kernels, embed, io or ipc");
    gpu_results_begin(out);
    int rc = 2;
    if (strcmp(argv[1], "kernels") == 0)
        rc = gpu_kernels(tiny || !ON_GPU, graph);
    else if (strcmp(argv[1], "embed") == 0)
        rc = gpu_embed(tiny || !ON_GPU);
    else if (strcmp(argv[1], "io") == 0)
        rc = gpu_io(argc - 2, argv + 2);
    else if (strcmp(argv[1], "ipc") == 0)
        rc = gpu_handover(argv[0], mps);
    else
        STOP("expected kernels, embed, io or ipc, found %s", argv[1]);
    gpu_results_end();
    return rc;
}
