"""A topology of four times the memory cgroup, with topology=ssd: pre-sampling, plan and training give what a run without
a limit gives, and read the wanted sectors only. The times beside it: fio's reads of as many sectors, and topology=mmap."""
import json
import os
import resource
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from cgroup import Unavailable, memory_limit
from harness import *

LIMIT_BYTES = 128 << 20
VERTICES, EDGES, TRAIN, SECTOR = 1 << 19, 134_000_000, 25_000, 512
GEN_S, RUN_S, FIO_S = 900, 900, 8
MMAP_S = 180  # the run with mapped files is stopped then: its random faults evict each other
SETS = ("params.batch=1000", "params.fanout=[10,5]", "stages.trainer.params.hidden=8", "stages.trainer.params.eval_every=0",
        "stages.planner.params.cpu_cache=1MiB", "stages.planner.params.hotness=presample", "params.gap_bytes=0")
SSD = ("params.topology=ssd", "stages.planner.params.presample_memory=32MiB")


def leave_page_cache(data):
    for name in os.listdir(data):
        with open(os.path.join(data, name), "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def command_of(*args, before=None, timeout=RUN_S):
    """What a command of penstock took: seconds, and bytes that its processes read from block devices."""
    was, begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock, time.time()
    r = subprocess.run([PENSTOCK, *map(str, args)], capture_output=True, text=True, timeout=timeout, preexec_fn=before)
    assert r.returncode == 0, f"{args}: exit code {r.returncode}\n{r.stdout}{r.stderr}"
    return time.time() - begin, (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - was) * 512


def train(place, data, name, *pairs, before=None, timeout=RUN_S):
    """The report of one epoch; its seconds, and the bytes that were read, with a cold page cache."""
    leave_page_cache(data)
    report = os.path.join(place, name + ".json")
    sets = [word for pair in (*SETS, *pairs) for word in ("--set", pair)]
    seconds, read = command_of("run", os.path.join(ROOT, "pipelines", "hyperion.json"), *sets, "--dataset", data, "--epochs", 1, "--quiet",
                               "--run-dir", os.path.join(place, name), "--report", report, before=before, timeout=timeout)
    with open(report) as f:
        return json.load(f), seconds, read


def fio_sectors_per_s(path):
    """Random reads of single sectors, as many in flight as the disk stage has."""
    r = subprocess.run(["fio", "--name=sectors", f"--filename={path}", "--readonly", "--rw=randread", f"--bs={SECTOR}", "--direct=1",
                        "--ioengine=io_uring", "--iodepth=128", "--time_based", f"--runtime={FIO_S}", "--output-format=json"],
                       capture_output=True, text=True, timeout=10 * FIO_S)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)["jobs"][0]["read"]["iops"]


def same(found, want):
    for field in ("digest", "weights_digest"):
        assert found[field] == want[field], (field, found[field], want[field])
    assert [e["loss"] for e in found["epochs"]] == [e["loss"] for e in want["epochs"]]


@test
def four_times_the_memory():
    if shutil.which("fio") is None:
        raise Skip("fio is not installed (tools/install-deps --bench)")
    try:
        with memory_limit(LIMIT_BYTES):
            pass
    except Unavailable as reason:
        raise Skip(str(reason))
    place = tempfile.mkdtemp(prefix="penstock-accept-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        data = os.path.join(place, "data")
        command_of("gen", "rmat", data, "--vertices", VERTICES, "--edges", EDGES, "--features", 16, "--classes", 8, "--train-count", TRAIN,
                   "--quiet", timeout=GEN_S)
        size = sum(os.path.getsize(os.path.join(data, name)) for name in ("indptr.npy", "indices.npy"))
        assert size >= 4 * LIMIT_BYTES, size
        want, memory_s, _ = train(place, data, "memory", "params.topology=memory")
        with memory_limit(LIMIT_BYTES) as cgroup:
            found, ssd_s, read = train(place, data, "ssd", *SSD, before=cgroup.enter)
            peak, kills = cgroup.peak_bytes(), cgroup.kills()
        same(found, want)
        assert kills == 0, kills
        wanted = (found["presample"]["sectors"] + found["topology"]["sectors"]) * SECTOR
        topology = found["presample"]["bytes"] + found["io"]["bytes"] - want["io"]["bytes"]
        rate = fio_sectors_per_s(os.path.join(data, "indices.npy"))
        fio_s = wanted / SECTOR / rate
        with memory_limit(LIMIT_BYTES) as cgroup:
            try:
                mapped, mmap_s, _ = train(place, data, "mmap", before=cgroup.enter, timeout=MMAP_S)
                same(mapped, want)
                ratio = f"{mmap_s:.1f} s, {mmap_s / ssd_s:.2f} times ssd"
            except subprocess.TimeoutExpired:
                ratio = f"stopped after {MMAP_S} s, more than {MMAP_S / ssd_s:.1f} times ssd"
        print(f"# topology {size / LIMIT_BYTES:.2f} x the cgroup of {LIMIT_BYTES >> 20} MiB; peak {peak / (1 << 20):.0f} MiB")
        print(f"# wanted sectors {wanted / 1e6:.1f} MB ({found['presample']} for the plan); read {topology / 1e6:.1f} MB: "
              f"{topology / wanted:.4f}; all processes read {read / 1e6:.1f} MB from block devices")
        print(f"# run {ssd_s:.1f} s; fio {rate:.0f} sectors a second: {fio_s:.1f} s; ratio {ssd_s / fio_s:.2f}")
        print(f"# in memory, without a limit: {memory_s:.1f} s; mmap in the cgroup: {ratio}", flush=True)
        assert topology <= 1.05 * wanted, (topology, wanted)
        assert ssd_s <= 1.15 * fio_s, (ssd_s, fio_s)
    finally:
        shutil.rmtree(place)


main()
