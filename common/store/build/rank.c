/* rank.c: a set of ids as a bitmap, with a count before each word. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/build/rank.h"

void pst_rank_init(struct pst_rank *r, uint64_t memory_bytes)
{
    *r = (struct pst_rank){.memory_bytes = memory_bytes};
}

/* Room for ids below `ids`: doubled, within the limit. The counts of each word will need as much again. */
static pst_rc grow(struct pst_rank *r, int64_t ids)
{
    int64_t had = (r->ids + 63) / 64, most = (int64_t)(r->memory_bytes / 16);
    int64_t need = (ids + 63) / 64;
    if (need > most)
        return pst_fail(PST_E_LIMIT,
                        "id %" PRId64 ": renumbering such large ids needs --memory %" PRId64
                        "MiB; --ids strings needs less, and treats ids as names",
                        ids - 1, need / (1 << 14) + 1);
    int64_t words = pst_min_i64(most, pst_max_i64(need, pst_max_i64(2 * had, 1024)));
    uint64_t *bits = realloc(r->bits, (size_t)words * 8);
    if (bits == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a set of %" PRId64 " ids", words * 64);
    memset(bits + had, 0, (size_t)(words - had) * 8);
    r->bits = bits;
    r->ids = words * 64;
    return PST_OK;
}

pst_rc pst_rank_add(struct pst_rank *r, const int64_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= r->ids) {
            pst_rc rc = grow(r, ids[i] + 1);
            if (rc != PST_OK)
                return rc;
        }
        r->bits[ids[i] >> 6] |= UINT64_C(1) << (ids[i] & 63);
    }
    return PST_OK;
}

pst_rc pst_rank_ready(struct pst_rank *r)
{
    int64_t words = r->ids / 64;
    r->before = malloc((size_t)(words > 0 ? words : 1) * sizeof *r->before);
    if (r->before == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count %" PRId64 " ids", r->ids);
    r->members = 0;
    for (int64_t w = 0; w < words; w++) {
        r->before[w] = r->members;
        r->members += __builtin_popcountll(r->bits[w]);
    }
    return PST_OK;
}

void pst_rank_release(struct pst_rank *r)
{
    free(r->bits);
    free(r->before);
    *r = (struct pst_rank){.ids = 0};
}
