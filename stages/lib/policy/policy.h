/* policy.h: which feature rows a cache of a fixed number of lines keeps, batch after batch. A policy decides
 * in batch order and with keyed random numbers, so its decisions do not depend on timing. The stage `cache`
 * and `penstock replay` make the same ones.
 *
 * A batch *enters* when its vertices become known, and is *decided* when its rows are needed. With a window
 * W, batch b is decided when batch b + W has entered (GIDS: Park et al., VLDB 2024, section 3.4).
 *
 * Owner: the caller owns struct pst_policy (pst_policy_new, pst_policy_free). It borrows the hotness.
 * Threads: one. */
#ifndef PST_POLICY_H
#define PST_POLICY_H

#include "common/base.h"

PST_BEGIN_DECLS

enum pst_policy_kind {
    PST_POLICY_RANDOM,    /* a miss takes a free line, else a random one that its batch does not use (BaM) */
    PST_POLICY_WINDOW,    /* the same, but never a line that a batch of the window uses (GIDS) */
    PST_POLICY_SIEVE,     /* Zhang et al., NSDI 2024 */
    PST_POLICY_S3FIFO,    /* Yang et al., SOSP 2023 */
    PST_POLICY_STATIC,    /* the hottest rows, for ever */
    PST_POLICY_LOOKAHEAD, /* the rows that the window uses soonest, then the hottest */
    PST_POLICY_LRU,       /* the rows that were used last */
    PST_POLICY_BELADY,    /* the rows that the whole trace, or the rest of a super-batch, uses soonest */
    PST_POLICY_KINDS
};
#define PST_POLICY_CHOICES                                                                                   \
    "random|window|sieve|s3fifo|static|lookahead|lru|belady" /* in this order                                \
                                                              */

#define PST_POLICY_WINDOW_MAX                                                                                \
    63                            /* a vertex has one bit for each batch of the window, and one for its own  \
                                   */
#define PST_POLICY_SUPER_MAX 4096 /* batches of a super-batch */
#define PST_POLICY_LINES_MAX INT32_MAX
#define PST_POLICY_NEVER UINT64_MAX /* no later batch is known to use the vertex */

PST_API const char *pst_policy_name(enum pst_policy_kind kind);
/* False: there is no policy of this name. */
PST_API bool pst_policy_find(const char *name, enum pst_policy_kind *kind);
/* Whether the policy looks at batches before they are decided. */
PST_API bool pst_policy_looks_ahead(enum pst_policy_kind kind);

struct pst_policy_config {
    enum pst_policy_kind kind;
    uint64_t seed;
    int64_t lines; /* 0 to PST_POLICY_LINES_MAX */
    int window;    /* 0 to PST_POLICY_WINDOW_MAX; other policies than window and lookahead ignore it */
    /* belady: most batches of a super-batch. They all enter before the first is decided, and then
     * pst_policy_forget comes. 0: pst_policy_batch.next says when each vertex is used next */
    int super_batch;
    int64_t batch_max;    /* vertices of the largest batch */
    const float *hotness; /* of every vertex; for static and lookahead. NULL: all are equally hot */
    int64_t vertices;     /* of the graph; for static */
};

struct pst_plan;

/* Reads the plan's scores of feature rows (its hotness.npy) for a policy. path: of plan.json. buffered: rows
 * that the plan caches never come to the policy, and get 0. *hotness is allocated, one for each vertex.
 * PST_E_NOMEM, PST_E_ARG: the file does not fit the plan. */
PST_API PST_MUST_USE pst_rc pst_policy_hotness(const struct pst_plan *plan, const char *path, bool buffered,
                                               float **hotness);

struct pst_policy;

/* PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_policy_new(struct pst_policy **out, const struct pst_policy_config *config);
PST_API void pst_policy_free(struct pst_policy *p);

/* A batch, or a micro-batch of one: a policy treats both alike. */
struct pst_policy_batch {
    uint64_t batch;
    uint32_t micro;
    const int64_t *ids;   /* each vertex once, none negative */
    int64_t n;            /* at most batch_max */
    const uint64_t *next; /* BELADY without super-batches: when each vertex is used next, as a number that
                             grows, or PST_POLICY_NEVER */
};

/* The vertices of a batch become known. At most window + 1 batches have entered and are not decided. */
PST_API void pst_policy_enter(struct pst_policy *p, const int64_t *ids, int64_t n);

/* Decides the oldest batch that has entered. hit[i]: the line that has the row of ids[i], or -1: it is read.
 * keep[i]: the line that the read row goes to, or -1: it is not kept. All hits are copied from their lines
 * before any line gets a new row. Returns the number of hits. */
PST_API int64_t pst_policy_decide(struct pst_policy *p, const struct pst_policy_batch *b, int32_t *hit,
                                  int32_t *keep);

/* BELADY: a super-batch has been decided. All lines become free, as Ginex fills its cache anew for each
 * (Park et al., VLDB 2022). */
PST_API void pst_policy_forget(struct pst_policy *p);

/* How often a row has lost its line to another. */
PST_API uint64_t pst_policy_evictions(const struct pst_policy *p);

/* STATIC: the vertex of each line, from the start; *n: lines in use. */
PST_API const int64_t *pst_policy_lines(const struct pst_policy *p, int64_t *n);

/* The memory that the policy has allocated. */
PST_API uint64_t pst_policy_bytes(const struct pst_policy *p);

PST_END_DECLS
#endif
