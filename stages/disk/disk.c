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

#include "stages/disk/disk.h"

#define REGIONS_MAX 64 /* of one process; a route has a few */
#define NOTES_BYTES 4096
#define SLICE_NS 100000 /* the shortest that the scheduler permits */
/* Kernels can drive queues, but cannot read files. The fault injector works only on the CPU. */
#define MEMORY                                                                                               \
    "cpu,pinned if backend=nvme|emulated and fault_rate=0 and fault_short_rate=0 and "                       \
    "fault_delay_us=0 and fault_row=-1"

static const char *const pair_in[PAIRS] = {"requests", "lists"}, *const pair_out[PAIRS] = {"done", "listed"};

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
    d->gap_auto = c->gap_bytes == (uint64_t)PST_AUTO;
    if (d->gap_auto)
        c->gap_bytes = 0; /* pst_disk_stage_gap sets it when the engine is there */
    if (d->fault_row >= 0)
        spoil_row(&c->faults, &c->arrays[PST_ARRAY_FEATURES].rows_in, (uint64_t)d->fault_row);
}

/* Arrays of the run lie in RUN/arrays. Their owner has made the files when its slots were sized. */
static pst_rc add_arrays(const struct pst_stage *self, struct disk *d)
{
    pst_rc rc = PST_OK;
    const char *at = d->arrays;
    if (*at != '\0' && pst_disk_on_drives(&d->config))
        return pst_fail(PST_E_UNSUPPORTED,
                        "arrays is \"%s\", but with \"drives\" the backend %s reads only what `penstock "
                        "store` wrote to the drives, not these files; choose another backend",
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
    rc = pst_disk_stage_gap(self, d);
    if (rc == PST_OK)
        rc = pst_disk_stage_gate_open(self, d);
    return rc == PST_OK ? watch(self, d) : rc;
}

static void tell_in_flight(struct pst_stage *self, struct disk *d)
{
    int now = pst_disk_in_flight(d->engine);
    if (now != d->in_flight)
        pst_in_flight(self, now - d->in_flight);
    d->in_flight = now;
}

static pst_rc pump(struct pst_stage *self, struct disk *d)
{
    const uint64_t before = pst_disk_stats(d->engine)->bytes;
    const pst_rc rc = pst_disk_pump(d->engine);
    pst_count(self, 0, pst_disk_stats(d->engine)->bytes - before);
    tell_in_flight(self, d);
    return rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct disk *d = pst_state(self);
    bool any = true;
    pst_rc rc = PST_OK;
    if (event->kind == PST_EV_FRAME)
        rc = pst_disk_stage_accept(self, d, event->port == d->in[LISTS] ? LISTS : BATCHES, event->frame);
    d->flush = d->flush || event->kind == PST_EV_TIMER;
    d->ended = d->ended || (event->kind == PST_EV_END && event->port == d->in[BATCHES]);
    while (rc == PST_OK && any) { /* a slot that leaves can open the gate for the next */
        any = false;
        rc = pst_disk_stage_submit(self, d);
        if (rc == PST_OK)
            rc = pump(self, d);
        pst_disk_stage_trace(self, d);
        if (rc == PST_OK)
            rc = pst_disk_stage_send_whole(self, d, &any);
    }
    return rc;
}

static void shut(struct pst_stage *self)
{
    struct disk *d = pst_state(self);
    if (d->engine != NULL) {
        pst_disk_stage_report(self, d);
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
     .flags = PST_PORT_WRITES | PST_PORT_ASIDE | PST_PORT_IN_PLACE,
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
     .max = 65536,
     .help =
         "nvme and emulated, on a CPU: threads that submit, at most 64; with stack sync: requests at once"},
    {.name = "accumulate",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct disk, accumulate),
     .def = "\"none\"",
     .help =
         "which iterations go to the drives together: none: each request as it comes; off: one iteration "
         "after "
         "the other (BaM); a number of iterations; auto: as many as reach accumulate_share of the drives' "
         "peak (GIDS)"},
    {.name = "accumulate_share",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct disk, share),
     .def = "0.95",
     .min = 0.01,
     .max = 0.999,
     .help = "accumulate auto: the share of the drives' peak IOPS that a burst of accesses should reach"},
    {.name = "iop_peak",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct disk, iop_peak),
     .def = "0",
     .min = 0,
     .max = 1e12,
     .help = "accumulate auto: peak IOPS of one drive; 0: those of the emulated drive's model, or measured"},
    {.name = "initial_us",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct disk, initial_us),
     .def = "-1",
     .min = -1,
     .max = 1e9,
     .help =
         "accumulate auto: time until a burst's first data come, T_i; -1: the model's latency and 25 us, or "
         "measured together with T_t"},
    {.name = "terminal_us",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct disk, terminal_us),
     .def = "5",
     .min = 0,
     .max = 1e9,
     .help = "accumulate auto: time from a burst's last data to its end, T_t"},
    {.name = "accumulate_probe",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct disk, probe),
     .def = "false",
     .help = "accumulate auto: measure what is not given, even if emulated drives have a model"},
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
     .alone = true,
     .path = PST_PATH_FILES,
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
     .automatic = true,
     .help =
         "rows at most this far apart are read together, with what is between them; 0: only the rows; auto: "
         "the largest gap that the drive reads in the time of another request (measured once a drive)"},
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
    .dataset = "types",
    .replicas = PST_REPLICAS_EACH,
    .state_bytes = sizeof(struct disk),
    .size = size,
    .open = start,
    .on_event = on_event,
    .close = shut,
};
