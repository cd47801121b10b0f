/* lists_device.c: copies lists of neighbours to a GPU, through a pinned buffer. */
#include "stages/lib/topology/lists_device.h"

#include <string.h>

#include "common/error.h"
#include "stages/lib/device/device.h"
#include "stages/lib/topology/lists.h"

#define STAGING_BYTES ((uint64_t)4 << 20) /* of one copy */

/* A buffer whose contents go to the device, one copy behind the other. */
struct staging {
    struct pst_device *device;
    char *buffer, *to;
    uint64_t used;
};

uint64_t pst_topology_lists_device_entries_at(int64_t n)
{
    return pst_align_up(((uint64_t)n + 1) * sizeof(int64_t), PST_PAGE);
}

pst_rc pst_topology_lists_device_bytes(const struct pst_csc *graph, const int64_t *vertices, int64_t n,
                                       uint64_t *bytes)
{
    uint64_t in_host = 0, entries = 0;                                        /* in_host: with an index */
    const pst_rc rc = pst_topology_lists_bytes(graph, vertices, n, &in_host); /* checks them */
    for (int64_t i = 0; i < n && rc == PST_OK; i++)
        entries += (uint64_t)(graph->indptr[vertices[i] + 1] - graph->indptr[vertices[i]]);
    *bytes = pst_topology_lists_device_entries_at(n) + entries * (uint64_t)graph->index_bytes;
    return rc;
}

static pst_rc flush(struct staging *s)
{
    if (s->used == 0)
        return PST_OK;
    (void)s->device->twin->copy(s->device->q, s->to, s->buffer, s->used); /* the wait reports a failure */
    s->to += s->used;
    s->used = 0;
    return pst_device_wait(s->device);
}

static pst_rc put(struct staging *s, const void *from, uint64_t bytes)
{
    pst_rc rc = PST_OK;
    for (uint64_t at = 0, some; at < bytes && rc == PST_OK; at += some) {
        some = bytes - at < STAGING_BYTES - s->used ? bytes - at : STAGING_BYTES - s->used;
        memcpy(s->buffer + s->used, (const char *)from + at, some);
        s->used += some;
        rc = s->used == STAGING_BYTES ? flush(s) : PST_OK;
    }
    return rc;
}

pst_rc pst_topology_lists_device_write(struct pst_device *device, void *to, const struct pst_csc *graph,
                                       const int64_t *vertices, int64_t n)
{
    const uint64_t entry = (uint64_t)graph->index_bytes;
    struct staging s = {.device = device, .to = to};
    int64_t at = 0;
    void *buffer = NULL;
    pst_rc rc = pst_device_take(device, PST_TWIN_MEMORY_PINNED, STAGING_BYTES,
                                "the buffer that cached lists pass through", &buffer);
    s.buffer = buffer;
    for (int64_t i = 0; i <= n && rc == PST_OK; i++) {
        rc = put(&s, &at, sizeof at);
        at += i < n ? graph->indptr[vertices[i] + 1] - graph->indptr[vertices[i]] : 0;
    }
    if (rc == PST_OK)
        rc = flush(&s);
    s.to = (char *)to + pst_topology_lists_device_entries_at(n);
    for (int64_t i = 0; i < n && rc == PST_OK; i++) {
        const int64_t begin = graph->indptr[vertices[i]], end = graph->indptr[vertices[i] + 1];
        rc = put(&s, (const char *)graph->indices + (uint64_t)begin * entry, (uint64_t)(end - begin) * entry);
    }
    if (rc == PST_OK)
        rc = flush(&s);
    pst_device_give(device, buffer);
    return rc;
}
