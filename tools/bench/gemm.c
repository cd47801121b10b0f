/* gemm SECONDS THREADS TA TB M N K [THREADS TA TB M N K]...: the rate of oneDNN's sgemm on given shapes. It
 * prints GFLOP/s, one line for each shape. Before that it compares samples of the product with a plain loop.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util/clock.h"
#include "kernels/kernels.h"

struct shape {
    int threads;
    bool ta, tb;
    int64_t m, n, k;
};

static bool is_right(const struct shape *s, const float *a, const float *b, const float *c)
{
    int64_t lda = s->ta ? s->m : s->k, ldb = s->tb ? s->k : s->n;
    for (int64_t i = 0; i < s->m; i += 1 + s->m / 7)
        for (int64_t j = 0; j < s->n; j += 1 + s->n / 7) {
            double sum = 0, norm = 0;
            for (int64_t l = 0; l < s->k; l++) {
                double x = a[s->ta ? l * lda + i : i * lda + l], y = b[s->tb ? j * ldb + l : l * ldb + j];
                sum += x * y;
                norm += fabs(x * y);
            }
            if (fabs(sum - c[i * s->n + j]) > 1e-4 * (norm + 1))
                return false;
        }
    return true;
}

/* The best of many repetitions, because other work on the machine slows the rest. */
static double rate(const struct shape *s, double seconds, const float *a, const float *b, float *c)
{
    double best = 1e9, flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    for (double until = pst_clock_s() + seconds; pst_clock_s() < until;) {
        double t0 = pst_clock_s();
        pst_k_gemm(NULL, s->ta, s->tb, s->m, s->n, s->k, 1, a, s->ta ? s->m : s->k, b, s->tb ? s->k : s->n, 0,
                   c, s->n, s->threads);
        double t = pst_clock_s() - t0;
        best = t < best ? t : best;
    }
    return flops / best * 1e-9;
}

static float *matrix(int64_t elements, uint32_t seed)
{
    float *x = aligned_alloc(64, (size_t)(elements * 4 + 63) / 64 * 64);
    for (int64_t i = 0; x && i < elements; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

int main(int argc, char **argv)
{
    if (argc < 8 || (argc - 2) % 6 != 0) {
        fprintf(stderr, "usage: gemm SECONDS THREADS TA TB M N K...\n");
        return 2;
    }
    for (int at = 2; at < argc; at += 6) {
        struct shape s = {atoi(argv[at]),      atoi(argv[at + 1]) != 0, atoi(argv[at + 2]) != 0,
                          atoll(argv[at + 3]), atoll(argv[at + 4]),     atoll(argv[at + 5])};
        float *a = matrix(s.m * s.k, 1), *b = matrix(s.k * s.n, 2), *c = matrix(s.m * s.n, 3);
        if (!a || !b || !c)
            return 1;
        double gflops = rate(&s, atof(argv[1]), a, b, c);
        if (!is_right(&s, a, b, c)) {
            fprintf(stderr, "gemm: wrong product at %ld x %ld x %ld\n", (long)s.m, (long)s.n, (long)s.k);
            return 1;
        }
        printf("%d %d %d %ld %ld %ld %.2f\n", s.threads, s.ta, s.tb, (long)s.m, (long)s.n, (long)s.k, gflops);
        free(a);
        free(b);
        free(c);
    }
    return 0;
}
