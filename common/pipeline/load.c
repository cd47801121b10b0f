/* load.c: loads a pipeline file: the top level, and what all its parts use. */
#include <math.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/pipeline/json/diag.h"
#include "common/pipeline/graph.h"
#include "common/pipeline/load_impl.h"
#include "common/pipeline/place.h"
#include "common/ipc/bus.h"
#include "common/ipc/gpus.h"
#include "common/util/install.h"

#define HELP_MAX 2048

/* ---- members of objects ---------------------------------------------------------------------- */

void pst_pipeline_error(struct pst_pipeline_loading *ld, const char *path, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pst_json_error(&ld->pl->doc, ld->diag, path, "%s", text);
}

const char *pst_pipeline_hint(const char *name, const char *const *names, size_t n,
                              char out[PST_PIPELINE_HINT_MAX])
{
    const char *near = pst_diag_nearest(name, names, n);
    out[0] = '\0';
    if (near)
        (void)snprintf(out, PST_PIPELINE_HINT_MAX, "; did you mean %.64s?", near);
    return out;
}

static void path_of(const char *base, const char *key, char out[PST_JSON_PATH_MAX])
{
    (void)snprintf(out, PST_JSON_PATH_MAX, "%s%s%s", base, base[0] ? "." : "", key);
}

void pst_pipeline_check_keys(struct pst_pipeline_loading *ld, const json_t *object, const char *path,
                             const char *const *names, size_t n)
{
    const char *key;
    json_t *value;
    char at[PST_JSON_PATH_MAX], near[PST_PIPELINE_HINT_MAX];
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(key, names[i]) == 0;
        path_of(path, key, at);
        if (!known)
            pst_pipeline_error(ld, at, "unknown key%s", pst_pipeline_hint(key, names, n, near));
    }
}

bool pst_pipeline_get_string(struct pst_pipeline_loading *ld, const json_t *object, const char *base,
                             const char *key, char *out, size_t cap)
{
    const json_t *value = json_object_get(object, key);
    char at[PST_JSON_PATH_MAX];
    out[0] = '\0';
    if (!value)
        return false;
    path_of(base, key, at);
    if (!json_is_string(value)) {
        pst_pipeline_error(ld, at, "expected a string, found %s", pst_json_kind(value));
        return false;
    }
    if ((size_t)snprintf(out, cap, "%s", json_string_value(value)) >= cap)
        pst_pipeline_error(ld, at, "the string is longer than %zu characters", cap - 1);
    return true;
}

int64_t pst_pipeline_get_int(struct pst_pipeline_loading *ld, const json_t *object, const char *base,
                             const char *key, int64_t def, int64_t min, int64_t max)
{
    const json_t *value = json_object_get(object, key);
    char at[PST_JSON_PATH_MAX];
    if (!value)
        return def;
    path_of(base, key, at);
    if (!json_is_integer(value)) {
        pst_pipeline_error(ld, at, "expected an integer, found %s", pst_json_kind(value));
        return def;
    }
    int64_t n = json_integer_value(value);
    if (n >= min && n <= max)
        return n;
    pst_pipeline_error(ld, at, "expected an integer from %lld to %lld, found %lld", (long long)min,
                       (long long)max, (long long)n);
    return def;
}

bool pst_pipeline_good_name(const char *name, size_t max)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t n = strlen(name);
    return n >= 1 && n <= max && strspn(name, letters) == n;
}

/* ---- the top level --------------------------------------------------------------------------- */

/* The name becomes a part of file names. Without one, it is made of the file's name. */
static void load_name(struct pst_pipeline_loading *ld)
{
    struct pst_pipeline *pl = ld->pl;
    if (pst_pipeline_get_string(ld, pl->doc.root, "", "name", pl->name, sizeof pl->name)) {
        if (!pst_pipeline_good_name(pl->name, PST_NAME_MAX - 1))
            pst_pipeline_error(ld, "name", "expected a name of 1 to %d letters, digits, _ or -, found \"%s\"",
                               PST_NAME_MAX - 1, pl->name);
        return;
    }
    const char *slash = strrchr(pl->doc.file, '/');
    (void)snprintf(pl->name, sizeof pl->name, "%.60s", slash ? slash + 1 : pl->doc.file);
    pl->name[strcspn(pl->name, ".")] = '\0';
    for (char *c = pl->name; *c; c++)
        *c = isalnum((unsigned char)*c) || strchr("_-", *c) ? *c : '_';
    if (!pl->name[0])
        (void)snprintf(pl->name, sizeof pl->name, "pipeline");
}

/* The run that tells `auto` what a batch takes, and the rate between two GPUs. */
static void load_measured(struct pst_pipeline_loading *ld, const json_t *place)
{
    struct pst_pipeline *pl = ld->pl;
    const json_t *rate = json_object_get(place, "link_bytes_per_s");
    const double given = json_is_number(rate) ? json_number_value(rate) : NAN;
    pl->link_bytes_per_s = rate ? given : PST_PIPELINE_LINK_RATE;
    if (rate && !(given >= PST_PIPELINE_LINK_RATE_MIN && given <= PST_PIPELINE_LINK_RATE_MAX))
        pst_pipeline_error(
            ld, "place.link_bytes_per_s",
            "expected the bytes that go from one GPU to another in a second, %g to %g, found %s",
            PST_PIPELINE_LINK_RATE_MIN, PST_PIPELINE_LINK_RATE_MAX,
            json_is_number(rate) ? "another number" : pst_json_kind(rate));
    if (!pst_pipeline_get_string(ld, place, "place", "measured", pl->measured, sizeof pl->measured))
        return;
    char *full = realpath(pl->measured, NULL);
    if (full)
        (void)snprintf(pl->measured, sizeof pl->measured, "%s", full);
    free(full);
}

static void load_device(struct pst_pipeline_loading *ld)
{
    static const char *const keys[] = {"device", "measured", "link_bytes_per_s"};
    struct pst_pipeline *pl = ld->pl;
    const json_t *place = json_object_get(pl->doc.root, "place");
    if (place && !json_is_object(place)) {
        pst_pipeline_error(ld, "place", "expected an object, for example {\"device\": \"auto\"}, found %s",
                           pst_json_kind(place));
        return;
    }
    pst_pipeline_check_keys(ld, place, "place", keys, sizeof keys / sizeof keys[0]);
    load_measured(ld, place);
    if (pst_pipeline_get_string(ld, place, "place", "device", pl->device, sizeof pl->device) &&
        !pl->device[0])
        pst_pipeline_error(ld, "place.device", "expected cpu:N, cuda:N or auto, found \"\"");
}

static void load_overlap(struct pst_pipeline_loading *ld)
{
    const json_t *overlap = json_object_get(ld->pl->doc.root, "overlap");
    if (overlap && !json_is_boolean(overlap))
        pst_pipeline_error(ld, "overlap", "expected true or false, found %s", pst_json_kind(overlap));
    ld->pl->overlap = !json_is_false(overlap);
}

static void load_stop(struct pst_pipeline_loading *ld)
{
    static const char *const keys[] = {"metric", "patience"};
    struct pst_pipeline *pl = ld->pl;
    const json_t *stop = json_object_get(pl->doc.root, "stop");
    if (!stop)
        return;
    if (!json_is_object(stop)) {
        pst_pipeline_error(
            ld, "stop",
            "expected an object, for example {\"metric\": \"val_accuracy\", \"patience\": 10}, found %s",
            pst_json_kind(stop));
        return;
    }
    pst_pipeline_check_keys(ld, stop, "stop", keys, 2);
    pl->stop_patience = pst_pipeline_get_int(ld, stop, "stop", "patience", 10, 1, PST_PIPELINE_EPOCHS_MAX);
    if (!pst_pipeline_get_string(ld, stop, "stop", "metric", pl->stop_metric, sizeof pl->stop_metric))
        (void)snprintf(pl->stop_metric, sizeof pl->stop_metric, "val_accuracy");
    if (!pst_pipeline_good_name(pl->stop_metric, PST_NAME_MAX - 1))
        pst_pipeline_error(ld, "stop.metric",
                           "expected the name of a column of the report's epochs, such as val_accuracy or "
                           "loss, found \"%s\"",
                           pl->stop_metric);
}

static double bus_number(struct pst_pipeline_loading *ld, const json_t *bus, const char *key, double def)
{
    const json_t *value = json_object_get(bus, key);
    char path[32];
    if (value == NULL && def > 0)
        return def;
    if (json_is_number(value))
        return json_number_value(value);
    (void)snprintf(path, sizeof path, "bus.%s", key);
    pst_pipeline_error(ld, path, "expected a number, found %s", value ? pst_json_kind(value) : "nothing");
    return NAN;
}

/* The modelled bus delays copies by the CPU only. */
static void check_bus_device(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage)
{
    char path[PST_NAME_MAX + 32];
    if (pst_gpu_number(stage->device) < 0)
        return;
    (void)snprintf(path, sizeof path, "stages.%s.place.device", stage->name);
    pst_pipeline_error(
        ld, path,
        "%s has a real bus, so the pipeline cannot model one: remove \"bus\", or place all stages on a CPU",
        stage->device);
}

/* The emulated drives and the bus are parts of one machine, so they are slower by the same factor. */
static void check_bus_stages(struct pst_pipeline_loading *ld)
{
    const struct pst_pipeline *pl = ld->pl;
    for (int s = 0; s < pl->nstages && pl->bus_bytes_per_s > 0; s++) {
        const json_t *params = pl->stages[s].params, *dilate = json_object_get(params, "dilate");
        const char *backend = json_string_value(json_object_get(params, "backend"));
        const double found = json_is_number(dilate) ? json_number_value(dilate) : 1;
        char path[PST_NAME_MAX + 32];
        check_bus_device(ld, &pl->stages[s]);
        if (backend == NULL || strcmp(backend, "emulated") != 0 || found == pl->bus_dilate)
            continue;
        (void)snprintf(path, sizeof path, "stages.%s.params.dilate", pl->stages[s].name);
        pst_pipeline_error(ld, path,
                           "expected %g, as in bus.dilate, found %g: emulated drives and the modelled bus "
                           "must be slowed by the same factor",
                           pl->bus_dilate, found);
    }
}

static void load_bus(struct pst_pipeline_loading *ld)
{
    static const char *const keys[] = {"bytes_per_s", "dilate"};
    const json_t *bus = json_object_get(ld->pl->doc.root, "bus");
    if (bus == NULL)
        return;
    if (!json_is_object(bus)) {
        pst_pipeline_error(ld, "bus",
                           "expected an object, for example {\"bytes_per_s\": 24e9, \"dilate\": 200}, "
                           "found %s",
                           pst_json_kind(bus));
        return;
    }
    pst_pipeline_check_keys(ld, bus, "bus", keys, 2);
    const double rate = bus_number(ld, bus, "bytes_per_s", 0), dilate = bus_number(ld, bus, "dilate", 1);
    if (isnan(rate) || isnan(dilate))
        return;
    if (!(dilate >= 1 && dilate <= PST_PIPELINE_BUS_DILATE_MAX))
        pst_pipeline_error(ld, "bus.dilate", "expected 1 to %g, found %g", PST_PIPELINE_BUS_DILATE_MAX,
                           dilate);
    else if (!(rate / dilate >= PST_BUS_RATE_MIN && rate <= PST_BUS_RATE_MAX))
        pst_pipeline_error(ld, "bus.bytes_per_s", "expected %g to %g (at least %g times dilate), found %g",
                           PST_BUS_RATE_MIN * dilate, PST_BUS_RATE_MAX, PST_BUS_RATE_MIN, rate);
    else {
        ld->pl->bus_bytes_per_s = rate;
        ld->pl->bus_dilate = dilate;
    }
}

static void load_head(struct pst_pipeline_loading *ld)
{
    static const char *const keys[] = {"$schema", "penstock", "name",   "help",     "dataset",
                                       "seed",    "epochs",   "stop",   "overlap",  "bus",
                                       "params",  "place",    "stages", "replicas", "links"};
    struct pst_pipeline *pl = ld->pl;
    json_t *root = pl->doc.root;
    char help[HELP_MAX], schema[PST_PATH_MAX];
    pst_pipeline_check_keys(ld, root, "", keys, sizeof keys / sizeof keys[0]);
    if (!json_object_get(root, "penstock"))
        pst_pipeline_error(ld, "", "\"penstock\" is missing: set it to 1, the version of the file format");
    (void)pst_pipeline_get_int(ld, root, "", "penstock", 1, 1, 1);
    load_name(ld);
    (void)pst_pipeline_get_string(ld, root, "", "$schema", schema, sizeof schema); /* for editors */
    (void)pst_pipeline_get_string(ld, root, "", "help", help, sizeof help);
    (void)pst_pipeline_get_string(ld, root, "", "dataset", pl->dataset, sizeof pl->dataset);
    pl->seed = (uint64_t)pst_pipeline_get_int(ld, root, "", "seed", 1, 0, INT64_MAX);
    pl->epochs = pst_pipeline_get_int(ld, root, "", "epochs", 1, 1, PST_PIPELINE_EPOCHS_MAX);
    load_stop(ld);
    load_overlap(ld);
    load_bus(ld);
    load_device(ld);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void set_base_dir(struct pst_pipeline *pl, const char *file)
{
    (void)snprintf(pl->base_dir, sizeof pl->base_dir, "%s", file);
    char *slash = strrchr(pl->base_dir, '/');
    if (slash)
        *slash = '\0';
    else
        (void)snprintf(pl->base_dir, sizeof pl->base_dir, ".");
}

/* A name that is neither a path nor a file here can be that of an installed pipeline. */
static const char *find_file(const char *given, char installed[PST_PATH_MAX])
{
    return strchr(given, '/') == NULL && access(given, F_OK) != 0 &&
                   pst_install_pipeline_path(given, installed)
               ? installed
               : given;
}

bool pst_pipeline_load(struct pst_pipeline *pl, const char *file, const struct pst_pipeline_options *options,
                       struct pst_diag *diag)
{
    char installed[PST_PATH_MAX];
    file = find_file(file, installed);
    memset(pl, 0, sizeof *pl);
    pl->ranks = options->ranks > 1 ? options->ranks : 1;
    /* with room for copies between devices */
    pl->stages = calloc(PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX, sizeof *pl->stages);
    pl->links = calloc(2 * (size_t)PST_PIPELINE_LINKS_MAX, sizeof *pl->links);
    if (!pl->stages || !pl->links) {
        pst_diag_add(diag, file, 0, NULL, "out of memory");
        return false;
    }
    set_base_dir(pl, file);
    if (!pst_json_load(&pl->doc, file, diag))
        return false;
    for (int i = 0; i < options->noverlays; i++)
        if (!pst_json_overlay(&pl->doc, options->overlays[i], diag))
            return false;
    for (int i = 0; i < options->nsets; i++)
        (void)pst_json_set(&pl->doc, options->sets[i], diag);
    struct pst_pipeline_loading ld = {pl, diag, options->group_all};
    load_head(&ld);
    pst_pipeline_load_stages(&ld);
    pst_pipeline_load_replicas(&ld);
    pst_place_pair(pl, diag);
    pst_pipeline_check_devices(&ld);
    check_bus_stages(&ld);
    pst_pipeline_load_links(&ld);
    pst_place_move_unlinked(pl);
    pst_graph_check(pl, diag);
    pst_pipeline_replicate(&ld);
    return diag->count == 0;
}
