/* nvme_impl.h: the backend of nvme.c and its driving thread (nvme_thread.c). */
#ifndef PST_NVME_IMPL_H
#define PST_NVME_IMPL_H

#include <pthread.h>

#include "stages/lib/io/gpu.h"
#include "stages/lib/io/op_list.h"

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
    struct pst_io_op_list posted;                      /* the engine's thread alone; given over by ring */
    struct pst_io_op_list todo, done;                  /* under lock */
    struct pst_io_group_list groups_posted;            /* as posted */
    struct pst_io_group_list groups_todo, groups_done; /* under lock */
    struct pst_io_driven driven;                       /* under lock */
    bool stop;
    int emulator;           /* a descriptor of the process that emulates the drives; -1: none */
    struct pst_io_gpu *gpu; /* NULL: the CPU drives */
    uint32_t timeout_ms;
    /* the driving thread's */
    struct pst_io_op_list cutting; /* operations of which not all requests have been made; the head is at: */
    int iov;
    uint64_t within, moved;
    uint64_t in_flight; /* operations */
    struct pst_io_group_list sending;
    struct pst_nvme_settled settled;
    bool unsettled;    /* what is in flight on the queues is not the stack's */
    char failure[256]; /* the stack is of no use any more, and why */
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

/* The driving thread; its argument is the struct nvme. Ends when n->stop is set. */
void *pst_io_nvme_thread(void *argument);

#endif
