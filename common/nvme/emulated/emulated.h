/* emulated.h: emulated NVMe controllers in a separate process (penstock-nvme): registers, admin queue and
 * IO queues in shared memory; media in RAM, in a file, or as a function of the address; a model of speed;
 * faults. README.md has the keys of the JSON configuration.
 *
 * Owner: pst_nvme_emulated_start fills what the caller owns; pst_nvme_emulated_stop releases it, after its
 * transports are closed. Threads: one at a time. The thread that connects must live as long as the transport,
 * because the controllers take its death as the end of the client. */
#ifndef PST_EMULATED_H
#define PST_EMULATED_H

#include <sys/types.h>

#include "common/nvme/driver/transport.h"

#define PST_NVME_EMULATED_SSDS_MAX 16

/* Counts of one emulated SSD since its process began. They are in shared memory; read them with relaxed
 * loads. */
struct pst_nvme_emulated_stats {
    uint64_t fetched, completed; /* commands, with admin commands */
    uint64_t bytes_read, bytes_written;
    /* changes that were seen; two changes between two polls count once */
    uint64_t sq_doorbells, cq_doorbells;
    uint64_t dma_refused;                                   /* accesses to unmapped memory */
    uint64_t dma_refused_iova;                              /* the last of them */
    uint64_t errors, delayed, lost, torn, fatal, reordered; /* faults injected */
    uint64_t resets;
};

struct pst_nvme_emulated {
    char socket[108]; /* an abstract socket, which is no file */
    pid_t pid;        /* 0: another process started it */
    uint32_t ssds;
};

/* What an emulated SSD is modelled on, as it runs (dilated). 0: no limit. */
struct pst_nvme_emulated_speed {
    double iops, bytes_per_s, latency_s;
};

/* Reads the speed from a configuration. PST_E_ARG: the message says what is wrong. */
PST_API PST_MUST_USE pst_rc pst_nvme_emulated_speed_of(struct pst_nvme_emulated_speed *speed,
                                                       const char *json);

/* Starts penstock-nvme with this configuration. It ends when the calling process ends. PST_E_ARG: the message
 * says which key is wrong. */
PST_API PST_MUST_USE pst_rc pst_nvme_emulated_start(struct pst_nvme_emulated *e, const char *json);
PST_API void pst_nvme_emulated_stop(struct pst_nvme_emulated *e);

/* Connects to SSD number ssd, which has one client at a time. PST_E_STATE: it has a client; it is free again
 * when no command of its last client is in flight. */
PST_API PST_MUST_USE pst_rc pst_nvme_emulated_connect(struct pst_nvme_transport *t,
                                                      const struct pst_nvme_emulated *e, uint32_t ssd);
/* The counts of a transport of this kind; valid until it is closed. */
PST_API_TEST const struct pst_nvme_emulated_stats *
pst_nvme_emulated_stats(const struct pst_nvme_transport *t);

/* The content of a namespace of kind "function": the 8 bytes at byte `at` (a multiple of 8) of SSD ssd. */
static PST_HD uint64_t pst_nvme_emulated_pattern(uint32_t ssd, uint32_t nsid, uint64_t at)
{
    uint64_t x = at / 8 + ((uint64_t)ssd << 58) + ((uint64_t)nsid << 54) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u; /* splitmix64's finish: Steele, Lea, Flood, OOPSLA 2014 */
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
