/* subprocess.c: fork, exec, a pipe, and a deadline. */
#include "common/util/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/clock.h"

struct question {
    const char *file, *option;
    int deadline_ms;
    int64_t until_ms;
};

/* Until fd is readable. */
static pst_rc wait_for(const struct question *q, int fd)
{
    for (;;) {
        int64_t left = q->until_ms - pst_clock_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (n > 0)
            return PST_OK;
        if (n == 0)
            return pst_fail(PST_E_TIMEOUT, "%s %s: no answer in %d s", q->file, q->option,
                            q->deadline_ms / 1000);
        if (errno != EINTR)
            return pst_fail_errno("%s %s", q->file, q->option);
    }
}

static pst_rc read_answer(const struct question *q, int fd, char *text, size_t cap, size_t *len)
{
    for (*len = 0; *len < cap;) {
        pst_rc rc = wait_for(q, fd);
        if (rc != PST_OK)
            return rc;
        ssize_t n = read(fd, text + *len, cap - *len);
        if (n == 0)
            return PST_OK;
        if (n < 0 && errno != EINTR)
            return pst_fail_errno("%s %s", q->file, q->option);
        *len += n > 0 ? (size_t)n : 0;
    }
    return pst_fail(PST_E_LIMIT, "%s %s: more than %zu bytes", q->file, q->option, cap);
}

/* In the child: a process group of its own, so that what it starts can be ended with it. */
static void run(const struct question *q, int out, pid_t parent)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && in >= 0 &&
        dup2(in, STDIN_FILENO) == STDIN_FILENO && dup2(out, STDOUT_FILENO) == STDOUT_FILENO)
        execl(q->file, q->file, q->option, (char *)NULL);
    fprintf(stderr, "cannot run %s: %s\n", q->file, strerror(errno));
    _exit(127);
}

/* Its end, by the deadline; then whatever is left of its process group is killed. */
static pst_rc end(const struct question *q, pid_t pid, pst_rc rc)
{
    int status = 0, pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0 && rc == PST_OK)
        rc = wait_for(q, pidfd);
    if (pidfd >= 0)
        (void)close(pidfd);
    if (rc != PST_OK || pidfd < 0)
        (void)kill(pid, SIGKILL);
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc != PST_OK)
        return rc;
    if (WIFSIGNALED(status))
        return pst_fail(PST_E_PEER, "%s %s died of signal %d (%s)", q->file, q->option, WTERMSIG(status),
                        strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        return pst_fail(PST_E_PEER, "%s %s ended with status %d", q->file, q->option, WEXITSTATUS(status));
    return PST_OK;
}

pst_rc pst_subprocess_read(const char *file, const char *option, int deadline_ms, char *text, size_t cap,
                           size_t *len)
{
    int fds[2];
    const struct question q = {file, option, deadline_ms, pst_clock_ms() + deadline_ms};
    if (pipe2(fds, O_CLOEXEC) != 0)
        return pst_fail_errno("pipe");
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        run(&q, fds[1], parent);
    pst_rc rc = pid < 0 ? pst_fail_errno("fork") : PST_OK;
    (void)close(fds[1]);
    if (rc == PST_OK)
        rc = end(&q, pid, read_answer(&q, fds[0], text, cap, len));
    (void)close(fds[0]);
    return rc;
}
