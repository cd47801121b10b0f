/* manifest_stripes.c: stripes of the features in dataset.json. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest_impl.h"
#include "common/store/dataset/stripe.h"

#define STRIPES_VERSION 5

pst_rc pst_manifest_stripes(struct pst_manifest *m, int stripes)
{
    assert(m->stripe == NULL && stripes > 1 && stripes <= PST_DATASET_FEATURE_FILES_MAX);
    m->stripe = calloc((size_t)stripes, sizeof *m->stripe);
    if (m->stripe == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d stripes", stripes);
    m->stripes = stripes;
    return PST_OK;
}

/* What all stripes make together. */
static void sum_up(struct pst_manifest *m)
{
    struct pst_array_entry *all = &m->array[PST_ARRAY_FEATURES];
    *all = (struct pst_array_entry){.present = true,
                                    .dtype = m->stripe[0].dtype,
                                    .rank = m->stripe[0].rank,
                                    .shape = {m->vertices, m->stripe[0].shape[1]}};
}

void pst_manifest_read_stripes(struct pst_manifest *m, json_t *root, int64_t version,
                               struct pst_problems *problems)
{
    json_t *stripes = json_object_get(root, "stripes");
    const char *dir = json_string_value(json_object_get(json_array_get(stripes, 0), "dir"));
    const size_t n = json_array_size(stripes);
    if (n == 1 && dir != NULL && strcmp(dir, ".") == 0)
        return;
    if (version < STRIPES_VERSION || n < 2 || n > PST_DATASET_FEATURE_FILES_MAX) {
        pst_problem(problems,
                    "stripes: expected [{\"dir\": \".\"}] or, from version %d on, a list of 2 to %d files; "
                    "found %zu stripes",
                    STRIPES_VERSION, PST_DATASET_FEATURE_FILES_MAX, n);
        return;
    }
    if (pst_manifest_stripes(m, (int)n) != PST_OK) {
        pst_problem_from_error(problems);
        return;
    }
    for (int k = 0; k < m->stripes; k++) {
        char where[PST_NAME_MAX];
        (void)snprintf(where, sizeof where, "stripes[%d]", k);
        pst_manifest_read_entry(json_array_get(stripes, (size_t)k), where, true, &m->stripe[k], problems);
    }
    sum_up(m);
}

void pst_manifest_check_stripes(const struct pst_manifest *m, struct pst_problems *problems)
{
    for (int k = 0; k < m->stripes; k++) {
        const struct pst_array_entry *e = &m->stripe[k], *all = &m->array[PST_ARRAY_FEATURES];
        const int64_t rows =
            (int64_t)pst_stripe_rows((uint64_t)m->vertices, 1, (uint32_t)k, (uint32_t)m->stripes);
        if (e->dtype != all->dtype || e->rank != 2 || e->shape[0] != rows || e->shape[1] != all->shape[1])
            pst_problem(problems,
                        "stripes[%d]: expected %s of %" PRId64 " x %" PRId64 ", found %s of %" PRId64
                        " x %" PRId64,
                        k, pst_dtype_name(all->dtype), rows, all->shape[1], pst_dtype_name(e->dtype),
                        e->shape[0], e->shape[1]);
        for (int before = 0; before < k; before++)
            if (strcmp(m->stripe[before].file, e->file) == 0)
                pst_problem(problems, "stripes[%d]: '%s' occurs twice", k, e->file);
    }
}

json_t *pst_manifest_stripes_json(const struct pst_manifest *m)
{
    json_t *list = json_array();
    for (int k = 0; k < m->stripes; k++)
        (void)json_array_append_new(list, pst_manifest_entry_json(&m->stripe[k]));
    if (m->stripes == 0)
        (void)json_array_append_new(list, json_pack("{s:s}", "dir", "."));
    return list;
}
