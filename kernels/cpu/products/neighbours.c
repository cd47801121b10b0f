/* neighbours.c: means and weighted sums of the rows of neighbours, rounded to bfloat16, because they are
 * factors of products. The rows can be in bfloat16, too. Sums are in float32, in the order of pst_k_mean and
 * pst_k_weighted_sum, so the results have their bits, rounded. */
#include "kernels/cpu/products/products.h"

#include <immintrin.h>

#ifdef PST_REAL_IS_FLOAT

enum {
    LANES = 16,
    VECTORS = 8,       /* columns that are summed up in registers, in vectors */
    AHEAD_EDGES = 16,  /* how many edges ahead rows are prefetched */
    AHEAD_BYTES = 512, /* bytes of a row that are prefetched; the hardware follows by itself after that */
};

#define INLINE static inline __attribute__((always_inline))
#define WITH_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* What all sums have in common. */
struct neighbours {
    const struct pst_block *block;
    const float *weight, *self_weight; /* NULL: means */
    const struct pst_twin_view *in;
    int64_t dim;
};

/* How some columns of one sum are made. All but `first` and `some` are constants where the functions below
 * are inlined, so that the sums stay in registers. */
struct way {
    bool narrow, weighted; /* rows are read in bfloat16; they have weights */
    int vectors;           /* of columns, from `first` on */
    int64_t first;
    __mmask16 some; /* the lanes of the last vector that count */
};

INLINE __mmask16 lanes_of(struct way w, int vector)
{
    return vector == w.vectors - 1 ? w.some : (__mmask16)0xffff;
}

WITH_BF16 INLINE __m512 load(struct way w, const void *row, int vector)
{
    const int64_t at = w.first + vector * LANES;
    if (!w.narrow)
        return _mm512_maskz_loadu_ps(lanes_of(w, vector), (const float *)row + at);
    const __m256i half = _mm256_maskz_loadu_epi16(lanes_of(w, vector), (const uint16_t *)row + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE void fetch(const struct neighbours *n, struct way w, int64_t edge)
{
    if (edge >= n->block->edges || w.first > 0)
        return;
    const char *row = pst_twin_row(n->in, n->block->indices[edge]);
    const int64_t bytes = pst_min_i64(n->dim * (w.narrow ? 2 : 4), AHEAD_BYTES);
    for (int64_t i = 0; i < bytes; i += PST_CACHE_LINE)
        __builtin_prefetch(row + i);
}

/* Adds a row, times its weight, to the sums, or, if it is the first, sets them. */
WITH_BF16 INLINE void add_row(const struct neighbours *n, struct way w, int64_t row, float weight,
                              bool is_first, __m512 *sum)
{
    const void *at = pst_twin_row(n->in, row);
#pragma GCC unroll 8
    for (int v = 0; v < w.vectors; v++) {
        __m512 x = load(w, at, v);
        if (w.weighted)
            x = _mm512_mul_ps(x, _mm512_set1_ps(weight));
        sum[v] = is_first ? x : _mm512_add_ps(sum[v], x);
    }
}

/* Some columns of the sum of destination d. */
WITH_BF16 INLINE void sum_columns(const struct neighbours *n, struct way w, int vectors, int64_t d,
                                  uint16_t *out)
{
    w.vectors = vectors;
    const int64_t begin = n->block->indptr[d], end = n->block->indptr[d + 1];
    int64_t e = begin;
    __m512 sum[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < w.vectors; v++)
        sum[v] = _mm512_setzero_ps();
    if (w.weighted) {
        add_row(n, w, d, n->self_weight[d], true, sum);
    } else if (e < end) {
        fetch(n, w, e + AHEAD_EDGES);
        add_row(n, w, n->block->indices[e++], 1, true, sum);
    }
    for (; e < end; e++) {
        fetch(n, w, e + AHEAD_EDGES);
        add_row(n, w, n->block->indices[e], w.weighted ? n->weight[e] : 1, false, sum);
    }
    const __m512 share = _mm512_set1_ps(begin < end ? 1 / (float)(end - begin) : 0);
#pragma GCC unroll 8
    for (int v = 0; v < w.vectors; v++) {
        const __m512 x = w.weighted ? sum[v] : _mm512_mul_ps(sum[v], share);
        _mm256_mask_storeu_epi16(out + w.first + v * LANES, lanes_of(w, v), (__m256i)_mm512_cvtneps_pbh(x));
    }
}

/* The whole sum, in pieces of 8, 4, 2 and 1 vectors. */
WITH_BF16 INLINE void sum_row(const struct neighbours *n, bool narrow, bool weighted, int64_t d,
                              uint16_t *out)
{
    struct way w = {.narrow = narrow, .weighted = weighted};
    int64_t vectors = VECTORS;
    for (; w.first < n->dim; w.first += vectors * LANES) {
        const int64_t left = n->dim - w.first;
        while (left <= (vectors - 1) * LANES)
            vectors /= 2;
        w.some = (__mmask16)((1u << pst_min_i64(LANES, left - (vectors - 1) * LANES)) - 1);
        if (vectors == VECTORS)
            sum_columns(n, w, VECTORS, d, out);
        else if (vectors == VECTORS / 2)
            sum_columns(n, w, VECTORS / 2, d, out);
        else if (vectors == VECTORS / 4)
            sum_columns(n, w, VECTORS / 4, d, out);
        else
            sum_columns(n, w, 1, d, out);
    }
}

WITH_BF16 static void sum_rows(const struct neighbours *n, int64_t first, int64_t end, uint16_t *out,
                               int64_t ld)
{
    const bool narrow = n->in->at == NULL;
    for (int64_t d = first; d < end; d++) {
        if (narrow && n->weight)
            sum_row(n, true, true, d, out + d * ld);
        else if (narrow)
            sum_row(n, true, false, d, out + d * ld);
        else if (n->weight)
            sum_row(n, false, true, d, out + d * ld);
        else
            sum_row(n, false, false, d, out + d * ld);
    }
}

void pst_products_sum_rounded(const struct pst_block *block, int64_t first, int64_t n, const float *weight,
                              const float *self_weight, const struct pst_twin_view *in, uint16_t *out,
                              int64_t ld_out, int64_t dim)
{
    assert(first >= 0 && n >= 0 && first + n <= block->dsts && dim >= 0 && in->ld >= dim && ld_out >= dim);
    assert(weight == NULL || self_weight != NULL);
    const struct neighbours of = {
        .block = block, .weight = weight, .self_weight = self_weight, .in = in, .dim = dim};
    sum_rows(&of, first, first + n, out, ld_out);
}

#endif
