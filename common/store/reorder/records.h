/* records.h: writes records in another order, within a limit of memory. The new order is cut into buckets
 * that fit the memory. One pass over the source sorts the records by bucket, in a temporary file; each bucket
 * is then read and written in its order. If all records fit, there is no temporary file. So every byte is
 * read and written at most twice, in long pieces, however scattered the new order is.
 *
 * Owner: the caller, of everything that the spec names. Threads: one. */
#ifndef PST_RECORDS_H
#define PST_RECORDS_H

#include "common/store/build/build.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

/* Memory that a record takes besides its bytes: its place, and its number in the source. */
#define PST_RECORDS_OVERHEAD 16
#define PST_RECORDS_MEMORY_MIN (4u << 20) /* less makes pieces short */

struct pst_records_spec {
    const struct pst_build *build; /* in whose directory the temporary file lies */
    const char *what;              /* for the progress and for errors: "features" */
    int64_t n;
    /* old_of[i] - first is the number, in the source, of the record that comes to place i; new_of is the
     * inverse: record v comes to place new_of[v] - first. */
    const int64_t *old_of, *new_of;
    int64_t first;
    uint64_t memory_bytes;
    uint64_t fixed_bytes; /* of each record; 0: bytes_of says it */
    uint64_t (*bytes_of)(const void *ctx, int64_t old);
    /* Reads the records old to old + n - 1, one after the other. */
    pst_rc (*read)(void *ctx, int64_t old, int64_t n, void *out);
    /* Takes the next record in the new order. The function may change it. */
    pst_rc (*write)(void *ctx, int64_t old, void *record, uint64_t bytes);
    void *ctx;
    struct pst_progress *progress;
};

/* PST_E_ARG: the memory is too small; the message says how much is needed. PST_E_IO, PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_records_write(const struct pst_records_spec *spec);

PST_END_DECLS
#endif
