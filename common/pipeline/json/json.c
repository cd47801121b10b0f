/* json.c: reads a JSON file, and finds the line of each value and duplicate keys. */
#include "common/pipeline/json/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scanner {
    struct pst_json *doc;
    struct pst_diag *diag;
    const char *at, *end;
    int line;
    int depth;
    size_t nobjects; /* so far */
    char path[PST_JSON_PATH_MAX];
    size_t path_len;
};

#define SCAN_DEPTH_MAX 64 /* deeper than any pipeline; deeper values have the line of their ancestor */

/* ---- lines --------------------------------------------------------------------------------------- */

void pst_json_record(struct pst_json *doc, const char *path, struct pst_json_line line)
{
    if (doc->nlines >= PST_JSON_VALUES_MAX)
        return;
    if (doc->nlines == doc->cap) {
        size_t cap = doc->cap ? doc->cap * 2 : 64;
        struct pst_json_line *lines = realloc(doc->lines, cap * sizeof *lines);
        if (!lines)
            return;
        doc->lines = lines;
        doc->cap = cap;
    }
    line.path = strdup(path);
    if (line.path)
        doc->lines[doc->nlines++] = line;
}

/* The entry of path or of its nearest ancestor; NULL: there is none. */
static const struct pst_json_line *find_line(const struct pst_json *doc, const char *path)
{
    char key[PST_JSON_PATH_MAX];
    (void)snprintf(key, sizeof key, "%s", path);
    for (;;) {
        for (size_t i = 0; i < doc->nlines; i++)
            if (strcmp(doc->lines[i].path, key) == 0)
                return &doc->lines[i];
        char *dot = strrchr(key, '.'), *bracket = strrchr(key, '[');
        char *cut = dot > bracket ? dot : bracket;
        if (!cut)
            return NULL;
        *cut = '\0';
    }
}

struct pst_json_place pst_json_place(const struct pst_json *doc, const char *path)
{
    const struct pst_json_line *found = find_line(doc, path);
    if (!found)
        return (struct pst_json_place){.file = doc->file, .line = path[0] ? 1 : 0};
    if (found->source == PST_JSON_SET)
        return (struct pst_json_place){.file = "--set", .source = PST_JSON_SET};
    return (struct pst_json_place){.file = found->source == 0 ? doc->file : doc->overlay[found->source - 1],
                                   .source = found->source,
                                   .line = found->line};
}

void pst_json_error(const struct pst_json *doc, struct pst_diag *diag, const char *path, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct pst_json_place place = pst_json_place(doc, path);
    pst_diag_add(diag, place.file, place.line, path, "%s", text);
}

/* ---- scanning ------------------------------------------------------------------------------------ */

static void skip_space(struct scanner *s)
{
    for (; s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at; s->at++)
        s->line += *s->at == '\n';
}

/* Returns the raw contents of a string. jansson has accepted the text, so the string ends. */
static const char *scan_string(struct scanner *s, size_t *len)
{
    const char *begin = ++s->at;
    while (s->at < s->end && *s->at != '"')
        s->at += *s->at == '\\' ? 2 : 1;
    *len = (size_t)(s->at - begin);
    s->at++;
    return begin;
}

/* Adds a step to the path. False: there is no room, and the path is unchanged. */
static bool push(struct scanner *s, const char *fmt, const char *key, size_t len, size_t index)
{
    size_t room = sizeof s->path - s->path_len;
    char *at = s->path + s->path_len;
    int n = key ? snprintf(at, room, fmt, (int)len, key) : snprintf(at, room, "[%zu]", index);
    bool fits = n > 0 && (size_t)n < room;
    s->path_len += fits ? (size_t)n : 0;
    s->path[s->path_len] = '\0';
    return fits;
}

static void pop(struct scanner *s, size_t old)
{
    s->path_len = old;
    s->path[old] = '\0';
}

/* The key as jansson sees it ("\u0061" is a): the raw text, or a copy in out. */
static const char *plain_key(const char *raw, size_t *len, char out[PST_JSON_PATH_MAX])
{
    if (!memchr(raw, '\\', *len))
        return raw;
    json_t *key = json_loadb(raw - 1, *len + 2, JSON_DECODE_ANY, NULL);
    if (key && json_string_length(key) < PST_JSON_PATH_MAX) {
        *len = json_string_length(key);
        memcpy(out, json_string_value(key), *len);
        raw = out;
    }
    json_decref(key);
    return raw;
}

/* Reports the key at the end of the path if the object has had it before. */
static void check_duplicate(struct scanner *s, size_t object)
{
    struct pst_json *doc = s->doc;
    for (size_t i = 0; i < doc->nlines; i++)
        if (doc->lines[i].object == object && strcmp(doc->lines[i].path, s->path) == 0) {
            pst_diag_add(s->diag, doc->file, s->line, s->path, "duplicate key: it is already set in line %d",
                         doc->lines[i].line);
            return;
        }
}

static void scan_value(struct scanner *s);

static void scan_object(struct scanner *s)
{
    size_t object = ++s->nobjects;
    s->at++;
    for (;;) {
        skip_space(s);
        if (s->at >= s->end || *s->at == '}')
            break;
        if (*s->at == ',') {
            s->at++;
            continue;
        }
        size_t len, old = s->path_len;
        char plain[PST_JSON_PATH_MAX];
        const char *key = scan_string(s, &len);
        key = plain_key(key, &len, plain);
        if (push(s, s->path_len ? ".%.*s" : "%.*s", key, len, 0)) {
            check_duplicate(s, object);
            pst_json_record(s->doc, s->path, (struct pst_json_line){.line = s->line, .object = object});
        }
        skip_space(s);
        s->at++; /* ':' */
        scan_value(s);
        pop(s, old);
    }
    s->at++;
}

static void scan_array(struct scanner *s)
{
    s->at++;
    for (size_t index = 0;;) {
        skip_space(s);
        if (s->at >= s->end || *s->at == ']')
            break;
        if (*s->at == ',') {
            s->at++;
            index++;
            continue;
        }
        size_t old = s->path_len;
        if (push(s, NULL, NULL, 0, index))
            pst_json_record(s->doc, s->path, (struct pst_json_line){.line = s->line});
        scan_value(s);
        pop(s, old);
    }
    s->at++;
}

/* Skips a value without recording it. Brackets in strings do not count. */
static void skip_nested(struct scanner *s)
{
    int depth = 0;
    size_t len;
    do {
        skip_space(s);
        if (s->at >= s->end)
            return;
        if (*s->at == '"') {
            (void)scan_string(s, &len);
            continue;
        }
        depth += (*s->at == '{' || *s->at == '[') - (*s->at == '}' || *s->at == ']');
        s->at++;
    } while (depth > 0);
}

static void scan_value(struct scanner *s)
{
    skip_space(s);
    if (s->at >= s->end)
        return;
    size_t len;
    if (*s->at == '{' || *s->at == '[') {
        if (s->depth >= SCAN_DEPTH_MAX) {
            skip_nested(s);
            return;
        }
        s->depth++;
        if (*s->at == '{')
            scan_object(s);
        else
            scan_array(s);
        s->depth--;
    } else if (*s->at == '"') {
        (void)scan_string(s, &len);
    } else {
        while (s->at < s->end && !strchr(",]} \t\r\n", *s->at))
            s->at++;
    }
}

/* ---- reading ------------------------------------------------------------------------------------- */

bool pst_json_parse(struct pst_json *doc, const char *name, const char *text, size_t bytes,
                    struct pst_diag *diag)
{
    memset(doc, 0, sizeof *doc);
    doc->file = strdup(name);
    if (!doc->file) {
        pst_diag_add(diag, name, 0, NULL, "out of memory");
        return false;
    }
    const char *nul = memchr(text, '\0', bytes);
    if (nul) { /* jansson skips some of them, and then our lines would be wrong */
        int line = 1;
        for (const char *at = text; at < nul; at++)
            line += *at == '\n';
        pst_diag_add(diag, name, line, NULL, "not JSON: byte %td is zero", nul - text);
        return false;
    }
    json_error_t error;
    doc->root = json_loadb(text, bytes, 0, &error);
    if (!doc->root) {
        pst_diag_add(diag, name, error.line, NULL, "column %d: not JSON: %s", error.column, error.text);
        return false;
    }
    if (!json_is_object(doc->root)) {
        pst_diag_add(diag, name, 1, NULL, "expected an object, found %s", pst_json_kind(doc->root));
        return false;
    }
    struct scanner s = {.doc = doc, .diag = diag, .at = text, .end = text + bytes, .line = 1};
    scan_value(&s);
    if (doc->nlines >= PST_JSON_VALUES_MAX) {
        pst_diag_add(diag, name, s.line, NULL, "the file has too many values: at most %d are allowed",
                     PST_JSON_VALUES_MAX);
        return false;
    }
    return true;
}

bool pst_json_load(struct pst_json *doc, const char *file, struct pst_diag *diag)
{
    memset(doc, 0, sizeof *doc);
    FILE *f = fopen(file, "rbe");
    if (!f) {
        pst_diag_add(diag, file, 0, NULL, "cannot open: %s", strerror(errno));
        return false;
    }
    char *text = malloc(PST_JSON_MAX_BYTES + 1);
    bool ok = false;
    size_t n = text ? fread(text, 1, PST_JSON_MAX_BYTES + 1, f) : 0;
    if (!text)
        pst_diag_add(diag, file, 0, NULL, "out of memory");
    else if (ferror(f))
        pst_diag_add(diag, file, 0, NULL, "cannot read: %s", strerror(errno));
    else if (n > PST_JSON_MAX_BYTES)
        pst_diag_add(diag, file, 0, NULL, "the file is larger than %u bytes", PST_JSON_MAX_BYTES);
    else if (n == 0)
        pst_diag_add(diag, file, 1, NULL, "the file is empty: expected an object");
    else
        ok = pst_json_parse(doc, file, text, n, diag);
    free(text);
    (void)fclose(f);
    return ok;
}

void pst_json_release(struct pst_json *doc)
{
    for (size_t i = 0; i < doc->nlines; i++)
        free(doc->lines[i].path);
    free(doc->lines);
    free(doc->file);
    for (int i = 0; i < doc->noverlays; i++)
        free(doc->overlay[i]);
    json_decref(doc->root);
    memset(doc, 0, sizeof *doc);
}

const char *pst_json_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a real number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: return "null";
    }
    return "something else";
}
