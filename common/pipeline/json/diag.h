/* diag.h: every error of a check at once, each "file:line: path: message". Owner: the caller, who
 * releases it. Not for several threads. */
#ifndef PST_DIAG_H
#define PST_DIAG_H

#include "common/base.h"

#define PST_DIAG_MAX 200 /* more than anyone reads; the rest is counted */

struct pst_diag {
    char *line[PST_DIAG_MAX];
    size_t count; /* may exceed PST_DIAG_MAX */
};

PST_API void pst_diag_add(struct pst_diag *diag, const char *file, int line, const char *path,
                          const char *fmt, ...) PST_PRINTF(5, 6);
PST_API void pst_diag_print(const struct pst_diag *diag); /* to standard error */
PST_API void pst_diag_release(struct pst_diag *diag);

/* The name nearest to `name` among n, by edit distance, or NULL if none is near. */
PST_API const char *pst_diag_nearest(const char *name, const char *const *names, size_t n);

#endif
