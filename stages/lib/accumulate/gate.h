/* gate.h: the storage access accumulator (GIDS: Park et al., VLDB 2024, section 3.2): iterations wait until
 * enough accesses can go to the drives together. This is the decision alone; the disk stage counts and
 * submits.
 *
 * A burst of N accesses takes T_i until its first data come, N / (IOP_peak N_ssd) while the drives are busy,
 * and T_t from the last data to the end. So the drives reach the share f of their peak with
 *
 *     N_access = f / (1 - f) * IOP_peak * N_ssd * (T_i + T_t)
 *     f(N) = N / (N + IOP_peak * N_ssd * (T_i + T_t))
 *
 * These are the paper's equations 2 and 3, with the N_ssd that equation 3 lacks as printed: without it,
 * nothing solves them for two SSDs from half of the peak on. IOP_peak is that of one SSD.
 *
 * Owner: the caller. Threads: any; the functions have no state. */
#ifndef PST_GATE_H
#define PST_GATE_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_burst {
    double iop_peak;   /* of one SSD, per second */
    double ssds;       /* N_ssd */
    double overhead_s; /* T_i + T_t */
};

/* share: f, above 0 and below 1. */
PST_API double pst_burst_accesses(const struct pst_burst *b, double share);
PST_API double pst_burst_share(const struct pst_burst *b, double accesses);
/* The model that two measured bursts fit: `few` accesses took few_s, and `many` took many_s. Keeps b->ssds,
 * and sets iop_peak and overhead_s (0, if the first burst was faster than the peak). False: no peak explains
 * them.
 */
PST_API bool pst_burst_fit(struct pst_burst *b, double few, double few_s, double many, double many_s);

enum pst_gate_kind {
    PST_GATE_NONE,       /* requests go to the drives as they come */
    PST_GATE_OFF,        /* one iteration at a time: the next begins when the last has ended (BaM) */
    PST_GATE_ITERATIONS, /* `want` iterations together */
    PST_GATE_ACCESSES    /* iterations with `want` accesses together */
};

/* An iteration is what one slot asks for. Waiting ones are complete and not submitted; flying ones are
 * submitted, and their last access has not ended. */
struct pst_gate {
    enum pst_gate_kind kind;
    uint64_t want;
    uint64_t waiting, waiting_accesses, flying, flying_accesses;
};

/* May the oldest waiting iteration be submitted? full: no more can come before one that waits or flies has
 * ended, so that waiting longer would last for ever. New ones join those that fly as old ones end. */
PST_API bool pst_gate_opens(const struct pst_gate *g, bool full);

/* "none", "off", "auto" or a number of iterations. *automatic: it was auto; the kind is ACCESSES, and the
 * caller sets `want`. PST_E_ARG. */
PST_API PST_MUST_USE pst_rc pst_gate_parse(struct pst_gate *g, const char *text, bool *automatic);

PST_END_DECLS
#endif
