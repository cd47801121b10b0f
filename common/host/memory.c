/* memory.c: the shared memory that a process has mapped, and what of it each stage gets: slots, and what its
 * instances and replicas share. */
#include "common/host/host.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <zmq.h>

#include "common/ipc/gpus.h"
#include "common/ipc/proc.h"
#include "common/host/handover.h"

/* ---- the process --------------------------------------------------------------------------------- */

pst_rc pst_host_process_init(struct pst_host_process *process)
{
    memset(process, 0, sizeof *process);
    pst_rc rc = pst_proc_check_threads();
    if (rc != PST_OK)
        return rc;
    process->zmq = zmq_ctx_new();
    if (!process->zmq)
        return pst_fail_errno("cannot start ZeroMQ");
    if (pthread_mutex_init(&process->lock, NULL) != 0)
        return pst_fail(PST_E_NOMEM, "cannot create a mutex");
    return PST_OK;
}

/* Closes a region. It must happen before the memory host ends, which shares it. */
static void let_go(struct pst_host_process *process, int i)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    int gpu = process->regions[i].gpu;
    struct pst_region *region = &process->regions[i].region;
    pst_rc rc = PST_OK;
    if (gpu >= 0 && pst_gpus_open(&gpus) == PST_OK)
        rc = process->regions[i].pinned ? gpus->unpin(gpu, region->base, why)
                                        : gpus->close(gpu, region->base, why);
    if (rc != PST_OK)
        fprintf(stderr, "%s\n", why);
    if (gpu < 0 || process->regions[i].pinned)
        pst_region_unmap(region);
}

void pst_host_process_release(struct pst_host_process *process)
{
    pst_handover_free_events(process);
    for (int i = 0; i < process->nregions; i++)
        let_go(process, i);
    if (process->zmq)
        (void)zmq_ctx_term(process->zmq);
    (void)pthread_mutex_destroy(&process->lock);
}

/* Opens memory of a GPU: `path` is "cuda:N HANDLE". *gpu is the stage's GPU, which may be another one that
 * reaches it. It gets the GPU on which the memory was opened. */
static pst_rc open_gpu(const char *path, uint64_t bytes, int *gpu, struct pst_region *out)
{
    const struct pst_gpus *gpus;
    struct pst_ipc handle;
    char why[PST_GPUS_WHY_BYTES];
    const char *text = strchr(path, ' ');
    *gpu = *gpu >= 0 ? *gpu : pst_gpu_number(path);
    if (!text || !pst_ipc_parse(text + 1, &handle))
        return pst_fail(PST_E_PEER,
                        "the process that owns the memory of this device sent a memory region without a "
                        "handle: install penstock-memory and penstock-stage from the same build");
    pst_rc rc = pst_gpus_open(&gpus);
    if (rc != PST_OK)
        return rc;
    rc = gpus->open(*gpu, &handle, &out->base, why);
    out->bytes = bytes;
    return rc == PST_OK ? PST_OK
                        : pst_fail(rc,
                                   "cannot open the GPU memory of another process: %s (or put all stages of "
                                   "this GPU in one group)",
                                   why);
}

static pst_rc pin(const struct pst_region *region, int gpu)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    pst_rc rc = pst_gpus_open(&gpus);
    if (rc != PST_OK)
        return rc;
    rc = gpus->pin(gpu, region->base, region->bytes, why);
    return rc == PST_OK ? PST_OK
                        : pst_fail(rc,
                                   "cannot pin %.1f MiB of shared memory for the GPU: %s (fewer slots or "
                                   "smaller batches need less)",
                                   (double)region->bytes / 1048576.0, why);
}

pst_rc pst_host_map(struct pst_host_process *process, const char *path, uint64_t bytes, int gpu,
                    struct pst_region *out)
{
    pst_rc rc = PST_OK;
    int i = 0;
    (void)pthread_mutex_lock(&process->lock);
    while (i < process->nregions && strcmp(process->regions[i].path, path) != 0)
        i++;
    if (i == PST_HOST_REGIONS_MAX || strlen(path) >= PST_REGION_PATH_MAX) {
        rc = pst_fail(PST_E_LIMIT,
                      "this process would map more than %d regions of shared memory: use fewer links, or "
                      "smaller groups of stages",
                      PST_HOST_REGIONS_MAX);
    } else if (i == process->nregions) {
        process->regions[i].gpu = pst_gpu_number(path) >= 0 ? gpu : -1;
        process->regions[i].pinned = false;
        rc = pst_gpu_number(path) >= 0
                 ? open_gpu(path, bytes, &process->regions[i].gpu, &process->regions[i].region)
                 : pst_region_map(&process->regions[i].region, path, bytes);
        (void)snprintf(process->regions[i].path, PST_REGION_PATH_MAX, "%s", path);
        process->nregions += rc == PST_OK;
    }
    if (rc == PST_OK && gpu >= 0 && process->regions[i].gpu < 0) {
        rc = pin(&process->regions[i].region, gpu);
        process->regions[i].pinned = rc == PST_OK;
        process->regions[i].gpu = rc == PST_OK ? gpu : -1;
    }
    if (rc == PST_OK)
        *out = process->regions[i].region;
    (void)pthread_mutex_unlock(&process->lock);
    return rc;
}

/* Maps what other replicas of the stage on this machine share in the host's memory. */
static pst_rc map_resident(struct pst_stage *self, const json_t *list)
{
    pst_rc rc = PST_OK;
    const int gpu = pst_gpu_number(pst_device_name(self));
    for (size_t i = 0; i < json_array_size(list) && rc == PST_OK; i++) {
        const json_t *j = json_array_get(list, i);
        const char *path = json_string_value(json_object_get(j, "path"));
        const json_int_t replica = json_integer_value(json_object_get(j, "replica"));
        if (path && replica >= 0 && replica < PST_REPLICAS_MAX && replica != self->replica)
            rc = pst_host_map(self->process, path, (uint64_t)json_integer_value(json_object_get(j, "bytes")),
                              gpu, &self->resident[replica]);
    }
    return rc;
}

pst_rc pst_host_map_resident_gpu(struct pst_stage *self, int replica)
{
    size_t i;
    json_t *j;
    json_array_foreach(json_object_get(self->config, "resident_gpu"), i, j)
    {
        const char *path = json_string_value(json_object_get(j, "path"));
        if (path && json_integer_value(json_object_get(j, "replica")) == replica)
            return pst_host_map(self->process, path,
                                (uint64_t)json_integer_value(json_object_get(j, "bytes")),
                                pst_gpu_number(pst_device_name(self)), &self->resident_gpu[replica]);
    }
    return PST_OK;
}

static pst_rc map_own(struct pst_stage *self, const json_t *message, const char *name,
                      struct pst_region *region)
{
    char bytes[32];
    (void)snprintf(bytes, sizeof bytes, "%s_bytes", name);
    const char *path = json_string_value(json_object_get(message, name));
    return path ? pst_host_map(self->process, path,
                               (uint64_t)json_integer_value(json_object_get(message, bytes)),
                               pst_gpu_number(pst_device_name(self)), region)
                : PST_OK;
}

/* Maps what the stages share whose slots come to this stage's inputs. */
static pst_rc map_lent(struct pst_stage *self, const json_t *list)
{
    pst_rc rc = PST_OK;
    for (size_t i = 0; i < json_array_size(list) && rc == PST_OK; i++) {
        const json_t *j = json_array_get(list, i);
        const char *path = json_string_value(json_object_get(j, "path"));
        const json_int_t port = json_integer_value(json_object_get(j, "port"));
        if (path && port >= 0 && port < PST_PORTS_MAX)
            rc = pst_host_map(self->process, path, (uint64_t)json_integer_value(json_object_get(j, "bytes")),
                              -1, &self->lent[port]);
    }
    return rc;
}

pst_rc pst_host_map_shared(struct pst_stage *self, const json_t *message)
{
    (void)json_object_set(self->config, "resident_gpu", json_object_get(message, "resident_gpu"));
    pst_rc rc = map_own(self, message, "shared", &self->shared);
    if (rc == PST_OK)
        rc = map_own(self, message, "shared_gpu", &self->shared_gpu);
    if (rc == PST_OK)
        rc = map_resident(self, json_object_get(message, "resident"));
    return rc == PST_OK ? map_lent(self, json_object_get(message, "lent")) : rc;
}

static pst_rc seal(const struct pst_region *shared)
{
    return shared->base && mprotect(shared->base, shared->bytes, PROT_READ) != 0
               ? pst_fail_errno("cannot make shared memory read-only")
               : PST_OK;
}

pst_rc pst_host_seal(struct pst_stage *self)
{
    pst_rc rc = seal(&self->shared);
    for (int r = 0; r < PST_REPLICAS_MAX && rc == PST_OK; r++)
        rc = seal(&self->resident[r]);
    for (int p = 0; p < PST_PORTS_MAX && rc == PST_OK; p++)
        rc = seal(&self->lent[p]);
    return rc;
}
