/* embed_gpu.h: the training step of embed.h, and ranks, on a GPU. Calls put work on the device's queue and
 * return; pst_embed_device_loss waits. All kernels add in a fixed order, so the bits depend only on plan,
 * batch and GPU. Against the CPU's step, products, the scores of true ends and losses are added in another
 * order.
 *
 * Owner: the caller owns the struct and lends the device, which owns the memory. Threads: one. */
#ifndef PST_EMBED_GPU_H
#define PST_EMBED_GPU_H

#include "stages/lib/device/device.h"
#include "stages/lib/embed/ranks.h"

/* Memory on the device that grows with the largest batch; contents last for one batch. */
enum pst_embed_device_buffer {
    PST_EMBED_ENTRIES,          /* gradients of vertices, one row for each use: as on the CPU */
    PST_EMBED_RELATION_ENTRIES, /* the same of relations: [2 * edges] */
    PST_EMBED_ENTRY_ROWS,       /* whose entries these are */
    PST_EMBED_X,                /* the rows of a chunk's negatives */
    PST_EMBED_SCORES,
    PST_EMBED_GRAD, /* of the scores */
    PST_EMBED_QUERY,
    PST_EMBED_QUERY_GRAD,
    PST_EMBED_TRUE,  /* scores of true ends, and their gradients */
    PST_EMBED_NORMS, /* of candidates for ranks */
    PST_EMBED_KNOWN, /* ends */
    PST_EMBED_RANKS, /* what has one word for each query */
    PST_EMBED_DEVICE_BUFFERS
};

struct pst_embed_device {
    struct pst_device *device; /* it has a queue that can make products */
    struct {
        void *at;
        uint64_t bytes;
    } buffer[PST_EMBED_DEVICE_BUFFERS];
    double *loss;    /* on the device: of the batch; and of operations that are done twice */
    int64_t *counts; /* on the device: relations in the batch, inverse relations, vertices */
};

/* Takes what does not depend on the batch. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_embed_device_open(struct pst_embed_device *w, struct pst_device *device);

/* Sets the loss and the gradients of a batch, whose arrays are the device's, or pinned. It needs lists of
 * negatives. node_list NULL: node_grads has row i for vertex i, and 0 where the batch has no gradient. Else
 * the batch uses few of the n rows of `nodes`: node_list gets those, ascending, and row k of node_grads is
 * that of node_list[k]; both have room for all entries, 4 edges + 2 chunks negatives. Row k of
 * relation_grads is that of touched[k]; inverse relations begin in the middle of both. touched_n is not set.
 * PST_E_ARG: the model is not one of kernels/embedding.h; PST_E_LIMIT; PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_embed_device_step(const struct pst_embed_plan *plan,
                                                  const struct pst_embed_batch *b, struct pst_embed_device *w,
                                                  uint32_t *node_list);

/* Updates the relations of the batch. table: of all relations; then d is its row's. */
PST_API void pst_embed_device_update_relations(const struct pst_embed_plan *plan,
                                               const struct pst_embed_batch *b,
                                               const struct pst_embed_device *w,
                                               const struct pst_k_embed_table *table);
/* Updates the rows in node_list, which are at most so many. */
PST_API void pst_embed_device_update_nodes(const struct pst_embed_batch *b, const struct pst_embed_device *w,
                                           const struct pst_k_embed_table *table, const uint32_t *node_list,
                                           int64_t most);

/* The batch is on the queue as a whole: the next call waits for what came before this one. */
PST_API void pst_embed_device_end(struct pst_embed_device *w);
/* Waits for the batch, and gets its loss and the length of node_list. */
PST_API PST_MUST_USE pst_rc pst_embed_device_loss(struct pst_embed_device *w, double *loss, int64_t *nodes);

/* pst_embed_count_block (ranks.h) with candidates c->x in the device's memory, and the rest in the host's. It
 * waits. The counts are the CPU's. */
PST_API PST_MUST_USE pst_rc pst_embed_device_count(enum pst_k_embed_similarity similarity, const pst_real *q,
                                                   int64_t m, int64_t d, const struct pst_embed_candidates *c,
                                                   struct pst_embed_device *w,
                                                   struct pst_embed_count *counts);

/* Room for count items of a buffer, and at least one; *to gets the pointer. For gpu_*.c. */
PST_MUST_USE pst_rc pst_embed_device_grow(struct pst_embed_device *w, enum pst_embed_device_buffer which,
                                          int64_t count, size_t size, void *to);

#endif
