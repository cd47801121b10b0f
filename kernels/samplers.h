/* samplers.h: the kernels that sample in-neighbours other than uniformly (pst_k_sample of kernels.h). All
 * random numbers depend on streams and ids alone, so a sample does not depend on threads, device or
 * timing. The twins agree to the last bit: normal.h has the functions that they share.
 *
 * Weights of edges have any scale; pst_k_edge_shares makes those of a destination sum to 1. Kernels, owner
 * and threads: kernels.h. */
#ifndef PST_SAMPLERS_H
#define PST_SAMPLERS_H

#include "common/util/rng.h"
#include "kernels/kernels.h"

PST_BEGIN_DECLS

/* weight[e] is divided by the sum over the edges of its destination, indptr[d]..indptr[d+1]. Sums are in
 * double precision, in the order of the edges. If the sum is 0 or not finite, the edges get equal shares. */
PST_API void pst_k_edge_shares(struct pst_queue *q, const int32_t *indptr, int64_t dsts, float *weight);

/* The rank of a vertex: a uniform random number r_u in (0, 1), the same for all lists that u is in
 * (LABOR: Balin & Catalyurek, "Layer-neighbor sampling", NeurIPS 2023). It comes from stream[0]. If `mixed`,
 * r_u = Phi(near n_0(u) + far n_1(u)), with standard normals n from both streams, near = cos(pi c / 2) and
 * far = sin(pi c / 2). As c goes from 0 to 1, ranks go over from those of one stream to those of the other.
 */
struct pst_k_ranks {
    struct pst_rng_stream stream[2];
    bool mixed;
    double near, far;
};

/* Keeps the min(fanout, degree) entries with the smallest ranks of each list, in the order of the list.
 * Between equal ranks, as of entries with the same vertex, the first entries win. -1: all. indptr, out,
 * capacity and errors: pst_k_sample. */
PST_API pst_rc pst_k_sample_ranked(struct pst_queue *q, const struct pst_csc *graph,
                                   const struct pst_k_ranks *ranks, const int64_t *vertices, int64_t n,
                                   int fanout, int32_t *indptr, int64_t *out, int64_t capacity);

/* LABOR with importance. Let pi(u) = 1. c_v solves: the sum over the entries u of v's list of 1 / min(1, c_v
 * pi(u)) is degree^2 / fanout (if degree <= fanout, c_v is the smallest for which all c_v pi(u) are at least
 * 1). Then pi(u) becomes pi(u) times the largest c_v of the vertices whose lists have u; `iterations` times.
 * The entries with r_u < min(1, c_v pi(u)) are kept, and their weights are 1 / min(1, c_v pi(u)): for each v,
 * the expectation of the weighted sum of rows is the sum over the whole list. fanout: at least 1. The
 * expected number of neighbours is at least that of pst_k_sample_ranked. vertices: each once. scratch:
 * pst_k_scratch_words (vertices of the graph) words, all 0; the call leaves them 0, also if it fails. */
PST_API pst_rc pst_k_sample_labor(struct pst_queue *q, const struct pst_csc *graph,
                                  const struct pst_k_ranks *ranks, int iterations, const int64_t *vertices,
                                  int64_t n, int fanout, uint64_t *scratch, int32_t *indptr, int64_t *out,
                                  float *weight, int64_t capacity);
static inline int64_t pst_k_scratch_words(int64_t vertices)
{
    return 3 * vertices;
}

/* Layer-dependent importance sampling (LADIES: Zou et al., NeurIPS 2019, algorithm 1; without replacement, as
 * GIDS uses it, 4.7). With P_vu = 1 / degree(v) for each entry u of v's list, pi(u) is the sum of P_vu^2 over
 * all entries. The `size` vertices with the largest log(U_u) / pi(u) are drawn, where U_u is uniform in (0,
 * 1): a draw of `size` different vertices, one after the other, each with probability proportional to pi. The
 * entries that are drawn vertices become edges, with weights P_vu / pi(u). A vertex gets no edges if none of
 * its neighbours is drawn. pi is a whole multiple of a small unit, so that its sum does not depend on the
 * order. indptr, out, capacity and errors: pst_k_sample. scratch: as above. */
PST_API pst_rc pst_k_sample_ladies(struct pst_queue *q, const struct pst_csc *graph,
                                   const struct pst_rng_stream *stream, int64_t size, const int64_t *vertices,
                                   int64_t n, uint64_t *scratch, int32_t *indptr, int64_t *out, float *weight,
                                   int64_t capacity);

/* Weighted sampling without replacement (Efraimidis & Spirakis, "Weighted random sampling with a reservoir",
 * IPL 97(5), 2006): one after the other, fanout entries are drawn, each with a probability proportional to
 * its weight among the entries that are left. The entries with the smallest -log(U) / w are drawn; U depends
 * on (stream, vertex, position in the list). Entries of weight 0 are never drawn. -1, or a fanout of at least
 * the number of the other entries: all of these. edge_weight[e] is that of graph->indices[e]. weight, if not
 * NULL, gets 1 / (1 - exp(-w t)), where t is the smallest number of the entries that are not drawn (1 if all
 * are): then the expectation of the weighted sum of rows is the sum over all entries that can be drawn (Cohen
 * & Kaplan, "Summarizing data using bottom-k sketches", PODC 2007). indptr, out, capacity and errors:
 * pst_k_sample. PST_E_FORMAT: also an edge weight that is negative or not finite. */
struct pst_k_weighted_edges {
    const float *edge_weight;
    struct pst_rng_stream stream;
};
PST_API pst_rc pst_k_sample_weighted(struct pst_queue *q, const struct pst_csc *graph,
                                     const struct pst_k_weighted_edges *edges, const int64_t *vertices,
                                     int64_t n, int fanout, int32_t *indptr, int64_t *out, float *weight,
                                     int64_t capacity);

/* Uniform sampling within each relation (type of edges): a vertex gets fanout[r] in-neighbours of relation r.
 * -1: all of them, 0: none. What is drawn of a vertex's k entries of relation r is what pst_k_pick draws for
 * the vertex v * relations + r of degree k, so a graph with one relation gets the sample of pst_k_sample. */
#define PST_K_RELATIONS_MAX 1024
#define PST_K_PARTITION_WORDS 4 /* 64 partitions each */
struct pst_k_typed {
    const int32_t *relation; /* of each entry of the graph's lists; NULL: there is one relation */
    const int32_t *fanout;   /* (relations), each at most PST_FANOUT_MAX; where the queue computes */
    int relations;           /* 1..PST_K_RELATIONS_MAX */
    bool replace;
    /* time: of each entry of the lists; until: of each vertex of the call. An entry whose time is later than
     * that of the vertex is not there. NULL: both. */
    const int32_t *time, *until;
    /* The partition of each vertex of the graph, and one bit for each partition that is resident. An entry
     * whose vertex is in another partition is not there. NULL: all are there. */
    const uint8_t *partition;
    uint64_t resident[PST_K_PARTITION_WORDS];
};
/* Words of scratch memory, where `most` is the sum of the fanouts above 0. */
static inline int64_t pst_k_typed_words(int relations, int64_t most)
{
    return 6 * (int64_t)relations + most;
}
static PST_HD bool pst_k_is_resident(const struct pst_k_typed *how, int64_t vertex)
{
    const unsigned p = how->partition[vertex];
    const uint64_t *r = how->resident;
    const uint64_t word = p < 64 ? r[0] : p < 128 ? r[1] : p < 192 ? r[2] : r[3]; /* in registers */
    return (word >> p % 64 & 1) != 0;
}
/* The edges of a vertex come relation by relation; relation, if not NULL, gets the relation of each. scratch:
 * the words above; CUDA ignores it. indptr, out, capacity and errors: pst_k_sample. PST_E_FORMAT: also a
 * relation that does not exist. */
PST_API pst_rc pst_k_sample_typed(struct pst_queue *q, const struct pst_csc *graph,
                                  const struct pst_k_typed *how, const struct pst_sample_key *key,
                                  const int64_t *vertices, int64_t n, int64_t *scratch, int32_t *indptr,
                                  int64_t *out, int32_t *relation, int64_t capacity);

/* Weighted sampling within each relation: of the entries of relation r, as many as how->fanout[r] are drawn
 * as pst_k_sample_weighted draws from a list of the same positions, in which all other entries have weight 0.
 * So a graph with one relation gets the sample of pst_k_sample_weighted. The edges of a vertex come relation
 * by relation, and `weight` is as there, within the relation. Of how, only relation, fanout and relations are
 * used. scratch: the words below; CUDA ignores it. The rest is that of pst_k_sample_typed and
 * pst_k_sample_weighted.
 */
static inline int64_t pst_k_weighted_typed_words(int relations, int64_t most)
{
    return 5 * (int64_t)relations + 2 * most;
}
PST_API pst_rc pst_k_sample_weighted_typed(struct pst_queue *q, const struct pst_csc *graph,
                                           const struct pst_k_weighted_edges *edges,
                                           const struct pst_k_typed *how, const int64_t *vertices, int64_t n,
                                           int64_t *scratch, int32_t *indptr, int64_t *out, float *weight,
                                           int32_t *relation, int64_t capacity);

/* Temporal sampling: a vertex gets in-neighbours by edges that are not later than the seeds for which it was
 * drawn. A seed's limit is its own time. The limit of another vertex is the earliest of those of the vertices
 * that drew it, so that no path of edges leads from an edge to a seed that is earlier. The hops of a batch
 * follow each other, with the same table and the same number of the batch. */
struct pst_k_limits {
    const int32_t *vertex_time; /* (vertices of the graph); each is at least 0 */
    uint64_t *table;            /* (vertices of the graph); 0 before the first batch */
    uint32_t batch;             /* above 0; higher with each batch */
    bool first;                 /* the first hop of the batch: the vertices are seeds */
};
/* until(n) gets the limit of each vertex. how->until is not used; how->time is not NULL. The rest is that of
 * pst_k_sample_typed. */
PST_API pst_rc pst_k_sample_temporal(struct pst_queue *q, const struct pst_csc *graph,
                                     const struct pst_k_typed *how, const struct pst_k_limits *limits,
                                     const struct pst_sample_key *key, const int64_t *vertices, int64_t n,
                                     int32_t *until, int64_t *scratch, int32_t *indptr, int64_t *out,
                                     int64_t capacity);

/* An entry of the table: a later batch, or an earlier limit of the same batch, is larger. */
static PST_HD uint64_t pst_k_limit_entry(uint32_t batch, int32_t until)
{
    return (uint64_t)batch << 32 | (uint32_t)((int64_t)INT32_MAX - until);
}
/* The limit that an entry has in a batch; -1: none, so that no edge is early enough. */
static PST_HD int32_t pst_k_limit_of(uint64_t entry, uint32_t batch)
{
    return entry >> 32 == batch ? (int32_t)((int64_t)INT32_MAX - (int64_t)(uint32_t)entry) : -1;
}

PST_END_DECLS
#endif
