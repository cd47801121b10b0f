/* What a hostile stage may send: messages over the wire protocol, and frames in a ring or a pool that it has
 * written over. The input is a row of actions, each a byte and what it takes; the victim is a stage that
 * uses every slot that it is given. Nothing may crash, hang or reach beyond the slots. */
#include <string.h>

#include "common/host/foreign_impl.h"
#include "tests/fuzz/fuzz.h"

#define SLOTS 5
#define SLOT_BYTES 64
#define CAPACITY 8
#define REFS 3
#define BOARD_BYTES (1u << 16)

struct reader {
    const uint8_t *at, *end;
};

static uint64_t take(struct reader *r, size_t n)
{
    uint64_t value = 0;
    size_t have = (size_t)(r->end - r->at);
    n = n < have ? n : have;
    memcpy(&value, r->at, n);
    r->at += n;
    return value;
}

static const struct pst_port_desc ports[] = {
    {.name = "in", .dir = PST_IN, .help = "i", .type = "any", .memory = "cpu", .flags = PST_PORT_WRITES},
    {.name = "ordered",
     .dir = PST_IN,
     .help = "o",
     .type = "any",
     .memory = "cpu",
     .flags = PST_PORT_ORDERED},
    {.name = "out", .dir = PST_OUT, .help = "o", .type = "any", .memory = "cpu", .forwards = "in"},
    {.name = "own", .dir = PST_OUT, .help = "o", .type = "any", .memory = "cpu"},
    {.name = "plan", .dir = PST_OUT, .help = "p", .type = "any", .memory = "cpu", .flags = PST_PORT_ONESHOT},
    {0},
};

/* Touches every byte of every slot, then sends on, releases or keeps it. */
static pst_rc victim(struct pst_stage *self, const struct pst_event *ev)
{
    struct pst_frame frame = {.nrefs = 0};
    if (ev->kind == PST_EV_FRAME)
        frame = *ev->frame;
    else if (ev->kind == PST_EV_CREDIT)
        frame = (struct pst_frame){
            .batch = ev->credit.batch, .micro = ev->credit.micro, .nrefs = 1, .refs = {ev->credit.ref}};
    for (uint32_t i = 0; i < frame.nrefs; i++) {
        uint64_t bytes;
        char *slot = pst_slot(self, frame.refs[i], &bytes);
        if (slot)
            memset(slot, (int)i, bytes);
    }
    if (ev->kind == PST_EV_CREDIT && frame.batch % 3 == 0) /* the program has it, and may send it (wire) */
        return pst_host_hand_credit(self, &((struct pst_host_foreign *)pst_state(self))->hand, ev->port,
                                    &ev->credit);
    if (ev->kind == PST_EV_CREDIT) {
        frame.flags = PST_LAST_PART | PST_LAST_MICRO;
        return pst_send(self, 3, &frame);
    }
    if (ev->kind == PST_EV_FRAME && frame.batch % 3 == 0)
        return pst_host_hand_frame(self, &((struct pst_host_foreign *)pst_state(self))->hand, ev->port,
                                   &frame);
    if (ev->kind != PST_EV_FRAME || !(frame.flags & PST_LAST_PART))
        return PST_OK;
    return frame.batch % 2 ? pst_send(self, 2, &frame) : pst_consume(self, &frame);
}

struct world {
    struct pst_stage stage;
    struct pst_host_process process;
    struct pst_host_foreign foreign;
    struct pst_page page, other;
    struct pst_board board;
    struct pst_host_peer peer;
    struct pst_pool pools[2];
    struct pst_ring *rings[4];
    char *slots[2];
};

static struct pst_ring *ring_of(struct pst_lane *lane)
{
    struct pst_ring *ring = aligned_alloc(PST_CACHE_LINE, pst_ring_bytes(CAPACITY, REFS));
    fuzz_check(ring);
    memset(ring, 0, pst_ring_bytes(CAPACITY, REFS));
    pst_ring_init(ring, CAPACITY, REFS);
    fuzz_check(pst_lane_open(lane, ring, pst_ring_bytes(CAPACITY, REFS)));
    return ring;
}

static void build(struct world *w)
{
    struct pst_stage *s = &w->stage;
    s->process = &w->process;
    s->state = &w->foreign;
    s->caps.file = (char *)"hostile";
    w->foreign.started = w->foreign.open = true;
    s->desc =
        (struct pst_stage_desc){.abi = PST_STAGE_ABI, .name = "hostile", .ports = ports, .on_event = victim};
    (void)snprintf(s->name, sizeof s->name, "hostile");
    s->instances = 1;
    s->page = &w->page;
    s->board = &w->board;
    atomic_store(&w->board.stop, 1); /* a full ring must not be waited for */
    w->peer.page = &w->other;
    for (int i = 0; i < 2; i++) {
        struct pst_host_input *in = &s->inputs[s->ninputs++];
        in->port = i;
        in->ordered = i == 1;
        in->nrings = 1;
        in->producers[0] = &w->peer;
        w->rings[i] = ring_of(&in->rings[0]);
        in->pending_cap = 4;
        in->pending = calloc(in->pending_cap, sizeof *in->pending);
        fuzz_check(in->pending);
        struct pst_host_output *out = &s->outputs[s->noutputs++];
        out->port = 2 + i;
        out->nrings = 1;
        out->consumers[0] = &w->peer;
        w->rings[2 + i] = ring_of(&out->rings[0]);
        w->slots[i] = malloc(SLOTS * SLOT_BYTES);
        fuzz_check(w->slots[i] && pst_pool_init(&w->pools[i], SLOTS, 1, false, false, 0) == PST_OK);
        s->routes[s->nroutes++] = (struct pst_host_route_end){.id = (uint32_t)i,
                                                              .base = w->slots[i],
                                                              .slots = SLOTS,
                                                              .slot_bytes = SLOT_BYTES,
                                                              .pool = &w->pools[i],
                                                              .origin_port = i == 0 ? -1 : 3,
                                                              .via_port = i == 0 ? 0 : 3,
                                                              .hold = 2,
                                                              .origins = {&w->peer},
                                                              .norigins = 1};
    }
}

static void tear_down(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        free(w->stage.inputs[i].pending);
        free(w->slots[i]);
        (void)pthread_mutex_destroy(&w->pools[i].lock);
    }
    for (int i = 0; i < 4; i++)
        free(w->rings[i]);
    pst_host_hand_free(&w->foreign.hand);
    free(w);
}

/* A frame as a neighbour would push it, with small numbers so that some are right. */
static void push_frame(struct world *w, struct reader *r)
{
    int i = (int)take(r, 1) % 2;
    struct pst_frame frame = {.batch = take(r, 1),
                              .micro = (uint32_t)take(r, 1) % 4,
                              .part = (uint32_t)take(r, 1) % 4,
                              .flags = (uint32_t)take(r, 1),
                              .nrefs = (uint32_t)take(r, 1) % (REFS + 1)};
    for (uint32_t k = 0; k < frame.nrefs; k++)
        frame.refs[k] = (struct pst_ref){(uint32_t)take(r, 1) % 3, (uint32_t)take(r, 1) % (SLOTS + 2)};
    (void)pst_lane_push(&w->stage.inputs[i].rings[0], &frame);
}

/* Any bytes anywhere in what is shared, but for the lock. */
static void scribble(struct world *w, struct reader *r)
{
    uint64_t which = take(r, 1) % 6, at = take(r, 2), value = take(r, 8);
    char *to = which < 4 ? (char *)w->rings[which] : (char *)&w->pools[which - 4];
    size_t bytes = which < 4 ? pst_ring_bytes(CAPACITY, REFS) : sizeof(struct pst_pool);
    size_t lock = which < 4 ? 0 : offsetof(struct pst_pool, slots);
    at = lock + at % (bytes - lock - sizeof value);
    memcpy(to + at, &value, sizeof value);
}

static void wire(struct world *w, struct reader *r, pst_rc *rc)
{
    union {
        struct pst_wire head;
        char bytes[sizeof(struct pst_wire) + 4 * sizeof(struct pst_ref)];
    } m;
    m.head = (struct pst_wire){.magic = PST_WIRE_MAGIC,
                               .kind = (uint16_t)(take(r, 1) % 8),
                               .port = (uint16_t)(take(r, 1) % 8),
                               .batch = take(r, 1),
                               .micro = (uint32_t)take(r, 1),
                               .flags = (uint32_t)take(r, 1),
                               .nrefs = (uint32_t)take(r, 1) % 5};
    for (uint32_t k = 0; k < m.head.nrefs; k++) {
        struct pst_ref ref = {(uint32_t)take(r, 1) % 3, (uint32_t)take(r, 1) % (SLOTS + 2)};
        memcpy(m.bytes + sizeof m.head + k * sizeof ref, &ref, sizeof ref);
    }
    *rc = pst_host_hear(&w->stage, m.bytes, sizeof m.head + m.head.nrefs * sizeof(struct pst_ref));
}

static void raw(struct world *w, struct reader *r, pst_rc *rc)
{
    size_t have = (size_t)(r->end - r->at), n = take(r, 1);
    have -= have > 0;
    n = n < have ? n : have;
    char *bytes = malloc(n + 1); /* of its own, so that a step beyond its end is seen */
    fuzz_check(bytes);
    memcpy(bytes, r->at, n);
    r->at += n;
    *rc = pst_host_hear(&w->stage, bytes, n);
    free(bytes);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct world *w = calloc(1, sizeof *w);
    fuzz_check(w);
    build(w);
    struct reader r = {data, data + bytes};
    while (r.at < r.end) {
        pst_rc rc = PST_OK;
        switch (take(&r, 1) % 5) {
        case 0: push_frame(w, &r); break;
        case 1: scribble(w, &r); break;
        case 2: wire(w, &r, &rc); break;
        case 3: raw(w, &r, &rc); break;
        default:
            for (int i = 0; i < 64 && rc == PST_OK && pst_ports_step(&w->stage, &rc); i++)
                ;
        }
        /* a run would end at the first error; going on reaches further */
    }
    (void)pst_host_hand_done(&w->stage, &w->foreign.hand);
    (void)pst_ports_finished(&w->stage);
    (void)pst_ports_starved(&w->stage);
    tear_down(w);
    return 0;
}
