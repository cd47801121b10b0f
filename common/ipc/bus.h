/* bus.h: a bus that all processes of a run share, in the run's board. It stands for PCIe where there is none:
 * a transfer takes its bytes / rate, after the transfers before it (Hyperion, section III-C: Th_pcie).
 *
 * The state is one word that is changed by compare and swap. So a process that is killed holds nothing that
 * others wait for; at most one piece of its transfer still takes its time. Owner: the board. Threads: any, of
 * any process. Time: CLOCK_MONOTONIC. */
#ifndef PST_BUS_H
#define PST_BUS_H

#include <stdatomic.h>

#include "common/base.h"

#define PST_BUS_RATE_MIN 1e6 /* bytes per second; slower pieces would reach PST_BUS_WAIT_MAX_S */
#define PST_BUS_RATE_MAX 1e13
#define PST_BUS_PIECE_BYTES (UINT64_C(128) << 10) /* transfers take turns at this size */
/* An idle bus can catch up this much. Without it, a process that wakes up late costs throughput. */
#define PST_BUS_CREDIT_BYTES (UINT64_C(256) << 10)
#define PST_BUS_WAIT_MAX_S 10 /* for one piece; only a damaged board asks for more */

/* Zeroed memory is an idle bus. */
struct pst_bus {
    _Atomic uint64_t busy_until;  /* in 1/256 ns */
    _Atomic uint64_t bytes;       /* that have passed from CPU memory */
    _Atomic uint64_t drive_bytes; /* and to or from drives */
};

/* Waits until the bytes have passed, or *stop is not 0, or a piece has waited PST_BUS_WAIT_MAX_S.
 * bytes_per_s: PST_BUS_RATE_MIN to PST_BUS_RATE_MAX, the same in all processes. */
PST_API_TEST void pst_bus_take(struct pst_bus *bus, double bytes_per_s, uint64_t bytes,
                               const _Atomic uint32_t *stop);

/* Seconds that a bus of this rate has moved bytes, of memory and drives. */
PST_API double pst_bus_busy_s(const struct pst_bus *bus, double bytes_per_s);

/* Books a drive's transfer without waiting. Returns the time when it has passed, in ns. now_ns: the time now.
 */
PST_API uint64_t pst_bus_book(struct pst_bus *bus, double bytes_per_s, uint64_t bytes, uint64_t now_ns);

#endif
