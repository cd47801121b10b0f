/* search.h: predicts what other hardware would do with a profiled training, and finds the hardware with the
 * highest TPC (Hyperion, section III-C). Owner: the caller; values have no pointers. Threads: any. */
#ifndef PST_TPC_SEARCH_H
#define PST_TPC_SEARCH_H

#include "common/tpc/prices.h"
#include "common/tpc/tpc.h"

#define PST_TPC_SLOTS_MAX 64 /* SSDs of a machine that are tried */
#define PST_TPC_HINT_BYTES 512

/* A profiled training, and what it ran on. NAN: not known. */
struct pst_tpc_profile {
    struct pst_tpc_batch batch;
    struct pst_tpc_rates rates;
    double access_bytes; /* of a read from an SSD, on average */
    double dilate;       /* modelled drives and bus are this many times slower than the parts in the prices */
    int gpu, ssd;        /* in the prices: what trained, or what the CPU stands for; and the SSDs */
};

struct pst_tpc_option {
    int gpu, ssd, ssds;
    struct pst_tpc_times times;
    double samples_per_s, cost_usd, tpc;
};

struct pst_tpc_limits {
    double budget_usd; /* INFINITY: none */
    int slots;         /* most SSDs: 1 to PST_TPC_SLOTS_MAX */
};

/* One machine with one GPU and `ssds` SSDs. The profiled SSD has the profiled rate, another one that of the
 * prices, dilated. T_train scales with the GPUs' float32 rates, Th_pcie with the rates of their slots. */
PST_API struct pst_tpc_option pst_tpc_predict(const struct pst_tpc_prices *prices,
                                              const struct pst_tpc_profile *profile, int gpu, int ssd,
                                              int ssds);

/* The option with the highest TPC; of equals, the cheapest. gpu, ssd: only this one; -1: any. False: none is
 * within the limits, or nothing is known about the times. */
PST_API bool pst_tpc_best(const struct pst_tpc_prices *prices, const struct pst_tpc_profile *profile,
                          const struct pst_tpc_limits *limits, int gpu, int ssd, struct pst_tpc_option *best);

/* One sentence or two that say what to change. best NULL: nothing is within the limits. */
PST_API const char *pst_tpc_hint(const struct pst_tpc_prices *prices, const struct pst_tpc_option *now,
                                 const struct pst_tpc_option *best, char out[PST_TPC_HINT_BYTES]);

#endif
