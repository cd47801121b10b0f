/* placement_fixture.h: random numbers for the tests of placement, the same in each run. Included once by each
 * test program. */
#ifndef PLACEMENT_FIXTURE_H
#define PLACEMENT_FIXTURE_H

/* cmocka.h wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/placement/placement.h"

static uint64_t state = 88172645463325252u;

static inline double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static inline int64_t below(int64_t n)
{
    return (int64_t)(uniform() * (double)n);
}

static inline void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("found %.12g, expected %.12g", found, expected);
}

#endif
