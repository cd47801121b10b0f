/* leftover.c: see leftover.h. */
#include "common/store/export/leftover.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util/tempname.h"

/* An export is a flat directory of arrays, tables and their descriptions. */
static bool is_exported(int dir_fd, const char *name, const struct stat *st)
{
    static const char *const ends[] = {".npy", ".csv", ".json", ".yaml"};
    const size_t n = strlen(name);
    (void)dir_fd;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0)
            return S_ISREG(st->st_mode) && name[0] != '.';
    }
    return false;
}

pst_rc pst_export_remove_leftover(int parent_fd, const char *name, const char *path, bool dry)
{
    return pst_tempname_remove_dir(parent_fd, name, path, is_exported, NULL, dry);
}

void pst_export_remove_leftovers(const char *dir)
{
    char parent[PST_PATH_MAX];
    const char *slash = strrchr(dir, '/'), *base = slash != NULL ? slash + 1 : dir;
    if (snprintf(parent, sizeof parent, "%.*s", slash != NULL ? (int)(slash - dir + 1) : 1,
                 slash != NULL ? dir : ".") >= (int)sizeof parent)
        return;
    DIR *d = opendir(parent);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        int fd;
        if (pst_tempname_pid(e->d_name, base, PST_TEMPNAME_PARTIAL) == 0 ||
            !pst_tempname_take(dirfd(d), e->d_name, &fd))
            continue;
        const pst_rc rc = pst_export_remove_leftover(dirfd(d), e->d_name, e->d_name, false);
        (void)rc; /* `penstock gc` says what else it holds */
        (void)close(fd);
    }
    if (d != NULL)
        (void)closedir(d);
}
