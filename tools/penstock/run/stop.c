/* stop.c: penstock stop. The number in a lock's text means nothing by itself: the run can be in another PID
 * namespace, or its process can be dead and the number another one's. So the process that is sent a signal is
 * the one that holds the lock, and it is known by a pidfd from before it was looked at. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/penstock/cli/commands.h"
#include "tools/penstock/run/run_dir.h"

enum { STOP_TRIES = 1500, NAP_NS = 100000000 }; /* 150 s: a checkpoint of a large model takes its time */

struct target {
    struct stat lock; /* the file */
    pid_t own_pid;    /* what the run calls itself */
    pid_t stranger;   /* another process that holds the lock; 0: none was seen */
};

/* Whether one of the lines of a file of /proc begins with `key` and holds `word`; the line goes to line. */
static bool find_line(const char *path, const char *key, const char *word, char line[512])
{
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f != NULL && !found && fgets(line, 512, f) != NULL)
        found = strncmp(line, key, strlen(key)) == 0 && strstr(line, word) != NULL;
    if (f != NULL)
        (void)fclose(f);
    return found;
}

/* A descriptor of the process is the lock's file, and has its flock. */
static bool holds(pid_t pid, const struct stat *lock)
{
    char path[128], line[512];
    bool found = false;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && !found && (e = readdir(d)) != NULL;) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) != 0 || st.st_dev != lock->st_dev ||
            st.st_ino != lock->st_ino)
            continue;
        (void)snprintf(path, sizeof path, "/proc/%d/fdinfo/%.16s", (int)pid, e->d_name);
        found = find_line(path, "lock:", " FLOCK ", line);
    }
    if (d != NULL)
        (void)closedir(d);
    return found;
}

/* What the process is called in its own PID namespace; 0: unknown. */
static pid_t own_number(pid_t pid)
{
    char path[64], line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (!find_line(path, "NSpid:", "", line))
        return 0;
    const char *last = strrchr(line, '\t');
    return last != NULL ? (pid_t)strtol(last, NULL, 10) : 0;
}

/* The pidfd of the run's supervisor if this is it; else -1. */
static int try_process(pid_t pid, struct target *t)
{
    const int fd = pidfd_open(pid, 0); /* before looking: then a number that is used again does no harm */
    if (fd < 0)
        return -1;
    const bool held = holds(pid, &t->lock);
    if (held && own_number(pid) == t->own_pid)
        return fd;
    if (held)
        t->stranger = pid;
    (void)close(fd);
    return -1;
}

static int find_supervisor(struct target *t)
{
    int fd = try_process(t->own_pid, t);
    DIR *d = fd < 0 ? opendir("/proc") : NULL;
    for (struct dirent *e; d != NULL && fd < 0 && (e = readdir(d)) != NULL;)
        if (strspn(e->d_name, "0123456789") == strlen(e->d_name))
            fd = try_process((pid_t)strtol(e->d_name, NULL, 10), t);
    if (d != NULL)
        (void)closedir(d);
    return fd;
}

static int not_found(const char *run, const struct target *t)
{
    if (t->stranger != 0)
        fprintf(stderr,
                "penstock stop: %s: process %d holds the lock, but it is not the run that wrote the lock "
                "file. Nothing was stopped.\n",
                run, (int)t->stranger);
    else
        fprintf(stderr,
                "penstock stop: %s: a run holds the lock, but its process is not visible here. It belongs to "
                "another user, or runs in another container or on another machine. Run `penstock stop` "
                "there, or send SIGTERM to process %d there.\n",
                run, (int)t->own_pid);
    return 1;
}

static int stop(const char *run, const struct run_lock *lock, int lock_fd)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct target t = {.own_pid = lock->pid};
    if (fstat(lock_fd, &t.lock) != 0) {
        fprintf(stderr, "penstock stop: %s/" RUN_LOCK_NAME ": %s\n", run, strerror(errno));
        return 1;
    }
    const int fd = find_supervisor(&t);
    if (fd < 0)
        return not_found(run, &t);
    const int failed = pidfd_send_signal(fd, SIGTERM, NULL, 0) != 0 && errno != ESRCH ? errno : 0;
    (void)close(fd);
    if (failed != 0) {
        fprintf(stderr, "penstock stop: %s: cannot signal the run: %s\n", run, strerror(failed));
        return 1;
    }
    for (int i = 0; i < STOP_TRIES; i++) {
        if (!run_dir_is_held(run)) {
            printf("%s: stopped\n", run);
            return 0;
        }
        (void)nanosleep(&nap, NULL);
    }
    fprintf(stderr, "penstock stop: %s: the run has not ended in %d s\n", run, STOP_TRIES / 10);
    return 1;
}

int cmd_stop(int argc, char **argv)
{
    static const char usage[] =
        "usage: penstock stop RUN\n"
        "Stops the run whose directory is RUN cleanly: it writes a checkpoint and its report, and ends.\n";
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc != 2 || help) {
        fprintf(help ? stdout : stderr, "%s", usage);
        return help ? 0 : 2;
    }
    struct run_lock lock;
    int lock_fd = -1;
    const int dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool found = dir_fd >= 0 && run_lock_open(dir_fd, &lock, &lock_fd);
    int status = 2;
    if (found && run_dir_is_held(argv[1]))
        status = stop(argv[1], &lock, lock_fd);
    else
        fprintf(stderr, "penstock stop: %s: no run is active in this directory\n", argv[1]);
    if (lock_fd >= 0)
        (void)close(lock_fd);
    if (dir_fd >= 0)
        (void)close(dir_fd);
    return status;
}
