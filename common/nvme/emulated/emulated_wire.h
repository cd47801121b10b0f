/* emulated_wire.h: what client and controllers say to each other over a SOCK_SEQPACKET socket, one message a
 * packet. Only a process of the same user is heard. */
#ifndef PST_EMULATED_WIRE_H
#define PST_EMULATED_WIRE_H

#include "common/nvme/emulated/emulated.h"

enum pst_emu_wire_op {
    PST_EMU_CONNECT = 1, /* arg[0]: SSD. Answer: arg[0] bytes of registers, arg[1] of all; descriptor of it */
    PST_EMU_MAP,         /* arg[0]: offset, arg[1]: bytes, with a descriptor. Answer: arg[0] is the iova */
    PST_EMU_UNMAP,       /* arg[0]: iova */
};

struct pst_emu_message {
    uint32_t op; /* answers repeat it */
    int32_t rc;
    uint64_t arg[2];
    char text[256];
};

/* fd -1: none. PST_E_PEER: the other side is gone. */
PST_MUST_USE pst_rc pst_emu_send(int socket, const struct pst_emu_message *message, int fd);
PST_MUST_USE pst_rc pst_emu_receive(int socket, struct pst_emu_message *message, int *fd);

#endif
