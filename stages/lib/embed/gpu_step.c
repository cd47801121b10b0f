/* gpu_step.c: puts a batch on a queue, one side of one chunk after the other, and then the sums by vertex
 * and by relation. The order of entries is that of step.c. */
#include "stages/lib/embed/embed_gpu.h"
#include "common/error.h"
#include "common/util/rng.h"

#include <string.h>

enum {
    TILE_SCORES = 1 << 25, /* of a tile: with their gradients 256 MiB */
    LOSSES = 2,
    COUNTS = 3, /* as in struct pst_embed_device */
    COUNT_NODES = 2,
};

struct run {
    const struct pst_embed_plan *plan;
    const struct pst_embed_batch *b;
    const struct pst_twin *twin;
    struct pst_queue *q;
    enum pst_k_embed_model model;
    int64_t entries, tile, dr;
    struct pst_rng_stream dropout;
    pst_real *entry, *relation_entry, *x, *scores, *grad, *query, *d_query, *f;
    uint32_t *row; /* of each entry */
    double *loss;
};

pst_rc pst_embed_device_open(struct pst_embed_device *w, struct pst_device *device)
{
    void *at;
    *w = (struct pst_embed_device){.device = device};
    const pst_rc rc =
        pst_device_take(device, PST_TWIN_MEMORY_DEVICE, LOSSES * sizeof *w->loss + COUNTS * sizeof *w->counts,
                        "a batch's loss and counts", &at);
    w->loss = at;
    w->counts = rc == PST_OK ? (int64_t *)(void *)(w->loss + LOSSES) : NULL;
    return rc;
}

/* ---- memory -------------------------------------------------------------------------------------- */

pst_rc pst_embed_device_grow(struct pst_embed_device *w, enum pst_embed_device_buffer which, int64_t count,
                             size_t size, void *to)
{
    const uint64_t bytes = ((uint64_t)count + 1) * size;
    void **at = &w->buffer[which].at;
    pst_rc rc = PST_OK;
    if (bytes > w->buffer[which].bytes) {
        pst_device_give(w->device, *at);
        w->buffer[which].bytes = 0;
        rc = pst_device_take(w->device, PST_TWIN_MEMORY_DEVICE, bytes, "the gradients of a batch", at);
        w->buffer[which].bytes = rc == PST_OK ? bytes : 0;
    }
    memcpy(to, at, sizeof *at);
    return rc;
}

static pst_rc grow_all(struct pst_embed_device *w, struct run *r)
{
    const int64_t n = r->b->negatives, d = r->plan->d, m = r->tile;
    const struct {
        enum pst_embed_device_buffer which;
        int64_t count;
        size_t size;
        void *to;
    } all[] = {
        {PST_EMBED_ENTRIES, r->entries * d, sizeof(pst_real), &r->entry},
        {PST_EMBED_RELATION_ENTRIES, 2 * r->b->edges * r->dr, sizeof(pst_real), &r->relation_entry},
        {PST_EMBED_ENTRY_ROWS, r->entries, sizeof(uint32_t), &r->row},
        {PST_EMBED_X, n * d, sizeof(pst_real), &r->x},
        {PST_EMBED_SCORES, m * n, sizeof(pst_real), &r->scores},
        {PST_EMBED_GRAD, m * n, sizeof(pst_real), &r->grad},
        {PST_EMBED_QUERY, m * d, sizeof(pst_real), &r->query},
        {PST_EMBED_QUERY_GRAD, m * d, sizeof(pst_real), &r->d_query},
        {PST_EMBED_TRUE, 2 * m, sizeof(pst_real), &r->f},
    };
    pst_rc rc = pst_device_reserve(w->device, r->entries, 0);
    for (size_t i = 0; i < sizeof all / sizeof *all && rc == PST_OK; i++)
        rc = pst_embed_device_grow(w, all[i].which, all[i].count, all[i].size, all[i].to);
    return pst_wrap(rc, "cannot train a batch of %lld edges with %lld negatives in each of %lld chunks",
                    (long long)r->b->edges, (long long)n, (long long)r->b->chunks);
}

/* ---- one side of one chunk ----------------------------------------------------------------------- */

static pst_real *entry_at(const struct run *r, int64_t entry)
{
    return r->entry + entry * r->plan->d;
}

/* Side 0 replaces sources: the anchor is the destination. Inverse relations come after the others. */
static struct pst_k_embed_side side_of(const struct run *r, int64_t side, int64_t from, int64_t m)
{
    const struct pst_embed_batch *b = r->b;
    const bool inverse = side == 0 && r->plan->inverse;
    const pst_real *relations = inverse ? b->relation_rows + r->plan->relations * r->dr : b->relation_rows;
    return (struct pst_k_embed_side){.model = r->model,
                                     .n = m,
                                     .d = r->plan->d,
                                     .backwards = side == 0 && !inverse,
                                     .nodes = b->nodes,
                                     .anchor = (side ? b->src : b->dst) + from,
                                     .target = (side ? b->dst : b->src) + from,
                                     .relations = r->dr ? relations : NULL,
                                     .relation = b->rel + from,
                                     .dropout = r->plan->dropout,
                                     .draws = r->dropout,
                                     .first = (uint64_t)(2 * from + side)};
}

/* An unfused operation does not find the queries of the one before it. */
static void query_again(const struct run *r, const struct pst_k_embed_side *side)
{
    if (r->plan->unfused)
        r->twin->embed_query(r->q, side, r->query, r->f);
}

static void run_tile(const struct run *r, int64_t task, const uint32_t *ids, int64_t from, int64_t m)
{
    const struct pst_embed_plan *plan = r->plan;
    const int64_t side = task % 2, edges = r->b->edges, n = r->b->negatives;
    const struct pst_k_embed_side s = side_of(r, side, from, m);
    const struct pst_k_embed_penalty penalty = {plan->n3, plan->l2};
    const struct pst_k_embed_tile tile = {.similarity = plan->model->similarity,
                                          .m = m,
                                          .n = n,
                                          .d = plan->d,
                                          .query = r->query,
                                          .x = r->x,
                                          .scores = r->scores,
                                          .grad = r->grad};
    pst_real *df = r->f + m;
    const struct pst_k_embed_loss_rows rows = {plan->loss, plan->margin, plan->temperature, m,       n, r->f,
                                               r->scores,  ids,          s.target,          r->grad, df};
    r->twin->embed_query(r->q, &s, r->query, r->f);
    query_again(r, &s);
    r->twin->embed_scores(r->q, &tile);
    r->twin->embed_loss(r->q, &rows, &r->loss[0]);
    if (plan->unfused) /* the gradient of the loss */
        r->twin->embed_loss(r->q, &rows, &r->loss[1]);
    query_again(r, &s);
    r->twin->embed_scores_grad(r->q, &tile, r->d_query, entry_at(r, 4 * edges + task * n));
    query_again(r, &s);
    r->twin->embed_query_grad(r->q, &s, &penalty, r->query, r->f, df, r->d_query,
                              entry_at(r, 2 * side * edges + from),
                              entry_at(r, (2 * side + 1) * edges + from),
                              r->relation_entry + (side * edges + from) * r->dr, &r->loss[0]);
}

static void run_side(const struct run *r, int64_t task)
{
    const struct pst_embed_batch *b = r->b;
    const int64_t chunk = task / 2, n = b->negatives, end = b->edges * (chunk + 1) / b->chunks;
    const uint64_t bytes = (uint64_t)r->plan->d * sizeof(pst_real);
    const uint32_t *ids = (task % 2 ? b->neg_dst : b->neg_src) + chunk * n;
    r->twin->gather(r->q, b->nodes, bytes, (const int32_t *)ids, r->x, bytes, NULL, n, bytes);
    for (int64_t from = b->edges * chunk / b->chunks; from < end; from += r->tile)
        run_tile(r, task, ids, from, pst_min_i64(r->tile, end - from));
}

/* ---- sums by row --------------------------------------------------------------------------------- */

/* The rows of entries: anchors and true ends of both sides, and then the negatives, both sides of a chunk
 * one after the other. */
static void list_rows(const struct run *r)
{
    const struct pst_embed_batch *b = r->b;
    const uint32_t *const ends[4] = {b->dst, b->src, b->src, b->dst};
    const uint64_t list = (uint64_t)b->negatives * sizeof *r->row;
    for (int i = 0; i < 4; i++)
        (void)r->twin->copy(r->q, r->row + i * b->edges, ends[i], (size_t)b->edges * sizeof *r->row);
    for (int side = 0; side < 2; side++)
        r->twin->gather(r->q, side ? b->neg_dst : b->neg_src, list, NULL,
                        r->row + 4 * b->edges + side * b->negatives, 2 * list, NULL, b->chunks, list);
}

static void sum_relations(const struct run *r, int64_t *counts)
{
    const struct pst_embed_batch *b = r->b;
    const int64_t relations = r->plan->relations, edges = b->edges;
    for (int inverse = 0; inverse < 2 && r->plan->inverse; inverse++) /* side 0 has the inverse ones */
        r->twin->embed_sum(r->q, edges, b->rel, r->relation_entry + (inverse ? 0 : edges * r->dr), relations,
                           r->dr, b->relation_grads + inverse * relations * r->dr,
                           b->touched + inverse * relations, &counts[inverse]);
    if (r->plan->inverse)
        return;
    for (int side = 0; side < 2; side++)
        (void)r->twin->copy(r->q, r->row + side * edges, b->rel, (size_t)edges * sizeof *r->row);
    r->twin->embed_sum(r->q, 2 * edges, r->row, r->relation_entry, relations, r->dr, b->relation_grads,
                       b->touched, &counts[0]);
}

static pst_rc begin(const struct pst_embed_plan *plan, const struct pst_embed_batch *b,
                    struct pst_embed_device *w, struct run *r)
{
    assert(b->edges >= 1 && b->chunks >= 1 && b->negatives >= 1 && b->neg_src && b->neg_dst);
    *r = (struct run){.plan = plan,
                      .b = b,
                      .twin = w->device->twin,
                      .q = w->device->q,
                      .entries = 4 * b->edges + 2 * b->chunks * b->negatives,
                      .dr = pst_embed_relation_floats(plan),
                      .dropout = pst_rng_stream_of(PST_RNG_DROPOUT, plan->seed, b->epoch, b->batch, 0),
                      .loss = w->loss};
    if (r->entries > INT32_MAX || b->n > INT32_MAX)
        return pst_fail(PST_E_LIMIT,
                        "a batch has %lld gradients of embeddings and %lld vertices; expected at most %d of "
                        "each: use fewer negatives or chunks, or a smaller batch",
                        (long long)r->entries, (long long)b->n, INT32_MAX);
    const int kind = pst_embed_model_kernel(plan->model);
    if (kind < 0)
        return pst_fail(PST_E_ARG, "model %s has no kernels for %s; expected %s, or a stage on a CPU",
                        plan->model->name, w->device->name, pst_embed_models());
    r->model = (enum pst_k_embed_model)kind;
    r->tile = pst_min_i64(pst_max_i64(1, TILE_SCORES / b->negatives), (b->edges + b->chunks - 1) / b->chunks);
    return grow_all(w, r);
}

pst_rc pst_embed_device_step(const struct pst_embed_plan *plan, const struct pst_embed_batch *b,
                             struct pst_embed_device *w, uint32_t *node_list)
{
    struct run r;
    const pst_rc rc = begin(plan, b, w, &r);
    if (rc != PST_OK)
        return rc;
    const int64_t negatives = 2 * b->chunks * b->negatives;
    (void)r.twin->fill(r.q, w->loss, 0, LOSSES * sizeof *w->loss + COUNTS * sizeof *w->counts);
    (void)r.twin->fill(r.q, entry_at(&r, 4 * b->edges), 0, (size_t)(negatives * plan->d) * sizeof *r.entry);
    for (int64_t task = 0; task < 2 * b->chunks; task++)
        run_side(&r, task);
    list_rows(&r);
    r.twin->embed_sum(r.q, r.entries, r.row, r.entry, b->n, plan->d, b->node_grads, node_list,
                      &w->counts[COUNT_NODES]);
    if (r.dr > 0)
        sum_relations(&r, w->counts);
    return PST_OK;
}

/* ---- updates --------------------------------------------------------------------------------------- */

void pst_embed_device_update_relations(const struct pst_embed_plan *plan, const struct pst_embed_batch *b,
                                       const struct pst_embed_device *w,
                                       const struct pst_k_embed_table *table)
{
    const int64_t rows = plan->relations, state = pst_k_embed_state_floats(table->optimizer, table->d);
    for (int inverse = 0; inverse < (plan->inverse ? 2 : 1) && table->d > 0; inverse++) {
        struct pst_k_embed_table half = *table;
        half.x += inverse * rows * table->d;
        half.state += inverse * rows * state;
        w->device->twin->embed_update_n(w->device->q, &half, b->touched + inverse * rows,
                                        (struct pst_twin_n){&w->counts[inverse], rows},
                                        b->relation_grads + inverse * rows * table->d, true);
    }
}

void pst_embed_device_update_nodes(const struct pst_embed_batch *b, const struct pst_embed_device *w,
                                   const struct pst_k_embed_table *table, const uint32_t *node_list,
                                   int64_t most)
{
    w->device->twin->embed_update_n(w->device->q, table, node_list,
                                    (struct pst_twin_n){&w->counts[COUNT_NODES], most}, b->node_grads, true);
}

void pst_embed_device_end(struct pst_embed_device *w)
{
    const int64_t *const counts[] = {(const int64_t *)(const void *)w->loss, /* the bits of a double */
                                     &w->counts[COUNT_NODES]};
    pst_device_record(w->device, counts, 2);
}

pst_rc pst_embed_device_loss(struct pst_embed_device *w, double *loss, int64_t *nodes)
{
    bool data_fault;
    const pst_rc rc = pst_device_recorded(w->device, &data_fault);
    if (data_fault)
        return pst_fail(rc, "%s: a GPU kernel found a value that is out of range in a batch",
                        w->device->name);
    if (rc != PST_OK)
        return rc;
    memcpy(loss, &w->device->record->counts[0], sizeof *loss);
    *nodes = w->device->record->counts[1];
    return PST_OK;
}
