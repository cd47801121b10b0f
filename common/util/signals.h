/* signals.h: resets signal settings that a program inherits from its parent. Threads: call it before you
 * start any. */
#ifndef PST_SIGNALS_H
#define PST_SIGNALS_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Call it first in main. The ends of child processes are waited for, even if the parent ignored SIGCHLD. A
 * write beyond the limit on file sizes fails with EFBIG instead of ending the process. Children inherit
 * both. */
PST_API void pst_signals_init(void);

PST_END_DECLS
#endif
