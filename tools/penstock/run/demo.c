/* demo.c: penstock demo: two commands of this program, with which a newcomer sees a run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util/file.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define PIPELINE "hyperion"
#define DATASET "data/demo"
#define CACHE                                                                                                \
    "stages.planner.params.cpu_cache=1MiB" /* a tenth of the features: the rest is read from disk            \
                                            */

static int cannot_start(const char *command)
{
    fprintf(stderr, "penstock demo: cannot start `penstock %s`: %s\n", command, strerror(errno));
    return 1;
}

/* Returns the exit code of `penstock gen`. */
static int generate(void)
{
    const pst_rc rc = pst_file_make_parents(DATASET);
    if (rc != PST_OK)
        return command_result("demo", rc);
    const pid_t child = fork();
    if (child == 0) {
        (void)execl("/proc/self/exe", "penstock", "gen", "community", DATASET, "--seed", "1", (char *)NULL);
        _exit(cannot_start("gen"));
    }
    int status = 0;
    if (child < 0)
        return cannot_start("gen");
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return cannot_start("gen");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int cmd_demo(int argc, char **argv)
{
    static const char usage[] =
        "usage: penstock demo\n"
        "Trains GraphSAGE on a small generated dataset. A cache holds a tenth of the "
        "features, and the others are "
        "read from disk.\n"
        "`penstock demo` runs these commands. If " DATASET " exists, it leaves out the first command:\n"
        "\n"
        "  penstock gen community " DATASET " --seed 1\n"
        "  penstock run " PIPELINE " --dataset " DATASET " --set " CACHE "\n";
    const bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc > 1) {
        fprintf(help ? stdout : stderr, "%s", usage);
        return help ? 0 : 2;
    }
    const int status = access(DATASET, F_OK) == 0 ? 0 : generate();
    if (status != 0)
        return status;
    (void)execl("/proc/self/exe", "penstock", "run", PIPELINE, "--dataset", DATASET, "--set", CACHE,
                (char *)NULL);
    return cannot_start("run");
}
