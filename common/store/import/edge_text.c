/* edge_text.c: edges from lines of text: a fast way for "1,2", a careful one for everything else. */
#include "common/store/import/edge_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/import/edge_names.h"
#include "common/store/import/import.h"
#include "common/store/text/fields.h"
#include "common/util/utf8.h"

pst_rc pst_edge_text_init(struct pst_edge_text *e, const struct pst_edge_text_spec *spec)
{
    *e = (struct pst_edge_text){.spec = *spec, .text = {.fd = -1}};
    assert(spec->by != PST_EDGE_TEXT_BY_FORMAT);
    e->separator = spec->by == PST_EDGE_TEXT_BY_CHARACTER ? spec->separator : PST_TEXT_BLANKS;
    assert(spec->column[0] != spec->column[1] && spec->column[0] < PST_EDGE_TEXT_COLUMNS_MAX &&
           spec->column[1] < PST_EDGE_TEXT_COLUMNS_MAX);
    pst_rank_init(&e->rank, spec->memory_bytes);
    e->ranked = spec->ids != PST_EDGE_TEXT_IDS_STRINGS;
    e->source = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *e->source);
    e->target = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *e->target);
    e->weight = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *e->weight);
    return e->source != NULL && e->target != NULL && e->weight != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of edges");
}

void pst_edge_text_release(struct pst_edge_text *e)
{
    pst_text_close(&e->text);
    pst_rank_release(&e->rank);
    pst_edge_names_free(e->names);
    free(e->source);
    free(e->target);
    free(e->weight);
}

static pst_rc field_must_end(struct pst_edge_text *e, const char *line, const char *end, const char *what)
{
    if (!pst_text_at_end(end) && pst_text_next_field(end, e->separator) == NULL &&
        !pst_text_at_end(pst_text_skip_blanks(end)))
        return pst_text_fail(&e->text, line, end, what);
    return PST_OK;
}

static pst_rc read_integer(struct pst_edge_text *e, const char *line, const char **p, int64_t *id)
{
    *p = e->separator == '\t' ? *p : pst_text_skip_blanks(*p);
    const char *at = *p;
    const bool quoted = *at == '"' && e->separator != PST_TEXT_BLANKS;
    *p += quoted;
    if (!pst_text_id(p, id) || (quoted && *(*p)++ != '"'))
        return pst_text_fail(&e->text, line, at, "an id, an integer of at most 18 digits");
    if (*id >= e->limit) {
        char what[64];
        (void)snprintf(what, sizeof what, "an id from 0 to %" PRId64, e->limit - 1);
        return pst_text_fail(&e->text, line, at, what);
    }
    return field_must_end(e, line, *p, "the end of an id");
}

static pst_rc read_weight(struct pst_edge_text *e, const char *line, const char **p)
{
    *p = e->separator == '\t' ? *p : pst_text_skip_blanks(*p);
    const char *at = *p;
    const bool quoted = *at == '"' && e->separator != PST_TEXT_BLANKS;
    double x;
    *p += quoted;
    if (!pst_text_real(p, &x) || (quoted && *(*p)++ != '"') || !pst_csc_builder_weight(x, &e->weight[e->n]))
        return pst_text_fail(&e->text, line, at, "a weight, a number of 0 or more that fits float32");
    return field_must_end(e, line, *p, "the end of a weight");
}

/* Quotes are taken off, in a copy. */
static pst_rc read_name(struct pst_edge_text *e, const char *line, const char **p)
{
    const char *begin = *p, *end = pst_text_field_end(begin, e->separator);
    if (end == NULL)
        return pst_text_fail(&e->text, line, begin, "a closing quote (\")");
    size_t bytes = (size_t)(end - begin);
    if (bytes == 0 || bytes > PST_NAMES_BYTES_MAX)
        return pst_text_fail(&e->text, line, begin, "a name of 1 to 65535 bytes");
    size_t valid = pst_utf8_valid(begin, bytes);
    if (valid < bytes)
        return pst_text_fail(&e->text, line, begin + valid, "UTF-8");
    *p = end;
    if (*begin == '"' && e->separator != PST_TEXT_BLANKS) {
        char *plain = e->names->plain + e->names->plain_fill;
        bytes = pst_text_unquote(begin, end, plain);
        begin = plain;
        e->names->plain_fill += bytes;
    }
    if (memchr(begin, '\0', bytes) != NULL)
        return pst_text_fail(&e->text, line, *p, "a name without NUL bytes");
    pst_edge_names_put(e->names, begin, bytes);
    return PST_OK;
}

static pst_rc read_column(struct pst_edge_text *e, const char *line, const char **p, int64_t *id)
{
    return e->spec.ids == PST_EDGE_TEXT_IDS_STRINGS ? read_name(e, line, p) : read_integer(e, line, p, id);
}

/* Any columns, quotes, names. */
static pst_rc read_columns(struct pst_edge_text *e, const char *line)
{
    const char *p = e->separator == PST_TEXT_BLANKS ? pst_text_skip_blanks(line) : line;
    int64_t last = pst_max_i64(e->spec.column[0], e->spec.column[1]);
    if (e->spec.weighted)
        last = pst_max_i64(last, e->spec.weight_column);
    for (int64_t column = 0; column <= last; column++) {
        pst_rc rc = PST_OK;
        if (column == e->spec.column[0])
            rc = read_column(e, line, &p, &e->source[e->n]);
        else if (column == e->spec.column[1])
            rc = read_column(e, line, &p, &e->target[e->n]);
        else if (e->spec.weighted && column == e->spec.weight_column)
            rc = read_weight(e, line, &p);
        else if ((p = pst_text_field_end(p, e->separator)) == NULL)
            return pst_text_fail(&e->text, line, line, "a closing quote (\")");
        if (rc != PST_OK)
            return rc;
        const char *next = pst_text_next_field(p, e->separator);
        if (next != NULL && e->separator == PST_TEXT_BLANKS && pst_text_at_end(next))
            next = NULL; /* blanks at the end of a line separate nothing */
        if (column == last) {
            e->more_columns += next != NULL;
            const char *newline = rawmemchr(p, '\n');
            e->carriage_returns += newline > p && newline[-1] == '\r';
        } else if (next == NULL) {
            char what[64];
            (void)snprintf(what, sizeof what, "at least %" PRId64 " columns", last + 1);
            return pst_text_fail(&e->text, line, p, what);
        } else {
            p = next;
        }
    }
    e->n++;
    return PST_OK;
}

/* "1,2\n" and nothing else; false: the careful way must look at it. */
static inline bool read_fast(struct pst_edge_text *e, const char **line)
{
    const char *p = *line;
    int64_t a, b;
    if (!pst_text_id(&p, &a))
        return false;
    if (e->separator != PST_TEXT_BLANKS ? *p != e->separator : *p != ' ' && *p != '\t')
        return false;
    p++;
    if (!pst_text_id(&p, &b) || a >= e->limit || b >= e->limit)
        return false;
    bool carriage = *p == '\r';
    p += carriage;
    if (*p != '\n')
        return false;
    bool swap = e->spec.column[0] == 1;
    e->source[e->n] = swap ? b : a;
    e->target[e->n] = swap ? a : b;
    e->n++;
    e->carriage_returns += carriage;
    *line = p + 1;
    return true;
}

/* Whether a field looks like a column's name: it begins with a letter, also in quotes. */
static bool is_word(const char *p)
{
    p = pst_text_skip_blanks(p);
    p += *p == '"';
    return (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || *p == '_' || *p == ':' ||
           (unsigned char)*p >= 0x80;
}

/* A line of text has no control characters: what looks like a header may be the beginning of some other file.
 */
static bool is_text(const char *line)
{
    const char *p = line;
    while ((unsigned char)*p >= ' ' || *p == '\t')
        p++;
    return pst_text_at_end(p) && pst_utf8_valid(line, (size_t)(p - line)) == (size_t)(p - line);
}

/* The field of a column; NULL: the line has not so many. */
static const char *field_of(const struct pst_edge_text *e, const char *line, int64_t column)
{
    const char *p = line;
    for (int64_t c = 0; c < column && p != NULL; c++) {
        p = pst_text_field_end(p, e->separator);
        p = p != NULL ? pst_text_next_field(p, e->separator) : NULL;
    }
    return p;
}

/* Whether the first line that is not a comment names columns. */
static bool is_header(struct pst_edge_text *e, const char *line)
{
    if (e->spec.header != PST_EDGE_TEXT_HEADER_AUTO)
        return e->spec.header == PST_EDGE_TEXT_HEADER_YES;
    if (e->spec.ids == PST_EDGE_TEXT_IDS_STRINGS || e->separator == PST_TEXT_BLANKS)
        return false;
    const char *source = field_of(e, line, e->spec.column[0]), *target = field_of(e, line, e->spec.column[1]);
    return source != NULL && target != NULL && is_word(source) && is_word(target) && is_text(line);
}

static pst_rc flush(struct pst_edge_text *e, struct pst_csc_builder *csc)
{
    if (e->spec.ids == PST_EDGE_TEXT_IDS_STRINGS) {
        e->edges += e->n;
        e->n = 0;
        return pst_edge_names_flush(e->names, e->spec.weighted ? e->weight : NULL);
    }
    if (e->ranked) {
        pst_rc rc = pst_rank_add(&e->rank, e->source, e->n);
        if (rc == PST_OK)
            rc = pst_rank_add(&e->rank, e->target, e->n);
        if (rc != PST_OK && e->spec.ids == PST_EDGE_TEXT_IDS_COMPACT)
            return pst_wrap(rc, "%s", e->text.path);
        e->ranked = rc == PST_OK; /* to count gaps is a courtesy */
    }
    pst_rc rc = pst_csc_builder_add(csc, e->source, e->target, e->spec.weighted ? e->weight : NULL, e->n);
    e->edges += e->n;
    e->n = 0;
    return rc;
}

static pst_rc careful_line(struct pst_edge_text *e, const char *line)
{
    const char *p = pst_text_skip_blanks(line);
    if (pst_text_at_end(p)) {
        e->blank_lines++;
        return PST_OK;
    }
    if (e->spec.comment != '\0' && *p == e->spec.comment) {
        e->comments++;
        return PST_OK;
    }
    if (!e->begun) {
        e->begun = true;
        if (is_header(e, line)) {
            e->header_skipped = true;
            return PST_OK;
        }
    }
    return read_columns(e, line);
}

static pst_rc read_block(struct pst_edge_text *e, struct pst_csc_builder *csc, const char *p, const char *end)
{
    const bool named = e->spec.ids == PST_EDGE_TEXT_IDS_STRINGS;
    bool simple = !named && !e->spec.weighted && e->spec.column[0] <= 1 && e->spec.column[1] <= 1;
    while (p < end) {
        if (named ? pst_edge_names_full(e->names) : e->n == PST_CSC_BUILDER_EDGE_BLOCK) {
            pst_rc rc = flush(e, csc);
            if (rc != PST_OK)
                return rc;
        }
        if (!simple || !e->begun || !read_fast(e, &p)) {
            pst_rc rc = careful_line(e, p);
            if (rc != PST_OK)
                return rc;
            p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
        }
        e->text.line++;
    }
    return named ? flush(e, csc) : PST_OK; /* the text is about to go */
}

static pst_rc number_vertices(struct pst_edge_text *e, struct pst_csc_builder *csc, int64_t *vertices)
{
    pst_rc rc = e->ranked ? pst_rank_ready(&e->rank) : PST_OK;
    if (rc != PST_OK)
        return rc;
    const bool compact = e->spec.ids == PST_EDGE_TEXT_IDS_COMPACT;
    const int64_t found = compact ? e->rank.members : pst_csc_builder_largest(csc) + 1;
    if (compact)
        pst_csc_builder_renumber(csc, &e->rank);
    if (compact && *vertices >= 0 && *vertices != found)
        return pst_fail(PST_E_FORMAT, "%s: expected %" PRId64 " vertices, found %" PRId64 " ids",
                        e->spec.path, *vertices, found);
    if (*vertices < 0)
        *vertices = found;
    if (e->ranked)
        e->unused_ids = *vertices - e->rank.members;
    return PST_OK;
}

/* ---- to be resumed: not where ids are compacted, for which ids occur is not kept ---- */

static json_t *state_of(void *ctx)
{
    const struct pst_edge_text *e = ctx;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b}", "at", (json_int_t)e->at, "line",
                     (json_int_t)e->text.line, "edges", (json_int_t)e->edges, "comments",
                     (json_int_t)e->comments, "blank_lines", (json_int_t)e->blank_lines, "carriage_returns",
                     (json_int_t)e->carriage_returns, "more_columns", (json_int_t)e->more_columns,
                     "header_skipped", e->header_skipped, "bom", e->bom, "begun", e->begun);
}

/* Before the first line. */
static void at_begin(struct pst_edge_text *e)
{
    e->bom = e->text.bom;
    e->at = e->bom ? 3 : 0;
}

static pst_rc go_on(struct pst_edge_text *e, const struct pst_csc_builder *csc)
{
    const struct {
        const char *key;
        int64_t *to;
    } counts[] = {{"edges", &e->edges},
                  {"comments", &e->comments},
                  {"blank_lines", &e->blank_lines},
                  {"carriage_returns", &e->carriage_returns},
                  {"more_columns", &e->more_columns}};
    const json_t *o = pst_csc_builder_state(csc);
    at_begin(e);
    if (o == NULL)
        return PST_OK;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i].to = (int64_t)json_integer_value(json_object_get(o, counts[i].key));
    e->header_skipped = json_is_true(json_object_get(o, "header_skipped"));
    e->begun = json_is_true(json_object_get(o, "begun"));
    e->at = (uint64_t)json_integer_value(json_object_get(o, "at"));
    e->ranked = false; /* which ids occur is not known: to count gaps is a courtesy */
    return pst_text_seek(&e->text, e->at, (int64_t)json_integer_value(json_object_get(o, "line")));
}

static pst_rc read_text(struct pst_edge_text *e, struct pst_csc_builder *csc, struct pst_progress *progress)
{
    pst_rc rc = PST_OK;
    for (uint64_t told = 0; rc == PST_OK;) {
        const char *p, *end;
        if ((rc = pst_text_block(&e->text, &p, &end)) != PST_OK || p == end)
            break;
        e->at += (uint64_t)(end - p);
        if ((rc = read_block(e, csc, p, end)) != PST_OK)
            return rc;
        if ((rc = pst_progress_add(progress, e->text.file_at - told)) != PST_OK)
            return rc;
        told = e->text.file_at;
        if (!pst_csc_builder_due(csc))
            continue;
        if ((rc = flush(e, csc)) == PST_OK)
            rc = e->names != NULL ? pst_edge_names_checkpoint(e->names, PST_CSC_BUILDER_NOW)
                                  : pst_csc_builder_checkpoint(csc, state_of(e), PST_CSC_BUILDER_NOW);
    }
    return rc == PST_OK ? flush(e, csc) : rc;
}

static pst_rc open_again(struct pst_edge_text *e)
{
    pst_text_close(&e->text);
    return pst_text_open(&e->text, e->spec.path);
}

/* Reads the edges before csc's state again, as far as that must be, and goes to where the reading ended. */
static pst_rc replay(struct pst_edge_text *e, struct pst_csc_builder *csc)
{
    const uint64_t stop = e->at;
    pst_rc rc = open_again(e);
    e->begun = false;
    at_begin(e);
    while (rc == PST_OK && e->at < stop && !pst_edge_names_replayed(e->names)) {
        const char *p, *end;
        if ((rc = pst_text_block(&e->text, &p, &end)) != PST_OK || p == end)
            break;
        end = (uint64_t)(end - p) > stop - e->at ? p + (stop - e->at) : end;
        e->at += (uint64_t)(end - p);
        rc = read_block(e, csc, p, end);
    }
    if (rc == PST_OK)
        rc = pst_edge_names_go_on(e->names);
    if (rc == PST_OK)
        rc = open_again(e);
    return rc == PST_OK ? go_on(e, csc) : rc;
}

static pst_rc begin_names(struct pst_edge_text *e, struct pst_csc_builder *csc, struct pst_progress *progress)
{
    const struct pst_edge_names_spec spec = {.csc = csc,
                                             .progress = progress,
                                             .memory_bytes = e->spec.memory_bytes,
                                             .hash_bits = e->spec.name_hash_bits,
                                             .swapped = e->spec.column[0] > e->spec.column[1],
                                             .state = state_of,
                                             .ctx = e,
                                             .path = e->spec.path};
    pst_rc rc = pst_edge_names_new(&e->names, &spec);
    return rc == PST_OK && e->names->text_again ? replay(e, csc) : rc;
}

static pst_rc read_edges(struct pst_edge_text *e, struct pst_csc_builder *csc, int64_t vertices,
                         struct pst_progress *progress)
{
    pst_progress_begin(progress, "edges: reading", e->text.file_bytes, true);
    pst_rc rc = read_text(e, csc, progress);
    if (rc != PST_OK)
        return rc;
    pst_progress_end(progress);
    if (e->edges == 0 && vertices < 0)
        return pst_fail(PST_E_FORMAT, "%s: expected edges, but none of its %" PRId64 " lines holds one",
                        e->spec.path, e->text.line - 1);
    if (e->spec.expect >= 0 && e->edges != e->spec.expect)
        return pst_fail(PST_E_FORMAT, "%s: expected %" PRId64 " edges, found %" PRId64, e->spec.path,
                        e->spec.expect, e->edges);
    return PST_OK;
}

static pst_rc feed_names(struct pst_edge_text *e, struct pst_csc_builder *csc, int64_t *vertices,
                         struct pst_progress *progress)
{
    pst_rc rc = begin_names(e, csc, progress);
    if (rc == PST_OK && !pst_edge_names_read(e->names))
        rc = read_edges(e, csc, *vertices, progress);
    if (rc == PST_OK)
        rc = pst_edge_names_finish(e->names, vertices);
    pst_edge_names_free(e->names);
    e->names = NULL;
    return rc;
}

/* Where the header has a column of this name; -1: nowhere. */
static int64_t find_column(const struct pst_edge_text *e, const char *line, const char *name)
{
    const size_t n = strlen(name);
    int64_t column = 0;
    for (const char *p = pst_text_skip_blanks(line); p != NULL; column++) {
        const char *end = pst_text_field_end(p, e->separator);
        if (end == NULL)
            return -1;
        const bool quoted = *p == '"' && end - p >= 2;
        if ((size_t)(end - p) == n + 2 * quoted && memcmp(p + quoted, name, n) == 0)
            return column;
        p = pst_text_next_field(end, e->separator);
        p = p != NULL && e->separator != '\t' ? pst_text_skip_blanks(p) : p;
    }
    return -1;
}

static pst_rc weight_apart(const struct pst_edge_text *e)
{
    const struct pst_edge_text_spec *s = &e->spec;
    if (s->weighted && (s->weight_column == s->column[0] || s->weight_column == s->column[1]))
        return pst_fail(PST_E_ARG,
                        "--weight-column: column %" PRId64
                        " is already that of the %s: choose another, or choose those with --columns S,T",
                        s->weight_column, s->weight_column == s->column[0] ? "source" : "target");
    return PST_OK;
}

/* Columns that the user named: the first line that is no comment says where they are. */
static pst_rc resolve_columns(struct pst_edge_text *e)
{
    struct pst_text t;
    const char *p, *end;
    const bool named[3] = {e->spec.column_name[0][0] != '\0', e->spec.column_name[1][0] != '\0',
                           e->spec.weighted && e->spec.weight_name[0] != '\0'};
    int64_t *const column[3] = {&e->spec.column[0], &e->spec.column[1], &e->spec.weight_column};
    const char *const name[3] = {e->spec.column_name[0], e->spec.column_name[1], e->spec.weight_name};
    if (!named[0] && !named[2])
        return weight_apart(e);
    e->spec.header = PST_EDGE_TEXT_HEADER_YES;
    pst_rc rc = pst_text_open(&t, e->spec.path);
    if (rc == PST_OK)
        rc = pst_text_block(&t, &p, &end);
    while (rc == PST_OK && p < end &&
           (pst_text_at_end(pst_text_skip_blanks(p)) ||
            (e->spec.comment != '\0' && *pst_text_skip_blanks(p) == e->spec.comment))) {
        p = (const char *)rawmemchr(p, '\n') + 1;
        t.line++;
    }
    for (int i = 0; i < 3 && rc == PST_OK; i++) {
        char what[PST_NAME_MAX + 32];
        if (!named[i])
            continue;
        *column[i] = p < end ? find_column(e, p, name[i]) : -1;
        (void)snprintf(what, sizeof what, "a column named %s", name[i]);
        if (*column[i] < 0 || *column[i] >= PST_EDGE_TEXT_COLUMNS_MAX)
            rc = p < end ? pst_text_fail(&t, p, p, what)
                         : pst_fail(PST_E_FORMAT, "%s: expected %s", t.path, what);
    }
    pst_text_close(&t);
    return rc == PST_OK ? weight_apart(e) : rc;
}

pst_rc pst_edge_text_feed(void *ctx, struct pst_csc_builder *csc, int64_t *vertices,
                          struct pst_progress *progress)
{
    struct pst_edge_text *e = ctx;
    e->limit = e->spec.ids == PST_EDGE_TEXT_IDS_KEEP && *vertices >= 0 ? *vertices : PST_CSC_BUILDER_ID_MAX;
    pst_rc rc = resolve_columns(e);
    if (rc == PST_OK)
        rc = pst_text_open(&e->text, e->spec.path);
    if (rc == PST_OK)
        rc = go_on(e, csc);
    if (rc == PST_OK && e->spec.ids == PST_EDGE_TEXT_IDS_STRINGS)
        return pst_csc_builder_phase(csc) == PST_CSC_BUILDER_READING
                   ? feed_names(e, csc, vertices, progress)
                   : pst_edge_names_had(pst_csc_builder_spec_of(csc)->build, vertices);
    if (rc == PST_OK && pst_csc_builder_phase(csc) == PST_CSC_BUILDER_READING) {
        rc = read_edges(e, csc, *vertices, progress);
        if (rc == PST_OK)
            rc = pst_csc_builder_checkpoint(csc, state_of(e), PST_CSC_BUILDER_LAST);
    }
    return rc == PST_OK ? number_vertices(e, csc, vertices) : rc;
}

/* The ids that occurred, ascending: what vertex k was called. */
static pst_rc write_ids(const struct pst_rank *r, struct pst_build *b)
{
    const int64_t shape[2] = {r->members, 1};
    struct pst_array_writer w = {.fd = -1};
    pst_rc rc = pst_build_array(b, PST_ARRAY_IDS, PST_I64, 1, shape, &w);
    for (int64_t word = 0; rc == PST_OK && word < r->ids / 64; word++)
        for (uint64_t bits = r->bits[word]; rc == PST_OK && bits != 0; bits &= bits - 1) {
            int64_t id = word * 64 + __builtin_ctzll(bits);
            rc = pst_array_write(&w, &id, sizeof id);
        }
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_ARRAY_IDS, &w);
    pst_array_writer_release(&w);
    return rc;
}

pst_rc pst_edge_text_write(const struct pst_edge_text *e, struct pst_build *b)
{
    return e->spec.ids == PST_EDGE_TEXT_IDS_COMPACT ? write_ids(&e->rank, b) : PST_OK;
}

void pst_edge_text_tell(const struct pst_edge_text *e, struct pst_problems *warnings)
{
    const char *path = e->spec.path;
    if (e->header_skipped)
        pst_problem(warnings, "%s: skipped the first line, which holds column names", path);
    if (e->bom)
        pst_problem(warnings, "%s: a byte order mark was skipped", path);
    if (e->carriage_returns > 0)
        pst_problem(warnings, "%s: %" PRId64 " lines end with CR LF", path, e->carriage_returns);
    if (e->blank_lines > 0)
        pst_problem(warnings, "%s: skipped %" PRId64 " blank lines", path, e->blank_lines);
    if (e->more_columns > 0)
        pst_problem(warnings, "%s: %" PRId64 " lines have extra columns, which are ignored", path,
                    e->more_columns);
    if (e->unused_ids > 0 && e->spec.ids == PST_EDGE_TEXT_IDS_KEEP)
        pst_problem(warnings, "%s: %" PRId64 " ids are never used (--ids compact would renumber them)", path,
                    e->unused_ids);
}
