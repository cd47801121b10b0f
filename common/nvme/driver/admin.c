/* admin.c: admin commands, and what Identify reports; every value is checked before it is used. */
#include <ctype.h>
#include <nvme/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/nvme/driver/controller_impl.h"
#include "common/error.h"
#include "common/util/clock.h"

#define ADMIN_TIMEOUT_MS 30000
#define SPINS 2000           /* polls before the thread sleeps: an emulated controller answers within them */
#define RELAX_NS 50000L      /* sleep between later polls: a flash command takes about as long */
#define LBA_SHIFT_MIN 9      /* section 4.1.5.1 */
#define SHUTDOWN_MS_MIN 5000 /* if RTD3E is 0; drives on sale take up to 2 s */
#define IO_CONTROLLER 1      /* CNTRLTYPE; 0: a controller from before this field existed */

void pst_nvme_relax(uint32_t *waits)
{
    if (++*waits > SPINS)
        (void)nanosleep(&(struct timespec){.tv_nsec = RELAX_NS}, NULL);
}

const char *pst_nvme_status_text(uint16_t status, char text[64])
{
    static const struct {
        uint16_t status;
        const char *text;
    } known[] = {
        {PST_NVME_OK, "done"},
        {PST_NVME_BAD_OPCODE, "invalid opcode"},
        {PST_NVME_BAD_FIELD, "invalid field in command"},
        {PST_NVME_ID_CONFLICT, "command id conflict"},
        {PST_NVME_DATA_TRANSFER, "data transfer error"},
        {PST_NVME_INTERNAL, "internal error"},
        {PST_NVME_ABORTED, "aborted by request"},
        {PST_NVME_SQ_DELETED, "aborted: queue deleted"},
        {PST_NVME_BAD_NAMESPACE, "invalid namespace or format"},
        {PST_NVME_BAD_PRP_OFFSET, "invalid PRP offset"},
        {PST_NVME_NS_READ_ONLY, "namespace is write protected"},
        {PST_NVME_LBA_RANGE, "LBA out of range"},
        {PST_NVME_NOT_READY, "namespace not ready"},
        {PST_NVME_BAD_CQ, "invalid completion queue"},
        {PST_NVME_BAD_QUEUE_ID, "invalid queue id"},
        {PST_NVME_BAD_QUEUE_SIZE, "invalid queue size"},
        {PST_NVME_WRITE_FAULT, "write fault"},
        {PST_NVME_READ_ERROR, "unrecovered read error"},
    };
    const char *what = "status";
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        what = known[i].status == status ? known[i].text : what;
    (void)snprintf(text, 64, "%s (0x%02x)", what, status);
    return text;
}

static uint32_t timeout_ms(const struct pst_nvme_controller *c)
{
    return c->config.admin_timeout_ms != 0 ? c->config.admin_timeout_ms : ADMIN_TIMEOUT_MS;
}

/* Takes completions until the one for cid comes. Others belong to commands whose wait ended at its deadline.
 */
static pst_rc wait_for(struct pst_nvme_controller *c, struct pst_nvme_qp *qp, uint16_t cid,
                       struct pst_nvme_cqe *cqe)
{
    const int64_t deadline = pst_clock_ms() + timeout_ms(c);
    for (uint32_t waits = 0; pst_clock_ms() < deadline;) {
        if (!pst_nvme_poll(qp, qp->taken, cqe)) {
            if (waits > SPINS && pst_nvme_gone(c))
                return pst_fail(PST_E_IO, "%s: the controller has disappeared", c->t->what);
            pst_nvme_relax(&waits);
            continue;
        }
        if (!pst_nvme_take(qp, qp->taken, cqe->cid))
            return pst_fail(PST_E_IO,
                            "%s: queue %u reported that command %u is complete, but no such command is in "
                            "flight: the drive may be faulty",
                            c->t->what, qp->qid, cqe->cid);
        pst_nvme_ring_cq(qp, 1);
        if (cqe->cid == cid)
            return PST_OK;
    }
    return pst_fail(PST_E_TIMEOUT, "%s: the controller did not answer a command in queue %u within %u ms%s",
                    c->t->what, qp->qid, timeout_ms(c),
                    pst_nvme_failed(c) ? "; the controller reports a fatal error (CSTS.CFS)" : "");
}

pst_rc pst_nvme_command(struct pst_nvme_controller *c, struct pst_nvme_qp *qp, struct pst_nvme_sqe *sqe,
                        struct pst_nvme_cqe *cqe)
{
    if (pst_nvme_room(qp) == 0)
        return pst_fail(
            PST_E_IO,
            "%s: queue %u is full of commands that the controller has not answered: the drive may be faulty",
            c->t->what, qp->qid);
    pst_nvme_post(qp, qp->posted++, sqe);
    pst_nvme_ring_sq(qp);
    return wait_for(c, qp, sqe->cid, cqe);
}

static const char *opcode_name(uint8_t opcode)
{
    switch (opcode) {
    case PST_NVME_DELETE_SQ: return "Delete I/O Submission Queue";
    case PST_NVME_CREATE_SQ: return "Create I/O Submission Queue";
    case PST_NVME_DELETE_CQ: return "Delete I/O Completion Queue";
    case PST_NVME_CREATE_CQ: return "Create I/O Completion Queue";
    case PST_NVME_IDENTIFY: return "Identify";
    case PST_NVME_ABORT: return "Abort";
    case PST_NVME_SET_FEATURES: return "Set Features";
    default: return "admin command";
    }
}

pst_rc pst_nvme_admin(struct pst_nvme_controller *c, struct pst_nvme_sqe *sqe, void *data,
                      uint32_t data_bytes, bool write, uint32_t *result)
{
    struct pst_nvme_dma *page = &pst_nvme_impl(c)->page;
    struct pst_nvme_cqe cqe;
    char text[64];
    assert(data_bytes <= PST_PAGE && (data != NULL || data_bytes == 0));
    if (data != NULL) {
        memset(page->base, 0, PST_PAGE);
        sqe->prp1 = page->iova;
        if (write)
            memcpy(page->base, data, data_bytes);
    }
    pst_rc rc = pst_nvme_command(c, c->admin, sqe, &cqe);
    if (rc != PST_OK)
        return pst_wrap(rc, "%s", opcode_name(sqe->opcode));
    const uint16_t status = PST_NVME_STATUS(cqe.status);
    if (status != PST_NVME_OK)
        return pst_fail(PST_E_IO, "%s: %s (opcode 0x%02x): %s", c->t->what, opcode_name(sqe->opcode),
                        sqe->opcode, pst_nvme_status_text(status, text));
    if (data != NULL && !write)
        memcpy(data, page->base, data_bytes);
    if (result != NULL)
        *result = cqe.dw0;
    return PST_OK;
}

/* ---- what it says of itself ------------------------------------------------------------------------------
 */

static pst_rc identify(struct pst_nvme_controller *c, uint32_t nsid, uint32_t cns, void *out)
{
    struct pst_nvme_sqe sqe = {.opcode = PST_NVME_IDENTIFY, .nsid = nsid, .cdw10 = cns};
    return pst_nvme_admin(c, &sqe, out, PST_PAGE, false, NULL);
}

/* Copies ASCII text (section 1.4.2). Other bytes become question marks, because the text goes to terminals
 * and reports. */
static void copy_text(char *out, const char *in, size_t bytes)
{
    size_t end = 0;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char at = (unsigned char)in[i];
        out[i] = at < 0x80 && isprint(at) ? (char)at : at == 0 ? ' ' : '?';
        end = out[i] == ' ' ? end : i + 1;
    }
    out[end] = '\0';
}

/* MDTS is a power of two of the smallest page. If it is 0 or exceeds our own bound, our bound holds. */
static uint64_t transfer_bytes(const struct pst_nvme_controller *c, uint8_t mdts)
{
    const uint64_t most = c->config.transfer_bytes_max != 0 ? c->config.transfer_bytes_max : 2 << 20;
    const uint64_t whole = most < c->page ? c->page : most - most % c->page;
    const uint64_t least = PST_NVME_CAP_PAGE_MIN(c->cap);
    return mdts == 0 || mdts >= 32 || least << mdts > whole ? whole : least << mdts;
}

pst_rc pst_nvme_identify(struct pst_nvme_controller *c)
{
    static_assert(sizeof(struct nvme_id_ctrl) == PST_PAGE, "section 4.1.5.2");
    struct nvme_id_ctrl *id = calloc(1, sizeof *id);
    if (id == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a buffer for Identify");
    pst_rc rc = identify(c, 0, PST_NVME_CNS_CONTROLLER, id);
    if (rc == PST_OK && id->cntrltype > IO_CONTROLLER)
        rc = pst_fail(PST_E_UNSUPPORTED, "%s is a controller of type %u; expected type 1, an I/O controller",
                      c->t->what, id->cntrltype);
    if (rc == PST_OK &&
        ((id->sqes & 0xf) > 6 || id->sqes >> 4 < 6 || (id->cqes & 0xf) > 4 || id->cqes >> 4 < 4))
        rc = pst_fail(PST_E_UNSUPPORTED,
                      "%s supports submission entries of 2^%u to 2^%u bytes and completion entries of 2^%u "
                      "to 2^%u bytes; expected ranges that include 2^6 and 2^4",
                      c->t->what, id->sqes & 0xf, id->sqes >> 4, id->cqes & 0xf, id->cqes >> 4);
    if (rc == PST_OK) {
        copy_text(c->serial, id->sn, sizeof id->sn);
        copy_text(c->model, id->mn, sizeof id->mn);
        copy_text(c->firmware, id->fr, sizeof id->fr);
        c->namespaces = id->nn;
        c->volatile_cache = (id->vwc & 1) != 0;
        c->transfer_bytes = transfer_bytes(c, id->mdts);
        const uint32_t ms = id->rtd3e / 1000;
        pst_nvme_impl(c)->shutdown_ms = ms > SHUTDOWN_MS_MIN ? ms : SHUTDOWN_MS_MIN;
    }
    free(id);
    return rc;
}

static pst_rc read_namespace(const struct pst_nvme_controller *c, uint32_t nsid, const struct nvme_id_ns *id,
                             struct pst_nvme_namespace *ns)
{
    const uint32_t format = (id->flbas & 0xfu) | (id->nlbaf > 15 ? (id->flbas >> 5 & 3u) << 4 : 0);
    const uint32_t formats = sizeof id->lbaf / sizeof id->lbaf[0];
    const char *what = c->t->what;
    if (id->nsze == 0)
        return pst_fail(PST_E_ARG,
                        "%s: namespace %u is not active: expected an active one (`nvme list-ns` lists them)",
                        what, nsid);
    if (format > id->nlbaf || format >= formats)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s: namespace %u uses LBA format %u, but the controller lists only %u formats: the "
                        "drive may be faulty",
                        what, nsid, format, id->nlbaf + 1u);
    const uint32_t shift = id->lbaf[format].ds, metadata = id->lbaf[format].ms;
    if (metadata != 0)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s: namespace %u has %u bytes of metadata in each block; expected 0 (`nvme format` "
                        "sets another LBA format and erases the namespace)",
                        what, nsid, metadata);
    if (shift < LBA_SHIFT_MIN || shift >= 32 || 1ull << shift > c->transfer_bytes)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s: namespace %u has blocks of 2^%u bytes; expected at least 2^%d bytes, and at "
                        "most the %llu bytes of one command",
                        what, nsid, shift, LBA_SHIFT_MIN, (unsigned long long)c->transfer_bytes);
    if (id->nsze > (uint64_t)INT64_MAX >> shift)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s: namespace %u reports %llu blocks of 2^%u bytes; expected less than 2^63 bytes",
                        what, nsid, (unsigned long long)id->nsze, shift);
    *ns = (struct pst_nvme_namespace){
        .nsid = nsid, .lba_bytes = 1u << shift, .blocks = id->nsze, .read_only = (id->nsattr & 1) != 0};
    return PST_OK;
}

pst_rc pst_nvme_namespace(struct pst_nvme_controller *c, uint32_t nsid, struct pst_nvme_namespace *ns)
{
    static_assert(sizeof(struct nvme_id_ns) == PST_PAGE, "section 4.1.5.1");
    if (nsid < 1 || nsid > c->namespaces)
        return pst_fail(PST_E_ARG, "%s has no namespace %u; expected 1 to %u", c->t->what, nsid,
                        c->namespaces);
    struct nvme_id_ns *id = calloc(1, sizeof *id);
    if (id == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a buffer for Identify");
    pst_rc rc = identify(c, nsid, PST_NVME_CNS_NAMESPACE, id);
    if (rc == PST_OK)
        rc = read_namespace(c, nsid, id, ns);
    free(id);
    return rc;
}

/* ---- queues, abort, flush ---------------------------------------------------------------------------------
 */

pst_rc pst_nvme_ask_queues(struct pst_nvme_controller *c, uint32_t n, uint32_t *granted)
{
    uint32_t answer = 0;
    struct pst_nvme_sqe sqe = {
        .opcode = PST_NVME_SET_FEATURES, .cdw10 = PST_NVME_FEATURE_QUEUES, .cdw11 = (n - 1) | (n - 1) << 16};
    pst_rc rc = pst_nvme_admin(c, &sqe, NULL, 0, false, &answer);
    const uint32_t sqs = (answer & 0xffff) + 1, cqs = (answer >> 16) + 1;
    const uint32_t both = sqs < cqs ? sqs : cqs;
    *granted = both < n ? both : n;
    return rc;
}

pst_rc pst_nvme_abort(struct pst_nvme_controller *c, uint16_t qid, uint16_t cid, bool *aborted)
{
    uint32_t answer = 0;
    struct pst_nvme_sqe sqe = {.opcode = PST_NVME_ABORT, .cdw10 = (uint32_t)cid << 16 | qid};
    pst_rc rc = pst_nvme_admin(c, &sqe, NULL, 0, false, &answer);
    *aborted = rc == PST_OK && (answer & 1) == 0;
    return rc;
}

/* A flush goes to an I/O queue, and those belong to their users. So it uses a separate pair. If the
 * controller grants no further pair, it uses the last one, which must then be idle. */
pst_rc pst_nvme_flush(struct pst_nvme_controller *c, uint32_t nsid)
{
    struct pst_nvme_qp *qp = NULL;
    struct pst_nvme_cqe cqe;
    char text[64];
    const uint16_t last = pst_nvme_impl(c)->qids;
    if (!c->volatile_cache)
        return PST_OK;
    const bool own = c->io[last] == NULL;
    pst_rc rc = own ? pst_nvme_queue_new(c, last, PST_NVME_DEPTH_MIN, &qp) : PST_OK;
    if (rc != PST_OK)
        return rc;
    qp = c->io[last];
    if (qp->posted != qp->taken)
        return pst_fail(PST_E_STATE,
                        "%s: a flush needs a free queue pair, but all queue pairs of the controller are in "
                        "use: use fewer lanes",
                        c->t->what);
    struct pst_nvme_sqe sqe = {.opcode = PST_NVME_FLUSH, .nsid = nsid};
    rc = pst_nvme_command(c, qp, &sqe, &cqe);
    if (rc == PST_OK && PST_NVME_STATUS(cqe.status) != PST_NVME_OK)
        rc = pst_fail(PST_E_IO, "%s: cannot flush namespace %u: %s", c->t->what, nsid,
                      pst_nvme_status_text(PST_NVME_STATUS(cqe.status), text));
    const pst_rc deleted = own ? pst_nvme_queue_delete(c, last) : PST_OK;
    return rc != PST_OK ? rc : deleted;
}
