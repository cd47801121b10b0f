/* effective.c: writes the pipeline that a run uses: the file with its overlays and --set merged, and with
 * absolute paths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/pipeline/pipeline.h"
#include "common/util/file.h"

/* DOMAIN:BUS:DEVICE.FUNCTION, in hexadecimal digits */
static bool is_pci_address(const char *text, size_t n)
{
    static const char *const parts[] = {":", ":", ".", ""};
    const char *at = text;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        const size_t digits = strspn(at, "0123456789abcdefABCDEF");
        at += digits;
        if (digits == 0 || strncmp(at, parts[p], strlen(parts[p])) != 0)
            return false;
        at += strlen(parts[p]);
    }
    return at == text + n;
}

static bool is_relative(enum pst_param_path kind, const char *text, size_t n)
{
    if (n == 0 || text[0] == '/')
        return false;
    return kind == PST_PATH_OR_NAME ? memchr(text, '/', n) != NULL
                                    : kind != PST_PATH_FILES || !is_pci_address(text, n);
}

json_t *pst_pipeline_absolute(const struct pst_param_desc *param, const json_t *value)
{
    const enum pst_param_path kind = (enum pst_param_path)param->path;
    const char *text = json_string_value(value);
    char *directory = kind != PST_PATH_NONE && text ? getcwd(NULL, 0) : NULL;
    if (directory == NULL) /* no path; or the directory was removed, and nothing can be found from it */
        return json_deep_copy(value);
    const char *stop = kind == PST_PATH_FILES ? "," : "";
    /* each item can grow by the directory and a '/' */
    size_t items = 1, used = 0;
    for (const char *c = text; (c = strpbrk(c, stop)) != NULL; c++)
        items++;
    const size_t cap = strlen(text) + items * (strlen(directory) + 1) + 1;
    char *out = calloc(1, cap);
    for (const char *at = text; out != NULL;) {
        const size_t n = strcspn(at, stop);
        if (is_relative(kind, at, n))
            used +=
                (size_t)snprintf(out + used, cap - used, "%s/", strcmp(directory, "/") == 0 ? "" : directory);
        used += (size_t)snprintf(out + used, cap - used, "%.*s%s", (int)n, at, at[n] ? "," : "");
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    json_t *absolute = out ? json_string(out) : NULL;
    free(out);
    free(directory);
    return absolute;
}

/* Makes paths in a stage's own parameters, or in those that it shares, absolute. */
static void settle_params(json_t *own, json_t *shared, const struct pst_stage_desc *desc)
{
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        json_t *in = json_object_get(own, p->name) ? own : shared;
        if (p->path && json_object_get(in, p->name))
            (void)json_object_set_new(in, p->name, pst_pipeline_absolute(p, json_object_get(in, p->name)));
    }
}

/* The paths and the group of a stage, so that they do not depend on a directory or an option. */
static void settle_stage(json_t *j, const struct pst_pipeline_stage_spec *stage)
{
    if (strchr(stage->caps.run, '/') && stage->caps.file)
        (void)json_object_set_new(j, "run", json_string(stage->caps.file));
    if (stage->group[0] && !strchr(stage->group, '.')) /* of replicas: the file has it without their number */
        (void)json_object_set_new(j, "group", json_string(stage->group));
}

pst_rc pst_pipeline_write(const struct pst_pipeline *pl, const char *path)
{
    json_t *root = json_deep_copy(pl->doc.root);
    const json_t *stages = json_object_get(root, "stages");
    for (int s = 0; s < pl->nstages; s++) {
        json_t *stage = json_object_get(stages, pl->stages[s].origin);
        if (!stage) /* a copy between devices is not in the file */
            continue;
        settle_stage(stage, &pl->stages[s]);
        settle_params(json_object_get(stage, "params"), json_object_get(root, "params"),
                      pl->stages[s].caps.desc);
    }
    (void)json_object_set_new(root, "name", json_string(pl->name));
    (void)json_object_set_new(root, "seed", json_integer((json_int_t)pl->seed));
    (void)json_object_set_new(root, "epochs", json_integer(pl->epochs));
    if (pl->dataset[0])
        (void)json_object_set_new(root, "dataset", json_string(pl->dataset));
    json_t *place = json_object_get(root, "place");
    if (json_object_get(place, "measured"))
        (void)json_object_set_new(place, "measured", json_string(pl->measured));
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    const pst_rc rc =
        text ? pst_file_replace(path, text, strlen(text)) : pst_fail(PST_E_NOMEM, "out of memory");
    free(text);
    return rc;
}
