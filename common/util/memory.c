/* memory.c: reads /proc/meminfo and the memory cgroups of this process, version 1 or 2; asks for huge pages.
 */
#include "common/util/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/error.h"

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20) /* of x86-64 */
#define LEAST (64ull << 20)                 /* below this, sorting is all overhead */

static bool read_number(const char *path, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    bool ok = fscanf(f, "%" SCNu64, out) == 1; /* "max" is none */
    (void)fclose(f);
    return ok;
}

/* A number of /proc/meminfo; 0: it is not there. */
static uint64_t machine(const char *format)
{
    uint64_t kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, format, &kib) == 1) /* the two formats of the callers below */
            break;
    if (f != NULL)
        (void)fclose(f);
    return kib * 1024;
}

/* The smallest limit of a cgroup and those above it. What they use already does not count, since most of it
 * is cache. */
static uint64_t cgroup_limit(const char *mount, const char *path, const char *file, uint64_t most)
{
    char at[4096], name[8192];
    (void)snprintf(at, sizeof at, "%s", path);
    for (;;) {
        uint64_t limit;
        (void)snprintf(name, sizeof name, "%s%s/%s", mount, at, file);
        if (read_number(name, &limit) && limit < most)
            most = limit;
        char *slash = strrchr(at, '/');
        if (slash == NULL || at[0] == '\0')
            return most;
        *slash = '\0';
    }
}

static uint64_t limit_of_cgroups(uint64_t most)
{
    char line[4096];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        controllers++;
        if (controllers[0] == '\0')
            most = cgroup_limit("/sys/fs/cgroup", path, "memory.max", most);
        else if (strcmp(controllers, "memory") == 0)
            most = cgroup_limit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", most);
    }
    if (f != NULL)
        (void)fclose(f);
    return most;
}

uint64_t pst_memory_free(void)
{
    return limit_of_cgroups(machine("MemAvailable: %" SCNu64));
}

uint64_t pst_memory_default(void)
{
    const uint64_t most = pst_memory_free();
    return most / 2 > LEAST ? most / 2 : LEAST;
}

uint64_t pst_memory_limit(void)
{
    return limit_of_cgroups(machine("MemTotal: %" SCNu64));
}

/* Not getrusage's: that goes on counting what the process was before it became this program. */
uint64_t pst_memory_peak(void)
{
    uint64_t kib = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
            break;
    if (f != NULL)
        (void)fclose(f);
    return kib * 1024;
}

/* madvise is a request: without huge pages everything works, only slower. */
void *pst_hugepage_alloc(uint64_t bytes)
{
    const bool huge = bytes >= HUGE_PAGE_BYTES;
    const uint64_t align = huge ? HUGE_PAGE_BYTES : PST_PAGE;
    const uint64_t room = pst_align_up(bytes > 0 ? bytes : 1, align);
    void *memory = aligned_alloc(align, room);
    if (memory != NULL && huge)
        (void)madvise(memory, room, MADV_HUGEPAGE);
    return memory;
}

void *pst_hugepage_map(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGE_BYTES)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

void pst_hugepage_unmap(void *memory, uint64_t bytes)
{
    if (memory != NULL)
        (void)munmap(memory, bytes > 0 ? bytes : 1);
}

pst_rc pst_memory_need(struct pst_memory_buffer *buffer, uint64_t bytes, const char *use)
{
    if (bytes <= buffer->bytes)
        return PST_OK;
    free(buffer->at);
    buffer->bytes = pst_align_up(bytes + bytes / 8, PST_PAGE);
    buffer->at = aligned_alloc(PST_PAGE, buffer->bytes);
    if (buffer->at != NULL)
        return PST_OK;
    buffer->bytes = 0;
    return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRIu64 " bytes to %s", bytes, use);
}
