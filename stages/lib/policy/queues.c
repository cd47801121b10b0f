/* queues.c: policies that know only the past: LRU, SIEVE and S3-FIFO. SIEVE: Zhang et al., "SIEVE is simpler
 * than LRU", NSDI 2024, section 3. S3-FIFO: Yang et al., "FIFO queues are all you need for cache eviction",
 * SOSP 2023, section 4.
 */
#include "stages/lib/policy/policy_impl.h"

#define FREQ_MAX 3    /* S3-FIFO counts uses up to here */
#define SMALL_PART 10 /* S3-FIFO: the small queue has one line in so many */

static void push(struct pst_policy *p, struct pst_policy_queue *q, int32_t line)
{
    p->newer[line] = -1;
    p->older[line] = q->newest;
    if (q->newest >= 0)
        p->newer[q->newest] = line;
    else
        q->oldest = line;
    q->newest = line;
    q->n++;
}

static void unlink_line(struct pst_policy *p, struct pst_policy_queue *q, int32_t line)
{
    const int32_t newer = p->newer[line], older = p->older[line];
    if (newer >= 0)
        p->older[newer] = older;
    else
        q->newest = older;
    if (older >= 0)
        p->newer[older] = newer;
    else
        q->oldest = newer;
    q->n--;
}

/* ---- LRU ------------------------------------------------------------------------------------------ */

static void decide_lru(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit,
                       int32_t *keep)
{
    (void)seq;
    for (int64_t i = 0; i < b->n; i++) {
        const struct pst_policy_entry *e = pst_policy_entry_find(p, b->ids[i]);
        int32_t line = hit[i] = e != NULL ? e->line : -1;
        if (p->config.lines == 0)
            continue;
        if (line < 0)
            line = p->used < p->config.lines ? (int32_t)p->used : p->main.oldest;
        if (line < p->used)
            unlink_line(p, &p->main, line);
        if (hit[i] < 0)
            pst_policy_take_line(p, line, b->ids[i]);
        push(p, &p->main, line);
    }
    pst_policy_note_kept(p, b, hit, keep);
}

/* ---- SIEVE ---------------------------------------------------------------------------------------- */

/* The hand moves from old to new, and spares each line that was used since it passed. */
static int32_t sieve_evict(struct pst_policy *p)
{
    int32_t line = p->hand >= 0 ? p->hand : p->main.oldest;
    while (p->freq[line] > 0) {
        p->freq[line] = 0;
        line = p->newer[line] >= 0 ? p->newer[line] : p->main.oldest;
    }
    p->hand = p->newer[line];
    unlink_line(p, &p->main, line);
    return line;
}

static void decide_sieve(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit,
                         int32_t *keep)
{
    (void)seq;
    for (int64_t i = 0; i < b->n; i++) {
        const struct pst_policy_entry *e = pst_policy_entry_find(p, b->ids[i]);
        hit[i] = e != NULL ? e->line : -1;
        if (hit[i] >= 0)
            p->freq[hit[i]] = 1;
        if (hit[i] >= 0 || p->config.lines == 0)
            continue;
        const int32_t line = p->used < p->config.lines ? (int32_t)p->used : sieve_evict(p);
        pst_policy_take_line(p, line, b->ids[i]);
        p->freq[line] = 0;
        push(p, &p->main, line);
    }
    pst_policy_note_kept(p, b, hit, keep);
}

/* ---- S3-FIFO -------------------------------------------------------------------------------------- */

/* The ring forgets the vertex that it remembered longest. The mask of a vertex has its turn, from 1. */
static void remember(struct pst_policy *p, int64_t vertex)
{
    if (p->ghost_max == 0)
        return;
    int64_t *place = &p->ghost[p->ghosts % (uint64_t)p->ghost_max];
    const uint64_t turn = p->ghosts + 1;
    struct pst_policy_entry *e = *place >= 0 ? pst_policy_entry_find(p, *place) : NULL;
    if (e != NULL && e->mask + (uint64_t)p->ghost_max == turn) {
        e->mask = 0;
        pst_policy_entry_tidy(p, *place);
    }
    *place = vertex;
    p->ghosts = turn;
    pst_policy_entry_get(p, vertex)->mask = turn;
}

/* Frees a line of the main queue: the oldest that was not used since it last came to the end. */
static int32_t evict_main(struct pst_policy *p)
{
    int32_t line = p->main.oldest;
    while (p->freq[line] > 0) {
        unlink_line(p, &p->main, line);
        p->freq[line]--;
        push(p, &p->main, line);
        line = p->main.oldest;
    }
    unlink_line(p, &p->main, line);
    return line;
}

/* Frees a line: of the small queue if that is longer than its share. What was used there more than once goes
 * to the main queue; what was not is remembered. */
static int32_t s3fifo_evict(struct pst_policy *p)
{
    const int64_t share = pst_max_i64(1, p->config.lines / SMALL_PART);
    while (p->small.n > 0 && (p->small.n >= share || p->main.n == 0)) {
        const int32_t line = p->small.oldest;
        unlink_line(p, &p->small, line);
        if (p->freq[line] <= 1) {
            remember(p, p->vertex[line]);
            return line;
        }
        p->freq[line] = 0;
        push(p, &p->main, line);
    }
    return evict_main(p);
}

static void decide_s3fifo(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit,
                          int32_t *keep)
{
    (void)seq;
    for (int64_t i = 0; i < b->n; i++) {
        struct pst_policy_entry *e = pst_policy_entry_find(p, b->ids[i]);
        hit[i] = e != NULL ? e->line : -1;
        if (hit[i] >= 0)
            p->freq[hit[i]] = (uint8_t)pst_min_i64(FREQ_MAX, p->freq[hit[i]] + 1);
        if (hit[i] >= 0 || p->config.lines == 0)
            continue;
        const bool ghost = e != NULL && e->mask != 0;
        if (ghost)
            e->mask = 0;
        const int32_t line = p->used < p->config.lines ? (int32_t)p->used : s3fifo_evict(p);
        pst_policy_take_line(p, line, b->ids[i]);
        p->freq[line] = 0;
        push(p, ghost ? &p->main : &p->small, line);
    }
    pst_policy_note_kept(p, b, hit, keep);
}

const struct pst_policy_ops pst_policy_lru_ops = {NULL, decide_lru},
                            pst_policy_sieve_ops = {NULL, decide_sieve},
                            pst_policy_s3fifo_ops = {NULL, decide_s3fifo};
