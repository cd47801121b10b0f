/* commit.c: writes and reads checkpoints of embeddings. */
#include "stages/lib/vectors/commit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/checkpoint.h"

enum { TENSORS = 6, LISTED = 4096 };
enum { TEXTS = 8, PARTITION_TEXTS = 7, BEST_TEXTS = 4 }; /* strings: of all checkpoints, and of some */

static struct pst_tensor tensor(const char *name, int64_t rows, int64_t columns, const pst_real *data)
{
    struct pst_tensor t = {.dtype = sizeof(pst_real) == sizeof(float) ? PST_F32 : PST_F64,
                           .rank = 2,
                           .shape = {rows, columns},
                           .data = data};
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

static struct pst_tensor numbers(const char *name, int64_t n, const int64_t *data)
{
    struct pst_tensor t = {.dtype = PST_I64, .rank = 2, .shape = {n, 1}, .data = data};
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

static struct pst_tensor schedule_tensor(const struct pst_plateau_state *s)
{
    return (struct pst_tensor){.name = "schedule",
                               .dtype = PST_F64,
                               .rank = 2,
                               .shape = {s ? 1 : 0, sizeof *s / sizeof s->scale},
                               .data = s};
}

struct pst_tensor pst_commit_epoch_tensor(const double *figures)
{
    return (struct pst_tensor){.name = "epoch",
                               .dtype = PST_F64,
                               .rank = 2,
                               .shape = {figures ? 1 : 0, PST_COMMIT_EPOCH_FIGURES},
                               .data = figures};
}

static void remove_old(const char *dir, int64_t keep, uint64_t best)
{
    static _Thread_local uint64_t numbers[LISTED];
    const size_t n = pst_checkpoint_list(dir, numbers, LISTED);
    for (size_t i = 0; i + (size_t)keep < n; i++) {
        char path[PST_PATH_MAX];
        pst_checkpoint_path(dir, numbers[i], path, sizeof path);
        if (numbers[i] != best)
            (void)unlink(path); /* one that stays does no harm */
    }
}

pst_rc pst_commit_save(const struct pst_commit *c, const struct pst_vectors *v,
                       const struct pst_row_batch *carrier, const pst_real *relations)
{
    const int64_t n = carrier->carried_rows, d = carrier->carried_dim, s = carrier->carried_state;
    const struct pst_vectors_table *table = c->table;
    const double epoch[PST_COMMIT_EPOCH_FIGURES] = {carrier->loss, carrier->seconds,
                                                    (double)carrier->trained};
    const struct pst_tensor all[TENSORS] = {
        table ? numbers("extents", c->partitions, table->extent)
              : tensor("vertices", v->vertices, v->dim, pst_vectors_rows(v, 0)),
        table ? numbers("sums", c->partitions, table->sum)
              : tensor("vertices.state", v->vertices, v->state_dim, pst_vectors_state(v, 0)),
        tensor("relations", n, d, relations),
        tensor("relations.state", n, s, relations + n * d),
        schedule_tensor(c->schedule),
        pst_commit_epoch_tensor(c->within ? epoch : NULL)};
    struct pst_tensor list[TENSORS];
    size_t count = 0;
    for (int i = 0; i < TENSORS; i++)
        if (all[i].shape[0] > 0 && all[i].shape[1] > 0)
            list[count++] = all[i];
    char dir[3968], path[PST_PATH_MAX], seed[32], next[32], updates[32];
    (void)snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    (void)snprintf(next, sizeof next, "%" PRIu64, c->next_batch);
    (void)snprintf(updates, sizeof updates, "%" PRIu64, v->updates);
    char vertices[32], dim[32], partitions[32], bytes[32], parts_seed[32], initial[32];
    (void)snprintf(vertices, sizeof vertices, "%" PRId64, v->vertices);
    (void)snprintf(dim, sizeof dim, "%" PRId64, v->dim);
    (void)snprintf(partitions, sizeof partitions, "%d", c->partitions);
    (void)snprintf(bytes, sizeof bytes, "%" PRIu64, v->block_bytes);
    (void)snprintf(parts_seed, sizeof parts_seed, "%" PRIu64, table ? v->parts->seed : 0);
    (void)snprintf(initial, sizeof initial, "%" PRIu64, c->initial);
    char best_batch[32], best_epoch[32], best_mrr[32];
    (void)snprintf(best_batch, sizeof best_batch, "%" PRIu64, c->best->batch);
    (void)snprintf(best_epoch, sizeof best_epoch, "%" PRIu64, c->best->epoch);
    (void)snprintf(best_mrr, sizeof best_mrr, "%.17g", c->best->mrr);
    struct pst_checkpoint_text texts[TEXTS + PARTITION_TEXTS + BEST_TEXTS] = {
        {"format", table ? PST_COMMIT_PARTITIONED : PST_COMMIT_FORMAT},
        {"dataset", c->dataset},
        {"seed", seed},
        {"next_batch", next},
        {"updates", updates},
        {PST_CHECKPOINT_RUN, c->run},
        {"model", c->model},
        {"inverse", c->inverse ? "1" : "0"}};
    const struct pst_checkpoint_text of_partitions[PARTITION_TEXTS] = {
        {"vertices", vertices},
        {"dim", dim},
        {"partitions", partitions},
        {"partition_bytes", bytes},
        {"assign", table ? pst_parts_assign_name(v->parts->assign) : ""},
        {"partition_seed", parts_seed},
        {"initial", initial}};
    const struct pst_checkpoint_text of_best[BEST_TEXTS] = {{"best_batch", best_batch},
                                                            {"best_epoch", best_epoch},
                                                            {"best_mrr", best_mrr},
                                                            {"best_test", c->best->test}};
    size_t ntexts = TEXTS;
    for (int i = 0; i < PARTITION_TEXTS && table; i++)
        texts[ntexts++] = of_partitions[i];
    for (int i = 0; i < BEST_TEXTS && c->best->batch != UINT64_MAX; i++)
        texts[ntexts++] = of_best[i];
    if ((size_t)snprintf(dir, sizeof dir, "%s/checkpoints", c->run_dir) >= sizeof dir)
        return pst_fail(PST_E_ARG, "the path of the run directory is too long: %s", c->run_dir);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot create %s", dir);
    pst_checkpoint_path(dir, c->next_batch, path, sizeof path);
    const pst_rc rc = pst_checkpoint_write(path, list, count, texts, ntexts);
    if (rc == PST_OK)
        remove_old(dir, c->keep, c->best->batch);
    return rc;
}

static pst_rc load_table(const struct pst_checkpoint *ck, int partitions, struct pst_vectors_table *table)
{
    const struct pst_tensor extents = numbers("extents", partitions, NULL);
    const struct pst_tensor sums = numbers("sums", partitions, NULL);
    const pst_rc rc = pst_checkpoint_read(ck, &extents, table->extent);
    return rc == PST_OK ? pst_checkpoint_read(ck, &sums, table->sum) : rc;
}

static pst_rc load_best(const struct pst_checkpoint *ck, struct pst_commit_best *best)
{
    *best = (struct pst_commit_best){.batch = UINT64_MAX};
    if (!pst_checkpoint_text(ck, "best_batch"))
        return PST_OK;
    pst_rc rc = pst_checkpoint_u64(ck, "best_batch", &best->batch);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(ck, "best_epoch", &best->epoch);
    const char *mrr = rc == PST_OK ? pst_checkpoint_text(ck, "best_mrr") : NULL;
    const char *test = mrr ? pst_checkpoint_text(ck, "best_test") : NULL;
    if (!test)
        return rc == PST_OK ? PST_E_FORMAT : rc;
    best->mrr = strtod(mrr, NULL);
    (void)snprintf(best->test, sizeof best->test, "%s", test);
    return PST_OK;
}

pst_rc pst_commit_load_best(const char *run_dir, const struct pst_commit_best *best, int partitions,
                            struct pst_vectors_table *table)
{
    char dir[3968], path[PST_PATH_MAX];
    struct pst_checkpoint ck;
    (void)snprintf(dir, sizeof dir, "%.3900s/checkpoints", run_dir);
    pst_checkpoint_path(dir, best->batch, path, sizeof path);
    if (best->batch == UINT64_MAX || access(path, F_OK) != 0)
        return PST_OK;
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    rc = load_table(&ck, partitions, table);
    pst_checkpoint_close(&ck);
    return rc;
}

pst_rc pst_commit_load(const char *path, struct pst_vectors *v, struct pst_vectors_table *table,
                       int partitions, struct pst_plateau_state *schedule, struct pst_commit_best *best,
                       uint64_t *next_batch)
{
    struct pst_checkpoint ck;
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    rc = pst_checkpoint_u64(&ck, "updates", &v->updates);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(&ck, "next_batch", next_batch);
    if (rc == PST_OK)
        rc = load_best(&ck, best);
    if (table) {
        rc = rc == PST_OK ? load_table(&ck, partitions, table) : rc;
    } else {
        const struct pst_tensor rows = tensor("vertices", v->vertices, v->dim, NULL);
        const struct pst_tensor state = tensor("vertices.state", v->vertices, v->state_dim, NULL);
        if (rc == PST_OK)
            rc = pst_checkpoint_read(&ck, &rows, pst_vectors_rows(v, 0));
        if (rc == PST_OK && v->state_dim > 0)
            rc = pst_checkpoint_read(&ck, &state, pst_vectors_state(v, 0));
    }
    const struct pst_tensor plateau = schedule_tensor(schedule);
    if (rc == PST_OK && schedule)
        rc = pst_checkpoint_read(&ck, &plateau, schedule);
    pst_checkpoint_close(&ck);
    return rc;
}
