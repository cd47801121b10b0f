/* gpu.h: the drives' queues driven by kernels (kernels/nvme.h): groups of requests, as they stand in their
 * slots, become commands, are sent and waited for on a GPU, several groups in flight. The queues are the
 * GPU's from pst_io_gpu_submit until pst_io_gpu_give_back, else the host's; what a group leaves is
 * for the host's stack.
 *
 * Owner: the backend (nvme.c), with the drives. Threads: pst_io_gpu_stop from any; open and free
 * from one while no other uses it; the rest from one, the driving thread. */
#ifndef PST_GPU_H
#define PST_GPU_H

#include "stages/lib/io/drives.h"

struct pst_io_gpu;

/* On config->nvme->gpu, with the drives' first queues, as many of each; b->groups and b->group_requests are
 * set. PST_E_UNSUPPORTED: the GPU cannot reach something of the drives', and what. */
PST_MUST_USE pst_rc pst_io_gpu_open(struct pst_io_gpu **gpu, struct pst_io_drives *drives,
                                    const struct pst_io_config *config, struct pst_io_backend *b);
/* Lets go of all that is the drives'; what it waits for ends, for it is stopped. The drives are closed next.
 */
void pst_io_gpu_close(struct pst_io_gpu *gpu);
/* When the drives are closed: the rest of its memory, which they could write to. */
void pst_io_gpu_free(struct pst_io_gpu *gpu);
/* Kernels wait no more, from now on: what is in flight is late. */
void pst_io_gpu_stop(struct pst_io_gpu *gpu);

bool pst_io_gpu_own(const struct pst_io_gpu *gpu); /* the queues are the GPU's */
/* Takes the queues over, if they are not the GPU's, and sends the group's commands. PST_E_STATE: the host has
 * something in flight. After any failure the group is not in flight. */
PST_MUST_USE pst_rc pst_io_gpu_submit(struct pst_io_gpu *gpu, struct pst_io_group *group);
/* The group that pst_io_gpu_finish should wait for: the oldest whose slot is whole; failing that, if
 * `any`, the oldest; NULL: none. */
struct pst_io_group *pst_io_gpu_ready(const struct pst_io_gpu *gpu, bool any);
/* Waits for all groups in flight of this one's slot: done[0..*n), which has room for all groups in flight.
 * They end however it goes; a failure is in their `why`. */
void pst_io_gpu_finish(struct pst_io_gpu *gpu, struct pst_io_group *group, struct pst_io_group **done,
                       int *n);
/* The host has the queues again, with what is in flight on them; nothing may be waited for here any more.
 * Nothing if it has them. */
PST_MUST_USE pst_rc pst_io_gpu_give_back(struct pst_io_gpu *gpu);

/* Adds commands and turns, and, while the queues are the GPU's, sets doorbells. */
void pst_io_gpu_count(const struct pst_io_gpu *gpu, struct pst_io_driven *driven);

/* What its kernels run on. */
const struct pst_device *pst_io_gpu_device(const struct pst_io_gpu *g);

#endif
