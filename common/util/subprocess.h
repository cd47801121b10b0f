/* subprocess.h: runs a program for what it prints: a stage's description, a machine's GPUs. Threads: any. */
#ifndef PST_SUBPROCESS_H
#define PST_SUBPROCESS_H

#include "common/base.h"

/* Runs `file option` in a process group of its own, with standard error the caller's, and reads what it
 * prints to at most cap bytes of text (*len; no end mark). After deadline_ms, and if it does not end with
 * status 0, it is killed with all that it started, and that is an error. */
PST_MUST_USE pst_rc pst_subprocess_read(const char *file, const char *option, int deadline_ms, char *text,
                                        size_t cap, size_t *len);

#endif
