/* triple_rows.c: writes triples to the arrays of three splits and gives edges to the topology. */
#include "common/store/formats/triples/triple_rows.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/error.h"

#define ROWS_UNKNOWN                                                                                         \
    (INT64_MAX / 128) /* of an array whose size its file does not say: 3 ids a row fit 63 bits */

pst_rc pst_triple_rows_init(struct pst_triple_rows *r, struct pst_csc_builder *csc,
                            const struct pst_names_spec *names, struct pst_progress *progress)
{
    *r = (struct pst_triple_rows){
        .csc = csc, .build = pst_csc_builder_spec_of(csc)->build, .progress = progress};
    for (int i = 0; i < 3; i++)
        r->splits[i].out.fd = -1;
    r->source = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *r->source);
    r->target = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *r->target);
    r->relation = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *r->relation);
    r->mention = malloc(2 * PST_CSC_BUILDER_EDGE_BLOCK * sizeof *r->mention);
    r->id = malloc(2 * PST_CSC_BUILDER_EDGE_BLOCK * sizeof *r->id);
    if (r->source == NULL || r->target == NULL || r->relation == NULL || r->mention == NULL || r->id == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of triples");
    return names != NULL ? pst_names_new(&r->names, names) : PST_OK;
}

void pst_triple_rows_release(struct pst_triple_rows *r)
{
    if (r->csc == NULL)
        return;
    free(r->source);
    free(r->target);
    free(r->relation);
    free(r->mention);
    free(r->id);
    pst_names_free(r->names);
    pst_log_streams_close(&r->kinds, false);
    for (int i = 0; i < 3; i++)
        pst_array_writer_release(&r->splits[i].out);
}

/* The first n rows of the block are known. */
static pst_rc give(struct pst_triple_rows *r, int split, int64_t n)
{
    pst_rc rc = PST_OK;
    for (int64_t i = 0; rc == PST_OK && i < n; i++) {
        const int32_t row[3] = {(int32_t)r->source[i], r->relation[i], (int32_t)r->target[i]};
        rc = pst_array_write(&r->splits[split].out, row, sizeof row);
    }
    return rc == PST_OK && split == 0 ? pst_csc_builder_add(r->csc, r->source, r->target, r->relation, n)
                                      : rc;
}

/* Numbers of heads and tails, as names gave them. */
static void take_ids(struct pst_triple_rows *r, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        r->source[i] = r->id[2 * i];
        r->target[i] = r->id[2 * i + 1];
    }
}

static pst_rc wait_with(struct pst_triple_rows *r, int64_t from)
{
    pst_rc rc = PST_OK;
    if (r->kinds.stream == NULL) {
        rc = pst_log_streams_make(&r->kinds, r->build->partial, NULL, 1, PST_LOG_STREAM_BLOCK_MAX);
        r->kind = (struct pst_ids_writer){.s = &r->kinds};
    }
    for (int64_t i = from; rc == PST_OK && i < r->n; i++)
        rc = pst_ids_put(&r->kind, (uint64_t)r->relation[i]);
    r->splits[r->split].waiting += r->n - from;
    return rc;
}

pst_rc pst_triple_rows_flush(struct pst_triple_rows *r)
{
    size_t known = 2 * (size_t)r->n;
    pst_rc rc =
        r->names == NULL ? PST_OK : pst_names_add(r->names, r->mention, 2 * (size_t)r->n, r->id, &known);
    if (rc == PST_OK && r->names != NULL)
        take_ids(r, (int64_t)known / 2);
    if (rc == PST_OK)
        rc = give(r, r->split, (int64_t)known / 2);
    if (rc == PST_OK && (int64_t)known / 2 < r->n)
        rc = wait_with(r, (int64_t)known / 2);
    r->splits[r->split].rows += r->n;
    r->n = 0;
    return rc;
}

static enum pst_array_id array_of(int split)
{
    return (enum pst_array_id)(PST_ARRAY_TRIPLES_TRAIN + split);
}

static pst_rc end_split(struct pst_triple_rows *r, int split)
{
    struct pst_triple_split *s = &r->splits[split];
    pst_rc rc = pst_array_writer_shrink(&s->out, s->rows);
    if (rc == PST_OK)
        rc = pst_build_array_end(r->build, array_of(split), &s->out);
    pst_array_writer_release(&s->out);
    return rc;
}

pst_rc pst_triple_rows_begin(struct pst_triple_rows *r, int split)
{
    const int64_t shape[2] = {ROWS_UNKNOWN, 3};
    r->split = split;
    return pst_build_array(r->build, array_of(split), PST_I32, 2, shape, &r->splits[split].out);
}

pst_rc pst_triple_rows_end(struct pst_triple_rows *r)
{
    if (r->split == 0 && r->names != NULL)
        r->of_train = pst_names_dict(r->names)->n; /* unless some wait */
    return r->splits[r->split].waiting == 0 ? end_split(r, r->split) : PST_OK;
}

/* ---- rows that waited ---- */

static pst_rc give_waiting(struct pst_triple_rows *r, int split, struct pst_ids_reader *kinds)
{
    pst_rc rc = PST_OK;
    for (int64_t left = r->splits[split].waiting; rc == PST_OK && left > 0;) {
        const int64_t n = pst_min_i64(left, PST_CSC_BUILDER_EDGE_BLOCK);
        size_t got;
        rc = pst_names_next(r->names, r->id, 2 * (size_t)n, &got);
        if (rc == PST_OK && got != 2 * (size_t)n)
            rc = pst_fail(PST_E_FORMAT, "the temporary file of triples ends too early: the disk may be "
                                        "faulty; import again without --resume");
        for (int64_t i = 0; rc == PST_OK && i < n; i++) {
            int64_t kind = 0;
            rc = pst_ids_next(kinds, &kind);
            r->relation[i] = (int32_t)kind;
        }
        take_ids(r, rc == PST_OK ? n : 0);
        if (rc == PST_OK)
            rc = give(r, split, n);
        if (rc == PST_OK)
            rc = pst_progress_add(r->progress, (uint64_t)n);
        left -= n;
    }
    return rc;
}

static pst_rc join(struct pst_triple_rows *r)
{
    struct pst_ids_reader kinds = {.n = 0};
    pst_rc rc = pst_ids_flush(&r->kind);
    if (rc == PST_OK)
        rc = pst_log_streams_end(&r->kinds);
    pst_log_stream_read(&kinds.r, &r->kinds, 0);
    pst_progress_begin(r->progress, "triples: joining", pst_names_mentions_aside(r->names) / 2, false);
    for (int split = 0; rc == PST_OK && split < 3; split++) {
        if (r->splits[split].waiting == 0)
            continue;
        rc = give_waiting(r, split, &kinds);
        if (rc == PST_OK)
            rc = end_split(r, split);
    }
    if (rc == PST_OK)
        pst_progress_end(r->progress);
    pst_log_stream_reader_release(&kinds.r);
    return rc;
}

pst_rc pst_triple_rows_number(struct pst_triple_rows *r, int64_t *entities)
{
    const bool aside = pst_names_aside(r->names);
    uint64_t bytes;
    pst_rc rc = aside ? pst_names_find(r->names) : PST_OK;
    *entities = pst_names_count(r->names, &bytes);
    if (rc == PST_OK && *entities > PST_TRIPLE_ENTITIES_MAX)
        rc = pst_fail(PST_E_LIMIT, "the knowledge graph has %" PRId64 " entities; at most %d are supported",
                      *entities, PST_TRIPLE_ENTITIES_MAX);
    if (rc != PST_OK)
        return rc;
    if (!aside)
        return pst_dict_write(pst_names_dict(r->names), r->build, PST_ARRAY_NAMES_AT, PST_ARRAY_NAMES);
    const int64_t waiting = 2 * r->splits[0].waiting;
    int64_t early = 0;
    rc = pst_names_write(r->names, r->build, PST_ARRAY_NAMES_AT, PST_ARRAY_NAMES, waiting, &early);
    if (waiting > 0)
        r->of_train = early;
    if (rc == PST_OK)
        rc = pst_names_number(r->names);
    return rc == PST_OK ? join(r) : rc;
}
