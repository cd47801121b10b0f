/* file.c: every loop over short reads and writes is here, and every "write aside, sync, rename". */
#include "common/util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/progress.h"
#include "common/util/tempname.h"

pst_rc pst_file_open(const char *path, int *fd, uint64_t *bytes)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return pst_fail_errno("cannot open %s", path);
    pst_rc rc = fstat(*fd, &st) == 0 ? PST_OK : pst_fail_errno("cannot get the status of %s", path);
    if (rc == PST_OK && !S_ISREG(st.st_mode))
        rc = pst_fail(PST_E_FORMAT, "%s: expected a regular file", path);
    if (rc != PST_OK) {
        (void)close(*fd);
        *fd = -1;
        return rc;
    }
    *bytes = (uint64_t)st.st_size;
    return PST_OK;
}

pst_rc pst_file_room_for(const char *path, uint64_t bytes, const char *what)
{
    struct statvfs fs;
    char need[32], have[32];
    if (statvfs(path, &fs) != 0 || fs.f_blocks == 0) /* one that does not say */
        return PST_OK;
    const uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (bytes <= room)
        return PST_OK;
    errno = ENOSPC;
    return pst_fail_errno("%s needs %s, but its file system has only %s free", what,
                          pst_bytes_text((double)bytes, need), pst_bytes_text((double)room, have));
}

pst_rc pst_file_readv_at(int fd, struct iovec *piece, int pieces, uint64_t at, const char *path)
{
    for (int next = 0; next < pieces;) {
        ssize_t got = preadv(fd, piece + next, pieces - next, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pst_fail_errno("cannot read %s at byte %llu", path, (unsigned long long)at);
        if (got == 0)
            return pst_fail(
                PST_E_FORMAT,
                "%s ends at byte %llu, earlier than expected: the file was truncated while it was in use",
                path, (unsigned long long)at);
        at += (uint64_t)got;
        for (size_t left = (size_t)got; left > 0 && next < pieces;) {
            const size_t take = left < piece[next].iov_len ? left : piece[next].iov_len;
            piece[next].iov_base = (char *)piece[next].iov_base + take;
            piece[next].iov_len -= take;
            left -= take;
            next += piece[next].iov_len == 0;
        }
    }
    return PST_OK;
}

pst_rc pst_file_read_at(int fd, void *to, uint64_t bytes, uint64_t at, const char *path)
{
    struct iovec piece = {to, bytes};
    return bytes > 0 ? pst_file_readv_at(fd, &piece, 1, at, path) : PST_OK;
}

pst_rc pst_file_write_at(int fd, const void *from, uint64_t bytes, uint64_t at, const char *path)
{
    for (const char *data = from; bytes > 0;) {
        const ssize_t put = pwrite(fd, data, bytes, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            errno = put == 0 ? ENOSPC : errno;
            return pst_fail_errno("cannot write %s at byte %llu", path, (unsigned long long)at);
        }
        data += put;
        at += (uint64_t)put;
        bytes -= (uint64_t)put;
    }
    return PST_OK;
}

pst_rc pst_file_new_begin(struct pst_file_new *f, const char *path)
{
    f->fd = -1;
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return pst_fail(PST_E_LIMIT, "the path is too long: expected at most %zu bytes: %.80s...",
                        sizeof f->path - 1, path);
    pst_rc rc = pst_tempname(f->partial, sizeof f->partial, path, PST_TEMPNAME_PARTIAL);
    if (rc != PST_OK)
        return rc;
    return pst_tempname_open(f->partial, &f->fd);
}

pst_rc pst_file_new_commit(struct pst_file_new *f)
{
    pst_rc rc = fsync(f->fd) == 0 ? PST_OK : pst_fail_errno("cannot sync %s", f->partial);
    if (rc == PST_OK && rename(f->partial, f->path) != 0)
        rc = pst_fail_errno("cannot rename %s to %s", f->partial, f->path);
    if (rc != PST_OK) {
        pst_file_new_abandon(f);
        return rc;
    }
    (void)close(f->fd); /* only now: a cleaner removes a temporary file that nobody holds */
    f->fd = -1;
    char dir[PST_PATH_MAX];
    (void)snprintf(dir, sizeof dir, "%s", f->path);
    return pst_file_sync_dir(dirname(dir));
}

void pst_file_new_abandon(struct pst_file_new *f)
{
    if (f->fd < 0)
        return;
    (void)unlink(f->partial);
    (void)close(f->fd);
    f->fd = -1;
}

pst_rc pst_file_replace(const char *path, const void *data, size_t bytes)
{
    struct pst_file_new f;
    pst_rc rc = pst_file_new_begin(&f, path);
    if (rc == PST_OK)
        rc = pst_file_write_at(f.fd, data, bytes, 0, path);
    if (rc == PST_OK)
        return pst_file_new_commit(&f);
    pst_file_new_abandon(&f);
    return rc;
}

pst_rc pst_file_read(const char *path, size_t bytes_max, char **data, size_t *bytes)
{
    int fd;
    uint64_t size;
    *data = NULL;
    *bytes = 0;
    pst_rc rc = pst_file_open(path, &fd, &size);
    if (rc != PST_OK)
        return rc;
    if (size > bytes_max)
        rc = pst_fail(PST_E_LIMIT, "%s has %llu bytes; expected at most %zu", path, (unsigned long long)size,
                      bytes_max);
    else if ((*data = malloc(size + 1)) == NULL)
        rc = pst_fail(PST_E_NOMEM, "cannot allocate %llu bytes to read %s", (unsigned long long)size, path);
    else
        rc = pst_file_read_at(fd, *data, size, 0, path);
    (void)close(fd);
    if (rc != PST_OK) {
        free(*data);
        *data = NULL;
        return rc;
    }
    (*data)[size] = '\0';
    *bytes = size;
    return PST_OK;
}

void pst_file_open_std(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) /* the lowest free number */
            _exit(1);
}

pst_rc pst_file_make_parents(const char *path)
{
    char dir[PST_PATH_MAX];
    if (snprintf(dir, sizeof dir, "%s", path) >= (int)sizeof dir)
        return pst_fail(PST_E_LIMIT, "the path is too long: expected at most %zu bytes: %.80s...",
                        sizeof dir - 1, path);
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--)
        dir[n - 1] = '\0';
    for (char *slash = strchr(dir + (dir[0] == '/'), '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(dir, 0777) != 0 && errno != EEXIST)
            return pst_fail_errno("cannot create the directory %s", dir);
        *slash = '/';
    }
    return PST_OK;
}

pst_rc pst_file_sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return pst_fail_errno("cannot open the directory %s", dir);
    pst_rc rc = fsync(fd) == 0 ? PST_OK : pst_fail_errno("cannot sync the directory %s to disk", dir);
    (void)close(fd);
    return rc;
}

void pst_file_identity(const char *path, char out[PST_FILE_IDENTITY_BYTES])
{
    struct stat st;
    out[0] = '\0';
    if (stat(path, &st) == 0)
        (void)snprintf(out, PST_FILE_IDENTITY_BYTES, "%jd bytes, %jd.%09ld, inode %ju", (intmax_t)st.st_size,
                       (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (uintmax_t)st.st_ino);
}

pst_rc pst_file_digest(const char *path, char out[PST_FILE_DIGEST_BYTES])
{
    enum { PIECE_BYTES = 1 << 20 };
    int fd;
    uint64_t bytes;
    out[0] = '\0';
    pst_rc rc = pst_file_open(path, &fd, &bytes);
    if (rc != PST_OK)
        return rc;
    XXH3_state_t *state = XXH3_createState();
    char *piece = malloc(PIECE_BYTES);
    if (state == NULL || piece == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot compute the digest of %s", path);
    else
        (void)XXH3_64bits_reset(state);
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += PIECE_BYTES) {
        const uint64_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        rc = pst_file_read_at(fd, piece, n, at, path);
        if (rc == PST_OK)
            (void)XXH3_64bits_update(state, piece, n);
    }
    if (rc == PST_OK)
        (void)snprintf(out, PST_FILE_DIGEST_BYTES, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
    free(piece);
    (void)XXH3_freeState(state);
    (void)close(fd);
    return rc;
}

void pst_file_cached(const char *name, char out[PST_PATH_MAX])
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char dir[3000];
    (void)snprintf(dir, sizeof dir, "%.2900s%s",
                   base   ? base
                   : home ? home
                          : "/dev/null", /* nobody, not even root, can make a folder in it */
                   base ? "" : "/.cache");
    (void)mkdir(dir, 0700);
    (void)snprintf(out, PST_PATH_MAX, "%s/penstock", dir);
    (void)mkdir(out, 0700);
    (void)snprintf(out, PST_PATH_MAX, "%s/penstock/%s", dir, name);
}
