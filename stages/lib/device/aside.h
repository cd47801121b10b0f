/* aside.h: a thread of a stage that works while the stage's own thread serves events. It does one job at a
 * time. A job must not call the stage's SDK (common/stage.h), except pst_now.
 *
 * Owner: the stage; open starts the thread, close joins it. Threads: the stage's own calls these functions.
 */
#ifndef PST_DEVICE_ASIDE_H
#define PST_DEVICE_ASIDE_H

#include <pthread.h>

#include "common/stage.h"

#define PST_DEVICE_ASIDE_TEXT 2048 /* bytes of a failed job's message */

struct pst_device_aside {
    struct pst_stage *stage;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job was given or done, or the thread is to end */
    pst_rc (*job)(void *arg);
    void *arg;
    bool given, stop;
    bool busy; /* a job was begun, and its end was not seen yet; the stage's own */
    bool started;
    pst_rc rc;
    char text[PST_DEVICE_ASIDE_TEXT];
    int event; /* readable when a job is done */
};

/* Starts the thread. When a job is done, the stage gets PST_EV_FD; it has no other descriptors. PST_E_NOMEM,
 * PST_E_IO, PST_E_LIMIT. */
PST_API PST_MUST_USE pst_rc pst_device_aside_open(struct pst_device_aside *a, struct pst_stage *stage);
/* Waits for the job, if there is one. Without open, does nothing. */
PST_API void pst_device_aside_close(struct pst_device_aside *a);

/* Begins a job. None may be begun before its end was seen. While there is one, the stage counts as busy. */
PST_API void pst_device_aside_begin(struct pst_device_aside *a, pst_rc (*job)(void *arg), void *arg);

/* Waits for the end of the job, if there is one. Returns what the job returned, with its message; PST_OK:
 * there was none. */
PST_API PST_MUST_USE pst_rc pst_device_aside_end(struct pst_device_aside *a);

#endif
