/* install.c: paths relative to the running program, so that an installed tree can be moved. */
#include "common/util/install.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"

/* The directory of the running program. */
static pst_rc program_dir(char out[PST_PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PST_PATH_MAX - 1);
    if (n < 0)
        return pst_fail_errno("cannot read /proc/self/exe");
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    return PST_OK;
}

pst_rc pst_install_program_path(const char *name, char out[PST_PATH_MAX])
{
    char own[PST_PATH_MAX];
    const char *dir = getenv("PENSTOCK_BIN");
    if (!dir) {
        pst_rc rc = program_dir(own);
        if (rc != PST_OK)
            return rc;
        dir = own;
    }
    if (snprintf(out, PST_PATH_MAX, "%s/%s", dir, name) >= PST_PATH_MAX)
        return pst_fail(PST_E_LIMIT, "the path of the directory of Penstock's programs is too long: %s", dir);
    return PST_OK;
}

bool pst_install_pipeline_path(const char *name, char out[PST_PATH_MAX])
{
    static const char *const places[] = {"../../pipelines/", "../share/penstock/pipelines/"};
    char file[PST_PATH_MAX];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (snprintf(file, sizeof file, "%s%s.json", places[i], name) < (int)sizeof file &&
            pst_install_program_path(file, out) == PST_OK && access(out, R_OK) == 0)
            return true;
    return false;
}

pst_rc pst_install_stage_dir(int index, char out[PST_PATH_MAX])
{
    const char *list = getenv("PENSTOCK_STAGES"), *at = list ? list : "";
    out[0] = '\0';
    for (int i = 0; i < index; i++) {
        at += strcspn(at, ":");
        if (*at == '\0')
            return PST_OK;
        at++;
    }
    const size_t bytes = strcspn(at, ":");
    if (bytes == 0)
        return pst_install_program_path("../lib/penstock/stages", out);
    if (bytes >= PST_PATH_MAX)
        return pst_fail(PST_E_LIMIT, "PENSTOCK_STAGES: a path is too long: expected at most %d characters",
                        PST_PATH_MAX - 1);
    memcpy(out, at, bytes);
    out[bytes] = '\0';
    return PST_OK;
}
