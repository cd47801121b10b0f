/* probe_routes.c: tries what the runtime does with memory and events of GPUs. */
#include "tools/penstock/machine/probe_routes.h"

#include <stdio.h>
#include <string.h>

#include "common/ipc/gpus.h"
#include "common/error.h"
#include "common/ipc/region.h"
#include "tools/penstock/machine/probe_pair.h"

enum { REGION_BYTES = 2 << 20, PATTERN = 0x5C };

struct message {
    struct pst_probe_routes found;
    struct pst_ipc memory, event;
};

static bool worked(pst_rc rc, const char *why, struct pst_probe_answer *answer)
{
    answer->works = rc == PST_OK;
    if (rc != PST_OK)
        (void)snprintf(answer->why, sizeof answer->why, "%.*s", (int)sizeof answer->why - 1, why);
    return answer->works;
}

static const struct pst_gpus *library(struct pst_probe_routes *found)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES] = "the driver reports no GPU";
    struct pst_gpu gpu;
    int count = 0;
    if (!worked(pst_gpus_open(&gpus), pst_error_text(), &found->library))
        return NULL;
    if (!worked(gpus->count(&count, why), why, &found->library) ||
        !worked(count > 0 ? PST_OK : PST_E_UNSUPPORTED, why, &found->library) ||
        !worked(gpus->describe(0, &gpu, why), why, &found->library))
        return NULL;
    (void)snprintf(found->gpu, sizeof found->gpu, "%s", gpu.name);
    return gpus;
}

/* Pins a region as for a route, and copies bytes from it to a shared region of the GPU. */
static bool make(void *message, void *shared)
{
    struct message *m = message;
    struct pst_region region;
    char why[PST_GPUS_WHY_BYTES];
    void *at = NULL, *event = NULL;
    const struct pst_gpus *gpus = library(&m->found);
    (void)shared;
    if (!gpus)
        return false;
    if (!worked(pst_region_new(&region, "penstock-probe", REGION_BYTES), pst_error_text(), &m->found.pinned))
        return false;
    memset(region.base, PATTERN, REGION_BYTES);
    (void)worked(gpus->pin(0, region.base, REGION_BYTES, why), why, &m->found.pinned);
    if (worked(gpus->alloc(0, REGION_BYTES, &at, why), why, &m->found.memory) &&
        worked(gpus->copy(0, at, region.base, REGION_BYTES, why), why, &m->found.memory))
        (void)worked(gpus->share(0, at, &m->memory, why), why, &m->found.memory);
    if (worked(gpus->event_new(0, true, &event, why), why, &m->found.event) &&
        worked(gpus->event_record(0, event, NULL, why), why, &m->found.event))
        (void)worked(gpus->event_share(0, event, &m->event, why), why, &m->found.event);
    return true;
}

static bool open_once(const struct pst_gpus *gpus, const struct pst_ipc *handle,
                      struct pst_probe_answer *answer)
{
    char why[PST_GPUS_WHY_BYTES];
    void *at = NULL;
    unsigned char last = 0;
    if (!worked(gpus->open(0, handle, &at, why), why, answer) ||
        !worked(gpus->copy(0, &last, (char *)at + REGION_BYTES - 1, 1, why), why, answer) ||
        !worked(gpus->close(0, at, why), why, answer))
        return false;
    return worked(last == PATTERN ? PST_OK : PST_E_FORMAT,
                  "the shared memory was opened, but held wrong bytes", answer);
}

static void open_all(void *message)
{
    struct message *m = message;
    char why[PST_GPUS_WHY_BYTES];
    void *event = NULL;
    const struct pst_gpus *gpus = library(&m->found);
    if (!gpus)
        return;
    if (m->found.memory.works && open_once(gpus, &m->memory, &m->found.memory))
        (void)open_once(gpus, &m->memory, &m->found.reopen);
    if (m->found.event.works && worked(gpus->event_open(0, &m->event, &event, why), why, &m->found.event))
        (void)worked(gpus->event_wait(0, event, NULL, true, why), why, &m->found.event);
}

pst_rc pst_probe_routes(struct pst_probe_routes *found)
{
    struct message m = {0};
    const pst_rc rc = pst_probe_pair(make, open_all, &m, sizeof m, NULL);
    *found = m.found;
    return rc;
}
