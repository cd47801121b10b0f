#include "common/store/build/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"

#define SOURCES_MAX 100000        /* a data set of more files is not one of ours */
#define FILE_BYTES_MAX (1u << 30) /* of an index of 10^14 edges */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- files ---- */

static pst_rc write_synced(const char *path, const char *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return pst_fail_errno("cannot create %s", path);
    pst_rc rc = PST_OK;
    for (size_t done = 0; rc == PST_OK && done < bytes;) {
        ssize_t n = write(fd, data + done, bytes - done);
        if (n < 0 && errno != EINTR)
            rc = pst_fail_errno("cannot write %s", path);
        done += n > 0 ? (size_t)n : 0;
    }
    if (rc == PST_OK && fsync(fd) != 0)
        rc = pst_fail_errno("cannot sync %s", path);
    if (close(fd) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s", path);
    return rc;
}

pst_rc pst_file_replace(const char *dir, const char *name, const void *data, size_t bytes)
{
    char path[4096 + 64], aside[4096 + 72];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    (void)snprintf(aside, sizeof aside, "%s-new", path);
    pst_rc rc = write_synced(aside, data, bytes);
    if (rc == PST_OK && rename(aside, path) != 0)
        rc = pst_fail_errno("cannot rename %s to %s", aside, path);
    int fd = rc == PST_OK ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (rc == PST_OK && (fd < 0 || fsync(fd) != 0))
        rc = pst_fail_errno("cannot sync %s", dir);
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

pst_rc pst_file_read(const char *dir, const char *name, char **data, size_t *bytes)
{
    char path[4096 + 64];
    struct stat st;
    *data = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0)
            (void)close(fd);
        return pst_fail_errno("cannot read %s", path);
    }
    pst_rc rc = PST_OK;
    if (st.st_size > (off_t)FILE_BYTES_MAX || (*data = malloc((size_t)st.st_size + 1)) == NULL)
        rc = pst_fail(PST_E_NOMEM, "no memory for %jd bytes of %s", (intmax_t)st.st_size, path);
    *bytes = 0;
    while (rc == PST_OK && *bytes < (size_t)st.st_size) {
        ssize_t n = read(fd, *data + *bytes, (size_t)st.st_size - *bytes);
        if (n <= 0 && errno != EINTR)
            rc = pst_fail_errno("cannot read %s", path);
        *bytes += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd);
    return rc;
}

/* ---- sources ---- */

static void identity_of(const struct stat *st, char out[96])
{
    (void)snprintf(out, 96, "%jd bytes, %jd.%09ld, inode %ju", (intmax_t)st->st_size,
                   (intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (uintmax_t)st->st_ino);
}

void pst_file_identity(const char *path, char out[96])
{
    struct stat st;
    out[0] = '\0';
    if (stat(path, &st) == 0)
        identity_of(&st, out);
}

pst_rc pst_journal_sources_add(json_t *sources, const char *path)
{
    char *const paths[] = {(char *)(uintptr_t)path, NULL}; /* fts does not write to them */
    FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    if (tree == NULL)
        return pst_fail_errno("cannot read %s", path);
    pst_rc rc = PST_OK;
    for (FTSENT *e = fts_read(tree); rc == PST_OK && e != NULL; e = fts_read(tree)) {
        char identity[96];
        if (e->fts_info != FTS_F)
            continue;
        identity_of(e->fts_statp, identity);
        (void)json_object_set_new(sources, e->fts_path, json_string(identity));
        if (json_object_size(sources) > SOURCES_MAX)
            rc = pst_fail(PST_E_LIMIT, "%s: more than %d files", path, SOURCES_MAX);
    }
    (void)fts_close(tree);
    return rc;
}

/* ---- the journal ---- */

static uint64_t checksum_of(const json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    uint64_t sum = text != NULL ? XXH3_64bits(text, strlen(text)) : 0;
    free(text);
    return sum;
}

static void place(struct pst_journal *j, const char *dir)
{
    double every = j->every_s;
    *j = (struct pst_journal){.every_s = every, .saved_at = now()};
    (void)snprintf(j->dir, sizeof j->dir, "%s", dir);
}

pst_rc pst_journal_begin(struct pst_journal *j, const char *dir, json_t *key)
{
    place(j, dir);
    j->root = json_pack("{s:o, s:{}}", "key", key, "arrays");
    return j->root != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "no memory for a journal");
}

void pst_journal_open(struct pst_journal *j, const char *dir)
{
    char *text = NULL;
    size_t bytes;
    place(j, dir);
    json_t *whole = pst_file_read(dir, PST_JOURNAL_FILE, &text, &bytes) == PST_OK
                        ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL)
                        : NULL;
    free(text);
    json_t *body = json_object_get(whole, "journal");
    const char *sum = json_string_value(json_object_get(whole, "xxh3"));
    if (json_is_object(body) && sum != NULL && strtoull(sum, NULL, 16) == checksum_of(body))
        j->root = json_incref(body);
    json_decref(whole);
}

pst_rc pst_journal_save(struct pst_journal *j)
{
    if (j->root == NULL || j->held)
        return PST_OK;
    char sum[17];
    (void)snprintf(sum, sizeof sum, "%016" PRIx64, checksum_of(j->root));
    json_t *whole = json_pack("{s:s, s:O}", "xxh3", sum, "journal", j->root);
    char *text = whole != NULL ? json_dumps(whole, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(whole);
    if (text == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for a journal");
    pst_rc rc = pst_file_replace(j->dir, PST_JOURNAL_FILE, text, strlen(text));
    free(text);
    j->saved_at = now();
    return rc;
}

bool pst_journal_due(const struct pst_journal *j)
{
    return j->root != NULL && now() - j->saved_at >= j->every_s;
}

void pst_journal_release(struct pst_journal *j)
{
    json_decref(j->root);
    j->root = NULL;
}
