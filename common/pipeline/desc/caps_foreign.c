/* caps_foreign.c: asks a program for its description with --describe, and caches the answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/util/subprocess.h"
#include "common/pipeline/desc/caps_impl.h"
#include "common/pipeline/desc/desc.h"

#define DESCRIBE_DEADLINE_MS 10000 /* a Python interpreter on a cold disk */
#define DESCRIBE_MAX_BYTES (1u << 18)

/* ---- foreign stages -------------------------------------------------------------------------- */

static void cache_path(const char *file, const struct stat *st, char out[4096])
{
    char key[4352];
    (void)snprintf(key, sizeof key, "%d %.4000s %lld %lld.%ld", PST_STAGE_ABI, file, (long long)st->st_size,
                   (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char dir[3000];
    (void)snprintf(dir, sizeof dir, "%.2900s%s",
                   base   ? base
                   : home ? home
                          : "/nonexistent",
                   base ? "" : "/.cache");
    (void)mkdir(dir, 0700);
    (void)snprintf(out, 4096, "%s/penstock", dir);
    (void)mkdir(out, 0700);
    (void)snprintf(out, 4096, "%s/penstock/describe-%016llx.json", dir,
                   (unsigned long long)XXH3_64bits(key, strlen(key)));
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
    char cache[4096], aside[4200];
    cache_path(caps->file, &st, cache);
    caps->foreign = true;
    caps->described = json_load_file(cache, 0, NULL);
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
    if (json_dump_file(caps->described, aside, 0) == 0) /* a cache: doing without it is fine */
        (void)rename(aside, cache);
    return PST_OK;
}
