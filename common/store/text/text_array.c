/* text_array.c: writes the numbers of text lines to an array file. */
#include "common/store/text/text_array.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/text/text.h"

#define ROWS_UNKNOWN (INT64_MAX / 8 / PST_TEXT_COLUMNS_MAX / 2)

struct reading {
    const struct pst_text_array_spec *spec;
    struct pst_text text;
    struct pst_array_writer w;
    bool begun;
    int64_t rows, columns;
    enum pst_dtype dtype;
    union {
        int64_t *id;
        double *f64;
        float *f32;
        void *any;
    } row;
};

static const char *blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static bool at_end(const char *p)
{
    return *p == '\n' || (*p == '\r' && p[1] == '\n');
}

static pst_rc one_id(struct reading *r, const char *line, const char **p, int64_t column)
{
    const char *at = *p;
    char what[64];
    (void)snprintf(what, sizeof what, "an integer from 0 to %" PRId64, r->spec->limit - 1);
    if (!pst_text_id(p, &r->row.id[column]) || r->row.id[column] >= r->spec->limit)
        return pst_text_fail(&r->text, line, at, what);
    return PST_OK;
}

static pst_rc one_real(struct reading *r, const char *line, const char **p, int64_t column)
{
    const char *at = *p;
    double value;
    if (r->spec->may_be_nan && (*at == ',' || at_end(at))) {
        r->row.f64[column] = (double)NAN; /* pandas writes nothing for NaN */
        return PST_OK;
    }
    if (!pst_text_real(p, &value) || isinf(value) || (isnan(value) && !r->spec->may_be_nan) ||
        (r->dtype == PST_F32 && isinf((float)value)))
        return pst_text_fail(&r->text, line, at, r->spec->may_be_nan ? "a number or nan" : "a finite number");
    if (r->dtype == PST_F64)
        r->row.f64[column] = value;
    else
        r->row.f32[column] = (float)value;
    return PST_OK;
}

/* The first line says how many columns there are. */
static pst_rc begin(struct reading *r, const char *line)
{
    r->columns = r->spec->columns;
    if (r->columns < 0) {
        r->columns = 1;
        bool comma = memchr(line, ',', (size_t)((const char *)rawmemchr(line, '\n') - line)) != NULL;
        for (const char *p = blanks(line); !at_end(p) && *p != '\n'; p++)
            r->columns +=
                comma ? *p == ','
                      : (*p == ' ' || *p == '\t') && !at_end(blanks(p)) && p[1] != ' ' && p[1] != '\t';
    }
    if (r->columns > PST_TEXT_COLUMNS_MAX)
        return pst_fail(PST_E_LIMIT, "%s: the first line has %" PRId64 " columns; at most %d are supported",
                        r->text.path, r->columns, PST_TEXT_COLUMNS_MAX);
    r->row.any = malloc((size_t)r->columns * 8);
    if (r->row.any == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate a row", r->text.path);
    const int64_t shape[2] = {r->spec->rows >= 0 ? r->spec->rows : ROWS_UNKNOWN, r->columns};
    r->begun = true;
    return pst_array_writer_init(&r->w, r->spec->to, r->dtype, 2, shape);
}

static pst_rc one_line(struct reading *r, const char *line)
{
    const char *p = blanks(line);
    if (at_end(p) && !r->spec->may_be_nan)
        return pst_text_fail(&r->text, line, p, "numbers");
    pst_rc rc = r->begun ? PST_OK : begin(r, line);
    if (rc == PST_OK && r->spec->rows >= 0 && r->rows == r->spec->rows)
        rc = pst_fail(PST_E_FORMAT, "%s:%" PRId64 ": expected %" PRId64 " lines, but the file has more",
                      r->text.path, r->text.line, r->spec->rows);
    for (int64_t c = 0; c < r->columns && rc == PST_OK; c++) {
        p = blanks(p);
        rc = r->spec->integers ? one_id(r, line, &p, c) : one_real(r, line, &p, c);
        if (rc != PST_OK)
            break;
        const char *end = p;
        p = blanks(p);
        bool separated = *p == ',' || (p > end && !at_end(p));
        p += *p == ',';
        if (c + 1 < r->columns ? !separated : !at_end(p)) {
            char what[64];
            (void)snprintf(what, sizeof what, "%" PRId64 " columns of numbers", r->columns);
            return pst_text_fail(&r->text, line, end, what);
        }
    }
    r->rows++;
    return rc == PST_OK ? pst_array_write(&r->w, r->row.any, (size_t)r->columns * pst_dtype_bytes(r->dtype))
                        : rc;
}

static pst_rc all_lines(struct reading *r, struct pst_progress *progress)
{
    for (uint64_t told = 0;;) {
        const char *p, *end;
        pst_rc rc = pst_text_block(&r->text, &p, &end);
        if (rc != PST_OK || p == end)
            return rc;
        for (; p < end; p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1, r->text.line++)
            if ((rc = one_line(r, p)) != PST_OK)
                return rc;
        if ((rc = pst_progress_add(progress, r->text.file_at - told)) != PST_OK)
            return rc;
        told = r->text.file_at;
    }
}

pst_rc pst_text_array(const struct pst_text_array_spec *spec, int64_t *rows, struct pst_progress *progress)
{
    struct reading r = {.spec = spec, .text = {.fd = -1}, .w = {.fd = -1}};
    r.dtype = spec->integers ? PST_I64 : spec->may_be_nan ? PST_F64 : PST_F32;
    uint64_t checksum;
    pst_rc rc = pst_text_open(&r.text, spec->path);
    pst_progress_begin(progress, "text: reading", r.text.file_bytes, true);
    if (rc == PST_OK)
        rc = all_lines(&r, progress);
    if (rc == PST_OK && !r.begun && spec->may_be_empty)
        rc = begin(&r, "");
    if (rc == PST_OK && (!r.begun || (spec->rows >= 0 && r.rows != spec->rows)))
        rc = spec->rows < 0
                 ? pst_fail(PST_E_FORMAT, "%s: expected at least one line, found none", spec->path)
                 : pst_fail(PST_E_FORMAT,
                            "%s: expected %" PRId64 " lines, found %" PRId64 ": is the file truncated?",
                            spec->path, spec->rows, r.rows);
    if (rc == PST_OK)
        rc = pst_array_writer_shrink(&r.w, r.rows);
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&r.w, &checksum);
    if (rc == PST_OK)
        pst_progress_end(progress);
    if (rows != NULL)
        *rows = r.rows;
    pst_array_writer_release(&r.w);
    pst_text_close(&r.text);
    free(r.row.any);
    return rc;
}
