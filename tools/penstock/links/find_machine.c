/* find_machine.c: sockets by hwloc, GPUs and their links by NVML; or all from a machine file. NVML is opened
 * at run time; the part of its API that is needed is declared here, so that the build needs no CUDA header.
 */
#include "tools/penstock/links/find_machine.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"

enum { NVML_SUCCESS = 0, NVML_P2P_NVLINK = 2, NVML_P2P_OK = 0, NVML_BUS_ID_BYTES = 32, NVML_NAME_BYTES = 96 };

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[NVML_BUS_ID_BYTES];
};

/* X(member, symbol, parameters). Each function returns an nvmlReturn_t, 0 for success. */
#define NVML_CALLS(X)                                                                                        \
    X(init, "nvmlInit_v2", (void))                                                                           \
    X(shut_down, "nvmlShutdown", (void))                                                                     \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *count))                                                     \
    X(device, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, void **device))                              \
    X(name, "nvmlDeviceGetName", (void *device, char *name, unsigned bytes))                                 \
    X(memory, "nvmlDeviceGetMemoryInfo", (void *device, struct nvml_memory *memory))                         \
    X(pci, "nvmlDeviceGetPciInfo_v3", (void *device, struct nvml_pci *pci))                                  \
    X(p2p, "nvmlDeviceGetP2PStatus", (void *device, void *peer, int capability, int *status))

struct nvml {
    void *library;
#define NVML_MEMBER(member, symbol, parameters) int(*member) parameters;
    NVML_CALLS(NVML_MEMBER)
#undef NVML_MEMBER
};

/* False, with the reason in why: there is no NVML. */
static bool open_nvml(struct nvml *n, char why[PST_LINKS_WHY_BYTES])
{
    n->library = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) {
        (void)snprintf(why, PST_LINKS_WHY_BYTES, "%s, which comes with NVIDIA's driver, is not installed",
                       NVML_LIBRARY);
        return false;
    }
#define NVML_FIND(member, symbol, parameters)                                                                \
    *(void **)&n->member = dlsym(n->library, symbol);                                                        \
    if (n->member == NULL) {                                                                                 \
        (void)snprintf(why, PST_LINKS_WHY_BYTES, "%s lacks %s: update the driver", NVML_LIBRARY, symbol);    \
        return false;                                                                                        \
    }
    NVML_CALLS(NVML_FIND)
#undef NVML_FIND
    const int rc = n->init();
    if (rc != NVML_SUCCESS)
        (void)snprintf(why, PST_LINKS_WHY_BYTES, "NVML does not start: error %d", rc);
    return rc == NVML_SUCCESS;
}

/* ---- sockets -------------------------------------------------------------------------------------- */

static uint64_t memory_near(hwloc_topology_t topology, hwloc_obj_t socket)
{
    uint64_t bytes = 0;
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL;)
        if (hwloc_bitmap_intersects(node->cpuset, socket->cpuset))
            bytes += node->attr->numanode.local_memory;
    return bytes;
}

static pst_rc find_sockets(hwloc_topology_t topology, struct pst_machine *m)
{
    const int n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
    m->nsockets = n > 0 ? n : 1;
    if (m->nsockets > PST_MACHINE_SOCKETS_MAX)
        return pst_fail(PST_E_LIMIT, "this machine has %d processor sockets; expected at most %d", n,
                        PST_MACHINE_SOCKETS_MAX);
    for (int i = 0; i < m->nsockets; i++) {
        hwloc_obj_t socket = n > 0 ? hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, (unsigned)i)
                                   : hwloc_get_root_obj(topology);
        const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, socket->cpuset, HWLOC_OBJ_CORE);
        m->socket[i] =
            (struct pst_machine_socket){.cores = cores > 0 ? cores : hwloc_bitmap_weight(socket->cpuset),
                                        .memory_bytes = memory_near(topology, socket)};
    }
    return PST_OK;
}

/* The socket whose root complex has the PCI device; 0 if that is not known. */
static int socket_of(hwloc_topology_t topology, const char *bus_id)
{
    hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, bus_id);
    hwloc_obj_t near = device != NULL ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;
    for (int i = 0; near != NULL && i < hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE); i++) {
        hwloc_obj_t socket = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, (unsigned)i);
        if (hwloc_bitmap_isincluded(near->cpuset, socket->cpuset))
            return i;
    }
    return 0;
}

/* ---- GPUs ----------------------------------------------------------------------------------------- */

static pst_rc find_gpu(const struct nvml *n, hwloc_topology_t topology, void *gpu,
                       struct pst_machine_device *d)
{
    char name[NVML_NAME_BYTES] = "";
    struct nvml_memory memory = {0};
    struct nvml_pci pci = {0};
    int rc = n->name(gpu, name, sizeof name);
    if (rc == NVML_SUCCESS)
        rc = n->memory(gpu, &memory);
    if (rc == NVML_SUCCESS)
        rc = n->pci(gpu, &pci);
    if (rc != NVML_SUCCESS)
        return pst_fail(PST_E_IO, "NVML, NVIDIA's management library, cannot describe a GPU: error %d", rc);
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    *d = (struct pst_machine_device){.socket = socket_of(topology, pci.bus_id), .memory_bytes = memory.total};
    (void)snprintf(d->model, sizeof d->model, "%s", name);
    return PST_OK;
}

static bool linked(const struct nvml *n, void *gpu, void *peer)
{
    int there = -1, back = -1;
    return n->p2p(gpu, peer, NVML_P2P_NVLINK, &there) == NVML_SUCCESS && there == NVML_P2P_OK &&
           n->p2p(peer, gpu, NVML_P2P_NVLINK, &back) == NVML_SUCCESS && back == NVML_P2P_OK;
}

static pst_rc find_gpus(const struct nvml *n, hwloc_topology_t topology, struct pst_machine *m)
{
    void *gpu[PST_MACHINE_DEVICES_MAX];
    unsigned count = 0;
    int rc = n->count(&count);
    if (rc != NVML_SUCCESS)
        return pst_fail(PST_E_IO, "NVML, NVIDIA's management library, cannot count the GPUs: error %d", rc);
    if (count > PST_MACHINE_DEVICES_MAX)
        return pst_fail(PST_E_LIMIT, "this machine has %u GPUs; expected at most %d", count,
                        PST_MACHINE_DEVICES_MAX);
    for (unsigned i = 0; i < count; i++) {
        rc = n->device(i, &gpu[i]);
        if (rc != NVML_SUCCESS)
            return pst_fail(PST_E_IO, "NVML, NVIDIA's management library, cannot open GPU %u: error %d", i,
                            rc);
        const pst_rc described = find_gpu(n, topology, gpu[i], &m->device[i]);
        if (described != PST_OK)
            return pst_wrap(described, "cuda:%u", i);
    }
    m->ndevices = (int)count;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < count; k++)
            if (i != k && linked(n, gpu[i], gpu[k]))
                m->device[i].links |= UINT64_C(1) << k;
    return PST_OK;
}

pst_rc pst_probe_topology(struct pst_machine *machine, char why_no_gpus[PST_LINKS_WHY_BYTES])
{
    hwloc_topology_t topology;
    struct nvml nvml = {0};
    *machine = (struct pst_machine){.name = "this"};
    (void)snprintf(why_no_gpus, PST_LINKS_WHY_BYTES, "NVML finds none");
    if (hwloc_topology_init(&topology) != 0)
        return pst_fail(PST_E_NOMEM, "out of memory: hwloc cannot start");
    (void)hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    /* On Linux, hwloc finds PCI devices in /sys, too. Its component "pci" uses libpciaccess, which leaks
     * memory. */
    (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
    pst_rc rc =
        hwloc_topology_load(topology) == 0
            ? find_sockets(topology, machine)
            : pst_fail(PST_E_UNSUPPORTED, "the library hwloc cannot read the topology of this machine");
    if (rc == PST_OK && open_nvml(&nvml, why_no_gpus)) {
        rc = find_gpus(&nvml, topology, machine);
        (void)nvml.shut_down();
    }
    if (nvml.library != NULL)
        (void)dlclose(nvml.library);
    hwloc_topology_destroy(topology);
    return rc;
}

pst_rc pst_probe_load(const char *file, struct pst_machine *machine)
{
    struct pst_diag diag = {0};
    const bool ok = pst_machine_load(machine, file, &diag);
    pst_diag_print(&diag);
    pst_diag_release(&diag);
    return ok ? PST_OK
              : pst_fail(PST_E_FORMAT, "%s is not a valid machine file: correct the errors above", file);
}
