/* signals.c: a child inherits ignored signals across exec, so each program resets them itself. */
#include "common/util/signals.h"

#include <signal.h>

void pst_signals_init(void)
{
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_IGN);
}
