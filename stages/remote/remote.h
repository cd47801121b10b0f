/* remote.h: the state of the stage `remote`, for its parts: remote.c (ports, parameters, events), round.c
 * (one exchange of rows with all ranks) and hot.c (cached rows of other parts).
 *
 * Owner: the runtime, which allocates it. Threads: one. */
#ifndef PST_REMOTE_H
#define PST_REMOTE_H

#include "common/util/memory.h"
#include "common/collective/collective.h"
#include "common/slots/minibatch.h"
#include "common/slots/request.h"
#include "common/stage.h"
#include "stages/lib/io/engine.h"

#define PST_REMOTE_PARTS_MAX (PST_HOPS_MAX + 2) /* of a slot that announce requests */

struct pst_remote_counts {
    uint64_t rounds, own_rows;
    uint64_t asked[PST_DATASET_PARTS_MAX], served[PST_DATASET_PARTS_MAX]; /* rows, by rank */
    uint64_t cached[PST_DATASET_PARTS_MAX],
        hits[PST_DATASET_PARTS_MAX]; /* rows of other ranks in the cache */
    double wait_s, read_s, rows_s;   /* until all ranks have told what they need; reading; exchanging rows */
};

/* The rows of other parts that the plan caches. */
struct pst_remote_hot {
    bool planned; /* there is a plan, on all ranks */
    int64_t n;
    int64_t *ids;            /* n vertices, ascending */
    char *rows;              /* one for each; then a table of requests, by which they are fetched */
    struct pst_cache *index; /* NULL: they are not there yet */
    void *index_memory;
    struct pst_memory_buffer asked, places; /* of a table: its vertices; hits and misses */
};

/* A row that is not cached: its vertex, and its place in the slot. */
struct pst_remote_want {
    uint64_t vertex, to;
};

struct pst_remote {
    struct pst_disk_config config; /* most of it is filled from the parameters */
    struct pst_dataset ds;
    struct pst_disk *engine;
    struct pst_collective *collective; /* NULL: there is one replica */
    int rank, ranks;                   /* of machines */
    int in, out;
    struct {
        uint64_t at, n;
    } part[PST_REMOTE_PARTS_MAX]; /* the tables of requests of the slot whose parts are coming */
    uint32_t parts;
    bool alone; /* a replica of another rank has left: batches stay where they are */
    struct pst_remote_hot hot;
    struct pst_memory_buffer wants;  /* of a slot: what is not cached */
    struct pst_memory_buffer ids;    /* what this rank asks of others: a word, and the vertices, by rank */
    struct pst_memory_buffer to;     /* where each row belongs in the slot: own rows first, then as in ids */
    struct pst_memory_buffer asked;  /* what the others ask of this one */
    struct pst_memory_buffer served; /* a table of requests, and the rows: own rows first */
    struct pst_memory_buffer rows;   /* that the others have sent */
    struct pst_remote_counts counts;
};

/* round.c. Brings the requested rows into a slot of so many bytes, together with all ranks, which call this
 * function at the same time. slot NULL: this rank needs no rows. last: it has no further slots of the batch.
 * *all: no rank has. PST_E_INTERRUPTED: another rank's replica has left. PST_E_FORMAT: a request is wrong.
 * Other errors are those of the engine and of pst_collective_all_to_all. */
PST_MUST_USE pst_rc pst_remote_round(struct pst_remote *r, void *slot, uint64_t bytes, bool last, bool *all);
void pst_remote_release_rooms(struct pst_remote *r);

/* The rank that has the row of a vertex. A whole dataset belongs to each rank. */
static inline int pst_remote_owner_of(const struct pst_remote *r, uint64_t vertex)
{
    const struct pst_dataset_cut *cut = &r->ds.cut;
    int part = 0;
    if (cut->parts == 0)
        return r->rank;
    while (vertex >= (uint64_t)cut->first[part + 1])
        part++;
    return part;
}

/* ---- hot.c ------------------------------------------------------------------------------------------ */

/* Reads from a plan which rows are cached. path NULL: there is no plan. PST_E_ARG: it is of another dataset.
 * Other errors are those of pst_plan_read. */
PST_MUST_USE pst_rc pst_remote_hot_read(struct pst_remote *r, const char *path);
/* Takes memory for them. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_remote_hot_open(struct pst_remote *r);
/* Brings the rows, in rounds, together with all ranks. Errors are those of pst_remote_round. */
PST_MUST_USE pst_rc pst_remote_hot_fetch(struct pst_remote *r);
/* Copies the cached rows of a table of n requests, which were checked, to the slot. *left gets the positions
 * of the *misses other requests; NULL: all requests are left. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_remote_hot_take(struct pst_remote *r, char *slot, const struct pst_request *table,
                                        int64_t n, const int32_t **left, int64_t *misses);
void pst_remote_hot_release(struct pst_remote_hot *hot);

#endif
