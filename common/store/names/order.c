/* The names' order: all are numbered by their first mention, and then each mention gets its number. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/names/names_impl.h"

struct ordering {
    struct pst_names *n;
    pst_names_fn fn;
    void *ctx;
    struct pst_log_stream_reader log, names[PST_NAMES_PARTS_MAX];
    uint64_t wait[PST_NAMES_PARTS_MAX]; /* mentions up to the stream's next new name */
    int64_t number;
};

/* A whole record ahead: the distance's bytes to *head, and the name's. */
static pst_rc record_ahead(struct pst_log_stream_reader *r, uint64_t *distance, size_t *head,
                           struct pst_name *name, size_t *bytes)
{
    pst_rc rc = pst_log_stream_ahead(r, 2 * VARINT_MAX);
    *distance = UINT64_MAX;
    *bytes = 0;
    if (rc != PST_OK || r->at == r->end)
        return rc; /* an empty stream has no buffer */
    const unsigned char *p = r->buffer + r->at;
    if (!get_varint(&p, r->buffer + r->end, distance) || *distance == 0)
        return damaged();
    *head = (size_t)(p - (r->buffer + r->at));
    *name = name_ahead(r, *head, bytes);
    if (*bytes > 0)
        return PST_OK;
    if ((rc = pst_log_stream_ahead(r, 2 * VARINT_MAX + PST_NAMES_BYTES_MAX)) != PST_OK)
        return rc;
    *name = name_ahead(r, *head, bytes);
    return *bytes > 0 ? PST_OK : damaged();
}

/* The stream's next new name is mentioned here. */
static pst_rc give_name(struct ordering *o, int part, int64_t mention)
{
    struct pst_log_stream_reader *r = &o->names[part];
    struct pst_name name = {NULL, 0};
    uint64_t distance;
    size_t head = 0, bytes = 0;
    pst_rc rc = record_ahead(r, &distance, &head, &name, &bytes);
    if (rc == PST_OK && bytes == 0)
        rc = damaged();
    if (rc == PST_OK)
        rc = o->fn(o->ctx, mention, name);
    if (rc == PST_OK)
        rc = pst_log_stream_put(&o->n->file[FILE_ASSIGNED], part, &o->number, sizeof o->number);
    if (rc != PST_OK)
        return rc;
    o->number++;
    r->at += head + bytes;
    return record_ahead(r, &o->wait[part], &head, &name, &bytes);
}

static pst_rc give_resident(struct ordering *o)
{
    struct pst_log_stream_reader r;
    struct pst_name name[NAMES_BATCH];
    size_t count = 1, bytes;
    pst_rc rc = PST_OK;
    pst_log_stream_read(&r, &o->n->file[FILE_LOG], LOG_NAMES);
    while (rc == PST_OK && count > 0) {
        rc = pst_names_take(&r, name, &count, &bytes);
        for (size_t i = 0; rc == PST_OK && i < count; i++)
            rc = o->fn(o->ctx, -1, name[i]);
        r.at += bytes;
    }
    pst_log_stream_reader_release(&r);
    return rc;
}

static pst_rc give_rest(struct ordering *o)
{
    const int parts = o->n->parts;
    pst_rc rc = PST_OK;
    for (int64_t mention = 0;;) {
        if ((rc = pst_log_stream_ahead(&o->log, 1)) != PST_OK || o->log.at == o->log.end)
            return rc;
        const size_t bytes = o->log.end - o->log.at;
        const unsigned char *code = o->log.buffer + o->log.at;
        for (size_t i = 0; rc == PST_OK && i < bytes; i++, mention++)
            if (code[i] < parts && --o->wait[code[i]] == 0)
                rc = give_name(o, code[i], mention);
        o->log.at += bytes;
        if (rc == PST_OK)
            rc = pst_progress_add(o->n->spec.progress, bytes);
        if (rc != PST_OK)
            return rc;
    }
}

static pst_rc begin_order(struct ordering *o)
{
    struct pst_names *n = o->n;
    pst_rc rc = pst_names_open(n, FILE_ASSIGNED, n->parts);
    pst_log_stream_read(&o->log, &n->file[FILE_LOG], LOG_PARTS);
    for (int p = 0; rc == PST_OK && p < n->parts; p++) {
        struct pst_name name;
        size_t head, bytes;
        pst_log_stream_read(&o->names[p], &n->file[FILE_FOUND], found_names(p));
        rc = record_ahead(&o->names[p], &o->wait[p], &head, &name, &bytes);
    }
    return rc;
}

pst_rc pst_names_order(struct pst_names *n, pst_names_fn fn, void *ctx)
{
    uint64_t text_bytes;
    const int64_t names = pst_names_count(n, &text_bytes);
    struct ordering *o =
        calloc(1, sizeof *o); /* 20 KiB: not for the stack of a thread that does this again */
    if (o == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort the names");
    assert(n->step == PST_NAMES_FINDING);
    *o = (struct ordering){.n = n, .fn = fn, .ctx = ctx, .number = n->resident};
    pst_progress_begin(n->spec.progress, "names: ordering", n->mentions_aside, false);
    pst_rc rc = begin_order(o);
    if (rc == PST_OK)
        rc = give_resident(o);
    if (rc == PST_OK)
        rc = give_rest(o);
    if (rc == PST_OK)
        rc = pst_log_streams_end(&n->file[FILE_ASSIGNED]);
    if (rc == PST_OK && o->number != names)
        rc = damaged();
    if (rc == PST_OK)
        pst_progress_end(n->spec.progress);
    pst_log_stream_reader_release(&o->log);
    for (int p = 0; p < n->parts; p++)
        pst_log_stream_reader_release(&o->names[p]);
    free(o);
    return rc;
}

/* ---- each mention's number ---- */

static pst_rc read_assigned(struct pst_names *n, int part, int64_t *number)
{
    struct pst_log_stream_reader r;
    const size_t bytes = n->part[part].names * sizeof *number;
    pst_rc rc = PST_OK;
    size_t done = 0;
    pst_log_stream_read(&r, &n->file[FILE_ASSIGNED], part);
    while (rc == PST_OK && done < bytes) {
        rc = pst_log_stream_ahead(&r, 1);
        size_t take = r.end - r.at;
        take = take < bytes - done ? take : bytes - done;
        if (rc == PST_OK && take == 0)
            rc = damaged();
        if (rc == PST_OK)
            memcpy((char *)number + done, r.buffer + r.at, take);
        r.at += take;
        done += take;
    }
    pst_log_stream_reader_release(&r);
    return rc;
}

static pst_rc number_part(struct pst_names *n, int part, uint64_t memory_bytes)
{
    const struct names_part *p = &n->part[part];
    struct pst_ids_writer w = {.s = &n->file[FILE_NUMBERS], .stream = part};
    struct pst_ids_reader r = {.n = 0};
    (void)memory_bytes; /* 8 bytes a name: finding took more */
    int64_t *number = malloc((p->names + 1) * sizeof *number), id = 0;
    pst_rc rc = number != NULL ? read_assigned(n, part, number)
                               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %llu numbers",
                                          (unsigned long long)p->names);
    pst_log_stream_read(&r.r, &n->file[FILE_FOUND], found_ids(part));
    for (uint64_t i = 0; rc == PST_OK && i < p->mentions; i++) {
        rc = pst_ids_next(&r, &id);
        if (rc == PST_OK && (uint64_t)id >= p->names)
            rc = damaged();
        if (rc == PST_OK)
            rc = pst_ids_put(&w, (uint64_t)number[id]);
        if (i % PST_NAMES_PACK_IDS != 0)
            continue;
        (void)__atomic_fetch_add(&n->worked,
                                 p->mentions - i < PST_NAMES_PACK_IDS ? p->mentions - i : PST_NAMES_PACK_IDS,
                                 __ATOMIC_RELAXED);
        if (rc == PST_OK && pst_names_stopped(n))
            rc = pst_fail(PST_E_INTERRUPTED, "interrupted");
    }
    if (rc == PST_OK)
        rc = pst_ids_flush(&w);
    if (rc == PST_OK)
        rc = pst_log_stream_end(w.s, part);
    pst_log_stream_reader_release(&r.r);
    free(number);
    return rc;
}

pst_rc pst_names_number(struct pst_names *n)
{
    pst_rc rc = PST_OK;
    if (n->step == PST_NAMES_FINDING) {
        rc = pst_names_open(n, FILE_NUMBERS, n->parts);
        pst_names_begin_step(n, PST_NAMES_NUMBERING);
        if (rc == PST_OK)
            rc = pst_names_note(n);
        pst_log_streams_close(&n->file[FILE_MENTIONS], rc != PST_OK);
    }
    if (rc == PST_OK)
        rc = pst_names_run_parts(n, number_part, "names: numbering");
    if (rc != PST_OK)
        return rc;
    pst_names_begin_step(n, PST_NAMES_GIVING);
    rc = pst_names_note(n);
    pst_log_streams_close(&n->file[FILE_FOUND], rc != PST_OK);
    pst_log_streams_close(&n->file[FILE_ASSIGNED], rc != PST_OK);
    return rc;
}
