/* parted.h: a dataset that is cut into parts, one for each rank (machine) of a run. The parts lie in one
 * directory: parts.json, and the datasets part0, part1, ... A machine needs parts.json and its own part only.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_PARTED_H
#define PST_PARTED_H

#include "common/store/store.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

#define PST_PARTED_WHOLE "whole" /* in the directory of the parts: the dataset with new numbers */

struct pst_parted_spec {
    int parts;  /* 2 to PST_DATASET_PARTS_MAX */
    bool lists; /* the parts divide the lists of neighbours, too */
    /* The part of each vertex. A part must be a range of numbers, so vertices get new ones: the dataset is
     * reordered first (common/store/reorder), and stays in DIR/whole. Vertices of a part keep their order.
     * NULL: equally many neighbouring vertices each, or one more, which keep their numbers. */
    const int8_t *part;
    const char *by; /* how part was found: "metis". It is noted in parts.json */
    uint64_t seed;  /* of by */
    /* For new numbers, besides 16 bytes a vertex. */
    uint64_t memory_bytes;
};

/* The part of each vertex, equally many each, or one more: neighbouring numbers, or a hash of the number. */
PST_API void pst_parted_range(int8_t *part, int64_t vertices, int parts);
PST_API void pst_parted_hash(int8_t *part, int64_t vertices, int parts, uint64_t seed);

/* What pst_parted_write refuses before it looks at spec->part, which may still be NULL; renumbers: it will
 * not be. Errors as there. */
PST_API PST_MUST_USE pst_rc pst_parted_check(const struct pst_dataset *ds, const char *dir,
                                             const struct pst_parted_spec *spec, bool renumbers);

/* Cuts a whole dataset into parts. parts.json is written last. PST_E_ARG: the dataset has types, no features,
 * or fewer vertices than parts; a part would have no vertices; with lists, it has other arrays of edges, or a
 * part would have no edges; the memory is too small. PST_E_STATE: dir has parts already, or is a dataset, or
 * has other datasets where the parts belong. PST_E_IO, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_parted_write(const struct pst_dataset *ds, const char *dir,
                                             const struct pst_parted_spec *spec,
                                             struct pst_progress *progress);

/* Opens what rank `rank` of `ranks` reads of dir: its part, if dir has parts; else the whole dataset. The
 * caller closes it. PST_E_ARG: there are more or fewer parts than ranks, or dir itself is a part.
 * PST_E_FORMAT: the rank's part is missing, damaged, or of another cut. */
PST_API PST_MUST_USE pst_rc pst_parted_open(struct pst_dataset *ds, const char *dir, int rank, int ranks);

PST_END_DECLS
#endif
