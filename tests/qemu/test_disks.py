"""penstock disks in a machine with known NVMe drives: what it says against what QEMU was told; binding and releasing."""
from guest import *

# serial 2SPACES has two namespaces, one with 4 KiB blocks and ext4 on it; BEHIND-A-PORT has a PCIe link;
# NOT-ALONE shares its IOMMU group with a network card.
SCRIPT = """
export penstock=/penstock/bin/penstock
a=0000:00:03.0 shared=0000:00:05.0
$penstock gen community /tmp/data --vertices 500 --quiet
step before 10 $penstock disks --json
step store-unasked 10 $penstock store /tmp/data --to /dev/nvme0n1
step store-wrong 10 sh -c 'echo NOT-ALONE | $penstock store /tmp/data --force --to /dev/nvme0n1'
step store 20 sh -c 'echo 2SPACES | $penstock store /tmp/data --force --to /dev/nvme0n1'
step store-again 10 $penstock store /tmp/data --to /dev/nvme0n1 --quiet
step before-text 10 $penstock disks
mount -t ext4 /dev/nvme0n2 /mnt
step mounted 10 $penstock disks --bind $a
step store-mounted 10 $penstock store /tmp/data --force --to /dev/nvme0n2
umount /mnt
step no-such 10 $penstock disks --bind 0000:00:1e.0
step no-nvme 10 $penstock disks --bind 0000:00:00.0
step group 10 $penstock disks --bind $shared
exec 4</dev/nvme0n1
step bind 20 $penstock disks --bind $a
exec 4<&-
step bind-again 10 $penstock disks --bind $a
step bound 10 $penstock disks --json
step kernel-without 5 sh -c 'ls /dev/nvme0*; ls /dev/vfio'
step user 10 su -s /bin/sh someone -c "$penstock disks --json"
node=/dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$a/iommu_group))
chown someone $node
step owner 10 su -s /bin/sh someone -c "$penstock disks --json"
exec 4<>$node
step release-busy 10 $penstock disks --release $a
exec 4<&-
step release 20 $penstock disks --release $a
step after 10 $penstock disks --json
mount -t ext4 -o ro /dev/nvme0n2 /mnt
step files 10 cat /mnt/hello
"""


WITHOUT_IOMMU = """
step no-iommu 10 /penstock/bin/penstock disks --bind 0000:00:03.0
"""


def devices(place):
    """QEMU's arguments for the drives, images made."""
    paths = {name: os.path.join(place, name) for name in ("one", "two", "three", "four")}
    for name, size in (("one", 32), ("two", 16), ("three", 24), ("four", 8)):
        with open(paths[name], "wb") as f:
            f.truncate(size * MIB)
    files = os.path.join(place, "files")
    os.mkdir(files)
    with open(os.path.join(files, "hello"), "w") as f:
        f.write("from the host")
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-d", files, paths["two"]], check=True)
    drive = lambda name: ["-drive", f"file={paths[name]},if=none,format=raw,id={name}"]
    return [drive("one"), drive("two"), drive("three"), drive("four"),
            ["-device", "nvme,id=n0,serial=2SPACES,addr=3.0,max_ioqpairs=8,mdts=6"],
            ["-device", "nvme-ns,bus=n0,drive=one,nsid=1"],
            ["-device", "nvme-ns,bus=n0,drive=two,nsid=2,logical_block_size=4096,physical_block_size=4096"],
            ["-device", "pcie-root-port,id=rp0,slot=1,addr=4.0"],
            ["-device", "nvme,bus=rp0,drive=three,serial=BEHIND-A-PORT,max_ioqpairs=3,mdts=5"],
            ["-device", "nvme,addr=5.0,multifunction=on,drive=four,serial=NOT-ALONE"],
            ["-device", "virtio-net-pci,addr=5.1"]]


def by_serial(step):
    assert step.status == 0, step
    return {d["serial"] or d["pci"]["address"]: d for d in json.loads(step.out)}


@test
def what_qemu_was_told():
    before = by_serial(STEPS["before"])
    assert set(before) == {"2SPACES", "BEHIND-A-PORT", "NOT-ALONE"}, before.keys()
    d = before["2SPACES"]
    assert (d["model"], d["mdts"], d["transfer_bytes_max"]) == ("QEMU NVMe Ctrl", 6, 4096 << 6), d
    assert (d["submission_queues"], d["completion_queues"]) == (8, 8) and d["pci"]["address"] == "0000:00:03.0"
    assert d["pci"]["driver"] == "nvme" and d["pci"]["group_others"] == [] and d["pci"]["link_speed"] == ""
    assert [(n["nsid"], n["name"], n["bytes"], n["lba_bytes"]) for n in d["namespaces"]] == \
        [(1, "nvme0n1", 32 * MIB, 512), (2, "nvme0n2", 16 * MIB, 4096)], d["namespaces"]
    assert d["namespaces"][0]["lba_format"] != d["namespaces"][1]["lba_format"]
    assert d["temperature_c"] == 50 and d["percentage_used"] == 0, d  # 323 K, as QEMU has it by default
    d = before["BEHIND-A-PORT"]
    assert (d["mdts"], d["submission_queues"], d["pci"]["link_width"]) == (5, 3, 1) and "GT/s" in d["pci"]["link_speed"], d
    assert before["NOT-ALONE"]["pci"]["group_others"] == ["0000:00:05.1"]


@test
def which_backend_could_use_it():
    for step, d in ((s, d) for s in ("before", "bound", "after") for d in by_serial(STEPS[s]).values()):
        taken = step == "bound" and d["pci"]["address"] == "0000:00:03.0"
        for name, b in d["backends"].items():
            assert b["usable"] == (taken if name == "nvme" else not taken), (step, d)
            assert b["usable"] == (b["obstacles"] == []) and all(o["why"] and o["mend"] for o in b["obstacles"])
    before = by_serial(STEPS["before"])
    assert before["2SPACES"]["backends"]["nvme"]["obstacles"][0]["mend"] == "penstock disks --bind 0000:00:03.0"
    assert "0000:00:05.1" in before["NOT-ALONE"]["backends"]["nvme"]["obstacles"][0]["why"]
    text = STEPS["before-text"].out
    assert "0000:01:00.0 nvme2  QEMU NVMe Ctrl" in text and "not usable by nvme: it is bound to the driver nvme; expected vfio-pci" in text, text


@test
def refused_with_reason_and_command():
    for name, *texts in (("mounted", "/dev/nvme0n2 is mounted at /mnt", "to fix it: umount /mnt"),
                         ("no-such", "there is no PCI function 0000:00:1e.0"),
                         ("no-nvme", "has class 060000; expected 010802"),
                         ("group", "also contains 0000:00:05.1", "another slot"),
                         ("release-busy", "is using it", "ps -fp")):
        step = STEPS[name]
        assert step.status == 2 and all(t in step.out for t in texts), step


@test
def bound_and_released():
    for name in ("bind", "bind-again", "release"):
        assert STEPS[name].status == 0 and STEPS[name].out == "", STEPS[name]
    assert "/dev/nvme0n1" not in STEPS["kernel-without"].out, STEPS["kernel-without"]
    after, bound = (by_serial(STEPS[name])["2SPACES"] for name in ("after", "bound"))
    assert bound["pci"]["driver"] == "vfio-pci" and bound["name"] == "", bound
    for key in ("model", "firmware", "transfer_bytes_max", "submission_queues"):
        assert bound[key] == after[key], (bound, after)  # asked over our driver, and by libnvme
    for ours, theirs in zip(bound["namespaces"], after["namespaces"], strict=True):
        assert all(ours[key] == theirs[key] for key in ("nsid", "bytes", "lba_bytes", "stripe")), (ours, theirs)
    assert after["namespaces"][1] == by_serial(STEPS["before"])["2SPACES"]["namespaces"][1]
    assert STEPS["files"].out == "from the host", STEPS["files"]


@test
def stored_behind_a_signature():
    for name, text in (("store-unasked", "was not written by Penstock: to overwrite it"),
                       ("store-wrong", "what was typed is not the serial number of this drive; nothing was written"), ("store-mounted", "/dev/nvme0n2 is in use")):
        assert STEPS[name].status == 2 and text in STEPS[name].out, STEPS[name]
    assert "Type its serial number" in STEPS["store"].out and "stripe 0 of 1, 500 rows" in STEPS["store"].out, STEPS["store"]
    assert STEPS["store-again"].status == 0, STEPS["store-again"]
    before, after = (by_serial(STEPS[name])["2SPACES"]["namespaces"] for name in ("before", "after"))
    assert [ns["stripe"] for ns in before] == [None, None] and after[1]["stripe"] is None
    assert (after[0]["stripe"]["stripe"], after[0]["stripe"]["stripes"]) == (0, 1), after[0]


@test
def without_an_iommu():
    step = STEPS["no-iommu"]
    assert step.status == 2 and "the IOMMU is missing or disabled, so the drive could write to any" in step.out and "intel_iommu=on" in step.out, step


@test
def without_rights():
    user = {d["pci"]["address"]: d for d in by_serial(STEPS["user"]).values()}
    taken, other = user["0000:00:03.0"]["backends"]["nvme"], user["0000:01:00.0"]
    assert "Permission denied" in taken["obstacles"][0]["why"] and "chown" in taken["obstacles"][0]["mend"], taken
    assert by_serial(STEPS["owner"])["2SPACES"]["backends"]["nvme"]["usable"]  # who owns the group needs no more
    assert other["mdts"] is None and "Permission denied" in other["unknown"], other


if __name__ == "__main__":
    need()
    with tempfile.TemporaryDirectory(prefix="penstock-qemu-") as place:
        drives = devices(place)
        with Guest(drives, COMMAND, SCRIPT) as guest:
            STEPS = guest.boot(60)
        with Guest(drives, COMMAND, WITHOUT_IOMMU, append="", iommu=False) as guest:
            STEPS.update(guest.boot(60))
        main()
