/* main.c: the table of subcommands. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/util/signals.h"
#include "common/util/file.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/cli/usage.h"

/* A run that trains embeddings has checkpoints; a dataset has not. */
static int export_any(int argc, char **argv)
{
    char path[PST_PATH_MAX];
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-' && snprintf(path, sizeof path, "%s/checkpoints", argv[i]) < (int)sizeof path &&
            access(path, F_OK) == 0)
            return cmd_export_run(argc, argv);
    return cmd_export(argc, argv);
}

/* A prediction of what an order would save has options of its own. */
static int inspect_any(int argc, char **argv)
{
    bool reorder = false, help = false;
    for (int i = 1; i < argc; i++) {
        reorder = reorder || strncmp(argv[i], "--reorder", sizeof "--reorder" - 1) == 0;
        help = help || strcmp(argv[i], "--help") == 0;
    }
    return reorder && !help ? cmd_inspect_reorder(argc, argv) : cmd_inspect(argc, argv);
}

static const struct command commands[] = {
    {"run", cmd_run, "run a pipeline"},
    {"demo", cmd_demo, "generate a small dataset, and train on it"},
    {"check", cmd_check, "check pipelines without starting anything"},
    {"plan", cmd_plan, "show what each policy would cache, and what a batch then reads"},
    {"caches", cmd_caches, "show which device of a machine would cache what, and who reads from whom"},
    {"partition", cmd_partition, "sort a dataset's training edges by partitions of its vertices"},
    {"order", cmd_order, "find the order in which partitions of embeddings are loaded"},
    {"graph", cmd_graph, "draw a pipeline"},
    {"stages", cmd_stages, "list the installed stages, or describe one"},
    {"schema", cmd_schema, "print a JSON Schema of pipeline files, for editors"},
    {"gen", cmd_gen, "generate a dataset"},
    {"import", cmd_import, "import a dataset"},
    {"split", cmd_split, "make or replace a dataset's splits"},
    {"convert", cmd_convert, "make a dataset with features of another dtype or stride"},
    {"reorder", cmd_reorder, "give vertices new numbers, so that batches read less"},
    {"features", cmd_features, "give a topology random features"},
    {"infer", cmd_infer, "compute embeddings and predictions of all vertices"},
    {"export", export_any, "write a dataset, or the embeddings of a run, for other programs"},
    {"neighbours", cmd_neighbours, "find the vertices with the most similar embeddings"},
    {"predict", cmd_predict, "score edges, or find their best ends, with a run's embeddings"},
    {"rm", cmd_rm, "remove a dataset, with its stripes on other drives"},
    {"store", cmd_store, "write a dataset's rows to raw NVMe drives"},
    {"inspect", inspect_any, "say what is in a dataset"},
    {"verify", cmd_verify, "read a whole dataset and check it"},
    {"disks", cmd_disks, "list NVMe drives, and hand them over"},
    {"bench", cmd_bench, "measure how many requests a second a backend moves"},
    {"probe", cmd_probe, "say what this machine has for pipelines on GPUs"},
    {"compare", cmd_compare, "run pipelines in turns, and compare their times and results"},
    {"replay", cmd_replay, "compute what a cache would hit, from a run's trace of ids"},
    {"tpc", cmd_tpc, "predict throughput per cost with other hardware"},
    {"scale", cmd_scale, "predict a training step on several machines"},
    {"experiment", cmd_experiment, "measure a paper's figures again"},
    {"top", cmd_top, "show where a running pipeline spends its time"},
    {"runs", cmd_runs, "list runs"},
    {"page", cmd_page, "write an HTML page that shows runs, or compares them"},
    {"stop", cmd_stop, "end a run in order"},
    {"gc", cmd_gc, "remove what unfinished runs and imports left"},
    {"man", cmd_man, "write the manual pages"},
    {"complete", cmd_complete, NULL},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static void usage(FILE *out)
{
    fprintf(out, "usage: penstock COMMAND [ARGUMENT]...\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].help != NULL)
            fprintf(out, "  %-12s%s\n", commands[i].name, commands[i].help);
    fprintf(out, "\n`penstock COMMAND --help` lists the options of a command; `penstock --version` prints "
                 "the version.\n");
}

int main(int argc, char **argv)
{
    pst_denormal_off();
    pst_signals_init();
    pst_file_open_std();
    pst_rc rc = command_stack();
    if (rc != PST_OK)
        return command_result(argc > 1 ? argv[1] : "help", rc);
    command_table_set(commands, COMMANDS);
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("penstock %s\n", command_version());
        return 0;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    command_unknown("penstock", "command", argv[1], names, COMMANDS);
    usage(stderr);
    return 2;
}
