/* handover.h: how slots change hands on GPUs: between the host (host.c, ports.c) and its events (handover.c).
 *
 * Owner: a process' events belong to it, and are freed when its stages have ended. Threads: each stage's own;
 * what a process shares is locked. */
#ifndef PST_HANDOVER_H
#define PST_HANDOVER_H

#include "common/host/host_impl.h"

/* Of the supervisor's "open" message: this stage's events of a route, and those that it waits for. */
PST_MUST_USE pst_rc pst_handover_open(struct pst_stage *self, struct pst_host_route_end *route,
                                      const json_t *j);
void pst_handover_close(struct pst_stage *self);
void pst_handover_free_events(struct pst_host_process *process);

/* The slot has come, by a credit or in a frame: what the stage does with it from now on comes after what
 * others did. */
PST_MUST_USE pst_rc pst_handover_take(struct pst_stage *self, const struct pst_host_route_end *route,
                                      uint32_t slot);
/* Before a frame with the slot is sent: one that waits for no kernels may then write there (PST_PORT_ASIDE).
 */
PST_MUST_USE pst_rc pst_handover_announce(struct pst_stage *self, const struct pst_host_route_end *route,
                                          uint32_t slot);
/* Before the slot is another's: what the stage did comes before what others will do. */
PST_MUST_USE pst_rc pst_handover_give(struct pst_stage *self, const struct pst_host_route_end *route,
                                      uint32_t slot);

#endif
