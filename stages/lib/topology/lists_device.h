/* lists_device.h: lists of neighbours in the memory of a GPU, where its kernels and those of other GPUs read
 * them (kernels/memories.h): n + 1 offsets, and from the next page on the entries, one list after the other.
 * An index of the lists is the caller's.
 *
 * Owner: the caller owns all memory. Threads: one for each device. */
#ifndef PST_TOPOLOGY_LISTS_DEVICE_H
#define PST_TOPOLOGY_LISTS_DEVICE_H

#include "kernels/kernels.h"

PST_BEGIN_DECLS

struct pst_device;

/* Where the entries of n lists begin, in bytes. */
PST_API uint64_t pst_topology_lists_device_entries_at(int64_t n);

/* The memory that the lists of n vertices take. PST_E_FORMAT: an id or an offset is out of range; the message
 * names the vertex. */
PST_API PST_MUST_USE pst_rc pst_topology_lists_device_bytes(const struct pst_csc *graph,
                                                            const int64_t *vertices, int64_t n,
                                                            uint64_t *bytes);

/* Copies the lists of n vertices from the mapped graph to `to`, in memory of the device, which has a queue.
 * PST_E_NOMEM, PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_topology_lists_device_write(struct pst_device *device, void *to,
                                                            const struct pst_csc *graph,
                                                            const int64_t *vertices, int64_t n);

PST_END_DECLS
#endif
