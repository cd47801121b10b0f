/* denormal.h: floating-point numbers below the smallest normal one (2^-126 for a float) are called denormal.
 * x86 processors compute with them many times slower than with others. A training run has more of them the
 * longer it is.
 *
 * Owner: none. Threads: any; a new thread has the setting of the thread that starts it. */
#ifndef PST_DENORMAL_H
#define PST_DENORMAL_H

#include "common/base.h"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { PST_DENORMAL_RESULTS_ZERO = 0x8000, PST_DENORMAL_OPERANDS_ZERO = 0x0040 }; /* FTZ and DAZ of MXCSR */

/* From now on, they count as 0, in this thread and in those that it starts. A program calls it first, so that
 * all its threads compute the same bits. Processors other than x86 are left as they are. */
static inline void pst_denormal_off(void)
{
#ifdef __SSE__
    _mm_setcsr(_mm_getcsr() | PST_DENORMAL_RESULTS_ZERO | PST_DENORMAL_OPERANDS_ZERO);
#endif
}

#endif
