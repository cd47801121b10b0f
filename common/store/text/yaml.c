/* yaml.c: reads YAML with libyaml, within bounds, and finds values by key. */
#include "common/store/text/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "common/error.h"

static pst_rc vfail(const struct pst_yaml *y, yaml_mark_t mark, const char *text)
{
    return pst_fail(PST_E_FORMAT, "%s:%zu:%zu: %s", y->path, mark.line + 1, mark.column + 1, text);
}

pst_rc pst_yaml_fail(const struct pst_yaml *y, pst_yaml_node node, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return vfail(y, node->start_mark, text);
}

static yaml_node_t *node_of(const struct pst_yaml *y, int id)
{
    return yaml_document_get_node(y->document, id);
}

const char *pst_yaml_scalar(pst_yaml_node node)
{
    return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static int key_count(pst_yaml_node map)
{
    return (int)(map->data.mapping.pairs.top - map->data.mapping.pairs.start);
}

static pst_rc check_map(const struct pst_yaml *y, pst_yaml_node map)
{
    const yaml_node_pair_t *pair = map->data.mapping.pairs.start;
    int n = key_count(map);
    if (n > PST_YAML_KEYS_MAX)
        return pst_yaml_fail(y, map, "the map has %d keys; at most %d are allowed", n, PST_YAML_KEYS_MAX);
    for (int i = 0; i < n; i++) {
        pst_yaml_node key = node_of(y, pair[i].key);
        const char *text = pst_yaml_scalar(key);
        if (text == NULL)
            return pst_yaml_fail(y, key, "expected a string as the key");
        for (int k = 0; k < i; k++)
            if (strcmp(text, pst_yaml_scalar(node_of(y, pair[k].key))) == 0)
                return pst_yaml_fail(y, key, "'%.80s' occurs twice", text);
    }
    return PST_OK;
}

static pst_rc check_nodes(const struct pst_yaml *y)
{
    pst_yaml_node root = pst_yaml_root(y);
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return pst_fail(PST_E_FORMAT, "%s:1:1: expected a map of keys at the top level", y->path);
    for (const yaml_node_t *node = y->document->nodes.start; node < y->document->nodes.top; node++) {
        pst_rc rc = node->type == YAML_MAPPING_NODE ? check_map(y, node) : PST_OK;
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

/* libyaml's time grows with the square of how deep brackets are. */
static pst_rc check_brackets(const struct pst_yaml *y, FILE *f)
{
    int n = 0;
    for (int c = getc_unlocked(f); c != EOF; c = getc_unlocked(f))
        n += c == '[' || c == '{';
    rewind(f);
    return n <= PST_YAML_BRACKETS_MAX
               ? PST_OK
               : pst_fail(PST_E_LIMIT, "%s: the file has %d opening brackets [ and {; at most %d are allowed",
                          y->path, n, PST_YAML_BRACKETS_MAX);
}

static pst_rc parse(struct pst_yaml *y, FILE *f)
{
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot read it", y->path);
    yaml_parser_set_input_file(&parser, f);
    pst_rc rc = PST_OK;
    if (yaml_parser_load(&parser, y->document) == 0) {
        yaml_mark_t mark = parser.problem_mark;
        rc = vfail(y, mark, parser.problem != NULL ? parser.problem : "not YAML");
        if (parser.error == YAML_MEMORY_ERROR)
            rc = pst_fail(PST_E_NOMEM, "%s: out of memory: cannot read it", y->path);
        else if (parser.error == YAML_READER_ERROR)
            rc = pst_fail(PST_E_FORMAT, "%s: byte %zu: %s", y->path, parser.problem_offset,
                          parser.problem != NULL ? parser.problem : "not text");
        free(y->document); /* load has emptied it */
        y->document = NULL;
    }
    yaml_parser_delete(&parser);
    return rc;
}

pst_rc pst_yaml_load(struct pst_yaml *y, const char *path)
{
    struct stat st;
    *y = (struct pst_yaml){.document = NULL};
    if (strlen(path) >= sizeof y->path)
        return pst_fail(PST_E_LIMIT,
                        "the path of a YAML file has %zu bytes; at most %zu are allowed: %.80s...",
                        strlen(path), sizeof y->path - 1, path);
    memcpy(y->path, path, strlen(path) + 1);
    if (stat(path, &st) != 0)
        return pst_fail_errno("cannot open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > PST_YAML_BYTES_MAX)
        return pst_fail(PST_E_FORMAT, "%s: expected a file of at most %d bytes", path, PST_YAML_BYTES_MAX);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return pst_fail_errno("cannot open %s", path);
    y->document = calloc(1, sizeof *y->document);
    pst_rc rc = y->document != NULL ? check_brackets(y, f)
                                    : pst_fail(PST_E_NOMEM, "%s: out of memory: cannot read it", path);
    if (rc == PST_OK) {
        rc = parse(y, f);
    } else {
        free(y->document); /* there is nothing in it */
        y->document = NULL;
    }
    (void)fclose(f);
    return rc == PST_OK ? check_nodes(y) : rc;
}

void pst_yaml_close(struct pst_yaml *y)
{
    if (y->document != NULL)
        yaml_document_delete(y->document);
    free(y->document);
    *y = (struct pst_yaml){.document = NULL};
}

pst_yaml_node pst_yaml_root(const struct pst_yaml *y)
{
    return yaml_document_get_root_node(y->document);
}

/* null, ~ or nothing at all, without quotes. */
static bool is_null(pst_yaml_node node)
{
    const char *text = pst_yaml_scalar(node);
    return text != NULL && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

pst_yaml_node pst_yaml_get(const struct pst_yaml *y, pst_yaml_node map, const char *key)
{
    if (map == NULL || map->type != YAML_MAPPING_NODE)
        return NULL;
    const yaml_node_pair_t *pair = map->data.mapping.pairs.start;
    for (int i = 0; i < key_count(map); i++) {
        pst_yaml_node value = node_of(y, pair[i].value);
        if (strcmp(pst_yaml_scalar(node_of(y, pair[i].key)), key) == 0)
            return is_null(value) ? NULL : value;
    }
    return NULL;
}

int pst_yaml_count(pst_yaml_node list)
{
    return list != NULL && list->type == YAML_SEQUENCE_NODE
               ? (int)(list->data.sequence.items.top - list->data.sequence.items.start)
               : 0;
}

pst_yaml_node pst_yaml_at(const struct pst_yaml *y, pst_yaml_node list, int index)
{
    assert(index < pst_yaml_count(list));
    return node_of(y, list->data.sequence.items.start[index]);
}

pst_rc pst_yaml_text(const struct pst_yaml *y, pst_yaml_node map, const char *key, bool needed, char *out,
                     size_t room)
{
    pst_yaml_node value = pst_yaml_get(y, map, key);
    const char *text = pst_yaml_scalar(value);
    out[0] = '\0';
    if (value == NULL)
        return needed ? pst_yaml_fail(y, map, "the key %s is missing", key) : PST_OK;
    if (text == NULL || text[0] == '\0' || strlen(text) >= room || strlen(text) != value->data.scalar.length)
        return pst_yaml_fail(y, value, "%s: expected text of 1 to %zu bytes", key, room - 1);
    memcpy(out, text, strlen(text) + 1);
    return PST_OK;
}

pst_rc pst_yaml_int(const struct pst_yaml *y, pst_yaml_node map, const char *key, bool needed, int64_t low,
                    int64_t *out)
{
    pst_yaml_node value = pst_yaml_get(y, map, key);
    const char *text = pst_yaml_scalar(value);
    if (value == NULL)
        return needed ? pst_yaml_fail(y, map, "the key %s is missing", key) : PST_OK;
    char *end = NULL;
    errno = 0;
    long long n = text != NULL ? strtoll(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != '\0' || errno != 0 || n < low)
        return pst_yaml_fail(y, value, "%s: expected an integer of %" PRId64 " or more, found '%.40s'", key,
                             low, text != NULL ? text : "a list or a map");
    *out = n;
    return PST_OK;
}
