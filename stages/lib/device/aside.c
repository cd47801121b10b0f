/* aside.c: a job is handed over under a lock, and its end is told by a descriptor. */
#include "stages/lib/device/aside.h"

#include "common/util/signals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void *work(void *arg)
{
    struct pst_device_aside *a = arg;
    const uint64_t one = 1;
    (void)pthread_mutex_lock(&a->lock);
    for (;;) {
        while (!a->given && !a->stop)
            (void)pthread_cond_wait(&a->changed, &a->lock);
        if (!a->given)
            break;
        (void)pthread_mutex_unlock(&a->lock);
        const pst_rc rc = a->job(a->arg);
        (void)pthread_mutex_lock(&a->lock);
        a->rc = rc;
        if (rc != PST_OK) /* messages belong to threads */
            (void)snprintf(a->text, sizeof a->text, "%s", pst_error_text());
        a->given = false;
        (void)pthread_cond_broadcast(&a->changed);
        (void)!write(a->event, &one, sizeof one); /* it cannot fail: the counter does not overflow */
    }
    (void)pthread_mutex_unlock(&a->lock);
    return NULL;
}

pst_rc pst_device_aside_open(struct pst_device_aside *a, struct pst_stage *stage)
{
    *a = (struct pst_device_aside){.stage = stage};
    a->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (a->event < 0)
        return pst_fail_errno("cannot make an event for a thread that computes");
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->changed, NULL);
    errno = pst_signals_thread(&a->thread, work, a);
    a->started = errno == 0;
    if (!a->started) {
        const pst_rc rc = pst_fail_errno("cannot start a thread that computes");
        (void)pthread_cond_destroy(&a->changed);
        (void)pthread_mutex_destroy(&a->lock);
        (void)close(a->event);
        return rc;
    }
    return pst_watch(stage, a->event);
}

void pst_device_aside_close(struct pst_device_aside *a)
{
    if (!a->started)
        return;
    (void)pthread_mutex_lock(&a->lock);
    a->stop = true;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
    (void)pthread_join(a->thread, NULL);
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->lock);
    (void)close(a->event);
    a->started = false;
}

void pst_device_aside_begin(struct pst_device_aside *a, pst_rc (*job)(void *arg), void *arg)
{
    assert(a->started && !a->busy);
    a->busy = true;
    pst_working(a->stage, 1);
    (void)pthread_mutex_lock(&a->lock);
    a->job = job;
    a->arg = arg;
    a->given = true;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
}

pst_rc pst_device_aside_end(struct pst_device_aside *a)
{
    uint64_t ended;
    if (!a->busy)
        return PST_OK;
    (void)pthread_mutex_lock(&a->lock);
    while (a->given)
        (void)pthread_cond_wait(&a->changed, &a->lock);
    (void)pthread_mutex_unlock(&a->lock);
    (void)!read(a->event, &ended, sizeof ended);
    a->busy = false;
    pst_working(a->stage, -1);
    return a->rc == PST_OK ? PST_OK : pst_fail(a->rc, "%s", a->text);
}
