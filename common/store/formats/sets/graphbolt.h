/* graphbolt.h: the state of one import from GraphBolt, shared by its two files. Threads: one. */
#ifndef PST_GRAPHBOLT_H
#define PST_GRAPHBOLT_H

#include "common/store/import/importing.h"
#include "common/store/import/typed.h"
#include "common/store/text/yaml.h"

struct pst_graphbolt {
    struct pst_import_job *job;
    struct pst_yaml yaml;
    struct pst_typed typed;
    bool plain; /* types have no names */
    pst_yaml_node task;
    int64_t first[PST_MANIFEST_VERTEX_TYPES_MAX], vertices;
    int32_t *labels; /* of all vertices, or NULL: no set has some */
    int temps;       /* files that were made aside */
};

/* The file that an entry with `format` and `path` names; told: how messages call it. One of torch.save's is
 * made an array first. */
PST_MUST_USE pst_rc pst_graphbolt_file(struct pst_graphbolt *g, pst_yaml_node entry, char path[4096],
                                       char told[4096]);

/* graphbolt_sets.c: the chosen task's sets. Of vertices: labels and splits, before the import; of
 * pairs: edges to predict and negatives, after it. */
PST_MUST_USE pst_rc pst_graphbolt_choose(struct pst_graphbolt *g);
PST_MUST_USE pst_rc pst_graphbolt_vertex_sets(struct pst_graphbolt *g);
PST_MUST_USE pst_rc pst_graphbolt_pair_sets(struct pst_graphbolt *g);

#endif
