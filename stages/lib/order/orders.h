/* orders.h: in which order the partitions of embeddings pass through a buffer, and in which order edge
 * buckets are trained. Edge bucket (s, d) has the edges from partition s to partition d. It can be trained
 * while both partitions are in the buffer (Marius, section 4).
 *
 * An order is a sequence of buffer states. An exchange leads from one state to the next: it writes the
 * evicted partitions and loads others into their places. Buckets are trained as late as their partitions
 * allow, so that as many exchanges as possible have something to train meanwhile (Legend, Algorithm 2,
 * completed).
 *
 * Owner: pst_order_build and pst_order_read fill what the caller owns; pst_order_release frees it. Threads:
 * any; the functions have no state. */
#ifndef PST_ORDERS_H
#define PST_ORDERS_H

#include "common/base.h"

struct json_t;

PST_BEGIN_DECLS

#define PST_ORDER_PARTITIONS_MAX 256
#define PST_ORDER_VERSION 1

enum pst_order_kind {
    PST_ORDER_BETA,              /* Marius, Algorithm 3 */
    PST_ORDER_HILBERT,           /* buckets along a Hilbert curve; Belady's eviction */
    PST_ORDER_HILBERT_SYMMETRIC, /* as HILBERT, but bucket (d, s) directly after (s, d) */
    PST_ORDER_COVER,  /* GE2: lines of the affine space over GF(4); every exchange loads 4 partitions */
    PST_ORDER_LEGEND, /* Legend, Algorithm 1 */
    PST_ORDER_AUTO,   /* a search for few exchanges that all overlap with training */
    PST_ORDER_KINDS,
};

struct pst_order_bucket {
    uint16_t source, destination;
};

struct pst_order {
    enum pst_order_kind kind;
    int partitions, buffer; /* buffer: partitions that it holds */
    /* Every exchange writes and loads the whole buffer, also partitions that stay (COVER). */
    bool reload;
    int64_t exchanges;
    uint16_t *state; /* (exchanges + 1) x buffer: the partition in each place of the buffer */
    /* All partitions^2 buckets, as they are trained. Group g is bucket[cut[g]] to bucket[cut[g + 1] - 1].
     * Group 0 comes before exchange 1. Group 2 i - 1 can be trained during exchange i (counted from 1), group
     * 2 i after it. */
    struct pst_order_bucket *bucket;
    int64_t *cut; /* 2 exchanges + 2 */
};

/* Builds an order. PST_E_ARG: the kind does not exist for these numbers, and the message says which would do;
 * PST_E_NOMEM. The same numbers always give the same order. */
PST_API PST_MUST_USE pst_rc pst_order_build(struct pst_order *o, enum pst_order_kind kind, int partitions,
                                            int buffer);
PST_API void pst_order_release(struct pst_order *o);

/* Moves what is trained during each exchange behind it. Then no exchange overlaps by itself, but every bucket
 * is trained with the whole buffer in memory. */
PST_API void pst_order_between_exchanges(struct pst_order *o);

/* Checks that every bucket is trained once, and while both of its partitions are in the buffer. PST_E_FORMAT:
 * the message says which is not. */
PST_API PST_MUST_USE pst_rc pst_order_verify(const struct pst_order *o);

struct pst_order_counts {
    int64_t swaps;          /* partitions loaded after the first fill */
    int64_t loads;          /* with the first fill */
    int64_t bound;          /* no order has fewer swaps (Marius, equation 2) */
    int64_t not_overlapped; /* exchanges without a bucket to train meanwhile */
    int64_t overlap;        /* buckets that can be trained during exchanges */
};
PST_API void pst_order_count(const struct pst_order *o, struct pst_order_counts *counts);

/* The machine that trains and exchanges. */
struct pst_order_machine {
    double edge_s;      /* seconds to train an edge */
    double write, read; /* bytes per second of the drive */
};

struct pst_order_overlap {
    double exchange_s;   /* writes a partition, and then reads one; COVER: all of the buffer */
    int64_t hidden;      /* exchanges during which training takes at least as long */
    int64_t least_edges; /* trained during an exchange */
    double waited_s;     /* that training waits for all exchanges of an epoch, the first fill not counted */
};

/* What overlaps with real buckets: exchange i does if edges x edge_s is at least exchange_s, where the edges
 * are those of group 2 i - 1 (Legend, section 4.2). bucket_edges: of each bucket, [source x partitions +
 * destination]. partition_bytes: embeddings and optimizer state. */
PST_API void pst_order_overlap(const struct pst_order *o, const int64_t *bucket_edges, double partition_bytes,
                               const struct pst_order_machine *m, struct pst_order_overlap *out);

/* Edges per vertex squared from which all exchanges overlap, if all buckets are equal, the buffer holds three
 * partitions and takes buffer_bytes, and a vertex has dim floats and as many of optimizer state: Legend,
 * Theorem 3, without rounding. The paper's numbers (1e-7 s, 2 and 3 GB/s, 15 GB, 100 floats) give 5.3e-7, not
 * its 1e-7. */
PST_API double pst_order_density(double dim, double buffer_bytes, const struct pst_order_machine *m);

/* The order as JSON: its kind, counts, states and groups. NULL: out of memory. The caller owns it. */
PST_API struct json_t *pst_order_to_json(const struct pst_order *o);
/* Writes that JSON, whole or not at all. */
PST_API PST_MUST_USE pst_rc pst_order_write(const struct pst_order *o, const char *path);
/* Reads and verifies it. PST_E_FORMAT: the message says what is wrong. */
PST_API PST_MUST_USE pst_rc pst_order_read(struct pst_order *o, const char *path);

/* A kind's name in commands and files, and back; -1: there is no such kind. */
PST_API const char *pst_order_kind_name(enum pst_order_kind kind);
PST_API int pst_order_kind_of(const char *name);

PST_END_DECLS
#endif
