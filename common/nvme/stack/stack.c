/* stack.c: cuts requests into commands, sends them in waves, takes completions. recover.c handles what goes
 * wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/nvme/stack/stack_impl.h"
#include "common/util/clock.h"

#define SLOTS_MAX 262144u    /* commands held at once, in queues or waiting for room: 30 MB */
#define LANE_COMMANDS_MIN 32 /* fewer commands for a lane cost more than they save */
#define LBA_SHIFT_MAX 16     /* blocks of 64 KiB; no drive has larger ones */
#define LOOK_NS_MAX 10000000u

uint32_t pst_nvme_lanes_needed(const struct pst_nvme_supply *supply, double seconds_per_entry)
{
    const double drives = supply->ssds * supply->iops, bus = supply->bus_bytes_per_s;
    const bool bus_is_full = bus > 0 && drives * supply->bytes >= bus;
    const double needed = (bus_is_full ? bus / supply->bytes : drives) * seconds_per_entry;
    return needed > 1 ? (uint32_t)ceil(needed) : 1;
}

pst_rc pst_nvme_way_named(const char *name, enum pst_nvme_way *way)
{
    const char *at = PST_NVME_WAY_NAMES;
    const size_t bytes = strlen(name);
    for (int i = PST_NVME_ASYNC; i <= PST_NVME_BATCH; i++, at += strcspn(at, "|") + 1) {
        *way = (enum pst_nvme_way)i;
        if (strcspn(at, "|") == bytes && strncmp(at, name, bytes) == 0)
            return PST_OK;
    }
    return pst_fail(PST_E_ARG, "unknown NVMe stack \"%s\"; expected %s", name, PST_NVME_WAY_NAMES);
}

/* ---- opening and closing ------------------------------------------------------------------------- */

static pst_rc find_queues(struct pst_nvme_stack *s)
{
    const struct pst_nvme_stack_config *c = &s->config;
    uint64_t room = 0;
    for (uint32_t i = 0; i < c->ssds; i++) {
        const struct pst_nvme_controller *ctrl = c->controllers[i];
        s->first_queue[i] = s->q.n;
        for (uint32_t qid = 1; qid <= PST_NVME_QUEUES_MAX; qid++) {
            if (ctrl->io[qid] != NULL &&
                (c->queues == 0 || (qid > c->first_queue && qid <= c->first_queue + c->queues)))
                s->qp[s->q.n++] = ctrl->io[qid];
        }
        if (s->q.n == s->first_queue[i])
            return pst_fail(PST_E_STATE, "%s has no free I/O queue: use fewer lanes or fewer instances",
                            ctrl->t->what);
        if (ctrl->page != c->controllers[0]->page)
            return pst_fail(PST_E_UNSUPPORTED,
                            "%s has pages of %u bytes, but %s has pages of %u; all controllers of a stack "
                            "need the same page size",
                            ctrl->t->what, ctrl->page, c->controllers[0]->t->what, c->controllers[0]->page);
    }
    s->first_queue[c->ssds] = s->q.n;
    for (uint32_t i = 0; i < s->q.n; i++)
        room += s->qp[i]->depth;
    /* a command for every request: whether a wave is worth its doorbells depends on all that wait */
    room = room > c->requests_max ? room : c->requests_max;
    s->nslots = room < SLOTS_MAX ? (uint32_t)room : SLOTS_MAX;
    s->q.page = c->controllers[0]->page;
    s->q.qp = s->qp;
    s->q.io_of = s->io_of;
    return PST_OK;
}

static pst_rc make_memory(struct pst_nvme_stack *s)
{
    const uint32_t n = s->nslots, q = s->q.n, r = s->config.requests_max;
    const uint32_t lanes = s->config.way == PST_NVME_SYNC ? 1 : s->config.lanes;
    assert(q > 0 && n > 0 && r > 0);
    bool good = true;
    for (uint32_t i = 0; i < q; i++) {
        s->io_of[i] = calloc(s->qp[i]->depth, sizeof *s->io_of[i]);
        good = good && s->io_of[i] != NULL;
    }
    s->q.ios = calloc(n, sizeof *s->q.ios);
    s->slots = calloc(n, sizeof *s->slots);
    s->free_slots = calloc(n, sizeof *s->free_slots);
    s->todo = calloc(n, sizeof *s->todo);
    s->done = calloc(n, sizeof *s->done);
    s->wave.order = calloc(n, sizeof *s->wave.order);
    s->wave.count = calloc((size_t)lanes * q, sizeof *s->wave.count);
    s->wave.begin = calloc(q + 1u, sizeof *s->wave.begin);
    s->wave.take = calloc(q, sizeof *s->wave.take);
    s->held = calloc(r, sizeof *s->held);
    s->ended = calloc(r, sizeof *s->ended);
    if (!good || !s->q.ios || !s->slots || !s->free_slots || !s->todo || !s->done || !s->wave.order ||
        !s->wave.count || !s->wave.begin || !s->wave.take || !s->held || !s->ended)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %u NVMe commands", n);
    for (uint32_t i = 0; i < n; i++)
        s->free_slots[s->nfree++] = n - 1 - i;
    for (uint32_t i = 0; i < r; i++)
        s->held[i].next = i + 1 < r ? i + 1 : PST_NVME_NONE;
    s->waiting = PST_NVME_NONE;
    return lanes > 1 ? pst_nvme_team_new(&s->team, lanes) : PST_OK;
}

pst_rc pst_nvme_stack_new(struct pst_nvme_stack **out, const struct pst_nvme_stack_config *config)
{
    *out = NULL;
    const uint32_t lanes_max = config->way == PST_NVME_SYNC ? PST_NVME_LANES_MAX : PST_NVME_TEAM_MAX;
    if (config->ssds < 1 || config->ssds > PST_NVME_SSDS_MAX || config->lanes < 1 ||
        config->lanes > lanes_max || config->requests_max < 1 || config->timeout_ms < 1)
        return pst_fail(
            PST_E_ARG,
            "an NVMe stack cannot have %u SSDs and %u lanes; expected 1 to %d SSDs and 1 to %u lanes",
            config->ssds, config->lanes, PST_NVME_SSDS_MAX, lanes_max);
    struct pst_nvme_stack *s = calloc(1, sizeof *s);
    if (s == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate an NVMe stack");
    s->config = *config;
    s->look_ns = (uint64_t)config->timeout_ms * 1000000u / 8;
    s->look_ns = s->look_ns < LOOK_NS_MAX ? s->look_ns : LOOK_NS_MAX;
    pst_rc rc = find_queues(s);
    rc = rc == PST_OK ? make_memory(s) : rc;
    if (rc != PST_OK) {
        pst_nvme_stack_free(s);
        return rc;
    }
    *out = s;
    return PST_OK;
}

void pst_nvme_stack_free(struct pst_nvme_stack *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->config.ssds && s->q.n > 0; i++) {
        bool busy = false;
        for (uint32_t j = s->first_queue[i]; j < s->first_queue[i + 1]; j++)
            busy = busy || s->qp[j]->posted != s->qp[j]->taken;
        if (busy && s->config.queues == 0 && pst_nvme_reset(s->config.controllers[i]) != PST_OK)
            fprintf(stderr, "%s\n", pst_error_text());
    }
    pst_nvme_team_free(s->team);
    for (uint32_t i = 0; i < s->q.n; i++)
        free(s->io_of[i]);
    free(s->q.ios);
    free(s->slots);
    free(s->free_slots);
    free(s->todo);
    free(s->done);
    free(s->wave.order);
    free(s->wave.count);
    free(s->wave.begin);
    free(s->wave.take);
    free(s->held);
    free(s->ended);
    free(s);
}

uint64_t pst_nvme_stack_in_flight(const struct pst_nvme_stack *s)
{
    return s->nheld;
}

const struct pst_nvme_stack_stats *pst_nvme_stack_stats(struct pst_nvme_stack *s)
{
    s->stats.sq_doorbells = s->stats.cq_doorbells = 0;
    s->stats.queues = s->q.n;
    for (uint32_t i = 0; i < s->q.n; i++) {
        s->stats.sq_doorbells += s->qp[i]->sq_rings;
        s->stats.cq_doorbells += s->qp[i]->cq_rings;
    }
    return &s->stats;
}

/* ---- requests ------------------------------------------------------------------------------------- */

pst_rc pst_nvme_stack_add(struct pst_nvme_stack *s, const struct pst_nvme_request *r)
{
    if (s->failed != PST_OK)
        return pst_fail(s->failed, "%s", s->failure);
    if (s->nheld == s->config.requests_max)
        return pst_fail(PST_E_LIMIT,
                        "the NVMe stack cannot take another request: %u are in flight, which is its limit",
                        s->nheld);
    if (r->ssd >= s->config.ssds || r->lba_shift < 9 || r->lba_shift > LBA_SHIFT_MAX || r->bytes == 0 ||
        r->bytes % (1ull << r->lba_shift) != 0 || r->iova % 4 != 0)
        return pst_fail(PST_E_ARG,
                        "invalid NVMe request: %llu bytes at LBA %llu of SSD %u, memory at %#llx; expected "
                        "whole blocks, an SSD of the stack, and memory at a multiple of 4",
                        (unsigned long long)r->bytes, (unsigned long long)r->lba, r->ssd,
                        (unsigned long long)r->iova);
    const uint32_t index = s->free_held;
    struct held *h = &s->held[index];
    s->free_held = h->next;
    *h = (struct held){.r = *r, .live = true, .next = PST_NVME_NONE, .begun_ns = pst_clock_ns()};
    if (s->waiting == PST_NVME_NONE)
        s->waiting = index;
    else
        s->held[s->waiting_end].next = index;
    s->waiting_end = index;
    s->nheld++;
    if (r->ticket != NULL)
        r->ticket->pending++;
    return PST_OK;
}

void pst_nvme_end_request(struct pst_nvme_stack *s, uint32_t index)
{
    struct held *h = &s->held[index];
    struct pst_nvme_result *e = &s->ended[(s->ended_first + s->nended++) % s->config.requests_max];
    *e = (struct pst_nvme_result){.user = h->r.user,
                                  .status = h->status,
                                  .ssd = h->r.ssd,
                                  .nsid = h->r.nsid,
                                  .lba = h->failed_lba,
                                  .ns = pst_clock_ns() - h->begun_ns};
    if (h->r.ticket != NULL) {
        h->r.ticket->pending--;
        h->r.ticket->failed += h->status != PST_NVME_OK;
    }
    h->live = false;
    h->next = s->free_held;
    s->free_held = index;
}

/* ---- commands ------------------------------------------------------------------------------------- */

/* The most bytes of one command: as far as the device and a PRP list allow, in whole blocks. */
static uint64_t transfer_bytes(const struct pst_nvme_controller *c, uint32_t lba_shift)
{
    const uint64_t most = (uint64_t)PST_NVME_LBAS_MAX << lba_shift;
    const uint64_t bytes = c->transfer_bytes < most ? c->transfer_bytes : most;
    return bytes & ~((1ull << lba_shift) - 1);
}

/* Makes the next command of the first waiting request. */
static void cut(struct pst_nvme_stack *s)
{
    const uint32_t index = s->waiting;
    struct held *h = &s->held[index];
    const struct pst_nvme_request *r = &h->r;
    const uint32_t slot = s->free_slots[--s->nfree];
    const uint32_t first = s->first_queue[r->ssd], n = s->first_queue[r->ssd + 1] - first;
    const uint64_t left = r->bytes - h->next_byte;
    const uint64_t most = transfer_bytes(s->config.controllers[r->ssd], r->lba_shift);
    const uint32_t bytes = (uint32_t)(left < most ? left : most);
    s->q.ios[slot] = (struct pst_nvme_io){.lba = r->lba + (h->next_byte >> r->lba_shift),
                                          .iova = r->iova + h->next_byte,
                                          .bytes = bytes,
                                          .nsid = r->nsid,
                                          .queue = (uint16_t)(first + s->turn[r->ssd]++ % n),
                                          .opcode = r->opcode,
                                          .lba_shift = r->lba_shift};
    s->slots[slot] = (struct slot){.held = index};
    s->todo[s->ntodo++] = slot;
    h->commands++;
    h->next_byte += bytes;
    if (h->next_byte == r->bytes) {
        s->waiting = h->next;
        h->next = PST_NVME_NONE;
    }
}

static bool worth_retrying(uint16_t cqe_status)
{
    const uint16_t status = PST_NVME_STATUS(cqe_status);
    if (PST_NVME_DO_NOT_RETRY(cqe_status))
        return false;
    return status >> 8 == 2 || (status >= PST_NVME_DATA_TRANSFER && status <= PST_NVME_SQ_DELETED) ||
           status == PST_NVME_NOT_READY;
}

void pst_nvme_command_ended(struct pst_nvme_stack *s, uint32_t index, uint16_t cqe_status)
{
    struct slot *slot = &s->slots[index];
    struct held *h = &s->held[slot->held];
    const uint16_t status = PST_NVME_STATUS(cqe_status);
    if (status != PST_NVME_OK && worth_retrying(cqe_status) && slot->tries < s->config.retries) {
        slot->tries++;
        slot->aborting = false;
        s->stats.retries++;
        s->todo[s->ntodo++] = index;
        return;
    }
    if (status != PST_NVME_OK && h->status == PST_NVME_OK) {
        h->status = status;
        h->failed_lba = s->q.ios[index].lba;
    }
    s->free_slots[s->nfree++] = index;
    if (--h->commands == 0 && h->next_byte == h->r.bytes)
        pst_nvme_end_request(s, slot->held);
}

/* ---- submission ----------------------------------------------------------------------------------- */

static void lane_count(void *context, uint32_t lane, uint32_t lanes)
{
    struct pst_nvme_stack *s = context;
    pst_nvme_wave_count(&s->q, &s->wave, lane, lanes);
}

static void lane_scatter(void *context, uint32_t lane, uint32_t lanes)
{
    struct pst_nvme_stack *s = context;
    pst_nvme_wave_scatter(&s->q, &s->wave, lane, lanes);
}

static void lane_write(void *context, uint32_t lane, uint32_t lanes)
{
    struct pst_nvme_stack *s = context;
    pst_nvme_wave_write(&s->q, &s->wave, lane, lanes);
}

static void run(struct pst_nvme_stack *s, uint32_t n, void (*f)(void *, uint32_t, uint32_t))
{
    if (s->team != NULL && n >= s->config.lanes * LANE_COMMANDS_MIN)
        pst_nvme_team_run(s->team, f, s);
    else
        f(s, 0, 1);
}

/* Keeps what did not fit, in its order, and what is not of this wave. */
static void keep_rest(struct pst_nvme_stack *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->q.n; i++) {
        for (uint32_t j = s->wave.begin[i] + s->wave.take[i]; j < s->wave.begin[i + 1]; j++)
            s->todo[kept++] = s->wave.order[j];
    }
    s->in_flight += s->wave.n - kept;
    memmove(s->todo + kept, s->todo + s->wave.n, (s->ntodo - s->wave.n) * sizeof *s->todo);
    s->ntodo -= s->wave.n - kept;
}

/* How many of `want` commands are sent now if there is room for `room` of at most `most`. A doorbell costs as
 * much for one command as for many. So what does not fit waits until half of the room is free. */
static uint32_t worth_sending(uint32_t want, uint32_t room, uint32_t most)
{
    return want <= room ? want : room >= most - most / 2 ? room : 0;
}

/* How many commands the next wave has, if `depth` limits it. */
static uint32_t wave_size(const struct pst_nvme_stack *s)
{
    const uint32_t most = s->config.depth;
    if (most == 0)
        return s->ntodo;
    return worth_sending(s->ntodo, most > s->in_flight ? most - s->in_flight : 0, most);
}

static void stamp(struct pst_nvme_stack *s, uint64_t now)
{
    for (uint32_t i = 0; i < s->q.n; i++) {
        for (uint32_t j = 0; j < s->wave.take[i]; j++)
            s->slots[s->wave.order[s->wave.begin[i] + j]].posted_ns = now;
        s->stats.commands += s->wave.take[i];
    }
}

static void submit_async(struct pst_nvme_stack *s)
{
    s->wave.todo = s->todo;
    s->wave.n = wave_size(s);
    const bool team = s->team != NULL && s->wave.n >= s->config.lanes * LANE_COMMANDS_MIN;
    run(s, s->wave.n, lane_count);
    pst_nvme_wave_scan(&s->q, &s->wave, team ? s->config.lanes : 1);
    for (uint32_t i = 0; i < s->q.n; i++)
        s->wave.take[i] = worth_sending(s->wave.begin[i + 1] - s->wave.begin[i], pst_nvme_room(s->qp[i]),
                                        s->qp[i]->depth - 1);
    run(s, s->wave.n, lane_scatter);
    stamp(s, pst_clock_ns());
    run(s, s->wave.n, lane_write);
    pst_nvme_wave_ring(&s->q, &s->wave, 0, 1);
    keep_rest(s);
}

/* Positions are known beforehand: a command's place in its queue is the number of commands before it. */
static void submit_batch(struct pst_nvme_stack *s)
{
    const uint64_t now = pst_clock_ns();
    const uint32_t n = wave_size(s);
    uint32_t kept = 0, *take = s->wave.take, *most = s->wave.count;
    memset(take, 0, s->q.n * sizeof *take);
    memset(most, 0, s->q.n * sizeof *most);
    for (uint32_t i = 0; i < n; i++)
        most[s->q.ios[s->todo[i]].queue]++;
    for (uint32_t i = 0; i < s->q.n; i++)
        most[i] = worth_sending(most[i], pst_nvme_room(s->qp[i]), s->qp[i]->depth - 1);
    for (uint32_t i = 0; i < s->ntodo; i++) {
        const uint32_t index = s->todo[i], queue = s->q.ios[index].queue;
        if (i >= n || take[queue] == most[queue]) {
            s->todo[kept++] = index;
            continue;
        }
        s->slots[index].posted_ns = now;
        pst_nvme_io_post(&s->q, index, s->qp[queue]->posted + take[queue]++);
    }
    pst_nvme_wave_ring(&s->q, &s->wave, 0, 1);
    s->in_flight += s->ntodo - kept;
    s->stats.commands += s->ntodo - kept;
    s->ntodo = kept;
}

/* Adds the time since the last call; the number of lanes that wait has not changed since then. */
static void count_lanes(struct pst_nvme_stack *s)
{
    const uint64_t now = pst_clock_ns();
    if (s->config.way == PST_NVME_SYNC && s->counted_ns > 0)
        s->stats.lane_s += (double)(now - s->counted_ns) * 1e-9 * s->in_flight;
    s->counted_ns = now;
}

/* Each command has a lane and a doorbell; as many are in flight as there are lanes. */
static void submit_sync(struct pst_nvme_stack *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->ntodo; i++) {
        const uint32_t index = s->todo[i];
        struct pst_nvme_qp *qp = s->qp[s->q.ios[index].queue];
        if (s->in_flight >= s->config.lanes || pst_nvme_room(qp) == 0) {
            s->todo[kept++] = index;
            continue;
        }
        s->slots[index].posted_ns = pst_clock_ns();
        pst_nvme_io_post(&s->q, index, qp->posted);
        qp->posted++;
        pst_nvme_ring_sq(qp);
        s->in_flight++;
        s->stats.commands++;
    }
    s->ntodo = kept;
}

void pst_nvme_stack_submit(struct pst_nvme_stack *s)
{
    if (s->failed != PST_OK)
        return;
    while (s->waiting != PST_NVME_NONE && s->nfree > 0)
        cut(s);
    if (s->ntodo == 0)
        return;
    const uint64_t before = s->stats.commands;
    count_lanes(s);
    if (s->config.way == PST_NVME_ASYNC)
        submit_async(s);
    else if (s->config.way == PST_NVME_BATCH)
        submit_batch(s);
    else
        submit_sync(s);
    s->stats.waves += s->stats.commands != before;
}

/* ---- completion ----------------------------------------------------------------------------------- */

struct matching {
    struct pst_nvme_stack *s;
    uint32_t queue, n;
    uint32_t strange[PST_NVME_TEAM_MAX];
};

static void lane_match(void *context, uint32_t lane, uint32_t lanes)
{
    struct matching *m = context;
    m->strange[lane] = pst_nvme_match(&m->s->q, m->queue, m->n, m->s->done, lane, lanes);
}

/* Takes n completions that have come. False: one belongs to no command in flight. */
static bool take(struct pst_nvme_stack *s, uint32_t queue, uint32_t n)
{
    struct matching m = {.s = s, .queue = queue, .n = n};
    uint32_t strange = 0;
    if (s->team != NULL && n >= s->config.lanes * LANE_COMMANDS_MIN)
        pst_nvme_team_run(s->team, lane_match, &m);
    else
        lane_match(&m, 0, 1);
    for (uint32_t i = 0; i < PST_NVME_TEAM_MAX; i++)
        strange += m.strange[i];
    if (strange == 0)
        pst_nvme_ring_cq(s->qp[queue], n);
    s->stats.strange += strange;
    s->in_flight -= n - strange;
    for (uint32_t i = 0; i < n; i++) {
        if (s->done[i] != PST_NVME_NOT_LIVE)
            pst_nvme_command_ended(s, s->done[i], s->q.ios[s->done[i]].status);
    }
    return strange == 0;
}

bool pst_nvme_take_queue(struct pst_nvme_stack *s, uint32_t queue)
{
    uint32_t n = pst_nvme_arrived(s->qp[queue]);
    if (s->config.way != PST_NVME_SYNC)
        return n == 0 || take(s, queue, n);
    bool good = true;
    if (n > 0)
        count_lanes(s);
    for (; good && n > 0; n--) /* each lane takes only its own */
        good = take(s, queue, 1);
    return good;
}

pst_rc pst_nvme_stack_poll(struct pst_nvme_stack *s, struct pst_nvme_result *results, uint32_t max,
                           uint32_t *n)
{
    for (uint32_t ssd = 0; ssd < s->config.ssds && s->failed == PST_OK; ssd++) {
        bool good = true;
        for (uint32_t i = s->first_queue[ssd]; i < s->first_queue[ssd + 1] && good; i++)
            good = s->qp[i]->posted == s->qp[i]->taken || pst_nvme_take_queue(s, i);
        if (!good)
            pst_nvme_recover(s, ssd);
    }
    if (s->in_flight > 0) {
        const uint64_t now = pst_clock_ns();
        if (now - s->looked_ns >= s->look_ns)
            pst_nvme_look_after(s, now);
    }
    pst_nvme_stack_submit(s);
    for (*n = 0; *n < max && s->nended > 0; s->nended--) {
        results[(*n)++] = s->ended[s->ended_first];
        s->ended_first = (s->ended_first + 1) % s->config.requests_max;
        s->nheld--;
    }
    return s->failed == PST_OK ? PST_OK : pst_fail(s->failed, "%s", s->failure);
}
