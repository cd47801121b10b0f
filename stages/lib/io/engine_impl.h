/* engine_impl.h: the engine's state, as engine.c and groups.c see it. */
#ifndef PST_ENGINE_IMPL_H
#define PST_ENGINE_IMPL_H

#include "common/nvme/driver/dma.h"
#include "stages/lib/io/pieces.h"

#define PST_DISK_COALESCE_MAX (16u << 20)
#define OP_PIECES_MAX 256 /* rows merged into one operation: 128 KiB of sectors, a quarter of IOV_MAX */

/* An operation and what it brings. Its window is the pieces that the current transfer is for: all of them,
 * or after a failure one after the other, so that the one that fails is known. */
struct op {
    struct pst_io_op io; /* first: the backend hands it back */
    struct op *next;     /* free */
    struct pst_disk_ticket *ticket;
    uint32_t npieces, first, window;
    bool staged;
    int tries;
    uint64_t begin, end; /* of the window, in the file */
    uint64_t done;       /* bytes of it that have moved, from begin */
    char *staging;       /* where misaligned rows go first; else what lies between rows is dropped there */
    struct pst_disk_piece piece[OP_PIECES_MAX];
    struct iovec iov[2 * OP_PIECES_MAX]; /* with the gaps between them */
};

/* A part of a table that is with the backend, or came back and is taken apart here as far as it is left. */
struct pst_disk_group {
    struct pst_io_group io; /* first: the backend hands it back */
    struct pst_disk_table of;
    uint64_t first; /* request of the table */
    bool posted;
    struct pst_disk_group *next; /* free, or handed */
};

struct pst_disk_groups {
    struct pst_disk_group *all, *free, *handed, *handed_end;
    uint32_t *left; /* of all */
};

struct pst_disk {
    struct pst_disk_config config;
    struct pst_io_file files[PST_REQUEST_FILES_MAX]; /* config.nfiles of them */
    struct pst_io_backend backend;
    bool direct;
    struct pst_disk_stats stats;
    pst_rc failed;
    char failure[2048];
    /* tables in order of arrival; the head's pieces are being issued */
    struct pst_disk_table *tables;
    uint32_t head, ntables;
    struct pst_disk_pieces pieces;
    uint32_t next_piece; /* of pieces, in sorted order */
    struct op *ops, *free_ops;
    int in_flight, posted;
    double looked_at;              /* when the queue was last accounted for; 0: never */
    struct pst_disk_groups groups; /* none: all tables are taken apart here */
    char *staging;
    struct pst_nvme_dma shared; /* where it lies if the backend needs shared memory */
    uint64_t staging_bytes;     /* of one operation */
    uint64_t gap_bytes;
};

/* engine_config.c. PST_E_ARG, PST_E_LIMIT */
PST_MUST_USE pst_rc pst_disk_config_check(const struct pst_disk_config *c);

/* groups.c. For a backend that takes tables as they stand; without one, these find nothing to do. */
PST_MUST_USE pst_rc pst_disk_groups_new(struct pst_disk *d);
void pst_disk_groups_delete(struct pst_disk_groups *g);
void pst_disk_groups_post(struct pst_disk *d);
PST_MUST_USE pst_rc pst_disk_groups_take(struct pst_disk *d, bool *any);
/* The group at the head of those handed back is in operations now. */
void pst_disk_groups_done(struct pst_disk *d);
/* Nothing of what is posted waits for a slot to become whole any more. */
void pst_disk_groups_hurry(struct pst_disk *d);
/* The table at the head of those waiting has been dealt with. */
void pst_disk_drop_table(struct pst_disk *d);

#endif
