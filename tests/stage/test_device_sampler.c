/* The sampler on a GPU fills slots with what the CPU's fills them with, to the byte. */
#include "stages/sampler.c"

#include "tests/stage/stage_host.h"
#include "tests/gpu/host_counts.h"

#include "common/slots/minibatch.h"
#include "common/slots/request.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/topology/lists_device.h"
#include "stages/lib/topology/topology.h"

#include <xxhash.h>

enum { VERTICES = 400, CACHED = 70 };

static char dataset[512];
/* Between sends, the last one first; all 0 if nothing was counted. While a batch is sent, the next one is on
 * the queue: its work counts before, so that of the last batch is in spent[1]. */
static uint64_t spent[2][PST_HOST_COUNTS], made; /* graphs of the whole run */
static bool taken[HOST_SLOTS];                   /* by the stage */
static uint32_t most_taken;                      /* at a time */
static struct pst_credit want;                   /* the next piece of a batch that was split; micro 0: none */
static uint64_t sent_batch;                      /* the last one that was sent */

/* ---- the host's other half: frames --------------------------------------------------------------- */

/* What a reader of this minibatch sees, but for rows that the disk would bring. */
static uint64_t digest_of(uint64_t seed, const struct pst_minibatch *mb)
{
    const struct pst_request *requests = pst_minibatch_at(mb, mb->requests_at);
    const uint64_t rows = (uint64_t)mb->n[mb->hops];
    uint64_t d = XXH3_64bits_withSeed(mb, sizeof *mb, seed);
    d = XXH3_64bits_withSeed(pst_minibatch_at(mb, mb->vertices_at), rows * sizeof(int64_t), d);
    d = XXH3_64bits_withSeed(pst_minibatch_at(mb, mb->labels_at), (size_t)mb->n[0] * sizeof(int32_t), d);
    for (uint32_t h = 0; h < mb->hops; h++) {
        const int32_t *indptr = pst_minibatch_at(mb, mb->indptr_at[h]);
        d = XXH3_64bits_withSeed(indptr, ((size_t)mb->n[h] + 1) * sizeof *indptr, d);
        d = XXH3_64bits_withSeed(pst_minibatch_at(mb, mb->indices_at[h]), (size_t)indptr[mb->n[h]] * 4, d);
        if (mb->weights_at[h])
            d = XXH3_64bits_withSeed(pst_minibatch_at(mb, mb->weights_at[h]), (size_t)indptr[mb->n[h]] * 4,
                                     d);
    }
    d = XXH3_64bits_withSeed(requests, mb->requests * sizeof *requests, d);
    for (uint64_t row = 0, r = 0; row < rows; row++) {
        const uint64_t at = mb->features_at + row * mb->stride_bytes;
        if (r < mb->requests && requests[r].offset == at)
            r++;
        else
            d = XXH3_64bits_withSeed(pst_minibatch_at(mb, at), mb->feature_dim * sizeof(float), d);
    }
    return d;
}

pst_rc pst_send(struct pst_stage *self, int port, const struct pst_frame *frame)
{
    struct pst_minibatch *mb = pst_slot(self, frame->refs[0], &(uint64_t){0});
    (void)port;
    self->requests += frame->arg[1];
    if (!(frame->flags & PST_LAST_PART))
        return PST_OK;
    if (pst_minibatch_check(mb, self->need) != PST_OK) /* now: all but cached rows must be there */
        fail_msg("%s", pst_error_text());
    if (self->stream)
        assert_true(gpu_stream_done(self->device, self->stream));
    memcpy(spent[1], spent[0], sizeof spent[1]);
    if (self->stream && host_counts(spent[0])) {
        spent[0][PST_HOST_WAITS] -= (uint64_t)gpu_own_waits;
        made += spent[0][PST_HOST_GRAPHS_MADE];
        gpu_own_waits = 0;
    }
    self->vain_slots += mb->n[mb->hops] == 0;
    self->vain_requests += mb->n[mb->hops] == 0 ? mb->requests : 0;
    self->sent_digest = digest_of(self->sent_digest, mb);
    self->frames++;
    taken[frame->refs[0].slot] = false;
    if (!(frame->flags & PST_LAST_MICRO))
        want = (struct pst_credit){.batch = frame->batch, .micro = frame->micro + 1};
    if (frame->batch < sent_batch) /* a batch's micro-batches come one after the other */
        fail_msg("batch %llu was sent behind batch %llu", (unsigned long long)frame->batch,
                 (unsigned long long)sent_batch);
    sent_batch = frame->batch;
    return PST_OK;
}

/* Gives the stage a slot, if it may have one more. False: it may not, or all batches are granted. */
static bool grant(struct pst_stage *host, uint64_t *next, pst_rc *rc)
{
    const uint32_t most = host->ahead > 0 ? host->ahead : 1;
    struct pst_event event = {.kind = PST_EV_CREDIT, .port = pst_port(host, "batch")};
    uint32_t slot = 0, now = 0;
    for (uint32_t i = 0; i < HOST_SLOTS; i++)
        now += taken[i];
    while (slot < HOST_SLOTS && taken[slot])
        slot++;
    if (now >= most || slot == HOST_SLOTS || (want.micro == 0 && *next >= host->total))
        return false;
    event.credit = want.micro > 0 ? want : (struct pst_credit){.batch = (*next)++};
    event.credit.ref.slot = slot;
    event.credit.previous_batch = UINT64_MAX;
    want.micro = 0;
    taken[slot] = true;
    most_taken = now + 1 > most_taken ? now + 1 : most_taken;
    memset(host->slot + slot * host->room, 0xEE, host->need);
    *rc = pst_stage.on_event(host, &event);
    return true;
}

/* Credits for all batches of the run, and then the timer, as the runtime does it. */
static pst_rc sample_all(struct pst_stage *host)
{
    uint64_t next = 0;
    pst_rc rc = host_open(host);
    if (rc == PST_OK && host->stream)
        (void)host_counts(spent[0]); /* what follows is for batches */
    memset(taken, 0, sizeof taken);
    want.micro = most_taken = 0;
    made = 0;
    sent_batch = 0;
    for (bool any = true; any && rc == PST_OK;) {
        const struct pst_event timer = {.kind = PST_EV_TIMER};
        any = grant(host, &next, &rc);
        if (rc == PST_OK && host->timer) {
            any = true;
            host->timer = false;
            rc = pst_stage.on_event(host, &timer);
        }
    }
    return rc;
}

/* ---- a plan -------------------------------------------------------------------------------------- */

static struct pst_plan_tiers planned_lists; /* of every plan that is made */

/* Of `share` times what the worst batch takes, with some rows cached. */
static const char *make_plan(const char *fanout_text, double share)
{
    static char path[600];
    static float scores[(PST_HOPS_MAX + 1) * VERTICES];
    struct pst_dataset ds;
    json_t *fanout = json_loads(fanout_text, 0, NULL);
    int64_t cache[CACHED];
    struct pst_plan plan = {.vertices = VERTICES,
                            .epochs = 1,
                            .batches = 1,
                            .sampled = 1,
                            .rows = {.n = CACHED, .ids = cache},
                            .lists = planned_lists};
    struct pst_minibatch_size bound;
    assert_int_equal(pst_dataset_open(&ds, dataset), PST_OK);
    for (int64_t i = 0; i < CACHED; i++)
        cache[i] = (i * 7 + 3) % VERTICES;
    plan.key.hops = (int)json_array_size(fanout);
    for (int h = 0; h < plan.key.hops; h++)
        plan.key.fanout[h] = json_integer_value(json_array_get(fanout, (size_t)h));
    json_decref(fanout);
    const struct pst_csc graph = pst_topology_mapped(&ds);
    struct pst_sampling_opened uniform;
    assert_int_equal(pst_sampling_algorithm_find(&uniform, "uniform"), PST_OK);
    snprintf(plan.key.algorithm, sizeof plan.key.algorithm, "uniform");
    plan.key.batch = 60;
    snprintf(plan.key.split, sizeof plan.key.split, "train");
    memcpy(plan.key.dataset, ds.digest, sizeof plan.key.dataset);
    pst_sampling_size_bound(&bound, &uniform, &graph, plan.key.fanout, plan.key.hops, plan.key.batch);
    pst_minibatch_size_scale(&plan.max, &bound, &bound, share);
    if (pst_plan_write(&plan, scores, in_scratch("plan"), path, sizeof path) != PST_OK)
        fail_msg("%s", pst_error_text());
    pst_dataset_close(&ds);
    return path;
}

/* ---- tests --------------------------------------------------------------------------------------- */

struct choice {
    const char *fanout, *replace, *gpu_topology;
    double planned; /* share of the worst case that the plan says; 0: no plan */
    const char *margin;
    const char *algorithm, *options; /* NULL: uniform */
};

static pst_rc run(struct pst_stage *host, const char *device, const struct choice *c)
{
    host_begin(host, dataset, device, scratch);
    host_set(host, "fanout", c->fanout);
    host_set(host, "batch", "60");
    host_set(host, "replace", c->replace);
    host_set(host, "gpu_topology", c->gpu_topology);
    host->oneshot = c->planned > 0 ? make_plan(c->fanout, c->planned) : NULL;
    host_set(host, "margin", c->margin);
    if (c->algorithm) {
        host_set(host, "algorithm", c->algorithm);
        host_set(host, "options", c->options);
    }
    const pst_rc rc = sample_all(host);
    if (rc == PST_OK && host->stream && gpu_is_virtual())
        assert_true(virtual_gpu_priority(host->stream) < 0); /* before a trainer of the same process */
    host_end(host);
    return rc;
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

static void compare(const struct choice *c)
{
    static const char *const same[] = {
        "\"batches\": ", "\"micro_batches\": ", "\"overflows\": ", "\"rows\": "};
    struct pst_stage cpu, gpu;
    if (run(&cpu, "cpu:0", c) != PST_OK || run(&gpu, "cuda:0", c) != PST_OK)
        fail_msg("fanout %s: %s", c->fanout, pst_error_text());
    assert_true(cpu.frames > 0);
    assert_int_equal(gpu.frames, cpu.frames);
    if (gpu.sent_digest != cpu.sent_digest)
        fail_msg("fanout %s, replace %s: the slots differ", c->fanout, c->replace);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_true(number_after(gpu.reports, same[i]) == number_after(cpu.reports, same[i]));
    if (number_after(cpu.reports, "\"overflows\": ") > 0)
        return;
    assert_int_equal(gpu.requests, cpu.requests);
    assert_true(number_after(gpu.reports, "\"hits\": ") == number_after(cpu.reports, "\"hits\": "));
    assert_true(number_after(gpu.reports, "\"lookups\": ") == number_after(cpu.reports, "\"lookups\": "));
}

static void slots_are_equal(void **state)
{
    (void)state;
    const struct choice all[] = {
        {"[4, 3]", "false", "\"1GiB\"", 0, "1", NULL, NULL},
        {"[3, 2, 2]", "true", "0", 1, "1", NULL, NULL},
        {"[5, 0, 2]", "false", "0", 0, "1", NULL, NULL},
        {"[-1, 2]", "false", "\"1GiB\"", 1, "1", NULL, NULL},
        {"[40]", "false", "0", 1, "1", NULL, NULL},
        {"[4, 3]", "false", "0", 1, "1", "\"labor\"", "\"batch_dependency=3\""},
        {"[4, -1]", "false", "\"1GiB\"", 0, "1", "\"labor\"", "\"iterations=1, layer_dependency=1\""},
        {"[2, 0, 3]", "false", "0", 0, "1", "\"labor\"", "\"iterations=2\""},
        {"[40, 30]", "false", "\"1GiB\"", 0, "1", "\"ladies\"", "\"\""},
        {"[0, 1, -1]", "false", "0", 0, "1", "\"ladies\"", "\"layer_sizes=9:50:1\""},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        compare(&all[i]);
    assert_int_equal(virtual_gpu_left(), 0);
}

/* A CPU cuts a batch whose neighbours depend on all of it; a GPU says what to do. */
static void whole_batches_are_cut_on_cpus(void **state)
{
    (void)state;
    struct pst_stage host;
    const struct choice half = {"[9, 9]", "false", "0", 0, "0.4", "\"ladies\"", "\"\""};
    assert_int_equal(run(&host, "cpu:0", &half), PST_OK);
    assert_true(number_after(host.reports, "\"overflows\": ") > 0 ||
                number_after(host.reports, "\"micro_batches\": ") >
                    number_after(host.reports, "\"batches\": "));
    assert_int_equal(run(&host, "cuda:0", &half), PST_E_LIMIT);
    if (!strstr(pst_error_text(), "can only sample a batch that is not split") ||
        !strstr(pst_error_text(), "set the parameter margin"))
        fail_msg("%s", pst_error_text());
}

/* Slots that are too small: batches are cut into the same pieces. */
static void splits_are_equal(void **state)
{
    (void)state;
    struct pst_stage gpu;
    const struct choice half = {"[4, 3]", "false", "0", 1, "0.3", NULL, NULL};
    compare(&half);
    assert_int_equal(run(&gpu, "cuda:0", &half), PST_OK);
    assert_true(number_after(gpu.reports, "\"overflows\": ") > 0);
    assert_non_null(strstr(gpu.reports, "\"topology\": \"pinned\""));
}

/* On a CPU, rows are announced hop by hop while batches fit. A batch that does not fit then sends one empty
 * slot. The next ones announce nothing before they know, so nothing more is read in vain. */
static void few_rows_are_read_in_vain(void **state)
{
    (void)state;
    const struct choice whole = {"[4, 3]", "false", "0", 0.3, "1", NULL, NULL},
                        split = {"[4, 3]", "false", "0", 1, "0.3", NULL, NULL};
    struct pst_stage cpu;
    assert_int_equal(run(&cpu, "cpu:0", &whole), PST_OK);
    assert_true(number_after(cpu.reports, "\"overflows\": ") >= 4);
    assert_true(number_after(cpu.reports, "\"empty_slots\": ") == 1);
    assert_int_equal(cpu.vain_slots, 1);
    assert_true(cpu.vain_requests > 0);
    assert_int_equal(run(&cpu, "cpu:0", &split), PST_OK); /* every batch is split: it begins with care */
    assert_true(number_after(cpu.reports, "\"overflows\": ") >= 4);
    assert_true(number_after(cpu.reports, "\"empty_slots\": ") == 0);
    assert_int_equal(cpu.vain_slots + cpu.vain_requests, 0);
}

static void many_overflows_are_a_warning(void **state)
{
    (void)state;
    struct pst_stage host;
    const struct choice small = {"[4, 3]", "false", "\"1GiB\"", 0.3, "1.05", NULL, NULL},
                        large = {"[4, 3]", "false", "\"1GiB\"", 1, "1", NULL, NULL};
    const char *const devices[] = {"cpu:0", "cuda:0"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(&host, devices[i], &small), PST_OK);
        if (!strstr(host.warnings, "did not fit a slot") ||
            !strstr(host.warnings, "margin of stage \"sampler\" to ") ||
            !strstr(host.warnings, "(it is 1.05)"))
            fail_msg("warned \"%s\"", host.warnings);
        const double wanted = number_after(host.warnings, "margin of stage \"sampler\" to ");
        char margin[32];
        snprintf(margin, sizeof margin, "%.2f", wanted);
        assert_int_equal(
            run(&host, devices[i], &(struct choice){"[4, 3]", "false", "\"1GiB\"", 0.3, margin, NULL, NULL}),
            PST_OK);
        assert_string_equal(host.warnings, ""); /* what was advised is enough */
        assert_int_equal(run(&host, devices[i], &large), PST_OK);
        assert_string_equal(host.warnings, "");
    }
}

static void limits_are_named(void **state)
{
    (void)state;
    struct pst_stage gpu;
    const struct choice one = {"[4, 3]", "false", "\"1GiB\"", 0.0001, "1", NULL, NULL};
    assert_int_equal(run(&gpu, "cuda:0", &one), PST_E_LIMIT);
    if (!strstr(pst_error_text(), "alone would need") || !strstr(pst_error_text(), "set margin to"))
        fail_msg("%s", pst_error_text());
    if (!gpu_is_virtual())
        return;
    setenv("PENSTOCK_HOST_GPU_BYTES", "4255568", 1);
    const pst_rc rc =
        run(&gpu, "cuda:0", &(struct choice){"[4, 3]", "false", "\"1GiB\"", 0, "1", NULL, NULL});
    unsetenv("PENSTOCK_HOST_GPU_BYTES");
    assert_int_equal(rc, PST_E_NOMEM);
    if (!strstr(pst_error_text(), "bytes of device memory") ||
        !strstr(pst_error_text(), "of its 4255568 bytes are free"))
        fail_msg("%s", pst_error_text());
    assert_int_equal(virtual_gpu_left(), 0);
}

static void damage_is_named(void **state)
{
    (void)state;
    struct pst_dataset ds;
    struct pst_stage gpu;
    const int32_t wrong = VERTICES + 7;
    assert_int_equal(pst_dataset_open(&ds, dataset), PST_OK);
    FILE *file = fopen(ds.indices.path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)ds.indices.data_at, SEEK_SET), 0);
    for (int64_t e = 0; e < ds.edges; e++)
        assert_int_equal(fwrite(&wrong, sizeof wrong, 1, file), 1);
    fclose(file);
    pst_dataset_close(&ds);
    assert_int_equal(run(&gpu, "cuda:0", &(struct choice){"[-1]", "false", "0", 0, "1", NULL, NULL}),
                     PST_E_FORMAT);
    if (!strstr(pst_error_text(), "cannot sample batch 0") || !strstr(pst_error_text(), "verify"))
        fail_msg("%s", pst_error_text());
}

/* What a batch costs: the table in kernels/cuda/README.md. */
static void counts_are_held(void **state)
{
    (void)state;
    struct pst_stage gpu;
    const struct choice cached = {"[4, 3]", "false", "\"1GiB\"", 1, "1", NULL, NULL};
    if (!gpu_is_virtual())
        skip();
    assert_int_equal(run(&gpu, "cuda:0", &cached), PST_OK);
    assert_true(gpu.frames > 1 && number_after(gpu.reports, "\"hits\": ") > 0);
    assert_int_equal(spent[1][PST_HOST_LAUNCHES], 20);
    assert_int_equal(spent[1][PST_HOST_LIBRARY], 1);
    assert_int_equal(spent[1][PST_HOST_COPIES], 7);
    assert_int_equal(spent[1][PST_HOST_GRAPHS], 1);
    assert_int_equal(spent[1][PST_HOST_CALLS], 1); /* the graph */
    assert_int_equal(spent[1][PST_HOST_WAITS], 1);
    assert_int_equal(spent[0][PST_HOST_WAITS], 1);
    assert_int_equal(spent[1][PST_HOST_BUS], 271);
    assert_int_equal(most_taken, 2);
    assert_in_range(made, 1, HOST_SLOTS * 2); /* one for each slot and lane, not for each batch */
    assert_true(gpu.frames > 2 * made);
}

/* Without graphs, and with an algorithm whose work differs from batch to batch, the host puts it on the queue
 * call by call. The samples are the same. */
static void batches_need_no_graphs(void **state)
{
    (void)state;
    struct pst_stage gpu, other;
    const struct choice cached = {"[4, 3]", "false", "\"1GiB\"", 1, "1", NULL, NULL},
                        labor = {"[4, 3]", "false", "0", 1, "1", "\"labor\"", "\"batch_dependency=3\""};
    assert_int_equal(run(&gpu, "cuda:0", &cached), PST_OK);
    setenv("PENSTOCK_GPU_GRAPHS", "0", 1);
    assert_int_equal(run(&other, "cuda:0", &cached), PST_OK);
    unsetenv("PENSTOCK_GPU_GRAPHS");
    assert_true(gpu.sent_digest == other.sent_digest);
    if (!gpu_is_virtual())
        return;
    assert_int_equal(made, 0);
    assert_int_equal(spent[1][PST_HOST_CALLS], 20 + 1 + 7);
    assert_int_equal(spent[1][PST_HOST_WAITS], 1);
    assert_int_equal(run(&gpu, "cuda:0", &labor), PST_OK);
    assert_int_equal(made, 0);
    assert_true(spent[1][PST_HOST_CALLS] > 20);
    assert_int_equal(spent[1][PST_HOST_WAITS], 1);
}

/* CUDA may wait for the stream before it copies more than 64 KiB from pageable memory. */
static void many_seeds_do_not_wait(void **state)
{
    (void)state;
    enum { MANY_VERTICES = 22500 }; /* 9000 of them are seeds */
    struct pst_stage gpu;
    if (!gpu_is_virtual())
        skip();
    host_begin(&gpu, host_dataset("large", MANY_VERTICES), "cuda:0", scratch);
    host_set(&gpu, "fanout", "[0]");
    host_set(&gpu, "batch", "9000");
    assert_int_equal(sample_all(&gpu), PST_OK);
    assert_true(gpu.frames > 0);
    host_end(&gpu);
    assert_true(spent[1][PST_HOST_COPIES] > 0);
    assert_int_equal(spent[1][PST_HOST_PAGEABLE] + spent[0][PST_HOST_PAGEABLE], 0);
}

static int setup(void **state)
{
    gpu_setup();
    if (scratch_setup(state) != 0)
        return -1;
    snprintf(dataset, sizeof dataset, "%s", host_dataset("data", VERTICES));
    return 0;
}

/* The thread that loads cached lists finds a vertex twice. The sampler reports it. */
static void bad_cached_lists_are_named(void **state)
{
    (void)state;
    int64_t twice[] = {5, 9, 5};
    struct pst_stage host;
    planned_lists = (struct pst_plan_tiers){.n = 3, .ids = twice};
    host_begin(&host, dataset, "cpu:0", scratch);
    host_set(&host, "fanout", "[4, 3]");
    host_set(&host, "batch", "60");
    host_set(&host, "topology", "\"ssd\"");
    host.oneshot = make_plan("[4, 3]", 1);
    host.lists = true;
    assert_int_equal(sample_all(&host), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "the plan caches the neighbours of vertex 5 twice"));
    planned_lists.n = 0;
    host_end(&host);
}

/* Lists of a clique's cache, more than one copy takes: a long one, and others of 0 to 4 entries. */
static void lists_are_copied_whole(void **state)
{
    (void)state;
    enum { LISTS = 200000, LONG = 2500000 };
    struct pst_device device;
    int64_t *indptr = malloc((LISTS + 1) * sizeof *indptr), *ids = malloc(LISTS * sizeof *ids), n = 0;
    int32_t *indices = malloc((LONG + 5 * LISTS) * sizeof *indices);
    uint64_t bytes = 0, entries = 0;
    assert_true(indptr != NULL && ids != NULL && indices != NULL);
    indptr[0] = 0;
    for (int64_t v = 0; v < LISTS; v++)
        indptr[v + 1] = indptr[v] + (v == 7 ? LONG : v % 5);
    for (int64_t e = 0; e < indptr[LISTS]; e++)
        indices[e] = (int32_t)(e * 7 % LISTS);
    for (int64_t v = 1; v < LISTS; v += v % 3 + 1)
        ids[n++] = v;
    const struct pst_csc graph = {indptr, indices, 4, LISTS, indptr[LISTS]};
    assert_int_equal(pst_device_open(&device, "cuda:0"), PST_OK);
    assert_int_equal(pst_device_queue(&device, (struct pst_queue_options){.most = 1}), PST_OK);
    assert_int_equal(pst_topology_lists_device_bytes(&graph, ids, n, &bytes), PST_OK);
    void *memory = NULL;
    char *back = malloc(bytes);
    assert_non_null(back);
    assert_int_equal(pst_device_take(&device, PST_TWIN_MEMORY_DEVICE, bytes, "lists", &memory), PST_OK);
    assert_int_equal(pst_topology_lists_device_write(&device, memory, &graph, ids, n), PST_OK);
    assert_int_equal(device.twin->copy(device.q, back, memory, bytes), PST_OK);
    assert_int_equal(pst_device_wait(&device), PST_OK);
    const int64_t *at = (const int64_t *)(void *)back;
    const char *from = back + pst_topology_lists_device_entries_at(n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t degree = indptr[ids[i] + 1] - indptr[ids[i]];
        assert_int_equal(at[i], entries);
        assert_memory_equal(from + entries * sizeof *indices, indices + indptr[ids[i]],
                            (size_t)degree * sizeof *indices);
        entries += (uint64_t)degree;
    }
    assert_int_equal(at[n], entries);
    assert_int_equal(bytes, (uint64_t)(from - back) + entries * sizeof *indices);
    assert_true(entries * sizeof *indices > (uint64_t)8 << 20);
    pst_device_close(&device);
    assert_int_equal(virtual_gpu_left(), 0);
    free(back);
    free(indptr);
    free(ids);
    free(indices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_equal),
        cmocka_unit_test(splits_are_equal),
        cmocka_unit_test(whole_batches_are_cut_on_cpus),
        cmocka_unit_test(few_rows_are_read_in_vain),
        cmocka_unit_test(many_overflows_are_a_warning),
        cmocka_unit_test(limits_are_named),
        cmocka_unit_test(counts_are_held),
        cmocka_unit_test(batches_need_no_graphs),
        cmocka_unit_test(many_seeds_do_not_wait),
        cmocka_unit_test(lists_are_copied_whole),
        cmocka_unit_test(bad_cached_lists_are_named),
        cmocka_unit_test(damage_is_named), /* the last: it spoils the dataset */
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
