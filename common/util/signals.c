/* signals.c: a child inherits ignored signals across exec, so each program resets them itself. A new thread
 * inherits MXCSR, which says how floats are computed. */
#include "common/util/signals.h"

#include <signal.h>

#ifdef __SSE__
#include <xmmintrin.h>

enum { RESULTS_TO_ZERO = 0x8000, OPERANDS_TO_ZERO = 0x0040 }; /* FTZ and DAZ of MXCSR */
#endif

void pst_signals_init(void)
{
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_IGN);
}

int pst_signals_thread(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    for (const int *own = (const int[]){SIGBUS, SIGSEGV, SIGFPE, SIGILL, 0}; *own != 0; own++)
        (void)sigdelset(&all, *own);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, NULL, run, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

void pst_denormal_off(void)
{
#ifdef __SSE__
    _mm_setcsr(_mm_getcsr() | RESULTS_TO_ZERO | OPERANDS_TO_ZERO);
#endif
}
