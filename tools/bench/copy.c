/* copy SECONDS BYTES...: the rate at which one thread copies an array to another, in GB/s of bytes read and
 * written, one line for each size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util/clock.h"

/* The best of many repetitions, because other work on the machine slows the rest. */
static double rate(double seconds, const char *from, char *to, size_t bytes)
{
    double best = 1e9;
    for (double until = pst_clock_s() + seconds; pst_clock_s() < until;) {
        const double t0 = pst_clock_s();
        memcpy(to, from, bytes);
        const double t = pst_clock_s() - t0;
        best = t < best ? t : best;
    }
    return 2 * (double)bytes / best * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: copy SECONDS BYTES...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        const size_t bytes = ((size_t)atoll(argv[i]) + 63) / 64 * 64;
        char *from = aligned_alloc(64, bytes), *to = aligned_alloc(64, bytes);
        if (!from || !to)
            return 1;
        memset(from, i, bytes);
        memset(to, 0, bytes);
        const double found = rate(atof(argv[1]), from, to, bytes);
        if (memcmp(from, to, bytes) != 0) {
            fprintf(stderr, "copy: the copy of %zu bytes differs\n", bytes);
            return 1;
        }
        printf("%zu %.2f\n", bytes, found);
        free(from);
        free(to);
    }
    return 0;
}
