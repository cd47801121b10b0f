/* name_map.c: reads lines of NAME and NUMBER, and writes the names in order of the numbers. */
#include "common/store/names/name_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/text/text.h"
#include "common/util/utf8.h"

struct reading {
    const struct pst_name_map_spec *spec;
    struct pst_text text;
    int64_t n, found;      /* n: -1 before the count */
    struct pst_dict names; /* in the file's order */
    int64_t *place;        /* of each number: where its name's record is; -1: none yet */
    int64_t *ids;          /* in place of names */
    bool no_integer;
    int64_t carriage_returns;
};

static const char *blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static const char *line_end(const char *line)
{
    const char *end = rawmemchr(line, '\n');
    return end > line && end[-1] == '\r' ? end - 1 : end;
}

static pst_rc make_place(struct reading *r)
{
    uint64_t bound = r->ids != NULL ? UINT64_MAX : r->names.memory_bytes;
    if ((uint64_t)r->n * sizeof *r->place > bound)
        return pst_fail(PST_E_LIMIT, "%s: %" PRId64 " names do not fit in memory: increase --memory",
                        r->text.path, r->n);
    r->place = malloc((size_t)(r->n + 1) * sizeof *r->place);
    if (r->place == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate %" PRId64 " names", r->text.path,
                        r->n);
    memset(r->place, 0xff, (size_t)(r->n + 1) * sizeof *r->place);
    return PST_OK;
}

static pst_rc read_count(struct reading *r, const char *line)
{
    const char *p = blanks(line);
    if (!pst_text_id(&p, &r->n) || r->n > PST_NAME_MAP_MAX || blanks(p) < line_end(line))
        return pst_text_fail(&r->text, line, line, "the number of names, and nothing else");
    return make_place(r);
}

/* The bytes of the name; the number is behind them. */
static pst_rc find_name(struct reading *r, const char *line, const char *end, size_t *bytes)
{
    const char *sep = r->spec->separator == ',' ? memrchr(line, ',', (size_t)(end - line))
                                                : memchr(line, r->spec->separator, (size_t)(end - line));
    if (sep == NULL)
        return pst_text_fail(&r->text, line, line,
                             r->spec->separator == ',' ? "a name, a comma and its number"
                                                       : "a name, a tab and its number");
    *bytes = (size_t)(sep - line);
    size_t valid = pst_utf8_valid(line, *bytes);
    if (*bytes == 0 || *bytes > PST_NAMES_BYTES_MAX)
        return pst_text_fail(&r->text, line, line, "a name of 1 to 65535 bytes");
    if (valid < *bytes || memchr(line, '\0', *bytes) != NULL)
        return pst_text_fail(&r->text, line, line + (valid < *bytes ? valid : 0), "UTF-8 text");
    return PST_OK;
}

static pst_rc take_name(struct reading *r, const char *line, size_t bytes, int64_t number)
{
    const int64_t before = r->names.n, record = (int64_t)r->names.used;
    int64_t k = 0;
    if (r->ids != NULL) {
        const char *p = line;
        r->no_integer |= !pst_text_id(&p, &r->ids[number]) || p != line + bytes;
        r->place[number] = 0;
        return PST_OK;
    }
    pst_rc rc = pst_dict_add(&r->names, line, bytes, &k);
    if (rc != PST_OK)
        return pst_wrap(rc, "%s:%" PRId64, r->text.path, r->text.line);
    if (k < before)
        return pst_text_fail(&r->text, line, line, "a name that has not occurred before");
    r->place[number] = record;
    return PST_OK;
}

static pst_rc read_line(struct reading *r, const char *line)
{
    const char *end = line_end(line);
    r->carriage_returns += *end == '\r';
    size_t bytes = 0;
    int64_t number;
    if (r->n < 0)
        return read_count(r, line);
    pst_rc rc = find_name(r, line, end, &bytes);
    if (rc != PST_OK)
        return rc;
    const char *at = blanks(line + bytes + 1), *p = at;
    char what[80];
    (void)snprintf(what, sizeof what, "a number from 0 to %" PRId64 " that no other name has", r->n - 1);
    if (!pst_text_id(&p, &number) || number >= r->n || r->place[number] >= 0 || blanks(p) < end)
        return pst_text_fail(&r->text, line, at, what);
    r->found++;
    return take_name(r, line, bytes, number);
}

static pst_rc read_lines(struct reading *r)
{
    for (;;) {
        const char *p, *end;
        pst_rc rc = pst_text_block(&r->text, &p, &end);
        if (rc != PST_OK || p == end)
            return rc;
        for (; p < end && !r->no_integer;
             p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1, r->text.line++)
            if ((rc = read_line(r, p)) != PST_OK)
                return rc;
        if (r->no_integer)
            return PST_OK;
    }
}

static void tell_repairs(const struct reading *r)
{
    if (r->text.bom)
        pst_problem(r->spec->warnings, "%s: a byte order mark was skipped", r->spec->path);
    if (r->carriage_returns > 0)
        pst_problem(r->spec->warnings,
                    "%s: %" PRId64 " lines end with CR LF; the CR is not part of the names", r->spec->path,
                    r->carriage_returns);
}

static pst_rc read_file(struct reading *r)
{
    pst_rc rc = pst_text_open(&r->text, r->spec->path);
    r->n = r->spec->counted ? -1 : r->spec->n;
    if (rc == PST_OK && !r->spec->counted)
        rc = make_place(r);
    if (rc == PST_OK)
        rc = read_lines(r);
    if (rc == PST_OK && r->n < 0)
        rc = pst_fail(PST_E_FORMAT, "%s: expected a first line with the number of names, found an empty file",
                      r->spec->path);
    if (rc == PST_OK && !r->no_integer)
        tell_repairs(r);
    const char *as = r->spec->counted ? ", as in its first line" : "";
    if (rc == PST_OK && r->found != r->n && !r->no_integer)
        rc = pst_fail(PST_E_FORMAT, "%s: expected %" PRId64 " names%s, found %" PRId64, r->spec->path, r->n,
                      as, r->found);
    pst_text_close(&r->text);
    return rc;
}

pst_rc pst_name_map_read(const struct pst_name_map_spec *spec, struct pst_dict *out)
{
    struct reading r = {.spec = spec, .text = {.fd = -1}};
    assert(out->n == 0);
    pst_dict_init(&r.names, out->memory_bytes);
    pst_rc rc = read_file(&r);
    for (int64_t id = 0; rc == PST_OK && id < r.n; id++) {
        uint64_t record = (uint64_t)r.place[id];
        int64_t number;
        const struct pst_name name = pst_dict_name(&r.names, &record);
        rc = pst_dict_add(out, name.text, name.bytes, &number);
    }
    free(r.place);
    pst_dict_release(&r.names);
    return rc;
}

pst_rc pst_name_map_read_ids(const struct pst_name_map_spec *spec, int64_t *ids, bool *integers)
{
    struct reading r = {.spec = spec, .text = {.fd = -1}, .ids = ids};
    pst_rc rc = read_file(&r);
    *integers = !r.no_integer;
    free(r.place);
    return rc;
}
