/* run_dir.c: a run takes its directory. run_remove.c removes one. */
#include "tools/penstock/run/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/run/report.h"
#include "common/store/checkpoint.h"
#include "common/util/file.h"
#include "common/util/tempname.h"

#define LOCK_BYTES_MAX 96         /* of a lock's text */
#define EPOCH_BYTES_MAX (2 << 20) /* of an epoch's row: more than a stage can send */

enum { TRIES = 20, NAP_NS = 10000000 }; /* `penstock gc` holds a lock for a moment */

/* ---- the lock -------------------------------------------------------------------------------- */

/* "PID ID" or "PID ID made INODE", and nothing else. */
static bool parse_lock(const char *text, struct run_lock *lock)
{
    long pid;
    int end = 0, more = 0;
    *lock = (struct run_lock){0};
    if (sscanf(text, "%9ld %16[0-9a-f]%n", &pid, lock->id, &end) != 2 || pid <= 0 ||
        strlen(lock->id) != RUN_LOCK_ID_BYTES - 1)
        return false;
    lock->pid = (pid_t)pid;
    if (strncmp(text + end, " made ", 6) == 0 &&
        sscanf(text + end, " made %" SCNu64 "%n", &lock->made, &more) == 1)
        end += more;
    return strcmp(text + end, "\n") == 0;
}

static bool read_lock(int fd, struct run_lock *lock, bool *empty)
{
    char text[LOCK_BYTES_MAX + 1];
    struct stat st;
    const ssize_t n = pread(fd, text, LOCK_BYTES_MAX, 0);
    *empty = n == 0;
    if (n <= 0 || fstat(fd, &st) != 0 || st.st_size != n || memchr(text, '\0', (size_t)n) != NULL)
        return false;
    text[n] = '\0';
    return parse_lock(text, lock);
}

/* In one write of one page, so that a kill leaves the old text or the new one. */
static pst_rc write_lock(int fd, const struct run_lock *lock, const char *dir)
{
    char text[LOCK_BYTES_MAX + 1];
    int n = snprintf(text, sizeof text, "%d %s", (int)lock->pid, lock->id);
    if (lock->made != 0)
        n += snprintf(text + n, sizeof text - (size_t)n, " made %" PRIu64, lock->made);
    n += snprintf(text + n, sizeof text - (size_t)n, "\n");
    if (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) != 0)
        return pst_fail_errno("cannot write %s/" RUN_LOCK_NAME, dir);
    return PST_OK;
}

bool run_lock_open(int dir_fd, struct run_lock *lock, int *fd)
{
    struct stat st;
    bool empty;
    *fd = openat(dir_fd, RUN_LOCK_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd >= 0 && fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) && read_lock(*fd, lock, &empty))
        return true;
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
    return false;
}

bool run_dir_is_held(const char *dir)
{
    struct run_lock lock;
    int fd;
    const int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool found = dir_fd >= 0 && run_lock_open(dir_fd, &lock, &fd);
    const bool held = found && flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (found)
        (void)close(fd);
    if (dir_fd >= 0)
        (void)close(dir_fd);
    return held;
}

/* ---- a directory that was there before ------------------------------------------------------- */

static bool same_dir(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A directory that no run has used must have nothing that a run would replace. */
static pst_rc check_unused(const char *dir)
{
    static const char *const names[] = {
        "report.json", "live.json", RUN_PIPELINE_NAME, PST_REPORT_EPOCHS, "stop.json", "buckets.safetensors",
        "logs",        "plan",      "checkpoints",     "arrays",          "trace",     "mps"};
    char path[PST_PATH_MAX + 32];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/dataset.json", dir);
    if (lstat(path, &st) == 0)
        return pst_fail(PST_E_STATE, "%s is a dataset: choose another --run-dir", dir);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (lstat(path, &st) == 0)
            return pst_fail(PST_E_STATE,
                            "%s was not made by a run, but contains '%s', which a run would replace: move "
                            "that away, or choose another --run-dir",
                            dir, names[i]);
    }
    return PST_OK;
}

/* A run could not tell an earlier run's checkpoints from its own. */
static pst_rc check_checkpoints(const char *dir, const char *resumes)
{
    char path[PST_PATH_MAX + 32];
    uint64_t number;
    (void)snprintf(path, sizeof path, "%s/checkpoints", dir);
    if (pst_checkpoint_list(path, &number, 1) == 0 || (resumes && same_dir(dir, resumes)))
        return PST_OK;
    return pst_fail(
        PST_E_STATE,
        "%s contains checkpoints of an earlier run: resume it with --resume %s, or choose another --run-dir",
        dir, dir);
}

/* An earlier run's report would be taken for this one's. A file that no run wrote is not ours to remove. */
static pst_rc remove_report(const char *dir)
{
    char path[PST_PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/report.json", dir);
    if (access(path, F_OK) != 0)
        return PST_OK;
    json_t *report = json_load_file(path, 0, NULL);
    const bool ours = json_is_object(json_object_get(report, "stages")) &&
                      json_is_string(json_object_get(report, "status"));
    json_decref(report);
    if (!ours)
        return pst_fail(PST_E_STATE, "%s was not written by a run: move it away, or choose another --run-dir",
                        path);
    return unlink(path) == 0 ? PST_OK : pst_fail_errno("cannot remove the earlier run's %s", path);
}

/* Whether a file begins with an epoch's row of a run. */
static bool has_epochs(FILE *f)
{
    char *line = malloc(EPOCH_BYTES_MAX);
    json_t *row = line && fgets(line, EPOCH_BYTES_MAX, f) ? json_loads(line, 0, NULL) : NULL;
    const bool found =
        json_is_integer(json_object_get(row, "epoch")) && json_is_real(json_object_get(row, "ended"));
    json_decref(row);
    free(line);
    return found;
}

/* An earlier run's epochs would be taken for this one's. */
static pst_rc remove_epochs(const char *dir)
{
    char path[PST_PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/" PST_REPORT_EPOCHS, dir);
    FILE *f = fopen(path, "re");
    if (!f)
        return errno == ENOENT ? PST_OK : pst_fail_errno("cannot open the earlier run's %s", path);
    const bool ours = has_epochs(f);
    (void)fclose(f);
    if (!ours)
        return pst_fail(PST_E_STATE, "%s was not written by a run: move it away, or choose another --run-dir",
                        path);
    return unlink(path) == 0 ? PST_OK : pst_fail_errno("cannot remove the earlier run's %s", path);
}

/* ---- taking it ------------------------------------------------------------------------------- */

enum took { TOOK, AGAIN, FAILED };

/* `penstock gc` can remove the directory between our open and our flock: then the lock's name is gone. */
static bool still_named(int fd, const char *path)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

static bool locked_by_fcntl(int fd)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
}

static enum took take_lock(int fd, const char *path, const char *dir, bool last, pst_rc *rc)
{
    struct stat st;
    *rc = PST_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        *rc = pst_fail(PST_E_STATE, "%s is not the lock of a run: choose another --run-dir", path);
        return FAILED;
    }
    const bool free_to_take = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!free_to_take && errno != EWOULDBLOCK) {
        *rc = pst_fail_errno("cannot lock %s: choose a --run-dir on a file system that supports flock", path);
        return FAILED;
    }
    if (free_to_take && !locked_by_fcntl(fd))
        return still_named(fd, path) ? TOOK : AGAIN;
    if (!last)
        return AGAIN;
    *rc = pst_fail(PST_E_STATE, "%s belongs to a run that is still active: choose another --run-dir", dir);
    return FAILED;
}

/* We hold the lock. Its text, or what else is in the directory, says whether a run may use the directory. */
static pst_rc judge(int fd, const char *dir, const char *resumes, bool made, struct run_lock *before)
{
    bool empty;
    if (read_lock(fd, before, &empty))
        return check_checkpoints(dir, resumes);
    *before = (struct run_lock){0};
    if (!empty)
        return pst_fail(PST_E_STATE,
                        "%s/" RUN_LOCK_NAME " is not the lock of a run: choose another --run-dir", dir);
    return made || (resumes && same_dir(dir, resumes)) ? PST_OK : check_unused(dir);
}

static pst_rc sign(int fd, const char *dir, const char *id, bool made, const struct run_lock *before)
{
    struct run_lock now = {.pid = getpid()};
    struct stat st;
    if (stat(dir, &st) != 0)
        return pst_fail_errno("cannot get the status of the run directory %s", dir);
    if (made || before->made == st.st_ino)
        now.made = st.st_ino;
    (void)snprintf(now.id, sizeof now.id, "%s", id);
    return write_lock(fd, &now, dir);
}

static enum took open_lock(const char *path, int *fd, pst_rc *rc)
{
    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (*fd >= 0)
        return TOOK;
    if (errno == ENOENT) /* the directory was removed */
        return AGAIN;
    *rc = errno == ELOOP || errno == EISDIR
              ? pst_fail(PST_E_STATE, "%s is not the lock of a run: choose another --run-dir", path)
              : pst_fail_errno("cannot open %s", path);
    return FAILED;
}

/* made: this run made the directory. last: do not try again. */
static enum took try_dir(const char *dir, const char *id, const char *resumes, bool made, bool last,
                         int *lock, pst_rc *rc)
{
    char path[PST_PATH_MAX + 32];
    struct run_lock before;
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/" RUN_LOCK_NAME, dir);
    *rc = PST_OK;
    if (!made && lstat(path, &st) != 0 && !(resumes && same_dir(dir, resumes)))
        *rc = check_unused(dir); /* before it has a lock of ours */
    if (*rc != PST_OK)
        return FAILED;
    enum took took = open_lock(path, lock, rc);
    if (took == TOOK)
        took = take_lock(*lock, path, dir, last, rc);
    if (took == TOOK) {
        *rc = judge(*lock, dir, resumes, made, &before);
        if (*rc == PST_OK)
            *rc = sign(*lock, dir, id, made, &before);
        took = *rc == PST_OK ? TOOK : FAILED;
    }
    if (took != TOOK && *lock >= 0) {
        (void)close(*lock);
        *lock = -1;
    }
    return took;
}

static pst_rc make_given(const char *dir, const char *id, const char *resumes, int *lock)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    enum took took = AGAIN;
    pst_rc rc = pst_file_make_parents(dir);
    for (int i = 0; i < TRIES && rc == PST_OK && took == AGAIN; i++) {
        if (i > 0)
            (void)nanosleep(&nap, NULL);
        const bool made = mkdir(dir, 0700) == 0;
        if (!made && errno != EEXIST)
            return pst_fail_errno("cannot create the run directory %s", dir);
        took = try_dir(dir, id, resumes, made, i == TRIES - 1, lock, &rc);
    }
    return rc != PST_OK || took == TOOK
               ? rc
               : pst_fail(PST_E_STATE, "another process keeps removing the run directory %s", dir);
}

/* Makes runs/NAME-TIME under a temporary name, with the lock in it, and renames it then. It does not replace
 * what another run has, since that is not an empty directory. */
static pst_rc make_named(char dir[PST_PATH_MAX], const char *name, const char *id, int *lock)
{
    char stamp[32], partial[PST_PATH_MAX + PST_TEMPNAME_MORE];
    struct tm tm;
    time_t now = time(NULL);
    int held;
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    if (mkdir("runs", 0777) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot create the directory runs");
    (void)snprintf(dir, PST_PATH_MAX, "runs/%s-%s", name, stamp);
    pst_rc rc = pst_tempname(partial, sizeof partial, dir, PST_TEMPNAME_PARTIAL);
    if (rc == PST_OK)
        rc = pst_tempname_mkdir(partial, 0700, &held);
    if (rc != PST_OK)
        return rc;
    if (try_dir(partial, id, NULL, true, true, lock, &rc) == AGAIN)
        rc = pst_fail(PST_E_STATE, "another process removed %s: start the run again", partial);
    int k = 0, made = -1;
    while (rc == PST_OK && made != 0 && k < 1000) {
        (void)snprintf(dir, PST_PATH_MAX, "runs/%s-%s%s%.0d", name, stamp, k ? "-" : "", k);
        made = rename(partial, dir);
        if (made != 0 && errno != EEXIST && errno != ENOTEMPTY)
            rc = pst_fail_errno("cannot create the run directory %s", dir);
        k++;
    }
    (void)close(held);
    return rc != PST_OK || made == 0 ? rc
                                     : pst_fail(PST_E_STATE,
                                                "there are too many directories with names like %s: remove "
                                                "old runs (`penstock gc`), or give --run-dir",
                                                dir);
}

static pst_rc make_dir(char dir[PST_PATH_MAX], const char *name, const char *id, const char *resumes,
                       int *lock)
{
    const pst_rc rc = dir[0] ? make_given(dir, id, resumes, lock) : make_named(dir, name, id, lock);
    char *full = rc == PST_OK ? realpath(dir, NULL) : NULL;
    if (!full)
        return rc != PST_OK ? rc : pst_fail_errno("cannot use the run directory %s", dir);
    bool fits = snprintf(dir, PST_PATH_MAX, "%s", full) < PST_PATH_MAX - 256; /* what lies in it */
    free(full);
    return fits ? PST_OK : pst_fail(PST_E_LIMIT, "the path of the run directory is too long: %s", dir);
}

static void sweep(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)run_dir_sweep(fd, false);
    (void)close(fd);
}

pst_rc run_dir_open(char dir[PST_PATH_MAX], const char *name, const char *id, const char *resumes, int *lock)
{
    *lock = -1;
    pst_rc rc = make_dir(dir, name, id, resumes, lock);
    if (rc == PST_OK)
        rc = remove_report(dir);
    if (rc == PST_OK && !(resumes && same_dir(dir, resumes)))
        rc = remove_epochs(dir);
    if (rc != PST_OK)
        return rc;
    sweep(dir);
    if (resumes && !same_dir(dir, resumes))
        sweep(resumes);
    return PST_OK;
}
