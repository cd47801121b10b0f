/* drive_tables.h: whole tables of requests for drives whose queues the CPU drives. A group of requests
 * becomes requests of the stack at once, so that one wave takes them all: the stack counts, scans and
 * scatters them, its lanes write their shares, and each queue gets one doorbell.
 *
 * Requests that do not fill the drives' blocks, that are on no drive, or that failed are left to the engine.
 * Owner: nvme.c opens and closes it. Threads: the driving one, except open and close. */
#ifndef PST_DRIVE_TABLES_H
#define PST_DRIVE_TABLES_H

#include "stages/lib/io/drives.h"

struct pst_io_tables;

/* Makes room for b->groups groups of b->group_requests requests, and sets these two. Memory that no group
 * needs is not touched. */
PST_MUST_USE pst_rc pst_io_tables_open(struct pst_io_tables **out, const struct pst_io_drives *drives,
                                       const struct pst_io_config *config, struct pst_io_backend *b);
void pst_io_tables_close(struct pst_io_tables *t);

/* Checks the requests of a group and finds where they lie. False: the group has ended, because a request is
 * wrong (group->bad) or because all are left to the engine. */
bool pst_io_tables_take(struct pst_io_tables *t, struct pst_io_group *group);

/* Gives the stack the group's requests. False: the stack has no room; call it again after a poll. */
bool pst_io_tables_send(struct pst_io_tables *t, struct pst_io_group *group, struct pst_nvme_stack *stack);

/* Whether a result's `user` is a request of these tables. */
bool pst_io_tables_own(const struct pst_io_tables *t, const void *user);

/* Takes one result. Returns its group if that was the last one, or NULL. */
struct pst_io_group *pst_io_tables_end(struct pst_io_tables *t, const struct pst_nvme_result *result);

/* If all requests of a group that was sent have ended, fills in its counts. False: some are in flight. */
bool pst_io_tables_ended(struct pst_io_tables *t, struct pst_io_group *group);

#endif
