/* splits.c: splits from lists of ids or from masks, one or several of them: (V, k) masks are k splits. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/import/importing.h"

#define BLOCK 4096          /* ids that are gathered before they are written */
#define NAMES_TOLD 1024     /* bytes of names in one message */
#define FAMILY_NAME "mask"  /* of (V, k) masks that lie beside the edges: mask/0 and so on */
#define ONLY_NAME "default" /* of the split beside the edges where there are others in splits/ */

static const char *const part_names[3] = {"train", "val", "test"};

/* ---- opening ---- */

void pst_import_open_splits(struct pst_import_state *im)
{
    const int n = im->spec->named_splits;
    if (n == 0)
        return;
    if (im->more == NULL)
        im->more = calloc((size_t)n, sizeof *im->more);
    if (im->more == NULL) {
        pst_problem(&im->problems, "out of memory: cannot allocate %d splits", n);
        return;
    }
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 3; i++) {
            const struct pst_import_split_source *s = &im->spec->named_split[k];
            const char *path = s->source[i], *told = s->told_as[i][0] != '\0' ? s->told_as[i] : path;
            struct pst_array *a = &im->more[k].part[i];
            if (path[0] == '\0' || a->map != NULL || pst_table_is_one(path))
                continue;
            pst_import_open_array(im, PST_IMPORT_TRAIN + (unsigned)i, path, told, a);
            if (a->map != NULL)
                (void)snprintf(a->path, sizeof a->path, "%s", told);
        }
}

void pst_import_close_splits(struct pst_import_state *im)
{
    for (int k = 0; im->more != NULL && k < im->spec->named_splits; k++)
        for (int i = 0; i < 3; i++)
            pst_array_close(&im->more[k].part[i]);
    free(im->more);
    free(im->own_split);
    free(im->splits);
}

/* ---- which splits there are ---- */

/* Whether all entries are 0 or 1. */
static bool is_binary(const struct pst_array *a)
{
    const int64_t n = a->shape[0] * a->shape[1];
    for (int64_t i = 0; i < n; i++)
        if ((uint64_t)pst_import_int_at(a, i) > 1)
            return false;
    return true;
}

/* train_mask.npy, for example. */
static bool is_called_mask(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strstr(slash != NULL ? slash : path, "_mask") != NULL;
}

/* A list of ids names no vertex twice. So an array of 0 and 1 that is longer than two is a mask. */
static bool is_mask(const struct pst_array *a, int64_t vertices)
{
    if (a->dtype == PST_BOOL || a->shape[1] > 1 || is_called_mask(a->path))
        return true;
    return vertices > 2 && a->shape[0] == vertices && is_binary(a);
}

/* One source of a part; *columns: how many splits it has. False: a problem was told. */
static bool look_at(struct pst_import_state *im, const struct pst_array *a, struct pst_import_part *out,
                    int64_t *columns)
{
    int64_t first, n = pst_import_target(im, &first);
    *out = (struct pst_import_part){.a = a->map != NULL ? a : NULL};
    if (a->map == NULL)
        return true;
    out->mask = is_mask(a, n);
    if (!out->mask)
        return true;
    if (a->shape[0] != n || !is_binary(a)) {
        pst_problem(&im->problems,
                    "%s: expected a mask of 0 and 1 with one row for each of %" PRId64
                    " vertices, found %" PRId64 " rows%s",
                    a->path, n, a->shape[0], a->shape[0] == n ? " with other values" : "");
        return false;
    }
    if (a->shape[1] > 1 && *columns > 1 && a->shape[1] != *columns) {
        pst_problem(&im->problems, "%s: expected %" PRId64 " columns, as in the other masks, found %" PRId64,
                    a->path, *columns, a->shape[1]);
        return false;
    }
    *columns = pst_max_i64(*columns, a->shape[1]);
    return true;
}

static struct pst_import_split *add_split(struct pst_import_state *im, const char *name)
{
    if (im->n_splits == PST_DATASET_SPLITS_MAX) {
        pst_problem(&im->problems, "too many splits: at most %d are allowed", PST_DATASET_SPLITS_MAX);
        return NULL;
    }
    for (int k = 0; k < im->n_splits; k++)
        if (strcmp(im->splits[k].name, name) == 0)
            pst_problem(&im->problems, "two splits have the name '%s'", name);
    struct pst_import_split *s = &im->splits[im->n_splits++];
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    return s;
}

/* The splits of three sources: one, or as many as the masks have columns. name "": it has none, unless it
 * must. */
static void add_sources(struct pst_import_state *im, const char *name, const struct pst_array part[3],
                        bool alone)
{
    struct pst_import_split s;
    int64_t columns = 1;
    bool good = true;
    for (int i = 0; i < 3; i++)
        good &= look_at(im, &part[i], &s.part[i], &columns);
    if (!good || (s.part[0].a == NULL && s.part[1].a == NULL && s.part[2].a == NULL))
        return;
    for (int64_t k = 0; k < columns; k++) {
        char full[PST_NAME_MAX + 32];
        const char *family = name[0] != '\0' ? name : columns > 1 ? FAMILY_NAME : alone ? "" : ONLY_NAME;
        if (columns > 1)
            (void)snprintf(full, sizeof full, "%s/%" PRId64, family, k);
        else
            (void)snprintf(full, sizeof full, "%s", family);
        struct pst_import_split *to = add_split(im, full);
        if (to == NULL)
            return;
        for (int i = 0; i < 3; i++) {
            to->part[i] = s.part[i];
            to->part[i].column = s.part[i].a != NULL && s.part[i].a->shape[1] > 1 ? k : 0;
        }
    }
}

/* ---- the ids of a part ---- */

/* The next id from place *at on, which moves on; false: there are no more. */
static bool next_id(const struct pst_import_part *p, int64_t *at, int64_t *id)
{
    const int64_t rows = p->a->shape[0], columns = p->a->shape[1];
    while (p->mask && *at < rows && pst_import_int_at(p->a, *at * columns + p->column) == 0)
        ++*at;
    if (*at == rows)
        return false;
    *id = p->mask ? *at : pst_import_int_at(p->a, *at);
    ++*at;
    return true;
}

static void check_part(struct pst_import_state *im, const struct pst_import_split *s, int part,
                       uint8_t *owner)
{
    const struct pst_import_part *p = &s->part[part];
    int64_t bad = 0, unlabelled = 0, first, n = pst_import_target(im, &first), count = 0, id;
    char of[PST_NAME_MAX + 16] = "";
    if (p->a == NULL)
        return;
    if (s->name[0] != '\0')
        (void)snprintf(of, sizeof of, " (split %s)", s->name);
    for (int64_t at = 0; next_id(p, &at, &id); count++) {
        if (id < 0 || id >= n) {
            pst_import_tell(&im->problems, &bad, p->a->path, at - 1, id, n, "entry");
            continue;
        }
        const int64_t v = first + id;
        if (owner[v] != 0 && ++bad <= PST_IMPORT_TOLD_MAX)
            pst_problem(&im->problems, "%s%s: entry %" PRId64 ": vertex %" PRId64 " is already in %s",
                        p->a->path, of, at - 1, id, part_names[owner[v] - 1]);
        owner[v] = (uint8_t)(part + 1);
        unlabelled += im->labels != NULL && im->labels[v] < 0;
    }
    pst_import_tell_rest(&im->problems, bad, p->a->path);
    if (count == 0)
        pst_problem(im->warnings, "%s%s: the split is empty", p->a->path, of);
    if (unlabelled > 0)
        pst_problem(im->warnings, "%s%s: %" PRId64 " vertices have no label", p->a->path, of, unlabelled);
}

/* Leaves those that the user asked for; one alone needs no name. */
static void select_splits(struct pst_import_state *im)
{
    const char *only = im->spec->only_split;
    const size_t n = strlen(only);
    char names[NAMES_TOLD] = "";
    int left = 0;
    size_t used = 0;
    if (n == 0)
        return;
    assert(im->splits != NULL);
    for (int k = 0; k < im->n_splits; k++) {
        const char *name = im->splits[k].name;
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, " %s", name);
        if (strncmp(name, only, n) == 0 && (name[n] == '\0' || name[n] == '/'))
            im->splits[left++] = im->splits[k];
    }
    im->n_splits = left;
    if (left == 1)
        im->splits[0].name[0] = '\0';
    if (left == 0)
        pst_problem(&im->problems, "--split %s: unknown split; found:%s", only,
                    names[0] != '\0' ? names : " one without a name");
}

void pst_import_check_splits(struct pst_import_state *im)
{
    bool some = im->more != NULL || im->spec->only_split[0] != '\0';
    for (unsigned i = PST_IMPORT_TRAIN; i <= PST_IMPORT_TEST; i++)
        some |= pst_import_has(im, i);
    if (!some)
        return;
    uint8_t *owner = calloc((size_t)im->vertices + 1, 1);
    im->splits = calloc(PST_DATASET_SPLITS_MAX, sizeof *im->splits);
    if (owner == NULL || im->splits == NULL) {
        pst_problem(&im->problems, "out of memory: cannot check the splits of %" PRId64 " vertices",
                    im->vertices);
        free(owner);
        return;
    }
    const int named = im->more != NULL ? im->spec->named_splits : 0;
    add_sources(im, im->spec->split_name, &im->src[PST_IMPORT_TRAIN], named == 0);
    for (int k = 0; k < named; k++)
        add_sources(im, im->spec->named_split[k].name, im->more[k].part, false);
    select_splits(im);
    for (int k = 0; k < im->n_splits; k++) {
        memset(owner, 0, (size_t)im->vertices);
        for (int part = 0; part < 3; part++)
            check_part(im, &im->splits[k], part, owner);
    }
    free(owner);
}

/* ---- writing ---- */

static int64_t count_of(const struct pst_import_part *p)
{
    int64_t count = 0, id;
    if (!p->mask)
        return p->a->shape[0];
    for (int64_t at = 0; next_id(p, &at, &id);)
        count++;
    return count;
}

static pst_rc write_part(const struct pst_import_part *p, int64_t from, struct pst_build *b, int split,
                         int part)
{
    int64_t block[BLOCK], id;
    const int64_t count = p->a != NULL ? count_of(p) : 0;
    struct pst_array_writer w = {.fd = -1};
    if (count == 0)
        return PST_OK;
    pst_rc rc = pst_build_split(b, split, part, count, &w);
    for (int64_t at = 0, n = 0, done = 0; rc == PST_OK && done < count;) {
        while (n < BLOCK && next_id(p, &at, &id))
            block[n++] = from + id;
        rc = pst_array_write(&w, block, (size_t)n * sizeof *block);
        done += n;
        n = 0;
    }
    if (rc == PST_OK)
        rc = pst_build_split_end(b, split, part, &w);
    pst_array_writer_release(&w);
    return rc;
}

pst_rc pst_import_write_splits(const struct pst_import_state *im, struct pst_build *b)
{
    const bool named = im->n_splits > 0 && im->splits[0].name[0] != '\0';
    int64_t first;
    (void)pst_import_target(im, &first);
    pst_rc rc = named ? pst_manifest_splits(&b->manifest, im->n_splits) : PST_OK;
    for (int k = 0; k < im->n_splits && rc == PST_OK; k++) {
        if (named)
            memcpy(b->manifest.split[k].name, im->splits[k].name, sizeof b->manifest.split[k].name);
        for (int part = 0; part < 3 && rc == PST_OK; part++)
            rc = write_part(&im->splits[k].part[part], first, b, k, part);
    }
    return rc;
}
