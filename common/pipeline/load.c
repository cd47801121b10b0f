#include "common/pipeline/pipeline.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/graph.h"
#include "common/pipeline/place.h"

struct loading {
    struct pst_pipeline *pl;
    struct pst_diag *diag;
};

static void error_at(struct loading *ld, const char *path, const char *fmt, ...) PST_PRINTF(3, 4);
static void error_at(struct loading *ld, const char *path, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pst_json_error(&ld->pl->doc, ld->diag, path, "%s", text);
}

static const char *hint(const char *name, const char *const *names, size_t n, char out[128])
{
    const char *near = pst_diag_nearest(name, names, n);
    out[0] = '\0';
    if (near)
        (void)snprintf(out, 128, "; did you mean %.64s?", near);
    return out;
}

/* Reports keys of an object that are not in names. */
static void known_keys(struct loading *ld, const json_t *object, const char *path, const char *const *names,
                       size_t n)
{
    const char *key;
    json_t *value;
    char at[PST_JSON_PATH_MAX], near[128];
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(key, names[i]) == 0;
        if (!known) {
            (void)snprintf(at, sizeof at, "%s%s%s", path, path[0] ? "." : "", key);
            error_at(ld, at, "unknown key%s", hint(key, names, n, near));
        }
    }
}

static bool want_string(struct loading *ld, const json_t *object, const char *base, const char *key,
                        char *out, size_t cap)
{
    const json_t *value = json_object_get(object, key);
    char at[PST_JSON_PATH_MAX];
    out[0] = '\0';
    if (!value)
        return false;
    (void)snprintf(at, sizeof at, "%s%s%s", base, base[0] ? "." : "", key);
    if (!json_is_string(value)) {
        error_at(ld, at, "expected a string, found %s", pst_json_kind(value));
        return false;
    }
    if ((size_t)snprintf(out, cap, "%s", json_string_value(value)) >= cap)
        error_at(ld, at, "longer than %zu characters", cap - 1);
    return true;
}

static int64_t want_int(struct loading *ld, const json_t *object, const char *base, const char *key,
                        int64_t def, int64_t min, int64_t max)
{
    const json_t *value = json_object_get(object, key);
    char at[PST_JSON_PATH_MAX];
    if (!value)
        return def;
    (void)snprintf(at, sizeof at, "%s%s%s", base, base[0] ? "." : "", key);
    if (!json_is_integer(value)) {
        error_at(ld, at, "expected an integer, found %s", pst_json_kind(value));
        return def;
    }
    int64_t n = json_integer_value(value);
    if (n < min || n > max) {
        error_at(ld, at, "expected from %lld to %lld, found %lld", (long long)min, (long long)max,
                 (long long)n);
        return def;
    }
    return n;
}

/* ---- stages -------------------------------------------------------------------------------------- */

static void unknown_stage(struct loading *ld, const char *at, const char *run)
{
    char **names, near[128], why[512];
    size_t n;
    (void)snprintf(why, sizeof why, "%s", pst_error_text());
    if (strchr(run, '/') || pst_caps_list(&names, &n) != PST_OK) {
        error_at(ld, at, "%s", why);
        return;
    }
    char list[512] = "";
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], run) == 0) { /* it is there, but cannot be used */
            error_at(ld, at, "%s", why);
            goto out;
        }
    for (size_t i = 0; i < n; i++)
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    error_at(ld, at, "no stage \"%s\" is installed (there are %s)%s", run, list,
             hint(run, (const char *const *)names, n, near));
out:
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* The stage's own value, else the pipeline's shared "params", else the default. */
static void resolve_params(struct loading *ld, struct pst_pipeline_stage_spec *stage, const json_t *own,
                           const char *path)
{
    const struct pst_stage_desc *desc = stage->caps.desc;
    const json_t *shared = json_object_get(ld->pl->doc.root, "params");
    const char *names[PST_PARAMS_MAX];
    size_t n = 0;
    char at[PST_JSON_PATH_MAX], why[256];
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        names[n++] = p->name;
        json_t *normal = NULL, *value = json_object_get(own, p->name);
        (void)snprintf(at, sizeof at, "%s.params.%s", path, p->name);
        if (!value && (value = json_object_get(shared, p->name)))
            (void)snprintf(at, sizeof at, "params.%s", p->name);
        if (value) {
            if (!pst_caps_param_normal(p, value, &normal, why))
                error_at(ld, at, "%s", why);
        } else if (!p->def) {
            error_at(ld, at, "missing: %s (%s)", p->help, pst_caps_param_type_name(p->type));
        } else {
            json_t *def = json_loads(p->def, JSON_DECODE_ANY, NULL);
            (void)pst_caps_param_normal(p, def, &normal, why);
            json_decref(def);
        }
        if (normal)
            (void)json_object_set_new(stage->params, p->name, normal);
    }
    if (json_is_object(own)) {
        (void)snprintf(at, sizeof at, "%s.params", path);
        known_keys(ld, own, at, names, n);
    }
}

static void load_place(struct loading *ld, struct pst_pipeline_stage_spec *stage, const json_t *j,
                       const char *path)
{
    static const char *const keys[] = {"device", "cores", "sm_percent"};
    const json_t *place = json_object_get(j, "place");
    char at[PST_JSON_PATH_MAX];
    (void)snprintf(at, sizeof at, "%s.place", path);
    if (place && !json_is_object(place)) {
        error_at(ld, at, "expected an object, as in {\"device\": \"cpu:0\"}, found %s", pst_json_kind(place));
        place = NULL;
    }
    stage->sm_percent = 100;
    if (place) {
        known_keys(ld, place, at, keys, 3);
        (void)want_string(ld, place, at, "device", stage->device, sizeof stage->device);
        (void)want_string(ld, place, at, "cores", stage->cores, sizeof stage->cores);
        stage->sm_percent = (int)want_int(ld, place, at, "sm_percent", 100, 1, 100);
    }
    (void)snprintf(at, sizeof at, "%s.place.cores", path);
    pst_place_cores(ld->pl, ld->diag, at, stage->cores);
}

/* Letters that are safe in file names, sockets and process names. */
static bool plain_name(const char *name, size_t max)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t n = strlen(name);
    return n >= 1 && n <= max && strspn(name, letters) == n;
}

static void missing_run(struct loading *ld, const char *name, const char *path)
{
    const char *names[PST_STAGES_MAX], *other, *near;
    size_t n = 0;
    json_t *j;
    json_object_foreach(json_object_get(ld->pl->doc.root, "stages"), other,
                        j) if (n < PST_STAGES_MAX && strcmp(other, name) != 0) names[n++] = other;
    near = pst_diag_nearest(name, names, n);
    error_at(ld, path, "\"run\" is missing: the name of an installed stage, or a path%s%s%s",
             near ? "; or did you mean " : "", near ? near : "", near ? "?" : "");
}

/* The stage's own members, all but its parameters. */
static void load_members(struct loading *ld, struct pst_pipeline_stage_spec *stage, const json_t *j,
                         const char *path)
{
    static const char *const keys[] = {"run", "params", "place", "group", "instances", "endpoint"};
    char at[PST_JSON_PATH_MAX + 16];
    known_keys(ld, j, path, keys, 6);
    stage->instances = (int)want_int(ld, j, path, "instances", 1, 1, PST_INSTANCES_MAX);
    (void)want_string(ld, j, path, "group", stage->group, sizeof stage->group);
    (void)snprintf(at, sizeof at, "%s.group", path);
    if (stage->group[0] && !plain_name(stage->group, PST_PIPELINE_STAGE_NAME_MAX)) {
        error_at(ld, at, "a group's name has 1 to %d letters, digits, _ or -", PST_PIPELINE_STAGE_NAME_MAX);
        stage->group[0] = '\0';
    }
    load_place(ld, stage, j, path);
}

/* tcp://ADDRESS:PORT, where a program is reached otherwise than by a socket of this machine. */
static void load_endpoint(struct loading *ld, struct pst_pipeline_stage_spec *stage, const json_t *j,
                          const char *path)
{
    char at[PST_JSON_PATH_MAX + 16];
    if (!want_string(ld, j, path, "endpoint", stage->endpoint, sizeof stage->endpoint))
        return;
    (void)snprintf(at, sizeof at, "%s.endpoint", path);
    const char *port = strrchr(stage->endpoint, ':');
    bool numbered = port && port[1] && strspn(port + 1, "0123456789") == strlen(port + 1) &&
                    strlen(port + 1) <= 5 && atoi(port + 1) >= 1 && atoi(port + 1) <= 65535;
    if (strncmp(stage->endpoint, "tcp://", 6) != 0 || !port || port < stage->endpoint + 7 ||
        (!numbered && strcmp(port, ":*") != 0))
        error_at(ld, at, "expected tcp://ADDRESS:PORT, as in \"tcp://127.0.0.1:*\", found \"%s\"",
                 stage->endpoint);
    else if (!stage->caps.foreign)
        error_at(ld, at,
                 "only a program (a foreign stage) has an endpoint of its own; %s is loaded into a "
                 "process of ours",
                 stage->name);
}

static void load_stage(struct loading *ld, const char *name, const json_t *j, bool group_all)
{
    struct pst_pipeline *pl = ld->pl;
    char path[PST_JSON_PATH_MAX], at[PST_JSON_PATH_MAX + 16], run[4096];
    (void)snprintf(path, sizeof path, "stages.%.400s", name);
    if (!plain_name(name, PST_PIPELINE_STAGE_NAME_MAX)) {
        error_at(ld, path, "a stage's name has 1 to %d letters, digits, _ or -", PST_PIPELINE_STAGE_NAME_MAX);
        return;
    }
    if (!json_is_object(j)) {
        error_at(ld, path, "expected an object, as in {\"run\": \"sampler\"}, found %s", pst_json_kind(j));
        return;
    }
    if (pl->nstages == PST_STAGES_MAX) {
        error_at(ld, path, "more than %d stages", PST_STAGES_MAX);
        return;
    }
    struct pst_pipeline_stage_spec *stage = &pl->stages[pl->nstages++];
    (void)snprintf(stage->name, sizeof stage->name, "%s", name);
    stage->params = json_object();
    load_members(ld, stage, j, path);
    (void)snprintf(at, sizeof at, "%s.run", path);
    if (!want_string(ld, j, path, "run", run, sizeof run)) {
        if (!json_object_get(j, "run"))
            missing_run(ld, name, path);
        return;
    }
    if (pst_caps_load(&stage->caps, run, pl->base_dir) != PST_OK) {
        unknown_stage(ld, at, run);
        pst_caps_release(&stage->caps);
        return;
    }
    load_endpoint(ld, stage, j, path);
    if (stage->caps.foreign && (stage->group[0] || group_all)) {
        (void)snprintf(at, sizeof at, "%s.group", path);
        error_at(ld, at, "%s is a program of its own and cannot be a thread of a group", run);
    }
    if (group_all)
        (void)snprintf(stage->group, sizeof stage->group, "all");
    const json_t *params = json_object_get(j, "params");
    if (params && !json_is_object(params)) {
        (void)snprintf(at, sizeof at, "%s.params", path);
        error_at(ld, at, "expected an object, found %s", pst_json_kind(params));
        params = NULL;
    }
    resolve_params(ld, stage, params, path);
    pst_place_device(pl, ld->diag, path, stage); /* which may depend on them */
}

static void load_stages(struct loading *ld, bool group_all)
{
    struct pst_pipeline *pl = ld->pl;
    const json_t *stages = json_object_get(pl->doc.root, "stages");
    if (!json_is_object(stages) || json_object_size(stages) == 0) {
        error_at(ld, "stages", "expected an object of stages, found %s",
                 stages ? json_is_object(stages) ? "an empty one" : pst_json_kind(stages) : "nothing");
        return;
    }
    const char *name;
    json_t *j;
    json_object_foreach((json_t *)(uintptr_t)stages, name, j) load_stage(ld, name, j, group_all);

    /* a shared parameter that no stage has is a misspelling */
    const json_t *shared = json_object_get(pl->doc.root, "params");
    if (shared && !json_is_object(shared))
        error_at(ld, "params", "expected an object, found %s", pst_json_kind(shared));
    const char *names[PST_STAGES_MAX * 8]; /* of distinct parameters: more than all stages together have */
    size_t n = 0;
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_stage_desc *desc = pl->stages[s].caps.desc;
        for (const struct pst_param_desc *p = desc ? desc->params : NULL; p && p->name; p++) {
            bool known = false;
            for (size_t i = 0; i < n; i++)
                known = known || strcmp(names[i], p->name) == 0;
            if (!known && n < sizeof names / sizeof names[0])
                names[n++] = p->name;
        }
    }
    if (json_is_object(shared))
        known_keys(ld, shared, "params", names, n);
}

/* ---- links --------------------------------------------------------------------------------------- */

/* optional: of a link that is left out where a stage has no such port. */
static bool resolve_end(struct loading *ld, const json_t *link, const char *path, const char *key,
                        enum pst_dir dir, bool optional, int *stage, int *port)
{
    struct pst_pipeline *pl = ld->pl;
    char text[2 * PST_NAME_MAX], at[PST_JSON_PATH_MAX], near[128];
    (void)snprintf(at, sizeof at, "%s.%s", path, key);
    if (!want_string(ld, link, path, key, text, sizeof text)) {
        if (!json_object_get(link, key))
            error_at(ld, path, "\"%s\" is missing: \"stage.port\"", key);
        return false;
    }
    char *dot = strchr(text, '.');
    if (!dot) {
        error_at(ld, at, "expected \"stage.port\", found \"%s\"", text);
        return false;
    }
    *dot = '\0';
    const char *names[PST_STAGES_MAX + PST_PORTS_MAX];
    for (int i = 0; i < pl->nstages; i++)
        names[i] = pl->stages[i].name;
    *stage = pst_pipeline_stage(pl, text);
    if (*stage < 0) {
        error_at(ld, at, "there is no stage \"%s\"%s", text, hint(text, names, (size_t)pl->nstages, near));
        return false;
    }
    const struct pst_stage_desc *desc = pl->stages[*stage].caps.desc;
    if (!desc)
        return false; /* already told */
    size_t n = 0;
    for (int i = 0; i < pst_desc_ports(desc); i++)
        if (desc->ports[i].dir == dir)
            names[n++] = desc->ports[i].name;
    *port = pst_desc_port(desc, dot + 1);
    if (*port < 0 && optional)
        return false;
    const char *meant = *port < 0 ? pst_diag_nearest(dot + 1, names, n) : dot + 1;
    if (meant) /* a port that a wrong link means is not reported as unlinked, too */
        pl->stages[*stage].linked |= 1u << pst_desc_port(desc, meant);
    if (*port < 0)
        error_at(ld, at, "stage %s has no port \"%s\"%s", text, dot + 1, hint(dot + 1, names, n, near));
    else if (desc->ports[*port].dir != dir)
        error_at(ld, at, "%s.%s is an %s, expected an %s", text, dot + 1, dir == PST_IN ? "output" : "input",
                 dir == PST_IN ? "input" : "output");
    else
        return true;
    return false;
}

/* "when": "gpu_memory" leaves a link out where the two stages could not share slots in a GPU's own memory,
 * or one that took another's place has no such port; "never" is for --set. */
static bool is_wanted(struct loading *ld, const json_t *j, const char *path, const struct pst_link_spec *link,
                      bool resolved)
{
    char text[PST_NAME_MAX], at[96];
    if (!want_string(ld, j, path, "when", text, sizeof text))
        return true;
    const bool never = strcmp(text, "never") == 0;
    (void)snprintf(at, sizeof at, "%s.when", path);
    if (!never && strcmp(text, "gpu_memory") != 0)
        error_at(ld, at, "expected \"gpu_memory\" or \"never\", found \"%s\"", text);
    if (!resolved)
        return false;
    struct pst_pipeline_stage_spec *from = &ld->pl->stages[link->from], *to = &ld->pl->stages[link->to];
    if (!never && (pst_place_gpu_memory(from, to) || pst_place_gpu_memory(to, from)))
        return true;
    from->linked &= ~(1u << link->from_port); /* as if it were not in the file */
    to->linked &= ~(1u << link->to_port);
    return false;
}

static void load_link(struct loading *ld, const json_t *j, size_t index)
{
    static const char *const keys[] = {"from", "to", "slots", "back", "when"};
    struct pst_pipeline *pl = ld->pl;
    char path[64], at[96];
    (void)snprintf(path, sizeof path, "links[%zu]", index);
    if (!json_is_object(j)) {
        error_at(ld, path, "expected an object, as in {\"from\": \"a.out\", \"to\": \"b.in\"}, found %s",
                 pst_json_kind(j));
        return;
    }
    if (pl->nlinks == PST_PIPELINE_LINKS_MAX) {
        error_at(ld, path, "more than %d links", PST_PIPELINE_LINKS_MAX);
        return;
    }
    known_keys(ld, j, path, keys, 5);
    struct pst_link_spec link = {.index = (int)index};
    link.slots = (int)want_int(ld, j, path, "slots", 0, 1, PST_SLOTS_MAX);
    const json_t *back = json_object_get(j, "back");
    (void)snprintf(at, sizeof at, "%s.back", path);
    if (back && !json_is_boolean(back))
        error_at(ld, at, "expected true or false, found %s", pst_json_kind(back));
    link.back = json_is_true(back);
    const bool optional = json_object_get(j, "when") != NULL;
    bool from = resolve_end(ld, j, path, "from", PST_OUT, optional, &link.from, &link.from_port);
    bool to = resolve_end(ld, j, path, "to", PST_IN, optional, &link.to, &link.to_port);
    const bool wanted = is_wanted(ld, j, path, &link, from && to);
    if (from && to && wanted)
        pl->links[pl->nlinks++] = link;
}

static void load_links(struct loading *ld)
{
    const json_t *links = json_object_get(ld->pl->doc.root, "links");
    if (!links)
        return;
    if (!json_is_array(links)) {
        error_at(ld, "links", "expected a list, found %s", pst_json_kind(links));
        return;
    }
    size_t i;
    json_t *j;
    json_array_foreach(links, i, j) load_link(ld, j, i);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void load_head(struct loading *ld)
{
    static const char *const keys[] = {"penstock", "name",   "help",  "dataset", "seed",
                                       "epochs",   "params", "place", "stages",  "links"};
    struct pst_pipeline *pl = ld->pl;
    json_t *root = pl->doc.root;
    char help[2048];
    known_keys(ld, root, "", keys, 10);
    if (!json_object_get(root, "penstock"))
        error_at(ld, "", "\"penstock\" is missing: the version of this form, 1");
    (void)want_int(ld, root, "", "penstock", 1, 1, 1);
    if (!want_string(ld, root, "", "name", pl->name, sizeof pl->name)) {
        const char *slash = strrchr(pl->doc.file, '/');
        (void)snprintf(pl->name, sizeof pl->name, "%.60s", slash ? slash + 1 : pl->doc.file);
        pl->name[strcspn(pl->name, ".")] = '\0';
        for (char *c = pl->name; *c; c++)
            *c = isalnum((unsigned char)*c) || strchr("_-", *c) ? *c : '_';
        if (!pl->name[0])
            (void)snprintf(pl->name, sizeof pl->name, "pipeline");
    } else if (!plain_name(pl->name, PST_NAME_MAX - 1)) { /* it becomes a part of file names */
        error_at(ld, "name", "expected 1 to %d letters, digits, _ or -, found \"%s\"", PST_NAME_MAX - 1,
                 pl->name);
    }
    (void)want_string(ld, root, "", "help", help, sizeof help);
    (void)want_string(ld, root, "", "dataset", pl->dataset, sizeof pl->dataset);
    pl->seed = (uint64_t)want_int(ld, root, "", "seed", 1, 0, INT64_MAX);
    pl->epochs = want_int(ld, root, "", "epochs", 1, 1, 1000000);
    static const char *const place_keys[] = {"device"};
    const json_t *place = json_object_get(root, "place");
    if (json_is_object(place)) {
        known_keys(ld, place, "place", place_keys, 1);
        (void)want_string(ld, place, "place", "device", pl->device, sizeof pl->device);
    } else if (place) {
        error_at(ld, "place", "expected an object, as in {\"device\": \"auto\"}, found %s",
                 pst_json_kind(place));
    }
}

bool pst_pipeline_load(struct pst_pipeline *pl, const char *file, char *const *sets, int nsets,
                       bool group_all, struct pst_diag *diag)
{
    memset(pl, 0, sizeof *pl);
    pl->stages =
        calloc(PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX, sizeof *pl->stages); /* room for inserted copies */
    pl->links = calloc(2 * (size_t)PST_PIPELINE_LINKS_MAX, sizeof *pl->links);
    if (!pl->stages || !pl->links) {
        pst_diag_add(diag, file, 0, NULL, "out of memory");
        return false;
    }
    (void)snprintf(pl->base_dir, sizeof pl->base_dir, "%s", file);
    char *slash = strrchr(pl->base_dir, '/');
    if (slash)
        *slash = '\0';
    else
        (void)snprintf(pl->base_dir, sizeof pl->base_dir, ".");
    if (!pst_json_load(&pl->doc, file, diag))
        return false;
    for (int i = 0; i < nsets; i++)
        (void)pst_json_set(&pl->doc, sets[i], diag);
    struct loading ld = {pl, diag};
    load_head(&ld);
    load_stages(&ld, group_all);
    load_links(&ld);
    pst_graph_check(pl, diag);
    return diag->count == 0;
}

void pst_pipeline_release(struct pst_pipeline *pl)
{
    for (int i = 0; i < pl->nstages; i++) {
        pst_caps_release(&pl->stages[i].caps);
        json_decref(pl->stages[i].params);
    }
    free(pl->stages);
    free(pl->links);
    pst_json_release(&pl->doc);
    memset(pl, 0, sizeof *pl);
}

int pst_pipeline_stage(const struct pst_pipeline *pl, const char *name)
{
    for (int i = 0; i < pl->nstages; i++)
        if (strcmp(pl->stages[i].name, name) == 0)
            return i;
    return -1;
}

bool pst_pipeline_condition(const struct pst_pipeline_stage_spec *stage, const char *condition)
{
    if (!condition || !condition[0])
        return false;
    const char *eq = strchr(condition, '=');
    if (!eq)
        return false;
    char name[PST_NAME_MAX];
    (void)snprintf(name, sizeof name, "%.*s", (int)(eq - condition), condition);
    json_t *value = json_object_get(stage->params, name);
    if (json_is_string(value))
        return strcmp(json_string_value(value), eq + 1) == 0;
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    bool equal = text && strcmp(text, eq + 1) == 0;
    free(text);
    return equal;
}

int pst_pipeline_port_hold(const struct pst_pipeline_stage_spec *stage, const struct pst_port_desc *port)
{
    json_int_t hold = port->hold > 0 ? port->hold : 1;
    if (port->hold_param)
        hold = json_integer_value(json_object_get(stage->params, port->hold_param));
    return hold < 1 ? 1 : hold > PST_SLOTS_MAX ? PST_SLOTS_MAX : (int)hold;
}
