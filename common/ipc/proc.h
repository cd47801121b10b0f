/* proc.h: child processes of the supervisor. Their output goes to a log, and they die with the supervisor.
 * Owner: the caller. Threads: one. */
#ifndef PST_PROC_H
#define PST_PROC_H

#include <sys/resource.h>
#include <sys/types.h>

#include "common/base.h"

struct pst_proc {
    char name[PST_NAME_MAX]; /* for messages: "sampler", "memory-cpu:0" */
    char log[PST_PATH_MAX];
    pid_t pid;   /* 0: not running */
    pid_t known; /* the same, and still set after its end */
    int status;
    uint64_t last_beat; /* of its pulse, and when it last rose */
    double beat_at;
    bool exited;
    struct rusage used; /* once it has ended: what it and the children that it waited for used */
};

/* Starts argv[0]. Appends its standard output and error to the log, and passes on the page of heartbeats
 * (pulse.h) at pulse_fd. The child dies with the caller. */
PST_MUST_USE pst_rc pst_proc_start(struct pst_proc *proc, char *const argv[], int pulse_fd);
/* It was killed by a signal, and has not been reaped. */
bool pst_proc_was_killed(const struct pst_proc *proc);
/* Reaps it if it has ended. True: it was reaped now. */
bool pst_proc_reap(struct pst_proc *proc);
void pst_proc_kill(struct pst_proc *proc); /* SIGKILL and reap */
/* "died of signal 9 (Killed)", "ended with status 1". */
void pst_proc_describe(const struct pst_proc *proc, char out[128]);
/* The last lines of its log, at most cap bytes; without the lines that have the text `but`. */
void pst_proc_tail(const struct pst_proc *proc, const char *but, char *out, size_t cap);

/* The state letter of /proc/PID/stat: 'T' stopped, 't' stopped by a debugger, 'D' waiting for a disk; 0:
 * there is no such process. *parent, if not NULL, gets its parent. */
char pst_proc_state(pid_t pid, pid_t *parent);

/* The process that debugs this one (TracerPid of /proc/PID/status); 0: there is none. */
pid_t pst_proc_tracer(pid_t pid);

/* The calling process can start the two threads of a ZeroMQ context, which aborts if it cannot. PST_E_LIMIT.
 */
PST_API PST_MUST_USE pst_rc pst_proc_check_threads(void);

/* From now on a process whose parent ends becomes a child of the caller, if it descends from it.
 * pst_proc_end_strays kills and reaps all of them: programs of foreign stages, and what those started. */
PST_API void pst_proc_adopt(void);
PST_API void pst_proc_end_strays(void);

#endif
