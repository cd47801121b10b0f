/* edge_weights.c: random weights of the edges of a generated graph, from the topology that was just written.
 */
#include "common/store/dataset/array.h"
#include "common/store/make/gen.h"
#include "common/store/make/gen_random.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"

static pst_rc open_made(const struct pst_build *b, enum pst_array_id id, struct pst_array *a)
{
    char path[PST_PATH_MAX];
    (void)snprintf(path, sizeof path, "%.4000s/%s", b->partial, b->manifest.array[id].file);
    const pst_rc rc = pst_array_open(a, path);
    return rc == PST_OK ? pst_array_map(a) : rc;
}

/* Of the edges into v. */
static pst_rc write_list(struct pst_array_writer *w, uint64_t seed, const struct pst_array *indices,
                         int64_t v, int64_t from, int64_t to)
{
    pst_rc rc = PST_OK;
    for (int64_t e = from; e < to && rc == PST_OK; e++) {
        const int64_t u = indices->dtype == PST_I32 ? ((const int32_t *)indices->map)[e]
                                                    : ((const int64_t *)indices->map)[e];
        const struct pst_rng_block key = pst_gen_draw(seed, PST_GEN_EDGE_WEIGHT, (uint64_t)v, 0),
                                   d = pst_gen_draw((uint64_t)key.word[0] << 32 | key.word[1],
                                                    PST_GEN_EDGE_WEIGHT, (uint64_t)u, 1);
        const float weight = (float)-pst_gen_log(0x1p-54 + pst_gen_unit(&d, 0) * (1 - 0x1p-20));
        rc = pst_array_write(w, &weight, sizeof weight);
    }
    return rc;
}

pst_rc pst_gen_edge_weights(struct pst_build *b, uint64_t seed)
{
    struct pst_array *topology = calloc(2, sizeof *topology); /* paths: too much for the stack */
    const int64_t shape[2] = {b->manifest.edges, 1};
    struct pst_array_writer w;
    if (topology == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate paths");
    pst_rc rc = open_made(b, PST_ARRAY_INDPTR, &topology[0]);
    if (rc == PST_OK)
        rc = open_made(b, PST_ARRAY_INDICES, &topology[1]);
    if (rc == PST_OK)
        rc = pst_build_array(b, PST_ARRAY_EDGE_WEIGHTS, PST_F32, 1, shape, &w);
    if (rc == PST_OK) {
        const int64_t *indptr = topology[0].map;
        for (int64_t v = 0; v < b->manifest.vertices && rc == PST_OK; v++)
            rc = write_list(&w, seed, &topology[1], v, indptr[v], indptr[v + 1]);
        if (rc == PST_OK)
            rc = pst_build_array_end(b, PST_ARRAY_EDGE_WEIGHTS, &w);
        pst_array_writer_release(&w);
    }
    pst_array_close(&topology[0]);
    pst_array_close(&topology[1]);
    free(topology);
    return rc;
}
