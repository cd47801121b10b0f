/* waves.c: the hops of a wave, and its memory. */
#include "stages/planner/waves.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define READ_SHARE 4 /* the part of the memory that rounds of reads get: 1/4 */

/* A batch of the wave. */
struct batch {
    uint64_t number;
    int64_t known; /* vertices whose lists are known */
    int64_t *vertices, *begin, *degree;
    /* of the hop: the drawn entries, then the neighbours that they hold */
    int32_t *indptr;
    int64_t *drawn, drawn_max;
    struct pst_minibatch_size found;
    int hop;
};

/* An entry that batch `batch` wants for its place `at`. */
struct want {
    int64_t entry;
    uint32_t batch, at;
};

struct pst_presample_waves {
    struct pst_presample_reads reads;
    uint64_t memory, used, most; /* bytes: allowed, allocated, and the most of the wave */
    uint64_t n, next;            /* batches of the wave, and of the next one */
    struct batch *batches;
    struct want *wants, *spare;
    int64_t nwants, wants_max;
    int64_t waves;
};

static int64_t vertices_of(const struct batch *b)
{
    return b->found.n[b->hop];
}

/* ---- memory --------------------------------------------------------------------------------------- */

/* Makes *memory larger or smaller. PST_E_LIMIT: the wave has too many batches. */
static pst_rc resize(struct pst_presample_waves *w, void *memory, int64_t before, int64_t after, size_t bytes)
{
    void *old, *new;
    memcpy(&old, memory, sizeof old);
    w->used += (uint64_t)after * bytes - (uint64_t)before * bytes;
    w->most = w->used > w->most ? w->used : w->most;
    new = realloc(old, (size_t)after * bytes + 1);
    if (new == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %llu bytes to pre-sample %llu batches",
                        (unsigned long long)w->used, (unsigned long long)w->n);
    memcpy(memory, &new, sizeof new);
    return w->used > w->memory && w->n > 1 ? PST_E_LIMIT : PST_OK;
}

/* Forgets the entries of the hop before, and makes room for n. */
static pst_rc want_nothing(struct pst_presample_waves *w, int64_t n)
{
    w->nwants = 0;
    if (n <= w->wants_max)
        return PST_OK;
    pst_rc rc = resize(w, &w->wants, w->wants_max, n, sizeof *w->wants);
    const pst_rc second = resize(w, &w->spare, w->wants_max, n, sizeof *w->spare);
    w->wants_max = n;
    return rc != PST_OK ? rc : second;
}

static void forget_batch(struct batch *b)
{
    free(b->vertices);
    free(b->begin);
    free(b->degree);
    free(b->indptr);
    free(b->drawn);
    *b = (struct batch){0};
}

static void forget_wave(struct pst_presample_waves *w)
{
    for (uint64_t i = 0; w->batches != NULL && i < w->n; i++)
        forget_batch(&w->batches[i]);
    free(w->batches);
    free(w->wants);
    free(w->spare);
    w->batches = NULL;
    w->wants = w->spare = NULL;
    w->nwants = w->wants_max = 0;
    w->used = w->most = 0;
}

/* ---- reads ---------------------------------------------------------------------------------------- */

/* Sorts the wanted entries by place, one byte of the number at a time. */
static void sort(struct pst_presample_waves *w)
{
    int64_t most = 0;
    for (int64_t i = 0; i < w->nwants; i++)
        most = pst_max_i64(most, w->wants[i].entry);
    for (int shift = 0; shift < 64 && most >> shift != 0; shift += 8) {
        int64_t first[257] = {0};
        for (int64_t i = 0; i < w->nwants; i++)
            first[(w->wants[i].entry >> shift & 255) + 1]++;
        for (int d = 0; d < 256; d++)
            first[d + 1] += first[d];
        for (int64_t i = 0; i < w->nwants; i++)
            w->spare[first[w->wants[i].entry >> shift & 255]++] = w->wants[i];
        struct want *sorted = w->spare;
        w->spare = w->wants;
        w->wants = sorted;
    }
}

/* The topology is not verified before a run, so its offsets are checked before use. */
static pst_rc note_list(struct pst_presample_waves *w, const struct want *want, int64_t begin, int64_t end)
{
    if (begin < 0 || end < begin || end > w->reads.indices.entries)
        return pst_fail(PST_E_FORMAT,
                        "indptr gives vertex %lld the edges %lld to %lld, but the graph has only %lld "
                        "edges; `penstock verify` shows details",
                        (long long)want->entry, (long long)begin, (long long)end,
                        (long long)w->reads.indices.entries);
    w->batches[want->batch].begin[want->at] = begin;
    w->batches[want->batch].degree[want->at] = end - begin;
    return PST_OK;
}

/* Reads where the lists of the wanted vertices begin and end. */
static pst_rc read_ends(struct pst_presample_waves *w)
{
    const int64_t most = w->reads.entries_max / 2;
    int64_t *entries = w->reads.entries;
    pst_rc rc = PST_OK;
    for (int64_t first = 0; first < w->nwants && rc == PST_OK; first += most) {
        const struct want *wants = w->wants + first;
        const int64_t n = pst_min_i64(most, w->nwants - first);
        for (int64_t i = 0; i < n; i++) {
            entries[2 * i] = wants[i].entry;
            entries[2 * i + 1] = wants[i].entry + 1;
        }
        rc = pst_presample_read(&w->reads, &w->reads.indptr, entries, 2 * n, entries);
        for (int64_t i = 0; i < n && rc == PST_OK; i++)
            rc = note_list(w, &wants[i], entries[2 * i], entries[2 * i + 1]);
    }
    return rc;
}

static pst_rc read_neighbours(struct pst_presample_waves *w)
{
    int64_t *entries = w->reads.entries;
    pst_rc rc = PST_OK;
    for (int64_t first = 0; first < w->nwants && rc == PST_OK; first += w->reads.entries_max) {
        const struct want *wants = w->wants + first;
        const int64_t n = pst_min_i64(w->reads.entries_max, w->nwants - first);
        for (int64_t i = 0; i < n; i++)
            entries[i] = wants[i].entry;
        rc = pst_presample_read(&w->reads, &w->reads.indices, entries, n, entries);
        for (int64_t i = 0; i < n && rc == PST_OK; i++)
            w->batches[wants[i].batch].drawn[wants[i].at] = entries[i];
    }
    return rc;
}

/* ---- one hop -------------------------------------------------------------------------------------- */

/* Finds the lists of the vertices that the hop before added. */
static pst_rc find_lists(struct pst_presample_waves *w)
{
    int64_t n = 0;
    for (uint64_t i = 0; i < w->n; i++)
        n += vertices_of(&w->batches[i]) - w->batches[i].known;
    pst_rc rc = want_nothing(w, n);
    for (uint64_t i = 0; i < w->n && rc == PST_OK; i++) {
        struct batch *b = &w->batches[i];
        const int64_t count = vertices_of(b);
        rc = resize(w, &b->begin, b->known, count, sizeof *b->begin);
        if (rc == PST_OK)
            rc = resize(w, &b->degree, b->known, count, sizeof *b->degree);
        for (int64_t v = b->known; v < count && rc == PST_OK; v++)
            w->wants[w->nwants++] = (struct want){b->vertices[v], (uint32_t)i, (uint32_t)v};
        b->known = count;
    }
    if (rc != PST_OK)
        return rc;
    sort(w);
    return read_ends(w);
}

static int64_t expected_edges(const struct batch *b, int64_t fanout)
{
    int64_t n = 1;
    for (int64_t i = 0; i < vertices_of(b); i++)
        n += fanout < 0 ? b->degree[i] : pst_min_i64(b->degree[i], fanout);
    return n;
}

/* Chooses the edges of one batch. There is room for as many as lists without repetition give; an algorithm
 * that draws more gets more. */
static pst_rc pick(struct pst_presample *ps, struct batch *b)
{
    struct pst_presample_waves *w = ps->waves;
    const struct pst_sample_key key = pst_presample_key(ps, b->number, b->hop);
    const struct pst_sampling_opened *a = &ps->in->algorithm;
    const int64_t n = vertices_of(b), fanout = ps->in->key.fanout[b->hop], most = ps->bound.edges[b->hop];
    int64_t room = pst_min_i64(expected_edges(b, fanout), most);
    pst_rc rc = resize(w, &b->indptr, 0, n + 1, sizeof *b->indptr);
    while (rc == PST_OK) {
        rc = resize(w, &b->drawn, b->drawn_max, room, sizeof *b->drawn);
        if (rc != PST_OK)
            return rc;
        b->drawn_max = room;
        const struct pst_sampling_pick hop = {.key = &key,
                                              .fanout = (int)fanout,
                                              .vertices = b->vertices,
                                              .degrees = b->degree,
                                              .n = n,
                                              .indptr = b->indptr,
                                              .positions = b->drawn,
                                              .capacity = room};
        rc = a->algorithm->pick(a->state, &hop);
        if (rc != PST_E_LIMIT)
            return rc;
        rc = room < most ? PST_OK
                         : pst_fail(PST_E_FORMAT,
                                    "the sampling algorithm %s drew more than the %lld edges per hop that "
                                    "its own limit announces: correct the algorithm",
                                    a->algorithm->name, (long long)most);
        room = pst_min_i64(2 * room, most);
    }
    return rc;
}

/* Chooses the edges of all batches, and reads the neighbours. */
static pst_rc draw(struct pst_presample *ps)
{
    struct pst_presample_waves *w = ps->waves;
    int64_t edges = 0;
    pst_rc rc = PST_OK;
    for (uint64_t i = 0; i < w->n && rc == PST_OK; i++) {
        rc = pick(ps, &w->batches[i]);
        edges += rc == PST_OK ? w->batches[i].indptr[vertices_of(&w->batches[i])] : 0;
    }
    if (rc == PST_OK)
        rc = want_nothing(w, edges);
    if (rc != PST_OK)
        return rc;
    for (uint64_t i = 0; i < w->n; i++) {
        const struct batch *b = &w->batches[i];
        for (int64_t v = 0; v < vertices_of(b); v++)
            for (int32_t e = b->indptr[v]; e < b->indptr[v + 1]; e++)
                w->wants[w->nwants++] = (struct want){b->begin[v] + b->drawn[e], (uint32_t)i, (uint32_t)e};
    }
    sort(w);
    return read_neighbours(w);
}

/* Adds the neighbours of one batch to its vertices, in the scratch. PST_E_LIMIT: that is too small. */
static pst_rc expand(struct pst_presample *ps, const struct batch *b, int64_t *count)
{
    struct pst_expander *x = &ps->expander;
    const int64_t edges = b->indptr[vertices_of(b)];
    if (edges > ps->edges_max)
        return PST_E_LIMIT;
    const pst_rc rc = pst_expand_seeds(x, b->vertices, vertices_of(b), ps->vertices, count, ps->vertices_max);
    if (rc != PST_OK)
        return rc;
    memcpy(x->ids, b->drawn, (size_t)edges * sizeof *x->ids);
    return pst_expand_drawn(x, ps->vertices, count, ps->vertices_max, b->indptr, ps->indices, ps->edges_max);
}

/* Keeps the `count` vertices that are in the scratch. `before` of them were kept already. */
static pst_rc keep(struct pst_presample *ps, struct batch *b, int64_t before, int64_t count)
{
    const pst_rc rc = resize(ps->waves, &b->vertices, before, count, sizeof *b->vertices);
    if (rc == PST_OK)
        memcpy(b->vertices + before, ps->vertices + before, (size_t)(count - before) * sizeof *b->vertices);
    return rc;
}

static pst_rc end_hop(struct pst_presample *ps, struct batch *b)
{
    struct pst_presample_waves *w = ps->waves;
    const int64_t before = vertices_of(b);
    int64_t count = before;
    pst_rc rc = expand(ps, b, &count);
    while (rc == PST_E_LIMIT) {
        rc = pst_presample_grow(ps);
        if (rc == PST_OK)
            rc = expand(ps, b, &count);
    }
    if (rc != PST_OK)
        return rc;
    b->found.edges[b->hop] = b->indptr[before];
    w->used -= ((uint64_t)before + 1) * sizeof *b->indptr + (uint64_t)b->drawn_max * sizeof *b->drawn;
    free(b->indptr);
    free(b->drawn);
    b->indptr = NULL;
    b->drawn = NULL;
    b->drawn_max = 0;
    b->found.n[++b->hop] = count;
    return keep(ps, b, before, count);
}

static void skip_hop(struct batch *b)
{
    b->found.n[b->hop + 1] = b->found.n[b->hop];
    b->hop++;
}

static pst_rc one_hop(struct pst_presample *ps, int64_t fanout)
{
    struct pst_presample_waves *w = ps->waves;
    pst_rc rc = fanout == 0 ? PST_OK : find_lists(w);
    if (rc == PST_OK && fanout != 0)
        rc = draw(ps);
    for (uint64_t i = 0; i < w->n && rc == PST_OK; i++) {
        if (fanout == 0)
            skip_hop(&w->batches[i]);
        else
            rc = end_hop(ps, &w->batches[i]);
    }
    return rc;
}

/* ---- waves ---------------------------------------------------------------------------------------- */

static pst_rc begin_batch(struct pst_presample *ps, struct batch *b, uint64_t number)
{
    const int64_t n = pst_seeds_of(&ps->in->seeds, number, ps->batch);
    int64_t count = 0;
    b->number = number;
    b->found.hops = ps->in->key.hops;
    pst_rc rc;
    while ((rc = pst_expand_seeds(&ps->expander, ps->batch, n, ps->vertices, &count, ps->vertices_max)) ==
           PST_E_LIMIT) {
        rc = pst_presample_grow(ps);
        if (rc != PST_OK)
            return rc;
    }
    b->found.n[0] = count;
    return rc == PST_OK ? keep(ps, b, 0, count) : rc;
}

/* Draws n batches, from the i-th on. PST_E_LIMIT: they do not fit the memory. */
static pst_rc draw_wave(struct pst_presample *ps, uint64_t i, uint64_t n, uint64_t count, uint64_t of)
{
    struct pst_presample_waves *w = ps->waves;
    forget_wave(w);
    w->n = n;
    w->batches = calloc(n, sizeof *w->batches);
    if (w->batches == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot pre-sample %llu batches", (unsigned long long)n);
    pst_rc rc = PST_OK;
    for (uint64_t k = 0; k < n && rc == PST_OK; k++)
        rc = begin_batch(ps, &w->batches[k], ps->skipped + (i + k) * of / count);
    for (int h = 0; h < ps->in->key.hops && rc == PST_OK; h++)
        rc = one_hop(ps, ps->in->key.fanout[h]);
    return rc;
}

/* The next wave has as many batches as fit if they are like those of this wave. */
static void note_size(struct pst_presample_waves *w)
{
    const uint64_t one = w->most / w->n + 1, fit = w->memory / one;
    w->next = fit < 1 ? 1 : fit > UINT32_MAX ? UINT32_MAX : fit;
}

pst_rc pst_presample_waves_run(struct pst_presample *ps, uint64_t count, uint64_t of,
                               pst_presample_each_fn each, void *to)
{
    struct pst_presample_waves *w = ps->waves;
    pst_rc rc = PST_OK;
    for (uint64_t i = 0, n; i < count && rc == PST_OK; i += n) {
        n = w->next < count - i ? w->next : count - i;
        while ((rc = draw_wave(ps, i, n, count, of)) == PST_E_LIMIT)
            n = n / 2 > 1 ? n / 2 : 1;
        if (rc != PST_OK)
            rc = pst_wrap(rc, "cannot pre-sample batches %llu to %llu", (unsigned long long)(i * of / count),
                          (unsigned long long)((i + n - 1) * of / count));
        for (uint64_t k = 0; k < n && rc == PST_OK; k++)
            rc = each(ps, &w->batches[k].found, w->batches[k].vertices, to);
        w->waves++;
        note_size(w);
    }
    forget_wave(w);
    return rc;
}

pst_rc pst_presample_waves_open(struct pst_presample_waves **out, const struct pst_sampling_input *in,
                                uint64_t memory, uint64_t gap)
{
    if (in->algorithm.algorithm->pick == NULL)
        return pst_fail(
            PST_E_ARG,
            "topology is \"ssd\", but the sampling algorithm %s needs the graph in memory; set topology "
            "to \"mmap\"",
            in->algorithm.algorithm->name);
    struct pst_presample_waves *w = *out = calloc(1, sizeof *w);
    if (w == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of pre-sampling");
    w->memory = memory - memory / READ_SHARE;
    w->next = 1;
    return pst_presample_reads_open(&w->reads, &in->ds, memory / READ_SHARE, gap);
}

void pst_presample_waves_close(struct pst_presample_waves *w)
{
    if (w == NULL)
        return;
    forget_wave(w);
    pst_presample_reads_close(&w->reads);
    free(w);
}

struct pst_presample_waves_counts pst_presample_waves_counts(const struct pst_presample_waves *w)
{
    return (struct pst_presample_waves_counts){.waves = w->waves,
                                               .rounds = w->reads.rounds,
                                               .sectors = w->reads.sectors,
                                               .bytes = pst_disk_stats(w->reads.disk)->bytes};
}
