/* text.h: reads a text file, plain, gzip or zstd, by blocks of whole lines.
 * Owner: the caller; open and close pair. Threads: one per file. */
#ifndef PST_TEXT_H
#define PST_TEXT_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_TEXT_LINE_MAX (2u << 20) /* bytes of one line: as much is in memory at once */
#define PST_TEXT_BYTES (4u << 20)    /* what an open file allocates, about */

enum pst_text_kind { PST_TEXT_PLAIN, PST_TEXT_GZIP, PST_TEXT_ZSTD };

struct pst_text {
    char path[4096];
    int fd;
    enum pst_text_kind kind;
    void *codec;
    bool codec_ended; /* between two members of a compressed file */
    char *in;         /* of a compressed file */
    size_t in_at, in_end;
    uint64_t file_bytes, file_at; /* read so far: for progress, and where a damaged file is damaged */
    char *buffer;
    size_t begin, fill; /* bytes of the buffer that no block had yet */
    bool ended, added_newline;
    int64_t line; /* of the first line of the next block, from 1; the reader of lines counts it up */
    bool bom;     /* a UTF-8 byte order mark was skipped */
};

/* Told by its first bytes, not its name. Fails: PST_E_IO, PST_E_FORMAT for UTF-16, PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_text_open(struct pst_text *t, const char *path);

/* The next whole lines; each ends with '\n', also the file's last; *begin == *end when there are no more.
 * Valid until the next call. Fails: PST_E_FORMAT for damaged or truncated compressed data (with the byte) and
 * for a line that is longer than PST_TEXT_LINE_MAX. */
PST_MUST_USE pst_rc pst_text_block(struct pst_text *t, const char **begin, const char **end);
/* Goes to byte `at` of the text, which begins line `line`. */
PST_MUST_USE pst_rc pst_text_seek(struct pst_text *t, uint64_t at, int64_t line);
void pst_text_close(struct pst_text *t);

/* Fails with "PATH:LINE: expected WHAT, found '...'"; at is in a line that ends with '\n'. Returns
 * PST_E_FORMAT. */
PST_MUST_USE pst_rc pst_text_fail(const struct pst_text *t, const char *line, const char *at,
                                  const char *what);

/* A number at *p, which ends with something that is no part of it; false: there is none. Exact. */
bool pst_text_real(const char **p, double *out);

/* An integer from 0 to INT64_MAX at *p; false: there is none, or it is larger. */
static inline bool pst_text_id(const char **p, int64_t *out)
{
    const char *at = *p;
    uint64_t value = 0;
    unsigned digit;
    while ((digit = (unsigned)(unsigned char)*at - '0') <= 9) {
        value = value * 10 + digit;
        at++;
    }
    if (at == *p || at - *p > 18) /* 18 digits always fit */
        return false;
    *out = (int64_t)value;
    *p = at;
    return true;
}

PST_END_DECLS
#endif
