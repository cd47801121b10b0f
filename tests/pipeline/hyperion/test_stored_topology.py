"""The topology on drives to which `penstock store --topology` wrote it: plain files, served by emulated drives through the
code that serves real ones. The same samples as from memory; what is missing or damaged is told."""
import struct

from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = ("params.batch=100", "stages.planner.params.cpu_cache=4KiB", "stages.trainer.params.hidden=8")
SSD = "params.topology=ssd"


def train(p, *pairs, **more):
    return p.run(HYPERION, *(word for pair in SMALL + pairs for word in ("--set", pair)), "--quiet", "--epochs", 1, **more)


def drives(files, *pairs):
    return ("stages.disk.params.backend=emulated", f"stages.disk.params.drives={json.dumps(','.join(files))}", *pairs)


def emulated(**more):
    return "stages.disk.params.emulated=" + json.dumps(json.dumps(more))


def store(p, name, n, *options, data=None):
    files = [p.path(f"{name}{i}") for i in range(n)]
    command("store", data or p.data, *options, "--quiet", "--to", *files)
    return files


def area_at(path, k):
    """Where indptr (k = 0) or indices (k = 1) begins on a drive, and the bytes of the whole array."""
    with open(path, "rb") as f:
        f.seek(152 + 8 + 24 * k)
        total, at = struct.unpack("<QQ", f.read(16))
    return at, total


def same(report, want, name):
    assert report["digest"] == want["digest"] and report["weights_digest"] == want["weights_digest"], name
    assert [e["loss"] for e in report["epochs"]] == [e["loss"] for e in want["epochs"]], name


@test
def the_same_from_drives_as_from_memory():
    with Place() as p:
        want = train(p, "params.topology=memory").report
        files = train(p, SSD).report
        three, one = store(p, "three", 3, "--topology"), store(p, "one", 1, "--topology")
        cases = [(three, ()), (three, ("stages.disk.params.stack=batch", "stages.disk.params.ssds=3")),
                 (one, (emulated(lba_bytes=4096),)),  # a sector is an eighth of a block
                 (three, ("stages.disk.params.retries=50", "stages.disk.params.timeout_ms=100",
                          emulated(faults={"error_rate": 0.05, "reorder_us": 100})))]
        for on, pairs in cases:
            r = train(p, SSD, *drives(on, *pairs)).report
            same(r, want, pairs)
            assert r["topology"]["sectors"] == files["topology"]["sectors"] > 0, (r["topology"], files["topology"])
            assert r["io"]["drives"] == len(on) and r["io"]["backend"] == "emulated", r["io"]
            assert ("faults" in str(pairs)) == (r["io"]["driver_retries"] + r["io"]["retries"] > 0), (pairs, r["io"])


@test
def kernels_drive_the_queues():
    """A disk stage on a (virtual) GPU reads features and topology; the CPU reads what does not fill a block, the arrays' ends."""
    with Place() as p:
        on, want = store(p, "drive", 2, "--topology"), train(p, "params.topology=memory").report
        os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
        try:
            r = train(p, SSD, *drives(on, 'stages.disk.place={"device": "cuda:0"}')).report
        finally:
            del os.environ["PENSTOCK_CUDA"]
        same(r, want, "gpu")
        io = r["io"]
        assert io["submitted_by"] == "gpu" and io["gpu_commands"] > r["topology"]["sectors"] > 100 * io["handed_to_cpu"], (io, r["topology"])


@test
def only_wanted_sectors_are_read():
    with Place() as p:
        data = p.path("rmat")
        command("gen", "rmat", data, "--vertices", 50000, "--edges", 800000, "--features", 128, "--classes", 4, "--quiet")
        on = store(p, "drive", 2, "--topology", data=data)
        exact = drives(on, "stages.planner.params.policy=rows")
        rows = train(p, *exact, data=data).report["io"]["bytes"]
        r = train(p, SSD, *exact, data=data).report
        wanted, read = r["topology"]["sectors"] * r["topology"]["sector_bytes"], r["io"]["bytes"] - rows
        print(f"# {read} bytes read for {wanted} bytes of wanted sectors: {read / wanted:.3f}")
        assert 0.9 * wanted < read <= 1.05 * wanted, (read, wanted)


@test
def topology_passes_the_bus_too():
    with Place() as p:
        on = store(p, "drive", 2, "--topology")
        bus = ("bus.bytes_per_s=1e9", "stages.planner.params.policy=rows")
        rows = train(p, *drives(on), *bus).report
        r = train(p, SSD, *drives(on), *bus).report
        same(r, rows, "bus")
        wanted = r["topology"]["sectors"] * r["topology"]["sector_bytes"]
        assert r["bus"]["drive_bytes"] >= r["io"]["bytes"] > rows["io"]["bytes"] + 0.9 * wanted > rows["io"]["bytes"], (r["bus"], r["io"])


@test
def drives_without_topology_are_told():
    with Place() as p:
        bare, full = store(p, "bare", 2), store(p, "full", 2, "--topology")
        want = train(p).report
        for on in (bare, full):  # features alone are read from both
            same(train(p, *drives(on)).report, want, on)

        def refused(on, *pairs, words):
            r = train(p, SSD, *drives(on, *pairs), code=None)
            assert r.code in (1, 2) and all(word in r.err for word in words), (on, r.err)
        refused(bare, words=(f"{bare[0]})", "but not its topology", f"penstock store {p.data} --topology --to"))
        refused([full[0], bare[1]], words=(f"{bare[1]})", "but not its topology"))
        refused(full[::-1], words=("is drive 1 of 2 of its dataset; expected drive 0 of 2",))
        refused(full, "stages.disk.params.ssds=3", words=("drives lists 2 files, but ssds is 3",))
        refused([full[0], p.path("none")], words=(p.path("none"), "No such file"))
        r = train(p, *drives([full[0], bare[1]]), code=None)
        assert r.code in (1, 2) and "were written by different commands" in r.err, r.err
        with open(full[1], "r+b") as f:
            f.seek(170)
            byte = f.read(1)
            f.seek(170)
            f.write(bytes([byte[0] ^ 1]))
        refused(full, words=("which says what is on the drive, is damaged", "penstock store"))


@test
def damage_on_a_drive_is_told():
    with Place() as p:
        for k, word in ((0, "edges; `penstock verify"), (1, "an edge contains vertex 2147483647")):
            on = store(p, f"drive{k}", 2, "--topology")
            at, _ = area_at(on[1], k)
            with open(on[1], "r+b") as f:
                f.seek(at)
                f.write((2**31 - 1).to_bytes(4, "little") * 1024)
            r = train(p, SSD, *drives(on), code=None)  # the planner reads the dataset's files, which are whole
            assert r.code == 1 and "sampler" in r.err and word in r.err, (k, r.err)
            same(train(p, *drives(on)).report, train(p).report, "the features are whole")


if __name__ == "__main__":
    main()
