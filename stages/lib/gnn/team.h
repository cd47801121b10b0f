/* team.h: a few threads that share the tasks of one job after another. A job's tasks are the same however
 * many threads there are, and each is done by one of them, whichever comes first: so a result that depends on
 * the tasks alone does not depend on the threads. Between jobs a worker spins for about as long as a wake-up
 * would take, then sleeps, since the other stages want the cores too.
 *
 * Owner: pst_gnn_team_new starts the workers; pst_gnn_team_free joins them. Threads: jobs are run by one
 * thread at a time, which works on them itself as worker 0. */
#ifndef PST_TEAM_H
#define PST_TEAM_H

#include "common/base.h"

#include <pthread.h>

#define PST_GNN_TEAM_MAX 64 /* threads: memory's bandwidth ends long before */

typedef void pst_gnn_task_fn(void *job, int64_t task, int worker);

/* What all its threads touch; each on its own line. */
struct pst_gnn_team {
    int threads;
    _Alignas(PST_CACHE_LINE) _Atomic uint64_t ticket; /* job's number << 32 | tasks that nobody has taken */
    _Alignas(
        PST_CACHE_LINE) _Atomic uint32_t undone;   /* tasks that are not finished; the caller sleeps on it */
    _Alignas(PST_CACHE_LINE) _Atomic uint32_t job; /* counts jobs; idle workers sleep on it */
    _Atomic uint32_t asleep;                       /* workers that may sleep */
    _Atomic bool caller_asleep, stop;
    pst_gnn_task_fn *task; /* of the running job, as are the next two; written while no task is to be had */
    void *arg;
    uint32_t tasks;
    pthread_t thread[PST_GNN_TEAM_MAX - 1];
    struct pst_team_member {
        struct pst_gnn_team *team;
        int worker;
    } member[PST_GNN_TEAM_MAX - 1];
};

/* PST_E_NOMEM: the threads cannot be made. threads: 1 to PST_GNN_TEAM_MAX; 1 makes none. */
PST_MUST_USE pst_rc pst_gnn_team_new(struct pst_gnn_team **team, int threads);
void pst_gnn_team_free(struct pst_gnn_team *team); /* NULL: nothing */

/* Calls task(job, 0 .. tasks-1, worker), in any order, on worker 0 .. threads-1; returns when all are done.
 */
void pst_gnn_team_run(struct pst_gnn_team *team, pst_gnn_task_fn *task, void *job, int64_t tasks);

/* As many threads as there are cores that this process may run on, at most PST_GNN_TEAM_MAX. */
int pst_gnn_team_cores(void);

#endif
