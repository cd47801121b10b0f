/* npy.c: a directory of NumPy arrays: what any program writes; and what `penstock export` writes beside it,
 * as meta.json lists it: relations, names, triples, several labels. So an exported dataset comes back as it
 * was. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/formats/arrays/npy_types.h"
#include "common/store/import/importing.h"
#include "common/store/import/kept.h"

/* All that meta.json says is kept; and targets and times of vertices, which other programs write, too. */
static pst_rc open_kept(struct pst_kept *k, const json_t *meta)
{
    pst_rc rc = pst_kept_begin(k, k->job, meta);
    for (unsigned i = PST_ARRAY_RELATIONS; i < PST_ARRAY_COUNT && rc == PST_OK; i++) {
        char path[PST_PATH_MAX];
        const bool listed = pst_kept_lists(meta, i);
        (void)snprintf(path, sizeof path, "%.4000s/%s.npy", k->job->from, pst_array_id_name(i));
        if (i == PST_ARRAY_EDGE_WEIGHTS || i == PST_ARRAY_EDGE_TIMES) /* sources: sorted with the edges */
            continue;
        if (!listed && ((i != PST_ARRAY_TARGETS && i != PST_ARRAY_VERTEX_TIMES) || access(path, F_OK) != 0))
            continue;
        k->any = true;
        rc = pst_kept_open(k, i, path, path);
        if (rc != PST_OK && listed)
            return pst_wrap(rc, "meta.json lists %s under 'kept'", pst_array_id_name(i));
    }
    if (json_object_get(meta, "kept") != NULL && k->job->spec.edge_shape == PST_EDGES_AUTO)
        k->job->spec.edge_shape = PST_EDGES_2XE; /* as export writes them, two edges too */
    return rc;
}

static pst_rc find(struct pst_import_job *job, const json_t *meta, struct pst_import_split_source **splits)
{
    static const char *const npy[] = {".npy", NULL};
    pst_rc rc = PST_OK;
    if (job->skip[PST_IMPORT_EDGES])
        return pst_fail(PST_E_ARG, "--edges none is not possible, because a dataset must have edges");
    if (json_object_get(meta, "vertex_types") != NULL)
        job->skip[PST_IMPORT_EDGES] = true; /* each type has its own */
    rc = pst_import_find(&job->spec, job->from, job->skip);
    memcpy(job->spec.only_split, job->split, sizeof job->split);
    return rc == PST_OK ? pst_import_find_splits(job->from, meta, npy, &job->spec, splits) : rc;
}

static pst_rc import_npy(struct pst_import_job *job)
{
    struct pst_kept *k = calloc(1, sizeof *k); /* paths: too much for the stack */
    struct pst_import_split_source *splits = NULL;
    json_t *meta;
    if (k == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot import");
    k->job = job;
    pst_rc rc = pst_import_meta(job->from, &meta);
    const bool typed = json_object_get(meta, "vertex_types") != NULL;
    if (rc == PST_OK)
        rc = find(job, meta, &splits);
    if (rc == PST_OK)
        rc = open_kept(k, meta);
    for (unsigned i = PST_IMPORT_EDGE_WEIGHTS; i <= PST_IMPORT_EDGE_TIMES && rc == PST_OK; i++)
        if (job->spec.source[i][0] != '\0' && (typed || k->array[PST_ARRAY_RELATIONS].map != NULL))
            rc = pst_fail(PST_E_UNSUPPORTED,
                          "%s: the edges have relations, so their %s cannot be imported: %s none leaves them "
                          "out",
                          job->spec.source[i], i == PST_IMPORT_EDGE_WEIGHTS ? "weights" : "times",
                          pst_import_source_option(i));
    if (rc == PST_OK && !typed)
        pst_kept_feed(k);
    if (rc == PST_OK)
        rc = typed ? pst_arrays_import_types(job, meta, NULL, NULL)
                   : pst_import(&job->spec, job->build, job->result, job->progress);
    if (rc == PST_OK && k->any)
        rc = pst_kept_copy(k);
    pst_kept_close(k);
    json_decref(meta);
    free(splits);
    free(k);
    return rc;
}

const struct pst_import_format pst_format_npy = {"npy", "a directory of NumPy arrays (see below)",
                                                 import_npy};
