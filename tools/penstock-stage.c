/* penstock-stage: hosts one stage, or several as threads of this process ("group").
 * usage: penstock-stage --control ENDPOINT --pulse INDEX NAME...   (started by `penstock run`) */
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/host/host.h"
#include "common/ipc/pulse.h"
#include "common/util/file.h"
#include "common/util/signals.h"

#define STACK_BYTES (8u << 20)
#define FRAMES_MAX 64
#define FRAMES_OF_SIGNAL 2 /* the handler, and what the kernel put below it */
#define BACKTRACE_S 2      /* a crash inside the dynamic linker may have left its lock taken */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TELLS_CRASHES 0 /* the sanitizer does */
#else
#define TELLS_CRASHES 1
#endif

struct member {
    struct pst_host_process *process;
    const char *control, *name;
    pst_rc rc;
    pthread_t thread;
};

static void *run_member(void *arg)
{
    struct member *m = arg;
    m->rc = pst_host_run(m->process, m->control, m->name);
    return NULL;
}

static int run_all(struct pst_host_process *process, const char *control, char **names, int n)
{
    struct member *members = calloc((size_t)n, sizeof *members);
    pthread_attr_t attr;
    int status = 1, started = 0;
    if (!members || pthread_attr_init(&attr) != 0)
        goto out;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (; started < n; started++) {
        members[started] = (struct member){.process = process, .control = control, .name = names[started]};
        if (pthread_create(&members[started].thread, &attr, run_member, &members[started]) != 0)
            break;
    }
    status = started < n;
    for (int i = 0; i < started; i++) {
        (void)pthread_join(members[i].thread, NULL);
        status |= members[i].rc != PST_OK;
    }
out:
    free(members);
    return status;
}

/* ---- a file that shrinks while it is mapped ------------------------------------------------------ */

/* Finds the file and the byte of it that `address` maps, in a line of /proc/self/maps. It makes only calls
 * that a signal handler may make, and uses only memory of the stack. */
static bool match_line(char *line, uintptr_t address, char **file, uintptr_t *at)
{
    char *end;
    uintptr_t first = strtoul(line, &end, 16), last = strtoul(end + (*end == '-'), &end, 16);
    *file = strchr(line, '/');
    char *offset = strchr(end + (*end != '\0'), ' ');
    if (!*file || !offset || address < first || address >= last)
        return false;
    *at = strtoul(offset, NULL, 16) + (address - first);
    return true;
}

static void put_text(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void tell_place(uintptr_t address)
{
    static char text[1 << 16]; /* static: too large for a signal's stack */
    size_t kept = 0;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; maps >= 0 && (n = read(maps, text + kept, sizeof text - 1 - kept)) > 0;) {
        text[kept + (size_t)n] = '\0';
        char *line = text, *next;
        for (; (next = strchr(line, '\n')); line = next + 1) {
            char *file, digits[24] = "", *d = digits + sizeof digits - 1;
            uintptr_t at;
            *next = '\0';
            if (!match_line(line, address, &file, &at))
                continue;
            do
                *--d = (char)('0' + at % 10);
            while (at /= 10);
            put_text("error: cannot read ");
            put_text(file);
            put_text(" at byte ");
            put_text(d);
            put_text(": the file became shorter while in use, or its disk failed or is full\n");
            return;
        }
        kept = strlen(line);
        memmove(text, line, kept + 1);
    }
}

/* A mapped file could not be read: says which one, then dies of the signal. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    tell_place((uintptr_t)info->si_addr);
    (void)raise(number); /* the default action is in place again: SA_RESETHAND */
}

/* The innermost call comes last, because the supervisor shows the end of the log. */
static void on_crash(int number)
{
    static const char head[] = "penstock-stage: a fatal signal came here (the last call is at the end; "
                               "addr2line -e FILE +OFFSET finds the line):\n";
    void *frames[FRAMES_MAX];
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(BACKTRACE_S);
    put_text(head);
    for (int i = backtrace(frames, FRAMES_MAX) - 1; i >= FRAMES_OF_SIGNAL; i--)
        backtrace_symbols_fd(&frames[i], 1, STDERR_FILENO);
    (void)raise(number); /* the default action is in place again: SA_RESETHAND */
}

static void tell_crashes(void)
{
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGILL, SIGFPE};
    const struct sigaction crash = {.sa_handler = on_crash, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
    void *frame;
    (void)backtrace(&frame, 1); /* loads what it needs, which a handler must not */
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        (void)sigaction(fatal[i], &crash, NULL);
}

/* The supervisor decides when a run ends, and tells the stages. So they end in order even if a terminal or a
 * batch system signals every process of the run. */
static void set_signals(void)
{
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    struct sigaction bus = {.sa_sigaction = on_bus_error,
                            .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER)};
    (void)sigaction(SIGBUS, &bus, NULL);
    if (TELLS_CRASHES)
        tell_crashes();
}

int main(int argc, char **argv)
{
    pst_denormal_off();
    pst_file_open_std();
    if (argc < 6 || strcmp(argv[1], "--control") != 0 || strcmp(argv[3], "--pulse") != 0) {
        fprintf(stderr, "usage: penstock-stage --control ENDPOINT --pulse INDEX NAME...\nRuns stages of a "
                        "pipeline. `penstock run` starts it.\n");
        return 2;
    }
    set_signals();
    struct pst_heart heart;
    struct pst_host_process process;
    if (pst_heart_start(&heart, argv[4]) != PST_OK || pst_host_process_init(&process) != PST_OK) {
        fprintf(stderr, "penstock-stage: %s\n", pst_error_text());
        return 1;
    }
    int status = run_all(&process, argv[2], argv + 5, argc - 5);
    pst_host_process_release(&process);
    pst_heart_stop(&heart);
    return status;
}
