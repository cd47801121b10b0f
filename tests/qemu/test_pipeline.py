"""A whole pipeline in the guest: the same training over files and over our NVMe driver, to the last bit; a disk stage that
is killed with reads in flight; a sector that cannot be read."""
from guest import *

STAGES = ("planner", "sampler", "disk", "trainer")
FILES = COMMAND | {f"penstock/{name}": os.path.join(BUILD, name)
                   for name in ["bin/penstock-stage", "bin/penstock-memory"] + [f"lib/penstock/stages/{s}.so" for s in STAGES]}
FILES["penstock/virtual-gpus.so"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
FILES["hyperion.json"] = os.path.join(ROOT, "pipelines", "hyperion.json")
FIRST, SECOND, SLOW, BAD = "0000:00:03.0", "0000:00:05.0", "0000:00:06.0", "0000:00:07.0"
VERTICES = 4000  # without KVM, each epoch over the 20,000 that penstock makes by itself takes a minute
BAD_ROW = 1500
BAD_SECTOR = 2048 + BAD_ROW  # of a drive that has all rows, of one sector each, from 1 MiB on

FUNCTIONS = f"""
cd /tmp
run() {{ # run NAME [SETTING]...: with next to no cache, so that rows come from the disk
    name=$1; shift
    $penstock run /hyperion.json --dataset ${{data:-/tmp/data}} --epochs 1 --seed 2 --run-dir /tmp/$name \\
        --set stages.planner.params.cpu_cache=64KiB "$@"
}}
drives() {{ run $1 --set stages.disk.params.backend=nvme --set "stages.disk.params.drives=$2"; }}
kernels() {{ # the same, with the drives' queues driven by kernels
    export PENSTOCK_CUDA=/penstock/virtual-gpus.so
    run $1 --set stages.disk.params.backend=nvme --set "stages.disk.params.drives=$2" --set 'stages.disk.place={{"device":"cuda:0"}}'
}}
block() {{ echo /dev/$(basename /sys/bus/pci/devices/$1/nvme/nvme*/nvme*n1); }}
killed() {{
    drives killed {SLOW} &
    supervisor=$!
    for i in $(seq 200); do
        pid=$(ps -o pid,args | grep -v grep | grep 'penstock-stage.* disk' | awk '{{ print $1; exit }}')
        ls /proc/$pid/fd -l 2>/dev/null | grep -q vfio/ && break
        sleep 0.1
    done
    sleep 3
    kill -9 $pid
    t0=$(cut -d. -f1 /proc/uptime)
    wait $supervisor
    echo "exit code $?, after $(($(cut -d. -f1 /proc/uptime) - t0)) s"
}}
"""

SCRIPT = f"""
export penstock=/penstock/bin/penstock
. /functions
step gen 30 $penstock gen community /tmp/data --seed 1 --vertices {VERTICES} --quiet
step gen-odd 30 $penstock gen community /tmp/odd --seed 1 --vertices 2001 --features 100 --quiet
step store 30 sh -c "printf 'ONE\\nTWO\\n' | $penstock store /tmp/data --force --quiet --to $(block {FIRST}) $(block {SECOND})"
step store-slow 30 sh -c "echo SLOW | $penstock store /tmp/data --force --quiet --to $(block {SLOW})"
step store-bad 30 sh -c "echo BAD | $penstock store /tmp/data --force --quiet --to $(block {BAD})"
step unbound 20 drives unbound {FIRST},{SECOND}
for drive in {FIRST} {SECOND} {SLOW} {BAD}; do step bind-$drive 20 $penstock disks --bind $drive; done
step file 60 run file --set stages.disk.params.backend=file
step killed 60 killed
step bad 30 drives bad {BAD}
step swapped 20 drives swapped {SECOND},{FIRST}
step nvme 60 drives nvme {FIRST},{SECOND}
step gpu 90 kernels gpu {FIRST},{SECOND}
step gpu-bad 60 kernels gpu-bad {BAD}
step free 10 $penstock disks --json
for name in file nvme gpu killed; do step report-$name 5 cat /tmp/$name/report.json; done
for drive in {FIRST} {SECOND} {SLOW} {BAD}; do step release-$drive 20 $penstock disks --release $drive; done

export data=/tmp/odd
step store-odd 30 $penstock store /tmp/odd --force --quiet --to $(block {FIRST}) $(block {SECOND})
for drive in {FIRST} {SECOND}; do step bind-odd-$drive 20 $penstock disks --bind $drive; done
step file-odd 60 run file-odd --set stages.disk.params.backend=file
step nvme-odd 60 drives nvme-odd {FIRST},{SECOND}
step gpu-odd 90 kernels gpu-odd {FIRST},{SECOND}
for name in file-odd nvme-odd gpu-odd; do step report-$name 5 cat /tmp/$name/report.json; done
for drive in {FIRST} {SECOND}; do step release-odd-$drive 20 $penstock disks --release $drive; done
"""


def devices(place):
    paths = {name: os.path.join(place, name) for name in ("one", "two", "slow", "bad")}
    for path in paths.values():
        with open(path, "wb") as f:
            f.truncate(64 * MIB)
    drive = lambda name, more="": ["-drive", f"file={paths[name]},if=none,format=raw,id={name}{more}"]
    bad = (f"if=none,id=bad,driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={paths['bad']},"
           f"file.inject-error.0.event=none,file.inject-error.0.iotype=read,file.inject-error.0.sector={BAD_SECTOR}")
    return [["-drive", bad], ["-device", "nvme,serial=BAD,addr=7.0,drive=bad"], drive("one"), drive("two"), drive("slow", ",throttling.iops-total=40"),
            ["-device", "nvme,serial=ONE,addr=3.0,drive=one,max_ioqpairs=8,mdts=5"],
            ["-device", "nvme,serial=TWO,addr=5.0,drive=two,max_ioqpairs=2"],
            ["-device", "nvme,serial=SLOW,addr=6.0,drive=slow"]]


def report(name):
    assert STEPS[name].status == 0 and STEPS["report-" + name].status == 0, STEPS[name]
    return json.loads(STEPS["report-" + name].out)


def same_over_both(suffix="", way="nvme"):
    over_files, ours = report("file" + suffix), report(way + suffix)
    for key in ("digest", "weights_digest", "test_accuracy"):
        assert over_files[key] == ours[key], (over_files, ours)
    assert [e["loss"] for e in over_files["epochs"]] == [e["loss"] for e in ours["epochs"]] and over_files["epochs"]
    assert ours["io"]["backend"] == "nvme" and ours["io"]["rows"] > 0, ours["io"]
    return ours


@test
def same_loss_over_files_and_over_our_driver():
    ours = same_over_both()
    assert ours["io"]["bytes"] > 5 * MIB, ours["io"]
    assert ours["io"]["copied_bytes"] == 0, ours["io"]  # rows of one sector land in their slots


@test
def rows_that_fill_no_block_over_two_drives():
    assert same_over_both("-odd")["io"]["copied_bytes"] > 0


@test
def kernels_drive_the_queues():
    for suffix in ("", "-odd"):
        io = same_over_both(suffix, "gpu")["io"]
        assert io["submitted_by"] == "gpu" and io["handed_to_cpu"] == 0, io
        assert io["rows"] == io["gpu_commands"] + io["merged"] and (io["merged"] > 0) == (suffix == "-odd"), io
        assert (io["copied_bytes"] > 0) == (suffix == "-odd"), io


@test
def a_disk_stage_killed_with_reads_in_flight():
    step = STEPS["killed"]
    code, seconds = map(int, re.search(r"exit code (\d+), after (\d+) s", step.out).groups())
    assert code == 1 and seconds <= 5 and "disk" in step.out, step  # TCG's seconds are long
    stages = json.loads(STEPS["report-killed"].out)["stages"]
    assert stages["disk"]["wait_disk_s"] > 1, stages  # it waited for the drive, which serves forty reads a second
    slow = [d for d in json.loads(STEPS["free"].out) if d["serial"] == "SLOW"]
    assert slow and slow[0]["backends"]["nvme"]["usable"], STEPS["free"]  # and our driver has asked it


@test
def a_row_that_cannot_be_read():
    for step in (STEPS["bad"], STEPS["gpu-bad"]):
        assert step.status == 1 and f"LBA {BAD_SECTOR}" in step.out and f"vertex {BAD_ROW}" in step.out, step


@test
def refused_with_reason_and_command():
    for name, *texts in (("unbound", "bound to the driver nvme; expected vfio-pci", f"penstock disks --bind {FIRST}"),
                         ("swapped", "is drive 1 of 2 of its dataset; expected drive 0 of 2")):
        step = STEPS[name]
        assert step.status in (1, 2) and all(t in step.out for t in texts), step


@test
def released():
    for name, step in STEPS.items():
        if name.startswith(("bind-", "release-", "store", "gen")):
            assert step.status == 0, step


if __name__ == "__main__":
    need()
    with tempfile.TemporaryDirectory(prefix="penstock-qemu-") as place:
        with Guest(devices(place), FILES, SCRIPT, FUNCTIONS, memory_mib=1536) as guest:
            STEPS = guest.boot(240)
        main()
