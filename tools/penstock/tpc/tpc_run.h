/* tpc_run.h: runs a few batches of a pipeline, from whose report something is predicted. Owner: the caller.
 * Threads: one. */
#ifndef PST_TPC_RUN_H
#define PST_TPC_RUN_H

#include <getopt.h>

#include "tools/penstock/run/pipeline_options.h"

#define TPC_RUN_BATCHES "10" /* unless --batches is given (Hyperion, section III-B) */

/* Lines of a usage text. */
#define TPC_RUN_HELP                                                                                         \
    "  --from RUN         use a finished run's directory instead\n"                                          \
    "  --batches N        profile N batches (default: " TPC_RUN_BATCHES ")\n"                                \
    "  --run-dir DIR      write the profiled run here (default: runs/NAME-TIME)\n"

enum { TPC_RUN_ARGS_MAX = 2 * PST_SETS_MAX };

/* The arguments for `penstock run`. A zeroed struct has none. */
struct tpc_run {
    const char *command; /* "tpc": for messages */
    char *argv[TPC_RUN_ARGS_MAX];
    int n;
};

/* Keeps an option that `penstock run` takes, too: those of PIPELINE_OPTIONS, --run-dir and --batches. False,
 * perhaps after a message: it is another one, or there are too many. */
bool tpc_run_pass(struct tpc_run *run, const struct option *option, const char *value);

/* Runs a few batches of the pipeline in `file`. dir: the run's directory. Returns the exit code; the reason
 * was printed. */
int tpc_run_profile(struct tpc_run *run, const char *file, char dir[PST_PATH_MAX]);

#endif
