/* streams.h: what the test stages share that hand slots over in a stream (pst_stream). */
#ifndef STREAMS_H
#define STREAMS_H

#include "stages/lib/device/device.h"
#include "common/stage.h"

/* plain: the stage waits for its queue itself. */
static inline pst_rc streams_open(struct pst_device *device, struct pst_stage *self, bool plain)
{
    pst_rc rc = pst_device_open(device, pst_device_name(self));
    if (rc == PST_OK)
        rc = pst_device_queue(device, (struct pst_queue_options){.most = 1024});
    return rc == PST_OK && !plain ? pst_stream(self, device->twin->stream(device->q)) : rc;
}

/* What a writer fills a batch's slot with, and each word of it. */
static inline int streams_byte(uint64_t batch)
{
    return (int)(1 + batch * 37 % 251);
}

static inline uint64_t streams_word(uint64_t batch)
{
    return (uint64_t)streams_byte(batch) * UINT64_C(0x0101010101010101);
}

#endif
