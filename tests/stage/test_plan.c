/* Plans: round trip, refusals, choice of cached rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/store/store.h"
#include "stages/lib/plan/plan.h"
#include "common/error.h"

#define VERTICES 100
#define CACHED 40
#define ALL (PST_PLAN_ALGORITHM | PST_PLAN_BUDGET | PST_PLAN_HOTNESS)

struct fixture {
    char dir[64], path[256];
    struct pst_plan plan;
    int64_t cache[CACHED];
    float scores[3 * VERTICES];
};

static void setup(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/test_plan_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    for (int i = 0; i < CACHED; i++)
        f->cache[i] = (i * 37 + 5) % VERTICES;
    for (int i = 0; i < 3 * VERTICES; i++)
        f->scores[i] = (float)i * 0.7919F;
    f->plan = (struct pst_plan){
        .key = {.dataset = "0123456789abcdef",
                .split = "train",
                .hops = 2,
                .fanout = {10, -1},
                .fanouts = "fedcba9876543210",
                .batch = 32,
                .algorithm = "uniform",
                .options = "extra=3",
                .replace = true,
                .hotness = "file",
                .hotness_id = "00112233445566ff",
                .gpu_budget_bytes = 8192,
                .cache_budget_bytes = 65536,
                .policy = "joint by cost exact of 64 bytes"},
        .vertices = VERTICES,
        .seed = UINT64_MAX - 5,
        .epochs = 3,
        .batches = 12,
        .sampled = 5,
        .max = {.hops = 2, .n = {32, 70, 99}, .edges = {320, 900}},
        .predicted_hit_rate = 0.625,
        .max_misses = 61,
        .rows = {.n = CACHED, .gpu_n = CACHED / 4, .ids = f->cache},
        .lists = {.n = CACHED - 1, .gpu_n = 1, .ids = f->cache + 1},
    };
    assert_int_equal(pst_plan_write(&f->plan, f->scores, f->dir, f->path, sizeof f->path), PST_OK);
}

static void teardown(struct fixture *f)
{
    static const char *const names[] = {"plan.json",       "cache.npy",        "lists.npy", "hotness.npy",
                                        "shared_rows.npy", "shared_lists.npy", "owners.npy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s/%s", f->dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(f->dir), 0); /* nothing else is left there */
}

/* Caches of three replicas in two cliques, with and without seeds of their own. */
static void shared_caches_come_back(void **state)
{
    (void)state;
    struct fixture f;
    int64_t rows[] = {1, 5, 7, 2, 5}, lists[] = {0, 99};
    int8_t owner[VERTICES];
    setup(&f);
    for (int v = 0; v < VERTICES; v++)
        owner[v] = (int8_t)(v % 4 - 1);
    f.plan.caches = (struct pst_plan_caches){.replicas = 3,
                                             .group = {0, 0, 1},
                                             .rows = {.n = 5, .ids = rows},
                                             .lists = {.n = 2, .ids = lists},
                                             .rows_begin = {0, 3, 3, 5},
                                             .lists_begin = {0, 1, 1, 2},
                                             .line_bytes = 64};
    for (int owned = 0; owned < 2; owned++) {
        struct pst_plan back;
        f.plan.caches.owner = owned ? owner : NULL;
        assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, f.path, sizeof f.path), PST_OK);
        assert_int_equal(pst_plan_read(&back, f.path), PST_OK);
        const struct pst_plan_caches *c = &back.caches;
        assert_int_equal(c->replicas, 3);
        assert_int_equal(c->line_bytes, 64);
        assert_memory_equal(c->group, f.plan.caches.group, 3 * sizeof c->group[0]);
        assert_memory_equal(c->rows_begin, f.plan.caches.rows_begin, 4 * sizeof c->rows_begin[0]);
        assert_memory_equal(c->lists_begin, f.plan.caches.lists_begin, 4 * sizeof c->lists_begin[0]);
        assert_memory_equal(c->rows.ids, rows, sizeof rows);
        assert_memory_equal(c->lists.ids, lists, sizeof lists);
        assert_true((c->owner != NULL) == owned);
        if (owned)
            assert_memory_equal(c->owner, owner, sizeof owner);
        pst_plan_release(&back);
    }
    owner[3] = 3; /* there is no such replica */
    assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, f.path, sizeof f.path), PST_OK);
    struct pst_plan back;
    assert_int_equal(pst_plan_read(&back, f.path), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "entry 3 is replica 3"));
    owner[3] = 2;
    f.plan.caches.line_bytes = 65;
    assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, f.path, sizeof f.path), PST_OK);
    assert_int_equal(pst_plan_read(&back, f.path), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "a power of two"));
    f.plan.caches.line_bytes = 64;
    rows[1] = 8; /* then 7 */
    assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, f.path, sizeof f.path), PST_OK);
    assert_int_equal(pst_plan_read(&back, f.path), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "entry 2 of replica 0 is vertex 7, after vertex 8"));
    rows[1] = 5;
    f.plan.caches.rows_begin[3] = 4; /* counts that do not add up */
    assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, f.path, sizeof f.path), PST_OK);
    assert_int_equal(pst_plan_read(&back, f.path), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "rows_of"));
    teardown(&f);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    struct pst_plan back;
    assert_int_equal(pst_plan_read(&back, f.path), PST_OK);
    assert_string_equal(back.key.dataset, f.plan.key.dataset);
    assert_string_equal(back.key.split, "train");
    assert_int_equal(back.key.hops, 2);
    assert_memory_equal(back.key.fanout, f.plan.key.fanout, sizeof back.key.fanout);
    assert_int_equal(back.key.batch, 32);
    assert_string_equal(back.key.fanouts, "fedcba9876543210");
    assert_string_equal(back.key.algorithm, "uniform");
    assert_string_equal(back.key.options, "extra=3");
    assert_true(back.key.replace);
    assert_string_equal(back.key.hotness, "file");
    assert_string_equal(back.key.hotness_id, "00112233445566ff");
    assert_int_equal(back.key.gpu_budget_bytes, 8192);
    assert_int_equal(back.key.cache_budget_bytes, 65536);
    assert_int_equal(back.vertices, VERTICES);
    assert_true(back.seed == f.plan.seed);
    assert_int_equal(back.epochs, 3);
    assert_int_equal(back.batches, 12);
    assert_int_equal(back.sampled, 5);
    assert_memory_equal(&back.max, &f.plan.max, sizeof back.max);
    assert_true(back.predicted_hit_rate == 0.625);
    assert_int_equal(back.max_misses, 61);
    assert_int_equal(pst_plan_stored(&back), 79); /* 61 * 1.25 + 99 * 0.02, rounded up */
    back.max_misses = 79;
    assert_int_equal(pst_plan_stored(&back), 99);
    back.max_misses = -1;
    assert_int_equal(pst_plan_stored(&back), 99);
    back.max_misses = 0;
    assert_int_equal(pst_plan_stored(&back), 2);
    assert_string_equal(back.key.policy, "joint by cost exact of 64 bytes");
    assert_int_equal(back.rows.n, CACHED);
    assert_int_equal(back.rows.gpu_n, CACHED / 4);
    assert_memory_equal(back.rows.ids, f.cache, sizeof f.cache);
    assert_int_equal(back.lists.n, CACHED - 1);
    assert_int_equal(back.lists.gpu_n, 1);
    assert_memory_equal(back.lists.ids, f.cache + 1, sizeof f.cache - sizeof f.cache[0]);
    assert_int_equal(pst_plan_match(&back, &f.plan.key, ALL, f.path), PST_OK);
    pst_plan_release(&back);

    /* again, over itself; and without a cache */
    f.plan.rows.n = f.plan.rows.gpu_n = f.plan.lists.n = f.plan.lists.gpu_n = 0;
    assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, f.path, sizeof f.path), PST_OK);
    assert_int_equal(pst_plan_read(&back, f.path), PST_OK);
    assert_int_equal(back.rows.n + back.lists.n, 0);
    pst_plan_release(&back);
    teardown(&f);
}

static void arrays_are_arrays(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/cache.npy", f.dir);
    struct pst_array array;
    assert_int_equal(pst_array_open(&array, path), PST_OK);
    assert_int_equal(array.dtype, PST_I64);
    assert_int_equal(array.shape[0], CACHED);
    assert_int_equal(array.data_at, PST_PAGE);
    assert_int_equal(pst_array_map(&array), PST_OK);
    assert_memory_equal(array.map, f.cache, sizeof f.cache);
    pst_array_close(&array);
    (void)snprintf(path, sizeof path, "%s/hotness.npy", f.dir);
    assert_int_equal(pst_array_open(&array, path), PST_OK);
    assert_int_equal(array.dtype, PST_F32);
    assert_int_equal(array.shape[0], 3);
    assert_int_equal(array.shape[1], VERTICES);
    assert_int_equal(pst_array_map(&array), PST_OK);
    assert_memory_equal(array.map, f.scores, sizeof f.scores);
    pst_array_close(&array);
    teardown(&f);
}

/* ---- refusals ------------------------------------------------------------------------------------ */

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static char *read_text(const char *path)
{
    char *text = calloc(1, 8192);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    (void)!fread(text, 1, 8191, file);
    (void)fclose(file);
    return text;
}

static void must_refuse(const char *path, const char *words)
{
    struct pst_plan back;
    pst_rc rc = pst_plan_read(&back, path);
    if (rc == PST_OK)
        fail_msg("accepted; expected: %s", words);
    if (strstr(pst_error_text(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", pst_error_text(), words);
    assert_null(back.rows.ids);
    assert_null(back.lists.ids);
}

static void refuse_edit(const char *from, const char *to, const char *words)
{
    struct fixture f;
    setup(&f);
    char *text = read_text(f.path);
    char *at = strstr(text, from);
    if (at == NULL)
        fail_msg("no %s in %s", from, text);
    char edited[8192];
    (void)snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_text(f.path, edited);
    must_refuse(f.path, words);
    free(text);
    teardown(&f);
}

static void damaged_plans_are_refused(void **state)
{
    (void)state;
    static const char *const edits[][3] = {
        {"\"version\": 8", "\"version\": 2", "version"},
        {"\"version\": 8,", "", "version"},
        {"\"dataset\": \"0123456789abcdef\"", "\"dataset\": 5", "dataset"},
        {"0123456789abcdef", "0123456789abcdef0", "dataset"},
        {"\"vertices\": 100", "\"vertices\": -1", "vertices"},
        {"\"vertices\": 100", "\"vertices\": 98", "vertices"},
        {"\"split\": \"train\",", "", "split"},
        {"\"fanout\": [", "\"fanout\": [1,1,1,1,1,1,1,1,", "fanout"},
        {"\"fanout\": [", "\"fanout\": [5,", "vertices"},
        {"-1", "-2", "fanout"},
        {"\"batch\": 32", "\"batch\": 0", "batch"},
        {"\"batch\": 32", "\"batch\": 99999999999", "batch"},
        {"\"replace\": true", "\"replace\": 1", "replace"},
        {"\"hotness\": \"file\",", "", "hotness"},
        {"00112233445566ff", "00112233445566ff0", "hotness_id"},
        {"\"seed\": \"f", "\"seed\": \"x", "seed"},
        {"\"epochs\": 3", "\"epochs\": 0", "epochs"},
        {"\"sampled\": 5", "\"sampled\": 13", "sampled"},
        {"70", "170", "vertices"},
        {"70", "7", "vertices"},
        {"320", "-1", "edges"},
        {"320,", "", "edges"},
        {"\"budget_bytes\": 65536", "\"budget_bytes\": \"64KiB\"", "budget_bytes"},
        {"\"gpu_budget_bytes\": 8192", "\"gpu_budget_bytes\": -1", "gpu_budget_bytes"},
        {"\"gpu\": 10", "\"gpu\": 41", "gpu"},
        {"\"gpu\": 10,", "", "gpu"},
        {"\"n\": 40", "\"n\": 41", "expected 4424"},
        {"\"n\": 40", "\"n\": 1000000000000", "\"n\""},
        {"\"n\": 39", "\"n\": 38", "lists.npy"},
        {"\"policy\": \"joint", "\"policy\": 5, \"x\": \"joint", "policy"},
        {"0.625", "1.5", "predicted_hit_rate"},
        {"0.625", "\"high\"", "predicted_hit_rate"},
        {"\"max_misses\": 61", "\"max_misses\": 101", "max_misses"},
        {"\"max_misses\": 61", "\"max_misses\": -2", "max_misses"},
        {"\"max_misses\": 61,", "", "max_misses"},
        {"\"digest\": \"", "\"digest\": \"0", "digest"},
        {"{", "[", "JSON"},
        {"\"cache\": {", "\"cache\": {\"rows\": 1, ", "JSON"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++)
        refuse_edit(edits[i][0], edits[i][1], edits[i][2]);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    char cache[256];
    (void)snprintf(cache, sizeof cache, "%s/cache.npy", f.dir);
    must_refuse("/tmp/there/is/no/plan.json", "cannot open");
    must_refuse("/tmp", "regular file");
    assert_int_equal(truncate(cache, PST_PAGE + CACHED * 8 - 1), 0);
    must_refuse(f.path, "cache.npy");
    assert_int_equal(truncate(cache, PST_PAGE + CACHED * 8), 0); /* the last byte is now 0, as it was */
    struct pst_plan back;
    assert_int_equal(pst_plan_read(&back, f.path), PST_OK);
    pst_plan_release(&back);
    FILE *file = fopen(cache, "r+");
    assert_int_equal(fseek(file, PST_PAGE + 80, SEEK_SET), 0);
    assert_int_equal(fputc(99, file), 99);
    (void)fclose(file);
    must_refuse(f.path, "checksum");
    (void)unlink(cache);
    must_refuse(f.path, "cache.npy");
    f.cache[3] = VERTICES; /* whole, but about another graph */
    assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, f.path, sizeof f.path), PST_OK);
    must_refuse(f.path, "entry 3 is vertex 100");
    assert_int_equal(truncate(f.path, 20), 0);
    must_refuse(f.path, "JSON");
    assert_int_equal(truncate(f.path, (off_t)PST_PLAN_BYTES_MAX + 1), 0);
    must_refuse(f.path, "at most");
    teardown(&f);
}

static void differences_are_named(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    const struct pst_plan_key good = f.plan.key;
    static const char *const words[] = {"dataset",
                                        "split",
                                        "fanout was [10, -1] and is now [10, -1, 3]",
                                        "fanout was [10, -1] and is now [10, 5]",
                                        "batch was 32 and is now 33",
                                        "replace was true and is now false",
                                        "budget",
                                        "algorithm was uniform and is now mine",
                                        "options was extra=3 and is now \"\"",
                                        "hotness was file and is now analytic",
                                        "the checksum of hotness_file was 00112233445566ff and is now 1",
                                        "gpu_cache in bytes was 8192 and is now 8193"};
    for (int i = 0; i < 12; i++) {
        struct pst_plan_key want = good;
        want.dataset[3] = (char)(i == 0 ? 'x' : want.dataset[3]);
        if (i == 1)
            memcpy(want.split, "val", 4);
        want.hops += i == 2;
        want.fanout[2] = i == 2 ? 3 : 0;
        want.fanout[1] = i == 3 ? 5 : -1;
        want.batch += i == 4;
        want.replace = i != 5;
        want.cache_budget_bytes += i == 6;
        want.gpu_budget_bytes += i == 11;
        if (i == 7)
            memcpy(want.algorithm, "mine", 5);
        if (i == 8)
            want.options[0] = '\0';
        if (i == 9)
            memcpy(want.hotness, "analytic", 9);
        if (i == 10)
            memcpy(want.hotness_id, "1", 2);
        assert_int_equal(pst_plan_match(&f.plan, &want, ALL, f.path), PST_E_ARG);
        if (strstr(pst_error_text(), words[i]) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", pst_error_text(), words[i]);
        assert_non_null(strstr(pst_error_text(), f.path));
        assert_int_equal(pst_plan_match(&f.plan, &want, 0, f.path), i >= 5 ? PST_OK : PST_E_ARG);
    }
    struct pst_plan_key other = f.plan.key;
    other.fanouts[0] = '\0';
    assert_int_equal(pst_plan_match(&f.plan, &other, 0, f.path), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(),
                           "the checksum of the fanouts of edge types was fedcba9876543210 and is "
                           "now none"));
    teardown(&f);
}

static void a_plan_needs_a_place(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    char path[256];
    assert_int_equal(pst_plan_write(&f.plan, f.scores, "/tmp/there/is/no/such", path, sizeof path), PST_E_IO);
    assert_int_equal(pst_plan_write(&f.plan, f.scores, f.dir, path, 8), PST_E_LIMIT);
    teardown(&f);
}

/* ---- choosing ------------------------------------------------------------------------------------ */

static void the_hottest_are_chosen(void **state)
{
    (void)state;
    const float scores[] = {0, 5, 2.25F, 5, 0, 9e9F, 2.25F, 1e-9F};
    static const int64_t expected[] = {5, 1, 3, 2, 6, 7, 0, 4}; /* ties by id, the unseen last */
    for (int64_t rows = 0; rows <= 10; rows++) {
        int64_t *cache, cached;
        assert_int_equal(pst_plan_choose(scores, 8, rows, &cache, &cached), PST_OK);
        assert_int_equal(cached, rows < 8 ? rows : 8);
        if (cached > 0)
            assert_memory_equal(cache, expected, (size_t)cached * sizeof *cache);
        free(cache);
    }
}

static void ids_of_a_part_are_kept(void **state)
{
    (void)state;
    int64_t ids[] = {7, 3, 9, 4, 5}, others[] = {7, 3, 9, 4, 5};
    struct pst_plan_tiers tiers = {.n = 5, .gpu_n = 3, .ids = ids};
    pst_plan_keep(&tiers, 4, 8, true);
    assert_true(tiers.n == 3 && tiers.gpu_n == 1 && tiers.ids == ids);
    assert_memory_equal(ids, ((int64_t[]){7, 4, 5}), 3 * sizeof *ids);
    tiers = (struct pst_plan_tiers){.n = 5, .gpu_n = 3, .ids = others};
    pst_plan_keep(&tiers, 4, 8, false);
    assert_true(tiers.n == 2 && tiers.gpu_n == 2);
    assert_memory_equal(others, ((int64_t[]){3, 9}), 2 * sizeof *others);
}

static int by_score(const void *left, const void *right, void *scores_of)
{
    const float *scores = scores_of;
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return scores[a] != scores[b] ? (scores[a] < scores[b]) - (scores[a] > scores[b]) : (a > b) - (a < b);
}

/* Scores with many ties, over the whole range: as sorting all of them would choose. */
static void a_choice_is_a_sort(void **state)
{
    (void)state;
    enum { N = 1000 };
    float scores[N];
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 200; round++) {
        int64_t sorted[N], *cache, cached;
        for (int64_t v = 0; v < N; v++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            scores[v] =
                round % 2 ? (float)(random % 20) / 7 : (float)(random % 4 ? random >> 40 : 0) * 1e-12F;
            sorted[v] = v;
        }
        qsort_r(sorted, N, sizeof *sorted, by_score, scores);
        const int64_t rows = (int64_t)(random % (N + 1));
        assert_int_equal(pst_plan_choose(scores, N, rows, &cache, &cached), PST_OK);
        assert_int_equal(cached, rows);
        if (rows > 0)
            assert_memory_equal(cache, sorted, (size_t)rows * sizeof *cache);
        free(cache);
    }
}

static void predictions_are_not_an_oracles(void **state)
{
    (void)state;
    uint32_t hotness[] = {10, 4, 4, 1, 1, 0, 0, 0};
    const int64_t batch[] = {0, 1, 3}; /* without it the counts are 9 3 4 0 1 0 0 0 */
    static const double expected[] = {0, 1, 1, 2, 2, 2.25, 2.5, 2.75, 3, 3};
    for (int64_t rows = 0; rows < 10; rows++) {
        double hits = -1;
        assert_int_equal(pst_plan_predict(hotness, 8, rows, batch, 3, &hits), PST_OK);
        assert_true(hits == expected[rows]);
    }
    static const uint32_t before[] = {10, 4, 4, 1, 1, 0, 0, 0};
    assert_memory_equal(hotness, before, sizeof before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_caches_come_back),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(arrays_are_arrays),
        cmocka_unit_test(damaged_plans_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(a_plan_needs_a_place),
        cmocka_unit_test(the_hottest_are_chosen),
        cmocka_unit_test(ids_of_a_part_are_kept),
        cmocka_unit_test(a_choice_is_a_sort),
        cmocka_unit_test(predictions_are_not_an_oracles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
