/* foreign_impl.h: the bridge to a foreign stage's program: its life (foreign.c) and what it says
 * (foreign_hear.c). Private to them.
 * Owner: the stage, whose state it is; foreign.c opens and closes it. Threads: the stage's one. */
#ifndef PST_FOREIGN_IMPL_H
#define PST_FOREIGN_IMPL_H

#include "common/host/hand.h"
#include "common/host/wire_socket.h"
#include "common/wire.h"

#define PST_HOST_PATIENCE_S_MAX 100 /* less than the supervisor gives a stage to finish */

struct pst_host_foreign { /* the state of the stage that the bridge is */
    struct pst_wire_socket wire;
    struct pst_host_hand hand;
    pid_t pid; /* 0: it has ended */
    int pidfd;
    int stopped_looks; /* in a row that found it stopped */
    int patience_ms;   /* from "finish" to the end of the program, which may write a checkpoint */
    bool open;         /* it knows its routes */
    bool started, done;
};

/* One message of the program. PST_E_PEER: it makes no sense. */
PST_MUST_USE pst_rc pst_host_hear(struct pst_stage *self, const char *bytes, size_t n);
/* A JSON message that may come at any time. */
PST_MUST_USE pst_rc pst_host_hear_json(struct pst_stage *self, const json_t *message);

#endif
