/* subprocess.h: runs a program and reads what it prints. Threads: any. */
#ifndef PST_SUBPROCESS_H
#define PST_SUBPROCESS_H

#include "common/base.h"

/* Runs `file option` in a new process group and reads its standard output, at most cap bytes, into text; *len
 * gets the length (text has no end mark). Its standard error is the caller's. If it does not end within
 * deadline_ms, it and all processes that it started are killed. PST_E_TIMEOUT, PST_E_LIMIT; PST_E_PEER: it
 * did not end with status 0. */
PST_MUST_USE pst_rc pst_subprocess_read(const char *file, const char *option, int deadline_ms, char *text,
                                        size_t cap, size_t *len);

#endif
