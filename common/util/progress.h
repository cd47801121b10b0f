/* progress.h: one line of progress on stderr. On a terminal the line is rewritten; in a log a new line comes
 * now and then. A long operation also learns here that the user wants it to stop. Owner: the caller; plain
 * memory. A NULL progress is silent. Threads: one. */
#ifndef PST_PROGRESS_H
#define PST_PROGRESS_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_progress {
    bool quiet, terminal;
    const char *what;
    uint64_t total, done;
    bool bytes; /* the unit is bytes; otherwise a count */
    double began, shown;
};

/* Blocks SIGINT, SIGTERM and SIGHUP in this thread: pst_progress_add then notices them. */
PST_API void pst_progress_init(struct pst_progress *p, bool quiet);
PST_API void pst_progress_begin(struct pst_progress *p, const char *what, uint64_t total, bool bytes);
/* PST_E_INTERRUPTED once a signal is pending. */
PST_API PST_MUST_USE pst_rc pst_progress_add(struct pst_progress *p, uint64_t n);
PST_API void pst_progress_end(struct pst_progress *p);

/* Whether this descriptor is a terminal that shows colours. NO_COLOR (https://no-color.org), if it is not
 * empty, and TERM=dumb forbid them. */
PST_API bool pst_progress_colours(int fd);

/* "1.2 GB": decimal units. Returns out. */
PST_API const char *pst_bytes_text(double bytes, char out[32]);

PST_END_DECLS
#endif
