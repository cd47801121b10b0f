/* The planner on a GPU makes the CPU's plan, byte for byte. */
#include <fcntl.h>
#include <unistd.h>

#define FIRST_VERTICES 64 /* so that the scratch has to grow */
#include "stages/planner/presample.c"
#include "stages/planner/drive_reads.c"
#include "stages/planner/waves.c"

#include "stages/planner/planner.c"

#define HOST_STATE struct planner
#include "tests/stage/stage_host.h"

enum { VERTICES = 400 };

static char dataset[512];

/* Runs a planner; its directory has the plan. */
static pst_rc plan(const char *device, const char *run, const char *const (*set)[2], int sets)
{
    struct pst_stage host;
    host_begin(&host, dataset, device, in_scratch(run));
    for (int i = 0; i < sets; i++)
        host_set(&host, set[i][0], set[i][1]);
    host_set(&host, "gpu_cache", "0"); /* its default depends on the place */
    pst_rc rc = host_open(&host);
    const struct pst_event begin = {.kind = PST_EV_START};
    if (rc == PST_OK)
        rc = pst_stage.on_event(&host, &begin);
    const struct pst_device *on = &host.state->presample.device;
    if (pst_device_is_cuda(on) && gpu_is_virtual()) /* also with a scratch that has grown */
        assert_true(virtual_gpu_priority(on->twin->stream(on->q)) < 0);
    host_end(&host);
    return rc;
}

static char *bytes_of(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *all = malloc(1 << 20);
    *bytes = fread(all, 1, 1 << 20, file);
    assert_true(*bytes > 0 && *bytes < 1 << 20);
    fclose(file);
    return all;
}

static void same_file(const char *file)
{
    char paths[2][600];
    size_t bytes[2];
    snprintf(paths[0], sizeof paths[0], "%s/cpu/plan/%s", scratch, file);
    snprintf(paths[1], sizeof paths[1], "%s/gpu/plan/%s", scratch, file);
    char *a = bytes_of(paths[0], &bytes[0]), *b = bytes_of(paths[1], &bytes[1]);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(a, b, bytes[0]);
    free(a);
    free(b);
}

static void compare(const char *const (*set)[2], int sets)
{
    if (plan("cpu:0", "cpu", set, sets) != PST_OK || plan("cuda:0", "gpu", set, sets) != PST_OK)
        fail_msg("%s", pst_error_text());
    same_file("plan.json");
    same_file("cache.npy");
    same_file("hotness.npy");
}

static void plans_are_equal(void **state)
{
    (void)state;
    const char *const small[][2] = {
        {"fanout", "[4, 3]"}, {"batch", "60"}, {"cpu_cache", "9000"}, {"epochs", "2"}};
    const char *const in_place[][2] = {{"fanout", "[3, 0, 2]"},
                                       {"batch", "64"},
                                       {"gpu_topology", "0"},
                                       {"replace", "true"},
                                       {"cpu_cache", "0"}};
    compare(small, 4);
    compare(in_place, 5);
    assert_int_equal(virtual_gpu_left(), 0);
}

/* What does not fit the first scratch is drawn again, and counted once. */
static void scratch_grows(void **state)
{
    (void)state;
    const char *const all[][2] = {{"fanout", "[-1, -1]"}, {"batch", "80"}, {"cpu_cache_percent", "25"}};
    compare(all, 3);
}

static void damage_is_named(void **state)
{
    (void)state;
    struct pst_dataset ds;
    const char *const set[][2] = {{"fanout", "[-1]"}, {"batch", "1000"}};
    const int32_t wrong = VERTICES + 7;
    assert_int_equal(pst_dataset_open(&ds, dataset), PST_OK);
    FILE *file = fopen(ds.indices.path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)ds.indices.data_at, SEEK_SET), 0);
    for (int64_t e = 0; e < ds.edges; e++)
        assert_int_equal(fwrite(&wrong, sizeof wrong, 1, file), 1);
    fclose(file);
    pst_dataset_close(&ds);
    assert_int_equal(plan("cuda:0", "damaged", set, 2), PST_E_FORMAT);
    if (!strstr(pst_error_text(), "cannot pre-sample batch 0") || !strstr(pst_error_text(), "verify"))
        fail_msg("%s", pst_error_text());
}

/* The thread that computes hotness finds a bad entry that no sampled batch has. The planner reports it. */
static void damage_elsewhere_is_named(void **state)
{
    (void)state;
    struct pst_dataset ds;
    const char *const set[][2] = {
        {"fanout", "[1]"}, {"batch", "1"}, {"sizing_batches", "1"}, {"topology", "\"ssd\""}};
    const int32_t wrong = VERTICES + 7;
    assert_int_equal(pst_dataset_open(&ds, dataset), PST_OK);
    const int64_t *indptr = ds.indptr.map, *train = ds.split[0].map;
    int64_t at = 0;
    while (indptr[train[at]] == indptr[train[at] + 1])
        at++;
    const int64_t v = train[at], edge = indptr[v];
    const int32_t kept = ((const int32_t *)ds.indices.map)[edge];
    const int file = open(ds.indices.path, O_WRONLY | O_CLOEXEC);
    const off_t place = (off_t)ds.indices.data_at + edge * (off_t)sizeof wrong;
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, &wrong, sizeof wrong, place), sizeof wrong);
    for (int sets = 3; sets <= 4; sets++) {
        char expected[100];
        snprintf(expected, sizeof expected, "vertex %lld has a neighbour that does not exist", (long long)v);
        assert_int_equal(plan("cpu:0", "elsewhere", set, sets), PST_E_FORMAT);
        if (strncmp(pst_error_text(), expected, strlen(expected)) != 0)
            fail_msg("%s", pst_error_text());
    }
    assert_int_equal(pwrite(file, &kept, sizeof kept, place), sizeof kept);
    close(file);
    pst_dataset_close(&ds);
}

static void sources_agree(void **state)
{
    (void)state;
    const char *const oracle[][2] = {
        {"fanout", "[4, 3]"}, {"batch", "60"}, {"cpu_cache_percent", "10"}, {"hotness", "\"oracle\""}};
    const char *const counted[][2] = {
        {"fanout", "[4, 0, 3]"}, {"batch", "60"}, {"cpu_cache_percent", "10"}, {"hotness", "\"presample\""}};
    compare(oracle, 4);
    compare(counted, 4);
    assert_int_equal(virtual_gpu_left(), 0);
}

static int setup(void **state)
{
    gpu_setup();
    if (scratch_setup(state) != 0)
        return -1;
    snprintf(dataset, sizeof dataset, "%s", host_dataset("data", VERTICES));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_equal), cmocka_unit_test(scratch_grows),
        cmocka_unit_test(sources_agree),   cmocka_unit_test(damage_elsewhere_is_named),
        cmocka_unit_test(damage_is_named), /* the last: it spoils the dataset */
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
