/* Cached lists of neighbours: what is loaded is found, transactions are counted, damage is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"
#include "common/store/store.h"
#include "stages/lib/topology/lists.h"

#define VERTICES 500
#define EDGES_MAX (VERTICES * 300)

struct fixture {
    struct pst_csc graph;
    int64_t indptr[VERTICES + 1];
    int64_t wide[EDGES_MAX];
    int32_t narrow[EDGES_MAX];
};

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* Lists of 0 to 299 entries. */
static void make_graph(struct fixture *f, int index_bytes)
{
    uint64_t state = 7;
    for (int64_t v = 0; v < VERTICES; v++)
        f->indptr[v + 1] = f->indptr[v] + (v % 5 == 0 ? 0 : (int64_t)draw(&state, v % 7 == 0 ? 300 : 20));
    for (int64_t e = 0; e < f->indptr[VERTICES]; e++) {
        f->wide[e] = draw(&state, VERTICES);
        f->narrow[e] = (int32_t)f->wide[e];
    }
    f->graph = (struct pst_csc){.indptr = f->indptr,
                                .indices = index_bytes == 4 ? (void *)f->narrow : (void *)f->wide,
                                .index_bytes = index_bytes,
                                .vertices = VERTICES,
                                .edges = f->indptr[VERTICES]};
}

/* The lists of these vertices, in the order in which the structure numbers them. */
static void check_lists(const struct fixture *f, const struct pst_topology_lists *l, const int64_t *ids,
                        int64_t n)
{
    int32_t pos[VERTICES], list[VERTICES], miss[VERTICES];
    int64_t all[VERTICES], hits = 0, misses = 0;
    bool cached[VERTICES] = {false};
    for (int64_t v = 0; v < VERTICES; v++)
        all[v] = v;
    for (int64_t i = 0; i < n; i++)
        cached[ids[i]] = true;
    pst_k_lookup(NULL, l->index, all, VERTICES, pos, list, &hits, miss, &misses);
    assert_int_equal(hits, n);
    for (int64_t k = 0; k < hits; k++) {
        const int64_t v = pos[k], at = l->at[list[k]], degree = l->at[list[k] + 1] - at;
        assert_true(cached[v]);
        assert_int_equal(degree, f->indptr[v + 1] - f->indptr[v]);
        for (int64_t e = 0; e < degree; e++)
            assert_int_equal(pst_topology_lists_entry(l, at + e), f->wide[f->indptr[v] + e]);
    }
}

static void what_is_loaded_is_found(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    for (int bytes = 4; bytes <= 8; bytes += 4) {
        make_graph(f, bytes);
        int64_t ids[VERTICES / 3];
        const int64_t n = VERTICES / 3, gpu = 40;
        for (int64_t i = 0; i < n; i++)
            ids[i] = (i * 37 + 11) % VERTICES;
        struct pst_topology_lists own, lent, shared;
        uint64_t need = 0;
        assert_int_equal(pst_topology_lists_load(&own, NULL, &f->graph, NULL, ids, gpu, n), PST_OK);
        check_lists(f, &own, ids, n);
        assert_int_equal(pst_topology_lists_bytes(&f->graph, ids, n, &need), PST_OK);
        void *memory = aligned_alloc(PST_PAGE, pst_align_up(need, PST_PAGE));
        memset(memory, 0, pst_align_up(need, PST_PAGE));
        assert_int_equal(pst_topology_lists_load(&lent, memory, &f->graph, NULL, ids, gpu, n), PST_OK);
        pst_topology_lists_borrow(&shared, memory, &f->graph, gpu, n);
        check_lists(f, &shared, ids, n);
        /* the GPU tier has the first of the ids */
        int32_t pos[VERTICES], list[VERTICES], miss[VERTICES];
        int64_t hits = 0, misses = 0;
        pst_k_lookup(NULL, shared.index, ids, n, pos, list, &hits, miss, &misses);
        assert_int_equal(hits, n);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(list[i] < shared.gpu_n, i < gpu);
        pst_topology_lists_release(&own);
        pst_topology_lists_release(&lent);
        free(memory);
    }
    free(f);
}

/* Writes `edges` entries as the array of a dataset. */
static void write_indices(const char *path, const struct fixture *f, int64_t edges)
{
    char head[PST_PAGE];
    pst_npy_format(head, f->graph.index_bytes == 4 ? PST_I32 : PST_I64, 1, (int64_t[2]){edges, 1});
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, sizeof head, 1, file), 1);
    assert_int_equal(fwrite(f->graph.indices, (size_t)f->graph.index_bytes, (size_t)edges, file), edges);
    assert_int_equal(fclose(file), 0);
}

/* From the file: all lists, of which one is longer than a read; a few; and those with a large gap between
 * them, where the long list is. The second tier begins again at the file's start. A file that ends early is
 * told. */
static void lists_come_from_the_file(void **state)
{
    (void)state;
    enum { LONG = (4 << 20) / 4 + 5000, LONG_AT = 245 };
    static const struct {
        int64_t first, every, n;
    } choices[] = {{0, 37, VERTICES}, {0, 49, 10}, {1, 49, 10}};
    char path[] = "/tmp/test_topology_lists_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    for (int bytes = 4; bytes <= 8; bytes += 4) {
        struct fixture *f = calloc(1, sizeof *f);
        make_graph(f, bytes);
        /* the same lists, but one of them is long */
        const int64_t edges = f->indptr[VERTICES] + LONG, at = f->indptr[LONG_AT];
        char *entries = calloc((size_t)edges, (size_t)bytes);
        const char *short_ones = f->graph.indices;
        memcpy(entries, short_ones, (size_t)(at * bytes));
        memcpy(entries + (at + LONG) * bytes, short_ones + at * bytes,
               (size_t)((f->indptr[VERTICES] - at) * bytes));
        for (int64_t v = LONG_AT + 1; v <= VERTICES; v++)
            f->indptr[v] += LONG;
        f->graph.edges = edges;
        f->graph.indices = entries;
        write_indices(path, f, edges);
        struct pst_array file;
        assert_int_equal(pst_array_open(&file, path), PST_OK);
        int64_t ids[VERTICES];
        for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
            const int64_t n = choices[k].n, gpu = n / 3;
            for (int64_t i = 0; i < n; i++)
                ids[i] = (choices[k].first + i * choices[k].every) % VERTICES;
            struct pst_topology_lists read, copied;
            f->graph.indices = NULL;
            assert_int_equal(pst_topology_lists_load(&read, NULL, &f->graph, &file, ids, gpu, n), PST_OK);
            f->graph.indices = entries;
            assert_int_equal(pst_topology_lists_load(&copied, NULL, &f->graph, NULL, ids, gpu, n), PST_OK);
            assert_memory_equal(read.at, copied.at, (size_t)(n + 1) * sizeof *read.at);
            assert_memory_equal(read.entries, copied.entries, (size_t)(read.at[n] * bytes));
            assert_int_equal(read.at[n] > LONG, choices[k].first == 0);
            pst_topology_lists_release(&read);
            pst_topology_lists_release(&copied);
        }
        assert_int_equal(truncate(path, PST_PAGE + edges * bytes / 2), 0);
        struct pst_topology_lists l;
        assert_int_equal(pst_topology_lists_load(&l, NULL, &f->graph, &file, ids, 0, choices[2].n), PST_E_IO);
        assert_non_null(strstr(pst_error_text(), "became shorter"));
        pst_array_close(&file);
        free(entries);
        free(f);
    }
    assert_int_equal(unlink(path), 0);
}

/* Transactions against a mark for each line. */
static void lines_are_counted_once(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    uint64_t seed = 3;
    make_graph(f, 4);
    int64_t ids[VERTICES];
    for (int64_t v = 0; v < VERTICES; v++)
        ids[v] = v;
    struct pst_topology_lists l;
    assert_int_equal(pst_topology_lists_load(&l, NULL, &f->graph, NULL, ids, 0, VERTICES), PST_OK);
    for (int64_t v = 0; v < VERTICES; v++) {
        const int64_t degree = l.at[v + 1] - l.at[v];
        int64_t at[64], n = degree > 0 ? 1 + (int64_t)draw(&seed, 63) : 0;
        bool marked[EDGES_MAX / 16 + 1] = {false};
        for (int64_t i = 0; i < n; i++) {
            at[i] = l.at[v] + (int64_t)draw(&seed, (uint32_t)degree);
            marked[at[i] / 16] = true; /* 16 entries of 4 bytes are a line */
        }
        int64_t lines = v / 8 == (v + 1) / 8 ? 1 : 2; /* of the offsets v and v + 1, of 8 bytes */
        for (int64_t i = 0; i <= EDGES_MAX / 16; i++)
            lines += marked[i];
        assert_int_equal(pst_topology_lists_lines(&l, v, at, n), lines);
    }
    pst_topology_lists_release(&l);
    free(f);
}

static void damage_is_told(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    struct pst_topology_lists l;
    make_graph(f, 4);
    const int64_t twice[] = {3, 8, 3}, outside[] = {3, VERTICES}, below[] = {-1}, good[] = {7, 3};
    const struct {
        const int64_t *ids;
        int64_t n;
        const char *words;
    } bad[] = {{twice, 3, "vertex 3 twice"}, {outside, 2, "vertex 500, but"}, {below, 1, "vertex -1, but"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(pst_topology_lists_load(&l, NULL, &f->graph, NULL, bad[i].ids, 1, bad[i].n),
                         PST_E_FORMAT);
        assert_non_null(strstr(pst_error_text(), bad[i].words));
    }
    f->indptr[4] = f->indptr[3] - 1;
    assert_int_equal(pst_topology_lists_load(&l, NULL, &f->graph, NULL, good, 1, 2), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "indptr gives vertex 3"));
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_loaded_is_found),
        cmocka_unit_test(lists_come_from_the_file),
        cmocka_unit_test(lines_are_counted_once),
        cmocka_unit_test(damage_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
