/* scale.c: penstock scale: profiles a pipeline on this machine and predicts a step on several machines. */
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/machine/machine.h"
#include "common/pipeline/json/diag.h"
#include "common/tpc/scale.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/tpc/tpc_profile.h"
#include "tools/penstock/tpc/tpc_run.h"

#define LATENCY_US_DEFAULT 5.0 /* of a message between two machines on one switch */
#define MS(seconds) ((seconds)*1e3)

static const char usage[] =
    "usage: penstock scale --machine FILE --nodes N --nic RATE [OPTION]... PIPELINE\n"
    "       penstock scale --machine FILE --nodes N --nic RATE [OPTION]... --from RUN\n"
    "Runs a few batches of the pipeline in PIPELINE on one device of this machine, and predicts a training "
    "step\n"
    "on 1, 2, 4, ... N equal machines, from compute, SSDs and network. Says what limits the step.\n\n"
    "  --machine FILE     the machine file of one of the machines: each of its devices trains a batch\n"
    "  --nodes N          predict up to N machines (1 to 1000)\n"
    "  --nic RATE         the bandwidth of a machine's network interface: bits a second, as 100Gb, or bytes\n"
    "                     a second, as 12.5GB\n"
    "  --latency US       microseconds of a message between machines (default: 5)\n"
    "  --cache SIZE       bytes of feature rows that each machine caches (default: as in the run)\n"
    "  --gradient SIZE    bytes of the gradient (default: as the run reports)\n"
    "  --json             print JSON\n" TPC_RUN_HELP "\nOf a pipeline:\n" PIPELINE_OPTIONS_HELP;

struct scale_args {
    const char *from, *machine;
    int64_t nodes;
    double nic_bytes_per_s, latency_us;
    bool cache_given, gradient_given, json;
    uint64_t cache_bytes, gradient_bytes;
    struct tpc_run run;
};

/* What is predicted from, and of. */
struct scale {
    const struct scale_args *args;
    struct pst_machine machine;
    struct tpc_profile profile;
    struct pst_tpc_machine model;
    int64_t cached;
};

/* ---- options ------------------------------------------------------------------------------------- */

/* "100Gb", "12.5GB": bytes a second. */
static pst_rc read_rate(const char *text, double *bytes_per_s)
{
    static const char prefixes[] = "kMGT";
    char *end;
    const double value = strtod(text, &end);
    const char *prefix = *end ? strchr(prefixes, *end) : NULL;
    const double unit = prefix ? pow(1000, (double)(prefix - prefixes + 1)) : 1;
    end += prefix ? 1 : 0;
    const bool bits = strcmp(end, "b") == 0;
    *bytes_per_s = value * unit / (bits ? 8 : 1);
    return (bits || strcmp(end, "B") == 0) && isfinite(*bytes_per_s) && *bytes_per_s > 0
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "--nic: expected a rate above 0 in bits or bytes a second, for example 100Gb or "
                          "12.5GB, found \"%s\"",
                          text);
}

static pst_rc read_latency(const char *text, double *us)
{
    const pst_rc rc = option_real("--latency", text, us);
    return rc != PST_OK || *us >= 0
               ? rc
               : pst_fail(PST_E_ARG, "--latency: expected at least 0 microseconds, found %g", *us);
}

static bool read_option(struct scale_args *args, const struct option *option, const char *value)
{
    switch (option->val) {
    case 'f': args->from = value; return true;
    case 'm': args->machine = value; return true;
    case 'n':
        return command_result("scale", option_int("--nodes", value, 1, PST_TPC_NODES_MAX, &args->nodes)) == 0;
    case 'i': return command_result("scale", read_rate(value, &args->nic_bytes_per_s)) == 0;
    case 'l': return command_result("scale", read_latency(value, &args->latency_us)) == 0;
    case 'c':
        args->cache_given = true;
        return command_result("scale", option_bytes("--cache", value, &args->cache_bytes)) == 0;
    case 'g':
        args->gradient_given = true;
        return command_result("scale", option_bytes("--gradient", value, &args->gradient_bytes)) == 0;
    case 'j': args->json = true; return true;
    default: return tpc_run_pass(&args->run, option, value);
    }
}

static bool is_complete(const struct scale_args *args, int files)
{
    const char *missing = args->machine == NULL          ? "--machine FILE"
                          : args->nodes == 0             ? "--nodes N"
                          : !(args->nic_bytes_per_s > 0) ? "--nic RATE"
                                                         : NULL;
    if (missing != NULL)
        fprintf(stderr, "penstock scale: %s is missing\n", missing);
    else if (files != (args->from == NULL))
        fprintf(stderr, "penstock scale: expected %s, found %d arguments\n",
                args->from == NULL ? "one pipeline file" : "no pipeline file besides --from", files);
    return missing == NULL && files == (args->from == NULL);
}

/* 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct scale_args *args)
{
    static const struct option options[] = {PIPELINE_OPTIONS,
                                            {"run-dir", required_argument, NULL, 'r'},
                                            {"batches", required_argument, NULL, 'B'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"machine", required_argument, NULL, 'm'},
                                            {"nodes", required_argument, NULL, 'n'},
                                            {"nic", required_argument, NULL, 'i'},
                                            {"latency", required_argument, NULL, 'l'},
                                            {"cache", required_argument, NULL, 'c'},
                                            {"gradient", required_argument, NULL, 'g'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int c, which = 0;
    bool ok = true;
    optind = 1;
    while (ok && (c = getopt_long(argc, argv, "", options, &which)) != -1) {
        if (c == 'h') {
            printf("%s", usage);
            return 1;
        }
        ok = c != '?' && read_option(args, &options[which], optarg);
    }
    if (ok && is_complete(args, argc - optind))
        return 0;
    fprintf(stderr, "`penstock scale --help` lists the options\n");
    return 3;
}

/* ---- the model ----------------------------------------------------------------------------------- */

/* How large the gradient is, and whether one device trained the batches. */
static pst_rc read_trainer(struct scale *s)
{
    char path[PST_PATH_MAX + 32];
    json_error_t e;
    (void)snprintf(path, sizeof path, "%s/report.json", s->profile.run_dir);
    json_t *report = json_load_file(path, 0, &e);
    const json_t *bytes = json_object_get(json_object_get(report, "trainer"), "gradient_bytes");
    const bool alone = json_object_get(json_object_get(report, "stages"), "trainer.1") == NULL;
    s->model.gradient_bytes =
        s->args->gradient_given ? (double)s->args->gradient_bytes : json_number_value(bytes);
    const bool known = s->args->gradient_given || json_is_number(bytes);
    json_decref(report);
    if (!alone)
        return pst_fail(
            PST_E_ARG,
            "the run %s has several replicas of the trainer, so a step of one device is not known: "
            "expected a run with one place (--set 'replicas.places=[\"cpu:0\"]')",
            s->profile.run_dir);
    return known ? PST_OK
                 : pst_fail(
                       PST_E_STATE,
                       "%s does not contain trainer.gradient_bytes, the size of the gradient: give it with "
                       "--gradient SIZE",
                       path);
}

/* Rows that a machine caches: those of the run, or as many as --cache holds. */
static pst_rc read_cached(struct scale *s)
{
    struct tpc_profile *p = &s->profile;
    s->cached = s->args->cache_given && p->row_bytes > 0
                    ? (int64_t)(s->args->cache_bytes / (uint64_t)p->row_bytes)
                    : p->cached;
    s->cached = pst_min_i64(s->cached, p->rows);
    if (isnan(p->missed) || p->row_bytes == 0)
        return pst_fail(PST_E_STATE,
                        "%s/report.json does not say how many feature rows a batch needs and how many are "
                        "cached: expected a run of a pipeline with a sampler and features",
                        p->run_dir);
    return s->cached == p->cached || p->share_of != NULL
               ? PST_OK
               : pst_fail(PST_E_STATE, "another cache size cannot be predicted: %s", p->shares_unknown);
}

static pst_rc read_model(struct scale *s)
{
    const struct tpc_profile *p = &s->profile;
    struct pst_tpc_machine *m = &s->model;
    pst_rc rc = read_cached(s);
    if (rc == PST_OK)
        rc = read_trainer(s);
    if (rc != PST_OK)
        return rc;
    const struct pst_tpc_profile one =
        s->cached == p->cached ? p->model : tpc_profile_with_cache(p, s->cached);
    m->devices = s->machine.ndevices > 0 ? s->machine.ndevices : 1;
    m->batch = one.batch;
    m->rates = one.rates;
    m->batch.train_s /=
        one.dilate; /* emulated drives that are slower stand for drives and a device that are not */
    m->batch.alpha_s /= one.dilate;
    m->rates.th_ssd *= one.dilate;
    m->missed_rows = tpc_profile_missed(p, s->cached);
    m->row_bytes = (double)p->row_bytes;
    m->nic_bytes_per_s = s->args->nic_bytes_per_s;
    m->nic_latency_s = s->args->latency_us * 1e-6;
    return PST_OK;
}

/* 1, 2, 4, ... and the last. */
static int next_nodes(int nodes, int last)
{
    return nodes == last ? 0 : nodes * 2 < last ? nodes * 2 : last;
}

/* ---- what is printed ------------------------------------------------------------------------------ */

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

static json_t *step_json(int nodes, const struct pst_tpc_step *t)
{
    return json_pack("{si so so so so so so so so so so}", "nodes", nodes, "step_s", real_or_null(t->step_s),
                     "compute_s", real_or_null(t->compute_s), "ssd_s", real_or_null(t->ssd_s), "network_s",
                     real_or_null(t->network_s), "rows_s", real_or_null(t->rows_s), "gradient_s",
                     real_or_null(t->gradient_s), "network_bytes", real_or_null(t->network_bytes), "bound_by",
                     text_or_null(pst_tpc_scale_bound_name(t->bound)), "samples_per_s",
                     real_or_null(t->samples_per_s), "efficiency", real_or_null(t->efficiency));
}

static pst_rc print_json(const struct scale *s)
{
    const struct tpc_profile *p = &s->profile;
    const struct pst_tpc_machine *m = &s->model;
    json_t *steps = json_array();
    for (int n = 1; n > 0; n = next_nodes(n, (int)s->args->nodes)) {
        const struct pst_tpc_step t = pst_tpc_scale(m, n);
        (void)json_array_append_new(steps, step_json(n, &t));
    }
    json_t *root = json_pack(
        "{s{ss sI so so so so si so so sf si} s{ss si sf sf sI sb} so}", "measured", "run", p->run_dir,
        "batches", (json_int_t)p->batches, "samples_per_batch", real_or_null(m->batch.samples), "t_train_s",
        real_or_null(p->model.batch.train_s), "n_ssd", real_or_null(p->model.batch.n_ssd), "th_ssd",
        real_or_null(p->model.rates.th_ssd), "ssds", p->model.rates.ssds, "rows_per_batch",
        real_or_null(p->lookups), "missed_rows", real_or_null(p->missed), "dilate", p->model.dilate,
        "row_bytes", (int)p->row_bytes, "given", "machine", s->machine.name, "devices", m->devices,
        "nic_bytes_per_s", m->nic_bytes_per_s, "nic_latency_s", m->nic_latency_s, "cached_rows",
        (json_int_t)s->cached, "gradient_given", (int)s->args->gradient_given, "predicted", steps);
    (void)json_object_set_new(json_object_get(root, "given"), "gradient_bytes", json_real(m->gradient_bytes));
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (text == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot print the prediction");
    printf("%s\n", text);
    free(text);
    return PST_OK;
}

static const char *ms(double seconds, char out[24])
{
    if (!isfinite(seconds))
        return "unknown";
    (void)snprintf(out, 24, "%.3f", MS(seconds));
    return out;
}

static pst_rc print_text(const struct scale *s)
{
    const struct tpc_profile *p = &s->profile;
    const struct pst_tpc_machine *m = &s->model;
    char t[6][24];
    printf(
        "Measured on one device here (%s, %lld batches): a batch of %.0f seeds trains in %s ms, needs %.0f "
        "feature rows of %lld bytes, and misses %.0f of them.\n",
        p->run_dir, (long long)p->batches, m->batch.samples, ms(p->model.batch.train_s, t[0]), p->lookups,
        (long long)p->row_bytes, p->missed);
    if (p->model.dilate > 1)
        printf(
            "The emulated drives were %g times slower than real ones, so times below are divided by this.\n",
            p->model.dilate);
    printf(
        "Given: machines like %s with %d device%s each, which train as fast as the measured one; %.4g GB/s "
        "and %g us for each interface; %lld cached rows on each machine; a gradient of %.0f bytes.\n"
        "Everything below is predicted. Nothing was run on several machines or devices.\n\n",
        s->machine.name, m->devices, m->devices == 1 ? "" : "s", m->nic_bytes_per_s / 1e9,
        s->args->latency_us, (long long)s->cached, m->gradient_bytes);
    printf("%8s %12s %12s %12s %12s %12s  %-8s %12s %10s\n", "machines", "compute ms", "SSD ms", "rows ms",
           "gradient ms", "step ms", "bound", "samples/s", "efficiency");
    for (int n = 1; n > 0; n = next_nodes(n, (int)s->args->nodes)) {
        const struct pst_tpc_step step = pst_tpc_scale(m, n);
        const char *bound = pst_tpc_scale_bound_name(step.bound);
        printf("%8d %12s %12s %12s %12s %12s  %-8s %12.0f %10.2f\n", n, ms(step.compute_s, t[0]),
               ms(step.ssd_s, t[1]), ms(step.rows_s, t[2]), ms(step.gradient_s, t[3]), ms(step.step_s, t[4]),
               bound != NULL ? bound : "unknown", step.samples_per_s, step.efficiency);
    }
    return PST_OK;
}

static int run_scale(struct scale *s, struct scale_args *args, const char *file)
{
    struct pst_diag diag = {0};
    char dir[PST_PATH_MAX];
    const bool loaded = pst_machine_load(&s->machine, args->machine, &diag);
    pst_diag_print(&diag);
    pst_diag_release(&diag);
    if (!loaded)
        return 2;
    (void)snprintf(dir, sizeof dir, "%s", args->from != NULL ? args->from : "");
    const int status = args->from != NULL ? 0 : tpc_run_profile(&args->run, file, dir);
    if (status != 0)
        return status;
    pst_rc rc = tpc_profile_read(&s->profile, dir);
    if (rc == PST_OK)
        rc = read_model(s);
    if (rc == PST_OK)
        rc = args->json ? print_json(s) : print_text(s);
    tpc_profile_release(&s->profile);
    return rc == PST_OK ? 0 : command_result("scale", rc);
}

int cmd_scale(int argc, char **argv)
{
    struct scale_args *args = calloc(1, sizeof *args);
    struct scale *s = calloc(1, sizeof *s);
    if (args == NULL || s == NULL) {
        free(s);
        free(args);
        return command_result("scale", pst_fail(PST_E_NOMEM, "out of memory: cannot read the options"));
    }
    args->run.command = "scale";
    args->latency_us = LATENCY_US_DEFAULT;
    s->args = args;
    int status = parse(argc, argv, args);
    status = status != 0 ? status - 1 : run_scale(s, args, argv[optind]);
    free(s);
    free(args);
    return status;
}
