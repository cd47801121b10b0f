/* clique_device.h: the caches of a clique (clique_cache.h) for a sampler on a GPU. Each replica's rows and
 * lists lie in the memory of its GPU (pst_share_gpu). The kernels of the clique read them there. Replica 0
 * also has host memory that all GPUs read in place (pst_share): the rows of the CPU tier, and the graph, for
 * lists that no replica of the clique has. Kernels count what they read, by the place that it came from.
 *
 * Owner: the caller; pst_sampling_resident_device_release gives back what was taken of the device, before the
 * device is closed. Threads: the stage's own. */
#ifndef PST_SAMPLING_CLIQUE_DEVICE_H
#define PST_SAMPLING_CLIQUE_DEVICE_H

#include "kernels/memories.h"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/resident/clique_cache.h"

PST_BEGIN_DECLS

#define PST_SAMPLING_RESIDENT_LANES 2 /* micro-batches whose counts the host has not read yet */

struct pst_sampling_resident_device {
    struct pst_device *device;
    struct pst_sampling_resident *clique;             /* the caller's: members, and what was counted */
    struct pst_k_row_parts rows;                      /* of each member; then the CPU tier */
    struct pst_k_list_parts lists;                    /* of each member; its graph is in host memory */
    const struct pst_cache *rows_index, *lists_index; /* in the device's memory */
    bool replace;                                     /* of the uniform draws */
    int32_t *list, *source;                           /* of each destination */
    int64_t *begin, *degree;
    int64_t *counts, *counts_there; /* of a micro-batch; counts_there: copies in pinned memory, one a lane */
};

/* Bytes that the replica shares in the memory of its GPU, and in that of the host. PST_E_FORMAT: the plan
 * does not fit the graph. */
PST_MUST_USE pst_rc pst_sampling_resident_device_bytes(const struct pst_plan *plan, int replica,
                                                       const struct pst_csc *graph, uint64_t stride_bytes,
                                                       uint64_t *gpu_bytes, uint64_t *host_bytes);

/* owner: this instance fills the replica's memory. vertices_max: of a micro-batch. graph: the mapped files.
 * plan: is not needed afterwards. device: has a queue. *clique is filled; it has no rows and lists that the
 * host can read, and needs no release. PST_E_NOMEM, PST_E_IO, PST_E_FORMAT, PST_E_STATE. */
PST_MUST_USE pst_rc pst_sampling_resident_device_load(
    struct pst_sampling_resident_device *d, struct pst_sampling_resident *clique, struct pst_stage *self,
    bool owner, struct pst_device *device, const struct pst_plan *plan, const struct pst_dataset *ds,
    const struct pst_csc *graph, bool replace, int64_t vertices_max);
void pst_sampling_resident_device_release(struct pst_sampling_resident_device *d);

/* The following put work on the queue. The first begins a micro-batch: all counts are 0. */
void pst_sampling_resident_device_begin(struct pst_sampling_resident_device *d);

/* Draws a hop as the algorithm uniform does. fanout: not 0. out(capacity) gets the ids, *total their number.
 */
void pst_sampling_resident_device_draw(struct pst_sampling_resident_device *d,
                                       const struct pst_sample_key *key, int fanout, const int64_t *vertices,
                                       struct pst_twin_n n, int32_t *indptr, int64_t *out, int64_t capacity,
                                       int64_t *total);

/* Counts the rows that the index found. Then the counts go to the host, to this lane, for ..._end.
 */
void pst_sampling_resident_device_count(struct pst_sampling_resident_device *d, int lane, const int32_t *row,
                                        struct pst_twin_n n);

/* Copies these rows to `to`: row[i] to place pos[i] of stride_bytes. */
void pst_sampling_resident_device_gather(struct pst_sampling_resident_device *d, const int32_t *row,
                                         const int32_t *pos, struct pst_twin_n n, char *to,
                                         uint64_t stride_bytes, uint64_t row_bytes);

/* The micro-batch is complete, and the caller has waited for its counts: adds them to those of the clique.
 * Nothing is counted of a micro-batch that is given up. rows_disk: that the index did not find. */
void pst_sampling_resident_device_end(struct pst_sampling_resident_device *d, int lane, uint64_t rows_disk);

PST_END_DECLS
#endif
