/* request.h: what a stage asks of the disk stage. A slot that passes through the disk carries a table of
 * these; the frame's arg[0] is the table's byte offset in the slot, arg[1] how many this part adds. */
#ifndef PST_REQUEST_H
#define PST_REQUEST_H

#include "common/base.h"

enum pst_request_op { PST_REQUEST_READ = 0, PST_REQUEST_WRITE = 1 };

/* Which array of the dataset; rows are what its manifest says (features: stride_bytes each). */
enum pst_request_array { PST_ARRAY_FEATURES = 0, PST_ARRAY_INDPTR = 1, PST_ARRAY_INDICES = 2 };

/* 32 bytes. Moves `rows` rows from `row` on, between the array and the slot at byte `offset`. */
struct pst_request {
    uint16_t op;    /* enum pst_request_op */
    uint16_t array; /* enum pst_request_array */
    uint32_t rows;
    uint64_t row;
    uint64_t offset; /* in the slot that carries the table */
    uint64_t tag;    /* the requester's own; named in errors */
};

#endif
