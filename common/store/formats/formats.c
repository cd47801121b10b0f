#include "common/store/formats/formats.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"

/* Memory that is set aside for ids or names; what is left sorts. */
static uint64_t memory_of_ids(const struct pst_import_job *job)
{
    uint64_t all = job->spec.memory_bytes;
    switch (job->text.ids) {
    case PST_EDGE_TEXT_IDS_KEEP: return all / 16;
    case PST_EDGE_TEXT_IDS_COMPACT: return all / 4;
    default: return all / 2;
    }
}

pst_rc pst_import_edge_text(struct pst_import_job *job, const char *path)
{
    struct pst_edge_text e;
    job->text.path = path;
    job->text.memory_bytes = memory_of_ids(job);
    uint64_t own = job->text.memory_bytes + PST_TEXT_BYTES;
    if (job->spec.memory_bytes <= 2 * own &&
        job->spec.memory_bytes - job->text.memory_bytes <= PST_TEXT_BYTES)
        return pst_fail(PST_E_LIMIT, "--memory: too little to read text: at least 32 MiB");
    pst_rc rc = pst_edge_text_init(&e, &job->text);
    struct pst_import_spec spec = job->spec;
    spec.memory_bytes -= own;
    spec.feed = pst_edge_text_feed;
    spec.feed_ctx = &e;
    spec.feed_resumes = e.spec.ids != PST_EDGE_TEXT_IDS_COMPACT;
    spec.feed_replays = e.spec.ids == PST_EDGE_TEXT_IDS_STRINGS;
    if (rc == PST_OK)
        rc = pst_import(&spec, job->build, job->result, job->progress);
    if (rc == PST_OK)
        rc = pst_edge_text_write(&e, job->build);
    if (rc == PST_OK)
        pst_edge_text_tell(&e, &job->result->warnings);
    pst_edge_text_release(&e);
    return rc;
}

void pst_import_name(struct pst_import_spec *spec, const char *from)
{
    if (spec->name[0] != '\0')
        return;
    size_t end = strlen(from);
    while (end > 1 && from[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && from[begin - 1] != '/')
        begin--;
    size_t stop = begin;
    while (stop < end && (from[stop] != '.' || stop == begin))
        stop++;
    (void)snprintf(spec->name, sizeof spec->name, "%.*s", (int)(stop - begin), from + begin);
    if (spec->name[0] == '\0' || strcmp(spec->name, ".") == 0)
        (void)snprintf(spec->name, sizeof spec->name, "imported");
}

static pst_rc run_text(struct pst_import_job *job, char separator, char comment)
{
    struct stat st;
    if (stat(job->from, &st) != 0)
        return pst_fail_errno("cannot read %s", job->from);
    if (!S_ISREG(st.st_mode))
        return pst_fail(PST_E_ARG, "%s: expected a file of edges", job->from);
    if (job->spec.source[PST_IMPORT_EDGES][0] != '\0')
        return pst_fail(PST_E_ARG, "--edges: SRC is the file of edges");
    if (job->text.ids == PST_EDGE_TEXT_IDS_STRINGS && separator != '\0' &&
        job->text.header == PST_EDGE_TEXT_HEADER_AUTO)
        return pst_fail(
            PST_E_ARG,
            "%s: whether the first line names columns cannot be told when ids are names: say --header yes "
            "or no",
            job->from);
    pst_import_name(&job->spec, job->from);
    if (job->text.separator == '\1')
        job->text.separator = separator;
    job->text.comment = comment;
    return pst_import_edge_text(job, job->from);
}

static pst_rc run_snap(struct pst_import_job *job)
{
    return run_text(job, '\0', '#');
}

static pst_rc run_csv(struct pst_import_job *job)
{
    return run_text(job, ',', '\0');
}

static pst_rc run_tsv(struct pst_import_job *job)
{
    return run_text(job, '\t', '\0');
}

static pst_rc run_psv(struct pst_import_job *job)
{
    return run_text(job, '|', '\0');
}

static const struct pst_format formats[] = {
    {"npy", "a directory of NumPy arrays (see below)", pst_import_npy},
    {"snap", "a file of edges, source then target, between blanks; lines with # are comments", run_snap},
    {"csv", "a file of edges, comma-separated", run_csv},
    {"tsv", "a file of edges, tab-separated", run_tsv},
    {"psv", "a file of edges, separated by | (LDBC SNB)", run_psv},
    {"triples", "a directory of train, valid and test .txt or .tsv: head, relation, tail between tabs",
     pst_import_triples},
    {"openke", "a directory of entity2id.txt, relation2id.txt, train2id.txt: head, tail, relation",
     pst_import_openke},
    {"webgraph", "WebGraph's BVGraph: NAME of NAME.graph and NAME.properties", pst_import_webgraph},
    {"npz", "an .npz of SciPy's CSR parts: adj_*, attr_*, labels; or of scipy.sparse.save_npz",
     pst_import_npz},
    {"ogb", "a directory of OGB's: raw/edge.csv.gz or raw/data.npz, node-label; split/NAME/train.csv.gz",
     pst_import_ogb},
    {"igb", "a directory of IGB's: processed/paper__cites__paper/edge_index.npy, paper/node_feat.npy",
     pst_import_igb},
    {"mag240m", "MAG240M: processed/, meta.pt and split_dict.pt (those two need python3)",
     pst_import_mag240m},
    {"graphbolt", "a directory of GraphBolt's: metadata.yaml names the files", pst_import_graphbolt},
    {"marius", "a directory that marius_preprocess made: dataset.yaml, edges/train_edges.bin, nodes/",
     pst_import_marius},
    {"planetoid", "Planetoid's pickles: .../ind.cora of ind.cora.x, ind.cora.graph, ... (needs python3)",
     pst_import_planetoid},
};

const struct pst_format *pst_format_at(unsigned index)
{
    return index < sizeof formats / sizeof formats[0] ? &formats[index] : NULL;
}

const struct pst_format *pst_format_find(const char *name)
{
    for (unsigned i = 0; pst_format_at(i) != NULL; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}
