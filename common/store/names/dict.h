/* dict.h: numbers names in the order in which they come, within a bound of memory. A name takes its bytes
 * plus 4, rounded up to a multiple of 4, and 8 to 20 bytes of a hash table. Names are compared byte by byte,
 * so equal hashes do no harm. Owner: the caller; init and release pair. Threads: one adds, or any number
 * find. */
#ifndef PST_DICT_H
#define PST_DICT_H

#include "common/store/build/build.h"

PST_BEGIN_DECLS

#define PST_NAMES_BYTES_MAX 65535 /* one name: longer than any id, URI or title */

struct pst_name {
    const char *text; /* no NUL behind it */
    uint32_t bytes;
};

struct pst_dict {
    uint64_t
        memory_bytes; /* UINT64_MAX: as much as `limit` names need; room is set, to what their records do */
    uint64_t seed;
    int hash_bits; /* that are told apart, for tests of equal hashes; 0: all; -1: none */
    int64_t n, limit;
    uint64_t text_bytes;  /* of all names */
    unsigned char *arena; /* records: number (4 bytes), length, name; each begins at a multiple of 4 */
    uint64_t room, used;
    uint64_t *slot; /* 28 bits of the hash, 36 of the record's place / 4, plus 1; 0: empty */
    uint64_t slots;
};

PST_API void pst_dict_init(struct pst_dict *d, uint64_t memory_bytes);

uint64_t pst_dict_hash(const struct pst_dict *d, struct pst_name name);

/* Asks for the memory that a later find or put of this hash reads first, and then for what it reads second.
 */
static inline void pst_dict_expect(const struct pst_dict *d, uint64_t hash)
{
    if (d->slots > 0)
        __builtin_prefetch(&d->slot[((hash & UINT32_MAX) * d->slots) >> 32]);
}
void pst_dict_expect_record(const struct pst_dict *d, uint64_t hash);

/* -1: it is not there. */
int64_t pst_dict_find(const struct pst_dict *d, uint64_t hash, struct pst_name name);

/* The name's number; a new one where it is new; -1: the memory is full (never of the first name). Fails:
 * PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_dict_put(struct pst_dict *d, uint64_t hash, struct pst_name name, int64_t *number);

/* The same where a full memory is an error: PST_E_LIMIT, saying what would do. */
PST_API PST_MUST_USE pst_rc pst_dict_add(struct pst_dict *d, const char *name, size_t bytes, int64_t *number);

/* The name whose record begins at *at, which goes on to the next; records begin at 0 and end at d->used. */
PST_API struct pst_name pst_dict_name(const struct pst_dict *d, uint64_t *at);

/* Writes the two arrays: where names begin, and their bytes. */
PST_MUST_USE pst_rc pst_dict_write(const struct pst_dict *d, struct pst_build *b, enum pst_array_id at_id,
                                   enum pst_array_id bytes_id);
PST_API void pst_dict_release(struct pst_dict *d);

PST_END_DECLS
#endif
