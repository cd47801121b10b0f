/* nvme_impl.h: the state that nvme.c and its driving thread (nvme_thread.c) share.
 * Owner: nvme.c opens and closes it. Threads: the engine's and the driving one; the comments below say which
 * members the lock protects. */
#ifndef PST_NVME_IMPL_H
#define PST_NVME_IMPL_H

#include <pthread.h>

#include "stages/lib/io/gpu.h"
#include "stages/lib/io/op_list.h"
#include "stages/lib/io/drive_tables.h"

struct pst_io_group_list {
    struct pst_io_group *head, *tail;
};

struct nvme {
    struct pst_io_drives drives;
    struct pst_nvme_stack *stack;
    pthread_t thread;
    bool started;
    int event;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct pst_io_op_list posted;           /* only for the engine's thread; ring moves them to todo */
    struct pst_io_op_list todo, done;       /* under lock */
    struct pst_io_group_list groups_posted; /* the same for groups */
    struct pst_io_group_list groups_todo, groups_done; /* under lock */
    struct pst_io_driven driven;                       /* under lock */
    bool stop;                                         /* under lock */
    int emulator;                 /* a descriptor of the process that emulates the drives; -1: none */
    struct pst_io_gpu *gpu;       /* NULL: the CPU drives the queues */
    struct pst_io_tables *tables; /* for the CPU */
    uint32_t timeout_ms;
    /* only for the driving thread */
    /* operations whose requests are not all made; iov and within are the place in the first */
    struct pst_io_op_list cutting;
    int iov;
    uint64_t within, moved;
    uint64_t in_flight; /* operations */
    struct pst_io_group_list sending;
    bool taken;       /* the first of `sending` is checked, and partly sent */
    uint32_t serving; /* groups that the CPU's queues carry out */
    struct pst_nvme_settled settled;
    bool unsettled;    /* the queues have commands in flight that the stack did not send */
    char failure[256]; /* why the stack cannot go on; "" if it can */
};

static inline void pst_io_group_push(struct pst_io_group_list *list, struct pst_io_group *group)
{
    group->next = NULL;
    if (list->tail != NULL)
        list->tail->next = group;
    else
        list->head = group;
    list->tail = group;
}

static inline struct pst_io_group *pst_io_group_pop(struct pst_io_group_list *list)
{
    struct pst_io_group *group = list->head;
    if (group != NULL) {
        list->head = group->next;
        if (list->head == NULL)
            list->tail = NULL;
    }
    return group;
}

static inline void pst_io_groups_move(struct pst_io_group_list *to, struct pst_io_group_list *from)
{
    for (struct pst_io_group *group; (group = pst_io_group_pop(from)) != NULL;)
        pst_io_group_push(to, group);
}

/* The driving thread. Its argument is a struct nvme. It ends when n->stop is set. */
void *pst_io_nvme_thread(void *argument);

#endif
