/* control.c: messages between a stage and the supervisor: JSON, on the stage's control socket. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/host/host_impl.h"
#include "common/ipc/proc.h"

#define SUPERVISOR_DEADLINE_MS 60000 /* between messages of the start-up */
#define DEBUGGER_DEADLINE_S 3600.0   /* a person has to attach it */
#define DEBUGGER_LOOK_MS 100

pst_rc pst_control_send(struct pst_stage *self, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a message to the supervisor");
    int sent = zmq_send(self->control, text, strlen(text), ZMQ_DONTWAIT);
    free(text);
    return sent >= 0 ? PST_OK : pst_fail_errno("cannot reach the supervisor");
}

json_t *pst_control_recv(struct pst_stage *self, int timeout_ms)
{
    zmq_pollitem_t item = {.socket = self->control, .events = ZMQ_POLLIN};
    if (timeout_ms != 0 && zmq_poll(&item, 1, timeout_ms) <= 0) {
        errno = EAGAIN;
        return NULL;
    }
    zmq_msg_t msg;
    (void)zmq_msg_init(&msg);
    json_t *j = NULL;
    if (zmq_msg_recv(&msg, self->control, ZMQ_DONTWAIT) >= 0 && zmq_msg_size(&msg) <= PST_CONTROL_MAX_BYTES)
        j = json_loadb(zmq_msg_data(&msg), zmq_msg_size(&msg), 0, NULL);
    (void)zmq_msg_close(&msg);
    return j;
}

const char *pst_control_type(const json_t *message)
{
    const char *type = json_string_value(json_object_get(message, "type"));
    return type ? type : "";
}

/* The next message. NULL, with pst_fail: the supervisor has ended. */
static json_t *await(struct pst_stage *self)
{
    const pid_t supervisor = getppid(); /* 1 in a container, where it is the first process */
    json_t *message = pst_control_recv(self, SUPERVISOR_DEADLINE_MS);
    while (!message && errno == EAGAIN && getppid() == supervisor) /* it lives; other stages may take long */
        message = pst_control_recv(self, SUPERVISOR_DEADLINE_MS);
    if (!message)
        (void)pst_fail(PST_E_PEER, "the supervisor process has ended");
    return message;
}

pst_rc pst_control_expect(struct pst_stage *self, const char *type, json_t **out)
{
    *out = await(self);
    if (!*out)
        return PST_E_PEER;
    const char *found = pst_control_type(*out);
    if (strcmp(found, type) == 0)
        return PST_OK;
    pst_rc rc = PST_E_INTERRUPTED;
    if (strcmp(found, "stop") == 0 || strcmp(found, "finish") == 0)
        self->stopping = true;
    else
        rc = pst_fail(PST_E_PEER, "unexpected message from the supervisor: expected \"%s\", found \"%s\"",
                      type, found);
    json_decref(*out);
    *out = NULL;
    return rc;
}

pst_rc pst_control_await_debugger(struct pst_stage *self, pid_t pid)
{
    json_t *message;
    pst_warn(self, "waiting until a debugger is attached: gdb -p %d", (int)pid);
    for (double until = pst_now() + DEBUGGER_DEADLINE_S; pst_proc_tracer(pid) == 0;) {
        zmq_pollitem_t item = {.socket = self->control, .events = ZMQ_POLLIN};
        if (zmq_poll(&item, 1, DEBUGGER_LOOK_MS) >
            0) /* before the stage has answered, only an end can come */
            return pst_control_expect(self, "open", &message);
        const char state = pst_proc_state(pid, NULL);
        if (state == 0 || state == 'Z')
            return PST_OK;
        if (pst_now() > until)
            return pst_fail(PST_E_TIMEOUT, "no debugger was attached to process %d within %.0f s", (int)pid,
                            DEBUGGER_DEADLINE_S);
    }
    return PST_OK;
}

pst_rc pst_control_epoch(struct pst_stage *self)
{
    if (!self->stops || self->stopping)
        return PST_OK;
    json_t *message = await(self);
    if (!message)
        return PST_E_PEER;
    self->enough = strcmp(pst_control_type(message), "finish") == 0;
    self->stopping = self->enough || strcmp(pst_control_type(message), "stop") == 0;
    json_decref(message);
    return PST_OK;
}
