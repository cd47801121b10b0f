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
#define CACHE "stages.planner.params.cpu_cache=1MiB" /* a tenth of the features: the rest is read from disk  \
                                                      */

static int cannot_start(const char *command)
{
    fprintf(stderr, "penstock demo: cannot start `penstock %s`: %s\n", command, strerror(errno));
    return 1;
}

/* Returns the exit code of `penstock gen`. */
static int generate(const char *dir)
{
    if (pst_file_make_parents(dir) != PST_OK)
        return command_result("demo", PST_E_IO);
    const pid_t child = fork();
    if (child == 0) {
        (void)execl("/proc/self/exe", "penstock", "gen", "community", dir, "--seed", "1", (char *)NULL);
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
        "usage: penstock demo [DIR]\n"
        "Trains GraphSAGE on a small generated dataset. A cache holds a tenth of the features, and the "
        "others are "
        "read from disk:\n"
        "`penstock run " PIPELINE " --dataset DIR --set " CACHE "`.\n"
        "If DIR (default: data/demo) does not exist, `penstock gen community DIR --seed 1` makes it.\n";
    const bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc > 2 || help || (argc == 2 && argv[1][0] == '-')) {
        fprintf(help ? stdout : stderr, "%s", usage);
        return help ? 0 : 2;
    }
    const char *dir = argc == 2 ? argv[1] : "data/demo";
    const int status = access(dir, F_OK) == 0 ? 0 : generate(dir);
    if (status != 0)
        return status;
    (void)execl("/proc/self/exe", "penstock", "run", PIPELINE, "--dataset", dir, "--set", CACHE,
                (char *)NULL);
    return cannot_start("run");
}
