/* run_remove.c: what may be removed of a run's directory: files that a run writes, by name, on the same
 * mount, and never through a link. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/tempname.h"
#include "tools/penstock/run/run_dir.h"

/* What a run without a report and without a checkpoint has written, by directory. A stage that writes another
 * file adds it here. The lock is removed last. */
static const struct {
    const char *dir, *names[6]; /* patterns of fnmatch */
} known[] = {
    {".", {"live.json", RUN_PIPELINE_NAME, "epochs.jsonl", "stop.json", "buckets.safetensors"}},
    {"logs", {"*.log"}},
    {"plan", {"plan.json", "hotness.npy", "cache.npy", "lists.npy"}},
    {"plan-*", {"plan.json", "hotness.npy", "cache.npy", "lists.npy"}}, /* of another planner */
    {"arrays", {"embeddings"}},
    {"checkpoints", {NULL}}, /* a run with a checkpoint is kept */
    {"trace", {"*.json"}},
    {"mps", {"control*", "log", "nvidia-cuda-mps-*"}}, /* made by CUDA's daemon */
};
#define KNOWN (sizeof known / sizeof *known)
#define NAMES (sizeof known->names / sizeof *known->names)

struct removal {
    const char *path; /* for messages */
    long mount;
};

long run_dir_mount(int fd)
{
    char path[64], line[128];
    long id = -1;
    (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "re");
    while (f != NULL && id < 0 && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "mnt_id: %ld", &id) != 1)
            id = -1;
    if (f != NULL)
        (void)fclose(f);
    return id;
}

static int open_dir(int at, const char *name)
{
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

int run_dir_sweep(int dir_fd, bool dry)
{
    static const char *const subs[] = {".", "checkpoints", "plan"};
    const long mount = run_dir_mount(dir_fd);
    int n = 0;
    for (size_t i = 0; i < sizeof subs / sizeof *subs; i++) {
        const int fd = open_dir(dir_fd, subs[i]);
        if (fd < 0)
            continue;
        if (mount >= 0 && run_dir_mount(fd) == mount)
            n += pst_tempname_sweep(fd, NULL, dry);
        (void)close(fd);
    }
    return n;
}

/* ---- looking --------------------------------------------------------------------------------- */

static bool is_written_by_runs(size_t k, const char *name, mode_t mode)
{
    if (strcmp(known[k].dir, "mps") == 0 ? S_ISDIR(mode) || S_ISLNK(mode) : !S_ISREG(mode))
        return false;
    if (pst_tempname_pid(name, NULL, PST_TEMPNAME_PARTIAL) > 0)
        return true;
    for (size_t i = 0; i < NAMES && known[k].names[i] != NULL; i++)
        if (fnmatch(known[k].names[i], name, FNM_PERIOD) == 0)
            return true;
    return k == 0 && strcmp(name, RUN_LOCK_NAME) == 0;
}

/* The entry of `known` of a subdirectory; 0: runs do not make it. */
static size_t subdirectory(const char *name)
{
    size_t k = KNOWN - 1;
    while (k > 0 && fnmatch(known[k].dir, name, FNM_PERIOD) != 0)
        k--;
    return k;
}

/* A directory that is being looked through. */
struct place {
    const struct removal *removal;
    size_t k;         /* its entry of `known` */
    const char *name; /* "." or that of the subdirectory */
    int fd;
};

typedef pst_rc entry_fn(const struct place *at, const char *name);

/* Each entry of the directory `name` in dir_fd. */
static pst_rc each_entry(const struct removal *r, int dir_fd, const char *name, entry_fn *fn)
{
    const int fd = open_dir(dir_fd, name);
    if (fd < 0)
        return errno == ENOENT ? PST_OK : pst_fail_errno("cannot open %s/%s", r->path, name);
    DIR *d = run_dir_mount(fd) == r->mount ? fdopendir(fd) : NULL;
    if (d == NULL) {
        (void)close(fd);
        return pst_fail(PST_E_STATE,
                        "another file system is mounted at the subdirectory %s: unmount it first", name);
    }
    const struct place at = {.removal = r, .k = subdirectory(name), .name = name, .fd = dirfd(d)};
    pst_rc rc = PST_OK;
    for (struct dirent *e; rc == PST_OK && (e = readdir(d)) != NULL;)
        if (!is_dot(e->d_name))
            rc = fn(&at, e->d_name);
    (void)closedir(d);
    return rc;
}

static pst_rc check_entry(const struct place *at, const char *name)
{
    struct stat st;
    const char *dir = at->k > 0 ? at->name : "", *slash = at->k > 0 ? "/" : "";
    if (fstatat(at->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? PST_OK
                               : pst_fail_errno("cannot get the status of %s/%s", at->removal->path, name);
    if (at->k == 0 && S_ISDIR(st.st_mode) && subdirectory(name) > 0)
        return each_entry(at->removal, at->fd, name, check_entry);
    return is_written_by_runs(at->k, name, st.st_mode)
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "the directory contains '%.255s%s%.255s', which was not written by a run", dir,
                          slash, name);
}

/* ---- removing -------------------------------------------------------------------------------- */

/* The lock is left. */
static pst_rc remove_entry(const struct place *at, const char *name)
{
    struct stat st;
    pst_rc rc = PST_OK;
    if (fstatat(at->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return rc;
    const bool directory = at->k == 0 && S_ISDIR(st.st_mode) && subdirectory(name) > 0;
    if (directory)
        rc = each_entry(at->removal, at->fd, name, remove_entry);
    else if (!is_written_by_runs(at->k, name, st.st_mode) || (at->k == 0 && strcmp(name, RUN_LOCK_NAME) == 0))
        return rc;
    if (rc == PST_OK && unlinkat(at->fd, name, directory ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
        rc = pst_fail_errno("cannot remove %s/%s/%s", at->removal->path, at->name, name);
    return rc;
}

static pst_rc remove_known(const struct removal *r, int parent_fd, const char *name, int dir_fd)
{
    pst_rc rc = each_entry(r, dir_fd, ".", remove_entry);
    if (rc == PST_OK && unlinkat(dir_fd, RUN_LOCK_NAME, 0) != 0 && errno != ENOENT)
        rc = pst_fail_errno("cannot remove %s/" RUN_LOCK_NAME, r->path);
    if (rc == PST_OK && unlinkat(parent_fd, name, AT_REMOVEDIR) != 0)
        rc = pst_fail_errno("cannot remove %s", r->path);
    return rc;
}

pst_rc run_dir_remove(int parent_fd, const char *name, const char *path, bool dry)
{
    struct removal r = {.path = path, .mount = run_dir_mount(parent_fd)};
    const int fd = open_dir(parent_fd, name);
    if (fd < 0)
        return pst_fail_errno("cannot open %s", path);
    pst_rc rc =
        r.mount >= 0 && run_dir_mount(fd) == r.mount
            ? PST_OK
            : pst_fail(PST_E_STATE, "another file system is mounted at this directory: unmount it first");
    if (rc == PST_OK)
        rc = each_entry(&r, fd, ".", check_entry);
    if (rc == PST_OK && !dry)
        rc = remove_known(&r, parent_fd, name, fd);
    (void)close(fd);
    return rc;
}
