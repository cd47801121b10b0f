/* op_list.h: operations in order of arrival, linked by their `next`. Owner and threads: those of the list. */
#ifndef PST_OP_LIST_H
#define PST_OP_LIST_H

#include "stages/lib/io/backend.h"

struct pst_io_op_list {
    struct pst_io_op *head, *tail;
};

static inline void pst_io_op_push(struct pst_io_op_list *list, struct pst_io_op *op)
{
    op->next = NULL;
    if (list->tail != NULL)
        list->tail->next = op;
    else
        list->head = op;
    list->tail = op;
}

static inline struct pst_io_op *pst_io_op_pop(struct pst_io_op_list *list)
{
    struct pst_io_op *op = list->head;
    if (op != NULL) {
        list->head = op->next;
        if (list->head == NULL)
            list->tail = NULL;
    }
    return op;
}

#endif
