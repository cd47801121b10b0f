/* names.h: numbers for more names than memory holds, in the order in which the names first come.
 *
 * Names are numbered in memory (dict.h) until it is full. From then on, a mention of a name in memory is put
 * aside as its number. Any other goes to one of up to 255 streams, by its hash. One byte a mention says which
 * (a hybrid hash join: DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD
 * 1984). A stream keeps the order of its mentions, so nothing is sorted. The names of each stream are
 * numbered by themselves. If they do not fit, they are divided by another hash. One pass over the bytes
 * numbers all names by their first mention, and a second gives each mention its number.
 *
 *     add, add, ...: numbers while all fit, then put aside
 *     if (pst_names_aside): find, order, number; then next, next, ...
 *
 * Owner: the caller; new or load pairs with free, which leaves no file behind. A kill leaves files only if
 * they are named. Threads: one calls; find and number start spec.threads threads. */
#ifndef PST_NAMES_H
#define PST_NAMES_H

#include "common/store/names/dict.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

#define PST_NAMES_PARTS_MAX 255          /* and one value of a byte for names that are in memory */
#define PST_NAMES_DEPTH_MAX 16           /* each parts by 4 at the least, by 255 as a rule */
#define PST_NAMES_MEMORY_MIN (16u << 10) /* 4 streams, and some names */

struct pst_names_spec {
    const char *dir;       /* where mentions are put aside */
    bool named;            /* files there have names, so that pst_names_state can be gone on from */
    uint64_t memory_bytes; /* of everything; a name of more than a block can take as much as itself, once a
                              stream */
    int threads;
    int row;          /* mentions that are numbered or put aside together; adds are of whole rows */
    int hash_bits;    /* for tests (dict.h); 0: all */
    int depth;        /* how often these names were parted before */
    const bool *stop; /* checked now and then by what runs in other threads; NULL: none */
    /* Called now and then by find, order and number, and, with must, when what was put aside before is about
     * to be removed: the caller notes pst_names_state first. NULL: none. */
    pst_rc (*note)(void *ctx, bool must);
    void *ctx;
    struct pst_progress *progress; /* NULL: silent */
};

enum pst_names_step { PST_NAMES_ADDING, PST_NAMES_FINDING, PST_NAMES_NUMBERING, PST_NAMES_GIVING };

struct pst_names;

/* Fails: PST_E_LIMIT below PST_NAMES_MEMORY_MIN, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_names_new(struct pst_names **out, const struct pst_names_spec *spec);

/* n mentions, in order. The numbers of the first *known of them go to id; the rest, and all from then on, are
 * put aside. Fails: PST_E_IO (a full disk says so), PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_names_add(struct pst_names *n, const struct pst_name *name, size_t count,
                                          int64_t *id, size_t *known);
PST_API bool pst_names_aside(const struct pst_names *n); /* something was put aside */
PST_API uint64_t pst_names_mentions_aside(const struct pst_names *n);
const struct pst_dict *pst_names_dict(const struct pst_names *n); /* those in memory, while adding */
PST_API enum pst_names_step pst_names_step(const struct pst_names *n);

/* Ends adding: numbers each stream's names. Then the names' count, and the bytes of all, are known. */
PST_API PST_MUST_USE pst_rc pst_names_find(struct pst_names *n);
PST_API int64_t pst_names_count(const struct pst_names *n, uint64_t *text_bytes);

/* Gives every name, by rising number; mention: where it first comes, of those that were put aside, from 0;
 * -1: before them. */
typedef pst_rc (*pst_names_fn)(void *ctx, int64_t mention, struct pst_name name);
PST_API PST_MUST_USE pst_rc pst_names_order(struct pst_names *n, pst_names_fn fn, void *ctx);

/* The same, to the two arrays (write.c). *early: how many names come before mention `until` of those
 * that were put aside; NULL: nobody asks. */
PST_MUST_USE pst_rc pst_names_write(struct pst_names *n, struct pst_build *b, enum pst_array_id at_id,
                                    enum pst_array_id bytes_id, int64_t until, int64_t *early);

PST_API PST_MUST_USE pst_rc pst_names_number(struct pst_names *n);

/* The next mentions' numbers, in the order of the adds; *n is 0 at the end. */
PST_API PST_MUST_USE pst_rc pst_names_next(struct pst_names *names, int64_t *id, size_t want, size_t *n);

/* What is done, once something was put aside; and a set of names that goes on from there. In step ADDING, or
 * with `again`, no name is in memory: the caller adds, from the first mention on, until all are that were
 * (pst_names_ready), and takes their numbers or not; only then it adds what was not put aside before. Fails:
 * PST_E_FORMAT, PST_E_IO, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_names_state(struct pst_names *n, json_t **state);
PST_API PST_MUST_USE pst_rc pst_names_load(struct pst_names **out, const struct pst_names_spec *spec,
                                           const json_t *state, bool again);
PST_API bool pst_names_ready(const struct pst_names *n);

/* Named files stay, so that an import can go on. The maker of their directory removes them. */
PST_API void pst_names_free(struct pst_names *n);

PST_END_DECLS
#endif
