/* relations.h: the embeddings of relations, and the training of a batch: the loss, the gradients of the
 * vertices' rows (stages/lib/embed), and the update of the relations, which changes them with each batch.
 * Marius (Mohoney et al., OSDI 2021), section 3. If relations are async, a batch brings their rows, and takes
 * their gradients home.
 *
 * Owner: the stage that computes. Threads: one calls these functions; the workspace has its own threads. */
#ifndef PST_RELATIONS_H
#define PST_RELATIONS_H

#include "common/slots/row_batch.h"
#include "stages/lib/embed/embed_gpu.h"
#include "stages/lib/vectors/relations_table.h"

struct pst_relations {
    /* parameters */
    const char *model, *init_from; /* init_from: a run's directory, or "" */
    int64_t dim, threads;
    double scale, rate, margin, temperature, n3, l2, dropout;
    bool fused, tf32;
    bool inverse;
    enum pst_k_embed_loss loss;
    enum pst_k_embed_optimizer optimizer;
    enum pst_relations_way way;
    /* the rest is private, but for the counts */
    struct pst_embed_plan plan;
    struct pst_device *device;             /* the stage's */
    struct pst_embed_workspace *workspace; /* on a CPU */
    struct {
        struct pst_embed_device step;
        pst_real *row, *grads; /* row: with the state, as in `table`, whose own are then old */
        uint32_t *touched;
        char *slot;                   /* a copy of the slot's arrays, at the slot's offsets */
    } on;                             /* a GPU: device memory */
    struct pst_relations_table table; /* async: only the rows that the batch brought count */
    pst_real *grads;                  /* of all rows, like the next; on a CPU */
    uint32_t *touched;
    uint64_t updates;
    struct {
        double loss, begin; /* begin: when its first batch came; 0: none yet */
        uint64_t edges;
    } epoch; /* so far */
    double train_s;
    uint64_t edges;
};

/* Plans the computation. relations: of the dataset. PST_E_ARG: the parameters do not fit each other. */
PST_API PST_MUST_USE pst_rc pst_relations_plan(struct pst_relations *e, int64_t relations, uint64_t seed);
/* Bytes that a slot needs to carry the relations home, unless they are async. */
PST_API uint64_t pst_relations_slot_bytes(const struct pst_relations *e);
/* Makes them, or reads them from a checkpoint (NULL: none) or from the run init_from. device: that of the
 * stage; it gets a queue. slot_bytes: of the slots; 0: there are none. PST_E_NOMEM, PST_E_FORMAT. */
PST_API PST_MUST_USE pst_rc pst_relations_open(struct pst_relations *e, const char *checkpoint,
                                               struct pst_device *device, uint64_t slot_bytes);
PST_API void pst_relations_close(struct pst_relations *e);

/* Trains the batch in a slot: its gradients are written to the slot. b: its header, which pst_row_batch_read
 * has checked. If it carries the relations (pst_row_batch_carries), the slot gets them. *used gets the bytes
 * of the slot that matter to its owner; 0: as many as before. PST_E_ARG: training has diverged. */
PST_API PST_MUST_USE pst_rc pst_relations_train(struct pst_relations *e, const struct pst_row_batch *b,
                                                char *slot, uint64_t *used);

/* On a GPU, for a stage that has no slots: puts a batch on the queue, whose vertices and edges are the
 * device's (embed_gpu.h); the relations are added here, and updated. b has the header. */
PST_API PST_MUST_USE pst_rc pst_relations_begin(struct pst_relations *e, const struct pst_row_batch *b,
                                                struct pst_embed_batch *batch, uint32_t *node_list);
/* Waits for the batch, to which pst_embed_device_end was called. *nodes gets the length of node_list.
 * PST_E_ARG: training has diverged. */
PST_API PST_MUST_USE pst_rc pst_relations_end(struct pst_relations *e, const struct pst_row_batch *b,
                                              int64_t *nodes);

/* On a GPU, for relations.c: opens; puts a slot's batch on the queue; copies the rows and the state. */
PST_MUST_USE pst_rc pst_relations_open_device(struct pst_relations *e, uint64_t slot_bytes);
PST_MUST_USE pst_rc pst_relations_train_slot(struct pst_relations *e, const struct pst_row_batch *b,
                                             char *slot, struct pst_embed_batch *batch);
PST_MUST_USE pst_rc pst_relations_fetch(struct pst_relations *e, void *to);

/* The parameters that every stage that computes has, besides those that it shares with the owner of the
 * vertices. */
#define PST_RELATIONS_PARAM(S, M, name_, type_, member_, def_, ...)                                          \
    {                                                                                                        \
        .name = name_, .type = PST_PARAM_##type_, .into = PST_INTO(struct S, M.member_), .def = def_,        \
        __VA_ARGS__                                                                                          \
    }
#define PST_RELATIONS_PARAMS(S, M)                                                                           \
    PST_RELATIONS_PARAM(S, M, "loss", ENUM, loss, "\"softmax\"",                                             \
                        .choices = "softmax|logistic|margin|adversarial",                                    \
                        .help = "compares the score of an edge with those of its negatives; adversarial: "   \
                                "the self-adversarial loss of RotatE",                                       \
                        .fixed = true),                                                                      \
        PST_RELATIONS_PARAM(S, M, "margin", REAL, margin, "1", .max = 1000,                                  \
                            .help = "for the losses margin and adversarial", .fixed = true),                 \
        PST_RELATIONS_PARAM(S, M, "temperature", REAL, temperature, "1", .min = 0, .max = 1000,              \
                            .help = "for the loss adversarial: how much more negatives with high scores "    \
                                    "count; 0: all count the same",                                          \
                            .fixed = true),                                                                  \
        PST_RELATIONS_PARAM(S, M, "n3", REAL, n3, "0", .max = 1000,                                          \
                            .help = "weight of the sum of |x|^3 over the rows of each edge", .fixed = true), \
        PST_RELATIONS_PARAM(S, M, "l2", REAL, l2, "0", .max = 1000,                                          \
                            .help = "weight of the sum of x^2 over the rows of each edge", .fixed = true),   \
        PST_RELATIONS_PARAM(S, M, "dropout", REAL, dropout, "0", .max = 0.99,                                \
                            .help = "share of the floats of known ends that are dropped", .fixed = true),    \
        PST_RELATIONS_PARAM(S, M, "fused", BOOL, fused, "true",                                              \
                            .help =                                                                          \
                                "false: one operation over a whole chunk at a time, as tensor libraries "    \
                                "do it, for comparisons"),                                                   \
        PST_RELATIONS_PARAM(                                                                                 \
            S, M, "tf32", BOOL, tf32, "false",                                                               \
            .help = "on a GPU: products in TensorFloat-32, which is faster and has 10 bits of mantissa")

#endif
