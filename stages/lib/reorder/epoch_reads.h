/* epoch_reads.h: what the disk stage would read of the feature rows in an epoch, counted by sampling the
 * epoch's batches and merging the missed rows as the disk engine does (stages/lib/io/engine.c): the rows that
 * a hop adds are sorted by their places; blocks that touch, or are at most gap_bytes apart, are one read of
 * at most coalesce_bytes.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_EPOCH_READS_H
#define PST_EPOCH_READS_H

#include "stages/lib/reorder/renumber.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

struct pst_reads_disk {
    uint32_t block; /* bytes of which reads are multiples */
    uint64_t gap_bytes, coalesce_bytes;
};

/* Where rows lie. */
struct pst_reads_layout {
    const int64_t *new_of; /* vertices; NULL: as they are */
    bool pack;             /* rows have the stride of pst_permute_stride(.., true) */
};

struct pst_reads {
    uint64_t batches;
    int64_t vertices;      /* of all batches together */
    int64_t missed;        /* of them not cached */
    uint64_t wanted;       /* bytes of the missed rows, without padding */
    uint64_t bytes, reads; /* of the disk */
};

/* Counts batches of an epoch that no order was made from: at most `most` of them, evenly spread; the
 * result is scaled to all. tier[v] (enum pst_renumber_tier): cached rows are not read. out: one for each
 * layout. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_reads_count(struct pst_hoods *h, const struct pst_reads_disk *disk,
                                            const uint8_t *tier, const struct pst_reads_layout *layout,
                                            int layouts, uint64_t most, struct pst_reads *out,
                                            struct pst_progress *progress);

PST_END_DECLS
#endif
