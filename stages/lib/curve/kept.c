/* kept.c: keeps the curve of a drive in a file, so that it is measured once. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/clock.h"
#include "stages/lib/curve/curve.h"

#define VERSION 1                      /* of the file; other versions are measured again */
#define SPAN_WHOLE ((uint64_t)1 << 30) /* so many bytes stand for the whole drive */
#define LOCK_WAIT_MS 20000             /* longer than another process needs to measure */
#define LOCK_STEP_MS 5

pst_rc pst_curve_key(char key[PST_CURVE_KEY_BYTES], const struct pst_curve_files *files)
{
    int n = snprintf(key, PST_CURVE_KEY_BYTES, "%s, depth %d", files->backend, files->depth);
    if (strcmp(files->backend, "pread") == 0)
        n += snprintf(key + n, PST_CURVE_KEY_BYTES - (size_t)n, ", %d threads", files->threads);
    dev_t before = 0;
    for (uint32_t i = 0; i < files->n && n < PST_CURVE_KEY_BYTES; i++) {
        struct stat st;
        struct statfs fs;
        uint32_t id[2];
        if (stat(files->paths[i], &st) != 0 || statfs(files->paths[i], &fs) != 0)
            return pst_fail_errno("the drive of %s", files->paths[i]);
        if (i > 0 && st.st_dev == before)
            continue;
        before = st.st_dev;
        _Static_assert(sizeof id == sizeof fs.f_fsid, "two words");
        memcpy(id, &fs.f_fsid, sizeof id);
        n += snprintf(key + n, PST_CURVE_KEY_BYTES - (size_t)n, ", device %llx file system %lx %08x%08x",
                      (unsigned long long)st.st_dev, (unsigned long)fs.f_type, id[0], id[1]);
    }
    return PST_OK;
}

static uint64_t span_of(const struct pst_curve_files *files)
{
    uint64_t span = 0;
    struct stat st;
    for (uint32_t i = 0; i < files->n; i++)
        span += stat(files->paths[i], &st) == 0 ? (uint64_t)st.st_size : 0;
    return span < SPAN_WHOLE ? span : SPAN_WHOLE;
}

/* False: the file has no curve of this drive that was measured over enough bytes. */
static bool read_kept(int fd, const char *key, uint64_t span, struct pst_curve *c)
{
    json_t *j = json_loadfd(fd, JSON_DISABLE_EOF_CHECK, NULL), *point;
    const char *its = json_string_value(json_object_get(j, "drive"));
    size_t i;
    *c = (struct pst_curve){.span = (uint64_t)json_integer_value(json_object_get(j, "span"))};
    bool good = json_integer_value(json_object_get(j, "version")) == VERSION && its != NULL &&
                strcmp(its, key) == 0 && c->span >= span;
    json_array_foreach(json_object_get(j, "points"), i, point)
    {
        const json_int_t bytes = json_integer_value(json_array_get(point, 0));
        good =
            good && bytes > 0 && pst_curve_add(c, (uint64_t)bytes, json_real_value(json_array_get(point, 1)));
    }
    json_decref(j);
    return good && c->n > 0;
}

/* The file is a cache: if it cannot be written, the next run measures again. A reader ignores half of it. */
static void keep(int fd, const char *key, const struct pst_curve *c)
{
    char date[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    json_t *points = json_array();
    for (int i = 0; i < c->n; i++)
        (void)json_array_append_new(points,
                                    json_pack("[I, f]", (json_int_t)c->point[i].bytes, c->point[i].seconds));
    if (gmtime_r(&now, &utc) != NULL)
        (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *j = json_pack("{si, ss, ss, sI, so}", "version", VERSION, "drive", key, "measured", date, "span",
                          (json_int_t)c->span, "points", points);
    if (j != NULL && lseek(fd, 0, SEEK_SET) == 0 && ftruncate(fd, 0) == 0)
        (void)json_dumpfd(j, fd, JSON_INDENT(1));
    json_decref(j);
}

/* So that processes measure one after the other. After LOCK_WAIT_MS this one goes on without the lock. */
static void wait_for_lock(int fd)
{
    const int64_t deadline = pst_clock_ms() + LOCK_WAIT_MS;
    const struct timespec step = {.tv_nsec = LOCK_STEP_MS * 1000000};
    while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && pst_clock_ms() < deadline)
        (void)nanosleep(&step, NULL);
}

pst_rc pst_curve_find(struct pst_curve *c, const struct pst_curve_files *files, const char *path,
                      double *measured_s)
{
    char key[PST_CURVE_KEY_BYTES];
    *measured_s = 0;
    pst_rc rc = pst_curve_key(key, files);
    if (rc != PST_OK)
        return rc;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        wait_for_lock(fd);
    if (fd < 0 || !read_kept(fd, key, span_of(files), c)) {
        const double begin_s = pst_clock_s();
        rc = pst_curve_measure(c, files);
        *measured_s = pst_clock_s() - begin_s;
        if (rc == PST_OK && fd >= 0)
            keep(fd, key, c);
        else if (fd >= 0)
            (void)unlink(path); /* nothing is kept */
    }
    if (fd >= 0)
        (void)close(fd);
    return rc;
}
