/* gather.c: copies rows from anywhere to anywhere; hashes arrays. */
#include "kernels/cpu/clones.h"
#include "kernels/digest.h"
#include "kernels/kernels.h"

#include <string.h>

enum {
    AHEAD_ROWS = 8,    /* how many rows ahead are prefetched */
    AHEAD_BYTES = 512, /* bytes of a row that are prefetched; the hardware follows by itself after that */
};

void pst_k_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                  void *dst, uint64_t dst_stride, const int32_t *dst_pos, int64_t n, uint64_t row_bytes)
{
    assert(q == NULL && n >= 0 && n <= INT32_MAX);
    (void)q;
    const uint64_t fetch = row_bytes < AHEAD_BYTES ? row_bytes : AHEAD_BYTES;
    for (int64_t i = 0; i < n; i++) {
        if (src_row && i + AHEAD_ROWS < n) {
            const char *next = (const char *)src + (uint64_t)src_row[i + AHEAD_ROWS] * src_stride;
            for (uint64_t at = 0; at < fetch; at += PST_CACHE_LINE)
                __builtin_prefetch(next + at);
        }
        const uint64_t from = (uint64_t)(src_row ? src_row[i] : i);
        const uint64_t to = (uint64_t)(dst_pos ? dst_pos[i] : i);
        memcpy((char *)dst + to * dst_stride, (const char *)src + from * src_stride, row_bytes);
    }
}

PST_CPU_CLONES static uint64_t terms_of(const uint32_t *words, uint64_t n, uint64_t array)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += pst_k_digest_term(array, i, words[i]);
    return sum;
}

void pst_k_copy_digest(struct pst_queue *q, const void *src, void *dst, int64_t n, uint64_t item_bytes,
                       uint64_t array, uint64_t *digest)
{
    const uint64_t bytes = (uint64_t)n * item_bytes;
    assert(q == NULL && n >= 0 && n <= INT32_MAX && item_bytes % sizeof(uint32_t) == 0);
    (void)q;
    *digest += terms_of(src, bytes / sizeof(uint32_t), array);
    if (dst != NULL && n > 0)
        memcpy(dst, src, bytes);
}
