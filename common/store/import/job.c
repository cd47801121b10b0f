/* job.c: what every format needs: the dataset's name, the shares of --memory, and edges from lines of text.
 */
#include "common/store/import/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/import/importing.h"

#define MIB (UINT64_C(1) << 20)

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

pst_rc pst_import_budget(uint64_t memory_bytes, enum pst_import_kind kind, struct pst_import_budget *out)
{
    /* Dictionaries get names_of / 16 of all each; a text file in use has its buffers beside. */
    static const struct {
        unsigned dictionaries, names_of, graph_of;
        uint64_t text;
    } parts[] = {[PST_IMPORT_KIND_ARRAYS] = {0, 0, 0, 0},
                 [PST_IMPORT_KIND_NUMBERS] = {1, 1, 0, PST_TEXT_BYTES},
                 [PST_IMPORT_KIND_COMPACT] = {1, 4, 0, PST_TEXT_BYTES},
                 [PST_IMPORT_KIND_NAMES] = {1, 8, 0, PST_TEXT_BYTES},
                 [PST_IMPORT_KIND_TRIPLES] = {3, 4, 0, 0},
                 [PST_IMPORT_KIND_WEBGRAPH] = {0, 0, 4, 0}};
    const unsigned beside = parts[kind].dictionaries * parts[kind].names_of + parts[kind].graph_of;
    const uint64_t least =
        (PST_CSC_BUILDER_MEMORY_MIN + parts[kind].text) * 16 / (16 - beside) + 16 /* of rounding */;
    out->names = memory_bytes / 16 * parts[kind].names_of;
    out->graph = memory_bytes / 16 * parts[kind].graph_of;
    if (memory_bytes < least)
        return pst_fail(PST_E_LIMIT,
                        "--memory: this import needs at least %" PRIu64 " MiB of memory, found %.1f MiB",
                        (least + MIB - 1) / MIB, (double)memory_bytes / (double)MIB);
    out->sort = memory_bytes - parts[kind].dictionaries * out->names - out->graph - parts[kind].text;
    return PST_OK;
}

pst_rc pst_import_edge_text(struct pst_import_job *job, const char *path)
{
    static const enum pst_import_kind kinds[] = {[PST_EDGE_TEXT_IDS_KEEP] = PST_IMPORT_KIND_NUMBERS,
                                                 [PST_EDGE_TEXT_IDS_COMPACT] = PST_IMPORT_KIND_COMPACT,
                                                 [PST_EDGE_TEXT_IDS_STRINGS] = PST_IMPORT_KIND_NAMES};
    static const enum pst_numbering_kind numberings[] = {[PST_EDGE_TEXT_IDS_KEEP] = PST_NUMBERING_IDENTITY,
                                                         [PST_EDGE_TEXT_IDS_COMPACT] = PST_NUMBERING_RANK,
                                                         [PST_EDGE_TEXT_IDS_STRINGS] = PST_NUMBERING_NAMES};
    char names_at[PST_PATH_MAX], names[PST_PATH_MAX];
    struct pst_edge_text e;
    struct pst_import_budget budget;
    struct pst_import_spec spec = job->spec;
    pst_rc rc = pst_import_budget(spec.memory_bytes, kinds[job->text.ids], &budget);
    if (rc != PST_OK)
        return rc;
    job->text.path = path;
    job->text.memory_bytes = budget.names;
    rc = pst_edge_text_init(&e, &job->text);
    spec.memory_bytes = budget.sort;
    spec.feed = pst_edge_text_feed;
    spec.feed_ctx = &e;
    const bool named = e.spec.ids == PST_EDGE_TEXT_IDS_STRINGS;
    spec.weights = e.spec.weighted;
    spec.feed_resumes = e.spec.ids != PST_EDGE_TEXT_IDS_COMPACT && !(named && spec.weights);
    spec.feed_replays = named && !spec.weights;
    (void)snprintf(names_at, sizeof names_at, "%.4000s/names_at.npy", job->build->partial);
    (void)snprintf(names, sizeof names, "%.4000s/names.npy", job->build->partial);
    const struct pst_numbering_spec numbering = {.kind = numberings[job->text.ids],
                                                 .rank = &e.rank,
                                                 .names_at = names_at,
                                                 .names = names,
                                                 .memory_bytes = budget.names};
    spec.numbering = &numbering;
    if (rc == PST_OK)
        rc = pst_import(&spec, job->build, job->result, job->progress);
    if (rc == PST_OK)
        rc = pst_edge_text_write(&e, job->build);
    if (rc == PST_OK)
        pst_edge_text_tell(&e, &job->result->warnings);
    pst_edge_text_release(&e);
    return rc;
}

pst_rc pst_import_job_check_taken(const struct pst_import_job *job, const char *format)
{
    const struct pst_array_entry *made = job->build->manifest.array;
    const char *lost = NULL;
    if (!made[PST_ARRAY_EDGE_WEIGHTS].present && job->text.weighted)
        lost = "--weight-column";
    for (unsigned i = 0; i < 2; i++)
        if (job->spec.source[PST_IMPORT_EDGE_WEIGHTS + i][0] != '\0' &&
            !made[i == 0 ? PST_ARRAY_EDGE_WEIGHTS : PST_ARRAY_EDGE_TIMES].present)
            lost = pst_import_source_option(PST_IMPORT_EDGE_WEIGHTS + i);
    return lost == NULL
               ? PST_OK
               : pst_fail(PST_E_ARG, "%s: the format %s does not take %s of edges: leave this option out",
                          lost, format, strcmp(lost, "--edge-times") == 0 ? "times" : "weights");
}
