/* dataset.c: opens a dataset, checks it, and chooses a split. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"
#include "common/store/store.h"

#define SPLITS_TOLD 1024 /* bytes of splits' names in one message */

struct pst_array *pst_manifest_dataset_array(struct pst_dataset *ds, enum pst_array_id id)
{
    switch (id) {
    case PST_ARRAY_INDPTR: return &ds->indptr;
    case PST_ARRAY_INDICES: return &ds->indices;
    case PST_ARRAY_FEATURES: return &ds->features;
    case PST_ARRAY_LABELS: return &ds->labels;
    case PST_ARRAY_RELATIONS: return &ds->edge_relation;
    case PST_ARRAY_TRIPLES_TRAIN:
    case PST_ARRAY_TRIPLES_VAL:
    case PST_ARRAY_TRIPLES_TEST: return &ds->triples[id - PST_ARRAY_TRIPLES_TRAIN];
    case PST_ARRAY_IDS: return &ds->ids;
    case PST_ARRAY_NAMES_AT: return &ds->names_at;
    case PST_ARRAY_NAMES: return &ds->names;
    case PST_ARRAY_RELATION_NAMES_AT: return &ds->relation_names_at;
    case PST_ARRAY_RELATION_NAMES: return &ds->relation_names;
    case PST_ARRAY_EDGES_TRAIN:
    case PST_ARRAY_EDGES_VAL:
    case PST_ARRAY_EDGES_TEST: return &ds->edges_split[id - PST_ARRAY_EDGES_TRAIN];
    case PST_ARRAY_NEGATIVES_VAL:
    case PST_ARRAY_NEGATIVES_TEST: return &ds->negatives[id - PST_ARRAY_NEGATIVES_VAL];
    case PST_ARRAY_MULTILABELS: return &ds->multilabels;
    case PST_ARRAY_EDGE_WEIGHTS: return &ds->edge_weights;
    case PST_ARRAY_TARGETS: return &ds->targets;
    case PST_ARRAY_EDGE_TIMES: return &ds->edge_times;
    case PST_ARRAY_VERTEX_TIMES: return &ds->vertex_times;
    case PST_ARRAY_OLD_IDS: return &ds->old_ids;
    default: return &ds->split[id - PST_ARRAY_TRAIN];
    }
}

static void check_header(const struct pst_array *a, const struct pst_array_entry *e,
                         struct pst_problems *problems)
{
    if (a->dtype != e->dtype || a->rank != e->rank || a->shape[0] != e->shape[0] ||
        a->shape[1] != e->shape[1])
        pst_problem(problems,
                    "%s: expected %s of shape %" PRId64 " x %" PRId64
                    ", as in dataset.json, found %s of %" PRId64 " x %" PRId64,
                    a->path, pst_dtype_name(e->dtype), e->shape[0], e->shape[1], pst_dtype_name(a->dtype),
                    a->shape[0], a->shape[1]);
    else if (a->data_at != PST_PAGE && e->linked_ns == 0)
        pst_problem(problems, "%s: expected data from byte %d on, found it at byte %" PRIu64, a->path,
                    PST_PAGE, a->data_at);
}

/* A link's file is not ours: it may be gone, or another by now. False: a problem was told. */
static bool check_link(const char *path, const struct pst_array_entry *e, struct pst_problems *problems)
{
    char target[4096];
    struct stat st;
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) {
        pst_problem(problems, "%s: expected a link to the file that was imported with --link", path);
        return false;
    }
    target[n] = '\0';
    if (stat(path, &st) != 0) {
        pst_problem(problems, "%s is a link to %s, which cannot be read: restore that file, or import again",
                    path, target);
        return false;
    }
    int64_t ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (st.st_size == e->linked_bytes && ns == e->linked_ns)
        return true;
    pst_problem(problems,
                "%s, the target of the link %s, changed since it was imported: it had %" PRId64
                " bytes, modified %" PRId64 ".%09" PRId64
                ", and now has %jd, modified %jd.%09ld: import again",
                target, path, e->linked_bytes, e->linked_ns / 1000000000, e->linked_ns % 1000000000,
                (intmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return false;
}

static void open_array(const struct pst_dataset *ds, struct pst_array *array, const struct pst_array_entry *e,
                       bool map, struct pst_problems *problems)
{
    char path[4096 + PST_NAME_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", ds->dir, e->file);
    if (e->linked_ns != 0 && !check_link(path, e, problems))
        return;
    if (pst_array_open(array, path) != PST_OK) {
        pst_problem_from_error(problems);
        return;
    }
    int before = problems->count;
    check_header(array, e, problems);
    if (problems->count == before && map && pst_array_map(array) != PST_OK)
        pst_problem_from_error(problems);
}

/* Another stripe of the same shape is told by what it begins with. */
static void check_head(const struct pst_array *a, const struct pst_array_entry *e, int k,
                       struct pst_problems *problems)
{
    uint64_t head = 0;
    if (pst_stripe_head(a->path, &head) != PST_OK)
        pst_problem_from_error(problems);
    else if (head != e->head)
        pst_problem(problems, "%s is not stripe %d of this dataset: another file or drive is in its place",
                    a->path, k);
}

static void open_stripes(struct pst_dataset *ds, const struct pst_manifest *m, struct pst_problems *problems)
{
    if (m->stripes == 0)
        return;
    ds->stripe = calloc((size_t)m->stripes, sizeof *ds->stripe);
    if (ds->stripe == NULL) {
        pst_problem(problems, "out of memory: cannot allocate %d stripes", m->stripes);
        return;
    }
    ds->stripes = m->stripes;
    for (int k = 0; k < m->stripes; k++) {
        int before = problems->count;
        open_array(ds, &ds->stripe[k], &m->stripe[k], false, problems);
        if (problems->count == before)
            check_head(&ds->stripe[k], &m->stripe[k], k, problems);
    }
    const struct pst_array_entry *all = &m->array[PST_ARRAY_FEATURES];
    ds->features = (struct pst_array){.dtype = all->dtype,
                                      .rank = 2,
                                      .shape = {all->shape[0], all->shape[1]},
                                      .data_at = PST_PAGE,
                                      .data_bytes = (uint64_t)all->shape[0] * ds->stride_bytes};
    (void)snprintf(ds->features.path, sizeof ds->features.path, "%.4000s/features.*.npy", ds->dir);
}

/* O(1): the first and last entry, so that a user of the topology may trust its size. */
static void check_ends(const struct pst_dataset *ds, struct pst_problems *problems)
{
    const int64_t *indptr = ds->indptr.map;
    if (indptr[0] != 0 || indptr[ds->vertices] != ds->edges)
        pst_problem(problems,
                    "%s: expected the first entry 0 and the last %" PRId64 ", found %" PRId64 " and %" PRId64,
                    ds->indptr.path, ds->edges, indptr[0], indptr[ds->vertices]);
}

static void open_types(struct pst_dataset *ds, const struct pst_manifest *m, struct pst_problems *problems)
{
    if (m->vertex_types == 0)
        return;
    ds->vertex_type = calloc((size_t)m->vertex_types, sizeof *ds->vertex_type);
    ds->edge_type = calloc((size_t)m->edge_types + 1, sizeof *ds->edge_type);
    if (ds->vertex_type == NULL || ds->edge_type == NULL) {
        pst_problem(problems, "out of memory: cannot allocate %d types", m->vertex_types + m->edge_types);
        return;
    }
    ds->vertex_types = m->vertex_types;
    ds->edge_types = m->edge_types;
    memcpy(ds->edge_type, m->edge_type, (size_t)m->edge_types * sizeof *ds->edge_type);
    int64_t first = 0;
    for (int k = 0; k < m->vertex_types; k++) {
        const struct pst_manifest_vertex_type *from = &m->vertex_type[k];
        struct pst_vertex_type *t = &ds->vertex_type[k];
        memcpy(t->name, from->name, sizeof t->name);
        t->first = first;
        t->vertices = from->vertices;
        t->feature_dim = from->feature_dim;
        t->stride_bytes = from->stride_bytes;
        first += from->vertices;
        if (from->features.present)
            open_array(ds, &t->features, &from->features, false, problems);
    }
}

static void open_splits(struct pst_dataset *ds, const struct pst_manifest *m, struct pst_problems *problems)
{
    if (m->splits == 0)
        return;
    ds->named_split = calloc((size_t)m->splits, sizeof *ds->named_split);
    if (ds->named_split == NULL) {
        pst_problem(problems, "out of memory: cannot allocate %d splits", m->splits);
        return;
    }
    ds->splits = m->splits;
    for (int k = 0; k < m->splits; k++) {
        struct pst_dataset_split *s = &ds->named_split[k];
        memcpy(s->name, m->split[k].name, sizeof s->name);
        for (int i = 0; i < 3; i++)
            if (m->split[k].ids[i].present)
                open_array(ds, &s->ids[i], &m->split[k].ids[i], true, problems);
    }
}

static pst_rc no_such_split(const struct pst_dataset *ds, const char *name)
{
    char names[SPLITS_TOLD] = "";
    size_t used = 0;
    if (ds->splits == 0)
        return pst_fail(PST_E_ARG,
                        "%s has no split named '%s': expected train, val or test, because the dataset's only "
                        "split has no name",
                        ds->dir, name);
    for (int k = 0; k < ds->splits && used < sizeof names; k++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", k > 0 ? ", " : "",
                                 ds->named_split[k].name);
    return pst_fail(PST_E_ARG, "%s has no split named '%s': expected train, val or test, or one of %s",
                    ds->dir, name, names);
}

static const char *const part_names[3] = {"train", "val", "test"};

pst_rc pst_dataset_edges(const struct pst_dataset *ds, int part, const struct pst_array **edges,
                         int64_t *relations)
{
    const struct pst_array *triples = &ds->triples[part], *pairs = &ds->edges_split[part];
    const char *name = pst_dataset_part_name(part);
    *edges = triples->map ? triples : pairs;
    if (relations)
        *relations = triples->map ? ds->relations : 1;
    if ((*edges)->map && (*edges)->shape[0] > 0)
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "the dataset %s has no edges to train or test embeddings on: expected triples_%s.npy "
                    "(`penstock import triples` makes it from a knowledge graph) or edges_%s.npy",
                    ds->dir, name, name);
}

const char *pst_dataset_part_name(int part)
{
    assert(part >= 0 && part < 3);
    return part_names[part];
}

static int part_of(const char *text)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(text, part_names[i]) == 0)
            return i;
    return -1;
}

/* split[] becomes the k-th's. */
static void take_split(struct pst_dataset *ds, int k)
{
    if (k == ds->chosen)
        return;
    memcpy(ds->named_split[ds->chosen].ids, ds->split, sizeof ds->split);
    memcpy(ds->split, ds->named_split[k].ids, sizeof ds->split);
    memset(ds->named_split[k].ids, 0, sizeof ds->split);
    ds->chosen = k;
}

pst_rc pst_dataset_choose_split(struct pst_dataset *ds, const char *text, int *part)
{
    char name[PST_NAME_MAX];
    const char *colon = strrchr(text, ':');
    int is = part_of(text), k = 0;
    const bool first = is >= 0;
    (void)snprintf(name, sizeof name, "%s", text);
    if (!first && colon != NULL && (is = part_of(colon + 1)) >= 0)
        (void)snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
    while (!first && k < ds->splits && strcmp(ds->named_split[k].name, name) != 0)
        k++;
    if (!first && k == ds->splits)
        return no_such_split(ds, name);
    take_split(ds, k);
    if (part != NULL)
        *part = is >= 0 ? is : PST_TRAIN;
    return PST_OK;
}

static void fill(struct pst_dataset *ds, const struct pst_manifest *m)
{
    memcpy(ds->name, m->name, sizeof ds->name);
    ds->vertices = m->vertices;
    ds->edges = m->edges;
    ds->feature_dim = m->feature_dim;
    ds->stride_bytes = m->stride_bytes;
    ds->classes = m->classes;
    ds->relations = m->relations;
    ds->cut = m->cut;
    (void)snprintf(ds->digest, sizeof ds->digest, "%016" PRIx64, m->cut.parts > 0 ? m->whole : m->digest);
}

/* The directory of all parts has another file in place of dataset.json. */
static bool is_directory_of_parts(const char *dir)
{
    char path[4096 + 16];
    (void)snprintf(path, sizeof path, "%s/" PST_DATASET_PARTS_FILE, dir);
    return access(path, F_OK) == 0;
}

pst_rc pst_dataset_open(struct pst_dataset *ds, const char *dir)
{
    pst_rc rc = pst_dataset_open_part(ds, dir);
    if (rc != PST_OK || ds->cut.parts == 0)
        return rc;
    rc =
        pst_fail(PST_E_UNSUPPORTED,
                 "dataset %.400s is part %d of %d of a cut dataset, and has the features of its own vertices "
                 "only: use the whole dataset here",
                 ds->dir, ds->cut.part, ds->cut.parts);
    pst_dataset_close(ds);
    return rc;
}

pst_rc pst_dataset_open_part(struct pst_dataset *ds, const char *dir)
{
    *ds = (struct pst_dataset){.vertices = 0};
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    if (length == 0 || length + PST_NAME_MAX >= sizeof ds->dir)
        return pst_fail(PST_E_ARG, "dataset directory: expected a path of 1 to %zu bytes",
                        sizeof ds->dir - PST_NAME_MAX);
    memcpy(ds->dir, dir, length);
    if (is_directory_of_parts(ds->dir))
        return pst_fail(PST_E_UNSUPPORTED,
                        "%.400s has the parts of a cut dataset (" PST_DATASET_PARTS_FILE
                        "), which only `penstock check` and `penstock run` with as many ranks take together: "
                        "use the whole dataset here",
                        ds->dir);
    struct pst_problems problems = {.count = 0};
    struct pst_manifest manifest;
    pst_manifest_read(&manifest, ds->dir, &problems);
    if (problems.count == 0) {
        fill(ds, &manifest);
        for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
            if (manifest.array[i].present && (i != PST_ARRAY_FEATURES || manifest.stripes == 0))
                open_array(ds, pst_manifest_dataset_array(ds, i), &manifest.array[i], i != PST_ARRAY_FEATURES,
                           &problems);
        open_stripes(ds, &manifest, &problems);
        open_types(ds, &manifest, &problems);
        open_splits(ds, &manifest, &problems);
        ds->features.first_row = ds->cut.parts > 0 ? ds->cut.first[ds->cut.part] : 0;
        if (problems.count == 0)
            check_ends(ds, &problems);
    }
    pst_manifest_release(&manifest);
    char what[4200];
    (void)snprintf(what, sizeof what, "dataset %.400s", dir);
    pst_rc rc = pst_problems_result(&problems, what);
    if (rc != PST_OK)
        pst_dataset_close(ds);
    return rc;
}

void pst_dataset_close(struct pst_dataset *ds)
{
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        pst_array_close(pst_manifest_dataset_array(ds, i));
    for (int k = 0; k < ds->stripes; k++)
        pst_array_close(&ds->stripe[k]);
    free(ds->stripe);
    for (int k = 0; k < ds->vertex_types; k++)
        pst_array_close(&ds->vertex_type[k].features);
    for (int k = 0; k < ds->splits; k++)
        for (int i = 0; i < 3; i++)
            pst_array_close(&ds->named_split[k].ids[i]);
    free(ds->named_split);
    free(ds->vertex_type);
    free(ds->edge_type);
    *ds = (struct pst_dataset){.vertices = 0};
}
