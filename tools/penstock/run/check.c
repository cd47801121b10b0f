/* check.c: penstock check, graph and stages: they look at pipelines and stages, and start nothing. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ipc/gpus.h"
#include "common/machine/machine.h"
#include "common/run/mps.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/place.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/run/mpirun.h"
#include "tools/penstock/run/pipeline_options.h"
#include "tools/penstock/run/run_checks.h"

static const char *const formats[] = {[PST_GRAPH_MERMAID] = "mermaid",
                                      [PST_GRAPH_TEXT] = "text",
                                      [PST_GRAPH_DOT] = "dot",
                                      [PST_GRAPH_SVG] = "svg"};
#define MACHINE_HELP "  --machine FILE     check for the GPUs of a machine file instead of this machine's\n"
#define FORMATS (sizeof formats / sizeof *formats)

static bool read_format(const char *word, enum pst_graph_format *format)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (strcmp(word, formats[i]) == 0) {
            *format = (enum pst_graph_format)i;
            return true;
        }
    command_unknown("penstock graph: --format", "format", word, formats, FORMATS);
    return false;
}

/* Answers for the GPUs of a machine file from now on. False: the file is wrong, and its errors have been
 * printed. */
static bool assume_machine(const char *file)
{
    struct pst_diag diag = {0};
    struct pst_machine m;
    uint32_t peers[PST_GPUS_MAX] = {0};
    const bool good = pst_machine_load(&m, file, &diag);
    if (good && m.ndevices > PST_GPUS_MAX)
        pst_diag_add(&diag, file, 0, "devices", "expected at most %d devices, found %d", PST_GPUS_MAX,
                     m.ndevices);
    else if (good) {
        for (int i = 0; i < m.ndevices; i++)
            peers[i] = (uint32_t)m.device[i].links;
        pst_gpus_assume(m.ndevices, peers);
    }
    const bool ok = diag.count == 0;
    pst_diag_print(&diag);
    pst_diag_release(&diag);
    return ok;
}

static bool take_option(struct pipeline_options *options, int code, enum pst_graph_format *format)
{
    return code == 'f'   ? read_format(optarg, format)
           : code == 'm' ? assume_machine(optarg)
                         : pipeline_option(options, code, optarg);
}

/* Parses the options of check, and of graph if format is not NULL. 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct pipeline_options *options, const char *usage,
                 enum pst_graph_format *format)
{
    static const struct option of_graph[] = {{"format", required_argument, NULL, 'f'},
                                             {"machine", required_argument, NULL, 'm'},
                                             PIPELINE_OPTIONS,
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", format ? of_graph : of_graph + 1, NULL)) != -1) {
        if (c == 'h')
            printf("%s", usage);
        if (c == 'h' || !take_option(options, c, format)) {
            fprintf(stderr, "%s", c == 'h' ? "" : usage);
            return c == 'h' ? 1 : 3;
        }
    }
    if (optind < argc)
        return 0;
    fprintf(stderr, "%s", usage);
    return 3;
}

int cmd_check(int argc, char **argv)
{
    static const char usage[] =
        "usage: penstock check [OPTION]... FILE...\n"
        "Checks pipelines, and the dataset if there is one, and prints every error. Starts nothing.\n"
        "Shows where `auto` places stages, and why. Exit code 0: all can run, 2: not.\n\n" MACHINE_HELP
            PIPELINE_OPTIONS_HELP;
    struct pipeline_options options = {0};
    int end = parse(argc, argv, &options, usage, NULL);
    struct ranks ranks = {0, 1};
    bool wrong = false;
    if (end == 0 && ranks_find(&ranks) != PST_OK) {
        fprintf(stderr, "penstock check: %s\n", pst_error_text());
        end = 3;
    }
    options.ranks = ranks.ranks;
    for (int i = optind; i < argc && end == 0; i++) {
        struct pst_pipeline pl;
        struct pst_graph *graph = calloc(1, sizeof *graph);
        bool ok =
            graph && load_pipeline(&pl, graph, argv[i], &options) && named_dataset_suits(&pl, ranks.rank);
        if (ok) {
            printf("%s: ok, %d stage%s, %d route%s\n", argv[i], pl.nstages, pl.nstages == 1 ? "" : "s",
                   graph->nroutes, graph->nroutes == 1 ? "" : "s");
            pipeline_print_auto(&pl);
        }
        wrong = wrong || !ok;
        pst_pipeline_release(&pl);
        free(graph);
    }
    pipeline_options_release(&options);
    return end ? end - 1 : wrong ? 2 : 0;
}

int cmd_graph(int argc, char **argv)
{
    static const char usage[] = "usage: penstock graph [OPTION]... FILE\n"
                                "Draws a pipeline with its stages, places, routes, slots and copies.\n\n"
                                "  --format mermaid|text|dot|svg\n"
                                "                     how to draw it (default: mermaid): dot is for "
                                "Graphviz, svg for browsers\n" MACHINE_HELP PIPELINE_OPTIONS_HELP;
    struct pipeline_options options = {0};
    enum pst_graph_format format = PST_GRAPH_MERMAID;
    int end = parse(argc, argv, &options, usage, &format);
    bool ok = false;
    if (end == 0) {
        struct pst_pipeline pl;
        struct pst_graph *graph = calloc(1, sizeof *graph);
        char path[PST_PATH_MAX];
        ok = graph && load_pipeline(&pl, graph, argv[optind], &options);
        if (ok && !pst_mps_program(path, sizeof path))
            (void)pst_place_group(&pl);
        if (ok)
            pst_graph_draw(graph, &pl, format, stdout);
        pst_pipeline_release(&pl);
        free(graph);
    }
    pipeline_options_release(&options);
    return end ? end - 1 : ok ? 0 : 2;
}

static void describe(const struct pst_stage_desc *desc)
{
    printf("%s: %s\n", desc->name, desc->help);
    for (int i = 0; i < pst_desc_ports(desc); i++) {
        const struct pst_port_desc *p = &desc->ports[i];
        printf("  %-7s %-14s %s, %s, %s memory%s%s%s%s%s\n          %s\n",
               p->dir == PST_IN ? "input" : "output", p->name, p->type, p->dtype ? p->dtype : "any",
               p->memory, p->forwards ? ", forwards the slots of " : "", p->forwards ? p->forwards : "",
               p->flags & PST_PORT_ONESHOT ? ", one-shot" : "",
               p->flags & PST_PORT_NEEDED_ON_GPU ? ", optional on a CPU"
               : p->flags & PST_PORT_OPTIONAL    ? ", optional"
                                                 : "",
               p->flags & PST_PORT_ORDERED ? ", in batch order" : "", p->help);
    }
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        printf("  param   %-14s %s", p->name,
               p->type == PST_PARAM_ENUM ? p->choices : pst_desc_type_name(p->type));
        if (p->min < p->max)
            printf(", %.15g to %.15g", p->min, p->max);
        if (p->automatic)
            printf(" or \"auto\"");
        printf(p->def ? ", default %s\n" : ", required%s\n", p->def ? p->def : "");
        printf("          %s\n", p->help);
    }
}

static int list_stages(void)
{
    char **names;
    size_t n;
    if (pst_caps_list(&names, &n) != PST_OK) {
        fprintf(stderr, "penstock stages: %s\n", pst_error_text());
        return 1;
    }
    int status = 0;
    for (size_t i = 0; i < n; i++) {
        struct pst_caps caps;
        if (pst_caps_load(&caps, names[i], NULL) == PST_OK) {
            printf("%-16s %s\n", names[i], caps.desc->help);
        } else {
            printf("%-16s cannot be used: %s\n", names[i], pst_error_text());
            status = 1;
        }
        pst_caps_release(&caps);
        free(names[i]);
    }
    free(names);
    return status;
}

int cmd_stages(int argc, char **argv)
{
    static const char usage[] = "usage: penstock stages [--json] [NAME|PATH]\n"
                                "Lists the installed stages, or describes the ports and parameters of one.\n"
                                "  --json   describe it as JSON\n";
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool json = false;
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'j') {
            json = true;
        } else {
            fprintf(c == 'h' ? stdout : stderr, "%s", usage);
            return c == 'h' ? 0 : 2;
        }
    }
    if (optind == argc)
        return list_stages();
    struct pst_caps caps;
    int status = 0;
    if (pst_caps_load(&caps, argv[optind], ".") != PST_OK) {
        fprintf(stderr, "penstock stages: %s: %s\n", argv[optind], pst_error_text());
        status = 2;
    } else if (json) {
        json_t *j = pst_desc_json(caps.desc);
        (void)json_dumpf(j, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(j);
    } else {
        describe(caps.desc);
    }
    pst_caps_release(&caps);
    return status;
}
