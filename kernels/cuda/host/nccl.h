/* nccl.h of the host build: the part of NCCL that the kernels use: sums over virtual GPUs, of one process or
 * of several (nccl.cpp). */
#ifndef PST_HOST_NCCL_H
#define PST_HOST_NCCL_H

#include "kernels/cuda/host/cuda_runtime.h"

struct ncclUniqueId {
    char internal[128];
};
typedef struct ncclComm *ncclComm_t;
enum { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidArgument = 4 }; /* results */
enum { ncclSum = 0, ncclFloat32 = 7 };

int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *comm, int members, ncclUniqueId id, int member);
int ncclAllReduce(const void *from, void *to, size_t n, int type, int operation, ncclComm_t comm,
                  cudaStream_t stream);
int ncclCommGetAsyncError(ncclComm_t comm, int *error);
int ncclCommDestroy(ncclComm_t comm);
int ncclCommAbort(ncclComm_t comm);
const char *ncclGetErrorString(int error);

#endif
