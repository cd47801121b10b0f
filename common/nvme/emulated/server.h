/* server.h: emulated NVMe controllers, as the process has them that serves them (penstock-nvme). What drives
 * them sees emulated.h.
 *
 * Owner: pst_emu_new allocates, pst_emu_free frees. Threads: one, but for pst_emu_stop. */
#ifndef PST_EMU_SERVER_H
#define PST_EMU_SERVER_H

#include "common/base.h"

struct pst_emu;

/* Reads the configuration (README.md) and opens its files. PST_E_ARG names the key that is wrong. */
PST_API PST_MUST_USE pst_rc pst_emu_new(struct pst_emu **emu, const char *json);
PST_API void pst_emu_free(struct pst_emu *emu);
/* Serves the clients of a listening socket until pst_emu_stop; the socket stays open. When clients may come,
 * it writes "ok" to the descriptor `ready` (-1: none). */
PST_API PST_MUST_USE pst_rc pst_emu_serve(struct pst_emu *emu, int listener, int ready);
/* Any thread, and a signal handler. */
PST_API void pst_emu_stop(struct pst_emu *emu);

#endif
