/* foreign.c: the bridge that hosts a foreign stage: starts its program, leads it through the start-up, tells
 * it of frames and credits, and ends it. It believes nothing that the program says (foreign_hear.c, hand.c):
 * what makes no sense ends the run with an error that names the program. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "common/host/foreign_impl.h"
#include "common/ipc/proc.h"

#define ANSWER_DEADLINE_MS 30000 /* an interpreter that imports large packages from a cold disk */
#define STOP_DEADLINE_MS 500     /* less than the supervisor gives a stage after a failure */
#define LOOK_S 1.0               /* between looks at the program's state */
#define STOPPED_LOOKS 5
#define ALIGN_MAX (1 << 21)
#define HEAR_MAX 1000 /* messages before other events have their turn */

static pst_rc died(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    int status = 0;
    if (waitpid(f->pid, &status, WNOHANG) != f->pid)
        return PST_OK;
    f->pid = 0;
    if (f->done)
        return PST_OK;
    self->program_died = true;
    if (WIFSIGNALED(status))
        return pst_fail(PST_E_PEER, "external program %s was killed by signal %d (%s)", self->caps.file,
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    return pst_fail(PST_E_PEER, "external program %s exited with status %d before the run was finished",
                    self->caps.file, WEXITSTATUS(status));
}

/* A program that closes its socket usually ends at once. */
static pst_rc wait_for_end(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    zmq_pollitem_t item = {.fd = f->pidfd, .events = ZMQ_POLLIN};
    if (f->pid > 0)
        (void)zmq_poll(&item, 1, STOP_DEADLINE_MS);
    return f->pid > 0 ? died(self) : PST_OK;
}

static pst_rc listen_all(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    pst_rc rc = PST_OK;
    zmq_msg_t msg;
    for (int i = 0; i < HEAR_MAX && rc == PST_OK && pst_wire_recv(&f->wire, f->pid, &msg); i++) {
        rc = pst_host_hear(self, zmq_msg_data(&msg), zmq_msg_size(&msg));
        (void)zmq_msg_close(&msg);
    }
    return rc;
}

/* The connection ended before the program was done: a failed send may show this before the monitor does. The
 * program's last words come first, because they may say why. */
static pst_rc disconnected(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    pst_rc rc = listen_all(self);
    if (rc == PST_OK)
        rc = wait_for_end(self);
    return rc != PST_OK || f->done
               ? rc
               : pst_fail(PST_E_PEER, "external program %s closed its socket before it sent \"done\"",
                          self->caps.file);
}

static pst_rc send_json(struct pst_stage *self, json_t *message)
{
    struct pst_host_foreign *f = pst_state(self);
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a message");
    bool sent = pst_wire_send(&f->wire, text, strlen(text));
    free(text);
    return sent ? PST_OK : disconnected(self);
}

static pst_rc send_wire(struct pst_stage *self, enum pst_wire_kind kind, int port,
                        const struct pst_frame *frame)
{
    struct pst_host_foreign *f = pst_state(self);
    union {
        struct pst_wire wire;
        char bytes[sizeof(struct pst_wire) + PST_REFS_MAX * sizeof(struct pst_ref)];
    } out;
    out.wire = (struct pst_wire){.magic = PST_WIRE_MAGIC,
                                 .kind = (uint16_t)kind,
                                 .port = (uint16_t)port,
                                 .batch = frame->batch,
                                 .micro = frame->micro,
                                 .part = frame->part,
                                 .flags = frame->flags,
                                 .nrefs = frame->nrefs,
                                 .arg = {frame->arg[0], frame->arg[1]}};
    size_t refs = frame->nrefs * sizeof(struct pst_ref);
    memcpy(out.bytes + sizeof out.wire, frame->refs, refs);
    return pst_wire_send(&f->wire, out.bytes, sizeof out.wire + refs) ? PST_OK : disconnected(self);
}

/* A program that is stopped (by SIGSTOP or a debugger) will never answer. A busy one will. */
static pst_rc look(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    pid_t pid = f->wire.pid > 0 ? f->wire.pid : f->pid;
    char state = pid > 0 ? pst_proc_state(pid, NULL) : 0;
    f->stopped_looks = self->debug ? 0 : state == 'T' || state == 't' ? f->stopped_looks + 1 : 0;
    if (f->stopped_looks < STOPPED_LOOKS)
        return PST_OK;
    return pst_fail(PST_E_TIMEOUT,
                    "external program %s (process %d) is stopped (by %s), and has been for %.0f s: continue "
                    "it, for example with kill -CONT",
                    self->caps.file, (int)pid, state == 'T' ? "SIGSTOP or SIGTSTP" : "a debugger",
                    LOOK_S * STOPPED_LOOKS);
}

static pst_rc check_connection(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    return pst_wire_is_closed(&f->wire) && !f->done ? disconnected(self) : PST_OK;
}

/* True: *out is the message of this type. False: it was another that may come at any time, or an error. */
static bool is_answer(struct pst_stage *self, zmq_msg_t *msg, const char *type, json_t **out, pst_rc *rc)
{
    const size_t n = zmq_msg_size(msg);
    const char *bytes = zmq_msg_data(msg);
    json_t *j = n <= PST_WIRE_MAX_BYTES && n > 0 && bytes[0] == '{' ? json_loadb(bytes, n, 0, NULL) : NULL;
    const char *got = json_string_value(json_object_get(j, "type"));
    if (got && strcmp(got, type) == 0) {
        *out = j;
        return true;
    }
    *rc = pst_host_hear(self, bytes, n);
    if (*rc != PST_OK && (!got || strcmp(got, "failed") != 0)) {
        char text[1024];
        (void)snprintf(text, sizeof text, "%s", pst_error_text());
        *rc = pst_fail(*rc, "%s; the next message should have been \"%s\"", text, type);
    }
    json_decref(j);
    return false;
}

/* The program's next step, with a deadline. Its death is noticed meanwhile. */
static pst_rc answer(struct pst_stage *self, const char *type, json_t **out)
{
    struct pst_host_foreign *f = pst_state(self);
    *out = NULL;
    double look_at = pst_now() + LOOK_S;
    for (double until = pst_now() + ANSWER_DEADLINE_MS * 1e-3; self->debug || pst_now() < until;) {
        zmq_pollitem_t items[3] = {{.socket = f->wire.socket, .events = ZMQ_POLLIN},
                                   {.socket = f->wire.monitor, .events = ZMQ_POLLIN},
                                   {.fd = f->pidfd, .events = ZMQ_POLLIN}};
        const int ready = zmq_poll(items, 3, 100);
        zmq_msg_t msg;
        pst_rc rc = PST_OK;
        if (ready > 0 && items[0].revents && pst_wire_recv(&f->wire, f->pid, &msg)) {
            const bool found = is_answer(self, &msg, type, out, &rc);
            (void)zmq_msg_close(&msg);
            if (found || rc != PST_OK)
                return rc;
            continue; /* there may be more before its end */
        }
        if (ready > 0 && items[2].revents)
            rc = died(self);
        if (rc == PST_OK && ready > 0 && items[1].revents)
            rc = check_connection(self);
        if (rc == PST_OK && pst_now() >= look_at) {
            look_at += LOOK_S;
            rc = look(self);
        }
        if (rc != PST_OK)
            return rc;
    }
    return pst_fail(PST_E_TIMEOUT, "external program %s did not send \"%s\" within %d s", self->caps.file,
                    type, ANSWER_DEADLINE_MS / 1000);
}

/* SIGINT, SIGTERM and SIGHUP stay ignored: the bridge tells the program when to end. */
static pst_rc spawn(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    pid_t parent = getpid();
    f->pid = fork();
    if (f->pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
            setenv(PST_WIRE_ENV, f->wire.endpoint, 1) != 0 ||
            (f->wire.curve && setenv(PST_WIRE_KEYS_ENV, f->wire.keys, 1) != 0))
            _exit(126);
        (void)signal(SIGPIPE, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        execl(self->caps.file, self->caps.file, (char *)NULL);
        fprintf(stderr, "cannot run %s: %s\n", self->caps.file, strerror(errno));
        _exit(127);
    }
    if (f->pid < 0)
        return pst_fail_errno("cannot start external program %s", self->caps.file);
    f->pidfd = (int)syscall(SYS_pidfd_open, f->pid, 0);
    return f->pidfd >= 0 ? PST_OK : pst_fail_errno("cannot watch external program %s", self->caps.file);
}

/* [{"port": NAME, "bytes": N, "align": N}] */
static pst_rc take_needs(struct pst_stage *self, const json_t *needs)
{
    size_t i;
    json_t *need;
    if (!json_is_array(needs))
        return pst_fail(PST_E_PEER, "external program %s sent \"sized\" without the array \"needs\"",
                        self->caps.file);
    json_array_foreach((json_t *)(uintptr_t)needs, i, need)
    {
        const char *port = json_string_value(json_object_get(need, "port"));
        const json_t *bytes = json_object_get(need, "bytes"), *align = json_object_get(need, "align");
        const json_int_t n = json_integer_value(bytes), a = json_integer_value(align);
        const int p = port ? pst_desc_port(&self->desc, port) : -1;
        if (p < 0 || !json_is_integer(bytes) || n < 0)
            return pst_fail(PST_E_PEER,
                            "external program %s sent \"sized\", but needs[%zu] lacks \"port\" (the name of "
                            "a port) or \"bytes\" (a whole number)",
                            self->caps.file, i);
        if ((align && !json_is_integer(align)) || a < 0 || a > ALIGN_MAX || (a & (a - 1)) != 0)
            return pst_fail(PST_E_PEER,
                            "external program %s sent \"sized\", but needs[%zu].align is wrong: expected a "
                            "power of two from 1 to %d",
                            self->caps.file, i, ALIGN_MAX);
        pst_need(self, p, (uint64_t)n, a > 0 ? (uint64_t)a : PST_CACHE_LINE);
    }
    return PST_OK;
}

/* What the program may know of its "configure" message. */
static json_t *size_message(const struct pst_stage *self)
{
    static const char *const keys[] = {"params", "dataset",  "run_dir",     "resume",   "seed",
                                       "epochs", "device",   "start_batch", "instance", "instances",
                                       "linked", "identity", "replica",     "replicas", "dataset_digest"};
    json_t *message = json_pack("{ss ss sO}", "type", "size", "name", self->name, "oneshots",
                                self->oneshots ? self->oneshots : json_null());
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(self->config, keys[i]))
            (void)json_object_set(message, keys[i], json_object_get(self->config, keys[i]));
    return message;
}

static pst_rc foreign_size(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    f->pidfd = -1;
    const char *endpoint = json_string_value(json_object_get(self->config, "endpoint"));
    if (!endpoint)
        return pst_fail(PST_E_PEER,
                        "the supervisor's \"configure\" message lacks the endpoint of the external program: "
                        "install penstock and penstock-stage from the same build");
    pst_rc rc = pst_wire_open(&f->wire, self->process->zmq, endpoint);
    if (rc == PST_OK)
        rc = spawn(self);
    if (rc == PST_OK && self->debug_wait)
        rc = pst_control_await_debugger(self, f->pid);
    json_t *reply = NULL;
    if (rc == PST_OK)
        rc = answer(self, "hello", &reply);
    if (rc == PST_OK && json_integer_value(json_object_get(reply, "protocol")) != PST_WIRE_PROTOCOL)
        rc = pst_fail(PST_E_UNSUPPORTED,
                      "external program %s does not speak version %d of the wire protocol, which this "
                      "Penstock uses: update the program",
                      self->caps.file, PST_WIRE_PROTOCOL);
    json_decref(reply);
    json_t *message = size_message(self);
    if (rc == PST_OK)
        rc = send_json(self, json_incref(message));
    json_decref(message);
    if (rc == PST_OK)
        rc = answer(self, "sized", &reply);
    if (rc != PST_OK)
        return rc;
    rc = take_needs(self, json_object_get(reply, "needs"));
    json_decref(reply);
    return rc;
}

static pst_rc foreign_open(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    json_t *routes = json_array();
    for (int i = 0; i < self->nroutes; i++) {
        const struct pst_host_route_end *r = &self->routes[i];
        for (int g = 0; g < self->nregions; g++) {
            char *base = self->regions[g].base;
            if (r->base < base || r->base >= base + self->regions[g].bytes)
                continue;
            const json_t *region = json_array_get(json_object_get(self->config, "regions"), (size_t)g);
            (void)json_array_append_new(
                routes, json_pack("{si ss ss sI sI si sI}", "id", (int)r->id, "port",
                                  self->desc.ports[r->via_port].name, "path",
                                  json_string_value(json_object_get(region, "path")), "region_bytes",
                                  (json_int_t)self->regions[g].bytes, "offset", (json_int_t)(r->base - base),
                                  "slots", (int)r->slots, "slot_bytes", (json_int_t)r->slot_bytes));
            break;
        }
    }
    pst_rc rc = send_json(self, json_pack("{ss so}", "type", "open", "routes", routes));
    f->open = true;
    json_t *reply = NULL;
    if (rc == PST_OK)
        rc = answer(self, "ready", &reply);
    json_decref(reply);
    self->sockets[0] = f->wire.socket;
    self->sockets[1] = f->wire.monitor;
    self->keep_alive = 1; /* until the program says that it is done */
    pst_timer(self, (int64_t)(LOOK_S * 1e6));
    return rc == PST_OK ? pst_watch(self, f->pidfd) : rc;
}

/* ---- while it runs ------------------------------------------------------------------------------- */

/* Tells the program that the run ends, and hears its last reports while it writes a checkpoint. Slots no
 * longer matter. A program that asked for no time gets what foreign_close gives it. */
static pst_rc finish(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    pst_rc rc = send_json(self, json_pack("{ss}", "type", "finish"));
    const double until = pst_now() + f->patience_ms * 1e-3;
    bool ended = f->done || f->pid <= 0;
    while (rc == PST_OK && !ended && pst_now() < until) {
        zmq_pollitem_t items[2] = {{.socket = f->wire.socket, .events = ZMQ_POLLIN},
                                   {.fd = f->pidfd, .events = ZMQ_POLLIN}};
        (void)zmq_poll(items, 2, 100);
        ended = items[1].revents != 0; /* what it sent before comes first */
        zmq_msg_t msg;
        while (rc == PST_OK && pst_wire_recv(&f->wire, f->pid, &msg)) {
            if (zmq_msg_size(&msg) > 0 && *(const char *)zmq_msg_data(&msg) == '{')
                rc = pst_host_hear(self, zmq_msg_data(&msg), zmq_msg_size(&msg));
            (void)zmq_msg_close(&msg);
        }
        ended = ended || f->done;
    }
    return rc;
}

static pst_rc foreign_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct pst_host_foreign *f = pst_state(self);
    struct pst_frame frame = {0};
    pst_rc rc = PST_OK;
    switch (ev->kind) {
    case PST_EV_START: f->started = true; return send_json(self, json_pack("{ss}", "type", "start"));
    case PST_EV_FRAME:
        rc = pst_host_hand_frame(self, &f->hand, ev->port, ev->frame);
        return rc == PST_OK ? send_wire(self, PST_WIRE_FRAME, ev->port, ev->frame) : rc;
    case PST_EV_CREDIT:
        frame = (struct pst_frame){.batch = ev->credit.batch,
                                   .micro = ev->credit.micro,
                                   .nrefs = 1,
                                   .refs = {ev->credit.ref},
                                   .arg = {ev->credit.version, ev->credit.dirty}};
        rc = pst_host_hand_credit(self, &f->hand, ev->port, &ev->credit);
        return rc == PST_OK ? send_wire(self, PST_WIRE_CREDIT, ev->port, &frame) : rc;
    case PST_EV_RETURN:
        frame = (struct pst_frame){.batch = ev->credit.batch,
                                   .nrefs = 1,
                                   .refs = {ev->credit.ref},
                                   .arg = {ev->credit.version, ev->credit.dirty}};
        return send_wire(self, PST_WIRE_RETURN, ev->port, &frame);
    case PST_EV_END: return send_wire(self, PST_WIRE_END, ev->port, &frame);
    case PST_EV_FINISH: return finish(self);
    case PST_EV_FD:
        rc = listen_all(self); /* first: its last words may say why it ended */
        if (rc == PST_OK && ev->fd == f->pidfd) {
            rc = died(self);
            self->nfds = 0;
        }
        return rc == PST_OK ? check_connection(self) : rc;
    case PST_EV_TIMER:
        if (!f->done)
            pst_timer(self, (int64_t)(LOOK_S * 1e6));
        return f->done ? PST_OK : look(self);
    }
    return PST_OK;
}

static void foreign_close(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    if (f->pid > 0) {
        if (f->wire.known && send_json(self, json_pack("{ss}", "type", "stop")) != PST_OK)
            pst_log(self, "%s", pst_error_text());
        double until = f->wire.known ? pst_now() + STOP_DEADLINE_MS * 1e-3 : 0;
        while (f->pid > 0 && pst_now() < until) {
            zmq_pollitem_t item = {.fd = f->pidfd, .events = ZMQ_POLLIN};
            (void)zmq_poll(&item, 1, 50);
            if (waitpid(f->pid, NULL, WNOHANG) == f->pid)
                f->pid = 0;
        }
        if (f->pid > 0) {
            (void)kill(f->pid, SIGKILL);
            (void)waitpid(f->pid, NULL, 0);
        }
    }
    self->sockets[0] = self->sockets[1] = NULL;
    pst_host_hand_free(&f->hand);
    if (f->pidfd >= 0)
        (void)close(f->pidfd);
    pst_wire_close(&f->wire, self->process->zmq);
}

struct pst_stage_desc pst_host_foreign_desc(const struct pst_stage_desc *described)
{
    struct pst_stage_desc desc = *described;
    desc.state_bytes = sizeof(struct pst_host_foreign);
    desc.size = foreign_size;
    desc.open = foreign_open;
    desc.on_event = foreign_event;
    desc.close = foreign_close;
    return desc;
}
