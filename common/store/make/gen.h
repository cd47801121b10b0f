/* gen.h: synthetic datasets, a function of their parameters and seed alone, on any machine.
 * Owner: the caller owns the specs. Threads: one call per builder. */
#ifndef PST_GEN_H
#define PST_GEN_H

#include "common/store/build/build.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

#define PST_GEN_DIM_MAX 65536 /* a row is made in memory */

/* A power-law graph with planted communities: degree-corrected stochastic blocks (Karrer and Newman 2011)
 * with Chung-Lu weights. A vertex's label is its community; its features are its class's direction, a
 * unit vector, plus normal noise. */
struct pst_community_spec {
    char name[PST_NAME_MAX];
    int64_t vertices, classes, feature_dim;
    double degree;     /* average, before duplicate edges are merged */
    double homophily;  /* fraction of edges within a community */
    double exponent;   /* of the degree distribution; > 2 */
    double noise;      /* standard deviation in each feature; the class direction has length 1 */
    double train, val; /* fractions of the vertices; the rest is test */
    uint64_t seed;
    uint64_t stride_bytes; /* 0: pst_stride_for */
    uint64_t memory_bytes;
};
PST_API void pst_community_defaults(struct pst_community_spec *spec);
PST_API PST_MUST_USE pst_rc pst_gen_community(const struct pst_community_spec *spec, struct pst_build *b,
                                              struct pst_progress *progress);

/* R-MAT (Chakrabarti, Zhan and Faloutsos, SDM 2004) over any number of vertices: edges that fall outside
 * are drawn again. Labels and features are random: there is nothing to learn. */
struct pst_rmat_spec {
    char name[PST_NAME_MAX];
    int64_t vertices, edges, classes, feature_dim;
    double a, b, c, d; /* of the quadrants; sum 1 */
    bool symmetrize, dedupe;
    bool keep_ids; /* false: ids are shuffled, else low ids are the hubs */
    int64_t train_count, val_count, test_count;
    uint64_t seed;
    uint64_t stride_bytes;
    uint64_t memory_bytes;
};
PST_API void pst_rmat_defaults(struct pst_rmat_spec *spec);
PST_API PST_MUST_USE pst_rc pst_gen_rmat(const struct pst_rmat_spec *spec, struct pst_build *b,
                                         struct pst_progress *progress);

/* Papers, half as many authors, and venues, which have no features. A paper's label is its community, as an
 * author's community is. Papers get edges from authors and papers of their own community (writes, extends),
 * and as many from those of another community, which is random for each paper (reviews, disputes). So a model
 * that does not tell the relations apart sees two communities in each neighbourhood. Features are as those of
 * pst_gen_community; authors have theirs. */
struct pst_gen_typed_spec {
    char name[PST_NAME_MAX];
    int64_t vertices; /* papers */
    int64_t classes, feature_dim, author_dim;
    double degree;    /* edges of a paper in each of the four relations, before duplicates are merged */
    double homophily; /* fraction of edges that come from the community of the relation */
    double noise, train, val;
    uint64_t seed;
    uint64_t stride_bytes;
    uint64_t memory_bytes;
};
PST_API void pst_gen_typed_defaults(struct pst_gen_typed_spec *spec);
PST_API PST_MUST_USE pst_rc pst_gen_typed(const struct pst_gen_typed_spec *spec, struct pst_build *b,
                                          struct pst_progress *progress);

/* Weights of edges, after the topology: exponential random numbers, which depend on (seed, source, target).
 * They are above 0. */
PST_API PST_MUST_USE pst_rc pst_gen_edge_weights(struct pst_build *b, uint64_t seed);

/* Times of vertices, uniform from 0 to PST_GEN_TIMES - 1, and of edges, after the topology: an edge has the
 * later time of its two ends. */
#define PST_GEN_TIMES 1000000
PST_API PST_MUST_USE pst_rc pst_gen_times(struct pst_build *b, uint64_t seed);

PST_END_DECLS
#endif
