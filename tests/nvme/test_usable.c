/* What stands between our driver and a controller, on machines made of plain files: no IOMMU, groups that are
 * shared, file systems, swap and RAID on its namespaces, rights. (The machine of tests/qemu is a real one.)
 */
#include "tests/unit/store_fixture.h"

#include "common/nvme/driver/usable.h"
#include "common/nvme/driver/vfio.h"

#define PCI "0000:01:00.0"

static char root[1024];

static void put(const char *path, const char *text)
{
    char full[2048];
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void point(const char *path, const char *target)
{
    char full[2048];
    put(path, "");
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    assert_int_equal(unlink(full), 0);
    assert_int_equal(symlink(target, full), 0);
}

static void machine(const char *name)
{
    (void)snprintf(root, sizeof root, "%s/%s", scratch, name);
    assert_int_equal(mkdir(root, 0755), 0);
    put("sys/bus/pci/devices/" PCI "/class", "0x010802\n");
    put("sys/bus/pci/devices/" PCI "/vendor", "0x144d\n");
    put("sys/bus/pci/devices/" PCI "/device", "0xa80a\n");
    put("sys/bus/pci/devices/" PCI "/numa_node", "1\n");
    put("sys/bus/pci/devices/" PCI "/driver_override", "(null)\n");
    put("sys/bus/pci/devices/" PCI "/current_link_speed", "16.0 GT/s PCIe\n");
    put("sys/bus/pci/devices/" PCI "/current_link_width", "4\n");
    put("sys/bus/pci/devices/" PCI "/nvme/nvme0/nvme0n1/size", "1000\n");
    put("sys/bus/pci/devices/" PCI "/nvme/nvme0/nvme0c0n2/size", "1000\n");
    point("sys/bus/pci/devices/" PCI "/driver", "../../../../bus/pci/drivers/nvme");
    put("sys/bus/pci/drivers/vfio-pci/new_id", "");
    put("sys/class/block/nvme0n1/dev", "259:0\n");
    put("sys/class/block/nvme0n1/nvme0n1p1/dev", "259:1\n");
    put("sys/class/block/nvme0n1p1/dev", "259:1\n");
    put("proc/self/mountinfo", "22 28 0:20 / /proc rw shared:12 - proc proc rw\n");
    put("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n");
}

/* In group 7, with a bridge, which does not count. */
static void with_iommu(void)
{
    point("sys/bus/pci/devices/" PCI "/iommu_group", "../../../../kernel/iommu_groups/7");
    put("sys/kernel/iommu_groups/7/devices/" PCI, "");
    put("sys/kernel/iommu_groups/7/devices/0000:00:01.0", "");
    put("sys/bus/pci/devices/0000:00:01.0/class", "0x060400\n");
}

static struct pst_pci read_pci(void)
{
    struct pst_pci pci;
    assert_int_equal(pst_pci_read(&pci, root, PCI), PST_OK);
    return pci;
}

static void expect(const char *why, const char *mend)
{
    struct pst_obstacle found[PST_OBSTACLES_MAX];
    const struct pst_pci pci = read_pci();
    const int n = pst_obstacles_to_bind(&pci, root, found);
    assert_int_equal(n, 1);
    assert_non_null(strstr(found[0].why, why));
    assert_non_null(strstr(found[0].mend, mend));
    /* and nothing is handed over then */
    assert_int_equal(pst_usable_bind(root, PCI), PST_E_STATE);
    assert_non_null(strstr(pst_error_text(), why));
    assert_non_null(strstr(pst_error_text(), mend));
    char path[2048], text[64];
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/" PCI "/driver_override", root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    assert_string_equal(text, "(null)\n");
    (void)fclose(file);
}

static void a_machine_is_read(void **state)
{
    (void)state;
    char address[PST_PCI_NVME_MAX][PST_PCI_ADDRESS_BYTES], block[PST_PCI_NAMESPACES_MAX][PST_NAME_MAX];
    machine("read");
    with_iommu();
    assert_int_equal(pst_pci_nvme(root, address), 1);
    assert_string_equal(address[0], PCI);
    const struct pst_pci pci = read_pci();
    assert_int_equal(pci.vendor, 0x144d);
    assert_int_equal(pci.iommu_group, 7);
    assert_int_equal(pci.others, 0);
    assert_int_equal(pci.link_width, 4);
    assert_int_equal(pci.numa_node, 1);
    assert_string_equal(pci.driver, "nvme");
    assert_int_equal(pst_pci_blocks(&pci, root, block), 2);
    assert_string_equal(block[0], "nvme0n1");
    assert_string_equal(block[1], "nvme0n2"); /* by one of several ways */
}

static void each_obstacle_alone(void **state)
{
    (void)state;
    machine("no-iommu");
    expect("the IOMMU is missing or disabled, so the drive could write to any", "intel_iommu=on");

    machine("shared");
    with_iommu();
    put("sys/kernel/iommu_groups/7/devices/0000:01:00.1", "");
    put("sys/bus/pci/devices/0000:01:00.1/class", "0x020000\n");
    expect("IOMMU group 7 also contains 0000:01:00.1", "ACS");

    machine("mounted");
    with_iommu();
    put("proc/self/mountinfo", "36 28 259:1 / /home rw - ext4 /dev/nvme0n1p1 rw\n");
    expect("/dev/nvme0n1p1 is mounted at /home", "umount /home");

    machine("mounted-btrfs"); /* whose numbers are its own */
    with_iommu();
    put("proc/self/mountinfo", "36 28 0:44 /@ / rw - btrfs /dev/nvme0n2 rw\n");
    expect("/dev/nvme0n2 is mounted at /", "umount /");

    machine("swap");
    with_iommu();
    put("proc/swaps", "Filename Type\n/dev/nvme0n1p1 partition 1 0 -2\n");
    expect("/dev/nvme0n1p1 is used as swap", "swapoff /dev/nvme0n1p1");

    machine("raid");
    with_iommu();
    put("sys/class/block/nvme0n1/holders/md0", "");
    expect("nvme0n1 is part of md0", "lsblk /dev/nvme0n1");

    machine("no-vfio");
    with_iommu();
    char path[2048];
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/drivers/vfio-pci/new_id", root);
    (void)unlink(path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    expect("vfio-pci driver is not loaded", "modprobe vfio-pci");
}

static void bound_to_vfio(void **state)
{
    (void)state;
    struct pst_obstacle found[PST_OBSTACLES_MAX];
    machine("bound");
    with_iommu();
    struct pst_pci pci = read_pci();
    assert_int_equal(pst_obstacles_to_open(&pci, root, found), 1);
    assert_string_equal(found[0].mend, "penstock disks --bind " PCI);
    point("sys/bus/pci/devices/" PCI "/driver", "../../../../bus/pci/drivers/vfio-pci");
    pci = read_pci();
    assert_int_equal(pst_obstacles_to_open(&pci, root, found), 2); /* neither of VFIO's files is there */
    put("dev/vfio/vfio", "");
    put("dev/vfio/7", "");
    assert_int_equal(pst_obstacles_to_open(&pci, root, found), 0);
    point("proc/4242/fd/9", "/dev/vfio/7");
    assert_int_equal(pst_obstacles_to_open(&pci, root, found), 1);
    assert_string_equal(found[0].why, "process 4242 is using it");
    assert_int_equal(pst_usable_release(root, PCI), PST_E_STATE); /* the kernel would wait for it */
    assert_int_equal(pst_obstacles_to_gpu(&pci, root, found), 3);
    assert_non_null(strstr(found[2].why, "not a dma-buf"));
}

/* Everything in the way at once is told at once. */
static void all_obstacles_together(void **state)
{
    (void)state;
    struct pst_obstacle found[PST_OBSTACLES_MAX];
    char text[4096] = "";
    size_t used = 0;
    machine("all");
    put("proc/swaps", "Filename Type\n/dev/nvme0n2 partition 1 0 -2\n");
    for (int i = 0; i < 30; i++) /* more than there is room for */
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%d 28 259:1 / /m%d rw - ext4 /dev/nvme0n1p1 rw\n", 30 + i, i);
    put("proc/self/mountinfo", text);
    const struct pst_pci pci = read_pci();
    assert_int_equal(pst_obstacles_to_bind(&pci, root, found), PST_OBSTACLES_MAX);
    assert_int_equal(pst_usable_bind(root, PCI), PST_E_STATE);
    assert_non_null(
        strstr(pst_error_text(), "the IOMMU is missing or disabled, so the drive could write to any"));
    assert_non_null(strstr(pst_error_text(), "umount /m0"));
}

static void addresses(void **state)
{
    (void)state;
    char out[PST_PCI_ADDRESS_BYTES];
    static const char *const good[][2] = {{"0000:01:00.0", PCI},
                                          {"01:00.0", PCI},
                                          {"1:0.0", PCI},
                                          {"ab:1F.7", "0000:ab:1f.7"},
                                          {"10000:e1:00.0", "10000:e1:00.0"}};
    static const char *const bad[] = {"",         "1",        "01:00",    "01:00.8", "01:20.0",
                                      "01:00.0 ", " 01:00.0", "01:00.0x", "-1:00.0", "0000:01:00.0/../x",
                                      "0x1:00.0", "nvme0",    "01:00.0:0"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(pst_pci_address(good[i][0], out), PST_OK);
        assert_string_equal(out, good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(pst_pci_address(bad[i], out), PST_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_is_read), cmocka_unit_test(each_obstacle_alone),
        cmocka_unit_test(bound_to_vfio),     cmocka_unit_test(all_obstacles_together),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
