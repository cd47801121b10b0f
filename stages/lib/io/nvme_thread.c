/* nvme_thread.c: the thread that drives the queues for nvme.c. It cuts operations into requests for the
 * stack, gives the stack or kernels whole groups, and returns what has ended. */
#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "stages/lib/io/nvme_impl.h"

#define RESULTS_MAX 64
#define SPINS 300    /* empty polls before the thread sleeps: about as long as a fast drive takes */
#define NAP_NS 20000 /* sleep between later polls */
#define FINISHED_MAX 64

/* ---- what has ended ---------------------------------------------------------------------- */

/* Updates the counts before operations are returned, so that they are complete when all operations are. */
static void count_driven(struct nvme *n)
{
    const struct pst_nvme_stack_stats *s = pst_nvme_stack_stats(n->stack);
    (void)pthread_mutex_lock(&n->lock);
    n->driven = (struct pst_io_driven){.cpu_commands = s->commands,
                                       .queues = s->queues,
                                       .waves = s->waves,
                                       .lane_s = s->lane_s,
                                       .sq_doorbells = s->sq_doorbells,
                                       .cq_doorbells = s->cq_doorbells,
                                       .retries = s->retries,
                                       .aborts = s->aborts + n->settled.aborts,
                                       .resets = s->resets + n->settled.resets};
    if (n->gpu != NULL)
        pst_io_gpu_count(n->gpu, &n->driven);
    (void)pthread_mutex_unlock(&n->lock);
}

static void end_groups(struct nvme *n, struct pst_io_group *const *groups, int count)
{
    const uint64_t one = 1;
    count_driven(n);
    (void)pthread_mutex_lock(&n->lock);
    for (int i = 0; i < count; i++)
        pst_io_group_push(&n->groups_done, groups[i]);
    (void)pthread_mutex_unlock(&n->lock);
    (void)!write(n->event, &one, sizeof one);
}

static void end_op(struct nvme *n, struct pst_io_op *op)
{
    const uint64_t one = 1;
    if (op->why[0] == '\0')
        op->result = (int64_t)op->bytes;
    else
        op->result = -EIO;
    if (--n->in_flight == 0)
        count_driven(n);
    (void)pthread_mutex_lock(&n->lock);
    pst_io_op_push(&n->done, op);
    (void)pthread_mutex_unlock(&n->lock);
    (void)!write(n->event, &one, sizeof one);
}

/* Makes the next request of the first operation. False: the stack has no room. */
static bool cut_one(struct nvme *n, struct pst_io_op *op)
{
    const struct iovec *iov = &op->iov[n->iov];
    struct pst_nvme_request r = {.opcode = op->write ? PST_NVME_WRITE : PST_NVME_READ, .user = op};
    char *memory = (char *)iov->iov_base + n->within;
    uint64_t run = 0, left = iov->iov_len - n->within;
    if (n->failure[0] != '\0')
        (void)snprintf(op->why, sizeof op->why, "%s", n->failure);
    else if (!pst_io_drives_find(&n->drives, op->file, op->at + n->moved, &r, &run)) {
        (void)snprintf(op->why, sizeof op->why,
                       "these bytes are not on the drives: `penstock store` writes features to drives, and, "
                       "with --topology, indptr and indices");
    } else {
        r.bytes = left < run ? left : run;
        if (!pst_io_drives_iova(&n->drives, r.ssd, memory, r.bytes, &r.iova))
            (void)snprintf(op->why, sizeof op->why,
                           "this buffer is not mapped for the drives (no region contains it)");
    }
    if (op->why[0] == '\0') {
        pst_rc rc = pst_nvme_stack_add(n->stack, &r);
        if (rc == PST_E_LIMIT)
            return false;
        if (rc != PST_OK)
            (void)snprintf(op->why, sizeof op->why, "%s", pst_error_text());
        else
            op->pending++;
    }
    n->within += r.bytes;
    n->moved += r.bytes;
    if (n->within == iov->iov_len) {
        n->iov++;
        n->within = 0;
    }
    return true;
}

static void cut_all(struct nvme *n)
{
    while (n->cutting.head != NULL) {
        struct pst_io_op *op = n->cutting.head;
        while (n->iov < op->niov && op->why[0] == '\0') {
            if (!cut_one(n, op))
                return;
        }
        n->iov = 0;
        n->within = n->moved = 0;
        (void)pst_io_op_pop(&n->cutting);
        op->cut = true;
        if (op->pending == 0)
            end_op(n, op);
    }
}

static void lose_drives(struct nvme *n)
{
    (void)snprintf(n->failure, sizeof n->failure, "%s", pst_error_text());
}

static void take_result(struct nvme *n, const struct pst_nvme_result *result)
{
    if (pst_io_tables_own(n->tables, result->user)) {
        struct pst_io_group *group = pst_io_tables_end(n->tables, result);
        n->serving -= group != NULL;
        if (group != NULL)
            end_groups(n, &group, 1);
        return;
    }
    struct pst_io_op *op = result->user;
    char text[64];
    if (result->status == PST_NVME_INTERNAL && n->failure[0] != '\0')
        (void)snprintf(op->why, sizeof op->why, "%s", n->failure);
    else if (result->status != PST_NVME_OK)
        (void)snprintf(op->why, sizeof op->why, "%s, namespace %u, LBA %llu: %s",
                       n->drives.t[result->ssd].what, result->nsid, (unsigned long long)result->lba,
                       pst_nvme_status_text(result->status, text));
    if (--op->pending == 0 && op->cut)
        end_op(n, op);
}

/* ---- groups, for the stack -------------------------------------------------------------------------- */

/* Fails every operation, because a drive cannot go on. The engine then tries each row and names the one that
 * fails. */
static void leave_all(struct nvme *n, struct pst_io_group *group)
{
    for (group->nleft = 0; group->nleft < group->n; group->nleft++)
        group->left[group->nleft] = group->nleft;
    end_groups(n, &group, 1);
}

/* Gives the stack all groups that have come, so that the next wave takes them. */
static void serve_tables(struct nvme *n)
{
    for (struct pst_io_group *group; (group = n->sending.head) != NULL; n->taken = false) {
        const bool goes = n->taken || (n->failure[0] == '\0' && pst_io_tables_take(n->tables, group));
        n->serving += goes && !n->taken;
        n->taken = goes;
        if (goes && !pst_io_tables_send(n->tables, group, n->stack))
            return;
        (void)pst_io_group_pop(&n->sending);
        if (n->failure[0] != '\0' && !goes) {
            leave_all(n, group);
        } else if (!goes || pst_io_tables_ended(n->tables, group)) {
            n->serving -= goes;
            end_groups(n, &group, 1);
        }
    }
}

/* ---- the GPU's turn ------------------------------------------------------------------------------- */

static void send_groups(struct nvme *n)
{
    for (struct pst_io_group *group; (group = pst_io_group_pop(&n->sending)) != NULL;) {
        if (n->failure[0] == '\0' && pst_io_gpu_submit(n->gpu, group) == PST_OK)
            continue;
        if (n->failure[0] == '\0')
            lose_drives(n);
        leave_all(n, group);
    }
}

/* Gives the queues to the host and ends late commands of the GPU. */
static void take_queues(struct nvme *n)
{
    pst_rc rc = pst_io_gpu_give_back(n->gpu);
    for (uint32_t i = 0; i < n->drives.n && rc == PST_OK; i++)
        rc = pst_nvme_settle(&n->drives.c[i], n->timeout_ms, &n->settled);
    n->unsettled = rc != PST_OK;
    if (rc != PST_OK)
        lose_drives(n);
}

/* False: the stack must work first. */
static bool serve_groups(struct nvme *n)
{
    const bool operations = n->in_flight > 0;
    if (!operations)
        send_groups(n);
    struct pst_io_group *group = pst_io_gpu_ready(n->gpu, operations), *done[FINISHED_MAX];
    if (group != NULL) {
        int count;
        pst_io_gpu_finish(n->gpu, group, done, &count);
        end_groups(n, done, count);
        return true;
    }
    if (operations && pst_io_gpu_own(n->gpu))
        take_queues(n);
    return !operations;
}

/* ---- both --------------------------------------------------------------------------------------------- */

static bool has_work(const struct nvme *n)
{
    return n->todo.head != NULL || n->in_flight > 0 || n->serving > 0 || n->groups_todo.head != NULL ||
           n->sending.head != NULL || (n->gpu != NULL && pst_io_gpu_ready(n->gpu, false) != NULL);
}

/* Waits until there is something to do. False: the thread must end. */
static bool await_work(struct nvme *n)
{
    (void)pthread_mutex_lock(&n->lock);
    while (!has_work(n) && !n->stop)
        (void)pthread_cond_wait(&n->work, &n->lock);
    for (struct pst_io_op *op; (op = pst_io_op_pop(&n->todo)) != NULL; n->in_flight++)
        pst_io_op_push(&n->cutting, op);
    pst_io_groups_move(&n->sending, &n->groups_todo);
    const bool stop = n->stop;
    (void)pthread_mutex_unlock(&n->lock);
    return !stop;
}

static bool serve_operations(struct nvme *n)
{
    struct pst_nvme_result results[RESULTS_MAX];
    uint32_t ended = 0;
    cut_all(n);
    if (n->gpu == NULL)
        serve_tables(n);
    if (n->unsettled)
        return true;
    pst_rc rc = pst_nvme_stack_poll(n->stack, results, RESULTS_MAX, &ended);
    if (rc != PST_OK) /* the stack has ended all its requests and takes no more */
        lose_drives(n);
    for (uint32_t i = 0; i < ended; i++)
        take_result(n, &results[i]);
    return ended > 0;
}

void *pst_io_nvme_thread(void *argument)
{
    struct nvme *n = argument;
    (void)prctl(PR_SET_TIMERSLACK, 1000ul);
    for (int idle = 0; await_work(n);) {
        const bool moved = (n->gpu != NULL && serve_groups(n)) || serve_operations(n);
        idle = moved ? 0 : idle + 1;
        if (idle > SPINS)
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return NULL;
}
