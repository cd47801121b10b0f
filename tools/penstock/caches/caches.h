/* caches.h: what `penstock caches` was asked for, what it found, and how that is printed. */
#ifndef PST_CACHES_H
#define PST_CACHES_H

#include "common/machine/machine.h"
#include "common/slots/minibatch.h"
#include "stages/lib/legion/legion.h"

struct caches_args {
    const char *dataset, *machine_file; /* NULL: this machine */
    bool one, json, rows_only;          /* one: a policy was named */
    enum pst_legion_policy policy;
    int64_t devices, cls;
    struct pst_legion_config config;
    int64_t fanout[PST_HOPS_MAX];
    double cached_share; /* of the vertices, on each device; 0: rows or bytes are given */
    struct pst_machine machine;
};

/* One policy, counted over an epoch that was not sampled ahead. */
struct caches_result {
    enum pst_legion_policy policy;
    const struct pst_legion *legion;
    struct pst_legion_traffic traffic[PST_CLIQUES_MAX]; /* of each device */
    double hit[PST_CLIQUES_MAX];                        /* share of rows that come from a cache */
    double mean, least, most;                           /* of these */
    uint64_t local, peer, host, largest; /* rows, of all devices; the largest one's from the host */
    uint64_t transactions;               /* of rows and lists from the host */
    /* of each clique, if the share of lists was searched: what the epoch needs with each share */
    double (*counted_t)[PST_LEGION_ALPHAS], (*counted_f)[PST_LEGION_ALPHAS];
};

/* Before the first policy, after each, and after the last. */
void caches_print_head(const struct caches_args *args);
PST_MUST_USE pst_rc caches_print(const struct caches_args *args, const struct caches_result *r, bool first);
void caches_print_unfit(const struct caches_args *args, enum pst_legion_policy policy, const char *why);
void caches_print_end(const struct caches_args *args);

#endif
