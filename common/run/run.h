/* run.h: the supervisor: starts a checked pipeline's processes, watches them until they end, and makes the
 * report. It never touches a GPU. Owner: the caller. Threads: one; it blocks SIGINT, SIGTERM, SIGHUP and
 * SIGCHLD while it runs. */
#ifndef PST_RUN_H
#define PST_RUN_H

#include <jansson.h>

#include "common/pipeline/graph.h"

#define PST_RUN_ID_MAX 20

#define PST_RUN_FILES_MAX 32 /* features alone may lie in 16 */

struct pst_run_file { /* a file that the run reads, as it was when it was checked */
    char path[PST_PATH_MAX];
    int64_t bytes, mtime_ns;
};

struct pst_run_start { /* the first batch of an input */
    char port[PST_NAME_MAX];
    uint64_t batch;
};

struct pst_run_options {
    const char *id;      /* of pst_run_id: names the run's sockets */
    const char *run_dir; /* it exists, and the caller has locked it */
    const char *resume;  /* checkpoint file to go on from, or NULL */
    uint64_t start_batch;
    char start_stage[PST_NAME_MAX];             /* the stage that wrote the checkpoint; empty: not known */
    struct pst_run_start starts[PST_PORTS_MAX]; /* of its inputs */
    int nstarts;
    char dataset_dir[PST_PATH_MAX]; /* what stages open: the pipeline's dataset, or this rank's part of it */
    char dataset_digest[17];        /* of struct pst_dataset; for the checkpoints of foreign stages */
    uint64_t batches;               /* the run ends after so many; 0: after its epochs */
    int rank, ranks; /* this one among so many, which run the pipeline together; ranks 0 or 1: one
                        machine */
    json_t *facts;   /* what the command knows and all ranks must have in common; NULL: nothing */
    bool trace;
    double progress_s; /* between two looks at the progress, on standard error; 0: none is shown */
    bool live;         /* the line of progress is written over the one before, as on a terminal */
    bool debug;        /* a process may stand still for as long as it likes; says how to attach a debugger */
    const char
        *debug_stage; /* a stage or an instance, which waits until a debugger is attached; NULL: none */
    struct pst_run_file files[PST_RUN_FILES_MAX]; /* if one changes, the run fails and names it */
    int nfiles;
};

/* Notes the file's size and time of change. Ignores an empty path. */
PST_API PST_MUST_USE pst_rc pst_run_note_file(struct pst_run_options *opt, const char *path);

/* Makes an id that no other run of this machine has. */
PST_API PST_MUST_USE pst_rc pst_run_id(char id[PST_RUN_ID_MAX]);

enum pst_run_end { PST_RUN_OK, PST_RUN_FAILED, PST_RUN_INTERRUPTED };

/* Why stages finish early, if it is not a signal, whose number is less. */
enum pst_run_reason { PST_RUN_ENOUGH = 200, PST_RUN_RANK_FAILED };

/* Runs the pipeline to its end. *report gets a new reference, also after a failure. *signal gets the number
 * of the signal that interrupted the run, or 0. */
PST_API enum pst_run_end pst_run(struct pst_pipeline *pl, const struct pst_graph *graph,
                                 const struct pst_run_options *opt, json_t **report, int *signal);

#endif
