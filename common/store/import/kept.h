/* kept.h: checks and copies the arrays that a dataset has beside edges, features, labels and splits:
 * relations, names, triples, several labels, targets. meta.json lists them, as `penstock export` writes it.
 * Owner: the caller; open and close pair. Threads: one. */
#ifndef PST_KEPT_H
#define PST_KEPT_H

#include "common/store/import/job.h"

PST_BEGIN_DECLS

struct pst_kept {
    struct pst_import_job *job;
    int64_t relations;                       /* as meta.json says; 0: none */
    struct pst_array array[PST_ARRAY_COUNT]; /* mapped; path empty: not kept */
    struct pst_csc_builder *csc;             /* while edges are read */
    int64_t edge;                            /* the next one's relation */
    bool any;                                /* an array was opened */
};

/* Whether meta.json (which may be NULL) lists an array as kept. */
bool pst_kept_lists(const json_t *meta, enum pst_array_id id);

/* Reads what meta.json says of relations and strides. */
PST_MUST_USE pst_rc pst_kept_begin(struct pst_kept *k, struct pst_import_job *job, const json_t *meta);
/* Maps one array; told: how messages call it. */
PST_MUST_USE pst_rc pst_kept_open(struct pst_kept *k, enum pst_array_id id, const char *path,
                                  const char *told);
/* If relations are kept: edges of the job's array get the relation at the same place. */
void pst_kept_feed(struct pst_kept *k);
/* After the import: checks and copies everything but relations. */
PST_MUST_USE pst_rc pst_kept_copy(struct pst_kept *k);
void pst_kept_close(struct pst_kept *k);

PST_END_DECLS
#endif
