/* build.c: the directory being made: begins, resumes, and removes what killed builders left. */
#include "common/store/build/build_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util/tempname.h"
#include "common/error.h"
#include "common/util/file.h"

#define TEMP_MARK "temp-"
#define EDGES_MARK "temp-edges."

/* The last component of a path without trailing slashes. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

void pst_build_parent(const char *path, char out[4096])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash == NULL ? 0 : (size_t)(slash - path);
    if (slash == NULL)
        (void)snprintf(out, 4096, ".");
    else
        (void)snprintf(out, 4096, "%.*s", n == 0 ? 1 : (int)n, path);
}

void pst_build_features_name(int type, char name[PST_NAME_MAX])
{
    (void)snprintf(name, PST_NAME_MAX, "features_%d.npy", type);
}

static const char *const split_parts[3] = {"train", "val", "test"};

void pst_build_split_name(int k, int part, char name[PST_NAME_MAX])
{
    if (k == 0)
        (void)snprintf(name, PST_NAME_MAX, "%s.npy", split_parts[part]);
    else
        (void)snprintf(name, PST_NAME_MAX, "%s_%d.npy", split_parts[part], k);
}

/* train_NUMBER.npy and so on */
static bool is_split(const char *name)
{
    for (int part = 0; part < 3; part++) {
        char expected[PST_NAME_MAX];
        const size_t n = strlen(split_parts[part]);
        if (strncmp(name, split_parts[part], n) != 0 || name[n] != '_')
            continue;
        pst_build_split_name((int)strtol(name + n + 1, NULL, 10), part, expected);
        if (strcmp(name, expected) == 0)
            return true;
    }
    return false;
}

/* features_NUMBER.npy */
static bool is_type_features(const char *name)
{
    char expected[PST_NAME_MAX];
    int type;
    if (sscanf(name, "features_%d.npy", &type) != 1)
        return false;
    pst_build_features_name(type, expected);
    return strcmp(name, expected) == 0;
}

bool pst_build_is_array_file(const char *name)
{
    if (is_type_features(name) || is_split(name) || pst_build_is_stripe(name))
        return true;
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++) {
        size_t n = strlen(pst_array_id_name(i));
        if (strncmp(name, pst_array_id_name(i), n) == 0 && strcmp(name + n, ".npy") == 0)
            return true;
    }
    return false;
}

/* A file that a directory being made may hold, or one that is replaced. */
static bool is_ours(const char *name)
{
    return pst_build_is_array_file(name) || strcmp(name, PST_MANIFEST_FILE) == 0 ||
           strcmp(name, PST_BUILD_REPLACED_FILE) == 0 || strncmp(name, TEMP_MARK, strlen(TEMP_MARK)) == 0;
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

typedef bool file_fn(const char *name);

static bool is_ours_but_temporary(const char *name)
{
    return is_ours(name) && strncmp(name, TEMP_MARK, strlen(TEMP_MARK)) != 0;
}

/* Removes the files of a directory whose names the function accepts. */
static void remove_files(const char *path, file_fn *fn)
{
    DIR *d = opendir(path);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (!fn(e->d_name))
            continue;
        if (pst_build_is_stripe(e->d_name))
            pst_build_stripe_link_remove(dirfd(d), e->d_name);
        (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d != NULL)
        (void)closedir(d);
}

void pst_build_empty_arrays(const char *path)
{
    remove_files(path, pst_build_is_array_file);
}

pst_rc pst_build_remove_dir(const char *path, bool temps)
{
    remove_files(path, temps ? is_ours : is_ours_but_temporary);
    return rmdir(path) == 0 || errno == ENOENT ? PST_OK : pst_fail_errno("cannot remove %s", path);
}

/* What a directory holds. */
struct contents {
    bool some, manifest, cut_off; /* cut_off: a replacement that was killed */
    char foreign[256];            /* a file that is not the dataset's; "": there is none */
};

/* Ours are the files that the manifest names. If it cannot be read, those that are called as a dataset's are.
 */
static void look_into(DIR *d, const char *dir, struct contents *c)
{
    struct pst_problems problems = {.count = 0};
    struct pst_manifest m;
    pst_manifest_read(&m, dir, &problems);
    *c = (struct contents){.some = false};
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        const char *name = e->d_name;
        if (is_dot(name))
            continue;
        c->some = true;
        c->manifest |= strcmp(name, PST_MANIFEST_FILE) == 0;
        c->cut_off |= strcmp(name, PST_BUILD_REPLACED_FILE) == 0;
        const bool ours = problems.count == 0
                              ? pst_build_names(&m, name) || strcmp(name, PST_BUILD_REPLACED_FILE) == 0
                              : is_ours_but_temporary(name);
        if (!ours)
            (void)snprintf(c->foreign, sizeof c->foreign, "%s", name);
    }
    pst_manifest_release(&m);
}

pst_rc pst_build_look_at(const char *dir, bool force, bool *replace)
{
    struct contents c;
    *replace = false;
    DIR *d = opendir(dir);
    if (d == NULL && errno == ENOENT)
        return PST_OK;
    if (d == NULL)
        return pst_fail_errno("cannot use %s", dir);
    look_into(d, dir, &c);
    (void)closedir(d);
    *replace = c.some;
    if (c.foreign[0] != '\0')
        return pst_fail(PST_E_STATE,
                        "%s contains '%s', which is not part of a dataset: choose another directory", dir,
                        c.foreign);
    if (c.some && !c.manifest && !c.cut_off)
        return pst_fail(PST_E_STATE, "%s contains arrays of a dataset, but no %s: choose another directory",
                        dir, PST_MANIFEST_FILE);
    if (c.some && !force && c.cut_off)
        return pst_fail(PST_E_STATE,
                        "%s contains a dataset whose replacement was interrupted: give --force to replace it",
                        dir);
    if (c.some && !force)
        return pst_fail(PST_E_STATE, "%s already contains a dataset: give --force to replace it", dir);
    return PST_OK;
}

/* Removes leftovers of builders of the same directory that no longer live. */
static void remove_stale(const char *dir)
{
    char parent[4096];
    pst_build_parent(dir, parent);
    DIR *d = opendir(parent);
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (pst_tempname_pid(e->d_name, base_name(dir), PST_TEMPNAME_PARTIAL) == 0)
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char path[8192];
        (void)snprintf(path, sizeof path, "%s/%s", parent, e->d_name);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void)pst_build_remove_dir(path,
                                       true); /* a foreign file in it keeps it there: then it is not ours */
        if (fd >= 0)
            (void)close(fd);
    }
    (void)closedir(d);
}

pst_rc pst_build_dir(const char *dir, char out[PST_BUILD_PATH_MAX + 1])
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    if (length == 0 || length > PST_BUILD_PATH_MAX)
        return pst_fail(PST_E_ARG, "dataset directory: expected a path of 1 to %d bytes", PST_BUILD_PATH_MAX);
    memcpy(out, dir, length);
    out[length] = '\0';
    return is_dot(base_name(out)) || strcmp(out, "/") == 0
               ? pst_fail(PST_E_ARG, "%s: give the path of the dataset's directory", dir)
               : PST_OK;
}

/* Checks dir and what is there. */
static pst_rc aim_at(struct pst_build *b, const char *dir, bool force)
{
    *b = (struct pst_build){.lock_fd = -1, .force = force, .journal.every_s = PST_JOURNAL_SECONDS};
    pst_rc rc = pst_build_dir(dir, b->dir);
    return rc != PST_OK ? rc : pst_build_look_at(b->dir, force, &b->replace);
}

static pst_rc make_partial(struct pst_build *b)
{
    char parent[4096], path[4096 + PST_NAME_MAX];
    pst_build_parent(b->dir, parent);
    (void)snprintf(path, sizeof path, "%s/%s", parent, PST_MANIFEST_FILE);
    if (access(path, F_OK) == 0)
        return pst_fail(PST_E_ARG, "%s is inside %s, which is itself a dataset: choose another directory",
                        b->dir, parent);
    remove_stale(b->dir);
    const pst_rc named = pst_tempname(b->partial, sizeof b->partial, b->dir, PST_TEMPNAME_PARTIAL);
    if (named != PST_OK)
        return named;
    pst_rc rc = pst_file_make_parents(b->dir);
    if (rc == PST_OK)
        rc = pst_tempname_mkdir(b->partial, 0755, &b->lock_fd);
    if (rc != PST_OK)
        b->partial[0] = '\0';
    return rc;
}

pst_rc pst_build_begin(struct pst_build *b, const char *dir, bool force)
{
    pst_rc rc = aim_at(b, dir, force);
    return rc == PST_OK ? make_partial(b) : rc;
}

/* ---- going on ---- */

/* Files that are needed only while a dataset is made; those that a resumed build goes on from stay. */
void pst_build_remove_temps(const struct pst_build *b, bool all)
{
    DIR *d = opendir(b->partial);
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strncmp(e->d_name, TEMP_MARK, strlen(TEMP_MARK)) == 0 &&
            (all || (strcmp(e->d_name, PST_JOURNAL_FILE) != 0 &&
                     strncmp(e->d_name, EDGES_MARK, strlen(EDGES_MARK)) != 0)))
            (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
}

/* Locks what a killed builder left, and opens its journal; false: there is nothing to go on from. */
static bool adopt(struct pst_build *b)
{
    char parent[4096];
    pst_build_parent(b->dir, parent);
    DIR *d = opendir(parent);
    if (d == NULL)
        return false;
    for (struct dirent *e = readdir(d); e != NULL && b->journal.root == NULL; e = readdir(d)) {
        if (pst_tempname_pid(e->d_name, base_name(b->dir), PST_TEMPNAME_PARTIAL) == 0)
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)snprintf(b->partial, sizeof b->partial, "%s%s", b->dir, e->d_name + strlen(base_name(b->dir)));
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            pst_journal_open(&b->journal, b->partial);
        if (b->journal.root != NULL)
            b->lock_fd = fd;
        else if (fd >= 0)
            (void)close(fd);
    }
    (void)closedir(d);
    if (b->journal.root == NULL)
        b->partial[0] = '\0';
    return b->journal.root != NULL;
}

/* What is different between the import that was cut off and this one. */
static pst_rc compare_keys(const struct pst_build *b, const json_t *key)
{
    static const char over[] = "without --resume, the import starts from the beginning";
    const json_t *before = json_object_get(b->journal.root, "key");
    const char *command = json_string_value(json_object_get(before, "command"));
    const char *ours = json_string_value(json_object_get(key, "command"));
    if (command == NULL || ours == NULL || strcmp(command, ours) != 0)
        return pst_fail(PST_E_STATE,
                        "--resume: this command differs from the interrupted one. Interrupted: '%.400s'. "
                        "Now: '%.400s'. Repeat the interrupted command; %s",
                        command != NULL ? command : "?", ours, over);
    json_t *then = json_object_get(before, "sources"), *now = json_object_get(key, "sources");
    const char *path;
    json_t *value;
    json_object_foreach(then, path, value)
    {
        const json_t *found = json_object_get(now, path);
        if (found == NULL || !json_equal(value, found))
            return pst_fail(
                PST_E_STATE, "--resume: %s has changed since the import began: it was %s, now it is %s: %s",
                path, json_string_value(value), found != NULL ? json_string_value(found) : "gone", over);
    }
    json_object_foreach(now, path, value) if (json_object_get(then, path) == NULL) return pst_fail(
        PST_E_STATE, "--resume: %s was added after the import began: %s", path, over);
    return PST_OK;
}

pst_rc pst_build_resume(struct pst_build *b, const char *dir, bool force, json_t *key, bool resume)
{
    pst_rc rc = aim_at(b, dir, force);
    if (rc == PST_OK && resume && adopt(b)) {
        b->resumed = true;
        pst_build_remove_temps(b, false);
        rc = compare_keys(b, key);
        json_decref(key);
        if (rc != PST_OK) { /* it stays for who has its files */
            b->partial[0] = '\0';
            (void)close(b->lock_fd);
            pst_build_release(b);
        }
        return rc;
    }
    if (rc == PST_OK)
        rc = make_partial(b);
    if (rc != PST_OK) {
        json_decref(key);
        return rc;
    }
    rc = pst_journal_begin(&b->journal, b->partial, key);
    return rc == PST_OK ? pst_journal_save(&b->journal) : rc;
}

/* ---- the end ---- */

void pst_build_temp(const struct pst_build *b, const char *name, char path[4096])
{
    (void)snprintf(path, 4096, "%.3900s/" TEMP_MARK "%.100s.npy", b->partial, name);
}

void pst_build_release(struct pst_build *b)
{
    if (b->partial[0] != '\0' && !b->committed)
        (void)pst_build_remove_dir(b->partial, true);
    if (b->partial[0] != '\0' && b->lock_fd >= 0)
        (void)close(b->lock_fd);
    pst_manifest_release(&b->manifest);
    pst_journal_release(&b->journal);
    *b = (struct pst_build){.lock_fd = -1};
}
