/* penstock-memory: the memory host of one device. It owns the regions that slots lie in. Stages map them
 * through this process' descriptors. The memory is freed when this process and the stages have ended. usage:
 * penstock-memory --control ENDPOINT --pulse INDEX NAME DEVICE   (started by `penstock run`) penstock-memory
 * --gpus   (prints the number of GPUs as JSON, so that the caller need not touch CUDA) */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/ipc/gpus.h"
#include "common/ipc/proc.h"
#include "common/error.h"
#include "common/host/host.h"
#include "common/ipc/pulse.h"
#include "common/util/file.h"

#define EVENTS_MAX 4096 /* one for each slot and each stage on this GPU */

struct memory {
    void *zmq, *control;
    const char *name, *device;
    const struct pst_gpus *gpus; /* of the host of a GPU */
    int gpu;                     /* -1: of a CPU */
    void *blocks[PST_HOST_REGIONS_MAX];
    int nblocks;
    void *events[EVENTS_MAX];
    int nevents;
};

static pst_rc say(struct memory *m, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a message");
    int sent = zmq_send(m->control, text, strlen(text), 0);
    free(text);
    return sent >= 0 ? PST_OK : pst_fail_errno("cannot reach the supervisor");
}

/* Allocates host memory. Its path is a descriptor of this process. */
static pst_rc take_host(const struct memory *m, json_int_t id, uint64_t bytes, bool scattered,
                        char path[PST_REGION_PATH_MAX])
{
    char name[PST_NAME_MAX];
    int fd;
    (void)snprintf(name, sizeof name, "penstock-%s-%lld", m->device, (long long)id);
    pst_rc rc = pst_region_create(&fd, name, bytes, scattered);
    (void)snprintf(path, PST_REGION_PATH_MAX, "/proc/%d/fd/%d", (int)getpid(), fd);
    return rc;
}

/* Allocates memory of the GPU. Its path has a handle. */
static pst_rc take_gpu(struct memory *m, uint64_t bytes, char path[PST_REGION_PATH_MAX])
{
    char why[PST_GPUS_WHY_BYTES], text[PST_IPC_TEXT_BYTES];
    struct pst_ipc handle;
    void *at = NULL;
    if (m->nblocks == PST_HOST_REGIONS_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "the pipeline has more than %d memory regions on one device, which is the limit: use fewer links",
            PST_HOST_REGIONS_MAX);
    pst_rc rc = m->gpus->alloc(m->gpu, bytes, &at, why);
    if (rc != PST_OK)
        return pst_fail(rc, "cannot allocate %.1f MiB of GPU memory: %s", (double)bytes / 1048576.0, why);
    m->blocks[m->nblocks++] = at;
    rc = m->gpus->share(m->gpu, at, &handle, why);
    if (rc != PST_OK)
        return pst_fail(rc, "processes cannot share memory of this GPU (place its stages in one group): %s",
                        why);
    pst_ipc_text(&handle, text);
    (void)snprintf(path, PST_REGION_PATH_MAX, "cuda:%d %s", m->gpu, text);
    return PST_OK;
}

static pst_rc make_event(struct memory *m, json_t *names)
{
    char why[PST_GPUS_WHY_BYTES], text[PST_IPC_TEXT_BYTES], name[PST_REGION_PATH_MAX];
    struct pst_ipc handle;
    void *event;
    if (m->nevents == EVENTS_MAX)
        return pst_fail(PST_E_LIMIT,
                        "the pipeline has more than %d slots with GPU events on one device, which is the "
                        "limit: use fewer slots",
                        EVENTS_MAX);
    pst_rc rc = m->gpus->event_new(m->gpu, true, &event, why);
    if (rc == PST_OK) {
        m->events[m->nevents++] = event;
        rc = m->gpus->event_share(m->gpu, event, &handle, why);
    }
    if (rc != PST_OK)
        return pst_fail(rc, "%s", why);
    pst_ipc_text(&handle, text);
    (void)snprintf(name, sizeof name, "cuda:%d %s", m->gpu, text);
    return json_array_append_new(names, json_string(name)) == 0 ? PST_OK
                                                                : pst_fail(PST_E_NOMEM, "out of memory");
}

/* Makes one event for each slot of a route, for one stage (common/host/handover.h). If that fails it sends
 * the reason, and the run goes on without them. */
static pst_rc make_events(struct memory *m, const json_t *message)
{
    const json_int_t count = json_integer_value(json_object_get(message, "count"));
    json_t *names = json_array();
    pst_rc rc = PST_OK;
    for (json_int_t i = 0; i < count && rc == PST_OK; i++)
        rc = make_event(m, names);
    if (rc == PST_OK)
        return say(m, json_pack("{ss sO so}", "type", "events", "id", json_object_get(message, "id"), "names",
                                names));
    json_decref(names);
    return say(m, json_pack("{ss sO ss}", "type", "events", "id", json_object_get(message, "id"), "why",
                            pst_error_text()));
}

static pst_rc allocate(struct memory *m, const json_t *message)
{
    json_int_t id = json_integer_value(json_object_get(message, "id"));
    json_int_t bytes = json_integer_value(json_object_get(message, "bytes"));
    const bool scattered = json_is_true(json_object_get(message, "scattered"));
    char path[PST_REGION_PATH_MAX];
    pst_rc rc =
        m->gpu < 0 ? take_host(m, id, (uint64_t)bytes, scattered, path) : take_gpu(m, (uint64_t)bytes, path);
    if (rc != PST_OK) {
        pst_rc told =
            say(m, json_pack("{ss ss si}", "type", "failed", "text", pst_error_text(), "rc", (int)rc));
        return told == PST_OK ? rc : told;
    }
    return say(m, json_pack("{ss sI ss sI}", "type", "region", "id", id, "path", path, "bytes", bytes));
}

/* The supervisor says "stop" when the stages have ended. So nobody has the memory open any more. */
static void release(struct memory *m)
{
    char why[PST_GPUS_WHY_BYTES];
    for (int i = 0; i < m->nevents; i++)
        if (m->gpus->event_free(m->gpu, m->events[i], why) != PST_OK)
            fprintf(stderr, "penstock-memory: %s\n", why);
    for (int i = 0; i < m->nblocks; i++)
        if (m->gpus->release(m->gpu, m->blocks[i], why) != PST_OK)
            fprintf(stderr, "penstock-memory: %s\n", why);
}

/* If memory runs out, the kernel ends this process first. Then the run ends and says so. Otherwise the kernel
 * would end another process, because the slots do not count as this process's memory. */
static void volunteer(void)
{
    FILE *f = fopen("/proc/self/oom_score_adj", "we");
    if (f)
        (void)fputs("1000", f);
    if (f)
        (void)fclose(f);
}

/* How many GPUs, from the first on, can run the kernels. If one is too old, why says which. */
static int usable(const struct pst_gpus *gpus, int count, char why[PST_GPUS_WHY_BYTES])
{
    for (int i = 0; i < count; i++) {
        struct pst_gpu gpu;
        char unknown[PST_GPUS_WHY_BYTES]; /* then its use will say what is wrong */
        if (gpus->describe(i, &gpu, unknown) != PST_OK || gpu.major >= PST_GPUS_MAJOR_MIN)
            continue;
        (void)snprintf(why, PST_GPUS_WHY_BYTES,
                       "cuda:%d (%s) has compute capability %d.%d, but Penstock needs %d.0 or newer: to "
                       "leave this GPU out, set CUDA_VISIBLE_DEVICES to the numbers of newer GPUs",
                       i, gpu.name, gpu.major, gpu.minor, PST_GPUS_MAJOR_MIN);
        return i;
    }
    if (count > 0)
        why[0] = '\0';
    return count;
}

static int tell_gpus(void)
{
    const struct pst_gpus *gpus = NULL;
    char why[PST_GPUS_WHY_BYTES] = "the driver reports no GPU";
    int count = 0;
    if (pst_gpus_open(&gpus) != PST_OK)
        (void)snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, pst_error_text());
    else
        (void)gpus->count(&count, why);
    count = usable(gpus, count, why);
    json_t *peers = json_array();
    for (int i = 0; i < count && i < PST_GPUS_MAX; i++) {
        struct pst_gpu gpu;
        char unknown[PST_GPUS_WHY_BYTES]; /* then it reaches none */
        (void)json_array_append_new(
            peers, json_integer(gpus->describe(i, &gpu, unknown) == PST_OK ? (json_int_t)gpu.peers : 0));
    }
    json_t *answer = json_pack("{si ss so}", "gpus", count, "why", why, "peers", peers);
    (void)json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(answer);
    return 0;
}

static pst_rc serve(struct memory *m)
{
    pst_rc rc =
        say(m, json_pack("{ss si si}", "type", "hello", "pid", (int)getpid(), "protocol", PST_WIRE_PROTOCOL));
    while (rc == PST_OK) {
        zmq_msg_t msg;
        (void)zmq_msg_init(&msg);
        if (zmq_msg_recv(&msg, m->control, 0) < 0) {
            (void)zmq_msg_close(&msg);
            if (errno == EINTR)
                continue;
            return pst_fail_errno("cannot receive from the supervisor");
        }
        json_t *j = json_loadb(zmq_msg_data(&msg), zmq_msg_size(&msg), 0, NULL);
        (void)zmq_msg_close(&msg);
        const char *type = json_string_value(json_object_get(j, "type"));
        bool stop = !type || strcmp(type, "stop") == 0;
        if (!stop && strcmp(type, "allocate") == 0)
            rc = allocate(m, j);
        if (!stop && strcmp(type, "events") == 0)
            rc = make_events(m, j);
        json_decref(j);
        if (stop)
            break;
    }
    return rc;
}

int main(int argc, char **argv)
{
    pst_file_open_std();
    if (argc == 2 && strcmp(argv[1], "--gpus") == 0)
        return tell_gpus();
    if (argc != 7 || strcmp(argv[1], "--control") != 0 || strcmp(argv[3], "--pulse") != 0) {
        fprintf(stderr,
                "usage: penstock-memory --control ENDPOINT --pulse INDEX NAME DEVICE\nOwns the memory of one "
                "device that the processes of a pipeline share. `penstock run` starts it.\n");
        return 2;
    }
    (void)signal(SIGINT, SIG_IGN); /* the supervisor decides when a run ends */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    volunteer();
    struct pst_heart heart;
    if (pst_heart_start(&heart, argv[4]) != PST_OK || pst_proc_check_threads() != PST_OK) {
        fprintf(stderr, "penstock-memory: %s\n", pst_error_text());
        return 1;
    }
    struct memory m = {
        .zmq = zmq_ctx_new(), .name = argv[5], .device = argv[6], .gpu = pst_gpu_number(argv[6])};
    int linger = 1000;
    m.control = m.zmq ? zmq_socket(m.zmq, ZMQ_DEALER) : NULL;
    pst_rc rc = PST_OK;
    if (!m.control || zmq_setsockopt(m.control, ZMQ_ROUTING_ID, m.name, strlen(m.name)) != 0 ||
        zmq_setsockopt(m.control, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        zmq_connect(m.control, argv[2]) != 0)
        rc = pst_fail_errno("cannot reach the supervisor at %s", argv[2]);
    if (rc == PST_OK && m.gpu >= 0)
        rc = pst_gpus_open(&m.gpus);
    if (rc == PST_OK)
        rc = serve(&m);
    release(&m);
    if (rc != PST_OK)
        fprintf(stderr, "penstock-memory: %s\n", pst_error_text());
    if (m.control)
        (void)zmq_close(m.control);
    if (m.zmq)
        (void)zmq_ctx_term(m.zmq);
    pst_heart_stop(&heart);
    return rc == PST_OK ? 0 : 1;
}
