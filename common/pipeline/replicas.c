/* replicas.c: the member "replicas" of a pipeline file: a set of stages that is made once for each place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"
#include "common/pipeline/graph_impl.h"
#include "common/pipeline/load_impl.h"
#include "common/pipeline/place.h"

#define PATH_MAX_OF_PLACE 64 /* bytes of "replicas.places[N]" */

/* One element of "places". */
struct place {
    char device[PST_PIPELINE_DEVICE_MAX];
    char cores[PST_NAME_MAX]; /* empty: those of the stage */
};

/* ---- places ---------------------------------------------------------------------------------- */

/* A device, or an object with a device and cores. False, after an error: something else. */
static bool read_place(struct pst_pipeline_loading *ld, const json_t *j, const char *at, struct place *place)
{
    static const char *const keys[] = {"device", "cores"};
    *place = (struct place){.cores = ""};
    if (json_is_string(j)) {
        (void)snprintf(place->device, sizeof place->device, "%s", json_string_value(j));
        return true;
    }
    if (!json_is_object(j)) {
        pst_pipeline_error(ld, at,
                           "expected a device, for example \"cpu:1\", or an object, for example "
                           "{\"device\": \"cpu:1\", \"cores\": \"0\"}, found %s",
                           pst_json_kind(j));
        return false;
    }
    pst_pipeline_check_keys(ld, j, at, keys, sizeof keys / sizeof keys[0]);
    (void)pst_pipeline_get_string(ld, j, at, "cores", place->cores, sizeof place->cores);
    pst_place_cores(ld->pl, ld->diag, at, place->cores);
    if (pst_pipeline_get_string(ld, j, at, "device", place->device, sizeof place->device))
        return true;
    pst_pipeline_error(ld, at, "\"device\" is missing: expected cpu:N or cuda:N");
    return false;
}

/* Against the places before it. */
static bool check_place(struct pst_pipeline_loading *ld, const struct place *places, size_t i, const char *at)
{
    const struct place *place = &places[i];
    if (!pst_place_names_device(place->device)) {
        pst_pipeline_error(ld, at, "expected cpu:N or cuda:N (N from 0 to %d), found \"%s\"",
                           PST_PIPELINE_DEVICES_MAX - 1, place->device);
        return false;
    }
    for (size_t k = 0; k < i; k++) {
        if (strcmp(places[k].device, place->device) == 0) {
            pst_pipeline_error(ld, at,
                               "%s is also replicas.places[%zu]: each replica needs a device of its own",
                               place->device, k);
            return false;
        }
    }
    if (strncmp(place->device, places[0].device, 3) == 0)
        return true;
    pst_pipeline_error(ld, at,
                       "%s is another kind of device than replicas.places[0], %s: CPUs and GPUs round "
                       "differently, so the replicas' weights would differ; use only CPUs or only GPUs",
                       place->device, places[0].device);
    return false;
}

static size_t load_places(struct pst_pipeline_loading *ld, const json_t *list, struct place *places)
{
    char at[PATH_MAX_OF_PLACE];
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n < 1 || n > PST_REPLICAS_MAX) {
        pst_pipeline_error(ld, "replicas.places", "expected a list of 1 to %d places, found %s",
                           PST_REPLICAS_MAX,
                           !list                  ? "nothing"
                           : !json_is_array(list) ? pst_json_kind(list)
                           : n < 1                ? "an empty list"
                                                  : "a longer list");
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(at, sizeof at, "replicas.places[%zu]", i);
        if (!read_place(ld, json_array_get(list, i), at, &places[i]) || !check_place(ld, places, i, at))
            return 0;
    }
    if (n * (size_t)ld->pl->ranks <= PST_REPLICAS_MAX)
        return n;
    pst_pipeline_error(ld, "replicas.places",
                       "%zu places on each of %d ranks make %zu replicas; expected at most %d", n,
                       ld->pl->ranks, n * (size_t)ld->pl->ranks, PST_REPLICAS_MAX);
    return 0;
}

/* ---- the set of stages ----------------------------------------------------------------------- */

/* Gives a stage a place. If a stage cannot run on the place's GPU, it runs on cpu:0. */
static void put(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage,
                const struct place *places, int replica)
{
    char path[PATH_MAX_OF_PLACE], why[PST_PLACE_WHY_MAX];
    const struct place *place = &places[replica];
    if (place->cores[0])
        (void)memcpy(stage->cores, place->cores, sizeof stage->cores);
    if (!stage->caps.desc)
        return; /* reported before */
    const bool there = strncmp(place->device, "cpu:", 4) == 0 || pst_place_stage_on_gpu(stage, why);
    stage->chosen[0] = '\0';
    stage->own_device = false;
    (void)snprintf(stage->device, sizeof stage->device, "%s", there ? place->device : "cpu:0");
    (void)snprintf(path, sizeof path, "replicas.places[%d]", replica);
    (void)pst_place_device_at(ld->pl, ld->diag, path, stage);
}

static void check_divided(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                          size_t places)
{
    const size_t replicas = places * (size_t)ld->pl->ranks;
    char path[PST_JSON_PATH_MAX];
    for (const struct pst_param_desc *p = stage->caps.desc->params; p && p->name; p++) {
        const json_int_t value = json_integer_value(json_object_get(stage->params, p->name));
        if (!p->divided || value % (json_int_t)replicas == 0)
            continue;
        pst_pipeline_param_path(ld->pl, stage->name, p->name, path);
        pst_pipeline_error(ld, path,
                           "%s is %lld, and %zu replicas cannot divide it equally: expected a multiple of "
                           "the number of replicas (the length of replicas.places%s)",
                           p->name, (long long)value, replicas,
                           ld->pl->ranks > 1 ? ", times the number of ranks" : "");
    }
}

/* Can there be replicas of this stage? */
static void check_stage(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                        const char *at, size_t replicas)
{
    char path[PST_JSON_PATH_MAX];
    const json_t *stages = json_object_get(ld->pl->doc.root, "stages");
    const json_t *place = json_object_get(json_object_get(stages, stage->name), "place");
    (void)snprintf(path, sizeof path, "stages.%s.place.device", stage->name);
    if (json_object_get(place, "device"))
        pst_pipeline_error(ld, path,
                           "replicas.places says where the replicas of stage %s run: remove \"device\"",
                           stage->name);
    if (stage->caps.desc && stage->caps.desc->replicas == PST_REPLICAS_NONE)
        pst_pipeline_error(
            ld, at,
            "%s cannot have replicas, because it cannot share work with them: remove it from replicas.stages",
            stage->caps.desc->name);
    else if (stage->caps.desc)
        check_divided(ld, stage, replicas);
}

static void load_stage(struct pst_pipeline_loading *ld, const json_t *j, const char *at,
                       const struct place *places, size_t replicas)
{
    struct pst_pipeline *pl = ld->pl;
    const char *names[PST_STAGES_MAX], *name = json_string_value(j);
    char near[PST_PIPELINE_HINT_MAX];
    for (int i = 0; i < pl->nstages; i++)
        names[i] = pl->stages[i].name;
    const int s = name ? pst_pipeline_stage(pl, name) : -1;
    if (!name)
        pst_pipeline_error(ld, at, "expected the name of a stage, found %s", pst_json_kind(j));
    else if (s < 0)
        pst_pipeline_error(ld, at, "the pipeline has no stage \"%s\"%s", name,
                           pst_pipeline_hint(name, names, (size_t)pl->nstages, near));
    else if (pl->stages[s].replicas > 0)
        pst_pipeline_error(ld, at, "stage %s is in the list twice", name);
    else {
        check_stage(ld, &pl->stages[s], at, replicas);
        pl->stages[s].replicas = (int)replicas;
        put(ld, &pl->stages[s], places, 0);
    }
}

void pst_pipeline_load_replicas(struct pst_pipeline_loading *ld)
{
    static const char *const keys[] = {"stages", "places"};
    const json_t *j = json_object_get(ld->pl->doc.root, "replicas"), *stages = json_object_get(j, "stages");
    struct place places[PST_REPLICAS_MAX];
    char at[PATH_MAX_OF_PLACE];
    if (!j && ld->pl->ranks > 1)
        pst_pipeline_error(
            ld, "replicas",
            "%d ranks were started, but the pipeline has no replicas, which ranks share: expected "
            "for example {\"stages\": [\"sampler\", \"disk\", \"trainer\"], \"places\": "
            "[\"cpu:0\"]}; each rank has a replica for each place",
            ld->pl->ranks);
    if (!j)
        return;
    if (!json_is_object(j)) {
        pst_pipeline_error(ld, "replicas",
                           "expected an object, for example {\"stages\": [\"sampler\", \"trainer\"], "
                           "\"places\": [\"cpu:1\", \"cpu:2\"]}, found %s",
                           pst_json_kind(j));
        return;
    }
    pst_pipeline_check_keys(ld, j, "replicas", keys, sizeof keys / sizeof keys[0]);
    const size_t n = load_places(ld, json_object_get(j, "places"), places);
    if (!json_is_array(stages) || json_array_size(stages) == 0)
        pst_pipeline_error(ld, "replicas.stages", "expected a list of stages, found %s",
                           !stages                 ? "nothing"
                           : json_is_array(stages) ? "an empty list"
                                                   : pst_json_kind(stages));
    for (size_t i = 0; i < json_array_size(stages) && n > 0; i++) {
        (void)snprintf(at, sizeof at, "replicas.stages[%zu]", i);
        load_stage(ld, json_array_get(stages, i), at, places, n);
    }
}

/* ---- making the replicas --------------------------------------------------------------------- */

/* Are all stages of this stage's group replicated? Then each replica has a group of its own. */
static bool has_own_group(const struct pst_pipeline *pl, const struct pst_pipeline_stage_spec *stage)
{
    bool own = stage->group[0] != '\0';
    for (int s = 0; s < pl->nstages; s++)
        own = own && (strcmp(pl->stages[s].group, stage->group) != 0 || pl->stages[s].replicas > 0);
    return own;
}

/* Makes *copy the replica of a stage. */
static bool replicate_stage(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                            const struct place *places, int replica, struct pst_pipeline_stage_spec *copy)
{
    *copy = *stage;
    memset(&copy->caps, 0, sizeof copy->caps);
    copy->params = json_incref(stage->params);
    copy->replica = replica;
    (void)snprintf(copy->name, sizeof copy->name, "%.50s.%d", stage->origin, replica);
    if (!ld->group_all && has_own_group(ld->pl, stage))
        (void)snprintf(copy->group, sizeof copy->group, "%.50s.%d", stage->group, replica);
    if (pst_caps_load(&copy->caps, stage->caps.run, ld->pl->base_dir) != PST_OK) {
        pst_pipeline_error(ld, "replicas", "%s", pst_error_text());
        return false;
    }
    put(ld, copy, places, replica);
    return true;
}

/* The links of each replica. first[s]: where stage s, or its first replica, has moved to. */
static void replicate_links(struct pst_pipeline *pl, const struct pst_pipeline_stage_spec *old,
                            const int *first, struct pst_link_spec *links, int *n)
{
    *n = 0;
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        const int from = old[link->from].replicas, to = old[link->to].replicas;
        for (int r = 0; r < (to > 0 ? to : 1); r++) {
            struct pst_link_spec *made = &links[(*n)++];
            *made = *link;
            made->from = first[link->from] + (from > 0 ? r : 0);
            made->to = first[link->to] + r;
        }
    }
}

/* Slots may enter the set from outside, to each replica. An input outside would get several links. */
static bool check_leaving(struct pst_pipeline_loading *ld, int *links)
{
    const struct pst_pipeline *pl = ld->pl;
    bool fits = true;
    *links = 0;
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        const struct pst_pipeline_stage_spec *from = &pl->stages[link->from], *to = &pl->stages[link->to];
        *links += to->replicas > 0 ? to->replicas : 1;
        if (from->replicas == 0 || to->replicas > 0)
            continue;
        pst_link_error(pl, ld->diag, link, "",
                       "stage %s has replicas, but stage %s, which gets their slots, has none: add %s to "
                       "replicas.stages",
                       from->name, to->name, to->name);
        fits = false;
    }
    return fits;
}

/* With several ranks, only replicas know which share of the work is theirs. */
static bool check_ranks(struct pst_pipeline_loading *ld)
{
    const struct pst_pipeline *pl = ld->pl;
    bool meet = false;
    for (int s = 0; s < pl->nstages; s++)
        meet = meet || (pl->stages[s].replicas > 0 && pl->stages[s].caps.desc->replicas == PST_REPLICAS_MEET);
    if (pl->ranks > 1 && !meet)
        pst_pipeline_error(
            ld, "replicas.stages",
            "%d ranks were started, but no stage of the list exchanges data with its replicas: "
            "add the trainer",
            pl->ranks);
    for (int l = 0; l < pl->nlinks && pl->ranks > 1; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        const struct pst_pipeline_stage_spec *from = &pl->stages[link->from];
        if (from->replicas > 0 || pst_link_oneshot(pl, link))
            continue;
        pst_link_error(pl, ld->diag, link, "",
                       "%d ranks were started, and each would have a stage %s that works on all batches: add "
                       "%s to replicas.stages",
                       pl->ranks, from->name, from->name);
    }
    return ld->diag->count == 0;
}

static bool check_room(struct pst_pipeline_loading *ld, int stages, int links)
{
    if (stages <= PST_STAGES_MAX && links <= PST_PIPELINE_LINKS_MAX)
        return true;
    pst_pipeline_error(ld, "replicas",
                       "with all replicas, the pipeline has %d stages and %d links, but at most %d stages "
                       "and %d links are allowed: remove places",
                       stages, links, PST_STAGES_MAX, PST_PIPELINE_LINKS_MAX);
    return false;
}

/* Replaces each stage of the set by its replicas, which come in a row. */
static bool replicate(struct pst_pipeline_loading *ld, const struct place *places,
                      struct pst_pipeline_stage_spec *old, struct pst_link_spec *links)
{
    struct pst_pipeline *pl = ld->pl;
    const int nold = pl->nstages;
    int first[PST_STAGES_MAX], n = 0, nlinks;
    bool made = true;
    memcpy(old, pl->stages, (size_t)nold * sizeof *old);
    struct pst_pipeline_stage_spec *new = calloc(PST_STAGES_MAX, sizeof *new);
    for (int s = 0; s < nold && new; s++) {
        first[s] = n;
        for (int r = 0; r < old[s].replicas; r++)
            made = replicate_stage(ld, &old[s], places, r, &new[n++]) && made;
        if (old[s].replicas == 0)
            new[n++] = old[s];
    }
    if (!new) {
        pst_pipeline_error(ld, "replicas", "out of memory");
        return false;
    }
    for (int s = 0; s < nold; s++) {
        if (old[s].replicas == 0)
            continue;
        pst_caps_release(&old[s].caps);
        json_decref(old[s].params);
    }
    memcpy(pl->stages, new, (size_t)n * sizeof *new);
    free(new);
    pl->nstages = n;
    replicate_links(pl, old, first, links, &nlinks);
    memcpy(pl->links, links, (size_t)nlinks * sizeof *links);
    pl->nlinks = nlinks;
    return made;
}

void pst_pipeline_replicate(struct pst_pipeline_loading *ld)
{
    struct pst_pipeline *pl = ld->pl;
    const json_t *list = json_object_get(json_object_get(pl->doc.root, "replicas"), "places");
    struct place places[PST_REPLICAS_MAX];
    int stages = 0, links;
    if (ld->diag->count > 0 || !list || load_places(ld, list, places) == 0)
        return;
    for (int s = 0; s < pl->nstages; s++)
        stages += pl->stages[s].replicas > 0 ? pl->stages[s].replicas : 1;
    if (!check_leaving(ld, &links) || !check_ranks(ld) || !check_room(ld, stages, links))
        return;
    struct pst_pipeline_stage_spec *old = calloc(PST_STAGES_MAX, sizeof *old);
    struct pst_link_spec *copies = calloc(PST_PIPELINE_LINKS_MAX, sizeof *copies);
    if (!old || !copies)
        pst_pipeline_error(ld, "replicas", "out of memory");
    else if (replicate(ld, places, old, copies))
        pst_graph_check(pl, ld->diag);
    free(old);
    free(copies);
}
