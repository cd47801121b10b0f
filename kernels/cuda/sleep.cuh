/* sleep.cuh: how the host waits for events: asleep, and not for ever. In queue.cu. */
#ifndef PST_SLEEP_CUH
#define PST_SLEEP_CUH

#include <cuda_runtime.h>

/* cudaSuccess: it has come; cudaErrorNotReady: not within limit_s. */
cudaError_t pst_cu_sleep_until(cudaEvent_t event, double limit_s);

#endif
