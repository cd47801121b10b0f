/* pieces.c: checks requests, finds where their rows lie, and sorts the pieces. */
#include "stages/lib/io/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"

/* A sort key has the byte in its lowest bits, above it the file, and in the highest bit whether it is a
 * write. */
static_assert(PST_REQUEST_FILES_MAX <= 1 << (63 - PST_REQUEST_AT_BITS), "a file's number has 6 bits");

pst_rc pst_disk_pieces_new(struct pst_disk_pieces *p, const struct pst_disk_config *config)
{
    *p = (struct pst_disk_pieces){.arrays = config->arrays,
                                  .names = config->names,
                                  .writable = config->writable,
                                  .piece_bytes = pst_align_up(config->coalesce_bytes, PST_PAGE)};
    p->piece = malloc(PST_DISK_PIECES_MAX * sizeof *p->piece);
    p->key = malloc(PST_DISK_PIECES_MAX * sizeof *p->key);
    p->aux = malloc(PST_DISK_PIECES_MAX * sizeof *p->aux);
    if (p->piece != NULL && p->key != NULL && p->aux != NULL)
        return PST_OK;
    pst_disk_pieces_delete(p);
    return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %d disk requests", PST_DISK_PIECES_MAX);
}

void pst_disk_pieces_delete(struct pst_disk_pieces *p)
{
    free(p->piece);
    free(p->key);
    free(p->aux);
    p->piece = NULL;
    p->key = p->aux = NULL;
}

/* Describes a fault. */
static pst_rc refuse(const struct pst_disk_pieces *p, const struct pst_disk_table *table, uint64_t request,
                     const struct pst_request *r, enum pst_request_fault fault)
{
    const bool known = r->array < PST_REQUEST_ARRAYS_MAX && p->names[r->array] != NULL;
    const struct pst_request_array *array = &p->arrays[known ? r->array : 0];
    const char *name = known                        ? p->names[r->array]
                       : r->array < PST_ARRAY_COUNT ? pst_array_id_name((enum pst_array_id)r->array)
                                                    : "";
    char which[64];
    (void)snprintf(which, sizeof which, "disk request %llu (tag %llu)", (unsigned long long)request,
                   (unsigned long long)r->tag);
    switch (fault) {
    case PST_REQUEST_NO_OP:
        return pst_fail(PST_E_FORMAT, "%s has operation %u; expected 0 (read) or 1 (write)", which, r->op);
    case PST_REQUEST_NO_WRITE:
        return pst_fail(
            PST_E_ARG,
            "%s is a write, but the disk stage may only read: set its parameter \"writable\" to true", which);
    case PST_REQUEST_NO_ARRAY:
        if (r->array >= PST_ARRAY_COUNT)
            return pst_fail(PST_E_FORMAT,
                            "%s refers to array %u; expected 0 to %d for an array of the dataset, or a "
                            "number from %d on for an array of the parameter `arrays`",
                            which, r->array, PST_ARRAY_COUNT - 1, PST_ARRAY_COUNT);
        return pst_fail(PST_E_ARG, "%s refers to the array %s, which this dataset does not have", which,
                        name);
    case PST_REQUEST_NO_ROWS:
        return pst_fail(PST_E_FORMAT, "%s refers to %u rows from row %llu on, but %s has only %llu rows",
                        which, r->rows, (unsigned long long)r->row, name, (unsigned long long)array->rows);
    case PST_REQUEST_NO_ROOM:
        return pst_fail(
            PST_E_FORMAT,
            "%s would write %u rows of %llu bytes to byte %llu of a slot that has only %llu bytes", which,
            r->rows, (unsigned long long)array->rows_in.unit, (unsigned long long)r->offset,
            (unsigned long long)table->slot_bytes);
    case PST_REQUEST_RIGHT: break;
    }
    return PST_OK;
}

pst_rc pst_disk_pieces_check(const struct pst_disk_pieces *p, const struct pst_disk_table *table,
                             uint64_t request, const struct pst_request *r)
{
    const enum pst_request_fault fault = pst_request_judge(r, p->arrays, p->writable, table->slot_bytes);
    return fault == PST_REQUEST_RIGHT ? PST_OK : refuse(p, table, request, r, fault);
}

static struct pst_request copy_request(const struct pst_disk_table *table, uint64_t request)
{
    struct pst_request r;
    memcpy(&r, table->slot + table->at + request * sizeof r, sizeof r);
    return r;
}

pst_rc pst_disk_pieces_refuse(const struct pst_disk_pieces *p, const struct pst_disk_table *table,
                              uint64_t request)
{
    const struct pst_request r = copy_request(table, request);
    const pst_rc rc = pst_disk_pieces_check(p, table, request, &r);
    return rc != PST_OK ? rc
                        : pst_fail(PST_E_FORMAT,
                                   "disk request %llu (tag %llu) was changed after its stage had sent it: a "
                                   "stage must not change "
                                   "a request before its slot comes back",
                                   (unsigned long long)request, (unsigned long long)r.tag);
}

static void add_piece(struct pst_disk_pieces *p, const struct pst_disk_piece *piece)
{
    p->piece[p->n] = *piece;
    p->key[p->n] = (struct pst_disk_sort_key){
        .place = (uint64_t)piece->write << 63 | (uint64_t)piece->file << PST_REQUEST_AT_BITS | piece->at,
        .piece = p->n};
    p->n++;
}

/* A radix sort, least significant byte first. Bytes that are equal in all keys are skipped. */
static void sort_keys(struct pst_disk_pieces *p)
{
    uint64_t differ = 0;
    for (uint32_t i = 1; i < p->n; i++)
        differ |= p->key[i].place ^ p->key[0].place;
    for (int shift = 0; shift < 64; shift += 8) {
        if ((differ >> shift & 0xff) == 0)
            continue;
        uint32_t begin[256] = {0}, sum = 0;
        for (uint32_t i = 0; i < p->n; i++)
            begin[p->key[i].place >> shift & 0xff]++;
        for (int b = 0; b < 256; b++) {
            uint32_t count = begin[b];
            begin[b] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < p->n; i++)
            p->aux[begin[p->key[i].place >> shift & 0xff]++] = p->key[i];
        struct pst_disk_sort_key *sorted = p->aux;
        p->aux = p->key;
        p->key = sorted;
    }
}

pst_rc pst_disk_pieces_take(struct pst_disk_pieces *p, struct pst_disk_table *table,
                            struct pst_disk_stats *stats)
{
    p->n = 0;
    while (p->n < PST_DISK_PIECES_MAX && table->next < table->count) {
        const uint64_t request = table->pick != NULL ? table->pick[table->next] : table->next;
        const struct pst_request r = copy_request(table, request);
        pst_rc rc = pst_disk_pieces_check(p, table, request, &r);
        if (rc != PST_OK)
            return rc;
        const struct pst_request_array *array = &p->arrays[r.array];
        const uint64_t row_bytes = array->rows_in.unit, bytes = r.rows * row_bytes;
        while (table->next_byte < bytes && p->n < PST_DISK_PIECES_MAX) {
            struct pst_extent_place to = {0};
            /* this finds it, because the request is right */
            (void)pst_extent_find(&array->rows_in, r.row * row_bytes + table->next_byte, &to);
            /* cut a large request at pages of the file, so that its pieces are as aligned as it is */
            const uint64_t room = p->piece_bytes - to.at % PST_PAGE, rest = bytes - table->next_byte;
            const uint64_t most = to.run < room ? to.run : room;
            const struct pst_disk_piece piece = {.at = to.at,
                                                 .memory = table->slot + r.offset + table->next_byte,
                                                 .bytes = rest < most ? rest : most,
                                                 .tag = r.tag,
                                                 .file = to.place,
                                                 .write = r.op == PST_REQUEST_WRITE};
            add_piece(p, &piece);
            table->next_byte += piece.bytes;
        }
        if (table->next_byte < bytes)
            break;
        stats->rows += r.rows;
        stats->row_bytes_wanted += r.rows * array->wanted_bytes;
        table->next++;
        table->next_byte = 0;
    }
    sort_keys(p);
    return PST_OK;
}
