/* bench_nvme.c: moves the bench's requests through our own driver, to emulated or real drives. Threads share
 * the drives; each has a stack with its own queue pairs. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/nvme/emulated/emulated.h"
#include "common/nvme/stack/stack.h"
#include "common/nvme/driver/vfio.h"
#include "tools/penstock/machine/bench_impl.h"

#define RESULTS_MAX 256
#define TIMEOUT_MS 30000
/* Of all emulated drives together; larger ones hold a function of the address. */
#define RAM_MAX (1ull << 30)
#define REFERENCE_MAX (1ull << 30) /* of a real drive, whose content is read once and kept */

struct drives {
    uint32_t n;
    struct pst_nvme_emulated emulated;
    struct pst_nvme_transport t[PST_NVME_SSDS_MAX];
    struct pst_nvme_controller c[PST_NVME_SSDS_MAX], *list[PST_NVME_SSDS_MAX];
    uint8_t *reference[PST_NVME_SSDS_MAX];
    uint32_t lba_shift;
};

struct driver {
    struct drives *d; /* made by the first thread */
    uint64_t iova[PST_NVME_SSDS_MAX];
    struct pst_nvme_stack *stack;
    struct pst_nvme_stack_stats before;
};

static pst_rc start_emulated(struct drives *d, const struct pst_bench_io *o)
{
    json_error_t e;
    json_t *more = json_loads(o->emulated[0] != '\0' ? o->emulated : "{}", JSON_REJECT_DUPLICATES, &e);
    if (!json_is_object(more)) {
        json_decref(more);
        return pst_fail(PST_E_ARG, "--emulated is not a JSON object: %s", e.text);
    }
    const bool ram = o->write || o->span * o->ssds <= RAM_MAX;
    json_t *whole = json_pack("{si, si, si, ss, sf, sf, s[{ss, sI, sb}]}", "ssds", (int)o->ssds, "workers",
                              (int)o->workers, "queues", 128, "preset", o->preset, "dilate", o->dilate,
                              "bus_bytes_per_s", o->bus_bytes_per_s, "namespaces", "kind",
                              ram ? "ram" : "function", "bytes", (json_int_t)o->span, "filled", (int)ram);
    char *text = whole != NULL && json_object_update(whole, more) == 0 ? json_dumps(whole, 0) : NULL;
    pst_rc rc = text != NULL ? pst_nvme_emulated_start(&d->emulated, text)
                             : pst_fail(PST_E_NOMEM, "out of memory: cannot write a configuration");
    free(text);
    json_decref(whole);
    json_decref(more);
    for (uint32_t i = 0; i < o->ssds && rc == PST_OK; i++) {
        rc = pst_nvme_emulated_connect(&d->t[i], &d->emulated, i);
        d->n += rc == PST_OK;
    }
    return rc;
}

static pst_rc connect_drives(struct drives *d, const struct pst_bench_io *o)
{
    if (o->write)
        return pst_fail(PST_E_ARG,
                        "--write works only with emulated drives: the benchmark never writes to real drives");
    char *list = strdup(o->drives), *save = NULL;
    pst_rc rc =
        list != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot copy the list of drives");
    for (char *at = list != NULL ? strtok_r(list, ",", &save) : NULL; at != NULL && rc == PST_OK;
         at = strtok_r(NULL, ",", &save)) {
        rc = d->n < PST_NVME_SSDS_MAX
                 ? pst_nvme_vfio_connect(&d->t[d->n], at)
                 : pst_fail(PST_E_LIMIT, "--drives lists more than %d drives, which is the limit",
                            PST_NVME_SSDS_MAX);
        d->n += rc == PST_OK;
    }
    free(list);
    if (rc == PST_OK && d->n != o->ssds)
        rc = pst_fail(PST_E_ARG, "--drives lists %u drives, but --ssds is %u", d->n, o->ssds);
    return rc;
}

static pst_rc bring_up(const struct pst_bench_io *o, struct drives *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const struct pst_nvme_config config = {.queues = o->queues * o->threads, .depth = 1024};
        struct pst_nvme_namespace ns;
        pst_rc rc = pst_nvme_open(&d->c[i], &d->t[i], &config);
        if (rc != PST_OK)
            return rc;
        d->list[i] = &d->c[i];
        if (o->threads > 1 && d->c[i].queues < config.queues)
            return pst_fail(PST_E_ARG,
                            "%s has only %u queue pairs, too few for --queues %u in each of --threads %u: "
                            "lower one of them",
                            d->t[i].what, d->c[i].queues, o->queues, o->threads);
        rc = pst_nvme_namespace(&d->c[i], 1, &ns);
        if (rc != PST_OK)
            return rc;
        d->lba_shift = ns.lba_bytes == 4096 ? 12 : 9;
        if (o->bytes % ns.lba_bytes != 0 || o->span > ns.blocks * ns.lba_bytes)
            return pst_fail(PST_E_ARG,
                            "%s: --bytes %llu and --span %llu do not fit the drive's %llu blocks of %u bytes",
                            d->t[i].what, (unsigned long long)o->bytes, (unsigned long long)o->span,
                            (unsigned long long)ns.blocks, ns.lba_bytes);
    }
    return PST_OK;
}

static pst_rc open_drives(const struct pst_bench_io *o, struct drives *d)
{
    pst_rc rc = o->backend == &pst_io_emulated_ops ? start_emulated(d, o) : connect_drives(d, o);
    return rc == PST_OK ? bring_up(o, d) : rc;
}

/* ---- one thread's driver -------------------------------------------------------------------------- */

static pst_rc make_stack(struct pst_mover *m, enum pst_nvme_way way, uint32_t lanes)
{
    struct driver *v = m->impl;
    const bool alone = m->o->threads == 1;
    const struct pst_nvme_stack_config config = {.way = way,
                                                 .controllers = v->d->list,
                                                 .ssds = v->d->n,
                                                 .lanes = lanes,
                                                 .first_queue = m->thread * m->o->queues,
                                                 .queues = alone ? 0 : m->o->queues,
                                                 .requests_max = m->slots,
                                                 .retries = 3,
                                                 .timeout_ms = TIMEOUT_MS};
    return pst_nvme_stack_new(&v->stack, &config);
}

static pst_rc nvme_post(struct pst_mover *m, uint32_t slot, uint32_t ssd, uint64_t at, bool write)
{
    struct driver *v = m->impl;
    const uint64_t begin = pst_bench_cycles();
    const struct pst_nvme_request r = {.ssd = (uint16_t)ssd,
                                       .opcode = write ? PST_NVME_WRITE : PST_NVME_READ,
                                       .nsid = 1,
                                       .lba_shift = (uint8_t)v->d->lba_shift,
                                       .lba = at >> v->d->lba_shift,
                                       .bytes = m->o->bytes,
                                       .iova = v->iova[ssd] + slot * m->o->bytes,
                                       .user = (void *)(uintptr_t)(slot + 1)};
    pst_rc rc = pst_nvme_stack_add(v->stack, &r);
    m->cycles += pst_bench_cycles() - begin;
    return rc;
}

static pst_rc nvme_ring(struct pst_mover *m)
{
    struct driver *v = m->impl;
    const uint64_t begin = pst_bench_cycles();
    pst_nvme_stack_submit(v->stack);
    m->cycles += pst_bench_cycles() - begin;
    return PST_OK;
}

static pst_rc nvme_poll(struct pst_mover *m, struct pst_bench_done *done, uint32_t max, uint32_t *n)
{
    struct driver *v = m->impl;
    struct pst_nvme_result results[RESULTS_MAX];
    const uint64_t begin = pst_bench_cycles();
    pst_rc rc = pst_nvme_stack_poll(v->stack, results, max < RESULTS_MAX ? max : RESULTS_MAX, n);
    if (*n > 0)
        m->cycles += pst_bench_cycles() - begin;
    for (uint32_t i = 0; i < *n; i++) {
        char text[64];
        if (results[i].status != PST_NVME_OK)
            return pst_fail(PST_E_IO, "%s, LBA %llu: %s", v->d->t[results[i].ssd].what,
                            (unsigned long long)results[i].lba,
                            pst_nvme_status_text(results[i].status, text));
        done[i] = (struct pst_bench_done){(uint32_t)(uintptr_t)results[i].user - 1, results[i].ns};
    }
    return rc;
}

/* Reads a real drive's span once, in order, by the batch stack. Random reads are compared with this. */
static pst_rc learn(struct pst_mover *m, uint32_t ssd)
{
    struct drives *d = ((struct driver *)m->impl)->d;
    const uint64_t n = m->o->span / m->o->bytes;
    if (m->o->span > REFERENCE_MAX)
        return pst_fail(PST_E_ARG,
                        "--span of real drives can be at most %llu MiB, because the benchmark keeps their "
                        "content in memory to compare it",
                        (unsigned long long)(REFERENCE_MAX >> 20));
    d->reference[ssd] = malloc(m->o->span);
    if (d->reference[ssd] == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read what the drive holds");
    pst_rc rc = PST_OK;
    for (uint64_t i = 0; i < n && rc == PST_OK; i++) {
        struct pst_bench_done done;
        uint32_t got = 0;
        rc = nvme_post(m, 0, ssd, i * m->o->bytes, false);
        while (rc == PST_OK && got == 0)
            rc = nvme_poll(m, &done, 1, &got);
        memcpy(d->reference[ssd] + i * m->o->bytes, m->memory.base, m->o->bytes);
    }
    return rc;
}

static pst_rc learn_all(struct pst_mover *m)
{
    struct driver *v = m->impl;
    pst_rc rc = make_stack(m, PST_NVME_BATCH, 1);
    for (uint32_t i = 0; i < v->d->n && rc == PST_OK; i++)
        rc = learn(m, i);
    pst_nvme_stack_free(v->stack);
    v->stack = NULL;
    return rc;
}

static pst_rc nvme_open(struct pst_mover *m)
{
    const struct pst_bench_io *o = m->o;
    const bool first = m == m->first;
    struct driver *v = calloc(1, sizeof *v);
    if (v == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a driver");
    m->impl = v;
    v->d = first ? calloc(1, sizeof *v->d) : ((struct driver *)m->first->impl)->d;
    if (v->d == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate drives");
    pst_rc rc = first ? open_drives(o, v->d) : PST_OK;
    for (uint32_t i = 0; i < v->d->n && rc == PST_OK; i++)
        rc = v->d->t[i].ops->dma_map(&v->d->t[i], m->memory.base, m->memory.bytes, &v->iova[i]);
    if (rc == PST_OK && first && o->backend != &pst_io_emulated_ops)
        rc = learn_all(m);
    rc = rc == PST_OK ? make_stack(m, o->way, o->lanes) : rc;
    if (rc == PST_OK)
        v->before = *pst_nvme_stack_stats(v->stack);
    m->cycles = 0;
    return rc;
}

static const uint8_t *nvme_reference(const struct pst_mover *m, uint32_t ssd)
{
    return ((const struct driver *)m->impl)->d->reference[ssd];
}

static void nvme_report(struct pst_mover *m, struct pst_bench_io_result *result)
{
    struct driver *v = m->impl;
    const struct pst_nvme_stack_stats *s = pst_nvme_stack_stats(v->stack);
    result->commands += s->commands;
    result->sq_doorbells += s->sq_doorbells - v->before.sq_doorbells;
    result->cq_doorbells += s->cq_doorbells - v->before.cq_doorbells;
    result->retries += s->retries;
    result->resets += s->resets;
}

static void nvme_close(struct pst_mover *m)
{
    struct driver *v = m->impl;
    if (v == NULL)
        return;
    struct drives *d = v->d;
    pst_nvme_stack_free(v->stack);
    free(v);
    if (m != m->first || d == NULL)
        return;
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->list[i] != NULL)
            pst_nvme_close(&d->c[i]);
        d->t[i].ops->close(&d->t[i]);
        free(d->reference[i]);
    }
    pst_nvme_emulated_stop(&d->emulated);
    free(d);
}

const struct pst_mover pst_mover_nvme = {.open = nvme_open,
                                         .post = nvme_post,
                                         .ring = nvme_ring,
                                         .poll = nvme_poll,
                                         .reference = nvme_reference,
                                         .report = nvme_report,
                                         .close = nvme_close};
