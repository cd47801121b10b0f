/* import.c: penstock import: converts files of other programs to datasets. */
#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/formats/formats.h"
#include "common/store/dataset/manifest.h"
#include "common/util/memory.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define THREADS_MAX 64         /* more than the sorter uses */
#define CHECKPOINT_MAX_S 86400 /* a day: as good as never */
#define THREADS_DEFAULT_MAX 4  /* beyond, one that reads is what bounds */

enum {
    OPT_SOURCE = 256, /* + enum pst_import_source_id */
    OPT_NAME = OPT_SOURCE + PST_IMPORT_SOURCES,
    OPT_VERTICES,
    OPT_CLASSES,
    OPT_DIM,
    OPT_SHAPE,
    OPT_SYMMETRIZE,
    OPT_DEDUPE,
    OPT_LOOPS,
    OPT_LOOP_WEIGHT,
    OPT_WEIGHT_COLUMN,
    OPT_NORMALIZE,
    OPT_STRIDE,
    OPT_MEMORY,
    OPT_THREADS,
    OPT_TRANSPOSE,
    OPT_IDS,
    OPT_HEADER,
    OPT_SEPARATOR,
    OPT_COLUMNS,
    OPT_VERTEX_COLUMN,
    OPT_LABEL_COLUMN,
    OPT_SPLIT_COLUMN,
    OPT_FEATURE_COLUMNS,
    OPT_SPLIT,
    OPT_TYPES,
    OPT_LINK,
    OPT_STRIPES,
    OPT_STRIPE_DIRS,
    OPT_RESUME,
    OPT_CHECKPOINT,
    OPT_FORCE,
    OPT_QUIET,
    OPT_HELP
};

static const struct option options[] = {
    {"edges", required_argument, NULL, OPT_SOURCE + PST_IMPORT_EDGES},
    {"edge-weights", required_argument, NULL, OPT_SOURCE + PST_IMPORT_EDGE_WEIGHTS},
    {"edge-times", required_argument, NULL, OPT_SOURCE + PST_IMPORT_EDGE_TIMES},
    {"features", required_argument, NULL, OPT_SOURCE + PST_IMPORT_FEATURES},
    {"feat-indptr", required_argument, NULL, OPT_SOURCE + PST_IMPORT_FEAT_INDPTR},
    {"feat-indices", required_argument, NULL, OPT_SOURCE + PST_IMPORT_FEAT_INDICES},
    {"feat-data", required_argument, NULL, OPT_SOURCE + PST_IMPORT_FEAT_DATA},
    {"labels", required_argument, NULL, OPT_SOURCE + PST_IMPORT_LABELS},
    {"train", required_argument, NULL, OPT_SOURCE + PST_IMPORT_TRAIN},
    {"val", required_argument, NULL, OPT_SOURCE + PST_IMPORT_VAL},
    {"test", required_argument, NULL, OPT_SOURCE + PST_IMPORT_TEST},
    {"name", required_argument, NULL, OPT_NAME},
    {"vertices", required_argument, NULL, OPT_VERTICES},
    {"classes", required_argument, NULL, OPT_CLASSES},
    {"feature-dim", required_argument, NULL, OPT_DIM},
    {"edge-shape", required_argument, NULL, OPT_SHAPE},
    {"symmetrize", no_argument, NULL, OPT_SYMMETRIZE},
    {"dedupe", no_argument, NULL, OPT_DEDUPE},
    {"self-loops", required_argument, NULL, OPT_LOOPS},
    {"loop-weight", required_argument, NULL, OPT_LOOP_WEIGHT},
    {"weight-column", required_argument, NULL, OPT_WEIGHT_COLUMN},
    {"normalize", required_argument, NULL, OPT_NORMALIZE},
    {"stride-bytes", required_argument, NULL, OPT_STRIDE},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"ids", required_argument, NULL, OPT_IDS},
    {"header", required_argument, NULL, OPT_HEADER},
    {"separator", required_argument, NULL, OPT_SEPARATOR},
    {"columns", required_argument, NULL, OPT_COLUMNS},
    {"vertex-column", required_argument, NULL, OPT_VERTEX_COLUMN},
    {"label-column", required_argument, NULL, OPT_LABEL_COLUMN},
    {"split-column", required_argument, NULL, OPT_SPLIT_COLUMN},
    {"feature-columns", required_argument, NULL, OPT_FEATURE_COLUMNS},
    {"split", required_argument, NULL, OPT_SPLIT},
    {"types", required_argument, NULL, OPT_TYPES},
    {"transpose", no_argument, NULL, OPT_TRANSPOSE},
    {"link", no_argument, NULL, OPT_LINK},
    {"stripes", required_argument, NULL, OPT_STRIPES},
    {"stripe-dirs", required_argument, NULL, OPT_STRIPE_DIRS},
    {"resume", no_argument, NULL, OPT_RESUME},
    {"checkpoint", required_argument, NULL, OPT_CHECKPOINT},
    {"force", no_argument, NULL, OPT_FORCE},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0}};

static const char usage[] = "usage: penstock import FORMAT SRC DIR [options]\nImports the graph SRC into the "
                            "dataset DIR. SRC is, for each FORMAT:\n";

static const char help[] =
    "npy reads from SRC, if they are there:\n"
    "  edges.npy              (2, E) or (E, 2) integers: source, then target\n"
    "  edge_weights.npy, edge_weight.npy   (E) numbers of 0 or more: the weight of each edge\n"
    "  edge_times.npy, edge_time.npy   (E) integers from 0 to 2147483647: when each edge came to be\n"
    "  vertex_times.npy       (N) int32 of 0 or more: when each vertex came to be\n"
    "  feat.npy, features.npy (N, D) float32, float64 (made float32), float16 or bfloat16 (<V2); or as CSR:\n"
    "  feat_indptr.npy, feat_indices.npy, feat_data.npy\n"
    "  labels.npy             integers, -1 for none; or floats, NaN for none\n"
    "  targets.npy            (N) or (N, K) float32, numbers to predict (regression), NaN for unknown\n"
    "  train_idx.npy, val_idx.npy, test_idx.npy   vertices\n"
    "  train_mask.npy, ...    (N) of bool, or of 0 and 1; (N, K) makes K splits, mask/0 to mask/K-1\n"
    "  splits/NAME/train_idx.npy, ...   more splits; NAME may be two folders, as geom/3\n"
    "  meta.json              name, num_nodes, num_features, num_classes\n"
    "csv reads from SRC, if it is a directory, the tables that penstock export --format csv writes: "
    "edges.csv,\n"
    "  vertices.csv (what each vertex is called, in the order of their numbers), labels.csv, features.csv,\n"
    "  train_idx.csv, relations.csv, triples_train.csv, ...\n"
    "Other files, also beside a file of edges ('none' leaves one out; features, labels and splits may be "
    "tables:\n"
    ".csv, .tsv, .psv):\n"
    "  --edges FILE --edge-weights FILE --edge-times FILE --features FILE --feat-indptr FILE\n"
    "  --feat-indices FILE --feat-data FILE --labels FILE --train FILE --val FILE --test FILE\n"
    "  --vertex-column NAME   the column that says which vertex a row is of (vertex, id, node or node_id;\n"
    "                         if the table has none: row N is vertex N's)\n"
    "  --label-column NAME    (label, class or y)\n"
    "  --feature-columns A,B,...   (all others)\n"
    "  --split-column NAME    a column that holds train, val or test (split or set); without one, the\n"
    "                         column train, val or test holds 0 or 1, or the table lists the vertices\n"
    "Text may be plain, gzip or zstd, with LF or CR LF. An edge (source, target) makes source an "
    "in-neighbour of\n"
    "target: GraphSAGE aggregates from in-neighbours.\n"
    "  --ids keep|compact|strings   keep: vertices are 0 to the largest id; compact: the ids that occur, in\n"
    "                         rising order; what they were is kept as ids.npy; strings: any text, numbered "
    "as it\n"
    "                         comes and kept as names.npy (keep)\n"
    "  --header yes|no|auto   whether the first line names columns (auto: if it has text in place of ids)\n"
    "  --columns S,T          the columns of source and target: numbers from 0, or names (0,1)\n"
    "  --weight-column C      the column of the edges' weights, numbers of 0 or more: its number, or its "
    "name\n"
    "                         (npz: data). The sampling algorithm 'weighted' uses weights\n"
    "  --separator C          one character in place of the format's\n"
    "  --split NAME           import only this one of several splits or tasks; igb: none makes none\n"
    "  --types all|NAME,...   types of vertices, if SRC has several; one alone makes a plain graph, which "
    "all\n"
    "                         stages can use (igb, mag240m: paper; graphbolt, ogb: all)\n"
    "  --edge-shape 2xE|Ex2|Ex3   if several are possible; Ex3: rows of source, relation, target\n"
    "  --symmetrize           every edge in both directions\n"
    "  --dedupe               one edge for each (source, target); its weight is the sum of its duplicates'\n"
    "                         weights. Edges of different times stay\n"
    "  --self-loops keep|add|remove   add: exactly one for each vertex (keep)\n"
    "  --loop-weight W        the weight of loops that are added; required if edges have weights\n"
    "  --transpose            every edge the other way round\n"
    "  --normalize none|l1|l2 divide each feature row by the sum of its magnitudes, or by its length (none)\n"
    "  --vertices N --classes N --feature-dim N   if the files do not say\n"
    "  --name NAME            the dataset's name (the files', or SRC's)\n"
    "  --stride-bytes N       from one feature row to the next (whole sectors if that costs at most 1/8, "
    "else\n"
    "                         no padding)\n"
    "  --memory BYTES         for sorting and numbering (half of what is free)\n"
    "  --threads N            1: one thread does everything; more: others part and sort (as many as there\n"
    "                         are cores, at most 4)\n"
    "  --link                 features.npy becomes a link to the source's file of rows: it is not copied,\n"
    "                         and must stay as it is\n"
    "  --stripes N            features in N files, row v in features.(v mod N).npy: one for each SSD\n"
    "  --stripe-dirs A,B,...  the directories of these files, in turn; DIR gets links to them\n"
    "  --resume               go on with a killed import of the same command, and do not start over\n"
    "  --checkpoint SECONDS   how much work a kill costs, about (10)\n"
    "  --force                replace the dataset that is at DIR\n"
    "  --quiet                no progress\n";

struct args {
    struct pst_import_job job;
    int64_t threads, checkpoint_s, stripes, dirs; /* dirs: how many stripe_dirs are */
    const char *stripe_dirs;
    bool force, quiet, help, resume;
};

/* The position of text in a list of words. */
static pst_rc option_word(const char *name, const char *text, const char *const *words, int n, int *out)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return PST_OK;
        }
    }
    return pst_fail(PST_E_ARG, "%s: expected %s, %s%s%s, found '%.64s'", name, words[0], words[1],
                    n > 2 ? " or " : "", n > 2 ? words[2] : "", text);
}

static pst_rc source_option(struct args *a, int id)
{
    a->job.skip[id] = strcmp(optarg, "none") == 0;
    if (a->job.skip[id])
        return PST_OK;
    return option_name("a file's path", optarg, a->job.spec.source[id], sizeof a->job.spec.source[id]);
}

static pst_rc word_options(struct args *a, int opt)
{
    static const char *const shapes[] = {"2xE", "Ex2", "Ex3"}, *const loops[] = {"keep", "add", "remove"},
                             *const norms[] = {"none", "l1", "l2"},
                             *const ids[] = {"keep", "compact", "strings"},
                             *const headers[] = {"auto", "yes", "no"};
    int word = 0;
    pst_rc rc = opt == OPT_SHAPE    ? option_word("--edge-shape", optarg, shapes, 3, &word)
                : opt == OPT_LOOPS  ? option_word("--self-loops", optarg, loops, 3, &word)
                : opt == OPT_IDS    ? option_word("--ids", optarg, ids, 3, &word)
                : opt == OPT_HEADER ? option_word("--header", optarg, headers, 3, &word)
                                    : option_word("--normalize", optarg, norms, 3, &word);
    if (rc != PST_OK)
        return rc;
    if (opt == OPT_SHAPE)
        a->job.spec.edge_shape = (enum pst_import_edge_shape)(PST_EDGES_2XE + word);
    else if (opt == OPT_LOOPS)
        a->job.spec.self_loops = (enum pst_csc_builder_self_loops)word;
    else if (opt == OPT_IDS)
        a->job.text.ids = (enum pst_edge_text_ids)word;
    else if (opt == OPT_HEADER)
        a->job.text.header = (enum pst_edge_text_header)word;
    else
        a->job.spec.normalize = (enum pst_import_normalize)word;
    return PST_OK;
}

static pst_rc separator_option(struct args *a)
{
    bool tab = strcmp(optarg, "\\t") == 0;
    if (!tab && (strlen(optarg) != 1 || strchr("\"\r\n0123456789", optarg[0]) != NULL))
        return pst_fail(PST_E_ARG, "--separator: expected one character that is not a digit, found '%.64s'",
                        optarg);
    a->job.text.by = optarg[0] == ' ' ? PST_EDGE_TEXT_BY_BLANKS : PST_EDGE_TEXT_BY_CHARACTER;
    a->job.text.separator = tab ? '\t' : optarg[0];
    return PST_OK;
}

/* True if the word before the comma equals the word after it. */
static bool same_words(const char *text, const char *comma)
{
    const size_t n = (size_t)(comma - text);
    return strlen(comma + 1) == n && memcmp(text, comma + 1, n) == 0;
}

/* Two columns, by number or by name. */
static pst_rc columns_option(struct args *a)
{
    struct pst_edge_text_spec *t = &a->job.text;
    const char *comma = strchr(optarg, ',');
    int end = 0;
    if (sscanf(optarg, "%" SCNd64 ",%" SCNd64 "%n", &t->column[0], &t->column[1], &end) == 2 &&
        optarg[end] == '\0' && t->column[0] >= 0 && t->column[1] >= 0 &&
        t->column[0] < PST_EDGE_TEXT_COLUMNS_MAX && t->column[1] < PST_EDGE_TEXT_COLUMNS_MAX &&
        t->column[0] != t->column[1])
        return PST_OK;
    const bool numbers = strspn(optarg, "0123456789,-") == strlen(optarg);
    if (numbers || comma == NULL || comma == optarg || comma[1] == '\0' || strchr(comma + 1, ',') != NULL ||
        (size_t)(comma - optarg) >= PST_NAME_MAX || strlen(comma + 1) >= PST_NAME_MAX ||
        same_words(optarg, comma))
        return pst_fail(PST_E_ARG,
                        "--columns: expected two different columns from 0 to %d, for example 0,1, or two "
                        "names, for example source,target; found '%.64s'",
                        PST_EDGE_TEXT_COLUMNS_MAX - 1, optarg);
    (void)snprintf(t->column_name[0], PST_NAME_MAX, "%.*s", (int)(comma - optarg), optarg);
    (void)snprintf(t->column_name[1], PST_NAME_MAX, "%s", comma + 1);
    return PST_OK;
}

static pst_rc weight_column_option(struct args *a)
{
    struct pst_edge_text_spec *t = &a->job.text;
    t->weighted = true;
    if (strspn(optarg, "0123456789") == strlen(optarg))
        return option_int("--weight-column", optarg, 0, PST_EDGE_TEXT_COLUMNS_MAX - 1, &t->weight_column);
    return option_name("--weight-column", optarg, t->weight_name, sizeof t->weight_name);
}

static pst_rc loop_weight_option(struct args *a)
{
    int32_t bits;
    pst_rc rc = option_real("--loop-weight", optarg, &a->job.spec.loop_weight);
    if (rc == PST_OK && !pst_csc_builder_weight(a->job.spec.loop_weight, &bits))
        rc = pst_fail(PST_E_ARG, "--loop-weight: expected a number of 0 or more, found '%.64s'", optarg);
    return rc;
}

static pst_rc one_option(struct args *a, int opt)
{
    struct pst_import_spec *s = &a->job.spec;
    if (opt >= OPT_SOURCE && opt < OPT_SOURCE + PST_IMPORT_SOURCES)
        return source_option(a, opt - OPT_SOURCE);
    switch (opt) {
    case OPT_NAME: return option_name("--name", optarg, s->name, sizeof s->name);
    case OPT_VERTICES: return option_int("--vertices", optarg, 0, INT64_MAX / 32, &s->vertices);
    case OPT_CLASSES: return option_int("--classes", optarg, 0, PST_MANIFEST_CLASSES_MAX, &s->classes);
    case OPT_DIM: return option_int("--feature-dim", optarg, 0, INT32_MAX, &s->feature_dim);
    case OPT_SHAPE:
    case OPT_LOOPS:
    case OPT_IDS:
    case OPT_HEADER:
    case OPT_NORMALIZE: return word_options(a, opt);
    case OPT_LOOP_WEIGHT: return loop_weight_option(a);
    case OPT_WEIGHT_COLUMN: return weight_column_option(a);
    case OPT_SYMMETRIZE: s->symmetrize = true; return PST_OK;
    case OPT_DEDUPE: s->dedupe = true; return PST_OK;
    case OPT_STRIDE: return option_bytes("--stride-bytes", optarg, &s->stride_bytes);
    case OPT_MEMORY: return option_bytes("--memory", optarg, &s->memory_bytes);
    case OPT_THREADS: return option_int("--threads", optarg, 1, THREADS_MAX, &a->threads);
    case OPT_SEPARATOR: return separator_option(a);
    case OPT_COLUMNS: return columns_option(a);
    case OPT_VERTEX_COLUMN: return option_name("--vertex-column", optarg, s->columns.vertex, PST_NAME_MAX);
    case OPT_LABEL_COLUMN: return option_name("--label-column", optarg, s->columns.label, PST_NAME_MAX);
    case OPT_SPLIT_COLUMN: return option_name("--split-column", optarg, s->columns.split, PST_NAME_MAX);
    case OPT_FEATURE_COLUMNS:
        return option_name("--feature-columns", optarg, s->columns.features, sizeof s->columns.features);
    case OPT_SPLIT: return option_name("--split", optarg, a->job.split, sizeof a->job.split);
    case OPT_TYPES: return option_name("--types", optarg, a->job.types, sizeof a->job.types);
    case OPT_TRANSPOSE: s->transpose = true; return PST_OK;
    case OPT_LINK: s->link = true; return PST_OK;
    case OPT_STRIPES: return option_int("--stripes", optarg, 1, PST_DATASET_FEATURE_FILES_MAX, &a->stripes);
    case OPT_STRIPE_DIRS: return option_stripe_dirs(optarg, &a->dirs, &a->stripe_dirs);
    case OPT_RESUME: a->resume = true; return PST_OK;
    case OPT_CHECKPOINT: return option_int("--checkpoint", optarg, 0, CHECKPOINT_MAX_S, &a->checkpoint_s);
    case OPT_FORCE: a->force = true; return PST_OK;
    case OPT_QUIET: a->quiet = true; return PST_OK;
    case OPT_HELP: a->help = true; return PST_OK;
    default: return pst_fail(PST_E_ARG, "invalid option: `penstock import --help` lists the options");
    }
}

/* The command without what does not change the dataset, so that the same data have the same digest. */
static void join(int argc, char **argv, char *out, size_t room)
{
    enum { WITH_VALUE = 3, ALL = 6 };
    static const char *const without[ALL] = {"--memory", "--threads", "--checkpoint",
                                             "--quiet",  "--force",   "--resume"};
    size_t used = (size_t)snprintf(out, room, "penstock import");
    for (int i = 1; i < argc && used < room; i++) {
        int k = 0;
        while (k < ALL && strncmp(argv[i], without[k], strlen(without[k])) != 0)
            k++;
        if (k == ALL)
            used += (size_t)snprintf(out + used, room - used, " %s", argv[i]);
        else
            i += k < WITH_VALUE && strchr(argv[i], '=') == NULL;
    }
}

/* The rows of three parts, if there are some. */
static bool say_parts(const char *what, const struct pst_array_entry part[3])
{
    if (!part[0].present && !part[1].present && !part[2].present)
        return false;
    (void)printf("%s: train %" PRId64 ", val %" PRId64 ", test %" PRId64 "\n", what, part[0].shape[0],
                 part[1].shape[0], part[2].shape[0]);
    return true;
}

/* The import's last lines: which splits there are. */
static void say_splits(const struct pst_manifest *m)
{
    bool some = say_parts("triples", &m->array[PST_ARRAY_TRIPLES_TRAIN]);
    some |= say_parts("edges to predict", &m->array[PST_ARRAY_EDGES_TRAIN]);
    if (m->splits == 0)
        some |= say_parts("split", &m->array[PST_ARRAY_TRAIN]);
    for (int k = 0; k < m->splits; k++) {
        char what[PST_NAME_MAX + 16];
        (void)snprintf(what, sizeof what, "split %s", m->split[k].name);
        some |= say_parts(what, k == 0 ? &m->array[PST_ARRAY_TRAIN] : m->split[k].ids);
    }
    if (m->splits > 1)
        (void)printf("pipelines use split %s (params.split chooses another)\n", m->split[0].name);
    if (!some)
        (void)printf("no splits (`penstock split` makes them)\n");
}

static void say_done(const struct pst_build *b, const struct pst_import_result *r)
{
    if (r->warnings.count > 0)
        (void)fprintf(stderr, "warnings:%s\n", r->warnings.text);
    if (b->stripes > 1 && b->manifest.stripes == 0)
        (void)fprintf(stderr, "--stripes has no effect: there are no features\n");
    (void)printf("%s: %" PRId64 " vertices, %" PRId64 " edges, %" PRId64 " features in rows of %" PRIu64
                 " bytes, %" PRId64 " classes\n",
                 b->dir, b->manifest.vertices, b->manifest.edges, b->manifest.feature_dim,
                 b->manifest.stride_bytes, b->manifest.classes);
    const struct pst_csc_builder_counts *n = &r->counts;
    if (n->duplicates_removed + n->loops_removed + n->loops_added > 0)
        (void)printf("duplicates removed: %" PRId64 ", self loops removed: %" PRId64 ", added: %" PRId64 "\n",
                     n->duplicates_removed, n->loops_removed, n->loops_added);
    char peak[32];
    (void)printf("peak memory: %s; sorted in %s", pst_bytes_text((double)pst_memory_peak(), peak),
                 n->parts == 0 ? "memory\n" : "");
    if (n->parts > 0)
        (void)printf("%" PRId64 " parts on disk\n", n->parts);
    say_splits(&b->manifest);
}

/* All files that the import may read, with what would tell that they changed. SRC may also be the beginning
 * of several files' names. */
static pst_rc sources_of(const struct args *a, const char *from, json_t *sources)
{
    pst_rc rc = PST_OK;
    char pattern[4096 + 2];
    glob_t found = {.gl_pathc = 0};
    if (access(from, F_OK) == 0) {
        rc = pst_journal_sources_add(sources, from);
    } else if ((size_t)snprintf(pattern, sizeof pattern, "%s.*", from) < sizeof pattern &&
               glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; rc == PST_OK && i < found.gl_pathc; i++)
            rc = pst_journal_sources_add(sources, found.gl_pathv[i]);
    } else {
        rc = pst_fail(PST_E_ARG, "%s: there is no such file or directory", from);
    }
    globfree(&found);
    for (int i = 0; rc == PST_OK && i < PST_IMPORT_SOURCES; i++)
        if (a->job.spec.source[i][0] != '\0')
            rc = pst_journal_sources_add(sources, a->job.spec.source[i]);
    return rc;
}

static pst_rc begin_build(const struct args *a, const char *from, const char *to, struct pst_build *b)
{
    json_t *sources = json_object();
    pst_rc rc = sources_of(a, from, sources);
    json_t *key = json_pack("{s:s, s:o}", "command", a->job.spec.command, "sources", sources);
    if (rc == PST_OK && key == NULL)
        rc = pst_fail(
            PST_E_ARG,
            "the command line is not valid UTF-8, which --resume requires: use names and options in UTF-8");
    if (rc == PST_OK)
        return pst_build_resume(b, to, a->force, key, a->resume);
    json_decref(key);
    return rc;
}

static void say_resumed(const struct pst_build *b)
{
    const json_t *edges = json_object_get(b->journal.root, "edges");
    const char *phase = json_string_value(json_object_get(edges, "phase"));
    if (!b->resumed)
        (void)fprintf(stderr,
                      "%s: there is no interrupted import to resume; the import starts from the beginning\n",
                      b->dir);
    else if (phase == NULL)
        (void)fprintf(stderr, "resumed: no edges had been saved yet\n");
    else
        (void)fprintf(stderr, "resumed: edges were %s; %" PRId64 " were saved\n", phase,
                      (int64_t)json_integer_value(json_object_get(edges, "arcs")));
}

/* The import may have been killed after its last step: the dataset is there, made by the same command from
 * the same files. */
static pst_rc look_at_whole(const struct args *a, const char *from, const char *to, bool *whole)
{
    struct pst_manifest m;
    struct pst_problems problems = {.count = 0};
    char identity[PST_JOURNAL_IDENTITY_BYTES];
    json_t *sources = json_object();
    pst_manifest_read(&m, to, &problems);
    const char *command = json_string_value(json_object_get(m.provenance, "command"));
    const char *made_of = json_string_value(json_object_get(m.provenance, "sources_identity"));
    *whole = problems.count == 0 && command != NULL && strcmp(command, a->job.spec.command) == 0;
    pst_rc rc = *whole ? sources_of(a, from, sources) : PST_OK;
    pst_journal_sources_identity(sources, identity);
    if (rc == PST_OK && *whole && (made_of == NULL || strcmp(made_of, identity) != 0))
        rc = pst_fail(PST_E_STATE,
                      "%s was made by the same command, but the source files have changed since then: give "
                      "--force to replace the dataset",
                      to);
    json_decref(sources);
    pst_manifest_release(&m);
    return rc;
}

/* What the dataset was made of, so that a later --resume knows whether it is still the same. */
static void note_sources(struct pst_build *b)
{
    char identity[PST_JOURNAL_IDENTITY_BYTES];
    pst_journal_sources_identity(json_object_get(json_object_get(b->journal.root, "key"), "sources"),
                                 identity);
    (void)json_object_set_new(b->manifest.provenance, "sources_identity", json_string(identity));
}

static pst_rc run_format(const struct pst_import_format *format, struct args *a, const char *from,
                         const char *to)
{
    struct pst_build b;
    struct pst_progress progress;
    struct pst_import_result result = {.warnings = {.count = 0}};
    bool whole = false;
    pst_rc rc = a->resume && !a->force ? look_at_whole(a, from, to, &whole) : PST_OK;
    if (whole && rc == PST_OK)
        (void)printf("%s is already complete: the same command made it\n", to);
    if (whole || rc != PST_OK)
        return rc;
    pst_progress_init(&progress, a->quiet);
    rc = begin_build(a, from, to, &b);
    if (rc != PST_OK)
        return rc;
    b.journal.every_s = (double)a->checkpoint_s;
    b.stripes = (int)a->stripes;
    b.stripe_dirs = a->stripe_dirs;
    if (a->resume)
        say_resumed(&b);
    a->job.from = from;
    a->job.spec.threads = (int)a->threads;
    a->job.build = &b;
    a->job.result = &result;
    a->job.progress = &progress;
    rc = format->run(&a->job);
    if (rc == PST_OK)
        rc = pst_import_job_check_taken(&a->job, format->name);
    if (rc == PST_OK)
        note_sources(&b);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    if (rc == PST_OK)
        say_done(&b, &result);
    pst_build_release(&b);
    return rc;
}

static void say_help(void)
{
    (void)fputs(usage, stdout);
    for (unsigned i = 0; pst_formats_at(i) != NULL; i++)
        (void)printf("  %-10s %s\n", pst_formats_at(i)->name, pst_formats_at(i)->help);
    (void)fputs(help, stdout);
}

static pst_rc unknown_format(const char *name)
{
    char names[512] = "";
    size_t used = 0;
    for (unsigned i = 0; pst_formats_at(i) != NULL && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 pst_formats_at(i)->name);
    return pst_fail(PST_E_ARG, "format: expected one of %s; found '%.64s'", names, name);
}

int cmd_import(int argc, char **argv)
{
    static char command[8192];
    join(argc, argv, command, sizeof command);
    static struct args a; /* 40 KiB of paths: not for the stack */
    pst_import_defaults(&a.job.spec);
    a.job.spec.command = command;
    a.job.spec.memory_bytes = pst_memory_default();
    a.job.text = (struct pst_edge_text_spec){.column = {0, 1}, .expect = -1};
    a.checkpoint_s = PST_JOURNAL_SECONDS;
    a.threads = pst_min_i64(THREADS_DEFAULT_MAX, pst_max_i64(1, sysconf(_SC_NPROCESSORS_ONLN)));
    pst_rc rc = PST_OK;
    int opt;
    optind = 1;
    while (rc == PST_OK && !a.help && (opt = getopt_long(argc, argv, "", options, NULL)) != -1)
        rc = one_option(&a, opt);
    if (rc == PST_OK && a.help) {
        say_help();
        return 0;
    }
    a.stripes = a.stripes == 0 ? a.dirs : a.stripes;
    if (rc == PST_OK && a.stripe_dirs != NULL && a.stripes < 2)
        rc = pst_fail(
            PST_E_ARG,
            "--stripe-dirs requires several stripes: give --stripes 2 or more, or several directories");
    if (rc == PST_OK && a.stripes > 1 && a.job.spec.link)
        rc = pst_fail(PST_E_ARG,
                      "--stripes cannot be used with --link, which leaves the features in the source's file");
    if (rc == PST_OK && argc - optind != 3)
        rc = pst_fail(PST_E_ARG,
                      "expected the arguments FORMAT SRC DIR, found %d arguments; --help lists the options",
                      argc - optind);
    const struct pst_import_format *format = rc == PST_OK ? pst_formats_find(argv[optind]) : NULL;
    if (rc == PST_OK)
        rc = format ? run_format(format, &a, argv[optind + 1], argv[optind + 2])
                    : unknown_format(argv[optind]);
    return command_result("import", rc);
}
