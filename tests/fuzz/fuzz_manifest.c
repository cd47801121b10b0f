/* dataset.json, as a file of a dataset that has no arrays. */
#include <string.h>

#include "common/store/dataset/manifest.h"
#include "tests/fuzz/fuzz.h"

static char dir[64] = "/dev/shm/penstock-fuzz-XXXXXX"; /* in memory: a disk would set the pace */
static char file[128];

static void tidy(void)
{
    (void)unlink(file);
    (void)rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    if (!mkdtemp(dir)) {
        (void)snprintf(dir, sizeof dir, "/tmp/penstock-fuzz-XXXXXX");
        fuzz_check(mkdtemp(dir));
    }
    (void)snprintf(file, sizeof file, "%s/%s", dir, PST_MANIFEST_FILE);
    (void)atexit(tidy);
    return 0;
}

static void check_accepted(const struct pst_manifest *m)
{
    fuzz_check(m->vertices >= 0 && m->edges >= 0 && m->classes >= 0 &&
               m->classes <= PST_MANIFEST_CLASSES_MAX);
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        if (m->array[i].present && (i != PST_ARRAY_FEATURES || m->stripes == 0))
            fuzz_check(m->array[i].file[0] != '\0' && !strchr(m->array[i].file, '/') &&
                       m->array[i].shape[0] >= 0 && m->array[i].shape[1] >= 0);
    int64_t rows = 0, vertices = 0;
    for (int k = 0; k < m->stripes; k++) {
        fuzz_check(m->stripe[k].file[0] != '\0' && !strchr(m->stripe[k].file, '/'));
        rows += m->stripe[k].shape[0];
    }
    fuzz_check(m->stripes == 0 || (rows == m->vertices && m->stripes <= PST_DATASET_FEATURE_FILES_MAX));
    for (int k = 0; k < m->vertex_types; k++)
        vertices += m->vertex_type[k].vertices;
    fuzz_check(m->vertex_types == 0 || vertices == m->vertices);
    for (int k = 0; k < m->edge_types; k++) {
        const struct pst_edge_type *t = &m->edge_type[k];
        fuzz_check(t->source >= 0 && t->source < m->vertex_types && t->target >= 0 &&
                   t->target < m->vertex_types);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    FILE *f = fopen(file, "we");
    fuzz_check(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    struct pst_manifest m;
    struct pst_problems problems = {.count = 0};
    pst_manifest_read(&m, dir, &problems);
    if (problems.count == 0)
        check_accepted(&m);
    fuzz_check((pst_problems_result(&problems, "fuzz") == PST_OK) == (problems.count == 0));
    pst_manifest_release(&m);
    return 0;
}
