/* nccl.h of the host build: sums over virtual GPUs, of one process or of several (nccl.cpp). The functions
 * are NCCL's, with other names, so that a real NCCL can be loaded beside them. */
#ifndef PST_HOST_NCCL_H
#define PST_HOST_NCCL_H

#include "kernels/cuda/host/cuda_runtime.h"

struct pst_cu_nccl_id;

int pst_cu_host_ncclGetUniqueId(pst_cu_nccl_id *id);
int pst_cu_host_ncclCommInitRank(struct ncclComm **comm, int members, pst_cu_nccl_id id, int member);
int pst_cu_host_ncclAllReduce(const void *from, void *to, size_t n, int type, int operation,
                              struct ncclComm *comm, cudaStream_t stream);
int pst_cu_host_ncclCommGetAsyncError(struct ncclComm *comm, int *error);
int pst_cu_host_ncclCommDestroy(struct ncclComm *comm);
int pst_cu_host_ncclCommAbort(struct ncclComm *comm);
const char *pst_cu_host_ncclGetErrorString(int error);

#endif
