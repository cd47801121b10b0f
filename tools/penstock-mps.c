/* penstock-mps: keeps a daemon of CUDA's Multi-Process Service for one run, so that kernels of the run's
 * processes run at the same time on one GPU. It ends when its standard input is closed. So the daemon and its
 * servers end even if the process that started this one is killed. usage: penstock-mps PROGRAM PIPES LOGS
 * (started by `penstock run`; PROGRAM: nvidia-cuda-mps-control) Prints "ready" when the daemon answers. If it
 * never does, prints the reason on standard error and exits with 1. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/ipc/proc.h"
#include "common/util/file.h"

#define LOOK_MS 10
#define START_MS 5000 /* until its pipe is there; usually a tenth of a second */
#define QUIT_MS 700   /* then it is killed, and its servers with it */

static void nap_ms(int ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Starts PROGRAM with one argument, or with a text on its standard input. */
static pid_t start(const char *program, const char *argument, const char *text)
{
    int in[2];
    if (pipe2(in, O_CLOEXEC) != 0)
        return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        char *const argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)argument, NULL};
        const int usual[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
        for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
            (void)signal(usual[i], SIG_DFL);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(in[0], 0) < 0 || dup2(2, 1) < 0)
            _exit(126);
        (void)setpgid(0, 0); /* a terminal's ^C must not reach it */
        (void)execv(program, argv);
        (void)fprintf(stderr, "penstock-mps: cannot run %s: %s\n", program, strerror(errno));
        _exit(127);
    }
    (void)close(in[0]);
    if (pid > 0 && text != NULL && write(in[1], text, strlen(text)) < 0)
        (void)fprintf(stderr, "penstock-mps: %s does not read its input\n", program);
    (void)close(in[1]);
    return pid;
}

static bool ended(pid_t pid, int *status)
{
    return waitpid(pid, status, WNOHANG) != 0;
}

/* Waits for the daemon's pipe. */
static bool answers(pid_t daemon, const char *pipes)
{
    char path[PST_PATH_MAX];
    struct stat st;
    int status = 0;
    (void)snprintf(path, sizeof path, "%s/control", pipes);
    for (int ms = 0; ms < START_MS; ms += LOOK_MS) {
        if (ended(daemon, &status)) {
            (void)fprintf(stderr, "penstock-mps: the MPS daemon exited at once, with status %d\n",
                          WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
            return false;
        }
        if (stat(path, &st) == 0)
            return true;
        nap_ms(LOOK_MS);
    }
    (void)fprintf(stderr, "penstock-mps: the MPS daemon did not create %s within %d s\n", path,
                  START_MS / 1000);
    return false;
}

/* Returns when standard input or the daemon has ended. */
static int keep(pid_t daemon)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char byte;
    for (int status = 0;;) {
        if (poll(&in, 1, 200) > 0 && read(0, &byte, 1) <= 0)
            return 0;
        if (ended(daemon, &status)) {
            (void)fprintf(stderr, "penstock-mps: the MPS daemon died\n");
            return 1;
        }
    }
}

static void quit(const char *program, pid_t daemon)
{
    int status;
    const pid_t asked = start(program, NULL, "quit\n");
    for (int ms = 0; asked > 0 && ms < QUIT_MS && !ended(daemon, &status); ms += LOOK_MS)
        nap_ms(LOOK_MS);
}

static void remove_pipes(const char *pipes)
{
    DIR *dir = opendir(pipes);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        (void)unlinkat(dirfd(dir), e->d_name, 0);
    if (dir != NULL)
        (void)closedir(dir);
    (void)rmdir(pipes);
}

int main(int argc, char **argv)
{
    pst_file_open_std();
    if (argc != 4 || argv[1][0] != '/') {
        (void)fprintf(stderr, "usage: penstock-mps PROGRAM PIPES LOGS\nRuns an MPS daemon until standard "
                              "input is closed. `penstock run` starts it.\n");
        return 2;
    }
    const int others[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE}; /* the supervisor's matter */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        (void)signal(others[i], SIG_IGN);
    pst_proc_adopt();
    remove_pipes(argv[2]); /* an earlier run and its keeper may have been killed together */
    if (mkdir(argv[2], 0700) != 0 || setenv("CUDA_MPS_PIPE_DIRECTORY", argv[2], 1) != 0 ||
        setenv("CUDA_MPS_LOG_DIRECTORY", argv[3], 1) != 0) {
        (void)fprintf(stderr, "penstock-mps: cannot create %s: %s\n", argv[2], strerror(errno));
        return 1;
    }
    int status = 1;
    const pid_t daemon = start(argv[1], "-f", NULL);
    if (daemon > 0 && answers(daemon, argv[2]) && printf("ready\n") > 0 && fflush(stdout) == 0)
        status = keep(daemon);
    if (daemon > 0 && status == 0)
        quit(argv[1], daemon);
    pst_proc_end_strays(); /* the daemon's servers, and the daemon if it did not quit */
    remove_pipes(argv[2]);
    return status;
}
