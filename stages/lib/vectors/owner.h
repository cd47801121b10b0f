/* owner.h: the owner of the embeddings of all vertices, for the stages that train them. It gathers rows for
 * batches of edges and updates rows with gradients. At an epoch's end it evaluates, reports and writes a
 * checkpoint.
 *
 * Embeddings that are larger than memory are partitioned (exchange.h). Then a batch waits until its
 * partitions are in memory, and an epoch ends when they are written.
 *
 * Owner: the stage. Threads: one. */
#ifndef PST_VECTORS_OWNER_H
#define PST_VECTORS_OWNER_H

#include "common/slots/row_batch.h"
#include "common/stage.h"
#include "common/store/store.h"
#include "stages/lib/learning/plateau.h"
#include "stages/lib/learning/schedule.h"
#include "stages/lib/parts/training.h"
#include "stages/lib/vectors/commit.h"
#include "stages/lib/vectors/evaluate.h"
#include "stages/lib/vectors/exchange.h"
#include "stages/lib/vectors/initial.h"

enum pst_vectors_schedule { PST_VECTORS_CONSTANT, PST_VECTORS_PLATEAU, PST_VECTORS_COSINE };
enum pst_vectors_consistency { PST_VECTORS_EXACT, PST_VECTORS_BOUNDED };
enum pst_vectors_when { PST_VECTORS_NEVER, PST_VECTORS_END, PST_VECTORS_EPOCHS };

struct pst_vectors_owner {
    /* parameters */
    int64_t batch, chunks, negatives, staleness, dim, threads, checkpoint_every, keep;
    int64_t partitions, buffer, ahead, checkpoint_swaps, together;
    enum pst_parts_negatives negatives_from;
    uint64_t piece;
    const char *order, *buckets, *model, *init_from;
    double scale, rate, rate_min, factor, evaluate_alpha;
    int64_t evaluate_among, eval_every;
    enum pst_vectors_schedule schedule;
    int64_t patience, cosine_epochs;
    enum pst_k_embed_optimizer optimizer;
    bool inverse, prefetch, between_exchanges;
    enum pst_vectors_consistency consistency;
    enum pst_relations_way relations_way;
    enum pst_vectors_when evaluate;
    enum pst_embed_tie tie;
    /* the rest is the owner's */
    struct pst_stage *stage;
    struct pst_embed_device *gpu; /* the caller's, if vectors.device is a GPU; both are set before `open` */
    int parts;                    /* the port by which partitions travel */
    /* The caller's, set before `size`, if slots come home before they are taken: updates the rows of a
     * partition, which leaves, with the gradients of these slots (pst_vectors_settle). NULL: none does. */
    pst_rc (*settle)(void *arg, int partition);
    void *settle_arg;
    struct pst_dataset ds;
    struct pst_vectors vectors;
    struct pst_relations_table own_relations; /* if relations are async */
    struct pst_plateau plateau; /* its state is of the end of the last epoch; a cosine uses only `scale` */
    struct pst_commit_best best;
    struct pst_vectors_initial initial;   /* of init_from */
    struct pst_vectors_exchange exchange; /* if there are several partitions */
    char *carried;              /* the slot with the relations; it waits until partitions are written */
    uint64_t slot_bytes;        /* of the largest batch */
    uint64_t first_batch;       /* of this run: after the checkpoint that it goes on from */
    bool ending, saving;        /* an epoch ends, or a commit is to be made within it */
    struct pst_embed_plan plan; /* of evaluation, and of relations that are async */
    struct pst_evaluation evaluation;
    double gather_s, update_s, commit_s, evaluate_s;
    uint64_t commits;
    double waited_s, waiting_since; /* a batch was there, but not its partitions; 0: none waits */
    uint64_t edges, nodes;
    uint64_t gathered, lent;     /* batches with edges, and those of them that are not home */
    uint64_t lacked;             /* updates, summed over gathered batches */
    int64_t training, relations; /* training: edges of an epoch, with those that are turned round */
};

/* Opens the dataset, computes sizes, and makes the array of the partitions. parts: the port, which needs
 * slots only with several partitions. o->slot_bytes gets the size of the largest batch. PST_E_ARG: the
 * parameters or the dataset do not fit. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_size(struct pst_vectors_owner *o, struct pst_stage *stage,
                                                   int parts);
/* Makes or resumes the embeddings. slot_bytes: of the slot that ends an epoch. *total gets the batches of the
 * run. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_open(struct pst_vectors_owner *o, uint64_t slot_bytes,
                                                   uint64_t *total);
/* For a run that was complete before it was resumed, once all is open: evaluates and reports the result as
 * the run itself did, or would have done. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_complete(struct pst_vectors_owner *o);
PST_API void pst_vectors_owner_close(struct pst_vectors_owner *o);

/* For owner.c: */
/* The loss of an epoch, for each end of an edge. b: the header of the slot that ended it. */
double pst_vectors_owner_loss(const struct pst_row_batch *b);
/* Reports an epoch. figures: of the evaluation, or "". */
pst_rc pst_vectors_owner_report_epoch(const struct pst_vectors_owner *s, const struct pst_row_batch *b,
                                      const char *figures);
/* Reports the result. carried: the relations and their states. ranks: of the last epoch. The test figures are
 * those of the best epoch, if epochs were evaluated. */
pst_rc pst_vectors_owner_report_result(const struct pst_vectors_owner *s, const struct pst_row_batch *b,
                                       const char *carried, const char *val, const char *test,
                                       const struct pst_embed_ranks ranks[2]);

/* Whether a batch can be gathered. Ends the epoch before it, if its partitions are written; UINT64_MAX as the
 * batch does only this. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_ready(struct pst_vectors_owner *o, uint64_t batch, bool *ready);
/* Fills a slot of `bytes` bytes with the batch of edges in `from`. *b gets the header. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_gather(struct pst_vectors_owner *o, const void *from,
                                                     uint64_t from_bytes, char *slot, uint64_t bytes,
                                                     struct pst_row_batch *b);
/* On a GPU: a batch is on the queue, which updates rows where they lie (resident.h). Then: it is home, and
 * had so many vertices. */
PST_API void pst_vectors_owner_began(struct pst_vectors_owner *o, const struct pst_row_batch *b);
PST_API PST_MUST_USE pst_rc pst_vectors_owner_ended(struct pst_vectors_owner *o, uint64_t batch,
                                                    int64_t nodes);
/* Updates rows with the gradients of a slot that is home; or the slot carries the relations. b: the header
 * that it was sent with. settled: partitions that were settled; NULL: none. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_take(struct pst_vectors_owner *o, const struct pst_row_batch *b,
                                                   const char *slot, uint64_t bytes,
                                                   const struct pst_vectors_settled *settled);
/* All batches up to this one are home. A partition can leave then, whose rows are settled first. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_home(struct pst_vectors_owner *o, uint64_t batch);
/* An event of the port of the partitions. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_part(struct pst_vectors_owner *o,
                                                   const struct pst_event *event);

/* Reports what was done, at the end of the run. */
PST_API PST_MUST_USE pst_rc pst_vectors_owner_report(const struct pst_vectors_owner *o);

/* The port of the partitions, and the parameters that every owner has. The stage's state is a struct S, and M
 * is the owner in it. The parameters of batches, of orders and of what is in flight are the stage's. */
#define PST_VECTORS_OWNER_PORT                                                                               \
    {                                                                                                        \
        .name = "parts", .dir = PST_OUT,                                                                     \
        .help = "with several partitions: pieces of them, to be written to and read from the array "         \
                "\"embeddings\" of the run",                                                                 \
        .type = "pieces", .dtype = "any", .rank = -1, .memory = "cpu,pinned",                                \
        .requests = PST_REQUESTS_MAKES, .flags = PST_PORT_RETURNS | PST_PORT_OPTIONAL                        \
    }
#define PST_VECTORS_OWNER_PARAM(S, M, name_, type_, member_, def_, ...)                                      \
    {                                                                                                        \
        .name = name_, .type = PST_PARAM_##type_, .into = PST_INTO(struct S, M.member_), .def = def_,        \
        __VA_ARGS__                                                                                          \
    }
#define PST_VECTORS_OWNER_PARAMS(S, M)                                                                       \
    PST_VECTORS_OWNER_PARAM(S, M, "dim", INT, dim, "100", .min = 1, .max = PST_ROW_BATCH_DIM_MAX,            \
                            .even_if = "model=complex|rotate",                                               \
                            .help = "floats of an embedding; of a complex one, both halves count",           \
                            .fixed = true),                                                                  \
        PST_VECTORS_OWNER_PARAM(S, M, "scale", REAL, scale, "0.001", .min = 0, .max = 1000,                  \
                                .help = "embeddings begin uniform between -scale and scale", .fixed = true), \
        PST_VECTORS_OWNER_PARAM(                                                                             \
            S, M, "optimizer", ENUM, optimizer, "\"adagrad\"", .choices = "adagrad|adagrad-row|sgd|adam",    \
            .help =                                                                                          \
                "how gradients change embeddings; adagrad-row keeps one float of state for each embedding",  \
            .fixed = true),                                                                                  \
        PST_VECTORS_OWNER_PARAM(S, M, "rate", REAL, rate, "0.1", .min = 1e-9, .max = 100,                    \
                                .help = "learning rate"),                                                    \
        PST_VECTORS_OWNER_PARAM(                                                                             \
            S, M, "schedule", ENUM, schedule, "\"constant\"", .choices = "constant|plateau|cosine",          \
            .help = "plateau: when the validation MRR (with `evaluate` epochs), or else the training loss, " \
                    "no longer improves, the rates of vertices and relations are multiplied by `factor`; "   \
                    "cosine: they fall from epoch to epoch, to rate_min",                                    \
            .fixed = true),                                                                                  \
        PST_VECTORS_OWNER_PARAM(S, M, "patience", INT, patience, "5", .max = 1000000,                        \
                                .help = "for plateau: epochs without improvement that change nothing",       \
                                .fixed = true),                                                              \
        PST_VECTORS_OWNER_PARAM(S, M, "factor", REAL, factor, "0.5", .min = 0.001, .max = 0.999,             \
                                .help = "for plateau: what the rates are multiplied by", .fixed = true),     \
        PST_VECTORS_OWNER_PARAM(                                                                             \
            S, M, "rate_min", REAL, rate_min, "1e-6", .min = 1e-12, .max = 100,                              \
            .help = "for plateau and cosine: the rate of vertices does not fall below this", .fixed = true), \
        PST_VECTORS_OWNER_PARAM(S, M, "cosine_epochs", INT, cosine_epochs, "0", .max = 1000000,              \
                                .only_if = "schedule=cosine",                                                \
                                .help = "for cosine: number of epochs after which the rate is rate_min; 0: " \
                                        "all epochs of the pipeline",                                        \
                                .fixed = true),                                                              \
        PST_VECTORS_OWNER_PARAM(S, M, "model", ENUM, model, "\"complex\"",                                   \
                                .choices = "dot|distmult|complex|transe-l1|transe-l2|rotate",                \
                                .help = "the embedder's model, which evaluation uses", .fixed = true),       \
        PST_VECTORS_OWNER_PARAM(S, M, "init_from", STRING, init_from, "\"\"",                                \
                                .help = "the directory of a run: embeddings begin as those of its newest "   \
                                        "checkpoint, and only those of new vertices as `scale` says",        \
                                .fixed = true),                                                              \
        PST_VECTORS_OWNER_PARAM(S, M, "inverse", BOOL, inverse, "true",                                      \
                                .help = "relations have a second embedding, which scores sources",           \
                                .fixed = true),                                                              \
        PST_VECTORS_OWNER_PARAM(                                                                             \
            S, M, "evaluate", ENUM, evaluate, "\"end\"", .choices = "never|end|epochs",                      \
            .help = "filtered ranks of the validation edges after the last epoch or after each, and of the " \
                    "test edges after the last; epochs: also keeps the checkpoint of the best epoch, and "   \
                    "reports its ranks of the test edges"),                                                  \
        PST_VECTORS_OWNER_PARAM(S, M, "eval_every", INT, eval_every, "1", .min = 1, .max = 1000000,          \
                                .help = "with `evaluate` epochs: epochs from one evaluation to the next; "   \
                                        "the last epoch is always evaluated"),                               \
        PST_VECTORS_OWNER_PARAM(                                                                             \
            S, M, "evaluate_among", INT, evaluate_among, "0", .max = 16777216,                               \
            .help = "rank true ends among so many sampled vertices, of which known edges are not left out; " \
                    "0: filtered ranks among all vertices"),                                                 \
        PST_VECTORS_OWNER_PARAM(S, M, "evaluate_alpha", REAL, evaluate_alpha, "0.5", .max = 1,               \
                                .help = "share of the sampled vertices that are ends of training edges, as " \
                                        "often as they have some; the others are uniform"),                  \
        PST_VECTORS_OWNER_PARAM(S, M, "tie", ENUM, tie, "\"mean\"",                                          \
                                .choices = "mean|optimistic|pessimistic",                                    \
                                .help = "the rank of a true end among equal scores"),                        \
        PST_VECTORS_OWNER_PARAM(                                                                             \
            S, M, "threads", INT, threads, "0", .max = PST_TEAM_MAX,                                         \
            .help =                                                                                          \
                "threads that gather, update and evaluate; 0: one per core that the stage may use. Results " \
                "do not depend "                                                                             \
                "on it"),                                                                                    \
        PST_VECTORS_OWNER_PARAM(S, M, "piece", BYTES, piece, "\"1MiB\"", .min = PST_PAGE, .max = 1 << 30,    \
                                .help = "with several partitions: bytes that are written and read together", \
                                .fixed = true),                                                              \
        PST_VECTORS_OWNER_PARAM(S, M, "prefetch", BOOL, prefetch, "true",                                    \
                                .help = "with several partitions: edges are trained while partitions are "   \
                                        "exchanged. Results do not depend on it"),                           \
        PST_VECTORS_OWNER_PARAM(                                                                             \
            S, M, "ahead", INT, ahead, "0", .max = PST_PARTS_MAX,                                            \
            .at_most = "partitions-buffer unless partitions=1",                                              \
            .help = "with several partitions: so many more are in memory, and read before their exchange; "  \
                    "results do not depend on it"),                                                          \
        PST_VECTORS_OWNER_PARAM(S, M, "checkpoint_every", INT, checkpoint_every, "1", .max = 1000000,        \
                                .help = "epochs between checkpoints, besides the one at the end; 0: none"),  \
        PST_VECTORS_OWNER_PARAM(S, M, "keep", INT, keep, "2", .min = 1, .max = 1000,                         \
                                .help = "how many of the latest checkpoints are kept, besides the best; "    \
                                        "with several partitions always one")

#endif
