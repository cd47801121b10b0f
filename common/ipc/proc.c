/* proc.c: child processes. */
#include "common/ipc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/ipc/pulse.h"

#define TAIL_BYTES 4096
#define TAIL_LINES 16 /* a traceback of four calls, and what was raised */
#define THREADS_OF_ZEROMQ 2
/* The source file in which ZeroMQ aborts if it gets no thread. pst_proc_check_threads finds most of these
 * cases before, but another process may take the last thread in between. */
#define ZEROMQ_HAS_NO_THREAD "src/thread.cpp"
#define STRAYS_MS 500 /* a killed process ends at once, unless it waits for a disk */

pst_rc pst_proc_start(struct pst_proc *proc, char *const argv[], int pulse_fd)
{
    int log = open(proc->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0)
        return pst_fail_errno("cannot open the log %s", proc->log);
    pid_t parent = getpid();
    proc->pid = fork();
    if (proc->pid == 0) {
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        int null = open("/dev/null", O_RDONLY);
        if (null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 ||
            !pst_pulse_inherit(pulse_fd))
            _exit(126);
        (void)signal(SIGPIPE, SIG_DFL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(126);
        execv(argv[0], argv);
        fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    (void)close(log);
    proc->known = proc->pid;
    if (proc->pid > 0)
        return PST_OK;
    proc->pid = 0;
    return pst_fail_errno("cannot start a process for %s; the process limit may be reached (ulimit -u)",
                          proc->name);
}

bool pst_proc_was_killed(const struct pst_proc *proc)
{
    siginfo_t info = {0};
    return proc->pid > 0 && waitid(P_PID, (id_t)proc->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == proc->pid && (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED);
}

bool pst_proc_reap(struct pst_proc *proc)
{
    if (proc->pid == 0 || wait4(proc->pid, &proc->status, WNOHANG, &proc->used) != proc->pid)
        return false;
    proc->pid = 0;
    proc->exited = true;
    return true;
}

void pst_proc_kill(struct pst_proc *proc)
{
    if (proc->pid == 0)
        return;
    (void)kill(proc->pid, SIGKILL);
    while (wait4(proc->pid, &proc->status, 0, &proc->used) < 0 && errno == EINTR)
        ;
    proc->pid = 0;
    proc->exited = true;
}

/* Drops the lines of text that have `but` in them. */
static void drop_lines(char *text, const char *but)
{
    for (char *line = text, *end; *line;) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        const char *found = but[0] ? strstr(line, but) : NULL;
        if (found && found < end)
            memmove(line, end, strlen(end) + 1);
        else
            line = end;
    }
}

void pst_proc_tail(const struct pst_proc *proc, const char *but, char *out, size_t cap)
{
    char text[TAIL_BYTES + 1];
    out[0] = '\0';
    FILE *f = fopen(proc->log, "re");
    if (!f)
        return;
    if (fseek(f, -TAIL_BYTES, SEEK_END) != 0)
        rewind(f);
    size_t n = fread(text, 1, TAIL_BYTES, f);
    (void)fclose(f);
    for (size_t i = 0; i < n; i++)
        text[i] = text[i] ? text[i] : '?';
    text[n] = '\0';
    drop_lines(text, but);
    n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    const char *at = text + n;
    for (int lines = 0; at > text; at--)
        if (at[-1] == '\n' && ++lines == TAIL_LINES)
            break;
    (void)snprintf(out, cap, "%s", at);
}

void pst_proc_describe(const struct pst_proc *proc, char out[128])
{
    char tail[TAIL_BYTES + 1] = "";
    if (WIFSIGNALED(proc->status) && WTERMSIG(proc->status) == SIGABRT)
        pst_proc_tail(proc, "", tail, sizeof tail);
    if (strstr(tail, ZEROMQ_HAS_NO_THREAD) != NULL)
        (void)snprintf(out, 128, "ZeroMQ could not start a thread: raise the limit (ulimit -u)");
    else if (WIFSIGNALED(proc->status))
        (void)snprintf(out, 128, "died of signal %d (%s)", WTERMSIG(proc->status),
                       strsignal(WTERMSIG(proc->status)));
    else
        (void)snprintf(out, 128, "ended with status %d", WEXITSTATUS(proc->status));
}

char pst_proc_state(pid_t pid, pid_t *parent)
{
    char path[32], text[512], state = 0;
    int ppid = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        (void)fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* the program's name may contain spaces and brackets */
    if (!after || sscanf(after + 1, " %c %d", &state, &ppid) != 2)
        return 0;
    if (parent)
        *parent = ppid;
    return state;
}

pid_t pst_proc_tracer(pid_t pid)
{
    static const char key[] = "TracerPid:";
    char path[32], line[256];
    int tracer = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            tracer = (int)strtol(line + strlen(key), NULL, 10);
    if (f)
        (void)fclose(f);
    return tracer;
}

/* ---- threads ------------------------------------------------------------------------------------ */

static void *stay_for_a_moment(void *lock)
{
    (void)pthread_mutex_lock(lock);
    (void)pthread_mutex_unlock(lock);
    return NULL;
}

pst_rc pst_proc_check_threads(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held until all have started */
    pthread_t threads[THREADS_OF_ZEROMQ];
    int n = 0, error = 0;
    (void)pthread_mutex_lock(&lock);
    while (n < THREADS_OF_ZEROMQ &&
           (error = pthread_create(&threads[n], NULL, stay_for_a_moment, &lock)) == 0)
        n++;
    (void)pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    return error == 0 ? PST_OK
                      : pst_fail(PST_E_LIMIT, "cannot start a thread: %s: raise the limit (ulimit -u)",
                                 strerror(error));
}

/* ---- strays ------------------------------------------------------------------------------------- */

void pst_proc_adopt(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Kills every child, and returns how many there were. */
static int kill_children(void)
{
    char path[64];
    int n = 0, pid;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%d", &pid) == 1) {
        (void)kill(pid, SIGKILL);
        n++;
    }
    if (f)
        (void)fclose(f);
    return n;
}

void pst_proc_end_strays(void)
{
    struct timespec nap = {.tv_nsec = 1000000};
    for (int ms = 0; ms < STRAYS_MS && kill_children() > 0; ms++) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        (void)nanosleep(&nap, NULL);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}
