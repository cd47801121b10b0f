/* pieces.h: takes a table of requests apart. A piece is what one request, or a part of a large one, moves
 * between file and slot. Another process can write to the table while it is read, so each request is copied
 * once, checked, and used from the copy. Owner: the engine. Threads: one. */
#ifndef PST_PIECES_H
#define PST_PIECES_H

#include "stages/lib/io/engine.h"
#include "common/slots/request.h"

/* pieces that are sorted at once: enough to find neighbours, and bounded for any table */
#define PST_DISK_PIECES_MAX 32768

struct pst_disk_piece {
    uint64_t at; /* byte in the file */
    char *memory;
    uint64_t bytes;
    uint64_t tag;
    uint32_t file;
    bool write;
};

struct pst_disk_sort_key {
    uint64_t place; /* read or write, file, byte */
    uint32_t piece;
};

struct pst_disk_table {
    struct pst_disk_ticket *ticket;
    char *slot;
    uint64_t slot_bytes, at, count;
    const uint32_t *pick; /* numbers of `count` requests, counted from `at`; NULL: the first `count` */
    uint64_t next;        /* the next request, or its place in pick */
    uint64_t next_byte;   /* the next byte of that request */
};

struct pst_disk_pieces {
    const struct pst_request_array *arrays;
    const char *const *names; /* of the arrays */
    bool writable;
    uint64_t piece_bytes; /* most bytes of a piece; a multiple of PST_PAGE */
    uint32_t n;
    struct pst_disk_piece *piece;        /* PST_DISK_PIECES_MAX */
    struct pst_disk_sort_key *key, *aux; /* PST_DISK_PIECES_MAX; key is sorted */
};

PST_MUST_USE pst_rc pst_disk_pieces_new(struct pst_disk_pieces *p, const struct pst_disk_config *config);
void pst_disk_pieces_delete(struct pst_disk_pieces *p);

/* Takes a table apart from where it stopped, as far as there is room, and sorts the pieces by place. Counts
 * the rows. */
PST_MUST_USE pst_rc pst_disk_pieces_take(struct pst_disk_pieces *p, struct pst_disk_table *table,
                                         struct pst_disk_stats *stats);

/* Judges a copy of a request (pst_request_judge) and describes what is wrong. PST_E_FORMAT, PST_E_ARG. */
PST_API_TEST PST_MUST_USE pst_rc pst_disk_pieces_check(const struct pst_disk_pieces *p,
                                                       const struct pst_disk_table *table, uint64_t request,
                                                       const struct pst_request *r);

/* Describes what is wrong with one request of a table, for a backend that found it wrong. */
PST_MUST_USE pst_rc pst_disk_pieces_refuse(const struct pst_disk_pieces *p,
                                           const struct pst_disk_table *table, uint64_t request);

#endif
