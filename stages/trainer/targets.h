/* targets.h: what the trainer knows of a minibatch's vertices beside what its slot has, and brings to where
 * the model computes: the degrees from which GCN computes weights, and the labels of datasets whose vertices
 * have several, and the targets of a regression. The degrees of all vertices are in memory, 4 bytes each.
 * Labels and targets are mapped from the dataset. So slots carry none of these, and no sampler has to know
 * about them.
 *
 * Owner: the trainer, which lends its device and dataset. Threads: one. */
#ifndef PST_TARGETS_H
#define PST_TARGETS_H

#include "common/store/store.h"
#include "stages/lib/gnn/model.h"

/* Values of a minibatch's vertices. */
struct pst_trainer_values {
    void *host, *device; /* NULL: the model does not need them; device is NULL on a CPU, too; otherwise host
                            is pinned, so that the copy does not wait for the device */
    size_t bytes;        /* of one vertex */
};

struct pst_trainer_targets {
    const struct pst_dataset *ds;
    struct pst_device *device;
    int32_t *all; /* the degrees of all vertices; NULL: the model does not need them */
    struct pst_trainer_values degrees, multilabels, numbers; /* numbers: of a regression */
    int64_t most;                                            /* vertices of a minibatch */
};

/* Reads what the model needs. most: no minibatch has more vertices. PST_E_NOMEM. PST_E_FORMAT: indptr
 * decreases. */
PST_MUST_USE pst_rc pst_trainer_targets_open(struct pst_trainer_targets *targets,
                                             const struct pst_gnn_model *model, const struct pst_dataset *ds,
                                             int64_t most, struct pst_device *device);
void pst_trainer_targets_close(struct pst_trainer_targets *targets);

/* Points batch->degrees, batch->multilabels and batch->targets at the values of its vertices, where the model
 * computes. They stay valid until the next call. vertices: the batch's, in host memory. PST_E_PEER: the
 * minibatch has too many vertices, or one that is not in the graph. */
PST_MUST_USE pst_rc pst_trainer_targets_bring(struct pst_trainer_targets *targets, const int64_t *vertices,
                                              struct pst_gnn_batch *batch);

#endif
