#include "tools/penstock/run/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/store/checkpoint.h"
#include "common/util/tempname.h"
#include "common/error.h"

#define LOCK_NAME "lock" /* held with flock by the supervisor; text: its pid, the run's id */

/* ---- the lock ------------------------------------------------------------------------------------ */

static pst_rc lock_dir(const char *dir, const char *id, int *lock)
{
    char path[4200], text[64];
    (void)snprintf(path, sizeof path, "%s/" LOCK_NAME, dir);
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*lock < 0)
        return pst_fail_errno("cannot open %s", path);
    if (flock(*lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? pst_fail(PST_E_STATE, "%s belongs to a run that is still going: give another --run-dir",
                              dir)
                   : pst_fail_errno("cannot lock %s: give a --run-dir on a file system that has flock", path);
    int n = snprintf(text, sizeof text, "%d %s\n", (int)getpid(), id);
    if (ftruncate(*lock, 0) != 0 || pwrite(*lock, text, (size_t)n, 0) != n)
        return pst_fail_errno("cannot write %s", path);
    return PST_OK;
}

pid_t run_dir_holder(const char *dir)
{
    char path[4200], text[32] = "";
    (void)snprintf(path, sizeof path, "%.4096s/" LOCK_NAME, dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    ssize_t n = held ? read(fd, text, sizeof text - 1) : 0;
    (void)close(fd);
    return n > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* ---- what a killed process leaves half written --------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static bool begins_with(const char *name, const char *begin)
{
    return strncmp(name, begin, strlen(begin)) == 0;
}

/* Every writer of a run gives the file that it writes aside such a name. */
static bool is_aside(const char *sub, const char *name)
{
    if (strcmp(sub, "checkpoints") == 0)
        return ends_with(name, PST_CHECKPOINT_SUFFIX ".part");
    if (strcmp(sub, "plan") == 0) /* ".NAME.PID" */
        return name[0] == '.' && name[1] != '.' && name[1] != '\0';
    return (begins_with(name, "report.json.") && ends_with(name, ".tmp")) ||
           begins_with(name, "activations.");
}

int run_dir_sweep(const char *dir, bool dry)
{
    static const char *const subs[] = {".", "checkpoints", "plan"};
    int n = 0;
    for (size_t i = 0; i < sizeof subs / sizeof *subs; i++) {
        char path[4300];
        (void)snprintf(path, sizeof path, "%.4096s/%s", dir, subs[i]);
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));)
            if (is_aside(subs[i], e->d_name))
                n += dry || unlinkat(dirfd(d), e->d_name, 0) == 0;
        if (d)
            (void)closedir(d);
    }
    return n;
}

bool run_dir_is_cut_off(const char *dir)
{
    char path[4300];
    uint64_t number;
    (void)snprintf(path, sizeof path, "%.4096s/" LOCK_NAME, dir);
    if (access(path, F_OK) != 0 || run_dir_holder(dir) != 0)
        return false;
    (void)snprintf(path, sizeof path, "%.4096s/report.json", dir);
    if (access(path, F_OK) == 0)
        return false;
    (void)snprintf(path, sizeof path, "%.4096s/checkpoints", dir);
    return pst_checkpoint_list(path, &number, 1) == 0;
}

/* ---- a run begins -------------------------------------------------------------------------------- */

/* runs/NAME-TIME, with the lock in it from its first moment on: until then it has a name aside, which
 * `penstock gc` knows. Nothing replaces what another run has: its directory is not empty. */
static pst_rc make_named(char dir[PST_RUN_DIR_MAX], const char *name, const char *id, int *lock)
{
    char stamp[32], aside[PST_RUN_DIR_MAX + PST_TEMPNAME_MORE];
    struct tm tm;
    time_t now = time(NULL);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    if (mkdir("runs", 0777) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot make the directory runs");
    (void)snprintf(dir, PST_RUN_DIR_MAX, "runs/%s-%s", name, stamp);
    pst_rc rc = pst_tempname(aside, sizeof aside, dir, PST_TEMPNAME_PARTIAL);
    if (rc == PST_OK && mkdir(aside, 0700) != 0 && errno != EEXIST)
        rc = pst_fail_errno("cannot make the run directory %s", aside);
    if (rc == PST_OK)
        rc = lock_dir(aside, id, lock);
    if (rc != PST_OK)
        return rc;
    int k = 0, made;
    do
        (void)snprintf(dir, PST_RUN_DIR_MAX, "runs/%s-%s%s%.0d", name, stamp, k ? "-" : "", k);
    while ((made = rename(aside, dir)) != 0 && (errno == EEXIST || errno == ENOTEMPTY) && ++k < 1000);
    return made == 0 ? PST_OK : pst_fail_errno("cannot make the run directory %s", dir);
}

static pst_rc make_given(const char *dir, const char *id, int *lock)
{
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot make the run directory %s", dir);
    return lock_dir(dir, id, lock);
}

static pst_rc make_dir(char dir[PST_RUN_DIR_MAX], const char *name, const char *id, int *lock)
{
    const pst_rc rc = dir[0] ? make_given(dir, id, lock) : make_named(dir, name, id, lock);
    char *full = rc == PST_OK ? realpath(dir, NULL) : NULL;
    if (!full)
        return rc != PST_OK ? rc : pst_fail_errno("cannot use the run directory %s", dir);
    bool fits = snprintf(dir, PST_RUN_DIR_MAX, "%s", full) < PST_RUN_DIR_MAX - 256; /* what lies in it */
    free(full);
    return fits ? PST_OK : pst_fail(PST_E_LIMIT, "the path of the run directory is too long: %s", dir);
}

static bool same_dir(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* An earlier run's checkpoints would be taken for this one's, and its report for this one's end. */
static pst_rc clear_earlier(const char *dir, const char *resumes)
{
    char path[4300];
    uint64_t number;
    (void)snprintf(path, sizeof path, "%.4096s/checkpoints", dir);
    if (pst_checkpoint_list(path, &number, 1) > 0 && !(resumes && same_dir(dir, resumes)))
        return pst_fail(PST_E_STATE,
                        "%s has checkpoints of an earlier run: go on from them with --resume %s, or give "
                        "another --run-dir",
                        dir, dir);
    (void)snprintf(path, sizeof path, "%.4096s/report.json", dir);
    if (unlink(path) != 0 && errno != ENOENT)
        return pst_fail_errno("cannot remove the earlier run's %s", path);
    return PST_OK;
}

pst_rc run_dir_open(char dir[PST_RUN_DIR_MAX], const char *name, const char *id, const char *resumes,
                    int *lock)
{
    *lock = -1;
    pst_rc rc = make_dir(dir, name, id, lock);
    if (rc == PST_OK)
        rc = clear_earlier(dir, resumes);
    if (rc != PST_OK)
        return rc;
    (void)run_dir_sweep(dir, false);
    if (resumes && !same_dir(dir, resumes) && run_dir_holder(resumes) == 0)
        (void)run_dir_sweep(resumes, false);
    return PST_OK;
}
