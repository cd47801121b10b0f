/* The twins of sampling and shuffling, and of rows and lists in several parts: the same to the last bit. */
#include "common/util/rng.h"
#include "tests/kernel/twin_graph.h"

#include <sys/mman.h>

static void test_sample(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int fanout = random_fanout();
        struct graph g = graph_new(1 + size_below(3000), rnd(2) ? 4 : 8, fanout > 64 ? 6000 : 300);
        struct draw d = draw_new(&g, size_below(fanout > 64 || fanout < 0 ? 30 : 600), fanout, rnd(2));
        assert_int_equal(draw_both(&g, &d), PST_OK);
        settled(PST_OK);
        same_bytes(&d.indptr, d.indptr.bytes, "indptr");
        same_bytes(&d.out, d.out.bytes, "sampled neighbours");
        if (d.capacity > 0) { /* one too few is refused by both, and a good call follows */
            d.capacity--;
            assert_int_equal(draw_both(&g, &d), PST_E_LIMIT);
            settled(PST_E_LIMIT);
        }
        draw_free(&d);
        graph_free(&g);
    }
}

/* So many vertices that the sums of tiles come in two groups (pst_cu_tiles). */
static void test_sample_many_vertices(void **state)
{
    (void)state;
    struct graph g = graph_new(500, 4, 60);
    struct draw d = draw_new(&g, 70000, 3, false);
    assert_int_equal(draw_both(&g, &d), PST_OK);
    settled(PST_OK);
    same_bytes(&d.indptr, d.indptr.bytes, "indptr");
    same_bytes(&d.out, d.out.bytes, "sampled neighbours");
    draw_free(&d);
    graph_free(&g);
}

/* The ids at the picked positions are the sample. */
static void test_pick(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int fanout = random_fanout();
        struct graph g = graph_new(1 + size_below(3000), rnd(2) ? 4 : 8, fanout > 64 ? 6000 : 300);
        struct draw d = draw_new(&g, size_below(fanout > 64 || fanout < 0 ? 30 : 600), fanout, rnd(2));
        struct both degrees = both_new((size_t)d.n * I64), indptr = both_new((size_t)(d.n + 1) * I32),
                    at = both_new((size_t)d.capacity * I64);
        const int64_t *vertices = d.vertices.host;
        for (int64_t i = 0; i < d.n; i++)
            ((int64_t *)degrees.host)[i] = g.host.indptr[vertices[i] + 1] - g.host.indptr[vertices[i]];
        send(&degrees);
        const bool less = d.capacity > 0 && rnd(8) == 0, bad = d.n > 0 && !less && rnd(8) == 0;
        if (bad) {
            ((int64_t *)degrees.host)[rnd((uint64_t)d.n)] = -1;
            send(&degrees);
        }
        const pst_rc want = less ? PST_E_LIMIT : bad ? PST_E_FORMAT : PST_OK;
        assert_int_equal(cpu->pick(NULL, &d.key, vertices, degrees.host, d.n, d.fanout, d.replace,
                                   indptr.host, at.host, d.capacity - less),
                         want);
        assert_int_equal(cuda->pick(queue, &d.key, d.vertices.device, degrees.device, d.n, d.fanout,
                                    d.replace, indptr.device, at.device, d.capacity - less),
                         PST_OK);
        settled(want);
        if (want == PST_OK) {
            same_bytes(&indptr, indptr.bytes, "indptr");
            same_bytes(&at, at.bytes, "positions");
            assert_int_equal(draw_both(&g, &d), PST_OK);
            settled(PST_OK);
            assert_memory_equal(indptr.host, d.indptr.host, indptr.bytes);
            for (int64_t i = 0; i < d.n; i++) {
                for (int32_t e = ((int32_t *)indptr.host)[i]; e < ((int32_t *)indptr.host)[i + 1]; e++) {
                    const int64_t edge = g.host.indptr[vertices[i]] + ((int64_t *)at.host)[e];
                    const int64_t id = g.host.index_bytes == 4 ? ((const int32_t *)g.host.indices)[edge]
                                                               : ((const int64_t *)g.host.indices)[edge];
                    assert_int_equal(((int64_t *)d.out.host)[e], id);
                }
            }
        }
        both_free(&degrees);
        both_free(&indptr);
        both_free(&at);
        draw_free(&d);
        graph_free(&g);
    }
}

/* What both refuse: no vertex, a row out of range, a neighbour that is none. */
static void test_sample_faults(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct graph g = graph_new(2 + size_below(200), rnd(2) ? 4 : 8, 60);
        const int64_t vertices = g.host.vertices, wrong = (int64_t)rnd((uint64_t)vertices);
        struct draw d = draw_new(&g, vertices, (int)rnd(70) - 1, rnd(2));
        int64_t *ids = d.vertices.host;
        for (int64_t i = 0; i < vertices; i++)
            ids[i] = i;
        const int kind = (int)rnd(4);
        if (kind == 0)
            ids[wrong] = -1 - (int64_t)rnd(5);
        if (kind == 1)
            ids[wrong] = vertices + (int64_t)rnd(5);
        if (kind == 2)
            ((int64_t *)g.indptr.host)[wrong + 1] = g.host.edges + 1 + (int64_t)rnd(1000);
        if (kind == 3)
            ((int64_t *)g.indptr.host)[wrong] = -1 - (int64_t)rnd(1000);
        send(&d.vertices);
        send(&g.indptr);
        both_free(&d.out);
        d.capacity = 100000;
        d.out = both_new((size_t)d.capacity * I64);
        assert_int_equal(draw_both(&g, &d), PST_E_FORMAT);
        settled(PST_E_FORMAT);
        draw_free(&d);
        graph_free(&g);
    }
}

static void test_sample_bad_neighbour(void **state)
{
    (void)state;
    struct graph g = graph_new(100, 4, 60);
    struct draw d = draw_new(&g, 100, -1, false);
    for (int64_t i = 0; i < 100; i++)
        ((int64_t *)d.vertices.host)[i] = i;
    send(&d.vertices);
    both_free(&d.out);
    d.capacity = g.host.edges;
    d.out = both_new((size_t)d.capacity * I64);
    ((int32_t *)g.indices.host)[g.host.edges / 2] = 100;
    send(&g.indices);
    assert_int_equal(draw_both(&g, &d), PST_E_FORMAT);
    settled(PST_E_FORMAT);
    draw_free(&d);
    graph_free(&g);
}

/* Edges past 2^31 and 2^32: most of the array is never touched. */
static void test_sample_far_edges(void **state)
{
    (void)state;
    needs_gigabytes();
    const int64_t edges = ((int64_t)1 << 32) + 1000;
    struct graph g = {.indptr = both_new(5 * I64)};
    int64_t *indptr = g.indptr.host;
    indptr[1] = 500;
    indptr[2] = ((int64_t)1 << 31) - 100;
    indptr[3] = ((int64_t)1 << 32) + 100;
    indptr[4] = edges;
    send(&g.indptr);
    const size_t bytes = (size_t)edges * I32;
    void *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *device = NULL;
    assert_true(host != MAP_FAILED);
    if (cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, bytes, &device, why) != PST_OK)
        fail_msg("%s", why);
    assert_int_equal(cuda->fill(queue, (char *)device + bytes - 4096, 0, 4096), PST_OK);
    for (int64_t e = edges - 900; e < edges; e++)
        ((int32_t *)host)[e] = (int32_t)(e % 4);
    assert_int_equal(cuda->copy(queue, (char *)device + bytes - 3600, (char *)host + bytes - 3600, 3600),
                     PST_OK);
    settled(PST_OK);
    g.host = (struct pst_csc){indptr, host, 4, 4, edges};
    g.device = (struct pst_csc){g.indptr.device, device, 4, 4, edges};
    const int fanouts[] = {1, 7, 25, 32, 33, 500};
    for (size_t f = 0; f < sizeof fanouts / sizeof *fanouts; f++) {
        struct draw d = draw_new(&g, 20, fanouts[f], false);
        for (int i = 0; i < 20; i++)
            ((int64_t *)d.vertices.host)[i] = 3; /* whose edges lie past 2^32 */
        send(&d.vertices);
        both_free(&d.out);
        d.capacity = 20 * fanouts[f];
        d.out = both_new((size_t)d.capacity * I64);
        assert_int_equal(draw_both(&g, &d), PST_OK);
        settled(PST_OK);
        same_bytes(&d.out, d.out.bytes, "neighbours past 2^32");
        draw_free(&d);
    }
    assert_int_equal(munmap(host, bytes), 0);
    cuda->release(PST_TWIN_MEMORY_DEVICE, device);
    both_free(&g.indptr);
}

/* Three quarters of 2^32 neighbours, so that every bit of a draw counts: its low half decides, by a carry,
 * which of two positions side by side is taken. Written are the ones that are drawn, and those beside them.
 */
static void test_sample_low_bits(void **state)
{
    (void)state;
    needs_gigabytes();
    enum { KEYS = 6 };
    const int64_t degree = ((int64_t)3 << 30) + 1;
    const size_t bytes = (size_t)(degree + 1) * I32;
    struct graph g = {.indptr = both_new(5 * I64)};
    for (int v = 1; v <= 4; v++)
        ((int64_t *)g.indptr.host)[v] = degree;
    send(&g.indptr);
    int32_t *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int32_t *device = NULL;
    assert_true(host != MAP_FAILED);
    if (cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, bytes, (void **)&device, why) != PST_OK)
        fail_msg("%s", why);
    g.host = (struct pst_csc){g.indptr.host, host, 4, 4, degree};
    g.device = (struct pst_csc){g.indptr.device, device, 4, 4, degree};
    const int fanouts[] = {4, 7, 16, 32, 33, 200};
    for (int i = 0; i < KEYS; i++) {
        struct draw d = draw_new(&g, 1, fanouts[i], true);
        *(int64_t *)d.vertices.host = 0;
        send(&d.vertices);
        both_free(&d.out);
        d.capacity = fanouts[i];
        d.out = both_new((size_t)d.capacity * I64);
        const struct pst_rng_stream stream =
            pst_rng_stream_of(PST_RNG_SAMPLE, d.key.seed, d.key.epoch, d.key.batch, d.key.hop);
        for (int slot = 0; slot < fanouts[i]; slot++) {
            const struct pst_rng_block drawn = pst_rng_draw(&stream, 0, (uint32_t)slot / 2);
            const int64_t at = (int64_t)pst_rng_bounded(pst_rng_u64(&drawn, slot % 2), (uint64_t)degree);
            const int64_t first = at > 0 ? at - 1 : 0;
            for (int64_t e = first; e <= at + 1; e++)
                host[e] = (int32_t)(e % 4);
            assert_int_equal(cuda->copy(queue, device + first, host + first, 2 * I32 + I32), PST_OK);
        }
        settled(PST_OK);
        assert_int_equal(draw_both(&g, &d), PST_OK);
        settled(PST_OK);
        same_bytes(&d.out, d.out.bytes, "neighbours of three quarters of 2^32");
        draw_free(&d);
    }
    assert_int_equal(munmap(host, bytes), 0);
    cuda->release(PST_TWIN_MEMORY_DEVICE, device);
    both_free(&g.indptr);
}

static void test_shuffle(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(5000);
        struct both perm = both_new((size_t)n * I64);
        const uint64_t seed = rnd(UINT64_MAX), epoch = rnd(100);
        cpu->shuffle(NULL, seed, epoch, perm.host, n);
        cuda->shuffle(queue, seed, epoch, perm.device, n);
        same_bytes(&perm, perm.bytes, "permutation");
        both_free(&perm);
    }
}
/* ---- several parts (kernels/memories.h) --------------------------------------------------------------- */

static const int64_t *cached_ids; /* the test's, in the order of the index */

/* The numbers of items of random parts, some of which are empty, as `first`. Returns how many parts. */
static int random_parts(int least, int64_t items, int64_t first[PST_K_PARTS_MAX + 1])
{
    const int n = least + (int)rnd((uint64_t)(PST_K_PARTS_MAX - least) + 1);
    first[0] = 0;
    for (int k = 1; k <= n; k++)
        first[k] = k == n ? items : first[k - 1] + (int64_t)rnd((uint64_t)((items - first[k - 1]) / 2 + 1));
    return n;
}

static void test_row_parts(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const uint64_t unit = (uint64_t[]){1, 4, 16}[rnd(3)], row_bytes = unit * rnd(80),
                       stride = row_bytes + unit * rnd(3);
        const int64_t rows = 1 + size_below(300), n = size_below(500);
        struct pst_k_row_parts host = {.n = 0}, device;
        host.n = random_parts(1, rows, host.first);
        struct both memory = both_new((size_t)rows * stride + PST_K_PARTS_MAX * 256 + 1),
                    dst = both_new((size_t)(n + 1) * stride), row = both_new((size_t)n * I32),
                    pos = both_new((size_t)n * I32), counts = both_new(PST_K_PARTS_MAX * I64);
        for (size_t i = 0; i < memory.bytes; i++)
            ((uint8_t *)memory.host)[i] = (uint8_t)rnd(256);
        for (int64_t i = 0; i < n; i++) {
            ((int32_t *)row.host)[i] = (int32_t)rnd((uint64_t)rows);
            ((int32_t *)pos.host)[i] = (int32_t)(n - 1 - i);
        }
        ((int64_t *)counts.host)[0] = 7; /* it is added to */
        send(&memory);
        send(&row);
        send(&pos);
        send(&counts);
        device = host;
        for (int k = 0; k < host.n; k++) { /* in turned order, with gaps */
            const size_t at =
                (size_t)(rows - host.first[k + 1]) * stride + (size_t)(host.n - 1 - k) * 16 * unit;
            host.rows[k] = (char *)memory.host + at;
            device.rows[k] = (char *)memory.device + at;
        }
        const struct pst_twin_n all = {NULL, n};
        const bool to_positions = rnd(3);
        cpu->gather_parts_n(NULL, &host, stride, row.host, dst.host, stride, to_positions ? pos.host : NULL,
                            all, row_bytes);
        cuda->gather_parts_n(queue, &device, stride, row.device, dst.device, stride,
                             to_positions ? pos.device : NULL, all, row_bytes);
        same_bytes(&dst, dst.bytes, "rows of several parts");
        cpu->count_parts_n(NULL, &host, row.host, all, counts.host);
        cuda->count_parts_n(queue, &device, row.device, all, counts.device);
        same_bytes(&counts, counts.bytes, "rows of each part");
        int64_t sum = -7;
        for (int k = 0; k < host.n; k++)
            sum += ((int64_t *)counts.host)[k];
        assert_int_equal(sum, n);
        struct both *every[] = {&memory, &dst, &row, &pos, &counts};
        for (size_t i = 0; i < sizeof every / sizeof *every; i++)
            both_free(every[i]);
    }
}

/* Copies the lists of cached_ids to the parts: at and entries, which have room for all of them. */
static void copy_lists(const struct graph *g, struct pst_k_list_parts *host, struct pst_k_list_parts *device,
                       struct both *at, struct both *entries)
{
    int64_t *to = at->host, entry = 0;
    const size_t bytes = (size_t)g->host.index_bytes;
    for (int k = 0; k < host->n; k++) {
        const int64_t begin = entry;
        host->at[k] = to;
        device->at[k] = (const int64_t *)at->device + (to - (int64_t *)at->host);
        host->entries[k] = (char *)entries->host + (size_t)entry * bytes;
        device->entries[k] = (char *)entries->device + (size_t)entry * bytes;
        *to++ = 0;
        for (int64_t l = host->first[k]; l < host->first[k + 1]; l++) {
            const int64_t from = g->host.indptr[cached_ids[l]],
                          degree = g->host.indptr[cached_ids[l] + 1] - from;
            memcpy((char *)entries->host + (size_t)entry * bytes,
                   (const char *)g->host.indices + (size_t)from * bytes, (size_t)degree * bytes);
            entry += degree;
            *to++ = entry - begin;
        }
    }
    send(at);
    send(entries);
}

struct parts { /* of the lists of a graph */
    struct pst_k_list_parts host, device;
    struct both ids, at, entries;
    void *memory, *device_memory; /* of the index */
    const struct pst_cache *index, *device_index;
};

static struct parts parts_new(const struct graph *g)
{
    const int64_t vertices = g->host.vertices, cached = size_below(vertices);
    struct parts p = {.host = {.graph = g->host, .line_bytes = (int64_t)16 << rnd(6)}};
    int64_t edges = 0;
    p.host.n = random_parts(cached > 0, cached, p.host.first);
    p.ids = both_new((size_t)cached * I64);
    for (int64_t l = 0; l < cached; l++) { /* an id may come twice */
        ((int64_t *)p.ids.host)[l] = (int64_t)rnd((uint64_t)vertices);
        edges += g->host.indptr[((int64_t *)p.ids.host)[l] + 1] - g->host.indptr[((int64_t *)p.ids.host)[l]];
    }
    send(&p.ids);
    p.device = p.host;
    p.device.graph = g->device;
    p.at = both_new((size_t)(cached + p.host.n) * I64);
    p.entries = both_new((size_t)(edges * g->host.index_bytes));
    cached_ids = p.ids.host;
    copy_lists(g, &p.host, &p.device, &p.at, &p.entries);
    p.memory = malloc(cpu->cache_bytes(cached));
    assert_non_null(p.memory);
    assert_int_equal(cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, cuda->cache_bytes(cached), &p.device_memory, why),
                     PST_OK);
    p.index = cpu->cache_init(p.memory, p.ids.host, cached);
    p.device_index = cuda->cache_init(p.device_memory, p.ids.device, cached);
    assert_non_null(p.device_index);
    return p;
}

static void parts_free(struct parts *p)
{
    both_free(&p->ids);
    both_free(&p->at);
    both_free(&p->entries);
    free(p->memory);
    cuda->release(PST_TWIN_MEMORY_DEVICE, p->device_memory);
}

/* Both twins draw from the parts what they draw from the graph, and count alike. bad: an entry is no id. */
static void test_list_parts(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int fanout = random_fanout();
        struct graph g = graph_new(1 + size_below(1000), rnd(2) ? 4 : 8, fanout > 64 ? 6000 : 300);
        struct draw d = draw_new(&g, size_below(fanout > 64 || fanout < 0 ? 30 : 600), fanout, rnd(2));
        struct parts p = parts_new(&g);
        const struct pst_twin_n all = {NULL, d.n};
        struct both list = both_new((size_t)d.n * I32), source = both_new((size_t)d.n * I32),
                    begin = both_new((size_t)d.n * I64), degree = both_new((size_t)d.n * I64),
                    ids = both_new((size_t)d.capacity * I64), numbers = both_new(2 * I64),
                    counts = both_new((PST_K_PARTS_MAX + 2) * I64);
        cpu->find_n(NULL, p.index, d.vertices.host, all, list.host);
        cuda->find_n(queue, p.device_index, d.vertices.device, all, list.device);
        same_bytes(&list, list.bytes, "numbers of lists");
        assert_int_equal(cpu->find_lists_n(NULL, &p.host, d.vertices.host, list.host, all, source.host,
                                           begin.host, degree.host),
                         PST_OK);
        assert_int_equal(cuda->find_lists_n(queue, &p.device, d.vertices.device, list.device, all,
                                            source.device, begin.device, degree.device),
                         PST_OK);
        same_bytes(&source, source.bytes, "parts");
        same_bytes(&begin, begin.bytes, "beginnings");
        same_bytes(&degree, degree.bytes, "degrees");
        assert_int_equal(cpu->pick_n(NULL, &d.key, d.vertices.host, degree.host, all, fanout, d.replace,
                                     d.indptr.host, ids.host, d.capacity, numbers.host),
                         PST_OK);
        assert_int_equal(cuda->pick_n(queue, &d.key, d.vertices.device, degree.device, all, fanout, d.replace,
                                      d.indptr.device, ids.device, d.capacity, numbers.device),
                         PST_OK);
        same_bytes(&numbers, I64, "the number of positions");
        same_bytes(&ids, ids.bytes, "positions");
        assert_int_equal(cpu->read_lists_n(NULL, &p.host, d.vertices.host, source.host, begin.host,
                                           degree.host, all, fanout, d.replace, d.indptr.host, ids.host,
                                           counts.host),
                         PST_OK);
        assert_int_equal(cuda->read_lists_n(queue, &p.device, d.vertices.device, source.device, begin.device,
                                            degree.device, all, fanout, d.replace, d.indptr.device,
                                            ids.device, counts.device),
                         PST_OK);
        settled(PST_OK);
        same_bytes(&ids, ids.bytes, "neighbours of several parts");
        same_bytes(&counts, counts.bytes, "edges of each part, and lines");
        int64_t edges = 0;
        for (int k = 0; k <= p.host.n; k++)
            edges += ((int64_t *)counts.host)[k];
        assert_int_equal(edges, *(int64_t *)numbers.host);
        assert_int_equal(draw_both(&g, &d), PST_OK);
        settled(PST_OK);
        assert_memory_equal(ids.host, d.out.host, (size_t)edges * I64);
        struct both *every[] = {&list, &source, &begin, &degree, &ids, &numbers, &counts};
        for (size_t i = 0; i < sizeof every / sizeof *every; i++)
            both_free(every[i]);
        parts_free(&p);
        draw_free(&d);
        graph_free(&g);
    }
}

/* What both refuse: no vertex, offsets that descend, an entry that is no id. */
static void test_bad_list_parts(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct both vertices = both_new(I64), offsets = both_new(2 * I64), entry = both_new(I64),
                    list = both_new(I32), source = both_new(I32), begin = both_new(I64),
                    degree = both_new(I64), ids = both_new(I64), counts = both_new(3 * I64),
                    indptr = both_new(2 * I32);
        *(int64_t *)vertices.host = what == 0 ? 1 : 0;
        *(int32_t *)list.host = what == 0 ? -1 : 0;
        ((int64_t *)offsets.host)[0] = what == 1;
        ((int64_t *)offsets.host)[1] = what == 2;
        *(int64_t *)entry.host = 1; /* of 1 vertex */
        ((int32_t *)indptr.host)[1] = 1;
        const struct both *all[] = {&vertices, &offsets, &entry,  &list, &source,
                                    &begin,    &degree,  &indptr, &ids,  &counts};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            send(all[i]);
        const struct pst_twin_n one = {NULL, 1};
        struct pst_k_list_parts host = {.n = 1, .first = {0, 1}, .line_bytes = 64}, device = host;
        host.graph = (struct pst_csc){offsets.host, entry.host, 8, 1, 1};
        device.graph = (struct pst_csc){offsets.device, entry.device, 8, 1, 1};
        host.at[0] = offsets.host;
        device.at[0] = offsets.device;
        host.entries[0] = entry.host;
        device.entries[0] = entry.device;
        assert_int_equal(cpu->find_lists_n(NULL, &host, vertices.host, list.host, one, source.host,
                                           begin.host, degree.host),
                         what == 2 ? PST_OK : PST_E_FORMAT);
        assert_int_equal(cuda->find_lists_n(queue, &device, vertices.device, list.device, one, source.device,
                                            begin.device, degree.device),
                         PST_OK);
        settled(what == 2 ? PST_OK : PST_E_FORMAT);
        if (what == 2) {
            assert_int_equal(cpu->read_lists_n(NULL, &host, vertices.host, source.host, begin.host,
                                               degree.host, one, -1, false, indptr.host, ids.host,
                                               counts.host),
                             PST_E_FORMAT);
            assert_int_equal(cuda->read_lists_n(queue, &device, vertices.device, source.device, begin.device,
                                                degree.device, one, -1, false, indptr.device, ids.device,
                                                counts.device),
                             PST_OK);
            settled(PST_E_FORMAT);
        }
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            both_free((struct both *)(uintptr_t)all[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_pick),
        cmocka_unit_test(test_sample_faults),
        cmocka_unit_test(test_sample_bad_neighbour),
        cmocka_unit_test(test_sample_many_vertices),
        cmocka_unit_test(test_sample_far_edges),
        cmocka_unit_test(test_sample_low_bits),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_row_parts),
        cmocka_unit_test(test_list_parts),
        cmocka_unit_test(test_bad_list_parts),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
