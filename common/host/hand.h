/* hand.h: the batches that a foreign program has in hand: what the bridge gave it and what it has not yet
 * sent on or given back. A frame with other numbers would leave a later stage waiting for ever, so the
 * program is told at once. Owner: the bridge. Threads: one. */
#ifndef PST_HAND_H
#define PST_HAND_H

#include "common/host/host_impl.h"

struct pst_host_batch; /* one micro-batch at one port: of an input, or of a credit */

struct pst_host_hand {
    struct pst_host_batch *batches;
    uint32_t n, room;
};

void pst_host_hand_free(struct pst_host_hand *hand);

/* Before the program is told of a frame, or of a credit. */
PST_MUST_USE pst_rc pst_host_hand_frame(struct pst_stage *self, struct pst_host_hand *hand, int port,
                                        const struct pst_frame *frame);
PST_MUST_USE pst_rc pst_host_hand_credit(struct pst_stage *self, struct pst_host_hand *hand, int port,
                                         const struct pst_credit *credit);

/* Before what the program asks for is done. PST_E_PEER: it makes no sense; the text begins with the program.
 */
PST_MUST_USE pst_rc pst_host_hand_send(struct pst_stage *self, struct pst_host_hand *hand, int port,
                                       const struct pst_frame *frame);
PST_MUST_USE pst_rc pst_host_hand_give_back(struct pst_stage *self, struct pst_host_hand *hand,
                                            struct pst_ref ref);
/* It says that it is done: has it dealt with all that it was given? */
PST_MUST_USE pst_rc pst_host_hand_done(struct pst_stage *self, const struct pst_host_hand *hand);

#endif
