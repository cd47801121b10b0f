#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"

pst_rc pst_region_create(int *fd, const char *name, uint64_t bytes)
{
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return pst_fail_errno("memfd_create %s", name);
    if (ftruncate(*fd, (off_t)bytes) == 0 && fallocate(*fd, 0, 0, (off_t)bytes) == 0 &&
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return PST_OK;
    pst_rc rc =
        pst_fail_errno("%s: %.1f MiB of shared memory are not to be had", name, (double)bytes / 1048576.0);
    (void)close(*fd);
    *fd = -1;
    return rc;
}

pst_rc pst_region_map(struct pst_region *region, const char *path, uint64_t bytes)
{
    memset(region, 0, sizeof *region);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return pst_fail_errno("cannot open shared memory %s", path);
    struct stat st;
    pst_rc rc = PST_OK;
    void *base = MAP_FAILED;
    if (fstat(fd, &st) != 0)
        rc = pst_fail_errno("cannot stat shared memory %s", path);
    else if ((uint64_t)st.st_size < bytes)
        rc = pst_fail(PST_E_FORMAT, "shared memory %s has %lld bytes, expected %llu", path,
                      (long long)st.st_size, (unsigned long long)bytes);
    else if ((base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        rc = pst_fail_errno("cannot map shared memory %s", path);
    (void)close(fd);
    if (rc == PST_OK)
        *region = (struct pst_region){base, bytes};
    return rc;
}

void pst_region_unmap(struct pst_region *region)
{
    if (region->base)
        (void)munmap(region->base, region->bytes);
    memset(region, 0, sizeof *region);
}
