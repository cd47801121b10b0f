/* stripe_links.c: stripes in other directories, behind symbolic links. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/build/build_impl.h"

#define MARK_DIGITS 16

void pst_build_stripe_name(int k, char name[PST_NAME_MAX])
{
    (void)snprintf(name, PST_NAME_MAX, "features.%d.npy", k);
}

bool pst_build_is_stripe(const char *name)
{
    char expected[PST_NAME_MAX];
    int k;
    if (sscanf(name, "features.%d.npy", &k) != 1)
        return false;
    pst_build_stripe_name(k, expected);
    return strcmp(name, expected) == 0;
}

/* NAME.features.K.MARK.npy, a name that nobody else would give a file. */
static bool is_far(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1, *at = NULL;
    for (const char *next = strstr(name, ".features."); next != NULL; next = strstr(next + 1, ".features."))
        at = next;
    int k = 0, end = 0;
    char mark[MARK_DIGITS + 1];
    return at != NULL && sscanf(at, ".features.%d.%16[0-9a-f].npy%n", &k, mark, &end) == 2 && end > 0 &&
           at[end] == '\0' && strlen(mark) == MARK_DIGITS;
}

/* A new name in a directory. */
static pst_rc name_in(const struct pst_build *b, const char *dir, int k, char path[4096])
{
    const char *slash = strrchr(b->dir, '/');
    uint64_t mark;
    if (getrandom(&mark, sizeof mark, 0) != (ssize_t)sizeof mark)
        return pst_fail_errno("cannot get a random number for the name of a stripe");
    if (snprintf(path, 4096, "%s/%s.features.%d.%016" PRIx64 ".npy", dir, slash == NULL ? b->dir : slash + 1,
                 k, mark) >= 4096)
        return pst_fail(PST_E_LIMIT, "the path of a stripe in %.400s is too long", dir);
    return PST_OK;
}

pst_rc pst_build_stripe_link_name(const struct pst_build *b, int k, char path[4096])
{
    char list[4096], dir[PATH_MAX], *save = NULL, *one = NULL;
    int n = 0;
    path[0] = '\0';
    if (b->stripe_dirs == NULL)
        return PST_OK;
    for (int turn = 0; turn < 2; turn++) { /* counts, then takes */
        (void)snprintf(list, sizeof list, "%s", b->stripe_dirs);
        int at = 0;
        for (one = strtok_r(list, ",", &save); one != NULL; one = strtok_r(NULL, ",", &save))
            if (turn == 1 && at++ == k % n)
                break;
            else if (turn == 0)
                n++;
        if (n == 0)
            return pst_fail(PST_E_ARG, "--stripe-dirs: expected directories separated by commas");
    }
    if (one == NULL || realpath(one, dir) == NULL)
        return pst_fail_errno("the directory %s cannot hold stripes", one);
    return name_in(b, dir, k, path);
}

bool pst_build_stripe_link_target(int dir_fd, const char *link, char target[4096])
{
    const ssize_t n = readlinkat(dir_fd, link, target, 4095);
    target[n > 0 ? n : 0] = '\0';
    return n > 0 && target[0] == '/' && is_far(target);
}

void pst_build_stripe_link_remove(int dir_fd, const char *link)
{
    char target[4096];
    if (pst_build_stripe_link_target(dir_fd, link, target))
        (void)unlink(target);
}

pst_rc pst_build_stripe_link_adopt(const struct pst_build *b, int k, const char *source, const char *path,
                                   bool *far)
{
    char target[4096], dir[4096], fresh[4096];
    *far = pst_build_stripe_link_target(AT_FDCWD, source, target);
    if (!*far)
        return PST_OK;
    (void)snprintf(dir, sizeof dir, "%s", target);
    *strrchr(dir, '/') = '\0';
    pst_rc rc = name_in(b, dir, k, fresh);
    if (rc == PST_OK && link(target, fresh) != 0)
        rc = pst_fail_errno("cannot create a hard link to %s", target);
    if (rc == PST_OK && symlink(fresh, path) != 0) {
        rc = pst_fail_errno("cannot create the link %s", path);
        (void)unlink(fresh);
    }
    return rc;
}
