/* signals.h: what a program sets before it starts threads: signals, and how its floats are computed. Threads:
 * call it before you start any, except pst_signals_thread. */
#ifndef PST_SIGNALS_H
#define PST_SIGNALS_H

#include <pthread.h>

#include "common/base.h"

PST_BEGIN_DECLS

/* Call it first in main. The ends of child processes are waited for, even if the parent ignored SIGCHLD. A
 * write beyond the limit on file sizes fails with EFBIG instead of ending the process. Children inherit
 * both. */
PST_API void pst_signals_init(void);

/* Starts a thread as pthread_create does, but signals go to the threads that there are already, except those
 * that the new thread causes itself. Returns 0, or an error number. */
PST_API PST_MUST_USE int pst_signals_thread(pthread_t *thread, void *(*run)(void *), void *context);

/* From now on, denormal floats (below 2^-126) count as 0 in this thread and in those that it starts. x86
 * processors compute with them many times slower than with others. Call it first in main, so that all threads
 * compute the same bits. Other processors are left as they are. */
PST_API void pst_denormal_off(void);

PST_END_DECLS
#endif
