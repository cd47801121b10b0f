/* page.c: penstock page: the Python module penstock.page, which writes an HTML file that shows runs. */
#include "common/error.h"
#include "common/store/text/python.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

int cmd_page(int argc, char **argv)
{
    (void)argc;
    return command_result("page", pst_python_become("page", argv + 1));
}
