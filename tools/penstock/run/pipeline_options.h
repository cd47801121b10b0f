/* pipeline_options.h: the options of all commands that take a pipeline file. Owner: the caller. Threads: one.
 */
#ifndef PST_PIPELINE_OPTIONS_H
#define PST_PIPELINE_OPTIONS_H

#include <getopt.h>

#include "common/pipeline/graph.h"

#define PST_SETS_MAX 256

struct pipeline_options {
    char *sets[PST_SETS_MAX]; /* PATH=VALUE, in order; pipeline_options_release frees them */
    int nsets;
    char *overlays[PST_JSON_OVERLAYS_MAX]; /* files; not freed */
    int noverlays;
    bool group_all;
    int ranks; /* that run the pipeline together; 0: one */
};

/* Entries for getopt_long. Their codes are upper-case letters. */
#define PIPELINE_OPTIONS                                                                                     \
    {"dataset", required_argument, NULL, 'D'}, {"set", required_argument, NULL, 'S'},                        \
        {"with", required_argument, NULL, 'W'}, {"epochs", required_argument, NULL, 'E'},                    \
        {"seed", required_argument, NULL, 'N'}, {"device", required_argument, NULL, 'V'},                    \
    {                                                                                                        \
        "group", required_argument, NULL, 'G'                                                                \
    }

/* Their lines in a usage text. */
#define PIPELINE_OPTIONS_HELP                                                                                \
    "  --dataset DIR      use this dataset instead of the one that FILE names\n"                             \
    "  --with FILE        merge a file of settings over the pipeline (can be repeated; the last one wins)\n" \
    "  --set PATH=VALUE   change a value of the pipeline, for example --set params.batch=256 or\n"           \
    "                     --set stages.sampler.run=./mine.so (can be repeated; wins over --with)\n"          \
    "  --epochs N         set the number of epochs\n"                                                        \
    "  --seed N           set the seed\n"                                                                    \
    "  --group all        run all stages as threads of one process\n"                                        \
    "  --device DEVICE    cpu:N, cuda:N or auto: for stages that can run there and name no device\n"

/* Takes one option of PIPELINE_OPTIONS. False: it is another one, or its value is wrong. */
bool pipeline_option(struct pipeline_options *options, int code, const char *value);
void pipeline_options_release(struct pipeline_options *options);

/* Loads and checks a pipeline, and prints every error. True if it can run. */
bool load_pipeline(struct pst_pipeline *pl, struct pst_graph *graph, const char *file,
                   const struct pipeline_options *options);

/* Prints a line for each reason by which `auto` placed stages. */
void pipeline_print_auto(const struct pst_pipeline *pl);
/* For each stage its device, and the reason if `auto` chose it. A new reference; NULL: out of memory. */
json_t *pipeline_places_json(const struct pst_pipeline *pl);

#endif
