/* Whole imports: the first byte chooses a format and one of its files, the rest is what that file holds; the
 * others are good. What is imported must verify, and what is refused must leave nothing. */
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>

#include "common/error.h"
#include "common/store/formats/formats.h"
#include "common/store/dataset/verify.h"
#include "tests/fuzz/fuzz.h"

#define MEMORY (16u << 20)   /* the least that reads text */
#define FILE_BYTES (1 << 20) /* a claim of many vertices ends here, not on the disk */
#define DIGITS 5             /* of a number in text: claims of more only cost time */

static char dir[64] = "/dev/shm/penstock-fuzz-XXXXXX"; /* in memory: a disk would set the pace */

static const struct {
    const char *format, *from, *file;
    bool counts; /* text that says how large things are */
} cases[] = {
    {"triples", "t", "t/train.txt", false},
    {"openke", "k", "k/entity2id.txt", true},
    {"openke", "k", "k/train2id.txt", true},
    {"graphbolt", "g", "g/metadata.yaml", true},
    {"graphbolt", "g", "g/e.npy", false},
    {"graphbolt", "h", "h/metadata.yaml", true},
    {"marius", "m", "m/dataset.yaml", true},
    {"marius", "m", "m/edges/train_edges.bin", false},
    {"marius", "m", "m/nodes/node_mapping.txt", false},
    {"npz", "a.npz", "a.npz", false},
    {"ogb", "o", "o/raw/data.npz", false},
    {"igb", "i", "i/paper__cites__paper/edge_index.npy", false},
    {"igb", "i", "i/paper/node_label_19.npy", false},
    {"mag240m", "w", "w/paper___cites___paper/edge_index.npy", false},
    {"webgraph", "b", "b.properties", true},
    {"webgraph", "b", "b.graph", false},
    {"npy", "n", "n/edges.npy", false},
    {"npy", "n", "n/meta.json", true},
    {"npy", "n", "n/labels.npy", false},
    {"npy", "n", "n/train_idx.npy", false},
    {"npz", "c.npz", "c.npz", false},
    {"csv", "v", "v/edges.csv", true},
    {"csv", "v", "v/vertices.csv", true},
    {"csv", "v", "v/labels.csv", true},
    {"csv", "v", "v/features.csv", true},
    {"csv", "v", "v/train_idx.csv", true},
    {"csv", "v", "v/meta.json", true},
    {"csv", "x", "x/triples_val.csv", true},
    {"csv", "x", "x/relations.csv", true},
    {"csv", "y", "y/meta.json", true},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static char *path_of(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *out = paths[next++ % 4];
    (void)snprintf(out, sizeof paths[0], "%s/%s", dir, name);
    return out;
}

static void put(const char *name, const void *data, size_t bytes)
{
    char *path = path_of(name);
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(path, 0700);
        *p = '/';
    }
    FILE *f = fopen(path, "we");
    fuzz_check(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
}

static void put_array(const char *name, enum pst_dtype dtype, int64_t rows, int64_t columns, const void *data)
{
    const int64_t shape[2] = {rows, columns};
    struct pst_array_writer w;
    uint64_t checksum;
    put(name, "", 0);
    fuzz_check(unlink(path_of(name)) == 0);
    fuzz_check(pst_array_writer_init(&w, path_of(name), dtype, columns > 1 ? 2 : 1, shape) == PST_OK);
    fuzz_check(pst_array_write(&w, data, (size_t)(rows * columns) * pst_dtype_bytes(dtype)) == PST_OK);
    fuzz_check(pst_array_writer_finish(&w, &checksum) == PST_OK);
    pst_array_writer_release(&w);
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

static void put_sources(void)
{
    static const int32_t wide[2][3] = {{0, 0, 3}, {1, 2, 1}}, tall[3][2] = {{0, 1}, {0, 2}, {3, 1}};
    static const int32_t ids[4] = {3, 0, 2, 1};
    static const float labels[4] = {1, 0, 2, 1}, features[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    put_text("t/train.txt", "a\tr\tb\na\ts\tc\n");
    put_text("t/test.txt", "b\tr\tc\n");
    put_text("k/entity2id.txt", "2\na\t0\nb\t1\n");
    put_text("k/relation2id.txt", "1\nr\t0\n");
    put_text("k/train2id.txt", "1\n0 1 0\n");
    put_text("g/metadata.yaml", "graph: {nodes: [{num: 4}], edges: [{format: numpy, path: e.npy}]}\n");
    put_array("g/e.npy", PST_I32, 2, 3, wide);
    put_text("h/e.csv", "0,1\n2,1\n");
    put_array("h/e.npy", PST_I32, 2, 3, wide);
    put_array("h/pairs.npy", PST_I32, 3, 2, tall);
    put_array("h/ids.npy", PST_I32, 4, 1, ids);
    put_array("h/labels.npy", PST_F32, 4, 1, labels);
    put_array("h/feat.npy", PST_F32, 4, 2, features);
    put_text("m/dataset.yaml", "num_edges: 3\nnum_nodes: 4\nnode_feature_dim: 2\nnum_train: 4\n");
    put("m/edges/train_edges.bin", tall, sizeof tall);
    put("m/edges/test_edges.bin", tall, sizeof tall);
    put("m/nodes/features.bin", features, sizeof features);
    put("m/nodes/train_nodes.bin", ids, sizeof ids);
    put_text("m/nodes/node_mapping.txt", "a,0\nb,1\nc,3\nd,2\n");
    put_array("i/paper__cites__paper/edge_index.npy", PST_I32, 3, 2, tall);
    put("i/paper/node_label_19.npy", labels, sizeof labels);
    put_array("w/paper___cites___paper/edge_index.npy", PST_I32, 2, 3, wide);
    put_array("w/author___writes___paper/edge_index.npy", PST_I32, 2, 3, wide);
    put_text("b.properties", "nodes=10\narcs=30\n");
    put("b.graph", ids, sizeof ids);
    put_array("n/edges.npy", PST_I32, 2, 3, wide);
    put_array("n/labels.npy", PST_F32, 4, 1, labels);
    put_array("n/train_idx.npy", PST_I32, 4, 1, ids);
    put_text("n/meta.json", "{\"num_nodes\": 4}");
    put_text("v/edges.csv", "source,target\na,b\nc,\"b\"\n");
    put_text("v/vertices.csv", "vertex\nb\na\nc\n");
    put_text("v/labels.csv", "vertex,label\na,1\nc,0\n");
    put_text("v/features.csv", "vertex,x0,x1\nb,1,2\na,.5,-1e3\nc,0,0\n");
    put_text("v/train_idx.csv", "vertex\nc\n");
    put_text("v/meta.json", "{\"kept\": [\"names\"], \"feature_dtype\": \"float16\"}");
    put_text("x/edges.csv", "source,target,relation\n0,1,r\n1,2,q\n");
    put_text("x/relations.csv", "relation\nr\nq\n");
    put_text("x/triples_val.csv", "head,relation,tail\n2,q,0\n");
    put_text("x/meta.json", "{\"num_nodes\": 3}");
    put_text("y/edges_0.csv", "0,1\n1,0\n");
    put_text("y/feat_0.csv", "vertex,x0\n1,2\n0,1\n");
    put_text("y/labels.csv", "type,vertex,label\na,1,0\nb,0,1\n");
    put_text("y/meta.json", "{}");
}

static void tidy(void)
{
    char line[128];
    (void)snprintf(line, sizeof line, "rm -rf %s", dir);
    fuzz_check(system(line) == 0); /* NOLINT: a name of our own */
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    if (!mkdtemp(dir)) {
        (void)snprintf(dir, sizeof dir, "/tmp/penstock-fuzz-XXXXXX");
        fuzz_check(mkdtemp(dir));
    }
    put_sources();
    (void)atexit(tidy);
    return 0;
}

/* Whether a number in the text has more digits than are tried. */
static bool claims_much(const uint8_t *data, size_t bytes)
{
    int run = 0;
    for (size_t i = 0; i < bytes; i++) {
        run = data[i] >= '0' && data[i] <= '9' ? run + 1 : 0;
        if (run > DIGITS)
            return true;
    }
    return false;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    (void)signal(SIGXFSZ, SIG_IGN);
    fuzz_check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void import(const char *format, const char *from)
{
    static struct pst_import_job job;
    static struct pst_import_result result;
    struct pst_build b;
    char source[256];
    (void)snprintf(source, sizeof source, "%s", path_of(from));
    job = (struct pst_import_job){.from = source, .build = &b, .result = &result};
    result = (struct pst_import_result){.warnings = {.count = 0}};
    pst_import_defaults(&job.spec);
    job.spec.memory_bytes = MEMORY;
    job.text = (struct pst_edge_text_spec){.column = {0, 1}, .expect = -1};
    (void)snprintf(job.types, sizeof job.types, strcmp(format, "mag240m") == 0 ? "all" : "");
    fuzz_check(pst_build_begin(&b, path_of("out"), true) == PST_OK);
    limit_files(FILE_BYTES);
    pst_rc rc = pst_formats_find(format)->run(&job);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    limit_files(RLIM_INFINITY);
    fuzz_check(rc == PST_OK || pst_error_text()[0] != '\0');
    pst_build_release(&b);
    if (rc == PST_OK && pst_dataset_verify(path_of("out"), false) != PST_OK) {
        fprintf(stderr, "imported, but: %s\n", pst_error_text());
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t good[1 << 16];
    if (bytes == 0)
        return 0;
    unsigned k = data[0] % CASES;
    if (cases[k].counts && claims_much(data + 1, bytes - 1))
        return -1;
    FILE *f = fopen(path_of(cases[k].file), "re");
    size_t n = f ? fread(good, 1, sizeof good, f) : 0;
    if (f)
        (void)fclose(f);
    put(cases[k].file, data + 1, bytes - 1);
    import(cases[k].format, cases[k].from);
    if (f)
        put(cases[k].file, good, n);
    else
        (void)unlink(path_of(cases[k].file));
    return 0;
}
