/* disk_sources.h: the disk stage but for its ports, for tests that look into it. */
#ifndef DISK_SOURCES_H
#define DISK_SOURCES_H

#include "../../stages/disk/backend_faulty.c"
#include "../../stages/disk/backend_mmap.c"
#include "../../stages/disk/backend_nvme.c"
#include "../../stages/disk/backend_pread.c"
#include "../../stages/disk/backend_uring.c"
#include "../../stages/disk/choose.c"
#include "../../stages/disk/drives.c"
#include "../../stages/disk/engine.c"
#include "../../stages/disk/file_open.c"
#include "../../stages/disk/gpu.c"
#include "../../stages/disk/groups.c"
#include "../../stages/disk/nvme_thread.c"
#include "../../stages/disk/pieces.c"

#endif
