/* region.h: memory that several processes share: a memfd of the memory host, which others open by the
 * host's /proc entry: nothing to unlink, gone with its last user, closed to other users of the machine. */
#ifndef PST_REGION_H
#define PST_REGION_H

#include "base.h"

struct pst_region {
    void *base;
    uint64_t bytes;
};

/* For the memory host: makes and fills a memfd (so that a full machine is told now, not by SIGBUS later). */
PST_MUST_USE pst_rc pst_region_create(int *fd, const char *name, uint64_t bytes);
/* Maps a region by path ("/proc/PID/fd/N"). */
PST_MUST_USE pst_rc pst_region_map(struct pst_region *region, const char *path, uint64_t bytes);
void pst_region_unmap(struct pst_region *region);

#endif
