/* options.h: what the subcommands of penstock share: option values, error lines and exit codes.
 * Owner: none. Threads: one. */
#ifndef PST_OPTIONS_H
#define PST_OPTIONS_H

#include "common/base.h"

/* Each reads the whole text. PST_E_ARG: the message names the option, what was expected and what was found.
 */
PST_MUST_USE pst_rc option_int(const char *name, const char *text, int64_t low, int64_t high, int64_t *out);
PST_MUST_USE pst_rc option_real(const char *name, const char *text, double *out);
/* A number of bytes with an optional K, M, G or T (powers of 1024). */
PST_MUST_USE pst_rc option_bytes(const char *name, const char *text, uint64_t *out);
PST_MUST_USE pst_rc option_name(const char *name, const char *text, char *out, size_t room);

/* best or last: which checkpoint of a run. */
PST_MUST_USE pst_rc option_checkpoint(const char *name, const char *text, bool *last);

/* --stripe-dirs: existing directories, separated by commas. *stripes becomes their number if it was 0. *out
 * becomes text, which must live as long as it is used. */
PST_MUST_USE pst_rc option_stripe_dirs(const char *text, int64_t *stripes, const char **out);

/* Returns the exit code for rc. Prints "penstock COMMAND: ERROR" if rc is not PST_OK. */
int command_result(const char *command, pst_rc rc);

/* Prints that `who` knows no `what` of this name, and the nearest of the n names that it knows. */
void command_unknown(const char *who, const char *what, const char *found, const char *const *names,
                     size_t n);

/* Gives this process, its threads and what it starts a stack of at least 1 MiB, by raising the soft limit.
 * PST_E_LIMIT: the hard limit is lower. */
PST_MUST_USE pst_rc command_stack(void);

/* The version and, if penstock was built from a repository, the commit: "1 (6eb29dc0a1b2)". */
const char *command_version(void);
const char *command_release(void); /* the version alone: "1" */
const char *command_commit(void);  /* "" if it is not known */

#endif
