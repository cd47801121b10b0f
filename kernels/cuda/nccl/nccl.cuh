/* nccl.cuh: NCCL's functions: NVIDIA's library that moves data between GPUs, of one machine or of several.
 * Its header need not be there to compile, and nothing is linked to it: it is opened when a process makes its
 * first sum. Owner: the table is never freed. Threads: any. */
#ifndef PST_NCCL_CUH
#define PST_NCCL_CUH

#include "kernels/twin.h"

#include <cuda_runtime.h>

#ifdef PST_HOST_BUILD
#include <nccl.h> /* that of kernels/cuda/host */
typedef ncclUniqueId pst_cu_nccl_id;
#else
struct pst_cu_nccl_id {
    char internal[PST_TWIN_SUMS_ID_BYTES];
};
#endif
typedef struct ncclComm *pst_cu_nccl_comm;

enum { PST_CU_NCCL_SUCCESS = 0, PST_CU_NCCL_SUM = 0, PST_CU_NCCL_FLOAT = 7 }; /* as in nccl.h, version 2 */

/* Functions of NCCL 2, and their types: CALL(name, returns, arguments). */
#define PST_CU_NCCL_CALLS(CALL)                                                                              \
    CALL(GetUniqueId, int, (pst_cu_nccl_id * id))                                                            \
    CALL(CommInitRank, int, (pst_cu_nccl_comm * comm, int members, pst_cu_nccl_id id, int member))           \
    CALL(AllReduce, int,                                                                                     \
         (const void *from, void *to, size_t n, int type, int operation, pst_cu_nccl_comm comm,              \
          cudaStream_t stream))                                                                              \
    CALL(CommGetAsyncError, int, (pst_cu_nccl_comm comm, int *error))                                        \
    CALL(CommDestroy, int, (pst_cu_nccl_comm comm))                                                          \
    CALL(CommAbort, int, (pst_cu_nccl_comm comm))                                                            \
    CALL(GetErrorString, const char *, (int error))

struct pst_cu_nccl {
#define PST_CU_NCCL_MEMBER(name, returns, arguments) returns(*name) arguments;
    PST_CU_NCCL_CALLS(PST_CU_NCCL_MEMBER)
#undef PST_CU_NCCL_MEMBER
};

/* The search: $PENSTOCK_NCCL names the only file that is tried. Without this variable, the folders are those
 * in which cuBLASLt is searched for (kernels/cuda/lt). root: as there. True: all functions are in *out.
 * False: why (PST_TWIN_WHY_BYTES) has the reason. */
bool pst_cu_nccl_find(const char *root, struct pst_cu_nccl *out, char *why);

#endif
