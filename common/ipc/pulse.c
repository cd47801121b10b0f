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
    pst_rc rc = pst_region_create(&pulse->fd, "penstock-pulse", PST_PAGE);
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

static void *beat(void *arg)
{
    struct pst_heart *heart = arg;
    while (!atomic_load(&heart->stop)) {
        atomic_fetch_add_explicit(&heart->counts[heart->index], 1, memory_order_relaxed);
        struct timespec nap = {.tv_nsec = BEAT_MS * 1000000L};
        (void)nanosleep(&nap, NULL);
    }
    return NULL;
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
    atomic_store(&heart->stop, false);
    const int error = pthread_create(&heart->thread, NULL, beat, heart);
    if (error == 0)
        return PST_OK;
    (void)munmap(page, PST_PAGE);
    errno = error;
    return pst_fail_errno(
        "cannot start a thread for the heartbeat; the process limit may be reached (ulimit -u)");
}

void pst_heart_stop(struct pst_heart *heart)
{
    atomic_store(&heart->stop, true);
    (void)pthread_join(heart->thread, NULL);
    (void)munmap(heart->counts, PST_PAGE);
}
