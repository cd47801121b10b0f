/* scale.c: the equations of scale.h. */
#include "common/tpc/scale.h"

#include <math.h>

#define ID_BYTES 8 /* that ask for a row */

static int rounds_of_tree(int nodes)
{
    int rounds = 0;
    while ((1 << rounds) < nodes)
        rounds++;
    return rounds;
}

static double ssd_time(const struct pst_tpc_machine *m)
{
    const double n = m->devices * m->batch.n_ssd;
    return n > 0 || isnan(n) ? n / (m->rates.th_ssd * m->rates.ssds) + m->batch.alpha_s : 0;
}

/* The larger part of a sum is what bounds it. */
static void take_longer(struct pst_tpc_step *s, double own_s, enum pst_tpc_scale_bound own, double network_s)
{
    const double sum = own_s + network_s;
    if (isnan(sum) || (s->bound != PST_TPC_SCALE_UNKNOWN && sum <= s->step_s))
        return;
    s->step_s = sum;
    s->bound = own_s >= network_s ? own : PST_TPC_SCALE_NETWORK;
}

static struct pst_tpc_step times_of(const struct pst_tpc_machine *m, int nodes)
{
    const double away = m->devices * m->missed_rows * (nodes - 1) / nodes * (m->row_bytes + ID_BYTES);
    const int messages = rounds_of_tree(nodes);
    struct pst_tpc_step s = {.compute_s = m->batch.train_s, .ssd_s = ssd_time(m), .step_s = NAN};
    s.bound = PST_TPC_SCALE_UNKNOWN;
    if (nodes > 1) { /* a machine alone needs no network, whatever is unknown of it */
        s.network_bytes = away + messages * m->gradient_bytes;
        s.rows_s = away / m->nic_bytes_per_s;
        s.gradient_s = messages * (m->gradient_bytes / m->nic_bytes_per_s + m->nic_latency_s);
        s.network_s = s.rows_s + s.gradient_s;
    }
    take_longer(&s, s.compute_s, PST_TPC_SCALE_COMPUTE, s.gradient_s);
    take_longer(&s, s.ssd_s, PST_TPC_SCALE_SSD, s.rows_s);
    if (nodes > 1)
        take_longer(&s, 0, PST_TPC_SCALE_NETWORK, s.network_s);
    s.samples_per_s = nodes * m->devices * m->batch.samples / s.step_s;
    return s;
}

struct pst_tpc_step pst_tpc_scale(const struct pst_tpc_machine *machine, int nodes)
{
    assert(machine->devices >= 1 && nodes >= 1 && nodes <= PST_TPC_NODES_MAX);
    const struct pst_tpc_step one = times_of(machine, 1);
    struct pst_tpc_step s = times_of(machine, nodes);
    s.efficiency = s.samples_per_s / nodes / one.samples_per_s;
    return s;
}

const char *pst_tpc_scale_bound_name(enum pst_tpc_scale_bound bound)
{
    static const char *const names[] = {"compute", "ssd", "network", NULL};
    return names[bound];
}
