/* pci.c: reads sysfs about NVMe controllers, and binds them to drivers through it. */
#include "common/nvme/driver/pci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"

#define PATH_BYTES 512
#define CLASS_NVME 0x010802 /* mass storage, non-volatile memory, NVM Express */
#define CLASS_BRIDGE 0x06
#define POLL_MS 10

static void device_path(char path[PATH_BYTES], const char *root, const char *address, const char *file)
{
    (void)snprintf(path, PATH_BYTES, "%s/sys/bus/pci/devices/%s/%s", root, address, file);
}

/* Reads the first line of a file, without the newline. False, with "", if it cannot be read. */
static bool read_line(const char *root, const char *address, const char *file, char *out, size_t room)
{
    char path[PATH_BYTES];
    device_path(path, root, address, file);
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, room - 1);
    (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}

static long read_number(const char *root, const char *address, const char *file, long otherwise)
{
    char text[32], *end;
    if (!read_line(root, address, file, text, sizeof text))
        return otherwise;
    long value = strtol(text, &end, 0);
    return end == text ? otherwise : value;
}

/* The last part of a link's target; "" if there is no link. */
static void read_target(const char *root, const char *address, const char *link, char out[PST_NAME_MAX])
{
    char path[PATH_BYTES], target[PATH_BYTES];
    device_path(path, root, address, link);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(target, '/');
    (void)snprintf(out, PST_NAME_MAX, "%s", slash != NULL ? slash + 1 : target);
}

pst_rc pst_pci_address(const char *text, char out[PST_PCI_ADDRESS_BYTES])
{
    unsigned domain = 0, bus, device, function;
    int end = -1;
    if (sscanf(text, "%5x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4 ||
        text[end] != '\0') {
        domain = 0;
        end = -1;
        if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3)
            end = -1;
    }
    if (end < 0 || text[end] != '\0' || device > 0x1f || function > 7 || strpbrk(text, " +-xX") != NULL)
        return pst_fail(PST_E_ARG, "expected a PCI address such as 0000:01:00.0, found '%.64s'", text);
    (void)snprintf(out, PST_PCI_ADDRESS_BYTES, "%04x:%02x:%02x.%x", domain, bus, device, function);
    return PST_OK;
}

static int by_address(const void *a, const void *b)
{
    return strcmp(a, b);
}

int pst_pci_nvme(const char *root, char found[PST_PCI_NVME_MAX][PST_PCI_ADDRESS_BYTES])
{
    char path[PATH_BYTES];
    device_path(path, root, "", "");
    DIR *dir = opendir(path);
    int n = 0;
    for (struct dirent *e; dir != NULL && n < PST_PCI_NVME_MAX && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.' && strlen(e->d_name) < PST_PCI_ADDRESS_BYTES &&
            read_number(root, e->d_name, "class", 0) == CLASS_NVME)
            (void)snprintf(found[n++], PST_PCI_ADDRESS_BYTES, "%.15s", e->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    qsort(found, (size_t)n, sizeof found[0], by_address);
    return n;
}

/* Bridges may share a group with the devices behind them; VFIO permits that. */
static void read_group(struct pst_pci *pci, const char *root)
{
    char name[PST_NAME_MAX], path[PATH_BYTES];
    read_target(root, pci->address, "iommu_group", name);
    pci->iommu_group = name[0] == '\0' ? -1 : (int)strtol(name, NULL, 10);
    device_path(path, root, pci->address, "iommu_group/devices");
    DIR *dir = name[0] == '\0' ? NULL : opendir(path);
    for (struct dirent *e; dir != NULL && pci->others < PST_PCI_OTHERS_MAX && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, pci->address) == 0 ||
            read_number(root, e->d_name, "class", 0) >> 16 == CLASS_BRIDGE)
            continue;
        (void)snprintf(pci->other[pci->others++], PST_PCI_ADDRESS_BYTES, "%.15s", e->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    qsort(pci->other, (size_t)pci->others, sizeof pci->other[0], by_address);
}

static void read_link(const char *root, const char *address, const char *which, char speed[PST_NAME_MAX],
                      int *width)
{
    char file[32];
    (void)snprintf(file, sizeof file, "%s_link_speed", which);
    (void)read_line(root, address, file, speed, PST_NAME_MAX);
    if (strcmp(speed, "Unknown") == 0)
        speed[0] = '\0';
    (void)snprintf(file, sizeof file, "%s_link_width", which);
    *width = speed[0] == '\0' ? 0 : (int)read_number(root, address, file, 0);
}

pst_rc pst_pci_read(struct pst_pci *pci, const char *root, const char *address)
{
    *pci = (struct pst_pci){.iommu_group = -1, .numa_node = -1};
    pst_rc rc = pst_pci_address(address, pci->address);
    if (rc != PST_OK)
        return rc;
    long class = read_number(root, pci->address, "class", -1);
    if (class < 0)
        return pst_fail(PST_E_ARG,
                        "there is no PCI function %s (`penstock disks` lists the NVMe controllers)",
                        pci->address);
    if (class != CLASS_NVME)
        return pst_fail(PST_E_ARG,
                        "PCI function %s has class %06lx; expected %06x, an NVMe controller (`penstock "
                        "disks` lists them)",
                        pci->address, (unsigned long)class, CLASS_NVME);
    pci->vendor = (uint16_t)read_number(root, pci->address, "vendor", 0);
    pci->device = (uint16_t)read_number(root, pci->address, "device", 0);
    pci->numa_node = (int)read_number(root, pci->address, "numa_node", -1);
    read_target(root, pci->address, "driver", pci->driver);
    read_group(pci, root);
    read_link(root, pci->address, "current", pci->link_speed, &pci->link_width);
    read_link(root, pci->address, "max", pci->link_speed_max, &pci->link_width_max);
    return PST_OK;
}

/* nvme0c1n2 is one of several paths to the block device nvme0n2. */
static void block_name(const char *entry, char out[PST_NAME_MAX])
{
    int controller, path, ns;
    if (sscanf(entry, "nvme%dc%dn%d", &controller, &path, &ns) == 3)
        (void)snprintf(out, PST_NAME_MAX, "nvme%dn%d", controller, ns);
    else
        (void)snprintf(out, PST_NAME_MAX, "%.63s", entry);
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(a, b);
}

int pst_pci_blocks(const struct pst_pci *pci, const char *root,
                   char name[PST_PCI_NAMESPACES_MAX][PST_NAME_MAX])
{
    char path[PATH_BYTES];
    int n = 0, controller, ns;
    device_path(path, root, pci->address, "nvme");
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (sscanf(e->d_name, "nvme%d", &controller) != 1)
            continue;
        (void)snprintf(path + strlen(path), sizeof path - strlen(path), "/%.63s", e->d_name);
        break;
    }
    if (dir != NULL)
        (void)closedir(dir);
    dir = dir == NULL ? NULL : opendir(path);
    for (struct dirent *e; dir != NULL && n < PST_PCI_NAMESPACES_MAX && (e = readdir(dir)) != NULL;) {
        char block[PST_NAME_MAX];
        block_name(e->d_name, block);
        if (sscanf(block, "nvme%dn%d", &controller, &ns) == 2)
            memcpy(name[n++], block, sizeof block);
    }
    if (dir != NULL)
        (void)closedir(dir);
    qsort(name, (size_t)n, sizeof name[0], by_name);
    return n;
}

/* ---- handing over ----------------------------------------------------------------------------------- */

static pst_rc write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return pst_fail_errno("opening %s", path);
    ssize_t n = write(fd, text, strlen(text));
    pst_rc rc = n < 0 ? pst_fail_errno("cannot write '%.32s' to %s", text, path) : PST_OK;
    (void)close(fd);
    return rc;
}

static pst_rc wait_for_driver(const char *root, const char *address, const char *driver)
{
    char now[PST_NAME_MAX];
    for (int ms = 0; ms < PST_PCI_HANDOVER_MS; ms += POLL_MS) {
        read_target(root, address, "driver", now);
        if (strcmp(now, driver) == 0)
            return PST_OK;
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
    return pst_fail(
        PST_E_TIMEOUT,
        "%s: the driver %s did not bind to it within %d s (dmesg may say why); its driver is now %s", address,
        driver, PST_PCI_HANDOVER_MS / 1000, now[0] != '\0' ? now : "none");
}

pst_rc pst_pci_give(const char *root, const char *address, const char *driver)
{
    char now[PST_NAME_MAX], path[PATH_BYTES];
    read_target(root, address, "driver", now);
    if (strcmp(now, driver) == 0)
        return PST_OK;
    /* vfio-pci binds only what driver_override names; writing "\n" restores the kernel's own choice */
    bool kernels = strcmp(driver, "vfio-pci") != 0;
    device_path(path, root, address, "driver_override");
    pst_rc rc = write_file(path, kernels ? "\n" : driver);
    if (rc == PST_OK && now[0] != '\0') {
        device_path(path, root, address, "driver/unbind");
        rc = write_file(path, address);
    }
    if (rc != PST_OK)
        return rc;
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/drivers_probe", root);
    rc = write_file(path, address);
    return rc == PST_OK ? wait_for_driver(root, address, driver) : rc;
}
