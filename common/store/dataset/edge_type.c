/* edge_type.c: finds the edge types (relations) of a dataset by the names that a user gives. */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/store.h"

enum {
    LISTED_MAX = 20, /* names in a message */
    LISTED_BYTES = 1024,
    OTHERS = -1, /* no name is for this relation; yet */
};

/* Of types; else of the relations of a knowledge graph; else their numbers. */
static void name_of(const struct pst_dataset *ds, int64_t r, char out[PST_NAME_MAX])
{
    const int64_t *at = ds->relation_names_at.map;
    const char *names = ds->relation_names.map;
    if (r < ds->edge_types)
        (void)snprintf(out, PST_NAME_MAX, "%s", ds->edge_type[r].name);
    else if (at != NULL && names != NULL && at[r] >= 0 && at[r + 1] >= at[r] &&
             at[r + 1] <= ds->relation_names.shape[0])
        (void)snprintf(out, PST_NAME_MAX, "%.*s", (int)pst_min_i64(at[r + 1] - at[r], PST_NAME_MAX - 1),
                       names + at[r]);
    else
        (void)snprintf(out, PST_NAME_MAX, "%lld", (long long)r);
}

/* Is `name` what stands between the colons of "author:writes:paper"? */
static bool is_middle(const char *whole, const char *name)
{
    const char *first = strchr(whole, ':'), *last = strrchr(whole, ':');
    return first != NULL && last > first && (size_t)(last - first - 1) == strlen(name) &&
           strncmp(first + 1, name, strlen(name)) == 0;
}

/* The names of relations: all, or those that `middle` or `chosen` is for. */
static const char *list_names(const struct pst_dataset *ds, const char *middle, const int32_t *chosen,
                              char out[LISTED_BYTES])
{
    char name[PST_NAME_MAX];
    size_t used = 0;
    int n = 0;
    out[0] = '\0';
    for (int64_t r = 0; r < ds->relations && used < LISTED_BYTES; r++) {
        name_of(ds, r, name);
        if ((middle != NULL && !is_middle(name, middle)) || (chosen != NULL && chosen[r] != OTHERS))
            continue;
        if (n++ == LISTED_MAX)
            used += (size_t)snprintf(out + used, LISTED_BYTES - used, ", ...");
        if (n <= LISTED_MAX)
            used += (size_t)snprintf(out + used, LISTED_BYTES - used, "%s%s", n > 1 ? ", " : "", name);
    }
    return out;
}

/* *relation: what the name means. */
static pst_rc find(const struct pst_dataset *ds, const char *name, int64_t *relation)
{
    char known[PST_NAME_MAX], list[LISTED_BYTES];
    int64_t middles = 0;
    for (int64_t r = 0; r < ds->relations; r++) {
        name_of(ds, r, known);
        if (strcmp(known, name) == 0) {
            *relation = r;
            return PST_OK;
        }
        if (is_middle(known, name) && middles++ == 0)
            *relation = r;
    }
    if (middles == 1)
        return PST_OK;
    if (middles > 1)
        return pst_fail(
            PST_E_ARG, "the dataset %s has %lld edge types that \"%.100s\" can mean: %s; give the whole name",
            ds->dir, (long long)middles, name, list_names(ds, name, NULL, list));
    return pst_fail(PST_E_ARG, "unknown edge type \"%.100s\"; the edge types of the dataset %s are: %s", name,
                    ds->dir, list_names(ds, NULL, NULL, list));
}

pst_rc pst_edge_type_match(const struct pst_dataset *ds, const char *const *name, size_t n, int32_t *chosen,
                           size_t *wrong)
{
    char list[LISTED_BYTES];
    int32_t others = OTHERS;
    bool all = true;
    *wrong = n;
    if (ds->relations == 0)
        return pst_fail(PST_E_ARG,
                        "numbers are given by edge type, but the edges of the dataset %s have no types: give "
                        "a plain list",
                        ds->dir);
    for (int64_t r = 0; r < ds->relations; r++)
        chosen[r] = OTHERS;
    for (size_t i = 0; i < n; i++) {
        int64_t r = 0;
        if (strcmp(name[i], "*") == 0) {
            others = (int32_t)i;
            continue;
        }
        *wrong = i;
        const pst_rc rc = find(ds, name[i], &r);
        if (rc != PST_OK)
            return rc;
        if (chosen[r] != OTHERS)
            return pst_fail(PST_E_ARG, "\"%.100s\" and \"%.100s\" are the same edge type: give one of them",
                            name[chosen[r]], name[i]);
        chosen[r] = (int32_t)i;
        *wrong = n;
    }
    for (int64_t r = 0; r < ds->relations && others == OTHERS; r++)
        all = all && chosen[r] != OTHERS;
    if (!all)
        return pst_fail(PST_E_ARG,
                        "no numbers are given for these edge types of the dataset %s: %s; name them, or give "
                        "\"*\", which stands for all others",
                        ds->dir, list_names(ds, NULL, chosen, list));
    for (int64_t r = 0; r < ds->relations; r++)
        chosen[r] = chosen[r] == OTHERS ? others : chosen[r];
    return PST_OK;
}
