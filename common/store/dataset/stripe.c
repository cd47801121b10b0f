/* stripe.c: encodes, decodes and compares the block at the start of a raw drive. */
#include "common/store/dataset/stripe.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"

static const char magic[16] = "Penstock stripe"; /* with its zero */
#define VERSION 2
#define GROUP_MAX 65536 /* blocks of 64 KiB, rows of an odd number of bytes */

/* The block's beginning, little endian; the rest is zero. */
struct block {
    char magic[sizeof magic];
    uint32_t version, stripe, stripes, group;
    uint64_t data_at, row_bytes, vertices, checksum;
    char name[PST_NAME_MAX], digest[24];
    uint64_t block_checksum; /* XXH3-64 of what is before it */
};
static_assert(sizeof(struct block) == 16 + 16 + 32 + PST_NAME_MAX + 24 + 8, "as it lies on the drive");

static uint64_t checksum_of(const struct block *b)
{
    return XXH3_64bits(b, offsetof(struct block, block_checksum));
}

void pst_stripe_encode(const struct pst_stripe *s, unsigned char block[PST_STRIPE_BLOCK])
{
    struct block b = {.version = VERSION,
                      .stripe = s->stripe,
                      .stripes = s->stripes,
                      .group = s->group,
                      .data_at = s->data_at,
                      .row_bytes = s->row_bytes,
                      .vertices = s->vertices,
                      .checksum = s->checksum};
    memcpy(b.magic, magic, sizeof magic);
    memcpy(b.name, s->name, strnlen(s->name, sizeof b.name - 1));
    memcpy(b.digest, s->digest, strnlen(s->digest, sizeof s->digest - 1));
    b.block_checksum = checksum_of(&b);
    memset(block, 0, PST_STRIPE_BLOCK);
    memcpy(block, &b, sizeof b);
}

static bool sane(const struct block *b)
{
    return b->stripes >= 1 && b->stripes <= PST_STRIPE_MAX && b->stripe < b->stripes && b->row_bytes >= 1 &&
           b->group >= 1 && b->group <= GROUP_MAX && b->data_at >= PST_STRIPE_BLOCK &&
           b->data_at % PST_PAGE == 0 && b->vertices <= INT64_MAX && b->data_at <= INT64_MAX &&
           b->row_bytes <= (INT64_MAX - b->data_at) / (b->vertices + 1) &&
           memchr(b->name, 0, sizeof b->name) != NULL && strnlen(b->digest, sizeof b->digest) == 16 &&
           strspn(b->digest, "0123456789abcdef") == 16;
}

pst_rc pst_stripe_decode(struct pst_stripe *s, const unsigned char block[PST_STRIPE_BLOCK], const char *where,
                         bool *ours)
{
    struct block b;
    memcpy(&b, block, sizeof b);
    *s = (struct pst_stripe){.stripes = 0};
    *ours = memcmp(b.magic, magic, sizeof magic) == 0;
    if (!*ours)
        return PST_OK;
    if (b.version != VERSION)
        return pst_fail(PST_E_FORMAT,
                        "%s: a stripe of version %" PRIu32
                        "; expected version %d (write it again with `penstock store`)",
                        where, b.version, VERSION);
    if (b.block_checksum != checksum_of(&b) || !sane(&b))
        return pst_fail(PST_E_FORMAT,
                        "%s: the signature block is damaged (write the drive again with `penstock store`)",
                        where);
    *s = (struct pst_stripe){.stripe = b.stripe,
                             .stripes = b.stripes,
                             .group = b.group,
                             .data_at = b.data_at,
                             .row_bytes = b.row_bytes,
                             .vertices = b.vertices,
                             .checksum = b.checksum};
    memcpy(s->name, b.name, sizeof s->name);
    memcpy(s->digest, b.digest, 16);
    return PST_OK;
}

pst_rc pst_stripe_match(const unsigned char block[PST_STRIPE_BLOCK], const struct pst_dataset *ds,
                        uint32_t stripe, uint32_t stripes, const char *where, struct pst_stripe *out)
{
    bool ours;
    pst_rc rc = pst_stripe_decode(out, block, where, &ours);
    if (rc != PST_OK)
        return rc;
    if (!ours)
        return pst_fail(PST_E_STATE,
                        "%s: does not hold rows of a dataset (`penstock store %s --to` writes them)", where,
                        ds->dir);
    if (strcmp(out->digest, ds->digest) != 0)
        return pst_fail(
            PST_E_STATE,
            "%s: holds rows of %s, digest %s; expected %s, digest %s (`penstock store %s --to` writes them)",
            where, out->name, out->digest, ds->name, ds->digest, ds->dir);
    if (out->stripe != stripe || out->stripes != stripes)
        return pst_fail(PST_E_STATE,
                        "%s: is stripe %" PRIu32 " of %" PRIu32 "; expected stripe %" PRIu32 " of %" PRIu32
                        ": give the drives in the same order as to `penstock store`",
                        where, out->stripe, out->stripes, stripe, stripes);
    if (out->row_bytes != ds->stride_bytes || out->vertices != (uint64_t)ds->vertices)
        return pst_fail(PST_E_FORMAT, "%s: has rows of %" PRIu64 " bytes; expected %" PRIu64, where,
                        out->row_bytes, ds->stride_bytes);
    return PST_OK;
}
