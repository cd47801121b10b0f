/* report_file.c: writes reports to files, and to the pipes and terminals that a user may name instead. */
#include "common/run/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/file.h"

enum { READER_TRIES = 100, READER_NAP_NS = 50000000 }; /* a pipe's reader may come within 5 s */

/* The caller frees it. */
static char *text_of(const json_t *json, size_t *bytes)
{
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(PST_REPORT_DIGITS)), *more = NULL;
    *bytes = text != NULL ? strlen(text) : 0;
    if (text != NULL)
        more = realloc(text, *bytes + 2);
    if (more == NULL) {
        free(text);
        return NULL;
    }
    memcpy(more + (*bytes)++, "\n", 2);
    return more;
}

/* ---- what a user named --------------------------------------------------------------------------- */

/* The descriptor of this process that a name stands for, or -1. Opening the name instead would truncate a
 * regular file. */
static int own_descriptor(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *digits = path + strlen(folders[i]);
        if (strncmp(path, folders[i], strlen(folders[i])) == 0 && strlen(digits) > 0 && strlen(digits) < 5 &&
            strspn(digits, "0123456789") == strlen(digits))
            return (int)strtol(digits, NULL, 10);
    }
    return -1;
}

static pst_rc write_to(int fd, const char *text, size_t bytes, const char *path)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t put = write(fd, text + at, bytes - at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return pst_fail_errno("cannot write %s", path);
        at += (size_t)put;
    }
    return PST_OK;
}

/* Opens a pipe without waiting for its reader for ever. */
static pst_rc open_special(const char *path, int *fd)
{
    const struct timespec nap = {.tv_nsec = READER_NAP_NS};
    for (int i = 0; i < READER_TRIES; i++) {
        *fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
        if (*fd >= 0)
            return fcntl(*fd, F_SETFL, 0) == 0 ? PST_OK : pst_fail_errno("cannot use %s", path);
        if (errno != ENXIO)
            return pst_fail_errno("cannot open %s", path);
        (void)nanosleep(&nap, NULL);
    }
    return pst_fail(PST_E_STATE, "%s is a pipe without a reader: start its reader first", path);
}

/* How to write to path. */
enum kind { REPLACE, THROUGH, REFUSED };

static enum kind kind_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) /* a link to a file that is not there yet: opening it makes that file */
        return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? THROUGH : REPLACE;
    return S_ISREG(st.st_mode) ? REPLACE : S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) ? THROUGH : REFUSED;
}

static pst_rc put_text(const char *path, const void *text, size_t bytes)
{
    const int own = own_descriptor(path);
    if (own >= 0)
        return write_to(own, text, bytes, path);
    const enum kind kind = kind_of(path);
    if (kind == REFUSED)
        return pst_fail(PST_E_ARG, "%s is not a regular file, a pipe or a terminal", path);
    if (kind == REPLACE) {
        char *target = realpath(path, NULL); /* the file and not the link to it is replaced */
        const pst_rc rc = pst_file_replace(target != NULL ? target : path, text, bytes);
        free(target);
        return rc;
    }
    int fd = -1;
    pst_rc rc = open_special(path, &fd);
    if (rc == PST_OK)
        rc = write_to(fd, text, bytes, path);
    if (fd >= 0 && close(fd) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s", path);
    return rc;
}

/* Writes the text of json to path with `write`. */
static pst_rc write_json(const json_t *json, const char *path,
                         pst_rc (*write)(const char *path, const void *text, size_t bytes))
{
    size_t bytes;
    char *text = text_of(json, &bytes);
    const pst_rc rc = text != NULL
                          ? write(path, text, bytes)
                          : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the text of %s", path);
    free(text);
    return rc;
}

pst_rc pst_report_write_json(const json_t *json, const char *path)
{
    return write_json(json, path, pst_file_replace);
}

pst_rc pst_report_put_json(const json_t *json, const char *path)
{
    return write_json(json, path, put_text);
}

pst_rc pst_report_check_path(const char *option, const char *path)
{
    char dir[PST_PATH_MAX];
    const int own = own_descriptor(path);
    if (own >= 0)
        return fcntl(own, F_GETFD) >= 0
                   ? PST_OK
                   : pst_fail(PST_E_ARG, "%s %s: the file descriptor %d is not open", option, path, own);
    const enum kind kind = kind_of(path);
    if (path[0] == '\0' || kind == REFUSED)
        return pst_fail(PST_E_ARG, "%s '%s' is not a regular file, a pipe or a terminal", option, path);
    if (kind == THROUGH)
        return PST_OK;
    char *target = realpath(path, NULL);
    const int n = snprintf(dir, sizeof dir, "%s", target != NULL ? target : path);
    free(target);
    if (n < 0 || n >= (int)sizeof dir)
        return pst_fail(PST_E_ARG, "%s: the path of the report is too long: expected at most %zu bytes",
                        option, sizeof dir - 1);
    char *slash = strrchr(dir, '/');
    if (slash != NULL)
        slash[slash == dir] = '\0';
    if (access(slash != NULL ? dir : ".", W_OK | X_OK) != 0)
        return pst_fail(PST_E_ARG, "%s %s: cannot write to the directory %s: %s", option, path,
                        slash != NULL ? dir : ".", strerror(errno));
    return PST_OK;
}
