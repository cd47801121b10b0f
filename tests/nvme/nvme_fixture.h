/* nvme_fixture.h: SSDs behind any transport, memory for them, a stack over them, and an exercise that knows
 * what every byte should be. Used by test_nvme*.c. Included once by each. */
#ifndef NVME_FIXTURE_H
#define NVME_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/nvme/emulated/emulated.h"
#include "common/nvme/stack/stack.h"
#include "tests/unit/programs.h"

#define SSDS_MAX 4
#define CANARY 0xa5
#define SLOTS 64                /* requests of the exercise in flight */
#define SLOT_BYTES (768u << 10) /* memory of one: its largest transfer, room to shift it, and canaries */
#define REQUEST_MAX (512u << 10)

#define NEED(call)                                                                                           \
    do {                                                                                                     \
        const pst_rc need_rc = (call);                                                                       \
        if (need_rc != PST_OK)                                                                               \
            fail_msg("%s: %s", #call, pst_error_text());                                                     \
    } while (0)

struct bench {
    struct pst_nvme_emulated emu;
    struct pst_nvme_transport t[SSDS_MAX];
    struct pst_nvme_controller c[SSDS_MAX], *list[SSDS_MAX];
    struct pst_nvme_namespace ns;
    struct pst_nvme_dma memory; /* mapped for every SSD */
    uint64_t iova[SSDS_MAX];
    uint32_t ssds;
    struct pst_nvme_stack *stack;
};

static inline double seconds(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static inline uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed % below;
}

/* Brings up ssds whose transports are open, with memory for an exercise. */
static inline void bring_up(struct bench *b, uint32_t ssds, uint32_t queues, uint32_t depth, uint64_t bytes)
{
    const struct pst_nvme_config config = {.queues = queues, .depth = depth, .admin_timeout_ms = 5000};
    b->ssds = ssds;
    NEED(pst_nvme_dma_new(&b->memory, NULL, bytes));
    for (uint32_t i = 0; i < ssds; i++) {
        NEED(pst_nvme_open(&b->c[i], &b->t[i], &config));
        NEED(pst_nvme_namespace(&b->c[i], 1, &b->ns));
        NEED(b->t[i].ops->dma_map(&b->t[i], b->memory.base, b->memory.bytes, &b->iova[i]));
        b->list[i] = &b->c[i];
    }
}

static inline void connect_all(struct bench *b, const char *json, uint32_t ssds)
{
    memset(b, 0, sizeof *b);
    NEED(pst_nvme_emulated_start(&b->emu, json));
    for (uint32_t i = 0; i < ssds; i++)
        NEED(pst_nvme_emulated_connect(&b->t[i], &b->emu, i));
}

static inline void make_stack(struct bench *b, enum pst_nvme_way way, uint32_t lanes, uint32_t timeout_ms)
{
    const struct pst_nvme_stack_config config = {.way = way,
                                                 .controllers = b->list,
                                                 .ssds = b->ssds,
                                                 .lanes = lanes,
                                                 .requests_max = SLOTS,
                                                 .retries = 1000,
                                                 .timeout_ms = timeout_ms};
    NEED(pst_nvme_stack_new(&b->stack, &config));
}

static inline void tear_down(struct bench *b)
{
    pst_nvme_stack_free(b->stack);
    for (uint32_t i = 0; i < b->ssds; i++) {
        pst_nvme_close(&b->c[i]);
        b->t[i].ops->close(&b->t[i]);
    }
    pst_nvme_dma_free(&b->memory);
    pst_nvme_emulated_stop(&b->emu);
}

/* ---- the exercise --------------------------------------------------------------------------------- */

struct errand {
    bool used, write;
    uint32_t ssd, at; /* memory: byte of its slot */
    uint64_t block, blocks;
};

struct exercise {
    struct bench *b;
    uint64_t seed, blocks; /* of each SSD that take part, from first on */
    uint64_t first;
    uint8_t *shadow[SSDS_MAX]; /* what every block should hold */
    uint8_t *busy[SSDS_MAX];
    struct errand errands[SLOTS];
    uint64_t reads, writes;
};

static inline uint8_t *slot_of(const struct exercise *x, uint32_t i)
{
    return (uint8_t *)x->b->memory.base + (size_t)i * SLOT_BYTES;
}

static inline bool pick(struct exercise *x, struct errand *e, uint64_t most)
{
    const uint32_t lba = x->b->ns.lba_bytes;
    uint64_t blocks = REQUEST_MAX / lba;
    while (blocks > 1 && draw(&x->seed, 4) != 0) /* small ones are common, large ones happen */
        blocks /= 2;
    blocks = 1 + draw(&x->seed, blocks);
    *e = (struct errand){.used = true,
                         .write = draw(&x->seed, 3) == 0,
                         .ssd = (uint32_t)draw(&x->seed, x->b->ssds),
                         .at = PST_PAGE + 4 * (uint32_t)draw(&x->seed, PST_PAGE / 2),
                         .blocks = blocks < most ? blocks : most};
    e->block = draw(&x->seed, x->blocks - e->blocks + 1);
    for (uint64_t i = 0; i < e->blocks; i++) {
        if (x->busy[e->ssd][e->block + i])
            return false;
    }
    return true;
}

static inline void begin(struct exercise *x, uint32_t i)
{
    struct errand *e = &x->errands[i];
    const uint32_t lba = x->b->ns.lba_bytes;
    const uint64_t bytes = e->blocks * lba;
    uint8_t *slot = slot_of(x, i);
    memset(slot, CANARY, e->at + bytes + PST_PAGE);
    for (uint64_t at = 0; e->write && at < bytes; at += 8) {
        const uint64_t word = draw(&x->seed, UINT64_MAX);
        memcpy(slot + e->at + at, &word, 8);
    }
    memset(x->busy[e->ssd] + e->block, 1, e->blocks);
    const struct pst_nvme_request r = {.ssd = (uint16_t)e->ssd,
                                       .opcode = e->write ? PST_NVME_WRITE : PST_NVME_READ,
                                       .nsid = x->b->ns.nsid,
                                       .lba_shift = lba == 512 ? 9 : 12,
                                       .lba = x->first + e->block,
                                       .bytes = bytes,
                                       .iova = x->b->iova[e->ssd] + (uint64_t)i * SLOT_BYTES + e->at,
                                       .user = e};
    NEED(pst_nvme_stack_add(x->b->stack, &r));
}

static inline bool untouched(const uint8_t *memory, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (memory[i] != CANARY)
            return false;
    }
    return true;
}

static inline void end(struct exercise *x, const struct pst_nvme_result *result)
{
    struct errand *e = result->user;
    const uint32_t lba = x->b->ns.lba_bytes;
    const uint64_t bytes = e->blocks * lba;
    const uint8_t *slot = slot_of(x, (uint32_t)(e - x->errands));
    uint8_t *shadow = x->shadow[e->ssd] + e->block * lba;
    char text[64];
    if (result->status != PST_NVME_OK)
        fail_msg("LBA %llu of SSD %u: %s", (unsigned long long)result->lba, result->ssd,
                 pst_nvme_status_text(result->status, text));
    assert_true(untouched(slot, e->at) && untouched(slot + e->at + bytes, PST_PAGE));
    if (e->write)
        memcpy(shadow, slot + e->at, bytes);
    else
        assert_memory_equal(slot + e->at, shadow, bytes);
    memset(x->busy[e->ssd] + e->block, 0, e->blocks);
    x->reads += !e->write;
    x->writes += e->write;
    e->used = false;
}

/* Random reads and writes of `blocks` from `first` on until n have ended or the time is up; then all is read.
 * It can go on with another call. The shadow is what the namespace holds at the start: zeroes, unless given.
 */
static inline void exercise(struct exercise *x, struct bench *b, uint64_t n, double for_s, uint64_t most)
{
    const double stop = seconds() + for_s, deadline = stop + 30;
    x->b = b;
    for (uint32_t i = 0; i < b->ssds; i++) {
        if (x->shadow[i] == NULL)
            x->shadow[i] = calloc(x->blocks, b->ns.lba_bytes);
        if (x->busy[i] == NULL)
            x->busy[i] = calloc(x->blocks, 1);
        assert_non_null(x->shadow[i]);
        assert_non_null(x->busy[i]);
    }
    for (uint64_t begun = 0;;) {
        for (uint32_t i = 0; i < SLOTS && begun < n && seconds() < stop; i++) {
            if (!x->errands[i].used && (x->errands[i].used = pick(x, &x->errands[i], most))) {
                begin(x, i);
                begun++;
            }
        }
        struct pst_nvme_result results[SLOTS];
        uint32_t ended = 0;
        NEED(pst_nvme_stack_poll(b->stack, results, SLOTS, &ended));
        for (uint32_t i = 0; i < ended; i++)
            end(x, &results[i]);
        if (pst_nvme_stack_in_flight(b->stack) == 0 && (begun == n || seconds() >= stop))
            break;
        if (seconds() > deadline)
            fail_msg("%llu requests hang", (unsigned long long)pst_nvme_stack_in_flight(b->stack));
        if (ended == 0)
            (void)usleep(20);
    }
}

static inline void exercise_free(struct exercise *x)
{
    for (uint32_t i = 0; i < SSDS_MAX; i++) {
        free(x->shadow[i]);
        free(x->busy[i]);
    }
}

#endif
