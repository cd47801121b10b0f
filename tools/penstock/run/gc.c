/* gc.c: penstock gc. What it may remove is written in README.md of this room. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/build/remove.h"
#include "common/store/checkpoint.h"
#include "common/store/export/leftover.h"
#include "common/util/tempname.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/run/run_dir.h"

static const char usage[] =
    "usage: penstock gc [--dry-run] [DIR]...\n"
    "Removes what killed processes left in DIR (default: runs and data):\n"
    "  - directories that `penstock run` made, of runs that ended without a report or a checkpoint;\n"
    "  - datasets, exports and files that were being written: NAME.penstock-partial-PID;\n"
    "  - datasets that were being removed: NAME.penstock-removed-PID.\n"
    "It does not touch what a process still holds, and removes only files that Penstock writes: a directory "
    "that\n"
    "holds anything else is kept, and gc says what it holds. It follows no links and enters no other "
    "mounts.\n\n"
    "  --dry-run   only say what would be removed\n";

struct gc {
    bool dry;
    int removed, kept, failed;
};

static const char *verb(const struct gc *gc)
{
    return gc->dry ? "would remove" : "removed";
}

/* rc: what the removal gave. */
static void tell(struct gc *gc, pst_rc rc, const char *path)
{
    if (rc == PST_OK) {
        printf("%s %s\n", verb(gc), path);
        gc->removed++;
    } else if (rc == PST_E_STATE) {
        printf("kept %s: %s\n", path, pst_error_text());
        gc->kept++;
    } else {
        fprintf(stderr, "penstock gc: %s\n", pst_error_text());
        gc->failed++;
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Neither a report nor a checkpoint: nothing in it is of use. */
static bool is_cut_off(int dir_fd, const char *path)
{
    char checkpoints[PST_PATH_MAX];
    struct stat st;
    uint64_t number;
    if (fstatat(dir_fd, "report.json", &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return false;
    return snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", path) < (int)sizeof checkpoints &&
           pst_checkpoint_list(checkpoints, &number, 1) == 0;
}

/* The caller holds the lock. */
static void clean_run(struct gc *gc, int parent_fd, int dir_fd, const char *name, const char *path)
{
    struct run_lock lock;
    struct stat st;
    int fd;
    if (!run_lock_open(dir_fd, &lock, &fd))
        return;
    (void)close(fd);
    if (fstat(dir_fd, &st) == 0 && lock.made == st.st_ino && is_cut_off(dir_fd, path)) {
        tell(gc, run_dir_remove(parent_fd, name, path, gc->dry), path);
        return;
    }
    const int n = run_dir_sweep(dir_fd, gc->dry);
    if (n > 0)
        printf("%s %d partial file%s in %s\n", verb(gc), n, n > 1 ? "s" : "", path);
    gc->removed += n;
}

static void look_at_run(struct gc *gc, int parent_fd, int dir_fd, const char *name, const char *path)
{
    struct run_lock lock;
    int fd;
    if (!run_lock_open(dir_fd, &lock, &fd)) /* only a run's lock is ever locked by us */
        return;
    (void)close(fd);
    if (!pst_tempname_take(dir_fd, RUN_LOCK_NAME, &fd))
        return;
    clean_run(gc, parent_fd, dir_fd, name, path);
    (void)close(fd);
}

/* ---- temporary names ------------------------------------------------------------------------- */

/* A directory that a killed process was making or removing: a dataset, an export, or a run's. Each knows its
 * own files. */
static pst_rc remove_leftover(const struct gc *gc, int parent_fd, const char *name, const char *path)
{
    pst_rc rc = pst_remove_leftover(parent_fd, name, path, gc->dry);
    if (rc == PST_E_STATE)
        rc = pst_export_remove_leftover(parent_fd, name, path, gc->dry);
    if (rc == PST_E_STATE)
        rc = run_dir_remove(parent_fd, name, path, gc->dry);
    return rc == PST_E_STATE ? pst_fail(rc, "the directory contains files that Penstock did not write") : rc;
}

static void clean_temporary(struct gc *gc, int parent_fd, const char *name, const char *path)
{
    struct stat st;
    int fd;
    if (!pst_tempname_take(parent_fd, name, &fd))
        return;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        tell(gc, remove_leftover(gc, parent_fd, name, path), path);
    else if (gc->dry || unlinkat(parent_fd, name, 0) == 0)
        tell(gc, PST_OK, path);
    else
        tell(gc, pst_fail_errno("cannot remove %s", path), path);
    (void)close(fd);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool is_temporary(const char *name)
{
    return pst_tempname_pid(name, NULL, PST_TEMPNAME_PARTIAL) > 0 ||
           pst_tempname_pid(name, NULL, PST_TEMPNAME_REMOVED) > 0;
}

static void look_at(struct gc *gc, int parent_fd, const char *name, const char *path)
{
    const long mount = run_dir_mount(parent_fd);
    struct stat st;
    if (fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (S_ISREG(st.st_mode) && is_temporary(name))
        clean_temporary(gc, parent_fd, name, path);
    if (!S_ISDIR(st.st_mode))
        return;
    const int dir_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd < 0)
        return;
    if (mount < 0 || run_dir_mount(dir_fd) != mount)
        ; /* something is mounted there */
    else if (is_temporary(name))
        clean_temporary(gc, parent_fd, name, path);
    else
        look_at_run(gc, parent_fd, dir_fd, name, path);
    (void)close(dir_fd);
}

static void clean(struct gc *gc, const char *dir)
{
    char path[PST_PATH_MAX];
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            look_at(gc, dirfd(d), e->d_name, path);
    if (d != NULL)
        (void)closedir(d);
}

int cmd_gc(int argc, char **argv)
{
    static char *places[] = {"runs", "data"};
    struct gc gc = {.dry = false};
    int first = 1;
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--dry-run") == 0) {
            gc.dry = true;
            continue;
        }
        bool help = strcmp(argv[first], "--help") == 0 || strcmp(argv[first], "-h") == 0;
        if (!help)
            fprintf(stderr, "penstock gc: unknown option %s\n\n", argv[first]);
        fprintf(help ? stdout : stderr, "%s", usage);
        return help ? 0 : 2;
    }
    char **dirs = first < argc ? argv + first : places;
    const int n = first < argc ? argc - first : (int)(sizeof places / sizeof *places);
    for (int i = 0; i < n; i++) {
        if (first < argc && access(dirs[i], R_OK | X_OK) != 0) {
            fprintf(stderr, "penstock gc: %s: %s\n", dirs[i], strerror(errno));
            return 2;
        }
        clean(&gc, dirs[i]);
    }
    if (gc.removed + gc.kept + gc.failed == 0)
        printf("nothing to remove\n");
    return gc.failed > 0 ? 1 : 0;
}
