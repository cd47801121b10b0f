/* engine_impl.h: the state of the engine, shared by engine.c, engine_config.c and groups.c.
 * Owner: pst_disk_new makes it, pst_disk_free frees it. Threads: the one that drives the engine. */
#ifndef PST_ENGINE_IMPL_H
#define PST_ENGINE_IMPL_H

#include "common/nvme/driver/dma.h"
#include "common/stage.h"
#include "stages/lib/io/pieces.h"

#define PST_DISK_COALESCE_MAX (16u << 20)
#define OP_PIECES_MAX 256 /* rows merged into one operation: 128 KiB of sectors, a quarter of IOV_MAX */

/* An operation and its pieces. Its window is the pieces of the current transfer: all, or, after failures, one
 * after the other, so that the failing piece is known. */
struct op {
    struct pst_io_op io; /* first: the backend returns a pointer to it */
    struct op *next;     /* in the free list */
    struct pst_disk_ticket *ticket;
    uint32_t npieces, first, window;
    bool staged;
    int tries;
    uint64_t begin, end; /* bytes of the file that the window covers */
    uint64_t done;       /* bytes moved, from begin on */
    char *staging;       /* memory for misaligned rows, or for bytes between rows, which are dropped */
    struct pst_disk_piece piece[OP_PIECES_MAX];
    struct iovec iov[2 * OP_PIECES_MAX]; /* rows and the gaps between them */
};

/* A part of a table that is with the backend, or that has come back with requests for the engine. */
struct pst_disk_group {
    struct pst_io_group io; /* first: the backend returns a pointer to it */
    struct pst_disk_table of;
    uint64_t first; /* its first request's number in the table */
    bool posted;
    struct pst_disk_group *next; /* in the free list, or in the list of handed ones */
};

struct pst_disk_groups {
    struct pst_disk_group *all, *free, *handed, *handed_end;
    uint32_t *left; /* memory of `left` of all groups */
};

struct pst_disk {
    struct pst_disk_config config; /* its depth is that of `depth` */
    struct pst_disk_depth depth;
    struct pst_io_file files[PST_REQUEST_FILES_MAX]; /* config.nfiles of them */
    struct pst_io_backend backend;
    bool direct;
    struct pst_disk_stats stats;
    pst_rc failed;
    char failure[2048];
    /* tables in order of arrival; the pieces of the first become operations */
    struct pst_disk_table *tables;
    uint32_t head, ntables;
    struct pst_disk_pieces pieces;
    uint32_t next_piece; /* the next of the sorted pieces */
    struct op *ops, *free_ops;
    int nfree;    /* of ops */
    bool in_wave; /* ops are posted until all are, or until no table waits */
    int in_flight, posted;
    double looked_at;              /* time of the last account(); 0: never */
    struct pst_disk_groups groups; /* none if the backend takes no groups */
    char *staging;
    struct pst_nvme_dma shared; /* the staging memory, if the backend needs shared memory */
    uint64_t staging_bytes;     /* of one operation */
    uint64_t gap_bytes;
};

/* engine_config.c. Uses the configuration's depth, or chooses one. */
struct pst_disk_depth pst_disk_depth_choose(const struct pst_disk_config *c);

/* engine_config.c. PST_E_ARG, PST_E_LIMIT */
PST_MUST_USE pst_rc pst_disk_config_check(const struct pst_disk_config *c);

/* groups.c. For a backend that takes groups; with another backend these do nothing. */
PST_MUST_USE pst_rc pst_disk_groups_new(struct pst_disk *d);
void pst_disk_groups_delete(struct pst_disk_groups *g);
void pst_disk_groups_post(struct pst_disk *d);
PST_MUST_USE pst_rc pst_disk_groups_take(struct pst_disk *d, bool *any);
/* Removes the first of the handed groups, whose requests are operations now. */
void pst_disk_groups_done(struct pst_disk *d);
/* Makes the slots of all posted groups whole, so that the backend waits for none. */
void pst_disk_groups_hurry(struct pst_disk *d);
/* Removes the first of the waiting tables. */
void pst_disk_drop_table(struct pst_disk *d);

#endif
