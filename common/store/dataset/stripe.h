/* stripe.h: one drive's share of a dataset's feature rows, as penstock store writes it: rows v, v + n, v +
 * 2n, ... one after the other (vertex mod n), and before them a block that says what they are. A drive
 * without that block holds other data. If a row does not fill whole blocks of the drive, rows stay together
 * in groups that do, and the groups are distributed in turn.
 *
 *   byte 0        the block: PST_STRIPE_BLOCK bytes
 *   byte data_at  row i at data_at + i * row_bytes: vertex (i / group * stripes + stripe) * group + i % group
 *
 * Owner: the caller; plain memory. Threads: any. */
#ifndef PST_STRIPE_H
#define PST_STRIPE_H

#include "common/store/store.h"

PST_BEGIN_DECLS

#define PST_STRIPE_BLOCK 4096
#define PST_STRIPE_DATA_AT (1u << 20) /* whole blocks, whatever the drive's */
#define PST_STRIPE_MAX 64             /* more drives than a server has bays for */

struct pst_stripe {
    uint32_t stripe, stripes; /* this one, of so many */
    uint32_t group;           /* rows */
    uint64_t data_at, row_bytes;
    uint64_t vertices; /* of the dataset */
    uint64_t checksum; /* XXH3-64 of this stripe's rows */
    char name[PST_NAME_MAX], digest[17];
};

/* The fewest rows that fill blocks, which are powers of two. */
static inline uint32_t pst_stripe_group(uint64_t row_bytes, uint32_t block)
{
    const uint64_t even = row_bytes & (~row_bytes + 1); /* the largest power of two that divides it */
    return even < block ? (uint32_t)(block / even) : 1;
}

static inline uint64_t pst_stripe_rows(uint64_t vertices, uint32_t group, uint32_t stripe, uint32_t stripes)
{
    const uint64_t groups = vertices / group;
    return (groups / stripes + (stripe < groups % stripes ? 1 : 0)) * group +
           (stripe == groups % stripes ? vertices % group : 0);
}

PST_API void pst_stripe_encode(const struct pst_stripe *s, unsigned char block[PST_STRIPE_BLOCK]);

/* *ours: the block has our signature. PST_E_FORMAT if it has, and is damaged; where is for the message. */
PST_API PST_MUST_USE pst_rc pst_stripe_decode(struct pst_stripe *s,
                                              const unsigned char block[PST_STRIPE_BLOCK], const char *where,
                                              bool *ours);

/* For a reader of rows: the block is valid, and is stripe `stripe` of `stripes` of this very dataset.
 * PST_E_STATE, with what is there and the command that would mend it. */
PST_API PST_MUST_USE pst_rc pst_stripe_match(const unsigned char block[PST_STRIPE_BLOCK],
                                             const struct pst_dataset *ds, uint32_t stripe, uint32_t stripes,
                                             const char *where, struct pst_stripe *out);

PST_END_DECLS
#endif
