/* epoch_reads.c: counts what an epoch reads. */
#include "stages/lib/reorder/epoch_reads.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"
#include "common/store/dataset/stride.h"

#define FILE_SHIFT 48  /* a place: the file above, the byte below */
#define TOGETHER 32768 /* rows that the engine sorts at a time (PST_DISK_PIECES_MAX) */
#define MERGED 256     /* rows that it reads at a time */

/* The rows of one file, or of all stripes together. */
struct area {
    int64_t first;                  /* vertex */
    uint64_t files, row, stride[2]; /* bytes of the values; strides as they are, and packed */
    uint64_t file;                  /* of the first */
};

struct job {
    struct pst_hoods *h;
    const struct pst_reads_disk *disk;
    struct area area[PST_MANIFEST_VERTEX_TYPES_MAX];
    uint64_t *place, places; /* of the rows that are missed now */
    uint64_t places_max;
};

static void find_areas(struct job *j)
{
    const struct pst_dataset *ds = &j->h->ds;
    if (ds->vertex_types == 0) {
        j->area[0] = (struct area){
            .files = (uint64_t)pst_feature_files(ds),
            .row = (uint64_t)ds->feature_dim * pst_dtype_bytes(ds->features.dtype),
            .stride = {ds->stride_bytes, pst_stride_packed(ds->feature_dim, ds->features.dtype)}};
        return;
    }
    for (int k = 0; k < ds->vertex_types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        j->area[k] =
            (struct area){.first = t->first,
                          .files = 1,
                          .file = (uint64_t)k,
                          .row = (uint64_t)t->feature_dim * pst_dtype_bytes(t->features.dtype),
                          .stride = {t->stride_bytes, pst_stride_packed(t->feature_dim, t->features.dtype)}};
    }
}

static const struct area *area_of(const struct job *j, int64_t v)
{
    const int type = pst_rows_type_of(&j->h->ds, v);
    return &j->area[type < 0 ? 0 : type];
}

static int by_place(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The reads of up to TOGETHER rows, which begin at the places. */
static void add_reads(const struct job *j, uint64_t *place, uint64_t n, struct pst_reads *out)
{
    const uint64_t block = j->disk->block, most = pst_align_up(j->disk->coalesce_bytes, PST_PAGE);
    uint64_t begin = 0, end = 0, rows = 0;
    qsort(place, n, sizeof *place, by_place);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t file = place[i] >> FILE_SHIFT, type = j->h->ds.vertex_types > 0 ? file : 0;
        const uint64_t from = place[i] / block * block;
        const uint64_t to = pst_align_up(place[i] + j->area[type].row, block);
        const bool joins = rows > 0 && rows < MERGED && file == begin >> FILE_SHIFT &&
                           from <= end + j->disk->gap_bytes && to - begin <= most;
        if (!joins) {
            out->bytes += end - begin;
            out->reads++;
            begin = from;
            rows = 0;
        }
        end = joins && end > to ? end : to;
        rows++;
    }
    out->bytes += end - begin;
}

/* The rows of vertices[from..to) that are not cached. */
static void add_hop(struct job *j, int64_t from, int64_t to, const uint8_t *tier,
                    const struct pst_reads_layout *l, struct pst_reads *out)
{
    const int64_t *vertices = j->h->vertices;
    uint64_t n = 0;
    out->vertices += to - from;
    for (int64_t i = from; i < to; i++) {
        const int64_t v = vertices[i], number = l->new_of != NULL ? l->new_of[v] : v;
        const struct area *a = area_of(j, v);
        if (a->row == 0 || tier[v] >= PST_RENUMBER_BOTH)
            continue;
        const uint64_t row = (uint64_t)(number - a->first);
        j->place[n++] =
            (a->file + row % a->files) << FILE_SHIFT | (PST_PAGE + row / a->files * a->stride[l->pack]);
        out->missed++;
        out->wanted += a->row;
    }
    for (uint64_t at = 0; at < n; at += TOGETHER)
        add_reads(j, j->place + at, n - at < TOGETHER ? n - at : TOGETHER, out);
}

static pst_rc make_room(struct job *j)
{
    const uint64_t need = (uint64_t)j->h->n[j->h->spec.hops];
    if (j->place != NULL && need <= j->places_max)
        return PST_OK;
    free(j->place);
    j->places_max = 2 * need + 1;
    j->place = malloc(j->places_max * sizeof *j->place);
    return j->place != NULL ? PST_OK
                            : pst_fail(PST_E_NOMEM, "out of memory: cannot count the reads of %llu rows",
                                       (unsigned long long)need);
}

static void scale(struct pst_reads *r, uint64_t counted, uint64_t all)
{
    const double by = (double)all / (double)counted;
    r->batches = all;
    r->vertices = (int64_t)((double)r->vertices * by + 0.5);
    r->missed = (int64_t)((double)r->missed * by + 0.5);
    r->wanted = (uint64_t)((double)r->wanted * by + 0.5);
    r->bytes = (uint64_t)((double)r->bytes * by + 0.5);
    r->reads = (uint64_t)((double)r->reads * by + 0.5);
}

pst_rc pst_reads_count(struct pst_hoods *h, const struct pst_reads_disk *disk, const uint8_t *tier,
                       const struct pst_reads_layout *layout, int layouts, uint64_t most,
                       struct pst_reads *out, struct pst_progress *progress)
{
    struct job *j = calloc(1, sizeof *j);
    const uint64_t all = h->seeds.batches, some = all < most ? all : most;
    pst_rc rc = j != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot count reads");
    memset(out, 0, (size_t)layouts * sizeof *out);
    pst_progress_begin(progress, "predicting", some, false);
    if (rc == PST_OK) {
        j->h = h;
        j->disk = disk;
        find_areas(j);
        pst_hoods_begin(h);
    }
    for (uint64_t i = 0; i < some && rc == PST_OK; i++) {
        rc = pst_hoods_batch(h, PST_HOODS_EPOCHS * all + i * all / some);
        if (rc == PST_OK)
            rc = make_room(j);
        for (int k = 0; k < layouts && rc == PST_OK; k++) {
            add_hop(j, 0, h->n[0], tier, &layout[k], &out[k]);
            for (int hop = 0; hop < h->spec.hops; hop++)
                add_hop(j, h->n[hop], h->n[hop + 1], tier, &layout[k], &out[k]);
        }
        if (rc == PST_OK)
            rc = pst_progress_add(progress, 1);
    }
    pst_hoods_end(h);
    for (int k = 0; k < layouts && rc == PST_OK; k++)
        scale(&out[k], some, all);
    if (rc == PST_OK)
        pst_progress_end(progress);
    if (j != NULL)
        free(j->place);
    free(j);
    return rc;
}
