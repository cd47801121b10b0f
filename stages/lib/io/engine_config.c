/* engine_config.c: the engine's configuration: which arrays requests may name, in which files they lie, its
 * limits, and how many commands may be in flight. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/nvme/emulated/emulated.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/io/drives.h"
#include "stages/lib/io/engine_impl.h"

#define FILE_DEPTH 128  /* of files: enough for one fast SSD behind the kernel */
#define DRIVE_DEPTH 256 /* of a real drive: 700,000 IOPS at 324 us (980 Pro, GIDS section 4.2) need 227 */
#define OPERATIONS_MAX 4096
#define STAGING_MAX (256ull << 20) /* bytes of all operations together */
/* the share of a command's timeout in which the drives must be able to serve all that is in flight */
#define TIMEOUT_SHARE 4

static_assert((int)PST_ARRAY_COUNT <= PST_REQUEST_OF_TYPE(PST_ROWS_TYPES_MAX - 1) &&
                  (int)PST_ARRAY_COUNT + PST_DATASET_FEATURE_FILES_MAX - 1 <= PST_REQUEST_FILES_MAX,
              "a request can name every array, and there is room for their files");

static void add_named(struct pst_disk_config *c, unsigned id, const char *name, const char *const *paths,
                      uint32_t n, uint64_t data_at, uint64_t rows, uint64_t row_bytes, uint64_t wanted_bytes)
{
    assert(n >= 1 && c->nfiles + n <= PST_REQUEST_FILES_MAX && row_bytes > 0);
    if (rows == 0)
        return;
    c->arrays[id] = (struct pst_request_array){
        .rows = rows,
        .wanted_bytes = wanted_bytes,
        .rows_in = {.unit = row_bytes, .base = data_at, .first = c->nfiles, .over = n}};
    c->names[id] = name;
    for (uint32_t k = 0; k < n; k++)
        c->paths[c->nfiles++] = paths[k];
}

void pst_disk_config_add(struct pst_disk_config *c, enum pst_array_id id, const char *const *paths,
                         uint32_t n, uint64_t data_at, uint64_t rows, uint64_t row_bytes,
                         uint64_t wanted_bytes)
{
    add_named(c, id, pst_array_id_name(id), paths, n, data_at, rows, row_bytes, wanted_bytes);
}

pst_rc pst_disk_config_add_run(struct pst_disk_config *c, const char *name, const char *path,
                               uint64_t row_bytes)
{
    struct stat st;
    uint32_t number = PST_ARRAY_COUNT;
    while (number < PST_REQUEST_ARRAYS_MAX && c->names[number] != NULL)
        number++;
    if (number == PST_REQUEST_ARRAYS_MAX || c->nfiles == PST_REQUEST_FILES_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "cannot add the array %s: a run can have at most %d arrays of its own (parameter arrays)", name,
            PST_REQUEST_ARRAYS_MAX - PST_ARRAY_COUNT);
    if (stat(path, &st) != 0)
        return pst_fail_errno("the array %s of the run: %s", name, path);
    if (st.st_size <= 0 || (uint64_t)st.st_size % row_bytes != 0)
        return pst_fail(PST_E_FORMAT,
                        "the array %s of the run: the size of %s must be a multiple of %llu bytes, the size "
                        "of a row, but is %lld bytes",
                        name, path, (unsigned long long)row_bytes, (long long)st.st_size);
    c->arrays[number] =
        (struct pst_request_array){.rows = (uint64_t)st.st_size / row_bytes,
                                   .wanted_bytes = row_bytes,
                                   .writable = true,
                                   .rows_in = {.unit = row_bytes, .first = c->nfiles, .over = 1}};
    c->names[number] = name;
    c->writable_files[c->nfiles] = true;
    c->paths[c->nfiles++] = path;
    return PST_OK;
}

static uint64_t row_bytes(const struct pst_array *array)
{
    return pst_dtype_bytes(array->dtype) * (array->rank == 2 ? (uint64_t)array->shape[1] : 1);
}

bool pst_disk_on_drives(const struct pst_disk_config *c)
{
    return strcmp(c->backend, pst_io_nvme_ops.name) == 0 || pst_io_drives_stored(c->backend, &c->nvme);
}

static void add_features(struct pst_disk_config *c, const struct pst_dataset *ds)
{
    const char *paths[PST_DATASET_FEATURE_FILES_MAX];
    const int files = pst_feature_files(ds);
    for (int k = 0; k < files; k++)
        paths[k] = pst_feature_file(ds, k)->path;
    pst_disk_config_add(c, PST_ARRAY_FEATURES, paths, pst_disk_on_drives(c) ? 1 : (uint32_t)files,
                        ds->features.data_at, (uint64_t)ds->features.shape[0], ds->stride_bytes,
                        (uint64_t)ds->feature_dim * pst_dtype_bytes(ds->features.dtype));
}

/* The features of each type, as far as requests can name them. */
static void add_types(struct pst_disk_config *c, const struct pst_dataset *ds)
{
    c->types = ds->vertex_types < PST_ROWS_TYPES_MAX ? ds->vertex_types : PST_ROWS_TYPES_MAX;
    for (int k = 0; k < c->types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        if (t->feature_dim > 0)
            add_named(c, (unsigned)PST_REQUEST_OF_TYPE(k), t->name, (const char *const[]){t->features.path},
                      1, t->features.data_at, (uint64_t)t->vertices, t->stride_bytes,
                      (uint64_t)t->feature_dim * pst_dtype_bytes(t->features.dtype));
    }
}

void pst_disk_config_add_all(struct pst_disk_config *c, const struct pst_dataset *ds)
{
    if (pst_io_drives_stored(c->backend, &c->nvme) && c->nvme.ssds == 1)
        c->nvme.ssds = pst_io_drives_listed(&c->nvme);
    /* features first: then they are in namespace 1 of emulated drives, as on real drives */
    if (ds->features.path[0] != '\0')
        add_features(c, ds);
    add_types(c, ds);
    for (unsigned id = 0; id < PST_ARRAY_COUNT; id++) {
        const struct pst_array *a =
            pst_manifest_dataset_array((struct pst_dataset *)ds, (enum pst_array_id)id);
        if (a->path[0] != '\0' && id != PST_ARRAY_FEATURES)
            pst_disk_config_add(c, (enum pst_array_id)id, (const char *const[]){a->path}, 1, a->data_at,
                                (uint64_t)a->shape[0], row_bytes(a), row_bytes(a));
    }
}

pst_rc pst_disk_config_check(const struct pst_disk_config *c)
{
    const uint64_t most = 1ull << PST_REQUEST_AT_BITS;
    for (unsigned id = 0; id < PST_REQUEST_ARRAYS_MAX; id++) {
        const struct pst_request_array *a = &c->arrays[id];
        uint64_t end;
        if (a->rows > 0 && (__builtin_mul_overflow(a->rows, a->rows_in.unit, &end) || end > most ||
                            a->rows_in.base > most - end))
            return pst_fail(PST_E_LIMIT,
                            "the array %s has %llu rows of %llu bytes, which is too large: the disk stage "
                            "reads at most 128 PiB",
                            c->names[id], (unsigned long long)a->rows, (unsigned long long)a->rows_in.unit);
    }
    if (c->gap_bytes > PST_DISK_COALESCE_MAX)
        return pst_fail(PST_E_ARG, "gap_bytes is %llu; expected at most %u", (unsigned long long)c->gap_bytes,
                        PST_DISK_COALESCE_MAX);
    if (c->coalesce_bytes < 1 || c->coalesce_bytes > PST_DISK_COALESCE_MAX)
        return pst_fail(PST_E_ARG, "coalesce_bytes is %llu; expected 1 to %u",
                        (unsigned long long)c->coalesce_bytes, PST_DISK_COALESCE_MAX);
    return PST_OK;
}

/* ---- depth ---------------------------------------------------------------------------------------- */

/* The model of one emulated drive; all 0 if the configuration cannot be read. Then opening the drives says
 * why. */
static struct pst_nvme_emulated_speed speed_of(const struct pst_io_nvme_config *c)
{
    struct pst_nvme_emulated_speed speed = {0};
    json_t *more = c->emulated != NULL ? json_loads(c->emulated, 0, NULL) : NULL;
    json_t *whole = json_pack("{ss, sf}", "preset", c->preset, "dilate", c->dilate);
    if (more != NULL)
        (void)json_object_update(whole, more);
    char *text = json_dumps(whole, 0);
    if (text == NULL || pst_nvme_emulated_speed_of(&speed, text) != PST_OK)
        speed = (struct pst_nvme_emulated_speed){0};
    free(text);
    json_decref(whole);
    json_decref(more);
    return speed;
}

/* Little's law: drives of so many IOPS are busy with IOPS x latency commands in flight. */
static void find_needed(const struct pst_io_nvme_config *c, struct pst_disk_depth *depth,
                        double *commands_max)
{
    const struct pst_nvme_emulated_speed speed = speed_of(c);
    const double iops = c->ssds * speed.iops;
    if (iops <= 0 || speed.latency_s <= 0) {
        (void)snprintf(depth->why, sizeof depth->why, "the emulated drives have no model of speed");
        return;
    }
    depth->needed = (uint32_t)fmin(ceil(iops * speed.latency_s * (1 - 1e-9)), 1e9);
    *commands_max = fmax(1, iops * c->timeout_ms * 1e-3 / TIMEOUT_SHARE);
    (void)snprintf(depth->why, sizeof depth->why, "%u drive%s x %.0f IOPS x %.0f us", c->ssds,
                   c->ssds > 1 ? "s" : "", speed.iops * c->dilate, speed.latency_s * 1e6 / c->dilate);
}

struct pst_disk_depth pst_disk_depth_choose(const struct pst_disk_config *c)
{
    struct pst_disk_depth depth = {.operations = FILE_DEPTH, .automatic = c->depth == PST_AUTO};
    const bool emulated = strcmp(c->backend, pst_io_emulated_ops.name) == 0;
    const bool nvme = strcmp(c->backend, pst_io_nvme_ops.name) == 0;
    double commands_max = 0;
    (void)snprintf(depth.why, sizeof depth.why, "the default for files");
    if (emulated)
        find_needed(&c->nvme, &depth, &commands_max);
    if (nvme) {
        depth.needed = DRIVE_DEPTH * pst_io_drives_listed(&c->nvme);
        (void)snprintf(depth.why, sizeof depth.why, "%u for each drive", DRIVE_DEPTH);
    }
    if (!depth.automatic) {
        depth.operations = c->depth;
        depth.commands = (uint32_t)c->depth;
        (void)snprintf(depth.why, sizeof depth.why, "the parameter depth");
        return depth;
    }
    /* the next wave is sent when half of the last one has ended */
    const uint64_t wanted = 2ull * depth.needed, room = STAGING_MAX / c->coalesce_bytes;
    const uint64_t most = room < OPERATIONS_MAX ? room : OPERATIONS_MAX;
    if (wanted > FILE_DEPTH)
        depth.operations = (int)(wanted < most ? wanted : most > FILE_DEPTH ? most : FILE_DEPTH);
    if (commands_max > 0)
        depth.commands = (uint32_t)fmin(fmax(commands_max, depth.operations), 1e9);
    return depth;
}

const struct pst_disk_depth *pst_disk_depth(const struct pst_disk *d)
{
    return &d->depth;
}

bool pst_disk_gap_read(const struct pst_disk *d)
{
    return !d->backend.ops->copies && !d->backend.ops->dma;
}

void pst_disk_gap_set(struct pst_disk *d, uint64_t bytes)
{
    assert(bytes <= PST_DISK_COALESCE_MAX);
    d->gap_bytes = pst_disk_gap_read(d) ? bytes : 0;
}

uint64_t pst_disk_gap(const struct pst_disk *d)
{
    return d->gap_bytes;
}

bool pst_disk_driven(struct pst_disk *d, struct pst_io_driven *driven)
{
    *driven = (struct pst_io_driven){0};
    if (d->backend.ops->count == NULL)
        return false;
    d->backend.ops->count(&d->backend, driven);
    return true;
}
