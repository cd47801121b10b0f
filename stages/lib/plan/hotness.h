/* hotness.h: how often a batch needs a vertex, which decides what is worth caching. Scores are float32, (hops
 * + 1) x vertices: row h < hops has H_T(v, h), the expected number of batches of an epoch that read v's list
 * of in-neighbours in hop h; row `hops` has H_F(v), the batches that need v's feature row.
 *
 * The names H_T and H_F are those of Hyperion, section III-B1. The paper counts them by pre-sampling.
 * pst_hotness_analytic computes their expectation instead, with one sequential pass over the edges a hop. Let
 * p_h(v) be the probability that v is in a batch before hop h:
 *
 *     p_0(v)     = 1 / batches for a vertex of the split, 0 for others
 *     p_{h+1}(u) = 1 - (1 - p_0(u)) * product over all v with u in N(v) of (1 - r_h(v))
 *     r_h(v)     = sum over j = 0..h of (p_j(v) - p_{j-1}(v)) * (1 - product over i = j..h of (1 - q_i(v)))
 *
 * where p_{-1} = 0, N(v) is v's list, and q_i(v) is the probability that what hop i draws from N(v) contains
 * a given neighbour. r_h(v) is the probability that v, which draws anew in each hop from the one in which it
 * comes into the batch, draws a given neighbour by hop h. Then H_T(v, h) = batches * p_h(v), 0 if hop h draws
 * nothing, and H_F(v) = batches * p_hops(v). The formula takes the factors as independent. A neighbour that
 * is several times in a list gets one factor for all, and a self-loop gets none.
 *
 * Owner: the caller owns the scores. Threads: any; the functions have no state. */
#ifndef PST_HOTNESS_H
#define PST_HOTNESS_H

#include "common/slots/minibatch.h"
#include "kernels/kernels.h"

PST_BEGIN_DECLS

struct pst_array;

/* Where scores come from. AUTO: analytic if the sampling algorithm has a formula, otherwise pre-sampling. */
enum pst_hotness_source {
    PST_HOTNESS_AUTO,
    PST_HOTNESS_ANALYTIC,
    PST_HOTNESS_PRESAMPLE,
    PST_HOTNESS_FILE,
    PST_HOTNESS_ORACLE,
    PST_HOTNESS_PAGERANK,
    PST_HOTNESS_DEGREE,
    PST_HOTNESS_RANDOM
};
#define PST_HOTNESS_CHOICES                                                                                  \
    "auto|analytic|presample|file|oracle|pagerank|degree|random" /* in the order of the enum */
PST_API const char *pst_hotness_source_name(enum pst_hotness_source source);

#define PST_HOTNESS_ID_BYTES 17 /* 16 hexadecimal digits */

struct pst_hotness_input {
    const struct pst_csc *graph;
    const struct pst_array *file; /* graph->indices is not read, but this file of them, by direct reads of 4
                                     MiB in their order; NULL: graph->indices is read */
    const int64_t *seeds;         /* the vertices of the split, each once */
    int64_t nseeds;
    uint64_t batches; /* of an epoch */
    int hops;
    const int64_t *fanout; /* one number a hop; -1: all neighbours, 0: none */
    /* The probability that a draw of `fanout` (not 0) of the `degree` entries of a list has one of `copies`
     * (1 to degree) given ones. */
    double (*keep)(const void *state, int64_t degree, int64_t copies, int64_t fanout);
    const void *state;
    uint64_t memory_bytes; /* for sums, besides the scores. With less memory, a hop takes more passes */
    int threads;           /* that compute an expectation, 1 to PST_TEAM_MAX */
};

/* Computes the expectation. The scores do not depend on memory_bytes or threads. PST_E_FORMAT: the topology
 * is damaged; the message names the vertex. PST_E_IO: the file cannot be read. PST_E_ARG: `keep` returned
 * something that is not a probability. PST_E_NOMEM.
 */
PST_API PST_MUST_USE pst_rc pst_hotness_analytic(const struct pst_hotness_input *in, float *scores);

/* Scores from the graph alone; all rows are equal.
 *
 * PAGERANK: GIDS (Park et al., VLDB 2024, section 3.3) names reverse page rank, and gives no formula. Here
 *
 *     r(u) = (1 - d) t(u) + d * sum over v with u in N(v) of r(v) / deg v
 *
 * with d = 0.85, and t = 1 / |seeds| for seeds, 0 for others. The r of vertices without in-neighbours goes to
 * t. It is repeated until the sum of the absolute changes is below 1e-6. DEGREE: in how many lists a vertex
 * is. RANDOM: uniform numbers, keyed by `seed`. PST_E_FORMAT, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_hotness_of_structure(enum pst_hotness_source source,
                                                     const struct pst_hotness_input *in, uint64_t seed,
                                                     float *scores);

/* Scales a row of scores, so that their sum is `total`; none becomes larger than `most`. A row of zeros
 * stays. The planner does so with the mean number of vertices of the batches that it sampled: neighbours that
 * come together make the formula a few percent high, where a graph has communities. */
PST_API void pst_hotness_scale(float *row, int64_t vertices, double total, double most);

/* Reads scores from an .npy file of shape (hops + 1, vertices), or of shape (vertices,), whose scores are
 * then those of all rows. Any dtype of integers, float32 or float64. id gets the checksum of the data.
 * PST_E_ARG: the file does not fit or has a score that is negative or not finite; the message says which and
 * where. */
PST_API PST_MUST_USE pst_rc pst_hotness_read(const char *path, int hops, int64_t vertices, float *scores,
                                             char id[PST_HOTNESS_ID_BYTES]);

/* The expected share of hits: the sum of the cached vertices' scores over the sum of all. 0 if all are 0. */
PST_API double pst_hotness_hit_rate(const float *scores, int64_t vertices, const int64_t *cache,
                                    int64_t cached);

/* Counts of batches become scores for one epoch, in place, and scores become counts again. n: of the array.
 * epochs: that were counted; each count is less than 2^23, so it is the integer nearest to its score. */
PST_API float *pst_hotness_of_counts(uint32_t *counts, int64_t n, int64_t epochs);
PST_API uint32_t *pst_hotness_to_counts(float *scores, int64_t n, int64_t epochs);

PST_END_DECLS
#endif
