/* penstock-memory: the memory host of one device. It owns the regions that routes live in; stages map
 * them through this process' descriptors. When it is gone and they are gone, so is the memory.
 * usage: penstock-memory --control ENDPOINT --pulse INDEX NAME DEVICE   (started by `penstock run`) */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "error.h"
#include "host.h"
#include "pulse.h"

struct memory {
    void *zmq, *control;
    const char *name, *device;
};

static pst_rc say(struct memory *m, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory for a message");
    int sent = zmq_send(m->control, text, strlen(text), 0);
    free(text);
    return sent >= 0 ? PST_OK : pst_fail_errno("cannot reach the supervisor");
}

static pst_rc allocate(struct memory *m, const json_t *message)
{
    json_int_t id = json_integer_value(json_object_get(message, "id"));
    json_int_t bytes = json_integer_value(json_object_get(message, "bytes"));
    char name[PST_NAME_MAX], path[64];
    int fd;
    (void)snprintf(name, sizeof name, "penstock-%s-%lld", m->device, (long long)id);
    pst_rc rc = pst_region_create(&fd, name, (uint64_t)bytes);
    if (rc != PST_OK) {
        pst_rc told =
            say(m, json_pack("{ss ss si}", "type", "failed", "text", pst_error_text(), "rc", (int)rc));
        return told == PST_OK ? rc : told;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    return say(m, json_pack("{ss sI ss sI}", "type", "region", "id", id, "path", path, "bytes", bytes));
}

static pst_rc serve(struct memory *m)
{
    pst_rc rc =
        say(m, json_pack("{ss si si}", "type", "hello", "pid", (int)getpid(), "protocol", PST_PROTOCOL));
    while (rc == PST_OK) {
        zmq_msg_t msg;
        (void)zmq_msg_init(&msg);
        if (zmq_msg_recv(&msg, m->control, 0) < 0) {
            (void)zmq_msg_close(&msg);
            if (errno == EINTR)
                continue;
            return pst_fail_errno("cannot hear the supervisor");
        }
        json_t *j = json_loadb(zmq_msg_data(&msg), zmq_msg_size(&msg), 0, NULL);
        (void)zmq_msg_close(&msg);
        const char *type = json_string_value(json_object_get(j, "type"));
        bool stop = !type || strcmp(type, "stop") == 0;
        if (!stop && strcmp(type, "allocate") == 0)
            rc = allocate(m, j);
        json_decref(j);
        if (stop)
            break;
    }
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 7 || strcmp(argv[1], "--control") != 0 || strcmp(argv[3], "--pulse") != 0) {
        fprintf(stderr, "usage: penstock-memory --control ENDPOINT --pulse INDEX NAME DEVICE\n"
                        "Owns the shared memory of a pipeline on one device; `penstock run` starts it.\n");
        return 2;
    }
    (void)signal(SIGINT, SIG_IGN); /* the supervisor decides when a run ends */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    struct pst_heart heart;
    if (pst_heart_start(&heart, argv[4]) != PST_OK) {
        fprintf(stderr, "penstock-memory: %s\n", pst_error_text());
        return 1;
    }
    struct memory m = {.zmq = zmq_ctx_new(), .name = argv[5], .device = argv[6]};
    int linger = 1000;
    m.control = m.zmq ? zmq_socket(m.zmq, ZMQ_DEALER) : NULL;
    pst_rc rc = PST_OK;
    if (!m.control || zmq_setsockopt(m.control, ZMQ_ROUTING_ID, m.name, strlen(m.name)) != 0 ||
        zmq_setsockopt(m.control, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        zmq_connect(m.control, argv[2]) != 0)
        rc = pst_fail_errno("cannot reach the supervisor at %s", argv[2]);
    if (rc == PST_OK)
        rc = serve(&m);
    if (rc != PST_OK)
        fprintf(stderr, "penstock-memory: %s\n", pst_error_text());
    if (m.control)
        (void)zmq_close(m.control);
    if (m.zmq)
        (void)zmq_ctx_term(m.zmq);
    pst_heart_stop(&heart);
    return rc == PST_OK ? 0 : 1;
}
