/* engine_config.c: the engine's configuration: which arrays requests may name, in which files they lie, and
 * its limits. */
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"
#include "common/error.h"
#include "stages/lib/io/engine_impl.h"

static_assert((int)PST_ARRAY_COUNT <= PST_REQUEST_ARRAYS_MAX &&
                  (int)PST_ARRAY_COUNT + PST_DATASET_FEATURE_FILES_MAX - 1 <= PST_REQUEST_FILES_MAX,
              "a request can name every array, and there is room for their files");

void pst_disk_config_add(struct pst_disk_config *c, enum pst_array_id id, const char *const *paths,
                         uint32_t n, uint64_t data_at, uint64_t rows, uint64_t row_bytes,
                         uint64_t wanted_bytes)
{
    assert(n >= 1 && c->nfiles + n <= PST_REQUEST_FILES_MAX && row_bytes > 0);
    if (rows == 0)
        return;
    c->arrays[id] = (struct pst_request_array){
        .rows = rows,
        .wanted_bytes = wanted_bytes,
        .rows_in = {.unit = row_bytes, .base = data_at, .first = c->nfiles, .over = n}};
    for (uint32_t k = 0; k < n; k++)
        c->paths[c->nfiles++] = paths[k];
}

static uint64_t row_bytes(const struct pst_array *array)
{
    return pst_dtype_bytes(array->dtype) * (array->rank == 2 ? (uint64_t)array->shape[1] : 1);
}

static void add_features(struct pst_disk_config *c, const struct pst_dataset *ds, bool on_drives)
{
    const char *paths[PST_DATASET_FEATURE_FILES_MAX];
    const int files = pst_feature_files(ds);
    for (int k = 0; k < files; k++)
        paths[k] = pst_feature_file(ds, k)->path;
    pst_disk_config_add(c, PST_ARRAY_FEATURES, paths, on_drives ? 1 : (uint32_t)files, ds->features.data_at,
                        (uint64_t)ds->features.shape[0], ds->stride_bytes,
                        (uint64_t)ds->feature_dim * pst_dtype_bytes(ds->features.dtype));
}

void pst_disk_config_add_all(struct pst_disk_config *c, const struct pst_dataset *ds, bool on_drives)
{
    /* features first: then they are in namespace 1 of emulated drives, as on real drives */
    if (ds->features.path[0] != '\0')
        add_features(c, ds, on_drives);
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
    for (unsigned id = 0; id < PST_ARRAY_COUNT; id++) {
        const struct pst_request_array *a = &c->arrays[id];
        uint64_t end;
        if (a->rows > 0 && (__builtin_mul_overflow(a->rows, a->rows_in.unit, &end) || end > most ||
                            a->rows_in.base > most - end))
            return pst_fail(PST_E_LIMIT,
                            "the array %s has %llu rows of %llu bytes, which is too large: the disk stage "
                            "reads at most 128 PiB",
                            pst_array_id_name((enum pst_array_id)id), (unsigned long long)a->rows,
                            (unsigned long long)a->rows_in.unit);
    }
    if (c->gap_bytes > PST_DISK_COALESCE_MAX)
        return pst_fail(PST_E_ARG, "gap_bytes is %llu; expected at most %u", (unsigned long long)c->gap_bytes,
                        PST_DISK_COALESCE_MAX);
    if (c->coalesce_bytes < 1 || c->coalesce_bytes > PST_DISK_COALESCE_MAX)
        return pst_fail(PST_E_ARG, "coalesce_bytes is %llu; expected 1 to %u",
                        (unsigned long long)c->coalesce_bytes, PST_DISK_COALESCE_MAX);
    return PST_OK;
}
