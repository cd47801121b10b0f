/* assign.c: the best placement of equal chunks into two caches, exactly. README.md proves it. */
#include "stages/lib/placement/placement_impl.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct pst_placement_rank {
    double more; /* what the chunk is worth in the GPU's cache, less what it is worth in the CPU's */
    int64_t chunk;
};

pst_rc pst_placement_scratch_init(struct pst_placement_scratch *s, int64_t n)
{
    const size_t room = (size_t)n + 1;
    *s = (struct pst_placement_scratch){
        .ranked = malloc(room * sizeof *s->ranked),
        .best = malloc(room * sizeof *s->best),
        .heap = malloc(room * sizeof *s->heap),
        .gpu = malloc(room * sizeof *s->gpu),
        .cpu = malloc(room * sizeof *s->cpu),
    };
    if (s->ranked != NULL && s->best != NULL && s->heap != NULL && s->gpu != NULL && s->cpu != NULL)
        return PST_OK;
    pst_placement_scratch_release(s);
    return pst_fail(PST_E_NOMEM, "out of memory: cannot place %lld chunks", (long long)n);
}

void pst_placement_scratch_release(struct pst_placement_scratch *s)
{
    free(s->ranked);
    free(s->best);
    free(s->heap);
    free(s->gpu);
    free(s->cpu);
    *s = (struct pst_placement_scratch){0};
}

/* ---- the chunks that are worth most: a heap with the least of them on top ----------------------------- */

struct most {
    const double *worth;
    int64_t *heap;
    int64_t n, room;
    double sum;
};

/* a is worth less than b; of equals, the later chunk goes first. */
static bool less(const struct most *m, int64_t a, int64_t b)
{
    return m->worth[a] < m->worth[b] || (m->worth[a] == m->worth[b] && a > b);
}

static void sink(struct most *m, int64_t chunk)
{
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < m->n; at = child) {
        if (child + 1 < m->n && less(m, m->heap[child + 1], m->heap[child]))
            child++;
        if (!less(m, m->heap[child], chunk))
            break;
        m->heap[at] = m->heap[child];
    }
    m->heap[at] = chunk;
}

static void rise(struct most *m, int64_t chunk)
{
    int64_t at = m->n++;
    for (; at > 0 && less(m, chunk, m->heap[(at - 1) / 2]); at = (at - 1) / 2)
        m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = chunk;
}

static void offer(struct most *m, int64_t chunk)
{
    if (m->room == 0 || m->worth[chunk] < 0)
        return;
    if (m->n < m->room) {
        rise(m, chunk);
        m->sum += m->worth[chunk];
    } else if (less(m, m->heap[0], chunk)) {
        m->sum += m->worth[chunk] - m->worth[m->heap[0]];
        sink(m, chunk);
    }
}

/* ---- both caches --------------------------------------------------------------------------------- */

static int by_more(const void *left, const void *right)
{
    const struct pst_placement_rank *a = left, *b = right;
    if (a->more != b->more)
        return a->more > b->more ? -1 : 1;
    return (a->chunk > b->chunk) - (a->chunk < b->chunk);
}

/* The first so many of the ranked chunks may go to the GPU, the others to the CPU. */
static int64_t best_split(const struct pst_placement_scratch *s, int64_t n, const int64_t *room)
{
    struct most gpu = {.worth = s->gpu, .heap = s->heap, .room = room[PST_PLACEMENT_GPU]};
    s->best[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        offer(&gpu, s->ranked[i].chunk);
        s->best[i + 1] = gpu.sum;
    }
    struct most cpu = {.worth = s->cpu, .heap = s->heap, .room = room[PST_PLACEMENT_CPU]};
    int64_t split = n;
    double most = s->best[n];
    for (int64_t i = n - 1; i >= 0; i--) {
        offer(&cpu, s->ranked[i].chunk);
        if (s->best[i] + cpu.sum >= most) {
            most = s->best[i] + cpu.sum;
            split = i;
        }
    }
    return split;
}

void pst_placement_assign(const struct pst_placement_scratch *s, int64_t n, const int64_t *room,
                          uint8_t *tier)
{
    for (int64_t i = 0; i < n; i++)
        s->ranked[i] = (struct pst_placement_rank){s->gpu[i] - s->cpu[i], i};
    qsort(s->ranked, (size_t)n, sizeof *s->ranked, by_more);
    const int64_t split = best_split(s, n, room);
    memset(tier, PST_PLACEMENT_HOME, (size_t)n);
    struct most gpu = {.worth = s->gpu, .heap = s->heap, .room = room[PST_PLACEMENT_GPU]};
    for (int64_t i = 0; i < split; i++)
        offer(&gpu, s->ranked[i].chunk);
    for (int64_t i = 0; i < gpu.n; i++)
        tier[gpu.heap[i]] = PST_PLACEMENT_GPU;
    struct most cpu = {.worth = s->cpu, .heap = s->heap, .room = room[PST_PLACEMENT_CPU]};
    for (int64_t i = split; i < n; i++)
        offer(&cpu, s->ranked[i].chunk);
    for (int64_t i = 0; i < cpu.n; i++)
        tier[cpu.heap[i]] = PST_PLACEMENT_CPU;
}
