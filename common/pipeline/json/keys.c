/* keys.c: reads objects by a table of their keys. */
#include "common/pipeline/json/keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const struct pst_json *doc;
    struct pst_diag *diag;
    const char *path; /* of the value */
};

void pst_json_join(char out[PST_JSON_PATH_MAX], const char *path, const char *key)
{
    (void)snprintf(out, PST_JSON_PATH_MAX, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
}

static void read_number(const struct reader *r, const struct pst_json_key *k, const json_t *value)
{
    const double number = json_number_value(value);
    const char *least = k->zero ? "of at least 0" : "above 0";
    if (!json_is_number(value))
        pst_json_error(r->doc, r->diag, r->path, "expected a number, found %s", pst_json_kind(value));
    else if (!isfinite(number) || number < 0 || (number <= 0 && !k->zero))
        pst_json_error(r->doc, r->diag, r->path, "expected a number %s, found %g", least, number);
    else
        *(double *)k->to = number;
}

static void read_count(const struct reader *r, const struct pst_json_key *k, const json_t *value)
{
    const int low = k->zero ? 0 : 1;
    const json_int_t found = json_integer_value(value);
    if (!json_is_integer(value))
        pst_json_error(r->doc, r->diag, r->path, "expected an integer from %d to %d, found %s", low, k->most,
                       pst_json_kind(value));
    else if (found < low || found > k->most)
        pst_json_error(r->doc, r->diag, r->path, "expected an integer from %d to %d, found %lld", low,
                       k->most, (long long)found);
    else
        *(int *)k->to = (int)found;
}

static void read_value(const struct reader *r, const struct pst_json_key *k, json_t *value)
{
    switch (k->kind) {
    case PST_JSON_NUMBER: read_number(r, k, value); return;
    case PST_JSON_COUNT: read_count(r, k, value); return;
    case PST_JSON_TEXT:
        if (json_is_string(value))
            *(const char **)k->to = json_string_value(value);
        else
            pst_json_error(r->doc, r->diag, r->path, "expected a string, found %s", pst_json_kind(value));
        return;
    case PST_JSON_OBJECT:
    case PST_JSON_ARRAY:
        if (k->kind == PST_JSON_OBJECT ? json_is_object(value) : json_is_array(value))
            *(json_t **)k->to = value;
        else if (k->kind == PST_JSON_OBJECT)
            pst_json_error(r->doc, r->diag, r->path, "expected an object, found %s", pst_json_kind(value));
        else
            pst_json_error(r->doc, r->diag, r->path, "expected a list, found %s", pst_json_kind(value));
        return;
    }
}

static void tell_unknown(const struct reader *r, const char *name, const struct pst_json_key *keys, size_t n)
{
    const char *names[PST_JSON_KEYS_MAX];
    for (size_t i = 0; i < n; i++)
        names[i] = keys[i].name;
    const char *nearest = pst_diag_nearest(name, names, n);
    pst_json_error(r->doc, r->diag, r->path, "unknown key%s%s%s", nearest != NULL ? "; did you mean \"" : "",
                   nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
}

void pst_json_keys(const struct pst_json *doc, struct pst_diag *diag, const json_t *object, const char *path,
                   const struct pst_json_key *keys, size_t n)
{
    char at[PST_JSON_PATH_MAX];
    const struct reader r = {.doc = doc, .diag = diag, .path = at};
    const char *name;
    json_t *value;
    assert(n <= PST_JSON_KEYS_MAX);
    json_object_foreach((json_t *)object, name, value)
    {
        size_t i = 0;
        while (i < n && strcmp(keys[i].name, name) != 0)
            i++;
        pst_json_join(at, path, name);
        if (i < n)
            read_value(&r, &keys[i], value);
        else
            tell_unknown(&r, name, keys, n);
    }
    for (size_t i = 0; i < n; i++)
        if (keys[i].needed && json_object_get(object, keys[i].name) == NULL)
            pst_json_error(doc, diag, path, "the key \"%s\" is missing", keys[i].name);
}
