/* lane_team.c: lanes wait for a counter of rounds, first spinning, then on a condition variable. */
#include "common/nvme/stack/lane_team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define SPINS 2000 /* some microseconds, about as long as a wave */

struct pst_nvme_team {
    uint32_t lanes, started;
    void (*run)(void *, uint32_t, uint32_t);
    void *context;
    _Atomic uint32_t round, left;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t threads[PST_NVME_TEAM_MAX];
};

struct member {
    struct pst_nvme_team *team;
    uint32_t lane;
};

static void await_round(struct pst_nvme_team *team, uint32_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&team->round, memory_order_acquire) != seen || atomic_load(&team->stop))
            return;
        if (i % 64 == 63)
            (void)sched_yield();
    }
    (void)pthread_mutex_lock(&team->lock);
    while (atomic_load(&team->round) == seen && !atomic_load(&team->stop))
        (void)pthread_cond_wait(&team->work, &team->lock);
    (void)pthread_mutex_unlock(&team->lock);
}

static void *serve(void *argument)
{
    const struct member m = *(struct member *)argument;
    free(argument);
    for (uint32_t seen = 0;; seen++) {
        await_round(m.team, seen);
        if (atomic_load(&m.team->stop))
            return NULL;
        m.team->run(m.team->context, m.lane, m.team->lanes);
        atomic_fetch_sub_explicit(&m.team->left, 1, memory_order_release);
    }
}

pst_rc pst_nvme_team_new(struct pst_nvme_team **out, uint32_t lanes)
{
    assert(lanes >= 1 && lanes <= PST_NVME_TEAM_MAX);
    struct pst_nvme_team *team = calloc(1, sizeof *team);
    *out = NULL;
    if (team == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %u lanes", lanes);
    team->lanes = lanes;
    (void)pthread_mutex_init(&team->lock, NULL);
    (void)pthread_cond_init(&team->work, NULL);
    for (uint32_t lane = 1; lane < lanes; lane++) {
        struct member *m = malloc(sizeof *m);
        if (m != NULL)
            *m = (struct member){team, lane};
        if (m == NULL || pthread_create(&team->threads[team->started], NULL, serve, m) != 0) {
            free(m);
            pst_nvme_team_free(team);
            return pst_fail(PST_E_NOMEM,
                            "cannot start thread %u of %u of the NVMe stack: raise the limit (ulimit -u), or "
                            "use fewer lanes",
                            lane, lanes);
        }
        team->started++;
    }
    *out = team;
    return PST_OK;
}

void pst_nvme_team_free(struct pst_nvme_team *team)
{
    if (team == NULL)
        return;
    (void)pthread_mutex_lock(&team->lock);
    atomic_store(&team->stop, true);
    (void)pthread_cond_broadcast(&team->work);
    (void)pthread_mutex_unlock(&team->lock);
    for (uint32_t i = 0; i < team->started; i++)
        (void)pthread_join(team->threads[i], NULL);
    (void)pthread_cond_destroy(&team->work);
    (void)pthread_mutex_destroy(&team->lock);
    free(team);
}

void pst_nvme_team_run(struct pst_nvme_team *team, void (*run)(void *context, uint32_t lane, uint32_t lanes),
                       void *context)
{
    team->run = run;
    team->context = context;
    atomic_store(&team->left, team->started);
    if (team->started > 0) {
        (void)pthread_mutex_lock(&team->lock);
        atomic_fetch_add_explicit(&team->round, 1, memory_order_release);
        (void)pthread_cond_broadcast(&team->work);
        (void)pthread_mutex_unlock(&team->lock);
    }
    run(context, 0, team->lanes);
    while (atomic_load_explicit(&team->left, memory_order_acquire) > 0)
        (void)sched_yield();
}
