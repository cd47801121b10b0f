/* parted.c: cuts a dataset into parts, and opens the part of a rank. */
#include "common/store/parted/parted_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/make/derive.h"
#include "common/util/file.h"

#define FORMAT 1        /* of parts.json */
#define FILE_BYTES 8192 /* it is smaller */

static pst_rc path_in(const char *dir, const char *name, char path[PST_PATH_MAX])
{
    return (size_t)snprintf(path, PST_PATH_MAX, "%s/%s", dir, name) < PST_PATH_MAX
               ? PST_OK
               : pst_fail(PST_E_ARG, "the path of the directory of parts is too long: %s", dir);
}

static pst_rc part_path(const char *dir, int part, char path[PST_PATH_MAX])
{
    char name[16];
    (void)snprintf(name, sizeof name, "part%d", part);
    return path_in(dir, name, path);
}

/* ---- writing ------------------------------------------------------------------------------------- */

static pst_rc check_whole(const struct pst_dataset *ds, const char *dir, int parts)
{
    struct stat st;
    char path[PST_PATH_MAX];
    if (ds->vertex_types > 0 || ds->feature_dim == 0)
        return pst_fail(PST_E_ARG,
                        "%s cannot be cut into parts, which divide the feature rows: expected features of "
                        "vertices of one type, found %s",
                        ds->dir, ds->vertex_types > 0 ? "several types of vertices" : "no features");
    if (ds->vertices < parts)
        return pst_fail(PST_E_ARG, "%s has %" PRId64 " vertices, too few for %d parts of at least one vertex",
                        ds->dir, ds->vertices, parts);
    static const char *const taken[] = {PST_DATASET_PARTS_FILE, "dataset.json"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const pst_rc rc = path_in(dir, taken[i], path);
        if (rc != PST_OK)
            return rc;
        if (stat(path, &st) == 0)
            return pst_fail(PST_E_STATE, "%s exists: remove %s first, or choose another directory", path,
                            dir);
    }
    return PST_OK;
}

/* A killed command may have left a part, which is replaced. Another dataset is not. */
static pst_rc check_place(const char *path)
{
    struct pst_dataset there;
    char manifest[PST_PATH_MAX];
    pst_rc rc = path_in(path, "dataset.json", manifest);
    if (rc != PST_OK || access(manifest, F_OK) != 0)
        return rc;
    const bool part = pst_dataset_open_part(&there, path) == PST_OK && there.cut.parts > 0;
    pst_dataset_close(&there);
    return part ? PST_OK
                : pst_fail(PST_E_STATE,
                           "%s is a dataset, but no part of one: choose another directory for the parts",
                           path);
}

static pst_rc write_part(const struct pst_dataset *ds, const char *dir, const struct pst_dataset_cut *cut,
                         struct pst_progress *progress)
{
    char path[PST_PATH_MAX];
    struct pst_build b;
    pst_rc rc = part_path(dir, cut->part, path);
    if (rc == PST_OK)
        rc = pst_build_begin(&b, path, true);
    if (rc != PST_OK)
        return rc;
    rc = pst_derive_part(ds, &b, cut, progress);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    pst_build_release(&b);
    return rc;
}

static json_t *list_of(const int64_t *first, int parts)
{
    json_t *list = json_array();
    for (int k = 0; k <= parts; k++)
        (void)json_array_append_new(list, json_integer((json_int_t)first[k]));
    return list;
}

static pst_rc write_list(const struct pst_dataset *ds, const char *path, const struct pst_dataset_cut *cut,
                         const struct pst_parted_spec *spec)
{
    json_t *root =
        json_pack("{si ss ss so so*}", "penstock_parts", FORMAT, "dataset", ds->digest, "by",
                  spec->part != NULL ? spec->by : "range", "first", list_of(cut->first, cut->parts),
                  "first_edge", cut->lists ? list_of(cut->first_edge, cut->parts) : NULL);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (text == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot write %s", path);
    const pst_rc rc = pst_file_replace(path, text, strlen(text));
    free(text);
    return rc;
}

static pst_rc check_lists(const struct pst_dataset *ds)
{
    return ds->edge_relation.map == NULL && ds->edge_weights.map == NULL && ds->edge_times.map == NULL
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "%s has relations, weights or times of edges, so its lists of neighbours cannot be "
                          "cut: leave --lists out",
                          ds->dir);
}

/* Where the lists of each part begin. */
static pst_rc cut_lists(const struct pst_dataset *ds, struct pst_dataset_cut *cut)
{
    const int64_t *indptr = ds->indptr.map;
    cut->lists = true;
    for (int k = 0; k <= cut->parts; k++)
        cut->first_edge[k] = indptr[cut->first[k]];
    for (int k = 0; k < cut->parts; k++)
        if (cut->first_edge[k + 1] <= cut->first_edge[k])
            return pst_fail(
                PST_E_ARG,
                "part %d of %s would have no edges, so its lists of neighbours cannot be cut: leave "
                "--lists out",
                k, ds->dir);
    return PST_OK;
}

pst_rc pst_parted_check(const struct pst_dataset *ds, const char *dir, const struct pst_parted_spec *spec,
                        bool renumbers)
{
    char path[PST_PATH_MAX];
    assert(spec->parts >= 2 && spec->parts <= PST_DATASET_PARTS_MAX);
    pst_rc rc = check_whole(ds, dir, spec->parts);
    if (rc == PST_OK && spec->lists)
        rc = check_lists(ds);
    for (int k = 0; k < spec->parts && rc == PST_OK; k++) {
        rc = part_path(dir, k, path);
        if (rc == PST_OK)
            rc = check_place(path);
    }
    if (rc == PST_OK && renumbers)
        rc = path_in(dir, PST_PARTED_WHOLE, path);
    return rc == PST_OK && renumbers ? pst_parted_check_whole(ds, path) : rc;
}

/* cut->first is known. parts.json is written last. */
static pst_rc write_parts(const struct pst_dataset *ds, const char *dir, struct pst_dataset_cut *cut,
                          const struct pst_parted_spec *spec, struct pst_progress *progress)
{
    char list[PST_PATH_MAX];
    pst_rc rc = path_in(dir, PST_DATASET_PARTS_FILE, list);
    if (rc == PST_OK && spec->lists)
        rc = cut_lists(ds, cut);
    if (rc == PST_OK)
        rc = pst_file_make_parents(list);
    for (; cut->part < cut->parts && rc == PST_OK; cut->part++)
        rc = write_part(ds, dir, cut, progress);
    return rc == PST_OK ? write_list(ds, list, cut, spec) : rc;
}

/* The vertices get new numbers first. */
static pst_rc write_renumbered(const struct pst_dataset *ds, const char *dir, struct pst_dataset_cut *cut,
                               const struct pst_parted_spec *spec, struct pst_progress *progress)
{
    char path[PST_PATH_MAX];
    struct pst_dataset whole;
    pst_rc rc = path_in(dir, PST_PARTED_WHOLE, path);
    if (rc == PST_OK)
        rc = pst_parted_renumber(ds, path, spec, cut->first, progress);
    if (rc == PST_OK)
        rc = pst_dataset_open(&whole, path);
    if (rc != PST_OK)
        return rc;
    rc = write_parts(&whole, dir, cut, spec, progress);
    pst_dataset_close(&whole);
    return rc;
}

pst_rc pst_parted_write(const struct pst_dataset *ds, const char *dir, const struct pst_parted_spec *spec,
                        struct pst_progress *progress)
{
    struct pst_dataset_cut cut = {.parts = spec->parts};
    const pst_rc rc = pst_parted_check(ds, dir, spec, spec->part != NULL);
    if (rc != PST_OK)
        return rc;
    if (spec->part != NULL)
        return write_renumbered(ds, dir, &cut, spec, progress);
    for (int k = 0; k <= spec->parts; k++)
        cut.first[k] = pst_parted_begin(ds->vertices, spec->parts, k);
    return write_parts(ds, dir, &cut, spec, progress);
}

/* ---- opening ------------------------------------------------------------------------------------- */

struct list {
    char path[PST_PATH_MAX], digest[17];
    struct pst_dataset_cut cut;
};

static pst_rc wrong_list(const struct list *list, const char *what)
{
    return pst_fail(PST_E_FORMAT, "%s: %s: expected what `penstock partition --datasets` writes; cut again",
                    list->path, what);
}

static pst_rc parse(struct list *list, const json_t *root)
{
    const char *digest = json_string_value(json_object_get(root, "dataset"));
    const json_t *first = json_object_get(root, "first");
    const size_t n = json_array_size(first);
    if (json_integer_value(json_object_get(root, "penstock_parts")) != FORMAT)
        return wrong_list(list, "this version is not known");
    if (digest == NULL || strlen(digest) != sizeof list->digest - 1)
        return wrong_list(list, "\"dataset\" is no digest");
    if (n < 3 || n > PST_DATASET_PARTS_MAX + 1)
        return wrong_list(list, "\"first\" is wrong");
    (void)snprintf(list->digest, sizeof list->digest, "%s", digest);
    list->cut.parts = (int)n - 1;
    const json_t *edges = json_object_get(root, "first_edge");
    list->cut.lists = edges != NULL;
    if (edges != NULL && json_array_size(edges) != n)
        return wrong_list(list, "\"first_edge\" is wrong");
    for (size_t k = 0; k < n; k++) {
        list->cut.first[k] = (int64_t)json_integer_value(json_array_get(first, k));
        list->cut.first_edge[k] = (int64_t)json_integer_value(json_array_get(edges, k));
    }
    return PST_OK;
}

static pst_rc read_list(struct list *list)
{
    char *text;
    size_t bytes;
    pst_rc rc = pst_file_read(list->path, FILE_BYTES, &text, &bytes);
    if (rc != PST_OK)
        return rc;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    rc = root != NULL ? parse(list, root) : wrong_list(list, "this is no JSON");
    json_decref(root);
    return rc;
}

static pst_rc open_whole(struct pst_dataset *ds, const char *dir)
{
    pst_rc rc = pst_dataset_open_part(ds, dir);
    if (rc != PST_OK || ds->cut.parts == 0)
        return rc;
    rc = pst_fail(PST_E_ARG,
                  "%s is part %d of %d: name the directory that has " PST_DATASET_PARTS_FILE
                  ", so that each rank takes its part",
                  ds->dir, ds->cut.part, ds->cut.parts);
    pst_dataset_close(ds);
    return rc;
}

static pst_rc check_part(const struct pst_dataset *ds, const struct list *list, int part)
{
    const struct pst_dataset_cut *a = &ds->cut, *b = &list->cut;
    const char *what = a->parts == 0                           ? "a whole dataset"
                       : strcmp(ds->digest, list->digest) != 0 ? "a part of another dataset"
                       : a->parts != b->parts                  ? "a part of another cut of this dataset"
                       : memcmp(a->first, b->first, sizeof a->first) != 0 ||
                               memcmp(a->first_edge, b->first_edge, sizeof a->first_edge) != 0
                           ? "a part of another cut of this dataset"
                       : a->part != part ? "another part of this cut"
                                         : NULL;
    return what == NULL
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "%s is %s: expected part %d of the cut that %s describes; copy that part to "
                          "this place, or cut again",
                          ds->dir, what, part, list->path);
}

pst_rc pst_parted_open(struct pst_dataset *ds, const char *dir, int rank, int ranks)
{
    struct list list = {.digest = ""};
    char part[PST_PATH_MAX], manifest[PST_PATH_MAX];
    pst_rc rc = path_in(dir, PST_DATASET_PARTS_FILE, list.path);
    *ds = (struct pst_dataset){.vertices = 0};
    if (rc != PST_OK)
        return rc;
    if (access(list.path, F_OK) != 0)
        return open_whole(ds, dir);
    rc = read_list(&list);
    if (rc == PST_OK && list.cut.parts != ranks)
        rc = pst_fail(PST_E_ARG,
                      "%s is cut into %d parts, one for each rank, but there %s %d rank%s: start %d ranks "
                      "(mpirun -n %d), or cut the dataset into as many parts as there are ranks",
                      dir, list.cut.parts, ranks == 1 ? "is" : "are", ranks, ranks == 1 ? "" : "s",
                      list.cut.parts, list.cut.parts);
    if (rc == PST_OK)
        rc = part_path(dir, rank, part);
    if (rc == PST_OK)
        rc = path_in(part, "dataset.json", manifest);
    if (rc == PST_OK && access(manifest, F_OK) != 0)
        rc = pst_fail(PST_E_FORMAT,
                      "part %d of %s, which rank %d reads, is missing: there is no %s; copy the part to this "
                      "machine",
                      rank, dir, rank, manifest);
    if (rc == PST_OK)
        rc = pst_dataset_open_part(ds, part);
    if (rc != PST_OK)
        return rc;
    rc = check_part(ds, &list, rank);
    if (rc != PST_OK)
        pst_dataset_close(ds);
    return rc;
}
