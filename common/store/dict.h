/* dict.h: names to numbers, in the order in which they came, within a bound of memory.
 * Owner: the caller; init and release pair. Threads: one. */
#ifndef PST_STORE_DICT_H
#define PST_STORE_DICT_H

#include "build.h"

PST_BEGIN_DECLS

#define PST_NAME_BYTES_MAX 65535 /* one name: longer than any id, URI or title */

struct pst_dict {
    uint64_t memory_bytes, used;
    int64_t n;
    int64_t *at; /* n + 1: where each name begins in bytes */
    int64_t at_room;
    char *bytes;
    int64_t bytes_room;
    int64_t *slot; /* hash table: number + 1; 0: empty */
    uint64_t slots;
};

PST_API void pst_dict_init(struct pst_dict *d, uint64_t memory_bytes);

/* The name's number; a new one where it is new. Fails: PST_E_LIMIT past the memory, saying what would do. */
PST_API PST_MUST_USE pst_rc pst_dict_add(struct pst_dict *d, const char *name, size_t bytes, int64_t *number);

/* -1: it is not there. */
PST_API int64_t pst_dict_find(const struct pst_dict *d, const char *name, size_t bytes);

/* Writes the two arrays: where names begin, and their bytes. */
PST_API PST_MUST_USE pst_rc pst_dict_write(const struct pst_dict *d, struct pst_build *b,
                                           enum pst_array_id at_id, enum pst_array_id bytes_id);
PST_API void pst_dict_release(struct pst_dict *d);

PST_END_DECLS
#endif
