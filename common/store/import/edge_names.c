/* edge_names.c: names of edges to their numbers, and the edges on to the topology. */
#include "common/store/import/edge_names.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/error.h"

static pst_rc note(void *ctx, bool must)
{
    return pst_edge_names_checkpoint(ctx, must ? PST_CSC_BUILDER_NOW : PST_CSC_BUILDER_IF_DUE);
}

static struct pst_names_spec names_spec(struct pst_edge_names *e)
{
    const struct pst_csc_builder_spec *csc = pst_csc_builder_spec_of(e->spec.csc);
    const bool named = pst_csc_builder_has_journal(e->spec.csc) && csc->replays;
    return (struct pst_names_spec){.dir = csc->build->partial,
                                   .named = named,
                                   .memory_bytes = e->spec.memory_bytes,
                                   .threads = csc->threads,
                                   .row = 2,
                                   .hash_bits = e->spec.hash_bits,
                                   .note = named ? note : NULL,
                                   .ctx = e,
                                   .progress = e->spec.progress};
}

pst_rc pst_edge_names_new(struct pst_edge_names **out, const struct pst_edge_names_spec *spec)
{
    struct pst_edge_names *e = calloc(1, sizeof *e); /* 700 KiB: not for the stack */
    *out = e;
    if (e == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of names");
    e->spec = *spec;
    const json_t *state = pst_csc_builder_state(spec->csc), *before = json_object_get(state, "names");
    const bool lost = pst_csc_builder_lost(spec->csc);
    if (state != NULL) /* what was in memory must be again */
        e->spec.memory_bytes = (uint64_t)json_integer_value(json_object_get(state, "memory"));
    const struct pst_names_spec names = names_spec(e);
    e->replaying = e->text_again = state != NULL;
    if (before == NULL)
        return pst_names_new(&e->names, &names);
    pst_rc rc = pst_names_load(&e->names, &names, before, lost);
    e->joined = lost ? 0 : (int64_t)json_integer_value(json_object_get(state, "joined"));
    e->replaying = e->text_again = rc == PST_OK && !pst_names_ready(e->names);
    return rc;
}

void pst_edge_names_free(struct pst_edge_names *e)
{
    if (e != NULL)
        pst_names_free(e->names);
    if (e != NULL && e->weights != NULL)
        (void)fclose(e->weights);
    free(e);
}

/* The first `edges` of the block have numbers. */
static pst_rc give(struct pst_edge_names *e, const int32_t *weight, size_t edges)
{
    const size_t s = e->spec.swapped ? 1 : 0;
    for (size_t i = 0; i < edges; i++) {
        e->source[i] = e->id[2 * i + s];
        e->target[i] = e->id[2 * i + 1 - s];
    }
    return pst_csc_builder_add(e->spec.csc, e->source, e->target, weight, (int64_t)edges);
}

static pst_rc put_weights_aside(struct pst_edge_names *e, const int32_t *weight, size_t edges)
{
    char path[PST_PATH_MAX];
    pst_build_temp(pst_csc_builder_spec_of(e->spec.csc)->build, "edge-weights", path);
    if (e->weights == NULL && (e->weights = fopen(path, "w+e")) == NULL)
        return pst_fail_errno("cannot create %s", path);
    return fwrite(weight, sizeof *weight, edges, e->weights) == edges
               ? PST_OK
               : pst_fail_errno("cannot write weights of edges to %s", path);
}

pst_rc pst_edge_names_flush(struct pst_edge_names *e, const int32_t *weight)
{
    const size_t edges = e->n / 2;
    size_t known = 0;
    const bool over = e->replaying && pst_edge_names_replayed(e); /* the rest of its text is not needed */
    pst_rc rc = over ? PST_OK : pst_names_add(e->names, e->mention, e->n, e->id, &known);
    if (rc == PST_OK && (!e->replaying || pst_csc_builder_lost(e->spec.csc)))
        rc = give(e, weight, known / 2);
    if (rc == PST_OK && weight != NULL && known / 2 < edges)
        rc = put_weights_aside(e, weight + known / 2, edges - known / 2);
    e->n = e->plain_fill = 0;
    return rc;
}

bool pst_edge_names_replayed(const struct pst_edge_names *e)
{
    return json_object_get(pst_csc_builder_state(e->spec.csc), "names") != NULL && pst_names_ready(e->names);
}

bool pst_edge_names_read(const struct pst_edge_names *e)
{
    return pst_names_step(e->names) > PST_NAMES_ADDING;
}

pst_rc pst_edge_names_go_on(struct pst_edge_names *e)
{
    e->n = e->plain_fill = 0;
    e->replaying = false;
    return pst_names_ready(e->names)
               ? PST_OK
               : pst_fail(PST_E_STATE, "--resume: %s has changed: import without --resume to start over",
                          e->spec.path);
}

pst_rc pst_edge_names_checkpoint(struct pst_edge_names *e, enum pst_csc_builder_when when)
{
    json_t *names = NULL, *state;
    pst_rc rc = PST_OK;
    const bool nothing =
        !pst_names_aside(e->names) && !pst_csc_builder_on_disk(e->spec.csc); /* is on the disk */
    if (when != PST_CSC_BUILDER_LAST &&
        (nothing || (when == PST_CSC_BUILDER_IF_DUE && !pst_csc_builder_due(e->spec.csc))))
        return PST_OK;
    if (when != PST_CSC_BUILDER_LAST && pst_names_aside(e->names) && pst_csc_builder_has_journal(e->spec.csc))
        rc = pst_names_state(e->names, &names);
    state = e->spec.state(e->spec.ctx);
    if (names != NULL)
        (void)json_object_set_new(state, "names", names);
    (void)json_object_set_new(state, "joined", json_integer((json_int_t)e->joined));
    (void)json_object_set_new(state, "memory", json_integer((json_int_t)e->spec.memory_bytes));
    if (rc != PST_OK)
        json_decref(state);
    return rc == PST_OK ? pst_csc_builder_checkpoint(e->spec.csc, state, when) : rc;
}

/* ---- what was put aside ---- */

/* The weights of the next edges that were put aside; *out is NULL if edges have none. */
static pst_rc next_weights(struct pst_edge_names *e, int32_t *room, size_t edges, const int32_t **out)
{
    *out = NULL;
    if (e->weights == NULL)
        return PST_OK;
    *out = room;
    return fread(room, sizeof *room, edges, e->weights) == edges
               ? PST_OK
               : pst_fail(PST_E_IO, "%s: cannot read back the weights of edges", e->spec.path);
}

static pst_rc join(struct pst_edge_names *e)
{
    int64_t edges = 0;
    int32_t room[PST_EDGE_NAMES_BATCH];
    if (e->weights != NULL)
        rewind(e->weights);
    pst_progress_begin(e->spec.progress, "edges: joining", pst_names_mentions_aside(e->names) / 2, false);
    for (;;) {
        size_t n = 0;
        pst_rc rc = pst_names_next(e->names, e->id, 2 * PST_EDGE_NAMES_BATCH, &n);
        if (rc == PST_OK && n == 0)
            break;
        edges += (int64_t)n / 2;
        const int32_t *weight = NULL;
        if (rc == PST_OK)
            rc = next_weights(e, room, n / 2, &weight);
        if (rc == PST_OK && edges > e->joined) { /* a note is made between two blocks */
            rc = give(e, weight, n / 2);
            e->joined = edges;
        }
        if (rc == PST_OK)
            rc = pst_progress_add(e->spec.progress, n / 2);
        if (rc == PST_OK)
            rc = pst_edge_names_checkpoint(e, PST_CSC_BUILDER_IF_DUE);
        if (rc != PST_OK)
            return rc;
    }
    pst_progress_end(e->spec.progress);
    return PST_OK;
}

pst_rc pst_edge_names_had(struct pst_build *b, int64_t *vertices)
{
    if (!pst_build_had(b, PST_ARRAY_NAMES_AT) || !pst_build_had(b, PST_ARRAY_NAMES))
        return pst_fail(PST_E_STATE,
                        "--resume: the arrays of names are missing: import without --resume to start over");
    *vertices = b->manifest.array[PST_ARRAY_NAMES_AT].shape[0] - 1;
    return PST_OK;
}

static pst_rc number_aside(struct pst_edge_names *e, int64_t names)
{
    pst_rc rc = PST_OK;
    if (pst_names_step(e->names) == PST_NAMES_FINDING)
        rc = pst_names_write(e->names, pst_csc_builder_spec_of(e->spec.csc)->build, PST_ARRAY_NAMES_AT,
                             PST_ARRAY_NAMES, 0, NULL);
    else
        rc = pst_edge_names_had(pst_csc_builder_spec_of(e->spec.csc)->build, &names);
    if (rc == PST_OK && pst_names_step(e->names) < PST_NAMES_GIVING)
        rc = pst_names_number(e->names);
    return rc == PST_OK ? join(e) : rc;
}

pst_rc pst_edge_names_finish(struct pst_edge_names *e, int64_t *vertices)
{
    const bool aside = pst_names_aside(e->names);
    struct pst_build *b = pst_csc_builder_spec_of(e->spec.csc)->build;
    uint64_t text_bytes;
    pst_rc rc = aside && pst_names_step(e->names) <= PST_NAMES_FINDING ? pst_names_find(e->names) : PST_OK;
    const int64_t names = pst_names_count(e->names, &text_bytes);
    if (rc == PST_OK && *vertices >= 0 && *vertices != names)
        rc = pst_fail(PST_E_FORMAT, "%s: expected %" PRId64 " vertices, found %" PRId64 " ids", e->spec.path,
                      *vertices, names);
    if (rc == PST_OK)
        rc = aside ? number_aside(e, names)
                   : pst_dict_write(pst_names_dict(e->names), b, PST_ARRAY_NAMES_AT, PST_ARRAY_NAMES);
    *vertices = names;
    return rc == PST_OK ? pst_edge_names_checkpoint(e, PST_CSC_BUILDER_LAST) : rc;
}
