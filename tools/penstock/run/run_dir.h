/* run_dir.h: the directory of a run, and what may be removed from it. README.md of this room has the rule.
 *
 * A run writes `lock`, `live.json`, `epochs.jsonl`, `report.json`, `pipeline.json` and files in logs/, plan/,
 * checkpoints/, trace/ and mps/. Its supervisor holds a flock on `lock`, whose text is "PID ID" or "PID ID
 * made INODE". The second form says that a run made the directory of this inode: only such a directory is
 * ever removed.
 *
 * Owner: the caller owns the descriptors. Threads: one. */
#ifndef PST_RUN_DIR_H
#define PST_RUN_DIR_H

#include <sys/types.h>

#include "common/base.h"

#define RUN_LOCK_NAME "lock"
#define RUN_PIPELINE_NAME "pipeline.json"
#define RUN_LOCK_ID_BYTES 17

/* The text of a lock. */
struct run_lock {
    pid_t pid;                  /* of the supervisor, in its own PID namespace */
    char id[RUN_LOCK_ID_BYTES]; /* of pst_run_id */
    uint64_t made;              /* the inode of the directory if a run made it; else 0 */
};

/* Makes dir if it does not exist, with its parents, locks it, and removes what an earlier run in it left half
 * written. dir is empty: runs/NAME-TIME is made, and its name is written to dir. dir becomes absolute.
 * resumes: the directory whose checkpoint the run resumes from, or NULL.
 *
 * PST_E_STATE, and nothing is changed: another run holds dir; dir is a dataset; dir holds checkpoints that
 * the run does not resume from; or dir, which no run has used, holds a file that a run would replace. */
PST_MUST_USE pst_rc run_dir_open(char dir[PST_PATH_MAX], const char *name, const char *id,
                                 const char *resumes, int *lock);

/* Opens dir's lock and reads it. false: dir has none, or it is not the lock of a run. */
bool run_lock_open(int dir_fd, struct run_lock *lock, int *fd);

/* Whether somebody holds dir's lock. */
bool run_dir_is_held(const char *dir);

/* Removes the temporary files of dead processes (tempname.h) in a run's directory. dry: only counts them.
 * Returns how many. */
int run_dir_sweep(int dir_fd, bool dry);

/* Removes a run's directory, its entry `name` of parent_fd, if the caller holds its lock (or it is a
 * temporary name that the caller has taken) and it holds nothing but files that a run writes. PST_E_STATE,
 * and nothing is removed: it holds something else, which the message names. path: for messages. */
PST_MUST_USE pst_rc run_dir_remove(int parent_fd, const char *name, const char *path, bool dry);

/* The identity of the mount that fd lies on; -1: unknown. */
long run_dir_mount(int fd);

#endif
