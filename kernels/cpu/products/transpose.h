/* transpose.h: transposes matrices of numbers of 32 bits, with AVX2. Threads: any. */
#ifndef PST_PRODUCTS_TRANSPOSE_H
#define PST_PRODUCTS_TRANSPOSE_H

#include <immintrin.h>

#include "kernels/twin.h"

enum { PST_PRODUCTS_SQUARE = 8 }; /* rows, and columns, that are transposed in registers */

/* to[j][i] = from[i][j] of 8 rows and 8 columns. */
__attribute__((target("avx2"))) static inline void pst_products_transpose8(const float *from, int64_t ld,
                                                                           float *to, int64_t ld_to)
{
    __m256 r[PST_PRODUCTS_SQUARE], p[PST_PRODUCTS_SQUARE];
    for (int i = 0; i < PST_PRODUCTS_SQUARE; i++)
        r[i] = _mm256_loadu_ps(from + i * ld);
    for (int i = 0; i < PST_PRODUCTS_SQUARE; i += 2) {
        p[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        p[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < PST_PRODUCTS_SQUARE; i += 4)
        for (int half = 0; half < 2; half++) {
            r[i + 2 * half] = _mm256_shuffle_ps(p[i + half], p[i + half + 2], 0x44);
            r[i + 2 * half + 1] = _mm256_shuffle_ps(p[i + half], p[i + half + 2], 0xEE);
        }
    for (int i = 0; i < PST_PRODUCTS_SQUARE / 2; i++) {
        _mm256_storeu_ps(to + i * ld_to, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * ld_to, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* to[j][i] = from[i][j]. ld, ld_to: numbers from row to row. */
__attribute__((target("avx2"))) static inline void
pst_products_transpose(const float *from, int64_t ld, int64_t rows, int64_t cols, float *to, int64_t ld_to)
{
    for (int64_t i = 0; i < rows; i += PST_PRODUCTS_SQUARE)
        for (int64_t j = 0; j < cols; j += PST_PRODUCTS_SQUARE) {
            if (i + PST_PRODUCTS_SQUARE <= rows && j + PST_PRODUCTS_SQUARE <= cols) {
                pst_products_transpose8(from + i * ld + j, ld, to + j * ld_to + i, ld_to);
                continue;
            }
            for (int64_t a = i; a < pst_min_i64(i + PST_PRODUCTS_SQUARE, rows); a++)
                for (int64_t b = j; b < pst_min_i64(j + PST_PRODUCTS_SQUARE, cols); b++)
                    to[b * ld_to + a] = from[a * ld + b];
        }
}

#endif
