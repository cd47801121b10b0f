/* csc_builder.c: edges to the sorter, and from it, by rising target, to indptr, indices and what edges have
 * beside: relations, weights or times. */
#include "common/store/build/csc_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/build/csc_builder_out.h"
#include "common/store/sort/sorter.h"

#define INDEX_NAME "temp-edges.index-%" PRId64

#define OWN_BYTES (2u * (8 + 8 + 4) * PST_CSC_BUILDER_EDGE_BLOCK) /* of the three arrays below */

static_assert(PST_CSC_BUILDER_ID_MAX == PST_SORTER_ID_MAX, "every id is a key");
static_assert(PST_CSC_BUILDER_MEMORY_MIN > OWN_BYTES + PST_SORTER_MEMORY_MIN, "the least that sorts");

struct pst_csc_builder {
    struct pst_csc_builder_spec spec;
    struct pst_csc_builder_counts counts;
    struct pst_sorter *sorter;
    int64_t *high, *low; /* room for 2 * PST_CSC_BUILDER_EDGE_BLOCK arcs */
    int32_t *tag;
    int64_t largest;             /* id that was seen; -1: none */
    int64_t arcs;                /* given to the sorter */
    const struct pst_rank *rank; /* NULL: ids stay */
    enum pst_csc_builder_phase phase;
    json_t *state; /* of the feed, as of the last checkpoint; NULL: none */
    bool lost;     /* state is there, but no edge that was added before it */
    int64_t saved; /* checkpoints, so that each has a file of its own */
};

/* ---- to be resumed ---- */

static int64_t number(const json_t *o, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(o, key));
}

/* What was done before the kill. */
static pst_rc resume(struct pst_csc_builder *c, const struct pst_sorter_spec *sorter, const json_t *o)
{
    const char *phase = json_string_value(json_object_get(o, "phase"));
    char name[PST_NAME_MAX];
    c->phase = phase == NULL                   ? PST_CSC_BUILDER_READING
               : strcmp(phase, "sorting") == 0 ? PST_CSC_BUILDER_SORTING
               : strcmp(phase, "done") == 0    ? PST_CSC_BUILDER_DONE
                                               : PST_CSC_BUILDER_READING;
    c->saved = number(o, "saved");
    c->state = json_incref(json_object_get(o, "state"));
    c->lost = json_is_true(json_object_get(o, "lost"));
    if (c->lost)
        return pst_sorter_new(&c->sorter, sorter);
    c->largest = number(o, "largest");
    c->arcs = number(o, "arcs");
    c->counts.loops_removed = number(o, "loops_removed");
    (void)snprintf(name, sizeof name, INDEX_NAME, c->saved);
    if (c->phase == PST_CSC_BUILDER_DONE)
        return PST_OK;
    return pst_sorter_load(&c->sorter, sorter, name, (uint64_t)number(o, "buckets"));
}

/* What every record of the edges in the journal has. */
static json_t *record(const struct pst_csc_builder *c, const char *phase)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:O*}", "phase", phase, "largest", (json_int_t)c->largest,
                     "arcs", (json_int_t)c->arcs, "loops_removed", (json_int_t)c->counts.loops_removed,
                     "saved", (json_int_t)c->saved, "state", c->state);
}

static pst_rc put_record(struct pst_csc_builder *c, json_t *o)
{
    struct pst_journal *j = &c->spec.build->journal;
    if (o == NULL || json_object_set_new(j->root, "edges", o) != 0)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a journal");
    return pst_journal_save(j);
}

/* The sorter's index under a new name, then the journal that names it, and the old one is no more. */
static pst_rc save(struct pst_csc_builder *c, const char *phase)
{
    char name[PST_NAME_MAX], old[4096 + PST_NAME_MAX + 2];
    (void)snprintf(old, sizeof old, "%s/" INDEX_NAME, c->spec.build->partial, c->saved);
    c->saved++;
    (void)snprintf(name, sizeof name, INDEX_NAME, c->saved);
    pst_rc rc = pst_sorter_save(c->sorter, name);
    if (rc == PST_OK)
        rc = put_record(c, record(c, phase));
    if (rc == PST_OK)
        (void)unlink(old);
    return rc;
}

static bool resumable(const struct pst_csc_builder *c)
{
    return c->spec.resumable && c->spec.build->journal.root != NULL && pst_sorter_parts(c->sorter) > 0;
}

/* Edges can still be added again, if none is on the disk. */
static bool replayable(const struct pst_csc_builder *c)
{
    return c->spec.replays && c->spec.build->journal.root != NULL && !pst_sorter_finished(c->sorter);
}

bool pst_csc_builder_due(const struct pst_csc_builder *c)
{
    return (resumable(c) || replayable(c)) && pst_journal_due(&c->spec.build->journal);
}

static pst_rc save_state_alone(struct pst_csc_builder *c)
{
    json_t *o = record(c, "reading");
    (void)json_object_set_new(o, "lost", json_true());
    (void)json_object_set_new(o, "arcs", json_integer(0));
    return put_record(c, o);
}

pst_rc pst_csc_builder_checkpoint(struct pst_csc_builder *c, json_t *state, enum pst_csc_builder_when when)
{
    json_decref(c->state);
    c->state = state;
    if (when == PST_CSC_BUILDER_LAST || (when == PST_CSC_BUILDER_IF_DUE && !pst_csc_builder_due(c)))
        return PST_OK;
    if (resumable(c))
        return save(c, "reading");
    return replayable(c) ? save_state_alone(c) : PST_OK;
}

static pst_rc begin(struct pst_csc_builder *c)
{
    const struct pst_csc_builder_spec *spec = &c->spec;
    assert(spec->relations + spec->weights + spec->times <= 1);
    if (spec->memory_bytes < PST_CSC_BUILDER_MEMORY_MIN)
        return pst_fail(PST_E_LIMIT,
                        "--memory: sorting edges needs at least %u bytes, but only %" PRIu64
                        " bytes of the memory are left for it: increase --memory",
                        PST_CSC_BUILDER_MEMORY_MIN, spec->memory_bytes);
    c->high = malloc(2 * PST_CSC_BUILDER_EDGE_BLOCK * sizeof *c->high);
    c->low = malloc(2 * PST_CSC_BUILDER_EDGE_BLOCK * sizeof *c->low);
    c->tag = malloc(2 * PST_CSC_BUILDER_EDGE_BLOCK * sizeof *c->tag);
    if (c->high == NULL || c->low == NULL || c->tag == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of edges");
    const struct pst_sorter_spec sorter = {.dir = spec->build->partial,
                                           .memory_bytes = spec->memory_bytes - OWN_BYTES,
                                           .threads = spec->threads,
                                           .dedupe = spec->dedupe && !spec->weights,
                                           .tagged = pst_csc_builder_out_tagged(&c->spec),
                                           .named = spec->build->journal.root != NULL};
    const json_t *before = json_object_get(spec->build->journal.root, "edges");
    if (spec->resumable && spec->build->resumed && before != NULL)
        return resume(c, &sorter, before);
    return pst_sorter_new(&c->sorter, &sorter);
}

pst_rc pst_csc_builder_new(struct pst_csc_builder **out, const struct pst_csc_builder_spec *spec)
{
    struct pst_csc_builder *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot build the topology");
    c->spec = *spec;
    c->largest = -1;
    pst_rc rc = begin(c);
    if (rc == PST_OK)
        *out = c;
    else
        pst_csc_builder_free(c);
    return rc;
}

const struct pst_csc_builder_spec *pst_csc_builder_spec_of(const struct pst_csc_builder *c)
{
    return &c->spec;
}

const struct pst_csc_builder_counts *pst_csc_builder_counts(const struct pst_csc_builder *c)
{
    return &c->counts;
}

int64_t pst_csc_builder_largest(const struct pst_csc_builder *c)
{
    return c->largest;
}

void pst_csc_builder_renumber(struct pst_csc_builder *c, const struct pst_rank *rank)
{
    c->rank = rank;
}

enum pst_csc_builder_phase pst_csc_builder_phase(const struct pst_csc_builder *c)
{
    return c->phase;
}

const json_t *pst_csc_builder_state(const struct pst_csc_builder *c)
{
    return c->state;
}

bool pst_csc_builder_lost(const struct pst_csc_builder *c)
{
    return c->lost;
}

bool pst_csc_builder_on_disk(const struct pst_csc_builder *c)
{
    return c->sorter != NULL && pst_sorter_parts(c->sorter) > 0;
}

bool pst_csc_builder_has_journal(const struct pst_csc_builder *c)
{
    return c->spec.build->journal.root != NULL;
}

int64_t pst_csc_builder_sample(const struct pst_csc_builder *c, int64_t edges)
{
    const int64_t arcs = c->spec.symmetrize ? 2 : 1;
    return c->arcs > 0 ? 0 : pst_sorter_sample(c->sorter, arcs * edges) / arcs;
}

pst_rc pst_csc_builder_expect(struct pst_csc_builder *c, const int64_t *source, const int64_t *target,
                              int64_t n)
{
    pst_rc rc = PST_OK;
    if (!c->spec.transpose || c->spec.symmetrize)
        rc = pst_sorter_expect(c->sorter, target, source, n);
    if (rc == PST_OK && (c->spec.transpose || c->spec.symmetrize))
        rc = pst_sorter_expect(c->sorter, source, target, n);
    return rc;
}

pst_rc pst_csc_builder_add(struct pst_csc_builder *c, const int64_t *source, const int64_t *target,
                           const int32_t *tag, int64_t n)
{
    assert(n <= PST_CSC_BUILDER_EDGE_BLOCK && (tag != NULL) == pst_csc_builder_out_tagged(&c->spec));
    if (c->spec.transpose) {
        const int64_t *swap = source;
        source = target;
        target = swap;
    }
    int64_t arcs = 0, largest = c->largest;
    if (c->spec.self_loops == PST_LOOPS_KEEP && !c->spec.symmetrize) { /* the arcs are the edges */
        for (int64_t i = 0; i < n; i++)
            largest = pst_max_i64(largest, pst_max_i64(source[i], target[i]));
        c->largest = largest;
        c->arcs += n;
        return pst_sorter_add(c->sorter, target, source, tag, n);
    }
    bool keep = c->spec.self_loops == PST_LOOPS_KEEP, both = c->spec.symmetrize;
    for (int64_t i = 0; i < n; i++) {
        int64_t s = source[i], t = target[i];
        largest = pst_max_i64(largest, pst_max_i64(s, t));
        bool loop = s == t;
        c->high[arcs] = t;
        c->low[arcs] = s;
        c->tag[arcs] = tag != NULL ? tag[i] : 0;
        arcs += keep || !loop;
        c->high[arcs] = s;
        c->low[arcs] = t;
        c->tag[arcs] = tag != NULL ? tag[i] : 0;
        arcs += both && !loop;
        c->counts.loops_removed += loop && !keep;
    }
    c->largest = largest;
    c->arcs += arcs;
    return pst_sorter_add(c->sorter, c->high, c->low, tag != NULL ? c->tag : NULL, arcs);
}

/* Between two buckets: what was written of them is on the disk, and the journal says so. */
static pst_rc note_written(struct pst_csc_builder *c, struct pst_csc_builder_out *o)
{
    struct pst_build *b = c->spec.build;
    pst_rc rc = pst_csc_builder_out_flush(o);
    if (rc == PST_OK)
        rc = pst_build_note(b, PST_ARRAY_INDPTR, &o->indptr);
    if (rc == PST_OK)
        rc = pst_build_note(b, PST_ARRAY_INDICES, &o->indices);
    if (rc == PST_OK && pst_csc_builder_out_tagged(&c->spec))
        rc = pst_build_note(b, pst_csc_builder_out_tag_array(&c->spec), &o->tags);
    if (rc != PST_OK)
        return rc;
    json_t *r = record(c, "sorting");
    (void)json_object_set_new(r, "vertices", json_integer((json_int_t)o->vertices));
    (void)json_object_set_new(r, "buckets", json_integer((json_int_t)pst_sorter_done(c->sorter)));
    (void)json_object_set_new(r, "edges", json_integer((json_int_t)o->edges));
    (void)json_object_set_new(r, "target", json_integer((json_int_t)o->target));
    (void)json_object_set_new(r, "next_loop", json_integer((json_int_t)o->next_loop));
    pst_csc_builder_sum_save(&o->sum, r);
    return put_record(c, r);
}

static pst_rc write_arcs(struct pst_csc_builder *c, struct pst_csc_builder_out *o,
                         struct pst_progress *progress)
{
    const bool tagged = pst_csc_builder_out_tagged(&c->spec);
    uint64_t noted = pst_sorter_done(c->sorter);
    bool plain = c->spec.self_loops != PST_LOOPS_ADD && !tagged && o->ids == PST_I32;
    for (;;) {
        int64_t n;
        pst_rc rc = pst_sorter_next(c->sorter, c->high, c->low, c->tag, &n);
        if (rc != PST_OK || n == 0)
            return rc;
        for (int64_t i = 0; i < n && c->rank != NULL; i++) {
            c->high[i] = pst_rank_of(c->rank, c->high[i]);
            c->low[i] = pst_rank_of(c->rank, c->low[i]);
        }
        if (plain && (rc = pst_csc_builder_out_put_plain(o, c->high, c->low, n)) != PST_OK)
            return rc;
        for (int64_t i = 0; !plain && i < n; i++)
            if ((rc = pst_csc_builder_out_put(o, c->high[i], c->low[i], tagged ? c->tag[i] : 0)) != PST_OK)
                return rc;
        if ((rc = pst_progress_add(progress, (uint64_t)n)) != PST_OK)
            return rc;
        if (pst_sorter_done(c->sorter) == noted || !pst_csc_builder_due(c))
            continue;
        noted = pst_sorter_done(c->sorter);
        if ((rc = note_written(c, o)) != PST_OK)
            return rc;
    }
}

static void tell_counts(struct pst_csc_builder *c, int64_t vertices, int64_t edges)
{
    c->counts.edges = edges;
    c->counts.loops_added = c->spec.self_loops == PST_LOOPS_ADD ? vertices : 0;
    c->counts.duplicates_removed = c->arcs + c->counts.loops_added - edges;
    c->spec.build->manifest.vertices = vertices;
    c->spec.build->manifest.edges = edges;
}

/* All arrays were written before: false when one is not what the journal says. */
static bool take_finished(struct pst_csc_builder *c, int64_t vertices)
{
    struct pst_build *b = c->spec.build;
    const json_t *o = json_object_get(b->journal.root, "edges");
    if (!pst_build_had(b, PST_ARRAY_INDPTR) || !pst_build_had(b, PST_ARRAY_INDICES) ||
        (pst_csc_builder_out_tagged(&c->spec) && !pst_build_had(b, pst_csc_builder_out_tag_array(&c->spec))))
        return false;
    c->counts.parts = number(o, "parts");
    tell_counts(c, vertices, number(o, "edges"));
    return true;
}

static pst_rc note_done(struct pst_csc_builder *c)
{
    json_t *r = record(c, "done");
    (void)json_object_set_new(r, "edges", json_integer((json_int_t)c->counts.edges));
    (void)json_object_set_new(r, "parts", json_integer((json_int_t)c->counts.parts));
    return put_record(c, r);
}

/* Where the arrays were at the last note; a fresh sorter's index is saved first. */
static pst_rc begin_sorting(struct pst_csc_builder *c, struct pst_csc_builder_out *o, int64_t *distinct)
{
    const json_t *before = json_object_get(c->spec.build->journal.root, "edges");
    if (c->phase == PST_CSC_BUILDER_READING) {
        pst_rc rc = pst_sorter_finish(c->sorter, distinct);
        *distinct = pst_csc_builder_out_sums(&c->spec) ? -1 : *distinct;
        return rc == PST_OK && resumable(c) && c->state != NULL ? save(c, "sorting") : rc;
    }
    *distinct = c->spec.dedupe ? -1 : c->arcs;
    if (json_object_get(before, "target") == NULL) /* killed before the first note */
        return PST_OK;
    o->noted = true;
    o->edges = number(before, "edges");
    o->target = number(before, "target");
    o->next_loop = number(before, "next_loop");
    pst_csc_builder_sum_load(&o->sum, before);
    return PST_OK;
}

static pst_rc write_all(struct pst_csc_builder *c, struct pst_csc_builder_out *o,
                        struct pst_progress *progress)
{
    int64_t distinct = 0;
    pst_rc rc = begin_sorting(c, o, &distinct);
    if (rc != PST_OK)
        return rc;
    c->counts.parts = pst_sorter_parts(c->sorter);
    c->counts.loops_added = c->spec.self_loops == PST_LOOPS_ADD ? o->vertices : 0;
    pst_progress_begin(progress, c->counts.parts > 0 ? "edges: sorting" : "edges: writing", (uint64_t)c->arcs,
                       false);
    bool counted = distinct >= 0;
    if ((rc = pst_csc_builder_out_begin(o, (counted ? distinct : c->arcs) + c->counts.loops_added)) != PST_OK)
        return rc;
    if ((rc = write_arcs(c, o, progress)) != PST_OK || (rc = pst_csc_builder_out_put_last(o)) != PST_OK)
        return rc;
    c->spec.build->journal.held = true; /* the arrays are all finished, or none is */
    return pst_csc_builder_out_end(o, counted);
}

pst_rc pst_csc_builder_finish(struct pst_csc_builder *c, int64_t vertices, struct pst_progress *progress)
{
    if (c->phase == PST_CSC_BUILDER_DONE && take_finished(c, vertices))
        return PST_OK;
    if (c->phase == PST_CSC_BUILDER_DONE)
        return pst_fail(PST_E_STATE,
                        "--resume: %s does not match the journal of the interrupted import: import without "
                        "--resume to start over",
                        c->spec.build->partial);
    struct pst_csc_builder_out *o = calloc(1, sizeof *o); /* 400 KiB: not for the stack */
    if (o == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot write edges");
    o->spec = &c->spec;
    o->ids = pst_manifest_id_dtype(vertices);
    o->vertices = vertices;
    o->target = -1;
    o->indptr.fd = o->indices.fd = o->tags.fd = -1;
    pst_rc rc = write_all(c, o, progress);
    c->spec.build->journal.held = false;
    if (rc == PST_OK) {
        pst_progress_end(progress);
        tell_counts(c, vertices, o->edges);
        bool remembered = c->spec.resumable && c->spec.build->journal.root != NULL && c->state != NULL;
        rc = remembered ? note_done(c) : pst_journal_save(&c->spec.build->journal);
    }
    pst_array_writer_release(&o->indptr);
    pst_array_writer_release(&o->indices);
    pst_array_writer_release(&o->tags);
    free(o);
    return rc;
}

void pst_csc_builder_free(struct pst_csc_builder *c)
{
    if (c == NULL)
        return;
    pst_sorter_free(c->sorter);
    json_decref(c->state);
    free(c->high);
    free(c->low);
    free(c->tag);
    free(c);
}
