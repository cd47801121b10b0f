/* experiment.c: penstock experiment: the Python module penstock.experiment, which runs this program many
 * times and draws what it measured. */
#include "common/error.h"
#include "common/store/text/python.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

int cmd_experiment(int argc, char **argv)
{
    (void)argc;
    return command_result("experiment", pst_python_become("experiment", argv + 1));
}
