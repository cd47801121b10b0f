/* drive_tables.c: places the requests of a group on the drives, sends them, and collects the results. */
#include "stages/lib/io/drive_tables.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define GROUPS 64 /* groups at once: as many batches as the accumulator merges, if they are small */

/* A transfer: a run of bytes on one drive, for one request or for several that are adjacent both on the drive
 * and in memory. */
struct entry {
    struct pst_nvme_request r;
    struct pst_io_group *group;
    uint32_t first, n; /* requests of the group */
};

/* What is known of a request after it was copied and checked. */
struct fact {
    uint32_t rows;
    uint16_t array;
    bool left; /* to the engine */
};

struct table {
    struct entry *entry; /* room for `requests` */
    struct fact *fact;
    uint32_t n, sent, pending;
    bool all_sent;
};

struct pst_io_tables {
    const struct pst_io_drives *drives;
    const struct pst_request_array *arrays;
    bool writable;
    uint64_t block, coalesce_bytes;
    uint32_t requests; /* most of a group */
    struct entry *entries;
    struct fact *facts;
    struct table table[GROUPS];
};

pst_rc pst_io_tables_open(struct pst_io_tables **out, const struct pst_io_drives *drives,
                          const struct pst_io_config *config, struct pst_io_backend *b)
{
    uint64_t largest = 0;
    struct pst_io_tables *t = *out = calloc(1, sizeof *t);
    for (int i = 0; i < config->nregions; i++)
        largest = config->regions[i].iov_len > largest ? config->regions[i].iov_len : largest;
    largest /= sizeof(struct pst_request);
    const uint32_t n = largest < 1                       ? 1
                       : largest < PST_IO_GROUP_REQUESTS ? (uint32_t)largest
                                                         : PST_IO_GROUP_REQUESTS;
    if (t != NULL) {
        *t = (struct pst_io_tables){.drives = drives,
                                    .arrays = config->arrays,
                                    .writable = config->nvme->writable,
                                    .block = 1ull << drives->lba_shift,
                                    .coalesce_bytes = config->nvme->coalesce_bytes,
                                    .requests = n,
                                    .entries = calloc((size_t)GROUPS * n, sizeof *t->entries),
                                    .facts = calloc((size_t)GROUPS * n, sizeof *t->facts)};
    }
    if (t == NULL || t->entries == NULL || t->facts == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d tables of %u disk requests", GROUPS,
                        n);
    for (size_t i = 0; i < GROUPS; i++)
        t->table[i] = (struct table){.entry = t->entries + i * n, .fact = t->facts + i * n};
    b->groups = GROUPS;
    b->group_requests = n;
    return PST_OK;
}

void pst_io_tables_close(struct pst_io_tables *t)
{
    if (t == NULL)
        return;
    free(t->entries);
    free(t->facts);
    free(t);
}

/* ---- from requests to transfers ------------------------------------------------------------------- */

/* Adds a run of bytes to the last transfer, if it follows there, or to a new one. False: there is no room. */
static bool add_run(struct pst_io_tables *t, struct table *table, struct pst_io_group *group,
                    const struct pst_nvme_request *r, uint32_t request)
{
    struct entry *last = table->n > 0 ? &table->entry[table->n - 1] : NULL;
    if (last != NULL && last->r.ssd == r->ssd && last->r.nsid == r->nsid && last->r.opcode == r->opcode &&
        last->r.lba + (last->r.bytes >> r->lba_shift) == r->lba && last->r.iova + last->r.bytes == r->iova &&
        last->r.bytes + r->bytes <= t->coalesce_bytes) {
        group->merged += last->first + last->n == request;
        last->n = request + 1 - last->first;
        last->r.bytes += r->bytes;
        return true;
    }
    if (table->n == t->requests)
        return false;
    table->entry[table->n++] = (struct entry){.r = *r, .group = group, .first = request, .n = 1};
    return true;
}

/* Makes transfers of a request that is right. False: the engine must carry it out. */
static bool place(struct pst_io_tables *t, struct table *table, struct pst_io_group *group,
                  const struct pst_request *request, uint32_t number)
{
    const struct pst_extent *rows = &t->arrays[request->array].rows_in;
    const uint64_t bytes = request->rows * rows->unit;
    char *memory = group->slot + request->offset;
    for (uint64_t done = 0; done < bytes;) {
        struct pst_extent_place in_file;
        struct pst_nvme_request r = {.opcode =
                                         request->op == PST_REQUEST_WRITE ? PST_NVME_WRITE : PST_NVME_READ};
        uint64_t run = 0;
        if (!pst_extent_find(rows, request->row * rows->unit + done, &in_file) ||
            !pst_io_drives_find(t->drives, in_file.place, in_file.at, &r, &run))
            return false;
        run = run < in_file.run ? run : in_file.run;
        r.bytes = run < bytes - done ? run : bytes - done;
        if (in_file.at % t->block != 0 || r.bytes % t->block != 0 ||
            !pst_io_drives_iova(t->drives, r.ssd, memory + done, r.bytes, &r.iova) || r.iova % 4 != 0 ||
            !add_run(t, table, group, &r, number))
            return false;
        done += r.bytes;
    }
    return true;
}

/* Copies a request once, because another process can write to the table, and uses only the copy. */
static enum pst_request_fault take_request(struct pst_io_tables *t, struct table *table,
                                           struct pst_io_group *group, uint32_t number)
{
    struct pst_request r;
    memcpy(&r, group->slot + group->at + (uint64_t)number * sizeof r, sizeof r);
    const enum pst_request_fault fault = pst_request_judge(&r, t->arrays, t->writable, group->slot_bytes);
    if (fault != PST_REQUEST_RIGHT)
        return fault;
    const uint32_t before = table->n;
    const struct entry last = before > 0 ? table->entry[before - 1] : (struct entry){0};
    const uint64_t merged = group->merged;
    struct fact *fact = &table->fact[number];
    *fact = (struct fact){.rows = r.rows, .array = r.array};
    fact->left = !place(t, table, group, &r, number);
    if (fact->left) { /* without the parts of it that have a place */
        table->n = before;
        group->merged = merged;
        if (before > 0)
            table->entry[before - 1] = last;
    }
    return PST_REQUEST_RIGHT;
}

bool pst_io_tables_take(struct pst_io_tables *t, struct pst_io_group *group)
{
    struct table *table = &t->table[group->index];
    table->n = table->sent = table->pending = 0;
    table->all_sent = false;
    for (uint32_t i = 0; i < group->n; i++) {
        if (take_request(t, table, group, i) != PST_REQUEST_RIGHT) {
            group->bad = i + 1;
            return false;
        }
    }
    if (table->n > 0)
        return true;
    table->all_sent = true;
    (void)pst_io_tables_ended(t, group);
    return false;
}

/* ---- sending and collecting ----------------------------------------------------------------------- */

static void leave(struct table *table, const struct entry *e)
{
    for (uint32_t i = e->first; i < e->first + e->n; i++) {
        e->group->failed += !table->fact[i].left;
        table->fact[i].left = true;
    }
}

bool pst_io_tables_send(struct pst_io_tables *t, struct pst_io_group *group, struct pst_nvme_stack *stack)
{
    struct table *table = &t->table[group->index];
    for (; table->sent < table->n; table->sent++) {
        struct entry *e = &table->entry[table->sent];
        e->r.user = e;
        const pst_rc rc = pst_nvme_stack_add(stack, &e->r);
        if (rc == PST_E_LIMIT)
            return false;
        if (rc == PST_OK)
            table->pending++;
        else
            leave(table, e);
    }
    table->all_sent = true;
    return true;
}

bool pst_io_tables_own(const struct pst_io_tables *t, const void *user)
{
    const uintptr_t at = (uintptr_t)user, begin = t != NULL ? (uintptr_t)t->entries : 0;
    return t != NULL && at >= begin && at < begin + (size_t)GROUPS * t->requests * sizeof *t->entries;
}

struct pst_io_group *pst_io_tables_end(struct pst_io_tables *t, const struct pst_nvme_result *result)
{
    const struct entry *e = result->user;
    struct table *table = &t->table[e->group->index];
    table->pending--;
    e->group->commands++;
    if (result->status == PST_NVME_OK)
        e->group->bytes += e->r.bytes;
    else
        leave(table, e);
    return pst_io_tables_ended(t, e->group) ? e->group : NULL;
}

bool pst_io_tables_ended(struct pst_io_tables *t, struct pst_io_group *group)
{
    const struct table *table = &t->table[group->index];
    if (!table->all_sent || table->pending > 0)
        return false;
    for (uint32_t i = 0; i < group->n; i++) {
        const struct fact *fact = &table->fact[i];
        if (fact->left) {
            group->left[group->nleft++] = i;
            continue;
        }
        group->rows += fact->rows;
        group->row_bytes_wanted += fact->rows * t->arrays[fact->array].wanted_bytes;
    }
    return true;
}
