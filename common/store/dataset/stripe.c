/* stripe.c: encodes, decodes and compares the block at the start of a raw drive. */
#include "common/store/dataset/stripe.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"

static const char magic[16] = "Penstock stripe"; /* with its zero */
#define VERSION 2                                /* of a block without topology */
#define TOPOLOGY_VERSION 3                       /* and with it */
#define GROUP_MAX 65536                          /* blocks of 64 KiB, rows of an odd number of bytes */
#define BLOCK_MAX 65536                          /* areas begin at multiples of it */
#define AREA_MAX (UINT64_C(1) << 60)

/* The block's beginning, little endian. A checksum of all before it follows the last of these structures; the
 * rest is zero. */
struct head {
    char magic[sizeof magic];
    uint32_t version, stripe, stripes, group;
    uint64_t data_at, row_bytes, vertices, checksum;
    char name[PST_NAME_MAX], digest[24];
};
struct tail {
    uint32_t unit, zero;
    struct {
        uint64_t bytes, at, checksum;
    } area[PST_STRIPE_AREAS];
};
static_assert(sizeof(struct head) == 16 + 16 + 32 + PST_NAME_MAX + 24 && sizeof(struct tail) == 8 + 2 * 24,
              "as they lie on the drive");

static size_t bytes_before_checksum(uint32_t version)
{
    return sizeof(struct head) + (version == TOPOLOGY_VERSION ? sizeof(struct tail) : 0);
}

/* ---- places ----------------------------------------------------------------------------------------- */

pst_rc pst_stripe_place_topology(struct pst_stripe *s, uint64_t indices_bytes, uint32_t block)
{
    const uint64_t indptr_bytes = (s->vertices + 1) * sizeof(int64_t);
    /* the first drive has the most; it says where the next area begins on all of them */
    const uint64_t rows = pst_stripe_rows(s->vertices, s->group, 0, s->stripes) * s->row_bytes;
    if (s->vertices >= AREA_MAX / sizeof(int64_t) || indices_bytes > AREA_MAX || rows > AREA_MAX ||
        s->data_at > AREA_MAX || block > BLOCK_MAX)
        return pst_fail(PST_E_LIMIT,
                        "%s: the topology and the features can have at most 1 EiB each, and the drive's "
                        "blocks at most %d bytes",
                        s->name, BLOCK_MAX);
    s->unit = block < PST_PAGE ? PST_PAGE : block;
    uint64_t at = s->data_at + rows;
    const uint64_t bytes[PST_STRIPE_AREAS] = {indptr_bytes, indices_bytes};
    for (int k = 0; k < PST_STRIPE_AREAS; k++) {
        s->topology[k].bytes = bytes[k];
        s->topology[k].at = pst_align_up(at, BLOCK_MAX);
        at = s->topology[k].at + pst_stripe_share(bytes[k], s->unit, 0, s->stripes);
    }
    return PST_OK;
}

/* ---- the block -------------------------------------------------------------------------------------- */

void pst_stripe_encode(const struct pst_stripe *s, unsigned char block[PST_STRIPE_BLOCK])
{
    struct head h = {.version = s->unit > 0 ? TOPOLOGY_VERSION : VERSION,
                     .stripe = s->stripe,
                     .stripes = s->stripes,
                     .group = s->group,
                     .data_at = s->data_at,
                     .row_bytes = s->row_bytes,
                     .vertices = s->vertices,
                     .checksum = s->checksum};
    struct tail t = {.unit = s->unit};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.name, s->name, strnlen(s->name, sizeof h.name - 1));
    memcpy(h.digest, s->digest, strnlen(s->digest, sizeof s->digest - 1));
    for (int k = 0; k < PST_STRIPE_AREAS; k++) {
        t.area[k].bytes = s->topology[k].bytes;
        t.area[k].at = s->topology[k].at;
        t.area[k].checksum = s->topology[k].checksum;
    }
    const size_t bytes = bytes_before_checksum(h.version);
    memset(block, 0, PST_STRIPE_BLOCK);
    memcpy(block, &h, sizeof h);
    if (bytes > sizeof h)
        memcpy(block + sizeof h, &t, sizeof t);
    const uint64_t checksum = XXH3_64bits(block, bytes);
    memcpy(block + bytes, &checksum, sizeof checksum);
}

static bool sane(const struct head *h)
{
    return h->stripes >= 1 && h->stripes <= PST_STRIPE_MAX && h->stripe < h->stripes && h->row_bytes >= 1 &&
           h->group >= 1 && h->group <= GROUP_MAX && h->data_at >= PST_STRIPE_BLOCK &&
           h->data_at % PST_PAGE == 0 && h->vertices <= INT64_MAX && h->data_at <= INT64_MAX &&
           h->row_bytes <= (INT64_MAX - h->data_at) / (h->vertices + 1) &&
           memchr(h->name, 0, sizeof h->name) != NULL && strnlen(h->digest, sizeof h->digest) == 16 &&
           strspn(h->digest, "0123456789abcdef") == 16;
}

/* Reads the part about the topology, whose places follow from the sizes. False: they are others. */
static bool decode_topology(struct pst_stripe *s, const unsigned char *from)
{
    struct tail t;
    memcpy(&t, from, sizeof t);
    if (t.unit < PST_PAGE || t.unit > BLOCK_MAX || (t.unit & (t.unit - 1)) != 0 ||
        pst_stripe_place_topology(s, t.area[PST_STRIPE_INDICES].bytes, t.unit) != PST_OK)
        return false;
    for (int k = 0; k < PST_STRIPE_AREAS; k++) {
        if (s->topology[k].bytes != t.area[k].bytes || s->topology[k].at != t.area[k].at)
            return false;
        s->topology[k].checksum = t.area[k].checksum;
    }
    return true;
}

static struct pst_stripe stripe_of(const struct head *h)
{
    struct pst_stripe s = {.stripe = h->stripe,
                           .stripes = h->stripes,
                           .group = h->group,
                           .data_at = h->data_at,
                           .row_bytes = h->row_bytes,
                           .vertices = h->vertices,
                           .checksum = h->checksum};
    memcpy(s.name, h->name, sizeof s.name);
    memcpy(s.digest, h->digest, 16);
    return s;
}

pst_rc pst_stripe_decode(struct pst_stripe *s, const unsigned char block[PST_STRIPE_BLOCK], const char *where,
                         bool *ours)
{
    struct head h;
    uint64_t checksum;
    memcpy(&h, block, sizeof h);
    *s = (struct pst_stripe){.stripes = 0};
    *ours = memcmp(h.magic, magic, sizeof magic) == 0;
    if (!*ours)
        return PST_OK;
    if (h.version != VERSION && h.version != TOPOLOGY_VERSION)
        return pst_fail(PST_E_FORMAT,
                        "%s: the drive has rows in format version %" PRIu32
                        "; expected version %d or %d (write the drive again with `penstock store`)",
                        where, h.version, VERSION, TOPOLOGY_VERSION);
    const size_t bytes = bytes_before_checksum(h.version);
    memcpy(&checksum, block + bytes, sizeof checksum);
    bool good = checksum == XXH3_64bits(block, bytes) && sane(&h);
    if (good)
        *s = stripe_of(&h);
    if (good && h.version == TOPOLOGY_VERSION)
        good = decode_topology(s, block + sizeof h);
    if (good)
        return PST_OK;
    *s = (struct pst_stripe){.stripes = 0};
    return pst_fail(PST_E_FORMAT,
                    "%s: the drive's first block, which says what is on the drive, is damaged (write the "
                    "drive again with `penstock store`)",
                    where);
}

/* ---- for readers ------------------------------------------------------------------------------------ */

/* `penstock store` with the option that writes what this drive holds. */
static const char *option_of(const struct pst_stripe *s)
{
    return s->unit > 0 ? " --topology" : "";
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
                        "%s: is drive %" PRIu32 " of %" PRIu32 " of its dataset; expected drive %" PRIu32
                        " of %" PRIu32 ": list the drives in the same order as for `penstock store`",
                        where, out->stripe, out->stripes, stripe, stripes);
    if (out->row_bytes != ds->stride_bytes || out->vertices != (uint64_t)ds->vertices)
        return pst_fail(PST_E_FORMAT,
                        "%s: has rows of %" PRIu64 " bytes; expected %" PRIu64 " bytes, as in the dataset",
                        where, out->row_bytes, ds->stride_bytes);
    const uint64_t indptr_bytes = ((uint64_t)ds->vertices + 1) * sizeof(int64_t),
                   indices_bytes = (uint64_t)ds->edges * pst_dtype_bytes(ds->indices.dtype);
    if (out->unit > 0 && (out->topology[PST_STRIPE_INDPTR].bytes != indptr_bytes ||
                          out->topology[PST_STRIPE_INDICES].bytes != indices_bytes))
        return pst_fail(PST_E_FORMAT,
                        "%s: has %" PRIu64 " bytes of indptr and %" PRIu64
                        " bytes of indices; expected %" PRIu64 " and %" PRIu64,
                        where, out->topology[PST_STRIPE_INDPTR].bytes,
                        out->topology[PST_STRIPE_INDICES].bytes, indptr_bytes, indices_bytes);
    return PST_OK;
}

pst_rc pst_stripe_need_topology(const struct pst_stripe *s, const struct pst_dataset *ds, const char *where)
{
    if (s->unit > 0)
        return PST_OK;
    return pst_fail(PST_E_STATE,
                    "%s: holds the features of %s, but not its topology, which is to be read from drives "
                    "(`penstock store %s --topology --to` writes both; or set topology to \"mmap\" or "
                    "\"memory\")",
                    where, s->name, ds->dir);
}

pst_rc pst_stripe_agree(const struct pst_stripe *s, const char *where, const struct pst_stripe *first,
                        const char *first_where, const struct pst_dataset *ds)
{
    if (s->group == first->group && s->unit == first->unit && s->data_at == first->data_at)
        return PST_OK;
    return pst_fail(PST_E_STATE,
                    "%s and %s were written by different commands: write all drives with one command, "
                    "`penstock store %s%s --to` (rows in a group: %" PRIu32 " and %" PRIu32
                    "; bytes of topology in a unit: %" PRIu32 " and %" PRIu32 ")",
                    first_where, where, ds->dir, option_of(first->unit > 0 ? first : s), first->group,
                    s->group, first->unit, s->unit);
}
