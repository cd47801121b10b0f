/* gpu.h: drives whose queues kernels drive (kernels/nvme.h). Groups of requests, as they stand in their
 * slots, become commands, which a GPU sends and waits for; several groups are in flight. The GPU owns the
 * queues from pst_io_gpu_submit to pst_io_gpu_give_back; otherwise the host owns them. Requests that a group
 * leaves are for the host.
 *
 * Owner: the backend (nvme.c), with the drives. Threads: pst_io_gpu_stop from any; open and free from one
 * while no other uses the struct; the rest from one, the driving thread. */
#ifndef PST_GPU_H
#define PST_GPU_H

#include "stages/lib/io/drives.h"

struct pst_io_gpu;

/* Uses the GPU config->nvme->gpu and the drives' first queues, the same number of each. Sets b->groups and
 * b->group_requests. PST_E_UNSUPPORTED: the message names what of the drives the GPU cannot access. */
PST_API_TEST PST_MUST_USE pst_rc pst_io_gpu_open(struct pst_io_gpu **gpu, struct pst_io_drives *drives,
                                                 const struct pst_io_config *config,
                                                 struct pst_io_backend *b);
/* Stops waiting and releases all that belongs to the drives. Close the drives next. */
void pst_io_gpu_close(struct pst_io_gpu *gpu);
/* After the drives are closed: frees the memory that they could have written to. */
void pst_io_gpu_free(struct pst_io_gpu *gpu);
/* From now on kernels wait for nothing; commands in flight are late. */
void pst_io_gpu_stop(struct pst_io_gpu *gpu);

bool pst_io_gpu_own(const struct pst_io_gpu *gpu); /* the GPU owns the queues */
/* Takes the queues over, if the host owns them, and sends the group's commands. PST_E_STATE: the host has
 * commands in flight. After a failure the group is not in flight. */
PST_API_TEST PST_MUST_USE pst_rc pst_io_gpu_submit(struct pst_io_gpu *gpu, struct pst_io_group *group);
/* The group to wait for next: the oldest whose slot is whole. If there is none and `any` is true, the oldest.
 * NULL: none. */
struct pst_io_group *pst_io_gpu_ready(const struct pst_io_gpu *gpu, bool any);
/* Waits for all groups in flight of this group's slot and puts them into done[0..*n), which has room for all
 * groups in flight. They end in any case; `why` of a group describes a failure. */
PST_API_TEST void pst_io_gpu_finish(struct pst_io_gpu *gpu, struct pst_io_group *group,
                                    struct pst_io_group **done, int *n);
/* Gives the queues back to the host, with what is in flight on them. No group may be in flight here. Does
 * nothing if the host owns them. */
PST_MUST_USE pst_rc pst_io_gpu_give_back(struct pst_io_gpu *gpu);

/* Adds commands and turns to the counts. While the GPU owns the queues, sets the doorbells. */
void pst_io_gpu_count(const struct pst_io_gpu *gpu, struct pst_io_driven *driven);

/* The device that its kernels run on. */
PST_API_TEST const struct pst_device *pst_io_gpu_device(const struct pst_io_gpu *g);

#endif
