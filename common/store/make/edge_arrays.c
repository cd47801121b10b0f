/* edge_arrays.c: random weights and times of the edges of a generated graph, from the topology that was just
 * written. */
#include "common/store/dataset/array.h"
#include "common/store/make/gen.h"
#include "common/store/make/gen_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static pst_rc open_made(const struct pst_build *b, enum pst_array_id id, struct pst_array *a)
{
    char path[PST_PATH_MAX];
    (void)snprintf(path, sizeof path, "%.4000s/%s", b->partial, b->manifest.array[id].file);
    const pst_rc rc = pst_array_open(a, path);
    return rc == PST_OK ? pst_array_map(a) : rc;
}

/* A number for the edge from u into v. */
typedef int32_t number_fn(uint64_t seed, int64_t u, int64_t v);

/* The bits of a float. */
static int32_t weight_of(uint64_t seed, int64_t u, int64_t v)
{
    const struct pst_rng_block key = pst_gen_draw(seed, PST_GEN_EDGE_WEIGHT, (uint64_t)v, 0),
                               d = pst_gen_draw((uint64_t)key.word[0] << 32 | key.word[1],
                                                PST_GEN_EDGE_WEIGHT, (uint64_t)u, 1);
    const float weight = (float)-pst_gen_log(0x1p-54 + pst_gen_unit(&d, 0) * (1 - 0x1p-20));
    int32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return bits;
}

static int32_t time_of_vertex(uint64_t seed, int64_t v)
{
    const struct pst_rng_block d = pst_gen_draw(seed, PST_GEN_TIME, (uint64_t)v, 0);
    return (int32_t)(d.word[0] % PST_GEN_TIMES);
}

/* An edge comes to be with the later one of its ends. */
static int32_t time_of_edge(uint64_t seed, int64_t u, int64_t v)
{
    const int32_t a = time_of_vertex(seed, u), b = time_of_vertex(seed, v);
    return a > b ? a : b;
}

/* Of the edges into v. */
static pst_rc write_list(struct pst_array_writer *w, uint64_t seed, const struct pst_array *indices,
                         number_fn *number, int64_t v, int64_t from, int64_t to)
{
    pst_rc rc = PST_OK;
    for (int64_t e = from; e < to && rc == PST_OK; e++) {
        const int64_t u = indices->dtype == PST_I32 ? ((const int32_t *)indices->map)[e]
                                                    : ((const int64_t *)indices->map)[e];
        const int32_t x = number(seed, u, v);
        rc = pst_array_write(w, &x, sizeof x);
    }
    return rc;
}

/* An array of numbers of 32 bits, one for each edge. */
static pst_rc write_edges(struct pst_build *b, uint64_t seed, enum pst_array_id id, enum pst_dtype dtype,
                          number_fn *number)
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
        rc = pst_build_array(b, id, dtype, 1, shape, &w);
    if (rc == PST_OK) {
        const int64_t *indptr = topology[0].map;
        for (int64_t v = 0; v < b->manifest.vertices && rc == PST_OK; v++)
            rc = write_list(&w, seed, &topology[1], number, v, indptr[v], indptr[v + 1]);
        if (rc == PST_OK)
            rc = pst_build_array_end(b, id, &w);
        pst_array_writer_release(&w);
    }
    pst_array_close(&topology[0]);
    pst_array_close(&topology[1]);
    free(topology);
    return rc;
}

pst_rc pst_gen_edge_weights(struct pst_build *b, uint64_t seed)
{
    return write_edges(b, seed, PST_ARRAY_EDGE_WEIGHTS, PST_F32, weight_of);
}

pst_rc pst_gen_times(struct pst_build *b, uint64_t seed)
{
    const int64_t shape[2] = {b->manifest.vertices, 1};
    struct pst_array_writer w;
    pst_rc rc = write_edges(b, seed, PST_ARRAY_EDGE_TIMES, PST_I32, time_of_edge);
    if (rc == PST_OK)
        rc = pst_build_array(b, PST_ARRAY_VERTEX_TIMES, PST_I32, 1, shape, &w);
    if (rc != PST_OK)
        return rc;
    for (int64_t v = 0; v < b->manifest.vertices && rc == PST_OK; v++) {
        const int32_t time = time_of_vertex(seed, v);
        rc = pst_array_write(&w, &time, sizeof time);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_ARRAY_VERTEX_TIMES, &w);
    pst_array_writer_release(&w);
    return rc;
}
