/* journal.c: writes and reads the journal, and the identity of source files. */
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
#include "common/util/clock.h"
#include "common/util/file.h"

#define SOURCES_MAX 100000    /* a data set of more files is not one of ours */
#define BYTES_MAX (64u << 20) /* of a journal with SOURCES_MAX sources */

/* ---- sources ---- */

static uint64_t checksum_of(const json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    uint64_t sum = text != NULL ? XXH3_64bits(text, strlen(text)) : 0;
    free(text);
    return sum;
}

pst_rc pst_journal_sources_add(json_t *sources, const char *path)
{
    char *const paths[] = {(char *)(uintptr_t)path, NULL}; /* fts does not write to them */
    FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    if (tree == NULL)
        return pst_fail_errno("cannot read %s", path);
    pst_rc rc = PST_OK;
    for (FTSENT *e = fts_read(tree); rc == PST_OK && e != NULL; e = fts_read(tree)) {
        char identity[PST_FILE_IDENTITY_BYTES];
        if (e->fts_info != FTS_F)
            continue;
        pst_file_identity(e->fts_accpath, identity);
        (void)json_object_set_new(sources, e->fts_path, json_string(identity));
        if (json_object_size(sources) > SOURCES_MAX)
            rc = pst_fail(PST_E_LIMIT, "%s: too many files: at most %d are allowed", path, SOURCES_MAX);
    }
    (void)fts_close(tree);
    return rc;
}

/* Without inodes: a copy that keeps the times is the same source. */
void pst_journal_sources_identity(const json_t *sources, char out[PST_JOURNAL_IDENTITY_BYTES])
{
    json_t *plain = json_object(), *identity;
    const char *path;
    json_object_foreach((json_t *)(uintptr_t)sources, path, identity)
    {
        const char *text = json_string_value(identity), *inode = strstr(text, ", inode");
        (void)json_object_set_new(plain, path,
                                  json_stringn(text, inode != NULL ? (size_t)(inode - text) : strlen(text)));
    }
    (void)snprintf(out, PST_JOURNAL_IDENTITY_BYTES, "%016" PRIx64, checksum_of(plain));
    json_decref(plain);
}

/* ---- the journal ---- */

static void place(struct pst_journal *j, const char *dir)
{
    double every = j->every_s;
    *j = (struct pst_journal){.every_s = every, .saved_at = pst_clock_s()};
    (void)snprintf(j->dir, sizeof j->dir, "%s", dir);
}

static void path_of(const struct pst_journal *j, char path[PST_PATH_MAX])
{
    (void)snprintf(path, PST_PATH_MAX, "%s/%s", j->dir, PST_JOURNAL_FILE);
}

pst_rc pst_journal_begin(struct pst_journal *j, const char *dir, json_t *key)
{
    place(j, dir);
    j->root = json_pack("{s:o, s:{}}", "key", key, "arrays");
    return j->root != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a journal");
}

void pst_journal_open(struct pst_journal *j, const char *dir)
{
    char path[PST_PATH_MAX], *text = NULL;
    size_t bytes;
    place(j, dir);
    path_of(j, path);
    json_t *whole = pst_file_read(path, BYTES_MAX, &text, &bytes) == PST_OK
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
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a journal");
    char path[PST_PATH_MAX];
    path_of(j, path);
    pst_rc rc = pst_file_replace(path, text, strlen(text));
    free(text);
    j->saved_at = pst_clock_s();
    return rc;
}

bool pst_journal_due(const struct pst_journal *j)
{
    return j->root != NULL && pst_clock_s() - j->saved_at >= j->every_s;
}

void pst_journal_release(struct pst_journal *j)
{
    json_decref(j->root);
    j->root = NULL;
}
