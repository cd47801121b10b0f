/* prices.h: what hardware costs and how fast it is. README.md has the keys of the file.
 * Owner: the caller; a value has no pointers. Threads: any. */
#ifndef PST_TPC_PRICES_H
#define PST_TPC_PRICES_H

#include "common/base.h"
#include "common/pipeline/json/diag.h"

#define PST_TPC_KINDS_MAX 32   /* of GPUs, of SSDs and of systems */
#define PST_TPC_COUNT_MAX 4096 /* GPUs, SSDs or machines of a system */

struct pst_tpc_gpu {
    char name[PST_NAME_MAX];
    double usd;
    double tflops;           /* peak in float32, without tensor cores: training times scale with it */
    double pcie_bytes_per_s; /* of its slot */
};

struct pst_tpc_ssd {
    char name[PST_NAME_MAX];
    double usd;
    double iops, bytes_per_s; /* random reads */
};

/* A system whose cost is of interest, for example one of the paper's Table I. */
struct pst_tpc_system {
    char name[PST_NAME_MAX];
    int gpu, ssd; /* indices; ssd -1: none */
    int gpus, ssds, machines;
};

struct pst_tpc_prices {
    double machine_usd, electricity_usd;
    struct pst_tpc_gpu gpus[PST_TPC_KINDS_MAX];
    struct pst_tpc_ssd ssds[PST_TPC_KINDS_MAX];
    struct pst_tpc_system systems[PST_TPC_KINDS_MAX];
    int ngpus, nssds, nsystems;
};

/* Reads a file; NULL: the built-in prices, which are the paper's. False: diag has every error. */
PST_API bool pst_tpc_prices_load(struct pst_tpc_prices *prices, const char *file, struct pst_diag *diag);
/* The built-in prices as the text of a file. */
PST_API const char *pst_tpc_prices_default(void);

/* An index, or -1. */
PST_API int pst_tpc_gpu_named(const struct pst_tpc_prices *prices, const char *name);
PST_API int pst_tpc_ssd_named(const struct pst_tpc_prices *prices, const char *name);

/* Equation 5 for one of the systems: *machine_usd is the cost of each machine. Returns the cost of all. */
PST_API double pst_tpc_system_cost(const struct pst_tpc_prices *prices, const struct pst_tpc_system *system,
                                   double *machine_usd);

#endif
