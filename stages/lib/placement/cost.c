/* cost.c: what it costs to read lists and rows from a tier, in PCIe transactions. */
#include "stages/lib/placement/placement_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define TABLE_DEGREES 1024 /* chances for shorter lists come from a table; most lists are shorter */
#define INDPTR_BYTES 8

typedef struct pst_placement_chances chances;

/* The chance that draws touch a unit (line or sector) with c of a list's d entries, for one fanout.
 * With replacement 1 - (1 - c/d)^k. Without it 1 - C(d-c,k)/C(d,k): the quotient is the product of
 * (d-k-i)/(d-i) over i < c, and also of (d-c-i)/(d-i) over i < k. The shorter product is taken. */
static double chance(const chances *t, int64_t d, int64_t c)
{
    const int64_t k = t->fanout;
    if (c == 0 || d == 0)
        return 0;
    if (t->replace && k >= 0)
        return 1 - pow(1 - (double)c / (double)d, (double)k);
    if (k < 0 || d - c < k)
        return 1;
    double missed = 1;
    const int64_t shorter = pst_min_i64(c, k), longer = pst_max_i64(c, k);
    for (int64_t i = 0; i < shorter; i++)
        missed *= (double)(d - longer - i) / (double)(d - i);
    return 1 - missed;
}

static pst_rc chances_init(chances *t, const struct pst_placement_input *in, int64_t fanout)
{
    *t = (chances){.fanout = fanout, .replace = in->replace, .per = in->sector_bytes / in->entry_bytes};
    t->table = calloc((size_t)(TABLE_DEGREES * (t->per + 1)), sizeof *t->table);
    if (t->table == NULL)
        return pst_fail(PST_E_NOMEM,
                        "out of memory: cannot allocate a table of the reads that lists of neighbours need");
    for (int64_t d = 1; d < TABLE_DEGREES; d++) {
        for (int64_t c = 1; c <= pst_min_i64(d, t->per); c++)
            t->table[d * (t->per + 1) + c] = (float)chance(t, d, c);
    }
    return PST_OK;
}

static double chance_of(const chances *t, int64_t d, int64_t c)
{
    return d < TABLE_DEGREES ? t->table[d * (t->per + 1) + c] : chance(t, d, c);
}

/* Units of `per` entries that the draws touch, of d entries that begin at entry `start` of the array. */
static double units_touched(const chances *t, int64_t d, int64_t start, int64_t per)
{
    const int64_t head = pst_min_i64(d, per - (start & (per - 1)));
    const int64_t whole = (d - head) / per, tail = (d - head) & (per - 1);
    double units = chance_of(t, d, head);
    if (whole > 0)
        units += (double)whole * chance_of(t, d, per);
    if (tail > 0)
        units += chance_of(t, d, tail);
    return units;
}

/* Units of indptr that have entries v and v + 1. */
static double indptr_units(int64_t v, uint32_t unit_bytes)
{
    const int64_t per = unit_bytes / INDPTR_BYTES;
    return (v & (per - 1)) == per - 1 ? 2 : 1;
}

/* ---- lists -------------------------------------------------------------------------------------- */

static double whole_units(double bytes, uint32_t unit_bytes)
{
    return ceil(bytes / unit_bytes);
}

static void weigh_exactly(const struct pst_placement_scale *s, int64_t v, int64_t degree, double *lines,
                          double *sectors)
{
    const struct pst_placement_input *in = s->in;
    const int64_t per_line = in->line_bytes / in->entry_bytes,
                  per_sector = in->sector_bytes / in->entry_bytes;
    const double indptr_lines = indptr_units(v, in->line_bytes);
    const double indptr_sectors = indptr_units(v, in->sector_bytes);
    for (int h = 0; h < in->hops; h++) {
        const double heat = in->lists[h][v];
        if (in->fanout[h] == 0 || heat == 0)
            continue;
        *lines += heat * indptr_lines;
        *sectors += heat * indptr_sectors;
        if (degree > 0) {
            *lines += heat * units_touched(&s->chances[h], degree, in->indptr[v], per_line);
            *sectors += heat * units_touched(&s->chances[h], degree, in->indptr[v], per_sector);
        }
    }
}

double pst_placement_list_heat(const struct pst_placement_input *in, int64_t v)
{
    double heat = 0;
    for (int h = 0; h < in->hops; h++)
        heat += in->fanout[h] != 0 ? (double)in->lists[h][v] : 0;
    return heat;
}

struct pst_placement_item pst_placement_weigh(const struct pst_placement_scale *s, uint32_t v)
{
    const struct pst_placement_input *in = s->in;
    const int64_t degree = in->indptr[v + 1] - in->indptr[v];
    const double bytes = (double)degree * in->entry_bytes, heat = pst_placement_list_heat(in, v);
    double lines = 0, sectors = 0;
    if (in->cost == PST_PLACEMENT_EXACT) {
        weigh_exactly(s, v, degree, &lines, &sectors);
    } else if (in->cost == PST_PLACEMENT_ACCESS) {
        lines = heat * whole_units(bytes, in->line_bytes);
        sectors = heat * whole_units(bytes, in->sector_bytes);
    } else {
        lines = whole_units(heat * bytes, in->line_bytes);
        sectors = whole_units(heat * bytes, in->sector_bytes);
    }
    const double home =
        in->lists_in_memory ? lines : sectors * (double)(in->sector_bytes >> __builtin_ctz(in->line_bytes));
    const double taken = bytes + in->list_bytes;
    return (struct pst_placement_item){.bytes = taken < UINT32_MAX ? (uint32_t)taken : UINT32_MAX,
                                       .heat = (float)heat,
                                       .cpu = (float)lines,
                                       .home = (float)home};
}

pst_rc pst_placement_scale_init(struct pst_placement_scale *s, const struct pst_placement_input *in)
{
    *s = (struct pst_placement_scale){.in = in};
    for (int h = 0; h < in->hops; h++) {
        const pst_rc rc = chances_init(&s->chances[h], in, in->fanout[h]);
        if (rc != PST_OK) {
            pst_placement_scale_release(s);
            return rc;
        }
    }
    return PST_OK;
}

void pst_placement_scale_release(struct pst_placement_scale *s)
{
    for (int h = 0; h < PST_HOPS_MAX; h++)
        free(s->chances[h].table);
    *s = (struct pst_placement_scale){0};
}

struct longest {
    const struct pst_placement_input *in;
    uint64_t bytes[PST_PLACEMENT_THREADS_MAX];
};

static pst_rc longest_part(void *context, int part, int64_t first, int64_t end)
{
    struct longest *l = context;
    const struct pst_placement_input *in = l->in;
    int64_t entries = -1;
    for (int64_t v = first; v < end; v++) {
        const int64_t degree = in->indptr[v + 1] - in->indptr[v];
        if (degree < 0)
            return pst_fail(PST_E_ARG,
                            "indptr decreases from %lld to %lld at vertex %lld: the topology is damaged "
                            "(`penstock verify` shows details)",
                            (long long)in->indptr[v], (long long)in->indptr[v + 1], (long long)v);
        if (degree > entries && pst_placement_list_heat(in, v) > 0)
            entries = degree;
    }
    l->bytes[part] = entries < 0 ? 0 : (uint64_t)entries * in->entry_bytes + in->list_bytes;
    return PST_OK;
}

pst_rc pst_placement_longest_list(const struct pst_placement_input *in, uint64_t *bytes)
{
    struct longest l = {.in = in};
    const pst_rc rc = pst_placement_split(in->threads, in->vertices, longest_part, &l);
    *bytes = 0;
    for (int t = 0; t < in->threads; t++)
        *bytes = l.bytes[t] > *bytes ? l.bytes[t] : *bytes;
    return rc;
}

/* ---- rows --------------------------------------------------------------------------------------- */

double pst_placement_row_cost(const struct pst_placement_input *in, int64_t v, double heat,
                              uint32_t unit_bytes)
{
    const double line_per_unit = unit_bytes >> __builtin_ctz(in->line_bytes);
    if (in->cost == PST_PLACEMENT_PAPER)
        return whole_units(heat * (double)in->row_bytes, unit_bytes) * line_per_unit;
    uint64_t begin = 0; /* its place within a unit */
    if (in->cost == PST_PLACEMENT_EXACT)
        begin = (uint64_t)(in->row_files > 1 ? v / in->row_files : v) * in->row_bytes & (unit_bytes - 1);
    const uint64_t units = (begin + in->row_bytes + unit_bytes - 1) >> __builtin_ctz(unit_bytes);
    return heat * (double)units * line_per_unit;
}
