/* ogb_targets.h: what OGB data sets predict beside one label a vertex: several labels, or links. Owner: none.
 * Threads: one. */
#ifndef PST_OGB_TARGETS_H
#define PST_OGB_TARGETS_H

#include "common/store/import/job.h"

/* Labels of several columns (ogbn-proteins): 0, 1, or NaN for not known. After the import. Fails:
 * PST_E_FORMAT with row and column. */
PST_MUST_USE pst_rc pst_ogb_multilabels(struct pst_import_job *job, const char *path, const char *told);

/* dir/{train,valid,test}.pt (ogbl-*): edge and edge_neg, (n, 2); or source_node, target_node and
 * target_node_neg, (n, k). After the import. */
PST_MUST_USE pst_rc pst_ogb_links(struct pst_import_job *job, const char *dir);

#endif
