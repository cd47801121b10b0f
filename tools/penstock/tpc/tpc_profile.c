/* tpc_profile.c: reads a run's report and the hotness of its plan. */
#include "tools/penstock/tpc/tpc_profile.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"
#include "common/util/memory.h"

#define HOTNESS_FILE "plan/hotness.npy"

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void copy_text(char *to, size_t room, const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    (void)snprintf(to, room, "%s", text != NULL ? text : otherwise);
}

/* A number that the prediction cannot do without. */
static pst_rc need(const json_t *verdict, const char *key, const char *dir, double *out)
{
    char why[256];
    *out = number(verdict, key);
    copy_text(why, sizeof why, json_object_get(verdict, "why"), key, "the report does not say why");
    return isnan(*out)
               ? pst_fail(PST_E_STATE,
                          "%s/report.json does not contain verdict.%s, which the prediction needs: %s", dir,
                          key, why)
               : PST_OK;
}

static pst_rc read_verdict(struct tpc_profile *p, const json_t *verdict)
{
    struct pst_tpc_profile *m = &p->model;
    double batches = 0;
    pst_rc rc = need(verdict, "batches", p->run_dir, &batches);
    if (rc == PST_OK)
        rc = need(verdict, "t_train_s", p->run_dir, &m->batch.train_s);
    if (rc == PST_OK)
        rc = need(verdict, "n_ssd", p->run_dir, &m->batch.n_ssd);
    if (rc == PST_OK)
        rc = need(verdict, "samples_per_batch", p->run_dir, &m->batch.samples);
    const double alpha = number(verdict, "alpha_s"), ssds = number(verdict, "ssds");
    p->batches = (int64_t)batches;
    m->batch.n_mem = number(verdict, "n_mem");
    m->batch.alpha_s = isnan(alpha) ? 0 : alpha;
    m->rates.th_ssd = number(verdict, "th_ssd");
    m->rates.th_pcie = number(verdict, "th_pcie");
    m->rates.ssds = ssds >= 1 && ssds <= PST_TPC_SLOTS_MAX ? (int)ssds : 1;
    m->access_bytes = number(verdict, "access_bytes");
    if (isnan(m->rates.th_pcie))
        copy_text(p->pcie_unknown, sizeof p->pcie_unknown, json_object_get(verdict, "why"), "th_pcie",
                  "it was not measured");
    return rc;
}

/* ---- caches -------------------------------------------------------------------------------------- */

static int hotter(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Reads the last row of the array, which has the batches that need each vertex's features. */
static pst_rc read_scores(FILE *f, const char *path, int64_t vertices, float **scores)
{
    struct pst_npy npy;
    char *head = malloc(PST_NPY_HEADER_MAX);
    *scores = malloc((size_t)vertices * sizeof **scores);
    if (head == NULL || *scores == NULL || fseeko(f, 0, SEEK_END) != 0) {
        free(head);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %s", path);
    }
    const off_t bytes = ftello(f);
    rewind(f);
    const size_t n = fread(head, 1, PST_NPY_HEADER_MAX, f);
    pst_rc rc = pst_wrap(pst_npy_parse(head, n, (uint64_t)bytes, &npy), "%s", path);
    free(head);
    if (rc == PST_OK && (npy.dtype != PST_F32 || npy.rank != 2 || npy.shape[1] != vertices || npy.fortran))
        rc =
            pst_fail(PST_E_FORMAT, "%s: expected float32 scores of %lld vertices", path, (long long)vertices);
    if (rc != PST_OK)
        return rc;
    const uint64_t row = (uint64_t)vertices * sizeof **scores;
    if (fseeko(f, (off_t)(npy.data_at + (uint64_t)(npy.shape[0] - 1) * row), SEEK_SET) != 0 ||
        fread(*scores, sizeof **scores, (size_t)vertices, f) != (size_t)vertices)
        return pst_fail(PST_E_IO, "%s: cannot read the last row of the array", path);
    return PST_OK;
}

/* Sums the scores from the hottest on. */
static pst_rc sum_scores(struct tpc_profile *p, float *scores)
{
    double all = 0;
    qsort(scores, (size_t)p->rows, sizeof *scores, hotter);
    p->share_of = malloc((size_t)p->rows * sizeof *p->share_of);
    if (p->share_of == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sum the scores of %lld vertices",
                        (long long)p->rows);
    for (int64_t i = 0; i < p->rows; i++) {
        if (!(scores[i] >= 0) || isinf(scores[i]))
            return pst_fail(PST_E_FORMAT,
                            "the plan contains a hotness score of %g; expected a number of at least 0",
                            (double)scores[i]);
        all += (double)scores[i];
        p->share_of[i] = all;
    }
    for (int64_t i = 0; i < p->rows && all > 0; i++)
        p->share_of[i] /= all;
    return all > 0 ? PST_OK
                   : pst_fail(PST_E_FORMAT,
                              "all hotness scores of the plan are 0, so the best cache cannot be found");
}

/* The shares are an extra: without them there are no predictions for other caches. */
static void read_shares(struct tpc_profile *p)
{
    char path[PST_PATH_MAX + sizeof HOTNESS_FILE + 1];
    float *scores = NULL;
    (void)snprintf(path, sizeof path, "%s/" HOTNESS_FILE, p->run_dir);
    FILE *f = p->rows > 0 && p->row_bytes > 0 && p->lookups > 0 ? fopen(path, "rbe") : NULL;
    if (f == NULL) {
        (void)snprintf(p->shares_unknown, sizeof p->shares_unknown, "the run has no " HOTNESS_FILE);
        return;
    }
    pst_rc rc = read_scores(f, path, p->rows, &scores);
    if (rc == PST_OK)
        rc = sum_scores(p, scores);
    free(scores);
    (void)fclose(f);
    if (rc == PST_OK)
        return;
    free(p->share_of);
    p->share_of = NULL;
    (void)snprintf(p->shares_unknown, sizeof p->shares_unknown, "%s", pst_error_text());
}

static void read_cache(struct tpc_profile *p, const json_t *report)
{
    const json_t *dataset = json_object_get(report, "dataset"), *cache = json_object_get(report, "cache");
    const double rows = number(dataset, "vertices"), bytes = number(dataset, "feature_bytes"),
                 cached = number(cache, "rows"),
                 lookups = number(cache, "lookups") / number(json_object_get(report, "sampler"), "batches");
    p->rows = rows > 0 ? (int64_t)rows : 0;
    p->row_bytes = rows > 0 && bytes > 0 ? (int64_t)(bytes / rows) : 0;
    p->cached = cached > 0 ? (int64_t)fmin(cached, rows) : 0;
    p->lookups = isfinite(lookups) ? lookups : 0;
    p->missed = p->lookups * (1 - number(cache, "hits") / number(cache, "lookups"));
}

static double share(const struct tpc_profile *p, int64_t cached)
{
    return cached > 0 ? p->share_of[(cached < p->rows ? cached : p->rows) - 1] : 0;
}

double tpc_profile_missed(const struct tpc_profile *p, int64_t cached)
{
    if (cached == p->cached)
        return p->missed;
    const double missed_now = 1 - share(p, p->cached), missed = fmax(0, 1 - share(p, cached));
    return p->missed > 0 && missed_now > 0 ? p->missed * missed / missed_now : p->lookups * missed;
}

struct pst_tpc_profile tpc_profile_with_cache(const struct tpc_profile *p, int64_t cached)
{
    struct pst_tpc_profile m = p->model;
    const double missed_now = 1 - share(p, p->cached), missed = fmax(0, 1 - share(p, cached));
    /* what was counted scales with the expected misses; if nothing was read, rows are as they are stored */
    if (m.batch.n_ssd > 0 && missed_now > 0) {
        m.batch.n_ssd *= missed / missed_now;
    } else {
        m.batch.n_ssd = p->lookups * missed * (double)p->row_bytes / PST_TPC_CLS_BYTES;
        m.access_bytes = (double)p->row_bytes;
        m.rates.th_ssd = NAN;
    }
    return m;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static pst_rc read_report(struct tpc_profile *p, const json_t *report)
{
    const json_t *verdict = json_object_get(report, "verdict");
    const json_t *model = json_object_get(json_object_get(report, "io"), "model");
    const double dilate = number(model, "dilate");
    const char *status = json_string_value(json_object_get(report, "status"));
    if (!json_is_object(verdict))
        return pst_fail(PST_E_FORMAT, "%s/report.json has no section \"verdict\": run the pipeline again",
                        p->run_dir);
    if (status == NULL || strcmp(status, "failed") == 0)
        return pst_fail(
            PST_E_STATE,
            "%s/report.json describes a run that failed: give the directory of a run that finished",
            p->run_dir);
    p->model.dilate = dilate >= 1 ? dilate : 1;
    copy_text(p->ssd_name, sizeof p->ssd_name, model, "preset", "");
    const pst_rc rc = read_verdict(p, verdict);
    if (rc != PST_OK)
        return rc;
    read_cache(p, report);
    if (isnan(p->model.access_bytes)) /* nothing was read */
        p->model.access_bytes = (double)p->row_bytes;
    read_shares(p);
    return PST_OK;
}

pst_rc tpc_profile_read(struct tpc_profile *p, const char *dir)
{
    char path[PST_PATH_MAX + 32];
    json_error_t e;
    memset(p, 0, sizeof *p);
    (void)snprintf(p->run_dir, sizeof p->run_dir, "%s", dir);
    (void)snprintf(path, sizeof path, "%s/report.json", p->run_dir);
    json_t *report = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!json_is_object(report)) {
        const bool found = report != NULL || e.line > 0;
        json_decref(report);
        return found ? pst_fail(PST_E_FORMAT, "%s:%d: %s", path, e.line, e.text)
                     : pst_fail(PST_E_ARG, "%s", e.text);
    }
    const pst_rc rc = read_report(p, report);
    json_decref(report);
    return rc;
}

void tpc_profile_release(struct tpc_profile *p)
{
    free(p->share_of);
    p->share_of = NULL;
}
