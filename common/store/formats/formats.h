/* formats.h: the formats that penstock import reads: one function each, between a builder's begin and commit.
 * Owner: the caller owns the job. Threads: one. */
#ifndef PST_FORMATS_H
#define PST_FORMATS_H

#include "common/store/import/edge_text.h"
#include "common/store/import/import.h"

PST_BEGIN_DECLS

struct pst_import_job {
    struct pst_import_spec spec; /* what the user said; a format fills in what its files say */
    bool skip[PST_IMPORT_SOURCES];
    const char *from;               /* a file or a directory */
    struct pst_edge_text_spec text; /* separator '\1': the format's own */
    char split[PST_NAME_MAX];       /* which of several splits or tasks; "": the only one */
    char types[1024];               /* of vertices, with commas between, or "all"; "": as the format has it */
    struct pst_build *build;
    struct pst_import_result *result;
    struct pst_progress *progress;
};

struct pst_format {
    const char *name, *help;
    pst_rc (*run)(struct pst_import_job *job);
};

/* NULL: there is none of that name. */
PST_API const struct pst_format *pst_format_find(const char *name);
PST_API const struct pst_format *pst_format_at(unsigned index); /* NULL after the last */

/* For the formats' own files: a name from the last part of a path; edges from a text file with the rest as
 * arrays. */
void pst_import_name(struct pst_import_spec *spec, const char *from);
PST_MUST_USE pst_rc pst_import_edge_text(struct pst_import_job *job, const char *path);
PST_MUST_USE pst_rc pst_import_graphbolt(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_igb(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_marius(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_mag240m(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_ogb(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_triples(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_openke(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_npy(struct pst_import_job *job);
/* npy_types.c: meta.json with several types, as penstock export writes it. */
PST_MUST_USE pst_rc pst_import_npy_types(struct pst_import_job *job, const json_t *meta);
PST_MUST_USE pst_rc pst_import_npz(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_planetoid(struct pst_import_job *job);
PST_MUST_USE pst_rc pst_import_webgraph(struct pst_import_job *job);

PST_END_DECLS
#endif
