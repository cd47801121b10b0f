/* drive_reads.h: reads entries of indptr and indices for the planner, with a disk engine of its own, in
 * rounds of bounded size. The page cache and the mapped files are not used. If the wanted entries are sorted,
 * a round reads its sectors in the order of the file, and the engine merges sectors that are near each other.
 *
 * Owner: pst_presample_reads_close frees what ..._open allocated, and accepts a zeroed struct. The dataset
 * must stay open. Threads: one. */
#ifndef PST_PRESAMPLE_DRIVE_READS_H
#define PST_PRESAMPLE_DRIVE_READS_H

#include "stages/lib/io/engine.h"
#include "stages/lib/topology/reads.h"

struct pst_presample_reads {
    struct pst_disk *disk;
    struct pst_disk_ticket ticket;
    struct pst_topology_reads reads;
    struct pst_topology_array indptr, indices;
    void *slot;
    uint64_t slot_bytes;
    int64_t entries_max; /* of a round */
    int64_t *entries;    /* room for entries_max, for the caller */
    int64_t rounds, sectors;
};

/* memory: bytes for rounds; less than 600 KiB counts as 600 KiB, and more than 40 MiB as 40 MiB. gap: sectors
 * at most so many bytes apart are read by one operation, with what is between them. PST_E_NOMEM, PST_E_IO. */
PST_MUST_USE pst_rc pst_presample_reads_open(struct pst_presample_reads *r, const struct pst_dataset *ds,
                                             uint64_t memory, uint64_t gap);
void pst_presample_reads_close(struct pst_presample_reads *r);

/* values[i] = entry at[i] of the array, for n <= entries_max entries. values may be at. PST_E_IO: the file
 * cannot be read. PST_E_TIMEOUT: the drive does not answer. */
PST_MUST_USE pst_rc pst_presample_read(struct pst_presample_reads *r, const struct pst_topology_array *of,
                                       const int64_t *at, int64_t n, int64_t *values);

#endif
