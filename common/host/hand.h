/* hand.h: the batches that a foreign program holds: the bridge gave them to it, and it has not yet sent them
 * on or released them. A frame with wrong numbers would make a later stage wait for ever, so the bridge
 * reports it at once. Owner: the bridge. Threads: one. */
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
/* Checks, when the program says that it is done, that it holds nothing any more. */
PST_MUST_USE pst_rc pst_host_hand_done(struct pst_stage *self, const struct pst_host_hand *hand);

#endif
