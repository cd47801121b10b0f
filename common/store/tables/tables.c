/* tables.c: text tables to arrays. */
#include "common/store/tables/tables.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/dataset/array.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/npy.h"
#include "common/store/dataset/values.h"
#include "common/util/file.h"
#include "common/util/utf8.h"

#define ROWS_UNKNOWN (INT64_MAX / 64) /* of a list: three ids a row fit 63 bits */
#define MISSING_TOLD 3                /* vertices without a row that are named */
#define UNSET INT32_MIN               /* a label that no row gave yet */

static const char *const vertex_names[] = {"vertex", "id", "node", "node_id", NULL};
static const char *const type_names[] = {"type", NULL};
static const char *const label_names[] = {"label", "class", "y", NULL};
static const char *const split_names[] = {"split", "set", NULL};
static const char *const source_names[] = {"source", "src", "head", "from", NULL};
static const char *const target_names[] = {"target", "dst", "tail", "to", NULL};
static const char *const relation_names[] = {"relation", "rel", "predicate", NULL};
static const char *const part_names[3][4] = {
    {"train", "train_mask", NULL}, {"val", "valid", "val_mask", NULL}, {"test", "test_mask", NULL}};

/* ---- columns ---- */

/* The column that the user named, or one with a usual name; -1: there is none. */
static int column_of(const struct pst_table *t, const char *said, const char *const *usual)
{
    const char *const one[] = {said, NULL};
    return pst_table_column(t, said[0] != '\0' ? one : usual);
}

static pst_rc no_column(const struct pst_table *t, const char *said, const char *usual, const char *option)
{
    char names[512];
    pst_table_names(t, names, sizeof names);
    const char *found = names[0] != '\0' ? names : "no header";
    if (said[0] != '\0')
        return pst_fail(PST_E_FORMAT, "%s: expected a column named %s, found %s", t->text.path, said, found);
    return pst_fail(PST_E_FORMAT, "%s: expected a column named %s or the name given with %s, found %s",
                    t->text.path, usual, option, found);
}

/* Opens the table; its rows are of the vertices of one column, or of vertices 0, 1, 2, ... where it has none.
 */
static pst_rc open_rows(const struct pst_tables_spec *s, struct pst_numbered *t)
{
    const struct pst_tables_columns *c = s->columns;
    const char *const known[] = {"vertex", "label",  "type",     "id",   "node",      "node_id",
                                 "class",  "y",      "split",    "set",  "train",     "train_mask",
                                 "val",    "valid",  "val_mask", "test", "test_mask", c->vertex,
                                 c->label, c->split, NULL};
    *t = (struct pst_numbered){.type = -1, .table = {.text = {.fd = -1}}};
    pst_rc rc = pst_table_open(&t->table, s->path, s->header, known);
    if (rc != PST_OK)
        return rc;
    t->key[0] = column_of(&t->table, c->vertex, vertex_names);
    t->type = pst_table_column(&t->table, type_names);
    t->keys = t->key[0] >= 0;
    if (t->keys == 0 && c->vertex[0] != '\0')
        return no_column(&t->table, c->vertex, "", "");
    return PST_OK;
}

static pst_rc begin_rows(const struct pst_tables_spec *s, struct pst_numbered *t)
{
    pst_rc rc = pst_numbered_begin(t, s->numbering, s->temp, s->progress);
    pst_progress_begin(s->progress, "tables: reading", t->table.text.file_bytes, true);
    return rc;
}

static pst_rc end_rows(const struct pst_tables_spec *s, struct pst_numbered *t, pst_rc rc)
{
    if (rc == PST_OK && t->unknown > 0)
        pst_problem(s->warnings, "%s: %" PRId64 " rows were left out, because no edge has their vertex",
                    s->path, t->unknown);
    if (rc == PST_OK)
        pst_progress_end(s->progress);
    pst_numbered_close(t);
    return rc;
}

static pst_rc twice(const struct pst_numbered *t)
{
    return t->keys > 0 ? pst_table_fail(&t->table, t->key[0], "a vertex that no earlier row has")
                       : pst_fail(PST_E_FORMAT, "%s: two rows describe the same vertex: remove one of them",
                                  t->table.text.path);
}

static pst_rc finish(struct pst_array_writer *w, pst_rc rc)
{
    uint64_t checksum;
    if (rc == PST_OK)
        rc = pst_array_writer_finish(w, &checksum);
    pst_array_writer_release(w);
    return rc;
}

/* ---- labels ---- */

static pst_rc label_of(const struct pst_table *t, int column, int32_t *label)
{
    const struct pst_table_field *f = &t->field[column];
    double x;
    int64_t value;
    *label = -1;
    if (f->bytes == 0 || (pst_table_real(f, &x) && isnan(x)))
        return PST_OK;
    if (!pst_table_integer(f, &value) || value < -1 || value >= PST_MANIFEST_CLASSES_MAX)
        return pst_table_fail(t, column, "a label, an integer of 0 or more, or nothing");
    *label = (int32_t)value;
    return PST_OK;
}

static pst_rc label_column(const struct pst_tables_spec *s, struct pst_numbered *t, int *column)
{
    *column = column_of(&t->table, s->columns->label, label_names);
    if (*column < 0 && !t->table.header && t->table.columns <= 2) { /* label; or vertex, label */
        *column = t->table.columns - 1;
        t->keys = t->table.columns - 1;
        t->key[0] = 0;
    }
    return *column >= 0 ? PST_OK : no_column(&t->table, s->columns->label, "label", "--label-column");
}

static pst_rc read_labels(struct pst_numbered *t, int column, int32_t *label)
{
    int64_t id[PST_NUMBERED_KEYS_MAX];
    bool more = true;
    for (;;) {
        pst_rc rc = pst_numbered_next(t, id, &more);
        if (rc != PST_OK || !more)
            return rc;
        if (label[id[0]] != UNSET)
            return twice(t);
        if ((rc = label_of(&t->table, column, &label[id[0]])) != PST_OK)
            return rc;
    }
}

pst_rc pst_tables_labels(const struct pst_tables_spec *s)
{
    const int64_t n = s->numbering->spec.vertices, shape[2] = {n, 1};
    struct pst_numbered t;
    struct pst_array_writer w = {.fd = -1};
    int column = -1;
    int32_t *label = malloc(((size_t)n + 1) * sizeof *label);
    for (int64_t v = 0; label != NULL && v < n; v++)
        label[v] = UNSET;
    pst_rc rc = open_rows(s, &t);
    if (rc == PST_OK && label == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " labels", n);
    if (rc == PST_OK)
        rc = label_column(s, &t, &column);
    if (rc == PST_OK)
        rc = begin_rows(s, &t);
    if (rc == PST_OK)
        rc = read_labels(&t, column, label);
    rc = end_rows(s, &t, rc);
    for (int64_t v = 0; rc == PST_OK && v < n; v++)
        label[v] = label[v] == UNSET ? -1 : label[v];
    if (rc == PST_OK)
        rc = pst_array_writer_init(&w, s->to, PST_I32, 1, shape);
    if (rc == PST_OK)
        rc = pst_array_write(&w, label, (size_t)n * sizeof *label);
    free(label);
    return finish(&w, rc);
}

/* ---- a row of numbers for each vertex ---- */

/* An array file whose rows are written in any order. */
struct scattered {
    int fd;
    uint64_t row_bytes;
    unsigned char *row, *seen; /* one row; a bit for each vertex */
    int *column;
    int columns;
    enum pst_dtype dtype;
    bool targets; /* an empty field is NaN */
};

static pst_rc create_scattered(struct scattered *o, const char *path, int64_t rows)
{
    const int64_t shape[2] = {rows, o->columns};
    char head[PST_PAGE];
    o->row_bytes = (uint64_t)o->columns * pst_dtype_bytes(o->dtype);
    o->row = calloc((size_t)o->columns, pst_dtype_bytes(o->dtype));
    o->seen = calloc((size_t)rows / 8 + 1, 1);
    if (o->row == NULL || o->seen == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate rows of %d columns", o->columns);
    o->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (o->fd < 0)
        return pst_fail_errno("cannot create %s", path);
    pst_rc rc = pst_file_room_for(path, (uint64_t)rows * o->row_bytes, path);
    pst_npy_format(head, o->dtype, 2, shape);
    if (rc == PST_OK)
        rc = pst_file_write_at(o->fd, head, PST_PAGE, 0, path);
    if (rc == PST_OK && ftruncate(o->fd, (off_t)(PST_PAGE + (uint64_t)rows * o->row_bytes)) != 0)
        rc = pst_fail_errno("cannot increase the size of %s", path);
    return rc;
}

/* targets: an empty field is a number that is not known. */
static pst_rc value_of(const struct pst_table *t, int column, const struct scattered *o, int64_t j)
{
    const struct pst_table_field *f = &t->field[column];
    const enum pst_dtype dtype = o->dtype;
    void *row = o->row;
    double x;
    int64_t bit;
    if (dtype == PST_U8) {
        const bool known = f->bytes > 0;
        if (known && (!pst_table_integer(f, &bit) || bit < 0 || bit > 1))
            return pst_table_fail(t, column, "0, 1 or nothing");
        ((uint8_t *)row)[j] = known ? (uint8_t)bit : UINT8_MAX;
        return PST_OK;
    }
    if (o->targets && f->bytes == 0) {
        ((float *)row)[j] = NAN;
        return PST_OK;
    }
    if (!pst_table_real(f, &x) || !isfinite(x) || !pst_feature_put(row, dtype, j, (float)x))
        return pst_table_fail(t, column, o->targets ? "a finite number, or nothing" : "a finite number");
    return PST_OK;
}

static pst_rc read_rows(struct pst_numbered *t, struct scattered *o, const char *path)
{
    int64_t id[PST_NUMBERED_KEYS_MAX];
    for (;;) {
        bool more = true;
        pst_rc rc = pst_numbered_next(t, id, &more);
        if (rc != PST_OK || !more)
            return rc;
        if (o->seen[id[0] / 8] >> (id[0] % 8) & 1)
            return twice(t);
        o->seen[id[0] / 8] |= (unsigned char)(1u << (id[0] % 8));
        for (int j = 0; j < o->columns && rc == PST_OK; j++)
            rc = value_of(&t->table, o->column[j], o, j);
        if (rc == PST_OK)
            rc = pst_file_write_at(o->fd, o->row, o->row_bytes, PST_PAGE + (uint64_t)id[0] * o->row_bytes,
                                   path);
        if (rc != PST_OK)
            return rc;
    }
}

static pst_rc check_seen(const struct pst_tables_spec *s, const struct scattered *o)
{
    int64_t missing = 0, first[MISSING_TOLD];
    char told[128] = "";
    for (int64_t v = 0; v < s->numbering->spec.vertices; v++)
        if (!(o->seen[v / 8] >> (v % 8) & 1) && missing++ < MISSING_TOLD)
            first[missing - 1] = v;
    for (int64_t i = 0; i < pst_min_i64(missing, MISSING_TOLD); i++) {
        const size_t used = strlen(told);
        (void)snprintf(told + used, sizeof told - used, "%s %" PRId64, i > 0 ? "," : "", first[i]);
    }
    return missing == 0
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "%s: expected a row for each of %" PRId64 " vertices; %" PRId64 " have none:%s%s",
                          s->path, s->numbering->spec.vertices, missing, told,
                          missing > MISSING_TOLD ? " and more" : "");
}

static bool is_feature(const struct pst_tables_spec *s, const struct pst_numbered *t, int column)
{
    const int other[] = {t->keys > 0 ? t->key[0] : -1, t->type,
                         column_of(&t->table, s->columns->label, label_names),
                         column_of(&t->table, s->columns->split, split_names)};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (column == other[i])
            return false;
    return true;
}

/* The columns that the user named, in that order; else all that nothing else is. */
static pst_rc choose_columns(const struct pst_tables_spec *s, const struct pst_numbered *t,
                             struct scattered *o)
{
    char list[PST_PATH_MAX], *save = NULL;
    o->column = calloc((size_t)t->table.columns, sizeof *o->column);
    if (o->column == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d columns", t->table.columns);
    (void)snprintf(list, sizeof list, "%s", s->columns->features);
    for (char *one = strtok_r(list, ",", &save); one != NULL; one = strtok_r(NULL, ",", &save)) {
        const char *const name[] = {one, NULL};
        const int column = pst_table_column(&t->table, name);
        if (column < 0)
            return no_column(&t->table, one, "", "");
        if (o->columns < t->table.columns)
            o->column[o->columns++] = column;
    }
    for (int c = 0; s->columns->features[0] == '\0' && c < t->table.columns; c++)
        if (is_feature(s, t, c))
            o->column[o->columns++] = c;
    return o->columns > 0 ? PST_OK
                          : pst_fail(PST_E_FORMAT,
                                     "%s: expected columns of numbers for the features, found none", s->path);
}

static pst_rc scattered_rows(const struct pst_tables_spec *s, enum pst_dtype dtype, bool targets)
{
    struct pst_numbered t;
    struct scattered o = {.fd = -1, .dtype = dtype, .targets = targets};
    pst_rc rc = open_rows(s, &t);
    if (rc == PST_OK)
        rc = choose_columns(s, &t, &o);
    if (rc == PST_OK)
        rc = create_scattered(&o, s->to, s->numbering->spec.vertices);
    if (rc == PST_OK)
        rc = begin_rows(s, &t);
    if (rc == PST_OK)
        rc = read_rows(&t, &o, s->to);
    if (rc == PST_OK)
        rc = check_seen(s, &o);
    rc = end_rows(s, &t, rc);
    if (o.fd >= 0 && close(o.fd) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s", s->to);
    free(o.row);
    free(o.seen);
    free(o.column);
    return rc;
}

pst_rc pst_tables_features(const struct pst_tables_spec *s, enum pst_dtype dtype)
{
    return scattered_rows(s, dtype, false);
}

pst_rc pst_tables_multilabels(const struct pst_tables_spec *s)
{
    return scattered_rows(s, PST_U8, false);
}

pst_rc pst_tables_targets(const struct pst_tables_spec *s)
{
    return scattered_rows(s, PST_F32, true);
}

/* ---- splits ---- */

static bool is_true(const struct pst_table_field *f)
{
    static const char *const words[] = {"1", "true", "yes", "t"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i]) == f->bytes && strncasecmp(words[i], f->text, f->bytes) == 0)
            return true;
    return false;
}

/* train; val, valid, validation; test. */
static bool is_part(const struct pst_table_field *f, int part)
{
    static const char *const words[3][4] = {
        {"train", "training"}, {"val", "valid", "validation"}, {"test", "testing"}};
    for (int i = 0; i < 4 && words[part][i] != NULL; i++)
        if (strlen(words[part][i]) == f->bytes && strncasecmp(words[part][i], f->text, f->bytes) == 0)
            return true;
    return false;
}

static pst_rc put_part(struct pst_numbered *t, struct pst_array_writer *w, int by_name, int by_mask, int part,
                       int64_t *rows)
{
    int64_t id[PST_NUMBERED_KEYS_MAX];
    for (;;) {
        bool more = true;
        pst_rc rc = pst_numbered_next(t, id, &more);
        if (rc != PST_OK || !more)
            return rc;
        if (by_name >= 0 ? !is_part(&t->table.field[by_name], part)
                         : by_mask >= 0 && !is_true(&t->table.field[by_mask]))
            continue;
        if ((rc = pst_array_write(w, id, sizeof id[0])) != PST_OK)
            return rc;
        ++*rows;
    }
}

pst_rc pst_tables_split(const struct pst_tables_spec *s, int part)
{
    const int64_t unknown[2] = {ROWS_UNKNOWN, 1};
    struct pst_numbered t;
    struct pst_array_writer w = {.fd = -1};
    int64_t rows = 0;
    pst_rc rc = open_rows(s, &t);
    const int by_name = rc == PST_OK ? column_of(&t.table, s->columns->split, split_names) : -1;
    const int by_mask = rc == PST_OK ? pst_table_column(&t.table, part_names[part]) : -1;
    if (rc == PST_OK && by_name < 0 && by_mask < 0) { /* a list of vertices */
        if (t.keys == 0 && (t.table.header || t.table.columns != 1))
            rc = no_column(&t.table, s->columns->vertex, "vertex", "--vertex-column");
        t.keys = 1;
        t.key[0] = t.key[0] >= 0 ? t.key[0] : 0;
    }
    if (rc == PST_OK)
        rc = begin_rows(s, &t);
    if (rc == PST_OK)
        rc = pst_array_writer_init(&w, s->to, PST_I64, 1, unknown);
    if (rc == PST_OK)
        rc = put_part(&t, &w, by_name, by_mask, part, &rows);
    rc = end_rows(s, &t, rc);
    if (rc == PST_OK)
        rc = pst_array_writer_shrink(&w, rows);
    return finish(&w, rc);
}

/* ---- lists of edges ---- */

static pst_rc relation_of(const struct pst_numbered *t, int column, const struct pst_tables_edges *e,
                          int64_t *out)
{
    const struct pst_table_field *f = &t->table.field[column];
    const struct pst_name name = {f->text, (uint32_t)f->bytes};
    if (e->relation != NULL) {
        *out = pst_dict_find(e->relation, pst_dict_hash(e->relation, name), name);
        return *out >= 0 ? PST_OK
                         : pst_table_fail(&t->table, column, "a relation that is listed in relations.csv");
    }
    const int64_t end = e->relations >= 0 ? e->relations : INT32_MAX;
    return pst_table_integer(f, out) && *out >= 0 && *out < end
               ? PST_OK
               : pst_table_fail(&t->table, column,
                                "a number of a relation (for names, list them in relations.csv)");
}

static pst_rc put_edges(struct pst_numbered *t, int relation, const struct pst_tables_edges *e,
                        struct pst_array_writer *w, int64_t *rows)
{
    for (;;) {
        int64_t id[PST_NUMBERED_KEYS_MAX], row[3];
        int32_t narrow[3];
        bool more = true;
        int n = 0;
        pst_rc rc = pst_numbered_next(t, id, &more);
        if (rc != PST_OK || !more)
            return rc;
        row[n++] = id[0];
        if (relation >= 0)
            rc = relation_of(t, relation, e, &row[n++]);
        row[n++] = id[1];
        for (int i = 0; i < n; i++)
            narrow[i] = (int32_t)row[i];
        if (rc == PST_OK)
            rc = e->dtype == PST_I32 ? pst_array_write(w, narrow, (size_t)n * sizeof narrow[0])
                                     : pst_array_write(w, row, (size_t)n * sizeof row[0]);
        if (rc != PST_OK)
            return rc;
        ++*rows;
    }
}

pst_rc pst_tables_edges(const struct pst_tables_spec *s, struct pst_tables_edges *e)
{
    static const char *const known[] = {"source", "head", "src", "from", "target", "tail", "dst", "to", NULL};
    struct pst_numbered t = {.type = -1, .keys = 2};
    struct pst_array_writer w = {.fd = -1};
    int64_t rows = 0;
    pst_rc rc = pst_table_open(&t.table, s->path, s->header, known);
    const bool named = rc == PST_OK && t.table.header;
    t.key[0] = named ? pst_table_column(&t.table, source_names) : 0;
    t.key[1] = named ? pst_table_column(&t.table, target_names) : 1;
    const int relation = named ? pst_table_column(&t.table, relation_names) : -1;
    if (rc == PST_OK && (t.key[0] < 0 || t.key[1] < 0 || t.table.columns < 2))
        rc = no_column(&t.table, "", "source and one named target", "--columns");
    const int64_t unknown[2] = {ROWS_UNKNOWN, relation >= 0 ? 3 : 2};
    e->three = relation >= 0;
    if (rc == PST_OK)
        rc = begin_rows(s, &t);
    if (rc == PST_OK)
        rc = pst_array_writer_init(&w, s->to, e->dtype, 2, unknown);
    if (rc == PST_OK)
        rc = put_edges(&t, relation, e, &w, &rows);
    rc = end_rows(s, &t, rc);
    if (rc == PST_OK)
        rc = pst_array_writer_shrink(&w, rows);
    return finish(&w, rc);
}

/* ---- names ---- */

/* Opens a table whose first column (or the one called vertex, id or relation) names things, a row each. */
static pst_rc open_names(const char *path, struct pst_table *t, int *column)
{
    static const char *const usual[] = {"vertex", "relation", "id", "node", "name", NULL};
    pst_rc rc = pst_table_open(t, path, PST_TABLE_HEADER_YES, usual);
    *column = rc == PST_OK ? pst_table_column(t, usual) : -1;
    return rc == PST_OK && *column < 0 ? no_column(t, "", "vertex (or relation)", "a header") : rc;
}

static pst_rc put_names(struct pst_table *t, int column, struct pst_array_writer *at,
                        struct pst_array_writer *text)
{
    for (int64_t end = 0;;) {
        bool more = true;
        pst_rc rc = pst_array_write(at, &end, sizeof end);
        if (rc == PST_OK)
            rc = pst_table_next(t, &more);
        if (rc != PST_OK || !more)
            return rc;
        const struct pst_table_field *f = &t->field[column];
        if (f->bytes > PST_NAMES_BYTES_MAX || pst_utf8_valid(f->text, f->bytes) < f->bytes)
            return pst_table_fail(t, column, "a name of at most 65535 bytes in UTF-8");
        if ((rc = pst_array_write(text, f->text, f->bytes)) != PST_OK)
            return rc;
        end += (int64_t)f->bytes;
    }
}

pst_rc pst_tables_names(const char *path, const char *at_to, const char *names_to, int64_t *rows)
{
    const int64_t unknown[2] = {ROWS_UNKNOWN, 1};
    struct pst_table t;
    struct pst_array_writer at = {.fd = -1}, text = {.fd = -1};
    int column;
    pst_rc rc = open_names(path, &t, &column);
    if (rc == PST_OK)
        rc = pst_array_writer_init(&at, at_to, PST_I64, 1, unknown);
    if (rc == PST_OK)
        rc = pst_array_writer_init(&text, names_to, PST_U8, 1, unknown);
    if (rc == PST_OK)
        rc = put_names(&t, column, &at, &text);
    if (rc == PST_OK)
        rc = pst_array_writer_shrink(&at, t.rows + 1);
    if (rc == PST_OK)
        rc = pst_array_writer_shrink(&text, (int64_t)text.written);
    *rows = t.rows;
    pst_table_close(&t);
    rc = finish(&at, rc);
    return finish(&text, rc);
}

pst_rc pst_tables_ids(const char *path, const char *to, int64_t *rows)
{
    const int64_t unknown[2] = {ROWS_UNKNOWN, 1};
    struct pst_table t;
    struct pst_array_writer w = {.fd = -1};
    bool more = true;
    int column;
    pst_rc rc = open_names(path, &t, &column);
    if (rc == PST_OK)
        rc = pst_array_writer_init(&w, to, PST_I64, 1, unknown);
    while (rc == PST_OK && more) {
        int64_t id;
        rc = pst_table_next(&t, &more);
        if (rc == PST_OK && more && !pst_table_integer(&t.field[column], &id))
            rc = pst_table_fail(&t, column, "a vertex's id, an integer");
        if (rc == PST_OK && more)
            rc = pst_array_write(&w, &id, sizeof id);
    }
    if (rc == PST_OK)
        rc = pst_array_writer_shrink(&w, t.rows);
    *rows = t.rows;
    pst_table_close(&t);
    return finish(&w, rc);
}
