/* commit.c: a finished directory takes its place, and that of the dataset it replaces. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/build/build_impl.h"
#include "common/util/file.h"
#include "common/util/tempname.h"

/* Moves every file of a directory, dataset.json last: until then, the place is no dataset. */
static pst_rc move_files(const char *from, const char *to)
{
    char source[PST_PATH_MAX + PST_NAME_MAX], target[PST_PATH_MAX + PST_NAME_MAX];
    DIR *d = opendir(from);
    if (d == NULL)
        return pst_fail_errno("cannot open %s", from);
    pst_rc rc = PST_OK;
    for (struct dirent *e = readdir(d); e != NULL && rc == PST_OK; e = readdir(d)) {
        if (!pst_build_is_array_file(e->d_name))
            continue;
        (void)snprintf(source, sizeof source, "%s/%s", from, e->d_name);
        (void)snprintf(target, sizeof target, "%s/%s", to, e->d_name);
        if (rename(source, target) != 0)
            rc = pst_fail_errno("cannot rename %s to %s", source, target);
    }
    (void)closedir(d);
    (void)snprintf(source, sizeof source, "%s/" PST_MANIFEST_FILE, from);
    (void)snprintf(target, sizeof target, "%s/" PST_MANIFEST_FILE, to);
    if (rc == PST_OK && (rc = pst_file_sync_dir(to)) == PST_OK && rename(source, target) != 0)
        rc = pst_fail_errno("cannot rename %s to %s", source, target);
    return rc;
}

/* File by file: a directory in a lower layer of overlayfs (in an image of a container) can neither be
 * exchanged nor renamed. Meanwhile the old dataset.json has another name, which tells the next --force that
 * it may go on. */
static pst_rc replace_files(const struct pst_build *b)
{
    char manifest[PST_PATH_MAX + PST_NAME_MAX], replaced[PST_PATH_MAX + PST_NAME_MAX];
    (void)snprintf(manifest, sizeof manifest, "%s/" PST_MANIFEST_FILE, b->dir);
    (void)snprintf(replaced, sizeof replaced, "%s/" PST_BUILD_REPLACED_FILE, b->dir);
    if (rename(manifest, replaced) != 0 && errno != ENOENT)
        return pst_fail_errno("cannot rename %s to %s", manifest, replaced);
    pst_build_empty_arrays(b->dir);
    pst_rc rc = move_files(b->partial, b->dir);
    if (rc == PST_OK && unlink(replaced) != 0 && errno != ENOENT)
        rc = pst_fail_errno("cannot remove %s", replaced);
    if (rc == PST_OK)
        rc = pst_file_sync_dir(b->dir);
    return rc == PST_OK ? pst_build_remove_dir(b->partial, true) : rc;
}

/* Puts the new directory in the old one's place: in one step if the file system can do that, else in two,
 * else file by file. */
static pst_rc exchange(struct pst_build *b)
{
    char aside[PST_PATH_MAX];
    if (renameat2(AT_FDCWD, b->partial, AT_FDCWD, b->dir, RENAME_EXCHANGE) == 0)
        return pst_build_remove_dir(b->partial, false);
    if (errno != EINVAL && errno != ENOSYS && errno != EXDEV)
        return pst_fail_errno("cannot exchange %s and %s", b->partial, b->dir);
    pst_rc rc = pst_tempname(aside, sizeof aside, b->dir, PST_TEMPNAME_OLD);
    if (rc != PST_OK)
        return rc;
    if (rename(b->dir, aside) != 0)
        return errno == EXDEV ? replace_files(b) : pst_fail_errno("cannot rename %s to %s", b->dir, aside);
    if (rename(b->partial, b->dir) != 0) {
        rc = pst_fail_errno("cannot rename %s to %s", b->partial, b->dir);
        (void)rename(aside, b->dir);
        return rc;
    }
    return pst_build_remove_dir(aside, false);
}

/* Where there was nothing. Another import of the same directory may have been faster. */
static pst_rc take_place(struct pst_build *b)
{
    if (rename(b->partial, b->dir) == 0)
        return PST_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return pst_fail_errno("cannot rename %s to %s", b->partial, b->dir);
    pst_rc rc = pst_build_look_at(b->dir, b->force, &b->replace);
    if (rc != PST_OK)
        return pst_wrap(rc, "another process wrote %s at the same time", b->dir);
    return b->replace ? exchange(b)
                      : pst_fail(PST_E_STATE, "%s changed while it was being checked: try again", b->dir);
}

pst_rc pst_build_commit(struct pst_build *b)
{
    assert(b->partial[0] != '\0' && !b->committed);
    pst_build_remove_temps(b, true);
    pst_rc rc = pst_manifest_write(&b->manifest, b->partial);
    if (rc == PST_OK)
        rc = pst_file_sync_dir(b->partial);
    if (rc == PST_OK)
        rc = b->replace ? exchange(b) : take_place(b);
    if (rc != PST_OK)
        return rc;
    b->committed = true;
    char parent[PST_PATH_MAX];
    pst_build_parent(b->dir, parent);
    return pst_file_sync_dir(parent);
}
