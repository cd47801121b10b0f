/* pipeline_options.c: see pipeline_options.h. */
#include "tools/penstock/run/pipeline_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/json/diag.h"

/* Adds PATH=VALUE, which --set was given (path NULL), or which another option means. */
static bool add_set(struct pipeline_options *options, const char *path, const char *value, bool quote)
{
    char *text = NULL;
    if (options->nsets == PST_SETS_MAX) {
        fprintf(stderr, "penstock: too many changes of the pipeline: at most %d are allowed\n", PST_SETS_MAX);
        return false;
    }
    json_t *string = quote ? json_string(value) : NULL;
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    bool made = asprintf(&text, "%s%s%s", path ? path : "", path ? "=" : "", quoted ? quoted : value) >= 0;
    free(quoted);
    json_decref(string);
    if (made)
        options->sets[options->nsets++] = text;
    return made;
}

static bool set_group(struct pipeline_options *options, const char *value)
{
    options->group_all = strcmp(value, "all") == 0;
    if (!options->group_all)
        fprintf(stderr, "penstock: --group: expected all, found '%.64s'\n", value);
    return options->group_all;
}

/* Stages get an absolute path. */
static bool init_from(struct pipeline_options *options, const char *run)
{
    char *path = realpath(run, NULL);
    if (!path)
        fprintf(stderr, "penstock: --init-from: %s: %s\n", run, strerror(errno));
    const bool ok = path && add_set(options, "params.init_from", path, true);
    free(path);
    return ok;
}

bool pipeline_option(struct pipeline_options *options, int code, const char *value)
{
    switch (code) {
    case 'D': return add_set(options, "dataset", value, true);
    case 'S': return add_set(options, NULL, value, false);
    case 'W':
        if (options->noverlays == PST_JSON_OVERLAYS_MAX) {
            fprintf(stderr, "--with can be given at most %d times\n", PST_JSON_OVERLAYS_MAX);
            return false;
        }
        options->overlays[options->noverlays++] = (char *)(uintptr_t)value;
        return true;
    case 'E': return add_set(options, "epochs", value, false);
    case 'N': return add_set(options, "seed", value, false);
    case 'V': return add_set(options, "place.device", value, true);
    case 'I': return init_from(options, value);
    case 'G': return set_group(options, value);
    default: return false;
    }
}

void pipeline_options_release(struct pipeline_options *options)
{
    for (int i = 0; i < options->nsets; i++)
        free(options->sets[i]);
    options->nsets = 0;
}

bool load_pipeline(struct pst_pipeline *pl, struct pst_graph *graph, const char *file,
                   const struct pipeline_options *options)
{
    struct pst_diag diag = {0};
    const struct pst_pipeline_options how = {.overlays = options->overlays,
                                             .noverlays = options->noverlays,
                                             .sets = options->sets,
                                             .nsets = options->nsets,
                                             .group_all = options->group_all,
                                             .ranks = options->ranks};
    bool ok = pst_pipeline_load(pl, file, &how, &diag) && pst_graph_build(graph, pl, &diag);
    pst_diag_print(&diag);
    pst_diag_release(&diag);
    return ok;
}

/* Was stage s placed for the reason of a stage before it? */
static bool is_said(const struct pst_pipeline *pl, int s)
{
    bool said = false;
    for (int i = 0; i < s; i++)
        said = said || strcmp(pl->stages[i].chosen, pl->stages[s].chosen) == 0;
    return said;
}

void pipeline_print_auto(const struct pst_pipeline *pl)
{
    for (int s = 0; s < pl->nstages; s++) {
        if (!pl->stages[s].chosen[0] || is_said(pl, s))
            continue;
        for (int i = s; i < pl->nstages; i++)
            if (strcmp(pl->stages[i].chosen, pl->stages[s].chosen) == 0)
                printf("%s%s on %s", i == s ? "  " : ", ", pl->stages[i].name, pl->stages[i].device);
        printf(" (auto: %s)\n", pl->stages[s].chosen);
    }
}

json_t *pipeline_places_json(const struct pst_pipeline *pl)
{
    json_t *places = json_object();
    for (int s = 0; s < pl->nstages; s++)
        (void)json_object_set_new(places, pl->stages[s].name,
                                  json_pack("{ss ss*}", "device", pl->stages[s].device, "chosen",
                                            pl->stages[s].chosen[0] ? pl->stages[s].chosen : NULL));
    return places;
}
