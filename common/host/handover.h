/* handover.h: how slots change hands on GPUs, by events that kernels wait for.
 *
 * Owner: a process owns its events, and frees them when its stages have ended. Threads: each stage's own;
 * what the threads of a process share is locked. */
#ifndef PST_HANDOVER_H
#define PST_HANDOVER_H

#include "common/host/host_impl.h"

/* From the supervisor's "open" message: this stage's events of a route, and those that it waits for. */
PST_MUST_USE pst_rc pst_handover_open(struct pst_stage *self, struct pst_host_route_end *route,
                                      const json_t *j);
void pst_handover_close(struct pst_stage *self);
void pst_handover_free_events(struct pst_host_process *process);

/* Call when a slot has come, by a credit or in a frame: orders the stage's work after the work of the others.
 */
PST_MUST_USE pst_rc pst_handover_take(struct pst_stage *self, const struct pst_host_route_end *route,
                                      uint32_t slot);
/* Call before a frame with the slot is sent: the receiver may write there without waiting for kernels
 * (PST_PORT_ASIDE). */
PST_MUST_USE pst_rc pst_handover_announce(struct pst_stage *self, const struct pst_host_route_end *route,
                                          uint32_t slot);
/* Call before the slot is given away: orders the stage's work before the next user's. */
PST_MUST_USE pst_rc pst_handover_give(struct pst_stage *self, struct pst_host_route_end *route,
                                      uint32_t slot);

#endif
