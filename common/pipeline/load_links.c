/* load_links.c: the member "links" of a pipeline file. */
#include <string.h>

#include "common/pipeline/desc/condition.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/json/diag.h"
#include "common/pipeline/load_impl.h"
#include "common/pipeline/place.h"

#define PATH_MAX_OF_LINK 64   /* bytes of "links[N]" */
#define PATH_MAX_OF_MEMBER 96 /* bytes of "links[N].MEMBER" */

/* One end of a link: "stage.port". */
struct end {
    const char *key; /* "from" or "to" */
    enum pst_dir dir;
    bool optional; /* if the stage has no such port, the link is left out */
    int stage, port;
};

/* Finds the port of the end's stage. */
static bool find_port(struct pst_pipeline_loading *ld, struct end *end, const char *at, const char *name)
{
    struct pst_pipeline_stage_spec *stage = &ld->pl->stages[end->stage];
    const struct pst_stage_desc *desc = stage->caps.desc;
    const char *names[PST_PORTS_MAX];
    char near[PST_PIPELINE_HINT_MAX];
    size_t n = 0;
    if (!desc)
        return false; /* reported before */
    for (int i = 0; i < pst_desc_ports(desc); i++)
        if (desc->ports[i].dir == end->dir)
            names[n++] = desc->ports[i].name;
    end->port = pst_desc_port(desc, name);
    if (end->port < 0 && end->optional)
        return false;
    const char *meant = end->port < 0 ? pst_diag_nearest(name, names, n) : name;
    if (meant) /* the port that a wrong link means is not reported as unlinked as well */
        stage->linked |= 1u << pst_desc_port(desc, meant);
    if (end->port < 0)
        pst_pipeline_error(ld, at, "stage %s has no port \"%s\"%s", stage->name, name,
                           pst_pipeline_hint(name, names, n, near));
    else if (desc->ports[end->port].dir != end->dir)
        pst_pipeline_error(ld, at, "%s.%s is an %s, expected an %s", stage->name, name,
                           end->dir == PST_IN ? "output" : "input", end->dir == PST_IN ? "input" : "output");
    else
        return true;
    return false;
}

/* Finds the stage and the port of an end. False: not found, which was reported unless the end is optional. */
static bool find_end(struct pst_pipeline_loading *ld, const json_t *link, const char *path, struct end *end)
{
    struct pst_pipeline *pl = ld->pl;
    const char *names[PST_STAGES_MAX];
    char text[2 * PST_NAME_MAX], at[PATH_MAX_OF_MEMBER], near[PST_PIPELINE_HINT_MAX];
    (void)snprintf(at, sizeof at, "%s.%s", path, end->key);
    if (!pst_pipeline_get_string(ld, link, path, end->key, text, sizeof text)) {
        if (!json_object_get(link, end->key))
            pst_pipeline_error(ld, path, "\"%s\" is missing: expected \"stage.port\"", end->key);
        return false;
    }
    char *dot = strchr(text, '.');
    if (!dot) {
        pst_pipeline_error(ld, at, "expected \"stage.port\", found \"%s\"", text);
        return false;
    }
    *dot = '\0';
    for (int i = 0; i < pl->nstages; i++)
        names[i] = pl->stages[i].name;
    end->stage = pst_pipeline_stage(pl, text);
    if (end->stage < 0) {
        pst_pipeline_error(ld, at, "the pipeline has no stage \"%s\"%s", text,
                           pst_pipeline_hint(text, names, (size_t)pl->nstages, near));
        return false;
    }
    return find_port(ld, end, at, dot + 1);
}

/* A link that is left out is as if it were not in the file. */
static bool leave_out(const struct pst_link_spec *link, struct pst_pipeline_stage_spec *from,
                      struct pst_pipeline_stage_spec *to)
{
    from->linked &= ~(1u << link->from_port);
    to->linked &= ~(1u << link->to_port);
    return false;
}

/* "PARAM=VALUE" of a parameter of one of the two stages. */
static bool condition_of(struct pst_pipeline_loading *ld, const char *at, const char *text,
                         const struct pst_pipeline_stage_spec *from, const struct pst_pipeline_stage_spec *to)
{
    char why[200];
    if (strchr(text, '=') != NULL && pst_condition_check(text, from->caps.desc, why))
        return pst_condition_holds(text, from->params);
    if (strchr(text, '=') != NULL && pst_condition_check(text, to->caps.desc, why))
        return pst_condition_holds(text, to->params);
    pst_pipeline_error(
        ld, at,
        "expected \"gpu_memory\", \"never\", or \"PARAM=VALUE\" with a parameter of stage %s or "
        "%s, found \"%s\"",
        from->name, to->name, text);
    return false;
}

/* "when" says whether a link is used. "gpu_memory": only if the two stages can share slots in a GPU's own
 * memory. "PARAM=VALUE": only if a parameter of one of the stages has this value. "never": not at all, for
 * --set. */
static bool is_wanted(struct pst_pipeline_loading *ld, const json_t *j, const char *path,
                      const struct pst_link_spec *link)
{
    char text[PST_NAME_MAX], at[PATH_MAX_OF_MEMBER];
    if (!pst_pipeline_get_string(ld, j, path, "when", text, sizeof text))
        return true;
    (void)snprintf(at, sizeof at, "%s.when", path);
    if (link->from_port < 0 || link->to_port < 0)
        return false;
    struct pst_pipeline_stage_spec *from = &ld->pl->stages[link->from], *to = &ld->pl->stages[link->to];
    if (strcmp(text, "never") == 0)
        return leave_out(link, from, to);
    const bool holds = strcmp(text, "gpu_memory") == 0
                           ? pst_place_gpu_memory(from, to) || pst_place_gpu_memory(to, from)
                           : condition_of(ld, at, text, from, to);
    return holds || leave_out(link, from, to);
}

static void load_link(struct pst_pipeline_loading *ld, const json_t *j, size_t index)
{
    static const char *const keys[] = {"from", "to", "slots", "back", "when"};
    struct pst_pipeline *pl = ld->pl;
    char path[PATH_MAX_OF_LINK], at[PATH_MAX_OF_MEMBER];
    (void)snprintf(path, sizeof path, "links[%zu]", index);
    if (!json_is_object(j)) {
        pst_pipeline_error(
            ld, path, "expected an object, for example {\"from\": \"a.out\", \"to\": \"b.in\"}, found %s",
            pst_json_kind(j));
        return;
    }
    if (pl->nlinks == PST_PIPELINE_LINKS_MAX) {
        pst_pipeline_error(ld, path, "the pipeline has too many links: at most %d are allowed",
                           PST_PIPELINE_LINKS_MAX);
        return;
    }
    pst_pipeline_check_keys(ld, j, path, keys, sizeof keys / sizeof keys[0]);
    const json_t *back = json_object_get(j, "back");
    (void)snprintf(at, sizeof at, "%s.back", path);
    if (back && !json_is_boolean(back))
        pst_pipeline_error(ld, at, "expected true or false, found %s", pst_json_kind(back));
    const bool optional = json_object_get(j, "when") != NULL;
    struct end from = {.key = "from", .dir = PST_OUT, .optional = optional};
    struct end to = {.key = "to", .dir = PST_IN, .optional = optional};
    const bool has_from = find_end(ld, j, path, &from), has_to = find_end(ld, j, path, &to);
    const struct pst_link_spec link = {
        .from = from.stage,
        .from_port = has_from ? from.port : -1,
        .to = to.stage,
        .to_port = has_to ? to.port : -1,
        .slots = (int)pst_pipeline_get_int(ld, j, path, "slots", 0, 1, PST_SLOTS_MAX),
        .back = json_is_true(back),
        .index = (int)index};
    const bool wanted = is_wanted(ld, j, path, &link);
    if (has_from && has_to && wanted)
        pl->links[pl->nlinks++] = link;
}

void pst_pipeline_load_links(struct pst_pipeline_loading *ld)
{
    const json_t *links = json_object_get(ld->pl->doc.root, "links");
    if (links && !json_is_array(links)) {
        pst_pipeline_error(ld, "links", "expected a list, found %s", pst_json_kind(links));
        return;
    }
    size_t i;
    json_t *j;
    json_array_foreach(links, i, j)
    {
        load_link(ld, j, i);
    }
}
