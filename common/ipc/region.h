/* region.h: memory that several processes share. It is a memfd of the memory host. Other processes open it
 * through /proc/PID/fd of the host. So there is nothing to unlink, it disappears with its last user, and
 * other users of the machine cannot open it. Owner: the caller. Threads: any, each with its own region. */
#ifndef PST_REGION_H
#define PST_REGION_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_region {
    void *base;
    uint64_t bytes;
};

#define PST_REGION_MAPPED_MAX 4096 /* of one process */

/* The name of a region: "/proc/PID/fd/N" for host memory, "cuda:N HANDLE" (pst_ipc_text) for a GPU's. */
#define PST_REGION_PATH_MAX 160

/* For the memory host: makes a memfd and allocates all of it. If memory is short it fails now, and not by
 * SIGBUS later. Regions of at least 2 MiB get huge pages if the system gives them to shared memory (the file
 * shmem_enabled of transparent_hugepage in sysfs is `advise`, `within_size` or `always`). scattered: rows are
 * read anywhere in it, so it also gets them if the file is `never`, since Linux 6.1. */
PST_API PST_MUST_USE pst_rc pst_region_create(int *fd, const char *name, uint64_t bytes, bool scattered);
/* Maps a region by path ("/proc/PID/fd/N"). */
PST_API PST_MUST_USE pst_rc pst_region_map(struct pst_region *region, const char *path, uint64_t bytes);
/* Makes a memfd and maps it: zeroed memory that other processes can share (pst_region_find). */
PST_API PST_MUST_USE pst_rc pst_region_new(struct pst_region *region, const char *name, uint64_t bytes);
PST_API void pst_region_unmap(struct pst_region *region);

/* The descriptor and offset of memory that lies in a mapped region of this process. The region owns the
 * descriptor: do not close it. PST_E_ARG: the memory lies in no region. */
PST_MUST_USE pst_rc pst_region_find(const void *addr, uint64_t bytes, int *fd, uint64_t *offset);

PST_END_DECLS
#endif
