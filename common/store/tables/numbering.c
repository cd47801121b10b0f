/* numbering.c: vertices of text tables to their numbers. */
#include "common/store/tables/numbering.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/dataset/array.h"

#define ROWS_UNKNOWN (INT64_MAX / 64) /* of a table: its numbers' bytes fit 63 bits */
#define UNKNOWN (-1)                  /* in place of a number */

/* ---- the dictionary ---- */

static pst_rc map_array(struct pst_array *a, const char *path)
{
    pst_rc rc = pst_array_open(a, path);
    return rc == PST_OK ? pst_array_map(a) : rc;
}

/* What vertex v is called; an id as digits, in `digits`. */
static struct pst_name name_of(const struct pst_numbering *n, int64_t v, char digits[32])
{
    if (n->spec.kind == PST_NUMBERING_IDS) {
        const int length = snprintf(digits, 32, "%" PRId64, ((const int64_t *)n->ids.map)[v]);
        return (struct pst_name){digits, (uint32_t)length};
    }
    const int64_t *at = n->names_at.map;
    return (struct pst_name){(const char *)n->names.map + at[v], (uint32_t)(at[v + 1] - at[v])};
}

/* As many vertices as fit, from where the last ones ended. */
static pst_rc load(struct pst_numbering *n)
{
    char digits[32];
    pst_dict_release(&n->dict);
    pst_dict_init(&n->dict, n->spec.memory_bytes);
    n->first = n->end;
    while (n->end < n->spec.vertices) {
        const struct pst_name name = name_of(n, n->end, digits);
        int64_t number = 0;
        pst_rc rc = pst_dict_put(&n->dict, pst_dict_hash(&n->dict, name), name, &number);
        if (rc != PST_OK)
            return rc;
        if (number < 0)
            return PST_OK; /* the memory is full */
        if (number != n->end - n->first)
            return pst_fail(PST_E_FORMAT,
                            "%s: vertices %" PRId64 " and %" PRId64 " have the same name '%.*s'",
                            n->spec.list != NULL ? n->spec.list : "names", n->first + number, n->end,
                            (int)pst_min_i64(64, name.bytes), name.text);
        n->end++;
    }
    return PST_OK;
}

static bool has_dict(const struct pst_numbering *n)
{
    return n->spec.type == NULL && n->spec.kind >= PST_NUMBERING_IDS;
}

pst_rc pst_numbering_open(struct pst_numbering *n, const struct pst_numbering_spec *spec)
{
    *n = (struct pst_numbering){.spec = *spec};
    pst_rc rc = PST_OK;
    if (!has_dict(n))
        return PST_OK;
    if (spec->kind == PST_NUMBERING_IDS)
        rc = map_array(&n->ids, spec->ids);
    else if ((rc = map_array(&n->names_at, spec->names_at)) == PST_OK)
        rc = map_array(&n->names, spec->names);
    return rc == PST_OK ? load(n) : rc;
}

void pst_numbering_close(struct pst_numbering *n)
{
    pst_array_close(&n->ids);
    pst_array_close(&n->names_at);
    pst_array_close(&n->names);
    pst_dict_release(&n->dict);
}

/* ---- one vertex ---- */

static pst_rc bad_id(const struct pst_table *t, int column, int64_t vertices)
{
    char what[64];
    (void)snprintf(what, sizeof what, "a vertex from 0 to %" PRId64, vertices - 1);
    return pst_table_fail(t, column, what);
}

static pst_rc find_typed(const struct pst_numbered *t, int column, int64_t *id)
{
    const struct pst_numbering_spec *s = &t->numbering->spec;
    const struct pst_table_field *type = &t->table.field[t->type];
    for (int k = 0; k < s->types; k++) {
        if (strlen(s->type[k].name) != type->bytes || memcmp(s->type[k].name, type->text, type->bytes) != 0)
            continue;
        if (!pst_table_integer(&t->table.field[column], id) || *id < 0 || *id >= s->type[k].vertices)
            return bad_id(&t->table, column, s->type[k].vertices);
        *id += s->type[k].first;
        return PST_OK;
    }
    return pst_table_fail(&t->table, t->type, "the name of a vertex type");
}

/* UNKNOWN: no vertex, or none of the dictionary's, is called so. */
static pst_rc find_one(const struct pst_numbered *t, int column, int64_t *id)
{
    const struct pst_numbering *n = t->numbering;
    const struct pst_table_field *f = &t->table.field[column];
    if (n->spec.type != NULL && t->type >= 0)
        return find_typed(t, column, id);
    if (n->spec.kind == PST_NUMBERING_NAMES) {
        const struct pst_name name = {f->text, (uint32_t)f->bytes};
        *id = f->bytes <= PST_NAMES_BYTES_MAX ? pst_dict_find(&n->dict, pst_dict_hash(&n->dict, name), name)
                                              : UNKNOWN;
        *id += *id >= 0 ? n->first : 0;
        return PST_OK;
    }
    if (!pst_table_integer(f, id) || *id < 0)
        return pst_table_fail(&t->table, column, "a vertex's id, an integer of 0 or more");
    if (n->spec.kind == PST_NUMBERING_IDENTITY)
        return *id < n->spec.vertices ? PST_OK : bad_id(&t->table, column, n->spec.vertices);
    if (n->spec.kind == PST_NUMBERING_RANK) {
        *id = pst_rank_has(n->spec.rank, *id) ? pst_rank_of(n->spec.rank, *id) : UNKNOWN;
        return PST_OK;
    }
    char digits[32];
    const struct pst_name name = {digits, (uint32_t)snprintf(digits, sizeof digits, "%" PRId64, *id)};
    *id = pst_dict_find(&n->dict, pst_dict_hash(&n->dict, name), name);
    *id += *id >= 0 ? n->first : 0;
    return PST_OK;
}

/* ---- passes, where names do not fit ---- */

/* Fills in, for every key of every row, the number that this part of the names gives it. */
static pst_rc fill_numbers(struct pst_numbered *t, int64_t *number, int64_t rows)
{
    bool more = true;
    for (int64_t row = 0; row < rows; row++) {
        pst_rc rc = pst_table_next(&t->table, &more);
        for (int k = 0; k < t->keys && rc == PST_OK && more; k++) {
            int64_t id;
            rc = find_one(t, t->key[k], &id);
            if (rc == PST_OK && id >= 0)
                number[row * t->keys + k] = id;
        }
        if (rc != PST_OK || !more)
            return rc == PST_OK
                       ? pst_fail(PST_E_FORMAT, "%s changed while it was being read: import it again",
                                  t->table.text.path)
                       : rc;
    }
    return PST_OK;
}

static pst_rc count_rows(struct pst_table *t, int64_t *rows)
{
    bool more = true;
    pst_rc rc = PST_OK;
    while (rc == PST_OK && more)
        rc = pst_table_next(t, &more);
    *rows = t->rows;
    return rc;
}

/* Back to the first row. */
static pst_rc again(struct pst_numbered *t)
{
    static const char *const none[] = {NULL};
    char path[PST_PATH_MAX];
    const bool header = t->table.header;
    memcpy(path, t->table.text.path, sizeof path);
    pst_table_close(&t->table);
    return pst_table_open(&t->table, path, header ? PST_TABLE_HEADER_YES : PST_TABLE_HEADER_NO, none);
}

/* A file of rows * keys numbers, all UNKNOWN, mapped. */
static pst_rc map_numbers(struct pst_numbered *t, int64_t rows)
{
    t->number_bytes = (size_t)pst_max_i64(1, rows * t->keys) * sizeof *t->number;
    int fd = open(t->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return pst_fail_errno("cannot create %s", t->temp);
    void *map = MAP_FAILED;
    if (posix_fallocate(fd, 0, (off_t)t->number_bytes) == 0)
        map = mmap(NULL, t->number_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pst_rc rc = map != MAP_FAILED
                    ? PST_OK
                    : pst_fail_errno("cannot set the size of %s to %zu bytes", t->temp, t->number_bytes);
    (void)close(fd);
    (void)unlink(t->temp); /* the mapping keeps it */
    if (rc != PST_OK)
        return rc;
    t->number = map;
    memset(t->number, 0xff, t->number_bytes);
    return PST_OK;
}

static pst_rc number_in_passes(struct pst_numbered *t, struct pst_progress *progress)
{
    struct pst_numbering *n = t->numbering;
    int64_t rows;
    pst_rc rc = count_rows(&t->table, &rows);
    if (rc == PST_OK)
        rc = map_numbers(t, rows);
    pst_progress_begin(progress, "names: looking up", (uint64_t)n->spec.vertices, false);
    for (n->end = 0; rc == PST_OK && n->end < n->spec.vertices;) {
        rc = load(n);
        if (rc == PST_OK)
            rc = again(t);
        if (rc == PST_OK)
            rc = fill_numbers(t, t->number, rows);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)(n->end - n->first));
    }
    if (rc == PST_OK)
        pst_progress_end(progress);
    return rc == PST_OK ? again(t) : rc;
}

pst_rc pst_numbered_begin(struct pst_numbered *t, struct pst_numbering *n, const char *temp,
                          struct pst_progress *progress)
{
    t->numbering = n;
    t->temp = temp;
    const bool whole = !has_dict(n) || (n->first == 0 && n->end == n->spec.vertices);
    return whole || t->keys == 0 ? PST_OK : number_in_passes(t, progress);
}

/* ---- rows ---- */

static pst_rc unknown(struct pst_numbered *t, int column)
{
    char what[128];
    t->unknown++;
    if (!t->numbering->spec.complete)
        return PST_OK;
    (void)snprintf(what, sizeof what, "a vertex that is listed in %.80s", t->numbering->spec.list);
    return pst_table_fail(&t->table, column, what);
}

pst_rc pst_numbered_next(struct pst_numbered *t, int64_t id[PST_NUMBERED_KEYS_MAX], bool *more)
{
    for (;;) {
        bool known = true;
        pst_rc rc = pst_table_next(&t->table, more);
        if (rc != PST_OK || !*more)
            return rc;
        const int64_t row = t->table.rows - 1;
        if (t->keys == 0) {
            id[0] = row;
            return row < t->numbering->spec.vertices
                       ? PST_OK
                       : pst_fail(PST_E_FORMAT,
                                  "%s:%" PRId64 ": too many rows: there are only %" PRId64 " vertices",
                                  t->table.text.path, t->table.text.line, t->numbering->spec.vertices);
        }
        for (int k = 0; k < t->keys && rc == PST_OK && known; k++) {
            if (t->number != NULL)
                id[k] = t->number[row * t->keys + k];
            else
                rc = find_one(t, t->key[k], &id[k]);
            known = rc == PST_OK && id[k] >= 0;
            if (rc == PST_OK && !known)
                rc = unknown(t, t->key[k]);
        }
        if (rc != PST_OK || known)
            return rc;
    }
}

void pst_numbered_close(struct pst_numbered *t)
{
    if (t->number != NULL)
        (void)munmap(t->number, t->number_bytes);
    pst_table_close(&t->table);
    *t = (struct pst_numbered){.table = {.text = {.fd = -1}}};
}
