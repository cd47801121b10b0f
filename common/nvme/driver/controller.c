/* controller.c: the states of an NVMe controller: off, enabled with its queues, reset, shut down
 * (section 3.5). */
#include "common/nvme/driver/controller.h"

#include <stdlib.h>
#include <string.h>

#include "common/nvme/driver/controller_impl.h"
#include "common/error.h"
#include "common/util/clock.h"

#define READY_MS_MIN 500 /* CAP.TO is 0 if the time is shorter than its unit */
#define GONE 0xffffffffu /* the value of any register of a removed function */
#define PAGE_SHIFT 12    /* PST_PAGE */

static uint32_t get32(const struct pst_nvme_controller *c, size_t at)
{
    const volatile uint32_t *reg = (const volatile void *)((const volatile char *)c->t->regs + at);
    return __atomic_load_n(reg, __ATOMIC_ACQUIRE);
}

static void set32(const struct pst_nvme_controller *c, size_t at, uint32_t value)
{
    volatile uint32_t *reg = (volatile void *)((volatile char *)c->t->regs + at);
    __atomic_store_n(reg, value, __ATOMIC_RELEASE);
}

/* Reads two halves, the lower first: some controllers do not support 8-byte accesses (section 3.1.3). */
static uint64_t get64(const struct pst_nvme_controller *c, size_t at)
{
    const uint64_t low = get32(c, at);
    return low | (uint64_t)get32(c, at + 4) << 32;
}

static void set64(const struct pst_nvme_controller *c, size_t at, uint64_t value)
{
    set32(c, at, (uint32_t)value);
    set32(c, at + 4, (uint32_t)(value >> 32));
}

bool pst_nvme_gone(const struct pst_nvme_controller *c)
{
    return get32(c, PST_NVME_CSTS) == GONE || (c->t->ops->gone != NULL && c->t->ops->gone(c->t));
}

bool pst_nvme_failed(const struct pst_nvme_controller *c)
{
    return pst_nvme_gone(c) || (get32(c, PST_NVME_CSTS) & PST_NVME_CSTS_CFS) != 0;
}

static pst_rc wait_for_status(const struct pst_nvme_controller *c, uint32_t mask, uint32_t want, uint32_t ms,
                              const char *what)
{
    const int64_t deadline = pst_clock_ms() + ms;
    uint32_t waits = 0, csts;
    do {
        csts = get32(c, PST_NVME_CSTS);
        if (pst_nvme_gone(c))
            return pst_fail(PST_E_IO, "%s: the controller has disappeared%s", c->t->what,
                            csts == GONE ? " (its registers read as all ones)" : "");
        if ((csts & mask) == want)
            return PST_OK;
        /* a failed controller never becomes ready, but it can be disabled */
        if ((csts & PST_NVME_CSTS_CFS) != 0 && (want & PST_NVME_CSTS_RDY) != 0)
            return pst_fail(PST_E_IO, "%s reported a fatal error (CSTS.CFS) while it %s", c->t->what, what);
        pst_nvme_relax(&waits);
    } while (pst_clock_ms() < deadline);
    return pst_fail(PST_E_TIMEOUT, "%s %s for longer than the %u ms that its registers allow (CSTS 0x%x)",
                    c->t->what, what, ms, csts);
}

/* ---- off and on ------------------------------------------------------------------------------------------
 */

static pst_rc disable(struct pst_nvme_controller *c)
{
    const uint32_t cc = get32(c, PST_NVME_CC);
    if (cc != GONE && (cc & PST_NVME_CC_EN) != 0) {
        /* the controller may still be enabling; disabling it before that ends is undefined (section 3.1.3.5)
         */
        (void)!wait_for_status(c, PST_NVME_CSTS_RDY, PST_NVME_CSTS_RDY, c->ready_ms, "was getting ready");
        set32(c, PST_NVME_CC, cc & ~(PST_NVME_CC_EN | PST_NVME_CC_SHN_MASK));
    }
    pst_nvme_impl(c)->enabled = false;
    return wait_for_status(c, PST_NVME_CSTS_RDY, 0, c->ready_ms, "was being disabled");
}

static pst_rc enable(struct pst_nvme_controller *c)
{
    const uint32_t entries = c->admin->depth - 1;
    set32(c, PST_NVME_INTMS, 0xffffffffu); /* we poll for completions */
    set32(c, PST_NVME_AQA, entries | entries << 16);
    set64(c, PST_NVME_ASQ, pst_nvme_sq_iova(c->admin));
    set64(c, PST_NVME_ACQ, pst_nvme_cq_iova(c->admin));
    set32(c, PST_NVME_CC, PST_NVME_CC_EN | PST_NVME_CC_MPS(PAGE_SHIFT) | PST_NVME_CC_ENTRIES);
    pst_nvme_impl(c)->enabled = true;
    return wait_for_status(c, PST_NVME_CSTS_RDY, PST_NVME_CSTS_RDY, c->ready_ms, "was getting ready");
}

uint64_t pst_nvme_registers_touch(const struct pst_nvme_controller *c, uint32_t queues)
{
    const uint64_t end = PST_NVME_DOORBELLS + 2 * ((uint64_t)queues + 1) * c->doorbell_stride,
                   most = c->t->regs_bytes / PST_PAGE * PST_PAGE, wanted = pst_align_up(end, PST_PAGE),
                   bytes = wanted < most ? wanted : most;
    for (uint64_t at = 0; at < bytes; at += PST_PAGE)
        (void)get32(c, at == 0 ? PST_NVME_VS : at);
    return bytes;
}

/* How many queue ids have doorbells within BAR 0. */
static uint32_t qids_with_doorbells(const struct pst_nvme_controller *c)
{
    if (c->t->regs_bytes < PST_NVME_DOORBELLS + sizeof(uint32_t))
        return 0;
    const size_t last = (c->t->regs_bytes - PST_NVME_DOORBELLS - sizeof(uint32_t)) / c->doorbell_stride;
    return last < 1 ? 0 : (uint32_t)((last - 1) / 2);
}

static pst_rc read_capabilities(struct pst_nvme_controller *c)
{
    const char *what = c->t->what;
    c->cap = get64(c, PST_NVME_CAP);
    c->version = get32(c, PST_NVME_VS);
    if (c->version == GONE)
        return pst_fail(PST_E_IO, "%s: the controller has disappeared (its registers read as all ones)",
                        what);
    c->entries_max = PST_NVME_CAP_MQES(c->cap);
    c->doorbell_stride = PST_NVME_CAP_STRIDE(c->cap);
    c->page = PST_PAGE;
    c->ready_ms = PST_NVME_CAP_TO_MS(c->cap) > READY_MS_MIN ? PST_NVME_CAP_TO_MS(c->cap) : READY_MS_MIN;
    c->transfer_bytes = PST_PAGE; /* until Identify reports more */
    if (!PST_NVME_CAP_NVM(c->cap))
        return pst_fail(PST_E_UNSUPPORTED, "%s does not support the NVM command set (CAP.CSS)", what);
    if (c->entries_max < PST_NVME_DEPTH_MIN)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s supports queues of at most %u entries (CAP.MQES), but Penstock needs at least %d",
                        what, c->entries_max, PST_NVME_DEPTH_MIN);
    if (PST_NVME_CAP_PAGE_MIN(c->cap) > PST_PAGE)
        return pst_fail(
            PST_E_UNSUPPORTED,
            "%s needs pages of at least %llu bytes (CAP.MPSMIN), but Penstock uses pages of %d bytes", what,
            PST_NVME_CAP_PAGE_MIN(c->cap), PST_PAGE);
    if (qids_with_doorbells(c) == 0)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s: BAR 0 has %zu bytes, which is too small for the queues' doorbell registers at a "
                        "stride of %u bytes",
                        what, c->t->regs_bytes, c->doorbell_stride);
    return PST_OK;
}

static uint32_t power_of_two_below(uint32_t value)
{
    uint32_t power = 1;
    while (power <= value / 2)
        power *= 2;
    return power;
}

static uint32_t depth_of(const struct pst_nvme_controller *c)
{
    uint32_t depth = c->config.depth < c->entries_max ? c->config.depth : c->entries_max;
    return power_of_two_below(depth < PST_NVME_DEPTH_MAX ? depth : PST_NVME_DEPTH_MAX);
}

/* Asks for one pair more than wanted, so that a flush has its own. */
static pst_rc negotiate_queues(struct pst_nvme_controller *c)
{
    const uint32_t bells = qids_with_doorbells(c);
    const uint32_t most = bells < PST_NVME_QUEUES_MAX ? bells : PST_NVME_QUEUES_MAX;
    const uint32_t wanted = c->config.queues + 1 < most ? c->config.queues + 1 : most;
    uint32_t granted = 0;
    pst_rc rc = pst_nvme_ask_queues(c, wanted, &granted);
    pst_nvme_impl(c)->qids = (uint16_t)granted;
    c->queues = granted < c->config.queues ? granted : c->config.queues;
    return rc;
}

static pst_rc make_pairs(struct pst_nvme_controller *c)
{
    pst_rc rc = PST_OK;
    for (uint16_t qid = 1; qid <= c->queues && rc == PST_OK; qid++) {
        struct pst_nvme_qp *qp;
        rc = pst_nvme_queue_new(c, qid, depth_of(c), &qp);
    }
    return rc;
}

static pst_rc check_config(const struct pst_nvme_config *config, const char *what)
{
    if (config->depth < PST_NVME_DEPTH_MIN)
        return pst_fail(PST_E_ARG, "%s: queue depth: expected at least %d, found %u", what,
                        PST_NVME_DEPTH_MIN, config->depth);
    return PST_OK;
}

static pst_rc bring_up(struct pst_nvme_controller *c)
{
    pst_rc rc = read_capabilities(c);
    if (rc == PST_OK)
        rc = disable(c); /* another driver may have left it running */
    if (rc == PST_OK)
        rc = pst_nvme_dma_new(&pst_nvme_impl(c)->page, c->t, PST_PAGE);
    if (rc == PST_OK)
        rc = pst_nvme_pair_new(c, PST_NVME_ADMIN_QID, PST_NVME_ADMIN_DEPTH, &c->admin);
    if (rc == PST_OK)
        rc = enable(c);
    if (rc == PST_OK)
        rc = pst_nvme_identify(c);
    if (rc == PST_OK)
        rc = negotiate_queues(c);
    return rc == PST_OK ? make_pairs(c) : rc;
}

pst_rc pst_nvme_open(struct pst_nvme_controller *c, struct pst_nvme_transport *t,
                     const struct pst_nvme_config *config)
{
    *c = (struct pst_nvme_controller){.t = t, .config = *config};
    c->config.queues = config->queues > 0 ? config->queues : 1;
    c->config.queues = c->config.queues < PST_NVME_QUEUES_MAX ? c->config.queues : PST_NVME_QUEUES_MAX;
    pst_rc rc = check_config(config, t->what);
    if (rc != PST_OK)
        return rc;
    c->impl = calloc(1, sizeof(struct pst_nvme_bringup));
    if (c->impl == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate a controller", t->what);
    rc = bring_up(c);
    if (rc == PST_OK)
        return PST_OK;
    char why[1024];
    (void)strncpy(why, pst_error_text(), sizeof why - 1); /* pst_nvme_close may overwrite the error */
    why[sizeof why - 1] = '\0';
    pst_nvme_close(c);
    return pst_fail(rc, "%s", why);
}

/* ---- reset and end ---------------------------------------------------------------------------------- */

pst_rc pst_nvme_reset(struct pst_nvme_controller *c)
{
    pst_rc rc = disable(c);
    if (rc != PST_OK)
        return pst_wrap(rc, "reset");
    c->resets++;
    pst_nvme_pair_clear(c->admin);
    rc = enable(c);
    uint32_t granted = 0;
    if (rc == PST_OK)
        rc = pst_nvme_ask_queues(c, pst_nvme_impl(c)->qids, &granted);
    for (uint16_t qid = 1; qid <= PST_NVME_QUEUES_MAX && rc == PST_OK; qid++) {
        if (c->io[qid] == NULL)
            continue;
        if (qid > granted)
            return pst_fail(
                PST_E_IO,
                "%s grants only %u queue pairs after a reset, fewer than before: start the run again",
                c->t->what, granted);
        pst_nvme_pair_clear(c->io[qid]);
        rc = pst_nvme_pair_create(c, c->io[qid]);
    }
    return pst_wrap(rc, "reset");
}

/* Section 3.6.1. An error here is ignored, because disabling follows, and then the memory is unmapped. */
static void shut_down(struct pst_nvme_controller *c)
{
    pst_rc rc = PST_OK;
    for (uint16_t qid = 1; qid <= PST_NVME_QUEUES_MAX && rc == PST_OK; qid++)
        if (c->io[qid] != NULL)
            rc = pst_nvme_queue_delete(c, qid);
    const uint32_t cc = get32(c, PST_NVME_CC);
    set32(c, PST_NVME_CC, (cc & ~PST_NVME_CC_SHN_MASK) | PST_NVME_CC_SHN_NORMAL);
    (void)!wait_for_status(c, PST_NVME_CSTS_SHST_MASK, PST_NVME_CSTS_SHST_DONE, pst_nvme_impl(c)->shutdown_ms,
                           "was shutting down");
}

void pst_nvme_close(struct pst_nvme_controller *c)
{
    struct pst_nvme_bringup *impl = pst_nvme_impl(c);
    if (impl == NULL)
        return;
    if (impl->enabled && !pst_nvme_failed(c))
        shut_down(c);
    if (impl->enabled)
        (void)!disable(c);
    for (uint16_t qid = 1; qid <= PST_NVME_QUEUES_MAX; qid++)
        pst_nvme_pair_free(c->io[qid]);
    pst_nvme_pair_free(c->admin);
    pst_nvme_dma_free(&impl->page);
    free(impl);
    *c = (struct pst_nvme_controller){.t = NULL};
}
