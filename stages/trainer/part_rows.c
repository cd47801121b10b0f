/* part_rows.c: rows of other ranks for the evaluation. Each exchange has two steps: the first rank tells all
 * others which vertices it is about, and they send what they have of these. No vertices end it. */
#include "stages/trainer/part_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/stage.h"

enum { FIRST, ROWS, WORDS }; /* what the first rank tells: the first vertex, and how many */

static pst_rc grow(char **at, uint64_t *room, uint64_t bytes)
{
    if (bytes <= *room)
        return PST_OK;
    free(*at);
    *room = bytes;
    *at = malloc(bytes);
    if (*at != NULL)
        return PST_OK;
    *room = 0;
    return pst_fail(PST_E_NOMEM, "out of memory: cannot exchange %" PRIu64 " bytes for the evaluation",
                    bytes);
}

pst_rc pst_trainer_part_rows_open(struct pst_trainer_part_rows *r, const struct pst_dataset *ds,
                                  struct pst_collective *collective)
{
    const struct pst_dataset_cut *cut = &ds->cut;
    *r = (struct pst_trainer_part_rows){.collective = collective};
    if (cut->parts == 0)
        return PST_OK;
    r->ranks = collective != NULL ? collective->members / collective->near : 1;
    r->rank = collective != NULL ? collective->rank / collective->near : 0;
    if (r->ranks != cut->parts || r->rank != cut->part)
        return pst_fail(
            PST_E_STATE,
            "%s is part %d of %d, but this is rank %d of %d: start as many ranks as there are parts, "
            "and give each its part",
            ds->dir, cut->part, cut->parts, r->rank, r->ranks);
    r->ds = ds;
    return pst_row_files_open(&r->files, &ds->features, 1, ds->stride_bytes);
}

void pst_trainer_part_rows_close(struct pst_trainer_part_rows *r)
{
    pst_row_files_close(&r->files);
    free(r->rows);
    free(r->words);
    *r = (struct pst_trainer_part_rows){.ds = NULL};
}

/* Vertices first to end - 1 of a part: how many of them. *from: the first. */
static int64_t share_of(const struct pst_trainer_part_rows *r, int part, int64_t first, int64_t n,
                        int64_t *from)
{
    const int64_t end = pst_min_i64(first + n, r->ds->cut.first[part + 1]);
    *from = pst_max_i64(first, r->ds->cut.first[part]);
    return pst_max_i64(0, end - *from);
}

static void *room_for_words(void *to, uint64_t items)
{
    struct pst_trainer_part_rows *r = to;
    return grow(&r->words, &r->words_bytes, items * sizeof(int64_t) + 1) == PST_OK ? r->words : NULL;
}

static void *room_for_rows(void *to, uint64_t items)
{
    struct pst_trainer_part_rows *r = to;
    return grow(&r->rows, &r->rows_bytes, items * r->ds->stride_bytes + 1) == PST_OK ? r->rows : NULL;
}

/* From the first rank to all others; they get it in r->words. */
static pst_rc tell(struct pst_trainer_part_rows *r, int64_t first, int64_t n)
{
    int64_t words[PST_REPLICAS_MAX * WORDS];
    uint64_t give[PST_REPLICAS_MAX] = {0}, take[PST_REPLICAS_MAX];
    for (int k = 1; k < r->ranks && r->rank == 0; k++) {
        give[k] = WORDS;
        words[(k - 1) * WORDS + FIRST] = first;
        words[(k - 1) * WORDS + ROWS] = n;
    }
    const struct pst_collective_parcels parcels = {
        .unit = sizeof(int64_t), .give = give, .given = words, .take = take, .room = room_for_words, .to = r};
    const pst_rc rc = pst_collective_all_to_all(r->collective, &parcels);
    return rc != PST_OK || r->rank == 0 || take[0] == WORDS
               ? rc
               : pst_fail(PST_E_PEER,
                          "rank 0 sent %" PRIu64 " words in place of %d: are all from the same build?",
                          take[0], WORDS);
}

/* To the first rank, which gets them in r->rows. */
static pst_rc send_rows(struct pst_trainer_part_rows *r, const void *rows, int64_t n, uint64_t *take)
{
    uint64_t give[PST_REPLICAS_MAX] = {(uint64_t)n};
    const struct pst_collective_parcels parcels = {.unit = (uint32_t)r->ds->stride_bytes,
                                                   .give = give,
                                                   .given = rows,
                                                   .take = take,
                                                   .room = room_for_rows,
                                                   .to = r};
    return pst_collective_all_to_all(r->collective, &parcels);
}

pst_rc pst_trainer_part_rows_get(void *ctx, int64_t first, int64_t n, void *out)
{
    struct pst_trainer_part_rows *r = ctx;
    uint64_t take[PST_REPLICAS_MAX];
    int64_t from;
    const int64_t own = share_of(r, 0, first, n, &from);
    pst_rc rc = tell(r, first, n);
    if (rc == PST_OK && own > 0)
        rc = pst_row_files_read(&r->files, from, own, out);
    if (rc == PST_OK)
        rc = send_rows(r, NULL, 0, take);
    for (int k = 1; k < r->ranks && rc == PST_OK; k++) {
        const int64_t share = share_of(r, k, first, n, &from);
        if (take[k] != (uint64_t)share)
            rc = pst_fail(PST_E_PEER,
                          "rank %d sent %" PRIu64 " rows in place of %" PRId64
                          ": are all from the same build?",
                          k, take[k], share);
    }
    if (rc == PST_OK && n > own) /* those of all others follow, by rank */
        memcpy((char *)out + (uint64_t)own * r->ds->stride_bytes, r->rows,
               (uint64_t)(n - own) * r->ds->stride_bytes);
    return rc;
}

pst_rc pst_trainer_part_rows_end(struct pst_trainer_part_rows *r)
{
    return tell(r, 0, 0);
}

pst_rc pst_trainer_part_rows_serve(struct pst_trainer_part_rows *r)
{
    char *rows = NULL;
    uint64_t room = 0, take[PST_REPLICAS_MAX];
    pst_rc rc = PST_OK;
    if (r->ds == NULL || r->rank == 0 || r->collective->rank % r->collective->near != 0)
        return PST_OK;
    for (int64_t n = 1, from; rc == PST_OK && n > 0;) {
        rc = tell(r, 0, 0);
        if (rc != PST_OK)
            break;
        const int64_t *words = (const int64_t *)(const void *)r->words;
        n = words[ROWS];
        if (n == 0)
            break;
        const int64_t share = share_of(r, r->rank, words[FIRST], n, &from);
        rc = grow(&rows, &room, (uint64_t)share * r->ds->stride_bytes + 1);
        if (rc == PST_OK && share > 0)
            rc = pst_row_files_read(&r->files, from, share, rows);
        if (rc == PST_OK)
            rc = send_rows(r, rows, share, take);
    }
    free(rows);
    return rc;
}
