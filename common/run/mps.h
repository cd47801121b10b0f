/* mps.h: CUDA's Multi-Process Service for one run. Without it the kernels of two processes take turns on a
 * GPU. The supervisor starts a daemon for the run, in the run's directory. A keeper (tools/penstock-mps.c)
 * ends the daemon when the supervisor is gone, even if the supervisor was killed.
 *
 * Owner: the supervisor. pst_mps_stop accepts a zeroed struct and one that was never started. Threads: one,
 * before other threads read the environment. */
#ifndef PST_MPS_H
#define PST_MPS_H

#include <sys/types.h>

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_MPS_WHY_BYTES 256

struct pst_mps {
    pid_t keeper;                /* 0: there is no daemon */
    int lifeline;                /* the keeper ends when this is closed */
    char why[PST_MPS_WHY_BYTES]; /* why there is no daemon */
};

/* Finds NVIDIA's control program in PATH. False: it is not there. */
PST_API bool pst_mps_program(char *path, size_t bytes);

/* Starts the daemon and waits until it answers. Processes that are started afterwards find it through their
 * environment. If it does not start, mps->why says why, and the run goes on without it. run_dir has a
 * directory logs. */
void pst_mps_start(struct pst_mps *mps, const char *run_dir);

/* Processes that are started from now on may use `percent` of a GPU's multiprocessors (1 to 100; default
 * 100). */
void pst_mps_share(const struct pst_mps *mps, int percent);

/* Ends the daemon; takes at most two seconds. Call it when all its clients are gone. */
void pst_mps_stop(struct pst_mps *mps);

PST_END_DECLS
#endif
