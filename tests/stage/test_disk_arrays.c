/* Requests may name any array of a dataset, by the number that its manifest gives it. */
#include "tests/unit/store_fixture.h"

#include "common/nvme/driver/dma.h"
#include "common/slots/request.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/io/engine.h"
#include "tests/unit/programs.h"

enum { AT_ONCE = 50, ROWS_EACH = 7, WAIT_MS = 20000, NOTES = 8192, SLOT = 1 << 20 };

static struct pst_disk_config config_of(const char *backend, const struct iovec *region)
{
    return (struct pst_disk_config){.backend = backend,
                                    .depth = 16,
                                    .threads = 3,
                                    .retries = 1,
                                    .direct = true,
                                    .coalesce_bytes = 8 << 10,
                                    .tables_max = 2,
                                    .regions = region,
                                    .nregions = 1,
                                    .nvme = {.stack = "async",
                                             .preset = "none",
                                             .dilate = 1,
                                             .ssds = 2,
                                             .queues = 1,
                                             .lanes = 1,
                                             .timeout_ms = 5000},
                                    .faults = {.bad_file = -1}};
}

static const void *row_of(const struct pst_dataset *ds, enum pst_array_id id, const struct pst_array *a,
                          uint64_t row_bytes, uint64_t row)
{
    return id == PST_ARRAY_FEATURES ? pst_feature_row(ds, (int64_t)row)
                                    : (const char *)a->map + row * row_bytes;
}

/* Every row of an array, in requests of a few rows each. Returns how many rows there are. */
static uint64_t read_array(struct pst_disk *disk, char *slot, const struct pst_dataset *ds,
                           enum pst_array_id id)
{
    const struct pst_array *a = pst_manifest_dataset_array((struct pst_dataset *)ds, id);
    const uint64_t rows = a->path[0] != '\0' ? (uint64_t)a->shape[0] : 0;
    const uint64_t row_bytes = pst_dtype_bytes(a->dtype) * (a->rank == 2 ? (uint64_t)a->shape[1] : 1);
    struct pst_request *table = (struct pst_request *)(void *)slot;
    for (uint64_t next = 0; next < rows;) {
        struct pst_disk_ticket ticket = {0};
        uint64_t n = 0, at = AT_ONCE * sizeof *table;
        for (; n < AT_ONCE && next < rows; n++) {
            const uint32_t some = rows - next < ROWS_EACH ? (uint32_t)(rows - next) : ROWS_EACH;
            table[n] = (struct pst_request){
                .array = (uint16_t)id, .rows = some, .row = next, .offset = at, .tag = next};
            next += some;
            at += some * row_bytes;
        }
        memset(slot + AT_ONCE * sizeof *table, 0xee, SLOT - AT_ONCE * sizeof *table);
        if (pst_disk_add(disk, &ticket, slot, SLOT, 0, n) != PST_OK || pst_disk_wait(disk, WAIT_MS) != PST_OK)
            fail_msg("%s: %s", pst_array_id_name(id), pst_error_text());
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t k = 0; k < table[i].rows; k++)
                assert_memory_equal(slot + table[i].offset + k * row_bytes,
                                    row_of(ds, id, a, row_bytes, table[i].row + k), row_bytes);
    }
    return rows;
}

/* Through every backend; there must be this many arrays that have rows. */
static void read_dataset(const char *path, int expected)
{
    static const char *const backends[] = {"file", "pread", "mmap", "emulated"};
    struct pst_dataset ds;
    struct pst_nvme_dma memory;
    char notes[NOTES];
    if (pst_dataset_open(&ds, path) != PST_OK || pst_rows_map_features(&ds) != PST_OK)
        fail_msg("%s", pst_error_text());
    assert_int_equal(pst_nvme_dma_new(&memory, NULL, SLOT), PST_OK);
    const struct iovec region = {memory.base, memory.bytes};
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        struct pst_disk_config config = config_of(backends[i], &region);
        struct pst_disk *disk;
        int arrays = 0;
        pst_disk_config_add_all(&config, &ds);
        if (pst_disk_new(&disk, &config, notes, sizeof notes) != PST_OK)
            fail_msg("%s: %s", backends[i], pst_error_text());
        for (unsigned id = 0; id < PST_ARRAY_COUNT; id++)
            arrays += read_array(disk, memory.base, &ds, (enum pst_array_id)id) > 0;
        assert_int_equal(arrays, expected);
        pst_disk_free(disk);
    }
    pst_nvme_dma_free(&memory);
    pst_dataset_close(&ds);
}

static void penstock(const char *arguments)
{
    char command[4096];
    (void)snprintf(command, sizeof command, "%s/penstock %s --quiet >/dev/null", getenv("PENSTOCK_BIN"),
                   arguments);
    assert_int_equal(system(command), 0);
}

/* indptr, indices, features, labels and three splits; rows of 400 bytes. */
static void of_a_graph_with_striped_features(void **state)
{
    (void)state;
    char arguments[1024];
    (void)snprintf(arguments, sizeof arguments,
                   "gen community %s --vertices 300 --features 100 --classes 3 --stripes 3",
                   in_scratch("graph"));
    penstock(arguments);
    read_dataset(in_scratch("graph"), 7);
}

/* indptr, indices, relations, three splits of triples, and names of entities and relations. */
static void of_a_knowledge_graph(void **state)
{
    (void)state;
    char arguments[1024], text[8192];
    static const char *const files[] = {"kg/train.txt", "kg/valid.txt", "kg/test.txt"};
    assert_int_equal(mkdir(in_scratch("kg"), 0700), 0);
    for (int f = 0; f < 3; f++) {
        int n = 0;
        for (int i = 0; i < 60; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, "head%d\tloves%d\ttail%d\n", (i * 7 + f) % 40,
                          i % 5, (i * 11 + f) % 30);
        put_file(in_scratch(files[f]), text, (size_t)n);
    }
    (void)snprintf(arguments, sizeof arguments, "import triples %s %s", in_scratch("kg"),
                   in_scratch("triples"));
    penstock(arguments);
    read_dataset(in_scratch("triples"), 10);
}

static void what_no_file_can_hold_is_refused(void **state)
{
    (void)state;
    struct pst_disk_config config = config_of("pread", NULL);
    struct pst_disk *disk;
    char notes[NOTES];
    config.nregions = 0;
    pst_disk_config_add(&config, PST_ARRAY_LABELS, (const char *const[]){"labels.npy"}, 1, 4096, 1ull << 55,
                        4, 4);
    assert_int_equal(pst_disk_new(&disk, &config, notes, sizeof notes), PST_E_LIMIT);
    assert_non_null(strstr(pst_error_text(), "labels"));
}

int main(void)
{
    find_programs();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_graph_with_striped_features),
        cmocka_unit_test(of_a_knowledge_graph),
        cmocka_unit_test(what_no_file_can_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
