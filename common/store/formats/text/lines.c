/* lines.c: lists of edges, a line each: SNAP's files, and columns between commas, tabs or bars. */
#include <sys/stat.h>

#include "common/error.h"
#include "common/store/formats/text/directory.h"
#include "common/store/import/importing.h"
#include "common/store/import/job.h"

static pst_rc run_lines(struct pst_import_job *job, enum pst_edge_text_separated by, char separator,
                        char comment)
{
    struct stat st;
    if (stat(job->from, &st) != 0)
        return pst_fail_errno("cannot read %s", job->from);
    if (!S_ISREG(st.st_mode))
        return pst_fail(PST_E_ARG, "%s: expected a file of edges", job->from);
    if (job->spec.source[PST_IMPORT_EDGES][0] != '\0')
        return pst_fail(PST_E_ARG, "--edges cannot be used with this format: SRC is the file of edges");
    if (job->text.by == PST_EDGE_TEXT_BY_FORMAT) {
        job->text.by = by;
        job->text.separator = separator;
    }
    job->text.comment = comment;
    if (job->text.ids == PST_EDGE_TEXT_IDS_STRINGS && by == PST_EDGE_TEXT_BY_CHARACTER &&
        job->text.header == PST_EDGE_TEXT_HEADER_AUTO && job->text.column_name[0][0] == '\0' &&
        job->text.weight_name[0] == '\0')
        return pst_fail(PST_E_ARG,
                        "%s: with --ids strings the first line may be a header or an edge: add --header yes "
                        "or --header no",
                        job->from);
    pst_import_name(&job->spec, job->from);
    return pst_import_edge_text(job, job->from);
}

static pst_rc run_snap(struct pst_import_job *job)
{
    return run_lines(job, PST_EDGE_TEXT_BY_BLANKS, '\0', '#');
}

static pst_rc run_csv(struct pst_import_job *job)
{
    struct stat st;
    if (stat(job->from, &st) == 0 && S_ISDIR(st.st_mode))
        return pst_csv_import_directory(job);
    return run_lines(job, PST_EDGE_TEXT_BY_CHARACTER, ',', '\0');
}

static pst_rc run_tsv(struct pst_import_job *job)
{
    return run_lines(job, PST_EDGE_TEXT_BY_CHARACTER, '\t', '\0');
}

static pst_rc run_psv(struct pst_import_job *job)
{
    return run_lines(job, PST_EDGE_TEXT_BY_CHARACTER, '|', '\0');
}

const struct pst_import_format pst_format_snap = {
    "snap", "a file of edges, source then target, separated by blanks; lines with # are comments", run_snap};
const struct pst_import_format pst_format_csv = {
    "csv", "a file of edges, separated by commas; or a directory written by `penstock export --format csv`",
    run_csv};
const struct pst_import_format pst_format_tsv = {"tsv", "a file of edges, separated by tabs", run_tsv};
const struct pst_import_format pst_format_psv = {"psv", "a file of edges, separated by | (LDBC SNB)",
                                                 run_psv};
