/* options.c: numbers and names read from the command line, with the errors that they can give. */
#include "tools/penstock/cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/pipeline/json/diag.h"
#include "common/store/store.h"

pst_rc option_int(const char *name, const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    const bool begins = (text[0] >= '0' && text[0] <= '9') || text[0] == '-'; /* strtoll takes blanks, too */
    if (!begins || errno != 0 || end == text || *end != '\0' || value < low || value > high)
        return pst_fail(PST_E_ARG, "%s: expected an integer from %" PRId64 " to %" PRId64 ", found '%.64s'",
                        name, low, high, text);
    *out = value;
    return PST_OK;
}

pst_rc option_checkpoint(const char *name, const char *text, bool *last)
{
    *last = strcmp(text, "last") == 0;
    return *last || strcmp(text, "best") == 0
               ? PST_OK
               : pst_fail(PST_E_ARG, "%s: expected best or last, found '%.64s'", name, text);
}

pst_rc option_stripe_dirs(const char *text, int64_t *stripes, const char **out)
{
    char list[4096], *save = NULL;
    int64_t n = 0;
    if (strlen(text) >= sizeof list)
        return pst_fail(PST_E_LIMIT, "--stripe-dirs: the list is too long: expected at most %zu bytes",
                        sizeof list - 1);
    memcpy(list, text, strlen(text) + 1);
    for (char *dir = strtok_r(list, ",", &save); dir != NULL; dir = strtok_r(NULL, ",", &save), n++) {
        struct stat st;
        if (stat(dir, &st) != 0)
            return pst_fail(PST_E_ARG, "--stripe-dirs: %.400s: %s", dir, strerror(errno));
        if (!S_ISDIR(st.st_mode))
            return pst_fail(PST_E_ARG, "--stripe-dirs: %.400s: expected a directory", dir);
    }
    if (n < 1 || n > PST_DATASET_FEATURE_FILES_MAX)
        return pst_fail(PST_E_ARG,
                        "--stripe-dirs: expected 1 to %d directories, separated by commas, found %" PRId64,
                        PST_DATASET_FEATURE_FILES_MAX, n);
    *stripes = *stripes == 0 ? n : *stripes;
    *out = text;
    return PST_OK;
}

pst_rc option_real(const char *name, const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return pst_fail(PST_E_ARG, "%s: expected a number, found '%.64s'", name, text);
    *out = value;
    return PST_OK;
}

pst_rc option_bytes(const char *name, const char *text, uint64_t *out)
{
    static const char suffix[] = "KMGT";
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool ok = errno == 0 && end != text && text[0] >= '0' && text[0] <= '9';
    const char *unit = ok && *end != '\0' ? strchr(suffix, *end) : NULL;
    int shift = unit == NULL ? 0 : 10 * (int)(unit - suffix + 1);
    end += unit != NULL;
    if (ok && unit != NULL && strcmp(end, "iB") == 0)
        end += 2;
    if (!ok || *end != '\0' || value > INT64_MAX >> shift)
        return pst_fail(PST_E_ARG,
                        "%s: expected a number of bytes, for example 4096, 512K, 64MiB or 8G, found '%.64s'",
                        name, text);
    *out = (uint64_t)value << shift;
    return PST_OK;
}

pst_rc option_name(const char *name, const char *text, char *out, size_t room)
{
    size_t n = strlen(text);
    if (n == 0 || n >= room)
        return pst_fail(PST_E_ARG, "%s: expected a text of 1 to %zu bytes, found %zu bytes", name, room - 1,
                        n);
    memset(out, 0, room); /* it is copied whole */
    (void)snprintf(out, room, "%s", text);
    return PST_OK;
}

/* The signal that pst_progress_add noticed is still pending. */
static int interrupted_by(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t pending;
    for (int i = 0; i < 3 && sigpending(&pending) == 0; i++)
        if (sigismember(&pending, signals[i]) == 1)
            return signals[i];
    return SIGINT;
}

int command_result(const char *command, pst_rc rc)
{
    if (rc == PST_OK)
        return 0;
    (void)fprintf(stderr, "penstock %s: %s\n", command, pst_error_text());
    if (rc == PST_E_INTERRUPTED)
        return 128 + interrupted_by();
    bool users = rc == PST_E_ARG || rc == PST_E_FORMAT || rc == PST_E_STATE || rc == PST_E_LIMIT;
    return users ? 2 : 1;
}

void command_unknown(const char *who, const char *what, const char *found, const char *const *names, size_t n)
{
    const char *near = pst_diag_nearest(found, names, n);
    (void)fprintf(stderr, "%s: unknown %s \"%.64s\"", who, what, found);
    (void)fprintf(stderr, near != NULL ? ": did you mean \"%s\"?\n\n" : "\n\n", near);
}
