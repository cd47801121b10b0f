/* text.c: reads plain, gzip and zstd text by blocks of whole lines. */
#include "common/store/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "common/error.h"

#define IN_BYTES (256u << 10) /* compressed bytes read at a time */
#define SHOWN_BYTES 32        /* of what was found, in a message */

static pst_rc read_some(struct pst_text *t, char *out, size_t room, size_t *got)
{
    ssize_t n;
    do
        n = read(t->fd, out, room);
    while (n < 0 && errno == EINTR);
    *got = n > 0 ? (size_t)n : 0;
    t->file_at += *got;
    return n >= 0 ? PST_OK : pst_fail_errno("%s: cannot read at byte %" PRIu64, t->path, t->file_at);
}

static pst_rc damaged(const struct pst_text *t, const char *what)
{
    const char *kind = t->kind == PST_TEXT_GZIP ? "gzip" : "zstd";
    return pst_fail(PST_E_FORMAT, "%s: byte %" PRIu64 " of %" PRIu64 ": the %s data is damaged: %s", t->path,
                    t->file_at - (t->in_end - t->in_at), t->file_bytes, kind, what);
}

/* One step of a decoder over what is in `in`; *wrote bytes went out. */
static pst_rc inflate_step(struct pst_text *t, char *out, size_t room, size_t *wrote)
{
    z_stream *z = t->codec;
    z->next_in = (Bytef *)t->in + t->in_at;
    z->avail_in = (uInt)(t->in_end - t->in_at);
    z->next_out = (Bytef *)out;
    z->avail_out = (uInt)room;
    if (t->codec_ended && inflateReset(z) != Z_OK)
        return damaged(t, "cannot restart the decompression");
    int rc = inflate(z, Z_NO_FLUSH);
    t->in_at = t->in_end - z->avail_in;
    *wrote = room - z->avail_out;
    t->codec_ended = rc == Z_STREAM_END;
    if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR)
        return PST_OK;
    return damaged(t, z->msg != NULL ? z->msg : zError(rc));
}

static pst_rc zstd_step(struct pst_text *t, char *out, size_t room, size_t *wrote)
{
    ZSTD_inBuffer in = {t->in, t->in_end, t->in_at};
    ZSTD_outBuffer to = {out, room, 0};
    size_t rc = ZSTD_decompressStream(t->codec, &to, &in);
    t->in_at = in.pos;
    *wrote = to.pos;
    t->codec_ended = rc == 0;
    return ZSTD_isError(rc) ? damaged(t, ZSTD_getErrorName(rc)) : PST_OK;
}

static pst_rc fill_some(struct pst_text *t, char *out, size_t room, size_t *got)
{
    *got = 0;
    if (t->kind == PST_TEXT_PLAIN)
        return read_some(t, out, room, got);
    for (;;) {
        size_t n = 0;
        if (t->in_at == t->in_end) {
            pst_rc rc = read_some(t, t->in, IN_BYTES, &n);
            if (rc != PST_OK)
                return rc;
            t->in_at = 0;
            t->in_end = n;
        }
        bool no_more = t->in_at == t->in_end;
        if (no_more && t->codec_ended)
            return PST_OK;
        pst_rc rc = t->kind == PST_TEXT_GZIP ? inflate_step(t, out, room, got) : zstd_step(t, out, room, got);
        if (rc != PST_OK || *got > 0)
            return rc;
        if (no_more && !t->codec_ended)
            return damaged(t, "the data end too early: the file is truncated");
    }
}

static pst_rc start_codec(struct pst_text *t)
{
    if (t->kind == PST_TEXT_PLAIN)
        return PST_OK;
    if (t->kind == PST_TEXT_GZIP) {
        z_stream *z = calloc(1, sizeof *z);
        t->codec = z;
        if (z == NULL || inflateInit2(z, 15 + 16) != Z_OK) /* the largest window; gzip's header */
            return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot decompress", t->path);
        return PST_OK;
    }
    t->codec = ZSTD_createDStream();
    if (t->codec == NULL || ZSTD_isError(ZSTD_initDStream(t->codec)))
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot decompress", t->path);
    return PST_OK;
}

static pst_rc look_at_start(struct pst_text *t)
{
    unsigned char magic[4] = {0};
    ssize_t n = pread(t->fd, magic, sizeof magic, 0);
    if (n < 0)
        return pst_fail_errno("%s: cannot read", t->path);
    if (n >= 2 && magic[0] == 0x1f && magic[1] == 0x8b)
        t->kind = PST_TEXT_GZIP;
    else if (n == 4 && magic[0] == 0x28 && magic[1] == 0xb5 && magic[2] == 0x2f && magic[3] == 0xfd)
        t->kind = PST_TEXT_ZSTD;
    return start_codec(t);
}

/* The buffer's first bytes: a mark is skipped, UTF-16 is refused. */
static pst_rc look_at_mark(struct pst_text *t)
{
    const unsigned char *p = (const unsigned char *)t->buffer;
    if (t->fill >= 2 && ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff)))
        return pst_fail(PST_E_FORMAT, "%s: the text is UTF-16: expected UTF-8 (iconv converts it)", t->path);
    if (t->fill >= 4 && memcmp(p, "PK\3\4", 4) == 0)
        return pst_fail(PST_E_FORMAT, "%s is a zip archive: unpack it, or compress it with gzip or zstd",
                        t->path);
    t->bom = t->fill >= 3 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf;
    t->begin = t->bom ? 3 : 0;
    return PST_OK;
}

/* Fills the buffer as far as there is something, or to its end. */
static pst_rc fill_buffer(struct pst_text *t)
{
    while (t->fill < PST_TEXT_LINE_MAX && !t->ended) {
        size_t got;
        pst_rc rc = fill_some(t, t->buffer + t->fill, PST_TEXT_LINE_MAX - t->fill, &got);
        if (rc != PST_OK)
            return rc;
        t->fill += got;
        t->ended = got == 0;
    }
    return PST_OK;
}

pst_rc pst_text_open(struct pst_text *t, const char *path)
{
    *t = (struct pst_text){.fd = -1, .line = 1};
    if (strlen(path) >= sizeof t->path)
        return pst_fail(PST_E_LIMIT,
                        "the path of a text file has %zu bytes; at most %zu are allowed: %.80s...",
                        strlen(path), sizeof t->path - 1, path);
    memcpy(t->path, path, strlen(path) + 1);
    t->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (t->fd < 0)
        return pst_fail_errno("cannot open %s", path);
    struct stat st;
    if (fstat(t->fd, &st) != 0)
        return pst_fail_errno("%s: cannot get the status of the file", path);
    if (!S_ISREG(st.st_mode))
        return pst_fail(PST_E_FORMAT, "%s: expected a regular file", path);
    t->file_bytes = (uint64_t)st.st_size;
    (void)posix_fadvise(t->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    t->buffer =
        malloc(PST_TEXT_LINE_MAX + 2); /* a newline that the file lacks, and a NUL that ends every scan */
    t->in = malloc(IN_BYTES);
    if (t->buffer == NULL || t->in == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot read it", path);
    pst_rc rc = look_at_start(t);
    if (rc == PST_OK)
        rc = fill_buffer(t);
    return rc == PST_OK ? look_at_mark(t) : rc;
}

pst_rc pst_text_block(struct pst_text *t, const char **begin, const char **end)
{
    memmove(t->buffer, t->buffer + t->begin, t->fill - t->begin);
    t->fill -= t->begin;
    t->begin = 0;
    pst_rc rc = fill_buffer(t);
    if (rc != PST_OK)
        return rc;
    if (t->ended && t->fill > 0 && t->buffer[t->fill - 1] != '\n') {
        t->buffer[t->fill++] = '\n';
        t->added_newline = true;
    }
    char *last = t->fill > 0 ? memrchr(t->buffer, '\n', t->fill) : NULL;
    if (last == NULL && t->fill > 0)
        return pst_fail(PST_E_FORMAT, "%s:%" PRId64 ": the line is too long: at most %u bytes are allowed",
                        t->path, t->line, PST_TEXT_LINE_MAX);
    t->begin = last != NULL ? (size_t)(last + 1 - t->buffer) : 0;
    *begin = t->buffer;
    *end = t->buffer + t->begin;
    return PST_OK;
}

pst_rc pst_text_seek(struct pst_text *t, uint64_t at, int64_t line)
{
    t->line = line;
    if (t->kind == PST_TEXT_PLAIN) {
        t->begin = t->fill = 0;
        t->ended = false;
        t->file_at = at;
        return lseek(t->fd, (off_t)at, SEEK_SET) >= 0 ? PST_OK : pst_fail_errno("%s: cannot seek", t->path);
    }
    for (uint64_t passed = 0; passed < at;) { /* compressed: there is no way but through */
        size_t n = at - passed < t->fill ? (size_t)(at - passed) : t->fill;
        t->begin = n;
        passed += n;
        if (n < t->fill)
            break;
        t->begin = t->fill = 0;
        pst_rc rc = fill_buffer(t);
        if (rc != PST_OK)
            return rc;
        if (t->fill == 0 && passed < at)
            return pst_fail(PST_E_FORMAT, "%s ends before byte %" PRIu64 " of its text: the file changed",
                            t->path, at);
    }
    return PST_OK;
}

void pst_text_close(struct pst_text *t)
{
    if (t->kind == PST_TEXT_GZIP && t->codec != NULL)
        (void)inflateEnd(t->codec);
    if (t->kind == PST_TEXT_GZIP)
        free(t->codec);
    else if (t->kind == PST_TEXT_ZSTD)
        (void)ZSTD_freeDStream(t->codec);
    if (t->path[0] != '\0' && t->fd >= 0)
        (void)close(t->fd);
    free(t->in);
    free(t->buffer);
    *t = (struct pst_text){.fd = -1};
}

pst_rc pst_text_fail(const struct pst_text *t, const char *line, const char *at, const char *what)
{
    char shown[4 * SHOWN_BYTES + 4];
    size_t n = 0;
    int bytes = 0;
    for (; at[bytes] != '\n' && bytes < SHOWN_BYTES; bytes++) {
        unsigned char c = (unsigned char)at[bytes];
        n += (size_t)snprintf(shown + n, sizeof shown - n, c >= 32 && c < 127 ? "%c" : "\\x%02x", c);
    }
    shown[n] = '\0';
    const char *const end = "the line's end";
    char found[sizeof shown + 8];
    (void)snprintf(found, sizeof found, bytes == SHOWN_BYTES ? "'%s'..." : "'%s'", shown);
    return pst_fail(PST_E_FORMAT, "%s:%" PRId64 ": byte %td: expected %s, found %s", t->path, t->line,
                    at - line + 1, what, bytes == 0 ? end : found);
}

bool pst_text_real(const char **p, double *out)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *at = *p;
    bool minus = *at == '-';
    at += *at == '-' || *at == '+';
    uint64_t digits = 0;
    int n = 0, after = 0;
    for (; *at >= '0' && *at <= '9'; at++, n++)
        digits = digits * 10 + (uint64_t)(*at - '0');
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++, n++, after++)
            digits = digits * 10 + (uint64_t)(*at - '0');
    /* Exact when the digits and the power of ten both are: Clinger's fast path. Else the C library's. */
    if (n > 0 && n <= 15 && *at != 'e' && *at != 'E') {
        double value = (double)digits / ten[after];
        *out = minus ? -value : value;
        *p = at;
        return true;
    }
    char *end;
    if (**p == ' ' || **p == '\n' || **p == '\t' || **p == '\r')
        return false;
    double value = strtod(*p, &end);
    if (end == *p)
        return false;
    *out = value;
    *p = end;
    return true;
}
