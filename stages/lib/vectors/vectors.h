/* vectors.h: embeddings and their optimizer state, in memory. A batch's rows are gathered from it, and the
 * gradients that come home change it. Marius (Mohoney et al., OSDI 2021), section 3.
 *
 * The memory is divided into blocks. One block has all vertices, by id; or each block has a partition
 * (stages/lib/parts), and partitions come and go. In a block, embeddings come first, and then the optimizer
 * state (Legend, section 3), so a partition moves as a whole.
 *
 * Owner: the store. Threads: one, but partitions may be generated in blocks that no batch uses meanwhile. The
 * team's threads share the rows of a call. Results do not depend on their number. */
#ifndef PST_VECTORS_H
#define PST_VECTORS_H

#include "common/slots/edge_batch.h"
#include "common/slots/row_batch.h"
#include "stages/lib/embed/embed.h"
#include "stages/lib/gnn/team.h"
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
    char *memory;
    int block_of[PST_PARTS_MAX]; /* of a partition; -1: none */
    uint32_t *place, *marked;    /* of a row: its position in the batch whose mark it has */
    uint32_t mark;
    struct pst_relations_table *relations; /* lent with batches; NULL: they are the borrower's own */
    struct pst_gnn_team *team;
    pthread_mutex_t sharing; /* whoever gives the team a job */
};

/* The embeddings in a block, and their state. */
static inline pst_real *pst_vectors_rows(const struct pst_vectors *v, int block)
{
    return (pst_real *)(void *)(v->memory + (uint64_t)block * v->block_bytes);
}
static inline pst_real *pst_vectors_state(const struct pst_vectors *v, int block)
{
    return pst_vectors_rows(v, block) + v->block_rows * v->dim;
}

/* Bytes of a block. */
PST_API uint64_t pst_vectors_bytes(const struct pst_vectors *v);

/* Allocates everything. The caller has set vertices, dim, optimizer, rate, scale, parts, blocks, block_rows,
 * unit and relations. No partition is in a block, but without partitions, block 0 has all vertices.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_vectors_open(struct pst_vectors *v, int threads);
PST_API void pst_vectors_close(struct pst_vectors *v);

/* Sets a block to the initial values of a partition (0, if there are no partitions): uniform in [-scale,
 * scale), a function of the seed, the vertex and the column. The state is 0. */
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

/* The row of a vertex; NULL: its partition is in no block. */
PST_API const pst_real *pst_vectors_row(const struct pst_vectors *v, int64_t vertex);

/* Fills a slot of `bytes` bytes with the batch of `edges`, whose slot is `from`: its distinct vertices in the
 * order of their first appearance, positions, and rows; and the rows of its relations, if they are lent. *out
 * gets the header. PST_E_STATE: the slot is too small. PST_E_PEER: a vertex is in no block. */
PST_API PST_MUST_USE pst_rc pst_vectors_gather(struct pst_vectors *v, const struct pst_edge_batch *edges,
                                               const void *from, char *slot, uint64_t bytes,
                                               struct pst_row_batch *out);

/* Updates rows with the gradients in a slot that came home. b: the header that the slot was sent with.
 * PST_E_PEER: a list of vertices or relations is damaged. */
PST_API PST_MUST_USE pst_rc pst_vectors_update(struct pst_vectors *v, const struct pst_row_batch *b,
                                               const char *slot);

#endif
