/* version.c: the Makefile defines both names, and compiles this file again when the commit changes. */
#include "tools/penstock/cli/options.h"

const char *command_release(void)
{
    return PST_VERSION;
}

const char *command_commit(void)
{
    return PST_COMMIT;
}

const char *command_version(void)
{
    return PST_COMMIT[0] != '\0' ? PST_VERSION " (" PST_COMMIT ")" : PST_VERSION;
}
