/* schema.c: penstock schema: the JSON Schema of pipeline files. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/pipeline/desc/caps.h"
#include "common/pipeline/schema.h"
#include "tools/penstock/cli/commands.h"

/* The stages of the schema. run and desc of `stage` live in `caps`. */
struct known {
    struct pst_caps *caps;
    struct pst_pipeline_schema_stage *stage;
    size_t n;
};

static bool add_stage(struct known *known, const char *run)
{
    struct pst_caps *caps = &known->caps[known->n];
    if (pst_caps_load(caps, run, ".") != PST_OK) {
        fprintf(stderr, "penstock schema: %s: %s\n", run, pst_error_text());
        pst_caps_release(caps);
        return false;
    }
    known->stage[known->n++] = (struct pst_pipeline_schema_stage){.run = caps->run, .desc = caps->desc};
    return true;
}

/* The installed stages, and those of n paths. */
static bool load_stages(struct known *known, char *const *paths, size_t npaths)
{
    char **names;
    size_t n;
    if (pst_caps_list(&names, &n) != PST_OK) {
        fprintf(stderr, "penstock schema: %s\n", pst_error_text());
        return false;
    }
    known->caps = calloc(n + npaths, sizeof *known->caps);
    known->stage = calloc(n + npaths, sizeof *known->stage);
    bool ok = known->caps != NULL && known->stage != NULL;
    for (size_t i = 0; i < n; i++) {
        ok = ok && add_stage(known, names[i]);
        free(names[i]);
    }
    free(names);
    for (size_t i = 0; i < npaths && ok; i++)
        ok = add_stage(known, paths[i]);
    return ok;
}

static int print_schema(const struct known *known, bool settings)
{
    json_t *schema = pst_pipeline_schema(known->stage, known->n, settings);
    const bool ok = schema != NULL && json_dumpf(schema, stdout, JSON_INDENT(1)) == 0 &&
                    putchar('\n') != EOF && fflush(stdout) == 0;
    json_decref(schema);
    if (!ok)
        perror("penstock schema: cannot write the schema");
    return ok ? 0 : 1;
}

int cmd_schema(int argc, char **argv)
{
    static const char usage[] =
        "usage: penstock schema [--settings] [STAGE]...\n"
        "Prints a JSON Schema of pipeline files, for completion and checks in an editor. It is made of what "
        "the\n"
        "installed stages say of themselves. A STAGE is the path of another stage, written as pipelines name "
        "it.\n"
        "A pipeline names its schema as \"$schema\". `penstock check` finds what no schema can say, too.\n\n"
        "  --settings   the schema of files for --with, which may leave out anything\n";
    static const struct option options[] = {
        {"settings", no_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool settings = false;
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c != 's') {
            fprintf(c == 'h' ? stdout : stderr, "%s", usage);
            return c == 'h' ? 0 : 2;
        }
        settings = true;
    }
    struct known known = {0};
    const int status =
        load_stages(&known, argv + optind, (size_t)(argc - optind)) ? print_schema(&known, settings) : 2;
    for (size_t i = 0; i < known.n; i++)
        pst_caps_release(&known.caps[i]);
    free(known.caps);
    free(known.stage);
    return status;
}
