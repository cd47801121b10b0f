/* probe_gpu.c: tries CUDA in two processes: devices, shared memory and events, registers of a drive. */
#include "tools/penstock/machine/probe_gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"
#include "common/nvme/driver/pci.h"
#include "common/nvme/driver/vfio.h"
#include "tools/penstock/machine/cuda_driver.h"
#include "tools/penstock/machine/probe_pair.h"

enum {
    REGION_BYTES = 2 << 20,
    SHARED_BYTES = 1 << 20,
    BAR_BYTES = 8192, /* registers and the first doorbells, which every controller has */
    PATTERN = 0x5C,
    CHECKED = 64,
};

struct handles {
    struct pst_ipc_handle memory, event;
};

struct message {
    struct pst_probe_gpu found;
    struct handles handles;
};

static bool worked(const struct pst_driver *cu, int error, const char *call, struct pst_probe_answer *answer)
{
    answer->works = error == 0;
    if (error != 0)
        (void)snprintf(answer->why, sizeof answer->why, "%s: %s", call, pst_driver_error(cu, error));
    return answer->works;
}

#define WORKED(cu, call, answer) worked((cu), (cu)->call, #call, (answer))

static bool start(struct pst_driver *cu, struct pst_probe_answer *answer)
{
    if (pst_driver_open(cu) != PST_OK) {
        (void)snprintf(answer->why, sizeof answer->why, "%.*s", (int)sizeof answer->why - 1,
                       pst_error_text());
        return false;
    }
    return WORKED(cu, init(0), answer);
}

static bool use_first(const struct pst_driver *cu, struct pst_probe_answer *answer)
{
    int device = 0;
    void *context = NULL;
    return WORKED(cu, device(&device, 0), answer) && WORKED(cu, retain(&context, device), answer) &&
           WORKED(cu, use(context), answer);
}

static void look_at_devices(const struct pst_driver *cu, struct pst_probe_gpu *found)
{
    int count = 0, can = 0;
    if (!WORKED(cu, version(&found->version), &found->driver) || !WORKED(cu, count(&count), &found->driver))
        return;
    found->devices = count < PST_PROBE_DEVICES_MAX ? count : PST_PROBE_DEVICES_MAX;
    for (int i = 0; i < found->devices && found->driver.works; i++) {
        struct pst_probe_device *d = &found->device[i];
        int device = 0;
        size_t bytes = 0;
        const bool known =
            WORKED(cu, device(&device, i), &found->driver) &&
            WORKED(cu, name(d->name, (int)sizeof d->name, device), &found->driver) &&
            WORKED(cu, memory(&bytes, device), &found->driver) &&
            WORKED(cu, attribute(&d->multiprocessors, PST_CU_MULTIPROCESSORS, device), &found->driver) &&
            WORKED(cu, attribute(&d->major, PST_CU_MAJOR, device), &found->driver) &&
            WORKED(cu, attribute(&d->minor, PST_CU_MINOR, device), &found->driver);
        d->bytes = bytes;
        for (int peer = 0; known && peer < found->devices; peer++)
            if (peer != i && cu->can_access(&can, i, peer) == 0 && can)
                d->peers |= 1u << peer;
    }
}

static void ask_device(const struct pst_driver *cu, int attribute, const char *lacking,
                       struct pst_probe_answer *answer)
{
    int device = 0, can = 0;
    if (!WORKED(cu, device(&device, 0), answer) || !WORKED(cu, attribute(&can, attribute, device), answer))
        return;
    answer->works = can != 0;
    if (!can)
        (void)snprintf(answer->why, sizeof answer->why, "%s", lacking);
}

/* The address of the first controller that is bound to vfio-pci. */
static bool bound_drive(const char *root, char address[PST_PCI_ADDRESS_BYTES])
{
    char found[PST_PCI_NVME_MAX][PST_PCI_ADDRESS_BYTES];
    const int n = pst_pci_nvme(root, found);
    for (int i = 0; i < n; i++) {
        struct pst_pci pci;
        if (pst_pci_read(&pci, root, found[i]) == PST_OK && strcmp(pci.driver, "vfio-pci") == 0) {
            memcpy(address, found[i], PST_PCI_ADDRESS_BYTES);
            return true;
        }
    }
    return false;
}

/* Registers these registers with CUDA, after it has read a word of each page, as a run does: VFIO maps a page
 * when it is first used (pst_nvme_registers_touch). */
static void register_them(const struct pst_driver *cu, const volatile void *registers,
                          struct pst_probe_answer *answer)
{
    for (uint64_t at = 0; at < BAR_BYTES; at += PST_PAGE)
        (void)*(const volatile uint32_t *)(const volatile void *)((const volatile char *)registers + at);
    (void)WORKED(cu,
                 registered((void *)(uintptr_t)registers, BAR_BYTES,
                            PST_CU_REGISTER_PORTABLE | PST_CU_REGISTER_IO_MEMORY),
                 answer);
}

/* Tests have a tree of their own, where a file is in place of the registers. */
static void try_file(const struct pst_driver *cu, const char *root, const char *address,
                     struct pst_probe_answer *answer)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/resource0", root, address);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, BAR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        (void)snprintf(answer->why, sizeof answer->why, "the registers of %s cannot be mapped: %s", address,
                       strerror(errno));
    else
        register_them(cu, at, answer);
    if (fd >= 0)
        (void)close(fd);
}

/* Maps a controller's registers through VFIO, as a run does, and registers them. It writes none of them. */
static void try_registers(const struct pst_driver *cu, struct pst_probe_answer *answer)
{
    const char *of_tests = getenv("PENSTOCK_PROBE_ROOT"), *root = of_tests ? of_tests : "";
    char address[PST_PCI_ADDRESS_BYTES];
    struct pst_nvme_transport t = {.ops = NULL};
    if (!bound_drive(root, address)) {
        (void)snprintf(answer->why, sizeof answer->why,
                       "not tried: no NVMe controller is bound to vfio-pci (penstock disks --bind)");
        return;
    }
    if (of_tests) {
        try_file(cu, root, address, answer);
        return;
    }
    if (pst_nvme_vfio_connect(&t, address) != PST_OK) {
        (void)snprintf(answer->why, sizeof answer->why, "the registers of %s cannot be mapped: %.*s", address,
                       (int)sizeof answer->why / 2, pst_error_text());
        return;
    }
    register_them(cu, t.regs, answer);
    t.ops->close(&t);
}

static bool make(void *message, void *shared)
{
    struct message *m = message;
    struct pst_driver cu;
    struct pst_probe_gpu *found = &m->found;
    unsigned long long at = 0;
    void *event = NULL;
    if (!start(&cu, &found->driver))
        return false;
    look_at_devices(&cu, found);
    if (found->devices == 0 || !use_first(&cu, &found->driver))
        return false;
    (void)WORKED(&cu, registered(shared, SHARED_BYTES, PST_CU_REGISTER_PORTABLE), &found->shared_memory);
    ask_device(&cu, PST_CU_ONE_ADDRESS, "the GPU and the host see pinned memory at different addresses",
               &found->one_address);
    ask_device(&cu, PST_CU_DMA_BUF, "the driver cannot export GPU memory as a dma-buf", &found->dma_buf);
    try_registers(&cu, &found->drive_registers);
    if (WORKED(&cu, alloc(&at, REGION_BYTES), &found->ipc_memory) &&
        WORKED(&cu, fill(at, PATTERN, REGION_BYTES), &found->ipc_memory))
        (void)WORKED(&cu, memory_handle(&m->handles.memory, at), &found->ipc_memory);
    if (WORKED(&cu, event(&event, PST_CU_EVENT_SHARED), &found->ipc_event) &&
        WORKED(&cu, record(event, NULL), &found->ipc_event))
        (void)WORKED(&cu, event_handle(&m->handles.event, event), &found->ipc_event);
    return true;
}

/* Opens the maker's memory and compares its content. */
static bool open_once(const struct pst_driver *cu, const struct pst_ipc_handle *handle,
                      struct pst_probe_answer *answer)
{
    unsigned long long at = 0;
    unsigned char bytes[CHECKED] = {0}, wanted[CHECKED];
    memset(wanted, PATTERN, sizeof wanted);
    if (!WORKED(cu, open_memory(&at, *handle, PST_CU_LAZY_PEER_ACCESS), answer) ||
        !WORKED(cu, to_host(bytes, at + REGION_BYTES - CHECKED, CHECKED), answer) ||
        !WORKED(cu, close_memory(at), answer))
        return false;
    answer->works = memcmp(bytes, wanted, sizeof bytes) == 0;
    if (!answer->works)
        (void)snprintf(answer->why, sizeof answer->why, "the shared memory was opened, but held wrong bytes");
    return answer->works;
}

static void open_all(void *message)
{
    struct message *m = message;
    struct pst_driver cu;
    struct pst_probe_gpu *found = &m->found;
    void *event = NULL;
    struct pst_probe_answer own = {0};
    if (!start(&cu, &own) || !use_first(&cu, &own)) {
        found->ipc_event = found->ipc_memory = own;
        return;
    }
    if (found->ipc_memory.works && open_once(&cu, &m->handles.memory, &found->ipc_memory))
        (void)open_once(&cu, &m->handles.memory, &found->ipc_reopen);
    if (found->ipc_event.works && WORKED(&cu, open_event(&event, m->handles.event), &found->ipc_event))
        (void)WORKED(&cu, wait(event), &found->ipc_event);
}

pst_rc pst_probe_gpu(struct pst_probe_gpu *found)
{
    struct message m = {0};
    void *shared = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return pst_fail_errno("cannot map %d bytes", SHARED_BYTES);
    const pst_rc rc = pst_probe_pair(make, open_all, &m, sizeof m, shared);
    *found = m.found;
    (void)munmap(shared, SHARED_BYTES);
    return rc;
}
