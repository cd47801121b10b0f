/* tpc.h: how long a batch takes and what it costs: equations 3, 4 and 5 of Hyperion (sections III-C and VI).
 * TPC, throughput per cost, is training samples per second and US dollar.
 *
 * Units: seconds, US dollars, and transactions of PST_TPC_CLS_BYTES. NAN stands for a value that is not
 * known; what needs it is then not known either. Owner: none; all values are plain. Threads: any. */
#ifndef PST_TPC_H
#define PST_TPC_H

#include "common/base.h"

#define PST_TPC_CLS_BYTES 64   /* of a PCIe transaction: the cache line of the machine that reads (CLS) */
#define PST_TPC_MONEY_BYTES 32 /* of pst_tpc_money's text */

enum pst_tpc_bound { PST_TPC_SSD, PST_TPC_PCIE, PST_TPC_TRAIN, PST_TPC_UNKNOWN };

/* What one batch moves and needs, on average. */
struct pst_tpc_batch {
    double samples; /* Bs */
    double n_ssd;   /* transactions that bring data from SSDs */
    double n_mem;   /* transactions that read CPU memory over PCIe */
    double alpha_s; /* what the lookup in the caches adds */
    double train_s; /* T_train */
};

/* What the hardware gives: transactions per second. */
struct pst_tpc_rates {
    double th_ssd; /* of one SSD, at the size of the reads */
    double th_pcie;
    int ssds; /* Q */
};

struct pst_tpc_times {
    double ssd_s, pcie_s, train_s;
    double batch_s; /* T_batch: the largest of those that are known; NAN if none is */
    enum pst_tpc_bound bound;
};

/* Equation 4. T_ssd = N_ssd / (Th_ssd Q) + alpha; T_pcie = (N_ssd + N_mem) / Th_pcie. Without
 * transactions both are 0. */
PST_API struct pst_tpc_times pst_tpc_times(const struct pst_tpc_batch *batch,
                                           const struct pst_tpc_rates *rates);
PST_API const char *pst_tpc_bound_name(enum pst_tpc_bound bound); /* "ssd", "pcie", "train"; NULL: unknown */

/* The parts of a system of `machines` equal machines, and the price of each part. */
struct pst_tpc_parts {
    double machine_usd, electricity_usd; /* of one machine, over its life (five years in the paper) */
    double gpu_usd, ssd_usd;
    int gpus, ssds; /* of one machine */
    int machines;
};

/* Equation 5: (C_mac + C_gpu N_gpu + C_ssd N_ssd + C_ele) N_mac. */
PST_API double pst_tpc_cost(const struct pst_tpc_parts *parts);
/* Equation 3. cost_usd: C_ssd Q + C_machine, the total cost of the system. */
PST_API double pst_tpc_of(double samples, double batch_s, double cost_usd);

/* Whole dollars with separators, "48,971". Not finite: "unknown". */
PST_API const char *pst_tpc_money(double usd, char out[PST_TPC_MONEY_BYTES]);

#endif
