/* verify.c: reads every file of a dataset once, for its checksum and its contents. */
#include "common/store/dataset/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/clock.h"

#define CHUNK_BYTES (1u << 20) /* read at a time; a multiple of PST_PAGE, so of every item */
#define TOLD_MAX 5             /* bad values of one array that are told one by one */

struct verify {
    struct pst_dataset ds;
    struct pst_manifest manifest;
    struct pst_problems problems;
    struct pst_progress *progress;
    unsigned char *chunk;
    uint8_t *owner; /* vertices: which split has it, + 1 */
    /* of the array that is read now */
    enum pst_array_id id; /* FEATURES for those of a type, too */
    const struct pst_array *array;
    const char *path;
    int64_t last, bad;
    int64_t row;  /* of indices: whose neighbours are looked at */
    bool ordered; /* indptr is sound: it says where rows begin */
};

static bool tell(struct verify *v)
{
    return ++v->bad <= TOLD_MAX;
}

static void check_indptr(struct verify *v, const int64_t *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if ((x[i] < v->last || x[i] > v->ds.edges) && tell(v))
            pst_problem(&v->problems,
                        "%s: entry %" PRId64 ": expected %" PRId64 " to %" PRId64 ", found %" PRId64, v->path,
                        first + i, v->last, v->ds.edges, x[i]);
        v->last = x[i];
    }
}

static void check_id(struct verify *v, int64_t at, int64_t id)
{
    if (id >= 0 && id < v->ds.vertices)
        return;
    if (tell(v))
        pst_problem(&v->problems, "%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64, v->path,
                    at, v->ds.vertices - 1, id);
}

/* Neighbours ascend: inference reads a row in parts, each where the one before ended. */
static void check_order(struct verify *v, int64_t at, int64_t id)
{
    const int64_t *indptr = v->ds.indptr.map;
    while (indptr[v->row + 1] <= at)
        v->row++;
    if (at > indptr[v->row] && id < v->last && tell(v))
        pst_problem(&v->problems,
                    "%s: entry %" PRId64 ": expected the neighbours of vertex %" PRId64
                    " in ascending order, found %" PRId64 " after %" PRId64,
                    v->path, at, v->row, id, v->last);
    v->last = id;
}

static void check_indices(struct verify *v, const void *x, int64_t first, int64_t n)
{
    const struct pst_dataset_cut *cut = &v->ds.cut;
    const int64_t before = cut->lists ? cut->first_edge[cut->part] : 0; /* edges of other parts */
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = v->ds.indices.dtype == PST_I32 ? ((const int32_t *)x)[i] : ((const int64_t *)x)[i];
        check_id(v, first + i, id);
        if (v->ordered)
            check_order(v, before + first + i, id);
    }
}

static void tell_value(struct verify *v, int64_t item)
{
    int64_t row = item / v->array->shape[1], column = item % v->array->shape[1];
    if (tell(v))
        pst_problem(&v->problems, "%s: row %" PRId64 ", column %" PRId64 ": expected a finite number",
                    v->path, row, column);
}

/* All bits of the exponent set: infinite or NaN. */
static void check_features(struct verify *v, const void *x, int64_t first, int64_t n)
{
    if (v->array->dtype == PST_F32) {
        const uint32_t *word = x;
        for (int64_t i = 0; i < n; i++)
            if ((word[i] & 0x7f800000u) == 0x7f800000u)
                tell_value(v, first + i);
        return;
    }
    uint16_t exponent = v->array->dtype == PST_F16 ? 0x7c00 : 0x7f80;
    const uint16_t *half = x;
    for (int64_t i = 0; i < n; i++)
        if ((half[i] & exponent) == exponent)
            tell_value(v, first + i);
}

static void check_labels(struct verify *v, const int32_t *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if ((x[i] < -1 || x[i] >= v->ds.classes) && tell(v))
            pst_problem(&v->problems, "%s: vertex %" PRId64 ": expected -1 to %" PRId64 ", found %d", v->path,
                        first + i, v->ds.classes - 1, x[i]);
}

static void check_split(struct verify *v, const int64_t *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        check_id(v, first + i, x[i]);
        if (x[i] < 0 || x[i] >= v->ds.vertices)
            continue;
        uint8_t *owner = &v->owner[x[i]];
        if (*owner != 0 && tell(v))
            pst_problem(&v->problems, "%s: entry %" PRId64 ": vertex %" PRId64 " is already in %s", v->path,
                        first + i, x[i],
                        pst_array_id_name((enum pst_array_id)(PST_ARRAY_TRAIN + *owner - 1)));
        *owner = (uint8_t)(v->id - PST_ARRAY_TRAIN + 1);
    }
}

static void check_relations(struct verify *v, const int32_t *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if ((x[i] < 0 || x[i] >= v->ds.relations) && tell(v))
            pst_problem(&v->problems, "%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %d", v->path,
                        first + i, v->ds.relations - 1, x[i]);
}

/* Pairs of vertices. */
static void check_pairs(struct verify *v, const void *x, int64_t first, int64_t n)
{
    bool narrow = pst_manifest_id_dtype(v->ds.vertices) == PST_I32;
    for (int64_t i = 0; i < n; i++)
        check_id(v, first + i, narrow ? ((const int32_t *)x)[i] : ((const int64_t *)x)[i]);
}

static void check_multilabels(struct verify *v, const uint8_t *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] > 1 && x[i] != UINT8_MAX && tell(v))
            pst_problem(&v->problems,
                        "%s: row %" PRId64 ", column %" PRId64 ": expected 0, 1 or 255, found %d", v->path,
                        (first + i) / v->array->shape[1], (first + i) % v->array->shape[1], x[i]);
}

static void check_triples(struct verify *v, const void *x, int64_t first, int64_t n)
{
    bool narrow = pst_manifest_id_dtype(v->ds.vertices) == PST_I32;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = narrow ? ((const int32_t *)x)[i] : ((const int64_t *)x)[i];
        int64_t column = (first + i) % 3, limit = column == 1 ? v->ds.relations : v->ds.vertices;
        if ((id < 0 || id >= limit) && tell(v))
            pst_problem(&v->problems,
                        "%s: row %" PRId64 ", column %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64,
                        v->path, (first + i) / 3, column, limit - 1, id);
    }
}

/* Where each name begins: never falls, within the bytes of all names. */
static void check_starts(struct verify *v, const int64_t *x, int64_t first, int64_t n)
{
    const struct pst_array *names = v->id == PST_ARRAY_NAMES_AT ? &v->ds.names : &v->ds.relation_names;
    for (int64_t i = 0; i < n; i++) {
        if ((x[i] < v->last || x[i] > names->shape[0]) && tell(v))
            pst_problem(&v->problems,
                        "%s: entry %" PRId64 ": expected %" PRId64 " to %" PRId64 ", found %" PRId64, v->path,
                        first + i, v->last, names->shape[0], x[i]);
        v->last = x[i];
    }
}

static void check_weights(struct verify *v, const float *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && isfinite(x[i])) && tell(v))
            pst_problem(&v->problems, "%s: entry %" PRId64 ": expected a finite number, at least 0, found %g",
                        v->path, first + i, (double)x[i]);
}

static void check_times(struct verify *v, const int32_t *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] < 0 && tell(v))
            pst_problem(&v->problems, "%s: entry %" PRId64 ": expected a time of at least 0, found %d",
                        v->path, first + i, x[i]);
}

/* Each vertex had another id. The highest bit of its owner says that one has this id. */
static void check_old_ids(struct verify *v, const int64_t *x, int64_t first, int64_t n)
{
    const uint8_t taken = 0x80;
    for (int64_t i = 0; i < n; i++) {
        check_id(v, first + i, x[i]);
        if (x[i] < 0 || x[i] >= v->ds.vertices)
            continue;
        if ((v->owner[x[i]] & taken) != 0 && tell(v))
            pst_problem(&v->problems, "%s: entry %" PRId64 ": the id %" PRId64 " is there a second time",
                        v->path, first + i, x[i]);
        v->owner[x[i]] |= taken;
    }
}

/* NaN: not known. */
static void check_targets(struct verify *v, const float *x, int64_t first, int64_t n)
{
    const int64_t columns = v->array->rank == 2 ? v->array->shape[1] : 1;
    for (int64_t i = 0; i < n; i++)
        if (isinf(x[i]) && tell(v))
            pst_problem(&v->problems,
                        "%s: vertex %" PRId64 ", column %" PRId64
                        ": expected a finite number, or NaN (not known), found %g",
                        v->path, (first + i) / columns, (first + i) % columns, (double)x[i]);
}

static const char *check_items(struct verify *v, const void *x, int64_t first, int64_t n)
{
    switch (v->id) {
    case PST_ARRAY_INDPTR: check_indptr(v, x, first, n); return "checksum, non-decreasing, within the edges";
    case PST_ARRAY_INDICES: check_indices(v, x, first, n); return "checksum, ids in range, ascending";
    case PST_ARRAY_FEATURES: check_features(v, x, first, n); return "checksum, every value finite";
    case PST_ARRAY_LABELS: check_labels(v, x, first, n); return "checksum, labels in range";
    case PST_ARRAY_RELATIONS: check_relations(v, x, first, n); return "checksum, relations in range";
    case PST_ARRAY_TRIPLES_TRAIN:
    case PST_ARRAY_TRIPLES_VAL:
    case PST_ARRAY_TRIPLES_TEST: check_triples(v, x, first, n); return "checksum, ids in range";
    case PST_ARRAY_NAMES_AT:
    case PST_ARRAY_RELATION_NAMES_AT:
        check_starts(v, x, first, n);
        return "checksum, non-decreasing, within the names";
    case PST_ARRAY_EDGES_TRAIN:
    case PST_ARRAY_EDGES_VAL:
    case PST_ARRAY_EDGES_TEST:
    case PST_ARRAY_NEGATIVES_VAL:
    case PST_ARRAY_NEGATIVES_TEST: check_pairs(v, x, first, n); return "checksum, ids in range";
    case PST_ARRAY_MULTILABELS: check_multilabels(v, x, first, n); return "checksum, values 0, 1 or unknown";
    case PST_ARRAY_EDGE_WEIGHTS:
        check_weights(v, x, first, n);
        return "checksum, every weight finite and at least 0";
    case PST_ARRAY_TARGETS:
        check_targets(v, x, first, n);
        return "checksum, every target finite or not known";
    case PST_ARRAY_OLD_IDS: check_old_ids(v, x, first, n); return "checksum, every id once";
    case PST_ARRAY_EDGE_TIMES:
    case PST_ARRAY_VERTEX_TIMES: check_times(v, x, first, n); return "checksum, every time at least 0";
    case PST_ARRAY_IDS:
    case PST_ARRAY_NAMES:
    case PST_ARRAY_RELATION_NAMES: return "checksum";
    default:
        check_split(v, x, first, n);
        return "checksum, ids in range, no duplicates within or between splits";
    }
}

static pst_rc read_full(int fd, const char *path, void *out, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(fd, (char *)out + done, bytes - done);
        if (n < 0)
            return pst_fail_errno("%s: cannot read", path);
        if (n == 0)
            return pst_fail(PST_E_FORMAT,
                            "%s ends %zu bytes too early: the file changed while it was being read", path,
                            bytes - done);
        done += (size_t)n;
    }
    return PST_OK;
}

/* One pass over the file: hash and look. */
static pst_rc read_array(struct verify *v, int fd, const struct pst_array *a, XXH3_state_t *hash,
                         const char **checked)
{
    uint64_t total = a->data_at + a->data_bytes;
    size_t item = pst_dtype_bytes(a->dtype);
    *checked = check_items(v, v->chunk, 0, 0);
    for (uint64_t at = 0; at < total;) {
        size_t n = (size_t)(total - at < CHUNK_BYTES ? total - at : CHUNK_BYTES);
        if (at == 0)
            n = (size_t)a->data_at; /* the header alone, so that items begin on a chunk */
        pst_rc rc = read_full(fd, v->path, v->chunk, n);
        if (rc == PST_OK)
            rc = pst_progress_add(v->progress, n);
        if (rc != PST_OK)
            return rc;
        (void)XXH3_64bits_update(hash, v->chunk, n);
        if (at > 0)
            (void)check_items(v, v->chunk, (int64_t)((at - a->data_at) / item), (int64_t)(n / item));
        at += n;
    }
    return PST_OK;
}

static pst_rc verify_array(struct verify *v, const struct pst_array *a, uint64_t expected,
                           const char **checked)
{
    v->path = a->path;
    v->array = a;
    v->last = v->bad = v->row = 0;
    v->ordered = v->problems.count == 0;
    XXH3_state_t *hash = XXH3_createState();
    int fd = open(a->path, O_RDONLY | O_CLOEXEC);
    pst_rc rc = PST_OK;
    if (fd < 0)
        rc = pst_fail_errno("cannot open %s", a->path);
    else if (hash == NULL || XXH3_64bits_reset(hash) != XXH_OK)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a checksum");
    if (rc != PST_OK)
        goto out;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if ((rc = read_array(v, fd, a, hash, checked)) != PST_OK)
        goto out;
    if (v->bad > TOLD_MAX)
        pst_problem(&v->problems, "%s: %" PRId64 " more errors of this kind", a->path, v->bad - TOLD_MAX);
    uint64_t found = XXH3_64bits_digest(hash);
    if (found != expected)
        pst_problem(&v->problems, "%s: checksum: expected %016" PRIx64 ", found %016" PRIx64, a->path,
                    expected, found);
out:
    if (fd >= 0)
        (void)close(fd);
    (void)XXH3_freeState(hash);
    return rc;
}

static void check_mapped(struct verify *v, const struct pst_array *a, enum pst_array_id id)
{
    if (a->map == NULL)
        return;
    v->id = id;
    v->path = a->path;
    v->array = a;
    v->last = v->bad = 0;
    (void)check_items(v, a->map, 0, a->shape[0] * a->shape[1]);
    if (v->bad > TOLD_MAX)
        pst_problem(&v->problems, "%s: %" PRId64 " more errors of this kind", a->path, v->bad - TOLD_MAX);
}

pst_rc pst_dataset_check(const struct pst_dataset *ds)
{
    struct verify *v = calloc(1, sizeof *v);
    if (v == NULL || (v->owner = calloc((size_t)ds->vertices + 1, 1)) == NULL) {
        free(v);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot check %" PRId64 " vertices", ds->vertices);
    }
    v->ds = *ds;
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        if (i != PST_ARRAY_INDICES && i != PST_ARRAY_RELATIONS)
            check_mapped(v, pst_manifest_dataset_array(&v->ds, i), i);
    for (int k = 0; k < ds->splits; k++) {
        memset(v->owner, 0, (size_t)ds->vertices);
        for (unsigned i = 0; i < 3; i++)
            check_mapped(v, &ds->named_split[k].ids[i], PST_ARRAY_TRAIN + i);
    }
    pst_rc rc = pst_problems_result(&v->problems, "the dataset is damaged");
    free(v->owner);
    free(v);
    return rc;
}

static pst_rc verify_one(struct verify *v, const struct pst_array *a, const char *name, uint64_t checksum,
                         struct pst_verified *report)
{
    if (a->path[0] == '\0')
        return PST_OK;
    report->present = true;
    report->bytes = a->data_at + a->data_bytes;
    pst_progress_begin(v->progress, name, report->bytes, true);
    double began = pst_clock_s();
    pst_rc rc = verify_array(v, a, checksum, &report->checked);
    if (rc != PST_OK)
        return rc;
    report->seconds = pst_clock_s() - began;
    pst_progress_end(v->progress);
    return PST_OK;
}

/* The named splits but the first: each is disjoint in itself. */
static pst_rc verify_splits(struct verify *v, struct pst_verified *sum)
{
    pst_rc rc = PST_OK;
    for (int k = 1; k < v->ds.splits && rc == PST_OK; k++) {
        memset(v->owner, 0, (size_t)v->ds.vertices);
        for (unsigned i = 0; i < 3 && rc == PST_OK; i++) {
            struct pst_verified one = {.present = false};
            v->id = PST_ARRAY_TRAIN + i;
            rc = verify_one(v, &v->ds.named_split[k].ids[i], v->ds.named_split[k].name,
                            v->manifest.split[k].ids[i].checksum, &one);
            sum->present |= one.present;
            sum->bytes += one.bytes;
            sum->seconds += one.seconds;
            sum->checked = one.present ? one.checked : sum->checked;
        }
    }
    return rc;
}

static bool is_of(const struct pst_vertex_type *t, int64_t id)
{
    return id >= t->first && id < t->first + t->vertices;
}

/* Each edge joins the types that its own says. Ids and relations are known to be in range. */
static void check_edge_types(struct verify *v)
{
    const struct pst_dataset *ds = &v->ds;
    const int64_t *indptr = ds->indptr.map;
    const int32_t *relation = ds->edge_relation.map;
    bool narrow = ds->indices.dtype == PST_I32;
    v->bad = 0;
    for (int64_t target = 0; target < ds->vertices && ds->edges > 0; target++)
        for (int64_t i = indptr[target]; i < indptr[target + 1]; i++) {
            const struct pst_edge_type *t = &ds->edge_type[relation[i]];
            int64_t source =
                narrow ? ((const int32_t *)ds->indices.map)[i] : ((const int64_t *)ds->indices.map)[i];
            if (is_of(&ds->vertex_type[t->source], source) && is_of(&ds->vertex_type[t->target], target))
                continue;
            if (tell(v))
                pst_problem(&v->problems,
                            "%s: entry %" PRId64 ": an edge of type '%s' goes from vertex %" PRId64
                            " to %" PRId64 ", whose types do not match",
                            ds->edge_relation.path, i, t->name, source, target);
        }
    if (v->bad > TOLD_MAX)
        pst_problem(&v->problems, "%s: %" PRId64 " more errors of this kind", ds->edge_relation.path,
                    v->bad - TOLD_MAX);
}

static pst_rc verify_arrays(struct verify *v, struct pst_verify_report *report)
{
    pst_rc rc = PST_OK;
    v->chunk = malloc(CHUNK_BYTES);
    v->owner = calloc((size_t)v->ds.vertices + 1, 1);
    if (v->chunk == NULL || v->owner == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot verify %" PRId64 " vertices", v->ds.vertices);
    for (unsigned i = 0; i < PST_ARRAY_COUNT && rc == PST_OK; i++) {
        v->id = i;
        if (i == PST_ARRAY_FEATURES && v->ds.stripes > 0)
            continue;
        rc = verify_one(v, pst_manifest_dataset_array(&v->ds, i), pst_array_id_name(i),
                        v->manifest.array[i].checksum, &report->array[i]);
    }
    v->id = PST_ARRAY_FEATURES;
    for (int k = 0; k < v->ds.stripes && rc == PST_OK; k++)
        rc = verify_one(v, &v->ds.stripe[k], "features", v->manifest.stripe[k].checksum, &report->stripe[k]);
    for (int k = 0; k < v->ds.vertex_types && rc == PST_OK; k++)
        rc = verify_one(v, &v->ds.vertex_type[k].features, v->ds.vertex_type[k].name,
                        v->manifest.vertex_type[k].features.checksum, &report->features[k]);
    if (rc == PST_OK)
        rc = verify_splits(v, &report->splits);
    if (rc == PST_OK && v->ds.vertex_types > 0 && v->problems.count == 0)
        check_edge_types(v);
    return rc;
}

pst_rc pst_verify(const char *dir, struct pst_verify_report *report, struct pst_progress *progress)
{
    *report = (struct pst_verify_report){0};
    struct verify *v = calloc(1, sizeof *v);
    if (v == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot verify the dataset");
    v->progress = progress;
    pst_rc rc = pst_dataset_open_part(&v->ds, dir);
    if (rc != PST_OK)
        goto out;
    pst_manifest_read(&v->manifest, v->ds.dir, &v->problems); /* the checksums */
    if (v->problems.count == 0)
        rc = verify_arrays(v, report);
    if (rc == PST_OK)
        rc = pst_problems_result(&v->problems, "the dataset is damaged");
out:
    pst_dataset_close(&v->ds);
    pst_manifest_release(&v->manifest);
    free(v->chunk);
    free(v->owner);
    free(v);
    return rc;
}

pst_rc pst_dataset_verify(const char *dir, bool progress)
{
    struct pst_verify_report report;
    struct pst_progress shown;
    if (progress)
        pst_progress_init(&shown, false);
    return pst_verify(dir, &report, progress ? &shown : NULL);
}
