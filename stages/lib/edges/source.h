/* source.h: batches of a dataset's training edges, in a new order every epoch, with negatives (common/slots/
 * edge_batch.h). A batch depends only on the seed, its number and the parameters, so every run makes the same
 * one. Marius (Mohoney et al., OSDI 2021), sections 3 and 5.1. If embeddings are partitioned, groups.h says
 * which edges a batch has.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_EDGES_SOURCE_H
#define PST_EDGES_SOURCE_H

#include "common/slots/edge_batch.h"
#include "common/store/store.h"
#include "stages/lib/edges/groups.h"
#include "stages/lib/edges/queries.h"

struct pst_edges_source {
    /* parameters */
    int64_t batch, chunks, negatives, staleness, together;
    int64_t partitions, buffer, checkpoint_swaps;
    uint64_t sort_memory;
    const char *sequence, *buckets; /* a kind of order; a file, or "": RUN/buckets.safetensors */
    double alpha;
    enum pst_parts_negatives negatives_from;
    bool shuffle, between_exchanges;
    /* of the run */
    const char *dataset_dir, *run_dir;
    uint64_t seed;
    int64_t epochs;
    bool no_negatives; /* the caller draws them: pst_edges_source_fill leaves their room alone */
    /* the rest is the source's */
    struct pst_edges_groups groups; /* if there are several partitions */
    struct pst_dataset ds;
    const struct pst_array *array; /* of edges: (n, 3) with relations, or (n, 2) */
    int64_t n, relations;          /* n: edges of an epoch, with those that are turned round */
    uint64_t full;                 /* of one partition: batches of an epoch that have edges */
    uint64_t batches;              /* of one partition: all batches of an epoch */
    uint32_t drawn;                /* negatives of a chunk that are ends of the batch's edges */
    int64_t *order, epoch;         /* of the edges in `epoch`; -1: none yet. A turned one: shape[0] + edge */
    struct pst_edges_queries queries; /* if edges of the same query come together */
};

/* Opens the dataset, sorts the edges into buckets if it must, and limits `batch` to the number of edges.
 * *bytes gets the size of the largest batch. PST_E_ARG: the dataset has no edges to train on, or too many
 * negatives are asked for. */
PST_API PST_MUST_USE pst_rc pst_edges_source_size(struct pst_edges_source *s, uint64_t *bytes);
/* Makes it ready to fill batches. *total gets the number of the run's batches. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_edges_source_open(struct pst_edges_source *s, uint64_t *total);
PST_API void pst_edges_source_close(struct pst_edges_source *s);

/* Fills a slot with a batch, counted over the run. Returns its header, which is in the slot, too. */
PST_API struct pst_edge_batch pst_edges_source_fill(struct pst_edges_source *s, uint64_t batch, char *slot);

/* The parameters of a stage whose state is a struct S with the source M, but for `staleness`. */
#define PST_EDGES_SOURCE_PARAM(S, M, name_, type_, member_, def_, ...)                                       \
    {                                                                                                        \
        .name = name_, .type = PST_PARAM_##type_, .into = PST_INTO(struct S, M.member_), .def = def_,        \
        .fixed = true, __VA_ARGS__                                                                           \
    }
#define PST_EDGES_SOURCE_PARAMS(S, M)                                                                        \
    PST_EDGES_SOURCE_PARAM(S, M, "batch", INT, batch, "10000", .min = 1, .max = PST_EDGE_BATCH_EDGES_MAX,    \
                           .help = "edges of a batch; the last batch of an epoch can have fewer"),           \
        PST_EDGES_SOURCE_PARAM(S, M, "chunks", INT, chunks, "10", .min = 1, .max = 65536,                    \
                               .help = "chunks of a batch; the edges of a chunk share their negatives"),     \
        PST_EDGES_SOURCE_PARAM(                                                                              \
            S, M, "negatives", INT, negatives, "1000", .min = 1, .max = PST_EDGE_BATCH_NEGATIVES_MAX,        \
            .help = "vertices of each chunk that replace sources, and as many that replace destinations"),   \
        PST_EDGES_SOURCE_PARAM(                                                                              \
            S, M, "negatives_from", ENUM, negatives_from, "\"sampled\"",                                     \
            .choices = PST_PARTS_NEGATIVES_FROM,                                                             \
            .help = "sampled; or all: every vertex in memory is a negative of every edge, and `chunks`, "    \
                    "`negatives` and `alpha` have no effect"),                                               \
        PST_EDGES_SOURCE_PARAM(                                                                              \
            S, M, "alpha", REAL, alpha, "0.5", .max = 1,                                                     \
            .help =                                                                                          \
                "share of the negatives that are ends of random edges of the batch; the others are uniform " \
                "over all vertices"),                                                                        \
        PST_EDGES_SOURCE_PARAM(S, M, "partitions", INT, partitions, "1", .min = 1, .max = PST_PARTS_MAX,     \
                               .help = "partitions of the vertices; 1: all embeddings are in memory"),       \
        PST_EDGES_SOURCE_PARAM(S, M, "buffer", INT, buffer, "2", .min = 2, .max = PST_PARTS_MAX,             \
                               .below = "partitions",                                                        \
                               .help = "with several partitions: how many of them are in memory"),           \
        PST_EDGES_SOURCE_PARAM(                                                                              \
            S, M, "order", ENUM, sequence, "\"beta\"", .choices = PST_PARTS_ORDERS,                          \
            .choice_if = PST_PARTS_ORDER_IF,                                                                 \
            .help =                                                                                          \
                "with several partitions: the order in which they pass through memory (penstock order)"),    \
        PST_EDGES_SOURCE_PARAM(                                                                              \
            S, M, "buckets", STRING, buckets, "\"\"",                                                        \
            .help =                                                                                          \
                "with several partitions: a file that `penstock partition` made; empty: the run sorts the "  \
                "edges itself"),                                                                             \
        PST_EDGES_SOURCE_PARAM(                                                                              \
            S, M, "checkpoint_swaps", INT, checkpoint_swaps, "0", .max = 1000000,                            \
            .help =                                                                                          \
                "with several partitions: exchanges of partitions from one checkpoint within an epoch to "   \
                "the next; 0: checkpoints are only at the ends of epochs. Results depend on it"),            \
        PST_EDGES_SOURCE_PARAM(                                                                              \
            S, M, "between_exchanges", BOOL, between_exchanges, "false",                                     \
            .help =                                                                                          \
                "with several partitions: no edges are trained while partitions are exchanged, so all "      \
                "negatives are drawn from a full buffer; with `ahead`, exchanges overlap with training all " \
                "the same. Results depend on it"),                                                           \
        PST_EDGES_SOURCE_PARAM(S, M, "sort_memory", BYTES, sort_memory, "\"256MiB\"", .min = 1 << 20,        \
                               .max = 1e15, .help = "with several partitions: memory to sort the edges"),    \
        PST_EDGES_SOURCE_PARAM(S, M, "shuffle", BOOL, shuffle, "true",                                       \
                               .help = "a new order of the edges in every epoch")

#endif
