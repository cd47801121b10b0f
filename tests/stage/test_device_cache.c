/* The cache on a GPU and on a CPU gives every batch the rows of the dataset, and finds as many. The test is
 * its sampler, disk and trainer. It lands several batches before it waits for the GPU, so kernels run late.
 */
#include "stages/cache/cache.c"

#define HOST_STATE struct cache
#define HOST_ROUTES
#include "tests/stage/stage_host.h"

#include "common/store/dataset/rows.h"
#include "kernels/kernels.h"

enum { VERTICES = 83, SEEDS = 8, MOST = 30, FANOUT = 3, BATCHES = 24, BUFFERED = 9, NEAR = 4 };
enum { SAMPLES, ROWS, CACHED, ROUTES, SLOTS = 4 };

static struct pst_dataset data;
static struct pst_minibatch_layout sample_layout;

/* The slots of the routes: of samples in host memory, the others in memory that both host and kernels use. */
static struct {
    char *base;
    uint64_t bytes;
    bool taken[SLOTS];
} route[ROUTES];
static struct pst_device mine;
static struct pst_frame read_frames[SLOTS], sent[SLOTS], sent_cached[SLOTS];
static int nread, nsent, nsent_cached;
static int64_t brought, expected;

/* ---- the host's other half ----------------------------------------------------------------------- */

static int route_of(const struct pst_stage *self, int port)
{
    return port == pst_port(self, "sample") ? SAMPLES : port == pst_port(self, "cached") ? CACHED : ROWS;
}

bool pst_linked(const struct pst_stage *self, int port)
{
    return port != pst_port(self, "cached") || strncmp(self->device, "cuda:", 5) == 0;
}

bool pst_on_host(const struct pst_stage *self, int port)
{
    return route_of(self, port) != CACHED;
}

void pst_need(struct pst_stage *self, int port, uint64_t bytes, uint64_t align)
{
    assert_int_equal(align, PST_PAGE);
    route[route_of(self, port)].bytes = bytes;
}

uint32_t pst_slots(const struct pst_stage *self, int port)
{
    (void)self;
    (void)port;
    return SLOTS;
}

uint64_t pst_slot_bytes(const struct pst_stage *self, int port)
{
    return route[route_of(self, port)].bytes;
}

void *pst_slot(struct pst_stage *self, struct pst_ref ref, uint64_t *bytes)
{
    (void)self;
    assert_true(ref.route < ROUTES && ref.slot < SLOTS && route[ref.route].taken[ref.slot]);
    if (bytes)
        *bytes = route[ref.route].bytes;
    return route[ref.route].base + ref.slot * route[ref.route].bytes;
}

pst_rc pst_slot_queued(struct pst_stage *self, struct pst_ref ref)
{
    (void)self;
    assert_true(route[ref.route].taken[ref.slot]);
    return PST_OK;
}

pst_rc pst_slot_wait(struct pst_stage *self, struct pst_ref ref)
{
    return pst_slot_queued(self, ref); /* the test has no kernels */
}

pst_rc pst_release(struct pst_stage *self, struct pst_ref ref, bool dirty)
{
    (void)self;
    assert_true(ref.route == SAMPLES && !dirty && route[SAMPLES].taken[ref.slot]);
    route[SAMPLES].taken[ref.slot] = false;
    return PST_OK;
}

void pst_expect(struct pst_stage *self, int64_t delta)
{
    (void)self;
    expected += delta;
}

void pst_bus_pass(struct pst_stage *self, uint64_t bytes)
{
    (void)self;
    (void)bytes;
}

/* The disk: reads what was requested. */
static void read_rows(char *slot, const struct pst_frame *frame)
{
    const struct pst_request *r = (const struct pst_request *)(const void *)(slot + frame->arg[0]);
    for (uint64_t i = 0; i < frame->arg[1]; i++) {
        assert_true(r[i].array == PST_ARRAY_FEATURES && r[i].rows == 1 && r[i].row < (uint64_t)VERTICES);
        memcpy(slot + r[i].offset, (const char *)data.features.map + r[i].row * data.stride_bytes,
               data.stride_bytes);
    }
}

pst_rc pst_send(struct pst_stage *self, int port, const struct pst_frame *frame)
{
    char *slot = pst_slot(self, frame->refs[0], NULL);
    assert_int_equal(frame->nrefs, 1);
    if (port == pst_port(self, "rows")) {
        read_rows(slot, frame);
        self->requests += frame->arg[1];
        if (frame->flags & PST_LAST_PART) {
            struct pst_minibatch *mb = (struct pst_minibatch *)(void *)slot;
            pst_minibatch_serve(slot, route[ROWS].bytes, mb->requests);
            assert_true(nread < SLOTS);
            read_frames[nread++] = *frame;
        }
        return PST_OK;
    }
    const bool cached = port == pst_port(self, "cached");
    int *n = cached ? &nsent_cached : &nsent;
    assert_true(*n < SLOTS);
    (cached ? sent_cached : sent)[(*n)++] = *frame;
    return PST_OK;
}

/* ---- the sampler ---------------------------------------------------------------------------------- */

/* A batch whose vertices are spread about one that moves slowly, so that many come again soon. */
static void fill_sample(char *slot, uint64_t batch)
{
    struct pst_minibatch *mb = (struct pst_minibatch *)(void *)slot;
    const int64_t n = MOST - (int64_t)(batch % 5);
    memset(slot, 0, route[SAMPLES].bytes);
    *mb = (struct pst_minibatch){.magic = PST_MINIBATCH_MAGIC,
                                 .batch = batch,
                                 .batches_in_epoch = BATCHES,
                                 .last_micro = 1,
                                 .batch_seeds = SEEDS};
    pst_minibatch_place(mb, &sample_layout);
    mb->n[0] = SEEDS;
    mb->n[1] = n;
    int64_t *ids = pst_minibatch_at(mb, mb->vertices_at);
    int32_t *indptr = pst_minibatch_at(mb, mb->indptr_at[0]);
    for (int64_t i = 0; i < n; i++)
        ids[i] = ((int64_t)batch * 6 + i * (i % 3 == 0 ? 1 : 2) + (i % 3) * 29) % VERTICES;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < i; k++)
            if (ids[k] == ids[i]) { /* each once */
                ids[i] = (ids[i] + 1) % VERTICES;
                k = -1;
            }
    for (int64_t i = 0; i < SEEDS; i++)
        indptr[i + 1] = (int32_t)i + 1;
    for (int64_t i = 0; i < SEEDS; i++)
        ((int32_t *)pst_minibatch_at(mb, mb->indices_at[0]))[i] = (int32_t)(n - 1 - i);
}

/* ---- the trainer ---------------------------------------------------------------------------------- */

/* Every row is the dataset's, from whichever slot a trainer takes it. */
static void check_rows(const char *slot, const char *cached)
{
    const struct pst_minibatch *mb = (const struct pst_minibatch *)(const void *)slot;
    const int64_t *ids = pst_minibatch_at(mb, mb->vertices_at);
    const int32_t *missing = pst_minibatch_at(mb, mb->missing_at);
    bool in_slot[MOST];
    if (pst_minibatch_check(mb, route[ROWS].bytes) != PST_OK || pst_minibatch_check_served(mb) != PST_OK)
        fail_msg("%s", pst_error_text());
    for (int64_t i = 0; i < mb->n[1]; i++)
        in_slot[i] = cached == NULL;
    for (uint32_t i = 0; i < mb->requests; i++)
        in_slot[missing[i]] = true;
    brought += mb->requests;
    for (int64_t i = 0; i < mb->n[1]; i++) {
        const char *row = in_slot[i] ? slot + mb->features_at : cached;
        if (memcmp(row + (uint64_t)i * data.stride_bytes,
                   (const char *)data.features.map + (uint64_t)ids[i] * data.stride_bytes,
                   (size_t)data.feature_dim * sizeof(float)) != 0)
            fail_msg("batch %llu: row %lld, of vertex %lld, is wrong in the %s",
                     (unsigned long long)mb->batch, (long long)i, (long long)ids[i],
                     in_slot[i] ? "slot of the batch" : "slot of cached rows");
    }
}

/* Uses up what has come, once the stage's kernels are done. The next user leaves nothing as it was. */
static void train(struct pst_stage *host)
{
    if (host->stream)
        assert_true(gpu_stream_done(host->device, host->stream));
    assert_int_equal(nsent_cached, host->stream ? nsent : 0);
    for (int i = 0; i < nsent; i++) {
        char *slot = pst_slot(host, sent[i].refs[0], NULL),
             *cached = host->stream ? pst_slot(host, sent_cached[i].refs[0], NULL) : NULL;
        check_rows(slot, cached);
        memset(slot, 0xEE, route[ROWS].bytes);
        route[ROWS].taken[sent[i].refs[0].slot] = false;
        if (cached == NULL)
            continue;
        assert_true(sent[i].batch == sent_cached[i].batch && sent[i].micro == sent_cached[i].micro);
        memset(cached, 0xEE, route[CACHED].bytes);
        route[CACHED].taken[sent_cached[i].refs[0].slot] = false;
    }
    nsent = nsent_cached = 0;
}

/* ---- driving it ------------------------------------------------------------------------------------ */

static void deliver(struct pst_stage *host, struct pst_event event)
{
    if (pst_stage.on_event(host, &event) != PST_OK)
        fail_msg("%s", pst_error_text());
}

/* A free slot; -1: there is none. */
static int take(int r)
{
    int slot = 0;
    while (slot < SLOTS && route[r].taken[slot])
        slot++;
    if (slot == SLOTS)
        return -1;
    route[r].taken[slot] = true;
    return slot;
}

static void grant(struct pst_stage *host, int r, const char *port, uint64_t *batch)
{
    const int slot = *batch < BATCHES ? take(r) : -1;
    if (slot >= 0)
        deliver(host, (struct pst_event){.kind = PST_EV_CREDIT,
                                         .port = pst_port(host, port),
                                         .credit = {.batch = (*batch)++,
                                                    .ref = {.route = (uint32_t)r, .slot = (uint32_t)slot},
                                                    .previous_batch = UINT64_MAX}});
}

static void drive(struct pst_stage *host)
{
    const struct cache *c = host->state;
    uint64_t sampled = 0, granted = 0, granted_cached = 0, done = 0;
    bool ended = false;
    while (done < BATCHES) {
        const int slot = sampled < BATCHES ? take(SAMPLES) : -1;
        if (slot >= 0) {
            struct pst_frame frame = {.batch = sampled,
                                      .flags = PST_LAST_PART | PST_LAST_MICRO,
                                      .nrefs = 1,
                                      .refs = {{.route = SAMPLES, .slot = (uint32_t)slot}}};
            fill_sample(pst_slot(host, frame.refs[0], NULL), sampled++);
            deliver(host, (struct pst_event){
                              .kind = PST_EV_FRAME, .port = pst_port(host, "sample"), .frame = &frame});
        }
        if (sampled == BATCHES && !ended)
            deliver(host, (struct pst_event){.kind = PST_EV_END, .port = pst_port(host, "sample")});
        ended = sampled == BATCHES;
        if (!c->credited)
            grant(host, ROWS, "rows", &granted);
        for (int i = 0; i < nread; i++) /* slots of cached rows come later */
            deliver(host, (struct pst_event){.kind = PST_EV_FRAME,
                                             .port = pst_port(host, "landed"),
                                             .frame = &read_frames[i]});
        nread = 0;
        if (pst_cache_stage_on_gpu(c) && !c->credited_cached)
            grant(host, CACHED, "cached", &granted_cached);
        if (nsent >= SLOTS - 1 || (granted == BATCHES && nsent > 0 && nread == 0)) {
            done += (uint64_t)nsent;
            train(host);
        }
    }
    assert_int_equal(expected, 0);
    for (int r = 0; r < ROUTES; r++)
        for (int s = 0; s < SLOTS; s++)
            assert_false(route[r].taken[s]);
}

static const char *make_plan(void)
{
    static char path[600];
    static float scores[2 * VERTICES];
    int64_t buffered[BUFFERED];
    struct pst_plan plan = {.vertices = VERTICES,
                            .epochs = 1,
                            .batches = BATCHES,
                            .sampled = BATCHES,
                            .rows = {.n = BUFFERED, .gpu_n = NEAR, .ids = buffered},
                            .max = {.hops = 1, .n = {SEEDS, MOST}, .edges = {SEEDS * FANOUT}}};
    for (int64_t i = 0; i < BUFFERED; i++)
        buffered[i] = (i * 31 + 7) % VERTICES;
    for (int64_t v = 0; v < 2 * VERTICES; v++)
        scores[v] = (float)(v * 37 % 64);
    plan.key.hops = 1;
    plan.key.fanout[0] = FANOUT;
    plan.key.batch = SEEDS;
    snprintf(plan.key.algorithm, sizeof plan.key.algorithm, "uniform");
    snprintf(plan.key.split, sizeof plan.key.split, "train");
    memcpy(plan.key.dataset, data.digest, sizeof plan.key.dataset);
    if (pst_plan_write(&plan, scores, in_scratch("plan"), path, sizeof path) != PST_OK)
        fail_msg("%s", pst_error_text());
    return path;
}

struct found {
    int64_t hits, kept, misses, brought, gpu_hits;
};

static int64_t number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return (int64_t)strtod(at + strlen(key), NULL);
}

/* All up to `open`. */
static void begin(struct pst_stage *host, const char *device, const char *policy, const char *lines)
{
    char bytes[64];
    host_begin(host, data.dir, device, scratch);
    host->oneshot = make_plan();
    snprintf(bytes, sizeof bytes, "%lld", (long long)(atoi(lines) * (int64_t)data.stride_bytes));
    host_set(host, "fanout", "[3]");
    host_set(host, "margin", "1");
    host_set(host, "window", "3");
    host_set(host, "policy", policy);
    host_set(host, "cache_bytes", bytes);
    host_bind(host);
    memset(route, 0, sizeof route);
    nread = nsent = nsent_cached = 0;
    brought = expected = 0;
    assert_int_equal(pst_device_open(&mine, device), PST_OK);
    if (pst_stage.size(host) != PST_OK)
        fail_msg("%s", pst_error_text());
    pst_minibatch_layout_init(&sample_layout, &host->state->layout.size, 0);
    route[SAMPLES].bytes = sample_layout.bytes;
    for (int r = 0; r < ROUTES; r++) {
        void *at = NULL;
        if (route[r].bytes > 0 &&
            pst_device_take(&mine, PST_TWIN_MEMORY_PINNED, SLOTS * route[r].bytes, "slots", &at) != PST_OK)
            fail_msg("%s", pst_error_text());
        route[r].base = at;
    }
}

static void finish(struct pst_stage *host)
{
    pst_stage.close(host);
    pst_device_close(&mine);
    json_decref(host->params);
    free(host->state);
}

static struct found run(const char *device, const char *policy, const char *lines)
{
    struct pst_stage host;
    begin(&host, device, policy, lines);
    if (pst_stage.open(&host) != PST_OK)
        fail_msg("%s", pst_error_text());
    drive(&host);
    finish(&host);
    assert_non_null(strstr(host.reports, host.stream ? "\"memory\": \"gpu\"" : "\"memory\": \"host\""));
    const struct found found = {.hits = number_after(strstr(host.reports, "lines {"), "\"hits\": "),
                                .kept = number_after(host.reports, "\"kept\": "),
                                .misses = number_after(host.reports, "\"misses\": "),
                                .brought = brought,
                                .gpu_hits = number_after(host.reports, "\"gpu_hits\": ")};
    assert_int_equal(found.misses, host.requests);
    return found;
}

static void each_batch_has_its_rows(void **state)
{
    (void)state;
    bool some_left = false;
    const char *const policies[] = {"\"window\"", "\"random\"", "\"lookahead\"", "\"static\"", "\"lru\""};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        const char *lines = i % 2 == 0 ? "17" : "40";
        const struct found cpu = run("cpu:0", policies[i], lines), gpu = run("cuda:0", policies[i], lines);
        assert_true(gpu.hits > 0 && gpu.gpu_hits > gpu.hits &&
                    (gpu.kept > 0) == (strcmp(policies[i], "\"static\"") != 0));
        some_left = some_left || (gpu.kept > 0 && gpu.kept < gpu.misses);
        assert_true(gpu.hits == cpu.hits && gpu.kept == cpu.kept && gpu.misses == cpu.misses &&
                    gpu.gpu_hits == cpu.gpu_hits);
        assert_int_equal(gpu.brought + gpu.kept, gpu.misses); /* each passes the bus once */
        assert_int_equal(cpu.brought, cpu.misses);
    }
    assert_true(some_left); /* a batch whose misses are kept in part */
    assert_int_equal(virtual_gpu_left(), 0);
}

static pst_rc open_with(uint64_t gpu_bytes)
{
    struct pst_stage host;
    char text[32];
    begin(&host, "cuda:0", "\"static\"", "80");
    snprintf(text, sizeof text, "%llu", (unsigned long long)gpu_bytes);
    setenv("PENSTOCK_HOST_GPU_BYTES", text, 1);
    const pst_rc rc = pst_stage.open(&host);
    unsetenv("PENSTOCK_HOST_GPU_BYTES");
    finish(&host);
    return rc;
}

/* A GPU with room for all but some of the lines. What was taken before is given back. */
static void too_many_lines_are_told(void **state)
{
    (void)state;
    uint64_t too_small = 0, enough = 256 << 20;
    if (!gpu_is_virtual())
        skip();
    while (enough - too_small > 64) {
        const uint64_t bytes = (too_small + enough) / 2;
        *(open_with(bytes) == PST_OK ? &enough : &too_small) = bytes;
    }
    assert_int_equal(open_with(enough - 40 * data.stride_bytes), PST_E_NOMEM);
    assert_non_null(strstr(pst_error_text(), "cannot allocate lines (set a smaller cache_bytes)"));
    assert_int_equal(virtual_gpu_left(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_batch_has_its_rows),
                                       cmocka_unit_test(too_many_lines_are_told)};
    gpu_setup();
    if (scratch_setup(NULL) != 0 || pst_dataset_open(&data, host_dataset("data", VERTICES)) != PST_OK ||
        pst_rows_map_features(&data) != PST_OK)
        return 1;
    const int failed = cmocka_run_group_tests_name("test_device_cache", tests, NULL, NULL);
    pst_dataset_close(&data);
    (void)scratch_teardown(NULL);
    return failed;
}
