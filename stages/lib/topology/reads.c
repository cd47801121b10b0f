/* reads.c: the requests of a round, and the entries in what they bring. */
#include "stages/lib/topology/reads.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/slots/request.h"
#include "common/store/array_id.h"
#include "common/store/store.h"
#include "common/util/memory.h"

static struct pst_topology_array array_of(enum pst_array_id id, const struct pst_array *a, int64_t entries)
{
    return (struct pst_topology_array){.array = (uint16_t)id,
                                       .data_at = a->data_at,
                                       .entry_bytes = (int)pst_dtype_bytes(a->dtype),
                                       .entries = entries};
}

void pst_topology_arrays(const struct pst_dataset *ds, struct pst_topology_array *indptr,
                         struct pst_topology_array *indices)
{
    *indptr = array_of(PST_ARRAY_INDPTR, &ds->indptr, ds->vertices + 1);
    *indices = array_of(PST_ARRAY_INDICES, &ds->indices, ds->edges);
}

uint64_t pst_topology_reads_slot_bytes(int64_t sectors)
{
    return pst_align_up((uint64_t)sectors * sizeof(struct pst_request), PST_PAGE) +
           (uint64_t)sectors * PST_TOPOLOGY_SECTOR;
}

static int64_t sectors_of(uint64_t slot_bytes)
{
    int64_t sectors = (int64_t)(slot_bytes / (PST_TOPOLOGY_SECTOR + sizeof(struct pst_request)));
    while (sectors > 0 && pst_topology_reads_slot_bytes(sectors) > slot_bytes)
        sectors--;
    return sectors;
}

pst_rc pst_topology_reads_init(struct pst_topology_reads *r, uint64_t slot_bytes, int64_t entries_max)
{
    const int64_t sectors = sectors_of(slot_bytes);
    assert(sectors >= 1 && entries_max >= 1);
    *r = (struct pst_topology_reads){
        .sectors_max = sectors,
        .sectors_at = pst_align_up((uint64_t)sectors * sizeof(struct pst_request), PST_PAGE),
        .entries_max = entries_max};
    r->table_memory = pst_hugepage_alloc(pst_k_dedup_bytes(sectors));
    r->sectors = malloc((size_t)sectors * sizeof *r->sectors);
    r->place = malloc((size_t)entries_max * sizeof *r->place);
    if (r->table_memory == NULL || r->sectors == NULL || r->place == NULL) {
        pst_topology_reads_release(r);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %lld entries of the topology at a time",
                        (long long)entries_max);
    }
    r->table = pst_k_dedup_init(r->table_memory, sectors);
    return PST_OK;
}

void pst_topology_reads_release(struct pst_topology_reads *r)
{
    free(r->table_memory);
    free(r->sectors);
    free(r->place);
    *r = (struct pst_topology_reads){0};
}

/* Bytes of the file from the beginning of the sector in which the data begins to the data. */
static uint64_t lead_of(const struct pst_topology_array *of)
{
    return of->data_at % PST_TOPOLOGY_SECTOR;
}

/* place[i] = the sector of at[i], for n entries. */
static void find_sectors(const struct pst_topology_array *of, const int64_t *at, int64_t n, int64_t *sector)
{
    const uint64_t lead = lead_of(of), bytes = (uint64_t)of->entry_bytes;
    for (int64_t i = 0; i < n; i++)
        sector[i] = (int64_t)((lead + (uint64_t)at[i] * bytes) / PST_TOPOLOGY_SECTOR);
}

/* Takes entries while new sectors can come. Entries are taken in groups that cannot bring too many. */
static void take(struct pst_topology_reads *r, const int64_t *at, int64_t n)
{
    enum { GROUP = 512 };
    int64_t sector[GROUP];
    pst_k_dedup_reset(NULL, r->table);
    r->taken = r->count = 0;
    n = pst_min_i64(n, r->entries_max);
    while (r->taken < n && r->count < r->sectors_max) {
        const int64_t room = pst_min_i64(r->sectors_max - r->count, n - r->taken),
                      group = pst_min_i64(room, GROUP);
        find_sectors(&r->of, at + r->taken, group, sector);
        const pst_rc rc = pst_k_dedup(NULL, r->table, sector, group, r->sectors, &r->count, r->sectors_max,
                                      r->place + r->taken);
        assert(rc == PST_OK); /* there is room for one new sector an entry */
        (void)rc;
        r->taken += group;
    }
}

int64_t pst_topology_reads_begin(struct pst_topology_reads *r, const struct pst_topology_array *of,
                                 const int64_t *at, int64_t n, void *slot)
{
    assert(n > 0 && PST_TOPOLOGY_SECTOR % of->entry_bytes == 0 &&
           lead_of(of) % (uint64_t)of->entry_bytes == 0);
    r->of = *of;
    take(r, at, n);
    const uint64_t lead = lead_of(of), bytes = (uint64_t)of->entry_bytes;
    struct pst_request *table = slot;
    for (int64_t k = 0; k < r->count; k++) {
        const uint64_t begin =
                           (uint64_t)r->sectors[k] * PST_TOPOLOGY_SECTOR, /* in the file, from the lead on */
            first = begin > lead ? begin : lead, end = begin + PST_TOPOLOGY_SECTOR,
                       all = lead + (uint64_t)of->entries * bytes;
        table[k] = (struct pst_request){
            .op = PST_REQUEST_READ,
            .array = of->array,
            .rows = (uint32_t)(((end < all ? end : all) - first) / bytes),
            .row = (first - lead) / bytes,
            .offset = r->sectors_at + (uint64_t)k * PST_TOPOLOGY_SECTOR + (first - begin),
            .tag = (first - lead) / bytes,
        };
    }
    return r->taken;
}

void pst_topology_reads_end(struct pst_topology_reads *r, const int64_t *at, const void *slot,
                            int64_t *values)
{
    const uint64_t lead = lead_of(&r->of), bytes = (uint64_t)r->of.entry_bytes;
    const char *sectors = (const char *)slot + r->sectors_at;
    for (int64_t i = 0; i < r->taken; i++) {
        const char *entry = sectors + (uint64_t)r->place[i] * PST_TOPOLOGY_SECTOR +
                            (lead + (uint64_t)at[i] * bytes) % PST_TOPOLOGY_SECTOR;
        if (bytes == 4) {
            int32_t value;
            memcpy(&value, entry, sizeof value);
            values[i] = value;
        } else {
            memcpy(&values[i], entry, sizeof values[i]);
        }
    }
}
