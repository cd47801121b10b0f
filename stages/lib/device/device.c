/* device.c: opens a device, and keeps account of the memory that a stage takes there. */
#include "stages/lib/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static const char CUDA[] = "cuda:";

/* Is it "cuda:" and a number? */
static bool is_cuda(const char *place, int *number)
{
    char *end;
    if (strncmp(place, CUDA, strlen(CUDA)) != 0)
        return false;
    const char *digits = place + strlen(CUDA);
    const long value = strtol(digits, &end, 10);
    *number = (int)value;
    return end != digits && *end == '\0' && value >= 0 && value < 1 << 16;
}

static pst_rc open_cuda(struct pst_device *d)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    uint64_t there, all;
    d->twin = pst_twin_open(NULL, why);
    if (d->twin == NULL)
        return pst_fail(
            PST_E_UNSUPPORTED,
            "cannot use %s: %s (build Penstock on a machine with nvcc, or place the stage on cpu:0)", d->name,
            why);
    if (d->twin->room(d->number, &there, &all, why) != PST_OK)
        return pst_fail(PST_E_UNSUPPORTED,
                        "cannot use %s: %s (`penstock probe` lists the GPUs of this machine)", d->name, why);
    void *at;
    const pst_rc rc = pst_device_take(d, PST_TWIN_MEMORY_PINNED, sizeof *d->record, "a batch's counts", &at);
    if (rc == PST_OK)
        d->record = memset(at, 0, sizeof *d->record);
    return rc;
}

pst_rc pst_device_open(struct pst_device *d, const char *place)
{
    *d = (struct pst_device){.number = -1};
    (void)snprintf(d->name, sizeof d->name, "%s", place);
    if (strncmp(place, "cpu:", 4) == 0) {
        d->twin = pst_twin_cpu();
        return PST_OK;
    }
    if (!is_cuda(place, &d->number))
        return pst_fail(PST_E_ARG, "the device is \"%s\"; expected cpu:N or cuda:N", place);
    const pst_rc rc = open_cuda(d);
    if (rc != PST_OK)
        pst_device_close(d);
    return rc;
}

/* How much memory the device has left, for messages. */
static void say_room(const struct pst_device *d, char *out, size_t bytes)
{
    char why[PST_TWIN_WHY_BYTES];
    uint64_t there, all;
    if (d->twin->room(d->number, &there, &all, why) == PST_OK)
        (void)snprintf(out, bytes, "%llu of its %llu bytes are free", (unsigned long long)there,
                       (unsigned long long)all);
    else
        (void)snprintf(out, bytes, "%.160s", why);
}

static pst_rc choose_table(struct pst_device *d, enum pst_twin_precision precision)
{
    char why[PST_TWIN_WHY_BYTES] = "only GPUs have TensorFloat-32";
    const struct pst_twin *twin = precision == PST_TWIN_FLOAT32 ? pst_twin_cpu()
                                  : precision == PST_TWIN_BF16  ? pst_twin_cpu_bf16(why)
                                                                : NULL;
    if (twin == NULL)
        return pst_fail(PST_E_UNSUPPORTED, "%s: cannot make products in this precision: %s", d->name, why);
    d->twin = twin;
    return PST_OK;
}

pst_rc pst_device_queue(struct pst_device *d, struct pst_queue_options options)
{
    char why[PST_TWIN_WHY_BYTES] = "", left[256];
    if (!pst_device_is_cuda(d))
        return choose_table(d, options.precision);
    d->twin->queue_free(d->q);
    d->q = NULL;
    options.device = d->number;
    const pst_rc rc = d->twin->queue_new(&options, &d->q, why);
    if (rc == PST_OK)
        return PST_OK;
    say_room(d, left, sizeof left);
    return pst_fail(
        rc, "%s: cannot create a queue for GPU work on up to %lld ids and %lld columns at a time: %s; %s",
        d->name, (long long)options.most, (long long)options.columns, why, left);
}

/* Turns the outcome of a wait into an error with a message. */
static pst_rc judge(struct pst_device *d, pst_rc rc, const char *why)
{
    d->left_alone = d->left_alone || rc == PST_E_TIMEOUT;
    return rc == PST_OK ? PST_OK : pst_fail(rc, "%s: %s", d->name, why);
}

pst_rc pst_device_reserve(struct pst_device *d, int64_t most, int64_t columns)
{
    char why[PST_TWIN_WHY_BYTES] = "", left[256];
    const pst_rc rc = d->twin->reserve(d->q, most, columns, why);
    if (rc != PST_E_NOMEM)
        return judge(d, rc, why);
    say_room(d, left, sizeof left);
    return pst_fail(rc,
                    "%s: out of memory: cannot reserve GPU memory for work on up to %lld ids and %lld "
                    "columns at a time: %s; %s",
                    d->name, (long long)most, (long long)columns, why, left);
}

pst_rc pst_device_take(struct pst_device *d, enum pst_twin_memory kind, uint64_t bytes, const char *what,
                       void **at)
{
    char why[PST_TWIN_WHY_BYTES] = "", left[256];
    *at = NULL;
    if (d->ntaken == PST_DEVICE_TAKEN_MAX)
        return pst_fail(PST_E_LIMIT,
                        "this stage makes more than %d allocations on %s, which is the limit: this is a "
                        "fault of Penstock",
                        PST_DEVICE_TAKEN_MAX, d->name);
    const pst_rc rc = d->twin->alloc(d->number, kind, bytes, at, why);
    if (rc == PST_OK) {
        d->taken[d->ntaken].at = *at;
        d->taken[d->ntaken].kind = kind;
        d->taken[d->ntaken++].bytes = bytes;
        *(kind == PST_TWIN_MEMORY_DEVICE ? &d->device_bytes : &d->pinned_bytes) += bytes;
        return PST_OK;
    }
    say_room(d, left, sizeof left);
    return pst_fail(
        rc,
        "%s: out of memory: cannot allocate %s: this stage asked for %llu bytes of %s memory, %s, and it "
        "already has %llu bytes (%s)",
        d->name, what, (unsigned long long)bytes, kind == PST_TWIN_MEMORY_DEVICE ? "device" : "pinned host",
        left, (unsigned long long)(kind == PST_TWIN_MEMORY_DEVICE ? d->device_bytes : d->pinned_bytes), why);
}

pst_rc pst_device_wait(struct pst_device *d)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    return judge(d, d->twin->wait(d->q, why), why);
}

/* Waits until no kernel uses the memory that will be released. */
static void drain(struct pst_device *d)
{
    if (d->q == NULL || d->left_alone)
        return;
    const pst_rc rc = pst_device_wait(d);
    (void)rc; /* an error in the data does not matter any more */
}

void pst_device_give(struct pst_device *d, void *at)
{
    if (at != NULL)
        drain(d);
    for (int i = 0; at != NULL && !d->left_alone && i < d->ntaken; i++) {
        if (d->taken[i].at != at)
            continue;
        *(d->taken[i].kind == PST_TWIN_MEMORY_DEVICE ? &d->device_bytes : &d->pinned_bytes) -=
            d->taken[i].bytes;
        d->twin->release(d->taken[i].kind, at);
        d->taken[i] = d->taken[--d->ntaken];
        return;
    }
    assert(at == NULL || d->left_alone);
}

void pst_device_close(struct pst_device *d)
{
    drain(d);
    if (d->twin != NULL && !d->left_alone) {
        d->twin->queue_free(d->q);
        for (int i = 0; i < d->ntaken; i++)
            d->twin->release(d->taken[i].kind, d->taken[i].at);
    }
    *d = (struct pst_device){.number = -1};
}

void pst_device_record(struct pst_device *d, const int64_t *const *counts, int n)
{
    (void)d->twin->record(d->q, d->record, ++d->records, counts, n); /* the wait reports a failure */
}

pst_rc pst_device_recorded(struct pst_device *d, bool *data_fault)
{
    return pst_device_recorded_in(d, d->record, d->records, data_fault);
}

pst_rc pst_device_recorded_in(struct pst_device *d, const struct pst_twin_record *record, uint64_t sequence,
                              bool *data_fault)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    *data_fault = false;
    const pst_rc rc = judge(d, d->twin->recorded(d->q, record, sequence, why), why);
    if (rc != PST_OK)
        return rc;
    *data_fault = record->rc != PST_OK;
    return (pst_rc)record->rc;
}

pst_rc pst_device_graph(struct pst_device *d, void (*put)(void *arg), void *arg,
                        struct pst_twin_graph **graph)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    *graph = NULL;
    if (d->twin->graph_begin(d->q) != PST_OK)
        return pst_device_wait(d); /* the wait reports the reason */
    put(arg);
    return judge(d, d->twin->graph_end(d->q, graph, why), why);
}
