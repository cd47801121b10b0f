/* algorithms.c: finds a sampling algorithm, reads its options and opens it. */
#include "stages/lib/sampling/algorithms/algorithms.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* ---- finding -------------------------------------------------------------------------------------- */

#define TEXT(name) #name ", "
#define KNOWN PST_SAMPLING_ALGORITHMS(TEXT) "or the path of a shared object, for example ./mine.so"

static pst_rc load(struct pst_sampling_opened *opened, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return pst_fail(PST_E_ARG, "algorithm: cannot load %s: %s", path, dlerror());
    opened->library = library;
    const struct pst_sampling_algorithm *found = dlsym(library, "pst_sampling_algorithm");
    const char *wrong = found == NULL                    ? "the symbol pst_sampling_algorithm is missing"
                        : found->abi != PST_SAMPLING_ABI ? "it was built for another version of Penstock"
                        : found->name == NULL || found->draw == NULL
                            ? "its name or its function draw is missing"
                            : NULL;
    if (wrong != NULL)
        return pst_fail(PST_E_ARG, "algorithm: %s is not a sampling algorithm: %s", path, wrong);
    opened->algorithm = found;
    return PST_OK;
}

pst_rc pst_sampling_algorithm_find(struct pst_sampling_opened *opened, const char *name)
{
#define ENTRY(name_) &pst_sampling_##name_,
    static const struct pst_sampling_algorithm *const table[] = {PST_SAMPLING_ALGORITHMS(ENTRY) NULL};
#undef ENTRY
    *opened = (struct pst_sampling_opened){.algorithm = NULL};
    for (size_t i = 0; table[i] != NULL; i++)
        if (strcmp(table[i]->name, name) == 0)
            opened->algorithm = table[i];
    if (opened->algorithm != NULL)
        return PST_OK;
    if (strchr(name, '/') == NULL)
        return pst_fail(PST_E_ARG, "algorithm: unknown algorithm \"%s\"; expected " KNOWN, name);
    const pst_rc rc = load(opened, name);
    if (rc != PST_OK)
        pst_sampling_algorithm_close(opened);
    return rc;
}

#define OPTIONS_BYTES 256

/* ---- options -------------------------------------------------------------------------------------- */

static void list_options(const struct pst_sampling_option *options, char *out, size_t bytes)
{
    size_t at = (size_t)snprintf(out, bytes, "%s", options == NULL ? "none" : "");
    for (const struct pst_sampling_option *o = options; o != NULL && o->name != NULL && at < bytes; o++) {
        const char *between = o == options ? "" : ", ";
        at += o->type == PST_PARAM_ENUM ? (size_t)snprintf(out + at, bytes - at, "%s%s (%s; %s)", between,
                                                           o->name, o->choices, o->help)
                                        : (size_t)snprintf(out + at, bytes - at, "%s%s (%g to %g; %s)",
                                                           between, o->name, o->min, o->max, o->help);
    }
}

/* One of the names in "one|another". */
static bool set_enum(void *state, const struct pst_sampling_option *o, const char *text)
{
    const size_t length = strlen(text);
    const char *at = o->choices;
    for (int i = 0; at != NULL; i++) {
        const char *end = strchrnul(at, '|');
        if ((size_t)(end - at) == length && memcmp(at, text, length) == 0) {
            memcpy((char *)state + o->into, &i, sizeof i);
            return true;
        }
        at = *end == '|' ? end + 1 : NULL;
    }
    return false;
}

/* "512:256": the numbers, if each is whole and in range. */
static bool set_ints(void *state, const struct pst_sampling_option *o, const char *text)
{
    struct pst_ints ints = {0};
    char *end = NULL;
    for (; ints.count < PST_INTS_MAX; text = end + 1) {
        const long long value = strtoll(text, &end, 10);
        if (end == text || (double)value < o->min || (double)value > o->max)
            return false;
        ints.value[ints.count++] = value;
        if (*end == '\0') {
            memcpy((char *)state + o->into, &ints, sizeof ints);
            return true;
        }
        if (*end != ':')
            return false;
    }
    return false;
}

static void set_option(void *state, const struct pst_sampling_option *o, double value)
{
    char *into = (char *)state + o->into;
    const int64_t whole = (int64_t)value;
    const int index = (int)value;
    const bool yes = value != 0;
    if (o->type == PST_PARAM_REAL)
        memcpy(into, &value, sizeof value);
    else if (o->type == PST_PARAM_INT)
        memcpy(into, &whole, sizeof whole);
    else if (o->type == PST_PARAM_ENUM)
        memcpy(into, &index, sizeof index);
    else
        memcpy(into, &yes, sizeof yes);
}

/* "true" and "false" are numbers too. */
static bool parse_value(const char *text, double *value)
{
    char *end = NULL;
    *value = strcmp(text, "true") == 0 ? 1 : strcmp(text, "false") == 0 ? 0 : strtod(text, &end);
    return end == NULL || (end != text && *end == '\0' && isfinite(*value));
}

/* One "NAME=VALUE". */
static pst_rc read_option(const struct pst_sampling_opened *opened, char *text)
{
    const struct pst_sampling_algorithm *a = opened->algorithm;
    char *equals = strchr(text, '='), listed[1024];
    double value = 0;
    const struct pst_sampling_option *o = a->options;
    if (equals != NULL)
        *equals = '\0';
    while (o != NULL && o->name != NULL && strcmp(o->name, text) != 0)
        o++;
    list_options(a->options, listed, sizeof listed);
    if (o == NULL || o->name == NULL)
        return pst_fail(PST_E_ARG, "options: the algorithm %s has no option \"%s\"; its options are: %s",
                        a->name, text, listed);
    const bool ints = o->type == PST_PARAM_INTS, named = o->type == PST_PARAM_ENUM;
    if (equals != NULL && ((ints && set_ints(opened->state, o, equals + 1)) ||
                           (named && set_enum(opened->state, o, equals + 1))))
        return PST_OK;
    if (ints || named || equals == NULL || !parse_value(equals + 1, &value) || value < o->min ||
        value > o->max || (o->type != PST_PARAM_REAL && value != floor(value)))
        return pst_fail(
            PST_E_ARG,
            "options: \"%s%s%s\" is not a valid value of %s; the options of the algorithm %s are: %s", text,
            equals ? "=" : "", equals ? equals + 1 : "", text, a->name, listed);
    set_option(opened->state, o, value);
    return PST_OK;
}

static pst_rc read_options(const struct pst_sampling_opened *opened, const char *options)
{
    char text[OPTIONS_BYTES], *rest = text, *one;
    const struct pst_sampling_option *o = opened->algorithm->options;
    for (; o != NULL && o->name != NULL; o++)
        if (o->type != PST_PARAM_INTS) /* the state is zeroed */
            set_option(opened->state, o, o->def);
    if (snprintf(text, sizeof text, "%s", options) >= (int)sizeof text)
        return pst_fail(PST_E_LIMIT, "the parameter options is longer than %d bytes, which is the limit",
                        OPTIONS_BYTES - 1);
    pst_rc rc = PST_OK;
    while (rc == PST_OK && (one = strsep(&rest, ",")) != NULL) {
        one += strspn(one, " ");
        one[strcspn(one, " ")] = '\0';
        rc = *one != '\0' ? read_option(opened, one) : PST_OK;
    }
    return rc;
}

/* ---- opening -------------------------------------------------------------------------------------- */

pst_rc pst_sampling_algorithm_open(struct pst_sampling_opened *opened, const char *options,
                                   const struct pst_sampling_setup *setup)
{
    const struct pst_sampling_algorithm *a = opened->algorithm;
    opened->state = calloc(1, a->state_bytes + 1);
    opened->owned = true;
    if (opened->state == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of the algorithm %s", a->name);
    pst_rc rc = read_options(opened, options);
    if (rc == PST_OK && a->open != NULL)
        rc = a->open(opened->state, setup);
    return rc == PST_OK ? rc : pst_wrap(rc, "the sampling algorithm %s", a->name);
}

void pst_sampling_algorithm_close(struct pst_sampling_opened *opened)
{
    if (opened->owned && opened->state != NULL) {
        if (opened->algorithm->close != NULL)
            opened->algorithm->close(opened->state);
        free(opened->state);
    }
    if (opened->library != NULL)
        (void)dlclose(opened->library);
    *opened = (struct pst_sampling_opened){.algorithm = NULL};
}

/* ---- bounds --------------------------------------------------------------------------------------- */

/* A vertex gets at most `fanout` neighbours. */
static struct pst_sampling_bound usual_bound(const struct pst_csc *graph, int64_t fanout, int64_t n)
{
    const int64_t edges = fanout < 0 ? graph->edges : n * fanout;
    return (struct pst_sampling_bound){.edges = edges, .vertices = n + edges};
}

void pst_sampling_size_bound(struct pst_minibatch_size *size, const struct pst_sampling_opened *opened,
                             const struct pst_csc *graph, const int64_t *fanout, int hops, int64_t batch)
{
    const struct pst_sampling_algorithm *a = opened->algorithm;
    const int64_t everyone = pst_max_i64(1, pst_min_i64(graph->vertices, PST_MINIBATCH_COUNT_MAX));
    assert(hops >= 1 && hops <= PST_HOPS_MAX && batch >= 1);
    *size = (struct pst_minibatch_size){.hops = hops,
                                        .weights = pst_sampling_has(opened, PST_SAMPLING_WEIGHS),
                                        .relations = pst_sampling_has(opened, PST_SAMPLING_TYPED)};
    size->n[0] = pst_min_i64(batch, everyone);
    for (int h = 0; h < hops; h++) {
        const struct pst_sampling_bound b = a->bound != NULL
                                                ? a->bound(opened->state, graph, h, fanout[h], size->n[h])
                                                : usual_bound(graph, fanout[h], size->n[h]);
        size->edges[h] = pst_max_i64(1, pst_min_i64(b.edges, PST_MINIBATCH_COUNT_MAX));
        size->n[h + 1] = pst_max_i64(size->n[h], pst_min_i64(everyone, b.vertices));
    }
}
