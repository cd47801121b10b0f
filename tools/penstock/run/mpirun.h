/* mpirun.h: is this command one of several ranks, which mpirun has started to run one pipeline together? Each
 * rank has a directory of its own. Owner: none. Threads: one. */
#ifndef PST_PENSTOCK_MPIRUN_H
#define PST_PENSTOCK_MPIRUN_H

#include "common/base.h"

struct ranks {
    int rank, ranks; /* 0 of 1: there are no others */
};

/* Reads what mpirun has set in the environment. PST_E_ARG: it makes no sense. */
PST_MUST_USE pst_rc ranks_find(struct ranks *ranks);

/* Adds ".rank1" to a path if this is rank 1, and so on: rank 0 keeps it. PST_E_ARG: it would be too long. */
PST_MUST_USE pst_rc ranks_own_path(const struct ranks *ranks, char *path, size_t cap);

#endif
