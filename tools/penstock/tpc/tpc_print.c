/* tpc_print.c: the tables and the JSON of `penstock tpc`. */
#include "tools/penstock/tpc/tpc_print.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define MIB 1048576.0

/* Cached shares of the rows that are shown, besides the run's own. */
static const double cache_shares[] = {0, 0.01, 0.05, 0.1, 0.2, 0.5, 1};
enum { CACHES_MAX = sizeof cache_shares / sizeof *cache_shares + 1 };

struct cache_option {
    int64_t rows;
    struct pst_tpc_option now;  /* with today's hardware */
    struct pst_tpc_option best; /* with the best number of today's SSDs */
    bool found;
};

/* Fills the caches in ascending order; returns how many. */
static int predict_caches(const struct tpc_answer *a, struct cache_option out[CACHES_MAX])
{
    const struct tpc_profile *p = a->profile;
    int64_t rows[CACHES_MAX];
    int n = 0;
    for (size_t i = 0; p->share_of != NULL && i < sizeof cache_shares / sizeof *cache_shares; i++) {
        const int64_t next = (int64_t)(cache_shares[i] * (double)p->rows);
        if (n > 0 && rows[n - 1] < p->cached && p->cached < next)
            rows[n++] = p->cached;
        if (n == 0 || rows[n - 1] < next)
            rows[n++] = next;
    }
    for (int i = 0; i < n; i++) {
        const struct pst_tpc_profile m = tpc_profile_with_cache(p, rows[i]);
        out[i].rows = rows[i];
        out[i].now = pst_tpc_predict(a->prices, &m, a->now.gpu, a->now.ssd, a->now.ssds);
        out[i].found = pst_tpc_best(a->prices, &m, &a->limits, a->now.gpu, a->now.ssd, &out[i].best);
    }
    return n;
}

/* ---- text ---------------------------------------------------------------------------------------- */

static const char *ms(double s, char out[24])
{
    if (isnan(s))
        return "unknown";
    (void)snprintf(out, 24, "%.2f", s * 1e3);
    return out;
}

static void print_option(const struct tpc_answer *a, const struct pst_tpc_option *o, FILE *out)
{
    char parts[2 * PST_NAME_MAX + 16], t[3][24], usd[PST_TPC_MONEY_BYTES];
    const bool now = o->gpu == a->now.gpu && o->ssd == a->now.ssd && o->ssds == a->now.ssds;
    const bool best = a->found && o->gpu == a->best.gpu && o->ssd == a->best.ssd && o->ssds == a->best.ssds;
    (void)snprintf(parts, sizeof parts, "%s, %d %s", a->prices->gpus[o->gpu].name, o->ssds,
                   a->prices->ssds[o->ssd].name);
    fprintf(out, "%-24s %9s %9s %9s  %-6s %10.0f %9s %10.4g%s%s\n", parts, ms(o->times.ssd_s, t[0]),
            ms(o->times.pcie_s, t[1]), ms(o->times.train_s, t[2]), pst_tpc_bound_name(o->times.bound),
            o->samples_per_s, pst_tpc_money(o->cost_usd, usd), o->tpc, now ? "  now" : "",
            best ? "  best" : "");
}

/* All numbers of today's SSDs; of other parts the best number. */
static void print_options(const struct tpc_answer *a, FILE *out)
{
    fprintf(out, "%-24s %9s %9s %9s  %-6s %10s %9s %10s\n", "GPU, SSDs", "T_ssd ms", "T_pcie ms",
            "T_train ms", "bound", "samples/s", "USD", "TPC");
    const int most = a->now.ssds > a->limits.slots ? a->now.ssds : a->limits.slots;
    for (int n = 1; n <= most; n++) {
        const struct pst_tpc_option o =
            pst_tpc_predict(a->prices, &a->profile->model, a->now.gpu, a->now.ssd, n);
        if (n <= a->limits.slots || n == a->now.ssds)
            print_option(a, &o, out);
    }
    for (int g = 0; g < a->prices->ngpus; g++)
        for (int s = 0; s < a->prices->nssds; s++) {
            struct pst_tpc_option o;
            if ((g != a->now.gpu || s != a->now.ssd) &&
                pst_tpc_best(a->prices, &a->profile->model, &a->limits, g, s, &o))
                print_option(a, &o, out);
        }
}

static void print_caches(const struct tpc_answer *a, FILE *out)
{
    struct cache_option caches[CACHES_MAX];
    const int n = predict_caches(a, caches);
    const struct tpc_profile *p = a->profile;
    char t[24];
    if (n == 0) {
        fprintf(out, "\nOther cache sizes are not predicted: %s.\n", p->shares_unknown);
        return;
    }
    fprintf(out, "\n%-24s %9s  %-6s %10s   %s\n", "cached rows", "T_ssd ms", "bound", "samples/s",
            "with the best number of SSDs");
    for (int i = 0; i < n; i++) {
        const struct cache_option *c = &caches[i];
        char rows[64];
        (void)snprintf(rows, sizeof rows, "%lld (%.1f MiB)", (long long)c->rows,
                       (double)(c->rows * p->row_bytes) / MIB);
        fprintf(out, "%-24s %9s  %-6s %10.0f   ", rows, ms(c->now.times.ssd_s, t),
                pst_tpc_bound_name(c->now.times.bound), c->now.samples_per_s);
        if (c->found)
            fprintf(out, "%d: %.0f samples/s, TPC %.4g%s\n", c->best.ssds, c->best.samples_per_s, c->best.tpc,
                    c->rows == p->cached ? "  now" : "");
        else
            fprintf(out, "none is within the budget%s\n", c->rows == p->cached ? "  now" : "");
    }
}

void tpc_print_systems(const struct pst_tpc_prices *prices, FILE *out)
{
    for (int i = 0; i < prices->nsystems; i++) {
        const struct pst_tpc_system *s = &prices->systems[i];
        char each[PST_TPC_MONEY_BYTES], all[PST_TPC_MONEY_BYTES], ssds[PST_NAME_MAX + 32] = "no SSD";
        double each_usd = 0;
        const double usd = pst_tpc_system_cost(prices, s, &each_usd);
        if (s->ssds > 0)
            (void)snprintf(ssds, sizeof ssds, "%d %s", s->ssds, prices->ssds[s->ssd].name);
        (void)pst_tpc_money(each_usd, each);
        if (s->machines > 1)
            fprintf(out, "%s: %d x %s = %s dollars (each: %d %s, %s)\n", s->name, s->machines, each,
                    pst_tpc_money(usd, all), s->gpus, prices->gpus[s->gpu].name, ssds);
        else
            fprintf(out, "%s: %s dollars (%d %s, %s)\n", s->name, each, s->gpus, prices->gpus[s->gpu].name,
                    ssds);
    }
}

void tpc_print_text(const struct tpc_answer *a, FILE *out)
{
    const struct tpc_profile *p = a->profile;
    char hint[PST_TPC_HINT_BYTES];
    fprintf(out, "Profile: %s, %lld batches of %.0f samples. TPC is samples per second and dollar.\n",
            p->run_dir, (long long)p->batches, p->model.batch.samples);
    if (p->model.dilate > 1)
        fprintf(
            out,
            "Dilated: the drives are %g times slower than real ones, so times are too long and TPC is too "
            "low. Compare ratios.\n",
            p->model.dilate);
    if (p->pcie_unknown[0] != '\0')
        fprintf(out, "PCIe limits no option: T_pcie is unknown, because %s.\n", p->pcie_unknown);
    fprintf(out, "\n");
    print_options(a, out);
    print_caches(a, out);
    fprintf(out, "\nSSDs only: %s\n",
            pst_tpc_hint(a->prices, &a->now, a->found_more ? &a->more : NULL, hint));
    fprintf(out, "Any parts: %s\n\n", pst_tpc_hint(a->prices, &a->now, a->found ? &a->best : NULL, hint));
    tpc_print_systems(a->prices, out);
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *option_json(const struct tpc_answer *a, const struct pst_tpc_option *o)
{
    const char *bound = pst_tpc_bound_name(o->times.bound);
    return json_pack("{ss ss si so so so so so so so so}", "gpu", a->prices->gpus[o->gpu].name, "ssd",
                     a->prices->ssds[o->ssd].name, "ssds", o->ssds, "t_ssd_s", real(o->times.ssd_s),
                     "t_pcie_s", real(o->times.pcie_s), "t_train_s", real(o->times.train_s), "t_batch_s",
                     real(o->times.batch_s), "bound_by", bound != NULL ? json_string(bound) : json_null(),
                     "samples_per_s", real(o->samples_per_s), "cost_usd", real(o->cost_usd), "tpc",
                     real(o->tpc));
}

static json_t *options_json(const struct tpc_answer *a)
{
    json_t *list = json_array();
    for (int g = 0; g < a->prices->ngpus; g++)
        for (int s = 0; s < a->prices->nssds; s++)
            for (int n = 1; n <= a->limits.slots; n++) {
                const struct pst_tpc_option o = pst_tpc_predict(a->prices, &a->profile->model, g, s, n);
                if (o.cost_usd <= a->limits.budget_usd)
                    (void)json_array_append_new(list, option_json(a, &o));
            }
    return list;
}

static json_t *caches_json(const struct tpc_answer *a)
{
    struct cache_option caches[CACHES_MAX];
    const int n = predict_caches(a, caches);
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(
            list, json_pack("{sI sI so so}", "rows", (json_int_t)caches[i].rows, "bytes",
                            (json_int_t)caches[i].rows * a->profile->row_bytes, "now",
                            option_json(a, &caches[i].now), "best",
                            caches[i].found ? option_json(a, &caches[i].best) : json_null()));
    return list;
}

static json_t *systems_json(const struct pst_tpc_prices *prices)
{
    json_t *all = json_object();
    for (int i = 0; i < prices->nsystems; i++) {
        double each = 0;
        const double usd = pst_tpc_system_cost(prices, &prices->systems[i], &each);
        (void)json_object_set_new(all, prices->systems[i].name,
                                  json_pack("{si sf sf}", "machines", prices->systems[i].machines,
                                            "machine_usd", each, "usd", usd));
    }
    return all;
}

void tpc_print_json(const struct tpc_answer *a, FILE *out)
{
    const struct tpc_profile *p = a->profile;
    char hint[PST_TPC_HINT_BYTES], any[PST_TPC_HINT_BYTES];
    json_t *profile =
        json_pack("{ss sI so sf ss* ss*}", "run_dir", p->run_dir, "batches", (json_int_t)p->batches,
                  "samples_per_batch", real(p->model.batch.samples), "dilate", p->model.dilate,
                  "t_pcie_unknown", p->pcie_unknown[0] != '\0' ? p->pcie_unknown : NULL, "caches_unknown",
                  p->share_of == NULL ? p->shares_unknown : NULL);
    json_t *j = json_pack("{so so so so ss ss so so so}", "profile", profile, "now", option_json(a, &a->now),
                          "best_ssds", a->found_more ? option_json(a, &a->more) : json_null(), "best",
                          a->found ? option_json(a, &a->best) : json_null(), "hint",
                          pst_tpc_hint(a->prices, &a->now, a->found_more ? &a->more : NULL, hint), "hint_any",
                          pst_tpc_hint(a->prices, &a->now, a->found ? &a->best : NULL, any), "options",
                          options_json(a), "caches", caches_json(a), "systems", systems_json(a->prices));
    (void)json_dumpf(j, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fprintf(out, "\n");
    json_decref(j);
}
