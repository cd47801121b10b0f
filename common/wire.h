/* wire.h: the binary messages between the runtime and a foreign stage. The stage connects one ZeroMQ DEALER
 * socket to the endpoint in the environment variable PENSTOCK_WIRE. Every message has one part. A message
 * that begins with '{' is JSON; any other is a struct pst_wire, little endian, followed by nrefs references.
 * common/host/README.md describes the protocol.
 * Owner: none; plain values. Threads: any. */
#ifndef PST_WIRE_H
#define PST_WIRE_H

#include "common/stage.h"

#define PST_WIRE_MAGIC 0x46545350u /* "PSTF" */
#define PST_WIRE_ENV "PENSTOCK_WIRE"
#define PST_WIRE_KEYS_ENV "PENSTOCK_WIRE_KEYS" /* tcp: "SERVER PUBLIC SECRET", CURVE keys as Z85 */

enum pst_wire_kind {
    PST_WIRE_FRAME = 1,   /* both directions: an input frame to the stage, or an output frame from it */
    PST_WIRE_CREDIT = 2,  /* to the stage: refs[0] is the slot; arg[0] version, arg[1] 1 if dirty */
    PST_WIRE_RELEASE = 3, /* from the stage: every slot goes back; flags 1: changed */
    PST_WIRE_END = 4,     /* to the stage: input `port` has ended, or output `port` gets no further credit */
    PST_WIRE_RETURN = 6,  /* to the stage: as a credit, but no batch follows; the slot must not be sent */
    PST_WIRE_COUNT = 5,   /* from the stage: arg[0] items, arg[1] bytes were handled */
};

struct pst_wire {
    uint32_t magic;
    uint16_t kind; /* enum pst_wire_kind */
    uint16_t port; /* index in the stage's own description */
    uint64_t batch;
    uint32_t micro;
    uint32_t part;
    uint32_t flags; /* enum pst_frame_flag */
    uint32_t nrefs;
    uint64_t arg[2];
    struct pst_ref refs[]; /* 8 bytes each: route, slot */
};
static_assert(sizeof(struct pst_wire) == 48, "documented to the byte");

#endif
