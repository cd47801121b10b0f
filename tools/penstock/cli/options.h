/* options.h: option values and exit codes, shared by gen, import, inspect and verify.
 * Owner: none. Threads: one. */
#ifndef PST_OPTIONS_H
#define PST_OPTIONS_H

#include "common/base.h"

/* Each reads the whole of text or fails with PST_E_ARG, naming the option, the range and what was found. */
PST_MUST_USE pst_rc option_int(const char *name, const char *text, int64_t low, int64_t high, int64_t *out);
PST_MUST_USE pst_rc option_real(const char *name, const char *text, double *out);
/* A number of bytes with an optional K, M, G or T (powers of 1024). */
PST_MUST_USE pst_rc option_bytes(const char *name, const char *text, uint64_t *out);
PST_MUST_USE pst_rc option_name(const char *name, const char *text, char *out, size_t room);

/* --stripe-dirs: directories with commas between, all of which must be there. stripes: becomes how many there
 * are if it is 0; *out: text, which must live as long. */
PST_MUST_USE pst_rc option_stripe_dirs(const char *text, int64_t *stripes, const char **out);

/* Prints "penstock COMMAND: error text" when rc is not PST_OK, and gives the exit code for it. */
int command_result(const char *command, pst_rc rc);

#endif
