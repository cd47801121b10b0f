/* team.h: threads that share the tasks of one job after another. A job has the same tasks for any number of
 * threads, and any thread may do a task. So a result that depends only on the tasks does not depend on the
 * threads. Between jobs a worker spins for about the time that a wake-up takes, and then sleeps, because
 * other stages need the cores too.
 *
 * Owner: pst_team_new starts the workers; pst_team_free joins them. Threads: one thread at a time
 * runs jobs, and works on them itself as worker 0. */
#ifndef PST_TEAM_H
#define PST_TEAM_H

#include "common/base.h"

#include <pthread.h>

#define PST_TEAM_MAX 64 /* threads: memory bandwidth runs out long before */

typedef void pst_team_task(void *job, int64_t task, int worker);

/* What all threads share, each on its own cache line. */
struct pst_team {
    int threads;
    _Alignas(
        PST_CACHE_LINE) _Atomic uint64_t ticket; /* number of the job << 32 | tasks that nobody has taken */
    _Alignas(
        PST_CACHE_LINE) _Atomic uint32_t undone;   /* tasks that are not finished; the caller sleeps on it */
    _Alignas(PST_CACHE_LINE) _Atomic uint32_t job; /* counts jobs; idle workers sleep on it */
    _Atomic uint32_t asleep;                       /* workers that may be asleep */
    _Atomic bool caller_asleep, stop;
    pst_team_task *task; /* of the running job, like the next two; written while no task can be taken */
    void *arg;
    uint32_t tasks;
    pthread_t thread[PST_TEAM_MAX - 1];
    struct pst_team_member {
        struct pst_team *team;
        int worker;
    } member[PST_TEAM_MAX - 1];
};

/* threads: 1 to PST_TEAM_MAX; 1 starts none. PST_E_NOMEM: the threads cannot be made. */
PST_API PST_MUST_USE pst_rc pst_team_new(struct pst_team **team, int threads);
PST_API void pst_team_free(struct pst_team *team); /* NULL: does nothing */

/* Calls task(job, 0 .. tasks-1, worker), in any order, on workers 0 .. threads-1. Returns when all are done:
 * it is pst_team_begin and pst_team_end. */
PST_API void pst_team_run(struct pst_team *team, pst_team_task *task, void *job, int64_t tasks);

/* The same in two halves. Between them, workers 1 .. threads-1 work, and the caller can do something else. It
 * must not begin another job then. With one thread, pst_team_end does the work. */
PST_API void pst_team_begin(struct pst_team *team, pst_team_task *task, void *job, int64_t tasks);
PST_API void pst_team_end(struct pst_team *team);

/* The number of cores that this process may run on, at most PST_TEAM_MAX. */
PST_API int pst_team_cores(void);

#endif
