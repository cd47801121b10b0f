/* ranks D VERTICES QUERIES BLOCKS TURNS: seconds of exact filtered ranks of QUERIES queries among VERTICES
 * rows, which come in BLOCKS blocks (partitions), and of the one product queries x rows, on one thread.
 * Prints JSON: lists of seconds, one per turn; a turn runs both. Before that it checks ranks of some queries
 * against float64 sums. */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/util/clock.h"
#include "stages/lib/embed/ranks.h"

enum { TURNS_MAX = 100, KNOWN = 4 /* known ends of a query in a block */, CHECKED = 20, TRUE_END_STRIDE = 7 };

struct task {
    int64_t d, n, m, blocks;
    float *q, *x, *own, *scores;
    int64_t *own_rows, *known_start;
    uint32_t *known;
    struct pst_embed_count *counts;
};

static void *block_of(int64_t count, size_t size)
{
    void *at = aligned_alloc(64, ((size_t)count * size + 63) / 64 * 64);
    if (!at) {
        fprintf(stderr, "ranks: out of memory: cannot allocate %lld elements\n", (long long)count);
        exit(1);
    }
    return at;
}

static float *rows(uint32_t table, int64_t n, int64_t d)
{
    float *at = block_of(n * d, sizeof *at);
    pst_embed_init(1, table, 0.1f, 0, n, d, at);
    return at;
}

static int64_t true_end(const struct task *t, int64_t query)
{
    return query * TRUE_END_STRIDE % t->n;
}

static void make(struct task *t)
{
    t->q = rows(0, t->m, t->d);
    t->x = rows(1, t->n, t->d);
    t->own = block_of(t->m * t->d, sizeof *t->own);
    t->scores = block_of(t->m * t->n, sizeof *t->scores);
    t->own_rows = block_of(t->m, sizeof *t->own_rows);
    t->known_start = block_of(t->m + 1, sizeof *t->known_start);
    t->known = block_of(t->m * KNOWN, sizeof *t->known);
    t->counts = block_of(t->m, sizeof *t->counts);
    for (int64_t i = 0; i <= t->m; i++)
        t->known_start[i] = i * KNOWN;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t c = 0; c < t->d; c++)
            t->own[i * t->d + c] = t->x[true_end(t, i) * t->d + c];
}

/* The first rows of each block are the known ends of all its queries. */
static double rank_all(struct task *t, struct pst_embed_workspace *w)
{
    const double t0 = pst_clock_s();
    pst_embed_count_begin(PST_K_EMBED_PRODUCT, t->q, t->own, t->m, t->d, t->counts);
    for (int64_t b = 0; b < t->blocks; b++) {
        const int64_t from = b * t->n / t->blocks, to = (b + 1) * t->n / t->blocks;
        for (int64_t i = 0; i < t->m; i++) {
            const int64_t own = true_end(t, i);
            t->own_rows[i] = own >= from && own < to ? own - from : -1;
            for (int64_t k = 0; k < KNOWN; k++)
                t->known[i * KNOWN + k] = (uint32_t)k;
        }
        const struct pst_embed_candidates c = {.x = t->x + from * t->d,
                                               .n = to - from,
                                               .own = t->own_rows,
                                               .known_start = t->known_start,
                                               .known = t->known};
        if (pst_embed_count_block(PST_K_EMBED_PRODUCT, t->q, t->m, t->d, &c, w, t->counts) != PST_OK) {
            fprintf(stderr, "ranks: %s\n", pst_error_text());
            exit(1);
        }
    }
    return pst_clock_s() - t0;
}

static double product(const struct task *t)
{
    const double t0 = pst_clock_s();
    pst_k_gemm(NULL, false, true, t->m, t->n, t->d, 1, t->q, t->d, t->x, t->d, 0, t->scores, t->n, 1);
    return pst_clock_s() - t0;
}

static bool known_end(const struct task *t, int64_t row)
{
    for (int64_t b = 0; b < t->blocks; b++)
        if (row >= b * t->n / t->blocks && row < b * t->n / t->blocks + KNOWN)
            return true;
    return false;
}

/* The raw and the filtered counts of a query, by float64 sums alone. */
static bool right(const struct task *t, int64_t query)
{
    const float *q = t->q + query * t->d;
    const double own = pst_embed_exact_score(PST_K_EMBED_PRODUCT, q, t->own + query * t->d, t->d);
    int64_t above[2] = {0, 0};
    for (int64_t r = 0; r < t->n; r++)
        if (r != true_end(t, query) &&
            pst_embed_exact_score(PST_K_EMBED_PRODUCT, q, t->x + r * t->d, t->d) > own) {
            above[0]++;
            above[1] += !known_end(t, r);
        }
    return above[0] == t->counts[query].above[0] && above[1] == t->counts[query].above[1];
}

static void print(const char *name, const double *seconds, int turns, const char *end)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < turns; i++)
        printf("%s%.6f", i ? ", " : "", seconds[i]);
    printf("]%s", end);
}

int main(int argc, char **argv)
{
    const int turns = argc == 6 ? atoi(argv[5]) : 0;
    static struct task t; /* what it holds lives as long as the process */
    if (turns >= 1 && turns <= TURNS_MAX)
        t = (struct task){
            .d = atoll(argv[1]), .n = atoll(argv[2]), .m = atoll(argv[3]), .blocks = atoll(argv[4])};
    if (t.d < 1 || t.m < 1 || t.blocks < 1 || t.n / KNOWN < t.blocks) {
        fprintf(
            stderr,
            "usage: ranks D VERTICES QUERIES BLOCKS TURNS (at least %d vertices a block; at most %d turns)\n",
            KNOWN, TURNS_MAX);
        return 2;
    }
    struct pst_embed_workspace *w;
    if (pst_embed_workspace_new(&w, 1) != PST_OK)
        return 1;
    make(&t);
    (void)product(&t); /* loads oneDNN */
    (void)rank_all(&t, w);
    for (int64_t i = 0; i < pst_min_i64(CHECKED, t.m); i++)
        if (!right(&t, i)) {
            fprintf(stderr, "ranks: query %lld: the counts are not those of float64 sums\n", (long long)i);
            return 1;
        }
    double ranks[TURNS_MAX], products[TURNS_MAX];
    for (int i = 0; i < turns; i++) {
        ranks[i] = rank_all(&t, w);
        products[i] = product(&t);
    }
    printf("{");
    print("ranks_s", ranks, turns, ", ");
    print("product_s", products, turns, "}\n");
    pst_embed_workspace_free(w);
    return 0; /* the rest ends with the process */
}
