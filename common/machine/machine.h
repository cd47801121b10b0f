/* machine.h: the devices of a machine: their memory, the sockets that they belong to, and which of them are
 * linked, so that one can read the other's memory (NVLink). A machine file is JSON:
 *
 *     {"machine": 1, "name": "pair",
 *      "sockets": [{"cores": 8, "memory_bytes": 68719476736}],
 *      "devices": [{"model": "V100", "socket": 0, "memory_bytes": 17179869184, "links": [1]},
 *                  {"model": "V100", "socket": 0, "memory_bytes": 17179869184, "links": [0]}]}
 *
 * Devices and sockets have their place in these lists as number. A link must be in the lists of both its
 * devices. Device number i stands for cuda:i, or for cpu:i+1 where there is no GPU (cpu:0 is the host).
 *
 * Owner: the caller; a value has no pointers. Threads: any. */
#ifndef PST_MACHINE_H
#define PST_MACHINE_H

#include "common/base.h"
#include "common/pipeline/json/diag.h"

#define PST_MACHINE_DEVICES_MAX 64 /* links are bits of a word */
#define PST_MACHINE_SOCKETS_MAX 16
#define PST_MACHINE_CORES_MAX 4096 /* of a socket */

struct pst_machine_socket {
    int cores;
    uint64_t memory_bytes;
};

struct pst_machine_device {
    char model[PST_NAME_MAX];
    int socket;
    uint64_t memory_bytes;
    uint64_t links; /* bit i: linked with device i */
};

struct pst_machine {
    char name[PST_NAME_MAX];
    int nsockets, ndevices;
    struct pst_machine_socket socket[PST_MACHINE_SOCKETS_MAX];
    struct pst_machine_device device[PST_MACHINE_DEVICES_MAX];
};

/* Reads and checks a machine file. False: diag has every error. */
PST_API PST_MUST_USE bool pst_machine_load(struct pst_machine *machine, const char *file,
                                           struct pst_diag *diag);

/* The number of the device that a place, "cpu:1" or "cuda:0", stands for. -1: the machine has no such device.
 */
PST_API int pst_machine_device(const struct pst_machine *machine, const char *place);

/* The text of a machine file; the caller frees it. NULL: out of memory. */
PST_API char *pst_machine_text(const struct pst_machine *machine);

#endif
