/* OGB's raw layout: raw/{edge,num-node-list,num-edge-list,node-feat,node-label}.csv.gz,
 * split/NAME/{train,valid,test}.csv.gz.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../error.h"
#include "formats.h"
#include "text_array.h"

/* NAME.csv.gz, or unpacked. */
static bool find(const char *dir, const char *name, char out[4096])
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
static pst_rc read_count(const char *dir, const char *name, int64_t *out)
{
    char path[4096];
    *out = -1;
    if (!find(dir, name, path))
        return PST_OK;
    struct pst_text t;
    const char *p, *end;
    pst_rc rc = pst_text_open(&t, path);
    if (rc == PST_OK)
        rc = pst_text_block(&t, &p, &end);
    if (rc == PST_OK && (p == end || !pst_text_id(&p, out) || *out > INT64_MAX / 32))
        rc = pst_fail(PST_E_FORMAT, "%s:1: expected a count", path);
    if (rc == PST_OK && memchr(p, '\n', (size_t)(end - p)) != end - 1)
        rc =
            pst_fail(PST_E_UNSUPPORTED,
                     "%s:2: expected one count: a data set of many graphs is not read by this version", path);
    pst_text_close(&t);
    return rc;
}

static pst_rc to_array(struct pst_import_job *job, enum pst_source_id id, const char *path,
                       struct pst_text_array_spec spec)
{
    static const char *const names[PST_SOURCES] = {[PST_SRC_FEATURES] = "features",
                                                   [PST_SRC_LABELS] = "labels",
                                                   [PST_SRC_TRAIN] = "train",
                                                   [PST_SRC_VAL] = "val",
                                                   [PST_SRC_TEST] = "test"};
    char *to = job->spec.source[id];
    if (to[0] != '\0' || job->skip[id])
        return PST_OK; /* the user named another, or none */
    pst_build_temp(job->build, names[id], to);
    spec.path = path;
    spec.to = to;
    return pst_text_array(&spec, NULL, job->progress);
}

/* The only directory in split/, or the one that was named. */
static pst_rc find_split(struct pst_import_job *job, char out[4096])
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
        return pst_fail(PST_E_ARG, "%s: several splits:%s: say which with --split", dir, names);
    if (found == 0 && job->split[0] != '\0')
        return pst_fail(PST_E_ARG, "%s: there is no split '%s'", dir, job->split);
    return PST_OK;
}

static pst_rc take_splits(struct pst_import_job *job, int64_t vertices)
{
    static const char *const names[3] = {"train", "valid", "test"};
    char dir[4096], path[4096];
    pst_rc rc = find_split(job, dir);
    for (unsigned i = 0; rc == PST_OK && dir[0] != '\0' && i < 3; i++)
        if (find(dir, names[i], path))
            rc = to_array(
                job, PST_SRC_TRAIN + i, path,
                (struct pst_text_array_spec){.integers = true, .limit = vertices, .rows = -1, .columns = 1});
    return rc;
}

pst_rc pst_import_ogb(struct pst_import_job *job)
{
    char raw[4096], path[4096], edges[4096];
    int64_t vertices;
    (void)snprintf(raw, sizeof raw, "%.3800s/raw", job->from);
    if (!find(raw, "edge", edges))
        return pst_fail(PST_E_ARG, "%s: there is no %s", job->from, edges);
    pst_import_name(&job->spec, job->from);
    pst_rc rc = read_count(raw, "num-node-list", &vertices);
    if (rc == PST_OK)
        rc = read_count(raw, "num-edge-list", &job->text.expect);
    if (rc == PST_OK && vertices < 0)
        rc = pst_fail(PST_E_ARG, "%s: there is no num-node-list.csv.gz", raw);
    if (rc == PST_OK && find(raw, "node-feat", path))
        rc = to_array(job, PST_SRC_FEATURES, path,
                      (struct pst_text_array_spec){.rows = vertices, .columns = -1});
    if (rc == PST_OK && find(raw, "node-label", path))
        rc = to_array(job, PST_SRC_LABELS, path,
                      (struct pst_text_array_spec){.rows = vertices, .columns = 1, .may_be_nan = true});
    if (rc == PST_OK)
        rc = take_splits(job, vertices);
    if (rc != PST_OK)
        return rc;
    job->spec.vertices = vertices;
    job->text.separator = ',';
    job->text.header = PST_HEADER_NO;
    return pst_import_edge_text(job, edges);
}
