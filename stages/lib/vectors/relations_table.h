/* relations_table.h: the embeddings of relations with the state of their optimizer. Inverse relations count:
 * row `relations` + r is the inverse of relation r. The stage that computes owns them; or the owner of the
 * vertices does, who lends the rows of a batch (`relations` is async).
 *
 * Owner: its stage. Threads: one. */
#ifndef PST_RELATIONS_TABLE_H
#define PST_RELATIONS_TABLE_H

#include "common/slots/row_batch.h"
#include "stages/lib/embed/embed.h"

enum pst_relations_way { PST_RELATIONS_SYNC, PST_RELATIONS_ASYNC };

struct pst_relations_table {
    enum pst_k_embed_optimizer optimizer;
    int64_t relations, rows, dim, state_dim; /* 0 rows: the model has no relations */
    pst_real *row, *state;                   /* of one allocation: the rows, and then the states */
    bool *marked;                            /* of a relation */
    uint32_t *list;                          /* room for as many as there are rows */
};

/* Sets the sizes. */
PST_API void pst_relations_table_plan(struct pst_relations_table *t, const struct pst_embed_plan *plan,
                                      enum pst_k_embed_optimizer optimizer);
PST_API uint64_t pst_relations_table_bytes(const struct pst_relations_table *t);

/* Where the rows come from. */
struct pst_relations_origin {
    const char *checkpoint; /* NULL: none */
    const char *init_from;  /* else a run's directory, or "" */
    double scale;           /* else uniform in [-scale, scale), unless the model says something else */
};

/* Makes the rows. With a checkpoint, *updates gets its number of updates. PST_E_NOMEM, PST_E_FORMAT. */
PST_API PST_MUST_USE pst_rc pst_relations_table_open(struct pst_relations_table *t,
                                                     const struct pst_embed_plan *plan,
                                                     const struct pst_relations_origin *from,
                                                     uint64_t *updates);
PST_API void pst_relations_table_close(struct pst_relations_table *t);

/* Updates n rows. grads: of all rows, or, if they are `packed`, of these in their order. */
PST_API void pst_relations_table_update(struct pst_relations_table *t, const uint32_t *rows, int64_t n,
                                        const pst_real *grads, bool packed, pst_real rate, uint64_t step);

/* Lists the rows that the edges of a batch use, ascending, for the next two. The header gets their number and
 * width, before its arrays are placed. */
PST_API void pst_relations_table_list(struct pst_relations_table *t, const int32_t *relation, uint32_t edges,
                                      struct pst_row_batch *b);
/* Copies the list and its rows to the slot. */
PST_API void pst_relations_table_lend(const struct pst_relations_table *t, const struct pst_row_batch *b,
                                      char *slot);
/* Updates rows with the gradients in a slot that came home. b: the header that it was sent with. PST_E_PEER:
 * its list is damaged. */
PST_API PST_MUST_USE pst_rc pst_relations_table_take(struct pst_relations_table *t,
                                                     const struct pst_row_batch *b, const char *slot,
                                                     pst_real rate, uint64_t step);

#endif
