/* rank_lanes.c: see rank_lanes.h. A lane sends a message to a rank only while it expects one from this rank.
 * The last message of a lane to a rank says that the replica has left, and why. Where all ranks exchange
 * items at once, the numbers of items say so. */
#include "tools/ranks/rank_lanes.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/error.h"
#include "common/util/clock.h"

#define TESTS_AT_ONCE 200 /* of a message, before the lane sleeps */
#define NAP_NS 50000L
#define PATIENCE_S (24 * 3600.0) /* for another rank: a rank may evaluate, while others wait */
#define LEFT_MARK                                                                                            \
    ((uint64_t)1 << 63) /* in place of a number of items: the replica has left; and the reason */

/* ---- messages ------------------------------------------------------------------------------------ */

bool lanes_must_end(const struct ranks *r)
{
    return atomic_load_explicit(&r->board->stop, memory_order_relaxed) != 0;
}

static void begin_send(struct lane *lane, int to, MPI_Request *request)
{
    const int n = (int)(HEAD_BYTES + lane->out.bytes);
    (void)pthread_mutex_lock(&lane->all->mpi);
    (void)MPI_Isend(&lane->out, n, MPI_BYTE, to, lane->tag, MPI_COMM_WORLD, request);
    (void)pthread_mutex_unlock(&lane->all->mpi);
    lane->messages++;
    lane->sent_bytes += (uint64_t)n;
    lane->tree_bytes += lane->out.bytes;
}

static void begin_receive(struct lane *lane, int from, MPI_Request *request)
{
    (void)pthread_mutex_lock(&lane->all->mpi);
    (void)MPI_Irecv(&lane->in, (int)sizeof lane->in, MPI_BYTE, from, lane->tag, MPI_COMM_WORLD, request);
    (void)pthread_mutex_unlock(&lane->all->mpi);
}

/* Waits for the end of n requests. PST_E_INTERRUPTED: the run is ending. The requests then stay open. */
static pst_rc end_of(struct lane *lane, MPI_Request *requests, int n)
{
    const double begin = pst_clock_s();
    for (uint64_t tests = 1;; tests++) {
        int done = 0;
        (void)pthread_mutex_lock(&lane->all->mpi);
        (void)MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        (void)pthread_mutex_unlock(&lane->all->mpi);
        if (done)
            return PST_OK;
        if (lanes_must_end(lane->all))
            return pst_fail(PST_E_INTERRUPTED, "the run is ending");
        if (pst_clock_s() - begin > PATIENCE_S)
            return pst_fail(PST_E_TIMEOUT, "another rank did not answer within %.0f s", PATIENCE_S);
        if (tests > TESTS_AT_ONCE)
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

/* Another rank's replica has left: the supervisor is told, once, if it was early. */
static void note_reason(struct lane *lane, int rank, uint32_t reason)
{
    uint32_t none = 0;
    if (reason != 0 && atomic_compare_exchange_strong(&lane->all->reason, &none, reason))
        atomic_store(&lane->all->who, rank);
}

/* Gives lane->out to a rank and takes its message. PST_E_INTERRUPTED: its replica has left. */
static pst_rc swap(struct lane *lane, int rank)
{
    MPI_Request requests[2];
    begin_receive(lane, rank, &requests[0]);
    begin_send(lane, rank, &requests[1]);
    const pst_rc rc = end_of(lane, requests, 2);
    if (rc != PST_OK)
        return rc;
    if (lane->in.kind == DATA && lane->in.bytes == lane->out.bytes)
        return PST_OK;
    if (lane->in.kind == DATA)
        return pst_fail(PST_E_PEER, "rank %d sent %llu bytes in place of %llu: are all from the same build?",
                        rank, (unsigned long long)lane->in.bytes, (unsigned long long)lane->out.bytes);
    lane->left[rank] = true;
    note_reason(lane, rank, lane->in.reason);
    return pst_fail(PST_E_INTERRUPTED, "the replica of rank %d has left", rank);
}

/* ---- all to all ------------------------------------------------------------------------------------ */

/* Each rank tells each other how many items it has for it, or that it has left. */
static void begin_counts(struct lane *lane, MPI_Request *request)
{
    const struct ranks *r = lane->all;
    (void)pthread_mutex_lock(&lane->all->mpi);
    (void)MPI_Ialltoall(lane->give, 1, MPI_UINT64_T, lane->take, 1, MPI_UINT64_T, r->comm[lane->tag],
                        request);
    (void)pthread_mutex_unlock(&lane->all->mpi);
    lane->messages += (uint64_t)r->ranks - 1;
    lane->sent_bytes += ((uint64_t)r->ranks - 1) * sizeof lane->give[0];
}

/* The last such call of a lane: all ranks know when it is. */
static void end_counts(struct lane *lane)
{
    for (int k = 0; k < lane->all->ranks; k++)
        if (lane->take[k] & LEFT_MARK) {
            lane->counted_out = true;
            if (k != lane->all->rank)
                note_reason(lane, k, (uint32_t)lane->take[k]);
        }
}

/* Positions and numbers as MPI takes them. Returns their sum; -1: it is too large. */
static int64_t layout(const uint64_t *items, int ranks, int n[PST_REPLICAS_MAX], int at[PST_REPLICAS_MAX])
{
    int64_t sum = 0;
    for (int k = 0; k < ranks; k++) {
        if (items[k] > INT_MAX || sum + (int64_t)items[k] > INT_MAX)
            return -1;
        n[k] = (int)items[k];
        at[k] = (int)sum;
        sum += n[k];
    }
    return sum;
}

static pst_rc make_room(struct pst_memory_buffer *buffer, uint64_t bytes)
{
    return pst_memory_need(buffer, bytes + 1, "carry items to other ranks"); /* never NULL */
}

/* In pieces that fit a box. */
static pst_rc take_given(struct lane *lane, uint64_t bytes)
{
    pst_rc rc = make_room(&lane->sends, bytes);
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += PST_COLLECTIVE_BOX)
        rc = pst_collective_shared_take(lane->member, lane->number, lane->sends.at + at,
                                        bytes - at < PST_COLLECTIVE_BOX ? bytes - at : PST_COLLECTIVE_BOX);
    return rc;
}

static pst_rc give_taken(struct lane *lane, uint64_t bytes)
{
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += PST_COLLECTIVE_BOX)
        rc = pst_collective_shared_give(lane->member, lane->number, lane->gets.at + at,
                                        bytes - at < PST_COLLECTIVE_BOX ? bytes - at : PST_COLLECTIVE_BOX);
    return rc;
}

/* The items themselves; all ranks come here. */
static pst_rc exchange_items(struct lane *lane, uint32_t unit)
{
    int give[PST_REPLICAS_MAX], give_at[PST_REPLICAS_MAX], take[PST_REPLICAS_MAX], take_at[PST_REPLICAS_MAX];
    const struct ranks *r = lane->all;
    const int64_t gives = layout(lane->give, r->ranks, give, give_at),
                  takes = layout(lane->take, r->ranks, take, take_at);
    MPI_Datatype item;
    MPI_Request request;
    if (gives < 0 || takes < 0)
        return pst_fail(PST_E_LIMIT,
                        "a batch has %d items or more for other ranks, which is more than MPI takes at once: "
                        "make batches smaller",
                        INT_MAX);
    pst_rc rc = make_room(&lane->gets, (uint64_t)takes * unit);
    if (rc != PST_OK)
        return rc;
    (void)pthread_mutex_lock(&lane->all->mpi);
    (void)MPI_Type_contiguous((int)unit, MPI_BYTE, &item);
    (void)MPI_Type_commit(&item);
    (void)MPI_Ialltoallv(lane->sends.at, give, give_at, item, lane->gets.at, take, take_at, item,
                         r->comm[lane->tag], &request);
    (void)MPI_Type_free(&item); /* MPI keeps it until the call has ended */
    (void)pthread_mutex_unlock(&lane->all->mpi);
    for (int k = 0; k < r->ranks; k++)
        lane->messages += give[k] > 0;
    lane->sent_bytes += (uint64_t)gives * unit;
    lane->item_bytes += (uint64_t)gives * unit;
    rc = end_of(lane, &request, 1);
    return rc == PST_OK ? give_taken(lane, (uint64_t)takes * unit) : rc;
}

/* Carries what the replica gives to all ranks, and what they give it. */
static pst_rc carry_all(struct lane *lane, const struct pst_collective_order *order)
{
    const uint64_t counts = (uint64_t)lane->all->ranks * sizeof lane->give[0];
    MPI_Request request;
    pst_rc rc = pst_collective_shared_take(lane->member, lane->number, lane->give, counts);
    if (rc == PST_OK)
        rc = take_given(lane, order->bytes);
    if (rc != PST_OK)
        return rc;
    begin_counts(lane, &request);
    rc = end_of(lane, &request, 1);
    if (rc != PST_OK)
        return rc;
    end_counts(lane);
    if (lane->counted_out)
        return pst_fail(PST_E_INTERRUPTED, "a replica of another rank has left");
    rc = pst_collective_shared_give(lane->member, lane->number, lane->take, counts);
    return rc == PST_OK ? exchange_items(lane, order->unit) : rc;
}

/* ---- parting ------------------------------------------------------------------------------------- */

/* Says to all ranks that this replica has left, and takes what they still send, until they say the same. So
 * no message is on its way when MPI ends. */
static pst_rc part(struct lane *lane, uint32_t reason)
{
    const struct ranks *r = lane->all;
    const bool counts = !lane->counted_out;
    MPI_Request counted;
    pst_rc rc = PST_OK;
    for (int k = 0; k < r->ranks; k++)
        lane->give[k] = LEFT_MARK | reason;
    if (counts) /* for ranks whose replica waits in an exchange with all */
        begin_counts(lane, &counted);
    for (int apart = 1; apart < r->ranks && rc == PST_OK; apart *= 2) {
        const int rank = r->rank ^ apart;
        MPI_Request sent;
        lane->out.kind = LEFT;
        lane->out.reason = reason;
        lane->out.bytes = 0;
        begin_send(lane, rank, &sent);
        rc = end_of(lane, &sent, 1);
    }
    for (int apart = 1; apart < r->ranks && rc == PST_OK; apart *= 2) {
        const int rank = r->rank ^ apart;
        while (!lane->left[rank] && rc == PST_OK) {
            MPI_Request got;
            begin_receive(lane, rank, &got);
            rc = end_of(lane, &got, 1);
            if (rc == PST_OK && lane->in.kind == LEFT) {
                lane->left[rank] = true;
                note_reason(lane, rank, lane->in.reason);
            }
        }
    }
    if (counts && rc == PST_OK)
        rc = end_of(lane, &counted, 1);
    if (counts && rc == PST_OK)
        end_counts(lane);
    return rc;
}

/* ---- lanes --------------------------------------------------------------------------------------- */

/* Carries one exchange of the replica. */
static pst_rc carry(struct lane *lane, const struct pst_collective_order *order)
{
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; at < order->bytes && rc == PST_OK; at += PST_COLLECTIVE_BOX) {
        lane->out.kind = DATA;
        lane->out.reason = 0;
        lane->out.bytes =
            order->bytes - at < PST_COLLECTIVE_BOX ? order->bytes - at : (uint64_t)PST_COLLECTIVE_BOX;
        rc = pst_collective_shared_take(lane->member, lane->number, lane->out.data, lane->out.bytes);
        if (rc == PST_OK)
            rc = swap(lane, order->peer / lane->all->members);
        if (rc == PST_OK)
            rc = pst_collective_shared_give(lane->member, lane->number, lane->in.data, lane->in.bytes);
    }
    return rc;
}

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    struct ranks *r = lane->all;
    pst_rc rc = PST_OK;
    while (rc == PST_OK) {
        struct pst_collective_order order;
        rc = pst_collective_shared_take(lane->member, lane->number, &order, sizeof order);
        if (rc == PST_OK)
            rc = order.peer == PST_COLLECTIVE_ALL ? carry_all(lane, &order) : carry(lane, &order);
    }
    pst_collective_close(lane->member); /* the replica learns that it is alone */
    lane->member = NULL;
    const uint32_t told = atomic_load(&r->reason), own = atomic_load(&r->board->finish);
    if (rc == PST_E_INTERRUPTED && !lanes_must_end(r))
        rc = part(lane, told != 0 ? told : own);
    if (rc != PST_OK && !lanes_must_end(r)) {
        fprintf(stderr, "penstock-ranks: %s\n", pst_error_text());
        (void)snprintf(lane->why, sizeof lane->why, "%s", pst_error_text());
        atomic_store(&r->failed, lane);
    }
    (void)atomic_fetch_sub(&r->running, 1);
    return NULL;
}

static pst_rc open_lane(struct ranks *r, uint64_t at, int number)
{
    struct lane *lane = r->nlanes < r->ncomms ? calloc(1, sizeof *lane) : NULL;
    if (!lane)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot carry the data of %d replicas", r->nlanes + 1);
    r->lanes[r->nlanes] = lane;
    lane->all = r;
    lane->number = number;
    lane->tag = r->nlanes++;
    return pst_collective_ranks_carry(
        &lane->member,
        &(struct pst_collective_ranks_options){.memory = (char *)r->map.base + at,
                                               .rank = r->rank,
                                               .ranks = r->ranks,
                                               .member = number,
                                               .members = r->members,
                                               .names = r->names,
                                               .deadline_s = INFINITY, /* a replica may compute for long */
                                               .stop = &r->board->stop});
}

pst_rc lanes_start(struct ranks *r, json_t *message)
{
    const char *path = json_string_value(json_object_get(message, "board"));
    const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(message, "bytes"));
    const json_t *meeting, *meetings = json_object_get(message, "meetings");
    size_t i;
    r->carry = json_incref(message);
    r->members = (int)json_integer_value(json_object_get(message, "members"));
    if (!path || r->members < 1 || 2 * r->members > PST_REPLICAS_MAX)
        return pst_fail(PST_E_PEER, "the supervisor's message \"carry\" is wrong: install penstock and "
                                    "penstock-ranks from the same build");
    pst_rc rc = pst_region_map(&r->map, path, bytes);
    r->board = r->map.base;
    json_array_foreach(meetings, i, meeting)
    {
        const uint64_t at = (uint64_t)json_integer_value(json_object_get(meeting, "at"));
        const json_t *names = json_object_get(meeting, "names");
        for (int n = 0; n < 2 * r->members; n++) /* those of the last meeting are as good as any */
            r->names[n] = json_string_value(json_array_get(names, (size_t)n));
        for (int m = 0; m < r->members && rc == PST_OK; m++)
            rc = open_lane(r, at, m);
    }
    atomic_store(&r->running, rc == PST_OK ? r->nlanes : 0);
    for (int l = 0; l < r->nlanes && rc == PST_OK; l++)
        if (pthread_create(&r->lanes[l]->thread, NULL, run_lane, r->lanes[l]) != 0)
            rc = pst_fail(PST_E_LIMIT, "cannot start a thread: raise the limit (ulimit -u)");
    return rc;
}
