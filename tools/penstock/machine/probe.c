/* probe.c: `penstock probe`: what this machine has for a pipeline on GPUs, what it lacks, and what that
 * costs. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/run/mps.h"
#include "common/util/progress.h"
#include "kernels/twin.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/machine/probe_gpu.h"
#include "tools/penstock/links/show_machine.h"
#include "tools/penstock/machine/probe_routes.h"
#include "tools/penstock/cli/options.h"

static const char help[] =
    "usage: penstock probe [--topology | --cliques] [--machine FILE]\nShows what this machine has for "
    "pipelines on "
    "GPUs: driver, devices, memory and events shared between\nprocesses, drives that kernels can drive, MPS, "
    "peer "
    "access. It says what each missing part costs.\n\n"
    "  --topology      print devices, links, sockets and memory, as a machine file (JSON)\n"
    "  --cliques       print which devices can share their caches, because each is linked with each other "
    "one\n"
    "  --machine FILE  with these two: use a machine file instead of this machine\n";

static void has(const char *what, const char *text)
{
    (void)printf("%-16s %s\n", what, text);
}

static void lacks(const char *what, const char *why, const char *cost)
{
    (void)printf("%-16s no: %s\n%-16s costs: %s\n", what, why, "", cost);
}

static void tell(const char *what, const struct pst_probe_answer *answer, const char *cost)
{
    if (answer->works)
        has(what, "yes");
    else
        lacks(what,
              answer->why[0] ? answer->why : "not tried, because something above that it needs does not work",
              cost);
}

static void tell_devices(const struct pst_probe_gpu *found)
{
    char line[192], memory[32];
    for (int i = 0; i < found->devices; i++) {
        const struct pst_probe_device *d = &found->device[i];
        char name[16];
        (void)snprintf(name, sizeof name, "cuda:%d", i);
        (void)snprintf(line, sizeof line, "%s, %s, sm_%d%d, %d multiprocessors", d->name,
                       pst_bytes_text((double)d->bytes, memory), d->major, d->minor, d->multiprocessors);
        has(name, line);
    }
    for (int i = 0; i < found->devices; i++) {
        for (int j = 0; j < found->devices; j++) {
            (void)snprintf(line, sizeof line, "peer %d to %d", i, j);
            if (i != j && found->device[i].peers >> j & 1)
                has(line, "yes");
            else if (i != j)
                lacks(line, "the driver reports that these two GPUs cannot access each other",
                      "links between them go through pinned host memory");
        }
    }
}

static void tell_gpu(const struct pst_probe_gpu *found)
{
    char line[64];
    if (!found->driver.works) {
        lacks("driver", found->driver.why, "everything runs on the CPU");
        return;
    }
    (void)snprintf(line, sizeof line, "CUDA %d.%d", found->version / 1000, found->version % 1000 / 10);
    has("driver", line);
    if (found->devices == 0) {
        lacks("devices", "the driver reports no device", "everything runs on the CPU");
        return;
    }
    tell_devices(found);
    tell("shared memory", &found->shared_memory,
         "CUDA cannot pin memory that processes share, so rows from host memory are copied once more");
    tell("one address", &found->one_address, "drives' queues cannot be driven by kernels");
    tell("drive registers", &found->drive_registers,
         "kernels cannot ring the doorbells of real drives, only of emulated ones");
    tell("dma-buf", &found->dma_buf, "a drive's queues and data stay in pinned host memory");
    tell("ipc memory", &found->ipc_memory,
         "GPU memory cannot be shared between processes: put all stages of one GPU in one group");
    tell("ipc reopen", &found->ipc_reopen, "a stage that starts again needs a new region");
    tell("ipc events", &found->ipc_event, "stages wait on the CPU for one another's GPU work");
}

/* Prints the same for the library that pipelines use. */
static pst_rc tell_routes(void)
{
    struct pst_probe_routes found = {0};
    const pst_rc rc = pst_probe_routes(&found);
    if (rc != PST_OK)
        return rc;
    if (!found.library.works) {
        lacks("routes", found.library.why, "no stage can be placed on a GPU");
        return PST_OK;
    }
    has("routes", found.gpu);
    tell("route pinned", &found.pinned, "a stage on a GPU cannot share a route with a stage on a CPU");
    tell("route memory", &found.memory,
         "routes between stages of one GPU cannot be in its memory: put these stages in one group");
    tell("route reopen", &found.reopen, "a stage that starts again needs a new region");
    tell("route events", &found.event, "stages wait on the CPU for one another's GPU work");
    return PST_OK;
}

static void tell_mps(void)
{
    char path[PST_PATH_MAX];
    if (pst_mps_program(path, sizeof path))
        has("mps", path);
    else
        lacks("mps", "nvidia-cuda-mps-control is not in PATH",
              "kernels of different processes take turns on a GPU: put the stages of one GPU in one group");
}

static void tell_kernels(void)
{
    char why[PST_TWIN_WHY_BYTES];
    const struct pst_twin *twin = pst_twin_open(NULL, why);
    if (twin)
        has("kernels", twin->name);
    else
        lacks("kernels", why,
              "kernels run on the CPU: build Penstock on a machine with nvcc, and install CUDA's libraries");
}

static pst_rc probe_gpus(void)
{
    struct pst_probe_gpu found = {0};
    pst_rc rc = pst_probe_gpu(&found);
    if (rc != PST_OK)
        return rc;
    tell_gpu(&found);
    rc = tell_routes();
    if (rc != PST_OK)
        return rc;
    tell_mps();
    tell_kernels();
    return PST_OK;
}

int cmd_probe(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"topology", no_argument, NULL, 't'},
                                            {"cliques", no_argument, NULL, 'c'},
                                            {"machine", required_argument, NULL, 'm'},
                                            {NULL, 0, NULL, 0}};
    bool topology = false, cliques = false;
    const char *machine = NULL;
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'h': (void)fputs(help, stdout); return 0;
        case 't': topology = true; break;
        case 'c': cliques = true; break;
        case 'm': machine = optarg; break;
        default:
            return command_result(
                "probe", pst_fail(PST_E_ARG, "invalid option: `penstock probe --help` lists the options"));
        }
    }
    if (argc != optind)
        return command_result("probe",
                              pst_fail(PST_E_ARG, "expected no argument, found \"%s\"", argv[optind]));
    if (topology && cliques)
        return command_result(
            "probe",
            pst_fail(PST_E_ARG, "--topology and --cliques cannot be used together: use one of them"));
    if (machine != NULL && !topology && !cliques)
        return command_result("probe", pst_fail(PST_E_ARG, "--machine requires --topology or --cliques"));
    return command_result("probe", topology || cliques ? pst_probe_machine(machine, cliques) : probe_gpus());
}
