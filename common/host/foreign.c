/* foreign.c: the bridge that hosts a foreign stage. It does for the program what the host does for a
 * native stage, and believes nothing that the program says: slots it does not hold, ports it does not
 * have and messages that are none end the run with an error that names it. */
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

#include "common/pipeline/builtin.h"
#include "common/host/host_impl.h"
#include "common/ipc/proc.h"
#include "common/wire.h"
#include "common/host/wire_socket.h"

#define ANSWER_DEADLINE_MS 30000 /* an interpreter that imports large packages from a cold disk */
#define STOP_DEADLINE_MS 500     /* below the time that the supervisor leaves a stage after a failure */
#define LOOK_S 1.0               /* between looks at the program's state */
#define STOPPED_LOOKS 5
#define HEAR_MAX 1000 /* messages before other events have their turn */

struct foreign {
    struct pst_wire_socket wire;
    pid_t pid;
    int pidfd;
    int stopped_looks; /* in a row that found it stopped */
    bool done;
};

static pst_rc died(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
    int status = 0;
    if (waitpid(f->pid, &status, WNOHANG) != f->pid)
        return PST_OK;
    f->pid = 0;
    if (f->done)
        return PST_OK;
    self->program_died = true;
    if (WIFSIGNALED(status))
        return pst_fail(PST_E_PEER, "its program %s died of signal %d (%s)", self->caps.file,
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    return pst_fail(PST_E_PEER, "its program %s ended early, with status %d", self->caps.file,
                    WEXITSTATUS(status));
}

/* A message could not be sent: most likely because the program has just ended. */
static pst_rc unreachable(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
    zmq_pollitem_t item = {.fd = f->pidfd, .events = ZMQ_POLLIN};
    (void)zmq_poll(&item, 1, STOP_DEADLINE_MS);
    pst_rc rc = f->pid > 0 ? died(self) : PST_OK;
    return rc != PST_OK || f->done ? rc
                                   : pst_fail(PST_E_PEER, "its program %s does not listen", self->caps.file);
}

static pst_rc send_json(struct pst_stage *self, json_t *message)
{
    struct foreign *f = pst_state(self);
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text)
        return pst_fail(PST_E_NOMEM, "%s: out of memory for a message", self->name);
    bool sent = pst_wire_send(&f->wire, text, strlen(text));
    free(text);
    return sent ? PST_OK : unreachable(self);
}

static pst_rc send_wire(struct pst_stage *self, enum pst_wire_kind kind, int port,
                        const struct pst_frame *frame)
{
    struct foreign *f = pst_state(self);
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
    return pst_wire_send(&f->wire, out.bytes, sizeof out.wire + refs) ? PST_OK : unreachable(self);
}

/* A program that is stopped (SIGSTOP, a debugger) will never answer; one that is busy will. */
static pst_rc look(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
    pid_t pid = f->wire.pid > 0 ? f->wire.pid : f->pid;
    char state = pid > 0 ? pst_proc_state(pid, NULL) : 0;
    f->stopped_looks = self->debug ? 0 : state == 'T' || state == 't' ? f->stopped_looks + 1 : 0;
    if (f->stopped_looks < STOPPED_LOOKS)
        return PST_OK;
    return pst_fail(PST_E_TIMEOUT, "its program %s (process %d) is stopped (by %s) and has been for %.0f s",
                    self->caps.file, (int)pid, state == 'T' ? "SIGSTOP or SIGTSTP" : "a debugger",
                    LOOK_S * STOPPED_LOOKS);
}

/* The message must be of this type. */
static pst_rc expect_type(struct pst_stage *self, zmq_msg_t *msg, const char *type, json_t **out)
{
    *out = zmq_msg_size(msg) <= PST_WIRE_MAX_BYTES ? json_loadb(zmq_msg_data(msg), zmq_msg_size(msg), 0, NULL)
                                                   : NULL;
    const char *got = json_string_value(json_object_get(*out, "type"));
    if (got && strcmp(got, type) == 0)
        return PST_OK;
    const char *text = json_string_value(json_object_get(*out, "text"));
    pst_rc rc =
        pst_fail(PST_E_PEER, "its program %s answered %.40s%s%.1000s, expected %s", self->caps.file,
                 got ? got : "something that is no message", text ? ": " : "", text ? text : "", type);
    json_decref(*out);
    *out = NULL;
    return rc;
}

/* One message with a deadline; the program's death and the end of the run are noticed while waiting. */
static pst_rc answer(struct pst_stage *self, const char *type, json_t **out)
{
    struct foreign *f = pst_state(self);
    *out = NULL;
    double look_at = pst_now() + LOOK_S;
    for (double until = pst_now() + ANSWER_DEADLINE_MS * 1e-3; self->debug || pst_now() < until;) {
        zmq_pollitem_t items[2] = {{.socket = f->wire.socket, .events = ZMQ_POLLIN},
                                   {.fd = f->pidfd, .events = ZMQ_POLLIN}};
        int ready = zmq_poll(items, 2, 100);
        zmq_msg_t msg;
        if (ready > 0 && items[0].revents && pst_wire_recv(&f->wire, f->pid, &msg)) {
            pst_rc rc = expect_type(self, &msg, type, out);
            (void)zmq_msg_close(&msg);
            return rc;
        }
        pst_rc rc = ready > 0 && items[1].revents ? died(self) : PST_OK;
        if (rc == PST_OK && pst_now() >= look_at) {
            look_at += LOOK_S;
            rc = look(self);
        }
        if (rc != PST_OK)
            return rc;
    }
    return pst_fail(PST_E_TIMEOUT, "its program %s did not say \"%s\" in %d s", self->caps.file, type,
                    ANSWER_DEADLINE_MS / 1000);
}

/* SIGINT, SIGTERM and SIGHUP stay ignored: the program is told when to end, as every stage is. */
static pst_rc spawn(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
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
        return pst_fail_errno("fork");
    f->pidfd = (int)syscall(SYS_pidfd_open, f->pid, 0);
    return f->pidfd >= 0 ? PST_OK : pst_fail_errno("pidfd_open");
}

static pst_rc foreign_size(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
    f->pidfd = -1;
    const char *endpoint = json_string_value(json_object_get(self->config, "endpoint"));
    if (!endpoint)
        return pst_fail(PST_E_PEER, "%s: configure lacks the program's endpoint", self->name);
    pst_rc rc = pst_wire_open(&f->wire, self->process->zmq, endpoint);
    if (rc == PST_OK)
        rc = spawn(self);
    json_t *reply = NULL;
    if (rc == PST_OK)
        rc = answer(self, "hello", &reply);
    if (rc == PST_OK && json_integer_value(json_object_get(reply, "protocol")) != PST_WIRE_PROTOCOL)
        rc = pst_fail(PST_E_UNSUPPORTED, "its program %s speaks another protocol than %d", self->caps.file,
                      PST_WIRE_PROTOCOL);
    json_decref(reply);
    json_t *message = json_copy(self->config);
    (void)json_object_set_new(message, "type", json_string("size"));
    (void)json_object_set_new(message, "name", json_string(self->name));
    (void)json_object_set(message, "oneshots", self->oneshots ? self->oneshots : json_null());
    if (rc == PST_OK)
        rc = send_json(self, json_incref(message));
    json_decref(message);
    if (rc == PST_OK)
        rc = answer(self, "sized", &reply);
    if (rc != PST_OK)
        return rc;
    size_t i;
    json_t *need;
    json_array_foreach(json_object_get(reply, "needs"), i, need)
    {
        const char *port = json_string_value(json_object_get(need, "port"));
        json_int_t bytes = json_integer_value(json_object_get(need, "bytes"));
        json_int_t align = json_integer_value(json_object_get(need, "align"));
        int p = port ? pst_desc_port(&self->desc, port) : -1;
        if (p < 0 || bytes < 0 || align < 0 || align > (1 << 21) || (align & (align - 1)) != 0) {
            rc = pst_fail(PST_E_PEER, "its program %s asks for a slot that makes no sense", self->caps.file);
            break;
        }
        pst_need(self, p, (uint64_t)bytes, align > 0 ? (uint64_t)align : PST_CACHE_LINE);
    }
    json_decref(reply);
    return rc;
}

static pst_rc foreign_open(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
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
    json_t *reply = NULL;
    if (rc == PST_OK)
        rc = answer(self, "ready", &reply);
    json_decref(reply);
    self->socket = f->wire.socket;
    self->keep_alive = 1; /* until the program says that it is done */
    pst_timer(self, (int64_t)(LOOK_S * 1e6));
    return rc == PST_OK ? pst_watch(self, f->pidfd) : rc;
}

/* ---- what the program says ----------------------------------------------------------------------- */

static pst_rc heard_json(struct pst_stage *self, const char *bytes, size_t n)
{
    struct foreign *f = pst_state(self);
    json_t *m = json_loadb(bytes, n, 0, NULL);
    const char *type = json_string_value(json_object_get(m, "type"));
    const char *text = json_string_value(json_object_get(m, "text"));
    const char *port_name = json_string_value(json_object_get(m, "port"));
    int port = port_name ? pst_desc_port(&self->desc, port_name) : -1;
    pst_rc rc = PST_OK;
    if (!type) {
        rc = pst_fail(PST_E_PEER, "its program %s sent something that is no message", self->caps.file);
    } else if (strcmp(type, "done") == 0) {
        f->done = true;
        self->keep_alive = 0;
        self->timer_at = 0;
    } else if (strcmp(type, "failed") == 0) {
        rc = pst_fail(PST_E_PEER, "%s", text ? text : "its program failed without a word");
    } else if (strcmp(type, "log") == 0) {
        pst_log(self, "%s", text ? text : "");
    } else if (strcmp(type, "warning") == 0) {
        pst_warn(self, "%s", text ? text : "");
    } else if (strcmp(type, "report") == 0) {
        const char *section = json_string_value(json_object_get(m, "section"));
        json_t *data = json_object_get(m, "data");
        rc = section && json_is_object(data)
                 ? pst_control_send(
                       self, json_pack("{ss ss sO}", "type", "report", "section", section, "data", data))
                 : pst_fail(PST_E_PEER, "its program %s reported without a section or data", self->caps.file);
    } else if (strcmp(type, "total") == 0 && port >= 0 && self->desc.ports[port].dir == PST_OUT &&
               !self->desc.ports[port].forwards) {
        pst_total(self, port, (uint64_t)json_integer_value(json_object_get(m, "batches")));
    } else if (strcmp(type, "publish") == 0 && port >= 0 && json_string_value(json_object_get(m, "path"))) {
        rc = pst_publish(self, port, json_string_value(json_object_get(m, "path")));
    } else {
        rc = pst_fail(PST_E_PEER, "its program %s sent a message \"%.40s\" that makes no sense here",
                      self->caps.file, type);
    }
    json_decref(m);
    return rc;
}

static pst_rc heard_wire(struct pst_stage *self, const char *bytes, size_t n)
{
    struct pst_wire w;
    struct pst_frame frame = {0};
    if (n >= sizeof w)
        memcpy(&w, bytes, sizeof w);
    if (n < sizeof w || w.magic != PST_WIRE_MAGIC || w.nrefs > PST_REFS_MAX ||
        n != sizeof w + w.nrefs * sizeof(struct pst_ref) || w.port >= pst_desc_ports(&self->desc))
        return pst_fail(PST_E_PEER, "its program %s sent %zu bytes that are no message", self->caps.file, n);
    const struct pst_port_desc *port = &self->desc.ports[w.port];
    frame = (struct pst_frame){.batch = w.batch,
                               .micro = w.micro,
                               .part = w.part,
                               .flags = w.flags,
                               .nrefs = w.nrefs,
                               .arg = {w.arg[0], w.arg[1]}};
    memcpy(frame.refs, bytes + sizeof w, w.nrefs * sizeof(struct pst_ref));
    pst_rc rc = PST_OK;
    switch (w.kind) {
    case PST_WIRE_FRAME:
        if (port->dir != PST_OUT || (port->flags & PST_PORT_ONESHOT))
            return pst_fail(PST_E_PEER, "its program %s sent a frame through input %s", self->caps.file,
                            port->name);
        return pst_send(self, w.port, &frame);
    case PST_WIRE_RELEASE:
        for (uint32_t i = 0; i < w.nrefs && rc == PST_OK; i++)
            rc = pst_release(self, frame.refs[i], (w.flags & 1) != 0);
        return rc;
    case PST_WIRE_COUNT: pst_count(self, w.arg[0], w.arg[1]); return PST_OK;
    default: return pst_fail(PST_E_PEER, "its program %s sent a message of kind %u", self->caps.file, w.kind);
    }
}

static pst_rc listen_all(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
    pst_rc rc = PST_OK;
    zmq_msg_t msg;
    for (int i = 0; i < HEAR_MAX && rc == PST_OK && pst_wire_recv(&f->wire, f->pid, &msg); i++) {
        const char *bytes = zmq_msg_data(&msg);
        size_t n = zmq_msg_size(&msg);
        if (n > PST_WIRE_MAX_BYTES)
            rc = pst_fail(PST_E_PEER, "its program %s sent a message of %zu bytes, at most %d are allowed",
                          self->caps.file, n, PST_WIRE_MAX_BYTES);
        else
            rc = n > 0 && bytes[0] == '{' ? heard_json(self, bytes, n) : heard_wire(self, bytes, n);
        (void)zmq_msg_close(&msg);
    }
    return rc;
}

static pst_rc foreign_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct foreign *f = pst_state(self);
    struct pst_frame frame = {0};
    pst_rc rc = PST_OK;
    switch (ev->kind) {
    case PST_EV_START: return send_json(self, json_pack("{ss}", "type", "start"));
    case PST_EV_FRAME: return send_wire(self, PST_WIRE_FRAME, ev->port, ev->frame);
    case PST_EV_CREDIT:
        frame = (struct pst_frame){.batch = ev->credit.batch,
                                   .micro = ev->credit.micro,
                                   .nrefs = 1,
                                   .refs = {ev->credit.ref},
                                   .arg = {ev->credit.version, ev->credit.dirty}};
        return send_wire(self, PST_WIRE_CREDIT, ev->port, &frame);
    case PST_EV_END: return send_wire(self, PST_WIRE_END, ev->port, &frame);
    case PST_EV_FINISH: return send_json(self, json_pack("{ss}", "type", "finish"));
    case PST_EV_FD:
        rc = listen_all(self); /* first: its last words may say why it ended */
        if (rc == PST_OK && ev->fd == f->pidfd) {
            rc = died(self);
            self->nfds = 0;
        }
        return rc;
    case PST_EV_TIMER:
        if (!f->done)
            pst_timer(self, (int64_t)(LOOK_S * 1e6));
        return f->done ? PST_OK : look(self);
    }
    return PST_OK;
}

static void foreign_close(struct pst_stage *self)
{
    struct foreign *f = pst_state(self);
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
    self->socket = NULL;
    if (f->pidfd >= 0)
        (void)close(f->pidfd);
    pst_wire_close(&f->wire, self->process->zmq);
}

struct pst_stage_desc pst_foreign_desc(const struct pst_stage_desc *described)
{
    struct pst_stage_desc desc = *described;
    desc.state_bytes = sizeof(struct foreign);
    desc.size = foreign_size;
    desc.open = foreign_open;
    desc.on_event = foreign_event;
    desc.close = foreign_close;
    return desc;
}
