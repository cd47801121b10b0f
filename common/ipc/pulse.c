/* pulse.c: the page of heartbeats. */
#include "common/ipc/pulse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/ipc/region.h"

#define INHERITED_FD 3 /* the first after the standard ones */
#define BEAT_MS 100

pst_rc pst_pulse_init(struct pst_pulse *pulse)
{
    pulse->counts = NULL;
    pst_rc rc = pst_region_create(&pulse->fd, "penstock-pulse", PST_PAGE, false);
    if (rc != PST_OK)
        return rc;
    void *page = mmap(NULL, PST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, pulse->fd, 0);
    if (page != MAP_FAILED) {
        pulse->counts = page;
        return PST_OK;
    }
    rc = pst_fail_errno("cannot map the shared page of heartbeats");
    pst_pulse_release(pulse);
    return rc;
}

void pst_pulse_release(struct pst_pulse *pulse)
{
    if (pulse->counts)
        (void)munmap(pulse->counts, PST_PAGE);
    if (pulse->fd >= 0)
        (void)close(pulse->fd);
    *pulse = (struct pst_pulse){.fd = -1};
}

uint64_t pst_pulse_of(const struct pst_pulse *pulse, int index)
{
    assert(index >= 0 && index < PST_PULSE_MAX);
    return atomic_load_explicit(&pulse->counts[index], memory_order_relaxed);
}

bool pst_pulse_inherit(int fd)
{
    if (fd == INHERITED_FD) /* dup2 would do nothing, and exec would close it */
        return fcntl(fd, F_SETFD, 0) == 0;
    return dup2(fd, INHERITED_FD) == INHERITED_FD;
}

static struct timespec next_beat(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += BEAT_MS * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    return at;
}

static void *beat(void *arg)
{
    struct pst_heart *heart = arg;
    (void)pthread_mutex_lock(&heart->lock);
    while (!heart->stop) {
        atomic_fetch_add_explicit(&heart->counts[heart->index], 1, memory_order_relaxed);
        const struct timespec until = next_beat();
        while (!heart->stop && pthread_cond_timedwait(&heart->stopped, &heart->lock, &until) == 0)
            ; /* woken without a reason */
    }
    (void)pthread_mutex_unlock(&heart->lock);
    return NULL;
}

/* The process need not wait for the next beat when it ends. */
static void prepare(struct pst_heart *heart)
{
    pthread_condattr_t clock;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&heart->stopped, &clock);
    (void)pthread_condattr_destroy(&clock);
    (void)pthread_mutex_init(&heart->lock, NULL);
    heart->stop = false;
}

static void forget(struct pst_heart *heart)
{
    (void)pthread_cond_destroy(&heart->stopped);
    (void)pthread_mutex_destroy(&heart->lock);
    (void)munmap(heart->counts, PST_PAGE);
}

pst_rc pst_heart_start(struct pst_heart *heart, const char *index)
{
    char *end;
    long at = strtol(index, &end, 10);
    struct stat st;
    if (*end || at < 0 || at >= PST_PULSE_MAX || fstat(INHERITED_FD, &st) != 0 || st.st_size != PST_PAGE)
        return pst_fail(
            PST_E_ARG,
            "--pulse %s: this process did not inherit the shared page of heartbeats from `penstock run`",
            index);
    void *page = mmap(NULL, PST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, INHERITED_FD, 0);
    (void)close(INHERITED_FD); /* programs that this process starts must not inherit it */
    if (page == MAP_FAILED)
        return pst_fail_errno("cannot map the shared page of heartbeats");
    heart->counts = page;
    heart->index = (int)at;
    prepare(heart);
    const int error = pthread_create(&heart->thread, NULL, beat, heart);
    if (error == 0)
        return PST_OK;
    forget(heart);
    errno = error;
    return pst_fail_errno(
        "cannot start a thread for the heartbeat; the process limit may be reached (ulimit -u)");
}

void pst_heart_stop(struct pst_heart *heart)
{
    (void)pthread_mutex_lock(&heart->lock);
    heart->stop = true;
    (void)pthread_cond_signal(&heart->stopped);
    (void)pthread_mutex_unlock(&heart->lock);
    (void)pthread_join(heart->thread, NULL);
    forget(heart);
}
