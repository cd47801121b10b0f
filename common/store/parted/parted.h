/* parted.h: a dataset that is cut into parts, one for each rank (machine) of a run. The parts lie in one
 * directory: parts.json, and the datasets part0, part1, ... A machine needs parts.json and its own part only.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_PARTED_H
#define PST_PARTED_H

#include "common/store/store.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

/* Cuts a whole dataset into 2 to PST_DATASET_PARTS_MAX parts: equally many neighbouring vertices each, or one
 * more. lists: the parts divide the lists of neighbours, too. parts.json is written last. PST_E_ARG: the
 * dataset has types, no features, or fewer vertices than parts; with lists, it has other arrays of edges, or
 * a part would have no edges. PST_E_STATE: dir has parts already, or is a dataset. PST_E_IO, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_parted_write(const struct pst_dataset *ds, const char *dir, int parts,
                                             bool lists, struct pst_progress *progress);

/* Opens what rank `rank` of `ranks` reads of dir: its part, if dir has parts; else the whole dataset. The
 * caller closes it. PST_E_ARG: there are more or fewer parts than ranks, or dir itself is a part.
 * PST_E_FORMAT: the rank's part is missing, damaged, or of another cut. */
PST_API PST_MUST_USE pst_rc pst_parted_open(struct pst_dataset *ds, const char *dir, int rank, int ranks);

PST_END_DECLS
#endif
