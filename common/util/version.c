/* version.c: the Makefile defines both names, and compiles this file again when the commit changes. */
#include "common/util/install.h"

const char *pst_install_version(void)
{
    return PST_COMMIT[0] != '\0' ? PST_VERSION " (" PST_COMMIT ")" : PST_VERSION;
}
