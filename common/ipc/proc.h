/* proc.h: child processes of the supervisor: started with their output in a log, killed with it, reaped
 * once. Owner: the caller. */
#ifndef PST_PROC_H
#define PST_PROC_H

#include <sys/resource.h>
#include <sys/types.h>

#include "common/base.h"

struct pst_proc {
    char name[PST_NAME_MAX]; /* as people know it: "sampler", "memory-cpu:0" */
    char log[4096];
    pid_t pid;   /* 0: not running */
    pid_t known; /* the same, also after its end */
    int status;
    uint64_t last_beat; /* of its pulse, and when that was seen to rise */
    double beat_at;
    bool exited;
    struct rusage used; /* once it has ended: by it and by what it waited for */
};

/* Starts argv[0] with standard output and error appended to log, and the page of heartbeats (pulse.h) that
 * is at pulse_fd. The child dies with the caller. */
PST_MUST_USE pst_rc pst_proc_start(struct pst_proc *proc, char *const argv[], int pulse_fd);
/* Reaps it if it has ended. True once, when it has. */
bool pst_proc_reap(struct pst_proc *proc);
void pst_proc_kill(struct pst_proc *proc); /* SIGKILL and reap */
/* "died of signal 9 (Killed)", "ended with status 1". */
void pst_proc_describe(const struct pst_proc *proc, char out[128]);
/* The last lines of its log, at most cap bytes; without the lines that have the text `but`. */
void pst_proc_tail(const struct pst_proc *proc, const char *but, char *out, size_t cap);

/* The letter of /proc/PID/stat: 'T' stopped, 't' in a debugger, 'D' in a disk's hands; 0: no such process.
 * *parent (if not NULL) is its parent. */
char pst_proc_state(pid_t pid, pid_t *parent);

/* From here on what the caller's descendants leave behind becomes its child, and pst_proc_end_strays kills
 * and reaps all of that: the programs that a foreign stage started, and whatever these started. */
void pst_proc_adopt(void);
void pst_proc_end_strays(void);

#endif
