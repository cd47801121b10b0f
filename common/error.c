/* error.c: one fixed buffer a thread, so that reporting a failure cannot fail. */
#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef pst_fail /* stand-ins for the analyser */
#undef pst_fail_errno

#define ERROR_TEXT_MAX 4096 /* a chain of a few sentences with paths in them */

static _Thread_local char error_text[ERROR_TEXT_MAX];

pst_rc pst_fail(pst_rc rc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char text[ERROR_TEXT_MAX];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(error_text, text, sizeof text);
    return rc;
}

/* Limits of the process that its user can raise. */
static const char *advice(int cause)
{
    return cause == EFBIG    ? " (the limit on file sizes: ulimit -f)"
           : cause == EMFILE ? " (the limit on open files: ulimit -n)"
                             : "";
}

pst_rc pst_fail_errno(const char *fmt, ...)
{
    int cause = errno;
    va_list ap;
    va_start(ap, fmt);
    char text[ERROR_TEXT_MAX - 256];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char why[128];
    return pst_fail(cause == ENOMEM ? PST_E_NOMEM : PST_E_IO, "%s: %s%s", text,
                    strerror_r(cause, why, sizeof why), advice(cause));
}

pst_rc pst_wrap(pst_rc rc, const char *fmt, ...)
{
    if (rc == PST_OK)
        return rc;
    va_list ap;
    va_start(ap, fmt);
    char text[ERROR_TEXT_MAX];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= ERROR_TEXT_MAX - 2)
        return rc;
    /* the cause matters less than the whole chain fitting, so it is what gets cut */
    (void)snprintf(text + n, sizeof text - (size_t)n, ": %.*s", ERROR_TEXT_MAX - 3 - n, error_text);
    memcpy(error_text, text, sizeof text);
    return rc;
}

const char *pst_error_text(void)
{
    return error_text;
}

void pst_error_clear(void)
{
    error_text[0] = '\0';
}

const char *pst_rc_name(pst_rc rc)
{
    switch (rc) {
    case PST_OK: return "ok";
    case PST_E_ARG: return "invalid value";
    case PST_E_NOMEM: return "out of memory";
    case PST_E_IO: return "input/output error";
    case PST_E_FORMAT: return "malformed data";
    case PST_E_LIMIT: return "limit exceeded";
    case PST_E_STATE: return "wrong state";
    case PST_E_TIMEOUT: return "timed out";
    case PST_E_UNSUPPORTED: return "not supported here";
    case PST_E_INTERRUPTED: return "interrupted";
    case PST_E_PEER: return "another process failed";
    }
    return "unknown error";
}
