/* host.c: the life of one stage: hello, configure, size, open, run, close, done. */
#include "common/host/host.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/pipeline/desc/builtin.h"
#include "common/ipc/gpus.h"
#include "common/util/clock.h"
#include "common/host/handover.h"

#define IDLE_POLL_MS 250 /* the longest sleep: a wake that is lost costs no more than this */
#define ACK_DEADLINE_MS 5000
#define INBOX_MAX_BYTES 64 /* a wake is empty */
#define WAKES_MAX 10000    /* read at a time: a flood of them must not keep the stage from its work */

/* ---- events -------------------------------------------------------------------------------------- */

pst_rc pst_host_deliver(struct pst_stage *self, const struct pst_event *event)
{
    if (self->enough && event->kind == PST_EV_FRAME)
        return pst_fail(
            PST_E_INTERRUPTED,
            "the run stops after the epoch that has just ended, so the stage gets no more batches");
    const uint64_t t0 = pst_clock_ns();
    pst_rc rc = self->desc.on_event(self, event);
    pst_trace_event(self, event, t0, pst_clock_ns());
    return rc;
}

static pst_rc finish(struct pst_stage *self)
{
    self->finishing = self->stopping = true;
    struct pst_event event = {.kind = PST_EV_FINISH};
    return pst_host_deliver(self, &event);
}

static void read_control(struct pst_stage *self, pst_rc *rc)
{
    json_t *message = pst_control_recv(self, 0);
    if (!message)
        return;
    if (strcmp(pst_control_type(message), "stop") == 0) {
        self->stopping = true;
    } else if (strcmp(pst_control_type(message), "finish") == 0 && !self->finishing) {
        *rc = finish(self);
    }
    json_decref(message);
}

static void drain_inbox(struct pst_stage *self)
{
    char byte;
    for (int n = 0; n < WAKES_MAX && zmq_recv(self->inbox, &byte, 1, ZMQ_DONTWAIT) >= 0; n++)
        ;
}

/* What the stage waits for while it sleeps. A foreign stage's program works while the bridge sleeps. */
static enum pst_page_state sleep_state(struct pst_stage *self)
{
    if (self->working > 0)
        return PST_PAGE_BUSY;
    if (self->in_flight > 0)
        return PST_PAGE_WAITS_DISK;
    if (self->caps.foreign && pst_ports_have_work(self))
        return PST_PAGE_BUSY;
    return pst_ports_starved(self) ? PST_PAGE_WAITS_CREDIT : PST_PAGE_WAITS_INPUT;
}

/* Waits at most timeout_ms for whatever can wake the stage. True: an event was delivered. */
static bool poll_all(struct pst_stage *self, long timeout_ms, pst_rc *rc)
{
    zmq_pollitem_t items[PST_HOST_FDS_MAX + 4] = {{.socket = self->inbox, .events = ZMQ_POLLIN},
                                                  {.socket = self->control, .events = ZMQ_POLLIN}};
    int n = 2;
    for (int i = 0; i < self->nfds; i++)
        items[n++] = (zmq_pollitem_t){.fd = self->fds[i], .events = ZMQ_POLLIN};
    for (int i = 0; i < 2; i++)
        if (self->sockets[i])
            items[n++] = (zmq_pollitem_t){.socket = self->sockets[i], .events = ZMQ_POLLIN};
    double now = pst_now();
    if (self->timer_at > 0 && timeout_ms != 0) {
        double left = (self->timer_at - now) * 1e3;
        timeout_ms = left < 0 ? 0 : left < (double)timeout_ms ? (long)left + 1 : timeout_ms;
    }
    if (timeout_ms != 0) {
        pst_trace_sleep(self);
        (void)pst_page_enter(self->page, sleep_state(self));
    }
    int ready = zmq_poll(items, n, timeout_ms);
    if (timeout_ms != 0)
        (void)pst_page_enter(self->page, PST_PAGE_BUSY);
    bool any = false;
    if (ready > 0 && (items[0].revents & ZMQ_POLLIN))
        drain_inbox(self);
    if (ready > 0 && (items[1].revents & ZMQ_POLLIN))
        read_control(self, rc);
    if (self->stopping) /* no event follows the end, not even one that came with it */
        return true;
    for (int i = 2; ready > 0 && i < n && *rc == PST_OK; i++)
        if (items[i].revents & ZMQ_POLLIN) {
            struct pst_event event = {.kind = PST_EV_FD, .fd = items[i].socket ? -1 : items[i].fd};
            *rc = pst_host_deliver(self, &event);
            any = true;
        }
    if (*rc == PST_OK && self->timer_at > 0 && pst_now() >= self->timer_at) {
        self->timer_at = 0;
        struct pst_event event = {.kind = PST_EV_TIMER};
        *rc = pst_host_deliver(self, &event);
        any = true;
    }
    return any;
}

static bool finished(struct pst_stage *self)
{
    return self->in_flight == 0 && self->working == 0 && self->keep_alive == 0 && self->timer_at <= 0 &&
           pst_ports_finished(self);
}

static pst_rc run_loop(struct pst_stage *self)
{
    pst_rc rc = PST_OK;
    struct pst_event start = {.kind = PST_EV_START};
    (void)pst_page_enter(self->page, PST_PAGE_BUSY);
    rc = pst_host_deliver(self, &start);
    bool polls = self->nfds > 0 || self->sockets[0];
    while (rc == PST_OK && !self->stopping) {
        bool any = pst_ports_step(self, &rc);
        if (rc == PST_OK && (polls || self->timer_at > 0))
            any = poll_all(self, 0, &rc) || any;
        else if (rc == PST_OK)
            read_control(self, &rc);
        if (rc != PST_OK || self->stopping || finished(self))
            break;
        if (any)
            continue;
        /* Says that it sleeps, then looks once more: a sender either sees the flag or is seen. */
        (void)atomic_exchange_explicit(&self->page->sleeping, 1, memory_order_acq_rel);
        if (!pst_ports_step(self, &rc) && rc == PST_OK && !finished(self))
            (void)poll_all(self, IDLE_POLL_MS, &rc);
        atomic_store_explicit(&self->page->sleeping, 0, memory_order_relaxed);
    }
    if (self->enough && (rc == PST_OK || rc == PST_E_INTERRUPTED))
        rc = finish(self);
    if (rc == PST_OK && !self->stopping)
        rc = pst_ports_end(self);
    pst_trace_sleep(self);
    pst_page_leave(self->page);
    return rc;
}

/* ---- start-up ------------------------------------------------------------------------------------ */

static pst_rc connect_control(struct pst_stage *self, const char *endpoint)
{
    int zero = 0, linger = ACK_DEADLINE_MS;
    (void)snprintf(self->control_endpoint, sizeof self->control_endpoint, "%s", endpoint);
    self->control = zmq_socket(self->process->zmq, ZMQ_DEALER);
    self->inbox = zmq_socket(self->process->zmq, ZMQ_PULL);
    if (!self->control || !self->inbox)
        return pst_fail_errno("cannot create sockets");
    if (zmq_setsockopt(self->control, ZMQ_ROUTING_ID, self->name, strlen(self->name)) != 0 ||
        zmq_setsockopt(self->control, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        zmq_setsockopt(self->inbox, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_connect(self->control, endpoint) != 0)
        return pst_fail_errno("cannot reach the supervisor at %s", endpoint);
    return pst_control_send(
        self, json_pack("{ss si si}", "type", "hello", "pid", (int)getpid(), "protocol", PST_WIRE_PROTOCOL));
}

static pst_rc set_cores(const char *cores)
{
    if (!cores || !cores[0])
        return PST_OK;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const char *at = cores; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long c = first; c <= last && c < CPU_SETSIZE; c++)
            CPU_SET((size_t)c, &set);
        at = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            break;
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return pst_fail_errno("cannot bind this process to CPU cores %s", cores);
    return PST_OK;
}

static pst_rc configure(struct pst_stage *self)
{
    pst_rc rc = pst_control_expect(self, "configure", &self->config);
    if (rc != PST_OK)
        return rc;
    const json_t *c = self->config;
    const char *run = json_string_value(json_object_get(c, "run"));
    const char *base = json_string_value(json_object_get(c, "base_dir"));
    const char *inbox = json_string_value(json_object_get(c, "inbox"));
    if (!run || !inbox)
        return pst_fail(PST_E_PEER, "the supervisor's \"configure\" message lacks \"run\" or \"inbox\": "
                                    "install penstock and penstock-stage from the same build");
    rc = pst_caps_load_tried(&self->caps, run, base);
    if (rc != PST_OK)
        return rc;
    self->desc = self->caps.foreign                                 ? pst_host_foreign_desc(self->caps.desc)
                 : self->caps.desc == pst_builtin(PST_BUILTIN_COPY) ? pst_host_copy_desc(self->caps.desc)
                                                                    : *self->caps.desc;
    self->params = json_object_get(c, "params");
    self->debug = json_is_true(json_object_get(c, "debug"));
    self->debug_wait = json_is_true(json_object_get(c, "debug_wait"));
    self->instance = (int)json_integer_value(json_object_get(c, "instance"));
    self->instances = (int)json_integer_value(json_object_get(c, "instances"));
    self->replica = (int)json_integer_value(json_object_get(c, "replica"));
    self->replicas = (int)json_integer_value(json_object_get(c, "replicas"));
    self->seed = (uint64_t)json_integer_value(json_object_get(c, "seed"));
    self->epochs = json_integer_value(json_object_get(c, "epochs"));
    self->stops = json_is_true(json_object_get(c, "stops"));
    self->overlap = json_is_true(json_object_get(c, "overlap"));
    self->bus_bytes_per_s = json_number_value(json_object_get(c, "bus_bytes_per_s"));
    self->start_batch = (uint64_t)json_integer_value(json_object_get(c, "start_batch"));
    self->stop_batch = (uint64_t)json_integer_value(json_object_get(c, "stop_batch"));
    self->state = calloc(1, self->desc.state_bytes ? self->desc.state_bytes : 1);
    if (!self->state || self->instances < 1 || self->replicas < 1 || self->replicas > PST_REPLICAS_MAX)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of the stage");
    pst_desc_bind(&self->desc, self->params, self->state);
    uid_t uid = geteuid();
    int64_t most = INBOX_MAX_BYTES;
    if (zmq_setsockopt(self->inbox, ZMQ_MAXMSGSIZE, &most, sizeof most) != 0 ||
        zmq_setsockopt(self->inbox, ZMQ_IPC_FILTER_UID, &uid, sizeof uid) != 0 ||
        zmq_bind(self->inbox, inbox) != 0)
        return pst_fail_errno("cannot listen at %s", inbox);
    if (json_is_true(json_object_get(c, "trace")))
        rc = pst_trace_open(&self->trace);
    return rc == PST_OK ? set_cores(json_string_value(json_object_get(c, "cores"))) : rc;
}

static pst_rc size(struct pst_stage *self)
{
    json_t *message;
    pst_rc rc = pst_control_expect(self, "size", &message);
    if (rc != PST_OK)
        return rc;
    self->oneshots = json_incref(json_object_get(message, "oneshots"));
    json_decref(message);
    if (self->debug_wait && !self->caps.foreign)
        rc = pst_control_await_debugger(self, getpid());
    if (rc != PST_OK)
        return rc;
    self->needs = json_array();
    self->sized = true;
    if (self->desc.size)
        rc = self->desc.size(self);
    if (rc != PST_OK)
        return rc;
    rc = pst_control_send(self, json_pack("{ss so}", "type", "sized", "needs", self->needs));
    self->needs = NULL;
    return rc;
}

/* Stages that have opened in this process. Their messages order what they wrote before the supervisor started
 * them, but only an atomic orders it for C's memory model, and for ThreadSanitizer. */
static _Atomic int opened;

static pst_rc open_stage(struct pst_stage *self)
{
    json_t *message;
    pst_rc rc = pst_control_expect(self, "open", &message);
    if (rc != PST_OK)
        return rc;
    size_t i;
    json_t *j;
    const char *board = json_string_value(json_object_get(message, "board"));
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(message, "board_bytes"));
    rc = board ? pst_host_map(self->process, board, bytes, -1, &self->board_map)
               : pst_fail(PST_E_PEER, "the supervisor's \"open\" message does not name the shared memory of "
                                      "the run: install penstock and penstock-stage from the same build");
    if (rc != PST_OK)
        goto out;
    self->board = self->board_map.base;
    (void)snprintf(self->board_path, sizeof self->board_path, "%s", board);
    json_int_t pages = json_integer_value(json_object_get(message, "pages_at"));
    json_int_t page = json_integer_value(json_object_get(message, "page"));
    if (self->board->magic != PST_BOARD_MAGIC || pages < 0 || page < 0 ||
        (uint64_t)(pages + (page + 1) * PST_PAGE) > bytes) {
        rc = pst_fail(
            PST_E_PEER,
            "the shared memory of the run belongs to another run, or to another version of Penstock");
        goto out;
    }
    self->page = (struct pst_page *)(uintptr_t)((char *)self->board_map.base + pages + page * PST_PAGE);
    (void)json_object_set(self->config, "regions", json_object_get(message, "regions"));
    (void)json_object_set(self->config, "meet", json_object_get(message, "meet"));
    json_array_foreach(json_object_get(message, "regions"), i, j)
    {
        if (rc != PST_OK || self->nregions == PST_PORTS_MAX * 4)
            break;
        const char *path = json_string_value(json_object_get(j, "path"));
        rc = pst_host_map(self->process, path ? path : "",
                          (uint64_t)json_integer_value(json_object_get(j, "bytes")),
                          pst_gpu_number(pst_device_name(self)), &self->regions[self->nregions]);
        self->region_on_gpu[self->nregions] = path && pst_gpu_number(path) >= 0;
        self->nregions += rc == PST_OK;
    }
    if (rc == PST_OK)
        rc = pst_host_map_shared(self, message);
    if (rc == PST_OK)
        rc = pst_ports_open(self, message);
    if (rc == PST_OK && self->desc.open) {
        double t0 = pst_now();
        rc = self->desc.open(self);
        pst_trace_add(&self->trace, "open", t0, pst_now());
    }
    (void)atomic_fetch_add_explicit(&opened, 1, memory_order_release);
    if (rc == PST_OK)
        rc = pst_control_send(self, json_pack("{ss}", "type", "ready"));
out:
    json_decref(message);
    return rc;
}

static pst_rc run(struct pst_stage *self)
{
    json_t *message;
    pst_rc rc = pst_control_expect(self, "start", &message);
    if (rc != PST_OK)
        return rc;
    json_decref(message);
    (void)atomic_load_explicit(&opened, memory_order_acquire);
    rc = pst_host_seal(self);
    return rc == PST_OK ? run_loop(self) : rc;
}

/* ---- ending -------------------------------------------------------------------------------------- */

static void write_trace(struct pst_stage *self)
{
    if (!self->trace.spans)
        return;
    char path[PST_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/trace/%s.json", pst_run_dir(self), self->name);
    int index = (int)json_integer_value(json_object_get(self->config, "index"));
    if (pst_trace_write(&self->trace, path, self->name, index + 1) != PST_OK)
        pst_warn(self, "%s", pst_error_text());
}

/* text: of the failure; its other characters than ASCII are lost. */
static void tell_end(struct pst_stage *self, pst_rc rc, char *text)
{
    for (char *c = text; *c; c++) /* JSON carries it: a path need not be UTF-8 */
        *c = (unsigned char)*c < 128 ? *c : '?';
    bool failed = rc != PST_OK && !(rc == PST_E_INTERRUPTED && self->stopping);
    if (failed)
        fprintf(stderr, "error: %s: %s\n", self->name, text);
    (void)(failed ? pst_control_send(self, json_pack("{ss ss si sb}", "type", "failed", "text", text, "rc",
                                                     (int)rc, "died", (int)self->program_died))
                  : pst_control_send(self, json_pack("{ss}", "type", "done")));
    if (self->stopping)
        return;
    for (int waited = 0; waited < ACK_DEADLINE_MS; waited += 1000) { /* until it was heard */
        json_t *ack = pst_control_recv(self, 1000);
        bool stop = ack && strcmp(pst_control_type(ack), "stop") == 0;
        json_decref(ack);
        if (stop)
            return;
    }
}

static void release(struct pst_stage *self)
{
    pst_collective_close(self->collective);
    pst_ports_close(self);
    if (self->control)
        (void)zmq_close(self->control);
    if (self->inbox)
        (void)zmq_close(self->inbox);
    json_decref(self->oneshots);
    json_decref(self->needs);
    json_decref(self->config);
    pst_trace_close(&self->trace);
    free(self->state);
    pst_caps_release(&self->caps);
    free(self);
}

pst_rc pst_host_run(struct pst_host_process *process, const char *control, const char *name)
{
    struct pst_stage *self = calloc(1, sizeof *self);
    if (!self)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate stage %s", name);
    self->process = process;
    (void)snprintf(self->name, sizeof self->name, "%s", name);
    pst_rc rc = connect_control(self, control);
    if (rc == PST_OK)
        rc = configure(self);
    if (rc == PST_OK)
        rc = size(self);
    if (rc == PST_OK)
        rc = open_stage(self);
    if (rc == PST_OK)
        rc = run(self);
    char text[2048]; /* of the failure: what follows may fail, too */
    (void)snprintf(text, sizeof text, "%.2000s", pst_error_text());
    if (self->sized && self->desc.close)
        self->desc.close(self);
    if (self->config)
        write_trace(self);
    if (self->control)
        tell_end(self, rc, text);
    if (rc != PST_OK)
        (void)pst_fail(rc, "%s", text);
    bool orderly = rc == PST_E_INTERRUPTED && self->stopping;
    release(self);
    return orderly ? PST_OK : rc;
}
