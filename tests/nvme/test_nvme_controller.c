/* Bringing up controllers that lie, fail and stall: a thread stands in for one, over plain memory, and says
 * what each test wants it to. Nothing crashes or hangs, every refusal says why, and nothing stays mapped. */
#include "tests/unit/store_fixture.h"

#include <nvme/types.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "common/nvme/driver/controller.h"

#define REGS_BYTES 16384
#define NEVER 0xff /* no opcode that is sent */

/* CAP of a plain controller: 256 entries, contiguous queues, 500 ms, stride 4, NVM, 4 KiB pages. */
#define PLAIN_CAP (255ull | 1ull << 16 | 1ull << 24 | 1ull << 37)

struct stub {
    _Alignas(4096) uint32_t regs[REGS_BYTES / 4];
    struct nvme_id_ctrl id;
    struct nvme_id_ns ns;
    uint64_t cap;
    uint32_t version, granted; /* dw0 of Set Features */
    bool never_ready, fails, wrong_id;
    _Atomic bool stays_ready;
    _Atomic uint8_t silent_on, refused; /* opcodes */
    _Atomic int abort_ms;               /* what it takes over an abort */
    struct pst_nvme_transport t;
    int maps, creates;
    _Atomic bool stop;
    pthread_t thread;
    /* the thread's own */
    uint32_t head, tail, phase;
};

static uint32_t get(struct stub *s, size_t at)
{
    return __atomic_load_n(&s->regs[at / 4], __ATOMIC_ACQUIRE);
}

static void set(struct stub *s, size_t at, uint32_t value)
{
    __atomic_store_n(&s->regs[at / 4], value, __ATOMIC_RELEASE);
}

static void *address(struct stub *s, size_t at)
{
    return (void *)(uintptr_t)(get(s, at) | (uint64_t)get(s, at + 4) << 32);
}

static void complete(struct stub *s, uint16_t cid, uint16_t status, uint32_t dw0)
{
    const uint32_t depth = (get(s, PST_NVME_AQA) & 0xfff) + 1;
    struct pst_nvme_cqe *cqe = (struct pst_nvme_cqe *)address(s, PST_NVME_ACQ) + s->tail;
    cqe->dw0 = dw0;
    cqe->sq_head = (uint16_t)s->head;
    const uint32_t last = ((uint32_t)status << 1 | s->phase) << 16 | cid;
    __atomic_store_n((uint32_t *)cqe + 3, last, __ATOMIC_RELEASE);
    s->tail = (s->tail + 1) % depth;
    s->phase ^= s->tail == 0;
}

static void answer(struct stub *s, const struct pst_nvme_sqe *sqe)
{
    void *data = (void *)(uintptr_t)sqe->prp1;
    if (sqe->opcode == s->silent_on)
        return;
    if (sqe->opcode == s->refused) {
        complete(s, sqe->cid, PST_NVME_INTERNAL, 0);
        return;
    }
    if (sqe->opcode == PST_NVME_ABORT)
        (void)nanosleep(&(struct timespec){.tv_nsec = s->abort_ms * 1000000L}, NULL);
    if (sqe->opcode == PST_NVME_IDENTIFY)
        memcpy(data, sqe->cdw10 == PST_NVME_CNS_CONTROLLER ? (void *)&s->id : (void *)&s->ns, 4096);
    s->creates += sqe->opcode == PST_NVME_CREATE_SQ;
    complete(s, (uint16_t)(sqe->cid + (s->wrong_id ? 7 : 0)), PST_NVME_OK,
             sqe->opcode == PST_NVME_SET_FEATURES ? s->granted : 0);
}

static void serve(struct stub *s)
{
    const uint32_t cc = get(s, PST_NVME_CC), csts = get(s, PST_NVME_CSTS);
    const bool enabled = (cc & PST_NVME_CC_EN) != 0, ready = (csts & PST_NVME_CSTS_RDY) != 0;
    if (enabled && !ready && !s->never_ready) {
        s->head = s->tail = 0;
        s->phase = 1;
        set(s, PST_NVME_DOORBELLS, 0);
        set(s, PST_NVME_CSTS, s->fails ? PST_NVME_CSTS_CFS : PST_NVME_CSTS_RDY);
    } else if (!enabled && ready && !s->stays_ready) {
        set(s, PST_NVME_CSTS, 0);
    } else if (enabled && ready && (cc & PST_NVME_CC_SHN_MASK) != 0) {
        set(s, PST_NVME_CSTS, PST_NVME_CSTS_RDY | PST_NVME_CSTS_SHST_DONE);
    } else if (enabled && ready && get(s, PST_NVME_DOORBELLS) != s->head) {
        struct pst_nvme_sqe sqe = ((struct pst_nvme_sqe *)address(s, PST_NVME_ASQ))[s->head];
        s->head = (s->head + 1) % ((get(s, PST_NVME_AQA) & 0xfff) + 1);
        answer(s, &sqe);
    }
}

static void *run(void *stub)
{
    struct stub *s = stub;
    while (!s->stop) {
        serve(s);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    }
    return NULL;
}

static pst_rc dma_map(struct pst_nvme_transport *t, void *addr, uint64_t bytes, uint64_t *iova)
{
    assert_true((uintptr_t)addr % PST_PAGE == 0 && bytes % PST_PAGE == 0);
    ((struct stub *)t->impl)->maps++;
    *iova = (uintptr_t)addr;
    return PST_OK;
}

static pst_rc dma_unmap(struct pst_nvme_transport *t, uint64_t iova)
{
    (void)iova;
    ((struct stub *)t->impl)->maps--;
    return PST_OK;
}

static const struct pst_nvme_transport_ops stub_ops = {
    .name = "stub", .dma_map = dma_map, .dma_unmap = dma_unmap};

static struct stub *stub_new(void)
{
    struct stub *s = aligned_alloc(4096, sizeof *s);
    assert_non_null(s);
    memset(s, 0, sizeof *s);
    s->cap = PLAIN_CAP;
    s->version = 0x10400;
    s->granted = 7 | 7 << 16;
    s->silent_on = s->refused = NEVER;
    s->id.sqes = 0x66;
    s->id.cqes = 0x44;
    s->id.mdts = 5;
    s->id.nn = 4;
    s->id.vwc = 1;
    memcpy(s->id.sn, "S123                ", sizeof s->id.sn);
    memcpy(s->id.mn, "A drive", 7);
    s->ns.nsze = 1000;
    s->ns.lbaf[0].ds = 9;
    s->ns.lbaf[1].ds = 12;
    s->ns.nlbaf = 1;
    s->t = (struct pst_nvme_transport){
        .ops = &stub_ops, .regs = s->regs, .regs_bytes = REGS_BYTES, .what = "stub", .impl = s};
    return s;
}

static void stub_start(struct stub *s)
{
    set(s, PST_NVME_CAP, (uint32_t)s->cap);
    set(s, PST_NVME_CAP + 4, (uint32_t)(s->cap >> 32));
    set(s, PST_NVME_VS, s->version);
    assert_int_equal(pthread_create(&s->thread, NULL, run, s), 0);
}

static void stub_free(struct stub *s)
{
    s->stop = true;
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    assert_int_equal(s->maps, 0);
    free(s);
}

static const struct pst_nvme_config config = {.queues = 3, .depth = 100, .admin_timeout_ms = 300};

/* ---- what it says is used ---------------------------------------------------------------------------------
 */

static void a_plain_controller(void **state)
{
    (void)state;
    struct stub *s = stub_new();
    struct pst_nvme_controller c;
    struct pst_nvme_namespace ns;
    stub_start(s);
    assert_int_equal(pst_nvme_open(&c, &s->t, &config), PST_OK);
    assert_int_equal(c.queues, 3);
    assert_int_equal(c.io[1]->depth, 64);
    assert_int_equal(c.entries_max, 256);
    assert_int_equal(c.transfer_bytes, 4096 << 5);
    assert_string_equal(c.serial, "S123");
    assert_string_equal(c.model, "A drive");
    assert_int_equal(pst_nvme_namespace(&c, 1, &ns), PST_OK);
    assert_int_equal(ns.lba_bytes, 512);
    assert_int_equal(ns.blocks, 1000);
    assert_int_equal(s->creates, 3);
    assert_int_equal(pst_nvme_reset(&c), PST_OK);
    assert_int_equal(s->creates, 6);
    assert_false(pst_nvme_failed(&c));
    pst_nvme_close(&c);
    stub_free(s);
}

/* Of these pages, how many are mapped: bit 63 of their words in pagemap. */
static int mapped(const char *at, size_t pages)
{
    int n = 0;
    FILE *f = fopen("/proc/self/pagemap", "rb");
    assert_non_null(f);
    for (size_t i = 0; i < pages; i++) {
        uint64_t word;
        assert_int_equal(fseek(f, (long)(((uintptr_t)at / 4096 + i) * sizeof word), SEEK_SET), 0);
        assert_int_equal(fread(&word, sizeof word, 1, f), 1);
        n += (int)(word >> 63);
    }
    (void)fclose(f);
    return n;
}

/* A GPU gets the registers and the doorbells that it uses, and their pages are mapped. */
static void registers_for_a_gpu(void **state)
{
    (void)state;
    const size_t pages = 4, bytes = pages * 4096;
    const struct {
        uint32_t queues, stride, pages;
    } cases[] = {{1, 4, 2}, {128, 4, 2}, {511, 4, 2}, {512, 4, 3}, {128, 32, 4}, {4096, 64, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *regs = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(regs, MAP_FAILED);
        struct pst_nvme_transport t = {.ops = &stub_ops, .regs = regs, .regs_bytes = bytes, .what = "stub"};
        const struct pst_nvme_controller c = {.t = &t, .doorbell_stride = cases[i].stride};
        assert_int_equal(pst_nvme_registers_touch(&c, cases[i].queues), cases[i].pages * 4096);
        assert_int_equal(mapped(regs, pages), cases[i].pages);
        assert_int_equal(munmap(regs, bytes), 0);
    }
}

static void limits_are_the_devices(void **state)
{
    (void)state;
    static const struct {
        uint8_t mdts;
        uint64_t bytes, ours;
    } cases[] = {{0, 2 << 20, 0},  {1, 8192, 0},     {9, 2 << 20, 0},   {255, 2 << 20, 0},
                 {32, 2 << 20, 0}, {64, 2 << 20, 0}, {5, 65536, 65536}, {0, 16 << 20, 16 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stub *s = stub_new();
        struct pst_nvme_controller c;
        struct pst_nvme_config limited = config;
        limited.transfer_bytes_max = cases[i].ours;
        s->id.mdts = cases[i].mdts;
        s->cap = PLAIN_CAP - 255 + 16;                  /* 17 entries: no power of two */
        s->granted = i % 2 == 0 ? 0 : 0xffff | 1 << 16; /* one pair; 65536 and 2 */
        stub_start(s);
        assert_int_equal(pst_nvme_open(&c, &s->t, &limited), PST_OK);
        assert_int_equal(c.transfer_bytes, cases[i].bytes);
        assert_int_equal(c.io[1]->depth, 16);
        assert_int_equal(c.queues, i % 2 == 0 ? 1 : 2);
        assert_null(c.io[c.queues + 1]);
        assert_true(c.io[1]->prp_entries >= cases[i].bytes / 4096 || cases[i].bytes <= 8192);
        pst_nvme_close(&c);
        stub_free(s);
    }
}

/* ---- what cannot be used is refused
 * ------------------------------------------------------------------------ */

static void few_entries(struct stub *s)
{
    s->cap &= ~0xffffull;
}
static void large_pages(struct stub *s)
{
    s->cap |= 4ull << 48;
}
static void wide_stride(struct stub *s)
{
    s->cap |= 15ull << 32;
}
static void no_nvm(struct stub *s)
{
    s->cap &= ~(1ull << 37);
}
static void gone(struct stub *s)
{
    s->cap = UINT64_MAX;
    s->version = UINT32_MAX;
}
static void never_ready(struct stub *s)
{
    s->never_ready = true;
}
static void fails(struct stub *s)
{
    s->fails = true;
}
static void small_entries(struct stub *s)
{
    s->id.sqes = 0x55;
}
static void no_io(struct stub *s)
{
    s->id.cntrltype = 2;
}
static void wrong_id(struct stub *s)
{
    s->wrong_id = true;
}
static void silent(struct stub *s)
{
    s->silent_on = PST_NVME_IDENTIFY;
}
static void refuses_identify(struct stub *s)
{
    s->refused = PST_NVME_IDENTIFY;
}
static void refuses_queues(struct stub *s)
{
    s->refused = PST_NVME_CREATE_SQ;
}
static void silent_on_queues(struct stub *s)
{
    s->silent_on = PST_NVME_CREATE_CQ;
}

static void refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct stub *);
        pst_rc rc;
        const char *why;
    } cases[] = {
        {few_entries, PST_E_UNSUPPORTED,
         "supports queues of at most 1 entries (CAP.MQES), but Penstock needs at least"},
        {large_pages, PST_E_UNSUPPORTED, "65536 bytes (CAP.MPSMIN)"},
        {wide_stride, PST_E_UNSUPPORTED, "stride of 131072"},
        {no_nvm, PST_E_UNSUPPORTED, "CAP.CSS"},
        {gone, PST_E_IO, "the controller has disappeared"},
        {never_ready, PST_E_TIMEOUT, "was getting ready for longer than the 500 ms"},
        {fails, PST_E_IO, "CSTS.CFS"},
        {small_entries, PST_E_UNSUPPORTED, "submission entries of 2^5"},
        {no_io, PST_E_UNSUPPORTED, "expected type 1, an I/O controller"},
        {wrong_id, PST_E_IO, "no such command is in flight"},
        {silent, PST_E_TIMEOUT,
         "Identify: stub: the controller did not answer a command in queue 0 within 300 ms"},
        {refuses_identify, PST_E_IO, "Identify (opcode 0x06): internal error (0x06)"},
        {refuses_queues, PST_E_IO, "Create I/O Submission Queue"},
        {silent_on_queues, PST_E_TIMEOUT, "Create I/O Completion Queue"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stub *s = stub_new();
        struct pst_nvme_controller c;
        cases[i].change(s);
        stub_start(s);
        assert_int_equal(pst_nvme_open(&c, &s->t, &config), cases[i].rc);
        if (strstr(pst_error_text(), cases[i].why) == NULL)
            fail_msg("expected '%s' in '%s'", cases[i].why, pst_error_text());
        stub_free(s);
    }
}

static void namespaces_that_lie(void **state)
{
    (void)state;
    struct stub *s = stub_new();
    struct pst_nvme_controller c;
    struct pst_nvme_namespace ns;
    stub_start(s);
    assert_int_equal(pst_nvme_open(&c, &s->t, &config), PST_OK);
    assert_int_equal(pst_nvme_namespace(&c, 0, &ns), PST_E_ARG);
    assert_int_equal(pst_nvme_namespace(&c, 5, &ns), PST_E_ARG);
    const struct nvme_id_ns plain = s->ns;
    static const struct {
        uint64_t blocks;
        uint8_t format, shift;
        uint16_t metadata;
        pst_rc rc;
    } cases[] = {
        {0, 0, 9, 0, PST_E_ARG},                  /* not active */
        {1000, 0, 31, 0, PST_E_UNSUPPORTED},      /* blocks of 2 GiB */
        {1000, 0, 255, 0, PST_E_UNSUPPORTED},     /* of 2^255 bytes */
        {1000, 0, 0, 0, PST_E_UNSUPPORTED},       /* of one byte */
        {1000, 0, 18, 0, PST_E_UNSUPPORTED},      /* larger than MDTS */
        {1000, 0, 17, 0, PST_OK},                 /* as large */
        {1000, 0, 9, 8, PST_E_UNSUPPORTED},       /* metadata */
        {UINT64_MAX, 0, 9, 0, PST_E_UNSUPPORTED}, /* more than 2^63 bytes */
        {1ull << 54, 0, 9, 0, PST_E_UNSUPPORTED}, /* as many */
        {(1ull << 54) - 1, 0, 9, 0, PST_OK},      /* just less */
        {1000, 0x0f, 9, 0, PST_E_UNSUPPORTED},    /* a format that is not there */
        {1000, 0x6f, 9, 0, PST_E_UNSUPPORTED},    /* nor this */
        {1000, 1, 9, 0, PST_OK},                  /* the other */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nvme_id_ns id = plain;
        id.nsze = cases[i].blocks;
        id.flbas = cases[i].format;
        id.lbaf[0].ds = cases[i].shift;
        id.lbaf[0].ms = cases[i].metadata;
        s->ns = id; /* the thread answers only when it is asked */
        assert_int_equal(pst_nvme_namespace(&c, 1, &ns), cases[i].rc);
        if (cases[i].rc == PST_OK)
            assert_int_equal(ns.lba_bytes, cases[i].format == 1 ? 4096 : 1u << cases[i].shift);
    }
    pst_nvme_close(&c);
    stub_free(s);
}

/* Whatever Identify answers, it is refused or its text is printable, and nothing is left mapped. */
static void garbage(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 60; round++) {
        struct stub *s = stub_new();
        struct pst_nvme_controller c;
        struct pst_nvme_namespace ns;
        unsigned char *id = (unsigned char *)&s->id, *space = (unsigned char *)&s->ns;
        for (size_t i = 0; i < 4096; i++) {
            seed = seed * 1664525 + 1013904223;
            id[i] = (unsigned char)(seed >> 24);
            space[i] = (unsigned char)(seed >> 16);
        }
        if (round % 2 == 0) { /* past the first hurdles */
            s->id.cntrltype = 1;
            s->id.sqes = 0x66;
            s->id.cqes = 0x44;
        }
        s->granted = seed;
        stub_start(s);
        const pst_rc rc = pst_nvme_open(&c, &s->t, &config);
        assert_true(rc == PST_OK || rc == PST_E_UNSUPPORTED);
        if (rc == PST_OK) {
            for (const char *at = c.model; *at != '\0'; at++)
                assert_true(*at >= ' ' && *at <= '~');
            (void)!pst_nvme_namespace(&c, 1, &ns);
            pst_nvme_close(&c);
        }
        stub_free(s);
    }
}

/* ---- what goes wrong later ------------------------------------------------------------------------- */

static struct stub *opened(struct pst_nvme_controller *c, const struct pst_nvme_config *how)
{
    struct stub *s = stub_new();
    stub_start(s);
    assert_int_equal(pst_nvme_open(c, &s->t, how), PST_OK);
    return s;
}

/* Afterwards all is unmapped: stub_free looks. */
static void closed(struct pst_nvme_controller *c, struct stub *s)
{
    pst_nvme_close(c);
    stub_free(s);
}

static void after_a_reset(void **state)
{
    (void)state;
    struct pst_nvme_controller c;
    struct stub *s = opened(&c, &config);
    s->granted = 0;
    assert_int_equal(pst_nvme_reset(&c), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), "grants only 1 queue pairs after a reset, fewer than before"));
    closed(&c, s);
}

static void a_controller_that_does_not_stop(void **state)
{
    (void)state;
    struct pst_nvme_controller c;
    struct stub *s = opened(&c, &config);
    s->stays_ready = true;
    assert_int_equal(pst_nvme_reset(&c), PST_E_TIMEOUT);
    assert_non_null(strstr(pst_error_text(), "was being disabled for longer than the 500 ms"));
    closed(&c, s);
}

static void commands_that_are_never_answered(void **state)
{
    (void)state;
    struct pst_nvme_controller c;
    bool aborted = true;
    struct pst_nvme_config impatient = config;
    impatient.admin_timeout_ms = 20;
    struct stub *s = opened(&c, &impatient);
    s->silent_on = PST_NVME_ABORT;
    pst_rc rc = PST_E_TIMEOUT;
    int tries = 0;
    for (; rc == PST_E_TIMEOUT && tries < 100; tries++) {
        rc = pst_nvme_abort(&c, 1, 0, &aborted);
        assert_false(aborted);
    }
    assert_int_equal(rc, PST_E_IO);
    assert_non_null(strstr(pst_error_text(), "full of commands that the controller has not answered"));
    assert_int_equal(tries, 16);
    s->silent_on = NEVER;
    assert_int_equal(pst_nvme_reset(&c), PST_OK);
    assert_int_equal(pst_nvme_abort(&c, 1, 0, &aborted), PST_OK);
    assert_true(aborted);
    closed(&c, s);
}

/* A reset ends what aborts do not, or not in time. */
static void what_was_left_is_settled(void **state)
{
    (void)state;
    enum { LEFT = 30, SLOW_MS = 30 };
    for (int slow = 0; slow < 2; slow++) {
        struct pst_nvme_controller c;
        struct pst_nvme_settled did = {0};
        struct stub *s = opened(&c, &config);
        struct pst_nvme_sqe sqe = {.opcode = PST_NVME_READ, .nsid = 1};
        s->abort_ms = slow ? SLOW_MS : 0;
        for (int i = 0; i < LEFT; i++)
            pst_nvme_post(c.io[2], c.io[2]->posted++, &sqe); /* the stub has no eyes for them */
        assert_int_equal(pst_nvme_settle(&c, slow ? 50 : 400, &did), PST_OK);
        assert_true(did.resets == 1 && (slow ? did.aborts > 0 && did.aborts < LEFT : did.aborts == LEFT));
        assert_true(c.io[2]->posted == 0 && c.io[2]->taken == 0 && c.resets == 1);
        closed(&c, s);
    }
}

static void arguments(void **state)
{
    (void)state;
    struct stub *s = stub_new();
    struct pst_nvme_controller c;
    struct pst_nvme_qp *qp;
    const struct pst_nvme_config shallow = {.depth = 1};
    stub_start(s);
    assert_int_equal(pst_nvme_open(&c, &s->t, &shallow), PST_E_ARG);
    assert_int_equal(pst_nvme_open(&c, &s->t, &config), PST_OK);
    assert_int_equal(pst_nvme_queue_new(&c, 1, 64, &qp), PST_E_ARG);  /* is there */
    assert_int_equal(pst_nvme_queue_new(&c, 5, 64, &qp), PST_E_ARG);  /* was not granted */
    assert_int_equal(pst_nvme_queue_new(&c, 4, 100, &qp), PST_E_ARG); /* no power of two */
    assert_int_equal(pst_nvme_queue_new(&c, 4, 512, &qp), PST_E_ARG); /* more than MQES */
    assert_int_equal(pst_nvme_queue_delete(&c, 4), PST_E_ARG);
    assert_int_equal(pst_nvme_queue_new(&c, 4, 256, &qp), PST_OK);
    assert_int_equal(pst_nvme_queue_delete(&c, 4), PST_OK);
    pst_nvme_close(&c);
    stub_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_controller),
        cmocka_unit_test(registers_for_a_gpu),
        cmocka_unit_test(limits_are_the_devices),
        cmocka_unit_test(refused_with_a_reason),
        cmocka_unit_test(namespaces_that_lie),
        cmocka_unit_test(garbage),
        cmocka_unit_test(after_a_reset),
        cmocka_unit_test(a_controller_that_does_not_stop),
        cmocka_unit_test(commands_that_are_never_answered),
        cmocka_unit_test(what_was_left_is_settled),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
