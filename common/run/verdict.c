/* verdict.c: T_ssd, T_pcie and T_train of a run (Hyperion, section III-C). */
#include "common/run/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/tpc/tpc.h"

enum { WHY_MAX = 256 };

/* What is read from the report, and what is made of it. NAN: not known. */
struct verdict {
    const json_t *io, *model, *sampler, *trainer, *bus;
    struct pst_tpc_batch batch;
    struct pst_tpc_rates rates;
    double batches, measured_s, access_bytes;
    json_t *why;
};

static double num(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void because(struct verdict *v, const char *field, const char *fmt, ...) PST_PRINTF(3, 4);
static void because(struct verdict *v, const char *field, const char *fmt, ...)
{
    char text[WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)json_object_set_new(v->why, field, json_string(text));
}

/* The trainer times all batches but the first. */
static void judge_training(struct verdict *v)
{
    v->batches = num(v->trainer, "batches");
    const double timed = v->batches - 1;
    v->batch.samples = num(v->trainer, "seeds") / v->batches;
    v->batch.train_s = timed > 0 ? num(v->trainer, "train_s") / timed : NAN;
    v->measured_s = timed > 0 ? num(v->trainer, "span_s") / timed : NAN;
    if (isnan(v->batches))
        because(v, "batches", "no stage reported how many batches it trained");
    if (isnan(v->batch.train_s))
        because(v, "t_train_s", "only batches after the first are timed, and there was none");
}

/* Reads, and their mean size. A request of the engine may be several commands. */
static void judge_reads(struct verdict *v)
{
    const double bytes = num(v->io, "bytes"),
                 commands = num(v->io, "cpu_commands") + num(v->io, "gpu_commands"),
                 requests = commands > 0 ? commands : num(v->io, "requests");
    v->batch.n_ssd = bytes / v->batches / PST_TPC_CLS_BYTES;
    v->access_bytes = requests > 0 ? bytes / requests : NAN;
    if (isnan(bytes))
        because(v, "n_ssd", "no stage reported reads from a disk");
    else if (isnan(v->batch.n_ssd))
        because(v, "n_ssd", "the number of batches is not known");
    else if (num(v->sampler, "batches") > v->batches)
        because(v, "n_ssd",
                "too high by at most %.0f %%: the run was stopped after %.0f batches, but %.0f were sampled "
                "and perhaps read",
                100 * (num(v->sampler, "batches") / v->batches - 1), v->batches, num(v->sampler, "batches"));
}

/* The model of an emulated drive; 0: it has no limit. */
static double modelled_rate(const struct verdict *v)
{
    const double iops = num(v->model, "iops"), bytes_per_s = num(v->model, "bytes_per_s");
    const double most =
        fmin(iops > 0 ? iops * v->access_bytes : INFINITY, bytes_per_s > 0 ? bytes_per_s : INFINITY);
    return isfinite(most) ? most / PST_TPC_CLS_BYTES : 0;
}

static void judge_drives(struct verdict *v)
{
    const double active_s = num(v->io, "active_s"), drives = num(v->io, "drives");
    v->rates.ssds = drives > 0 ? (int)drives : 1;
    if (v->io != NULL && !(drives > 0))
        because(v, "ssds", "the drives below the dataset's files count as one");
    v->rates.th_ssd = v->model != NULL ? modelled_rate(v) : 0;
    if (v->rates.th_ssd > 0)
        return;
    v->rates.th_ssd = num(v->io, "bytes") / active_s / v->rates.ssds / PST_TPC_CLS_BYTES;
    if (v->rates.th_ssd > 0) {
        because(
            v, "th_ssd",
            "measured while the run read; for %.0f %% of that time the drives had room for more reads, so "
            "they may be faster",
            100 * fmin(1, num(v->io, "starved_s") / active_s));
        return;
    }
    v->rates.th_ssd = NAN;
    because(v, "th_ssd", "nothing was read from a disk");
}

/* The cache is in the sampler's memory. If that is a GPU's, hits cross no bus. On a CPU place the sampler
 * stands for a GPU, and its memory for the GPU's. */
static void judge_bus(struct verdict *v)
{
    if (v->bus != NULL) {
        v->batch.n_mem = num(v->bus, "bytes") / v->batches / PST_TPC_CLS_BYTES;
        v->rates.th_pcie = num(v->bus, "bytes_per_s") / num(v->bus, "dilate") / PST_TPC_CLS_BYTES;
        return;
    }
    const char *topology = json_string_value(json_object_get(v->sampler, "topology"));
    const bool pinned = topology != NULL && strcmp(topology, "pinned") == 0;
    v->batch.n_mem = pinned ? NAN : 0;
    because(v, "n_mem",
            pinned ? "the sampler reads the topology over PCIe, which is not counted"
                   : "the cached rows are in the sampler's memory, which is the GPU's or stands for it");
    v->rates.th_pcie = NAN;
    because(v, "th_pcie", "the pipeline has no bus whose rate is known");
}

static void judge_lookup(struct verdict *v)
{
    const double each = num(v->sampler, "lookup_s") / num(v->sampler, "batches");
    v->batch.alpha_s = isfinite(each) ? each : 0;
    if (!isfinite(each))
        because(v, "alpha_s", "the lookup was not measured; t_ssd_s is without it");
}

static void set(json_t *to, const char *key, double value)
{
    (void)json_object_set_new(to, key, isfinite(value) ? json_real(value) : json_null());
}

static json_t *describe(const struct verdict *v)
{
    const struct pst_tpc_times t = pst_tpc_times(&v->batch, &v->rates);
    const char *bound = pst_tpc_bound_name(t.bound);
    json_t *j = json_object();
    (void)json_object_set_new(j, "bound_by", bound != NULL ? json_string(bound) : json_null());
    set(j, "t_ssd_s", t.ssd_s);
    set(j, "t_pcie_s", t.pcie_s);
    set(j, "t_train_s", t.train_s);
    set(j, "t_batch_s", t.batch_s);
    set(j, "measured_batch_s", v->measured_s);
    (void)json_object_set_new(j, "batches",
                              v->batches > 0 ? json_integer((json_int_t)v->batches) : json_null());
    set(j, "samples_per_batch", v->batch.samples);
    (void)json_object_set_new(j, "cls", json_integer(PST_TPC_CLS_BYTES));
    set(j, "n_ssd", v->batch.n_ssd);
    set(j, "n_mem", v->batch.n_mem);
    set(j, "access_bytes", v->access_bytes);
    set(j, "th_ssd", v->rates.th_ssd);
    set(j, "th_pcie", v->rates.th_pcie);
    (void)json_object_set_new(j, "ssds", json_integer(v->rates.ssds));
    set(j, "alpha_s", json_object_get(v->why, "alpha_s") != NULL ? NAN : v->batch.alpha_s);
    (void)json_object_set_new(j, "why", v->why);
    return j;
}

json_t *pst_verdict_of(const json_t *report)
{
    struct verdict v = {.io = json_object_get(report, "io"),
                        .sampler = json_object_get(report, "sampler"),
                        .trainer = json_object_get(report, "trainer"),
                        .bus = json_object_get(report, "bus"),
                        .why = json_object()};
    v.model = json_object_get(v.io, "model");
    judge_training(&v);
    judge_reads(&v);
    judge_drives(&v);
    judge_bus(&v);
    judge_lookup(&v);
    return describe(&v);
}

static void print_time(FILE *out, const char *label, double s, const char *after)
{
    if (isnan(s))
        fprintf(out, "%s unknown%s", label, after);
    else
        fprintf(out, "%s %.2f ms%s", label, s * 1e3, after);
}

void pst_verdict_print(const json_t *verdict, FILE *out)
{
    if (isnan(num(verdict, "t_batch_s")))
        return;
    fprintf(out, "  %-20s", "a batch needs");
    print_time(out, "SSD", num(verdict, "t_ssd_s"), ", ");
    print_time(out, "PCIe", num(verdict, "t_pcie_s"), ", ");
    print_time(out, "training", num(verdict, "t_train_s"), "; ");
    print_time(out, "it took", num(verdict, "measured_batch_s"), "\n");
}
