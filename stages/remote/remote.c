/* remote.c: the stage `remote`: reads the feature rows that slots ask for, from the own part of a cut dataset
 * and, by MPI, from the parts that other ranks have. round.c has the exchange; this file knows ports and
 * frames. */
#include "stages/remote/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/store/dataset/rows.h"

#define NOTES_BYTES 4096

static pst_rc size(struct pst_stage *self)
{
    struct pst_remote *r = pst_state(self);
    r->in = pst_port(self, "requests");
    r->out = pst_port(self, "done");
    pst_need(self, r->in, PST_PAGE, PST_PAGE);
    const pst_rc rc = pst_dataset_open_part(&r->ds, pst_dataset_dir(self));
    if (rc == PST_OK && r->ds.vertex_types > 0)
        return pst_fail(
            PST_E_UNSUPPORTED,
            "%s has several types of vertices, whose rows differ in width: use the stage disk in place of "
            "remote",
            r->ds.dir);
    return rc == PST_OK ? pst_remote_hot_read(r, pst_oneshot(self, pst_port(self, "plan"))) : rc;
}

/* The rank of this machine. A whole dataset needs no other ranks. */
static pst_rc meet(struct pst_stage *self, struct pst_remote *r)
{
    const struct pst_dataset_cut *cut = &r->ds.cut;
    const pst_rc rc = pst_meet(self, &r->collective);
    const struct pst_collective *c = r->collective;
    r->ranks = 1;
    if (rc != PST_OK || cut->parts == 0)
        return rc;
    const int ranks = c != NULL ? c->members / c->near : 1, rank = c != NULL ? c->rank / c->near : 0;
    r->ranks = ranks;
    r->rank = rank;
    return ranks == cut->parts && rank == cut->part
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "%s is part %d of %d, but this is rank %d of %d: start as many ranks as there are "
                          "parts, and give each its part",
                          r->ds.dir, cut->part, cut->parts, rank, ranks);
}

static pst_rc start(struct pst_stage *self)
{
    struct pst_remote *r = pst_state(self);
    struct pst_disk_config *c = &r->config;
    const char *paths[PST_DATASET_FEATURE_FILES_MAX];
    char notes[NOTES_BYTES];
    pst_rc rc = meet(self, r);
    if (rc == PST_OK)
        rc = pst_remote_hot_open(r);
    if (rc != PST_OK)
        return rc;
    c->tables_max = 1;
    c->faults.bad_file = -1;
    for (int k = 0; k < pst_feature_files(&r->ds); k++)
        paths[k] = pst_feature_file(&r->ds, k)->path;
    pst_disk_config_add(c, PST_ARRAY_FEATURES, paths, (uint32_t)pst_feature_files(&r->ds),
                        r->ds.features.data_at, (uint64_t)r->ds.features.shape[0], r->ds.stride_bytes,
                        (uint64_t)r->ds.feature_dim * pst_dtype_bytes(r->ds.features.dtype));
    rc = pst_disk_new(&r->engine, c, notes, sizeof notes);
    if (rc == PST_OK && notes[0] != '\0')
        pst_warn(self, "%s", notes);
    if (rc == PST_OK)
        pst_log(self, "rank %d of %d reads the rows of %" PRId64 " vertices from vertex %" PRId64 " on",
                r->rank, r->ranks, r->ds.features.shape[0], r->ds.features.first_row);
    return rc;
}

/* Before the first batch. */
static pst_rc begin(struct pst_stage *self, struct pst_remote *r)
{
    const double from = pst_now();
    const pst_rc rc = pst_remote_hot_fetch(r);
    if (rc == PST_OK && r->hot.planned)
        pst_log(self, "cached %" PRId64 " rows of other parts in %.3f s", r->hot.n, pst_now() - from);
    r->alone = rc == PST_E_INTERRUPTED; /* the run ends on all ranks */
    return r->alone ? PST_OK : rc;
}

/* ---- frames -------------------------------------------------------------------------------------- */

static uint64_t all_of(const uint64_t *rows, int ranks)
{
    uint64_t sum = 0;
    for (int k = 0; k < ranks; k++)
        sum += rows[k];
    return sum;
}

/* Other ranks may have further slots of a batch whose last slot on this rank has gone. */
static pst_rc wait_for_batch(struct pst_remote *r, bool all)
{
    pst_rc rc = PST_OK;
    r->parts = 0;
    while (!all && rc == PST_OK)
        rc = pst_remote_round(r, NULL, 0, true, &all);
    return rc;
}

/* Brings the rows into the slot and sends it on. */
static pst_rc serve(struct pst_stage *self, struct pst_remote *r, const struct pst_frame *frame)
{
    uint64_t bytes = 0, requests = 0;
    struct pst_frame out = *frame;
    void *slot = frame->nrefs > 0 ? pst_slot(self, frame->refs[0], &bytes) : NULL;
    if (frame->nrefs > 0 && slot == NULL)
        return PST_E_STATE;
    const uint64_t before = pst_disk_stats(r->engine)->bytes, hits_before = all_of(r->counts.hits, r->ranks);
    const struct pst_minibatch *mb = slot;
    const bool last =
        (frame->flags & PST_LAST_MICRO) != 0 ||
        (slot != NULL && bytes >= sizeof *mb && mb->magic == PST_MINIBATCH_MAGIC && mb->last_micro);
    bool all;
    for (uint32_t p = 0; p < r->parts; p++)
        requests += r->part[p].n;
    const double begin = pst_now();
    pst_rc rc = pst_remote_round(r, slot, bytes, last, &all);
    pst_span_of(self, "X", frame->batch, -1, begin, pst_now());
    if (rc != PST_OK)
        return rc;
    if (slot != NULL)
        pst_minibatch_serve(slot, bytes, requests);
    pst_count(self, 1, pst_disk_stats(r->engine)->bytes - before);
    pst_count_lookups(self, 0,
                      all_of(r->counts.hits, r->ranks) - hits_before); /* the sampler counts look-ups */
    out.part = 0; /* the slot goes on as one part, which announces no requests */
    out.arg[0] = out.arg[1] = 0;
    rc = pst_send(self, r->out, &out);
    return rc == PST_OK && last ? wait_for_batch(r, all) : rc;
}

static pst_rc take_frame(struct pst_stage *self, struct pst_remote *r, const struct pst_frame *frame)
{
    if (frame->arg[1] > 0 && r->parts == PST_REMOTE_PARTS_MAX)
        return pst_fail(
            PST_E_PEER,
            "a batch has more than %d parts with requests: a stage must send its requests in fewer "
            "parts",
            PST_REMOTE_PARTS_MAX);
    if (frame->nrefs > 0 && frame->arg[1] > 0) {
        r->part[r->parts].at = frame->arg[0];
        r->part[r->parts++].n = frame->arg[1];
    }
    if (frame->nrefs > 0 && !(frame->flags & PST_LAST_PART))
        return PST_OK;
    const pst_rc rc = serve(self, r, frame);
    r->parts = 0;
    if (rc == PST_E_INTERRUPTED) { /* the run ends on all ranks, and nobody uses this batch */
        r->alone = true;
        return PST_OK;
    }
    return rc == PST_OK ? rc : pst_wrap(rc, "batch %" PRIu64, frame->batch);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct pst_remote *r = pst_state(self);
    if (event->kind == PST_EV_FINISH && r->collective != NULL)
        pst_collective_leave(r->collective); /* others may wait for this replica */
    if (event->kind == PST_EV_START)
        return begin(self, r);
    return event->kind == PST_EV_FRAME && !r->alone ? take_frame(self, r, event->frame) : PST_OK;
}

/* ---- the report ---------------------------------------------------------------------------------- */

/* Adds "NAME_K": n for each rank K. The supervisor adds these up over the replicas of this rank. */
static pst_rc list(struct pst_stage *self, const char *name, const uint64_t *rows, int ranks)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < ranks && rc == PST_OK; k++)
        rc = pst_report(self, "remote", "{\"%s_%d\": %" PRIu64 "}", name, k, rows[k]);
    return rc;
}

static pst_rc report(struct pst_stage *self, const struct pst_remote *r)
{
    const struct pst_disk_stats *s = pst_disk_stats(r->engine);
    const struct pst_disk_depth *depth = pst_disk_depth(r->engine);
    const struct pst_remote_counts *c = &r->counts;
    /* of the replicas of this rank, only one tells what is the same for all */
    const bool first = r->collective == NULL || r->collective->rank % r->collective->near == 0;
    const uint64_t hits = all_of(c->hits, r->ranks);
    pst_rc rc = pst_report(
        self, "io",
        "{\"backend\": \"%s\", \"direct\": \"%s\", \"requests\": %" PRIu64 ", \"bytes\": %" PRIu64
        ", \"rows\": %" PRIu64 ", \"row_bytes_wanted\": %" PRIu64 ", \"copied_bytes\": %" PRIu64
        ", \"retries\": %" PRIu64 ", \"merged\": %" PRIu64 ", \"active_s\": %.6f, \"in_flight_s\": %.6f, "
        "\"starved_s\": %.6f, \"depth\": %d, \"depth_needed\": %u, \"depth_from\": \"%s\"}",
        pst_disk_backend(r->engine), pst_disk_direct(r->engine) ? "yes" : "no", s->requests, s->bytes,
        s->rows, s->row_bytes_wanted, s->copied_bytes, s->retries, s->merged, s->active_s, s->in_flight_s,
        s->starved_s, depth->operations, depth->needed, depth->why);
    if (rc == PST_OK)
        rc = pst_report(self, "remote",
                        "{\"rounds\": %" PRIu64 ", \"own_rows\": %" PRIu64 ", \"asked_rows\": %" PRIu64
                        ", \"served_rows\": %" PRIu64 ", \"cached_rows\": %" PRId64
                        ", \"cache_hits\": %" PRIu64 ", \"row_bytes\": %" PRIu64
                        ", \"wait_s\": %.6f, \"read_s\": %.6f, \"exchange_s\": %.6f}",
                        c->rounds, c->own_rows, all_of(c->asked, r->ranks), all_of(c->served, r->ranks),
                        r->hot.n, hits, first ? r->ds.stride_bytes : 0, c->wait_s, c->read_s, c->rows_s);
    if (rc == PST_OK)
        rc = list(self, "asked_of", c->asked, r->ranks);
    if (rc == PST_OK)
        rc = list(self, "served_to", c->served, r->ranks);
    if (rc != PST_OK || !r->hot.planned)
        return rc;
    rc = list(self, "cached_of", c->cached, r->ranks);
    if (rc == PST_OK)
        rc = list(self, "hits_of", c->hits, r->ranks);
    /* the rank's cache is one: the sampler has reported its own rows */
    return rc == PST_OK
               ? pst_report(self, "cache", "{\"hits\": %" PRIu64 ", \"rows\": %" PRId64 "}", hits, r->hot.n)
               : rc;
}

static void shut(struct pst_stage *self)
{
    struct pst_remote *r = pst_state(self);
    if (r->collective != NULL)
        pst_collective_leave(r->collective);
    if (r->engine != NULL) {
        if (report(self, r) != PST_OK)
            pst_log(self, "cannot report the counts: %s", pst_error_text());
        pst_disk_free(r->engine);
    }
    pst_remote_hot_release(&r->hot);
    pst_remote_release_rooms(r);
    pst_dataset_close(&r->ds);
}

/* ---- what it says of itself ---------------------------------------------------------------------- */

static const struct pst_port_desc ports[] = {
    {.name = "requests",
     .dir = PST_IN,
     .type = "minibatch",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu",
     .requests = PST_REQUESTS_SERVES,
     .flags = PST_PORT_WRITES | PST_PORT_ORDERED,
     .help = "minibatches with a table of requests; all ranks take part in each"},
    {.name = "plan",
     .dir = PST_IN,
     .type = "plan",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu,pinned",
     .flags = PST_PORT_ONESHOT | PST_PORT_OPTIONAL,
     .help = "the planner's plan, which then caches hot rows of all parts: this stage fetches those of other "
             "parts once, and keeps them; without it, the rank caches rows of its own part only"},
    {.name = "done",
     .dir = PST_OUT,
     .type = "minibatch",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu",
     .forwards = "requests",
     .help = "the same minibatches, once all requested rows are in them"},
    {0},
};

static const struct pst_param_desc params[] = {
    {.name = "backend",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct pst_remote, config.backend),
     .def = "\"auto\"",
     .choices = "auto|file|pread",
     .help = "how the own rows are read: file: io_uring; pread: threads; auto: file, or pread if io_uring is "
             "forbidden"},
    {.name = "depth",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct pst_remote, config.depth),
     .def = "\"auto\"",
     .min = 1,
     .max = 4096,
     .automatic = true,
     .help = "most operations in flight; auto: 128"},
    {.name = "direct",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct pst_remote, config.direct),
     .def = "true",
     .help = "read past the page cache (O_DIRECT)"},
    {.name = "coalesce_bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct pst_remote, config.coalesce_bytes),
     .def = "\"128KiB\"",
     .min = 1,
     .max = 16777216,
     .help = "largest read that neighbouring rows are merged into"},
    {.name = "gap_bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct pst_remote, config.gap_bytes),
     .def = "\"4KiB\"",
     .min = 0,
     .max = 16777216,
     .help = "rows at most this far apart are read together, with what is between them; 0: only the rows"},
    {.name = "threads",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct pst_remote, config.threads),
     .def = "8",
     .min = 1,
     .max = 256,
     .help = "pread: threads, that is, operations in flight"},
    {.name = "retries",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct pst_remote, config.retries),
     .def = "3",
     .min = 0,
     .max = 1000,
     .help = "how often a failed operation is tried again before the run ends"},
    {0},
};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "remote",
    .help =
        "reads the feature rows that slots ask for from the own part of a cut dataset, and from the parts of "
        "other ranks by MPI",
    .ports = ports,
    .params = params,
    .instances_max = 1, /* all ranks take part in each slot, in the same order */
    .replicas = PST_REPLICAS_MEET,
    .dataset = "features,parts,lists",
    .state_bytes = sizeof(struct pst_remote),
    .size = size,
    .open = start,
    .on_event = on_event,
    .close = shut,
};
