/* permute_edges.c: the topology of a reordered dataset. A vertex's list of neighbours, with what belongs to
 * its entries, is one record. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/reorder/permute_impl.h"

#define PARTS 4 /* indices, relations, weights, times */
#define INDPTR_BLOCK 16384

struct entry {
    int64_t id, at; /* the new id; the place in the old list, so that equal ids stay in order */
};

struct edges {
    const struct pst_permute_job *j;
    const struct pst_array *part[PARTS];
    size_t item[PARTS]; /* bytes; 0: the dataset has no such array */
    struct pst_array_writer w[PARTS];
    size_t entry_bytes; /* of all parts */
    struct entry *list; /* the longest fits */
    unsigned char *out;
};

static int64_t degree(const struct pst_dataset *ds, int64_t v)
{
    const int64_t *indptr = ds->indptr.map;
    return indptr[v + 1] - indptr[v];
}

static uint64_t bytes_of(const void *ctx, int64_t v)
{
    const struct edges *e = ctx;
    return (uint64_t)degree(e->j->ds, v) * e->entry_bytes;
}

/* Each list: all its indices, then all its relations, and so on. */
static pst_rc read_lists(void *ctx, int64_t v, int64_t n, void *out)
{
    const struct edges *e = ctx;
    const int64_t *indptr = e->j->ds->indptr.map;
    unsigned char *to = out;
    for (; n > 0; n--, v++)
        for (int k = 0; k < PARTS; k++) {
            const size_t bytes = (size_t)degree(e->j->ds, v) * e->item[k];
            if (bytes == 0)
                continue;
            memcpy(to, (const char *)e->part[k]->map + (size_t)indptr[v] * e->item[k], bytes);
            to += bytes;
        }
    return PST_OK;
}

static int by_id(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    return a->id != b->id ? (a->id > b->id) - (a->id < b->id) : (a->at > b->at) - (a->at < b->at);
}

static pst_rc write_list(void *ctx, int64_t v, void *record, uint64_t bytes)
{
    struct edges *e = ctx;
    const struct pst_dataset *ds = e->j->ds;
    const int64_t n = (int64_t)(bytes / e->entry_bytes);
    const unsigned char *from = record;
    for (int64_t i = 0; i < n; i++) {
        int32_t narrow;
        int64_t id;
        memcpy(&narrow, from + (size_t)i * 4, sizeof narrow); /* the lowest half, where ids are wide */
        id = narrow;
        if (e->item[0] == sizeof id)
            memcpy(&id, from + (size_t)i * sizeof id, sizeof id);
        if (id < 0 || id >= ds->vertices)
            return pst_fail(PST_E_FORMAT,
                            "%s: vertex %" PRId64 " has the neighbour %" PRId64
                            ", but there are only %" PRId64 " vertices; `penstock verify` shows details",
                            ds->indices.path, v, id, ds->vertices);
        e->list[i] = (struct entry){.id = e->j->spec->new_of[id], .at = i};
    }
    qsort(e->list, (size_t)n, sizeof *e->list, by_id);
    pst_rc rc = PST_OK;
    for (int k = 0; k < PARTS && rc == PST_OK; k++) {
        const size_t item = e->item[k];
        for (int64_t i = 0; i < n && item > 0; i++) {
            const int32_t narrow = (int32_t)e->list[i].id;
            const void *value = k > 0       ? from + (size_t)e->list[i].at * item
                                : item == 4 ? (const void *)&narrow
                                            : (const void *)&e->list[i].id;
            memcpy(e->out + (size_t)i * item, value, item);
        }
        if (item > 0)
            rc = pst_array_write(&e->w[k], e->out, (size_t)n * item);
        from += (size_t)n * item;
    }
    return rc;
}

static pst_rc write_indptr(const struct pst_permute_job *j, int64_t *longest)
{
    const struct pst_dataset *ds = j->ds;
    const int64_t shape[2] = {ds->vertices + 1, 1};
    int64_t block[INDPTR_BLOCK], n = 0, at = 0;
    struct pst_array_writer w = {.fd = -1};
    pst_rc rc = pst_build_array(j->b, PST_ARRAY_INDPTR, PST_I64, 1, shape, &w);
    *longest = 0;
    block[n++] = 0;
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++) {
        const int64_t list = degree(ds, j->spec->old_of[v]);
        if (list < 0 || at + list > ds->edges)
            rc = pst_fail(PST_E_FORMAT, "%s: falls at vertex %" PRId64 "; `penstock verify` shows details",
                          ds->indptr.path, j->spec->old_of[v]);
        at += list;
        *longest = pst_max_i64(*longest, list);
        block[n++] = at;
        if (rc == PST_OK && n == INDPTR_BLOCK) {
            rc = pst_array_write(&w, block, sizeof block);
            n = 0;
        }
    }
    if (rc == PST_OK)
        rc = pst_array_write(&w, block, (size_t)n * sizeof *block);
    if (rc == PST_OK)
        rc = pst_build_array_end(j->b, PST_ARRAY_INDPTR, &w);
    pst_array_writer_release(&w);
    return rc;
}

pst_rc pst_permute_edges(const struct pst_permute_job *j)
{
    static const enum pst_array_id id[PARTS] = {PST_ARRAY_INDICES, PST_ARRAY_RELATIONS,
                                                PST_ARRAY_EDGE_WEIGHTS, PST_ARRAY_EDGE_TIMES};
    const struct pst_dataset *ds = j->ds;
    struct edges e = {.j = j, .part = {&ds->indices, &ds->edge_relation, &ds->edge_weights, &ds->edge_times}};
    int64_t longest;
    pst_rc rc = write_indptr(j, &longest);
    if (rc != PST_OK)
        return rc;
    for (int k = 0; k < PARTS; k++) {
        e.w[k].fd = -1;
        e.item[k] = k == 0 || e.part[k]->map != NULL ? pst_dtype_bytes(e.part[k]->dtype) : 0;
        e.entry_bytes += e.item[k];
    }
    struct pst_records_spec r = pst_permute_records(j, "edges");
    const uint64_t sorted = (uint64_t)longest * (sizeof *e.list + sizeof(int64_t));
    if (sorted > r.memory_bytes / 2)
        return pst_fail(PST_E_ARG,
                        "--memory: %" PRIu64 " bytes are too few to sort a list of %" PRId64
                        " neighbours: expected at least %" PRIu64,
                        r.memory_bytes, longest, 2 * sorted);
    r.memory_bytes -= sorted;
    e.list = malloc((size_t)longest * sizeof *e.list + 1);
    e.out = malloc((size_t)longest * sizeof(int64_t) + 1);
    if (e.list == NULL || e.out == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot sort a list of %" PRId64 " neighbours", longest);
    for (int k = 0; k < PARTS && rc == PST_OK; k++)
        if (e.item[k] > 0)
            rc = pst_build_array(j->b, id[k], e.part[k]->dtype, 1, (int64_t[2]){ds->edges, 1}, &e.w[k]);
    r.bytes_of = bytes_of;
    r.read = read_lists;
    r.write = write_list;
    r.ctx = &e;
    if (rc == PST_OK)
        rc = pst_records_write(&r);
    for (int k = 0; k < PARTS; k++) {
        if (rc == PST_OK && e.item[k] > 0)
            rc = pst_build_array_end(j->b, id[k], &e.w[k]);
        pst_array_writer_release(&e.w[k]);
    }
    free(e.list);
    free(e.out);
    return rc;
}
