/* shared.h: a collective whose members share memory: processes of one machine, threads of one process, or
 * both.
 *
 * Each member has a box in the memory. To give something, a member waits until its box is empty, fills it and
 * says for whom it is. To take something, a member waits until the other member's box holds something for it.
 * Larger data goes through the box in pieces. The waits are futexes. Twice a second, a waiting member looks
 * whether the other one's process is alive.
 *
 * Owner: the memory is the caller's; it is zeroed before the first member opens it. It disappears with its
 * last user, so a killed member leaves nothing behind. */
#ifndef PST_COLLECTIVE_SHARED_H
#define PST_COLLECTIVE_SHARED_H

#include <stdatomic.h>

#include "common/collective/collective.h"

PST_BEGIN_DECLS

#define PST_COLLECTIVE_BOX                                                                                   \
    ((uint64_t)256 << 10) /* bytes of a box: gradients of small models are one piece                         \
                           */

struct pst_collective_shared_options {
    void *memory;                 /* pst_collective_shared_bytes, aligned to a page */
    int rank, members;            /* at most PST_REPLICAS_MAX members */
    const char *const *names;     /* of all members, for messages; they live as long as the collective */
    double deadline_s;            /* the longest wait for another member, in seconds */
    const _Atomic uint32_t *stop; /* if it is not 0, waits end with PST_E_INTERRUPTED; NULL: none */
};

PST_API uint64_t pst_collective_shared_bytes(int members);

/* Opens a member. Its process is the calling one. PST_E_ARG: a rank is wrong, or already open. PST_E_NOMEM.
 */
PST_API PST_MUST_USE pst_rc pst_collective_shared_open(struct pst_collective **out,
                                                       const struct pst_collective_shared_options *options);

/* One half of an exchange, for a member that must have taken before it can give. At most
 * PST_COLLECTIVE_BOX bytes. The peer exchanges. Errors are those of an exchange. */
PST_API PST_MUST_USE pst_rc pst_collective_shared_give(struct pst_collective *c, int peer, const void *from,
                                                       uint64_t bytes);
PST_API PST_MUST_USE pst_rc pst_collective_shared_take(struct pst_collective *c, int peer, void *to,
                                                       uint64_t bytes);

PST_END_DECLS
#endif
