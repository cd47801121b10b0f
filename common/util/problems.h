/* problems.h: a list of mistakes, so that a user sees all of them at once.
 * Owner: the caller; plain memory, nothing to release. Threads: one. */
#ifndef PST_PROBLEMS_H
#define PST_PROBLEMS_H

#include "common/base.h"

#define PST_PROBLEMS_TEXT 3400 /* leaves room for a context within error.h's 4096 */

struct pst_problems {
    int count;
    size_t used;
    char text[PST_PROBLEMS_TEXT];
};

PST_API void pst_problem(struct pst_problems *list, const char *fmt, ...) PST_PRINTF(2, 3);
/* Adds this thread's error text as one problem. */
PST_API void pst_problem_from_error(struct pst_problems *list);
/* PST_OK if the list is empty; otherwise PST_E_FORMAT, and the error text has one problem a line. */
PST_API PST_MUST_USE pst_rc pst_problems_result(const struct pst_problems *list, const char *what);

#endif
