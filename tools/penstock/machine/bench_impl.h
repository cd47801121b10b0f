/* bench_impl.h: what bench_io.c shares with bench_file.c and bench_nvme.c, which move the bytes. */
#ifndef PST_BENCH_IMPL_H
#define PST_BENCH_IMPL_H

#include "common/nvme/driver/dma.h"
#include "tools/penstock/machine/bench_io.h"

struct pst_bench_done {
    uint32_t slot;
    uint64_t ns; /* since it was posted */
};

/* How one thread moves bytes. */
struct pst_mover {
    const struct pst_bench_io *o;
    uint32_t thread;
    /* thread 0's, which makes file or drives; opened before the others and closed after them */
    struct pst_mover *first;
    struct pst_nvme_dma memory; /* slots, one after the other */
    uint32_t slots;
    uint64_t cycles;
    void *impl;
    bool sleeps;                         /* poll waits in the kernel */
    pst_rc (*open)(struct pst_mover *m); /* called by one thread at a time */
    pst_rc (*post)(struct pst_mover *m, uint32_t slot, uint32_t ssd, uint64_t at, bool write);
    pst_rc (*ring)(struct pst_mover *m);
    /* *n: how many have ended. */
    pst_rc (*poll)(struct pst_mover *m, struct pst_bench_done *done, uint32_t max, uint32_t *n);
    /* The content of an SSD; NULL: it is the pattern. */
    const uint8_t *(*reference)(const struct pst_mover *m, uint32_t ssd);
    void (*report)(struct pst_mover *m, struct pst_bench_io_result *result); /* adds its counts */
    void (*close)(struct pst_mover *m);
};

extern const struct pst_mover pst_mover_nvme, pst_mover_file;

static inline void *pst_bench_slot(const struct pst_mover *m, uint32_t slot)
{
    return (char *)m->memory.base + slot * m->o->bytes;
}

/* The processor's cycle counter; if there is none, nanoseconds. */
uint64_t pst_bench_cycles(void);

#endif
