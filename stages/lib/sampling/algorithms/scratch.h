/* scratch.h: zeroed memory with some numbers for each vertex of the graph (pst_k_scratch_words), for kernels
 * that compute the importance of vertices.
 *
 * Owner: pst_sampling_new_scratch allocates, and the caller frees. pst_sampling_take_scratch takes memory of
 * the device, which pst_device_close gives back. Threads: any. */
#ifndef PST_SAMPLING_SCRATCH_H
#define PST_SAMPLING_SCRATCH_H

#include "stages/lib/device/device.h"

PST_BEGIN_DECLS

PST_MUST_USE pst_rc pst_sampling_new_scratch(int64_t vertices, uint64_t **scratch);
PST_MUST_USE pst_rc pst_sampling_take_scratch(struct pst_device *device, int64_t vertices,
                                              uint64_t **scratch);

PST_END_DECLS
#endif
