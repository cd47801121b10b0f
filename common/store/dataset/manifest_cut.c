/* manifest_cut.c: a part of a cut dataset: which part it is, where all parts begin, and which dataset was
 * cut. Of the arrays, only the features have the part's rows alone. */
#include <inttypes.h>
#include <stdio.h>

#include "common/store/dataset/manifest_impl.h"

static const char *const keys[] = {"dataset", "part", "first", "first_edge"};

/* Where the parts begin, and where the last one ends. Returns how many parts there are. */
static int read_first(const json_t *cut, const char *key, int64_t first[PST_DATASET_PARTS_MAX + 1],
                      struct pst_problems *problems)
{
    const json_t *list = json_object_get(cut, key);
    const size_t n = json_array_size(list);
    if (n < 2 || n > PST_DATASET_PARTS_MAX + 1) {
        pst_problem(problems, "cut.%s: expected a list of 2 to %d numbers", key, PST_DATASET_PARTS_MAX + 1);
        return 0;
    }
    for (size_t k = 0; k < n; k++) {
        const json_t *item = json_array_get(list, k);
        const json_int_t v = json_integer_value(item);
        if (v < 0 || v > INT64_MAX / 16 || !json_is_integer(item))
            pst_problem(problems, "cut.%s[%zu]: expected a number of 0 or more", key, k);
        else
            first[k] = (int64_t)v;
    }
    return (int)n - 1;
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
    m->cut.parts = read_first(cut, "first", m->cut.first, problems);
    m->cut.part = (int)pst_manifest_read_count(cut, "part", PST_DATASET_PARTS_MAX - 1, problems);
    m->cut.lists = json_object_get(cut, "first_edge") != NULL;
    if (m->cut.lists && read_first(cut, "first_edge", m->cut.first_edge, problems) != m->cut.parts)
        pst_problem(problems, "cut.first_edge: expected as many numbers as in cut.first");
}

static bool is_part(const struct pst_dataset_cut *cut)
{
    return cut->parts > 0 && cut->part < cut->parts;
}

int64_t pst_manifest_feature_rows(const struct pst_manifest *m)
{
    const struct pst_dataset_cut *cut = &m->cut;
    return is_part(cut) ? cut->first[cut->part + 1] - cut->first[cut->part] : m->vertices;
}

int64_t pst_manifest_index_rows(const struct pst_manifest *m)
{
    const struct pst_dataset_cut *cut = &m->cut;
    return is_part(cut) && cut->lists ? cut->first_edge[cut->part + 1] - cut->first_edge[cut->part]
                                      : m->edges;
}

/* From 0 to all, and no part is empty. */
static void check_first(const char *key, const int64_t *first, int parts, const char *what, int64_t all,
                        struct pst_problems *problems)
{
    if (first[0] != 0 || first[parts] != all)
        pst_problem(problems,
                    "cut.%s: expected 0 first, and %" PRId64 " (the number of %s) last, found %" PRId64
                    " and %" PRId64,
                    key, all, what, first[0], first[parts]);
    for (int k = 0; k < parts; k++)
        if (first[k + 1] <= first[k])
            pst_problem(problems, "cut.%s[%d]: expected more than %" PRId64 ", found %" PRId64, key, k + 1,
                        first[k], first[k + 1]);
}

void pst_manifest_check_cut(const struct pst_manifest *m, struct pst_problems *problems)
{
    const struct pst_dataset_cut *cut = &m->cut;
    if (cut->parts == 0)
        return;
    if (cut->part >= cut->parts)
        pst_problem(problems, "cut.part: expected 0 to %d, found %d", cut->parts - 1, cut->part);
    check_first("first", cut->first, cut->parts, "vertices", m->vertices, problems);
    if (cut->lists)
        check_first("first_edge", cut->first_edge, cut->parts, "edges", m->edges, problems);
    if (m->vertex_types > 0 || m->stripes > 0 || m->feature_dim == 0)
        pst_problem(problems, "cut: expected features in one file, of vertices of one type");
}

static json_t *list_of(const int64_t *first, int parts)
{
    json_t *list = json_array();
    for (int k = 0; k <= parts; k++)
        (void)json_array_append_new(list, json_integer((json_int_t)first[k]));
    return list;
}

void pst_manifest_write_cut(const struct pst_manifest *m, json_t *root)
{
    char digest[17];
    (void)snprintf(digest, sizeof digest, "%016" PRIx64, m->whole);
    json_t *cut = json_pack("{ss si so}", "dataset", digest, "part", m->cut.part, "first",
                            list_of(m->cut.first, m->cut.parts));
    if (m->cut.lists)
        (void)json_object_set_new(cut, "first_edge", list_of(m->cut.first_edge, m->cut.parts));
    (void)json_object_set_new(root, "cut", cut);
}
