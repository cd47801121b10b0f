/* placement_impl.h: what the files of this room share. */
#ifndef PST_PLACEMENT_IMPL_H
#define PST_PLACEMENT_IMPL_H

#include "stages/lib/placement/placement.h"

/* Calls part(context, i, first, end) for the parts of 0..n-1, each in a thread of its own.
 * PST_E_NOMEM: a thread could not be started. The first failure of a part is returned. */
typedef pst_rc pst_placement_part(void *context, int part, int64_t first, int64_t end);
pst_rc pst_placement_split(int threads, int64_t n, pst_placement_part *part, void *context);

/* Memory to sort vertices; several sorts, one after the other, use it. */
struct pst_placement_sorter {
    uint32_t *ids;
    uint16_t *high;
    int64_t *place;
};
pst_rc pst_placement_sorter_init(struct pst_placement_sorter *s, int64_t vertices, int threads);
void pst_placement_sorter_release(struct pst_placement_sorter *s); /* accepts a zeroed struct */

/* order[0..vertices) gets the vertices by the sum of their `n` scores, descending, ties by id. `with` is for
 * that many vertices and threads. PST_E_ARG: a score is negative or not finite. */
pst_rc pst_placement_order(const struct pst_placement_sorter *with, const float *const *scores, int n,
                           int64_t vertices, int threads, uint32_t *order);

/* Checks indptr, and finds the bytes of the longest list that is ever read. PST_E_ARG: indptr decreases. */
pst_rc pst_placement_longest_list(const struct pst_placement_input *in, uint64_t *bytes);

/* The batches that read vertex v's list, of all hops. */
double pst_placement_list_heat(const struct pst_placement_input *in, int64_t v);

/* What a vertex's list takes of a cache, and its reads and transactions over all batches. */
struct pst_placement_item {
    uint32_t bytes; /* UINT32_MAX: at least so many */
    float heat, cpu, home;
};

/* Weighs lists, for each hop by its chances that draws touch a line or a sector. */
struct pst_placement_scale {
    const struct pst_placement_input *in;
    struct pst_placement_chances {
        int64_t fanout;
        bool replace;
        int64_t per;  /* entries in a sector: the most that draws can touch at once */
        float *table; /* [degree][entries], both from 0 */
    } chances[PST_HOPS_MAX];
};
pst_rc pst_placement_scale_init(struct pst_placement_scale *s, const struct pst_placement_input *in);
void pst_placement_scale_release(struct pst_placement_scale *s); /* accepts a zeroed struct */
struct pst_placement_item pst_placement_weigh(const struct pst_placement_scale *s, uint32_t v);

/* Transactions of vertex v's row, read `heat` times. */
double pst_placement_row_cost(const struct pst_placement_input *in, int64_t v, double heat,
                              uint32_t unit_bytes);

/* All chunks, the lists' first, with what they cost a batch in each tier: transactions from SSD and CPU
 * memory. */
struct pst_placement_chunks {
    int64_t n, lists;
    const int64_t *room; /* by tier */
    double *ssd, *cpu;   /* at HOME, from the SSD; in the CPU cache, or at a HOME in memory */
    bool lists_in_memory;
    double left_ssd, left_cpu; /* what no placement changes */
};

static inline double pst_placement_home_cpu(const struct pst_placement_chunks *c, int64_t i)
{
    return c->lists_in_memory && i < c->lists ? c->cpu[i] : 0;
}

/* CPU memory may get chunk i. */
static inline bool pst_placement_cpu_may(const struct pst_placement_chunks *c, int64_t i)
{
    return !(c->lists_in_memory && i < c->lists);
}

/* Scratch for pst_placement_assign of n chunks. */
struct pst_placement_scratch {
    struct pst_placement_rank *ranked;
    double *best;
    int64_t *heap;
    double *gpu, *cpu; /* for callers: what each chunk is worth */
};
pst_rc pst_placement_scratch_init(struct pst_placement_scratch *s, int64_t n);
void pst_placement_scratch_release(struct pst_placement_scratch *s);

/* Puts at most room[GPU] chunks into the GPU tier and room[CPU] into the CPU tier so that the sum of what
 * they are worth there is the largest. s->gpu, s->cpu: worth of each chunk in each tier; negative: not
 * allowed. */
void pst_placement_assign(const struct pst_placement_scratch *s, int64_t n, const int64_t *room,
                          uint8_t *tier);

/* Minimises the larger of the SSDs' and PCIe's times over all placements. tier has a placement, and gets one
 * that is as good or better. *bound: no placement is below it. */
pst_rc pst_placement_least_time(const struct pst_placement_chunks *c,
                                const struct pst_placement_machine *machine, struct pst_placement_scratch *s,
                                uint8_t *tier, double *bound);

/* Of equation 4, for a placement of the chunks. */
struct pst_placement_times {
    double ssd_s, pcie_s;
};
struct pst_placement_times pst_placement_times_of(const struct pst_placement_chunks *c,
                                                  const struct pst_placement_machine *machine,
                                                  const uint8_t *tier);

#endif
