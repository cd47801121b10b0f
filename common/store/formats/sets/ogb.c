/* OGB's raw layout: raw/{edge,num-node-list,num-edge-list,node-feat,node-label}.csv.gz, or raw/data.npz with
 * edge_index (2, E), node_feat, num_nodes_list, num_edges_list, and raw/node-label.npz (ogbn-papers100M);
 * split/NAME/{train,valid,test}.csv.gz, or .pt where links are predicted. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/job.h"
#include "common/store/formats/sets/ogb_files.h"
#include "common/store/formats/sets/ogb_targets.h"
#include "common/store/import/importing.h"
#include "common/store/text/text_array.h"
#include "common/store/text/zip.h"

/* NAME.csv.gz, or unpacked. */
bool pst_ogb_find(const char *dir, const char *name, char out[4096])
{
    static const char *const ends[] = {".csv.gz", ".csv", ".csv.zst"};
    for (int i = 0; i < 3; i++) {
        (void)snprintf(out, 4096, "%.3800s/%s%s", dir, name, ends[i]);
        if (access(out, F_OK) == 0)
            return true;
    }
    (void)snprintf(out, 4096, "%.3800s/%s.csv.gz", dir, name);
    return false;
}

/* One count in a file of one line: a node-property data set has one graph. */
pst_rc pst_ogb_count(const char *dir, const char *name, int64_t *out)
{
    char path[4096];
    *out = -1;
    if (!pst_ogb_find(dir, name, path))
        return PST_OK;
    struct pst_text t;
    const char *p, *end;
    pst_rc rc = pst_text_open(&t, path);
    if (rc == PST_OK)
        rc = pst_text_block(&t, &p, &end);
    if (rc == PST_OK && (p == end || !pst_text_id(&p, out) || *out > INT64_MAX / 32))
        rc = pst_fail(PST_E_FORMAT, "%s:1: expected a count", path);
    if (rc == PST_OK && memchr(p, '\n', (size_t)(end - p)) != end - 1)
        rc = pst_fail(PST_E_UNSUPPORTED,
                      "%s:2: expected one count: this version does not read data sets of several graphs",
                      path);
    pst_text_close(&t);
    return rc;
}

pst_rc pst_ogb_array(struct pst_import_job *job, enum pst_import_source_id id, const char *path,
                     struct pst_text_array_spec spec)
{
    static const char *const names[PST_IMPORT_SOURCES] = {[PST_IMPORT_FEATURES] = "features",
                                                          [PST_IMPORT_LABELS] = "labels",
                                                          [PST_IMPORT_TRAIN] = "train",
                                                          [PST_IMPORT_VAL] = "val",
                                                          [PST_IMPORT_TEST] = "test"};
    char *to = job->spec.source[id];
    if (to[0] != '\0' || job->skip[id])
        return PST_OK; /* the user named another, or none */
    pst_build_temp(job->build, names[id], to);
    (void)snprintf(job->spec.told_as[id], sizeof job->spec.told_as[id], "%s", path);
    spec.path = path;
    spec.to = to;
    return pst_text_array(&spec, NULL, job->progress);
}

/* The only directory in split/, or the one that was named. */
pst_rc pst_ogb_find_split(const struct pst_import_job *job, char out[4096])
{
    char dir[4096], names[512] = "";
    int found = 0;
    (void)snprintf(dir, sizeof dir, "%.3800s/split", job->from);
    DIR *d = opendir(dir);
    out[0] = '\0';
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.' || (job->split[0] != '\0' && strcmp(job->split, e->d_name) != 0))
            continue;
        (void)snprintf(out, 4096, "%.3800s/%.200s", dir, e->d_name);
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), " %.100s", e->d_name);
        found++;
    }
    if (d != NULL)
        (void)closedir(d);
    if (found > 1)
        return pst_fail(PST_E_ARG, "%s: choose one of the splits with --split:%s", dir, names);
    if (found == 0 && job->split[0] != '\0')
        return pst_fail(PST_E_ARG, "%s: unknown split '%s'", dir, job->split);
    return PST_OK;
}

pst_rc pst_ogb_take_splits(struct pst_import_job *job, const char *dir, int64_t vertices)
{
    static const char *const names[3] = {"train", "valid", "test"};
    char path[4096];
    pst_rc rc = PST_OK;
    for (unsigned i = 0; rc == PST_OK && i < 3; i++)
        if (pst_ogb_find(dir, names[i], path))
            rc = pst_ogb_array(
                job, PST_IMPORT_TRAIN + i, path,
                (struct pst_text_array_spec){.integers = true, .limit = vertices, .rows = -1, .columns = 1});
    return rc;
}

static pst_rc take_splits(struct pst_import_job *job, int64_t vertices)
{
    char dir[4096];
    pst_rc rc = pst_ogb_find_split(job, dir);
    return rc == PST_OK && dir[0] != '\0' ? pst_ogb_take_splits(job, dir, vertices) : rc;
}

/* Labels of several columns are no class: they are set aside in *multi, and written after the import. */
struct multilabels {
    char path[4096], told[4096]; /* "": there are none */
};

static pst_rc set_aside(struct pst_import_job *job, struct multilabels *multi)
{
    struct pst_array a;
    char *path = job->spec.source[PST_IMPORT_LABELS];
    multi->path[0] = '\0';
    if (job->spec.told_as[PST_IMPORT_LABELS][0] == '\0') /* the user's own, or none */
        return PST_OK;
    pst_rc rc = pst_array_open(&a, path);
    if (rc == PST_OK && a.rank == 2 && a.shape[1] > 1) {
        memcpy(multi->path, path, sizeof multi->path);
        memcpy(multi->told, job->spec.told_as[PST_IMPORT_LABELS], sizeof multi->told);
        path[0] = job->spec.told_as[PST_IMPORT_LABELS][0] = '\0';
    }
    return rc == PST_OK ? rc : pst_wrap(rc, "%s", job->spec.told_as[PST_IMPORT_LABELS]);
}

/* What is predicted beside one label a vertex. */
static pst_rc write_tasks(struct pst_import_job *job, const struct multilabels *multi)
{
    char dir[4096];
    pst_rc rc = multi->path[0] != '\0' ? pst_ogb_multilabels(job, multi->path, multi->told) : PST_OK;
    if (rc == PST_OK)
        rc = pst_ogb_find_split(job, dir);
    return rc == PST_OK && dir[0] != '\0' ? pst_ogb_links(job, dir) : rc;
}

/* ---- raw/data.npz ---- */

/* One member as a source of the import. */
static pst_rc take_member(struct pst_import_job *job, const struct pst_zip *z, const char *name,
                          enum pst_import_source_id id, bool needed)
{
    char member[64];
    char *to = job->spec.source[id];
    if (to[0] != '\0' || job->skip[id])
        return PST_OK;
    (void)snprintf(member, sizeof member, "%s.npy", name);
    const struct pst_zip_member *m = pst_zip_find(z, member);
    if (m == NULL)
        return needed ? pst_fail(PST_E_FORMAT, "%s: member %s is missing", z->path, member) : PST_OK;
    pst_build_temp(job->build, name, to);
    (void)snprintf(job->spec.told_as[id], sizeof job->spec.told_as[id], "%.3900s (%s)", z->path, member);
    return pst_zip_extract(z, m, to, job->progress);
}

/* The only entry of a list of counts. */
static pst_rc take_count(struct pst_import_job *job, const struct pst_zip *z, const char *name, int64_t *out)
{
    char member[64], path[4096];
    struct pst_array a = {.map = NULL};
    (void)snprintf(member, sizeof member, "%s.npy", name);
    const struct pst_zip_member *m = pst_zip_find(z, member);
    pst_build_temp(job->build, name, path);
    pst_rc rc = m != NULL ? pst_zip_extract(z, m, path, NULL)
                          : pst_fail(PST_E_FORMAT, "%s: member %s is missing", z->path, member);
    if (rc == PST_OK)
        rc = pst_array_open(&a, path);
    if (rc == PST_OK)
        rc = pst_array_map(&a);
    bool integers = rc == PST_OK && pst_dtype_is_integer(a.dtype);
    if (integers && a.shape[0] > 1)
        rc = pst_fail(PST_E_UNSUPPORTED,
                      "%s (%s): expected one count: this version does not read data sets of several graphs",
                      z->path, member);
    else if (rc == PST_OK && (!integers || a.shape[0] != 1 || pst_import_int_at(&a, 0) < 0))
        rc = pst_fail(PST_E_FORMAT, "%s (%s): expected a single count", z->path, member);
    if (rc == PST_OK)
        *out = pst_import_int_at(&a, 0);
    pst_array_close(&a);
    return rc;
}

static pst_rc check_edge_count(const struct pst_import_spec *s, const char *archive, int64_t expected)
{
    struct pst_array a;
    pst_rc rc = pst_array_open_edges(&a, s->source[PST_IMPORT_EDGES]);
    if (rc != PST_OK || a.rank != 2 || a.shape[0] != 2)
        return PST_OK; /* the import says what is wrong */
    return a.shape[1] == expected
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "%s: num_edges_list gives %" PRId64 " edges, but edge_index has %" PRId64, archive,
                          expected, a.shape[1]);
}

static pst_rc take_labels(struct pst_import_job *job, const char *raw)
{
    char path[4096];
    struct pst_zip z = {.fd = -1};
    (void)snprintf(path, sizeof path, "%.3900s/node-label.npz", raw);
    if (access(path, F_OK) != 0)
        return PST_OK;
    pst_rc rc = pst_zip_open(&z, path);
    if (rc == PST_OK)
        rc = take_member(job, &z, "node_label", PST_IMPORT_LABELS, true);
    pst_zip_close(&z);
    return rc;
}

static pst_rc import_npz(struct pst_import_job *job, const char *raw, const char *archive)
{
    struct pst_import_spec *s = &job->spec;
    struct pst_zip z = {.fd = -1};
    int64_t edges = -1;
    pst_rc rc = pst_zip_open(&z, archive);
    if (rc == PST_OK)
        rc = take_count(job, &z, "num_nodes_list", &s->vertices);
    if (rc == PST_OK)
        rc = take_count(job, &z, "num_edges_list", &edges);
    bool own = s->source[PST_IMPORT_EDGES][0] != '\0';
    if (rc == PST_OK)
        rc = take_member(job, &z, "edge_index", PST_IMPORT_EDGES, true);
    if (rc == PST_OK && !own)
        rc = check_edge_count(s, archive, edges);
    if (rc == PST_OK)
        rc = take_member(job, &z, "node_feat", PST_IMPORT_FEATURES, false);
    pst_zip_close(&z);
    struct multilabels multi;
    if (rc == PST_OK)
        rc = take_labels(job, raw);
    if (rc == PST_OK)
        rc = set_aside(job, &multi);
    if (rc == PST_OK)
        rc = take_splits(job, s->vertices);
    if (rc != PST_OK)
        return rc;
    if (s->edge_shape == PST_EDGES_AUTO && !own) {
        s->edge_shape = PST_EDGES_2XE;
        s->shape_by = "OGB";
    }
    rc = pst_import(s, job->build, job->result, job->progress);
    return rc == PST_OK ? write_tasks(job, &multi) : rc;
}

static pst_rc import_ogb(struct pst_import_job *job)
{
    char raw[4096], path[4096], edges[4096];
    struct multilabels multi;
    int64_t vertices;
    (void)snprintf(raw, sizeof raw, "%.3800s/raw", job->from);
    pst_import_name(&job->spec, job->from);
    (void)snprintf(path, sizeof path, "%.4000s/data.npz", raw);
    if (access(path, F_OK) == 0)
        return import_npz(job, raw, path);
    if (pst_ogb_find(raw, "triplet-type-list", path))
        return pst_ogb_import_types(job, raw);
    if (!pst_ogb_find(raw, "edge", edges))
        return pst_fail(PST_E_ARG, "%s: %s is missing, and so is data.npz", job->from, edges);
    pst_rc rc = pst_ogb_count(raw, "num-node-list", &vertices);
    if (rc == PST_OK)
        rc = pst_ogb_count(raw, "num-edge-list", &job->text.expect);
    if (rc == PST_OK && vertices < 0)
        rc = pst_fail(PST_E_ARG, "%s: num-node-list.csv.gz is missing", raw);
    if (rc == PST_OK && pst_ogb_find(raw, "node-feat", path))
        rc = pst_ogb_array(job, PST_IMPORT_FEATURES, path,
                           (struct pst_text_array_spec){.rows = vertices, .columns = -1});
    if (rc == PST_OK && pst_ogb_find(raw, "node-label", path))
        rc = pst_ogb_array(job, PST_IMPORT_LABELS, path,
                           (struct pst_text_array_spec){.rows = vertices, .columns = -1, .may_be_nan = true});
    if (rc == PST_OK)
        rc = set_aside(job, &multi);
    if (rc == PST_OK)
        rc = take_splits(job, vertices);
    if (rc != PST_OK)
        return rc;
    job->spec.vertices = vertices;
    job->text.by = PST_EDGE_TEXT_BY_CHARACTER;
    job->text.separator = ',';
    job->text.header = PST_EDGE_TEXT_HEADER_NO;
    rc = pst_import_edge_text(job, edges);
    return rc == PST_OK ? write_tasks(job, &multi) : rc;
}

const struct pst_import_format pst_format_ogb = {"ogb",
                                                 "a directory of OGB: raw/edge.csv.gz or raw/data.npz, "
                                                 "node-label; split/NAME/train.csv.gz; or of several types",
                                                 import_ogb};
