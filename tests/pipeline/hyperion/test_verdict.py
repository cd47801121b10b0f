"""The report's verdict: the three times of a batch, against runs whose bottleneck is known, and values that are unknown."""
import signal

from crash import HYPERION, wait_for
from harness import *

SSDS, DILATE = 3, 100
IOPS = 750e3 / DILATE  # of one P5510
SLOW_DISK = ["--seed", 2, "--set", "stages.disk.params.backend=emulated", "--set", "stages.disk.params.preset=p5510",
             "--set", f"stages.disk.params.dilate={DILATE}", "--set", f"stages.disk.params.ssds={SSDS}",
             "--set", "params.batch=256", "--set", "stages.trainer.params.eval_every=0"]
NO_PAUSES = ["--set", "stages.trainer.params.checkpoint_every=0"]  # reads go on during a checkpoint, which no batch counts


def cached(text):
    return ["--set", f"stages.planner.params.cpu_cache={text}"]


def near(found, wanted, share=1e-6):
    assert abs(found - wanted) <= share * wanted, f"expected {wanted}, found {found}"


@test
def ssds_bound():
    if SAN:
        raise Skip("a sanitizer makes the trainer slower than the drives")
    with Place() as p:
        r = p.run(HYPERION, *SLOW_DISK, *NO_PAUSES, *cached("100KiB"), "--epochs", 10)
        v, io, trainer = (r.report[key] for key in ("verdict", "io", "trainer"))
        assert v["bound_by"] == "ssd" and v["ssds"] == SSDS and 512 <= v["access_bytes"] < 520, v  # few rows are neighbours
        assert v["batches"] == trainer["batches"] == r.report["stages"]["trainer"]["items"], v
        near(v["samples_per_batch"], trainer["seeds"] / v["batches"])
        near(v["n_ssd"], io["bytes"] / v["batches"] / 64)
        near(v["th_ssd"], IOPS * v["access_bytes"] / 64)
        near(v["alpha_s"], r.report["sampler"]["lookup_s"] / v["batches"], 1e-3)
        near(v["t_ssd_s"], v["n_ssd"] / (v["th_ssd"] * SSDS) + v["alpha_s"])
        near(v["t_train_s"], trainer["train_s"] / (v["batches"] - 1), 1e-3)
        assert v["t_batch_s"] == v["t_ssd_s"] > 2 * v["t_train_s"], v
        # slots fill while the first batch warms up; and a busy machine slows the process that emulates the drives
        assert 0.6 * v["t_batch_s"] < v["measured_batch_s"] < 2 * v["t_batch_s"], v
        assert v["th_pcie"] is None and v["t_pcie_s"] is None and "no bus" in v["why"]["th_pcie"], v
        assert v["n_mem"] == 0 and "stands for" in v["why"]["n_mem"], v
        assert "a batch needs       SSD " in r.out and "PCIe unknown" in r.out, r


@test
def training_bounds():
    with Place() as p:
        r = p.run(HYPERION, *SLOW_DISK, *cached("64MiB"), "--epochs", 2)
        v = r.report["verdict"]
        assert v["bound_by"] == "train" and v["n_ssd"] == 0 and v["access_bytes"] is None, v
        assert v["t_ssd_s"] == v["t_pcie_s"] == 0 and v["t_batch_s"] == v["t_train_s"] > 0, v


@test
def a_bus_bounds():
    """Rows of the CPU tier wait for the bus; its rate, its bytes and the verdict agree."""
    rate = 50e6
    with Place() as p:
        bus = ["--set", f"bus.bytes_per_s={rate * 2}", "--set", "bus.dilate=2"]
        plain = p.run(HYPERION, *cached("64MiB"), "--epochs", 1)
        r = p.run(HYPERION, *cached("64MiB"), *bus, "--epochs", 1)
        v, told, cache = (r.report[key] for key in ("verdict", "bus", "cache"))
        assert "bus" not in plain.report and told["bytes_per_s"] == rate * 2 and told["dilate"] == 2, told
        hits = cache["hits"] - cache["gpu_hits"]
        assert hits > 0 and told["bytes"] > 0 and told["bytes"] % hits == 0, (told, cache)  # whole rows
        near(v["th_pcie"], rate / 64)
        near(v["n_mem"], told["bytes"] / v["batches"] / 64)
        near(v["t_pcie_s"], (v["n_ssd"] + v["n_mem"]) / v["th_pcie"])
        least = (told["bytes"] - v["batches"] * (256 << 10)) / rate  # less the credit of a bus that is idle between batches
        assert 0 < least <= r.report["sampler"]["gather_s"], (least, r.report["sampler"])


@test
def drives_and_cached_rows_share_the_bus():
    """Drives without a limit are as fast as the bus. What they read and what the CPU tier gives pass it, one after the other."""
    rate = 20e6
    with Place() as p:
        drives = ["--set", "stages.disk.params.backend=emulated", "--set", "stages.disk.params.ssds=2", "--set", "stages.disk.params.dilate=3",
                  "--set", "params.batch=256"]
        bus = ["--set", f"bus.bytes_per_s={rate * 3}", "--set", "bus.dilate=3"]
        plain = p.run(HYPERION, *drives, *cached("300KiB"), "--epochs", 2).report
        r = p.run(HYPERION, *drives, *bus, *cached("300KiB"), "--epochs", 2).report
        told, v = r["bus"], r["verdict"]
        assert r["weights_digest"] == plain["weights_digest"], "a bus changes no bit"
        assert told["bytes"] > 0 and told["drive_bytes"] >= r["io"]["bytes"] > 0, (told, r["io"])
        least = (told["bytes"] + told["drive_bytes"] - (1 << 20)) / rate  # less what an idle bus catches up
        assert least > 0.2 and r["phases"]["run_s"] >= least, (least, r["phases"], told)
        near(v["t_pcie_s"], (v["n_ssd"] + v["n_mem"]) / v["th_pcie"])
        for backend in ("file", "pread", "mmap"):  # reads of files, of which the page cache has all
            files = ["--set", "stages.disk.params.backend=" + backend, "--set", "params.batch=256"]
            r = p.run(HYPERION, *files, *bus, *cached("300KiB"), "--epochs", 2).report
            told = r["bus"]
            assert r["weights_digest"] == plain["weights_digest"], backend
            assert r["io"]["backend"] == backend and told["drive_bytes"] == r["io"]["bytes"] > 0, (told, r["io"])
            least = (told["bytes"] + told["drive_bytes"] - (1 << 20)) / rate
            assert least > 0.2 and r["phases"]["run_s"] >= least, (least, r["phases"], told)
        for more, key in ((bus, "bus_bytes_per_s"), (bus, "dilate"), ([], "bus")):
            err = p.run(HYPERION, *drives, *more, "--set", "stages.disk.params.emulated=" + json.dumps(json.dumps({key: 1})), code=1).err
            assert f"has the key {key}, but the pipeline already models the bus" in err, err


@test
def a_bus_of_bad_values():
    with Place() as p:
        for sets, path in ((["bus=3"], "bus"), (["bus.dilate=2"], "bus.bytes_per_s"), (["bus.bytes_per_s=1e9", "bus.dilate=0.5"], "bus.dilate"),
                           (["bus.bytes_per_s=1e6", "bus.dilate=2"], "bus.bytes_per_s"), (["bus.bytes_per_s=1e9", "bus.rate=2"], "bus.rate"),
                           (["bus.bytes_per_s=1e9", "bus.dilate=2", "stages.disk.params.backend=emulated", "stages.disk.params.dilate=3"],
                            "stages.disk.params.dilate"), (["bus.bytes_per_s=1e9", 'stages.trainer.place={"device":"cuda:0"}'], "stages.trainer.place.device")):
            r = command("check", *[word for text in sets for word in ("--set", text)], HYPERION, code=2)
            assert path in r.stderr, (sets, r)


@test
def a_file_is_measured():
    with Place() as p:
        r = p.run(HYPERION, *cached("100KiB"), "--epochs", 2, "--set", "stages.disk.params.backend=pread")
        v, io = r.report["verdict"], r.report["io"]
        near(v["th_ssd"], io["bytes"] / io["active_s"] / 64)
        near(v["t_ssd_s"], io["active_s"] / v["batches"] + v["alpha_s"])
        assert "may be faster" in v["why"]["th_ssd"] and "count as one" in v["why"]["ssds"], v


@test
def an_interrupted_run():
    """Reads for batches that were never trained count, and the verdict says how much that may be."""
    with Place() as p:
        whole = p.run(HYPERION, *SLOW_DISK, *cached("100KiB"), "--epochs", 3).report["verdict"]
        run = p.start(HYPERION, *SLOW_DISK, *cached("100KiB"), "--epochs", 200)
        wait_for(lambda: glob.glob(run.run_dir + "/checkpoints/*.safetensors"), 20)
        run.process.send_signal(signal.SIGINT)
        r = run.wait()
        v = r.report["verdict"]
        assert r.code == 130 and v["batches"] >= 2, r
        most = r.report["sampler"]["batches"] / v["batches"]
        assert 0.95 * whole["n_ssd"] < v["n_ssd"] < 1.05 * most * whole["n_ssd"], (v, whole)
        assert f"too high by at most {100 * (most - 1):.0f} %" in v["why"]["n_ssd"] if most > 1 else "n_ssd" not in v["why"], v
        assert v["t_train_s"] > 0 and v["measured_batch_s"] > 0, v


@test
def nothing_is_invented():
    with Place() as p:
        r = p.run(pipeline({"source": stage("source", batches=5), "sink": stage("sink")}, links("source.out", "sink.in")))
        v = r.report["verdict"]
        for key in ("bound_by", "t_ssd_s", "t_pcie_s", "t_train_s", "t_batch_s", "measured_batch_s", "batches", "n_ssd", "th_ssd"):
            assert v[key] is None, (key, v)
        assert set(v["why"]) >= {"batches", "t_train_s", "n_ssd", "th_ssd", "alpha_s"}, v
        assert "a batch needs" not in r.out, r


if __name__ == "__main__":
    main()
