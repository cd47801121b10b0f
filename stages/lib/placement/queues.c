/* queues.c: the two queues of vertices by hotness, and their chunks. */
#include "stages/lib/placement/placement_impl.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/memory.h"

#define CHUNKS_A_CACHE 256 /* of a cache that is too small for 256 chunks of 100 MB */
#define LISTS_A_CACHE 16   /* a chunk grows for the longest list, but the smallest cache has so many chunks */
#define BLOCK (1 << 20)    /* entries of a queue that threads fetch at a time */
#define AHEAD 24           /* entries fetched before they are used: they lie at random places */

/* ---- input ---------------------------------------------------------------------------------------- */

static bool power_of_two(uint64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static pst_rc check_units(const struct pst_placement_input *in)
{
    if (in->entry_bytes != 4 && in->entry_bytes != 8)
        return pst_fail(PST_E_ARG, "an entry of a list of neighbours has %u bytes; expected 4 or 8",
                        in->entry_bytes);
    if (!power_of_two(in->line_bytes) || in->line_bytes < 16 || in->line_bytes > 512)
        return pst_fail(PST_E_ARG, "a PCIe transaction has %u bytes; expected a power of two from 16 to 512",
                        in->line_bytes);
    if (!power_of_two(in->sector_bytes) || in->sector_bytes < in->line_bytes || in->sector_bytes > PST_PAGE)
        return pst_fail(PST_E_ARG,
                        "the SSD's smallest read has %u bytes; expected a power of two from %u (one PCIe "
                        "transaction) to %u",
                        in->sector_bytes, in->line_bytes, PST_PAGE);
    return PST_OK;
}

static pst_rc check(const struct pst_placement_input *in)
{
    if (in->vertices < 1 || in->vertices >= (int64_t)UINT32_MAX)
        return pst_fail(PST_E_LIMIT, "cannot place a graph of %lld vertices; expected 1 to %u",
                        (long long)in->vertices, UINT32_MAX - 1);
    if (in->hops < 0 || in->hops > PST_HOPS_MAX)
        return pst_fail(PST_E_ARG, "the plan has %d hops; expected 0 to %d", in->hops, PST_HOPS_MAX);
    for (int h = 0; h < in->hops; h++) {
        if (in->fanout[h] < -1)
            return pst_fail(PST_E_ARG,
                            "the fanout of hop %d is %lld; expected at least 0, or -1 for all neighbours", h,
                            (long long)in->fanout[h]);
    }
    if (in->rows != NULL && (in->row_bytes < 1 || in->row_files < 1))
        return pst_fail(
            PST_E_ARG,
            "the features have rows of %llu bytes in %d files; expected at least 1 byte and 1 file",
            (unsigned long long)in->row_bytes, in->row_files);
    if (in->batches < 1)
        return pst_fail(PST_E_ARG, "hotness was counted in %lld batches; expected at least 1 batch",
                        (long long)in->batches);
    if (in->threads < 1 || in->threads > PST_PLACEMENT_THREADS_MAX)
        return pst_fail(PST_E_ARG, "the number of threads is %d; expected 1 to %d", in->threads,
                        PST_PLACEMENT_THREADS_MAX);
    return check_units(in);
}

/* ---- the size of chunks ----------------------------------------------------------------------------- */

static uint64_t smallest_cache(const struct pst_placement_input *in)
{
    const uint64_t gpu = in->cache_bytes[PST_PLACEMENT_GPU], cpu = in->cache_bytes[PST_PLACEMENT_CPU];
    return gpu == 0 || (cpu > 0 && cpu < gpu) ? cpu : gpu;
}

static uint64_t bytes_of_lists(const struct pst_placement_input *in)
{
    return (uint64_t)(in->indptr[in->vertices] - in->indptr[0]) * in->entry_bytes +
           (uint64_t)in->vertices * in->list_bytes;
}

/* The paper's 100 MB, or less for small caches; whole rows, so that a full chunk of rows wastes nothing. It
 * grows for the longest list, if that leaves the cache enough chunks, and if there would be too many chunks.
 */
static uint64_t chunk_bytes_of(const struct pst_placement_input *in, uint64_t lists, uint64_t longest)
{
    const uint64_t row = in->rows != NULL ? in->row_bytes : 1, smallest = smallest_cache(in);
    const uint64_t rows = in->rows != NULL ? (uint64_t)in->vertices * row : 0;
    uint64_t bytes = in->chunk_bytes;
    if (bytes == 0) {
        bytes = PST_PLACEMENT_CHUNK_BYTES;
        if (smallest / CHUNKS_A_CACHE < bytes)
            bytes = smallest / CHUNKS_A_CACHE;
    }
    bytes = bytes < row ? row : bytes / row * row;
    if (longest > bytes && longest <= smallest / LISTS_A_CACHE)
        bytes = pst_align_up(longest, row);
    /* A chunk of lists is at least half full, together with the one after it. */
    const uint64_t least = (2 * lists + rows) / (PST_PLACEMENT_CHUNKS_MAX - 2) + 1;
    return bytes < least ? pst_align_up(least, row) : bytes;
}

/* ---- a queue ------------------------------------------------------------------------------------------ */

static pst_rc no_memory(int64_t chunks)
{
    return pst_fail(PST_E_NOMEM, "out of memory: cannot describe %lld chunks", (long long)chunks);
}

static pst_rc make_queue(struct pst_placement_queue *q, int64_t vertices)
{
    q->order = pst_hugepage_alloc((uint64_t)vertices * sizeof *q->order);
    const size_t most = PST_PLACEMENT_CHUNKS_MAX + 1;
    q->cut = calloc(most, sizeof *q->cut);
    q->heat = calloc(most, sizeof *q->heat);
    q->cpu = calloc(most, sizeof *q->cpu);
    q->home = calloc(most, sizeof *q->home);
    if (q->order == NULL || q->cut == NULL || q->heat == NULL || q->cpu == NULL || q->home == NULL)
        return no_memory(PST_PLACEMENT_CHUNKS_MAX);
    return PST_OK;
}

/* A list's place and its hotness lie at random places, so threads weigh a block of the queue for the one that
 * cuts it. */
struct gather {
    const struct pst_placement_scale *scale;
    const uint32_t *order; /* of the block */
    int64_t n;
    struct pst_placement_item *block;
};

static pst_rc gather_part(void *context, int part, int64_t first, int64_t end)
{
    (void)part;
    const struct gather *g = context;
    const struct pst_placement_input *in = g->scale->in;
    for (int64_t i = first; i < end; i++) {
        if (i + AHEAD < end) {
            const uint32_t next = g->order[i + AHEAD];
            __builtin_prefetch(&in->indptr[next]);
            for (int h = 0; h < in->hops; h++)
                __builtin_prefetch(&in->lists[h][next]);
        }
        g->block[i] = pst_placement_weigh(g->scale, g->order[i]);
    }
    return PST_OK;
}

static void leave(struct pst_placement_queue *q, const struct pst_placement_item *list)
{
    q->left++;
    q->left_heat += (double)list->heat;
    q->left_cpu += (double)list->cpu;
    q->left_home += (double)list->home;
}

/* Appends a list to the last chunk, or begins a chunk. */
static void enqueue(struct pst_placement_queue *q, uint32_t v, const struct pst_placement_item *list,
                    uint64_t chunk_bytes, uint64_t *filled)
{
    if (q->chunks == 0 || *filled + list->bytes > chunk_bytes) {
        assert(q->chunks < PST_PLACEMENT_CHUNKS_MAX);
        q->cut[q->chunks++] = q->queued;
        *filled = 0;
    }
    *filled += list->bytes;
    q->heat[q->chunks - 1] += (double)list->heat;
    q->cpu[q->chunks - 1] += (double)list->cpu;
    q->home[q->chunks - 1] += (double)list->home;
    q->order[q->queued++] = v;
}

static pst_rc cut_lists(struct pst_placement_queue *q, const struct pst_placement_input *in,
                        const struct pst_placement_scale *scale, uint64_t chunk_bytes)
{
    struct gather g = {.scale = scale};
    g.block = pst_hugepage_alloc(BLOCK * sizeof *g.block);
    pst_rc rc = g.block != NULL ? PST_OK : no_memory(PST_PLACEMENT_CHUNKS_MAX);
    uint64_t filled = 0;
    for (int64_t at = 0; at < in->vertices && rc == PST_OK; at += g.n) {
        g.order = q->order + at;
        g.n = pst_min_i64(BLOCK, in->vertices - at);
        rc = pst_placement_split(in->threads, g.n, gather_part, &g);
        for (int64_t i = 0; i < g.n && rc == PST_OK; i++) {
            if (g.block[i].bytes > chunk_bytes)
                leave(q, &g.block[i]);
            else
                enqueue(q, g.order[i], &g.block[i], chunk_bytes, &filled);
        }
    }
    free(g.block);
    q->cut[q->chunks] = q->queued;
    return rc;
}

static pst_rc queue_lists(struct pst_placement *p, const struct pst_placement_input *in,
                          const struct pst_placement_sorter *sorter)
{
    struct pst_placement_queue *q = &p->queue[PST_PLACEMENT_LISTS];
    const float *scores[PST_HOPS_MAX];
    int n = 0;
    for (int h = 0; h < in->hops; h++) {
        if (in->fanout[h] != 0)
            scores[n++] = in->lists[h];
    }
    if (n == 0)
        return PST_OK;
    uint64_t longest;
    pst_rc rc = pst_placement_order(sorter, scores, n, in->vertices, in->threads, q->order);
    if (rc == PST_OK)
        rc = pst_placement_longest_list(in, &longest);
    if (rc != PST_OK)
        return pst_wrap(rc, "the lists");
    p->chunk_bytes = chunk_bytes_of(in, bytes_of_lists(in), longest);
    struct pst_placement_scale scale;
    rc = pst_placement_scale_init(&scale, in);
    if (rc == PST_OK)
        rc = cut_lists(q, in, &scale, p->chunk_bytes);
    pst_placement_scale_release(&scale);
    return rc;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

struct rows {
    struct pst_placement_queue *q;
    const struct pst_placement_input *in;
};

/* Chunks first to end - 1. */
static pst_rc sum_rows(void *context, int part, int64_t first, int64_t end)
{
    (void)part;
    const struct rows *r = context;
    const struct pst_placement_input *in = r->in;
    struct pst_placement_queue *q = r->q;
    for (int64_t chunk = first; chunk < end; chunk++) {
        double heat = 0, cpu = 0, home = 0;
        for (int64_t i = q->cut[chunk]; i < q->cut[chunk + 1]; i++) {
            if (i + AHEAD < in->vertices)
                __builtin_prefetch(&in->rows[q->order[i + AHEAD]]);
            const uint32_t v = q->order[i];
            const double reads = (double)in->rows[v];
            heat += reads;
            cpu += pst_placement_row_cost(in, v, reads, in->line_bytes);
            home += pst_placement_row_cost(in, v, reads, in->sector_bytes);
        }
        q->heat[chunk] = heat;
        q->cpu[chunk] = cpu;
        q->home[chunk] = home;
    }
    return PST_OK;
}

static pst_rc queue_rows(struct pst_placement *p, const struct pst_placement_input *in,
                         const struct pst_placement_sorter *sorter)
{
    struct pst_placement_queue *q = &p->queue[PST_PLACEMENT_ROWS];
    pst_rc rc = pst_placement_order(sorter, &in->rows, 1, in->vertices, in->threads, q->order);
    if (rc != PST_OK)
        return pst_wrap(rc, "the rows");
    const int64_t each = pst_min_i64((int64_t)(p->chunk_bytes / in->row_bytes), in->vertices);
    q->queued = in->vertices;
    q->chunks = (in->vertices + each - 1) / each;
    assert(q->chunks <= PST_PLACEMENT_CHUNKS_MAX);
    for (int64_t i = 0; i <= q->chunks; i++)
        q->cut[i] = pst_min_i64(in->vertices, i * each);
    struct rows rows = {q, in};
    return pst_placement_split(in->threads, q->chunks, sum_rows, &rows);
}

/* ---- both ------------------------------------------------------------------------------------------------
 */

static pst_rc fill(struct pst_placement *p, const struct pst_placement_input *in)
{
    struct pst_placement_sorter sorter = {0};
    pst_rc rc = make_queue(&p->queue[PST_PLACEMENT_LISTS], in->vertices);
    if (rc == PST_OK && in->rows != NULL)
        rc = make_queue(&p->queue[PST_PLACEMENT_ROWS], in->vertices);
    if (rc == PST_OK)
        rc = pst_placement_sorter_init(&sorter, in->vertices, in->threads);
    if (rc == PST_OK)
        rc = queue_lists(p, in, &sorter);
    if (rc == PST_OK && in->rows != NULL)
        rc = queue_rows(p, in, &sorter);
    pst_placement_sorter_release(&sorter);
    return rc;
}

pst_rc pst_placement_open(struct pst_placement *p, const struct pst_placement_input *in)
{
    *p = (struct pst_placement){.batches = in->batches, .lists_in_memory = in->lists_in_memory};
    pst_rc rc = check(in);
    if (rc != PST_OK)
        return rc;
    p->chunk_bytes = chunk_bytes_of(in, 0, 0);
    rc = fill(p, in);
    if (rc != PST_OK) {
        pst_placement_close(p);
        return rc;
    }
    for (int tier = PST_PLACEMENT_CPU; tier < PST_PLACEMENT_TIERS; tier++)
        p->room[tier] = (int64_t)(in->cache_bytes[tier] / p->chunk_bytes);
    return PST_OK;
}

/* ---- other hotness ----------------------------------------------------------------------------------------
 */

static void sum_lists(struct pst_placement_queue *q, const struct pst_placement_scale *scale)
{
    q->left_heat = q->left_cpu = q->left_home = 0;
    for (int64_t v = 0; v < scale->in->vertices; v++) {
        const struct pst_placement_item item = pst_placement_weigh(scale, (uint32_t)v);
        q->left_heat += pst_placement_list_heat(scale->in, v);
        q->left_cpu += (double)item.cpu;
        q->left_home += (double)item.home;
    }
    for (int64_t chunk = 0; chunk < q->chunks; chunk++) {
        q->heat[chunk] = q->cpu[chunk] = q->home[chunk] = 0;
        for (int64_t i = q->cut[chunk]; i < q->cut[chunk + 1]; i++) {
            const struct pst_placement_item item = pst_placement_weigh(scale, q->order[i]);
            q->heat[chunk] += pst_placement_list_heat(scale->in, q->order[i]);
            q->cpu[chunk] += (double)item.cpu;
            q->home[chunk] += (double)item.home;
        }
        q->left_heat -= q->heat[chunk];
        q->left_cpu -= q->cpu[chunk];
        q->left_home -= q->home[chunk];
    }
    if (q->left == 0) /* not the rounding of the sums */
        q->left_heat = q->left_cpu = q->left_home = 0;
}

pst_rc pst_placement_reweigh(struct pst_placement *p, const struct pst_placement_input *in)
{
    struct pst_placement_scale scale = {0};
    uint64_t longest;
    pst_rc rc = check(in);
    if (rc == PST_OK)
        rc = pst_placement_longest_list(in, &longest);
    if (rc == PST_OK)
        rc = pst_placement_scale_init(&scale, in);
    if (rc == PST_OK && p->queue[PST_PLACEMENT_LISTS].chunks > 0)
        sum_lists(&p->queue[PST_PLACEMENT_LISTS], &scale);
    pst_placement_scale_release(&scale);
    if (rc != PST_OK)
        return rc;
    p->batches = in->batches;
    struct rows rows = {&p->queue[PST_PLACEMENT_ROWS], in};
    return in->rows != NULL ? sum_rows(&rows, 0, 0, rows.q->chunks) : PST_OK;
}

void pst_placement_close(struct pst_placement *p)
{
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        struct pst_placement_queue *q = &p->queue[kind];
        free(q->order);
        free(q->cut);
        free(q->heat);
        free(q->cpu);
        free(q->home);
        *q = (struct pst_placement_queue){0};
    }
}
