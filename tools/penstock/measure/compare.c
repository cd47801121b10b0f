/* compare.c: penstock compare: the Python module penstock.compare, which runs this program in turns. */
#include "common/error.h"
#include "common/store/text/python.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

int cmd_compare(int argc, char **argv)
{
    (void)argc;
    return command_result("compare", pst_python_become("compare", argv + 1));
}
