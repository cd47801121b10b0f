/* tpc.c: the equations of tpc.h. */
#include "common/tpc/tpc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MONEY_MAX 1e15 /* beyond it a double has no whole dollars */

static double ssd_time(const struct pst_tpc_batch *b, const struct pst_tpc_rates *r)
{
    return b->n_ssd > 0 || isnan(b->n_ssd) ? b->n_ssd / (r->th_ssd * r->ssds) + b->alpha_s : 0;
}

static double pcie_time(const struct pst_tpc_batch *b, const struct pst_tpc_rates *r)
{
    const double n = b->n_ssd + b->n_mem;
    return n > 0 || isnan(n) ? n / r->th_pcie : n;
}

struct pst_tpc_times pst_tpc_times(const struct pst_tpc_batch *batch, const struct pst_tpc_rates *rates)
{
    struct pst_tpc_times t = {.ssd_s = ssd_time(batch, rates),
                              .pcie_s = pcie_time(batch, rates),
                              .train_s = batch->train_s,
                              .batch_s = NAN,
                              .bound = PST_TPC_UNKNOWN};
    const double each[] = {t.ssd_s, t.pcie_s, t.train_s};
    for (int i = 0; i < 3; i++) {
        if (isnan(each[i]) || (t.bound != PST_TPC_UNKNOWN && each[i] <= t.batch_s))
            continue;
        t.batch_s = each[i];
        t.bound = (enum pst_tpc_bound)i;
    }
    return t;
}

const char *pst_tpc_bound_name(enum pst_tpc_bound bound)
{
    static const char *const names[] = {"ssd", "pcie", "train", NULL};
    return names[bound];
}

double pst_tpc_cost(const struct pst_tpc_parts *p)
{
    return (p->machine_usd + p->gpu_usd * p->gpus + p->ssd_usd * p->ssds + p->electricity_usd) * p->machines;
}

double pst_tpc_of(double samples, double batch_s, double cost_usd)
{
    return samples / (batch_s * cost_usd);
}

const char *pst_tpc_money(double usd, char out[PST_TPC_MONEY_BYTES])
{
    char digits[PST_TPC_MONEY_BYTES];
    size_t at = 0;
    if (!(fabs(usd) < MONEY_MAX)) {
        (void)snprintf(out, PST_TPC_MONEY_BYTES, "unknown");
        return out;
    }
    (void)snprintf(digits, sizeof digits, "%.0f", fabs(usd));
    const size_t n = strlen(digits);
    if (usd <= -0.5)
        out[at++] = '-';
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}
