/* graphs.h: the graphs that the kernel bench samples from, edge by edge. An edge is a pure function of its
 * number, so every run and every machine has the same graphs. tests/gpu also uses them.
 * Owner: none. Threads: any. */
#ifndef PST_GPU_GRAPHS_H
#define PST_GPU_GRAPHS_H

#include "common/util/rng.h"

/* The three kinds: each source of an edge is drawn with the same probability; R-MAT, in which a few vertices
 * have a large share of all edges (Chakrabarti, Zhan, Faloutsos, SDM 2004, with Graph500's quadrants); and a
 * star, in which vertex 0 has an edge to and from every other vertex. */
enum gpu_graph { GPU_UNIFORM, GPU_RMAT, GPU_STAR, GPU_GRAPHS };

enum {
    GPU_RMAT_A = 37356, /* 0.57 in units of 2^-16 */
    GPU_RMAT_B = 12452, /* 0.19: also that of the third quadrant */
    GPU_RMAT_BITS = 16, /* of a level */
    GPU_RMAT_WORD = 4,  /* levels of one random number */
};

/* splitmix64's finish: Steele, Lea, Flood, OOPSLA 2014 */
static inline uint64_t gpu_mixed(uint64_t x)
{
    x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* One descent through the quadrants; false: it ended outside of the graph. */
static inline bool gpu_rmat_descend(uint64_t seed, int64_t vertices, int64_t *source, int64_t *target)
{
    uint64_t row = 0, column = 0, word = 0;
    for (int level = 0; (int64_t)1 << level < vertices; level++) {
        if (level % GPU_RMAT_WORD == 0)
            word = gpu_mixed(seed + (uint64_t)level);
        const uint32_t x = (uint32_t)(word & ((1u << GPU_RMAT_BITS) - 1));
        const uint64_t lower = x >= GPU_RMAT_A + GPU_RMAT_B;
        const uint64_t right = (x >= GPU_RMAT_A) ^ lower ^ (x >= GPU_RMAT_A + 2 * GPU_RMAT_B);
        row = row << 1 | lower;
        column = column << 1 | right;
        word >>= GPU_RMAT_BITS;
    }
    *source = (int64_t)row;
    *target = (int64_t)column;
    return *source < vertices && *target < vertices;
}

/* Another name for each vertex, so that those with many edges do not lie side by side. The factor is a prime
 * above 2^31, so below that no two vertices get the same name. */
static inline int64_t gpu_renamed(int64_t v, int64_t vertices)
{
    return (int64_t)((uint64_t)v * 2654435761u % (uint64_t)vertices);
}

static inline int64_t gpu_graph_edges(enum gpu_graph kind, int64_t vertices, int64_t degree)
{
    return kind == GPU_STAR ? 2 * (vertices - 1) : vertices * degree;
}

/* Edge i of a graph of 2 to 2^31 vertices, 0 <= i < gpu_graph_edges(). degree: the mean one; a star has its
 * own. */
static inline void gpu_graph_edge(enum gpu_graph kind, int64_t vertices, int64_t degree, int64_t i,
                                  int64_t *source, int64_t *target)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_INIT, 7, 0, 0, 0);
    if (kind == GPU_UNIFORM) {
        const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)i, 0);
        *source = (int64_t)pst_rng_bounded(pst_rng_u64(&draw, 0), (uint64_t)vertices);
        *target = i / degree;
    } else if (kind == GPU_STAR) {
        const bool out = i < vertices - 1;
        *source = out ? 0 : i - (vertices - 1) + 1;
        *target = out ? i + 1 : 0;
    } else {
        uint64_t seed = gpu_mixed((uint64_t)i); /* at least 0.57 of all descents end inside */
        while (!gpu_rmat_descend(seed, vertices, source, target))
            seed = gpu_mixed(seed);
        *source = gpu_renamed(*source, vertices);
        *target = gpu_renamed(*target, vertices);
    }
}

#endif
