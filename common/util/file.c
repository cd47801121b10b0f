#include "common/util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/progress.h"

pst_rc pst_file_open(const char *path, int *fd, uint64_t *bytes)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return pst_fail_errno("cannot open %s", path);
    pst_rc rc = fstat(*fd, &st) == 0 ? PST_OK : pst_fail_errno("cannot look at %s", path);
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
    return pst_fail_errno("%s would take %s, and its disk has %s left", what,
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
            return pst_fail(PST_E_FORMAT, "%s ends at byte %llu: it was cut short while in use", path,
                            (unsigned long long)at);
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
