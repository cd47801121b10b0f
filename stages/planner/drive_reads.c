/* drive_reads.c: rounds of reads, one after the other. */
#include "stages/planner/drive_reads.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/stage.h"
#include "common/store/store.h"

#define ROUND_MIN 1024 /* sectors of a round: enough to keep a drive busy */
#define ROUND_MAX 65536
#define ENTRY_BYTES 96 /* of a round, for each entry: request, sector, place and dedup */
#define COALESCE_BYTES (1u << 20)
#define READ_RETRIES 3
#define READ_THREADS 8             /* of the backend pread */
#define ROUND_WAIT_MS (600 * 1000) /* 65,536 reads, at 110 a second */

static pst_rc open_engine(struct pst_presample_reads *r, const struct pst_dataset *ds, uint64_t gap)
{
    const struct iovec region = {r->slot, r->slot_bytes};
    struct pst_disk_config config = {.backend = "auto",
                                     .depth = PST_AUTO,
                                     .threads = READ_THREADS,
                                     .retries = READ_RETRIES,
                                     .direct = true,
                                     .coalesce_bytes = COALESCE_BYTES,
                                     .gap_bytes = gap,
                                     .tables_max = 1,
                                     .regions = &region,
                                     .nregions = 1,
                                     .faults = {.bad_file = -1}};
    const struct pst_array *const arrays[] = {&ds->indptr, &ds->indices};
    const struct pst_topology_array *const of[] = {&r->indptr, &r->indices};
    char note[PST_IO_NOTE_BYTES] = "";
    for (int i = 0; i < 2; i++)
        pst_disk_config_add(&config, (enum pst_array_id)of[i]->array, (const char *const[]){arrays[i]->path},
                            1, arrays[i]->data_at, (uint64_t)of[i]->entries, (uint64_t)of[i]->entry_bytes,
                            (uint64_t)of[i]->entry_bytes);
    return pst_disk_new(&r->disk, &config, note, sizeof note);
}

pst_rc pst_presample_reads_open(struct pst_presample_reads *r, const struct pst_dataset *ds, uint64_t memory,
                                uint64_t gap)
{
    const uint64_t fit = memory / (PST_TOPOLOGY_SECTOR + ENTRY_BYTES);
    const int64_t room = pst_max_i64(ROUND_MIN, (int64_t)(fit < ROUND_MAX ? fit : ROUND_MAX));
    *r = (struct pst_presample_reads){.entries_max = room, .slot_bytes = pst_topology_reads_slot_bytes(room)};
    pst_topology_arrays(ds, &r->indptr, &r->indices);
    r->slot = aligned_alloc(PST_PAGE, pst_align_up(r->slot_bytes, PST_PAGE));
    r->entries = malloc((size_t)room * sizeof *r->entries);
    if (r->slot == NULL || r->entries == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %llu bytes to read the topology",
                        (unsigned long long)r->slot_bytes);
    const pst_rc rc = pst_topology_reads_init(&r->reads, r->slot_bytes, room);
    return rc == PST_OK ? open_engine(r, ds, gap) : rc;
}

void pst_presample_reads_close(struct pst_presample_reads *r)
{
    if (r->disk != NULL)
        pst_disk_free(r->disk);
    pst_topology_reads_release(&r->reads);
    free(r->slot);
    free(r->entries);
    *r = (struct pst_presample_reads){0};
}

pst_rc pst_presample_read(struct pst_presample_reads *r, const struct pst_topology_array *of,
                          const int64_t *at, int64_t n, int64_t *values)
{
    assert(n <= r->entries_max);
    for (int64_t done = 0; done < n; done += r->reads.taken) {
        (void)pst_topology_reads_begin(&r->reads, of, at + done, n - done, r->slot);
        pst_rc rc = pst_disk_add(r->disk, &r->ticket, r->slot, r->slot_bytes, 0, (uint64_t)r->reads.count);
        if (rc == PST_OK)
            rc = pst_disk_wait(r->disk, ROUND_WAIT_MS);
        if (rc != PST_OK)
            return rc;
        pst_topology_reads_end(&r->reads, at + done, r->slot, values + done);
        r->rounds++;
        r->sectors += r->reads.count;
    }
    return PST_OK;
}
