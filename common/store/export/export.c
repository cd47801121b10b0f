/* export.c: the directory that an export makes: whole or not at all. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/store/export/export_impl.h"
#include "common/store/export/leftover.h"
#include "common/util/file.h"
#include "common/util/tempname.h"

const char *const pst_export_parts[3] = {"train", "val", "test"};

void pst_export_path(const struct pst_export_job *x, const char *name, char path[PST_EXPORT_PATH_MAX])
{
    (void)snprintf(path, PST_EXPORT_PATH_MAX, "%s/%s", x->partial, name);
}

FILE *pst_export_create(const struct pst_export_job *x, const char *name)
{
    char path[PST_EXPORT_PATH_MAX];
    pst_export_path(x, name, path);
    FILE *f = fopen(path, "wxe");
    if (f == NULL)
        (void)pst_fail_errno("cannot create %s", path);
    return f;
}

pst_rc pst_export_finish(FILE *f, const char *name)
{
    bool ok = ferror(f) == 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    pst_rc rc = ok ? PST_OK : pst_fail_errno("cannot write %s", name);
    if (fclose(f) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s", name);
    return rc;
}

int64_t pst_export_source(const struct pst_dataset *ds, int64_t i)
{
    const int64_t u = ds->indices.dtype == PST_I32 ? ((const int32_t *)ds->indices.map)[i]
                                                   : ((const int64_t *)ds->indices.map)[i];
    if (u >= 0 && u < ds->vertices)
        return u;
    (void)pst_fail(PST_E_FORMAT,
                   "%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64
                   ": `penstock verify` shows details",
                   ds->indices.path, i, ds->vertices - 1, u);
    return -1;
}

pst_rc pst_export_each_split(struct pst_export_job *x, pst_export_split_fn *fn)
{
    const struct pst_dataset *ds = x->ds;
    pst_rc rc = ds->splits == 0 ? fn(x, ds->split, "") : PST_OK;
    for (int k = 0; k < ds->splits && rc == PST_OK; k++) {
        char ending[16] = "";
        if (k > 0)
            (void)snprintf(ending, sizeof ending, "_%d", k);
        rc = fn(x, k == ds->chosen ? ds->split : ds->named_split[k].ids, ending);
    }
    return rc;
}

/* One row for each vertex of ds. */
static pst_rc open_rows(const struct pst_dataset *ds, const char *path, struct pst_array *a)
{
    pst_rc rc = pst_array_open(a, path);
    if (rc != PST_OK)
        return rc;
    if (a->dtype != PST_F32 && a->dtype != PST_F64 && a->dtype != PST_I32 && a->dtype != PST_I64)
        rc = pst_fail(PST_E_FORMAT, "%s: expected float32, float64, int32 or int64, found %s", path,
                      pst_dtype_name(a->dtype));
    else if (a->shape[0] != ds->vertices)
        rc = pst_fail(PST_E_FORMAT,
                      "%s: expected one row for each of the %" PRId64 " vertices of %s, found %" PRId64, path,
                      ds->vertices, ds->dir, a->shape[0]);
    if (rc == PST_OK)
        rc = pst_array_map(a);
    if (rc != PST_OK)
        pst_array_close(a);
    return rc;
}

static void remove_partial(const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (e->d_name[0] != '.')
            (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
    (void)rmdir(path);
}

pst_rc pst_export(struct pst_dataset *ds, const char *dir, enum pst_export_format format,
                  const char *rows_path, struct pst_progress *progress)
{
    struct pst_export_job x = {.ds = ds, .progress = progress};
    int held; /* the lock of the directory that is made */
    struct pst_array rows = {.rank = 0};
    char to[PST_PATH_MAX];
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (n == 0)
        return pst_fail(PST_E_ARG, "the output directory's path is empty");
    if (n >= sizeof to)
        return pst_fail(PST_E_ARG, "the path of the output directory is too long: expected 1 to %zu bytes",
                        sizeof to - 1);
    (void)snprintf(to, sizeof to, "%.*s", (int)n, dir);
    if (access(to, F_OK) == 0)
        return pst_fail(PST_E_STATE, "%s already exists: choose another directory", dir);
    pst_rc rc = pst_dataset_check(ds); /* indptr is trusted from here on */
    if (rc == PST_OK && rows_path != NULL)
        rc = open_rows(ds, rows_path, &rows);
    if (rc == PST_OK && rows_path == NULL)
        rc = pst_rows_map_features(ds);
    if (rc == PST_OK)
        rc = pst_tempname(x.partial, sizeof x.partial, to, PST_TEMPNAME_PARTIAL);
    if (rc == PST_OK)
        rc = pst_file_make_parents(to);
    if (rc == PST_OK) {
        pst_export_remove_leftovers(to);
        rc = pst_tempname_mkdir(x.partial, 0755, &held);
    }
    if (rc == PST_OK) {
        rc = format == PST_EXPORT_NPY ? pst_export_arrays(&x)
                                      : pst_export_csv(&x, rows_path != NULL ? &rows : NULL);
        if (rc == PST_OK && rename(x.partial, to) != 0)
            rc = pst_fail_errno("cannot rename %s to %s", x.partial, to);
        if (rc != PST_OK)
            remove_partial(x.partial);
        (void)close(held);
    }
    pst_array_close(&rows);
    return rc;
}
