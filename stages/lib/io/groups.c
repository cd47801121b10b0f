/* groups.c: tables for a backend that takes them: cut into groups, posted, and taken back. The engine carries
 * out the requests that the backend leaves, like those of any table. */
#include <stdlib.h>

#include "stages/lib/io/engine_impl.h"
#include "common/error.h"

#define GROUPS_AT_ONCE 16 /* groups taken from the backend at once */

pst_rc pst_disk_groups_new(struct pst_disk *d)
{
    const uint32_t n = d->backend.groups, requests = d->backend.group_requests;
    struct pst_disk_groups *g = &d->groups;
    if (n == 0)
        return PST_OK;
    g->all = calloc(n, sizeof *g->all);
    g->left = malloc((size_t)n * requests * sizeof *g->left);
    if (g->all == NULL || g->left == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %u groups of %u disk requests", n,
                        requests);
    for (uint32_t i = n; i-- > 0;) {
        g->all[i].io.index = i;
        g->all[i].io.left = g->left + (size_t)i * requests;
        g->all[i].next = g->free;
        g->free = &g->all[i];
    }
    return PST_OK;
}

void pst_disk_groups_delete(struct pst_disk_groups *g)
{
    free(g->all);
    free(g->left);
    *g = (struct pst_disk_groups){0};
}

static const atomic_bool at_once = true; /* `whole` of groups that need not wait for their slot */

/* Posts the next requests of the first waiting table. */
static void post_group(struct pst_disk *d, struct pst_disk_group *group)
{
    struct pst_disk_table *table = &d->tables[d->head];
    const uint64_t left = table->count - table->next;
    struct pst_io_group *io = &group->io;
    group->of = *table;
    group->first = table->next;
    group->posted = true;
    io->slot = table->slot;
    io->slot_bytes = table->slot_bytes;
    io->at = table->at + table->next * sizeof(struct pst_request);
    io->n = left < d->backend.group_requests ? (uint32_t)left : d->backend.group_requests;
    io->whole = d->config.complete_parts ? &at_once : &table->ticket->whole;
    io->nleft = io->bad = io->failed = 0;
    io->rows = io->row_bytes_wanted = io->commands = io->bytes = io->copied_bytes = io->merged = 0;
    io->why[0] = '\0';
    table->ticket->tables++;
    table->next += io->n;
    d->backend.ops->post_group(&d->backend, io);
    d->posted++;
    d->in_flight += (int)io->n;
}

void pst_disk_groups_post(struct pst_disk *d)
{
    struct pst_disk_groups *g = &d->groups;
    while (g->free != NULL && d->ntables > 0) {
        struct pst_disk_group *group = g->free;
        g->free = group->next;
        post_group(d, group);
        if (d->tables[d->head].next == d->tables[d->head].count)
            pst_disk_drop_table(d);
    }
}

static void end_group(struct pst_disk *d, struct pst_disk_group *group)
{
    group->of.ticket->tables--;
    group->next = d->groups.free;
    d->groups.free = group;
}

/* Queues the requests that the backend left. */
static void hand(struct pst_disk *d, struct pst_disk_group *group)
{
    struct pst_disk_groups *g = &d->groups;
    for (uint32_t i = 0; i < group->io.nleft; i++)
        group->io.left[i] += (uint32_t)group->first;
    group->of.pick = group->io.left;
    group->of.count = group->io.nleft;
    group->of.next = group->of.next_byte = 0;
    group->next = NULL;
    if (g->handed == NULL)
        g->handed = group;
    else
        g->handed_end->next = group;
    g->handed_end = group;
    d->stats.handed += group->io.nleft;
}

static pst_rc take_group(struct pst_disk *d, struct pst_disk_group *group)
{
    const struct pst_io_group *io = &group->io;
    group->posted = false;
    d->in_flight -= (int)io->n;
    d->stats.requests += io->commands;
    d->stats.bytes += io->bytes;
    d->stats.rows += io->rows;
    d->stats.row_bytes_wanted += io->row_bytes_wanted;
    d->stats.copied_bytes += io->copied_bytes;
    d->stats.merged += io->merged;
    d->stats.retries += io->failed; /* the engine tries them again */
    pst_rc rc = PST_OK;
    if (io->why[0] != '\0')
        rc = pst_fail(PST_E_IO, "%s", io->why);
    else if (io->bad > 0)
        rc = pst_disk_pieces_refuse(&d->pieces, &group->of, group->first + io->bad - 1);
    if (rc == PST_OK && io->nleft > 0)
        hand(d, group);
    else
        end_group(d, group);
    return rc;
}

pst_rc pst_disk_groups_take(struct pst_disk *d, bool *any)
{
    struct pst_io_group *done[GROUPS_AT_ONCE];
    const int n = d->backend.groups > 0 ? d->backend.ops->poll_groups(&d->backend, done, GROUPS_AT_ONCE) : 0;
    pst_rc first = PST_OK;
    *any = *any || n > 0;
    for (int i = 0; i < n; i++) {
        const pst_rc rc = take_group(d, (struct pst_disk_group *)(void *)done[i]);
        first = first == PST_OK ? rc : first;
    }
    return first;
}

void pst_disk_groups_done(struct pst_disk *d)
{
    struct pst_disk_group *group = d->groups.handed;
    d->groups.handed = group->next;
    end_group(d, group);
}

void pst_disk_groups_hurry(struct pst_disk *d)
{
    for (uint32_t i = 0; d->groups.all != NULL && i < d->backend.groups; i++) {
        if (d->groups.all[i].posted)
            atomic_store_explicit(&d->groups.all[i].of.ticket->whole, true, memory_order_release);
    }
}
