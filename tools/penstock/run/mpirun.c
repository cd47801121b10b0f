/* mpirun.c: see mpirun.h. */
#include "tools/penstock/run/mpirun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/stage.h"

/* Set by Open MPI's mpirun. */
#define RANK "OMPI_COMM_WORLD_RANK"
#define RANKS "OMPI_COMM_WORLD_SIZE"

static bool read_number(const char *name, int *value)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long number = text ? strtol(text, &end, 10) : -1;
    *value = (int)number;
    return text && end != text && *end == '\0' && number >= 0 && number <= INT32_MAX;
}

pst_rc ranks_find(struct ranks *ranks)
{
    *ranks = (struct ranks){0, 1};
    if (!getenv(RANK) && !getenv(RANKS))
        return PST_OK;
    if (!read_number(RANK, &ranks->rank) || !read_number(RANKS, &ranks->ranks) || ranks->rank >= ranks->ranks)
        return pst_fail(
            PST_E_ARG,
            "the environment variables " RANK " and " RANKS
            " are \"%s\" and \"%s\": expected a rank and a larger number of ranks, as mpirun sets "
            "them; unset both to run alone",
            getenv(RANK) ? getenv(RANK) : "", getenv(RANKS) ? getenv(RANKS) : "");
    if (ranks->ranks > PST_REPLICAS_MAX)
        return pst_fail(PST_E_ARG, "%d ranks were started; expected at most %d", ranks->ranks,
                        PST_REPLICAS_MAX);
    return PST_OK;
}

pst_rc ranks_own_path(const struct ranks *ranks, char *path, size_t cap)
{
    const size_t n = strlen(path);
    if (ranks->rank == 0 || n == 0)
        return PST_OK;
    return (size_t)snprintf(path + n, cap - n, ".rank%d", ranks->rank) < cap - n
               ? PST_OK
               : pst_fail(PST_E_ARG, "the path %s is too long for the directory of rank %d", path,
                          ranks->rank);
}
