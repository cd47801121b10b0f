/* tempname.c: see tempname.h. */
#include "common/util/tempname.h"

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

#include "common/error.h"

/* A cleaner holds a name for the time of one unlink, so a writer that meets one waits for up to 1 s. */
enum { TRIES = 500, NAP_NS = 2000000 };

pst_rc pst_tempname(char *out, size_t size, const char *path, const char *mark)
{
    const int n = snprintf(out, size, "%s%s%ld", path, mark, (long)getpid());
    return n >= 0 && (size_t)n < size
               ? PST_OK
               : pst_fail(PST_E_ARG, "the path of a file to write is too long: %.200s...", path);
}

long pst_tempname_pid(const char *name, const char *of, const char *mark)
{
    const size_t length = strlen(mark), n = of != NULL ? strlen(of) : 0;
    const char *at = of == NULL ? strstr(name, mark) : name + n;
    if (at == NULL || (of != NULL && strncmp(name, of, n) != 0) || strncmp(at, mark, length) != 0)
        return 0;
    const char *digits = at + length;
    const size_t count = strspn(digits, "0123456789");
    return count > 0 && count < 10 && digits[count] == '\0' ? strtol(digits, NULL, 10) : 0;
}

/* A cleaner can remove the name between our open and our flock: then the lock is on a file without a name. */
static bool still_named(int fd, int dir_fd, const char *name)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Whether we hold the name now. A file system without flock has no cleaners either. */
static bool hold(int fd, const char *path)
{
    const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    return locked && still_named(fd, AT_FDCWD, path);
}

static void nap(void)
{
    const struct timespec a_while = {.tv_nsec = NAP_NS};
    (void)nanosleep(&a_while, NULL);
}

pst_rc pst_tempname_open(const char *path, int *fd)
{
    for (int i = 0; i < TRIES; i++) {
        *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (*fd < 0)
            return pst_fail_errno("cannot create %s", path);
        if (hold(*fd, path)) {
            if (ftruncate(*fd, 0) == 0)
                return PST_OK;
            const pst_rc rc = pst_fail_errno("cannot truncate %s", path);
            (void)close(*fd);
            *fd = -1;
            return rc;
        }
        (void)close(*fd);
        nap();
    }
    *fd = -1;
    return pst_fail(PST_E_STATE, "%s: another process or thread is writing this file", path);
}

pst_rc pst_tempname_mkdir(const char *path, mode_t mode, int *fd)
{
    for (int i = 0; i < TRIES; i++) {
        if (mkdir(path, mode) != 0) {
            *fd = -1;
            return pst_fail_errno("cannot create %s", path);
        }
        *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (*fd >= 0 && hold(*fd, path))
            return PST_OK;
        if (*fd < 0 && errno != ENOENT) {
            const pst_rc rc = pst_fail_errno("cannot open %s", path);
            (void)rmdir(path);
            return rc;
        }
        if (*fd >= 0)
            (void)close(*fd);
        nap(); /* a cleaner removes it */
    }
    *fd = -1;
    return pst_fail(PST_E_STATE, "%s: another process keeps removing this directory", path);
}

/* Other programs lock their files by fcntl, which flock does not see. */
static bool locked_by_fcntl(int fd)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &all) != 0 || all.l_type != F_UNLCK;
}

bool pst_tempname_take(int dir_fd, const char *name, int *fd)
{
    struct stat st;
    *fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return false;
    if (fstat(*fd, &st) == 0 && (S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && !locked_by_fcntl(*fd))) &&
        flock(*fd, LOCK_EX | LOCK_NB) == 0 && still_named(*fd, dir_fd, name))
        return true;
    (void)close(*fd);
    *fd = -1;
    return false;
}

static bool sweep_one(int dir_fd, const char *name, bool dry)
{
    struct stat st;
    int fd;
    if (!pst_tempname_take(dir_fd, name, &fd))
        return false;
    const bool gone = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (dry || unlinkat(dir_fd, name, 0) == 0);
    (void)close(fd);
    return gone;
}

int pst_tempname_sweep(int dir_fd, const char *of, bool dry)
{
    const int own = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = own >= 0 ? fdopendir(own) : NULL;
    int n = 0;
    if (d == NULL && own >= 0)
        (void)close(own);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        n += pst_tempname_pid(e->d_name, of, PST_TEMPNAME_PARTIAL) > 0 && sweep_one(dir_fd, e->d_name, dry);
    if (d != NULL)
        (void)closedir(d);
    return n;
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static pst_rc look_at_all(DIR *d, const char *path, pst_tempname_known_fn *known)
{
    struct stat st;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (is_dot(e->d_name))
            continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            return pst_fail_errno("cannot get the status of %s/%s", path, e->d_name);
        if (!known(dirfd(d), e->d_name, &st))
            return pst_fail(PST_E_STATE, "the directory contains '%.255s', which Penstock did not write",
                            e->d_name);
    }
    return PST_OK;
}

static pst_rc remove_all(DIR *d, const char *path, pst_tempname_remove_fn *remove)
{
    rewinddir(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (!is_dot(e->d_name) &&
            (remove != NULL ? remove(dirfd(d), e->d_name) : unlinkat(dirfd(d), e->d_name, 0)) != 0)
            return pst_fail_errno("cannot remove %s/%s", path, e->d_name);
    return PST_OK;
}

pst_rc pst_tempname_remove_dir(int parent_fd, const char *name, const char *path,
                               pst_tempname_known_fn *known, pst_tempname_remove_fn *remove, bool dry)
{
    const int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        const pst_rc rc = pst_fail_errno("cannot open %s", path);
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    pst_rc rc = look_at_all(d, path, known);
    if (rc == PST_OK && !dry)
        rc = remove_all(d, path, remove);
    (void)closedir(d);
    if (rc == PST_OK && !dry && unlinkat(parent_fd, name, AT_REMOVEDIR) != 0)
        rc = pst_fail_errno("cannot remove %s", path);
    return rc;
}
