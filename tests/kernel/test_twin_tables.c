/* The twins of dedup, hotness, cache lookup and gather, and of a batch that the host does not see: the same
 * to the last bit. */
#include "tests/kernel/twin_graph.h"
#include "kernels/digest.h"

#include <sys/mman.h>

/* ---- dedup --------------------------------------------------------------------------------------- */

/* Several calls a batch, several batches a table; the last call of a batch may be one id too many. */
static void test_dedup(void **state)
{
    (void)state;
    int refused = 0;
    FOR_SHAPES
    {
        const int64_t max_ids = size_below(3000),
                      capacity = rnd(3) ? max_ids + (int64_t)rnd(20) : size_below(max_ids);
        struct table t = table_new(max_ids);
        struct both vertices = both_new((size_t)capacity * I64 + I64), count = both_new(I64);
        for (int batch = 0; batch < 3; batch++) {
            cpu->dedup_reset(NULL, t.host);
            cuda->dedup_reset(queue, t.device);
            *(int64_t *)count.host = 0;
            send(&count);
            const uint64_t world = rnd(2) ? (uint64_t)max_ids + 2 : 1 + rnd(100);
            const uint64_t spread = rnd(2) ? 1 : (uint64_t)1 << rnd(40);
            bool more = true;
            for (int call = 0; call < 3 && more; call++) {
                const int64_t n = size_below(2500);
                struct both ids = both_new((size_t)n * I64), local = both_new((size_t)n * I32);
                for (int64_t i = 0; i < n; i++)
                    ((int64_t *)ids.host)[i] = (int64_t)(rnd(world) * spread);
                send(&ids);
                more = dedup_both(&t, &ids, n, &vertices, &count, capacity, rnd(4) ? &local : NULL);
                refused += !more;
                both_free(&ids);
                both_free(&local);
            }
        }
        both_free(&vertices);
        both_free(&count);
        table_free(&t);
    }
    assert_true(refused > 0);
}

/* Fewer places than ids, by far: it must not take for ever. */
static void test_dedup_crowded(void **state)
{
    (void)state;
    enum { N = 50000, MAX = 1000 };
    struct table t = table_new(MAX);
    struct both ids = both_new(N * I64), vertices = both_new((N + 1) * I64), count = both_new(I64);
    for (int64_t i = 0; i < N; i++)
        ((int64_t *)ids.host)[i] = i * 3;
    send(&ids);
    assert_false(dedup_both(&t, &ids, N, &vertices, &count, N, NULL));
    cpu->dedup_reset(NULL, t.host); /* and the table is as good as new */
    cuda->dedup_reset(queue, t.device);
    *(int64_t *)count.host = 0;
    send(&count);
    assert_true(dedup_both(&t, &ids, MAX, &vertices, &count, N, NULL));
    both_free(&ids);
    both_free(&vertices);
    both_free(&count);
    table_free(&t);
}

/* ---- cache --------------------------------------------------------------------------------------- */

static void test_count(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t vertices = 1 + size_below(500), n = size_below(5000);
        struct both ids = both_new((size_t)n * I64), counts = both_new((size_t)vertices * sizeof(uint32_t));
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)ids.host)[i] = (int64_t)rnd((uint64_t)vertices);
        for (int64_t v = 0; v < vertices; v++)
            ((uint32_t *)counts.host)[v] = rnd(3) ? (uint32_t)rnd(100) : UINT32_MAX - (uint32_t)rnd(10);
        send(&ids);
        send(&counts);
        cpu->count(NULL, ids.host, n, counts.host);
        cuda->count(queue, ids.device, n, counts.device);
        same_bytes(&counts, counts.bytes, "hotness");
        both_free(&ids);
        both_free(&counts);
    }
}

/* Vertices of a cache: all in order, some near each other, or a few far apart; some of them twice. */
static void random_cached(struct both *cached, int64_t n, int form)
{
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)cached->host)[i] =
            form == 0 ? i : (int64_t)rnd(form == 1 ? 2 * (uint64_t)n + 1 : (uint64_t)1 << 50);
    for (int64_t i = 0; form > 0 && i + 1 < n; i += 5)
        ((int64_t *)cached->host)[i + 1] = ((int64_t *)cached->host)[rnd((uint64_t)n)];
    send(cached);
}

static void test_lookup(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t rows = size_below(2000), n = size_below(3000);
        const int form = (int)rnd(3);
        struct both cached = both_new((size_t)rows * I64), ids = both_new((size_t)n * I64);
        struct both hit_pos = both_new((size_t)(n + 1) * I32), hit_row = both_new((size_t)(n + 1) * I32);
        struct both miss_pos = both_new((size_t)(n + 1) * I32), numbers = both_new(2 * I64);
        random_cached(&cached, rows, form);
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)ids.host)[i] =
                rows && rnd(2) ? ((int64_t *)cached.host)[rnd((uint64_t)rows)] : (int64_t)rnd(5000);
        send(&ids);
        void *host_memory = malloc(cpu->cache_bytes(rows)), *device_memory = NULL;
        assert_non_null(host_memory);
        assert_int_equal(cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, cuda->cache_bytes(rows), &device_memory, why),
                         PST_OK);
        const struct pst_cache *host = cpu->cache_init(host_memory, cached.host, rows);
        const struct pst_cache *device = cuda->cache_init(device_memory, cached.device, rows);
        assert_non_null(device);
        int64_t *on_host = numbers.host, *on_device = numbers.device;
        cpu->lookup(NULL, host, ids.host, n, hit_pos.host, hit_row.host, &on_host[0], miss_pos.host,
                    &on_host[1]);
        cuda->lookup(queue, device, ids.device, n, hit_pos.device, hit_row.device, &on_device[0],
                     miss_pos.device, &on_device[1]);
        same_bytes(&numbers, numbers.bytes, "hits and misses");
        same_bytes(&hit_pos, (size_t)on_host[0] * I32, "positions of hits");
        same_bytes(&hit_row, (size_t)on_host[0] * I32, "rows of hits");
        same_bytes(&miss_pos, (size_t)on_host[1] * I32, "positions of misses");
        free(host_memory);
        cuda->release(PST_TWIN_MEMORY_DEVICE, device_memory);
        struct both *all[] = {&cached, &ids, &hit_pos, &hit_row, &miss_pos, &numbers};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            both_free(all[i]);
    }
}

/* ---- gather -------------------------------------------------------------------------------------- */

static void test_gather(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const uint64_t unit = (uint64_t[]){1, 4, 16}[rnd(3)];
        const uint64_t row_bytes = rnd(2) ? unit * rnd(80) : rnd(1200),
                       stride = (row_bytes + unit - 1) / unit * unit + unit * rnd(3);
        const uint64_t dst_stride = (row_bytes + unit - 1) / unit * unit + unit * rnd(3),
                       skip = unit * rnd(3);
        const int64_t rows = 1 + size_below(300), n = rnd(4) ? size_below(500) : rows - 1;
        const bool from_rows = n > rows || rnd(3), to_positions = rnd(3);
        struct both src = both_new(skip + (size_t)rows * stride),
                    dst = both_new(skip + (size_t)(n + 1) * dst_stride);
        struct both row = both_new((size_t)n * I32), pos = both_new((size_t)n * I32);
        for (size_t i = 0; i < src.bytes; i++)
            ((uint8_t *)src.host)[i] = (uint8_t)rnd(256);
        for (int64_t i = 0; i < n; i++) {
            ((int32_t *)row.host)[i] = (int32_t)rnd((uint64_t)rows);
            ((int32_t *)pos.host)[i] = (int32_t)(n - 1 - i);
        }
        send(&src);
        send(&row);
        send(&pos);
        cpu->gather(NULL, (char *)src.host + skip, stride, from_rows ? row.host : NULL,
                    (char *)dst.host + skip, dst_stride, to_positions ? pos.host : NULL, n, row_bytes);
        cuda->gather(queue, (char *)src.device + skip, stride, from_rows ? row.device : NULL,
                     (char *)dst.device + skip, dst_stride, to_positions ? pos.device : NULL, n, row_bytes);
        same_bytes(&dst, dst.bytes, "gathered rows");
        struct both *all[] = {&src, &dst, &row, &pos};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            both_free(all[i]);
    }
}

/* Rows of two tiers, in memory apart; either may have none. */
static void test_gather_tiers(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const uint64_t unit = (uint64_t[]){1, 4, 16}[rnd(3)], row_bytes = unit * rnd(80),
                       stride = row_bytes + unit * rnd(3), skip = unit * rnd(3);
        const int64_t rows = 1 + size_below(300), n = size_below(500),
                      near = rnd(4)   ? (int64_t)rnd((uint64_t)rows + 1)
                             : rnd(2) ? rows
                                      : 0;
        struct both tier[2] = {both_new(skip + (size_t)near * stride + 1),
                               both_new(skip + (size_t)(rows - near) * stride + 1)};
        struct both dst = both_new((size_t)(n + 1) * stride), row = both_new((size_t)n * I32),
                    pos = both_new((size_t)n * I32), below = both_new(I64);
        for (int t = 0; t < 2; t++) {
            for (size_t i = 0; i < tier[t].bytes; i++)
                ((uint8_t *)tier[t].host)[i] = (uint8_t)rnd(256);
            send(&tier[t]);
        }
        for (int64_t i = 0; i < n; i++) {
            ((int32_t *)row.host)[i] = (int32_t)rnd((uint64_t)rows);
            ((int32_t *)pos.host)[i] = (int32_t)(n - 1 - i);
        }
        send(&row);
        send(&pos);
        struct pst_twin_tiers on_host = {(char *)tier[0].host + skip, (char *)tier[1].host + skip, near},
                              on_device = {(char *)tier[0].device + skip, (char *)tier[1].device + skip,
                                           near};
        if (near == 0)
            on_host.near = on_device.near = NULL;
        if (near == rows)
            on_host.far = on_device.far = NULL;
        const struct pst_twin_n all = {NULL, n};
        const bool to_positions = rnd(3);
        cpu->gather_tiers_n(NULL, &on_host, stride, row.host, dst.host, stride,
                            to_positions ? pos.host : NULL, all, row_bytes);
        cuda->gather_tiers_n(queue, &on_device, stride, row.device, dst.device, stride,
                             to_positions ? pos.device : NULL, all, row_bytes);
        same_bytes(&dst, dst.bytes, "rows of two tiers");
        cpu->count_below_n(NULL, row.host, all, near, below.host);
        cuda->count_below_n(queue, row.device, all, near, below.device);
        same_bytes(&below, below.bytes, "rows of the first tier");
        struct both *every[] = {&tier[0], &tier[1], &dst, &row, &pos, &below};
        for (size_t i = 0; i < sizeof every / sizeof *every; i++)
            both_free(every[i]);
    }
}

/* Rows whose places pass 2^31 and 2^32 bytes. */
static void test_gather_far(void **state)
{
    (void)state;
    needs_gigabytes();
    enum { N = 64, ROWS = (1 << 20) + 4096, STRIDE = 4112 }; /* 4.3 GB */
    const size_t bytes = (size_t)ROWS * STRIDE;
    void *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *device = NULL;
    assert_true(host != MAP_FAILED);
    if (cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, bytes, &device, why) != PST_OK)
        fail_msg("%s", why);
    struct both row = both_new(N * I32), dst = both_new((size_t)N * 512);
    for (int i = 0; i < N; i++) {
        const int32_t at = (int32_t)(ROWS - 1 - i * 16381);
        ((int32_t *)row.host)[i] = at;
        uint8_t *bytes_at = (uint8_t *)host + (size_t)at * STRIDE;
        for (int j = 0; j < 512; j++)
            bytes_at[j] = (uint8_t)rnd(256);
        assert_int_equal(cuda->copy(queue, (char *)device + (size_t)at * STRIDE, bytes_at, 512), PST_OK);
    }
    send(&row);
    cpu->gather(NULL, host, STRIDE, row.host, dst.host, 512, NULL, N, 512);
    cuda->gather(queue, device, STRIDE, row.device, dst.device, 512, NULL, N, 512);
    same_bytes(&dst, dst.bytes, "rows past 2^32");
    assert_int_equal(munmap(host, bytes), 0);
    cuda->release(PST_TWIN_MEMORY_DEVICE, device);
    both_free(&row);
    both_free(&dst);
}

/* ---- requests ------------------------------------------------------------------------------------ */

struct requests {
    struct both ids, positions, n, table, missing;
    int64_t from, count;
    uint64_t stride;
    bool chosen; /* by positions */
};

static struct requests requests_new(void)
{
    struct requests r = {
        .from = (int64_t)rnd(50), .count = size_below(2000), .stride = 1 + rnd(600), .chosen = rnd(2)};
    const size_t rows = (size_t)(r.from + 2 * r.count) + 1;
    r.ids = both_new(rows * I64);
    r.positions = both_new((size_t)r.count * I32);
    r.n = both_new(I64);
    r.table = both_new((size_t)r.count * sizeof(struct pst_request));
    r.missing = both_new((size_t)r.count * I32);
    for (size_t i = 0; i < rows; i++)
        ((int64_t *)r.ids.host)[i] = (int64_t)rnd((uint64_t)1 << 40);
    for (int64_t i = 0; i < r.count; i++)
        ((int32_t *)r.positions.host)[i] = (int32_t)(2 * i + (int64_t)rnd(2));
    *(int64_t *)r.n.host = r.count;
    send(&r.ids);
    send(&r.positions);
    send(&r.n);
    return r;
}

/* The CPU's against what kernels.h says, and CUDA's against the CPU's. */
static void test_requests(void **state)
{
    (void)state;
    enum { ARRAY = 7, FIRST = 8192 };
    FOR_SHAPES
    {
        struct requests r = requests_new();
        const int64_t *ids = r.ids.host;
        const int32_t *positions = r.chosen ? r.positions.host : NULL,
                      *positions_there = r.chosen ? r.positions.device : NULL;
        const struct pst_twin_n n = {r.n.device, r.count + (int64_t)rnd(900)};
        cpu->requests(NULL, ids, positions, r.from, r.count, ARRAY, FIRST, r.stride, r.table.host,
                      r.missing.host);
        for (int64_t i = 0; i < r.count; i++) {
            const int64_t at = r.from + (positions ? positions[i] : i);
            const struct pst_request *q = (struct pst_request *)r.table.host + i;
            assert_int_equal(((int32_t *)r.missing.host)[i], at);
            assert_true(q->op == PST_REQUEST_READ && q->array == ARRAY && q->rows == 1);
            assert_true(q->row == (uint64_t)ids[at] && q->tag == q->row);
            assert_true(q->offset == FIRST + (uint64_t)at * r.stride);
        }
        if (rnd(2))
            cuda->requests(queue, r.ids.device, positions_there, r.from, r.count, ARRAY, FIRST, r.stride,
                           r.table.device, r.missing.device);
        else
            cuda->requests_n(queue, r.ids.device, positions_there, r.from, n, ARRAY, FIRST, r.stride,
                             r.table.device, r.missing.device);
        settled(PST_OK);
        same_bytes(&r.table, r.table.bytes, "requests");
        same_bytes(&r.missing, r.missing.bytes, "missing");
        struct both *every[] = {&r.ids, &r.positions, &r.n, &r.table, &r.missing};
        for (size_t i = 0; i < sizeof every / sizeof *every; i++)
            both_free(every[i]);
    }
}

/* ---- hashes -------------------------------------------------------------------------------------- */

/* An array of any alignment and length, copied to another alignment or not at all. The CPU's hash against its
 * definition, and CUDA's copy and hash against the CPU's. */
static void test_copy_digest(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const uint64_t words = 1 + rnd(2), skip = 4 * rnd(5), skip_to = rnd(2) ? skip : 4 * rnd(5),
                       array = rnd(40), before = rnd(UINT64_MAX);
        const int64_t n = size_below(rnd(20) ? 3000 : 300000);
        const size_t bytes = (size_t)n * 4 * words;
        struct both src = both_new(bytes + 16), dst = both_new(bytes + 16), sum = both_new(I64),
                    count = both_new(I64);
        for (size_t i = 0; i < src.bytes / 4; i++)
            ((uint32_t *)src.host)[i] = (uint32_t)rnd(1 + (uint64_t)rnd(2) * UINT32_MAX);
        *(uint64_t *)sum.host = before;
        *(int64_t *)count.host = n;
        send(&src);
        send(&dst);
        send(&sum);
        send(&count);
        const bool copies = rnd(4);
        const char *from = (char *)src.host + skip, *from_there = (char *)src.device + skip;
        char *to = copies ? (char *)dst.host + skip_to : NULL,
             *to_there = copies ? (char *)dst.device + skip_to : NULL;
        cpu->copy_digest(NULL, from, to, n, 4 * words, array, sum.host);
        uint64_t want = before;
        for (uint64_t i = 0; i < (uint64_t)n * words; i++)
            want += pst_k_digest_term(array, i, ((const uint32_t *)(const void *)from)[i]);
        assert_true(want == *(uint64_t *)sum.host);
        assert_true(!copies || memcmp(to, from, bytes) == 0);
        if (rnd(2))
            cuda->copy_digest(queue, from_there, to_there, n, 4 * words, array, sum.device);
        else
            cuda->copy_digest_n(queue, from_there, to_there,
                                (struct pst_twin_n){count.device, n + (int64_t)rnd(900)}, 4 * words, array,
                                sum.device);
        settled(PST_OK);
        same_bytes(&dst, dst.bytes, "a copy that is hashed");
        same_bytes(&sum, sum.bytes, "a hash");
        struct both *every[] = {&src, &dst, &sum, &count};
        for (size_t i = 0; i < sizeof every / sizeof *every; i++)
            both_free(every[i]);
    }
}

/* A changed word, two swapped words and another array have another hash. */
static void test_digest_differs(void **state)
{
    (void)state;
    enum { N = 50 };
    uint32_t words[N] = {0};
    uint64_t hash[2 * N], other = 0;
    for (int i = 0; i < 2 * N; i++) {
        hash[i] = 0;
        memset(words, 0, sizeof words);
        words[i % N] = i < N ? 1 : 2;
        cpu->copy_digest(NULL, words, NULL, N, 4, 0, &hash[i]);
        for (int j = 0; j < i; j++)
            assert_true(hash[i] != hash[j]);
    }
    cpu->copy_digest(NULL, words, NULL, N, 4, 1, &other);
    assert_true(other != hash[2 * N - 1]);
}

/* ---- a batch ------------------------------------------------------------------------------------- */

enum { HOPS = 2, SEEDS = 40, ROOM = 8000, ROW = 64 };

struct chain {
    struct table table;
    void *cache_memory;
    const struct pst_cache *cache;
    struct both ids, vertices, numbers, indptr, local, hit_pos, hit_row, miss_pos, features, rows;
};

/* A batch of a sampler, its numbers never seen by the caller. Each number of the record is what an earlier
 * call left in `numbers`: vertices, then per hop edges, hits, misses. */
static void run_chain(const struct pst_twin *twin, struct pst_queue *q, const struct pst_csc *graph,
                      struct chain *c, bool device, struct pst_twin_record *record)
{
#define AT(b) (device ? (b).device : (b).host)
    int64_t *numbers = AT(c->numbers);
    const struct pst_sample_key key = {5, 1, 0, 77};
    struct pst_dedup *table = device ? c->table.device : c->table.host;
    const int64_t *counts[1 + 3 * HOPS] = {&numbers[0]};
    twin->dedup_reset(q, table);
    pst_rc rc = twin->dedup(q, table, AT(c->ids), SEEDS, AT(c->vertices), &numbers[0], ROOM, NULL);
    for (int h = 0; h < HOPS && rc == PST_OK; h++) {
        int64_t *hop = &numbers[1 + 3 * h];
        const struct pst_twin_n all = {&numbers[0], ROOM}, edges = {&hop[0], ROOM}, hits = {&hop[1], ROOM};
        rc = twin->sample_n(q, graph, &key, AT(c->vertices), all, 5 + 20 * h, false, AT(c->indptr),
                            AT(c->ids), ROOM, &hop[0]);
        if (rc == PST_OK)
            rc = twin->dedup_n(q, table, AT(c->ids), edges, AT(c->vertices), &numbers[0], ROOM, AT(c->local));
        twin->lookup_n(q, c->cache, AT(c->vertices), all, AT(c->hit_pos), AT(c->hit_row), &hop[1],
                       AT(c->miss_pos), &hop[2]);
        twin->gather_n(q, AT(c->features), ROW, AT(c->hit_row), AT(c->rows), ROW, AT(c->hit_pos), hits, ROW);
        for (int i = 0; i < 3; i++)
            counts[1 + 3 * h + i] = &hop[i];
    }
    assert_int_equal(rc, PST_OK);
    assert_int_equal(twin->record(q, record, 9, counts, 1 + 3 * HOPS), PST_OK);
#undef AT
}

static void test_batch_without_host(void **state)
{
    (void)state;
    enum { CACHED = 300 };
    struct graph g = graph_new(3000, 4, 100);
    struct chain c = {.table = table_new(ROOM),
                      .ids = both_new(ROOM * I64),
                      .vertices = both_new((ROOM + 1) * I64),
                      .numbers = both_new((1 + 3 * HOPS) * I64),
                      .indptr = both_new((ROOM + 1) * I32),
                      .local = both_new(ROOM * I32),
                      .hit_pos = both_new((ROOM + 1) * I32),
                      .hit_row = both_new((ROOM + 1) * I32),
                      .miss_pos = both_new((ROOM + 1) * I32),
                      .features = floats_new(CACHED * ROW / 4),
                      .rows = both_new((size_t)ROOM * ROW)};
    struct both cached = both_new(CACHED * I64);
    for (int i = 0; i < CACHED; i++)
        ((int64_t *)cached.host)[i] = i * 10;
    for (int i = 0; i < SEEDS; i++)
        ((int64_t *)c.ids.host)[i] = i * 71;
    send(&cached);
    send(&c.ids);
    struct pst_twin_record on_host, *on_device = NULL;
    assert_int_equal(cuda->alloc(0, PST_TWIN_MEMORY_PINNED, sizeof *on_device, (void **)&on_device, why),
                     PST_OK);
    assert_int_equal(cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, cuda->cache_bytes(CACHED), &c.cache_memory, why),
                     PST_OK);
    c.cache = cuda->cache_init(c.cache_memory, cached.device, CACHED);
    run_chain(cuda, queue, &g.device, &c, true, on_device);
    settled(PST_OK);
    void *memory = malloc(cpu->cache_bytes(CACHED));
    c.cache = cpu->cache_init(memory, cached.host, CACHED);
    run_chain(cpu, NULL, &g.host, &c, false, &on_host);
    assert_int_equal(on_device->sequence, 9);
    assert_int_equal(on_device->rc, PST_OK);
    for (int i = 0; i < 1 + 3 * HOPS; i++)
        assert_int_equal(on_device->counts[i], on_host.counts[i]);
    assert_true(on_host.counts[0] > SEEDS);
    same_bytes(&c.vertices, (size_t)on_host.counts[0] * I64, "the batch's vertices");
    same_bytes(&c.local, (size_t)on_host.counts[1 + 3 * (HOPS - 1)] * I32, "the last hop's positions");
    same_bytes(&c.rows, c.rows.bytes, "the batch's cached rows");
    free(memory);
    cuda->release(PST_TWIN_MEMORY_DEVICE, c.cache_memory);
    cuda->release(PST_TWIN_MEMORY_PINNED, on_device);
    struct both *all[] = {&c.ids,     &c.vertices, &c.numbers,  &c.indptr, &c.local, &c.hit_pos,
                          &c.hit_row, &c.miss_pos, &c.features, &c.rows,   &cached};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        both_free(all[i]);
    table_free(&c.table);
    graph_free(&g);
}

/* A failure in the middle of a batch is in its record, and what came after has done nothing. */
static void test_batch_that_fails(void **state)
{
    (void)state;
    struct graph g = graph_new(500, 8, 60);
    struct draw d = draw_new(&g, 50, 10, true);
    struct both counts = both_new(500 * sizeof(uint32_t));
    struct pst_twin_record *record = NULL;
    assert_int_equal(cuda->alloc(0, PST_TWIN_MEMORY_PINNED, sizeof *record, (void **)&record, why), PST_OK);
    int64_t *total = (int64_t *)d.numbers.device + 1;
    const int64_t *const reported[] = {total};
    assert_int_equal(cuda->sample_n(queue, &g.device, &d.key, d.vertices.device,
                                    (struct pst_twin_n){NULL, 50}, 10, true, d.indptr.device, d.out.device,
                                    d.capacity / 2, total),
                     PST_OK);
    cuda->count_n(queue, d.vertices.device, (struct pst_twin_n){total, 50}, counts.device);
    cuda->count(queue, d.vertices.device, 50, counts.device);
    assert_int_equal(cuda->record(queue, record, 3, reported, 1), PST_OK);
    settled(PST_OK); /* the record has it */
    assert_int_equal(record->rc, PST_E_LIMIT);
    assert_int_equal(record->counts[0], 0);
    same_bytes(&counts, counts.bytes, "counts of a batch that failed");
    cuda->release(PST_TWIN_MEMORY_PINNED, record);
    both_free(&counts);
    draw_free(&d);
    graph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dedup),
        cmocka_unit_test(test_dedup_crowded),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_tiers),
        cmocka_unit_test(test_gather_far),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_copy_digest),
        cmocka_unit_test(test_digest_differs),
        cmocka_unit_test(test_batch_without_host),
        cmocka_unit_test(test_batch_that_fails),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
