/* usable.c: looks for everything that keeps our driver from a controller, and binds or releases one if
 * nothing does. */
#include "common/nvme/driver/usable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"

#define PATH_BYTES 512
#define PARTS_MAX 128 /* partitions of a disk and the disk itself: GPT has 128 entries by default */
#define POLL_MS 20

struct finding {
    const char *root;
    struct pst_obstacle *found;
    int n;
};

PST_PRINTF(3, 4) static void add(struct finding *f, const char *mend, const char *fmt, ...)
{
    if (f->n == PST_OBSTACLES_MAX)
        return;
    struct pst_obstacle *o = &f->found[f->n++];
    (void)snprintf(o->mend, sizeof o->mend, "%s", mend);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(o->why, sizeof o->why, fmt, args);
    va_end(args);
}

/* ---- what uses a block device ----------------------------------------------------------------------- */

struct parts {
    int n;
    char name[PARTS_MAX][PST_NAME_MAX];
    char number[PARTS_MAX][32]; /* "259:1", as in mountinfo */
};

static void add_part(struct parts *parts, const char *root, const char *name)
{
    char path[PATH_BYTES];
    if (parts->n == PARTS_MAX)
        return;
    (void)snprintf(parts->name[parts->n], PST_NAME_MAX, "%.63s", name);
    (void)snprintf(path, sizeof path, "%s/sys/class/block/%.63s/dev", root, name);
    FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%31s", parts->number[parts->n]) != 1)
        parts->number[parts->n][0] = '\0';
    if (file != NULL)
        (void)fclose(file);
    parts->n++;
}

static void find_parts(struct parts *parts, const char *root, const char *block)
{
    char path[PATH_BYTES];
    parts->n = 0;
    add_part(parts, root, block);
    (void)snprintf(path, sizeof path, "%s/sys/class/block/%.63s", root, block);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        if (strncmp(e->d_name, block, strlen(block)) == 0)
            add_part(parts, root, e->d_name);
    if (dir != NULL)
        (void)closedir(dir);
}

static bool is_part(const struct parts *parts, const char *number, const char *source)
{
    for (int i = 0; i < parts->n; i++)
        if ((parts->number[i][0] != '\0' && strcmp(number, parts->number[i]) == 0) ||
            (strncmp(source, "/dev/", 5) == 0 && strcmp(source + 5, parts->name[i]) == 0))
            return true;
    return false;
}

/* Compares the mount's source too, because some file systems (btrfs) have other device numbers. */
static void find_mounts(struct finding *f, const struct parts *parts)
{
    char path[PATH_BYTES], line[4096];
    (void)snprintf(path, sizeof path, "%s/proc/self/mountinfo", f->root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char number[32], at[200], source[200] = "";
        const char *rest = strstr(line, " - ");
        if (sscanf(line, "%*s %*s %31s %*s %199s", number, at) != 2 || rest == NULL)
            continue;
        (void)sscanf(rest, " - %*s %199s", source);
        if (!is_part(parts, number, source))
            continue;
        char mend[256];
        (void)snprintf(mend, sizeof mend, "umount %s", at);
        add(f, mend, "%s is mounted at %s", source, at);
    }
    if (file != NULL)
        (void)fclose(file);
}

static void find_swaps(struct finding *f, const struct parts *parts)
{
    char path[PATH_BYTES], line[1024];
    (void)snprintf(path, sizeof path, "%s/proc/swaps", f->root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char source[200], mend[256];
        if (sscanf(line, "%199s", source) != 1 || !is_part(parts, "", source))
            continue;
        (void)snprintf(mend, sizeof mend, "swapoff %s", source);
        add(f, mend, "%s is used as swap", source);
    }
    if (file != NULL)
        (void)fclose(file);
}

static void find_holders(struct finding *f, const struct parts *parts)
{
    for (int i = 0; i < parts->n; i++) {
        char path[PATH_BYTES], mend[256];
        (void)snprintf(path, sizeof path, "%s/sys/class/block/%s/holders", f->root, parts->name[i]);
        DIR *dir = opendir(path);
        for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
            if (e->d_name[0] == '.')
                continue;
            (void)snprintf(mend, sizeof mend, "lsblk /dev/%s", parts->name[i]);
            add(f, mend, "%s is part of %.63s (RAID, LVM or encryption); stop that device first",
                parts->name[i], e->d_name);
        }
        if (dir != NULL)
            (void)closedir(dir);
    }
}

/* Every user of a block device claims it exclusively, so the kernel refuses a second claim. */
static bool claimed(const char *root, const char *block)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/dev/%.63s", root, block);
    int fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
    bool busy = fd < 0 && errno == EBUSY;
    if (fd >= 0)
        (void)close(fd);
    return busy;
}

static void find_users(struct finding *f, const struct pst_pci *pci)
{
    char block[PST_PCI_NAMESPACES_MAX][PST_NAME_MAX];
    int n = pst_pci_blocks(pci, f->root, block);
    for (int i = 0; i < n; i++) {
        struct parts parts;
        int before = f->n;
        find_parts(&parts, f->root, block[i]);
        find_mounts(f, &parts);
        find_swaps(f, &parts);
        find_holders(f, &parts);
        char mend[256];
        (void)snprintf(mend, sizeof mend, "lsblk /dev/%s; fuser -v /dev/%s", block[i], block[i]);
        if (f->n == before && claimed(f->root, block[i]))
            add(f, mend, "another program has opened /dev/%s for exclusive use", block[i]);
    }
}

/* ---- the IOMMU, vfio-pci and rights ----------------------------------------------------------------- */

static void find_iommu(struct finding *f, const struct pst_pci *pci)
{
    char others[PST_PCI_OTHERS_MAX * (PST_PCI_ADDRESS_BYTES + 1)] = "";
    if (pci->iommu_group < 0) {
        add(f,
            "add intel_iommu=on iommu=pt (AMD: iommu=pt) to GRUB_CMDLINE_LINUX in /etc/default/grub, then "
            "update-grub, and reboot; VT-d or AMD-Vi must be on in the firmware",
            "the IOMMU is missing or disabled, so the drive could write to any memory");
        return;
    }
    for (int i = 0; i < pci->others; i++)
        (void)snprintf(others + strlen(others), sizeof others - strlen(others), "%s%s", i > 0 ? ", " : "",
                       pci->other[i]);
    if (pci->others > 0)
        add(f, "move the drive to another slot, whose root port has ACS; lspci -t shows the slots",
            "IOMMU group %d also contains %.300s, and the IOMMU cannot separate them", pci->iommu_group,
            others);
}

int pst_obstacles_to_bind(const struct pst_pci *pci, const char *root,
                          struct pst_obstacle found[PST_OBSTACLES_MAX])
{
    struct finding f = {.root = root, .found = found};
    char path[PATH_BYTES], mend[256];
    find_iommu(&f, pci);
    find_users(&f, pci);
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/drivers/vfio-pci", root);
    if (access(path, F_OK) != 0)
        add(&f, "modprobe vfio-pci", "the kernel's vfio-pci driver is not loaded");
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/driver_override", root, pci->address);
    (void)snprintf(mend, sizeof mend, "sudo penstock disks --bind %s", pci->address);
    if (access(path, W_OK) != 0)
        add(&f, mend, "only root can bind a controller to another driver (%s: %s)", path, strerror(errno));
    return f.n;
}

/* The process that has the group open, among those that this user may inspect; 0: none found. */
static int holder_of(const char *root, const char *node)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/proc", root);
    DIR *proc = opendir(path);
    int pid = 0;
    for (struct dirent *p; pid == 0 && proc != NULL && (p = readdir(proc)) != NULL;) {
        if (p->d_name[0] < '1' || p->d_name[0] > '9')
            continue;
        (void)snprintf(path, sizeof path, "%s/proc/%.16s/fd", root, p->d_name);
        DIR *fds = opendir(path);
        for (struct dirent *e; pid == 0 && fds != NULL && (e = readdir(fds)) != NULL;) {
            ssize_t n = readlinkat(dirfd(fds), e->d_name, target, sizeof target - 1);
            target[n > 0 ? n : 0] = '\0';
            if (strcmp(target, node) == 0)
                pid = (int)strtol(p->d_name, NULL, 10);
        }
        if (fds != NULL)
            (void)closedir(fds);
    }
    if (proc != NULL)
        (void)closedir(proc);
    return pid;
}

static void find_holder(struct finding *f, const char *node)
{
    char mend[256];
    int pid = holder_of(f->root, node);
    (void)snprintf(mend, sizeof mend, "ps -fp %d; penstock stop RUN ends a run", pid);
    if (pid > 0 && pid != (int)getpid())
        add(f, mend, "process %d is using it", pid);
}

static void find_rights(struct finding *f, const char *node)
{
    char path[PATH_BYTES], mend[256];
    (void)snprintf(path, sizeof path, "%s/dev/vfio/vfio", f->root);
    if (access(path, R_OK | W_OK) != 0)
        add(f, errno == ENOENT ? "modprobe vfio-pci" : "sudo chmod 0666 /dev/vfio/vfio", "%s: %s", path,
            strerror(errno));
    (void)snprintf(path, sizeof path, "%s%s", f->root, node);
    (void)snprintf(mend, sizeof mend, "sudo chown $USER %s", path);
    if (access(path, R_OK | W_OK) != 0)
        add(f, mend, "%s: %s", path, strerror(errno));
}

int pst_obstacles_to_open(const struct pst_pci *pci, const char *root,
                          struct pst_obstacle found[PST_OBSTACLES_MAX])
{
    struct finding f = {.root = root, .found = found};
    char mend[256], node[64];
    if (strcmp(pci->driver, "vfio-pci") != 0) {
        f.n = pst_obstacles_to_bind(pci, root, found);
        (void)snprintf(mend, sizeof mend, "penstock disks --bind %s", pci->address);
        if (f.n == 0)
            add(&f, mend, "it is bound to the driver %s; expected vfio-pci",
                pci->driver[0] != '\0' ? pci->driver : "nobody");
        return f.n;
    }
    (void)snprintf(node, sizeof node, "/dev/vfio/%d", pci->iommu_group);
    find_iommu(&f, pci);
    if (pci->iommu_group >= 0) {
        find_rights(&f, node);
        find_holder(&f, node);
    }
    return f.n;
}

pst_rc pst_obstacles_result(const char *what, const struct pst_obstacle *found, int n)
{
    char text[2000];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "\n  %s\n    to fix it: %s", found[i].why,
                                 found[i].mend);
    return n == 0 ? PST_OK : pst_fail(PST_E_STATE, "%s:%s", what, text);
}

/* ---- handing over ----------------------------------------------------------------------------------- */

/* Claims every namespace, so that nobody can mount one in the meantime. The claims end with the block
 * devices. */
static int claim_all(const struct pst_pci *pci, const char *root, int fds[PST_PCI_NAMESPACES_MAX])
{
    char block[PST_PCI_NAMESPACES_MAX][PST_NAME_MAX], path[PATH_BYTES];
    int n = pst_pci_blocks(pci, root, block);
    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%s/dev/%s", root, block[i]);
        fds[i] = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
        if (fds[i] >= 0)
            continue;
        pst_rc rc = pst_fail_errno("claiming %s", path);
        assert(rc != PST_OK);
        while (i-- > 0)
            (void)close(fds[i]);
        return -1;
    }
    return n;
}

pst_rc pst_usable_bind(const char *root, const char *address)
{
    struct pst_pci pci;
    struct pst_obstacle found[PST_OBSTACLES_MAX];
    int fds[PST_PCI_NAMESPACES_MAX];
    pst_rc rc = pst_pci_read(&pci, root, address);
    if (rc != PST_OK || strcmp(pci.driver, "vfio-pci") == 0)
        return rc;
    rc = pst_obstacles_result(pci.address, found, pst_obstacles_to_bind(&pci, root, found));
    if (rc != PST_OK)
        return rc;
    int claims = claim_all(&pci, root, fds);
    if (claims < 0)
        return PST_E_STATE;
    rc = pst_pci_give(root, pci.address, "vfio-pci");
    while (claims-- > 0)
        (void)close(fds[claims]);
    return rc;
}

pst_rc pst_usable_release(const char *root, const char *address)
{
    struct pst_pci pci;
    struct pst_obstacle found[PST_OBSTACLES_MAX];
    struct finding f = {.root = root, .found = found};
    char block[PST_PCI_NAMESPACES_MAX][PST_NAME_MAX], node[64], path[PATH_BYTES], mend[256];
    pst_rc rc = pst_pci_read(&pci, root, address);
    if (rc != PST_OK)
        return rc;
    (void)snprintf(node, sizeof node, "/dev/vfio/%d", pci.iommu_group);
    find_holder(&f, node); /* otherwise the kernel would wait for that process without limit */
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/driver_override", root, pci.address);
    (void)snprintf(mend, sizeof mend, "sudo penstock disks --release %s", pci.address);
    if (access(path, W_OK) != 0)
        add(&f, mend, "only root can bind a controller to another driver (%s: %s)", path, strerror(errno));
    rc = pst_obstacles_result(pci.address, found, f.n);
    if (rc == PST_OK)
        rc = pst_pci_give(root, pci.address, "nvme");
    /* the kernel looks for namespaces after it has bound; for a drive without any, only the deadline ends
     * this */
    for (int ms = 0; rc == PST_OK && pst_pci_blocks(&pci, root, block) == 0 && ms < PST_PCI_HANDOVER_MS;
         ms += POLL_MS)
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    return rc;
}
