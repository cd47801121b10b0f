/* bound.c: the bottleneck is the stage that has most of the run's time to do. Waiting for a disk is the
 * disk's work and counts. Waiting for input or for a free slot is somebody else's.
 *
 * If each instance has a fixed share of the batches, the slowest one holds up the rest. If the free one takes
 * the next batch, all of them work as one: their mean counts, since one may do most of the work while the
 * others have nothing to do. */
#include "common/run/bound.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Requests can be in flight all the time because the stage before sends them slowly. So a stage that waits
 * for its disk loses against one that works for about as long. */
#define WAITING_WEIGHT 0.9
/* A program counts as busy while it has a slot. If it keeps a slot until the next one comes, it may only wait
 * for that one. So it loses against a stage that works, or waits for a disk, for about as long. */
#define PROGRAM_WEIGHT 0.8
/* A plan is made once, and a longer run has the same one. So a planner is the bottleneck only if it works
 * this many times as long as any stage of the streams. */
#define EARLY_FACTOR 2.0
#define BUS_SHARE 0.9 /* of a disk's waiting: a bus that is busy for longer holds the disk up */

struct judged {
    double busy_s, disk_s, bus_s;
};

static double total(struct judged j, enum pst_run_worker worker)
{
    return (worker == PST_RUN_PROGRAM ? PROGRAM_WEIGHT : 1.0) * j.busy_s +
           (j.disk_s > j.busy_s ? WAITING_WEIGHT : 1.0) * j.disk_s;
}

/* All instances of parts[first]'s stage. */
static struct judged judge(const struct pst_run_part *parts, int n, int first)
{
    const enum pst_run_worker worker = parts[first].worker;
    struct judged sum = {0}, most = {0};
    int instances = 0;
    for (int i = first; i < n; i++) {
        if (strcmp(parts[i].stage, parts[first].stage) != 0)
            continue;
        const struct judged one = {parts[i].busy_s, parts[i].disk_s, parts[i].bus_s};
        most = total(one, worker) > total(most, worker) ? one : most;
        sum.busy_s += one.busy_s;
        sum.disk_s += one.disk_s;
        sum.bus_s += one.bus_s;
        instances++;
    }
    return parts[first].by_turn
               ? most
               : (struct judged){sum.busy_s / instances, sum.disk_s / instances, sum.bus_s / instances};
}

double pst_run_share(const struct pst_run_part *part, double span_s)
{
    return span_s > 0 ? (part->busy_s + part->disk_s) / span_s : 0;
}

static const char *resource(struct judged j, enum pst_run_worker worker, double bus_s)
{
    static const char *const workers[] = {"cpu", "gpu", "program", "copy"};
    if (j.disk_s > j.busy_s)
        return bus_s >= BUS_SHARE * j.disk_s ? "bus" : "ssd";
    return j.bus_s > j.busy_s - j.bus_s ? "bus" : workers[worker];
}

bool pst_run_bound(const struct pst_run_part *parts, int n, double span_s, double bus_s,
                   char out[PST_NAME_MAX + 16])
{
    struct judged most = {0};
    double longest = 0, early = 0;
    int best = -1;
    for (int i = 0; i < n; i++) {
        const struct judged j = judge(parts, n, i);
        if (parts[i].streams && total(j, parts[i].worker) > longest) {
            longest = total(j, parts[i].worker);
            most = j;
            best = i;
        }
    }
    for (int i = 0; i < n; i++) {
        const struct judged j = judge(parts, n, i);
        if (!parts[i].streams && total(j, parts[i].worker) > fmax(early, EARLY_FACTOR * longest)) {
            early = total(j, parts[i].worker);
            most = j;
            best = i;
        }
    }
    out[0] = '\0';
    if (best < 0 || span_s <= 0)
        return false;
    (void)snprintf(out, PST_NAME_MAX + 16, "%s (%s)", parts[best].stage,
                   resource(most, parts[best].worker, bus_s));
    return true;
}
