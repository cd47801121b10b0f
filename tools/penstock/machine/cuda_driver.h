/* cuda_driver.h: the CUDA driver, opened at run time: the part of its API that the probe calls, declared here
 * so that the build needs no CUDA header. Not for a process that forks later. */
#ifndef PST_CUDA_DRIVER_H
#define PST_CUDA_DRIVER_H

#include "common/base.h"

#define PST_IPC_HANDLE_BYTES 64 /* of both kinds of handles */
struct pst_ipc_handle {
    char bytes[PST_IPC_HANDLE_BYTES];
};

/* X(member, symbol, parameters). Each function returns a CUresult, 0 for success. */
#define PST_DRIVER_CALLS(X)                                                                                  \
    X(init, "cuInit", (unsigned flags))                                                                      \
    X(version, "cuDriverGetVersion", (int *version))                                                         \
    X(count, "cuDeviceGetCount", (int *count))                                                               \
    X(device, "cuDeviceGet", (int *device, int ordinal))                                                     \
    X(name, "cuDeviceGetName", (char *name, int bytes, int device))                                          \
    X(memory, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                                           \
    X(attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                            \
    X(can_access, "cuDeviceCanAccessPeer", (int *can, int device, int peer))                                 \
    X(retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                                      \
    X(use, "cuCtxSetCurrent", (void *context))                                                               \
    X(alloc, "cuMemAlloc_v2", (unsigned long long *at, size_t bytes))                                        \
    X(fill, "cuMemsetD8_v2", (unsigned long long at, unsigned char byte, size_t bytes))                      \
    X(to_host, "cuMemcpyDtoH_v2", (void *to, unsigned long long from, size_t bytes))                         \
    X(registered, "cuMemHostRegister_v2", (void *at, size_t bytes, unsigned flags))                          \
    X(memory_handle, "cuIpcGetMemHandle", (struct pst_ipc_handle * handle, unsigned long long at))           \
    X(open_memory, "cuIpcOpenMemHandle_v2",                                                                  \
      (unsigned long long *at, struct pst_ipc_handle handle, unsigned flags))                                \
    X(close_memory, "cuIpcCloseMemHandle", (unsigned long long at))                                          \
    X(event, "cuEventCreate", (void **event, unsigned flags))                                                \
    X(record, "cuEventRecord", (void *event, void *stream))                                                  \
    X(wait, "cuEventSynchronize", (void *event))                                                             \
    X(event_handle, "cuIpcGetEventHandle", (struct pst_ipc_handle * handle, void *event))                    \
    X(open_event, "cuIpcOpenEventHandle", (void **event, struct pst_ipc_handle handle))                      \
    X(error_name, "cuGetErrorName", (int error, const char **name))

enum pst_driver_constant {
    PST_CU_MULTIPROCESSORS = 16,
    PST_CU_MAJOR = 75,
    PST_CU_MINOR = 76,
    PST_CU_ONE_ADDRESS = 91, /* the GPU sees registered host memory at the host's address */
    PST_CU_DMA_BUF = 124,
    PST_CU_REGISTER_PORTABLE = 1,
    PST_CU_REGISTER_IO_MEMORY = 4,
    PST_CU_LAZY_PEER_ACCESS = 1,
    PST_CU_EVENT_SHARED = 2 | 4, /* without timing, and for several processes */
};

struct pst_driver {
#define PST_DRIVER_MEMBER(member, symbol, parameters) int(*member) parameters;
    PST_DRIVER_CALLS(PST_DRIVER_MEMBER)
#undef PST_DRIVER_MEMBER
};

/* PST_E_UNSUPPORTED: there is no driver, or it lacks the function that the message names. */
pst_rc pst_driver_open(struct pst_driver *driver);
/* The name of a call's result: "CUDA_ERROR_...". */
const char *pst_driver_error(const struct pst_driver *driver, int error);

#endif
