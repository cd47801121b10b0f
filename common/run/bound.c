/* bound.c: the bottleneck is the stage that has most of the run's time to do. Waiting for a disk is the
 * disk's work and counts. Waiting for input or for a free slot is somebody else's.
 *
 * If each instance has a fixed share of the batches, the slowest one holds up the rest. If the free one takes
 * the next batch, all of them work as one: their mean counts, since one may do most of the work while the
 * others have nothing to do. */
#include "common/run/bound.h"

#include <stdio.h>
#include <string.h>

/* Requests can be in flight all the time because the stage before sends them slowly. So a stage that waits
 * for its disk loses against one that works for about as long. */
#define WAITING_WEIGHT 0.9

struct judged {
    double busy_s, disk_s;
};

static double total(struct judged j)
{
    return j.busy_s + (j.disk_s > j.busy_s ? WAITING_WEIGHT : 1.0) * j.disk_s;
}

/* All instances of parts[first]'s stage. */
static struct judged judge(const struct pst_run_part *parts, int n, int first)
{
    struct judged sum = {0}, most = {0};
    int instances = 0;
    for (int i = first; i < n; i++) {
        if (strcmp(parts[i].stage, parts[first].stage) != 0)
            continue;
        const struct judged one = {parts[i].busy_s, parts[i].disk_s};
        most = total(one) > total(most) ? one : most;
        sum.busy_s += one.busy_s;
        sum.disk_s += one.disk_s;
        instances++;
    }
    return parts[first].by_turn ? most : (struct judged){sum.busy_s / instances, sum.disk_s / instances};
}

double pst_run_share(const struct pst_run_part *part, double span_s)
{
    return span_s > 0 ? (part->busy_s + part->disk_s) / span_s : 0;
}

bool pst_run_bound(const struct pst_run_part *parts, int n, double span_s, char out[PST_NAME_MAX + 16])
{
    static const char *const workers[] = {"cpu", "gpu", "program", "copy"};
    struct judged most = {0};
    int best = -1;
    for (int i = 0; i < n; i++) {
        const struct judged j = judge(parts, n, i);
        if (parts[i].streams && total(j) > total(most)) {
            most = j;
            best = i;
        }
    }
    out[0] = '\0';
    if (best < 0 || span_s <= 0)
        return false;
    (void)snprintf(out, PST_NAME_MAX + 16, "%s (%s)", parts[best].stage,
                   most.disk_s > most.busy_s ? "ssd" : workers[parts[best].worker]);
    return true;
}
