/* report.c: the report, field by field, and the table that is printed. */
#include "common/run/report.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/run/verdict.h"
#include "common/util/utf8.h"

#define MIB 1048576.0
#define TEXT_MAX 8192
#define WARNINGS_MAX 100 /* kept in the report */
#define WARNINGS_SHOWN 5 /* in the table */
#define OWN "reports"    /* of single instances; before the end: {section: {instance: figures}} */

json_t *pst_report_new(void)
{
    return json_pack("{ss s[] s{} s{} s[] s[] s{}}", "status", "failed", "epochs", "stages", "processes",
                     "failures", "warnings", OWN);
}

static double num(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *str(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static void ratio(json_t *section, const char *name, const char *over, const char *under)
{
    double below = num(section, under);
    if (section && below > 0)
        (void)json_object_set_new(section, name, json_real(num(section, over) / below));
}

static void sum_into(json_t *to, const json_t *data)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)data, key, value)
    {
        json_t *old = json_object_get(to, key);
        if (json_is_integer(value) && json_is_integer(old))
            (void)json_object_set_new(to, key,
                                      json_integer(json_integer_value(old) + json_integer_value(value)));
        else if (json_is_number(value) && json_is_number(old))
            (void)json_object_set_new(to, key, json_real(json_number_value(old) + json_number_value(value)));
        else
            (void)json_object_set(to, key, value);
    }
}

/* What the supervisor says itself, whatever a stage may report. */
static bool is_reserved(const char *key)
{
    static const char *const keys[] = {"status",    "pipeline",  "seed",    "run_dir",  "dataset",  "stages",
                                       "gpus",      "processes", "phases",  "bound_by", "failures", "verdict",
                                       "bus",       "schema",    "version", "commit",   "started",  "command",
                                       "directory", "host",      "stopped", "warnings", "mpi",      OWN};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* Fields of the top level. One that a section has taken stays a section. */
static const char *merge(json_t *report, const json_t *data)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)data, key, value)
    {
        const json_t *old = json_object_get(report, key);
        if (is_reserved(key) ||
            (old && json_typeof(old) != json_typeof(value) && (json_is_object(old) || json_is_array(old))))
            return key;
    }
    (void)json_object_update(report, (json_t *)(uintptr_t)data);
    return NULL;
}

/* Adds to what the instance has reported of the section, until the report is finished. */
static void keep_own(json_t *report, const char *who, const char *section, const json_t *data)
{
    json_t *all = json_object_get(report, OWN), *of = json_object_get(all, section);
    if (!of)
        (void)json_object_set_new(all, section, of = json_object());
    if (!json_object_get(of, who))
        (void)json_object_set_new(of, who, json_object());
    sum_into(json_object_get(of, who), data);
}

/* Gives each instance what it reported of a section. of: {instance: figures} */
static void share_section(json_t *stages, const char *section, json_t *of)
{
    const char *who;
    json_t *data;
    json_object_foreach(of, who, data)
    {
        json_t *stage = json_object_get(stages, who);
        if (!json_object_get(stage, OWN))
            (void)json_object_set_new(stage, OWN, json_object());
        ratio(data, "read_amplification", "bytes", "row_bytes_wanted");
        (void)json_object_set(json_object_get(stage, OWN), section, data);
    }
}

/* A section of one instance has nothing to share out. */
static void share_out(json_t *report)
{
    const char *section;
    json_t *of;
    json_object_foreach(json_object_get(report, OWN), section, of)
    {
        if (json_object_size(of) > 1)
            share_section(json_object_get(report, "stages"), section, of);
    }
    (void)json_object_del(report, OWN);
}

const char *pst_report_add(json_t *report, const char *who, const char *section, const json_t *data)
{
    if (strcmp(section, "epochs") == 0) {
        (void)json_array_append(json_object_get(report, "epochs"), (json_t *)(uintptr_t)data);
        return NULL;
    }
    if (strcmp(section, "result") == 0)
        return merge(report, data);
    json_t *old = json_object_get(report, section);
    if (is_reserved(section) || (old && !json_is_object(old)))
        return section;
    if (!old)
        (void)json_object_set_new(report, section, json_object());
    sum_into(json_object_get(report, section), data);
    keep_own(report, who, section, data);
    return NULL;
}

static double seconds(const struct pst_page_times *times, enum pst_page_state state)
{
    return (double)times->ns[state] * 1e-9;
}

void pst_report_stage(json_t *report, const char *name, const char *device, const char *chosen, int pid,
                      const struct pst_page *page)
{
    struct pst_page_times t;
    pst_page_read(page, &t);
    json_t *j = json_pack(
        "{ss ss* si sf sf sf sf sI sI sI}", "device", device, "chosen", chosen[0] ? chosen : NULL, "pid", pid,
        "busy_s", seconds(&t, PST_PAGE_BUSY), "wait_input_s", seconds(&t, PST_PAGE_WAITS_INPUT),
        "wait_credit_s", seconds(&t, PST_PAGE_WAITS_CREDIT), "wait_disk_s", seconds(&t, PST_PAGE_WAITS_DISK),
        "items", (json_int_t)atomic_load(&page->items), "frames", (json_int_t)atomic_load(&page->frames),
        "bytes", (json_int_t)atomic_load(&page->bytes));
    const uint64_t bus_ns = atomic_load(&page->bus_ns);
    if (bus_ns > 0)
        (void)json_object_set_new(j, "wait_bus_s", json_real((double)bus_ns * 1e-9));
    (void)json_object_set_new(json_object_get(report, "stages"), name, j);
}

json_t *pst_report_text(const char *text)
{
    json_t *j = json_string(text);
    char *plain = j ? NULL : strdup(text);
    for (char *c = plain; c && *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    if (plain)
        j = json_string(plain);
    free(plain);
    return j ? j : json_string("");
}

void pst_report_failure(json_t *report, const char *stage, const char *text)
{
    (void)json_array_append_new(json_object_get(report, "failures"),
                                json_pack("{ss so}", "stage", stage, "text", pst_report_text(text)));
}

void pst_report_warning(json_t *report, const char *stage, const char *text)
{
    json_t *all = json_object_get(report, "warnings");
    if (json_array_size(all) < WARNINGS_MAX)
        (void)json_array_append_new(all, json_pack("{ss so}", "stage", stage, "text", pst_report_text(text)));
}

void pst_report_bound(json_t *report, const char *const *names, struct pst_run_part *parts, int n,
                      double span_s, double bus_s)
{
    char text[PST_NAME_MAX + 16];
    for (int i = 0; i < n; i++) {
        json_t *stage = json_object_get(json_object_get(report, "stages"), names[i]);
        parts[i].busy_s = num(stage, "busy_s");
        parts[i].disk_s = num(stage, "wait_disk_s");
        parts[i].bus_s = num(stage, "wait_bus_s");
        if (parts[i].streams && span_s > 0)
            (void)json_object_set_new(stage, "share", json_real(pst_run_share(&parts[i], span_s)));
    }
    (void)json_object_set_new(report, "bound_by",
                              pst_run_bound(parts, n, span_s, bus_s, text) ? json_string(text) : json_null());
}

void pst_report_process(json_t *report, const char *name, const struct rusage *used)
{
    const double cpu_s = (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
                         1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
    (void)json_object_set_new(
        json_object_get(report, "processes"), name,
        json_pack("{s:f,s:I}", "cpu_s", cpu_s, "peak_rss_bytes", (json_int_t)used->ru_maxrss * 1024));
}

void pst_report_gpus(json_t *report, int procs, const char *why)
{
    const char *sharing = procs == 1 ? "one process" : why ? "turns" : "mps";
    (void)json_object_set_new(report, "gpus",
                              json_pack("{ss ss*}", "sharing", sharing, "why", why && why[0] ? why : NULL));
}

void pst_report_no_events(json_t *report, const char *why)
{
    (void)json_object_set_new(json_object_get(report, "gpus"), "no_events", pst_report_text(why));
}

void pst_report_phases(json_t *report, double launched, double planned, double started, double ended)
{
    if (planned <= 0)
        planned = launched;
    json_t *phases = json_pack("{s:f}", "total_s", ended - launched);
    if (started > 0) {
        (void)json_object_set_new(phases, "plan_s", json_real(planned - launched));
        (void)json_object_set_new(phases, "start_s", json_real(started - planned));
        (void)json_object_set_new(phases, "run_s", json_real(ended - started));
    }
    (void)json_object_set_new(report, "phases", phases);
}

void pst_report_bus(json_t *report, double bytes_per_s, double dilate, uint64_t bytes, uint64_t drive_bytes)
{
    (void)json_object_set_new(report, "bus",
                              json_pack("{sf sf sI sI}", "bytes_per_s", bytes_per_s, "dilate", dilate,
                                        "bytes", (json_int_t)bytes, "drive_bytes", (json_int_t)drive_bytes));
}

void pst_report_finish(json_t *report)
{
    json_t *io = json_object_get(report, "io"), *cache = json_object_get(report, "cache");
    ratio(io, "read_amplification", "bytes", "row_bytes_wanted");
    ratio(cache, "cpu_hit_rate", "hits", "lookups");
    share_out(report);
    (void)json_object_set_new(report, "verdict", pst_verdict_of(report));
}

static void print_number(FILE *out, const char *label, const json_t *object, const char *key, const char *fmt)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value)) {
        fprintf(out, "  %-20s", label);
        fprintf(out, fmt, json_number_value(value)); /* formats are constants of the one caller below */
        fputc('\n', out);
    }
}

/* A figure that the stage did not report is '-'. */
static void print_reported(FILE *out, const char *label, const json_t *object, const char *key,
                           const char *fmt)
{
    const json_t *value = json_object_get(object, key);
    fputs(label, out);
    if (json_is_number(value))
        fprintf(out, fmt, json_number_value(value)); /* formats are constants of the caller below */
    else
        fputc('-', out);
}

static void print_disk(FILE *out, const char *label, const json_t *io)
{
    if (!json_object_get(io, "backend"))
        return;
    fprintf(out, "  %-20s%s: %.0f requests, %.1f MiB read", label, str(io, "backend"), num(io, "requests"),
            num(io, "bytes") / MIB);
    if (json_object_get(io, "read_amplification"))
        fprintf(out, ", %.2f bytes per byte needed", num(io, "read_amplification"));
    fprintf(out, "; %.1f MiB copied by the disk stage\n", num(io, "copied_bytes") / MIB);
}

/* If there are several, of which `io` has the sums. */
static void print_own_disks(FILE *out, const json_t *report)
{
    const char *name;
    json_t *stage;
    json_object_foreach(json_object_get(report, "stages"), name, stage)
    {
        char label[PST_NAME_MAX + 8];
        (void)snprintf(label, sizeof label, "  %s", name);
        print_disk(out, label, json_object_get(json_object_get(stage, OWN), "io"));
    }
}

/* So that a warning cannot scroll out of sight. */
static void print_warnings(FILE *out, const json_t *warnings)
{
    char text[TEXT_MAX];
    const size_t n = json_array_size(warnings);
    for (size_t i = 0; i < n && i < WARNINGS_SHOWN; i++) {
        const json_t *warning = json_array_get(warnings, i);
        pst_utf8_printable(str(warning, "text"), text, sizeof text);
        fprintf(out, "  %-20s%s: %s\n", "warning", str(warning, "stage"), text);
    }
    if (n > WARNINGS_SHOWN)
        fprintf(out, "  %-20sand %zu more, in the report\n", "warnings", n - WARNINGS_SHOWN);
}

void pst_report_print(const json_t *report, FILE *out)
{
    const json_t *io = json_object_get(report, "io"), *cache = json_object_get(report, "cache");
    fprintf(out, "\n%s: %s\n", str(report, "pipeline"), str(report, "status"));
    size_t n = json_array_size(json_object_get(report, "epochs"));
    if (n > 0) {
        const json_t *last = json_array_get(json_object_get(report, "epochs"), n - 1);
        fprintf(out, "  %-20s%zu", "epochs", n);
        print_reported(out, ", the last in ", last, "seconds", "%.2f s");
        print_reported(out, ", loss ", last, "loss", "%.4f");
        fputc('\n', out);
        print_number(out, "seeds per second", last, "seeds_per_second", "%.0f");
        print_number(out, "edges per second", last, "edges_per_second", "%.0f");
    }
    print_number(out, "test accuracy", report, "test_accuracy", "%.4f");
    print_number(out, "test MRR, filtered", report, "test_mrr", "%.4f");
    print_number(out, "test micro-F1", report, "test_micro_f1", "%.4f");
    print_number(out, "test MSE", report, "test_mse", "%.6g");
    print_number(out, "test MAE", report, "test_mae", "%.6g");
    print_number(out, "test R2", report, "test_r2", "%.4f");
    print_disk(out, "disk", io);
    print_own_disks(out, report);
    const double copied = num(json_object_get(report, "copies"), "bytes");
    if (copied > 0)
        fprintf(out, "  %-20s%.1f MiB between devices\n", "copied", copied / MIB);
    if (json_object_get(cache, "cpu_hit_rate"))
        fprintf(out, "  %-20s%.1f %% of look-ups, %.0f rows\n", "cache", 100 * num(cache, "cpu_hit_rate"),
                num(cache, "rows"));
    const json_t *gpus = json_object_get(report, "gpus");
    if (gpus && json_object_get(gpus, "why"))
        fprintf(out, "  %-20s%s: %s\n", "GPU",
                strcmp(str(gpus, "sharing"), "turns") == 0 ? "its processes take turns"
                                                           : "its stages share one process",
                str(gpus, "why"));
    fprintf(out, "  %-20s%s\n", "bound by", str(report, "bound_by"));
    pst_verdict_print(json_object_get(report, "verdict"), out);
    print_warnings(out, json_object_get(report, "warnings"));
    fprintf(out, "\n  %-16s %-8s %6s %9s %9s %9s %9s %9s\n", "stage", "device", "share", "busy s", "input s",
            "slot s", "disk s", "items");
    const char *name;
    json_t *stage;
    json_object_foreach(json_object_get(report, "stages"), name, stage)
    {
        char share[16] = "-";
        if (json_object_get(stage, "share"))
            (void)snprintf(share, sizeof share, "%.0f%%", 100 * num(stage, "share"));
        fprintf(out, "  %-16s %-8s %6s %9.2f %9.2f %9.2f %9.2f %9.0f\n", name, str(stage, "device"), share,
                num(stage, "busy_s"), num(stage, "wait_input_s"), num(stage, "wait_credit_s"),
                num(stage, "wait_disk_s"), num(stage, "items"));
    }
    fprintf(out, "  share: percent of the run's time, computing or waiting for its disk; slot: waiting for a "
                 "free slot\n");
}
