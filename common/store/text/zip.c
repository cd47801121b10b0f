/* zip.c: reads the list of members of a zip archive and unpacks members. */
#include "common/store/text/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "common/error.h"
#include "common/util/file.h"

#define END_BYTES 22u      /* of the record at the end, without its comment */
#define COMMENT_MAX 65535u /* that may follow it */
#define STEP (256u << 10)
#define CENTRAL_MARK 0x02014b50u
#define LOCAL_MARK 0x04034b50u
#define END_MARK 0x06054b50u
#define END64_MARK 0x06064b50u
#define LOCATOR_MARK 0x07064b50u

static uint64_t number(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

static pst_rc read_at(const struct pst_zip *z, uint64_t at, void *out, size_t bytes)
{
    if (at > z->file_bytes || bytes > z->file_bytes - at)
        return pst_fail(PST_E_FORMAT,
                        "%s: expected %zu bytes at byte %" PRIu64 ", but the file has only %" PRIu64 " bytes",
                        z->path, bytes, at, z->file_bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(z->fd, (char *)out + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return pst_fail_errno("%s: cannot read at byte %" PRIu64, z->path, at + done);
        done += (size_t)n;
    }
    return PST_OK;
}

/* Where the list of members is. */
static pst_rc find_directory(const struct pst_zip *z, uint64_t *at, uint64_t *bytes, uint64_t *count)
{
    uint64_t room = z->file_bytes < END_BYTES + COMMENT_MAX ? z->file_bytes : END_BYTES + COMMENT_MAX;
    unsigned char *tail = malloc((size_t)room + 1);
    if (tail == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %s", z->path);
    pst_rc rc = read_at(z, z->file_bytes - room, tail, (size_t)room);
    int64_t k = (int64_t)room - END_BYTES;
    while (rc == PST_OK && k >= 0 && number(tail + k, 4) != END_MARK)
        k--;
    if (rc == PST_OK && k < 0)
        rc = pst_fail(PST_E_FORMAT,
                      "%s: expected a zip archive (.npz), but its end is missing: is it truncated?", z->path);
    if (rc == PST_OK) {
        *count = number(tail + k + 10, 2);
        *bytes = number(tail + k + 12, 4);
        *at = number(tail + k + 16, 4);
    }
    bool large = rc == PST_OK && (*at == UINT32_MAX || *bytes == UINT32_MAX || *count == UINT16_MAX);
    if (large && k >= 20 && number(tail + k - 20, 4) == LOCATOR_MARK) {
        unsigned char end[56];
        rc = read_at(z, number(tail + k - 20 + 8, 8), end, sizeof end);
        if (rc == PST_OK && number(end, 4) != END64_MARK)
            rc = pst_fail(PST_E_FORMAT, "%s: the zip64 record at the end of the archive is damaged", z->path);
        *count = number(end + 32, 8);
        *bytes = number(end + 40, 8);
        *at = number(end + 48, 8);
    }
    free(tail);
    return rc;
}

/* Sizes that do not fit 32 bits are in an extra field, in this order. */
static void read_zip64(struct pst_zip_member *m, const unsigned char *extra, size_t bytes)
{
    for (size_t k = 0; k + 4 <= bytes;) {
        size_t n = (size_t)number(extra + k + 2, 2), at = k + 4;
        if (at + n > bytes)
            return;
        uint64_t *const field[3] = {&m->bytes, &m->packed, &m->at};
        for (int i = 0; number(extra + k, 2) == 1 && i < 3; i++)
            if (*field[i] == UINT32_MAX && at + 8 <= k + 4 + n) {
                *field[i] = number(extra + at, 8);
                at += 8;
            }
        k += 4 + n;
    }
}

static pst_rc read_members(struct pst_zip *z, const unsigned char *list, size_t bytes, uint64_t count)
{
    size_t k = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (k + 46 > bytes || number(list + k, 4) != CENTRAL_MARK)
            return pst_fail(PST_E_FORMAT, "%s: the list of members is damaged at member %" PRIu64, z->path,
                            i);
        size_t name = (size_t)number(list + k + 28, 2), extra = (size_t)number(list + k + 30, 2);
        size_t comment = (size_t)number(list + k + 32, 2);
        struct pst_zip_member *m = &z->member[z->members];
        if (k + 46 + name + extra + comment > bytes || name >= sizeof m->name)
            return pst_fail(PST_E_FORMAT, "%s: the list of members is damaged at member %" PRIu64, z->path,
                            i);
        *m = (struct pst_zip_member){.method = (int)number(list + k + 10, 2),
                                     .crc = (uint32_t)number(list + k + 16, 4),
                                     .packed = number(list + k + 20, 4),
                                     .bytes = number(list + k + 24, 4),
                                     .at = number(list + k + 42, 4)};
        memcpy(m->name, list + k + 46, name);
        read_zip64(m, list + k + 46 + name, extra);
        if (number(list + k + 8, 2) & 1)
            return pst_fail(PST_E_UNSUPPORTED, "%s: member %s is encrypted, which is not supported", z->path,
                            m->name);
        z->members++;
        k += 46 + name + extra + comment;
    }
    return PST_OK;
}

pst_rc pst_zip_open(struct pst_zip *z, const char *path)
{
    *z = (struct pst_zip){.fd = -1};
    if (strlen(path) >= sizeof z->path)
        return pst_fail(PST_E_LIMIT,
                        "the path of a zip archive has %zu bytes; at most %zu are allowed: %.80s...",
                        strlen(path), sizeof z->path - 1, path);
    memcpy(z->path, path, strlen(path) + 1);
    uint64_t at = 0, bytes = 0, count = 0;
    pst_rc rc = pst_file_open(path, &z->fd, &z->file_bytes);
    if (rc == PST_OK)
        rc = find_directory(z, &at, &bytes, &count);
    if (rc == PST_OK && (bytes > PST_ZIP_DIRECTORY_MAX || count > PST_ZIP_MEMBERS_MAX))
        rc = pst_fail(PST_E_LIMIT, "%s: the archive has %" PRIu64 " members; at most %d are supported", path,
                      count, PST_ZIP_MEMBERS_MAX);
    if (rc != PST_OK)
        return rc;
    unsigned char *list = malloc((size_t)bytes + 1);
    z->member = calloc((size_t)count + 1, sizeof *z->member);
    if (list == NULL || z->member == NULL)
        rc = pst_fail(PST_E_NOMEM, "%s: out of memory: cannot read its list of members", path);
    if (rc == PST_OK)
        rc = read_at(z, at, list, (size_t)bytes);
    if (rc == PST_OK)
        rc = read_members(z, list, (size_t)bytes, count);
    free(list);
    return rc;
}

const struct pst_zip_member *pst_zip_find(const struct pst_zip *z, const char *name)
{
    for (int i = 0; i < z->members; i++)
        if (strcmp(z->member[i].name, name) == 0)
            return &z->member[i];
    return NULL;
}

struct copy {
    const struct pst_zip *z;
    const struct pst_zip_member *m;
    int fd;
    uint64_t at, left; /* of what is packed */
    unsigned char in[STEP], out[STEP];
    uint64_t wrote;
    uLong crc;
    struct pst_progress *progress;
};

static pst_rc put(struct copy *c, const unsigned char *data, size_t bytes)
{
    c->crc = crc32(c->crc, data, (uInt)bytes);
    c->wrote += bytes;
    if (c->wrote > c->m->bytes)
        return pst_fail(PST_E_FORMAT,
                        "%s: member %s is longer than the archive's directory says: the archive is damaged",
                        c->z->path, c->m->name);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(c->fd, data + done, bytes - done);
        if (n < 0)
            return pst_fail_errno("cannot unpack member %s of %s", c->m->name, c->z->path);
        done += (size_t)n;
    }
    return pst_progress_add(c->progress, bytes);
}

static pst_rc take(struct copy *c, size_t *n)
{
    *n = c->left < STEP ? (size_t)c->left : STEP;
    pst_rc rc = read_at(c->z, c->at, c->in, *n);
    c->at += *n;
    c->left -= *n;
    return rc;
}

static pst_rc copy_stored(struct copy *c)
{
    pst_rc rc = PST_OK;
    while (rc == PST_OK && c->left > 0) {
        size_t n;
        rc = take(c, &n);
        if (rc == PST_OK)
            rc = put(c, c->in, n);
    }
    return rc;
}

static pst_rc copy_deflated(struct copy *c)
{
    z_stream s = {.zalloc = Z_NULL};
    if (inflateInit2(&s, -15) != Z_OK)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot decompress", c->z->path);
    pst_rc rc = PST_OK;
    int status = Z_OK;
    while (rc == PST_OK && status != Z_STREAM_END) {
        if (s.avail_in == 0 && c->left > 0) {
            size_t n;
            rc = take(c, &n);
            s.next_in = c->in;
            s.avail_in = (uInt)n;
        }
        s.next_out = c->out;
        s.avail_out = STEP;
        if (rc == PST_OK)
            status = inflate(&s, Z_NO_FLUSH);
        if (rc == PST_OK && status != Z_OK && status != Z_STREAM_END)
            rc = pst_fail(PST_E_FORMAT,
                          "%s: the compressed data of member %s are damaged before byte %" PRIu64, c->z->path,
                          c->m->name, c->at);
        if (rc == PST_OK)
            rc = put(c, c->out, STEP - s.avail_out);
    }
    (void)inflateEnd(&s);
    return rc;
}

pst_rc pst_zip_extract(const struct pst_zip *z, const struct pst_zip_member *m, const char *to,
                       struct pst_progress *progress)
{
    unsigned char local[30];
    pst_rc rc = read_at(z, m->at, local, sizeof local);
    if (rc != PST_OK)
        return rc;
    if (number(local, 4) != LOCAL_MARK)
        return pst_fail(PST_E_FORMAT,
                        "%s: member %s does not begin at byte %" PRIu64
                        ", where the archive's directory says",
                        z->path, m->name, m->at);
    struct copy *c = calloc(1, sizeof *c);
    if (c == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot unpack %s", z->path, m->name);
    c->z = z;
    c->progress = progress;
    pst_progress_begin(progress, m->name, m->bytes, true);
    c->m = m;
    c->at = m->at + sizeof local + number(local + 26, 2) + number(local + 28, 2);
    c->left = m->packed;
    c->crc = crc32(0, Z_NULL, 0);
    c->fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    rc = c->fd >= 0 ? pst_file_room_for(to, m->bytes, to) : pst_fail_errno("cannot create %s", to);
    if (rc == PST_OK && m->method == 0)
        rc = copy_stored(c);
    else if (rc == PST_OK && m->method == 8)
        rc = copy_deflated(c);
    else if (rc == PST_OK)
        rc = pst_fail(
            PST_E_UNSUPPORTED,
            "%s: member %s uses compression method %d, which is not supported: expected stored or deflate",
            z->path, m->name, m->method);
    if (rc == PST_OK && (c->wrote != m->bytes || (uint32_t)c->crc != m->crc))
        rc = pst_fail(PST_E_FORMAT,
                      "%s: member %s is damaged: expected %" PRIu64
                      " bytes with the checksum %08x, found %" PRIu64 " bytes with %08x",
                      z->path, m->name, m->bytes, m->crc, c->wrote, (unsigned)c->crc);
    if (c->fd >= 0 && close(c->fd) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s", to);
    if (rc == PST_OK)
        pst_progress_end(progress);
    free(c);
    return rc;
}

void pst_zip_close(struct pst_zip *z)
{
    if (z->fd >= 0 && z->path[0] != '\0')
        (void)close(z->fd);
    free(z->member);
    *z = (struct pst_zip){.fd = -1};
}
