/* Knowledge graphs: head, relation, tail as names (triples), or as numbers with their counts (OpenKE's
 * *2id.txt). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../error.h"
#include "formats.h"
#include "name_map.h"
#include "streams.h"

#define ROWS_UNKNOWN                                                                                         \
    (INT64_MAX / 128)          /* of an array whose size its file does not say: 3 ids a row fit 63 bits */
#define ENTITIES_MAX INT32_MAX /* triples are int32 */

struct graph {
    struct pst_import_job *job;
    struct pst_csc csc;
    struct pst_dict entities, relations; /* entities: OpenKE's */
    bool openke;
    int64_t n_entities, n_relations; /* OpenKE: what its dictionaries say */
    int64_t carriage_returns, blank_lines, unseen;
    /* of the file that is read now */
    struct pst_text text;
    int64_t expect; /* -1, or what the first line says */
    int64_t n;
    int64_t *source, *target;
    int32_t *relation;
    /* names of entities, not OpenKE's; those past the first that do not fit in memory wait until all were
     * read */
    struct pst_names *names;
    struct pst_name *mention; /* head and tail of each row of the block */
    int64_t *id;
    struct pst_streams kinds; /* relations of the rows that wait */
    struct pst_ids_writer kind;
    int split;
    struct split {
        struct pst_array_writer out;
        int64_t rows, waiting;
    } splits[3];
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

/* The first n rows of the block are known. */
static pst_rc give(struct graph *g, int split, int64_t n)
{
    pst_rc rc = PST_OK;
    for (int64_t i = 0; rc == PST_OK && i < n; i++) {
        const int32_t row[3] = {(int32_t)g->source[i], g->relation[i], (int32_t)g->target[i]};
        rc = pst_array_write(&g->splits[split].out, row, sizeof row);
    }
    return rc == PST_OK && split == 0 ? pst_csc_add(&g->csc, g->source, g->target, g->relation, n) : rc;
}

/* Numbers of heads and tails, as names gave them. */
static void take_ids(struct graph *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        g->source[i] = g->id[2 * i];
        g->target[i] = g->id[2 * i + 1];
    }
}

static pst_rc wait_with(struct graph *g, int64_t from)
{
    pst_rc rc = PST_OK;
    if (g->kinds.stream == NULL) {
        rc = pst_streams_make(&g->kinds, g->job->build->partial, NULL, 1, PST_STREAM_BLOCK_MAX);
        g->kind = (struct pst_ids_writer){.s = &g->kinds};
    }
    for (int64_t i = from; rc == PST_OK && i < g->n; i++)
        rc = pst_ids_put(&g->kind, (uint64_t)g->relation[i]);
    g->splits[g->split].waiting += g->n - from;
    return rc;
}

static pst_rc flush(struct graph *g)
{
    size_t known = 2 * (size_t)g->n;
    pst_rc rc = g->openke ? PST_OK : pst_names_add(g->names, g->mention, 2 * (size_t)g->n, g->id, &known);
    if (rc == PST_OK && !g->openke)
        take_ids(g, (int64_t)known / 2);
    if (rc == PST_OK)
        rc = give(g, g->split, (int64_t)known / 2);
    if (rc == PST_OK && (int64_t)known / 2 < g->n)
        rc = wait_with(g, (int64_t)known / 2);
    g->splits[g->split].rows += g->n;
    g->n = 0;
    return rc;
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
    if (bytes == 0 || bytes > PST_NAME_BYTES_MAX)
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
        rc = pst_fail(PST_E_LIMIT, "more than %d names", INT32_MAX);
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
    pst_rc rc = number_relation(g, name[1], &g->relation[g->n]);
    g->mention[2 * g->n] = name[0];
    g->mention[2 * g->n++ + 1] = name[2];
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
    g->source[g->n] = id[0];
    g->target[g->n] = id[1];
    g->relation[g->n++] = (int32_t)id[2];
    return end_of_line(g, line, blanks(p));
}

static pst_rc read_count(const struct pst_text *t, const char *line, int64_t max, int64_t *out)
{
    const char *p = blanks(line);
    char what[64];
    (void)snprintf(what, sizeof what, "a count from 0 to %" PRId64 " alone", max);
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
        return read_count(&g->text, line, ROWS_UNKNOWN, &g->expect);
    pst_rc rc = g->n == PST_EDGE_BLOCK ? flush(g) : PST_OK;
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
        if ((rc = flush(g)) != PST_OK) /* the text is about to go */
            return rc;
        if ((rc = pst_progress_add(progress, g->text.file_at - told)) != PST_OK)
            return rc;
        told = g->text.file_at;
    }
    pst_progress_end(progress);
    return PST_OK;
}

static enum pst_array_id array_of(int split)
{
    return (enum pst_array_id)(PST_IN_TRIPLES_TRAIN + split);
}

static pst_rc end_split(struct graph *g, int split)
{
    struct split *s = &g->splits[split];
    pst_rc rc = pst_array_writer_shrink(&s->out, s->rows);
    if (rc == PST_OK)
        rc = pst_build_array_end(g->job->build, array_of(split), &s->out);
    pst_array_writer_release(&s->out);
    return rc;
}

static pst_rc read_split(struct graph *g, int split, const char *path)
{
    const int64_t shape[2] = {ROWS_UNKNOWN, 3};
    struct split *s = &g->splits[split];
    g->split = split;
    g->n = 0;
    g->expect = -1;
    pst_rc rc = pst_text_open(&g->text, path);
    if (rc == PST_OK)
        rc = pst_build_array(g->job->build, array_of(split), PST_I32, 2, shape, &s->out);
    if (rc == PST_OK)
        rc = read_lines(g);
    if (rc == PST_OK && s->rows == 0)
        rc = pst_fail(PST_E_FORMAT, "%s: expected triples, found none", path);
    if (rc == PST_OK && g->expect >= 0 && g->expect != s->rows)
        rc = pst_fail(PST_E_FORMAT, "%s: its first line says %" PRId64 " triples, found %" PRId64, path,
                      g->expect, s->rows);
    if (rc == PST_OK && s->waiting == 0)
        rc = end_split(g, split);
    if (g->text.bom)
        pst_problem(&g->job->result->warnings, "%s: a byte order mark: skipped", path);
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
            rc = pst_fail(PST_E_ARG, "%s: there is no %s", g->job->from, path);
        if (split == 0 && !g->openke)
            g->unseen = pst_names_dict(g->names)->n; /* unless some wait */
    }
    return rc;
}

/* ---- rows that waited ---- */

static pst_rc give_waiting(struct graph *g, int split, struct pst_ids_reader *kinds)
{
    pst_rc rc = PST_OK;
    for (int64_t left = g->splits[split].waiting; rc == PST_OK && left > 0;) {
        const int64_t n = pst_min_i64(left, PST_EDGE_BLOCK);
        size_t got;
        rc = pst_names_next(g->names, g->id, 2 * (size_t)n, &got);
        if (rc == PST_OK && got != 2 * (size_t)n)
            rc = pst_fail(PST_E_FORMAT, "triples that were written aside end early");
        for (int64_t i = 0; rc == PST_OK && i < n; i++) {
            int64_t kind = 0;
            rc = pst_ids_next(kinds, &kind);
            g->relation[i] = (int32_t)kind;
        }
        take_ids(g, rc == PST_OK ? n : 0);
        if (rc == PST_OK)
            rc = give(g, split, n);
        if (rc == PST_OK)
            rc = pst_progress_add(g->job->progress, (uint64_t)n);
        left -= n;
    }
    return rc;
}

static pst_rc join(struct graph *g)
{
    struct pst_ids_reader kinds = {.n = 0};
    pst_rc rc = pst_ids_flush(&g->kind);
    if (rc == PST_OK)
        rc = pst_streams_end(&g->kinds);
    pst_stream_read(&kinds.r, &g->kinds, 0);
    pst_progress_begin(g->job->progress, "triples: joining", pst_names_mentions_aside(g->names) / 2, false);
    for (int split = 0; rc == PST_OK && split < 3; split++) {
        if (g->splits[split].waiting == 0)
            continue;
        rc = give_waiting(g, split, &kinds);
        if (rc == PST_OK)
            rc = end_split(g, split);
    }
    if (rc == PST_OK)
        pst_progress_end(g->job->progress);
    pst_stream_reader_release(&kinds.r);
    return rc;
}

/* Writes the entities' names; then all triples are known. */
static pst_rc number_entities(struct graph *g, int64_t *entities)
{
    struct pst_build *b = g->job->build;
    const bool aside = !g->openke && pst_names_aside(g->names);
    uint64_t bytes;
    pst_rc rc = aside ? pst_names_find(g->names) : PST_OK;
    *entities = g->openke ? g->entities.n : pst_names_count(g->names, &bytes);
    if (rc == PST_OK && *entities > ENTITIES_MAX)
        rc = pst_fail(PST_E_LIMIT, "%" PRId64 " entities: at most %d", *entities, ENTITIES_MAX);
    if (rc != PST_OK)
        return rc;
    if (!aside)
        return pst_dict_write(g->openke ? &g->entities : pst_names_dict(g->names), b, PST_IN_NAMES_AT,
                              PST_IN_NAMES);
    const int64_t of_train = 2 * g->splits[0].waiting;
    int64_t seen = 0;
    rc = pst_names_write(g->names, b, PST_IN_NAMES_AT, PST_IN_NAMES, of_train, &seen);
    if (of_train > 0)
        g->unseen = seen;
    if (rc == PST_OK)
        rc = pst_names_number(g->names);
    return rc == PST_OK ? join(g) : rc;
}

static pst_rc finish(struct graph *g)
{
    struct pst_build *b = g->job->build;
    const struct pst_import_spec *s = &g->job->spec;
    int64_t vertices;
    pst_rc rc = number_entities(g, &vertices);
    if (rc != PST_OK)
        return rc;
    b->manifest.relations = g->relations.n;
    memcpy(b->manifest.name, s->name, sizeof b->manifest.name);
    b->manifest.provenance =
        json_pack("{s:s, s:s}", "command", s->command != NULL ? s->command : "", "source", g->job->from);
    rc = pst_csc_finish(&g->csc, vertices, g->job->progress);
    if (rc == PST_OK)
        rc = pst_dict_write(&g->relations, b, PST_IN_RELATION_NAMES_AT, PST_IN_RELATION_NAMES);
    if (g->carriage_returns > 0)
        pst_problem(&g->job->result->warnings, "%" PRId64 " lines end with CR LF", g->carriage_returns);
    if (g->blank_lines > 0)
        pst_problem(&g->job->result->warnings, "%" PRId64 " blank lines: skipped", g->blank_lines);
    if (!g->openke && g->unseen < vertices)
        pst_problem(&g->job->result->warnings, "%" PRId64 " entities occur in valid or test alone",
                    vertices - g->unseen);
    g->job->result->parts = g->csc.parts;
    g->job->result->duplicates_removed = g->csc.duplicates_removed;
    g->job->result->loops_removed = g->csc.loops_removed;
    return rc;
}

static pst_rc check_options(const struct pst_import_job *job)
{
    const struct pst_import_spec *s = &job->spec;
    struct stat st;
    if (s->symmetrize || s->self_loops == PST_LOOPS_ADD)
        return pst_fail(PST_E_ARG,
                        "--symmetrize and --self-loops add: relations have a direction and a kind");
    for (unsigned i = 0; i < PST_SOURCES; i++)
        if (s->source[i][0] != '\0')
            return pst_fail(PST_E_ARG, "a knowledge graph takes no array of features, labels or splits");
    if (stat(job->from, &st) != 0)
        return pst_fail_errno("cannot read %s", job->from);
    return S_ISDIR(st.st_mode) ? PST_OK : pst_fail(PST_E_ARG, "%s: expected a directory", job->from);
}

static pst_rc run(struct pst_import_job *job, bool openke)
{
    pst_rc rc = check_options(job);
    if (rc != PST_OK)
        return rc;
    struct graph g = {.job = job, .openke = openke, .text = {.fd = -1}};
    uint64_t names = job->spec.memory_bytes / 4; /* for each dictionary, and for the one in file order */
    pst_import_name(&job->spec, job->from);
    pst_dict_init(&g.entities, names);
    pst_dict_init(&g.relations, names);
    const struct pst_csc_spec spec = {.build = job->build,
                                      .dedupe = job->spec.dedupe,
                                      .transpose = job->spec.transpose,
                                      .relations = true,
                                      .self_loops = job->spec.self_loops,
                                      .memory_bytes = job->spec.memory_bytes / 4,
                                      .threads = job->spec.threads};
    const struct pst_names_spec entities = {.dir = job->build->partial,
                                            .memory_bytes = names,
                                            .threads = job->spec.threads,
                                            .row = 2,
                                            .progress = job->progress};
    g.source = malloc(PST_EDGE_BLOCK * sizeof *g.source);
    g.target = malloc(PST_EDGE_BLOCK * sizeof *g.target);
    g.relation = malloc(PST_EDGE_BLOCK * sizeof *g.relation);
    g.mention = malloc(2 * PST_EDGE_BLOCK * sizeof *g.mention);
    g.id = malloc(2 * PST_EDGE_BLOCK * sizeof *g.id);
    for (int i = 0; i < 3; i++)
        g.splits[i].out.fd = -1;
    rc = pst_csc_init(&g.csc, &spec);
    if (rc == PST_OK &&
        (g.source == NULL || g.target == NULL || g.relation == NULL || g.mention == NULL || g.id == NULL))
        rc = pst_fail(PST_E_NOMEM, "no memory for a block of triples");
    if (rc == PST_OK && !openke)
        rc = pst_names_new(&g.names, &entities);
    if (rc == PST_OK && openke)
        rc = read_dictionary(&g, "entity", &g.entities, &g.n_entities);
    if (rc == PST_OK && openke)
        rc = read_dictionary(&g, "relation", &g.relations, &g.n_relations);
    if (rc == PST_OK)
        rc = read_splits(&g);
    if (rc == PST_OK)
        rc = finish(&g);
    pst_csc_release(&g.csc);
    pst_dict_release(&g.entities);
    pst_dict_release(&g.relations);
    free(g.source);
    free(g.target);
    free(g.relation);
    free(g.mention);
    free(g.id);
    pst_names_free(g.names);
    pst_streams_close(&g.kinds, false);
    for (int i = 0; i < 3; i++)
        pst_array_writer_release(&g.splits[i].out);
    return rc;
}

pst_rc pst_import_triples(struct pst_import_job *job)
{
    return run(job, false);
}

pst_rc pst_import_openke(struct pst_import_job *job)
{
    return run(job, true);
}
