/* scale.h: the time of a step on several equal machines, from what one machine was measured to need. The
 * model is Penstock's own, and is of no paper. All machines train one model. Each vertex belongs to one
 * machine, by hash. A machine reads the rows of its own vertices from its SSDs, and gets the other rows that
 * it lacks from their owners. Every machine caches the same hottest rows. The devices of a machine share its
 * SSDs and its network interface. Work that overlaps costs the time of its longest part.
 *
 * Units: seconds and bytes, all of one step. NAN stands for a value that is not known; what needs it is then
 * not known either. Owner: none; all values are plain. Threads: any. */
#ifndef PST_TPC_SCALE_H
#define PST_TPC_SCALE_H

#include "common/tpc/tpc.h"

#define PST_TPC_NODES_MAX 1000

enum pst_tpc_scale_bound {
    PST_TPC_SCALE_COMPUTE,
    PST_TPC_SCALE_SSD,
    PST_TPC_SCALE_NETWORK,
    PST_TPC_SCALE_UNKNOWN
};

struct pst_tpc_machine {
    int devices;                /* each trains a batch in a step */
    struct pst_tpc_batch batch; /* of one device: samples, n_ssd, alpha_s and train_s */
    struct pst_tpc_rates rates; /* th_ssd and ssds */
    double missed_rows;         /* of one device's batch: rows that the machine does not cache */
    double row_bytes;
    double gradient_bytes;
    double nic_bytes_per_s, nic_latency_s; /* of the machine's interface, in each direction; of a message */
};

struct pst_tpc_step {
    double compute_s, ssd_s;
    double rows_s, gradient_s; /* the parts of network_s */
    double network_s;
    double step_s; /* the largest of those that are known; NAN if none is */
    enum pst_tpc_scale_bound bound;
    double samples_per_s; /* of all machines */
    double efficiency;    /* samples a second and machine, over those of one machine */
    double network_bytes; /* that each machine receives */
};

/* nodes: N, 1 to PST_TPC_NODES_MAX machines of D devices.
 *
 * compute: T_train.
 *
 * SSD: D N_ssd / (Th_ssd Q) + alpha; 0 if nothing is read. A machine reads as much for others as they for it.
 *
 * rows: D x missed rows x (N - 1) / N x (row bytes + 8 of the id) / bandwidth.
 *
 * gradient: ceil(log2 N) (gradient bytes / bandwidth + latency), because two machines that exchange their
 * sums send in both directions at once (common/collective).
 *
 * step: the longest of three that run side by side. The trainer computes, then adds up gradients: compute +
 * gradient. The stage remote reads, then exchanges rows: SSD + rows. The interface carries both: network
 * = rows + gradient. What bounds the step is the larger part of the longest. */
PST_API struct pst_tpc_step pst_tpc_scale(const struct pst_tpc_machine *machine, int nodes);
PST_API const char *pst_tpc_scale_bound_name(enum pst_tpc_scale_bound bound); /* "compute"; NULL: unknown */

#endif
