/* topology.c: a dataset's graph as a view of mapped files, and as a copy that a GPU can read. */
#include "stages/lib/topology/topology.h"

#include <string.h>
#include <sys/mman.h>

#include "common/error.h"
#include "common/store/store.h"
#include "common/util/memory.h"
#include "stages/lib/device/device.h"

#define COPY_BYTES ((uint64_t)16 << 20) /* copied before the mapped pages are given back */

struct pst_csc pst_topology_mapped(const struct pst_dataset *ds)
{
    return (struct pst_csc){.indptr = ds->indptr.map,
                            .indices = ds->indices.map,
                            .index_bytes = (int)pst_dtype_bytes(ds->indices.dtype),
                            .vertices = ds->vertices,
                            .edges = ds->edges};
}

/* Copies a mapped array, and lets go of the mapped pages. Another copy would only take memory. */
static void copy_mapped(char *to, const void *map, uint64_t bytes)
{
    for (uint64_t at = 0, n; at < bytes; at += n) {
        const char *from = (const char *)map + at;
        n = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
        memcpy(to + at, from, n);
        const uintptr_t page = (uintptr_t)from & ~(uintptr_t)(PST_PAGE - 1);
        (void)madvise((void *)page, (uintptr_t)from + n - page, MADV_DONTNEED);
    }
}

static uint64_t indices_at(const struct pst_csc *graph)
{
    return pst_align_up(((uint64_t)graph->vertices + 1) * sizeof *graph->indptr, PST_PAGE);
}

uint64_t pst_topology_copy_bytes(const struct pst_csc *graph)
{
    return indices_at(graph) + (uint64_t)graph->edges * (uint64_t)graph->index_bytes;
}

struct pst_csc pst_topology_copied(const struct pst_csc *graph, const void *memory)
{
    struct pst_csc copy = *graph;
    copy.indptr = memory;
    copy.indices = (const char *)memory + indices_at(graph);
    return copy;
}

void pst_topology_copy(const struct pst_csc *graph, void *memory)
{
    copy_mapped(memory, graph->indptr, ((uint64_t)graph->vertices + 1) * sizeof *graph->indptr);
    copy_mapped((char *)memory + indices_at(graph), graph->indices,
                (uint64_t)graph->edges * (uint64_t)graph->index_bytes);
}

pst_rc pst_topology_load(struct pst_csc *graph, void **memory)
{
    *memory = pst_hugepage_alloc(pst_topology_copy_bytes(graph));
    if (*memory == NULL)
        return pst_fail(
            PST_E_NOMEM,
            "out of memory: cannot load the topology, which has %llu bytes; set topology to \"mmap\" or "
            "\"ssd\"",
            (unsigned long long)pst_topology_copy_bytes(graph));
    pst_topology_copy(graph, *memory);
    *graph = pst_topology_copied(graph, *memory);
    return PST_OK;
}

pst_rc pst_topology_on_device(struct pst_device *device, const struct pst_csc *graph, uint64_t budget,
                              struct pst_csc *device_graph, bool *in_place)
{
    const uint64_t indptr_bytes = ((uint64_t)graph->vertices + 1) * sizeof *graph->indptr,
                   indices_bytes = (uint64_t)graph->edges * (uint64_t)graph->index_bytes,
                   bytes = indptr_bytes + indices_bytes;
    *in_place = bytes > budget;
    const enum pst_twin_memory kind = *in_place ? PST_TWIN_MEMORY_PINNED : PST_TWIN_MEMORY_DEVICE;
    void *indptr, *indices;
    pst_rc rc = pst_device_take(device, kind, indptr_bytes, "the topology's indptr", &indptr);
    if (rc == PST_OK)
        rc = pst_device_take(device, kind, indices_bytes, "the topology's indices", &indices);
    if (rc != PST_OK)
        return pst_wrap(rc, "the topology has %llu bytes, but gpu_topology is only %llu",
                        (unsigned long long)bytes, (unsigned long long)budget);
    *device_graph = *graph;
    device_graph->indptr = indptr;
    device_graph->indices = indices;
    (void)device->twin->copy(device->q, indptr, graph->indptr, indptr_bytes); /* the wait reports a failure */
    (void)device->twin->copy(device->q, indices, graph->indices, indices_bytes);
    return pst_device_wait(device);
}
