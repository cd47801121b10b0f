/* stripe.h: one drive's share of a dataset, as penstock store writes it: a block that says what the drive
 * holds, then feature rows v, v + n, v + 2n, ... one after the other (vertex mod n), then, if asked for, its
 * share of the topology. A drive without that block holds other data. If a row does not fill whole blocks of
 * the drive, rows stay together in groups that do, and the groups are distributed in turn. The arrays of the
 * topology are cut into units of so many bytes, which are distributed in the same way. All drives of a
 * dataset have an area at the same byte.
 *
 *   byte 0        the block: PST_STRIPE_BLOCK bytes
 *   byte data_at  row i at data_at + i * row_bytes: vertex (i / group * stripes + stripe) * group + i % group
 *   byte topology[k].at   unit i at topology[k].at + i * unit: unit i * stripes + stripe of the array
 *
 * The block has version 2 without topology, and version 3 with it.
 *
 * Owner: the caller; plain memory. Threads: any. */
#ifndef PST_STRIPE_H
#define PST_STRIPE_H

#include "common/store/store.h"

PST_BEGIN_DECLS

#define PST_STRIPE_BLOCK 4096
#define PST_STRIPE_DATA_AT (1u << 20) /* whole blocks, whatever the drive's */
#define PST_STRIPE_MAX 64             /* more drives than a server has bays for */

/* The arrays of the topology, in the order in which they lie on a drive. */
enum { PST_STRIPE_INDPTR, PST_STRIPE_INDICES, PST_STRIPE_AREAS };

/* An array of the topology on a drive. */
struct pst_stripe_area {
    uint64_t bytes;    /* of the whole array, over all drives */
    uint64_t at;       /* byte of each drive */
    uint64_t checksum; /* XXH3-64 of this drive's share */
};

struct pst_stripe {
    uint32_t stripe, stripes; /* this one, of so many */
    uint32_t group;           /* rows */
    uint64_t data_at, row_bytes;
    uint64_t vertices; /* of the dataset */
    uint64_t checksum; /* XXH3-64 of this stripe's rows */
    char name[PST_NAME_MAX], digest[17];
    uint32_t unit; /* bytes of topology that stay together; 0: the drive holds no topology */
    struct pst_stripe_area topology[PST_STRIPE_AREAS];
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

/* The bytes of an array on a drive, if units of so many bytes are distributed in turn. */
static inline uint64_t pst_stripe_share(uint64_t bytes, uint32_t unit, uint32_t stripe, uint32_t stripes)
{
    return pst_stripe_rows(bytes, unit, stripe, stripes);
}

/* Gives the arrays of the topology their places after the feature rows: indptr has vertices + 1 entries of 8
 * bytes, and indices so many bytes. block: of the drives, the largest of them, a power of two up to 64 KiB.
 * PST_E_LIMIT: drives cannot be that large. */
PST_API PST_MUST_USE pst_rc pst_stripe_place_topology(struct pst_stripe *s, uint64_t indices_bytes,
                                                      uint32_t block);

PST_API void pst_stripe_encode(const struct pst_stripe *s, unsigned char block[PST_STRIPE_BLOCK]);

/* *ours: the block has our signature. PST_E_FORMAT if it has, and is damaged; where is for the message. */
PST_API PST_MUST_USE pst_rc pst_stripe_decode(struct pst_stripe *s,
                                              const unsigned char block[PST_STRIPE_BLOCK], const char *where,
                                              bool *ours);

/* For a reader: the block is valid, and is stripe `stripe` of `stripes` of this very dataset. PST_E_STATE,
 * with what is there and the command that would mend it. PST_E_FORMAT: rows, or the topology if there is one,
 * have another size. */
PST_API PST_MUST_USE pst_rc pst_stripe_match(const unsigned char block[PST_STRIPE_BLOCK],
                                             const struct pst_dataset *ds, uint32_t stripe, uint32_t stripes,
                                             const char *where, struct pst_stripe *out);

/* For a reader of the topology: it is on the drive, too. PST_E_STATE, with the command that would write it.
 */
PST_API PST_MUST_USE pst_rc pst_stripe_need_topology(const struct pst_stripe *s, const struct pst_dataset *ds,
                                                     const char *where);

/* The drives were written by one command: rows and units are distributed over both in the same way.
 * PST_E_STATE */
PST_API PST_MUST_USE pst_rc pst_stripe_agree(const struct pst_stripe *s, const char *where,
                                             const struct pst_stripe *first, const char *first_where,
                                             const struct pst_dataset *ds);

PST_END_DECLS
#endif
