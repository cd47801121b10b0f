#include "common/pipeline/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ipc/gpus.h"

static_assert(PST_PIPELINE_DEVICES_MAX >= PST_GPUS_MAX, "every GPU can be named");

bool pst_place_list_has(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; at && *at;) {
        size_t part = strcspn(at, ",");
        if (part == len && strncmp(at, word, len) == 0)
            return true;
        at += part + (at[part] == ',');
    }
    return false;
}

/* Does the port take this kind of memory? *condition: of a kind that it takes "if PARAM=VALUE|VALUE and ...",
 * the latter, to the list's next comma; NULL: at any rate. */
static bool takes(const struct pst_port_desc *port, const char *kind, const char **condition)
{
    static const char by[] = " if ";
    const size_t len = strlen(kind);
    *condition = NULL;
    for (const char *at = port->memory; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, kind, len) != 0 ||
            (at[len] && at[len] != ',' && strncmp(at + len, by, strlen(by)) != 0))
            continue;
        *condition = at[len] == by[0] ? at + len + strlen(by) : NULL;
        return true;
    }
    return false;
}

/* "param=value|value": one of them holds. */
static bool one_holds(const struct pst_pipeline_stage_spec *stage, const char *condition)
{
    const size_t name = strcspn(condition, "="), end = strcspn(condition, " ,");
    for (size_t at = name + 1; at < end; at += strcspn(condition + at, "| ,") + 1) {
        char one[2 * PST_NAME_MAX];
        (void)snprintf(one, sizeof one, "%.*s=%.*s", (int)name, condition,
                       (int)strcspn(condition + at, "| ,"), condition + at);
        if (pst_pipeline_condition(stage, one))
            return true;
    }
    return false;
}

/* The first of "param=value|value and param=value" that does not hold; NULL: they all do. */
static const char *missed(const struct pst_pipeline_stage_spec *stage, const char *condition)
{
    static const char more[] = " and ";
    while (one_holds(stage, condition)) {
        condition += strcspn(condition, " ,");
        if (strncmp(condition, more, strlen(more)) != 0)
            return *condition == ' ' ? condition : NULL; /* what it says there nobody knows */
        condition += strlen(more);
    }
    return condition;
}

bool pst_place_stage_on_gpu(const struct pst_pipeline_stage_spec *stage, char why[160])
{
    const struct pst_stage_desc *desc = stage->caps.desc;
    for (int p = 0; p < pst_desc_ports(desc); p++) {
        const struct pst_port_desc *port = &desc->ports[p];
        const char *condition = NULL;
        if (takes(port, "pinned", &condition) || takes(port, "cuda", &condition)) {
            if (condition != NULL)
                condition = missed(stage, condition);
            if (condition == NULL)
                continue;
            const int end = (int)strcspn(condition, " ,");
            (void)snprintf(why, 160, "%.40s computes on a GPU only with %.*s", desc->name, end, condition);
            return false;
        }
        (void)snprintf(why, 160, "%.40s computes on CPUs only (its %s %.40s takes %.20s memory)", desc->name,
                       port->dir == PST_IN ? "input" : "output", port->name, port->memory);
        return false;
    }
    if (stage->caps.foreign)
        (void)snprintf(why, 160, "%.40s is a program of its own: such get host memory only", desc->name);
    return !stage->caps.foreign;
}

/* A number without sign, blanks or leading zeros; -1 if there is none. Ends at *end. */
static int plain_number(const char *text, const char **end)
{
    size_t digits = strspn(text, "0123456789");
    *end = text + digits;
    return digits == 0 || digits > 5 || (digits > 1 && text[0] == '0') ? -1 : atoi(text);
}

/* Of "KIND:N", N below PST_PIPELINE_DEVICES_MAX; -1: it is no such device. */
static int device_number(const char *device, const char *kind)
{
    const char *end = "";
    size_t n = strlen(kind);
    int number = strncmp(device, kind, n) == 0 ? plain_number(device + n, &end) : -1;
    return number < PST_PIPELINE_DEVICES_MAX && *end == '\0' ? number : -1;
}

/* A GPU where there is one and the stage can use it. */
static void choose_device(struct pst_pipeline_stage_spec *stage)
{
    char why[PST_GPUS_WHY_BYTES];
    bool can = pst_place_stage_on_gpu(stage, stage->chosen);
    bool gpu = can && pst_gpus_count(why) > 0;
    (void)snprintf(stage->device, sizeof stage->device, gpu ? "cuda:0" : "cpu:0");
    if (gpu)
        (void)snprintf(stage->chosen, sizeof stage->chosen, "the first GPU");
    else if (can)
        (void)snprintf(stage->chosen, sizeof stage->chosen, "there is no GPU: %.170s", why);
}

static bool check_gpu(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at,
                      const struct pst_pipeline_stage_spec *stage, int number)
{
    char why[PST_GPUS_WHY_BYTES];
    int gpus = pst_gpus_count(why);
    if (gpus == 0)
        pst_json_error(&pl->doc, diag, at, "device %s is absent: there is no GPU that can be used: %s",
                       stage->device, why);
    else if (number >= gpus)
        pst_json_error(&pl->doc, diag, at, "device %s is absent: this machine has %d of them, from cuda:0 on",
                       stage->device, gpus);
    else if (!pst_place_stage_on_gpu(stage, why))
        pst_json_error(&pl->doc, diag, at, "%s cannot run on %s: %s", stage->name, stage->device, why);
    else
        return true;
    return false;
}

/* Where the whole pipeline is to run, or cpu:0 for a stage that cannot. */
static void inherit(const struct pst_pipeline *pl, struct pst_pipeline_stage_spec *stage)
{
    if (strncmp(pl->device, "cuda:", 5) == 0 && !pst_place_stage_on_gpu(stage, stage->chosen))
        (void)snprintf(stage->device, sizeof stage->device, "cpu:0");
    else
        (void)snprintf(stage->device, sizeof stage->device, "%s", pl->device[0] ? pl->device : "cpu:0");
}

void pst_place_device(struct pst_pipeline *pl, struct pst_diag *diag, const char *path,
                      struct pst_pipeline_stage_spec *stage)
{
    char at[PST_JSON_PATH_MAX];
    const bool own = stage->device[0] != '\0';
    (void)snprintf(at, sizeof at, "%s%splace.device", own ? path : "", own ? "." : "");
    if (!own)
        inherit(pl, stage);
    if (strcmp(stage->device, "auto") == 0) {
        choose_device(stage);
        return;
    }
    int gpu = device_number(stage->device, "cuda:"), cpu = device_number(stage->device, "cpu:");
    if (cpu >= 0 || (gpu >= 0 && check_gpu(pl, diag, at, stage, gpu)))
        return;
    if (gpu < 0)
        pst_json_error(&pl->doc, diag, at, "expected cpu:N or cuda:N (N up to %d) or auto, found \"%s\"",
                       PST_PIPELINE_DEVICES_MAX - 1, stage->device);
    (void)snprintf(stage->device, sizeof stage->device, "cpu:0");
    if (!own)
        pl->device[0] = '\0';
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
        any = any || processes > 1; /* the name is one that no file can give a group */
    }
    return any;
}

/* "0-3,6", each core one of this machine's. */
void pst_place_cores(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at, const char *cores)
{
    int have = (int)sysconf(_SC_NPROCESSORS_CONF);
    for (const char *item = cores; *cores;) {
        int first = plain_number(item, &item), last = *item == '-' ? plain_number(item + 1, &item) : first;
        if (first < 0 || last < first || (*item && (*item != ',' || !item[1]))) {
            pst_json_error(&pl->doc, diag, at, "expected a list of cores, as in \"0-3,6\", found \"%s\"",
                           cores);
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
