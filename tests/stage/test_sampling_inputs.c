/* What a sampler begins from: the seeds' order, and cached rows read from a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/store/store.h"
#include "kernels/kernels.h"
#include "stages/lib/cache/cache_rows.c"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/seeds.c"

#define SPLIT 103
#define VERTICES 500

static void make_dataset(struct pst_dataset *ds, const int64_t *ids, int64_t n)
{
    memset(ds, 0, sizeof *ds);
    ds->vertices = VERTICES;
    ds->split[PST_VAL] = (struct pst_array){.path = "val.npy", .map = ids, .shape = {n, 1}};
}

static void an_epoch_has_every_seed_once(void **state)
{
    (void)state;
    int64_t ids[SPLIT], out[10];
    for (int64_t i = 0; i < SPLIT; i++)
        ids[i] = i * 3;
    struct pst_dataset ds;
    make_dataset(&ds, ids, SPLIT);
    struct pst_seeds s;
    assert_int_equal(pst_seeds_init(&s, &ds, "val", 10, 42, true), PST_OK);
    assert_int_equal(s.batches, 11);
    int64_t first[2] = {0, 0};
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        int times[VERTICES] = {0};
        for (uint64_t b = 0; b < 11; b++) {
            int64_t n = pst_seeds_of(&s, epoch * 11 + b, out);
            assert_int_equal(n, b < 10 ? 10 : 3);
            for (int64_t i = 0; i < n; i++)
                times[out[i]]++;
            first[epoch] = b == 0 ? out[0] * 1000 + out[1] : first[epoch];
        }
        for (int64_t v = 0; v < VERTICES; v++)
            assert_int_equal(times[v], v % 3 == 0 && v / 3 < SPLIT);
    }
    assert_int_not_equal(first[0], first[1]);
    int64_t again[10]; /* batches may be asked for in any order */
    (void)pst_seeds_of(&s, 3, again);
    (void)pst_seeds_of(&s, 15, out);
    (void)pst_seeds_of(&s, 3, out);
    assert_memory_equal(out, again, sizeof out);
    pst_seeds_release(&s);

    assert_int_equal(pst_seeds_init(&s, &ds, "val", 1000, 42, false), PST_OK); /* in file order, one batch */
    int64_t all[SPLIT];
    assert_int_equal(s.batch, SPLIT);
    assert_int_equal(pst_seeds_of(&s, 7, all), SPLIT);
    assert_memory_equal(all, ids, sizeof all);
    pst_seeds_release(&s);
}

/* Each vertex of the split is a seed of one replica, once an epoch. All replicas have as many batches, and
 * the batches of each differ by at most one seed. */
static void replicas_divide_the_seeds(void **state)
{
    (void)state;
    enum { BATCH = 10, REPLICAS = 3 };
    int64_t ids[SPLIT], out[BATCH], largest = 0, firsts[REPLICAS][2];
    for (int64_t i = 0; i < SPLIT; i++)
        ids[i] = i * 3;
    struct pst_dataset ds;
    make_dataset(&ds, ids, SPLIT);
    struct pst_seeds s[REPLICAS];
    for (int r = 0; r < REPLICAS; r++) {
        assert_int_equal(pst_seeds_init(&s[r], &ds, "val", BATCH, 42, true), PST_OK);
        assert_int_equal(pst_seeds_divide(&s[r], r, REPLICAS, NULL, &ds.cut), PST_OK);
        assert_int_equal(s[r].n, s[0].share[r]);
        largest = pst_max_i64(largest, s[r].n);
    }
    assert_int_equal(s[0].share[0] + s[0].share[1] + s[0].share[2], SPLIT);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        int times[VERTICES] = {0};
        for (uint64_t b = 0; b < s[0].batches; b++) {
            const uint64_t batch = epoch * s[0].batches + b;
            int64_t all = 0;
            for (int r = 0; r < REPLICAS; r++) {
                const int64_t n = pst_seeds_of(&s[r], batch, out), even = s[r].n / (int64_t)s[r].batches;
                assert_int_equal(s[r].batches, (largest + BATCH - 1) / BATCH);
                assert_true(n == even || n == even + 1);
                for (int64_t i = 0; i < n; i++)
                    times[out[i]]++;
                if (b == 0)
                    firsts[r][epoch] = out[0] * 1000 + out[1];
                all += n;
            }
            assert_int_equal(pst_seeds_of_all(&s[0], batch), all);
            assert_int_equal(pst_seeds_of_all(&s[REPLICAS - 1], batch), all);
        }
        for (int64_t v = 0; v < VERTICES; v++)
            assert_int_equal(times[v], v % 3 == 0 && v / 3 < SPLIT);
    }
    for (int r = 0; r < REPLICAS; r++) {
        assert_int_not_equal(firsts[r][0], firsts[r][1]);
        pst_seeds_release(&s[r]);
    }
    make_dataset(&ds, ids, 2); /* some replica gets none */
    assert_int_equal(pst_seeds_init(&s[0], &ds, "val", BATCH, 42, true), PST_OK);
    assert_int_equal(pst_seeds_of_all(&s[0], 0), 2);
    assert_int_equal(pst_seeds_divide(&s[0], 0, REPLICAS, NULL, &ds.cut), PST_E_ARG);
    pst_seeds_release(&s[0]);
}

/* Of a cut dataset, a vertex is a seed of a replica of the rank that has its part. */
static void ranks_have_the_seeds_of_their_parts(void **state)
{
    (void)state;
    enum { REPLICAS = 4 };
    int64_t ids[SPLIT];
    for (int64_t i = 0; i < SPLIT; i++)
        ids[i] = i * 3;
    struct pst_dataset ds;
    make_dataset(&ds, ids, SPLIT);
    ds.cut = (struct pst_dataset_cut){.parts = 2, .first = {0, 100, VERTICES}};
    for (int r = 0; r < REPLICAS; r++) {
        struct pst_seeds s;
        assert_int_equal(pst_seeds_init(&s, &ds, "val", 10, 42, true), PST_OK);
        assert_int_equal(pst_seeds_divide(&s, r, REPLICAS, NULL, &ds.cut), PST_OK);
        assert_int_equal(s.share[0] + s.share[1], 34); /* 0, 3, ..., 99 */
        assert_true(s.n == s.share[r] && s.n > 5);
        for (int64_t i = 0; i < s.n; i++)
            assert_true((s.ids[i] >= 100) == (r >= 2));
        pst_seeds_release(&s);
    }
    ds.cut.first[1] = VERTICES - 1; /* no seed is in the second part */
    struct pst_seeds s;
    assert_int_equal(pst_seeds_init(&s, &ds, "val", 10, 42, true), PST_OK);
    assert_int_equal(pst_seeds_divide(&s, 0, 2, NULL, &ds.cut), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "another cut of the dataset"));
    pst_seeds_release(&s);
}

static void splits_are_checked(void **state)
{
    (void)state;
    int64_t ids[] = {5, 6, 5, 7, 6, 5}, out[6];
    struct pst_dataset ds;
    struct pst_seeds s;
    make_dataset(&ds, ids, 6);
    assert_int_equal(pst_seeds_init(&s, &ds, "val", 6, 1, false), PST_OK);
    assert_int_equal(s.repeats, 3);
    assert_int_equal(pst_seeds_of(&s, 0, out), 3);
    assert_true(out[0] == 5 && out[1] == 6 && out[2] == 7);
    pst_seeds_release(&s);
    assert_int_equal(pst_seeds_init(&s, &ds, "train", 6, 1, false), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "train"));
    const int64_t bad[] = {-1, VERTICES, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 4; i++) {
        ids[3] = bad[i];
        assert_int_equal(pst_seeds_init(&s, &ds, "val", 6, 1, false), PST_E_FORMAT);
        assert_non_null(strstr(pst_error_text(), "entry 3"));
    }
    make_dataset(&ds, ids, 0);
    assert_int_equal(pst_seeds_init(&s, &ds, "val", 6, 1, false), PST_E_ARG);
}

/* ---- cached rows --------------------------------------------------------------------------------- */

#define ROWS 40000
#define ROW_BYTES 512 /* 20 MB: windows of 4 MiB, and gaps of more than 64 KiB */

static struct pst_array make_features(void)
{
    struct pst_array a = {.dtype = PST_U8, .rank = 2, .shape = {ROWS, ROW_BYTES}, .data_at = PST_PAGE};
    (void)snprintf(a.path, sizeof a.path, "/tmp/test_rows_XXXXXX");
    int fd = mkstemp(a.path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "wb");
    static char row[PST_PAGE];
    assert_int_equal(fwrite(row, 1, PST_PAGE, file), PST_PAGE);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < ROW_BYTES / 4; i++)
            memcpy(row + 4 * i, &(uint32_t){r * 131u + (uint32_t)i}, 4);
        assert_int_equal(fwrite(row, 1, ROW_BYTES, file), ROW_BYTES);
    }
    assert_int_equal(fclose(file), 0);
    return a;
}

static void check_cache(const struct pst_cache_rows *c, const int64_t *ids, int64_t n)
{
    int32_t *pos = malloc((size_t)n * sizeof *pos), *row = malloc((size_t)n * sizeof *row);
    int32_t *miss = malloc((size_t)n * sizeof *miss);
    int64_t hits, misses;
    pst_k_lookup(NULL, c->index, ids, n, pos, row, &hits, miss, &misses);
    assert_int_equal(hits, n);
    for (int64_t i = 0; i < n; i++) {
        const char *at = c->rows + (size_t)row[i] * ROW_BYTES;
        for (uint32_t k = 0; k < ROW_BYTES / 4; k++) {
            uint32_t found;
            memcpy(&found, at + 4 * k, 4);
            assert_int_equal(found, (uint32_t)ids[pos[i]] * 131u + k);
        }
    }
    free(pos);
    free(row);
    free(miss);
}

/* The first gpu_n ids have the first gpu_n rows. */
static void check_tiers(const struct pst_cache_rows *c, const int64_t *ids, int64_t gpu_n, int64_t n)
{
    assert_int_equal(c->gpu_n, gpu_n);
    for (int64_t i = 0; i < n; i++) {
        int32_t pos, row, miss;
        int64_t hits, misses;
        pst_k_lookup(NULL, c->index, ids + i, 1, &pos, &row, &hits, &miss, &misses);
        assert_int_equal(hits, 1);
        assert_true((row < gpu_n) == (i < gpu_n));
    }
}

/* One instance loads into shared memory; another has the same memory at another address, read-only. */
static void check_shared(struct pst_device *cpu, const struct pst_array *features, const int64_t *ids,
                         int64_t n)
{
    const uint64_t bytes = pst_cache_rows_bytes(n, ROW_BYTES);
    const int fd = memfd_create("cache", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    void *here = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *there = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(here != MAP_FAILED && there != MAP_FAILED);
    struct pst_cache_rows c, other;
    assert_int_equal(
        pst_cache_rows_load(&c, cpu, here, features, 1, features->shape[0], ROW_BYTES, ids, n / 3, n),
        PST_OK);
    pst_cache_rows_release(&c);
    assert_int_equal(munmap(here, bytes), 0);
    pst_cache_rows_borrow(&other, there, n / 3, n, ROW_BYTES);
    assert_int_equal(other.n, n);
    check_cache(&other, ids, n);
    check_tiers(&other, ids, n / 3, n);
    pst_cache_rows_release(&other);
    assert_int_equal(munmap(there, bytes), 0);
    assert_int_equal(close(fd), 0);
}

static void cached_rows_are_the_files(void **state)
{
    (void)state;
    struct pst_array features = make_features();
    struct pst_device cpu;
    assert_int_equal(pst_device_open(&cpu, "cpu:0"), PST_OK);
    static int64_t ids[ROWS];
    const int64_t steps[] = {1, 7, 401};
    for (int k = 0; k < 3; k++) {
        int64_t n = 0;
        for (int64_t v = ROWS - 1; v >= 0; v -= steps[k]) /* hottest first is no order of the file's */
            ids[n++] = v;
        struct pst_cache_rows c;
        assert_int_equal(
            pst_cache_rows_load(&c, &cpu, NULL, &features, 1, features.shape[0], ROW_BYTES, ids, n / 3, n),
            PST_OK);
        assert_int_equal(c.n, n);
        check_cache(&c, ids, n);
        check_tiers(&c, ids, n / 3, n);
        pst_cache_rows_release(&c);
        check_shared(&cpu, &features, ids, n);
    }
    struct pst_cache_rows c;
    assert_int_equal(
        pst_cache_rows_load(&c, &cpu, NULL, &features, 1, features.shape[0], ROW_BYTES, ids, 0, 0), PST_OK);
    pst_cache_rows_release(&c);
    ids[0] = ids[1];
    assert_int_equal(
        pst_cache_rows_load(&c, &cpu, NULL, &features, 1, features.shape[0], ROW_BYTES, ids, 1, 5),
        PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "twice"));
    ids[0] = ROWS;
    assert_int_equal(
        pst_cache_rows_load(&c, &cpu, NULL, &features, 1, features.shape[0], ROW_BYTES, ids, 1, 5),
        PST_E_FORMAT);
    ids[0] = -1;
    assert_int_equal(
        pst_cache_rows_load(&c, &cpu, NULL, &features, 1, features.shape[0], ROW_BYTES, ids, 1, 5),
        PST_E_FORMAT);
    ids[0] = ROWS - 1;
    assert_int_equal(truncate(features.path, PST_PAGE + (off_t)(ROWS - 1) * ROW_BYTES + 100), 0);
    assert_int_equal(
        pst_cache_rows_load(&c, &cpu, NULL, &features, 1, features.shape[0], ROW_BYTES, ids, 0, 1),
        PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "earlier than expected: the file was truncated"));
    (void)unlink(features.path);
    assert_int_equal(
        pst_cache_rows_load(&c, &cpu, NULL, &features, 1, features.shape[0], ROW_BYTES, ids, 0, 1), PST_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_has_every_seed_once),        cmocka_unit_test(replicas_divide_the_seeds),
        cmocka_unit_test(ranks_have_the_seeds_of_their_parts), cmocka_unit_test(splits_are_checked),
        cmocka_unit_test(cached_rows_are_the_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
