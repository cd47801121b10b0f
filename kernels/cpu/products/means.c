/* means.c: means over in-neighbours that are factors of products in bfloat16. The rows can be in bfloat16,
 * too. Sums are in float32, in the order of the edges, so a mean has the bits of pst_k_mean's, rounded. */
#include "kernels/cpu/products/products.h"

#include <immintrin.h>

#include "kernels/cpu/clones.h"

#ifdef PST_REAL_IS_FLOAT

enum {
    LANES = 16,
    VECTORS = 8,       /* columns that are summed up in registers, in vectors */
    AHEAD_EDGES = 16,  /* how many edges ahead rows are prefetched */
    AHEAD_BYTES = 512, /* bytes of a row that are prefetched; the hardware follows by itself after that */
};

#define WITH_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* Some columns of the rows of one mean. Of the last vector, only the lanes of `some` count. */
struct columns {
    const struct pst_twin_view *in;
    const int32_t *indices;
    int64_t begin, end, count; /* edges; count: those of all means, the limit of prefetching */
    int64_t first, dim;        /* the first column; the row's width */
    __mmask16 some;
};

WITH_BF16 PST_CPU_INLINE __m512 load(const struct columns *c, int64_t row, int64_t column, __mmask16 some,
                                     bool narrow)
{
    const int64_t at = row * c->in->ld + column;
    if (!narrow)
        return _mm512_maskz_loadu_ps(some, c->in->at + at);
    const __m256i half = _mm256_maskz_loadu_epi16(some, c->in->bf16 + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

PST_CPU_INLINE void fetch(const struct columns *c, int64_t edge, bool narrow)
{
    if (edge >= c->count || c->first > 0)
        return;
    const int64_t at = c->indices[edge] * c->in->ld, size = narrow ? 2 : 4;
    const char *row = narrow ? (const char *)(c->in->bf16 + at) : (const char *)(c->in->at + at);
    const int64_t bytes = pst_min_i64(c->dim * size, AHEAD_BYTES);
    for (int64_t i = 0; i < bytes; i += PST_CACHE_LINE)
        __builtin_prefetch(row + i);
}

/* Adds the columns of one row to the sums, or, with the first row, sets them. */
WITH_BF16 PST_CPU_INLINE void add_row(const struct columns *c, int64_t edge, bool is_first, int vectors,
                                      bool narrow, __m512 *sum)
{
    const int64_t row = c->indices[edge];
    fetch(c, edge + AHEAD_EDGES, narrow);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        const __mmask16 some = v == vectors - 1 ? c->some : (__mmask16)0xffff;
        const __m512 x = load(c, row, c->first + v * LANES, some, narrow);
        sum[v] = is_first ? x : _mm512_add_ps(sum[v], x);
    }
}

/* vectors and narrow: constants of the caller, so that the sums stay in registers. */
WITH_BF16 PST_CPU_INLINE void mean_columns(const struct columns *c, int vectors, bool narrow, uint16_t *out)
{
    __m512 sum[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++)
        sum[v] = _mm512_setzero_ps();
    if (c->begin < c->end)
        add_row(c, c->begin, true, vectors, narrow, sum);
    for (int64_t edge = c->begin + 1; edge < c->end; edge++)
        add_row(c, edge, false, vectors, narrow, sum);
    const __m512 share = _mm512_set1_ps(c->begin < c->end ? 1 / (float)(c->end - c->begin) : 0);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++)
        _mm256_mask_storeu_epi16(out + c->first + v * LANES, v == vectors - 1 ? c->some : (__mmask16)0xffff,
                                 (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(sum[v], share)));
}

WITH_BF16 PST_CPU_INLINE void mean_row(struct columns *c, bool narrow, uint16_t *out)
{
    for (int64_t vectors = 0, left = c->dim; left > 0; left -= vectors * LANES) {
        for (vectors = VECTORS; left <= (vectors - 1) * LANES;)
            vectors /= 2;
        c->first = c->dim - left;
        c->some = (__mmask16)((1u << pst_min_i64(LANES, left - (vectors - 1) * LANES)) - 1);
        if (vectors == VECTORS)
            mean_columns(c, VECTORS, narrow, out);
        else if (vectors == VECTORS / 2)
            mean_columns(c, VECTORS / 2, narrow, out);
        else if (vectors == VECTORS / 4)
            mean_columns(c, VECTORS / 4, narrow, out);
        else
            mean_columns(c, 1, narrow, out);
    }
}

WITH_BF16 static void mean_rows(struct columns *c, const int32_t *indptr, int64_t dsts, bool narrow,
                                uint16_t *out, int64_t ld_out)
{
    for (int64_t d = 0; d < dsts; d++) {
        c->begin = indptr[d];
        c->end = indptr[d + 1];
        if (narrow)
            mean_row(c, true, out + d * ld_out);
        else
            mean_row(c, false, out + d * ld_out);
    }
}

void pst_products_mean(const int32_t *indptr, const int32_t *indices, int64_t dsts,
                       const struct pst_twin_view *in, uint16_t *out, int64_t ld_out, int64_t dim)
{
    assert(dsts >= 0 && dim >= 0 && in->ld >= dim && ld_out >= dim);
    struct columns c = {.in = in, .indices = indices, .count = indptr[dsts], .dim = dim};
    mean_rows(&c, indptr, dsts, in->bf16 != NULL, out, ld_out);
}

#endif
