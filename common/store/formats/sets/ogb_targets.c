/* ogb_targets.c: what OGB data sets predict beside one label: several labels, or links. */
#include "common/store/formats/sets/ogb_targets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/pairs.h"
#include "common/store/text/python.h"

#define TASKS_MAX 4096 /* labels of one vertex */

static pst_rc write_rows(struct pst_build *b, const struct pst_array *a, const char *told)
{
    struct pst_array_writer w = {.fd = -1};
    uint8_t row[TASKS_MAX];
    pst_rc rc = pst_build_array(b, PST_ARRAY_MULTILABELS, PST_U8, 2, a->shape, &w);
    for (int64_t v = 0; v < a->shape[0] && rc == PST_OK; v++) {
        for (int64_t k = 0; k < a->shape[1] && rc == PST_OK; k++) {
            int64_t label = pst_import_label_at(a, v * a->shape[1] + k);
            if (label < -1 || label > 1)
                rc = pst_fail(PST_E_FORMAT, "%s: row %" PRId64 ", column %" PRId64 ": expected 0, 1 or nan",
                              told, v, k);
            row[k] = label < 0 ? UINT8_MAX : (uint8_t)label;
        }
        if (rc == PST_OK)
            rc = pst_array_write(&w, row, (size_t)a->shape[1]);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_ARRAY_MULTILABELS, &w);
    pst_array_writer_release(&w);
    return rc;
}

pst_rc pst_ogb_multilabels(struct pst_import_job *job, const char *path, const char *told)
{
    struct pst_array a;
    pst_rc rc = pst_array_open(&a, path);
    if (rc == PST_OK)
        rc = pst_array_map(&a);
    if (rc == PST_OK && (a.dtype == PST_F16 || a.dtype == PST_BF16))
        rc = pst_fail(PST_E_FORMAT, "%s: expected labels as integers or floats, found %s", told,
                      pst_dtype_name(a.dtype));
    if (rc == PST_OK && (a.shape[0] != job->build->manifest.vertices || a.shape[1] > TASKS_MAX))
        rc = pst_fail(PST_E_FORMAT,
                      "%s: expected %" PRId64 " rows of at most %d labels, found %" PRId64 " of %" PRId64,
                      told, job->build->manifest.vertices, TASKS_MAX, a.shape[0], a.shape[1]);
    if (rc == PST_OK)
        rc = write_rows(job->build, &a, told);
    pst_array_close(&a);
    return rc;
}

/* ---- links ---- */

/* One unpacked array of integers; *there false: the file has none of that name. */
static pst_rc open_key(const char *prefix, const char *told, const char *key, struct pst_array *a,
                       bool *there)
{
    char path[4096 + 64];
    *a = (struct pst_array){.map = NULL};
    (void)snprintf(path, sizeof path, "%s%s.npy", prefix, key);
    *there = access(path, F_OK) == 0;
    if (!*there)
        return PST_OK;
    pst_rc rc = pst_array_open(a, path);
    if (rc == PST_OK)
        rc = pst_array_map(a);
    if (rc == PST_OK && !pst_dtype_is_integer(a->dtype))
        rc = pst_fail(PST_E_FORMAT, "%s: %s: expected " PST_IMPORT_INTEGERS ", found %s", told, key,
                      pst_dtype_name(a->dtype));
    (void)snprintf(a->path, sizeof a->path, "%.3900s (%s)", told, key);
    return rc;
}

/* edge, edge_neg: rows of source and target. */
static pst_rc take_pairs(struct pst_import_job *job, const char *prefix, const char *told, const char *key,
                         enum pst_array_id id, bool *there)
{
    struct pst_array a;
    char path[4096 + 64];
    const int64_t n = job->build->manifest.vertices;
    pst_rc rc = open_key(prefix, told, key, &a, there);
    if (rc == PST_OK && *there && (a.rank != 2 || a.shape[1] != 2))
        rc = pst_fail(PST_E_FORMAT, "%s: expected shape (n, 2), found (%" PRId64 ", %" PRId64 ")", a.path,
                      a.shape[0], a.shape[1]);
    (void)snprintf(path, sizeof path, "%s%s.npy", prefix, key);
    const struct pst_import_edge_array e = {
        .a = &a, .file = path, .shape = PST_EDGES_EX2, .edges = a.shape[0], .limit = {n, n}};
    if (rc == PST_OK && *there)
        rc = pst_pairs_from(job->build, id, n, &e, job->progress);
    pst_array_close(&a);
    return rc;
}

/* Each source with its target, or with each of the `columns` targets of its row. */
static pst_rc take_lists(struct pst_import_job *job, const struct pst_array *source,
                         const struct pst_array *target, enum pst_array_id id)
{
    const int64_t n = job->build->manifest.vertices, columns = target->rank == 2 ? target->shape[1] : 1;
    struct pst_pairs p;
    struct pst_problems problems = {.count = 0};
    int64_t bad = 0;
    if (source->shape[0] != target->shape[0])
        return pst_fail(PST_E_FORMAT,
                        "%s: expected %" PRId64 " rows, as in the array of sources, found %" PRId64,
                        target->path, source->shape[0], target->shape[0]);
    pst_pairs_begin(&p, job->build, id, n);
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < source->shape[0] * columns && rc == PST_OK; i++) {
        const int64_t s = pst_import_int_at(source, i / columns), t = pst_import_int_at(target, i);
        if (s < 0 || s >= n)
            pst_import_tell(&problems, &bad, source->path, i / columns, s, n, "entry");
        else if (t < 0 || t >= n)
            pst_import_tell(&problems, &bad, target->path, i, t, n, "entry");
        else
            rc = pst_pairs_add(&p, &s, &t, NULL, 1);
    }
    pst_import_tell_rest(&problems, bad, target->path);
    if (rc == PST_OK)
        rc = pst_problems_result(&problems, "cannot import");
    if (rc == PST_OK)
        rc = pst_pairs_end(&p);
    pst_pairs_release(&p);
    return rc;
}

static pst_rc take_columns(struct pst_import_job *job, const char *prefix, const char *told, int split)
{
    struct pst_array a[3];
    bool there[3];
    static const char *const keys[3] = {"source_node", "target_node", "target_node_neg"};
    pst_rc rc = PST_OK;
    for (int k = 0; k < 3; k++)
        a[k] = (struct pst_array){.map = NULL};
    for (int k = 0; k < 3 && rc == PST_OK; k++)
        rc = open_key(prefix, told, keys[k], &a[k], &there[k]);
    if (rc == PST_OK && !(there[0] && there[1]))
        rc = pst_fail(PST_E_FORMAT, "%s: expected the keys edge, or source_node and target_node", told);
    if (rc == PST_OK)
        rc = take_lists(job, &a[0], &a[1], (enum pst_array_id)(PST_ARRAY_EDGES_TRAIN + split));
    if (rc == PST_OK && there[2] && split > 0)
        rc = take_lists(job, &a[0], &a[2], (enum pst_array_id)(PST_ARRAY_NEGATIVES_VAL + split - 1));
    for (int k = 0; k < 3; k++)
        pst_array_close(&a[k]);
    return rc;
}

pst_rc pst_ogb_links(struct pst_import_job *job, const char *dir)
{
    static const char *const names[3] = {"train", "valid", "test"};
    pst_rc rc = PST_OK;
    for (int k = 0; k < 3 && rc == PST_OK; k++) {
        char path[4096], prefix[4096], name[32];
        bool pairs, negatives;
        (void)snprintf(path, sizeof path, "%.4000s/%s.pt", dir, names[k]);
        if (access(path, F_OK) != 0)
            continue;
        (void)snprintf(name, sizeof name, "links-%s-", names[k]);
        pst_build_temp(job->build, name, prefix);
        prefix[strlen(prefix) - strlen(".npy")] = '\0';
        if ((rc = pst_python_run("torch_file", path, prefix)) != PST_OK)
            break;
        rc = take_pairs(job, prefix, path, "edge", (enum pst_array_id)(PST_ARRAY_EDGES_TRAIN + k), &pairs);
        if (rc == PST_OK && k > 0)
            rc = take_pairs(job, prefix, path, "edge_neg",
                            (enum pst_array_id)(PST_ARRAY_NEGATIVES_VAL + k - 1), &negatives);
        if (rc == PST_OK && !pairs)
            rc = take_columns(job, prefix, path, k);
    }
    return rc;
}
