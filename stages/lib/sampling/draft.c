/* draft.c: the steps of a micro-batch between the rounds of reads. */
#include "stages/lib/sampling/draft.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/stage.h"

/* Destinations of the last hop, which are the most whose lists are wanted. */
static int64_t lists_max(const struct pst_minibatch_size *size)
{
    return size->n[size->hops - 1];
}

pst_rc pst_sampling_draft_init(struct pst_sampling_draft *d, struct pst_filler *filler,
                               const struct pst_topology_array *indptr,
                               const struct pst_topology_array *indices,
                               const struct pst_topology_lists *cached, uint64_t slot_bytes,
                               struct pst_sampling_draft_counts *counts)
{
    const struct pst_minibatch_size *size = &filler->layout.size;
    const int64_t lists = lists_max(size);
    int64_t edges = 1;
    for (int h = 0; h < size->hops; h++)
        edges = pst_max_i64(edges, size->edges[h]);
    const int64_t entries = pst_max_i64(edges, 2 * lists);
    *d = (struct pst_sampling_draft){
        .indptr = *indptr, .indices = *indices, .cached = cached, .counts = counts};
    d->work.f = filler;
    pst_rc rc = pst_expander_init(&d->expander, filler->expander.graph, filler->expander.algorithm,
                                  size->n[size->hops], edges);
    if (rc == PST_OK && filler->resident == NULL)
        rc = pst_topology_reads_init(&d->reads, slot_bytes, entries);
    if (rc != PST_OK)
        return rc;
    d->begin = malloc((size_t)lists * sizeof *d->begin);
    d->degree = malloc((size_t)lists * sizeof *d->degree);
    d->list = malloc((size_t)lists * sizeof *d->list);
    d->found_at = malloc((size_t)lists * sizeof *d->found_at);
    d->found = malloc((size_t)lists * sizeof *d->found);
    d->missed = malloc((size_t)lists * sizeof *d->missed);
    d->at = malloc((size_t)entries * sizeof *d->at);
    d->edge = malloc((size_t)entries * sizeof *d->edge);
    d->values = malloc((size_t)entries * sizeof *d->values);
    d->hit_pos = malloc((size_t)size->n[size->hops] * sizeof *d->hit_pos);
    d->hit_row = malloc((size_t)size->n[size->hops] * sizeof *d->hit_row);
    return d->begin != NULL && d->degree != NULL && d->list != NULL && d->found_at != NULL &&
                   d->found != NULL && d->missed != NULL && d->at != NULL && d->edge != NULL &&
                   d->values != NULL && d->hit_pos != NULL && d->hit_row != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM,
                          "out of memory: cannot read the neighbours of %lld vertices from drives; use fewer "
                          "slots, or a smaller batch or fanout",
                          (long long)lists);
}

void pst_sampling_draft_release(struct pst_sampling_draft *d)
{
    pst_expander_release(&d->expander);
    pst_topology_reads_release(&d->reads);
    free(d->begin);
    free(d->degree);
    free(d->list);
    free(d->found_at);
    free(d->found);
    free(d->missed);
    free(d->at);
    free(d->edge);
    free(d->values);
    free(d->hit_pos);
    free(d->hit_row);
}

/* ---- the steps ------------------------------------------------------------------------------------ */

static const int64_t *vertices_of(const struct pst_sampling_draft *d)
{
    return (const int64_t *)(const void *)(d->work.slot + d->work.f->layout.vertices_at);
}

static int32_t *indptr_of(const struct pst_sampling_draft *d)
{
    return (int32_t *)(void *)(d->work.slot + d->work.f->layout.indptr_at[d->hop]);
}

/* The lists that have cached list *list, which becomes its number there. *member: of the clique. */
static const struct pst_topology_lists *lists_with(const struct pst_sampling_draft *d, int32_t *list,
                                                   int *member)
{
    const struct pst_sampling_resident *r = d->work.f->resident;
    *member = r != NULL ? pst_sampling_resident_list(r, list) : 0;
    return r != NULL ? &r->lists[*member] : d->cached;
}

/* Finds which of the vertices from d->known on have cached lists. */
static void find_cached(struct pst_sampling_draft *d)
{
    const struct pst_sampling_resident *r = d->work.f->resident;
    const struct pst_cache *index = r != NULL ? r->lists_index : d->cached->index;
    const int64_t from = d->known, n = d->work.count - from;
    int64_t hits = 0, misses = 0;
    for (int64_t i = from; i < d->work.count; i++)
        d->list[i] = -1;
    if (r == NULL && d->cached->n == 0)
        return;
    pst_k_lookup(NULL, index, vertices_of(d) + from, n, d->found_at, d->found, &hits, d->missed, &misses);
    for (int64_t k = 0; k < hits; k++) {
        const int64_t i = from + d->found_at[k];
        int32_t list = d->found[k];
        int member;
        const struct pst_topology_lists *l = lists_with(d, &list, &member);
        d->list[i] = d->found[k];
        d->begin[i] = l->at[list];
        d->degree[i] = l->at[list + 1] - d->begin[i];
    }
}

/* Wants the ends of the lists of the hop's new vertices, unless they are cached. */
static void want_offsets(struct pst_sampling_draft *d)
{
    const int64_t *vertices = vertices_of(d);
    int64_t n = 0;
    if (d->work.f->fanout[d->hop] != 0) {
        find_cached(d);
        for (int64_t i = d->known; i < d->work.count; i++) {
            if (d->list[i] < 0) {
                d->at[n++] = vertices[i];
                d->at[n++] = vertices[i] + 1;
            }
        }
    }
    d->edges = false;
    d->wanted = n;
    d->done = 0;
}

/* The topology is not verified before a run, so its offsets are checked before use. */
static pst_rc note_offsets(struct pst_sampling_draft *d)
{
    int64_t v = d->known;
    for (int64_t i = 0; i < d->wanted; i += 2, v++) {
        const int64_t begin = d->values[i], end = d->values[i + 1];
        if (begin < 0 || end < begin || end > d->indices.entries)
            return pst_fail(PST_E_FORMAT,
                            "indptr gives vertex %lld the edges %lld to %lld, but the graph has only %lld "
                            "edges; `penstock verify` shows details",
                            (long long)d->at[i], (long long)begin, (long long)end,
                            (long long)d->indices.entries);
        while (d->list[v] >= 0)
            v++;
        d->begin[v] = begin;
        d->degree[v] = end - begin;
    }
    if (d->work.f->fanout[d->hop] != 0)
        d->known = d->work.count;
    return PST_OK;
}

/* Takes the neighbours of destination i from its cached list. at: places of the lists. */
static void read_cached(struct pst_sampling_draft *d, int64_t i, int32_t from, int32_t to)
{
    int member;
    int32_t list = d->list[i];
    const struct pst_topology_lists *l = lists_with(d, &list, &member);
    const bool gpu = d->list[i] < l->gpu_n;
    for (int32_t e = from; e < to; e++) {
        d->at[e] += d->begin[i];
        d->expander.ids[e] = pst_topology_lists_entry(l, d->at[e]);
    }
    if (d->work.f->resident != NULL) {
        d->work.f->resident->open.edges[member] += (uint64_t)(to - from);
        return;
    }
    d->counts->gpu_lists += gpu;
    d->counts->cpu_lists += !gpu;
    if (!gpu)
        d->counts->cpu_lines += pst_topology_lists_lines(l, d->list[i], d->at + from, to - from);
}

/* Takes cached neighbours, and wants the others. Wanted entries move to the front of d->at. */
static void split_edges(struct pst_sampling_draft *d, const int32_t *indptr, int64_t n)
{
    const struct pst_filler *f = d->work.f;
    const int64_t lines = d->counts->cpu_lines;
    int64_t wanted = 0;
    for (int64_t i = 0; i < n; i++) {
        if (d->list[i] >= 0) {
            read_cached(d, i, indptr[i], indptr[i + 1]);
            continue;
        }
        const int64_t first = wanted;
        for (int32_t e = indptr[i]; e < indptr[i + 1]; e++) {
            d->edge[wanted] = e;
            d->at[wanted++] = d->at[e] + d->begin[i];
        }
        if (f->resident != NULL)
            pst_sampling_resident_count(f->resident, vertices_of(d)[i], d->at + first, wanted - first);
    }
    d->wanted = wanted;
    d->counts->lists += n;
    if (f->pass_bus != NULL && d->counts->cpu_lines > lines)
        f->pass_bus(f->stage, (uint64_t)(d->counts->cpu_lines - lines) * PST_TOPOLOGY_LINE);
}

/* Chooses the edges of the hop, and wants their entries. */
static pst_rc want_edges(struct pst_sampling_draft *d)
{
    struct pst_fill_work *w = &d->work;
    const int64_t n = w->count, room = pst_min_i64(w->f->layout.size.edges[d->hop], d->expander.edges_max);
    int32_t *indptr = indptr_of(d);
    const struct pst_sample_key key = pst_fill_key(&d->job, d->hop);
    const struct pst_sampling_opened *a = d->expander.algorithm;
    d->edges = true;
    d->wanted = d->done = 0;
    if (w->f->fanout[d->hop] == 0) {
        memset(indptr, 0, ((size_t)n + 1) * sizeof *indptr);
        return PST_OK;
    }
    const struct pst_sampling_pick pick = {.key = &key,
                                           .fanout = (int)w->f->fanout[d->hop],
                                           .vertices = vertices_of(d),
                                           .degrees = d->degree,
                                           .n = n,
                                           .indptr = indptr,
                                           .positions = d->at,
                                           .capacity = room};
    const pst_rc rc = a->algorithm->pick(a->state, &pick);
    if (rc != PST_OK)
        return rc;
    split_edges(d, indptr, n);
    return PST_OK;
}

/* All neighbours of the hop have come: they become vertices. */
static pst_rc end_hop(struct pst_sampling_draft *d)
{
    struct pst_fill_work *w = &d->work;
    const struct pst_minibatch_layout *l = &w->f->layout;
    for (int64_t i = 0; i < d->wanted; i++)
        d->expander.ids[d->edge[i]] = d->values[i];
    const pst_rc rc = pst_expand_drawn(
        &d->expander, (int64_t *)(void *)(w->slot + l->vertices_at), &w->count, l->size.n[d->hop + 1],
        indptr_of(d), (int32_t *)(void *)(w->slot + l->indices_at[d->hop]), l->size.edges[d->hop]);
    w->mb.n[d->hop + 1] = w->count;
    d->result.sample[d->hop + 1].end_s = pst_now();
    d->hop++;
    return rc;
}

/* The rows of the vertices so far are announced before the next hop's lists are read. */
static pst_rc begin_hop(struct pst_sampling_draft *d)
{
    const pst_rc rc = d->job.early && d->job.overlap ? pst_fill_submit(&d->work, d->hop) : PST_OK;
    d->result.sample[d->hop + 1].begin_s = pst_now();
    if (rc == PST_OK)
        want_offsets(d);
    return rc;
}

/* With the caches of a clique: reads what is wanted from the host's graph. */
static void read_host(struct pst_sampling_draft *d)
{
    const struct pst_csc *g = d->work.f->resident->graph;
    for (; d->done < d->wanted; d->done++) {
        const int64_t at = d->at[d->done];
        d->values[d->done] = !d->edges             ? g->indptr[at]
                             : g->index_bytes == 4 ? ((const int32_t *)g->indices)[at]
                                                   : ((const int64_t *)g->indices)[at];
    }
}

/* Goes on until a read is needed. A sample that does not fit ends, too. */
static pst_rc advance(struct pst_sampling_draft *d, bool *done)
{
    const int hops = d->work.f->layout.size.hops;
    pst_rc rc = PST_OK;
    *done = false;
    while (d->done == d->wanted) {
        if (!d->edges) {
            rc = note_offsets(d);
            if (rc == PST_OK)
                rc = want_edges(d);
        } else {
            rc = end_hop(d);
            if (rc == PST_OK && d->hop < hops) {
                rc = begin_hop(d);
                if (rc != PST_OK && !d->result.crowded)
                    return rc;
            }
        }
        *done = rc != PST_OK || d->hop == hops;
        if (*done)
            return pst_fill_end(&d->work, rc);
        if (d->work.f->resident != NULL)
            read_host(d);
    }
    return PST_OK;
}

pst_rc pst_sampling_draft_begin(struct pst_sampling_draft *d, const struct pst_fill_job *job, void *slot,
                                pst_fill_announce_fn announce, void *to, bool *done)
{
    d->job = *job;
    d->work = (struct pst_fill_work){.f = d->work.f,
                                     .x = &d->expander,
                                     .hit_pos = d->hit_pos,
                                     .hit_row = d->hit_row,
                                     .job = &d->job,
                                     .slot = slot,
                                     .announce = announce,
                                     .to = to,
                                     .result = &d->result};
    d->hop = 0;
    d->known = 0;
    pst_rc rc = pst_fill_start(&d->work);
    if (rc != PST_OK) {
        *done = true;
        return pst_fill_end(&d->work, rc);
    }
    rc = begin_hop(d);
    if (d->result.crowded) {
        *done = true;
        return pst_fill_end(&d->work, rc);
    }
    if (rc == PST_OK && d->work.f->resident != NULL)
        read_host(d);
    return rc == PST_OK ? advance(d, done) : rc;
}

uint64_t pst_sampling_draft_ask(struct pst_sampling_draft *d, void *lists)
{
    assert(d->done < d->wanted);
    (void)pst_topology_reads_begin(&d->reads, d->edges ? &d->indices : &d->indptr, d->at + d->done,
                                   d->wanted - d->done, lists);
    d->counts->rounds++;
    d->counts->sectors += d->reads.count;
    return (uint64_t)d->reads.count;
}

pst_rc pst_sampling_draft_take(struct pst_sampling_draft *d, const void *lists, bool *done)
{
    pst_topology_reads_end(&d->reads, d->at + d->done, lists, d->values + d->done);
    d->done += d->reads.taken;
    return advance(d, done);
}
