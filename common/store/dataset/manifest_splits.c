/* manifest_splits.c: several splits in one dataset. The first one's arrays are train, val and test of
 * "arrays", as in a dataset with one split; the others' are in the entries of "splits". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest_impl.h"

static const char *const keys[] = {"name", "train", "val", "test"};

pst_rc pst_manifest_splits(struct pst_manifest *m, int splits)
{
    assert(m->split == NULL);
    if (splits > PST_DATASET_SPLITS_MAX)
        return pst_fail(PST_E_LIMIT, "the dataset would have %d splits; at most %d are allowed", splits,
                        PST_DATASET_SPLITS_MAX);
    m->split = calloc((size_t)splits + 1, sizeof *m->split);
    m->splits = splits;
    return m->split != NULL ? PST_OK
                            : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d splits", splits);
}

static void read_split(struct pst_manifest_split *s, json_t *object, int k, struct pst_problems *problems)
{
    char where[64], entry[96];
    (void)snprintf(where, sizeof where, "splits[%d]", k);
    pst_manifest_check_keys(object, where, keys, sizeof keys / sizeof keys[0], problems);
    (void)pst_manifest_read_string(object, where, "name", s->name, sizeof s->name, problems);
    for (int i = 0; i < 3; i++) {
        json_t *ids = json_object_get(object, keys[1 + i]);
        (void)snprintf(entry, sizeof entry, "%s.%s", where, keys[1 + i]);
        if (ids != NULL && k == 0)
            pst_problem(problems, "%s: must be absent: the arrays of the first split are in 'arrays'", entry);
        else if (ids != NULL)
            pst_manifest_read_entry(ids, entry, false, &s->ids[i], problems);
    }
}

void pst_manifest_read_splits(struct pst_manifest *m, json_t *root, struct pst_problems *problems)
{
    json_t *splits = json_object_get(root, "splits");
    const size_t n = json_array_size(splits);
    if (splits == NULL)
        return;
    if (n == 0 || n > PST_DATASET_SPLITS_MAX) {
        pst_problem(problems, "splits: expected a list of 1 to %d", PST_DATASET_SPLITS_MAX);
        return;
    }
    if (pst_manifest_splits(m, (int)n) != PST_OK) {
        pst_problem_from_error(problems);
        return;
    }
    for (int k = 0; k < m->splits; k++)
        read_split(&m->split[k], json_array_get(splits, (size_t)k), k, problems);
}

void pst_manifest_check_splits(const struct pst_manifest *m, struct pst_problems *problems)
{
    for (int k = 0; k < m->splits; k++) {
        const struct pst_manifest_split *s = &m->split[k];
        for (int before = 0; before < k; before++)
            if (strcmp(m->split[before].name, s->name) == 0)
                pst_problem(problems, "splits[%d]: '%s' occurs twice", k, s->name);
        for (int i = 0; i < 3; i++) {
            const struct pst_array_entry *e = &s->ids[i];
            if (e->present && (e->dtype != PST_I64 || e->rank != 1 || e->shape[0] > m->vertices))
                pst_problem(problems, "splits[%d].%s: expected at most %" PRId64 " ids of dtype int64", k,
                            keys[1 + i], m->vertices);
        }
    }
}

void pst_manifest_write_splits(const struct pst_manifest *m, json_t *root)
{
    json_t *splits = json_array();
    for (int k = 0; k < m->splits; k++) {
        const struct pst_manifest_split *s = &m->split[k];
        json_t *object = json_pack("{s:s}", "name", s->name);
        for (int i = 0; i < 3; i++)
            if (s->ids[i].present)
                (void)json_object_set_new(object, keys[1 + i], pst_manifest_entry_json(&s->ids[i]));
        (void)json_array_append_new(splits, object);
    }
    (void)json_object_set_new(root, "splits", splits);
}
