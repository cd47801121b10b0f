/* penstock import: datasets from other programs' files. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../common/error.h"
#include "../../common/store/import.h"
#include "../../common/store/memory.h"
#include "commands.h"
#include "store_options.h"

#define THREADS_MAX 64 /* more than the sorter uses */

enum {
    OPT_SOURCE = 256, /* + enum pst_source_id */
    OPT_NAME = OPT_SOURCE + PST_SOURCES,
    OPT_VERTICES,
    OPT_CLASSES,
    OPT_DIM,
    OPT_SHAPE,
    OPT_SYMMETRIZE,
    OPT_DEDUPE,
    OPT_LOOPS,
    OPT_NORMALIZE,
    OPT_STRIDE,
    OPT_MEMORY,
    OPT_THREADS,
    OPT_TRANSPOSE,
    OPT_FORCE,
    OPT_QUIET,
    OPT_HELP
};

static const struct option options[] = {
    {"edges", required_argument, NULL, OPT_SOURCE + PST_SRC_EDGES},
    {"features", required_argument, NULL, OPT_SOURCE + PST_SRC_FEATURES},
    {"feat-indptr", required_argument, NULL, OPT_SOURCE + PST_SRC_FEAT_INDPTR},
    {"feat-indices", required_argument, NULL, OPT_SOURCE + PST_SRC_FEAT_INDICES},
    {"feat-data", required_argument, NULL, OPT_SOURCE + PST_SRC_FEAT_DATA},
    {"labels", required_argument, NULL, OPT_SOURCE + PST_SRC_LABELS},
    {"train", required_argument, NULL, OPT_SOURCE + PST_SRC_TRAIN},
    {"val", required_argument, NULL, OPT_SOURCE + PST_SRC_VAL},
    {"test", required_argument, NULL, OPT_SOURCE + PST_SRC_TEST},
    {"name", required_argument, NULL, OPT_NAME},
    {"vertices", required_argument, NULL, OPT_VERTICES},
    {"classes", required_argument, NULL, OPT_CLASSES},
    {"feature-dim", required_argument, NULL, OPT_DIM},
    {"edge-shape", required_argument, NULL, OPT_SHAPE},
    {"symmetrize", no_argument, NULL, OPT_SYMMETRIZE},
    {"dedupe", no_argument, NULL, OPT_DEDUPE},
    {"self-loops", required_argument, NULL, OPT_LOOPS},
    {"normalize", required_argument, NULL, OPT_NORMALIZE},
    {"stride-bytes", required_argument, NULL, OPT_STRIDE},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"transpose", no_argument, NULL, OPT_TRANSPOSE},
    {"force", no_argument, NULL, OPT_FORCE},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0}};

static const char help[] =
    "usage: penstock import npy SRC DIR [options]\n"
    "Makes the dataset DIR from the .npy files of the directory SRC:\n"
    "  edges.npy              (2, E) or (E, 2), int32 or int64: source, then target\n"
    "  feat.npy, features.npy (N, D) float32, float64 (made float32) or float16; or, as CSR,\n"
    "  feat_indptr.npy, feat_indices.npy, feat_data.npy\n"
    "  labels.npy             integers, -1 none; or floats, NaN none\n"
    "  train_idx.npy, val_idx.npy, test_idx.npy   vertex ids\n"
    "  meta.json              name, num_nodes, num_features, num_classes, where it has them\n"
    "Other files: --edges FILE --features FILE --feat-indptr FILE --feat-indices FILE --feat-data FILE\n"
    "  --labels FILE --train FILE --val FILE --test FILE; 'none' leaves one out\n"
    "  --edge-shape 2xE|Ex2   when both are possible\n"
    "  --symmetrize           every edge in both directions\n"
    "  --dedupe               one edge for each (source, target)\n"
    "  --self-loops keep|add|remove   add: exactly one for each vertex (keep)\n"
    "  --normalize none|l1|l2 each feature row, by the sum of its magnitudes or its length (none)\n"
    "  --vertices N --classes N --feature-dim N   where the arrays do not say\n"
    "  --name NAME            the dataset's name (meta.json's, or SRC's)\n"
    "  --stride-bytes N       from one feature row to the next; default: whole sectors where that\n"
    "                         costs at most 1/8, else unpadded\n"
    "  --memory BYTES         limit for the topology while it is made (8G)\n"
    "  --force                replace the dataset that is at DIR\n"
    "  --quiet                no progress\n";

struct args {
    int64_t threads;
    struct pst_import_spec spec;
    bool skip[PST_SOURCES];
    bool force, quiet, help;
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
    a->skip[id] = strcmp(optarg, "none") == 0;
    if (a->skip[id])
        return PST_OK;
    return option_name("a file's path", optarg, a->spec.source[id], sizeof a->spec.source[id]);
}

static pst_rc word_options(struct args *a, int opt)
{
    static const char *const shapes[] = {"2xE", "Ex2"}, *const loops[] = {"keep", "add", "remove"},
                             *const norms[] = {"none", "l1", "l2"};
    int word = 0;
    pst_rc rc = opt == OPT_SHAPE   ? option_word("--edge-shape", optarg, shapes, 2, &word)
                : opt == OPT_LOOPS ? option_word("--self-loops", optarg, loops, 3, &word)
                                   : option_word("--normalize", optarg, norms, 3, &word);
    if (rc != PST_OK)
        return rc;
    if (opt == OPT_SHAPE)
        a->spec.edge_shape = word == 0 ? PST_EDGES_2XE : PST_EDGES_EX2;
    else if (opt == OPT_LOOPS)
        a->spec.self_loops = (enum pst_self_loops)word;
    else
        a->spec.normalize = (enum pst_normalize)word;
    return PST_OK;
}

static pst_rc one_option(struct args *a, int opt)
{
    struct pst_import_spec *s = &a->spec;
    if (opt >= OPT_SOURCE && opt < OPT_SOURCE + PST_SOURCES)
        return source_option(a, opt - OPT_SOURCE);
    switch (opt) {
    case OPT_NAME: return option_name("--name", optarg, s->name, sizeof s->name);
    case OPT_VERTICES: return option_int("--vertices", optarg, 0, INT64_MAX / 32, &s->vertices);
    case OPT_CLASSES: return option_int("--classes", optarg, 0, PST_CLASSES_MAX, &s->classes);
    case OPT_DIM: return option_int("--feature-dim", optarg, 0, INT32_MAX, &s->feature_dim);
    case OPT_SHAPE:
    case OPT_LOOPS:
    case OPT_NORMALIZE: return word_options(a, opt);
    case OPT_SYMMETRIZE: s->symmetrize = true; return PST_OK;
    case OPT_DEDUPE: s->dedupe = true; return PST_OK;
    case OPT_STRIDE: return option_bytes("--stride-bytes", optarg, &s->stride_bytes);
    case OPT_MEMORY: return option_bytes("--memory", optarg, &s->memory_bytes);
    case OPT_THREADS: return option_int("--threads", optarg, 1, THREADS_MAX, &a->threads);
    case OPT_TRANSPOSE: s->transpose = true; return PST_OK;
    case OPT_FORCE: a->force = true; return PST_OK;
    case OPT_QUIET: a->quiet = true; return PST_OK;
    case OPT_HELP: a->help = true; return PST_OK;
    default: return pst_fail(PST_E_ARG, "see penstock import --help");
    }
}

static void join(int argc, char **argv, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "penstock import");
    for (int i = 1; i < argc && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, " %s", argv[i]);
}

static void say_done(const struct pst_build *b, const struct pst_import_result *r)
{
    if (r->warnings.count > 0)
        (void)fprintf(stderr, "warnings:%s\n", r->warnings.text);
    (void)printf("%s: %" PRId64 " vertices, %" PRId64 " edges, %" PRId64 " features in rows of %" PRIu64
                 " bytes, %" PRId64 " classes\n",
                 b->dir, b->manifest.vertices, b->manifest.edges, b->manifest.feature_dim,
                 b->manifest.stride_bytes, b->manifest.classes);
    if (r->duplicates_removed + r->loops_removed + r->loops_added > 0)
        (void)printf("duplicates removed: %" PRId64 ", self loops removed: %" PRId64 ", added: %" PRId64 "\n",
                     r->duplicates_removed, r->loops_removed, r->loops_added);
}

static pst_rc import_npy(struct args *a, const char *from, const char *to)
{
    pst_rc rc = pst_import_find(&a->spec, from, a->skip);
    if (rc != PST_OK)
        return rc;
    struct pst_build b;
    struct pst_progress progress;
    struct pst_import_result result;
    a->spec.threads = (int)a->threads;
    pst_progress_init(&progress, a->quiet);
    rc = pst_build_begin(&b, to, a->force);
    if (rc != PST_OK)
        return rc;
    rc = pst_import(&a->spec, &b, &result, &progress);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    if (rc == PST_OK)
        say_done(&b, &result);
    pst_build_release(&b);
    return rc;
}

int cmd_import(int argc, char **argv)
{
    char command[8192];
    join(argc, argv, command, sizeof command);
    struct args a = {.force = false};
    pst_import_defaults(&a.spec);
    a.spec.command = command;
    a.spec.memory_bytes = pst_memory_default();
    a.threads = 2;
    pst_rc rc = PST_OK;
    int opt;
    optind = 1;
    while (rc == PST_OK && !a.help && (opt = getopt_long(argc, argv, "", options, NULL)) != -1)
        rc = one_option(&a, opt);
    if (rc == PST_OK && a.help) {
        (void)fputs(help, stdout);
        return 0;
    }
    if (rc == PST_OK && argc - optind != 3)
        rc = pst_fail(PST_E_ARG, "expected npy SRC DIR, found %d words (see --help)", argc - optind);
    if (rc == PST_OK && strcmp(argv[optind], "npy") != 0)
        rc = pst_fail(PST_E_ARG, "format: expected npy, found '%.64s'", argv[optind]);
    if (rc == PST_OK)
        rc = import_npy(&a, argv[optind + 1], argv[optind + 2]);
    return command_result("import", rc);
}
