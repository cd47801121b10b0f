/* formats.h: the formats that `penstock import` reads, in the order of its help. Owner: none. Threads: any.
 */
#ifndef PST_FORMATS_H
#define PST_FORMATS_H

#include "common/store/import/job.h"

PST_BEGIN_DECLS

/* Each is pst_format_NAME of a file in one of the rooms below. To add a format: its file, and a line here. */
#define PST_FORMATS(FORMAT)                                                                                  \
    FORMAT(npy)                                                                                              \
    FORMAT(snap)                                                                                             \
    FORMAT(csv)                                                                                              \
    FORMAT(tsv)                                                                                              \
    FORMAT(psv)                                                                                              \
    FORMAT(triples)                                                                                          \
    FORMAT(openke)                                                                                           \
    FORMAT(webgraph)                                                                                         \
    FORMAT(npz)                                                                                              \
    FORMAT(ogb)                                                                                              \
    FORMAT(igb)                                                                                              \
    FORMAT(mag240m)                                                                                          \
    FORMAT(graphbolt)                                                                                        \
    FORMAT(marius)                                                                                           \
    FORMAT(planetoid)

/* NULL: there is no format of this name. */
PST_API const struct pst_import_format *pst_formats_find(const char *name);
PST_API const struct pst_import_format *pst_formats_at(unsigned index); /* NULL after the last */

PST_END_DECLS
#endif
