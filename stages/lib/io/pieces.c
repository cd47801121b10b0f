#include "stages/lib/io/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define PLACE_BITS 58 /* of a byte in a file; above them the file, and whether it is written */
static_assert(PST_DISK_FILES_MAX <= 1 << (63 - PLACE_BITS), "files have numbers of 5 bits");

static const char *const array_names[PST_DISK_ARRAYS] = {"features", "indptr", "indices"};

pst_rc pst_disk_pieces_new(struct pst_disk_pieces *p, const struct pst_disk_config *config)
{
    *p = (struct pst_disk_pieces){.arrays = config->arrays,
                                  .writable = config->writable,
                                  .piece_bytes = pst_align_up(config->coalesce_bytes, PST_PAGE)};
    p->piece = malloc(PST_DISK_PIECES_MAX * sizeof *p->piece);
    p->key = malloc(PST_DISK_PIECES_MAX * sizeof *p->key);
    p->aux = malloc(PST_DISK_PIECES_MAX * sizeof *p->aux);
    if (p->piece != NULL && p->key != NULL && p->aux != NULL)
        return PST_OK;
    pst_disk_pieces_delete(p);
    return pst_fail(PST_E_NOMEM, "no memory to sort %d disk requests", PST_DISK_PIECES_MAX);
}

void pst_disk_pieces_delete(struct pst_disk_pieces *p)
{
    free(p->piece);
    free(p->key);
    free(p->aux);
    p->piece = NULL;
    p->key = p->aux = NULL;
}

pst_rc pst_disk_pieces_check(const struct pst_disk_pieces *p, const struct pst_disk_table *table,
                             uint64_t request, const struct pst_request *r)
{
    unsigned long long index = request, tag = r->tag;
    if (r->op > PST_REQUEST_WRITE)
        return pst_fail(PST_E_FORMAT,
                        "disk request %llu (tag %llu) has operation %u; expected 0 (read) or 1 (write)",
                        index, tag, r->op);
    if (r->op == PST_REQUEST_WRITE && !p->writable)
        return pst_fail(PST_E_ARG,
                        "disk request %llu (tag %llu) writes, but the disk stage was not given "
                        "\"writable\": true",
                        index, tag);
    if (r->array >= PST_DISK_ARRAYS)
        return pst_fail(PST_E_FORMAT, "disk request %llu (tag %llu) names array %u; there are %d", index, tag,
                        r->array, PST_DISK_ARRAYS);
    const struct pst_disk_array *array = &p->arrays[r->array];
    if (array->path == NULL || array->path[0] == '\0')
        return pst_fail(PST_E_ARG, "disk request %llu (tag %llu) names %s, which this dataset has not", index,
                        tag, array_names[r->array]);
    if (r->rows == 0 || r->row >= array->rows || r->rows > array->rows - r->row)
        return pst_fail(PST_E_FORMAT, "disk request %llu (tag %llu) wants %u rows from row %llu; %s has %llu",
                        index, tag, r->rows, (unsigned long long)r->row, array->path,
                        (unsigned long long)array->rows);
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)r->rows, array->row_bytes, &bytes) ||
        r->offset > table->slot_bytes || bytes > table->slot_bytes - r->offset)
        return pst_fail(
            PST_E_FORMAT,
            "disk request %llu (tag %llu) would put %u rows of %llu bytes at byte %llu of a slot of %llu",
            index, tag, r->rows, (unsigned long long)array->row_bytes, (unsigned long long)r->offset,
            (unsigned long long)table->slot_bytes);
    return PST_OK;
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
                                   "disk request %llu (tag %llu) was changed after it had been announced",
                                   (unsigned long long)request, (unsigned long long)r.tag);
}

static void add_piece(struct pst_disk_pieces *p, const struct pst_disk_piece *piece)
{
    p->piece[p->n] = *piece;
    p->key[p->n] = (struct pst_disk_sort_key){.place = (uint64_t)piece->write << 63 |
                                                       (uint64_t)piece->file << PLACE_BITS |
                                                       (piece->at & ((UINT64_C(1) << PLACE_BITS) - 1)),
                                              .piece = p->n};
    p->n++;
}

/* Least significant byte first; bytes that are equal everywhere are skipped. */
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

/* Where byte `next` of the rows from `row` on is: the file, *at in it, and how many of the array's bytes go
 * on from there. */
static uint32_t place(const struct pst_disk_array *array, uint32_t which, uint64_t row, uint64_t next,
                      uint64_t *at, uint64_t *left)
{
    if (array->stripes == 0) {
        *at = array->data_at + row * array->row_bytes + next;
        *left = UINT64_MAX;
        return which;
    }
    const uint64_t stripes = (uint64_t)array->stripes, inside = next % array->row_bytes;
    row += next / array->row_bytes;
    *at = array->data_at + row / stripes * array->row_bytes + inside;
    *left = array->row_bytes - inside;
    return pst_disk_file(which, (int)(row % stripes));
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
        const struct pst_disk_array *array = &p->arrays[r.array];
        uint64_t bytes = r.rows * array->row_bytes;
        while (table->next_byte < bytes && p->n < PST_DISK_PIECES_MAX) {
            uint64_t at, left;
            const uint32_t file = place(array, r.array, r.row, table->next_byte, &at, &left);
            /* a large request is cut where the file's pages begin, so that its pieces are as aligned as it is
             */
            uint64_t room = p->piece_bytes - at % PST_PAGE;
            left = left < bytes - table->next_byte ? left : bytes - table->next_byte;
            const struct pst_disk_piece piece = {.at = at,
                                                 .memory = table->slot + r.offset + table->next_byte,
                                                 .bytes = left < room ? left : room,
                                                 .tag = r.tag,
                                                 .file = file,
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
