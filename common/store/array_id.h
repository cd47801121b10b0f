/* array_id.h: the arrays that a dataset may have, by number. A manifest lists them by these numbers' names,
 * and a disk request (common/slots/request.h) names one by its number. */
#ifndef PST_ARRAY_ID_H
#define PST_ARRAY_ID_H

enum pst_array_id {
    PST_ARRAY_INDPTR,
    PST_ARRAY_INDICES,
    PST_ARRAY_FEATURES,
    PST_ARRAY_LABELS,
    PST_ARRAY_TRAIN,
    PST_ARRAY_VAL,
    PST_ARRAY_TEST,
    PST_ARRAY_RELATIONS, /* since version 2 of the manifest, like the following arrays up to the next comment
                          */
    PST_ARRAY_TRIPLES_TRAIN,
    PST_ARRAY_TRIPLES_VAL,
    PST_ARRAY_TRIPLES_TEST,
    PST_ARRAY_IDS,
    PST_ARRAY_NAMES_AT,
    PST_ARRAY_NAMES,
    PST_ARRAY_RELATION_NAMES_AT,
    PST_ARRAY_RELATION_NAMES,
    PST_ARRAY_EDGES_TRAIN, /* since version 3 */
    PST_ARRAY_EDGES_VAL,
    PST_ARRAY_EDGES_TEST,
    PST_ARRAY_NEGATIVES_VAL,
    PST_ARRAY_NEGATIVES_TEST,
    PST_ARRAY_MULTILABELS,
    PST_ARRAY_EDGE_WEIGHTS, /* since version 7 */
    PST_ARRAY_TARGETS,      /* since version 8 */
    PST_ARRAY_EDGE_TIMES,   /* since version 9 */
    PST_ARRAY_VERTEX_TIMES,
    PST_ARRAY_OLD_IDS, /* since version 10 */
    PST_ARRAY_COUNT    /* the number of arrays */
};

#endif
