/* place_pair.c: whether the stages that "auto" places on a GPU get one or two. What a batch takes on each is
 * computed from a run that was measured on one GPU, in which stages worked one after the other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ipc/gpus.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/place.h"

#define NAMES_MAX 80 /* bytes of the names of stages in a text */
#define WHY_MAX 200
#define MEASURED_PATH "place.measured"

struct pair {
    struct pst_pipeline *pl;
    int gpu[2];                        /* the first two that reach each other */
    int first[PST_STAGES_MAX], nfirst; /* the stages that make a batch */
    int last;                          /* the stage that uses it up */
    char firsts[NAMES_MAX];            /* their names */
    json_t *report, *run;              /* of the measured run: its report, and its pipeline */
    /* seconds of a batch: of the first stages, of the last one, of the link; of what no GPU does */
    double first_s, last_s, link_s, other_s;
    double bytes; /* of a batch, at most, over the link */
};

/* ---- which stages, which GPUs ---------------------------------------------------------------- */

/* Did "auto" place the stage on a GPU? */
static bool is_ours(const struct pst_pipeline_stage_spec *stage)
{
    return stage->caps.desc && stage->chosen[0] && pst_gpu_number(stage->device) >= 0;
}

/* Has the stage a port for batches in this direction? fills: which does not only pass slots on. */
static bool has_batches(const struct pst_stage_desc *desc, enum pst_dir dir, bool fills)
{
    bool has = false;
    for (int p = 0; p < pst_desc_ports(desc); p++) {
        const struct pst_port_desc *port = &desc->ports[p];
        has = has || (port->dir == dir && !(port->flags & PST_PORT_ONESHOT) && !(fills && port->forwards));
    }
    return has;
}

/* Finds the stages that make batches, and the one that uses them up. False: there is no such division. */
static bool divide(struct pair *p)
{
    int lasts = 0;
    for (int s = 0; s < p->pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &p->pl->stages[s];
        if (!is_ours(stage))
            continue;
        const size_t used = strlen(p->firsts);
        if (has_batches(stage->caps.desc, PST_OUT, false)) {
            p->first[p->nfirst++] = s;
            (void)snprintf(p->firsts + used, sizeof p->firsts - used, "%s%s", used ? " and " : "",
                           stage->name);
        } else if (has_batches(stage->caps.desc, PST_IN, false)) {
            p->last = s;
            lasts++;
        }
    }
    return p->nfirst > 0 && lasts == 1;
}

static bool find_gpus(struct pair *p, int gpus)
{
    for (p->gpu[0] = 0; p->gpu[0] < gpus; p->gpu[0]++)
        for (p->gpu[1] = p->gpu[0] + 1; p->gpu[1] < gpus; p->gpu[1]++)
            if (pst_gpus_reach(p->gpu[0], p->gpu[1]) && pst_gpus_reach(p->gpu[1], p->gpu[0]))
                return true;
    return false;
}

/* Why two GPUs are out of the question, whatever a batch takes. False: they are not. */
static bool is_ruled_out(struct pair *p, int gpus, char why[WHY_MAX])
{
    const struct pst_pipeline_stage_spec *last = &p->pl->stages[p->last], *first = NULL;
    for (int i = 0; i < p->nfirst && last->group[0]; i++)
        if (strcmp(p->pl->stages[p->first[i]].group, last->group) == 0)
            first = &p->pl->stages[p->first[i]];
    why[0] = '\0';
    if (!find_gpus(p, gpus))
        (void)snprintf(why, WHY_MAX, "none of the %d GPUs can read another one's memory", gpus);
    else if (first)
        (void)snprintf(why, WHY_MAX, "%.50s and %.50s are in one group, which has one GPU", first->name,
                       last->name);
    else if (!p->pl->overlap)
        (void)snprintf(why, WHY_MAX, "overlap is false, so stages never work at the same time");
    else if (!p->pl->measured[0])
        (void)snprintf(why, WHY_MAX,
                       "cuda:%d and cuda:%d reach each other, but " MEASURED_PATH
                       " names no run that says what a batch takes",
                       p->gpu[0], p->gpu[1]);
    return why[0] != '\0';
}

/* ---- the measured run ------------------------------------------------------------------------ */

static json_t *read_json(struct pair *p, const char *name, struct pst_diag *diag)
{
    char path[PST_PATH_MAX + 32];
    json_error_t error;
    (void)snprintf(path, sizeof path, "%s/%s", p->pl->measured, name);
    json_t *j = json_load_file(path, 0, &error);
    if (!j)
        pst_json_error(&p->pl->doc, diag, MEASURED_PATH,
                       "expected the directory of a run that has ended, found %s: %s", p->pl->measured,
                       error.text);
    return j;
}

static const json_t *stage_of(const struct pair *p, int s)
{
    return json_object_get(json_object_get(p->report, "stages"), p->pl->stages[s].name);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool is_same(const struct pst_param_desc *param, const json_t *ours, const json_t *theirs)
{
    if (json_is_number(ours) && json_is_number(theirs))
        return json_number_value(ours) == json_number_value(theirs);
    json_t *absolute = pst_pipeline_absolute(param, ours);
    const bool same = json_equal(ours, theirs) || json_equal(absolute, theirs);
    json_decref(absolute);
    return same;
}

/* Was the stage measured on a GPU, as this pipeline has it? Only parameters count that change an epoch. */
static bool suits_stage(const struct pair *p, int s, char why[WHY_MAX])
{
    const struct pst_pipeline_stage_spec *stage = &p->pl->stages[s];
    const json_t *was = stage_of(p, s), *params = json_object_get(was, "params");
    const char *device = json_string_value(json_object_get(was, "device")),
               *other = json_string_value(json_object_get(stage_of(p, p->last), "device"));
    if (!device || pst_gpu_number(device) < 0)
        (void)snprintf(why, WHY_MAX, "its %.50s ran on %.20s and not on a GPU", stage->name,
                       device ? device : "no device");
    else if (other && strcmp(device, other) != 0)
        (void)snprintf(why, WHY_MAX, "its %.50s and %.50s ran on two devices, expected one GPU", stage->name,
                       p->pl->stages[p->last].name);
    for (const struct pst_param_desc *d = stage->caps.desc->params; d && d->name && !why[0]; d++)
        if (d->fixed &&
            !is_same(d, json_object_get(stage->params, d->name), json_object_get(params, d->name)))
            (void)snprintf(why, WHY_MAX, "its %.50s had another %.50s", stage->name, d->name);
    return why[0] == '\0';
}

static bool suits_dataset(const struct pair *p)
{
    const char *was = json_string_value(json_object_get(json_object_get(p->report, "dataset"), "dir"));
    char *full = p->pl->dataset[0] ? realpath(p->pl->dataset, NULL) : NULL;
    const bool suits = !full || (was && strcmp(full, was) == 0);
    free(full);
    return suits;
}

/* Can the run's times be used for this pipeline? */
static bool suits(const struct pair *p, char why[WHY_MAX])
{
    why[0] = '\0';
    if (!json_is_false(json_object_get(p->run, "overlap")))
        (void)snprintf(
            why, WHY_MAX,
            "its stages shared the GPU, so each was measured with the others: expected overlap false");
    else if (!suits_dataset(p))
        (void)snprintf(why, WHY_MAX, "it had another dataset");
    else if (!(number(stage_of(p, p->last), "items") >= 2))
        (void)snprintf(why, WHY_MAX, "it has fewer than 2 batches");
    for (int i = 0; i < p->nfirst && !why[0]; i++)
        (void)suits_stage(p, p->first[i], why);
    return !why[0] && suits_stage(p, p->last, why);
}

/* ---- what a batch takes ---------------------------------------------------------------------- */

/* The trainer's own time of a step, without evaluations, if it has measured it. */
static double last_seconds(const struct pair *p, double batches)
{
    const double step_s = number(json_object_get(p->report, "verdict"), "t_train_s");
    return step_s > 0 ? step_s : number(stage_of(p, p->last), "busy_s") / batches;
}

/* The slowest of the stages that are not ours, or the drives. One or two GPUs wait for it alike. */
static double other_seconds(const struct pair *p, double batches)
{
    const double ssd_s = number(json_object_get(p->report, "verdict"), "t_ssd_s");
    double most = ssd_s > 0 ? ssd_s : 0;
    for (int s = 0; s < p->pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &p->pl->stages[s];
        const double busy_s = number(stage_of(p, s), "busy_s") / batches / stage->instances;
        const bool streams = stage->caps.desc && (has_batches(stage->caps.desc, PST_IN, false) ||
                                                  has_batches(stage->caps.desc, PST_OUT, false));
        if (!is_ours(stage) && streams && busy_s > most)
            most = busy_s;
    }
    return most;
}

/* False: the report lacks a time. */
static bool measure(struct pair *p)
{
    const double batches = number(stage_of(p, p->last), "items");
    for (int i = 0; i < p->nfirst; i++) {
        const json_t *was = stage_of(p, p->first[i]);
        p->first_s += number(was, "busy_s") / batches;
        if (has_batches(p->pl->stages[p->first[i]].caps.desc, PST_OUT, true))
            p->bytes += number(was, "bytes") / batches;
    }
    p->last_s = last_seconds(p, batches);
    p->other_s = other_seconds(p, batches);
    p->link_s = p->bytes / p->pl->link_bytes_per_s;
    return isfinite(p->first_s) && isfinite(p->last_s) && isfinite(p->link_s);
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Writes the reason to every stage that is ours. */
static void say(struct pst_pipeline *pl, const char *text)
{
    for (int s = 0; s < pl->nstages; s++)
        if (is_ours(&pl->stages[s]))
            (void)snprintf(pl->stages[s].chosen, sizeof pl->stages[s].chosen, "%s", text);
}

/* Stages on one GPU take turns, and those on two work at the same time, the last one also while its batch
 * comes over the link. */
static void choose(struct pair *p)
{
    struct pst_pipeline *pl = p->pl;
    const double one_s = fmax(p->first_s + p->last_s, p->other_s),
                 two_s = fmax(fmax(p->first_s, p->last_s + p->link_s), p->other_s);
    const bool pays = two_s < one_s;
    char text[sizeof pl->stages->chosen];
    (void)snprintf(
        text, sizeof text,
        "%s, because a batch takes %.3f ms on one GPU and %.3f ms on cuda:%d and cuda:%d: %s %.3f ms, "
        "%.50s %.3f ms, the link between them %.3f ms for at most %.3f MB, other stages %.3f ms",
        pays ? "two GPUs" : "the first GPU", one_s * 1e3, two_s * 1e3, p->gpu[0], p->gpu[1], p->firsts,
        p->first_s * 1e3, pl->stages[p->last].name, p->last_s * 1e3, p->link_s * 1e3, p->bytes / 1e6,
        p->other_s * 1e3);
    say(pl, text);
    for (int s = 0; s < pl->nstages && pays; s++)
        if (is_ours(&pl->stages[s]))
            (void)snprintf(pl->stages[s].device, sizeof pl->stages[s].device, "cuda:%d",
                           p->gpu[s == p->last]);
}

/* Reads the measured run, and chooses if its times can be used. */
static void compare(struct pair *p, struct pst_diag *diag)
{
    char why[WHY_MAX], text[WHY_MAX + 100];
    p->report = read_json(p, "report.json", diag);
    p->run = p->report ? read_json(p, "pipeline.json", diag) : NULL;
    if (p->run && suits(p, why)) {
        if (measure(p))
            choose(p);
        else
            (void)snprintf(why, sizeof why, "its report lacks a time");
    }
    if (p->run && why[0]) {
        (void)snprintf(text, sizeof text,
                       "the first GPU: the run of " MEASURED_PATH " cannot be compared: %s", why);
        say(p->pl, text);
    }
    json_decref(p->report);
    json_decref(p->run);
}

void pst_place_pair(struct pst_pipeline *pl, struct pst_diag *diag)
{
    struct pair p = {.pl = pl};
    char why[PST_GPUS_WHY_BYTES], text[WHY_MAX + 32], reason[WHY_MAX];
    if (!divide(&p))
        return;
    const int gpus = pst_gpus_count(why);
    if (gpus < 2)
        return;
    if (!is_ruled_out(&p, gpus, reason)) {
        compare(&p, diag);
        return;
    }
    (void)snprintf(text, sizeof text, "the first GPU: %s", reason);
    say(pl, text);
}
