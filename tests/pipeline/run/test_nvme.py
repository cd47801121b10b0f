"""Training whose features come through our own NVMe driver from emulated drives: the same to the last bit as from
files, whatever the stack, the drives and their faults."""
from crash import *


def settings(**params):
    return [x for key, value in params.items() for x in ("--set", f"stages.disk.params.{key}={json.dumps(value)}")]


def train(p, *args, code=0):
    argv = ["--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache=128KiB", "--quiet", "--epochs", 1]
    return p.run(HYPERION, *argv, *args, code=code)


def same(report):
    return outcome(report) + tuple(e["loss"] for e in report["epochs"])


@test
def the_same_from_emulated_drives_as_from_files():
    with Place() as p:
        want = same(train(p, *settings(backend="file"), "--epochs", 2).report)
        cases = [dict(), dict(stack="sync", lanes=16, ssds=2), dict(stack="batch", ssds=3),
                 dict(ssds=4, lanes=2, preset="optane", dilate=10),
                 dict(ssds=2, timeout_ms=50, retries=50,
                      emulated=json.dumps({"faults": {"error_rate": 0.02, "lost_rate": 0.002, "delay_rate": 0.01,
                                                      "delay_us": 100000, "reorder_us": 200}}))]
        for case in cases:
            r = train(p, *settings(backend="emulated", **case), "--epochs", 2).report
            assert same(r) == want, case
            assert r["io"]["backend"] == "emulated" and r["io"]["rows"] > 0, r["io"]
            assert ("faults" in case.get("emulated", "")) == (r["io"]["retries"] > 0), (case, r["io"])


@test
def rows_land_in_their_slots_without_a_copy():
    with Place() as p:
        path = p.path("wide")  # 128 float32 fill a block
        command("gen", "community", path, "--vertices", "2000", "--seed", "3", "--features", "128")
        r = train(p, *settings(backend="emulated", ssds=2), "--dataset", path).report
        assert r["io"]["copied_bytes"] == 0 and r["io"]["direct"] == "yes", r["io"]


@test
def a_doorbell_brings_many_commands():
    """One doorbell a queue and wave; a wave takes all tables that wait, or, if they do not fit, half of what may be in
    flight."""
    with Place() as p:
        path = p.path("wide")
        command("gen", "community", path, "--vertices", "4000", "--seed", "3", "--features", "128")
        for depth, ssds in (("auto", 12), (128, 12)):
            for more in (dict(lanes=2), dict(stack="batch")):
                r = train(p, *settings(backend="emulated", ssds=ssds, preset="p5510", dilate=10, depth=depth, **more), "--dataset",
                          path).report
                io, parts = r["io"], r["stages"]["sampler"]["frames"]
                assert io["queues"] == 2 * ssds and io["cpu_commands"] == io["requests"] and io["handed_to_cpu"] == 0, io
                assert io["sq_doorbells"] <= io["queues"] * io["waves"], io
                half = 512 if depth == "auto" else depth // 2  # of a queue's 1024 entries, or of the depth
                assert 0 < io["waves"] <= parts + io["cpu_commands"] / half, (depth, ssds, more, parts, io)


@test
def the_depth_comes_from_the_drives():
    with Place() as p:
        for case, depth, needed in ((dict(preset="p5510", ssds=12, dilate=100), 1476, 738), (dict(preset="optane"), 128, 17),
                                    (dict(preset="980pro", ssds=3, dilate=50), 1362, 681), (dict(), 128, 0),
                                    (dict(preset="980pro", depth=16), 16, 227),
                                    (dict(emulated=json.dumps({"iops": 1e6, "latency_us": 200})), 400, 200)):
            io = train(p, *settings(backend="emulated", **case), "--batches", 1).report["io"]
            assert io["depth"] == depth and io["depth_needed"] == needed and io["depth_from"], (case, io)
        io = train(p, *settings(backend="file"), "--batches", 1).report["io"]
        assert (io["depth"], io["depth_needed"], io["depth_from"]) == (128, 0, "the default for files"), io


def curve_of(cache):
    """The one file that keeps the curve of a drive, and its contents."""
    (path,) = glob.glob(os.path.join(cache, "penstock", "drive-*.json"))
    with open(path) as f:
        return path, json.load(f)


@test
def the_gap_comes_from_the_drive():
    """gap_bytes "auto": the drive is measured once, the gap is what its curve says, and the weights stay the same."""
    with Place() as p:
        wide, cache = p.path("wide"), p.path("cache")
        command("gen", "community", wide, "--vertices", "4000", "--seed", "3", "--features", "128")
        os.environ["XDG_CACHE_HOME"] = cache
        try:
            given = train(p, *settings(gap_bytes=0), "--dataset", wide).report
            assert given["io"]["gap_bytes"] == 0 and given["io"]["gap_from"] == "the parameter gap_bytes", given["io"]
            small = train(p, *settings(gap_bytes="auto"), "--batches", 1).report["io"]  # 2,000 rows of 512 bytes
            first, second = (train(p, *settings(gap_bytes="auto"), "--dataset", wide).report for _ in range(2))
            assert same(first) == same(second) == same(given)
            for backend in ("emulated", "mmap"):
                io = train(p, *settings(gap_bytes="auto", backend=backend), "--batches", 1).report["io"]
                assert io["gap_bytes"] == 0 and io["gap_from"] == f"the backend {backend} reads no gaps", io
            io = train(p, *settings(gap_bytes="auto", direct=False), "--batches", 1).report["io"]
            assert io["gap_bytes"] == 4096 and "the default, because reads go through the page cache" in io["gap_from"], io
            if first["io"]["direct"] != "yes":
                assert first["io"]["gap_bytes"] == 4096, first["io"]
                return
            assert small["gap_bytes"] == 4096 and "too few to measure the drive" in small["gap_from"], small
            path, curve = curve_of(cache)
            points = dict(curve["points"])
            read = max(512, min(points))  # of a row of 512 bytes
            gap = min(points[read] * max(bytes / s for bytes, s in points.items()) - read, (128 << 10) - 2 * read)  # coalesce_bytes
            for io, took in ((first["io"], True), (second["io"], False)):
                assert (io["gap_measured_s"] > 0) == took and abs(io["gap_bytes"] - gap) <= 512 and io["gap_bytes"] % 512 == 0, (io, curve)
                assert abs(io["drive_iops"] * points[read] - 1) < 1e-6 and "the drive was measured" in io["gap_from"], (io, curve)
            # a drive whose small reads take as long as 32 KiB of a large one
            curve["points"] = [[bytes, max(32768, bytes) * 1e-9] for bytes in points]
            with open(path, "w") as f:
                json.dump(curve, f)
            slow = train(p, *settings(gap_bytes="auto"), "--dataset", wide).report
            assert same(slow) == same(given) and slow["io"]["gap_bytes"] == 32768 - read, slow["io"]
            assert slow["io"]["requests"] < given["io"]["requests"] / 4 and slow["io"]["bytes"] > given["io"]["bytes"], (slow["io"], given["io"])
        finally:
            del os.environ["XDG_CACHE_HOME"]


@test
def what_cannot_be_read_is_named():
    with Place() as p:
        faults = json.dumps({"faults": {"error_rate": 1}})
        r = train(p, *settings(backend="emulated", emulated=faults), code=1)
        for word in ("the features of vertex", "features.npy", "emulated SSD 0, namespace 1, LBA", "unrecovered read"):
            assert word in r.err, (word, r.err)


@test
def a_drive_that_dies_for_good_ends_the_run():
    with Place() as p:
        for case in (dict(), dict(ssds=2, coalesce_bytes=65536), dict(stack="sync", lanes=8)):
            faults = json.dumps({"transfer_bytes": 8192, "faults": {"dead_after": 300}})
            r = train(p, *settings(backend="emulated", retries=3, emulated=faults, **case), code=1)
            assert "cannot be reset" in r.err and "emulated SSD" in r.err, (case, r.err)
            assert r.seconds < (60 if SAN else 15), (case, r.seconds)


@test
def wrong_settings_are_told():
    with Place() as p:
        r = train(p, *settings(backend="emulated", emulated=json.dumps({"speed": 1})), code=1)
        assert "speed" in r.err, r
        r = train(p, *settings(backend="nvme"), code=2)
        assert "stages.disk.params: backend=nvme needs the parameter drives" in r.err and "penstock disks" in r.err, r
        r = train(p, *settings(backend="nvme", drives="0000:77:00.0"), code=1)
        assert "0000:77:00.0" in r.err, r


@test
def a_killed_disk_stage_takes_its_drives_along():
    if GROUPED:
        raise Skip("all stages are threads under ThreadSanitizer")
    with Place() as p:
        run = p.start(HYPERION, "--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache=128KiB",
                      "--quiet", "--epochs", 1_000_000,  # never done before it is killed
                      *settings(backend="emulated", preset="980pro", dilate=100, depth=1024))
        disk = wait_for(lambda: processes(run).get("disk"))
        wait_for(lambda: any(name.startswith("penstock-nvme") for name in programs_of(disk)))
        time.sleep(0.5)
        os.kill(disk, signal.SIGKILL)
        r = run.wait(20)
        assert r.code == 1 and "disk" in r.err and "signal 9" in r.err, r
        no_leftovers()


@test
def the_bus_limits_all_drives_together():
    """Hyperion, Figure 12a: drives of 3.07 GB/s each fill a bus of 24 GB/s with 8; more of them add nothing."""
    if GROUPED:
        raise Skip("ThreadSanitizer makes the emulated drives slower than the bus")
    def rate(ssds, *args):
        r = json.loads(command("bench", "io", "--json", "--preset", "p5510", "--dilate", 500, "--depth", 2000, "--queues", 2,
                               "--seconds", 0.25, "--ssds", ssds, *args).stdout)
        assert r["p_s"] >= 1, r
        return r["bytes_per_s"] * 500
    def close(ssds, want, *args):
        seen = []
        while not any(0.85 * want < x < 1.05 * want for x in seen):  # other processes make it slower, or late and then faster
            assert len(seen) < 4, (ssds, args, seen, want)
            seen.append(rate(ssds, *args))
    close(12, 24e9, "--bus", 24e9)
    close(12, 12 * 750e3 * 4096)


@test
def the_bench_checks_what_it_measures():
    if GROUPED:
        raise Skip("64 MiB at a time take minutes under ThreadSanitizer, and test_nvme runs the same code")
    with Place() as p:
        for args in (["--bytes", "512"], ["--stack", "sync", "--ssds", "2"], ["--write", "--lanes", "2"],
                     ["--threads", "3", "--ssds", "2", "--queues", "2"], ["--threads", "2", "--write", "--stack", "batch"],
                     ["--backend", "file", "--file", p.path("file"), "--threads", "2"],
                     ["--stack", "batch", "--bytes", 1 << 20, "--depth", "4"],
                     ["--burst", "--depth", "300", "--span", 1 << 40, "--preset", "optane"],
                     ["--backend", "pread", "--file", p.path("file")], ["--backend", "mmap", "--file", p.path("file")]):
            r = json.loads(command("bench", "io", "--json", "--seconds", "0.02", *args).stdout)
            assert r["requests"] > 0 and r["iops"] > 0 and r["latency_us"]["p50"] > 0, (args, r)
            assert r["cpu_ns"] > 0 and r["threads"] == (int(args[args.index("--threads") + 1]) if "--threads" in args else 1), r
            assert r["stack"] != "sync" or r["sq_doorbells"] == r["commands"], r  # a doorbell a command
        r = command("bench", "io", "--stack", "batch", "--bytes", 64 << 20, "--span", 128 << 20, "--depth", 1,
                    "--seconds", "0.01", "--json")
        r = json.loads(r.stdout)
        assert r["commands"] == 512 * r["checked"] and r["sq_doorbells"] == r["checked"], r  # one a batch
        with open(p.path("file"), "r+b") as f:  # one wrong byte in each request
            for at in range(0, 64 << 20, 4096):
                f.seek(at + 77)
                f.write(b"x")
        r = command("bench", "io", "--backend", "pread", "--file", p.path("file"), "--seconds", "0.02", code=None)
        assert r.returncode != 0 and "wrong bytes" in r.stderr and "/s" not in r.stdout, r
        r = command("bench", "io", "--threads", "60", "--queues", "3", code=None)
        assert r.returncode == 2 and "queue pairs" in r.stderr and "--threads 60" in r.stderr, r
        r = command("bench", "io", "--stack", "fast", code=None)
        assert r.returncode == 2 and "fast" in r.stderr, r


@test
def the_bench_times_something_whatever_the_depth():
    if GROUPED:
        raise Skip("64 MiB at a time take minutes under ThreadSanitizer")
    slow = json.dumps({"faults": {"delay_rate": 1, "delay_us": 30000}})
    for args in (["--stack", "batch", "--bytes", "64MiB", "--span", "256M", "--depth", "2"],  # as many slots as 2 x depth
                 ["--bytes", "64MiB", "--span", "256M", "--depth", "4"],  # as many slots as depth
                 ["--depth", "4", "--emulated", slow],  # nothing ends while the time passes
                 ["--depth", "4", "--emulated", slow, "--threads", "2"],
                 ["--burst", "--depth", "4", "--emulated", slow]):
        t0 = time.time()
        r = json.loads(command("bench", "io", "--json", "--seconds", "0.005", *args).stdout)
        assert r["requests"] > 0 and r["iops"] > 0, (args, r)
        assert time.time() - t0 < (60 if SAN else 15), (args, time.time() - t0)
    for option, value in (("--bytes", "64Mi"), ("--bytes", "0"), ("--span", "3 GiB"), ("--span", "-1"), ("--depth", "1K")):
        r = command("bench", "io", option, value, code=None)
        assert r.returncode == 2 and option in r.stderr and value in r.stderr, r


def programs_of(pid):
    found = []
    for child in children(pid):
        try:
            with open(f"/proc/{child}/cmdline") as f:
                found.append(os.path.basename(f.read().split("\0")[0]))
        except OSError:
            pass
    return found


if __name__ == "__main__":
    main()
