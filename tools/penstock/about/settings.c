/* settings.c: see settings.h. A path grows by one part at a time, so that there is never a screenful of
 * words. */
#include "tools/penstock/about/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/caps.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/json/diag.h"
#include "common/pipeline/json/json.h"

struct offering {
    struct pst_json doc;
    char base_dir[PST_PATH_MAX]; /* of the pipeline file */
    const char *before, *current;
    json_t *seen; /* what was offered */
};

static void offer(const struct offering *o, const char *text, const char *help)
{
    if (strncmp(text, o->current, strlen(o->current)) != 0 || json_object_get(o->seen, text) != NULL)
        return;
    printf("%s%s\t%s\n", o->before, text, help);
    (void)json_object_set_new(o->seen, text, json_true());
}

/* ---- the pipeline ------------------------------------------------------------------------------------ */

static bool is_option(const char *word, const char *name, const char **value)
{
    const size_t n = strlen(name);
    *value = strncmp(word, name, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
    return *value != NULL || strcmp(word, name) == 0;
}

/* Reads the pipeline with the settings so far. Errors are not shown: the line is not finished. */
static bool load(struct offering *o, const char *file, char *const *word, int n)
{
    struct pst_diag diag = {0};
    const char *value;
    bool ok = pst_json_load(&o->doc, file, &diag);
    for (int i = 0; i < n && ok; i++) {
        const bool with = is_option(word[i], "--with", &value);
        const bool set = !with && is_option(word[i], "--set", &value);
        if ((with || set) && value == NULL)
            value = i + 1 < n ? word[++i] : NULL;
        if (with && value != NULL)
            ok = pst_json_overlay(&o->doc, value, &diag);
        else if (set && value != NULL)
            (void)pst_json_set(&o->doc, value, &diag);
    }
    pst_diag_release(&diag);
    if (ok) {
        (void)snprintf(o->base_dir, sizeof o->base_dir, "%s", file);
        char *slash = strrchr(o->base_dir, '/');
        (void)snprintf(slash ? slash : o->base_dir, 2, "%s", slash ? "" : ".");
    }
    return ok;
}

/* ---- parameters -------------------------------------------------------------------------------------- */

/* What is to be said of the parameters of a stage. `at` ends with "params.". */
typedef void (*say_params)(const struct offering *o, const struct pst_stage_desc *desc, const char *at);

static void names(const struct offering *o, const struct pst_stage_desc *desc, const char *at)
{
    char text[PST_JSON_PATH_MAX], help[PST_JSON_PATH_MAX];
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        (void)snprintf(text, sizeof text, "%s%s=", at, p->name);
        (void)snprintf(help, sizeof help, "%s%s%s%s", p->help, p->def ? " (" : "", p->def ? p->def : "",
                       p->def ? ")" : "");
        offer(o, text, help);
    }
}

static void value(const struct offering *o, const char *at, const char *name, const char *what,
                  const char *help)
{
    char text[PST_JSON_PATH_MAX];
    (void)snprintf(text, sizeof text, "%s%s=%s", at, name, what);
    offer(o, text, help);
}

/* The words that a parameter can be, and its default. */
static void values(const struct offering *o, const struct pst_stage_desc *desc, const char *at)
{
    char word[PST_NAME_MAX];
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        const size_t n = strlen(at), bytes = strlen(p->name);
        if (strncmp(o->current, at, n) != 0 || strncmp(o->current + n, p->name, bytes) != 0 ||
            o->current[n + bytes] != '=')
            continue;
        json_t *def = p->def ? json_loads(p->def, JSON_DECODE_ANY, NULL) : NULL;
        const char *usual = json_is_string(def) ? json_string_value(def) : p->def;
        for (const char *c = p->choices; (c = pst_desc_list_next(c, '|', word)) != NULL;)
            value(o, at, p->name, word, usual && strcmp(word, usual) == 0 ? "default" : "");
        if (p->type == PST_PARAM_BOOL) {
            value(o, at, p->name, "true", "");
            value(o, at, p->name, "false", "");
        }
        if (p->automatic)
            value(o, at, p->name, "auto", "the stage chooses");
        if (usual && p->type != PST_PARAM_ENUM && p->type != PST_PARAM_BOOL &&
            !(p->automatic && strcmp(usual, "auto") == 0))
            value(o, at, p->name, usual, "default");
        json_decref(def);
    }
}

static void say_of_stage(const struct offering *o, const json_t *stage, const char *at, say_params say)
{
    struct pst_caps caps;
    const char *run = json_string_value(json_object_get(stage, "run"));
    if (run == NULL)
        return;
    if (pst_caps_load(&caps, run, o->base_dir) == PST_OK)
        say(o, caps.desc, at);
    pst_caps_release(&caps);
}

/* Shared parameters: those of all stages. */
static void shared(const struct offering *o, say_params say)
{
    const char *name;
    json_t *stage;
    json_object_foreach(json_object_get(o->doc.root, "stages"), name, stage)
    {
        say_of_stage(o, stage, "params.", say);
    }
}

/* ---- the rest ---------------------------------------------------------------------------------------- */

static void one_stage(const struct offering *o, const char *name, const json_t *stage, say_params say)
{
    static const struct {
        const char *member, *help;
    } members[] = {{"params.", "its parameters"},
                   {"run=", "another stage: a name or a path"},
                   {"instances=", "copies of the stage"},
                   {"place.device=", "cpu:N, cuda:N or auto"},
                   {"place.cores=", "0-3,6"},
                   {"group=", "stages of a group share a process"}};
    char text[PST_JSON_PATH_MAX];
    const int n = snprintf(text, sizeof text, "stages.%s.", name);
    if (strncmp(o->current, text, (size_t)n) != 0) {
        const char *run = json_string_value(json_object_get(stage, "run"));
        offer(o, text, run ? run : "");
        return;
    }
    (void)snprintf(text + n, sizeof text - (size_t)n, "params.");
    if (strncmp(o->current, text, strlen(text)) == 0) {
        say_of_stage(o, stage, text, say);
        return;
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        (void)snprintf(text + n, sizeof text - (size_t)n, "%s", members[i].member);
        offer(o, text, members[i].help);
    }
}

static void all_links(const struct offering *o)
{
    char text[64], help[PST_JSON_PATH_MAX];
    size_t i;
    json_t *link;
    json_array_foreach(json_object_get(o->doc.root, "links"), i, link)
    {
        const char *from = json_string_value(json_object_get(link, "from"));
        const char *to = json_string_value(json_object_get(link, "to"));
        (void)snprintf(text, sizeof text, "links[%zu].slots=", i);
        (void)snprintf(help, sizeof help, "%s to %s", from ? from : "?", to ? to : "?");
        offer(o, text, help);
    }
}

static void top(const struct offering *o)
{
    static const char *const words[][2] = {{"stages.", "one stage"},
                                           {"params.", "parameters of all stages"},
                                           {"links[", "one link"},
                                           {"replicas.stages=", "stages that get one replica for each place"},
                                           {"replicas.places=", "devices, one for each replica"},
                                           {"epochs=", "how many"},
                                           {"seed=", "of all random numbers"},
                                           {"dataset=", "its directory"},
                                           {"overlap=", "false: one stage works at a time"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        offer(o, words[i][0], words[i][1]);
}

void settings_offer(const char *file, char *const *word, int n, const char *before, const char *current)
{
    struct offering o = {.before = before, .current = current, .seen = json_object()};
    if (load(&o, file, word, n)) {
        const say_params say = strchr(current, '=') != NULL ? values : names;
        const char *name;
        json_t *stage;
        if (strncmp(current, "params.", strlen("params.")) == 0)
            shared(&o, say);
        else if (strncmp(current, "links[", strlen("links[")) == 0)
            all_links(&o);
        else if (strncmp(current, "stages.", strlen("stages.")) != 0)
            top(&o);
        else
            json_object_foreach(json_object_get(o.doc.root, "stages"), name, stage)
            {
                one_stage(&o, name, stage, say);
            }
    }
    pst_json_release(&o.doc);
    json_decref(o.seen);
}
