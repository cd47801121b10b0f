/* vectors.h: embeddings and their optimizer state, in memory or on a GPU. A batch's rows are gathered from
 * it, and the gradients that come home change it. Marius (Mohoney et al., OSDI 2021), section 3.
 *
 * The memory is divided into blocks. One block has all vertices, by id; or each block has a partition
 * (stages/lib/parts), and partitions come and go. In a block, embeddings come first, and then the optimizer
 * state (Legend, section 3), so a partition moves as a whole.
 *
 * Owner: the store. Threads: one calls these functions; they share the rows among the team's threads. Results
 * do not depend on their number. With `aside`, one thread gathers and updates, and another one calls the
 * other functions, and changes block_of only for partitions that no batch then uses. */
#ifndef PST_VECTORS_H
#define PST_VECTORS_H

#include "common/slots/edge_batch.h"
#include "common/slots/row_batch.h"
#include "stages/lib/device/device.h"
#include "stages/lib/embed/embed.h"
#include "common/util/team.h"
#include "stages/lib/parts/parts.h"
#include "stages/lib/vectors/relations_table.h"

struct pst_vectors {
    int64_t vertices, dim, state_dim; /* floats of a row, and of its state */
    enum pst_k_embed_optimizer optimizer;
    pst_real rate;
    float scale;                   /* of the rate, by the schedule; each batch tells its borrower */
    uint64_t updates;              /* batches whose gradients are in the rows */
    const struct pst_parts *parts; /* NULL: block 0 has all vertices */
    int blocks;
    int64_t block_rows;
    uint64_t block_bytes, unit; /* whole units */
    struct pst_device *device;  /* the GPU that has them, with a queue for copies; NULL: the host has */
    char *memory;
    char *image;                 /* on a GPU: pinned memory, for a partition as it is in a file */
    int imaged;                  /* the partition in it; -1: none */
    int block_of[PST_PARTS_MAX]; /* of a partition; -1: none */
    uint32_t *place, *marked;    /* of a row: its position in the batch whose mark it has */
    uint32_t mark;
    uint32_t *listed; /* the rows of the batch that was gathered last, or is updated, in the list's order */
    struct pst_relations_table *relations; /* lent with batches; NULL: they are the borrower's own */
    struct pst_team *team;
    bool aside; /* another thread gathers and updates, with the team, while partitions come and go */
};

/* The embeddings in a block, and their state. On a GPU, row r of block b is row b block_rows + r of one
 * table.
 */
static inline pst_real *pst_vectors_rows(const struct pst_vectors *v, int block)
{
    const uint64_t row = (uint64_t)v->dim * sizeof(pst_real);
    return (pst_real *)(void *)(v->memory + (uint64_t)block *
                                                (v->device ? (uint64_t)v->block_rows * row : v->block_bytes));
}
static inline pst_real *pst_vectors_state(const struct pst_vectors *v, int block)
{
    return v->device ? pst_vectors_rows(v, v->blocks) + block * v->block_rows * v->state_dim
                     : pst_vectors_rows(v, block) + v->block_rows * v->dim;
}

/* Bytes of a block. */
PST_API uint64_t pst_vectors_bytes(const struct pst_vectors *v);

/* Allocates everything. The caller has set vertices, dim, optimizer, rate, scale, parts, blocks, block_rows,
 * unit, relations and device. No partition is in a block, but without partitions, block 0 has all vertices.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_vectors_open(struct pst_vectors *v, int threads);
PST_API void pst_vectors_close(struct pst_vectors *v);

/* The memory of the blocks, for pst_vectors_open. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_vectors_open_blocks(struct pst_vectors *v);
void pst_vectors_close_blocks(struct pst_vectors *v);

/* Copies bytes of a partition, as it is in a file, to a block or from one. No kernel may use them. They are
 * there when the call returns. */
PST_API PST_MUST_USE pst_rc pst_vectors_put(struct pst_vectors *v, int block, uint64_t at, const char *from,
                                            uint64_t bytes);
PST_API PST_MUST_USE pst_rc pst_vectors_get(const struct pst_vectors *v, int block, uint64_t at, char *to,
                                            uint64_t bytes);
/* Where the host can write the bytes of a whole block: there, or to memory for this purpose. */
PST_API char *pst_vectors_image(struct pst_vectors *v, int block);
/* The image is written, and goes to the block. partition: the one that it is. */
PST_API PST_MUST_USE pst_rc pst_vectors_put_image(struct pst_vectors *v, int block, int partition);

/* Sets a block's image to the initial values of a partition (0, if there are no partitions): uniform in
 * [-scale, scale), a function of the seed, the vertex and the column. The state is 0. */
PST_API void pst_vectors_init(struct pst_vectors *v, int block, int partition, uint64_t seed, double scale);

/* The partition of a vertex, its row there, and how many rows of a partition are vertices. */
static inline int pst_vectors_partition(const struct pst_vectors *v, int64_t vertex)
{
    return v->parts ? pst_parts_of(v->parts, vertex) : 0;
}
static inline int64_t pst_vectors_place(const struct pst_vectors *v, int64_t vertex)
{
    return v->parts ? pst_parts_place(v->parts, vertex) % v->block_rows : vertex;
}
static inline int64_t pst_vectors_used(const struct pst_vectors *v, int partition)
{
    return v->parts ? pst_parts_used(v->parts, partition) : v->vertices;
}

/* The row of a vertex; NULL: its partition is in no block, or, on a GPU, is not the image. */
PST_API const pst_real *pst_vectors_row(const struct pst_vectors *v, int64_t vertex);

/* The rows of vertices, counted over the blocks. PST_E_PEER: one is in no block. */
PST_API PST_MUST_USE pst_rc pst_vectors_rows_of(const struct pst_vectors *v, const int64_t *vertices,
                                                int64_t n, uint32_t *rows);

/* Fills a slot of `bytes` bytes with the batch of `edges`, whose slot is `from`: its distinct vertices in the
 * order of their first appearance, positions, and rows; and the rows of its relations, if they are lent. *out
 * gets the header. PST_E_STATE: the slot is too small. PST_E_PEER: a vertex is in no block. */
PST_API PST_MUST_USE pst_rc pst_vectors_gather(struct pst_vectors *v, const struct pst_edge_batch *edges,
                                               const void *from, char *slot, uint64_t bytes,
                                               struct pst_row_batch *out);

/* Partitions whose rows have the gradients of a batch already. */
struct pst_vectors_settled {
    uint64_t bits[PST_PARTS_MAX / 64];
};

/* Updates only the rows of a partition, which is in memory, with the gradients in a slot that came home; the
 * others follow with pst_vectors_update. after: batches with edges that came home before this one, and are
 * not in all rows yet. PST_E_PEER. */
PST_API PST_MUST_USE pst_rc pst_vectors_settle(struct pst_vectors *v, const struct pst_row_batch *b,
                                               const char *slot, int partition, uint64_t after,
                                               struct pst_vectors_settled *settled);

/* Updates rows with the gradients of the batch that was gathered last, in a slot that nobody else had. */
PST_API PST_MUST_USE pst_rc pst_vectors_update_gathered(struct pst_vectors *v, const struct pst_row_batch *b,
                                                        const char *slot);

/* Updates rows with the gradients in a slot that came home. b: the header that the slot was sent with.
 * settled: rows of these partitions are left out; NULL: there are none. PST_E_PEER: a list of vertices or
 * relations is damaged. */
PST_API PST_MUST_USE pst_rc pst_vectors_update(struct pst_vectors *v, const struct pst_row_batch *b,
                                               const char *slot, const struct pst_vectors_settled *settled);

#endif
