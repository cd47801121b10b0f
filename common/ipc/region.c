/* region.c: memfds, and what this process has mapped of them. */
#include "common/ipc/region.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/clock.h"

#define HUGE_BYTES ((uint64_t)2 << 20)      /* a huge page of x86-64, and of ARM with small pages of 4 KiB */
#define COLLAPSE_BYTES ((uint64_t)16 << 20) /* that one request collapses */
/* What making huge pages may take: this, and as much for each page as is usual. If free memory is
 * fragmented, the kernel moves other pages to make room, and a huge page takes ten times as long. */
#define COLLAPSE_S 0.25
#define COLLAPSE_PAGE_S 0.0005
#ifndef PST_REGION_POLICY /* a test has another one */
#define PST_REGION_POLICY "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

/* Is this the system's policy for huge pages of shared memory? */
static bool policy_is(const char *name)
{
    char text[128] = "";
    const int fd = open(PST_REGION_POLICY, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        (void)close(fd);
    return n > 0 && strstr(text, name) != NULL;
}

/* Maps all of fd. A large region begins at a huge page, because only then it can consist of them. NULL: errno
 * says why. */
static void *map_aligned(int fd, uint64_t bytes)
{
    const uint64_t room = bytes + (bytes >= HUGE_BYTES ? HUGE_BYTES : 0);
    char *all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    char *base = room > bytes ? (char *)pst_align_up((uint64_t)(uintptr_t)all, HUGE_BYTES) : all;
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        const int why = errno;
        (void)munmap(all, room);
        errno = why;
        return NULL;
    }
    const uint64_t used = pst_align_up(bytes, PST_PAGE);
    if (base > all)
        (void)munmap(all, (size_t)(base - all));
    if (all + room > base + used)
        (void)munmap(base + used, (size_t)(all + room - (base + used)));
    return base;
}

/* Makes huge pages where the policy gives none. The kernel turns one small page of each into the huge page on
 * request, whatever the policy. This stops if the kernel has no huge page left, does not know the request, or
 * takes too long. */
static void collapse(char *base, int fd, uint64_t bytes)
{
    const double begin = pst_clock_s();
    for (uint64_t at = 0; at + HUGE_BYTES <= bytes; at += COLLAPSE_BYTES) {
        const uint64_t made = at / HUGE_BYTES;
        if (pst_clock_s() - begin > COLLAPSE_S + COLLAPSE_PAGE_S * (double)made)
            return;
        const uint64_t end = at + COLLAPSE_BYTES < bytes ? at + COLLAPSE_BYTES : bytes;
        for (uint64_t page = at; page < end; page += HUGE_BYTES)
            if (fallocate(fd, 0, (off_t)page, (off_t)PST_PAGE) != 0)
                return;
        if (madvise(base + at, end / HUGE_BYTES * HUGE_BYTES - at, MADV_COLLAPSE) != 0)
            return;
    }
}

/* Makes pages of the region, huge ones where the kernel has them. fallocate would make small ones, because it
 * knows no advice. What is not made here, fallocate makes afterwards. */
static void make_huge(int fd, uint64_t bytes, bool scattered)
{
    const bool advised = policy_is("[advise]"), never = policy_is("[never]");
    if (bytes < HUGE_BYTES || !(advised || (never && scattered)))
        return;
    void *base = map_aligned(fd, bytes);
    if (!base)
        return;
    if (never)
        collapse(base, fd, bytes);
    else if (madvise(base, bytes, MADV_HUGEPAGE) == 0)
        (void)madvise(base, bytes, MADV_POPULATE_WRITE);
    (void)munmap(base, bytes);
}

pst_rc pst_region_create(int *fd, const char *name, uint64_t bytes, bool scattered)
{
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return pst_fail_errno("cannot create shared memory for %s", name);
    const bool sized = ftruncate(*fd, (off_t)bytes) == 0;
    if (sized)
        make_huge(*fd, bytes, scattered);
    if (sized && fallocate(*fd, 0, 0, (off_t)bytes) == 0 &&
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return PST_OK;
    pst_rc rc =
        pst_fail_errno("cannot allocate %.1f MiB of shared memory for %s", (double)bytes / 1048576.0, name);
    (void)close(*fd);
    *fd = -1;
    return rc;
}

/* What is mapped. common/nvme needs descriptors of memory for its controllers, and knows only addresses. */
static struct mapped {
    const char *base;
    uint64_t bytes;
    int fd;
} mapped[PST_REGION_MAPPED_MAX];
static int nmapped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static pst_rc remember(const struct pst_region *region, int fd)
{
    pst_rc rc = PST_OK;
    (void)pthread_mutex_lock(&lock);
    if (nmapped == PST_REGION_MAPPED_MAX)
        rc = pst_fail(PST_E_LIMIT,
                      "this process would map more than %d regions of shared memory: use fewer links, or "
                      "smaller groups of stages",
                      PST_REGION_MAPPED_MAX);
    else
        mapped[nmapped++] = (struct mapped){region->base, region->bytes, fd};
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static void forget(const struct pst_region *region)
{
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < nmapped; i++) {
        if (mapped[i].base != region->base)
            continue;
        (void)close(mapped[i].fd);
        mapped[i] = mapped[--nmapped];
        break;
    }
    (void)pthread_mutex_unlock(&lock);
}

pst_rc pst_region_find(const void *addr, uint64_t bytes, int *fd, uint64_t *offset)
{
    const char *at = addr;
    pst_rc rc = PST_E_ARG;
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < nmapped && rc != PST_OK; i++) {
        const struct mapped *m = &mapped[i];
        if (at < m->base || at >= m->base + m->bytes || bytes > (uint64_t)(m->base + m->bytes - at))
            continue;
        *fd = m->fd;
        *offset = (uint64_t)(at - m->base);
        rc = PST_OK;
    }
    (void)pthread_mutex_unlock(&lock);
    return rc == PST_OK
               ? rc
               : pst_fail(rc,
                          "no region of shared memory that this process has mapped contains the address %p",
                          addr);
}

/* Maps fd, which it keeps on success. */
static pst_rc map_fd(struct pst_region *region, int fd, const char *name, uint64_t bytes)
{
    void *base = map_aligned(fd, bytes);
    if (!base)
        return pst_fail_errno("cannot map shared memory %s", name);
    *region = (struct pst_region){base, bytes};
    pst_rc rc = remember(region, fd);
    if (rc != PST_OK) {
        (void)munmap(base, bytes);
        memset(region, 0, sizeof *region);
    }
    return rc;
}

pst_rc pst_region_new(struct pst_region *region, const char *name, uint64_t bytes)
{
    int fd;
    memset(region, 0, sizeof *region);
    pst_rc rc = pst_region_create(&fd, name, bytes, false);
    if (rc != PST_OK)
        return rc;
    rc = map_fd(region, fd, name, bytes);
    if (rc != PST_OK)
        (void)close(fd);
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
    if (fstat(fd, &st) != 0)
        rc = pst_fail_errno("cannot get the size of shared memory %s", path);
    else if ((uint64_t)st.st_size < bytes)
        rc = pst_fail(PST_E_FORMAT, "shared memory %s has %lld bytes; expected %llu bytes", path,
                      (long long)st.st_size, (unsigned long long)bytes);
    else
        rc = map_fd(region, fd, path, bytes);
    if (rc != PST_OK)
        (void)close(fd);
    return rc;
}

void pst_region_unmap(struct pst_region *region)
{
    if (region->base) {
        forget(region);
        (void)munmap(region->base, region->bytes);
    }
    memset(region, 0, sizeof *region);
}
