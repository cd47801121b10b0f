/* python.h: runs a module of Penstock's Python package on files that C should not read.
 * Owner: none. Threads: one. */
#ifndef PST_PYTHON_H
#define PST_PYTHON_H

#include "common/base.h"

/* python3 -m penstock.MODULE FROM OUT; if it fails, its output becomes the error. PENSTOCK_PYTHON names
 * another interpreter. Fails: PST_E_UNSUPPORTED without Python, PST_E_FORMAT. */
PST_MUST_USE pst_rc pst_python_run(const char *module, const char *from, const char *out);

#endif
