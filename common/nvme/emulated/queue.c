/* queue.c: IO queues of an emulated controller. Commands are fetched when a doorbell has changed, wait in a
 * heap until they are due, are carried out, and complete in the order in which they became due. */
#include <stdlib.h>

#include "common/nvme/emulated/emulated_impl.h"
#include "common/util/clock.h"

#define FETCH_MAX 64 /* of one queue in one turn, so that other queues get their turn */

/* ---- the heap of commands by time ------------------------------------------------------------------ */

static void heap_up(struct pst_emu_part *part, uint32_t i, struct pst_emu_due item)
{
    for (; i > 0 && part->heap[(i - 1) / 2].ns > item.ns; i = (i - 1) / 2)
        part->heap[i] = part->heap[(i - 1) / 2];
    part->heap[i] = item;
}

static void heap_push(struct pst_emu_part *part, struct pst_emu_command *command)
{
    assert(part->nheap < part->heap_room);
    heap_up(part, part->nheap++, (struct pst_emu_due){command->due_ns, command});
}

static struct pst_emu_command *heap_pop(struct pst_emu_part *part)
{
    struct pst_emu_command *first = part->heap[0].command;
    const struct pst_emu_due last = part->heap[--part->nheap];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < part->nheap; i = child) {
        if (child + 1 < part->nheap && part->heap[child + 1].ns < part->heap[child].ns)
            child++;
        if (part->heap[child].ns >= last.ns)
            break;
        part->heap[i] = part->heap[child];
    }
    if (part->nheap > 0)
        part->heap[i] = last;
    return first;
}

/* ---- completions ---------------------------------------------------------------------------------- */

static void release(struct pst_emu_command *command)
{
    struct pst_emu_sq *sq = command->sq;
    command->used = false;
    command->next = sq->free_commands;
    sq->free_commands = command;
}

static bool has_room(struct pst_emu_part *part, struct pst_emu_cq *cq)
{
    const uint32_t head = PST_NVME_LOAD_ACQUIRE(cq->doorbell);
    if (head != cq->seen) {
        cq->seen = head;
        __atomic_fetch_add(&part->ssd->stats->cq_doorbells, 1, __ATOMIC_RELAXED);
    }
    if (head >= cq->depth) {
        atomic_store(&part->ssd->fatal, true); /* the host wrote an impossible doorbell */
        return false;
    }
    return (cq->posted + 1) % cq->depth != head;
}

static void write_cqe(struct pst_emu_part *part, struct pst_emu_command *command)
{
    struct pst_emu_cq *cq = command->sq->cq;
    struct pst_nvme_cqe *at = &cq->base[cq->posted % cq->depth];
    const uint32_t phase = cq->posted / cq->depth % 2 == 0;
    at->dw0 = command->dw0;
    at->dw1 = 0;
    at->sq_head = (uint16_t)command->sq->head;
    at->sq_id = command->sq->qid;
    PST_NVME_STORE_RELEASE((volatile uint32_t *)at + 3,
                           command->sqe.cid | ((uint32_t)command->status << 1 | phase) << 16);
    cq->posted++;
    __atomic_fetch_add(&part->ssd->stats->completed, 1, __ATOMIC_RELAXED);
    release(command);
}

static void complete(struct pst_emu_part *part, struct pst_emu_command *command)
{
    struct pst_emu_cq *cq = command->sq->cq;
    if (command->lost) {
        __atomic_fetch_add(&part->ssd->stats->lost, 1, __ATOMIC_RELAXED);
        release(command);
    } else if (cq->waiting == NULL && has_room(part, cq)) {
        write_cqe(part, command);
    } else {
        command->next = NULL;
        *(cq->waiting == NULL ? &cq->waiting : cq->waiting_end) = command;
        cq->waiting_end = &command->next;
    }
}

static bool post_waiting(struct pst_emu_part *part, struct pst_emu_cq *cq)
{
    bool any = false;
    while (cq->waiting != NULL && has_room(part, cq)) {
        struct pst_emu_command *command = cq->waiting;
        cq->waiting = command->next;
        write_cqe(part, command);
        any = true;
    }
    return any;
}

/* ---- a command's life ----------------------------------------------------------------------------- */

static void carry_out(struct pst_emu_part *part, struct pst_emu_command *command)
{
    if (command->sq->qid == 0)
        pst_emu_admin(part, command);
    else if (command->sqe.opcode == PST_NVME_READ || command->sqe.opcode == PST_NVME_WRITE)
        pst_emu_media_move(part, command);
    else
        command->status = command->sqe.opcode == PST_NVME_FLUSH ? PST_NVME_OK : PST_NVME_BAD_OPCODE;
    complete(part, command);
}

/* Whether another command in flight has the same id, which is not allowed (section 3.3.3.1). */
static bool in_use(const struct pst_emu_sq *sq, uint16_t cid)
{
    for (uint32_t i = 0; i < sq->depth; i++) {
        if (sq->commands[i].used && sq->commands[i].sqe.cid == cid)
            return true;
    }
    return false;
}

static void fetch_one(struct pst_emu_part *part, struct pst_emu_sq *sq, uint64_t now)
{
    struct pst_emu_command *command = sq->free_commands;
    sq->free_commands = command->next;
    const struct pst_nvme_sqe sqe = sq->base[sq->head];
    sq->head = sq->head + 1 == sq->depth ? 0 : sq->head + 1;
    const bool conflict = part->ssd->emu->config.check_ids && in_use(sq, sqe.cid);
    *command = (struct pst_emu_command){.sqe = sqe, .sq = sq, .used = true};
    __atomic_fetch_add(&part->ssd->stats->fetched, 1, __ATOMIC_RELAXED);
    if (conflict) {
        command->status = PST_NVME_ID_CONFLICT;
        complete(part, command);
        return;
    }
    if (sq->qid == 0) {
        carry_out(part, command);
        return;
    }
    command->due_ns = pst_emu_due(part, command, now);
    if (sqe.opcode == PST_NVME_READ || sqe.opcode == PST_NVME_WRITE)
        pst_emu_media_begin(part, command);
    if (command->due_ns > now || command->io_pending > 0)
        heap_push(part, command);
    else
        carry_out(part, command);
}

static bool fetch(struct pst_emu_part *part, struct pst_emu_sq *sq, uint64_t now)
{
    const uint32_t tail = PST_NVME_LOAD_ACQUIRE(sq->doorbell);
    if (tail != sq->seen) {
        sq->seen = tail;
        __atomic_fetch_add(&part->ssd->stats->sq_doorbells, 1, __ATOMIC_RELAXED);
    }
    if (tail >= sq->depth) {
        atomic_store(&part->ssd->fatal, true);
        return false;
    }
    int n = 0;
    while (sq->head != tail && n < FETCH_MAX && sq->free_commands != NULL &&
           part->buffered < PST_EMU_BUFFERED_MAX && !atomic_load(&part->ssd->fatal)) {
        fetch_one(part, sq, now);
        n++;
    }
    return n > 0;
}

static bool take_due(struct pst_emu_part *part, uint64_t now)
{
    bool any = false;
    while (part->nheap > 0 && part->heap[0].ns <= now) {
        struct pst_emu_command *command = heap_pop(part);
        if (command->io_pending > 0) { /* the file is slower than the modelled drive */
            command->due_ns = now + 1000;
            heap_push(part, command);
            break;
        }
        carry_out(part, command);
        any = true;
    }
    return any;
}

bool pst_emu_turn(struct pst_emu_part *part, uint64_t *next_ns)
{
    bool any = false;
    const uint64_t now = pst_clock_ns();
    if (atomic_load_explicit(&part->ssd->fatal, memory_order_relaxed))
        return false;
    for (uint32_t i = 0; i < part->nsqs; i++) {
        any = fetch(part, part->sqs[i], now) || any;
        any = (part->sqs[i]->cq->waiting != NULL && post_waiting(part, part->sqs[i]->cq)) || any;
    }
    if (part->io_in_flight > 0)
        pst_emu_media_reap(part, false);
    any = take_due(part, now) || any;
    if (part->nheap > 0 && part->heap[0].ns < *next_ns)
        *next_ns = part->heap[0].ns;
    return any;
}

/* ---- giving commands up --------------------------------------------------------------------------- */

static void drop_waiting(const struct pst_emu_sq *sq)
{
    struct pst_emu_cq *cq = sq->cq;
    struct pst_emu_command **at = &cq->waiting;
    while (*at != NULL) {
        struct pst_emu_command *command = *at;
        if (command->sq != sq) {
            at = &command->next;
            continue;
        }
        *at = command->next;
        release(command);
    }
    cq->waiting_end = at;
}

void pst_emu_drop(struct pst_emu_part *part, const struct pst_emu_sq *sq)
{
    if (part->io_in_flight > 0)
        pst_emu_media_reap(part, true);
    for (uint32_t i = 0; i < part->nsqs; i++) {
        if (sq == NULL || part->sqs[i] == sq)
            drop_waiting(part->sqs[i]);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < part->nheap; i++) {
        const struct pst_emu_due item = part->heap[i];
        if (sq != NULL && item.command->sq != sq) {
            heap_up(part, kept++, item);
            continue;
        }
        if (item.command->buffer != NULL) {
            part->buffered -= ((item.command->sqe.cdw12 & 0xffff) + 1ull) * part->ssd->emu->config.lba_bytes;
            free(item.command->buffer);
        }
        release(item.command);
    }
    part->nheap = kept;
}

bool pst_emu_abort(struct pst_emu_sq *sq, uint16_t cid)
{
    struct pst_emu_part *part = sq->part;
    for (uint32_t i = 0; i < part->nheap; i++) {
        struct pst_emu_command *command = part->heap[i].command;
        if (command->sq != sq || command->sqe.cid != cid || command->io_pending > 0)
            continue;
        heap_up(part, i, (struct pst_emu_due){0, command});
        (void)heap_pop(part);
        if (command->buffer != NULL) {
            part->buffered -= ((command->sqe.cdw12 & 0xffff) + 1ull) * part->ssd->emu->config.lba_bytes;
            free(command->buffer);
            command->buffer = NULL;
        }
        command->status = PST_NVME_ABORTED;
        command->lost = false;
        complete(part, command);
        return true;
    }
    return false;
}
