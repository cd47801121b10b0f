/* What importers parse: the first byte chooses the parser, the rest is the file. Edges go as far as the
 * sorter. */
#include <string.h>

#include "common/store/formats/webgraph/bvgraph.h"
#include "common/store/import/edge_text.h"
#include "common/store/text/text_array.h"
#include "common/store/text/zip.h"
#include "common/util/utf8.h"
#include "tests/fuzz/fuzz.h"

static char dir[64] = "/dev/shm/penstock-fuzz-XXXXXX"; /* in memory: a disk would set the pace */
static char file[128], out[128], properties[128], names[128], names_at[128];

static void tidy(void)
{
    (void)unlink(file);
    (void)unlink(out);
    (void)unlink(properties);
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
    (void)snprintf(file, sizeof file, "%s/g.graph", dir);
    (void)snprintf(out, sizeof out, "%s/out.npy", dir);
    (void)snprintf(names, sizeof names, "%s/names.npy", dir);
    (void)snprintf(names_at, sizeof names_at, "%s/names_at.npy", dir);
    (void)snprintf(properties, sizeof properties, "%s/g.properties", dir);
    FILE *f = fopen(properties, "we");
    fuzz_check(f && fputs("nodes=100\narcs=300\n", f) >= 0 && fclose(f) == 0);
    (void)atexit(tidy);
    return 0;
}

/* The two arrays of names: as many as there are vertices, each UTF-8. */
static void look_at_names(int64_t vertices)
{
    struct pst_array at, text;
    fuzz_check(pst_array_open(&at, names_at) == PST_OK && pst_array_map(&at) == PST_OK);
    fuzz_check(pst_array_open(&text, names) == PST_OK && pst_array_map(&text) == PST_OK);
    const int64_t *begin = at.map;
    fuzz_check(at.shape[0] == vertices + 1 && begin[0] == 0 && begin[vertices] == text.shape[0]);
    for (int64_t v = 0; v < vertices; v++) {
        const size_t n = (size_t)(begin[v + 1] - begin[v]);
        fuzz_check(pst_utf8_valid((const char *)text.map + begin[v], n) == n);
    }
    pst_array_close(&at);
    pst_array_close(&text);
}

static void edges(struct pst_edge_text_spec spec)
{
    static struct pst_build b;
    struct pst_csc_builder *c;
    struct pst_edge_text e;
    int64_t vertices = -1;
    (void)snprintf(b.partial, sizeof b.partial, "%s", dir);
    const struct pst_csc_builder_spec csc = {.build = &b, .memory_bytes = 4 << 20, .threads = 1};
    spec.path = file;
    spec.memory_bytes =
        spec.ids == PST_EDGE_TEXT_IDS_STRINGS ? PST_NAMES_MEMORY_MIN : 1 << 20; /* some hundred names */
    fuzz_check(pst_csc_builder_new(&c, &csc) == PST_OK && pst_edge_text_init(&e, &spec) == PST_OK);
    if (pst_edge_text_feed(&e, c, &vertices, NULL) == PST_OK) {
        fuzz_check(vertices >= 0 && e.edges > 0);
        if (spec.ids == PST_EDGE_TEXT_IDS_STRINGS)
            look_at_names(vertices);
    }
    (void)unlink(names);
    (void)unlink(names_at);
    pst_edge_text_release(&e);
    pst_csc_builder_free(c);
}

static void archive(void)
{
    struct pst_zip z;
    if (pst_zip_open(&z, file) == PST_OK)
        for (int i = 0; i < z.members && i < 4; i++) {
            (void)unlink(out);
            (void)pst_zip_extract(&z, &z.member[i], out, NULL);
        }
    pst_zip_close(&z);
}

static void web(void)
{
    struct pst_bvgraph g;
    const int64_t *id;
    int64_t n;
    pst_rc rc = pst_bvgraph_open(&g, file, 1 << 20);
    while (rc == PST_OK && g.node < g.nodes && (rc = pst_bvgraph_next(&g, &id, &n)) == PST_OK)
        for (int64_t i = 0; i < n; i++)
            fuzz_check(id[i] >= 0 && id[i] < g.nodes && (i == 0 || id[i] > id[i - 1]));
    pst_bvgraph_close(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    FILE *f = fopen(file, "we");
    fuzz_check(f && fwrite(data + 1, 1, bytes - 1, f) == bytes - 1 && fclose(f) == 0);
    (void)unlink(out);
    const struct pst_text_array_spec reals = {
        .path = file, .to = out, .may_be_nan = data[0] & 8, .rows = -1, .columns = -1};
    switch (data[0] % 6) {
    case 0:
        edges((struct pst_edge_text_spec){.by = PST_EDGE_TEXT_BY_BLANKS,
                                          .comment = '#',
                                          .column = {0, 1},
                                          .expect = -1,
                                          .ids = PST_EDGE_TEXT_IDS_COMPACT});
        break;
    case 1:
        edges((struct pst_edge_text_spec){
            .by = PST_EDGE_TEXT_BY_CHARACTER, .separator = ',', .column = {2, 0}, .expect = -1});
        break;
    case 2:
        edges((struct pst_edge_text_spec){.by = PST_EDGE_TEXT_BY_CHARACTER,
                                          .separator = ',',
                                          .column = {0, 1},
                                          .expect = -1,
                                          .ids = PST_EDGE_TEXT_IDS_STRINGS});
        break;
    case 3: archive(); break;
    case 4: web(); break;
    default: (void)pst_text_array(&reals, NULL, NULL); break;
    }
    return 0;
}
