/* disk.c: the disk stage. It serves the requests that slots carry (request.h), and sends each slot on when
 * its last part and its last row have arrived. engine.h does the work; this file knows ports and frames. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/slots/minibatch.h"
#include "common/store/store.h"
#include "stages/lib/io/engine.h"
#include "common/stage.h"

#define REGIONS_MAX 64 /* of one process; a route has a few */
#define NOTES_BYTES 4096
#define ARRAYS_MAX (PST_REQUEST_ARRAYS_MAX - PST_ARRAY_COUNT) /* of the run */
#define SLICE_NS 100000                                       /* the shortest that the scheduler permits */
/* Kernels can drive queues, but cannot read files. The fault injector works only on the CPU. */
#define MEMORY                                                                                               \
    "cpu,pinned if backend=nvme|emulated and fault_rate=0 and fault_short_rate=0 and "                       \
    "fault_delay_us=0 and fault_row=-1"

/* The pairs of ports: slots come in by one and leave by the other. */
enum pair { BATCHES, LISTS, PAIRS };
static const char *const pair_in[PAIRS] = {"requests", "lists"}, *const pair_out[PAIRS] = {"done", "listed"};

/* A slot that is in this stage. */
struct visit {
    bool used, whole; /* whole: its last part has come */
    enum pair pair;
    struct pst_frame frame;
    struct pst_disk_ticket ticket;
    uint64_t requests; /* in all parts that have come */
    double whole_s;    /* when the last part came */
};

struct disk {
    struct pst_disk_config config; /* most of it is filled from the parameters */
    int64_t fault_row;
    const char *arrays; /* names of arrays of the run, separated by commas */
    uint64_t piece;     /* bytes of their rows */
    char array_name[ARRAYS_MAX][PST_NAME_MAX], array_path[ARRAYS_MAX][PST_PATH_MAX];
    int in[PAIRS], out[PAIRS]; /* -1: not linked */
    struct pst_dataset ds;
    struct pst_disk *engine;
    struct visit *visits; /* one for each slot of the route */
    uint32_t nvisits, active;
    int in_flight;        /* the number last reported to the host */
    struct rusage faults; /* when the stage opened; page faults are counted from there */
};

static pst_rc size(struct pst_stage *self)
{
    struct disk *d = pst_state(self);
    for (int k = 0; k < PAIRS; k++) {
        d->in[k] = pst_port(self, pair_in[k]);
        d->out[k] = pst_port(self, pair_out[k]);
        if (!pst_linked(self, d->in[k]))
            d->in[k] = d->out[k] = -1;
        else /* rows are read straight into slots, and pages suit every block size */
            pst_need(self, d->in[k], PST_PAGE, PST_PAGE);
    }
    return pst_dataset_open(&d->ds, pst_dataset_dir(self));
}

/* Operations that touch the row always fail. */
static void spoil_row(struct pst_io_faults *faults, const struct pst_extent *rows, uint64_t row)
{
    struct pst_extent_place bad;
    if (!pst_extent_find(rows, row * rows->unit, &bad))
        return;
    faults->bad_file = (int32_t)bad.place;
    faults->bad_at = bad.at;
    faults->bad_bytes = rows->unit;
}

static uint64_t book(void *to, uint64_t bytes, uint64_t now_ns)
{
    return pst_bus_book_drive(to, bytes, now_ns);
}

/* What the parameters do not say. */
static void configure(struct pst_stage *self, struct disk *d)
{
    struct pst_disk_config *c = &d->config;
    c->tables_max = d->nvisits * (PST_HOPS_MAX + 2); /* every part of every slot */
    c->nvme.gpu = pst_device_of(self, NULL) == PST_DEVICE_CUDA ? pst_device_name(self) : NULL;
    c->nvme.dataset = &d->ds;
    const struct pst_bus_place bus = pst_bus_place(self);
    c->nvme.bus = bus.path;
    c->nvme.bus_at = bus.at;
    c->nvme.bus_bytes_per_s = bus.bytes_per_s;
    if (bus.path != NULL)
        c->bus = (struct pst_io_bus){book, self};
    c->faults.bad_file = -1;
    pst_disk_config_add_all(c, &d->ds);
    c->nvme.topology = d->in[LISTS] >= 0;
    if (d->fault_row >= 0)
        spoil_row(&c->faults, &c->arrays[PST_ARRAY_FEATURES].rows_in, (uint64_t)d->fault_row);
}

/* Arrays of the run lie in RUN/arrays. Their owner has made the files when its slots were sized. */
static pst_rc add_arrays(const struct pst_stage *self, struct disk *d)
{
    pst_rc rc = PST_OK;
    const char *at = d->arrays;
    if (*at != '\0' && pst_disk_on_drives(&d->config))
        return pst_fail(
            PST_E_UNSUPPORTED,
            "arrays is \"%s\", but they are files, and with \"drives\" the backend %s moves only what "
            "`penstock store` wrote; choose another backend",
            d->arrays, d->config.backend);
    for (int n = 0; *at != '\0' && rc == PST_OK; n++, at += *at == ',') {
        const size_t length = strcspn(at, ",");
        if (n == ARRAYS_MAX || length == 0 || length >= PST_NAME_MAX || memchr(at, '/', length))
            return pst_fail(
                PST_E_ARG,
                "arrays is \"%s\"; expected at most %d names, separated by commas, each of 1 to %d "
                "characters and without '/'",
                d->arrays, ARRAYS_MAX, PST_NAME_MAX - 1);
        (void)snprintf(d->array_name[n], PST_NAME_MAX, "%.*s", (int)length, at);
        (void)snprintf(d->array_path[n], PST_PATH_MAX, "%.3900s/arrays/%.*s", pst_run_dir(self), (int)length,
                       at);
        rc = pst_disk_config_add_run(&d->config, d->array_name[n], d->array_path[n], d->piece);
        at += length;
    }
    return rc;
}

static pst_rc watch(struct pst_stage *self, const struct disk *d)
{
    int fds[PST_IO_FDS_MAX];
    int n = pst_disk_fds(d->engine, fds);
    for (int i = 0; i < n; i++) {
        pst_rc rc = pst_watch(self, fds[i]);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

/* The stage runs seldom and for a short time. While it waits for a core behind a trainer's long turn, the
 * drive idles. A short time slice moves it to the front, on kernels from 6.12 on; older ones ignore it.
 * tools/bench/README.md has the figures. */
static void ask_for_short_turns(struct pst_stage *self)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline_ns, period_ns;
    } how = {.size = sizeof how};
    if (syscall(SYS_sched_getattr, 0, &how, sizeof how, 0) != 0 || how.policy > SCHED_BATCH)
        return; /* somebody has chosen another policy on purpose */
    how.slice_ns = SLICE_NS;
    if (syscall(SYS_sched_setattr, 0, &how, 0) != 0)
        pst_log(self,
                "cannot ask the scheduler for short time slices (%s): the drive may be idle while other "
                "processes use all cores",
                strerror(errno));
}

static pst_rc start(struct pst_stage *self)
{
    struct disk *d = pst_state(self);
    ask_for_short_turns(self);
    for (int k = 0; k < PAIRS; k++)
        d->nvisits += d->in[k] >= 0 ? pst_slots(self, d->in[k]) : 0;
    d->visits = calloc(d->nvisits, sizeof *d->visits);
    if (d->visits == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of %u slots", d->nvisits);
    struct iovec regions[REGIONS_MAX];
    int nregions = 0;
    uint64_t bytes;
    for (void *base; nregions < REGIONS_MAX && (base = pst_slot_region(self, nregions, &bytes)) != NULL;
         nregions++)
        regions[nregions] = (struct iovec){base, bytes};
    struct pst_disk_config *config = &d->config;
    configure(self, d);
    config->regions = regions;
    config->nregions = nregions;
    char notes[NOTES_BYTES];
    pst_rc rc = add_arrays(self, d);
    if (rc == PST_OK)
        rc = pst_disk_new(&d->engine, config, notes, sizeof notes);
    config->regions = NULL; /* they were this function's */
    config->nregions = 0;
    if (rc != PST_OK)
        return rc;
    if (notes[0] != '\0')
        pst_warn(self, "%s", notes);
    pst_log(self, "backend %s%s%s, depth %d, %s the page cache", pst_disk_backend(d->engine),
            config->nvme.gpu != NULL ? " driven by " : "", config->nvme.gpu != NULL ? config->nvme.gpu : "",
            config->depth, pst_disk_direct(d->engine) ? "past" : "through");
    (void)getrusage(RUSAGE_THREAD, &d->faults);
    return watch(self, d);
}

/* The visit of this frame's slot. The first part of a slot begins a new visit. */
static struct visit *visit_of(struct disk *d, enum pair pair, const struct pst_frame *frame)
{
    struct visit *unused = NULL;
    for (uint32_t i = 0; i < d->nvisits; i++) {
        struct visit *v = &d->visits[i];
        if (!v->used)
            unused = unused != NULL ? unused : v;
        else if (v->frame.refs[0].route == frame->refs[0].route &&
                 v->frame.refs[0].slot == frame->refs[0].slot)
            return v;
    }
    if (unused != NULL) {
        *unused = (struct visit){.used = true, .pair = pair, .frame = *frame};
        d->active++;
    }
    return unused;
}

static pst_rc accept_frame(struct pst_stage *self, struct disk *d, enum pair pair,
                           const struct pst_frame *frame)
{
    if (frame->nrefs == 0)
        return pst_send(self, d->out[pair], frame);
    struct visit *v = visit_of(d, pair, frame);
    if (v == NULL || v->whole || v->frame.batch != frame->batch || v->frame.micro != frame->micro)
        return pst_fail(
            PST_E_PEER,
            "slot %u arrived with batch %llu, micro-batch %u, part %u while it still held another batch",
            frame->refs[0].slot, (unsigned long long)frame->batch, frame->micro, frame->part);
    pst_rc rc = PST_OK;
    if (frame->arg[1] > 0) {
        uint64_t bytes = 0;
        void *slot = pst_slot(self, frame->refs[0], &bytes);
        if (slot == NULL)
            return PST_E_STATE;
        rc = pst_disk_add(d->engine, &v->ticket, slot, bytes, frame->arg[0], frame->arg[1]);
        v->requests += frame->arg[1];
    }
    if (frame->flags & PST_LAST_PART) {
        pst_disk_whole(d->engine, &v->ticket);
        v->whole = true;
        v->whole_s = pst_now();
        v->frame = *frame;
        v->frame.part = 0; /* the slot goes on as one part, which announces no requests */
        v->frame.arg[0] = v->frame.arg[1] = 0;
    }
    return pst_wrap(rc, "batch %llu, part %u", (unsigned long long)frame->batch, frame->part);
}

/* Notes in the slot that its requests are served, and sends it on. */
static pst_rc send_visit(struct pst_stage *self, struct disk *d, struct visit *v)
{
    uint64_t bytes = 0;
    void *slot = v->requests > 0 ? pst_slot(self, v->frame.refs[0], &bytes) : NULL;
    if (v->requests > 0 && slot == NULL)
        return PST_E_STATE;
    if (v->pair == BATCHES)
        pst_minibatch_serve(slot, bytes, v->requests);
    v->used = false;
    d->active--;
    pst_count(self, 1, 0);
    if (v->pair == BATCHES)
        pst_span_of(self, "C", v->frame.batch, -1, v->whole_s, pst_now());
    /* nobody waits for these slots: they go home, changed by the reads */
    return pst_linked(self, d->out[v->pair]) ? pst_send(self, d->out[v->pair], &v->frame)
                                             : pst_release(self, v->frame.refs[0], true);
}

static pst_rc send_whole(struct pst_stage *self, struct disk *d)
{
    for (uint32_t i = 0; i < d->nvisits && d->active > 0; i++) {
        struct visit *v = &d->visits[i];
        if (!v->used || !v->whole || !pst_disk_idle(&v->ticket))
            continue;
        const pst_rc rc = send_visit(self, d, v);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

static void tell_in_flight(struct pst_stage *self, struct disk *d)
{
    int now = pst_disk_in_flight(d->engine);
    if (now != d->in_flight)
        pst_in_flight(self, now - d->in_flight);
    d->in_flight = now;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct disk *d = pst_state(self);
    if (event->kind != PST_EV_FRAME && event->kind != PST_EV_FD)
        return PST_OK;
    if (event->kind == PST_EV_FRAME) {
        const enum pair pair = event->port == d->in[LISTS] ? LISTS : BATCHES;
        pst_rc rc = accept_frame(self, d, pair, event->frame);
        if (rc != PST_OK)
            return rc;
    }
    uint64_t before = pst_disk_stats(d->engine)->bytes;
    pst_rc rc = pst_disk_pump(d->engine);
    pst_count(self, 0, pst_disk_stats(d->engine)->bytes - before);
    tell_in_flight(self, d);
    return rc == PST_OK ? send_whole(self, d) : rc;
}

/* The drives that we drive ourselves, and what each is modelled on if it is emulated. */
static pst_rc report_drives(struct pst_stage *self, const struct disk *d, const struct pst_io_driven *n)
{
    const struct pst_io_nvme_config *c = &d->config.nvme;
    const pst_rc rc = pst_report(self, "io", "{\"drives\": %u}", n->drives);
    if (rc != PST_OK || strcmp(pst_disk_backend(d->engine), pst_io_emulated_ops.name) != 0)
        return rc;
    return pst_report(self, "io",
                      "{\"model\": {\"preset\": \"%s\", \"dilate\": %.9g, \"iops\": %.9g, "
                      "\"bytes_per_s\": %.9g, \"latency_us\": %.9g}}",
                      c->preset, c->dilate, n->iops, n->bytes_per_s, n->latency_s * 1e6);
}

static void report(struct pst_stage *self, const struct disk *d)
{
    const struct pst_disk_stats *s = pst_disk_stats(d->engine);
    const struct pst_disk_depth *depth = pst_disk_depth(d->engine);
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    pst_rc rc =
        pst_report(self, "io",
                   "{\"backend\": \"%s\", \"direct\": \"%s\", \"requests\": %llu, \"bytes\": %llu, "
                   "\"rows\": %llu, \"row_bytes_wanted\": %llu, \"copied_bytes\": %llu, "
                   "\"retries\": %llu, \"merged\": %llu, \"active_s\": %.6f, \"in_flight_s\": %.6f, "
                   "\"starved_s\": %.6f, \"major_faults\": %ld, \"minor_faults\": %ld, "
                   "\"depth\": %d, \"depth_needed\": %u, \"depth_from\": \"%s\"}",
                   pst_disk_backend(d->engine), pst_disk_direct(d->engine) ? "yes" : "no",
                   (unsigned long long)s->requests, (unsigned long long)s->bytes, (unsigned long long)s->rows,
                   (unsigned long long)s->row_bytes_wanted, (unsigned long long)s->copied_bytes,
                   (unsigned long long)s->retries, (unsigned long long)s->merged, s->active_s, s->in_flight_s,
                   s->starved_s, usage.ru_majflt - d->faults.ru_majflt, usage.ru_minflt - d->faults.ru_minflt,
                   depth->operations, depth->needed, depth->why);
    struct pst_io_driven n;
    if (rc == PST_OK && pst_disk_driven(d->engine, &n))
        rc = pst_report(
            self, "io",
            "{\"submitted_by\": \"%s\", \"gpu_commands\": %llu, \"cpu_commands\": %llu, "
            "\"handed_to_cpu\": %llu, \"turns\": %llu, \"queues\": %llu, \"waves\": %llu, "
            "\"sq_doorbells\": %llu, \"cq_doorbells\": %llu, \"driver_retries\": %llu, \"aborts\": %llu, "
            "\"resets\": %llu}",
            pst_device_of(self, NULL) == PST_DEVICE_CUDA ? "gpu" : "cpu", (unsigned long long)n.gpu_commands,
            (unsigned long long)n.cpu_commands, (unsigned long long)s->handed, (unsigned long long)n.turns,
            (unsigned long long)n.queues, (unsigned long long)n.waves, (unsigned long long)n.sq_doorbells,
            (unsigned long long)n.cq_doorbells, (unsigned long long)n.retries, (unsigned long long)n.aborts,
            (unsigned long long)n.resets);
    if (rc == PST_OK && n.drives > 0)
        rc = report_drives(self, d, &n);
    if (rc != PST_OK)
        pst_log(self, "cannot report the disk's counts: %s", pst_error_text());
}

static void shut(struct pst_stage *self)
{
    struct disk *d = pst_state(self);
    if (d->engine != NULL) {
        report(self, d);
        pst_disk_free(d->engine);
    }
    free(d->visits);
    pst_dataset_close(&d->ds);
}

static const struct pst_port_desc ports[] = {
    {.name = "requests",
     .dir = PST_IN,
     .type = "any",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .requests = PST_REQUESTS_SERVES,
     .flags = PST_PORT_WRITES | PST_PORT_ASIDE,
     .help = "slots with a table of requests; each part announces some of them"},
    {.name = "done",
     .dir = PST_OUT,
     .type = "any",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .forwards = "requests",
     .flags = PST_PORT_OPTIONAL,
     .help = "the same slots, once all requested rows are in them; if it is not linked, they go home"},
    {.name = "lists",
     .dir = PST_IN,
     .type = "any",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .requests = PST_REQUESTS_SERVES,
     .flags = PST_PORT_WRITES | PST_PORT_ASIDE | PST_PORT_OPTIONAL,
     .help = "the same for slots of another route: a sampler asks for the neighbours of vertices"},
    {.name = "listed",
     .dir = PST_OUT,
     .type = "any",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .forwards = "lists",
     .flags = PST_PORT_OPTIONAL,
     .help = "the slots of lists, once all rows are in them; a link with \"back\" answers the sampler"},
    {0},
};

static const struct pst_param_desc params[] = {
    {.name = "backend",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct disk, config.backend),
     .def = "\"auto\"",
     .choices = "auto|" PST_IO_BACKEND_NAMES,
     .help =
         "file: io_uring; pread: threads; mmap: a memory mapping, for comparison; auto: file, or pread if "
         "io_uring is forbidden; nvme: our own NVMe driver; emulated: our driver with emulated drives"},
    {.name = "stack",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct disk, config.nvme.stack),
     .def = "\"async\"",
     .choices = PST_IO_STACK_NAMES,
     .help = "nvme and emulated: how queues are driven (common/nvme/stack/README.md)"},
    {.name = "complete",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct disk, config.complete_parts),
     .def = "\"slot\"",
     .choices = "slot|part",
     .help = "on a GPU: wait for completions when a slot's last part was submitted, or after each part"},
    {.name = "lanes",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.nvme.lanes),
     .def = "1",
     .min = 1,
     .max = 64,
     .help = "nvme and emulated, on a CPU: threads that submit; with stack sync: requests at once"},
    {.name = "queues",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.nvme.queues),
     .def = "2",
     .min = 1,
     .max = 128,
     .help = "nvme and emulated: queue pairs of each drive"},
    {.name = "timeout_ms",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.nvme.timeout_ms),
     .def = "5000",
     .min = 1,
     .max = 600000,
     .help = "nvme and emulated: a command is aborted after this time; after it again, the drive is reset"},
    {.name = "drives",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct disk, config.nvme.drives),
     .def = "\"\"",
     .needed_if = "backend=nvme",
     .help = "what `penstock store` wrote, in its order: nvme: PCI addresses (`penstock disks` lists them); "
             "emulated: plain files (none: the dataset's own files are striped over `ssds` drives)"},
    {.name = "ssds",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.nvme.ssds),
     .def = "1",
     .min = 1,
     .max = 16,
     .help = "emulated: number of drives, over which rows are striped; with `drives`: 1, or their number"},
    {.name = "preset",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct disk, config.nvme.preset),
     .def = "\"none\"",
     .choices = "none|optane|980pro|p5510",
     .help = "emulated: the drive whose speed is modelled; none: as fast as possible"},
    {.name = "dilate",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct disk, config.nvme.dilate),
     .def = "1",
     .min = 1,
     .max = 1e6,
     .help = "emulated: how many times slower the model's time runs"},
    {.name = "emulated",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct disk, config.nvme.emulated),
     .def = "\"\"",
     .help = "emulated: more of its configuration as JSON text, for example faults"},
    {.name = "depth",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.depth),
     .def = "\"auto\"",
     .min = 1,
     .max = 4096,
     .automatic = true,
     .help = "most operations, and commands on drives, in flight; auto: 128 for files; for emulated drives "
             "twice their IOPS x latency; for nvme 512 a drive; and whole tables as far as the queues hold "
             "them"},
    {.name = "direct",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct disk, config.direct),
     .def = "true",
     .help = "read past the page cache (O_DIRECT)"},
    {.name = "coalesce_bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct disk, config.coalesce_bytes),
     .def = "\"128KiB\"",
     .min = 1,
     .max = 16777216,
     .help = "largest read that neighbouring rows are merged into"},
    {.name = "gap_bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct disk, config.gap_bytes),
     .def = "\"4KiB\"",
     .min = 0,
     .max = 16777216,
     .help = "rows at most this far apart are read together, with what is between them; 0: only the rows"},
    {.name = "threads",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.threads),
     .def = "8",
     .min = 1,
     .max = 256,
     .help = "pread: threads, that is, operations in flight"},
    {.name = "retries",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.retries),
     .def = "3",
     .min = 0,
     .max = 1000,
     .help = "how often a failed operation is tried again before the run ends"},
    {.name = "arrays",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct disk, arrays),
     .def = "\"\"",
     .help = "arrays of the run that requests may read and write, separated by commas: the files "
             "RUN/arrays/NAME, which the stage that sends the requests makes"},
    {.name = "piece",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct disk, piece),
     .def = "\"1MiB\"",
     .min = PST_PAGE,
     .max = 1 << 30,
     .equals = "requests.piece",
     .help = "bytes of a row of `arrays`"},
    {.name = "writable",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct disk, config.writable),
     .def = "false",
     .help = "whether requests may write arrays of the dataset"},
    {.name = "fault_rate",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct disk, config.faults.error_rate),
     .def = "0",
     .min = 0,
     .max = 1,
     .help = "for tests, on a CPU: share of operations that fail (for emulated drives see `emulated`)"},
    {.name = "fault_short_rate",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct disk, config.faults.short_rate),
     .def = "0",
     .min = 0,
     .max = 1,
     .help = "for tests, on a CPU: share of operations that transfer too little"},
    {.name = "fault_delay_us",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.faults.delay_us),
     .def = "0",
     .min = 0,
     .max = 60000000,
     .help = "for tests, on a CPU: microseconds added to every operation"},
    {.name = "fault_seed",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, config.faults.seed),
     .def = "1",
     .min = 0,
     .max = 9007199254740992.0,
     .help = "for tests: which operations fail"},
    {.name = "fault_row",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct disk, fault_row),
     .def = "-1",
     .min = -1,
     .max = 9007199254740992.0,
     .help = "for tests, on a CPU: a feature row that can never be read; -1: none"},
    {0},
};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "disk",
    .help = "reads the rows that slots ask for, straight into the slots, and sends them on when all rows are "
            "there",
    .ports = ports,
    .params = params,
    .state_bytes = sizeof(struct disk),
    .size = size,
    .open = start,
    .on_event = on_event,
    .close = shut,
};
