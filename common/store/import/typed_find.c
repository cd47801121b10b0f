/* Which types there are, and which of them are wanted. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/file.h"
#include "common/store/import/typed.h"

pst_rc pst_typed_init(struct pst_typed *t, struct pst_import_job *job)
{
    *t = (struct pst_typed){.job = job, .types_otherwise = "all"};
    t->vertex = calloc(PST_MANIFEST_VERTEX_TYPES_MAX, sizeof *t->vertex);
    t->edge =
        calloc(PST_MANIFEST_EDGE_TYPES_MAX, sizeof *t->edge); /* pages that nobody touches cost nothing */
    return t->vertex != NULL && t->edge != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate types");
}

void pst_typed_release(struct pst_typed *t)
{
    free(t->vertex);
    free(t->edge);
}

static int find_vertex(const struct pst_typed *t, const char *name)
{
    for (int k = 0; k < t->vertex_types; k++)
        if (strcmp(t->vertex[k].name, name) == 0)
            return k;
    return -1;
}

pst_rc pst_typed_vertex(struct pst_typed *t, const char *name, int *type)
{
    *type = find_vertex(t, name);
    if (*type >= 0)
        return PST_OK;
    if (name[0] == '\0' || strlen(name) >= PST_NAME_MAX)
        return pst_fail(PST_E_LIMIT, "vertex type '%.80s': expected a name of 1 to %d bytes, found %zu", name,
                        PST_NAME_MAX - 1, strlen(name));
    if (t->vertex_types == PST_MANIFEST_VERTEX_TYPES_MAX)
        return pst_fail(PST_E_LIMIT, "vertex type '%.80s': a graph can have at most %d types of vertices",
                        name, PST_MANIFEST_VERTEX_TYPES_MAX);
    struct pst_typed_vertices *v = &t->vertex[ *type = t->vertex_types++];
    (void)snprintf(v->name, sizeof v->name, "%s", name);
    v->vertices = -1;
    return PST_OK;
}

pst_rc pst_typed_edge(struct pst_typed *t, const char *source, const char *relation, const char *target,
                      const char *path)
{
    char name[3 * PST_NAME_MAX + 8];
    (void)snprintf(name, sizeof name, "%.64s:%.64s:%.64s", source, relation, target);
    if (strlen(name) >= PST_NAME_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "edge type '%.80s': expected source, relation and target of at most %d bytes together, "
            "found %zu",
            name, PST_NAME_MAX - 1, strlen(name));
    if (t->edge_types == PST_MANIFEST_EDGE_TYPES_MAX)
        return pst_fail(PST_E_LIMIT, "edge type '%.80s': a graph can have at most %d types of edges", name,
                        PST_MANIFEST_EDGE_TYPES_MAX);
    if (strlen(path) >= sizeof t->edge->path)
        return pst_fail(PST_E_LIMIT, "edge type '%.80s': its path is longer than %zu bytes", name,
                        sizeof t->edge->path - 1);
    struct pst_typed_edges *e = &t->edge[t->edge_types];
    pst_rc rc = pst_typed_vertex(t, source, &e->source);
    if (rc == PST_OK)
        rc = pst_typed_vertex(t, target, &e->target);
    if (rc != PST_OK)
        return rc;
    (void)snprintf(e->name, sizeof e->name, "%s", name);
    (void)snprintf(e->path, sizeof e->path, "%s", path);
    t->edge_types++;
    return PST_OK;
}

/* "a__r__b" to its parts, in place. */
static bool split_name(char *name, const char *separator, char **relation, char **target)
{
    size_t n = strlen(separator);
    *relation = strstr(name, separator);
    *target = *relation != NULL ? strstr(*relation + n, separator) : NULL;
    if (*target == NULL || *relation == name)
        return false;
    **relation = **target = '\0';
    *relation += n;
    *target += n;
    return **relation != '\0' && **target != '\0';
}

pst_rc pst_typed_find(struct pst_typed *t, const char *dir, const char *separator)
{
    struct dirent **names;
    int n = scandir(dir, &names, NULL, alphasort);
    if (n < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? pst_fail(PST_E_ARG, "%s: the directory does not exist", dir)
                   : pst_fail_errno("cannot read %s", dir);
    pst_rc rc = PST_OK;
    for (int i = 0; i < n; i++) {
        char path[4096], *relation, *target;
        (void)snprintf(path, sizeof path, "%.3700s/%s/edge_index.npy", dir, names[i]->d_name);
        if (rc == PST_OK && access(path, F_OK) == 0 &&
            split_name(names[i]->d_name, separator, &relation, &target))
            rc = pst_typed_edge(t, names[i]->d_name, relation, target, path);
        free(names[i]);
    }
    free(names);
    return rc;
}

/* ---- which types ---- */

static bool is_named(const char *list, const char *name)
{
    size_t n = strlen(name);
    if (strcmp(list, "all") == 0)
        return true;
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    }
    return false;
}

/* Every word of the list must be a type. */
static pst_rc check_list(const struct pst_typed *t, const char *list)
{
    char names[1024] = "";
    size_t used = 0;
    for (int k = 0; k < t->vertex_types && used < sizeof names; k++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", k > 0 ? ", " : "", t->vertex[k].name);
    for (const char *p = list; p != NULL && strcmp(list, "all") != 0; p = strchr(p, ',')) {
        p += *p == ',';
        char word[256];
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        if (find_vertex(t, word) < 0)
            return pst_fail(PST_E_ARG,
                            "--types: expected all, or some of %s, separated by commas; found '%s'", names,
                            word);
    }
    return PST_OK;
}

pst_rc pst_typed_select(struct pst_typed *t)
{
    bool said = t->job->types[0] != '\0';
    const char *list = said ? t->job->types : t->types_otherwise;
    char left_out[1024] = "";
    int place[PST_MANIFEST_VERTEX_TYPES_MAX], vertices = 0, edges = 0;
    size_t used = 0;
    pst_rc rc = check_list(t, list);
    if (rc != PST_OK)
        return rc;
    for (int k = 0; k < t->vertex_types; k++) {
        place[k] = is_named(list, t->vertex[k].name) ? vertices++ : -1;
        if (place[k] >= 0)
            t->vertex[place[k]] = t->vertex[k];
    }
    for (int k = 0; k < t->edge_types; k++) {
        struct pst_typed_edges *e = &t->edge[k];
        if (place[e->source] >= 0 && place[e->target] >= 0) {
            e->source = place[e->source];
            e->target = place[e->target];
            t->edge[edges++] = *e;
        } else if (used < sizeof left_out) {
            used += (size_t)snprintf(left_out + used, sizeof left_out - used, " %s", e->name);
        }
    }
    if (used > 0 && !said)
        pst_problem(&t->job->result->warnings,
                    "with --types %s, these were left out:%s (--types all imports everything)", list,
                    left_out);
    if (edges == 0)
        return pst_fail(PST_E_ARG, "%s: no edges connect vertices of the types %s", t->job->from, list);
    t->vertex_types = vertices;
    t->edge_types = edges;
    t->labelled = place[t->labelled];
    return PST_OK;
}

bool pst_typed_is_plain(const struct pst_typed *t)
{
    return !t->keep && t->vertex_types == 1 && t->edge_types == 1;
}

pst_rc pst_raw_look(const char *path, enum pst_dtype dtype, int64_t columns, struct pst_raw *raw)
{
    static const char magic[6] = "\x93NUMPY";
    char head[6] = "";
    uint64_t bytes;
    int fd;
    *raw = (struct pst_raw){.rank = 0};
    pst_rc rc = pst_file_open(path, &fd, &bytes);
    if (rc != PST_OK)
        return rc;
    ssize_t n = pread(fd, head, sizeof head, 0);
    (void)close(fd);
    if (n == sizeof head && memcmp(head, magic, sizeof head) == 0)
        return PST_OK;
    int64_t row = columns * (int64_t)pst_dtype_bytes(dtype);
    if (bytes == 0 || (int64_t)bytes % row != 0)
        return pst_fail(PST_E_FORMAT,
                        "%s: it has no NumPy header, and its %" PRIu64
                        " bytes are not a whole number of rows of %" PRId64 " %s: is it truncated?",
                        path, bytes, columns, pst_dtype_name(dtype));
    *raw = (struct pst_raw){
        .dtype = dtype, .rank = columns > 1 ? 2 : 1, .shape = {(int64_t)bytes / row, columns}};
    return PST_OK;
}
