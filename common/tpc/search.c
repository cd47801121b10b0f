/* search.c: predictions for other hardware, the best of them, and the hint. */
#include "common/tpc/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SAME 1e-9 /* relative: options with less between them are equally good */

/* Transactions per second of one SSD. */
static double rate_of(const struct pst_tpc_prices *prices, const struct pst_tpc_profile *profile, int ssd)
{
    const struct pst_tpc_ssd *s = &prices->ssds[ssd];
    if (ssd == profile->ssd && !isnan(profile->rates.th_ssd))
        return profile->rates.th_ssd;
    return fmin(s->iops * profile->access_bytes, s->bytes_per_s) / PST_TPC_CLS_BYTES / profile->dilate;
}

struct pst_tpc_option pst_tpc_predict(const struct pst_tpc_prices *prices,
                                      const struct pst_tpc_profile *profile, int gpu, int ssd, int ssds)
{
    const struct pst_tpc_gpu *g = &prices->gpus[gpu], *profiled = &prices->gpus[profile->gpu];
    struct pst_tpc_batch batch = profile->batch;
    batch.train_s *= profiled->tflops / g->tflops;
    const struct pst_tpc_rates rates = {.th_ssd = rate_of(prices, profile, ssd),
                                        .th_pcie = profile->rates.th_pcie *
                                                   (g->pcie_bytes_per_s / profiled->pcie_bytes_per_s),
                                        .ssds = ssds};
    const struct pst_tpc_parts parts = {.machine_usd = prices->machine_usd,
                                        .electricity_usd = prices->electricity_usd,
                                        .gpu_usd = g->usd,
                                        .ssd_usd = prices->ssds[ssd].usd,
                                        .gpus = 1,
                                        .ssds = ssds,
                                        .machines = 1};
    struct pst_tpc_option o = {.gpu = gpu, .ssd = ssd, .ssds = ssds, .times = pst_tpc_times(&batch, &rates)};
    o.cost_usd = pst_tpc_cost(&parts);
    o.samples_per_s = batch.samples / o.times.batch_s;
    o.tpc = pst_tpc_of(batch.samples, o.times.batch_s, o.cost_usd);
    return o;
}

static bool is_better(const struct pst_tpc_option *a, const struct pst_tpc_option *b)
{
    if (fabs(a->tpc - b->tpc) <= SAME * b->tpc)
        return a->cost_usd < b->cost_usd;
    return a->tpc > b->tpc;
}

bool pst_tpc_best(const struct pst_tpc_prices *prices, const struct pst_tpc_profile *profile,
                  const struct pst_tpc_limits *limits, int gpu, int ssd, struct pst_tpc_option *best)
{
    bool found = false;
    for (int g = 0; g < prices->ngpus; g++)
        for (int s = 0; s < prices->nssds; s++)
            for (int n = 1; n <= limits->slots; n++) {
                if ((gpu >= 0 && g != gpu) || (ssd >= 0 && s != ssd))
                    continue;
                const struct pst_tpc_option o = pst_tpc_predict(prices, profile, g, s, n);
                if (isnan(o.tpc) || o.cost_usd > limits->budget_usd || (found && !is_better(&o, best)))
                    continue;
                *best = o;
                found = true;
            }
    return found;
}

/* What to do to get from `now` to `best`. */
static void change(const struct pst_tpc_prices *prices, const struct pst_tpc_option *now,
                   const struct pst_tpc_option *best, char out[PST_TPC_HINT_BYTES])
{
    const char *gpu = prices->gpus[best->gpu].name, *ssd = prices->ssds[best->ssd].name;
    char gpus[PST_NAME_MAX + 64] = "";
    if (best->gpu != now->gpu)
        (void)snprintf(gpus, sizeof gpus, "Replace the %s by one %s", prices->gpus[now->gpu].name, gpu);
    if (best->ssd != now->ssd)
        (void)snprintf(out, PST_TPC_HINT_BYTES, "%s%s the %d %s by %d %s", gpus,
                       gpus[0] != '\0' ? ", and" : "Replace", now->ssds, prices->ssds[now->ssd].name,
                       best->ssds, ssd);
    else if (best->ssds != now->ssds)
        (void)snprintf(out, PST_TPC_HINT_BYTES, "%s%s %d %s", gpus,
                       best->ssds > now->ssds ? gpus[0] != '\0' ? ", and add" : "Add"
                       : gpus[0] != '\0'      ? ", and remove"
                                              : "Remove",
                       abs(best->ssds - now->ssds), ssd);
    else
        (void)snprintf(out, PST_TPC_HINT_BYTES, "%s", gpus);
}

const char *pst_tpc_hint(const struct pst_tpc_prices *prices, const struct pst_tpc_option *now,
                         const struct pst_tpc_option *best, char out[PST_TPC_HINT_BYTES])
{
    static const char *const bounds[] = {"the SSDs bound", "PCIe bounds", "training bounds"};
    char what[PST_TPC_HINT_BYTES], before[PST_TPC_MONEY_BYTES], after[PST_TPC_MONEY_BYTES];
    if (best == NULL) {
        (void)snprintf(out, PST_TPC_HINT_BYTES, "No such system is within the budget.");
    } else if (best->gpu == now->gpu && best->ssd == now->ssd && best->ssds == now->ssds) {
        (void)snprintf(out, PST_TPC_HINT_BYTES,
                       "Keep this system: no other one within the limits has a higher TPC; %s each batch.",
                       bounds[best->times.bound]);
    } else {
        change(prices, now, best, what);
        (void)snprintf(out, PST_TPC_HINT_BYTES,
                       "%s: the TPC is then %.2f times as high, with %.0f instead of %.0f samples per second "
                       "for %s instead of %s dollars, and %s each batch.",
                       what, best->tpc / now->tpc, best->samples_per_s, now->samples_per_s,
                       pst_tpc_money(best->cost_usd, after), pst_tpc_money(now->cost_usd, before),
                       bounds[best->times.bound]);
    }
    return out;
}
