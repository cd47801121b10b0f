/* manifest_cut.c: a part of a cut dataset: which part it is, where all parts begin, and which dataset was
 * cut. Of the arrays, only the features have the part's rows alone. */
#include <inttypes.h>
#include <stdio.h>

#include "common/store/dataset/manifest_impl.h"

static const char *const keys[] = {"dataset", "part", "first"};

/* An array of where the parts begin, and where the last one ends. */
static void read_first(struct pst_dataset_cut *cut, const json_t *first, struct pst_problems *problems)
{
    const size_t n = json_array_size(first);
    if (n < 2 || n > PST_DATASET_PARTS_MAX + 1) {
        pst_problem(problems, "cut.first: expected a list of 2 to %d vertices", PST_DATASET_PARTS_MAX + 1);
        return;
    }
    cut->parts = (int)n - 1;
    for (size_t k = 0; k < n; k++) {
        const json_int_t v = json_integer_value(json_array_get(first, k));
        if (v < 0 || v > INT64_MAX / 16 || !json_is_integer(json_array_get(first, k)))
            pst_problem(problems, "cut.first[%zu]: expected a vertex", k);
        else
            cut->first[k] = (int64_t)v;
    }
}

void pst_manifest_read_cut(struct pst_manifest *m, json_t *root, struct pst_problems *problems)
{
    json_t *cut = json_object_get(root, "cut");
    if (cut == NULL)
        return;
    if (!json_is_object(cut)) {
        pst_problem(problems, "cut: expected an object");
        return;
    }
    pst_manifest_check_keys(cut, "cut", keys, sizeof keys / sizeof keys[0], problems);
    m->whole = pst_manifest_read_sum(cut, "cut", "dataset", problems);
    read_first(&m->cut, json_object_get(cut, "first"), problems);
    m->cut.part = (int)pst_manifest_read_count(cut, "part", PST_DATASET_PARTS_MAX - 1, problems);
}

int64_t pst_manifest_feature_rows(const struct pst_manifest *m)
{
    const struct pst_dataset_cut *cut = &m->cut;
    return cut->parts > 0 && cut->part < cut->parts ? cut->first[cut->part + 1] - cut->first[cut->part]
                                                    : m->vertices;
}

void pst_manifest_check_cut(const struct pst_manifest *m, struct pst_problems *problems)
{
    const struct pst_dataset_cut *cut = &m->cut;
    if (cut->parts == 0)
        return;
    if (cut->part >= cut->parts)
        pst_problem(problems, "cut.part: expected 0 to %d, found %d", cut->parts - 1, cut->part);
    if (cut->first[0] != 0 || cut->first[cut->parts] != m->vertices)
        pst_problem(problems,
                    "cut.first: expected 0 first, and %" PRId64
                    " (the number of vertices) last, found %" PRId64 " and %" PRId64,
                    m->vertices, cut->first[0], cut->first[cut->parts]);
    for (int k = 0; k < cut->parts; k++)
        if (cut->first[k + 1] <= cut->first[k])
            pst_problem(problems, "cut.first[%d]: expected more than %" PRId64 ", found %" PRId64, k + 1,
                        cut->first[k], cut->first[k + 1]);
    if (m->vertex_types > 0 || m->stripes > 0 || m->feature_dim == 0)
        pst_problem(problems, "cut: expected features in one file, of vertices of one type");
}

void pst_manifest_write_cut(const struct pst_manifest *m, json_t *root)
{
    char digest[17];
    json_t *first = json_array();
    (void)snprintf(digest, sizeof digest, "%016" PRIx64, m->whole);
    for (int k = 0; k <= m->cut.parts; k++)
        (void)json_array_append_new(first, json_integer((json_int_t)m->cut.first[k]));
    (void)json_object_set_new(
        root, "cut", json_pack("{ss si so}", "dataset", digest, "part", m->cut.part, "first", first));
}
