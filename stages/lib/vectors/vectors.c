/* vectors.c: gathers rows of embeddings, and updates them; the memory of the blocks, on the host or on a GPU.
 */
#include "stages/lib/vectors/vectors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define NOWHERE UINT32_MAX /* in the list of rows: one that is not updated */

enum { TASK_ROWS = 64, TOGETHER = 256 }; /* TOGETHER: vertices whose rows are found at a time */

static int64_t tasks_of(int64_t rows)
{
    return (rows + TASK_ROWS - 1) / TASK_ROWS;
}

/* ---- opening ------------------------------------------------------------------------------------- */

struct init {
    const struct pst_vectors *v;
    pst_real *rows;
    int64_t first, n; /* places of the partition */
    uint64_t seed;
    pst_real scale;
};

static void init_rows(void *job, int64_t task, int worker)
{
    (void)worker;
    const struct init *j = job;
    const struct pst_vectors *v = j->v;
    const int64_t begin = task * TASK_ROWS, end = pst_min_i64(j->n, begin + TASK_ROWS);
    if (!v->parts)
        pst_embed_init(j->seed, 0, j->scale, begin, end - begin, v->dim, j->rows + begin * v->dim);
    for (int64_t i = begin; i < end && v->parts; i++)
        pst_embed_init(j->seed, 0, j->scale, pst_parts_vertex(v->parts, j->first + i), 1, v->dim,
                       j->rows + i * v->dim);
}

void pst_vectors_init(struct pst_vectors *v, int block, int partition, uint64_t seed, double scale)
{
    struct init job = {.v = v,
                       .rows = (pst_real *)(void *)pst_vectors_image(v, block),
                       .first = v->block_rows * partition,
                       .n = v->parts ? pst_parts_used(v->parts, partition) : v->vertices,
                       .seed = seed,
                       .scale = (pst_real)scale};
    memset(job.rows, 0, v->block_bytes);
    for (int64_t task = 0; task < tasks_of(job.n) && v->aside; task++)
        init_rows(&job, task, 0);
    if (!v->aside)
        pst_team_run(v->team, init_rows, &job, tasks_of(job.n));
}

uint64_t pst_vectors_bytes(const struct pst_vectors *v)
{
    const int64_t floats = v->dim + pst_k_embed_state_floats(v->optimizer, v->dim);
    return pst_align_up((uint64_t)(v->block_rows * floats) * sizeof(pst_real), v->unit);
}

pst_rc pst_vectors_open(struct pst_vectors *v, int threads)
{
    const size_t rows = (size_t)v->blocks * (size_t)v->block_rows;
    if (rows >= NOWHERE)
        return pst_fail(
            PST_E_LIMIT,
            "%zu vertices in memory; expected fewer than %u: set a lower buffer, or more partitions", rows,
            NOWHERE);
    v->state_dim = pst_k_embed_state_floats(v->optimizer, v->dim);
    v->block_bytes = pst_vectors_bytes(v);
    const pst_rc rc = pst_vectors_open_blocks(v);
    if (rc != PST_OK)
        return rc;
    v->place = calloc(rows + 1, sizeof *v->place);
    v->marked = calloc(rows + 1, sizeof *v->marked);
    v->listed = malloc((rows + 1) * sizeof *v->listed); /* rows of a batch are distinct */
    for (int p = 0; p < PST_PARTS_MAX; p++)
        v->block_of[p] = p == 0 && !v->parts ? 0 : -1;
    if (!v->place || !v->marked || !v->listed)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot list %zu vertices", rows);
    return pst_team_new(&v->team, threads);
}

void pst_vectors_close(struct pst_vectors *v)
{
    pst_team_free(v->team);
    pst_vectors_close_blocks(v);
    free(v->place);
    free(v->marked);
    free(v->listed);
    *v = (struct pst_vectors){.memory = NULL};
}

/* ---- where a vertex is ---------------------------------------------------------------------------- */

/* Its row, counted over the blocks; -1: it is in none. */
static int64_t row_of(const struct pst_vectors *v, int64_t vertex)
{
    if (!v->parts)
        return vertex;
    const int64_t place = pst_parts_place(v->parts, vertex);
    const int block = v->block_of[place / v->block_rows];
    return block < 0 ? -1 : block * v->block_rows + place % v->block_rows;
}

/* The same of at most TOGETHER vertices. */
static void rows_of(const struct pst_vectors *v, const int64_t *vertices, int64_t n, int64_t rows[TOGETHER])
{
    if (!v->parts) {
        memcpy(rows, vertices, (size_t)n * sizeof *rows);
        return;
    }
    pst_parts_places(v->parts, vertices, n, rows);
    for (int64_t i = 0; i < n; i++) {
        const int block = v->block_of[rows[i] / v->block_rows];
        rows[i] = block < 0 ? -1 : block * v->block_rows + rows[i] % v->block_rows;
    }
}

static pst_real *at_row(const struct pst_vectors *v, int64_t row)
{
    return pst_vectors_rows(v, (int)(row / v->block_rows)) + row % v->block_rows * v->dim;
}

static pst_real *state_at(const struct pst_vectors *v, int64_t row)
{
    return pst_vectors_state(v, (int)(row / v->block_rows)) + row % v->block_rows * v->state_dim;
}

const pst_real *pst_vectors_row(const struct pst_vectors *v, int64_t vertex)
{
    if (v->device)
        return pst_vectors_partition(v, vertex) == v->imaged
                   ? (const pst_real *)(const void *)v->image + pst_vectors_place(v, vertex) * v->dim
                   : NULL;
    const int64_t row = row_of(v, vertex);
    return row < 0 ? NULL : at_row(v, row);
}

static pst_rc absent(int64_t vertex)
{
    return pst_fail(PST_E_PEER,
                    "the batch has vertex %" PRId64
                    ", whose partition is not in memory now: do the stages edges and store have the same "
                    "`partitions`, `buffer` and `order`?",
                    vertex);
}

pst_rc pst_vectors_rows_of(const struct pst_vectors *v, const int64_t *vertices, int64_t n, uint32_t *rows)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = row_of(v, vertices[i]);
        if (row < 0)
            return absent(vertices[i]);
        rows[i] = (uint32_t)row;
    }
    return PST_OK;
}

/* ---- gathering ----------------------------------------------------------------------------------- */

/* The positions of vertices in the batch's list. New vertices go to its end. */
static pst_rc number(struct pst_vectors *v, const int64_t *ids, uint64_t n, uint32_t *positions,
                     int64_t *list, uint32_t *listed)
{
    int64_t rows[TOGETHER];
    for (uint64_t i = 0; i < n; i++) {
        if (i % TOGETHER == 0)
            rows_of(v, ids + i, pst_min_i64(TOGETHER, (int64_t)(n - i)), rows);
        const int64_t row = rows[i % TOGETHER];
        if (row < 0)
            return absent(ids[i]);
        if (v->marked[row] != v->mark) {
            v->marked[row] = v->mark;
            v->place[row] = *listed;
            v->listed[*listed] = (uint32_t)row;
            list[(*listed)++] = ids[i];
        }
        positions[i] = v->place[row];
    }
    return PST_OK;
}

static void next_mark(struct pst_vectors *v)
{
    if (++v->mark == 0) {
        memset(v->marked, 0, (size_t)(v->blocks * v->block_rows) * sizeof *v->marked);
        v->mark = 1;
    }
}

struct gather {
    const struct pst_vectors *v;
    int64_t n;
    char *rows;
};

static void gather_rows(void *job, int64_t task, int worker)
{
    (void)worker;
    const struct gather *j = job;
    const size_t row = (size_t)j->v->dim * sizeof(pst_real);
    const int64_t end = pst_min_i64(j->n, (task + 1) * TASK_ROWS);
    for (int64_t i = task * TASK_ROWS; i < end; i++)
        memcpy(j->rows + (size_t)i * row, at_row(j->v, j->v->listed[i]), row);
}

/* Vertices are numbered before their count is known. So the list is written where it will be, and the layout
 * is the one for as many vertices as the batch can have; then it is made for those that it has. Only rows
 * move. */
pst_rc pst_vectors_gather(struct pst_vectors *v, const struct pst_edge_batch *edges, const void *from,
                          char *slot, uint64_t bytes, struct pst_row_batch *out)
{
    const uint64_t negatives = edges->edges > 0 ? (uint64_t)edges->chunks * edges->negatives : 0;
    const uint64_t most = 2 * (edges->edges + negatives);
    struct pst_row_batch b = {.magic = PST_ROW_BATCH_MAGIC,
                              .batch = edges->batch,
                              .batch_in_epoch = edges->batch_in_epoch,
                              .batches_in_epoch = edges->batches_in_epoch,
                              .epoch = edges->epoch,
                              .edges = edges->edges,
                              .chunks = edges->chunks,
                              .negatives = edges->negatives,
                              .flush = edges->flush,
                              .flags = edges->flags,
                              .nodes = (uint32_t)pst_min_i64((int64_t)most, v->vertices),
                              .dim = (uint32_t)v->dim,
                              .relations = (uint32_t)edges->relations,
                              .rate = v->scale};
    const int32_t *relation = pst_edge_batch_at(from, edges->relation_at);
    if (v->relations)
        pst_relations_table_list(v->relations, relation, b.edges, &b);
    b.relation_rate = v->relations ? v->rate : 0;
    pst_row_batch_place(&b);
    if (b.bytes_used > bytes)
        return pst_fail(PST_E_STATE,
                        "batch %" PRIu64 " needs %" PRIu64 " bytes, but its slot has %" PRIu64
                        ": are `batch`, `chunks` and `negatives` the same in the stages edges and store?",
                        edges->batch, b.bytes_used, bytes);
    int64_t *list = pst_row_batch_at(slot, b.vertices_at);
    uint32_t listed = 0;
    next_mark(v);
    pst_rc rc = number(v, pst_edge_batch_at(from, edges->source_at), b.edges,
                       pst_row_batch_at(slot, b.source_at), list, &listed);
    if (rc == PST_OK)
        rc = number(v, pst_edge_batch_at(from, edges->destination_at), b.edges,
                    pst_row_batch_at(slot, b.destination_at), list, &listed);
    for (int side = 0; side < 2 && rc == PST_OK; side++)
        rc = number(v, pst_edge_batch_at(from, edges->negatives_at[side]), negatives,
                    pst_row_batch_at(slot, b.negatives_at[side]), list, &listed);
    if (rc != PST_OK)
        return rc;
    for (uint32_t i = 0; i < b.edges; i++)
        ((uint32_t *)pst_row_batch_at(slot, b.relation_at))[i] = (uint32_t)relation[i];
    if (v->relations)
        pst_relations_table_lend(v->relations, &b, slot);
    b.nodes = listed; /* the gradients follow the rows closely, so that copies between devices are short */
    b.grads_at = b.rows_at + pst_align_up((uint64_t)listed * b.dim * sizeof(pst_real), PST_CACHE_LINE);
    b.bytes_used = b.grads_at + (uint64_t)listed * b.dim * sizeof(pst_real);
    struct gather job = {.v = v, .n = listed, .rows = pst_row_batch_at(slot, b.rows_at)};
    pst_team_run(v->team, gather_rows, &job, tasks_of(listed));
    memcpy(slot, &b, sizeof b);
    *out = b;
    return PST_OK;
}

/* ---- updating ------------------------------------------------------------------------------------ */

struct update {
    const struct pst_vectors *v;
    const pst_real *grads;
    int64_t n;
    uint64_t number; /* of the update, from 1 */
};

static void update_rows(void *job, int64_t task, int worker)
{
    (void)worker;
    const struct update *j = job;
    const struct pst_vectors *v = j->v;
    const int64_t end = pst_min_i64(j->n, (task + 1) * TASK_ROWS);
    for (int64_t i = task * TASK_ROWS; i < end; i++) {
        const int64_t row = v->listed[i];
        if (row != NOWHERE)
            pst_embed_update(v->optimizer, at_row(v, row), state_at(v, row), j->grads + i * v->dim, v->dim,
                             v->rate * v->scale, j->number);
    }
}

static void update_listed(struct pst_vectors *v, const struct pst_row_batch *b, const char *slot,
                          uint64_t number)
{
    struct update job = {
        .v = v, .grads = pst_row_batch_at(slot, b->grads_at), .n = b->nodes, .number = number};
    pst_team_run(v->team, update_rows, &job, tasks_of(b->nodes));
}

pst_rc pst_vectors_update_gathered(struct pst_vectors *v, const struct pst_row_batch *b, const char *slot)
{
    update_listed(v, b, slot, ++v->updates);
    return v->relations ? pst_relations_table_take(v->relations, b, slot, v->rate * v->scale, v->updates)
                        : PST_OK;
}

static pst_rc damaged(const struct pst_vectors *v, const struct pst_row_batch *b, uint32_t i, int64_t vertex)
{
    return pst_fail(PST_E_PEER,
                    "batch %" PRIu64 " came back with a damaged list of vertices: entry %u is %" PRId64
                    "; expected vertices from 0 to %" PRId64 ", each at most once",
                    b->batch, i, vertex, v->vertices - 1);
}

static bool is_settled(const struct pst_vectors_settled *settled, int64_t partition)
{
    return settled && (settled->bits[partition / 64] >> (partition % 64) & 1);
}

/* Lists the rows of a slot's vertices, but NOWHERE for those that are not updated. only: the one partition
 * that is; -1: all are. */
static pst_rc list_rows(struct pst_vectors *v, const struct pst_row_batch *b, const char *slot, int only,
                        const struct pst_vectors_settled *settled)
{
    const int64_t *list = pst_row_batch_at(slot, b->vertices_at);
    for (uint32_t i = 0, n; i < b->nodes; i += n) {
        int64_t place[TOGETHER];
        for (n = 0; n < TOGETHER && i + n < b->nodes; n++)
            if (list[i + n] < 0 || list[i + n] >= v->vertices)
                return damaged(v, b, i + n, list[i + n]);
        if (v->parts)
            pst_parts_places(v->parts, list + i, n, place);
        else
            memcpy(place, list + i, n * sizeof *place);
        for (uint32_t k = 0; k < n; k++) {
            const int64_t partition = place[k] / v->block_rows;
            const bool skipped = is_settled(settled, partition) || (only >= 0 && partition != only);
            const int block = skipped ? 0 : v->block_of[partition];
            if (block < 0)
                return damaged(v, b, i + k, list[i + k]);
            v->listed[i + k] =
                skipped ? NOWHERE : (uint32_t)(block * v->block_rows + place[k] % v->block_rows);
        }
    }
    return PST_OK;
}

pst_rc pst_vectors_settle(struct pst_vectors *v, const struct pst_row_batch *b, const char *slot,
                          int partition, uint64_t after, struct pst_vectors_settled *settled)
{
    const pst_rc rc = list_rows(v, b, slot, partition, NULL);
    if (rc != PST_OK)
        return rc;
    settled->bits[partition / 64] |= UINT64_C(1) << (partition % 64);
    update_listed(v, b, slot, v->updates + after + 1);
    return PST_OK;
}

pst_rc pst_vectors_update(struct pst_vectors *v, const struct pst_row_batch *b, const char *slot,
                          const struct pst_vectors_settled *settled)
{
    const int64_t *list = pst_row_batch_at(slot, b->vertices_at);
    const pst_rc rc = list_rows(v, b, slot, -1, settled);
    if (rc != PST_OK)
        return rc;
    next_mark(v);
    for (uint32_t i = 0; i < b->nodes; i++) {
        const uint32_t row = v->listed[i];
        if (row != NOWHERE && v->marked[row] == v->mark)
            return damaged(v, b, i, list[i]);
        if (row != NOWHERE)
            v->marked[row] = v->mark;
    }
    return pst_vectors_update_gathered(v, b, slot);
}

/* ---- blocks: a GPU has the rows of all blocks in one table, and their states in another, so that kernels
 * find a row by its number. A partition in a file has both, one after the other. --------------------- */

/* Bytes of a block's rows and of their states. */
static void parts_of(const struct pst_vectors *v, uint64_t bytes[2])
{
    bytes[0] = (uint64_t)(v->block_rows * v->dim) * sizeof(pst_real);
    bytes[1] = (uint64_t)(v->block_rows * v->state_dim) * sizeof(pst_real);
}

static pst_rc open_on_gpu(struct pst_vectors *v)
{
    uint64_t bytes[2];
    void *memory, *image = NULL;
    parts_of(v, bytes);
    pst_rc rc =
        pst_device_take(v->device, PST_TWIN_MEMORY_DEVICE, (uint64_t)v->blocks * (bytes[0] + bytes[1]),
                        "the embeddings (lower `dim` or `buffer`, or raise `partitions`)", &memory);
    if (rc == PST_OK)
        rc = pst_device_take(v->device, PST_TWIN_MEMORY_PINNED, v->block_bytes, "a partition", &image);
    v->memory = memory;
    v->image = image;
    return rc;
}

pst_rc pst_vectors_open_blocks(struct pst_vectors *v)
{
    v->imaged = -1;
    if (v->device)
        return open_on_gpu(v);
    v->memory = aligned_alloc(PST_PAGE, pst_align_up((uint64_t)v->blocks * v->block_bytes + 1, PST_PAGE));
    return v->memory
               ? PST_OK
               : pst_fail(
                     PST_E_NOMEM,
                     "out of memory: cannot allocate the embeddings of %" PRId64 " vertices, %" PRId64
                     " floats each with optimizer state; lower `dim` or `buffer`, raise `partitions`, or "
                     "choose the optimizer adagrad-row",
                     v->blocks * v->block_rows, v->dim + v->state_dim);
}

void pst_vectors_close_blocks(struct pst_vectors *v)
{
    if (v->device) {
        pst_device_give(v->device, v->memory);
        pst_device_give(v->device, v->image);
    } else {
        free(v->memory);
    }
}

/* ---- copies ---------------------------------------------------------------------------------------- */

/* Copies bytes `at` and so on of a block's image to the GPU, or back. Behind both parts there is nothing. */
static pst_rc copy(const struct pst_vectors *v, int block, uint64_t at, char *here, uint64_t bytes, bool back)
{
    char *there[2] = {(char *)pst_vectors_rows(v, block), (char *)pst_vectors_state(v, block)};
    uint64_t part[2];
    parts_of(v, part);
    for (int i = 0; i < 2; i++) {
        const uint64_t n = at >= part[i] ? 0 : bytes < part[i] - at ? bytes : part[i] - at;
        char *on_gpu = there[i] + (n > 0 ? at : 0);
        if (n > 0)
            (void)v->device->twin->copy(v->device->q, back ? here : on_gpu, back ? on_gpu : here, n);
        at = at + n >= part[i] ? at + n - part[i] : 0;
        here += n;
        bytes -= n;
    }
    if (back)
        memset(here, 0, bytes);
    return pst_device_wait(v->device);
}

pst_rc pst_vectors_put(struct pst_vectors *v, int block, uint64_t at, const char *from, uint64_t bytes)
{
    if (v->device)
        return copy(v, block, at, (char *)(uintptr_t)from, bytes, false);
    memcpy((char *)pst_vectors_rows(v, block) + at, from, bytes);
    return PST_OK;
}

pst_rc pst_vectors_get(const struct pst_vectors *v, int block, uint64_t at, char *to, uint64_t bytes)
{
    if (v->device)
        return copy(v, block, at, to, bytes, true);
    memcpy(to, (char *)pst_vectors_rows(v, block) + at, bytes);
    return PST_OK;
}

char *pst_vectors_image(struct pst_vectors *v, int block)
{
    v->imaged = -1;
    return v->device ? v->image : (char *)pst_vectors_rows(v, block);
}

pst_rc pst_vectors_put_image(struct pst_vectors *v, int block, int partition)
{
    v->imaged = partition;
    return v->device ? pst_vectors_put(v, block, 0, v->image, v->block_bytes) : PST_OK;
}
