/* sdk.c: the functions of stage.h that look something up or tell the supervisor something. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/collective/carried.h"
#include "common/util/clock.h"
#include "common/host/host_impl.h"

/* Replica 0 may evaluate a large graph meanwhile. The supervisor ends the run long before if a process hangs.
 */
#define MEET_DEADLINE_S (24 * 3600.0)

void *pst_state(struct pst_stage *self)
{
    return self->state;
}

static const char *config_text(const struct pst_stage *self, const char *key)
{
    return json_string_value(json_object_get(self->config, key));
}

const char *pst_stage_name(const struct pst_stage *self)
{
    return self->name;
}

const char *pst_dataset_dir(const struct pst_stage *self)
{
    return config_text(self, "dataset");
}

const char *pst_run_dir(const struct pst_stage *self)
{
    return config_text(self, "run_dir");
}

const char *pst_resume_path(const struct pst_stage *self)
{
    return config_text(self, "resume");
}

const char *pst_run_identity(const struct pst_stage *self)
{
    const char *text = config_text(self, "identity");
    return text ? text : "{}";
}

uint64_t pst_seed(const struct pst_stage *self)
{
    return self->seed;
}

int64_t pst_epochs(const struct pst_stage *self)
{
    return self->epochs;
}

bool pst_overlap(const struct pst_stage *self)
{
    return self->overlap;
}

void pst_bus_pass(struct pst_stage *self, uint64_t bytes)
{
    if (self->bus_bytes_per_s <= 0)
        return;
    const uint64_t from = pst_clock_ns();
    pst_bus_take(&self->board->bus, self->bus_bytes_per_s, bytes, &self->board->stop);
    (void)atomic_fetch_add_explicit(&self->page->bus_ns, pst_clock_ns() - from, memory_order_relaxed);
}

uint64_t pst_bus_book_drive(struct pst_stage *self, uint64_t bytes, uint64_t now_ns)
{
    assert(self->bus_bytes_per_s > 0);
    return pst_bus_book(&self->board->bus, self->bus_bytes_per_s, bytes, now_ns);
}

struct pst_bus_place pst_bus_place(const struct pst_stage *self)
{
    const bool there = self->bus_bytes_per_s > 0;
    return (struct pst_bus_place){.path = there ? self->board_path : NULL,
                                  .at = offsetof(struct pst_board, bus),
                                  .bytes_per_s = self->bus_bytes_per_s};
}

int pst_instance(const struct pst_stage *self, int *instances)
{
    if (instances)
        *instances = self->instances;
    return self->instance;
}

int pst_replica(const struct pst_stage *self, int *replicas)
{
    if (replicas)
        *replicas = self->replicas;
    return self->replica;
}

pst_rc pst_meet(struct pst_stage *self, struct pst_collective **out)
{
    const json_t *meet = json_object_get(self->config, "meet"), *names = json_object_get(meet, "names");
    const json_int_t told = json_integer_value(json_object_get(meet, "ranks"));
    const int ranks = told > 1 && told <= self->replicas ? (int)told : 1, members = self->replicas / ranks;
    const size_t n = (size_t)members * (ranks > 1 ? 2 : 1); /* with their carriers */
    const uint64_t at = (uint64_t)json_integer_value(json_object_get(meet, "at")),
                   bytes =
                       ranks > 1 ? pst_collective_ranks_bytes(members) : pst_collective_shared_bytes(members);
    *out = self->collective;
    if (self->replicas == 1 || *out)
        return PST_OK;
    if (json_array_size(names) != n || n > PST_REPLICAS_MAX || at % PST_PAGE != 0 ||
        at > self->board_map.bytes || bytes > self->board_map.bytes - at)
        return pst_fail(PST_E_PEER,
                        "the supervisor's \"open\" message does not say which shared memory the replicas of "
                        "%s use: install penstock and penstock-stage from the same build",
                        self->name);
    for (size_t r = 0; r < n; r++)
        self->replica_names[r] = json_string_value(json_array_get(names, r));
    const struct pst_collective_ranks_options options = {.memory = (char *)self->board_map.base + at,
                                                         .rank = self->replica / members,
                                                         .ranks = ranks,
                                                         .member = self->replica % members,
                                                         .members = members,
                                                         .names = self->replica_names,
                                                         .deadline_s = MEET_DEADLINE_S,
                                                         .stop = &self->board->stop};
    const pst_rc rc = ranks > 1 ? pst_collective_ranks_open(&self->collective, &options)
                                : pst_collective_shared_open(
                                      &self->collective,
                                      &(struct pst_collective_shared_options){.memory = options.memory,
                                                                              .rank = self->replica,
                                                                              .members = members,
                                                                              .names = self->replica_names,
                                                                              .deadline_s = MEET_DEADLINE_S,
                                                                              .stop = options.stop});
    *out = self->collective;
    return rc;
}

int pst_port(const struct pst_stage *self, const char *name)
{
    int port = pst_desc_port(&self->desc, name);
    assert(port >= 0 && "the stage's description has no port with this name");
    return port;
}

const char *pst_device_name(const struct pst_stage *self)
{
    const char *device = config_text(self, "device");
    return device ? device : "cpu:0";
}

enum pst_device_kind pst_device_of(const struct pst_stage *self, int *number)
{
    const char *device = pst_device_name(self), *colon = strchr(device, ':');
    if (number)
        *number = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    return strncmp(device, "cuda:", 5) == 0 ? PST_DEVICE_CUDA : PST_DEVICE_CPU;
}

static const char *port_name(const struct pst_stage *self, int port)
{
    assert(port >= 0 && port < pst_desc_ports(&self->desc));
    return self->desc.ports[port].name;
}

bool pst_linked(const struct pst_stage *self, int port)
{
    const json_t *linked = json_object_get(self->config, "linked");
    return json_object_get(linked, port_name(self, port)) != NULL;
}

const char *pst_oneshot(const struct pst_stage *self, int port)
{
    return json_string_value(json_object_get(self->oneshots, port_name(self, port)));
}

void pst_need(struct pst_stage *self, int port, uint64_t bytes, uint64_t align)
{
    assert(self->needs && "call pst_need only from the stage's `size` function");
    (void)json_array_append_new(self->needs, json_pack("{ss sI sI}", "port", port_name(self, port), "bytes",
                                                       (json_int_t)bytes, "align", (json_int_t)align));
}

void pst_share(struct pst_stage *self, uint64_t bytes)
{
    assert(self->needs && "call pst_share only from the stage's `size` function");
    (void)json_array_append_new(self->needs, json_pack("{sI}", "shared", (json_int_t)bytes));
}

void *pst_shared(struct pst_stage *self)
{
    return self->shared.base;
}

const void *pst_shared_of(const struct pst_stage *self, int replica)
{
    assert(replica >= 0 && replica < PST_REPLICAS_MAX);
    return replica == self->replica ? self->shared.base : self->resident[replica].base;
}

bool pst_in_place(const struct pst_stage *self, int port)
{
    return json_object_get(json_object_get(self->config, "in_place"), port_name(self, port)) != NULL;
}

const void *pst_shared_from(const struct pst_stage *self, int port, uint64_t *bytes)
{
    assert(port >= 0 && port < pst_desc_ports(&self->desc));
    *bytes = self->lent[port].bytes;
    return self->lent[port].base;
}

void pst_share_gpu(struct pst_stage *self, uint64_t bytes)
{
    assert(self->needs && "call pst_share_gpu only from the stage's `size` function");
    assert(pst_device_of(self, NULL) == PST_DEVICE_CUDA);
    (void)json_array_append_new(self->needs, json_pack("{sI}", "shared_gpu", (json_int_t)bytes));
}

void *pst_shared_gpu(struct pst_stage *self)
{
    return self->shared_gpu.base;
}

pst_rc pst_shared_gpu_of(struct pst_stage *self, int replica, const void **at)
{
    assert(replica >= 0 && replica < PST_REPLICAS_MAX);
    const pst_rc rc = replica == self->replica || self->resident_gpu[replica].base
                          ? PST_OK
                          : pst_host_map_resident_gpu(self, replica);
    *at = replica == self->replica ? self->shared_gpu.base : self->resident_gpu[replica].base;
    if (rc != PST_OK || *at)
        return rc;
    return pst_fail(PST_E_STATE,
                    "%s cannot read the memory of replica %d, which shares none, is on a GPU that %s cannot "
                    "reach, or belongs to another rank",
                    self->name, replica, pst_device_name(self));
}

static const json_t *receivers(const struct pst_stage *self, int port)
{
    return json_object_get(json_object_get(self->config, "receivers"), port_name(self, port));
}

int pst_receivers(const struct pst_stage *self, int port)
{
    return (int)json_array_size(json_object_get(receivers(self, port), "devices"));
}

const char *pst_receiver_device(const struct pst_stage *self, int port, int replica)
{
    const json_t *devices = json_object_get(receivers(self, port), "devices");
    const char *device = json_string_value(json_array_get(devices, (size_t)replica));
    assert(device != NULL && "there is no receiver of this number");
    return device;
}

bool pst_receiver_reaches(const struct pst_stage *self, int port, int replica, int other)
{
    const json_t *reach = json_object_get(receivers(self, port), "reach");
    return json_integer_value(json_array_get(reach, (size_t)replica)) >> other & 1;
}

bool pst_receiver_is(const struct pst_stage *self, int port, const char *kind)
{
    const json_t *kinds = json_object_get(receivers(self, port), "kinds");
    for (size_t i = 0; i < json_array_size(kinds); i++)
        if (strcmp(json_string_value(json_array_get(kinds, i)), kind) == 0)
            return true;
    return false;
}

const char *pst_receiver_text(const struct pst_stage *self, int port, const char *param, const char *fallback)
{
    const json_t *params = json_object_get(receivers(self, port), "params");
    const char *text = json_string_value(json_object_get(params, param));
    return text ? text : fallback;
}

static int64_t int_of(const json_t *params, const char *param, int64_t fallback)
{
    const json_t *value = json_object_get(params, param);
    return json_is_integer(value)   ? json_integer_value(value)
           : json_is_boolean(value) ? json_is_true(value)
                                    : fallback;
}

int64_t pst_receiver_int(const struct pst_stage *self, int port, const char *param, int64_t fallback)
{
    return int_of(json_object_get(receivers(self, port), "params"), param, fallback);
}

int64_t pst_reached_int(const struct pst_stage *self, int port, const char *param, int64_t fallback)
{
    return int_of(json_object_get(receivers(self, port), "beyond"), param, fallback);
}

bool pst_receiver_in_place(const struct pst_stage *self, int port)
{
    return json_is_true(json_object_get(receivers(self, port), "in_place"));
}

pst_rc pst_watch(struct pst_stage *self, int fd)
{
    if (self->nfds == PST_HOST_FDS_MAX)
        return pst_fail(PST_E_LIMIT, "a stage can watch at most %d file descriptors (pst_watch)",
                        PST_HOST_FDS_MAX);
    self->fds[self->nfds++] = fd;
    return PST_OK;
}

void pst_timer(struct pst_stage *self, int64_t microseconds)
{
    self->timer_at = microseconds < 0 ? 0 : pst_now() + (double)microseconds * 1e-6;
}

void pst_in_flight(struct pst_stage *self, int64_t delta)
{
    self->in_flight += delta;
    assert(self->in_flight >= 0);
    atomic_store_explicit(&self->page->in_flight, (uint32_t)self->in_flight, memory_order_relaxed);
}

void pst_working(struct pst_stage *self, int64_t delta)
{
    self->working += delta;
    assert(self->working >= 0);
}

void pst_expect(struct pst_stage *self, int64_t delta)
{
    self->keep_alive += delta;
    assert(self->keep_alive >= 0);
}

double pst_now(void)
{
    return pst_clock_s();
}

void pst_span(struct pst_stage *self, const char *name, double begin_s, double end_s)
{
    pst_trace_add(&self->trace, name, begin_s, end_s);
}

void pst_span_of(struct pst_stage *self, const char *name, uint64_t batch, int hop, double begin_s,
                 double end_s)
{
    pst_trace_add_of(&self->trace, name, batch, hop, begin_s, end_s);
}

pst_rc pst_report(struct pst_stage *self, const char *section, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a report");
    json_error_t error;
    json_t *data = json_loads(text, 0, &error);
    free(text);
    if (!json_is_object(data)) {
        json_decref(data);
        return pst_fail(PST_E_ARG, "the section \"%s\" of the stage's report is not a JSON object: %s",
                        section, error.text);
    }
    const pst_rc rc =
        pst_control_send(self, json_pack("{ss ss so}", "type", "report", "section", section, "data", data));
    return rc == PST_OK && strcmp(section, "epochs") == 0 ? pst_control_epoch(self) : rc;
}

pst_rc pst_publish(struct pst_stage *self, int port, const char *path)
{
    if (!(self->desc.ports[port].flags & PST_PORT_ONESHOT))
        return pst_fail(PST_E_ARG, "cannot publish a path through %s, which is not a one-shot output",
                        port_name(self, port));
    return pst_control_send(
        self, json_pack("{ss ss ss}", "type", "published", "port", port_name(self, port), "path", path));
}

static void say(struct pst_stage *self, bool warning, const char *fmt, va_list ap)
{
    char text[2048];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    fprintf(stderr, "%s%s: %s\n", warning ? "warning: " : "", self->name, text);
    if (warning)
        (void)pst_control_send(self, json_pack("{ss ss+}", "type", "warning", "text", text, ""));
}

void pst_log(struct pst_stage *self, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(self, false, fmt, ap);
    va_end(ap);
}

void pst_warn(struct pst_stage *self, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(self, true, fmt, ap);
    va_end(ap);
}

void pst_count(struct pst_stage *self, uint64_t items, uint64_t bytes)
{
    atomic_fetch_add_explicit(&self->page->items, items, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->page->bytes, bytes, memory_order_relaxed);
}

void pst_doing(struct pst_stage *self, enum pst_activity activity, uint64_t done, uint64_t total)
{
    struct pst_page *page = self->page;
    if (atomic_exchange_explicit(&page->activity, (uint32_t)activity, memory_order_relaxed) !=
        (uint32_t)activity)
        atomic_store_explicit(&page->activity_ns, pst_clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&page->steps_total, total, memory_order_relaxed);
    atomic_store_explicit(&page->steps, done, memory_order_relaxed);
}

void pst_count_lookups(struct pst_stage *self, uint64_t lookups, uint64_t hits)
{
    atomic_fetch_add_explicit(&self->page->lookups, lookups, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->page->hits, hits, memory_order_relaxed);
}
