/* probe_pair.c: starts a maker and an opener. The maker answers once. The opener gets the maker's message and
 * answers once. Each ends when its end of a pair of sockets is closed. */
#include "tools/penstock/machine/probe_pair.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"

#define ANSWER_MS 60000 /* on a machine with many GPUs, CUDA needs seconds to start */

struct job {
    bool (*make)(void *message, void *shared); /* for the maker; otherwise NULL */
    void (*open_all)(void *message);
    void *message, *shared;
    size_t bytes;
};

struct helper {
    pid_t pid; /* 0: not running */
    int fd;    /* our end of a pair of sockets */
};

static bool get(int fd, void *to, size_t bytes)
{
    return recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static bool put(int fd, const void *from, size_t bytes)
{
    return send(fd, from, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* Runs in the helper until the other end of its socket is closed. An answer says whether to go on, and has
 * the message. */
static void help(int fd, const struct job *job)
{
    char end;
    bool more = false;
    if (!job->make && !get(fd, job->message, job->bytes))
        return;
    if (job->make)
        more = job->make(job->message, job->shared);
    else if (job->open_all)
        job->open_all(job->message);
    if (put(fd, &more, sizeof more) && put(fd, job->message, job->bytes))
        (void)!read(fd, &end, 1);
}

static pst_rc start(struct helper *h, const struct job *job)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return pst_fail_errno("cannot create a pair of sockets");
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(pair[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        help(pair[1], job);
        _exit(0);
    }
    (void)close(pair[1]);
    *h = (struct helper){pid > 0 ? pid : 0, pair[0]};
    return pid > 0 ? PST_OK : pst_fail_errno("cannot start a process");
}

static pst_rc answer_of(const struct helper *h, const char *who, const struct job *job, bool *more)
{
    struct pollfd ready = {h->fd, POLLIN, 0};
    int got;
    do
        got = poll(&ready, 1, ANSWER_MS);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return pst_fail(PST_E_TIMEOUT, "the process that %s did not answer for %d s; the driver may hang",
                        who, ANSWER_MS / 1000);
    if (!get(h->fd, more, sizeof *more) || !get(h->fd, job->message, job->bytes))
        return pst_fail(PST_E_PEER, "the process that %s died; dmesg may show why", who);
    return PST_OK;
}

static void end(struct helper *h)
{
    if (h->pid <= 0)
        return;
    (void)kill(h->pid, SIGKILL);
    (void)waitpid(h->pid, NULL, 0);
    (void)close(h->fd);
    h->pid = 0;
}

pst_rc pst_probe_pair(bool (*make)(void *message, void *shared), void (*open_all)(void *message),
                      void *message, size_t bytes, void *shared)
{
    struct helper maker = {0}, opener = {0};
    const struct job makes = {make, NULL, message, shared, bytes},
                     opens = {NULL, open_all, message, NULL, bytes};
    bool more = false;
    pst_rc rc = start(&maker, &makes);
    if (rc == PST_OK)
        rc = start(&opener, &opens);
    if (rc == PST_OK)
        rc = answer_of(&maker, "creates the shared objects", &makes, &more);
    if (rc == PST_OK && more)
        rc = put(opener.fd, message, bytes)
                 ? answer_of(&opener, "opens the shared objects", &opens, &more)
                 : pst_fail_errno("cannot reach the process that opens the shared objects");
    end(&opener);
    end(&maker);
    return rc;
}
