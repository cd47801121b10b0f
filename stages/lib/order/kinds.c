/* kinds.c: published orders. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/order/orders_impl.h"

/* The state 0, 1, ... */
static void first_state(const struct pst_order_states *s, uint16_t *state)
{
    for (int i = 0; i < s->buffer; i++)
        state[i] = (uint16_t)i;
}

/* ---- BETA: Marius, Algorithm 3 ------------------------------------------------------------------- */

/* Cycles every partition on disk through the last place. A swap exchanges buffer and disk. */
static pst_rc cycle_last(struct pst_order_states *s, uint16_t *state, uint16_t *disk, int n)
{
    pst_rc rc = PST_OK;
    uint16_t *last = &state[s->buffer - 1];
    for (int i = 0; i < n && rc == PST_OK; i++) {
        const uint16_t leaves = *last;
        *last = disk[i];
        disk[i] = leaves;
        rc = pst_order_push(s, state);
    }
    return rc;
}

pst_rc pst_order_beta(struct pst_order_states *s)
{
    uint16_t state[PST_ORDER_PARTITIONS_MAX], disk[PST_ORDER_PARTITIONS_MAX];
    int n = s->partitions - s->buffer;
    first_state(s, state);
    for (int i = 0; i < n; i++)
        disk[i] = (uint16_t)(s->buffer + i);
    pst_rc rc = pst_order_push(s, state);
    while (n > 0 && rc == PST_OK) {
        rc = cycle_last(s, state, disk, n);
        int replaced = 0;
        for (; replaced < s->buffer - 1 && replaced < n && rc == PST_OK; replaced++) {
            state[replaced] = disk[replaced];
            rc = pst_order_push(s, state);
        }
        n -= replaced;
        memmove(disk, disk + replaced, (size_t)n * sizeof *disk);
    }
    return rc;
}

/* ---- Hilbert ------------------------------------------------------------------------------------- */

/* The cell at place t of the Hilbert curve over side x side cells; side is a power of two. */
static struct pst_order_bucket curve_cell(int side, int64_t t)
{
    int x = 0, y = 0;
    for (int s = 1; s < side; s *= 2) {
        const int right = (int)(t / 2) & 1, up = (int)(t ^ right) & 1;
        if (up == 0) {
            if (right == 1) {
                x = s - 1 - x;
                y = s - 1 - y;
            }
            const int swap = x;
            x = y;
            y = swap;
        }
        x += s * right;
        y += s * up;
        t /= 4;
    }
    return (struct pst_order_bucket){(uint16_t)y, (uint16_t)x};
}

/* The buckets along the curve. Cells outside the matrix are left out, and if `symmetric`, so is (d, s) after
 * (s, d), because whatever has the partitions of one has those of the other. Returns their number. */
static int64_t curve_buckets(int partitions, bool symmetric, bool *seen, struct pst_order_bucket *out)
{
    int side = 1;
    int64_t n = 0;
    while (side < partitions)
        side *= 2;
    for (int64_t t = 0; t < (int64_t)side * side; t++) {
        const struct pst_order_bucket b = curve_cell(side, t);
        if (b.source >= partitions || b.destination >= partitions)
            continue;
        if (!symmetric || !seen[b.destination * partitions + b.source])
            out[n++] = b;
        seen[b.source * partitions + b.destination] = true;
    }
    return n;
}

/* The place of `p`'s next use from bucket b on. */
static int64_t next_use(const struct pst_order_bucket *buckets, int64_t n, int64_t b, int p)
{
    while (b < n && buckets[b].source != p && buckets[b].destination != p)
        b++;
    return b;
}

/* Loads p into the place of the partition that is needed last (Belady), but not of `other`. */
static pst_rc bring(struct pst_order_states *s, uint16_t *state, int *used,
                    const struct pst_order_bucket *buckets, int64_t n, int64_t b, int p, int other)
{
    if (pst_order_place(state, *used, p) >= 0)
        return PST_OK;
    if (*used < s->buffer) {
        state[(*used)++] = (uint16_t)p;
        return *used == s->buffer ? pst_order_push(s, state) : PST_OK;
    }
    int victim = -1;
    int64_t latest = -1;
    for (int i = 0; i < s->buffer; i++) {
        const int64_t use = state[i] != other ? next_use(buckets, n, b, state[i]) : -1;
        if (use > latest) {
            latest = use;
            victim = i;
        }
    }
    state[victim] = (uint16_t)p;
    return pst_order_push(s, state);
}

pst_rc pst_order_hilbert(struct pst_order_states *s, bool symmetric)
{
    uint16_t state[PST_ORDER_PARTITIONS_MAX];
    const int64_t all = (int64_t)s->partitions * s->partitions;
    struct pst_order_bucket *buckets = malloc((size_t)all * sizeof *buckets);
    bool *seen = calloc((size_t)all, sizeof *seen);
    pst_rc rc = PST_OK;
    if (buckets == NULL || seen == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot order %lld buckets", (long long)all);
    const int64_t n = rc == PST_OK ? curve_buckets(s->partitions, symmetric, seen, buckets) : 0;
    int used = 0;
    for (int64_t b = 0; b < n && rc == PST_OK; b++) {
        rc = bring(s, state, &used, buckets, n, b, buckets[b].source, buckets[b].destination);
        if (rc == PST_OK)
            rc = bring(s, state, &used, buckets, n, b, buckets[b].destination, buckets[b].source);
    }
    free(seen);
    free(buckets);
    return rc;
}

/* ---- Cover: GE2 ---------------------------------------------------------------------------------- */

/* The product in GF(4), whose elements are 0, 1, x = 2 and x + 1 = 3, and x^2 = x + 1. Sums are bitwise
 * exclusive or. */
static int times(int a, int b)
{
    static const int product[4][4] = {{0, 0, 0, 0}, {0, 1, 2, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}};
    return product[a][b];
}

/* The vector `a` times the number f; a vector has two bits for each coordinate. */
static int scaled(int a, int f)
{
    int out = 0;
    for (int shift = 0; a >> shift != 0; shift += 2)
        out |= times(a >> shift & 3, f) << shift;
    return out;
}

/* Of the vectors with the same direction, the one whose highest coordinate is 1. */
static bool is_direction(int a)
{
    while (a > 3)
        a >>= 2;
    return a == 1;
}

/* A state is a line: the points a, a + d, a + x d, a + (x + 1) d. Parallel lines follow each other. */
pst_rc pst_order_cover(struct pst_order_states *s)
{
    pst_rc rc = PST_OK;
    for (int d = 1; d < s->partitions; d++) {
        for (int a = 0; a < s->partitions && is_direction(d); a++) {
            uint16_t line[4];
            bool lowest = true;
            for (int f = 0; f < 4; f++) {
                line[f] = (uint16_t)(a ^ scaled(d, f));
                lowest = lowest && line[f] >= a;
            }
            if (lowest && rc == PST_OK)
                rc = pst_order_push(s, line);
        }
    }
    return rc;
}

/* ---- Legend, Algorithm 1 ----------------------------------------------------------------------------- */

/* As printed, the algorithm does not give the paper's Table 6; README.md has the reading that does. */
struct legend {
    struct pst_order_states *s;
    uint16_t buf[3];
    int last, current;
    int64_t open; /* pairs that were never in the buffer together */
    bool paired[PST_ORDER_PARTITIONS_MAX][PST_ORDER_PARTITIONS_MAX];
};

static int legend_new_pairs(const struct legend *l, int p, int without)
{
    int n = 0;
    for (int i = 0; i < 3; i++)
        n += l->buf[i] != without && l->buf[i] != p && !l->paired[p][l->buf[i]];
    return n;
}

static pst_rc legend_note_state(struct legend *l)
{
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < i; j++) {
            bool *pair = &l->paired[l->buf[i]][l->buf[j]];
            l->open -= !*pair;
            *pair = l->paired[l->buf[j]][l->buf[i]] = true;
        }
    }
    return pst_order_push(l->s, l->buf);
}

static pst_rc legend_exchange(struct legend *l, int evict, int load)
{
    l->buf[pst_order_place(l->buf, 3, evict)] = (uint16_t)load;
    l->last = load;
    return legend_note_state(l);
}

/* Partners of p that it was never with, from `begin` on, below `end`. */
static int legend_open(const struct legend *l, int p, int begin, int end)
{
    int n = 0;
    for (int q = begin; q < end; q++)
        n += q != p && !l->paired[p][q];
    return n;
}

/* The lowest (sign 1) or highest (-1) partition in the buffer, but neither a nor b. */
static int legend_least(const struct legend *l, int sign, int a, int b)
{
    int found = -1;
    for (int i = 0; i < 3; i++)
        if (l->buf[i] != a && l->buf[i] != b && (found < 0 || sign * (l->buf[i] - found) < 0))
            found = l->buf[i];
    return found;
}

/* Goes on with the next partition that still has open pairs. */
static pst_rc legend_next_column(struct legend *l)
{
    int next = l->current + 1;
    while (legend_open(l, next, 0, l->s->partitions) == 0)
        next++;
    pst_rc rc = PST_OK;
    if (pst_order_place(l->buf, 3, next) < 0) {
        const bool leaves = pst_order_place(l->buf, 3, l->current) >= 0 && l->current != l->last;
        rc = legend_exchange(l, leaves ? l->current : legend_least(l, 1, l->last, -1), next);
    }
    l->current = next;
    return rc;
}

/* Loads the partition with the most new pairs, the first from `begin` on. */
static pst_rc legend_load(struct legend *l, int evict, int begin)
{
    const int p = l->s->partitions;
    int best = -1, most = -1;
    for (int i = 0; i < p; i++) {
        const int id = (begin + i) % p;
        if (pst_order_place(l->buf, 3, id) >= 0 || l->paired[l->current][id])
            continue;
        const int n = legend_new_pairs(l, id, evict);
        if (n > most) {
            most = n;
            best = id;
        }
    }
    return legend_exchange(l, evict, best);
}

static pst_rc legend_step(struct legend *l)
{
    const int p = l->s->partitions;
    int evict, begin = 1;
    if (legend_open(l, l->current, 0, p) == 0) {
        const pst_rc rc = legend_next_column(l);
        if (rc != PST_OK || legend_open(l, l->current, 0, p) == 0)
            return rc;
        const int top = legend_least(l, -1, -1, -1);
        const int above = legend_open(l, l->current, top + 1, p), below = legend_open(l, l->current, 0, top);
        evict = legend_least(l, above > 0 && above >= below ? -1 : 1, l->current, l->last);
    } else {
        evict = legend_least(l, 1, l->current, l->last);
        begin = l->current + 1;
    }
    return legend_load(l, evict, legend_least(l, 1, evict, l->current) + begin);
}

pst_rc pst_order_legend(struct pst_order_states *s)
{
    struct legend *l = calloc(1, sizeof *l);
    if (l == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot order %d partitions", s->partitions);
    l->s = s;
    l->open = (int64_t)s->partitions * (s->partitions - 1) / 2;
    l->last = -1;
    first_state(s, l->buf);
    pst_rc rc = legend_note_state(l);
    for (int i = 3; i < s->partitions && rc == PST_OK; i++)
        rc = legend_exchange(l, i - 2, i);
    while (l->open > 0 && rc == PST_OK)
        rc = legend_step(l);
    free(l);
    return rc;
}
