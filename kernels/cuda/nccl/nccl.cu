/* nccl.cu: sums over several GPUs (twin.h: sums_new and the other three), by NCCL. */
#include "kernels/cuda/nccl/nccl.cuh"
#include "kernels/cuda/lt/lt.cuh"
#include "kernels/cuda/queue.cuh"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <new>

#if defined PST_HOST_BUILD
#include <nccl.h> /* kernels/cuda/host */
#elif __has_include(<nccl.h>)
#include <nccl.h>
static_assert(NCCL_MAJOR == 2 && sizeof(ncclUniqueId) == sizeof(pst_cu_nccl_id));
static_assert((int)ncclSuccess == PST_CU_NCCL_SUCCESS && (int)ncclSum == PST_CU_NCCL_SUM);
static_assert((int)ncclFloat32 == PST_CU_NCCL_FLOAT);
#endif

struct pst_twin_sums {
    const struct pst_cu_nccl *calls;
    pst_cu_nccl_comm comm;
    struct pst_queue *q;
};

namespace
{
constexpr const char *FILE_NAME = "libnccl.so.2";

#ifdef PST_HOST_BUILD
const struct pst_cu_nccl HOSTS = {
#define PST_CU_NCCL_MEMBER(name, returns, arguments) pst_cu_host_nccl##name,
    PST_CU_NCCL_CALLS(PST_CU_NCCL_MEMBER)
#undef PST_CU_NCCL_MEMBER
};
#endif

const struct pst_cu_nccl *calls_of(char *why)
{
#ifdef PST_HOST_BUILD
    (void)why;
    return &HOSTS;
#else
    static std::mutex once;
    static struct pst_cu_nccl table;
    static bool found;
    const std::lock_guard<std::mutex> lock(once);
    found = found || pst_cu_nccl_find("", &table, why);
    return found ? &table : NULL;
#endif
}

pst_rc failed(const struct pst_cu_nccl *calls, const char *what, int error, char *why)
{
    (void)snprintf(why, PST_TWIN_WHY_BYTES,
                   "NCCL cannot %s: %s (set NCCL_DEBUG=WARN to see more of what NCCL says)", what,
                   calls->GetErrorString(error));
    return PST_E_IO;
}
} // namespace

bool pst_cu_nccl_find(const char *root, struct pst_cu_nccl *out, char *why)
{
    const char *given = getenv("PENSTOCK_NCCL"), *lacks = NULL;
    void *object = given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : pst_cu_lt_search(root, FILE_NAME);
    if (!object && given) {
        const char *reason = dlerror();
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "PENSTOCK_NCCL names a file that cannot be opened: %s",
                       reason ? reason : given);
    } else if (!object) {
        (void)snprintf(
            why, PST_TWIN_WHY_BYTES,
            "cannot find %s on the loader's path, in the CUDA toolkit or in Python's packages; sums "
            "by NCCL need this library: set PENSTOCK_NCCL to its path",
            FILE_NAME);
    }
    if (!object)
        return false;
#define PST_CU_NCCL_MEMBER(name, returns, arguments)                                                         \
    *(void **)&out->name = dlsym(object, "nccl" #name);                                                      \
    lacks = out->name ? lacks : "nccl" #name;
    PST_CU_NCCL_CALLS(PST_CU_NCCL_MEMBER)
#undef PST_CU_NCCL_MEMBER
    if (!lacks)
        return true;
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "%s is not NCCL, because it has no function %s",
                   given ? given : FILE_NAME, lacks);
    (void)dlclose(object);
    return false;
}

pst_rc pst_cu_sums_id(char *id, char *why)
{
    const struct pst_cu_nccl *calls = calls_of(why);
    struct pst_cu_nccl_id made;
    if (!calls)
        return PST_E_UNSUPPORTED;
    const int error = calls->GetUniqueId(&made);
    if (error != PST_CU_NCCL_SUCCESS)
        return failed(calls, "make an id for its members", error, why);
    memcpy(id, made.bytes, sizeof made.bytes);
    return PST_OK;
}

pst_rc pst_cu_sums_new(struct pst_queue *q, const char *id, int member, int members,
                       struct pst_twin_sums **sums, char *why)
{
    const struct pst_cu_nccl *calls = calls_of(why);
    struct pst_cu_nccl_id with;
    *sums = NULL;
    if (!calls)
        return PST_E_UNSUPPORTED;
    struct pst_twin_sums *made = new (std::nothrow) pst_twin_sums{calls, NULL, q};
    if (!made) {
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "out of memory: cannot allocate a member of a sum");
        return PST_E_NOMEM;
    }
    memcpy(with.bytes, id, sizeof with.bytes);
    (void)cudaSetDevice(q->device);
    const int error = calls->CommInitRank(&made->comm, members, with, member);
    if (error == PST_CU_NCCL_SUCCESS) {
        *sums = made;
        return PST_OK;
    }
    delete made;
    return failed(calls, "join its members", error, why);
}

pst_rc pst_cu_sums_add(struct pst_twin_sums *sums, pst_real *values, int64_t n)
{
    struct pst_queue *q = sums->q;
    char why[PST_TWIN_WHY_BYTES];
    int error = PST_CU_NCCL_SUCCESS;
    if (q->rc != PST_OK)
        return q->rc;
    (void)cudaSetDevice(q->device);
    if (sums->calls->CommGetAsyncError(sums->comm, &error) != PST_CU_NCCL_SUCCESS ||
        error != PST_CU_NCCL_SUCCESS)
        (void)failed(sums->calls, "go on after a failure of an earlier sum", error, why);
    else if ((error = sums->calls->AllReduce(values, values, (size_t)n, PST_CU_NCCL_FLOAT, PST_CU_NCCL_SUM,
                                             sums->comm, q->stream)) != PST_CU_NCCL_SUCCESS)
        (void)failed(sums->calls, "add up", error, why);
    else
        return PST_OK;
    pst_cu_refuse(q, PST_E_IO, why, 0, 0);
    return q->rc;
}

void pst_cu_sums_free(struct pst_twin_sums *sums)
{
    if (!sums)
        return;
    (void)cudaSetDevice(sums->q->device);
    if (sums->q->left_alone || cudaStreamSynchronize(sums->q->stream) != cudaSuccess)
        (void)sums->calls->CommAbort(sums->comm); /* its kernels wait for others, and would do so for ever */
    else
        (void)sums->calls->CommDestroy(sums->comm);
    delete sums;
}
