/* run_dir.h: the directory of a run: logs, plan, checkpoints, report, and a lock that its supervisor holds.
 * Owner: run_dir_open's caller owns the lock's descriptor. Threads: one. */
#ifndef PST_RUN_DIR_H
#define PST_RUN_DIR_H

#include <sys/types.h>

#include "common/base.h"

#define PST_RUN_DIR_MAX 4096

/* Makes dir (empty: runs/NAME-TIME, which is then written there) if it is not there, locks it, and removes
 * what an earlier run in it left half written. dir becomes absolute. `resumes`: the directory whose
 * checkpoint the run goes on from, or NULL. A directory with checkpoints is refused to a run that does not go
 * on from them: theirs and its own could not be told apart. */
PST_MUST_USE pst_rc run_dir_open(char dir[PST_RUN_DIR_MAX], const char *name, const char *id,
                                 const char *resumes, int *lock);

/* The supervisor that holds dir's lock; 0: none. */
pid_t run_dir_holder(const char *dir);

/* No run holds it, and it has neither a report nor a checkpoint: nothing in it is of use. */
bool run_dir_is_cut_off(const char *dir);

/* Removes the files beside the plan, checkpoints and report that a killed process was writing. Only for a
 * directory that no run holds but the caller's. dry: only counts them. Returns how many. */
int run_dir_sweep(const char *dir, bool dry);

#endif
