/* stage_host.h: a stage under a host made up here, which keeps what stage.h promises and no more. To be
 * included after the stage's .c file. One slot, which the test keeps track of. */
#ifndef STAGE_HOST_H
#define STAGE_HOST_H

#include "common/pipeline/desc/desc.h"
#include "common/store/make/gen.h"
#include "tests/unit/store_fixture.h"
#include "tests/stage/virtual_gpu.h"

enum { HOST_TEXT_MAX = 4096, HOST_SETS = 8, HOST_SLOTS = 2 };

#ifndef HOST_STATE /* what the stage keeps in pst_state */
#define HOST_STATE void
#endif

struct pst_stage {
    HOST_STATE *state;
    const char *dataset, *run_dir, *device, *resume;
    const char *oneshot;           /* what came over the port plan; NULL: unlinked */
    bool lists;                    /* the ports lists and listed are linked */
    const char *set[HOST_SETS][2]; /* parameters that differ from their defaults */
    json_t *params;
    int replica, replicas; /* 0 replicas: the stage is not replicated */
    struct pst_collective *collective;
    uint64_t total, need;
    char *slot; /* HOST_SLOTS of them, `room` bytes each */
    uint64_t room;
    bool pinned;    /* the host has made them accessible to kernels */
    bool held;      /* the slots are the stage's */
    uint32_t ahead; /* slots that the stage fills at a time; 0: one */
    bool timer;     /* it has set one */
    void *stream;   /* of pst_stream */
    bool marks;     /* keep an event of pst_slot_queued */
    void *mark;     /* it */
    char reports[HOST_TEXT_MAX], warnings[HOST_TEXT_MAX], published[512];
    int consumed;
    /* what was sent: all of it in one digest, and how much */
    uint64_t sent_digest, frames, requests;
    uint64_t vain_slots, vain_requests; /* sent empty */
};

void *pst_state(struct pst_stage *self)
{
    return self->state;
}

/* Fills the state's parameters: set[], else the defaults. */
static inline void host_bind(struct pst_stage *self)
{
    char why[PST_DESC_WHY_MAX];
    self->params = json_object();
    for (const struct pst_param_desc *p = pst_stage.params; p->name; p++) {
        const char *text = p->def;
        for (int i = 0; i < HOST_SETS && self->set[i][0]; i++)
            text = strcmp(self->set[i][0], p->name) == 0 ? self->set[i][1] : text;
        json_t *value = json_loads(text, JSON_DECODE_ANY, NULL), *normal;
        if (!value || !pst_desc_value(p, value, &normal, why))
            fail_msg("%s=%s: %s", p->name, text, value ? why : "not JSON");
        json_decref(value);
        json_object_set_new(self->params, p->name, normal);
    }
    pst_desc_bind(&pst_stage, self->params, self->state);
}

const char *pst_dataset_dir(const struct pst_stage *self)
{
    return self->dataset;
}

const char *pst_run_dir(const struct pst_stage *self)
{
    return self->run_dir;
}

uint64_t pst_seed(const struct pst_stage *self)
{
    (void)self;
    return 42;
}

int64_t pst_epochs(const struct pst_stage *self)
{
    (void)self;
    return 2;
}

bool pst_overlap(const struct pst_stage *self)
{
    (void)self;
    return true;
}

int pst_instance(const struct pst_stage *self, int *instances)
{
    (void)self;
    if (instances)
        *instances = 1;
    return 0;
}

int pst_replica(const struct pst_stage *self, int *replicas)
{
    if (replicas)
        *replicas = self->replicas > 0 ? self->replicas : 1;
    return self->replica;
}

/* No stage gets the outputs. */
const char *pst_receiver_text(const struct pst_stage *self, int port, const char *param, const char *fallback)
{
    (void)self, (void)port, (void)param;
    return fallback;
}

bool pst_receiver_is(const struct pst_stage *self, int port, const char *kind)
{
    (void)self, (void)port, (void)kind;
    return false;
}

bool pst_receiver_in_place(const struct pst_stage *self, int port)
{
    (void)self, (void)port;
    return false;
}

int64_t pst_receiver_int(const struct pst_stage *self, int port, const char *param, int64_t fallback)
{
    (void)self, (void)port, (void)param;
    return fallback;
}

int64_t pst_reached_int(const struct pst_stage *self, int port, const char *param, int64_t fallback)
{
    (void)self, (void)port, (void)param;
    return fallback;
}

pst_rc pst_meet(struct pst_stage *self, struct pst_collective **out)
{
    *out = self->collective;
    return PST_OK;
}

void pst_share(struct pst_stage *self, uint64_t bytes)
{
    (void)self;
    fail_msg("one instance asks for %llu bytes to share", (unsigned long long)bytes);
}

bool pst_in_place(const struct pst_stage *self, int port)
{
    (void)self, (void)port;
    return false;
}

const void *pst_shared_from(const struct pst_stage *self, int port, uint64_t *bytes)
{
    (void)self, (void)port;
    *bytes = 0;
    return NULL;
}

void *pst_shared(struct pst_stage *self)
{
    (void)self;
    return NULL;
}

const char *pst_device_name(const struct pst_stage *self)
{
    return self->device;
}

int pst_port(const struct pst_stage *self, const char *name)
{
    (void)self;
    for (int i = 0; pst_stage.ports[i].name; i++)
        if (strcmp(pst_stage.ports[i].name, name) == 0)
            return i;
    fail_msg("no port %s", name);
    return -1;
}

#ifndef HOST_ROUTES /* a test with slots of several routes has its own */
bool pst_linked(const struct pst_stage *self, int port)
{
    const char *name = pst_stage.ports[port].name;
    return strcmp(name, "batch") == 0 || (self->oneshot != NULL && strcmp(name, "plan") == 0) ||
           (self->lists && (strcmp(name, "lists") == 0 || strcmp(name, "listed") == 0));
}

void pst_need(struct pst_stage *self, int port, uint64_t bytes, uint64_t align)
{
    (void)port;
    assert_int_equal(align, PST_PAGE);
    self->need = bytes;
}

uint32_t pst_slots(const struct pst_stage *self, int port)
{
    (void)self;
    (void)port;
    return HOST_SLOTS;
}

void *pst_slot(struct pst_stage *self, struct pst_ref ref, uint64_t *bytes)
{
    assert_true(self->held && ref.slot < HOST_SLOTS);
    *bytes = self->need;
    return self->slot + ref.slot * self->room;
}

pst_rc pst_slot_queued(struct pst_stage *self, struct pst_ref ref)
{
    assert_true(self->held && ref.slot < HOST_SLOTS);
    if (self->marks && self->stream)
        assert_non_null(self->mark = gpu_mark(self->device, self->stream));
    return PST_OK;
}
#endif

const char *pst_oneshot(const struct pst_stage *self, int port)
{
    (void)port;
    return self->oneshot;
}

void pst_total(struct pst_stage *self, int port, uint64_t batches)
{
    (void)port;
    self->total = batches;
}

void pst_fill_ahead(struct pst_stage *self, int port, uint32_t slots)
{
    (void)port;
    self->ahead = slots;
}

void pst_timer(struct pst_stage *self, int64_t microseconds)
{
    self->timer = microseconds >= 0;
}

pst_rc pst_stream(struct pst_stage *self, void *stream)
{
    self->stream = stream;
    return PST_OK;
}

pst_rc pst_publish(struct pst_stage *self, int port, const char *path)
{
    (void)port;
    snprintf(self->published, sizeof self->published, "%s", path);
    return PST_OK;
}

void pst_doing(struct pst_stage *self, enum pst_activity activity, uint64_t done, uint64_t total)
{
    (void)self;
    (void)activity;
    (void)done;
    (void)total;
}

void pst_count(struct pst_stage *self, uint64_t items, uint64_t bytes)
{
    (void)self;
    (void)items;
    (void)bytes;
}

void pst_count_lookups(struct pst_stage *self, uint64_t lookups, uint64_t hits)
{
    (void)self;
    (void)lookups;
    (void)hits;
}

void pst_span(struct pst_stage *self, const char *name, double begin_s, double end_s)
{
    (void)self;
    (void)name;
    assert_true(begin_s <= end_s);
}

void pst_span_of(struct pst_stage *self, const char *name, uint64_t batch, int hop, double begin_s,
                 double end_s)
{
    (void)self;
    (void)name;
    (void)batch;
    (void)hop;
    assert_true(begin_s <= end_s);
}

pst_rc pst_report(struct pst_stage *self, const char *section, const char *fmt, ...)
{
    const size_t used = strlen(self->reports);
    if (strcmp(section, "trainer") == 0) /* times, and rows of this process alone */
        return PST_OK;
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(self->reports + used, HOST_TEXT_MAX - used, "%s ", section);
    n += vsnprintf(self->reports + used + n, HOST_TEXT_MAX - used - (size_t)n, fmt, ap);
    snprintf(self->reports + used + n, HOST_TEXT_MAX - used - (size_t)n, "\n");
    va_end(ap);
    return PST_OK;
}

void pst_log(struct pst_stage *self, const char *fmt, ...)
{
    (void)self;
    (void)fmt;
}

void pst_warn(struct pst_stage *self, const char *fmt, ...)
{
    const size_t used = strlen(self->warnings);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(self->warnings + used, HOST_TEXT_MAX - used, fmt, ap);
    va_end(ap);
}

const char *pst_stage_name(const struct pst_stage *self)
{
    (void)self;
    return pst_stage.name;
}

/* ---- driving it ---------------------------------------------------------------------------------- */

static void host_begin(struct pst_stage *host, const char *dataset, const char *device, const char *run)
{
    memset(host, 0, sizeof *host);
    host->state = calloc(1, pst_stage.state_bytes);
    host->held = true;
    host->dataset = dataset;
    host->device = device;
    host->run_dir = run;
    (void)mkdir(run, 0777);
}

static inline void host_set(struct pst_stage *host, const char *name, const char *value)
{
    int i = 0;
    while (host->set[i][0])
        assert_true(++i < HOST_SETS);
    host->set[i][0] = name;
    host->set[i][1] = value;
}

/* Makes the slots of a stage on a GPU accessible to its kernels, or ends that. */
static inline void host_pin(struct pst_stage *host, bool pin)
{
    const int gpu = pst_gpu_number(host->device);
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES] = "";
    if (gpu < 0 || host->pinned == pin)
        return;
    host->pinned = pin;
    if (pst_gpus_open(&gpus) != PST_OK || (pin ? gpus->pin(gpu, host->slot, HOST_SLOTS * host->room, why)
                                               : gpus->unpin(gpu, host->slot, why)) != PST_OK)
        fail_msg("cannot %spin slots: %s", pin ? "" : "un", why);
}

static inline pst_rc host_open(struct pst_stage *host)
{
    host_bind(host);
    const pst_rc rc = pst_stage.size ? pst_stage.size(host) : PST_OK;
    if (rc != PST_OK)
        return rc;
    host->room = pst_align_up(host->need + 1, PST_PAGE);
    if (!host->slot) {
        host->slot = aligned_alloc(PST_PAGE, HOST_SLOTS * host->room);
        host_pin(host, true);
    }
    return pst_stage.open(host);
}

static inline void host_end(struct pst_stage *host)
{
    pst_stage.close(host);
    host_pin(host, false);
    free(host->state);
    free(host->slot);
    json_decref(host->params);
}

/* A small dataset. */
static const char *host_dataset(const char *name, int64_t vertices)
{
    struct pst_community_spec spec;
    struct pst_build build;
    const char *dir = in_scratch(name);
    pst_community_defaults(&spec);
    spec.vertices = vertices;
    spec.classes = 4;
    spec.feature_dim = 24;
    pst_rc rc = pst_build_begin(&build, dir, false);
    if (rc == PST_OK)
        rc = pst_gen_community(&spec, &build, NULL);
    if (rc == PST_OK)
        rc = pst_build_commit(&build);
    pst_build_release(&build);
    if (rc != PST_OK)
        fail_msg("%s", pst_error_text());
    return dir;
}

#endif
