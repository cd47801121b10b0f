/* fused_simd.h: the loops of fused.c in AVX-512, and bias, ReLU and dropout in AVX2, for single precision,
 * with the same bits as the plain ones. Compilers do not vectorise Philox's widening products, or make many
 * shuffles of them, so these are written by hand. Owner: the caller owns all arrays. Threads: any; the
 * functions have no state. */
#ifndef PST_FUSED_SIMD_H
#define PST_FUSED_SIMD_H

#include <immintrin.h>

/* ---- AVX-512 ------------------------------------------------------------------------------------- */

#define PST_CPU_512 __attribute__((target("avx512f")))

/* Philox in 16 lanes. Words of even and of odd lanes are apart, each in the low half of 64 bits. Products
 * ignore the high halves, so these may hold anything until the end. */
struct lanes512 {
    __m512i w[4];
};

enum { XOR3 = 0x96 }; /* the truth table of a ^ b ^ c */

PST_CPU_512 PST_CPU_INLINE struct lanes512 round512(struct lanes512 s, __m512i key0, __m512i key1)
{
    const __m512i p0 = _mm512_mul_epu32(s.w[0], _mm512_set1_epi64(0xD2511F53));
    const __m512i p1 = _mm512_mul_epu32(s.w[2], _mm512_set1_epi64(0xCD9E8D57));
    return (struct lanes512){{_mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), s.w[1], key0, XOR3), p1,
                              _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), s.w[3], key1, XOR3), p0}};
}

PST_CPU_512 PST_CPU_INLINE void draw512(const struct mask *mask, uint64_t vertex, uint32_t group,
                                        __m512i out[4])
{
    const __m512i first = _mm512_set1_epi64((int64_t)group * LANES);
    const __m512i w0 = _mm512_set1_epi64((int64_t)vertex), w1 = _mm512_srli_epi64(w0, 32),
                  w3 = _mm512_set1_epi64((int64_t)mask->stream.salt);
    const __m512i even_lanes = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    struct lanes512 even = {{w0, w1, _mm512_add_epi64(first, even_lanes), w3}}, odd = even;
    odd.w[2] = _mm512_add_epi64(even.w[2], _mm512_set1_epi64(1));
    uint32_t key0 = mask->stream.key[0], key1 = mask->stream.key[1];
    for (int round = 0; round < 10; round++) {
        const __m512i k0 = _mm512_set1_epi64((int64_t)key0), k1 = _mm512_set1_epi64((int64_t)key1);
        even = round512(even, k0, k1);
        odd = round512(odd, k0, k1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = _mm512_mask_mov_epi32(even.w[i], 0xAAAA, _mm512_slli_epi64(odd.w[i], 32));
}

PST_CPU_512 PST_CPU_INLINE __mmask16 first_columns(int64_t n)
{
    if (n >= LANES)
        return 0xFFFF;
    return (__mmask16)((1u << n) - 1);
}

/* Bias and ReLU of up to 16 columns. */
PST_CPU_512 PST_CPU_INLINE __m512 clip512(__m512 x, __mmask16 columns, const float *bias, bool relu)
{
    if (bias)
        x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(columns, bias));
    if (relu) /* true for a NaN, which stays */
        x = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLT_UQ), x);
    return x;
}

PST_CPU_512 PST_CPU_INLINE __m512 factor512(__m512i bits, __m512i threshold, __m512 scale)
{
    return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(bits, threshold), scale);
}

/* One group of a row's columns. */
PST_CPU_512 PST_CPU_INLINE void group512(float *x, const float *bias, int64_t width, bool relu,
                                         const struct mask *mask, uint64_t vertex, uint32_t group)
{
    __m512i w[4] = {_mm512_setzero_si512()};
    if (mask->on)
        draw512(mask, vertex, group, w);
    const __m512i threshold = _mm512_set1_epi32((int32_t)mask->threshold);
    const __m512 scale = _mm512_set1_ps(mask->scale);
    _Pragma("GCC unroll 8") for (int piece = 0; piece < PIECES; piece++)
    {
        const int64_t at = piece * LANES;
        if (at >= width)
            break;
        const __mmask16 columns = first_columns(width - at);
        __m512 v = _mm512_maskz_loadu_ps(columns, x + at);
        v = clip512(v, columns, bias ? bias + at : NULL, relu);
        if (mask->on) {
            const __m512i bits = piece % 2 ? w[piece / 2] : _mm512_slli_epi32(w[piece / 2], 16);
            v = _mm512_mul_ps(v, factor512(bits, threshold, scale));
        }
        _mm512_mask_storeu_ps(x + at, columns, v);
    }
}

PST_CPU_512 static void forward512(float *x, int64_t ld, const float *bias, const int64_t *vertices,
                                   int64_t n, int64_t dim, bool relu, const struct mask *mask)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t at = 0; at < dim; at += GROUP)
            group512(x + i * ld + at, bias ? bias + at : NULL, pst_min_i64(GROUP, dim - at), relu, mask,
                     mask->on ? (uint64_t)vertices[i] : 0, (uint32_t)(at / GROUP));
}

enum { STRIP = 64 }; /* columns whose sums are kept in registers */

/* grad = y > 0 ? grad * scale : 0 (if y is not NULL), and sums of up to 64 columns down the rows. */
PST_CPU_512 PST_CPU_INLINE void strip512(float *grad, int64_t ld, const float *y, int64_t ld_y, int64_t n,
                                         int64_t width, float scale, double *sums)
{
    __m512d low[STRIP / LANES], high[STRIP / LANES];
    for (int p = 0; p < STRIP / LANES; p++)
        low[p] = high[p] = _mm512_setzero_pd();
    for (int64_t i = 0; i < n; i++) {
        _Pragma("GCC unroll 4") for (int p = 0; p < STRIP / LANES; p++)
        {
            const __mmask16 columns = width > p * LANES ? first_columns(width - p * LANES) : 0;
            __m512 g = _mm512_maskz_loadu_ps(columns, grad + i * ld + p * LANES);
            if (y) {
                const __m512 v = _mm512_maskz_loadu_ps(columns, y + i * ld_y + p * LANES);
                g = _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ), g,
                                        _mm512_set1_ps(scale));
                _mm512_mask_storeu_ps(grad + i * ld + p * LANES, columns, g);
            }
            low[p] = _mm512_add_pd(low[p], _mm512_cvtps_pd(_mm512_castps512_ps256(g)));
            high[p] = _mm512_add_pd(
                high[p], _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(g), 1))));
        }
    }
    for (int p = 0; p < STRIP / LANES; p++) {
        _mm512_storeu_pd(sums + p * LANES, low[p]);
        _mm512_storeu_pd(sums + p * LANES + LANES / 2, high[p]);
    }
}

/* The gradient of ReLU and dropout together, or only the sums. */
PST_CPU_512 static void backward512(float *grad, int64_t ld, const float *y, int64_t ld_y, int64_t n,
                                    int64_t dim, float scale, float *grad_bias)
{
    for (int64_t at = 0; at < dim; at += STRIP) {
        const int64_t width = pst_min_i64(STRIP, dim - at);
        double sums[STRIP];
        if (width == STRIP)
            strip512(grad + at, ld, y ? y + at : NULL, ld_y, n, STRIP, scale, sums);
        else
            strip512(grad + at, ld, y ? y + at : NULL, ld_y, n, width, scale, sums);
        for (int64_t j = 0; grad_bias && j < width; j++)
            grad_bias[at + j] += (float)sums[j];
    }
}

/* ---- AVX2 ---------------------------------------------------------------------------------------- */

#define PST_CPU_AVX2 __attribute__((target("avx2")))

enum { HALF = LANES / 2 }; /* columns of a vector */

/* Philox in 8 lanes, half of them in even and half in odd places, as above. */
struct lanes256 {
    __m256i w[4];
};

PST_CPU_AVX2 PST_CPU_INLINE __m256i xor3(__m256i a, __m256i b, __m256i c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

PST_CPU_AVX2 PST_CPU_INLINE struct lanes256 round256(struct lanes256 s, __m256i key0, __m256i key1)
{
    const __m256i p0 = _mm256_mul_epu32(s.w[0], _mm256_set1_epi64x(0xD2511F53));
    const __m256i p1 = _mm256_mul_epu32(s.w[2], _mm256_set1_epi64x(0xCD9E8D57));
    return (struct lanes256){{xor3(_mm256_srli_epi64(p1, 32), s.w[1], key0), p1,
                              xor3(_mm256_srli_epi64(p0, 32), s.w[3], key1), p0}};
}

/* out[i]: word i of lanes 8 half .. 8 half + 7. */
PST_CPU_AVX2 PST_CPU_INLINE void draw256(const struct mask *mask, uint64_t vertex, uint32_t group, int half,
                                         __m256i out[4])
{
    const __m256i w0 = _mm256_set1_epi64x((int64_t)vertex), w1 = _mm256_srli_epi64(w0, 32),
                  w3 = _mm256_set1_epi64x((int64_t)mask->stream.salt);
    const __m256i first = _mm256_set1_epi64x((int64_t)group * LANES + half * HALF);
    struct lanes256 even = {{w0, w1, _mm256_add_epi64(first, _mm256_set_epi64x(6, 4, 2, 0)), w3}}, odd = even;
    odd.w[2] = _mm256_add_epi64(even.w[2], _mm256_set1_epi64x(1));
    uint32_t key0 = mask->stream.key[0], key1 = mask->stream.key[1];
    for (int round = 0; round < 10; round++) {
        const __m256i k0 = _mm256_set1_epi64x((int64_t)key0), k1 = _mm256_set1_epi64x((int64_t)key1);
        even = round256(even, k0, k1);
        odd = round256(odd, k0, k1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = _mm256_blend_epi32(even.w[i], _mm256_slli_epi64(odd.w[i], 32), 0xAA);
}

/* All bits of a column are 1 if it is among the first n. */
PST_CPU_AVX2 PST_CPU_INLINE __m256i first_columns256(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)pst_min_i64(n, HALF)),
                              _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}

/* Up to 8 columns. A masked store is slow, so all 8 are stored without a mask. */
PST_CPU_AVX2 PST_CPU_INLINE __m256 load256(const float *x, int64_t n)
{
    return n >= HALF ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_columns256(n));
}

PST_CPU_AVX2 PST_CPU_INLINE void store256(float *x, int64_t n, __m256 v)
{
    if (n >= HALF)
        _mm256_storeu_ps(x, v);
    else
        _mm256_maskstore_ps(x, first_columns256(n), v);
}

/* 0 where the bits are below the threshold, as numbers without a sign. */
PST_CPU_AVX2 PST_CPU_INLINE __m256 factor256(__m256i bits, __m256i threshold, __m256 scale)
{
    const __m256i kept = _mm256_cmpeq_epi32(_mm256_max_epu32(bits, threshold), bits);
    return _mm256_and_ps(_mm256_castsi256_ps(kept), scale);
}

/* Of a row's columns, those of half a group: 8 of each 16. */
PST_CPU_AVX2 PST_CPU_INLINE void half_group256(float *x, const float *bias, int64_t width, bool relu,
                                               const struct mask *mask, uint64_t vertex, uint32_t group,
                                               int half)
{
    __m256i w[4] = {_mm256_setzero_si256()};
    if (mask->on)
        draw256(mask, vertex, group, half, w);
    const __m256i threshold = _mm256_set1_epi32((int32_t)mask->threshold);
    const __m256 scale = _mm256_set1_ps(mask->scale);
    _Pragma("GCC unroll 8") for (int piece = 0; piece < PIECES; piece++)
    {
        const int64_t at = piece * LANES + half * HALF;
        if (at >= width)
            break;
        __m256 v = load256(x + at, width - at);
        if (bias)
            v = _mm256_add_ps(v, load256(bias + at, width - at));
        if (relu) /* false for a NaN, which stays */
            v = _mm256_andnot_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ), v);
        if (mask->on) {
            const __m256i bits = piece % 2 ? w[piece / 2] : _mm256_slli_epi32(w[piece / 2], 16);
            v = _mm256_mul_ps(v, factor256(bits, threshold, scale));
        }
        store256(x + at, width - at, v);
    }
}

PST_CPU_AVX2 static void forward256(float *x, int64_t ld, const float *bias, const int64_t *vertices,
                                    int64_t n, int64_t dim, bool relu, const struct mask *mask)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t at = 0; at < dim; at += GROUP)
            for (int half = 0; half < 2; half++)
                half_group256(x + i * ld + at, bias ? bias + at : NULL, pst_min_i64(GROUP, dim - at), relu,
                              mask, mask->on ? (uint64_t)vertices[i] : 0, (uint32_t)(at / GROUP), half);
}

#endif
