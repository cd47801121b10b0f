/* sleep.cuh: how the host waits for events: asleep, and with a deadline. The code is in queue.cu.
 * Owner: the caller owns the event. Threads: any. */
#ifndef PST_SLEEP_CUH
#define PST_SLEEP_CUH

#include <cuda_runtime.h>

/* cudaSuccess: the event has come. cudaErrorNotReady: it has not come within limit_s. */
cudaError_t pst_cu_sleep_until(cudaEvent_t event, double limit_s);

#endif
