/* limits.c: what the operating system must allow before a run starts. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "common/ipc/gpus.h"
#include "common/ipc/proc.h"
#include "common/run/run_impl.h"
#include "common/util/utf8.h"

#define FILES_OF_A_PROCESS 64 /* open files beside its sockets and regions: a dataset's, a log, libraries */

/* libzmq aborts if it cannot open a file. So this raises the soft limit, which processes inherit, or says
 * that it is too low. */
static pst_rc check_open_files(const struct pst_supervisor *sv)
{
    const rlim_t need = FILES_OF_A_PROCESS + 4 * (rlim_t)(sv->ninstances + sv->nhosts + sv->graph->nroutes);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return PST_OK;
    limit.rlim_cur = need;
    if (limit.rlim_max >= need && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return PST_OK;
    return pst_fail(PST_E_LIMIT,
                    "each process of this pipeline needs up to %llu open files, but only %llu are allowed: "
                    "raise the limit (ulimit -n)",
                    (unsigned long long)need, (unsigned long long)limit.rlim_max);
}

/* Messages are JSON, which carries only UTF-8. */
static pst_rc check_path(const char *what, const char *path)
{
    char shown[1024];
    if (!path || pst_utf8_valid(path, strlen(path)) == strlen(path))
        return PST_OK;
    pst_utf8_printable(path, shown, sizeof shown);
    return pst_fail(PST_E_ARG, "%s is not valid UTF-8: %s", what, shown);
}

static pst_rc check_paths(const struct pst_supervisor *sv)
{
    pst_rc rc = check_path("the path of the run directory", sv->opt->run_dir);
    if (rc == PST_OK)
        rc = check_path("the path of the pipeline's directory", sv->pl->base_dir);
    if (rc == PST_OK)
        rc = check_path("the path of the dataset", sv->opt->dataset_dir);
    return rc == PST_OK ? check_path("the path of the checkpoint", sv->opt->resume) : rc;
}

/* The modelled bus delays copies by the CPU only. */
static pst_rc check_bus(const struct pst_supervisor *sv)
{
    for (int s = 0; s < sv->pl->nstages && sv->pl->bus_bytes_per_s > 0; s++)
        if (pst_gpu_number(sv->pl->stages[s].device) >= 0)
            return pst_fail(PST_E_ARG,
                            "bus: stage %s runs on %s, which has a real bus, so the pipeline cannot model "
                            "one: remove \"bus\", or place all stages on a CPU",
                            sv->pl->stages[s].name, sv->pl->stages[s].device);
    return PST_OK;
}

pst_rc pst_run_check_limits(const struct pst_supervisor *sv)
{
    pst_rc rc = check_paths(sv);
    if (rc == PST_OK)
        rc = check_bus(sv);
    if (rc == PST_OK)
        rc = check_open_files(sv);
    return rc == PST_OK ? pst_proc_check_threads() : rc;
}
