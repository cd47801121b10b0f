/* topology.h: gives stages access to a dataset's topology, in the mapped files or in memory that a GPU can
 * read. Only these functions make a graph (struct pst_csc) from a dataset.
 *
 * Owner: a graph borrows its arrays: from the dataset, which must stay open, or from the device, which owns
 * the memory. Threads: a graph is read-only. */
#ifndef PST_TOPOLOGY_H
#define PST_TOPOLOGY_H

#include "kernels/kernels.h"

PST_BEGIN_DECLS

struct pst_dataset;
struct pst_device;

/* Where edges are read while a stage samples: in mapped files, in a copy in memory, or from drives (reads.h).
 */
enum pst_topology_from { PST_TOPOLOGY_MMAP, PST_TOPOLOGY_MEMORY, PST_TOPOLOGY_SSD };

/* The graph in the dataset's mapped files. Its offsets and ids are not checked (`penstock verify` checks
 * them). */
PST_API struct pst_csc pst_topology_mapped(const struct pst_dataset *ds);

/* Copies a mapped graph to this process's memory, where it stays: *graph points there afterwards. *memory is
 * the caller's to free(). PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_topology_load(struct pst_csc *graph, void **memory);

/* The same in memory of the caller's, from the start of a page: how much it takes; the graph there; the copy.
 * Processes that share the memory share the copy. */
PST_API uint64_t pst_topology_copy_bytes(const struct pst_csc *graph);
PST_API struct pst_csc pst_topology_copied(const struct pst_csc *graph, const void *memory);
PST_API void pst_topology_copy(const struct pst_csc *graph, void *memory);

/* Copies a graph to memory that a device's kernels can read: to device memory if it needs at most `budget`
 * bytes, otherwise to pinned host memory (*in_place is true, and each neighbour that a kernel reads crosses
 * the bus). The device needs a queue. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_topology_on_device(struct pst_device *device, const struct pst_csc *graph,
                                                   uint64_t budget, struct pst_csc *device_graph,
                                                   bool *in_place);

PST_END_DECLS
#endif
