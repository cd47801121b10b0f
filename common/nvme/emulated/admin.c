/* admin.c: registers and admin commands of an emulated controller. The structures of Identify are libnvme's.
 */
#include <nvme/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nvme/emulated/emulated_impl.h"

#define VERSION 0x00010400u /* 1.4: has all that we need, and requires nothing that we do not support */
#define READY_TO 20u        /* CAP.TO: 10 s */
#define ABORT_LIMIT 3u      /* ACL, counted from 0 */

static volatile uint32_t *reg(struct pst_emu_ssd *ssd, uint32_t at)
{
    return (volatile uint32_t *)(void *)(ssd->shared + at);
}

static uint64_t reg64(struct pst_emu_ssd *ssd, uint32_t at)
{
    return *reg(ssd, at) | (uint64_t)*reg(ssd, at + 4) << 32;
}

static volatile uint32_t *doorbell(struct pst_emu_ssd *ssd, uint32_t qid, bool completion)
{
    const uint32_t stride = 4u << ssd->emu->config.dstrd;
    return reg(ssd, PST_NVME_DOORBELLS + (2 * qid + completion) * stride);
}

void pst_emu_registers_init(struct pst_emu_ssd *ssd)
{
    const struct pst_emu_config *c = &ssd->emu->config;
    memset(ssd->shared, 0, PST_NVME_DOORBELLS);
    *reg(ssd, PST_NVME_CAP) = (c->entries_max - 1) | 1u << 16 | READY_TO << 24; /* contiguous queues */
    *reg(ssd, PST_NVME_CAP + 4) = c->dstrd | 1u << 5;                           /* NVM command set; 4 KiB */
    *reg(ssd, PST_NVME_VS) = VERSION;
    ssd->cc = 0;
    atomic_store(&ssd->fatal, false);
}

/* ---- queues --------------------------------------------------------------------------------------- */

static uint16_t new_cq(struct pst_emu_ssd *ssd, uint16_t qid, uint32_t depth, uint64_t iova)
{
    struct pst_nvme_cqe *base =
        pst_emu_translate_queue(ssd, iova, (uint64_t)depth * sizeof(struct pst_nvme_cqe));
    struct pst_emu_cq *cq = calloc(1, sizeof *cq);
    if (base == NULL || cq == NULL) {
        free(cq);
        return base == NULL ? PST_NVME_DATA_TRANSFER : PST_NVME_INTERNAL;
    }
    *cq = (struct pst_emu_cq){.base = base, .depth = depth, .qid = qid, .doorbell = doorbell(ssd, qid, true)};
    *cq->doorbell = 0;
    ssd->cqs[qid] = cq;
    return PST_NVME_OK;
}

/* The part of a completion queue. Submission queues belong to the part of their completion queue. */
static struct pst_emu_part *part_of(struct pst_emu_ssd *ssd, uint16_t cqid)
{
    if (cqid == 0)
        return pst_emu_admin_part(ssd);
    return &ssd->parts[(cqid - 1u + ssd->number) % ssd->emu->config.workers];
}

static uint16_t new_sq(struct pst_emu_ssd *ssd, uint16_t qid, uint32_t depth, uint64_t iova, uint16_t cqid)
{
    struct pst_nvme_sqe *base =
        pst_emu_translate_queue(ssd, iova, (uint64_t)depth * sizeof(struct pst_nvme_sqe));
    if (base == NULL)
        return PST_NVME_DATA_TRANSFER;
    struct pst_emu_part *part = part_of(ssd, cqid);
    struct pst_emu_due *heap = realloc(part->heap, (part->heap_room + depth) * sizeof *heap);
    part->heap = heap != NULL ? heap : part->heap;
    struct pst_emu_sq *sq = calloc(1, sizeof *sq);
    struct pst_emu_command *commands = calloc(depth, sizeof *commands);
    if (heap == NULL || sq == NULL || commands == NULL) {
        free(sq);
        free(commands);
        return PST_NVME_INTERNAL;
    }
    part->heap_room += depth;
    *sq = (struct pst_emu_sq){.base = base,
                              .depth = depth,
                              .qid = qid,
                              .doorbell = doorbell(ssd, qid, false),
                              .cq = ssd->cqs[cqid],
                              .part = part,
                              .commands = commands};
    *sq->doorbell = 0;
    for (uint32_t i = 0; i < depth; i++) {
        commands[i].next = sq->free_commands;
        sq->free_commands = &commands[i];
    }
    sq->cq->users++;
    ssd->sqs[qid] = sq;
    part->sqs[part->nsqs++] = sq;
    return PST_NVME_OK;
}

static void delete_sq(struct pst_emu_ssd *ssd, uint16_t qid)
{
    struct pst_emu_sq *sq = ssd->sqs[qid];
    struct pst_emu_part *part = sq->part;
    pst_emu_drop(part, sq);
    for (uint32_t i = 0; i < part->nsqs; i++) {
        if (part->sqs[i] == sq)
            part->sqs[i] = part->sqs[--part->nsqs];
    }
    part->heap_room -= sq->depth;
    sq->cq->users--;
    free(sq->commands);
    free(sq);
    ssd->sqs[qid] = NULL;
}

void pst_emu_disable(struct pst_emu_ssd *ssd)
{
    for (uint16_t i = 0; i <= PST_EMU_QUEUES_MAX; i++) {
        if (ssd->sqs[i] != NULL)
            delete_sq(ssd, i);
    }
    for (uint16_t i = 0; i <= PST_EMU_QUEUES_MAX; i++) {
        free(ssd->cqs[i]);
        ssd->cqs[i] = NULL;
    }
    if (ssd->enabled)
        atomic_fetch_sub(&ssd->emu->enabled, 1);
    ssd->enabled = false;
    atomic_store(&ssd->busy_until, 0);
}

/* ---- admin commands ------------------------------------------------------------------------------- */

static bool put(void *context, uint8_t *memory, uint64_t at, uint64_t bytes)
{
    pst_emu_copy(memory, (const uint8_t *)context + at, bytes);
    return true;
}

/* Copies text in the form of Identify: padded with spaces, without a NUL. */
static void text(char *to, size_t bytes, const char *from)
{
    memset(to, ' ', bytes);
    for (size_t i = 0; i < bytes && from[i] != '\0'; i++)
        to[i] = from[i];
}

static void identify_controller(const struct pst_emu_ssd *ssd, struct nvme_id_ctrl *id)
{
    const struct pst_emu_config *c = &ssd->emu->config;
    char serial[21];
    (void)snprintf(serial, sizeof serial, "PENSTOCK%u", ssd->number);
    text(id->sn, sizeof id->sn, serial);
    text(id->mn, sizeof id->mn, "Penstock emulated SSD");
    text(id->fr, sizeof id->fr, "1");
    for (uint64_t pages = c->transfer_bytes / PST_PAGE; pages > 1; pages /= 2)
        id->mdts++;
    id->cntlid = (uint16_t)ssd->number;
    id->ver = VERSION;
    id->acl = ABORT_LIMIT;
    id->cntrltype = 1;
    id->sqes = 0x66;
    id->cqes = 0x44;
    id->nn = c->nnamespaces;
}

static void identify_namespace(const struct pst_emu_ssd *ssd, uint32_t nsid, struct nvme_id_ns *id)
{
    const struct pst_emu_config *c = &ssd->emu->config;
    const struct pst_emu_namespace_config *ns = &c->namespaces[nsid - 1];
    id->nsze = id->ncap = id->nuse = ns->bytes / c->lba_bytes;
    id->lbaf[0].ds = c->lba_bytes == 512 ? 9 : 12;
    id->nsattr = ns->kind != PST_EMU_RAM && !ns->writable; /* bit 0: write-protected */
}

static uint16_t identify(struct pst_emu_part *part, struct pst_emu_command *command)
{
    struct pst_emu_ssd *ssd = part->ssd;
    union {
        struct nvme_id_ctrl controller;
        struct nvme_id_ns ns;
        uint32_t list[1024];
    } page;
    memset(&page, 0, sizeof page);
    const uint32_t cns = command->sqe.cdw10 & 0xff, nsid = command->sqe.nsid;
    const uint32_t n = ssd->emu->config.nnamespaces;
    if (cns == PST_NVME_CNS_CONTROLLER) {
        identify_controller(ssd, &page.controller);
    } else if (cns == PST_NVME_CNS_NAMESPACE && nsid >= 1 && nsid <= n) {
        identify_namespace(ssd, nsid, &page.ns);
    } else if (cns == PST_NVME_CNS_NAMESPACES) {
        for (uint32_t id = nsid + 1, i = 0; id <= n; id++, i++)
            page.list[i] = id;
    } else {
        return cns == PST_NVME_CNS_NAMESPACE ? PST_NVME_BAD_NAMESPACE : PST_NVME_BAD_FIELD;
    }
    command->status = PST_NVME_OK;
    (void)pst_emu_walk(part, command, sizeof page, put, &page);
    return command->status;
}

static uint16_t create(struct pst_emu_ssd *ssd, const struct pst_nvme_sqe *sqe, bool completion)
{
    const uint32_t qid = sqe->cdw10 & 0xffff, depth = (sqe->cdw10 >> 16) + 1;
    const struct pst_emu_config *c = &ssd->emu->config;
    if (qid < 1 || qid > c->queues || (completion ? ssd->cqs[qid] != NULL : ssd->sqs[qid] != NULL))
        return PST_NVME_BAD_QUEUE_ID;
    if (depth < 2 || depth > c->entries_max)
        return PST_NVME_BAD_QUEUE_SIZE;
    if ((sqe->cdw11 & 1) == 0 || sqe->prp1 % PST_PAGE != 0)
        return PST_NVME_BAD_FIELD; /* CAP.CQR: only contiguous queues */
    if (completion)
        return new_cq(ssd, (uint16_t)qid, depth, sqe->prp1);
    const uint32_t cqid = sqe->cdw11 >> 16;
    if (cqid < 1 || cqid > c->queues || ssd->cqs[cqid] == NULL)
        return PST_NVME_BAD_CQ;
    return new_sq(ssd, (uint16_t)qid, depth, sqe->prp1, (uint16_t)cqid);
}

static uint16_t delete_queue(struct pst_emu_ssd *ssd, const struct pst_nvme_sqe *sqe, bool completion)
{
    const uint32_t qid = sqe->cdw10 & 0xffff;
    if (qid < 1 || qid > ssd->emu->config.queues ||
        (completion ? ssd->cqs[qid] == NULL : ssd->sqs[qid] == NULL))
        return PST_NVME_BAD_QUEUE_ID;
    if (completion && ssd->cqs[qid]->users > 0)
        return PST_NVME_BAD_QUEUE_DELETION;
    if (!completion) {
        delete_sq(ssd, (uint16_t)qid);
        return PST_NVME_OK;
    }
    free(ssd->cqs[qid]);
    ssd->cqs[qid] = NULL;
    return PST_NVME_OK;
}

static uint16_t abort_command(struct pst_emu_ssd *ssd, const struct pst_nvme_sqe *sqe, uint32_t *dw0)
{
    const uint32_t qid = sqe->cdw10 & 0xffff;
    if (qid > PST_EMU_QUEUES_MAX || ssd->sqs[qid] == NULL)
        return PST_NVME_BAD_FIELD;
    *dw0 = !pst_emu_abort(ssd->sqs[qid], (uint16_t)(sqe->cdw10 >> 16));
    return PST_NVME_OK;
}

static uint16_t set_features(struct pst_emu_ssd *ssd, const struct pst_nvme_sqe *sqe, uint32_t *dw0)
{
    if ((sqe->cdw10 & 0xff) != PST_NVME_FEATURE_QUEUES)
        return PST_NVME_BAD_FIELD;
    const uint32_t most = ssd->emu->config.queues - 1, sq = sqe->cdw11 & 0xffff, cq = sqe->cdw11 >> 16;
    *dw0 = (sq < most ? sq : most) | (cq < most ? cq : most) << 16;
    return PST_NVME_OK;
}

/* The caller holds the whole SSD. */
void pst_emu_admin(struct pst_emu_part *part, struct pst_emu_command *command)
{
    struct pst_emu_ssd *ssd = part->ssd;
    const struct pst_nvme_sqe *sqe = &command->sqe;
    uint16_t status = PST_NVME_BAD_OPCODE;
    switch (sqe->opcode) {
    case PST_NVME_IDENTIFY: status = identify(part, command); break;
    case PST_NVME_CREATE_CQ: status = create(ssd, sqe, true); break;
    case PST_NVME_CREATE_SQ: status = create(ssd, sqe, false); break;
    case PST_NVME_DELETE_CQ: status = delete_queue(ssd, sqe, true); break;
    case PST_NVME_DELETE_SQ: status = delete_queue(ssd, sqe, false); break;
    case PST_NVME_ABORT: status = abort_command(ssd, sqe, &command->dw0); break;
    case PST_NVME_SET_FEATURES: status = set_features(ssd, sqe, &command->dw0); break;
    default: break;
    }
    command->status = status;
}

/* ---- registers ------------------------------------------------------------------------------------ */

static void enable(struct pst_emu_ssd *ssd, uint32_t cc)
{
    const uint32_t aqa = *reg(ssd, PST_NVME_AQA);
    const uint32_t sq = (aqa & 0xfff) + 1, cq = (aqa >> 16 & 0xfff) + 1;
    bool good =
        (cc >> 7 & 0xf) == 0 && (cc >> 4 & 7) == 0 && (cc >> 16 & 0xff) == 0x46; /* 4 KiB; NVM; sizes */
    good = good && !pst_emu_dead(ssd) && sq >= 2 && cq >= 2 &&
           new_cq(ssd, 0, cq, reg64(ssd, PST_NVME_ACQ)) == PST_NVME_OK &&
           new_sq(ssd, 0, sq, reg64(ssd, PST_NVME_ASQ), 0) == PST_NVME_OK;
    if (!good) {
        pst_emu_disable(ssd);
        atomic_store(&ssd->fatal, true);
        return;
    }
    ssd->enabled = true;
    atomic_fetch_add(&ssd->emu->enabled, 1);
    PST_NVME_STORE_RELEASE(reg(ssd, PST_NVME_CSTS), PST_NVME_CSTS_RDY);
}

static void on_cc(struct pst_emu_ssd *ssd, uint32_t cc)
{
    const uint32_t was = ssd->cc;
    ssd->cc = cc;
    if ((cc & PST_NVME_CC_EN) == 0) {
        if ((was & PST_NVME_CC_EN) != 0) {
            pst_emu_disable(ssd);
            __atomic_fetch_add(&ssd->stats->resets, 1, __ATOMIC_RELAXED);
        }
        atomic_store(&ssd->fatal, false);
        PST_NVME_STORE_RELEASE(reg(ssd, PST_NVME_CSTS), 0);
    } else if ((was & PST_NVME_CC_EN) == 0) {
        enable(ssd, cc);
    } else if ((cc & PST_NVME_CC_SHN_MASK) != 0 && (was & PST_NVME_CC_SHN_MASK) == 0) {
        PST_NVME_STORE_RELEASE(reg(ssd, PST_NVME_CSTS), *reg(ssd, PST_NVME_CSTS) | PST_NVME_CSTS_SHST_DONE);
    }
}

void pst_emu_registers(struct pst_emu_ssd *ssd)
{
    const uint32_t cc = PST_NVME_LOAD_ACQUIRE(reg(ssd, PST_NVME_CC));
    const struct pst_emu_sq *admin = ssd->sqs[0];
    const bool work = admin != NULL && PST_NVME_LOAD_ACQUIRE(admin->doorbell) != admin->head;
    if (cc != ssd->cc || work) {
        uint64_t next = 0;
        pst_emu_hold(ssd);
        if (cc != ssd->cc)
            on_cc(ssd, cc);
        else
            (void)pst_emu_turn(pst_emu_admin_part(ssd), &next);
        pst_emu_let_go(ssd);
    }
    if (atomic_load(&ssd->fatal) && (*reg(ssd, PST_NVME_CSTS) & PST_NVME_CSTS_CFS) == 0)
        PST_NVME_STORE_RELEASE(reg(ssd, PST_NVME_CSTS), *reg(ssd, PST_NVME_CSTS) | PST_NVME_CSTS_CFS);
}
