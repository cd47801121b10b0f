/* probe.c: measures the drives for accumulate "auto" (gate.h): single accesses, then bursts that grow until
 * they take much longer. A burst of N accesses takes T_i + T_t + N / (IOP_peak N_ssd), so a short burst and a
 * long one give both the peak and T_i + T_t. The data are feature rows, spread over the whole file. */
#include <stdlib.h>
#include <string.h>

#include "common/slots/request.h"
#include "stages/disk/disk.h"

#define SINGLES 9    /* bursts of one access; the median counts */
#define REPEATS 5    /* of each larger burst; the fastest counts, as the drives work all the time in each */
#define BURST_MIN 32 /* accesses of the first larger burst, and the fewest that show a slope */
#define BURST_MAX 16384    /* enough for 4 drives at 99 % of the peak of a 980 Pro */
#define LONG_ENOUGH 8.0    /* a burst that takes so many times as long as a single access ends the probe */
#define PROBE_S 1.0        /* so does this time */
#define BURST_MS_MAX 10000 /* a drive that takes longer does not answer */

struct probe {
    struct disk *d;
    char *slot; /* memory that the drives reach: the table, and behind it the rows */
    uint64_t slot_bytes, rows_at, unit, rows, most;
    int array;     /* whose rows are read */
    uint64_t ssds; /* row v lies on drive v mod ssds */
    uint64_t turn; /* so that each burst reads other rows */
};

/* This instance's part of the memory of slots. Nobody has a slot before the pipeline starts. */
static pst_rc find_memory(struct pst_stage *self, struct probe *p)
{
    int instances = 1;
    uint64_t bytes = 0;
    const int instance = pst_instance(self, &instances);
    char *region = pst_slot_region(self, 0, &bytes);
    p->array = pst_disk_stage_array(&p->d->config);
    const struct pst_request_array *a = &p->d->config.arrays[p->array];
    /* so that rows are not read together */
    const uint64_t between = pst_disk_gap(p->d->engine) + PST_PAGE;
    p->unit = a->rows_in.unit;
    p->rows = a->rows;
    p->slot_bytes = bytes / (uint64_t)instances / PST_PAGE * PST_PAGE;
    p->slot = region + p->slot_bytes * (uint64_t)instance;
    const uint64_t place = pst_align_up(p->unit, PST_SECTOR) + sizeof(struct pst_request);
    p->most = p->slot_bytes > PST_PAGE ? (p->slot_bytes - PST_PAGE) / place : 0;
    p->most = p->most < BURST_MAX ? p->most : BURST_MAX;
    if (p->rows * p->unit / between < p->most)
        p->most = p->rows * p->unit / between;
    p->rows_at = pst_align_up(p->most * sizeof(struct pst_request), PST_PAGE);
    return p->most >= BURST_MIN
               ? PST_OK
               : pst_fail(
                     PST_E_ARG,
                     "accumulate is \"auto\", but the speed of the drives is not known, and %llu feature "
                     "rows of %llu bytes are too few to measure it: set iop_peak and initial_us "
                     "(`penstock bench io` measures them)",
                     (unsigned long long)p->rows, (unsigned long long)p->unit);
}

/* Reads n rows that are far apart, and equally many of each drive. */
static pst_rc read_rows(struct probe *p, uint64_t n, struct pst_disk_ticket *ticket)
{
    struct pst_request *table = (struct pst_request *)(void *)p->slot;
    uint64_t step = p->rows / n;
    step -= (step - 1) % p->ssds;
    const uint64_t from = p->turn++ * 7919 % step, place = pst_align_up(p->unit, PST_SECTOR);
    for (uint64_t i = 0; i < n; i++)
        table[i] = (struct pst_request){.op = PST_REQUEST_READ,
                                        .array = (uint16_t)p->array,
                                        .rows = 1,
                                        .row = from + i * step,
                                        .offset = p->rows_at + i * place,
                                        .tag = from + i * step};
    pst_rc rc = pst_disk_add(p->d->engine, ticket, p->slot, p->slot_bytes, 0, n);
    pst_disk_whole(p->d->engine, ticket);
    return rc == PST_OK ? pst_disk_wait(p->d->engine, BURST_MS_MAX) : rc;
}

static int by_size(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The time of some bursts of n rows, and how many accesses each was. */
static pst_rc time_bursts(struct probe *p, uint64_t n, int repeats, double *seconds, double *accesses)
{
    double took[SINGLES];
    const uint64_t before = pst_disk_stats(p->d->engine)->requests;
    for (int i = 0; i < repeats; i++) {
        struct pst_disk_ticket ticket = {0};
        const double begin = pst_now();
        const pst_rc rc = read_rows(p, n, &ticket);
        took[i] = pst_now() - begin;
        if (rc != PST_OK)
            return pst_wrap(rc, "measuring the drives for accumulate \"auto\"");
    }
    qsort(took, (size_t)repeats, sizeof *took, by_size);
    *seconds = took[n == 1 ? repeats / 2 : 0];
    *accesses = (double)(pst_disk_stats(p->d->engine)->requests - before) / repeats;
    return PST_OK;
}

pst_rc pst_disk_stage_probe(struct pst_stage *self, struct disk *d, struct pst_burst *found)
{
    struct probe p = {.d = d, .ssds = (uint64_t)found->ssds};
    double single = 0, one = 0, seconds = 0, accesses = 0;
    const double begin = pst_now();
    pst_rc rc = find_memory(self, &p);
    if (rc == PST_OK)
        rc = time_bursts(&p, 1, 1, &single, &one); /* the first one also wakes threads and touches memory */
    if (rc == PST_OK)
        rc = time_bursts(&p, 1, SINGLES, &single, &one);
    for (uint64_t n = BURST_MIN; n <= p.most && rc == PST_OK; n *= 2) {
        rc = time_bursts(&p, n, REPEATS, &seconds, &accesses);
        if (seconds >= LONG_ENOUGH * single || pst_now() - begin > PROBE_S)
            break;
    }
    if (rc != PST_OK)
        return rc;
    memset(p.slot, 0, p.rows_at + p.most * pst_align_up(p.unit, PST_SECTOR));
    if (!pst_burst_fit(found, one, single, accesses, seconds))
        return pst_fail(
            PST_E_STATE,
            "accumulate is \"auto\", but %.0f accesses took %.0f us and one took %.0f us, which says "
            "nothing about the drives' peak: set iop_peak and initial_us",
            accesses, seconds * 1e6, single * 1e6);
    d->probe_s = pst_now() - begin;
    return PST_OK;
}
