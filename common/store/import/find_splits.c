/* find_splits.c: several splits in a source's directory: splits/NAME/train_idx.npy and so on, one or two
 * folders deep. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/importing.h"

#define DEPTH_MAX 2 /* a family's name, and a split's in it: "geom/3" */

static const char *const usual[3][6] = {{"train_idx", "train_mask", "train"},
                                        {"val_idx", "val_mask", "val", "valid_idx", "valid_mask", "valid"},
                                        {"test_idx", "test_mask", "test"}};

pst_rc pst_import_find_part(const char *dir, int part, const char *const *endings, char out[PST_PATH_MAX])
{
    char path[PST_PATH_MAX];
    out[0] = '\0';
    for (size_t i = 0; i < sizeof usual[0] / sizeof usual[0][0] && usual[part][i] != NULL; i++)
        for (int e = 0; endings[e] != NULL; e++) {
            if ((size_t)snprintf(path, sizeof path, "%s/%s%s", dir, usual[part][i], endings[e]) >=
                    sizeof path ||
                access(path, F_OK) != 0)
                continue;
            if (out[0] != '\0')
                return pst_fail(
                    PST_E_ARG, "found both %s and %s: choose one with %s", out, path,
                    pst_import_source_option((enum pst_import_source_id)(PST_IMPORT_TRAIN + part)));
            memcpy(out, path, sizeof path);
        }
    return PST_OK;
}

struct finding {
    const char *const *endings;
    struct pst_import_split_source *split;
    int n;
};

/* Adds the split whose files are in dir, if there are some. */
static pst_rc take_dir(struct finding *f, const char *dir, const char *name)
{
    struct pst_import_split_source *s = &f->split[f->n];
    pst_rc rc = PST_OK;
    if (f->n == PST_DATASET_SPLITS_MAX)
        return pst_fail(PST_E_LIMIT, "%s: too many splits: at most %d are allowed", dir,
                        PST_DATASET_SPLITS_MAX);
    if (strlen(name) >= sizeof s->name)
        return pst_fail(PST_E_LIMIT, "%s: the name of a split is too long: at most %zu bytes are allowed",
                        dir, sizeof s->name - 1);
    for (int part = 0; part < 3 && rc == PST_OK; part++)
        rc = pst_import_find_part(dir, part, f->endings, s->source[part]);
    if (rc == PST_OK && (s->source[0][0] != '\0' || s->source[1][0] != '\0' || s->source[2][0] != '\0')) {
        (void)snprintf(s->name, sizeof s->name, "%s", name);
        f->n++;
    }
    return rc;
}

static int is_folder(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* 10 comes after 9. */
static pst_rc scan(struct finding *f, const char *dir, const char *prefix, int depth)
{
    struct dirent **entries;
    const int n = scandir(dir, &entries, is_folder, versionsort);
    if (n < 0)
        return errno == ENOENT || errno == ENOTDIR ? PST_OK : pst_fail_errno("cannot read %s", dir);
    pst_rc rc = PST_OK;
    for (int i = 0; i < n; i++) {
        char path[PST_PATH_MAX], name[PST_PATH_MAX];
        struct stat st;
        (void)snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
        (void)snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", entries[i]->d_name);
        if (rc == PST_OK && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            rc = take_dir(f, path, name);
            if (rc == PST_OK && depth < DEPTH_MAX)
                rc = scan(f, path, name, depth + 1);
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

/* The splits that meta.json lists, as `penstock export` writes them: the first one's files have the usual
 * names, those of the k-th are train_idx_k and so on. */
static pst_rc take_listed(struct finding *f, const char *dir, const json_t *names)
{
    const size_t n = json_array_size(names);
    if (n > PST_DATASET_SPLITS_MAX)
        return pst_fail(PST_E_LIMIT, "%s/meta.json: too many splits: at most %d are allowed", dir,
                        PST_DATASET_SPLITS_MAX);
    for (size_t k = 1; k < n; k++) {
        struct pst_import_split_source *s = &f->split[f->n++];
        const char *name = json_string_value(json_array_get(names, k));
        bool found = false;
        if (name == NULL || name[0] == '\0' || strlen(name) >= sizeof s->name)
            return pst_fail(PST_E_FORMAT, "%s/meta.json: splits[%zu]: expected the name of a split", dir, k);
        (void)snprintf(s->name, sizeof s->name, "%s", name);
        for (int part = 0; part < 3; part++) {
            (void)snprintf(s->source[part], sizeof s->source[part], "%.4000s/%s_%zu%s", dir, usual[part][0],
                           k, f->endings[0]);
            if (access(s->source[part], F_OK) != 0)
                s->source[part][0] = '\0';
            found |= s->source[part][0] != '\0';
        }
        if (!found)
            return pst_fail(
                PST_E_FORMAT,
                "%s/meta.json lists the split '%s', but train_idx_%zu%s is missing in the same directory",
                dir, name, k, f->endings[0]);
    }
    return PST_OK;
}

pst_rc pst_import_find_splits(const char *dir, const json_t *meta, const char *const *endings,
                              struct pst_import_spec *spec, struct pst_import_split_source **out)
{
    struct finding f = {.endings = endings, .split = calloc(PST_DATASET_SPLITS_MAX + 1, sizeof *f.split)};
    const json_t *names = json_object_get(meta, "splits");
    char path[PST_PATH_MAX];
    *out = f.split;
    if (f.split == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate names of splits");
    (void)snprintf(path, sizeof path, "%s/splits", dir);
    const char *first = json_string_value(json_array_get(names, 0));
    if (first != NULL)
        (void)snprintf(spec->split_name, sizeof spec->split_name, "%s", first);
    pst_rc rc = first != NULL ? take_listed(&f, dir, names) : scan(&f, path, "", 1);
    spec->named_split = f.split;
    spec->named_splits = f.n;
    return rc;
}
