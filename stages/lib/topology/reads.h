/* reads.h: reads scattered entries of the graph's arrays (indptr, indices) through a disk stage. A slot
 * carries the requests of one round and gets the sectors that they bring. Each sector is requested once a
 * round, so the bytes that are read are those of the wanted sectors (Hyperion, section III-B2: an SSD reads
 * at least 512 bytes).
 *
 * Owner: the caller; pst_topology_reads_release frees what ..._init allocated. One round at a time uses these
 * structures; a caller that keeps several rounds open has one of them for each. Threads: one. */
#ifndef PST_TOPOLOGY_READS_H
#define PST_TOPOLOGY_READS_H

#include "kernels/kernels.h"

PST_BEGIN_DECLS

#define PST_TOPOLOGY_SECTOR 512 /* bytes; a power of two, and a multiple of each entry's size */

struct pst_dataset;

/* An array in a file. Entry i begins at byte data_at + i x entry_bytes. */
struct pst_topology_array {
    uint16_t array; /* enum pst_array_id (common/store/array_id.h) */
    uint64_t data_at;
    int entry_bytes; /* 4 or 8: an int32 or an int64 */
    int64_t entries;
};

struct pst_topology_reads {
    int64_t sectors_max; /* of a round */
    uint64_t sectors_at; /* byte of the slot; the requests begin at byte 0 */
    struct pst_dedup *table;
    void *table_memory;
    int64_t *sectors; /* of the round, in the order of their places in the slot */
    int32_t *place;   /* of each entry's sector */
    int64_t entries_max;
    /* of the open round */
    struct pst_topology_array of;
    int64_t taken, count; /* entries, sectors */
};

/* The two arrays of a dataset's topology. */
PST_API void pst_topology_arrays(const struct pst_dataset *ds, struct pst_topology_array *indptr,
                                 struct pst_topology_array *indices);

/* Bytes of a slot for rounds of up to `sectors` sectors. */
PST_API uint64_t pst_topology_reads_slot_bytes(int64_t sectors);

/* For slots of slot_bytes and rounds of at most entries_max entries. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_topology_reads_init(struct pst_topology_reads *r, uint64_t slot_bytes,
                                                    int64_t entries_max);
PST_API void pst_topology_reads_release(struct pst_topology_reads *r);

/* Begins a round: writes requests for the first entries of at[0..n), as many as the slot has room for, at
 * least one, and returns how many. r->count is the number of requests, which begin at byte 0 of the slot. n >
 * 0. Each at[i] is from 0 to of->entries - 1. */
PST_API int64_t pst_topology_reads_begin(struct pst_topology_reads *r, const struct pst_topology_array *of,
                                         const int64_t *at, int64_t n, void *slot);

/* Ends the round, when the sectors are in the slot: values[i] = entry at[i], for the entries that begin took.
 * at is the same array as then. values may be at. */
PST_API void pst_topology_reads_end(struct pst_topology_reads *r, const int64_t *at, const void *slot,
                                    int64_t *values);

PST_END_DECLS
#endif
