/* grains.h: gradients that do not depend on the number of replicas. A batch is cut into grains by the
 * position of its seeds (stages/lib/sampling/cut.h). The gradient of each grain is made by itself. All are
 * added in one binary tree over the grains. The number of replicas divides the number of grains, and both are
 * powers of two, so each replica adds up one subtree by itself. Then the replicas exchange their subtrees.
 * Every replica gets the sum, with the same bits. On GPUs, NCCL can add up the subtrees. The
 * gradients then do not pass through the host, but NCCL chooses the order of the additions.
 *
 * Owner: the trainer, which lends its model. Threads: one. */
#ifndef PST_GRAINS_H
#define PST_GRAINS_H

#include "common/collective/collective.h"
#include "common/stage.h"
#include "stages/lib/gnn/state.h"

/* What the report says of a grain, or of all grains of a batch. */
struct pst_trainer_grain {
    double loss; /* sum over its seeds */
    int64_t seeds, correct, counted;
    uint64_t digest; /* chain over the digests of its minibatches */
};

enum { PST_TRAINER_LEVELS = 6 }; /* of the tree: 2^6 grains */
static_assert(PST_MINIBATCH_GRAINS_MAX == 1 << PST_TRAINER_LEVELS, "a grain is a leaf");

/* How replicas add up their gradients: as enum values of the parameter `reduce`. */
enum pst_trainer_reduce { PST_TRAINER_REDUCE_TREE, PST_TRAINER_REDUCE_NCCL };

struct pst_trainer_grains {
    struct pst_gnn_model *model;
    struct pst_collective *collective;   /* NULL: there is one replica */
    struct pst_twin_sums *sums;          /* NULL: the replicas add up by the tree */
    int64_t grains;                      /* of a batch; 1: the functions below do nothing */
    int64_t first, count;                /* those of this replica */
    int64_t now;                         /* the grain whose gradient the model has */
    pst_real *level[PST_TRAINER_LEVELS]; /* level[l]: the sum of 2^l grains, which waits for its other half.
                                            It lies where the model computes */
    pst_real *mine, *theirs;             /* for exchanges, on the host; on the CPU, mine is the model's */
    struct pst_trainer_grain of[PST_MINIBATCH_GRAINS_MAX]; /* of the current batch */
    double exchange_s; /* time spent in exchanges, with waiting, in seconds */
};

/* PST_E_NOMEM. PST_E_UNSUPPORTED: reduce is NCCL, which was not found. Errors of an exchange. */
PST_MUST_USE pst_rc pst_trainer_grains_open(struct pst_trainer_grains *g, struct pst_stage *self,
                                            struct pst_gnn_model *model, int64_t grains,
                                            enum pst_trainer_reduce reduce);
void pst_trainer_grains_close(struct pst_trainer_grains *g);

/* Call it before a step on a micro-batch of this grain. PST_E_PEER: it is not a grain of this replica, or a
 * later one has come. */
PST_MUST_USE pst_rc pst_trainer_grains_begin(struct pst_trainer_grains *g, uint32_t grain);

/* Adds what a micro-batch of the current grain has given. */
void pst_trainer_grains_note(struct pst_trainer_grains *g, const struct pst_gnn_figures *figures,
                             const struct pst_minibatch *mb);

/* The seeds of a minibatch: vertices, or edges. */
static inline int64_t pst_trainer_seeds_of(const struct pst_minibatch *mb)
{
    return mb->pairs_at != 0 ? mb->positives : mb->n[0];
}

/* Ends a batch. The model then has the gradient of all grains of all replicas, and *p has what they have
 * added, in the order of the grains. *seeds: how many seeds the batch has. PST_E_INTERRUPTED: another replica
 * has left, or the run is ending; the gradient is lost. Other errors are those of an exchange. */
PST_MUST_USE pst_rc pst_trainer_grains_end(struct pst_trainer_grains *g, struct pst_gnn_training *p,
                                           int64_t *seeds);

/* At the end of an epoch: *value becomes that of replica 0, which has evaluated. Errors are those of an
 * exchange. */
PST_MUST_USE pst_rc pst_trainer_grains_tell(struct pst_trainer_grains *g, double *value);

#endif
