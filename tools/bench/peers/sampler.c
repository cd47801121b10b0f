/* sampler.c: what the peer in plain PyTorch needs beside PyTorch, so that its Python is not what is measured:
 * uniform neighbour sampling without replacement, the transpose of a hop, and the gathering of mapped rows.
 * programs/blocks.py calls it with ctypes, which lets other threads of Python run meanwhile. */
#include <string.h>

#include "common/base.h"

#define FANOUT_MAX 64 /* programs/blocks.py refuses more */

/* One hop of a batch as a sparse matrix: row r has the sampled neighbours of vertex r, as positions in the
 * batch, and 1 / their number as weights. The caller owns the arrays: `ptr` has a place for each row and one
 * more, `col` and `weight` have one for each edge that the fanout allows. */
struct hop {
    int64_t *ptr, *col;
    float *weight;
};

PST_API void pst_peers_sample(const int64_t *indptr, const int32_t *indices, const int64_t *seeds,
                              int64_t n_seeds, const int64_t *fanouts, int64_t hops, int32_t *place,
                              uint64_t *state, int64_t *vertices, struct hop *out, int64_t *rows,
                              int64_t *edges);
PST_API void pst_peers_transpose(const int64_t *ptr, const int64_t *col, const float *weight, int64_t rows,
                                 int64_t columns, int64_t *tptr, int64_t *tcol, float *tweight);
PST_API void pst_peers_gather(const char *table, int64_t stride_bytes, int64_t row_bytes, const int64_t *ids,
                              int64_t begin, int64_t end, char *out);

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)(((next(state) >> 32) * (uint64_t)n) >> 32);
}

struct batch {
    int32_t *place; /* of each vertex of the graph: its position in the batch, or -1 */
    int64_t *vertices, n;
};

static int64_t position(struct batch *b, int32_t vertex)
{
    if (b->place[vertex] < 0) {
        b->place[vertex] = (int32_t)b->n;
        b->vertices[b->n++] = vertex;
    }
    return b->place[vertex];
}

/* Positions of `fanout` different entries of a list (Floyd's algorithm), or of all if it has no more. */
static int64_t draw(const int32_t *list, int64_t length, int64_t fanout, uint64_t *state, struct batch *b,
                    int64_t *col)
{
    if (length <= fanout) {
        for (int64_t i = 0; i < length; i++)
            col[i] = position(b, list[i]);
        return length;
    }
    int64_t chosen[FANOUT_MAX];
    for (int64_t i = 0; i < fanout; i++) {
        const int64_t last = length - fanout + i;
        int64_t t = below(state, last + 1);
        for (int64_t j = 0; j < i; j++)
            if (chosen[j] == t) {
                t = last;
                break;
            }
        chosen[i] = t;
        col[i] = position(b, list[t]);
    }
    return fanout;
}

/* Samples a batch. Every hop draws for all vertices that were found so far, seeds included, as Penstock and
 * DGL do. `vertices` gets the vertices of the batch, seeds first; `rows[h]` is how many of them hop h draws
 * for, `edges[h]` how many edges it has, and `rows[hops]` is the number of all vertices. `place` has -1 for
 * each vertex of the graph, before and after. The lists of the graph are read from indptr and indices (CSC),
 * whose vertices are 32 bits wide. No errors: the caller has checked sizes. */
void pst_peers_sample(const int64_t *indptr, const int32_t *indices, const int64_t *seeds, int64_t n_seeds,
                      const int64_t *fanouts, int64_t hops, int32_t *place, uint64_t *state,
                      int64_t *vertices, struct hop *out, int64_t *rows, int64_t *edges)
{
    struct batch b = {.place = place, .vertices = vertices};
    for (int64_t i = 0; i < n_seeds; i++)
        (void)position(&b, (int32_t)seeds[i]);
    for (int64_t h = 0; h < hops; h++) {
        int64_t e = 0;
        rows[h] = b.n;
        out[h].ptr[0] = 0;
        for (int64_t r = 0; r < rows[h]; r++) {
            const int64_t begin = indptr[vertices[r]], length = indptr[vertices[r] + 1] - begin;
            const int64_t n = draw(indices + begin, length, fanouts[h], state, &b, out[h].col + e);
            for (int64_t i = 0; i < n; i++)
                out[h].weight[e + i] = 1.0f / (float)n;
            out[h].ptr[r + 1] = e += n;
        }
        edges[h] = e;
    }
    rows[hops] = b.n;
    for (int64_t i = 0; i < b.n; i++)
        place[vertices[i]] = -1;
}

/* The transpose of a hop with `rows` rows and `columns` columns. The caller owns tptr (columns + 1), tcol and
 * tweight (one for each edge). */
void pst_peers_transpose(const int64_t *ptr, const int64_t *col, const float *weight, int64_t rows,
                         int64_t columns, int64_t *tptr, int64_t *tcol, float *tweight)
{
    memset(tptr, 0, (size_t)(columns + 1) * sizeof *tptr);
    for (int64_t e = 0; e < ptr[rows]; e++)
        tptr[col[e] + 1]++;
    for (int64_t c = 0; c < columns; c++)
        tptr[c + 1] += tptr[c];
    /* tptr[c] moves through column c, to where column c + 1 begins */
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = ptr[r]; e < ptr[r + 1]; e++) {
            const int64_t at = tptr[col[e]]++;
            tcol[at] = r;
            tweight[at] = weight[e];
        }
    memmove(tptr + 1, tptr, (size_t)columns * sizeof *tptr);
    tptr[0] = 0;
}

/* Copies the rows ids[begin] to ids[end - 1] of a table to `out`, which has a row for each id. Several
 * threads may work on parts of one list: each page fault of a mapped table then waits beside others. */
void pst_peers_gather(const char *table, int64_t stride_bytes, int64_t row_bytes, const int64_t *ids,
                      int64_t begin, int64_t end, char *out)
{
    for (int64_t i = begin; i < end; i++)
        memcpy(out + i * row_bytes, table + ids[i] * stride_bytes, (size_t)row_bytes);
}
