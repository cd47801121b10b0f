/* emulated_wire.h: messages between client and controllers over a SOCK_SEQPACKET socket, one message in each
 * packet. Only processes of the same user are accepted. */
#ifndef PST_EMULATED_WIRE_H
#define PST_EMULATED_WIRE_H

#include "common/nvme/emulated/emulated.h"

enum pst_emu_wire_op {
    /* arg[0]: SSD. Answer: a descriptor of arg[1] bytes, of which arg[0] are registers. */
    PST_EMU_CONNECT = 1,
    /* arg[0]: offset, arg[1]: bytes, with a descriptor. Answer: arg[0] is the device's address. */
    PST_EMU_MAP,
    /* arg[0]: the device's address. */
    PST_EMU_UNMAP,
};

struct pst_emu_message {
    uint32_t op; /* answers repeat it */
    int32_t rc;
    uint64_t arg[2];
    char text[256];
};

/* fd -1: no descriptor. PST_E_PEER: the other side has closed the connection. */
PST_MUST_USE pst_rc pst_emu_send(int socket, const struct pst_emu_message *message, int fd);
PST_MUST_USE pst_rc pst_emu_receive(int socket, struct pst_emu_message *message, int *fd);

#endif
