/* subprocess.c: fork, a pipe, and a deadline. */
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
    const char *file, *option;    /* the first words of each error */
    void (*job)(const char *arg); /* NULL: the child runs `file option` */
    const char *arg;
    int deadline_ms;
    int64_t until_ms;
};

#define RETURNED "r" /* what the child writes when job has returned */

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
            return pst_fail(PST_E_TIMEOUT, "%s %s: the program did not answer within %d s", q->file,
                            q->option, q->deadline_ms / 1000);
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
    return pst_fail(PST_E_LIMIT, "%s %s: the program printed more than %zu bytes, which is the limit",
                    q->file, q->option, cap);
}

/* In the child: its own process group, so that what it starts can be ended with it. */
static void run(const struct question *q, int out, pid_t parent)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && in >= 0 &&
                 dup2(in, STDIN_FILENO) == STDIN_FILENO;
    if (ready && q->job) {
        q->job(q->arg);
        _exit(write(out, RETURNED, 1) == 1 ? 0 : 1);
    }
    if (ready && dup2(out, STDOUT_FILENO) == STDOUT_FILENO)
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
        return pst_fail(PST_E_PEER, "%s %s was killed by signal %d (%s)", q->file, q->option,
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        return pst_fail(PST_E_PEER, "%s %s ended with status %d", q->file, q->option, WEXITSTATUS(status));
    return PST_OK;
}

static pst_rc ask(const struct question *q, char *text, size_t cap, size_t *len)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return pst_fail_errno("pipe");
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        run(q, fds[1], parent);
    pst_rc rc = pid < 0
                    ? pst_fail_errno("cannot start a process; the process limit may be reached (ulimit -u)")
                    : PST_OK;
    (void)close(fds[1]);
    if (rc == PST_OK)
        rc = end(q, pid, read_answer(q, fds[0], text, cap, len));
    (void)close(fds[0]);
    return rc;
}

pst_rc pst_subprocess_read(const char *file, const char *option, int deadline_ms, char *text, size_t cap,
                           size_t *len)
{
    const struct question q = {
        .file = file, .option = option, .deadline_ms = deadline_ms, .until_ms = pst_clock_ms() + deadline_ms};
    return ask(&q, text, cap, len);
}

pst_rc pst_subprocess_try(const char *what, void (*job)(const char *arg), const char *arg, int deadline_ms)
{
    const struct question q = {.file = what,
                               .option = arg,
                               .job = job,
                               .arg = arg,
                               .deadline_ms = deadline_ms,
                               .until_ms = pst_clock_ms() + deadline_ms};
    char text[2];
    size_t len = 0;
    pst_rc rc = ask(&q, text, sizeof text, &len);
    if (rc == PST_OK && len == 0)
        rc = pst_fail(PST_E_PEER, "%s %s: the process exited with status 0, but returned no answer", what,
                      arg);
    return rc;
}
