/* caps_foreign.c: asks a program for its description with --describe, and caches the answer. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/util/file.h"
#include "common/util/subprocess.h"
#include "common/pipeline/desc/caps_impl.h"
#include "common/pipeline/desc/desc.h"

#define DESCRIBE_DEADLINE_MS 10000 /* a Python interpreter on a cold disk */
#define DESCRIBE_MAX_BYTES (1u << 18)
#define NEIGHBOURS_MAX 4096 /* files of a folder that are looked at */
#define STAMP_MAX 128

/* ---- foreign stages -------------------------------------------------------------------------- */

/* Of the files beside the program with the same ending: modules that it may import. In any order. */
static uint64_t digest_of_neighbours(const char *file)
{
    char folder[4096], text[512];
    (void)snprintf(folder, sizeof folder, "%s", file);
    char *slash = strrchr(folder, '/');
    const char *ending = strrchr(file, '.');
    if (!slash || !ending || strchr(ending, '/'))
        return 0;
    *slash = '\0';
    DIR *d = opendir(folder[0] ? folder : "/");
    uint64_t sum = 0;
    struct stat st;
    for (int i = 0; d && i < NEIGHBOURS_MAX; i++) {
        const struct dirent *e = readdir(d);
        const char *its = e ? strrchr(e->d_name, '.') : NULL;
        if (!e)
            break;
        if (!its || strcmp(its, ending) != 0 || fstatat(dirfd(d), e->d_name, &st, 0) != 0)
            continue;
        (void)snprintf(text, sizeof text, "%s %lld %lld.%ld", e->d_name, (long long)st.st_size,
                       (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
        sum += XXH3_64bits(text, strlen(text));
    }
    if (d)
        (void)closedir(d);
    return sum;
}

/* A description holds as long as this text is the same. */
static void stamp_of(const char *file, const struct stat *st, char out[STAMP_MAX])
{
    (void)snprintf(out, STAMP_MAX, "%d %lld %lld.%ld %016llx", PST_STAGE_ABI, (long long)st->st_size,
                   (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
                   (unsigned long long)digest_of_neighbours(file));
}

/* One file for each program. */
static void cache_path(const char *file, char out[PST_PATH_MAX])
{
    char name[64];
    (void)snprintf(name, sizeof name, "describe-%016llx.json",
                   (unsigned long long)XXH3_64bits(file, strlen(file)));
    pst_file_cached(name, out);
}

/* NULL: there is none, or it is of other files. */
static json_t *cached(const char *path, const char *stamp)
{
    json_t *j = json_load_file(path, 0, NULL);
    const char *its = json_string_value(json_object_get(j, "stamp"));
    json_t *found = its && strcmp(its, stamp) == 0 ? json_incref(json_object_get(j, "description")) : NULL;
    json_decref(j);
    return found;
}

static pst_rc describe(struct pst_caps *caps)
{
    char *text = malloc(DESCRIBE_MAX_BYTES);
    size_t len = 0;
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory");
    json_error_t error;
    pst_rc rc =
        pst_subprocess_read(caps->file, "--describe", DESCRIBE_DEADLINE_MS, text, DESCRIBE_MAX_BYTES, &len);
    if (rc == PST_OK && !(caps->described = json_loadb(text, len, 0, &error)))
        rc = pst_fail(PST_E_FORMAT, "%s --describe: expected JSON: line %d of the output: %s", caps->file,
                      error.line, error.text);
    free(text);
    return rc;
}

pst_rc pst_caps_load_foreign(struct pst_caps *caps)
{
    struct stat st;
    if (stat(caps->file, &st) != 0)
        return pst_fail_errno("cannot open stage %s", caps->file);
    if (!S_ISREG(st.st_mode))
        return pst_fail(PST_E_ARG, "stage %s: expected a program, found another kind of file", caps->file);
    char cache[PST_PATH_MAX], aside[PST_PATH_MAX + 16], stamp[STAMP_MAX];
    cache_path(caps->file, cache);
    stamp_of(caps->file, &st, stamp);
    caps->foreign = true;
    caps->described = cached(cache, stamp);
    if (caps->described && pst_desc_from_json(&caps->desc, caps->described, caps->file) == PST_OK)
        return PST_OK;
    json_decref(caps->described); /* a wrong answer in the cache: the program is asked again */
    caps->described = NULL;
    pst_rc rc = describe(caps);
    if (rc == PST_OK)
        rc = pst_desc_from_json(&caps->desc, caps->described, caps->file);
    if (rc != PST_OK)
        return rc;
    (void)snprintf(aside, sizeof aside, "%s.%d", cache, (int)getpid());
    json_t *kept = json_pack("{ss sO}", "stamp", stamp, "description", caps->described);
    if (kept && json_dump_file(kept, aside, 0) == 0) /* a cache: doing without it is fine */
        (void)rename(aside, cache);
    json_decref(kept);
    return PST_OK;
}
