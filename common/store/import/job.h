/* job.h: one run of `penstock import` (the options and the dataset being made), and the type of a format.
 * Owner: the caller owns the job. Threads: one. */
#ifndef PST_IMPORT_JOB_H
#define PST_IMPORT_JOB_H

#include "common/store/import/edge_text.h"
#include "common/store/import/import.h"

PST_BEGIN_DECLS

struct pst_import_job {
    struct pst_import_spec spec; /* what the user said; a format fills in what its files say */
    bool skip[PST_IMPORT_SOURCES];
    const char *from;               /* a file or a directory */
    struct pst_edge_text_spec text; /* how lines of text are read */
    char split[PST_NAME_MAX];       /* which of several splits or tasks; "": the only one */
    char types[1024]; /* of vertices, with commas between, or "all"; "": what the format prefers */
    struct pst_build *build;
    struct pst_import_result *result;
    struct pst_progress *progress;
};

/* A format is a constant of this type, called pst_format_NAME, in common/store/formats. */
struct pst_import_format {
    const char *name, *help;
    /* Makes the dataset between the builder's begin and commit: ends in pst_import or in one of its
     * relatives. */
    pst_rc (*run)(struct pst_import_job *job);
};

/* Names the dataset after the last part of a path, unless it has a name. */
void pst_import_name(struct pst_import_spec *spec, const char *from);

/* Imports edges from the lines of a text file (job->text says how), and the rest from arrays. */
PST_MUST_USE pst_rc pst_import_edge_text(struct pst_import_job *job, const char *path);

/* A format that has no use for weights or times of edges must not lose them without a word. PST_E_ARG: the
 * dataset lacks what an option asked for. */
PST_API PST_MUST_USE pst_rc pst_import_job_check_taken(const struct pst_import_job *job, const char *format);

/* ---- how --memory is divided between what is needed at the same time ---- */

enum pst_import_kind {
    PST_IMPORT_KIND_ARRAYS,  /* edges in arrays */
    PST_IMPORT_KIND_NUMBERS, /* lines of ids that stay as they are */
    PST_IMPORT_KIND_COMPACT, /* lines of ids that are renumbered */
    PST_IMPORT_KIND_NAMES,   /* lines of names */
    PST_IMPORT_KIND_TRIPLES, /* names of entities and of relations */
    PST_IMPORT_KIND_WEBGRAPH /* a window of lists that later lists refer to */
};

struct pst_import_budget {
    uint64_t sort;  /* for the topology: pst_csc_builder_spec's memory_bytes */
    uint64_t names; /* for each dictionary of names, or for the set of ids */
    uint64_t graph; /* for what WebGraph's lists refer to */
};

/* Fails: PST_E_LIMIT, saying how much is enough. */
PST_MUST_USE pst_rc pst_import_budget(uint64_t memory_bytes, enum pst_import_kind kind,
                                      struct pst_import_budget *out);

PST_END_DECLS
#endif
