/* request.h: requests to the disk stage. A slot that goes through the disk stage carries a table of requests.
 * In each frame, arg[0] is the byte offset in the slot of the requests that the part adds, and arg[1] is
 * their number.
 *
 * Owner: the stage that holds the slot. Threads: one at a time, as for the slot. It is for host and device.
 */
#ifndef PST_REQUEST_H
#define PST_REQUEST_H

#include "common/slots/extent.h"

#define PST_REQUEST_ARRAYS_MAX 40 /* array numbers are below this */
/* The features of the k-th type of vertices of a dataset with types (k below PST_ROWS_TYPES_MAX). */
#define PST_REQUEST_OF_TYPE(k) (PST_REQUEST_ARRAYS_MAX - 1 - (k))
#define PST_REQUEST_FILES_MAX 64 /* files of all these arrays */
#define PST_REQUEST_AT_BITS 57   /* bits of a byte's position in a file or on a drive: 128 PiB */

enum pst_request_op { PST_REQUEST_READ = 0, PST_REQUEST_WRITE = 1 };

/* A request has 32 bytes. It moves `rows` rows, starting with `row`, between the array and the slot. The
 * dataset's manifest defines the length of a row: stride_bytes for features. */
struct pst_request {
    uint16_t op;    /* enum pst_request_op */
    uint16_t array; /* of the dataset: enum pst_array_id (common/store/array_id.h); from PST_ARRAY_COUNT on,
                       of the run: the disk stage's parameter `arrays` lists them; or PST_REQUEST_OF_TYPE */
    uint32_t rows;
    uint64_t row;
    uint64_t offset; /* byte in the slot that carries the table */
    uint64_t tag;    /* chosen by the requester; errors name it */
};

/* An array that requests may name. */
struct pst_request_array {
    uint64_t rows;             /* 0: the dataset does not have the array */
    uint64_t wanted_bytes;     /* data bytes of each row; the others are padding */
    bool writable;             /* requests may write it */
    struct pst_extent rows_in; /* row 0 begins at its byte 0; a unit is a row, a place is a file */
};

enum pst_request_fault {
    PST_REQUEST_RIGHT,
    PST_REQUEST_NO_OP,    /* neither read nor write */
    PST_REQUEST_NO_WRITE, /* nothing may be written */
    PST_REQUEST_NO_ARRAY, /* no array has this number, or the dataset or run does not have that array */
    PST_REQUEST_NO_ROWS,  /* it moves no row, or a row beyond the array's end */
    PST_REQUEST_NO_ROOM   /* its rows do not lie within the slot */
};

/* Checks a request, for the disk engine and for kernels. arrays has PST_REQUEST_ARRAYS_MAX elements.
 * writable: all of them may be written. */
static PST_HD enum pst_request_fault pst_request_judge(const struct pst_request *r,
                                                       const struct pst_request_array *arrays, bool writable,
                                                       uint64_t slot_bytes)
{
    if (r->op > PST_REQUEST_WRITE)
        return PST_REQUEST_NO_OP;
    if (r->array >= PST_REQUEST_ARRAYS_MAX || arrays[r->array].rows == 0)
        return PST_REQUEST_NO_ARRAY;
    const struct pst_request_array *a = &arrays[r->array];
    if (r->op == PST_REQUEST_WRITE && !writable && !a->writable)
        return PST_REQUEST_NO_WRITE;
    if (r->rows == 0 || r->row >= a->rows || r->rows > a->rows - r->row)
        return PST_REQUEST_NO_ROWS;
    if (r->offset > slot_bytes || a->rows_in.unit > (slot_bytes - r->offset) / r->rows)
        return PST_REQUEST_NO_ROOM;
    return PST_REQUEST_RIGHT;
}

#endif
