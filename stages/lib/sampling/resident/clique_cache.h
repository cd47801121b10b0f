/* clique_cache.h: the caches of a clique (Legion, section 4.2): feature rows and lists of neighbours that
 * this sampler, and other replicas of it, keep in memory that all of the clique can read (pst_shared_of). A
 * row or list that no replica of the clique has is read from the host: rows from the CPU tier, or else by the
 * disk stage; lists from the graph. Everything is counted by the replica that it came from.
 *
 * Owner: the caller; pst_sampling_resident_release frees what the struct allocated, but not the shared
 * memory. Threads: the stage's own. */
#ifndef PST_SAMPLING_CLIQUE_CACHE_H
#define PST_SAMPLING_CLIQUE_CACHE_H

#include "stages/lib/cache/cache_rows.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/topology/lists.h"

PST_BEGIN_DECLS

struct pst_stage;
struct pst_dataset;
struct pst_device;

#define PST_SAMPLING_RESIDENT_PARTS (PST_PLAN_REPLICAS_MAX + 1)

/* What was read, by where it came from: from[k] from member k of the clique. */
struct pst_sampling_resident_counts {
    uint64_t rows[PST_PLAN_REPLICAS_MAX], rows_host, rows_disk;
    uint64_t edges[PST_PLAN_REPLICAS_MAX], edges_host; /* drawn from lists */
    uint64_t lines_host; /* lines of memory that the host's lists took, with their offsets */
};

struct pst_sampling_resident {
    int members;                        /* of the clique; 0: the plan has no shared caches */
    int replica[PST_PLAN_REPLICAS_MAX]; /* of each member; member 0 is this replica, others ascend */
    struct pst_cache_rows rows[PST_SAMPLING_RESIDENT_PARTS]; /* of each member; then the CPU tier */
    struct pst_topology_lists lists[PST_PLAN_REPLICAS_MAX];
    /* Row i of the index is row i - rows_first[k] of part k, if it is below rows_first[k + 1]. The part after
     * the members is the CPU tier. And so for lists, which have no such part. */
    struct pst_cache *rows_index, *lists_index;
    int64_t rows_first[PST_SAMPLING_RESIDENT_PARTS + 1], lists_first[PST_SAMPLING_RESIDENT_PARTS + 1];
    const struct pst_csc *graph; /* the host's lists */
    int64_t line_bytes;
    void *index_memory[2];
    int32_t *pos, *row;                              /* scratch for the rows of one part */
    int64_t *line;                                   /* scratch for the lines of one list */
    struct pst_sampling_resident_counts count, open; /* of complete micro-batches; of the one being made */
};

/* The vertices whose rows, or lists, the plan gives to a replica. Returns how many. */
int64_t pst_sampling_resident_rows_of(const struct pst_plan *plan, int replica, const int64_t **ids);
int64_t pst_sampling_resident_lists_of(const struct pst_plan *plan, int replica, const int64_t **ids);

/* Begins *r for replica `own`: its clique, and where the rows and lists of each member begin in the index. */
void pst_sampling_resident_begin(struct pst_sampling_resident *r, const struct pst_plan *plan, int own);

/* The ids of the index of rows, or of lists, in the order of the index. *ids is allocated. If an id comes
 * twice, the first place counts. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_sampling_resident_ids(const struct pst_sampling_resident *r,
                                              const struct pst_plan *plan, bool rows, int64_t **ids,
                                              int64_t *n);

/* Bytes that the replica shares: its rows and lists, and with replica 0 the CPU tier. PST_E_FORMAT: the plan
 * does not fit the graph. */
PST_MUST_USE pst_rc pst_sampling_resident_bytes(const struct pst_plan *plan, int replica,
                                                const struct pst_csc *graph, uint64_t stride_bytes,
                                                uint64_t *bytes);

/* owner: this instance fills the replica's memory; the others of the replica map it. vertices_max,
 * edges_max: of a micro-batch, and of a hop of it. plan: is not needed afterwards. PST_E_NOMEM, PST_E_IO,
 * PST_E_FORMAT. */
PST_MUST_USE pst_rc pst_sampling_resident_load(struct pst_sampling_resident *r, struct pst_stage *self,
                                               bool owner, const struct pst_plan *plan,
                                               const struct pst_dataset *ds, const struct pst_csc *graph,
                                               int64_t vertices_max, int64_t edges_max);
void pst_sampling_resident_release(struct pst_sampling_resident *r);

/* Copies rows that the index found to `to`: row[i] to place pos[i] of stride_bytes. Counts them. */
void pst_sampling_resident_gather(struct pst_sampling_resident *r, const int32_t *row, const int32_t *pos,
                                  int64_t n, char *to, uint64_t stride_bytes, uint64_t row_bytes);

/* The member that has list `list` of the index; *list becomes its number there. */
int pst_sampling_resident_list(const struct pst_sampling_resident *r, int32_t *list);

/* Counts the lines that reading n entries at places at[0..n) of indices, and the two offsets of vertex v,
 * take from the host. */
void pst_sampling_resident_count(struct pst_sampling_resident *r, int64_t v, const int64_t *at, int64_t n);

/* The micro-batch is complete, or was given up: what was counted for it is kept or forgotten. */
void pst_sampling_resident_end(struct pst_sampling_resident *r, bool complete);

/* Adds the counts to the report. */
PST_MUST_USE pst_rc pst_sampling_resident_report(const struct pst_sampling_resident *r,
                                                 struct pst_stage *self, uint64_t stride_bytes);

PST_END_DECLS
#endif
