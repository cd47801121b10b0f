/* finish.c: ends adding, gives the sorted keys, saves and loads the sorter. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/sort/sorter_state.h"

/* ---- giving them ---- */

static pst_rc finish_in_memory(struct pst_sorter *s, int64_t *distinct)
{
    size_t item = key_bytes(s->wide), last = (size_t)s->filling;
    s->n = last * (s->slice_bytes / item) + s->slice[last].n;
    s->scratch = malloc((s->n + 1) * item);
    if (s->scratch == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %zu edges", s->n);
    s->sorted = pst_sort_keys(s->arena, s->scratch, s->n, s->wide);
    if (s->spec.dedupe)
        s->n = pst_sorter_unique_keys(s->sorted, s->n, s->wide);
    *distinct = (int64_t)s->n;
    return PST_OK;
}

static pst_rc list_buckets(struct pst_sorter *s)
{
    s->order = calloc(s->parts.buckets, sizeof(struct bucket *));
    if (s->order == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the table of edge partitions");
    for (; s->buckets < s->parts.buckets; s->buckets++)
        s->order[s->buckets] = &s->parts.bucket[s->buckets];
    return PST_OK;
}

/* Parts bucket i again; its parts take its place. */
static pst_rc part_again(struct pst_sorter *s, size_t i)
{
    struct partition *again = realloc(s->again, (s->agains + 1) * sizeof *again);
    if (again == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot partition the edges again");
    s->again = again;
    struct partition *p = &again[s->agains++];
    pst_rc rc = pst_sorter_partition_again(p, &s->spill, s->order[i], s->wide, pst_sorter_buckets(s),
                                           pst_sorter_pack_keys(s));
    if (rc != PST_OK)
        return rc;
    struct bucket **order = realloc(s->order, (s->buckets + p->buckets) * sizeof(struct bucket *));
    if (order == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the table of edge partitions");
    s->order = order;
    memmove(order + i + p->buckets, order + i + 1, (s->buckets - i - 1) * sizeof(struct bucket *));
    for (unsigned k = 0; k < p->buckets; k++)
        order[i + k] = &p->bucket[k];
    s->buckets += p->buckets - 1;
    pst_sorter_partition_release(p, false);
    return PST_OK;
}

static struct give_spec giving(struct pst_sorter *s)
{
    return (struct give_spec){.spill = &s->spill,
                              .bucket = s->order,
                              .buckets = s->buckets,
                              .wide = s->wide,
                              .dedupe = s->spec.dedupe,
                              .workers = s->workers,
                              .memory_bytes = s->spec.memory_bytes};
}

/* Parts what does not fit again, from bucket `first` on, and begins to give. */
static pst_rc start_giving(struct pst_sorter *s, size_t first, int64_t *distinct)
{
    pst_rc rc = s->order == NULL ? list_buckets(s) : PST_OK;
    struct give_spec spec = giving(s);
    size_t fits = pst_sorter_giver_keys_max(&spec);
    int64_t all = 0;
    for (size_t i = 0; rc == PST_OK && i < s->buckets;) {
        const struct bucket *b = s->order[i];
        if (i >= first && b->keys > fits && b->min != b->max) {
            rc = part_again(s, i); /* and looks at its parts */
        } else {
            all += (int64_t)b->keys;
            i++;
        }
    }
    *distinct = s->spec.dedupe ? -1 : all;
    spec = giving(s);
    spec.first = first;
    return rc == PST_OK ? pst_sorter_giver_new(&s->giver, &spec) : rc;
}

pst_rc pst_sorter_finish(struct pst_sorter *s, int64_t *distinct)
{
    assert(!s->finished);
    s->finished = true;
    if (!spilling(s))
        return finish_in_memory(s, distinct);
    pst_rc rc = pst_sorter_settle(s);
    pst_sorter_end_workers(s);
    pst_sorter_free_parting(s);
    return rc == PST_OK ? start_giving(s, 0, distinct) : rc;
}

pst_rc pst_sorter_next(struct pst_sorter *s, int64_t *high, int64_t *low, int32_t *tag, int64_t *n)
{
    assert(s->finished && (tag != NULL || !s->spec.tagged));
    if (s->giver != NULL)
        return pst_sorter_giver_next(s->giver, high, low, tag, n);
    size_t take = s->n - s->given < PST_SORTER_BLOCK ? s->n - s->given : PST_SORTER_BLOCK;
    pst_sorter_keys_out((const char *)s->sorted + s->given * key_bytes(s->wide), take, s->wide, 0, 32, high,
                        low, tag);
    s->given += take;
    *n = (int64_t)take;
    return PST_OK;
}

/* ---- to be resumed ---- */

pst_rc pst_sorter_save(struct pst_sorter *s, const char *name)
{
    assert(s->spec.named && spilling(s));
    struct index_part of = {.finished = s->finished, .wide = s->wide, .pack_keys = pst_sorter_pack_keys(s)};
    pst_rc rc = s->finished ? PST_OK : pst_sorter_settle(s);
    if (rc == PST_OK && !s->finished)
        rc = list_buckets(s);
    if (rc == PST_OK) {
        of.bucket = s->order;
        of.buckets = s->buckets;
        of.splitters = s->finished ? NULL : &s->parts;
        rc = pst_sorter_index_write(&s->spill, &of, s->spec.dir, name);
    }
    if (!s->finished) { /* the list is made anew when all are there */
        free(s->order);
        s->order = NULL;
        s->buckets = 0;
    }
    return rc;
}

static pst_rc go_on_parting(struct pst_sorter *s, const struct index_part *of)
{
    pst_rc rc = PST_OK;
    for (unsigned i = 0; rc == PST_OK && i < s->parts.buckets; i++)
        rc = pst_sorter_bucket_reload(&s->spill, &s->parts.bucket[i]);
    s->wide = of->wide;
    s->filling = s->taking = s->fresh; /* keys were written: slices go round */
    s->slice[slice_at(s, s->filling)].wide = s->wide;
    return rc == PST_OK ? pst_sorter_start_scattering(s) : rc;
}

pst_rc pst_sorter_load(struct pst_sorter **out, const struct pst_sorter_spec *spec, const char *name,
                       uint64_t first)
{
    struct index_part of;
    int64_t distinct;
    pst_rc rc = pst_sorter_new(out, spec);
    if (rc != PST_OK)
        return rc;
    struct pst_sorter *s = *out;
    rc = pst_sorter_index_read(&s->spill, &s->parts, &of, spec->dir, name);
    if (rc == PST_OK)
        rc = pst_sorter_spill_make(&s->spill, spec->dir, true);
    if (rc == PST_OK && !of.finished)
        return go_on_parting(s, &of);
    if (rc != PST_OK)
        return rc;
    s->finished = true;
    s->wide = of.wide;
    pst_sorter_free_parting(s);
    return start_giving(s, (size_t)first, &distinct);
}

uint64_t pst_sorter_done(const struct pst_sorter *s)
{
    return s->giver != NULL ? pst_sorter_giver_done(s->giver) : 0;
}

bool pst_sorter_finished(const struct pst_sorter *s)
{
    return s->finished;
}

int64_t pst_sorter_parts(const struct pst_sorter *s)
{
    return s->finished ? (int64_t)s->buckets : (int64_t)s->parts.buckets;
}
