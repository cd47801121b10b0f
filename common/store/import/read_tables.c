/* read_tables.c: the sources of an import that are text tables, made into arrays once the vertices have
 * numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/import/importing.h"

struct reading {
    struct pst_import_state *im;
    struct pst_build *build;
    struct pst_progress *progress;
    struct pst_numbering numbering;
    char temp[PST_PATH_MAX]; /* a path that is free */
    int made;                /* arrays, so that each has a name of its own */
};

/* Which sources may be tables. */
static bool may_be_table(unsigned id)
{
    return id == PST_IMPORT_FEATURES || id == PST_IMPORT_LABELS || id >= PST_IMPORT_TRAIN;
}

static pst_rc convert(struct reading *r, unsigned id, char source[PST_PATH_MAX], char told[PST_PATH_MAX])
{
    const struct pst_import_spec *s = r->im->spec;
    char name[32], to[PST_PATH_MAX];
    (void)snprintf(name, sizeof name, "table-%d", r->made++);
    pst_build_temp(r->build, name, to);
    const struct pst_tables_spec spec = {.numbering = &r->numbering,
                                         .columns = &s->columns,
                                         .path = source,
                                         .to = to,
                                         .temp = r->temp,
                                         .warnings = r->im->warnings,
                                         .progress = r->progress};
    pst_rc rc = id == PST_IMPORT_LABELS     ? pst_tables_labels(&spec)
                : id == PST_IMPORT_FEATURES ? pst_tables_features(&spec, s->table_dtype)
                                            : pst_tables_split(&spec, (int)(id - PST_IMPORT_TRAIN));
    memcpy(told, source, PST_PATH_MAX);
    memcpy(source, to, PST_PATH_MAX);
    return rc;
}

static pst_rc convert_all(struct reading *r)
{
    struct pst_import_spec *s = &r->im->own;
    pst_rc rc = PST_OK;
    for (unsigned i = 0; i < PST_IMPORT_SOURCES && rc == PST_OK; i++)
        if (may_be_table(i) && pst_table_is_one(s->source[i]))
            rc = convert(r, i, s->source[i], s->told_as[i]);
    for (int k = 0; k < s->named_splits && rc == PST_OK; k++)
        for (unsigned i = 0; i < 3 && rc == PST_OK; i++) {
            struct pst_import_split_source *split = &r->im->own_split[k];
            if (pst_table_is_one(split->source[i]))
                rc = convert(r, PST_IMPORT_TRAIN + i, split->source[i], split->told_as[i]);
        }
    return rc;
}

bool pst_import_has_tables(const struct pst_import_spec *s)
{
    bool found = false;
    for (unsigned i = 0; i < PST_IMPORT_SOURCES; i++)
        found |= may_be_table(i) && pst_table_is_one(s->source[i]);
    for (int k = 0; k < s->named_splits; k++)
        for (int i = 0; i < 3; i++)
            found |= pst_table_is_one(s->named_split[k].source[i]);
    return found;
}

pst_rc pst_import_read_tables(struct pst_import_state *im, struct pst_build *b, struct pst_progress *progress)
{
    struct reading r = {.im = im, .build = b, .progress = progress};
    struct pst_numbering_spec numbering = {.kind = PST_NUMBERING_IDENTITY};
    if (!pst_import_has_tables(im->spec))
        return PST_OK;
    if (im->spec->numbering != NULL)
        numbering = *im->spec->numbering;
    numbering.vertices = im->vertices;
    im->own.vertices = im->vertices;
    im->own_split = calloc((size_t)im->spec->named_splits + 1, sizeof *im->own_split);
    if (im->own_split == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the names of splits");
    if (im->spec->named_splits > 0)
        memcpy(im->own_split, im->spec->named_split, (size_t)im->spec->named_splits * sizeof *im->own_split);
    pst_build_temp(b, "numbers", r.temp);
    pst_rc rc = pst_numbering_open(&r.numbering, &numbering);
    if (rc == PST_OK)
        rc = convert_all(&r);
    im->own.named_split = im->own_split;
    pst_numbering_close(&r.numbering);
    return rc;
}
