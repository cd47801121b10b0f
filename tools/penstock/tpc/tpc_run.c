/* tpc_run.c: a run that is only measured. */
#include "tools/penstock/tpc/tpc_run.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define ADDED 7 /* by tpc_run_profile; with the command */

static void append(struct tpc_run *run, const char *text)
{
    if (run->n == 0)
        run->argv[run->n++] = (char *)(uintptr_t) "run";
    assert(run->n < TPC_RUN_ARGS_MAX);
    run->argv[run->n++] = (char *)(uintptr_t)text;
}

static bool add(struct tpc_run *run, const char *text)
{
    if (run->n < TPC_RUN_ARGS_MAX - ADDED) {
        append(run, text);
        return true;
    }
    fprintf(stderr, "penstock %s: too many options: expected at most %d arguments\n", run->command,
            TPC_RUN_ARGS_MAX - ADDED);
    return false;
}

bool tpc_run_pass(struct tpc_run *run, const struct option *option, const char *value)
{
    static const char *const names[] = {"--dataset", "--set",   "--with",    "--epochs", "--seed",
                                        "--device",  "--group", "--run-dir", "--batches"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i] + 2, option->name) == 0)
            return add(run, names[i]) && add(run, value);
    return false;
}

/* Runs the pipeline without its table on standard output. Returns the exit code. */
static int run_quietly(struct tpc_run *run)
{
    (void)fflush(stdout);
    const int saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0),
              null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int status = 1;
    if (saved >= 0 && null >= 0 && dup2(null, STDOUT_FILENO) >= 0)
        status = cmd_run(run->n, run->argv);
    (void)fflush(stdout);
    if (saved >= 0 && dup2(saved, STDOUT_FILENO) < 0)
        status = 1;
    (void)close(saved);
    (void)close(null);
    return status;
}

/* The directory of the run whose report is in `path`. */
static pst_rc run_dir_of(const char *path, char dir[PST_PATH_MAX])
{
    json_error_t e;
    json_t *report = json_load_file(path, 0, &e);
    const char *text = json_string_value(json_object_get(report, "run_dir"));
    (void)snprintf(dir, PST_PATH_MAX, "%s", text != NULL ? text : "");
    json_decref(report);
    return dir[0] != '\0'
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "the run that was to be measured wrote no report: it failed before its end");
}

int tpc_run_profile(struct tpc_run *run, const char *file, char dir[PST_PATH_MAX])
{
    char report[] = "/tmp/penstock-tpc-XXXXXX";
    const int fd = mkstemp(report);
    if (fd < 0)
        return command_result(run->command, pst_fail_errno("cannot create %s", report));
    (void)close(fd);
    bool batches = false;
    for (int i = 0; i < run->n; i++)
        batches = batches || strcmp(run->argv[i], "--batches") == 0;
    const char *const more[] = {"--quiet", "--report", report, file, "--batches", TPC_RUN_BATCHES};
    for (size_t i = 0; i < (batches ? 4u : 6u); i++)
        append(run, more[i]);
    int status = run_quietly(run);
    if (status == 0)
        status = command_result(run->command, run_dir_of(report, dir));
    (void)unlink(report);
    return status;
}
