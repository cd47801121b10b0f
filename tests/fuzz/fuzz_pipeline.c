/* Pipelines: checked, built and drawn, with stages that this file brings. Behind the JSON can follow a line
 * "+" and an overlay, and then a line "#PATH=VALUE", a --set. No program is started and no shared object is
 * looked for. */
#include <string.h>

#include "common/pipeline/desc/caps_impl.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/desc/builtin.h"
#include "common/error.h"
#include "common/pipeline/graph.h"
#include "tests/fuzz/fuzz.h"

#define PARAM(n, t, d, ...)                                                                                  \
    {                                                                                                        \
        .name = n, .type = t, .def = d, .help = n, __VA_ARGS__                                               \
    }
#define PARAMS                                                                                               \
    PARAM("n", PST_PARAM_INT, "3", .min = 1, .max = 100), PARAM("r", PST_PARAM_REAL, "0.5", .max = 1),       \
        PARAM("b", PST_PARAM_BYTES, "\"4KiB\"", .max = 1e9),                                                 \
        PARAM("e", PST_PARAM_ENUM, "\"x\"", .choices = "x|y|z"),                                             \
        PARAM("l", PST_PARAM_INTS, "[1]", .min = -1, .max = 9, .count_max = 3),                              \
        PARAM("t", PST_PARAM_BOOL, "true"), PARAM("s", PST_PARAM_STRING, "\"\"", .needed_if = "e=z")
static const struct pst_param_desc params[] = {PARAMS, {0}};
static const struct pst_param_desc sink_params[] = {PARAMS,
                                                    PARAM("k", PST_PARAM_INT, "1", .equals = "count(in.l)"),
                                                    PARAM("q", PST_PARAM_INT, "3", .equals = "in.n"),
                                                    {0}};
#define PORT(n, d, ...)                                                                                      \
    {                                                                                                        \
        .name = n, .dir = d, .help = n, .type = "any", .dtype = "any", .rank = -1, .memory = "cpu",          \
        __VA_ARGS__                                                                                          \
    }
static const struct pst_port_desc source[] = {
    PORT("out", PST_OUT, .splits_if = "t=true", .requests = PST_REQUESTS_MAKES),
    PORT("more", PST_OUT, .flags = PST_PORT_OPTIONAL),
    {0}};
static const struct pst_port_desc middle[] = {
    PORT("in", PST_IN, .flags = PST_PORT_WRITES), PORT("out", PST_OUT, .forwards = "in"), {0}};
static const struct pst_port_desc sink[] = {PORT("in", PST_IN, .hold_param = "n", .whole_if = "e=y",
                                                 .requests = PST_REQUESTS_NEEDS, .flags = PST_PORT_ORDERED),
                                            {0}};
static const struct pst_port_desc once[] = {PORT("in", PST_IN, .flags = PST_PORT_ONESHOT | PST_PORT_OPTIONAL),
                                            PORT("out", PST_OUT, .flags = PST_PORT_ONESHOT),
                                            {0}};
static const struct pst_port_desc copies[] = {
    PORT("in", PST_IN, .flags = PST_PORT_ORDERED), PORT("out", PST_OUT, .flags = PST_PORT_RETURNS), {0}};
#define STAGE(n, p)                                                                                          \
    {                                                                                                        \
        .abi = PST_STAGE_ABI, .name = #n, .help = #n, .ports = n, .params = p                                \
    }
static const struct pst_stage_desc stages[] = {
    STAGE(source, params),
    STAGE(middle, params),
    STAGE(sink, sink_params),
    STAGE(once, params),
    {.abi = PST_STAGE_ABI, .name = PST_BUILTIN_COPY, .help = "copies", .ports = copies}};

const struct pst_stage_desc *pst_builtin(const char *name)
{
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        if (strcmp(stages[i].name, name) == 0)
            return &stages[i];
    return NULL;
}

pst_rc pst_caps_load_foreign(struct pst_caps *caps)
{
    return pst_fail(PST_E_UNSUPPORTED, "%s is not run here", caps->file);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        fuzz_check(pst_desc_check(&stages[i], stages[i].name) == PST_OK);
    fuzz_check(setenv("PENSTOCK_STAGES", "/nonexistent", 1) == 0);
    return 0;
}

static struct fuzz_file file, overlay;
static struct pst_graph graph;

/* Cuts a last line that begins with '#' off the input. The caller frees it; NULL: there is none. */
static char *cut_set(const uint8_t *data, size_t *bytes)
{
    const uint8_t *mark = *bytes ? memrchr(data, '\n', *bytes) : NULL;
    if (!mark || mark + 1 == data + *bytes || mark[1] != '#')
        return NULL;
    char *set = strndup((const char *)mark + 2, *bytes - (size_t)(mark + 2 - data));
    *bytes = (size_t)(mark - data);
    return set;
}

/* Cuts the text behind a line "+" off the input and makes it the overlay. False: there is none. */
static bool cut_overlay(const uint8_t *data, size_t *bytes)
{
    const uint8_t *mark = memmem(data, *bytes, "\n+\n", 3);
    if (!mark)
        return false;
    fuzz_fill(&overlay, mark + 3, *bytes - (size_t)(mark + 3 - data));
    *bytes = (size_t)(mark - data);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pst_pipeline pl;
    struct pst_diag diag = {0};
    char *set = cut_set(data, &bytes), *over = overlay.path;
    const bool overlaid = cut_overlay(data, &bytes);
    fuzz_fill(&file, data, bytes);
    const struct pst_pipeline_options options = {.overlays = &over,
                                                 .noverlays = overlaid,
                                                 .sets = &set,
                                                 .nsets = set != NULL,
                                                 .group_all = bytes % 2 != 0};
    bool ok = pst_pipeline_load(&pl, file.path, &options, &diag);
    fuzz_check(ok == (diag.count == 0));
    if (ok && pst_graph_build(&graph, &pl, &diag)) {
        char *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);
        for (int f = PST_GRAPH_MERMAID; f <= PST_GRAPH_SVG; f++)
            pst_graph_draw(&graph, &pl, (enum pst_graph_format)f, out);
        fuzz_check(fclose(out) == 0);
        free(text);
    } else {
        fuzz_check(diag.count > 0);
    }
    pst_diag_release(&diag);
    pst_pipeline_release(&pl);
    free(set);
    return 0;
}
