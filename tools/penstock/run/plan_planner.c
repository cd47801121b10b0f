/* plan_planner.c: runs a pipeline's planner alone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "tools/penstock/run/plan_command.h"

int plan_planner_of(const struct pst_pipeline *pl)
{
    for (int s = 0; s < pl->nstages; s++) {
        if (strcmp(pl->stages[s].caps.desc->name, "planner") == 0)
            return s;
    }
    return -1;
}

/* The pipeline with one stage and no link. Parameters are those that the check has found, so nothing depends
 * on the rest of the file. An earlier plan is not reused: it may lack its hotness. */
static json_t *planner_alone(const struct pst_pipeline *pl, int s)
{
    const struct pst_pipeline_stage_spec *spec = &pl->stages[s];
    json_t *params = json_deep_copy(spec->params);
    (void)json_object_del(params, "reuse");
    json_t *stage = json_pack("{ss so}", "run", spec->caps.file != NULL ? spec->caps.file : spec->caps.run,
                              "params", params);
    if (spec->device[0] != '\0')
        (void)json_object_set_new(stage, "place", json_pack("{ss}", "device", spec->device));
    return json_pack("{si ss ss sI sI s{so} s[]}", "penstock", 1, "name", pl->name, "dataset", pl->dataset,
                     "seed", (json_int_t)pl->seed, "epochs", (json_int_t)pl->epochs, "stages", spec->name,
                     stage, "links");
}

/* A file without a name, which `penstock run` opens by its descriptor. -1: error. */
static int write_pipeline(const struct pst_pipeline *pl, int s)
{
    json_t *root = planner_alone(pl, s);
    char *text = root != NULL ? json_dumps(root, 0) : NULL;
    json_decref(root);
    const int fd = text != NULL ? memfd_create("planner.json", 0) : -1;
    const size_t bytes = text != NULL ? strlen(text) : 0;
    const bool written = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes;
    free(text);
    if (written)
        return fd;
    (void)pst_fail_errno("cannot write the pipeline of the planner");
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static void name_run_dir(struct plan_args *args)
{
    const time_t now = time(NULL);
    struct tm at;
    char text[32];
    (void)strftime(text, sizeof text, "%Y%m%d-%H%M%S", localtime_r(&now, &at));
    (void)snprintf(args->run_dir, sizeof args->run_dir, "runs/plan-%s-%d", text, (int)getpid());
}

/* The report goes to its file; the table, which shows one stage, to nowhere. */
static void exec_run(int fd, const char *run_dir)
{
    char file[32];
    (void)snprintf(file, sizeof file, "/dev/fd/%d", fd);
    if (freopen("/dev/null", "we", stdout) != NULL && dup2(fileno(stdout), STDOUT_FILENO) >= 0)
        (void)execl("/proc/self/exe", "penstock", "run", "--quiet", "--run-dir", run_dir, file, (char *)NULL);
    fprintf(stderr, "penstock plan: cannot start the planner: %s\n", strerror(errno));
    _exit(1);
}

int plan_run_planner(const struct pst_pipeline *pl, struct plan_args *args)
{
    const int s = plan_planner_of(pl);
    if (s < 0) {
        fprintf(stderr, "penstock plan: %s has no planner; expected a stage that runs \"planner\"\n",
                pl->doc.file);
        return 2;
    }
    if (args->run_dir[0] == '\0')
        name_run_dir(args);
    const int fd = write_pipeline(pl, s);
    const pid_t child = fd >= 0 ? fork() : -1;
    if (child == 0)
        exec_run(fd, args->run_dir);
    if (fd < 0 || child < 0) {
        fprintf(stderr, "penstock plan: %s\n", fd < 0 ? pst_error_text() : strerror(errno));
        return 1;
    }
    (void)close(fd);
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
