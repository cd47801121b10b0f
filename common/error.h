/* error.h: one error message per thread. The function that detects an error calls pst_fail. Its callers add
 * context with pst_wrap. The code that shows the message to a user calls pst_error_text. */
#ifndef PST_ERROR_H
#define PST_ERROR_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Sets this thread's message and returns rc. Use it as `return pst_fail(...)`. */
PST_API pst_rc pst_fail(pst_rc rc, const char *fmt, ...) PST_PRINTF(2, 3);

/* The same, and appends ": strerror(errno)". Returns PST_E_IO, or PST_E_NOMEM if errno is ENOMEM. */
PST_API pst_rc pst_fail_errno(const char *fmt, ...) PST_PRINTF(1, 2);

/* Puts "context: " before this thread's message; returns rc unchanged. */
PST_API pst_rc pst_wrap(pst_rc rc, const char *fmt, ...) PST_PRINTF(2, 3);

/* The message of this thread's last failure; never NULL; valid until its next failure. */
PST_API const char *pst_error_text(void);
PST_API void pst_error_clear(void);

/* The kind of error in words: "invalid argument", "I/O error", ... */
PST_API const char *pst_rc_name(pst_rc rc);

#ifdef __clang_analyzer__ /* tells the analyser that a failure is never PST_OK */
#define pst_fail(rc, ...) (pst_fail(rc, __VA_ARGS__), (rc))
#define pst_fail_errno(...) (pst_fail_errno(__VA_ARGS__), PST_E_IO)
#endif

PST_END_DECLS
#endif
