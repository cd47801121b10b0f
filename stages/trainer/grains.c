/* grains.c: adds up the gradients of a batch's grains, over all replicas. */
#include "stages/trainer/grains.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"

static_assert(sizeof(pst_real) == sizeof(float), "replicas exchange float32");

/* ---- memory -------------------------------------------------------------------------------------- */

static bool on_device(const struct pst_trainer_grains *g)
{
    return pst_gnn_model_on_device(g->model);
}

static pst_rc take(struct pst_trainer_grains *g, enum pst_twin_memory kind, const char *what, pst_real **to)
{
    const uint64_t bytes = pst_align_up((uint64_t)g->model->size * sizeof **to, PST_CACHE_LINE);
    void *at;
    pst_rc rc = PST_OK;
    if (on_device(g))
        rc = pst_device_take(g->model->config.device, kind, bytes, what, &at);
    else if (!(at = aligned_alloc(PST_CACHE_LINE, bytes)))
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRIu64 " bytes for %s", bytes, what);
    *to = rc == PST_OK ? at : NULL;
    return rc;
}

static pst_rc failed(const struct pst_trainer_grains *g, pst_rc rc, const char *why)
{
    return rc == PST_OK ? PST_OK : pst_fail(rc, "%s: reduce is nccl: %s", g->model->config.device->name, why);
}

/* Replica 0 makes the id and gives it to the others. */
static pst_rc open_nccl(struct pst_trainer_grains *g)
{
    char ids[PST_REPLICAS_MAX][PST_TWIN_SUMS_ID_BYTES] = {{0}}, why[PST_TWIN_WHY_BYTES] = "";
    struct pst_collective *c = g->collective;
    const struct pst_twin *twin = g->model->twin;
    pst_rc rc = c->rank == 0 ? failed(g, twin->sums_id(ids[0], why), why) : PST_OK;
    if (rc == PST_OK)
        rc = pst_collective_gather(c, ids, sizeof ids[0]);
    return rc == PST_OK
               ? failed(g, twin->sums_new(g->model->q, ids[0], c->rank, c->members, &g->sums, why), why)
               : rc;
}

pst_rc pst_trainer_grains_open(struct pst_trainer_grains *g, struct pst_stage *self,
                               struct pst_gnn_model *model, int64_t grains, enum pst_trainer_reduce reduce)
{
    int replicas;
    const int64_t replica = pst_replica(self, &replicas);
    *g = (struct pst_trainer_grains){.model = model, .grains = grains, .count = grains / replicas};
    g->now = g->first = replica * g->count;
    pst_rc rc = pst_meet(self, &g->collective);
    for (int l = 0; rc == PST_OK && ((int64_t)1 << l) < g->count; l++)
        rc = take(g, PST_TWIN_MEMORY_DEVICE, "gradients of grains", &g->level[l]);
    if (rc != PST_OK || !g->collective)
        return rc;
    g->mine = model->on.grad;
    if (on_device(g) && reduce == PST_TRAINER_REDUCE_NCCL)
        return open_nccl(g);
    if (on_device(g))
        rc = take(g, PST_TWIN_MEMORY_PINNED, "a gradient on the host", &g->mine);
    return rc == PST_OK ? take(g, PST_TWIN_MEMORY_PINNED, "the gradient of another replica", &g->theirs) : rc;
}

void pst_trainer_grains_close(struct pst_trainer_grains *g)
{
    if (g->sums)
        g->model->twin->sums_free(g->sums);
    if (g->collective)
        pst_collective_leave(g->collective);
    for (int l = 0; g->model && !on_device(g) && l < PST_TRAINER_LEVELS; l++) /* the device frees its own */
        free(g->level[l]);
    if (g->model && !on_device(g))
        free(g->theirs);
    *g = (struct pst_trainer_grains){.model = NULL};
}

/* ---- the tree ------------------------------------------------------------------------------------ */

enum { ADD_COLUMNS = 256 }; /* on a GPU, a warp adds a row of so many elements */

struct adding {
    struct pst_gnn_model *model;
    const pst_real *from;
};

static void add_task(void *arg, int64_t chunk, int worker)
{
    const struct adding *a = arg;
    struct pst_gnn_model *m = a->model;
    const int64_t at = chunk * m->grain.update, n = pst_min_i64(m->grain.update, m->size - at);
    const int64_t rows = n / ADD_COLUMNS, rest = n % ADD_COLUMNS, end = at + n - rest;
    (void)worker;
    if (rows > 0)
        m->twin->add(m->q, m->on.grad + at, ADD_COLUMNS, a->from + at, ADD_COLUMNS, rows, ADD_COLUMNS);
    if (rest > 0)
        m->twin->add(m->q, m->on.grad + end, rest, a->from + end, rest, 1, rest);
}

static void add_to_gradient(struct pst_gnn_model *m, const pst_real *from)
{
    struct adding adding = {.model = m, .from = from};
    pst_gnn_model_tasks(m, add_task, &adding, (m->size + m->grain.update - 1) / m->grain.update);
}

/* Ends the current grain: adds its gradient to the halves that wait for it, and lets the sum wait for its
 * own other half. The last grain of the replica completes the subtree, which stays in the model. */
static void end_grain(struct pst_trainer_grains *g)
{
    struct pst_gnn_model *m = g->model;
    const int64_t number = g->now++ - g->first;
    int l = 0;
    for (; number >> l & 1; l++)
        add_to_gradient(m, g->level[l]);
    if (number + 1 == g->count)
        return;
    (void)m->twin->copy(m->q, g->level[l], m->on.grad, (size_t)m->size * sizeof *g->level[l]);
    pst_gnn_model_forget(m);
}

pst_rc pst_trainer_grains_begin(struct pst_trainer_grains *g, uint32_t grain)
{
    if (g->grains == 1)
        return PST_OK;
    if (grain < g->now || grain >= g->first + g->count)
        return pst_fail(PST_E_PEER,
                        "grain %u of the batch arrived; expected %" PRId64 " to %" PRId64
                        ": link each replica of the trainer to its own replica of the sampler",
                        grain, g->now, g->first + g->count - 1);
    while (g->now < grain)
        end_grain(g);
    return PST_OK;
}

void pst_trainer_grains_note(struct pst_trainer_grains *g, const struct pst_gnn_figures *figures,
                             const struct pst_minibatch *mb)
{
    struct pst_trainer_grain *of = &g->of[g->now];
    of->loss += figures->loss * (double)mb->batch_seeds;
    of->seeds += pst_trainer_seeds_of(mb);
    of->correct += figures->correct;
    of->counted += figures->counted;
    of->digest = XXH3_64bits_withSeed(&mb->digest, sizeof mb->digest, of->digest);
}

/* ---- the replicas -------------------------------------------------------------------------------- */

/* Brings the gradient from the device to the host, or back. */
static pst_rc move(struct pst_trainer_grains *g, bool to_device)
{
    struct pst_gnn_model *m = g->model;
    if (!on_device(g))
        return PST_OK;
    (void)m->twin->copy(m->q, to_device ? m->on.grad : g->mine, to_device ? g->mine : m->on.grad,
                        (size_t)m->size * sizeof *g->mine);
    return pst_device_wait(m->config.device);
}

/* What the replicas have counted. */
static pst_rc exchange_figures(struct pst_trainer_grains *g)
{
    return pst_collective_gather(g->collective, g->of, (uint64_t)g->count * sizeof g->of[0]);
}

static pst_rc exchange_by_tree(struct pst_trainer_grains *g)
{
    pst_rc rc = move(g, false);
    if (rc == PST_OK)
        rc = pst_collective_sum(g->collective, g->mine, g->theirs, g->model->size);
    if (rc == PST_OK)
        rc = exchange_figures(g);
    return rc == PST_OK ? move(g, true) : rc;
}

/* NCCL waits for the other replicas without a deadline. So they first meet in an exchange that has one, and
 * only when their own gradients are complete. Nobody begins another exchange before the sum has ended. */
static pst_rc exchange_by_nccl(struct pst_trainer_grains *g)
{
    struct pst_gnn_model *m = g->model;
    pst_rc rc = pst_device_wait(m->config.device);
    if (rc == PST_OK)
        rc = exchange_figures(g);
    if (rc != PST_OK)
        return rc;
    (void)m->twin->sums_add(g->sums, m->on.grad, m->size); /* the wait says what has failed */
    return pst_device_wait(m->config.device);
}

static pst_rc exchange(struct pst_trainer_grains *g)
{
    const double begin = pst_now();
    const pst_rc rc = g->sums ? exchange_by_nccl(g) : exchange_by_tree(g);
    g->exchange_s += pst_now() - begin;
    return rc;
}

pst_rc pst_trainer_grains_end(struct pst_trainer_grains *g, struct pst_gnn_training *p, int64_t *seeds)
{
    while (g->now < g->first + g->count)
        end_grain(g);
    const pst_rc rc = g->collective ? exchange(g) : PST_OK;
    *seeds = 0;
    for (int64_t i = 0; i < g->grains && rc == PST_OK; i++) {
        const struct pst_trainer_grain *of = &g->of[i];
        p->loss += of->loss;
        p->seeds += of->seeds;
        p->correct += of->correct;
        p->counted += of->counted;
        *seeds += of->seeds;
        if (of->seeds > 0)
            p->digest = XXH3_64bits_withSeed(&of->digest, sizeof of->digest, p->digest);
    }
    memset(g->of, 0, sizeof g->of);
    g->now = g->first;
    return rc;
}

pst_rc pst_trainer_grains_tell(struct pst_trainer_grains *g, double *value)
{
    double all[PST_REPLICAS_MAX] = {0};
    if (!g->collective)
        return PST_OK;
    const double begin = pst_now();
    all[g->collective->rank] = *value;
    const pst_rc rc = pst_collective_gather(g->collective, all, sizeof all[0]);
    *value = rc == PST_OK ? all[0] : *value;
    g->exchange_s += pst_now() - begin;
    return rc;
}
