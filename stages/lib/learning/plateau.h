/* plateau.h: lowers the learning rate when a figure of the epochs no longer improves.
 *
 * Owner: the caller; the state is part of its checkpoint, so a resumed run goes on with the same bits.
 * Threads: one. */
#ifndef PST_PLATEAU_H
#define PST_PLATEAU_H

#include "common/base.h"

/* Improvements by less than this share do not count. */
#define PST_PLATEAU_LEAST 1e-4

enum pst_plateau_figure { PST_PLATEAU_NONE, PST_PLATEAU_LOSS, PST_PLATEAU_SCORE };

struct pst_plateau_state { /* only doubles, so that it is one tensor */
    double scale;          /* what the learning rate is multiplied by; begins as 1 */
    double best;
    double waited; /* epochs since the best one */
    double figure; /* enum pst_plateau_figure: what `best` is */
};

struct pst_plateau {
    double patience; /* epochs without improvement that change nothing */
    double factor;   /* after one more epoch the scale is multiplied by this; 0 < factor < 1 */
    double least;    /* the scale stays at or above this; at most 1 */
    struct pst_plateau_state state;
};

/* An epoch has ended with this value. A loss improves when it falls, an MRR when it rises. If the figure is
 * not the one of the epoch before, the search for the best one begins anew. */
PST_API void pst_plateau_step(struct pst_plateau *p, enum pst_plateau_figure figure, double value);

#endif
