/* remove.c: removes a dataset: looks at everything first, then deletes, the manifest last. */
#include "common/store/build/remove.h"

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
#include "common/store/build/build_impl.h"
#include "common/store/dataset/rows.h"
#include "common/util/file.h"

#define OTHERS_TOLD 3 /* files that are not the dataset's */

struct removal {
    const char *dir; /* as messages call it */
    int fd;          /* of the directory: names are looked up in it, whatever its path becomes */
    bool dry;
    pst_remove_fn tell;
    void *ctx;
    struct pst_manifest m;
};

/* One file that the manifest names; stripe -1: it is none. */
typedef pst_rc entry_fn(struct removal *r, const struct pst_array_entry *e, int stripe);

static pst_rc each_entry(struct removal *r, entry_fn *fn)
{
    const struct pst_manifest *m = &r->m;
    pst_rc rc = PST_OK;
    for (int k = 0; k < m->stripes && rc == PST_OK; k++)
        rc = fn(r, &m->stripe[k], k);
    for (int k = 0; k < m->vertex_types && rc == PST_OK; k++)
        if (m->vertex_type[k].features.present)
            rc = fn(r, &m->vertex_type[k].features, -1);
    for (int k = 0; k < 3 * m->splits && rc == PST_OK; k++)
        if (m->split[k / 3].ids[k % 3].present)
            rc = fn(r, &m->split[k / 3].ids[k % 3], -1);
    for (unsigned i = 0; i < PST_ARRAY_COUNT && rc == PST_OK; i++)
        if (m->array[i].present && (i != PST_ARRAY_FEATURES || m->stripes == 0))
            rc = fn(r, &m->array[i], -1);
    return rc;
}

/* ---- looking ---- */

/* The stripe in another directory must be what the manifest says; one that is gone is gone. */
static pst_rc check_far(const struct removal *r, const struct pst_array_entry *e, int stripe,
                        const char *target)
{
    char dir[4096];
    struct stat st;
    uint64_t head;
    (void)snprintf(dir, sizeof dir, "%s", target);
    *(strrchr(dir, '/') + 1) = '\0';
    if (lstat(target, &st) != 0)
        return errno == ENOENT && access(dir, F_OK) == 0
                   ? PST_OK
                   : pst_fail_errno("%s/%s is a link to %s, which cannot be read: is its drive mounted?",
                                    r->dir, e->file, target);
    const uint64_t bytes =
        PST_PAGE + (uint64_t)e->shape[0] * (uint64_t)e->shape[1] * pst_dtype_bytes(e->dtype);
    pst_rc rc = PST_OK;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes)
        head = ~e->head;
    else
        rc = pst_stripe_head(target, &head);
    if (rc == PST_OK && head != e->head)
        rc = pst_fail(
            PST_E_STATE,
            "%s/%s is a link to %s, which is not stripe %d of this dataset: correct the link or remove it",
            r->dir, e->file, target, stripe);
    return rc;
}

static pst_rc check_one(struct removal *r, const struct pst_array_entry *e, int stripe)
{
    struct stat st;
    char target[4096];
    if (!pst_build_is_array_file(e->file))
        return pst_fail(PST_E_STATE, "%s/%s names the file '%s', which is not an array file of a dataset",
                        r->dir, PST_MANIFEST_FILE, e->file);
    if (fstatat(r->fd, e->file, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? PST_OK : pst_fail_errno("cannot get the status of %s/%s", r->dir, e->file);
    if (S_ISDIR(st.st_mode))
        return pst_fail(PST_E_STATE, "%s/%s is a directory: expected a file", r->dir, e->file);
    return stripe >= 0 && pst_build_stripe_link_target(r->fd, e->file, target)
               ? check_far(r, e, stripe, target)
               : PST_OK;
}

bool pst_build_names(const struct pst_manifest *m, const char *name)
{
    bool found = strcmp(name, PST_MANIFEST_FILE) == 0;
    for (int k = 0; k < m->stripes; k++)
        found |= strcmp(m->stripe[k].file, name) == 0;
    for (int k = 0; k < m->vertex_types; k++)
        found |= m->vertex_type[k].features.present && strcmp(m->vertex_type[k].features.file, name) == 0;
    for (int k = 0; k < 3 * m->splits; k++)
        found |= m->split[k / 3].ids[k % 3].present && strcmp(m->split[k / 3].ids[k % 3].file, name) == 0;
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        found |= m->array[i].present && strcmp(m->array[i].file, name) == 0;
    return found;
}

/* Nothing but what the manifest names. */
static pst_rc check_others(const struct removal *r)
{
    const int fd = openat(r->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    char others[3 * 260] = "";
    int n = 0;
    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return pst_fail_errno("cannot read %s", r->dir);
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        const size_t used = strlen(others);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || pst_build_names(&r->m, e->d_name))
            continue;
        if (n++ < OTHERS_TOLD)
            (void)snprintf(others + used, sizeof others - used, " '%.255s'", e->d_name);
    }
    (void)closedir(d);
    const char *more = n > OTHERS_TOLD ? " and more" : "";
    return n == 0
               ? PST_OK
               : pst_fail(PST_E_STATE, "%s contains%s%s, which %s does not list: move these elsewhere first",
                          r->dir, others, more, PST_MANIFEST_FILE);
}

/* ---- removing ---- */

static pst_rc remove_path(const struct removal *r, int fd, const char *name, const char *told_as)
{
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? PST_OK : pst_fail_errno("cannot get the status of %s", told_as);
    r->tell(r->ctx, told_as, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
    if (!r->dry && unlinkat(fd, name, 0) != 0 && errno != ENOENT)
        return pst_fail_errno("cannot remove %s", told_as);
    return PST_OK;
}

/* A stripe elsewhere before the link that finds it. */
static pst_rc remove_one(struct removal *r, const struct pst_array_entry *e, int stripe)
{
    char target[4096], path[4096 + PST_NAME_MAX];
    pst_rc rc = PST_OK;
    if (stripe >= 0 && pst_build_stripe_link_target(r->fd, e->file, target))
        rc = remove_path(r, AT_FDCWD, target, target);
    (void)snprintf(path, sizeof path, "%s/%s", r->dir, e->file);
    return rc == PST_OK ? remove_path(r, r->fd, e->file, path) : rc;
}

/* The directory at path, opened and looked at; then it is moved aside (NULL: it is there already) and
 * emptied. */
static pst_rc remove_at(struct removal *r, const char *path, const char *aside)
{
    struct pst_problems problems = {.count = 0};
    char told[4096 + PST_NAME_MAX];
    (void)snprintf(told, sizeof told, "%s/%s", r->dir, PST_MANIFEST_FILE);
    pst_manifest_read(&r->m, path, &problems);
    pst_rc rc = pst_problems_result(&problems, "the directory is not a dataset; nothing was removed");
    if (rc == PST_OK)
        rc = each_entry(r, check_one);
    if (rc == PST_OK)
        rc = check_others(r);
    if (rc == PST_OK && !r->dry && aside != NULL && rename(path, aside) != 0) {
        if (errno == EXDEV) /* in a lower layer of overlayfs: it is emptied where it is, the manifest last */
            aside = NULL;
        else
            rc = pst_fail_errno("cannot rename %s to %s", path, aside);
    }
    if (rc != PST_OK)
        return rc;
    rc = each_entry(r, remove_one);
    if (rc == PST_OK)
        rc = remove_path(r, r->fd, PST_MANIFEST_FILE, told);
    const char *now = aside != NULL ? aside : path;
    if (rc == PST_OK && !r->dry && rmdir(now) != 0)
        rc = pst_fail_errno("cannot remove %s", now);
    return rc == PST_OK || r->dry
               ? rc
               : pst_wrap(rc, "some files are still in %s: run the same command again to remove them", now);
}

/* Opens what is at path, a directory and no link, for one process at a time. */
static pst_rc open_dir(struct removal *r, const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? pst_fail(PST_E_ARG, "%s: %s", path, strerror(errno))
                                                   : pst_fail_errno("cannot get the status of %s", path);
    if (S_ISLNK(st.st_mode))
        return pst_fail(PST_E_STATE, "%s is a symbolic link: give the path of the dataset's directory", path);
    if (!S_ISDIR(st.st_mode))
        return pst_fail(PST_E_STATE, "%s is not a directory", path);
    r->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r->fd < 0)
        return pst_fail_errno("cannot open %s", path);
    return flock(r->fd, LOCK_EX | LOCK_NB) == 0
               ? PST_OK
               : pst_fail(PST_E_STATE, "another process is creating or removing %s", path);
}

static void close_dir(struct removal *r)
{
    pst_manifest_release(&r->m);
    if (r->fd >= 0)
        (void)close(r->fd);
    r->fd = -1;
}

/* What a killed removal left at path: an empty directory, or one that still has its manifest. */
static pst_rc finish_one(struct removal *r, const char *path)
{
    pst_rc rc = open_dir(r, path);
    const bool empty = rc == PST_OK && faccessat(r->fd, PST_MANIFEST_FILE, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    if (rc == PST_OK && !empty)
        rc = remove_at(r, path, NULL);
    else if (rc == PST_OK && !r->dry && rmdir(path) != 0)
        rc = pst_fail_errno("cannot remove %s", path);
    close_dir(r);
    return rc;
}

static pst_rc finish_others(struct removal *r, const char *dir, int *found)
{
    char parent[4096];
    pst_build_parent(dir, parent);
    const char *slash = strrchr(dir, '/');
    DIR *d = opendir(parent);
    pst_rc rc = d != NULL ? PST_OK : pst_fail_errno("cannot read %s", parent);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == PST_OK; e = readdir(d)) {
        char path[8192];
        if (pst_tempname_pid(e->d_name, slash == NULL ? dir : slash + 1, PST_TEMPNAME_REMOVED) == 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", parent, e->d_name);
        rc = finish_one(r, path);
        (*found)++;
    }
    if (d != NULL)
        (void)closedir(d);
    return rc;
}

pst_rc pst_remove_dataset(const char *dir, bool dry, pst_remove_fn tell, void *ctx)
{
    char path[PST_BUILD_PATH_MAX + 1], aside[4096], parent[4096];
    struct removal r = {.dir = path, .fd = -1, .dry = dry, .tell = tell, .ctx = ctx};
    int found = 0;
    pst_rc rc = pst_build_dir(dir, path);
    if (rc == PST_OK)
        rc = pst_tempname(aside, sizeof aside, path, PST_TEMPNAME_REMOVED);
    if (rc != PST_OK)
        return rc;
    rc = finish_others(&r, path, &found);
    if (rc == PST_OK && (found == 0 || faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)) {
        rc = open_dir(&r, path);
        if (rc == PST_OK)
            rc = remove_at(&r, path, aside);
        close_dir(&r);
    }
    pst_build_parent(path, parent);
    return rc == PST_OK && !dry ? pst_file_sync_dir(parent) : rc;
}

/* ---- what was never whole, or is whole no more ---- */

static bool is_known(int dir_fd, const char *name, const struct stat *st)
{
    char target[4096];
    if (S_ISLNK(st->st_mode) && pst_build_is_stripe(name))
        return pst_build_stripe_link_target(dir_fd, name, target);
    const bool ours = pst_build_is_array_file(name) || strcmp(name, PST_MANIFEST_FILE) == 0 ||
                      strncmp(name, "temp-", strlen("temp-")) == 0 ||
                      pst_tempname_pid(name, NULL, PST_TEMPNAME_PARTIAL) > 0;
    return ours && (S_ISREG(st->st_mode) || S_ISLNK(st->st_mode)); /* import --link makes links */
}

/* A stripe elsewhere before the link that finds it. */
static int remove_known(int dir_fd, const char *name)
{
    if (pst_build_is_stripe(name))
        pst_build_stripe_link_remove(dir_fd, name);
    return unlinkat(dir_fd, name, 0);
}

pst_rc pst_remove_leftover(int parent_fd, const char *name, const char *path, bool dry)
{
    return pst_tempname_remove_dir(parent_fd, name, path, is_known, remove_known, dry);
}
