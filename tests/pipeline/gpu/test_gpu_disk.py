"""The disk stage on a GPU: kernels drive NVMe queues of emulated drives and read what batches miss. On virtual GPUs
or real ones (gpus.py), in whole pipelines; tests/stage/test_device_disk*.c look closer."""
from crash import children, kill_ends, wait_for
from gpus import *
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = [word for pair in ("params.batch=120", "params.fanout=[3,2]", "stages.planner.params.gpu_cache=4KiB", "stages.planner.params.cpu_cache=0",
                           "stages.trainer.params.hidden=8") for word in ("--set", pair)] + ["--quiet"]
OTHERS = {"planner": "cuda:0", "sampler": "cuda:0", "trainer": "cuda:0"}


def on(**devices):
    return [word for name, device in devices.items()
            for word in ("--set", f'stages.{name}.place={{"device":"{device}"}}')]


def disk(**params):
    return [word for key, value in {"backend": "emulated", **params}.items()
            for word in ("--set", f"stages.disk.params.{key}={json.dumps(value)}")]


def data(p, features=16):
    path = p.path(f"few{features}")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "600", "--features", features, "--seed", "3")
    return path


def train(p, *args, epochs=1, features=16, **more):
    return p.run(HYPERION, *SMALL, "--epochs", epochs, *args, data=data(p, features), **more)


def same(report, want, name):
    assert report["digest"] == want["digest"], name
    assert report["weights_digest"] == want["weights_digest"], name
    assert [e["loss"] for e in report["epochs"]] == [e["loss"] for e in want["epochs"]], name


def by_gpu(io, name):
    assert io["backend"] == "emulated" and io["submitted_by"] == "gpu", (name, io)
    assert io["rows"] == io["gpu_commands"] + io["merged"] and io["gpu_commands"] > 0, (name, io)
    assert io["handed_to_cpu"] == io["cpu_commands"] == 0, (name, io)


@test
def the_same_run_as_from_files():
    with Place() as p:
        want = train(p).report
        for stack in ("batch",) if GROUPED else ("async", "sync", "batch"):  # ThreadSanitizer is slow on virtual GPUs
            r = train(p, *on(disk="cuda:0"), *disk(stack=stack, ssds=2)).report
            same(r, want, stack)
            by_gpu(r["io"], stack)
            assert r["io"]["bytes"] < 0.6 * 512 * r["io"]["rows"], r["io"]  # rows of 64 bytes share blocks
            assert r["stages"]["disk"]["device"] == "cuda:0", r["stages"]
        on_gpu = train(p, *on(**OTHERS)).report
        for device in (SECOND,) if GROUPED else ("cuda:0", SECOND):
            r = train(p, *on(**OTHERS, disk=device), *disk()).report
            same(r, on_gpu, device)
            by_gpu(r["io"], device)
            assert GROUPED or len({stage["pid"] for stage in r["stages"].values()}) == 4, r["stages"]
        same(train(p, *on(**OTHERS, disk="cuda:0"), *disk(), grouped=True).report, on_gpu, "one process")
        assert train(p, *disk()).report["io"]["submitted_by"] == "cpu"


@test
def rows_that_fill_blocks_land_in_their_slots():
    with Place() as p:
        want = train(p, features=128).report
        r = train(p, *on(disk="cuda:0", sampler="cuda:0"), *disk(ssds=3, complete="part"), features=128).report
        assert r["digest"] == want["digest"] and r["epochs"][0]["loss"] == want["epochs"][0]["loss"], r
        by_gpu(r["io"], "wide")
        assert r["io"]["copied_bytes"] == 0 and r["io"]["read_amplification"] == 1, r["io"]
        assert r["io"]["sq_doorbells"] < r["io"]["gpu_commands"] / 5, r["io"]


@test
def stripes_are_found():
    with Place() as p:
        want = train(p).report
        striped = p.path("striped")
        command("convert", data(p), striped, "--stripes", "3")
        r = p.run(HYPERION, *SMALL, "--epochs", 1, *on(disk=SECOND), *disk(ssds=2), data=striped).report
        same(r, want, "striped")
        by_gpu(r["io"], "striped")


@test
def faults_end_in_the_right_bytes_or_a_name():
    with Place() as p:
        want = train(p).report
        faults = {"error_rate": 0.03, "lost_rate": 0.002, "delay_rate": 0.01, "delay_us": 100000, "reorder_us": 200}
        r = train(p, *on(disk="cuda:0"),
                  *disk(ssds=2, timeout_ms=50, retries=50, emulated=json.dumps({"faults": faults}))).report
        same(r, want, "faults")
        io = r["io"]
        assert io["handed_to_cpu"] > 0 and io["cpu_commands"] > 0 and io["turns"] > 0 and io["rows"] > 0, io
        r = train(p, *on(disk="cuda:0"), *disk(emulated=json.dumps({"faults": {"error_rate": 1}})), code=1)
        for word in ("the features of vertex", "features.npy", "emulated SSD 0, namespace 1, LBA", "unrecovered read"):
            assert word in r.err, (word, r.err)


@test
def only_drives_of_our_own_are_driven_by_a_gpu():
    if GROUPED:
        raise Skip("what is refused has no threads")
    with Place() as p:
        for backend in ("auto", "file", "pread", "mmap"):
            r = train(p, *on(disk="cuda:0"), *disk(backend=backend), code=2)
            assert ("stages.disk.place.device: disk cannot run on cuda:0: disk can use a GPU only if "
                    "backend=nvme|emulated") in r.err, r.err
        for name, value, only in (("fault_rate", 0.1, "fault_rate=0"), ("fault_delay_us", 5, "fault_delay_us=0"),
                                  ("fault_short_rate", 1, "fault_short_rate=0"), ("fault_row", 0, "fault_row=-1")):
            r = command("check", *on(disk="cuda:0"), *disk(**{name: value}), HYPERION, code=2)
            assert f"disk cannot run on cuda:0: disk can use a GPU only if {only}\n" in r.stderr, r.stderr
        command("check", *on(disk="cuda:0"), *disk(fault_rate=0.0, fault_short_rate=0, fault_seed=7), HYPERION)
        r = train(p, *on(disk="auto"), *disk(fault_delay_us=5)).report
        said = r["stages"]["disk"]
        assert said["device"] == "cpu:0" and "only if fault_delay_us=0" in said["chosen"], said
        r = train(p, *on(disk="auto"), *disk(backend="pread")).report
        said = r["stages"]["disk"]
        assert said["device"] == "cpu:0" and "only if backend=nvme|emulated" in said["chosen"], said
        r = train(p, *disk(), "--device", SECOND).report
        assert all(s["device"] == SECOND for s in r["stages"].values()), r["stages"]
        by_gpu(r["io"], "--device")
        r = train(p, "--device", SECOND).report
        assert r["stages"]["disk"]["device"] == "cpu:0" and r["stages"]["trainer"]["device"] == SECOND, r["stages"]
        r = train(p, *on(disk="auto"), *disk()).report
        assert r["stages"]["disk"]["device"] == "cuda:0", r["stages"]["disk"]
        drawn = command("graph", *on(disk="cuda:0"), *disk(), HYPERION).stdout
        assert ", pinned" in drawn, drawn
        r = train(p, *on(disk="cuda:0"), *disk(backend="nvme", drives="0000:77:00.0"), code=1)
        assert "0000:77:00.0" in r.err, r


@test
def kills_leave_nothing():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        slow = disk(preset="980pro", dilate=100, stack="async")
        for victim in ("sampler", "disk", "trainer", "memory-cpu:0", "supervisor"):
            run = p.start(HYPERION, *SMALL, "--epochs", 1_000_000, *on(**{**OTHERS, "disk": "cuda:0"}), *slow,
                          data=data(p), grouped=False)
            kill_ends(run, victim, 0.3)


@test
def a_killed_controller_ends_the_run():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        for device in ("cuda:0", "cpu:0"):
            run = p.start(HYPERION, *SMALL, "--epochs", 1_000_000, *on(disk=device),
                          *disk(preset="980pro", dilate=100, timeout_ms=60000), data=data(p), grouped=False)
            controller = wait_for(lambda: [pid for pid in descendants(run.process.pid) if name_of(pid) == "penstock-nvme"])
            wait_for(lambda: os.path.exists(os.path.join(run.run_dir, "live.json")))
            wait_for(lambda: any(line.split()[0] == "disk" and int(line.split()[-1]) > 0 for line in
                                 command("top", "--once", run.run_dir).stdout.splitlines() if line.strip()))
            os.kill(controller[0], 9)
            t0 = time.time()
            r = run.wait(20)
            assert r.code == 1 and "the controller has disappeared" in r.err and "the features of vertex" in r.err, r
            assert time.time() - t0 < (20 if SAN else 5), (device, time.time() - t0)
            no_leftovers()


def descendants(pid):
    found = children(pid)
    return found + [x for child in found for x in descendants(child)]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return os.path.basename(f.read().split("\0")[0])
    except OSError:
        return ""


@test
def the_verdict_counts_what_kernels_read():
    if GROUPED:
        raise Skip("the threads are those of the_same_run_as_from_files")
    with Place() as p:
        r = train(p, *on(disk="cuda:0", **OTHERS), *disk(preset="p5510", dilate=20, ssds=2), "--set", "stages.trainer.params.eval_every=0").report
        v, io = r["verdict"], r["io"]
        assert io["gpu_commands"] > 0 and v["ssds"] == 2 and v["batches"] == 2, (v, io)
        assert abs(v["n_ssd"] - io["bytes"] / 2 / 64) < 1e-3 * v["n_ssd"] and v["access_bytes"] == io["bytes"] / io["gpu_commands"], (v, io)
        assert abs(v["th_ssd"] - min(750e3 * v["access_bytes"], 3.072e9) / 20 / 64) < 1e-3 * v["th_ssd"], v
        assert v["t_train_s"] > 0 and v["alpha_s"] is None and "without it" in v["why"]["alpha_s"], v


if __name__ == "__main__":
    main()
