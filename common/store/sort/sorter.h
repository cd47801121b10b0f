/* sorter.h: sorts more keys than memory holds, by a sample sort. Splitters from a sample of the keys, or from
 * the first ones, divide all keys among buckets on disk, which are then sorted in memory one after another.
 * (Frazer and McKellar, "Samplesort", JACM 17, 1970.) A key is (high, low, tag), compared in that order: an
 * edge's target, source, and relation or weight (whose bits rise with it). Owner: the caller; new and free
 * pair. Free leaves no file behind, at any point; a kill leaves files only if the sorter can be resumed.
 * Threads: one calls it; it starts its own threads. */
#ifndef PST_SORTER_H
#define PST_SORTER_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_SORTER_ID_MAX                                                                                    \
    ((INT64_C(1) << 48) - 2)             /* 48 bits of high, 48 of low, 32 of tag; all ones: no key */
#define PST_SORTER_MEMORY_MIN (1u << 20) /* less makes buckets too short to read at once */
#define PST_SORTER_BLOCK 16384           /* keys that next gives at most: they stay in the cache */
#define PST_SORTER_SPILL "temp-edges.spill"

struct pst_sorter_spec {
    const char *dir;       /* where edges are written aside: 8 bytes each at most, 16 if wide, often 5 */
    uint64_t memory_bytes; /* of everything that it allocates */
    int threads;           /* 1: all in the caller's; more: parts and sorts beside it */
    bool dedupe;           /* equal keys are given once */
    bool tagged;           /* keys have a tag; else it must be 0 */
    bool named;            /* the file has a name in dir, so that pst_sorter_save can be resumed from */
};

struct pst_sorter;

/* Fails: PST_E_ARG below PST_SORTER_MEMORY_MIN, PST_E_NOMEM, PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_sorter_new(struct pst_sorter **out, const struct pst_sorter_spec *spec);

/* How many keys a sample of `keys` keys should have; 0: memory holds them all, and none is needed. */
PST_API int64_t pst_sorter_sample(const struct pst_sorter *s, int64_t keys);

/* Before the first key, if memory will not hold all keys: gives n keys of a sample, so that splitters divide
 * all keys well if the first ones are unlike the others, for example because they are sorted. Keys are then
 * written to the disk from the start. May be called several times. Keys beyond the room for a sample are left
 * out, and so are those of a call with an id of more than 32 bits. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_sorter_expect(struct pst_sorter *s, const int64_t *high, const int64_t *low,
                                              int64_t n);

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

/* Writes all keys that were added, or are still to be given, to the disk, and their places to dir/name. The
 * caller keeps name. Only for a named sorter that has parts (pst_sorter_parts). */
PST_MUST_USE pst_rc pst_sorter_save(struct pst_sorter *s, const char *name);

/* Loads a saved sorter. Keys that were added after the save are forgotten. If it was saved after finish,
 * first is the first bucket to give (pst_sorter_done at the save). Fails: PST_E_FORMAT when the file is
 * damaged, and as new does. */
PST_MUST_USE pst_rc pst_sorter_load(struct pst_sorter **out, const struct pst_sorter_spec *spec,
                                    const char *name, uint64_t first);
uint64_t pst_sorter_done(const struct pst_sorter *s); /* buckets that next gave whole */
bool pst_sorter_finished(const struct pst_sorter *s);

PST_API int64_t pst_sorter_parts(const struct pst_sorter *s); /* on disk; 0: all was in memory */
PST_API void pst_sorter_free(struct pst_sorter *s);

PST_END_DECLS
#endif
