/* team.c: a task is taken by counting the ticket down, which fails if the job has changed. A job cannot
 * change while one of its tasks is held, so what a thread reads after taking a task belongs to that job. */
#include "common/util/team.h"
#include "common/error.h"
#include "common/util/signals.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPINS = 1000
}; /* pauses before sleeping: 10 to 40 us, about as long as falling asleep and waking take */

static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    (void)syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int threads)
{
    (void)syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

/* Takes and does one task. False: there was none to take. */
static bool do_one(struct pst_team *team, int worker)
{
    uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    do {
        if ((uint32_t)ticket == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                    memory_order_acquire));
    team->task(team->arg, team->tasks - (uint32_t)ticket, worker);
    if (atomic_fetch_sub(&team->undone, 1) == 1 && atomic_load(&team->caller_asleep))
        wake(&team->undone, 1);
    return true;
}

static void *work(void *arg)
{
    const struct pst_team_member *me = arg;
    struct pst_team *team = me->team;
    int idle = 0;
    for (;;) {
        const uint32_t job = atomic_load(&team->job);
        if (do_one(team, me->worker)) {
            idle = 0;
            continue;
        }
        if (atomic_load(&team->stop))
            return NULL;
        if (idle++ < SPINS) {
            __builtin_ia32_pause();
            continue;
        }
        /* A thread that starts a job after this count sees it and wakes this worker; one that did so
         * before has changed `job`. */
        atomic_fetch_add(&team->asleep, 1);
        sleep_while(&team->job, job);
        atomic_fetch_sub(&team->asleep, 1);
        idle = 0;
    }
}

static int start(struct pst_team *team, int i)
{
    team->member[i] = (struct pst_team_member){team, i + 1};
    return pst_signals_thread(&team->thread[i], work, &team->member[i]);
}

pst_rc pst_team_new(struct pst_team **made, int threads)
{
    assert(threads >= 1 && threads <= PST_TEAM_MAX);
    struct pst_team *team = aligned_alloc(PST_CACHE_LINE, sizeof *team);
    *made = NULL;
    if (!team)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot start a team of %d threads", threads);
    memset(team, 0, sizeof *team);
    for (team->threads = 1; team->threads < threads; team->threads++) {
        const int failed = start(team, team->threads - 1);
        if (failed) {
            const int number = team->threads + 1;
            pst_team_free(team);
            return pst_fail(PST_E_NOMEM,
                            "cannot start thread %d of %d: %s (use fewer threads, or raise the limit that "
                            "`ulimit -u` shows)",
                            number, threads, strerror(failed));
        }
    }
    *made = team;
    return PST_OK;
}

void pst_team_free(struct pst_team *team)
{
    if (!team)
        return;
    atomic_store(&team->stop, true);
    atomic_fetch_add(&team->job, 1);
    wake(&team->job, PST_TEAM_MAX);
    for (int i = 0; i + 1 < team->threads; i++)
        (void)pthread_join(team->thread[i], NULL);
    free(team);
}

/* The caller sleeps, so that a worker that has lost its core can have this one. */
static void wait_for_all(struct pst_team *team)
{
    for (int i = 0; i < SPINS && atomic_load_explicit(&team->undone, memory_order_acquire) > 0; i++)
        __builtin_ia32_pause();
    for (uint32_t undone; (undone = atomic_load(&team->undone)) > 0;) {
        atomic_store(&team->caller_asleep, true);
        sleep_while(&team->undone, undone);
        atomic_store(&team->caller_asleep, false);
    }
}

void pst_team_begin(struct pst_team *team, pst_team_task *task, void *job, int64_t tasks)
{
    assert(team->threads >= 1 && tasks >= 0 && tasks <= UINT32_MAX);
    assert(atomic_load_explicit(&team->undone, memory_order_relaxed) == 0);
    team->task = task;
    team->arg = job;
    team->tasks = (uint32_t)tasks;
    atomic_store_explicit(&team->undone, (uint32_t)tasks, memory_order_relaxed);
    const uint32_t number = atomic_load_explicit(&team->job, memory_order_relaxed) + 1;
    atomic_store(&team->ticket, (uint64_t)number << 32 | (uint64_t)tasks);
    atomic_store(&team->job, number);
    if (atomic_load(&team->asleep) > 0)
        wake(&team->job, (int)pst_min_i64(tasks, team->threads - 1));
}

void pst_team_end(struct pst_team *team)
{
    while (do_one(team, 0))
        ;
    wait_for_all(team);
}

void pst_team_run(struct pst_team *team, pst_team_task *task, void *job, int64_t tasks)
{
    if (team->threads == 1 || tasks <= 1) {
        for (int64_t i = 0; i < tasks; i++)
            task(job, i, 0);
        return;
    }
    pst_team_begin(team, task, job, tasks);
    pst_team_end(team);
}

int pst_team_cores(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1; /* on a machine with more than 1024 cores: fewer threads are better than none */
    return (int)pst_max_i64(1, pst_min_i64(CPU_COUNT(&cores), PST_TEAM_MAX));
}
