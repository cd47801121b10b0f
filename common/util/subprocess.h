/* subprocess.h: runs a program, or a function, in a new process, and waits for it until a deadline. Threads:
 * any. */
#ifndef PST_SUBPROCESS_H
#define PST_SUBPROCESS_H

#include "common/base.h"

/* Runs `file option` in a new process group and reads its standard output, at most cap bytes, into text; *len
 * gets the length (text has no end mark). Its standard error is the caller's. If it does not end within
 * deadline_ms, it and all processes that it started are killed. PST_E_TIMEOUT, PST_E_LIMIT; PST_E_PEER: it
 * did not end with status 0. */
PST_MUST_USE pst_rc pst_subprocess_read(const char *file, const char *option, int deadline_ms, char *text,
                                        size_t cap, size_t *len);

/* Calls job(arg) in a forked copy of this process, which then ends. Use it for code that may hang, crash or
 * exit. what and arg begin the error, for example "loading x.so". PST_E_TIMEOUT: job did not return within
 * deadline_ms. PST_E_PEER: the copy died or ended before job returned. job must not need other threads. */
PST_MUST_USE pst_rc pst_subprocess_try(const char *what, void (*job)(const char *arg), const char *arg,
                                       int deadline_ms);

#endif
