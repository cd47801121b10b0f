/* mps.c: starts and ends the keeper of the MPS daemon. */
#include "common/run/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/util/install.h"
#include "common/error.h"

#define PIPES "CUDA_MPS_PIPE_DIRECTORY"
#define SHARE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define PIPES_MAX 90    /* characters: the daemon makes sockets there, whose paths may have 107 */
#define READY_MS 6000   /* one second longer than the keeper waits for the daemon */
#define STOPPED_MS 2000 /* the keeper kills a daemon that does not end */

bool pst_mps_program(char *path, size_t bytes)
{
    const char *at = getenv("PATH");
    while (at && *at) {
        const size_t length = strcspn(at, ":");
        if (at[0] == '/' &&
            (size_t)snprintf(path, bytes, "%.*s/nvidia-cuda-mps-control", (int)length, at) < bytes &&
            access(path, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* Runs KEEPER PROGRAM PIPES LOGS. Its standard input and output are in and out; its errors go to
 * LOGS/mps.log. */
static pid_t start_keeper(char *const argv[], int in, int out)
{
    char log[PST_PATH_MAX];
    (void)snprintf(log, sizeof log, "%s/mps.log", argv[3]);
    const int errors = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const pid_t pid = errors < 0 ? -1 : fork();
    if (pid == 0) {
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(errors, 2) < 0)
            _exit(126);
        (void)execv(argv[0], argv);
        _exit(127);
    }
    if (errors >= 0)
        (void)close(errors);
    return pid;
}

static bool hear_ready(int from)
{
    char text[8] = "";
    struct pollfd p = {.fd = from, .events = POLLIN};
    int got;
    while ((got = poll(&p, 1, READY_MS)) < 0 && errno == EINTR)
        ;
    return got > 0 && read(from, text, sizeof text - 1) > 0 && strcmp(text, "ready\n") == 0;
}

/* Fills pipes and logs with absolute paths. False: mps->why says why not. */
static bool name_places(struct pst_mps *mps, const char *run_dir, char *pipes, char *logs, size_t bytes)
{
    char dir[PST_PATH_MAX];
    if (!realpath(run_dir, dir))
        (void)snprintf(mps->why, sizeof mps->why, "%.160s: %s", run_dir, strerror(errno));
    else if ((size_t)snprintf(pipes, bytes, "%s/mps", dir) > PIPES_MAX)
        (void)snprintf(mps->why, sizeof mps->why,
                       "the path of the run directory is too long for the sockets of MPS: %zu characters, "
                       "expected at most %d",
                       strlen(dir), PIPES_MAX - (int)strlen("/mps"));
    else if ((size_t)snprintf(logs, bytes, "%s/logs", dir) < bytes)
        return true;
    return false;
}

static bool start(struct pst_mps *mps, char *const argv[])
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    bool ready = false;
    if (pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0)
        mps->keeper = start_keeper(argv, in[0], out[1]);
    if (in[0] >= 0)
        (void)close(in[0]);
    if (out[1] >= 0)
        (void)close(out[1]);
    mps->lifeline = in[1];
    if (mps->keeper > 0)
        ready = hear_ready(out[0]);
    else
        mps->keeper = 0;
    if (out[0] >= 0)
        (void)close(out[0]);
    return ready;
}

void pst_mps_start(struct pst_mps *mps, const char *run_dir)
{
    char keeper[PST_PATH_MAX], program[PST_PATH_MAX], pipes[PST_PATH_MAX], logs[PST_PATH_MAX];
    *mps = (struct pst_mps){.lifeline = -1};
    if (!pst_mps_program(program, sizeof program)) {
        (void)snprintf(mps->why, sizeof mps->why, "nvidia-cuda-mps-control is not in PATH");
        return;
    }
    if (!name_places(mps, run_dir, pipes, logs, sizeof pipes))
        return;
    if (pst_install_program_path("penstock-mps", keeper) != PST_OK) {
        (void)snprintf(mps->why, sizeof mps->why, "%.200s", pst_error_text());
        return;
    }
    if (start(mps, (char *const[]){keeper, program, pipes, logs, NULL})) {
        (void)setenv(PIPES, pipes, 1);
        return;
    }
    pst_mps_stop(mps);
    (void)snprintf(mps->why, sizeof mps->why, "cannot start %.120s: see %.100s/mps.log", program, logs);
}

void pst_mps_share(const struct pst_mps *mps, int percent)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", percent);
    if (mps->keeper > 0 && percent < 100)
        (void)setenv(SHARE, text, 1);
    else
        (void)unsetenv(SHARE);
}

void pst_mps_stop(struct pst_mps *mps)
{
    if (mps->keeper <= 0)
        return;
    (void)close(mps->lifeline);
    (void)unsetenv(PIPES);
    (void)unsetenv(SHARE);
    for (int ms = 0; ms < STOPPED_MS; ms++) {
        if (waitpid(mps->keeper, NULL, WNOHANG) != 0) {
            mps->keeper = 0;
            return;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    (void)kill(mps->keeper, SIGKILL);
    (void)waitpid(mps->keeper, NULL, 0);
    mps->keeper = 0;
}
