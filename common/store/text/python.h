/* python.h: runs a module of Penstock's Python package, for example on files that C should not read.
 * PENSTOCK_PYTHON names another interpreter than python3. Owner: none. Threads: one. */
#ifndef PST_PYTHON_H
#define PST_PYTHON_H

#include "common/base.h"

/* python3 -m penstock.MODULE FROM OUT; if it fails, its output becomes the error.
 * Fails: PST_E_UNSUPPORTED without Python, PST_E_FORMAT. */
PST_MUST_USE pst_rc pst_python_run(const char *module, const char *from, const char *out);

/* Replaces this process by python3 -m penstock.MODULE PROGRAM ARGS...; PROGRAM is the path of this program,
 * and args ends with NULL. Returns only if it fails: PST_E_UNSUPPORTED, PST_E_ARG (too many arguments). */
PST_API PST_MUST_USE pst_rc pst_python_become(const char *module, char *const args[]);

#endif
