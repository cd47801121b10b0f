/* scratch.c: zeroed memory for the importance of vertices. */
#include "stages/lib/sampling/algorithms/scratch.h"

#include <stdlib.h>

#include "common/error.h"

static uint64_t bytes_of(int64_t vertices)
{
    return (uint64_t)pst_k_scratch_words(vertices) * sizeof(uint64_t);
}

pst_rc pst_sampling_new_scratch(int64_t vertices, uint64_t **scratch)
{
    *scratch = calloc(1, bytes_of(vertices) + 1);
    return *scratch != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM,
                          "out of memory: cannot allocate %llu bytes for the importance of %lld vertices",
                          (unsigned long long)bytes_of(vertices), (long long)vertices);
}

pst_rc pst_sampling_take_scratch(struct pst_device *device, int64_t vertices, uint64_t **scratch)
{
    void *at = NULL;
    pst_rc rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, bytes_of(vertices),
                                "the importance of vertices", &at);
    if (rc == PST_OK)
        rc = device->twin->fill(device->q, at, 0, bytes_of(vertices));
    *scratch = at;
    return rc;
}
