/* placement.h: what goes where: which lists of neighbours (topology) and which rows (features) are kept in
 * GPU memory and in CPU memory, and which stay on the SSD. From Hyperion, section III-B2; README.md has the
 * decisions that the paper leaves open.
 *
 * The room is pure: it opens no file and has no port. First pst_placement_open sorts the vertices by hotness
 * and cuts both queues into chunks; this takes seconds for 10^8 vertices. Then pst_placement_solve places the
 * chunks, once for each policy that is of interest; this takes milliseconds.
 *
 * Owner: the caller; pst_placement_close and pst_placement_plan_release release what the functions allocate.
 * Threads: one thread for each placement; open starts threads of its own and joins them. */
#ifndef PST_PLACEMENT_H
#define PST_PLACEMENT_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_PLACEMENT_CHUNKS_MAX (1 << 16)  /* of both queues together; chunks grow if there would be more */
#define PST_PLACEMENT_CHUNK_BYTES 100000000 /* chunks of caches that hold at least 256 of them */

enum pst_placement_kind { PST_PLACEMENT_LISTS, PST_PLACEMENT_ROWS, PST_PLACEMENT_KINDS };

/* HOME: where the data is if no cache has it, on the SSD. Lists may instead be in CPU memory
 * (lists_in_memory). */
enum pst_placement_tier { PST_PLACEMENT_HOME, PST_PLACEMENT_CPU, PST_PLACEMENT_GPU, PST_PLACEMENT_TIERS };

/* How transactions are counted. H: hotness, N: bytes of the list or row. */
enum pst_placement_cost {
    PST_PLACEMENT_PAPER,  /* ceil(H N / line), as printed */
    PST_PLACEMENT_ACCESS, /* H ceil(N / line) */
    PST_PLACEMENT_EXACT,  /* the lines that the draws touch, and those of indptr */
};

enum pst_placement_policy {
    PST_PLACEMENT_PAPER_DP, /* the paper's: first the best chunks for the GPU, then for the CPU */
    PST_PLACEMENT_GTCT,     /* G, C: the GPU's, the CPU's cache; T, F: lists or rows fill it first */
    PST_PLACEMENT_GTCF,
    PST_PLACEMENT_GFCT,
    PST_PLACEMENT_GFCF,
    PST_PLACEMENT_HYBRID, /* each cache is split by a given share */
    PST_PLACEMENT_JOINT,  /* both tiers at once */
    PST_PLACEMENT_POLICIES,
};

enum pst_placement_objective { PST_PLACEMENT_TRANSACTIONS, PST_PLACEMENT_TIME };

/* What pst_placement_open reads. Hotness is counted over `batches` batches. */
struct pst_placement_input {
    int64_t vertices;      /* at most 2^32 - 1 */
    const int64_t *indptr; /* vertices + 1; read in order, then by hotness */
    uint32_t entry_bytes;  /* of a list's entry: 4 or 8 */
    uint32_t list_bytes;   /* that a cached list takes besides its entries, for its place */
    int hops;
    const float *lists[PST_HOPS_MAX];          /* batches that read a vertex's list in this hop */
    int64_t fanout[PST_HOPS_MAX];              /* -1: whole lists; 0: no list is read in this hop */
    bool replace;                              /* draws are with replacement */
    const float *rows;                         /* batches that read a vertex's row; NULL: there are no rows */
    uint64_t row_bytes;                        /* from one row to the next */
    int row_files;                             /* row v is row v / row_files of its file */
    uint64_t cache_bytes[PST_PLACEMENT_TIERS]; /* HOME's is not read */
    uint64_t chunk_bytes;  /* 0: as the paper; the real size is pst_placement.chunk_bytes */
    uint32_t line_bytes;   /* of a PCIe transaction (CLS); a power of two from 16 to 512 */
    uint32_t sector_bytes; /* smallest read of the SSD (SSDS); a power of two, >= a line */
    bool lists_in_memory;  /* lists are in CPU memory and need no CPU cache */
    enum pst_placement_cost cost;
    int64_t batches;
    int threads; /* at most PST_PLACEMENT_THREADS_MAX */
};
#define PST_PLACEMENT_THREADS_MAX 16

/* The vertices of one kind, hottest first, ties by id. Chunk i has order[cut[i]] to order[cut[i + 1] - 1]. */
struct pst_placement_queue {
    uint32_t *order;
    int64_t queued; /* vertices in order */
    int64_t chunks;
    int64_t *cut;
    double *heat, *cpu,
        *home; /* a chunk's reads, and its transactions, if it is in this tier; in all batches */
    /* Lists that are longer than a chunk are never cached. */
    int64_t left;
    double left_heat, left_cpu, left_home;
};

struct pst_placement {
    struct pst_placement_queue queue[PST_PLACEMENT_KINDS];
    uint64_t chunk_bytes;
    int64_t room[PST_PLACEMENT_TIERS]; /* chunks that fit into this tier's cache; HOME: not used */
    int64_t batches;
    bool lists_in_memory;
};

/* PST_E_ARG: the input is wrong, and the message says where; PST_E_LIMIT: too many vertices; PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_placement_open(struct pst_placement *p, const struct pst_placement_input *in);
PST_API void pst_placement_close(struct pst_placement *p);

/* Gives the chunks what they cost with other hotness: that of in->lists and in->rows over in->batches.
 * Vertices stay in their chunks, so pst_placement_count then counts an earlier plan by what really was read.
 * The rest of `in` must be that of pst_placement_open. PST_E_ARG, PST_E_NOMEM: p is not changed. */
PST_API PST_MUST_USE pst_rc pst_placement_reweigh(struct pst_placement *p,
                                                  const struct pst_placement_input *in);

/* The machine, for PST_PLACEMENT_TIME. Rates are transactions of line_bytes a second. */
struct pst_placement_machine {
    double ssd_per_s; /* all SSDs together */
    double pcie_per_s;
    double lookup_s; /* what lookup adds to the SSDs' time (alpha in equation 4) */
    double train_s;  /* training of a batch */
};

struct pst_placement_ask {
    enum pst_placement_policy policy;
    enum pst_placement_objective objective;      /* only the joint policy looks at it */
    double lists_share[PST_PLACEMENT_TIERS];     /* HYBRID: the lists' part of this cache, 0 to 1 */
    const struct pst_placement_machine *machine; /* NULL: times are not computed; TIME needs it */
};

struct pst_placement_plan {
    uint8_t *tier[PST_PLACEMENT_KINDS]; /* of each chunk; allocated */
    /* a batch's: */
    double ssd[PST_PLACEMENT_KINDS], cpu[PST_PLACEMENT_KINDS]; /* transactions from the SSD and CPU memory */
    double reads[PST_PLACEMENT_KINDS][PST_PLACEMENT_TIERS]; /* lists or rows that are read from each tier */
    double ssd_s, pcie_s, batch_s;                          /* times of equation 4, if the machine is given */
    /* The objective, which the joint policy minimises, and a lower bound of what any placement of these
     * chunks reaches: transactions, or seconds. Other policies have no bound: 0. */
    double value, bound;
};

PST_API PST_MUST_USE pst_rc pst_placement_solve(const struct pst_placement *p,
                                                const struct pst_placement_ask *ask,
                                                struct pst_placement_plan *plan);
PST_API void pst_placement_plan_release(struct pst_placement_plan *plan);

/* Counts what the plan's tiers would cost in p, which may use another way to count transactions than the
 * placement that the plan was made with. p must have the same chunks. machine: NULL, or for the times. */
PST_API void pst_placement_count(const struct pst_placement *p, const struct pst_placement_machine *machine,
                                 struct pst_placement_plan *plan);

/* Vertices whose list or row the plan puts into this cache: *ids is allocated and has them hottest first. */
PST_API PST_MUST_USE pst_rc pst_placement_ids(const struct pst_placement *p,
                                              const struct pst_placement_plan *plan,
                                              enum pst_placement_kind kind, enum pst_placement_tier tier,
                                              int64_t **ids, int64_t *n);

/* A policy's name in a pipeline and back; -1: there is no such policy. */
PST_API const char *pst_placement_policy_name(enum pst_placement_policy policy);
PST_API int pst_placement_policy_of(const char *name);

PST_END_DECLS
#endif
