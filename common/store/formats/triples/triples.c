/* Knowledge graphs: head, relation, tail as names (triples), or as numbers with their counts (OpenKE's
 * *2id.txt). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/job.h"
#include "common/store/names/name_map.h"
#include "common/store/formats/triples/triple_rows.h"
#include "common/util/utf8.h"

#define COUNT_MAX (INT64_MAX / 128) /* of the rows that a first line may say: their bytes fit 63 bits */

struct graph {
    struct pst_import_job *job;
    struct pst_csc_builder *csc;
    struct pst_dict entities, relations; /* entities: OpenKE's */
    struct pst_triple_rows rows;
    bool openke;
    int64_t n_entities, n_relations; /* OpenKE: what its dictionaries say */
    int64_t carriage_returns, blank_lines;
    /* of the file that is read now */
    struct pst_text text;
    int64_t expect; /* -1, or what the first line says */
};

static const char *const split_names[3][2] = {{"train", "train"}, {"valid", "val"}, {"test", "test"}};

/* The first of a split's usual names that is there. */
static bool find_file(const char *dir, const char *name, bool openke, char out[4096])
{
    static const char *const ends[] = {".txt", ".tsv", ".txt.gz", ".tsv.gz", ".txt.zst", ".tsv.zst"};
    if (openke) {
        (void)snprintf(out, 4096, "%.3900s/%s2id.txt", dir, name);
        return access(out, F_OK) == 0;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(out, 4096, "%.3900s/%s%s", dir, name, ends[i]);
        if (access(out, F_OK) == 0)
            return true;
    }
    (void)snprintf(out, 4096, "%.3900s/%s.txt", dir, name);
    return false;
}

/* A name up to the tab or the line's end. */
static pst_rc read_name(struct graph *g, const char *line, const char **p, struct pst_name *name)
{
    const char *begin = *p, *end = begin;
    while (*end != '\t' && *end != '\n')
        end++;
    if (*end == '\n' && end > begin && end[-1] == '\r')
        end--;
    size_t bytes = (size_t)(end - begin), valid = pst_utf8_valid(begin, bytes);
    if (bytes == 0 || bytes > PST_NAMES_BYTES_MAX)
        return pst_text_fail(&g->text, line, begin,
                             "a name of 1 to 65535 bytes: head, relation, tail between tabs");
    if (valid < bytes || memchr(begin, '\0', bytes) != NULL)
        return pst_text_fail(&g->text, line, begin + (valid < bytes ? valid : 0), "UTF-8 text");
    *name = (struct pst_name){begin, (uint32_t)bytes};
    *p = end;
    return PST_OK;
}

static pst_rc number_relation(struct graph *g, struct pst_name name, int32_t *relation)
{
    int64_t id = 0;
    pst_rc rc = pst_dict_add(&g->relations, name.text, name.bytes, &id);
    if (rc == PST_OK && g->relations.n > INT32_MAX)
        rc = pst_fail(PST_E_LIMIT, "too many relations: at most %d are supported", INT32_MAX);
    *relation = (int32_t)id;
    return rc == PST_OK ? rc : pst_wrap(rc, "%s:%" PRId64, g->text.path, g->text.line);
}

static pst_rc end_of_line(struct graph *g, const char *line, const char *p)
{
    g->carriage_returns += *p == '\r';
    p += *p == '\r';
    return *p == '\n' ? PST_OK : pst_text_fail(&g->text, line, p, "the line's end after three columns");
}

static pst_rc read_named(struct graph *g, const char *line)
{
    const char *p = line;
    struct pst_name name[3] = {{NULL, 0}};
    for (int i = 0; i < 3; i++) {
        pst_rc rc = read_name(g, line, &p, &name[i]);
        if (rc != PST_OK)
            return rc;
        if (i < 2 && *p++ != '\t')
            return pst_text_fail(&g->text, line, p - 1, "three columns: head, relation, tail between tabs");
    }
    struct pst_triple_rows *r = &g->rows;
    pst_rc rc = number_relation(g, name[1], &r->relation[r->n]);
    r->mention[2 * r->n] = name[0];
    r->mention[2 * r->n++ + 1] = name[2];
    return rc == PST_OK ? end_of_line(g, line, p) : rc;
}

static const char *blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* head, tail, relation. */
static pst_rc read_numbered(struct graph *g, const char *line)
{
    const int64_t limit[3] = {g->n_entities, g->n_entities, g->n_relations};
    const char *p = line;
    int64_t id[3];
    for (int i = 0; i < 3; i++) {
        p = blanks(p);
        const char *at = p;
        char what[96];
        (void)snprintf(what, sizeof what, "%s from 0 to %" PRId64, i < 2 ? "an entity" : "a relation",
                       limit[i] - 1);
        if (!pst_text_id(&p, &id[i]) || id[i] >= limit[i])
            return pst_text_fail(&g->text, line, at, what);
    }
    g->rows.source[g->rows.n] = id[0];
    g->rows.target[g->rows.n] = id[1];
    g->rows.relation[g->rows.n++] = (int32_t)id[2];
    return end_of_line(g, line, blanks(p));
}

static pst_rc read_count(const struct pst_text *t, const char *line, int64_t max, int64_t *out)
{
    const char *p = blanks(line);
    char what[64];
    (void)snprintf(what, sizeof what, "a count from 0 to %" PRId64 " and nothing else", max);
    if (!pst_text_id(&p, out) || *out > max || (*blanks(p) != '\n' && *blanks(p) != '\r'))
        return pst_text_fail(t, line, line, what);
    return PST_OK;
}

static pst_rc read_line(struct graph *g, const char *line)
{
    const char *p = blanks(line);
    if (*p == '\n' || (*p == '\r' && p[1] == '\n')) {
        g->blank_lines++;
        return PST_OK;
    }
    if (g->openke && g->expect < 0)
        return read_count(&g->text, line, COUNT_MAX, &g->expect);
    pst_rc rc = g->rows.n == PST_CSC_BUILDER_EDGE_BLOCK ? pst_triple_rows_flush(&g->rows) : PST_OK;
    if (rc == PST_OK)
        rc = g->openke ? read_numbered(g, line) : read_named(g, line);
    return rc;
}

static pst_rc read_lines(struct graph *g)
{
    struct pst_progress *progress = g->job->progress;
    pst_progress_begin(progress, "triples: reading", g->text.file_bytes, true);
    for (uint64_t told = 0;;) {
        const char *p, *end;
        pst_rc rc = pst_text_block(&g->text, &p, &end);
        if (rc != PST_OK)
            return rc;
        if (p == end)
            break;
        for (; p < end; p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1, g->text.line++)
            if ((rc = read_line(g, p)) != PST_OK)
                return rc;
        if ((rc = pst_triple_rows_flush(&g->rows)) != PST_OK) /* the text is about to go */
            return rc;
        if ((rc = pst_progress_add(progress, g->text.file_at - told)) != PST_OK)
            return rc;
        told = g->text.file_at;
    }
    pst_progress_end(progress);
    return PST_OK;
}

static pst_rc read_split(struct graph *g, int split, const char *path)
{
    const int64_t *rows = &g->rows.splits[split].rows;
    g->expect = -1;
    pst_rc rc = pst_text_open(&g->text, path);
    if (rc == PST_OK)
        rc = pst_triple_rows_begin(&g->rows, split);
    if (rc == PST_OK)
        rc = read_lines(g);
    if (rc == PST_OK && *rows == 0)
        rc = pst_fail(PST_E_FORMAT, "%s: expected triples, but the file has none", path);
    if (rc == PST_OK && g->expect >= 0 && g->expect != *rows)
        rc = pst_fail(PST_E_FORMAT,
                      "%s: the first line announces %" PRId64 " triples, but the file has %" PRId64, path,
                      g->expect, *rows);
    if (rc == PST_OK)
        rc = pst_triple_rows_end(&g->rows);
    if (g->text.bom)
        pst_problem(&g->job->result->warnings, "%s: a byte order mark was skipped", path);
    pst_text_close(&g->text);
    return rc;
}

static pst_rc read_dictionary(struct graph *g, const char *name, struct pst_dict *out, int64_t *n)
{
    char path[4096];
    (void)find_file(g->job->from, name, true, path);
    const struct pst_name_map_spec spec = {
        .path = path, .separator = '\t', .counted = true, .warnings = &g->job->result->warnings};
    pst_rc rc = pst_name_map_read(&spec, out);
    *n = out->n;
    return rc;
}

static pst_rc read_splits(struct graph *g)
{
    pst_rc rc = PST_OK;
    for (int split = 0; split < 3 && rc == PST_OK; split++) {
        char path[4096];
        if (find_file(g->job->from, split_names[split][0], g->openke, path))
            rc = read_split(g, split, path);
        else if (split == 0)
            rc = pst_fail(PST_E_ARG, "%s: expected %s", g->job->from,
                          g->openke ? "train2id.txt" : "train.txt or train.tsv (also with .gz or .zst)");
    }
    return rc;
}

static pst_rc finish(struct graph *g)
{
    struct pst_build *b = g->job->build;
    const struct pst_import_spec *s = &g->job->spec;
    int64_t vertices = g->entities.n;
    pst_rc rc = g->openke ? pst_dict_write(&g->entities, b, PST_ARRAY_NAMES_AT, PST_ARRAY_NAMES)
                          : pst_triple_rows_number(&g->rows, &vertices);
    if (rc != PST_OK)
        return rc;
    b->manifest.relations = g->relations.n;
    memcpy(b->manifest.name, s->name, sizeof b->manifest.name);
    b->manifest.provenance =
        json_pack("{s:s, s:s}", "command", s->command != NULL ? s->command : "", "source", g->job->from);
    rc = pst_csc_builder_finish(g->csc, vertices, g->job->progress);
    if (rc == PST_OK)
        rc = pst_dict_write(&g->relations, b, PST_ARRAY_RELATION_NAMES_AT, PST_ARRAY_RELATION_NAMES);
    if (g->carriage_returns > 0)
        pst_problem(&g->job->result->warnings, "%" PRId64 " lines end with CR LF", g->carriage_returns);
    if (g->blank_lines > 0)
        pst_problem(&g->job->result->warnings, "skipped %" PRId64 " blank lines", g->blank_lines);
    if (!g->openke && g->rows.of_train < vertices)
        pst_problem(&g->job->result->warnings, "%" PRId64 " entities occur only in valid or test",
                    vertices - g->rows.of_train);
    g->job->result->counts = *pst_csc_builder_counts(g->csc);
    return rc;
}

static pst_rc check_options(const struct pst_import_job *job)
{
    const struct pst_import_spec *s = &job->spec;
    struct stat st;
    if (s->symmetrize || s->self_loops == PST_LOOPS_ADD)
        return pst_fail(PST_E_ARG, "--symmetrize and --self-loops add cannot be used if edges have "
                                   "relations, because a relation has a direction");
    for (unsigned i = 0; i < PST_IMPORT_SOURCES; i++)
        if (s->source[i][0] != '\0')
            return pst_fail(
                PST_E_ARG,
                "a knowledge graph cannot have features, labels or splits: leave these options out");
    if (stat(job->from, &st) != 0)
        return pst_fail_errno("cannot read %s", job->from);
    return S_ISDIR(st.st_mode) ? PST_OK : pst_fail(PST_E_ARG, "%s: expected a directory", job->from);
}

static pst_rc run(struct pst_import_job *job, bool openke)
{
    pst_rc rc = check_options(job);
    struct pst_import_budget budget;
    if (rc == PST_OK)
        rc = pst_import_budget(job->spec.memory_bytes, PST_IMPORT_KIND_TRIPLES, &budget);
    if (rc != PST_OK)
        return rc;
    struct graph g = {.job = job, .openke = openke, .text = {.fd = -1}};
    pst_import_name(&job->spec, job->from);
    pst_dict_init(&g.entities, budget.names);
    pst_dict_init(&g.relations, budget.names);
    const struct pst_csc_builder_spec spec = {.build = job->build,
                                              .dedupe = job->spec.dedupe,
                                              .transpose = job->spec.transpose,
                                              .relations = true,
                                              .self_loops = job->spec.self_loops,
                                              .memory_bytes = budget.sort,
                                              .threads = job->spec.threads};
    const struct pst_names_spec entities = {.dir = job->build->partial,
                                            .memory_bytes = budget.names,
                                            .threads = job->spec.threads,
                                            .row = 2,
                                            .progress = job->progress};
    rc = pst_csc_builder_new(&g.csc, &spec);
    if (rc == PST_OK)
        rc = pst_triple_rows_init(&g.rows, g.csc, openke ? NULL : &entities, job->progress);
    if (rc == PST_OK && openke)
        rc = read_dictionary(&g, "entity", &g.entities, &g.n_entities);
    if (rc == PST_OK && openke)
        rc = read_dictionary(&g, "relation", &g.relations, &g.n_relations);
    if (rc == PST_OK)
        rc = read_splits(&g);
    if (rc == PST_OK)
        rc = finish(&g);
    pst_csc_builder_free(g.csc);
    pst_dict_release(&g.entities);
    pst_dict_release(&g.relations);
    pst_triple_rows_release(&g.rows);
    return rc;
}

static pst_rc import_triples(struct pst_import_job *job)
{
    return run(job, false);
}

static pst_rc import_openke(struct pst_import_job *job)
{
    return run(job, true);
}

const struct pst_import_format pst_format_triples = {
    "triples", "a directory of train, valid and test .txt or .tsv: head, relation, tail between tabs",
    import_triples};

const struct pst_import_format pst_format_openke = {
    "openke", "a directory of entity2id.txt, relation2id.txt, train2id.txt: head, tail, relation",
    import_openke};
