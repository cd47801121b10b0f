/* round.c: one exchange of feature rows with all ranks. Each rank tells the owners which rows it needs
 * (MPI_Alltoallv), reads what it owns of all that was asked for, and sends it (MPI_Alltoallv). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "stages/remote/remote.h"

#define READ_MS (120 * 1000) /* the longest that the drives may take for a round */
#define LAST ((uint64_t)1)   /* in the word before the ids: the rank has no further slots of the batch */

static pst_rc need(struct pst_memory_buffer *buffer, uint64_t bytes)
{
    return pst_memory_need(buffer, bytes, "exchange with other ranks");
}

void pst_remote_release_rooms(struct pst_remote *r)
{
    free(r->wants.at);
    free(r->ids.at);
    free(r->to.at);
    free(r->asked.at);
    free(r->served.at);
    free(r->rows.at);
}

/* ---- what the slot needs ------------------------------------------------------------------------- */

/* What a round is about. */
struct round {
    char *slot;
    uint64_t bytes;
    uint64_t wants[PST_DATASET_PARTS_MAX]; /* rows of each rank */
    uint64_t give[PST_DATASET_PARTS_MAX], take[PST_DATASET_PARTS_MAX];
    uint64_t total;  /* their sum: as many as r->wants has */
    uint64_t serves; /* rows that others want of this rank */
};

static pst_rc check_request(const struct pst_remote *r, const struct round *now,
                            const struct pst_request *request)
{
    const uint64_t stride = r->ds.stride_bytes;
    return request->op == PST_REQUEST_READ && request->array == PST_ARRAY_FEATURES && request->rows == 1 &&
                   request->row < (uint64_t)r->ds.vertices && now->bytes >= stride &&
                   request->offset <= now->bytes - stride
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "a slot asks for %u rows of array %u from row %" PRIu64
                          " on (operation %u), at byte "
                          "%" PRIu64 ": expected one row of features, which this stage can read from other "
                          "ranks; write the slot with the stage sampler",
                          request->rows, request->array, request->row, request->op, request->offset);
}

/* The requests of a part of the slot. */
static pst_rc table_of(const struct pst_remote *r, const struct round *now, uint32_t part,
                       const struct pst_request **table)
{
    const uint64_t at = r->part[part].at, n = r->part[part].n;
    *table = (const void *)(now->slot + at);
    return at % _Alignof(struct pst_request) == 0 && at <= now->bytes &&
                   n <= (now->bytes - at) / sizeof **table
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "a table of %" PRIu64 " requests at byte %" PRIu64
                          " does not fit its slot of %" PRIu64 " bytes",
                          n, at, now->bytes);
}

/* The requests of one table. */
static pst_rc take_table(struct pst_remote *r, struct round *now, const struct pst_request *table, uint64_t n)
{
    struct pst_remote_want *want = (struct pst_remote_want *)(void *)r->wants.at + now->total;
    const int32_t *left = NULL;
    int64_t misses = 0;
    pst_rc rc = n <= INT32_MAX
                    ? PST_OK
                    : pst_fail(PST_E_FORMAT, "a slot has %" PRIu64 " requests: that is too many", n);
    for (uint64_t i = 0; i < n && rc == PST_OK; i++)
        rc = check_request(r, now, &table[i]);
    if (rc == PST_OK)
        rc = pst_remote_hot_take(r, now->slot, table, (int64_t)n, &left, &misses);
    for (int64_t i = 0; i < misses && rc == PST_OK; i++) {
        const struct pst_request *request = &table[left != NULL ? left[i] : i];
        want[i] = (struct pst_remote_want){.vertex = request->row, .to = request->offset};
        now->wants[pst_remote_owner_of(r, request->row)]++;
        now->total++;
    }
    return rc;
}

/* Copies the cached rows, and finds out which others the slot needs. */
static pst_rc collect(struct pst_remote *r, struct round *now)
{
    const struct pst_request *table;
    uint64_t requests = 0;
    for (uint32_t p = 0; p < r->parts; p++) {
        const pst_rc rc = table_of(r, now, p, &table);
        if (rc != PST_OK)
            return rc;
        requests += r->part[p].n;
    }
    pst_rc rc = need(&r->wants, requests * sizeof(struct pst_remote_want) + 1);
    for (uint32_t p = 0; p < r->parts && rc == PST_OK; p++) {
        rc = table_of(r, now, p, &table);
        if (rc == PST_OK)
            rc = take_table(r, now, table, r->part[p].n);
    }
    return rc;
}

/* Where the own rows lie in `served`, behind their table. */
static uint64_t rows_at(uint64_t n)
{
    return pst_align_up(n * sizeof(struct pst_request), PST_PAGE);
}

/* Sorts what the slot needs by owner: ids for others, and for each row its place in the slot. own: gets the
 * vertices of own rows. */
static pst_rc sort_wants(struct pst_remote *r, struct round *now, bool last, uint64_t **own)
{
    const uint64_t total = now->total;
    uint64_t words = 0, id_at[PST_DATASET_PARTS_MAX] = {0}, to_at[PST_DATASET_PARTS_MAX] = {0};
    pst_rc rc = need(&r->ids, (total + (uint64_t)r->ranks) * sizeof(uint64_t));
    if (rc == PST_OK)
        rc = need(&r->to, 2 * total * sizeof(uint64_t) + 1); /* and own vertices behind */
    if (rc != PST_OK)
        return rc;
    uint64_t *ids = (uint64_t *)(void *)r->ids.at, *to = (uint64_t *)(void *)r->to.at;
    uint64_t place = now->wants[r->rank];
    *own = to + total;
    for (int k = 0; k < r->ranks; k++) {
        to_at[k] = k == r->rank ? 0 : place;
        now->give[k] = k == r->rank ? 0 : 1 + now->wants[k];
        if (k == r->rank)
            continue;
        ids[words] = last ? LAST : 0;
        id_at[k] = words + 1;
        words += now->give[k];
        place += now->wants[k];
    }
    const struct pst_remote_want *want = (const void *)r->wants.at;
    for (uint64_t i = 0, own_at = 0; i < total; i++) {
        const int k = pst_remote_owner_of(r, want[i].vertex);
        to[to_at[k]++] = want[i].to;
        if (k == r->rank)
            (*own)[own_at++] = want[i].vertex;
        else
            ids[id_at[k]++] = want[i].vertex;
    }
    return PST_OK;
}

/* ---- the exchange -------------------------------------------------------------------------------- */

static void *room_for_ids(void *to, uint64_t items)
{
    struct pst_remote *r = to;
    return need(&r->asked, items * sizeof(uint64_t) + 1) == PST_OK ? r->asked.at : NULL;
}

static void *room_for_rows(void *to, uint64_t items)
{
    struct pst_remote *r = to;
    return need(&r->rows, items * r->ds.stride_bytes + 1) == PST_OK ? r->rows.at : NULL;
}

/* Tells the owners what this rank needs, and learns what they need. *all: no rank has further slots. */
static pst_rc ask(struct pst_remote *r, struct round *now, bool last, bool *all)
{
    const struct pst_collective_parcels parcels = {.unit = sizeof(uint64_t),
                                                   .give = now->give,
                                                   .given = r->ids.at,
                                                   .take = now->take,
                                                   .room = room_for_ids,
                                                   .to = r};
    const double begin = pst_now();
    *all = last;
    const pst_rc rc = pst_collective_all_to_all(r->collective, &parcels);
    r->counts.wait_s += pst_now() - begin;
    const uint64_t *word = (const uint64_t *)(void *)r->asked.at;
    for (int k = 0; k < r->ranks && rc == PST_OK; word += now->take[k++]) {
        if (k == r->rank)
            continue;
        if (now->take[k] < 1)
            return pst_fail(PST_E_PEER, "rank %d sent no word before its ids: are all from the same build?",
                            k);
        *all = *all && (word[0] & LAST);
        now->serves += now->take[k] - 1;
    }
    return rc;
}

/* Puts a request for the row of a vertex of this part into the table. */
static pst_rc put_request(const struct pst_remote *r, uint64_t vertex, uint64_t number, uint64_t all)
{
    const uint64_t first = (uint64_t)r->ds.features.first_row, rows = (uint64_t)r->ds.features.shape[0];
    if (vertex < first || vertex - first >= rows)
        return pst_fail(PST_E_PEER,
                        "another rank asked for the row of vertex %" PRIu64
                        ", but this part has the vertices "
                        "from %" PRIu64 " to %" PRIu64 ": give all ranks the parts of one cut",
                        vertex, first, first + rows - 1);
    ((struct pst_request *)(void *)r->served.at)[number] =
        (struct pst_request){.op = PST_REQUEST_READ,
                             .array = PST_ARRAY_FEATURES,
                             .rows = 1,
                             .row = vertex - first,
                             .offset = rows_at(all) + number * r->ds.stride_bytes,
                             .tag = vertex};
    return PST_OK;
}

/* Reads the own rows and those that others asked for. */
static pst_rc read_rows(struct pst_remote *r, const struct round *now, const uint64_t *own)
{
    const uint64_t mine = now->wants[r->rank], all = mine + now->serves, at = rows_at(all);
    const uint64_t bytes = at + all * r->ds.stride_bytes;
    const double begin = pst_now();
    struct pst_disk_ticket ticket = {0};
    uint64_t number = 0;
    pst_rc rc = need(&r->served, bytes + 1);
    for (; number < mine && rc == PST_OK; number++)
        rc = put_request(r, own[number], number, all);
    const uint64_t *word = (const uint64_t *)(void *)r->asked.at;
    for (int k = 0; k < r->ranks && now->serves > 0; word += now->take[k++])
        for (uint64_t i = 1; i < now->take[k] && rc == PST_OK; i++)
            rc = put_request(r, word[i], number++, all);
    if (rc == PST_OK)
        rc = pst_disk_add(r->engine, &ticket, r->served.at, bytes, 0, all);
    pst_disk_whole(r->engine, &ticket);
    if (rc == PST_OK)
        rc = pst_disk_wait(r->engine, READ_MS);
    r->counts.read_s += pst_now() - begin;
    return rc == PST_OK || r->ds.cut.parts == 0
               ? rc
               : pst_wrap(rc, "part %d, whose row 0 is that of vertex %" PRId64, r->ds.cut.part,
                          r->ds.features.first_row);
}

/* Sends the rows that others asked for, and gets those of others. */
static pst_rc exchange_rows(struct pst_remote *r, struct round *now)
{
    const uint64_t mine = now->wants[r->rank], all = mine + now->serves;
    uint64_t give[PST_DATASET_PARTS_MAX] = {0}, take[PST_DATASET_PARTS_MAX];
    for (int k = 0; k < r->ranks; k++)
        give[k] = k == r->rank ? 0 : now->take[k] - 1;
    const struct pst_collective_parcels parcels = {.unit = (uint32_t)r->ds.stride_bytes,
                                                   .give = give,
                                                   .given = r->served.at + rows_at(all) +
                                                            mine * r->ds.stride_bytes,
                                                   .take = take,
                                                   .room = room_for_rows,
                                                   .to = r};
    const double begin = pst_now();
    const pst_rc rc = pst_collective_all_to_all(r->collective, &parcels);
    r->counts.rows_s += pst_now() - begin;
    for (int k = 0; k < r->ranks && rc == PST_OK; k++) {
        if (k != r->rank && take[k] != now->wants[k])
            return pst_fail(PST_E_PEER,
                            "rank %d sent %" PRIu64 " rows in place of %" PRIu64
                            ": are all from the same build?",
                            k, take[k], now->wants[k]);
        r->counts.asked[k] += k == r->rank ? 0 : now->wants[k];
        r->counts.served[k] += give[k];
    }
    return rc;
}

/* Copies rows that lie one after the other to their places. */
static void put_rows(const struct pst_remote *r, char *slot, const uint64_t *to, const char *rows, uint64_t n)
{
    const uint64_t stride = r->ds.stride_bytes;
    for (uint64_t i = 0; i < n; i++)
        memcpy(slot + to[i], rows + i * stride, stride);
}

pst_rc pst_remote_round(struct pst_remote *r, void *slot, uint64_t bytes, bool last, bool *all)
{
    struct round now = {.slot = slot, .bytes = bytes};
    uint64_t *own = NULL;
    *all = true;
    pst_rc rc = collect(r, &now);
    if (rc == PST_OK)
        rc = sort_wants(r, &now, last, &own);
    if (rc == PST_OK && r->ranks > 1)
        rc = ask(r, &now, last, all);
    if (rc == PST_OK)
        rc = read_rows(r, &now, own);
    if (rc == PST_OK && r->ranks > 1)
        rc = exchange_rows(r, &now);
    if (rc != PST_OK)
        return rc;
    const uint64_t mine = now.wants[r->rank], *to = (const uint64_t *)(void *)r->to.at;
    uint64_t others = 0;
    for (int k = 0; k < r->ranks; k++)
        others += k == r->rank ? 0 : now.wants[k];
    if (mine > 0)
        put_rows(r, slot, to, r->served.at + rows_at(mine + now.serves), mine);
    if (others > 0)
        put_rows(r, slot, to + mine, r->rows.at, others);
    r->counts.rounds++;
    r->counts.own_rows += mine;
    return PST_OK;
}
