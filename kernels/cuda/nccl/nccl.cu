/* nccl.cu: sums over several GPUs (twin.h: sums_new and the other three), by NCCL. */
#include "kernels/cuda/nccl/nccl.cuh"
#include "kernels/cuda/lt/lt.cuh"
#include "kernels/cuda/queue.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#if !defined PST_HOST_BUILD && __has_include(<nccl.h>)
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
#ifdef PST_HOST_BUILD
const struct pst_cu_nccl HOSTS = {
#define PST_CU_NCCL_MEMBER(name, returns, arguments) nccl##name,
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
    const struct pst_cu_lt_library library = {"NCCL", "libnccl.so.2", "sums by NCCL need", "PENSTOCK_NCCL",
                                              getenv("PENSTOCK_NCCL")};
    static const char *const NAMES[] = {
#define PST_CU_NCCL_MEMBER(name, returns, arguments) "nccl" #name,
        PST_CU_NCCL_CALLS(PST_CU_NCCL_MEMBER)
#undef PST_CU_NCCL_MEMBER
    };
    constexpr int N = sizeof NAMES / sizeof *NAMES;
    static_assert(sizeof *out == sizeof(void *[N]));
    void *functions[N];
    const bool found = pst_cu_lt_load(root, &library, NAMES, N, functions, why);
    if (found)
        memcpy(out, functions, sizeof *out);
    return found;
}

pst_rc pst_cu_sums_id(char *id, char *why)
{
    const struct pst_cu_nccl *calls = calls_of(why);
    pst_cu_nccl_id made;
    if (!calls)
        return PST_E_UNSUPPORTED;
    const int error = calls->GetUniqueId(&made);
    if (error != PST_CU_NCCL_SUCCESS)
        return failed(calls, "make an id for its members", error, why);
    memcpy(id, made.internal, sizeof made.internal);
    return PST_OK;
}

pst_rc pst_cu_sums_new(struct pst_queue *q, const char *id, int member, int members,
                       struct pst_twin_sums **sums, char *why)
{
    const struct pst_cu_nccl *calls = calls_of(why);
    pst_cu_nccl_id with;
    *sums = NULL;
    if (!calls)
        return PST_E_UNSUPPORTED;
    struct pst_twin_sums *made = new (std::nothrow) pst_twin_sums{calls, NULL, q};
    if (!made) {
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "out of memory: cannot allocate a member of a sum");
        return PST_E_NOMEM;
    }
    memcpy(with.internal, id, sizeof with.internal);
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
