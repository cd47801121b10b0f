/* table.c: rows and fields of a table, line by line. */
#include "common/store/text/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/error.h"
#include "common/store/text/fields.h"

/* The kinds of tables, by the end of the file's name (before .gz or .zst). */
static const struct {
    const char *ending;
    char separator;
} kinds[] = {{".csv", ','}, {".tsv", '\t'}, {".psv", '|'}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* The separator that the file's name stands for; '\0' if the name does not end as a table's. */
static char separator_of(const char *path)
{
    static const char *const packed[] = {".gz", ".zst"};
    size_t n = strlen(path);
    for (int i = 0; i < 2; i++) {
        const size_t k = strlen(packed[i]);
        if (n > k && strcmp(path + n - k, packed[i]) == 0) {
            n -= k;
            break;
        }
    }
    for (int i = 0; i < KINDS; i++) {
        const size_t k = strlen(kinds[i].ending);
        if (n >= k && strncasecmp(path + n - k, kinds[i].ending, k) == 0)
            return kinds[i].separator;
    }
    return '\0';
}

bool pst_table_is_one(const char *path)
{
    return separator_of(path) != '\0';
}

bool pst_table_integer(const struct pst_table_field *f, int64_t *out)
{
    const bool minus = f->bytes > 0 && *f->text == '-';
    const char *p = f->text + minus;
    if (f->bytes == 0 || !pst_text_id(&p, out) || p != f->text + f->bytes)
        return false;
    *out = minus ? -*out : *out;
    return true;
}

bool pst_table_real(const struct pst_table_field *f, double *out)
{
    const char *p = f->text;
    return f->bytes > 0 && pst_text_real(&p, out) && p == f->text + f->bytes;
}

/* The next line that is not blank; NULL in *line: there is none. */
static pst_rc next_line(struct pst_table *t, const char **line)
{
    for (*line = NULL; *line == NULL;) {
        t->text.line += t->begun; /* before the block is read: its errors name this line */
        t->begun = true;
        if (t->at == t->end) {
            pst_rc rc = pst_text_block(&t->text, &t->at, &t->end);
            if (rc != PST_OK || t->at == t->end)
                return rc;
        }
        if (!pst_text_at_end(pst_text_skip_blanks(t->at)))
            *line = t->at;
        t->at = (const char *)rawmemchr(t->at, '\n') + 1;
    }
    return PST_OK;
}

/* Blanks around a field are no part of it, unless tabs separate or quotes hold it. */
static pst_rc take_field(struct pst_table *t, const char **p, char **plain, struct pst_table_field *f)
{
    const char *begin = t->separator == '\t' ? *p : pst_text_skip_blanks(*p);
    const char *end = pst_text_field_end(begin, t->separator);
    if (end == NULL)
        return pst_text_fail(&t->text, t->line, begin, "a closing quote (\")");
    *p = end;
    if (*begin == '"') {
        *f = (struct pst_table_field){*plain, pst_text_unquote(begin, end, *plain)};
        *plain += f->bytes;
        *(*plain)++ = '\n';
        return PST_OK;
    }
    while (t->separator != '\t' && end > begin && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *f = (struct pst_table_field){begin, (size_t)(end - begin)};
    return PST_OK;
}

/* Fields of the present line into t->field. */
static pst_rc take_fields(struct pst_table *t)
{
    const char *p = t->line;
    char *plain = t->plain;
    for (int c = 0; c < t->columns; c++) {
        pst_rc rc = take_field(t, &p, &plain, &t->field[c]);
        if (rc != PST_OK)
            return rc;
        const char *next = pst_text_next_field(p, t->separator);
        if ((next != NULL) == (c + 1 < t->columns)) {
            p = next != NULL ? next : p;
            continue;
        }
        char what[64];
        (void)snprintf(what, sizeof what, "%d columns, as in the first line", t->columns);
        return pst_text_fail(&t->text, t->line, p, what);
    }
    return pst_text_at_end(pst_text_skip_blanks(p))
               ? PST_OK
               : pst_text_fail(&t->text, t->line, p, "a separator or the line's end");
}

static pst_rc count_columns(struct pst_table *t)
{
    const char *p = t->line;
    t->columns = 0;
    while (p != NULL) {
        const char *end =
            pst_text_field_end(t->separator == '\t' ? p : pst_text_skip_blanks(p), t->separator);
        if (end == NULL)
            return pst_text_fail(&t->text, t->line, p, "a closing quote (\")");
        t->columns++;
        p = pst_text_next_field(end, t->separator);
    }
    if (t->columns > PST_TABLE_COLUMNS_MAX)
        return pst_fail(PST_E_LIMIT, "%s: the table has %d columns; at most %d are supported", t->text.path,
                        t->columns, PST_TABLE_COLUMNS_MAX);
    t->field = calloc((size_t)t->columns, sizeof *t->field);
    t->name = calloc((size_t)t->columns, sizeof *t->name);
    t->plain = malloc(PST_TEXT_LINE_MAX + (size_t)t->columns);
    return t->field != NULL && t->name != NULL && t->plain != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate a row", t->text.path);
}

static bool is_name(const struct pst_table_field *f, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strlen(names[i]) == f->bytes && strncasecmp(names[i], f->text, f->bytes) == 0)
            return true;
    return false;
}

/* Whether the first line is a header. */
static pst_rc look_at_first(struct pst_table *t, enum pst_table_header header, const char *const *known)
{
    bool numbers = true;
    t->header = header == PST_TABLE_HEADER_YES;
    for (int c = 0; c < t->columns; c++) {
        double value;
        t->header |= header == PST_TABLE_HEADER_AUTO && is_name(&t->field[c], known);
        numbers &= t->field[c].bytes == 0 || pst_table_real(&t->field[c], &value);
    }
    if (t->header || numbers || header == PST_TABLE_HEADER_NO)
        return PST_OK;
    char what[128] = "numbers, or the name of a column, for example";
    for (int i = 0; known[i] != NULL && i < 3; i++) {
        const size_t used = strlen(what);
        (void)snprintf(what + used, sizeof what - used, "%s %s", i > 0 ? " or" : "", known[i]);
    }
    return pst_text_fail(&t->text, t->line, t->line, what);
}

static pst_rc keep_names(struct pst_table *t)
{
    for (int c = 0; c < t->columns; c++) {
        t->name[c] = strndup(t->field[c].text, t->field[c].bytes);
        if (t->name[c] == NULL)
            return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate the names of columns",
                            t->text.path);
        for (int before = 0; before < c; before++)
            if (t->name[c][0] != '\0' && strcasecmp(t->name[before], t->name[c]) == 0)
                return pst_fail(PST_E_FORMAT, "%s: two columns have the name '%s'", t->text.path, t->name[c]);
    }
    return PST_OK;
}

pst_rc pst_table_open(struct pst_table *t, const char *path, enum pst_table_header header,
                      const char *const *known)
{
    const char separator = separator_of(path);
    *t = (struct pst_table){.text = {.fd = -1}, .separator = separator != '\0' ? separator : ','};
    pst_rc rc = pst_text_open(&t->text, path);
    if (rc == PST_OK)
        rc = next_line(t, &t->line);
    if (rc == PST_OK && t->line == NULL)
        rc = pst_fail(PST_E_FORMAT, "%s: expected a table, found an empty file", path);
    if (rc == PST_OK)
        rc = count_columns(t);
    if (rc == PST_OK)
        rc = take_fields(t);
    if (rc == PST_OK)
        rc = look_at_first(t, header, known);
    if (rc == PST_OK && t->header)
        rc = keep_names(t);
    t->pending = !t->header;
    return rc;
}

pst_rc pst_table_next(struct pst_table *t, bool *more)
{
    pst_rc rc = PST_OK;
    if (!t->pending) {
        rc = next_line(t, &t->line);
        if (rc == PST_OK && t->line != NULL)
            rc = take_fields(t);
    }
    t->pending = false;
    *more = rc == PST_OK && t->line != NULL;
    t->rows += *more;
    return rc;
}

int pst_table_column(const struct pst_table *t, const char *const *names)
{
    for (int i = 0; t->header && names[i] != NULL; i++)
        for (int c = 0; c < t->columns; c++)
            if (strcasecmp(t->name[c], names[i]) == 0)
                return c;
    return -1;
}

void pst_table_names(const struct pst_table *t, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (int c = 0; t->header && c < t->columns && used < room; c++)
        used += (size_t)snprintf(out + used, room - used, "%s%s", c > 0 ? ", " : "", t->name[c]);
}

pst_rc pst_table_fail(const struct pst_table *t, int column, const char *what)
{
    const struct pst_table_field *f = &t->field[column];
    char name[64];
    if (t->header)
        (void)snprintf(name, sizeof name, "%s", t->name[column]);
    else
        (void)snprintf(name, sizeof name, "column %d", column);
    return pst_fail(PST_E_FORMAT, "%s:%" PRId64 ": %s: expected %s, found '%.*s'", t->text.path, t->text.line,
                    name, what, (int)pst_min_i64(64, (int64_t)f->bytes), f->text);
}

void pst_table_close(struct pst_table *t)
{
    pst_text_close(&t->text);
    for (int c = 0; t->name != NULL && c < t->columns; c++)
        free(t->name[c]);
    free(t->name);
    free(t->field);
    free(t->plain);
    *t = (struct pst_table){.text = {.fd = -1}};
}
