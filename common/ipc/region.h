/* region.h: memory that several processes share: a memfd of the memory host, which others open by the
 * host's /proc entry: nothing to unlink, gone with its last user, closed to other users of the machine. */
#ifndef PST_REGION_H
#define PST_REGION_H

#include "common/base.h"

struct pst_region {
    void *base;
    uint64_t bytes;
};

#define PST_REGION_MAPPED_MAX 4096 /* of one process */

/* Where a region is found: "/proc/PID/fd/N" of host memory, or "cuda:N HANDLE" (pst_ipc_text) of a GPU's. */
#define PST_REGION_PATH_MAX 160

/* For the memory host: makes and fills a memfd (so that a full machine is told now, not by SIGBUS later). */
PST_MUST_USE pst_rc pst_region_create(int *fd, const char *name, uint64_t bytes);
/* Maps a region by path ("/proc/PID/fd/N"). */
PST_MUST_USE pst_rc pst_region_map(struct pst_region *region, const char *path, uint64_t bytes);
/* Makes a memfd and maps it: zeroed memory that can be shared with others by pst_region_find. */
PST_MUST_USE pst_rc pst_region_new(struct pst_region *region, const char *name, uint64_t bytes);
void pst_region_unmap(struct pst_region *region);

/* The descriptor (the region's own: not to be closed) and offset of memory that lies in a mapped region of
 * this process. PST_E_ARG if it does not. Threads: any. */
PST_MUST_USE pst_rc pst_region_find(const void *addr, uint64_t bytes, int *fd, uint64_t *offset);

#endif
