/* dict.c: a hash table of names within a bound of memory; names are never removed. */
#include "common/store/names/dict.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/memory.h"

#define PLACE_BITS 36 /* of a slot: 256 GiB of names */
#define PLACE_MASK ((UINT64_C(1) << PLACE_BITS) - 1)
#define SLOTS_MIN 16
#define SLOTS_MAX UINT32_MAX
#define FULL_NUM 7 /* of 10 slots: a search passes few others, in one or two lines of the cache */
#define FULL_DEN 10
#define RECORD_MAX (4 + 3 + PST_NAMES_BYTES_MAX + 3)

void pst_dict_init(struct pst_dict *d, uint64_t memory_bytes)
{
    *d = (struct pst_dict){.memory_bytes = memory_bytes, .limit = UINT32_MAX - 1};
}

uint64_t pst_dict_hash(const struct pst_dict *d, struct pst_name name)
{
    uint64_t hash = XXH3_64bits_withSeed(name.text, name.bytes, d->seed);
    if (d->hash_bits != 0) {
        hash &= d->hash_bits > 0 ? (UINT64_C(1) << d->hash_bits) - 1 : 0;
        hash = XXH3_64bits_withSeed(&hash, sizeof hash, d->seed);
    }
    return hash;
}

/* ---- records ---- */

static uint64_t record_bytes(uint32_t bytes)
{
    return pst_align_up(4u + (bytes < 0x80 ? 1u : bytes < 0x4000 ? 2u : 3u) + bytes, 4);
}

static void put_record(unsigned char *to, uint32_t number, struct pst_name name)
{
    uint32_t left = name.bytes;
    memcpy(to, &number, sizeof number);
    for (to += sizeof number; left >= 0x80; left >>= 7)
        *to++ = (unsigned char)(left | 0x80);
    *to++ = (unsigned char)left;
    memcpy(to, name.text, name.bytes);
}

static inline struct pst_name record_name(const unsigned char *record)
{
    const unsigned char *p = record + 4;
    uint32_t bytes = *p & 0x7fu;
    for (unsigned shift = 7; *p++ >= 0x80; shift += 7)
        bytes |= (*p & 0x7fu) << shift;
    return (struct pst_name){(const char *)p, bytes};
}

static int64_t record_number(const unsigned char *record)
{
    uint32_t number;
    memcpy(&number, record, sizeof number);
    return number;
}

struct pst_name pst_dict_name(const struct pst_dict *d, uint64_t *at)
{
    const struct pst_name name = record_name(d->arena + *at);
    *at += record_bytes(name.bytes);
    return name;
}

/* ---- the table ---- */

static inline uint64_t slot_of(const struct pst_dict *d, uint64_t hash)
{
    return ((hash & UINT32_MAX) * d->slots) >> 32;
}

static inline bool same_tag(uint64_t slot, uint64_t hash)
{
    return (slot ^ hash) >> PLACE_BITS == 0;
}

static inline const unsigned char *record_of(const struct pst_dict *d, uint64_t slot)
{
    return d->arena + 4 * ((slot & PLACE_MASK) - 1);
}

void pst_dict_expect_record(const struct pst_dict *d, uint64_t hash)
{
    if (d->slots == 0)
        return;
    for (uint64_t at = slot_of(d, hash); d->slot[at] != 0; at = at + 1 < d->slots ? at + 1 : 0)
        if (same_tag(d->slot[at], hash)) {
            __builtin_prefetch(record_of(d, d->slot[at]));
            return;
        }
}

/* The slot that has the name, or the empty one where it belongs. */
static uint64_t place(const struct pst_dict *d, uint64_t hash, struct pst_name name)
{
    uint64_t at = slot_of(d, hash);
    for (; d->slot[at] != 0; at = at + 1 < d->slots ? at + 1 : 0) {
        if (!same_tag(d->slot[at], hash))
            continue;
        const struct pst_name other = record_name(record_of(d, d->slot[at]));
        if (other.bytes == name.bytes && memcmp(other.text, name.text, name.bytes) == 0)
            break;
    }
    return at;
}

int64_t pst_dict_find(const struct pst_dict *d, uint64_t hash, struct pst_name name)
{
    if (d->slots == 0)
        return -1;
    const uint64_t slot = d->slot[place(d, hash, name)];
    return slot != 0 ? record_number(record_of(d, slot)) : -1;
}

/* Another number of slots. The old table goes first: all that it said is in the records. */
static pst_rc rehash(struct pst_dict *d, uint64_t slots)
{
    if (d->slot != NULL)
        pst_hugepage_unmap(d->slot, d->slots * sizeof *d->slot);
    d->slots = 0;
    d->slot = pst_hugepage_map(slots * sizeof *d->slot);
    if (d->slot == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate names");
    d->slots = slots;
    for (uint64_t at = 0; at < d->used;) {
        const uint64_t begin = at;
        const struct pst_name name = pst_dict_name(d, &at);
        const uint64_t hash = pst_dict_hash(d, name);
        uint64_t to = slot_of(d, hash); /* all names are different */
        while (d->slot[to] != 0)
            to = to + 1 < d->slots ? to + 1 : 0;
        d->slot[to] = (hash & ~PLACE_MASK) | (begin / 4 + 1);
    }
    return PST_OK;
}

/* Slots for one more name: twice as many, but no more than fill up together with the records. */
static uint64_t slots_wanted(const struct pst_dict *d, uint64_t record)
{
    const uint64_t each = d->n > 0 ? d->used / (uint64_t)d->n : record;
    const uint64_t most = d->memory_bytes / (each * FULL_NUM / FULL_DEN + sizeof *d->slot);
    const uint64_t left = d->memory_bytes > d->used + record ? d->memory_bytes - d->used - record : 0;
    uint64_t want = d->slots > 0 ? 2 * d->slots : 1024;
    want = want < most ? want : most;
    want = want < left / sizeof *d->slot ? want : left / sizeof *d->slot;
    return want < SLOTS_MAX ? want : SLOTS_MAX;
}

/* Room for one more name; *full: there is none. */
static pst_rc make_room(struct pst_dict *d, uint64_t record, bool *full)
{
    *full = false;
    if (d->arena == NULL) {
        if (d->memory_bytes < UINT64_MAX)
            d->room = d->memory_bytes > RECORD_MAX ? d->memory_bytes : RECORD_MAX;
        if ((d->arena = pst_hugepage_map(d->room)) == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate names");
        const uint64_t want = slots_wanted(d, record);
        return rehash(d, want > SLOTS_MIN ? want : SLOTS_MIN);
    }
    if (((uint64_t)d->n + 1) * FULL_DEN > d->slots * FULL_NUM) {
        const uint64_t want = slots_wanted(d, record);
        *full = want < d->slots + d->slots / 8 + 1;
        if (!*full)
            return rehash(d, want);
    }
    *full |= d->used + record + d->slots * sizeof *d->slot > d->memory_bytes || d->used + record > d->room ||
             (d->used + record) / 4 >= PLACE_MASK || d->n >= d->limit;
    return PST_OK;
}

pst_rc pst_dict_put(struct pst_dict *d, uint64_t hash, struct pst_name name, int64_t *number)
{
    bool full;
    const uint64_t record = record_bytes(name.bytes);
    *number = pst_dict_find(d, hash, name);
    if (*number >= 0)
        return PST_OK;
    pst_rc rc = make_room(d, record, &full);
    if (rc != PST_OK || full)
        return rc;
    d->slot[place(d, hash, name)] = (hash & ~PLACE_MASK) | (d->used / 4 + 1);
    put_record(d->arena + d->used, (uint32_t)d->n, name);
    d->used += record;
    d->text_bytes += name.bytes;
    *number = d->n++;
    return PST_OK;
}

pst_rc pst_dict_add(struct pst_dict *d, const char *text, size_t bytes, int64_t *number)
{
    assert(bytes <= PST_NAMES_BYTES_MAX);
    const struct pst_name name = {text, (uint32_t)bytes};
    pst_rc rc = pst_dict_put(d, pst_dict_hash(d, name), name, number);
    if (rc != PST_OK || *number >= 0)
        return rc;
    return pst_fail(PST_E_LIMIT,
                    "%" PRId64 " names fill the %" PRIu64
                    " MiB that --memory leaves for names: increase --memory",
                    d->n, d->memory_bytes >> 20);
}

/* ---- the arrays ---- */

static pst_rc write_text(const struct pst_dict *d, struct pst_build *b, enum pst_array_id id)
{
    struct pst_array_writer w = {.fd = -1};
    const int64_t shape[2] = {(int64_t)d->text_bytes, 1};
    pst_rc rc = pst_build_array(b, id, PST_U8, 1, shape, &w);
    for (uint64_t at = 0; rc == PST_OK && at < d->used;) {
        const struct pst_name name = pst_dict_name(d, &at);
        rc = pst_array_write(&w, name.text, name.bytes);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(b, id, &w);
    pst_array_writer_release(&w);
    return rc;
}

pst_rc pst_dict_write(const struct pst_dict *d, struct pst_build *b, enum pst_array_id at_id,
                      enum pst_array_id bytes_id)
{
    struct pst_array_writer w = {.fd = -1};
    const int64_t shape[2] = {d->n + 1, 1};
    int64_t begin = 0;
    pst_rc rc = pst_build_array(b, at_id, PST_I64, 1, shape, &w);
    if (rc == PST_OK)
        rc = pst_array_write(&w, &begin, sizeof begin);
    for (uint64_t at = 0; rc == PST_OK && at < d->used;) {
        begin += pst_dict_name(d, &at).bytes;
        rc = pst_array_write(&w, &begin, sizeof begin);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(b, at_id, &w);
    pst_array_writer_release(&w);
    return rc == PST_OK ? write_text(d, b, bytes_id) : rc;
}

void pst_dict_release(struct pst_dict *d)
{
    if (d->arena != NULL)
        pst_hugepage_unmap(d->arena, d->room);
    if (d->slot != NULL)
        pst_hugepage_unmap(d->slot, d->slots * sizeof *d->slot);
    d->arena = NULL;
    d->slot = NULL;
    d->slots = d->used = d->text_bytes = 0;
    d->n = 0;
}
