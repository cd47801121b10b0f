/* run.h: the supervisor: starts a checked pipeline's processes, sees that they end, and reports.
 * It never touches a device. Threads: one; it blocks SIGINT, SIGTERM, SIGHUP and
 * SIGCHLD while it runs. */
#ifndef PST_RUN_H
#define PST_RUN_H

#include <jansson.h>

#include "common/pipeline/graph.h"

#define PST_RUN_ID_MAX 20

#define PST_RUN_FILES_MAX 32 /* features alone may be in 16 */

struct pst_run_file { /* what the run reads, as it was when it was checked */
    char path[4096];
    int64_t bytes, mtime_ns;
};

struct pst_run_options {
    const char *id;      /* of pst_run_id: names the run's sockets */
    const char *run_dir; /* exists, is locked by the caller */
    const char *resume;  /* checkpoint file to go on from, or NULL */
    uint64_t start_batch;
    bool trace;
    bool progress; /* a live line on standard error */
    bool debug;    /* a process may stand still for as long as it likes; says how to attach a debugger */
    struct pst_run_file files[PST_RUN_FILES_MAX]; /* if one of them changes, the run fails and names it */
    int nfiles;
};

/* Notes how the file is now. An empty path is passed over. */
PST_MUST_USE pst_rc pst_run_note_file(struct pst_run_options *opt, const char *path);

/* Makes an id that no other run of this machine has. */
PST_MUST_USE pst_rc pst_run_id(char id[PST_RUN_ID_MAX]);

enum pst_run_end { PST_RUN_OK, PST_RUN_FAILED, PST_RUN_INTERRUPTED };

/* Runs it to the end. *report gets a new reference, also after a failure. *signal: what interrupted it. */
enum pst_run_end pst_run(struct pst_pipeline *pl, const struct pst_graph *graph,
                         const struct pst_run_options *opt, json_t **report, int *signal);

#endif
