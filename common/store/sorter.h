/* sorter.h: sorts more keys than memory holds: runs are sorted in memory, spilled to one unlinked file, and
 * merged. A key is (high, low, tag), compared in that order: an edge's target, source and relation.
 * Owner: the caller; new and free pair, and free at any point leaves nothing behind, as does a kill.
 * Threads: one calls it; it starts threads of its own. */
#ifndef PST_STORE_SORTER_H
#define PST_STORE_SORTER_H

#include "../base.h"

PST_BEGIN_DECLS

#define PST_SORTER_ID_MAX                                                                                    \
    ((INT64_C(1) << 48) - 2)             /* 48 bits of high, 48 of low, 32 of tag; all ones: no key */
#define PST_SORTER_MEMORY_MIN (1u << 20) /* less makes runs too short to merge */
#define PST_SORTER_BLOCK 16384           /* keys that next gives at most: they stay in the cache */

struct pst_sorter_spec {
    const char *dir;       /* where the spill file is made; its file system needs 8 bytes a key, 16 if wide */
    uint64_t memory_bytes; /* of everything that it allocates */
    int threads;           /* 1: sorts in the caller's; more: sorts and merges beside it */
    bool dedupe;           /* equal keys are given once */
    bool tagged;           /* keys have a tag; else it must be 0 */
};

struct pst_sorter;

/* Fails: PST_E_ARG below PST_SORTER_MEMORY_MIN, PST_E_NOMEM, PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_sorter_new(struct pst_sorter **out, const struct pst_sorter_spec *spec);

/* Adds n keys; ids from 0 to PST_SORTER_ID_MAX. tag may be NULL unless tagged. Fails: PST_E_IO (a full disk
 * says so), PST_E_LIMIT for an id past the limit. */
PST_API PST_MUST_USE pst_rc pst_sorter_add(struct pst_sorter *s, const int64_t *high, const int64_t *low,
                                           const int32_t *tag, int64_t n);

/* Ends adding. *distinct: how many keys next will give, or -1 when only next can tell (dedupe, spilled). */
PST_API PST_MUST_USE pst_rc pst_sorter_finish(struct pst_sorter *s, int64_t *distinct);

/* Gives the next keys, ascending; *n is 0 at the end. The arrays have room for PST_SORTER_BLOCK; tag may be
 * NULL unless tagged. */
PST_API PST_MUST_USE pst_rc pst_sorter_next(struct pst_sorter *s, int64_t *high, int64_t *low, int32_t *tag,
                                            int64_t *n);

PST_API int64_t pst_sorter_runs(const struct pst_sorter *s); /* that were spilled; 0: all was in memory */
PST_API void pst_sorter_free(struct pst_sorter *s);

PST_END_DECLS
#endif
