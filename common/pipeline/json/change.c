/* change.c: changes of a JSON document: overlays and --set. */
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/json/json.h"

/* Is path at `top`, or below it? */
static bool is_below(const char *path, const char *top)
{
    size_t len = strlen(top);
    return strncmp(path, top, len) == 0 && (path[len] == '\0' || strchr(".[", path[len]) != NULL);
}

/* Forgets where the value at path, and what is in it, came from. */
static void forget(struct pst_json *doc, const char *path)
{
    size_t kept = 0;
    for (size_t i = 0; i < doc->nlines; i++)
        if (is_below(doc->lines[i].path, path))
            free(doc->lines[i].path);
        else
            doc->lines[kept++] = doc->lines[i];
    doc->nlines = kept;
}

/* ---- overlays ------------------------------------------------------------------------------------ */

/* An overlay on its way into a document. */
struct merge {
    struct pst_json *doc;
    const struct pst_json *over;
    struct pst_diag *diag;
};

/* The value at `path` of the document is now what is at `from` of the overlay. */
static void take_lines(const struct merge *m, const char *path, const char *from)
{
    char at[PST_JSON_PATH_MAX];
    forget(m->doc, path);
    for (size_t i = 0; i < m->over->nlines; i++) {
        struct pst_json_line line = m->over->lines[i];
        line.source = m->doc->noverlays;
        if (is_below(line.path, from) &&
            snprintf(at, sizeof at, "%s%s", path, line.path + strlen(from)) < (int)sizeof at)
            pst_json_record(m->doc, at, line);
    }
}

static void merge_into(const struct merge *m, json_t *into, json_t *from, const char *path, const char *over);

/* A key of an object over a list: the number of an element, or one more. */
static bool is_index(const char *key, const json_t *list, size_t *index)
{
    *index = strtoul(key, NULL, 10);
    return key[0] && key[strspn(key, "0123456789")] == '\0' && *index <= json_array_size(list);
}

/* Lists by name: over a list of numbers, they are another form of the same value, and replace it. */
static bool is_lists_by_name(const json_t *value, const json_t *list)
{
    const char *key;
    json_t *member;
    if (!json_is_array(list) || json_object_size(value) == 0 ||
        (json_array_size(list) > 0 && !json_is_number(json_array_get(list, 0))))
        return false;
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        if (!json_is_array(member))
            return false;
    }
    return true;
}

static void merge_member(const struct merge *m, json_t *into, const char *key, json_t *value,
                         const char *path, const char *over)
{
    char at[PST_JSON_PATH_MAX], from[PST_JSON_PATH_MAX];
    size_t index = 0;
    const bool list = json_is_array(into);
    (void)snprintf(from, sizeof from, "%s%s%s", over, over[0] ? "." : "", key);
    if (list && !is_index(key, into, &index)) {
        pst_json_error(m->over, m->diag, from,
                       "expected the index of a list element, from 0 to %zu, found \"%s\"",
                       json_array_size(into), key);
        return;
    }
    (void)snprintf(at, sizeof at, list ? "%s[%s]" : path[0] ? "%s.%s" : "%s%s", path, key);
    json_t *old = list ? json_array_get(into, index) : json_object_get(into, key);
    if ((json_is_object(old) || json_is_array(old)) && json_is_object(value) &&
        !is_lists_by_name(value, old)) {
        merge_into(m, old, value, at, from);
        return;
    }
    if (!list)
        (void)json_object_set(into, key, value);
    else if (old)
        (void)json_array_set(into, index, value);
    else
        (void)json_array_append(into, value);
    take_lines(m, at, from);
}

/* Merges an object of the overlay, at path `over`, into an object or a list of the document, at `path`. */
static void merge_into(const struct merge *m, json_t *into, json_t *from, const char *path, const char *over)
{
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value)
    {
        merge_member(m, into, key, value, path, over);
    }
}

bool pst_json_overlay(struct pst_json *doc, const char *file, struct pst_diag *diag)
{
    struct pst_json over;
    if (doc->noverlays == PST_JSON_OVERLAYS_MAX) {
        pst_diag_add(diag, file, 0, NULL, "too many overlays: at most %d are allowed", PST_JSON_OVERLAYS_MAX);
        return false;
    }
    bool ok = pst_json_load(&over, file, diag);
    if (ok) {
        const struct merge m = {doc, &over, diag};
        const size_t before = diag->count;
        doc->overlay[doc->noverlays++] = strdup(file);
        merge_into(&m, doc->root, over.root, "", "");
        ok = diag->count == before;
    }
    pst_json_release(&over);
    return ok;
}

/* ---- --set --------------------------------------------------------------------------------------- */

/* A step of a path: a key, or an index into a list. */
struct step {
    char key[PST_JSON_PATH_MAX];
    size_t index;
    bool is_index;
};

/* Reads the step at `at`. Returns what follows it; NULL: it is malformed. */
static const char *read_step(const char *at, struct step *step)
{
    step->is_index = *at == '[';
    if (step->is_index) {
        const size_t digits = strspn(at + 1, "0123456789");
        step->index = strtoul(at + 1, NULL, 10);
        at += 1 + digits;
        if (digits == 0 || *at != ']' || (at[1] && !strchr(".[", at[1])))
            return NULL;
        at++;
    } else {
        const size_t len = strcspn(at, ".[");
        if (len == 0 || len >= PST_JSON_PATH_MAX)
            return NULL;
        memcpy(step->key, at, len);
        step->key[len] = '\0';
        at += len;
    }
    if (*at != '.')
        return at;
    return at[1] ? at + 1 : NULL;
}

static bool put(json_t *at, const struct step *step, json_t *value)
{
    if (!step->is_index)
        return json_object_set(at, step->key, value) == 0;
    return step->index == json_array_size(at) ? json_array_append(at, value) == 0
                                              : json_array_set(at, step->index, value) == 0;
}

/* What is at a step; an object is made if nothing is there. NULL: nothing can be there. */
static json_t *enter(json_t *at, const struct step *step)
{
    json_t *child = step->is_index ? json_array_get(at, step->index) : json_object_get(at, step->key);
    if (child || step->is_index || !json_is_object(at))
        return child;
    child = json_object();
    return json_object_set_new(at, step->key, child) == 0 ? child : NULL; /* not UTF-8: child is gone */
}

static bool set_at(json_t *at, const char *path, json_t *value)
{
    struct step step;
    while (at && (path = read_step(path, &step))) {
        if (*path == '\0')
            return put(at, &step, value);
        at = enter(at, &step);
    }
    return false;
}

/* The value at path came from --set, and so did the objects on the way that were made for it. */
static void mark(struct pst_json *doc, const char *path)
{
    const struct pst_json_line set = {.source = PST_JSON_SET};
    char part[PST_JSON_PATH_MAX];
    forget(doc, path);
    for (const char *end = path; *end; end++) {
        end += strcspn(end + 1, ".[");
        (void)snprintf(part, sizeof part, "%.*s", (int)(end + 1 - path), path);
        bool known = false;
        for (size_t i = 0; i < doc->nlines; i++)
            known = known || strcmp(doc->lines[i].path, part) == 0;
        if (!known)
            pst_json_record(doc, part, set);
    }
}

bool pst_json_set(struct pst_json *doc, const char *assignment, struct pst_diag *diag)
{
    const char *eq = strchr(assignment, '=');
    if (!eq || eq == assignment || eq - assignment >= PST_JSON_PATH_MAX) {
        pst_diag_add(diag, "--set", 0, assignment, "expected PATH=VALUE, for example params.batch=512");
        return false;
    }
    char path[PST_JSON_PATH_MAX];
    (void)snprintf(path, sizeof path, "%.*s", (int)(eq - assignment), assignment);
    json_t *value = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
    if (!value)
        value = json_string(eq + 1);
    bool ok = value && set_at(doc->root, path, value);
    if (!value)
        pst_diag_add(diag, "--set", 0, assignment, "the value is not valid UTF-8");
    else if (!ok)
        pst_diag_add(diag, "--set", 0, assignment, "the pipeline has no member %s", path);
    json_decref(value);
    if (ok)
        mark(doc, path);
    return ok;
}
