"""Our NVMe driver, over VFIO and an emulated IOMMU, against QEMU's controllers and the kernel's driver."""
import hashlib

from guest import *

FILES = COMMAND | {f"penstock/bin/{name}": os.path.join(BUILD, "tests", "qemu", name) for name in ("drive", "killed")} | {
    "penstock/bin/test_nvme": os.path.join(BUILD, "tests", "nvme", "test_nvme")}
A, B = "0000:00:03.0", "0000:01:00.0"  # 512-byte blocks, MDTS 256 KiB; 4096-byte blocks, MDTS 128 KiB, behind a port
SLOW = "0000:00:05.0"  # forty reads a second
READS, WRITES = 200000, 100000

SCRIPT = f"""
export LD_LIBRARY_PATH=/penstock/lib
export penstock=/penstock/bin/penstock drive=/penstock/bin/drive
block() {{ echo /dev/$(basename /sys/bus/pci/devices/$1/nvme/nvme*/nvme*n1); }}
a=$(block {A}) b=$(block {B})
step kernel 10 $penstock disks --json
step copy 20 sh -c "cat $a >/tmp/a && cat $b >/tmp/b"
step bind 20 sh -c '$penstock disks --bind {A} && $penstock disks --bind {B}'
step identify-a 20 $drive identify {A}
step identify-b 20 $drive identify {B}
step soak 120 $drive soak {READS} {WRITES} /tmp/a={A} /tmp/b={B}
step release 20 sh -c '$penstock disks --release {A} && $penstock disks --release {B}'
step same 20 sh -c "cmp $(block {A}) /tmp/a && cmp $(block {B}) /tmp/b"
mount -t ext4 -o ro $(block {A} | sed s/n1$/n2/) /mnt
step files 10 sh -c 'cd /mnt; sha256sum f*'
umount /mnt
step bind-again 20 $penstock disks --bind {A}
step conform 100 $drive conform {A}
step suite 100 env CMOCKA_MESSAGE_OUTPUT=TAP /penstock/bin/test_nvme vfio {A}
step bind-slow 20 $penstock disks --bind {SLOW}
step reset 60 $drive reset {SLOW}
step killed 60 /penstock/bin/killed {SLOW}
step release-slow 20 $penstock disks --release {SLOW}
"""


def devices(place):
    """Two drives with random content; the first has a second namespace, with ext4 on it."""
    size = {"a": 32, "b": 24, "slow": 8, "files": 16}
    paths = {name: os.path.join(place, name) for name in size}
    for name in ("a", "b", "slow"):
        with open(paths[name], "wb") as f:
            f.write(os.urandom(size[name] * MIB))
    folder = os.path.join(place, "folder")
    os.mkdir(folder)
    for i in range(20):
        with open(os.path.join(folder, f"f{i}"), "wb") as f:
            f.write(os.urandom(100000 + i))
    subprocess.run(["truncate", "-s", f"{size['files']}M", paths["files"]], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-d", folder, paths["files"]], check=True)
    drive = lambda name, more="": ["-drive", f"file={paths[name]},if=none,format=raw,id={name}{more}"]
    return [drive("a"), drive("b"), drive("files"), drive("slow", ",throttling.iops-total=40"),
            ["-device", "nvme,id=n0,serial=FIRST,addr=3.0,max_ioqpairs=8,mdts=6"],
            ["-device", "nvme-ns,bus=n0,drive=a,nsid=1"], ["-device", "nvme-ns,bus=n0,drive=files,nsid=2"],
            ["-device", "nvme,id=n2,serial=SLOW,addr=5.0,drive=slow"],
            ["-device", "pcie-root-port,id=rp0,slot=1,addr=4.0"],
            ["-device", "nvme,id=n1,bus=rp0,serial=SECOND,max_ioqpairs=3,mdts=5"],
            ["-device", "nvme-ns,bus=n1,drive=b,nsid=1,logical_block_size=4096,physical_block_size=4096"]]


def relay(name):
    """The step's own TAP lines; the step must have gone well."""
    step = STEPS[name]
    out = re.sub(r"^not ok (\d+) # SKIP.*\n", "", step.out, flags=re.M)  # as cmocka writes what is not for this drive
    print("\n".join(line for line in out.splitlines() if line.startswith(("ok ", "not ok ", "# "))))
    assert step.status == 0 and "not ok" not in out, step


@test
def identify_matches_libnvme():
    kernel = {d["serial"]: d for d in json.loads(STEPS["kernel"].out)}
    for step, serial in (("identify-a", "FIRST"), ("identify-b", "SECOND")):
        assert STEPS[step].status == 0, STEPS[step]
        ours, theirs = json.loads(STEPS[step].out), kernel[serial]
        assert all(ours[key] == theirs[key] for key in ("model", "serial", "firmware")), (ours, theirs)
        assert ours["transfer_bytes"] == theirs["transfer_bytes_max"], (ours, theirs)
        assert ours["queues"] == theirs["submission_queues"], (ours, theirs)
        for mine, other in zip(ours["namespaces"], theirs["namespaces"], strict=True):
            assert all(mine[key] == other[key] for key in mine), (mine, other)


@test
def soak_against_the_kernels_view():
    assert STEPS["copy"].status == 0 and STEPS["bind"].status == 0
    relay("soak")
    ids = [int(n) for n in re.findall(r"queue \d: (\d+) commands", STEPS["soak"].out)]
    assert len(ids) == 4 and sum(ids) == READS + WRITES and min(ids) > 65536, ids
    assert STEPS["same"].status == 0, STEPS["same"]


@test
def parts_of_the_driver():
    relay("conform")


@test
def the_suite_of_the_emulated_controller():
    relay("suite")


@test
def reset_with_reads_in_flight():
    relay("reset")


@test
def killed_with_reads_in_flight():
    assert STEPS["bind-slow"].status == 0, STEPS["bind-slow"]
    relay("killed")
    assert STEPS["release-slow"].status == 0, STEPS["release-slow"]


@test
def released_with_its_file_system():
    assert STEPS["release"].status == 0 and STEPS["release"].out == "", STEPS["release"]
    sums = dict(reversed(line.split()) for line in STEPS["files"].out.splitlines())
    assert sums == SUMS and len(sums) == 20, STEPS["files"]


if __name__ == "__main__":
    need()
    with tempfile.TemporaryDirectory(prefix="penstock-qemu-") as place:
        drives = devices(place)
        SUMS = {}
        for path in glob.glob(os.path.join(place, "folder", "*")):
            with open(path, "rb") as f:
                SUMS[os.path.basename(path)] = hashlib.sha256(f.read()).hexdigest()
        with Guest(drives, FILES, SCRIPT) as guest:
            STEPS = guest.boot(170)
        main()
