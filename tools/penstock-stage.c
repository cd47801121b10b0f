/* penstock-stage: hosts one stage, or several as threads of this process ("group").
 * usage: penstock-stage --control ENDPOINT NAME...   (started by `penstock run`) */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "error.h"
#include "host.h"

#define BEAT_MS 100
#define STACK_BYTES (8u << 20)

struct member {
    struct pst_process *process;
    const char *control, *name;
    pst_rc rc;
    pthread_t thread;
};

struct heart {
    struct pst_process *process;
    _Atomic bool stop;
};

static void *run_member(void *arg)
{
    struct member *m = arg;
    m->rc = pst_host_run(m->process, m->control, m->name);
    return NULL;
}

static void *beat(void *arg)
{
    struct heart *h = arg;
    while (!atomic_load(&h->stop)) {
        pst_process_beat(h->process);
        struct timespec nap = {.tv_nsec = BEAT_MS * 1000000L};
        (void)nanosleep(&nap, NULL);
    }
    return NULL;
}

static int run_all(struct pst_process *process, const char *control, char **names, int n)
{
    struct member *members = calloc((size_t)n, sizeof *members);
    struct heart heart = {.process = process};
    pthread_t heart_thread;
    pthread_attr_t attr;
    int status = 1, started = 0;
    if (!members || pthread_attr_init(&attr) != 0)
        goto out;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (pthread_create(&heart_thread, NULL, beat, &heart) != 0)
        goto out;
    for (; started < n; started++) {
        members[started] = (struct member){.process = process, .control = control, .name = names[started]};
        if (pthread_create(&members[started].thread, &attr, run_member, &members[started]) != 0)
            break;
    }
    status = started < n;
    for (int i = 0; i < started; i++) {
        (void)pthread_join(members[i].thread, NULL);
        status |= members[i].rc != PST_OK;
    }
    atomic_store(&heart.stop, true);
    (void)pthread_join(heart_thread, NULL);
out:
    free(members);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4 || strcmp(argv[1], "--control") != 0) {
        fprintf(stderr, "usage: penstock-stage --control ENDPOINT NAME...\n"
                        "Hosts stages of a pipeline; `penstock run` starts it.\n");
        return 2;
    }
    /* the supervisor decides when a run ends: it tells the stages, so that they end in order */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    struct pst_process process;
    if (pst_process_init(&process) != PST_OK) {
        fprintf(stderr, "penstock-stage: %s\n", pst_error_text());
        return 1;
    }
    int status = run_all(&process, argv[2], argv + 3, argc - 3);
    pst_process_release(&process);
    return status;
}
