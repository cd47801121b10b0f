/* reader.c: finds the embeddings of a checkpoint. */
#include "stages/lib/vectors/reader.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/file.h"
#include "stages/lib/vectors/commit.h"

enum { BLOCK_ROWS = 1 << 14 }; /* of a checkpoint that has all vertices */

/* ---- opening ------------------------------------------------------------------------------------- */

static bool partitioned(const struct pst_vectors_reader *r)
{
    return r->array >= 0;
}

static pst_rc number(const struct pst_vectors_reader *r, const char *key, int64_t *out)
{
    uint64_t value = 0;
    const pst_rc rc = pst_checkpoint_u64(&r->ck, key, &value);
    *out = (int64_t)value;
    return rc;
}

/* A table of the checkpoint: one number for each partition. */
static pst_rc read_table(const struct pst_vectors_reader *r, const char *name, int64_t *out)
{
    struct pst_tensor t = {.dtype = PST_I64, .rank = 2, .shape = {r->parts.partitions, 1}};
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    return pst_checkpoint_read(&r->ck, &t, out);
}

static pst_rc open_partitions(struct pst_vectors_reader *r, const char *run_dir)
{
    int64_t partitions = 0, seed = 0, bytes = 0;
    pst_rc rc = number(r, "vertices", &r->vertices);
    if (rc == PST_OK)
        rc = number(r, "dim", &r->dim);
    if (rc == PST_OK)
        rc = number(r, "partitions", &partitions);
    if (rc == PST_OK)
        rc = number(r, "partition_seed", &seed);
    if (rc == PST_OK)
        rc = number(r, "partition_bytes", &bytes);
    const char *assign = rc == PST_OK ? pst_checkpoint_text(&r->ck, "assign") : NULL;
    if (!assign)
        return rc == PST_OK ? PST_E_FORMAT : rc;
    const int how = pst_parts_assign_of(assign);
    if (how < 0 || partitions < 1 || partitions > PST_PARTS_MAX || r->dim < 1 || bytes < 1)
        return pst_fail(PST_E_FORMAT, "%s: the description of the partitions in this checkpoint is damaged",
                        r->ck.path);
    r->block_bytes = (uint64_t)bytes;
    rc = pst_parts_init(&r->parts, r->vertices, (int)partitions, (enum pst_parts_assign)how, (uint64_t)seed);
    if (rc == PST_OK && (uint64_t)(r->parts.rows * r->dim) * sizeof(float) > r->block_bytes)
        rc = pst_fail(PST_E_FORMAT,
                      "%s: %" PRId64 " rows of %" PRId64 " floats do not fit %" PRIu64
                      " bytes: the checkpoint is damaged",
                      r->ck.path, r->parts.rows, r->dim, r->block_bytes);
    if (rc == PST_OK)
        rc = read_table(r, "extents", r->table.extent);
    if (rc == PST_OK)
        rc = read_table(r, "sums", r->table.sum);
    if (rc != PST_OK)
        return rc;
    for (int p = 0; p < r->parts.partitions; p++)
        if (r->table.extent[p] < 0)
            return pst_fail(
                PST_E_STATE,
                "%s was written in the middle of the first epoch, when partition %d had not been trained "
                "yet: let the run finish an epoch (`penstock run --resume %s` continues it)",
                r->ck.path, p, run_dir);
    (void)snprintf(r->array_path, sizeof r->array_path, "%.4000s/arrays/embeddings", run_dir);
    r->array = open(r->array_path, O_RDONLY | O_CLOEXEC);
    return r->array >= 0 ? PST_OK : pst_fail_errno("cannot open %s", r->array_path);
}

static pst_rc find(struct pst_vectors_reader *r, const char *run_dir)
{
    struct pst_tensor t;
    const char *format = pst_checkpoint_text(&r->ck, "format");
    const bool whole = format && strcmp(format, PST_COMMIT_FORMAT) == 0;
    if (!whole && (!format || strcmp(format, PST_COMMIT_PARTITIONED) != 0))
        return pst_fail(PST_E_FORMAT, "%s is not a checkpoint of embeddings of vertices", r->ck.path);
    pst_rc rc = pst_checkpoint_u64(&r->ck, "next_batch", &r->next_batch);
    if (rc == PST_OK && whole)
        rc = pst_checkpoint_find(&r->ck, "vertices", &t, &r->vertices_at);
    if (rc == PST_OK && whole) {
        r->vertices = t.shape[0];
        r->dim = t.shape[1];
    }
    if (rc == PST_OK && !whole)
        rc = open_partitions(r, run_dir);
    if (rc == PST_OK && pst_checkpoint_find(&r->ck, "relations", &t, &r->relations_at) == PST_OK) {
        r->relations = t.shape[0];
        r->relation_dim = t.shape[1];
    }
    uint64_t inverse = 0;
    const char *model = rc == PST_OK ? pst_checkpoint_text(&r->ck, "model") : NULL;
    if (model)
        rc = pst_checkpoint_u64(&r->ck, "inverse", &inverse);
    (void)snprintf(r->model, sizeof r->model, "%s", model ? model : "");
    r->inverse = inverse != 0;
    return rc;
}

/* Replaces the newest checkpoint, which is open, by that of the best epoch. */
static pst_rc open_best(struct pst_vectors_reader *r, const char *dir)
{
    char path[PST_PATH_MAX];
    uint64_t number;
    if (!pst_checkpoint_text(&r->ck, "best_batch"))
        return PST_OK;
    const pst_rc rc = pst_checkpoint_u64(&r->ck, "best_batch", &number);
    if (rc != PST_OK)
        return rc;
    pst_checkpoint_path(dir, number, path, sizeof path);
    if (access(path, F_OK) != 0)
        return pst_fail(PST_E_STATE,
                        "%s does not exist: the best epoch belongs to the run that this one was resumed "
                        "from; name that run, or use --checkpoint last",
                        path);
    pst_checkpoint_close(&r->ck);
    return pst_checkpoint_open(&r->ck, path);
}

pst_rc pst_vectors_reader_open(struct pst_vectors_reader *r, const char *run_dir, bool best)
{
    char dir[PST_PATH_MAX], path[PST_PATH_MAX];
    *r = (struct pst_vectors_reader){.array = -1, .ck = {.fd = -1}};
    if (snprintf(dir, sizeof dir, "%s/checkpoints", run_dir) >= (int)sizeof dir)
        return pst_fail(PST_E_LIMIT, "the path is too long: %s", run_dir);
    pst_rc rc = pst_checkpoint_latest(dir, path, sizeof path, NULL, 0);
    if (rc == PST_OK)
        rc = pst_checkpoint_open(&r->ck, path);
    if (rc != PST_OK)
        return rc;
    if (best)
        rc = open_best(r, dir);
    if (rc == PST_OK)
        rc = find(r, run_dir);
    if (rc != PST_OK)
        pst_vectors_reader_close(r);
    return rc;
}

pst_rc pst_vectors_reader_dataset(const char *run_dir, char dir[PST_PATH_MAX])
{
    char path[PST_PATH_MAX];
    (void)snprintf(path, sizeof path, "%.4000s/report.json", run_dir);
    json_error_t error;
    json_t *report = json_load_file(path, 0, &error);
    const char *said = json_string_value(json_object_get(json_object_get(report, "dataset"), "dir"));
    if (said)
        (void)snprintf(dir, PST_PATH_MAX, "%s", said);
    json_decref(report);
    return said ? PST_OK
                : pst_fail(PST_E_ARG, "%s does not contain the path of the dataset (%s)", path,
                           report ? "no dataset.dir" : error.text);
}

void pst_vectors_reader_close(struct pst_vectors_reader *r)
{
    pst_checkpoint_close(&r->ck);
    if (r->array >= 0)
        (void)close(r->array);
    r->array = -1;
}

/* ---- reading ------------------------------------------------------------------------------------- */

int64_t pst_vectors_reader_blocks(const struct pst_vectors_reader *r)
{
    return partitioned(r) ? r->parts.partitions : (r->vertices + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

uint64_t pst_vectors_reader_room(const struct pst_vectors_reader *r)
{
    return partitioned(r) ? r->block_bytes : BLOCK_ROWS * (uint64_t)r->dim * sizeof(float);
}

static uint64_t partition_at(const struct pst_vectors_reader *r, int p)
{
    return ((uint64_t)r->table.extent[p] * (uint64_t)r->parts.partitions + (uint64_t)p) * r->block_bytes;
}

static pst_rc read_partition(const struct pst_vectors_reader *r, int p, void *to)
{
    const uint64_t at = partition_at(r, p);
    const pst_rc rc = pst_file_read_at(r->array, to, r->block_bytes, at, r->array_path);
    if (rc != PST_OK)
        return pst_wrap(rc, "partition %d", p);
    if (XXH3_64bits(to, r->block_bytes) == (uint64_t)r->table.sum[p])
        return PST_OK;
    return pst_fail(PST_E_FORMAT,
                    "partition %d of %s is damaged: the checksum of %" PRIu64 " bytes from byte %" PRIu64
                    " on is wrong; the run may still be active, or the drive lost or changed data",
                    p, r->array_path, r->block_bytes, at);
}

pst_rc pst_vectors_reader_read(const struct pst_vectors_reader *r, int64_t block, void *to, int64_t *rows)
{
    if (partitioned(r)) {
        *rows = pst_parts_used(&r->parts, (int)block);
        return read_partition(r, (int)block, to);
    }
    const uint64_t row = (uint64_t)r->dim * sizeof(float);
    *rows = pst_min_i64(BLOCK_ROWS, r->vertices - block * BLOCK_ROWS);
    return pst_file_read_at(r->ck.fd, to, (uint64_t)*rows * row,
                            r->vertices_at + (uint64_t)(block * BLOCK_ROWS) * row, r->ck.path);
}

pst_rc pst_vectors_reader_row(const struct pst_vectors_reader *r, int64_t vertex, void *to)
{
    const uint64_t row = (uint64_t)r->dim * sizeof(float);
    if (!partitioned(r))
        return pst_file_read_at(r->ck.fd, to, row, r->vertices_at + (uint64_t)vertex * row, r->ck.path);
    const int64_t place = pst_parts_place(&r->parts, vertex);
    return pst_file_read_at(r->array, to, row,
                            partition_at(r, (int)(place / r->parts.rows)) +
                                (uint64_t)(place % r->parts.rows) * row,
                            r->array_path);
}

int64_t pst_vectors_reader_vertex(const struct pst_vectors_reader *r, int64_t block, int64_t row)
{
    return partitioned(r) ? pst_parts_vertex(&r->parts, block * r->parts.rows + row)
                          : block * BLOCK_ROWS + row;
}

pst_rc pst_vectors_reader_relations(const struct pst_vectors_reader *r, void *to)
{
    return pst_file_read_at(r->ck.fd, to, (uint64_t)(r->relations * r->relation_dim) * sizeof(float),
                            r->relations_at, r->ck.path);
}
