/* mps.h: CUDA's Multi-Process Service for one run. Without it the kernels of two processes take turns on a
 * GPU. The supervisor starts a daemon of its own, in the run's directory, by a keeper (tools/penstock-mps.c)
 * that ends it when the supervisor is gone, however that came.
 *
 * Owner: the supervisor; pst_mps_stop accepts one that is zeroed or was never started. Threads: one, before
 * others read the environment. */
#ifndef PST_MPS_H
#define PST_MPS_H

#include <sys/types.h>

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_MPS_WHY_BYTES 256

struct pst_mps {
    pid_t keeper;                /* 0: there is none */
    int lifeline;                /* closed: it ends */
    char why[PST_MPS_WHY_BYTES]; /* where there is none, the reason */
};

/* NVIDIA's control program, as PATH has it. False: it is not there. */
PST_API bool pst_mps_program(char *path, size_t bytes);

/* Starts it for what is started afterwards, which finds it in its environment; waits until it answers. No
 * daemon is no failure: mps->why says what is missing, and a run goes on without. run_dir has logs/. */
PST_API void pst_mps_start(struct pst_mps *mps, const char *run_dir);

/* What is started next may use `percent` of a GPU's multiprocessors (1 to 100; 100: all, the default). */
PST_API void pst_mps_share(const struct pst_mps *mps, int percent);

/* Once all its clients are gone: ends the daemon; at most two seconds. */
PST_API void pst_mps_stop(struct pst_mps *mps);

PST_END_DECLS
#endif
