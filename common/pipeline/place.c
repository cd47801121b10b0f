/* place.c: chooses and checks devices, cores and groups of stages. */
#include "common/pipeline/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ipc/gpus.h"
#include "common/pipeline/desc/condition.h"
#include "common/pipeline/desc/desc.h"

#define CONDITION_MAX 1024

static_assert(PST_PIPELINE_DEVICES_MAX >= PST_GPUS_MAX, "every GPU can be named");

/* ---- memory ---------------------------------------------------------------------------------- */

/* Does the port take this kind of memory? If that depends on parameters, `condition` gets the condition; else
 * it becomes empty. */
static bool takes(const struct pst_port_desc *port, const char *kind, char condition[CONDITION_MAX])
{
    static const char by[] = " if ";
    const size_t len = strlen(kind);
    condition[0] = '\0';
    for (const char *at = port->memory; *at; at += strcspn(at, ","), at += *at == ',') {
        const char *after = at + len;
        if (strncmp(at, kind, len) != 0)
            continue;
        if (*after == '\0' || *after == ',')
            return true;
        if (strncmp(after, by, strlen(by)) != 0)
            continue;
        after += strlen(by);
        (void)snprintf(condition, CONDITION_MAX, "%.*s", (int)strcspn(after, ","), after);
        return true;
    }
    return false;
}

bool pst_place_stage_on_gpu(const struct pst_pipeline_stage_spec *stage, char why[PST_PLACE_WHY_MAX])
{
    const struct pst_stage_desc *desc = stage->caps.desc;
    char condition[CONDITION_MAX], clause[100];
    for (int p = 0; p < pst_desc_ports(desc); p++) {
        const struct pst_port_desc *port = &desc->ports[p];
        const bool can = takes(port, "pinned", condition) || takes(port, "cuda", condition);
        if (can && (!condition[0] || !pst_condition_missed(condition, stage->params, clause, sizeof clause)))
            continue;
        if (can)
            (void)snprintf(why, PST_PLACE_WHY_MAX, "%.40s can use a GPU only if %s", desc->name, clause);
        else
            (void)snprintf(why, PST_PLACE_WHY_MAX, "%.40s runs only on CPUs: its %s %.40s uses %.20s memory",
                           desc->name, port->dir == PST_IN ? "input" : "output", port->name, port->memory);
        return false;
    }
    if (stage->caps.foreign)
        (void)snprintf(why, PST_PLACE_WHY_MAX, "%.40s is an external program, which can only use host memory",
                       desc->name);
    return !stage->caps.foreign;
}

bool pst_place_gpu_memory(const struct pst_pipeline_stage_spec *stage,
                          const struct pst_pipeline_stage_spec *home)
{
    const bool one = strcmp(stage->device, home->device) == 0;
    return strncmp(home->device, "cuda:", 5) == 0 &&
           (one || pst_gpus_reach(pst_gpu_number(stage->device), pst_gpu_number(home->device))) &&
           (one || !stage->group[0] || strcmp(stage->group, home->group) != 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

/* Reads a number without sign, blanks or leading zeros, which ends at *end; -1: there is none. */
static int plain_number(const char *text, const char **end)
{
    size_t digits = strspn(text, "0123456789");
    *end = text + digits;
    return digits == 0 || digits > 5 || (digits > 1 && text[0] == '0') ? -1 : atoi(text);
}

/* The N of "KIND:N", below PST_PIPELINE_DEVICES_MAX; -1: the device is something else. */
static int device_number(const char *device, const char *kind)
{
    const char *end = "";
    size_t n = strlen(kind);
    int number = strncmp(device, kind, n) == 0 ? plain_number(device + n, &end) : -1;
    return number < PST_PIPELINE_DEVICES_MAX && *end == '\0' ? number : -1;
}

/* Chooses a GPU if there is one and the stage can use it. */
static void choose_device(struct pst_pipeline_stage_spec *stage)
{
    char why[PST_GPUS_WHY_BYTES];
    bool can = pst_place_stage_on_gpu(stage, stage->chosen);
    bool gpu = can && pst_gpus_count(why) > 0;
    (void)snprintf(stage->device, sizeof stage->device, gpu ? "cuda:0" : "cpu:0");
    if (gpu)
        (void)snprintf(stage->chosen, sizeof stage->chosen, "the first GPU");
    else if (can)
        (void)snprintf(stage->chosen, sizeof stage->chosen, "this machine has no usable GPU: %.170s", why);
}

static bool check_gpu(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at,
                      const struct pst_pipeline_stage_spec *stage, int number)
{
    char why[PST_GPUS_WHY_BYTES];
    int gpus = pst_gpus_count(why);
    if (gpus == 0)
        pst_json_error(&pl->doc, diag, at, "device %s does not exist: no GPU can be used: %s", stage->device,
                       why);
    else if (number >= gpus)
        pst_json_error(&pl->doc, diag, at,
                       "device %s does not exist: this machine has %d GPUs, numbered from cuda:0%s%s",
                       stage->device, gpus, why[0] ? "; " : "", why);
    else if (!pst_place_stage_on_gpu(stage, why))
        pst_json_error(&pl->doc, diag, at, "%s cannot run on %s: %s", stage->name, stage->device, why);
    else
        return true;
    return false;
}

/* Takes the pipeline's device, or cpu:0 if the stage cannot run there. */
static void inherit(const struct pst_pipeline *pl, struct pst_pipeline_stage_spec *stage)
{
    if (strncmp(pl->device, "cuda:", 5) == 0 && !pst_place_stage_on_gpu(stage, stage->chosen))
        (void)snprintf(stage->device, sizeof stage->device, "cpu:0");
    else
        (void)snprintf(stage->device, sizeof stage->device, "%s", pl->device[0] ? pl->device : "cpu:0");
}

bool pst_place_names_device(const char *device)
{
    return device_number(device, "cuda:") >= 0 || device_number(device, "cpu:") >= 0;
}

bool pst_place_device_at(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at,
                         struct pst_pipeline_stage_spec *stage)
{
    int gpu = device_number(stage->device, "cuda:"), cpu = device_number(stage->device, "cpu:");
    if (cpu >= 0 || (gpu >= 0 && check_gpu(pl, diag, at, stage, gpu)))
        return true;
    if (gpu < 0)
        pst_json_error(&pl->doc, diag, at, "expected cpu:N or cuda:N (N from 0 to %d) or auto, found \"%s\"",
                       PST_PIPELINE_DEVICES_MAX - 1, stage->device);
    (void)snprintf(stage->device, sizeof stage->device, "cpu:0");
    return false;
}

void pst_place_device(struct pst_pipeline *pl, struct pst_diag *diag, const char *path,
                      struct pst_pipeline_stage_spec *stage)
{
    char at[PST_JSON_PATH_MAX];
    const bool own = stage->device[0] != '\0';
    (void)snprintf(at, sizeof at, "%s%splace.device", own ? path : "", own ? "." : "");
    if (!own)
        inherit(pl, stage);
    stage->own_device = own && strcmp(stage->device, "auto") != 0;
    if (strcmp(stage->device, "auto") == 0)
        choose_device(stage);
    else if (!pst_place_device_at(pl, diag, at, stage) && !own)
        pl->device[0] = '\0';
}

int pst_place_missing_port(const struct pst_pipeline_stage_spec *stage)
{
    const struct pst_stage_desc *desc = stage->caps.desc;
    if (strncmp(stage->device, "cuda:", 5) != 0)
        return -1;
    for (int p = 0; p < pst_desc_ports(desc); p++)
        if ((desc->ports[p].flags & PST_PORT_NEEDED_ON_GPU) && !(stage->linked >> p & 1))
            return p;
    return -1;
}

void pst_place_move_unlinked(struct pst_pipeline *pl)
{
    for (int s = 0; s < pl->nstages; s++) {
        struct pst_pipeline_stage_spec *stage = &pl->stages[s];
        const int port = stage->caps.desc && !stage->own_device ? pst_place_missing_port(stage) : -1;
        if (port < 0)
            continue;
        (void)snprintf(
            stage->chosen, sizeof stage->chosen,
            "%.40s can use a GPU only if its %s %.40s is linked to a stage that shares slots in that "
            "GPU's memory",
            stage->caps.desc->name, stage->caps.desc->ports[port].dir == PST_IN ? "input" : "output",
            stage->caps.desc->ports[port].name);
        (void)snprintf(stage->device, sizeof stage->device, "cpu:0");
    }
}

static bool is_left_to_us(const struct pst_pipeline_stage_spec *stage)
{
    return stage->chosen[0] && !stage->group[0] && strncmp(stage->device, "cuda:", 5) == 0;
}

bool pst_place_group(struct pst_pipeline *pl)
{
    bool any = false;
    for (int s = 0; s < pl->nstages; s++) {
        char device[sizeof pl->stages[s].device];
        int processes = 0;
        (void)snprintf(device, sizeof device, "%s", pl->stages[s].device);
        for (int i = 0; is_left_to_us(&pl->stages[s]) && i < pl->nstages; i++)
            if (is_left_to_us(&pl->stages[i]) && strcmp(pl->stages[i].device, device) == 0)
                processes += pl->stages[i].instances;
        for (int i = 0; processes > 1 && i < pl->nstages; i++)
            if (is_left_to_us(&pl->stages[i]) && strcmp(pl->stages[i].device, device) == 0)
                (void)snprintf(pl->stages[i].group, sizeof pl->stages[i].group, "%s", device);
        any = any || processes > 1; /* a file cannot give a group this name, since it has a colon */
    }
    return any;
}

/* ---- cores ----------------------------------------------------------------------------------- */

void pst_place_cores(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at, const char *cores)
{
    int have = (int)sysconf(_SC_NPROCESSORS_CONF);
    for (const char *item = cores; *cores;) {
        int first = plain_number(item, &item), last = *item == '-' ? plain_number(item + 1, &item) : first;
        if (first < 0 || last < first || (*item && (*item != ',' || !item[1]))) {
            pst_json_error(&pl->doc, diag, at,
                           "expected a list of cores, for example \"0-3,6\", found \"%s\"", cores);
            return;
        }
        if (last >= have) {
            pst_json_error(&pl->doc, diag, at,
                           "expected cores from 0 to %d, which this machine has, found %d", have - 1, last);
            return;
        }
        if (!*item++)
            return;
    }
}
